/* `plimsoll bench`: measures how fast batches are sampled or loaded. */
#include "base/clock.h"
#include "command/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct bench {
    cli_common_t common;
    const char *what; /* "sample" or "load" */
    const char *path;
    plim_recipe_t recipe;
    plim_plan_params_t params;
    plim_split_t split;
    int64_t first_epoch;
    int64_t first_step;
    int64_t epochs;
    int64_t batches; /* at most this many an epoch; 0 = all */
    bool has_rows;   /* batches carry rows */
    bool hash;
    bool stage;
} bench_t;

/* The loader's counters for one epoch. */
typedef struct bench_epoch {
    int64_t epoch;
    double seconds;
    plim_load_stats_t stats;
    bool hashed;
    uint64_t hash;
} bench_epoch_t;

static bool take_fanout(void *context, char *value, char ***next)
{
    bench_t *bench = context;
    return cli_parse_fanout(&bench->common, "--fanout", value, next, &bench->recipe);
}

#define AT(member) CLI_AT(bench_t, member)

static const cli_option_t recipe_options[] = {
    {"batch", "N", "seeds in a batch, or graphs (also --batch_size); default 1024",
     "Counts may be written as '1K' or '1.5M', in thousands.", AT(recipe.batch_size),
     CLI_RANGE(1, INT32_MAX)},
    {"fanout", "A,B,..",
     "neighbours drawn at each hop, -1: all (also --num_neighbors); default 10,10; none in a "
     "dataset of many graphs",
     "Up to 4096, and up to 8 hops. A dataset of many graphs yields whole graphs.",
     AT(recipe.fanout), CLI_BY(take_fanout)},
    {"replace", NULL, "draw with replacement", AT(recipe.replace)},
    {"form", "FORM", "%s; default native. pyg: each node draws once, as in PyTorch Geometric",
     "In the native form every node drawn so far draws again at each hop. A seed's neighbourhood "
     "therefore does not depend on its batch, and a batch too large for its slot can be delivered "
     "in parts. Within an epoch a node draws the same neighbours at a hop in every batch; each "
     "epoch has new draws. In the form pyg a node draws once, at the hop after it was "
     "drawn. This builds NeighborLoader's blocks; use it to compare speeds.",
     AT(recipe.form), CLI_LIST(PLIM_NATIVE, "native", "pyg")},
    {"seed", "S", "seed of all draws and of the order; default 0", AT(recipe.seed),
     .kind = CLI_SEED},
    {"rows", "TYPE", "rows as %s; default: as stored", AT(recipe.row_type),
     CLI_LIST(PLIM_F16, "f16", "f32")},
    {"ids", "BITS", "ids of %s bits; default 32", AT(recipe.index_type),
     CLI_LIST(PLIM_I32, "32", "64")},
    CLI_ALIAS("batch_size", "PyG, OGB", "batch"),
    CLI_ALIAS("num_neighbors", "PyG", "fanout"),
    CLI_OPTIONS_END};

static const cli_option_t amount_options[] = {
    {"split", "NAME", "split of the seeds: %s; default train", "train is shuffled in each epoch.",
     AT(split), CLI_LIST(PLIM_TRAIN, "train", "valid", "test")},
    {"epoch", "E", "the first epoch; default 0", AT(first_epoch), CLI_RANGE(0, INT32_MAX)},
    {"step", "S", "the first step of the first epoch; default 0", AT(first_step),
     CLI_RANGE(0, INT64_MAX)},
    {"epochs", "N", "number of epochs; default 2; 0: only plan", AT(epochs),
     CLI_RANGE(0, INT32_MAX)},
    {"batches", "N", "at most N batches an epoch", AT(batches), CLI_RANGE(1, INT64_MAX)},
    {"hash", NULL, "print a hash of each epoch's batches", "It is of what a model reads.",
     AT(hash)},
    CLI_OPTIONS_END};

static const cli_option_t planner_options[] = {
    {"slots", "N", "batches in flight, at most 64", AT(params.num_slots), CLI_RANGE(1, 64)},
    {"window", "N", "sample at most N steps as one window",
     "Where lists or rows are on disk; the default is as many as memory allows, up to an epoch.",
     AT(params.window), CLI_RANGE(1, INT64_MAX)},
    {"topology", "WHERE", "place of the neighbour lists: %s", AT(params.topology),
     CLI_LIST(1, "memory", "disk")},
    {"features", "WHERE", "place of the rows: %s", AT(params.rows), CLI_LIST(1, "memory", "disk")},
    {"list-cache", "SIZE", "size of the cache for lists on disk, or none", AT(params.list_cache),
     CLI_SIZE_OR("none", PLIM_CACHE_NONE)},
    {"row-cache", "SIZE", "size of the cache for rows on disk, or none",
     "The cache's account in the plan is larger, since it includes index and read buffers.",
     AT(params.row_cache), CLI_SIZE_OR("none", PLIM_CACHE_NONE)},
    {"scratch", "DIR", "a local disk for a file of what batches can need, made once",
     AT(params.scratch), .kind = CLI_TEXT},
    {"stage", NULL, "copy the dataset to --scratch first and read it there",
     "Every checksum is compared. An existing copy is verified and then used.", AT(stage)},
    CLI_OPTIONS_END};

static const char *const measured[] = {"sample", "load", NULL};

static const cli_group_t groups[] = {
    {.title = "The recipe", .options = recipe_options},
    {.title = "How much", .options = amount_options},
    {.title = "The planner chooses these unless they are given", .options = planner_options},
    CLI_COMMON_GROUP,
    {.options = NULL}};

static plim_load_stats_t difference(const plim_load_stats_t *from, const plim_load_stats_t *to)
{
    plim_load_stats_t stats = *to; /* window_steps is that of the last window */
    stats.batches -= from->batches;
    stats.parts -= from->parts;
    stats.edges -= from->edges;
    stats.nodes -= from->nodes;
    stats.windows -= from->windows;
    stats.lists -= from->lists;
    stats.lists_cached -= from->lists_cached;
    stats.list_transfers -= from->list_transfers;
    stats.list_bytes -= from->list_bytes;
    stats.rows -= from->rows;
    stats.rows_cached -= from->rows_cached;
    stats.row_transfers -= from->row_transfers;
    stats.row_bytes -= from->row_bytes;
    stats.rows_lost -= from->rows_lost;
    stats.wait_seconds -= from->wait_seconds;
    stats.starved_seconds -= from->starved_seconds;
    return stats;
}

static plim_status_t run_epoch(const bench_t *bench, plim_loader_t *loader, plim_stream_t *stream,
                               int64_t number, bench_epoch_t *epoch_out)
{
    plim_load_stats_t before = PLIM_LOAD_STATS_INIT, after = PLIM_LOAD_STATS_INIT;
    plim_batch_t *batch;
    int64_t done = 0;
    uint64_t hash = 0;
    plim_loader_stats(loader, &before);
    const int64_t began = plim__clock_ns();
    plim_status_t status =
        plim_stream_start(stream, number, number == bench->first_epoch ? bench->first_step : 0);
    while (status == PLIM_OK && (bench->batches == 0 || done < bench->batches)) {
        status = plim_stream_next(stream, -1, &batch);
        if (status != PLIM_OK || batch == NULL)
            break;
        if (bench->hash)
            hash = plim_loader_hash(loader, batch, hash);
        done += batch->last_part;
        plim_batch_release(batch);
    }
    const double seconds = plim__clock_seconds_since(began);
    plim_loader_stats(loader, &after);
    *epoch_out = (bench_epoch_t){number, seconds, difference(&before, &after), bench->hash, hash};
    return status;
}

/* "3.1 ms", "2.50 s". */
static const char *seconds_text(double seconds, char text_out[24])
{
    if (seconds < 1)
        (void)snprintf(text_out, 24, "%.1f ms", seconds * 1000);
    else
        (void)snprintf(text_out, 24, "%.2f s", seconds);
    return text_out;
}

static double per_second(double amount, double seconds)
{
    return seconds > 0 ? amount / seconds : 0;
}

static const char *place_text(plim_place_t place)
{
    return place == PLIM_PLACE_MEMORY ? "in memory" : "on disk";
}

static void print_plan(const bench_t *bench, const cli_plan_t *plan)
{
    const plim_plan_info_t *info = &plan->info;
    char text[24], minimum[24];
    if (bench->common.json)
        return;
    for (int i = 0; i < plan->num_accounts; i++)
        (void)printf("  %-18s %12s\n", plan->accounts[i].name,
                     plim_size_text(plan->accounts[i].bytes, text));
    (void)printf("  %-18s %12s  planned peak\n", "total", plim_size_text(info->peak, text));
    if (info->line != PLIM_LINE_NONE)
        (void)printf("  %-18s %12s  minimum %s\n", "line", plim_size_text(info->line, text),
                     cli_minimum_text(plan, minimum));
    (void)printf("topology %s, ", place_text(info->topology));
    if (bench->has_rows)
        (void)printf("rows %s, ", place_text(info->rows));
    if (info->window_steps > 0)
        (void)printf("windows of up to %" PRId64 " steps, ", info->window_steps);
    if (info->slots > 0)
        (void)printf("%d slots of %s nodes, ", info->slots,
                     cli_count_text((double)info->slot_nodes, text));
    (void)printf("%d worker%s\n", info->workers, info->workers == 1 ? "" : "s");
    cli_flush();
}

static double percent(int64_t part, int64_t all)
{
    return all > 0 ? 100 * (double)part / (double)all : 0;
}

static void print_epoch(const bench_t *bench, const plim_plan_info_t *info,
                        const bench_epoch_t *epoch)
{
    const plim_load_stats_t *stats = &epoch->stats;
    char edges[24], rows[24], transfers[24], bytes[24], took[24], waited[24];
    if (bench->common.json)
        return;
    (void)printf("epoch %" PRId64 ": %" PRId64 " batches in %s, %.1f batches/s, %s edges/s",
                 epoch->epoch, stats->batches, seconds_text(epoch->seconds, took),
                 per_second((double)stats->batches, epoch->seconds),
                 cli_count_text(per_second((double)stats->edges, epoch->seconds), edges));
    if (bench->has_rows)
        (void)printf(", %s rows/s",
                     cli_count_text(per_second((double)stats->nodes, epoch->seconds), rows));
    if (stats->parts > stats->batches)
        (void)printf(", %" PRId64 " parts", stats->parts);
    if (stats->windows > 0) {
        if (stats->lists_cached > 0 && info->topology == PLIM_PLACE_DISK)
            (void)printf("; lists %.1f %% cached", percent(stats->lists_cached, stats->lists));
        if (stats->rows_cached > 0 && info->rows == PLIM_PLACE_DISK)
            (void)printf("; rows %.1f %% cached", percent(stats->rows_cached, stats->rows));
        (void)printf(
            "; %s I/Os, %s read, waited %s",
            cli_count_text((double)(stats->list_transfers + stats->row_transfers), transfers),
            plim_size_text(stats->list_bytes + stats->row_bytes, bytes),
            seconds_text(stats->wait_seconds, waited));
    }
    if (epoch->hashed)
        (void)printf("; hash %016" PRIx64, epoch->hash);
    (void)printf("\n");
    cli_flush();
}

static void add_real(json_t *object, const char *name, double value)
{
    (void)json_object_set_new(object, name, json_real(value));
}

static json_t *describe_epoch(const bench_epoch_t *epoch)
{
    const plim_load_stats_t *stats = &epoch->stats;
    json_t *object = json_object();
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {
        {"epoch", epoch->epoch},
        {"batches", stats->batches},
        {"parts", stats->parts},
        {"edges", stats->edges},
        {"nodes", stats->nodes},
        {"lists", stats->lists},
        {"lists_cached", stats->lists_cached},
        {"list_transfers", stats->list_transfers},
        {"list_bytes", stats->list_bytes},
        {"rows", stats->rows},
        {"rows_cached", stats->rows_cached},
        {"rows_lost", stats->rows_lost},
        {"row_transfers", stats->row_transfers},
        {"row_bytes", stats->row_bytes},
        {"windows", stats->windows},
        {"window_steps", stats->window_steps},
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        (void)json_object_set_new(object, counts[i].name, json_integer(counts[i].value));
    add_real(object, "seconds", epoch->seconds);
    add_real(object, "batches_per_second", per_second((double)stats->batches, epoch->seconds));
    add_real(object, "edges_per_second", per_second((double)stats->edges, epoch->seconds));
    add_real(object, "rows_per_second", per_second((double)stats->nodes, epoch->seconds));
    add_real(object, "wait_seconds", stats->wait_seconds);
    add_real(object, "starved_seconds", stats->starved_seconds);
    if (epoch->hashed) {
        char text[17];
        (void)snprintf(text, sizeof text, "%016" PRIx64, epoch->hash);
        (void)json_object_set_new(object, "hash", json_string(text));
    }
    return object;
}

static plim_status_t run_epochs(bench_t *bench, const plim_job_t *job,
                                const plim_dataset_t *dataset, const plim_plan_t *plan,
                                const plim_plan_info_t *info, json_t *object)
{
    plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
    plim_loader_t *loader;
    plim_stream_t *stream = NULL;
    bench_epoch_t epoch = {0};
    json_t *epochs = object != NULL ? json_array() : NULL;
    if (epochs != NULL)
        (void)json_object_set_new(object, "epochs", epochs);
    if (bench->epochs == 0)
        return PLIM_OK;
    const int64_t began = plim__clock_ns();
    plim_status_t status = plim_loader_create(job, dataset, plan, &loader);
    if (status != PLIM_OK)
        return status;
    params.split = bench->split;
    params.shuffle = bench->split == PLIM_TRAIN;
    status = plim_loader_stream(loader, &params, &stream);
    if (object != NULL)
        (void)json_object_set_new(object, "create_seconds",
                                  json_real(plim__clock_seconds_since(began)));
    for (int64_t i = 0; i < bench->epochs && status == PLIM_OK; i++) {
        status = run_epoch(bench, loader, stream, bench->first_epoch + i, &epoch);
        if (status == PLIM_OK) {
            print_epoch(bench, info, &epoch);
            if (epochs != NULL)
                (void)json_array_append_new(epochs, describe_epoch(&epoch));
        }
    }
    plim_stream_release(stream);
    plim_loader_release(loader);
    return status;
}

/* Fills in missing options from the dataset. */
static void resolve_recipe(bench_t *bench, const plim_dataset_info_t *info)
{
    plim_recipe_t *recipe = &bench->recipe;
    if (info->num_graphs > 0 && !cli_given(&bench->common, "fanout"))
        recipe->num_hops = 0;
    if (!cli_given(&bench->common, "rows") && info->feature_type == PLIM_F16)
        recipe->row_type = PLIM_F16;
    recipe->no_features = strcmp(bench->what, "sample") == 0;
    bench->has_rows = !recipe->no_features && info->num_features > 0;
}

/* With --json, *object holds the plan and the finished epochs, also of a run that failed. */
static plim_status_t run_bench(bench_t *bench, plim_job_t *job, const plim_dataset_t *dataset,
                               json_t **object)
{
    plim_plan_t *plan;
    resolve_recipe(bench, plim_dataset_info(dataset));
    plim_status_t status = plim_load_plan(job, dataset, &bench->recipe, &bench->params, &plan);
    if (status != PLIM_OK)
        return status;
    cli_plan_t figures;
    status = cli_plan_read(plan, &figures);
    print_plan(bench, &figures);
    if (bench->common.json)
        *object = json_pack("{s:s, s:o}", "what", bench->what, "plan", cli_plan_json(&figures));
    if (status == PLIM_OK)
        status = run_epochs(bench, job, dataset, plan, &figures.info, *object);
    plim_plan_release(plan);
    if (status == PLIM_OK)
        cli_job_report(job, *object);
    return status;
}

/* Whether the split has seeds. False after an error message. */
static bool check_split(const bench_t *bench, const plim_dataset_info_t *info)
{
    static const char *const words[] = {"train", "valid", "test"};
    static const char *const names[] = {"training", "validation", "test"};
    const int64_t *counts = info->num_split;
    const int other = bench->split == PLIM_VALID ? PLIM_TEST : PLIM_VALID;
    if (counts[bench->split] > 0 && counts[PLIM_TRAIN] > 0)
        return true;
    if (counts[PLIM_TRAIN] == 0)
        (void)cli_wrong_use(&bench->common,
                            "%s has no training split, which bench needs for its plan with any "
                            "--split; import it with one",
                            bench->path);
    else
        (void)cli_wrong_use(&bench->common, "%s: the %s split is empty; choose --split train%s%s",
                            bench->path, names[bench->split], counts[other] > 0 ? " or " : "",
                            counts[other] > 0 ? words[other] : "");
    return false;
}

static int run(int argc, char **argv)
{
    bench_t bench = {.common = {.verb = &cli_verb_bench},
                     .recipe = PLIM_RECIPE_INIT,
                     .params = PLIM_PLAN_PARAMS_INIT,
                     .epochs = 2};
    plim_dataset_t *dataset;
    plim_job_t *job;
    json_t *object = NULL;
    bool served = true;
    int exit_code;
    if (!cli_read_options(argc, argv, &bench, &exit_code))
        return exit_code;
    if (argc - optind != 2)
        return cli_wrong_use(&bench.common, "say what to measure and where, like: plimsoll "
                                            "bench load DIR");
    bench.what = argv[optind];
    if (strcmp(bench.what, "sample") != 0 && strcmp(bench.what, "load") != 0) {
        cli_nearest_t nearest = {NULL, 0};
        char hint[96];
        cli_nearest_try(&nearest, bench.what, "sample");
        cli_nearest_try(&nearest, bench.what, "load");
        return cli_wrong_use(&bench.common, "it measures sample or load, not '%s'%s", bench.what,
                             cli_nearest_text(&nearest, "", hint));
    }
    bench.path = argv[optind + 1];
    if (bench.stage && bench.params.scratch == NULL)
        return cli_wrong_use(&bench.common, CLI_STAGE_WHERE);
    if (!cli_check_scratch(&bench.common, bench.path, bench.params.scratch))
        return CLI_WRONG_USE;
    plim_status_t status = cli_job_start(&bench.common, &job);
    if (status != PLIM_OK)
        return cli_failed(&bench.common, status);
    status = cli_open_dataset(job, bench.path, bench.stage ? bench.params.scratch : NULL, &dataset);
    if (status == PLIM_OK) {
        served = check_split(&bench, plim_dataset_info(dataset));
        if (served)
            status = run_bench(&bench, job, dataset, &object);
        plim_dataset_release(dataset);
    }
    cli_job_end(job);
    if (!served)
        return CLI_WRONG_USE;
    if (status != PLIM_OK)
        return cli_failed_with(&bench.common, status, plim_last_error(), object);
    if (object != NULL)
        cli_print_json(object);
    return CLI_DONE;
}

const cli_verb_t cli_verb_bench = {
    .name = "bench",
    .single = true,
    .summary = "measure how fast batches are sampled or loaded",
    .help =
        "usage: plimsoll bench sample|load DIR [options]\n\n"
        "Measures batches of the dataset DIR: sample draws neighbourhoods, load also brings rows\n"
        "and labels. Prints the memory plan, then one line an epoch. The batches depend on the\n"
        "recipe alone, never on memory, threads or engine.\n",
    .groups = groups,
    .first_operand = measured,
    .operand = ":directory",
    .run = run,
};
