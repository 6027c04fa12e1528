/* How fast batches come, or their parts, beside what the machine alone would do. */
#include "verb_bench.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
    OPTION_HOT_ROWS,
    OPTION_HOT_LISTS,
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
    {"hot-rows", required_argument, NULL, OPTION_HOT_ROWS},
    {"hot-lists", required_argument, NULL, OPTION_HOT_LISTS},
    {"scratch", required_argument, NULL, OPTION_SCRATCH},
    {"stage", no_argument, NULL, OPTION_STAGE},
    {"hash", no_argument, NULL, OPTION_HASH},
    CLI_COMMON_OPTIONS};

/* Options that are one of a few words. False when it is none, already said. */
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

/* False when the option's value is none, already said. */
static bool take_option(int code, bench_t *bench, int argc, char **argv)
{
    const cli_common_t *common = &bench->common;
    int64_t value;
    switch (code) {
    case OPTION_BATCH:
        return cli_parse_int(common, "--batch", optarg, 1, INT32_MAX, &bench->recipe.batch_size);
    case OPTION_FANOUT:
        bench->fanout_given = true;
        return cli_parse_fanout(common, argc, argv, &bench->recipe);
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
    case OPTION_HOT_ROWS:
        return cli_parse_cache(common, "--hot-rows", &bench->params.row_cache);
    case OPTION_HOT_LISTS:
        return cli_parse_cache(common, "--hot-lists", &bench->params.list_cache);
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

/* What was done between two readings. */
static plim_load_stats_t difference(const plim_load_stats_t *from, const plim_load_stats_t *to)
{
    plim_load_stats_t stats = *to; /* window_steps is of the last one */
    stats.batches -= from->batches;
    stats.parts -= from->parts;
    stats.edges -= from->edges;
    stats.nodes -= from->nodes;
    stats.windows -= from->windows;
    stats.lists -= from->lists;
    stats.lists_hot -= from->lists_hot;
    stats.list_transfers -= from->list_transfers;
    stats.list_bytes -= from->list_bytes;
    stats.rows -= from->rows;
    stats.rows_hot -= from->rows_hot;
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
    plim_load_stats_t before, after;
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

/* At most so many of an epoch's transfers or copies are repeated: a second or two. */
enum { BARE_READS = 200000, BARE_COPIES = 20000000 };

static int64_t at_most(int64_t value, int64_t most)
{
    return value < most ? value : most;
}

/* As many transfers, or copies, as the last epoch made, of the same mean size. */
static plim_status_t measure_bare(const bench_t *bench, const plim_job_t *job,
                                  const plim_dataset_t *dataset, const plim_plan_t *plan, int depth,
                                  const bench_epoch_t *epoch, bench_bare_t *bare)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const plim_load_stats_t *stats = &epoch->stats;
    bool rows = stats->row_transfers >= stats->list_transfers && bench->what == BENCH_LOAD;
    int64_t transfers = rows ? stats->row_transfers : stats->list_transfers;
    int64_t bytes = rows ? stats->row_bytes : stats->list_bytes;
    bare->file = rows ? "features.npy" : "indices.npy";
    if (transfers > 0) {
        bare->kind = "reads";
        return plim_bench_reads(job, dataset, bare->file, at_most(transfers, BARE_READS),
                                bytes / transfers, depth, bench->recipe.seed, &bare->result);
    }
    if (stats->edges + stats->nodes == 0)
        return PLIM_OK;
    bare->kind = "memcpy";
    if (bench->what == BENCH_LOAD && info->num_features > 0) {
        int64_t row = info->num_features * (info->feature_type == PLIM_F16 ? 2 : 4);
        bare->file = "features.npy";
        return plim_bench_copies(job, plim_plan_peak(plan), info->num_nodes * row,
                                 at_most(stats->nodes, BARE_COPIES), row, bench->recipe.seed,
                                 &bare->result);
    }
    int64_t entry = info->index_type == PLIM_I32 ? 4 : 8;
    return plim_bench_copies(job, plim_plan_peak(plan), info->num_edges * entry,
                             at_most(stats->edges, BARE_COPIES), entry, bench->recipe.seed,
                             &bare->result);
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
            bench_say_epoch(bench, choices, &epoch);
            if (epochs != NULL)
                (void)json_array_append_new(epochs, bench_json_epoch(&epoch));
        }
    }
    plim_stream_release(stream);
    plim_loader_release(loader);
    if (status != PLIM_OK)
        return status;
    bench_bare_t bare = {0};
    status = measure_bare(bench, job, dataset, plan, (int)cli_json_int(choices, "io_depth"), &epoch,
                          &bare);
    bench_say_bare(bench, &bare);
    if (status == PLIM_OK && object != NULL && bare.kind != NULL)
        (void)json_object_set_new(object, "bare", bench_json_bare(&bare));
    return status;
}

/* Calls of a batch each: as many as --batches says, else some seconds' worth. */
enum { GATHER_ROWS = 1 << 20 };

static plim_status_t run_gather(bench_t *bench, const plim_job_t *job,
                                const plim_dataset_t *dataset, const plim_plan_t *plan,
                                const json_t *choices, json_t *object)
{
    plim_bench_result_t gather;
    bench_bare_t bare = {.kind = cli_json_is(choices, "features", "memory") ? "memcpy" : "reads",
                         .file = "features.npy"};
    int64_t calls = bench->batches;
    if (calls == 0)
        calls = GATHER_ROWS / bench->recipe.batch_size + 1;
    if (bench->epochs == 0)
        return PLIM_OK;
    plim_status_t status = plim_bench_gather(job, dataset, plan, calls, &gather, &bare.result);
    if (status != PLIM_OK)
        return status;
    bench_say_gather(bench, &gather);
    bench_say_bare(bench, &bare);
    if (object != NULL) {
        (void)json_object_set_new(object, "gather", bench_json_gather(&gather));
        (void)json_object_set_new(object, "bare", bench_json_bare(&bare));
    }
    return PLIM_OK;
}

/* What the dataset decides unless the user did. */
static void settle_recipe(bench_t *bench, const plim_dataset_info_t *info)
{
    plim_recipe_t *recipe = &bench->recipe;
    if (info->num_graphs > 0 && !bench->fanout_given)
        recipe->num_hops = 0;
    if (!bench->rows_given && info->num_features > 0)
        recipe->row_type = info->feature_type;
    recipe->no_features = bench->what == BENCH_SAMPLE;
    bench->has_rows = bench->what != BENCH_SAMPLE && info->num_features > 0;
}

/* With --json *object is what was found, the plan and finished epochs of a run that failed too. */
static plim_status_t run_bench(bench_t *bench, plim_job_t *job, const plim_dataset_t *dataset,
                               json_t **object)
{
    plim_plan_t *plan;
    settle_recipe(bench, plim_dataset_info(dataset));
    plim_status_t status =
        bench->what == BENCH_GATHER
            ? plim_bench_gather_plan(job, dataset, &bench->recipe, &bench->params, &plan)
            : plim_load_plan(job, dataset, &bench->recipe, &bench->params, &plan);
    if (status != PLIM_OK)
        return status;
    json_t *choices = cli_json_plan(plan);
    bench_say_plan(bench, choices);
    if (bench->common.json)
        *object = json_pack("{s:s, s:O}", "what", bench_what_name(bench->what), "plan", choices);
    status = bench->what == BENCH_GATHER ? run_gather(bench, job, dataset, plan, choices, *object)
                                         : run_epochs(bench, job, dataset, plan, choices, *object);
    json_decref(choices);
    plim_plan_release(plan);
    if (status == PLIM_OK)
        cli_job_report(job, *object);
    return status;
}

/* The dataset, or with --stage its copy on the scratch disk. */
static plim_status_t open_dataset(const bench_t *bench, const plim_job_t *job,
                                  plim_dataset_t **dataset_out)
{
    char path[PLIM_PATH_MAX];
    plim_status_t status = plim_dataset_open(job, bench->path, dataset_out);
    if (status != PLIM_OK || !bench->stage)
        return status;
    status = plim_dataset_stage(job, *dataset_out, bench->params.scratch, path);
    plim_dataset_release(*dataset_out);
    return status == PLIM_OK ? plim_dataset_open(job, path, dataset_out) : status;
}

/* Whether there is something to draw for. False when there is not, already said. */
static bool check_split(const bench_t *bench, const plim_dataset_info_t *info)
{
    static const char *const words[] = {"train", "valid", "test"};
    static const char *const names[] = {"training", "validation", "test"};
    const int64_t *counts = info->num_split;
    const int other = bench->split == PLIM_VALID ? PLIM_TEST : PLIM_VALID;
    if (bench->what == BENCH_GATHER || (counts[bench->split] > 0 && counts[PLIM_TRAIN] > 0))
        return true;
    if (counts[PLIM_TRAIN] == 0)
        (void)cli_wrong_use(&bench->common,
                            "%s: it has no training split, and bench needs one to plan by, "
                            "whatever --split says; import it with one",
                            bench->path);
    else
        (void)cli_wrong_use(&bench->common, "%s: its %s split is empty; choose --split train%s%s",
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
    plim_limits_t limits;
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
        return cli_wrong_use(&bench.common, "what to measure (sample, gather or load) and a "
                                            "dataset directory are needed");
    while (bench.what <= BENCH_LOAD && strcmp(argv[optind], bench_what_name(bench.what)) != 0)
        bench.what++;
    if (bench.what > BENCH_LOAD)
        return cli_wrong_use(&bench.common, "sample, gather or load can be measured, not '%s'",
                             argv[optind]);
    bench.path = argv[optind + 1];
    if (bench.stage && bench.params.scratch == NULL)
        return cli_wrong_use(&bench.common, "--stage needs --scratch DIR, where the copy goes");
    if (!cli_check_scratch(&bench.common, bench.path, bench.params.scratch))
        return CLI_WRONG_USE;
    plim_status_t status = cli_job_start(&bench.common, &job, &limits);
    if (status != PLIM_OK)
        return cli_failed(&bench.common, status);
    status = open_dataset(&bench, job, &dataset);
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
        return cli_failed_after(&bench.common, status, object);
    if (object != NULL)
        cli_print_json(object);
    return CLI_DONE;
}

const cli_verb_t cli_verb_bench = {
    .name = "bench",
    .summary = "how fast batches come, beside the bare machine",
    .help =
        "usage: plimsoll bench sample|gather|load DIR [options]\n\n"
        "Measures batches of the dataset DIR: sample draws neighbourhoods, load brings the rows\n"
        "and labels too, gather takes rows of random nodes from the row source alone. First it\n"
        "says what it will hold in memory; then a line an epoch; then what the bare disk or\n"
        "memory does with as many transfers. The batches depend on the recipe alone, never on\n"
        "memory, threads or engine.\n\n"
        "The recipe:\n"
        "  --batch N        seeds a batch (also --batch_size); default 1024\n"
        "  --fanout A,B,..  neighbours drawn at each hop, -1: all (also --num_neighbors);\n"
        "                   default 10,10; none in a dataset of many graphs\n"
        "  --replace        draw with replacement\n"
        "  --form FORM      native, or pyg: each node draws once, as in PyTorch Geometric\n"
        "  --seed S         of all draws; default 0\n"
        "  --rows TYPE      rows as f16 or f32; default: as stored\n"
        "  --ids BITS       ids of 32 (default) or 64 bits\n\n"
        "How much:\n"
        "  --split NAME     train (default), valid or test\n"
        "  --epoch E        the first epoch; default 0\n"
        "  --step S         the first step of the first epoch; default 0\n"
        "  --epochs N       how many; default 2; 0: only the plan\n"
        "  --batches N      at most so many an epoch, or calls of gather\n"
        "  --hash           the hash of each epoch's batches\n\n"
        "Choices that the plan makes otherwise:\n"
        "  --slots N        batches in flight\n"
        "  --window N       at most so many steps are sampled as a whole\n"
        "  --topology WHERE neighbour lists in memory or on disk\n"
        "  --features WHERE rows in memory or on disk\n"
        "  --hot-lists SIZE lists kept in memory when they lie on disk; none: no such\n"
        "  --hot-rows SIZE  rows kept in memory when they lie on disk; none: no such\n"
        "  --scratch DIR    a local disk, where the kept rows wait for the next start\n"
        "  --stage          copy the whole dataset to --scratch first, and read it there\n",
    .run = run,
};
