/*
 *     window 0   ─ building ─► serving [first, boundary) ─ all built ─► free ─ building ─► …
 *     window 1                 ─ building ─► serving [boundary, limit) ─ …
 *
 * Or there is one window with the memory of both (window_pace.h), which is filled again once its
 * batches are built. Or many windows are drawn ahead (ahead.h), and two of them are in memory.
 *
 * A window never reaches beyond its epoch. At the end of a shuffled epoch the builder guesses that
 * the next epoch follows, and fills its first window; not where that epoch's batches are counted
 * first or drawn ahead, which takes long and may be in vain. When another stream
 * interrupts, the interrupted stream keeps its next window if that holds more batches than the
 * interruption has; the interruption then uses only the other window. A batch that is too large for
 * a window is built without one, part by part from the dataset's own sources.
 *
 * All states change under the ring's lock; builds run without it.
 */
#include "load/window_builder.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/delay.h"
#include "base/fail.h"
#include "base/threads.h"
#include "load/ahead.h"
#include "load/window_pace.h"

typedef enum window_state { FREE = 0, BUILDING, SERVING, KEPT } window_state_t;

typedef struct window {
    plim__load_window_t *window;
    window_state_t state;
    const plim_stream_t *of; /* SERVING, KEPT: the stream of its batches, … */
    int64_t epoch;           /* … their epoch, … */
    int64_t step;            /* … the first step … */
    int64_t steps;           /* … and the number of steps */
    int64_t read_ns;         /* time that filling it took */
    int64_t served_ns;       /* SERVING: when serving began */
    int64_t microbatches;    /* SERVING: the number of microbatches of its batches, … */
    _Atomic int64_t built;   /* … and the number of those that workers have built */
    bool direct;             /* empty: its one batch comes from the dataset's own sources */
} window_t;

/* A build: window `which`, from a step of a stream's epoch on. */
typedef struct target {
    bool guess;  /* not of the current run (yet) */
    bool counts; /* of a run that counts: rows are not needed */
    int which;
    plim_stream_t *of;
    int64_t epoch;
    int64_t step;
} target_t;

struct plim__window_builder {
    plim__arena_t arena;
    plim__load_context_t *context;
    plim__slot_ring_t *ring;
    plim__thread_t thread;
    bool started;
    plim__condition_t wake; /* the builder: a window is free, a run has begun, the loader ends */
    plim__condition_t idle; /* drop_work: nothing is being built */
    int64_t num_seeds;      /* capacity of seeds */
    int64_t *entries;       /* (num_entries) seeds: nodes, or graphs */
    int64_t num_entries;
    int64_t *seeds;  /* (num_seeds) nodes; the same as entries in one graph */
    int64_t *bounds; /* (window_steps + 1) */
    bool looks_up;
    plim__negatives_t *negatives; /* NULL unless they are looked up */
    int64_t window_steps;
    bool at_work;     /* on `target` */
    bool dropped;     /* … which is to be abandoned */
    bool has_guessed; /* for this run */
    target_t target;
    int64_t step;   /* the step of the run that the next window begins with, … */
    int64_t number; /* … and the number of its first microbatch in the epoch */
    window_t windows[PLIM__LOAD_WINDOWS];
    plim__ahead_t *ahead;       /* NULL: windows read for themselves */
    bool changes;               /* one window becomes two, or two one, once none serves … */
    plim__window_pace_t pace;   /* … and whether there is one now */
    int64_t ended_ns;           /* when all batches of the last window were built */
    _Atomic int64_t num_served; /* windows so far, and the steps of the last one */
    _Atomic int64_t last_steps;
    plim__row_counts_t counts; /* distinct rows of each window, or of a part of a batch without */

    /* boundary * 2 + window, in one number so that both change at once: sequence numbers from the
     * boundary on are of that window, those before of the other one. */
    _Alignas(64) _Atomic int64_t newest;
};

/* The most steps of a window: no more than the longest epoch has. */
static int64_t steps_of(const plim_dataset_info_t *info, const plim__load_plan_t *plan)
{
    const int64_t size = plim__load_envelope(plan)->batch_size;
    const int64_t most = plim__load_most_seeds(info, plan) / size + 1;
    return plim__max_i64(1, plim__min_i64(plan->window_steps, most));
}

static int64_t entries_of(const plim_dataset_info_t *info, const plim__load_plan_t *plan)
{
    const int64_t most = plim__load_most_seeds(info, plan);
    int64_t entries;
    if (!plim__mul_i64(steps_of(info, plan), plim__load_envelope(plan)->batch_size, &entries))
        return most;
    return plim__min_i64(entries, most);
}

/* Each node of a graph takes at least one of the window's draws: more nodes cannot fit. */
static int64_t graph_nodes_of(const plim_dataset_info_t *info, const plim__load_plan_t *plan)
{
    return info->num_graphs == 0 ? 0 : plim__min_i64(info->num_nodes, plan->window_draws);
}

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim__window_builder_t *builder = draft;
    builder->entries = plim__arena_carve(arena, (size_t)builder->num_entries, sizeof(int64_t), 1);
    builder->seeds = builder->entries;
    if (builder->num_seeds > 0)
        builder->seeds = plim__arena_carve(arena, (size_t)builder->num_seeds, sizeof(int64_t), 1);
    builder->bounds =
        plim__arena_carve(arena, (size_t)builder->window_steps + 1, sizeof(int64_t), 1);
    if (builder->looks_up)
        builder->negatives = plim__arena_carve(arena, 1, sizeof *builder->negatives, 1);
}

static plim__window_builder_t draft_of(const plim_dataset_info_t *info,
                                       const plim__load_plan_t *plan)
{
    return (plim__window_builder_t){.window_steps = steps_of(info, plan),
                                    .num_entries = entries_of(info, plan),
                                    .looks_up = plan->looks_up,
                                    .num_seeds = graph_nodes_of(info, plan)};
}

size_t plim__window_builder_estimate(const plim_dataset_info_t *info, const plim__load_plan_t *plan)
{
    plim__window_builder_t draft = draft_of(info, plan);
    return plim__object_bytes(lay_out, &draft, sizeof draft);
}

/* Lists the seeds of the target's batches: as many whole batches as fit, up to `most`. *steps_out
 * is 0 for a share without seeds, or if the graphs of the first batch have too many nodes. */
static plim_status_t list_seeds(plim__window_builder_t *builder, const target_t *target,
                                int64_t most, int64_t *steps_out)
{
    const plim_stream_t *stream = target->of;
    const int64_t size = stream->batch_size;
    const int64_t first = target->step * size;
    const int64_t end = plim__stream_end_step(stream);
    const int64_t left =
        (end < plim__stream_steps(stream) ? end * size : plim__stream_count(stream)) - first;
    *steps_out = 0;
    if (left <= 0)
        return PLIM_OK;
    const int64_t fit = builder->num_entries >= left ? left : builder->num_entries / size * size;
    const int64_t wanted = plim__min_i64(most, fit / size + (fit % size != 0));
    const int64_t count = plim__min_i64(fit, wanted * size);
    int64_t steps = 0, used = 0;
    if (stream->shuffled)
        plim__seeds_prepare(stream->seeds, target->epoch);
    PLIM_TRY(plim__stream_take(stream, builder->negatives, target->epoch, first, count,
                               builder->entries, NULL));
    builder->bounds[0] = 0;
    for (; steps < wanted; steps++) {
        int64_t nodes = plim__min_i64(size, count - steps * size);
        if (builder->context->graph_indptr != NULL &&
            !plim__graph_nodes(builder->context->graph_indptr, builder->entries + steps * size,
                               nodes, builder->num_seeds - used, builder->seeds + used, &nodes))
            break;
        used += nodes;
        builder->bounds[steps + 1] = used;
    }
    *steps_out = steps;
    return PLIM_OK;
}

static plim__ahead_steps_t steps_ahead(const plim__window_builder_t *builder,
                                       const target_t *target, int64_t count)
{
    return (plim__ahead_steps_t){.stream = target->of,
                                 .draw_seed = target->of->draw_seed,
                                 .num_hops = target->of->num_hops,
                                 .fanout = target->of->fanout,
                                 .epoch = target->epoch,
                                 .first = target->step,
                                 .seeds = builder->seeds,
                                 .bounds = builder->bounds,
                                 .count = count};
}

/* Draws ahead for the target and the windows after it, if that is not done yet. *left_out: the
 * steps from the target to the end of its window that were drawn; 0 if it reads for itself. */
static plim_status_t draw_ahead(plim__window_builder_t *builder, const target_t *target,
                                int64_t *left_out)
{
    int64_t listed;
    *left_out = 0;
    if (builder->ahead == NULL || target->counts)
        return PLIM_OK;
    *left_out = plim__ahead_left(builder->ahead, target->of, target->epoch, target->step);
    if (*left_out > 0 ||
        !plim__ahead_is_free(builder->ahead, target->of, target->epoch, target->step))
        return PLIM_OK;
    PLIM_TRY(list_seeds(builder, target, builder->window_steps, &listed));
    const plim__ahead_steps_t steps = steps_ahead(builder, target, listed);
    if (listed > 0)
        PLIM_TRY(plim__ahead_draw(builder->ahead, &steps, builder->windows[target->which].window));
    *left_out = plim__ahead_left(builder->ahead, target->of, target->epoch, target->step);
    return PLIM_OK;
}

/* Builds a window. A batch that it cannot hold is served without one. */
static plim_status_t build(plim__window_builder_t *builder, const target_t *target,
                           int64_t *steps_out)
{
    window_t *window = &builder->windows[target->which];
    int64_t listed, drawn, taken = 0;
    PLIM_TRY(draw_ahead(builder, target, &drawn));
    PLIM_TRY(list_seeds(builder, target, drawn > 0 ? drawn : builder->window_steps, &listed));
    if (listed > 0 && drawn > 0) {
        const plim__ahead_steps_t steps = steps_ahead(builder, target, listed);
        PLIM_TRY(plim__ahead_fill(builder->ahead, &steps, window->window, &taken));
    } else if (listed > 0) {
        plim__load_window_draw_as(window->window, target->of->draw_seed, target->of->num_hops,
                                  target->of->fanout,
                                  target->counts ? PLIM__WINDOW_NONE : PLIM__WINDOW_READ);
        PLIM_TRY(plim__load_window_build(window->window, target->epoch, builder->seeds,
                                         builder->bounds, listed, false, &taken));
    }
    window->direct = taken == 0;
    *steps_out = window->direct ? 1 : taken;
    return PLIM_OK;
}

/* The capacities of one window with the memory of both. */
static plim__load_window_params_t both_of(const plim__load_window_params_t *params)
{
    const size_t most = PLIM__LOAD_WINDOWS * plim__load_window_estimate(params);
    plim__load_window_params_t both = *params;
    int64_t low = 100, high = 1600; /* percent */
    while (low < high) {
        const int64_t middle = high - (high - low) / 2;
        both.draws = params->draws * middle / 100;
        both.rows = params->rows * middle / 100;
        if (plim__load_window_estimate(&both) <= most)
            low = middle;
        else
            high = middle - 1;
    }
    both.draws = params->draws * low / 100;
    both.rows = params->rows * low / 100;
    return both;
}

static plim_status_t make_two(plim__window_builder_t *builder)
{
    plim__load_context_t *context = builder->context;
    const plim__load_window_params_t *params = &context->params.window;
    for (int i = 0; i < PLIM__LOAD_WINDOWS; i++)
        if (builder->windows[i].window == NULL)
            PLIM_TRY(plim__load_window_create(&context->job, params, context->sources.topologies[0],
                                              params->rows > 0 ? context->sources.tables[0] : NULL,
                                              &builder->windows[i].window));
    return PLIM_OK;
}

/* Where windows are drawn ahead there are always two: each reads only its bucket. */
static plim_status_t make_ahead(plim__window_builder_t *builder)
{
    plim__load_context_t *context = builder->context;
    plim__ahead_params_t params = context->params.ahead;
    if (params.draws.draws == 0)
        return PLIM_OK;
    params.directory = context->plan.scratch;
    builder->pace.decided = true;
    return plim__ahead_create(&context->job, &params, context->sources.topologies[0],
                              context->sources.tables[0], &builder->ahead);
}

/* Makes one window of two, or two of one, while none is in use. */
static plim_status_t change_windows(plim__window_builder_t *builder)
{
    const plim__load_window_params_t *params = &builder->context->params.window;
    window_t *windows = builder->windows;
    if (windows[0].window != NULL && windows[1].window != NULL) {
        const plim__load_window_params_t both = both_of(params);
        plim__load_window_destroy(windows[1].window);
        windows[1].window = NULL;
        if (plim__load_window_remake(&both, &windows[0].window) == PLIM_OK)
            return PLIM_OK;
    } else if (windows[0].window != NULL) {
        (void)plim__load_window_remake(params, &windows[0].window);
    }
    const plim_status_t status = make_two(builder);
    return windows[0].window != NULL ? PLIM_OK : status; /* a small one alone serves, too */
}

/* Gives the batches of a ready window the next sequence numbers of the run. Lock held. */
static void serve(plim__window_builder_t *builder, int which)
{
    window_t *window = &builder->windows[which];
    const int64_t boundary = atomic_load(&builder->ring->limit);
    int64_t draws, rows = 0, held = 0;
    if (!window->direct) {
        plim__load_window_used(window->window, &draws, &rows);
        held = plim__load_window_held(window->window);
    }
    window->state = SERVING;
    window->served_ns = plim__clock_ns();
    builder->step = window->step + window->steps;
    const int64_t end = plim__stream_microbatches(builder->ring->run.of, builder->step);
    window->microbatches = end - builder->number;
    builder->number = end;
    atomic_store(&window->built, 0);
    atomic_fetch_add(&builder->num_served, 1);
    atomic_store(&builder->last_steps, window->steps);
    atomic_fetch_add(&builder->counts.rows, rows + held);
    atomic_fetch_add(&builder->counts.cached, held);
    atomic_store(&builder->newest, boundary * 2 + which);
    plim__slot_ring_raise(builder->ring, boundary + window->microbatches);
}

/* Chooses what to build next, if anything. Lock held. */
static bool choose(plim__window_builder_t *builder)
{
    const plim__load_run_t *run = &builder->ring->run;
    const int most = builder->pace.one ? 1 : PLIM__LOAD_WINDOWS;
    int which = 0;
    while (which < most && builder->windows[which].state != FREE)
        which++;
    if (which == most || !run->started || atomic_load(&builder->ring->failed_at) != INT64_MAX)
        return false;
    if (atomic_load(&builder->ring->limit) < run->end_sequence) {
        builder->target = (target_t){false, run->counts, which, run->of, run->epoch, builder->step};
        return true;
    }
    if (!run->of->shuffled || builder->has_guessed || run->epoch == INT64_MAX ||
        plim__stream_count(run->of) == 0 || builder->context->plan.counted ||
        builder->ahead != NULL)
        return false;
    builder->has_guessed = true;
    builder->target = (target_t){true, false, which, run->of, run->epoch + 1, 0};
    return true;
}

/* Whether the caller or the loader wants to stop now. */
static bool is_stopping(plim__window_builder_t *builder)
{
    const volatile int *asked = builder->context->asked->stop;
    return __atomic_load_n(&builder->context->stop, __ATOMIC_RELAXED) != 0 ||
           (asked != NULL && __atomic_load_n(asked, __ATOMIC_RELAXED) != 0);
}

/* Completes a build. Lock held. */
static void end_build(plim__window_builder_t *builder, plim_status_t status, int64_t steps)
{
    window_t *window = &builder->windows[builder->target.which];
    const bool stale = status == PLIM_ERR_STOPPED && !is_stopping(builder);
    builder->at_work = false;
    window->state = FREE;
    window->of = builder->target.of;
    window->epoch = builder->target.epoch;
    window->step = builder->target.step;
    window->steps = steps;
    if (builder->dropped) {
        builder->dropped = false;
        __atomic_store_n(&builder->context->stop, 0, __ATOMIC_RELAXED);
        plim__condition_wake(&builder->idle, 1);
    } else if (status != PLIM_OK && !builder->target.guess && !stale) {
        plim__slot_ring_fail(builder->ring, atomic_load(&builder->ring->limit), status);
    } else if (status == PLIM_OK && !builder->target.guess) {
        serve(builder, builder->target.which);
    } else if (status == PLIM_OK) {
        window->state = KEPT;
    }
    /* Otherwise the window is built again when it is needed, and an error is reported then: a guess
     * failed, or a build was stopped with the run before and then taken over by this one. */
}

/* Changes the number of windows when that is wanted, as soon as none serves: whether it did. A kept
 * one is given up. Lock held, and released while making. */
static bool change(plim__window_builder_t *builder)
{
    if (!builder->changes || !builder->ring->run.started ||
        atomic_load(&builder->ring->failed_at) != INT64_MAX)
        return false;
    for (int i = 0; i < PLIM__LOAD_WINDOWS; i++) {
        if (builder->windows[i].state == SERVING)
            return false;
        builder->windows[i].state = FREE;
    }
    builder->changes = false;
    pthread_mutex_unlock(&builder->ring->lock);
    const plim_status_t status = change_windows(builder);
    pthread_mutex_lock(&builder->ring->lock);
    builder->has_guessed = false;
    plim__window_pace_changed(&builder->pace, builder->windows[1].window == NULL);
    if (status != PLIM_OK) { /* the next run tries again */
        builder->changes = true;
        plim__slot_ring_fail(builder->ring, atomic_load(&builder->ring->limit), status);
    }
    return true;
}

static void builder_body(void *context)
{
    plim__window_builder_t *builder = context;
    pthread_mutex_lock(&builder->ring->lock);
    while (!atomic_load(&builder->ring->ending)) {
        if (change(builder))
            continue;
        if (builder->changes || !choose(builder)) {
            plim__condition_wait(&builder->wake, &builder->ring->lock);
            continue;
        }
        const target_t target = builder->target;
        int64_t steps = 0;
        builder->at_work = true;
        builder->windows[target.which].state = BUILDING;
        pthread_mutex_unlock(&builder->ring->lock);
        plim__delay();
        const int64_t began = plim__clock_ns();
        plim_status_t status = build(builder, &target, &steps);
        builder->windows[target.which].read_ns = plim__clock_ns() - began;
        plim__delay();
        pthread_mutex_lock(&builder->ring->lock);
        end_build(builder, status, steps);
    }
    pthread_mutex_unlock(&builder->ring->lock);
}

/* Cancels the current build. Lock held, and released while waiting. */
static void drop_work(plim__window_builder_t *builder)
{
    builder->dropped = true;
    __atomic_store_n(&builder->context->stop, 1, __ATOMIC_RELAXED);
    while (builder->dropped)
        plim__condition_wait(&builder->idle, &builder->ring->lock);
}

/* The step and epoch that a stream which is not served continues with. At the end of a shuffled
 * epoch this is assumed to be the first step of the next one. */
static int64_t next_step(const plim_stream_t *of, int64_t *epoch_out)
{
    const bool over = of->shuffled && of->step == plim__stream_steps(of);
    *epoch_out = of->epoch + over;
    return over ? 0 : of->step;
}

static bool is_next(const target_t *target)
{
    int64_t epoch;
    return next_step(target->of, &epoch) == target->step && epoch == target->epoch;
}

/* Batches of a window that its stream continues with; 0: it does not continue there. */
static int64_t batches_left(const window_t *window)
{
    int64_t epoch;
    const int64_t step = next_step(window->of, &epoch), end = window->step + window->steps;
    return window->epoch == epoch && window->step <= step && step < end ? end - step : 0;
}

/* Whether a run over one stream replaces the order of seeds that windows of the other rely on. */
static bool share_orders(const plim_stream_t *a, const plim_stream_t *b)
{
    return a != b && a->seeds == b->seeds && a->shuffled && b->shuffled;
}

void plim__window_builder_start(plim__window_builder_t *builder, bool stale)
{
    const plim__load_run_t *run = &builder->ring->run;
    const int64_t steps = plim__stream_end_step(run->of) - run->of->step;
    bool kept = builder->pace.one; /* at most one: the run needs a window */
    builder->step = run->of->step;
    builder->number = run->first_number;
    builder->has_guessed = false;
    if (!run->counts)
        plim__window_pace_follow(&builder->pace, run->of, plim__stream_steps(run->of));
    for (int i = 0; i < PLIM__LOAD_WINDOWS; i++) {
        window_t *window = &builder->windows[i];
        if (window->state != SERVING && window->state != KEPT)
            continue;
        if (!stale && !window->direct && builder->number == run->first_number &&
            window->of == run->of && window->epoch == run->epoch && batches_left(window) > 0) {
            serve(builder, i);
        } else if (!stale && !kept && !window->direct && window->of != run->of &&
                   !share_orders(window->of, run->of) && batches_left(window) > steps) {
            window->state = KEPT;
            kept = true;
        } else {
            window->state = FREE;
        }
    }
    target_t *target = &builder->target;
    const bool wanted = target->of == run->of && target->epoch == run->epoch;
    if (builder->at_work && !stale && wanted && target->step == builder->step)
        target->guess = false;
    else if (builder->at_work && !stale && !kept && !share_orders(target->of, run->of) &&
             is_next(target) && atomic_load(&builder->last_steps) > steps)
        target->guess = true; /* probably as long as the last one, so it will be kept */
    else if (builder->at_work)
        drop_work(builder);
    plim__condition_wake(&builder->wake, 1);
}

void plim__window_builder_forget(plim__window_builder_t *builder, const plim_stream_t *stream)
{
    pthread_mutex_lock(&builder->ring->lock);
    if (builder->at_work && builder->target.of == stream)
        drop_work(builder);
    plim__window_pace_forget(&builder->pace, stream);
    if (builder->ahead != NULL)
        plim__ahead_forget(builder->ahead, stream);
    for (int i = 0; i < PLIM__LOAD_WINDOWS; i++)
        if (builder->windows[i].of == stream && builder->windows[i].state != BUILDING)
            builder->windows[i].state = FREE;
    pthread_mutex_unlock(&builder->ring->lock);
}

static int window_of(const plim__window_builder_t *builder, int64_t sequence)
{
    const int64_t newest = atomic_load(&builder->newest);
    return (int)(sequence >= newest / 2 ? newest % 2 : 1 - newest % 2);
}

plim__load_sources_t plim__window_builder_sources(plim__window_builder_t *builder, int64_t sequence)
{
    const window_t *window = &builder->windows[window_of(builder, sequence)];
    plim__load_sources_t sources = builder->context->sources;
    if (window->direct) {
        sources.first_worker = builder->context->params.builders;
        sources.counts = builder->context->plan.rows_in_memory ? NULL : &builder->counts;
        return sources;
    }
    sources.topologies[0] = plim__load_window_topology(window->window);
    if (builder->context->params.window.rows > 0)
        sources.tables[0] = plim__load_window_rows(window->window);
    return sources;
}

void plim__window_builder_built(plim__window_builder_t *builder, int64_t sequence)
{
    window_t *window = &builder->windows[window_of(builder, sequence)];
    const int64_t microbatches =
        window->microbatches; /* read first: it may change once the last is counted */
    if (atomic_fetch_add(&window->built, 1) + 1 < microbatches)
        return;
    pthread_mutex_lock(&builder->ring->lock);
    const int64_t now = plim__clock_ns();
    if (!window->direct && !builder->changes && !builder->ring->run.counts)
        builder->changes = plim__window_pace_built(
            &builder->pace, window->of, window->step, window->steps, window->read_ns,
            now - plim__max_i64(window->served_ns, builder->ended_ns));
    builder->ended_ns = now;
    window->state = FREE;
    plim__condition_wake(&builder->wake, 1);
    pthread_mutex_unlock(&builder->ring->lock);
}

void plim__window_builder_stats(plim__window_builder_t *builder, plim_load_stats_t *stats)
{
    stats->windows = atomic_load(&builder->num_served);
    stats->window_steps = atomic_load(&builder->last_steps);
    if (builder->context->params.window.rows > 0) {
        stats->rows = atomic_load(&builder->counts.rows);
        stats->rows_cached = atomic_load(&builder->counts.cached);
    }
}

plim_status_t plim__window_builder_create(plim__load_context_t *context, plim__slot_ring_t *ring,
                                          plim__window_builder_t **builder_out)
{
    plim__window_builder_t draft = draft_of(context->info, &context->plan), *builder;
    PLIM_TRY(plim__object_create(context->job.ledger, "slots", lay_out, &draft, sizeof draft,
                                 &draft.arena, &builder));
    builder->context = context;
    builder->ring = ring;
    if (builder->negatives != NULL) /* the first of the builders, while none draws */
        builder->negatives->lists = context->lists;
    *builder_out = builder;
    PLIM_TRY(make_two(builder));
    PLIM_TRY(make_ahead(builder));
    PLIM_TRY(plim__thread_start(&builder->thread, builder_body, builder));
    builder->started = true;
    return PLIM_OK;
}

void plim__window_builder_destroy(plim__window_builder_t *builder)
{
    if (builder == NULL)
        return;
    if (builder->started) {
        pthread_mutex_lock(&builder->ring->lock);
        plim__condition_wake(&builder->wake, 1);
        pthread_mutex_unlock(&builder->ring->lock);
        plim__thread_join(&builder->thread);
    }
    for (int i = 0; i < PLIM__LOAD_WINDOWS; i++)
        plim__load_window_destroy(builder->windows[i].window);
    plim__ahead_destroy(builder->ahead);
    plim__arena_destroy(&builder->arena);
}
