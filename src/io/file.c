/*
 * Opening, aligning and closing files. O_DIRECT is switched on after the open, by fcntl, so that
 * one open decides about existence and permission, and a refusal of O_DIRECT costs nothing.
 */
#include "io/file.h"

#include "base/check.h"
#include "base/fail.h"
#include "io/transfer.h"
#include "mem/arena.h"
#include "mem/size_text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Linux 6.1's, by number and place: older headers do not name them. */
#define STATX_DIOALIGN_MASK 0x2000u
#define STATX_DIO_MEM_ALIGN_AT 0x98
#define STATX_DIO_OFFSET_ALIGN_AT 0x9c

/* A file without a name where the file system cannot make one: a named file, unlinked at once. */
static int open_unlinked(const char *directory)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/.plimsoll-XXXXXX", directory) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        (void)unlink(path);
    return fd;
}

static int open_mode(const char *path, plim__file_mode_t mode)
{
    switch (mode) {
    case PLIM__FILE_READ:
        /* O_NONBLOCK: a named pipe would hold us here for ever; it is cleared below. */
        return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    case PLIM__FILE_CREATE:
        return open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    case PLIM__FILE_TEMPORARY:
        break;
    }
    int fd = open(path, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || errno == ENOENT))
        fd = open_unlinked(path);
    return fd;
}

/* What statx says: the alignment, 0 when direct I/O is refused, -1 when it does not say. */
static int64_t asked_align(int fd)
{
    struct statx answer;
    uint32_t memory, offset;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN_MASK, &answer) != 0 ||
        (answer.stx_mask & STATX_DIOALIGN_MASK) == 0)
        return -1;
    memcpy(&memory, (const char *)&answer + STATX_DIO_MEM_ALIGN_AT, sizeof memory);
    memcpy(&offset, (const char *)&answer + STATX_DIO_OFFSET_ALIGN_AT, sizeof offset);
    return memory > offset ? memory : offset;
}

/* Tries one transfer of `align` bytes at an address that is aligned to `align` and no better. */
static bool works_at(int fd, bool writable, size_t align)
{
    _Alignas(4096) char page[2 * 4096] = {0};
    char *data = page + (align < PLIM__PAGE ? align : 0);
    ssize_t moved;
    do {
        moved = writable ? pwrite(fd, data, align, 0) : pread(fd, data, align, 0);
    } while (moved < 0 && errno == EINTR);
    return moved >= 0;
}

/* A new file is tried with a write, which is then taken back: reading nothing would prove nothing.
 */
static int64_t probed_align(int fd, bool writable)
{
    int64_t align = works_at(fd, writable, 512) ? 512 : works_at(fd, writable, 4096) ? 4096 : 0;
    return writable && ftruncate(fd, 0) != 0 ? 0 : align;
}

/* Switches to direct I/O where that works; else the file stays buffered. */
static void try_direct(plim__file_t *file, int flags, bool writable)
{
    int64_t align = asked_align(file->fd);
    if (align == 0 || fcntl(file->fd, F_SETFL, flags | O_DIRECT) != 0)
        return;
    if (align < 0)
        align = probed_align(file->fd, writable);
    if (align <= 0 || align > (int64_t)PLIM__PAGE || (align & (align - 1)) != 0) {
        (void)fcntl(file->fd, F_SETFL, flags);
        return;
    }
    file->direct = true;
    file->align = (uint32_t)align;
}

plim_status_t plim__file_open(const char *path, plim__file_mode_t mode, bool direct,
                              plim__file_t *file_out)
{
    struct stat about;
    plim__file_t file = {.fd = open_mode(path, mode), .align = 1, .path = path};
    if (file.fd < 0) {
        const char *what = mode == PLIM__FILE_READ     ? "open"
                           : mode == PLIM__FILE_CREATE ? "create"
                                                       : "make a temporary file in";
        return plim__fail_errno(errno, "cannot %s %s", what, path);
    }
    int flags = fcntl(file.fd, F_GETFL);
    if (fstat(file.fd, &about) != 0 || flags < 0) {
        int error = errno;
        (void)close(file.fd);
        return plim__fail_errno(error, "%s: cannot ask for its size", path);
    }
    if (!S_ISREG(about.st_mode)) {
        (void)close(file.fd);
        return plim__fail(PLIM_ERR_IO, "%s is %s, not a file; give the path of a regular file",
                          path, S_ISDIR(about.st_mode) ? "a directory" : "a pipe or a device");
    }
    file.size = about.st_size;
    flags &= ~O_NONBLOCK;
    (void)fcntl(file.fd, F_SETFL, flags);
    if (direct)
        try_direct(&file, flags, mode != PLIM__FILE_READ);
    if (!file.direct) /* no read-ahead of the kernel's: pages nobody asked for would not be dropped
                       */
        (void)posix_fadvise(file.fd, 0, 0, POSIX_FADV_RANDOM);
    *file_out = file;
    return PLIM_OK;
}

static plim_status_t transfer(const plim__file_t *file, int64_t offset, void *data, size_t size,
                              bool write)
{
    plim__op_t op = {.file = file, .offset = offset, .data = data, .size = size, .write = write};
    plim__transfer_run(&op);
    return plim__transfer_status(&op);
}

plim_status_t plim__file_read_at(const plim__file_t *file, int64_t offset, void *to, size_t size)
{
    return transfer(file, offset, to, size, false);
}

plim_status_t plim__file_write_at(const plim__file_t *file, int64_t offset, const void *from,
                                  size_t size)
{
    return transfer(file, offset, (void *)(uintptr_t)from, size, true);
}

void plim__file_drop(const plim__file_t *file, int64_t offset, int64_t size)
{
    if (file->direct || size <= 0)
        return;
    /* The kernel drops whole pages only: a page that is needed again is read again. */
    int64_t page = (int64_t)PLIM__PAGE;
    int64_t first = offset & ~(page - 1);
    int64_t length = (int64_t)plim__round_up((size_t)(offset - first + size), PLIM__PAGE);
    (void)sync_file_range(file->fd, first, length,
                          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                              SYNC_FILE_RANGE_WAIT_AFTER);
    (void)posix_fadvise(file->fd, first, length, POSIX_FADV_DONTNEED);
}

plim_status_t plim__file_sync(const plim__file_t *file)
{
    while (fsync(file->fd) != 0) {
        if (errno != EINTR)
            return plim__fail_errno(errno, "%s: cannot be made durable", file->path);
    }
    return PLIM_OK;
}

void plim__file_close(plim__file_t *file)
{
    if (file->fd >= 0)
        (void)close(file->fd);
    file->fd = -1;
}

const char *plim__file_distrust(const struct stat *about)
{
    if (about->st_uid != geteuid() && about->st_uid != 0)
        return "belongs to another user";
    return (about->st_mode & (S_IWGRP | S_IWOTH)) != 0 ? "can be written by others" : NULL;
}

plim_status_t plim__file_space(const char *path, int64_t *bytes_out)
{
    struct statvfs about;
    int64_t bytes;
    if (statvfs(path, &about) != 0)
        return plim__fail_errno(errno, "%s: cannot ask for the free space", path);
    if (about.f_bavail > INT64_MAX ||
        !plim__mul_i64((int64_t)about.f_bavail, (int64_t)about.f_frsize, &bytes))
        bytes = INT64_MAX;
    *bytes_out = bytes;
    return PLIM_OK;
}

plim_status_t plim__file_size_allowed(const char *path, int64_t bytes)
{
    struct rlimit most;
    char need[PLIM__SIZE_TEXT], have[PLIM__SIZE_TEXT];
    if (bytes <= 0 || getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur >= (rlim_t)bytes)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_SPACE,
                      "%s: a file of %s is needed, and no file of this process may pass %s; raise "
                      "ulimit -f",
                      path, plim__size_text(bytes, need),
                      plim__size_text((int64_t)most.rlim_cur, have));
}
