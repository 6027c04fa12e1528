/* Setting the error message and passing a status on. */
#ifndef PLIM_BASE_FAIL_H
#define PLIM_BASE_FAIL_H

#include <plimsoll/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sets this thread's message and returns `status`. */
plim_status_t plim__fail(plim_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * The same for a failed system call: ": <strerror> (errno N)" and, where there is an ordinary
 * remedy (disk full, quota, permission, too many open files), the remedy follow the message.
 * Returns PLIM_ERR_NOMEM for ENOMEM, PLIM_ERR_DISK where plim__disk_full, else PLIM_ERR_IO.
 */
plim_status_t plim__fail_errno(int error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Add figures to this thread's last error: the limit that was too low, as in plim_figures_t (-1:
 * unknown), and the file that it is about. Return `status`. */
plim_status_t plim__fail_figures(plim_status_t status, const char *limit, int64_t needed,
                                 int64_t available);
plim_status_t plim__fail_file(plim_status_t status, const char *path);

/* This thread's message, "" before the first failure; and its figures. */
const char *plim__fail_text(void);
plim_figures_t plim__fail_last_figures(void);

/* Whether a write failed for lack of space: the disk, a quota (EDQUOT), ulimit -f (EFBIG). */
bool plim__disk_full(int error);

/* Puts `text` before this thread's message ("text: message"), for a caller that knows more. */
plim_status_t plim__fail_prefix(plim_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define PLIM_MESSAGE_MAX 1024

/* A failure: its message and its figures. */
typedef struct plim__failure {
    char message[PLIM_MESSAGE_MAX];
    int64_t needed, available;
    char limit[64];
    char file[1024]; /* "" for a longer path */
} plim__failure_t;

/* Keep this thread's last failure, and set it again, here after others or in another thread. */
void plim__fail_save(plim__failure_t *failure_out);
plim_status_t plim__fail_restore(plim_status_t status, const plim__failure_t *failure);

#ifdef __clang_analyzer__
/* The analyzer sees one file at a time: without this it follows paths on which these succeed. */
#define plim__fail(status, ...) ((void)plim__fail(status, __VA_ARGS__), (status))
#define plim__fail_errno(...) ((void)plim__fail_errno(__VA_ARGS__), PLIM_ERR_IO)
#endif

#define PLIM_TRY(call)                                                                             \
    do {                                                                                           \
        plim_status_t try_status_ = (call);                                                        \
        if (try_status_ != PLIM_OK)                                                                \
            return try_status_;                                                                    \
    } while (0)

#endif
