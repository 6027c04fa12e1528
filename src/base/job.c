#include "base/job.h"

#include "base/process.h"
#include "base/threads.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
    return !last->is_log && strcmp(last->text, phase) == 0 ? last : NULL;
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

static void call_back(const plim_job_t *job, const plim__job_event_t *event, int dropped)
{
    if (dropped > 0 && job->log != NULL) {
        char text[96];
        (void)snprintf(text, sizeof text,
                       "%d earlier messages were dropped: no call was there to deliver them",
                       dropped);
        job->log(job->user, PLIM_LOG_WARNING, text);
    }
    if (event->is_log && job->log != NULL)
        job->log(job->user, event->level, event->text);
    const plim_progress_t progress = {event->text, event->unit, event->done, event->total};
    if (!event->is_log && job->progress != NULL)
        job->progress(job->user, &progress);
}

void plim__job_deliver(const plim_job_t *job)
{
    plim__job_core_t *core = job->core;
    char message[PLIM_MESSAGE_MAX];
    if (plim__thread_is_ours() || atomic_load(&core->num_events) == 0)
        return;
    pthread_mutex_lock(&core->lock);
    if (core->delivering) { /* by another thread, or by a callback that called us */
        pthread_mutex_unlock(&core->lock);
        return;
    }
    core->delivering = true;
    plim__fail_save(message, sizeof message);
    /* No more than the queue holds at once: others may be adding to it all the time. */
    for (int i = 0; i < PLIM__JOB_EVENTS && atomic_load(&core->num_events) > 0; i++) {
        const plim__job_event_t event = core->events[core->first];
        const int dropped = core->dropped;
        core->dropped = 0;
        core->first = (core->first + 1) % PLIM__JOB_EVENTS;
        atomic_fetch_sub(&core->num_events, 1);
        pthread_mutex_unlock(&core->lock);
        call_back(job, &event, dropped);
        pthread_mutex_lock(&core->lock);
    }
    core->delivering = false;
    pthread_mutex_unlock(&core->lock);
    (void)plim__fail_restore(PLIM_OK, message);
}

int plim__job_threads(const plim_job_t *job)
{
    const int threads = job->threads > 1 ? job->threads : 1;
    return threads < PLIM__THREADS_MAX ? threads : PLIM__THREADS_MAX;
}

plim_status_t plim__job_check(const plim_job_t *job)
{
    plim__job_deliver(job);
    if (job->stop != NULL && __atomic_load_n(job->stop, __ATOMIC_RELAXED) != 0)
        return plim__fail(PLIM_ERR_STOPPED, "stopped on request; nothing was left behind");
    return PLIM_OK;
}

plim_status_t plim__job_enter(const plim_job_t *job)
{
    return plim__process_check(job->core != NULL ? job->core->process : 0);
}

void plim__job_leave(const plim_job_t *const *job)
{
    if (plim__process_is((*job)->core != NULL ? (*job)->core->process : 0))
        plim__job_deliver(*job);
}
