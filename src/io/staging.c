/*
 * Staging directories. The writer holds the lock of one until the rename is done. A process that
 * gets the lock knows that the writer is dead, and may remove the files there.
 */
#include "base/fail.h"
#include "io/commit.h"
#include "io/own.h"
#include "io/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOCK_FILE ".lock"
#define ATTEMPTS 16

/* Lists directories with getdents64 into a buffer on the stack: opendir would allocate. */
#define LEVELS_MAX 8 /* our directories have at most two */

/* What to do with each entry of a directory. */
typedef struct visit {
    plim_status_t (*entry)(const struct visit *visit, int fd, const char *path, const char *name);
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

/* Whether a file in a staging directory may be ours. NFS renames an open unlinked file to .nfsXXXX,
 * and a node that crashes leaves it. */
static bool is_staged(const char *name)
{
    static const char *const ends[] = {".npy", ".json", PLIM__PARTIAL_SUFFIX, LOCK_FILE};
    const size_t length = strlen(name);
    bool found = strncmp(name, ".plimsoll-", strlen(".plimsoll-")) == 0 ||
                 strncmp(name, ".nfs", strlen(".nfs")) == 0;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0] && !found; i++)
        found = length >= strlen(ends[i]) && strcmp(name + length - strlen(ends[i]), ends[i]) == 0;
    return found;
}

static plim_status_t judge_entry(const visit_t *visit, int fd, const char *path, const char *name)
{
    struct stat about;
    (void)visit;
    if (fstatat(fd, name, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(about.st_mode) &&
        is_staged(name))
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

/* Removes the entries of an open directory except `keep` (NULL: none), recursively; symbolic links
 * are removed, not followed. Some file systems skip entries while others are removed, so it repeats
 * until a pass finds none. */
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

/* PLIM_ERR_USAGE when an entry is not a file that a writer stages, or when no writer of a staging
 * directory locked it: it may be a dataset that somebody renamed. */
static plim_status_t look_inside(int fd, const char *path)
{
    const visit_t visit = {.entry = judge_entry};
    struct stat about;
    bool found;
    PLIM_TRY(pass(&visit, fd, path, NULL, &found));
    if (!found || fstatat(fd, LOCK_FILE, &about, AT_SYMLINK_NOFOLLOW) == 0)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_USAGE,
                      "%s has no %s, so it was not left by an interrupted command; it is not "
                      "emptied. Move it away or choose another name",
                      path, LOCK_FILE);
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
static plim_status_t lock_across_nodes(int directory, const char *path, int *fd_out,
                                       bool *taken_out)
{
    *fd_out = -1;
    int fd = openat(directory, LOCK_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
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

/* Whether the open directory has this name. */
static bool is_named(int fd, const plim__place_t *place, const char *name)
{
    struct stat ours, named;
    return fstat(fd, &ours) == 0 && fstatat(place->fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
}

/* Locks an open directory, which must be this user's. */
static plim_status_t take_open(const plim__place_t *place, int fd, bool *taken_out)
{
    struct stat about;
    if (fstat(fd, &about) != 0)
        return plim__fail_errno(errno, "cannot stat %s", place->partial);
    if (plim__own_foreign(fd, &about) != NULL)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s belongs to another user (uid %ld), who could change what is written "
                          "there; choose another name, or a directory of your own",
                          place->partial, (long)about.st_uid);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return PLIM_OK;
    if (errno == EWOULDBLOCK)
        return refuse_busy(place->partial, taken_out);
    return plim__fail_errno(errno, "cannot lock %s; choose a target on another file system",
                            place->partial);
}

/* Creates the directory or takes that of a killed run. *fd_out is -1 when it was renamed. */
static plim_status_t take_directory(const plim__place_t *place, int *fd_out, bool *made_out,
                                    bool *taken_out)
{
    const char *name = plim__file_name(place->partial);
    *fd_out = -1;
    *made_out = mkdirat(place->fd, name, 0777) == 0;
    if (!*made_out && errno != EEXIST)
        return plim__fail_errno(errno, "cannot create the directory %s", place->partial);
    int fd = openat(place->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return PLIM_OK;
    if (fd < 0)
        return plim__fail_errno(errno, "cannot open the directory %s", place->partial);
    const plim_status_t status = take_open(place, fd, taken_out);
    if (status == PLIM_OK && is_named(fd, place, name)) { /* its writer may have renamed it */
        *fd_out = fd;
        return PLIM_OK;
    }
    if (status == PLIM_OK)
        close_locked(fd);
    else
        (void)close(fd);
    return status;
}

/* Removes the directory that a killed run left; `fd` is locked, and closed here. */
static plim_status_t remove_left(const plim__place_t *place, int fd, bool *taken_out)
{
    int lock = -1;
    plim_status_t status = look_inside(fd, place->partial);
    if (status == PLIM_OK)
        status = lock_across_nodes(fd, place->partial, &lock, taken_out);
    if (status == PLIM_OK)
        status = empty(fd, place->partial, LOCK_FILE, 0);
    if (status == PLIM_OK) {
        (void)unlinkat(fd, LOCK_FILE, 0);
        (void)unlinkat(place->fd, plim__file_name(place->partial), AT_REMOVEDIR);
    }
    if (lock >= 0)
        close_locked(lock);
    close_locked(fd);
    return status;
}

/* Makes the directory; removes first what a killed run left. */
static plim_status_t make_directory(const plim__place_t *place, int *fd_out, bool *taken_out)
{
    struct stat about;
    bool made = false;
    int fd = -1;
    for (int attempt = 0; !made || fd < 0; attempt++) {
        *taken_out = fstatat(place->fd, place->name, &about, AT_SYMLINK_NOFOLLOW) == 0;
        PLIM_TRY(plim__place_refuse_existing(place));
        if (attempt == ATTEMPTS)
            return refuse_busy(place->partial, taken_out);
        PLIM_TRY(take_directory(place, &fd, &made, taken_out));
        if (fd >= 0 && !made)
            PLIM_TRY(remove_left(place, fd, taken_out));
    }
    *fd_out = fd;
    return PLIM_OK;
}

/* Keeps everybody else out of the new directory until it gets its name. */
static plim_status_t close_to_others(plim__staging_t *staging, bool *taken_out)
{
    struct stat about;
    if (fstat(staging->directory, &about) != 0)
        return plim__fail_errno(errno, "cannot stat %s", staging->path);
    /* Some network file systems decide on permissions themselves. */
    staging->permissions = about.st_mode & 07777;
    if (fchmod(staging->directory, S_IRWXU) != 0)
        staging->permissions = 0;
    PLIM_TRY(empty(staging->directory, staging->path, NULL, 0));
    return lock_across_nodes(staging->directory, staging->path, &staging->lock, taken_out);
}

plim_status_t plim__staging_try(const char *target, plim__staging_t *staging_out, bool *taken_out)
{
    plim__place_t place;
    plim__staging_t *staging = staging_out;
    *taken_out = false;
    PLIM_TRY(plim__place_open(AT_FDCWD, target, &place));
    plim_status_t status = make_directory(&place, &staging->directory, taken_out);
    if (status == PLIM_OK) {
        memcpy(staging->target, place.path, sizeof place.path);
        memcpy(staging->path, place.partial, sizeof place.partial);
        staging->parent = place.fd;
        staging->lock = -1;
        status = close_to_others(staging, taken_out);
        /* Another process may have finished the target before we got the lock. */
        if (status == PLIM_OK) {
            status = plim__place_refuse_existing(&place);
            *taken_out = status != PLIM_OK;
        }
        if (status != PLIM_OK)
            plim__staging_abandon(staging);
        return status;
    }
    plim__place_close(&place);
    return status;
}

plim_status_t plim__staging_begin(const char *target, plim__staging_t *staging_out)
{
    bool taken;
    return plim__staging_try(target, staging_out, &taken);
}

/* Removes the lock file. It is closed first: NFS would keep it under another name. */
static void unlock_file(plim__staging_t *staging)
{
    if (staging->lock >= 0)
        close_locked(staging->lock);
    staging->lock = -1;
    (void)unlinkat(staging->directory, LOCK_FILE, 0);
}

static void unlock(plim__staging_t *staging)
{
    close_locked(staging->directory);
    (void)close(staging->parent);
    staging->path[0] = '\0';
    staging->directory = staging->parent = -1;
}

plim_status_t plim__staging_commit(plim__staging_t *staging)
{
    plim__place_t place;
    PLIM_TRY(plim__place_open(staging->parent, staging->target, &place));
    if (staging->permissions != 0 && fchmod(staging->directory, staging->permissions) != 0)
        return plim__fail_errno(errno, "cannot set the permissions of %s", staging->path);
    PLIM_TRY(plim__place_sync(staging->directory, staging->path));
    PLIM_TRY(plim__place_rename(&place, plim__file_name(place.partial), true));
    if (!is_named(staging->directory, &place, place.name))
        return plim__place_exchanged(&place);
    unlock_file(staging); /* after the rename, so that no other process gets in between */
    const plim_status_t status = plim__place_sync(staging->parent, place.parent);
    unlock(staging);
    return status;
}

void plim__staging_abandon(plim__staging_t *staging)
{
    if (staging->path[0] == '\0')
        return;
    plim__failure_t failure; /* keep the error for which it was abandoned */
    plim__fail_save(&failure);
    (void)empty(staging->directory, staging->path, LOCK_FILE, 0);
    unlock_file(staging);
    (void)unlinkat(staging->parent, plim__file_name(staging->path), AT_REMOVEDIR);
    (void)plim__fail_restore(PLIM_OK, &failure);
    unlock(staging);
}
