/*
 * Chooses how a build uses its memory.
 *
 *     arena ├ object, ranges ├ gathers: a worker's few keys for each range ├ slots ├ pool ──────┤
 *     pool  while adding:    ├ chunk a range ├ resident and written chunks ├ spare              ┤
 *           while finishing: ├ area of sorter 0 ├ area of sorter 1 ├ …                          ┤
 *
 * A smaller range fits into a sorter's area and is sorted faster in the cache, but more ranges
 * leave less memory for the chunk of each, and disks need large chunks. The search tries all powers
 * of two of both and takes the cheapest by the estimate in `cost`.
 */
#include "ingest/csc_internal.h"

#include "base/check.h"
#include "base/threads.h"
#include "io/engine.h"

#include <math.h>

#define CHUNK_MIN PLIM__PAGE
#define CHUNK_MIN_DISK ((size_t)16 << 10)
#define CHUNK_MAX ((size_t)512 << 10)

/* An I/O request costs about as much as transferring this many bytes. */
#define IO_BYTES ((size_t)16 << 10)

/* Most keys of a range that one pass over memory sorts; more cost a little more. */
#define RANGE_KEYS ((int64_t)1 << 20)
#define RANGE_KEYS_MIN ((int64_t)32 << 10)

/* The keys that a worker gathers should stay in its second-level cache. */
#define GATHER_BYTES ((size_t)512 << 10)
#define COMBINE_MIN 8
#define COMBINE_MAX 64

#define NODES_MAX ((int64_t)1 << 40)
#define EDGES_MAX ((int64_t)1 << 56)

/* Depth and buffers for a memory budget. */
typedef struct tier {
    size_t memory; /* minimum budget of this tier */
    int depth;
    size_t column_buffer;
    int extra_sorters; /* beyond the job's threads, to sort while another one reads */
} tier_t;

static const tier_t tiers[] = {
    {(size_t)384 << 20, 32, (size_t)4 << 20, 1},
    {(size_t)48 << 20, 16, (size_t)512 << 10, 1},
    {0, 4, (size_t)64 << 10, 0},
};

#define NUM_TIERS ((int)(sizeof tiers / sizeof tiers[0]))

/* Upper bounds for the overhead of a buffer and for rounding. */
#define BUFFER_ENTRY 64
#define SLACK PLIM__PAGE

static int bits_for(int64_t value)
{
    return value > 0 ? 64 - __builtin_clzll((unsigned long long)value) : 0;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

static bool add_to(size_t *sum, size_t size)
{
    return plim__add_size(*sum, size, sum);
}

/* Computes the total memory. False when it overflows. */
static bool measure(const plim_job_t *job, const plim__csc_params_t *params,
                    plim__csc_shape_t *shape)
{
    plim__csc_t draft = {.job = *job, .shape = *shape};
    const size_t arena = plim__object_bytes(plim__csc_lay_out, &draft, sizeof draft);
    size_t index_bytes;
    if (arena > SIZE_MAX / 2 ||
        !plim__mul_size((size_t)(shape->keys + shape->loops), sizeof(int64_t), &index_bytes))
        return false;
    shape->total = arena;
    int64_t indptr_bytes = (params->num_nodes + 1) * (int64_t)sizeof(int64_t);
    size_t engine =
        shape->spill.tmp != NULL ? plim__engine_estimate(job->io_engine, shape->spill.depth) : 0;
    return add_to(&shape->total, engine) &&
           add_to(&shape->total,
                  plim__column_estimate(job->io_engine, shape->column_buffer, indptr_bytes)) &&
           add_to(&shape->total, plim__column_estimate(job->io_engine, shape->column_buffer,
                                                       (int64_t)index_bytes)) &&
           add_to(&shape->total, (size_t)(shape->sorters - 1) * PLIM__STACK_BYTES);
}

/* Computes keys, bits and the tier, which do not depend on the search. */
static void begin_shape(const plim_job_t *job, const plim__csc_params_t *params, const tier_t *tier,
                        plim__csc_shape_t *shape)
{
    *shape = (plim__csc_shape_t){0};
    shape->keys = params->max_edges * (params->symmetrise ? 2 : 1);
    shape->loops = params->self_loops == PLIM_SELF_LOOPS_ADD ? params->num_nodes : 0;
    shape->source_bits = bits_for(params->num_nodes - 1);
    shape->column_buffer = tier->column_buffer;
    shape->spill.depth = tier->depth;
    shape->sorters = job->threads + tier->extra_sorters;
    if (shape->sorters > PLIM__THREADS_MAX)
        shape->sorters = PLIM__THREADS_MAX;
}

/* The minimum of useful range bits (most ranges), and the maximum that fits into a key. */
static void range_bits(const plim_job_t *job, const plim__csc_shape_t *shape, int *least_out,
                       int *most_out)
{
    int node_bits = shape->source_bits;
    int64_t keys = shape->keys + shape->loops;
    int64_t aim = keys / ((int64_t)8 * job->threads);
    aim = plim__max_i64(plim__min_i64(aim, RANGE_KEYS), RANGE_KEYS_MIN);
    int want = bits_for(keys / aim);
    *most_out = node_bits <= 64 - shape->source_bits ? node_bits : 64 - shape->source_bits;
    *least_out = node_bits > want ? node_bits - want : 0;
    if (*least_out > *most_out)
        *least_out = *most_out;
}

static void set_ranges(const plim__csc_params_t *params, int bits, size_t chunk,
                       plim__csc_shape_t *shape)
{
    shape->range_bits = bits;
    shape->num_ranges = plim__max_i64(1, divide_up(params->num_nodes, (int64_t)1 << bits));
    shape->combine = COMBINE_MIN;
    shape->spill.chunk = chunk;
    shape->spill.num_buffers = 0;
}

/* Keys for each range, limited by the cache and a sixteenth of the memory. */
static void set_combine(const plim_job_t *job, size_t memory, plim__csc_shape_t *shape)
{
    size_t bytes = (size_t)shape->num_ranges * sizeof(uint64_t);
    shape->combine = COMBINE_MAX;
    while (shape->combine > COMBINE_MIN &&
           (bytes * (size_t)shape->combine > GATHER_BYTES ||
            bytes * (size_t)shape->combine * (size_t)job->threads > memory / 16))
        shape->combine /= 2;
}

static int64_t chunk_keys(const plim__csc_shape_t *shape)
{
    return (int64_t)(shape->spill.chunk / sizeof(uint64_t));
}

/* Buffers for a build without spill: all keys, and twice as many to sort them. */
static int64_t buffers_for_all(const plim__csc_shape_t *shape)
{
    int64_t chunks = divide_up(shape->keys, chunk_keys(shape)) + shape->num_ranges;
    int64_t area = divide_up(shape->keys + shape->loops, chunk_keys(shape)) + 1;
    return chunks + plim__max_i64(2 * area, PLIM__CSC_AREA_CHUNKS);
}

/* Minimum number of buffers: one a range and some spare ones, and one area. */
static int64_t buffers_for_minimum(const plim__csc_shape_t *shape)
{
    int64_t spare = plim__max_i64(4, shape->num_ranges / 8);
    return plim__max_i64(shape->num_ranges + spare, PLIM__CSC_AREA_CHUNKS);
}

static bool shape_in_memory(const plim_job_t *job, const plim__csc_params_t *params, size_t memory,
                            plim__csc_shape_t *shape)
{
    int minimum, most;
    range_bits(job, shape, &minimum, &most);
    set_ranges(params, minimum, CHUNK_MIN, shape);
    int64_t bytes = shape->keys / shape->num_ranges * (int64_t)sizeof(uint64_t);
    while (shape->spill.chunk < CHUNK_MAX && (int64_t)shape->spill.chunk * 8 <= bytes)
        shape->spill.chunk *= 2;
    shape->spill.tmp = NULL;
    shape->spill.num_buffers = buffers_for_all(shape);
    shape->split_bits = shape->split_levels = 0;
    if (!measure(job, params, shape) || shape->total > memory)
        return false;
    plim__csc_shape_t wider = *shape;
    set_combine(job, memory, &wider);
    if (measure(job, params, &wider) && wider.total <= memory)
        *shape = wider;
    return true;
}

/* Parts of a split: each needs one buffer, and as many again for reading and writing. */
static void set_split(int64_t area_chunks, plim__csc_shape_t *shape)
{
    shape->split_bits = 3;
    while (shape->split_bits < 6 && (int64_t)4 << shape->split_bits <= area_chunks)
        shape->split_bits++;
    shape->split_levels = 64 / shape->split_bits + 1;
    shape->spill.num_slots = divide_up(shape->keys + shape->loops, chunk_keys(shape)) +
                             shape->num_ranges +
                             ((int64_t)shape->split_levels << shape->split_bits);
}

/* As many buffers as memory allows. False when they are too few. */
static bool set_buffers(const plim_job_t *job, const plim__csc_params_t *params, size_t memory,
                        plim__csc_shape_t *shape)
{
    shape->spill.num_buffers = 0;
    if (!measure(job, params, shape) || shape->total + SLACK >= memory)
        return false;
    size_t left = memory - shape->total - SLACK;
    int64_t buffers = (int64_t)(left / (shape->spill.chunk + BUFFER_ENTRY));
    shape->spill.num_buffers = plim__min_i64(buffers, buffers_for_all(shape));
    return shape->spill.num_buffers >= buffers_for_minimum(shape) && measure(job, params, shape) &&
           shape->total <= memory;
}

static bool shape_spilling(const plim_job_t *job, const plim__csc_params_t *params, size_t memory,
                           plim__csc_shape_t *shape)
{
    shape->spill.tmp = params->tmp;
    set_combine(job, memory, shape);
    set_split((int64_t)(memory / shape->spill.chunk) / shape->sorters / 2, shape);
    if (set_buffers(job, params, memory, shape))
        return true;
    shape->combine = COMBINE_MIN;
    set_split(0, shape);
    return set_buffers(job, params, memory, shape);
}

/* Estimated time of a layout, in passes over the spill. */
static double cost(const plim__csc_shape_t *shape)
{
    double average = (double)(shape->keys + shape->loops) / (double)shape->num_ranges;
    double capacity = (double)shape->spill.num_buffers * (double)chunk_keys(shape) / 2;
    double io = 1 + (double)IO_BYTES / (double)shape->spill.chunk;
    double passes = 1;
    double sorting = average > (double)RANGE_KEYS ? 0.05 * log2(average / (double)RANGE_KEYS) : 0;
    int64_t most = shape->spill.num_buffers / PLIM__CSC_AREA_CHUNKS;
    double sorters = (double)plim__min_i64(shape->sorters, most);
    /* Ranges differ in size: with half an area on average, most fit. */
    for (; average > capacity / sorters / 2; passes++)
        average /= (double)(1 << shape->split_bits);
    return io * passes + sorting;
}

/* The cheapest layout with the buffers of a tier. */
static bool shape_in_tier(const plim_job_t *job, const plim__csc_params_t *params,
                          const tier_t *tier, plim__csc_shape_t *shape_out)
{
    plim__csc_shape_t shape;
    size_t memory = params->memory;
    int minimum, most;
    bool found = false;
    begin_shape(job, params, tier, &shape);
    if (shape_in_memory(job, params, memory, &shape)) {
        *shape_out = shape;
        return true;
    }
    range_bits(job, &shape, &minimum, &most);
    for (int bits = minimum; bits <= most; bits++) {
        for (size_t chunk = CHUNK_MAX; chunk >= CHUNK_MIN_DISK; chunk /= 2) {
            set_ranges(params, bits, chunk, &shape);
            if (shape_spilling(job, params, memory, &shape) &&
                (!found || cost(&shape) < cost(shape_out))) {
                *shape_out = shape;
                found = true;
            }
        }
    }
    return found;
}

static bool sensible(const plim_job_t *job, const plim__csc_params_t *params)
{
    return params->num_nodes >= 0 && params->num_nodes <= NODES_MAX && params->max_edges >= 0 &&
           params->max_edges <= EDGES_MAX && job->threads >= 1 &&
           job->threads <= PLIM__THREADS_MAX && params->tmp != NULL;
}

bool plim__csc_shape(const plim_job_t *job, const plim__csc_params_t *params,
                     plim__csc_shape_t *shape_out)
{
    if (!sensible(job, params))
        return false;
    for (int i = 0; i < NUM_TIERS; i++)
        if (params->memory >= tiers[i].memory && shape_in_tier(job, params, &tiers[i], shape_out))
            return true;
    return false;
}

/* The smallest total of all layouts with the smallest tier: the search succeeds from there on. */
size_t plim__csc_minimum(const plim_job_t *job, const plim__csc_params_t *params)
{
    plim__csc_shape_t shape;
    int minimum, most;
    size_t total = SIZE_MAX;
    if (!sensible(job, params))
        return SIZE_MAX;
    begin_shape(job, params, &tiers[NUM_TIERS - 1], &shape);
    if (shape_in_memory(job, params, 0, &shape) || shape.total > 0)
        total = shape.total;
    range_bits(job, &shape, &minimum, &most);
    for (size_t chunk = CHUNK_MAX; chunk >= CHUNK_MIN_DISK; chunk /= 2) {
        set_ranges(params, most, chunk, &shape);
        shape.spill.tmp = params->tmp;
        set_split(0, &shape);
        shape.spill.num_buffers = buffers_for_minimum(&shape);
        if (!measure(job, params, &shape))
            continue;
        size_t sum = shape.total + SLACK + (size_t)shape.spill.num_buffers * BUFFER_ENTRY;
        if (sum < total)
            total = sum;
    }
    return total;
}

/* Bytes of all keys, with self-loops in split ranges; the last chunk of each range is rounded up to
 * a page. */
static int64_t spilled(const plim__csc_params_t *params, int64_t num_ranges)
{
    int64_t loops = params->self_loops == PLIM_SELF_LOOPS_ADD ? params->num_nodes : 0;
    int64_t keys = params->max_edges * (params->symmetrise ? 2 : 1) + loops;
    return keys * (int64_t)sizeof(uint64_t) + plim__min_i64(num_ranges, keys) * (int64_t)PLIM__PAGE;
}

/* Maximum bytes of the spill on disk for any memory, INT64_MAX for impossible parameters. There are
 * at most twice as many ranges as RANGE_KEYS_MIN gives, since they are powers of two, or as many as
 * a key with more than 64 bits for both ends needs. */
static int64_t spill_bytes(const plim_job_t *job, const plim__csc_params_t *params)
{
    if (!sensible(job, params))
        return INT64_MAX;
    int64_t keys = params->max_edges * (params->symmetrise ? 2 : 1);
    int64_t loops = params->self_loops == PLIM_SELF_LOOPS_ADD ? params->num_nodes : 0;
    int64_t ranges = 2 * ((keys + loops) / RANGE_KEYS_MIN) + 2;
    if (params->num_nodes > (int64_t)1 << 32)
        ranges = plim__max_i64(ranges, (int64_t)1 << 16);
    return spilled(params, ranges);
}

int64_t plim__csc_spill_with(const plim_job_t *job, const plim__csc_params_t *params)
{
    plim__csc_shape_t shape;
    if (!plim__csc_shape(job, params, &shape))
        return spill_bytes(job, params);
    return shape.spill.tmp == NULL ? 0 : spilled(params, shape.num_ranges);
}
