#include "generate/generate_edges.h"

#include "base/bounds.h"
#include "base/check.h"
#include "base/job.h"
#include "base/threads.h"
#include "generate/generate_noise.h"
#include "generate/generate_place.h"
#include "ingest/edge_source.h"
#include "mem/arena.h"
#include "store/dataset.h"
#include "store/manifest.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BLOCK ((int64_t)65536)        /* edges read at once, */
#define TASK ((int64_t)2048)          /* edges of a task, */
#define TASK_BYTES ((int64_t)1 << 19) /* and bytes of their features */

/* The numbers of an edge's key. */
enum { DRAW_FEATURES, DRAW_WEIGHT, DRAW_TYPE, DRAW_ANY_TYPE, DRAW_LATE, DRAW_TIME };

/* What the columns of an edge tell about its destination. */
enum { CARRIES_CLASS, CARRIES_LABEL, NUM_CARRIED };

typedef struct edges_worker {
    int64_t *source;             /* (task_edges) places */
    int64_t *destination;        /* (task_edges) places */
    int16_t *means[NUM_CARRIED]; /* (padded) */
    char *features;              /* (task_edges, row_bytes) and the padding of the last row */
    float *weights;              /* (task_edges) */
    int32_t *types;              /* (task_edges) */
    int64_t *times;              /* (task_edges) */
} edges_worker_t;

typedef struct edges {
    plim__arena_t arena;
    const plim_job_t *job;
    const plim__shape_t *shape;
    plim__noise_path_t path;
    plim__permute_t place_to_id;
    uint64_t mean_key;
    double scale; /* of a coordinate, to the unit of means */
    int64_t task_edges;
    int64_t padded; /* num_edge_features rounded up to whole vectors */
    size_t row_bytes;
    int64_t *source;      /* (BLOCK) ids */
    int64_t *destination; /* (BLOCK) ids */
    int64_t count;        /* edges in the block */
    int64_t done;
    edges_worker_t *workers;
    plim__column_t *columns[PLIM_COLUMNS];
} edges_t;

static size_t feature_bytes(const plim__shape_t *shape)
{
    return (size_t)shape->num_edge_features * plim__feature_bytes(shape->feature_type);
}

bool plim__edges_file(const plim__shape_t *shape, plim_column_t column,
                      plim__edges_file_t *file_out)
{
    *file_out = (plim__edges_file_t){.num_dims = 1, .shape = {shape->num_edges}};
    switch (column) {
    case PLIM_EDGE_FEATURES:
        file_out->type = shape->feature_type == PLIM_F16 ? PLIM__NPY_F16 : PLIM__NPY_F32;
        file_out->num_dims = 2;
        file_out->shape[1] = shape->num_edge_features;
        return shape->num_edge_features > 0;
    case PLIM_EDGE_WEIGHT:
        file_out->type = PLIM__NPY_F32;
        return shape->edge_weights;
    case PLIM_EDGE_TYPE:
        file_out->type = PLIM__NPY_I32;
        return shape->num_edge_types > 0;
    case PLIM_EDGE_TIME:
        file_out->type = PLIM__NPY_I64;
        return shape->times;
    default:
        return false;
    }
}

static int64_t file_bytes(const plim__edges_file_t *file)
{
    return file->shape[0] * (file->num_dims == 2 ? file->shape[1] : 1) *
           (int64_t)plim__dtype_size(file->type);
}

int64_t plim__edges_bytes(const plim__shape_t *shape, int64_t *largest_out)
{
    int64_t sum = 0;
    *largest_out = 0;
    for (int i = 0; i < PLIM_COLUMNS; i++) {
        plim__edges_file_t file;
        if (!plim__edges_file(shape, (plim_column_t)(1u << i), &file))
            continue;
        sum += file_bytes(&file) + PLIM__NPY_HEADER;
        *largest_out = plim__max_i64(*largest_out, file_bytes(&file));
    }
    return sum;
}

static edges_worker_t lay_out_worker(plim__arena_t *arena, const edges_t *edges)
{
    const size_t count = (size_t)edges->task_edges, padded = (size_t)edges->padded;
    edges_worker_t worker;
    worker.source = plim__arena_carve(arena, count, sizeof(int64_t), 1);
    worker.destination = plim__arena_carve(arena, count, sizeof(int64_t), 1);
    for (int i = 0; i < NUM_CARRIED; i++)
        worker.means[i] = plim__arena_carve(arena, padded, sizeof(int16_t), 1);
    /* Rows are written in whole vectors, the last one past its end. */
    const size_t padding = PLIM__NOISE_LANES * plim__feature_bytes(edges->shape->feature_type);
    worker.features = plim__arena_carve(arena, count * edges->row_bytes + padding, 1, PLIM__LINE);
    worker.weights = plim__arena_carve(arena, count, sizeof(float), 1);
    worker.types = plim__arena_carve(arena, count, sizeof(int32_t), 1);
    worker.times = plim__arena_carve(arena, count, sizeof(int64_t), 1);
    return worker;
}

static void lay_out(plim__arena_t *arena, void *draft)
{
    edges_t *edges = draft;
    const size_t threads = (size_t)edges->job->threads;
    edges->source = plim__arena_carve(arena, (size_t)BLOCK, sizeof(int64_t), 1);
    edges->destination = plim__arena_carve(arena, (size_t)BLOCK, sizeof(int64_t), 1);
    edges->workers = plim__arena_carve(arena, threads, sizeof(edges_worker_t), 1);
    for (size_t i = 0; i < threads; i++) {
        const edges_worker_t worker = lay_out_worker(arena, edges);
        if (edges->workers != NULL)
            edges->workers[i] = worker;
    }
}

/* The fields from which the layout follows. */
static edges_t draft_of(const plim_job_t *job, const plim__shape_t *shape)
{
    const int64_t row = plim__max_i64(1, (int64_t)feature_bytes(shape));
    const int64_t lanes = PLIM__NOISE_LANES;
    return (edges_t){.job = job,
                     .shape = shape,
                     .task_edges = plim__max_i64(1, plim__min_i64(TASK, TASK_BYTES / row)),
                     .padded = (shape->num_edge_features + lanes - 1) / lanes * lanes,
                     .row_bytes = feature_bytes(shape)};
}

size_t plim__edges_estimate(const plim_job_t *job, const plim__shape_t *shape, size_t buffer)
{
    int64_t largest;
    if (plim__edges_bytes(shape, &largest) == 0)
        return 0;
    edges_t edges = draft_of(job, shape);
    size_t sum = plim__object_bytes(lay_out, &edges, sizeof edges) +
                 2 * plim__reader_file_estimate(job->io_engine, buffer);
    for (int i = 0; i < PLIM_COLUMNS; i++) {
        plim__edges_file_t file;
        if (plim__edges_file(shape, (plim_column_t)(1u << i), &file))
            sum += plim__column_estimate(job->io_engine, buffer, file_bytes(&file));
    }
    return sum;
}

/* Nearly normal coordinates, as far apart as those of rows. */
static void make_mean(const edges_t *edges, int64_t class, int16_t *mean_out)
{
    const uint64_t key = plim__rng_u64(edges->mean_key, (uint64_t) class);
    for (int64_t i = 0; i < edges->shape->num_edge_features; i++)
        mean_out[i] = plim__noise_mean(edges->scale * plim__noise_coordinate(key, i));
}

/* The destination of the edges at hand. */
typedef struct target {
    int64_t carried[NUM_CARRIED]; /* its class and its label */
    int64_t time;
} edge_target_t;

static edge_target_t target_at(const edges_t *edges, const edges_worker_t *worker, int64_t place)
{
    const plim__shape_t *shape = edges->shape;
    const int64_t class = plim__place_class(shape, place);
    const edge_target_t target = {.carried = {class, plim__place_label(shape, place, class)},
                                  .time = plim__place_time(shape, place)};
    if (shape->num_edge_features > 0)
        for (int i = 0; i < NUM_CARRIED; i++)
            make_mean(edges, target.carried[i], worker->means[i]);
    return target;
}

static void make_edge(const edges_t *edges, edges_worker_t *worker, int64_t i, uint64_t key,
                      const edge_target_t *target)
{
    const plim__shape_t *shape = edges->shape;
    const bool near = (shape->edge_weights || shape->times) &&
                      plim__place_class(shape, worker->source[i]) == target->carried[CARRIES_CLASS];
    const bool late = !shape->times || (plim__rng_u64(key, DRAW_LATE) % 4 != 0) == near;
    const int carried = late ? CARRIES_LABEL : CARRIES_CLASS;
    if (shape->num_edge_features > 0)
        plim__noise_row(edges->path, plim__rng_u64(key, DRAW_FEATURES), worker->means[carried],
                        shape->num_edge_features, shape->feature_type,
                        worker->features + (size_t)i * edges->row_bytes);
    worker->weights[i] =
        (0.5f + (float)(plim__rng_u64(key, DRAW_WEIGHT) >> 40) * 0x1p-24f) * (near ? 1.0f : 0.125f);
    if (shape->num_edge_types > 0) {
        const uint64_t bits = plim__rng_u64(key, DRAW_TYPE) % 4 != 0
                                  ? (uint64_t)target->carried[carried]
                                  : plim__rng_u64(key, DRAW_ANY_TYPE);
        worker->types[i] = (int32_t)(bits % (uint64_t)shape->num_edge_types);
    }
    const uint64_t time = plim__rng_u64(key, DRAW_TIME);
    worker->times[i] = late ? target->time + 1 + (int64_t)(time % PLIM__TIMES)
                            : (int64_t)(time % (uint64_t)(target->time + 1));
}

static plim_status_t make_task(void *context, int number, int64_t task)
{
    edges_t *edges = context;
    edges_worker_t *worker = &edges->workers[number];
    const int64_t begin = task * edges->task_edges;
    const int64_t count = plim__min_i64(edges->task_edges, edges->count - begin);
    const int64_t *source = edges->source + begin, *destination = edges->destination + begin;
    const uint64_t seed = edges->shape->seed;
    edge_target_t target = {.time = 0};
    PLIM_TRY(plim__job_check(edges->job));
    memcpy(worker->source, source, (size_t)count * sizeof *source);
    memcpy(worker->destination, destination, (size_t)count * sizeof *destination);
    plim__permute_many(&edges->place_to_id, worker->source, count, true);
    plim__permute_many(&edges->place_to_id, worker->destination, count, true);
    for (int64_t i = 0; i < count; i++) {
        if (i == 0 || destination[i] != destination[i - 1])
            target = target_at(edges, worker, worker->destination[i]);
        const uint64_t key =
            plim__rng_key(seed, PLIM__KEY_EDGE, (uint64_t)source[i], (uint64_t)destination[i]);
        make_edge(edges, worker, i, key, &target);
    }
    return PLIM_OK;
}

static plim_status_t take_task(void *context, int number, int64_t task)
{
    edges_t *edges = context;
    const edges_worker_t *worker = &edges->workers[number];
    const int64_t left = edges->count - task * edges->task_edges;
    const size_t count = (size_t)plim__min_i64(edges->task_edges, left);
    const struct {
        plim_column_t column;
        const void *from;
        size_t bytes;
    } made[] = {{PLIM_EDGE_FEATURES, worker->features, edges->row_bytes},
                {PLIM_EDGE_WEIGHT, worker->weights, sizeof *worker->weights},
                {PLIM_EDGE_TYPE, worker->types, sizeof *worker->types},
                {PLIM_EDGE_TIME, worker->times, sizeof *worker->times}};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        plim__column_t *column = edges->columns[__builtin_ctz(made[i].column)];
        if (column != NULL)
            PLIM_TRY(plim__column_write(column, made[i].from, count * made[i].bytes));
    }
    edges->done += (int64_t)count;
    plim__progress(edges->job, "writing edge columns", "edges", edges->done,
                   edges->shape->num_edges);
    return PLIM_OK;
}

static plim_status_t write_blocks(edges_t *edges, plim__edge_source_t *from)
{
    do {
        PLIM_TRY(from->read(from, edges->source, edges->destination, BLOCK, &edges->count));
        const int64_t tasks = (edges->count + edges->task_edges - 1) / edges->task_edges;
        PLIM_TRY(plim__ordered(edges->job->threads, tasks, make_task, take_task, edges));
    } while (edges->count == BLOCK);
    return PLIM_OK;
}

/* Opens a file of the staging directory at its first number. */
static plim_status_t open_ids(const edges_t *edges, const plim__dataset_writer_t *writer,
                              const char *name, size_t buffer, plim__ids_npy_t *ids,
                              plim__reader_t **reader_out)
{
    char path[PATH_MAX];
    plim__npy_t npy;
    PLIM_TRY(plim__file_path(path, plim__dataset_staging(writer), name));
    PLIM_TRY(plim__reader_file(edges->job, path, buffer, reader_out));
    PLIM_TRY(plim__npy_read(*reader_out, &npy));
    return plim__ids_npy_open(ids, *reader_out, npy.type, npy.count);
}

static plim_status_t read_and_write(edges_t *edges, size_t buffer,
                                    const plim__dataset_writer_t *writer)
{
    plim__reader_t *readers[2] = {NULL, NULL};
    plim__ids_npy_t indptr, indices;
    plim__edges_csc_t csc;
    plim_status_t status = open_ids(edges, writer, "indptr.npy", buffer, &indptr, &readers[0]);
    if (status == PLIM_OK)
        status = open_ids(edges, writer, "indices.npy", buffer, &indices, &readers[1]);
    if (status == PLIM_OK) {
        plim__edges_csc_open(&csc, &indptr.ids, &indices.ids, edges->shape->num_edges);
        status = write_blocks(edges, &csc.edges);
    }
    for (int i = 0; i < 2; i++)
        plim__reader_close(readers[i]);
    return status;
}

static plim_status_t open_columns(edges_t *edges, size_t buffer, plim__dataset_writer_t *writer)
{
    for (int i = 0; i < PLIM_COLUMNS; i++) {
        plim__edges_file_t file;
        if (plim__edges_file(edges->shape, (plim_column_t)(1u << i), &file))
            PLIM_TRY(plim__column_open(writer, plim__column_names[i], file.type, file.num_dims,
                                       file.shape, file_bytes(&file), buffer, &edges->columns[i]));
    }
    return PLIM_OK;
}

plim_status_t plim__edges_write(const plim_job_t *job, const plim__shape_t *shape, size_t buffer,
                                plim__dataset_writer_t *writer)
{
    int64_t largest;
    edges_t draft = draft_of(job, shape), *edges;
    if (plim__edges_bytes(shape, &largest) == 0)
        return PLIM_OK;
    PLIM_TRY(plim__object_create(job->ledger, "generate edges", lay_out, &draft, sizeof draft,
                                 &draft.arena, &edges));
    edges->path = plim__noise_best();
    edges->place_to_id = plim__place_permutation(shape);
    edges->mean_key = plim__rng_key(shape->seed, PLIM__KEY_EDGE_MEAN, 0, 0);
    edges->scale =
        sqrt(shape->distance / (8 * (double)plim__max_i64(1, shape->num_edge_features))) *
        PLIM__NOISE_DEVIATION;
    plim_status_t status = open_columns(edges, buffer, writer);
    if (status == PLIM_OK)
        status = read_and_write(edges, buffer, writer);
    for (int i = 0; i < PLIM_COLUMNS && status == PLIM_OK; i++)
        if (edges->columns[i] != NULL)
            status = plim__column_close(edges->columns[i]);
    plim__arena_destroy(&edges->arena);
    return status;
}
