#include "mem/footprint.h"

#include "base/check.h"
#include "base/job.h"
#include "mem/cgroup.h"
#include "mem/libraries.h"

#include <sched.h>
#include <stdatomic.h>

/* Kernel structures of a process with some dozens of open files: measured 0.6 to 1.1 MiB on Linux
 * 6.18; what a thread costs, about 30 KiB, is counted with it. */
#define KERNEL_BYTES ((int64_t)10 << 17)

/* Heap, stack and written data before the first arena, in steps: the command line's come to less
 * than one, so that what it needs is the same from run to run. */
#define OWN_STEP ((int64_t)3 << 18)

/* The kernel charges a group in batches of 64 pages for each CPU it runs on. */
#define BATCH_BYTES ((int64_t)256 << 10)
#define BATCHES_MAX 32

static int64_t batch_bytes(int64_t line_bytes)
{
    cpu_set_t cpus;
    int64_t count = BATCHES_MAX;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0)
        count = plim__min_i64(CPU_COUNT(&cpus), BATCHES_MAX);
    /* They are taken back when a limit is near: no reason to refuse work under a small line. */
    return plim__min_i64(count * BATCH_BYTES, line_bytes / 32);
}

int64_t plim__footprint_growth(int64_t line_bytes)
{
    /* Page tables: 8 bytes for each page of 4 KiB that will be touched, up to the line. */
    int64_t tables = line_bytes == PLIM_LINE_NONE ? 0 : line_bytes / 512;
    return batch_bytes(line_bytes) + tables;
}

int64_t plim__footprint_minimum(int64_t bytes)
{
    /* It grows by less than a sixteenth of the line: each round leaves so much of the error. */
    int64_t line = bytes;
    for (int i = 0; i < 16; i++)
        line = plim__add_saturating_i64(bytes, plim__footprint_growth(line));
    return plim__add_saturating_i64(line, 1);
}

/* As it was at first, unless much has come since: so one plan after another finds the same. */
static int64_t own_settled(void)
{
    static _Atomic int64_t first;
    const int64_t now = plim__kernel_own_bytes("", "RssAnon");
    int64_t own = 0;
    if (atomic_compare_exchange_strong(&first, &own, now) || now - own > OWN_STEP)
        own = now;
    return (own / OWN_STEP + 1) * OWN_STEP;
}

int64_t plim__footprint_process(int64_t line_bytes)
{
    return own_settled() + plim__libraries_bytes() + KERNEL_BYTES +
           plim__footprint_growth(line_bytes);
}

int64_t plim__footprint_kernel(int64_t line_bytes)
{
    return KERNEL_BYTES + plim__footprint_growth(line_bytes);
}

static int64_t unreclaimable(const plim__cgroup_t *group)
{
    char text[8192];
    if (plim__cgroup_read(group, "memory.stat", text, sizeof text) <= 0)
        return 0;
    return plim__cgroup_unreclaimable(group->version, text);
}

int64_t plim__footprint_neighbours(const char *root, int64_t line_bytes)
{
    int64_t most = 0;
    plim__cgroup_t group;
    if (line_bytes == PLIM_LINE_NONE)
        return 0;
    int64_t own = plim__kernel_own_bytes(root, "RssAnon");
    for (int version = 1; version <= 2; version++) {
        if (!plim__cgroup_find(root, version, "memory", &group))
            continue;
        do {
            int64_t limit = INT64_MAX, bytes;
            const char *file;
            for (int i = 0; (file = plim__cgroup_memory_file(version, i)) != NULL; i++)
                if (plim__cgroup_memory_limit(&group, file, &bytes))
                    limit = plim__min_i64(limit, bytes);
            if (line_bytes > limit)
                return 0; /* of a job that is planned for elsewhere */
            if (limit != INT64_MAX)
                most = plim__max_i64(most, unreclaimable(&group) - own - (limit - line_bytes));
        } while (plim__cgroup_up(&group));
    }
    return plim__min_i64(most, line_bytes);
}

void plim__footprint_log_code(const plim_job_t *job, int64_t least)
{
    const int64_t mebibytes = least / ((int64_t)1 << 20) + 1;
    plim__log(
        job, PLIM_LOG_WARNING,
        "memory is so short that the program's own code gives way: it is read from disk again "
        "and again, or stays above the line where no control group limits it; from about "
        "%lld MiB on there is room for it",
        (long long)mebibytes);
}
