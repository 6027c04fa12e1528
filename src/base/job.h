/*
 * The job as the library sees it: its line, threads and I/O engine, a stop flag, and a queue of
 * messages to the host.
 *
 * Callbacks are called on threads of the host only, while they are inside a library call, one at a
 * time and with no lock held. Every thread adds its messages to the job's queue.
 * plim__job_deliver, on a host thread, takes it out: where progress is reported, where a stop is
 * checked for, and when a public call returns. Logging is always allowed; these three are not
 * allowed while a lock is held. A thread delivers its own messages and those of threads that work
 * for it; it delivers others only while no other thread is inside a call. So a thread that holds a
 * lock of the host never runs another call's callback, which may take that lock.
 *
 * A plim_job_t may be copied inside the library, to give a part of the work fewer threads or a stop
 * flag of its own: copies share the core.
 */
#ifndef PLIM_BASE_JOB_H
#define PLIM_BASE_JOB_H

#include "base/fail.h"

#include <locale.h>
#include <plimsoll/job.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

typedef struct plim_ledger plim_ledger_t;

#define PLIM__JOB_EVENTS 32

/* A message to the host: a log line, or progress. */
typedef struct plim__job_event {
    bool is_log;
    const void *owner;           /* plim__thread_owner of the logging thread */
    plim_log_level_t level;      /* of a log line */
    char text[PLIM_MESSAGE_MAX]; /* the line; for progress, its phase */
    char unit[32];               /* this and the fields below: for progress */
    int64_t done, total;
} plim__job_event_t;

/* State that all copies of a job share. */
typedef struct plim__job_core {
    pid_t process;              /* the owner; 0 in a forked child */
    atomic_int count;           /* references */
    plim_transport_t transport; /* to the other ranks (peers/peers.h); constant */
    bool ranks_failed;          /* a message did not end or was wrong: no more are sent */
    volatile int stop;          /* raised by plim_job_stop */
    pthread_mutex_t lock;       /* guards the queue; never held across a callback */
    bool delivering;            /* a thread is calling callbacks: others only add to the queue */
    atomic_int calls;           /* host threads that are inside a call */
    atomic_int num_events;
    int first;   /* the oldest event */
    int dropped; /* log lines dropped since the queue was full */
    plim__job_event_t events[PLIM__JOB_EVENTS];
} plim__job_core_t;

struct plim_job {
    plim__job_core_t *core;
    plim_ledger_t *ledger;
    int threads; /* at least 1 */
    plim_io_engine_t io_engine;
    plim_log_fn log;           /* NULL: silent */
    plim_progress_fn progress; /* NULL: silent */
    void *user;                /* handed to both */
    const volatile int *stop;  /* the core's flag, or that of a part of the work */
};

/* Appends a line to the queue. */
void plim__log(const plim_job_t *job, plim_log_level_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Appends progress to the queue and delivers. */
void plim__progress(const plim_job_t *job, const char *phase, const char *unit, int64_t done,
                    int64_t total);

/* On a host thread, calls the callbacks for queued messages; keeps this thread's error message. */
void plim__job_deliver(const plim_job_t *job);

/* The job's threads, limited to 1 … PLIM__THREADS_MAX. */
int plim__job_threads(const plim_job_t *job);

/* PLIM_ERR_STOPPED if the stop flag is set; called between steps of long work. Delivers. */
plim_status_t plim__job_check(const plim_job_t *job);

/* The same without delivering: for code that may run while a lock is held. */
plim_status_t plim__job_stopped(const plim_job_t *job);

/* A public call in progress. */
typedef struct plim__job_call {
    const plim_job_t *job;         /* NULL: the call was refused */
    const plim__job_core_t *outer; /* job of the enclosing call; NULL: none */
    locale_t locale;               /* the thread's before the call */
} plim__job_call_t;

/* PLIM_ERR_USAGE in a forked child. Until plim__job_leave the thread has the C locale, in which
 * numbers are written to files and read from them. */
plim_status_t plim__job_enter(const plim_job_t *job, plim__job_call_t *call_out);
void plim__job_leave(const plim__job_call_t *call);

/* For a callback: gives the thread the host's locale again, and returns the one for uselocale
 * afterwards. */
locale_t plim__host_locale(void);

/* First statement of a public call: refuses a forked child, and delivers queued messages when the
 * call returns. */
#define PLIM_ENTER(job)                                                                            \
    plim__job_call_t call_ __attribute__((cleanup(plim__job_leave))) = {NULL, NULL, (locale_t)0};  \
    PLIM_TRY(plim__job_enter((job), &call_))

#endif
