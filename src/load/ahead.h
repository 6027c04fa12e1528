/*
 * Several windows of a stream at once, where one window has the memory for few batches.
 *
 * A window that reads for itself passes over all that the caches leave in the files, so an epoch of
 * many windows reads the files many times. Here the draws of many windows are made together, in one
 * pass over the lists. Then it is known which rows each of the windows needs, and one pass over the
 * rows writes each into the buckets of the windows that need it, in a nameless file in scratch:
 *
 *     draws of all windows ─► rows of window 0, 1, … ─► one pass ─► | chunk of 2 | of 0 | of 2 | …
 *
 * A window then takes its draws from these and its rows from its bucket. So a row is read once from
 * the dataset, and once from the bucket of each window that needs it. A chunk holds rows of one
 * window: their nodes, then the rows. Its checksum is in memory; a row that is missing in its
 * bucket, or damaged, comes from the dataset.
 *
 * All calls but plim__ahead_forget are the window builder's.
 */
#ifndef PLIM_LOAD_AHEAD_H
#define PLIM_LOAD_AHEAD_H

#include "load/window.h"

#define PLIM__AHEAD_WINDOWS 32 /* at most at once */

/* Bytes of rows that are written and read at once, unless a row is larger. */
#define PLIM__AHEAD_CHUNK ((size_t)128 << 10)

/* Fewer windows than this read for themselves: buckets cost each row a write and a second read. */
#define PLIM__AHEAD_PAYS 3

typedef struct plim__ahead_params {
    plim__load_window_params_t draws; /* of all windows together: `rows` is the number of distinct
                                         rows that they may need, row_bytes is 0 */
    size_t row_bytes;
    int64_t bucket_bytes;  /* most bytes of the file: the buckets of all windows */
    const char *directory; /* of the file; outlives it */
} plim__ahead_params_t;

typedef struct plim__ahead plim__ahead_t;

size_t plim__ahead_estimate(const plim__ahead_params_t *params);

/* The sources are those that windows read from. The file is opened when it is first needed. */
plim_status_t plim__ahead_create(const plim_job_t *job, const plim__ahead_params_t *params,
                                 plim__topology_t *topology, plim__rows_t *rows,
                                 plim__ahead_t **ahead_out);
void plim__ahead_destroy(plim__ahead_t *ahead);

/* The next steps of a stream's epoch: batch i has the seeds seeds[bounds[i]] … */
typedef struct plim__ahead_steps {
    const void *stream;
    uint64_t draw_seed;
    int num_hops;
    const int64_t *fanout;
    int64_t epoch;
    int64_t first;
    const int64_t *seeds;
    const int64_t *bounds; /* (count + 1) */
    int64_t count;
} plim__ahead_steps_t;

/* The number of steps from this one to the end of its window; 0 if it was not drawn ahead. */
int64_t plim__ahead_left(const plim__ahead_t *ahead, const void *stream, int64_t epoch,
                         int64_t step);

/* Forgets the stream's draws: it ends, or they must be made again. Any thread. */
void plim__ahead_forget(plim__ahead_t *ahead, const void *stream);

/* Whether to draw for this stream from this step on. False while another stream has windows that
 * were drawn and not yet filled, and if not even this step fitted the last time. */
bool plim__ahead_is_free(const plim__ahead_t *ahead, const void *stream, int64_t epoch,
                         int64_t step);

/*
 * Draws as many of the steps as fit, divides them between windows as large as `window`, whose
 * content is lost, and fills their buckets if there are at least PLIM__AHEAD_PAYS of them. If not
 * even the first step fits, none is drawn.
 */
plim_status_t plim__ahead_draw(plim__ahead_t *ahead, const plim__ahead_steps_t *steps,
                               plim__load_window_t *window);

/* Fills a window with these steps, which were drawn ahead; *taken_out as of
 * plim__load_window_build. */
plim_status_t plim__ahead_fill(plim__ahead_t *ahead, const plim__ahead_steps_t *steps,
                               plim__load_window_t *window, int64_t *taken_out);

#endif
