/* Takes the lines one by one: recognises texts, keeps their figures, and follows what spans lines.
 */
#include "doctor/facts.h"

#include "base/check.h"
#include "doctor/batch_script.h"
#include "doctor/log_pattern.h"

#include <signal.h>
#include <string.h>

const char *doctor_cause_name(doctor_cause_t cause)
{
    static const char *const names[DOCTOR_NUM_CAUSES] = {
        "oom_tmpfs",  "oom_parent", "oom_numa",    "oom_cgroup",  "oom_host",      "oom_kernel",
        "oom_slurm",  "oom_daemon", "oom_evicted", "cuda_assert", "cuda_oom",      "cuda_error",
        "shm_full",   "disk_full",  "open_files",  "threads",     "alloc_refused", "hardware",
        "node_fail",  "preempted",  "time_limit",  "requeued",    "cancelled",     "segfault",
        "bus_error",  "aborted",    "killed",      "worker_exit", "python_error",  "peer_lost",
        "terminated", "exit_code",  "none"};
    return names[cause];
}

bool doctor_cause_is_memory(doctor_cause_t cause, bool refused)
{
    return cause <= DOCTOR_OOM_EVICTED || (refused && cause == DOCTOR_ALLOC_REFUSED);
}

doctor_fact_t *doctor_facts_add(doctor_t *doctor, int row, doctor_cause_t cause, doctor_role_t role,
                                const char *line, size_t length)
{
    doctor_found_t *found = &doctor->found[row];
    const int source = doctor->num_sources - 1;
    const int64_t number = doctor->source[source].lines + 1;
    /* The chunks of a long line overlap: a text in both is one. */
    if (found->count > 0 && found->last.source == source && found->last.line == number)
        return &found->last;
    doctor_fact_t *fact = &found->last;
    *fact = (doctor_fact_t){.cause = cause,
                            .role = role,
                            .source = source,
                            .line = number,
                            .progress = doctor->source[source].progress};
    for (int i = 0; i < DOCTOR_NUM_FIGURES; i++)
        fact->figure[i] = -1;
    plim__text_printable(line, length, fact->text, sizeof fact->text);
    found->count++;
    return fact;
}

/* The signal of an exit code: -9, 137 and 247 are 9; 0: none. */
static int64_t signal_of(int64_t code)
{
    if (code < 0 && code > -65)
        return -code;
    if (code > 128 && code <= 128 + 64)
        return code - 128;
    return code >= 256 - 31 && code < 256 ? 256 - code : 0;
}

static doctor_cause_t cause_of_signal(int64_t number)
{
    switch (number) {
    case SIGKILL:
        return DOCTOR_KILLED;
    case SIGSEGV:
        return DOCTOR_SEGFAULT;
    case SIGBUS:
        return DOCTOR_BUS_ERROR;
    case SIGABRT:
        return DOCTOR_ABORTED;
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
        return DOCTOR_TERMINATED;
    case SIGXCPU:
        return DOCTOR_TIME_LIMIT;
    default:
        return DOCTOR_EXIT_CODE;
    }
}

/* A launcher that names a negative code, or a signal, saw that signal; 137 may be anything. */
static void resolve_signal(doctor_t *doctor, const doctor_text_row_t *row, doctor_fact_t *fact)
{
    const int64_t code = fact->figure[DOCTOR_CODE];
    if (row->signal != 0)
        fact->figure[DOCTOR_SIGNAL] = row->signal;
    if (code < -1 && signal_of(code) > 0)
        fact->figure[DOCTOR_SIGNAL] = signal_of(code);
    if (fact->cause == DOCTOR_EXIT_CODE && fact->role == DOCTOR_ROLE_SYMPTOM &&
        fact->figure[DOCTOR_SIGNAL] > 0)
        fact->cause = cause_of_signal(fact->figure[DOCTOR_SIGNAL]);
    /* torchrun ends the other ranks itself: only the first failure is one. */
    if (row->figure[0] == DOCTOR_FIGURE_RANK_CODE) {
        if (!doctor->root_cause)
            fact->role = DOCTOR_ROLE_CONSEQUENCE;
        doctor->root_cause = false;
    }
    if (code == 0 && fact->cause == DOCTOR_EXIT_CODE)
        fact->role = DOCTOR_ROLE_CONTEXT;
}

static void keep_context(doctor_t *doctor, const doctor_text_row_t *row, const doctor_fact_t *fact)
{
    if (row->role != DOCTOR_ROLE_CONTEXT)
        return;
    if (fact->figure[DOCTOR_LIMIT] > 0)
        doctor->limit = fact->figure[DOCTOR_LIMIT];
    if (fact->figure[DOCTOR_SHMEM] >= 0)
        doctor->shmem = fact->figure[DOCTOR_SHMEM];
    if (fact->figure[DOCTOR_COUNT] >= 0)
        doctor->kills = plim__max_i64(doctor->kills, fact->figure[DOCTOR_COUNT]);
}

void doctor_facts_prepare(doctor_t *doctor)
{
    for (int i = 0; i < doctor_num_texts; i++)
        if (doctor_texts[i].pattern[0] != '^')
            doctor->triples[doctor_triple_hash(doctor_pattern_triple(doctor_texts[i].pattern))] =
                true;
}

/* Finds which texts the line may hold, in one pass over it. */
static void find_present(doctor_t *doctor, const char *line, const char *end)
{
    memset(doctor->present, 0, (size_t)doctor_num_texts * sizeof(bool));
    for (const char *at = line; end - at >= 3; at++) {
        if (!doctor->triples[doctor_triple_hash(at)])
            continue;
        for (int i = 0; i < doctor_num_texts; i++)
            doctor->present[i] = doctor->present[i] ||
                                 memcmp(at, doctor_pattern_triple(doctor_texts[i].pattern), 3) == 0;
    }
}

static void take_figures(const doctor_text_row_t *row, const doctor_captured_t *captured,
                         const char *end, doctor_fact_t *fact)
{
    if (row->figure[0] == DOCTOR_FIGURE_REQUEST) {
        fact->figure[DOCTOR_LIMIT] =
            read_requested_memory(captured->at, (size_t)(end - captured->at));
        return;
    }
    for (int k = 0; k < captured->numbers; k++) {
        const unsigned figure = row->figure[k];
        if (figure != DOCTOR_FIGURE_NONE)
            fact->figure[figure == DOCTOR_FIGURE_RANK_CODE ? DOCTOR_CODE : figure] =
                captured->number[k];
    }
}

/* A message of torch about the GPU's memory: loggers and terminals cut it into lines, and the lines
 * below the first one hold the rest of its figures. */
static void begin_wrapped(doctor_t *doctor, const doctor_fact_t *fact, const char *from,
                          const char *end)
{
    doctor_wrapped_t *wrapped = &doctor->wrapped;
    wrapped->lines = 0;
    if (fact->cause != DOCTOR_CUDA_OOM || fact->figure[DOCTOR_FREE] >= 0)
        return;
    wrapped->used = (size_t)plim__min_i64(end - from, (int64_t)sizeof wrapped->text / 2);
    memcpy(wrapped->text, from, wrapped->used);
    wrapped->lines = DOCTOR_WRAPPED_LINES;
    wrapped->source = fact->source;
    wrapped->line = fact->line;
    wrapped->progress = fact->progress;
}

/* Whether `row` is a whole message about the GPU's memory: it tells how much was free. */
static bool tells_free(const doctor_text_row_t *row)
{
    for (int k = 0; k < DOCTOR_CAPTURES && row->cause == DOCTOR_CUDA_OOM; k++)
        if (row->figure[k] == DOCTOR_FREE)
            return true;
    return false;
}

static void follow_wrapped(doctor_t *doctor, const char *begin, const char *end)
{
    doctor_wrapped_t *wrapped = &doctor->wrapped;
    const size_t length = (size_t)(end - begin);
    if (wrapped->lines == 0)
        return;
    wrapped->lines--;
    if (wrapped->source != doctor->num_sources - 1 ||
        length + 1 > sizeof wrapped->text - wrapped->used) {
        wrapped->lines = 0;
        return;
    }
    wrapped->text[wrapped->used++] = ' ';
    memcpy(wrapped->text + wrapped->used, begin, length);
    wrapped->used += length;
    const char *text_end = wrapped->text + wrapped->used;
    doctor_captured_t captured;
    for (int i = 0; i < doctor_num_texts; i++) {
        const doctor_text_row_t *row = &doctor_texts[i];
        if (!tells_free(row) ||
            !doctor_pattern_match(row->pattern, wrapped->text, wrapped->text, text_end, &captured))
            continue;
        doctor_fact_t *fact = doctor_facts_add(doctor, i, DOCTOR_CUDA_OOM, DOCTOR_ROLE_CAUSE,
                                               wrapped->text, wrapped->used);
        fact->line = wrapped->line;
        fact->progress = wrapped->progress;
        take_figures(row, &captured, text_end, fact);
        if (doctor->found[i].count == 1)
            doctor->found[i].first = *fact;
        wrapped->lines = 0;
        return;
    }
}

static bool match_texts(doctor_t *doctor, const char *line, const char *begin, const char *end)
{
    doctor_captured_t captured;
    find_present(doctor, line, end);
    for (int i = 0; i < doctor_num_texts; i++) {
        const doctor_text_row_t *row = &doctor_texts[i];
        if (row->pattern[0] != '^' && !doctor->present[i])
            continue;
        if (!doctor_pattern_match(row->pattern, line, begin, end, &captured))
            continue;
        /* Of a long line the part around the text. */
        const char *from = captured.at - begin > 80 ? captured.at - 40 : begin;
        doctor_fact_t *fact =
            doctor_facts_add(doctor, i, (doctor_cause_t)row->cause, (doctor_role_t)row->role, from,
                             (size_t)(end - from));
        take_figures(row, &captured, end, fact);
        for (int k = 0; k < captured.words; k++)
            plim__text_printable(captured.word[k], strlen(captured.word[k]), fact->word[k],
                                 sizeof fact->word[k]);
        if (fact->cause == DOCTOR_OOM_CGROUP && fact->word[1][0] != '\0' &&
            strcmp(fact->word[0], fact->word[1]) != 0)
            fact->cause = DOCTOR_OOM_PARENT;
        if (fact->cause == DOCTOR_DISK_FULL && doctor->semaphore)
            fact->cause = DOCTOR_SHM_FULL;
        resolve_signal(doctor, row, fact);
        keep_context(doctor, row, fact);
        if (doctor->found[i].count == 1)
            doctor->found[i].first = *fact;
        begin_wrapped(doctor, fact, from, end);
        return true;
    }
    return false;
}

/* "ValueError: …", "torch.cuda.OutOfMemoryError: …": a name, then a colon or the end. */
static bool names_exception(const char *begin, const char *end)
{
    const char *at = begin;
    while (at < end && ((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || *at == '.' ||
                        *at == '_' || (*at >= '0' && *at <= '9' && at > begin)))
        at++;
    return at > begin && (at == end || *at == ':');
}

/* What an exception of a library that the table does not know says of memory. */
static doctor_cause_t cause_of_exception(const char *begin, const char *end)
{
    static const char *const said[] = {"out of memory", "Out of memory", "OutOfMemory",
                                       "OOM when allocating"};
    static const char *const gpu[] = {"cuda", "CUDA", "Cuda", "GPU", "gpu"};
    const size_t length = (size_t)(end - begin);
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        if (memmem(begin, length, said[i], strlen(said[i])) == NULL)
            continue;
        for (size_t k = 0; k < sizeof gpu / sizeof gpu[0]; k++)
            if (memmem(begin, length, gpu[k], strlen(gpu[k])) != NULL)
                return DOCTOR_CUDA_OOM;
        return DOCTOR_ALLOC_REFUSED;
    }
    return DOCTOR_PYTHON_ERROR;
}

/* Lines of a traceback are indented; the first one that is not names the exception. */
static void follow_traceback(doctor_t *doctor, const char *begin, const char *end, bool indented,
                             bool recognised)
{
    if (doctor_begins(begin, end, "Traceback (most recent call last)")) {
        doctor->traceback = true;
        return;
    }
    if (indented) {
        doctor->semaphore =
            doctor->semaphore || memmem(begin, (size_t)(end - begin), "SemLock", 7) != NULL;
        return;
    }
    doctor->semaphore = false;
    if (!doctor->traceback)
        return;
    doctor->traceback = false;
    if (recognised || !names_exception(begin, end))
        return;
    const int row = doctor_num_texts + DOCTOR_FACT_PYTHON;
    const doctor_fact_t *fact = doctor_facts_add(doctor, row, cause_of_exception(begin, end),
                                                 DOCTOR_ROLE_CAUSE, begin, (size_t)(end - begin));
    if (doctor->found[row].count == 1)
        doctor->found[row].first = *fact;
}

/* A line that a training prints as it goes on. */
static bool is_progress(const char *begin, const char *end)
{
    static const char *const words[] = {"poch", "tep ", "tep:", "ter ", "oss", "it/s", "s/it"};
    bool digit = false;
    for (const char *at = begin; at < end && !digit; at++)
        digit = *at >= '0' && *at <= '9';
    if (!digit || memmem(begin, (size_t)(end - begin), "Error", 5) != NULL)
        return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (memmem(begin, (size_t)(end - begin), words[i], strlen(words[i])) != NULL)
            return true;
    return false;
}

/* How torch's allocator is set. Its own message tells to try a setting: that sets nothing. */
static void follow_allocator(doctor_t *doctor, const char *begin, const char *end)
{
    static const char segments[] = "expandable_segments", tries[] = "try setting ";
    const size_t length = (size_t)(end - begin);
    const char *at = memmem(begin, length, segments, sizeof segments - 1);
    if (at == NULL)
        return;
    const char *tried = memmem(begin, length, tries, sizeof tries - 1);
    const char *behind = at + sizeof segments - 1;
    if (tried != NULL && tried < at)
        doctor->alloc_conf |= doctor_begins(tried + sizeof tries - 1, end, "PYTORCH_ALLOC_CONF");
    else if (doctor_begins(behind, end, " not supported on this platform"))
        doctor->not_expandable = true;
    else if (*begin != '#' && doctor_begins(behind, end, ":True"))
        doctor->expandable = true;
}

/* What a MemoryMonitor of ours printed. */
static void follow_steps(doctor_t *doctor, const char *line, const char *begin, const char *end)
{
    doctor_captured_t captured;
    doctor_step_t step = {.gpu = -1};
    if (!doctor_pattern_match("^Step %d: CPU: %z, %*Limit: %z, Left: %z", line, begin, end,
                              &captured))
        return;
    step.number = captured.number[0];
    step.held = captured.number[1];
    step.limit = captured.number[2];
    step.left = captured.number[3];
    if (doctor_pattern_match(", GPU: %z, GPU Cached: %z", line, begin, end, &captured))
        step.gpu = captured.number[1];
    doctor_growth_step(&doctor->growth, &step);
}

void doctor_facts_line(doctor_t *doctor, const char *line, size_t length)
{
    const char *end = line + length;
    if (doctor->source[doctor->num_sources - 1].script) {
        follow_allocator(doctor, doctor_message_begin(line, end), end);
        doctor_script_line(&doctor->script, doctor->source[doctor->num_sources - 1].lines + 1, line,
                           length);
        doctor_recipe_line(&doctor->recipe, line, length, true);
        return;
    }
    if (doctor_growth_line(doctor, line, length) || doctor_slurm_line(doctor, line, length))
        return;
    const char *begin = doctor_message_begin(line, end);
    follow_wrapped(doctor, begin, end);
    follow_steps(doctor, line, begin, end);
    if (doctor_begins(begin, end, "Root Cause (first observed failure)"))
        doctor->root_cause = true;
    const bool recognised = match_texts(doctor, line, begin, end);
    follow_allocator(doctor, begin, end);
    /* "[rank0]:     x = f()" is indented behind its prefix. */
    const bool indented = begin > line && (begin[-1] == ' ' || begin[-1] == '\t') &&
                          (begin - line < 2 || begin[-2] == ' ' || begin[-2] == '\t');
    follow_traceback(doctor, begin, end, indented, recognised);
    doctor_recipe_line(&doctor->recipe, line, length, false);
    if (!recognised && !doctor->traceback && is_progress(begin, end))
        doctor->source[doctor->num_sources - 1].progress++;
}
