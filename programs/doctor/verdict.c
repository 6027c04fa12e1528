/* Chooses the cause among the facts. */
#include "doctor/verdict.h"

#include "base/check.h"

#include <signal.h>
#include <string.h>

/* Lines of progress after a text: from so many on the program went on. */
#define WENT_ON 3

static bool went_on(const plim_doctor_t *doctor, const plim__fact_t *fact)
{
    return doctor->source[fact->source].progress - fact->progress >= WENT_ON;
}

static bool ended_well(const plim_doctor_t *doctor)
{
    const plim__growth_t *growth = &doctor->growth;
    const plim__slurm_t *slurm = &doctor->slurm;
    if (growth->ended)
        return growth->code == 0 && growth->signal < 0;
    if (doctor->recipe.epochs > 0 && doctor->epochs_done >= doctor->recipe.epochs)
        return true;
    if (strcmp(slurm->state, "COMPLETED") == 0)
        return true;
    /* The batch script's helper was killed, the steps that work were not. */
    return strcmp(slurm->state, "OUT_OF_MEMORY") == 0 && slurm->num_steps > 0 &&
           slurm->steps_done == slurm->num_steps;
}

static int num_rows(void)
{
    return plim__num_texts + PLIM__NUM_OTHER;
}

/* The fact of a row that may be the end; NULL: the program went on after each. */
static const plim__fact_t *fatal(const plim_doctor_t *doctor, int row)
{
    const plim__found_t *found = &doctor->found[row];
    if (found->count == 0)
        return NULL;
    if (!went_on(doctor, &found->first))
        return &found->first;
    return went_on(doctor, &found->last) ? NULL : &found->last;
}

static bool is_candidate(const plim__fact_t *fact)
{
    return fact->role == PLIM__ROLE_CAUSE || fact->role == PLIM__ROLE_SYMPTOM;
}

/* The fact with the first cause; of equal ones the one that tells most. */
static const plim__fact_t *choose(const plim_doctor_t *doctor, bool survived)
{
    const plim__fact_t *best = NULL;
    for (int i = 0; i < num_rows(); i++) {
        const plim__fact_t *fact = fatal(doctor, i);
        if (survived && fact == NULL && doctor->found[i].count > 0)
            fact = &doctor->found[i].last;
        if (fact == NULL || !is_candidate(fact))
            continue;
        if (best == NULL || fact->cause < best->cause ||
            (fact->cause == best->cause && best->figure[PLIM__ANON] < 0 &&
             fact->figure[PLIM__ANON] >= 0))
            best = fact;
    }
    return best;
}

/* What the watch of the command saw at its end. */
static void take_timeline(const plim_doctor_t *doctor, plim__verdict_t *verdict)
{
    const plim__growth_t *growth = &doctor->growth;
    plim__cause_t cause = PLIM__NONE;
    if (growth->kills > 0 && growth->hits > 0)
        cause = PLIM__OOM_CGROUP;
    else if (growth->kills > 0 && growth->parent_hits > 0)
        cause = PLIM__OOM_PARENT;
    else if (growth->kills > 0 && growth->host_kills > 0)
        cause = PLIM__OOM_HOST;
    else if (growth->kills > 0)
        cause = PLIM__OOM_KERNEL;
    else if (growth->signal == SIGSEGV)
        cause = PLIM__SEGFAULT;
    else if (growth->signal == SIGBUS)
        cause = PLIM__BUS_ERROR;
    else if (growth->signal == SIGABRT)
        cause = PLIM__ABORTED;
    else if (growth->signal == SIGKILL)
        cause = PLIM__KILLED;
    else if (growth->signal == SIGTERM || growth->signal == SIGINT)
        cause = PLIM__TERMINATED;
    else if (growth->code > 0)
        cause = PLIM__EXIT_CODE;
    /* memory.oom.group takes the watcher too, and then the record ends just before the kill. */
    const bool cut = plim__growth_is_cut(growth) && !growth->on_host && growth->limit > 0 &&
                     growth->last * 10 >= growth->limit * 9;
    if (cut && cause == PLIM__NONE)
        cause = PLIM__OOM_CGROUP;
    if (growth->code >= 0)
        verdict->code = growth->code;
    if (growth->signal > 0)
        verdict->signal = growth->signal;
    if (cause < verdict->cause) {
        verdict->cause = cause;
        verdict->root = NULL;
        verdict->confidence = cause == PLIM__EXIT_CODE ? PLIM__POSSIBLE
                              : cut                    ? PLIM__LIKELY
                                                       : PLIM__PROVEN;
    }
}

/* Small victims and much shared memory: files in memory filled the group. */
static void look_for_tmpfs(const plim_doctor_t *doctor, plim__verdict_t *verdict)
{
    const int64_t limit = doctor->limit;
    const int64_t victim = verdict->root != NULL ? verdict->root->figure[PLIM__ANON] : -1;
    if (!plim__cause_is_memory(verdict->cause, false) || verdict->cause == PLIM__OOM_HOST)
        return;
    if ((doctor->shmem > 0 && limit > 0 && doctor->shmem * 2 >= limit && victim * 4 < limit) ||
        (verdict->shape.pattern == PLIM__PATTERN_TMPFS && doctor->growth.kills > 0))
        verdict->cause = PLIM__OOM_TMPFS;
}

/* A SIGKILL whose sender is not told, while memory was nearly full. */
static void look_for_memory(const plim_doctor_t *doctor, plim__verdict_t *verdict)
{
    const plim__growth_t *growth = &doctor->growth;
    const plim__slurm_t *slurm = &doctor->slurm;
    /* Somebody ended without a reason, and the group's counter has one. */
    if (doctor->kills > 0 && verdict->cause >= PLIM__KILLED &&
        verdict->cause != PLIM__PYTHON_ERROR && verdict->cause != PLIM__TERMINATED) {
        verdict->cause = PLIM__OOM_CGROUP;
        verdict->confidence = PLIM__LIKELY;
    }
    if (verdict->cause != PLIM__KILLED)
        return;
    const bool counted = growth->ended && growth->kills >= 0;
    if (counted || doctor->kills == 0)
        return; /* the kernel's counter says that it was not memory */
    const int64_t full = growth->peak + plim__max_i64(growth->others, 0);
    if (growth->limit > 0 && full * 10 >= growth->limit * 9) {
        verdict->cause = PLIM__OOM_KERNEL;
        verdict->confidence = PLIM__LIKELY;
    } else if (slurm->requested > 0 && slurm->resident * 10 >= slurm->requested * 9) {
        verdict->cause = PLIM__OOM_SLURM;
        verdict->confidence = PLIM__LIKELY;
    }
}

static plim__confidence_t confidence_of(const plim__fact_t *fact)
{
    static const char *const vague[] = {"CUBLAS_STATUS", "basic_ios", "inline_container",
                                        "PytorchStreamWriter"};
    if (fact->cause >= PLIM__PEER_LOST && fact->cause != PLIM__TERMINATED)
        return PLIM__POSSIBLE;
    for (size_t i = 0; i < sizeof vague / sizeof vague[0]; i++)
        if (strstr(fact->text, vague[i]) != NULL)
            return PLIM__LIKELY;
    if (fact->cause == PLIM__SHM_FULL && strstr(fact->text, "Bus error") != NULL &&
        strstr(fact->text, "shared memory") == NULL)
        return PLIM__LIKELY;
    return PLIM__PROVEN;
}

static void list_fact(const plim__fact_t **list, int *count, const plim__fact_t *fact)
{
    for (int i = 0; i < *count; i++)
        if (list[i] == fact || (list[i]->source == fact->source && list[i]->line == fact->line))
            return;
    if (*count < PLIM__LISTED)
        list[(*count)++] = fact;
}

/* Facts of the same kind support the cause; later ones follow from it. */
static void list_facts(const plim_doctor_t *doctor, plim__verdict_t *verdict)
{
    if (verdict->root != NULL)
        list_fact(verdict->evidence, &verdict->num_evidence, verdict->root);
    for (int i = 0; i < num_rows(); i++) {
        const plim__found_t *found = &doctor->found[i];
        if (found->count == 0)
            continue;
        const plim__fact_t *fact = &found->first;
        const bool alike =
            fact->cause == verdict->cause || (plim__cause_is_memory(verdict->cause, false) &&
                                              plim__cause_is_memory(fact->cause, false));
        const bool figures = fact->role == PLIM__ROLE_CONTEXT && fact->cause == PLIM__NONE &&
                             fact->figure[PLIM__LIMIT] > 0 &&
                             plim__cause_is_memory(verdict->cause, false);
        const bool harmless = fact->role == PLIM__ROLE_HARMLESS && verdict->cause == PLIM__NONE;
        if ((is_candidate(fact) && alike) || figures || harmless)
            list_fact(verdict->evidence, &verdict->num_evidence, fact);
        else if (fact->role == PLIM__ROLE_CONSEQUENCE ||
                 (is_candidate(fact) && verdict->cause != PLIM__NONE))
            list_fact(verdict->consequence, &verdict->num_consequences, fact);
    }
}

/* The first consequence, when nothing else is there: somebody died, and it is not told of what. */
static const plim__fact_t *only_consequence(const plim_doctor_t *doctor)
{
    for (int i = 0; i < num_rows(); i++) {
        const plim__found_t *found = &doctor->found[i];
        if (found->count > 0 && found->last.role == PLIM__ROLE_CONSEQUENCE &&
            !went_on(doctor, &found->last))
            return &found->last;
    }
    return NULL;
}

static int64_t first_known(int64_t a, int64_t b, int64_t c)
{
    return a > 0 ? a : b > 0 ? b : c > 0 ? c : -1;
}

void plim__verdict_find(const plim_doctor_t *doctor, plim__verdict_t *verdict_out)
{
    plim__verdict_t *verdict = verdict_out;
    const bool well = ended_well(doctor);
    bool progress = false;
    *verdict = (plim__verdict_t){.cause = PLIM__NONE,
                                 .confidence = PLIM__POSSIBLE,
                                 .code = -1,
                                 .signal = -1,
                                 .next_mem = -1};
    for (int i = 0; i < doctor->num_sources; i++)
        progress = progress || doctor->source[i].progress >= WENT_ON;
    verdict->shape = plim__growth_shape(&doctor->growth, progress);
    const plim__fact_t *root = choose(doctor, false);
    if (root == NULL)
        root = only_consequence(doctor);
    const plim__fact_t *survived = root == NULL ? choose(doctor, true) : NULL;
    if (root == NULL)
        root = survived;
    if (root != NULL) {
        verdict->root = root;
        verdict->cause = root->cause;
        verdict->confidence = confidence_of(root);
        verdict->code = root->figure[PLIM__CODE];
        verdict->signal = root->figure[PLIM__SIGNAL];
    }
    if (verdict->code < 0 && doctor->slurm.code > 0)
        verdict->code = doctor->slurm.code;
    take_timeline(doctor, verdict);
    look_for_memory(doctor, verdict);
    look_for_tmpfs(doctor, verdict);
    verdict->limit = first_known(doctor->limit, doctor->growth.on_host ? -1 : doctor->growth.limit,
                                 doctor->slurm.requested);
    if (verdict->cause == PLIM__NONE)
        verdict->outcome = well ? PLIM__OUTCOME_FINISHED : PLIM__OUTCOME_UNKNOWN;
    else if (well || survived != NULL)
        verdict->outcome = PLIM__OUTCOME_SURVIVED;
    else
        verdict->outcome = PLIM__OUTCOME_DIED;
    if (verdict->cause == PLIM__NONE && well)
        verdict->confidence = PLIM__PROVEN;
    list_facts(doctor, verdict);
}

int64_t plim__cuda_idle(const plim__fact_t *fact)
{
    const int64_t *figure = fact->figure;
    if (figure[PLIM__UNALLOCATED] >= 0 || figure[PLIM__RESERVED] < 0)
        return figure[PLIM__UNALLOCATED];
    return plim__max_i64(0, figure[PLIM__RESERVED] - figure[PLIM__ALLOCATED]);
}

int64_t plim__cuda_free(const plim__fact_t *fact)
{
    const int64_t *figure = fact->figure, idle = plim__cuda_idle(fact);
    if (figure[PLIM__ALLOWED] < 0 || idle < 0)
        return figure[PLIM__FREE];
    const int64_t rest = plim__max_i64(0, figure[PLIM__ALLOWED] - figure[PLIM__ALLOCATED] - idle);
    return plim__min_i64(figure[PLIM__FREE], rest);
}

bool plim__cuda_fragmented(const plim__fact_t *fact)
{
    const int64_t tried = fact->figure[PLIM__TRIED], idle = plim__cuda_idle(fact);
    return tried > 0 && idle >= 0 && plim__max_i64(0, plim__cuda_free(fact)) + idle >= tried;
}
