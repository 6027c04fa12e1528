/* metrics.jsonl and timeline.jsonl: each line is appended by one write. */
#include "train/run_lines.h"
#include "base/check.h"
#include "base/fail.h"
#include "io/inflate.h"
#include "io/own.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* Maximum bytes to check; an epoch takes about 200. */
#define LINES_MOST ((int64_t)1 << 32)

/* Why an existing file cannot be a run's file of lines; NULL if it can. */
static const char *why_not_ours(int directory, const struct stat *about)
{
    if (!S_ISREG(about->st_mode))
        return "is not a file";
    return about->st_nlink > 1 ? "has a second name (a hard link), under which it would change too"
                               : plim__own_foreign(directory, about);
}

plim_status_t plim__run_lines_open(plim__run_lines_t *lines, int directory, bool fresh)
{
    /* O_NONBLOCK: opening a named pipe would block forever. */
    const int flags = O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;
    const char *name = plim__file_name(lines->path);
    struct stat about;
    int fd = openat(directory, name, flags | O_CREAT | O_EXCL, 0666);
    const bool made = fd >= 0;
    if (!made && errno == EEXIST && !fresh)
        fd = openat(directory, name, flags);
    if (fd < 0 && errno == EEXIST)
        return plim__fail(
            PLIM_ERR_USAGE,
            "%s already exists, but a new run writes a file of that name; choose another directory",
            lines->path);
    if (fd < 0 && (errno == ELOOP || errno == EISDIR || errno == ENXIO))
        return plim__fail(PLIM_ERR_DATA,
                          "%s is %s, and a run writes to a file of its own; put the file there",
                          lines->path, errno == ELOOP ? "a link" : "not a file");
    if (fd < 0)
        return plim__fail_errno(errno, "cannot open %s", lines->path);
    const char *reason =
        fstat(fd, &about) == 0 ? why_not_ours(directory, &about) : "cannot be looked at";
    if (reason != NULL) {
        (void)close(fd);
        return plim__fail(PLIM_ERR_DATA,
                          "%s %s; a run writes to a file of its own: put a copy there", lines->path,
                          reason);
    }
    lines->file = (plim__file_t){.fd = fd, .align = 1, .size = about.st_size, .path = lines->path};
    lines->made = made;
    lines->crc = 0;
    return PLIM_OK;
}

static plim_status_t truncate_to(plim__run_lines_t *lines, int64_t size)
{
    if (size == lines->file.size)
        return PLIM_OK;
    if (ftruncate(lines->file.fd, (off_t)size) != 0)
        return plim__fail_errno(errno, "%s: cannot be cut to %lld bytes", lines->path,
                                (long long)size);
    lines->file.size = size;
    return plim__file_sync(&lines->file);
}

static plim_status_t read_crc(const plim__run_lines_t *lines, int64_t size, uint32_t *crc_out)
{
    char text[4096];
    uint32_t crc = 0;
    for (int64_t at = 0; at < size; at += (int64_t)sizeof text) {
        const size_t part = (size_t)plim__min_i64(size - at, (int64_t)sizeof text);
        PLIM_TRY(plim__file_read_at(&lines->file, at, text, part));
        crc = plim__inflate_crc(crc, text, part);
    }
    *crc_out = crc;
    return PLIM_OK;
}

plim_status_t plim__run_lines_cut(plim__run_lines_t *lines, int64_t size, const uint32_t *crc)
{
    uint32_t found;
    if (size > LINES_MOST)
        return plim__fail(PLIM_ERR_DATA, "%s has %lld bytes, more than a run can write",
                          lines->path, (long long)size);
    if (lines->file.size < size)
        return plim__fail(PLIM_ERR_DATA,
                          "%s has %lld bytes, but had %lld when the checkpoint was saved; put the "
                          "whole file back, or begin a new run",
                          lines->path, (long long)lines->file.size, (long long)size);
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

plim_status_t plim__run_lines_drop_partial(plim__run_lines_t *lines)
{
    char text[PLIM__LINE_MAX];
    const int64_t begin = plim__max_i64(0, lines->file.size - PLIM__LINE_MAX);
    size_t end = (size_t)(lines->file.size - begin);
    PLIM_TRY(plim__file_read_at(&lines->file, begin, text, end));
    while (end > 0 && text[end - 1] != '\n')
        end--;
    if (end == 0 && begin > 0)
        return plim__fail(
            PLIM_ERR_DATA,
            "%s: no line ends in its last %d bytes of %lld, so it was not written by a "
            "run; put the file back, or remove it (it holds times and memory only)",
            lines->path, PLIM__LINE_MAX, (long long)lines->file.size);
    return truncate_to(lines, begin + (int64_t)end);
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
        ssize_t moved = writev(lines->file.fd, parts, 2);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0) {
            int error = moved < 0 ? errno : EIO;
            (void)ftruncate(lines->file.fd, (off_t)lines->file.size); /* the partial line */
            return plim__fail_errno(error, "%s: cannot append a line of %zu bytes", lines->path,
                                    length + 1);
        }
        done += (size_t)moved;
    }
    lines->file.size += (int64_t)length + 1;
    lines->crc = plim__inflate_crc(plim__inflate_crc(lines->crc, line, length), "\n", 1);
    return PLIM_OK;
}
