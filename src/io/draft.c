/* Files that are written while they have no name, or a temporary one. */
#include "base/fail.h"
#include "io/commit.h"
#include "io/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PARTIAL_MAX (NAME_MAX + 32) /* a partial name with a process id */

/* Links a nameless file as .NAME.partial-PID. PLIM_ERR_IO with errno where that cannot be done. */
static plim_status_t link_partial(int fd, const plim__place_t *place, char partial_out[PARTIAL_MAX])
{
    char source[64];
    (void)snprintf(source, sizeof source, "/proc/self/fd/%d", fd);
    (void)snprintf(partial_out, PARTIAL_MAX, "%s-%ld", plim__file_name(place->partial),
                   (long)getpid());
    PLIM_TRY(plim__place_clear(place, partial_out)); /* left by a dead process with this id */
    if (linkat(AT_FDCWD, source, place->fd, partial_out, AT_SYMLINK_FOLLOW) == 0)
        return PLIM_OK;
    return plim__fail_errno(errno, "cannot link a nameless file as %s/%s", place->parent,
                            partial_out);
}

static plim_status_t name_file(plim__file_t *file, const plim__place_t *place)
{
    char partial[PARTIAL_MAX];
    PLIM_TRY(plim__file_sync(file));
    PLIM_TRY(link_partial(file->fd, place, partial));
    file->temporary = false;
    return plim__place_name(place, partial, false);
}

plim_status_t plim__commit_nameless(plim__file_t *file, int directory, const char *path)
{
    plim__place_t place;
    PLIM_TRY(plim__place_open(directory, path, &place));
    const plim_status_t status = name_file(file, &place);
    plim__place_close(&place);
    return status;
}

/* Whether a nameless file can be created in the directory and linked later. Tried on an empty file
 * first, since writing the real one may take hours. */
static bool nameless_possible(const plim__place_t *place)
{
    char partial[PARTIAL_MAX];
    int fd = openat(place->fd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    const bool possible = link_partial(fd, place, partial) == PLIM_OK;
    if (possible)
        (void)unlinkat(place->fd, partial, 0);
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
static plim_status_t check_draft(const char *path, const plim__place_t *place, int64_t bytes)
{
    struct stat about;
    if (path[strlen(path) - 1] == '/' ||
        (fstatat(place->fd, place->name, &about, 0) == 0 && S_ISDIR(about.st_mode)))
        return plim__fail_errno(
            EISDIR, "cannot write %s: it names a directory; choose the name of a file", path);
    PLIM_TRY(plim__file_size_allowed(path, bytes));
    return plim__file_check_space(place->parent, bytes, path, "it needs",
                                  "free some, or write it elsewhere");
}

/* Opens the file of a draft: nameless, or else named .NAME.partial. */
static plim_status_t open_draft(plim__draft_t *draft, const plim__place_t *place, bool direct,
                                int64_t bytes)
{
    if (nameless_possible(place)) {
        PLIM_TRY(plim__file_open_in(place->fd, place->parent, PLIM__FILE_TEMPORARY, direct,
                                    &draft->file));
    } else {
        PLIM_TRY(plim__place_clear(place, plim__file_name(place->partial)));
        PLIM_TRY(
            plim__file_open_in(place->fd, place->partial, PLIM__FILE_CREATE, direct, &draft->file));
        memcpy(draft->partial, place->partial, sizeof place->partial);
    }
    draft->file.path = draft->path;
    return plim__file_reserve(&draft->file, bytes, "it needs");
}

plim_status_t plim__draft_open(int directory, const char *path, bool direct, int64_t bytes,
                               plim__draft_t *draft_out)
{
    plim__draft_t *draft = draft_out;
    plim__place_t place;
    struct stat about;
    draft->file = (plim__file_t){.fd = -1};
    draft->opened = false;
    draft->partial[0] = '\0';
    PLIM_TRY(plim__place_open(directory, path, &place));
    draft->directory = place.fd;
    draft->opened = place.opened;
    if (fstat(place.fd, &about) != 0)
        return plim__fail_errno(errno, "%s: cannot stat its directory", place.path);
    PLIM_TRY(check_draft(path, &place, bytes));
    draft->permissions = about.st_mode & 0666 & ~own_umask();
    memcpy(draft->path, place.path, sizeof place.path);
    return open_draft(draft, &place, direct, bytes);
}

plim_status_t plim__draft_commit(plim__draft_t *draft, int64_t size)
{
    plim__place_t place;
    if (ftruncate(draft->file.fd, (off_t)size) != 0)
        return plim__fail_errno(errno, "%s: cannot be cut to %lld bytes", draft->path,
                                (long long)size);
    /* Refused by some network file systems, which decide on permissions themselves. */
    (void)fchmod(draft->file.fd, draft->permissions);
    if (draft->partial[0] == '\0')
        return plim__commit_nameless(&draft->file, draft->directory, draft->path);
    PLIM_TRY(plim__place_open(draft->directory, draft->path, &place));
    PLIM_TRY(plim__file_sync(&draft->file));
    draft->partial[0] = '\0';
    return plim__place_name(&place, plim__file_name(place.partial), false);
}

void plim__draft_close(plim__draft_t *draft)
{
    if (draft->partial[0] != '\0')
        draft->file.temporary = unlinkat(draft->directory, plim__file_name(draft->partial), 0) == 0;
    draft->partial[0] = '\0';
    plim__file_close(&draft->file);
    if (draft->opened)
        (void)close(draft->directory);
    draft->opened = false;
}
