/*
 * What is worth keeping in memory: for every node the chance that a window needs its list, and its
 * row, computed from the graph (not counted from samples), and from that the best filling of a
 * given room with lists and rows.
 *
 * Let q_h(v) be the chance that v is a destination of hop h in the window. A seed is one with
 * chance `share`. The next hop draws each of v's d neighbours with chance min(1, k/d), and v stays
 * in the set; taken as independent:
 *
 *     q_{h+1}(u) = 1 - (1 - q_h(u)) * product over v, u in its list, of (1 - q_h(v) min(1, k/d_v))
 *
 * A list is worth the largest q_h of the hops that draw from it, a row q after the last hop; either
 * saves one I/O, so they compete by worth for each byte. One sequential pass over indices.npy a
 * hop; the counters lie in ranges of nodes that fit `work_bytes`, further ranges cost further
 * passes.
 */
#ifndef PLIM_SAMPLE_ACCESS_H
#define PLIM_SAMPLE_ACCESS_H

#include "base/node_set.h"
#include "mem/arena.h"
#include "sample/draw.h"

typedef struct plim__access_params {
    int num_hops;
    int64_t fanout[PLIM__HOPS_MAX];
    bool replace;
    const int64_t *seeds; /* (num_seeds) distinct, in any order */
    int64_t num_seeds;
    double share;      /* of the seeds are in a window, (0, 1] */
    size_t row_bytes;  /* what keeping one row takes; 0: no rows are wanted */
    size_t list_bytes; /* what keeping one entry of a list takes; 0: no lists are wanted */
    size_t list_fixed; /* what keeping a list takes besides */
    size_t row_room;   /* bytes that rows may take at most, and lists */
    size_t list_room;
    size_t room;       /* and both together */
    size_t miss_bytes; /* what a row takes that a window needs and that is not kept; 0: see below */
    size_t miss_room;  /* bytes for such rows, beside `room` */
    size_t miss_min;   /* of which so many stay for them in any case */
    size_t work_bytes; /* memory while it works, besides what stays */
    const char *tmp;   /* directory for a nameless file, when the counters do not fit */
} plim__access_params_t;

/*
 * With miss_bytes, what the rows that are expected to be missed leave of miss_room serves to keep
 * more; when they leave nothing, `room` holds as it is.
 */

/* The choice: two sealed sets and what their members will take. */
typedef struct plim__access {
    plim__arena_t arena; /* account "cache sets": both sets' lines */
    plim__node_set_t lists;
    plim__node_set_t rows;
    size_t list_bytes;
    size_t row_bytes;
    double list_hits; /* expected share of lists, and of rows, found among them */
    double row_hits;
    double rows_missed; /* how many rows a window is expected to need that are not kept */
} plim__access_t;

size_t plim__access_estimate(int64_t num_nodes);                            /* what stays */
size_t plim__access_work_minimum(const plim_job_t *job, int64_t num_nodes); /* least work_bytes */

/* Whether the counters do not fit so many work_bytes, and what the file takes that they go to. */
bool plim__access_needs_file(const plim_job_t *job, int64_t num_nodes, size_t work_bytes);
int64_t plim__access_file_bytes(int64_t num_nodes);

/* The result is the same for every number of threads, engine and work_bytes. PLIM_ERR_IO,
 * PLIM_ERR_DATA, PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_STOPPED. */
plim_status_t plim__access_find(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__offsets_t *offsets, const plim__access_params_t *params,
                                plim__access_t *worth_out);
void plim__access_free(plim__access_t *worth); /* a zeroed one is harmless */

#endif
