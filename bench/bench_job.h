/* A job for a benchmark that reaches into the library. */
#ifndef PLIM_BENCH_JOB_H
#define PLIM_BENCH_JOB_H

#include "base/job.h"

/* Makes a job of this line; threads, engine and callbacks are as they are set in *job. */
static inline plim_status_t bench_job_make(int64_t line, plim_job_t *job)
{
    plim_job_params_t params = PLIM_JOB_PARAMS_INIT;
    plim_job_t *made;
    params.line = line;
    PLIM_TRY(plim_job_create(&params, &made));
    job->core = made->core;
    job->ledger = made->ledger;
    job->stop = made->stop;
    return PLIM_OK;
}

#endif
