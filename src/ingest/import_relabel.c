/*
 * Converts names to ids: ids.npy has all distinct names in ascending order, and the id of a name is
 * its rank. Names and edges stay on disk:
 *
 *     ends of edges ─► runs, sorted in memory, each name once ─► merged, RUNS at a time
 *                   ─► ids.npy and a table, one slab of it at a time in memory
 *     for each slab: reads both ends of all edges, replaces names in the slab by ranks
 *
 * Until the last slab a rank is stored as -1 - rank: names are not negative.
 */
#include "ingest/import.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/radix.h"

#include <string.h>

#define RUNS 16
#define RUN_BUFFER ((size_t)64 << 10)
#define NAMES_MIN ((int64_t)1 << 16) /* in memory at a time; fewer would be too slow */

typedef struct relabel {
    plim__arena_t arena;
    plim__import_t *import;
    int64_t *names;   /* (capacity) the run in progress, or a slab of the table */
    int64_t *scratch; /* (capacity) for sorting, or the index of the slab */
    int64_t capacity;
    int64_t num_names;               /* in `names` */
    plim__id_spool_t runs[RUNS + 1]; /* the last one is the target of a merge */
    int num_runs;
    int heap[RUNS];
    int64_t heads[RUNS];
    int64_t slab_first; /* rank of the slab's first name */
    int shift;          /* names with equal bits above this are in the same bucket */
} relabel_t;

static plim_status_t run_create(relabel_t *relabel, plim__id_spool_t *run)
{
    plim__import_t *import = relabel->import;
    return plim__id_spool_create(run, import->job, import->tmp, RUN_BUFFER, "names of nodes");
}

static bool heap_less(const relabel_t *relabel, int a, int b)
{
    return relabel->heads[relabel->heap[a]] < relabel->heads[relabel->heap[b]];
}

static void heap_down(relabel_t *relabel, int at, int size)
{
    for (;;) {
        int smallest = at;
        for (int child = 2 * at + 1; child <= 2 * at + 2; child++)
            if (child < size && heap_less(relabel, child, smallest))
                smallest = child;
        if (smallest == at)
            return;
        int run = relabel->heap[at];
        relabel->heap[at] = relabel->heap[smallest];
        relabel->heap[smallest] = run;
        at = smallest;
    }
}

/* Reads the next name of a run. False at its end. */
static plim_status_t next_head(relabel_t *relabel, int run, bool *more_out)
{
    plim__ids_t *ids = &relabel->runs[run].ids;
    int64_t got;
    PLIM_TRY(ids->read(ids, &relabel->heads[run], 1, &got));
    *more_out = got == 1;
    return PLIM_OK;
}

/* Merges all runs into the first one, each name once. */
static plim_status_t merge(relabel_t *relabel)
{
    plim__id_spool_t *to = &relabel->runs[RUNS];
    int64_t chunk[PLIM__ID_CHUNK], filled = 0, last = -1;
    int size = 0;
    bool more;
    PLIM_TRY(run_create(relabel, to));
    for (int i = 0; i < relabel->num_runs; i++) {
        PLIM_TRY(plim__id_spool_rewind(&relabel->runs[i], true));
        PLIM_TRY(next_head(relabel, i, &more));
        if (more)
            relabel->heap[size++] = i;
    }
    for (int i = size / 2 - 1; i >= 0; i--)
        heap_down(relabel, i, size);
    while (size > 0) {
        int run = relabel->heap[0];
        if (relabel->heads[run] != last) {
            last = relabel->heads[run];
            chunk[filled++] = last;
        }
        if (filled == PLIM__ID_CHUNK) {
            PLIM_TRY(plim__job_check(relabel->import->job));
            PLIM_TRY(plim__id_spool_write(to, chunk, filled));
            filled = 0;
        }
        PLIM_TRY(next_head(relabel, run, &more));
        if (!more)
            relabel->heap[0] = relabel->heap[--size];
        heap_down(relabel, 0, size);
    }
    PLIM_TRY(plim__id_spool_write(to, chunk, filled));
    for (int i = 0; i < relabel->num_runs; i++)
        plim__id_spool_destroy(&relabel->runs[i]);
    relabel->runs[0] = *to;
    to->file = NULL;
    relabel->num_runs = 1;
    return PLIM_OK;
}

static plim_status_t end_run(relabel_t *relabel)
{
    if (relabel->num_names == 0)
        return PLIM_OK;
    if (relabel->num_runs == RUNS)
        PLIM_TRY(merge(relabel));
    int64_t *sorted = (int64_t *)plim__radix_sort(
        (uint64_t *)relabel->names, (uint64_t *)relabel->scratch, relabel->num_names, 63);
    int64_t distinct = 0;
    for (int64_t i = 0; i < relabel->num_names; i++)
        if (i == 0 || sorted[i] != sorted[distinct - 1])
            sorted[distinct++] = sorted[i];
    plim__id_spool_t *run = &relabel->runs[relabel->num_runs];
    PLIM_TRY(run_create(relabel, run));
    relabel->num_runs++;
    relabel->num_names = 0;
    return plim__id_spool_write(run, sorted, distinct);
}

static plim_status_t gather(relabel_t *relabel, plim__id_spool_t *ends)
{
    int64_t got;
    PLIM_TRY(plim__id_spool_rewind(ends, false));
    do {
        if (relabel->num_names == relabel->capacity)
            PLIM_TRY(end_run(relabel));
        PLIM_TRY(plim__job_check(relabel->import->job));
        int64_t room = plim__min_i64(relabel->capacity - relabel->num_names, PLIM__ID_CHUNK);
        PLIM_TRY(ends->ids.read(&ends->ids, relabel->names + relabel->num_names, room, &got));
        relabel->num_names += got;
    } while (got > 0);
    return PLIM_OK;
}

static plim_status_t write_names(relabel_t *relabel)
{
    plim__import_t *import = relabel->import;
    plim__id_spool_t *table = &relabel->runs[0];
    int64_t chunk[PLIM__ID_CHUNK], got, shape[1] = {table->count};
    plim__column_t *column;
    PLIM_TRY(plim__import_begin(import));
    PLIM_TRY(plim__id_spool_rewind(table, false));
    PLIM_TRY(plim__column_open(import->writer, "ids", PLIM__NPY_I64, 1, shape, 8 * shape[0],
                               import->buffer, &column));
    do {
        PLIM_TRY(table->ids.read(&table->ids, chunk, PLIM__ID_CHUNK, &got));
        PLIM_TRY(plim__column_write(column, chunk, (size_t)got * sizeof *chunk));
    } while (got == PLIM__ID_CHUNK);
    return plim__column_close(column);
}

/*
 * Reads the next slab of the table and makes its index: scratch[b] is the position of the first
 * name in bucket b or later. The high bits of names give the bucket; there are about as many as
 * names.
 */
static plim_status_t load_slab(relabel_t *relabel)
{
    plim__ids_t *ids = &relabel->runs[0].ids;
    relabel->slab_first = ids->position;
    PLIM_TRY(ids->read(ids, relabel->names, relabel->capacity - 1, &relabel->num_names));
    uint64_t span = (uint64_t)(relabel->names[relabel->num_names - 1] - relabel->names[0]);
    relabel->shift = 0;
    while (span >> relabel->shift >= (uint64_t)relabel->num_names)
        relabel->shift++;
    int64_t bucket = 0;
    for (int64_t i = 0; i < relabel->num_names; i++) {
        int64_t own = (relabel->names[i] - relabel->names[0]) >> relabel->shift;
        while (bucket <= own)
            relabel->scratch[bucket++] = i;
    }
    relabel->scratch[bucket] = relabel->num_names;
    return PLIM_OK;
}

/* -1 - rank, or the name when it is not in the slab. */
static int64_t translate(const relabel_t *relabel, int64_t name)
{
    if (name < relabel->names[0] || name > relabel->names[relabel->num_names - 1])
        return name;
    int64_t bucket = (name - relabel->names[0]) >> relabel->shift;
    int64_t low = relabel->scratch[bucket], high = relabel->scratch[bucket + 1];
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (relabel->names[middle] < name)
            low = middle + 1;
        else
            high = middle;
    }
    return -1 - (relabel->slab_first + low);
}

/* Translates all ends with the slab; after the last slab converts to ranks. */
static plim_status_t translate_ends(relabel_t *relabel, plim__id_spool_t *ends, bool last)
{
    plim__import_t *import = relabel->import;
    plim__id_spool_t *to = &relabel->runs[RUNS];
    int64_t chunk[PLIM__ID_CHUNK], got;
    PLIM_TRY(plim__id_spool_create(to, import->job, import->tmp, import->buffer, ends->ids.name));
    PLIM_TRY(plim__id_spool_rewind(ends, true));
    do {
        PLIM_TRY(plim__job_check(import->job));
        PLIM_TRY(ends->ids.read(&ends->ids, chunk, PLIM__ID_CHUNK, &got));
        for (int64_t i = 0; i < got; i++) {
            int64_t name = chunk[i] < 0 ? chunk[i] : translate(relabel, chunk[i]);
            chunk[i] = last ? -1 - name : name;
        }
        PLIM_TRY(plim__id_spool_write(to, chunk, got));
    } while (got == PLIM__ID_CHUNK);
    plim__id_spool_destroy(ends);
    *ends = *to;
    to->file = NULL;
    return PLIM_OK;
}

static plim_status_t relabel_run(relabel_t *relabel)
{
    plim__import_t *import = relabel->import;
    plim__id_spool_t *table = &relabel->runs[0];
    PLIM_TRY(gather(relabel, &import->sources));
    PLIM_TRY(gather(relabel, &import->destinations));
    PLIM_TRY(end_run(relabel));
    if (relabel->num_runs == 0)
        return plim__fail(PLIM_ERR_DATA, "%s has no edges, so there are no nodes",
                          import->options->source);
    if (relabel->num_runs > 1)
        PLIM_TRY(merge(relabel));
    PLIM_TRY(write_names(relabel));
    PLIM_TRY(plim__id_spool_rewind(table, true));
    while (table->ids.position < table->count) {
        PLIM_TRY(load_slab(relabel));
        bool last = table->ids.position == table->count;
        PLIM_TRY(translate_ends(relabel, &import->sources, last));
        PLIM_TRY(translate_ends(relabel, &import->destinations, last));
        plim__progress(import->job, "relabelling", "ids", table->ids.position, table->count);
    }
    return plim__import_agree(&import->nodes, "nodes", table->count, "the number of distinct ids");
}

static void lay_out(plim__arena_t *arena, void *object)
{
    relabel_t *relabel = object;
    relabel->names = plim__arena_carve(arena, (size_t)relabel->capacity, sizeof(int64_t), 1);
    relabel->scratch = plim__arena_carve(arena, (size_t)relabel->capacity, sizeof(int64_t), 1);
}

plim_status_t plim__import_relabel(plim__import_t *import)
{
    relabel_t draft = {.import = import}, *relabel;
    int64_t ends = import->sources.count + import->destinations.count;
    int64_t fixed = (int64_t)(plim__object_bytes(lay_out, &draft, sizeof draft) + PLIM__PAGE +
                              (RUNS + 1) * plim__spool_estimate(RUN_BUFFER) +
                              2 * plim__spool_estimate(import->buffer) + 6 * import->buffer);
    int64_t room = plim__ledger_available(import->job->ledger) - fixed;
    draft.capacity = plim__min_i64(room / 16, ends + 2);
    if (draft.capacity < plim__min_i64(NAMES_MIN, ends + 2))
        return plim__ledger_refuse(import->job->ledger, import->options->source,
                                   "numbering the ids", (size_t)(fixed + 16 * NAMES_MIN));
    PLIM_TRY(plim__object_create(import->job->ledger, "relabel", lay_out, &draft, sizeof draft,
                                 &draft.arena, &relabel));
    plim_status_t status = relabel_run(relabel);
    for (int i = 0; i <= RUNS; i++)
        plim__id_spool_destroy(&relabel->runs[i]);
    plim__arena_destroy(&relabel->arena);
    return status;
}
