/* Splits: ids of nodes or graphs in the order of the source. And offsets of graphs. */
#include "ingest/import.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "store/unique.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const names[3] = {"train", "valid", "test"};

/* Most ids in a text, whose number is unknown; their checksums take 64 KiB. */
#define IDS_MAX ((int64_t)1 << 36)

static plim_status_t begin(plim__import_t *import, int split, const char *from, int64_t most,
                           plim__column_t **column_out)
{
    int64_t shape[1] = {-1};
    if (import->splits[split].done)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: the %s split was already read from %s; keep one of them", from,
                          names[split], import->splits[split].from);
    import->splits[split].done = true;
    import->splits[split].most = import->splits[split].last = -1;
    (void)snprintf(import->splits[split].from, sizeof import->splits[split].from, "%s", from);
    PLIM_TRY(plim__import_begin(import));
    return plim__column_open(import->writer, names[split], PLIM__NPY_I64, 1, shape, 8 * most,
                             import->buffer, column_out);
}

/* Keeps the maximum id: the number of nodes may be known only later. */
static plim_status_t put(plim__import_t *import, int split, plim__column_t *column,
                         const int64_t *ids, int64_t count, int64_t position)
{
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0)
            return plim__fail(PLIM_ERR_DATA,
                              "%s: entry %" PRId64 " is %" PRId64
                              "; ids cannot be negative, correct the file",
                              import->splits[split].from, position + i, ids[i]);
        import->splits[split].unordered |= ids[i] <= import->splits[split].last;
        import->splits[split].last = ids[i];
        if (ids[i] > import->splits[split].most) {
            import->splits[split].most = ids[i];
            import->splits[split].most_at = position + i;
        }
    }
    return plim__column_write(column, ids, (size_t)count * sizeof *ids);
}

/*
 * A list of ids has each id once. If its first three entries are 0 or 1, it is a mask or wrong.
 */
static bool begins_as_mask(const int64_t *values, int64_t count)
{
    for (int i = 0; i < 3; i++)
        if (count < 3 || values[i] < 0 || values[i] > 1)
            return false;
    return true;
}

/* Converts entries of a mask, the first at `position`, to the ids of those that are set. */
static plim_status_t choose(const char *name, int64_t *values, int64_t count, int64_t position,
                            int64_t *chosen_out)
{
    int64_t chosen = 0;
    for (int64_t i = 0; i < count; i++) {
        if (values[i] != 0 && values[i] != 1)
            return plim__fail(PLIM_ERR_DATA,
                              "%s: entry %" PRId64 " is %" PRId64
                              ", but by its name or first entries it is a mask of 0 and 1; name a "
                              "list of ids train_idx, with each id once",
                              name, position + i, values[i]);
        if (values[i] == 1)
            values[chosen++] = position + i;
    }
    *chosen_out = chosen;
    return PLIM_OK;
}

/* A mask has an entry for each node or graph; this also confirms a guess. */
static plim_status_t settle_mask(plim__import_t *import, const plim__ids_t *ids, bool guessed,
                                 int64_t chosen)
{
    const bool graphs = import->graphs.value >= 0;
    plim__agreed_t *items = graphs ? &import->graphs : &import->nodes;
    if (guessed && items->value >= 0 && items->value != ids->position)
        return plim__fail(
            PLIM_ERR_DATA,
            "%s: its %" PRId64 " entries begin with repeated 0 and 1, so it is neither a "
            "list of ids, with each id once, nor a mask, with an entry for each of the "
            "%" PRId64 " %s",
            ids->name, ids->position, items->value, graphs ? "graphs" : "nodes");
    plim__log(import->job, guessed ? PLIM_LOG_WARNING : PLIM_LOG_INFO,
              "%s is a mask%s: %" PRId64 " of %" PRId64 " are chosen", ids->name,
              guessed ? ", since its entries are 0 and 1" : "", chosen, ids->position);
    return plim__import_agree(items, graphs ? "graphs" : "nodes", ids->position, ids->name);
}

/* Reads ids, or a mask, whose ids are the positions of 1. At most `most` entries. */
static plim_status_t split_values(plim__import_t *import, int split, plim__ids_t *ids, int64_t most,
                                  bool mask)
{
    int64_t piece[PLIM__ID_PIECE], got, count, all = 0;
    bool guessed = false;
    plim__column_t *column;
    PLIM_TRY(begin(import, split, ids->name, most, &column));
    do {
        const int64_t position = ids->position;
        PLIM_TRY(plim__job_check(import->job));
        PLIM_TRY(ids->read(ids, piece, PLIM__ID_PIECE, &got));
        if (ids->position > most)
            return plim__fail(PLIM_ERR_DATA, "%s has more than %" PRId64 " ids", ids->name, most);
        if (position == 0 && !mask)
            mask = guessed = begins_as_mask(piece, got);
        count = got;
        if (mask)
            PLIM_TRY(choose(ids->name, piece, got, position, &count));
        PLIM_TRY(put(import, split, column, piece, count, position));
        all += count;
    } while (got == PLIM__ID_PIECE);
    if (mask)
        PLIM_TRY(settle_mask(import, ids, guessed, all));
    import->splits[split].mask = mask;
    return plim__column_close(column);
}

/* Whether the name says that it is a mask, such as train_mask.npy. */
static bool named_mask(const char *name)
{
    const char *slash = strrchr(name, '/');
    return strcasestr(slash != NULL ? slash : name, "mask") != NULL;
}

plim_status_t plim__import_split(plim__import_t *import, int split, plim__ids_t *ids)
{
    return split_values(import, split, ids, IDS_MAX, named_mask(ids->name));
}

plim_status_t plim__import_split_npy(plim__import_t *import, int split, plim__stream_t *stream,
                                     const plim__npy_t *npy)
{
    plim__ids_npy_t ids;
    if (npy->num_dims < 1 || npy->count != npy->shape[0] || npy->count > INT64_MAX / 16)
        return plim__fail(PLIM_ERR_DATA, "%s: a split must be one column of ids, or a mask",
                          stream->name);
    PLIM_TRY(plim__ids_npy_open(&ids, stream, npy->type, npy->count));
    PLIM_TRY(split_values(import, split, &ids.ids, npy->count,
                          npy->type == PLIM__NPY_BOOL || named_mask(stream->name)));
    return plim__stream_end(stream);
}

plim_status_t plim__import_split_once(const plim__import_t *import, int split, int64_t bound)
{
    char path[PATH_MAX];
    plim__file_t file;
    if (!import->splits[split].unordered)
        return PLIM_OK;
    if (snprintf(path, sizeof path, "%s/%s.npy", plim__dataset_staging(import->writer),
                 names[split]) >= PATH_MAX)
        return plim__fail(PLIM_ERR_USAGE, "%s: the path is too long", import->options->target);
    PLIM_TRY(plim__file_open(path, PLIM__FILE_READ, false, &file));
    const plim_status_t status =
        plim__unique_check(import->job, &file, import->splits[split].from,
                           (file.size - PLIM__NPY_HEADER) / (int64_t)sizeof(int64_t), bound);
    plim__file_close(&file);
    return status;
}

plim_status_t plim__import_graph_offsets(plim__import_t *import)
{
    int64_t counts[PLIM__ID_PIECE], offsets[PLIM__ID_PIECE], got, sum = 0;
    int64_t shape[1] = {import->graph_nodes.count + 1};
    plim__column_t *column;
    PLIM_TRY(plim__import_begin(import));
    PLIM_TRY(plim__id_spool_rewind(&import->graph_nodes, false));
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
