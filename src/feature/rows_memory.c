/*
 * All rows in one arena, at multiples of their size from a page's boundary, so that direct I/O
 * reads the file straight into place.
 */
#include "base/check.h"
#include "base/fail.h"
#include "feature/row_form.h"
#include "feature/rows.h"
#include "io/bulk.h"
#include "mem/arena.h"
#include "store/file_check.h"

#include <stdatomic.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

typedef struct rows_memory {
    plim__rows_t source; /* first */
    plim__arena_t arena;
    plim__row_form_t form;
    char *table; /* (num_nodes, num_features) */
    _Atomic int64_t rows;
} rows_memory_t;

/* The file's checksums, compared as the rows come: in any order, so whoever brings the last bytes
 * of a piece looks at the whole of it. */
typedef struct checking {
    const plim__file_t *file;
    const plim__manifest_file_t *entry;
    const char *table;
    _Atomic int64_t *missing; /* (num_checksums) bytes of each piece that are not there yet */
} checking_t;

/* A direct read of the file's last page may write up to its end. */
static size_t table_bytes(const plim_dataset_t *dataset)
{
    size_t bytes;
    if (!plim__mul_size((size_t)plim_dataset_info(dataset)->num_nodes,
                        plim__row_form_of(dataset).bytes, &bytes))
        return SIZE_MAX;
    return plim__round_up(bytes, PLIM__PAGE);
}

static size_t num_checksums(const plim_dataset_t *dataset)
{
    return table_bytes(dataset) / (size_t)PLIM__CHECKSUM_BYTES + 2; /* with the header's page */
}

static size_t arena_bytes(const plim_dataset_t *dataset)
{
    size_t sum = plim__arena_piece(1, sizeof(rows_memory_t), 1) +
                 plim__arena_piece(num_checksums(dataset), sizeof(int64_t), 1);
    return plim__add_size(sum, plim__arena_piece(table_bytes(dataset), 1, PLIM__PAGE), &sum)
               ? sum
               : SIZE_MAX;
}

size_t plim__rows_memory_stays(const plim_dataset_t *dataset)
{
    return plim__round_up(arena_bytes(dataset), PLIM__PAGE);
}

size_t plim__rows_memory_estimate(const plim_job_t *job, const plim_dataset_t *dataset)
{
    size_t sum;
    return plim__add_size(plim__rows_memory_stays(dataset), plim__bulk_estimate(job), &sum)
               ? sum
               : SIZE_MAX;
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

/* Where the bytes of a checksum end in the file. */
static int64_t piece_end(const checking_t *checking, int64_t number)
{
    return plim__min_i64((number + 1) * PLIM__CHECKSUM_BYTES, checking->entry->bytes);
}

static plim_status_t check_piece(const checking_t *checking, int64_t number)
{
    _Alignas(4096) char header[PLIM__NPY_HEADER];
    XXH3_state_t state;
    const int64_t header_size = number == 0 ? (int64_t)sizeof header : 0;
    const int64_t begin = number * PLIM__CHECKSUM_BYTES + header_size;
    (void)XXH3_64bits_reset(&state);
    if (number == 0) {
        PLIM_TRY(plim__file_read_at(checking->file, 0, header, sizeof header));
        (void)XXH3_64bits_update(&state, header, sizeof header);
    }
    (void)XXH3_64bits_update(&state, checking->table + (begin - PLIM__NPY_HEADER),
                             (size_t)(piece_end(checking, number) - begin));
    const uint64_t found = XXH3_64bits_digest(&state);
    return found == checking->entry->checksums[number]
               ? PLIM_OK
               : plim__file_check_fail(checking->file, checking->entry, number, found);
}

static plim_status_t take_chunk(void *context, int64_t at, void *data, size_t size)
{
    const checking_t *checking = context;
    int64_t begin = PLIM__NPY_HEADER + at;
    const int64_t end = begin + (int64_t)size;
    (void)data;
    while (begin < end) {
        const int64_t number = begin / PLIM__CHECKSUM_BYTES;
        const int64_t part = plim__min_i64(end, piece_end(checking, number)) - begin;
        if (atomic_fetch_sub(&checking->missing[number], part) == part)
            PLIM_TRY(check_piece(checking, number));
        begin += part;
    }
    return PLIM_OK;
}

static plim_status_t read_table(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__file_t *file, char *table, _Atomic int64_t *missing)
{
    checking_t checking = {
        file, plim__manifest_find(plim__dataset_manifest(dataset), "features.npy"), table, missing};
    for (int64_t i = 0; i < checking.entry->num_checksums; i++)
        atomic_init(&missing[i], piece_end(&checking, i) - i * PLIM__CHECKSUM_BYTES -
                                     (i == 0 ? (int64_t)PLIM__NPY_HEADER : 0));
    return plim__bulk_read(job, file, PLIM__NPY_HEADER, table, file->size - PLIM__NPY_HEADER,
                           take_chunk, &checking);
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
    /* First, so that no huge page is two threads' chunks: each would have one charged. */
    char *table = plim__arena_carve(&arena, table_bytes(dataset), 1, PLIM__PAGE);
    plim__arena_want_huge(table, table_bytes(dataset));
    rows_memory_t *rows = plim__arena_carve(&arena, 1, sizeof *rows, 1);
    rows->table = table;
    status = read_table(job, dataset, &file, rows->table,
                        plim__arena_carve(&arena, num_checksums(dataset), sizeof(int64_t), 1));
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
