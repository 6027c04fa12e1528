/*
 * How much this process may hold now: its line may have shrunk since the plan was made, because a
 * limit was lowered or because others in the same control groups have grown. The files are kept
 * open, so that a look costs some dozens of microseconds.
 */
#ifndef PLIM_MEM_ROOM_H
#define PLIM_MEM_ROOM_H

#include <stdbool.h>
#include <stdint.h>

#define PLIM__ROOM_GROUPS 16 /* looked at: the process's own and the nearest above it */

typedef struct plim__room_group {
    int version;    /* 1 or 2 */
    bool lowest;    /* the process's own, as far as it is in sight */
    int limits[2];  /* descriptors of plim__cgroup_memory_file's; -1: there is none */
    int statistics; /* memory.stat */
} plim__room_group_t;

typedef struct plim__room {
    const char *root; /* borrowed; as in mem/cgroup.h */
    int num_groups;
    plim__room_group_t groups[PLIM__ROOM_GROUPS];
    int status;  /* /proc/self/status */
    int host;    /* /proc/meminfo */
    bool failed; /* a file could be read no longer: all are opened again */
} plim__room_t;

/* What leaves least. */
typedef struct plim__room_sight {
    int64_t bytes;    /* that this process may hold; INT64_MAX: nothing limits it */
    int64_t limit;    /* the limit that it follows from … */
    int64_t others;   /* … and what others hold under it and will not give back */
    const char *file; /* the limit's name; NULL for what the host has left */
} plim__room_sight_t;

/* Opens what there is; a room without a single file is one that nothing limits. No allocation. */
void plim__room_open(const char *root, plim__room_t *room_out);
void plim__room_close(plim__room_t *room); /* a zeroed one is harmless */

/*
 * Looks. `kept_bytes` is what this process cannot give back: of all else it holds the kernel says
 * itself that the host has it available.
 */
void plim__room_look(plim__room_t *room, int64_t kept_bytes, plim__room_sight_t *sight_out);

#endif
