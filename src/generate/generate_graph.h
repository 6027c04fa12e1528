/*
 * The generated graph: the sources of every node are a pure function of the shape and its seed, so
 * that any thread can make any block of nodes, in any order.
 */
#ifndef PLIM_GENERATE_GENERATE_GRAPH_H
#define PLIM_GENERATE_GENERATE_GRAPH_H

#include "base/job.h"
#include "generate/generate_shape.h"

#include <stddef.h>

typedef struct plim__graph plim__graph_t;

/* Memory in the account "generate graph": 8 bytes for 16,384 nodes, and for each thread a set for
 * the longest list (at most 4 MiB for a mean degree below 50,000). */
size_t plim__graph_estimate(const plim_job_t *job, const plim__shape_t *shape);
plim_status_t plim__graph_create(const plim_job_t *job, const plim__shape_t *shape,
                                 plim__graph_t **graph_out);
void plim__graph_destroy(plim__graph_t *graph);

/* Takes `count` edges source[i] → destination[i]. */
typedef plim_status_t (*plim__edge_sink_fn)(void *context, int worker, const int64_t *source,
                                            const int64_t *destination, int64_t count);

/* Draws every list of a block, 0 … plim__graph_blocks()-1, and passes its edges to the sink.
 * Workers may draw at the same time. */
int64_t plim__graph_blocks(const plim__graph_t *graph);
plim_status_t plim__graph_draw(plim__graph_t *graph, int worker, int64_t block,
                               plim__edge_sink_fn sink, void *context);

/* The expected histogram of in-degrees, as in dataset.json, and their maximum, without drawing. */
void plim__graph_expect(const plim__shape_t *shape, int64_t degrees_out[PLIM_DEGREE_BUCKETS],
                        int64_t *max_degree_out);

/* Edges in all lists, and length limits; an undirected edge counts once. */
int64_t plim__graph_list_edges(const plim__shape_t *shape);
int64_t plim__graph_list_capacity(const plim__shape_t *shape);
int64_t plim__graph_longest_list(const plim__shape_t *shape);

#define PLIM__COMMUNITY_RATIO                                                                      \
    1e4 /* a community's hottest to its coldest, the same at every scale */

#endif
