/* Trains a model, or goes on where a run was stopped. */
#include "verb_train.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reports why a directory could not be made; returns the exit code. */
static int refuse_directory(const train_t *train, const char *path, int error)
{
    char message[PLIM_PATH_MAX + 128];
    if (!cli_disk_full(error))
        return cli_wrong_use(&train->common, "%s cannot be made: %s; name a directory with --run",
                             path, strerror(error));
    (void)snprintf(message, sizeof message,
                   "%s cannot be made: %s; free some room, or name a directory on another disk "
                   "with --run",
                   path, strerror(error));
    return cli_failed_with(&train->common, PLIM_ERR_SPACE, message, NULL);
}

/* Makes the directories that `path` goes into. CLI_DONE, or the exit code when one cannot be made,
 * already said. */
static int make_parents(const train_t *train, const char *path)
{
    char part[PLIM_PATH_MAX];
    const size_t length = strlen(path);
    if (length == 0 || length >= sizeof part)
        return cli_wrong_use(&train->common, "--run: '%s' is no name of a directory", path);
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

/* Makes runs/DATASET-MODEL-N, the first that is not there: of two jobs that begin together only one
 * gets a name. The same codes. */
static int choose_run(const train_t *train, char run_out[PLIM_PATH_MAX])
{
    char name[256];
    size_t length = strlen(train->dataset);
    while (length > 0 && train->dataset[length - 1] == '/')
        length--;
    size_t begin = length;
    while (begin > 0 && train->dataset[begin - 1] != '/')
        begin--;
    (void)snprintf(name, sizeof name, "%.*s", (int)(length - begin < 200 ? length - begin : 200),
                   train->dataset + begin);
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        (void)snprintf(name, sizeof name, "run");
    if (mkdir("runs", 0777) == 0 || errno == EEXIST)
        for (int number = 1; number < 1000000; number++) {
            (void)snprintf(run_out, PLIM_PATH_MAX, "runs/%s-%s-%d", name,
                           train_model_name(train->training.model.kind), number);
            if (mkdir(run_out, 0777) == 0)
                return CLI_DONE;
            if (errno != EEXIST)
                break;
        }
    return refuse_directory(train, "a directory in runs/", errno);
}

/* The run's own settings, with the command line read once more on top of them. */
static plim_status_t take_run(train_t *train, const plim_job_t *job, int argc, char **argv,
                              plim_run_info_t *info, int *said_out)
{
    int exit_code;
    plim_status_t status = plim_run_read(job, train->resume, info);
    if (status != PLIM_OK)
        return status;
    train->training = info->training;
    optind = 0;
    if (!train_read_options(argc, argv, train, &exit_code)) {
        *said_out = exit_code;
        return PLIM_OK;
    }
    if (train->dataset == NULL)
        train->dataset = info->dataset;
    train->params.part_seeds = info->part_seeds;
    train->params.part_nodes = info->part_nodes;
    train->params.part_edges = info->part_edges;
    if (train->more_epochs > 0) {
        train->training.epochs = info->training.epochs + train->more_epochs;
    } else if (train->epochs_given && train->training.epochs <= info->epochs_done) {
        *said_out = cli_wrong_use(&train->common,
                                  "--epochs: the run has %" PRId64 " epochs already, and these are "
                                  "counted; say --epochs +%" PRId64 " for as many more",
                                  info->epochs_done, train->training.epochs);
    }
    return PLIM_OK;
}

/* With --log_steps the epochs between are not printed, except the last one and those with scores.
 */
static void say_event(void *user, const plim_train_event_t *event)
{
    const train_t *train = user;
    bool scored = false;
    for (int split = 0; split < 3; split++)
        scored = scored || !isnan(event->score[split]);
    if (event->kind == PLIM_EVENT_EPOCH && train->print_every > 0 && !scored &&
        event->epoch % train->print_every != 0 && event->epoch != train->training.epochs)
        return;
    train_say_event((void *)&train->common, event);
}

/* Trains as planned, and says how it ended. */
static plim_status_t train_as_planned(train_t *train, plim_job_t *job,
                                      const plim_dataset_t *dataset, const plim_plan_t *plan,
                                      const char *run, bool chosen)
{
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    json_t *said = cli_json_plan(plan);
    train_say_idle(train, plim_dataset_info(dataset), said);
    train_say_plan(train, plim_dataset_info(dataset), said, run);
    json_decref(said);
    if (chosen && train->common.quiet && !train->common.json)
        (void)printf("Run: %s\n", run); /* or nobody would know */
    cli_flush();
    plim_status_t status = (train->resume != NULL ? plim_train_resume : plim_train)(
        job, dataset, &train->training, plan, run, say_event, train, &result);
    cli_leave_phase();
    if (status != PLIM_OK) {
        if (chosen)
            (void)rmdir(run); /* where nothing could begin, it is empty */
        return status;
    }
    json_t *object = train->common.json
                         ? json_pack("{s:s, s:o}", "event", "end", "run", cli_json_text(run))
                         : NULL;
    train_say_result(train, &result, object);
    cli_job_report(job, object);
    if (object != NULL)
        cli_print_json(object);
    return PLIM_OK;
}

static plim_status_t train_on(train_t *train, plim_job_t *job, const plim_dataset_t *dataset,
                              const char **run_out, int *said_out)
{
    static char chosen[PLIM_PATH_MAX];
    plim_plan_t *plan;
    if (!train_settle(train, plim_dataset_info(dataset)) ||
        !cli_check_scratch(&train->common, train->dataset, train->params.scratch)) {
        *said_out = CLI_WRONG_USE;
        return PLIM_OK;
    }
    plim_status_t status = plim_train_plan(job, dataset, &train->training, &train->params, &plan);
    if (status != PLIM_OK)
        return status;
    const char *run = train->resume != NULL ? train->resume : train->run;
    if (run == NULL) {
        *said_out = choose_run(train, chosen);
        run = chosen;
    } else if (train->resume == NULL) {
        *said_out = make_parents(train, run);
    }
    if (*said_out == CLI_DONE) {
        *run_out = run;
        status = train_as_planned(train, job, dataset, plan, run, run == chosen);
    }
    plim_plan_release(plan);
    return status;
}

/* What the command line alone can show to be wrong. */
static bool check_words(const train_t *train, int argc)
{
    const int words = argc - optind;
    if (train->run != NULL && train->resume != NULL)
        (void)cli_wrong_use(&train->common, "--run is for a new run, --resume for one that is "
                                            "there; give one of them");
    else if (train->resume == NULL && words != 1)
        (void)cli_wrong_use(&train->common,
                            words == 0 ? "a dataset directory is needed"
                                       : "one dataset directory is needed, not %d words",
                            words);
    else if (train->resume != NULL && words > 1)
        (void)cli_wrong_use(&train->common, "with --resume at most the dataset directory is needed "
                                            "(where it has moved to)");
    else if (train->resume == NULL && train->more_epochs > 0)
        (void)cli_wrong_use(&train->common, "--epochs +N is for --resume: N more than the run has");
    else
        return true;
    return false;
}

static int run(int argc, char **argv)
{
    train_t train = {.common = {.verb = &cli_verb_train},
                     .training = PLIM_TRAINING_INIT,
                     .params = PLIM_PLAN_PARAMS_INIT};
    plim_run_info_t info = PLIM_RUN_INFO_INIT;
    plim_limits_t limits;
    plim_dataset_t *dataset;
    plim_job_t *job;
    const char *place = NULL;
    int exit_code, said = CLI_DONE; /* the exit code of what was said already */
    if (!train_read_options(argc, argv, &train, &exit_code))
        return exit_code;
    if (!check_words(&train, argc))
        return CLI_WRONG_USE;
    train.dataset = optind < argc ? argv[optind] : NULL;
    plim_status_t status = cli_job_start(&train.common, &job, &limits);
    if (status != PLIM_OK)
        return cli_failed(&train.common, status);
    if (train.resume != NULL)
        status = take_run(&train, job, argc, argv, &info, &said);
    if (status == PLIM_OK && said == CLI_DONE && train.resume != NULL &&
        train.dataset == info.dataset)
        said = cli_check_moved(&train.common, train.resume, info.dataset);
    if (status == PLIM_OK && said == CLI_DONE)
        status = plim_dataset_open(job, train.dataset, &dataset);
    if (status == PLIM_OK && said == CLI_DONE) {
        if (train.verify)
            status = plim_dataset_verify(job, dataset);
        if (status == PLIM_OK)
            status = train_on(&train, job, dataset, &place, &said);
        plim_dataset_release(dataset);
    }
    if (status == PLIM_ERR_STOPPED && place != NULL)
        cli_remark("go on with: plimsoll train --resume %s", place);
    cli_job_end(job);
    if (said != CLI_DONE)
        return said;
    return status == PLIM_OK ? CLI_DONE : cli_failed(&train.common, status);
}

const cli_verb_t cli_verb_train = {
    .name = "train",
    .summary = "trains a model, or goes on with a run",
    .help =
        "usage: plimsoll train DIR [options]\n"
        "       plimsoll train --resume RUN [--epochs N] [DIR]\n\n"
        "Trains a model on the dataset DIR. A line an epoch goes to standard output; weights,\n"
        "metrics and memory go to a run directory, from which a stopped or killed run goes on\n"
        "bit for bit. SIGTERM, SIGINT and SIGUSR1 save it and end with 75.\n\n"
        "The model:\n"
        "  --model KIND     gcn (default), sage, gat, gin or mlp\n"
        "  --layers N       default: as many as there are fan-outs (also --num_layers)\n"
        "  --hidden N       channels between layers (also --hidden_channels); default 64\n"
        "  --heads N        of gat; they share --hidden; default 1\n"
        "  --aggr HOW       of sage: mean (default) or max\n"
        "  --norm KIND      none (default), layer or batch\n"
        "  --act KIND       relu (default), elu or none\n"
        "  --dropout P      default 0\n"
        "  --residual       a layer's input is added to its output where widths agree\n"
        "  --pool HOW       graphs from their nodes: mean (default), add or max\n"
        "  --precision TYPE f32 (default), or bf16 for what products read\n\n"
        "What is drawn:\n"
        "  --batch N        seeds a batch (also --batch_size); default 1024\n"
        "  --fanout A,B,..  neighbours drawn at each hop, -1: all (also --num_neighbors A B ..);\n"
        "                   default 10 at each; none in a dataset of many graphs\n"
        "  --seed S         of weights, order, draws and dropout; default 0\n\n"
        "How it is trained:\n"
        "  --epochs N       in all; default 10; with --resume also +N: N more than it was to have\n"
        "  --lr RATE        default 0.01\n"
        "  --optimizer KIND adam (default), adamw or sgd\n"
        "  --momentum M     of sgd; default 0\n"
        "  --weight-decay D default 0\n"
        "  --clip NORM      gradients longer than this are cut to it; default: never\n"
        "  --schedule KIND  of the rate: none (default), cosine to 0 at the last epoch, or step\n"
        "  --step-size N    epochs of a step\n"
        "  --gamma F        factor at each step; default 0.1\n"
        "  --loss KIND      auto (default), cross-entropy, bce, mse or mae\n"
        "  --metric KIND    auto (default), accuracy, roc-auc, mae or rmse\n"
        "  --eval-every N   epochs between evaluations (also --eval_steps), 0: none; default 1\n"
        "  --log-steps N    evaluate, and print a line, every so many epochs\n"
        "  --eval-train     evaluate the training split as often, not only at the end\n"
        "  --gradient-accumulation-steps N\n"
        "                   N batches an update, each one's mean loss divided by N; an epoch's "
        "last\n"
        "                   ones by their own number; default 1\n"
        "  --patience N     end after so many evaluations without a better one; default: never;\n"
        "                   with --resume it may grow\n\n"
        "Less memory, the same result:\n"
        "  --microbatch K   a batch is computed K seeds at a time, gradients added up\n"
        "  --recompute      activations are computed again instead of kept\n\n"
        "The run:\n"
        "  --run DIR        a new directory for it; default runs/DATASET-MODEL-N\n"
        "  --resume RUN     go on where this one stands, up to its epochs or --epochs\n"
        "  --checkpoint-every STEPS\n"
        "                   save every so many updates, not only after epochs (of which short "
        "ones\n"
        "                   are not all saved: it takes a twentieth of the time at most)\n"
        "  --checkpoint-minutes M\n"
        "                   save at least this often; default 5; 0: by steps and epochs alone\n"
        "  --memory-every STEPS\n"
        "                   a line about memory every so many updates (also --log_interval)\n"
        "  --row-cache SIZE  rows kept in memory when they lie on disk; none: no such\n"
        "  --scratch DIR    a local disk, where rows kept in memory wait for the next start\n"
        "  --verify         check all of the dataset first, as inspect --verify does; without it\n"
        "                   what is read whole is checked: offsets, splits, labels, and graph and\n"
        "                   features where they lie in memory\n",
    .run = run,
};
