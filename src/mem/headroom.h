/* What is left of memory now. */
#ifndef PLIM_MEM_HEADROOM_H
#define PLIM_MEM_HEADROOM_H

#include <stdint.h>

/*
 * How many bytes more this process could touch now: the least, over the control groups from its own
 * to the top of what it can see, of limit less usage, and what the host has available. Half of a
 * group's clean page cache counts as free: the kernel gives it up when asked, but part of it is in
 * use. `root` as in mem/cgroup.h: "" for this machine. INT64_MAX when nothing limits it. Allocates
 * nothing.
 */
int64_t plim__headroom(const char *root);

#endif
