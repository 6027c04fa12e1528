/*
 * Generates a dataset in phases, one after the other, so that each can use all of the memory:
 *
 *     weights of all nodes ─► lists, block by block, any thread ─► CSC build ─► indptr, indices
 *     indptr, indices, read back                                ─► columns of edges
 *     rows of all nodes, in the order of ids                    ─► features, labels, splits, times
 */
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/params.h"
#include "base/threads.h"
#include "generate/generate_edges.h"
#include "generate/generate_graph.h"
#include "generate/generate_molecules.h"
#include "generate/generate_rows.h"
#include "ingest/csc.h"
#include "ingest/disk_space.h"
#include "io/own.h"
#include "mem/arena.h"
#include "store/dataset.h"

#include <plimsoll/ingest.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WRITER_BYTES ((size_t)256 << 10) /* the dataset writer and the entries of its columns */
#define LARGE_BUFFER ((size_t)4 << 20)
#define SMALL_BUFFER ((size_t)256 << 10)
#define GENERATOR 2 /* its version: another one makes other bytes of the same shape and seed */

/* Threads and buffers that fit into the available memory. */
typedef struct generate_plan {
    plim_job_t job; /* with as many threads as fit into memory */
    plim__csc_params_t csc;
    size_t buffer; /* of the columns of rows */
    size_t stacks;
} generate_plan_t;

/* Saturates. */
static size_t plan_minimum(const generate_plan_t *plan, const plim__shape_t *shape)
{
    size_t edges, sum;
    size_t rows = plim__rows_estimate(&plan->job, shape, plan->buffer);
    size_t build = plim__csc_minimum(&plan->job, &plan->csc);
    if (!plim__add_size(plim__graph_estimate(&plan->job, shape), build, &edges))
        return SIZE_MAX;
    const size_t columns = plim__edges_estimate(&plan->job, shape, plan->buffer);
    rows = rows > columns ? rows : columns;
    return plim__add_size(edges > rows ? edges : rows, plan->stacks + WRITER_BYTES, &sum)
               ? sum
               : SIZE_MAX;
}

/* Reduces threads and buffers until they fit; the result is the same. */
static plim_status_t make_plan(const plim_job_t *job, const plim__shape_t *shape, const char *tmp,
                               generate_plan_t *plan_out)
{
    generate_plan_t plan = {.job = *job, .buffer = LARGE_BUFFER};
    size_t available = (size_t)plim__max_i64(plim__ledger_available(job->ledger), 0);
    plan.csc.num_nodes = shape->num_nodes;
    plan.csc.max_edges = shape->num_edges;
    plan.csc.self_loops = PLIM_SELF_LOOPS_KEEP;
    plan.csc.tmp = tmp;
    plan.job.threads = plim__job_threads(job);
    for (;;) {
        plan.stacks = (size_t)(plan.job.threads - 1) * PLIM__STACK_BYTES;
        size_t minimum = plan_minimum(&plan, shape);
        if (minimum <= available)
            break;
        if (plan.buffer > SMALL_BUFFER)
            plan.buffer = SMALL_BUFFER;
        else if (plan.job.threads > 1)
            plan.job.threads /= 2;
        else
            return plim__ledger_refuse(job->ledger, shape->name, "generating a graph of this size",
                                       minimum);
    }
    plan.csc.memory =
        available - plim__graph_estimate(&plan.job, shape) - plan.stacks - WRITER_BYTES;
    *plan_out = plan;
    return PLIM_OK;
}

/* Shared by the workers that draw edges. */
typedef struct drawing {
    const generate_plan_t *plan;
    const plim__shape_t *shape;
    plim__graph_t *graph;
    plim__csc_t *csc;
    atomic_llong next;
    atomic_llong done;
} drawing_t;

static plim_status_t add_edges(void *context, int worker, const int64_t *source,
                               const int64_t *destination, int64_t count)
{
    drawing_t *drawing = context;
    PLIM_TRY(plim__csc_add(drawing->csc, worker, source, destination, count, NULL));
    atomic_fetch_add(&drawing->done, count);
    return PLIM_OK;
}

static plim_status_t draw_blocks(void *context, int worker)
{
    drawing_t *drawing = context;
    int64_t blocks = plim__graph_blocks(drawing->graph);
    for (;;) {
        int64_t block = atomic_fetch_add(&drawing->next, 1);
        if (block >= blocks)
            return PLIM_OK;
        PLIM_TRY(plim__job_check(&drawing->plan->job));
        PLIM_TRY(plim__graph_draw(drawing->graph, worker, block, add_edges, drawing));
        plim__progress(&drawing->plan->job, "drawing edges", "edges", atomic_load(&drawing->done),
                       drawing->shape->num_edges);
    }
}

static plim_status_t write_edges(const generate_plan_t *plan, const plim__shape_t *shape,
                                 plim__dataset_writer_t *writer, plim__csc_totals_t *totals_out)
{
    drawing_t drawing = {.plan = plan, .shape = shape};
    plim_status_t status = plim__graph_create(&plan->job, shape, &drawing.graph);
    if (status == PLIM_OK)
        status = plim__csc_create(&plan->job, &plan->csc, &drawing.csc);
    if (status == PLIM_OK)
        status = plim__parallel(plan->job.threads, draw_blocks, &drawing);
    plim__graph_destroy(drawing.graph);
    if (status == PLIM_OK)
        status = plim__csc_finish(drawing.csc, writer, totals_out);
    plim__csc_destroy(drawing.csc);
    return status;
}

static plim_status_t check_disk_space(const plim_job_t *job, const plim__shape_t *shape,
                                      const generate_plan_t *plan, const char *parent)
{
    const int64_t index_bytes = (int64_t)plim__dtype_size(plim__index_written(shape->num_nodes));
    int64_t largest, columns = plim__edges_bytes(shape, &largest);
    int64_t lists = shape->num_edges * index_bytes + (shape->num_nodes + 1) * 8;
    int64_t rows = plim__rows_bytes(shape) + columns;
    int64_t spill = plim__csc_spill_with(&plan->job, &plan->csc);
    plim__disk_space_t space = {
        .parent = parent,
        .tmp = plan->csc.tmp,
        .dataset = lists + rows + ((int64_t)1 << 20),
        .temporary = spill,
        .together = lists + plim__max_i64(rows, spill) + ((int64_t)1 << 20),
        .largest = plim__max_i64(plim__max_i64(largest, shape->num_edges * index_bytes),
                                 shape->num_nodes * shape->num_features *
                                     (int64_t)plim__feature_bytes(shape->feature_type)),
        .exact = true};
    return plim__disk_space_check(job, &space);
}

/* The provenance of the dataset; options in the command's words. */
typedef struct provenance {
    char source[64];
    char options[256];
} provenance_t;

static provenance_t origin_of(const plim__shape_t *shape, const plim_generate_options_t *options)
{
    provenance_t origin;
    (void)snprintf(origin.source, sizeof origin.source, "generate %s, generator %d", shape->name,
                   GENERATOR);
    (void)snprintf(origin.options, sizeof origin.options, "--%s %.15g --%s %.15g --%s %llu",
                   "scale", options->scale, "spread", options->spread, "seed",
                   (unsigned long long)options->seed);
    if (options->edge_columns != NULL) {
        const size_t used = strlen(origin.options);
        (void)snprintf(origin.options + used, sizeof origin.options - used, " --%s %s",
                       "edge-columns", options->edge_columns);
    }
    return origin;
}

/* Whether the target is a dataset that this user made with these options. Molecules, whose shape
 * has no counts, are compared by their options alone. */
static bool is_made(const plim_job_t *job, const plim__shape_t *shape,
                    const plim_generate_options_t *options)
{
    const provenance_t origin = origin_of(shape, options);
    plim_dataset_t *dataset;
    int directory;
    if (access(options->target, F_OK) != 0 ||
        plim__own_directory(options->target, &directory) != PLIM_OK)
        return false;
    (void)close(directory);
    if (plim_dataset_open(job, options->target, &dataset) != PLIM_OK)
        return false;
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const bool made =
        strcmp(info->source, origin.source) == 0 && strcmp(info->options, origin.options) == 0 &&
        (shape->num_nodes == 0 ||
         (info->num_nodes == shape->num_nodes && info->num_edges == shape->num_edges &&
          info->num_features == shape->num_features && info->num_classes == shape->num_classes &&
          info->feature_type == shape->feature_type));
    plim_dataset_release(dataset);
    if (made)
        plim__log(job, PLIM_LOG_INFO, "%s is there already, made with these options",
                  options->target);
    return made;
}

static plim_status_t write_dataset(const generate_plan_t *plan, const plim__shape_t *shape,
                                   const plim_generate_options_t *options,
                                   plim__dataset_writer_t *writer)
{
    const provenance_t origin = origin_of(shape, options);
    plim__csc_totals_t totals = {0};
    plim_status_t status = write_edges(plan, shape, writer, &totals);
    if (status == PLIM_OK && totals.num_edges != shape->num_edges)
        status = plim__fail(PLIM_ERR_DATA,
                            "internal error: drew %lld edges instead of %lld; please report this",
                            (long long)totals.num_edges, (long long)shape->num_edges);
    if (status == PLIM_OK)
        status = plim__edges_write(&plan->job, shape, plan->buffer, writer);
    if (status == PLIM_OK)
        status = plim__rows_write(&plan->job, shape, plan->buffer, writer);
    if (status != PLIM_OK) {
        plim__dataset_abandon(writer);
        return status;
    }
    plim__dataset_facts_t facts = {.num_nodes = shape->num_nodes,
                                   .num_classes = shape->num_classes,
                                   .num_edge_types = shape->num_edge_types,
                                   .source = origin.source,
                                   .options = origin.options};
    return plim__dataset_finish(writer, &facts);
}

/* Molecules are drawn one by one, into all columns at once. */
static plim_status_t make_molecules(const plim_job_t *job, const plim_generate_options_t *options)
{
    const plim__shape_t shape = {.name = PLIM__MOLECULES_NAME};
    const provenance_t origin = origin_of(&shape, options);
    plim__dataset_writer_t *writer;
    plim__dataset_facts_t facts = {0};
    char parent[PATH_MAX];
    int64_t bytes;
    PLIM_TRY(plim__molecules_bytes(options, &bytes));
    if (is_made(job, &shape, options))
        return PLIM_OK;
    PLIM_TRY(plim__disk_space_parent(options->target, parent));
    const plim__disk_space_t space = {
        .parent = parent, .tmp = parent, .dataset = bytes, .together = bytes, .exact = true};
    PLIM_TRY(plim__disk_space_check(job, &space));
    PLIM_TRY(plim__dataset_begin(job, options->target, &writer));
    const plim_status_t status = plim__molecules_write(job, options, writer, &facts);
    if (status != PLIM_OK) {
        plim__dataset_abandon(writer);
        return status;
    }
    facts.source = origin.source;
    facts.options = origin.options;
    return plim__dataset_finish(writer, &facts);
}

PLIM_API plim_status_t plim_generate(const plim_job_t *job, const plim_generate_options_t *options)
{
    plim__shape_t shape = {0};
    generate_plan_t plan = {0};
    char parent[PATH_MAX];
    int stacks = 0;
    plim__dataset_writer_t *writer;
    plim_generate_options_t known = PLIM_GENERATE_OPTIONS_INIT;
    PLIM_ENTER(job);
    PLIM_TRY(plim__params_take(options, "plim_generate_options_t", &known, sizeof known));
    if (known.shape == NULL || known.target == NULL)
        return plim__fail(PLIM_ERR_USAGE, "give a shape and a target directory");
    if (strcmp(known.shape, PLIM__MOLECULES_NAME) == 0)
        return make_molecules(job, &known);
    PLIM_TRY(plim__shape_resolve(&known, &shape));
    if (is_made(job, &shape, &known))
        return PLIM_OK;
    PLIM_TRY(plim__disk_space_parent(known.target, parent));
    PLIM_TRY(make_plan(job, &shape, known.tmp != NULL ? known.tmp : parent, &plan));
    PLIM_TRY(check_disk_space(job, &shape, &plan, parent));
    PLIM_TRY(plim__ledger_reserve(job->ledger, "threads", plan.stacks, &stacks));
    plim_status_t status = plim__dataset_begin(&plan.job, known.target, &writer);
    if (status == PLIM_OK) {
        if (known.tmp == NULL)
            plan.csc.tmp = plim__dataset_staging(writer);
        status = write_dataset(&plan, &shape, &known, writer);
    }
    plim__ledger_release(job->ledger, stacks, plan.stacks);
    return status;
}
