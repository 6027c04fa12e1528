/*
 * Makes the order of a working set from the codes of the last hop: which rows and lists it has, and
 * in which class each of them is. A kind's densest members are its first class; the classes end
 * at bins of density (admission.c).
 */
#include "base/check.h"
#include "base/exact_math.h"
#include "base/job.h"
#include "sample/access_work.h"

#include <string.h>

enum { LISTS = PLIM__REACH_LISTS, ROWS = PLIM__REACH_ROWS, KINDS = PLIM__REACH_KINDS };

/*
 * Where the classes of a working set end, in 64ths of its bytes: fine at its beginning, where
 * caches of a large set end, and fine enough behind it for caches of a small one. The first class
 * of lists has those that are not packed.
 */
static const int class_ends[KINDS][PLIM__ORDER_CLASSES] = {
    [LISTS] = {0, 1, 2, 4, 8, 16, 32, 64}, [ROWS] = {1, 2, 4, 8, 16, 32, 48, 64}};

typedef struct packing {
    plim__access_work_t *work;
    bool wanted[KINDS];
    int ends[KINDS][PLIM__ORDER_CLASSES]; /* the last bin of each class */
    plim__working_set_t *set;             /* NULL: in the pass that finds its nodes */
    plim__node_set_t *nodes;
    plim__working_size_t classes[PLIM__ORDER_CLASSES]; /* lists of each */
    int list_classes;                                  /* that are packed */
} packing_t;

/* While classes are set, a worker's bins count each class's members by their hazards' codes. */
#define CODES_BITS 3
#define CODES_EACH (PLIM__HAZARD_CODES / (1 << CODES_BITS) + 1)
_Static_assert(CODES_EACH *PLIM__ORDER_CLASSES <= PLIM__ACCESS_BINS, "bins hold the counts");

static void count_code(plim__access_worker_t *worker, int kind, int class, uint16_t code)
{
    worker->bins[kind][class * CODES_EACH + (code >> CODES_BITS)]++;
}

/* Fills a kind's needs from the counts of worker 0: a hazard is proportional to the share. */
static void add_needs(const plim__access_work_t *work, int kind,
                      uint64_t needs[PLIM__ORDER_CLASSES][PLIM__WORKING_SHARES])
{
    for (int class = 0; class < PLIM__ORDER_CLASSES; class ++)
        for (int i = 0; i < PLIM__WORKING_SHARES; i++) {
            const double factor = 1 / (work->params->share * (1 << i));
            double sum = 0;
            for (int j = 0; j < CODES_EACH; j++) {
                const uint64_t count = work->workers[0].bins[kind][class * CODES_EACH + j];
                const uint16_t code = (uint16_t)(j << CODES_BITS | 1 << (CODES_BITS - 1));
                const double hazard = plim__hazard_decode(code) / PLIM__HAZARD_ONE;
                if (count > 0)
                    sum += (double)count * (1 - plim__exp(-hazard * factor));
            }
            needs[class][i] = (uint64_t)(sum * PLIM__WORKING_ONE);
        }
}

/* Finds the ends of a kind's classes; returns the bytes of them all, at most `most`. */
static uint64_t find_classes(packing_t *packing, int kind, uint64_t most, bool *complete_out)
{
    const uint64_t *bins = packing->work->workers[0].bins[kind];
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

/* Counts a list; or sets its class, and counts its code. */
static void pack_list(packing_t *packing, plim__access_worker_t *worker, int64_t node,
                      uint16_t code, const plim__access_item_t *item)
{
    const plim__access_params_t *params = packing->work->params;
    const int64_t degree = ((int64_t)item->bytes - (int64_t)params->list_fixed) /
                           (int64_t)plim__max_i64((int64_t)params->list_bytes, 1);
    int class = 1;
    if (item->probability == 0)
        return;
    while (class < PLIM__ORDER_CLASSES - 1 && item->bin < packing->ends[LISTS][class])
        class ++;
    if (packing->set == NULL && degree <= PLIM__LIST_PACKED_MOST) {
        (void)__atomic_fetch_add(&packing->classes[class].lists, 1, __ATOMIC_RELAXED);
        (void)__atomic_fetch_add(&packing->classes[class].entries, degree, __ATOMIC_RELAXED);
    }
    if (packing->set == NULL)
        return;
    if (degree > PLIM__LIST_PACKED_MOST || class >= packing->list_classes)
        class = 0;
    plim__node_order_set(&packing->set->lists, plim__node_set_position(packing->nodes, node),
                         class);
    count_code(worker, LISTS, class, code);
}

static plim_status_t pack_chunk(void *context, int number, int64_t chunk)
{
    packing_t *packing = context;
    plim__access_work_t *work = packing->work;
    plim__access_worker_t *worker = &work->workers[number];
    const int64_t first = chunk * PLIM__ACCESS_CHUNK, count = plim__access_chunk_nodes(work, chunk);
    PLIM_TRY(plim__access_judge(work, worker, packing->wanted, chunk));
    const uint16_t *codes = worker->judged[ROWS], *of_lists = worker->judged[LISTS];
    for (int64_t i = 0; i < count; i++) {
        if (codes[i] == 0)
            continue;
        const plim__access_item_t item = plim__access_item(work, ROWS, first + i, codes[i]);
        int class = 0;
        while (class < PLIM__ORDER_CLASSES && item.bin < packing->ends[ROWS][class])
            class ++;
        if (class == PLIM__ORDER_CLASSES)
            continue;
        if (packing->set == NULL) {
            (void)plim__node_set_add(packing->nodes, first + i);
        } else {
            plim__node_order_set(&packing->set->order,
                                 plim__node_set_position(packing->nodes, first + i), class);
            count_code(worker, ROWS, class, codes[i]);
        }
        if (of_lists != NULL && of_lists[i] != 0) {
            const plim__access_item_t list = plim__access_item(work, LISTS, first + i, of_lists[i]);
            pack_list(packing, worker, first + i, of_lists[i], &list);
        }
    }
    return PLIM_OK;
}

plim_status_t plim__admission_pack(plim__access_work_t *work, const plim__pack_params_t *params,
                                   plim__node_set_t *rows, plim__working_set_t **set_out)
{
    const int64_t chunks = plim__access_chunks(work->num_nodes);
    packing_t packing = {
        .work = work,
        .wanted = {[LISTS] = params->most.lists > 0 && work->num_hops > 0, [ROWS] = true},
        .nodes = rows};
    const uint64_t row = work->params->row_bytes;
    plim__working_set_t *set;
    bool complete, all_lists;
    PLIM_TRY(plim__access_count(work, packing.wanted));
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
    packing.wanted[LISTS] = size.lists > 0;
    PLIM_TRY(plim__working_set_create(work->job, params->dataset, work->offsets, params->scratch,
                                      params->key, size, &set));
    set->complete = complete;
    set->with_lists = params->most.lists > 0;
    memcpy(set->order.nodes.lines, rows->lines, plim__node_set_bytes(work->num_nodes));
    plim__node_set_seal(&set->order.nodes);
    packing.set = set;
    packing.nodes = &set->order.nodes;
    for (int kind = 0; kind < KINDS; kind++)
        memset(work->workers[0].bins[kind], 0, PLIM__ACCESS_BINS * sizeof(uint64_t));
    plim_status_t status = plim__access_sweep(work, 0, chunks, pack_chunk, &packing);
    plim__access_sum_bins(work);
    add_needs(work, ROWS, set->needs.rows);
    add_needs(work, LISTS, set->needs.lists);
    if (status != PLIM_OK) {
        plim__working_set_destroy(set);
        return status;
    }
    (void)plim__working_set_seal(set);
    *set_out = set;
    return PLIM_OK;
}
