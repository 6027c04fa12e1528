/*
 * The job: the memory line and the ledger of reservations under it, threads, the I/O engine, the
 * stop flag, and callbacks for log lines and progress.
 *
 *     line ├──────────────────────────────────────────────┤
 *          │ process │ csc build │ writer │ …   available │
 *
 * The library reserves every large allocation in the ledger under a name before it maps it. One
 * account, the reserve, covers memory that other libraries and the kernel take. A reservation past
 * the line fails with PLIM_ERR_BUDGET and changes nothing.
 *
 * The library changes nothing else of its process: no signal handlers or masks, limits, locale,
 * environment or allocator settings. Its threads block all signals. Objects are
 * reference-counted and keep alive what they need, a dataset its job for example; they may be
 * released in any order. They belong to the process that made them: in a forked child every call on
 * them fails with PLIM_ERR_USAGE, releasing them does nothing, and their memory is not inherited. A
 * child may make objects of its own, unless it was forked inside a callback: then it may only exec
 * or _exit. If another thread was inside a library call at the fork, calls of the child that plan
 * or run training, evaluation or prediction may block: oneDNN's own locks may have been held.
 */
#ifndef PLIMSOLL_JOB_H
#define PLIMSOLL_JOB_H

#include <plimsoll/peers.h>
#include <plimsoll/status.h>
#include <stdbool.h>
#include <stddef.h>
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

/* Progress of one phase: `done` of `total` units; total is 0 if unknown. The strings are valid only
 * during the callback. */
typedef struct plim_progress {
    const char *phase; /* "reading edges", … */
    const char *unit;  /* "edges", "rows", "bytes" */
    int64_t done;
    int64_t total;
} plim_progress_t;

/*
 * Callbacks are called only on threads that are inside a library call, one at a time for a job, and
 * with no lock of the library held: they may take locks of their own, and may call the library,
 * except for the object whose call they were called from. A call delivers its own messages, and
 * those of another thread's call only after that call has returned. So a thread may hold a lock
 * that callbacks of another thread's call take, while it calls the library. Messages of library
 * threads are queued until such a call; when the queue is full, progress keeps its newest state and
 * the oldest log lines are dropped, which is logged. Messages still queued when the job ends are
 * dropped: the callbacks' data may be gone by then. Callbacks must return (no longjmp, no C++
 * exception).
 */
typedef void (*plim_log_fn)(void *user, plim_log_level_t level, const char *message);
typedef void (*plim_progress_fn)(void *user, const plim_progress_t *progress);

/* No line: memory is unlimited. */
#define PLIM_LINE_NONE INT64_MAX

typedef struct plim_job_params {
    size_t size;
    int64_t line; /* bytes that this process may hold; PLIM_LINE_NONE: no limit */
    int threads;  /* at least 1 */
    plim_io_engine_t io_engine;
    bool plan_only;                    /* refuse no reservation: for plans that do not fit */
    plim_log_fn log;                   /* NULL: silent */
    plim_progress_fn progress;         /* NULL: silent */
    void *user;                        /* handed to both */
    const plim_transport_t *transport; /* to the other ranks, copied; NULL: one rank */
} plim_job_params_t;

#define PLIM_JOB_PARAMS_INIT                                                                       \
    {                                                                                              \
        sizeof(plim_job_params_t), PLIM_LINE_NONE, 1, PLIM_IO_AUTO, false, NULL, NULL, NULL, NULL  \
    }

typedef struct plim_job plim_job_t;

/*
 * Creates a job. Its first accounts are "process", the memory of this process;
 * "reserve", for memory that the library does not allocate itself (heaps and code of other
 * libraries, page tables, other kernel charges): 3 % of the line, at least 32 MiB and 1 MiB for
 * each thread, at most 2 GiB; and "other processes", the bytes by which other processes of the same
 * control group now keep this one from reaching the line. If these alone exceed the line, every
 * reservation is refused (PLIM_ERR_BUDGET). PLIM_ERR_NOMEM; PLIM_ERR_USAGE for params without a
 * size, and for a transport with impossible ranks or missing functions. The transport's state must
 * outlive the job. Memory: 52 KiB, not counted.
 */
PLIM_API plim_status_t plim_job_create(const plim_job_params_t *params, plim_job_t **job_out);

/* Adds or removes a reference; the last release ends the job. NULL is harmless. Any thread. */
PLIM_API void plim_job_retain(const plim_job_t *job);
PLIM_API void plim_job_release(const plim_job_t *job);

/*
 * Sets or clears the stop flag. While it is set, calls under this job soon end with
 * PLIM_ERR_STOPPED. Any thread, and any signal handler while the job lives.
 */
PLIM_API void plim_job_stop(plim_job_t *job, bool stop);

typedef struct plim_job_info {
    size_t size;      /* of this struct */
    int64_t line;     /* PLIM_LINE_NONE: none */
    int64_t reserved; /* bytes reserved now */
    int64_t peak;     /* of reservations */
} plim_job_info_t;

#define PLIM_JOB_INFO_INIT                                                                         \
    {                                                                                              \
        sizeof(plim_job_info_t), 0, 0, 0                                                           \
    }

/* PLIM_ERR_USAGE for an output without a size, or in a forked child. Any thread. */
PLIM_API plim_status_t plim_job_info(const plim_job_t *job, plim_job_info_t *info_out);

/* One account: bytes reserved now, their peak, and the peak of resident bytes (known after an arena
 * ends; 0 if the account has no arena). */
typedef struct plim_account_info {
    size_t size;
    char name[32];
    int64_t reserved;
    int64_t peak;
    int64_t touched;
} plim_account_info_t;

#define PLIM_ACCOUNT_INFO_INIT                                                                     \
    {                                                                                              \
        sizeof(plim_account_info_t), "", 0, 0, 0                                                   \
    }

/* The index-th account, in the order of first reservation; false if there is none (or in a forked
 * child, or without a size). Any thread. */
PLIM_API bool plim_job_account(const plim_job_t *job, int index, plim_account_info_t *info_out);

#ifdef __cplusplus
}
#endif
#endif
