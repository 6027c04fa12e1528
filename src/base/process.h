/*
 * Objects belong to the process that made them. Their arenas are empty in a forked child (they read
 * as zeros), so an object keeps its owner's id in its first bytes, and a child finds another one.
 */
#ifndef PLIM_BASE_PROCESS_H
#define PLIM_BASE_PROCESS_H

#include <plimsoll/status.h>
#include <stdbool.h>
#include <sys/types.h>

bool plim__process_is(pid_t owner);

/* PLIM_ERR_USAGE in a forked child; the first check of a public call on an object. */
plim_status_t plim__process_check(pid_t owner);

#endif
