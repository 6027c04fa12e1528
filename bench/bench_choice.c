/*
 * How good is the choice of rows that are kept in memory? Draws whole epochs of a recipe, keeps the
 * same number of rows by each of several rules, and counts what the epoch would then read.
 *
 *     cmake --build --preset release --target bench_choice
 *     build/release/bench_choice DIRECTORY FANOUT ROWS_MIB [EPOCH]     (FANOUT: 3,2)
 *
 * Rules: nothing kept; the nodes of most in-edges; the nodes touched most often in one epoch drawn
 * before; inclusion probability (sample/access.h); and the least possible, the rows of the very
 * epoch itself, for as many as fit. One window is one epoch. Reads are joined when less than 16 KiB
 * apart. Prints one JSON object.
 */
#include "bench_job.h"

#include "base/fail.h"
#include "mem/arena.h"
#include "sample/access.h"
#include "source/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 16384
#define MERGE_DISTANCE 16384
#define PAGE 4096
#define TOUCHES_MAX UINT16_MAX

typedef struct epoch {
    plim__topology_t *source;
    int num_hops;
    int64_t fanout[PLIM__HOPS_MAX];
    plim__node_set_t needed;
    plim__node_set_t hop;
    uint16_t *touches; /* (num_nodes) how often each node was drawn, or NULL */
    int64_t *nodes;    /* (PIECE) */
    plim__drawn_t drawn;
} epoch_t;

static plim_status_t draw_hop(epoch_t *epoch, const plim__hop_t *hop)
{
    int64_t from = 0, count;
    while ((count = plim__node_set_list(&epoch->hop, from, PIECE, epoch->nodes)) > 0) {
        const plim__draws_t draws = plim__draws_of(hop, epoch->nodes, count);
        PLIM_TRY(plim__topology_draw(epoch->source, 0, &draws, &epoch->drawn));
        from = epoch->nodes[epoch->drawn.taken - 1] + 1;
        int64_t num_ids = epoch->drawn.indptr[epoch->drawn.taken];
        for (int64_t i = 0; i < num_ids; i++) {
            int64_t node = epoch->drawn.ids[i];
            (void)plim__node_set_add(&epoch->needed, node);
            if (epoch->touches != NULL && epoch->touches[node] < TOUCHES_MAX)
                epoch->touches[node]++;
        }
    }
    return PLIM_OK;
}

/* All nodes that the epoch touches, to `needed`. */
static plim_status_t draw_epoch(epoch_t *epoch, int64_t number, const int64_t *seeds,
                                int64_t num_seeds)
{
    plim__node_set_clear(&epoch->needed);
    for (int64_t i = 0; i < num_seeds; i++) {
        (void)plim__node_set_add(&epoch->needed, seeds[i]);
        if (epoch->touches != NULL)
            epoch->touches[seeds[i]] = TOUCHES_MAX;
    }
    for (int i = 0; i < epoch->num_hops; i++) {
        plim__hop_t hop = {0, number, i, epoch->fanout[i], false};
        memcpy(epoch->hop.lines, epoch->needed.lines, plim__node_set_bytes(epoch->needed.universe));
        PLIM_TRY(draw_hop(epoch, &hop));
    }
    plim__node_set_seal(&epoch->needed);
    return PLIM_OK;
}

/* What reading the needed rows that are not kept takes. */
static void say(const char *rule, const epoch_t *epoch, const plim__node_set_t *kept,
                int64_t row_bytes, bool last)
{
    int64_t from = 0, count, rows = 0, pages = 0, transfers = 0, bytes = 0;
    int64_t end = -1 - MERGE_DISTANCE - PAGE; /* of the transfer so far */
    while ((count = plim__node_set_list(&epoch->needed, from, PIECE, epoch->nodes)) > 0) {
        from = epoch->nodes[count - 1] + 1;
        for (int64_t i = 0; i < count; i++) {
            if (kept != NULL && plim__node_set_has(kept, epoch->nodes[i]))
                continue;
            int64_t start = epoch->nodes[i] * row_bytes / PAGE * PAGE;
            int64_t stop = (epoch->nodes[i] * row_bytes + row_bytes + PAGE - 1) / PAGE * PAGE;
            rows++;
            pages += (stop - (start > end ? start : end)) / PAGE;
            bool joined = start - end < MERGE_DISTANCE;
            transfers += !joined;
            bytes += stop - (joined ? end : start);
            end = stop;
        }
    }
    printf("\"%s\": {\"kept\": %lld, \"rows\": %lld, \"pages\": %lld, \"transfers\": %lld, "
           "\"bytes\": %lld}%s",
           rule, kept == NULL ? 0 : (long long)kept->count, (long long)rows, (long long)pages,
           (long long)transfers, (long long)bytes, last ? "}\n" : ", ");
}

/* The `most` nodes of the highest value, the lower ids first among equals. */
typedef int64_t (*value_fn)(const void *context, int64_t node);

static void keep_highest(plim__node_set_t *kept, int64_t most, value_fn value, const void *context)
{
    static int64_t counts[1 << 16];
    memset(counts, 0, sizeof counts);
    for (int64_t node = 0; node < kept->universe; node++)
        counts[value(context, node)]++;
    int64_t threshold = TOUCHES_MAX, above = 0;
    while (threshold > 1 && above + counts[threshold] <= most)
        above += counts[threshold--];
    int64_t equal = most - above;
    plim__node_set_clear(kept);
    for (int64_t node = 0; node < kept->universe; node++) {
        int64_t its = value(context, node);
        if (its > threshold || (its == threshold && equal-- > 0))
            (void)plim__node_set_add(kept, node);
    }
    plim__node_set_seal(kept);
}

static int64_t by_degree(const void *context, int64_t node)
{
    int64_t degree = plim__offsets_list(context, node).degree;
    return degree < TOUCHES_MAX ? degree : TOUCHES_MAX;
}

static int64_t by_touches(const void *context, int64_t node)
{
    return ((const uint16_t *)context)[node];
}

static int64_t by_need(const void *context, int64_t node)
{
    return plim__node_set_has(context, node);
}

static const int64_t *read_seeds(const plim_dataset_t *dataset, plim__arena_t *arena)
{
    int64_t count = plim_dataset_info(dataset)->num_split[0];
    char path[4096];
    int64_t *seeds = plim__arena_carve(arena, (size_t)count, sizeof *seeds, PLIM__PAGE);
    (void)snprintf(path, sizeof path, "%s/train.npy", plim__dataset_path(dataset));
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, PLIM__NPY_HEADER, SEEK_SET) != 0 ||
        fread(seeds, sizeof *seeds, (size_t)count, file) != (size_t)count)
        return NULL;
    (void)fclose(file);
    return seeds;
}

static plim_status_t run(const plim_job_t *job, const plim_dataset_t *dataset, epoch_t *epoch,
                         size_t room, int64_t number)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    int64_t row_bytes = info->num_features * (info->feature_type == PLIM_F16 ? 2 : 4);
    size_t set_bytes = plim__node_set_bytes(info->num_nodes);
    plim__arena_t arena;
    plim__offsets_t *offsets;
    plim__access_t worth = {0};
    plim__source_params_t disk = {.workers = 1, .depth = 128, .merge_distance = MERGE_DISTANCE};
    PLIM_TRY(plim__offsets_create(job, dataset, false, &offsets));
    PLIM_TRY(plim__topology_disk_create(job, dataset, offsets, &disk, &epoch->source));
    PLIM_TRY(plim__arena_create(job->ledger, "bench",
                                3 * set_bytes + (size_t)info->num_nodes * 2 + (64u << 20) +
                                    (size_t)info->num_split[0] * 8,
                                &arena));
    epoch->needed =
        plim__node_set_make(plim__arena_carve(&arena, 1, set_bytes, 64), info->num_nodes);
    epoch->hop = plim__node_set_make(plim__arena_carve(&arena, 1, set_bytes, 64), info->num_nodes);
    plim__node_set_t kept =
        plim__node_set_make(plim__arena_carve(&arena, 1, set_bytes, 64), info->num_nodes);
    uint16_t *touches = plim__arena_carve(&arena, (size_t)info->num_nodes, 2, 64);
    epoch->nodes = plim__arena_carve(&arena, PIECE, 8, 64);
    epoch->drawn.indptr = plim__arena_carve(&arena, PIECE + 1, 8, 64);
    epoch->drawn.capacity = 4 << 20;
    epoch->drawn.ids = plim__arena_carve(&arena, (size_t)epoch->drawn.capacity, 8, 64);
    const int64_t *seeds = read_seeds(dataset, &arena);
    int64_t num_seeds = info->num_split[0], most = (int64_t)room / row_bytes;
    if (seeds == NULL)
        return plim__fail(PLIM_ERR_IO, "no train.npy");

    plim__access_params_t wish = {.num_hops = epoch->num_hops,
                                  .seeds = seeds,
                                  .num_seeds = num_seeds,
                                  .share = 1,
                                  .row_bytes = (size_t)row_bytes,
                                  .row_capacity = room,
                                  .capacity = room,
                                  .work_bytes = (size_t)2 << 30,
                                  .tmp = plim__dataset_path(dataset)};
    memcpy(wish.fanout, epoch->fanout, sizeof wish.fanout);
    PLIM_TRY(plim__access_find(job, dataset, offsets, &wish, &worth));

    epoch->touches = touches;
    PLIM_TRY(draw_epoch(epoch, number + 1000, seeds, num_seeds));
    epoch->touches = NULL;
    PLIM_TRY(draw_epoch(epoch, number, seeds, num_seeds));
    printf("{\"needed\": %lld, \"room\": %lld, \"expected_hits\": %.4f, ",
           (long long)epoch->needed.count, (long long)most, worth.row_hits);
    say("nothing", epoch, NULL, row_bytes, false);
    keep_highest(&kept, most, by_degree, offsets);
    say("degree", epoch, &kept, row_bytes, false);
    keep_highest(&kept, most, by_touches, touches);
    say("presampled", epoch, &kept, row_bytes, false);
    say("inclusion", epoch, &worth.rows, row_bytes, false);
    keep_highest(&kept, most, by_need, &epoch->needed);
    say("known", epoch, &kept, row_bytes, true);
    plim__access_free(&worth);
    plim__arena_destroy(&arena);
    plim__topology_disk_destroy(epoch->source);
    plim__offsets_destroy(offsets);
    return PLIM_OK;
}

int main(int argc, char **argv)
{
    plim_job_t job = {.threads = 1};
    plim_dataset_t *dataset;
    epoch_t epoch = {0};
    if (argc < 4) {
        fprintf(stderr, "usage: bench_choice DIRECTORY FANOUT ROWS_MIB [EPOCH]\n");
        return 2;
    }
    for (char *text = strtok(argv[2], ","); text != NULL && epoch.num_hops < PLIM__HOPS_MAX;
         text = strtok(NULL, ","))
        epoch.fanout[epoch.num_hops++] = atoll(text);
    job.threads = 2;
    plim_status_t status = bench_job_make(PLIM_LINE_NONE, &job);
    if (status == PLIM_OK)
        status = plim_dataset_open(&job, argv[1], &dataset);
    if (status == PLIM_OK)
        status =
            run(&job, dataset, &epoch, (size_t)atoll(argv[3]) << 20, argc > 4 ? atoll(argv[4]) : 1);
    if (status != PLIM_OK)
        fprintf(stderr, "%s\n", plim_last_error());
    return status == PLIM_OK ? 0 : 1;
}
