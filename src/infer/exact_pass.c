/* One layer: slice by slice, block by block, piece by piece. */
#include "infer/exact_internal.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "io/npy.h"
#include "nn/tile.h"

#include <string.h>

/* One pass over the lists. */
typedef struct pass {
    plim__exact_t *exact;
    plim__exact_slice_t slice;
    int64_t first, end; /* sources in memory */
    bool begins, ends;  /* the slice's first pass, the layer's last */
    const plim__exact_sink_t *sink;

    /* What is read of each piece of the stored states. */
    int64_t piece, offset, size;
} pass_t;

static bool next_states(void *context, plim__exact_chunk_t *chunk_out)
{
    pass_t *pass = context;
    if (pass->piece >= plim__exact_pieces(pass->exact, pass->exact->to->count))
        return false;
    *chunk_out = (plim__exact_chunk_t){.offset = pass->piece * pass->exact->partial.piece_bytes +
                                                 pass->offset,
                                       .size = pass->size,
                                       .piece = pass->piece};
    pass->piece++;
    return true;
}

/* The states that this pass reads: its slice's own, and in the end all that went before. */
static void start_states(pass_t *pass, const plim__exact_plan_t *plan)
{
    plim__exact_t *exact = pass->exact;
    const int64_t slot = plan->slots > 0 ? exact->partial.piece_bytes / plan->slots : 0;
    pass->offset = pass->ends ? 0 : pass->slice.offset;
    pass->size = pass->ends ? slot * plan->slots : pass->begins ? 0 : slot;
    if (pass->size > 0)
        plim__exact_stream_start(&exact->states, &exact->partial.file, NULL, next_states, pass);
}

static plim_status_t put_out(pass_t *pass, int64_t piece, int64_t rows, const float *states,
                             const char *others)
{
    plim__exact_t *exact = pass->exact;
    const plim__exact_sink_t *sink = pass->sink;
    void *h = exact->h;
    if (sink->store != NULL)
        PLIM_TRY(plim__exact_writer_place(&exact->writer, sink->store,
                                          piece * sink->store->piece_bytes, &h));
    PLIM_TRY(plim__exact_epilogue_piece(exact, piece, rows, states, others, h));
    if (sink->store == NULL)
        return sink->output(sink->context, piece * exact->sizes.piece_rows, rows, h);
    plim__exact_writer_put(&exact->writer, sink->store, piece * sink->store->piece_bytes,
                           rows * exact->layer->out * (int64_t)sizeof(float));
    return PLIM_OK;
}

static plim_status_t run_piece(pass_t *pass, int64_t piece)
{
    plim__exact_t *exact = pass->exact;
    const plim__stream_aggregate_t fold = {
        .kind = exact->layer->aggregate, .width = pass->slice.width, .heads = pass->slice.heads};
    const int64_t rows =
        plim__min_i64(exact->sizes.piece_rows, exact->to->count - piece * exact->sizes.piece_rows);
    const int64_t size = rows * pass->slice.width * (int64_t)sizeof(float);
    const int64_t place = piece * exact->partial.piece_bytes + pass->slice.offset;
    void *states = exact->state;
    char *read = NULL;
    plim__exact_chunk_t chunk;
    if (!exact->layer->folds)
        return put_out(pass, piece, rows, NULL, NULL);
    if (!pass->ends)
        PLIM_TRY(plim__exact_writer_place(&exact->writer, &exact->partial, place, &states));
    if (pass->size > 0)
        PLIM_TRY(plim__exact_stream_take(&exact->states, &chunk, &read));
    if (pass->begins)
        plim__stream_aggregate_begin(&fold, rows, states);
    else if (read != NULL)
        memcpy(states, read + (pass->slice.offset - pass->offset), (size_t)size);
    PLIM_TRY(
        plim__exact_aggregate_piece(exact, &pass->slice, pass->first, pass->end, piece, states));
    if (pass->ends)
        return put_out(pass, piece, rows, states, read);
    plim__exact_writer_put(&exact->writer, &exact->partial, place, size);
    return PLIM_OK;
}

static plim_status_t run_pass(pass_t *pass, const plim__exact_plan_t *plan)
{
    plim__exact_t *exact = pass->exact;
    const int64_t pieces = plim__exact_pieces(exact, exact->to->count);
    plim__exact_lists_t lists = plim__exact_lists_of(exact, exact->to);
    plim__exact_rows_t own = plim__exact_rows_of(exact, exact->to, 0, exact->to->count);
    if (exact->layer->folds) {
        start_states(pass, plan);
        plim__exact_stream_start(&exact->lists, &exact->indices, NULL, plim__exact_lists_next,
                                 &lists);
    }
    if (pass->ends && plim__exact_wants_root(exact->layer))
        plim__exact_stream_start(&exact->own, exact->source.file, exact->source.memory,
                                 plim__exact_rows_next, &own);
    for (int64_t piece = 0; piece < pieces; piece++)
        PLIM_TRY(run_piece(pass, piece));
    return plim__exact_writer_flush(&exact->writer);
}

/* Attention's score of a row is linear in the layer's input: (W' att) x, for each head and both of
 * its vectors. */
static void make_scores(const plim__exact_t *exact, const plim__exact_layer_t *layer)
{
    for (int head = 0; head < layer->heads; head++)
        for (int64_t k = 0; k < layer->in; k++) {
            double src = 0, dst = 0;
            for (int64_t j = 0; j < layer->channels; j++) {
                const int64_t row = head * layer->channels + j;
                src += (double)layer->att_src[row] * (double)layer->front[row * layer->in + k];
                dst += (double)layer->att_dst[row] * (double)layer->front[row * layer->in + k];
            }
            exact->scores[(int64_t)2 * head * layer->in + k] = (float)src;
            exact->scores[((int64_t)2 * head + 1) * layer->in + k] = (float)dst;
        }
}

static void pack(const plim__exact_t *exact, const plim__exact_layer_t *layer)
{
    if (layer->behind != NULL)
        plim__tile_pack(layer->behind, layer->wide, 0, layer->inner, exact->packed_behind);
    if (layer->root != NULL) {
        plim__tile_pack(layer->root, layer->in, 0, layer->inner, exact->packed_root);
        const size_t values = plim__tile_bytes(layer->in, layer->inner) / sizeof(float);
        for (size_t i = 0; i < values && layer->root_scale != 1.0f; i++)
            exact->packed_root[i] *= layer->root_scale;
    }
    if (layer->second != NULL)
        plim__tile_pack(layer->second, layer->inner, 0, layer->out, exact->packed_second);
    if (layer->aggregate == PLIM__STREAM_AGGREGATE_ATTENTION)
        make_scores(exact, layer);
}

static plim_status_t run_passes(plim__exact_t *exact, const plim__exact_plan_t *plan,
                                const plim__exact_sink_t *sink)
{
    const plim__exact_choice_t *choice = &plan->choice;
    for (int64_t s = 0; s < choice->slices; s++) {
        const plim__exact_slice_t slice = plim__exact_slice(exact, s);
        for (int64_t b = 0; b < choice->blocks; b++) {
            pass_t pass = {.exact = exact,
                           .slice = slice,
                           .first = b * choice->rows,
                           .end = plim__min_i64((b + 1) * choice->rows, exact->from->count),
                           .begins = b == 0,
                           .ends = s == choice->slices - 1 && b == choice->blocks - 1,
                           .sink = sink};
            exact->edges_done = exact->edges_end;
            exact->edges_end += exact->to->edges;
            if (choice->slices * choice->blocks > 1)
                plim__progress(exact->job, exact->phase, "edges", exact->edges_done,
                               exact->edges_total);
            PLIM_TRY(plim__exact_fill(exact, &slice, pass.first, pass.end));
            PLIM_TRY(run_pass(&pass, plan));
        }
    }
    return PLIM_OK;
}

/* Whatever has happened: nothing is in flight any more, and the layer's memory is given back. */
static void end_layer(plim__exact_t *exact)
{
    char message[PLIM_MESSAGE_MAX];
    plim__fail_save(message, sizeof message);
    plim__exact_stream_drop(&exact->lists);
    plim__exact_stream_drop(&exact->rows);
    plim__exact_stream_drop(&exact->own);
    plim__exact_stream_drop(&exact->states);
    (void)plim__exact_writer_flush(&exact->writer);
    (void)plim__fail_restore(PLIM_OK, message);
    plim__exact_store_destroy(&exact->partial);
    plim__arena_destroy(&exact->resident_arena);
    exact->resident_arena = (plim__arena_t){0};
}

static plim_status_t make_room(plim__exact_t *exact, const plim__exact_plan_t *plan)
{
    const plim__exact_choice_t *choice = &plan->choice;
    const size_t floats = (size_t)choice->rows * (size_t)choice->width;
    const int64_t pieces = plim__exact_pieces(exact, exact->to->count);
    PLIM_TRY(plim__arena_create(exact->job->ledger, "exact rows",
                                plim__arena_piece(floats, sizeof(float), PLIM__PAGE),
                                &exact->resident_arena));
    exact->resident = plim__arena_carve(&exact->resident_arena, floats, sizeof(float), PLIM__PAGE);
    plim__arena_want_huge(exact->resident_arena.base, exact->resident_arena.size);
    /* By one thread: of several that come to a huge page at once each has one charged. */
    plim__arena_touch(&exact->resident_arena);
    if (plan->slots == 0)
        return PLIM_OK;
    return plim__exact_store_make(&exact->partial, exact->job, exact->params->scratch, false,
                                  plan->partial / pieces, pieces);
}

plim_status_t plim__exact_layer_run(plim__exact_t *exact, int index, const plim__exact_sink_t *sink)
{
    const plim__exact_plan_t *plan = &exact->plans[index];
    plim_status_t status = PLIM_OK;
    exact->layer = &exact->layers[index];
    exact->from = &exact->sets[index];
    exact->to = &exact->sets[index + 1];
    exact->choice = plan->choice;
    exact->edges_done = exact->edges_end = 0;
    exact->edges_total = exact->to->edges * plan->choice.slices * plan->choice.blocks;
    if (exact->to->count == 0)
        return PLIM_OK;
    pack(exact, exact->layer);
    if (exact->layer->folds) {
        status = make_room(exact, plan);
        if (status == PLIM_OK)
            status = run_passes(exact, plan, sink);
    } else {
        pass_t pass = {.exact = exact, .ends = true, .sink = sink};
        status = run_pass(&pass, plan);
    }
    end_layer(exact);
    return status;
}
