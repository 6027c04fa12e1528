/* `plimsoll plan --for pyg`: the estimate of plim_pyg_estimate, as a table or as its JSON. */
#include "verb_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define GIB ((int64_t)1 << 30)
#define NUM_PHASES 5

static bool take_count(const cli_common_t *common, const char *option, int64_t min, int64_t max,
                       int *count_out)
{
    int64_t value;
    if (!cli_parse_int(common, option, optarg, min, max, &value))
        return false;
    *count_out = (int)value;
    return true;
}

static bool take_gpu(const cli_common_t *common, plim_pyg_params_t *pyg)
{
    if (plim_size_parse(optarg, &pyg->gpu_memory) == PLIM_OK && pyg->gpu_memory > 0)
        return true;
    (void)cli_wrong_use(common, "--gpu-memory: '%s' is not a size, like 8G", optarg);
    return false;
}

bool plan_pyg_take_option(const cli_common_t *common, int code, plan_pyg_options_t *options)
{
    static const char *const graphs[] = {"edge_index", "csc", NULL};
    plim_pyg_params_t *pyg = &options->pyg;
    int word;
    switch (code) {
    case PLAN_PYG_GRAPH:
        word = cli_parse_word(common, "--graph", graphs);
        pyg->graph = word == 1 ? PLIM_PYG_CSC : PLIM_PYG_EDGE_INDEX;
        return word >= 0;
    case PLAN_PYG_MAPPED:
        return pyg->mapped_features = true;
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

static const char *const phase_names[NUM_PHASES] = {"start", "load", "sort", "train", "evaluate"};

static const char *word(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static bool is(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

/* What the job does in that phase. */
static const char *doing(const json_t *estimate, const char *phase)
{
    static const char *const words[NUM_PHASES] = {
        "while it imports torch", "while the dataset is read", "while its loaders are made",
        "while it trains", "while it evaluates"};
    const json_t *account;
    size_t i;
    int index = 0;
    json_array_foreach(json_object_get(estimate, "accounts"), i, account)
    {
        const json_t *phases = json_object_get(account, "phases");
        if (strcmp(phase, "sort") == 0 &&
            cli_json_int(phases, "sort") > cli_json_int(phases, "train"))
            return "while edge_index is sorted for a loader";
    }
    while (strcmp(phase_names[index], phase) != 0)
        index++;
    return words[index];
}

static void print_row(const char *name, bool file, const json_t *phases)
{
    char text[24];
    (void)printf("%-28s%c", name, file ? '*' : ' ');
    for (int i = 0; i < NUM_PHASES; i++) {
        const int64_t bytes = cli_json_int(phases, phase_names[i]);
        (void)printf(" %10s", bytes == 0 ? "-" : plim_size_text(bytes, text));
    }
    (void)printf("\n");
}

static void print_table(const json_t *estimate)
{
    const json_t *account;
    size_t index;
    bool files = false;
    (void)printf("%-29s", "");
    for (int i = 0; i < NUM_PHASES; i++)
        (void)printf(" %10s", phase_names[i]);
    (void)printf("\n");
    json_array_foreach(json_object_get(estimate, "accounts"), index, account)
    {
        const bool file = is(account, "reclaimable");
        print_row(word(account, "name"), file, json_object_get(account, "phases"));
        files |= file;
    }
    print_row("total", false, json_object_get(estimate, "phases"));
    if (files)
        (void)printf("* pages of files, which the kernel reclaims first; not in the total\n");
}

static void print_gpu(const json_t *gpu, const plim_training_t *training)
{
    const char *asked = plim_words(PLIM_WORDS_PRECISION)[training->model.precision];
    const json_t *largest = json_object_get(gpu, "largest_batch");
    const bool fits = is(gpu, "fits");
    const int64_t microbatch = cli_json_int(gpu, "microbatch");
    char memory[24], total[24], context[24], model[24], batch[24], activations[24];
    (void)printf("GPU of %s: batches of %" PRId64 " in %s need %s, which %s\n",
                 plim_size_text(cli_json_int(gpu, "memory_bytes"), memory),
                 training->recipe.batch_size, asked,
                 plim_size_text(cli_json_int(gpu, "total_bytes"), total),
                 fits ? "fits" : "does not fit");
    (void)printf("  context %s, weights, gradients, moments %s, batch %s, activations %s,\n"
                 "  plus 10 %%; an assumption, not measured on a GPU\n",
                 plim_size_text(cli_json_int(gpu, "context_bytes"), context),
                 plim_size_text(cli_json_int(gpu, "model_bytes"), model),
                 plim_size_text(cli_json_int(gpu, "batch_bytes"), batch),
                 plim_size_text(cli_json_int(gpu, "activation_bytes"), activations));
    (void)printf("  largest batch: %" PRId64 " in f32, %" PRId64 " in bf16\n",
                 cli_json_int(largest, "f32"), cli_json_int(largest, "bf16"));
    if (!fits && microbatch > 0)
        (void)printf("  the same batch: %" PRId64 " seeds at a time in %s, gradients added up\n",
                     microbatch, word(gpu, "microbatch_precision"));
    else if (!fits)
        (void)printf("  not even one seed fits: take fewer hidden channels or smaller fan-outs\n");
}

/* Changes to the script that lower its peak, and the memory that plimsoll needs. */
static void print_remedies(const json_t *estimate, const plan_pyg_options_t *options)
{
    const int64_t csc = cli_json_int(estimate, "csc_bytes"),
                  mapped = cli_json_int(estimate, "csc_mapped_bytes");
    char bytes[24];
    if (csc < cli_json_int(estimate, "total_bytes"))
        (void)printf("with edges sorted once for all loaders: %s\n", plim_size_text(csc, bytes));
    if (mapped < csc)
        (void)printf("with that and features mapped, not loaded: %s\n",
                     plim_size_text(mapped, bytes));
    if (options->ours > 0)
        (void)printf("plimsoll: minimum %s for the same training\n",
                     plim_size_text(options->ours, bytes));
}

static void print_text(const json_t *estimate, const plim_training_t *training,
                       const plan_pyg_options_t *options)
{
    char peak[24], line[24];
    const char *killed = word(estimate, "killed_phase");
    (void)printf("Estimate for PyTorch Geometric; batches of %" PRId64 " nodes and %" PRId64
                 " edges\n",
                 cli_json_int(estimate, "batch_nodes"), cli_json_int(estimate, "batch_edges"));
    print_table(estimate);
    (void)printf("peak: %s, %s\n", plim_size_text(cli_json_int(estimate, "total_bytes"), peak),
                 doing(estimate, word(estimate, "peak_phase")));
    (void)printf("ask the scheduler for: --mem=%" PRId64 "G\n",
                 cli_json_int(estimate, "ask_bytes") / GIB);
    if (killed != NULL)
        (void)printf("with %s it would be killed %s\n", plim_size_text(options->pyg.line, line),
                     doing(estimate, killed));
    else if (options->pyg.line > 0)
        (void)printf("with %s it fits\n", plim_size_text(options->pyg.line, line));
    if (options->pyg.gpu_memory > 0)
        print_gpu(json_object_get(estimate, "gpu"), training);
    print_remedies(estimate, options);
}

int plan_for_pyg(const cli_common_t *common, const plim_job_t *job, const plim_dataset_t *dataset,
                 const plim_training_t *training, const plan_pyg_options_t *options)
{
    char text[PLIM_PYG_JSON_MAX];
    plim_status_t status =
        plim_pyg_estimate(job, dataset, training, &options->pyg, text, sizeof text);
    if (status != PLIM_OK)
        return cli_failed(common, status);
    json_t *estimate = json_loads(text, 0, NULL);
    if (common->json) {
        json_t *object = json_pack("{s:s, s:s}", "event", "plan", "for", "pyg");
        (void)json_object_update(object, estimate);
        if (options->ours > 0)
            (void)json_object_set_new(object, "plimsoll_minimum_bytes",
                                      json_integer(options->ours));
        cli_print_json(object);
    } else {
        print_text(estimate, training, options);
    }
    json_decref(estimate);
    return CLI_DONE;
}
