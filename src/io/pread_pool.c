#include "io/pread_pool.h"

#include "base/check.h"
#include "base/delay.h"
#include "base/fail.h"
#include "base/threads.h"
#include "io/transfer.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

/* pread needs little stack; ThreadSanitizer also keeps its state of a thread there. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define STACK_BYTES ((size_t)1 << 20)
#else
#define STACK_BYTES ((size_t)32 << 10)
#endif
/* A thread takes about 30 KiB of kernel memory; this much is more than its unused stack. It is
 * counted with the stack, though it is elsewhere. */
#define KERNEL_BYTES ((size_t)8 << 10)

#define ENOUGH_FINISHED 16

/* glibc before 2.41 may lose a signal to a condition that several threads wait for (its bug 25847):
 * the collector wakes idle threads again after this long. */
#define LOOK_AGAIN_NS 20000000

struct plim__pread_pool {
    pthread_mutex_t lock; /* guards everything below but the handles */
    pthread_cond_t handed;
    pthread_cond_t ended;
    plim__op_t *first; /* to run, oldest first */
    plim__op_t *last;
    plim__op_t *finished; /* ended, not yet collected */
    int num_finished;
    int idle;        /* threads that wait for `handed` */
    bool collecting; /* the owner waits for `ended` */
    bool stopping;
    int num_threads;
    pthread_t handles[PLIM__PREAD_POOL_THREADS_MAX];
};

/*
 * Whether to wake the owner. Not while the threads have enough to do: a context switch for every
 * small read would cost more than the read.
 */
static bool ready_to_collect(const plim__pread_pool_t *pool)
{
    return pool->num_finished >= ENOUGH_FINISHED || (pool->num_finished > 0 && pool->first == NULL);
}

static void *pool_main(void *argument)
{
    plim__pread_pool_t *pool = argument;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->first == NULL && !pool->stopping) {
            pool->idle++;
            pthread_cond_wait(&pool->handed, &pool->lock);
            pool->idle--;
        }
        plim__op_t *op = pool->first;
        if (op == NULL)
            break;
        pool->first = op->next;
        pthread_mutex_unlock(&pool->lock);
        plim__delay();
        plim__transfer_run(op);
        pthread_mutex_lock(&pool->lock);
        op->next = pool->finished;
        pool->finished = op;
        pool->num_finished++;
        if (pool->collecting && ready_to_collect(pool))
            pthread_cond_signal(&pool->ended);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

size_t plim__pread_pool_bytes(int threads)
{
    return plim__round_up(sizeof(plim__pread_pool_t), PLIM__PAGE) +
           (size_t)threads * (STACK_BYTES + KERNEL_BYTES);
}

/* The stack is the arena's, so that it is counted exactly. */
static int start_one(plim__pread_pool_t *pool, char *stack)
{
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error != 0)
        return error;
    error = pthread_attr_setstack(&attributes, stack, STACK_BYTES);
    if (error == 0)
        error =
            plim__thread_create(&attributes, pool_main, pool, &pool->handles[pool->num_threads]);
    (void)pthread_attr_destroy(&attributes);
    if (error == 0)
        pool->num_threads++;
    return error;
}

plim_status_t plim__pread_pool_start(plim__pread_pool_t *pool, int threads)
{
    char *stacks = (char *)pool + plim__round_up(sizeof *pool, PLIM__PAGE);
    pthread_condattr_t attributes;
    int error = 0;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->handed, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&pool->ended, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    for (int i = 0; i < threads && error == 0; i++)
        error = start_one(pool, stacks + (size_t)i * STACK_BYTES);
    if (pool->num_threads == 0) {
        plim__pread_pool_stop(pool);
        return plim__fail_errno(error, "cannot start a thread for I/O; ulimit -u may be too low");
    }
    return PLIM_OK;
}

void plim__pread_pool_stop(plim__pread_pool_t *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->handed);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->num_threads; i++)
        (void)pthread_join(pool->handles[i], NULL);
    pthread_cond_destroy(&pool->ended);
    pthread_cond_destroy(&pool->handed);
    pthread_mutex_destroy(&pool->lock);
}

void plim__pread_pool_hand(plim__pread_pool_t *pool, plim__op_t *first, plim__op_t *last, int count)
{
    pthread_mutex_lock(&pool->lock);
    if (pool->first == NULL)
        pool->first = first;
    else
        pool->last->next = first;
    pool->last = last;
    for (int i = 0; i < count && i < pool->idle; i++)
        pthread_cond_signal(&pool->handed);
    pthread_mutex_unlock(&pool->lock);
}

/* Waits for `ended`; after a timeout, wakes idle threads again. */
static void wait_for_some(plim__pread_pool_t *pool)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_AGAIN_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    if (pthread_cond_timedwait(&pool->ended, &pool->lock, &until) == ETIMEDOUT &&
        pool->first != NULL && pool->idle > 0)
        pthread_cond_broadcast(&pool->handed);
}

plim__op_t *plim__pread_pool_collect(plim__pread_pool_t *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->collecting = true;
    while (!ready_to_collect(pool))
        wait_for_some(pool);
    pool->collecting = false;
    plim__op_t *list = pool->finished;
    pool->finished = NULL;
    pool->num_finished = 0;
    pthread_mutex_unlock(&pool->lock);
    return list;
}
