/*
 * Where this process stands in the control groups, as far as it can see them.
 *
 * /proc/self/cgroup names the group from the hierarchy's root (or the namespace's), but the
 * mount may begin further down, as in a container:
 *
 *     /proc/self/cgroup       4:memory:/docker/4fa6/job
 *     /proc/self/mountinfo    … /docker/4fa6 /sys/fs/cgroup/memory … - cgroup cgroup rw,memory
 *     so the group is         /sys/fs/cgroup/memory/job, and its top /sys/fs/cgroup/memory
 */
#ifndef PLIM_MEM_CGROUP_H
#define PLIM_MEM_CGROUP_H

#include "mem/kernel_text.h"

typedef struct plim__cgroup {
    const char *root; /* borrowed: "" for this machine, or a recorded tree */
    int version;      /* 1 or 2 */
    char mount[PLIM__PATH_MAX];
    char path[PLIM__PATH_MAX]; /* below the mount: "/" or "/a/b", a directory that exists */
} plim__cgroup_t;

/*
 * Finds this process's group in the hierarchy of `controller` (v1) or in the unified one (v2; the
 * controller is not asked for, see which files are there). Where the group itself is out of sight,
 * the nearest one above it that is not. False when nothing of the kind is mounted.
 */
bool plim__cgroup_find(const char *root, int version, const char *controller,
                       plim__cgroup_t *group_out);

/*
 * Moves to the parent; false at the top of the mount, and in v1 if the parent does not count its
 * children's memory (memory.use_hierarchy 0, before Linux 5.11).
 */
bool plim__cgroup_up(plim__cgroup_t *group);

/*
 * The memory groups of this process, one a call: its own of v1, those above it, then those of v2.
 * The first call has a group of version 0 and the root set; false after the last group.
 */
bool plim__cgroup_next(plim__cgroup_t *group);

/* The start of one of the group's files; -1 when it cannot be read. */
int64_t plim__cgroup_read(const plim__cgroup_t *group, const char *file, char *text_out,
                          size_t size);

/* Opens one of the group's files for reading; -1 when that is not possible. */
int plim__cgroup_open(const plim__cgroup_t *group, const char *file);

/* A file that holds one number; false for anything else, "max" too. */
bool plim__cgroup_number(const plim__cgroup_t *group, const char *file, int64_t *value_out);

/*
 * The files that limit a group's memory, by number; NULL past the last. memory.high is one: past it
 * a group is slowed down until it seems to stand still.
 */
const char *plim__cgroup_memory_file(int version, int number);

/* Whether a number in one of these files limits anything. Without a limit v1 has the greatest
 * multiple of the page size, above 2^62; under a limit of 0 no process could ask. */
static inline bool plim__cgroup_is_limit(int64_t bytes)
{
    return bytes > 0 && bytes < (int64_t)1 << 62;
}

/* The limit in one of these files; false when there is none. */
bool plim__cgroup_memory_limit(const plim__cgroup_t *group, const char *file, int64_t *bytes_out);

/* The lowest limit of this very group, and its file (file_out may be NULL); without one INT64_MAX,
 * and the file that would have it. */
int64_t plim__cgroup_lowest_limit(const plim__cgroup_t *group, const char **file_out);

/* Bytes of a group, by its memory.stat, that no reclaim gives back: not the page cache, whose
 * owners may be gone. */
int64_t plim__cgroup_unreclaimable(int version, const char *statistics);

#endif
