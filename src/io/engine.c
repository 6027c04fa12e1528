/*
 * The interface of both engines. Submitted operations are queued and handed over several at a time;
 * `in_flight` counts the queued ones too. Only the caller's thread sets op->done, inside calls to
 * the engine, so reading it needs no lock.
 */
#include "io/engine.h"

#include "base/fail.h"
#include "base/job.h"
#include "io/pread_pool.h"
#include "io/ring.h"
#include "io/transfer.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

#define OP_BYTES_MAX ((size_t)1 << 30)
#define LOCKED_ENOUGH ((rlim_t)8 << 20) /* the default limit since Linux 5.16 */
#define QUEUED_MAX 16                   /* a queue of this length is handed over at once */

struct plim__engine {
    plim__arena_t arena;
    plim_io_engine_t kind;
    int depth;
    int in_flight; /* submitted, not yet done */
    int num_queued;
    plim__op_t *queued;
    plim__op_t *queued_last;
    plim__pread_pool_t *pool;
    plim__ring_t ring;
    size_t ring_bytes; /* of kernel memory, reserved beside the arena */
    int ring_account;
};

static int pool_threads(int depth)
{
    return depth < PLIM__PREAD_POOL_THREADS_MAX ? depth : PLIM__PREAD_POOL_THREADS_MAX;
}

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim__engine_t *engine = draft;
    if (engine->kind == PLIM_IO_THREADS)
        engine->pool = plim__arena_carve(
            arena, 1, plim__pread_pool_bytes(pool_threads(engine->depth)), PLIM__PAGE);
}

static size_t arena_bytes(plim_io_engine_t kind, int depth)
{
    plim__engine_t engine = {.kind = kind, .depth = depth};
    return plim__object_bytes(lay_out, &engine, sizeof engine);
}

/* Whether io_uring is certain to work. The kernel must offer it, and the limit on locked memory,
 * which rings count against before Linux 5.12, must be high. Tried once a process. */
static bool rings_are_sure(void)
{
    enum { UNKNOWN, NO, YES };
    static _Atomic int known = UNKNOWN;
    plim__ring_t ring;
    struct rlimit locked;
    if (atomic_load(&known) == UNKNOWN) {
        bool sure = getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur >= LOCKED_ENOUGH &&
                    plim__ring_start(&ring, 1) == 0;
        if (sure)
            plim__ring_stop(&ring);
        atomic_store(&known, sure ? YES : NO);
    }
    return atomic_load(&known) == YES;
}

size_t plim__engine_estimate(plim_io_engine_t kind, int depth)
{
    size_t ring = arena_bytes(PLIM_IO_URING, depth) + plim__ring_bytes(depth);
    size_t pool = arena_bytes(PLIM_IO_THREADS, depth);
    if (kind == PLIM_IO_AUTO && !rings_are_sure())
        return ring > pool ? ring : pool;
    return kind == PLIM_IO_THREADS ? pool : ring;
}

static plim_status_t create_ring(const plim_job_t *job, int depth, plim__engine_t **engine_out)
{
    plim__engine_t draft = {
        .kind = PLIM_IO_URING, .depth = depth, .ring_bytes = plim__ring_bytes(depth)};
    plim__engine_t *engine;
    PLIM_TRY(plim__ledger_reserve(job->ledger, "I/O", draft.ring_bytes, &draft.ring_account));
    plim_status_t status = plim__object_create(job->ledger, "I/O", lay_out, &draft, sizeof draft,
                                               &draft.arena, &engine);
    if (status != PLIM_OK)
        goto release;
    int error = plim__ring_start(&engine->ring, depth);
    if (error != 0) {
        plim__arena_destroy(&engine->arena);
        status = plim__fail(PLIM_ERR_UNSUPPORTED, "io_uring is unavailable: %s (errno %d); %s",
                            strerror(error), error,
                            job->io_engine == PLIM_IO_URING ? "set `io_engine` to threads"
                                                            : "using the thread engine");
        goto release;
    }
    *engine_out = engine;
    return PLIM_OK;
release:
    plim__ledger_release(job->ledger, draft.ring_account, draft.ring_bytes);
    return status;
}

static plim_status_t create_pool(const plim_job_t *job, int depth, plim__engine_t **engine_out)
{
    plim__engine_t draft = {.kind = PLIM_IO_THREADS, .depth = depth};
    plim__engine_t *engine;
    PLIM_TRY(plim__object_create(job->ledger, "I/O", lay_out, &draft, sizeof draft, &draft.arena,
                                 &engine));
    plim_status_t status = plim__pread_pool_start(engine->pool, pool_threads(depth));
    if (status != PLIM_OK)
        plim__arena_destroy(&engine->arena);
    else
        *engine_out = engine;
    return status;
}

plim_status_t plim__engine_create(const plim_job_t *job, int depth, plim__engine_t **engine_out)
{
    static atomic_flag logged = ATOMIC_FLAG_INIT;
    if (job->io_engine == PLIM_IO_THREADS)
        return create_pool(job, depth, engine_out);
    plim_status_t status = create_ring(job, depth, engine_out);
    if (status != PLIM_ERR_UNSUPPORTED || job->io_engine == PLIM_IO_URING)
        return status;
    if (job->log != NULL && !atomic_flag_test_and_set(&logged))
        plim__log(job, PLIM_LOG_INFO, "%s", plim_last_error());
    return create_pool(job, depth, engine_out);
}

/* Hands the queued operations over; a ring does not enter the kernel yet. */
static void hand_over(plim__engine_t *engine)
{
    plim__op_t *op = engine->queued;
    if (op == NULL)
        return;
    if (engine->kind == PLIM_IO_THREADS) {
        plim__pread_pool_hand(engine->pool, op, engine->queued_last, engine->num_queued);
    } else {
        while (op != NULL) {
            plim__op_t *next = op->next;
            plim__ring_put(&engine->ring, op);
            op = next;
        }
    }
    engine->queued = NULL;
    engine->num_queued = 0;
}

void plim__engine_flush(plim__engine_t *engine)
{
    hand_over(engine);
    if (engine->kind == PLIM_IO_URING)
        plim__ring_send(&engine->ring);
}

plim__op_t *plim__engine_progress(plim__engine_t *engine)
{
    if (engine->in_flight == 0)
        return NULL;
    hand_over(engine);
    plim__op_t *list = engine->kind == PLIM_IO_THREADS ? plim__pread_pool_collect(engine->pool)
                                                       : plim__ring_collect(&engine->ring);
    for (plim__op_t *op = list; op != NULL; op = op->next) {
        op->done = true;
        engine->in_flight--;
    }
    return list;
}

void plim__engine_submit(plim__engine_t *engine, plim__op_t *op)
{
    op->done = false;
    op->error = 0;
    op->moved = 0;
    op->next = NULL;
    if (op->size > OP_BYTES_MAX || op->offset < 0) {
        op->error = EINVAL;
        op->done = true;
        return;
    }
    while (engine->in_flight >= engine->depth)
        (void)plim__engine_progress(engine);
    if (engine->queued == NULL)
        engine->queued = op;
    else
        engine->queued_last->next = op;
    engine->queued_last = op;
    engine->in_flight++;
    if (++engine->num_queued >= QUEUED_MAX)
        plim__engine_flush(engine);
}

plim_status_t plim__engine_wait(plim__engine_t *engine, plim__op_t *op)
{
    while (!op->done)
        (void)plim__engine_progress(engine);
    return plim__transfer_status(op);
}

void plim__engine_destroy(plim__engine_t *engine)
{
    if (engine == NULL)
        return;
    while (engine->in_flight > 0)
        (void)plim__engine_progress(engine);
    if (engine->kind == PLIM_IO_URING) {
        plim__ring_stop(&engine->ring);
        plim__ledger_release(engine->arena.ledger, engine->ring_account, engine->ring_bytes);
    } else {
        plim__pread_pool_stop(engine->pool);
    }
    plim__arena_destroy(&engine->arena);
}
