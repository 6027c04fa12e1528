/* `plimsoll plan --for pyg`: what the same training takes in PyTorch Geometric. */
#include "verb_plan.h"

#include <inttypes.h>
#include <stdio.h>

#define GIB ((int64_t)1 << 30)

static bool take_count(const cli_common_t *common, const char *option, int64_t least, int64_t most,
                       int *count_out)
{
    int64_t value;
    if (!cli_parse_int(common, option, optarg, least, most, &value))
        return false;
    *count_out = (int)value;
    return true;
}

static bool take_gpu(const cli_common_t *common, plim_pyg_options_t *pyg)
{
    if (plim_size_parse(optarg, &pyg->gpu_memory) == PLIM_OK && pyg->gpu_memory > 0)
        return true;
    (void)cli_wrong_use(common, "--gpu-memory: '%s' is not a size, like 8G", optarg);
    return false;
}

bool plan_pyg_take_option(const cli_common_t *common, int code, plan_pyg_options_t *options)
{
    static const char *const graphs[] = {"edge_index", "csc", NULL};
    plim_pyg_options_t *pyg = &options->pyg;
    int word;
    switch (code) {
    case PLAN_PYG_GRAPH:
        word = cli_parse_word(common, "--graph", graphs);
        pyg->graph = word == 1 ? PLIM_PYG_CSC : PLIM_PYG_EDGE_INDEX;
        return word >= 0;
    case PLAN_PYG_MAPPED:
        pyg->rows = PLIM_PYG_ROWS_MAPPED;
        return true;
    case PLAN_PYG_LOADERS:
        return take_count(common, "--loaders", 1, 3, &pyg->num_loaders);
    case PLAN_PYG_WORKERS:
        return take_count(common, "--workers", 0, 1024, &pyg->num_workers);
    case PLAN_PYG_PREFETCH:
        return take_count(common, "--prefetch", 1, 1024, &pyg->prefetch);
    case PLAN_PYG_PERSISTENT:
        return pyg->persistent_workers = true;
    case PLAN_PYG_PIN:
        return pyg->pin_memory = true;
    default:
        return take_gpu(common, pyg);
    }
}

/* What a job does when the killer comes in that phase. */
static const char *doing(const plim_pyg_plan_t *plan, int phase)
{
    static const char *const words[PLIM_PYG_PHASES] = {
        "while it imports torch", "while the dataset is read", "while its loaders are made",
        "while it trains", "while it evaluates"};
    for (int i = 0; i < plan->num_accounts && phase == PLIM_PYG_SORT; i++)
        if (plan->accounts[i].phase[PLIM_PYG_SORT] > plan->accounts[i].phase[PLIM_PYG_TRAIN])
            return "while edge_index is sorted for a loader";
    return words[phase];
}

static json_t *json_phases(const int64_t phase[PLIM_PYG_PHASES])
{
    json_t *object = json_object();
    for (int i = 0; i < PLIM_PYG_PHASES; i++)
        (void)json_object_set_new(object, plim_pyg_phase_name((plim_pyg_phase_t)i),
                                  json_integer(phase[i]));
    return object;
}

static json_t *json_gpu(const plim_pyg_gpu_t *gpu)
{
    const char *const *precisions = plim_words(PLIM_WORDS_PRECISION);
    json_t *largest = json_object();
    for (int i = PLIM_PRECISION_F32; i <= PLIM_PRECISION_BF16; i++)
        (void)json_object_set_new(largest, precisions[i], json_integer(gpu->largest_batch[i]));
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:o, s:I, s:s}", "memory_bytes",
                     (json_int_t)gpu->memory, "context_bytes", (json_int_t)gpu->context,
                     "model_bytes", (json_int_t)gpu->model, "batch_bytes",
                     (json_int_t)gpu->batch_bytes, "activation_bytes", (json_int_t)gpu->activations,
                     "total_bytes", (json_int_t)gpu->total, "fits", gpu->fits, "largest_batch",
                     largest, "microbatch", (json_int_t)gpu->microbatch, "microbatch_precision",
                     precisions[gpu->micro_precision]);
}

static void print_json(const plim_pyg_plan_t *plan, const plan_pyg_options_t *options)
{
    json_t *object = json_pack("{s:s, s:s}", "event", "plan", "for", "pyg");
    json_t *accounts = json_array();
    for (int i = 0; i < plan->num_accounts; i++)
        (void)json_array_append_new(
            accounts,
            json_pack("{s:s, s:I, s:b, s:o}", "name", plan->accounts[i].name, "bytes",
                      (json_int_t)plan->accounts[i].bytes, "reclaimable", plan->accounts[i].file,
                      "phases", json_phases(plan->accounts[i].phase)));
    (void)json_object_set_new(object, "accounts", accounts);
    (void)json_object_set_new(object, "phases", json_phases(plan->phase));
    (void)json_object_set_new(object, "peak_phase",
                              json_string(plim_pyg_phase_name(plan->peak_phase)));
    (void)json_object_set_new(object, "total_bytes", json_integer(plan->peak));
    (void)json_object_set_new(object, "ask_bytes", json_integer(plan->ask));
    (void)json_object_set_new(object, "csc_bytes", json_integer(plan->peak_csc));
    (void)json_object_set_new(object, "csc_mapped_bytes", json_integer(plan->peak_mapped));
    (void)json_object_set_new(object, "batch_nodes", json_integer(plan->batch_nodes));
    (void)json_object_set_new(object, "batch_edges", json_integer(plan->batch_edges));
    if (options->line > 0) {
        const int killed = plim_pyg_killed(plan, options->line);
        (void)json_object_set_new(object, "line_bytes", json_integer(options->line));
        (void)json_object_set_new(object, "fits", json_boolean(killed < 0));
        if (killed >= 0)
            (void)json_object_set_new(object, "killed_phase",
                                      json_string(plim_pyg_phase_name((plim_pyg_phase_t)killed)));
    }
    if (options->ours > 0)
        (void)json_object_set_new(object, "plimsoll_least_bytes", json_integer(options->ours));
    if (plan->gpu.memory > 0)
        (void)json_object_set_new(object, "gpu", json_gpu(&plan->gpu));
    cli_print_json(object);
}

static void say_row(const char *name, bool file, const int64_t phase[PLIM_PYG_PHASES])
{
    char text[24];
    (void)printf("%-28s%c", name, file ? '*' : ' ');
    for (int i = 0; i < PLIM_PYG_PHASES; i++)
        (void)printf(" %10s", phase[i] == 0 ? "-" : plim_size_text(phase[i], text));
    (void)printf("\n");
}

static void say_table(const plim_pyg_plan_t *plan)
{
    bool files = false;
    (void)printf("%-29s", "");
    for (int i = 0; i < PLIM_PYG_PHASES; i++)
        (void)printf(" %10s", plim_pyg_phase_name((plim_pyg_phase_t)i));
    (void)printf("\n");
    for (int i = 0; i < plan->num_accounts; i++) {
        say_row(plan->accounts[i].name, plan->accounts[i].file, plan->accounts[i].phase);
        files |= plan->accounts[i].file;
    }
    say_row("in all", false, plan->phase);
    if (files)
        (void)printf("* pages of files, given back before anything is killed; not in the sum\n");
}

static void say_gpu(const plim_pyg_gpu_t *gpu, const plim_training_t *training)
{
    const char *const *precisions = plim_words(PLIM_WORDS_PRECISION);
    const char *asked = precisions[training->model.precision];
    char memory[24], total[24], context[24], model[24], batch[24], activations[24];
    (void)printf("GPU of %s: batches of %" PRId64 " in %s take %s: that %s\n",
                 plim_size_text(gpu->memory, memory), training->recipe.batch_size, asked,
                 plim_size_text(gpu->total, total), gpu->fits ? "fits" : "does not fit");
    (void)printf("  context %s, weights, gradients, moments %s, batch %s, activations %s,\n"
                 "  and a tenth of these; assumed, no GPU was measured\n",
                 plim_size_text(gpu->context, context), plim_size_text(gpu->model, model),
                 plim_size_text(gpu->batch_bytes, batch),
                 plim_size_text(gpu->activations, activations));
    (void)printf("  largest batch: %" PRId64 " in f32, %" PRId64 " in bf16\n",
                 gpu->largest_batch[PLIM_PRECISION_F32], gpu->largest_batch[PLIM_PRECISION_BF16]);
    if (!gpu->fits && gpu->microbatch > 0)
        (void)printf("  the same batch: %" PRId64 " seeds at a time in %s, gradients added up\n",
                     gpu->microbatch, precisions[gpu->micro_precision]);
    else if (!gpu->fits)
        (void)printf("  not even one seed fits: take fewer hidden channels or smaller fan-outs\n");
}

/* What the script could do about it, and what plimsoll does. */
static void say_remedies(const plim_pyg_plan_t *plan, const plan_pyg_options_t *options)
{
    char bytes[24];
    if (plan->peak_csc < plan->peak)
        (void)printf("with edges sorted once for all loaders: %s\n",
                     plim_size_text(plan->peak_csc, bytes));
    if (plan->peak_mapped < plan->peak_csc)
        (void)printf("with that and features mapped, not loaded: %s\n",
                     plim_size_text(plan->peak_mapped, bytes));
    if (options->ours > 0)
        (void)printf("plimsoll does the same training from %s on\n",
                     plim_size_text(options->ours, bytes));
}

static void say(const plim_pyg_plan_t *plan, const plim_training_t *training,
                const plan_pyg_options_t *options)
{
    char peak[24], line[24];
    const int killed = options->line > 0 ? plim_pyg_killed(plan, options->line) : -1;
    (void)printf("In PyTorch Geometric, estimated; batches of %" PRId64 " nodes and %" PRId64
                 " edges\n",
                 plan->batch_nodes, plan->batch_edges);
    say_table(plan);
    (void)printf("peak: %s, %s\n", plim_size_text(plan->peak, peak),
                 doing(plan, (int)plan->peak_phase));
    (void)printf("ask the scheduler for: --mem=%" PRId64 "G\n", plan->ask / GIB);
    if (killed >= 0)
        (void)printf("with %s it would be killed %s\n", plim_size_text(options->line, line),
                     doing(plan, killed));
    else if (options->line > 0)
        (void)printf("with %s it fits\n", plim_size_text(options->line, line));
    if (plan->gpu.memory > 0)
        say_gpu(&plan->gpu, training);
    say_remedies(plan, options);
}

int plan_for_pyg(const cli_common_t *common, const plim_job_t *job, const plim_dataset_t *dataset,
                 const plim_training_t *training, const plan_pyg_options_t *options)
{
    plim_pyg_plan_t plan;
    plim_status_t status = plim_pyg_plan(job, dataset, training, &options->pyg, &plan);
    if (status != PLIM_OK)
        return cli_failed(common, status);
    if (common->json)
        print_json(&plan, options);
    else
        say(&plan, training, options);
    return CLI_DONE;
}
