/* `plimsoll plan`: the memory and time of a training, before it starts. */
#include "command/verb_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TRY_MAX 86400

bool plan_parse_try(const cli_common_t *common, const char *text, char ***next, double *seconds_out)
{
    char *end = NULL;
    *seconds_out = PLAN_TRY_SECONDS;
    if (text == NULL && **next != NULL && strtod(**next, &end) > 0 && *end == '\0')
        text = *(*next)++;
    if (text == NULL)
        return true;
    *seconds_out = strtod(text, &end);
    if (end != text && *end == '\0' && *seconds_out > 0 && *seconds_out <= TRY_MAX)
        return true;
    (void)cli_wrong_use(common, "--try: '%s' is not a number of seconds up to %d", text, TRY_MAX);
    return false;
}

static bool take_try(void *context, char *value, char ***next)
{
    plan_t *plan = context;
    return plan_parse_try(&plan->train.common, value, next, &plan->try_seconds);
}

/* Reads the command line, and resolves what follows from several options. */
static bool read_options(int argc, char **argv, plan_t *plan, int *exit_out)
{
    static const char *const of_script[] = {"graph", "mapped-features", "loaders", "late-loaders",
                                            "gpu-memory"};
    static const char *const of_loader[] = {"workers", "prefetch", "persistent-workers",
                                            "pin-memory"};
    train_t *train = &plan->train;
    if (!train_read_options(argc, argv, train, exit_out))
        return false;
    for (size_t i = 0; i < sizeof of_script / sizeof of_script[0]; i++)
        plan->pyg_given |= cli_given(&train->common, of_script[i]);
    /* Without --for pyg, train's remark tells that the loader's options change nothing. */
    for (size_t i = 0; i < sizeof of_loader / sizeof of_loader[0]; i++)
        train->loader_words |= cli_given(&train->common, of_loader[i]);
    plan->for_pyg = cli_given(&train->common, "for");
    train->params.no_reading = !plan->measure && plan->try_seconds == 0; /* else as train does */
    train->params.weigh_nodes = plan->measure;
    return true;
}

static bool shape_given(const cli_common_t *common)
{
    bool given = false;
    for (const cli_option_t *option = cli_shape_options; option->name != NULL; option++)
        given |= cli_given(common, option->name);
    for (const cli_option_t *option = cli_shape_count_options; option->name != NULL; option++)
        given |= cli_given(common, option->name);
    return given;
}

/* The dataset directory or the shape. False after an error message. */
static bool take_words(plan_t *plan, int argc, char **argv)
{
    const cli_common_t *common = &plan->train.common;
    const int words = argc - optind;
    struct stat status;
    char hint[192] = "";
    if (plan->pyg_given && !plan->for_pyg)
        (void)cli_wrong_use(common,
                            "--graph, --mapped-features, --loaders, --late-loaders, --gpu-memory "
                            "and sweeps over these or over workers describe a script of PyTorch "
                            "Geometric; add --for pyg");
    else if (plan->try_seconds > 0 &&
             (plan->for_pyg || plan->sweep.num_keys > 0 || plan->ranks > 1))
        (void)cli_wrong_use(common, "--try tries one training in this process: leave out %s",
                            plan->for_pyg     ? "--for pyg"
                            : plan->ranks > 1 ? "--ranks"
                                              : "--sweep");
    else if (plan->for_pyg && plan->train.training.task != PLIM_TASK_LABELS)
        (void)cli_wrong_use(common, "--for pyg knows no --task but labels");
    else if (plan->for_pyg && plan->train.training.temporal != PLIM_TEMPORAL_NONE)
        (void)cli_wrong_use(common, "--for pyg does not estimate --temporal");
    else if (plan->train.resume != NULL)
        (void)cli_wrong_use(common, "--resume: plan takes the options of a run, not the run");
    else if (words == 0)
        (void)cli_wrong_use(common, "give a dataset directory or a shape, like: plimsoll plan "
                                    "papers100M");
    else if (words > 1)
        (void)cli_wrong_use(common,
                            "one dataset directory or shape is needed, and here are '%s' and '%s'",
                            argv[optind], argv[optind + 1]);
    else
        plan->train.dataset = argv[optind];
    if (plan->train.dataset == NULL)
        return false;
    if (stat(plan->train.dataset, &status) != 0)
        plan->shape.shape = cli_shape_named(plan->train.dataset, hint);
    if (plan->shape.shape == NULL && shape_given(common))
        (void)cli_wrong_use(common,
                            "--scale, --spread, --dtype, --nodes, --edges, --features and "
                            "--classes are for shapes (papers100M, products, arxiv, reddit, free), "
                            "and %s is not one of them",
                            plan->train.dataset);
    else if (plan->shape.shape == NULL && stat(plan->train.dataset, &status) != 0)
        (void)cli_wrong_use(common, "%s is neither a dataset directory nor a shape%s",
                            plan->train.dataset, hint);
    else if (plan->shape.shape != NULL && plan->try_seconds > 0)
        (void)cli_wrong_use(common, "--try needs a dataset, and %s is a shape: generate it first",
                            plan->train.dataset);
    else
        return plan->shape.shape == NULL || strcmp(plan->shape.shape, "free") != 0 ||
               cli_check_free_shape(common);
    return false;
}

/* Starts a job under `line` (`endless`: without one) and opens the dataset. */
static plim_status_t begin(const plan_t *plan, int64_t line, bool endless, plim_job_t **job_out,
                           plim_dataset_t **dataset_out)
{
    /* No messages for many plans, or for a plan that is not run. */
    const bool silent = plan->sweep.num_keys > 0 || endless;
    plim_transport_t alone = PLIM_TRANSPORT_INIT; /* one process plans for all ranks */
    cli_common_t common = plan->train.common;
    alone.bytes = plan_mpi_bytes(plan);
    common.transport = &alone;
    plim_status_t status =
        cli_job_start_under(&common, &plan->limits, line, endless, silent, job_out);
    if (status != PLIM_OK)
        return status;
    status = plan->shape.shape != NULL
                 ? plim_dataset_from_shape(*job_out, &plan->shape, dataset_out)
                 : plim_dataset_open(*job_out, plan->train.dataset, dataset_out);
    if (status != PLIM_OK)
        cli_job_end(*job_out);
    return status;
}

static void end(plim_job_t *job, plim_dataset_t *dataset)
{
    plim_dataset_release(dataset);
    cli_leave_phase();
    cli_job_end(job);
}

/* Tries the planned training, or finds the trial of it that is kept. */
static plim_status_t find_trial(const plan_t *plan, const plim_job_t *job,
                                const plim_dataset_t *dataset, const train_t *train,
                                const plim_plan_t *made, plan_found_t *found)
{
    const plim_trial_t none = PLIM_TRIAL_INIT;
    found->trial = none;
    if (plan->shape.shape != NULL || plan->ranks > 1)
        return PLIM_OK;
    if (plan->try_seconds == 0)
        return plim_train_tried(job, dataset, &train->training, made, &found->trial, &found->tried);
    if (!plan->train.common.quiet)
        cli_remark("trying the training for %g s; nothing is written", plan->try_seconds);
    const plim_status_t status =
        plim_train_try(job, dataset, &train->training, made, plan->try_seconds, &found->trial);
    found->tried = status == PLIM_OK;
    return status;
}

/* Plans under `line`. Stores the refusal if the training does not fit. With `all`: finds its trial
 * too. */
static plim_status_t plan_under(const plan_t *all, const plim_job_t *job,
                                const plim_dataset_t *dataset, const train_t *train, int64_t line,
                                plan_found_t *found)
{
    plim_plan_params_t params = train->params;
    plim_plan_t *plan;
    params.memory = line;
    params.no_advice = true;
    plim_status_t status = plim_train_plan(job, dataset, &train->training, &params, &plan);
    if (status == PLIM_ERR_BUDGET)
        (void)snprintf(found->refusal, sizeof found->refusal, "%s", cli_last_error());
    if (status != PLIM_OK)
        return status;
    status = cli_plan_read(plan, &found->plan);
    found->planned = status == PLIM_OK;
    if (status == PLIM_OK && all != NULL)
        status = find_trial(all, job, dataset, train, plan, found);
    plim_plan_release(plan);
    return status;
}

static plim_status_t advise(const plim_job_t *job, const plim_dataset_t *dataset,
                            const train_t *train, plan_found_t *found)
{
    plim_plan_params_t params = train->params;
    params.memory = found->line;
    found->advice[0].size = sizeof found->advice[0];
    plim_status_t status = plim_train_advise(job, dataset, &train->training, &params, PLAN_ADVICE,
                                             found->advice, &found->num_advice);
    for (int i = 0; status == PLIM_OK && !found->fits && i < found->num_advice; i++) {
        const size_t used = strlen(found->refusal);
        char change[PLAN_CHANGE];
        (void)snprintf(found->refusal + used, sizeof found->refusal - used, ", or %s",
                       plan_change(&found->advice[i], change));
    }
    return status;
}

/* A training that does not fit: the refusal, advice, and the plan under the minimum line. */
static plim_status_t plan_minimum(const plim_job_t *job, const plim_dataset_t *dataset,
                                  const train_t *train, bool advised, plan_found_t *found)
{
    plim_status_t status = plan_under(NULL, job, dataset, train, found->line, found);
    if (advised && (status == PLIM_OK || status == PLIM_ERR_BUDGET))
        status = advise(job, dataset, train, found);
    if (status == PLIM_OK || status == PLIM_ERR_BUDGET)
        status = plan_under(NULL, job, dataset, train, 0, found);
    if (status != PLIM_OK)
        return status;
    return plan_under(NULL, job, dataset, train, cli_minimum_line(&found->plan), found);
}

/* Finds changes that keep batches whole. Whole batches need more than the line: no limit here. */
static plim_status_t advise_on_parts(const plan_t *plan, const train_t *train, plan_found_t *found)
{
    train_t unread = *train;
    plim_dataset_t *dataset;
    plim_job_t *job;
    plim_status_t status = begin(plan, found->line, true, &job, &dataset);
    if (status != PLIM_OK)
        return status;
    unread.params.no_reading = true;
    status = advise(job, dataset, &unread, found);
    end(job, dataset);
    return status;
}

/* Plans again with --scratch, to tell how many reads that would save: none if that does not fit. */
static plim_status_t plan_with_scratch(const plim_job_t *job, const plim_dataset_t *dataset,
                                       const train_t *train, plan_found_t *found)
{
    plan_found_t other = {.line = found->line};
    train_t packed = *train;
    packed.params.scratch = ".";
    const plim_status_t status = plan_under(NULL, job, dataset, &packed, found->line, &other);
    if (status == PLIM_OK && other.plan.info.epoch_reads < found->plan.info.epoch_reads) {
        found->packed_bytes = other.plan.info.scratch_bytes;
        found->packed_reads = other.plan.info.epoch_reads;
    }
    return status == PLIM_ERR_BUDGET ? PLIM_OK : status;
}

/* Resolves and plans `train` under the line. PLIM_ERR_BUDGET without a plan: it does not fit. */
static plim_status_t plan_under_line(const plan_t *plan, train_t *train, plan_found_t *found,
                                     bool *wrong_out)
{
    plim_dataset_t *dataset;
    plim_job_t *job;
    plim_status_t status = begin(plan, found->line, false, &job, &dataset);
    if (status == PLIM_ERR_BUDGET)
        (void)snprintf(found->refusal, sizeof found->refusal, "%s", cli_last_error());
    if (status != PLIM_OK)
        return status;
    found->info = *plim_dataset_info(dataset);
    *wrong_out = !train_resolve(train, &found->info);
    if (!*wrong_out)
        status = plan_under(plan, job, dataset, train, found->line, found);
    found->fits = found->planned;
    if (found->fits && plan->sweep.num_keys == 0 && train->params.scratch == NULL &&
        found->plan.info.rows == PLIM_PLACE_DISK)
        status = plan_with_scratch(job, dataset, train, found);
    end(job, dataset);
    return status;
}

/* Finds the minimum of a training that does not fit. Reads no data, since the memory for reading
 * would be unbounded. */
static plim_status_t plan_without_line(const plan_t *plan, train_t *train, bool advised,
                                       plan_found_t *found, bool *wrong_out)
{
    plim_dataset_t *dataset;
    plim_job_t *job;
    plim_status_t status = begin(plan, found->line, true, &job, &dataset);
    if (status != PLIM_OK)
        return status;
    found->info = *plim_dataset_info(dataset);
    *wrong_out = !train_resolve(train, &found->info);
    train_t unread = *train;
    unread.params.no_reading = true;
    if (!*wrong_out)
        status = plan_minimum(job, dataset, &unread, advised, found);
    end(job, dataset);
    return status;
}

plim_status_t plan_find(const plan_t *plan, train_t *train, int64_t line, bool advised,
                        plan_found_t *found_out, bool *wrong_out)
{
    *found_out = (plan_found_t){.line = line};
    *wrong_out = false;
    const plim_status_t status = plan_under_line(plan, train, found_out, wrong_out);
    if (status == PLIM_ERR_BUDGET && !found_out->fits)
        return plan_without_line(plan, train, advised, found_out, wrong_out);
    if (status == PLIM_OK && found_out->fits && advised &&
        train_part_seeds(&found_out->plan, &train->training) > 0)
        return advise_on_parts(plan, train, found_out);
    return status;
}

/* --memory may exceed the limits found here: the job may run elsewhere. */
static plim_status_t find_line(plan_t *plan)
{
    const cli_common_t *common = &plan->train.common;
    char asked[24], here[24];
    plim_status_t status = cli_find_limits(common, &plan->limits);
    if (status != PLIM_OK)
        return status;
    const plim_limit_t *line = &plan->limits.memory[plan->limits.line];
    plan->line = line->value;
    plan->line_source = line->source;
    if (common->memory > line->value) {
        plan->line = common->memory;
        plan->line_source = "--memory";
        if (!common->quiet)
            (void)fprintf(stderr,
                          "planning for --memory %s; the line on this machine is %s from %s\n",
                          plim_size_text(common->memory, asked), plim_size_text(line->value, here),
                          line->source);
    }
    return PLIM_OK;
}

bool plan_can_try(const plan_t *plan)
{
    const plim_limit_t *line = &plan->limits.memory[plan->limits.line];
    char asked[24], here[24];
    if (plan->try_seconds == 0 || plan->line <= line->value)
        return true;
    (void)cli_wrong_use(&plan->train.common,
                        "--try trains here, where the line is %s (%s), and --memory is %s: give no "
                        "more than that, or try it on the machine that has it",
                        plim_size_text(line->value, here), line->source,
                        plim_size_text(plan->line, asked));
    return false;
}

plim_status_t plan_prepare(plan_t *plan)
{
    const plim_status_t status = find_line(plan);
    const int asked = plan->train.common.threads;
    if (status == PLIM_OK && plan->elsewhere && asked > 0)
        plan->limits.threads[plan->limits.threads_line].value = asked;
    return status;
}

plim_status_t plan_pyg_find(plan_t *plan, pyg_plan_t *estimate_out, bool *wrong_out)
{
    plim_dataset_t *dataset;
    plim_job_t *job;
    *wrong_out = false;
    plim_status_t status = begin(plan, plan->line, false, &job, &dataset);
    if (status == PLIM_ERR_BUDGET)
        status = begin(plan, plan->line, true, &job, &dataset);
    if (status != PLIM_OK)
        return cli_pass_failure(status);
    *wrong_out = !train_resolve(&plan->train, plim_dataset_info(dataset));
    if (!*wrong_out)
        status = pyg_plan(job, dataset, &plan->train.training, &plan->pyg.pyg, estimate_out);
    end(job, dataset);
    return status;
}

/* Prints the estimate for PyTorch Geometric next to our minimum. Returns the exit code. */
static int run_for_pyg(plan_t *plan, const plan_found_t *found)
{
    const cli_common_t *common = &plan->train.common;
    pyg_plan_t estimate;
    bool wrong;
    plan->pyg.pyg.line = plan->line == PLIM_LINE_NONE ? 0 : plan->line;
    plan->pyg.ours = cli_minimum_line(&found->plan);
    const plim_status_t status = plan_pyg_find(plan, &estimate, &wrong);
    if (wrong)
        return CLI_WRONG_USE;
    if (status != PLIM_OK)
        return cli_program_failed(common, status);
    plan_pyg_print(common, &plan->train.training, &plan->pyg, &estimate);
    return CLI_DONE;
}

static int run(int argc, char **argv)
{
    static plan_t plan = {
        .train = {.common = {.verb = &cli_verb_plan},
                  .training = PLIM_TRAINING_INIT,
                  .params = {.size = sizeof(plim_plan_params_t), .no_reading = true}},
        .shape = PLIM_GENERATE_OPTIONS_INIT,
        .pyg = {.pyg = PYG_PARAMS_INIT}};
    static plan_found_t found;
    train_t *train = &plan.train;
    bool wrong = false;
    int exit_code;
    train->training.shares = 0; /* not given */
    if (!read_options(argc, argv, &plan, &exit_code))
        return exit_code;
    exit_code = cli_ranks_join();
    if (exit_code != CLI_DONE || !cli_ranks_speaks())
        return exit_code;
    if (plan.ranks == 0 && cli_ranks() != NULL)
        plan.ranks = cli_ranks()->num_ranks;
    if (!take_words(&plan, argc, argv) ||
        (plan.sweep.num_keys == 0 && !plan_resolve_ranks(&plan, train)))
        return CLI_WRONG_USE;
    plim_status_t status = plan_prepare(&plan);
    if (status != PLIM_OK)
        return cli_failed(&train->common, status);
    if (!plan_can_try(&plan))
        return CLI_WRONG_USE;
    if (plan.sweep.num_keys > 0)
        return plan_run_sweep(&plan);
    status = plan_find(&plan, train, plan.line, !plan.for_pyg, &found, &wrong);
    if (wrong)
        return CLI_WRONG_USE;
    if (status != PLIM_OK)
        return cli_failed(&train->common, status);
    if (plan.for_pyg)
        return run_for_pyg(&plan, &found);
    train_warn_idle(train, &found.info, &found.plan);
    json_t *object = train->common.json ? plan_json(&plan, train, &found) : NULL;
    if (object == NULL)
        plan_print(&plan, train, &found);
    if (!found.fits)
        return cli_failed_with(&train->common, PLIM_ERR_BUDGET, found.refusal, object);
    if (object != NULL)
        cli_print_json(object);
    return CLI_DONE;
}

static const cli_option_t own_options[] = {
    {"sweep", "KEY=A,B,.. [KEY=..]",
     "a table over choices, each with each: batch=128,256 hidden=64,256 fanout=3,2:10,5 "
     "precision=f32,bf16 memory=2G,4G model=gcn,sage ranks=1,2,4, and layers, heads, norm, "
     "microbatch; with --for pyg also workers=0,4 loaders=1,3 late-loaders=no,yes "
     "gpu-memory=8G,24G",
     "A row for each combination has the total, the minimum, whether it fits, the bytes that an "
     "epoch reads, and what made it fit: features or graph on disk, recomputed activations, "
     "batches in parts; with --for pyg the peak, the memory to ask for, whether it fits, the GPU "
     "memory and micro-batch, and the phase of the peak. Colons separate values of fanout: "
     "'fanout=3,2:10,5:15,10'. The exit status is 3 if none fits.",
     CLI_BY(plan_take_sweep),
     CLI_HINTS("batch=", "fanout=", "hidden=", "layers=", "heads=", "model=", "precision=", "norm=",
               "microbatch=", "memory=", "ranks=", "workers=", "loaders=", "late-loaders=",
               "gpu-memory=")},
    {"measure", NULL,
     "measure what expected reads depend on: the size of some batches, as train does, and how "
     "often each node is needed, by a pass over the edges for each hop; takes seconds, with a "
     "billion edges a minute, once, then the user's cache has the result",
     "The passes are made where lists or rows will be read from disk. The cache is in "
     "$XDG_CACHE_HOME/plimsoll (else ~/.cache/plimsoll); later plans of that dataset and fan-out "
     "(and batch size, for the second) use it. Whether a training fits, and its minimum, do not "
     "depend on it, except for a dataset of many graphs: there they depend on the largest graph, "
     "which is estimated as eight times the mean ('guessed'), until a training or --measure has "
     "read its size. '--for pyg' always draws unless the result is cached, since its estimate "
     "depends on it.",
     CLI_AT(plan_t, measure)},
    {"try", "[SECONDS]",
     "make steps and an evaluation's batches for so long (default 20), as train would, and print "
     "it/s and the seconds of start, epoch and run; the next plan of the same training shows "
     "them; no run is written",
     "It opens the training as train would and fills the caches; where batches come in windows, "
     "it goes on until the second window, and it evaluates for a quarter of the time. "
     "Checkpoints, at most a twentieth, are left out. The user's cache keeps the result for this "
     "dataset, recipe, line (to a sixteenth), number of threads, processor and disk; the next "
     "plan shows it with its date. In JSON: 'trial', null where there is none, with date, "
     "steps_per_s, start_s, epoch_s, evaluation_s and run_s. Not with --ranks, --sweep, --for, "
     "--eval-exact or a shape.",
     CLI_BY(take_try)},
    {"ranks", "R",
     "plan one of R ranks, each with this line and these threads: what they exchange in a step, "
     "and the part of a batch that each computes",
     "Batches then have R shares unless --shares says otherwise. Steps and evaluations are "
     "divided among ranks, the start and checkpoints are not. Windows on disk are planned for "
     "whole batches, although a rank reads only its part. MPI's memory counts in 'process': 64 MiB "
     "are "
     "assumed, and under mpirun it is measured, as train does it: after messages to and from "
     "every rank. In JSON: 'ranks' with count, shares, rank_shares, exchange_bytes, collectives, "
     "mpi_bytes and mpi_measured.",
     CLI_AT(plan_t, ranks), CLI_RANGE(1, PLIM_RANKS_MAX)},
    CLI_OPTIONS_END};

static const cli_option_t for_options[] = {
    {"for", "LIBRARY", "estimate its peak, and the memory to ask the scheduler for: %s",
     "The estimate is of a script that trains the same model there, phase by phase. The constants "
     "were measured, except those for a GPU, which are assumptions. Batch sizes are measured as "
     "with --measure, unless they are known. A dataset of many graphs is an InMemoryDataset there, "
     "its batches graphs of the mean size. The options below describe the script.",
     CLI_AT(plan_t, other_library), CLI_LIST(0, "pyg")},
    CLI_OPTIONS_END};

static const char *const first_operands[] = {"papers100M", "products",   "arxiv", "reddit",
                                             "free",       ":directory", NULL};

static const cli_group_t groups[] = {
    {.title = "The plan", .options = own_options},
    {.options = cli_shape_options, .base = offsetof(plan_t, shape)},
    {.options = cli_shape_count_options, .base = offsetof(plan_t, shape)},
    {.title = "The same training in PyTorch Geometric, and how its script is written",
     .options = for_options},
    {.options = plan_pyg_script_options, .base = offsetof(plan_t, pyg)},
    {.title = "All of train's options are accepted; these change the plan (plimsoll train --help)",
     .options = train_model_options,
     .of_plan = true},
    {.options = train_task_options, .of_plan = true},
    {.options = train_sampling_options, .of_plan = true},
    {.options = train_step_options, .of_plan = true},
    {.options = train_memory_options, .of_plan = true},
    {.options = train_run_options, .of_plan = true},
    {.options = train_script_options, .of_plan = true},
    CLI_COMMON_GROUP,
    {.options = NULL}};

const cli_verb_t cli_verb_plan = {
    .name = "plan",
    .summary = "plan the memory of a training before it starts, and try its time",
    .help = "usage: plimsoll plan DIR [train's options]\n"
            "       plimsoll plan SHAPE [--scale X] [train's options]\n"
            "       plimsoll plan DIR|SHAPE [train's options] --sweep KEY=A,B,.. [KEY=..]\n"
            "       plimsoll plan DIR|SHAPE [train's options] --for pyg [--gpu-memory SIZE]\n\n"
            "Plans plimsoll train with the same options and prints the peak, the minimum, what an\n"
            "epoch reads, the memory of each account in each phase, and what to write in a batch\n"
            "script. Starts nothing but a trial (--try). If the training does not fit, prints the\n"
            "changes that would make it fit and exits with 3. SHAPE needs no dataset: papers100M,\n"
            "products, arxiv, reddit (also as ogbn-NAME), or free with counts of its own.\n",
    .groups = groups,
    .first_operand = first_operands,
    .run = run,
};
