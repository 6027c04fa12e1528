/*
 * Any range of the cache's memory can be filled from features.npy without its neighbours: it holds
 * rows and parts of rows, and each part is a read straight into its place.
 *
 *     memory   ├──── … row 4 ┤├ row 5 ──────┤├ row 6 … ────┤
 *     reads     end of row 4    all of row 5   start of row 6
 */
#include "source/row_cache.h"

#include "base/check.h"
#include "base/fail.h"
#include "source/rows.h"
#include "source/working_set.h"

#define ACCOUNT "row cache"

/* Rows are prefetched this many bytes ahead of the copy, since a core keeps some tens of cache
 * lines in flight. The line of a working set's classes is prefetched CLASS_AHEAD rows before that,
 * and the node set's line RANK_AHEAD rows before the line of classes. */
#define AHEAD_BYTES ((size_t)4096)
#define AHEAD_ROWS_MAX 32
#define CLASS_AHEAD 10
#define RANK_AHEAD 10
#define POSITIONS 64 /* looked up: more than AHEAD_ROWS_MAX + CLASS_AHEAD */

struct plim__row_cache {
    plim__cache_t base;
    plim__row_form_t form;
    size_t stride;            /* bytes between rows */
    plim__working_set_t *set; /* borrowed; NULL: the rows of base.nodes */
};

static size_t stride_of(const plim__row_form_t *form)
{
    return plim__round_up(form->bytes, sizeof(uint64_t));
}

int64_t plim__row_cache_rows(const plim_dataset_t *dataset, const plim__source_params_t *params)
{
    const plim__row_form_t form = plim__row_form_of(dataset);
    const int64_t num_nodes = plim_dataset_info(dataset)->num_nodes;
    if (params->all || form.bytes == 0)
        return params->all ? num_nodes : 0;
    const int64_t fit = (int64_t)(params->cache_bytes / stride_of(&form));
    if (params->working_set != NULL)
        return plim__min_i64(fit, params->working_set->order.first[PLIM__ORDER_CLASSES]);
    return plim__min_i64(fit, params->cached == NULL ? num_nodes : params->cached->count);
}

static plim__row_cache_t carve(plim__arena_t *arena, const plim_dataset_t *dataset,
                               const plim__source_params_t *params)
{
    const plim__row_form_t form = plim__row_form_of(dataset);
    plim__row_cache_t cache = {
        .base = {.all = params->all, .num_items = plim__row_cache_rows(dataset, params)},
        .form = form,
        .stride = stride_of(&form),
        .set = params->all ? NULL : params->working_set};
    const size_t bytes = plim__round_up(
        plim__mul_saturating_size((size_t)cache.base.num_items, cache.stride), PLIM__PAGE);
    plim__droppable_carve(arena, bytes, params->workers, &cache.base.memory);
    return cache;
}

size_t plim__row_cache_estimate(const plim_dataset_t *dataset, const plim__source_params_t *params)
{
    plim__arena_t arena = plim__arena_counting();
    (void)carve(&arena, dataset, params);
    (void)plim__arena_carve(&arena, 1, sizeof(plim__row_cache_t), 1);
    return plim__round_up(arena.used, PLIM__PAGE);
}

size_t plim__row_cache_filling(const plim_job_t *job, const plim__source_params_t *params)
{
    return plim__cache_filling(job, params);
}

static void mark_word(char *word)
{
    uint64_t bits;
    memcpy(&bits, word, sizeof bits);
    bits ^= PLIM__ROW_CACHE_KEY;
    memcpy(word, &bits, sizeof bits);
}

/* Sets the marks in [begin, end) of the memory. */
static void mark(plim__row_cache_t *cache, int64_t begin, int64_t end)
{
    const int64_t stride = (int64_t)cache->stride, page = (int64_t)PLIM__PAGE;
    end = plim__min_i64(end, cache->base.num_items * stride);
    for (int64_t at = (begin + stride - 1) / stride * stride; at < end; at += stride)
        mark_word(cache->base.memory.base + at);
    for (int64_t at = (begin + page - 1) / page * page; at < end; at += page)
        if (at % stride != 0)
            mark_word(cache->base.memory.base + at);
}

static plim_status_t fill_from_features(plim__row_cache_t *cache, int worker, int64_t begin,
                                        int64_t end)
{
    const int64_t stride = (int64_t)cache->stride, bytes = (int64_t)cache->form.bytes;
    const int64_t last = plim__min_i64((end + stride - 1) / stride, cache->base.num_items);
    const plim__node_set_t *nodes = cache->base.all ? NULL : &cache->base.nodes;
    const int64_t first = begin / stride;
    plim__cache_reads_t reads = {cache->base.source, &cache->base.source->file, worker, 0};
    plim__cache_walk_t walk;
    if (first < last && cache->set == NULL)
        plim__cache_walk_start(&walk, nodes,
                               nodes == NULL ? first : plim__node_set_select(nodes, first));
    for (int64_t row = first * stride; row < last * stride; row += stride) {
        const int64_t node = cache->set == NULL
                                 ? plim__cache_walk_next(&walk)
                                 : plim__node_order_node(&cache->set->order, row / stride);
        const int64_t from = plim__max_i64(row, begin), to = plim__min_i64(row + bytes, end);
        if (from < to && node >= 0) /* else only padding */
            PLIM_TRY(plim__cache_reads_add(&reads, PLIM__NPY_HEADER + node * bytes + (from - row),
                                           (size_t)(to - from), cache->base.memory.base + from));
    }
    return plim__cache_reads_run(&reads);
}

/* Reads pages of the cache's memory from the working set's. */
static plim_status_t fill_from_set(plim__row_cache_t *cache, int worker, int64_t begin, int64_t end)
{
    const int64_t places = cache->set->order.first[PLIM__ORDER_CLASSES] * (int64_t)cache->stride;
    plim__cache_reads_t reads = {cache->base.source, &cache->set->file, worker, 0};
    PLIM_TRY(plim__cache_reads_add(&reads, plim__working_set_offset(cache->set, 0) + begin,
                                   (size_t)(plim__min_i64(end, places) - begin),
                                   cache->base.memory.base + begin));
    return plim__cache_reads_run(&reads);
}

static plim_status_t fill_part(void *context, int worker, int64_t at, size_t size)
{
    plim__row_cache_t *cache = context;
    const int64_t end = at + (int64_t)size;
    plim_status_t status = PLIM_ERR_DATA;
    if (cache->set != NULL && atomic_load(&cache->set->readable)) {
        status = fill_from_set(cache, worker, at, end);
        if (status == PLIM_ERR_DATA || status == PLIM_ERR_IO)
            plim__working_set_lost(cache->set);
    }
    if (status == PLIM_ERR_DATA || status == PLIM_ERR_IO)
        status = fill_from_features(cache, worker, at, end);
    if (status == PLIM_OK)
        mark(cache, at, end);
    return status;
}

/* The memory position of a byte of features.npy's rows. */
static int64_t place_of(const plim__row_cache_t *cache, int64_t at)
{
    const int64_t bytes = (int64_t)cache->form.bytes;
    return at / bytes * (int64_t)cache->stride + at % bytes;
}

/* Copies a chunk of features.npy to its places and sets the marks that it completes. */
static plim_status_t place_chunk(void *context, int worker, int64_t chunk, void *data, size_t size)
{
    plim__row_cache_t *cache = context;
    const int64_t bytes = (int64_t)cache->form.bytes;
    const int64_t first = chunk * PLIM__CACHE_CHUNK, end = first + (int64_t)size;
    (void)worker;
    if (cache->stride == cache->form.bytes)
        memcpy(cache->base.memory.base + first, data, size);
    for (int64_t at = first; at < end && cache->stride != cache->form.bytes;) {
        const int64_t part = plim__min_i64(bytes - at % bytes, end - at);
        memcpy(cache->base.memory.base + place_of(cache, at), (char *)data + (at - first),
               (size_t)part);
        at += part;
    }
    /* The next chunk marks a word that it completes, in mark_chunk. */
    const int64_t from = (int64_t)plim__round_up((size_t)place_of(cache, first), sizeof(uint64_t));
    int64_t to = place_of(cache, end);
    if (end < cache->base.num_items * bytes)
        to &= ~(int64_t)(sizeof(uint64_t) - 1);
    mark(cache, from, to);
    return PLIM_OK;
}

/* Everything before the chunk is in place, so a word that begins there and ends here can be
 * marked. */
static plim_status_t mark_chunk(void *context, int worker, int64_t chunk, void *data, size_t size)
{
    plim__row_cache_t *cache = context;
    const int64_t at = place_of(cache, chunk * PLIM__CACHE_CHUNK);
    (void)worker;
    (void)data;
    (void)size;
    if (at % (int64_t)sizeof(uint64_t) != 0)
        mark(cache, at & ~(int64_t)(sizeof(uint64_t) - 1), at);
    return PLIM_OK;
}

static plim_status_t fill(plim__row_cache_t *cache)
{
    if (cache->base.all)
        return plim__cache_fill_all(&cache->base,
                                    cache->base.num_items * (int64_t)cache->form.bytes,
                                    "reading features", place_chunk, mark_chunk);
    if (cache->base.num_items == 0)
        return PLIM_OK;
    return plim__cache_fill(&cache->base, ACCOUNT, "filling the row cache", fill_part);
}

plim_status_t plim__row_cache_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim__source_params_t *params, plim__source_t *source,
                                     plim__row_cache_t **cache_out)
{
    plim__arena_t arena;
    PLIM_TRY(plim__arena_create(job->ledger, ACCOUNT, plim__row_cache_estimate(dataset, params),
                                &arena));
    const plim__row_cache_t carved = carve(&arena, dataset, params);
    plim__row_cache_t *cache = plim__arena_carve(&arena, 1, sizeof *cache, 1);
    memcpy(cache, &carved, sizeof *cache);
    plim__cache_begin(&cache->base, job, params, source, fill_part, &arena);
    const plim_status_t status = fill(cache);
    if (status != PLIM_OK) {
        plim__row_cache_destroy(cache);
        return status;
    }
    *cache_out = cache;
    return PLIM_OK;
}

void plim__row_cache_destroy(plim__row_cache_t *cache)
{
    if (cache != NULL)
        plim__cache_end(&cache->base);
}

bool plim__row_cache_holds(const plim__row_cache_t *cache, int64_t node)
{
    const int64_t position = cache->set == NULL ? plim__cache_position(&cache->base, node)
                                                : plim__node_order_find(&cache->set->order, node);
    const int64_t stride = (int64_t)cache->stride;
    return position >= 0 && position < cache->base.num_items &&
           plim__droppable_has(&cache->base.memory, position * stride, stride);
}

/* Copies the part of a row in one page, which begins with a mark; false if the page was dropped. */
static inline __attribute__((always_inline)) bool copy_part(const char *from, size_t bytes,
                                                            char *to)
{
    uint64_t word;
    memcpy(to, from, bytes);
    plim__droppable_copied();
    word = *(const volatile uint64_t *)(const void *)from;
    if (__builtin_expect(word == 0, 0))
        return false;
    word ^= PLIM__ROW_CACHE_KEY;
    memcpy(to, &word, bytes < sizeof word ? bytes : sizeof word);
    return true;
}

static bool copy_parts(const plim__row_cache_t *cache, size_t at, char *to)
{
    const size_t end = at + cache->form.bytes;
    while (at < end) {
        const size_t page_end = (at / PLIM__PAGE + 1) * PLIM__PAGE;
        const size_t size = (page_end < end ? page_end : end) - at;
        if (!copy_part(cache->base.memory.base + at, size, to))
            return false;
        at += size;
        to += size;
    }
    return true;
}

/* Arguments and results of one plim__row_cache_take. */
typedef struct row_lookup {
    plim__row_cache_t *cache;
    const int64_t *nodes;
    int64_t count;
    const plim__row_target_t *target;
    bool whole; /* no page was dropped */
    uint64_t *missing;
    int64_t num_missing;
    int64_t lost;
} row_lookup_t;

/*
 * Inlined with constant `bytes` for the common sizes, so that a copy is a few moves; 0 for rows
 * that may cross pages. The loop's variables are copied out of the structs, since the compiler must
 * assume that each row's copy changes all memory.
 */
static inline __attribute__((always_inline)) void take_rows(row_lookup_t *taking, size_t bytes)
{
    plim__row_cache_t *cache = taking->cache;
    const plim__row_target_t target = *taking->target;
    const int64_t *nodes = taking->nodes;
    const int64_t count = taking->count, num_rows = cache->base.num_items;
    const int64_t stride = bytes > 0 ? (int64_t)bytes : (int64_t)cache->stride;
    const plim__node_order_t *order = cache->set != NULL ? &cache->set->order : NULL;
    const plim__node_set_t set = order != NULL ? order->nodes : cache->base.nodes;
    const bool all = cache->base.all, whole = taking->whole;
    const bool converts = target.type != cache->form.type;
    const char *base = cache->base.memory.base;
    const size_t size = bytes > 0 ? bytes : cache->form.bytes;
    const int64_t ahead = plim__min_i64((int64_t)(AHEAD_BYTES / size) + 1, AHEAD_ROWS_MAX);
    int64_t positions[POSITIONS];
    for (int64_t i = -ahead - CLASS_AHEAD; i < count; i++) {
        const int64_t next = i + ahead, later = next + CLASS_AHEAD;
        if (!all && later + RANK_AHEAD < count)
            plim__node_set_prefetch(&set, nodes[later + RANK_AHEAD]);
        if (later < count) {
            const int64_t position =
                all ? nodes[later] : plim__node_set_position(&set, nodes[later]);
            positions[later % POSITIONS] = position;
            if (order != NULL)
                plim__node_order_prefetch(order, position);
        }
        if (next >= 0 && next < count) {
            int64_t *position = &positions[next % POSITIONS];
            if (order != NULL && *position >= 0)
                *position = plim__node_order_at(order, *position);
            if (*position >= 0 && *position < num_rows)
                plim__row_prefetch(base + *position * stride, size);
        }
        if (i < 0)
            continue;
        const int64_t position = positions[i % POSITIONS];
        const int64_t row = position * stride;
        if (position >= 0 && position < num_rows &&
            (whole || plim__droppable_has(&cache->base.memory, row, stride))) {
            char *to = target.stored + (size_t)i * target.stored_step;
            if (bytes > 0 ? copy_part(base + row, bytes, to) : copy_parts(cache, (size_t)row, to)) {
                if (converts)
                    plim__row_arrived(&cache->form, &target, (size_t)i);
                continue;
            }
            plim__droppable_miss(&cache->base.memory, row);
            plim__droppable_miss(&cache->base.memory, row + stride - 1);
            taking->lost++;
        }
        taking->missing[taking->num_missing++] = (uint64_t)i;
    }
}

int64_t plim__row_cache_take(plim__row_cache_t *cache, int reader, const int64_t *nodes,
                             int64_t count, const plim__row_target_t *target, uint64_t *missing_out,
                             int64_t *lost_out)
{
    row_lookup_t taking = {cache, nodes, count, target, false, missing_out, 0, 0};
    const bool in_one_page = cache->stride == cache->form.bytes && PLIM__PAGE % cache->stride == 0;
    taking.whole = plim__droppable_enter(&cache->base.memory, reader);
    if (in_one_page && cache->form.bytes == 128)
        take_rows(&taking, 128);
    else if (in_one_page && cache->form.bytes == 256)
        take_rows(&taking, 256);
    else if (in_one_page && cache->form.bytes == 512)
        take_rows(&taking, 512);
    else
        take_rows(&taking, 0);
    plim__droppable_leave(&cache->base.memory, reader);
    *lost_out = taking.lost;
    return taking.num_missing;
}
