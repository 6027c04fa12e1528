#include "base/condition.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A change between reading `changes` and going to sleep makes the kernel return at once. */
static void wait_until(plim__condition_t *condition, pthread_mutex_t *lock,
                       const struct timespec *limit)
{
    const int error = errno;
    const uint32_t seen = atomic_load(&condition->changes);
    condition->waiters++;
    pthread_mutex_unlock(lock);
    (void)syscall(SYS_futex, &condition->changes, FUTEX_WAIT_PRIVATE, seen, limit, NULL, 0);
    pthread_mutex_lock(lock);
    condition->waiters--;
    errno = error;
}

void plim__condition_wait(plim__condition_t *condition, pthread_mutex_t *lock)
{
    wait_until(condition, lock, NULL);
}

void plim__condition_wait_for(plim__condition_t *condition, pthread_mutex_t *lock,
                              int64_t nanoseconds)
{
    if (nanoseconds <= 0)
        return;
    const struct timespec limit = {nanoseconds / 1000000000, nanoseconds % 1000000000};
    wait_until(condition, lock, &limit);
}

void plim__condition_wake(plim__condition_t *condition, int count)
{
    if (condition->waiters == 0 || count <= 0)
        return;
    const int error = errno;
    atomic_fetch_add(&condition->changes, 1);
    (void)syscall(SYS_futex, &condition->changes, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
    errno = error;
}

void plim__condition_wake_all(plim__condition_t *condition)
{
    plim__condition_wake(condition, INT_MAX);
}
