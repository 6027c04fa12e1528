/* A real memory cgroup for a test, v1 or v2, where this user may make one. */
#ifndef PLIM_TESTS_CGROUP_H
#define PLIM_TESTS_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct test_cgroup {
    int version;
    char path[512]; /* carries the limit */
    char leaf[600]; /* below it: where processes go */
} test_cgroup_t;

/*
 * Makes a group with a limit (INT64_MAX: none) and one below it without. False, with the reason
 * printed, where that is not possible.
 */
bool test_cgroup_make(int64_t limit_bytes, test_cgroup_t *group_out);

/* Moves the calling process into the group. Quiet, so that a child may call it. */
bool test_cgroup_enter(const test_cgroup_t *group);

/* The most the group has held, page cache and kernel memory included; how often it met its limit;
 * how many of it were killed. -1: the kernel does not say. */
int64_t test_cgroup_peak(const test_cgroup_t *group);
int64_t test_cgroup_hits(const test_cgroup_t *group);
int64_t test_cgroup_kills(const test_cgroup_t *group);

/* Removes it, once its last process is gone. */
void test_cgroup_remove(const test_cgroup_t *group);

/* Skips where no group with that limit can be made; else `work` in a child must return 0. It enters
 * the group itself. */
void test_cgroup_run(int64_t limit_bytes,
                     int (*work)(const test_cgroup_t *group, int64_t limit_bytes));

#endif
