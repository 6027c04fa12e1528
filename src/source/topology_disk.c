/*
 * Lists that lie on disk. The nodes are taken a task at a time:
 *
 *     nodes ─► lists (offsets) ─► positions drawn ─┬─► list cache ────────────────► ids
 *                                                  └─► reads, ascending ─► staging ─► ids
 *
 * With a working set, lists come from there first, by place, and then the others by node.
 *
 * Without offsets in memory a task's are read from indptr.npy first: a page of it for each list.
 *
 * Everything between is kept in the ids' own places: first the position drawn, then, negative, the
 * place in staging where its entry will arrive, at last the entry. So a task needs no memory
 * besides its reads and their staging, and the order of the draws is never lost.
 *
 * While the cache holds all lists there is a shorter way: offsets are decoded and positions drawn,
 * the entries being prefetched; then the entries are loaded.
 */
#include "source/topology.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/radix.h"
#include "source/list_cache.h"

#include <string.h>

#define TASK_BITS 14
#define READ_BYTES ((size_t)64 << 10)  /* maximum size of a read */
#define POINT_BITS 12                  /* bits for PLIM__FANOUT_MAX draws from one list */
#define ENTRIES_PER_READ ((int64_t)16) /* see reads_range */
#define AHEAD 24                       /* nodes between a prefetch and its use … */
#define AHEAD_CACHED 16                /* … and between drawing from a cached list and loading */
#define CHUNK_ENTRIES 2048             /* entries drawn before loading: their lines fit L2 */
#define NODES_MAX ((int64_t)1 << (63 - TASK_BITS))

/* Sizes of a task: its nodes, the entries that its reads return (a range of the largest fan-out
 * must fit), and its reads. */
typedef struct sizes {
    int64_t task; /* at most 1 << TASK_BITS, at least PLIM__FANOUT_MAX */
    int64_t staged;
    int64_t reads;
} sizes_t;

static const sizes_t disk_sizes = {(int64_t)1 << TASK_BITS, (int64_t)256 << 10, (int64_t)32 << 10};

/* If all lists are cached, reads are rare. */
static const sizes_t cached_sizes = {PLIM__FANOUT_MAX, (int64_t)128 << 10, (int64_t)8 << 10};

/* A worker's buffers, besides those of plim__source_worker_t. */
typedef struct lists_worker {
    plim__source_worker_t *io;
    int number;
    plim__list_t *lists; /* (task) */
    int64_t *cached;     /* (task) positions in the list cache, or -1 */
    int32_t *order;      /* (task) the task's nodes in ascending order */
    char *staging;       /* (staged) entries read from disk */
    int64_t num_reads;
    int64_t num_packed; /* the first of them, from the working set */
    bool packed_failed; /* what failed last was one of those */
    int64_t num_staged;
} lists_worker_t;

typedef struct disk {
    plim__topology_t face; /* first */
    plim__source_t source;
    const plim__offsets_t *offsets; /* NULL: they are read from indptr.npy */
    plim__file_t indptr;
    plim__list_cache_t *cache;        /* NULL: none */
    plim__working_set_t *_Atomic set; /* borrowed, with lists; NULL: none */
    const plim_dataset_info_t *info;
    int64_t num_nodes;
    size_t width; /* bytes of an entry */
    const sizes_t *sizes;
    lists_worker_t *workers; /* (num_workers) */
} disk_t;

/* Part of the caller's nodes, and their results. */
typedef struct lists_task {
    const plim__hop_t *hop;
    const int64_t *nodes;
    const int64_t *owners;
    uint64_t prefix;          /* of the draws' keys */
    int64_t *indptr;          /* indptr[0] is set */
    int64_t *ids;             /* of the whole result */
    int64_t *positions;       /* of the whole result, or NULL */
    int64_t count;            /* number of nodes */
    plim__working_set_t *set; /* uncached lists are read from there; NULL: none */
    bool ascending;           /* the order of nodes is that of the reads */
    bool long_list;           /* the task is one list, too long for the staging */
    bool full;                /* ids has no space for the next node */
} lists_task_t;

static bool is_whole(const plim__hop_t *hop, int64_t degree)
{
    return hop->fanout < 0 || (!hop->replace && degree <= hop->fanout);
}

/*
 * Whether to read the drawn entries and everything between them. A separate read of an entry costs
 * about as much as copying ENTRIES_PER_READ more of them.
 */
static bool reads_range(const plim__hop_t *hop, int64_t degree, int64_t count)
{
    return is_whole(hop, degree) || degree <= ENTRIES_PER_READ * (count + 1);
}

/* Reads where the lists of at most sizes->task nodes are. */
static plim_status_t read_offsets(disk_t *disk, lists_worker_t *worker, const int64_t *nodes,
                                  int64_t count)
{
    const plim_dataset_info_t *info = disk->info;
    const int bits = 64 - __builtin_clzll((unsigned long long)disk->num_nodes);
    for (int64_t i = 0; i < count; i++)
        worker->io->keys[i] = (uint64_t)nodes[i] << TASK_BITS | (uint64_t)i;
    const uint64_t *sorted =
        plim__radix_sort(worker->io->keys, worker->io->sort_scratch, count, bits + TASK_BITS);
    for (int64_t i = 0; i < count; i++)
        worker->io->reads[i] = (plim__read_t){
            .offset = PLIM__NPY_HEADER + (int64_t)((sorted[i] >> TASK_BITS) * sizeof(int64_t)),
            .size = 2 * sizeof(int64_t),
            .to = &worker->lists[sorted[i] & (((uint64_t)1 << TASK_BITS) - 1)]};
    PLIM_TRY(plim__source_read(&disk->source, worker->number, &disk->indptr, 0, count));
    for (int64_t i = 0; i < count; i++) {
        plim__list_t *list = &worker->lists[i];
        const int64_t end = list->degree;
        if (list->start < 0 || end < list->start || end > info->num_edges ||
            end - list->start > info->max_degree)
            return plim__fail(PLIM_ERR_DATA,
                              "%s: offset %lld is %lld after %lld; offsets ascend from 0 to %lld, "
                              "in steps of at most %lld; copy or import the dataset again",
                              disk->indptr.path, (long long)nodes[i] + 1, (long long)end,
                              (long long)list->start, (long long)info->num_edges,
                              (long long)info->max_degree);
        list->degree = end - list->start;
    }
    return PLIM_OK;
}

/* Cuts the next task off `count` nodes: as many as fit staging and reads, at least one. */
static void measure(const disk_t *disk, const lists_worker_t *worker, int64_t count,
                    int64_t capacity, lists_task_t *task)
{
    int64_t staged = 0, reads = 0, i = 0;
    int64_t most = plim__min_i64(count, disk->sizes->task);
    const int64_t *nodes = task->nodes;
    int64_t last = nodes[0];
    task->ascending = true;
    task->full = task->long_list = false;
    for (; i < most; i++) {
        if (disk->offsets != NULL && i + AHEAD < count)
            plim__offsets_prefetch(disk->offsets, nodes[i + AHEAD]);
        plim__list_t list =
            disk->offsets != NULL ? plim__offsets_list(disk->offsets, nodes[i]) : worker->lists[i];
        int64_t drawn = plim__draw_count(task->hop, list.degree);
        if (drawn > capacity - task->indptr[i]) {
            task->full = true;
            break;
        }
        bool range = reads_range(task->hop, list.degree, drawn);
        staged += range ? list.degree : drawn;
        reads += range ? list.degree / (int64_t)(READ_BYTES / disk->width) + 1 : drawn;
        if (staged > disk->sizes->staged || reads > disk->sizes->reads) {
            if (i > 0)
                break;
            task->long_list = true;
            most = 1;
        }
        task->ascending &= nodes[i] >= last;
        last = nodes[i];
        worker->lists[i] = list;
        task->indptr[i + 1] = task->indptr[i] + drawn;
    }
    task->count = i;
}

/* The working set, as long as lists can be read from it. */
static plim__working_set_t *readable_set(const disk_t *disk)
{
    plim__working_set_t *set = atomic_load_explicit(&disk->set, memory_order_acquire);
    return set != NULL && atomic_load(&set->readable) ? set : NULL;
}

/* Where the task's i-th list is read, among the others: packed lists come first. */
static int64_t place_of(const disk_t *disk, const lists_worker_t *worker, const lists_task_t *task,
                        int64_t i)
{
    const int64_t node = task->nodes[i];
    if (task->set == NULL)
        return node;
    if (disk->cache != NULL && disk->cache->set == task->set && worker->cached[i] >= 0)
        return worker->cached[i];
    const int64_t place = plim__working_set_list(task->set, node);
    return place >= 0 ? place : plim__working_set_list_places(task->set) + node;
}

static void sort_nodes(const disk_t *disk, lists_worker_t *worker, const lists_task_t *task)
{
    const int64_t places = task->set == NULL ? 0 : plim__working_set_list_places(task->set);
    const uint64_t all_places = (uint64_t)disk->num_nodes + (uint64_t)places;
    const int bits = 64 - __builtin_clzll(all_places);
    for (int64_t i = 0; i < task->count; i++)
        worker->io->keys[i] = (uint64_t)place_of(disk, worker, task, i) << TASK_BITS | (uint64_t)i;
    const uint64_t *sorted =
        plim__radix_sort(worker->io->keys, worker->io->sort_scratch, task->count, bits + TASK_BITS);
    for (int64_t i = 0; i < task->count; i++)
        worker->order[i] = (int32_t)(sorted[i] & (((uint64_t)1 << TASK_BITS) - 1));
}

/* Queues a read of entries [first, first + count) of the file; returns the position of the first in
 * staging. */
static int64_t ask(const disk_t *disk, lists_worker_t *worker, int64_t first, int64_t count)
{
    const int64_t most = (int64_t)(READ_BYTES / disk->width);
    int64_t place = worker->num_staged;
    for (int64_t done = 0; done < count; done += most) {
        worker->io->reads[worker->num_reads++] =
            (plim__read_t){.offset = PLIM__NPY_HEADER + (first + done) * (int64_t)disk->width,
                           .size = (size_t)plim__min_i64(count - done, most) * disk->width,
                           .to = worker->staging + (size_t)(place + done) * disk->width};
    }
    worker->num_staged += count;
    return place;
}

/* Queues one read for each drawn position, in disk order. */
static void ask_points(const disk_t *disk, lists_worker_t *worker, plim__list_t list, int64_t *ids,
                       int64_t count)
{
    int bits = 64 - __builtin_clzll((unsigned long long)list.degree);
    for (int64_t k = 0; k < count; k++)
        worker->io->keys[k] = (uint64_t)ids[k] << POINT_BITS | (uint64_t)k;
    const uint64_t *sorted =
        plim__radix_sort(worker->io->keys, worker->io->sort_scratch, count, bits + POINT_BITS);
    for (int64_t k = 0; k < count; k++) {
        int64_t position = (int64_t)(sorted[k] >> POINT_BITS);
        ids[sorted[k] & (((uint64_t)1 << POINT_BITS) - 1)] =
            ~ask(disk, worker, list.start + position, 1);
    }
}

/* Entries from the first to the last of these positions, in any order. */
static int64_t span_of(const int64_t *positions, int64_t count, int64_t *first_out)
{
    int64_t first = positions[0], last = positions[0];
    for (int64_t k = 1; k < count; k++) {
        first = plim__min_i64(first, positions[k]);
        last = plim__max_i64(last, positions[k]);
    }
    *first_out = first;
    return last - first + 1;
}

/* Queues one read from the first to the last of the drawn positions. */
static void ask_range(const disk_t *disk, lists_worker_t *worker, plim__list_t list, int64_t *ids,
                      int64_t count)
{
    int64_t first;
    const int64_t span = span_of(ids, count, &first);
    const int64_t place = ask(disk, worker, list.start + first, span) - first;
    for (int64_t k = 0; k < count; k++)
        ids[k] = ~(place + ids[k]);
}

/* Queues reads for one list; the `count` ids are its drawn positions. */
static void ask_list(const disk_t *disk, lists_worker_t *worker, const plim__hop_t *hop,
                     plim__list_t list, int64_t *ids, int64_t count)
{
    if (is_whole(hop, list.degree)) {
        int64_t place = ask(disk, worker, list.start, count);
        for (int64_t k = 0; k < count; k++)
            ids[k] = ~(place + k);
        return;
    }
    if (reads_range(hop, list.degree, count))
        ask_range(disk, worker, list, ids, count);
    else
        ask_points(disk, worker, list, ids, count);
}

/* Looks up the task's lists in the cache. */
static void find_cached(const disk_t *disk, const lists_worker_t *worker, const lists_task_t *task)
{
    const plim__list_cache_t *cache = disk->cache;
    const plim__node_set_t *set = plim__list_cache_nodes(cache);
    const int64_t *nodes = task->nodes;
    for (int64_t i = -AHEAD; i < task->count; i++) {
        const int64_t next = i + AHEAD;
        if (next + AHEAD < task->count && !cache->base.all)
            plim__node_set_prefetch(set, nodes[next + AHEAD]);
        if (next < task->count) {
            worker->cached[next] =
                cache->base.all ? nodes[next] : plim__node_set_position(set, nodes[next]);
            if (cache->set != NULL)
                plim__node_order_prefetch(&cache->set->lists, worker->cached[next]);
        }
        if (i < 0)
            continue;
        worker->cached[i] = plim__list_cache_position(cache, worker->cached[i]);
        if (worker->cached[i] >= 0)
            plim__list_cache_prefetch(cache, worker->cached[i]);
    }
}

static void draw_positions(const lists_task_t *task, int64_t i, int64_t degree)
{
    plim__draw_positions(plim__draw_key(task->prefix, task->owners[i]), task->hop, degree,
                         task->ids + task->indptr[i]);
}

/* Draws positions from the task's i-th list; prefetches the entries if it is cached. */
static void draw_list(const disk_t *disk, const lists_worker_t *worker, const lists_task_t *task,
                      int64_t i)
{
    int64_t *ids = task->ids + task->indptr[i];
    int64_t count = task->indptr[i + 1] - task->indptr[i];
    plim__list_t list = worker->lists[i];
    bool cached = disk->cache != NULL && worker->cached[i] >= 0;
    if (!cached && is_whole(task->hop, list.degree) && task->positions == NULL)
        return; /* ask_list needs no positions */
    draw_positions(task, i, list.degree);
    for (int64_t k = 0; k < count && task->positions != NULL; k++)
        task->positions[task->indptr[i] + k] = list.start + ids[k];
    if (!cached)
        return;
    int64_t start = plim__list_cache_start(disk->cache, worker->cached[i], list.start);
    for (int64_t k = 0; k < count; k++)
        plim__list_cache_prefetch_entry(disk->cache, start + ids[k]);
}

/*
 * Loads the entries drawn from the task's i-th list from the cache. False if the list is not
 * cached or was dropped; the positions are then unchanged.
 */
static bool take_cached(const disk_t *disk, const lists_worker_t *worker, const lists_task_t *task,
                        int64_t i)
{
    int64_t *ids = task->ids + task->indptr[i];
    int64_t count = task->indptr[i + 1] - task->indptr[i];
    plim__list_t list = worker->lists[i];
    if (disk->cache == NULL || worker->cached[i] < 0)
        return false;
    int64_t start = plim__list_cache_start(disk->cache, worker->cached[i], list.start);
    if (count == 0)
        return true;
    if (!plim__list_cache_has(disk->cache, start, list.degree))
        return false;
    for (int64_t k = 0; k < count; k++)
        ids[k] += start;
    if (plim__list_cache_load(disk->cache, ids, count))
        return true;
    plim__list_cache_miss(disk->cache, start, list.degree);
    plim__source_count(&worker->io->lost, 1);
    draw_positions(task, i, list.degree);
    return false;
}

static plim_status_t fail_entry(const disk_t *disk, lists_worker_t *worker, int64_t place,
                                int64_t value)
{
    const char *at = worker->staging + (size_t)place * disk->width;
    int64_t entry = -1;
    for (int64_t i = 0; i < worker->num_reads; i++) {
        const plim__read_t *read = &worker->io->reads[i];
        const char *to = read->to;
        if (at < to || at >= to + read->size)
            continue;
        entry = (read->offset - PLIM__NPY_HEADER + (at - to)) / (int64_t)disk->width;
        worker->packed_failed = i < worker->num_packed;
    }
    return plim__index_fail(disk->source.file.path, entry, value, disk->num_nodes);
}

/* Replaces `count` ids by the entries that were read. */
static plim_status_t store_entries(const disk_t *disk, lists_worker_t *worker, int64_t *ids,
                                   int64_t count)
{
    const bool wide = disk->width == sizeof(int64_t);
    for (int64_t k = 0; k < count; k++) {
        if (ids[k] >= 0) /* from a cached list */
            continue;
        int64_t place = ~ids[k];
        int64_t value = plim__index_at(worker->staging, wide, place);
        if ((uint64_t)value >= (uint64_t)disk->num_nodes)
            return fail_entry(disk, worker, place, value);
        ids[k] = value;
    }
    return PLIM_OK;
}

/* Executes the queued reads, the first of them from `set`, and stores their entries in ids. */
static plim_status_t read_asked(disk_t *disk, lists_worker_t *worker,
                                const plim__working_set_t *set, int64_t *ids, int64_t count)
{
    const int64_t packed = worker->num_packed, rest = worker->num_reads - packed;
    plim_status_t status = PLIM_OK;
    if (packed > 0)
        status = plim__source_read(&disk->source, worker->number, &set->file, 0, packed);
    worker->packed_failed = status != PLIM_OK;
    if (status == PLIM_OK)
        status = plim__source_read(&disk->source, worker->number, &disk->source.file, packed, rest);
    if (status == PLIM_OK)
        status = store_entries(disk, worker, ids, count);
    worker->num_reads = worker->num_packed = worker->num_staged = 0;
    return status;
}

/* Reads all of one long list, one staging buffer at a time. */
static plim_status_t read_long(disk_t *disk, lists_worker_t *worker, plim__list_t list,
                               int64_t *ids)
{
    const int64_t most = disk->sizes->staged;
    for (int64_t done = 0; done < list.degree; done += most) {
        int64_t count = plim__min_i64(list.degree - done, most);
        int64_t place = ask(disk, worker, list.start + done, count);
        for (int64_t k = 0; k < count; k++)
            ids[done + k] = ~(place + k);
        PLIM_TRY(read_asked(disk, worker, NULL, ids + done, count));
    }
    return PLIM_OK;
}

/* Queues reads for the task's i-th list, from the working set if it is packed. */
static void ask_either(const disk_t *disk, lists_worker_t *worker, const lists_task_t *task,
                       int64_t i)
{
    const int64_t place =
        task->set == NULL ? -1 : plim__working_set_list(task->set, task->nodes[i]);
    plim__list_t list = worker->lists[i];
    if (place >= 0) /* as if its entries followed a header, as in indices.npy */
        list.start = (plim__working_set_entry_offset(task->set, 0) - PLIM__NPY_HEADER) /
                         (int64_t)disk->width +
                     plim__working_set_list_start(task->set, place);
    ask_list(disk, worker, task->hop, list, task->ids + task->indptr[i],
             task->indptr[i + 1] - task->indptr[i]);
    if (place >= 0)
        worker->num_packed = worker->num_reads;
}

/* Draws from the task's lists and queues reads of uncached entries; returns the number of cached
 * lists. */
static int64_t draw_lists(const disk_t *disk, lists_worker_t *worker, const lists_task_t *task)
{
    int64_t num_cached = 0;
    for (int64_t n = 0; n < task->count + AHEAD_CACHED; n++) {
        if (n < task->count)
            draw_list(disk, worker, task, task->ascending ? n : worker->order[n]);
        if (n < AHEAD_CACHED)
            continue;
        int64_t i = task->ascending ? n - AHEAD_CACHED : worker->order[n - AHEAD_CACHED];
        int64_t count = task->indptr[i + 1] - task->indptr[i];
        if (take_cached(disk, worker, task, i))
            num_cached++;
        else if (count > 0 && !task->long_list)
            ask_either(disk, worker, task, i);
    }
    return num_cached;
}

static plim_status_t draw_task(disk_t *disk, int number, lists_task_t *task)
{
    lists_worker_t *worker = &disk->workers[number];
    int64_t *ids = task->ids + task->indptr[0];
    plim_status_t status = PLIM_OK;
    task->set = task->long_list ? NULL : readable_set(disk);
    if (disk->cache != NULL)
        find_cached(disk, worker, task);
    task->ascending = task->ascending && task->set == NULL;
    if (!task->ascending)
        sort_nodes(disk, worker, task);
    if (disk->cache != NULL)
        (void)plim__droppable_enter(&disk->cache->base.memory, number);
    int64_t num_cached = draw_lists(disk, worker, task);
    if (disk->cache != NULL)
        plim__droppable_leave(&disk->cache->base.memory, number);
    if (task->long_list && num_cached == 0)
        status = read_long(disk, worker, worker->lists[0], ids);
    else if (num_cached < task->count)
        status =
            read_asked(disk, worker, task->set, ids, task->indptr[task->count] - task->indptr[0]);
    if (task->set != NULL && worker->packed_failed &&
        (status == PLIM_ERR_DATA || status == PLIM_ERR_IO)) {
        plim__working_set_lost(task->set);
        return draw_task(disk, number, task);
    }
    plim__source_count(&worker->io->items, task->count);
    plim__source_count(&worker->io->cached, num_cached);
    return status;
}

/*
 * Draws from a cache of all lists, from draw `first` on, until ids is full or an entry was dropped.
 * Returns the number of draws done.
 */
static int64_t draw_cached(const disk_t *disk, const plim__draws_t *draws, int64_t first,
                           const plim__drawn_t *drawn, bool *full)
{
    const plim__hop_t *hop = draws->hop;
    plim__list_cache_t *cache = disk->cache;
    const uint64_t prefix = plim__draw_prefix(hop);
    const int64_t *nodes = draws->nodes + first, *owners = draws->owners + first;
    int64_t *indptr = drawn->indptr + first;
    const int64_t count = draws->count - first;
    int64_t total = indptr[0], loaded = total, loaded_nodes = 0, taken = 0;
    for (int64_t i = 0; i < count && i < AHEAD; i++)
        plim__offsets_prefetch(disk->offsets, nodes[i]);
    for (; taken < count; taken++) {
        if (taken + AHEAD < count)
            plim__offsets_prefetch(disk->offsets, nodes[taken + AHEAD]);
        plim__list_t list = plim__offsets_list(disk->offsets, nodes[taken]);
        int64_t wanted = plim__draw_count(hop, list.degree);
        *full = wanted > drawn->capacity - total;
        if (*full)
            break;
        int64_t *ids = drawn->ids + total;
        plim__draw_positions(plim__draw_key(prefix, owners[taken]), hop, list.degree, ids);
        for (int64_t i = 0; i < wanted; i++) {
            ids[i] += list.start;
            plim__list_cache_prefetch_entry(cache, ids[i]);
        }
        if (drawn->positions != NULL)
            memcpy(drawn->positions + total, ids, (size_t)wanted * sizeof *ids);
        total += wanted;
        indptr[taken + 1] = total;
        if (total - loaded < CHUNK_ENTRIES)
            continue;
        if (!plim__list_cache_load(cache, drawn->ids + loaded, total - loaded))
            return loaded_nodes;
        loaded = total;
        loaded_nodes = taken + 1;
    }
    if (plim__list_cache_load(cache, drawn->ids + loaded, total - loaded))
        return taken;
    *full = false;
    return loaded_nodes;
}

/* Draws from a cache of all lists; returns the number of draws done, 0 without such a cache. */
static int64_t try_cached(const disk_t *disk, int number, const plim__draws_t *draws, int64_t first,
                          const plim__drawn_t *drawn, bool *full)
{
    const lists_worker_t *worker = &disk->workers[number];
    int64_t taken = 0;
    if (disk->cache == NULL || !disk->cache->base.all)
        return 0;
    if (plim__droppable_enter(&disk->cache->base.memory, number))
        taken = draw_cached(disk, draws, first, drawn, full);
    plim__droppable_leave(&disk->cache->base.memory, number);
    plim__source_count(&worker->io->items, taken);
    plim__source_count(&worker->io->cached, taken);
    return taken;
}

static plim_status_t draw(plim__topology_t *source, int number, const plim__draws_t *draws,
                          plim__drawn_t *drawn)
{
    disk_t *disk = (disk_t *)source;
    const int64_t count = draws->count;
    lists_task_t task = {.hop = draws->hop,
                         .prefix = plim__draw_prefix(draws->hop),
                         .ids = drawn->ids,
                         .positions = drawn->positions};
    int64_t taken = 0;
    drawn->indptr[0] = 0;
    while (taken < count && !task.full) {
        taken += try_cached(disk, number, draws, taken, drawn, &task.full);
        if (taken == count || task.full)
            break;
        task.nodes = draws->nodes + taken;
        task.owners = draws->owners + taken;
        task.indptr = drawn->indptr + taken;
        if (disk->offsets == NULL)
            PLIM_TRY(read_offsets(disk, &disk->workers[number], task.nodes,
                                  plim__min_i64(count - taken, disk->sizes->task)));
        measure(disk, &disk->workers[number], count - taken, drawn->capacity, &task);
        PLIM_TRY(draw_task(disk, number, &task));
        taken += task.count;
    }
    if (taken == 0 && count > 0)
        return plim__fail(
            PLIM_ERR_BUDGET, "the neighbours of node %lld at hop %d do not fit %lld entries",
            (long long)draws->nodes[0], draws->hop->hop + 1, (long long)drawn->capacity);
    drawn->taken = taken;
    return PLIM_OK;
}

/* Entries between known positions, if all are read: see reads_range; else 0. */
static int64_t range_of(const int64_t *positions, int64_t count)
{
    int64_t first;
    const int64_t span = count > 0 ? span_of(positions, count, &first) : 0;
    return span <= ENTRIES_PER_READ * (count + 1) ? span : 0;
}

/* Cuts the next task off `count` nodes whose positions are known: as many as fit staging and
 * reads. */
static void measure_known(const disk_t *disk, const lists_worker_t *worker, int64_t count,
                          lists_task_t *task)
{
    int64_t staged = 0, reads = 0, i = 0;
    const int64_t most = plim__min_i64(count, disk->sizes->task);
    const int64_t *nodes = task->nodes;
    task->ascending = true;
    for (; i < most; i++) {
        const int64_t *positions = task->ids + task->indptr[i];
        const int64_t known = task->indptr[i + 1] - task->indptr[i];
        if (i + AHEAD < count)
            plim__offsets_prefetch(disk->offsets, nodes[i + AHEAD]);
        const int64_t range = range_of(positions, known);
        staged += range > 0 ? range : known;
        reads += range > 0 ? range / (int64_t)(READ_BYTES / disk->width) + 1 : known;
        if (staged > disk->sizes->staged || reads > disk->sizes->reads)
            break;
        task->ascending &= i == 0 || nodes[i] >= nodes[i - 1];
        worker->lists[i] = plim__offsets_list(disk->offsets, nodes[i]);
    }
    task->count = i;
}

/* Prefetches the entries of the task's i-th list, if it is cached. */
static void prefetch_known(const disk_t *disk, const lists_worker_t *worker,
                           const lists_task_t *task, int64_t i)
{
    if (disk->cache == NULL || worker->cached[i] < 0)
        return;
    const int64_t start =
        plim__list_cache_start(disk->cache, worker->cached[i], worker->lists[i].start);
    for (int64_t k = task->indptr[i]; k < task->indptr[i + 1]; k++)
        plim__list_cache_prefetch_entry(disk->cache, start + task->ids[k]);
}

/* Loads the entries from the cache; false if the list is not cached or was dropped: the positions
 * are then unchanged. */
static bool take_known(const disk_t *disk, const lists_worker_t *worker, const lists_task_t *task,
                       int64_t i)
{
    int64_t *ids = task->ids + task->indptr[i];
    const int64_t count = task->indptr[i + 1] - task->indptr[i];
    const plim__list_t list = worker->lists[i];
    int64_t *kept = (int64_t *)worker->io->sort_scratch;
    if (disk->cache == NULL || worker->cached[i] < 0)
        return false;
    const int64_t start = plim__list_cache_start(disk->cache, worker->cached[i], list.start);
    if (count == 0)
        return true;
    if (!plim__list_cache_has(disk->cache, start, list.degree))
        return false;
    memcpy(kept, ids, (size_t)count * sizeof *ids);
    for (int64_t k = 0; k < count; k++)
        ids[k] += start;
    if (plim__list_cache_load(disk->cache, ids, count))
        return true;
    plim__list_cache_miss(disk->cache, start, list.degree);
    plim__source_count(&worker->io->lost, 1);
    memcpy(ids, kept, (size_t)count * sizeof *ids);
    return false;
}

/* Takes cached entries and queues reads of the others; returns the number of cached lists. */
static int64_t take_or_ask(const disk_t *disk, lists_worker_t *worker, const lists_task_t *task)
{
    int64_t num_cached = 0;
    for (int64_t n = 0; n < task->count + AHEAD_CACHED; n++) {
        if (n < task->count)
            prefetch_known(disk, worker, task, task->ascending ? n : worker->order[n]);
        if (n < AHEAD_CACHED)
            continue;
        const int64_t i = task->ascending ? n - AHEAD_CACHED : worker->order[n - AHEAD_CACHED];
        int64_t *ids = task->ids + task->indptr[i];
        const int64_t count = task->indptr[i + 1] - task->indptr[i];
        if (take_known(disk, worker, task, i))
            num_cached++;
        else if (range_of(ids, count) > 0)
            ask_range(disk, worker, worker->lists[i], ids, count);
        else if (count > 0)
            ask_points(disk, worker, worker->lists[i], ids, count);
    }
    return num_cached;
}

static plim_status_t entries(plim__topology_t *source, int number, const int64_t *nodes,
                             const int64_t *indptr, int64_t count, int64_t *ids)
{
    disk_t *disk = (disk_t *)source;
    lists_worker_t *worker = &disk->workers[number];
    lists_task_t task = {.ids = ids};
    for (int64_t done = 0; done < count; done += task.count) {
        task.nodes = nodes + done;
        task.indptr = (int64_t *)indptr + done;
        measure_known(disk, worker, count - done, &task);
        if (disk->cache != NULL)
            find_cached(disk, worker, &task);
        if (!task.ascending)
            sort_nodes(disk, worker, &task);
        if (disk->cache != NULL)
            (void)plim__droppable_enter(&disk->cache->base.memory, number);
        const int64_t num_cached = take_or_ask(disk, worker, &task);
        if (disk->cache != NULL)
            plim__droppable_leave(&disk->cache->base.memory, number);
        plim__source_count(&worker->io->items, task.count);
        plim__source_count(&worker->io->cached, num_cached);
        if (worker->num_reads > 0)
            PLIM_TRY(read_asked(disk, worker, NULL, ids + task.indptr[0],
                                task.indptr[task.count] - task.indptr[0]));
    }
    return PLIM_OK;
}

static plim_status_t degrees(plim__topology_t *source, int number, const int64_t *nodes,
                             int64_t count, int32_t *degrees_out)
{
    disk_t *disk = (disk_t *)source;
    lists_worker_t *worker = &disk->workers[number];
    if (disk->offsets != NULL)
        plim__offsets_degrees(disk->offsets, nodes, count, degrees_out);
    for (int64_t done = 0; disk->offsets == NULL && done < count;) {
        const int64_t task = plim__min_i64(count - done, disk->sizes->task);
        PLIM_TRY(read_offsets(disk, worker, nodes + done, task));
        for (int64_t i = 0; i < task; i++)
            degrees_out[done + i] = (int32_t)worker->lists[i].degree;
        done += task;
    }
    return PLIM_OK;
}

void plim__topology_disk_use(plim__topology_t *source, plim__working_set_t *set)
{
    if (set->num_lists > 0)
        atomic_store_explicit(&((disk_t *)source)->set, set, memory_order_release);
}

void plim__topology_disk_destroy(plim__topology_t *source)
{
    disk_t *disk = (disk_t *)source;
    if (disk == NULL)
        return;
    plim__list_cache_destroy(disk->cache);
    plim__file_close(&disk->indptr);
    plim__source_close(&disk->source);
}

/* The source's layout without its readers and its cache. */
static void lay_out(plim__arena_t *arena, void *object)
{
    disk_t *disk = object;
    const sizes_t *sizes = disk->sizes;
    const size_t task = (size_t)sizes->task;
    plim__source_lay_out(arena, &disk->source);
    disk->workers =
        plim__arena_carve(arena, (size_t)disk->source.num_workers, sizeof(lists_worker_t), 1);
    for (int i = 0; i < disk->source.num_workers; i++) {
        const lists_worker_t worker = {
            .number = i,
            .lists = plim__arena_carve(arena, task, sizeof(plim__list_t), 1),
            .cached = plim__arena_carve(arena, task, sizeof(int64_t), 1),
            .order = plim__arena_carve(arena, task, sizeof(int32_t), 1),
            .staging = plim__arena_carve(arena, (size_t)sizes->staged, disk->width, 1)};
        if (disk->workers != NULL) {
            disk->workers[i] = worker;
            disk->workers[i].io = &disk->source.workers[i];
        }
    }
}

static disk_t draft_of(const plim_dataset_t *dataset, const plim__source_params_t *params)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const sizes_t *sizes = params->all ? &cached_sizes : &disk_sizes;
    return (disk_t){.source = {.items = "lists",
                               .file.fd = -1,
                               .max_read = READ_BYTES,
                               .num_reads = sizes->reads,
                               .num_keys = sizes->task,
                               .num_workers = params->workers},
                    .indptr.fd = -1,
                    .info = info,
                    .num_nodes = info->num_nodes,
                    .width = plim__index_bytes(info->index_type),
                    .sizes = sizes};
}

static bool is_cached(const plim__source_params_t *params)
{
    const bool some =
        (params->cached != NULL && params->cached->count > 0) || plim__list_cache_packs(params);
    return params->all || (some && params->cache_bytes > 0);
}

size_t plim__topology_disk_estimate(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim__source_params_t *params)
{
    disk_t draft = draft_of(dataset, params);
    const size_t bytes = plim__object_bytes(lay_out, &draft, sizeof draft) +
                         plim__source_readers_bytes(job, &draft.source, params);
    return is_cached(params)
               ? plim__add_saturating_size(bytes, plim__list_cache_estimate(dataset, params))
               : bytes;
}

size_t plim__topology_disk_filling(const plim_job_t *job, const plim__source_params_t *params)
{
    return is_cached(params) ? plim__cache_filling(job, params) : 0;
}

/* Opens the source and makes its cache. */
static plim_status_t open_lists(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__source_params_t *params, disk_t *disk)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(dataset);
    PLIM_TRY(plim__source_open(job, dataset, params, &disk->source));
    if (disk->offsets == NULL)
        PLIM_TRY(plim__dataset_file_open(
            dataset, &manifest->files[manifest->topologies[params->number].indptr], true,
            &disk->indptr));
    if (!is_cached(params))
        return PLIM_OK;
    return plim__list_cache_create(job, dataset, disk->offsets, params, &disk->source,
                                   &disk->cache);
}

plim_status_t plim__topology_disk_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                         const plim__offsets_t *offsets,
                                         const plim__source_params_t *params,
                                         plim__topology_t **source_out)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(dataset);
    disk_t draft = draft_of(dataset, params), *disk;
    if (params->workers < 1 || draft.num_nodes > NODES_MAX)
        return plim__fail(PLIM_ERR_USAGE, "a disk topology of %lld nodes for %d workers",
                          (long long)draft.num_nodes, params->workers);
    draft.offsets = offsets;
    draft.source.entry = &manifest->files[manifest->topologies[params->number].indices];
    PLIM_TRY(plim__object_create(job->ledger, "I/O", lay_out, &draft, sizeof draft,
                                 &draft.source.arena, &disk));
    disk->face = (plim__topology_t){draw, degrees, entries, &disk->source, offsets};
    if (plim__list_cache_packs(params))
        plim__topology_disk_use(&disk->face, params->working_set);
    plim_status_t status = open_lists(job, dataset, params, disk);
    if (status != PLIM_OK) {
        plim__topology_disk_destroy(&disk->face);
        return status;
    }
    *source_out = &disk->face;
    return PLIM_OK;
}
