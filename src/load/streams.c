/*
 * Streams: adding one to a loader, starting it, giving it other seeds. Where a stream needs larger
 * slots than the loader has, the plan is made again for it, and the loader by the new plan.
 */
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/process.h"
#include "load/loader.h"

#include <stdio.h>
#include <string.h>

#define MARGIN_PART 16 /* slots are larger than counted batches by 1/16: other epochs differ */

/* Upper bounds for batches of `seeds` seeds, `repeats` of which repeat others. */
static plim__load_size_t bound(const plim_loader_t *loader, int num_hops, const int64_t *fanout,
                               int64_t seeds, int64_t repeats)
{
    const plim_dataset_info_t *info = loader->context.info;
    plim__blocks_params_t blocks = plim__load_blocks(info, &loader->context.plan.recipe);
    plim__load_size_t size;
    blocks.num_hops = num_hops;
    blocks.repeats = repeats;
    memcpy(blocks.fanout, fanout, sizeof blocks.fanout);
    plim__blocks_bound(&blocks, info->num_nodes, info->num_edges, info->max_degree, seeds,
                       &size.nodes, &size.edges);
    return size;
}

plim__load_size_t plim__loader_bound(const plim_loader_t *loader, int num_hops,
                                     const int64_t *fanout, int64_t seeds)
{
    return bound(loader, num_hops, fanout, seeds, 0);
}

static bool is_held(const plim_loader_t *loader, plim__load_size_t size)
{
    const plim__load_plan_t *plan = &loader->context.plan;
    return size.nodes <= plan->slot_nodes && size.edges <= plan->slot_edges;
}

/* Whether a slot holds any batch of `seeds` distinct seeds. */
static bool is_bounded(const plim_loader_t *loader, int num_hops, const int64_t *fanout,
                       int64_t seeds)
{
    return is_held(loader, plim__loader_bound(loader, num_hops, fanout, seeds));
}

static int64_t largest_share(const plim_stream_t *stream)
{
    return (stream->whole_size - 1) / stream->num_shares + 1;
}

/* Whether a slot holds any batch of a stream, or any share of links; the bound of batches, which is
 * what a slot must hold where only the list's repeated entries do not fit. Those are counted where
 * that decides. */
static bool is_stream_bounded(const plim_stream_t *stream, plim__load_size_t *bound_out)
{
    const plim_loader_t *loader = stream->loader;
    const bool links = stream->own != NULL && plim__seeds_links(stream->own) != NULL;
    const bool list = stream->own != NULL && !links;
    const int64_t most = links ? largest_share(stream) : stream->batch_size;
    const int64_t seeds = plim__min_i64(most, plim__stream_count(stream));
    const plim__load_size_t distinct = bound(loader, stream->num_hops, stream->fanout, seeds, 0);
    int64_t repeats = list ? seeds : 0;
    *bound_out = bound(loader, stream->num_hops, stream->fanout, seeds, repeats);
    if (!list || !is_held(loader, distinct) || is_held(loader, *bound_out))
        return is_held(loader, *bound_out);
    repeats = plim__seeds_repeats(stream->own, loader->context.info->num_nodes);
    *bound_out =
        bound(loader, stream->num_hops, stream->fanout, seeds, plim__min_i64(repeats, seeds));
    return is_held(loader, *bound_out);
}

/* A batch, or each of its shares, is cut into microbatches of the planned size. Batches that were
 * not planned are cut into microbatches that fit a slot. */
static int64_t microbatch_seeds(const plim__load_context_t *context, const plim_stream_t *stream)
{
    const int64_t most = context->params.part_seeds;
    int64_t part = largest_share(stream);
    if (context->plan.part_seeds > 0)
        part = plim__min_i64(part, context->plan.part_seeds);
    part = plim__min_i64(part, plim__stream_count(stream)) > most ? most : part;
    return plim__max_i64(part, 1); /* also of empty shares */
}

/* Sets up a stream over a split of seeds. */
static void set_stream(plim_loader_t *loader, plim_stream_t *stream, const plim_recipe_t *recipe,
                       plim__seeds_t *own, plim_split_t split, bool shuffled)
{
    const plim_recipe_t drawn = plim__load_recipe(loader->context.info, recipe);
    *stream = (plim_stream_t){.process = loader->process,
                              .loader = loader,
                              .seeds = own != NULL ? own : loader->context.seeds,
                              .own = own,
                              .split = split,
                              .shuffled = shuffled,
                              .whole_size = drawn.batch_size,
                              .batch_size = drawn.batch_size,
                              .share_count = 1,
                              .num_shares = 1,
                              .draw_seed = drawn.seed,
                              .num_hops = drawn.num_hops,
                              .counted_epoch = -1,
                              .end_step = INT64_MAX};
    memcpy(stream->fanout, drawn.fanout, sizeof stream->fanout);
    stream->microbatch_seeds = microbatch_seeds(&loader->context, stream);
    atomic_init(&stream->references, 1);
}

/* Whether slots, workers and windows are large enough for the minimum of such batches. */
static bool has_room(const plim_loader_t *loader, const plim_recipe_t *recipe, int64_t seeds,
                     const plim_links_t *links)
{
    const plim__loader_params_t *params = &loader->context.params;
    const plim_dataset_info_t *info = loader->context.info;
    if (info->num_graphs > 0)
        return true;
    const bool whole = recipe->form == PLIM_PYG || links->num_pairs > 0;
    seeds = whole ? plim__min_i64(recipe->batch_size, seeds) : 1;
    return (loader->context.plan.links || links->num_pairs == 0) &&
           (loader->context.plan.looks_up || !plim__negatives_look(links, recipe)) &&
           recipe->num_hops <= params->blocks.num_hops && seeds <= params->part_seeds &&
           plim__load_most_drawn(recipe, info->max_degree) <= params->most_drawn &&
           (loader->context.plan.counted ||
            is_bounded(loader, recipe->num_hops, recipe->fanout, seeds));
}

/* Creates the seeds of a stream that does not use the loader's. */
static plim_status_t make_seeds(plim_loader_t *loader, const plim_stream_params_t *params,
                                const plim_links_t *links, const plim_recipe_t *recipe,
                                plim__seeds_t **seeds_out)
{
    const int64_t *nodes = params->nodes;
    int64_t count = params->num_nodes;
    *seeds_out = NULL;
    if (links->num_pairs > 0)
        return plim__seeds_create_links(
            loader->context.asked, loader->context.dataset, recipe->seed, links, params->times,
            plim__links_pairs(links, recipe->batch_size / params->num_shares), params->shuffle,
            recipe->disjoint, seeds_out);
    if (nodes == NULL && count == 0 && !params->no_labels &&
        !plim__load_stream_reorders(&loader->context.plan.recipe, params))
        return PLIM_OK;
    if (nodes == NULL && count == 0) {
        nodes = plim__seeds_ids(loader->context.seeds, params->split);
        count = plim__seeds_count(loader->context.seeds, params->split);
    }
    return plim__seeds_create_list(loader->context.asked, loader->context.dataset, recipe->seed,
                                   nodes, params->times, count, params->shuffle, !params->no_labels,
                                   seeds_out);
}

static plim_status_t check_stream(const plim_loader_t *loader, const plim_stream_params_t *params,
                                  const plim_recipe_t *recipe)
{
    if (params->nodes == NULL && (params->split < PLIM_TRAIN || params->split > PLIM_TEST))
        return plim__fail(PLIM_ERR_USAGE, "there is no split %d", (int)params->split);
    const plim_dataset_info_t *info = loader->context.info;
    const bool is_list = params->nodes != NULL || params->num_nodes > 0;
    const int64_t all = info->num_graphs > 0 ? info->num_graphs : info->num_nodes;
    if (params->num_nodes < 0 ||
        (params->nodes == NULL && params->num_nodes > 0 && params->num_nodes != all))
        return plim__fail(PLIM_ERR_USAGE, "a list of %lld seeds%s", (long long)params->num_nodes,
                          params->nodes == NULL ? ", but no nodes are given" : "");
    const bool links = params->links != NULL;
    if (params->times != NULL && ((!is_list && !links) || !plim__load_by_time(recipe)))
        return plim__fail(PLIM_ERR_USAGE, "times of seeds are for `nodes` or `links`, where "
                                          "edge_time or node_time decides");
    if (params->times == NULL && ((recipe->draw_by == PLIM_EDGE_TIME && !recipe->own_times) ||
                                  (links && plim__load_by_time(recipe))))
        return plim__fail(PLIM_ERR_USAGE, "draws by %s need a time of each %s",
                          recipe->draw_by == PLIM_EDGE_TIME ? "edge_time" : "node_time",
                          links ? "pair" : "seed");
    return plim__load_recipe_check(loader->context.dataset, recipe);
}

/* Restricts a stream to its shares of each batch, some of them empty where a batch has fewer
 * seeds. */
static plim_status_t set_share(plim_stream_t *stream, const plim_stream_params_t *params)
{
    const int64_t size = stream->whole_size;
    if (params->share < 0 || params->share_count < 1 ||
        params->share > params->num_shares - params->share_count)
        return plim__fail(PLIM_ERR_USAGE,
                          "%lld of %d shares, from share %d on: they are numbered from 0",
                          (long long)params->share_count, params->num_shares, params->share);
    stream->share = params->share;
    stream->share_count = (int)params->share_count;
    stream->num_shares = params->num_shares;
    stream->batch_size =
        plim__share_first(size, stream->num_shares, stream->share + stream->share_count) -
        plim__share_first(size, stream->num_shares, stream->share);
    stream->microbatch_seeds = microbatch_seeds(&stream->loader->context, stream);
    return PLIM_OK;
}

/* Adds a stream to the loader as it is: PLIM_ERR_BUDGET when it is too small. */
static plim_status_t add_stream(plim_loader_t *loader, const plim_stream_params_t *params,
                                plim_stream_t **stream_out)
{
    plim_links_t links;
    PLIM_TRY(plim__load_stream_links(loader->context.info, &loader->context.plan.recipe, params,
                                     &links));
    if (links.num_pairs > 0 && links.path == NULL && !links.all_edges &&
        (links.sources == NULL || links.targets == NULL))
        return plim__fail(PLIM_ERR_USAGE, "%lld links, but no nodes are given",
                          (long long)links.num_pairs);
    const plim_recipe_t recipe = plim__load_stream_recipe(&loader->context.plan.recipe, params);
    plim__seeds_t *own;
    int place = 0;
    PLIM_TRY(check_stream(loader, params, &recipe));
    while (place < PLIM_STREAMS_MAX && atomic_load(&loader->streams[place].references) > 0)
        place++;
    if (place == PLIM_STREAMS_MAX)
        return plim__fail(PLIM_ERR_USAGE, "a loader has at most %d streams; release one",
                          PLIM_STREAMS_MAX);
    const int64_t seeds =
        plim__load_stream_seeds(&loader->context.plan.recipe, params,
                                plim__seeds_count(loader->context.seeds, params->split));
    plim_recipe_t delivered = recipe; /* its shares of each batch */
    delivered.batch_size = plim__load_share_size(params, recipe.batch_size);
    if (!has_room(loader, &delivered, seeds, &links))
        return plim__fail(PLIM_ERR_BUDGET, "the stream draws more than the loader was planned for");
    PLIM_TRY(make_seeds(loader, params, &links, &recipe, &own));
    set_stream(loader, &loader->streams[place], &recipe, own,
               own != NULL ? PLIM_TRAIN : params->split, params->shuffle);
    const plim_status_t status = set_share(&loader->streams[place], params);
    if (status != PLIM_OK) {
        plim__seeds_destroy(own);
        atomic_store(&loader->streams[place].references, 0);
        return status;
    }
    atomic_fetch_add_explicit(&loader->references, 1, memory_order_relaxed);
    *stream_out = &loader->streams[place];
    return PLIM_OK;
}

/* Bytes of the planned lists of seeds that no stream has taken. */
static int64_t lists_to_come(const plim_loader_t *loader)
{
    int64_t bytes = loader->context.plan.list_bytes;
    for (int i = 0; i < PLIM_STREAMS_MAX; i++) {
        const plim_stream_t *stream = &loader->streams[i];
        if (atomic_load(&stream->references) > 0 && stream->own != NULL)
            bytes -= plim__cost_pages(
                plim__seeds_own_stays(loader->context.asked, loader->context.dataset, stream->own));
    }
    return plim__max_i64(bytes, 0);
}

/* Plans the loader again; it still has its memory. */
static plim_status_t plan_again(const plim_loader_t *loader, plim__load_remade_t *remade,
                                plim__load_plan_t *plan_out)
{
    const plim__load_plan_t *plan = &loader->context.plan;
    remade->held = plim__loader_is_held(loader); /* a batch keeps the slots */
    remade->bytes = loader->bytes - (remade->held ? (int64_t)loader->slots->arena.size : 0);
    remade->list_bytes = lists_to_come(loader);
    return plan->again(loader->context.asked, loader->context.dataset, plan, remade, plan_out);
}

PLIM_API plim_status_t plim_loader_stream(plim_loader_t *loader, const plim_stream_params_t *given,
                                          plim_stream_t **stream_out)
{
    plim_stream_params_t params;
    plim__load_plan_t plan;
    PLIM_TRY(plim__process_check(loader->process));
    PLIM_ENTER(loader->context.asked);
    PLIM_TRY(plim__loader_check(loader));
    PLIM_TRY(plim__load_stream_params(given, &params));
    const plim_status_t status = add_stream(loader, &params, stream_out);
    const plim__load_plan_t *old = &loader->context.plan;
    if (status != PLIM_ERR_BUDGET)
        return status;
    const plim__load_size_t slot = {old->slot_nodes, old->slot_edges};
    plim__load_remade_t remade = {
        .stream = &params, .num_ways = 2, .ways = {{old->num_slots, slot}, {0, slot}}};
    PLIM_TRY(plan_again(loader, &remade, &plan));
    plim__log(loader->context.asked, PLIM_LOG_INFO,
              "the loader is remade for a stream that is larger than planned");
    PLIM_TRY(plim__loader_remake(loader, &plan));
    return add_stream(loader, &params, stream_out);
}

/*
 * Makes slots for batches of that size, out of the caches. Slots become fewer where memory is
 * scarce, but two of them stay two: a caller may hold a batch while it asks for the next.
 */
static plim_status_t enlarge_slots(plim_loader_t *loader, int64_t epoch,
                                   const plim__load_size_t *largest)
{
    const plim__load_plan_t *old = &loader->context.plan;
    const plim__load_size_t exact = {plim__max_i64(old->slot_nodes, largest->nodes),
                                     plim__max_i64(old->slot_edges, largest->edges)};
    const plim__load_size_t spacious = {
        plim__max_i64(old->slot_nodes, largest->nodes + largest->nodes / MARGIN_PART),
        plim__max_i64(old->slot_edges, largest->edges + largest->edges / MARGIN_PART)};
    const int many = old->num_slots, few = many < 2 ? 1 : 2;
    plim__load_plan_t plan;
    char what[128];
    (void)snprintf(what, sizeof what,
                   "epoch %lld has batches of up to %lld nodes and %lld edges, and batches",
                   (long long)epoch, (long long)largest->nodes, (long long)largest->edges);
    plim__load_remade_t remade = {
        .what = what,
        .num_ways = 4,
        .ways = {{many, spacious}, {many, exact}, {few, spacious}, {few, exact}}};
    PLIM_TRY(plan_again(loader, &remade, &plan));
    plim__log(
        loader->context.asked, PLIM_LOG_INFO,
        "epoch %lld has batches of up to %lld nodes: slots are made for %lld instead of %lld, "
        "out of the caches",
        (long long)epoch, (long long)largest->nodes, (long long)plan.slot_nodes,
        (long long)old->slot_nodes);
    return plim__loader_remake(loader, &plan);
}

/* Whether the loader is usable and has that step. */
static plim_status_t check_step(const plim_stream_t *stream, int64_t epoch, int64_t step)
{
    PLIM_TRY(plim__loader_check(stream->loader));
    const int64_t steps = plim__stream_steps(stream);
    if (epoch < 0 || step < 0 || step > steps)
        return plim__fail(PLIM_ERR_USAGE,
                          "there is no step %lld in epoch %lld: an epoch has %lld steps",
                          (long long)step, (long long)epoch, (long long)steps);
    return PLIM_OK;
}

/* Makes slots that hold the batches from that step on, which are counted where the plan says so. */
static plim_status_t make_slots_fit(plim_stream_t *stream, int64_t epoch, int64_t step)
{
    plim_loader_t *loader = stream->loader;
    const plim__load_plan_t *plan = &loader->context.plan;
    plim__load_size_t largest;
    if (plan->recipe.form != PLIM_PYG || (!plan->counted && stream->own == NULL) ||
        (stream->counted_epoch == epoch && stream->counted_step <= step) ||
        is_stream_bounded(stream, &largest))
        return PLIM_OK;
    if (plan->counted)
        PLIM_TRY(plim__stream_count_batches(stream, epoch, step, &largest));
    if (!is_held(loader, largest))
        PLIM_TRY(enlarge_slots(loader, epoch, &largest));
    stream->counted_epoch = epoch;
    stream->counted_step = step;
    return PLIM_OK;
}

PLIM_API plim_status_t plim_stream_start(plim_stream_t *stream, int64_t epoch, int64_t step)
{
    PLIM_TRY(plim__process_check(stream->process));
    PLIM_ENTER(stream->loader->context.asked);
    PLIM_TRY(check_step(stream, epoch, step));
    PLIM_TRY(make_slots_fit(stream, epoch, step));
    return plim__stream_start(stream, epoch, step);
}

PLIM_API plim_status_t plim_stream_reseed(plim_stream_t *stream, const int64_t *nodes,
                                          int64_t num_nodes)
{
    PLIM_TRY(plim__process_check(stream->process));
    PLIM_TRY(plim__loader_check(stream->loader));
    if (stream->own == NULL)
        return plim__fail(PLIM_ERR_USAGE, "the stream was not added with a list of seeds");
    plim__loader_stop(stream); /* no thread builds batches of it meanwhile */
    PLIM_TRY(plim__seeds_replace(stream->own, stream->loader->context.info, nodes, num_nodes));
    stream->started = false;
    stream->counted_epoch = -1;
    return PLIM_OK;
}

PLIM_API void plim_stream_release(plim_stream_t *stream)
{
    if (stream == NULL || !plim__process_is(stream->process) ||
        atomic_fetch_sub_explicit(&stream->references, 1, memory_order_acq_rel) != 1)
        return;
    plim__loader_stop(stream);
    plim__seeds_destroy(stream->own);
    stream->own = NULL;
    plim_loader_release(stream->loader);
}
