/*
 * How much this process may hold now: its line may have shrunk since the plan was made, because a
 * limit was lowered or because others in the same control groups have grown. The files are kept
 * open, so that a look costs some dozens of microseconds.
 */
#ifndef PLIM_MEM_HEADROOM_H
#define PLIM_MEM_HEADROOM_H

#include <stdbool.h>
#include <stdint.h>

#define PLIM__HEADROOM_GROUPS 16 /* looked at: the process's own and the nearest above it */

typedef struct plim__headroom_group {
    int version;    /* 1 or 2 */
    bool lowest;    /* the process's own, as far as it is in sight */
    int limits[2];  /* descriptors of plim__cgroup_memory_file's; -1: there is none */
    int statistics; /* memory.stat */
} plim__headroom_group_t;

typedef struct plim__headroom {
    const char *root; /* borrowed; as in mem/cgroup.h */
    int num_groups;
    plim__headroom_group_t groups[PLIM__HEADROOM_GROUPS];
    int status;  /* /proc/self/status */
    int host;    /* /proc/meminfo */
    bool failed; /* a file could be read no longer: all are opened again */
} plim__headroom_t;

/* The bound that leaves least, and what the process holds. */
typedef struct plim__headroom_bound {
    int64_t bytes;    /* that this process may hold; INT64_MAX: nothing limits it */
    int64_t limit;    /* the limit that it follows from … */
    int64_t others;   /* … and what others hold under it and will not give back */
    const char *file; /* the limit's name; NULL for what the host has left */
    int64_t fixed;    /* what this process holds (VmRSS) less what it can drop */
} plim__headroom_bound_t;

/* Opens what there is; where no file is found, nothing limits the process. Allocates nothing. */
void plim__headroom_open(const char *root, plim__headroom_t *headroom_out);
void plim__headroom_close(plim__headroom_t *headroom); /* a zeroed one is harmless */

/*
 * Reads how much this process may hold now. `droppable`: bytes in memory that it can give back,
 * which the kernel counts as available on the host.
 */
void plim__headroom_read(plim__headroom_t *headroom, int64_t droppable,
                         plim__headroom_bound_t *bound_out);

/*
 * How many bytes more this process could touch now: the least, over the control groups from its own
 * to the top of what it can see, of limit less usage, and what the host has available. Half of a
 * group's clean page cache counts as free: the kernel gives it up when asked, but part of it is in
 * use. INT64_MAX when nothing limits it. Allocates nothing.
 */
int64_t plim__headroom(const char *root);

#endif
