/*
 * Slurm's own answers: rows of sacct (with | or in columns), scontrol show job, seff.
 *
 *     123|OUT_OF_MEMORY|0:125|0:0|4G||00:01:02|01:00:00|
 *     123.batch|OUT_OF_MEMORY|0:125||4G|4180000K|00:01:02||1
 */
#include "doctor/log_pattern.h"

#include <stdio.h>
#include <string.h>

#define FIELDS 16

typedef struct table_field {
    const char *begin, *end;
} table_field_t;

/* Columns of sacct that are looked at. */
enum { COLUMN_OTHER, COLUMN_JOB, COLUMN_STATE, COLUMN_EXIT, COLUMN_REQUESTED, COLUMN_RESIDENT };

static bool is(table_field_t field, const char *word)
{
    const size_t length = strlen(word);
    return (size_t)(field.end - field.begin) == length && memcmp(field.begin, word, length) == 0;
}

static bool starts(table_field_t field, const char *word)
{
    const size_t length = strlen(word);
    return (size_t)(field.end - field.begin) >= length && memcmp(field.begin, word, length) == 0;
}

static int split(const char *line, const char *end, bool piped, table_field_t *fields)
{
    int count = 0;
    const char *at = line;
    while (at <= end && count < FIELDS) {
        if (!piped) {
            while (at < end && *at == ' ')
                at++;
            if (at == end)
                break;
        }
        const char *stop = at;
        while (stop < end && *stop != (piped ? '|' : ' '))
            stop++;
        fields[count++] = (table_field_t){at, stop};
        at = stop + 1;
    }
    return count;
}

/* The states as sacct writes them, whole or cut to ten columns, and what each of them means. */
static const struct {
    const char *name, *begin;
    doctor_cause_t cause;
} states[] = {
    {"COMPLETED", "COMPLETED", DOCTOR_NONE},
    {"FAILED", "FAILED", DOCTOR_EXIT_CODE},
    {"OUT_OF_MEMORY", "OUT_OF_ME", DOCTOR_OOM_SLURM},
    {"CANCELLED", "CANCELLED", DOCTOR_CANCELLED},
    {"TIMEOUT", "TIMEOUT", DOCTOR_TIME_LIMIT},
    {"NODE_FAIL", "NODE_FAIL", DOCTOR_NODE_FAIL},
    {"PREEMPTED", "PREEMPTED", DOCTOR_PREEMPTED},
    {"BOOT_FAIL", "BOOT_FAIL", DOCTOR_NODE_FAIL},
    {"DEADLINE", "DEADLINE", DOCTOR_TIME_LIMIT},
    {"REQUEUED", "REQUEUED", DOCTOR_REQUEUED},
    {"RUNNING", "RUNNING", DOCTOR_NONE},
    {"PENDING", "PENDING", DOCTOR_NONE},
};

static int state_of(table_field_t field)
{
    for (int i = 0; i < (int)(sizeof states / sizeof states[0]); i++)
        if (starts(field, states[i].begin))
            return i;
    return -1;
}

/* "123", "123_4", "123_[5-9]", "123+0"; behind a point the step. */
static bool is_job(table_field_t field, table_field_t *step_out)
{
    const char *at = field.begin;
    while (at < field.end && *at >= '0' && *at <= '9')
        at++;
    if (at == field.begin || at - field.begin > 18)
        return false;
    if (at < field.end && (*at == '_' || *at == '+'))
        while (at < field.end && *at != '.')
            at++;
    *step_out = (table_field_t){at, field.end};
    return at == field.end || *at == '.';
}

/* "0:125": status and signal. */
static bool parse_exit(table_field_t field, int *code_out, int *signal_out)
{
    doctor_captured_t captured;
    if (!doctor_pattern_match("^%d:%d$", field.begin, field.begin, field.end, &captured) ||
        captured.number[0] < 0 || captured.number[0] > 255 || captured.number[1] < 0 ||
        captured.number[1] > 255)
        return false;
    *code_out = (int)captured.number[0];
    *signal_out = (int)captured.number[1];
    return true;
}

/* The first word that a pattern captured. */
static table_field_t captured_field(const doctor_captured_t *captured)
{
    return (table_field_t){captured->word[0], captured->word[0] + strlen(captured->word[0])};
}

static void copy(table_field_t field, char *text_out, size_t size)
{
    plim__text_printable(field.begin, (size_t)(field.end - field.begin), text_out, size);
}

static void add_state(doctor_t *doctor, int state, int code, int signal, const char *line,
                      size_t length)
{
    const int row = doctor_num_texts + DOCTOR_FACT_STATE;
    doctor_cause_t cause = states[state].cause;
    doctor_role_t role = cause == DOCTOR_EXIT_CODE ? DOCTOR_ROLE_SYMPTOM : DOCTOR_ROLE_CAUSE;
    /* A task killed by KILL. 125 is Slurm's own number for out of memory. */
    if (cause == DOCTOR_EXIT_CODE && signal == 9)
        cause = DOCTOR_KILLED;
    else if (cause == DOCTOR_EXIT_CODE && signal == 11)
        cause = DOCTOR_SEGFAULT;
    else if (cause == DOCTOR_EXIT_CODE && signal == 125) {
        cause = DOCTOR_OOM_SLURM;
        role = DOCTOR_ROLE_CAUSE;
    }
    if (cause == DOCTOR_NONE)
        role = DOCTOR_ROLE_CONTEXT;
    doctor_fact_t *fact = doctor_facts_add(doctor, row, cause, role, line, length);
    if (code > 0)
        fact->figure[DOCTOR_CODE] = code;
    if (signal > 0 && signal < 65)
        fact->figure[DOCTOR_SIGNAL] = signal;
    if (doctor->found[row].count == 1)
        doctor->found[row].first = *fact;
}

static void take_memory(const char *begin, const char *end, int64_t *bytes)
{
    int64_t value;
    if (doctor_size_parse_at(begin, end, &value) != NULL && value > *bytes)
        *bytes = value;
}

/* The heading says where the columns are; false: this is no heading. */
static bool take_heading(doctor_t *doctor, const table_field_t *fields, int count, bool piped)
{
    static const char *const names[] = {"", "JobID", "State", "ExitCode", "ReqMem", "MaxRSS"};
    bool job = false, state = false;
    for (int i = 0; i < count; i++) {
        job = job || is(fields[i], names[COLUMN_JOB]);
        state = state || is(fields[i], names[COLUMN_STATE]);
    }
    if (!job || !state)
        return false;
    memset(doctor->columns, COLUMN_OTHER, sizeof doctor->columns);
    for (int i = 0; i < count && i < (int)sizeof doctor->columns; i++)
        for (int k = COLUMN_JOB; k <= COLUMN_RESIDENT; k++)
            if (is(fields[i], names[k]))
                doctor->columns[i] = (unsigned char)k;
    doctor->heading = piped;
    return true;
}

static bool take_row(doctor_t *doctor, const table_field_t *fields, int count, const char *line,
                     size_t length)
{
    /* The order that the man page names: without a heading. */
    static const unsigned char usual[] = {COLUMN_JOB,   COLUMN_STATE,     COLUMN_EXIT,
                                          COLUMN_OTHER, COLUMN_REQUESTED, COLUMN_RESIDENT};
    const unsigned char *columns = doctor->heading ? doctor->columns : usual;
    const int known = doctor->heading ? (int)sizeof doctor->columns : (int)sizeof usual;
    doctor_slurm_t *slurm = &doctor->slurm;
    table_field_t step = {NULL, NULL}, job = {NULL, NULL};
    int state = -1, code = -1, signal = -1;
    int64_t requested = -1, resident = -1;
    /* Columns may be empty, and then blanks do not tell where: there the content does. */
    for (int i = 0; i < count && !doctor->row_piped; i++) {
        if (i == 0 && is_job(fields[i], &step))
            job = (table_field_t){fields[i].begin, step.begin};
        else if (state < 0)
            state = state_of(fields[i]);
        else if (code < 0)
            (void)parse_exit(fields[i], &code, &signal);
    }
    for (int i = 0; i < count && i < known && doctor->row_piped; i++) {
        if (columns[i] == COLUMN_JOB && is_job(fields[i], &step))
            job = (table_field_t){fields[i].begin, step.begin};
        else if (columns[i] == COLUMN_STATE)
            state = state_of(fields[i]);
        else if (columns[i] == COLUMN_EXIT)
            (void)parse_exit(fields[i], &code, &signal);
        else if (columns[i] == COLUMN_REQUESTED)
            take_memory(fields[i].begin, fields[i].end, &requested);
        else if (columns[i] == COLUMN_RESIDENT)
            take_memory(fields[i].begin, fields[i].end, &resident);
    }
    if (job.begin == NULL || state < 0 || (!doctor->row_piped && code < 0))
        return false;
    if (requested > 0)
        slurm->requested = requested;
    if (resident > slurm->resident)
        slurm->resident = resident;
    if (step.begin < step.end) { /* a step */
        const bool numbered =
            step.end - step.begin > 1 && step.begin[1] >= '0' && step.begin[1] <= '9';
        const bool done = states[state].cause == DOCTOR_NONE && code == 0 && signal == 0;
        slurm->num_steps += numbered;
        slurm->steps_done += numbered && done;
        return true;
    }
    copy(job, slurm->job, sizeof slurm->job);
    (void)snprintf(slurm->state, sizeof slurm->state, "%s", states[state].name);
    slurm->code = code;
    slurm->signal = signal;
    add_state(doctor, state, code, signal, line, length);
    return true;
}

/* JobState=OUT_OF_MEMORY Reason=OutOfMemory; ExitCode=0:125; JobId=123; MinMemoryNode=4G. */
static bool take_scontrol(doctor_t *doctor, const char *line, const char *end)
{
    doctor_slurm_t *slurm = &doctor->slurm;
    doctor_captured_t captured;
    bool found = false;
    if (doctor_pattern_match("JobId=%w ", line, line, end, &captured)) {
        copy(captured_field(&captured), slurm->job, sizeof slurm->job);
        found = true;
    }
    if (doctor_pattern_match("JobState=%w Reason=%w ", line, line, end, &captured)) {
        const int state = state_of(captured_field(&captured));
        if (state >= 0) {
            (void)snprintf(slurm->state, sizeof slurm->state, "%s", states[state].name);
            add_state(doctor, state, -1, -1, line, (size_t)(end - line));
        }
        found = true;
    }
    if (doctor_pattern_match("ExitCode=%w", line, line, end, &captured) &&
        (captured.at == line || captured.at[-1] == ' ') && /* not DerivedExitCode */
        parse_exit(captured_field(&captured), &slurm->code, &slurm->signal))
        found = true;
    if (doctor_pattern_match("MinMemoryNode=%z", line, line, end, &captured)) {
        slurm->requested = captured.number[0];
        found = true;
    }
    return found;
}

static bool take_seff(doctor_t *doctor, const char *line, const char *end)
{
    doctor_slurm_t *slurm = &doctor->slurm;
    doctor_captured_t captured;
    if (doctor_pattern_match("^State: %w (exit code %d)", line, line, end, &captured)) {
        const int state = state_of(captured_field(&captured));
        if (state < 0)
            return false;
        (void)snprintf(slurm->state, sizeof slurm->state, "%s", states[state].name);
        slurm->code = captured.number[0] < 256 ? (int)captured.number[0] : -1;
        slurm->signal = 0;
        add_state(doctor, state, slurm->code, -1, line, (size_t)(end - line));
        return true;
    }
    if (doctor_pattern_match("^Memory Utilized: %z", line, line, end, &captured)) {
        slurm->resident = captured.number[0];
        return true;
    }
    if (doctor_pattern_match("^Memory Efficiency: %* of %z", line, line, end, &captured)) {
        slurm->requested = captured.number[0];
        return true;
    }
    if (doctor_pattern_match("^Job ID: %w", line, line, end, &captured)) {
        copy(captured_field(&captured), slurm->job, sizeof slurm->job);
        return true;
    }
    return false;
}

bool doctor_slurm_line(doctor_t *doctor, const char *line, size_t length)
{
    const char *end = line + length;
    table_field_t fields[FIELDS];
    if (length > 1024)
        return false;
    while (line < end && *line == ' ')
        line++;
    while (end > line && end[-1] == ' ')
        end--;
    const bool piped = memchr(line, '|', (size_t)(end - line)) != NULL;
    const int count = split(line, end, piped, fields);
    if (count >= 2 && take_heading(doctor, fields, count, piped))
        return true;
    doctor->row_piped = piped;
    if (count >= 3 && take_row(doctor, fields, count, line, (size_t)(end - line)))
        return true;
    return take_scontrol(doctor, line, end) || take_seff(doctor, line, end);
}
