/*
 * Making and filling a window, and choosing how many batches it takes.
 *
 * A window is filled hop by hop with the draws of all destinations, then with the rows that are not
 * cached. The builder threads take tasks, ranges of the members in ascending order, so that the
 * lists and rows of a task lie close together on disk. They store their results in any order (see
 * window_internal.h).
 */
#include "load/window.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"
#include "load/window_internal.h"

#include <stdatomic.h>
#include <string.h>

/* A window grows to at most this many times the seeds of the largest one so far. */
#define GROWTH_MOST 4.0

/* The share of the expected capacity that is tried: windows of as many seeds vary a little. */
#define GROWTH_SHARE 0.96

/* After a batch did not fit, retry batches of that size once every REFUSALS_MOST times. */
#define REFUSALS_MOST 16

/* Time limit for refilling lost parts of the caches before a window is built. */
#define REFRESH_NS ((int64_t)1000000000)

#define AHEAD 16
#define TASKS_EACH ((int64_t)8) /* tasks of a small set for each builder … */
#define TASK_MIN 1024           /* … of at least this many members */
#define TASK_LINES 1024         /* lines of a set that a builder takes at once */

#define TASK_NODES 16384 /* nodes that a builder takes at once */
#define DRAW_MOST 262144 /* ids in a builder's buffer, unless a single draw is longer */

static int64_t longest_draw(const plim__load_window_params_t *params, int hop)
{
    return params->fanout[hop] < 0 ? params->most_drawn
                                   : plim__min_i64(params->fanout[hop], params->most_drawn);
}

static int64_t fanout_most(const plim__load_window_params_t *params)
{
    int64_t most = 0;
    for (int hop = 0; hop < params->num_hops; hop++)
        most = plim__max_i64(most, longest_draw(params, hop));
    return most;
}

/* Entries of a builder's buffer: the draws of a task, up to DRAW_MOST. */
static int64_t draw_capacity(const plim__load_window_params_t *params)
{
    int64_t whole;
    if (!plim__mul_i64(fanout_most(params), TASK_NODES, &whole) || whole > DRAW_MOST)
        whole = DRAW_MOST;
    return plim__max_i64(whole, plim__max_i64(params->most_drawn, 1));
}

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim__load_window_t *window = draft;
    const plim__load_window_params_t *params = &window->params;
    const size_t builders = (size_t)params->builders, workers = (size_t)params->workers;
    const int64_t members = plim__max_i64(params->draws, params->rows); /* see fill_window */
    const size_t dense = plim__node_set_bytes(params->num_nodes);
    const size_t few = plim__node_set_sparse_bytes(params->num_nodes, members);
    const bool sparse = params->sparse && few < dense;
    window->task_nodes = plim__arena_carve(arena, builders, TASK_NODES * sizeof(int64_t), 1);
    window->task_indptr = plim__arena_carve(arena, builders, (TASK_NODES + 1) * sizeof(int64_t), 1);
    window->task_ids = plim__arena_carve(
        arena, builders, plim__mul_saturating_size((size_t)window->draw_capacity, sizeof(int64_t)),
        1);
    if (params->with_positions)
        window->task_positions = plim__arena_carve(
            arena, builders,
            plim__mul_saturating_size((size_t)window->draw_capacity, sizeof(int64_t)), 1);
    window->chunks = plim__arena_carve(arena, workers, sizeof *window->chunks, 1);
    for (int i = 0; i < params->num_hops + (params->rows > 0); i++) {
        void *memory = plim__arena_carve(arena, 1, sparse ? few : dense, PLIM__PAGE);
        window->sets[i] = sparse ? plim__node_set_make_sparse(memory, params->num_nodes, members)
                                 : plim__node_set_make(memory, params->num_nodes);
    }
    window->area = plim__arena_carve(arena, (size_t)params->draws,
                                     plim__index_bytes(params->index_type), PLIM__PAGE);
    if (params->with_positions)
        window->positions =
            plim__arena_carve(arena, (size_t)params->draws, sizeof(uint32_t), PLIM__PAGE);
    window->store = plim__arena_carve(arena, (size_t)params->rows, params->row_bytes, PLIM__PAGE);
}

static plim__load_window_t draft_of(const plim__load_window_params_t *params)
{
    plim__load_window_t draft = {.params = *params, .draw_capacity = draw_capacity(params)};
    draft.params.draws = plim__min_i64(params->draws, NONE_DRAWN); /* a place has 32 bits */
    return draft;
}

size_t plim__load_window_estimate(const plim__load_window_params_t *params)
{
    plim__load_window_t draft = draft_of(params);
    return plim__object_bytes(lay_out, &draft, sizeof draft);
}

plim_status_t plim__load_window_create(const plim_job_t *job,
                                       const plim__load_window_params_t *params,
                                       plim__topology_t *topology, plim__rows_t *rows,
                                       plim__load_window_t **window_out)
{
    plim__load_window_t *window;
    plim__load_window_t draft = draft_of(params);
    PLIM_TRY(plim__object_create(job->ledger, "window", lay_out, &draft, sizeof draft, &draft.arena,
                                 &window));
    /* Sets, places and rows are read at random: huge pages save TLB misses. All pages are touched
     * now, so that a later, larger window does not grow the process. */
    plim__arena_want_huge(window->arena.base, window->arena.size);
    plim__arena_touch(&window->arena);
    window->job = job;
    window->topology_below = window->draws_below = topology;
    window->rows_below = rows;
    plim__load_window_sources(window);
    *window_out = window;
    return PLIM_OK;
}

void plim__load_window_destroy(plim__load_window_t *window)
{
    if (window != NULL)
        plim__arena_destroy(&window->arena);
}

plim_status_t plim__load_window_remake(const plim__load_window_params_t *params,
                                       plim__load_window_t **window)
{
    const plim__load_window_t before = **window;
    const size_t bytes = (size_t)before.params.num_hops * sizeof *params->fanout;
    plim__load_window_destroy(*window);
    *window = NULL;
    PLIM_TRY(plim__load_window_create(before.job, params, before.topology_below, before.rows_below,
                                      window));
    if (params->num_hops == before.params.num_hops &&
        memcmp(params->fanout, before.params.fanout, bytes) == 0)
        memcpy((*window)->fitted, before.fitted, sizeof before.fitted);
    for (int i = 0; i < 2; i++) /* what did not fit may fit now */
        (*window)->fitted[i].refused_seeds = (*window)->fitted[i].refusals = 0;
    return PLIM_OK;
}

void plim__load_window_draw_as(plim__load_window_t *window, uint64_t seed, int num_hops,
                               const int64_t *fanout, plim__window_rows_t rows)
{
    plim__load_window_params_t *params = &window->params;
    const size_t bytes = (size_t)num_hops * sizeof *fanout;
    params->seed = seed;
    window->mode = rows;
    window->held_rows = 0;
    if (params->num_hops == num_hops && memcmp(params->fanout, fanout, bytes) == 0)
        return;
    params->num_hops = num_hops;
    memcpy(params->fanout, fanout, bytes);
    /* Sizes measured with other fan-outs do not apply. */
    memset(window->fitted, 0, sizeof window->fitted);
}

void plim__load_window_draw_from(plim__load_window_t *window, plim__topology_t *source)
{
    window->draws_below = source != NULL ? source : window->topology_below;
}

int64_t plim__window_walk_claim(plim__window_walk_t *walk, int builder, int64_t **nodes_out,
                                int64_t *position_out)
{
    int64_t *nodes = walk->window->task_nodes + (size_t)builder * TASK_NODES;
    *nodes_out = nodes;
    if (atomic_load(&walk->ended))
        return 0;
    pthread_mutex_lock(&walk->lock);
    int64_t count = plim__node_set_list(walk->set, walk->next_node, walk->task_nodes, nodes);
    *position_out = walk->next_position;
    if (count > 0)
        walk->next_node = nodes[count - 1] + 1;
    walk->next_position += count;
    pthread_mutex_unlock(&walk->lock);
    return count;
}

plim_status_t plim__window_walk_run(plim__window_walk_t *walk,
                                    plim_status_t (*work)(void *walk, int builder))
{
    /* Large tasks read fastest, but all builders should finish at about the same time. */
    int64_t share = walk->set->count / (TASKS_EACH * walk->window->params.builders);
    walk->task_nodes = plim__min_i64(plim__max_i64(share, TASK_MIN), TASK_NODES);
    pthread_mutex_init(&walk->lock, NULL);
    plim_status_t status = plim__parallel(walk->window->params.builders, work, walk);
    pthread_mutex_destroy(&walk->lock);
    return status;
}

/* The walk of a hop's draws, or of the rows that are cached. */
typedef struct window_walk {
    plim__window_walk_t walk; /* first */
    plim__hop_t hop;
    plim__node_set_t *met; /* the set that drawn nodes are added to, or NULL */
    uint32_t *places;
    atomic_llong cursor;    /* entries of the area in use; past its end when they did not fit */
    atomic_llong next_line; /* for drop_held, which takes lines instead of tasks */
} window_walk_t;

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

/* Stores where the draws of these nodes are in their lists, at entry `first` of the area. */
static void keep_positions(plim__load_window_t *window, const int64_t *nodes,
                           const plim__drawn_t *drawn, int64_t first)
{
    for (int64_t i = 0; i < drawn->taken; i++) {
        const int64_t start = plim__offsets_list(window->topology_below->offsets, nodes[i]).start;
        for (int64_t k = drawn->indptr[i]; k < drawn->indptr[i + 1]; k++)
            window->positions[first + k] = (uint32_t)(drawn->positions[k] - start);
    }
}

/* Stores the draws of these members, from `position` on; false when the area is full. */
static bool keep(window_walk_t *walk, int64_t position, const int64_t *nodes,
                 const plim__drawn_t *drawn)
{
    plim__load_window_t *window = walk->walk.window;
    int64_t count = drawn->indptr[drawn->taken];
    int64_t first = atomic_fetch_add_explicit(&walk->cursor, count, memory_order_relaxed);
    if (first + count > window->params.draws)
        return false;
    if (window->positions != NULL)
        keep_positions(window, nodes, drawn, first);
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
        walk->places[position + i] = drawn->indptr[i] < drawn->indptr[i + 1]
                                         ? (uint32_t)(first + drawn->indptr[i])
                                         : NONE_DRAWN;
    if (walk->met != NULL)
        mark(walk->met, drawn->ids, count);
    return true;
}

static plim_status_t draw_task(window_walk_t *walk, int number, const int64_t *nodes,
                               int64_t position, int64_t count)
{
    plim__load_window_t *window = walk->walk.window;
    int64_t *indptr = window->task_indptr + (size_t)number * (TASK_NODES + 1);
    int64_t *ids = window->task_ids + (size_t)number * (size_t)window->draw_capacity;
    int64_t *positions = NULL;
    if (window->task_positions != NULL)
        positions = window->task_positions + (size_t)number * (size_t)window->draw_capacity;
    PLIM_TRY(plim__job_check(window->job));
    for (int64_t done = 0; done < count && !atomic_load(&walk->walk.ended);) {
        plim__drawn_t drawn = {.indptr = indptr,
                               .ids = ids,
                               .capacity = window->draw_capacity,
                               .positions = positions};
        const plim__draws_t draws = plim__draws_of(&walk->hop, nodes + done, count - done);
        PLIM_TRY(plim__topology_draw(window->draws_below, number, &draws, &drawn));
        if (!keep(walk, position + done, nodes + done, &drawn))
            atomic_store(&walk->walk.ended, true);
        done += drawn.taken;
    }
    return PLIM_OK;
}

static plim_status_t draw_work(void *context, int number)
{
    window_walk_t *walk = context;
    int64_t *nodes, position, count;
    plim_status_t status = PLIM_OK;
    while (status == PLIM_OK &&
           (count = plim__window_walk_claim(&walk->walk, number, &nodes, &position)) > 0)
        status = draw_task(walk, number, nodes, position, count);
    if (status != PLIM_OK)
        atomic_store(&walk->walk.ended, true);
    return status;
}

/* Entries of the area that `count` places take: a place has 4 bytes, an entry 4 or 8. */
static int64_t place_entries(const plim__load_window_t *window, int64_t count)
{
    return window->params.index_type == PLIM_I32 ? count : (count + 1) / 2;
}

/* Draws for all of D_hop, from entry *cursor of the area on. *cursor is past the end afterwards
 * when the draws do not fit. */
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
    window_walk_t walk = {
        .walk = {.window = window, .set = set},
        .hop = {params->seed, epoch, number, params->fanout[number], params->replace},
        .places = places};
    if (!last || plim__load_window_with_rows(window)) {
        walk.met = &window->sets[number + 1];
        plim__node_set_copy(walk.met, set);
    }
    atomic_store(&walk.cursor, *cursor);
    window->places[number] = places;
    PLIM_TRY(plim__window_walk_run(&walk.walk, draw_work));
    *cursor = atomic_load(&walk.cursor);
    if (walk.met != NULL && plim__node_set_full(walk.met))
        *cursor = params->draws + 1;
    if (walk.met != NULL && *cursor <= params->draws)
        plim__node_set_seal(walk.met);
    return PLIM_OK;
}

/* Removes the rows that the source below has cached from the set: the others are stored. Builders
 * take whole lines, so that no two write the same one. */
static plim_status_t drop_held(void *context, int number)
{
    window_walk_t *walk = context;
    plim__rows_t *rows = walk->walk.window->rows_below;
    plim__node_set_t *set = plim__load_window_listed(walk->walk.window);
    int64_t first;
    (void)number;
    while ((first = atomic_fetch_add(&walk->next_line, TASK_LINES)) < set->num_lines)
        for (int64_t i = first; i < plim__min_i64(first + TASK_LINES, set->num_lines); i++) {
            plim__node_set_line_t *line = plim__node_set_line(set, i);
            for (int word = 0; word < PLIM__NODE_SET_BITS / 64; word++) {
                int64_t node = i * PLIM__NODE_SET_BITS + (int64_t)word * 64;
                uint64_t kept = line->bits[word];
                if (kept == 0)
                    continue;
                for (uint64_t left = kept; left != 0; left &= left - 1)
                    if (plim__rows_disk_holds(rows, node + __builtin_ctzll(left)))
                        kept &= ~(left & -left);
                line->bits[word] = kept;
            }
        }
    return PLIM_OK;
}

static plim_status_t fetch_work(void *context, int number)
{
    plim__window_walk_t *walk = context;
    plim__load_window_t *window = walk->window;
    int64_t *nodes, position, count;
    plim_status_t status = PLIM_OK;
    while (status == PLIM_OK &&
           (count = plim__window_walk_claim(walk, number, &nodes, &position)) > 0) {
        status = plim__job_check(window->job);
        if (status == PLIM_OK)
            status =
                plim__rows_gather(window->rows_below, number, nodes, count, window->params.row_type,
                                  window->store + (size_t)position * window->params.row_bytes);
    }
    if (status != PLIM_OK)
        atomic_store(&walk->ended, true);
    return status;
}

/* Leaves the rows that are not cached in the set: the number that the window must hold. */
static plim_status_t list_rows(plim__load_window_t *window, int64_t *wanted_out)
{
    plim__node_set_t *set = plim__load_window_listed(window);
    window_walk_t walk = {.walk = {.window = window, .set = set}};
    const int64_t needed = set->count;
    PLIM_TRY(plim__window_walk_run(&walk.walk, drop_held));
    plim__node_set_seal(set);
    window->held_rows = needed - set->count;
    *wanted_out = set->count;
    return PLIM_OK;
}

plim_status_t plim__load_window_read(plim__load_window_t *window)
{
    plim__window_walk_t walk = {.window = window, .set = plim__load_window_listed(window)};
    return plim__window_walk_run(&walk, fetch_work);
}

/* Draws all that these seeds need, and lists the rows. *wanted_out: the rows to read; 0 where even
 * the draws do not fit. A set has no more members than there are entries for draws: each was drawn,
 * or has a place. */
static plim_status_t fill_window(plim__load_window_t *window, int64_t epoch, const int64_t *seeds,
                                 int64_t count, bool *fits_out, int64_t *wanted_out)
{
    const plim__load_window_params_t *params = &window->params;
    int64_t cursor = 0;
    *fits_out = false;
    *wanted_out = 0;
    if (params->num_hops > 0 || plim__load_window_with_rows(window)) {
        plim__node_set_clear(&window->sets[0]);
        mark(&window->sets[0], seeds, count);
        if (plim__node_set_full(&window->sets[0]))
            return PLIM_OK;
        plim__node_set_seal(&window->sets[0]);
    }
    for (int hop = 0; hop < params->num_hops; hop++) {
        PLIM_TRY(draw_hop(window, epoch, hop, &cursor));
        if (cursor > params->draws)
            return PLIM_OK;
    }
    if (plim__load_window_with_rows(window))
        PLIM_TRY(list_rows(window, wanted_out));
    if (*wanted_out > params->rows)
        return PLIM_OK;
    window->epoch = epoch;
    window->used_draws = cursor;
    window->used_rows = *wanted_out;
    *fits_out = true;
    return PLIM_OK;
}

/* Whether `seeds` seeds fit in the worst case. */
static bool surely_fits(const plim__load_window_params_t *params, int64_t seeds)
{
    double nodes = (double)plim__min_i64(seeds, params->num_nodes), draws = 0;
    for (int hop = 0; hop < params->num_hops; hop++) {
        double each = (double)longest_draw(params, hop);
        draws += nodes * (1 + each) + 1;
        nodes += nodes * each;
        if (nodes > (double)params->num_nodes)
            nodes = (double)params->num_nodes;
    }
    return draws <= (double)params->draws && (params->rows == 0 || nodes <= (double)params->rows);
}

/*
 * The number of seeds expected to fit, scaled up from the largest window so far. Seeds share nodes,
 * so a window grows less than its number of seeds, and the scaled number is safe.
 */
static int64_t seeds_expected(const plim__load_window_t *window)
{
    const plim__load_window_params_t *params = &window->params;
    const fitted_t *fitted = &window->fitted[window->mode == PLIM__WINDOW_NONE];
    double growth = GROWTH_MOST;
    if (fitted->draws > 0)
        growth = (double)params->draws / (double)fitted->draws * GROWTH_SHARE;
    if (fitted->rows > 0) {
        double by_rows = (double)params->rows / (double)fitted->rows * GROWTH_SHARE;
        growth = by_rows < growth ? by_rows : growth;
    }
    growth = growth > GROWTH_MOST ? GROWTH_MOST : growth;
    return (int64_t)((double)fitted->seeds * growth);
}

static int64_t batches_expected(const plim__load_window_t *window, const int64_t *bounds,
                                int64_t num_batches)
{
    int64_t expected = seeds_expected(window);
    int64_t minimum = 1, most = num_batches;
    while (minimum < most) {
        int64_t middle = most - (most - minimum) / 2;
        int64_t seeds = bounds[middle] - bounds[0];
        if (seeds <= expected || surely_fits(&window->params, seeds))
            minimum = middle;
        else
            most = middle - 1;
    }
    return minimum;
}

static void remember(plim__load_window_t *window, int64_t seeds, bool cut)
{
    fitted_t *fitted = &window->fitted[window->mode == PLIM__WINDOW_NONE];
    if (!cut && seeds < fitted->seeds)
        return;
    fitted->seeds = seeds;
    fitted->draws = window->used_draws;
    fitted->rows = window->used_rows;
}

/* Whether to refuse a batch without trying: one of that size did not fit, and a trial costs about
 * as much as the batch itself. */
static bool is_refused(plim__load_window_t *window, int64_t seeds)
{
    fitted_t *fitted = &window->fitted[window->mode == PLIM__WINDOW_NONE];
    if (fitted->refused_seeds == 0 || seeds < fitted->refused_seeds ||
        surely_fits(&window->params, seeds))
        return false;
    fitted->refusals = (fitted->refusals + 1) % REFUSALS_MOST;
    return fitted->refusals != 0;
}

/* The number of batches to try after `batches` did not fit: at most half. */
static int64_t cut_batches(const plim__load_window_t *window, int64_t batches, int64_t wanted_rows)
{
    double share = 0.5;
    if (2 * window->params.rows < wanted_rows)
        share = (double)window->params.rows / (double)wanted_rows;
    return plim__max_i64(1, (int64_t)((double)batches * share));
}

plim_status_t plim__load_window_build(plim__load_window_t *window, int64_t epoch,
                                      const int64_t *seeds, const int64_t *bounds,
                                      int64_t num_batches, bool fits, int64_t *taken_out)
{
    const int64_t first = bounds[1] - bounds[0]; /* seeds of the first batch */
    int64_t batches = fits ? num_batches : batches_expected(window, bounds, num_batches);
    int64_t wanted_rows;
    fitted_t *fitted = &window->fitted[window->mode == PLIM__WINDOW_NONE];
    bool cut = false, filled = false;
    *taken_out = 0;
    if (!fits && is_refused(window, first))
        return PLIM_OK;
    PLIM_TRY(plim__source_refresh(window->topology_below->disk, 0, REFRESH_NS));
    if (plim__load_window_with_rows(window))
        PLIM_TRY(plim__source_refresh(window->rows_below->disk, 0, REFRESH_NS));
    for (;; cut = true) {
        PLIM_TRY(fill_window(window, epoch, seeds + bounds[0], bounds[batches] - bounds[0], &filled,
                             &wanted_rows));
        if (filled)
            break;
        if (batches == 1) {
            if (fitted->refused_seeds == 0 || first < fitted->refused_seeds)
                fitted->refused_seeds = first;
            return PLIM_OK;
        }
        batches = cut_batches(window, batches, wanted_rows);
    }
    if (plim__load_window_with_rows(window) && window->mode == PLIM__WINDOW_READ)
        PLIM_TRY(plim__load_window_read(window));
    remember(window, bounds[batches] - bounds[0], cut);
    if (first >= fitted->refused_seeds)
        fitted->refused_seeds = 0;
    *taken_out = batches;
    return PLIM_OK;
}

void plim__load_window_used(const plim__load_window_t *window, int64_t *draws_out,
                            int64_t *rows_out)
{
    *draws_out = window->used_draws;
    *rows_out = window->used_rows;
}

int64_t plim__load_window_held(const plim__load_window_t *window)
{
    return window->held_rows;
}

plim__topology_t *plim__load_window_topology(plim__load_window_t *window)
{
    return &window->topology.source;
}

plim__rows_t *plim__load_window_rows(plim__load_window_t *window)
{
    return &window->rows.source;
}
