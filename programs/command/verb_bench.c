/* `plimsoll bench`: measures how fast batches are sampled or loaded. */
#include "command/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

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
    bool fanout_given;
    bool rows_given;
    bool has_rows; /* batches carry rows */
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

enum {
    OPTION_BATCH = CLI_OPTION_OWN,
    OPTION_FANOUT,
    OPTION_REPLACE,
    OPTION_FORM,
    OPTION_SEED,
    OPTION_SPLIT,
    OPTION_EPOCH,
    OPTION_STEP,
    OPTION_EPOCHS,
    OPTION_BATCHES,
    OPTION_ROWS,
    OPTION_IDS,
    OPTION_SLOTS,
    OPTION_WINDOW,
    OPTION_TOPOLOGY,
    OPTION_FEATURES,
    OPTION_ROW_CACHE,
    OPTION_LIST_CACHE,
    OPTION_SCRATCH,
    OPTION_STAGE,
    OPTION_HASH
};

static const struct option long_options[] = {
    {"batch", required_argument, NULL, OPTION_BATCH},
    {"batch-size", required_argument, NULL, OPTION_BATCH},
    {"fanout", required_argument, NULL, OPTION_FANOUT},
    {"num-neighbors", required_argument, NULL, OPTION_FANOUT},
    {"replace", no_argument, NULL, OPTION_REPLACE},
    {"form", required_argument, NULL, OPTION_FORM},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"split", required_argument, NULL, OPTION_SPLIT},
    {"epoch", required_argument, NULL, OPTION_EPOCH},
    {"step", required_argument, NULL, OPTION_STEP},
    {"epochs", required_argument, NULL, OPTION_EPOCHS},
    {"batches", required_argument, NULL, OPTION_BATCHES},
    {"rows", required_argument, NULL, OPTION_ROWS},
    {"ids", required_argument, NULL, OPTION_IDS},
    {"slots", required_argument, NULL, OPTION_SLOTS},
    {"window", required_argument, NULL, OPTION_WINDOW},
    {"topology", required_argument, NULL, OPTION_TOPOLOGY},
    {"features", required_argument, NULL, OPTION_FEATURES},
    {"row-cache", required_argument, NULL, OPTION_ROW_CACHE},
    {"list-cache", required_argument, NULL, OPTION_LIST_CACHE},
    {"scratch", required_argument, NULL, OPTION_SCRATCH},
    {"stage", no_argument, NULL, OPTION_STAGE},
    {"hash", no_argument, NULL, OPTION_HASH},
    CLI_COMMON_OPTIONS};

/* Options whose value is one of a few words. False after an error message. */
static bool take_word(int code, bench_t *bench)
{
    static const char *const forms[] = {"native", "pyg", NULL};
    static const char *const splits[] = {"train", "valid", "test", NULL};
    static const char *const row_types[] = {"f16", "f32", NULL};
    static const char *const id_bits[] = {"32", "64", NULL};
    static const char *const places[] = {"memory", "disk", NULL};
    int word;
    switch (code) {
    case OPTION_FORM:
        word = cli_parse_word(&bench->common, "--form", forms);
        bench->recipe.form = word == 1 ? PLIM_PYG : PLIM_NATIVE;
        return word >= 0;
    case OPTION_SPLIT:
        word = cli_parse_word(&bench->common, "--split", splits);
        bench->split = word == 2 ? PLIM_TEST : word == 1 ? PLIM_VALID : PLIM_TRAIN;
        return word >= 0;
    case OPTION_ROWS:
        word = cli_parse_word(&bench->common, "--rows", row_types);
        bench->recipe.row_type = word == 0 ? PLIM_F16 : PLIM_F32;
        bench->rows_given = true;
        return word >= 0;
    case OPTION_IDS:
        word = cli_parse_word(&bench->common, "--ids", id_bits);
        bench->recipe.index_type = word == 0 ? PLIM_I32 : PLIM_I64;
        return word >= 0;
    case OPTION_TOPOLOGY:
        word = cli_parse_word(&bench->common, "--topology", places);
        bench->params.topology = word + 1;
        return word >= 0;
    default:
        word = cli_parse_word(&bench->common, "--features", places);
        bench->params.rows = word + 1;
        return word >= 0;
    }
}

/* False after an error message. */
static bool take_option(int code, bench_t *bench, int argc, char **argv)
{
    const cli_common_t *common = &bench->common;
    int64_t value;
    switch (code) {
    case OPTION_BATCH:
        return cli_parse_int(common, "--batch", optarg, 1, INT32_MAX, &bench->recipe.batch_size);
    case OPTION_FANOUT:
        bench->fanout_given = true;
        return cli_parse_fanout(common, "--fanout", argc, argv, &bench->recipe);
    case OPTION_REPLACE:
        bench->recipe.replace = true;
        return true;
    case OPTION_SEED:
        return cli_parse_seed(common, &bench->recipe.seed);
    case OPTION_EPOCH:
        return cli_parse_int(common, "--epoch", optarg, 0, INT32_MAX, &bench->first_epoch);
    case OPTION_STEP:
        return cli_parse_int(common, "--step", optarg, 0, INT64_MAX, &bench->first_step);
    case OPTION_EPOCHS:
        return cli_parse_int(common, "--epochs", optarg, 0, INT32_MAX, &bench->epochs);
    case OPTION_BATCHES:
        return cli_parse_int(common, "--batches", optarg, 1, INT64_MAX, &bench->batches);
    case OPTION_SLOTS:
        if (!cli_parse_int(common, "--slots", optarg, 1, 64, &value))
            return false;
        bench->params.num_slots = (int)value;
        return true;
    case OPTION_WINDOW:
        return cli_parse_int(common, "--window", optarg, 1, INT64_MAX, &bench->params.window);
    case OPTION_ROW_CACHE:
        return cli_parse_cache(common, "--row-cache", &bench->params.row_cache);
    case OPTION_LIST_CACHE:
        return cli_parse_cache(common, "--list-cache", &bench->params.list_cache);
    case OPTION_SCRATCH:
        bench->params.scratch = optarg;
        return true;
    case OPTION_STAGE:
        bench->stage = true;
        return true;
    case OPTION_HASH:
        bench->hash = true;
        return true;
    default:
        return take_word(code, bench);
    }
}

static double seconds_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

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
    double began = seconds_now();
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
    double seconds = seconds_now() - began;
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

static bool in_memory(const json_t *plan, const char *name)
{
    return cli_json_is(plan, name, "memory");
}

static void print_plan(const bench_t *bench, const json_t *plan)
{
    const int64_t line = cli_json_int(plan, "line_bytes"), slots = cli_json_int(plan, "slots");
    const int64_t steps = cli_json_int(plan, "window_steps"),
                  workers = cli_json_int(plan, "workers");
    const json_t *account;
    size_t i;
    char text[24], minimum[24];
    if (bench->common.json)
        return;
    json_array_foreach(json_object_get(plan, "accounts"), i, account)(void)
        printf("  %-18s %12s\n", json_string_value(json_object_get(account, "name")),
               plim_size_text(cli_json_int(account, "bytes"), text));
    (void)printf("  %-18s %12s  planned peak\n", "total",
                 plim_size_text(cli_json_int(plan, "total_bytes"), text));
    if (line > 0)
        (void)printf("  %-18s %12s  minimum %s\n", "line", plim_size_text(line, text),
                     cli_minimum_text(plan, minimum));
    (void)printf("topology %s, ", in_memory(plan, "topology") ? "in memory" : "on disk");
    if (bench->has_rows)
        (void)printf("rows %s, ", in_memory(plan, "features") ? "in memory" : "on disk");
    if (steps > 0)
        (void)printf("windows of up to %" PRId64 " steps, ", steps);
    if (slots > 0)
        (void)printf("%" PRId64 " slots of %s nodes, ", slots,
                     cli_count_text((double)cli_json_int(plan, "slot_nodes"), text));
    (void)printf("%" PRId64 " worker%s\n", workers, workers == 1 ? "" : "s");
    cli_flush();
}

static double percent(int64_t part, int64_t all)
{
    return all > 0 ? 100 * (double)part / (double)all : 0;
}

static void print_epoch(const bench_t *bench, const json_t *plan, const bench_epoch_t *epoch)
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
        if (stats->lists_cached > 0 && !in_memory(plan, "topology"))
            (void)printf("; lists %.1f %% cached", percent(stats->lists_cached, stats->lists));
        if (stats->rows_cached > 0 && !in_memory(plan, "features"))
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
                                const json_t *choices, json_t *object)
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
    double began = seconds_now();
    plim_status_t status = plim_loader_create(job, dataset, plan, &loader);
    if (status != PLIM_OK)
        return status;
    params.split = bench->split;
    params.shuffle = bench->split == PLIM_TRAIN;
    status = plim_loader_stream(loader, &params, &stream);
    if (object != NULL)
        (void)json_object_set_new(object, "create_seconds", json_real(seconds_now() - began));
    for (int64_t i = 0; i < bench->epochs && status == PLIM_OK; i++) {
        status = run_epoch(bench, loader, stream, bench->first_epoch + i, &epoch);
        if (status == PLIM_OK) {
            print_epoch(bench, choices, &epoch);
            if (epochs != NULL)
                (void)json_array_append_new(epochs, describe_epoch(&epoch));
        }
    }
    plim_stream_release(stream);
    plim_loader_release(loader);
    return status;
}

/* Fills in missing options from the dataset. */
static void settle_recipe(bench_t *bench, const plim_dataset_info_t *info)
{
    plim_recipe_t *recipe = &bench->recipe;
    if (info->num_graphs > 0 && !bench->fanout_given)
        recipe->num_hops = 0;
    if (!bench->rows_given && info->num_features > 0)
        recipe->row_type = info->feature_type;
    recipe->no_features = strcmp(bench->what, "sample") == 0;
    bench->has_rows = !recipe->no_features && info->num_features > 0;
}

/* With --json, *object holds the plan and the finished epochs, also of a run that failed. */
static plim_status_t run_bench(bench_t *bench, plim_job_t *job, const plim_dataset_t *dataset,
                               json_t **object)
{
    plim_plan_t *plan;
    settle_recipe(bench, plim_dataset_info(dataset));
    plim_status_t status = plim_load_plan(job, dataset, &bench->recipe, &bench->params, &plan);
    if (status != PLIM_OK)
        return status;
    json_t *choices = cli_json_plan(plan);
    print_plan(bench, choices);
    if (bench->common.json)
        *object = json_pack("{s:s, s:O}", "what", bench->what, "plan", choices);
    status = run_epochs(bench, job, dataset, plan, choices, *object);
    json_decref(choices);
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
    int exit_code, code;
    while ((code = cli_next_option(argc, argv, long_options, &bench.common, &exit_code)) != -1) {
        if (code == -2)
            return exit_code;
        if (!take_option(code, &bench, argc, argv))
            return CLI_WRONG_USE;
    }
    if (argc - optind != 2)
        return cli_wrong_use(&bench.common, "bench needs two words: sample or load, and a dataset "
                                            "directory");
    bench.what = argv[optind];
    if (strcmp(bench.what, "sample") != 0 && strcmp(bench.what, "load") != 0) {
        cli_nearest_t nearest = {NULL, 0};
        char hint[96];
        cli_nearest_try(&nearest, bench.what, "sample");
        cli_nearest_try(&nearest, bench.what, "load");
        return cli_wrong_use(&bench.common, "bench measures sample or load, not '%s'%s", bench.what,
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
        "recipe alone, never on memory, threads or engine.\n\n"
        "The recipe:\n"
        "  --batch N        seeds in a batch (also --batch_size); default 1024\n"
        "  --fanout A,B,..  neighbours drawn at each hop, -1: all (also --num_neighbors);\n"
        "                   default 10,10; none in a dataset of many graphs\n"
        "  --replace        draw with replacement\n"
        "  --form FORM      native, or pyg: each node draws once, as in PyTorch Geometric\n"
        "  --seed S         seed of all random draws; default 0\n"
        "  --rows TYPE      rows as f16 or f32; default: as stored\n"
        "  --ids BITS       ids of 32 (default) or 64 bits\n\n"
        "How much:\n"
        "  --split NAME     train (default), valid or test\n"
        "  --epoch E        the first epoch; default 0\n"
        "  --step S         the first step of the first epoch; default 0\n"
        "  --epochs N       number of epochs; default 2; 0 = only plan\n"
        "  --batches N      at most N batches an epoch\n"
        "  --hash           print a hash of each epoch's batches\n\n"
        "The planner chooses these unless they are given:\n"
        "  --slots N        batches in flight\n"
        "  --window N       sample at most N steps as one window\n"
        "  --topology WHERE neighbour lists in memory or on disk\n"
        "  --features WHERE rows in memory or on disk\n"
        "  --list-cache SIZE size of the cache for lists on disk, or none\n"
        "  --row-cache SIZE  size of the cache for rows on disk, or none\n"
        "  --scratch DIR    a local disk that keeps the cached rows for the next start\n"
        "  --stage          copy the dataset to --scratch first and read it there\n",
    .run = run,
};
