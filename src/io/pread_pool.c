#include "io/pread_pool.h"

#include "base/check.h"
#include "base/condition.h"
#include "base/delay.h"
#include "base/fail.h"
#include "base/threads.h"
#include "io/transfer.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

/* pread needs little stack; ThreadSanitizer also keeps its state of a thread there. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define STACK_LEAST ((size_t)1 << 20)
#else
#define STACK_LEAST ((size_t)32 << 10)
#endif
/* A thread takes about 30 KiB of kernel memory; this much is more than its unused stack. It is
 * counted with the stack, though it is elsewhere. */
#define KERNEL_BYTES ((size_t)8 << 10)

#define ENOUGH_FINISHED 16

struct plim__pread_pool {
    pthread_mutex_t lock; /* guards everything below but the handles */
    plim__condition_t handed;
    plim__condition_t ended;
    plim__op_t *first; /* to run, oldest first */
    plim__op_t *last;
    plim__op_t *finished; /* ended, not yet collected */
    int num_finished;
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
        while (pool->first == NULL && !pool->stopping)
            plim__condition_wait(&pool->handed, &pool->lock);
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
        if (ready_to_collect(pool))
            plim__condition_wake(&pool->ended, 1);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/*
 * Bytes of a thread's stack and its guard page. glibc puts the static TLS of the whole process on
 * each stack; only __pthread_get_minstack tells its size, which the Rust and Java runtimes look up
 * in the same way.
 */
static size_t stack_bytes(void)
{
    static _Atomic size_t known;
    size_t bytes = atomic_load(&known), (*minimum)(const pthread_attr_t *);
    pthread_attr_t attributes;
    if (bytes > 0)
        return bytes;
    bytes = STACK_LEAST;
    *(void **)&minimum = dlsym(RTLD_DEFAULT, "__pthread_get_minstack");
    if (minimum != NULL && pthread_attr_init(&attributes) == 0) {
        const size_t needed = plim__round_up(minimum(&attributes), PLIM__PAGE) + PLIM__PAGE;
        bytes = needed > bytes ? needed : bytes;
        (void)pthread_attr_destroy(&attributes);
    }
    atomic_store(&known, bytes);
    return bytes;
}

size_t plim__pread_pool_bytes(int threads)
{
    return plim__round_up(sizeof(plim__pread_pool_t), PLIM__PAGE) +
           (size_t)threads * (stack_bytes() + KERNEL_BYTES);
}

/* The stack is the arena's, so that it is counted exactly. Its lowest page is the guard. */
static int start_one(plim__pread_pool_t *pool, char *stack)
{
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error != 0)
        return error;
    (void)mprotect(stack, PLIM__PAGE, PROT_NONE);
    error = pthread_attr_setstack(&attributes, stack + PLIM__PAGE, stack_bytes() - PLIM__PAGE);
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
    int error = 0;
    pthread_mutex_init(&pool->lock, NULL);
    for (int i = 0; i < threads && error == 0; i++)
        error = start_one(pool, stacks + (size_t)i * stack_bytes());
    if (pool->num_threads == 0) {
        plim__pread_pool_stop(pool);
        return plim__fail_errno(error, "cannot start a thread for I/O%s",
                                error == EAGAIN ? "; ulimit -u may be too low" : "");
    }
    return PLIM_OK;
}

void plim__pread_pool_stop(plim__pread_pool_t *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    plim__condition_wake_all(&pool->handed);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->num_threads; i++)
        (void)pthread_join(pool->handles[i], NULL);
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
    plim__condition_wake(&pool->handed, count);
    pthread_mutex_unlock(&pool->lock);
}

plim__op_t *plim__pread_pool_collect(plim__pread_pool_t *pool)
{
    pthread_mutex_lock(&pool->lock);
    while (!ready_to_collect(pool))
        plim__condition_wait(&pool->ended, &pool->lock);
    plim__op_t *list = pool->finished;
    pool->finished = NULL;
    pool->num_finished = 0;
    pthread_mutex_unlock(&pool->lock);
    return list;
}
