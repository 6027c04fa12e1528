/*
 * The list cache: lists of some nodes, or of all, in memory that is given back when others need it
 * (mem/droppable.h). Lists lie packed in the order of their nodes:
 *
 *     starts   | entries before a block of 4,096 lists |  | entries of the block before a list |
 *     entries  | ~id | ~id | ~id | …
 *
 * Entries are stored complemented: an id is never -1, so a stored entry is never zero, and one
 * that reads as zero was dropped. The starts, 4 bytes a list, are never dropped; a cache of all
 * lists needs no starts, since its entries are in the order of indices.npy. A cache of the first
 * lists of a working set has them by place, and the set's starts.
 */
#ifndef PLIM_SOURCE_LIST_CACHE_H
#define PLIM_SOURCE_LIST_CACHE_H

#include "source/cache.h"
#include "source/offsets.h"
#include "source/working_set.h"

typedef struct plim__list_cache {
    plim__cache_t base;
    const plim__offsets_t *offsets; /* borrowed */
    plim__working_set_t *set;       /* borrowed; NULL: the lists of base.nodes */
    int64_t num_nodes;              /* of the graph; entries are smaller */
    int64_t num_entries;
    size_t width;     /* bytes of an entry */
    int64_t *blocks;  /* (num_items / 4,096, rounded up) */
    uint32_t *starts; /* (num_items) */
} plim__list_cache_t;

/* Maximum bytes of the cache: of the lists of params->cached (NULL: any nodes), or of all. */
size_t plim__list_cache_estimate(const plim_dataset_t *dataset,
                                 const plim__source_params_t *params);

/*
 * Reads the lists in one ascending pass over indices.npy; if all lists are cached, compares its
 * checksums. Account "list cache". *cache_out is NULL if no list fits. PLIM_ERR_DATA for an
 * entry that is not a node, PLIM_ERR_IO, PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_STOPPED.
 */
plim_status_t plim__list_cache_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                      const plim__offsets_t *offsets,
                                      const plim__source_params_t *params, plim__source_t *source,
                                      plim__list_cache_t **cache_out);
void plim__list_cache_destroy(plim__list_cache_t *cache);

/* Whether a cache with these params holds lists of a working set. */
static inline bool plim__list_cache_packs(const plim__source_params_t *params)
{
    return !params->all && params->working_set != NULL && params->working_set->num_lists > 0;
}

/* The set of nodes whose positions plim__list_cache_position takes. */
static inline const plim__node_set_t *plim__list_cache_nodes(const plim__list_cache_t *cache)
{
    return cache->set != NULL ? &cache->set->order.nodes : &cache->base.nodes;
}

/* Position of a node's list among the cached ones, by the node's position in that set; -1 if it is
 * not cached. */
static inline int64_t plim__list_cache_position(const plim__list_cache_t *cache, int64_t position)
{
    if (cache->set != NULL)
        position = plim__working_set_list_at(cache->set, position);
    return position < cache->base.num_items ? position : -1;
}

/* Prefetches where the list at a position of the cache begins. This and the functions below: any
 * thread. */
static inline void plim__list_cache_prefetch(const plim__list_cache_t *cache, int64_t position)
{
    if (!cache->base.all)
        __builtin_prefetch(&cache->starts[position]);
}

/* Place of the list's first entry; `file_start` is the one in indices.npy. */
static inline int64_t plim__list_cache_start(const plim__list_cache_t *cache, int64_t position,
                                             int64_t file_start)
{
    return cache->base.all
               ? file_start
               : cache->blocks[position >> PLIM__LIST_BLOCK_BITS] + cache->starts[position];
}

static inline void plim__list_cache_prefetch_entry(const plim__list_cache_t *cache, int64_t place)
{
    __builtin_prefetch(cache->base.memory.base + (size_t)place * cache->width);
}

/* Whether entries [place, place + count) may be read in this section. */
static inline bool plim__list_cache_has(const plim__list_cache_t *cache, int64_t place,
                                        int64_t count)
{
    const int64_t width = (int64_t)cache->width;
    return plim__droppable_has(&cache->base.memory, place * width, count * width);
}

/* Marks entries as dropped, for the next refresh. */
static inline void plim__list_cache_miss(plim__list_cache_t *cache, int64_t place, int64_t count)
{
    const int64_t width = (int64_t)cache->width, last = (place + count) * width - 1;
    for (int64_t at = place * width; at < last; at += (int64_t)PLIM__DROPPABLE_CHUNK)
        plim__droppable_miss(&cache->base.memory, at);
    plim__droppable_miss(&cache->base.memory, last);
}

/* Replaces positions ids[0 … count-1] by their entries; false if one was dropped. */
static inline bool plim__list_cache_load(const plim__list_cache_t *cache, int64_t *ids,
                                         int64_t count)
{
    const uint32_t *narrow = (const uint32_t *)(const void *)cache->base.memory.base;
    const int64_t *wide = (const int64_t *)(const void *)cache->base.memory.base;
    int64_t all = 0;
    if (cache->width == sizeof(uint32_t))
        for (int64_t i = 0; i < count; i++) {
            const int64_t stored = narrow[ids[i]];
            ids[i] = UINT32_MAX - stored;
            all |= stored - 1;
        }
    else
        for (int64_t i = 0; i < count; i++) {
            ids[i] = ~wide[ids[i]];
            all |= ids[i];
        }
    return all >= 0;
}

#endif
