/* Creating, making again and releasing loaders. */
#include "base/check.h"
#include "base/fail.h"
#include "base/process.h"
#include "load/loader.h"
#include "store/file_check.h"

#include <unistd.h>

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim_loader_t *loader = draft;
    const plim__load_plan_t *plan = &loader->context.plan;
    const int64_t num_graphs = loader->context.info->num_graphs;
    const size_t workers = (size_t)plan->workers;
    loader->workers = plim__arena_carve(arena, workers, sizeof *loader->workers, 1);
    if (num_graphs == 0)
        return;
    loader->graph_nodes = plim__arena_carve(
        arena, workers, plim__mul_saturating_size((size_t)plan->slot_nodes, sizeof(int64_t)), 1);
    loader->context.graph_indptr =
        plim__arena_carve(arena, (size_t)num_graphs + 1, sizeof(int64_t), 1);
}

size_t plim__loader_estimate(const plim_dataset_t *dataset, const plim__load_plan_t *plan,
                             const plim__loader_params_t *params)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    plim_loader_t draft = {.context = {.info = info, .plan = *plan}};
    const size_t builder = params->windowed ? plim__window_builder_estimate(info, plan) : 0;
    return plim__add_saturating_size(plim__object_bytes(lay_out, &draft, sizeof draft), builder);
}

size_t plim__loader_threads_estimate(const plim__load_plan_t *plan,
                                     const plim__loader_params_t *params)
{
    /* The window builder's thread is one of params->builders. */
    return (size_t)(plan->workers - 1 + params->builders) * PLIM__THREAD_BYTES;
}

static plim_status_t read_graphs(plim_loader_t *loader)
{
    const plim__manifest_file_t *entry =
        plim__manifest_find(plim__dataset_manifest(loader->context.dataset), "graph_indptr.npy");
    const int64_t num_graphs = loader->context.info->num_graphs;
    int64_t *indptr = loader->context.graph_indptr;
    if (num_graphs == 0)
        return PLIM_OK;
    PLIM_TRY(plim__dataset_read_whole(loader->context.dataset, entry, indptr));
    bool right = indptr[0] == 0 && indptr[num_graphs] == loader->context.info->num_nodes;
    for (int64_t i = 0; i < num_graphs && right; i++)
        right = indptr[i] <= indptr[i + 1];
    if (!right)
        return plim__fail(PLIM_ERR_DATA,
                          "%s/graph_indptr.npy: does not ascend from 0 to the number of nodes; "
                          "make the dataset again",
                          plim__dataset_path(loader->context.dataset));
    return PLIM_OK;
}

static void take_plan(plim__load_context_t *context, const plim__load_plan_t *plan)
{
    context->plan = *plan;
    plim__loader_params_find(context->asked, context->dataset, &context->plan, &context->params);
}

/* Creates the loader without its parts. From here on it can be released. */
static plim_status_t make_loader(const plim_job_t *job, const plim_dataset_t *dataset,
                                 const plim__load_plan_t *plan, plim_loader_t **loader_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    plim_loader_t draft =
                      {.process = getpid(),
                       .made_with = *job,
                       .context = {.job = *job, .dataset = dataset, .info = info, .plan = *plan}},
                  *loader;
    PLIM_TRY(plim__object_create(job->ledger, "slots", lay_out, &draft, sizeof draft, &draft.arena,
                                 &loader));
    plim__load_context_t *context = &loader->context;
    plim_job_retain(job);
    plim_dataset_retain(dataset);
    context->asked = &loader->made_with;
    context->job.stop = &context->stop;
    take_plan(context, plan);
    for (int i = 0; i < plan->workers; i++) {
        plim__load_worker_t *worker = &loader->workers[i];
        worker->loader = loader;
        worker->number = i;
        worker->counted.step = -1;
        if (loader->graph_nodes != NULL)
            worker->nodes = loader->graph_nodes + (size_t)i * (size_t)plan->slot_nodes;
    }
    atomic_init(&loader->references, 1);
    plim__slot_ring_init(&loader->ring);
    plim__arena_touch(&loader->arena);
    *loader_out = loader;
    return PLIM_OK;
}

static plim_status_t start_workers(plim_loader_t *loader)
{
    const size_t bytes =
        plim__loader_threads_estimate(&loader->context.plan, &loader->context.params);
    PLIM_TRY(plim__ledger_reserve(loader->context.job.ledger, "threads", bytes,
                                  &loader->threads_account));
    loader->threads_bytes = bytes;
    if (loader->context.params.windowed)
        PLIM_TRY(plim__window_builder_create(&loader->context, &loader->ring, &loader->builder));
    loader->num_workers = 1;
    for (; loader->num_workers < loader->context.plan.workers; loader->num_workers++) {
        plim__load_worker_t *worker = &loader->workers[loader->num_workers];
        /* When the system allows no more threads (ulimit -u), the others build all batches. */
        if (plim__thread_start(&worker->thread, plim__loader_worker, worker) != PLIM_OK)
            break;
    }
    return PLIM_OK;
}

static plim_status_t make_scratch(plim_loader_t *loader, plim__load_worker_t *worker)
{
    const plim__load_context_t *context = &loader->context;
    plim__blocks_params_t params = context->params.blocks;
    params.skip_loops = plim__offsets_skip_loops(context->offsets);
    PLIM_TRY(plim__blocks_create(&context->job, &params, &worker->blocks));
    return context->plan.counted && params.node_bits == 0
               ? plim__block_count_create(&context->job, context->info->num_nodes,
                                          context->params.most_drawn, &worker->count)
               : PLIM_OK;
}

/* Creates all that follows from the plan's choices. */
static plim_status_t fill(plim_loader_t *loader)
{
    const plim_job_t *job = &loader->context.job;
    PLIM_TRY(plim__load_sources_open(&loader->context));
    plim__governor_open(&loader->governor, &loader->context);
    PLIM_TRY(plim__slots_create(job, &loader->context.plan, &loader->context.params,
                                plim__loader_slot_freed, loader, &loader->slots));
    for (int i = 0; i < loader->context.plan.workers; i++)
        PLIM_TRY(make_scratch(loader, &loader->workers[i]));
    for (int i = 0; i < loader->slots->num_negatives; i++) {
        plim__negatives_t *negatives = &loader->slots->negatives[i];
        negatives->lists = loader->context.lists;
        negatives->worker = loader->context.params.builders + i;
        negatives->node_time = NULL;
        negatives->earliest = -1;
        negatives->time_worker = loader->context.first_column_worker + i;
        if (loader->context.plan.recipe.draw_by == PLIM_NODE_TIME)
            negatives->node_time = loader->context.sources.columns[__builtin_ctz(PLIM_NODE_TIME)];
        loader->workers[i].negatives = negatives;
    }
    return start_workers(loader);
}

/* Ends the threads and releases what fill created, also after an error of it. */
static void empty(plim_loader_t *loader)
{
    plim__load_context_t *context = &loader->context;
    __atomic_store_n(&context->stop, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&loader->ring.lock);
    atomic_store(&loader->ring.ending, true);
    plim__condition_wake_all(&loader->ring.work);
    pthread_mutex_unlock(&loader->ring.lock);
    for (int i = 1; i < loader->num_workers; i++)
        plim__thread_join(&loader->workers[i].thread);
    loader->num_workers = 0;
    plim__window_builder_destroy(loader->builder);
    loader->builder = NULL;
    for (int i = 0; i < context->plan.workers; i++) {
        plim__blocks_destroy(loader->workers[i].blocks);
        plim__block_count_destroy(loader->workers[i].count);
        loader->workers[i].blocks = NULL;
        loader->workers[i].count = NULL;
        loader->workers[i].negatives = NULL;
    }
    const size_t slots_bytes = loader->slots != NULL ? loader->slots->arena.size : 0;
    if (!plim__slots_release(loader->slots)) /* a batch that the caller holds keeps them */
        loader->bytes -= (int64_t)slots_bytes;
    loader->slots = NULL;
    plim__governor_close(&loader->governor);
    plim__load_sources_close(context);
    if (loader->threads_bytes > 0)
        plim__ledger_release(context->job.ledger, loader->threads_account, loader->threads_bytes);
    loader->threads_bytes = 0;
    atomic_store(&loader->ring.ending, false);
    __atomic_store_n(&context->stop, 0, __ATOMIC_RELAXED);
}

static plim_status_t read_and_fill(plim_loader_t *loader)
{
    PLIM_TRY(plim__seeds_create(loader->context.asked, loader->context.dataset,
                                loader->context.plan.recipe.seed, &loader->context.seeds));
    PLIM_TRY(read_graphs(loader));
    return fill(loader);
}

static plim_status_t check_slots(const plim__load_plan_t *plan)
{
    if (plan->slot_nodes > INT32_MAX)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "batches of up to %lld nodes; at most 2^31 - 1 are possible: reduce "
                          "`batch_size` or `fanout`",
                          (long long)plan->slot_nodes);
    return PLIM_OK;
}

/* Logs that batches in PyG's form are counted. */
static void log_counted(const plim_loader_t *loader)
{
    const plim__load_plan_t *plan = &loader->context.plan;
    const plim_recipe_t *largest = plim__load_envelope(plan);
    const int64_t seeds =
        plim__min_i64(largest->batch_size, plim__load_most_seeds(loader->context.info, plan));
    if (!plan->counted)
        return;
    plim__log(
        loader->context.asked, PLIM_LOG_INFO,
        "batches of %lld could have up to %lld nodes, for which the line is too low: before "
        "each epoch its batches are drawn once to count their nodes and edges",
        (long long)seeds,
        (long long)plim__loader_bound(loader, largest->num_hops, largest->fanout, seeds).nodes);
}

plim_status_t plim__loader_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                  const plim__load_plan_t *plan, plim_loader_t **loader_out)
{
    plim_loader_t *loader;
    PLIM_TRY(plim__load_recipe_check(dataset, &plan->recipe));
    PLIM_TRY(plim__load_cut_check(plim__load_envelope(plan), plan->part_seeds));
    PLIM_TRY(check_slots(plan));
    const int64_t before = plim__ledger_thread_bytes();
    PLIM_TRY(make_loader(job, dataset, plan, &loader));
    plim_status_t status = read_and_fill(loader);
    if (status != PLIM_OK) {
        plim_loader_release(loader);
        return status;
    }
    loader->bytes = plim__ledger_thread_bytes() - before;
    log_counted(loader);
    *loader_out = loader;
    return PLIM_OK;
}

plim_status_t plim__loader_remake(plim_loader_t *loader, const plim__load_plan_t *plan)
{
    const plim__load_plan_t old = loader->context.plan;
    const int64_t before = plim__ledger_thread_bytes();
    plim__load_plan_t taken = *plan;
    /* The workers' array, and their buffers for graphs, stay as they are. */
    taken.workers = (int)plim__min_i64(plan->workers, old.workers);
    if (loader->graph_nodes != NULL)
        taken.slot_nodes = old.slot_nodes;
    PLIM_TRY(check_slots(&taken));
    plim__loader_drain(loader);
    empty(loader);
    take_plan(&loader->context, &taken);
    plim_status_t status = fill(loader);
    if (status != PLIM_OK) { /* the message of a failure that follows would replace this one */
        loader->ring.status = status;
        plim__fail_save(&loader->ring.failure);
        empty(loader);
        take_plan(&loader->context, &old);
        if (fill(loader) != PLIM_OK)
            empty(loader);
        status = plim__fail_restore(status, &loader->ring.failure);
    }
    loader->bytes += plim__ledger_thread_bytes() - before;
    return status;
}

PLIM_API plim_status_t plim_loader_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                          const plim_plan_t *plan, plim_loader_t **loader_out)
{
    PLIM_ENTER(job);
    PLIM_TRY(plim__dataset_check(dataset));
    PLIM_TRY(plim__process_check(plan->process));
    PLIM_TRY(plim__plan_check_dataset(plan, plim_dataset_info(dataset)));
    return plim__loader_create(job, dataset, &plan->numbers.load, loader_out);
}

PLIM_API void plim_loader_release(plim_loader_t *loader)
{
    if (loader == NULL || !plim__process_is(loader->process) ||
        atomic_fetch_sub_explicit(&loader->references, 1, memory_order_acq_rel) != 1)
        return;
    empty(loader);
    plim__seeds_destroy(loader->context.seeds);
    plim__slot_ring_destroy(&loader->ring);
    const plim_job_t job = loader->made_with;
    const plim_dataset_t *dataset = loader->context.dataset;
    plim__arena_t arena = loader->arena;
    plim__arena_destroy(&arena);
    plim_dataset_release(dataset);
    plim_job_release(&job);
}
