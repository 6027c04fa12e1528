/* What a piece of work runs with: its memory line, threads, way of doing I/O, and how it speaks. */
#ifndef PLIMSOLL_JOB_H
#define PLIMSOLL_JOB_H

#include <plimsoll/ledger.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum plim_io_engine {
    PLIM_IO_AUTO = 0, /* io_uring where it works, else threads */
    PLIM_IO_URING,    /* io_uring; PLIM_ERR_UNSUPPORTED where the kernel refuses it */
    PLIM_IO_THREADS   /* a pool of threads that call pread and pwrite */
} plim_io_engine_t;

typedef enum plim_log_level { PLIM_LOG_INFO, PLIM_LOG_WARNING } plim_log_level_t;

/* Progress of one phase: `done` of `total` units, total 0 when it is not known. */
typedef struct plim_progress {
    const char *phase; /* "reading edges", … */
    const char *unit;  /* "edges", "rows", "bytes" */
    int64_t done;
    int64_t total;
} plim_progress_t;

/* The callbacks may be called from any thread of the job, one at a time; they must not block for
 * long. */
typedef void (*plim_log_fn)(void *user, plim_log_level_t level, const char *message);
typedef void (*plim_progress_fn)(void *user, const plim_progress_t *progress);

typedef struct plim_job {
    plim_ledger_t *ledger; /* borrowed; must outlive the job */
    int threads;           /* at least 1 */
    plim_io_engine_t io_engine;
    plim_log_fn log;           /* NULL: silent */
    plim_progress_fn progress; /* NULL: silent */
    void *user;                /* handed to both */
    const volatile int
        *stop; /* raised (say, by a signal handler) to end the work early; NULL: never */
} plim_job_t;

#define PLIM_JOB_INIT                                                                              \
    {                                                                                              \
        NULL, 1, PLIM_IO_AUTO, NULL, NULL, NULL, NULL                                              \
    }

#ifdef __cplusplus
}
#endif
#endif
