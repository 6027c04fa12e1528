/*
 * Status codes, error messages, and the library's version.
 *
 * Structs that begin with `size_t size`, parameters and outputs alike, are initialised with the
 * macro that ends in _INIT; it sets the size that the caller was compiled with. Later versions only
 * add fields at the end: fields that the caller does not know get their defaults, and a size of 0
 * is PLIM_ERR_USAGE.
 *
 * What stands below #ifdef PLIM_UNSTABLE in a header may change in any version. Until 1.0 a minor
 * version may change the rest too; its number is in the library's soname.
 */
#ifndef PLIMSOLL_STATUS_H
#define PLIMSOLL_STATUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef PLIM_BUILDING
#define PLIM_API __attribute__((visibility("default")))
#else
#define PLIM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* 0 is success, negatives are errors. */
typedef enum plim_status {
    PLIM_OK = 0,
    PLIM_ERR_NOMEM = -1,       /* the system has no memory, although the line allows it */
    PLIM_ERR_BUDGET = -2,      /* the memory line would be exceeded; no work was started */
    PLIM_ERR_SPACE = -3,       /* too little disk space; no work was started */
    PLIM_ERR_IO = -4,          /* the operating system refused a read, a write, an open … */
    PLIM_ERR_DATA = -5,        /* a file is damaged or inconsistent */
    PLIM_ERR_USAGE = -6,       /* the request is invalid */
    PLIM_ERR_UNSUPPORTED = -7, /* valid, but not on this machine or in this version */
    PLIM_ERR_STOPPED = -8,     /* the job's stop flag was set */
    PLIM_ERR_DIVERGED = -9,    /* a loss, a weight or a prediction is not finite */
    PLIM_ERR_DISK = -10,       /* the disk filled up, or a quota or ulimit -f was reached */
    PLIM_ERR_TIMEOUT = -11     /* not ready before the timeout; call again */
} plim_status_t;

/* The version of the loaded library, such as "0.2.0"; PLIM_VERSION is the version that the caller
 * was compiled with. Any thread. */
PLIM_API const char *plim_version(void);

/* A short name for a status, such as "budget"; never NULL. Thread-safe. */
PLIM_API const char *plim_status_name(plim_status_t status);

/*
 * The message of the last error in this thread: the file, the number, the remedy. It names settings
 * by the fields of the structs, in backquotes: "raise `memory` to 361M". The library owns it; valid
 * until the next call that fails in this thread; "" before the first failure.
 */
PLIM_API const char *plim_last_error(void);

/* Figures of the last error in this thread, for a caller that words its own message. -1 or "": the
 * error does not have that figure. The strings are valid until the next call that fails in this
 * thread. */
typedef struct plim_figures {
    size_t size;
    int64_t needed;    /* bytes of memory (PLIM_ERR_BUDGET) or disk that would be enough */
    int64_t available; /* bytes available: the line, or what the limit leaves */
    const char
        *limit; /* the one that is too low: "line", "disk", "RLIMIT_FSIZE", "memory.max", … */
    const char *file; /* path that the error is about */
} plim_figures_t;

#define PLIM_FIGURES_INIT                                                                          \
    {                                                                                              \
        .size = sizeof(plim_figures_t)                                                             \
    }

/* PLIM_ERR_USAGE for figures without a size; the message and its figures stay. */
PLIM_API plim_status_t plim_last_figures(plim_figures_t *figures_out);

#ifdef __cplusplus
}
#endif
#endif
