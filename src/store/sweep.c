#include "store/sweep.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"
#include "io/engine.h"
#include "mem/arena.h"
#include "store/file_check.h"

#define DEPTH 4 /* transfers that a chunk is cut into */

typedef struct sweep_worker {
    plim__engine_t *engine;
    char *data; /* (chunk + a page) the current chunk */
    size_t size;
    plim__op_t ops[DEPTH];
} sweep_worker_t;

typedef struct state {
    plim__arena_t arena;
    const plim_job_t *job;
    const plim__sweep_t *sweep;
    int num_workers;
    int64_t chunks;
    sweep_worker_t *workers;
    char *buffers;            /* (num_workers, chunk + a page) the workers' data */
    plim__file_check_t check; /* only take advances it */
} state_t;

static plim_status_t read_chunk(const state_t *state, sweep_worker_t *worker, int64_t offset)
{
    const plim__sweep_t *sweep = state->sweep;
    const int64_t align = (int64_t)sweep->file->align;
    int64_t end = offset + (int64_t)worker->size + sweep->behind;
    int64_t step = (int64_t)plim__round_up((size_t)(sweep->chunk / DEPTH), PLIM__PAGE);
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

static plim_status_t make(void *context, int number, int64_t chunk)
{
    state_t *state = context;
    const plim__sweep_t *sweep = state->sweep;
    sweep_worker_t *worker = &state->workers[number];
    int64_t skipped = chunk * sweep->chunk;
    PLIM_TRY(plim__job_check(state->job));
    worker->size = (size_t)plim__min_i64(sweep->chunk, sweep->end - sweep->start - skipped);
    PLIM_TRY(read_chunk(state, worker, sweep->start + skipped));
    return sweep->process == NULL
               ? PLIM_OK
               : sweep->process(sweep->context, number, chunk, worker->data, worker->size);
}

static plim_status_t take(void *context, int number, int64_t chunk)
{
    state_t *state = context;
    const plim__sweep_t *sweep = state->sweep;
    sweep_worker_t *worker = &state->workers[number];
    const bool last = chunk + 1 == state->chunks;
    PLIM_TRY(plim__file_check_add(&state->check, worker->data,
                                  worker->size + (last ? (size_t)sweep->behind : 0)));
    if (sweep->merge != NULL)
        PLIM_TRY(sweep->merge(sweep->context, number, chunk, worker->data, worker->size));
    plim__progress(state->job, sweep->phase, "bytes", chunk * sweep->chunk + (int64_t)worker->size,
                   sweep->end - sweep->start);
    return PLIM_OK;
}

static void lay_out(plim__arena_t *arena, void *object)
{
    state_t *state = object;
    const size_t workers = (size_t)state->num_workers;
    state->workers = plim__arena_carve(arena, workers, sizeof(sweep_worker_t), 1);
    state->buffers =
        plim__arena_carve(arena, workers, (size_t)state->sweep->chunk + PLIM__PAGE, PLIM__PAGE);
    (void)plim__arena_carve(arena, workers, PLIM__STACK_BYTES, 1); /* counts the threads' stacks */
}

static size_t bytes_for(const plim_job_t *job, const plim__sweep_t *sweep, int workers)
{
    state_t draft = {.sweep = sweep, .num_workers = workers};
    return plim__object_bytes(lay_out, &draft, sizeof draft) +
           (size_t)workers * plim__engine_estimate(job->io_engine, DEPTH);
}

size_t plim__sweep_minimum(const plim_job_t *job, int64_t chunk)
{
    const plim__sweep_t sweep = {.chunk = chunk};
    return bytes_for(job, &sweep, 1);
}

static plim_status_t create(const plim_job_t *job, const plim__sweep_t *sweep, state_t **state_out)
{
    int64_t chunks = (sweep->end - sweep->start + sweep->chunk - 1) / sweep->chunk;
    int workers = (int)plim__min_i64(plim__job_threads(job), plim__max_i64(chunks, 1));
    while (workers > 1 &&
           (int64_t)bytes_for(job, sweep, workers) > plim__ledger_available(job->ledger))
        workers--;
    state_t draft = {.job = job, .sweep = sweep, .num_workers = workers, .chunks = chunks}, *state;
    PLIM_TRY(plim__object_create(job->ledger, "I/O", lay_out, &draft, sizeof draft, &draft.arena,
                                 &state));
    for (int i = 0; i < workers; i++)
        state->workers[i].data = state->buffers + (size_t)i * ((size_t)sweep->chunk + PLIM__PAGE);
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
        status = plim__ordered(state->num_workers, state->chunks, make, take, state);
    if (status == PLIM_OK)
        status = plim__file_check_end(&state->check);
    for (int i = 0; i < state->num_workers; i++)
        plim__engine_destroy(state->workers[i].engine);
    plim__arena_destroy(&state->arena);
    return status;
}
