#include "support/harness.h"
#include "support/wrapped.h"

#include "mem/arena.h"
#include "mem/ledger.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void test_directory_make(char path_out[512])
{
    const char *base = getenv("TMPDIR");
    (void)snprintf(path_out, 512, "%s/plimsoll-test-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(path_out));
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

void test_directory_remove(const char *path)
{
    assert_int_equal(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* Bytes that the process of every test counts as. */
#define PROCESS_BYTES ((int64_t)8 << 20)

plim_job_t test_job_make(int64_t line_bytes, int threads, plim_io_engine_t engine)
{
    plim_job_t job;
    plim_account_info_t process;
    assert_ok(test_job_try(line_bytes, threads, engine, &job));
    assert_true(plim__ledger_accounts(job.ledger, 1, &process) > 0);
    if (process.reserved > PROCESS_BYTES)
        plim__ledger_release(job.ledger, 0, (size_t)(process.reserved - PROCESS_BYTES));
    job.ledger->peak = plim__ledger_reserved(job.ledger);
    return job;
}

plim_status_t test_job_try(int64_t line_bytes, int threads, plim_io_engine_t engine,
                           plim_job_t *job_out)
{
    plim_job_params_t params = PLIM_JOB_PARAMS_INIT;
    plim_job_t *job;
    params.line = line_bytes;
    params.threads = threads;
    params.io_engine = engine;
    const plim_status_t status = plim_job_create(&params, &job);
    if (status == PLIM_OK)
        *job_out = *job;
    return status;
}

void test_job_end(plim_job_t *job)
{
    plim_job_release(job);
    *job = (plim_job_t){0};
}

void test_assert_ok(plim_status_t status, const char *call, const char *file, int line)
{
    if (status != PLIM_OK)
        print_error("%s: %s: %s\n", call, plim_status_name(status), plim_last_error());
    _assert_true(status == PLIM_OK, call, file, line);
}

void test_fail_each_arena(plim_job_t *job, plim_status_t (*body)(plim_job_t *job, void *context),
                          void *context)
{
    int64_t before = plim__ledger_reserved(job->ledger);
    for (int n = 1;; n++) {
        test_map_fail_at(n);
        plim_status_t status = body(job, context);
        bool failed = test_map_fail_pending() == 0;
        test_map_fail_at(0);
        assert_int_equal(plim__ledger_reserved(job->ledger), before);
        if (!failed) {
            assert_ok(status);
            return;
        }
        assert_int_equal(status, PLIM_ERR_NOMEM);
    }
}

void test_skip_sanitized(const char *why)
{
    if (!TEST_SANITIZED)
        return;
    print_message("SKIPPED: %s\n", why);
    skip();
}
