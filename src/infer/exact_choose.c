/*
 * Into how many slices of columns and blocks of sources a layer is cut.
 *
 * A pass holds (rows of a block) x (columns of a slice) in memory and streams the lists once. With
 * S slices and B blocks, X bytes of input, I of lists, E edges, and D bytes of states of all
 * columns:
 *
 *     disk    S X + S B I + 2 D (B - 1) + 2 D (S - 1) / S
 *     memory  S E rows of W/S columns fetched at random, each some cache lines; S B E entries
 * looked at
 *
 * A slice must read the input again, a block must read and write the states again: where states are
 * small beside the input, blocks are cheaper, and their rows fill whole cache lines; where they are
 * large, slices are. papers100M, 128 columns of f16 to 16 of f32, in 4 GiB: two blocks (28 + 13 +
 * 14 GB if all nodes are destinations) beat two slices (57 + 13 + 7 GB), and take half the fetches.
 */
#include "infer/exact_cost.h"

#include "base/check.h"

/* Measured on two cores: bytes a second from disk, cache lines fetched at random and entries looked
 * at by all threads. Only their ratio counts here. */
#define DISK_RATE 2.5e9
#define FETCH_RATE 80e6
#define ENTRY_RATE 800e6

#define BLOCKS_MOST 4096
#define SLICES_MOST 64 /* but of attention, which cannot have blocks */

int64_t plim__exact_slice_width(const plim__exact_layer_t *layer, int64_t columns)
{
    if (layer->aggregate != PLIM__STREAM_AGGREGATE_ATTENTION)
        return columns;
    /* Whole heads, or a part of one: see slice_columns. */
    const int64_t heads = (columns + layer->channels - 1) / layer->channels;
    return columns + 2 * heads;
}

/* `slices` of about equal width; attention's are whole heads, or so many for each head. */
static int64_t slice_columns(const plim__exact_layer_t *layer, int64_t slices)
{
    if (layer->aggregate != PLIM__STREAM_AGGREGATE_ATTENTION)
        return (layer->wide + slices - 1) / slices;
    if (slices <= layer->heads)
        return (layer->heads + slices - 1) / slices * layer->channels;
    const int64_t parts = (slices + layer->heads - 1) / layer->heads;
    return (layer->channels + parts - 1) / parts;
}

static int64_t count_slices(const plim__exact_layer_t *layer, int64_t columns)
{
    if (layer->aggregate != PLIM__STREAM_AGGREGATE_ATTENTION || columns >= layer->channels)
        return (layer->wide + columns - 1) / columns;
    return layer->heads * ((layer->channels + columns - 1) / columns);
}

int64_t plim__exact_slices_most(const plim__exact_layer_t *layer)
{
    if (layer->aggregate == PLIM__STREAM_AGGREGATE_ATTENTION)
        return layer->wide;
    return plim__min_i64(layer->wide, SLICES_MOST);
}

static double seconds(const plim__exact_layer_t *layer, const plim__exact_choice_t *choice,
                      int64_t num_dst, int64_t edges, int64_t input_bytes, int64_t index_bytes)
{
    const double slices = (double)choice->slices, blocks = (double)choice->blocks;
    const double states =
        (double)num_dst * (double)(plim__exact_slice_width(layer, layer->wide) * 4);
    const double disk = slices * (double)input_bytes + slices * blocks * (double)index_bytes +
                        2 * states * (blocks - 1 + (slices - 1) / slices);
    const double lines = (double)(choice->width * 4 + 48) / 64; /* on average, wherever it begins */
    return disk / DISK_RATE + slices * (double)edges * (lines < 1 ? 1 : lines) / FETCH_RATE +
           slices * blocks * (double)edges / ENTRY_RATE;
}

/* The fewest floats that a layer's pass needs at once. */
int64_t plim__exact_minimum_floats(const plim__exact_layer_t *layer, int64_t num_src)
{
    if (!layer->folds)
        return 0;
    if (layer->aggregate ==
        PLIM__STREAM_AGGREGATE_ATTENTION) /* a destination's scores are with its own row */
        return plim__mul_saturating_i64(num_src, 3);
    return plim__max_i64(num_src / 16, (layer->wide + SLICES_MOST - 1) / SLICES_MOST) + 1024;
}

plim__exact_choice_t plim__exact_choose(const plim__exact_layer_t *layer, int64_t num_src,
                                        int64_t num_dst, int64_t edges, int64_t input_bytes,
                                        int64_t index_bytes, int64_t capacity)
{
    plim__exact_choice_t best = {0};
    double best_seconds = 0;
    for (int64_t slices = 1; slices <= plim__exact_slices_most(layer); slices++) {
        plim__exact_choice_t choice = {.columns = slice_columns(layer, slices)};
        choice.slices = count_slices(layer, choice.columns);
        choice.width = plim__exact_slice_width(layer, choice.columns);
        choice.rows = plim__min_i64(capacity / choice.width, num_src);
        if (choice.rows < 1 ||
            (layer->aggregate == PLIM__STREAM_AGGREGATE_ATTENTION && choice.rows < num_src))
            continue;
        choice.blocks = (num_src + choice.rows - 1) / choice.rows;
        choice.rows = (num_src + choice.blocks - 1) / choice.blocks;
        if (choice.blocks > BLOCKS_MOST)
            continue;
        const double took = seconds(layer, &choice, num_dst, edges, input_bytes, index_bytes);
        if (best.slices == 0 || took < best_seconds) {
            best = choice;
            best_seconds = took;
        }
    }
    return best;
}
