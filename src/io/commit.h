/*
 * Atomic files and directories: one appears under its name complete and durable, or not at all.
 *
 *     directory:  mkdir .NAME.partial (0700, locked) → files, each fsynced → fsync .NAME.partial
 *                 → rename to NAME (refused when NAME exists) → fsync the parent
 *
 * `directory` in these functions is the open directory of `path` (io/own.h), so that only the last
 * component of `path` is used; with AT_FDCWD they open it. A file of others under a temporary name
 * is neither used nor removed: PLIM_ERR_USAGE.
 */
#ifndef PLIM_IO_COMMIT_H
#define PLIM_IO_COMMIT_H

#include "io/file.h"

#include <limits.h>
#include <plimsoll/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Writes the file `path`: .NAME.partial, fsync, rename, fsync the directory. Replaces an existing
 * file; with `fresh`, PLIM_ERR_USAGE when it exists. */
plim_status_t plim__commit_file(int directory, const char *path, const void *from, size_t size,
                                bool fresh);

/*
 * Names a nameless file (PLIM__FILE_TEMPORARY, in the same directory) `path`, replacing an existing
 * file: fsync, link as .NAME.partial-PID, rename, fsync the directory. Until then a kill leaves
 * nothing behind. PLIM_ERR_IO, also where the file system cannot link such a file.
 */
plim_status_t plim__commit_nameless(plim__file_t *file, int directory, const char *path);

/*
 * A file being written. plim__draft_commit gives it its name, replacing an existing file. Until
 * then it is nameless if the file system can link such a file later (which is tried first);
 * otherwise it is .NAME.partial, which a kill leaves behind and the next draft of that name
 * removes. Its permissions are those of its directory without the umask and without execution. The
 * struct must not be moved while the draft is open.
 */
typedef struct plim__draft {
    plim__file_t file;      /* to write to */
    int directory;          /* of its names */
    bool opened;            /* the draft opened the directory */
    char path[PATH_MAX];    /* its final name */
    char partial[PATH_MAX]; /* its present name; empty when nameless */
    mode_t permissions;
} plim__draft_t;

/*
 * Opens a draft of at most `bytes`. Where the file system has fallocate they are reserved at once,
 * so that writing cannot fail for lack of space. PLIM_ERR_SPACE when there is too little, or ulimit
 * -f forbids so large a file; PLIM_ERR_IO; PLIM_ERR_USAGE for an impossible name. Call
 * plim__draft_close in the end, also after an error.
 */
plim_status_t plim__draft_open(int directory, const char *path, bool direct, int64_t bytes,
                               plim__draft_t *draft_out);

/* Truncates it to `size` bytes; fsync, rename, fsync the directory. PLIM_ERR_IO; the old file then
 * remains. */
plim_status_t plim__draft_commit(plim__draft_t *draft, int64_t size);

/* Discards a draft that was not committed. */
void plim__draft_close(plim__draft_t *draft);

/* fsync of a directory: makes its entries durable. */
plim_status_t plim__sync_directory(const char *path);

typedef struct plim__staging {
    char target[PATH_MAX];
    char path[PATH_MAX]; /* .NAME.partial, beside the target, for messages */
    int directory;       /* write files here; locked with flock */
    int parent;          /* the directory of both names */
    int lock;            /* .lock in it, locked too; -1 if the file system has no locks */
    mode_t permissions;  /* of the directory when it gets its name */
} plim__staging_t;

/*
 * Begins a directory, which is new and for this user alone. One that a killed run left is removed:
 * it has a .lock, or is empty. PLIM_ERR_USAGE when another process uses it, when it is another
 * user's, when it has other entries than .npy and .json files, or when `target` exists;
 * PLIM_ERR_IO. Trailing slashes of `target` are ignored; the directory that contains it must exist.
 */
plim_status_t plim__staging_begin(const char *target, plim__staging_t *staging_out);

/* The same; sets *taken_out if another process is writing `target` or has already written it. */
plim_status_t plim__staging_try(const char *target, plim__staging_t *staging_out, bool *taken_out);

/* Syncs the directory, gives it its permissions and renames it to `target`. The files in it must be
 * synced already. */
plim_status_t plim__staging_commit(plim__staging_t *staging);

/* Removes everything; keeps this thread's error message. Harmless after commit, and when zeroed. */
void plim__staging_abandon(plim__staging_t *staging);

#endif
