/* What a training will hold in memory, and take: said before anything is started. */
#include "verb_plan.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define MIB ((int64_t)1 << 20)

enum {
    OPTION_SWEEP = TRAIN_OPTION_MORE,
    OPTION_FOR,
    OPTION_MEASURE,
    OPTION_SCALE,
    OPTION_SPREAD,
    OPTION_DTYPE,
    OPTION_NODES,
    OPTION_EDGES,
    OPTION_FEATURES,
    OPTION_CLASSES
};

static const struct option own_options[] = {{"sweep", required_argument, NULL, OPTION_SWEEP},
                                            {"for", required_argument, NULL, OPTION_FOR},
                                            {"measure", no_argument, NULL, OPTION_MEASURE},
                                            {"scale", required_argument, NULL, OPTION_SCALE},
                                            {"spread", required_argument, NULL, OPTION_SPREAD},
                                            {"dtype", required_argument, NULL, OPTION_DTYPE},
                                            {"nodes", required_argument, NULL, OPTION_NODES},
                                            {"edges", required_argument, NULL, OPTION_EDGES},
                                            {"features", required_argument, NULL, OPTION_FEATURES},
                                            {"classes", required_argument, NULL, OPTION_CLASSES},
                                            PLAN_PYG_OPTIONS,
                                            {NULL, 0, NULL, 0}};

static const char *const shapes[] = {"papers100M", "products", "arxiv", "reddit", "free", NULL};

static bool take_counts(plan_t *plan, int code)
{
    const cli_common_t *common = &plan->train.common;
    plim_generate_options_t *shape = &plan->shape;
    plan->counts |= 1U << (code - OPTION_NODES);
    switch (code) {
    case OPTION_NODES:
        return cli_parse_int(common, "--nodes", optarg, 1, INT64_MAX, &shape->num_nodes);
    case OPTION_EDGES:
        return cli_parse_int(common, "--edges", optarg, 0, INT64_MAX, &shape->num_edges);
    case OPTION_FEATURES:
        return cli_parse_int(common, "--features", optarg, 0, INT64_MAX, &shape->num_features);
    default:
        return cli_parse_int(common, "--classes", optarg, 1, INT64_MAX, &shape->num_classes);
    }
}

static bool take_option(train_t *train, int code, int argc, char **argv)
{
    static const char *const types[] = {"f16", "f32", NULL};
    static const char *const others[] = {"pyg", NULL};
    plan_t *plan = (plan_t *)train;
    int type;
    if (code >= (int)PLAN_PYG_GRAPH) {
        plan->pyg_given = true;
        return plan_pyg_take_option(&train->common, code, &plan->pyg);
    }
    if (code >= OPTION_SCALE)
        plan->shaped = true;
    switch (code) {
    case OPTION_SWEEP:
        return plan_take_sweep(plan, argc, argv);
    case OPTION_FOR:
        plan->for_pyg = cli_parse_word(&train->common, "--for", others) == 0;
        return plan->for_pyg;
    case OPTION_MEASURE:
        train->params.no_reading = false;
        return true;
    case OPTION_SCALE:
        return cli_parse_real(&train->common, "--scale", optarg, 0, 1e6, &plan->shape.scale);
    case OPTION_SPREAD:
        return cli_parse_real(&train->common, "--spread", optarg, 0, 2, &plan->shape.spread);
    case OPTION_DTYPE:
        type = cli_parse_word(&train->common, "--dtype", types);
        plan->shape.features = type == 0 ? PLIM_F16 : PLIM_F32;
        return type >= 0;
    default:
        return take_counts(plan, code);
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

/* A directory, or else a shape. False when it is neither, already said. */
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
        (void)cli_wrong_use(common, "a run that is there has been planned; give its options, not "
                                    "--resume");
    else if (words != 1)
        (void)cli_wrong_use(common, "one dataset directory or shape is needed, not %d words",
                            words);
    else
        plan->train.dataset = argv[optind];
    if (plan->train.dataset == NULL)
        return false;
    if (stat(plan->train.dataset, &status) != 0)
        plan->shape.shape = shape_named(plan->train.dataset);
    if (plan->shape.shape == NULL && plan->shaped)
        (void)cli_wrong_use(common,
                            "--scale, --spread, --dtype, --nodes, --edges, --features and "
                            "--classes are for shapes (papers100M, products, arxiv, reddit, free), "
                            "and %s is none",
                            plan->train.dataset);
    else if (plan->shape.shape == NULL && stat(plan->train.dataset, &status) != 0)
        (void)cli_wrong_use(common,
                            "there is no dataset directory %s, and no shape of that name: they "
                            "are papers100M, products, arxiv, reddit and free",
                            plan->train.dataset);
    else if (plan->shape.shape != NULL && strcmp(plan->shape.shape, "free") == 0 &&
             plan->counts != 0xf)
        (void)cli_wrong_use(common,
                            "the free shape needs --nodes, --edges, --features and --classes");
    else
        return true;
    return false;
}

/* A job under `line`, or without an end, and the dataset in it. */
static plim_status_t begin(const plan_t *plan, int64_t line, bool endless, plim_job_t **job_out,
                           plim_dataset_t **dataset_out)
{
    /* Nobody wants the messages of many plans, or of one that is not run. */
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

/* As plim_train_plan, and why it does not fit; what would is found by advise. */
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

/* A line of whole MiB, and one to spare, as the refusal names it. */
static int64_t rounded(int64_t minimum)
{
    return (minimum / MIB + (minimum % MIB != 0) + 1) * MIB;
}

/* What does not fit under the line: why, what would, and what the least line would hold. */
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

/* What would keep batches whole. What they take as they are lies above the line. */
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
    /* Where the line is too low even for a ledger, or for the plan, there is one without end; what
     * it would read is not bounded by the memory that is really there. */
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

/* --memory is taken at its word: the job that is planned may run elsewhere. */
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
            (void)fprintf(stderr, "planned for %s; here the line is %s from %s\n",
                          plim_size_text(common->memory, asked), plim_size_text(line->value, here),
                          line->source);
    }
    return PLIM_OK;
}

/* The same training in PyG, beside what was found for ours; the exit code. */
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
    train_say_idle(train, &found.info, found.plan);
    json_t *object = train->common.json ? plan_json(&plan, &found) : NULL;
    if (object == NULL)
        plan_say(&plan, train, &found);
    if (!found.fits)
        return cli_failed_with(&train->common, PLIM_ERR_BUDGET, found.refusal, object);
    if (object != NULL)
        cli_print_json(object);
    return CLI_DONE;
}

const cli_verb_t cli_verb_plan = {
    .name = "plan",
    .summary = "what a training will hold in memory and take, before it starts",
    .help =
        "usage: plimsoll plan DIR [train's options]\n"
        "       plimsoll plan SHAPE [--scale X] [train's options]\n"
        "       plimsoll plan DIR|SHAPE [train's options] --sweep KEY=A,B,.. [KEY=..]\n"
        "       plimsoll plan DIR|SHAPE [train's options] --for pyg [--gpu-memory SIZE]\n\n"
        "Prints what plimsoll train would hold in memory with the same options: each account at\n"
        "each phase, the peak, the least memory that would do, what a batch is and what an epoch\n"
        "takes. Nothing is started or written. Exit code 3 when it does not fit, with the changes\n"
        "that would make it fit. SHAPE is planned without any dataset: papers100M, products,\n"
        "arxiv, reddit (also as ogbn-NAME), or free with counts of its own.\n\n"
        "  --sweep KEY=A,B,.. [KEY=..]\n"
        "                   a table over choices, each with each: batch=128,256 hidden=64,256\n"
        "                   fanout=3,2:10,5 precision=f32,bf16 memory=2G,4G model=gcn,sage, and\n"
        "                   layers, heads, norm, microbatch\n"
        "  --measure        draw some batches to know their size, as train does: a few seconds\n"
        "                   of reading, once, for it is kept in the user's cache\n"
        "  --scale X        of a shape: nodes, edges and splits times X\n"
        "  --spread S       of a shape: 0: its own locality … 1: neighbours without any\n"
        "  --dtype TYPE     of a shape: features as f16 or f32\n"
        "  --nodes N        counts of the free shape, all four of them\n"
        "  --edges E\n"
        "  --features F\n"
        "  --classes C\n\n"
        "What the same training takes in PyTorch Geometric, and how the script is written:\n"
        "  --for pyg        an estimate of its peak, and what to ask the scheduler for\n"
        "  --graph KIND     edge_index, which every loader sorts (default), or csc\n"
        "  --mapped-features\n"
        "                   features stay in a mapped file\n"
        "  --loaders N      NeighborLoaders alive at once, 1 to 3; default 3\n"
        "  --workers N      num_workers of each; default 0\n"
        "  --prefetch N     prefetch_factor; default 2\n"
        "  --persistent-workers\n"
        "  --pin-memory\n"
        "  --gpu-memory SIZE\n"
        "                   a GPU of this size computes: which batch, micro-batch and precision\n"
        "                   fit it\n\n"
        "Of train's options, all of which are read, these matter (plimsoll train --help):\n"
        "  --model KIND     gcn (default), sage, gat, gin or mlp\n"
        "  --layers N       how many\n"
        "  --hidden N       channels between layers; default 64\n"
        "  --heads N        of gat\n"
        "  --norm KIND      none (default), layer or batch\n"
        "  --precision TYPE f32 (default) or bf16\n"
        "  --batch N        seeds a batch; default 1024\n"
        "  --fanout A,B,..  neighbours drawn at each hop; default 10 at each\n"
        "  --microbatch K   K seeds at a time\n"
        "  --recompute      activations are computed again instead of kept\n"
        "  --row-cache SIZE  rows kept in memory, or none\n"
        "  --scratch DIR    a local disk for packed rows\n",
    .run = run,
};
