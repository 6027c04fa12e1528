/* `plimsoll plan --for pyg`: the estimate of pyg.h, as a table or as its JSON. */
#include "command/verb_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define GIB ((int64_t)1 << 30)

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

static const char *doing(const pyg_plan_t *plan, pyg_phase_t phase)
{
    static const char *const words[PYG_PHASES] = {
        "while it imports torch", "while the dataset is read", "while its loaders are made",
        "while it trains", "while it evaluates"};
    for (int i = 0; i < plan->num_accounts; i++) {
        const int64_t *bytes = plan->accounts[i].phase;
        if (bytes[phase] > bytes[PYG_TRAIN] &&
            strcmp(plan->accounts[i].name, "sort of the edges") == 0)
            return phase == PYG_SORT
                       ? "while edge_index is sorted for a loader"
                       : "after the first epoch, while edge_index is sorted for a late loader";
    }
    return words[phase];
}

static void print_row(const char *name, bool file, const int64_t phase[PYG_PHASES])
{
    char text[24];
    (void)printf("%-28s%c", name, file ? '*' : ' ');
    for (int i = 0; i < PYG_PHASES; i++)
        (void)printf(" %10s", phase[i] == 0 ? "-" : plim_size_text(phase[i], text));
    (void)printf("\n");
}

static void print_table(const pyg_plan_t *plan)
{
    bool files = false;
    (void)printf("%-29s", "");
    for (int i = 0; i < PYG_PHASES; i++)
        (void)printf(" %10s", pyg_phase_names[i]);
    (void)printf("\n");
    for (int i = 0; i < plan->num_accounts; i++) {
        const pyg_account_t *account = &plan->accounts[i];
        print_row(account->name, account->file, account->phase);
        files |= account->file;
    }
    print_row("total", false, plan->phase);
    if (files)
        (void)printf("* pages of files, which the kernel reclaims first; not in the total\n");
}

static void print_gpu(const pyg_plan_t *plan, int64_t memory, const plim_training_t *training)
{
    const pyg_gpu_t *gpu = &plan->gpu;
    const bool graphs = plan->batch_graphs > 0;
    const char *const *precisions = plim_words(PLIM_WORDS_PRECISION);
    char size[24], total[24], context[24], model[24], batch[24], activations[24];
    (void)printf("GPU of %s: batches of %" PRId64 " in %s need %s, which %s\n",
                 plim_size_text(memory, size), training->recipe.batch_size,
                 precisions[training->model.precision], plim_size_text(gpu->total, total),
                 gpu->fits ? "fits" : "does not fit");
    (void)printf("  context %s, weights, gradients, moments %s, batch %s, activations %s,\n"
                 "  plus 10 %%; an assumption, not measured on a GPU\n",
                 plim_size_text(gpu->context, context), plim_size_text(gpu->model, model),
                 plim_size_text(gpu->batch_bytes, batch),
                 plim_size_text(gpu->activations, activations));
    (void)printf("  largest batch: %" PRId64 " in f32, %" PRId64 " in bf16\n",
                 gpu->largest_batch[PLIM_PRECISION_F32], gpu->largest_batch[PLIM_PRECISION_BF16]);
    if (!gpu->fits && gpu->microbatch > 0)
        (void)printf("  the same batch: %" PRId64 " %s at a time in %s, gradients added up\n",
                     gpu->microbatch, graphs ? "graphs" : "seeds",
                     precisions[gpu->micro_precision]);
    else if (!gpu->fits)
        (void)printf("  not even one %s\n",
                     graphs ? "graph fits: take fewer hidden channels"
                            : "seed fits: take fewer hidden channels or smaller fan-outs");
}

/* Changes to the script that lower its peak, and the memory that plimsoll needs. */
static void print_remedies(const pyg_plan_t *plan, int64_t ours)
{
    char bytes[24];
    if (plan->peak_csc < plan->peak)
        (void)printf("with edges sorted once for all loaders: %s\n",
                     plim_size_text(plan->peak_csc, bytes));
    if (plan->peak_mapped < plan->peak_csc)
        (void)printf("with that and features mapped, not loaded: %s\n",
                     plim_size_text(plan->peak_mapped, bytes));
    if (ours > 0)
        (void)printf("plimsoll: minimum %lld MiB for the same training\n", (long long)(ours >> 20));
}

static void print_text(const pyg_plan_t *plan, const plim_training_t *training,
                       const plan_pyg_options_t *options)
{
    const int64_t limit = options->pyg.line;
    const int killed = pyg_killed(plan, limit);
    char peak[24], line[24];
    (void)printf("Estimate for PyTorch Geometric; batches of ");
    if (plan->batch_graphs > 0)
        (void)printf("%" PRId64 " graphs, ", plan->batch_graphs);
    (void)printf("%" PRId64 " nodes and %" PRId64 " edges\n", plan->batch_nodes, plan->batch_edges);
    print_table(plan);
    (void)printf("peak: %s, %s\n", plim_size_text(plan->peak, peak), doing(plan, plan->peak_phase));
    (void)printf("ask the scheduler for: --mem=%" PRId64 "G\n", plan->ask / GIB);
    if (limit > 0 && killed >= 0)
        (void)printf("with %s it would be killed %s\n", plim_size_text(limit, line),
                     doing(plan, (pyg_phase_t)killed));
    else if (limit > 0)
        (void)printf("with %s it fits\n", plim_size_text(limit, line));
    if (options->pyg.gpu_memory > 0)
        print_gpu(plan, options->pyg.gpu_memory, training);
    print_remedies(plan, options->ours);
}

void plan_pyg_print(const cli_common_t *common, const plim_training_t *training,
                    const plan_pyg_options_t *options, const pyg_plan_t *plan)
{
    if (!common->json) {
        print_text(plan, training, options);
        return;
    }
    json_t *object = json_pack("{s:s, s:s}", "event", "plan", "for", "pyg");
    json_t *estimate = pyg_json(plan, &options->pyg);
    (void)json_object_update(object, estimate);
    json_decref(estimate);
    if (options->ours > 0)
        (void)json_object_set_new(object, "plimsoll_minimum_bytes", json_integer(options->ours));
    cli_print_json(object);
}

void plan_pyg_print_head(void)
{
    (void)printf("%10s %6s  %-4s %10s %10s  %s\n", "peak", "--mem", "fits", "GPU", "microbatch",
                 "peak in");
}

void plan_pyg_print_row(const pyg_plan_t *plan, const pyg_params_t *params)
{
    char peak[24], needed[24] = "-", seeds[24] = "-";
    if (params->gpu_memory > 0) {
        (void)snprintf(seeds, sizeof seeds, "%" PRId64, plan->gpu.microbatch);
        (void)plim_size_text(plan->gpu.total, needed);
    }
    (void)printf("%10s %5" PRId64 "G  %-4s %10s %10s  %s\n", plim_size_text(plan->peak, peak),
                 plan->ask / GIB,
                 params->line == 0                    ? "-"
                 : pyg_killed(plan, params->line) < 0 ? "yes"
                                                      : "no",
                 needed, seeds, pyg_phase_names[plan->peak_phase]);
}
