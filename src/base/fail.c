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

static _Thread_local char message[PLIM_MESSAGE_MAX];
static _Thread_local plim_figures_t figures = {sizeof figures, -1, -1};

const char *plim__fail_text(void)
{
    return message;
}

const plim_figures_t *plim__fail_last_figures(void)
{
    return &figures;
}

plim_status_t plim__fail_figures(plim_status_t status, int64_t needed, int64_t available)
{
    figures.needed = needed;
    figures.available = available;
    return status;
}

plim_status_t plim__fail(plim_status_t status, const char *format, ...)
{
    va_list arguments;
    char text[PLIM_MESSAGE_MAX]; /* the arguments may point into the last message */
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return plim__fail_restore(status, text);
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
    char text[128];

    va_start(arguments, format);
    (void)vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    (void)plim__fail_figures(PLIM_OK, -1, -1);
    const char *reason = strerror_r(error, text, sizeof text); /* GNU's: returns the string */
    (void)snprintf(message, sizeof message, "%.700s: %s (errno %d)%s", what, reason, error,
                   remedy(error));
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
    (void)snprintf(whole + used, sizeof whole - (size_t)used, ": %s", message);
    const plim_figures_t kept = figures;
    return plim__fail_figures(plim__fail_restore(status, whole), kept.needed, kept.available);
}

void plim__fail_save(char *message_out, size_t size)
{
    (void)snprintf(message_out, size, "%s", message);
}

plim_status_t plim__fail_restore(plim_status_t status, const char *saved)
{
    size_t length = strnlen(saved, sizeof message - 1);
    memmove(message, saved, length);
    message[length] = '\0';
    return plim__fail_figures(status, -1, -1);
}
