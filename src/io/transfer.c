#include "io/transfer.h"

#include "base/check.h"
#include "base/fail.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

static bool finish(plim__op_t *op, int error)
{
    op->error = error;
    if (!op->file->direct)
        plim__file_drop(op->file, op->offset, (int64_t)op->size);
    return true;
}

/*
 * A read returned less than requested. At the end of the file the read is complete; elsewhere the
 * rest is requested again, from a multiple of the alignment. A direct read of less than one unit
 * has reached the end too.
 */
static bool take_short_read(plim__op_t *op, size_t moved)
{
    const plim__file_t *file = op->file;
    int64_t size = file->size;
    int64_t readable = (int64_t)plim__round_up((size_t)size, file->align);
    if (op->offset + (int64_t)moved >= size && op->offset + (int64_t)op->size <= readable) {
        op->moved = moved;
        return finish(op, 0);
    }
    size_t kept = moved & ~((size_t)file->align - 1);
    if (kept <= op->moved)
        return finish(op, PLIM__TRANSFER_TRUNCATED);
    op->moved = kept;
    return false;
}

static bool take_short_write(plim__op_t *op, size_t moved)
{
    size_t kept = moved & ~((size_t)op->file->align - 1);
    if (kept <= op->moved)
        return finish(op, EIO);
    op->moved = kept;
    return false;
}

bool plim__transfer_take(plim__op_t *op, ssize_t result)
{
    if (result == -EINTR || result == -EAGAIN)
        return false;
    if (result < 0)
        return finish(op, (int)-result);
    size_t moved = op->moved + (size_t)result;
    if (moved >= op->size) {
        op->moved = op->size;
        return finish(op, 0);
    }
    return op->write ? take_short_write(op, moved) : take_short_read(op, moved);
}

void plim__transfer_run(plim__op_t *op)
{
    ssize_t result;
    do {
        char *data = (char *)op->data + op->moved;
        size_t size = op->size - op->moved;
        off_t offset = (off_t)(op->offset + (int64_t)op->moved);
        result = op->write ? pwrite(op->file->fd, data, size, offset)
                           : pread(op->file->fd, data, size, offset);
        if (result < 0)
            result = -errno;
    } while (!plim__transfer_take(op, result));
}

/* The error to report. ulimit -f makes a write short, and the kernel then refuses the unaligned
 * rest of a direct write with EINVAL instead of EFBIG. */
static int cause(const plim__op_t *op)
{
    struct rlimit most;
    return op->write && op->error == EINVAL && getrlimit(RLIMIT_FSIZE, &most) == 0 &&
                   (rlim_t)op->offset + op->size > most.rlim_cur
               ? EFBIG
               : op->error;
}

plim_status_t plim__transfer_status(const plim__op_t *op)
{
    if (op->error == 0)
        return PLIM_OK;
    if (op->error == PLIM__TRANSFER_TRUNCATED)
        return plim__fail(
            PLIM_ERR_DATA,
            "%s is truncated: it ends inside the %zu bytes at offset %lld, after %zu of them; "
            "download or make it again",
            op->file->path, op->size, (long long)op->offset, op->moved);
    return plim__fail_errno(cause(op), "%s: cannot %s %zu bytes at offset %lld", op->file->path,
                            op->write ? "write" : "read", op->size, (long long)op->offset);
}
