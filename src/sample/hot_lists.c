#include "sample/hot_lists.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"

#include <stdatomic.h>

#define BLOCK ((int64_t)1 << PLIM__HOT_BLOCK_BITS)
#define FILL_BLOCKS 4 /* filled by a thread at a time */
#define SOME 256      /* nodes looked at, at a time */
#define AHEAD 16      /* of them between a prefetch and its use */

static int64_t num_blocks(int64_t num_lists)
{
    return (num_lists + BLOCK - 1) / BLOCK;
}

/* Bytes of so many lists and entries; saturating. */
static size_t arena_bytes(int64_t num_lists, int64_t num_entries, size_t width)
{
    size_t size = plim__arena_piece(1, sizeof(plim__hot_lists_t), 1);
    size_t blocks = plim__arena_piece((size_t)num_blocks(num_lists), sizeof(plim__hot_block_t), 1);
    size_t starts = plim__arena_piece((size_t)num_lists, sizeof(uint32_t), PLIM__PAGE);
    size_t entries = plim__arena_piece((size_t)num_entries, width, PLIM__PAGE);
    if (!plim__add_size(size, blocks, &size) || !plim__add_size(size, starts, &size) ||
        !plim__add_size(size, entries, &size))
        return SIZE_MAX;
    return plim__round_up(size, PLIM__PAGE);
}

static size_t entry_width(const plim_dataset_info_t *info)
{
    return info->index_type == PLIM_I32 ? sizeof(int32_t) : sizeof(int64_t);
}

size_t plim__hot_lists_estimate(const plim_dataset_t *dataset, const plim__node_set_t *nodes,
                                size_t bytes)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    if (nodes == NULL || nodes->count == 0)
        return 0;
    size_t all = arena_bytes(nodes->count, info->num_edges, entry_width(info));
    bytes &= ~(PLIM__PAGE - 1);
    return all < bytes ? all : bytes;
}

/* The members of the set one after the other, with their lists. */
typedef struct walk {
    const plim__node_set_t *nodes;
    const plim__offsets_t *offsets;
    int64_t some[SOME];
    int64_t held;
    int64_t next;
} walk_t;

static void walk_start(walk_t *walk, const plim__node_set_t *nodes, const plim__offsets_t *offsets,
                       int64_t from)
{
    walk->nodes = nodes;
    walk->offsets = offsets;
    walk->next = 0;
    walk->held = plim__node_set_list(nodes, from, SOME, walk->some);
}

/* The next member, or -1 after the last. */
static int64_t walk_next(walk_t *walk, plim__list_t *list_out)
{
    if (walk->next == walk->held && walk->held > 0)
        walk_start(walk, walk->nodes, walk->offsets, walk->some[walk->held - 1] + 1);
    if (walk->next == walk->held)
        return -1;
    if (walk->next + AHEAD < walk->held)
        plim__offsets_prefetch(walk->offsets, walk->some[walk->next + AHEAD]);
    int64_t node = walk->some[walk->next++];
    *list_out = plim__offsets_list(walk->offsets, node);
    return node;
}

/* How many of the first lists fit `bytes`, and 32 bits within their block. */
static void measure(const plim__node_set_t *nodes, const plim__offsets_t *offsets, size_t width,
                    size_t bytes, int64_t *num_lists_out, int64_t *num_entries_out)
{
    walk_t walk;
    plim__list_t list;
    int64_t num_lists = 0, num_entries = 0, block_start = 0;
    walk_start(&walk, nodes, offsets, 0);
    while (walk_next(&walk, &list) >= 0) {
        if (num_lists % BLOCK == 0)
            block_start = num_entries;
        if (num_entries - block_start > UINT32_MAX ||
            arena_bytes(num_lists + 1, num_entries + list.degree, width) > bytes)
            break;
        num_lists++;
        num_entries += list.degree;
    }
    *num_lists_out = num_lists;
    *num_entries_out = num_entries;
}

static void set_starts(plim__hot_lists_t *hot)
{
    walk_t walk;
    plim__list_t list;
    int64_t start = 0;
    walk_start(&walk, hot->nodes, hot->offsets, 0);
    for (int64_t i = 0; i < hot->num_lists; i++) {
        int64_t node = walk_next(&walk, &list);
        if (i % BLOCK == 0)
            hot->blocks[i / BLOCK] = (plim__hot_block_t){start, node};
        hot->starts[i] = (uint32_t)(start - hot->blocks[i / BLOCK].start);
        start += list.degree;
    }
}

plim_status_t plim__hot_lists_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim__offsets_t *offsets, const plim__node_set_t *nodes,
                                     size_t bytes, plim__hot_lists_t **hot_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const size_t width = entry_width(info);
    plim__arena_t arena;
    int64_t num_lists, num_entries;
    measure(nodes, offsets, width, bytes, &num_lists, &num_entries);
    if (num_lists == 0) {
        *hot_out = NULL;
        return PLIM_OK;
    }
    PLIM_TRY(plim__arena_create(job->ledger, "hot lists",
                                arena_bytes(num_lists, num_entries, width), &arena));
    plim__hot_lists_t *hot = plim__arena_carve(&arena, 1, sizeof *hot, 1);
    hot->nodes = nodes;
    hot->offsets = offsets;
    hot->num_nodes = info->num_nodes;
    hot->num_lists = num_lists;
    hot->num_entries = num_entries;
    hot->width = width;
    hot->blocks =
        plim__arena_carve(&arena, (size_t)num_blocks(num_lists), sizeof(plim__hot_block_t), 1);
    hot->starts = plim__arena_carve(&arena, (size_t)num_lists, sizeof(uint32_t), PLIM__PAGE);
    hot->entries = plim__arena_carve(&arena, (size_t)num_entries, width, PLIM__PAGE);
    plim__arena_want_huge(hot->starts, (size_t)num_lists * sizeof(uint32_t));
    plim__arena_want_small(hot->entries, (size_t)num_entries * width);
    hot->arena = arena;
    set_starts(hot);
    *hot_out = hot;
    return PLIM_OK;
}

void plim__hot_lists_destroy(plim__hot_lists_t *hot)
{
    if (hot != NULL)
        plim__arena_destroy(&hot->arena);
}

/* Filling, by several threads: each takes the next few blocks. */
typedef struct filling {
    plim__hot_lists_t *hot;
    const plim_job_t *job;
    const plim__file_t *file;
    const plim__hot_filler_t *fillers;
    atomic_int_least64_t next;
} filling_t;

static char *place_of(const plim__hot_lists_t *hot, int64_t entry)
{
    return (char *)hot->entries + (size_t)entry * hot->width;
}

/* Entries before the block, or all of them. */
static int64_t block_start(const plim__hot_lists_t *hot, int64_t block)
{
    return block * BLOCK < hot->num_lists ? hot->blocks[block].start : hot->num_entries;
}

/* Names the entry of the file that is the `place`-th of those kept. */
static plim_status_t fail_entry(const filling_t *filling, int64_t block, int64_t place,
                                int64_t value)
{
    const plim__hot_lists_t *hot = filling->hot;
    walk_t walk;
    plim__list_t list = {0, 0};
    int64_t start = hot->blocks[block].start;
    walk_start(&walk, hot->nodes, hot->offsets, hot->blocks[block].node);
    while (walk_next(&walk, &list) >= 0 && place >= start + list.degree)
        start += list.degree;
    return plim__fail(PLIM_ERR_DATA,
                      "%s: entry %lld is %lld, which is none of %lld nodes; copy the dataset again "
                      "or make it anew",
                      filling->file->path, (long long)(list.start + place - start),
                      (long long)value, (long long)hot->num_nodes);
}

#define COMPLEMENT(name, type, unsigned_type)                                                      \
    /* False when one of the entries is no node. */                                                \
    static bool name(type *entries, int64_t count, int64_t num_nodes)                              \
    {                                                                                              \
        const unsigned_type last = (unsigned_type)(num_nodes - 1);                                 \
        unsigned wrong = 0;                                                                        \
        for (int64_t i = 0; i < count; i++) {                                                      \
            wrong |= (unsigned_type)entries[i] > last;                                             \
            entries[i] = ~entries[i];                                                              \
        }                                                                                          \
        return wrong == 0;                                                                         \
    }

COMPLEMENT(complement_i32, int32_t, uint32_t)
COMPLEMENT(complement_i64, int64_t, uint64_t)

/* Checks and complements what was read of the entries [from, to), which begin in `block`. */
static plim_status_t complement(const filling_t *filling, int64_t block, int64_t from, int64_t to)
{
    const plim__hot_lists_t *hot = filling->hot;
    void *entries = place_of(hot, from);
    bool right = hot->width == sizeof(int32_t) ? complement_i32(entries, to - from, hot->num_nodes)
                                               : complement_i64(entries, to - from, hot->num_nodes);
    for (int64_t place = from; !right && place < to; place++) {
        int64_t value = plim__hot_lists_entry(hot, place);
        if ((uint64_t)value >= (uint64_t)hot->num_nodes)
            return fail_entry(filling, block, place, value);
    }
    return PLIM_OK;
}

/*
 * Asks for entries [first, first + count) of the file, which go to `place` on: as part of the read
 * before where they are its neighbours, as they then are in memory. How many found room among the
 * reads.
 */
static int64_t ask(const filling_t *filling, const plim__hot_filler_t *filler, int64_t *num_reads,
                   int64_t first, int64_t count, int64_t place)
{
    const size_t width = filling->hot->width;
    const int64_t most = (int64_t)(filler->max_read / width);
    int64_t done = 0;
    while (done < count) {
        int64_t offset = PLIM__NPY_HEADER + (first + done) * (int64_t)width;
        plim__read_t *last = *num_reads > 0 ? &filler->reads[*num_reads - 1] : NULL;
        if (last != NULL && last->offset + (int64_t)last->size == offset &&
            last->size + width <= filler->max_read) {
            int64_t more = plim__min_i64(count - done, most - (int64_t)(last->size / width));
            last->size += (size_t)more * width;
            done += more;
            continue;
        }
        if (*num_reads == filler->num_reads)
            break;
        int64_t part = plim__min_i64(count - done, most);
        filler->reads[(*num_reads)++] =
            (plim__read_t){offset, (size_t)part * width, place_of(filling->hot, place + done)};
        done += part;
    }
    return done;
}

/* Blocks [block, end): their lists are read to where they stay, then complemented there. */
static plim_status_t fill_blocks(const filling_t *filling, const plim__hot_filler_t *filler,
                                 int64_t block, int64_t end)
{
    plim__hot_lists_t *hot = filling->hot;
    walk_t walk;
    int64_t num_reads = 0;
    int64_t place = block_start(hot, block), to = block_start(hot, end);
    const int64_t from = place;
    walk_start(&walk, hot->nodes, hot->offsets, hot->blocks[block].node);
    while (place < to) {
        plim__list_t list = {0, 0};
        (void)walk_next(&walk, &list);
        for (int64_t done = 0; done < list.degree;) {
            done += ask(filling, filler, &num_reads, list.start + done, list.degree - done,
                        place + done);
            if (done < list.degree) {
                PLIM_TRY(
                    plim__reader_read(filler->reader, filling->file, filler->reads, num_reads));
                num_reads = 0;
            }
        }
        place += list.degree;
    }
    PLIM_TRY(plim__reader_read(filler->reader, filling->file, filler->reads, num_reads));
    PLIM_TRY(complement(filling, block, from, to));
    plim__arena_may_drop(place_of(hot, from), (size_t)(to - from) * hot->width);
    return PLIM_OK;
}

static plim_status_t fill(void *context, int worker)
{
    filling_t *filling = context;
    const int64_t blocks = num_blocks(filling->hot->num_lists);
    for (;;) {
        int64_t block = atomic_fetch_add(&filling->next, FILL_BLOCKS);
        if (block >= blocks)
            return PLIM_OK;
        plim_status_t status = plim__job_check(filling->job);
        if (status == PLIM_OK)
            status = fill_blocks(filling, &filling->fillers[worker], block,
                                 plim__min_i64(block + FILL_BLOCKS, blocks));
        if (status != PLIM_OK) {
            atomic_store(&filling->next, blocks); /* nobody takes more */
            return status;
        }
        if (worker == 0) /* so that it never turns back */
            plim__progress(filling->job, "keeping lists", "blocks", block, blocks);
    }
}

plim_status_t plim__hot_lists_fill(plim__hot_lists_t *hot, const plim_job_t *job,
                                   const plim__file_t *file, const plim__hot_filler_t *fillers,
                                   int num_fillers)
{
    filling_t filling = {.hot = hot, .job = job, .file = file, .fillers = fillers};
    int threads = num_fillers < job->threads ? num_fillers : job->threads;
    return plim__parallel(threads < PLIM__THREADS_MAX ? threads : PLIM__THREADS_MAX, fill,
                          &filling);
}
