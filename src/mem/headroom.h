/*
 * The reserve for libraries and the kernel, and the headroom: what limits and other processes leave
 * to this one. It may shrink after the plan was made, because a limit was lowered or others in the
 * same control groups have grown. The governor keeps the kernel's files open, so that a reading
 * costs some dozens of microseconds.
 */
#ifndef PLIM_MEM_HEADROOM_H
#define PLIM_MEM_HEADROOM_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Bytes and threads of the nominal process. Where a result must not depend on a measurement,
 * batches are cut and cached rows chosen for it. The command line's process with oneDNN loaded
 * holds less (about 15 MiB).
 */
#define PLIM__NOMINAL_PROCESS ((int64_t)24 << 20)
#define PLIM__NOMINAL_THREADS 4

/*
 * The reserve under a line: 3 % of it, at least 32 MiB and 1 MiB for each thread, at most 2 GiB
 * unless the threads alone need more. Without a line (PLIM_LINE_NONE) it is the minimum.
 */
int64_t plim__footprint_reserve(int64_t line_bytes, int threads);

/* The lowest line that holds `bytes` and its own reserve. */
int64_t plim__footprint_minimum(int64_t bytes, int threads);

/*
 * Bytes by which other processes keep this one from reaching the line: for each control group above
 * it, the limit less the unreclaimable memory of others, as far as that is below the line. 0 when
 * the line is above a limit: then the job is planned for another machine. `root` as for
 * plim__kernel_read.
 */
int64_t plim__footprint_neighbours(const char *root, int64_t line_bytes);

#define PLIM__HEADROOM_GROUPS 16 /* looked at: the process's own and the nearest above it */

typedef struct plim__headroom_group {
    int version;    /* 1 or 2 */
    bool lowest;    /* the process's own, or the nearest visible one */
    int limits[2];  /* descriptors of plim__cgroup_memory_file's; -1: there is none */
    int statistics; /* memory.stat */
} plim__headroom_group_t;

typedef struct plim__headroom {
    const char *root; /* borrowed; as in mem/cgroup.h */
    int num_groups;
    plim__headroom_group_t groups[PLIM__HEADROOM_GROUPS];
    int status;  /* /proc/self/status */
    int host;    /* /proc/meminfo */
    bool failed; /* a file could not be read any more: the next reading opens all again */
} plim__headroom_t;

/* The tightest bound, and the memory of the process. */
typedef struct plim__headroom_bound {
    int64_t bytes;    /* that this process may hold; INT64_MAX: nothing limits it */
    int64_t limit;    /* the limit that it follows from … */
    int group;        /* … which group has it, in the order of plim__cgroup_next; -1: the host */
    int64_t others;   /* unreclaimable bytes that others hold under it */
    const char *file; /* the limit's name; NULL for what the host has left */
    int64_t fixed;    /* what this process holds (VmRSS) less what it can drop */
} plim__headroom_bound_t;

/* Opens the files that exist; a missing one limits nothing. Allocates nothing. */
void plim__headroom_open(const char *root, plim__headroom_t *headroom_out);
void plim__headroom_close(plim__headroom_t *headroom); /* a zeroed one is harmless */

/*
 * Reads how much this process may hold now. `droppable`: bytes in memory that it can give back,
 * which the kernel counts as available on the host.
 */
void plim__headroom_read(plim__headroom_t *headroom, int64_t droppable,
                         plim__headroom_bound_t *bound_out);

/*
 * The same for anonymous memory alone, for a caller that knows how much more it needs: `bytes` is
 * the anonymous memory that this process may hold, `fixed` what it holds and cannot drop.
 * *files_out is its resident mapped files, code included, which the kernel may drop and read again.
 */
void plim__headroom_read_anonymous(plim__headroom_t *headroom, int64_t droppable,
                                   plim__headroom_bound_t *bound_out, int64_t *files_out);

/*
 * The same for all processes together: `bytes` are left under the tightest limit, and the processes
 * hold `others` under it.
 */
void plim__headroom_read_all(plim__headroom_t *headroom, plim__headroom_bound_t *bound_out);

/* How many of `droppable` bytes under MADV_FREE the kernel has not taken yet. Takes some
 * milliseconds. */
int64_t plim__headroom_left(const plim__headroom_t *headroom, int64_t droppable);

/*
 * Bytes that this process can still touch: the minimum of limit less usage over its visible control
 * groups, and of the host's available memory. Half of a group's clean page cache counts as free:
 * the kernel reclaims it, but part of it is in use. INT64_MAX when nothing limits it. Allocates
 * nothing.
 */
int64_t plim__headroom(const char *root);

#endif
