#include "fuzz.h"

static plim_job_t job = PLIM_JOB_INIT;
static int64_t reserved;

const plim_job_t *fuzz_job(void)
{
    if (job.ledger == NULL) {
        FUZZ_ASSERT(plim_ledger_create(PLIM_LINE_NONE, &job.ledger) == PLIM_OK);
        reserved = plim_ledger_reserved(job.ledger);
    }
    return &job;
}

void fuzz_check_ledger(void)
{
    FUZZ_ASSERT(plim_ledger_reserved(fuzz_job()->ledger) == reserved);
}
