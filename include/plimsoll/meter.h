/* The meter: the kernel's figures for the memory of this process and its control group. */
#ifndef PLIMSOLL_METER_H
#define PLIMSOLL_METER_H

#include <plimsoll/job.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * One reading. -1 means that the kernel does not provide a figure: the group's figures outside of
 * any group and in the machine's root group (they would be the whole machine's), its peak in v2
 * before Linux 5.19, its stalls if pressure is not measured.
 */
typedef struct plim_sample {
    size_t size;
    int64_t rss_bytes;      /* resident: anonymous + file + shared */
    int64_t rss_peak_bytes; /* peak since the process began */
    int64_t anonymous_bytes;
    int64_t file_bytes;
    int64_t shared_bytes;
    int64_t group_bytes;       /* the group: all its processes, page cache, kernel memory */
    int64_t group_peak_bytes;  /* peak since the group was made */
    int64_t group_cache_bytes; /* page cache, including tmpfs */
    int64_t group_dirty_bytes; /* page cache that is not written back yet */
    int64_t group_limit_hits;  /* times that the group reached its limit and memory was reclaimed */
    int64_t group_kills;       /* processes of the group killed for memory */
    int64_t group_stall_us;    /* time that some process of the group waited for memory */
    int64_t group_anonymous_bytes;
    int64_t group_shared_bytes; /* tmpfs and shared memory: a part of the page cache */
    int64_t group_kernel_bytes;
    int64_t group_faults;       /* page faults since the group was made */
    int64_t group_major_faults; /* those that waited for a disk */
} plim_sample_t;

#define PLIM_SAMPLE_INIT                                                                           \
    {                                                                                              \
        .size = sizeof(plim_sample_t)                                                              \
    }

typedef struct plim_meter plim_meter_t;

/*
 * Opens the meter for this process and its current group. Retains the job. PLIM_ERR_BUDGET or
 * PLIM_ERR_NOMEM; figures that cannot be opened read as -1. Any thread. Memory: 12 KiB in the
 * account "meter"; at most 8 open files.
 */
PLIM_API plim_status_t plim_meter_open(const plim_job_t *job, plim_meter_t **meter_out);

/* Any thread, after the last read. NULL is harmless; a forked child closes nothing. */
PLIM_API void plim_meter_close(plim_meter_t *meter);

/* Reads once; allocates nothing. One thread at a time for each meter. PLIM_ERR_USAGE for an output
 * without a size, or in a forked child. */
PLIM_API plim_status_t plim_meter_read(plim_meter_t *meter, plim_sample_t *sample_out);

#ifdef __cplusplus
}
#endif
#endif
