#include "store/sweep.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"
#include "io/engine.h"
#include "mem/arena.h"
#include "store/file_check.h"

#define DEPTH 4 /* transfers that a piece is cut into */

typedef struct worker {
    plim__engine_t *engine;
    char *buffer; /* (piece + a page), or NULL when the bytes have a place */
    char *data;   /* of the current piece */
    size_t size;
    plim__op_t ops[DEPTH];
} worker_t;

typedef struct state {
    plim__arena_t arena;
    const plim_job_t *job;
    const plim__sweep_t *sweep;
    int num_workers;
    int64_t pieces;
    worker_t *workers;
    plim__file_check_t check; /* moved by take alone */
} state_t;

static plim_status_t read_piece(const state_t *state, worker_t *worker, int64_t offset)
{
    const plim__sweep_t *sweep = state->sweep;
    const int64_t align = (int64_t)sweep->file->align;
    int64_t end = offset + (int64_t)worker->size + sweep->behind;
    int64_t step = (int64_t)plim__round_up((size_t)(sweep->piece / DEPTH), PLIM__PAGE);
    plim_status_t status = PLIM_OK;
    int used = 0;
    for (int64_t at = offset; at < end; used++) {
        int64_t next = used == DEPTH - 1 ? end : plim__min_i64(at + step, end);
        worker->ops[used] =
            (plim__op_t){.file = sweep->file,
                         .offset = at,
                         .data = worker->data + (at - offset),
                         .size = plim__round_up((size_t)(next - at), (size_t)align)};
        plim__engine_submit(worker->engine, &worker->ops[used]);
        at = next;
    }
    plim__engine_flush(worker->engine);
    for (int i = 0; i < used; i++) {
        plim_status_t read = plim__engine_wait(worker->engine, &worker->ops[i]);
        if (status == PLIM_OK)
            status = read;
    }
    return status;
}

static plim_status_t make(void *context, int number, int64_t piece)
{
    state_t *state = context;
    const plim__sweep_t *sweep = state->sweep;
    worker_t *worker = &state->workers[number];
    int64_t skipped = piece * sweep->piece;
    PLIM_TRY(plim__job_check(state->job));
    worker->size = (size_t)plim__min_i64(sweep->piece, sweep->end - sweep->start - skipped);
    worker->data = sweep->place != NULL ? sweep->place + skipped : worker->buffer;
    /* By one thread: of several that come to a huge page at once each has one charged. */
    if (sweep->place != NULL)
        plim__arena_touch_part(worker->data, worker->size);
    PLIM_TRY(read_piece(state, worker, sweep->start + skipped));
    return sweep->look == NULL
               ? PLIM_OK
               : sweep->look(sweep->context, number, piece, worker->data, worker->size);
}

static plim_status_t take(void *context, int number, int64_t piece)
{
    state_t *state = context;
    const plim__sweep_t *sweep = state->sweep;
    worker_t *worker = &state->workers[number];
    const bool last = piece + 1 == state->pieces;
    PLIM_TRY(plim__file_check_add(&state->check, worker->data,
                                  worker->size + (last ? (size_t)sweep->behind : 0)));
    if (sweep->settle != NULL)
        PLIM_TRY(sweep->settle(sweep->context, number, piece, worker->data, worker->size));
    plim__progress(state->job, sweep->phase, "bytes", piece * sweep->piece + (int64_t)worker->size,
                   sweep->end - sweep->start);
    return PLIM_OK;
}

static size_t worker_bytes(int64_t piece, bool placed)
{
    size_t buffer = placed ? 0 : plim__arena_piece(1, (size_t)piece + PLIM__PAGE, PLIM__PAGE);
    /* The thread's stack is on the ledger with it, though it lies elsewhere. */
    return plim__arena_piece(1, sizeof(worker_t), 1) + buffer + PLIM__STACK_BYTES;
}

static size_t bytes_for(const plim_job_t *job, int64_t piece, bool placed, int workers)
{
    size_t one = worker_bytes(piece, placed) + plim__engine_estimate(job->io_engine, DEPTH);
    return plim__arena_piece(1, sizeof(state_t), 1) + PLIM__PAGE + (size_t)workers * one;
}

size_t plim__sweep_minimum(const plim_job_t *job, int64_t piece, bool placed)
{
    return bytes_for(job, piece, placed, 1);
}

size_t plim__sweep_most(const plim_job_t *job, int64_t piece, bool placed)
{
    return bytes_for(job, piece, placed, plim__job_threads(job));
}

static plim_status_t create(const plim_job_t *job, const plim__sweep_t *sweep, state_t **state_out)
{
    plim__arena_t arena;
    bool placed = sweep->place != NULL;
    int64_t pieces = (sweep->end - sweep->start + sweep->piece - 1) / sweep->piece;
    int workers = (int)plim__min_i64(plim__job_threads(job), plim__max_i64(pieces, 1));
    while (workers > 1 && (int64_t)bytes_for(job, sweep->piece, placed, workers) >
                              plim__ledger_available(job->ledger))
        workers--;
    PLIM_TRY(plim__arena_create(job->ledger, "sweep",
                                plim__arena_piece(1, sizeof(state_t), 1) +
                                    (size_t)workers * worker_bytes(sweep->piece, placed),
                                &arena));
    state_t *state = plim__arena_carve(&arena, 1, sizeof *state, 1);
    state->job = job;
    state->sweep = sweep;
    state->num_workers = workers;
    state->pieces = pieces;
    state->workers = plim__arena_carve(&arena, (size_t)workers, sizeof(worker_t), 1);
    for (int i = 0; i < workers && !placed; i++)
        state->workers[i].buffer =
            plim__arena_carve(&arena, 1, (size_t)sweep->piece + PLIM__PAGE, PLIM__PAGE);
    state->arena = arena;
    *state_out = state;
    return PLIM_OK;
}

plim_status_t plim__sweep_run(const plim_job_t *job, const plim__sweep_t *sweep)
{
    state_t *state;
    PLIM_TRY(create(job, sweep, &state));
    plim_status_t status = plim__file_check_begin(&state->check, sweep->file, sweep->entry);
    for (int i = 0; i < state->num_workers && status == PLIM_OK; i++)
        status = plim__engine_create(job, DEPTH, &state->workers[i].engine);
    if (status == PLIM_OK)
        status = plim__ordered(state->num_workers, state->pieces, make, take, state);
    if (status == PLIM_OK)
        status = plim__file_check_end(&state->check);
    for (int i = 0; i < state->num_workers; i++)
        plim__engine_destroy(state->workers[i].engine);
    plim__arena_destroy(&state->arena);
    return status;
}
