/*
 * Filling a window: hop by hop the draws of all destinations, then the rows that are not in memory.
 * Builders take pieces of the members in ascending order, so that what they read from disk lies
 * together; what they found is stored in any order (see window_internal.h).
 */
#include "load/window_internal.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"

#include <stdatomic.h>
#include <string.h>

#define AHEAD 16
#define PIECES_EACH ((int64_t)8) /* that a builder takes of a small set … */
#define PIECE_MIN 1024           /* … but not smaller ones than this */
#define PIECE_LINES 1024         /* lines of a set that a builder takes at once */

/* One walk of all builders over the members of a set. The lock guards the two cursors. */
typedef struct walk {
    plim__load_window_t *window;
    const plim__node_set_t *set;
    pthread_mutex_t lock;
    int64_t piece; /* members taken at once */
    int64_t next_node;
    int64_t next_rank;
    atomic_llong next_line; /* for those who take lines instead */
    atomic_bool ended;      /* one has failed, or nothing more fits: nobody takes another piece */

    plim__hop_t hop;
    plim__node_set_t *met; /* where drawn nodes are marked, or NULL */
    uint32_t *places;
    atomic_llong cursor; /* entries of the area in use; past its end when they did not fit */
} walk_t;

/* The next piece of members into `nodes`, and the rank of the first; 0 at the end. */
static int64_t walk_claim(walk_t *walk, int64_t *nodes, int64_t *rank_out)
{
    if (atomic_load(&walk->ended))
        return 0;
    pthread_mutex_lock(&walk->lock);
    int64_t count = plim__node_set_list(walk->set, walk->next_node, walk->piece, nodes);
    *rank_out = walk->next_rank;
    if (count > 0)
        walk->next_node = nodes[count - 1] + 1;
    walk->next_rank += count;
    pthread_mutex_unlock(&walk->lock);
    return count;
}

static plim_status_t walk_run(walk_t *walk, plim_status_t (*work)(void *context, int worker))
{
    /* Large pieces read best, but all builders should end at about the same time. */
    int64_t share = walk->set->count / (PIECES_EACH * walk->window->params.builders);
    walk->piece = plim__min_i64(plim__max_i64(share, PIECE_MIN), PIECE);
    pthread_mutex_init(&walk->lock, NULL);
    plim_status_t status = plim__parallel(walk->window->params.builders, work, walk);
    pthread_mutex_destroy(&walk->lock);
    return status;
}

static void mark(plim__node_set_t *set, const int64_t *ids, int64_t count)
{
    for (int64_t i = 0; i < plim__min_i64(AHEAD, count); i++)
        plim__node_set_prefetch(set, ids[i]);
    for (int64_t i = 0; i < count; i++) {
        if (i + AHEAD < count)
            plim__node_set_prefetch(set, ids[i + AHEAD]);
        (void)plim__node_set_add(set, ids[i]);
    }
}

/* Stores what was drawn for the members from `rank` on; false when the area is full. */
static bool keep(walk_t *walk, int64_t rank, const plim__drawn_t *drawn)
{
    plim__load_window_t *window = walk->window;
    int64_t count = drawn->indptr[drawn->taken];
    int64_t first = atomic_fetch_add_explicit(&walk->cursor, count, memory_order_relaxed);
    if (first + count > window->params.draws)
        return false;
    if (window->params.index_type == PLIM_I32) {
        uint32_t *ids = (uint32_t *)window->area + first;
        for (int64_t i = 0; i < count; i++)
            ids[i] = (uint32_t)drawn->ids[i];
        for (int64_t i = 0; i < drawn->taken; i++)
            if (drawn->indptr[i] < drawn->indptr[i + 1])
                ids[drawn->indptr[i + 1] - 1] |= LAST_I32;
    } else {
        uint64_t *ids = (uint64_t *)window->area + first;
        for (int64_t i = 0; i < count; i++)
            ids[i] = (uint64_t)drawn->ids[i];
        for (int64_t i = 0; i < drawn->taken; i++)
            if (drawn->indptr[i] < drawn->indptr[i + 1])
                ids[drawn->indptr[i + 1] - 1] |= LAST_I64;
    }
    for (int64_t i = 0; i < drawn->taken; i++)
        walk->places[rank + i] = drawn->indptr[i] < drawn->indptr[i + 1]
                                     ? (uint32_t)(first + drawn->indptr[i])
                                     : NONE_DRAWN;
    if (walk->met != NULL)
        mark(walk->met, drawn->ids, count);
    return true;
}

static plim_status_t draw_piece(walk_t *walk, int number, int64_t rank, int64_t count)
{
    plim__load_window_t *window = walk->window;
    builder_t *builder = &window->builders[number];
    PLIM_TRY(plim__job_check(window->job));
    for (int64_t done = 0; done < count && !atomic_load(&walk->ended);) {
        plim__drawn_t drawn = {builder->indptr, builder->ids, window->draw_capacity, 0};
        PLIM_TRY(plim__topology_draw(window->topology_below, number, &walk->hop,
                                     builder->nodes + done, count - done, &drawn));
        if (!keep(walk, rank + done, &drawn))
            atomic_store(&walk->ended, true);
        done += drawn.taken;
    }
    return PLIM_OK;
}

static plim_status_t draw_work(void *context, int number)
{
    walk_t *walk = context;
    int64_t rank, count;
    plim_status_t status = PLIM_OK;
    while (status == PLIM_OK &&
           (count = walk_claim(walk, walk->window->builders[number].nodes, &rank)) > 0)
        status = draw_piece(walk, number, rank, count);
    if (status != PLIM_OK)
        atomic_store(&walk->ended, true);
    return status;
}

/* Entries of the area that so many places take up: a place has 4 bytes, an entry 4 or 8. */
static int64_t place_entries(const plim__load_window_t *window, int64_t count)
{
    return window->params.index_type == PLIM_I32 ? count : (count + 1) / 2;
}

/* Draws for all of D_hop, from entry *cursor of the area on; it does not fit when *cursor is past
 * the end afterwards. */
static plim_status_t draw_hop(plim__load_window_t *window, int64_t epoch, int number,
                              int64_t *cursor)
{
    const plim__load_window_params_t *params = &window->params;
    plim__node_set_t *set = &window->sets[number];
    size_t entry = plim__index_bytes(params->index_type);
    uint32_t *places = (uint32_t *)((char *)window->area + (size_t)*cursor * entry);
    bool last = number + 1 == params->num_hops;
    *cursor += place_entries(window, set->count);
    if (*cursor > params->draws)
        return PLIM_OK;
    walk_t walk = {.window = window,
                   .set = set,
                   .hop = {params->seed, epoch, number, params->fanout[number], params->replace},
                   .places = places};
    if (!last || plim__load_window_stores_rows(window)) {
        walk.met = &window->sets[number + 1];
        memcpy(walk.met->lines, set->lines, plim__node_set_bytes(set->universe));
    }
    atomic_store(&walk.cursor, *cursor);
    window->places[number] = places;
    PLIM_TRY(walk_run(&walk, draw_work));
    *cursor = atomic_load(&walk.cursor);
    if (walk.met != NULL && *cursor <= params->draws)
        plim__node_set_seal(walk.met);
    return PLIM_OK;
}

/* Takes out of the set what the source below holds in memory: the rest is to be stored. By whole
 * lines, so that no two builders touch the same one. */
static plim_status_t drop_held(void *context, int number)
{
    walk_t *walk = context;
    plim__rows_t *rows = walk->window->rows_below;
    plim__node_set_t *set = &walk->window->sets[walk->window->params.num_hops];
    int64_t first;
    (void)number;
    while ((first = atomic_fetch_add(&walk->next_line, PIECE_LINES)) < set->num_lines)
        for (int64_t i = first; i < plim__min_i64(first + PIECE_LINES, set->num_lines); i++)
            for (int word = 0; word < PLIM__NODE_SET_BITS / 64; word++) {
                int64_t node = i * PLIM__NODE_SET_BITS + (int64_t)word * 64;
                uint64_t kept = set->lines[i].bits[word];
                for (uint64_t left = kept; left != 0; left &= left - 1)
                    if (plim__rows_disk_holds(rows, node + __builtin_ctzll(left)))
                        kept &= ~(left & -left);
                set->lines[i].bits[word] = kept;
            }
    return PLIM_OK;
}

static plim_status_t fetch_work(void *context, int number)
{
    walk_t *walk = context;
    plim__load_window_t *window = walk->window;
    int64_t *nodes = window->builders[number].nodes;
    int64_t rank, count;
    plim_status_t status = PLIM_OK;
    while (status == PLIM_OK && (count = walk_claim(walk, nodes, &rank)) > 0) {
        status = plim__job_check(window->job);
        if (status == PLIM_OK)
            status =
                plim__rows_gather(window->rows_below, number, nodes, count, window->params.row_type,
                                  window->store + (size_t)rank * window->params.row_bytes);
    }
    if (status != PLIM_OK)
        atomic_store(&walk->ended, true);
    return status;
}

static plim_status_t fetch_rows(plim__load_window_t *window, overflow_t *overflow)
{
    plim__node_set_t *set = &window->sets[window->params.num_hops];
    walk_t walk = {.window = window, .set = set};
    const int64_t needed = set->count;
    PLIM_TRY(walk_run(&walk, drop_held));
    plim__node_set_seal(set);
    window->held_rows = needed - set->count;
    if (set->count > window->params.rows) {
        overflow->rows_wanted = set->count;
        return PLIM_OK;
    }
    return walk_run(&walk, fetch_work);
}

plim_status_t plim__load_window_fill(plim__load_window_t *window, int64_t epoch,
                                     const int64_t *seeds, int64_t count, bool *fits_out,
                                     overflow_t *overflow_out)
{
    const plim__load_window_params_t *params = &window->params;
    overflow_t overflow = {0};
    int64_t cursor = 0;
    window->ready = false;
    if (params->num_hops > 0 || plim__load_window_stores_rows(window)) {
        plim__node_set_clear(&window->sets[0]);
        mark(&window->sets[0], seeds, count);
        plim__node_set_seal(&window->sets[0]);
    }
    for (int hop = 0; hop < params->num_hops && !overflow.draws; hop++) {
        PLIM_TRY(draw_hop(window, epoch, hop, &cursor));
        overflow.draws = cursor > params->draws;
        overflow.hop = hop;
    }
    if (!overflow.draws && plim__load_window_stores_rows(window))
        PLIM_TRY(fetch_rows(window, &overflow));
    *overflow_out = overflow;
    *fits_out = !overflow.draws && overflow.rows_wanted == 0;
    if (!*fits_out)
        return PLIM_OK;
    window->epoch = epoch;
    window->used_draws = cursor;
    window->used_rows =
        plim__load_window_stores_rows(window) ? window->sets[params->num_hops].count : 0;
    window->ready = true;
    return PLIM_OK;
}
