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
    const double reads = kind == ROWS ? work->params->row_reads : work->params->list_reads;
    return reads > 0 ? reads : 1;
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
 * Where the classes of a working set end, in 64ths of its bytes: fine at its beginning, where
 * caches of a large set end, and fine enough behind it for caches of a small one. The first class
 * of lists has those that are not packed.
 */
static const int class_ends[KINDS][PLIM__ORDER_CLASSES] = {
    [LISTS] = {0, 1, 2, 4, 8, 16, 32, 64}, [ROWS] = {1, 2, 4, 8, 16, 32, 48, 64}};

typedef struct packing {
    choice_t choice;
    int ends[KINDS][PLIM__ORDER_CLASSES]; /* the last bin of each class */
    plim__working_set_t *set;             /* NULL: in the pass that finds its nodes */
    plim__node_set_t *nodes;
    plim__working_size_t classes[PLIM__ORDER_CLASSES]; /* lists of each */
    int list_classes;                                  /* that are packed */
} packing_t;

/* Finds the ends of a kind's classes; returns the bytes of them all, at most `most`. */
static uint64_t find_classes(packing_t *packing, int kind, uint64_t most, bool *complete_out)
{
    const uint64_t *bins = packing->choice.work->workers[0].bins[kind];
    int *ends = packing->ends[kind];
    uint64_t all = 0, bytes = 0;
    int lowest = PLIM__ACCESS_BINS, number = kind == LISTS;
    while (lowest > 0 && bins[lowest - 1] <= most - all)
        all += bins[--lowest];
    *complete_out = lowest == 0;
    ends[0] = PLIM__ACCESS_BINS;
    for (int bin = PLIM__ACCESS_BINS - 1; bin >= lowest; bin--) {
        bytes += bins[bin];
        while (number < PLIM__ORDER_CLASSES - 1 &&
               (double)bytes * 64 >= (double)all * class_ends[kind][number])
            ends[number++] = bin;
    }
    for (; number < PLIM__ORDER_CLASSES; number++)
        ends[number] = lowest;
    return all;
}

/* Counts a list, or sets its class. */
static void pack_list(packing_t *packing, int64_t node, const item_t *item)
{
    const plim__access_params_t *params = packing->choice.work->params;
    const int64_t degree = ((int64_t)item->bytes - (int64_t)params->list_fixed) /
                           (int64_t)plim__max_i64((int64_t)params->list_bytes, 1);
    int class = 1;
    if (item->probability == 0 || degree > PLIM__LIST_PACKED_MOST)
        return;
    while (class < PLIM__ORDER_CLASSES - 1 && item->bin < packing->ends[LISTS][class])
        class ++;
    if (packing->set == NULL) {
        (void)__atomic_fetch_add(&packing->classes[class].lists, 1, __ATOMIC_RELAXED);
        (void)__atomic_fetch_add(&packing->classes[class].entries, degree, __ATOMIC_RELAXED);
    } else if (class < packing->list_classes) {
        plim__node_order_set(&packing->set->lists, plim__node_set_position(packing->nodes, node),
                             class);
    }
}

static plim_status_t pack_chunk(void *context, int number, int64_t chunk)
{
    packing_t *packing = context;
    plim__access_work_t *work = packing->choice.work;
    plim__access_worker_t *worker = &work->workers[number];
    const int64_t first = chunk * PLIM__ACCESS_CHUNK, count = nodes_of_chunk(work, chunk);
    PLIM_TRY(get_codes(&packing->choice, worker, chunk));
    const uint16_t *codes = worker->judged[ROWS], *of_lists = worker->judged[LISTS];
    for (int64_t i = 0; i < count; i++) {
        if (codes[i] == 0)
            continue;
        const item_t item = item_of(work, ROWS, first + i, codes[i]);
        int class = 0;
        while (class < PLIM__ORDER_CLASSES && item.bin < packing->ends[ROWS][class])
            class ++;
        if (class == PLIM__ORDER_CLASSES)
            continue;
        if (packing->set == NULL)
            (void)plim__node_set_add(packing->nodes, first + i);
        else
            plim__node_order_set(&packing->set->order,
                                 plim__node_set_position(packing->nodes, first + i), class);
        if (of_lists != NULL && of_lists[i] != 0) {
            const item_t list = item_of(work, LISTS, first + i, of_lists[i]);
            pack_list(packing, first + i, &list);
        }
    }
    return PLIM_OK;
}

plim_status_t plim__admission_pack(plim__access_work_t *work, const plim__pack_params_t *params,
                                   plim__node_set_t *rows, plim__working_set_t **set_out)
{
    const int64_t chunks = plim__access_chunks(work->num_nodes);
    packing_t packing = {
        .choice =
            {.work = work,
             .wanted = {[LISTS] = params->most.lists > 0 && work->num_hops > 0, [ROWS] = true}},
        .nodes = rows};
    const uint64_t row = work->params->row_bytes;
    plim__working_set_t *set;
    bool complete, all_lists;
    PLIM_TRY(count_all(&packing.choice));
    plim__working_size_t size = {
        .rows =
            (int64_t)(find_classes(&packing, ROWS, (uint64_t)params->most.rows * row, &complete) /
                      row)};
    (void)find_classes(&packing, LISTS, UINT64_MAX, &all_lists);
    PLIM_TRY(plim__access_sweep(work, 0, chunks, pack_chunk, &packing));
    while (complete && packing.list_classes < PLIM__ORDER_CLASSES) {
        const plim__working_size_t *more = &packing.classes[packing.list_classes];
        if (size.lists + more->lists > params->most.lists ||
            size.entries + more->entries > params->most.entries)
            break;
        size.lists += more->lists;
        size.entries += more->entries;
        packing.list_classes++;
    }
    packing.choice.wanted[LISTS] = size.lists > 0;
    PLIM_TRY(plim__working_set_create(work->job, params->dataset, work->offsets, params->scratch,
                                      params->key, size, &set));
    set->complete = complete;
    set->with_lists = params->most.lists > 0;
    memcpy(set->order.nodes.lines, rows->lines, plim__node_set_bytes(work->num_nodes));
    plim__node_set_seal(&set->order.nodes);
    packing.set = set;
    packing.nodes = &set->order.nodes;
    plim_status_t status = plim__access_sweep(work, 0, chunks, pack_chunk, &packing);
    if (status != PLIM_OK) {
        plim__working_set_destroy(set);
        return status;
    }
    (void)plim__working_set_seal(set);
    *set_out = set;
    return PLIM_OK;
}
