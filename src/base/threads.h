/*
 * Threads that can fail: the first error of several workers, with its message, returns to the
 * caller. Stacks are PLIM__STACK_BYTES each; plans count as much for short-lived threads, and
 * PLIM__THREAD_BYTES for permanent ones.
 */
#ifndef PLIM_BASE_THREADS_H
#define PLIM_BASE_THREADS_H

#include <plimsoll/status.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define PLIM__STACK_BYTES ((size_t)256 << 10)

/* Memory of a permanent thread: the touched part of its stack, and the kernel's memory for it. */
#define PLIM__THREAD_BYTES ((size_t)96 << 10)

/* Whether the calling thread was started by plim__thread_start: callbacks are not called there. */
bool plim__thread_is_ours(void);

/* The host thread that this thread works for: itself, or the one that started it, directly or not.
 * Only for comparison. */
const void *plim__thread_owner(void);

/*
 * pthread_create with all signals blocked in the new thread. Returns the error number, or 0. Only
 * for threads that never log; others use plim__thread_start.
 */
int plim__thread_create(const pthread_attr_t *attributes, void *(*body)(void *), void *context,
                        pthread_t *handle_out);

typedef struct plim__thread {
    pthread_t handle;
    void (*body)(void *context);
    void *context;
    const void *owner; /* plim__thread_owner of the starter */
} plim__thread_t;

/* Starts body(context). `thread` must live until the join. */
plim_status_t plim__thread_start(plim__thread_t *thread, void (*body)(void *), void *context);
void plim__thread_join(plim__thread_t *thread);

#define PLIM__THREADS_MAX 128

/*
 * Calls work(context, worker) for worker 0 … threads-1 at once, the caller being worker 0, and
 * returns when all have returned: PLIM_OK, or the status and message of the first worker that
 * failed. At most PLIM__THREADS_MAX. If not all threads can be started (ulimit -u), the others do
 * the work: `work` must take its tasks from a shared counter, not from its number.
 */
plim_status_t plim__parallel(int threads, plim_status_t (*work)(void *context, int worker),
                             void *context);

/*
 * For task 0 … count-1: make(context, worker, task) on any thread and in any order, then
 * take(context, worker, task) in the order of the tasks, one at a time, by the worker that made
 * it (so the worker's buffers still hold the task). Ends early on the first error and returns it.
 */
plim_status_t plim__ordered(int threads, int64_t count,
                            plim_status_t (*make)(void *context, int worker, int64_t task),
                            plim_status_t (*take)(void *context, int worker, int64_t task),
                            void *context);

#endif
