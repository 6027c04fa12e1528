/* Chooses the cause among the facts. */
#include "doctor/verdict.h"

#include "base/check.h"

#include <signal.h>
#include <string.h>

/* Lines of progress after a text that show that the program went on. */
#define WENT_ON 3

static bool went_on(const doctor_t *doctor, const doctor_fact_t *fact)
{
    return doctor->source[fact->source].progress - fact->progress >= WENT_ON;
}

static bool ended_well(const doctor_t *doctor)
{
    const doctor_growth_t *growth = &doctor->growth;
    const doctor_slurm_t *slurm = &doctor->slurm;
    if (growth->ended)
        return growth->code == 0 && growth->signal < 0;
    if (doctor->recipe.epochs > 0 && doctor->epochs_done >= doctor->recipe.epochs)
        return true;
    if (strcmp(slurm->state, "COMPLETED") == 0)
        return true;
    /* A helper of the batch script was killed; all steps completed. */
    return strcmp(slurm->state, "OUT_OF_MEMORY") == 0 && slurm->num_steps > 0 &&
           slurm->steps_done == slurm->num_steps;
}

static int num_rows(void)
{
    return doctor_num_texts + DOCTOR_NUM_OTHER;
}

/* The fact of a row that may be the end; NULL: the program went on after each. */
static const doctor_fact_t *fatal(const doctor_t *doctor, int row)
{
    const doctor_found_t *found = &doctor->found[row];
    if (found->count == 0)
        return NULL;
    if (!went_on(doctor, &found->first))
        return &found->first;
    return went_on(doctor, &found->last) ? NULL : &found->last;
}

static bool is_candidate(const doctor_fact_t *fact)
{
    return fact->role == DOCTOR_ROLE_CAUSE || fact->role == DOCTOR_ROLE_SYMPTOM;
}

/* The fact with the first cause; of equal ones the one that tells most. */
static const doctor_fact_t *choose(const doctor_t *doctor, bool survived)
{
    const doctor_fact_t *best = NULL;
    for (int i = 0; i < num_rows(); i++) {
        const doctor_fact_t *fact = fatal(doctor, i);
        if (survived && fact == NULL && doctor->found[i].count > 0)
            fact = &doctor->found[i].last;
        if (fact == NULL || !is_candidate(fact))
            continue;
        if (best == NULL || fact->cause < best->cause ||
            (fact->cause == best->cause && best->figure[DOCTOR_ANON] < 0 &&
             fact->figure[DOCTOR_ANON] >= 0))
            best = fact;
    }
    return best;
}

/* Takes the cause from the last line of the watch's record. */
static void take_timeline(const doctor_t *doctor, doctor_verdict_t *verdict)
{
    const doctor_growth_t *growth = &doctor->growth;
    doctor_cause_t cause = DOCTOR_NONE;
    if (growth->kills > 0 && growth->hits > 0)
        cause = DOCTOR_OOM_CGROUP;
    else if (growth->kills > 0 && growth->parent_hits > 0)
        cause = DOCTOR_OOM_PARENT;
    else if (growth->kills > 0 && growth->host_kills > 0)
        cause = DOCTOR_OOM_HOST;
    else if (growth->kills > 0)
        cause = DOCTOR_OOM_KERNEL;
    else if (growth->signal == SIGSEGV)
        cause = DOCTOR_SEGFAULT;
    else if (growth->signal == SIGBUS)
        cause = DOCTOR_BUS_ERROR;
    else if (growth->signal == SIGABRT)
        cause = DOCTOR_ABORTED;
    else if (growth->signal == SIGKILL)
        cause = DOCTOR_KILLED;
    else if (growth->signal == SIGTERM || growth->signal == SIGINT || growth->signal == SIGHUP)
        cause = DOCTOR_TERMINATED;
    else if (growth->code > 0)
        cause = DOCTOR_EXIT_CODE;
    /* memory.oom.group takes the watcher too, and then the record ends just before the kill. */
    const bool cut = doctor_growth_is_cut(growth) && !growth->on_host && growth->limit > 0 &&
                     growth->last * 10 >= growth->limit * 9;
    if (cut && cause == DOCTOR_NONE)
        cause = DOCTOR_OOM_CGROUP;
    if (growth->code >= 0)
        verdict->code = growth->code;
    if (growth->signal > 0)
        verdict->signal = growth->signal;
    if (cause < verdict->cause) {
        verdict->cause = cause;
        verdict->root = NULL;
        verdict->confidence = cause == DOCTOR_EXIT_CODE ? DOCTOR_POSSIBLE
                              : cut                     ? DOCTOR_LIKELY
                                                        : DOCTOR_PROVEN;
    }
}

/* Small victims and much shared memory: files in memory filled the group. */
static void look_for_tmpfs(const doctor_t *doctor, doctor_verdict_t *verdict)
{
    const int64_t limit = doctor->limit;
    const int64_t victim = verdict->root != NULL ? verdict->root->figure[DOCTOR_ANON] : -1;
    if (!doctor_cause_is_memory(verdict->cause, false) || verdict->cause == DOCTOR_OOM_HOST)
        return;
    if ((doctor->shmem > 0 && limit > 0 && doctor->shmem * 2 >= limit && victim * 4 < limit) ||
        (verdict->shape.pattern == DOCTOR_PATTERN_TMPFS && doctor->growth.kills > 0))
        verdict->cause = DOCTOR_OOM_TMPFS;
}

/* A SIGKILL whose sender is not told, while memory was nearly full. */
static void look_for_memory(const doctor_t *doctor, doctor_verdict_t *verdict)
{
    const doctor_growth_t *growth = &doctor->growth;
    const doctor_slurm_t *slurm = &doctor->slurm;
    /* The end has no reason yet, and the group's counter of kills gives one. */
    if (doctor->kills > 0 && verdict->cause >= DOCTOR_KILLED &&
        verdict->cause != DOCTOR_PYTHON_ERROR && verdict->cause != DOCTOR_TERMINATED) {
        verdict->cause = DOCTOR_OOM_CGROUP;
        verdict->confidence = DOCTOR_LIKELY;
    }
    if (verdict->cause != DOCTOR_KILLED)
        return;
    const bool counted = growth->ended && growth->kills >= 0;
    if (counted || doctor->kills == 0)
        return; /* the kernel's counter says that it was not memory */
    const int64_t full = growth->peak + plim__max_i64(growth->others, 0);
    if (growth->limit > 0 && full * 10 >= growth->limit * 9) {
        verdict->cause = DOCTOR_OOM_KERNEL;
        verdict->confidence = DOCTOR_LIKELY;
    } else if (slurm->requested > 0 && slurm->resident * 10 >= slurm->requested * 9) {
        verdict->cause = DOCTOR_OOM_SLURM;
        verdict->confidence = DOCTOR_LIKELY;
    }
}

static doctor_confidence_t confidence_of(const doctor_fact_t *fact)
{
    static const char *const vague[] = {
        "CUBLAS_STATUS",    "CUDNN_STATUS",        "CUSOLVER_STATUS",    "basic_ios",
        "inline_container", "PytorchStreamWriter", "RESOURCE_EXHAUSTED", "in read-write mode"};
    if (fact->cause >= DOCTOR_PEER_LOST && fact->cause != DOCTOR_TERMINATED)
        return DOCTOR_POSSIBLE;
    for (size_t i = 0; i < sizeof vague / sizeof vague[0]; i++)
        if (strstr(fact->text, vague[i]) != NULL)
            return DOCTOR_LIKELY;
    if (fact->cause == DOCTOR_SHM_FULL && strstr(fact->text, "Bus error") != NULL &&
        strstr(fact->text, "shared memory") == NULL)
        return DOCTOR_LIKELY;
    return DOCTOR_PROVEN;
}

static void list_fact(const doctor_fact_t **list, int *count, const doctor_fact_t *fact)
{
    for (int i = 0; i < *count; i++)
        if (list[i] == fact || (list[i]->source == fact->source && list[i]->line == fact->line))
            return;
    if (*count < DOCTOR_LISTED)
        list[(*count)++] = fact;
}

/* Facts of the same kind support the cause; later ones follow from it. */
static void list_facts(const doctor_t *doctor, doctor_verdict_t *verdict)
{
    if (verdict->root != NULL)
        list_fact(verdict->evidence, &verdict->num_evidence, verdict->root);
    for (int i = 0; i < num_rows(); i++) {
        const doctor_found_t *found = &doctor->found[i];
        if (found->count == 0)
            continue;
        const doctor_fact_t *fact = &found->first;
        const bool alike =
            fact->cause == verdict->cause || (doctor_cause_is_memory(verdict->cause, false) &&
                                              doctor_cause_is_memory(fact->cause, false));
        const bool figures = fact->role == DOCTOR_ROLE_CONTEXT && fact->cause == DOCTOR_NONE &&
                             fact->figure[DOCTOR_LIMIT] > 0 &&
                             doctor_cause_is_memory(verdict->cause, false);
        const bool harmless = fact->role == DOCTOR_ROLE_HARMLESS && verdict->cause == DOCTOR_NONE;
        if ((is_candidate(fact) && alike) || figures || harmless)
            list_fact(verdict->evidence, &verdict->num_evidence, fact);
        else if (fact->role == DOCTOR_ROLE_CONSEQUENCE ||
                 (is_candidate(fact) && verdict->cause != DOCTOR_NONE))
            list_fact(verdict->consequence, &verdict->num_consequences, fact);
    }
}

/* The first text that only reports another's end: used where no text gives the cause. */
static const doctor_fact_t *only_consequence(const doctor_t *doctor)
{
    for (int i = 0; i < num_rows(); i++) {
        const doctor_found_t *found = &doctor->found[i];
        if (found->count > 0 && found->last.role == DOCTOR_ROLE_CONSEQUENCE &&
            !went_on(doctor, &found->last))
            return &found->last;
    }
    return NULL;
}

static int64_t first_known(int64_t a, int64_t b, int64_t c)
{
    return a > 0 ? a : b > 0 ? b : c > 0 ? c : -1;
}

void doctor_verdict_find(const doctor_t *doctor, doctor_verdict_t *verdict_out)
{
    doctor_verdict_t *verdict = verdict_out;
    const bool well = ended_well(doctor);
    bool progress = false;
    *verdict = (doctor_verdict_t){.cause = DOCTOR_NONE,
                                  .confidence = DOCTOR_POSSIBLE,
                                  .code = -1,
                                  .signal = -1,
                                  .next_mem = -1};
    for (int i = 0; i < doctor->num_sources; i++)
        progress = progress || doctor->source[i].progress >= WENT_ON;
    verdict->shape = doctor_growth_shape(&doctor->growth, progress);
    const doctor_fact_t *root = choose(doctor, false);
    if (root == NULL)
        root = only_consequence(doctor);
    const doctor_fact_t *survived = root == NULL ? choose(doctor, true) : NULL;
    if (root == NULL)
        root = survived;
    if (root != NULL) {
        verdict->root = root;
        verdict->cause = root->cause;
        verdict->confidence = confidence_of(root);
        verdict->code = root->figure[DOCTOR_CODE];
        verdict->signal = root->figure[DOCTOR_SIGNAL];
    }
    if (verdict->code < 0 && doctor->slurm.code > 0)
        verdict->code = doctor->slurm.code;
    take_timeline(doctor, verdict);
    look_for_memory(doctor, verdict);
    look_for_tmpfs(doctor, verdict);
    verdict->limit = first_known(doctor->limit, doctor->growth.on_host ? -1 : doctor->growth.limit,
                                 doctor->slurm.requested);
    if (verdict->cause == DOCTOR_NONE)
        verdict->outcome = well ? DOCTOR_OUTCOME_FINISHED : DOCTOR_OUTCOME_UNKNOWN;
    else if (well || survived != NULL)
        verdict->outcome = DOCTOR_OUTCOME_SURVIVED;
    else
        verdict->outcome = DOCTOR_OUTCOME_DIED;
    if (verdict->cause == DOCTOR_NONE && well)
        verdict->confidence = DOCTOR_PROVEN;
    list_facts(doctor, verdict);
}

bool doctor_verdict_is_kill_code(const doctor_t *doctor, const doctor_verdict_t *verdict)
{
    const int64_t code = verdict->code;
    return verdict->cause == DOCTOR_EXIT_CODE && !doctor->growth.ended && /* it sees the signal */
           (code == 137 || code == 247 || (code == 9 && doctor->slurm.code == 9));
}

int64_t doctor_cuda_idle(const doctor_fact_t *fact)
{
    const int64_t *figure = fact->figure;
    if (figure[DOCTOR_UNALLOCATED] >= 0 || figure[DOCTOR_RESERVED] < 0)
        return figure[DOCTOR_UNALLOCATED];
    return plim__max_i64(0, figure[DOCTOR_RESERVED] - figure[DOCTOR_ALLOCATED]);
}

/* Bytes that torch could still have taken: free, and within a memory fraction; -1: unknown. */
static int64_t cuda_free(const doctor_fact_t *fact)
{
    const int64_t *figure = fact->figure, idle = doctor_cuda_idle(fact);
    if (figure[DOCTOR_ALLOWED] < 0 || idle < 0)
        return figure[DOCTOR_FREE];
    const int64_t rest = plim__max_i64(0, figure[DOCTOR_ALLOWED] - figure[DOCTOR_ALLOCATED] - idle);
    return plim__min_i64(figure[DOCTOR_FREE], rest);
}

bool doctor_cuda_fragmented(const doctor_fact_t *fact)
{
    const int64_t tried = fact->figure[DOCTOR_TRIED], idle = doctor_cuda_idle(fact);
    return tried > 0 && idle >= 0 && plim__max_i64(0, cuda_free(fact)) + idle >= tried;
}
