#include "source/list_cache.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"
#include "store/sweep.h"

#include <string.h>

#define BLOCK ((int64_t)1 << PLIM__LIST_BLOCK_BITS)
#define SOME 256                   /* nodes in a chunk */
#define AHEAD 16                   /* nodes between a prefetch and its use */
#define PIECE ((int64_t)512 << 10) /* bytes of indices.npy read at a time */

/* Layout of a cache of `num_lists` lists and `num_entries` entries. */
static plim__list_cache_t carve(plim__arena_t *arena, const plim_dataset_info_t *info,
                                const plim__list_cache_params_t *params, int64_t num_lists,
                                int64_t num_entries)
{
    plim__list_cache_t cache = {.params = *params,
                                .num_nodes = info->num_nodes,
                                .num_lists = num_lists,
                                .num_entries = num_entries,
                                .width = plim__index_bytes(info->index_type)};
    const size_t bytes = plim__mul_saturating_size((size_t)num_entries, cache.width);
    const size_t lists = params->all ? 0 : (size_t)num_lists;
    plim__droppable_carve(arena, bytes, params->num_fillers, &cache.memory);
    cache.blocks = plim__arena_carve(arena, lists / (size_t)BLOCK + 1, sizeof(int64_t), 1);
    cache.starts = plim__arena_carve(arena, lists, sizeof(uint32_t), 1);
    return cache;
}

static size_t bytes_of(const plim_dataset_info_t *info, const plim__list_cache_params_t *params,
                       int64_t num_lists, int64_t num_entries)
{
    plim__arena_t arena = plim__arena_counting();
    (void)carve(&arena, info, params, num_lists, num_entries);
    (void)plim__arena_carve(&arena, 1, sizeof(plim__list_cache_t), 1);
    return plim__round_up(arena.used, PLIM__PAGE);
}

size_t plim__list_cache_estimate(const plim_dataset_t *dataset,
                                 const plim__list_cache_params_t *params)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const int64_t lists =
        params->all || params->nodes == NULL ? info->num_nodes : params->nodes->count;
    const size_t all = bytes_of(info, params, lists, info->num_edges);
    const size_t bytes = params->bytes & ~(PLIM__PAGE - 1);
    return params->all || all < bytes ? all : bytes;
}

static int fill_threads(const plim_job_t *job, int num_fillers)
{
    const int threads = num_fillers < job->threads ? num_fillers : job->threads;
    return threads < PLIM__THREADS_MAX ? threads : PLIM__THREADS_MAX;
}

size_t plim__list_cache_filling(const plim_job_t *job, const plim__list_cache_params_t *params)
{
    return params->all ? plim__sweep_minimum(job, PIECE)
                       : (size_t)(fill_threads(job, params->num_fillers) - 1) * PLIM__STACK_BYTES;
}

/* Iterates over the members of the set and their lists. */
typedef struct walk {
    const plim__list_cache_params_t *params;
    int64_t some[SOME];
    int64_t held;
    int64_t next;
} walk_t;

static void walk_start(walk_t *walk, const plim__list_cache_params_t *params, int64_t from)
{
    walk->params = params;
    walk->next = 0;
    walk->held = plim__node_set_list(params->nodes, from, SOME, walk->some);
}

/* The next member, or -1 after the last. */
static int64_t walk_next(walk_t *walk, plim__list_t *list_out)
{
    if (walk->next == walk->held && walk->held > 0)
        walk_start(walk, walk->params, walk->some[walk->held - 1] + 1);
    if (walk->next == walk->held)
        return -1;
    if (walk->next + AHEAD < walk->held)
        plim__offsets_prefetch(walk->params->offsets, walk->some[walk->next + AHEAD]);
    int64_t node = walk->some[walk->next++];
    *list_out = plim__offsets_list(walk->params->offsets, node);
    return node;
}

/* Counts how many lists fit `bytes` and the 32-bit offsets within their block. */
static void measure(const plim_dataset_info_t *info, const plim__list_cache_params_t *params,
                    int64_t *num_lists_out, int64_t *num_entries_out)
{
    const int64_t width = (int64_t)plim__index_bytes(info->index_type);
    const int64_t fixed = (int64_t)(bytes_of(info, params, 0, 0) + 4 * PLIM__PAGE);
    int64_t num_lists = 0, num_entries = 0, block_start = 0;
    walk_t walk;
    plim__list_t list;
    walk_start(&walk, params, 0);
    while (walk_next(&walk, &list) >= 0) {
        /* An upper bound; the exact size is computed only when the bound is too large. */
        const int64_t entries = (num_entries + list.degree) * width, lists = num_lists * 4;
        const int64_t bytes =
            fixed + entries + entries / (int64_t)PLIM__DROPPABLE_CHUNK + lists + lists / BLOCK * 2;
        if (num_lists % BLOCK == 0)
            block_start = num_entries;
        if (num_entries - block_start > UINT32_MAX ||
            (bytes > (int64_t)params->bytes &&
             bytes_of(info, params, num_lists + 1, num_entries + list.degree) > params->bytes))
            break;
        num_lists++;
        num_entries += list.degree;
    }
    *num_lists_out = num_lists;
    *num_entries_out = num_entries;
}

static void set_starts(plim__list_cache_t *cache)
{
    walk_t walk;
    plim__list_t list = {0, 0};
    int64_t start = 0;
    walk_start(&walk, &cache->params, 0);
    for (int64_t i = 0; i < cache->num_lists && walk_next(&walk, &list) >= 0; i++) {
        if (i % BLOCK == 0)
            cache->blocks[i / BLOCK] = start;
        cache->starts[i] = (uint32_t)(start - cache->blocks[i / BLOCK]);
        start += list.degree;
    }
}

static char *place_of(const plim__list_cache_t *cache, int64_t entry)
{
    return cache->memory.base + (size_t)entry * cache->width;
}

/* The list that holds the entry at `place`: the last one that begins there or before. */
static int64_t rank_at(const plim__list_cache_t *cache, int64_t place)
{
    int64_t low = 0, high = cache->num_lists;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (plim__list_cache_start(cache, middle, 0) <= place)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Queued reads of entries. */
typedef struct asking {
    const plim__list_cache_t *cache;
    const plim__list_filler_t *filler;
    int64_t num_reads;
} asking_t;

static plim_status_t read_asked(asking_t *asking)
{
    int64_t count = asking->num_reads;
    asking->num_reads = 0;
    return plim__reader_read(asking->filler->reader, asking->cache->params.file,
                             asking->filler->reads, count);
}

/*
 * Queues a read of entries [first, first + count) of the file. Extends the previous read if they
 * are adjacent, since their places in memory then are too. Executes the queue when it is full.
 */
static plim_status_t ask(asking_t *asking, int64_t first, int64_t count, char *to)
{
    const size_t width = asking->cache->width;
    const plim__list_filler_t *filler = asking->filler;
    int64_t offset = PLIM__NPY_HEADER + first * (int64_t)width;
    size_t size = (size_t)count * width;
    while (size > 0) {
        plim__read_t *last = asking->num_reads > 0 ? &filler->reads[asking->num_reads - 1] : NULL;
        size_t part = size < filler->max_read ? size : filler->max_read;
        if (last != NULL && last->offset + (int64_t)last->size == offset &&
            last->size < filler->max_read) {
            if (part > filler->max_read - last->size)
                part = filler->max_read - last->size;
            last->size += part;
        } else {
            if (asking->num_reads == filler->num_reads)
                PLIM_TRY(read_asked(asking));
            filler->reads[asking->num_reads++] = (plim__read_t){offset, part, to};
        }
        offset += (int64_t)part;
        to += part;
        size -= part;
    }
    return PLIM_OK;
}

/* Queues reads of the cached entries [from, to). */
static plim_status_t ask_kept(asking_t *asking, int64_t from, int64_t to)
{
    const plim__list_cache_t *cache = asking->cache;
    walk_t walk;
    plim__list_t list = {0, 0};
    if (from == to)
        return PLIM_OK;
    if (cache->params.all)
        return ask(asking, from, to - from, place_of(cache, from));
    int64_t rank = rank_at(cache, from);
    int64_t start = plim__list_cache_start(cache, rank, 0);
    walk_start(&walk, &cache->params, plim__node_set_select(cache->params.nodes, rank));
    for (int64_t at = from; at < to;) {
        (void)walk_next(&walk, &list);
        int64_t end = plim__min_i64(start + list.degree, to);
        PLIM_TRY(ask(asking, list.start + at - start, end - at, place_of(cache, at)));
        start += list.degree;
        at = end;
    }
    return PLIM_OK;
}

/* Builds the error for the file entry at cache position `place`. */
static plim_status_t fail_entry(const plim__list_cache_t *cache, int64_t place, int64_t value)
{
    long long entry = place;
    if (!cache->params.all) {
        const int64_t rank = rank_at(cache, place);
        const plim__list_t list = plim__offsets_list(
            cache->params.offsets, plim__node_set_select(cache->params.nodes, rank));
        entry = list.start + place - plim__list_cache_start(cache, rank, 0);
    }
    return plim__fail(PLIM_ERR_DATA,
                      "%s: entry %lld is %lld, but there are %lld nodes; copy or import the "
                      "dataset again",
                      cache->params.file->path, entry, (long long)value,
                      (long long)cache->num_nodes);
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

COMPLEMENT(complement_i32, int32_t, uint32_t)
COMPLEMENT(complement_i64, int64_t, uint64_t)

/* Checks `count` entries at `from` and writes their complements from position `place` on. */
static plim_status_t complement(const plim__list_cache_t *cache, const void *from, int64_t place,
                                int64_t count)
{
    void *to = place_of(cache, place);
    const bool narrow = cache->width == sizeof(int32_t);
    const bool right = narrow ? complement_i32(from, to, count, cache->num_nodes)
                              : complement_i64(from, to, count, cache->num_nodes);
    for (int64_t i = 0; !right && i < count; i++) {
        const int64_t value = narrow ? ~((const int32_t *)to)[i] : ~((const int64_t *)to)[i];
        if ((uint64_t)value >= (uint64_t)cache->num_nodes)
            return fail_entry(cache, place + i, value);
    }
    return PLIM_OK;
}

/* Fills a range of the memory: reads its lists in place and complements them. */
static plim_status_t fill(void *context, int worker, int64_t at, size_t size)
{
    const plim__list_cache_t *cache = context;
    const int64_t width = (int64_t)cache->width, from = at / width;
    const int64_t to = plim__min_i64((at + (int64_t)size) / width, cache->num_entries);
    asking_t asking = {cache, &cache->params.fillers[worker], 0};
    PLIM_TRY(ask_kept(&asking, from, to));
    PLIM_TRY(read_asked(&asking));
    return complement(cache, place_of(cache, from), from, to - from);
}

static plim_status_t take_piece(void *context, int worker, int64_t piece, void *data, size_t size)
{
    const plim__list_cache_t *cache = context;
    const int64_t width = (int64_t)cache->width;
    (void)worker;
    return complement(cache, data, piece * PIECE / width, (int64_t)size / width);
}

static plim_status_t fill_all(plim__list_cache_t *cache, const plim_job_t *job,
                              const plim_dataset_t *dataset)
{
    const plim__sweep_t sweep = {
        .file = cache->params.file,
        .entry = plim__manifest_find(plim__dataset_manifest(dataset), "indices.npy"),
        .start = PLIM__NPY_HEADER,
        .end = PLIM__NPY_HEADER + cache->num_entries * (int64_t)cache->width,
        .piece = PIECE,
        .phase = "reading adjacency",
        .context = cache,
        .look = take_piece};
    plim__droppable_fill_begin(&cache->memory);
    plim_status_t status = plim__sweep_run(job, &sweep);
    plim__droppable_fill_end(&cache->memory);
    return status;
}

static plim_status_t fill_some(plim__list_cache_t *cache, const plim_job_t *job)
{
    const int threads = fill_threads(job, cache->params.num_fillers);
    const size_t stacks = (size_t)(threads - 1) * PLIM__STACK_BYTES;
    int account;
    PLIM_TRY(plim__ledger_reserve(job->ledger, "adjacency cache", stacks, &account));
    set_starts(cache);
    plim_status_t status =
        plim__droppable_fill(&cache->memory, job, threads, "filling the list cache", fill, cache);
    plim__ledger_release(job->ledger, account, stacks);
    return status;
}

plim_status_t plim__list_cache_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                      const plim__list_cache_params_t *params,
                                      plim__list_cache_t **cache_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    plim__arena_t arena;
    int64_t num_lists = info->num_nodes, num_entries = info->num_edges;
    if (!params->all)
        measure(info, params, &num_lists, &num_entries);
    if (num_lists == 0) {
        *cache_out = NULL;
        return PLIM_OK;
    }
    PLIM_TRY(plim__arena_create(job->ledger, "adjacency cache",
                                bytes_of(info, params, num_lists, num_entries), &arena));
    const plim__list_cache_t carved = carve(&arena, info, params, num_lists, num_entries);
    plim__list_cache_t *cache = plim__arena_carve(&arena, 1, sizeof *cache, 1);
    memcpy(cache, &carved, sizeof *cache);
    cache->arena = arena;
    plim_status_t status = params->all ? fill_all(cache, job, dataset) : fill_some(cache, job);
    if (status != PLIM_OK) {
        plim__list_cache_destroy(cache);
        return status;
    }
    *cache_out = cache;
    return PLIM_OK;
}

void plim__list_cache_destroy(plim__list_cache_t *cache)
{
    if (cache == NULL)
        return;
    plim__droppable_end(&cache->memory);
    plim__arena_destroy(&cache->arena);
}

plim_status_t plim__list_cache_refresh(plim__list_cache_t *cache, int filler, int64_t nanoseconds)
{
    return plim__droppable_refresh(&cache->memory, filler, nanoseconds, fill, cache);
}
