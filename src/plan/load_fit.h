/*
 * What load_fit.c, load_reading.c and load_accounts.c share: how the memory under the line is
 * divided, and the cost of choices.
 */
#ifndef PLIM_PLAN_LOAD_FIT_H
#define PLIM_PLAN_LOAD_FIT_H

#include "base/check.h"
#include "io/npy.h"
#include "load/ahead.h"
#include "plan/load_plan.h"

/*
 * How the memory under the line is divided. "Free" is what the choices made so far leave of the
 * line; a PART is 1/N of it. "Expected" is what 21 plans expect to read with another value, on
 * average: papers100M in 1 to 8 GiB, products and reddit in 0.2 to 1 GiB, with two and three hops.
 */
enum {
    /* I/O depth: 8 reads in flight of 0.1 ms each are 80,000 a second, as an SSD does; 128 are as
     * many where each takes 1.6 ms, as on a network's disk. */
    DEPTH_MIN = 8,
    DEPTH_MOST = 128,

    /* Deeper I/O, and slots beyond two, save waiting and no reads. Expected: 1/8 or 1/32 changes
     * reads by less than 1 %. */
    EXTRAS_PART = 16,

    /* Slots: for each worker one that it builds, and three that wait, since batches differ. */
    SLOTS_PER_WORKER = 4,
    /* Two slots that need more than this get smaller, so that windows and caches have the larger
     * part. Expected: 1/2 reads 3 % more often, up to 1.7 times; 1/8 4 % less often, but with
     * smaller slots. */
    SLOTS_MOST_PART = 4,
    /* More than two take at most this part of the dataset's bytes, or SLOTS_DATA_MIN: Cora, 16 MB,
     * had 124 MiB of slots. */
    SLOTS_DATA_PART = 4,
    SLOTS_DATA_MIN = 16 << 20,
    /* Slots of parts of batches: the larger the parts, the less is read again. Expected: 1/4 cuts 5
     * of the 21 smaller, and reads 7 % more often, up to twice. */
    SLOTS_CRAMPED_PART = 2,
    /* Slots and the client's growth together, while windows and caches need the rest. Expected:
     * 90 % changes nothing, 50 % cuts one of the 21 smaller. */
    CLIENT_PERCENT = 75,
    /* The same for parts of more seeds than a tile has rows, which compute only a little faster.
     * Expected: 12 % cuts 7 of the 21 smaller, and reads 9 % more often, up to 2.2 times. */
    MODEST_PERCENT = 25,
    /* A slot is larger than its seeds are expected to need, since sizes are estimates; for few
     * seeds by four standard deviations, FEW_PERCENT over the root of their number, as if the size
     * of a seed's neighbourhood deviated by its mean. */
    MARGIN_PERCENT = 25,
    FEW_PERCENT = 400,

    /* Lists stay in memory when they leave half to rows and slots, so that neither crowds out the
     * other. Expected: 1 changes no plan. */
    ADJACENCY_PART = 2,
    /* The rows that can be reached at all, as a multiple of those of an epoch: 1.7 in papers100M's
     * shape with a fan-out of 3,2. They bound the memory and disk space of a working set. */
    REACH_FACTOR = 4,
    /* A working set's tables take at most this part … */
    WORKING_SET_PART = 8,
    /* … and this part if they have those of lists. */
    WORKING_LISTS_PART = 4,
    /* The lists that can be reached, as a multiple of those of an epoch. If there are more, those
     * that are drawn from least often are not packed. */
    LISTS_REACH_FACTOR = 2,
    /* A working set of more than half of all rows is made only if it is smaller than this. */
    WORKING_SET_SMALL = 256 << 20,
    /* Lists are packed up to this mean size: longer ones fill much of the page that is read. */
    LISTS_PACKED_BYTES = 1024,
    /* Columns of edges stay in memory up to this part: each batch reads them, and from disk without
     * a cache. */
    COLUMNS_PART = 2,
    /* The draws of both windows. Expected: 1/2 reads 8 % more often, as the caches get less; 1/8
     * 6 % less often. What windows turn out not to need goes to the caches when the loader is made.
     */
    DRAWS_PART = 4,
    /* A window has memory for more draws than an epoch is expected to need: an epoch that draws
     * more takes another window. */
    DRAWS_MARGIN_PERCENT = 10,
    /* An epoch that is drawn ahead is divided into this number of windows, fewer than are possible,
     * since epochs differ. The caches get the memory that these smaller windows leave. */
    AHEAD_WINDOWS = PLIM__AHEAD_WINDOWS * 3 / 4,
    /* Rows written to buckets, as a multiple of the epoch's distinct rows: a row that several
     * windows need is written once for each. */
    BUCKETS_FACTOR = 2,
    /* A window lists its seeds, 8 bytes each: at most one for SEEDS_PART draws (a fan-out of 10,5
     * takes 61 for a seed), so the list is at most an eighth of the draws of both windows. But a
     * list of SEEDS_MIN seeds, 32 MiB, is always made: the training splits of named shapes need
     * less. */
    SEEDS_PART = 8,
    SEEDS_MIN = 1 << 22,
    /* Share of the free memory for the rows of windows, chosen so that draws and rows cover the
     * same part of an epoch. Measured with papers100M in 2 GiB: 521 batches/s; with 40 %, by an
     * older loader, 390. 8 % reads more. */
    ROWS_PERCENT = 20,
    /* The list cache; the row cache gets the rest, since rows are larger than lists. Expected: 1/2
     * reads 4 % more often, 1/4 as often. */
    LISTS_PART = 3,
};

/* How the smallest choices are made: each of these only where the one before does not fit. */
typedef enum plim__load_tight {
    PLIM__LOAD_AMPLE,
    PLIM__LOAD_TIGHT,   /* sparse sets in windows */
    PLIM__LOAD_TIGHTEST /* offsets on disk, too */
} plim__load_tight_t;

/*
 * How what is on disk is read (load_reading.c): I/O depth, windows, the working set, draws ahead
 * and caches. First the smallest choices, in a plan that says where topology and rows are; then
 * they grow, each up to its share of the line.
 */
void plim__load_reading_minimum(const plim__load_facts_t *facts, plim__load_tight_t tight,
                                plim__load_plan_t *plan);
void plim__load_reading_grow(const plim__load_facts_t *facts, plim__load_plan_t *plan);

/*
 * What a plan's choices cost (load_accounts.c): fills in its accounts and `start`, and returns the
 * bytes without the line's reserve, or with it. INT64_MAX when they overflow.
 */
int64_t plim__load_used(const plim__load_facts_t *facts, plim__load_plan_t *plan);
int64_t plim__load_total(const plim__load_facts_t *facts, plim__load_plan_t *plan);

static inline int64_t plim__load_client_bytes(const plim__load_facts_t *facts,
                                              const plim__load_plan_t *plan)
{
    return facts->client->bytes(facts->client->context, plan);
}

/* `from` and a part of what is free between it and the line. */
static inline int64_t plim__load_share(const plim__load_facts_t *facts, int64_t from, int64_t part)
{
    return from + plim__max_i64(facts->line - from, 0) / part;
}

static inline bool plim__load_has_rows(const plim__load_facts_t *facts)
{
    return !facts->recipe->no_features && plim_dataset_info(facts->dataset)->num_features > 0;
}

static inline bool plim__load_has_draws(const plim__load_facts_t *facts)
{
    return facts->recipe->num_hops > 0 || plim_dataset_info(facts->dataset)->num_graphs > 0;
}

/* Bytes of the data in a file of the dataset; 0 where there is none. */
static inline int64_t plim__load_file_bytes(const plim__load_facts_t *facts, const char *name)
{
    const plim__manifest_file_t *file =
        plim__manifest_find(plim__dataset_manifest(facts->dataset), name);
    return file != NULL ? file->bytes - (int64_t)PLIM__NPY_HEADER : 0;
}

#endif
