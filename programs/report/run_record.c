#include "report/run_record.h"

#include "base/fail.h"
#include "base/printable.h"
#include "command/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_WIDTH (1.0 / 64) /* seconds of a column in the beginning */

const char *const report_stage_names[REPORT_RECORD_STAGES] = {
    "waiting for batches", "aggregation", "matrix products", "epilogue", "loss", "update"};

/* The numbers of a line that are used, and their names. */
/* clang-format off */
#define KEYS(KEY)                                            \
    KEY(AT, "at_s")                                          \
    KEY(USED, "used_bytes")                                  \
    KEY(LINE, "line_bytes")                                  \
    KEY(LINE_INDEX, "line")                                  \
    KEY(HELD, "held_bytes")                                  \
    KEY(RSS, "rss_bytes")                                    \
    KEY(GROUP_ANONYMOUS, "group_anonymous_bytes")            \
    KEY(GROUP_SHARED, "group_shared_bytes")                  \
    KEY(GROUP_KERNEL, "group_kernel_bytes")                  \
    KEY(GROUP_CACHE, "group_cache_bytes")                    \
    KEY(NUM_PROCESSES, "num_processes")                      \
    KEY(CPU, "cpu_s")                                        \
    KEY(READ, "read_bytes")                                  \
    KEY(EPOCH, "epoch")                                      \
    KEY(STEP, "step")                                        \
    KEY(TIME, "time_s")                                      \
    KEY(BEGAN, "began_s")                                    \
    KEY(SECONDS, "seconds")                                  \
    KEY(SPEED, "steps_per_s")                                \
    KEY(WAITING, "waiting_s")                                \
    KEY(SPARSE, "sparse_s")                                  \
    KEY(DENSE, "dense_s")                                    \
    KEY(FINISH, "finish_s")                                  \
    KEY(LOSS_TIME, "loss_s")                                 \
    KEY(UPDATE, "update_s")                                  \
    KEY(EVALUATION, "evaluation_s")                          \
    KEY(SAVING, "saving_s")                                  \
    KEY(RESERVED, "reserved_bytes")                          \
    KEY(LISTS, "lists")                                      \
    KEY(LISTS_CACHED, "lists_cached")                        \
    KEY(ROWS, "rows")                                        \
    KEY(ROWS_CACHED, "rows_cached")                          \
    KEY(RANKS, "ranks")                                      \
    KEY(GPU, "gpu")                                          \
    KEY(TOTAL, "total_bytes")
/* clang-format on */

#define KEY_NUMBER(number, name) number,
enum { KEYS(KEY_NUMBER) NUM_KEYS };

#define KEY_NAME(number, name) name,
static const char *const keys[NUM_KEYS] = {KEYS(KEY_NAME)};

/* What a line of the timeline holds; numbers that it does not hold are -1. */
typedef struct record_line {
    double number[NUM_KEYS];
    plim__json_t kind, accounts;
    bool resumed; /* of a plan: the run begins again, in another process */
} record_line_t;

static void parse(plim__json_t text, record_line_t *line_out)
{
    const char *at = NULL;
    *line_out = (record_line_t){0};
    for (int i = 0; i < NUM_KEYS; i++)
        line_out->number[i] = -1;
    for (plim__json_t key, value; plim__json_next_member(text, &at, &key, &value);) {
        if (plim__json_is(key, "kind"))
            line_out->kind = value;
        else if (plim__json_is(key, "accounts"))
            line_out->accounts = value;
        else if (plim__json_is(key, "resumed"))
            line_out->resumed = value.begin < value.end && *value.begin == 't';
        else
            for (int i = 0; i < NUM_KEYS; i++)
                if (plim__json_is(key, keys[i]))
                    line_out->number[i] = plim__json_real(value, -1);
    }
}

plim__json_t report_run_record_json(const char *text)
{
    return (plim__json_t){text, text + strlen(text)};
}

static void keep_text(char *text_out, plim__json_t text)
{
    const size_t length = (size_t)(text.end - text.begin);
    if (length < REPORT_RECORD_TEXT) {
        memcpy(text_out, text.begin, length);
        text_out[length] = '\0';
    }
}

/* Begins a phase. If there is no more memory for phases, every second one is dropped. */
static void add_phase(report_run_record_t *record, double begin, const char *name)
{
    if (record->num_marks++ % record->stride != 0)
        return;
    if (record->num_phases == REPORT_RECORD_PHASES) {
        for (int i = 1; i < REPORT_RECORD_PHASES / 2; i++)
            record->phase[i] = record->phase[(size_t)2 * (size_t)i];
        record->num_phases = REPORT_RECORD_PHASES / 2;
        record->stride *= 2;
    }
    report_phase_t *phase = &record->phase[record->num_phases++];
    *phase = (report_phase_t){.begin = begin, .peak = -1};
    plim__text_printable(name, strlen(name), phase->name, sizeof phase->name);
}

static void add_memory(report_run_record_t *record, double at, double used, const double *others)
{
    if (used < 0)
        return;
    report_track_add(&record->memory, at, 1, used, others);
    if (record->num_phases > 0) {
        report_phase_t *phase = &record->phase[record->num_phases - 1];
        phase->peak = fmax(phase->peak, used);
    }
}

/* Seconds since the beginning of all watches in the file. */
static double watch_time(report_run_record_t *record, double at)
{
    const double time = record->offset + fmax(at, 0);
    record->seconds = fmax(record->seconds, time);
    return time;
}

/* The first letter of the limit's source: "cgroup …", "host …", "--memory". */
static char limit_kind(const report_run_record_t *record, double index)
{
    const plim__json_t limits = plim__json_get(report_run_record_json(record->begin), "limits");
    const char *at = NULL;
    char source[16] = "-";
    plim__json_t limit;
    for (int i = 0; plim__json_next_element(limits, &at, &limit); i++)
        if ((double)i == index)
            plim__json_text(plim__json_get(limit, "source"), source, sizeof source);
    return source[0];
}

static void take_tick(report_run_record_t *record, const record_line_t *line)
{
    const double *number = line->number;
    const double time = watch_time(record, number[AT]);
    const double cache = number[GROUP_CACHE] - fmax(number[GROUP_SHARED], 0);
    double others[1 + REPORT_RECORD_PARTS] = {number[LINE]};
    double *part = others + 1;
    if (number[NUM_PROCESSES] == 0)
        return; /* the command has ended */
    if (record->limit_kind == 0 || number[LINE_INDEX] != record->line_index) {
        record->line_index = number[LINE_INDEX];
        record->limit_kind = limit_kind(record, number[LINE_INDEX]);
    }
    const bool on_host = record->limit_kind == 'h' && number[HELD] >= 0;
    part[REPORT_PART_HELD] = fmax(number[HELD], 0);
    part[REPORT_PART_ANONYMOUS] = fmax(number[GROUP_ANONYMOUS], 0);
    part[REPORT_PART_SHARED] = fmax(number[GROUP_SHARED], 0);
    part[REPORT_PART_KERNEL] = fmax(number[GROUP_KERNEL], 0);
    part[REPORT_PART_CACHE] = fmax(cache, 0);
    part[REPORT_PART_GROUP] = record->limit_kind == 'c' && number[GROUP_ANONYMOUS] >= 0;
    part[REPORT_PART_HOST] = on_host;
    part[REPORT_PART_OTHERS] = on_host ? fmax(number[USED] - number[HELD], 0) : 0;
    add_memory(record, time, number[USED] >= 0 && !on_host ? number[USED] : number[HELD], others);
    if (number[CPU] < 0)
        return;
    const double elapsed = time - record->counter[0];
    if (record->counter[0] >= 0 && elapsed > 0.01) {
        report_track_add(&record->speed, time, elapsed,
                         fmax(number[CPU] - record->counter[1], 0) / elapsed, NULL);
        report_track_add(&record->reading, time, elapsed,
                         fmax(number[READ] - record->counter[2], 0) / elapsed, NULL);
    }
    if (record->counter[0] < 0 || elapsed > 0.01) {
        record->counter[0] = time;
        record->counter[1] = number[CPU];
        record->counter[2] = number[READ];
    }
}

static int part_named(report_run_record_t *record, plim__json_t key)
{
    char name[sizeof record->part[0]];
    plim__json_text(key, name, sizeof name);
    for (int i = 0; i < record->num_parts; i++)
        if (strcmp(record->part[i], name) == 0)
            return i;
    const bool last = record->num_parts >= REPORT_RECORD_PARTS - 1;
    if (record->num_parts < REPORT_RECORD_PARTS)
        (void)snprintf(record->part[record->num_parts++], sizeof name, "%s", last ? "other" : name);
    return record->num_parts - 1;
}

static void add_share(report_track_t *track, double at, double all, double cached)
{
    if (all > 0 && cached >= 0)
        report_track_add(track, at, all, fmin(cached / all, 1), NULL);
}

/* Takes the time of a training's line that tells of `seconds` of work. What else has passed since
 * the line before is a start: opening the run and its loader, filling the caches. */
static void pass_time(report_run_record_t *record, double unix_time, double seconds)
{
    const double passed = unix_time - record->unix_time;
    const double start = record->unix_time > 0 ? fmax(passed - seconds, 0) : 0;
    record->start += start;
    record->seconds += start + seconds;
    record->unix_time = fmax(unix_time, 0);
}

static void take_interval(report_run_record_t *record, const record_line_t *line)
{
    const double *number = line->number;
    const double seconds = fmax(number[SECONDS], 0);
    double others[1 + REPORT_RECORD_PARTS] = {number[LINE]};
    const char *at = NULL;
    record->training = true;
    pass_time(record, number[TIME], seconds);
    if (record->last_epoch > 0 && record->last_epoch != record->marked_epoch) {
        char name[32];
        (void)snprintf(name, sizeof name, "epoch %.0f", record->last_epoch);
        add_phase(record, record->seconds - seconds, name);
        record->marked_epoch = record->last_epoch;
    }
    for (plim__json_t key, value; plim__json_next_member(line->accounts, &at, &key, &value);)
        others[1 + part_named(record, key)] += fmax(plim__json_real(value, 0), 0);
    add_memory(record, record->seconds, number[RSS], others);
    if (number[SPEED] >= 0 && seconds > 0)
        report_track_add(&record->speed, record->seconds, seconds, number[SPEED], NULL);
    add_share(&record->rows, record->seconds, number[ROWS], number[ROWS_CACHED]);
    add_share(&record->lists, record->seconds, number[LISTS], number[LISTS_CACHED]);
    for (int i = 0; i < REPORT_RECORD_STAGES; i++)
        record->stage[i] += fmax(number[WAITING + i], 0);
    record->evaluation += fmax(number[EVALUATION], 0);
    record->saving += fmax(number[SAVING], 0);
    record->reserved_peak = fmax(record->reserved_peak, number[RESERVED]);
    if (number[EPOCH] > record->last_epoch && number[EPOCH] > 1) {
        record->whole_epochs = number[EPOCH] - 1;
        record->whole_seconds =
            record->seconds - record->start - record->evaluation - record->saving;
    }
    record->last_epoch = number[EPOCH];
}

static void take_gpu(report_run_record_t *record, const record_line_t *line)
{
    const double *number = line->number;
    if (!(number[GPU] >= 0 && number[GPU] < REPORT_RECORD_GPUS) || number[USED] < 0)
        return;
    const int index = (int)number[GPU];
    report_track_add(&record->gpu[index], watch_time(record, number[AT]), 1, number[USED], NULL);
    record->gpu_bytes[index] = fmax(number[TOTAL], 0);
}

static void take_plan(report_run_record_t *record, plim__json_t text, const record_line_t *line)
{
    const size_t used = strlen(record->ranks);
    const double *number = line->number;
    const double ranks = number[RANKS];
    const bool first = record->lines == 1;
    keep_text(record->plan, text);
    if (ranks >= 1 && ranks < 1e6 && (line->resumed || used == 0) &&
        used + 16 < sizeof record->ranks)
        (void)snprintf(record->ranks + used, sizeof record->ranks - used, "%s%.0f",
                       used > 0 ? ", " : "", ranks);
    if (!first) {
        record->restarts += line->resumed;
        add_phase(record, record->seconds, line->resumed ? "resumed" : "new plan");
    }
    if (first || line->resumed) /* its time begins here, but not before the last line's */
        record->unix_time =
            fmax(record->unix_time, number[BEGAN] > 0 ? number[BEGAN] : number[TIME]);
    pass_time(record, number[TIME], 0);
}

static void take_begin(report_run_record_t *record, plim__json_t text)
{
    if (record->begin[0] != '\0') {
        record->offset = record->seconds;
        record->restarts++;
        add_phase(record, record->offset, "started again");
    }
    keep_text(record->begin, text);
    record->limit_kind = 0;
    record->counter[0] = -1;
}

void report_run_record_timeline(report_run_record_t *record, plim__json_t text)
{
    record_line_t line;
    parse(text, &line);
    record->lines++;
    if (line.kind.begin == line.kind.end) {
        if (line.number[EPOCH] >= 0 && line.number[SECONDS] >= 0)
            take_interval(record, &line);
    } else if (plim__json_is(line.kind, "tick")) {
        take_tick(record, &line);
    } else if (plim__json_is(line.kind, "gpu")) {
        take_gpu(record, &line);
    } else if (plim__json_is(line.kind, "mark")) {
        char name[256];
        plim__json_text(plim__json_get(text, "text"), name, sizeof name);
        add_phase(record, watch_time(record, line.number[AT]), name);
    } else if (plim__json_is(line.kind, "begin")) {
        take_begin(record, text);
    } else if (plim__json_is(line.kind, "end")) {
        (void)watch_time(record, line.number[AT]);
    } else if (plim__json_is(line.kind, "plan")) {
        take_plan(record, text, &line);
    }
}

void report_run_record_metrics(report_run_record_t *record, plim__json_t line)
{
    static const char *const names[REPORT_RECORD_CURVES] = {"loss", "valid_loss", "train", "valid",
                                                            "test"};
    const double epoch = plim__json_real(plim__json_get(line, "epoch"), -1);
    const plim__json_t best = plim__json_get(line, "best");
    double value[REPORT_RECORD_CURVES];
    if (epoch < 1)
        return;
    record->training = true;
    record->epochs = fmax(record->epochs, epoch);
    for (int i = 0; i < REPORT_RECORD_CURVES; i++) {
        value[i] = plim__json_real(plim__json_get(line, names[i]), NAN);
        if (isfinite(value[i]))
            report_track_add(&record->curve[i], epoch - 1, 1, value[i], NULL);
    }
    record->final_loss = value[REPORT_LOSS];
    if (best.end - best.begin == 4 && memcmp(best.begin, "true", 4) == 0) {
        record->best_epoch = epoch;
        memcpy(record->best, value + REPORT_SCORE_TRAIN, sizeof record->best);
    }
}

/* Opens a file of the run for reading. -1 if there is none, or it is no ordinary file. */
static int open_file(const char *directory, const char *name)
{
    char path[PATH_MAX];
    struct stat about;
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= PATH_MAX)
        return -1;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file >= 0 && (fstat(file, &about) != 0 || !S_ISREG(about.st_mode))) {
        (void)close(file);
        return -1;
    }
    return file;
}

static plim_status_t read_some(int file, const char *name, char *to, size_t size, size_t *got_out)
{
    ssize_t got;
    do
        got = read(file, to, size);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return plim__fail_errno(errno, "%s: cannot be read", name);
    *got_out = (size_t)got;
    return PLIM_OK;
}

/* Hands out every whole line that is an object. */
static plim_status_t read_lines(report_run_record_t *record, int file, const char *name,
                                void (*take)(report_run_record_t *record, plim__json_t line))
{
    size_t used = 0, got = 0;
    bool skipping = false; /* a line that is too long */
    do {
        PLIM_TRY(cli_check_stopped());
        PLIM_TRY(read_some(file, name, record->buffer + used, sizeof record->buffer - used, &got));
        used += got;
        const char *at = record->buffer, *end = record->buffer + used, *newline;
        while ((newline = memchr(at, '\n', (size_t)(end - at))) != NULL) {
            if (!skipping && newline - at >= 2 && *at == '{' && newline[-1] == '}')
                take(record, (plim__json_t){at, newline});
            skipping = false;
            at = newline + 1;
        }
        used = (size_t)(end - at);
        memmove(record->buffer, at, used);
        if (used == sizeof record->buffer) {
            skipping = true;
            used = 0;
        }
    } while (got > 0);
    return PLIM_OK;
}

/* The whole text of run.json, if it is not too long. */
static plim_status_t read_about(report_run_record_t *record, int file)
{
    size_t used = 0, got = 0;
    do {
        PLIM_TRY(
            read_some(file, "run.json", record->about + used, REPORT_RECORD_TEXT - 1 - used, &got));
        used += got;
    } while (got > 0);
    record->about[used] = '\0';
    return PLIM_OK;
}

/* Makes the empty tracks. False without memory. */
static bool create_tracks(report_run_record_t *record)
{
    bool made = report_track_create(&record->memory, FIRST_WIDTH, 1 + REPORT_RECORD_PARTS) &&
                report_track_create(&record->speed, FIRST_WIDTH, 0) &&
                report_track_create(&record->rows, FIRST_WIDTH, 0) &&
                report_track_create(&record->lists, FIRST_WIDTH, 0) &&
                report_track_create(&record->reading, FIRST_WIDTH, 0);
    for (int i = 0; i < REPORT_RECORD_CURVES && made; i++)
        made = report_track_create(&record->curve[i], 1, 0);
    for (int i = 0; i < REPORT_RECORD_GPUS && made; i++)
        made = report_track_create(&record->gpu[i], FIRST_WIDTH, 0);
    return made;
}

plim_status_t report_run_record_begin(const char *name, report_run_record_t **record_out)
{
    report_run_record_t *record = calloc(1, sizeof *record);
    if (record == NULL || !create_tracks(record)) {
        report_run_record_destroy(record);
        return plim__fail_errno(ENOMEM, "the record of %s", name);
    }
    record->stride = 1;
    record->final_loss = NAN;
    for (int i = 0; i < 3; i++) {
        record->counter[i] = -1;
        record->best[i] = NAN;
    }
    plim__text_printable(name, strlen(name), record->name, sizeof record->name);
    *record_out = record;
    return PLIM_OK;
}

void report_run_record_destroy(report_run_record_t *record)
{
    if (record == NULL)
        return;
    doctor_destroy(record->doctor);
    report_track_destroy(&record->memory);
    report_track_destroy(&record->speed);
    report_track_destroy(&record->rows);
    report_track_destroy(&record->lists);
    report_track_destroy(&record->reading);
    for (int i = 0; i < REPORT_RECORD_CURVES; i++)
        report_track_destroy(&record->curve[i]);
    for (int i = 0; i < REPORT_RECORD_GPUS; i++)
        report_track_destroy(&record->gpu[i]);
    free(record);
}

static plim_status_t read_files(report_run_record_t *record, const char *directory, bool *found_out)
{
    static const char *const names[] = {"run.json", "metrics.jsonl", "timeline.jsonl"};
    for (int i = 0; i < 3; i++) {
        const int file = open_file(directory, names[i]);
        if (file < 0)
            continue;
        const plim_status_t status =
            i == 0 ? read_about(record, file)
                   : read_lines(record, file, names[i],
                                i == 1 ? report_run_record_metrics : report_run_record_timeline);
        (void)close(file);
        PLIM_TRY(status);
        *found_out = true;
    }
    return PLIM_OK;
}

plim_status_t report_run_record_create(const char *directory, bool *found_out,
                                       report_run_record_t **record_out)
{
    report_run_record_t *record;
    PLIM_TRY(report_run_record_begin(directory, &record));
    *found_out = false;
    const plim_status_t status = read_files(record, directory, found_out);
    if (status != PLIM_OK || !*found_out) {
        report_run_record_destroy(record);
        return status;
    }
    *record_out = record;
    return PLIM_OK;
}
