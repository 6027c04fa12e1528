/*
 * Adjacency lists in memory. A draw goes over a chunk of nodes twice: first offsets are decoded and
 * positions drawn, the entries being prefetched; then the entries are loaded.
 */
#include "base/check.h"
#include "base/fail.h"
#include "mem/arena.h"
#include "sample/sweep.h"
#include "sample/topology.h"

#define PIECE_BYTES ((int64_t)2 << 20)
#define CHUNK_ENTRIES 2048 /* drawn between two turns: their cache lines fit L2 */
#define AHEAD 16           /* nodes whose offsets are prefetched */

typedef struct worker {
    int64_t lists; /* written by the worker's thread, read by any */
    char apart[PLIM__LINE - sizeof(int64_t)];
} worker_t;

typedef struct memory {
    plim__topology_t source; /* first: handed out as such */
    plim__arena_t arena;
    const plim__offsets_t *offsets;
    void *indices; /* (num_edges) int32_t or int64_t */
    bool narrow;
    unsigned shift; /* binary logarithm of an entry's bytes */
    int num_workers;
    worker_t *workers;
} memory_t;

/* Replaces ids[from … to-1], entry numbers so far, by the entries. */
static void load_entries(const memory_t *memory, int64_t *ids, int64_t from, int64_t to)
{
    const int32_t *narrow = memory->indices;
    const int64_t *wide = memory->indices;
    if (memory->narrow)
        for (int64_t i = from; i < to; i++)
            ids[i] = narrow[ids[i]];
    else
        for (int64_t i = from; i < to; i++)
            ids[i] = wide[ids[i]];
}

/* Into L2 only: a chunk's lines are more than L1 holds, and the misses in flight are fewer there.
 */
static inline void prefetch_entry(const memory_t *memory, int64_t entry)
{
    __builtin_prefetch((const char *)memory->indices + ((size_t)entry << memory->shift), 0, 2);
}

static plim_status_t draw(plim__topology_t *source, int worker, const plim__hop_t *hop,
                          const int64_t *nodes, int64_t count, plim__drawn_t *drawn)
{
    const memory_t *memory = (const memory_t *)source;
    const uint64_t prefix = plim__draw_prefix(hop);
    int64_t total = 0, loaded = 0, taken = 0;
    drawn->indptr[0] = 0;
    for (int64_t i = 0; i < count && i < AHEAD; i++)
        plim__offsets_prefetch(memory->offsets, nodes[i]);
    for (; taken < count; taken++) {
        if (taken + AHEAD < count)
            plim__offsets_prefetch(memory->offsets, nodes[taken + AHEAD]);
        plim__list_t list = plim__offsets_list(memory->offsets, nodes[taken]);
        int64_t wanted = plim__draw_count(hop, list.degree);
        if (wanted > drawn->capacity - total)
            break;
        int64_t *ids = drawn->ids + total;
        plim__draw_positions_keyed(plim__draw_key(prefix, nodes[taken]), hop, list.degree, ids);
        for (int64_t i = 0; i < wanted; i++) {
            ids[i] += list.start;
            prefetch_entry(memory, ids[i]);
        }
        total += wanted;
        drawn->indptr[taken + 1] = total;
        if (total - loaded >= CHUNK_ENTRIES) {
            load_entries(memory, drawn->ids, loaded, total);
            loaded = total;
        }
    }
    load_entries(memory, drawn->ids, loaded, total);
    drawn->taken = taken;
    int64_t *lists = &memory->workers[worker].lists;
    __atomic_store_n(lists, *lists + taken, __ATOMIC_RELAXED);
    if (taken == 0 && count > 0)
        return plim__fail(PLIM_ERR_BUDGET,
                          "what node %lld draws at hop %d does not fit %lld entries",
                          (long long)nodes[0], hop->hop + 1, (long long)drawn->capacity);
    return PLIM_OK;
}

static plim_status_t degrees(plim__topology_t *source, int worker, const int64_t *nodes,
                             int64_t count, int32_t *degrees_out)
{
    (void)worker;
    plim__offsets_degrees(((const memory_t *)source)->offsets, nodes, count, degrees_out);
    return PLIM_OK;
}

static void stats(plim__topology_t *source, plim__topology_stats_t *stats_out)
{
    const memory_t *memory = (const memory_t *)source;
    plim__topology_stats_t sum = {0};
    for (int i = 0; i < memory->num_workers; i++)
        sum.lists += __atomic_load_n(&memory->workers[i].lists, __ATOMIC_RELAXED);
    sum.lists_hot = sum.lists;
    *stats_out = sum;
}

static void destroy(plim__topology_t *source)
{
    plim__arena_destroy(&((memory_t *)source)->arena);
}

/* What the sweep's pieces are checked against. */
typedef struct reading {
    const plim__file_t *file;
    uint64_t num_nodes;
    bool narrow;
} reading_t;

#define FIND_WRONG(name, type, unsigned_type)                                                      \
    /* The first entry that is no node, or `count`. */                                             \
    static size_t name(const type *entries, size_t count, uint64_t num_nodes)                      \
    {                                                                                              \
        const unsigned_type last = (unsigned_type)(num_nodes - 1);                                 \
        unsigned wrong = 0;                                                                        \
        for (size_t i = 0; i < count; i++)                                                         \
            wrong |= (unsigned_type)entries[i] > last;                                             \
        size_t place = count;                                                                      \
        if (wrong)                                                                                 \
            for (place = 0; (unsigned_type)entries[place] <= last;)                                \
                place++;                                                                           \
        return place;                                                                              \
    }

FIND_WRONG(find_wrong_i32, int32_t, uint32_t)
FIND_WRONG(find_wrong_i64, int64_t, uint64_t)

static plim_status_t look(void *context, int worker, int64_t piece, void *data, size_t size)
{
    const reading_t *reading = context;
    size_t width = reading->narrow ? sizeof(int32_t) : sizeof(int64_t);
    size_t count = size / width;
    size_t place = reading->narrow ? find_wrong_i32(data, count, reading->num_nodes)
                                   : find_wrong_i64(data, count, reading->num_nodes);
    (void)worker;
    if (place == count)
        return PLIM_OK;
    int64_t entry =
        reading->narrow ? ((const int32_t *)data)[place] : ((const int64_t *)data)[place];
    return plim__fail(PLIM_ERR_DATA,
                      "%s: entry %lld is %lld, which is none of %lld nodes; copy the dataset again "
                      "or make it anew",
                      reading->file->path,
                      (long long)(piece * (PIECE_BYTES / (int64_t)width) + (int64_t)place),
                      (long long)entry, (long long)reading->num_nodes);
}

static size_t arena_bytes(const plim_dataset_info_t *info, int workers)
{
    size_t size = plim__arena_piece(1, sizeof(memory_t), 1);
    size_t width = plim__index_bytes(info->index_type);
    /* Direct reads end on a page. */
    size_t indices = plim__arena_piece((size_t)info->num_edges, width, 2 * PLIM__PAGE);
    if (!plim__add_size(size, indices, &size) ||
        !plim__add_size(size, plim__arena_piece((size_t)workers, sizeof(worker_t), 1), &size))
        return SIZE_MAX;
    return size;
}

size_t plim__topology_memory_stays(const plim_dataset_t *dataset, int workers)
{
    return plim__round_up(arena_bytes(plim_dataset_info(dataset), workers), PLIM__PAGE);
}

size_t plim__topology_memory_estimate(const plim_job_t *job, const plim_dataset_t *dataset,
                                      int workers)
{
    size_t size = plim__topology_memory_stays(dataset, workers);
    return plim__add_size(size, plim__sweep_most(job, PIECE_BYTES, true), &size) ? size : SIZE_MAX;
}

static plim_status_t read_indices(const plim_job_t *job, const plim_dataset_t *dataset,
                                  memory_t *memory)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(dataset);
    const size_t width = plim__index_bytes(manifest->info.index_type);
    plim__file_t file;
    reading_t reading = {&file, (uint64_t)manifest->info.num_nodes, memory->narrow};
    const plim__manifest_file_t *entry = plim__manifest_find(manifest, "indices.npy");
    const plim__sweep_t sweep = {.file = &file,
                                 .entry = entry,
                                 .start = PLIM__NPY_HEADER,
                                 .end =
                                     PLIM__NPY_HEADER + manifest->info.num_edges * (int64_t)width,
                                 .piece = PIECE_BYTES,
                                 .place = memory->indices,
                                 .phase = "reading adjacency",
                                 .context = &reading,
                                 .look = look};
    PLIM_TRY(plim__dataset_file_open(dataset, entry, true, &file));
    plim_status_t status = plim__sweep_run(job, &sweep);
    plim__file_close(&file);
    return status;
}

plim_status_t plim__topology_memory_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                           const plim__offsets_t *offsets, int workers,
                                           plim__topology_t **source_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    plim__arena_t arena;
    PLIM_TRY(plim__arena_create(job->ledger, "adjacency", arena_bytes(info, workers), &arena));
    const size_t width = plim__index_bytes(info->index_type);
    /* First, so that no huge page is two threads' chunks: each would have one charged. */
    char *indices = plim__arena_carve(
        &arena, 1, plim__round_up((size_t)info->num_edges * width, PLIM__PAGE), PLIM__PAGE);
    plim__arena_want_huge(arena.base, arena.size);
    memory_t *memory = plim__arena_carve(&arena, 1, sizeof *memory, 1);
    memory->source = (plim__topology_t){draw, degrees, stats, destroy};
    memory->offsets = offsets;
    memory->indices = indices;
    memory->narrow = info->index_type == PLIM_I32;
    memory->shift = memory->narrow ? 2 : 3;
    memory->num_workers = workers;
    memory->workers = plim__arena_carve(&arena, (size_t)workers, sizeof(worker_t), 1);
    plim_status_t status = read_indices(job, dataset, memory);
    if (status != PLIM_OK) {
        plim__arena_destroy(&arena);
        return status;
    }
    memory->arena = arena;
    *source_out = &memory->source;
    return PLIM_OK;
}
