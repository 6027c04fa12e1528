/*
 * Waiting for a change that other threads make under a lock. It stands in place of pthread_cond_t,
 * whose signals glibc before 2.41 may lose when several threads wait (its bug 25847): a thread then
 * sleeps for ever. All functions are called with the lock held, always the same for one condition.
 * A wait may return early, so callers test for the change in a loop. A zeroed condition is ready
 * for use.
 */
#ifndef PLIM_BASE_CONDITION_H
#define PLIM_BASE_CONDITION_H

#include <pthread.h>
#include <stdint.h>

typedef struct plim__condition {
    _Atomic uint32_t changes; /* waiters sleep until this changes */
    int waiters;
} plim__condition_t;

/* Releases the lock while waiting. */
void plim__condition_wait(plim__condition_t *condition, pthread_mutex_t *lock);

/* The same for at most so many nanoseconds. */
void plim__condition_wait_for(plim__condition_t *condition, pthread_mutex_t *lock,
                              int64_t nanoseconds);

/* Wakes up to `count` waiters. */
void plim__condition_wake(plim__condition_t *condition, int count);
void plim__condition_wake_all(plim__condition_t *condition);

#endif
