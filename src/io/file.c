/*
 * Opening, aligning and closing files. O_DIRECT is set by fcntl after the open, so that one open
 * decides about existence and permission, and a refusal of O_DIRECT needs no second open.
 */
#include "io/file.h"

#include "base/check.h"
#include "base/fail.h"
#include "io/own.h"
#include "io/place.h"
#include "io/transfer.h"
#include "mem/arena.h"
#include "mem/size_text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

/* From Linux 6.1, by value and offset: older headers do not name them. */
#define STATX_DIOALIGN_MASK 0x2000u
#define STATX_DIO_MEM_ALIGN_AT 0x98
#define STATX_DIO_OFFSET_ALIGN_AT 0x9c

static int open_mode(int directory, const char *path, plim__file_mode_t mode)
{
    const int own = directory != AT_FDCWD ? O_NOFOLLOW : 0;
    const char *name = own != 0 ? plim__file_name(path) : path;
    switch (mode) {
    case PLIM__FILE_READ:
        /* O_NONBLOCK, cleared below: opening a named pipe would block. */
        return openat(directory, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | own);
    case PLIM__FILE_CREATE:
        return openat(directory, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    case PLIM__FILE_TEMPORARY:
        break;
    }
    return plim__own_nameless(directory, own != 0 ? "." : path);
}

/* The alignment that statx reports; 0 when direct I/O is refused, -1 when unknown. */
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

/* Tries one transfer of `align` bytes at an address aligned to `align` only. */
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

/* Probes a new file with a write, which is undone: reading an empty file would prove nothing. */
static int64_t probed_align(int fd, bool writable)
{
    int64_t align = works_at(fd, writable, 512) ? 512 : works_at(fd, writable, 4096) ? 4096 : 0;
    return writable && ftruncate(fd, 0) != 0 ? 0 : align;
}

/* Switches to direct I/O if it works; otherwise the file stays buffered. */
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

/* Refuses anything but a regular file, and in an open directory the files of other users. */
static plim_status_t check_kind(int directory, const char *path, const struct stat *about)
{
    if (!S_ISREG(about->st_mode))
        return plim__fail(PLIM_ERR_IO, "%s is %s, not a file; give the path of a regular file",
                          path, S_ISDIR(about->st_mode) ? "a directory" : "a pipe or a device");
    if (directory != AT_FDCWD && plim__own_foreign(directory, about) != NULL)
        return plim__fail(PLIM_ERR_DATA,
                          "%s belongs to another user (uid %ld), so it is not what was written "
                          "there; remove it, or work in a directory of your own",
                          path, (long)about->st_uid);
    return PLIM_OK;
}

plim_status_t plim__file_open_in(int directory, const char *path, plim__file_mode_t mode,
                                 bool direct, plim__file_t *file_out)
{
    struct stat about;
    plim__file_t file = {.fd = open_mode(directory, path, mode), .align = 1, .path = path};
    if (file.fd < 0) {
        const char *what = mode == PLIM__FILE_READ     ? "open"
                           : mode == PLIM__FILE_CREATE ? "create"
                                                       : "make a temporary file in";
        return plim__fail_file(plim__fail_errno(errno, "cannot %s %s", what, path), path);
    }
    int flags = fcntl(file.fd, F_GETFL);
    plim_status_t status = PLIM_OK;
    if (fstat(file.fd, &about) != 0 || flags < 0)
        status = plim__fail_errno(errno, "cannot stat %s", path);
    else
        status = check_kind(directory, path, &about);
    if (status != PLIM_OK) {
        (void)close(file.fd);
        return plim__fail_file(status, path);
    }
    file.temporary = mode == PLIM__FILE_TEMPORARY;
    file.size = about.st_size;
    flags &= ~O_NONBLOCK;
    (void)fcntl(file.fd, F_SETFL, flags);
    if (direct)
        try_direct(&file, flags, mode != PLIM__FILE_READ);
    if (!file.direct) /* no read-ahead: its pages would not be dropped */
        (void)posix_fadvise(file.fd, 0, 0, POSIX_FADV_RANDOM);
    *file_out = file;
    return PLIM_OK;
}

plim_status_t plim__file_open(const char *path, plim__file_mode_t mode, bool direct,
                              plim__file_t *file_out)
{
    return plim__file_open_in(AT_FDCWD, path, mode, direct, file_out);
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
    /* The kernel drops whole pages only; a page that is needed again is read again. */
    int64_t page = (int64_t)PLIM__PAGE;
    int64_t first = offset & ~(page - 1);
    int64_t length = (int64_t)plim__round_up((size_t)(offset - first + size), PLIM__PAGE);
    (void)sync_file_range(file->fd, first, length,
                          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                              SYNC_FILE_RANGE_WAIT_AFTER);
    (void)posix_fadvise(file->fd, first, length, POSIX_FADV_DONTNEED);
}

plim_status_t plim__file_path(char path_out[PATH_MAX], const char *directory, const char *name)
{
    int length = snprintf(path_out, PATH_MAX, "%s/%s", directory, name);
    if (length < 0 || length >= PATH_MAX)
        return plim__fail(PLIM_ERR_USAGE, "%.100s…: the path is too long", directory);
    return PLIM_OK;
}

plim_status_t plim__file_sync(const plim__file_t *file)
{
    return plim__place_sync(file->fd, file->path);
}

void plim__file_close(plim__file_t *file)
{
    if (file->temporary) /* a forked child may still have it open */
        (void)ftruncate(file->fd, 0);
    if (file->fd >= 0)
        (void)close(file->fd);
    file->fd = -1;
}

plim_status_t plim__file_reserve(const plim__file_t *file, int64_t bytes, const char *need)
{
    char size[PLIM__SIZE_TEXT];
    int result;
    do {
        result = bytes > 0 ? fallocate(file->fd, 0, 0, (off_t)bytes) : 0;
    } while (result != 0 && errno == EINTR);
    if (result == 0 || !plim__disk_full(errno))
        return PLIM_OK;
    (void)plim__fail_errno(errno, "%s: %s %s", file->path, need, plim__size_text(bytes, size));
    return PLIM_ERR_SPACE;
}

plim_status_t plim__file_space(const char *path, int64_t *bytes_out)
{
    struct statvfs about;
    int64_t bytes;
    if (statvfs(path, &about) != 0)
        return plim__fail_errno(errno, "%s: cannot find the free disk space", path);
    if (about.f_bavail > INT64_MAX ||
        !plim__mul_i64((int64_t)about.f_bavail, (int64_t)about.f_frsize, &bytes))
        bytes = INT64_MAX;
    *bytes_out = bytes;
    return PLIM_OK;
}

plim_status_t plim__file_check_space(const char *directory, int64_t bytes, const char *path,
                                     const char *need, const char *remedy)
{
    char need_text[PLIM__SIZE_TEXT], have_text[PLIM__SIZE_TEXT];
    int64_t space = 0;
    PLIM_TRY(plim__file_space(directory, &space));
    if (bytes <= space)
        return PLIM_OK;
    (void)plim__fail(PLIM_ERR_SPACE, "%s: %s %s of disk space, but %s are free; %s", path, need,
                     plim__size_text(bytes, need_text), plim__size_text(space, have_text), remedy);
    (void)plim__fail_file(PLIM_ERR_SPACE, path);
    return plim__fail_figures(PLIM_ERR_SPACE, "disk", bytes, space);
}

plim_status_t plim__file_size_allowed(const char *path, int64_t bytes)
{
    struct rlimit most;
    char need[PLIM__SIZE_TEXT], have[PLIM__SIZE_TEXT];
    if (bytes <= 0 || getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur >= (rlim_t)bytes)
        return PLIM_OK;
    (void)plim__fail(PLIM_ERR_SPACE,
                     "%s needs a file of %s, but this process may write at most %s a file; raise "
                     "ulimit -f",
                     path, plim__size_text(bytes, need),
                     plim__size_text((int64_t)most.rlim_cur, have));
    (void)plim__fail_file(PLIM_ERR_SPACE, path);
    return plim__fail_figures(PLIM_ERR_SPACE, "RLIMIT_FSIZE", bytes, (int64_t)most.rlim_cur);
}

/* File systems by the magic number of statfs. */
static const struct {
    uint32_t magic;
    plim__file_system_t system;
} known[] = {
    {0x0000ef53, {"ext4", false, false}},     {0x58465342, {"xfs", false, false}},
    {0x9123683e, {"btrfs", false, false}},    {0x2fc12fc1, {"zfs", false, false}},
    {0xca451a4e, {"bcachefs", false, false}}, {0xf2f52010, {"f2fs", false, false}},
    {0x794c7630, {"overlay", false, false}},  {0x65735546, {"fuse", false, false}},
    {0x73717368, {"squashfs", false, false}}, {0x00009660, {"iso9660", false, false}},
    {0x00004d44, {"fat", false, false}},      {0x2011bab0, {"exfat", false, false}},
    {0x01021994, {"tmpfs", false, true}},     {0x858458f6, {"ramfs", false, true}},
    {0x958458f6, {"hugetlbfs", false, true}}, {0x0bd00bd0, {"lustre", true, false}},
    {0x47504653, {"gpfs", true, false}},      {0x00006969, {"nfs", true, false}},
    {0x19830326, {"beegfs", true, false}},    {0x00c36400, {"cephfs", true, false}},
    {0xff534d42, {"cifs", true, false}},      {0xfe534d42, {"smb", true, false}},
    {0x0000517b, {"smb", true, false}},       {0x01021997, {"9p", true, false}},
    {0xaad7aaea, {"panfs", true, false}},     {0x5346414f, {"afs", true, false}},
    {0x6b414653, {"afs", true, false}},       {0x7461636f, {"ocfs2", true, false}},
    {0x01161970, {"gfs2", true, false}},
};

plim__file_system_t plim__file_system_of(uint32_t magic)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].magic == magic)
            return known[i].system;
    }
    return (plim__file_system_t){"unknown", false, false};
}

plim_status_t plim__file_system(const char *path, plim__file_system_t *system_out)
{
    struct statfs about;
    int result;
    do {
        result = statfs(path, &about);
    } while (result != 0 && errno == EINTR);
    if (result != 0 && errno == ENOENT)
        return plim__fail(PLIM_ERR_USAGE, "the directory %s does not exist; create it: mkdir -p %s",
                          path, path);
    if (result != 0)
        return plim__fail_errno(errno, "%s: cannot find its file system", path);
    *system_out = plim__file_system_of((uint32_t)about.f_type);
    return PLIM_OK;
}

plim_status_t plim__file_check_disk(const char *directory, int64_t bytes, const char *need)
{
    plim__file_system_t system;
    PLIM_TRY(plim__file_system(directory, &system));
    if (system.memory)
        return plim__fail(PLIM_ERR_SPACE, "%s is in memory (%s); choose a directory on a disk",
                          directory, system.name);
    return plim__file_check_space(directory, bytes, directory, need,
                                  "free some, or choose another directory");
}
