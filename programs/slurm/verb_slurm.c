/* `plimsoll slurm VERB …`: a batch script for another verb's command; and the check of one. */
#include "base/fail.h"
#include "command/verb_plan.h"
#include "doctor/verdict.h"
#include "slurm/slurm_check.h"
#include "slurm/slurm_script.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MIB ((int64_t)1 << 20)

typedef struct slurm {
    cli_common_t common;
    slurm_script_t script;
    double try_seconds; /* --try; 0: not given */
    int64_t minutes;    /* --time; 0: not given */
    const char *check;  /* --check; NULL: not given */
    const char *like;   /* --like; NULL: not given */
} slurm_t;

/* A value of an #SBATCH line: one printable word. */
static bool is_word(const char *value)
{
    for (const char *at = value; *at != '\0'; at++)
        if ((unsigned char)*at <= 0x20 || *at == 0x7f)
            return false;
    return value[0] != '\0';
}

/* False after an error message. */
static bool check_requests(const slurm_t *slurm)
{
    const slurm_requests_t *requests = &slurm->script.requests;
    const char *const values[] = {requests->gres,    requests->gpus, requests->partition,
                                  requests->account, requests->qos,  requests->output,
                                  requests->mail};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        if (values[i] != NULL && !is_word(values[i])) {
            (void)cli_wrong_use(&slurm->common,
                                "'%s' cannot stand in an #SBATCH line: it must be one word",
                                values[i]);
            return false;
        }
    return true;
}

/* Slurm opens --output when the job starts, and the job fails where its directory is missing. */
static void make_output_directory(const char *output)
{
    const char *slash = strrchr(output, '/'), *pattern = strchr(output, '%');
    char path[PLIM_PATH_MAX];
    if (slash == NULL || slash == output)
        return;
    if (pattern != NULL && pattern < slash) {
        cli_warn("--output: Slurm makes no directory: that of %s must be there when the job starts",
                 output);
        return;
    }
    (void)snprintf(path, sizeof path, "%.*s", (int)(slash - output), output);
    for (char *at = strchr(path + 1, '/');; at = strchr(at + 1, '/')) {
        if (at != NULL)
            *at = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST) {
            cli_warn("%s cannot be made (%s): the job fails unless it is there when it starts",
                     path, strerror(errno));
            return;
        }
        if (at == NULL)
            return;
        *at = '/';
    }
}

/* Takes --memory, --threads and --ranks out of the verb's words, since the script has them as
 * --mem, --cpus-per-task and --nodes. False after an error message. */
static bool lift_options(slurm_t *slurm)
{
    static const char *const names[] = {"--memory", "--threads", "--ranks"};
    const int count = (int)(sizeof names / sizeof names[0]);
    char **to = slurm->script.words;
    for (char **word = to; *word != NULL; word++) {
        const size_t length = strcspn(*word, "=");
        int found = 0;
        if (strcmp(*word, "--") == 0) {
            while (*word != NULL)
                *to++ = *word++;
            break;
        }
        while (found < count && (length < 5 || strncmp(*word, names[found], length) != 0))
            found++;
        if (found == count) {
            *to++ = *word;
            continue;
        }
        char *value = (*word)[length] == '=' ? *word + length + 1 : *++word;
        if (value == NULL) {
            (void)cli_wrong_use(&slurm->common, "%s needs a value", names[found]);
            return false;
        }
        if (!cli_set_option(slurm, names[found] + 2, value))
            return false;
    }
    *to = NULL;
    return true;
}

/* Checks a training's words against what a script can continue. False after an error message. */
static bool check_training(const slurm_t *slurm, const train_t *train, int words)
{
    const char *message = NULL;
    if (train->resume != NULL)
        message = "to continue a run, give its options and --run RUN --resume: the script begins "
                  "or continues it";
    else if (train->more_epochs > 0)
        message = "--epochs +N would train N more each time the job starts; give the total";
    else if (words != 1)
        message = "train needs one dataset directory";
    else if (train->stage && slurm->script.stage != NULL)
        message = "give --stage DIR before train, or --stage --scratch DIR after it, not both";
    else if (train->stage && train_stage(train) == NULL)
        message = CLI_STAGE_WHERE;
    else if (slurm->minutes > 0 && slurm->minutes <= SLURM_SIGNAL_MINUTES)
        message =
            "--time is too short: it takes at least 4 minutes, since Slurm signals a training 2 "
            "to 3 minutes before the end";
    if (message != NULL)
        (void)cli_wrong_use(&slurm->common, "%s", message);
    return message == NULL;
}

/* --mem, --time and --cpus-per-task of a planned training, and the notes that explain them. */
static void take_plan(slurm_t *slurm, const plan_t *plan, const plan_found_t *found)
{
    slurm_script_t *script = &slurm->script;
    const plan_ask_t ask = plan_ask(plan, found);
    const double run_s = found->trial.run_s;
    char total[24], minimum[24], run[24];
    (void)plim_size_text(found->plan.info.peak, total);
    (void)cli_minimum_text(&found->plan, minimum);
    (void)train_seconds_text(run_s, run);
    script->cpus = ask.cpus;
    if (slurm->common.memory > 0) {
        script->mebibytes = slurm->common.memory / MIB;
        (void)snprintf(script->notes[0], sizeof script->notes[0],
                       "--mem: as --memory says. The plan's peak under it is %s, the minimum %s.",
                       total, minimum);
    } else if (ask.line) {
        script->mebibytes = ask.mebibytes;
        (void)snprintf(script->notes[0], sizeof script->notes[0],
                       "--mem: all the memory of the machine that planned, for caches. The "
                       "minimum is %s.",
                       minimum);
        cli_warn("--mem=%lldM is the memory here (%s), which caches would fill; give --memory SIZE "
                 "for the nodes, from %s on",
                 (long long)ask.mebibytes, plan->line_source, minimum);
    } else {
        script->mebibytes = ask.mebibytes;
        (void)snprintf(
            script->notes[0], sizeof script->notes[0],
            "--mem: the plan's peak, %s, and a margin of 5 %% and 32 MiB. The minimum is "
            "%s.",
            total, minimum);
    }
    if (slurm->minutes == 0) {
        script->minutes = ask.minutes;
        (void)snprintf(
            script->notes[1], sizeof script->notes[1],
            "--time: %d x the %s of a trial, and %d minutes for the start and the signal.",
            PLAN_TIME_MARGIN, run, PLAN_TIME_MINUTES);
        return;
    }
    script->minutes = slurm->minutes;
    (void)snprintf(script->notes[1], sizeof script->notes[1], "--time: as given.");
    if (!found->tried)
        return;
    const double each = 60 * (double)(slurm->minutes - SLURM_SIGNAL_MINUTES);
    const double jobs = run_s / each < 1e9 ? run_s / each : 1e9;
    (void)snprintf(script->notes[2], sizeof script->notes[2],
                   "By a trial the training takes %s in all: the job runs about %lld time%s.", run,
                   (long long)jobs + 1, jobs < 1 ? "" : "s");
}

/* Plans the training of the words. Returns CLI_DONE, or the exit code after an error message. */
static int plan_training(slurm_t *slurm, int argc, char **argv)
{
    static char run[256];
    static plan_found_t found;
    static plan_t plan = {
        .train = {.common = {.verb = &cli_verb_train},
                  .training = PLIM_TRAINING_INIT,
                  .params = {.size = sizeof(plim_plan_params_t), .no_reading = true}},
        .shape = PLIM_GENERATE_OPTIONS_INIT,
        .elsewhere = true};
    struct stat about;
    train_t *train = &plan.train;
    slurm_script_t *script = &slurm->script;
    int exit_code;
    bool wrong;
    train->training.shares = 0;
    if (!train_read_options(argc, argv, train, &exit_code))
        return exit_code;
    plan.ranks = script->ranks;
    script->shares = script->ranks > 1 && train->training.shares == 0;
    if (!plan_resolve_ranks(&plan, train))
        return CLI_WRONG_USE;
    if (!check_training(slurm, train, argc - optind))
        return CLI_WRONG_USE;
    train->dataset = argv[optind];
    if (stat(train->dataset, &about) != 0) {
        char hint[192];
        plan.shape.shape = cli_shape_named(train->dataset, hint);
        if (plan.shape.shape != NULL)
            (void)snprintf(script->notes[3], sizeof script->notes[3],
                           "Planned for the shape: a dataset must be in %s when the job starts.",
                           plan.shape.shape);
    }
    train->common.memory = slurm->common.memory;
    train->common.threads = slurm->common.threads;
    train->common.quiet = true; /* the script's notes say it */
    plan.try_seconds = slurm->try_seconds;
    train->params.no_reading = plan.try_seconds == 0;
    plim_status_t status = plan_prepare(&plan);
    if (status == PLIM_OK && !plan_can_try(&plan))
        return CLI_WRONG_USE;
    if (status == PLIM_OK)
        status = plan_find(&plan, train, plan.line, false, &found, &wrong);
    if (status != PLIM_OK)
        return cli_failed(&slurm->common, status);
    if (wrong)
        return CLI_WRONG_USE;
    if (!found.fits)
        return cli_failed_with(&slurm->common, PLIM_ERR_BUDGET, found.refusal, NULL);
    train_warn_idle(train, &found.info, &found.plan);
    if (slurm->minutes == 0 && !found.tried)
        return cli_wrong_use(&slurm->common,
                             "no trial of this training is kept here, so its time is not known: "
                             "give --time TIME%s",
                             script->ranks > 1 ? ""
                                               : ", or --try to train for 20 s now, best on a "
                                                 "node: srun plimsoll slurm --try train ...");
    take_plan(slurm, &plan, &found);
    train_name_run(train, run);
    script->run = train->run == NULL ? run : NULL;
    script->resume = !train->requeued;
    script->scratch = train->params.scratch;
    script->copy = train->stage_directory;
    script->dataset = script->stage != NULL ? train->dataset : NULL;
    return CLI_DONE;
}

/* --like: what the doctor would ask for next, from the record or the log of a job that ran. */
static plim_status_t read_like(const char *path, doctor_t *doctor, int64_t *memory_out)
{
    struct stat about;
    plim_status_t status;
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode)) {
        status = doctor_read_directory(doctor, path);
    } else {
        status = doctor_read_path(doctor, path);
        if (status == PLIM_ERR_IO && errno != 0)
            return plim__fail_errno(errno, "%s: cannot be read", path);
    }
    if (status == PLIM_OK)
        *memory_out = doctor_verdict(doctor)->next_mem;
    return status;
}

/* Returns CLI_DONE, or the exit code after an error message. */
static int take_like(slurm_t *slurm)
{
    plim_job_t *job = NULL;
    doctor_t *doctor = NULL;
    int64_t memory = 0;
    plim_status_t status = cli_pass_failure(cli_job_start_silent(&slurm->common, false, &job));
    if (status == PLIM_OK)
        status = doctor_create(job, &doctor);
    if (status == PLIM_OK)
        status = read_like(slurm->like, doctor, &memory);
    doctor_destroy(doctor);
    if (job != NULL)
        cli_job_end(job);
    if (status != PLIM_OK)
        return cli_program_failed(&slurm->common, status);
    if (memory < MIB)
        return cli_wrong_use(&slurm->common,
                             "%s does not show how much memory the job needs (plimsoll doctor %s "
                             "says why): give --memory SIZE",
                             slurm->like, slurm->like);
    slurm->common.memory = memory;
    return CLI_DONE;
}

/* A verb without a plan: memory and time are the user's. */
static int take_given(slurm_t *slurm)
{
    static plim_limits_t limits;
    slurm_script_t *script = &slurm->script;
    if (slurm->common.memory < MIB || slurm->minutes == 0)
        return cli_wrong_use(&slurm->common,
                             "only train has a plan; for %s give --memory SIZE (or --like RUN) and "
                             "--time TIME",
                             script->verb);
    if (script->stage != NULL || slurm->try_seconds > 0 || script->ranks > 1)
        return cli_wrong_use(&slurm->common, "--stage, --try and --ranks are for train");
    const plim_status_t status = cli_find_limits(&slurm->common, &limits);
    if (status != PLIM_OK)
        return cli_failed(&slurm->common, status);
    script->mebibytes = slurm->common.memory / MIB;
    script->minutes = slurm->minutes;
    script->cpus = slurm->common.threads > 0 ? slurm->common.threads
                                             : limits.threads[limits.threads_line].value;
    (void)snprintf(script->notes[0], sizeof script->notes[0],
                   "%s; a job that is stopped starts again from the beginning.",
                   slurm->like != NULL ? "--mem: by the job of --like; --time: as given"
                                       : "--mem and --time: as given");
    return CLI_DONE;
}

static int print_script(const slurm_t *slurm)
{
    const slurm_script_t *script = &slurm->script;
    const json_int_t memory = script->mebibytes * MIB, seconds = script->minutes * 60;
    char *text = slurm_script_text(script);
    if (text == NULL)
        return cli_failed_with(&slurm->common, PLIM_ERR_NOMEM, "no memory for the script", NULL);
    make_output_directory(script->requests.output);
    if (slurm->common.json)
        cli_print_json(json_pack("{s:s, s:I, s:I, s:I, s:o}", "verb", script->verb, "memory_bytes",
                                 memory, "seconds", seconds, "cpus", (json_int_t)script->cpus,
                                 "script", cli_json_text(text)));
    else
        (void)fputs(text, stdout);
    free(text);
    cli_flush();
    return CLI_DONE;
}

static const char *const verbs[] = {"train",   "import", "generate", "evaluate",
                                    "predict", "watch",  NULL};

/* Any program (`plimsoll slurm -- python train.py`): its memory is recorded by plimsoll watch. */
static int run_program(slurm_t *slurm, char **words)
{
    slurm->script.verb = "watch";
    slurm->script.watched = true;
    slurm->script.words = words;
    const int code = take_given(slurm);
    return code == CLI_DONE ? print_script(slurm) : code;
}

/* Prints the script for the command `argv`, which begins with its verb. */
static int run_verb(slurm_t *slurm, int argc, char **argv)
{
    size_t i = 0;
    while (verbs[i] != NULL && strcmp(argv[0], verbs[i]) != 0)
        i++;
    if (verbs[i] == NULL)
        return cli_wrong_use(&slurm->common,
                             "a batch script is for train, import, generate, evaluate, predict or "
                             "watch, or for a program behind --, not for '%s'",
                             argv[0]);
    char **words = calloc((size_t)argc, sizeof *words);
    if (words == NULL)
        return cli_failed_with(&slurm->common, PLIM_ERR_NOMEM, "no memory for the words", NULL);
    slurm->script.verb = verbs[i];
    slurm->script.words = argv + 1;
    slurm->script.continues = i == 0;
    int code = lift_options(slurm) ? CLI_DONE : CLI_WRONG_USE;
    for (argc = 1; argv[argc] != NULL; argc++)
        words[argc - 1] = argv[argc]; /* reading the options permutes argv */
    slurm->script.words = words;
    if (code == CLI_DONE)
        code = i == 0 ? plan_training(slurm, argc, argv) : take_given(slurm);
    if (code == CLI_DONE)
        code = print_script(slurm);
    free(words);
    return code;
}

static bool take_time(void *context, char *value, char ***next)
{
    slurm_t *slurm = context;
    (void)next;
    if (slurm_minutes(value, &slurm->minutes))
        return true;
    (void)cli_wrong_use(&slurm->common,
                        "--time: '%s' is not a time of Slurm, such as 90 (minutes), 12:00:00 or "
                        "1-12:00:00",
                        value);
    return false;
}

static bool take_setup(void *context, char *value, char ***next)
{
    slurm_t *slurm = context;
    slurm_requests_t *requests = &slurm->script.requests;
    (void)next;
    for (const char *at = value; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return cli_wrong_use(&slurm->common, "--setup is one line of the script") == CLI_DONE;
    if (requests->num_setup == SLURM_SETUP)
        return cli_wrong_use(&slurm->common, "--setup: %d lines are too many", SLURM_SETUP + 1) ==
               CLI_DONE;
    requests->setup[requests->num_setup++] = value;
    return true;
}

static bool take_try(void *context, char *value, char ***next)
{
    slurm_t *slurm = context;
    return plan_parse_try(&slurm->common, value, next, &slurm->try_seconds);
}

static int run(int argc, char **argv)
{
    slurm_t slurm = {.common = {.verb = &cli_verb_slurm, .in_order = true},
                     .script.requests.output = "logs/%x_%j.out"};
    int exit_code;
    if (!cli_read_options(argc, argv, &slurm, &exit_code))
        return exit_code;
    if (slurm.check != NULL && optind < argc)
        return cli_wrong_use(&slurm.common, "--check takes one batch script and no command");
    if (slurm.check != NULL)
        return slurm_check(&slurm.common, slurm.check);
    if (optind == argc)
        return cli_wrong_use(&slurm.common,
                             "give the command, like: plimsoll slurm train DIR --epochs 10");
    if (slurm.like != NULL && slurm.common.memory > 0)
        return cli_wrong_use(&slurm.common, "give --like or --memory, not both");
    if (!check_requests(&slurm))
        return CLI_WRONG_USE;
    exit_code = slurm.like != NULL ? take_like(&slurm) : CLI_DONE;
    if (exit_code != CLI_DONE)
        return exit_code;
    if (strcmp(argv[optind - 1], "--") == 0)
        return run_program(&slurm, argv + optind);
    return run_verb(&slurm, argc - optind, argv + optind);
}

static const cli_option_t own_options[] = {
    {"time", "TIME",
     "time limit of a job, as Slurm writes it: 90, 12:00:00, 1-12:00:00; default: twice the time "
     "of the trial that is kept (plan --try); longer trainings take several jobs",
     "A number is minutes.", CLI_BY(take_time), CLI_HINTS("4:00:00", "24:00:00", "2-00:00:00")},
    {"try", "[SECONDS]", "try the training first, on this machine, for 20 s or so long",
     "As 'plimsoll plan --try' does. A login node is not a compute node: try it there, by 'srun "
     "plimsoll slurm --try train DIR'.",
     CLI_BY(take_try)},
    {"stage", "DIR",
     "copy the dataset of a training to this directory of the node first; '$TMPDIR' is expanded "
     "there",
     "So is another variable at the beginning. The copy lies in a new directory that only its "
     "user can enter, and is removed at the end. Where that cannot be made, lies in memory or has "
     "too little space, the dataset is read where it is.",
     CLI_AT(slurm_t, script.stage), .kind = CLI_TEXT},
    {"ranks", "R", "train on R nodes together, one rank each, over MPI (srun --mpi)",
     "Before or after VERB. The script names the number of shares, so that the job may continue "
     "on fewer nodes with the same result. With --stage one rank reads the dataset and sends it "
     "to all nodes; the copies stay there. '--stage --scratch DIR' after train does that too, "
     "also without --ranks, and '$TMPDIR' is expanded as above.",
     CLI_AT(slurm_t, script.ranks), CLI_RANGE(1, PLIM_RANKS_MAX)},
    {"like", "RUN",
     "take the memory from a job that ran: a record of plimsoll watch, a run, or a log",
     "What plimsoll doctor would ask for next: the measured peak and a fifth, or its estimate.",
     CLI_AT(slurm_t, like), .kind = CLI_TEXT},
    {"gres", "SPEC", "generic resources, such as gpu:1", CLI_AT(slurm_t, script.requests.gres),
     .kind = CLI_TEXT},
    {"gpus", "N", "GPUs of the job", CLI_AT(slurm_t, script.requests.gpus), .kind = CLI_TEXT},
    {"partition", "NAME", "partition of the cluster", CLI_AT(slurm_t, script.requests.partition),
     .kind = CLI_TEXT},
    {"account", "NAME", "account that pays", CLI_AT(slurm_t, script.requests.account),
     .kind = CLI_TEXT},
    {"qos", "NAME", "quality of service", CLI_AT(slurm_t, script.requests.qos), .kind = CLI_TEXT},
    {"output", "FILE", "where the job's output goes, with Slurm's patterns; default logs/%x_%j.out",
     "The directory is made now, since Slurm does not make it.",
     CLI_AT(slurm_t, script.requests.output), .kind = CLI_TEXT},
    {"mail", "ADDRESS", "mail there when the job ends or fails",
     CLI_AT(slurm_t, script.requests.mail), .kind = CLI_TEXT},
    {"setup", "LINE",
     "a line of the script before the command, such as 'module load cuda' or 'source "
     "venv/bin/activate'; may be given again",
     CLI_BY(take_setup)},
    {"check", "FILE",
     "read a batch script and the Python file that it runs, any, not only ours, and report what "
     "contradicts what; exit code 1 if there is anything",
     CLI_AT(slurm_t, check), .kind = CLI_TEXT},
    CLI_OPTIONS_END};

static const cli_group_t groups[] = {
    {.title = "Options", .options = own_options}, CLI_COMMON_GROUP, {.options = NULL}};

const cli_verb_t cli_verb_slurm = {
    .name = "slurm",
    .summary = "print a batch script for another verb's command, or check one",
    .help =
        "usage: plimsoll slurm [options] train DIR [train's options] | sbatch\n"
        "       plimsoll slurm --memory SIZE|--like RUN --time TIME VERB ...\n"
        "       plimsoll slurm --memory SIZE|--like RUN --time TIME -- PROGRAM ...\n"
        "       plimsoll slurm --check FILE [--json]\n\n"
        "Prints a complete batch script for a plimsoll command. For train, memory comes from the\n"
        "plan and time from a trial, with margins that the script states. Before its time limit,\n"
        "when Slurm signals it, the job saves the run, queues itself again and continues where it\n"
        "was. Memory and threads stand in the script once: --memory and --threads, before or\n"
        "after VERB, become --mem and --cpus-per-task, and the command takes what Slurm grants.\n"
        "VERB may also be import, generate, evaluate, predict or watch, which have no plan, and\n"
        "after -- any program, which then runs under plimsoll watch.\n",
    .groups = groups,
    .first_operand = verbs,
    .operand = ":directory",
    .run = run,
};
