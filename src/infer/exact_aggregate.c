/*
 * Lists folded: entries are looked at in their order, those whose sources are in memory get a place
 * in a batch and are fetched ahead; while one batch is filled, the one before it arrives and is
 * then folded. A node's own row stands where its id would stand in its ascending list, so that sums
 * have one order however the sources are cut into blocks.
 */
#include "infer/exact_internal.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "io/npy.h"

#define LISTS 128     /* of a piece of work */
#define FETCH_LINES 8 /* of a row; the processor goes on by itself */
#define RANK_AHEAD 24 /* entries */

typedef struct folding {
    plim__exact_t *exact;
    plim__stream_aggregate_t fold;
    int64_t first, end;  /* sources in memory */
    int64_t first_state; /* rank */
    float *states;
    plim__exact_chunk_t chunk;
    const char *data;
    int64_t start, stop; /* the chunk's entries */
    bool own_done;       /* of the list that goes on from the chunk before */
    bool own_left;       /* what own_done will be for the next chunk */
} folding_t;

/* What one thread has under way. */
typedef struct walk {
    folding_t *folding;
    plim__exact_batch_t *batch, *other;
    int64_t lines;  /* of a row, to be fetched */
    bool straddles; /* rows may end in a line of their own */
    int64_t most;   /* places of a batch */
} walk_t;

static void fold_batch(const folding_t *folding, plim__exact_batch_t *batch)
{
    plim__stream_aggregate_lists(&folding->fold, batch->lists, batch->num_lists, batch->places,
                                 folding->states);
    batch->count = batch->num_lists = 0;
}

/* The next place of the list at hand; `state` and `own` are the list's. */
static inline void push(walk_t *walk, int64_t place, int64_t state, int64_t own)
{
    const folding_t *folding = walk->folding;
    plim__exact_batch_t *batch = walk->batch;
    if (batch->count == walk->most) {
        fold_batch(folding, walk->other);
        walk->batch = walk->other;
        walk->other = batch;
        batch = walk->batch;
    }
    const char *row = (const char *)(folding->fold.rows + place * folding->fold.width);
    for (int64_t line = 0; line < walk->lines; line++)
        __builtin_prefetch(row + line * (int64_t)PLIM__LINE);
    if (walk->straddles)
        __builtin_prefetch(row + folding->fold.width * (int64_t)sizeof(float) - 1);
    batch->places[batch->count++] = place;
    if (batch->num_lists == 0 || batch->lists[batch->num_lists - 1].state != state)
        batch->lists[batch->num_lists++] =
            (plim__stream_aggregate_list_t){.state = state, .own = own};
    batch->lists[batch->num_lists - 1].end = batch->count;
}

/* Entries [i, stop) of the destination `node`'s list. Returns whether its own row has had its turn.
 */
static bool walk_list(walk_t *walk, int64_t node, int64_t i, int64_t stop, int64_t state,
                      bool own_done)
{
    const folding_t *folding = walk->folding;
    plim__exact_t *exact = folding->exact;
    const plim__exact_set_t *from = exact->from;
    const bool skips = exact->layer->skips_loops;
    const uint64_t held = (uint64_t)(folding->end - folding->first);
    const int64_t own = own_done && !skips ? -1 : plim__exact_rank(from, node) - folding->first;
    for (; i < stop; i++) {
        const int64_t source = plim__exact_entry(exact, folding->data, i - folding->start);
        if (!plim__exact_check(exact, i, source))
            return own_done;
        if (!from->all && i + RANK_AHEAD < stop) {
            const int64_t later =
                plim__exact_entry(exact, folding->data, i + RANK_AHEAD - folding->start);
            if ((uint64_t)later < (uint64_t)exact->info->num_nodes)
                plim__node_set_prefetch(&from->members, later);
        }
        if (!own_done && source >= node) {
            own_done = true;
            if ((uint64_t)own < held)
                push(walk, own, state, own);
        }
        if (skips && source == node)
            continue;
        const int64_t rank = plim__exact_rank(from, source);
        if (rank < 0) {
            (void)plim__exact_check(exact, i, -1);
            return own_done;
        }
        if ((uint64_t)(rank - folding->first) < held)
            push(walk, rank - folding->first, state, own);
    }
    return own_done;
}

static void fold_lists(void *context, int worker, int64_t piece)
{
    folding_t *folding = context;
    plim__exact_t *exact = folding->exact;
    plim__exact_worker_t *mine = &exact->workers[worker];
    const int64_t bytes = folding->fold.width * (int64_t)sizeof(float);
    walk_t walk = {.folding = folding,
                   .batch = &mine->batches[0],
                   .other = &mine->batches[1],
                   .lines = plim__min_i64((bytes + (int64_t)PLIM__LINE - 1) / (int64_t)PLIM__LINE,
                                          FETCH_LINES),
                   .straddles = bytes % (int64_t)PLIM__LINE != 0,
                   .most = plim__max_i64(16, plim__min_i64(PLIM__EXACT_BATCH, 32768 / bytes))};
    const int64_t first = folding->chunk.first + piece * LISTS;
    const int64_t end = plim__min_i64(first + LISTS, folding->chunk.end);
    int64_t node = plim__exact_node_at(exact->to, first);
    for (int64_t rank = first; rank < end; rank++) {
        const plim__list_t list = plim__offsets_list(exact->offsets, node);
        const int64_t list_end = list.start + list.degree;
        const int64_t begin = plim__max_i64(list.start, folding->start);
        const int64_t stop = plim__min_i64(list_end, folding->stop);
        const int64_t state = rank - folding->first_state;
        /* A list without entries may lie anywhere, also outside of the chunk. */
        const bool goes_on = list.degree > 0 && begin > list.start;
        bool own_done = goes_on ? folding->own_done : !exact->layer->self;
        own_done = walk_list(&walk, node, begin, stop, state, own_done);
        if (list.degree > 0 && stop < list_end) {
            folding->own_left = own_done; /* the chunk's last list, so one thread's alone */
        } else if (!own_done) {
            const int64_t own = plim__exact_rank(exact->from, node) - folding->first;
            if ((uint64_t)own < (uint64_t)(folding->end - folding->first))
                push(&walk, own, state, own);
        }
        node = plim__exact_node_after(exact->to, node);
    }
    fold_batch(folding, walk.other);
    fold_batch(folding, walk.batch);
}

plim_status_t plim__exact_aggregate_piece(plim__exact_t *exact, const plim__exact_slice_t *slice,
                                          int64_t first, int64_t end, int64_t piece, float *states)
{
    const int64_t bytes = (int64_t)plim__index_bytes(exact->info->index_type);
    folding_t folding = {.exact = exact,
                         .fold = {.kind = exact->layer->aggregate,
                                  .width = slice->width,
                                  .heads = slice->heads,
                                  .channels = exact->layer->channels,
                                  .first = slice->first,
                                  .rows = exact->resident},
                         .first = first,
                         .end = end,
                         .first_state = piece * exact->sizes.piece_rows,
                         .states = states};
    for (;;) {
        const plim__exact_chunk_t *next = plim__exact_stream_peek(&exact->lists);
        char *data;
        if (next == NULL || next->piece != piece)
            return PLIM_OK;
        PLIM_TRY(plim__exact_stream_take(&exact->lists, &folding.chunk, &data));
        folding.data = data;
        folding.start = (folding.chunk.offset - PLIM__NPY_HEADER) / bytes;
        folding.stop = folding.start + folding.chunk.size / bytes;
        folding.own_done = folding.own_left;
        const int64_t lists = folding.chunk.end - folding.chunk.first;
        plim__team_run(exact->team, (lists + LISTS - 1) / LISTS,
                       10 * (folding.stop - folding.start) * LISTS / lists + 100, fold_lists,
                       &folding);
        PLIM_TRY(plim__exact_damage(exact));
        exact->edges_done += folding.stop - folding.start;
        plim__progress(exact->job, exact->phase, "edges",
                       plim__min_i64(exact->edges_done, exact->edges_end), exact->edges_total);
    }
}
