/*
 * Finishes a build: several threads read and sort ranges, which are written in order. If nothing
 * was spilled, the keys stay in memory and the sorters use the unused rest of the pool. Otherwise
 * all keys are written to disk first, and the sorters use the whole pool.
 */
#include "ingest/csc_internal.h"

#include "base/fail.h"
#include "base/job.h"
#include "base/radix.h"
#include "base/threads.h"

/* Removes duplicates and self-loops from sorted keys as the parameters say. Returns their number.
 */
static int64_t clean(const plim__csc_t *csc, uint64_t *keys, int64_t count, int64_t first_node)
{
    const plim__csc_params_t *params = &csc->params;
    int bits = csc->shape.source_bits;
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    bool all = params->remove_duplicates;
    bool drop_loops = params->self_loops == PLIM_SELF_LOOPS_REMOVE;
    bool one_loop = params->self_loops == PLIM_SELF_LOOPS_ADD;
    int64_t kept = 0;
    uint64_t previous = count > 0 ? ~keys[0] : 0;
    for (int64_t i = 0; i < count; i++) {
        uint64_t key = keys[i];
        bool loop = (key & mask) == (key >> bits) + (uint64_t)first_node;
        bool again = key == previous;
        bool drop = (again && (all || (loop && one_loop))) || (loop && drop_loops);
        previous = key;
        keys[kept] = key;
        kept += !drop;
    }
    return kept;
}

/*
 * Splits sorted keys: writes sources, of 32 bits when `narrow`, else of 64, to `to`, and replaces
 * the keys by a record for each list. Returns the number of records. A run too long for a record
 * (duplicates kept) becomes several. A record is written only after as many keys were read.
 */
static inline __attribute__((always_inline)) int64_t unpack(uint64_t *keys, int64_t count, int bits,
                                                            void *to, bool narrow)
{
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    uint64_t node = count > 0 ? keys[0] >> bits : 0, run = 0;
    int64_t records = 0;
    for (int64_t i = 0; i < count; i++) {
        uint64_t key = keys[i];
        if (narrow)
            ((uint32_t *)to)[i] = (uint32_t)(key & mask);
        else
            ((int64_t *)to)[i] = (int64_t)(key & mask);
        if (key >> bits != node || run > mask) {
            keys[records++] = node << bits | (run - 1);
            node = key >> bits;
            run = 0;
        }
        run++;
    }
    if (count > 0)
        keys[records++] = node << bits | (run - 1);
    return records;
}

/* The most copies of a self-loop among sorted keys. */
static int64_t count_loops(const uint64_t *keys, int64_t count, int bits, int64_t first_node)
{
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    int64_t most = 0, run = 0;
    for (int64_t i = 0; i < count; i++) {
        if ((keys[i] & mask) != (keys[i] >> bits) + (uint64_t)first_node)
            continue;
        run = i > 0 && keys[i] == keys[i - 1] ? run + 1 : 1;
        most = run > most ? run : most;
    }
    return most;
}

void plim__csc_prepare(const plim__csc_t *csc, plim__csc_sorter_t *sorter, int64_t count, int bits,
                       int64_t first_node)
{
    uint64_t *halves[2];
    halves[0] = (uint64_t *)(void *)sorter->area;
    halves[1] = halves[0] + csc->capacity;
    uint64_t *keys = plim__radix_sort(halves[0], halves[1], count, bits);
    uint64_t *scratch = keys == halves[0] ? halves[1] : halves[0];
    if (csc->params.remove_duplicates || csc->params.self_loops != PLIM_SELF_LOOPS_KEEP)
        count = clean(csc, keys, count, first_node);
    sorter->records = keys;
    sorter->sources = scratch;
    sorter->num_sources = count;
    int source_bits = csc->shape.source_bits;
    sorter->max_self_loops = count_loops(keys, count, source_bits, first_node);
    if (csc->output.index_size == sizeof(uint32_t))
        sorter->num_records = unpack(keys, count, source_bits, scratch, true);
    else
        sorter->num_records = unpack(keys, count, source_bits, scratch, false);
}

/* Keys of the range, with self-loops to add. */
static int64_t range_keys(const plim__csc_t *csc, int64_t range)
{
    return csc->ranges[range].list.count + plim__csc_range_loops(csc, range);
}

static plim_status_t make_range(void *context, int worker, int64_t range)
{
    plim__csc_t *csc = context;
    plim__csc_sorter_t *sorter = &csc->sorters[worker];
    uint64_t *keys = (uint64_t *)(void *)sorter->area;
    int64_t first = plim__csc_range_first(csc, range), count;
    int bits = csc->shape.source_bits;
    sorter->num_keys = range_keys(csc, range);
    sorter->too_large = sorter->num_keys > csc->capacity;
    if (sorter->too_large)
        return PLIM_OK;
    PLIM_TRY(plim__job_check(&csc->job));
    PLIM_TRY(plim__spill_read(csc->spill, &csc->ranges[range].list, keys, csc->capacity, &count));
    int64_t loops = plim__csc_range_loops(csc, range);
    for (int64_t i = 0; i < loops; i++)
        keys[count++] = (uint64_t)i << bits | (uint64_t)(first + i);
    plim__csc_prepare(csc, sorter, count, bits + csc->shape.range_bits, first);
    return PLIM_OK;
}

static plim_status_t take_range(void *context, int worker, int64_t range)
{
    plim__csc_t *csc = context;
    plim__csc_sorter_t *sorter = &csc->sorters[worker];
    if (sorter->too_large)
        PLIM_TRY(plim__csc_split(csc, sorter, range));
    else
        PLIM_TRY(plim__csc_output_lists(csc, sorter, plim__csc_range_first(csc, range)));
    csc->sorted += sorter->num_keys;
    plim__progress(&csc->job, "sorting edges", "edges", csc->sorted, csc->total);
    return PLIM_OK;
}

/* Keys in ranges that an area of `chunks` chunks cannot hold. */
static int64_t keys_too_many(const plim__csc_t *csc, int64_t chunks)
{
    int64_t capacity = chunks / 2 * (int64_t)(csc->shape.spill.chunk / sizeof(uint64_t));
    int64_t sum = 0;
    for (int64_t i = 0; i < csc->shape.num_ranges; i++)
        sum += range_keys(csc, i) > capacity ? range_keys(csc, i) : 0;
    return sum;
}

/* Divides the chunks [first, first + chunks) of the pool among sorters. Returns their number. */
static int set_areas(plim__csc_t *csc, int64_t first, int64_t chunks, int sorters)
{
    csc->area_chunks = chunks / sorters;
    csc->capacity = csc->area_chunks / 2 * (int64_t)(csc->shape.spill.chunk / sizeof(uint64_t));
    csc->split_bits = csc->shape.split_bits;
    while (csc->split_bits > 0 && (int64_t)2 << csc->split_bits > csc->area_chunks)
        csc->split_bits--;
    for (int i = 0; i < sorters; i++)
        csc->sorters[i].area =
            csc->pool + (size_t)(first + i * csc->area_chunks) * csc->shape.spill.chunk;
    return sorters;
}

/*
 * Chooses the sorters' areas: as many sorters as possible while few ranges are too large. An area
 * has at least PLIM__CSC_AREA_CHUNKS, so that it can split a range.
 */
static plim_status_t divide_pool(plim__csc_t *csc, int *sorters_out)
{
    int64_t all = csc->shape.spill.num_buffers;
    int64_t untouched = plim__spill_untouched(csc->spill);
    if (plim__spill_written(csc->spill) == 0) {
        for (int n = csc->shape.sorters; n >= 1; n--) {
            if (keys_too_many(csc, untouched / n) == 0) {
                *sorters_out = set_areas(csc, all - untouched, untouched, n);
                return PLIM_OK;
            }
        }
    }
    PLIM_TRY(plim__spill_flush(csc->spill));
    int n = csc->shape.sorters;
    while (n > 1 &&
           (all / n < PLIM__CSC_AREA_CHUNKS || keys_too_many(csc, all / n) > csc->total / 8))
        n--;
    *sorters_out = set_areas(csc, 0, all, n);
    return PLIM_OK;
}

plim_status_t plim__csc_finish(plim__csc_t *csc, plim__dataset_writer_t *writer,
                               plim__csc_totals_t *totals_out)
{
    int sorters, account;
    PLIM_TRY(plim__csc_gathered(csc));
    for (int64_t i = 0; i < csc->shape.num_ranges; i++)
        csc->total += range_keys(csc, i);
    PLIM_TRY(divide_pool(csc, &sorters));
    PLIM_TRY(plim__csc_output_open(csc, writer));
    size_t stacks = (size_t)(sorters - 1) * PLIM__STACK_BYTES;
    PLIM_TRY(plim__ledger_reserve(csc->job.ledger, "csc threads", stacks, &account));
    plim_status_t status =
        plim__ordered(sorters, csc->shape.num_ranges, make_range, take_range, csc);
    plim__ledger_release(csc->job.ledger, account, stacks);
    PLIM_TRY(status);
    PLIM_TRY(plim__csc_output_close(csc));
    plim__dataset_self_loops(writer, csc->output.max_self_loops);
    *totals_out = (plim__csc_totals_t){.num_edges = csc->output.num_edges,
                                       .max_degree = csc->output.max_degree,
                                       .max_self_loops = csc->output.max_self_loops,
                                       .spill_bytes = plim__spill_written(csc->spill)};
    return PLIM_OK;
}
