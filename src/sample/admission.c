/*
 * Admission: fills the caches with lists and rows by access probability per byte (density), densest
 * first.
 *
 *     sweep 1   bytes of lists and of rows in each bin of densities
 *     cuts      the bin at which lists end, and rows: items above it are admitted, none below it
 *     sweep 2   the sets; items in the cut's own bin in ascending order of nodes, while they fit
 *
 * Or makes the order of a working set: its classes end at bins too.
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

typedef struct choice {
    plim__access_work_t *work;
    plim__node_set_t *sets[KINDS]; /* results */
    bool wanted[KINDS];
    cut_t cuts[KINDS];
    uint64_t capacity; /* the common limit in bytes */
    uint64_t common;   /* bytes left of the common limit */
} choice_t;

/* A list or a row that may be admitted. Items with probability 0 never are. */
typedef struct item {
    float probability;
    uint64_t bytes;
    int bin;
} item_t;

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
static double reads_of(const plim__access_work_t *work, int kind)
{
    return kind == ROWS && work->params->row_reads > 0 ? work->params->row_reads : 1;
}

static item_t item_of(const plim__access_work_t *work, int kind, int64_t node, uint16_t code)
{
    const plim__access_params_t *params = work->params;
    uint64_t bytes = params->row_bytes;
    if (kind == LISTS) {
        const int64_t degree = plim__offsets_list(work->offsets, node).degree;
        if (degree == 0) /* an empty list is never read */
            return (item_t){0};
        bytes = params->list_fixed + params->list_bytes * (uint64_t)degree;
    }
    item_t item = {.probability = work->chances[code], .bytes = bytes};
    item.bin = bin_of((double)item.probability * reads_of(work, kind) / (double)bytes);
    return item;
}

/* Sets the codes of a chunk's lists and rows; NULL for a kind without a cache. */
static plim_status_t get_codes(const choice_t *choice, plim__access_worker_t *worker, int64_t chunk)
{
    plim__access_work_t *work = choice->work;
    worker->judged[LISTS] = worker->judged[ROWS] = NULL;
    PLIM_TRY(plim__job_check(work->job));
    if (choice->wanted[LISTS])
        PLIM_TRY(plim__access_codes_before(work, chunk, worker->codes, &worker->judged[LISTS]));
    if (choice->wanted[ROWS] && work->num_hops == 0)
        return plim__access_codes_before(work, chunk, worker->codes, &worker->judged[ROWS]);
    if (choice->wanted[ROWS])
        return plim__access_codes_after(work, chunk, worker->codes_after, &worker->judged[ROWS]);
    return PLIM_OK;
}

static int64_t nodes_of_chunk(const plim__access_work_t *work, int64_t chunk)
{
    return plim__min_i64(PLIM__ACCESS_CHUNK, work->num_nodes - chunk * PLIM__ACCESS_CHUNK);
}

#define BINS_TOGETHER (512 / 2)

static void add_to_reach(plim__reach_t *reach, int kind, const item_t *item)
{
    const int64_t above = (PLIM__ACCESS_BINS - 1 - item->bin) / BINS_TOGETHER;
    const int64_t number = plim__max_i64(PLIM__REACH_BINS - 1 - above, 0);
    plim__reach_bin_t *bin = &reach->bins[kind][number];
    bin->nodes += item->bytes > 0;
    bin->bytes += (int64_t)item->bytes;
    bin->needs += (int64_t)fixed_point(item->probability);
}

static plim_status_t count_chunk(void *context, int number, int64_t chunk)
{
    const choice_t *choice = context;
    plim__access_work_t *work = choice->work;
    plim__access_worker_t *worker = &work->workers[number];
    const int64_t count = nodes_of_chunk(work, chunk);
    PLIM_TRY(get_codes(choice, worker, chunk));
    for (int kind = 0; kind < KINDS; kind++) {
        const uint16_t *codes = worker->judged[kind];
        for (int64_t i = 0; codes != NULL && i < count; i++) {
            if (codes[i] == 0)
                continue;
            const item_t item = item_of(work, kind, chunk * PLIM__ACCESS_CHUNK + i, codes[i]);
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
static void find_cuts(choice_t *choice, uint64_t *const bins[KINDS])
{
    const plim__access_params_t *params = choice->work->params;
    cut_t *cuts = choice->cuts;
    const size_t row_rest = params->row_bytes == 0 ? 0 : params->row_capacity % params->row_bytes;
    cuts[LISTS] = (cut_t){.left = params->list_capacity, .bin = -1, .open = true};
    cuts[ROWS] = (cut_t){.left = params->row_capacity - row_rest, .bin = -1, .open = true};
    choice->common = choice->capacity;
    for (int bin = PLIM__ACCESS_BINS - 1; bin >= 0 && (cuts[LISTS].open || cuts[ROWS].open);
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

/* Expected number of rows that a window needs and the cuts exclude. */
static double count_missed(const choice_t *choice, const uint64_t *row_bins)
{
    double missed = 0;
    for (int bin = 0; bin <= choice->cuts[ROWS].bin; bin++)
        missed += (double)row_bins[bin] * density_of(bin);
    return missed / reads_of(choice->work, ROWS);
}

/* miss_capacity is divided into this many steps. */
#define CAPACITY_STEPS 512

/* Finds the largest common limit that leaves enough memory for missed rows, or uses the given
 * one. */
static void find_room(choice_t *choice, uint64_t *const bins[KINDS])
{
    const plim__access_params_t *params = choice->work->params;
    size_t whole;
    choice->capacity = params->capacity;
    find_cuts(choice, bins);
    if (params->miss_bytes == 0 || !plim__add_size(params->capacity, params->miss_capacity, &whole))
        return;
    for (int i = 0; i < CAPACITY_STEPS; i++) {
        size_t missed_capacity = params->miss_capacity / CAPACITY_STEPS * (size_t)i;
        if (missed_capacity < params->miss_min)
            missed_capacity = params->miss_min;
        choice->capacity = whole - missed_capacity;
        find_cuts(choice, bins);
        double missed = count_missed(choice, bins[ROWS]) * (double)params->miss_bytes;
        if (missed <= (double)(whole - choice->capacity + choice->common))
            return;
    }
    choice->capacity = params->capacity;
    find_cuts(choice, bins);
}

static void admit(const choice_t *choice, plim__access_worker_t *worker, int kind, int64_t node,
                  const item_t *item)
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
    const int64_t first = chunk * PLIM__ACCESS_CHUNK, count = nodes_of_chunk(work, chunk);
    PLIM_TRY(get_codes(choice, worker, chunk));
    memset(worker->at_cut, 0, PLIM__ACCESS_CHUNK);
    for (int kind = 0; kind < KINDS; kind++) {
        const uint16_t *codes = worker->judged[kind];
        for (int64_t i = 0; codes != NULL && i < count; i++) {
            if (codes[i] == 0)
                continue;
            const item_t item = item_of(work, kind, first + i, codes[i]);
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
    const int64_t first = chunk * PLIM__ACCESS_CHUNK, count = nodes_of_chunk(work, chunk);
    for (int64_t i = 0; i < count; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            if ((worker->at_cut[i] >> kind & 1) == 0)
                continue;
            const item_t item = item_of(work, kind, first + i, worker->judged[kind][i]);
            if (fits(choice, &choice->cuts[kind], item.bytes))
                admit(choice, worker, kind, first + i, &item);
        }
    return PLIM_OK;
}

/* Sweep 1; worker 0 then has the bins of all. */
static plim_status_t count_all(choice_t *choice)
{
    plim__access_work_t *work = choice->work;
    plim__access_worker_t *all = &work->workers[0];
    PLIM_TRY(
        plim__access_sweep(work, 0, plim__access_chunks(work->num_nodes), count_chunk, choice));
    for (int i = 1; i < work->layout.workers; i++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int bin = 0; bin < PLIM__ACCESS_BINS; bin++)
                all->bins[kind][bin] += work->workers[i].bins[kind][bin];
    return PLIM_OK;
}

plim_status_t plim__admission_choose(plim__access_work_t *work, plim__access_t *access)
{
    const int64_t chunks = plim__access_chunks(work->num_nodes);
    plim__access_worker_t *all = &work->workers[0]; /* sums up the other workers' counts */
    choice_t choice = {.work = work,
                       .sets = {&access->lists, &access->rows},
                       .wanted = {work->params->list_bytes > 0 && work->num_hops > 0,
                                  work->params->row_bytes > 0}};
    PLIM_TRY(count_all(&choice));
    for (int i = 0; i < work->layout.workers; i++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int bin = 0; bin < PLIM__REACH_BINS; bin++) {
                const plim__reach_bin_t *from = &work->workers[i].reach.bins[kind][bin];
                access->reach.bins[kind][bin].nodes += from->nodes;
                access->reach.bins[kind][bin].bytes += from->bytes;
                access->reach.bins[kind][bin].needs += from->needs;
            }
    find_room(&choice, all->bins);
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

/*
 * Where the classes of a working set end, in 64ths of its rows: fine at its beginning, where caches
 * of a large set end, and fine enough behind it for caches of a small one.
 */
static const int class_ends[PLIM__ORDER_CLASSES] = {1, 2, 4, 8, 16, 32, 48, 64};

typedef struct packing {
    choice_t choice;               /* of rows alone */
    int ends[PLIM__ORDER_CLASSES]; /* the last bin of each class */
    plim__node_order_t *order;     /* NULL: in the pass that finds its nodes */
    plim__node_set_t *nodes;
} packing_t;

/* Finds the ends of the classes; returns the number of rows of them all. */
static int64_t find_classes(packing_t *packing, int64_t most_rows, bool *complete_out)
{
    const uint64_t *bins = packing->choice.work->workers[0].bins[ROWS];
    const uint64_t each = packing->choice.work->params->row_bytes;
    int64_t all = 0, rows = 0;
    int lowest = PLIM__ACCESS_BINS, number = 0;
    while (lowest > 0 && all + (int64_t)(bins[lowest - 1] / each) <= most_rows)
        all += (int64_t)(bins[--lowest] / each);
    *complete_out = lowest == 0;
    for (int bin = PLIM__ACCESS_BINS - 1; bin >= lowest; bin--) {
        rows += (int64_t)(bins[bin] / each);
        while (number < PLIM__ORDER_CLASSES - 1 && rows * 64 >= all * class_ends[number])
            packing->ends[number++] = bin;
    }
    for (; number < PLIM__ORDER_CLASSES; number++)
        packing->ends[number] = lowest;
    return all;
}

static plim_status_t pack_chunk(void *context, int number, int64_t chunk)
{
    packing_t *packing = context;
    plim__access_work_t *work = packing->choice.work;
    plim__access_worker_t *worker = &work->workers[number];
    const int64_t first = chunk * PLIM__ACCESS_CHUNK, count = nodes_of_chunk(work, chunk);
    PLIM_TRY(get_codes(&packing->choice, worker, chunk));
    const uint16_t *codes = worker->judged[ROWS];
    for (int64_t i = 0; i < count; i++) {
        if (codes[i] == 0)
            continue;
        const item_t item = item_of(work, ROWS, first + i, codes[i]);
        int class = 0;
        while (class < PLIM__ORDER_CLASSES && item.bin < packing->ends[class])
            class ++;
        if (class == PLIM__ORDER_CLASSES)
            continue;
        if (packing->order == NULL)
            (void)plim__node_set_add(packing->nodes, first + i);
        else
            plim__node_order_set(packing->order, plim__node_set_position(packing->nodes, first + i),
                                 class);
    }
    return PLIM_OK;
}

plim_status_t plim__admission_pack(plim__access_work_t *work, const plim__pack_params_t *params,
                                   plim__node_set_t *rows, plim__working_set_t **set_out)
{
    const int64_t chunks = plim__access_chunks(work->num_nodes);
    packing_t packing = {.choice = {.work = work, .wanted = {[ROWS] = true}}, .nodes = rows};
    plim__working_set_t *set;
    bool complete;
    PLIM_TRY(count_all(&packing.choice));
    const int64_t num_rows = find_classes(&packing, params->most_rows, &complete);
    PLIM_TRY(plim__access_sweep(work, 0, chunks, pack_chunk, &packing));
    PLIM_TRY(plim__working_set_create(work->job, params->dataset, params->scratch, params->key,
                                      num_rows, &set));
    set->complete = complete;
    memcpy(set->order.nodes.lines, rows->lines, plim__node_set_bytes(work->num_nodes));
    plim__node_set_seal(&set->order.nodes);
    packing.order = &set->order;
    packing.nodes = &set->order.nodes;
    plim_status_t status = plim__access_sweep(work, 0, chunks, pack_chunk, &packing);
    if (status != PLIM_OK) {
        plim__working_set_destroy(set);
        return status;
    }
    plim__working_set_seal(set);
    *set_out = set;
    return PLIM_OK;
}
