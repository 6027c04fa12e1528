/*
 * Splits a range that is too large for a sorter's area: its keys go through the spill once more,
 * into parts by their highest bits, until a part fits or has only copies of one key. A node with
 * more in-edges than memory is thus divided by its sources.
 *
 *     area  ├ chunks being read ├ a chunk a part, and spare ones ┤   while splitting
 *           ├ keys              ├ spare keys                     ┤   while sorting a part
 *
 * Each part records the bits in which its keys differ, so the next split skips bits that are equal
 * in all keys. A range is split in its turn, so one thread at a time splits.
 */
#include "ingest/csc_internal.h"

#include "base/fail.h"
#include "base/job.h"

/* The split in progress. */
typedef struct part_split {
    plim__csc_t *csc;
    plim__csc_sorter_t *sorter;
    int64_t first_node;
    int64_t chunk_keys;
} part_split_t;

static plim_status_t part_add(const part_split_t *split, plim__csc_part_t *part, uint64_t key)
{
    if (part->buffer == NULL)
        PLIM_TRY(plim__spill_take(split->csc->spill, &part->buffer));
    if (part->list.count == 0 && part->fill == 0)
        part->first = key;
    part->differ |= key ^ part->first;
    part->buffer[part->fill++] = key;
    if (part->fill < split->chunk_keys)
        return PLIM_OK;
    uint64_t *buffer = part->buffer;
    part->buffer = NULL;
    part->fill = 0;
    return plim__spill_put(split->csc->spill, &part->list, buffer, split->chunk_keys);
}

/* Distributes the list's keys, and a self-loop for each of the first `loops` nodes. */
static plim_status_t distribute(const part_split_t *split, plim__spill_list_t *list, int64_t loops,
                                plim__csc_part_t *parts, int shift, uint64_t mask)
{
    plim__csc_t *csc = split->csc;
    uint64_t *keys = (uint64_t *)(void *)split->sorter->area;
    int64_t reading = csc->area_chunks / 4, count;
    plim__spill_lend(csc->spill, split->sorter->area + (size_t)reading * csc->shape.spill.chunk,
                     csc->area_chunks - reading);
    do {
        PLIM_TRY(plim__job_check(&csc->job));
        PLIM_TRY(plim__spill_read(csc->spill, list, keys, reading * split->chunk_keys, &count));
        for (int64_t i = 0; i < count; i++)
            PLIM_TRY(part_add(split, &parts[keys[i] >> shift & mask], keys[i]));
    } while (count > 0);
    for (int64_t i = 0; i < loops; i++) {
        uint64_t key = (uint64_t)i << csc->shape.source_bits | (uint64_t)(split->first_node + i);
        PLIM_TRY(part_add(split, &parts[key >> shift & mask], key));
    }
    for (uint64_t i = 0; i <= mask; i++)
        if (parts[i].fill > 0)
            PLIM_TRY(plim__spill_put(csc->spill, &parts[i].list, parts[i].buffer, parts[i].fill));
    return plim__spill_flush(csc->spill);
}

static plim_status_t write_repeated(const part_split_t *split, plim__csc_part_t *part)
{
    plim__csc_t *csc = split->csc;
    const plim__csc_params_t *params = &csc->params;
    int bits = csc->shape.source_bits;
    int64_t node = split->first_node + (int64_t)(part->first >> bits);
    int64_t source = (int64_t)(part->first & (((uint64_t)1 << bits) - 1));
    int64_t count = part->list.count;
    if (params->remove_duplicates || (node == source && params->self_loops == PLIM_SELF_LOOPS_ADD))
        count = 1;
    if (node == source && params->self_loops == PLIM_SELF_LOOPS_REMOVE)
        count = 0;
    plim__spill_drop(csc->spill, &part->list);
    return plim__csc_output_repeat(csc, node, source, count);
}

static plim_status_t split_list(const part_split_t *split, plim__spill_list_t *list, int bits,
                                int64_t loops, int level)
{
    plim__csc_t *csc = split->csc;
    int width = csc->split_bits < bits ? csc->split_bits : bits;
    int shift = bits - width;
    uint64_t mask = ((uint64_t)1 << width) - 1;
    plim__csc_part_t *parts = csc->parts + ((int64_t)level << csc->split_bits);
    for (uint64_t i = 0; i <= mask; i++)
        parts[i] = (plim__csc_part_t){.list = PLIM__SPILL_LIST_INIT};
    PLIM_TRY(distribute(split, list, loops, parts, shift, mask));
    for (uint64_t i = 0; i <= mask; i++) {
        plim__csc_part_t *part = &parts[i];
        int left = part->differ != 0 ? 64 - __builtin_clzll(part->differ) : 0;
        int64_t count;
        if (part->list.count == 0)
            continue;
        if (part->list.count <= csc->capacity) {
            PLIM_TRY(plim__spill_read(csc->spill, &part->list,
                                      (uint64_t *)(void *)split->sorter->area, csc->capacity,
                                      &count));
            plim__csc_prepare(csc, split->sorter, count, left, split->first_node);
            PLIM_TRY(plim__csc_output_lists(csc, split->sorter, split->first_node));
        } else if (left == 0) {
            PLIM_TRY(write_repeated(split, part));
        } else {
            PLIM_TRY(split_list(split, &part->list, left, 0, level + 1));
        }
    }
    return PLIM_OK;
}

plim_status_t plim__csc_split(plim__csc_t *csc, plim__csc_sorter_t *sorter, int64_t range)
{
    part_split_t split = {
        .csc = csc,
        .sorter = sorter,
        .first_node = plim__csc_range_first(csc, range),
        .chunk_keys = (int64_t)(csc->shape.spill.chunk / sizeof(uint64_t)),
    };
    int64_t loops = plim__csc_range_loops(csc, range);
    int bits = csc->shape.source_bits + csc->shape.range_bits;
    return split_list(&split, &csc->ranges[range].list, bits, loops, 0);
}
