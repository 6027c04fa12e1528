/* getdents64 on a buffer of our own instead of opendir: nothing is allocated, nothing is counted
 * wrongly. */
#include "io/remove_tree.h"

#include "base/fail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define LEVELS_MAX 8 /* we make two at most */

static plim_status_t empty(int fd, const char *path, const char *keep, int level);

static plim_status_t remove_entry(int fd, const char *path, const char *name, int level)
{
    if (unlinkat(fd, name, 0) == 0 || errno == ENOENT)
        return PLIM_OK;
    if (errno != EISDIR && errno != EPERM)
        return plim__fail_errno(errno, "cannot remove %s/%s", path, name);
    int below = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below < 0)
        return plim__fail_errno(errno, "cannot remove %s/%s", path, name);
    plim_status_t status = empty(below, path, NULL, level + 1);
    (void)close(below);
    if (status == PLIM_OK && unlinkat(fd, name, AT_REMOVEDIR) != 0)
        status = plim__fail_errno(errno, "cannot remove %s/%s", path, name);
    return status;
}

/* One pass over the directory; *found_out says whether there was something to remove. */
static plim_status_t pass(int fd, const char *path, const char *keep, int level, bool *found_out)
{
    _Alignas(struct dirent64) char entries[2048];
    *found_out = false;
    if (lseek(fd, 0, SEEK_SET) < 0)
        return plim__fail_errno(errno, "cannot list %s", path);
    for (;;) {
        ssize_t size = getdents64(fd, entries, sizeof entries);
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
            PLIM_TRY(remove_entry(fd, path, name, level));
        }
    }
}

/* Removing while listing may hide entries on some file systems, so it goes on until a pass finds
 * nothing. */
static plim_status_t empty(int fd, const char *path, const char *keep, int level)
{
    bool found = true;
    if (level == LEVELS_MAX)
        return plim__fail(PLIM_ERR_IO,
                          "%s holds directories %d deep, which are not ours; remove it", path,
                          LEVELS_MAX);
    while (found)
        PLIM_TRY(pass(fd, path, keep, level, &found));
    return PLIM_OK;
}

plim_status_t plim__remove_inside(int fd, const char *path, const char *keep)
{
    return empty(fd, path, keep, 0);
}
