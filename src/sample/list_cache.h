/*
 * Lists kept in memory that the kernel may take back at any time. The lists of a sealed set of
 * nodes lie packed in the order of the nodes:
 *
 *     starts   | entries before a block of 4,096 lists |  | entries of the block before a list |
 *     entries  | ~id | ~id | ~id | …                       pages under MADV_FREE
 *
 * Entries are stored complemented: an id is never -1, so a stored entry is never zero, and one
 * that reads as zero was on a page that the kernel has dropped. It is looked at after it was
 * loaded, entry by entry: nothing else has to be known. What takes 4 bytes a list besides its
 * entries, the starts, is never dropped.
 */
#ifndef PLIM_SAMPLE_LIST_CACHE_H
#define PLIM_SAMPLE_LIST_CACHE_H

#include "base/node_set.h"
#include "io/reader.h"
#include "mem/arena.h"
#include "sample/offsets.h"

#include <pthread.h>

#define PLIM__ROW_CACHE_BLOCK_BITS 12
#define PLIM__ROW_CACHE_STAGED ((size_t)1 << 20) /* bytes that a refresh reads at a time */

typedef struct plim__list_cache {
    plim__arena_t arena;
    const plim__node_set_t *nodes; /* borrowed */
    const plim__offsets_t *offsets;
    int64_t num_nodes; /* of the graph: entries are below it */
    int64_t num_lists; /* the first so many of the nodes' */
    int64_t num_entries;
    size_t width;          /* of an entry */
    int64_t *blocks;       /* (num_lists / 4,096, rounded up) */
    uint32_t *starts;      /* (num_lists) */
    void *entries;         /* (num_entries) int32_t or int64_t, from a page's begin */
    bool lost;             /* an entry was found to be gone; atomic */
    pthread_mutex_t lock;  /* of refreshes; who lowers the limit never waits for it */
    int64_t most_entries;  /* that may be kept now; atomic, as what follows */
    int64_t lists_now;     /* lists from here on are not there: their entries may be given back */
    int64_t released_from; /* so are these entries; changes under the lock */
} plim__list_cache_t;

/* What it takes at most: `bytes`, or what all lists of the set need if that is less. */
size_t plim__list_cache_estimate(const plim_dataset_t *dataset, const plim__node_set_t *nodes,
                                 size_t bytes);

/* What filling takes besides, while it lasts: its threads' stacks. */
size_t plim__list_cache_fill_estimate(const plim_job_t *job, int num_fillers);

/*
 * Room for the first lists of `nodes` that fit `bytes`, all included; *hot_out is NULL when not one
 * does. Account "hot lists". `nodes` and `offsets` are borrowed. PLIM_ERR_BUDGET, PLIM_ERR_NOMEM.
 */
plim_status_t plim__list_cache_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                      const plim__offsets_t *offsets, const plim__node_set_t *nodes,
                                      size_t bytes, plim__list_cache_t **hot_out);
void plim__list_cache_destroy(plim__list_cache_t *hot);

/* What one thread fills with: a reader, room for its reads, and for what they bring. */
typedef struct plim__list_filler {
    plim__reader_t *reader;
    plim__read_t *reads; /* (num_reads) */
    int64_t num_reads;
    size_t max_read; /* of the reader */
    char *staging;   /* (PLIM__ROW_CACHE_STAGED) for a refresh */
} plim__list_filler_t;

/*
 * Reads the lists by one ascending pass over `file` (indices.npy), on as many of the job's threads
 * as there are fillers; from then on their pages may be dropped. PLIM_ERR_DATA for an entry that is
 * no node, PLIM_ERR_IO, PLIM_ERR_BUDGET, PLIM_ERR_STOPPED.
 */
plim_status_t plim__list_cache_fill(plim__list_cache_t *hot, const plim_job_t *job,
                                    const plim__file_t *file, const plim__list_filler_t *fillers,
                                    int num_fillers);

/*
 * Reads again what the kernel has taken, when something of it was missed since, for a second at
 * most and as long as there is room in memory. One thread; others may use the lists meanwhile.
 * Errors as for filling.
 */
plim_status_t plim__list_cache_refresh(plim__list_cache_t *hot, const plim__file_t *file,
                                       const plim__list_filler_t *filler);

/*
 * Bytes of entries, and that only so many are kept from now on: the pages of the last lists are
 * given back at once (where a refresh is under way, by that), and are not brought back before a
 * higher limit allows it again. Any thread, one at a time.
 */
size_t plim__list_cache_bytes(const plim__list_cache_t *hot);
void plim__list_cache_limit(plim__list_cache_t *hot, size_t bytes);

/* The number of the node's list among those kept, or -1. Any thread, as all below. */
static inline int64_t plim__list_cache_rank(const plim__list_cache_t *hot, int64_t node)
{
    int64_t rank = plim__node_set_rank(hot->nodes, node);
    return rank < __atomic_load_n(&hot->lists_now, __ATOMIC_RELAXED) ? rank : -1;
}

static inline void plim__list_cache_prefetch(const plim__list_cache_t *hot, int64_t rank)
{
    __builtin_prefetch(&hot->starts[rank]);
}

/* Where that list begins among the entries. */
static inline int64_t plim__list_cache_start(const plim__list_cache_t *hot, int64_t rank)
{
    return hot->blocks[rank >> PLIM__ROW_CACHE_BLOCK_BITS] + hot->starts[rank];
}

static inline void plim__list_cache_prefetch_entry(const plim__list_cache_t *hot, int64_t place)
{
    __builtin_prefetch((const char *)hot->entries + (size_t)place * hot->width);
}

/* Says that an entry was not there: the next refresh will look. */
static inline void plim__list_cache_miss(plim__list_cache_t *hot)
{
    __atomic_store_n(&hot->lost, true, __ATOMIC_RELAXED);
}

/* One entry, or -1 when its page was dropped. */
static inline int64_t plim__list_cache_entry(const plim__list_cache_t *hot, int64_t place)
{
    if (hot->width == sizeof(int32_t))
        return ~__atomic_load_n((const int32_t *)hot->entries + place, __ATOMIC_RELAXED);
    return ~__atomic_load_n((const int64_t *)hot->entries + place, __ATOMIC_RELAXED);
}

#endif
