/*
 * Pages from features.npy. A page holds rows and parts of rows, and each part is one read straight
 * into its place; so any range of pages can be filled without its neighbours:
 *
 *     page     ├──── … row 4 ┤├ row 5 ──────┤├ row 6 … ────┤
 *     reads     end of row 4    all of row 5   start of row 6
 */
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"
#include "feature/row_cache_internal.h"

#define DEPTH 32
#define GAP ((size_t)16 << 10) /* an I/O costs about as much as moving so many bytes */
#define THREADS_MAX 8

static plim__reader_params_t reader_params(const plim__row_form_t *form)
{
    return (plim__reader_params_t){
        .depth = DEPTH,
        .max_read = form->bytes > PLIM__ROW_CACHE_RUN ? form->bytes : PLIM__ROW_CACHE_RUN,
        .gap = GAP};
}

static size_t filler_arena_bytes(void)
{
    size_t reads = (size_t)PLIM__ROW_CACHE_READS;
    return plim__round_up(plim__arena_piece(reads, sizeof(plim__read_t), 1) +
                              plim__arena_piece(reads, sizeof(int64_t), 1),
                          PLIM__PAGE);
}

size_t plim__row_cache_filler_estimate(const plim_job_t *job, const plim__row_form_t *form)
{
    plim__reader_params_t params = reader_params(form);
    return filler_arena_bytes() + plim__reader_estimate(job->io_engine, &params);
}

plim_status_t plim__row_cache_filler_make(const plim_job_t *job, const plim__row_form_t *form,
                                          plim__row_cache_filler_t *filler_out)
{
    plim__row_cache_filler_t filler = {.num_reads = 0};
    plim__reader_params_t params = reader_params(form);
    PLIM_TRY(plim__arena_create(job->ledger, "hot rows", filler_arena_bytes(), &filler.arena));
    filler.reads =
        plim__arena_carve(&filler.arena, (size_t)PLIM__ROW_CACHE_READS, sizeof(plim__read_t), 1);
    filler.nodes =
        plim__arena_carve(&filler.arena, (size_t)PLIM__ROW_CACHE_READS, sizeof(int64_t), 1);
    plim_status_t status = plim__reader_create(job, &params, &filler.reader);
    if (status != PLIM_OK) {
        plim__arena_destroy(&filler.arena);
        return status;
    }
    *filler_out = filler;
    return PLIM_OK;
}

void plim__row_cache_filler_end(plim__row_cache_filler_t *filler)
{
    plim__reader_destroy(filler->reader);
    plim__arena_destroy(&filler->arena);
}

plim_status_t plim__row_cache_settle(plim__row_cache_t *hot, plim__row_cache_filler_t *filler)
{
    int64_t count = filler->num_reads;
    filler->num_reads = 0;
    return plim__reader_read(filler->reader, &hot->file, filler->reads, count);
}

/* The part of a row that lies in [begin, end) of the pages. */
static plim_status_t want_part(plim__row_cache_t *hot, plim__row_cache_filler_t *filler,
                               int64_t rank, int64_t node, int64_t begin, int64_t end)
{
    int64_t row = rank * (int64_t)hot->stride;
    int64_t from = plim__max_i64(row, begin);
    int64_t to = plim__min_i64(row + (int64_t)hot->form.bytes, end);
    if (filler->num_reads == PLIM__ROW_CACHE_READS)
        PLIM_TRY(plim__row_cache_settle(hot, filler));
    filler->reads[filler->num_reads++] =
        (plim__read_t){PLIM__NPY_HEADER + node * (int64_t)hot->form.bytes + from - row,
                       (size_t)(to - from), hot->pages + from};
    return PLIM_OK;
}

plim_status_t plim__row_cache_want(plim__row_cache_t *hot, plim__row_cache_filler_t *filler,
                                   int64_t first_page, int64_t num_pages)
{
    int64_t stride = (int64_t)hot->stride;
    int64_t begin = first_page * (int64_t)PLIM__PAGE;
    int64_t end = plim__min_i64(begin + num_pages * (int64_t)PLIM__PAGE, hot->num_rows * stride);
    int64_t rank = begin / stride, last = (end - 1) / stride;
    if (hot->stride != hot->form.bytes) /* nothing is read into what pads the rows */
        memset(hot->pages + begin, 0, (size_t)(end - begin));
    int64_t from = plim__node_set_select(&hot->nodes, rank);
    while (rank <= last) {
        int64_t capacity = plim__min_i64(last - rank + 1, PLIM__ROW_CACHE_READS);
        int64_t count = plim__node_set_list(&hot->nodes, from, capacity, filler->nodes);
        for (int64_t i = 0; i < count; i++)
            PLIM_TRY(want_part(hot, filler, rank + i, filler->nodes[i], begin, end));
        rank += count;
        from = filler->nodes[count - 1] + 1;
    }
    return PLIM_OK;
}

static void mark_word(char *word)
{
    uint64_t bits;
    memcpy(&bits, word, sizeof bits);
    bits ^= PLIM__ROW_CACHE_KEY;
    memcpy(word, &bits, sizeof bits);
}

void plim__row_cache_mark(plim__row_cache_t *hot, int64_t first_page, int64_t num_pages)
{
    int64_t stride = (int64_t)hot->stride;
    int64_t bytes = hot->num_rows * stride;
    for (int64_t page = first_page; page < first_page + num_pages; page++) {
        int64_t begin = page * (int64_t)PLIM__PAGE;
        int64_t end = plim__min_i64(begin + (int64_t)PLIM__PAGE, bytes);
        mark_word(hot->pages + begin);
        for (int64_t row = (begin / stride + 1) * stride; row < end; row += stride)
            mark_word(hot->pages + row);
    }
}

/* Filling all: what the threads share. */
typedef struct fill {
    plim__row_cache_t *hot;
    _Atomic int64_t next_chunk;
    _Atomic int64_t done;
    atomic_bool packing; /* the packed file is being written, and went well so far */
} fill_t;

static int fill_threads(const plim_job_t *job)
{
    return job->threads < THREADS_MAX ? job->threads : THREADS_MAX;
}

size_t plim__row_cache_fill_estimate(const plim_job_t *job, const plim__row_form_t *form)
{
    return (size_t)(fill_threads(job) - 1) *
           (plim__row_cache_filler_estimate(job, form) + PLIM__STACK_BYTES);
}

static plim_status_t fill_chunk(fill_t *fill, plim__row_cache_filler_t *filler, int64_t chunk)
{
    plim__row_cache_t *hot = fill->hot;
    int64_t first = chunk * PLIM__ROW_CACHE_CHUNK_PAGES;
    int64_t count = plim__min_i64(PLIM__ROW_CACHE_CHUNK_PAGES, hot->num_pages - first);
    PLIM_TRY(plim__row_cache_want(hot, filler, first, count));
    PLIM_TRY(plim__row_cache_settle(hot, filler));
    plim__row_cache_mark(hot, first, count);
    if (atomic_load(&fill->packing) && plim__row_cache_file_put(hot, chunk) != PLIM_OK &&
        atomic_exchange(&fill->packing, false))
        plim__log(&hot->job, PLIM_LOG_WARNING, "%s; going on without packed rows",
                  plim_last_error());
    plim__row_cache_let_go(hot, first, first + count);
    return PLIM_OK;
}

static plim_status_t fill_chunks(fill_t *fill, plim__row_cache_filler_t *filler, int worker)
{
    plim__row_cache_t *hot = fill->hot;
    int64_t chunks = plim__row_cache_num_chunks(hot);
    for (;;) {
        int64_t chunk = atomic_fetch_add(&fill->next_chunk, 1);
        if (chunk >= chunks)
            return PLIM_OK;
        PLIM_TRY(plim__job_check(&hot->job));
        PLIM_TRY(fill_chunk(fill, filler, chunk));
        int64_t done = atomic_fetch_add(&fill->done, 1) + 1;
        if (worker == 0)
            plim__progress(&hot->job, "filling hot rows", "pages",
                           done * PLIM__ROW_CACHE_CHUNK_PAGES,
                           chunks * PLIM__ROW_CACHE_CHUNK_PAGES);
    }
}

static plim_status_t fill_apart(fill_t *fill, int worker)
{
    plim__row_cache_t *hot = fill->hot;
    plim__row_cache_filler_t filler;
    PLIM_TRY(plim__row_cache_filler_make(&hot->job, &hot->form, &filler));
    plim_status_t status = fill_chunks(fill, &filler, worker);
    plim__row_cache_filler_end(&filler);
    return status;
}

static plim_status_t fill_worker(void *context, int worker)
{
    fill_t *fill = context;
    plim_status_t status =
        worker == 0 ? fill_chunks(fill, &fill->hot->filler, worker) : fill_apart(fill, worker);
    if (status != PLIM_OK) /* nobody takes more */
        atomic_store(&fill->next_chunk, plim__row_cache_num_chunks(fill->hot));
    return status;
}

plim_status_t plim__row_cache_fill(plim__row_cache_t *hot)
{
    fill_t fill = {.hot = hot};
    int account;
    int threads = (int)plim__min_i64(fill_threads(&hot->job), plim__row_cache_num_chunks(hot));
    size_t stacks = (size_t)(threads - 1) * PLIM__STACK_BYTES;
    PLIM_TRY(plim__ledger_reserve(hot->job.ledger, "hot rows", stacks, &account));
    plim__row_cache_file_begin(hot);
    atomic_store(&fill.packing, hot->packed.fd >= 0);
    plim_status_t status = plim__parallel(threads, fill_worker, &fill);
    plim__ledger_release(hot->job.ledger, account, stacks);
    if (status == PLIM_OK && atomic_load(&fill.packing))
        plim__row_cache_file_finish(hot);
    else
        plim__file_close(&hot->packed);
    return status;
}
