/*
 * All or nothing: a file or a whole directory appears under its name complete and durable, or not
 * at all.
 *
 *     directory:  mkdir .NAME.partial (locked) → files, each fsynced → fsync .NAME.partial
 *                 → rename to NAME (refused when NAME exists) → fsync the parent
 */
#ifndef PLIM_IO_COMMIT_H
#define PLIM_IO_COMMIT_H

#include "io/file.h"

#include <limits.h>
#include <plimsoll/status.h>
#include <stddef.h>

/* Writes `path` anew: .NAME.partial, fsync, rename, fsync the directory. It replaces what is there,
 * or with `fresh` refuses to: PLIM_ERR_USAGE. */
plim_status_t plim__commit_file(const char *path, const void *from, size_t size, bool fresh);

/*
 * Gives `path` to a nameless file (PLIM__FILE_TEMPORARY, in the same directory), replacing what is
 * there: fsync, link as .NAME.partial-PID, rename, fsync the directory. Until then a kill leaves
 * nothing behind. PLIM_ERR_IO, also where the file system cannot name such a file.
 */
plim_status_t plim__commit_nameless(const plim__file_t *file, const char *path);

/*
 * A file in the making. It gets its name when it is whole and durable, and replaces what is there;
 * or never. Until then it is nameless where the file system can make such a file and name it later,
 * which is tried first; elsewhere it is .NAME.partial, which a kill leaves behind and the next
 * draft of that name removes. Its permissions are those of its directory, less the umask's and the
 * right to execute. It must not be moved while it is open.
 */
typedef struct plim__draft {
    plim__file_t file;      /* to write to */
    char path[PATH_MAX];    /* the name it will have */
    char partial[PATH_MAX]; /* the name it has meanwhile; empty when it has none */
    mode_t permissions;
} plim__draft_t;

/*
 * For at most `bytes`. They are reserved at once where the file system has fallocate: writing them
 * then cannot fail for lack of space. PLIM_ERR_SPACE when there is too little, or ulimit -f forbids
 * so large a file; PLIM_ERR_IO; PLIM_ERR_USAGE for a name that a file cannot have.
 * plim__draft_close ends it, also after an error.
 */
plim_status_t plim__draft_open(const char *path, bool direct, int64_t bytes,
                               plim__draft_t *draft_out);

/* Cuts it to `size` bytes; fsync, rename, fsync the directory. PLIM_ERR_IO; then the old file is
 * still there. */
plim_status_t plim__draft_commit(plim__draft_t *draft, int64_t size);

/* What was not committed is gone. */
void plim__draft_close(plim__draft_t *draft);

/* Makes the names in a directory durable. */
plim_status_t plim__sync_directory(const char *path);

typedef struct plim__staging {
    char target[PATH_MAX];
    char path[PATH_MAX]; /* where to write meanwhile: beside the target, on the same file system */
    int lock_fd;         /* the staging directory, flock()ed: gone with the process */
    int file_lock_fd;    /* .lock in it, on network file systems; else -1 */
} plim__staging_t;

/*
 * Begins a directory. What a killed run left under the staging name is removed; when a living
 * process holds it, it holds what no run leaves there (anything but .npy and .json files), or
 * `target` exists, PLIM_ERR_USAGE says so; PLIM_ERR_IO. Trailing slashes of
 * `target` are ignored; the directory it goes into must exist.
 */
plim_status_t plim__staging_begin(const char *target, plim__staging_t *staging_out);

/* Makes the directory durable and gives it its name; every file in it was synced by its writer. */
plim_status_t plim__staging_commit(plim__staging_t *staging);

/* Removes everything; this thread's error message stays. Harmless after commit, and when zeroed. */
void plim__staging_abandon(plim__staging_t *staging);

#endif
