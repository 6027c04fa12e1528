#include "base/threads.h"

#include "base/condition.h"
#include "base/delay.h"
#include "base/fail.h"

#include <signal.h>

static _Thread_local bool is_ours;
static _Thread_local const void *owner; /* host thread of a library thread */

/* Bytes of each stack that are touched at its start, so that the process does not grow when a
 * thread first gets work, which may be much later. */
#define TOUCHED_BYTES ((size_t)48 << 10)

static __attribute__((noinline)) void touch_stack(void)
{
    volatile char pages[TOUCHED_BYTES];
    for (size_t i = 0; i < sizeof pages; i += 1024)
        pages[i] = 0;
}

bool plim__thread_is_ours(void)
{
    return is_ours;
}

const void *plim__thread_owner(void)
{
    return is_ours ? owner : &owner;
}

int plim__thread_create(const pthread_attr_t *attributes, void *(*body)(void *), void *context,
                        pthread_t *handle_out)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(handle_out, attributes, body, context);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static void *thread_main(void *argument)
{
    plim__thread_t *thread = argument;
    is_ours = true;
    owner = thread->owner;
    touch_stack();
    plim__delay();
    thread->body(thread->context);
    return NULL;
}

plim_status_t plim__thread_start(plim__thread_t *thread, void (*body)(void *), void *context)
{
    pthread_attr_t attributes;
    thread->handle = (pthread_t){0};
    thread->body = body;
    thread->context = context;
    thread->owner = plim__thread_owner();
    int error = pthread_attr_init(&attributes);
    if (error != 0)
        return plim__fail_errno(error, "cannot prepare a thread");
    (void)pthread_attr_setstacksize(&attributes, PLIM__STACK_BYTES);
    error = plim__thread_create(&attributes, thread_main, thread, &thread->handle);
    (void)pthread_attr_destroy(&attributes);
    if (error != 0)
        return plim__fail_errno(error, "cannot start a thread (ulimit -u may be too low)");
    return PLIM_OK;
}

void plim__thread_join(plim__thread_t *thread)
{
    (void)pthread_join(thread->handle, NULL);
}

/* State of one parallel call; the lock guards status and message. */
typedef struct thread_group {
    plim_status_t (*work)(void *context, int worker);
    void *context;
    pthread_mutex_t lock;
    plim_status_t status;
    plim__failure_t failure;
} thread_group_t;

typedef struct group_member {
    plim__thread_t thread;
    thread_group_t *group;
    int number;
} group_member_t;

static void group_work(thread_group_t *group, int number)
{
    plim_status_t status = group->work(group->context, number);
    if (status == PLIM_OK)
        return;
    pthread_mutex_lock(&group->lock);
    if (group->status == PLIM_OK) {
        group->status = status;
        plim__fail_save(&group->failure);
    }
    pthread_mutex_unlock(&group->lock);
}

static void member_body(void *argument)
{
    group_member_t *member = argument;
    group_work(member->group, member->number);
}

plim_status_t plim__parallel(int threads, plim_status_t (*work)(void *context, int worker),
                             void *context)
{
    thread_group_t group = {.work = work, .context = context, .lock = PTHREAD_MUTEX_INITIALIZER};
    group_member_t members[PLIM__THREADS_MAX];
    int started = 1;
    if (threads > PLIM__THREADS_MAX)
        threads = PLIM__THREADS_MAX;
    for (; started < threads; started++) {
        group_member_t *member = &members[started];
        member->group = &group;
        member->number = started;
        if (plim__thread_start(&member->thread, member_body, member) != PLIM_OK)
            break;
    }
    group_work(&group, 0);
    for (int i = 1; i < started; i++)
        plim__thread_join(&members[i].thread);
    pthread_mutex_destroy(&group.lock);
    return group.status == PLIM_OK ? PLIM_OK : plim__fail_restore(group.status, &group.failure);
}

/* `next` hands out tasks; a task is taken when `turn` reaches it; `ended` stops all threads. */
typedef struct ordered {
    plim_status_t (*make)(void *context, int worker, int64_t task);
    plim_status_t (*take)(void *context, int worker, int64_t task);
    void *context;
    int64_t count;
    pthread_mutex_t lock;
    plim__condition_t moved;
    int64_t next;
    int64_t turn;
    bool ended;
} ordered_t;

static int64_t ordered_claim(ordered_t *ordered)
{
    pthread_mutex_lock(&ordered->lock);
    int64_t task = ordered->ended || ordered->next == ordered->count ? -1 : ordered->next++;
    pthread_mutex_unlock(&ordered->lock);
    return task;
}

/* Waits until every earlier task was taken; false if one of them failed. */
static bool ordered_wait(ordered_t *ordered, int64_t task)
{
    pthread_mutex_lock(&ordered->lock);
    while (!ordered->ended && ordered->turn != task)
        plim__condition_wait(&ordered->moved, &ordered->lock);
    bool mine = !ordered->ended;
    pthread_mutex_unlock(&ordered->lock);
    return mine;
}

static void ordered_pass(ordered_t *ordered, bool failed)
{
    pthread_mutex_lock(&ordered->lock);
    ordered->turn++;
    ordered->ended = ordered->ended || failed;
    plim__condition_wake_all(&ordered->moved);
    pthread_mutex_unlock(&ordered->lock);
}

static plim_status_t ordered_work(void *argument, int worker)
{
    ordered_t *ordered = argument;
    for (;;) {
        int64_t task = ordered_claim(ordered);
        if (task < 0)
            return PLIM_OK;
        plim_status_t status = ordered->make(ordered->context, worker, task);
        /* An error waits for its turn too, so that the first task's error is reported. */
        if (!ordered_wait(ordered, task))
            return PLIM_OK;
        if (status == PLIM_OK)
            status = ordered->take(ordered->context, worker, task);
        ordered_pass(ordered, status != PLIM_OK);
        if (status != PLIM_OK)
            return status;
    }
}

plim_status_t plim__ordered(int threads, int64_t count,
                            plim_status_t (*make)(void *context, int worker, int64_t task),
                            plim_status_t (*take)(void *context, int worker, int64_t task),
                            void *context)
{
    ordered_t ordered = {.make = make,
                         .take = take,
                         .context = context,
                         .count = count,
                         .lock = PTHREAD_MUTEX_INITIALIZER};
    plim_status_t status = plim__parallel(threads, ordered_work, &ordered);
    pthread_mutex_destroy(&ordered.lock);
    return status;
}
