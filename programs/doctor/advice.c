/*
 * What to change. Where the texts show the graph and the settings, each change is estimated with
 * the estimate for PyTorch Geometric (programs/pyg); otherwise changes stand in the order in which
 * they usually help, without figures.
 */
#include "base/check.h"
#include "doctor/estimate.h"
#include "doctor/verdict.h"

#include <inttypes.h>
#include <plimsoll/limit.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)
#define GIB ((int64_t)1 << 30)
#define HABITS_ADVISED 4 /* of DOCTOR_LISTED changes */

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

/* Adds a change if it lowers the estimated peak by a hundredth. */
static void try_change(const doctor_estimate_t *now, const plim_training_t *training,
                       const pyg_params_t *pyg, doctor_verdict_t *verdict, const char *text)
{
    pyg_plan_t plan;
    if (pyg_plan(now->job, now->dataset, training, pyg, &plan) != PLIM_OK ||
        now->plan.peak - plan.peak < now->plan.peak / 100)
        return;
    doctor_change_t *change = add(verdict, "%s", text);
    change->saves = now->plan.peak - plan.peak;
    change->peak = plan.peak;
}

static int by_saving(const void *a, const void *b)
{
    const doctor_change_t *left = a, *right = b;
    return (left->saves < right->saves) - (left->saves > right->saves);
}

/* Settings that the estimate had to assume, in the words of a script. */
static void note_assumed(const doctor_recipe_t *recipe, const doctor_estimate_t *now,
                         doctor_verdict_t *verdict)
{
    const plim_recipe_t *draws = &now->training.recipe;
    char list[DOCTOR_SENTENCE - 64];
    size_t used = 0;
    list[0] = '\0';
    if (recipe->batch_size <= 0)
        used += (size_t)snprintf(list + used, sizeof list - used, ", batch_size=%" PRId64,
                                 draws->batch_size);
    for (int i = recipe->num_hops; i < draws->num_hops; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%" PRId64 "%s",
                                 i == 0 ? ", num_neighbors=[" : ", ", draws->fanout[i],
                                 i == draws->num_hops - 1 ? "]" : "");
    if (recipe->hidden <= 0)
        used += (size_t)snprintf(list + used, sizeof list - used, ", hidden_channels=%" PRId64,
                                 now->training.model.hidden);
    if (recipe->workers < 0)
        used += (size_t)snprintf(list + used, sizeof list - used, ", num_workers=0");
    if (recipe->loaders == 0)
        (void)snprintf(list + used, sizeof list - used, ", %d NeighborLoaders at once",
                       now->pyg.num_loaders);
    if (list[0] != '\0')
        doctor_verdict_unknown(verdict, "some settings, which no text shows. Assumed: %s",
                               list + 2);
}

static void estimate_memory(const doctor_recipe_t *recipe, const doctor_estimate_t *now,
                            doctor_verdict_t *verdict)
{
    pyg_params_t pyg = now->pyg;
    plim_training_t training = now->training;
    const int first = verdict->num_changes;
    char text[DOCTOR_SENTENCE], bytes[24];
    pyg.graph = PYG_CSC;
    try_change(now, &training, &pyg, verdict,
               "edges sorted by target beforehand and saved as colptr and row, one sampler for all "
               "loaders (is_sorted=True)");
    pyg = now->pyg;
    pyg.mapped_features = true;
    try_change(now, &training, &pyg, verdict,
               "features mapped from a file: torch.from_numpy(numpy.load('x.npy', mmap_mode='c'))");
    pyg = now->pyg;
    pyg.num_loaders = 1;
    if (now->pyg.num_loaders > 1)
        try_change(now, &training, &pyg, verdict,
                   "one sampler for all loaders, so that edges are sorted once: NeighborLoader(…, "
                   "neighbor_sampler=train_loader.node_sampler); or evaluation loaders made when "
                   "they are needed and dropped with del");
    pyg = now->pyg;
    pyg.num_workers = 0;
    pyg.persistent_workers = false;
    if (now->pyg.num_workers > 0)
        try_change(now, &training, &pyg, verdict,
                   "num_workers=0 (and no persistent_workers, no prefetch_factor)");
    pyg = now->pyg;
    pyg.persistent_workers = false;
    if (now->pyg.persistent_workers)
        try_change(now, &training, &pyg, verdict, "persistent_workers=False");
    pyg = now->pyg;
    training.recipe.batch_size = (training.recipe.batch_size + 1) / 2;
    (void)snprintf(text, sizeof text, "batch_size=%" PRId64 " instead of %" PRId64,
                   training.recipe.batch_size, now->training.recipe.batch_size);
    const int before = verdict->num_changes;
    try_change(now, &training, &pyg, verdict, text);
    if (verdict->num_changes == before && recipe->batch_size > 0)
        doctor_verdict_unknown(
            verdict,
            "nothing about a smaller batch_size: it hardly matters here, a batch is "
            "a small part of the estimated peak of %s",
            plim_size_text(now->plan.peak, bytes));
    qsort(&verdict->change[first], (size_t)(verdict->num_changes - first),
          sizeof verdict->change[0], by_saving);
    note_assumed(recipe, now, verdict);
}

/* The same training with plimsoll. */
static void write_command(const doctor_recipe_t *recipe, doctor_verdict_t *verdict)
{
    char *to = verdict->command;
    size_t used = 0;
    const bool graph = recipe->edges > 0 || recipe->shape[0] != '\0';
    const char *model = doctor_recipe_model(recipe);
    const bool gnn = recipe->gnn || model[0] != '\0';
    if (recipe->ours || recipe->deep)
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

static void next_by_estimate(doctor_verdict_t *verdict, const doctor_estimate_t *now)
{
    if (now->plan.ask > verdict->limit) {
        verdict->next_mem = now->plan.ask;
        verdict->next_mem_basis = DOCTOR_BASIS_ESTIMATE;
    }
}

/* What an estimate lacks. */
static void note_missing(const doctor_recipe_t *recipe, doctor_verdict_t *verdict, const char *what)
{
    if (recipe->edges > 0 && recipe->nodes <= 0)
        doctor_verdict_unknown(verdict,
                               "%s: the texts show %" PRId64 " edges, but not the number of nodes; "
                               "print(data.num_nodes, data) allows an estimate",
                               what, recipe->edges);
    else if (recipe->edges <= 0 && recipe->shape[0] == '\0')
        doctor_verdict_unknown(verdict,
                               "%s: the texts do not show the graph; print(data) and print(args) "
                               "at the start of the script allow an estimate",
                               what);
    else
        doctor_verdict_unknown(verdict,
                               "%s: there is no estimate for the graph and the settings "
                               "that the texts show",
                               what);
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
        (void)add(
            verdict,
            "find what each epoch keeps (%s a phase): losses appended as tensors (use "
            "loss.item()), outputs collected in lists, loaders that each epoch makes again with "
            "persistent_workers=True (the workers of the old ones stay), caches without a "
            "bound",
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
    doctor_estimate_t now;
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
    if (doctor_estimate_open(doctor->job, recipe, 0, &now)) {
        estimate_memory(recipe, &now, verdict);
        if (pattern != DOCTOR_PATTERN_LEAK && pattern != DOCTOR_PATTERN_EPOCHS)
            next_by_estimate(verdict, &now);
        doctor_estimate_close(&now);
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
                  "take the whole node (sbatch --exclusive), or a limit of your own (--mem): "
                  "other processes on the node took part of the memory");
    note_missing(recipe, verdict, "what each change saves");
}

/* SIGKILL by an unknown sender: what the estimate says about memory as the reason. */
static void advise_killed(const doctor_t *doctor, doctor_verdict_t *verdict)
{
    const doctor_recipe_t *recipe = &doctor->recipe;
    char peak[24], limit[24];
    doctor_estimate_t now;
    if (recipe->ours || (doctor->growth.ended && doctor->growth.kills == 0))
        return;
    if (!doctor_estimate_open(doctor->job, recipe, 0, &now)) {
        note_missing(recipe, verdict, "how much memory the training takes");
        return;
    }
    (void)plim_size_text(now.plan.peak, peak);
    (void)plim_size_text(verdict->limit, limit);
    if (verdict->limit <= 0)
        doctor_verdict_unknown(verdict,
                               "the memory limit: if it is below the estimated peak of %s, memory "
                               "is the likely reason",
                               peak);
    else if (now.plan.peak > verdict->limit)
        doctor_verdict_unknown(verdict,
                               "the reason. The estimated peak of %s is above the limit of %s, so "
                               "memory is likely",
                               peak, limit);
    else if (now.plan.ask > verdict->limit)
        doctor_verdict_unknown(verdict,
                               "the reason. The estimated peak of %s is close to the limit of %s, "
                               "so memory is possible",
                               peak, limit);
    else
        doctor_verdict_unknown(verdict,
                               "the reason. The estimated peak of %s is below the limit of %s, so "
                               "memory is unlikely",
                               peak, limit);
    if (now.plan.ask > verdict->limit) {
        estimate_memory(recipe, &now, verdict);
        next_by_estimate(verdict, &now);
    } else {
        note_assumed(recipe, &now, verdict);
    }
    doctor_estimate_close(&now);
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
    doctor_estimate_t now;
    if (total > 0 && doctor_estimate_open(doctor->job, &doctor->recipe, total, &now)) {
        const pyg_gpu_t *gpu = &now.plan.gpu;
        const plim_precision_t f32 = PLIM_PRECISION_F32, bf16 = PLIM_PRECISION_BF16;
        if (!gpu->fits && gpu->largest_batch[f32] > 0)
            (void)add(
                verdict,
                "batch_size=%" PRId64 " fits by estimate (%" PRId64
                " with torch.autocast('cuda', torch.bfloat16)); the same training: microbatches "
                "of %" PRId64 " seeds, gradients added up",
                gpu->largest_batch[f32], gpu->largest_batch[bf16], gpu->microbatch);
        doctor_estimate_close(&now);
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
    /* The usual advice is to watch the command, which was done. */
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
    const bool killed =
        verdict->cause == DOCTOR_KILLED || doctor_verdict_is_kill_code(doctor, verdict);
    if (doctor_cause_is_memory(verdict->cause, true))
        advise_memory(doctor, verdict);
    else if (killed && verdict->outcome == DOCTOR_OUTCOME_DIED)
        advise_killed(doctor, verdict);
    choose_next(doctor, verdict);
    if (doctor_cause_is_memory(verdict->cause, true) || verdict->cause == DOCTOR_TIME_LIMIT ||
        killed)
        write_command(&doctor->recipe, verdict);
}
