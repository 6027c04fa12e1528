/* Files that are written whole. */
#include "io/commit.h"

#include "base/fail.h"
#include "io/place.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

plim_status_t plim__sync_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return plim__fail_errno(errno, "cannot open the directory %s to sync it", path);
    plim_status_t status = plim__place_sync(fd, path);
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
    return plim__place_sync(fd, path);
}

static plim_status_t write_partial(const plim__place_t *place, const char *partial,
                                   const void *from, size_t size)
{
    PLIM_TRY(plim__place_clear(place, partial));
    int fd = openat(place->fd, partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return plim__fail_errno(errno, "cannot create %s", place->partial);
    plim_status_t status = write_whole(fd, place->partial, from, size);
    if (close(fd) != 0 && status == PLIM_OK)
        status = plim__fail_errno(errno, "cannot close %s", place->partial);
    if (status != PLIM_OK)
        (void)unlinkat(place->fd, partial, 0);
    return status;
}

plim_status_t plim__commit_file(int directory, const char *path, const void *from, size_t size,
                                bool fresh)
{
    plim__place_t place;
    PLIM_TRY(plim__place_open(directory, path, &place));
    const char *partial = plim__file_name(place.partial);
    plim_status_t status = write_partial(&place, partial, from, size);
    if (status == PLIM_OK)
        status = plim__place_name(&place, partial, fresh);
    plim__place_close(&place);
    return status;
}
