/* One message buffer a thread: no allocation, so that even "no memory" can be reported. */
#include "base/fail.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#ifdef __clang_analyzer__
#undef plim__fail
#undef plim__fail_errno
#endif

static _Thread_local plim__failure_t last = {.needed = -1, .available = -1};

const char *plim__fail_text(void)
{
    return last.message;
}

plim_figures_t plim__fail_last_figures(void)
{
    return (plim_figures_t){.size = sizeof(plim_figures_t),
                            .needed = last.needed,
                            .available = last.available,
                            .limit = last.limit,
                            .file = last.file};
}

plim_status_t plim__fail_figures(plim_status_t status, const char *limit, int64_t needed,
                                 int64_t available)
{
    (void)snprintf(last.limit, sizeof last.limit, "%s", limit);
    last.needed = needed;
    last.available = available;
    return status;
}

plim_status_t plim__fail_file(plim_status_t status, const char *path)
{
    const size_t length = strnlen(path, sizeof last.file);
    const bool fits = length < sizeof last.file;
    memmove(last.file, path, fits ? length : 0);
    last.file[fits ? length : 0] = '\0';
    return status;
}

/* A new failure, whose figures are not known yet. */
static void set_message(const char *text)
{
    (void)snprintf(last.message, sizeof last.message, "%s", text);
    (void)plim__fail_figures(PLIM_OK, "", -1, -1);
    last.file[0] = '\0';
}

plim_status_t plim__fail(plim_status_t status, const char *format, ...)
{
    va_list arguments;
    char text[PLIM_MESSAGE_MAX]; /* the arguments may point into the last message */
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    set_message(text);
    return status;
}

static const char *remedy(int error)
{
    switch (error) {
    case ENOSPC:
        return "; the disk is full: free some space, or use another disk";
    case EDQUOT:
        return "; your disk quota is used up: free some space or ask for more";
    case EFBIG:
        return "; no file of this process may become larger: raise ulimit -f";
    case EMFILE:
        return "; raise the limit on open files (ulimit -n)";
    case EACCES:
    case EPERM:
        return "; check the permissions of the path";
    case EROFS:
        return "; the file system is read-only: choose another target";
    case ENOENT:
        return "; check the path";
    default:
        return "";
    }
}

bool plim__disk_full(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

plim_status_t plim__fail_errno(int error, const char *format, ...)
{
    va_list arguments;
    char what[PLIM_MESSAGE_MAX];
    char text[128], whole[PLIM_MESSAGE_MAX];

    va_start(arguments, format);
    (void)vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    const char *reason = strerror_r(error, text, sizeof text); /* GNU's: returns the string */
    (void)snprintf(whole, sizeof whole, "%.700s: %s (errno %d)%s", what, reason, error,
                   remedy(error));
    set_message(whole);
    if (plim__disk_full(error))
        return PLIM_ERR_DISK;
    return error == ENOMEM ? PLIM_ERR_NOMEM : PLIM_ERR_IO;
}

plim_status_t plim__fail_prefix(plim_status_t status, const char *format, ...)
{
    va_list arguments;
    char whole[PLIM_MESSAGE_MAX];

    va_start(arguments, format);
    int used = vsnprintf(whole, sizeof whole / 2, format, arguments);
    va_end(arguments);
    if (used < 0)
        return status;
    if ((size_t)used >= sizeof whole / 2)
        used = (int)(sizeof whole / 2) - 1;
    (void)snprintf(whole + used, sizeof whole - (size_t)used, ": %s", last.message);
    memcpy(last.message, whole, sizeof whole);
    return status;
}

void plim__fail_save(plim__failure_t *failure_out)
{
    *failure_out = last;
}

plim_status_t plim__fail_restore(plim_status_t status, const plim__failure_t *failure)
{
    last = *failure;
    return status;
}
