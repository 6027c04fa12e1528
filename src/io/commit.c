/*
 * Staging directories and atomic files. The writer of a staging directory holds its lock until the
 * rename is done. A process that gets the lock knows that the writer is dead, and may remove the
 * files there.
 */
#include "io/commit.h"

#include "base/fail.h"
#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <plimsoll/limit.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PREFIX "."
#define SUFFIX ".partial"
#define LOCK_FILE ".lock"
#define ATTEMPTS 16
#define PARTIAL_MAX (PATH_MAX + 32) /* a partial path with a process id */

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

/* A path split into its directory (never empty) and its last name. */
typedef struct place {
    char parent[PATH_MAX];
    char name[NAME_MAX + 1];
    char path[PATH_MAX];    /* parent/name, without trailing slashes */
    char partial[PATH_MAX]; /* parent/.name.partial */
} place_t;

static plim_status_t place_of(const char *path, place_t *place_out)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    size_t start = length;
    while (start > 0 && path[start - 1] != '/')
        start--;
    size_t name_length = length - start;
    if (name_length == 0 || strcmp(path, ".") == 0 ||
        (path[start] == '.' && (name_length == 1 || (name_length == 2 && path[start + 1] == '.'))))
        return plim__fail(PLIM_ERR_USAGE, "'%s' cannot name a new file or directory; choose a name",
                          path);
    if (name_length + strlen(PREFIX SUFFIX) > NAME_MAX ||
        length + strlen(PREFIX SUFFIX) + 1 >= PATH_MAX)
        return plim__fail(PLIM_ERR_USAGE, "the name '%s' is too long; choose a shorter one", path);
    size_t parent_length = start > 1 ? start - 1 : start;
    (void)snprintf(place_out->parent, PATH_MAX, "%.*s", (int)parent_length, path);
    if (parent_length == 0)
        memcpy(place_out->parent, ".", sizeof ".");
    (void)snprintf(place_out->name, sizeof place_out->name, "%.*s", (int)name_length, path + start);
    (void)snprintf(place_out->path, PATH_MAX, "%.*s", (int)length, path);
    (void)snprintf(place_out->partial, PATH_MAX, "%.*s" PREFIX "%s" SUFFIX, (int)start, path,
                   place_out->name);
    return PLIM_OK;
}

static plim_status_t sync_fd(int fd, const char *path)
{
    while (fsync(fd) != 0) {
        if (errno != EINTR)
            return plim__fail_errno(errno, "cannot sync %s", path);
    }
    return PLIM_OK;
}

plim_status_t plim__sync_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return plim__fail_errno(errno, "cannot open the directory %s to sync it", path);
    plim_status_t status = sync_fd(fd, path);
    (void)close(fd);
    return status;
}

static plim_status_t write_whole(int fd, const char *path, const char *from, size_t size)
{
    while (size > 0) {
        ssize_t moved = write(fd, from, size);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0)
            return plim__fail_errno(moved < 0 ? errno : EIO, "%s: cannot write %zu bytes", path,
                                    size);
        from += moved;
        size -= (size_t)moved;
    }
    return sync_fd(fd, path);
}

/* Removes the temporary file of a killed process; anything but a regular file is not ours. */
static void remove_partial(const char *path)
{
    struct stat about;
    if (lstat(path, &about) == 0 && S_ISREG(about.st_mode))
        (void)unlink(path);
}

static plim_status_t refuse_existing(const char *path)
{
    struct stat about;
    if (lstat(path, &about) == 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s already exists; remove it first or choose another name", path);
    return errno == ENOENT ? PLIM_OK : plim__fail_errno(errno, "cannot stat %s", path);
}

/* Renames without replacing, also on file systems without RENAME_NOREPLACE. */
static plim_status_t rename_fresh(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return PLIM_OK;
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) {
        PLIM_TRY(refuse_existing(to));
        if (rename(from, to) == 0)
            return PLIM_OK;
    }
    if (errno == EEXIST || errno == ENOTEMPTY)
        return plim__fail(PLIM_ERR_USAGE, "%s already exists: another process created it meanwhile",
                          to);
    return plim__fail_errno(errno, "cannot rename %s to %s", from, to);
}

plim_status_t plim__commit_file(const char *path, const void *from, size_t size, bool fresh)
{
    place_t place;
    PLIM_TRY(place_of(path, &place));
    remove_partial(place.partial);
    int fd = open(place.partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return plim__fail_errno(errno, "cannot create %s", place.partial);
    plim_status_t status = write_whole(fd, place.partial, from, size);
    if (close(fd) != 0 && status == PLIM_OK)
        status = plim__fail_errno(errno, "cannot close %s", place.partial);
    if (status == PLIM_OK && fresh)
        status = rename_fresh(place.partial, place.path);
    else if (status == PLIM_OK && rename(place.partial, place.path) != 0)
        status = plim__fail_errno(errno, "cannot rename %s to %s", place.partial, place.path);
    if (status != PLIM_OK) {
        (void)unlink(place.partial);
        return status;
    }
    return plim__sync_directory(place.parent);
}

static plim_status_t rename_over(const char *partial, const place_t *place)
{
    if (rename(partial, place->path) != 0) {
        plim_status_t status =
            plim__fail_errno(errno, "cannot rename %s to %s", partial, place->path);
        (void)unlink(partial);
        return status;
    }
    return plim__sync_directory(place->parent);
}

/* Links a nameless file as .NAME.partial-PID. False with errno. */
static bool link_partial(int fd, const place_t *place, char partial_out[PARTIAL_MAX])
{
    char source[64];
    (void)snprintf(source, sizeof source, "/proc/self/fd/%d", fd);
    (void)snprintf(partial_out, PARTIAL_MAX, "%s-%ld", place->partial, (long)getpid());
    remove_partial(partial_out); /* left by a dead process with this id */
    return linkat(AT_FDCWD, source, AT_FDCWD, partial_out, AT_SYMLINK_FOLLOW) == 0;
}

plim_status_t plim__commit_nameless(plim__file_t *file, const char *path)
{
    place_t place;
    char partial[PARTIAL_MAX];
    PLIM_TRY(place_of(path, &place));
    PLIM_TRY(plim__file_sync(file));
    if (!link_partial(file->fd, &place, partial))
        return plim__fail_errno(errno, "cannot link a nameless file as %s", partial);
    file->temporary = false;
    return rename_over(partial, &place);
}

/* Whether a nameless file can be created in the directory and linked later. Tried on an empty file
 * first, since writing the real one may take hours. */
static bool nameless_possible(const place_t *place)
{
    char partial[PARTIAL_MAX];
    int fd = open(place->parent, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    const bool possible = link_partial(fd, place, partial);
    if (possible)
        (void)unlink(partial);
    (void)close(fd);
    return possible;
}

/* The umask of the process. umask() cannot read it without changing it for all threads. */
static mode_t own_umask(void)
{
    char text[256];
    unsigned mask = 022;
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        (void)close(fd);
    text[length > 0 ? length : 0] = '\0';
    const char *line = strstr(text, "\nUmask:");
    if (line != NULL)
        mask = (unsigned)strtoul(line + strlen("\nUmask:"), NULL, 8);
    return mask & 0777;
}

/* Checks that need no file: name, ulimit -f, free disk space. */
static plim_status_t check_draft(const char *path, const place_t *place, int64_t bytes)
{
    struct stat about;
    char need[24], have[24];
    int64_t space;
    if (path[strlen(path) - 1] == '/' || (stat(place->path, &about) == 0 && S_ISDIR(about.st_mode)))
        return plim__fail_errno(
            EISDIR, "cannot write %s: it names a directory; choose the name of a file", path);
    PLIM_TRY(plim__file_size_allowed(path, bytes));
    PLIM_TRY(plim__file_space(place->parent, &space));
    if (space < bytes)
        return plim__fail(
            PLIM_ERR_SPACE,
            "%s needs %s of disk space, but its file system has %s free; free some or "
            "write it elsewhere",
            path, plim_size_text(bytes, need), plim_size_text(space, have));
    return PLIM_OK;
}

/* Reserves disk space with fallocate. On file systems without it (NFS before 4.2, some FUSE ones)
 * only check_draft has compared the free space. */
static plim_status_t reserve_space(const plim__draft_t *draft, int64_t bytes)
{
    char need[24];
    int result;
    do {
        result = bytes > 0 ? fallocate(draft->file.fd, 0, 0, (off_t)bytes) : 0;
    } while (result != 0 && errno == EINTR);
    if (result == 0 || !plim__disk_full(errno))
        return PLIM_OK;
    (void)plim__fail_errno(errno, "%s needs %s", draft->path, plim_size_text(bytes, need));
    return PLIM_ERR_SPACE;
}

plim_status_t plim__draft_open(const char *path, bool direct, int64_t bytes,
                               plim__draft_t *draft_out)
{
    plim__draft_t *draft = draft_out;
    place_t place;
    struct stat about;
    draft->file = (plim__file_t){.fd = -1};
    draft->partial[0] = '\0';
    PLIM_TRY(place_of(path, &place));
    if (stat(place.parent, &about) != 0)
        return plim__fail_errno(errno, "%s: cannot stat its directory", place.path);
    PLIM_TRY(check_draft(path, &place, bytes));
    draft->permissions = about.st_mode & 0666 & ~own_umask();
    memcpy(draft->path, place.path, sizeof place.path);
    if (nameless_possible(&place)) {
        PLIM_TRY(plim__file_open(place.parent, PLIM__FILE_TEMPORARY, direct, &draft->file));
    } else {
        remove_partial(place.partial);
        PLIM_TRY(plim__file_open(place.partial, PLIM__FILE_CREATE, direct, &draft->file));
        memcpy(draft->partial, place.partial, sizeof place.partial);
    }
    draft->file.path = draft->path;
    return reserve_space(draft, bytes);
}

plim_status_t plim__draft_commit(plim__draft_t *draft, int64_t size)
{
    place_t place;
    if (ftruncate(draft->file.fd, (off_t)size) != 0)
        return plim__fail_errno(errno, "%s: cannot be cut to %lld bytes", draft->path,
                                (long long)size);
    /* Refused by some network file systems, which decide on permissions themselves. */
    (void)fchmod(draft->file.fd, draft->permissions);
    if (draft->partial[0] == '\0')
        return plim__commit_nameless(&draft->file, draft->path);
    PLIM_TRY(place_of(draft->path, &place));
    PLIM_TRY(plim__file_sync(&draft->file));
    draft->partial[0] = '\0';
    return rename_over(place.partial, &place);
}

void plim__draft_close(plim__draft_t *draft)
{
    if (draft->partial[0] != '\0')
        draft->file.temporary = unlink(draft->partial) == 0;
    draft->partial[0] = '\0';
    plim__file_close(&draft->file);
}

/* Lists directories with getdents64 into a buffer on the stack: opendir would allocate. */
#define LEVELS_MAX 8 /* our directories have at most two */

/* What to do with each entry of a directory. */
typedef struct visit {
    plim_status_t (*entry)(const struct visit *visit, int fd, const char *path, const char *name);
    bool (*ours)(const char *name);
    int level;
} visit_t;

static plim_status_t empty(int fd, const char *path, const char *keep, int level);

static plim_status_t remove_entry(const visit_t *visit, int fd, const char *path, const char *name)
{
    if (unlinkat(fd, name, 0) == 0 || errno == ENOENT)
        return PLIM_OK;
    if (errno != EISDIR && errno != EPERM)
        return plim__fail_errno(errno, "cannot remove %s/%s", path, name);
    int below = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below < 0)
        return plim__fail_errno(errno, "cannot remove %s/%s", path, name);
    plim_status_t status = empty(below, path, NULL, visit->level + 1);
    (void)close(below);
    if (status == PLIM_OK && unlinkat(fd, name, AT_REMOVEDIR) != 0)
        status = plim__fail_errno(errno, "cannot remove %s/%s", path, name);
    return status;
}

static plim_status_t judge_entry(const visit_t *visit, int fd, const char *path, const char *name)
{
    struct stat about;
    if (fstatat(fd, name, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(about.st_mode) &&
        visit->ours(name))
        return PLIM_OK;
    return plim__fail(
        PLIM_ERR_USAGE,
        "%s has the entry '%s', so it was not left by an interrupted command; it is not "
        "emptied. Move it away or choose another name",
        path, name);
}

/* Visits all entries of a directory once. *found_out: whether there were any. */
static plim_status_t pass(const visit_t *visit, int fd, const char *path, const char *keep,
                          bool *found_out)
{
    _Alignas(struct dirent64) char entries[2048];
    *found_out = false;
    if (lseek(fd, 0, SEEK_SET) < 0)
        return plim__fail_errno(errno, "cannot list %s", path);
    for (;;) {
        /* glibc has a function for it since 2.30; the wheel runs on 2.28. */
        ssize_t size = syscall(SYS_getdents64, fd, entries, sizeof entries);
        if (size < 0)
            return plim__fail_errno(errno, "cannot list %s", path);
        if (size == 0)
            return PLIM_OK;
        for (ssize_t at = 0; at < size;) {
            const struct dirent64 *entry = (const struct dirent64 *)(const void *)(entries + at);
            const char *name = entry->d_name;
            at += entry->d_reclen;
            if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
                (keep != NULL && strcmp(name, keep) == 0))
                continue;
            *found_out = true;
            PLIM_TRY(visit->entry(visit, fd, path, name));
        }
    }
}

/* Removes the entries of a directory, recursively. Some file systems skip entries while others are
 * removed, so it repeats until a pass finds none. */
static plim_status_t empty(int fd, const char *path, const char *keep, int level)
{
    const visit_t visit = {.entry = remove_entry, .level = level};
    bool found = true;
    if (level == LEVELS_MAX)
        return plim__fail(
            PLIM_ERR_IO,
            "%s has directories %d levels deep, which are not ours; remove it yourself", path,
            LEVELS_MAX);
    while (found)
        PLIM_TRY(pass(&visit, fd, path, keep, &found));
    return PLIM_OK;
}

/* Removes all entries of the open directory `fd` except `keep` (NULL: none). Symbolic links are
 * removed, not followed. */
static plim_status_t remove_inside(int fd, const char *path, const char *keep)
{
    return empty(fd, path, keep, 0);
}

/* PLIM_ERR_USAGE when an entry is not a regular file or `ours` refuses its name. */
static plim_status_t look_inside(int fd, const char *path, bool (*ours)(const char *name))
{
    const visit_t visit = {.entry = judge_entry, .ours = ours};
    bool found;
    return pass(&visit, fd, path, NULL, &found);
}

static plim_status_t refuse_busy(const char *path, bool *taken_out)
{
    *taken_out = true;
    return plim__fail(PLIM_ERR_USAGE,
                      "another process is writing %s; wait for it or choose another target", path);
}

/*
 * On network file systems the flock of a directory is local to a node, while that of a file is kept
 * by the server. So a file in the directory is locked too. -1 when the file system has no locks.
 */
static plim_status_t lock_across_nodes(int directory_fd, const char *path, int *fd_out,
                                       bool *taken_out)
{
    plim__file_system_t system;
    *fd_out = -1;
    PLIM_TRY(plim__file_system(path, &system));
    if (!system.network)
        return PLIM_OK;
    int fd = openat(directory_fd, LOCK_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return plim__fail_errno(errno, "cannot create %s/%s", path, LOCK_FILE);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        *fd_out = fd;
        return PLIM_OK;
    }
    int error = errno;
    (void)close(fd);
    return error == EWOULDBLOCK ? refuse_busy(path, taken_out) : PLIM_OK;
}

/* Unlocks first: a forked child may still have the file open, and would keep it locked. */
static void close_locked(int fd)
{
    (void)flock(fd, LOCK_UN);
    (void)close(fd);
}

/* Whether the locked directory still has its name. Its writer may have renamed it meanwhile. */
static bool still_there(int fd, const char *path)
{
    struct stat ours, named;
    return fstat(fd, &ours) == 0 && lstat(path, &named) == 0 && ours.st_dev == named.st_dev &&
           ours.st_ino == named.st_ino;
}

/* Creates the directory or takes over that of a killed run. *fd_out is -1 when it was renamed. */
static plim_status_t take_directory(const char *path, int *fd_out, bool *taken_out)
{
    *fd_out = -1;
    bool fresh = mkdir(path, 0777) == 0;
    if (!fresh && errno != EEXIST)
        return plim__fail_errno(errno, "cannot create the directory %s", path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return PLIM_OK;
    if (fd < 0)
        return plim__fail_errno(errno, "cannot open the directory %s", path);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int error = errno;
        (void)close(fd);
        if (error == EWOULDBLOCK)
            return refuse_busy(path, taken_out);
        return plim__fail_errno(error, "cannot lock %s; choose a target on another file system",
                                path);
    }
    if (!still_there(fd, path)) {
        close_locked(fd);
        return PLIM_OK;
    }
    *fd_out = fd;
    return PLIM_OK;
}

/* Whether a file in a staging directory may be ours. NFS renames an open unlinked file to .nfsXXXX,
 * and a node that crashes leaves it. */
static bool is_staged(const char *name)
{
    static const char *const ends[] = {".npy", ".json", SUFFIX, LOCK_FILE};
    const size_t length = strlen(name);
    bool found = strncmp(name, ".plimsoll-", strlen(".plimsoll-")) == 0 ||
                 strncmp(name, ".nfs", strlen(".nfs")) == 0;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0] && !found; i++)
        found = length >= strlen(ends[i]) && strcmp(name + length - strlen(ends[i]), ends[i]) == 0;
    return found;
}

plim_status_t plim__staging_try(const char *target, plim__staging_t *staging_out, bool *taken_out)
{
    place_t place;
    struct stat about;
    int fd = -1, file_fd = -1;
    PLIM_TRY(place_of(target, &place));
    if (stat(place.parent, &about) != 0)
        return plim__fail_errno(errno, "%s: cannot use its directory %s; create that first",
                                place.path, place.parent);
    if (!S_ISDIR(about.st_mode))
        return plim__fail(PLIM_ERR_USAGE, "%s: %s is not a directory; choose another target",
                          place.path, place.parent);
    for (int attempt = 0; fd < 0; attempt++) {
        *taken_out = lstat(place.path, &about) == 0;
        PLIM_TRY(refuse_existing(place.path));
        if (attempt == ATTEMPTS)
            return refuse_busy(place.partial, taken_out);
        PLIM_TRY(take_directory(place.partial, &fd, taken_out));
    }
    plim_status_t status = look_inside(fd, place.partial, is_staged);
    if (status == PLIM_OK)
        status = lock_across_nodes(fd, place.partial, &file_fd, taken_out);
    if (status == PLIM_OK)
        status = remove_inside(fd, place.partial, file_fd >= 0 ? LOCK_FILE : NULL);
    /* Another process may have finished the target before we got the lock. */
    if (status == PLIM_OK) {
        status = refuse_existing(place.path);
        *taken_out = status != PLIM_OK;
        if (status != PLIM_OK)
            (void)rmdir(place.partial);
    }
    if (status != PLIM_OK) {
        if (file_fd >= 0)
            close_locked(file_fd);
        close_locked(fd);
        return status;
    }
    memcpy(staging_out->target, place.path, sizeof place.path);
    memcpy(staging_out->path, place.partial, sizeof place.partial);
    staging_out->lock_fd = fd;
    staging_out->file_lock_fd = file_fd;
    return PLIM_OK;
}

plim_status_t plim__staging_begin(const char *target, plim__staging_t *staging_out)
{
    bool taken;
    return plim__staging_try(target, staging_out, &taken);
}

/* Removes the lock file. It is closed first: NFS would keep it under another name. */
static void unlock_file(plim__staging_t *staging)
{
    if (staging->file_lock_fd < 0)
        return;
    close_locked(staging->file_lock_fd);
    staging->file_lock_fd = -1;
    (void)unlinkat(staging->lock_fd, LOCK_FILE, 0);
}

static void unlock(plim__staging_t *staging)
{
    close_locked(staging->lock_fd);
    staging->path[0] = '\0';
    staging->lock_fd = -1;
}

plim_status_t plim__staging_commit(plim__staging_t *staging)
{
    place_t place;
    PLIM_TRY(place_of(staging->target, &place));
    PLIM_TRY(sync_fd(staging->lock_fd, staging->path));
    PLIM_TRY(rename_fresh(staging->path, staging->target));
    unlock_file(staging); /* after the rename, so that no other process gets in between */
    unlock(staging);
    return plim__sync_directory(place.parent);
}

void plim__staging_abandon(plim__staging_t *staging)
{
    if (staging->path[0] == '\0')
        return;
    char saved[PLIM_MESSAGE_MAX]; /* keep the error for which it was abandoned */
    plim__fail_save(saved, sizeof saved);
    (void)remove_inside(staging->lock_fd, staging->path, LOCK_FILE);
    unlock_file(staging);
    (void)rmdir(staging->path);
    (void)plim__fail_restore(PLIM_OK, saved);
    unlock(staging);
}
