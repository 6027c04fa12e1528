/* What the library asks of a job: to speak, and whether to stop. */
#ifndef PLIM_BASE_JOB_H
#define PLIM_BASE_JOB_H

#include <plimsoll/job.h>

void plim__log(const plim_job_t *job, plim_log_level_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void plim__progress(const plim_job_t *job, const char *phase, const char *unit, int64_t done,
                    int64_t total);

/* The job's threads, as far as they can be used: from 1 to PLIM__THREADS_MAX. */
int plim__job_threads(const plim_job_t *job);

/* PLIM_ERR_STOPPED once the stop flag is up; asked between pieces of long work. */
plim_status_t plim__job_check(const plim_job_t *job);

#endif
