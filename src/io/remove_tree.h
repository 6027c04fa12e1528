/* Emptying a directory of our own, with everything below it. */
#ifndef PLIM_IO_REMOVE_TREE_H
#define PLIM_IO_REMOVE_TREE_H

#include <plimsoll/status.h>

/*
 * Removes all that is in the open directory `fd`, whose path is `path` for messages, but for an
 * entry called `keep` (NULL: none). Symbolic links are removed, never followed. PLIM_ERR_IO.
 */
plim_status_t plim__remove_inside(int fd, const char *path, const char *keep);

#endif
