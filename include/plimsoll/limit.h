/* The limits on this job's memory and threads, and the source of each. */
#ifndef PLIMSOLL_LIMIT_H
#define PLIMSOLL_LIMIT_H

#include <plimsoll/job.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Parses a size ("4G", "1.5G", "300M", "65536"; powers of 1024) into bytes. PLIM_ERR_USAGE for
 * other text. Any thread; allocates nothing.
 */
PLIM_API plim_status_t plim_size_parse(const char *text, int64_t *bytes_out);

/* Formats a size ("2 GiB", "300 MiB"); returns text_out. Any thread. */
PLIM_API const char *plim_size_text(int64_t bytes, char text_out[24]);

/* One limit that was found. This struct never grows. */
typedef struct plim_limit {
    char source[256]; /* "cgroup v1 /slurm/uid_0/job_7 memory.limit_in_bytes", "`memory`", … */
    int64_t value;    /* bytes, or threads */
} plim_limit_t;

#define PLIM_LIMITS_MAX 64

typedef struct plim_limits {
    size_t size;
    int num_memory; /* memory limits in the order found; at least one */
    plim_limit_t memory[PLIM_LIMITS_MAX];
    int line;        /* index of the smallest memory limit: the line */
    int num_threads; /* limits on threads; at least one */
    plim_limit_t threads[PLIM_LIMITS_MAX];
    int threads_line;    /* index of the smallest of them */
    int local_ranks;     /* processes of this job on this node; shared limits are divided by it */
    bool login_node;     /* this looks like a cluster's login node, where no work should run */
    char login_why[256]; /* the reason */
} plim_limits_t;

#define PLIM_LIMITS_INIT                                                                           \
    {                                                                                              \
        .size = sizeof(plim_limits_t)                                                              \
    }

typedef struct plim_limit_options {
    size_t size;
    int64_t memory;     /* the caller's own; 0: none */
    int threads;        /* the caller's own; 0: none */
    const char *root;   /* NULL: this machine; else a recorded proc/ and sys/ (for tests) */
    char **environment; /* NULL: this process's; else "NAME=value" strings (for tests) */
    int local_ranks;    /* processes of this job on this node; 0: by the launcher's variables */
    int cpu_ranks;      /* those that may run on the same CPUs as this one; 0: this one alone */
} plim_limit_options_t;

#define PLIM_LIMIT_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(plim_limit_options_t), 0, 0, NULL, NULL, 0, 0                                       \
    }

/*
 * Finds every limit on this process's memory and threads. Memory: options; every control group from
 * this process's up to the last visible one (v1, v2, hybrid; memory.max, memory.high; a container
 * shows only some groups, and v1 also reports the smallest hidden limit); RLIMIT_AS and
 * RLIMIT_DATA, less what is mapped and unused; SLURM_MEM_PER_NODE, SLURM_MEM_PER_CPU,
 * SLURM_MEM_PER_GPU; the host's available memory (MemAvailable). Threads: options, affinity,
 * cpu.max (v2) or cpu.cfs_quota_us (v1), SLURM_CPUS_PER_TASK, SLURM_CPUS_ON_NODE. A limit that all
 * ranks of this node share is divided by their number; affinity by that of the ranks that share
 * these CPUs, unless options say how many threads there are. `options` may be NULL. PLIM_ERR_USAGE
 * for options out of range; unreadable limits are skipped. Any thread, as long as no thread changes
 * the environment. Allocates nothing; uses about 100 KiB of stack.
 */
PLIM_API plim_status_t plim_limits_discover(const plim_limit_options_t *options,
                                            plim_limits_t *limits_out);

#ifdef __cplusplus
}
#endif
#endif
