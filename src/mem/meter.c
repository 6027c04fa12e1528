/*
 * The kernel's files are opened once and read again from their start: a reading costs a few system
 * calls, no path is looked up and nothing is allocated.
 */
#include "mem/meter.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/params.h"
#include "base/process.h"
#include "mem/arena.h"
#include "mem/cgroup.h"

#include <string.h>
#include <unistd.h>

enum { STATUS, USAGE, PEAK, STAT, EVENTS, HITS, SWAP_HITS, PRESSURE, KERNEL, NUM_FILES };

#define TEXT_BYTES ((size_t)8192)

struct plim_meter {
    pid_t process;
    plim_job_t job; /* retained */
    plim__arena_t arena;
    int version;          /* of the group; 0: none */
    int files[NUM_FILES]; /* -1: not there */
    char *text;           /* TEXT_BYTES, for the file being read */
};

/* The names of the group's files, from USAGE on, in v1 and v2. */
static const char *const names[2][NUM_FILES] = {
    {NULL, "memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.stat",
     "memory.oom_control", "memory.failcnt", "memory.memsw.failcnt", "memory.pressure",
     "memory.kmem.usage_in_bytes"},
    {NULL, "memory.current", "memory.peak", "memory.stat", "memory.events", NULL, NULL,
     "memory.pressure", NULL}};

/* This process's group where memory is accounted; false in the machine's root group. */
static bool find_group(const char *root, plim__cgroup_t *group_out)
{
    char text[4];
    int64_t bytes;
    for (int version = 1; version <= 2; version++)
        if (plim__cgroup_find(root, version, "memory", group_out) &&
            plim__cgroup_number(group_out, names[version - 1][USAGE], &bytes))
            /* Only the root of a v1 hierarchy has this file; that of v2 has no usage. */
            return plim__cgroup_read(group_out, "cgroup.sane_behavior", text, sizeof text) < 0;
    return false;
}

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim_meter_t *meter = draft;
    meter->text = plim__arena_carve(arena, TEXT_BYTES, 1, 1);
}

plim_status_t plim__meter_open_below(const plim_job_t *job, const char *root,
                                     plim_meter_t **meter_out)
{
    plim_meter_t draft = {.process = getpid(), .job = *job}, *meter;
    plim__cgroup_t group;
    PLIM_ENTER(job);
    PLIM_TRY(plim__object_create(job->ledger, "meter", lay_out, &draft, sizeof draft, &draft.arena,
                                 &meter));
    plim_job_retain(job);
    for (int i = 0; i < NUM_FILES; i++)
        meter->files[i] = -1;
    meter->files[STATUS] = plim__kernel_open(root, "/proc/self/status");
    if (find_group(root, &group)) {
        meter->version = group.version;
        for (int i = USAGE; i < NUM_FILES; i++)
            if (names[group.version - 1][i] != NULL)
                meter->files[i] = plim__cgroup_open(&group, names[group.version - 1][i]);
        /* Where v1 accounts memory, pressure is still measured in the unified hierarchy. */
        if (meter->files[PRESSURE] < 0 && plim__cgroup_find(root, 2, "memory", &group))
            meter->files[PRESSURE] = plim__cgroup_open(&group, names[1][PRESSURE]);
    }
    *meter_out = meter;
    return PLIM_OK;
}

PLIM_API plim_status_t plim_meter_open(const plim_job_t *job, plim_meter_t **meter_out)
{
    return plim__meter_open_below(job, "", meter_out);
}

PLIM_API void plim_meter_close(plim_meter_t *meter)
{
    if (meter == NULL || !plim__process_is(meter->process))
        return;
    const plim_job_t job = meter->job;
    for (int i = 0; i < NUM_FILES; i++)
        if (meter->files[i] >= 0)
            (void)close(meter->files[i]);
    plim__arena_destroy(&meter->arena);
    plim_job_release(&job);
}

/* The file's text, "" when there is none. */
static const char *read_file(plim_meter_t *meter, int file)
{
    ssize_t length = 0;
    if (meter->files[file] >= 0)
        length = pread(meter->files[file], meter->text, TEXT_BYTES - 1, 0);
    meter->text[length > 0 ? length : 0] = '\0';
    return meter->text;
}

static int64_t number(const char *text)
{
    int64_t value;
    return plim__kernel_number(text, &value) ? value : -1;
}

static int64_t field(const char *text, const char *key)
{
    int64_t value;
    return plim__kernel_field(text, key, &value) ? value : -1;
}

static int64_t field_kib(const char *text, const char *key)
{
    int64_t value = field(text, key);
    return value >= 0 && value < INT64_MAX >> 10 ? value << 10 : -1;
}

PLIM_API plim_status_t plim_meter_read(plim_meter_t *meter, plim_sample_t *sample_out)
{
    plim_sample_t sample = PLIM_SAMPLE_INIT;
    PLIM_TRY(plim__process_check(meter->process));
    PLIM_TRY(plim__output_check(sample_out, "plim_sample_t"));
    const bool v1 = meter->version == 1;
    const char *text = read_file(meter, STATUS);
    sample.rss_bytes = field_kib(text, "VmRSS");
    sample.rss_peak_bytes = field_kib(text, "VmHWM");
    sample.anonymous_bytes = field_kib(text, "RssAnon");
    sample.file_bytes = field_kib(text, "RssFile");
    sample.shared_bytes = field_kib(text, "RssShmem");

    sample.group_bytes = number(read_file(meter, USAGE));
    sample.group_peak_bytes = number(read_file(meter, PEAK));
    text = read_file(meter, STAT);
    sample.group_cache_bytes = field(text, v1 ? "total_cache" : "file");
    sample.group_dirty_bytes = field(text, v1 ? "total_dirty" : "file_dirty");
    sample.group_anonymous_bytes = field(text, v1 ? "total_rss" : "anon");
    sample.group_shared_bytes = field(text, v1 ? "total_shmem" : "shmem");
    sample.group_kernel_bytes = field(text, "kernel"); /* v2, from Linux 5.18 on */
    sample.group_faults = field(text, v1 ? "total_pgfault" : "pgfault");
    sample.group_major_faults = field(text, v1 ? "total_pgmajfault" : "pgmajfault");
    if (v1)
        sample.group_kernel_bytes = number(read_file(meter, KERNEL));
    text = read_file(meter, EVENTS);
    sample.group_kills = field(text, "oom_kill");
    sample.group_limit_hits = v1 ? number(read_file(meter, HITS)) : field(text, "max");
    if (v1) /* where swap is limited too */
        sample.group_limit_hits += plim__max_i64(number(read_file(meter, SWAP_HITS)), 0);

    /* "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234" */
    const char *total = strstr(read_file(meter, PRESSURE), "total=");
    sample.group_stall_us = total != NULL ? number(total + strlen("total=")) : -1;
    plim__output_give(sample_out, &sample, sizeof sample);
    return PLIM_OK;
}
