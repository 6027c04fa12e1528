/* `plimsoll plan`: the memory and time of a training, before it starts. */
#include "verb_plan.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define MIB ((int64_t)1 << 20)

enum { OPTION_SWEEP = TRAIN_OPTION_MORE, OPTION_FOR, OPTION_MEASURE };

static const struct option own_options[] = {{"sweep", required_argument, NULL, OPTION_SWEEP},
                                            {"for", required_argument, NULL, OPTION_FOR},
                                            {"measure", no_argument, NULL, OPTION_MEASURE},
                                            CLI_SHAPE_OPTIONS,
                                            PLAN_PYG_OPTIONS,
                                            {NULL, 0, NULL, 0}};

static const char *const shapes[] = {"papers100M", "products", "arxiv", "reddit", "free", NULL};

static bool take_option(train_t *train, int code, int argc, char **argv)
{
    static const char *const others[] = {"pyg", NULL};
    plan_t *plan = (plan_t *)train;
    if (code >= (int)CLI_SHAPE_SCALE)
        return cli_take_shape_option(&train->common, code, &plan->shape, &plan->shape_given);
    if (code >= (int)PLAN_PYG_GRAPH) {
        plan->pyg_given = true;
        return plan_pyg_take_option(&train->common, code, &plan->pyg);
    }
    switch (code) {
    case OPTION_SWEEP:
        return plan_take_sweep(plan, argc, argv);
    case OPTION_FOR:
        plan->for_pyg = cli_parse_word(&train->common, "--for", others) == 0;
        return plan->for_pyg;
    default:
        train->params.no_reading = false;
        return true;
    }
}

/* "papers100m", "ogbn-papers100M" and "ogbn_papers100M" are papers100M; NULL: no shape. */
static const char *shape_named(const char *name)
{
    if (strncasecmp(name, "ogbn-", 5) == 0 || strncasecmp(name, "ogbn_", 5) == 0)
        name += 5;
    for (int i = 0; shapes[i] != NULL; i++)
        if (strcasecmp(name, shapes[i]) == 0)
            return shapes[i];
    return NULL;
}

/* The dataset directory or the shape. False after an error message. */
static bool take_words(plan_t *plan, int argc, char **argv)
{
    const cli_common_t *common = &plan->train.common;
    const int words = argc - optind;
    struct stat status;
    if (plan->pyg_given && !plan->for_pyg)
        (void)cli_wrong_use(common, "--graph, --mapped-features, --loaders, --workers, --prefetch, "
                                    "--persistent-workers, --pin-memory and --gpu-memory are for "
                                    "--for pyg");
    else if (plan->for_pyg && plan->sweep.num_keys > 0)
        (void)cli_wrong_use(common, "--sweep is for plimsoll's own plan, not --for pyg");
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
        plan->shape.shape = shape_named(plan->train.dataset);
    if (plan->shape.shape == NULL && plan->shape_given != 0)
        (void)cli_wrong_use(common,
                            "--scale, --spread, --dtype, --nodes, --edges, --features and "
                            "--classes are for shapes (papers100M, products, arxiv, reddit, free); "
                            "%s is a directory or unknown",
                            plan->train.dataset);
    else if (plan->shape.shape == NULL && stat(plan->train.dataset, &status) != 0)
        (void)cli_wrong_use(common,
                            "%s is neither a dataset directory nor a shape (papers100M, products, "
                            "arxiv, reddit, free)",
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
    const bool silent = plan->sweep.num_keys > 0 || endless;
    plim_status_t status =
        cli_job_start_under(&plan->train.common, &plan->limits, line, endless, silent, job_out);
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

/* Plans under `line`. Keeps the refusal where the training does not fit. */
static plim_status_t plan_under(const plim_job_t *job, const plim_dataset_t *dataset,
                                const train_t *train, int64_t line, plan_found_t *found)
{
    plim_plan_params_t params = train->params;
    plim_plan_t *plan;
    params.memory = line;
    params.no_advice = true;
    const plim_status_t status = plim_train_plan(job, dataset, &train->training, &params, &plan);
    if (status == PLIM_ERR_BUDGET)
        (void)snprintf(found->refusal, sizeof found->refusal, "%s", plim_last_error());
    if (status != PLIM_OK)
        return status;
    plan_found_end(found);
    found->plan = cli_json_plan(plan);
    plim_plan_release(plan);
    return PLIM_OK;
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

/* The minimum as the refusal names it: rounded up to whole MiB, plus one. */
static int64_t rounded(int64_t minimum)
{
    return (minimum / MIB + (minimum % MIB != 0) + 1) * MIB;
}

/* A training that does not fit: the refusal, advice, and the plan under the minimum line. */
static plim_status_t plan_minimum(const plim_job_t *job, const plim_dataset_t *dataset,
                                  const train_t *train, bool advised, plan_found_t *found)
{
    plim_status_t status = plan_under(job, dataset, train, found->line, found);
    if (advised && (status == PLIM_OK || status == PLIM_ERR_BUDGET))
        status = advise(job, dataset, train, found);
    if (status == PLIM_OK || status == PLIM_ERR_BUDGET)
        status = plan_under(job, dataset, train, 0, found);
    if (status != PLIM_OK)
        return status;
    return plan_under(job, dataset, train, rounded(cli_json_int(found->plan, "minimum_bytes")),
                      found);
}

/* Finds changes that keep batches whole. Whole batches need more than the line: no limit here. */
static plim_status_t advise_on_parts(const plan_t *plan, const train_t *train, plan_found_t *found)
{
    plim_dataset_t *dataset;
    plim_job_t *job;
    plim_status_t status = begin(plan, found->line, true, &job, &dataset);
    if (status != PLIM_OK)
        return status;
    status = advise(job, dataset, train, found);
    end(job, dataset);
    return status;
}

plim_status_t plan_find(const plan_t *plan, train_t *train, int64_t line, bool advised,
                        plan_found_t *found_out, bool *said_out)
{
    const bool no_reading = train->params.no_reading;
    plim_status_t status = PLIM_ERR_BUDGET;
    *found_out = (plan_found_t){.line = line};
    *said_out = false;
    /* A training that does not fit is planned again without a line, to find its minimum. It reads
     * nothing then: the memory for reading is not bounded. */
    for (int endless = 0; endless < 2 && status == PLIM_ERR_BUDGET; endless++) {
        plim_dataset_t *dataset;
        plim_job_t *job;
        train->params.no_reading = no_reading || endless == 1;
        status = begin(plan, line, endless == 1, &job, &dataset);
        if (status == PLIM_ERR_BUDGET)
            (void)snprintf(found_out->refusal, sizeof found_out->refusal, "%s", plim_last_error());
        if (status != PLIM_OK)
            continue;
        found_out->info = *plim_dataset_info(dataset);
        *said_out = !train_settle(train, &found_out->info);
        if (!*said_out)
            status = endless == 0 ? plan_under(job, dataset, train, line, found_out)
                                  : plan_minimum(job, dataset, train, advised, found_out);
        found_out->fits = endless == 0 && !*said_out && status == PLIM_OK;
        end(job, dataset);
    }
    train->params.no_reading = true;
    if (found_out->fits && advised && cli_json_int(found_out->plan, "part_seeds") > 0)
        status = advise_on_parts(plan, train, found_out);
    train->params.no_reading = no_reading;
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

/* Prints the estimate for PyTorch Geometric next to our minimum. Returns the exit code. */
static int run_for_pyg(plan_t *plan, const plan_found_t *found)
{
    plim_status_t status = PLIM_ERR_BUDGET;
    plim_dataset_t *dataset;
    plim_job_t *job;
    plan->pyg.pyg.line = plan->line == PLIM_LINE_NONE ? 0 : plan->line;
    plan->pyg.ours = cli_json_int(found->plan, "minimum_bytes");
    for (int endless = 0; endless < 2 && status == PLIM_ERR_BUDGET; endless++)
        status = begin(plan, plan->line, endless == 1, &job, &dataset);
    if (status != PLIM_OK)
        return cli_failed(&plan->train.common, status);
    const int exit_code =
        plan_for_pyg(&plan->train.common, job, dataset, &plan->train.training, &plan->pyg);
    end(job, dataset);
    return exit_code;
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
        .pyg = {.pyg = PLIM_PYG_PARAMS_INIT}};
    static plan_found_t found;
    train_t *train = &plan.train;
    bool said = false;
    int exit_code;
    if (!train_read_options(argc, argv, train, &exit_code))
        return exit_code;
    if (!take_words(&plan, argc, argv))
        return CLI_WRONG_USE;
    plim_status_t status = find_line(&plan);
    if (status != PLIM_OK)
        return cli_failed(&train->common, status);
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
    .summary = "plan the memory and time of a training before it starts",
    .help =
        "usage: plimsoll plan DIR [train's options]\n"
        "       plimsoll plan SHAPE [--scale X] [train's options]\n"
        "       plimsoll plan DIR|SHAPE [train's options] --sweep KEY=A,B,.. [KEY=..]\n"
        "       plimsoll plan DIR|SHAPE [train's options] --for pyg [--gpu-memory SIZE]\n\n"
        "Plans plimsoll train with the same options and prints the memory of each account in each\n"
        "phase, the peak, the minimum, the size of a batch and the time of an epoch. Starts and\n"
        "writes nothing. If the training does not fit, prints the changes that would make it fit\n"
        "and exits with 3. SHAPE needs no dataset: papers100M, products, arxiv, reddit (also as\n"
        "ogbn-NAME), or free with counts of its own.\n\n"
        "  --sweep KEY=A,B,.. [KEY=..]\n"
        "                   a table over choices, each with each: batch=128,256 hidden=64,256\n"
        "                   fanout=3,2:10,5 precision=f32,bf16 memory=2G,4G model=gcn,sage, and\n"
        "                   layers, heads, norm, microbatch\n"
        "  --measure        draw some batches to measure their size, as train does; takes a few\n"
        "                   seconds once, then the user's cache has the result\n"
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
        "  --microbatch K   compute a batch K seeds at a time\n"
        "  --recompute      compute activations again instead of keeping them\n"
        "  --row-cache SIZE size of the cache for rows on disk, or none\n"
        "  --scratch DIR    a local disk that keeps the cached rows for the next start\n",
    .run = run,
};
