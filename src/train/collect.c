#include "train/collect.h"

#include "base/check.h"
#include "base/fail.h"
#include "load/slot_ring.h"

#include <string.h>

#define STAGE PLIM__STAGE_EVALUATION

/* A row travels as its values and its label. */
struct plim__collect {
    plim__arena_t arena;
    plim__peers_t *peers;
    int64_t batch_rows, width;
    size_t label_bytes, row_bytes;
    char *own; /* (batch_rows) of this rank's batch */
    int64_t own_rows;
    plim_status_t taken; /* of rank 0's last call of `take` */
    /* On rank 0: */
    char *received; /* (batch_rows) of another rank */
    float *values;  /* (batch_rows, width) the same, without labels */
    char *labels;
    int64_t rows, all; /* handed on so far; of the pass */
    /* Of an exchange (num_ranks): */
    size_t *send_sizes, *send_offsets, *receive_sizes, *receive_offsets;
};

static void lay_out(plim__arena_t *arena, void *object)
{
    plim__collect_t *collect = object;
    const size_t ranks = (size_t)plim__peers_num_ranks(collect->peers);
    const size_t rows = (size_t)collect->batch_rows;
    collect->own = plim__arena_carve(arena, rows, collect->row_bytes, PLIM__LINE);
    collect->send_sizes = plim__arena_carve(arena, ranks, sizeof(size_t), 1);
    collect->send_offsets = plim__arena_carve(arena, ranks, sizeof(size_t), 1);
    collect->receive_sizes = plim__arena_carve(arena, ranks, sizeof(size_t), 1);
    collect->receive_offsets = plim__arena_carve(arena, ranks, sizeof(size_t), 1);
    if (plim__peers_rank(collect->peers) > 0)
        return;
    collect->received = plim__arena_carve(arena, rows, collect->row_bytes, PLIM__LINE);
    collect->values = plim__arena_carve(arena, rows, (size_t)collect->width * sizeof(float), 1);
    collect->labels = plim__arena_carve(arena, rows, collect->label_bytes, 1);
}

plim_status_t plim__collect_create(plim_ledger_t *ledger, plim__peers_t *peers, int64_t batch_rows,
                                   int64_t width, size_t label_bytes, plim__collect_t **collect_out)
{
    plim__collect_t draft = {.peers = peers,
                             .batch_rows = batch_rows,
                             .width = width,
                             .label_bytes = label_bytes,
                             .row_bytes = (size_t)width * sizeof(float) + label_bytes};
    PLIM_TRY(plim__object_create(ledger, "evaluation", lay_out, &draft, sizeof draft, &draft.arena,
                                 collect_out));
    plim__arena_touch(&(*collect_out)->arena);
    return PLIM_OK;
}

void plim__collect_destroy(plim__collect_t *collect)
{
    if (collect != NULL)
        plim__arena_destroy(&collect->arena);
}

void plim__collect_begin(plim__collect_t *collect, int64_t rows)
{
    collect->own_rows = collect->rows = 0;
    collect->all = rows;
    collect->taken = PLIM_OK;
}

int64_t plim__collect_batch_rows(const plim__collect_t *collect)
{
    return collect->batch_rows;
}

int64_t plim__collect_step(const plim__collect_t *collect)
{
    return collect->rows / collect->batch_rows;
}

void plim__collect_add(plim__collect_t *collect, int64_t rows, const float *values,
                       const void *labels)
{
    const size_t bytes = (size_t)collect->width * sizeof *values;
    rows = plim__min_i64(rows, collect->batch_rows - collect->own_rows);
    for (int64_t i = 0; i < rows; i++) {
        char *to = collect->own + (size_t)(collect->own_rows + i) * collect->row_bytes;
        memcpy(to, values + i * collect->width, bytes);
        if (collect->label_bytes > 0)
            memcpy(to + bytes, (const char *)labels + (size_t)i * collect->label_bytes,
                   collect->label_bytes);
    }
    collect->own_rows += rows;
}

/* The rows of rank `rank` in the group that begins at row `first`: the last one's are divided too.
 */
static int64_t rows_of(const plim__collect_t *collect, int rank, int64_t first)
{
    const int ranks = plim__peers_num_ranks(collect->peers);
    const int64_t group =
        plim__min_i64(plim__mul_saturating_i64(collect->batch_rows, ranks), collect->all - first);
    return plim__share_first(group, ranks, rank + 1) - plim__share_first(group, ranks, rank);
}

/* Hands on rows, no two batches at once. */
static plim_status_t pass_on(plim__collect_t *collect, const char *from, int64_t rows,
                             plim__collect_take_fn take, void *context)
{
    const size_t bytes = (size_t)collect->width * sizeof(float);
    while (rows > 0) {
        const int64_t part =
            plim__min_i64(rows, collect->batch_rows - collect->rows % collect->batch_rows);
        for (int64_t i = 0; i < part; i++, from += collect->row_bytes) {
            memcpy(collect->values + i * collect->width, from, bytes);
            memcpy(collect->labels + (size_t)i * collect->label_bytes, from + bytes,
                   collect->label_bytes);
        }
        PLIM_TRY(take(context, part, collect->values, collect->labels));
        collect->rows += part;
        rows -= part;
    }
    return PLIM_OK;
}

/* Brings the rows of one rank to rank 0, and hands them on. */
static plim_status_t bring(plim__collect_t *collect, int rank, int64_t first,
                           plim__collect_take_fn take, void *context)
{
    const int self = plim__peers_rank(collect->peers);
    const int num_ranks = plim__peers_num_ranks(collect->peers);
    const size_t most = (size_t)collect->batch_rows * collect->row_bytes;
    const char *rows = collect->own;
    size_t size = (size_t)collect->own_rows * collect->row_bytes;
    for (int i = 0; i < num_ranks; i++)
        collect->send_sizes[i] = collect->send_offsets[i] = 0;
    if (rank > 0) {
        collect->send_sizes[0] = self == rank ? size : 0;
        PLIM_TRY(plim__peers_all_to_all(
            collect->peers, STAGE, collect->own, collect->send_sizes, collect->send_offsets,
            self == 0 ? collect->received : collect->own, self == 0 ? most : 0,
            collect->receive_sizes, collect->receive_offsets));
        size = self == 0 ? collect->receive_sizes[rank] : 0;
        rows = collect->received;
    }
    if (self > 0 || collect->taken != PLIM_OK)
        return PLIM_OK;
    for (int i = 0; rank > 0 && i < num_ranks; i++)
        if (i != rank && collect->receive_sizes[i] > 0) { /* it is not its turn */
            collect->taken = plim__peers_fail_rows(i);
            return PLIM_OK;
        }
    const int64_t expected = rows_of(collect, rank, first);
    collect->taken = size == (size_t)expected * collect->row_bytes
                         ? pass_on(collect, rows, expected, take, context)
                         : plim__peers_fail_rows(rank);
    return PLIM_OK;
}

/* Waits for all ranks; their rows must be alike, since bytes do not show how wide a row is. */
static plim_status_t agree(const plim__collect_t *collect, plim_status_t status)
{
    const int64_t own[] = {collect->width, (int64_t)collect->label_bytes, collect->batch_rows,
                           collect->all};
    int64_t least[4], greatest[4];
    PLIM_TRY(plim__peers_agree(collect->peers, STAGE, status, 4, own, least, greatest));
    if (memcmp(least, greatest, sizeof least) == 0)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_DATA,
                      "ranks have rows of %lld to %lld values and batches of %lld to %lld rows: do "
                      "all ranks have the same options and files?",
                      (long long)least[0], (long long)greatest[0], (long long)least[2],
                      (long long)greatest[2]);
}

plim_status_t plim__collect_end(plim__collect_t *collect, plim_status_t status, bool last,
                                plim__collect_take_fn take, void *context)
{
    PLIM_TRY(agree(collect, status != PLIM_OK ? status : collect->taken));
    const int64_t first = collect->rows;
    for (int rank = 0; rank < plim__peers_num_ranks(collect->peers); rank++)
        PLIM_TRY(bring(collect, rank, first, take, context));
    collect->own_rows = 0;
    if (!last)
        return PLIM_OK;
    return plim__peers_agree(collect->peers, STAGE, collect->taken, 0, NULL, NULL, NULL);
}
