#include "source/list_cache.h"

#include "base/check.h"
#include "base/fail.h"

#include <string.h>

#define ACCOUNT "list cache"
#define BLOCK ((int64_t)1 << PLIM__LIST_BLOCK_BITS)
#define AHEAD 16 /* nodes between a prefetch and its use */

/* Layout of a cache of `num_lists` lists and `num_entries` entries. */
static plim__list_cache_t carve(plim__arena_t *arena, const plim_dataset_info_t *info,
                                const plim__source_params_t *params, int64_t num_lists,
                                int64_t num_entries)
{
    plim__list_cache_t cache = {.base = {.all = params->all, .num_items = num_lists},
                                .num_nodes = info->num_nodes,
                                .num_entries = num_entries,
                                .width = plim__index_bytes(info->index_type)};
    const size_t bytes = plim__mul_saturating_size((size_t)num_entries, cache.width);
    const size_t lists = params->all || plim__list_cache_packs(params) ? 0 : (size_t)num_lists;
    plim__droppable_carve(arena, bytes, params->workers, &cache.base.memory);
    cache.blocks = plim__arena_carve(arena, lists / (size_t)BLOCK + 1, sizeof(int64_t), 1);
    cache.starts = plim__arena_carve(arena, lists, sizeof(uint32_t), 1);
    return cache;
}

static size_t bytes_of(const plim_dataset_info_t *info, const plim__source_params_t *params,
                       int64_t num_lists, int64_t num_entries)
{
    plim__arena_t arena = plim__arena_counting();
    (void)carve(&arena, info, params, num_lists, num_entries);
    (void)plim__arena_carve(&arena, 1, sizeof(plim__list_cache_t), 1);
    return plim__round_up(arena.used, PLIM__PAGE);
}

size_t plim__list_cache_estimate(const plim_dataset_t *dataset, const plim__source_params_t *params)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const int64_t lists =
        params->all || params->cached == NULL ? info->num_nodes : params->cached->count;
    const size_t all = bytes_of(info, params, lists, info->num_edges);
    const size_t bytes = params->cache_bytes & ~(PLIM__PAGE - 1);
    return params->all || all < bytes ? all : bytes;
}

/* The next list of the walk; false after the last. */
static bool next_list(plim__cache_walk_t *walk, const plim__offsets_t *offsets,
                      plim__list_t *list_out)
{
    const int64_t node = plim__cache_walk_next(walk);
    if (node < 0)
        return false;
    if (walk->next + AHEAD < walk->count)
        plim__offsets_prefetch(offsets, walk->listed[walk->next + AHEAD]);
    *list_out = plim__offsets_list(offsets, node);
    return true;
}

/* Counts how many lists fit the cache and the 32-bit offsets within their block. */
static void measure(const plim_dataset_info_t *info, const plim__offsets_t *offsets,
                    const plim__source_params_t *params, int64_t *num_lists_out,
                    int64_t *num_entries_out)
{
    const int64_t width = (int64_t)plim__index_bytes(info->index_type);
    const int64_t fixed = (int64_t)(bytes_of(info, params, 0, 0) + 4 * PLIM__PAGE);
    int64_t num_lists = 0, num_entries = 0, block_start = 0;
    plim__cache_walk_t walk;
    plim__list_t list;
    plim__cache_walk_start(&walk, params->cached, 0);
    while (next_list(&walk, offsets, &list)) {
        /* An upper bound; the exact size is computed only when the bound is too large. */
        const int64_t entries = (num_entries + list.degree) * width, lists = num_lists * 4;
        const int64_t bytes =
            fixed + entries + entries / (int64_t)PLIM__DROPPABLE_CHUNK + lists + lists / BLOCK * 2;
        if (num_lists % BLOCK == 0)
            block_start = num_entries;
        if (num_entries - block_start > UINT32_MAX ||
            (bytes > (int64_t)params->cache_bytes &&
             bytes_of(info, params, num_lists + 1, num_entries + list.degree) >
                 params->cache_bytes))
            break;
        num_lists++;
        num_entries += list.degree;
    }
    *num_lists_out = num_lists;
    *num_entries_out = num_entries;
}

/* The same of a working set's lists: the first places whose entries fit. */
static void measure_packed(const plim_dataset_info_t *info, const plim__source_params_t *params,
                           int64_t *num_lists_out, int64_t *num_entries_out)
{
    const plim__working_set_t *set = params->working_set;
    const int64_t places = plim__working_set_list_places(set);
    int64_t low = 0, high = places;
    *num_entries_out = 0;
    while (low < high) {
        const int64_t middle = high - (high - low) / 2;
        const int64_t entries = middle == places ? set->class_entries[PLIM__ORDER_CLASSES]
                                                 : plim__working_set_list_start(set, middle);
        if (bytes_of(info, params, middle, entries) <= params->cache_bytes) {
            low = middle;
            *num_entries_out = entries;
        } else {
            high = middle - 1;
        }
    }
    *num_lists_out = low;
}

static void set_starts(plim__list_cache_t *cache)
{
    plim__cache_walk_t walk;
    plim__list_t list = {0, 0};
    int64_t start = 0;
    plim__cache_walk_start(&walk, &cache->base.nodes, 0);
    for (int64_t i = 0; i < cache->base.num_items && next_list(&walk, cache->offsets, &list); i++) {
        if (i % BLOCK == 0)
            cache->blocks[i / BLOCK] = start;
        cache->starts[i] = (uint32_t)(start - cache->blocks[i / BLOCK]);
        start += list.degree;
    }
}

static char *place_of(const plim__list_cache_t *cache, int64_t entry)
{
    return cache->base.memory.base + (size_t)entry * cache->width;
}

/* The list that holds the entry at `place`: the last one that begins there or before. */
static int64_t list_at(const plim__list_cache_t *cache, int64_t place)
{
    int64_t low = 0, high = cache->base.num_items;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (plim__list_cache_start(cache, middle, 0) <= place)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static plim_status_t add_read(const plim__list_cache_t *cache, plim__cache_reads_t *reads,
                              int64_t first, int64_t count, int64_t place)
{
    return plim__cache_reads_add(reads, PLIM__NPY_HEADER + first * (int64_t)cache->width,
                                 (size_t)count * cache->width, place_of(cache, place));
}

/* Queues reads of the entries [from, to) of a working set's lists, from indices.npy. */
static plim_status_t add_packed_reads(const plim__list_cache_t *cache, plim__cache_reads_t *reads,
                                      int64_t from, int64_t to)
{
    memset(place_of(cache, from), 0, (size_t)(to - from) * cache->width); /* for gaps */
    for (int64_t at = list_at(cache, from); at < cache->base.num_items; at++) {
        const int64_t node = plim__working_set_list_node(cache->set, at);
        const int64_t start = plim__list_cache_start(cache, at, 0);
        if (start >= to)
            break;
        if (node < 0)
            continue;
        const plim__list_t list = plim__offsets_list(cache->offsets, node);
        const int64_t first = plim__max_i64(start, from);
        const int64_t end = plim__min_i64(start + list.degree, to);
        if (first < end)
            PLIM_TRY(add_read(cache, reads, list.start + first - start, end - first, first));
    }
    return PLIM_OK;
}

/* Queues reads of the cached entries [from, to). */
static plim_status_t add_reads(const plim__list_cache_t *cache, plim__cache_reads_t *reads,
                               int64_t from, int64_t to)
{
    plim__cache_walk_t walk;
    plim__list_t list = {0, 0};
    if (from == to)
        return PLIM_OK;
    if (cache->base.all)
        return add_read(cache, reads, from, to - from, from);
    if (cache->set != NULL)
        return add_packed_reads(cache, reads, from, to);
    const int64_t first = list_at(cache, from);
    int64_t start = plim__list_cache_start(cache, first, 0);
    plim__cache_walk_start(&walk, &cache->base.nodes,
                           plim__node_set_select(&cache->base.nodes, first));
    for (int64_t at = from; at < to;) {
        (void)next_list(&walk, cache->offsets, &list);
        int64_t end = plim__min_i64(start + list.degree, to);
        PLIM_TRY(add_read(cache, reads, list.start + at - start, end - at, at));
        start += list.degree;
        at = end;
    }
    return PLIM_OK;
}

/* Builds the error for the file entry at cache position `place`. */
static plim_status_t fail_entry(const plim__list_cache_t *cache, int64_t place, int64_t value)
{
    int64_t entry = place;
    if (!cache->base.all) {
        const int64_t position = list_at(cache, place);
        const int64_t node = cache->set != NULL
                                 ? plim__working_set_list_node(cache->set, position)
                                 : plim__node_set_select(&cache->base.nodes, position);
        const plim__list_t list = plim__offsets_list(cache->offsets, node);
        entry = list.start + place - plim__list_cache_start(cache, position, 0);
    }
    return plim__index_fail(cache->base.source->file.path, entry, value, cache->num_nodes);
}

#define COMPLEMENT(name, type, unsigned_type)                                                      \
    /* False if an entry is not a node. */                                                         \
    static bool name(const type *from, type *to, int64_t count, int64_t num_nodes)                 \
    {                                                                                              \
        const unsigned_type last = (unsigned_type)(num_nodes - 1);                                 \
        unsigned wrong = 0;                                                                        \
        for (int64_t i = 0; i < count; i++) {                                                      \
            wrong |= (unsigned_type)from[i] > last;                                                \
            to[i] = ~from[i];                                                                      \
        }                                                                                          \
        return wrong == 0;                                                                         \
    }

COMPLEMENT(complement_u32, uint32_t, uint32_t)
COMPLEMENT(complement_i64, int64_t, uint64_t)

/* Checks `count` entries at `from` and writes their complements from position `place` on. */
static plim_status_t complement(const plim__list_cache_t *cache, const void *from, int64_t place,
                                int64_t count)
{
    void *to = place_of(cache, place);
    const bool narrow = cache->width == sizeof(int32_t);
    const bool right = narrow ? complement_u32(from, to, count, cache->num_nodes)
                              : complement_i64(from, to, count, cache->num_nodes);
    for (int64_t i = 0; !right && i < count; i++) {
        const int64_t value = narrow ? ~((const uint32_t *)to)[i] : ~((const int64_t *)to)[i];
        if ((uint64_t)value >= (uint64_t)cache->num_nodes)
            return fail_entry(cache, place + i, value);
    }
    return PLIM_OK;
}

static plim_status_t fill_from_dataset(const plim__list_cache_t *cache, int worker, int64_t from,
                                       int64_t to)
{
    plim__cache_reads_t reads = {cache->base.source, &cache->base.source->file, worker, 0};
    PLIM_TRY(add_reads(cache, &reads, from, to));
    PLIM_TRY(plim__cache_reads_run(&reads));
    return complement(cache, place_of(cache, from), from, to - from);
}

static plim_status_t fill_from_set(const plim__list_cache_t *cache, int worker, int64_t from,
                                   int64_t to)
{
    plim__cache_reads_t reads = {cache->base.source, &cache->set->file, worker, 0};
    PLIM_TRY(plim__cache_reads_add(&reads, plim__working_set_entry_offset(cache->set, from),
                                   (size_t)(to - from) * cache->width, place_of(cache, from)));
    PLIM_TRY(plim__cache_reads_run(&reads));
    return complement(cache, place_of(cache, from), from, to - from);
}

/* Fills a range of the memory: reads its lists in place and complements them. */
static plim_status_t fill(void *context, int worker, int64_t at, size_t size)
{
    const plim__list_cache_t *cache = context;
    const int64_t width = (int64_t)cache->width, from = at / width;
    const int64_t to = plim__min_i64((at + (int64_t)size) / width, cache->num_entries);
    if (cache->set != NULL && atomic_load(&cache->set->readable) && from < to) {
        const plim_status_t status = fill_from_set(cache, worker, from, to);
        if (status != PLIM_ERR_DATA && status != PLIM_ERR_IO)
            return status;
        plim__working_set_lost(cache->set);
    }
    return fill_from_dataset(cache, worker, from, to);
}

static plim_status_t take_chunk(void *context, int worker, int64_t chunk, void *data, size_t size)
{
    const plim__list_cache_t *cache = context;
    const int64_t width = (int64_t)cache->width;
    (void)worker;
    return complement(cache, data, chunk * PLIM__CACHE_CHUNK / width, (int64_t)size / width);
}

plim_status_t plim__list_cache_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                      const plim__offsets_t *offsets,
                                      const plim__source_params_t *params, plim__source_t *source,
                                      plim__list_cache_t **cache_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    plim__arena_t arena;
    int64_t num_lists = info->num_nodes, num_entries = info->num_edges;
    if (plim__list_cache_packs(params))
        measure_packed(info, params, &num_lists, &num_entries);
    else if (!params->all)
        measure(info, offsets, params, &num_lists, &num_entries);
    if (num_lists == 0) {
        *cache_out = NULL;
        return PLIM_OK;
    }
    PLIM_TRY(plim__arena_create(job->ledger, ACCOUNT,
                                bytes_of(info, params, num_lists, num_entries), &arena));
    const plim__list_cache_t carved = carve(&arena, info, params, num_lists, num_entries);
    plim__list_cache_t *cache = plim__arena_carve(&arena, 1, sizeof *cache, 1);
    memcpy(cache, &carved, sizeof *cache);
    plim__cache_begin(&cache->base, job, params, source, fill, &arena);
    cache->offsets = offsets;
    if (plim__list_cache_packs(params)) {
        cache->set = params->working_set;
        cache->blocks = cache->set->list_blocks;
        cache->starts = cache->set->list_starts;
    } else if (!params->all) {
        set_starts(cache);
    }
    plim_status_t status =
        params->all ? plim__cache_fill_all(&cache->base, num_entries * (int64_t)cache->width,
                                           "reading adjacency", take_chunk, NULL)
                    : plim__cache_fill(&cache->base, ACCOUNT, "filling the list cache", fill);
    if (status != PLIM_OK) {
        plim__list_cache_destroy(cache);
        return status;
    }
    *cache_out = cache;
    return PLIM_OK;
}

void plim__list_cache_destroy(plim__list_cache_t *cache)
{
    if (cache != NULL)
        plim__cache_end(&cache->base);
}
