/*
 * Admission: which lists and rows caches hold: those with the highest access probability per byte
 * (density).
 *
 *     sweep 1   bytes of lists and of rows in each bin of densities
 *     cuts      the bin at which lists end, and rows: items above it are admitted, none below it
 *     sweep 2   the sets; items in the cut's own bin in ascending order of nodes, while they fit
 *
 * Caches of a working set's first places need no sets of nodes: the set's classes are the bins, and
 * nothing is swept.
 */
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"
#include "sample/access_work.h"

#include <string.h>

enum { LISTS = PLIM__REACH_LISTS, ROWS = PLIM__REACH_ROWS, KINDS = PLIM__REACH_KINDS };

/* The point where admission of lists or of rows ends. */
typedef struct cut {
    uint64_t left; /* bytes of the kind's own limit left by items above the bin */
    int bin;       /* -1: all items are admitted */
    bool shared;   /* items in that bin also count against the common limit */
    bool open;     /* still searching */
} cut_t;

/* Bytes of lists and of rows by density, ascending. */
typedef struct bins {
    uint64_t *bytes[KINDS]; /* (count) */
    int count;
    const double *densities; /* (count); NULL: those of density_of */
} bins_t;

typedef struct choice {
    plim__access_work_t *work; /* NULL: nothing is weighed */
    const plim__access_params_t *params;
    bins_t bins;
    plim__node_set_t *sets[KINDS]; /* results */
    bool wanted[KINDS];
    cut_t cuts[KINDS];
    uint64_t capacity; /* the common limit in bytes */
    uint64_t common;   /* bytes left of the common limit */
} choice_t;

#define BIN_BASE ((uint64_t)(1023 - 96) << 9)

/* 512 bins for each power of two: the exponent and the leading bits of the double. */
static int bin_of(double density)
{
    uint64_t bits;
    memcpy(&bits, &density, sizeof bits);
    bits >>= 52 - 9;
    if (bits < BIN_BASE)
        return 0;
    return bits - BIN_BASE < PLIM__ACCESS_BINS ? (int)(bits - BIN_BASE) : PLIM__ACCESS_BINS - 1;
}

static double density_of(int bin)
{
    uint64_t bits = ((BIN_BASE + (uint64_t)bin) << (52 - 9)) + ((uint64_t)1 << (52 - 10));
    double density;
    memcpy(&density, &bits, sizeof density);
    return density;
}

/* The probability as an integer: sums do not depend on the order of addition. */
static uint64_t fixed_point(float probability)
{
    return (uint64_t)((double)probability * PLIM__HAZARD_ONE);
}

/* Reads that a miss costs. */
static double reads_of(const plim__access_params_t *params, int kind)
{
    const double reads = kind == ROWS ? params->row_reads : params->list_reads;
    return reads > 0 ? reads : 1;
}

plim__access_item_t plim__access_item(const plim__access_work_t *work, int kind, int64_t node,
                                      uint16_t code)
{
    const plim__access_params_t *params = work->params;
    uint64_t bytes = params->row_bytes;
    if (kind == LISTS) {
        const int64_t degree = plim__offsets_list(work->offsets, node).degree;
        if (degree == 0) /* an empty list is never read */
            return (plim__access_item_t){0};
        bytes = params->list_fixed + params->list_bytes * (uint64_t)degree;
    }
    plim__access_item_t item = {.probability = work->chances[code], .bytes = bytes};
    item.bin = bin_of((double)item.probability * reads_of(params, kind) / (double)bytes);
    return item;
}

plim_status_t plim__access_judge(plim__access_work_t *work, plim__access_worker_t *worker,
                                 const bool wanted[KINDS], int64_t chunk)
{
    worker->judged[LISTS] = worker->judged[ROWS] = NULL;
    PLIM_TRY(plim__job_check(work->job));
    if (wanted[LISTS])
        PLIM_TRY(plim__access_codes_before(work, chunk, worker->codes, &worker->judged[LISTS]));
    if (wanted[ROWS] && work->num_hops == 0)
        return plim__access_codes_before(work, chunk, worker->codes, &worker->judged[ROWS]);
    if (wanted[ROWS])
        return plim__access_codes_after(work, chunk, worker->codes_after, &worker->judged[ROWS]);
    return PLIM_OK;
}

#define BINS_TOGETHER (512 / 2)

static void add_to_reach(plim__reach_t *reach, int kind, const plim__access_item_t *item)
{
    const int64_t above = (PLIM__ACCESS_BINS - 1 - item->bin) / BINS_TOGETHER;
    const int64_t number = plim__max_i64(PLIM__REACH_BINS - 1 - above, 0);
    plim__reach_bin_t *bin = &reach->bins[kind][number];
    bin->nodes += item->bytes > 0;
    bin->bytes += (int64_t)item->bytes;
    bin->needs += (int64_t)fixed_point(item->probability);
}

typedef struct count {
    plim__access_work_t *work;
    const bool *wanted; /* (KINDS) */
} count_t;

static plim_status_t count_chunk(void *context, int number, int64_t chunk)
{
    const count_t *counting = context;
    plim__access_work_t *work = counting->work;
    plim__access_worker_t *worker = &work->workers[number];
    const int64_t count = plim__access_chunk_nodes(work, chunk);
    PLIM_TRY(plim__access_judge(work, worker, counting->wanted, chunk));
    for (int kind = 0; kind < KINDS; kind++) {
        const uint16_t *codes = worker->judged[kind];
        for (int64_t i = 0; codes != NULL && i < count; i++) {
            if (codes[i] == 0)
                continue;
            const plim__access_item_t item =
                plim__access_item(work, kind, chunk * PLIM__ACCESS_CHUNK + i, codes[i]);
            worker->bins[kind][item.bin] += item.bytes;
            worker->sums[kind].all += fixed_point(item.probability);
            add_to_reach(&worker->reach, kind, &item);
        }
    }
    return PLIM_OK;
}

/* Bytes of a bin that fit the kind's own limit. */
static uint64_t fitting_bytes(const cut_t *cut, uint64_t there)
{
    if (!cut->open)
        return 0;
    return there < cut->left ? there : cut->left;
}

/* Admits `fit` bytes of a bin; a bin that does not fit whole ends the kind. */
static void take_bin(cut_t *cut, int bin, uint64_t there, uint64_t fit)
{
    if (!cut->open)
        return;
    if (fit < there)
        *cut = (cut_t){.left = fit, .bin = bin};
    else
        cut->left -= fit;
}

/*
 * Goes from the densest bin down. A kind that reaches its own limit ends with the part of the bin
 * that fits, and the other kind continues; at the common limit both end.
 */
static void find_cuts(choice_t *choice)
{
    const plim__access_params_t *params = choice->params;
    uint64_t *const *bins = choice->bins.bytes;
    cut_t *cuts = choice->cuts;
    const size_t row_rest = params->row_bytes == 0 ? 0 : params->row_capacity % params->row_bytes;
    cuts[LISTS] = (cut_t){.left = params->list_capacity, .bin = -1, .open = true};
    cuts[ROWS] = (cut_t){.left = params->row_capacity - row_rest, .bin = -1, .open = true};
    choice->common = choice->capacity;
    for (int bin = choice->bins.count - 1; bin >= 0 && (cuts[LISTS].open || cuts[ROWS].open);
         bin--) {
        const uint64_t of_lists = fitting_bytes(&cuts[LISTS], bins[LISTS][bin]);
        const uint64_t of_rows = fitting_bytes(&cuts[ROWS], bins[ROWS][bin]);
        if (of_lists > choice->common || of_rows > choice->common - of_lists) {
            for (int kind = 0; kind < KINDS; kind++)
                if (cuts[kind].open)
                    cuts[kind] = (cut_t){.left = cuts[kind].left, .bin = bin, .shared = true};
            return;
        }
        choice->common -= of_lists + of_rows;
        take_bin(&cuts[LISTS], bin, bins[LISTS][bin], of_lists);
        take_bin(&cuts[ROWS], bin, bins[ROWS][bin], of_rows);
    }
}

/* Bytes of a kind that fit in the bin of its cut; those that both kinds share go to rows. */
static uint64_t bytes_at_cut(const choice_t *choice, int kind)
{
    const cut_t *cut = &choice->cuts[kind];
    uint64_t most = cut->left;
    if (cut->bin < 0)
        return 0;
    if (cut->shared) {
        const uint64_t of_rows =
            kind == LISTS && choice->cuts[ROWS].shared ? bytes_at_cut(choice, ROWS) : 0;
        most = most < choice->common - of_rows ? most : choice->common - of_rows;
    }
    return most < choice->bins.bytes[kind][cut->bin] ? most : choice->bins.bytes[kind][cut->bin];
}

/* Expected number of rows that a window needs and the cuts exclude. */
static double count_missed(const choice_t *choice)
{
    const bins_t *bins = &choice->bins;
    const int last = choice->cuts[ROWS].bin;
    double missed = 0;
    for (int bin = 0; bin <= last; bin++) {
        const uint64_t bytes =
            bins->bytes[ROWS][bin] - (bin == last ? bytes_at_cut(choice, ROWS) : 0);
        missed +=
            (double)bytes * (bins->densities != NULL ? bins->densities[bin] : density_of(bin));
    }
    return missed / reads_of(choice->params, ROWS);
}

/* Bytes of the common limit that admission leaves. */
static uint64_t common_left(const choice_t *choice)
{
    uint64_t left = choice->common;
    for (int kind = 0; kind < KINDS; kind++)
        left -= choice->cuts[kind].shared ? bytes_at_cut(choice, kind) : 0;
    return left;
}

/* miss_capacity is divided into this many steps. */
#define CAPACITY_STEPS 512

/* Finds the largest common limit that leaves enough memory for missed rows, or uses the given
 * one. */
static void find_room(choice_t *choice)
{
    const plim__access_params_t *params = choice->params;
    size_t whole;
    choice->capacity = params->capacity;
    find_cuts(choice);
    if (params->miss_bytes == 0 || !plim__add_size(params->capacity, params->miss_capacity, &whole))
        return;
    for (int i = 0; i < CAPACITY_STEPS; i++) {
        size_t missed_capacity = params->miss_capacity / CAPACITY_STEPS * (size_t)i;
        if (missed_capacity < params->miss_min)
            missed_capacity = params->miss_min;
        choice->capacity = whole - missed_capacity;
        find_cuts(choice);
        double missed = count_missed(choice) * (double)params->miss_bytes;
        if (missed <= (double)(whole - choice->capacity + common_left(choice)))
            return;
    }
    choice->capacity = params->capacity;
    find_cuts(choice);
}

/* Members of a class that a window of this share of the seeds is expected to need. */
static double needs_at(const uint64_t needs[PLIM__WORKING_SHARES], double share)
{
    int i = 0;
    double at = 1; /* the share of needs[i] */
    for (; i < PLIM__WORKING_SHARES - 1 && share <= at / 2; i++)
        at /= 2;
    const double longer = (double)needs[i];
    const double shorter = i + 1 < PLIM__WORKING_SHARES ? (double)needs[i + 1] : longer / 2;
    return (shorter + (longer - shorter) * (share / at * 2 - 1)) / PLIM__WORKING_ONE;
}

/* The classes of a working set as bins. */
typedef struct classes {
    uint64_t bytes[KINDS][KINDS * PLIM__ORDER_CLASSES]; /* of each bin: one kind has some */
    double needs[KINDS][KINDS * PLIM__ORDER_CLASSES];
    double densities[KINDS * PLIM__ORDER_CLASSES];
    double all[KINDS]; /* needs, with those of lists that are not packed */
} classes_t;

static uint64_t class_bytes(const plim__working_set_t *set, const plim__access_params_t *params,
                            int kind, int class)
{
    if (kind == ROWS)
        return (uint64_t)set->order.counts[class] * params->row_bytes;
    return (uint64_t)(set->class_entries[class + 1] - set->class_entries[class]) *
           params->list_bytes;
}

/* Assigns bins from the last one down, each to the denser of the next classes of the two kinds. */
static void add_classes(const plim__working_set_t *set, const plim__access_params_t *params,
                        classes_t *classes)
{
    int next[KINDS] = {[LISTS] = params->list_bytes > 0 ? 1 : PLIM__ORDER_CLASSES,
                       [ROWS] = params->row_bytes > 0 ? 0 : PLIM__ORDER_CLASSES};
    for (int bin = KINDS * PLIM__ORDER_CLASSES - 1;; bin--) {
        double densities[KINDS] = {-1, -1}, needs[KINDS];
        uint64_t bytes[KINDS];
        for (int kind = 0; kind < KINDS; kind++) {
            const int class = next[kind];
            if (class == PLIM__ORDER_CLASSES)
                continue;
            bytes[kind] = class_bytes(set, params, kind, class);
            needs[kind] = needs_at(kind == ROWS ? set->needs.rows[class] : set->needs.lists[class],
                                   params->share);
            densities[kind] = needs[kind] * reads_of(params, kind) / (double)(bytes[kind] + 1);
        }
        const int kind = densities[ROWS] > densities[LISTS] ? ROWS : LISTS;
        if (densities[kind] < 0)
            return;
        classes->bytes[kind][bin] = bytes[kind];
        classes->needs[kind][bin] = needs[kind];
        classes->densities[bin] = densities[kind];
        classes->all[kind] += needs[kind];
        next[kind]++;
    }
}

void plim__access_of_set(const plim__working_set_t *set, const plim__access_params_t *params,
                         plim__access_t *access_out)
{
    classes_t classes = {.all[LISTS] = needs_at(set->needs.lists[0], params->share)};
    choice_t choice = {.params = params,
                       .bins = {.bytes = {classes.bytes[LISTS], classes.bytes[ROWS]},
                                .count = KINDS * PLIM__ORDER_CLASSES,
                                .densities = classes.densities}};
    uint64_t chosen[KINDS] = {0};
    double needs[KINDS] = {0};
    add_classes(set, params, &classes);
    find_room(&choice);
    for (int kind = 0; kind < KINDS; kind++) {
        const int cut = choice.cuts[kind].bin;
        for (int bin = cut + 1; bin < choice.bins.count; bin++) {
            chosen[kind] += classes.bytes[kind][bin];
            needs[kind] += classes.needs[kind][bin];
        }
        if (cut >= 0 && classes.bytes[kind][cut] > 0) {
            const uint64_t fit = bytes_at_cut(&choice, kind);
            chosen[kind] += fit;
            needs[kind] +=
                classes.needs[kind][cut] * (double)fit / (double)classes.bytes[kind][cut];
        }
    }
    *access_out = (plim__access_t){
        .list_bytes = chosen[LISTS],
        .row_bytes = chosen[ROWS] - (params->row_bytes > 0 ? chosen[ROWS] % params->row_bytes : 0),
        .list_hits = classes.all[LISTS] > 0 ? needs[LISTS] / classes.all[LISTS] : 0,
        .row_hits = classes.all[ROWS] > 0 ? needs[ROWS] / classes.all[ROWS] : 0,
        .rows_missed = classes.all[ROWS] - needs[ROWS]};
}

static void admit(const choice_t *choice, plim__access_worker_t *worker, int kind, int64_t node,
                  const plim__access_item_t *item)
{
    if (choice->sets[kind]->lines != NULL)
        (void)plim__node_set_add(choice->sets[kind], node);
    worker->sums[kind].bytes += item->bytes;
    worker->sums[kind].chosen += fixed_point(item->probability);
}

/* Admits items above the cuts, and marks items in the cuts' bins. */
static plim_status_t choose_chunk(void *context, int number, int64_t chunk)
{
    const choice_t *choice = context;
    plim__access_work_t *work = choice->work;
    plim__access_worker_t *worker = &work->workers[number];
    const int64_t first = chunk * PLIM__ACCESS_CHUNK, count = plim__access_chunk_nodes(work, chunk);
    PLIM_TRY(plim__access_judge(work, worker, choice->wanted, chunk));
    memset(worker->at_cut, 0, PLIM__ACCESS_CHUNK);
    for (int kind = 0; kind < KINDS; kind++) {
        const uint16_t *codes = worker->judged[kind];
        for (int64_t i = 0; codes != NULL && i < count; i++) {
            if (codes[i] == 0)
                continue;
            const plim__access_item_t item = plim__access_item(work, kind, first + i, codes[i]);
            if (item.probability > 0 && item.bin > choice->cuts[kind].bin)
                admit(choice, worker, kind, first + i, &item);
            if (item.probability > 0 && item.bin == choice->cuts[kind].bin)
                worker->at_cut[i] |= (uint8_t)(1 << kind);
        }
    }
    return PLIM_OK;
}

static bool fits(choice_t *choice, cut_t *cut, uint64_t bytes)
{
    if (bytes > cut->left || (cut->shared && bytes > choice->common))
        return false;
    cut->left -= bytes;
    choice->common -= cut->shared ? bytes : 0;
    return true;
}

/* Runs in chunk order: admits marked items while they fit. */
static plim_status_t merge_chunk(void *context, int number, int64_t chunk)
{
    choice_t *choice = context;
    plim__access_work_t *work = choice->work;
    plim__access_worker_t *worker = &work->workers[number];
    const int64_t first = chunk * PLIM__ACCESS_CHUNK, count = plim__access_chunk_nodes(work, chunk);
    for (int64_t i = 0; i < count; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            if ((worker->at_cut[i] >> kind & 1) == 0)
                continue;
            const plim__access_item_t item =
                plim__access_item(work, kind, first + i, worker->judged[kind][i]);
            if (fits(choice, &choice->cuts[kind], item.bytes))
                admit(choice, worker, kind, first + i, &item);
        }
    return PLIM_OK;
}

void plim__access_sum_bins(plim__access_work_t *work)
{
    for (int i = 1; i < work->layout.workers; i++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int bin = 0; bin < PLIM__ACCESS_BINS; bin++) {
                work->workers[0].bins[kind][bin] += work->workers[i].bins[kind][bin];
                work->workers[i].bins[kind][bin] = 0;
            }
}

plim_status_t plim__access_count(plim__access_work_t *work, const bool wanted[KINDS])
{
    count_t counting = {work, wanted};
    PLIM_TRY(
        plim__access_sweep(work, 0, plim__access_chunks(work->num_nodes), count_chunk, &counting));
    plim__access_sum_bins(work);
    return PLIM_OK;
}

plim_status_t plim__admission_choose(plim__access_work_t *work, plim__access_t *access)
{
    const int64_t chunks = plim__access_chunks(work->num_nodes);
    plim__access_worker_t *all = &work->workers[0]; /* sums up the other workers' counts */
    choice_t choice = {
        .work = work,
        .params = work->params,
        .bins = {.bytes = {all->bins[LISTS], all->bins[ROWS]}, .count = PLIM__ACCESS_BINS},
        .sets = {&access->lists, &access->rows},
        .wanted = {work->params->list_bytes > 0 && work->num_hops > 0,
                   work->params->row_bytes > 0}};
    PLIM_TRY(plim__access_count(work, choice.wanted));
    for (int i = 0; i < work->layout.workers; i++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int bin = 0; bin < PLIM__REACH_BINS; bin++) {
                const plim__reach_bin_t *from = &work->workers[i].reach.bins[kind][bin];
                access->reach.bins[kind][bin].nodes += from->nodes;
                access->reach.bins[kind][bin].bytes += from->bytes;
                access->reach.bins[kind][bin].needs += from->needs;
            }
    find_room(&choice);
    PLIM_TRY(plim__ordered(work->layout.workers, chunks, choose_chunk, merge_chunk, &choice));
    for (int i = 1; i < work->layout.workers; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            all->sums[kind].chosen += work->workers[i].sums[kind].chosen;
            all->sums[kind].all += work->workers[i].sums[kind].all;
            all->sums[kind].bytes += work->workers[i].sums[kind].bytes;
        }
    const plim__access_sums_t *lists = &all->sums[LISTS], *rows = &all->sums[ROWS];
    plim__node_set_seal(&access->lists);
    if (access->rows.lines != NULL)
        plim__node_set_seal(&access->rows);
    access->list_bytes = lists->bytes;
    access->row_bytes = rows->bytes;
    access->list_hits = lists->all == 0 ? 0 : (double)lists->chosen / (double)lists->all;
    access->row_hits = rows->all == 0 ? 0 : (double)rows->chosen / (double)rows->all;
    access->rows_missed = (double)(rows->all - rows->chosen) / PLIM__HAZARD_ONE;
    return PLIM_OK;
}
