/*
 * Do batches of links hold the edges of their own pairs? Draws batches whose pairs are the edges of
 * a small dataset, and counts the target edges, from the source of a pair of the batch to its
 * target or back, that their edge_index has.
 *
 *     cmake --build --preset release --target bench_leakage
 *     build/release/bench_leakage DIRECTORY BATCHES PAIRS [disjoint]
 *
 * Batches of PAIRS pairs and as many negatives, with a fan-out of 5,5, shuffled; at most 16,384
 * nodes. Without and with exclude = PLIM_EXCLUDE_REVERSES, a tenth of the batches without. Prints
 * one JSON object.
 */
#include <plimsoll/plimsoll.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES_MOST 16384

typedef struct bench {
    plim_job_t *job;
    plim_dataset_t *dataset;
    plim_loader_t *loader;
    bool *targets; /* (num_nodes, num_nodes) of the batch's pairs, both ways */
    int64_t num_nodes;
    plim_links_t links;
    plim_stream_params_t params;
    bool disjoint;
    int64_t batches, edges, found;
} bench_t;

static void mark(const bench_t *bench, const plim_batch_t *batch, bool value)
{
    const int32_t *nodes = batch->nodes;
    const int64_t *targets = batch->pair_index + batch->num_pairs + batch->num_negatives;
    for (int64_t i = 0; i < batch->num_pairs; i++) {
        const int64_t source = nodes[batch->pair_index[i]], target = nodes[targets[i]];
        bench->targets[source * bench->num_nodes + target] = value;
        bench->targets[target * bench->num_nodes + source] = value;
    }
}

static void count(bench_t *bench, const plim_batch_t *batch)
{
    const int32_t *nodes = batch->nodes, *sources = batch->edge_index;
    int64_t edges = 0;
    for (int i = 0; i < batch->num_blocks; i++)
        edges += batch->blocks[i].num_edges;
    mark(bench, batch, true);
    for (int64_t i = 0; i < edges; i++)
        bench->found +=
            bench->targets[nodes[sources[i]] * bench->num_nodes + nodes[sources[edges + i]]];
    mark(bench, batch, false);
    bench->batches++;
    bench->edges += edges;
}

/* Draws so many batches, epoch by epoch. */
static plim_status_t draw(bench_t *bench, int64_t batches, plim_exclude_t exclude)
{
    plim_stream_t *stream;
    bench->links.exclude = exclude;
    plim_status_t status = plim_loader_stream(bench->loader, &bench->params, &stream);
    if (status != PLIM_OK)
        return status;
    bench->batches = bench->edges = bench->found = 0;
    for (int64_t epoch = 0; status == PLIM_OK && bench->batches < batches; epoch++) {
        plim_batch_t *batch;
        status = plim_stream_start(stream, epoch, 0);
        while (status == PLIM_OK && bench->batches < batches) {
            status = plim_stream_next(stream, -1, &batch);
            if (status != PLIM_OK || batch == NULL)
                break;
            count(bench, batch);
            plim_batch_release(batch);
        }
    }
    plim_stream_release(stream);
    (void)printf("%s\"%s\": {\"batches\": %" PRId64 ", \"edges\": %" PRId64
                 ", \"target_edges\": %" PRId64 "}",
                 exclude == PLIM_EXCLUDE_NONE ? "{" : ", ",
                 exclude == PLIM_EXCLUDE_NONE ? "kept" : "excluded", bench->batches, bench->edges,
                 bench->found);
    return status;
}

static plim_status_t set_up(bench_t *bench, const char *path, int64_t pairs)
{
    const plim_links_t links = PLIM_LINKS_INIT;
    const plim_stream_params_t stream = PLIM_STREAM_PARAMS_INIT;
    plim_job_params_t job = PLIM_JOB_PARAMS_INIT;
    plim_recipe_t recipe = PLIM_RECIPE_INIT;
    plim_plan_params_t wanted = PLIM_PLAN_PARAMS_INIT;
    plim_plan_t *plan = NULL;
    recipe.form = PLIM_PYG;
    recipe.edge_index = true;
    recipe.no_features = true;
    recipe.disjoint = bench->disjoint;
    recipe.fanout[0] = recipe.fanout[1] = 5;
    plim_status_t status = plim_job_create(&job, &bench->job);
    if (status == PLIM_OK)
        status = plim_dataset_open(bench->job, path, &bench->dataset);
    if (status != PLIM_OK)
        return status;
    bench->links = links;
    bench->links.all_edges = true;
    bench->links.num_pairs = plim_dataset_info(bench->dataset)->num_edges;
    bench->links.negatives = PLIM_NEGATIVE_PAIRS;
    bench->params = stream;
    bench->params.links = &bench->links;
    bench->params.batch_size = pairs;
    wanted.streams = &bench->params;
    wanted.num_streams = 1;
    status = plim_load_plan(bench->job, bench->dataset, &recipe, &wanted, &plan);
    if (status == PLIM_OK)
        status = plim_loader_create(bench->job, bench->dataset, plan, &bench->loader);
    plim_plan_release(plan);
    if (status == PLIM_OK)
        bench->num_nodes = plim_dataset_info(bench->dataset)->num_nodes;
    return status;
}

int main(int argc, char **argv)
{
    bench_t bench = {.disjoint = argc > 4 && strcmp(argv[4], "disjoint") == 0};
    const int64_t batches = argc > 3 ? strtoll(argv[2], NULL, 10) : 0;
    const int64_t pairs = argc > 3 ? strtoll(argv[3], NULL, 10) : 0;
    if (batches < 1 || pairs < 1) {
        (void)fprintf(stderr, "usage: bench_leakage DIRECTORY BATCHES PAIRS [disjoint]\n");
        return 2;
    }
    plim_status_t status = set_up(&bench, argv[1], pairs);
    if (status == PLIM_OK && bench.num_nodes > NODES_MOST)
        status = PLIM_ERR_UNSUPPORTED;
    if (status == PLIM_OK)
        bench.targets = calloc((size_t)(bench.num_nodes * bench.num_nodes), sizeof(bool));
    if (status == PLIM_OK && bench.targets == NULL)
        status = PLIM_ERR_NOMEM;
    if (status == PLIM_OK)
        status = draw(&bench, (batches + 9) / 10, PLIM_EXCLUDE_NONE);
    if (status == PLIM_OK)
        status = draw(&bench, batches, PLIM_EXCLUDE_REVERSES);
    (void)printf("}\n");
    if (status != PLIM_OK)
        (void)fprintf(stderr, "%s\n", plim_last_error());
    free(bench.targets);
    plim_loader_release(bench.loader);
    plim_dataset_release(bench.dataset);
    plim_job_release(bench.job);
    return status == PLIM_OK ? 0 : 1;
}
