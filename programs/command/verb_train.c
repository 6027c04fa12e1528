/* `plimsoll train`: trains a model, or continues a run. */
#include "command/verb_train.h"
#include "base/fail.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reports why a directory could not be made; returns the exit code. */
static int refuse_directory(const train_t *train, const char *path, int error)
{
    char message[PLIM_PATH_MAX + 128];
    if (!plim__disk_full(error))
        return cli_wrong_use(&train->common, "cannot create %s: %s; name a directory with --run",
                             path, strerror(error));
    (void)snprintf(
        message, sizeof message,
        "cannot create %s: %s; free disk space, or name a directory on another disk with "
        "--run",
        path, strerror(error));
    return cli_failed_with(&train->common, PLIM_ERR_SPACE, message, NULL);
}

/* Creates the parent directories of `path`. Returns CLI_DONE, or the exit code after an error
 * message. */
static int make_parents(const train_t *train, const char *path)
{
    char part[PLIM_PATH_MAX];
    const size_t length = strlen(path);
    if (length == 0 || length >= sizeof part)
        return cli_wrong_use(&train->common, "--run: '%s' is not the name of a directory", path);
    memcpy(part, path, length + 1);
    for (size_t end = length; end > 1 && part[end - 1] == '/'; end--)
        part[end - 1] = '\0';
    for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return refuse_directory(train, part, errno);
        *slash = '/';
    }
    return CLI_DONE;
}

void train_name_run(const train_t *train, char name_out[256])
{
    const char *dataset = train->dataset;
    size_t length = strlen(dataset);
    while (length > 0 && dataset[length - 1] == '/')
        length--;
    size_t begin = length;
    while (begin > 0 && dataset[begin - 1] != '/')
        begin--;
    char name[201];
    (void)snprintf(name, sizeof name, "%.*s", (int)(length - begin < 200 ? length - begin : 200),
                   dataset + begin);
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        (void)snprintf(name, sizeof name, "run");
    (void)snprintf(name_out, 256, "runs/%s-%s", name,
                   plim_words(PLIM_WORDS_MODEL)[train->training.model.kind]);
}

/* Creates runs/DATASET-MODEL-N with the first free N; mkdir resolves races between jobs. Returns
 * the same codes. */
static int choose_run(const train_t *train, char run_out[PLIM_PATH_MAX])
{
    char name[256];
    train_name_run(train, name);
    if (mkdir("runs", 0777) == 0 || errno == EEXIST)
        for (int number = 1; number < 1000000; number++) {
            (void)snprintf(run_out, PLIM_PATH_MAX, "%s-%d", name, number);
            if (mkdir(run_out, 0777) == 0)
                return CLI_DONE;
            if (errno != EEXIST)
                break;
        }
    return refuse_directory(train, "a directory in runs/", errno);
}

/* --epochs is less than the run has; returns the exit code. */
static int refuse_epochs(const train_t *train, const plim_run_info_t *info)
{
    const int64_t given = train->training.epochs, done = info->epochs_done;
    const int64_t all = info->training.epochs;
    if (done >= all)
        return cli_wrong_use(&train->common,
                             "--epochs: the run has %" PRId64 " epochs already; use --epochs "
                             "+%" PRId64 " to train as many more",
                             done, given);
    return cli_wrong_use(&train->common,
                         "--epochs %" PRId64 " is the total; the run has %" PRId64 " of %" PRId64
                         " epochs: --resume %s alone continues to %" PRId64 ", --epochs %" PRId64
                         " ends at %" PRId64,
                         given, done, all, train->resume, all, done + given, done + given);
}

/* Reads the run's settings and applies the command line to them. */
static plim_status_t take_run(train_t *train, const plim_job_t *job, int argc, char **argv,
                              plim_run_info_t *info, int *exit_out)
{
    plim_status_t status = plim_run_read(job, train->resume, info);
    if (status != PLIM_OK)
        return status;
    train->training = info->training;
    const struct {
        const char **to;
        const char *path;
    } files[] = {{&train->training.pairs, info->pairs},
                 {&train->training.valid_pairs, info->valid_pairs},
                 {&train->training.valid_negatives, info->valid_negatives}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        *files[i].to = files[i].path[0] != '\0' ? files[i].path : NULL;
    if (!train_read_options(argc, argv, train, exit_out))
        return PLIM_OK;
    if (train->dataset == NULL)
        train->dataset = info->dataset;
    train->params.part_seeds = info->part_seeds;
    train->params.part_nodes = info->part_nodes;
    train->params.part_edges = info->part_edges;
    if (train->more_epochs > 0) {
        train->training.epochs = info->training.epochs + train->more_epochs;
    } else if (cli_given(&train->common, "epochs") && !train->requeued &&
               train->training.epochs < info->epochs_done) {
        *exit_out = refuse_epochs(train, info);
    }
    return PLIM_OK;
}

/* Whether the run has nothing left to do: its epochs, or its patience, and the scores at the end.
 */
static bool is_done(const train_t *train, const plim_run_info_t *info)
{
    const bool over = info->epochs_done >= train->training.epochs ||
                      (info->early && train->training.patience == info->training.patience);
    return over && (info->scored || train->training.eval_every == 0);
}

/* Prints the result of a run that is done already, if it is the run that the command line means. */
static plim_status_t report_done(train_t *train, const plim_job_t *job,
                                 const plim_dataset_t *dataset, const plim_run_info_t *info,
                                 int *exit_out)
{
    if (!train_resolve(train, plim_dataset_info(dataset))) {
        *exit_out = CLI_WRONG_USE;
        return PLIM_OK;
    }
    train->training.epochs = info->training.epochs; /* enough for this command, perhaps more */
    const plim_status_t status = plim_run_compare(job, train->run, dataset, &train->training);
    if (status != PLIM_OK)
        return status;
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    json_t *object = train->common.json
                         ? json_pack("{s:s, s:o}", "event", "end", "run", cli_json_text(train->run))
                         : NULL;
    result.epochs = info->epochs_done;
    result.best_epoch = info->best_epoch;
    result.loss = NAN;
    result.early = info->early;
    result.sampled = info->sampled;
    memcpy(result.score, info->score, sizeof result.score);
    cli_remark("%s: already trained for %" PRId64 " epochs; nothing to do", train->run,
               info->epochs_done);
    if (cli_ranks_speaks()) {
        train_print_result(train, &result, object);
        if (object != NULL)
            cli_print_json(object);
    }
    return PLIM_OK;
}

/* With --log_steps, prints only every N-th epoch, and the last one. */
static void print_event(void *user, const plim_train_event_t *event)
{
    const train_t *train = user;
    if (event->kind == PLIM_EVENT_EPOCH && train->print_every > 0 &&
        event->epoch % train->print_every != 0 && event->epoch != train->training.epochs)
        return;
    train_print_event((void *)&train->common, event);
}

/* Prints the plan, and where the run will be. */
static void print_start(const train_t *train, const plim_dataset_t *dataset,
                        const plim_plan_t *plan, const char *run, bool chosen)
{
    cli_plan_t figures;
    if (cli_plan_read(plan, &figures) == PLIM_OK) {
        train_warn_idle(train, plim_dataset_info(dataset), &figures);
        train_print_plan(train, plim_dataset_info(dataset), &figures, run);
    }
    if (chosen && train->common.quiet && !train->common.json)
        (void)printf("Run: %s\n", run); /* no other output names it */
    cli_flush();
}

static bool holds_run(const char *directory)
{
    char path[PLIM_PATH_MAX + 16];
    struct stat about;
    (void)snprintf(path, sizeof path, "%s/run.json", directory);
    return stat(path, &about) == 0;
}

/* How to continue a run that is saved, or that a new one would have replaced. */
static void suggest_resume(const train_t *train, plim_status_t status, const char *run)
{
    const bool saved = status == PLIM_ERR_STOPPED || status == PLIM_ERR_DISK;
    const bool occupied = status == PLIM_ERR_USAGE && train->resume == NULL;
    if ((saved || occupied) && run[0] != '\0' && holds_run(run))
        cli_remedy("%s: plimsoll train --resume %s", saved ? "Continue with" : "Resume it with",
                   run);
}

/* Trains by `plan` and prints the result. */
static plim_status_t train_as_planned(train_t *train, plim_job_t *job,
                                      const plim_dataset_t *dataset, const plim_plan_t *plan,
                                      const char *run, bool chosen)
{
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    if (cli_ranks_speaks())
        print_start(train, dataset, plan, run, chosen);
    plim_status_t status = (train->resume != NULL ? plim_train_resume : plim_train)(
        job, dataset, &train->training, plan, run, print_event, train, &result);
    cli_leave_phase();
    if (status != PLIM_OK) {
        suggest_resume(train, status, run);
        if (chosen)
            (void)rmdir(run); /* succeeds only if it is empty */
        return status;
    }
    if (!cli_ranks_speaks())
        return PLIM_OK;
    json_t *object = train->common.json
                         ? json_pack("{s:s, s:o}", "event", "end", "run", cli_json_text(run))
                         : NULL;
    train_print_result(train, &result, object);
    cli_job_report(job, object);
    if (object != NULL)
        cli_print_json(object);
    else
        train_print_where(job);
    return PLIM_OK;
}

/* Whether the weights that a new run begins with can be read. False after an error message. */
static bool check_init(const train_t *train)
{
    const char *init = train->training.init;
    if (train->resume != NULL || init == NULL || access(init, R_OK) == 0)
        return true;
    (void)cli_wrong_use(&train->common, "--init: cannot read %s: %s; name a file of weights", init,
                        strerror(errno));
    return false;
}

static plim_status_t train_on(train_t *train, plim_job_t *job, const plim_dataset_t *dataset,
                              int *exit_out)
{
    static char chosen[PLIM_PATH_MAX];
    static char start[PLIM_START_MAX];
    plim_plan_t *plan;
    if (!train_resolve(train, plim_dataset_info(dataset))) {
        *exit_out = CLI_WRONG_USE;
        return PLIM_OK;
    }
    train_write_start(train, start);
    train->training.start = start;
    train_print_recipe(train, plim_dataset_info(dataset));
    plim_status_t status = plim_train_plan(job, dataset, &train->training, &train->params, &plan);
    if (status != PLIM_OK)
        return status;
    const char *run = train->resume != NULL ? train->resume : train->run;
    if (!cli_ranks_speaks()) {
        run = ""; /* rank 0 makes the directory, and the library knows it from there */
    } else if (!check_init(train)) {
        *exit_out = CLI_WRONG_USE;
    } else if (run == NULL) {
        *exit_out = choose_run(train, chosen);
        run = chosen;
    } else if (train->resume == NULL) {
        *exit_out = make_parents(train, run);
    }
    if (*exit_out == CLI_DONE)
        status = train_as_planned(train, job, dataset, plan, run, run == chosen);
    plim_plan_release(plan);
    return status;
}

/* Checks the words of the command line. False after an error message. */
static bool check_words(const train_t *train, int argc, char **argv)
{
    const int words = argc - optind;
    if ((train->run != NULL && train->resume != NULL) || (train->requeued && words > 1))
        (void)cli_wrong_use(&train->common, "--run begins a new run, --resume continues one; "
                                            "give only one of them, or --resume without a value");
    else if (train->requeued && train->more_epochs > 0)
        (void)cli_wrong_use(&train->common, "--epochs +N would train N more each time; with --run "
                                            "and --resume give the total");
    else if (train->resume == NULL && words == 0)
        (void)cli_wrong_use(&train->common, "a dataset directory is needed");
    else if (train->resume == NULL && words > 1)
        (void)cli_wrong_use(&train->common,
                            "one dataset directory is needed, and here are '%s' and '%s'",
                            argv[optind], argv[optind + 1]);
    else if (train->resume != NULL && words > 1)
        (void)cli_wrong_use(&train->common, "--resume takes at most one word: the dataset "
                                            "directory, if it has moved");
    else if (train->resume == NULL && train->more_epochs > 0)
        (void)cli_wrong_use(&train->common, "--epochs +N needs --resume: N more than the run has");
    else
        return true;
    return false;
}

/* Reads the run to continue, opens the dataset, and trains. *exit_out: the exit code after an error
 * message. */
static plim_status_t open_and_train(train_t *train, plim_job_t *job, const char *stage, int argc,
                                    char **argv, int *exit_out)
{
    plim_run_info_t info = PLIM_RUN_INFO_INIT;
    plim_dataset_t *dataset;
    if (train->resume != NULL) {
        PLIM_TRY(take_run(train, job, argc, argv, &info, exit_out));
        if (*exit_out == CLI_DONE && train->dataset == info.dataset)
            *exit_out = cli_check_moved(&train->common, train->resume, info.dataset);
    }
    if (*exit_out == CLI_DONE &&
        !cli_check_scratch(&train->common, train->dataset, train->params.scratch))
        *exit_out = CLI_WRONG_USE;
    if (*exit_out != CLI_DONE)
        return PLIM_OK;
    PLIM_TRY(cli_open_dataset(job, train->dataset, stage, &dataset));
    plim_status_t status = train->verify ? plim_dataset_verify(job, dataset) : PLIM_OK;
    if (status == PLIM_OK)
        status = train->requeued && train->resume != NULL && is_done(train, &info)
                     ? report_done(train, job, dataset, &info, exit_out)
                     : train_on(train, job, dataset, exit_out);
    plim_dataset_release(dataset);
    return status;
}

static int run(int argc, char **argv)
{
    train_t train = {.common = {.verb = &cli_verb_train},
                     .training = PLIM_TRAINING_INIT,
                     .params = PLIM_PLAN_PARAMS_INIT};
    plim_job_t *job;
    int exit_code;             /* CLI_DONE, or what an error message ends with */
    train.training.shares = 0; /* not given */
    if (!train_read_options(argc, argv, &train, &exit_code))
        return exit_code;
    if (!check_words(&train, argc, argv))
        return CLI_WRONG_USE;
    exit_code = cli_ranks_join();
    if (exit_code != CLI_DONE)
        return exit_code;
    if (!cli_ranks_compare(&train.common, "--run", train.run) ||
        !cli_ranks_compare(&train.common, "--resume", train.requeued ? "" : train.resume) ||
        !cli_ranks_compare(&train.common, "--stage", train.stage ? "" : NULL))
        return CLI_WRONG_USE;
    train.common.quiet |= !cli_ranks_speaks();
    if (train.training.shares == 0)
        train.training.shares = cli_ranks() != NULL ? cli_ranks()->num_ranks : 1;
    train.dataset = optind < argc ? argv[optind] : NULL;
    if (train.requeued && holds_run(train.run))
        train.resume = train.run;
    if (train.resume != NULL)
        train_take_start(&train);
    const char *stage = train_stage(&train);
    if (train.stage && stage == NULL)
        return cli_wrong_use(&train.common, CLI_STAGE_WHERE);
    plim_status_t status = cli_job_start(&train.common, &job);
    if (status != PLIM_OK)
        return cli_failed(&train.common, status);
    status = open_and_train(&train, job, stage, argc, argv, &exit_code);
    return cli_job_finish(&train.common, job, exit_code, status);
}

static const cli_group_t groups[] = {
    {.title = "Model", .options = train_model_options},
    {.title = "Task", .options = train_task_options},
    {.title = "Sampling", .options = train_sampling_options},
    {.title = "Training", .options = train_step_options},
    {.title = "Less memory, the same result", .options = train_memory_options},
    {.title = "Run", .options = train_run_options},
    {.options = train_script_options},
    CLI_COMMON_GROUP,
    {.options = NULL}};

const cli_verb_t cli_verb_train = {
    .name = "train",
    .summary = "train a model, or continue a run",
    .help =
        "usage: plimsoll train DIR [options]\n"
        "       plimsoll train --resume RUN [--epochs N] [DIR]\n"
        "       plimsoll train DIR --run RUN --resume [options]\n\n"
        "Trains a model on the dataset DIR. Prints one line an epoch and writes weights, metrics\n"
        "and memory to a run directory, from which a stopped or killed run continues bit for bit.\n"
        "SIGTERM, SIGINT and SIGUSR1 save the run and end with exit code 75.\n"
        "The words of PyG's, OGB's and DGL's examples work too: man plimsoll-train lists them.\n",
    .groups = groups,
    .operand = ":directory",
    .run = run,
};
