#include "feature/row_cache.h"

#include "base/check.h"
#include "base/fail.h"
#include "feature/row_cache_internal.h"

#include <emmintrin.h>
#include <stdio.h>
#include <xxhash.h>

/* Sizes of a cache of these rows. False when they pass what can be addressed. */
static bool shape_of(const plim_dataset_t *dataset, const plim__row_cache_params_t *params,
                     int64_t *rows_out, size_t *stride_out, size_t *bytes_out)
{
    plim__row_form_t form = plim__row_form_of(dataset);
    int64_t count =
        params->nodes != NULL ? params->nodes->count : plim_dataset_info(dataset)->num_nodes;
    *rows_out = plim__max_i64(plim__min_i64(params->most, count), 0);
    *stride_out = plim__round_up(form.bytes, sizeof(uint64_t));
    if (!plim__mul_size((size_t)*rows_out, *stride_out, bytes_out) || *bytes_out > INT64_MAX / 2)
        return false;
    *bytes_out = plim__round_up(*bytes_out, PLIM__PAGE);
    return true;
}

static size_t arena_bytes(size_t bytes)
{
    size_t pages = bytes / PLIM__PAGE;
    size_t chunks = bytes / PLIM__ROW_CACHE_CHUNK + 1;
    return plim__round_up(
        plim__arena_piece(1, sizeof(plim__row_cache_t), 1) +
            plim__arena_piece(bytes, 1, PLIM__PAGE) +
            plim__arena_piece(pages, sizeof(uint32_t), 1) +
            plim__arena_piece(pages / 64 + 1, sizeof(uint64_t), 1) +
            plim__arena_piece((size_t)PLIM__ROW_CACHE_SCAN, 1, 1) +
            plim__arena_piece(plim__round_up(chunks * sizeof(uint64_t), PLIM__PAGE), 1, PLIM__PAGE),
        PLIM__PAGE);
}

size_t plim__row_cache_filling(const plim_job_t *job, const plim_dataset_t *dataset,
                               const plim__row_cache_params_t *params)
{
    plim__row_form_t form = plim__row_form_of(dataset);
    size_t filling = plim__row_cache_fill_estimate(job, &form);
    size_t loading = params->scratch != NULL ? plim__bulk_estimate(job) : 0;
    return filling > loading ? filling : loading;
}

size_t plim__row_cache_estimate(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__row_cache_params_t *params)
{
    int64_t rows;
    size_t stride, bytes;
    plim__row_form_t form = plim__row_form_of(dataset);
    if (!shape_of(dataset, params, &rows, &stride, &bytes))
        return SIZE_MAX;
    return arena_bytes(bytes) + plim__row_cache_filler_estimate(job, &form) +
           plim__row_cache_filling(job, dataset, params);
}

static plim_status_t name_files(plim__row_cache_t *hot, const char *scratch)
{
    if (scratch == NULL)
        return PLIM_OK;
    int length = snprintf(hot->scratch, sizeof hot->scratch, "%s", scratch);
    if (length < 0 ||
        !plim__row_cache_file_path(scratch, hot->fingerprint, hot->key, hot->packed_path))
        return plim__fail(PLIM_ERR_USAGE, "%.100s…: the path is too long", scratch);
    return PLIM_OK;
}

/* The struct and its tables; no file is open yet, no page is filled. */
static plim_status_t make_tables(const plim_job_t *job, const plim_dataset_t *dataset,
                                 const plim__row_cache_params_t *params,
                                 plim__row_cache_t **hot_out)
{
    plim__arena_t arena;
    int64_t rows;
    size_t stride, bytes;
    if (!shape_of(dataset, params, &rows, &stride, &bytes))
        return plim__fail(PLIM_ERR_BUDGET, "%lld hot rows are more than can be addressed",
                          (long long)rows);
    PLIM_TRY(plim__arena_create(job->ledger, "hot rows", arena_bytes(bytes), &arena));
    size_t pages = bytes / PLIM__PAGE, chunks = bytes / PLIM__ROW_CACHE_CHUNK + 1;
    char *room = plim__arena_carve(&arena, bytes, 1, PLIM__PAGE); /* first: huge pages fit in */
    plim__row_cache_t *hot = plim__arena_carve(&arena, 1, sizeof *hot, 1);
    hot->job = *job;
    hot->pages = room;
    hot->nodes = *params->nodes;
    hot->form = plim__row_form_of(dataset);
    hot->stride = stride;
    hot->num_rows = rows;
    hot->num_pages = (int64_t)pages;
    hot->states = plim__arena_carve(&arena, pages, sizeof(uint32_t), 1);
    hot->suspects = plim__arena_carve(&arena, pages / 64 + 1, sizeof(uint64_t), 1);
    atomic_init(&hot->most_pages, (int64_t)pages);
    atomic_init(&hot->released_from, (int64_t)pages);
    hot->resident = plim__arena_carve(&arena, (size_t)PLIM__ROW_CACHE_SCAN, 1, 1);
    hot->checksums = plim__arena_carve(
        &arena, plim__round_up(chunks * sizeof(uint64_t), PLIM__PAGE), 1, PLIM__PAGE);
    hot->file.fd = -1;
    hot->packed.fd = -1;
    hot->key = params->key;
    hot->held = params->held;
    hot->set_hash = XXH3_64bits(params->nodes->lines,
                                (size_t)params->nodes->num_lines * sizeof *params->nodes->lines);
    memcpy(hot->fingerprint, plim_dataset_info(dataset)->fingerprint, sizeof hot->fingerprint);
    hot->arena = arena;
    plim_status_t status = name_files(hot, params->scratch);
    pthread_mutex_init(&hot->lock, NULL);
    if (status != PLIM_OK) {
        plim__arena_destroy(&arena);
        return status;
    }
    *hot_out = hot;
    return PLIM_OK;
}

void plim__row_cache_let_go(plim__row_cache_t *hot, int64_t first_page, int64_t end_page)
{
    int64_t first = first_page / PLIM__ROW_CACHE_CHUNK_PAGES * PLIM__ROW_CACHE_CHUNK_PAGES;
    int64_t end = (end_page + PLIM__ROW_CACHE_CHUNK_PAGES - 1) / PLIM__ROW_CACHE_CHUNK_PAGES;
    end = plim__min_i64(end * PLIM__ROW_CACHE_CHUNK_PAGES, hot->num_pages);
    plim__arena_may_drop(hot->pages + (size_t)first * PLIM__PAGE,
                         (size_t)(end - first) * PLIM__PAGE);
}

/* Huge pages are wanted while pages are filled; afterwards the kernel shall leave them as they are:
 * gathered into a new huge page they would stay. */
void plim__row_cache_begin_filling(plim__row_cache_t *hot)
{
    plim__arena_want_huge(hot->pages, (size_t)hot->num_pages * PLIM__PAGE);
}

/*
 * All is let go once more, not only what was filled. A page that another processor has just brought
 * in is passed over by the kernel as long as it waits in that processor's own list, some tens of
 * pages long; and pages gathered into a huge one meanwhile would stay.
 */
void plim__row_cache_end_filling(plim__row_cache_t *hot)
{
    plim__arena_want_small(hot->pages, (size_t)hot->num_pages * PLIM__PAGE);
    plim__row_cache_let_go(hot, 0, hot->num_pages);
}

plim_status_t plim__row_cache_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim__row_cache_params_t *params,
                                     plim__row_cache_t **hot_out)
{
    plim__row_cache_t *hot = NULL;
    bool loaded = false;
    if (params->nodes->universe != plim_dataset_info(dataset)->num_nodes)
        return plim__fail(PLIM_ERR_USAGE, "hot rows of %lld nodes, but there are %lld",
                          (long long)params->nodes->universe,
                          (long long)plim_dataset_info(dataset)->num_nodes);
    PLIM_TRY(make_tables(job, dataset, params, &hot));
    plim_status_t status = plim__row_form_open(dataset, &hot->file, &hot->form);
    if (status != PLIM_OK) {
        hot->file.fd = -1;
        goto destroy;
    }
    plim__row_cache_begin_filling(hot);
    status = plim__row_cache_filler_make(job, &hot->form, &hot->filler);
    if (status == PLIM_OK && hot->num_rows > 0)
        status = plim__row_cache_file_load(hot, &loaded);
    if (status == PLIM_OK && hot->num_rows > 0 && !loaded)
        status = plim__row_cache_fill(hot);
    if (status != PLIM_OK)
        goto destroy;
    for (int64_t page = 0; page < hot->num_pages; page++)
        atomic_init(&hot->states[page], 1);
    plim__row_cache_end_filling(hot);
    *hot_out = hot;
    return PLIM_OK;
destroy:
    plim__row_cache_destroy(hot);
    return status;
}

void plim__row_cache_destroy(plim__row_cache_t *hot)
{
    if (hot == NULL)
        return;
    plim__row_cache_filler_end(&hot->filler);
    plim__file_close(&hot->packed);
    plim__file_close(&hot->file);
    pthread_mutex_destroy(&hot->lock);
    plim__arena_destroy(&hot->arena);
}

/* Where the node's row begins in the pages; -1 when it is not one of them. */
static inline int64_t row_of(const plim__row_cache_t *hot, int64_t node)
{
    int64_t rank = plim__node_set_rank(&hot->nodes, node);
    return rank < 0 || rank >= hot->num_rows ? -1 : rank * (int64_t)hot->stride;
}

void plim__row_cache_prefetch(const plim__row_cache_t *hot, int64_t node)
{
    int64_t row = row_of(hot, node);
    if (row < 0)
        return;
    size_t most = 32 * PLIM__LINE;
    size_t bytes = hot->form.bytes < most ? hot->form.bytes : most;
    for (size_t at = 0; at < bytes; at += PLIM__LINE)
        __builtin_prefetch(hot->pages + row + at);
    __builtin_prefetch(&hot->states[row / (int64_t)PLIM__PAGE]);
}

bool plim__row_cache_holds(const plim__row_cache_t *hot, int64_t node)
{
    int64_t row = row_of(hot, node);
    if (row < 0)
        return false;
    int64_t last = (row + (int64_t)hot->stride - 1) / (int64_t)PLIM__PAGE;
    for (int64_t page = row / (int64_t)PLIM__PAGE; page <= last; page++)
        if ((atomic_load_explicit(&hot->states[page], memory_order_relaxed) & 1) == 0)
            return false;
    return true;
}

static void suspect(const plim__row_cache_t *hot, int64_t page)
{
    _Atomic uint64_t *word = &hot->suspects[page / 64];
    uint64_t bit = (uint64_t)1 << page % 64;
    if ((atomic_load_explicit(word, memory_order_relaxed) & bit) == 0)
        atomic_fetch_or_explicit(word, bit, memory_order_relaxed);
}

/*
 * Copies the part of a row that lies in one page; it begins with a mark. The page may vanish, or
 * be filled anew by a refresh, while it is copied. So after the copy, and in this order: the mark
 * must be there (else the page may have been gone), and the state must be what it was (else the
 * page may have been gone and back again between the two). The copy races with the filling by
 * design, and what it then brought is thrown away, so ThreadSanitizer is told to look elsewhere;
 * and memcpy is not called, because the sanitizer's own would look.
 */
__attribute__((no_sanitize("thread"))) static bool copy_part(const plim__row_cache_t *hot,
                                                             size_t at, size_t size, char *to)
{
    int64_t page = (int64_t)(at / PLIM__PAGE);
    const char *from = hot->pages + at;
    uint32_t state = atomic_load_explicit(&hot->states[page], memory_order_acquire);
    size_t i = 0;
    if ((state & 1) == 0)
        return false;
    for (; i + 16 <= size; i += 16)
        _mm_storeu_si128((__m128i *)(to + i), _mm_loadu_si128((const __m128i *)(from + i)));
    for (; i < size; i++)
        to[i] = from[i];
    atomic_thread_fence(memory_order_acquire);
    uint64_t mark = __atomic_load_n((const uint64_t *)(const void *)from, __ATOMIC_ACQUIRE);
    if (mark == 0) {
        suspect(hot, page);
        return false;
    }
    if (atomic_load_explicit(&hot->states[page], memory_order_relaxed) != state)
        return false;
    mark ^= PLIM__ROW_CACHE_KEY;
    memcpy(to, &mark, size < sizeof mark ? size : sizeof mark);
    return true;
}

bool plim__row_cache_copy(const plim__row_cache_t *hot, int64_t node, void *row_out)
{
    int64_t row = row_of(hot, node);
    if (row < 0)
        return false;
    size_t at = (size_t)row, end = at + hot->form.bytes;
    char *to = row_out;
    while (at < end) {
        size_t page_end = (at / PLIM__PAGE + 1) * PLIM__PAGE;
        size_t size = (page_end < end ? page_end : end) - at;
        if (!copy_part(hot, at, size, to))
            return false;
        at += size;
        to += size;
    }
    return true;
}

void plim__row_cache_pages(const plim__row_cache_t *hot, char **pages_out, int64_t *num_pages_out)
{
    *pages_out = hot->pages;
    *num_pages_out = hot->num_pages;
}
