/* Making a window, and how many batches it takes; filling it is in window_build.c. */
#include "load/window.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/threads.h"
#include "load/window_internal.h"

#include <string.h>

/* How many times the seeds of the largest build so far the next one may have. */
#define GROWTH_MOST 4.0

/* Of what a capacity seems to allow, what is tried: use varies a little from window to window. */
#define GROWTH_SHARE 0.96

/* Of the batches as large as one that did not fit, each so many-th is tried nevertheless. */
#define REFUSALS_MOST 16

/* What was lost of the caches is brought back for at most so long before a window is built. */
#define REFRESH_NS ((int64_t)1000000000)

static size_t entry_size(const plim__load_window_params_t *params)
{
    return plim__index_bytes(params->index_type);
}

/* Places have 32 bits. */
static int64_t draws_usable(const plim__load_window_params_t *params)
{
    return plim__min_i64(params->draws, NONE_DRAWN);
}

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

/* Room for the draws of a whole piece, within reason. */
static int64_t draw_capacity(const plim__load_window_params_t *params)
{
    int64_t whole;
    if (!plim__mul_i64(fanout_most(params), PIECE, &whole) || whole > DRAW_MOST)
        whole = DRAW_MOST;
    return plim__max_i64(whole, plim__max_i64(params->most_drawn, 1));
}

static int num_sets(const plim__load_window_params_t *params)
{
    return params->num_hops + (params->rows > 0);
}

size_t plim__load_window_estimate(const plim__load_window_params_t *params)
{
    size_t builders = (size_t)params->builders, workers = (size_t)params->workers;
    size_t set = plim__arena_piece(1, plim__node_set_bytes(params->num_nodes), PLIM__PAGE);
    size_t builder = plim__add_saturating_size(
        plim__arena_piece(2 * PIECE + 1, sizeof(int64_t), 1) + PLIM__LINE,
        plim__arena_piece((size_t)draw_capacity(params), sizeof(int64_t), 1));
    size_t total = plim__arena_piece(1, sizeof(plim__load_window_t), 1);
    total = plim__add_saturating_size(total, plim__arena_piece(builders, sizeof(builder_t), 1));
    total = plim__add_saturating_size(total, plim__arena_piece(workers, sizeof(worker_t), 1));
    total =
        plim__add_saturating_size(total, plim__mul_saturating_size((size_t)num_sets(params), set));
    total = plim__add_saturating_size(
        total, plim__arena_piece((size_t)draws_usable(params), entry_size(params), PLIM__PAGE));
    total = plim__add_saturating_size(
        total, plim__arena_piece((size_t)params->rows, params->row_bytes, PLIM__PAGE));
    total = plim__add_saturating_size(total, plim__mul_saturating_size(builders, builder));
    total = plim__add_saturating_size(
        total,
        plim__mul_saturating_size(workers, 3 * plim__arena_piece(CHUNK, sizeof(int64_t), 1)));
    return plim__round_up(total, PLIM__PAGE);
}

static plim_status_t check_params(const plim__load_window_params_t *params,
                                  const plim__rows_t *rows)
{
    bool wide = params->index_type == PLIM_I64;
    if (params->num_hops < 0 || params->num_hops > PLIM__HOPS_MAX)
        return plim__fail(PLIM_ERR_USAGE, "a window of %d hops; at most %d are possible",
                          params->num_hops, PLIM__HOPS_MAX);
    for (int hop = 0; hop < params->num_hops; hop++)
        if (params->fanout[hop] < -1 || params->fanout[hop] > PLIM__FANOUT_MAX)
            return plim__fail(PLIM_ERR_USAGE, "hop %d draws %lld neighbours; 0 … %d, or -1 for all",
                              hop + 1, (long long)params->fanout[hop], PLIM__FANOUT_MAX);
    if (params->num_nodes < 0 || params->most_drawn < 0 || params->draws < 0 || params->rows < 0 ||
        (!wide && (params->index_type != PLIM_I32 || params->num_nodes > INT32_MAX)))
        return plim__fail(PLIM_ERR_USAGE,
                          "a window over %lld nodes, with %lld draws of up to %lld "
                          "and %lld rows: a size or a type is wrong",
                          (long long)params->num_nodes, (long long)params->draws,
                          (long long)params->most_drawn, (long long)params->rows);
    if (params->builders < 1 || params->builders > PLIM__THREADS_MAX || params->workers < 1)
        return plim__fail(PLIM_ERR_USAGE,
                          "a window of %d builders and %d workers; 1 … %d, and 1 "
                          "or more",
                          params->builders, params->workers, PLIM__THREADS_MAX);
    size_t size = params->row_type == PLIM_F16 ? sizeof(uint16_t) : sizeof(float);
    if (params->rows > 0 &&
        (rows == NULL || params->num_features < 1 ||
         (params->row_type != PLIM_F16 && params->row_type != PLIM_F32) ||
         params->row_bytes != plim__mul_saturating_size((size_t)params->num_features, size)))
        return plim__fail(PLIM_ERR_USAGE,
                          "a window with rows of %lld features and %zu bytes: the "
                          "source is missing, or the type and the sizes differ",
                          (long long)params->num_features, params->row_bytes);
    return PLIM_OK;
}

static void *carve_i64(plim__arena_t *arena, int64_t count)
{
    return plim__arena_carve(arena, (size_t)count, sizeof(int64_t), 1);
}

static plim__load_window_t *carve(plim__arena_t *arena, const plim__load_window_params_t *params)
{
    plim__load_window_t *window = plim__arena_carve(arena, 1, sizeof *window, 1);
    window->params = *params;
    window->params.draws = draws_usable(params);
    window->draw_capacity = draw_capacity(params);
    window->builders =
        plim__arena_carve(arena, (size_t)params->builders, sizeof *window->builders, 1);
    window->workers = plim__arena_carve(arena, (size_t)params->workers, sizeof *window->workers, 1);
    for (int i = 0; i < params->builders; i++) {
        window->builders[i].nodes = carve_i64(arena, PIECE);
        window->builders[i].indptr = carve_i64(arena, PIECE + 1);
        window->builders[i].ids = carve_i64(arena, window->draw_capacity);
    }
    for (int i = 0; i < params->workers; i++) {
        window->workers[i].ranks = carve_i64(arena, CHUNK);
        window->workers[i].others = carve_i64(arena, CHUNK);
        window->workers[i].where = carve_i64(arena, CHUNK);
    }
    size_t set_bytes = plim__node_set_bytes(params->num_nodes);
    for (int i = 0; i < num_sets(params); i++)
        window->sets[i] = plim__node_set_make(plim__arena_carve(arena, 1, set_bytes, PLIM__PAGE),
                                              params->num_nodes);
    window->area =
        plim__arena_carve(arena, (size_t)window->params.draws, entry_size(params), PLIM__PAGE);
    window->store = plim__arena_carve(arena, (size_t)params->rows, params->row_bytes, PLIM__PAGE);
    return window;
}

plim_status_t plim__load_window_create(const plim_job_t *job,
                                       const plim__load_window_params_t *params,
                                       plim__topology_t *topology, plim__rows_t *rows,
                                       plim__load_window_t **window_out)
{
    plim__arena_t arena;
    PLIM_TRY(check_params(params, rows));
    PLIM_TRY(plim__arena_create(job->ledger, "window", plim__load_window_estimate(params), &arena));
    /* Sets, places and rows are read at random: huge pages save their misses. All are touched now,
     * so that a later, larger window finds its memory there. */
    plim__arena_want_huge(arena.base, arena.size);
    plim__load_window_t *window = carve(&arena, params);
    plim__arena_touch(&arena);
    window->arena = arena;
    window->job = job;
    window->topology_below = topology;
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

void plim__load_window_draw_as(plim__load_window_t *window, int num_hops, const int64_t *fanout)
{
    plim__load_window_params_t *params = &window->params;
    const size_t bytes = (size_t)num_hops * sizeof *fanout;
    if (params->num_hops == num_hops && memcmp(params->fanout, fanout, bytes) == 0)
        return;
    params->num_hops = num_hops;
    memcpy(params->fanout, fanout, bytes);
    window->ready = false;
    /* What fitted, and what did not, was drawn otherwise. */
    window->fitted_seeds = window->fitted_draws = window->fitted_rows = 0;
    window->refused_seeds = 0;
}

/* Whether so many seeds fit whatever is drawn for them. */
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
 * Seeds that are expected to fit. Windows share nodes, so what a window takes grows less than its
 * seeds do: what the largest one so far took allows at least as many seeds as its scale says.
 */
static int64_t seeds_expected(const plim__load_window_t *window)
{
    const plim__load_window_params_t *params = &window->params;
    double growth = GROWTH_MOST;
    if (window->fitted_draws > 0)
        growth = (double)params->draws / (double)window->fitted_draws * GROWTH_SHARE;
    if (window->fitted_rows > 0) {
        double by_rows = (double)params->rows / (double)window->fitted_rows * GROWTH_SHARE;
        growth = by_rows < growth ? by_rows : growth;
    }
    growth = growth > GROWTH_MOST ? GROWTH_MOST : growth;
    return (int64_t)((double)window->fitted_seeds * growth);
}

static int64_t batches_expected(const plim__load_window_t *window, const int64_t *bounds,
                                int64_t num_batches)
{
    int64_t expected = seeds_expected(window);
    int64_t least = 1, most = num_batches;
    while (least < most) {
        int64_t middle = most - (most - least) / 2;
        int64_t seeds = bounds[middle] - bounds[0];
        if (seeds <= expected || surely_fits(&window->params, seeds))
            least = middle;
        else
            most = middle - 1;
    }
    return least;
}

static void remember(plim__load_window_t *window, int64_t seeds, bool cut)
{
    if (!cut && seeds < window->fitted_seeds)
        return;
    window->fitted_seeds = seeds;
    window->fitted_draws = window->used_draws;
    window->fitted_rows = window->used_rows;
}

static plim_status_t refuse(const plim__load_window_t *window, int64_t seeds, overflow_t overflow)
{
    if (overflow.draws)
        return plim__fail(PLIM_ERR_BUDGET,
                          "a batch of %lld seeds does not fit the window's room for %lld draws: it "
                          "was full at hop %d; give more memory, or take fewer seeds or neighbours",
                          (long long)seeds, (long long)window->params.draws, overflow.hop + 1);
    return plim__fail(
        PLIM_ERR_BUDGET,
        "a batch of %lld seeds needs %lld rows from disk, and the window has room for "
        "%lld; give more memory, or take fewer seeds or neighbours",
        (long long)seeds, (long long)overflow.rows_wanted, (long long)window->params.rows);
}

/* Whether a batch is refused unseen: one as large did not fit, and to find that out again costs
 * about as much as the batch itself. */
static bool is_refused(plim__load_window_t *window, int64_t seeds)
{
    if (window->refused_seeds == 0 || seeds < window->refused_seeds ||
        surely_fits(&window->params, seeds))
        return false;
    window->refusals = (window->refusals + 1) % REFUSALS_MOST;
    return window->refusals != 0;
}

static void remember_refused(plim__load_window_t *window, int64_t seeds, overflow_t overflow)
{
    if (window->refused_seeds != 0 && seeds >= window->refused_seeds)
        return;
    window->refused_seeds = seeds;
    window->refused = overflow;
}

/* How many batches to try after so many did not fit: at most half of them. */
static int64_t cut_batches(const plim__load_window_t *window, int64_t batches, overflow_t overflow)
{
    double share = 0.5;
    if (!overflow.draws && 2 * window->params.rows < overflow.rows_wanted)
        share = (double)window->params.rows / (double)overflow.rows_wanted;
    return plim__max_i64(1, (int64_t)((double)batches * share));
}

static plim_status_t check_batches(const plim__load_window_t *window, const int64_t *seeds,
                                   const int64_t *bounds, int64_t num_batches)
{
    if (num_batches < 1)
        return plim__fail(PLIM_ERR_USAGE, "a window of %lld batches", (long long)num_batches);
    for (int64_t i = 0; i < num_batches; i++)
        if (bounds[i] < 0 || bounds[i] > bounds[i + 1])
            return plim__fail(PLIM_ERR_USAGE, "the seeds of batch %lld end before they begin",
                              (long long)i);
    for (int64_t i = bounds[0]; i < bounds[num_batches]; i++)
        if (seeds[i] < 0 || seeds[i] >= window->params.num_nodes)
            return plim__fail(PLIM_ERR_USAGE, "seed %lld is no node; there are %lld",
                              (long long)seeds[i], (long long)window->params.num_nodes);
    return PLIM_OK;
}

plim_status_t plim__load_window_build(plim__load_window_t *window, int64_t epoch,
                                      const int64_t *seeds, const int64_t *bounds,
                                      int64_t num_batches, int64_t *taken_out)
{
    window->ready = false;
    PLIM_TRY(check_batches(window, seeds, bounds, num_batches));
    int64_t batches = batches_expected(window, bounds, num_batches);
    bool cut = false, fits = false;
    if (is_refused(window, bounds[1] - bounds[0]))
        return refuse(window, bounds[1] - bounds[0], window->refused);
    PLIM_TRY(plim__topology_disk_refresh(window->topology_below, 0, REFRESH_NS));
    if (plim__load_window_stores_rows(window))
        PLIM_TRY(plim__rows_disk_refresh(window->rows_below, 0, REFRESH_NS));
    for (;;) {
        overflow_t overflow;
        int64_t count = bounds[batches] - bounds[0];
        PLIM_TRY(plim__load_window_fill(window, epoch, seeds + bounds[0], count, &fits, &overflow));
        if (fits)
            break;
        if (batches == 1) {
            remember_refused(window, count, overflow);
            return refuse(window, count, overflow);
        }
        batches = cut_batches(window, batches, overflow);
        cut = true;
    }
    remember(window, bounds[batches] - bounds[0], cut);
    if (bounds[1] - bounds[0] >= window->refused_seeds)
        window->refused_seeds = 0;
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
