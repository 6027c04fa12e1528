/* How much memory and how many threads this job really has, and who says so. */
#ifndef PLIMSOLL_LIMIT_H
#define PLIMSOLL_LIMIT_H

#include <plimsoll/ledger.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Reads a size as people write it ("4G", "1.5G", "300M", "65536"; powers of 1024) into bytes.
 * PLIM_ERR_USAGE when it is none.
 */
PLIM_API plim_status_t plim_size_parse(const char *text, int64_t *bytes_out);

/* Writes a size as people read it ("2 GiB", "300 MiB"); returns text_out. */
PLIM_API const char *plim_size_text(int64_t bytes, char text_out[24]);

/* One limit that was found. */
typedef struct plim_limit {
    char source[256]; /* where: "cgroup v1 /slurm/uid_0/job_7 memory.limit_in_bytes", "--memory", …
                       */
    int64_t value;    /* bytes, or threads */
} plim_limit_t;

#define PLIM_LIMITS_MAX 64

typedef struct plim_limits {
    int num_memory; /* every memory limit found, in the order found; at least one */
    plim_limit_t memory[PLIM_LIMITS_MAX];
    int line;        /* index of the smallest of them: the line */
    int num_threads; /* every limit on threads found; at least one */
    plim_limit_t threads[PLIM_LIMITS_MAX];
    int threads_line;    /* index of the smallest of them */
    bool login_node;     /* looks like a cluster's login node: the work belongs into a job */
    char login_why[256]; /* and why it looks so */
} plim_limits_t;

typedef struct plim_limit_options {
    int64_t memory; /* --memory, 0 when not given */
    int threads;    /* --threads, 0 when not given */
    const char
        *root; /* NULL: this machine; else a directory with a recorded proc/ and sys/ (tests) */
    char **environment; /* NULL: this process's; else "NAME=value" strings (tests) */
} plim_limit_options_t;

/*
 * Finds every limit on this process's memory and threads. Memory: options, every cgroup from this
 * process's to the root (v1, v2, hybrid; memory.max, memory.high, and inside a container's
 * namespace), RLIMIT_AS and RLIMIT_DATA, SLURM_MEM_PER_NODE and SLURM_MEM_PER_CPU, what the host
 * has available (MemAvailable), shared among local ranks. Threads: options, affinity, cpu.max (v2)
 * or cpu.cfs_quota_us (v1), SLURM_CPUS_PER_TASK. PLIM_ERR_USAGE for a wish that makes no sense;
 * what cannot be read is left out. Allocates nothing.
 */
PLIM_API plim_status_t plim_limits_discover(const plim_limit_options_t *options,
                                            plim_limits_t *limits_out);

#ifdef __cplusplus
}
#endif
#endif
