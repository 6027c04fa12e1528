/* `plimsoll plan`: the memory and time of a training, before it starts. */
#include "command/verb_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TRY_MOST 86400

enum { OPTION_SWEEP = TRAIN_OPTION_MORE, OPTION_FOR, OPTION_MEASURE, OPTION_RANKS, OPTION_TRY };

static const struct option own_options[] = {{"sweep", required_argument, NULL, OPTION_SWEEP},
                                            {"for", required_argument, NULL, OPTION_FOR},
                                            {"measure", no_argument, NULL, OPTION_MEASURE},
                                            {"ranks", required_argument, NULL, OPTION_RANKS},
                                            {"try", optional_argument, NULL, OPTION_TRY},
                                            CLI_SHAPE_OPTIONS,
                                            PLAN_PYG_OPTIONS,
                                            {NULL, 0, NULL, 0}};

bool plan_take_try(const cli_common_t *common, int argc, char **argv, double *seconds_out)
{
    const char *text = optarg;
    char *end = NULL;
    *seconds_out = PLAN_TRY_SECONDS;
    if (text == NULL && optind < argc && strtod(argv[optind], &end) > 0 && *end == '\0')
        text = argv[optind++];
    if (text == NULL)
        return true;
    *seconds_out = strtod(text, &end);
    if (end != text && *end == '\0' && *seconds_out > 0 && *seconds_out <= TRY_MOST)
        return true;
    (void)cli_wrong_use(common, "--try: '%s' is not a number of seconds up to %d", text, TRY_MOST);
    return false;
}

static bool take_option(train_t *train, int code, int argc, char **argv)
{
    static const char *const others[] = {"pyg", NULL};
    plan_t *plan = (plan_t *)train;
    if (code >= (int)CLI_SHAPE_SCALE)
        return cli_take_shape_option(&train->common, code, &plan->shape, &plan->shape_given);
    if (code >= (int)PLAN_PYG_GRAPH) {
        /* Without --for pyg, train's remark tells that the loader's options change nothing. */
        const bool loader = code >= (int)PLAN_PYG_WORKERS && code <= (int)PLAN_PYG_PIN;
        train->loader_words |= loader;
        plan->pyg_given |= !loader;
        return plan_pyg_take_option(&train->common, code, &plan->pyg);
    }
    switch (code) {
    case OPTION_SWEEP:
        return plan_take_sweep(plan, argc, argv);
    case OPTION_FOR:
        plan->for_pyg = cli_parse_word(&train->common, "--for", others) == 0;
        return plan->for_pyg;
    case OPTION_RANKS:
        return cli_parse_int(&train->common, "--ranks", optarg, 1, PLIM_RANKS_MAX, &plan->ranks);
    case OPTION_TRY:
        train->params.no_reading = false; /* plan as train does */
        return plan_take_try(&train->common, argc, argv, &plan->try_seconds);
    default:
        train->params.no_reading = false;
        train->params.weigh_nodes = true;
        return true;
    }
}

/* The dataset directory or the shape. False after an error message. */
static bool take_words(plan_t *plan, int argc, char **argv)
{
    const cli_common_t *common = &plan->train.common;
    const int words = argc - optind;
    struct stat status;
    char hint[192] = "";
    if (plan->pyg_given && !plan->for_pyg)
        (void)cli_wrong_use(common, "--graph, --mapped-features, --loaders, --late-loaders, "
                                    "--gpu-memory and sweeps over them or over workers are for "
                                    "--for pyg");
    else if (plan->try_seconds > 0 &&
             (plan->for_pyg || plan->sweep.num_keys > 0 || plan->ranks > 1))
        (void)cli_wrong_use(common, "--try tries one training in this process: leave out %s",
                            plan->for_pyg     ? "--for pyg"
                            : plan->ranks > 1 ? "--ranks"
                                              : "--sweep");
    else if (plan->train.resume != NULL)
        (void)cli_wrong_use(common, "--resume: plan takes the options of a run, not the run");
    else if (words != 1)
        (void)cli_wrong_use(common, "one dataset directory or shape is needed, not %d words",
                            words);
    else
        plan->train.dataset = argv[optind];
    if (plan->train.dataset == NULL)
        return false;
    if (stat(plan->train.dataset, &status) != 0)
        plan->shape.shape = cli_shape_named(plan->train.dataset, hint);
    if (plan->shape.shape == NULL && plan->shape_given != 0)
        (void)cli_wrong_use(common,
                            "--scale, --spread, --dtype, --nodes, --edges, --features and "
                            "--classes are for shapes (papers100M, products, arxiv, reddit, free); "
                            "%s is a directory or unknown",
                            plan->train.dataset);
    else if (plan->shape.shape == NULL && stat(plan->train.dataset, &status) != 0)
        (void)cli_wrong_use(common, "%s is neither a dataset directory nor a shape%s",
                            plan->train.dataset, hint);
    else if (plan->shape.shape != NULL && plan->try_seconds > 0)
        (void)cli_wrong_use(common, "--try needs a dataset, and %s is a shape: generate it first",
                            plan->train.dataset);
    else
        return plan->shape.shape == NULL || strcmp(plan->shape.shape, "free") != 0 ||
               cli_check_free_shape(common, plan->shape_given);
    return false;
}

/* Starts a job under `line` (`endless`: without one) and opens the dataset. */
static plim_status_t begin(const plan_t *plan, int64_t line, bool endless, plim_job_t **job_out,
                           plim_dataset_t **dataset_out)
{
    /* No messages for many plans, or for a plan that is not run. */
    const bool silent = plan->silent || plan->sweep.num_keys > 0 || endless;
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
        (void)snprintf(found->refusal, sizeof found->refusal, "%s", plim_last_error());
    if (status != PLIM_OK)
        return status;
    plan_found_end(found);
    found->plan = cli_json_plan(plan);
    if (all != NULL)
        status = find_trial(all, job, dataset, train, plan, found);
    plim_plan_release(plan);
    return status;
}

void plan_found_end(plan_found_t *found)
{
    json_decref(found->plan);
    found->plan = NULL;
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
        (void)snprintf(found->refusal + used, sizeof found->refusal - used, ", or %s",
                       found->advice[i].change);
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
    return plan_under(NULL, job, dataset, train, cli_minimum_line(found->plan), found);
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

/* Settles and plans `train` under the line. PLIM_ERR_BUDGET without a plan: it does not fit. */
static plim_status_t plan_under_line(const plan_t *plan, train_t *train, plan_found_t *found,
                                     bool *said_out)
{
    plim_dataset_t *dataset;
    plim_job_t *job;
    plim_status_t status = begin(plan, found->line, false, &job, &dataset);
    if (status == PLIM_ERR_BUDGET)
        (void)snprintf(found->refusal, sizeof found->refusal, "%s", plim_last_error());
    if (status != PLIM_OK)
        return status;
    found->info = *plim_dataset_info(dataset);
    *said_out = !train_settle(train, &found->info);
    if (!*said_out)
        status = plan_under(plan, job, dataset, train, found->line, found);
    found->fits = found->plan != NULL;
    end(job, dataset);
    return status;
}

/* Finds the minimum of a training that does not fit. Reads no data, since the memory for reading
 * would be unbounded. */
static plim_status_t plan_without_line(const plan_t *plan, train_t *train, bool advised,
                                       plan_found_t *found, bool *said_out)
{
    plim_dataset_t *dataset;
    plim_job_t *job;
    plim_status_t status = begin(plan, found->line, true, &job, &dataset);
    if (status != PLIM_OK)
        return status;
    found->info = *plim_dataset_info(dataset);
    *said_out = !train_settle(train, &found->info);
    train_t unread = *train;
    unread.params.no_reading = true;
    if (!*said_out)
        status = plan_minimum(job, dataset, &unread, advised, found);
    end(job, dataset);
    return status;
}

plim_status_t plan_find(const plan_t *plan, train_t *train, int64_t line, bool advised,
                        plan_found_t *found_out, bool *said_out)
{
    *found_out = (plan_found_t){.line = line};
    *said_out = false;
    const plim_status_t status = plan_under_line(plan, train, found_out, said_out);
    if (status == PLIM_ERR_BUDGET && !found_out->fits)
        return plan_without_line(plan, train, advised, found_out, said_out);
    if (status == PLIM_OK && found_out->fits && advised &&
        train_part_seeds(found_out->plan, &train->training) > 0)
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

plim_status_t plan_pyg_find(const plan_t *plan, train_t *train, const plan_pyg_options_t *options,
                            json_t **estimate_out, bool *said_out)
{
    plim_dataset_t *dataset;
    plim_job_t *job;
    *said_out = false;
    plim_status_t status = begin(plan, plan->line, false, &job, &dataset);
    if (status == PLIM_ERR_BUDGET)
        status = begin(plan, plan->line, true, &job, &dataset);
    if (status != PLIM_OK)
        return cli_pass_failure(status);
    *said_out = !train_settle(train, plim_dataset_info(dataset));
    if (!*said_out) {
        pyg_plan_t estimate;
        status = pyg_plan(job, dataset, &train->training, &options->pyg, &estimate);
        if (status == PLIM_OK)
            *estimate_out = pyg_json(&estimate, &options->pyg);
    }
    end(job, dataset);
    return status;
}

/* Prints the estimate for PyTorch Geometric next to our minimum. Returns the exit code. */
static int run_for_pyg(plan_t *plan, const plan_found_t *found)
{
    const cli_common_t *common = &plan->train.common;
    json_t *estimate = NULL;
    bool said;
    plan->pyg.pyg.line = plan->line == PLIM_LINE_NONE ? 0 : plan->line;
    plan->pyg.ours = cli_minimum_line(found->plan);
    const plim_status_t status = plan_pyg_find(plan, &plan->train, &plan->pyg, &estimate, &said);
    if (said)
        return CLI_WRONG_USE;
    if (status != PLIM_OK)
        return cli_program_failed(common, status);
    plan_pyg_print(common, &plan->train.training, &plan->pyg, estimate);
    json_decref(estimate);
    return CLI_DONE;
}

static int run(int argc, char **argv)
{
    static const train_more_t more = {own_options, take_option};
    static plan_t plan = {
        .train = {.common = {.verb = &cli_verb_plan},
                  .more = &more,
                  .training = PLIM_TRAINING_INIT,
                  .params = {.size = sizeof(plim_plan_params_t), .no_reading = true}},
        .shape = PLIM_GENERATE_OPTIONS_INIT,
        .pyg = {.pyg = PYG_PARAMS_INIT}};
    static plan_found_t found;
    train_t *train = &plan.train;
    bool said = false;
    int exit_code;
    train->training.shares = 0; /* not given */
    if (!train_read_options(argc, argv, train, &exit_code))
        return exit_code;
    exit_code = cli_ranks_join();
    if (exit_code != CLI_DONE || !cli_ranks_speaks())
        return exit_code;
    if (plan.ranks == 0 && cli_ranks() != NULL)
        plan.ranks = cli_ranks()->num_ranks;
    if (!take_words(&plan, argc, argv) ||
        (plan.sweep.num_keys == 0 && !plan_settle_ranks(&plan, train)))
        return CLI_WRONG_USE;
    plim_status_t status = plan_prepare(&plan);
    if (status != PLIM_OK)
        return cli_failed(&train->common, status);
    if (!plan_can_try(&plan))
        return CLI_WRONG_USE;
    if (plan.sweep.num_keys > 0)
        return plan_run_sweep(&plan);
    status = plan_find(&plan, train, plan.line, !plan.for_pyg, &found, &said);
    if (said)
        return CLI_WRONG_USE;
    if (status != PLIM_OK)
        return cli_failed(&train->common, status);
    if (plan.for_pyg)
        return run_for_pyg(&plan, &found);
    train_warn_idle(train, &found.info, found.plan);
    if (plan.ranks > 0)
        plan_ranks(&plan, train, &found);
    json_t *object = train->common.json ? plan_json(&plan, &found) : NULL;
    if (object == NULL)
        plan_print(&plan, train, &found);
    if (!found.fits)
        return cli_failed_with(&train->common, PLIM_ERR_BUDGET, found.refusal, object);
    if (object != NULL)
        cli_print_json(object);
    return CLI_DONE;
}

const cli_verb_t cli_verb_plan = {
    .name = "plan",
    .summary = "plan the memory of a training before it starts, and try its time",
    .help =
        "usage: plimsoll plan DIR [train's options]\n"
        "       plimsoll plan SHAPE [--scale X] [train's options]\n"
        "       plimsoll plan DIR|SHAPE [train's options] --sweep KEY=A,B,.. [KEY=..]\n"
        "       plimsoll plan DIR|SHAPE [train's options] --for pyg [--gpu-memory SIZE]\n\n"
        "Plans plimsoll train with the same options and prints the peak, the minimum, what an "
        "epoch\n"
        "reads, the memory of each account in each phase, and what to write in\n"
        "a batch script. Starts nothing but a trial (--try). If the training does not fit, prints "
        "the changes that "
        "would\n"
        "make it fit and exits with 3. SHAPE needs no dataset: papers100M, products, arxiv, reddit "
        "(also as\n"
        "ogbn-NAME), or free with counts of its own.\n\n"
        "  --sweep KEY=A,B,.. [KEY=..]\n"
        "                   a table over choices, each with each: batch=128,256 hidden=64,256\n"
        "                   fanout=3,2:10,5 precision=f32,bf16 memory=2G,4G model=gcn,sage\n"
        "                   ranks=1,2,4, and layers, heads, norm, microbatch; with --for pyg also\n"
        "                   workers=0,4 loaders=1,3 late-loaders=no,yes gpu-memory=8G,24G\n"
        "  --measure        measure what expected reads depend on: the size of some batches, as "
        "train\n"
        "                   does, and how often each node is needed, by a pass over the edges for "
        "each\n"
        "                   hop; takes seconds, with a billion edges a minute, once, then the "
        "user's\n"
        "                   cache has the result\n"
        "  --try [SECONDS]  make steps and an evaluation's batches for so long (default 20), as "
        "train\n"
        "                   would, and print it/s and the seconds of start, epoch and run; the "
        "next\n"
        "                   plan of the same training shows them; no run is written\n"
        "  --ranks R        plan one of R ranks, each with this line and these threads: what they\n"
        "                   exchange in a step, and the part of a batch that each computes\n"
        "  --scale X        of a shape: nodes, edges and splits times X\n"
        "  --spread S       of a shape: 0: its own locality … 1: neighbours without any\n"
        "  --dtype TYPE     of a shape: features as f16 or f32\n"
        "  --nodes N        counts of the free shape, all four of them\n"
        "  --edges E\n"
        "  --features F\n"
        "  --classes C\n\n"
        "The same training in PyTorch Geometric, and how its script is written:\n"
        "  --for pyg        estimate its peak, and the memory to ask the scheduler for\n"
        "  --graph KIND     edge_index, which every loader sorts (default), or csc\n"
        "  --mapped-features\n"
        "                   features stay in a mapped file\n"
        "  --loaders N      NeighborLoaders alive at once, 1 to 3; default 3\n"
        "  --workers N      num_workers of each; default 0\n"
        "  --prefetch N     prefetch_factor; default 2\n"
        "  --persistent-workers\n"
        "  --pin-memory\n"
        "  --late-loaders   all loaders but the first are made after the first epoch\n"
        "  --gpu-memory SIZE\n"
        "                   the batch, micro-batch and precision that fit a GPU of this size\n\n"
        "All of train's options are accepted; these change the plan (plimsoll train --help):\n"
        "  --model KIND     gcn (default), sage, gat, gin or mlp\n"
        "  --layers N       number of layers; default: one for each fan-out\n"
        "  --hidden N       channels between layers; default 64\n"
        "  --heads N        of gat\n"
        "  --norm KIND      none (default), layer or batch\n"
        "  --precision TYPE f32 (default) or bf16\n"
        "  --batch N        seeds a batch; default 1024\n"
        "  --fanout A,B,..  neighbours drawn at each hop; default 10 at each\n"
        "  --shares S       cut each batch into S shares, computed one after the other\n"
        "  --microbatch K   compute a batch K seeds at a time\n"
        "  --recompute      compute activations again instead of keeping them\n"
        "  --row-cache SIZE size of the cache for rows on disk, or none\n"
        "  --scratch DIR    a local disk that keeps the cached rows for the next start\n"
        "  --epochs N       epochs of the whole run; default 10\n"
        "  --eval-every N   epochs between evaluations; default 1; 0: none\n"
        "  --eval-fanout A,B,..\n"
        "                   neighbours drawn at each hop of an evaluation; default: --fanout\n"
        "  --eval-exact N   evaluate every N epochs with all neighbours\n"
        "  --eval-splits S,..\n"
        "                   splits evaluated between epochs; default valid,test\n",
    .run = run,
};
