#include "plan/load_plan.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "load/loader.h"
#include "load/loader_params.h"
#include "load/slots.h"
#include "mem/arena.h"
#include "mem/headroom.h"
#include "sample/blocks.h"

#include <string.h>

#define MIB ((int64_t)1 << 20)

/* A process larger than the nominal one is counted in steps of this. */
#define FIXED_STEP ((size_t)8 << 20)

int64_t plim__whole_mib(int64_t bytes)
{
    return bytes / MIB + (bytes % MIB != 0);
}

plim__load_size_t plim__load_expected(const plim__load_facts_t *facts, int64_t num_seeds)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(facts->dataset);
    const plim_dataset_info_t *info = &manifest->info;
    if (info->num_graphs > 0) {
        double share = (double)num_seeds / (double)info->num_graphs;
        int64_t nodes = (int64_t)(share * (double)info->num_nodes) + 1;
        return (plim__load_size_t){nodes, nodes + (int64_t)(share * (double)info->num_edges) + 1};
    }
    plim__load_size_t size = facts->probe.count > 1
                                 ? plim__load_size_probed(&facts->probe, num_seeds)
                                 : plim__load_size_expected(manifest, facts->recipe, num_seeds);
    if (!facts->recipe->disjoint)
        size.nodes = plim__min_i64(size.nodes, info->num_nodes);
    return size;
}

plim__load_size_t plim__load_most(const plim__load_facts_t *facts, int64_t num_seeds)
{
    const plim_dataset_info_t *info = plim_dataset_info(facts->dataset);
    const plim__load_size_t *graph = &facts->largest;
    plim__load_size_t size;
    if (info->num_graphs > 0) {
        const int64_t nodes = plim__mul_saturating_i64(graph->nodes, num_seeds);
        const int64_t edges = plim__mul_saturating_i64(graph->nodes + graph->edges, num_seeds);
        size.nodes = plim__max_i64(plim__min_i64(nodes, info->num_nodes), 1);
        size.edges = plim__min_i64(edges, info->num_nodes + info->num_edges) + 1;
        return size;
    }
    const plim__blocks_params_t params = plim__load_blocks(info, facts->recipe);
    plim__blocks_bound(&params, info->num_nodes, info->num_edges, info->max_degree, num_seeds,
                       &size.nodes, &size.edges);
    return size;
}

int64_t plim__plan_fixed(const plim_job_t *job, int64_t released)
{
    plim_ledger_t *ledger = job->ledger;
    const int64_t nominal = PLIM__NOMINAL_PROCESS +
                            (int64_t)plim__round_up((size_t)job->core->transport.bytes, FIXED_STEP);
    plim_account_info_t infos[PLIM__PLAN_ACCOUNTS];
    const int64_t all = plim__ledger_reserved(ledger) - plim__ledger_reserve_bytes(ledger);
    const int count = plim__ledger_accounts(ledger, PLIM__PLAN_ACCOUNTS, infos);
    int64_t others = 0;
    for (int i = 0; i < count && i < PLIM__PLAN_ACCOUNTS; i++)
        if (strcmp(infos[i].name, "other processes") == 0)
            others = infos[i].reserved;
    const int64_t own = (int64_t)plim__round_up((size_t)(all - others - released), FIXED_STEP);
    return plim__max_i64(own, nominal) + others;
}

int64_t plim__load_line(const plim_job_t *job, const plim_plan_params_t *params)
{
    const int64_t line = plim__ledger_line(job->ledger);
    return params->memory > 0 ? plim__min_i64(line, params->memory) : line;
}

bool plim__load_may_read(const plim__load_facts_t *facts)
{
    return !facts->client->quiet && !facts->params->no_reading;
}

plim__load_facts_t plim__load_cut_at(const plim__load_facts_t *facts, int64_t seeds)
{
    plim__load_facts_t parts = *facts;
    parts.part_seeds = seeds;
    parts.most = plim__load_most(facts, seeds);
    return parts;
}

static plim_status_t check_recipe(const plim_dataset_t *dataset, const plim_recipe_t *recipe,
                                  const plim_plan_params_t *params,
                                  const plim__load_client_t *client)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    PLIM_TRY(plim__load_recipe_check(dataset, recipe));
    if (info->num_split[PLIM_TRAIN] == 0 && params->num_streams == 0 && client->old == NULL)
        return plim__fail(PLIM_ERR_USAGE, "%s: it has no training split, so there are no batches",
                          plim__dataset_path(dataset));
    return PLIM_OK;
}

static plim_status_t check_params(const plim_plan_params_t *params)
{
    const struct {
        const char *name;
        int64_t value, minimum, most;
    } given[] = {
        {"memory", params->memory, 0, INT64_MAX},
        {"num_slots", params->num_slots, 0, PLIM__LOAD_SLOTS_MAX},
        {"window", params->window, 0, INT64_MAX},
        {"part_nodes", params->part_nodes, 0, INT64_MAX},
        {"part_edges", params->part_edges, 0, INT64_MAX},
        {"topology", params->topology, 0, 2},
        {"rows", params->rows, 0, 2},
        {"row_cache", params->row_cache, PLIM_CACHE_NONE, INT64_MAX},
        {"list_cache", params->list_cache, PLIM_CACHE_NONE, INT64_MAX},
    };
    plim__load_plan_t plan;
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++)
        if (given[i].value < given[i].minimum || given[i].value > given[i].most)
            return plim__fail(PLIM_ERR_USAGE,
                              "%s is %lld; it must be between %lld and %lld (0 = chosen "
                              "automatically)",
                              given[i].name, (long long)given[i].value, (long long)given[i].minimum,
                              (long long)given[i].most);
    if (params->num_streams < 0 || (params->num_streams > 0 && params->streams == NULL))
        return plim__fail(PLIM_ERR_USAGE, "num_streams is %d, but streams is %s",
                          params->num_streams, params->streams == NULL ? "NULL" : "given");
    if (params->scratch != NULL && strlen(params->scratch) >= sizeof plan.scratch)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: the path of a scratch directory must be shorter than %zu bytes",
                          params->scratch, sizeof plan.scratch);
    return PLIM_OK;
}

/* The larger of two fan-outs, PLIM_FANOUT_ALL being the largest. */
static int64_t wider(int64_t a, int64_t b)
{
    return a < 0 || b < 0 ? -1 : plim__max_i64(a, b);
}

/* Adds a stream of `seeds` seeds; one whose batches come in parts is not the largest. */
static void add_stream(const plim__manifest_t *manifest, const plim_recipe_t *recipe, int64_t seeds,
                       bool parts, plim__load_streams_t *streams)
{
    plim_recipe_t *envelope = &streams->envelope;
    const int64_t batch = plim__min_i64(recipe->batch_size, seeds);
    const int64_t largest = plim__min_i64(streams->largest.batch_size, streams->most_seeds);
    if (!parts && plim__load_size_expected(manifest, recipe, batch).nodes >
                      plim__load_size_expected(manifest, &streams->largest, largest).nodes)
        streams->largest = *recipe;
    envelope->batch_size = plim__max_i64(envelope->batch_size, recipe->batch_size);
    for (int i = 0; i < recipe->num_hops; i++)
        envelope->fanout[i] = i < envelope->num_hops ? wider(envelope->fanout[i], recipe->fanout[i])
                                                     : recipe->fanout[i];
    envelope->num_hops =
        envelope->num_hops > recipe->num_hops ? envelope->num_hops : recipe->num_hops;
    streams->most_seeds = plim__max_i64(streams->most_seeds, seeds);
}

/* The streams besides those over the splits. */
static int count_streams(const plim_plan_params_t *params, const plim__load_client_t *client)
{
    return params->num_streams + (client->evaluation != NULL);
}

/* The index-th of them: params->streams, then the client's. */
static plim_status_t stream_at(const plim_plan_params_t *params, const plim__load_client_t *client,
                               int index, plim_stream_params_t *stream_out)
{
    if (index == params->num_streams)
        return plim__load_stream_params(client->evaluation, stream_out);
    const char *at = (const char *)params->streams + (size_t)index * params->streams->size;
    return plim__load_stream_params((const plim_stream_params_t *)(const void *)at, stream_out);
}

/* The three splits as the recipe says, or the streams of the loader that is remade,
 * params->streams, and the client's. */
static plim_status_t find_streams(const plim_job_t *job, const plim_dataset_t *dataset,
                                  const plim_recipe_t *recipe, const plim_plan_params_t *params,
                                  const plim__load_client_t *client, plim__load_streams_t *streams)
{
    const plim__load_remade_t *remade = client->remade;
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    size_t bytes = 0, work = 0;
    *streams = (plim__load_streams_t){
        .envelope = *recipe, .largest = *recipe, .most_seeds = plim__load_largest_split(info)};
    if (remade != NULL) {
        streams->envelope = streams->largest = *plim__load_envelope(client->old);
        streams->most_seeds = plim__load_most_seeds(info, client->old);
        bytes = (size_t)remade->list_bytes;
        streams->links = client->old->links;
        streams->looks_up = client->old->looks_up;
    }
    for (int i = 0; i < count_streams(params, client); i++) {
        plim_stream_params_t stream;
        PLIM_TRY(stream_at(params, client, i, &stream));
        const bool list = stream.num_nodes > 0;
        plim_links_t links;
        PLIM_TRY(plim__load_stream_links(info, recipe, &stream, &links));
        if (stream.num_nodes < 0 || stream.split < PLIM_TRAIN || stream.split > PLIM_TEST)
            return plim__fail(PLIM_ERR_USAGE,
                              "stream %d: split %d does not exist, or its list has %lld nodes", i,
                              (int)stream.split, (long long)stream.num_nodes);
        plim_recipe_t own = plim__load_stream_recipe(recipe, &stream);
        own.batch_size = plim__load_share_size(&stream, own.batch_size);
        const int64_t seeds =
            plim__load_stream_seeds(recipe, &stream, info->num_split[stream.split]);
        PLIM_TRY(plim__load_recipe_check(dataset, &own));
        add_stream(plim__dataset_manifest(dataset), &own, seeds, i == params->num_streams, streams);
        if (links.num_pairs > 0) {
            if (params->part_seeds > 0 && params->part_seeds < own.batch_size)
                return plim__fail(PLIM_ERR_USAGE, "batches of links cannot come in parts; leave "
                                                  "out `microbatch`");
            streams->links = true;
            streams->looks_up |= plim__negatives_look(&links, recipe);
            bytes = plim__add_saturating_size(bytes, plim__seeds_links_stays(job, dataset, &links,
                                                                             stream.shuffle,
                                                                             stream.times != NULL));
            continue;
        }
        if (!list && !plim__load_stream_reorders(recipe, &stream))
            continue;
        bytes = plim__add_saturating_size(
            bytes, plim__seeds_list_stays(dataset, seeds, stream.shuffle, stream.times != NULL));
        const size_t once = plim__seeds_list_work(job, dataset, seeds);
        work = once > work ? once : work;
    }
    streams->list_bytes = plim__cost_pages(plim__add_saturating_size(bytes, work));
    return PLIM_OK;
}

plim_status_t plim__load_bounds_find(plim__load_facts_t *facts)
{
    const plim_dataset_info_t *info = plim_dataset_info(facts->dataset);
    const bool whole = facts->recipe->form == PLIM_PYG || facts->streams->links ||
                       facts->client->cut_by == PLIM__CUT_NEVER;
    if (info->num_graphs > 0)
        PLIM_TRY(plim__statistics_largest(facts->job, facts->dataset, plim__load_may_read(facts),
                                          &facts->largest.nodes, &facts->largest.edges,
                                          &facts->largest_guessed));
    facts->most = plim__load_most(facts, facts->part_seeds);
    facts->one = whole ? facts->most : plim__load_most(facts, 1);
    if (facts->counted) /* unless measured, seeds that draw nothing */
        facts->one = facts->probe.count > 0
                         ? plim__load_expected(facts, facts->part_seeds)
                         : (plim__load_size_t){facts->part_seeds,
                                               facts->part_seeds + facts->recipe->num_hops};
    for (int i = 0; i < count_streams(facts->params, facts->client) && !facts->counted; i++) {
        plim_stream_params_t stream;
        PLIM_TRY(stream_at(facts->params, facts->client, i, &stream));
        plim_recipe_t own = plim__load_stream_recipe(facts->recipe, &stream);
        own.batch_size = plim__load_share_size(&stream, own.batch_size);
        const bool cut = !whole || i == facts->params->num_streams;
        plim__load_facts_t other = *facts;
        other.recipe = &own;
        const plim__load_size_t size = plim__load_most(&other, cut ? 1 : own.batch_size);
        facts->one.nodes = plim__max_i64(facts->one.nodes, size.nodes);
        facts->one.edges = plim__max_i64(facts->one.edges, size.edges);
    }
    facts->one.nodes = plim__max_i64(facts->one.nodes, facts->slot.nodes);
    facts->one.edges = plim__max_i64(facts->one.edges, facts->slot.edges);
    return PLIM_OK;
}

plim_status_t plim__load_facts_find(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim_recipe_t *recipe, const plim_plan_params_t *params,
                                    const plim__load_client_t *client,
                                    plim__load_streams_t *streams_out,
                                    plim__load_facts_t *facts_out)
{
    PLIM_TRY(check_recipe(dataset, recipe, params, client));
    PLIM_TRY(check_params(params));
    PLIM_TRY(find_streams(job, dataset, recipe, params, client, streams_out));
    PLIM_TRY(plim__load_cut_check(&streams_out->envelope, params->part_seeds));
    const int64_t batch = plim__min_i64(streams_out->largest.batch_size, streams_out->most_seeds);
    *facts_out = (plim__load_facts_t){
        .job = job,
        .dataset = dataset,
        .recipe = &streams_out->largest,
        .streams = streams_out,
        .params = params,
        .client = client,
        .line = plim__load_line(job, params),
        .fixed = plim__plan_fixed(job, client->remade != NULL ? client->remade->bytes : 0),
        .epoch_seeds = streams_out->most_seeds,
        .batch_seeds = batch,
        .part_seeds = params->part_seeds > 0 ? plim__min_i64(batch, params->part_seeds) : batch,
        .counted = client->old != NULL && client->old->counted};
    return plim__load_bounds_find(facts_out);
}
