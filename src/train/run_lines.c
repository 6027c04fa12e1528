/* metrics.jsonl and timeline.jsonl: whole lines, appended by one write each. */
#include "train/run_lines.h"
#include "base/check.h"
#include "base/fail.h"
#include "io/inflate.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* Bytes that are read to check them; an epoch takes some 200. */
#define LINES_MOST ((int64_t)1 << 32)

/* Why a file that is there cannot be one that a run appends to; NULL when it can. */
static const char *why_not_ours(const struct stat *about)
{
    if (!S_ISREG(about->st_mode))
        return "is not a file";
    return about->st_nlink > 1 ? "has a second name (a hard link), under which it would change too"
                               : NULL;
}

plim_status_t plim__run_lines_open(plim__run_lines_t *lines, bool fresh)
{
    /* O_NONBLOCK: a named pipe would hold us here for ever. */
    const int flags = O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;
    struct stat about;
    int fd = open(lines->path, flags | O_CREAT | O_EXCL, 0666);
    const bool made = fd >= 0;
    if (!made && errno == EEXIST && !fresh)
        fd = open(lines->path, flags);
    if (fd < 0 && errno == EEXIST)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s is there already, and a new run writes a file of that name; choose "
                          "another directory",
                          lines->path);
    if (fd < 0 && (errno == ELOOP || errno == EISDIR || errno == ENXIO))
        return plim__fail(PLIM_ERR_DATA,
                          "%s is %s, and a run writes to a file of its own; put the file there",
                          lines->path, errno == ELOOP ? "a link" : "not a file");
    if (fd < 0)
        return plim__fail_errno(errno, "cannot open %s", lines->path);
    const char *reason = fstat(fd, &about) == 0 ? why_not_ours(&about) : "cannot be looked at";
    if (reason != NULL) {
        (void)close(fd);
        return plim__fail(PLIM_ERR_DATA,
                          "%s %s; a run writes to a file of its own: put a copy there", lines->path,
                          reason);
    }
    lines->fd = fd;
    lines->made = made;
    lines->size = about.st_size;
    lines->crc = 0;
    return PLIM_OK;
}

void plim__run_lines_close(plim__run_lines_t *lines)
{
    if (lines->fd >= 0)
        (void)close(lines->fd);
    lines->fd = -1;
}

plim_status_t plim__run_lines_sync(const plim__run_lines_t *lines)
{
    while (fsync(lines->fd) != 0) {
        if (errno != EINTR)
            return plim__fail_errno(errno, "%s: cannot be made durable", lines->path);
    }
    return PLIM_OK;
}

static plim_status_t read_back(const plim__run_lines_t *lines, int64_t offset, char *to,
                               size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t moved = pread(lines->fd, to + done, size - done, (off_t)(offset + (int64_t)done));
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0)
            return plim__fail_errno(moved < 0 ? errno : EIO, "%s: cannot read %zu bytes at %lld",
                                    lines->path, size, (long long)offset);
        done += (size_t)moved;
    }
    return PLIM_OK;
}

static plim_status_t truncate_to(plim__run_lines_t *lines, int64_t size)
{
    if (size == lines->size)
        return PLIM_OK;
    if (ftruncate(lines->fd, (off_t)size) != 0)
        return plim__fail_errno(errno, "%s: cannot be cut to %lld bytes", lines->path,
                                (long long)size);
    lines->size = size;
    return plim__run_lines_sync(lines);
}

/* The CRC-32 of the first `size` bytes. */
static plim_status_t read_crc(const plim__run_lines_t *lines, int64_t size, uint32_t *crc_out)
{
    char text[4096];
    uint32_t crc = 0;
    for (int64_t at = 0; at < size; at += (int64_t)sizeof text) {
        const size_t part = (size_t)plim__min_i64(size - at, (int64_t)sizeof text);
        PLIM_TRY(read_back(lines, at, text, part));
        crc = plim__inflate_crc(crc, text, part);
    }
    *crc_out = crc;
    return PLIM_OK;
}

plim_status_t plim__run_lines_cut(plim__run_lines_t *lines, int64_t size, const uint32_t *crc)
{
    char last = '\n';
    uint32_t found;
    if (size > LINES_MOST)
        return plim__fail(PLIM_ERR_DATA, "%s: %lld bytes are more than a run's lines can be",
                          lines->path, (long long)size);
    if (lines->size < size)
        return plim__fail(PLIM_ERR_DATA,
                          "%s has %lld bytes, but had %lld when the checkpoint was saved; put the "
                          "whole file back, or begin a new run",
                          lines->path, (long long)lines->size, (long long)size);
    if (size > 0)
        PLIM_TRY(read_back(lines, size - 1, &last, 1));
    if (last != '\n')
        return plim__fail(PLIM_ERR_DATA,
                          "%s: no line ends at byte %lld, where one did when the checkpoint was "
                          "saved; put the file back as it was, or begin a new run",
                          lines->path, (long long)size);
    PLIM_TRY(read_crc(lines, size, &found));
    if (crc != NULL && *crc != found)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: damaged: its first %lld bytes are not those that stood there when "
                          "the checkpoint was saved; put the file back as it was, or begin a new "
                          "run",
                          lines->path, (long long)size);
    lines->crc = found;
    return truncate_to(lines, size);
}

plim_status_t plim__run_lines_mend(plim__run_lines_t *lines)
{
    char text[4096];
    const int64_t first = plim__max_i64(0, lines->size - PLIM__LINE_MAX);
    int64_t end = lines->size;
    while (end > first) {
        int64_t begin = plim__max_i64(first, end - (int64_t)sizeof text);
        PLIM_TRY(read_back(lines, begin, text, (size_t)(end - begin)));
        while (end > begin && text[end - begin - 1] != '\n')
            end--;
        if (end > begin)
            return truncate_to(lines, end);
    }
    if (first > 0)
        return plim__fail(
            PLIM_ERR_DATA,
            "%s: no line ends in its last %d bytes of %lld, so it was not written by a "
            "run; put the file back, or remove it (it holds times and memory only)",
            lines->path, PLIM__LINE_MAX, (long long)lines->size);
    return truncate_to(lines, 0);
}

plim_status_t plim__run_lines_append(plim__run_lines_t *lines, const char *line)
{
    size_t length = strlen(line);
    size_t done = 0;
    while (done < length + 1) {
        struct iovec parts[] = {
            {(void *)(uintptr_t)(line + (done < length ? done : length)),
             done < length ? length - done : 0},
            {(void *)(uintptr_t) "\n", 1},
        };
        ssize_t moved = writev(lines->fd, parts, 2);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0) {
            int error = moved < 0 ? errno : EIO;
            (void)ftruncate(lines->fd, (off_t)lines->size); /* half a line is none */
            return plim__fail_errno(error, "%s: cannot append a line of %zu bytes", lines->path,
                                    length + 1);
        }
        done += (size_t)moved;
    }
    lines->size += (int64_t)length + 1;
    lines->crc = plim__inflate_crc(plim__inflate_crc(lines->crc, line, length), "\n", 1);
    return PLIM_OK;
}
