/* Outputs, stored by ascending node, in the order that was asked for. */
#include "infer/exact_internal.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/radix.h"
#include "io/reader.h"

#include <string.h>

typedef struct giving {
    plim__arena_t arena;
    plim__reader_t *reader; /* NULL: the store is in memory */
    plim__read_t *reads;    /* (piece_rows) */
    uint64_t *keys, *spare; /* (piece_rows) rank and index */
} giving_t;

/* Ascending by rank, so that neighbours are read together. */
static plim_status_t read_rows(plim__exact_t *exact, giving_t *giving,
                               const plim__exact_source_t *source, const int64_t *nodes,
                               int64_t rows)
{
    int bits = 0;
    while (((int64_t)1 << bits) < exact->sizes.piece_rows)
        bits++;
    const int64_t members = source->set->count;
    int rank_bits = 1;
    while (rank_bits < 62 - bits && ((int64_t)1 << rank_bits) < members)
        rank_bits++;
    for (int64_t i = 0; i < rows; i++)
        giving->keys[i] = (uint64_t)plim__exact_rank(source->set, nodes[i]) << bits | (uint64_t)i;
    const uint64_t *keys = plim__radix_sort(giving->keys, giving->spare, rows, bits + rank_bits);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t rank = (int64_t)(keys[i] >> bits);
        const int64_t index = (int64_t)(keys[i] & (((uint64_t)1 << bits) - 1));
        giving->reads[i] = (plim__read_t){.offset = plim__exact_row_offset(source, rank),
                                          .size = (size_t)source->row_bytes,
                                          .to = exact->h + index * source->width};
    }
    return plim__reader_read(giving->reader, source->file, giving->reads, rows);
}

static plim_status_t give_piece(plim__exact_t *exact, giving_t *giving,
                                const plim__exact_source_t *source, const int64_t *nodes,
                                int64_t rows)
{
    if (source->file != NULL)
        return read_rows(exact, giving, source, nodes, rows);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t rank = plim__exact_rank(source->set, nodes[i]);
        memcpy(exact->h + i * source->width, source->memory + plim__exact_row_offset(source, rank),
               (size_t)source->row_bytes);
    }
    return PLIM_OK;
}

plim_status_t plim__exact_give(plim__exact_t *exact, const plim__exact_source_t *source,
                               const int64_t *nodes, int64_t count, plim__exact_take_fn take,
                               void *context)
{
    const size_t most = (size_t)exact->sizes.piece_rows;
    const plim__reader_params_t params = plim__exact_give_reader((size_t)source->row_bytes);
    giving_t giving = {.reader = NULL};
    plim_status_t status = PLIM_OK;
    PLIM_TRY(plim__arena_create(exact->job->ledger, "exact",
                                plim__arena_piece(most, sizeof(plim__read_t), 1) +
                                    2 * plim__arena_piece(most, sizeof(uint64_t), 1),
                                &giving.arena));
    giving.reads = plim__arena_carve(&giving.arena, most, sizeof(plim__read_t), 1);
    giving.keys = plim__arena_carve(&giving.arena, most, sizeof(uint64_t), 1);
    giving.spare = plim__arena_carve(&giving.arena, most, sizeof(uint64_t), 1);
    if (source->file != NULL)
        status = plim__reader_create(exact->job, &params, &giving.reader);
    for (int64_t first = 0; first < count && status == PLIM_OK;) {
        const int64_t rows = plim__min_i64(exact->sizes.piece_rows, count - first);
        status = give_piece(exact, &giving, source, nodes + first, rows);
        if (status == PLIM_OK)
            status = take(context, first, rows, source->width, exact->h);
        first += rows;
    }
    plim__reader_destroy(giving.reader);
    plim__arena_destroy(&giving.arena);
    return status;
}
