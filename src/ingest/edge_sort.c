#include "ingest/edge_sort.h"

#include "base/bounds.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/half.h"
#include "base/job.h"
#include "base/radix.h"
#include "io/file.h"
#include "mem/arena.h"
#include "mem/size_text.h"
#include "store/dataset.h"

#include <math.h>
#include <string.h>

#define DIGIT_BITS 11
#define DIGITS ((int64_t)1 << DIGIT_BITS)
#define CHUNK_MIN ((size_t)64 << 10) /* smallest and */
#define CHUNK_MOST ((size_t)1 << 20) /* largest bytes of a run that are read at once */
#define COLUMN_MIN ((size_t)64 << 10)
#define COLUMN_MOST ((size_t)1 << 20)
#define STOP_EDGES ((int64_t)1 << 16) /* edges between two checks of the stop flag */

/* A record's key and its number in the run, which are sorted in place of the record. */
typedef struct sort_pair {
    uint64_t key;
    int64_t record;
} sort_pair_t;

/* A sorted run on disk, in whole chunks, and its next record while it is merged. */
typedef struct run {
    int64_t chunk;    /* number of its next chunk in the file */
    int64_t left;     /* records that are not in the buffer yet */
    char *buffer;     /* (chunk bytes) */
    int64_t at, have; /* the next record of the buffer, and the records in it */
} run_t;

/* How memory is used. Follows from the parameters. */
typedef struct edge_shape {
    int bits;        /* of a node in a key */
    size_t record;   /* bytes */
    int64_t records; /* upper bound */
    int64_t in_run;  /* records of a run */
    int64_t num_runs;
    size_t chunk; /* bytes of a chunk, whole records and then padding */
    size_t area;  /* bytes of the records in memory and their pairs, or of the runs' chunks */
    size_t column_buffer;
    size_t total; /* with the columns */
} edge_shape_t;

struct plim__edge_sort {
    plim__arena_t arena;
    plim_job_t job;
    plim__edge_sort_params_t params;
    edge_shape_t shape;
    size_t values; /* bytes of an edge's values */
    int64_t added;
    plim__file_t file;
    int64_t chunks; /* in the file */
    int64_t runs_done;
    run_t *runs;   /* (num_runs) */
    int64_t *heap; /* (num_runs) numbers of runs that have a record, the smallest first */
    int64_t heap_size;
    int64_t *digits; /* (DIGITS) */
    char *area;
    char *records; /* (in_run) in the area */
    sort_pair_t *pairs, *other;
    int64_t fill;  /* records of the run in memory */
    char *writing; /* (chunk) the chunk being written */
    /* Output: */
    char *last; /* the last edge's record, to which duplicates are combined */
    bool any;
    double *sums;   /* (values of an edge) of a combined edge, where they are floats, */
    int64_t *whole; /* or integers */
    bool combined;  /* `sums` and `whole` replace the values of `last` */
    plim__column_t *indptr, *indices, *columns[PLIM_COLUMNS];
    int64_t next_node; /* the first without an offset */
    int64_t num_edges;
    int64_t loops, max_loops; /* of the list being written; most of any */
};

static size_t field_bytes(const plim__edge_field_t *field)
{
    return (size_t)field->width * plim__dtype_size(field->type);
}

static int64_t all_widths(const plim__edge_sort_params_t *params)
{
    int64_t widths = 0;
    for (int i = 0; i < params->num_fields; i++)
        widths += params->fields[i].width;
    return widths;
}

size_t plim__edge_sort_values(const plim__edge_sort_params_t *params)
{
    size_t bytes = 0;
    for (int i = 0; i < params->num_fields; i++)
        bytes += field_bytes(&params->fields[i]);
    return bytes;
}

static void lay_out(plim__arena_t *arena, void *object)
{
    plim__edge_sort_t *sort = object;
    const edge_shape_t *shape = &sort->shape;
    const size_t widths = (size_t)all_widths(&sort->params);
    const bool spills = shape->num_runs > 1;
    sort->runs = plim__arena_carve(arena, (size_t)shape->num_runs, sizeof(run_t), 1);
    sort->heap = plim__arena_carve(arena, (size_t)shape->num_runs, sizeof(int64_t), 1);
    sort->digits = plim__arena_carve(arena, (size_t)DIGITS, sizeof(int64_t), 1);
    sort->last = plim__arena_carve(arena, 1, shape->record, 1);
    sort->sums = plim__arena_carve(arena, widths, sizeof(double), 1);
    sort->whole = plim__arena_carve(arena, widths, sizeof(int64_t), 1);
    sort->writing = plim__arena_carve(arena, spills ? 1 : 0, shape->chunk, PLIM__PAGE);
    sort->area = plim__arena_carve(arena, 1, shape->area, PLIM__PAGE);
}

static int64_t index_size(const plim__edge_sort_params_t *params)
{
    return (int64_t)plim__dtype_size(plim__index_written(params->num_nodes));
}

/* Memory of all open columns. */
static size_t columns_bytes(const plim_job_t *job, const plim__edge_sort_params_t *params,
                            const edge_shape_t *shape)
{
    size_t bytes = plim__add_saturating_size(
        plim__column_estimate(job->io_engine, shape->column_buffer, (params->num_nodes + 1) * 8),
        plim__column_estimate(job->io_engine, shape->column_buffer,
                              plim__mul_saturating_i64(shape->records, index_size(params))));
    for (int i = 0; i < params->num_fields; i++) {
        const int64_t most =
            plim__mul_saturating_i64(shape->records, (int64_t)field_bytes(&params->fields[i]));
        bytes = plim__add_saturating_size(
            bytes, plim__column_estimate(job->io_engine, shape->column_buffer, most));
    }
    return bytes;
}

/* Bytes of a run of `records` records in memory, with the pairs that sort it. */
static size_t run_bytes(const edge_shape_t *shape, int64_t records)
{
    const size_t each = shape->record + 2 * sizeof(sort_pair_t);
    return plim__add_saturating_size(plim__mul_saturating_size((size_t)records, each),
                                     3 * PLIM__PAGE);
}

/* Chooses runs and chunks for an area of at most `area` bytes. False when it is too small. */
static bool divide_area(edge_shape_t *shape, size_t area)
{
    const size_t least = plim__round_up(shape->record, PLIM__PAGE);
    const size_t chunk_min = least > CHUNK_MIN ? least : CHUNK_MIN;
    if (run_bytes(shape, plim__max_i64(shape->records, 1)) <= area) {
        shape->in_run = plim__max_i64(shape->records, 1);
        shape->num_runs = 1;
        shape->chunk = 0;
        shape->area = run_bytes(shape, shape->in_run);
        return true;
    }
    if (area < 4 * PLIM__PAGE)
        return false;
    shape->in_run = (int64_t)((area - 3 * PLIM__PAGE) / (shape->record + 2 * sizeof(sort_pair_t)));
    if (shape->in_run < 2)
        return false;
    /* An edge and its reverse are added together, so a run may have one record less. */
    shape->num_runs = shape->records / (shape->in_run - 1) + 1;
    shape->chunk = area / (size_t)shape->num_runs / PLIM__PAGE * PLIM__PAGE;
    if (shape->chunk < chunk_min)
        return false;
    if (shape->chunk > CHUNK_MOST)
        shape->chunk = CHUNK_MOST > chunk_min ? CHUNK_MOST : chunk_min;
    shape->area = area;
    return true;
}

/* The shape for `memory` bytes. False when that is too little. */
static bool find_shape(const plim_job_t *job, const plim__edge_sort_params_t *params, size_t memory,
                       edge_shape_t *shape_out)
{
    edge_shape_t shape = {.bits = plim__radix_bits(plim__max_i64(params->num_nodes, 2)),
                          .record = sizeof(uint64_t) + plim__edge_sort_values(params),
                          .records = params->max_edges * (params->symmetrise ? 2 : 1),
                          .column_buffer = COLUMN_MIN};
    while (shape.column_buffer < COLUMN_MOST && shape.column_buffer * 256 <= memory)
        shape.column_buffer *= 2;
    plim__edge_sort_t draft = {.params = *params, .shape = shape};
    size_t others = columns_bytes(job, params, &shape);
    if (others >= memory || !divide_area(&shape, memory - others))
        return false;
    /* The tables of runs are small; they come out of the area. */
    draft.shape = shape;
    others = plim__add_saturating_size(others, plim__object_bytes(lay_out, &draft, sizeof draft) -
                                                   shape.area);
    if (others >= memory)
        return false;
    if (plim__add_saturating_size(others, shape.area) > memory &&
        !divide_area(&shape, memory - others))
        return false;
    draft.shape = shape;
    shape.total = plim__add_saturating_size(plim__object_bytes(lay_out, &draft, sizeof draft),
                                            columns_bytes(job, params, &shape));
    *shape_out = shape;
    return true;
}

static bool possible(const plim__edge_sort_params_t *params)
{
    return params->num_nodes >= 1 && params->num_nodes <= PLIM__EDGE_SORT_NODES &&
           params->max_edges >= 0 && params->max_edges <= PLIM__ITEMS_MAX / 2;
}

size_t plim__edge_sort_minimum(const plim_job_t *job, const plim__edge_sort_params_t *params)
{
    edge_shape_t shape;
    size_t low = 0, high = (size_t)1 << 20;
    if (!possible(params))
        return SIZE_MAX;
    for (; !find_shape(job, params, high, &shape); high *= 2) {
        low = high;
        if (high > SIZE_MAX / 4)
            return SIZE_MAX;
    }
    while (high - low > CHUNK_MIN) {
        const size_t middle = low + (high - low) / 2;
        if (find_shape(job, params, middle, &shape))
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* Bytes of the file: whole chunks, at least one for each run. */
static int64_t file_bytes(const edge_shape_t *shape)
{
    if (shape->num_runs == 1)
        return 0;
    const int64_t in_chunk = (int64_t)(shape->chunk / shape->record);
    return plim__mul_saturating_i64(shape->records / in_chunk + shape->num_runs,
                                    (int64_t)shape->chunk);
}

int64_t plim__edge_sort_spill(const plim_job_t *job, const plim__edge_sort_params_t *params)
{
    edge_shape_t shape;
    if (!possible(params))
        return INT64_MAX;
    if (find_shape(job, params, params->memory, &shape))
        return file_bytes(&shape);
    return find_shape(job, params, plim__edge_sort_minimum(job, params), &shape)
               ? file_bytes(&shape)
               : INT64_MAX;
}

plim_status_t plim__edge_sort_create(const plim_job_t *job, const plim__edge_sort_params_t *params,
                                     plim__edge_sort_t **sort_out)
{
    plim__edge_sort_t draft = {.job = *job, .params = *params, .file = {.fd = -1}}, *sort;
    if (!possible(params))
        return plim__fail(PLIM_ERR_USAGE,
                          "cannot build adjacency lists with edge columns of %lld nodes and %lld "
                          "edges; at most %lld nodes are supported",
                          (long long)params->num_nodes, (long long)params->max_edges,
                          (long long)PLIM__EDGE_SORT_NODES);
    if (!find_shape(job, params, params->memory, &draft.shape)) {
        char minimum[PLIM__SIZE_TEXT], given[PLIM__SIZE_TEXT];
        const int64_t bytes = (int64_t)plim__edge_sort_minimum(job, params);
        (void)plim__fail(PLIM_ERR_BUDGET,
                         "building the adjacency lists needs at least %s, but has %s; raise "
                         "`memory`",
                         plim__size_text(bytes, minimum),
                         plim__size_text((int64_t)params->memory, given));
        return plim__fail_figures(PLIM_ERR_BUDGET, "line", bytes, (int64_t)params->memory);
    }
    draft.params.remove_duplicates = params->remove_duplicates || params->symmetrise;
    draft.values = plim__edge_sort_values(params);
    PLIM_TRY(plim__object_create(job->ledger, "csc build", lay_out, &draft, sizeof draft,
                                 &draft.arena, &sort));
    const size_t in_run = (size_t)sort->shape.in_run;
    plim__arena_t area = {.base = sort->area, .size = sort->shape.area};
    sort->pairs = plim__arena_carve(&area, in_run, sizeof(sort_pair_t), 1);
    sort->other = plim__arena_carve(&area, in_run, sizeof(sort_pair_t), 1);
    sort->records = plim__arena_carve(&area, in_run, sort->shape.record, 1);
    *sort_out = sort;
    return PLIM_OK;
}

void plim__edge_sort_destroy(plim__edge_sort_t *sort)
{
    if (sort == NULL)
        return;
    if (sort->file.fd >= 0)
        plim__file_close(&sort->file);
    plim__arena_destroy(&sort->arena);
}

/* Sorts the pairs by their keys, digit by digit from the lowest, so that equal keys keep their
 * order. Returns the array with the result. */
static const sort_pair_t *sort_pairs(plim__edge_sort_t *sort)
{
    sort_pair_t *from = sort->pairs, *to = sort->other;
    const int64_t count = sort->fill;
    for (int shift = 0; shift < 2 * sort->shape.bits; shift += DIGIT_BITS) {
        int64_t *starts = sort->digits, start = 0;
        memset(starts, 0, (size_t)DIGITS * sizeof *starts);
        for (int64_t i = 0; i < count; i++)
            starts[from[i].key >> shift & (DIGITS - 1)]++;
        if (count > 0 && starts[from[0].key >> shift & (DIGITS - 1)] == count)
            continue;
        for (int64_t digit = 0; digit < DIGITS; digit++) {
            const int64_t here = starts[digit];
            starts[digit] = start;
            start += here;
        }
        for (int64_t i = 0; i < count; i++)
            to[starts[from[i].key >> shift & (DIGITS - 1)]++] = from[i];
        sort_pair_t *swapped = from;
        from = to;
        to = swapped;
    }
    return from;
}

static char *record_at(const plim__edge_sort_t *sort, int64_t number)
{
    return sort->records + (size_t)number * sort->shape.record;
}

static plim_status_t write_chunk(plim__edge_sort_t *sort, size_t bytes)
{
    const size_t chunk = sort->shape.chunk;
    memset(sort->writing + bytes, 0, chunk - bytes);
    PLIM_TRY(plim__file_write_at(&sort->file, sort->chunks * (int64_t)chunk, sort->writing, chunk));
    sort->chunks++;
    return PLIM_OK;
}

/* Sorts the run in memory and writes it. */
static plim_status_t write_run(plim__edge_sort_t *sort)
{
    const size_t record = sort->shape.record, whole = sort->shape.chunk / record * record;
    size_t bytes = 0;
    if (sort->file.fd < 0)
        PLIM_TRY(plim__file_open(sort->params.tmp, PLIM__FILE_TEMPORARY, true, &sort->file));
    if (sort->runs_done == sort->shape.num_runs)
        return plim__fail(PLIM_ERR_USAGE, "internal error: more than %lld runs of edges",
                          (long long)sort->shape.num_runs);
    sort->runs[sort->runs_done++] = (run_t){.chunk = sort->chunks, .left = sort->fill};
    const sort_pair_t *sorted = sort_pairs(sort);
    for (int64_t i = 0; i < sort->fill; i++) {
        memcpy(sort->writing + bytes, record_at(sort, sorted[i].record), record);
        bytes += record;
        if (bytes == whole || i + 1 == sort->fill) {
            PLIM_TRY(write_chunk(sort, bytes));
            PLIM_TRY(plim__job_check(&sort->job));
            bytes = 0;
        }
    }
    sort->fill = 0;
    return PLIM_OK;
}

static void put_record(plim__edge_sort_t *sort, int64_t destination, int64_t source,
                       const void *values)
{
    const uint64_t key = (uint64_t)destination << sort->shape.bits | (uint64_t)source;
    char *record = record_at(sort, sort->fill);
    memcpy(record, &key, sizeof key);
    memcpy(record + sizeof key, values, sort->values);
    sort->pairs[sort->fill] = (sort_pair_t){key, sort->fill};
    sort->fill++;
}

plim_status_t plim__edge_sort_add(plim__edge_sort_t *sort, const int64_t *source,
                                  const int64_t *destination, const void *values, int64_t count,
                                  int64_t *bad_out)
{
    const uint64_t nodes = (uint64_t)sort->params.num_nodes;
    const char *next = values;
    if (count > sort->params.max_edges - sort->added)
        return plim__fail(PLIM_ERR_USAGE, "more than %lld edges were added",
                          (long long)sort->params.max_edges);
    for (int64_t i = 0; i < count; i++, next += sort->values) {
        if (i % STOP_EDGES == 0)
            PLIM_TRY(plim__job_check(&sort->job));
        if ((uint64_t)source[i] >= nodes || (uint64_t)destination[i] >= nodes) {
            *bad_out = i;
            return plim__fail(PLIM_ERR_DATA,
                              "edge %lld from %lld to %lld, but there are %lld nodes",
                              (long long)(sort->added + i), (long long)source[i],
                              (long long)destination[i], (long long)nodes);
        }
        if (sort->shape.in_run - sort->fill < 1 + sort->params.symmetrise &&
            sort->shape.num_runs > 1)
            PLIM_TRY(write_run(sort));
        if (source[i] == destination[i] && sort->params.remove_loops)
            continue;
        put_record(sort, destination[i], source[i], next);
        if (sort->params.symmetrise && source[i] != destination[i])
            put_record(sort, source[i], destination[i], next);
    }
    sort->added += count;
    return PLIM_OK;
}

static bool is_summed(const plim__edge_field_t *field)
{
    return field->column == PLIM_EDGE_FEATURES || field->column == PLIM_EDGE_WEIGHT;
}

/* Whether duplicates change the field. */
static bool is_combined(const plim__edge_sort_t *sort, const plim__edge_field_t *field)
{
    return (sort->params.duplicates == PLIM_DUPLICATES_SUM && is_summed(field)) ||
           (sort->params.duplicates == PLIM_DUPLICATES_LARGEST &&
            (is_summed(field) || field->column == PLIM_EDGE_TIME));
}

static double float_at(plim__dtype_t type, const char *values, int64_t i)
{
    uint16_t half;
    float single;
    if (type == PLIM__NPY_F16) {
        memcpy(&half, values + (size_t)i * sizeof half, sizeof half);
        return (double)plim__f32_from_f16(half);
    }
    memcpy(&single, values + (size_t)i * sizeof single, sizeof single);
    return (double)single;
}

static int64_t whole_at(const char *values, int64_t i)
{
    int64_t value;
    memcpy(&value, values + (size_t)i * sizeof value, sizeof value);
    return value;
}

/* Adds the values of a field to its sums, or takes the larger ones. With `first` it begins them. */
static plim_status_t combine_field(const plim__edge_sort_t *sort, const plim__edge_field_t *field,
                                   const char *values, int64_t at, bool first)
{
    const bool sums = sort->params.duplicates == PLIM_DUPLICATES_SUM;
    for (int64_t i = 0; i < field->width; i++) {
        if (field->type == PLIM__NPY_I64) {
            const int64_t value = whole_at(values, i);
            int64_t *to = &sort->whole[at + i];
            if (first)
                *to = value;
            else if (!sums)
                *to = plim__max_i64(*to, value);
            else if (!plim__add_i64(*to, value, to))
                return plim__fail(
                    PLIM_ERR_DATA,
                    "the sum of a value of edges between the same nodes is too large");
        } else {
            const double value = float_at(field->type, values, i);
            double *to = &sort->sums[at + i];
            *to = first ? value : sums ? *to + value : value > *to ? value : *to;
        }
    }
    return PLIM_OK;
}

/* Combines the values of a record with those of the edge before it, which has the same ends. */
static plim_status_t combine(plim__edge_sort_t *sort, const char *values, bool first)
{
    int64_t at = 0;
    for (int i = 0; i < sort->params.num_fields; i++) {
        const plim__edge_field_t *field = &sort->params.fields[i];
        if (is_combined(sort, field))
            PLIM_TRY(combine_field(sort, field, values, at, first));
        values += field_bytes(field);
        at += field->width;
    }
    return PLIM_OK;
}

/* Puts the combined values into the last record. */
static plim_status_t take_combined(plim__edge_sort_t *sort)
{
    char *to = sort->last + sizeof(uint64_t);
    int64_t at = 0;
    for (int f = 0; f < sort->params.num_fields; f++) {
        const plim__edge_field_t *field = &sort->params.fields[f];
        for (int64_t i = 0; i < field->width && is_combined(sort, field); i++) {
            const float single = (float)sort->sums[at + i];
            const uint16_t half = plim__f16_from_f32(single);
            if (field->type == PLIM__NPY_I64)
                memcpy(to + (size_t)i * sizeof(int64_t), &sort->whole[at + i], sizeof(int64_t));
            else if (!isfinite(field->type == PLIM__NPY_F16 ? plim__f32_from_f16(half) : single))
                return plim__fail(PLIM_ERR_DATA,
                                  "the sum of a value of edges between the same nodes is too large "
                                  "for %s",
                                  field->type == PLIM__NPY_F16 ? "f16" : "f32");
            else if (field->type == PLIM__NPY_F16)
                memcpy(to + (size_t)i * sizeof half, &half, sizeof half);
            else
                memcpy(to + (size_t)i * sizeof single, &single, sizeof single);
        }
        to += field_bytes(field);
        at += field->width;
    }
    return PLIM_OK;
}

/* Writes the offsets of the lists up to that of `node`. */
static plim_status_t write_offsets(plim__edge_sort_t *sort, int64_t node)
{
    for (; sort->next_node <= node; sort->next_node++) {
        PLIM_TRY(plim__column_write(sort->indptr, &sort->num_edges, sizeof sort->num_edges));
        sort->loops = 0;
    }
    return PLIM_OK;
}

/* Writes the last edge. */
static plim_status_t write_last(plim__edge_sort_t *sort)
{
    uint64_t key;
    if (!sort->any)
        return PLIM_OK;
    if (sort->combined)
        PLIM_TRY(take_combined(sort));
    sort->combined = false;
    memcpy(&key, sort->last, sizeof key);
    const int64_t destination = (int64_t)(key >> sort->shape.bits);
    const int64_t source = (int64_t)(key & (((uint64_t)1 << sort->shape.bits) - 1));
    const uint32_t narrow = (uint32_t)source;
    PLIM_TRY(write_offsets(sort, destination));
    if (index_size(&sort->params) == (int64_t)sizeof narrow)
        PLIM_TRY(plim__column_write(sort->indices, &narrow, sizeof narrow));
    else
        PLIM_TRY(plim__column_write(sort->indices, &source, sizeof source));
    const char *values = sort->last + sizeof key;
    for (int i = 0; i < sort->params.num_fields; i++) {
        const size_t bytes = field_bytes(&sort->params.fields[i]);
        PLIM_TRY(plim__column_write(sort->columns[i], values, bytes));
        values += bytes;
    }
    sort->num_edges++;
    sort->loops += source == destination;
    sort->max_loops = plim__max_i64(sort->max_loops, sort->loops);
    return PLIM_OK;
}

/* Takes the next record in the order of the lists. */
static plim_status_t take_record(plim__edge_sort_t *sort, const char *record)
{
    const bool same = sort->any && sort->params.remove_duplicates &&
                      memcmp(record, sort->last, sizeof(uint64_t)) == 0;
    if (same && sort->params.duplicates == PLIM_DUPLICATES_FIRST)
        return PLIM_OK;
    if (same) {
        if (!sort->combined)
            PLIM_TRY(combine(sort, sort->last + sizeof(uint64_t), true));
        sort->combined = true;
        return combine(sort, record + sizeof(uint64_t), false);
    }
    PLIM_TRY(write_last(sort));
    memcpy(sort->last, record, sort->shape.record);
    sort->any = true;
    return PLIM_OK;
}

/* Reads the next chunk of a run. */
static plim_status_t refill(plim__edge_sort_t *sort, run_t *run)
{
    const size_t chunk = sort->shape.chunk;
    run->at = 0;
    run->have = plim__min_i64(run->left, (int64_t)(chunk / sort->shape.record));
    run->left -= run->have;
    if (run->have == 0)
        return PLIM_OK;
    PLIM_TRY(plim__job_check(&sort->job));
    return plim__file_read_at(&sort->file, run->chunk++ * (int64_t)chunk, run->buffer, chunk);
}

static const char *front(const plim__edge_sort_t *sort, const run_t *run)
{
    return run->buffer + (size_t)run->at * sort->shape.record;
}

/* Whether run a's next record comes before run b's: by key, then in the order of the runs. */
static bool is_before(const plim__edge_sort_t *sort, int64_t a, int64_t b)
{
    uint64_t x, y;
    memcpy(&x, front(sort, &sort->runs[a]), sizeof x);
    memcpy(&y, front(sort, &sort->runs[b]), sizeof y);
    return x != y ? x < y : a < b;
}

/* Moves the run at `place` of the heap down to where it belongs. */
static void sift(plim__edge_sort_t *sort, int64_t place)
{
    int64_t *heap = sort->heap;
    for (int64_t child; (child = 2 * place + 1) < sort->heap_size; place = child) {
        if (child + 1 < sort->heap_size && is_before(sort, heap[child + 1], heap[child]))
            child++;
        if (!is_before(sort, heap[child], heap[place]))
            return;
        const int64_t run = heap[place];
        heap[place] = heap[child];
        heap[child] = run;
    }
}

static plim_status_t merge_runs(plim__edge_sort_t *sort)
{
    plim__arena_t area = {.base = sort->area, .size = sort->shape.area};
    int64_t done = 0;
    if (sort->fill > 0)
        PLIM_TRY(write_run(sort));
    for (int64_t i = 0; i < sort->runs_done; i++) {
        sort->runs[i].buffer = plim__arena_carve(&area, 1, sort->shape.chunk, PLIM__PAGE);
        PLIM_TRY(refill(sort, &sort->runs[i]));
        sort->heap[sort->heap_size++] = i;
    }
    for (int64_t i = sort->heap_size / 2; i-- > 0;)
        sift(sort, i);
    while (sort->heap_size > 0) {
        run_t *run = &sort->runs[sort->heap[0]];
        PLIM_TRY(take_record(sort, front(sort, run)));
        if (++run->at == run->have)
            PLIM_TRY(refill(sort, run));
        if (run->have == 0)
            sort->heap[0] = sort->heap[--sort->heap_size];
        sift(sort, 0);
        if (++done % STOP_EDGES == 0)
            plim__progress(&sort->job, "sorting edges", "edges", done, sort->shape.records);
    }
    plim__progress(&sort->job, "sorting edges", "edges", sort->shape.records, sort->shape.records);
    return PLIM_OK;
}

static plim_status_t write_sorted(plim__edge_sort_t *sort)
{
    const sort_pair_t *sorted = sort_pairs(sort);
    for (int64_t i = 0; i < sort->fill; i++) {
        if (i % STOP_EDGES == 0) {
            PLIM_TRY(plim__job_check(&sort->job));
            plim__progress(&sort->job, "sorting edges", "edges", i, sort->fill);
        }
        PLIM_TRY(take_record(sort, record_at(sort, sorted[i].record)));
    }
    plim__progress(&sort->job, "sorting edges", "edges", sort->fill, sort->fill);
    return PLIM_OK;
}

static plim_status_t open_columns(plim__edge_sort_t *sort, plim__dataset_writer_t *writer)
{
    const plim__edge_sort_params_t *params = &sort->params;
    const size_t buffer = sort->shape.column_buffer;
    const int64_t offsets = params->num_nodes + 1, width = index_size(params), open = -1;
    const int64_t most = sort->shape.records;
    PLIM_TRY(plim__column_open(writer, "indptr", PLIM__NPY_I64, 1, &offsets, offsets * 8, buffer,
                               &sort->indptr));
    PLIM_TRY(plim__column_open(writer, "indices", plim__index_written(params->num_nodes), 1, &open,
                               most * width, buffer, &sort->indices));
    for (int i = 0; i < params->num_fields; i++) {
        const plim__edge_field_t *field = &params->fields[i];
        const int64_t shape[2] = {-1, field->width};
        const char *name = plim__column_names[__builtin_ctz((unsigned)field->column)];
        PLIM_TRY(plim__column_open(writer, name, field->type, field->num_dims, shape,
                                   plim__mul_saturating_i64(most, (int64_t)field_bytes(field)),
                                   buffer, &sort->columns[i]));
    }
    return PLIM_OK;
}

plim_status_t plim__edge_sort_finish(plim__edge_sort_t *sort, plim__dataset_writer_t *writer)
{
    PLIM_TRY(open_columns(sort, writer));
    PLIM_TRY(sort->shape.num_runs > 1 ? merge_runs(sort) : write_sorted(sort));
    PLIM_TRY(write_last(sort));
    PLIM_TRY(write_offsets(sort, sort->params.num_nodes));
    PLIM_TRY(plim__column_close(sort->indptr));
    PLIM_TRY(plim__column_close(sort->indices));
    for (int i = 0; i < sort->params.num_fields; i++)
        PLIM_TRY(plim__column_close(sort->columns[i]));
    plim__dataset_self_loops(writer, sort->max_loops);
    return PLIM_OK;
}
