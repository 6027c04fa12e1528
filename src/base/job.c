#include "base/job.h"

#include "base/process.h"
#include "base/threads.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local const plim__job_core_t *inside; /* whose call this thread is in */
static _Thread_local locale_t host_locale;           /* of the thread outside of that call */

/* The place for one more event; the queue's oldest gives way when it is full. Lock held. */
static plim__job_event_t *add_event(plim__job_core_t *core)
{
    int count = atomic_load(&core->num_events);
    if (count == PLIM__JOB_EVENTS) {
        core->dropped += core->events[core->first].is_log;
        core->first = (core->first + 1) % PLIM__JOB_EVENTS;
        count--;
    }
    atomic_store(&core->num_events, count + 1);
    return &core->events[(core->first + count) % PLIM__JOB_EVENTS];
}

void plim__log(const plim_job_t *job, plim_log_level_t level, const char *format, ...)
{
    char text[PLIM_MESSAGE_MAX];
    va_list arguments;
    if (job->log == NULL)
        return;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&job->core->lock);
    plim__job_event_t *event = add_event(job->core);
    event->is_log = true;
    event->owner = plim__thread_owner();
    event->level = level;
    memcpy(event->text, text, sizeof text);
    pthread_mutex_unlock(&job->core->lock);
}

/* The newest event, when it is progress of the same phase: it is out of date now. Lock held. */
static plim__job_event_t *same_phase(plim__job_core_t *core, const char *phase)
{
    const int count = atomic_load(&core->num_events);
    if (count == 0)
        return NULL;
    plim__job_event_t *last = &core->events[(core->first + count - 1) % PLIM__JOB_EVENTS];
    return !last->is_log && last->owner == plim__thread_owner() && strcmp(last->text, phase) == 0
               ? last
               : NULL;
}

void plim__progress(const plim_job_t *job, const char *phase, const char *unit, int64_t done,
                    int64_t total)
{
    if (job->progress == NULL)
        return;
    pthread_mutex_lock(&job->core->lock);
    plim__job_event_t *event = same_phase(job->core, phase);
    if (event == NULL) {
        event = add_event(job->core);
        event->is_log = false;
        event->owner = plim__thread_owner();
        event->done = INT64_MIN;
        (void)snprintf(event->text, sizeof event->text, "%s", phase);
        (void)snprintf(event->unit, sizeof event->unit, "%s", unit);
    }
    /* Threads report out of order; the farthest one is right. */
    if (done > event->done) {
        event->done = done;
        event->total = total;
    }
    pthread_mutex_unlock(&job->core->lock);
    plim__job_deliver(job);
}

locale_t plim__host_locale(void)
{
    return uselocale(inside != NULL ? host_locale : (locale_t)0);
}

static void call_back(const plim_job_t *job, const plim__job_event_t *event, int dropped)
{
    const locale_t ours = plim__host_locale();
    if (dropped > 0 && job->log != NULL) {
        char text[96];
        (void)snprintf(text, sizeof text,
                       "%d earlier messages were dropped: no call delivered them", dropped);
        job->log(job->user, PLIM_LOG_WARNING, text);
    }
    if (event->is_log && job->log != NULL)
        job->log(job->user, event->level, event->text);
    const plim_progress_t progress = {event->text, event->unit, event->done, event->total};
    if (!event->is_log && job->progress != NULL)
        job->progress(job->user, &progress);
    (void)uselocale(ours);
}

/* Takes the oldest event that this thread may deliver out of the queue. Lock held. */
static bool take_event(plim__job_core_t *core, plim__job_event_t *event_out)
{
    const int count = atomic_load(&core->num_events);
    const bool alone = atomic_load(&core->calls) <= 1;
    for (int i = 0; i < count; i++) {
        plim__job_event_t *event = &core->events[(core->first + i) % PLIM__JOB_EVENTS];
        if (!alone && event->owner != plim__thread_owner())
            continue;
        *event_out = *event;
        for (int j = i; j > 0; j--) /* those before it move up */
            core->events[(core->first + j) % PLIM__JOB_EVENTS] =
                core->events[(core->first + j - 1) % PLIM__JOB_EVENTS];
        core->first = (core->first + 1) % PLIM__JOB_EVENTS;
        atomic_store(&core->num_events, count - 1);
        return true;
    }
    return false;
}

void plim__job_deliver(const plim_job_t *job)
{
    plim__job_core_t *core = job->core;
    plim__job_event_t event;
    plim__failure_t failure;
    if (plim__thread_is_ours() || atomic_load(&core->num_events) == 0)
        return;
    pthread_mutex_lock(&core->lock);
    if (core->delivering) { /* by another thread, or by a callback that called us */
        pthread_mutex_unlock(&core->lock);
        return;
    }
    core->delivering = true;
    plim__fail_save(&failure);
    /* No more than the queue holds at once: others may be adding to it all the time. */
    for (int i = 0; i < PLIM__JOB_EVENTS && take_event(core, &event); i++) {
        const int dropped = core->dropped;
        core->dropped = 0;
        pthread_mutex_unlock(&core->lock);
        call_back(job, &event, dropped);
        pthread_mutex_lock(&core->lock);
    }
    core->delivering = false;
    pthread_mutex_unlock(&core->lock);
    (void)plim__fail_restore(PLIM_OK, &failure);
}

int plim__job_threads(const plim_job_t *job)
{
    const int threads = job->threads > 1 ? job->threads : 1;
    return threads < PLIM__THREADS_MAX ? threads : PLIM__THREADS_MAX;
}

plim_status_t plim__job_check(const plim_job_t *job)
{
    plim__job_deliver(job);
    return plim__job_stopped(job);
}

plim_status_t plim__job_stopped(const plim_job_t *job)
{
    if (job->stop != NULL && __atomic_load_n(job->stop, __ATOMIC_RELAXED) != 0)
        return plim__fail(PLIM_ERR_STOPPED, "stopped on request");
    return PLIM_OK;
}

plim_status_t plim__job_enter(const plim_job_t *job, plim__job_call_t *call_out)
{
    PLIM_TRY(plim__process_check(job->core != NULL ? job->core->process : 0));
    /* The C locale always exists, and takes no memory. */
    *call_out =
        (plim__job_call_t){job, inside, uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0))};
    if (inside == NULL)
        host_locale = call_out->locale;
    if (inside != job->core) /* else a call inside of another */
        atomic_fetch_add(&job->core->calls, 1);
    inside = job->core;
    return PLIM_OK;
}

void plim__job_leave(const plim__job_call_t *call)
{
    if (call->job == NULL)
        return;
    plim__job_deliver(call->job);
    if (call->outer != inside)
        atomic_fetch_sub(&call->job->core->calls, 1);
    inside = call->outer;
    (void)uselocale(call->locale);
}
