/*
 * Several threads, each with an engine: the thread that submits a read also faults in and zeroes
 * its pages, which would keep a single thread busy.
 */
#include "io/bulk.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"
#include "io/engine.h"
#include "mem/arena.h"

#include <stdatomic.h>

#define DEPTH 8 /* chunks in flight a thread */
#define THREADS_MAX 8

typedef struct bulk {
    const plim_job_t *job;
    const plim__file_t *file;
    int64_t offset;
    char *to;
    int64_t bytes;
    plim__bulk_take_fn take;
    void *context;
    _Atomic int64_t next; /* offset of the next chunk in the range */
} bulk_t;

static int threads_at_most(const plim_job_t *job)
{
    return job->threads < THREADS_MAX ? job->threads : THREADS_MAX;
}

size_t plim__bulk_estimate(const plim_job_t *job)
{
    size_t threads = (size_t)threads_at_most(job);
    return threads * plim__engine_estimate(job->io_engine, DEPTH) +
           (threads - 1) * PLIM__STACK_BYTES;
}

/* Takes the next chunk. False when none is left. */
static bool next_chunk(bulk_t *bulk, plim__op_t *op)
{
    int64_t at = atomic_fetch_add(&bulk->next, (int64_t)PLIM__BULK_CHUNK);
    if (at >= bulk->bytes)
        return false;
    size_t left = plim__round_up((size_t)(bulk->bytes - at), bulk->file->align);
    *op = (plim__op_t){.file = bulk->file,
                       .offset = bulk->offset + at,
                       .data = bulk->to + at,
                       .size = left < PLIM__BULK_CHUNK ? left : PLIM__BULK_CHUNK};
    return true;
}

static plim_status_t take_chunk(const bulk_t *bulk, plim__engine_t *engine, plim__op_t *op)
{
    PLIM_TRY(plim__engine_wait(engine, op));
    PLIM_TRY(plim__job_check(bulk->job));
    int64_t at = op->offset - bulk->offset;
    int64_t size = plim__min_i64(bulk->bytes - at, (int64_t)PLIM__BULK_CHUNK);
    if (op->moved < (size_t)size)
        return plim__fail(PLIM_ERR_DATA, "%s is truncated at byte %lld; download or make it again",
                          bulk->file->path, (long long)(op->offset + (int64_t)op->moved));
    return bulk->take == NULL ? PLIM_OK : bulk->take(bulk->context, at, op->data, (size_t)size);
}

static plim_status_t read_chunks(bulk_t *bulk, plim__engine_t *engine)
{
    plim__op_t ops[DEPTH];
    int64_t begun = 0, ended = 0;
    plim_status_t status = PLIM_OK;
    bool more = true;
    for (;;) {
        while (more && begun - ended < DEPTH) {
            more = next_chunk(bulk, &ops[begun % DEPTH]);
            if (more)
                plim__engine_submit(engine, &ops[begun++ % DEPTH]);
        }
        if (ended == begun)
            return status;
        plim__op_t *op = &ops[ended++ % DEPTH];
        if (status == PLIM_OK) {
            status = take_chunk(bulk, engine, op);
        } else {
            plim__failure_t failure; /* keep the message of the first error */
            plim__fail_save(&failure);
            (void)plim__engine_wait(engine, op);
            (void)plim__fail_restore(status, &failure);
        }
        if (status != PLIM_OK)
            more = false;
    }
}

static plim_status_t bulk_worker(void *context, int worker)
{
    (void)worker;
    bulk_t *bulk = context;
    plim__engine_t *engine;
    PLIM_TRY(plim__engine_create(bulk->job, DEPTH, &engine));
    plim_status_t status = read_chunks(bulk, engine);
    plim__engine_destroy(engine);
    return status;
}

plim_status_t plim__bulk_read(const plim_job_t *job, const plim__file_t *file, int64_t offset,
                              void *to, int64_t bytes, plim__bulk_take_fn take, void *context)
{
    bulk_t bulk = {.job = job,
                   .file = file,
                   .offset = offset,
                   .to = to,
                   .bytes = bytes,
                   .take = take,
                   .context = context};
    int64_t chunks = (bytes - 1) / (int64_t)PLIM__BULK_CHUNK + 1;
    int account, threads = (int)plim__min_i64(threads_at_most(job), chunks);
    if (bytes <= 0)
        return PLIM_OK;
    size_t stacks = (size_t)(threads - 1) * PLIM__STACK_BYTES;
    PLIM_TRY(plim__ledger_reserve(job->ledger, "I/O", stacks, &account));
    plim_status_t status = plim__parallel(threads, bulk_worker, &bulk);
    plim__ledger_release(job->ledger, account, stacks);
    return status;
}
