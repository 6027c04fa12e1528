/* Puts the rows of the peers' stores, which are by ascending node, into the requested order. */
#include "infer/exact_internal.h"

#include "base/check.h"
#include "base/job.h"
#include "base/radix.h"
#include "io/range_reader.h"

#include <string.h>

#define MERGE_BYTES ((size_t)16 << 10)
#define DEPTH 32

/* The buffers; rows are put into order a range at a time. */
typedef struct reorder {
    plim__arena_t arena;
    int64_t range_rows;
    plim__range_reader_t *reader;  /* NULL: the store is in memory */
    plim__read_t *reads;           /* (range_rows) */
    uint64_t *keys, *sort_scratch; /* (range_rows) position and index */
} reorder_t;

static void lay_out(plim__arena_t *arena, void *object)
{
    reorder_t *reorder = object;
    const size_t rows = (size_t)reorder->range_rows;
    reorder->reads = plim__arena_carve(arena, rows, sizeof *reorder->reads, 1);
    reorder->keys = plim__arena_carve(arena, rows, sizeof *reorder->keys, 1);
    reorder->sort_scratch = plim__arena_carve(arena, rows, sizeof *reorder->sort_scratch, 1);
}

static plim__range_reader_params_t reader_params(size_t row_bytes)
{
    return (plim__range_reader_params_t){
        .depth = DEPTH, .max_read = row_bytes, .merge_distance = MERGE_BYTES};
}

size_t plim__exact_reorder_bytes(const plim_job_t *job, int64_t range_rows, int64_t width)
{
    reorder_t draft = {.range_rows = range_rows};
    const plim__range_reader_params_t params = reader_params((size_t)width * sizeof(float));
    return plim__object_bytes(lay_out, &draft, sizeof draft) +
           plim__range_reader_estimate(job->io_engine, &params);
}

/* Finds the positions of requested nodes first … first + count - 1 that are this peer's; returns
 * how many. */
static int64_t find_own(reorder_t *reorder, const plim__exact_source_t *source,
                        const int64_t *nodes, int64_t first, int64_t count)
{
    int64_t own = 0;
    for (int64_t i = first; i < first + count; i++) {
        const int64_t position = plim__exact_position(source->set, nodes != NULL ? nodes[i] : i);
        if (position >= 0)
            reorder->keys[own++] = (uint64_t)position;
    }
    return own;
}

/* Reads the rows of the positions in `keys` to exact->h; sorted by position, so that adjacent rows
 * are read together. */
static plim_status_t read_rows(plim__exact_t *exact, reorder_t *reorder,
                               const plim__exact_source_t *source, int64_t rows)
{
    int bits = 0;
    while (((int64_t)1 << bits) < exact->sizes.range_rows)
        bits++;
    const int64_t members = source->set->count;
    int position_bits = 1;
    while (position_bits < 62 - bits && ((int64_t)1 << position_bits) < members)
        position_bits++;
    for (int64_t i = 0; i < rows; i++)
        reorder->keys[i] = reorder->keys[i] << bits | (uint64_t)i;
    const uint64_t *keys =
        plim__radix_sort(reorder->keys, reorder->sort_scratch, rows, bits + position_bits);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t position = (int64_t)(keys[i] >> bits);
        const int64_t index = (int64_t)(keys[i] & (((uint64_t)1 << bits) - 1));
        reorder->reads[i] = (plim__read_t){.offset = plim__exact_row_offset(source, position),
                                           .size = (size_t)source->row_bytes,
                                           .to = exact->h + index * source->width};
    }
    return plim__range_reader_read(reorder->reader, source->file, reorder->reads, rows);
}

/* Gathers this peer's rows of requested nodes first … first + count - 1 in exact->h. */
static plim_status_t reorder_range(plim__exact_t *exact, reorder_t *reorder,
                                   const plim__exact_source_t *source, const int64_t *nodes,
                                   int64_t first, int64_t count)
{
    const int64_t rows = find_own(reorder, source, nodes, first, count);
    if (source->file != NULL)
        return read_rows(exact, reorder, source, rows);
    for (int64_t i = 0; i < rows; i++)
        memcpy(exact->h + i * source->width,
               source->memory + plim__exact_row_offset(source, (int64_t)reorder->keys[i]),
               (size_t)source->row_bytes);
    return PLIM_OK;
}

plim_status_t plim__exact_reorder(plim__exact_t *exact, const plim__exact_source_t *source,
                                  const int64_t *nodes, int64_t count, plim__exact_take_fn take,
                                  void *context)
{
    const plim__range_reader_params_t params = reader_params((size_t)source->row_bytes);
    reorder_t draft = {.range_rows = exact->sizes.range_rows}, *reorder;
    float *ordered = exact->peers == NULL ? exact->h : (float *)(void *)exact->writer.buffers[0];
    bool failed = false; /* on this peer, since the last agreement */
    plim_status_t status = plim__object_create(exact->job->ledger, "exact", lay_out, &draft,
                                               sizeof draft, &draft.arena, &reorder);
    const bool created = status == PLIM_OK;
    if (created && source->file != NULL)
        status = plim__range_reader_create(exact->job, &params, &reorder->reader);
    for (int64_t first = 0; first < count && !failed;) {
        const int64_t rows = plim__min_i64(exact->round_rows, count - first);
        if (status == PLIM_OK)
            status = reorder_range(exact, reorder, source, nodes, first, rows);
        status = exact->peers != NULL ? plim__exact_collect(exact, status, nodes, first, rows,
                                                            source->width, ordered)
                                      : status;
        failed = status != PLIM_OK;
        if (!failed && plim__peers_rank(exact->peers) == 0)
            status = take(context, first, rows, source->width, ordered);
        first += rows;
    }
    if (created) {
        plim__range_reader_destroy(reorder->reader);
        plim__arena_destroy(&reorder->arena);
    }
    return failed ? status : plim__exact_agree(exact, status);
}
