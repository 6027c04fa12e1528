/*
 * The watch of a command: one tick reads the control groups (mem/meter.h, mem/headroom.h) and the
 * tree (watch_tree.h), takes the command's marks and appends to the timeline (watch_record.h).
 */
#include "watch/watch.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "command/cli.h"
#include "io/own.h"
#include "mem/cgroup.h"
#include "mem/headroom.h"
#include "watch/watch_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <plimsoll/meter.h>
#include <plimsoll/version.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TIMELINE "timeline.jsonl"
#define MARKS "marks"
#define USES_DATASET "plimsoll: dataset" /* a mark of our programs, which names no phase */
#define MARK_MOST 200
#define NAME_MOST 200
#define LINE_SECONDS 1.0 /* at most between two ticks that are written */
#define SOURCES_MAX (PLIM__HEADROOM_GROUPS + 2)

/* A control group of the watcher, which the command inherits. */
typedef struct watched_group {
    char name[NAME_MOST];
    int version;
    int events;         /* descriptor: oom_kill */
    int hits[2];        /* descriptors: how often it was at its limit, and at that with swap */
    int64_t kills_then; /* at the beginning; -1: unknown */
    int64_t hits_then;
} watched_group_t;

/* A limit as "limits" of the beginning lists it. */
typedef struct limit_source {
    char text[256];
    int64_t bytes; /* at the beginning; INT64_MAX: not limited then */
} limit_source_t;

typedef struct written {
    double at;
    int64_t used, rss, group, kills, hits;
} written_t;

struct watch {
    watch_params_t params;
    char path[PATH_MAX - 32];
    int directory; /* open */
    char marks_path[PATH_MAX];
    int marks;           /* descriptor of the marks */
    int64_t marks_taken; /* bytes of it that were read */
    char phase[MARK_MOST + 56];
    int64_t began; /* clock; 0: not yet */
    int64_t ticks;
    plim_meter_t *meter;
    plim__headroom_t headroom;
    int num_groups;
    watched_group_t groups[PLIM__HEADROOM_GROUPS];
    int num_sources;
    limit_source_t sources[SOURCES_MAX];
    int source_of[PLIM__HEADROOM_GROUPS]; /* in `sources` */
    int memory_source, host_source;
    int64_t host_kills_then;
    watch_tree_t tree;
    watch_tree_totals_t totals; /* of the last tick */
    plim_sample_t sample;
    int64_t used, line;
    int source;         /* of the line; -1: none */
    written_t last;     /* the last tick that was written */
    watch_end_t result; /* the nearest tick so far */
    watch_record_t record;
};

static plim_status_t wrote(watch_t *watch, bool success)
{
    if (success)
        return PLIM_OK;
    return plim__fail_errno(watch->record.error, "%s/" TIMELINE, watch->path);
}

/* ---- opening ---- */

/* Opens a file of the directory, which must be an ordinary one of this user with one name. */
static plim_status_t open_own(const watch_t *watch, const char *name, int flags, int *file_out)
{
    struct stat about;
    const int file =
        openat(watch->directory, name, flags | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (file < 0)
        return plim__fail_errno(errno, "%s/%s", watch->path, name);
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode) || about.st_nlink != 1 ||
        plim__own_foreign(watch->directory, &about) != NULL) {
        (void)close(file);
        return plim__fail(PLIM_ERR_USAGE,
                          "%s/%s is not an ordinary file of yours with one name; name another "
                          "directory",
                          watch->path, name);
    }
    *file_out = file;
    return PLIM_OK;
}

static plim_status_t check_directory(const watch_t *watch)
{
    static const char *const foreign[] = {"run.json", "dataset.json"};
    struct stat about;
    for (int i = 0; i < 2; i++)
        if (fstatat(watch->directory, foreign[i], &about, AT_SYMLINK_NOFOLLOW) == 0)
            return plim__fail(PLIM_ERR_USAGE, "%s holds a %s; name another directory", watch->path,
                              i == 0 ? "training run" : "dataset");
    return PLIM_OK;
}

/* Makes the directory, locks it by its timeline, and empties the marks. */
static plim_status_t open_directory(watch_t *watch)
{
    if (mkdir(watch->path, 0777) != 0 && errno != EEXIST)
        return plim__fail_errno(errno, "%s", watch->path);
    PLIM_TRY(plim__own_directory(watch->path, &watch->directory));
    PLIM_TRY(check_directory(watch));
    PLIM_TRY(open_own(watch, TIMELINE, O_RDWR | O_APPEND, &watch->record.file));
    /* Where the file system has no locks, nothing keeps a second watch out. */
    if (flock(watch->record.file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return plim__fail(PLIM_ERR_USAGE, "another watch is writing to %s; name another directory",
                          watch->path);
    char last = '\n';
    const off_t size = lseek(watch->record.file, 0, SEEK_END);
    if (size > 0)
        (void)pread(watch->record.file, &last, 1, size - 1);
    watch->record.torn = last != '\n';
    PLIM_TRY(open_own(watch, MARKS, O_RDWR, &watch->marks));
    if (ftruncate(watch->marks, 0) != 0)
        return plim__fail_errno(errno, "%s/" MARKS, watch->path);
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/" MARKS, watch->path);
    if (realpath(path, watch->marks_path) == NULL)
        return plim__fail_errno(errno, "%s", path);
    return PLIM_OK;
}

static void count_group(const watched_group_t *group, int64_t *kills_out, int64_t *hits_out)
{
    char text[512] = "";
    *kills_out = *hits_out = -1;
    if (group->events >= 0 && pread(group->events, text, sizeof text - 1, 0) > 0) {
        (void)plim__kernel_field(text, "oom_kill", kills_out);
        if (group->version == 2)
            (void)plim__kernel_field(text, "max", hits_out);
    }
    for (int i = 0; i < 2; i++) {
        int64_t hits;
        memset(text, 0, sizeof text);
        if (group->hits[i] >= 0 && pread(group->hits[i], text, sizeof text - 1, 0) > 0 &&
            plim__kernel_number(text, &hits))
            *hits_out = plim__max_i64(*hits_out, 0) + hits;
    }
}

/* Adds a limit and returns its number. */
__attribute__((format(printf, 3, 4))) static int add_source(watch_t *watch, int64_t bytes,
                                                            const char *format, ...)
{
    limit_source_t *source = &watch->sources[watch->num_sources];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(source->text, sizeof source->text, format, arguments);
    va_end(arguments);
    source->bytes = bytes;
    return watch->num_sources++;
}

static void open_groups(watch_t *watch, const char *root)
{
    plim__cgroup_t group;
    group.root = root;
    group.version = 0;
    while (watch->num_groups < PLIM__HEADROOM_GROUPS && plim__cgroup_next(&group)) {
        const size_t length = strlen(group.path);
        watched_group_t *watched = &watch->groups[watch->num_groups];
        (void)snprintf(watched->name, sizeof watched->name, "%s",
                       group.path + (length < NAME_MOST ? 0 : length - NAME_MOST + 1));
        watched->version = group.version;
        watched->events =
            plim__cgroup_open(&group, group.version == 1 ? "memory.oom_control" : "memory.events");
        watched->hits[0] = watched->hits[1] = -1;
        if (group.version == 1) {
            watched->hits[0] = plim__cgroup_open(&group, "memory.failcnt");
            watched->hits[1] = plim__cgroup_open(&group, "memory.memsw.failcnt");
        }
        count_group(watched, &watched->kills_then, &watched->hits_then);
        const char *file;
        const int64_t limit = plim__cgroup_lowest_limit(&group, &file);
        watch->source_of[watch->num_groups++] =
            add_source(watch, limit, "cgroup v%d %s %s", group.version, watched->name, file);
    }
}

static int64_t host_number(const char *path, const char *key)
{
    char text[16384];
    int64_t value;
    return plim__kernel_read("", path, text, sizeof text) > 0 &&
                   plim__kernel_field(text, key, &value)
               ? value
               : -1;
}

static void open_sources(watch_t *watch)
{
    open_groups(watch, "");
    if (watch->params.memory > 0)
        watch->memory_source = add_source(watch, watch->params.memory, "--memory");
    const int64_t kib = host_number("/proc/meminfo", "MemTotal");
    watch->host_source =
        add_source(watch, kib >= 0 ? kib << 10 : INT64_MAX, "host MemTotal (/proc/meminfo)");
    watch->host_kills_then = host_number("/proc/vmstat", "oom_kill");
    plim__headroom_open("", &watch->headroom);
}

plim_status_t watch_open(const plim_job_t *job, const watch_params_t *params, watch_t **watch_out)
{
    watch_t *watch = calloc(1, sizeof *watch);
    if (watch == NULL)
        return plim__fail_errno(ENOMEM, "the watch");
    watch->params = *params;
    watch->directory = watch->marks = watch->record.file = -1;
    watch->source = watch->memory_source = -1;
    watch->tree.processes_file = watch->tree.load_file = -1;
    plim_status_t status = PLIM_OK;
    if ((size_t)snprintf(watch->path, sizeof watch->path, "%s", params->directory) >=
        sizeof watch->path)
        status = plim__fail(PLIM_ERR_USAGE, "the path %.200s... is too long", watch->path);
    if (status == PLIM_OK)
        status = cli_pass_failure(plim_meter_open(job, &watch->meter));
    if (status == PLIM_OK)
        status = open_directory(watch);
    if (status != PLIM_OK) {
        watch_close(watch);
        return status;
    }
    open_sources(watch);
    *watch_out = watch;
    return PLIM_OK;
}

void watch_close(watch_t *watch)
{
    if (watch == NULL)
        return;
    if (watch->directory >= 0)
        (void)close(watch->directory);
    if (watch->marks >= 0)
        (void)close(watch->marks);
    if (watch->record.file >= 0)
        (void)close(watch->record.file);
    for (int i = 0; i < watch->num_groups; i++) {
        if (watch->groups[i].events >= 0)
            (void)close(watch->groups[i].events);
        for (int k = 0; k < 2; k++)
            if (watch->groups[i].hits[k] >= 0)
                (void)close(watch->groups[i].hits[k]);
    }
    watch_tree_close(&watch->tree);
    plim__headroom_close(&watch->headroom);
    plim_meter_close(watch->meter);
    free(watch);
}

const char *watch_marks(const watch_t *watch)
{
    return watch->marks_path;
}

/* ---- beginning ---- */

/* Names of the environment that explain a job's limits. */
static const char *const recorded_variables[] = {
    "SLURM_JOB_ID",        "SLURM_STEP_ID",       "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID",
    "SLURM_RESTART_COUNT", "SLURM_MEM_PER_NODE",  "SLURM_MEM_PER_CPU",  "SLURM_MEM_PER_GPU",
    "SLURM_CPUS_ON_NODE",  "SLURM_CPUS_PER_TASK",
};

static void append_environment(watch_record_t *record)
{
    plim__json_open(&record->json, "environment", '{');
    for (size_t i = 0; i < sizeof recorded_variables / sizeof recorded_variables[0]; i++) {
        const char *value = getenv(recorded_variables[i]);
        if (value != NULL)
            plim__json_put_printable(&record->json, recorded_variables[i], value, MARK_MOST);
    }
    plim__json_close(&record->json, '}');
}

static void append_resource_limit(watch_record_t *record, const char *key,
                                  const struct rlimit *limit)
{
    if (limit->rlim_cur != RLIM_INFINITY && limit->rlim_cur < (rlim_t)INT64_MAX)
        watch_record_number(record, key, (int64_t)limit->rlim_cur);
}

static void append_time(watch_record_t *record)
{
    const double now = plim__clock_seconds(CLOCK_REALTIME);
    const time_t second = (time_t)now;
    struct tm parts;
    char text[32] = "";
    if (gmtime_r(&second, &parts) != NULL)
        (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    plim__json_put_printable(&record->json, "time", text, sizeof text);
    watch_record_real(record, "time_s", 3, now);
}

static void append_machine(watch_t *watch)
{
    watch_record_t *record = &watch->record;
    struct utsname system;
    struct statvfs shared;
    struct rlimit limit;
    char directory[PATH_MAX];
    if (uname(&system) == 0) {
        plim__json_put_printable(&record->json, "host", system.nodename, MARK_MOST);
        plim__json_put_printable(&record->json, "kernel", system.release, MARK_MOST);
    }
    if (getcwd(directory, sizeof directory) != NULL)
        plim__json_put_printable(&record->json, "directory", directory, sizeof directory);
    if (watch->num_groups > 0) {
        plim__json_put_printable(&record->json, "group", watch->groups[0].name, NAME_MOST);
        watch_record_number(record, "group_version", watch->groups[0].version);
    }
    watch_record_number(record, "host_bytes", watch->sources[watch->host_source].bytes);
    if (statvfs("/dev/shm", &shared) == 0)
        watch_record_number(record, "shm_bytes", (int64_t)(shared.f_blocks * shared.f_frsize));
    if (getrlimit(RLIMIT_AS, &limit) == 0)
        append_resource_limit(record, "rlimit_as_bytes", &limit);
    if (getrlimit(RLIMIT_DATA, &limit) == 0)
        append_resource_limit(record, "rlimit_data_bytes", &limit);
}

static void append_limits(watch_t *watch)
{
    plim__json_open(&watch->record.json, "limits", '[');
    for (int i = 0; i < watch->num_sources; i++) {
        plim__json_open(&watch->record.json, NULL, '{');
        plim__json_put_printable(&watch->record.json, "source", watch->sources[i].text, 256);
        watch_record_number(&watch->record, "bytes", watch->sources[i].bytes);
        plim__json_close(&watch->record.json, '}');
    }
    plim__json_close(&watch->record.json, ']');
}

plim_status_t watch_begin(watch_t *watch, pid_t pid, char *const *words)
{
    watch_record_t *record = &watch->record;
    watch->began = plim__clock_ns();
    watch_tree_open(&watch->tree, pid, watch->params.ignored);
    watch_record_begin(record, "begin");
    watch_record_number(record, "format", 1);
    plim__json_put_printable(&record->json, "version", PLIM_VERSION, 32);
    append_time(record);
    watch_record_number(record, "pid", pid);
    watch_record_number(record, "watcher_pid", getpid());
    watch_record_real(record, "interval_s", 3, watch->params.interval);
    append_limits(watch);
    append_machine(watch);
    append_environment(record);
    plim__json_open(&record->json, "command", '[');
    for (; *words != NULL; words++)
        plim__json_put_printable(&record->json, NULL, *words, PATH_MAX);
    plim__json_close(&record->json, ']');
    return wrote(watch, watch_record_write(record));
}

/* ---- ticks ---- */

/* Records the lines that the command has appended to its marks, whole ones only; `all`: the last
 * one too. */
static void take_marks(watch_t *watch, double at, bool all)
{
    char text[4096];
    ssize_t length;
    struct stat about;
    if (fstat(watch->marks, &about) == 0 && about.st_size < watch->marks_taken)
        watch->marks_taken = 0; /* written with > instead of >> */
    while ((length = pread(watch->marks, text, sizeof text - 1, watch->marks_taken)) > 0) {
        text[length] = '\0';
        const char *newline = memchr(text, '\n', (size_t)length);
        size_t line = newline != NULL ? (size_t)(newline - text) : (size_t)length;
        if (newline == NULL && length < (ssize_t)sizeof text - 1 && !all)
            return;
        watch->marks_taken += (int64_t)line + (newline != NULL);
        const size_t used = strnlen(text, line);
        if (used == sizeof USES_DATASET - 1 && memcmp(text, USES_DATASET, used) == 0) {
            watch_record_begin(&watch->record, "uses");
            watch_record_real(&watch->record, "at_s", 3, at);
            plim__json_put_printable(&watch->record.json, "what", "dataset", MARK_MOST);
            (void)watch_record_write(&watch->record);
            continue;
        }
        (void)snprintf(watch->phase, sizeof watch->phase, "%.*s", (int)used, text);
        if (used == 0)
            continue;
        watch_record_begin(&watch->record, "mark");
        watch_record_real(&watch->record, "at_s", 3, at);
        plim__json_put_printable(&watch->record.json, "text", watch->phase, MARK_MOST);
        (void)watch_record_write(&watch->record);
    }
}

/* Finds the limit with the least memory left. */
static void find_line(watch_t *watch)
{
    plim__headroom_bound_t bound;
    plim__headroom_read_all(&watch->headroom, &bound);
    watch->used = bound.limit == INT64_MAX ? -1 : bound.others;
    watch->line = bound.limit == INT64_MAX ? -1 : bound.limit;
    watch->source = bound.limit == INT64_MAX ? -1
                    : bound.group >= 0       ? watch->source_of[bound.group]
                                             : watch->host_source;
    if (watch->params.memory > 0 && watch->params.memory - watch->totals.held < bound.bytes) {
        watch->used = watch->totals.held;
        watch->line = watch->params.memory;
        watch->source = watch->memory_source;
    }
}

static bool is_worth_writing(const watch_t *watch, double at)
{
    const written_t *last = &watch->last;
    return watch->ticks == 1 || at - last->at >= LINE_SECONDS - watch->params.interval / 2 ||
           watch_record_differs(watch->used, last->used) ||
           watch_record_differs(watch->totals.rss, last->rss) ||
           watch_record_differs(watch->sample.group_bytes, last->group) ||
           watch->sample.group_kills != last->kills ||
           watch->sample.group_limit_hits != last->hits || watch_tree_moved(&watch->tree);
}

static void append_group(watch_record_t *record, const plim_sample_t *sample)
{
    watch_record_number(record, "group_bytes", sample->group_bytes);
    watch_record_number(record, "group_peak_bytes", sample->group_peak_bytes);
    watch_record_number(record, "group_anonymous_bytes", sample->group_anonymous_bytes);
    watch_record_number(record, "group_cache_bytes", sample->group_cache_bytes);
    watch_record_number(record, "group_shared_bytes", sample->group_shared_bytes);
    watch_record_number(record, "group_dirty_bytes", sample->group_dirty_bytes);
    watch_record_number(record, "group_kernel_bytes", sample->group_kernel_bytes);
    watch_record_number(record, "group_limit_hits", sample->group_limit_hits);
    watch_record_number(record, "group_kills", sample->group_kills);
    watch_record_number(record, "group_faults", sample->group_faults);
    watch_record_number(record, "group_major_faults", sample->group_major_faults);
    watch_record_number(record, "group_stall_us", sample->group_stall_us);
}

static void append_tree(watch_record_t *record, watch_tree_t *tree,
                        const watch_tree_totals_t *totals)
{
    watch_record_number(record, "num_processes", tree->count);
    watch_record_number(record, "rss_bytes", totals->rss);
    watch_record_number(record, "anonymous_bytes", totals->anonymous);
    watch_record_number(record, "file_bytes", totals->file);
    watch_record_number(record, "shared_bytes", totals->shared);
    watch_record_number(record, "swap_bytes", totals->swap);
    watch_record_number(record, "held_bytes", totals->held);
    watch_record_number(record, "faults", totals->faults);
    watch_record_number(record, "major_faults", totals->major_faults);
    watch_record_number(record, "read_bytes", totals->read);
    watch_record_number(record, "written_bytes", totals->written);
    watch_record_real(record, "cpu_s", 2, totals->cpu);
    watch_tree_list(tree, record);
}

static plim_status_t write_tick(watch_t *watch, double at)
{
    watch_record_t *record = &watch->record;
    watch_record_begin(record, "tick");
    watch_record_real(record, "at_s", 3, at);
    watch_record_number(record, "line", watch->source);
    watch_record_number(record, "used_bytes", watch->used);
    watch_record_number(record, "line_bytes", watch->line);
    append_group(record, &watch->sample);
    append_tree(record, &watch->tree, &watch->totals);
    watch->last = (written_t){.at = at,
                              .used = watch->used,
                              .rss = watch->totals.rss,
                              .group = watch->sample.group_bytes,
                              .kills = watch->sample.group_kills,
                              .hits = watch->sample.group_limit_hits};
    return wrote(watch, watch_record_write(record));
}

/* Keeps the tick that comes nearest to its limit, and the highest use. */
static void keep_nearest(watch_t *watch, double at)
{
    watch_end_t *result = &watch->result;
    /* A spike cannot have exceeded the peak that the group has counted. */
    int64_t spike = watch->totals.spike;
    if (watch->sample.group_peak_bytes >= 0 && watch->sample.group_bytes >= 0)
        spike = plim__min_i64(
            spike, plim__max_i64(watch->sample.group_peak_bytes - watch->sample.group_bytes, 0));
    result->peak = plim__max_i64(result->peak, watch->totals.held + spike);
    if (watch->used < 0 || (result->line > 0 && (double)watch->used * (double)result->line <=
                                                    (double)result->used * (double)watch->line))
        return;
    result->used = watch->used;
    result->line = watch->line;
    result->at = at;
    result->host = watch->source == watch->host_source;
    (void)snprintf(result->source, sizeof result->source, "%s",
                   watch->source >= 0 ? watch->sources[watch->source].text : "");
    (void)snprintf(result->phase, sizeof result->phase, "%s", watch->phase);
}

static void read_all(watch_t *watch)
{
    watch->ticks++;
    watch->sample = (plim_sample_t)PLIM_SAMPLE_INIT;
    (void)plim_meter_read(watch->meter, &watch->sample);
    const watch_tree_totals_t before = watch->totals;
    watch_tree_totals_t *totals = &watch->totals;
    watch_tree_read(&watch->tree, plim__clock_ns(), totals);
    /* A process's counters are missing between its end and its parent's wait. */
    totals->faults = plim__max_i64(totals->faults, before.faults);
    totals->major_faults = plim__max_i64(totals->major_faults, before.major_faults);
    totals->read = plim__max_i64(totals->read, before.read);
    totals->written = plim__max_i64(totals->written, before.written);
    totals->cpu = totals->cpu > before.cpu ? totals->cpu : before.cpu;
    find_line(watch);
}

plim_status_t watch_tick(watch_t *watch, watch_state_t *state_out)
{
    plim_status_t status = PLIM_OK;
    const double at = plim__clock_seconds_since(watch->began);
    read_all(watch);
    take_marks(watch, at, false); /* after memory: a rise never comes before its mark */
    keep_nearest(watch, at);
    if (is_worth_writing(watch, at))
        status = write_tick(watch, at);
    *state_out = (watch_state_t){
        .seconds = at,
        .used = watch->used,
        .line = watch->line,
        .source = watch->source >= 0 ? watch->sources[watch->source].text : "",
        .processes = watch->tree.count,
        .rss = watch->totals.rss,
        .held = watch->totals.held,
        .group = watch->sample.group_bytes,
        .cache = watch->sample.group_cache_bytes,
        .peak = watch->sample.group_peak_bytes,
        .kills = watch->sample.group_kills,
        .phase = watch->phase,
        .host = watch->source == watch->host_source,
    };
    return status;
}

plim__json_writer_t *watch_event_begin(watch_t *watch, const char *kind)
{
    watch_record_begin(&watch->record, kind);
    watch_record_real(&watch->record, "at_s", 3, plim__clock_seconds_since(watch->began));
    return &watch->record.json;
}

plim_status_t watch_event_end(watch_t *watch)
{
    return wrote(watch, watch_record_write(&watch->record));
}

void watch_waited(watch_t *watch, const struct rusage *usage)
{
    watch_tree_waited(&watch->tree, usage);
}

/* ---- the end ---- */

static void append_groups(watch_t *watch)
{
    watch_record_t *record = &watch->record;
    watch_end_t *result = &watch->result;
    plim__json_open(&record->json, "groups", '[');
    for (int i = 0; i < watch->num_groups; i++) {
        const watched_group_t *group = &watch->groups[i];
        const int64_t limit = watch->sources[watch->source_of[i]].bytes;
        int64_t kills, hits;
        count_group(group, &kills, &hits);
        kills = kills >= 0 && group->kills_then >= 0 ? kills - group->kills_then : -1;
        hits = hits >= 0 && group->hits_then >= 0 ? hits - group->hits_then : -1;
        if (i == 0 || (group->version == 2 && watch->groups[i - 1].version == 1))
            result->kills = plim__max_i64(result->kills, kills);
        if (hits > 0 && limit != INT64_MAX && result->limit_group[0] == '\0') {
            (void)snprintf(result->limit_group, sizeof result->limit_group, "%s", group->name);
            result->limit_bytes = limit;
        }
        plim__json_open(&record->json, NULL, '{');
        plim__json_put_printable(&record->json, "path", group->name, NAME_MOST);
        watch_record_number(record, "version", group->version);
        watch_record_number(record, "kills", kills);
        watch_record_number(record, "limit_hits", hits);
        watch_record_number(record, "limit_bytes", limit);
        plim__json_close(&record->json, '}');
    }
    plim__json_close(&record->json, ']');
    const int64_t host_kills = host_number("/proc/vmstat", "oom_kill");
    result->host_kills =
        host_kills >= 0 && watch->host_kills_then >= 0 ? host_kills - watch->host_kills_then : -1;
    watch_record_number(record, "host_kills", result->host_kills);
}

static void append_status(watch_record_t *record, int status)
{
    if (WIFEXITED(status)) {
        watch_record_number(record, "exit_code", WEXITSTATUS(status));
        return;
    }
    watch_record_number(record, "exit_code", 128 + WTERMSIG(status));
    plim__json_put_printable(&record->json, "signal", cli_signal_name(WTERMSIG(status)), 16);
    if (WCOREDUMP(status))
        plim__json_put_bool(&record->json, "core", true);
}

static void append_peaks(watch_t *watch, const struct rusage *usage)
{
    watch_record_t *record = &watch->record;
    const watch_end_t *result = &watch->result;
    if (result->line > 0) {
        watch_record_number(record, "peak_used_bytes", result->used);
        watch_record_number(record, "peak_line_bytes", result->line);
        plim__json_put_printable(&record->json, "peak_line_source", result->source,
                                 sizeof result->source);
        watch_record_real(record, "peak_at_s", 3, result->at);
    }
    watch_record_number(record, "peak_bytes", result->peak);
    watch_record_number(record, "group_peak_bytes", watch->sample.group_peak_bytes);
    watch_record_number(record, "max_rss_bytes", (int64_t)usage->ru_maxrss << 10);
    if (watch->tree.largest.pid > 0) {
        plim__json_open(&record->json, "largest_process", '{');
        watch_record_number(record, "pid", watch->tree.largest.pid);
        plim__json_put_printable(&record->json, "name", watch->tree.largest.name, 64);
        watch_record_number(record, "peak_bytes", watch->tree.largest.peak);
        plim__json_close(&record->json, '}');
    }
    watch_record_number(record, "num_processes_max", watch->tree.most);
}

static void append_own(watch_t *watch)
{
    watch_record_real(&watch->record, "watcher_cpu_s", 4,
                      plim__clock_seconds(CLOCK_PROCESS_CPUTIME_ID));
    watch_record_number(&watch->record, "watcher_peak_bytes", watch->sample.rss_peak_bytes);
    watch_record_number(&watch->record, "ticks", watch->ticks);
}

plim_status_t watch_end(watch_t *watch, int status, const struct rusage *usage,
                        watch_end_t *end_out)
{
    watch_record_t *record = &watch->record;
    watch_end_t *result = &watch->result;
    const double at = plim__clock_seconds_since(watch->began);
    take_marks(watch, at, true);
    watch_tree_waited(&watch->tree, usage);
    read_all(watch);
    keep_nearest(watch, at);
    /* What the kernel counted of a process that lived or grew between two ticks. */
    result->peak = plim__max_i64(result->peak, (int64_t)usage->ru_maxrss << 10);
    result->seconds = at;
    result->left = watch->tree.count;
    (void)write_tick(watch, at);
    watch_record_begin(record, "end");
    watch_record_real(record, "at_s", 3, at);
    append_time(record);
    append_status(record, status);
    watch_record_number(record, "left_running", result->left);
    append_peaks(watch, usage);
    watch_record_real(record, "cpu_s", 2, watch->totals.cpu);
    watch_record_number(record, "faults", watch->totals.faults);
    watch_record_number(record, "major_faults", watch->totals.major_faults);
    append_groups(watch);
    append_own(watch);
    const bool success = watch_record_write(record);
    if (success)
        (void)unlinkat(watch->directory, MARKS, 0); /* its lines are in the timeline */
    *end_out = *result;
    return wrote(watch, success);
}
