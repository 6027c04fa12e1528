/*
 * The builder of windows: a thread that prepares the next window of batches while the workers build
 * those of this one.
 *
 *     window 0   ─ building ─► serving [first, boundary) ─ all built ─► free ─ building ─► …
 *     window 1                 ─ building ─► serving [boundary, limit) ─ …
 *
 * A window never reaches beyond its epoch. Behind the end of a shuffled epoch the builder goes on
 * with the first window of the next one, guessing that it comes next. When another stream
 * interrupts, the window that the first one goes on with is kept, if it holds more batches than the
 * interruption has: that one makes do with the other window. Otherwise it is dropped. A batch that
 * is too large for a window is served by itself and without one: its builder asks the dataset's own
 * sources, part by part.
 *
 * All states change under the loader's lock; builds run without it.
 */
#include "base/check.h"
#include "base/delay.h"
#include "base/fail.h"
#include "load/loader.h"

typedef enum window_state { FREE = 0, BUILDING, SERVING, KEPT } window_state_t;

typedef struct window {
    plim__load_window_t *window;
    window_state_t state;
    const plim_stream_t *of; /* SERVING, KEPT: whose batches it holds, … */
    int64_t epoch;           /* … of which epoch, … */
    int64_t step;            /* … from which step on, … */
    int64_t steps;           /* … and how many */
    int64_t tickets;         /* SERVING: those of its batches */
    bool direct;             /* it holds none: its one batch comes from the sources below */
    _Atomic int64_t built;   /* of them, workers have built so many */
} window_t;

/* What is being built: window `which`, from a step of a stream's epoch on. */
typedef struct target {
    bool guess; /* not of the loader's run (yet) */
    int which;
    plim_stream_t *of;
    int64_t epoch;
    int64_t step;
} target_t;

struct plim__load_builder {
    plim__arena_t arena;
    plim__thread_t thread;
    bool started;
    pthread_cond_t wake; /* the builder: a window is free, a stream has begun, the end has come */
    pthread_cond_t idle; /* plim__load_builder_start: nothing is being built */
    int64_t num_seeds;   /* capacity of seeds */
    int64_t *entries;    /* (num_entries) of the split: nodes, or graphs */
    int64_t num_entries;
    int64_t *seeds;  /* (num_seeds) nodes; the same as entries in one graph */
    int64_t *bounds; /* (window_steps + 1) */
    int64_t window_steps;
    bool at_work;     /* on `target` */
    bool dropped;     /* … which is not wanted any more */
    bool has_guessed; /* for this run, whatever came of it */
    target_t target;
    int64_t step;   /* of the run, that the next window begins with, … */
    int64_t number; /* … and its first ticket's among the epoch's */
    window_t windows[PLIM__LOAD_WINDOWS];
    _Atomic int64_t num_served; /* windows, and the batches of the last one */
    _Atomic int64_t last_steps;
    /* Distinct rows that each needed, or a part of a batch without one, and those of them held. */
    _Atomic int64_t num_rows;
    _Atomic int64_t num_held;

    /* Tickets from here on are of window `newest % 2`, those before of the other one: the number is
     * boundary * 2 + window, so that both change at once. */
    _Alignas(64) _Atomic int64_t newest;
};

/* Steps that a window may have: no more than the longest epoch. */
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

/* A graph's node takes at least one place of the window's draws, so more would not fit anyway. */
static int64_t graph_nodes_of(const plim_dataset_info_t *info, const plim__load_plan_t *plan)
{
    return info->num_graphs == 0 ? 0 : plim__min_i64(info->num_nodes, plan->window_draws);
}

static size_t arena_bytes(const plim_dataset_info_t *info, const plim__load_plan_t *plan)
{
    const size_t pieces[] = {
        plim__arena_piece(1, sizeof(plim__load_builder_t), 1),
        plim__arena_piece((size_t)entries_of(info, plan), sizeof(int64_t), 1),
        plim__arena_piece((size_t)graph_nodes_of(info, plan), sizeof(int64_t), 1),
        plim__arena_piece((size_t)steps_of(info, plan) + 1, sizeof(int64_t), 1)};
    size_t sum = 0;
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        if (!plim__add_size(sum, pieces[i], &sum))
            return SIZE_MAX;
    return plim__round_up(sum, PLIM__PAGE);
}

size_t plim__load_builder_estimate(const plim_dataset_info_t *info, const plim__load_plan_t *plan,
                                   const plim__loader_params_t *parts)
{
    return parts->windowed ? arena_bytes(info, plan) : 0;
}

/* The seeds of the target's batches, as many whole batches as there is room for: none of a batch
 * that is larger than any that was planned. */
static plim_status_t list_seeds(plim_loader_t *loader, const target_t *target, int64_t *steps_out)
{
    plim__load_builder_t *builder = loader->builder;
    const plim_stream_t *stream = target->of;
    const int64_t size = stream->batch_size;
    const int64_t first = target->step * size;
    const int64_t left = plim_stream_seeds(stream) - first;
    const int64_t room = builder->num_entries >= left ? left : builder->num_entries / size * size;
    const int64_t wanted = plim__min_i64(builder->window_steps, room / size + (room % size != 0));
    const int64_t count = plim__min_i64(room, wanted * size);
    int64_t steps = 0, used = 0;
    if (stream->shuffled)
        plim__seeds_prepare(stream->seeds, target->epoch);
    plim__stream_take(stream, target->epoch, first, count, builder->entries, NULL);
    builder->bounds[0] = 0;
    for (; steps < wanted; steps++) {
        int64_t nodes = plim__min_i64(size, count - steps * size);
        if (loader->graph_indptr != NULL &&
            !plim__load_graph_nodes(loader, builder->entries + steps * size, nodes,
                                    builder->num_seeds - used, builder->seeds + used, &nodes))
            break;
        used += nodes;
        builder->bounds[steps + 1] = used;
    }
    if (steps == 0)
        return plim__fail(PLIM_ERR_BUDGET,
                          "the graphs of batch %lld of epoch %lld have more nodes than a window of "
                          "%lld entries holds; raise --memory, or make --batch smaller",
                          (long long)target->step, (long long)target->epoch,
                          (long long)loader->plan.window_draws);
    *steps_out = steps;
    return PLIM_OK;
}

static plim_status_t build(plim_loader_t *loader, const target_t *target, int64_t *steps_out)
{
    plim__load_builder_t *builder = loader->builder;
    window_t *window = &builder->windows[target->which];
    int64_t steps = 0;
    plim_status_t status = list_seeds(loader, target, &steps);
    plim__load_window_draw_as(window->window, target->of->num_hops, target->of->fanout);
    if (status == PLIM_OK)
        status = plim__load_window_build(window->window, target->epoch, builder->seeds,
                                         builder->bounds, steps, steps_out);
    window->direct = status == PLIM_ERR_BUDGET;
    if (!window->direct)
        return status;
    *steps_out = 1;
    return PLIM_OK;
}

/* The batches of a window that is ready become tickets of the run. Lock held. */
static void serve(plim_loader_t *loader, int which)
{
    plim__load_builder_t *builder = loader->builder;
    window_t *window = &builder->windows[which];
    const int64_t boundary = atomic_load(&loader->limit);
    int64_t draws, rows = 0, held = 0;
    if (!window->direct) {
        plim__load_window_used(window->window, &draws, &rows);
        held = plim__load_window_held(window->window);
    }
    window->state = SERVING;
    builder->step = window->step + window->steps;
    const int64_t end = plim__load_tickets(loader->run.of, builder->step);
    window->tickets = end - builder->number;
    builder->number = end;
    atomic_store(&window->built, 0);
    atomic_fetch_add(&builder->num_served, 1);
    atomic_store(&builder->last_steps, window->steps);
    atomic_fetch_add(&builder->num_rows, rows + held);
    atomic_fetch_add(&builder->num_held, held);
    atomic_store(&builder->newest, boundary * 2 + which);
    plim__load_raise(loader, boundary + window->tickets);
}

/* What to build next, if anything. Lock held. */
static bool choose(plim_loader_t *loader)
{
    plim__load_builder_t *builder = loader->builder;
    const plim__load_run_t *run = &loader->run;
    int which = 0;
    while (which < PLIM__LOAD_WINDOWS && builder->windows[which].state != FREE)
        which++;
    if (which == PLIM__LOAD_WINDOWS || !run->started ||
        atomic_load(&loader->failed_at) != INT64_MAX)
        return false;
    if (atomic_load(&loader->limit) < run->end_ticket) {
        builder->target = (target_t){false, which, run->of, run->epoch, builder->step};
        return true;
    }
    if (!run->of->shuffled || builder->has_guessed || run->epoch == INT64_MAX ||
        plim_stream_seeds(run->of) == 0)
        return false;
    builder->has_guessed = true;
    builder->target = (target_t){true, which, run->of, run->epoch + 1, 0};
    return true;
}

/* Whether somebody wants the loader to stop, now. */
static bool is_stopping(const plim_loader_t *loader)
{
    const volatile int *asked = loader->asked->stop;
    return __atomic_load_n(&loader->stop, __ATOMIC_RELAXED) != 0 ||
           (asked != NULL && __atomic_load_n(asked, __ATOMIC_RELAXED) != 0);
}

/* After a build. Lock held. */
static void settle(plim_loader_t *loader, plim_status_t status, int64_t steps)
{
    plim__load_builder_t *builder = loader->builder;
    window_t *window = &builder->windows[builder->target.which];
    const bool stale = status == PLIM_ERR_STOPPED && !is_stopping(loader);
    builder->at_work = false;
    window->state = FREE;
    window->of = builder->target.of;
    window->epoch = builder->target.epoch;
    window->step = builder->target.step;
    window->steps = steps;
    if (builder->dropped) {
        builder->dropped = false;
        __atomic_store_n(&loader->stop, 0, __ATOMIC_RELAXED);
        pthread_cond_signal(&builder->idle);
    } else if (status != PLIM_OK && !builder->target.guess && !stale) {
        plim__load_fail_locked(loader, atomic_load(&loader->limit), status);
    } else if (status == PLIM_OK && !builder->target.guess) {
        serve(loader, builder->target.which);
    } else if (status == PLIM_OK) {
        window->state = KEPT;
    }
    /* A guess that failed is built again when it is asked for, and then its error counts. So is one
     * that was stopped with the stream before, and taken over by this one before it came to here.
     */
}

static plim_status_t builder_body(void *context)
{
    plim_loader_t *loader = context;
    plim__load_builder_t *builder = loader->builder;
    pthread_mutex_lock(&loader->lock);
    while (!atomic_load(&loader->ending)) {
        if (!choose(loader)) {
            pthread_cond_wait(&builder->wake, &loader->lock);
            continue;
        }
        const target_t target = builder->target;
        int64_t steps = 0;
        builder->at_work = true;
        builder->windows[target.which].state = BUILDING;
        pthread_mutex_unlock(&loader->lock);
        plim__delay();
        plim_status_t status = build(loader, &target, &steps);
        plim__delay();
        pthread_mutex_lock(&loader->lock);
        settle(loader, status, steps);
    }
    pthread_mutex_unlock(&loader->lock);
    return PLIM_OK;
}

/* Calls off what is being built. Lock held, and let go of meanwhile. */
static void drop_work(plim_loader_t *loader)
{
    plim__load_builder_t *builder = loader->builder;
    builder->dropped = true;
    __atomic_store_n(&loader->stop, 1, __ATOMIC_RELAXED);
    while (builder->dropped)
        pthread_cond_wait(&builder->idle, &loader->lock);
}

/* The step that a stream which is not served goes on with, and of which epoch: behind the end of a
 * shuffled one that is taken to be the next epoch's first. */
static int64_t next_step(const plim_stream_t *of, int64_t *epoch_out)
{
    const bool over = of->shuffled && of->step == plim_stream_steps(of);
    *epoch_out = of->epoch + over;
    return over ? 0 : of->step;
}

static bool is_next(const target_t *target)
{
    int64_t epoch;
    return next_step(target->of, &epoch) == target->step && epoch == target->epoch;
}

/* Batches of a window that its stream goes on with; 0: it does not go on there. */
static int64_t batches_left(const window_t *window)
{
    int64_t epoch;
    const int64_t step = next_step(window->of, &epoch), end = window->step + window->steps;
    return window->epoch == epoch && window->step <= step && step < end ? end - step : 0;
}

void plim__load_builder_start(plim_loader_t *loader)
{
    plim__load_builder_t *builder = loader->builder;
    const plim__load_run_t *run = &loader->run;
    const bool stale = loader->stale;
    const int64_t steps = plim_stream_steps(run->of) - run->of->step;
    bool kept = false; /* one window for the run is the least */
    builder->step = run->of->step;
    builder->number = run->first_number;
    builder->has_guessed = false;
    for (int i = 0; i < PLIM__LOAD_WINDOWS; i++) {
        window_t *window = &builder->windows[i];
        if (window->state != SERVING && window->state != KEPT)
            continue;
        if (!stale && !window->direct && builder->number == run->first_number &&
            window->of == run->of && window->epoch == run->epoch && batches_left(window) > 0) {
            serve(loader, i);
        } else if (!stale && !kept && !window->direct && window->of != run->of &&
                   batches_left(window) > steps) {
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
    else if (builder->at_work && !stale && !kept && is_next(target) &&
             atomic_load(&builder->last_steps) > steps)
        target->guess = true; /* about as many as the last one: then it will be kept */
    else if (builder->at_work)
        drop_work(loader);
    pthread_cond_signal(&builder->wake);
}

void plim__load_builder_forget(plim_loader_t *loader, const plim_stream_t *stream)
{
    plim__load_builder_t *builder = loader->builder;
    pthread_mutex_lock(&loader->lock);
    if (builder->at_work && builder->target.of == stream)
        drop_work(loader);
    for (int i = 0; i < PLIM__LOAD_WINDOWS; i++)
        if (builder->windows[i].of == stream && builder->windows[i].state != BUILDING)
            builder->windows[i].state = FREE;
    pthread_mutex_unlock(&loader->lock);
}

static int window_of(const plim__load_builder_t *builder, int64_t ticket)
{
    const int64_t newest = atomic_load(&builder->newest);
    return (int)(ticket >= newest / 2 ? newest % 2 : 1 - newest % 2);
}

plim__load_sources_t plim__load_builder_sources(const plim_loader_t *loader, int64_t ticket)
{
    const plim__load_builder_t *builder = loader->builder;
    const window_t *window = &builder->windows[window_of(builder, ticket)];
    plim__load_sources_t sources = loader->base;
    if (window->direct) {
        sources.first_worker = loader->params.builders;
        sources.direct = true;
        return sources;
    }
    sources.topology = plim__load_window_topology(window->window);
    if (loader->params.window.rows > 0)
        sources.rows = plim__load_window_rows(window->window);
    return sources;
}

void plim__load_builder_count(plim_loader_t *loader, const int64_t *nodes, int64_t num_nodes)
{
    plim__load_builder_t *builder = loader->builder;
    int64_t held = 0;
    if (loader->plan.rows_in_memory)
        return;
    for (int64_t i = 0; i < num_nodes; i++)
        held += plim__rows_disk_holds(loader->base.rows, nodes[i]);
    atomic_fetch_add(&builder->num_rows, num_nodes);
    atomic_fetch_add(&builder->num_held, held);
}

void plim__load_builder_built(plim_loader_t *loader, int64_t ticket)
{
    plim__load_builder_t *builder = loader->builder;
    window_t *window = &builder->windows[window_of(builder, ticket)];
    const int64_t tickets = window->tickets; /* before the last is counted: then it may change */
    if (atomic_fetch_add(&window->built, 1) + 1 < tickets)
        return;
    pthread_mutex_lock(&loader->lock);
    window->state = FREE;
    pthread_cond_signal(&builder->wake);
    pthread_mutex_unlock(&loader->lock);
}

void plim__load_builder_stats(const plim_loader_t *loader, plim_load_stats_t *stats)
{
    const plim__load_builder_t *builder = loader->builder;
    stats->windows = atomic_load(&builder->num_served);
    stats->window_steps = atomic_load(&builder->last_steps);
    if (loader->params.window.rows > 0) {
        stats->rows = atomic_load(&builder->num_rows);
        stats->rows_hot = atomic_load(&builder->num_held);
    }
}

plim_status_t plim__load_builder_create(plim_loader_t *loader)
{
    const plim_dataset_info_t *info = loader->info;
    const plim__load_plan_t *plan = &loader->plan;
    plim__arena_t arena;
    PLIM_TRY(plim__arena_create(loader->job.ledger, "loader", arena_bytes(info, plan), &arena));
    plim__load_builder_t *builder = plim__arena_carve(&arena, 1, sizeof *builder, 1);
    builder->window_steps = steps_of(info, plan);
    builder->num_entries = entries_of(info, plan);
    builder->entries = plim__arena_carve(&arena, (size_t)builder->num_entries, sizeof(int64_t), 1);
    builder->num_seeds = graph_nodes_of(info, plan);
    builder->seeds = builder->entries;
    if (info->num_graphs > 0)
        builder->seeds = plim__arena_carve(&arena, (size_t)builder->num_seeds, sizeof(int64_t), 1);
    builder->bounds =
        plim__arena_carve(&arena, (size_t)builder->window_steps + 1, sizeof(int64_t), 1);
    pthread_cond_init(&builder->wake, NULL);
    pthread_cond_init(&builder->idle, NULL);
    builder->arena = arena;
    loader->builder = builder;
    for (int i = 0; i < PLIM__LOAD_WINDOWS; i++)
        PLIM_TRY(plim__load_window_create(&loader->job, &loader->params.window,
                                          loader->base.topology,
                                          loader->params.window.rows > 0 ? loader->base.rows : NULL,
                                          &builder->windows[i].window));
    PLIM_TRY(plim__thread_start(&builder->thread, builder_body, loader, NULL));
    builder->started = true;
    return PLIM_OK;
}

void plim__load_builder_destroy(plim_loader_t *loader)
{
    plim__load_builder_t *builder = loader->builder;
    if (builder == NULL)
        return;
    if (builder->started) {
        pthread_mutex_lock(&loader->lock);
        pthread_cond_signal(&builder->wake);
        pthread_mutex_unlock(&loader->lock);
        (void)plim__thread_join(&builder->thread);
    }
    for (int i = 0; i < PLIM__LOAD_WINDOWS; i++)
        plim__load_window_destroy(builder->windows[i].window);
    pthread_cond_destroy(&builder->wake);
    pthread_cond_destroy(&builder->idle);
    plim__arena_destroy(&builder->arena);
}
