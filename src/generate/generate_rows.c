#include "generate/generate_rows.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"
#include "generate/generate_noise.h"
#include "generate/generate_place.h"
#include "mem/arena.h"
#include "store/dataset.h"
#include "store/labels.h"

#include <math.h>
#include <string.h>

#define TASK_BYTES ((int64_t)1 << 20) /* bytes of features generated at once, */
#define TASK_ROWS ((int64_t)8192)     /* and maximum rows */
#define RANK 16 /* dimension of the space of all means: a GCN of 16 channels learns papers100M */
#define SUBJECTS 20 /* the archives of arXiv, whose categories are the classes of papers100M */
#define MEANS_BYTES ((int64_t)1 << 20) /* the means of all classes are stored up to this size */

enum {
    COLUMN_FEATURES,
    COLUMN_LABELS,
    COLUMN_SPLITS,
    COLUMN_TIMES = COLUMN_SPLITS + 3,
    NUM_COLUMNS
};

static const char *const column_names[NUM_COLUMNS] = {"features", "labels", "train",
                                                      "valid",    "test",   "node_time"};

typedef struct rows_worker {
    int64_t *places;         /* (task_rows) */
    int64_t *labels;         /* (task_rows) */
    void *narrow;            /* (task_rows) the same, as the file has them */
    int64_t *times;          /* (task_rows) */
    int64_t *split_ids[3];   /* (task_rows) each */
    int64_t split_counts[3]; /* in this task */
    int16_t *mean;           /* (padded): mean of a class, when rows_t has no means */
    char *features;          /* (task_rows, row_bytes) and the padding of the last row */
} rows_worker_t;

typedef struct rows {
    plim__arena_t arena;
    const plim_job_t *job;
    const plim__shape_t *shape;
    plim__noise_path_t path;
    plim__permute_t place_to_id;
    plim__permute_t split_order; /* of the core: first train, then valid, then test */
    uint64_t noise_key;
    uint64_t mean_key;
    uint64_t subject_key;
    uint64_t axis_key;
    double scale; /* of a sum of coordinates, to the unit of means */
    int64_t task_rows;
    int64_t padded; /* num_features rounded up to whole vectors */
    size_t row_bytes;
    int64_t *begins[2]; /* (num_classes + 1): first place of each class, core and periphery */
    int16_t *means;     /* (num_classes, padded), or NULL: computed for each row */
    int16_t *zeros;     /* (padded): the mean of stars, which belong to no class */
    rows_worker_t *workers;
    plim__column_t *columns[NUM_COLUMNS];
} rows_t;

static int64_t padded_features(const plim__shape_t *shape)
{
    return (shape->num_features + PLIM__NOISE_LANES - 1) / PLIM__NOISE_LANES * PLIM__NOISE_LANES;
}

static int64_t rows_per_task(const plim__shape_t *shape)
{
    int64_t row =
        plim__max_i64(1, shape->num_features * (int64_t)plim__feature_bytes(shape->feature_type));
    int64_t rows = plim__max_i64(1, plim__min_i64(TASK_ROWS, TASK_BYTES / row));
    return plim__min_i64(rows, shape->num_nodes);
}

static size_t means_count(const plim__shape_t *shape)
{
    int64_t most = MEANS_BYTES / (int64_t)sizeof(int16_t);
    int64_t padded = padded_features(shape);
    return padded > 0 && shape->num_classes > most / padded ? 0
                                                            : (size_t)(shape->num_classes * padded);
}

/* Bytes of a task's rows. Rows are written in whole vectors, the last one past its end. */
static size_t features_bytes(const plim__shape_t *shape)
{
    size_t values = (size_t)(rows_per_task(shape) * shape->num_features) + PLIM__NOISE_LANES;
    return values * plim__feature_bytes(shape->feature_type);
}

static rows_worker_t lay_out_worker(plim__arena_t *arena, const rows_t *rows)
{
    rows_worker_t worker = {.mean = NULL};
    const size_t count = (size_t)rows->task_rows;
    worker.places = plim__arena_carve(arena, count, sizeof(int64_t), 1);
    worker.labels = plim__arena_carve(arena, count, sizeof(int64_t), 1);
    worker.narrow = plim__arena_carve(
        arena, count, plim__dtype_size(plim__label_type(rows->shape->num_classes)), 1);
    worker.times = plim__arena_carve(arena, count, sizeof(int64_t), 1);
    for (int i = 0; i < 3; i++)
        worker.split_ids[i] = plim__arena_carve(arena, count, sizeof(int64_t), 1);
    worker.mean = plim__arena_carve(arena, (size_t)rows->padded, sizeof(int16_t), 1);
    worker.features = plim__arena_carve(arena, features_bytes(rows->shape), 1, 1);
    return worker;
}

static void lay_out(plim__arena_t *arena, void *draft)
{
    rows_t *rows = draft;
    const size_t means = means_count(rows->shape), threads = (size_t)rows->job->threads;
    for (int i = 0; i < 2; i++)
        rows->begins[i] =
            plim__arena_carve(arena, (size_t)rows->shape->num_classes + 1, sizeof(int64_t), 1);
    rows->zeros = plim__arena_carve(arena, (size_t)rows->padded, sizeof(int16_t), 1);
    if (means > 0)
        rows->means = plim__arena_carve(arena, means, sizeof(int16_t), 1);
    rows->workers = plim__arena_carve(arena, threads, sizeof(rows_worker_t), 1);
    for (size_t i = 0; i < threads; i++) {
        const rows_worker_t worker = lay_out_worker(arena, rows);
        if (rows->workers != NULL)
            rows->workers[i] = worker;
    }
}

/* The fields from which the layout follows. */
static rows_t draft_of(const plim_job_t *job, const plim__shape_t *shape)
{
    return (rows_t){.job = job,
                    .shape = shape,
                    .task_rows = rows_per_task(shape),
                    .padded = padded_features(shape),
                    .row_bytes =
                        (size_t)shape->num_features * plim__feature_bytes(shape->feature_type)};
}

static int64_t column_count(const plim__shape_t *shape, int column)
{
    return column >= COLUMN_SPLITS && column < COLUMN_TIMES
               ? shape->num_split[column - COLUMN_SPLITS]
               : shape->num_nodes;
}

static bool has_column(const plim__shape_t *shape, int column)
{
    return column == COLUMN_FEATURES ? shape->num_features > 0
           : column == COLUMN_TIMES  ? shape->times
                                     : true;
}

static int64_t column_bytes(const plim__shape_t *shape, int column)
{
    if (column == COLUMN_FEATURES)
        return shape->num_nodes * shape->num_features *
               (int64_t)plim__feature_bytes(shape->feature_type);
    const plim__dtype_t type =
        column == COLUMN_LABELS ? plim__label_type(shape->num_classes) : PLIM__NPY_I64;
    return column_count(shape, column) * (int64_t)plim__dtype_size(type);
}

/* Labels and splits are small compared with features. */
static size_t column_buffer(int column, size_t buffer)
{
    return column == COLUMN_FEATURES ? buffer : buffer / 16;
}

size_t plim__rows_estimate(const plim_job_t *job, const plim__shape_t *shape, size_t buffer)
{
    rows_t rows = draft_of(job, shape);
    size_t sum = plim__object_bytes(lay_out, &rows, sizeof rows);
    for (int i = 0; i < NUM_COLUMNS; i++)
        if (i != COLUMN_TIMES || has_column(shape, i))
            sum += plim__column_estimate(job->io_engine, column_buffer(i, buffer),
                                         column_bytes(shape, i));
    return sum;
}

int64_t plim__rows_bytes(const plim__shape_t *shape)
{
    int64_t sum = 0;
    for (int i = 0; i < NUM_COLUMNS; i++)
        if (i != COLUMN_TIMES || has_column(shape, i))
            sum += column_bytes(shape, i) + PLIM__NPY_HEADER;
    return sum;
}

/* The mean of a class: a combination of RANK axes, which are vectors of +1 and -1. Half of the
 * variance of its coordinates is common to the classes of a subject. */
static void make_mean(const rows_t *rows, int64_t class, int16_t *mean_out)
{
    const uint64_t key = plim__rng_u64(rows->mean_key, (uint64_t) class);
    const int64_t number = class * SUBJECTS / rows->shape->num_classes;
    const uint64_t subject = plim__rng_u64(rows->subject_key, (uint64_t)number);
    int coordinates[RANK];
    for (int axis = 0; axis < RANK; axis++)
        coordinates[axis] =
            plim__noise_coordinate(key, axis) + plim__noise_coordinate(subject, axis);
    for (int64_t i = 0; i < rows->shape->num_features; i++) {
        const uint64_t signs = plim__rng_u64(rows->axis_key, (uint64_t)i);
        int sum = 0;
        for (int axis = 0; axis < RANK; axis++)
            sum += (signs >> axis & 1) != 0 ? coordinates[axis] : -coordinates[axis];
        mean_out[i] = plim__noise_mean(rows->scale * sum);
    }
}

static void fill_tables(rows_t *rows)
{
    const plim__shape_t *shape = rows->shape;
    plim__range_t core = plim__place_region(shape, 0);
    plim__range_t periphery = plim__place_region(shape, shape->num_core);
    for (int64_t class = 0; class <= shape->num_classes; class ++) {
        rows->begins[0][class] = plim__place_community(shape, core, class).first;
        rows->begins[1][class] = plim__place_community(shape, periphery, class).first;
        if (rows->means != NULL && class < shape->num_classes)
            make_mean(rows, class, rows->means + class * rows->padded);
    }
}

/* The distance of classes does not depend on the number of features, and is large enough to learn a
 * class from a few dozen nodes. A coordinate has variance 16. */
static double scale_of(const plim__shape_t *shape)
{
    const double features = (double)plim__max_i64(1, shape->num_features);
    return sqrt(shape->distance / (16 * RANK * features)) * PLIM__NOISE_DEVIATION;
}

static plim_status_t rows_create(const plim_job_t *job, const plim__shape_t *shape,
                                 rows_t **rows_out)
{
    rows_t draft = draft_of(job, shape), *rows;
    PLIM_TRY(plim__object_create(job->ledger, "generate rows", lay_out, &draft, sizeof draft,
                                 &draft.arena, &rows));
    rows->path = plim__noise_best();
    rows->place_to_id = plim__place_permutation(shape);
    rows->split_order = plim__permute_make((uint64_t)shape->num_core,
                                           plim__rng_key(shape->seed, PLIM__KEY_SPLIT, 0, 0));
    rows->noise_key = plim__rng_key(shape->seed, PLIM__KEY_NOISE, 0, 0);
    rows->mean_key = plim__rng_key(shape->seed, PLIM__KEY_MEAN, 0, 0);
    rows->subject_key = plim__rng_key(shape->seed, PLIM__KEY_SUBJECT, 0, 0);
    rows->axis_key = plim__rng_key(shape->seed, PLIM__KEY_AXIS, 0, 0);
    rows->scale = scale_of(shape);
    fill_tables(rows);
    *rows_out = rows;
    return PLIM_OK;
}

static int64_t class_of(const rows_t *rows, int64_t place)
{
    const plim__shape_t *shape = rows->shape;
    if (place < shape->num_stars)
        return plim__place_class(shape, place);
    const int64_t *begins = rows->begins[place >= shape->num_core];
    int64_t low = 0;
    int64_t high = shape->num_classes;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (begins[middle] <= place)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* 0, 1, 2 for train, valid and test; 3 for none. */
static int split_of(const rows_t *rows, int64_t place)
{
    const int64_t *sizes = rows->shape->num_split;
    if (place >= rows->shape->num_core)
        return 3;
    int64_t order = (int64_t)plim__permute_forward(&rows->split_order, (uint64_t)place);
    int split = 0;
    for (; split < 3 && order >= sizes[split]; split++)
        order -= sizes[split];
    return split;
}

static plim_status_t make_task(void *context, int number, int64_t task)
{
    rows_t *rows = context;
    rows_worker_t *worker = &rows->workers[number];
    int64_t begin = task * rows->task_rows;
    int64_t count = plim__min_i64(rows->task_rows, rows->shape->num_nodes - begin);
    PLIM_TRY(plim__job_check(rows->job));
    for (int64_t i = 0; i < count; i++)
        worker->places[i] = begin + i;
    plim__permute_many(&rows->place_to_id, worker->places, count, true);
    memset(worker->split_counts, 0, sizeof worker->split_counts);
    for (int64_t i = 0; i < count; i++) {
        int64_t place = worker->places[i];
        int64_t class = class_of(rows, place);
        int split = split_of(rows, place);
        worker->labels[i] = split == 3 ? -1 : plim__place_label(rows->shape, place, class);
        worker->times[i] = plim__place_time(rows->shape, place);
        if (split < 3)
            worker->split_ids[split][worker->split_counts[split]++] = begin + i;
        const int16_t *mean = place < rows->shape->num_stars ? rows->zeros : worker->mean;
        if (place >= rows->shape->num_stars && rows->means != NULL)
            mean = rows->means + class * rows->padded;
        else if (place >= rows->shape->num_stars)
            make_mean(rows, class, worker->mean);
        plim__noise_row(rows->path, plim__rng_u64(rows->noise_key, (uint64_t)place), mean,
                        rows->shape->num_features, rows->shape->feature_type,
                        worker->features + (size_t)i * rows->row_bytes);
    }
    plim__labels_narrow(plim__label_type(rows->shape->num_classes), worker->labels, count,
                        worker->narrow);
    return PLIM_OK;
}

static plim_status_t take_task(void *context, int number, int64_t task)
{
    rows_t *rows = context;
    const rows_worker_t *worker = &rows->workers[number];
    int64_t begin = task * rows->task_rows;
    int64_t count = plim__min_i64(rows->task_rows, rows->shape->num_nodes - begin);
    const plim__dtype_t type = plim__label_type(rows->shape->num_classes);
    if (rows->columns[COLUMN_FEATURES] != NULL)
        PLIM_TRY(plim__column_write(rows->columns[COLUMN_FEATURES], worker->features,
                                    (size_t)count * rows->row_bytes));
    PLIM_TRY(plim__column_write(rows->columns[COLUMN_LABELS], worker->narrow,
                                (size_t)count * plim__dtype_size(type)));
    for (int i = 0; i < 3; i++)
        PLIM_TRY(plim__column_write(rows->columns[COLUMN_SPLITS + i], worker->split_ids[i],
                                    (size_t)worker->split_counts[i] * sizeof(int64_t)));
    if (rows->columns[COLUMN_TIMES] != NULL)
        PLIM_TRY(plim__column_write(rows->columns[COLUMN_TIMES], worker->times,
                                    (size_t)count * sizeof *worker->times));
    plim__progress(rows->job, "writing features", "rows", begin + count, rows->shape->num_nodes);
    return PLIM_OK;
}

static plim_status_t open_columns(rows_t *rows, size_t buffer, plim__dataset_writer_t *writer)
{
    const plim__shape_t *shape = rows->shape;
    for (int i = 0; i < NUM_COLUMNS; i++) {
        int64_t dims[2] = {column_count(shape, i), shape->num_features};
        plim__dtype_t type =
            i == COLUMN_LABELS ? plim__label_type(shape->num_classes) : PLIM__NPY_I64;
        if (!has_column(shape, i))
            continue;
        if (i == COLUMN_FEATURES)
            type = shape->feature_type == PLIM_F16 ? PLIM__NPY_F16 : PLIM__NPY_F32;
        PLIM_TRY(plim__column_open(writer, column_names[i], type, i == COLUMN_FEATURES ? 2 : 1,
                                   dims, column_bytes(shape, i), column_buffer(i, buffer),
                                   &rows->columns[i]));
    }
    return PLIM_OK;
}

plim_status_t plim__rows_write(const plim_job_t *job, const plim__shape_t *shape, size_t buffer,
                               plim__dataset_writer_t *writer)
{
    rows_t *rows;
    PLIM_TRY(rows_create(job, shape, &rows));
    plim_status_t status = open_columns(rows, buffer, writer);
    if (status == PLIM_OK)
        status =
            plim__ordered(job->threads, (shape->num_nodes + rows->task_rows - 1) / rows->task_rows,
                          make_task, take_task, rows);
    for (int i = 0; i < NUM_COLUMNS && status == PLIM_OK; i++)
        if (rows->columns[i] != NULL)
            status = plim__column_close(rows->columns[i]);
    plim__arena_destroy(&rows->arena);
    return status;
}
