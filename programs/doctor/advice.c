/*
 * What to change. Where the texts show the graph and the settings, each change is estimated with
 * the estimate for PyTorch Geometric (programs/pyg); otherwise changes stand in the order in which
 * they usually help, without figures.
 */
#include "base/check.h"
#include "doctor/verdict.h"
#include "pyg/pyg.h"

#include <inttypes.h>
#include <plimsoll/ingest.h>
#include <plimsoll/limit.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)
#define GIB ((int64_t)1 << 30)
#define HABITS_ADVISED 4 /* room stays for what is usual */

static doctor_change_t *add(doctor_verdict_t *verdict, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static doctor_change_t *add(doctor_verdict_t *verdict, const char *format, ...)
{
    va_list arguments;
    const bool full = verdict->num_changes == DOCTOR_LISTED;
    doctor_change_t *change = &verdict->change[verdict->num_changes - full];
    if (!full) {
        *change = (doctor_change_t){.saves = -1, .peak = -1};
        verdict->num_changes++;
        va_start(arguments, format);
        (void)vsnprintf(change->text, sizeof change->text, format, arguments);
        va_end(arguments);
    }
    return change;
}

/* The training that the texts show, as a question to the estimate. */
typedef struct case_of {
    const doctor_t *doctor;
    plim_dataset_t *dataset;
    plim_training_t training;
    pyg_params_t pyg;
    pyg_plan_t plan; /* of the script as it is */
} case_t;

static int64_t or_else(int64_t value, int64_t otherwise)
{
    return value >= 0 ? value : otherwise;
}

static void set_training(const doctor_recipe_t *recipe, case_t *script)
{
    script->training = (plim_training_t)PLIM_TRAINING_INIT;
    script->pyg = (pyg_params_t)PYG_PARAMS_INIT;
    plim_recipe_t *draws = &script->training.recipe;
    plim_model_t *model = &script->training.model;
    const int64_t layers = recipe->num_hops > 0 ? recipe->num_hops
                           : recipe->layers > 0 ? recipe->layers
                                                : 2;
    draws->batch_size = recipe->batch_size > 0 ? recipe->batch_size : 1024;
    draws->num_hops = (int)plim__min_i64(layers, PLIM_HOPS_MAX);
    for (int i = 0; i < draws->num_hops; i++)
        draws->fanout[i] = i < recipe->num_hops ? recipe->fanout[i] : 10;
    model->num_layers = draws->num_hops;
    model->hidden = recipe->hidden > 0 ? recipe->hidden : 256;
    const char *kind = doctor_recipe_model(recipe);
    model->kind = strcmp(kind, "gcn") == 0   ? PLIM_GCN
                  : strcmp(kind, "gat") == 0 ? PLIM_GAT
                  : strcmp(kind, "gin") == 0 ? PLIM_GIN
                                             : PLIM_SAGE;
    script->pyg.num_workers = (int)or_else(recipe->workers, 0);
    script->pyg.prefetch = recipe->prefetch > 0 ? (int)recipe->prefetch : 2;
    script->pyg.persistent_workers = recipe->persistent > 0;
    script->pyg.pin_memory = recipe->pinned > 0;
    if (recipe->loaders > 0)
        script->pyg.num_loaders = recipe->loaders;
}

/* False when the texts do not show the graph, or the estimate refuses it. */
static bool open_case(const doctor_t *doctor, int64_t gpu_memory, case_t *script)
{
    const doctor_recipe_t *recipe = &doctor->recipe;
    plim_generate_options_t shape = PLIM_GENERATE_OPTIONS_INIT;
    const bool counted = recipe->edges > 0 && recipe->nodes > 0;
    if (!counted && recipe->shape[0] == '\0')
        return false;
    shape.shape = counted ? "free" : recipe->shape;
    if (counted) {
        shape.num_nodes = recipe->nodes;
        shape.num_edges = recipe->edges;
        shape.num_features = recipe->features;
        shape.num_classes = plim__min_i64(recipe->nodes, 40);
    }
    script->doctor = doctor;
    if (plim_dataset_from_shape(doctor->job, &shape, &script->dataset) != PLIM_OK)
        return false;
    set_training(recipe, script);
    script->pyg.gpu_memory = gpu_memory;
    if (pyg_plan(doctor->job, script->dataset, &script->training, &script->pyg, &script->plan) ==
        PLIM_OK)
        return true;
    plim_dataset_release(script->dataset);
    return false;
}

/* Adds a change if it lowers the estimated peak by a hundredth. */
static void try_change(const case_t *script, const plim_training_t *training,
                       const pyg_params_t *pyg, doctor_verdict_t *verdict, const char *text)
{
    pyg_plan_t plan;
    if (pyg_plan(script->doctor->job, script->dataset, training, pyg, &plan) != PLIM_OK ||
        script->plan.peak - plan.peak < script->plan.peak / 100)
        return;
    doctor_change_t *change = add(verdict, "%s", text);
    change->saves = script->plan.peak - plan.peak;
    change->peak = plan.peak;
}

static int by_saving(const void *a, const void *b)
{
    const doctor_change_t *left = a, *right = b;
    return (left->saves < right->saves) - (left->saves > right->saves);
}

static void estimate_memory(const case_t *script, doctor_verdict_t *verdict)
{
    const doctor_recipe_t *recipe = &script->doctor->recipe;
    pyg_params_t pyg = script->pyg;
    plim_training_t training = script->training;
    const int first = verdict->num_changes;
    char text[DOCTOR_SENTENCE], bytes[24];
    pyg.graph = PYG_CSC;
    try_change(script, &training, &pyg, verdict,
               "edges sorted by target beforehand and saved as colptr and row, one sampler for all "
               "loaders (is_sorted=True)");
    pyg = script->pyg;
    pyg.mapped_features = true;
    try_change(script, &training, &pyg, verdict,
               "features mapped from a file: torch.from_numpy(numpy.load('x.npy', mmap_mode='c'))");
    pyg = script->pyg;
    pyg.num_loaders = 1;
    if (script->pyg.num_loaders > 1)
        try_change(script, &training, &pyg, verdict,
                   "one sampler for all loaders, so that edges are sorted once: NeighborLoader(…, "
                   "neighbor_sampler=train_loader.node_sampler); or evaluation loaders made when "
                   "they are needed and dropped with del");
    pyg = script->pyg;
    pyg.num_workers = 0;
    pyg.persistent_workers = false;
    if (script->pyg.num_workers > 0)
        try_change(script, &training, &pyg, verdict,
                   "num_workers=0 (and no persistent_workers, no prefetch_factor)");
    pyg = script->pyg;
    pyg.persistent_workers = false;
    if (script->pyg.persistent_workers)
        try_change(script, &training, &pyg, verdict, "persistent_workers=False");
    pyg = script->pyg;
    training.recipe.batch_size = (training.recipe.batch_size + 1) / 2;
    (void)snprintf(text, sizeof text, "batch_size=%" PRId64 " instead of %" PRId64,
                   training.recipe.batch_size, script->training.recipe.batch_size);
    const int before = verdict->num_changes;
    try_change(script, &training, &pyg, verdict, text);
    if (verdict->num_changes == before && recipe->batch_size > 0)
        doctor_verdict_unknown(
            verdict,
            "nothing about a smaller batch_size: it hardly matters here, a batch is "
            "a small part of the estimated peak of %s",
            plim_size_text(script->plan.peak, bytes));
    qsort(&verdict->change[first], (size_t)(verdict->num_changes - first),
          sizeof verdict->change[0], by_saving);
    if (recipe->loaders == 0)
        doctor_verdict_unknown(verdict, "how many NeighborLoaders live at once: %d were assumed",
                               script->pyg.num_loaders);
}

/* The same training with plimsoll. */
static void write_command(const doctor_recipe_t *recipe, doctor_verdict_t *verdict)
{
    char *to = verdict->command;
    size_t used = 0;
    const bool graph = recipe->edges > 0 || recipe->shape[0] != '\0';
    const char *model = doctor_recipe_model(recipe);
    const bool gnn = recipe->gnn || model[0] != '\0';
    if (recipe->ours)
        return;
    if (!graph && recipe->num_hops == 0 && !(gnn && recipe->batch_size > 0))
        return;
    used += (size_t)snprintf(to, DOCTOR_SENTENCE, "plimsoll train DIR --model %s",
                             model[0] != '\0' ? model : "sage");
    if (model[0] == '\0')
        doctor_verdict_unknown(verdict, "the model: the texts do not name one of sage, gcn, gat "
                                        "and gin; sage was assumed");
    if (recipe->hidden > 0)
        used += (size_t)snprintf(to + used, DOCTOR_SENTENCE - used, " --hidden %" PRId64,
                                 recipe->hidden);
    for (int i = 0; i < recipe->num_hops; i++)
        used += (size_t)snprintf(to + used, DOCTOR_SENTENCE - used, "%s%" PRId64,
                                 i == 0 ? " --fanout " : ",", recipe->fanout[i]);
    if (recipe->batch_size > 0)
        used += (size_t)snprintf(to + used, DOCTOR_SENTENCE - used, " --batch %" PRId64,
                                 recipe->batch_size);
    if (recipe->epochs > 0)
        used += (size_t)snprintf(to + used, DOCTOR_SENTENCE - used, " --epochs %" PRId64,
                                 recipe->epochs);
    if (verdict->limit > 0)
        (void)snprintf(to + used, DOCTOR_SENTENCE - used, " --memory %" PRId64 "M",
                       verdict->limit / MIB);
}

/* Whole GiB above 8 GiB, below it whole multiples of 256 MiB. */
static int64_t round_up(int64_t bytes)
{
    const int64_t unit = bytes > 8 * GIB ? GIB : 256 * MIB;
    return (bytes + unit - 1) / unit * unit;
}

/* What was measured, and a fifth. */
static void next_by_peak(doctor_verdict_t *verdict, int64_t peak)
{
    verdict->next_mem = round_up(peak + peak / 5);
    verdict->next_mem_basis = DOCTOR_BASIS_MEASURED;
}

static void choose_next(const doctor_t *doctor, doctor_verdict_t *verdict)
{
    const doctor_growth_t *growth = &doctor->growth;
    const doctor_fact_t *root = verdict->root;
    const int64_t tried = root != NULL ? root->figure[DOCTOR_TRIED] : -1;
    const int64_t limit = verdict->limit > 0 || !growth->on_host ? verdict->limit : growth->peak;
    const bool endless = verdict->shape.pattern == DOCTOR_PATTERN_LEAK ||
                         verdict->shape.pattern == DOCTOR_PATTERN_EPOCHS;
    if (root != NULL && root->figure[DOCTOR_NEEDED] > 0) {
        verdict->next_mem = round_up(root->figure[DOCTOR_NEEDED]);
        verdict->next_mem_basis = DOCTOR_BASIS_NAMED;
        return;
    }
    if (verdict->next_mem > 0 || limit <= 0 || limit > ((int64_t)1 << 50) ||
        !doctor_cause_is_memory(verdict->cause, true))
        return;
    if (endless) {
        doctor_verdict_unknown(verdict,
                               "a request that suffices: memory grows as long as it runs, so "
                               "any --mem only postpones the end; end the growth first");
        return;
    }
    if (verdict->outcome == DOCTOR_OUTCOME_SURVIVED && growth->peak > 0) {
        next_by_peak(verdict, growth->peak);
        return;
    }
    verdict->next_mem_basis = DOCTOR_BASIS_GUESS;
    if (tried > 0 && tried < ((int64_t)1 << 50)) {
        verdict->next_mem = round_up((limit + tried) / 10 * 11);
        return;
    }
    verdict->next_mem = round_up(limit / 2 * 3);
    doctor_verdict_unknown(verdict,
                           "how much was missing: a kill does not say; the next --mem is half "
                           "more than %s",
                           verdict->limit > 0 ? "the limit" : "what the job held");
}

/* Lines of the user's own script, before what is only usual. */
static void advise_script(const doctor_t *doctor, doctor_verdict_t *verdict)
{
    for (int i = 0; i < doctor->num_habits && i < HABITS_ADVISED; i++) {
        const doctor_found_habit_t *found = &doctor->habits[i].found;
        (void)add(verdict, "%s:%" PRId64 ": %s: %s", doctor->source[doctor->habits[i].source].name,
                  found->line, found->code, doctor_habit_remedy(found->habit));
    }
}

static void advise_gpu_growth(const doctor_t *doctor, doctor_verdict_t *verdict)
{
    const doctor_shape_t *shape = &verdict->shape;
    char text[24];
    if (shape->gpu_per_phase <= 0 && shape->gpu_per_s <= 0)
        return;
    (void)add(
        verdict,
        "find what stays on the GPU (it held %s more %s): losses or outputs that are kept as "
        "tensors (loss.item(), out.detach().cpu()), evaluation outside torch.no_grad()",
        plim_size_text(shape->gpu_per_phase > 0 ? shape->gpu_per_phase : (int64_t)shape->gpu_per_s,
                       text),
        shape->gpu_per_phase > 0 ? "each phase"
        : doctor->growth.steps   ? "each step"
                                 : "each second");
}

static void advise_growth(const doctor_t *doctor, doctor_verdict_t *verdict)
{
    char text[24];
    if (verdict->shape.pattern == DOCTOR_PATTERN_EPOCHS)
        (void)add(verdict,
                  "find what each epoch keeps (%s a phase): losses appended as tensors (use "
                  "loss.item()), outputs collected in lists, loaders made anew without "
                  "persistent_workers=False, caches without a bound",
                  plim_size_text(verdict->shape.bytes_per_phase, text));
    if (verdict->shape.pattern == DOCTOR_PATTERN_LEAK)
        (void)add(verdict,
                  "find what each step keeps (%s a %s): total_loss += loss must be loss.item() or "
                  "loss.detach(); lists of outputs; hooks; evaluation outside torch.no_grad()",
                  plim_size_text((int64_t)verdict->shape.bytes_per_s, text),
                  doctor->growth.steps ? "step" : "second");
}

static void advise_memory(const doctor_t *doctor, doctor_verdict_t *verdict)
{
    static const char on_disk[] =
        "keep features on disk: np.load('x.npy', mmap_mode='r'), DGL's GraphBolt OnDiskDataset, or "
        "plimsoll.NeighborLoader, which stays under a given limit";
    const doctor_recipe_t *recipe = &doctor->recipe;
    const doctor_growth_t *growth = &doctor->growth;
    const doctor_pattern_t pattern = verdict->shape.pattern;
    /* One process holds most of it, so that workers save little. */
    const bool one = growth->seen > 0 && growth->largest_at_peak * 3 >= growth->seen * 2;
    char text[24];
    case_t script;
    if (verdict->cause == DOCTOR_OOM_TMPFS || pattern == DOCTOR_PATTERN_TMPFS)
        (void)add(verdict,
                  "write to a disk instead of /dev/shm and a tmpfs /tmp (export "
                  "TMPDIR=$SLURM_SUBMIT_DIR/tmp), and delete what is left there: such files "
                  "count as the job's memory until they are deleted");
    advise_growth(doctor, verdict);
    if (pattern == DOCTOR_PATTERN_WORKERS)
        (void)add(verdict, "num_workers=0, or a few: each worker holds its own copy of what it "
                           "touches; keep large arrays in torch tensors or mapped files, not in "
                           "Python lists and dicts");
    if (pattern == DOCTOR_PATTERN_SPIKE)
        (void)add(verdict,
                  "the peak is a spike of %s%s%s: do that step in pieces, or before the rest is "
                  "loaded (a second loader sorts all edges; torch.cat and .numpy() copy)",
                  plim_size_text(verdict->shape.rise, text),
                  verdict->shape.phase[0] != '\0' ? " in phase " : "", verdict->shape.phase);
    if (recipe->ours) {
        (void)add(verdict, "a lower memory= for plimsoll's loader (or --memory): it keeps to that, "
                           "and the rest of the limit is for the model and the script");
        return;
    }
    if (open_case(doctor, 0, &script)) {
        estimate_memory(&script, verdict);
        if (pattern != DOCTOR_PATTERN_LEAK && pattern != DOCTOR_PATTERN_EPOCHS &&
            script.plan.ask > verdict->limit) {
            verdict->next_mem = script.plan.ask;
            verdict->next_mem_basis = DOCTOR_BASIS_ESTIMATE;
        }
        plim_dataset_release(script.dataset);
        return;
    }
    if (one)
        (void)add(verdict, "%s", on_disk);
    if (recipe->workers > 0 && pattern != DOCTOR_PATTERN_WORKERS)
        (void)add(verdict,
                  "num_workers=0 instead of %" PRId64 ", persistent_workers=False, "
                  "prefetch_factor=None: each worker holds batches and private copies of pages",
                  recipe->workers);
    (void)add(verdict,
              "make validation and test loaders only when they are needed and del them "
              "afterwards: every NeighborLoader (and dgl.dataloading.DataLoader with its own "
              "sampler) sorts or copies the graph for itself");
    if (!one)
        (void)add(verdict, "%s", on_disk);
    if (verdict->cause == DOCTOR_OOM_HOST)
        (void)add(verdict,
                  "run where nobody else does (sbatch --exclusive), or under a limit of its "
                  "own (--mem): other processes on the node took part of the memory");
    doctor_verdict_unknown(verdict,
                           "what each change saves: the texts do not show the graph; print(data) "
                           "and print(args) at the start of the script allow an estimate");
}

/* Memory that was free, but fragmented, or not allowed. */
static void advise_fragmented(const doctor_t *doctor, const doctor_fact_t *fact,
                              doctor_verdict_t *verdict)
{
    const bool old = strstr(fact->text, " total capacity; ") != NULL; /* before torch 2.1 */
    const char *variable = doctor->alloc_conf ? "PYTORCH_ALLOC_CONF" : "PYTORCH_CUDA_ALLOC_CONF";
    if (!doctor_cuda_fragmented(fact)) {
        if (fact->figure[DOCTOR_ALLOWED] >= 0 &&
            fact->figure[DOCTOR_FREE] >= fact->figure[DOCTOR_TRIED])
            (void)add(verdict, "a larger torch.cuda.set_per_process_memory_fraction: the GPU has "
                               "the memory, but this process may not use it");
    } else if (old || doctor->not_expandable) {
        (void)add(verdict,
                  "%s=max_split_size_mb:128 in the environment%s: the memory was there, in pieces",
                  variable, old ? " (torch 2.1 and later: expandable_segments:True)" : "");
    } else if (!doctor->expandable) {
        (void)add(verdict,
                  "%s=expandable_segments:True in the environment: the memory was there, in pieces",
                  variable);
    }
}

static void advise_cuda(const doctor_t *doctor, doctor_verdict_t *verdict)
{
    const doctor_fact_t *fact = verdict->root;
    const int64_t total = fact != NULL ? fact->figure[DOCTOR_TOTAL] : -1;
    case_t script;
    if (total > 0 && open_case(doctor, total, &script)) {
        const pyg_gpu_t *gpu = &script.plan.gpu;
        const plim_precision_t f32 = PLIM_PRECISION_F32, bf16 = PLIM_PRECISION_BF16;
        if (!gpu->fits && gpu->largest_batch[f32] > 0)
            (void)add(
                verdict,
                "batch_size=%" PRId64 " fits by estimate (%" PRId64
                " with torch.autocast('cuda', torch.bfloat16)); the same training: microbatches "
                "of %" PRId64 " seeds, gradients added up",
                gpu->largest_batch[f32], gpu->largest_batch[bf16], gpu->microbatch);
        plim_dataset_release(script.dataset);
    }
    if (doctor->recipe.batch_size > 1)
        (void)add(verdict,
                  "batch_size=%" PRId64 " instead of %" PRId64
                  ", with gradient accumulation over 2 batches for the same updates",
                  (doctor->recipe.batch_size + 1) / 2, doctor->recipe.batch_size);
    else
        (void)add(verdict, "half the batch_size, with gradient accumulation over 2 batches for the "
                           "same updates");
    (void)add(verdict,
              "mixed precision: with torch.autocast('cuda', torch.bfloat16): around forward "
              "and loss");
    (void)add(verdict,
              "smaller num_neighbors in the last hop: activations grow with the nodes of a "
              "batch");
    (void)add(verdict,
              "torch.utils.checkpoint.checkpoint(conv, x, edge_index, use_reentrant=False) "
              "for each layer: activations are computed again");
    (void)add(verdict,
              "evaluation under torch.no_grad(), batch by batch; loss.item(), not loss, in "
              "sums");
}

/* Lines for causes that need no estimate, at most three each. */
static const struct {
    doctor_cause_t cause;
    const char *change;
} usual[] = {
    {DOCTOR_CUDA_ASSERT, "run it once on the CPU: the error then names the line and the index"},
    {DOCTOR_CUDA_ASSERT, "check that labels are 0 to num_classes - 1, without -1 or NaN (select "
                         "labelled nodes first), and that ids of embeddings are below their size"},
    {DOCTOR_CUDA_ASSERT, "CUDA_LAUNCH_BLOCKING=1 in the environment shows the call that failed"},
    {DOCTOR_CUDA_ERROR, "CUDA_LAUNCH_BLOCKING=1 in the environment shows the call that failed; "
                        "on the CPU the error names an index out of range"},
    {DOCTOR_CUDA_ERROR, "half the batch_size: a library that finds no memory for its own handle "
                        "may fail like this; nvidia-smi shows what others hold"},
    {DOCTOR_CUDA_ERROR, "check that driver, CUDA and torch fit: python -m torch.utils.collect_env"},
    {DOCTOR_SHM_FULL, "docker run --shm-size=8g (Kubernetes: an emptyDir with medium: Memory at "
                      "/dev/shm); it counts as the job's memory"},
    {DOCTOR_SHM_FULL,
     "num_workers=0, or fewer workers and a smaller prefetch_factor: each holds its "
     "batches there"},
    {DOCTOR_SHM_FULL, "delete what dead jobs left: ls -l /dev/shm/torch_*"},
    {DOCTOR_DISK_FULL, "make space: df -h . $TMPDIR /tmp; quota -s; lfs quota -h -u $USER DIR"},
    {DOCTOR_DISK_FULL,
     "keep the last checkpoints only; write to NAME.tmp and os.replace it, so that a "
     "full disk does not destroy the last good one"},
    {DOCTOR_OPEN_FILES, "ulimit -n 65536 before python, in the batch script"},
    {DOCTOR_OPEN_FILES, "torch.multiprocessing.set_sharing_strategy('file_system') at the start"},
    {DOCTOR_THREADS,
     "OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK, fewer workers; see ulimit -u and ulimit "
     "-v"},
    {DOCTOR_TIME_LIMIT, "save checkpoints and ask for the signal before the end: #SBATCH "
                        "--signal=B:USR1@300; plimsoll train does both, --resume continues"},
    {DOCTOR_TIME_LIMIT, "a larger --time"},
    {DOCTOR_PREEMPTED, "#SBATCH --requeue, and a script that continues from its last checkpoint"},
    {DOCTOR_REQUEUED, "a script that continues from its last checkpoint"},
    {DOCTOR_NODE_FAIL, "submit it again, from the last checkpoint; #SBATCH --exclude=NODE if it "
                       "repeats"},
    {DOCTOR_HARDWARE, "tell the administrators the node's name; submit it again with #SBATCH "
                      "--exclude=NODE"},
    {DOCTOR_SEGFAULT, "python -X faulthandler shows the line; num_workers=0 shows it in the main "
                      "process"},
    {DOCTOR_SEGFAULT,
     "check that pyg-lib, torch-sparse and torch-scatter were built for this version "
     "of torch: python -c 'import torch, pyg_lib'"},
    {DOCTOR_BUS_ERROR,
     "look whether /dev/shm or the disk of a mapped file was full: df -h /dev/shm ."},
    {DOCTOR_ABORTED, "the message of the library that aborted stands above, on standard error"},
    {DOCTOR_WORKER_EXIT, "num_workers=0 shows the error in the main process"},
    {DOCTOR_PEER_LOST, "look into the log of each rank for the first one that ended"},
    {DOCTOR_KILLED,
     "plimsoll watch -- COMMAND records memory and the kernel's counters until the end"},
    {DOCTOR_EXIT_CODE,
     "plimsoll watch -- COMMAND tells a signal from an exit, and whether memory was "
     "the reason"},
    {DOCTOR_ALLOC_REFUSED,
     "look at ulimit -v and the size that was asked for: a wrong shape asks for "
     "terabytes; float32 or float16 instead of float64 halves it"},
};

/* Of a run that ended well, what it needs; of one that grew, what to look for; of a training in the
 * middle, how it goes on. */
static void advise_healthy(const doctor_t *doctor, doctor_verdict_t *verdict)
{
    const int64_t peak = doctor->growth.peak > 0 ? doctor->growth.peak : doctor->slurm.resident;
    int length;
    if (verdict->outcome == DOCTOR_OUTCOME_FINISHED && peak > 0)
        next_by_peak(verdict, peak);
    else if (verdict->outcome == DOCTOR_OUTCOME_UNKNOWN)
        advise_script(doctor, verdict);
    if (!doctor->growth.training)
        advise_growth(doctor, verdict);
    if (verdict->outcome == DOCTOR_OUTCOME_FINISHED || doctor->epochs_done < 0)
        return;
    const char *run = doctor_run(doctor, &length);
    if (run != NULL)
        (void)snprintf(verdict->command, DOCTOR_SENTENCE, "plimsoll train --resume %.*s", length,
                       run);
}

void doctor_verdict_advise(const doctor_t *doctor, doctor_verdict_t *verdict)
{
    if (verdict->outcome == DOCTOR_OUTCOME_FINISHED || verdict->cause == DOCTOR_NONE) {
        advise_healthy(doctor, verdict);
        return;
    }
    /* Whoever has watched the command needs no advice to do so. */
    const bool watched = doctor->growth.ended &&
                         (verdict->cause == DOCTOR_KILLED || verdict->cause == DOCTOR_EXIT_CODE);
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
        if (usual[i].cause == verdict->cause && !watched)
            (void)add(verdict, "%s", usual[i].change);
    if (verdict->cause == DOCTOR_CUDA_OOM && verdict->root != NULL)
        advise_fragmented(doctor, verdict->root, verdict);
    if (doctor_cause_is_memory(verdict->cause, true) || verdict->cause == DOCTOR_CUDA_OOM ||
        verdict->cause == DOCTOR_KILLED || verdict->cause == DOCTOR_EXIT_CODE) {
        advise_script(doctor, verdict);
        advise_gpu_growth(doctor, verdict);
    }
    if (verdict->cause == DOCTOR_CUDA_OOM)
        advise_cuda(doctor, verdict);
    if (doctor_cause_is_memory(verdict->cause, true))
        advise_memory(doctor, verdict);
    choose_next(doctor, verdict);
    if (doctor_cause_is_memory(verdict->cause, true) || verdict->cause == DOCTOR_TIME_LIMIT ||
        verdict->cause == DOCTOR_KILLED)
        write_command(&doctor->recipe, verdict);
}
