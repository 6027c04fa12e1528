#include "load/ahead.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"
#include "io/file.h"
#include "load/window_internal.h"

#include <assert.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define ROWS_BYTES ((size_t)2 << 20) /* of rows that a builder reads at once */

#define WINDOWS PLIM__AHEAD_WINDOWS
_Static_assert(WINDOWS <= 32, "a row's windows are bits of 32");

/* A chunk that was written to the file. */
typedef struct bucket_chunk {
    uint64_t hash;
    int32_t rows;
    int32_t window;
} bucket_chunk_t;

/* The chunk that a window's rows are added to; it is written when it is full. */
typedef struct open_chunk {
    pthread_mutex_t lock;
    char *bytes;
    int64_t rows;
} open_chunk_t;

struct plim__ahead {
    plim__arena_t arena;
    plim__ahead_params_t params;
    const plim_job_t *job;
    plim__rows_t *rows;
    plim__load_window_t *draws;
    int64_t task_rows;  /* rows that a builder reads at once */
    int64_t chunk_rows; /* rows of a chunk */
    size_t chunk_bytes;
    int64_t most_chunks;
    uint32_t *needed_by; /* (params.draws.rows) a bit for each window that needs the row */
    size_t task_bytes;
    char *task; /* (builders, task_bytes) rows on their way to chunks, or a chunk that is read */
    bucket_chunk_t *chunks; /* (most_chunks) */
    open_chunk_t open[WINDOWS];
    atomic_llong num_chunks;
    plim__file_t file;       /* closed until it is needed */
    atomic_bool file_failed; /* windows read for themselves from now on */
    const void *last_stream; /* of the last draw */
    int64_t most_steps;      /* steps that its windows held; 0: all that were drawn */

    _Atomic(const void *) stream; /* NULL: nothing is drawn */
    int64_t epoch;
    int num_windows;
    int64_t bounds[WINDOWS + 1]; /* their steps */
    int64_t filled;              /* windows were filled with all steps before this one */
    bool has_buckets;
};

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim__ahead_t *ahead = draft;
    const plim__load_window_params_t *draws = &ahead->params.draws;
    const size_t builders = (size_t)draws->builders;
    ahead->needed_by =
        plim__arena_carve(arena, (size_t)draws->rows, sizeof *ahead->needed_by, PLIM__PAGE);
    ahead->task = plim__arena_carve(arena, builders, ahead->task_bytes, PLIM__PAGE);
    ahead->chunks = plim__arena_carve(arena, (size_t)ahead->most_chunks, sizeof *ahead->chunks, 1);
    for (int i = 0; i < WINDOWS; i++)
        ahead->open[i].bytes = plim__arena_carve(arena, 1, ahead->chunk_bytes, PLIM__PAGE);
}

static plim__ahead_t draft_of(const plim__ahead_params_t *params)
{
    const size_t each = params->row_bytes + sizeof(int64_t);
    plim__ahead_t draft = {.params = *params, .file.fd = -1};
    draft.chunk_bytes =
        plim__round_up(each > PLIM__AHEAD_CHUNK ? each : PLIM__AHEAD_CHUNK, PLIM__PAGE);
    draft.chunk_rows = (int64_t)(draft.chunk_bytes / each);
    draft.task_bytes = draft.chunk_bytes > ROWS_BYTES ? draft.chunk_bytes : ROWS_BYTES;
    draft.task_rows = (int64_t)(draft.task_bytes / each);
    draft.most_chunks = params->bucket_bytes / (int64_t)draft.chunk_bytes;
    return draft;
}

size_t plim__ahead_estimate(const plim__ahead_params_t *params)
{
    plim__ahead_t draft = draft_of(params);
    return plim__add_saturating_size(plim__object_bytes(lay_out, &draft, sizeof draft),
                                     plim__load_window_estimate(&params->draws));
}

plim_status_t plim__ahead_create(const plim_job_t *job, const plim__ahead_params_t *params,
                                 plim__topology_t *topology, plim__rows_t *rows,
                                 plim__ahead_t **ahead_out)
{
    plim__ahead_t draft = draft_of(params), *ahead;
    PLIM_TRY(plim__object_create(job->ledger, "window", lay_out, &draft, sizeof draft, &draft.arena,
                                 &ahead));
    plim__arena_touch(&ahead->arena);
    ahead->job = job;
    ahead->rows = rows;
    for (int i = 0; i < WINDOWS; i++)
        pthread_mutex_init(&ahead->open[i].lock, NULL);
    const plim_status_t status =
        plim__load_window_create(job, &params->draws, topology, rows, &ahead->draws);
    if (status != PLIM_OK) {
        plim__ahead_destroy(ahead);
        return status;
    }
    *ahead_out = ahead;
    return PLIM_OK;
}

void plim__ahead_destroy(plim__ahead_t *ahead)
{
    if (ahead == NULL)
        return;
    plim__load_window_destroy(ahead->draws);
    plim__file_close(&ahead->file);
    for (int i = 0; i < WINDOWS; i++)
        pthread_mutex_destroy(&ahead->open[i].lock);
    plim__arena_destroy(&ahead->arena);
}

void plim__ahead_forget(plim__ahead_t *ahead, const void *stream)
{
    (void)atomic_compare_exchange_strong(&ahead->stream, &stream, NULL);
}

bool plim__ahead_is_free(const plim__ahead_t *ahead, const void *stream, int64_t epoch,
                         int64_t step)
{
    const void *holder = atomic_load(&ahead->stream);
    if (holder == NULL)
        return true;
    if (holder != stream)
        return ahead->filled == ahead->bounds[ahead->num_windows];
    return ahead->num_windows > 0 || ahead->epoch != epoch || ahead->bounds[0] != step;
}

/* The window that has this step, or -1. */
static int find(const plim__ahead_t *ahead, const void *stream, int64_t epoch, int64_t step)
{
    if (stream != atomic_load(&ahead->stream) || ahead->epoch != epoch)
        return -1;
    for (int i = 0; i < ahead->num_windows; i++)
        if (step >= ahead->bounds[i] && step < ahead->bounds[i + 1])
            return i;
    return -1;
}

int64_t plim__ahead_left(const plim__ahead_t *ahead, const void *stream, int64_t epoch,
                         int64_t step)
{
    const int window = find(ahead, stream, epoch, step);
    return window < 0 ? 0 : ahead->bounds[window + 1] - step;
}

/* Fills a window from the draws of all windows, and lists its rows. `fits`: these steps fitted
 * before. */
static plim_status_t list_window(plim__ahead_t *ahead, const plim__ahead_steps_t *steps,
                                 int64_t from, int64_t count, bool fits,
                                 plim__load_window_t *window, int64_t *taken_out)
{
    plim__load_window_draw_as(window, steps->draw_seed, steps->num_hops, steps->fanout,
                              PLIM__WINDOW_LIST);
    plim__load_window_draw_from(window, plim__load_window_topology(ahead->draws));
    const plim_status_t status = plim__load_window_build(
        window, steps->epoch, steps->seeds, steps->bounds + from, count, fits, taken_out);
    plim__load_window_draw_from(window, NULL);
    return status;
}

/* What builders share while they mark the rows of a window, write the rows of all windows, or read
 * a bucket. */
typedef struct work {
    plim__ahead_t *ahead;
    plim__load_window_t *window;
    int number; /* of the window */
    atomic_llong next_chunk;
    atomic_llong num_read;
} work_t;

static plim_status_t mark_rows(void *context, int builder)
{
    plim__window_walk_t *walk = context;
    const work_t *work = walk->context;
    const plim__node_set_t *all = plim__load_window_listed(work->ahead->draws);
    int64_t *nodes, first, count;
    while ((count = plim__window_walk_claim(walk, builder, &nodes, &first)) > 0)
        for (int64_t i = 0; i < count; i++) {
            const int64_t position = plim__node_set_position(all, nodes[i]);
            if (position >= 0) /* else it was cached when all were drawn */
                work->ahead->needed_by[position] |= (uint32_t)1 << work->number;
        }
    return PLIM_OK;
}

static plim_status_t write_chunk(plim__ahead_t *ahead, int window)
{
    open_chunk_t *open = &ahead->open[window];
    const int64_t rows = open->rows;
    if (rows == 0)
        return PLIM_OK;
    const int64_t number = atomic_fetch_add(&ahead->num_chunks, 1);
    open->rows = 0;
    assert(number < ahead->most_chunks);
    ahead->chunks[number] = (bucket_chunk_t){.hash = XXH3_64bits(open->bytes, ahead->chunk_bytes),
                                             .rows = (int32_t)rows,
                                             .window = window};
    const plim_status_t status = plim__file_write_at(
        &ahead->file, number * (int64_t)ahead->chunk_bytes, open->bytes, ahead->chunk_bytes);
    if (status != PLIM_OK)
        atomic_store(&ahead->file_failed, true);
    return status;
}

/* The nodes of a chunk, and its rows behind them. */
static int64_t *chunk_nodes(char *bytes)
{
    return (int64_t *)(void *)bytes;
}

static char *chunk_rows(const plim__ahead_t *ahead, char *bytes)
{
    return bytes + (size_t)ahead->chunk_rows * sizeof(int64_t);
}

/* Adds to a window's bucket what it needs of these rows. */
static plim_status_t spread_to(plim__ahead_t *ahead, int window, const int64_t *nodes,
                               const uint32_t *windows, const char *rows, int64_t count)
{
    const size_t size = ahead->params.row_bytes;
    open_chunk_t *open = &ahead->open[window];
    plim_status_t status = PLIM_OK;
    pthread_mutex_lock(&open->lock);
    for (int64_t i = 0; i < count && status == PLIM_OK; i++) {
        if ((windows[i] >> window & 1) == 0)
            continue;
        chunk_nodes(open->bytes)[open->rows] = nodes[i];
        memcpy(chunk_rows(ahead, open->bytes) + (size_t)open->rows * size, rows + (size_t)i * size,
               size);
        if (++open->rows == ahead->chunk_rows)
            status = write_chunk(ahead, window);
    }
    pthread_mutex_unlock(&open->lock);
    return status;
}

/* Reads rows into the buckets of the windows that need them. The builders begin with different
 * windows. */
static plim_status_t spread_task(plim__ahead_t *ahead, int builder, const int64_t *nodes,
                                 const uint32_t *windows, int64_t count)
{
    char *rows = ahead->task + (size_t)builder * ahead->task_bytes;
    PLIM_TRY(
        plim__rows_gather(ahead->rows, builder, nodes, count, ahead->params.draws.row_type, rows));
    for (int i = 0; i < ahead->num_windows; i++)
        PLIM_TRY(spread_to(ahead, (i + builder) % ahead->num_windows, nodes, windows, rows, count));
    return PLIM_OK;
}

/* Keeps the nodes that a window needs, and returns their number: more steps may have been drawn
 * than the windows hold. */
static int64_t keep_needed(int64_t *nodes, uint32_t *windows, int64_t count)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        nodes[kept] = nodes[i];
        windows[kept] = windows[i];
        kept += windows[i] != 0;
    }
    return kept;
}

static plim_status_t spread_rows(void *context, int builder)
{
    plim__window_walk_t *walk = context;
    plim__ahead_t *ahead = ((const work_t *)walk->context)->ahead;
    int64_t *nodes, first, count;
    plim_status_t status = PLIM_OK;
    while (status == PLIM_OK &&
           (count = plim__window_walk_claim(walk, builder, &nodes, &first)) > 0) {
        uint32_t *windows = ahead->needed_by + first;
        status = plim__job_check(ahead->job);
        count = keep_needed(nodes, windows, count);
        for (int64_t done = 0; status == PLIM_OK && done < count; done += ahead->task_rows)
            status = spread_task(ahead, builder, nodes + done, windows + done,
                                 plim__min_i64(ahead->task_rows, count - done));
    }
    if (status != PLIM_OK)
        atomic_store(&walk->ended, true);
    return status;
}

/* Makes space for `num_chunks` chunks in the file, which is opened if it is not yet. A file in
 * memory is refused: the plan does not count it. */
static plim_status_t open_file(plim__ahead_t *ahead, int64_t num_chunks)
{
    const char *directory = ahead->params.directory;
    plim__file_t *file = &ahead->file;
    const int64_t more = num_chunks * (int64_t)ahead->chunk_bytes - file->size;
    PLIM_TRY(plim__file_check_disk(directory, plim__max_i64(more, 0),
                                   "the rows of coming windows need"));
    if (file->fd < 0)
        PLIM_TRY(plim__file_open(directory, PLIM__FILE_TEMPORARY, true, file));
    file->size += plim__max_i64(more, 0);
    return PLIM_OK;
}

/* Fills the buckets, of at most `num_chunks` chunks. If the file cannot be written, windows read
 * for themselves. */
static plim_status_t fill_buckets(plim__ahead_t *ahead, int64_t num_chunks)
{
    work_t work = {.ahead = ahead};
    plim__window_walk_t walk = {
        .window = ahead->draws, .set = plim__load_window_listed(ahead->draws), .context = &work};
    atomic_store(&ahead->num_chunks, 0);
    for (int i = 0; i < WINDOWS; i++)
        ahead->open[i].rows = 0;
    plim_status_t status = open_file(ahead, num_chunks);
    if (status != PLIM_OK)
        atomic_store(&ahead->file_failed, true);
    else
        status = plim__window_walk_run(&walk, spread_rows);
    for (int i = 0; status == PLIM_OK && i < ahead->num_windows; i++)
        status = write_chunk(ahead, i);
    ahead->has_buckets = status == PLIM_OK;
    if (!atomic_load(&ahead->file_failed))
        return status;
    plim__log(ahead->job, PLIM_LOG_WARNING,
              "%s; windows read for themselves, so epochs take longer", plim_last_error());
    return PLIM_OK;
}

/* Limits a draw to about the steps that the windows held last time: the others would be drawn
 * again. */
static int64_t limit_steps(plim__ahead_t *ahead, const plim__ahead_steps_t *steps)
{
    if (ahead->last_stream != steps->stream)
        ahead->most_steps = 0;
    ahead->last_stream = steps->stream;
    return ahead->most_steps > 0
               ? plim__min_i64(steps->count, ahead->most_steps + ahead->most_steps / 8)
               : steps->count;
}

/* Divides `drawn` steps between windows and marks the rows that each needs; *num_chunks_out is the
 * most chunks that their buckets have. */
static plim_status_t divide_steps(plim__ahead_t *ahead, const plim__ahead_steps_t *steps,
                                  int64_t drawn, plim__load_window_t *window,
                                  int64_t *num_chunks_out)
{
    int64_t taken, done = 0;
    *num_chunks_out = 0;
    memset(ahead->needed_by, 0,
           (size_t)plim__load_window_listed(ahead->draws)->count * sizeof *ahead->needed_by);
    while (done < drawn && ahead->num_windows < WINDOWS) {
        work_t work = {.ahead = ahead, .window = window, .number = ahead->num_windows};
        PLIM_TRY(list_window(ahead, steps, done, drawn - done, false, window, &taken));
        const plim__node_set_t *listed = plim__load_window_listed(window);
        if (taken == 0 ||
            *num_chunks_out + listed->count / ahead->chunk_rows + 1 > ahead->most_chunks)
            break;
        *num_chunks_out += listed->count / ahead->chunk_rows + 1;
        plim__window_walk_t walk = {.window = window, .set = listed, .context = &work};
        PLIM_TRY(plim__window_walk_run(&walk, mark_rows));
        done += taken;
        ahead->bounds[++ahead->num_windows] = steps->first + done;
    }
    ahead->most_steps = done < drawn ? done : 0;
    return PLIM_OK;
}

plim_status_t plim__ahead_draw(plim__ahead_t *ahead, const plim__ahead_steps_t *steps,
                               plim__load_window_t *window)
{
    int64_t drawn, num_chunks = 0;
    atomic_store(&ahead->stream, NULL);
    ahead->has_buckets = false;
    ahead->num_windows = 0;
    ahead->filled = ahead->bounds[0] = steps->first;
    plim__load_window_draw_as(ahead->draws, steps->draw_seed, steps->num_hops, steps->fanout,
                              PLIM__WINDOW_LIST);
    PLIM_TRY(plim__load_window_build(ahead->draws, steps->epoch, steps->seeds, steps->bounds,
                                     limit_steps(ahead, steps), false, &drawn));
    if (drawn > 0)
        PLIM_TRY(divide_steps(ahead, steps, drawn, window, &num_chunks));
    if (ahead->num_windows >= PLIM__AHEAD_PAYS && !atomic_load(&ahead->file_failed))
        PLIM_TRY(fill_buckets(ahead, num_chunks));
    ahead->epoch = steps->epoch;
    atomic_store(&ahead->stream, steps->stream);
    return PLIM_OK;
}

/* Reads a chunk and copies its rows to the window. A chunk that cannot be read, or has another
 * checksum, is left out. */
static void read_chunk(work_t *work, int builder, const bucket_chunk_t *chunk, int64_t number)
{
    plim__ahead_t *ahead = work->ahead;
    const plim__node_set_t *set = plim__load_window_listed(work->window);
    const size_t size = ahead->params.row_bytes;
    char *bytes = ahead->task + (size_t)builder * ahead->task_bytes;
    const int64_t *nodes = chunk_nodes(bytes);
    const char *rows = chunk_rows(ahead, bytes);
    int64_t found = 0;
    if (ahead->rows->disk != NULL) {
        plim__source_worker_t *worker = &ahead->rows->disk->workers[builder];
        plim__source_count(&worker->transfers, 1);
        plim__source_count(&worker->bytes_read, (int64_t)ahead->chunk_bytes);
    }
    if (plim__file_read_at(&ahead->file, number * (int64_t)ahead->chunk_bytes, bytes,
                           ahead->chunk_bytes) != PLIM_OK ||
        XXH3_64bits(bytes, ahead->chunk_bytes) != chunk->hash) {
        if (!atomic_exchange(&ahead->file_failed, true))
            plim__log(ahead->job, PLIM_LOG_WARNING,
                      "rows that were written to %s cannot be read back; windows read for "
                      "themselves, so epochs take longer",
                      ahead->params.directory);
        return;
    }
    for (int32_t i = 0; i < chunk->rows; i++) {
        const int64_t position = plim__node_set_position(set, nodes[i]);
        if (position < 0) /* only an earlier step of the window needs it, or it was cached since */
            continue;
        memcpy(work->window->store + (size_t)position * size, rows + (size_t)i * size, size);
        found++;
    }
    atomic_fetch_add(&work->num_read, found);
}

static plim_status_t read_bucket(void *context, int builder)
{
    work_t *work = context;
    plim__ahead_t *ahead = work->ahead;
    const int64_t num_chunks = atomic_load(&ahead->num_chunks);
    int64_t number;
    while ((number = atomic_fetch_add(&work->next_chunk, 1)) < num_chunks) {
        if (ahead->chunks[number].window != work->number)
            continue;
        PLIM_TRY(plim__job_check(ahead->job));
        read_chunk(work, builder, &ahead->chunks[number], number);
    }
    return PLIM_OK;
}

plim_status_t plim__ahead_fill(plim__ahead_t *ahead, const plim__ahead_steps_t *steps,
                               plim__load_window_t *window, int64_t *taken_out)
{
    work_t work = {.ahead = ahead,
                   .window = window,
                   .number = find(ahead, steps->stream, steps->epoch, steps->first)};
    PLIM_TRY(list_window(ahead, steps, 0, steps->count, true, window, taken_out));
    if (*taken_out > 0 && ahead->has_buckets)
        PLIM_TRY(plim__parallel(ahead->params.draws.builders, read_bucket, &work));
    if (*taken_out > 0 && atomic_load(&work.num_read) < plim__load_window_listed(window)->count) {
        PLIM_TRY(plim__load_window_read(window));
        if (ahead->has_buckets) /* the cache has lost rows: the next windows are drawn again */
            plim__ahead_forget(ahead, steps->stream);
    }
    ahead->filled = steps->first + plim__max_i64(*taken_out, 1);
    return PLIM_OK;
}
