/* getdents64 on a buffer of our own instead of opendir: nothing is allocated, nothing is counted
 * wrongly. */
#include "io/remove_tree.h"

#include "base/fail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEVELS_MAX 8 /* we make two at most */

/* What is done with an entry of a directory, and what it is told. */
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
    return plim__fail(PLIM_ERR_USAGE,
                      "%s holds '%s', so it is not what an interrupted command left, and it is not "
                      "emptied; move it away or choose another name",
                      path, name);
}

/* One pass over the directory; *found_out says whether there was something. */
static plim_status_t pass(const visit_t *visit, int fd, const char *path, const char *keep,
                          bool *found_out)
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
            PLIM_TRY(visit->entry(visit, fd, path, name));
        }
    }
}

/* Removing while listing may hide entries on some file systems, so it goes on until a pass finds
 * nothing. */
static plim_status_t empty(int fd, const char *path, const char *keep, int level)
{
    const visit_t visit = {.entry = remove_entry, .level = level};
    bool found = true;
    if (level == LEVELS_MAX)
        return plim__fail(PLIM_ERR_IO,
                          "%s holds directories %d deep, which are not ours; remove it", path,
                          LEVELS_MAX);
    while (found)
        PLIM_TRY(pass(&visit, fd, path, keep, &found));
    return PLIM_OK;
}

plim_status_t plim__remove_inside(int fd, const char *path, const char *keep)
{
    return empty(fd, path, keep, 0);
}

plim_status_t plim__look_inside(int fd, const char *path, bool (*ours)(const char *name))
{
    const visit_t visit = {.entry = judge_entry, .ours = ours};
    bool found;
    return pass(&visit, fd, path, NULL, &found);
}
