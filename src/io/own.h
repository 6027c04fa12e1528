/*
 * Working safely in directories that others may write to: /tmp, a scratch disk, a project's
 * directory.
 *
 * A path that we create is new (mkdir, O_EXCL), and a path that we continue must be ours. A
 * directory is opened once, its owner is checked through the descriptor, and the work is done
 * relative to the descriptor, so that nothing that others put in its place is used or changed. This
 * holds for root too. Only sources, such as a dataset to read, may belong to anyone.
 */
#ifndef PLIM_IO_OWN_H
#define PLIM_IO_OWN_H

#include <plimsoll/status.h>
#include <sys/stat.h>

/* Opens a new file without a name for reading and writing in the directory `path`, relative to an
 * open one; -1 with errno. */
int plim__own_nameless(int directory, const char *path);

/*
 * Why a file, directory or link may not be what this user put there: it belongs to another user.
 * NULL if it belongs to this user or root. `directory` is the open directory that it is, or is in;
 * some file systems (NFS that maps users, CIFS, FUSE) give all files another owner than the process
 * has, and then the owner of a new file there counts.
 */
const char *plim__own_foreign(int directory, const struct stat *about);

/* Like plim__own_foreign; also says so if others can write to it. */
const char *plim__own_distrust(int directory, const struct stat *about);

/*
 * Opens the directory `path`, which must be this user's or root's; so must a link in its place.
 * PLIM_ERR_USAGE names it and its owner; PLIM_ERR_IO.
 */
plim_status_t plim__own_directory(const char *path, int *fd_out);

#endif
