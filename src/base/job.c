#include "base/job.h"

#include "base/fail.h"
#include "base/threads.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

/* One speaker at a time, whatever thread it is in. */
static pthread_mutex_t speaking = PTHREAD_MUTEX_INITIALIZER;

void plim__log(const plim_job_t *job, plim_log_level_t level, const char *format, ...)
{
    char text[PLIM_MESSAGE_MAX];
    va_list arguments;
    if (job->log == NULL)
        return;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&speaking);
    job->log(job->user, level, text);
    pthread_mutex_unlock(&speaking);
}

void plim__progress(const plim_job_t *job, const char *phase, const char *unit, int64_t done,
                    int64_t total)
{
    if (job->progress == NULL)
        return;
    plim_progress_t progress = {phase, unit, done, total};
    pthread_mutex_lock(&speaking);
    job->progress(job->user, &progress);
    pthread_mutex_unlock(&speaking);
}

int plim__job_threads(const plim_job_t *job)
{
    const int threads = job->threads > 1 ? job->threads : 1;
    return threads < PLIM__THREADS_MAX ? threads : PLIM__THREADS_MAX;
}

plim_status_t plim__job_check(const plim_job_t *job)
{
    if (job->stop != NULL && __atomic_load_n(job->stop, __ATOMIC_RELAXED) != 0)
        return plim__fail(PLIM_ERR_STOPPED, "stopped on request; nothing was left behind");
    return PLIM_OK;
}
