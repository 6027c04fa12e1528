/* Splits: ids of nodes or of graphs, in the order the source has them; and offsets of graphs. */
#include "ingest/import.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const names[3] = {"train", "valid", "test"};

/* The most ids of a text, which does not say how many it has; their checksums take 64 KiB. */
#define IDS_MAX ((int64_t)1 << 36)

static plim_status_t begin(plim__import_t *import, int split, const char *from, int64_t most,
                           plim__column_t **column_out)
{
    int64_t shape[1] = {-1};
    if (import->splits[split].done)
        return plim__fail(PLIM_ERR_DATA, "%s: the %s split was read before, from %s; keep one",
                          from, names[split], import->splits[split].from);
    import->splits[split].done = true;
    import->splits[split].most = -1;
    (void)snprintf(import->splits[split].from, sizeof import->splits[split].from, "%s", from);
    PLIM_TRY(plim__import_begin(import));
    return plim__column_open(import->writer, names[split], PLIM__NPY_I64, 1, shape, 8 * most,
                             import->buffer, column_out);
}

/* Remembers the greatest id: how many nodes there are may be known only later. */
static plim_status_t put(plim__import_t *import, int split, plim__column_t *column,
                         const int64_t *ids, int64_t count, int64_t position)
{
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0)
            return plim__fail(PLIM_ERR_DATA,
                              "%s: entry %" PRId64 " is %" PRId64
                              "; ids cannot be negative, correct the file",
                              import->splits[split].from, position + i, ids[i]);
        if (ids[i] > import->splits[split].most) {
            import->splits[split].most = ids[i];
            import->splits[split].most_at = position + i;
        }
    }
    return plim__column_write(column, ids, (size_t)count * sizeof *ids);
}

/* At most `most` ids. */
static plim_status_t split_ids(plim__import_t *import, int split, plim__ids_t *ids, int64_t most)
{
    int64_t piece[PLIM__ID_PIECE], got;
    plim__column_t *column;
    PLIM_TRY(begin(import, split, ids->name, most, &column));
    do {
        int64_t position = ids->position;
        PLIM_TRY(plim__job_check(import->job));
        PLIM_TRY(ids->read(ids, piece, PLIM__ID_PIECE, &got));
        if (ids->position > most)
            return plim__fail(PLIM_ERR_DATA,
                              "%s: more than %" PRId64 " ids, which no split can have", ids->name,
                              most);
        PLIM_TRY(put(import, split, column, piece, got, position));
    } while (got == PLIM__ID_PIECE);
    return plim__column_close(column);
}

plim_status_t plim__import_split(plim__import_t *import, int split, plim__ids_t *ids)
{
    return split_ids(import, split, ids, IDS_MAX);
}

/* A mask: the ids are the places where it is true. */
static plim_status_t split_mask(plim__import_t *import, int split, plim__stream_t *stream,
                                int64_t count)
{
    unsigned char mask[PLIM__ID_PIECE];
    int64_t ids[PLIM__ID_PIECE];
    plim__column_t *column;
    bool graphs = import->graphs.value >= 0;
    PLIM_TRY(plim__import_agree(graphs ? &import->graphs : &import->nodes,
                                graphs ? "graphs" : "nodes", count, stream->name));
    PLIM_TRY(begin(import, split, stream->name, count, &column));
    for (int64_t done = 0; done < count;) {
        int64_t piece = plim__min_i64(PLIM__ID_PIECE, count - done), chosen = 0;
        PLIM_TRY(plim__stream_read_all(stream, mask, (size_t)piece));
        for (int64_t i = 0; i < piece; i++) {
            ids[chosen] = done + i;
            chosen += mask[i] != 0;
        }
        PLIM_TRY(put(import, split, column, ids, chosen, done));
        done += piece;
    }
    PLIM_TRY(plim__stream_end(stream));
    return plim__column_close(column);
}

plim_status_t plim__import_split_npy(plim__import_t *import, int split, plim__stream_t *stream,
                                     const plim__npy_t *npy)
{
    plim__ids_npy_t ids;
    if (npy->num_dims < 1 || npy->count != npy->shape[0] || npy->count > INT64_MAX / 16)
        return plim__fail(PLIM_ERR_DATA, "%s: a split is one column of ids, or a mask",
                          stream->name);
    if (npy->type == PLIM__NPY_BOOL)
        return split_mask(import, split, stream, npy->count);
    PLIM_TRY(plim__ids_npy_open(&ids, stream, npy->type, npy->count));
    PLIM_TRY(split_ids(import, split, &ids.ids, npy->count));
    return plim__stream_end(stream);
}

plim_status_t plim__import_graph_offsets(plim__import_t *import)
{
    int64_t counts[PLIM__ID_PIECE], offsets[PLIM__ID_PIECE], got, sum = 0;
    int64_t shape[1] = {import->graph_nodes.count + 1};
    plim__column_t *column;
    PLIM_TRY(plim__import_begin(import));
    PLIM_TRY(plim__id_aside_rewind(&import->graph_nodes, false));
    PLIM_TRY(plim__column_open(import->writer, "graph_indptr", PLIM__NPY_I64, 1, shape,
                               8 * shape[0], import->buffer, &column));
    PLIM_TRY(plim__column_write(column, &sum, sizeof sum));
    do {
        plim__ids_t *ids = &import->graph_nodes.ids;
        PLIM_TRY(ids->read(ids, counts, PLIM__ID_PIECE, &got));
        for (int64_t i = 0; i < got; i++) {
            sum += counts[i]; /* the total was checked when the counts were read */
            offsets[i] = sum;
        }
        PLIM_TRY(plim__column_write(column, offsets, (size_t)got * sizeof *offsets));
    } while (got == PLIM__ID_PIECE);
    return plim__column_close(column);
}
