#include "io/own.h"

#include "base/clock.h"
#include "base/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINKS_MAX 8
#define ATTEMPTS 16

/* For file systems without O_TMPFILE: a named file, unlinked at once. */
static int open_unlinked(int directory)
{
    char name[64];
    int fd = -1;
    for (int attempt = 0; fd < 0 && attempt < ATTEMPTS; attempt++) {
        (void)snprintf(name, sizeof name, ".plimsoll-%lx-%llx", (long)getpid(),
                       (unsigned long long)plim__clock_ns());
        fd = openat(directory, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST)
            return -1;
    }
    if (fd >= 0)
        (void)unlinkat(directory, name, 0);
    return fd;
}

int plim__own_nameless(int directory, const char *path)
{
    const int fd = openat(directory, path, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT))
        return fd;
    const int parent = openat(directory, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0)
        return -1;
    const int named = open_unlinked(parent), error = errno;
    (void)close(parent);
    errno = error;
    return named;
}

/* Whether files that this process makes in the directory get this owner. */
static bool is_owner_of_new(int directory, uid_t owner)
{
    struct stat about;
    const int fd = plim__own_nameless(directory, ".");
    const bool same = fd >= 0 && fstat(fd, &about) == 0 && about.st_uid == owner;
    if (fd >= 0)
        (void)close(fd);
    return same;
}

const char *plim__own_foreign(int directory, const struct stat *about)
{
    if (about->st_uid == geteuid() || about->st_uid == 0 ||
        is_owner_of_new(directory, about->st_uid))
        return NULL;
    return "belongs to another user";
}

const char *plim__own_distrust(int directory, const struct stat *about)
{
    const char *reason = plim__own_foreign(directory, about);
    if (reason == NULL && (about->st_mode & (S_IWGRP | S_IWOTH)) != 0)
        reason = "can be written by others";
    return reason;
}

/* Replaces the path of a link by its target. */
static bool follow(int link, char path[PATH_MAX])
{
    char target[PATH_MAX], joined[2 * PATH_MAX];
    const ssize_t length = readlinkat(link, "", target, sizeof target - 1);
    if (length <= 0)
        return false;
    target[length] = '\0';
    const char *slash = strrchr(path, '/');
    const int parent = target[0] == '/' || slash == NULL ? 0 : (int)(slash - path) + 1;
    if (snprintf(joined, sizeof joined, "%.*s%s", parent, path, target) >= PATH_MAX)
        return false;
    memcpy(path, joined, PATH_MAX);
    return true;
}

/* Opens the directory that `fd`, opened with O_PATH, refers to. For a link it replaces `at` by the
 * target and sets *fd_out to -1. */
static plim_status_t open_as(int fd, const char *path, char at[PATH_MAX], int *fd_out)
{
    struct stat about;
    *fd_out = -1;
    if (fstat(fd, &about) != 0)
        return plim__fail_errno(errno, "cannot stat %s", path);
    const bool link = S_ISLNK(about.st_mode);
    if (!link && !S_ISDIR(about.st_mode))
        return plim__fail(PLIM_ERR_USAGE, "%s is not a directory; choose another name", path);
    if (plim__own_foreign(fd, &about) != NULL)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s%s belongs to another user (uid %ld), who could change what is in it; "
                          "choose a directory of your own",
                          path, link ? ", a link," : "", (long)about.st_uid);
    if (link)
        return follow(fd, at) ? PLIM_OK
                              : plim__fail(PLIM_ERR_USAGE, "%s: cannot follow the link", path);
    *fd_out = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *fd_out >= 0 ? PLIM_OK : plim__fail_errno(errno, "cannot open the directory %s", path);
}

plim_status_t plim__own_directory(const char *path, int *fd_out)
{
    char at[PATH_MAX];
    int opened = -1;
    if (snprintf(at, sizeof at, "%s", path) >= PATH_MAX)
        return plim__fail(PLIM_ERR_USAGE, "%.100s…: the path is too long", path);
    for (int links = 0; opened < 0; links++) {
        /* With a slash behind it, a link would be followed unseen. */
        for (size_t end = strlen(at); end > 1 && at[end - 1] == '/'; end--)
            at[end - 1] = '\0';
        if (links > LINKS_MAX)
            return plim__fail(PLIM_ERR_USAGE, "%s: too many symbolic links", path);
        const int fd = open(at, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            return plim__fail_errno(errno, "cannot open the directory %s", path);
        const plim_status_t status = open_as(fd, path, at, &opened);
        (void)close(fd);
        PLIM_TRY(status);
    }
    *fd_out = opened;
    return PLIM_OK;
}
