/*
 * A window: consecutive batches sampled as a whole. Draws depend on (seed, epoch, hop, node) alone,
 * so all batches of a window share them. Hop by hop the window unites the destinations of all
 * batches and reads their lists once, in the order of the file; at the end it reads each row that
 * is not cached once. It stores the draws of each hop by node, and the rows:
 *
 *     hop h    set of destinations (node_set, positions) ─► indptr[position] ─► drawn ids
 *     rows     set of nodes read                     ─► rows[position]
 *
 * A window is then a small graph in memory: a topology source and a row source like any other, from
 * which batches are built. Every node met so far draws at each hop, as the native form needs; PyG's
 * form needs fewer draws.
 */
#ifndef PLIM_LOAD_WINDOW_H
#define PLIM_LOAD_WINDOW_H

#include "sample/blocks.h"
#include "source/rows.h"

typedef struct plim__load_window_params {
    int num_hops;
    int64_t fanout[PLIM__HOPS_MAX];
    bool replace;
    uint64_t seed;
    int64_t num_nodes;       /* of the graph */
    plim_dtype_t index_type; /* PLIM_I32 or PLIM_I64: of ids in the dataset */
    int64_t most_drawn;      /* the longest single draw */
    int64_t draws;           /* capacity: ids and places over all hops */
    bool sparse;             /* sets of few members take less memory, and more time */
    int64_t rows;            /* capacity; 0: without rows */
    size_t row_bytes;        /* of a stored row; 0: they are listed, never read */
    plim_dtype_t row_type;   /* of a stored row */
    int64_t num_features;
    bool with_positions; /* it stores where draws are in their lists: they cannot be drawn again */
    int builders;        /* threads that fill it: workers 0 … builders-1 of the sources below */
    int workers; /* threads that draw and gather from it; their numbers in the sources below begin
                    at `builders` */
} plim__load_window_params_t;

typedef struct plim__load_window plim__load_window_t;

/* What a build does with the rows that its batches need and that are not cached. */
typedef enum plim__window_rows {
    PLIM__WINDOW_READ,
    PLIM__WINDOW_LIST, /* finds which they are; plim__load_window_read may follow */
    PLIM__WINDOW_NONE
} plim__window_rows_t;

size_t plim__load_window_estimate(const plim__load_window_params_t *params);
plim_status_t plim__load_window_create(const plim_job_t *job,
                                       const plim__load_window_params_t *params,
                                       plim__topology_t *topology, plim__rows_t *rows,
                                       plim__load_window_t **window_out);
void plim__load_window_destroy(plim__load_window_t *window);

/* Makes an empty window of other capacities in place of *window, over the same sources; what builds
 * have shown stays. *window is NULL after an error. */
plim_status_t plim__load_window_remake(const plim__load_window_params_t *params,
                                       plim__load_window_t **window);

/* Sets seed, hops and fan-outs from the next build on: at most the hops of the params, and no draw
 * longer than most_drawn. And what builds do with rows, if the window has memory for them. */
void plim__load_window_draw_as(plim__load_window_t *window, uint64_t seed, int num_hops,
                               const int64_t *fanout, plim__window_rows_t rows);

/* From the next build on, draws come from this source: another window that has them. NULL: the
 * topology that the window was made with. */
void plim__load_window_draw_from(plim__load_window_t *window, plim__topology_t *source);

/*
 * Fills the window for as many of the batches as fit: *taken_out, 0 where not even the first does.
 * Batch i has the seeds seeds[bounds[i]] … seeds[bounds[i+1]-1]. Replaces the content. Refreshes
 * the caches of the sources below first. After a batch did not fit, most others with as many seeds
 * are refused without reading. `fits`: these batches fitted before, and are all tried at once.
 */
plim_status_t plim__load_window_build(plim__load_window_t *window, int64_t epoch,
                                      const int64_t *seeds, const int64_t *bounds,
                                      int64_t num_batches, bool fits, int64_t *taken_out);

/* Reads the rows that a build has listed. */
plim_status_t plim__load_window_read(plim__load_window_t *window);

/* The window as sources, which live as long as it and serve only nodes of its batches. */
plim__topology_t *plim__load_window_topology(plim__load_window_t *window);
plim__rows_t *plim__load_window_rows(plim__load_window_t *window);

/* How much of its capacities the last build used. */
void plim__load_window_used(const plim__load_window_t *window, int64_t *draws_out,
                            int64_t *rows_out);

/* Distinct rows that its batches need and that the cache of the source below holds. */
int64_t plim__load_window_held(const plim__load_window_t *window);

#endif
