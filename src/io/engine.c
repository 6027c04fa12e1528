/*
 * The face of both engines. Operations wait in a list of the owner's until it is worth handing them
 * over; `in_flight` counts them too. Only the owner sets op->done, inside its own calls, so it may
 * look at it without a lock.
 */
#include "io/engine.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "io/pread_pool.h"
#include "io/ring.h"
#include "io/transfer.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

#define DEPTH_MAX 1024
#define OP_BYTES_MAX ((size_t)1 << 30)
#define LOCKED_ENOUGH ((rlim_t)8 << 20) /* what kernels since 5.16 allow everybody */
#define HELD_MAX 16                     /* more than these are handed over at once */

struct plim__engine {
    plim__arena_t arena;
    plim_io_engine_t kind;
    int depth;
    int in_flight; /* handed over or held back, not yet done */
    int num_held;
    plim__op_t *held;
    plim__op_t *held_last;
    plim__pread_pool_t *pool;
    plim__ring_t ring;
    size_t ring_bytes; /* reserved beside the arena: the kernel's */
    int ring_account;
};

static int pool_threads(int depth)
{
    return depth < PLIM__PREAD_POOL_THREADS_MAX ? depth : PLIM__PREAD_POOL_THREADS_MAX;
}

static size_t arena_bytes(plim_io_engine_t kind, int depth)
{
    size_t bytes = plim__arena_piece(1, sizeof(plim__engine_t), 1);
    if (kind == PLIM_IO_THREADS)
        bytes += plim__pread_pool_estimate(pool_threads(depth));
    return plim__round_up(bytes, PLIM__PAGE);
}

/* Whether every ring will be had: the kernel has them, and before Linux 5.12 no low limit on locked
 * memory, which they count against there, ends them half-way. Found out once. */
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
    plim__arena_t arena;
    int account;
    size_t bytes = plim__ring_bytes(depth);
    PLIM_TRY(plim__ledger_reserve(job->ledger, "i/o engine", bytes, &account));
    plim_status_t status =
        plim__arena_create(job->ledger, "i/o engine", arena_bytes(PLIM_IO_URING, depth), &arena);
    if (status != PLIM_OK)
        goto release;
    plim__engine_t *engine = plim__arena_carve(&arena, 1, sizeof *engine, 1);
    int error = plim__ring_start(&engine->ring, depth);
    if (error != 0) {
        plim__arena_destroy(&arena);
        status = plim__fail(PLIM_ERR_UNSUPPORTED,
                            "the kernel refuses io_uring: %s (errno %d); use the thread engine",
                            strerror(error), error);
        goto release;
    }
    engine->arena = arena;
    engine->kind = PLIM_IO_URING;
    engine->depth = depth;
    engine->ring_bytes = bytes;
    engine->ring_account = account;
    *engine_out = engine;
    return PLIM_OK;
release:
    plim__ledger_release(job->ledger, account, bytes);
    return status;
}

static plim_status_t create_pool(const plim_job_t *job, int depth, plim__engine_t **engine_out)
{
    plim__arena_t arena;
    PLIM_TRY(
        plim__arena_create(job->ledger, "i/o engine", arena_bytes(PLIM_IO_THREADS, depth), &arena));
    plim__engine_t *engine = plim__arena_carve(&arena, 1, sizeof *engine, 1);
    plim_status_t status = plim__pread_pool_start(&arena, pool_threads(depth), &engine->pool);
    if (status != PLIM_OK) {
        plim__arena_destroy(&arena);
        return status;
    }
    engine->arena = arena;
    engine->kind = PLIM_IO_THREADS;
    engine->depth = depth;
    *engine_out = engine;
    return PLIM_OK;
}

plim_status_t plim__engine_create(const plim_job_t *job, int depth, plim__engine_t **engine_out)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (depth < 1 || depth > DEPTH_MAX)
        return plim__fail(PLIM_ERR_USAGE, "an I/O depth of %d is not within 1 and %d", depth,
                          DEPTH_MAX);
    if (job->io_engine == PLIM_IO_THREADS)
        return create_pool(job, depth, engine_out);
    plim_status_t status = create_ring(job, depth, engine_out);
    if (status != PLIM_ERR_UNSUPPORTED || job->io_engine == PLIM_IO_URING)
        return status;
    if (job->log != NULL && !atomic_flag_test_and_set(&said))
        plim__log(job, PLIM_LOG_INFO, "%s instead, which is as good", plim_last_error());
    return create_pool(job, depth, engine_out);
}

plim_io_engine_t plim__engine_kind(const plim__engine_t *engine)
{
    return engine->kind;
}

/* Passes on what was held back, without yet entering the kernel for a ring. */
static void hand_over(plim__engine_t *engine)
{
    plim__op_t *op = engine->held;
    if (op == NULL)
        return;
    if (engine->kind == PLIM_IO_THREADS) {
        plim__pread_pool_hand(engine->pool, op, engine->held_last, engine->num_held);
    } else {
        while (op != NULL) {
            plim__op_t *next = op->next;
            plim__ring_put(&engine->ring, op);
            op = next;
        }
    }
    engine->held = NULL;
    engine->num_held = 0;
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
    if (engine->held == NULL)
        engine->held = op;
    else
        engine->held_last->next = op;
    engine->held_last = op;
    engine->in_flight++;
    if (++engine->num_held >= HELD_MAX)
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
