#include "source/self_loops.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "mem/arena.h"
#include "store/sweep.h"

#define CHUNK_BYTES ((int64_t)512 << 10)

/* The part of a list that a chunk holds, where it does not hold the whole list. */
typedef struct partial {
    int64_t node;
    int64_t loops;
} partial_t;

/* One worker's results for a chunk: the most loops of whole lists, and the first and the last list
 * where the chunk holds only a part of them. */
typedef struct loops_tally {
    int64_t most;
    int num_partial;
    partial_t partial[2];
} loops_tally_t;

typedef struct loops_reading {
    const plim_dataset_t *dataset;
    const plim__offsets_t *offsets;
    plim__self_loops_t *loops; /* table to fill; NULL: only count */
    loops_tally_t *tallies;    /* (threads) */
    /* Merged in file order: */
    int64_t most;
    partial_t open; /* the list that the last chunk ended with */
} loops_reading_t;

unsigned plim__self_loops_bits(int64_t most)
{
    unsigned bits = most > 0;
    while (bits > 0 && bits < 64 && most >> bits > 0)
        bits *= 2;
    return bits;
}

size_t plim__self_loops_words(int64_t num_nodes, unsigned bits)
{
    const size_t each = bits > 0 ? 64 / bits : 1;
    return bits > 0 ? ((size_t)num_nodes + each - 1) / each : 0;
}

#define COUNT_NODE(name, type)                                                                     \
    static int64_t name(const type *entries, int64_t count, int64_t node)                          \
    {                                                                                              \
        int64_t loops = 0;                                                                         \
        for (int64_t i = 0; i < count; i++)                                                        \
            loops += entries[i] == node;                                                           \
        return loops;                                                                              \
    }

COUNT_NODE(count_u32, uint32_t)
COUNT_NODE(count_i64, int64_t)

/* Two workers may add to the same word. */
static plim_status_t add(const loops_reading_t *reading, int64_t node, int64_t count)
{
    const plim__self_loops_t *loops = reading->loops;
    const uint64_t place = (uint64_t)node * loops->bits;
    const uint64_t mask = ~(uint64_t)0 >> (64 - loops->bits);
    const uint64_t before = __atomic_fetch_add(&loops->words[place / 64],
                                               (uint64_t)count << place % 64, __ATOMIC_RELAXED);
    if ((uint64_t)count <= mask - (before >> place % 64 & mask))
        return PLIM_OK;
    return plim__fail(PLIM_ERR_DATA,
                      "%s: node %lld has more self-loops than dataset.json says; copy or make the "
                      "dataset again",
                      plim__dataset_path(reading->dataset), (long long)node);
}

static plim_status_t process(void *context, int worker, int64_t chunk, void *data, size_t size)
{
    const loops_reading_t *reading = context;
    const plim_dataset_info_t *info = plim_dataset_info(reading->dataset);
    const int64_t bytes = (int64_t)plim__index_bytes(info->index_type);
    const int64_t first = chunk * (CHUNK_BYTES / bytes), stop = first + (int64_t)size / bytes;
    loops_tally_t tally = {0};
    for (int64_t node = plim__offsets_node_of(reading->offsets, first); node < info->num_nodes;
         node++) {
        const plim__list_t list = plim__offsets_list(reading->offsets, node);
        const int64_t begin = plim__max_i64(list.start, first);
        const int64_t end = plim__min_i64(list.start + list.degree, stop);
        if (list.start >= stop)
            break;
        if (begin >= end)
            continue;
        const int64_t loops =
            info->index_type == PLIM_I64
                ? count_i64((const int64_t *)data + (begin - first), end - begin, node)
                : count_u32((const uint32_t *)data + (begin - first), end - begin, node);
        if (end - begin == list.degree)
            tally.most = plim__max_i64(tally.most, loops);
        else
            tally.partial[tally.num_partial++] = (partial_t){node, loops};
        if (loops > 0 && reading->loops != NULL)
            PLIM_TRY(add(reading, node, loops));
    }
    reading->tallies[worker] = tally;
    return PLIM_OK;
}

static plim_status_t merge(void *context, int worker, int64_t chunk, void *data, size_t size)
{
    loops_reading_t *reading = context;
    const loops_tally_t *tally = &reading->tallies[worker];
    (void)chunk;
    (void)data;
    (void)size;
    reading->most = plim__max_i64(reading->most, tally->most);
    for (int i = 0; i < tally->num_partial; i++) {
        if (reading->open.node != tally->partial[i].node)
            reading->open = (partial_t){.node = tally->partial[i].node};
        reading->open.loops += tally->partial[i].loops;
        reading->most = plim__max_i64(reading->most, reading->open.loops);
    }
    return PLIM_OK;
}

static plim_status_t read_lists(const plim_job_t *job, loops_reading_t *reading)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(reading->dataset);
    const plim__manifest_file_t *entry = &manifest->files[manifest->topologies[0].indices];
    plim__file_t file;
    plim__arena_t arena;
    const plim__sweep_t sweep = {.file = &file,
                                 .entry = entry,
                                 .start = PLIM__NPY_HEADER,
                                 .end = entry->bytes,
                                 .chunk = CHUNK_BYTES,
                                 .phase = "counting self-loops",
                                 .context = reading,
                                 .process = process,
                                 .merge = merge};
    if (entry->shape[0] == 0)
        return PLIM_OK;
    PLIM_TRY(plim__arena_create(job->ledger, "offsets",
                                (size_t)plim__job_threads(job) * sizeof(loops_tally_t), &arena));
    reading->tallies = (void *)arena.base;
    plim_status_t status = plim__dataset_file_open(reading->dataset, entry, true, &file);
    if (status == PLIM_OK) {
        status = plim__sweep_run(job, &sweep);
        plim__file_close(&file);
    }
    plim__arena_destroy(&arena);
    return status;
}

plim_status_t plim__self_loops_fill(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim__offsets_t *offsets, plim__self_loops_t *loops)
{
    loops_reading_t reading = {
        .dataset = dataset, .offsets = offsets, .loops = loops, .open = {.node = -1}};
    return read_lists(job, &reading);
}

plim_status_t plim__self_loops_count(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim__offsets_t *offsets)
{
    loops_reading_t reading = {.dataset = dataset, .offsets = offsets, .open = {.node = -1}};
    PLIM_TRY(read_lists(job, &reading));
    plim__dataset_note_self_loops(dataset, reading.most);
    return PLIM_OK;
}
