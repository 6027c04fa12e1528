/* Splits: ids of nodes or graphs in the order of the source, or drawn. And offsets of graphs. */
#include "ingest/import.h"

#include "base/fail.h"
#include "base/job.h"
#include "base/rng.h"
#include "store/labels.h"
#include "store/unique.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const names[3] = {"train", "valid", "test"};

#define STRIDE_MAX 1024 /* splits in one array of masks */

/* Most ids in a text, whose number is unknown; their checksums take 64 KiB. */
#define IDS_MAX ((int64_t)1 << 36)

static plim_status_t begin(plim__import_t *import, int split, const char *from, int64_t most,
                           plim__column_t **column_out)
{
    int64_t shape[1] = {-1};
    if (import->splits[split].done)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: the %s split was already read from %s; keep one of them", from,
                          names[split], import->splits[split].from);
    import->splits[split].done = true;
    import->splits[split].most = import->splits[split].last = -1;
    (void)snprintf(import->splits[split].from, sizeof import->splits[split].from, "%s", from);
    PLIM_TRY(plim__import_begin(import));
    return plim__column_open(import->writer, names[split], PLIM__NPY_I64, 1, shape, 8 * most,
                             import->buffer, column_out);
}

/* Keeps the maximum id: the number of nodes may be known only later. */
static plim_status_t put(plim__import_t *import, int split, plim__column_t *column,
                         const int64_t *ids, int64_t count, int64_t position)
{
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0)
            return plim__fail(PLIM_ERR_DATA,
                              "%s: entry %" PRId64 " is %" PRId64
                              "; ids cannot be negative, correct it",
                              import->splits[split].from, position + i, ids[i]);
        import->splits[split].unordered |= ids[i] <= import->splits[split].last;
        import->splits[split].last = ids[i];
        if (ids[i] > import->splits[split].most) {
            import->splits[split].most = ids[i];
            import->splits[split].most_at = position + i;
        }
    }
    return plim__column_write(column, ids, (size_t)count * sizeof *ids);
}

/*
 * A list of ids has each id once. If its first three entries are 0 or 1, it is a mask or wrong.
 */
static bool begins_as_mask(const int64_t *values, int64_t count)
{
    for (int i = 0; i < 3; i++)
        if (count < 3 || values[i] < 0 || values[i] > 1)
            return false;
    return true;
}

/* Converts entries of a mask, the first at `position`, to the ids of those that are set. */
static plim_status_t choose(const char *name, int64_t *values, int64_t count, int64_t position,
                            int64_t *chosen_out)
{
    int64_t chosen = 0;
    for (int64_t i = 0; i < count; i++) {
        if (values[i] != 0 && values[i] != 1)
            return plim__fail(PLIM_ERR_DATA,
                              "%s: entry %" PRId64 " is %" PRId64
                              ", but by its name or first entries it is a mask of 0 and 1; name a "
                              "list of ids train_idx, with each id once",
                              name, position + i, values[i]);
        if (values[i] == 1)
            values[chosen++] = position + i;
    }
    *chosen_out = chosen;
    return PLIM_OK;
}

/* A mask has an entry for each node or graph; this also confirms a guess. */
static plim_status_t check_mask(plim__import_t *import, const plim__ids_t *ids, bool guessed,
                                int64_t chosen)
{
    const bool graphs = import->graphs.value >= 0;
    plim__agreed_t *items = graphs ? &import->graphs : &import->nodes;
    if (guessed && items->value >= 0 && items->value != ids->position)
        return plim__fail(
            PLIM_ERR_DATA,
            "%s: its %" PRId64 " entries begin with repeated 0 and 1, so it is neither a "
            "list of ids, with each id once, nor a mask, with an entry for each of the "
            "%" PRId64 " %s",
            ids->name, ids->position, items->value, graphs ? "graphs" : "nodes");
    plim__log(import->job, guessed ? PLIM_LOG_WARNING : PLIM_LOG_INFO,
              "%s is a mask%s: %" PRId64 " of %" PRId64 " are chosen", ids->name,
              guessed ? ", since its entries are 0 and 1" : "", chosen, ids->position);
    return plim__import_agree(items, graphs ? "graphs" : "nodes", ids->position, ids->name);
}

/* Reads ids, or a mask, whose ids are the positions of 1. At most `most` entries. */
static plim_status_t split_values(plim__import_t *import, int split, plim__ids_t *ids, int64_t most,
                                  bool mask)
{
    int64_t chunk[PLIM__ID_CHUNK], got, count, all = 0;
    bool guessed = false;
    plim__column_t *column;
    PLIM_TRY(begin(import, split, ids->name, most, &column));
    do {
        const int64_t position = ids->position;
        PLIM_TRY(plim__job_check(import->job));
        PLIM_TRY(ids->read(ids, chunk, PLIM__ID_CHUNK, &got));
        if (ids->position > most)
            return plim__fail(PLIM_ERR_DATA, "%s has more than %" PRId64 " ids", ids->name, most);
        if (position == 0 && !mask)
            mask = guessed = begins_as_mask(chunk, got);
        count = got;
        if (mask)
            PLIM_TRY(choose(ids->name, chunk, got, position, &count));
        PLIM_TRY(put(import, split, column, chunk, count, position));
        all += count;
    } while (got == PLIM__ID_CHUNK);
    if (mask)
        PLIM_TRY(check_mask(import, ids, guessed, all));
    import->splits[split].mask = mask;
    return plim__column_close(column);
}

/* Whether the name says that it is a mask, such as train_mask.npy. */
static bool named_mask(const char *name)
{
    const char *slash = strrchr(name, '/');
    return strcasestr(slash != NULL ? slash : name, "mask") != NULL;
}

plim_status_t plim__import_split(plim__import_t *import, int split, plim__ids_t *ids)
{
    return split_values(import, split, ids, IDS_MAX, named_mask(ids->name));
}

plim_status_t plim__import_split_text(plim__import_t *import, int split, plim__text_t *text,
                                      const char *name)
{
    plim__ids_text_t ids;
    PLIM_TRY(plim__ids_text_open(&ids, text, name));
    return plim__import_split(import, split, &ids.ids);
}

/* The first of every `stride` numbers of another source. */
typedef struct strided {
    plim__ids_t ids;
    plim__ids_t *inner;
    int64_t stride; /* 1 … STRIDE_MAX */
} strided_t;

static plim_status_t strided_read(plim__ids_t *base, int64_t *to, int64_t capacity,
                                  int64_t *got_out)
{
    strided_t *strided = (strided_t *)base;
    int64_t row[STRIDE_MAX], got = strided->stride, count = 0;
    while (count < capacity) {
        PLIM_TRY(strided->inner->read(strided->inner, row, strided->stride, &got));
        if (got < strided->stride)
            break;
        to[count++] = row[0];
    }
    base->position += count;
    *got_out = count;
    return PLIM_OK;
}

/* Masks of several splits, [K, N] or [N, K]: the first one is used. */
static plim_status_t first_of_masks(plim__import_t *import, int split, plim__reader_t *reader,
                                    const plim__npy_t *npy)
{
    const bool graphs = import->graphs.value >= 0;
    const int64_t items = graphs ? import->graphs.value : import->nodes.value;
    const int64_t larger = npy->shape[0] > npy->shape[1] ? npy->shape[0] : npy->shape[1];
    const bool by_rows = npy->shape[0] == (items >= 0 ? items : larger); /* [N, K] */
    const int64_t length = by_rows ? npy->shape[0] : npy->shape[1];
    const int64_t count = by_rows ? npy->shape[1] : npy->shape[0];
    plim__ids_npy_t ids;
    strided_t strided = {
        .ids = {.read = strided_read}, .inner = &ids.ids, .stride = by_rows ? count : 1};
    if (npy->fortran || count < 1 || count > STRIDE_MAX)
        return plim__fail(
            PLIM_ERR_DATA,
            "%s: masks of several splits must be in C order, and 1 to %d; save one of "
            "them alone",
            reader->name, STRIDE_MAX);
    plim__log(import->job, PLIM_LOG_WARNING,
              "%s has the masks of %" PRId64 " splits; the first is used", reader->name, count);
    PLIM_TRY(plim__ids_npy_open(&ids, reader, npy->type, by_rows ? npy->count : length));
    (void)snprintf(strided.ids.name, sizeof strided.ids.name, "%s", reader->name);
    PLIM_TRY(split_values(import, split, &strided.ids, length, true));
    return plim__reader_skip(
        reader, by_rows ? 0 : (npy->count - length) * (int64_t)plim__dtype_size(npy->type));
}

plim_status_t plim__import_split_npy(plim__import_t *import, int split, plim__reader_t *reader,
                                     const plim__npy_t *npy)
{
    plim__ids_npy_t ids;
    const bool mask = npy->type == PLIM__NPY_BOOL || named_mask(reader->name);
    if (mask && npy->num_dims == 2 && npy->count != npy->shape[0]) {
        PLIM_TRY(first_of_masks(import, split, reader, npy));
        return plim__reader_end(reader);
    }
    if (npy->num_dims < 1 || npy->count != npy->shape[0] || npy->count > INT64_MAX / 16)
        return plim__fail(PLIM_ERR_DATA, "%s: a split must be one column of ids, or a mask",
                          reader->name);
    PLIM_TRY(plim__ids_npy_open(&ids, reader, npy->type, npy->count));
    PLIM_TRY(split_values(import, split, &ids.ids, npy->count, mask));
    return plim__reader_end(reader);
}

/* Splits being drawn: Knuth's selection sampling, one pass in the order of the rows. */
typedef struct draw {
    plim__import_t *import;
    plim__column_t *columns[3];
    int64_t left[3];  /* rows that each split still needs, */
    int64_t labelled; /* and labelled rows to draw them from */
    uint64_t key, counter;
} draw_t;

static bool is_labelled(const plim__npy_t *npy, const char *row)
{
    int64_t class;
    float value;
    if (npy->type != PLIM__NPY_F32) {
        plim__labels_widen(npy->type, row, 1, &class);
        return class >= 0;
    }
    for (int64_t i = 0; i < (npy->num_dims == 1 ? 1 : npy->shape[1]); i++) {
        memcpy(&value, row + (size_t)i * sizeof value, sizeof value);
        if (!isnan(value))
            return true;
    }
    return false;
}

static plim_status_t count_row(draw_t *draw, int64_t row)
{
    (void)row;
    draw->labelled++;
    return PLIM_OK;
}

/* Gives a labelled row to a split, or to none, with the probability that makes all draws equally
 * likely. */
static plim_status_t draw_row(draw_t *draw, int64_t row)
{
    int64_t at = (int64_t)plim__rng_below(draw->key, &draw->counter, (uint64_t)draw->labelled--);
    for (int i = 0; i < 3; i++) {
        if (at < draw->left[i]) {
            draw->left[i]--;
            return put(draw->import, i, draw->columns[i], &row, 1, row);
        }
        at -= draw->left[i];
    }
    return PLIM_OK;
}

/* Calls `take` for each labelled row of the labels.npy that was written. */
static plim_status_t each_labelled(draw_t *draw, plim_status_t (*take)(draw_t *draw, int64_t row))
{
    const plim__import_t *import = draw->import;
    char path[PATH_MAX];
    _Alignas(8) char rows[32 << 10]; /* a row has at most 2,048 floats */
    plim__reader_t *reader;
    plim__npy_t npy;
    if (snprintf(path, sizeof path, "%s/labels.npy", plim__dataset_staging(import->writer)) >=
        PATH_MAX)
        return plim__fail(PLIM_ERR_USAGE, "%s: the path is too long", import->options->target);
    PLIM_TRY(plim__reader_file(import->job, path, import->buffer, &reader));
    plim_status_t status = plim__npy_read(reader, &npy);
    const size_t size = status != PLIM_OK ? 1
                                          : plim__dtype_size(npy.type) *
                                                (npy.num_dims == 1 ? 1 : (size_t)npy.shape[1]);
    const int64_t most = (int64_t)(sizeof rows / size);
    for (int64_t row = 0; status == PLIM_OK && row < npy.shape[0];) {
        const int64_t chunk = most < npy.shape[0] - row ? most : npy.shape[0] - row;
        status = plim__job_check(import->job);
        if (status == PLIM_OK)
            status = plim__reader_read_all(reader, rows, (size_t)chunk * size);
        for (int64_t i = 0; status == PLIM_OK && i < chunk; i++)
            if (is_labelled(&npy, rows + (size_t)i * size))
                status = take(draw, row + i);
        row += chunk;
    }
    plim__reader_close(reader);
    return status;
}

/* The splits' sizes: rounded shares; if they are all of the nodes, the last split gets the rest. */
static void set_sizes(draw_t *draw, const double share[3])
{
    int64_t rest = draw->labelled;
    const bool all = share[0] + share[1] + share[2] > 1 - 1e-9;
    const int last = share[2] > 0 ? 2 : share[1] > 0 ? 1 : 0;
    for (int i = 0; i < 3; i++) {
        int64_t wanted = (int64_t)(share[i] * (double)draw->labelled + 0.5);
        draw->left[i] = wanted < rest && !(all && i == last) ? wanted : rest;
        if (share[i] == 0)
            draw->left[i] = 0;
        rest -= draw->left[i];
    }
}

plim_status_t plim__import_draw_splits(plim__import_t *import)
{
    const plim_import_options_t *options = import->options;
    const char *what = import->graphs.value >= 0 ? "graphs" : "nodes";
    draw_t draw = {.import = import, .key = plim__rng_key(options->seed, 0x73706c69, 0, 0)};
    for (int i = 0; i < 3; i++)
        if (import->splits[i].done)
            return plim__fail(PLIM_ERR_USAGE,
                              "%s: the source has its own %s split; omit `split`, or remove the "
                              "source's splits",
                              import->splits[i].from, names[i]);
    if (!import->labels_done)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: `split` divides labelled %s, but no labels were found; name them "
                          "labels.npy, y.npy or labels.csv",
                          options->source, what);
    PLIM_TRY(each_labelled(&draw, count_row));
    set_sizes(&draw, options->split);
    if (draw.left[0] == 0)
        return plim__fail(PLIM_ERR_USAGE, "`split` %g,%g,%g leaves no training %s of %" PRId64,
                          options->split[0], options->split[1], options->split[2], what,
                          draw.labelled);
    plim__log(import->job, PLIM_LOG_INFO,
              "splits drawn with `seed` %" PRIu64 ": %" PRId64 " train, %" PRId64 " valid, %" PRId64
              " test of %" PRId64 " labelled %s",
              options->seed, draw.left[0], draw.left[1], draw.left[2], draw.labelled, what);
    for (int i = 0; i < 3; i++)
        if (draw.left[i] > 0)
            PLIM_TRY(begin(import, i, "`split`", draw.left[i], &draw.columns[i]));
    PLIM_TRY(each_labelled(&draw, draw_row));
    for (int i = 0; i < 3; i++)
        if (draw.columns[i] != NULL)
            PLIM_TRY(plim__column_close(draw.columns[i]));
    return PLIM_OK;
}

plim_status_t plim__import_split_once(const plim__import_t *import, int split, int64_t bound)
{
    char path[PATH_MAX];
    plim__file_t file;
    if (!import->splits[split].unordered)
        return PLIM_OK;
    if (snprintf(path, sizeof path, "%s/%s.npy", plim__dataset_staging(import->writer),
                 names[split]) >= PATH_MAX)
        return plim__fail(PLIM_ERR_USAGE, "%s: the path is too long", import->options->target);
    PLIM_TRY(plim__file_open(path, PLIM__FILE_READ, false, &file));
    const plim_status_t status =
        plim__unique_check(import->job, &file, import->splits[split].from,
                           (file.size - PLIM__NPY_HEADER) / (int64_t)sizeof(int64_t), bound);
    plim__file_close(&file);
    return status;
}

plim_status_t plim__import_graph_offsets(plim__import_t *import)
{
    int64_t counts[PLIM__ID_CHUNK], offsets[PLIM__ID_CHUNK], got, sum = 0;
    int64_t shape[1] = {import->graph_nodes.count + 1};
    plim__column_t *column;
    PLIM_TRY(plim__import_begin(import));
    PLIM_TRY(plim__id_spool_rewind(&import->graph_nodes, false));
    PLIM_TRY(plim__column_open(import->writer, "graph_indptr", PLIM__NPY_I64, 1, shape,
                               8 * shape[0], import->buffer, &column));
    PLIM_TRY(plim__column_write(column, &sum, sizeof sum));
    do {
        plim__ids_t *ids = &import->graph_nodes.ids;
        PLIM_TRY(ids->read(ids, counts, PLIM__ID_CHUNK, &got));
        for (int64_t i = 0; i < got; i++) {
            sum += counts[i]; /* the total was checked when the counts were read */
            offsets[i] = sum;
        }
        PLIM_TRY(plim__column_write(column, offsets, (size_t)got * sizeof *offsets));
    } while (got == PLIM__ID_CHUNK);
    return plim__column_close(column);
}
