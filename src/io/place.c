#include "io/place.h"

#include "base/fail.h"
#include "io/own.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

static plim_status_t place_of(const char *path, plim__place_t *place_out)
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
    if (name_length + strlen(PLIM__PARTIAL_PREFIX PLIM__PARTIAL_SUFFIX) > NAME_MAX ||
        length + strlen(PLIM__PARTIAL_PREFIX PLIM__PARTIAL_SUFFIX) + 1 >= PATH_MAX)
        return plim__fail(PLIM_ERR_USAGE, "the name '%s' is too long; choose a shorter one", path);
    size_t parent_length = start > 1 ? start - 1 : start;
    (void)snprintf(place_out->parent, PATH_MAX, "%.*s", (int)parent_length, path);
    if (parent_length == 0)
        memcpy(place_out->parent, ".", sizeof ".");
    (void)snprintf(place_out->name, sizeof place_out->name, "%.*s", (int)name_length, path + start);
    (void)snprintf(place_out->path, PATH_MAX, "%.*s", (int)length, path);
    (void)snprintf(place_out->partial, PATH_MAX,
                   "%.*s" PLIM__PARTIAL_PREFIX "%s" PLIM__PARTIAL_SUFFIX, (int)start, path,
                   place_out->name);
    return PLIM_OK;
}

plim_status_t plim__place_open(int directory, const char *path, plim__place_t *place_out)
{
    PLIM_TRY(place_of(path, place_out));
    place_out->opened = directory == AT_FDCWD;
    place_out->fd =
        place_out->opened ? open(place_out->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : directory;
    if (place_out->fd < 0 && errno == ENOTDIR)
        return plim__fail(PLIM_ERR_USAGE, "%s: %s is not a directory; choose another target",
                          place_out->path, place_out->parent);
    if (place_out->fd < 0)
        return plim__fail_errno(errno, "%s: cannot use its directory %s; create that first",
                                place_out->path, place_out->parent);
    return PLIM_OK;
}

void plim__place_close(const plim__place_t *place)
{
    if (place->opened)
        (void)close(place->fd);
}

plim_status_t plim__place_sync(int fd, const char *path)
{
    while (fsync(fd) != 0) {
        if (errno != EINTR)
            return plim__fail_errno(errno, "cannot sync %s", path);
    }
    return PLIM_OK;
}

plim_status_t plim__place_refuse_existing(const plim__place_t *place)
{
    struct stat about;
    if (fstatat(place->fd, place->name, &about, AT_SYMLINK_NOFOLLOW) == 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s already exists; remove it first or choose another name", place->path);
    return errno == ENOENT ? PLIM_OK : plim__fail_errno(errno, "cannot stat %s", place->path);
}

/* Renames without replacing, also on file systems without RENAME_NOREPLACE. */
static plim_status_t rename_fresh(const plim__place_t *place, const char *partial)
{
    if (renameat2(place->fd, partial, place->fd, place->name, RENAME_NOREPLACE) == 0)
        return PLIM_OK;
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) {
        PLIM_TRY(plim__place_refuse_existing(place));
        if (renameat(place->fd, partial, place->fd, place->name) == 0)
            return PLIM_OK;
    }
    if (errno == EEXIST || errno == ENOTEMPTY)
        return plim__fail(PLIM_ERR_USAGE, "%s already exists: another process created it meanwhile",
                          place->path);
    return plim__fail_errno(errno, "cannot rename %s to %s", place->partial, place->path);
}

plim_status_t plim__place_exchanged(const plim__place_t *place)
{
    return plim__fail(
        PLIM_ERR_DATA,
        "%s was replaced by someone else while it was written; choose a directory that "
        "only you can write to",
        place->path);
}

/* Renames a temporary file or directory. Where others can write to the directory, they may have
 * exchanged it. */
plim_status_t plim__place_rename(const plim__place_t *place, const char *partial, bool fresh)
{
    struct stat about;
    plim_status_t status = PLIM_OK;
    if (fresh)
        status = rename_fresh(place, partial);
    else if (renameat(place->fd, partial, place->fd, place->name) != 0)
        status = plim__fail_errno(errno, "cannot rename %s to %s", place->partial, place->path);
    PLIM_TRY(status);
    if (fstatat(place->fd, place->name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
        plim__own_foreign(place->fd, &about) != NULL)
        return plim__place_exchanged(place);
    return PLIM_OK;
}

plim_status_t plim__place_clear(const plim__place_t *place, const char *name)
{
    struct stat about;
    if (fstatat(place->fd, name, &about, AT_SYMLINK_NOFOLLOW) != 0)
        return PLIM_OK;
    const char *reason =
        S_ISREG(about.st_mode) ? plim__own_foreign(place->fd, &about) : "is not a file";
    if (reason != NULL)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s/%s %s, so it is not replaced; remove it, or choose another name or "
                          "directory",
                          place->parent, name, reason);
    (void)unlinkat(place->fd, name, 0);
    return PLIM_OK;
}

plim_status_t plim__place_name(const plim__place_t *place, const char *partial, bool fresh)
{
    const plim_status_t status = plim__place_rename(place, partial, fresh);
    if (status != PLIM_OK) {
        (void)unlinkat(place->fd, partial, 0);
        return status;
    }
    return plim__place_sync(place->fd, place->parent);
}
