/* `plimsoll plan --for pyg`: the estimate of pyg.h, as a table or as its JSON. */
#include "command/verb_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define GIB ((int64_t)1 << 30)
#define NUM_PHASES 5

#define AT(member) CLI_AT(plan_pyg_options_t, pyg.member)

const cli_option_t plan_pyg_script_options[] = {
    {"graph", "KIND", "%s; default edge_index, which every loader sorts", "csc is already sorted.",
     AT(graph), CLI_LIST(PYG_EDGE_INDEX, "edge_index", "csc")},
    {"mapped-features", NULL, "features stay in a mapped file", AT(mapped_features)},
    {"loaders", "N", "NeighborLoaders alive at once, 1 to 3; default 3",
     "For training, validation and test.", AT(num_loaders), CLI_RANGE(1, 3),
     CLI_HINTS("1", "2", "3")},
    {"workers", "N", "num_workers of each; default 0", AT(num_workers), CLI_RANGE(0, 1024)},
    {"prefetch", "N", "prefetch_factor; default 2", AT(prefetch), CLI_RANGE(1, 1024)},
    {"persistent-workers", NULL, "workers stay between epochs", AT(persistent_workers)},
    {"pin-memory", NULL, "batches in pinned memory", AT(pin_memory)},
    {"late-loaders", NULL, "all loaders but the first are made after the first epoch",
     "Their sort comes on top of what training holds.", AT(late_loaders)},
    {"gpu-memory", "SIZE", "the batch, micro-batch and precision that fit a GPU of this size",
     AT(gpu_memory), .kind = CLI_SIZE},
    CLI_ALIAS("num_workers", "PyG", "workers"),
    CLI_ALIAS("prefetch_factor", "PyG", "prefetch"),
    CLI_OPTIONS_END};

bool plan_pyg_set_late(const cli_common_t *common, const char *value, plan_pyg_options_t *options)
{
    options->pyg.late_loaders = strcmp(value, "yes") == 0;
    if (options->pyg.late_loaders || strcmp(value, "no") == 0)
        return true;
    (void)cli_wrong_use(common, "--sweep: late-loaders is '%s'; give yes or no", value);
    return false;
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
        if (cli_json_int(phases, phase) <= cli_json_int(phases, "train") ||
            !cli_json_is(account, "name", "sort of the edges"))
            continue;
        return strcmp(phase, "sort") == 0
                   ? "while edge_index is sorted for a loader"
                   : "after the first epoch, while edge_index is sorted for a late loader";
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
        (void)printf("plimsoll: minimum %lld MiB for the same training\n",
                     (long long)(options->ours >> 20));
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

void plan_pyg_print(const cli_common_t *common, const plim_training_t *training,
                    const plan_pyg_options_t *options, json_t *estimate)
{
    if (!common->json) {
        print_text(estimate, training, options);
        return;
    }
    json_t *object = json_pack("{s:s, s:s}", "event", "plan", "for", "pyg");
    (void)json_object_update(object, estimate);
    if (options->ours > 0)
        (void)json_object_set_new(object, "plimsoll_minimum_bytes", json_integer(options->ours));
    cli_print_json(object);
}

void plan_pyg_print_head(void)
{
    (void)printf("%10s %6s  %-4s %10s %10s  %s\n", "peak", "--mem", "fits", "GPU", "microbatch",
                 "peak in");
}

void plan_pyg_print_row(const json_t *estimate)
{
    const json_t *gpu = json_object_get(estimate, "gpu");
    const json_t *fits = json_object_get(estimate, "fits");
    char peak[24], needed[24], seeds[24] = "-";
    if (gpu != NULL)
        (void)snprintf(seeds, sizeof seeds, "%" PRId64, cli_json_int(gpu, "microbatch"));
    (void)printf("%10s %5" PRId64 "G  %-4s %10s %10s  %s\n",
                 plim_size_text(cli_json_int(estimate, "total_bytes"), peak),
                 cli_json_int(estimate, "ask_bytes") / GIB,
                 fits == NULL         ? "-"
                 : json_is_true(fits) ? "yes"
                                      : "no",
                 gpu == NULL ? "-" : plim_size_text(cli_json_int(gpu, "total_bytes"), needed),
                 seeds, word(estimate, "peak_phase"));
}
