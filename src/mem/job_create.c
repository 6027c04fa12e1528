/* Making and ending jobs. A job owns its ledger, and like it has pages of its own. */
#include "base/fail.h"
#include "base/params.h"
#include "base/process.h"
#include "mem/ledger.h"

#include <sys/mman.h>
#include <unistd.h>

/* The core first, which all copies of the job point to. */
typedef struct whole_job {
    plim__job_core_t core;
    plim_job_t job; /* the one that the host has */
} whole_job_t;

static bool is_here(const plim_job_t *job)
{
    return job->core != NULL && plim__process_is(job->core->process);
}

/* The longest timeout; its nanoseconds fit 64 bits. */
#define TIMEOUT_SECONDS_MOST 1e9
#define TRANSPORT_BYTES_MOST ((int64_t)1 << 40)

/* Checks and copies the host's transport; NULL: one rank. */
static plim_status_t take_transport(const plim_transport_t *transport, plim_transport_t *known_out)
{
    if (transport == NULL)
        return PLIM_OK;
    PLIM_TRY(plim__params_take(transport, "plim_transport_t", known_out, sizeof *known_out));
    const plim_transport_t *known = known_out;
    if (known->num_ranks < 1 || known->num_ranks > PLIM_RANKS_MAX || known->rank < 0 ||
        known->rank >= known->num_ranks || known->local_ranks < 1 ||
        known->local_ranks > known->num_ranks || known->local_rank < 0 ||
        known->local_rank >= known->local_ranks || known->bytes < 0 ||
        known->bytes > TRANSPORT_BYTES_MOST ||
        !(known->timeout_seconds >= 0 && known->timeout_seconds <= TIMEOUT_SECONDS_MOST))
        return plim__fail(
            PLIM_ERR_USAGE,
            "the transport says rank %d of %d, and %d of %d on this node, with a "
            "timeout of %g s and %lld bytes: ranks count from 0, and at most %d can be joined",
            known->rank, known->num_ranks, known->local_rank, known->local_ranks,
            known->timeout_seconds, (long long)known->bytes, PLIM_RANKS_MAX);
    if (known->num_ranks > 1 &&
        (known->start_all_to_all == NULL || known->start_all_gather == NULL ||
         known->start_broadcast == NULL || known->test == NULL || known->absent == NULL ||
         known->message == NULL))
        return plim__fail(PLIM_ERR_USAGE, "the transport lacks functions: a plugin fills in all "
                                          "of plim_transport_t");
    return PLIM_OK;
}

PLIM_API plim_status_t plim_job_create(const plim_job_params_t *params, plim_job_t **job_out)
{
    plim_job_params_t known = PLIM_JOB_PARAMS_INIT;
    plim_transport_t transport = PLIM_TRANSPORT_INIT;
    plim_ledger_t *ledger;
    PLIM_TRY(plim__params_take(params, "plim_job_params_t", &known, sizeof known));
    PLIM_TRY(take_transport(known.transport, &transport));
    PLIM_TRY(plim__ledger_create(known.line, known.threads, known.plan_only, &ledger));
    whole_job_t *whole = plim__map_own(sizeof *whole);
    if (whole == MAP_FAILED) {
        plim__ledger_destroy(ledger);
        return plim__fail(PLIM_ERR_NOMEM, "no memory for the job itself");
    }
    whole->core.process = getpid();
    whole->core.transport = transport;
    atomic_init(&whole->core.count, 1);
    pthread_mutex_init(&whole->core.lock, NULL);
    whole->job = (plim_job_t){.core = &whole->core,
                              .ledger = ledger,
                              .threads = known.threads,
                              .io_engine = known.io_engine,
                              .log = known.log,
                              .progress = known.progress,
                              .user = known.user,
                              .stop = &whole->core.stop};
    *job_out = &whole->job;
    return PLIM_OK;
}

PLIM_API void plim_job_retain(const plim_job_t *job)
{
    if (job != NULL && is_here(job))
        atomic_fetch_add(&job->core->count, 1);
}

PLIM_API void plim_job_release(const plim_job_t *job)
{
    if (job == NULL || !is_here(job) || atomic_fetch_sub(&job->core->count, 1) != 1)
        return;
    whole_job_t *whole = (whole_job_t *)job->core;
    plim_ledger_t *ledger = whole->job.ledger;
    pthread_mutex_destroy(&whole->core.lock);
    (void)munmap(whole, sizeof *whole);
    plim__ledger_destroy(ledger);
}

PLIM_API void plim_job_stop(plim_job_t *job, bool stop)
{
    if (is_here(job))
        __atomic_store_n(&job->core->stop, stop, __ATOMIC_RELAXED);
}

PLIM_API plim_status_t plim_job_info(const plim_job_t *job, plim_job_info_t *info_out)
{
    if (!is_here(job))
        return plim__process_check(0); /* refuses: the job is another process's */
    PLIM_TRY(plim__output_check(info_out, "plim_job_info_t"));
    const plim_job_info_t info = {.line = plim__ledger_line(job->ledger),
                                  .reserved = plim__ledger_reserved(job->ledger),
                                  .peak = plim__ledger_peak(job->ledger)};
    plim__output_give(info_out, &info, sizeof info);
    return PLIM_OK;
}

PLIM_API bool plim_job_account(const plim_job_t *job, int index, plim_account_info_t *info_out)
{
    plim_account_info_t infos[PLIM__ACCOUNTS_MAX];
    if (!is_here(job) || plim__output_check(info_out, "plim_account_info_t") != PLIM_OK ||
        index < 0 || index >= plim__ledger_accounts(job->ledger, PLIM__ACCOUNTS_MAX, infos))
        return false;
    plim__output_give(info_out, &infos[index], sizeof infos[index]);
    return true;
}
