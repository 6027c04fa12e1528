/*
 * A window: consecutive batches sampled as a whole. Draws depend on (seed, epoch, hop, node) alone,
 * so all batches of a window share them: hop by hop the destinations of all batches are united,
 * their lists read once in the order they lie on disk, and at the end every row that is not in
 * memory is read once. What is kept is no batch but the draws of each hop by node, and the rows:
 *
 *     hop h    set of destinations (node_set, ranks) ─► indptr[rank] ─► drawn ids
 *     rows     set of nodes read                     ─► rows[rank]
 *
 * A window is then a small graph in memory: it is a topology source and a row source like any
 * other, and batches are built from it as they are from a graph that lies in memory whole. Every
 * node met so far draws at each hop, which is what the native form needs and more than PyG's does.
 */
#ifndef PLIM_LOAD_WINDOW_H
#define PLIM_LOAD_WINDOW_H

#include "feature/rows.h"
#include "sample/blocks.h"

typedef struct plim__load_window_params {
    int num_hops;
    int64_t fanout[PLIM__HOPS_MAX];
    bool replace;
    uint64_t seed;
    int64_t num_nodes;       /* of the graph */
    plim_dtype_t index_type; /* PLIM_I32 or PLIM_I64: of ids in the dataset */
    int64_t most_drawn;      /* the longest single draw */
    int64_t draws;           /* capacity: entries over all hops, ids and indptr alike */
    int64_t rows;            /* capacity; 0: without rows */
    size_t row_bytes;        /* of a stored row */
    plim_dtype_t row_type;   /* of a stored row */
    int64_t num_features;
    int builders; /* threads that build it: workers 0 … builders-1 of the sources below */
    int workers;  /* that may draw and gather from it at once; their numbers in the sources below
                     begin at `builders` */
} plim__load_window_params_t;

typedef struct plim__load_window plim__load_window_t;

size_t plim__load_window_estimate(const plim__load_window_params_t *params);
plim_status_t plim__load_window_create(const plim_job_t *job,
                                       const plim__load_window_params_t *params,
                                       plim__topology_t *topology, plim__rows_t *rows,
                                       plim__load_window_t **window_out);
void plim__load_window_destroy(plim__load_window_t *window);

/* From the next build on so many hops, at most those it was made for, with these fan-outs, none of
 * which draws more than most_drawn. */
void plim__load_window_draw_as(plim__load_window_t *window, int num_hops, const int64_t *fanout);

/*
 * Fills the window for as many of the batches as fit its capacities, at least one, else
 * PLIM_ERR_BUDGET: batch i has the seeds seeds[bounds[i]] … seeds[bounds[i+1]-1]. What lay in it
 * before is gone. When rows are stored, a disk source below is refreshed first. After a batch did
 * not fit, others with as many seeds are mostly refused at once, without any reading.
 */
plim_status_t plim__load_window_build(plim__load_window_t *window, int64_t epoch,
                                      const int64_t *seeds, const int64_t *bounds,
                                      int64_t num_batches, int64_t *taken_out);

/* The window as sources; they live as long as it, and answer for nodes of its batches only. */
plim__topology_t *plim__load_window_topology(plim__load_window_t *window);
plim__rows_t *plim__load_window_rows(plim__load_window_t *window);

/* What the last build took of its capacities. */
void plim__load_window_used(const plim__load_window_t *window, int64_t *draws_out,
                            int64_t *rows_out);

/* Distinct rows that its batches need and that are not in it, since the disk source holds them. */
int64_t plim__load_window_held(const plim__load_window_t *window);

#endif
