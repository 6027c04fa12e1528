#include "sample/list_cache.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"
#include "mem/headroom.h"

#include <stdatomic.h>

#define BLOCK ((int64_t)1 << PLIM__ROW_CACHE_BLOCK_BITS)
#define FILL_BLOCKS 4 /* filled by a thread at a time */
#define SOME 256      /* nodes looked at, at a time */
#define AHEAD 16      /* of them between a prefetch and its use */

#define REFRESH_NS ((int64_t)1000000000)
#define MARGIN_BYTES ((int64_t)32 << 20) /* of memory that a refresh leaves to others */
#define ROOM_BYTES ((int64_t)16 << 20)   /* brought back before room is asked for again */

static int64_t num_blocks(int64_t num_lists)
{
    return (num_lists + BLOCK - 1) / BLOCK;
}

/* Bytes of so many lists and entries; saturating. */
static size_t arena_bytes(int64_t num_lists, int64_t num_entries, size_t width)
{
    size_t size = plim__arena_piece(1, sizeof(plim__list_cache_t), 1);
    size_t blocks = plim__arena_piece((size_t)num_blocks(num_lists), sizeof(int64_t), 1);
    size_t starts = plim__arena_piece((size_t)num_lists, sizeof(uint32_t), PLIM__PAGE);
    size_t entries = plim__arena_piece((size_t)num_entries, width, PLIM__PAGE);
    if (!plim__add_size(size, blocks, &size) || !plim__add_size(size, starts, &size) ||
        !plim__add_size(size, entries, &size))
        return SIZE_MAX;
    return plim__round_up(size, PLIM__PAGE);
}

size_t plim__list_cache_estimate(const plim_dataset_t *dataset, const plim__node_set_t *nodes,
                                 size_t bytes)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    if (nodes == NULL || nodes->count == 0)
        return 0;
    size_t all = arena_bytes(nodes->count, info->num_edges, plim__index_bytes(info->index_type));
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

static void set_starts(plim__list_cache_t *hot)
{
    walk_t walk;
    plim__list_t list = {0, 0};
    int64_t start = 0;
    walk_start(&walk, hot->nodes, hot->offsets, 0);
    for (int64_t i = 0; i < hot->num_lists && walk_next(&walk, &list) >= 0; i++) {
        if (i % BLOCK == 0)
            hot->blocks[i / BLOCK] = start;
        hot->starts[i] = (uint32_t)(start - hot->blocks[i / BLOCK]);
        start += list.degree;
    }
}

plim_status_t plim__list_cache_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                      const plim__offsets_t *offsets, const plim__node_set_t *nodes,
                                      size_t bytes, plim__list_cache_t **hot_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const size_t width = plim__index_bytes(info->index_type);
    plim__arena_t arena;
    int64_t num_lists, num_entries;
    measure(nodes, offsets, width, bytes, &num_lists, &num_entries);
    if (num_lists == 0) {
        *hot_out = NULL;
        return PLIM_OK;
    }
    PLIM_TRY(plim__arena_create(job->ledger, "hot lists",
                                arena_bytes(num_lists, num_entries, width), &arena));
    plim__list_cache_t *hot = plim__arena_carve(&arena, 1, sizeof *hot, 1);
    hot->nodes = nodes;
    hot->offsets = offsets;
    hot->num_nodes = info->num_nodes;
    hot->num_lists = num_lists;
    hot->num_entries = num_entries;
    hot->width = width;
    hot->blocks = plim__arena_carve(&arena, (size_t)num_blocks(num_lists), sizeof(int64_t), 1);
    hot->starts = plim__arena_carve(&arena, (size_t)num_lists, sizeof(uint32_t), PLIM__PAGE);
    hot->entries = plim__arena_carve(&arena, (size_t)num_entries, width, PLIM__PAGE);
    plim__arena_want_huge(hot->starts, (size_t)num_lists * sizeof(uint32_t));
    hot->arena = arena;
    hot->most_entries = hot->released_from = num_entries;
    hot->lists_now = num_lists;
    pthread_mutex_init(&hot->lock, NULL);
    set_starts(hot);
    *hot_out = hot;
    return PLIM_OK;
}

void plim__list_cache_destroy(plim__list_cache_t *hot)
{
    if (hot == NULL)
        return;
    pthread_mutex_destroy(&hot->lock);
    plim__arena_destroy(&hot->arena);
}

static char *place_of(const plim__list_cache_t *hot, int64_t entry)
{
    return (char *)hot->entries + (size_t)entry * hot->width;
}

/* Entries before the block, or all of them. */
static int64_t block_start(const plim__list_cache_t *hot, int64_t block)
{
    return block * BLOCK < hot->num_lists ? hot->blocks[block] : hot->num_entries;
}

/* The list that the `place`-th entry belongs to: the last one that begins there or before. */
static int64_t rank_at(const plim__list_cache_t *hot, int64_t place)
{
    int64_t low = 0, high = hot->num_lists;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (plim__list_cache_start(hot, middle) <= place)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Names the entry of the file that is the `place`-th of those kept. */
static plim_status_t fail_entry(const plim__list_cache_t *hot, const plim__file_t *file,
                                int64_t place, int64_t value)
{
    int64_t rank = rank_at(hot, place);
    plim__list_t list = plim__offsets_list(hot->offsets, plim__node_set_select(hot->nodes, rank));
    long long entry = list.start + place - plim__list_cache_start(hot, rank);
    return plim__fail(PLIM_ERR_DATA,
                      "%s: entry %lld is %lld, which is none of %lld nodes; copy the dataset again "
                      "or make it anew",
                      file->path, entry, (long long)value, (long long)hot->num_nodes);
}

/* Reads of entries, as they are asked for. */
typedef struct asking {
    const plim__list_cache_t *hot;
    const plim__file_t *file;
    const plim__list_filler_t *filler;
    int64_t num_reads;
} asking_t;

static plim_status_t read_asked(asking_t *asking)
{
    int64_t count = asking->num_reads;
    asking->num_reads = 0;
    return plim__reader_read(asking->filler->reader, asking->file, asking->filler->reads, count);
}

/*
 * Asks for entries [first, first + count) of the file: as part of the read before where they are
 * its neighbours, as their places in memory then are too. Reads what was asked when it must.
 */
static plim_status_t ask(asking_t *asking, int64_t first, int64_t count, char *to)
{
    const size_t width = asking->hot->width;
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

/* Asks for the entries [from, to) of those kept, the first of which goes to `place`. */
static plim_status_t ask_kept(asking_t *asking, int64_t from, int64_t to, char *place)
{
    const plim__list_cache_t *hot = asking->hot;
    walk_t walk;
    plim__list_t list = {0, 0};
    if (from == to)
        return PLIM_OK;
    int64_t rank = rank_at(hot, from);
    int64_t start = plim__list_cache_start(hot, rank);
    walk_start(&walk, hot->nodes, hot->offsets, plim__node_set_select(hot->nodes, rank));
    for (int64_t at = from; at < to;) {
        (void)walk_next(&walk, &list);
        int64_t end = plim__min_i64(start + list.degree, to);
        PLIM_TRY(ask(asking, list.start + at - start, end - at,
                     place + (size_t)(at - from) * hot->width));
        start += list.degree;
        at = end;
    }
    return PLIM_OK;
}

/* Filling, by several threads: each takes the next few blocks. */
typedef struct filling {
    plim__list_cache_t *hot;
    const plim_job_t *job;
    const plim__file_t *file;
    const plim__list_filler_t *fillers;
    atomic_int_least64_t next;
} filling_t;

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

/* Checks and complements what was read of the entries [from, to). */
static plim_status_t complement(const filling_t *filling, int64_t from, int64_t to)
{
    const plim__list_cache_t *hot = filling->hot;
    void *entries = place_of(hot, from);
    bool right = hot->width == sizeof(int32_t) ? complement_i32(entries, to - from, hot->num_nodes)
                                               : complement_i64(entries, to - from, hot->num_nodes);
    for (int64_t place = from; !right && place < to; place++) {
        int64_t value = plim__list_cache_entry(hot, place);
        if ((uint64_t)value >= (uint64_t)hot->num_nodes)
            return fail_entry(hot, filling->file, place, value);
    }
    return PLIM_OK;
}

/*
 * After all was filled, or some of it again: a page that two pieces share is let go by neither, and
 * a page that another processor has just brought in is passed over by the kernel as long as it
 * waits in that processor's own list. The entries are the arena's last piece, so their last page is
 * all theirs.
 */
static void let_all_go(const plim__list_cache_t *hot)
{
    plim__arena_may_drop(hot->entries,
                         plim__round_up((size_t)hot->num_entries * hot->width, PLIM__PAGE));
}

/* Blocks [block, end): their lists are read to where they stay, then complemented there. */
static plim_status_t fill_blocks(const filling_t *filling, const plim__list_filler_t *filler,
                                 int64_t block, int64_t end)
{
    plim__list_cache_t *hot = filling->hot;
    asking_t asking = {hot, filling->file, filler, 0};
    int64_t from = block_start(hot, block), to = block_start(hot, end);
    PLIM_TRY(ask_kept(&asking, from, to, place_of(hot, from)));
    PLIM_TRY(read_asked(&asking));
    PLIM_TRY(complement(filling, from, to));
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

static int fill_threads(const plim_job_t *job, int num_fillers)
{
    int threads = num_fillers < job->threads ? num_fillers : job->threads;
    return threads < PLIM__THREADS_MAX ? threads : PLIM__THREADS_MAX;
}

size_t plim__list_cache_fill_estimate(const plim_job_t *job, int num_fillers)
{
    return (size_t)(fill_threads(job, num_fillers) - 1) * PLIM__STACK_BYTES;
}

plim_status_t plim__list_cache_fill(plim__list_cache_t *hot, const plim_job_t *job,
                                    const plim__file_t *file, const plim__list_filler_t *fillers,
                                    int num_fillers)
{
    filling_t filling = {.hot = hot, .job = job, .file = file, .fillers = fillers};
    size_t stacks = plim__list_cache_fill_estimate(job, num_fillers);
    int account;
    PLIM_TRY(plim__ledger_reserve(job->ledger, "hot lists", stacks, &account));
    plim_status_t status = plim__parallel(fill_threads(job, num_fillers), fill, &filling);
    plim__ledger_release(job->ledger, account, stacks);
    let_all_go(hot);
    return status;
}

/* Puts entries [from, to) of those kept, which lie at `staged`, where others may be reading them.
 */
static plim_status_t put_back(const plim__list_cache_t *hot, const plim__file_t *file,
                              const void *staged, int64_t from, int64_t to)
{
    const bool narrow = hot->width == sizeof(int32_t);
    for (int64_t i = 0; i < to - from; i++) {
        int64_t value = narrow ? ((const int32_t *)staged)[i] : ((const int64_t *)staged)[i];
        if ((uint64_t)value >= (uint64_t)hot->num_nodes)
            return fail_entry(hot, file, from + i, value);
        if (narrow)
            __atomic_store_n((int32_t *)hot->entries + from + i, ~(int32_t)value, __ATOMIC_RELAXED);
        else
            __atomic_store_n((int64_t *)hot->entries + from + i, ~value, __ATOMIC_RELAXED);
    }
    return PLIM_OK;
}

/* Brings back what was dropped of entries [from, to), whole pages, no more than the staging
 * holds; how much that is. */
static plim_status_t bring_back(const plim__list_cache_t *hot, const plim__file_t *file,
                                const plim__list_filler_t *filler, int64_t from, int64_t to,
                                int64_t *bytes_out)
{
    bool dropped[PLIM__ROW_CACHE_STAGED / PLIM__PAGE];
    const int64_t page = (int64_t)(PLIM__PAGE / hot->width);
    asking_t asking = {hot, file, filler, 0};
    int64_t bytes = 0;
    for (int64_t at = from; at < to; at += page) {
        int64_t end = plim__min_i64(at + page, to), i = (at - from) / page;
        dropped[i] = plim__list_cache_entry(hot, at) == -1;
        if (dropped[i]) {
            PLIM_TRY(ask_kept(&asking, at, end, filler->staging + (size_t)i * PLIM__PAGE));
            bytes += (int64_t)PLIM__PAGE;
        }
    }
    PLIM_TRY(read_asked(&asking));
    for (int64_t at = from; at < to; at += page) {
        int64_t end = plim__min_i64(at + page, to), i = (at - from) / page;
        if (dropped[i])
            PLIM_TRY(put_back(hot, file, filler->staging + (size_t)i * PLIM__PAGE, at, end));
    }
    if (bytes > 0)
        plim__arena_may_drop(place_of(hot, from), (size_t)(to - from) * hot->width);
    *bytes_out = bytes;
    return PLIM_OK;
}

static int64_t load(const int64_t *value)
{
    return __atomic_load_n(value, __ATOMIC_SEQ_CST);
}

/* Gives back what lies behind the limit, or takes in what the limit allows again. Lock held. */
static void obey_limit(plim__list_cache_t *hot)
{
    const int64_t most = load(&hot->most_entries), from = load(&hot->released_from);
    const size_t end = plim__round_up((size_t)from * hot->width, PLIM__PAGE);
    if (most < from)
        plim__arena_drop(place_of(hot, most), end - (size_t)most * hot->width);
    else if (most > from)
        plim__list_cache_miss(hot);
    __atomic_store_n(&hot->released_from, most, __ATOMIC_SEQ_CST);
}

/* For whoever finds nobody at it. The limit is looked at again once the lock is free: somebody may
 * have lowered it and gone away. */
static void obey_unless_busy(plim__list_cache_t *hot)
{
    while (load(&hot->most_entries) < load(&hot->released_from) &&
           pthread_mutex_trylock(&hot->lock) == 0) {
        obey_limit(hot);
        pthread_mutex_unlock(&hot->lock);
    }
}

/* While there is room and time; what is left then is for the next refresh. Lock held. */
static plim_status_t bring_all_back(plim__list_cache_t *hot, const plim__file_t *file,
                                    const plim__list_filler_t *filler, int64_t *brought)
{
    const int64_t step = (int64_t)(PLIM__ROW_CACHE_STAGED / hot->width);
    int64_t begin = plim__clock_ns(), room = 0, end;
    for (int64_t from = 0; from < (end = load(&hot->released_from)); from += step) {
        int64_t bytes = 0;
        if (room <= 0 && plim__headroom("") > MARGIN_BYTES + ROOM_BYTES)
            room = ROOM_BYTES;
        if (room <= 0 || plim__clock_ns() - begin > REFRESH_NS) {
            plim__list_cache_miss(hot);
            return PLIM_OK;
        }
        PLIM_TRY(bring_back(hot, file, filler, from, plim__min_i64(from + step, end), &bytes));
        room -= bytes;
        *brought += bytes;
        obey_limit(hot);
    }
    return PLIM_OK;
}

plim_status_t plim__list_cache_refresh(plim__list_cache_t *hot, const plim__file_t *file,
                                       const plim__list_filler_t *filler)
{
    int64_t brought = 0;
    plim_status_t status = PLIM_OK;
    pthread_mutex_lock(&hot->lock);
    obey_limit(hot);
    if (__atomic_exchange_n(&hot->lost, false, __ATOMIC_RELAXED))
        status = bring_all_back(hot, file, filler, &brought);
    if (brought > 0)
        let_all_go(hot);
    pthread_mutex_unlock(&hot->lock);
    obey_unless_busy(hot);
    return status;
}

size_t plim__list_cache_bytes(const plim__list_cache_t *hot)
{
    return plim__round_up((size_t)hot->num_entries * hot->width, PLIM__PAGE);
}

void plim__list_cache_limit(plim__list_cache_t *hot, size_t bytes)
{
    const bool all = bytes >= plim__list_cache_bytes(hot);
    const int64_t most =
        all ? hot->num_entries : (int64_t)((bytes & ~(PLIM__PAGE - 1)) / hot->width);
    /* The list that the limit cuts is left out as well. */
    const int64_t lists = all ? hot->num_lists : rank_at(hot, most);
    __atomic_store_n(&hot->lists_now, lists, __ATOMIC_RELAXED);
    __atomic_store_n(&hot->most_entries, most, __ATOMIC_SEQ_CST);
    obey_unless_busy(hot);
}
