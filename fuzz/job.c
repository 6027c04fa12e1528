#include "fuzz.h"

#include "base/job.h"
#include "mem/ledger.h"

static plim_job_t *job;
static int64_t reserved;

const plim_job_t *fuzz_job(void)
{
    const plim_job_params_t params = PLIM_JOB_PARAMS_INIT;
    if (job == NULL) {
        FUZZ_ASSERT(plim_job_create(&params, &job) == PLIM_OK);
        reserved = plim__ledger_reserved(job->ledger);
    }
    return job;
}

void fuzz_check_ledger(void)
{
    FUZZ_ASSERT(plim__ledger_reserved(fuzz_job()->ledger) == reserved);
}
