/* Emptying a directory of our own, with everything below it. */
#ifndef PLIM_IO_REMOVE_TREE_H
#define PLIM_IO_REMOVE_TREE_H

#include <plimsoll/status.h>
#include <stdbool.h>

/*
 * Removes all that is in the open directory `fd`, whose path is `path` for messages, but for an
 * entry called `keep` (NULL: none). Symbolic links are removed, never followed. PLIM_ERR_IO.
 */
plim_status_t plim__remove_inside(int fd, const char *path, const char *keep);

/* PLIM_ERR_USAGE when something in the open directory is not a file, or has a name that `ours`
 * does not know: then it is not one that may be emptied. PLIM_ERR_IO. */
plim_status_t plim__look_inside(int fd, const char *path, bool (*ours)(const char *name));

#endif
