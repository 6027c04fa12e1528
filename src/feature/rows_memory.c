/*
 * All rows in one arena, at multiples of their size from a page's boundary, so that direct I/O
 * reads the file straight into place.
 */
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"
#include "feature/row_form.h"
#include "feature/rows.h"
#include "io/engine.h"
#include "mem/arena.h"

#include <stdatomic.h>

#define CHUNK_BYTES ((size_t)1 << 20) /* one read */
#define DEPTH 8                       /* reads in flight, for each loading thread */
#define LOADERS_MAX 8

typedef struct rows_memory {
    plim__rows_t source; /* first */
    plim__arena_t arena;
    plim__row_form_t form;
    char *table; /* (num_nodes, num_features) */
    _Atomic int64_t rows;
} rows_memory_t;

/* What the loading threads share. */
typedef struct load {
    const plim_job_t *job;
    const plim__file_t *file;
    char *table;
    int64_t bytes;
    _Atomic int64_t next; /* offset of the next chunk in the table */
} load_t;

static int num_loaders(const plim_job_t *job)
{
    return job->threads < LOADERS_MAX ? job->threads : LOADERS_MAX;
}

/* A direct read of the file's last page may write up to its end. */
static size_t table_bytes(const plim_dataset_t *dataset)
{
    size_t bytes;
    if (!plim__mul_size((size_t)plim_dataset_info(dataset)->num_nodes,
                        plim__row_form_of(dataset).bytes, &bytes))
        return SIZE_MAX;
    return plim__round_up(bytes, PLIM__PAGE);
}

static size_t arena_bytes(const plim_dataset_t *dataset)
{
    size_t sum;
    return plim__add_size(plim__arena_piece(1, sizeof(rows_memory_t), 1),
                          plim__arena_piece(table_bytes(dataset), 1, PLIM__PAGE), &sum)
               ? sum
               : SIZE_MAX;
}

size_t plim__rows_memory_estimate(const plim_job_t *job, const plim_dataset_t *dataset)
{
    size_t sum, loaders = (size_t)num_loaders(job);
    size_t each = plim__engine_estimate(job->io_engine, DEPTH) + PLIM__STACK_BYTES;
    return plim__add_size(plim__round_up(arena_bytes(dataset), PLIM__PAGE), loaders * each, &sum)
               ? sum
               : SIZE_MAX;
}

/* The next chunk that nobody has taken; false when there is none left. */
static bool take_chunk(load_t *load, plim__op_t *op)
{
    int64_t at = atomic_fetch_add(&load->next, (int64_t)CHUNK_BYTES);
    if (at >= load->bytes)
        return false;
    size_t left = plim__round_up((size_t)(load->bytes - at), load->file->align);
    *op = (plim__op_t){.file = load->file,
                       .offset = PLIM__NPY_HEADER + at,
                       .data = load->table + at,
                       .size = left < CHUNK_BYTES ? left : CHUNK_BYTES};
    return true;
}

static plim_status_t load_chunks(load_t *load, plim__engine_t *engine)
{
    plim__op_t ops[DEPTH];
    int64_t begun = 0, ended = 0;
    plim_status_t status = PLIM_OK;
    bool more = true;
    while (more || ended < begun) {
        while (more && begun - ended < DEPTH) {
            plim__op_t *op = &ops[begun % DEPTH];
            more = take_chunk(load, op);
            if (more) {
                plim__engine_submit(engine, op);
                begun++;
            }
        }
        if (ended == begun)
            break;
        plim_status_t one = plim__engine_wait(engine, &ops[ended % DEPTH]);
        ended++;
        if (status == PLIM_OK)
            status = one != PLIM_OK ? one : plim__job_check(load->job);
        if (status != PLIM_OK)
            more = false;
    }
    return status;
}

static plim_status_t load_worker(void *context, int worker)
{
    (void)worker;
    load_t *load = context;
    plim__engine_t *engine;
    PLIM_TRY(plim__engine_create(load->job, DEPTH, &engine));
    plim_status_t status = load_chunks(load, engine);
    plim__engine_destroy(engine);
    return status;
}

static plim_status_t load_table(const plim_job_t *job, const plim__file_t *file, char *table,
                                size_t bytes)
{
    load_t load = {.job = job, .file = file, .table = table, .bytes = (int64_t)bytes};
    int account, loaders = num_loaders(job);
    size_t stacks = (size_t)(loaders - 1) * PLIM__STACK_BYTES;
    PLIM_TRY(plim__ledger_reserve(job->ledger, "rows", stacks, &account));
    plim_status_t status = plim__parallel(loaders, load_worker, &load);
    plim__ledger_release(job->ledger, account, stacks);
    return status;
}

static plim_status_t memory_gather(plim__rows_t *source, int worker, const int64_t *nodes,
                                   int64_t count, plim_dtype_t type, void *rows_out)
{
    (void)worker;
    rows_memory_t *rows = (rows_memory_t *)source;
    PLIM_TRY(plim__row_form_check(type));
    plim__row_pick(&rows->form, rows->table, nodes, count, type, rows_out);
    atomic_fetch_add_explicit(&rows->rows, count, memory_order_relaxed);
    return PLIM_OK;
}

static void memory_stats(plim__rows_t *source, plim__rows_stats_t *stats_out)
{
    rows_memory_t *rows = (rows_memory_t *)source;
    int64_t count = atomic_load_explicit(&rows->rows, memory_order_relaxed);
    *stats_out = (plim__rows_stats_t){.rows = count, .rows_hot = count};
}

static void memory_destroy(plim__rows_t *source)
{
    plim__arena_destroy(&((rows_memory_t *)source)->arena);
}

plim_status_t plim__rows_memory_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                       plim__rows_t **source_out)
{
    plim__file_t file;
    plim__row_form_t form;
    plim__arena_t arena;
    PLIM_TRY(plim__row_form_open(dataset, &file, &form));
    plim_status_t status = plim__arena_create(job->ledger, "rows", arena_bytes(dataset), &arena);
    if (status != PLIM_OK)
        goto close;
    rows_memory_t *rows = plim__arena_carve(&arena, 1, sizeof *rows, 1);
    rows->table = plim__arena_carve(&arena, table_bytes(dataset), 1, PLIM__PAGE);
    plim__arena_want_huge(rows->table, table_bytes(dataset));
    size_t bytes = (size_t)plim_dataset_info(dataset)->num_nodes * form.bytes;
    status = load_table(job, &file, rows->table, bytes);
    if (status != PLIM_OK) {
        plim__arena_destroy(&arena);
        goto close;
    }
    rows->source = (plim__rows_t){memory_gather, memory_stats, memory_destroy};
    rows->form = form;
    rows->arena = arena;
    *source_out = &rows->source;
close:
    plim__file_close(&file);
    return status;
}
