/*
 * Filling the room: lists and rows by worth for each byte, densest first, until it is full.
 *
 *     sweep 1   bytes of lists and of rows in each bin of densities
 *     cuts      the bin at which lists end, and rows: above it all are taken, below it none
 *     sweep 2   the sets; those in the cut's own bin in ascending order of nodes, while they fit
 */
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"
#include "sample/access_work.h"

#include <string.h>

#define WORTH_ONE ((double)(1 << 28))

enum { LIST = 1, ROW = 2 };

/* Where lists, or rows, end. */
typedef struct cut {
    uint64_t left; /* of their own room, after all above the bin */
    int bin;       /* -1: all are taken */
    bool shared;   /* in that bin they also take from what is left of the common room */
    bool open;     /* while cuts are looked for */
} cut_t;

typedef struct choice {
    plim__access_work_t *work;
    plim__access_t *worth;
    bool lists_wanted;
    bool rows_wanted;
    cut_t lists;
    cut_t rows;
    uint64_t room;   /* the common one */
    uint64_t common; /* left of it */
} choice_t;

/* What is known of one node: worth 0 means that it is out of the question. */
typedef struct item {
    float worth;
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

/* The middle of a bin. */
static double density_of(int bin)
{
    uint64_t bits = ((BIN_BASE + (uint64_t)bin) << (52 - 9)) + ((uint64_t)1 << (52 - 10));
    double density;
    memcpy(&density, &bits, sizeof density);
    return density;
}

static item_t item_of(const plim__access_work_t *work, uint16_t code, uint64_t bytes)
{
    item_t item = {.worth = work->chances[code], .bytes = bytes};
    item.bin = bin_of((double)item.worth / (double)bytes);
    return item;
}

/* A list of nothing is read by nobody. */
static item_t list_of(const plim__access_work_t *work, int64_t node, uint16_t code)
{
    int64_t degree = plim__offsets_list(work->offsets, node).degree;
    if (degree == 0)
        return (item_t){0};
    return item_of(work, code,
                   work->params->list_fixed + work->params->list_bytes * (uint64_t)degree);
}

/* Gets the codes that lists and rows of a chunk are judged by; NULL where they are not wanted. */
static plim_status_t get_codes(const choice_t *choice, plim__access_worker_t *worker, int64_t chunk)
{
    plim__access_work_t *work = choice->work;
    worker->list_codes = worker->row_codes = NULL;
    PLIM_TRY(plim__job_check(work->job));
    if (choice->lists_wanted)
        PLIM_TRY(plim__access_codes_before(work, chunk, worker->codes, &worker->list_codes));
    if (choice->rows_wanted && work->num_hops == 0)
        return plim__access_codes_before(work, chunk, worker->codes, &worker->row_codes);
    if (choice->rows_wanted)
        return plim__access_codes_after(work, chunk, worker->codes_after, &worker->row_codes);
    return PLIM_OK;
}

static plim_status_t count_chunk(void *context, int number, int64_t chunk)
{
    choice_t *choice = context;
    plim__access_work_t *work = choice->work;
    plim__access_worker_t *worker = &work->workers[number];
    const int64_t first = chunk * PLIM__ACCESS_CHUNK;
    const int64_t count = plim__min_i64(PLIM__ACCESS_CHUNK, work->num_nodes - first);
    PLIM_TRY(get_codes(choice, worker, chunk));
    const uint16_t *lists = worker->list_codes, *rows = worker->row_codes;
    for (int64_t i = 0; i < count; i++) {
        if (lists != NULL && lists[i] != 0) {
            item_t item = list_of(work, first + i, lists[i]);
            worker->list_bins[item.bin] += item.bytes;
            worker->lists.all += (uint64_t)((double)item.worth * WORTH_ONE);
        }
        if (rows != NULL && rows[i] != 0) {
            item_t item = item_of(work, rows[i], work->params->row_bytes);
            worker->row_bins[item.bin] += item.bytes;
            worker->rows.all += (uint64_t)((double)item.worth * WORTH_ONE);
        }
    }
    return PLIM_OK;
}

/* How much of a bin fits the kind's own room. */
static uint64_t that_fits(const cut_t *cut, uint64_t there)
{
    if (!cut->open)
        return 0;
    return there < cut->left ? there : cut->left;
}

/* Takes that much of a bin, and ends the kind there when it is not all. */
static void take_bin(cut_t *cut, int bin, uint64_t there, uint64_t fit)
{
    if (!cut->open)
        return;
    if (fit < there)
        *cut = (cut_t){.left = fit, .bin = bin};
    else
        cut->left -= fit;
}

static void end_both(choice_t *choice, int bin)
{
    cut_t *cuts[] = {&choice->lists, &choice->rows};
    for (int i = 0; i < 2; i++)
        if (cuts[i]->open)
            *cuts[i] = (cut_t){.left = cuts[i]->left, .bin = bin, .shared = true};
}

/* From the densest bin down. Where a kind's own room ends, what fits of it is set aside, and the
 * other kind goes on; where the common room ends, both end. */
static void find_cuts(choice_t *choice, const uint64_t *list_bins, const uint64_t *row_bins)
{
    const plim__access_params_t *params = choice->work->params;
    cut_t *lists = &choice->lists, *rows = &choice->rows;
    size_t row_rest = params->row_bytes == 0 ? 0 : params->row_room % params->row_bytes;
    *lists = (cut_t){.left = params->list_room, .bin = -1, .open = true};
    *rows = (cut_t){.left = params->row_room - row_rest, .bin = -1, .open = true};
    choice->common = choice->room;
    for (int bin = PLIM__ACCESS_BINS - 1; bin >= 0 && (lists->open || rows->open); bin--) {
        uint64_t of_lists = that_fits(lists, list_bins[bin]);
        uint64_t of_rows = that_fits(rows, row_bins[bin]);
        if (of_lists > choice->common || of_rows > choice->common - of_lists) {
            end_both(choice, bin);
            return;
        }
        choice->common -= of_lists + of_rows;
        take_bin(lists, bin, list_bins[bin], of_lists);
        take_bin(rows, bin, row_bins[bin], of_rows);
    }
}

/* How many rows a window needs of those that the cuts leave out, as expected. */
static double count_missed(const choice_t *choice, const uint64_t *row_bins)
{
    double missed = 0;
    for (int bin = 0; bin <= choice->rows.bin; bin++)
        missed += (double)row_bins[bin] * density_of(bin);
    return missed;
}

/* What the rows of windows leave is tried in steps of this part of their room. */
#define ROOM_STEPS 512

/* The largest room for what is kept that leaves enough for what is missed, or the one given. */
static void find_room(choice_t *choice, const uint64_t *list_bins, const uint64_t *row_bins)
{
    const plim__access_params_t *params = choice->work->params;
    size_t whole;
    choice->room = params->room;
    find_cuts(choice, list_bins, row_bins);
    if (params->miss_bytes == 0 || !plim__add_size(params->room, params->miss_room, &whole))
        return;
    for (int i = 0; i < ROOM_STEPS; i++) {
        size_t missed_room = params->miss_room / ROOM_STEPS * (size_t)i;
        if (missed_room < params->miss_min)
            missed_room = params->miss_min;
        choice->room = whole - missed_room;
        find_cuts(choice, list_bins, row_bins);
        double missed = count_missed(choice, row_bins) * (double)params->miss_bytes;
        if (missed <= (double)(whole - choice->room + choice->common))
            return;
    }
    choice->room = params->room;
    find_cuts(choice, list_bins, row_bins);
}

static void choose(plim__node_set_t *set, plim__access_sums_t *sums, int64_t node,
                   const item_t *item)
{
    (void)plim__node_set_add(set, node);
    sums->bytes += item->bytes;
    sums->chosen += (uint64_t)((double)item->worth * WORTH_ONE);
}

/* Chooses what lies above the cuts, and notes what lies in them. */
static plim_status_t choose_chunk(void *context, int number, int64_t chunk)
{
    choice_t *choice = context;
    plim__access_work_t *work = choice->work;
    plim__access_worker_t *worker = &work->workers[number];
    const int64_t first = chunk * PLIM__ACCESS_CHUNK;
    const int64_t count = plim__min_i64(PLIM__ACCESS_CHUNK, work->num_nodes - first);
    PLIM_TRY(get_codes(choice, worker, chunk));
    const uint16_t *lists = worker->list_codes, *rows = worker->row_codes;
    memset(worker->at_cut, 0, PLIM__ACCESS_CHUNK);
    for (int64_t i = 0; i < count; i++) {
        if (lists != NULL && lists[i] != 0) {
            item_t item = list_of(work, first + i, lists[i]);
            if (item.worth > 0 && item.bin > choice->lists.bin)
                choose(&choice->worth->lists, &worker->lists, first + i, &item);
            if (item.worth > 0 && item.bin == choice->lists.bin)
                worker->at_cut[i] |= LIST;
        }
        if (rows != NULL && rows[i] != 0) {
            item_t item = item_of(work, rows[i], work->params->row_bytes);
            if (item.bin > choice->rows.bin)
                choose(&choice->worth->rows, &worker->rows, first + i, &item);
            if (item.bin == choice->rows.bin)
                worker->at_cut[i] |= ROW;
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

/* In the order of chunks: those in the cuts, while they fit. */
static plim_status_t settle_chunk(void *context, int number, int64_t chunk)
{
    choice_t *choice = context;
    plim__access_work_t *work = choice->work;
    plim__access_worker_t *worker = &work->workers[number];
    const int64_t first = chunk * PLIM__ACCESS_CHUNK;
    const int64_t count = plim__min_i64(PLIM__ACCESS_CHUNK, work->num_nodes - first);
    for (int64_t i = 0; i < count; i++) {
        int64_t node = first + i;
        if ((worker->at_cut[i] & LIST) != 0) {
            item_t item = list_of(work, node, worker->list_codes[i]);
            if (fits(choice, &choice->lists, item.bytes))
                choose(&choice->worth->lists, &worker->lists, node, &item);
        }
        if ((worker->at_cut[i] & ROW) != 0) {
            item_t item = item_of(work, worker->row_codes[i], work->params->row_bytes);
            if (fits(choice, &choice->rows, item.bytes))
                choose(&choice->worth->rows, &worker->rows, node, &item);
        }
    }
    return PLIM_OK;
}

static void gather(const plim__access_work_t *work, plim__access_sums_t *lists_out,
                   plim__access_sums_t *rows_out)
{
    *lists_out = *rows_out = (plim__access_sums_t){0};
    for (int i = 0; i < work->layout.workers; i++) {
        const plim__access_worker_t *worker = &work->workers[i];
        lists_out->chosen += worker->lists.chosen;
        lists_out->all += worker->lists.all;
        lists_out->bytes += worker->lists.bytes;
        rows_out->chosen += worker->rows.chosen;
        rows_out->all += worker->rows.all;
        rows_out->bytes += worker->rows.bytes;
    }
}

plim_status_t plim__admission_choose(plim__access_work_t *work, plim__access_t *worth)
{
    const int64_t chunks = plim__access_chunks(work->num_nodes);
    choice_t choice = {.work = work,
                       .worth = worth,
                       .lists_wanted = work->params->list_bytes > 0 && work->num_hops > 0,
                       .rows_wanted = work->params->row_bytes > 0};
    PLIM_TRY(plim__access_sweep(work, 0, chunks, count_chunk, &choice));
    uint64_t *list_bins = work->workers[0].list_bins, *row_bins = work->workers[0].row_bins;
    for (int i = 1; i < work->layout.workers; i++)
        for (int bin = 0; bin < PLIM__ACCESS_BINS; bin++) {
            list_bins[bin] += work->workers[i].list_bins[bin];
            row_bins[bin] += work->workers[i].row_bins[bin];
        }
    find_room(&choice, list_bins, row_bins);
    PLIM_TRY(plim__ordered(work->layout.workers, chunks, choose_chunk, settle_chunk, &choice));
    plim__access_sums_t lists, rows;
    gather(work, &lists, &rows);
    plim__node_set_seal(&worth->lists);
    plim__node_set_seal(&worth->rows);
    worth->list_bytes = lists.bytes;
    worth->row_bytes = rows.bytes;
    worth->list_hits = lists.all == 0 ? 0 : (double)lists.chosen / (double)lists.all;
    worth->row_hits = rows.all == 0 ? 0 : (double)rows.chosen / (double)rows.all;
    worth->rows_missed = (double)(rows.all - rows.chosen) / WORTH_ONE;
    return PLIM_OK;
}
