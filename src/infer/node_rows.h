/*
 * A row of floats for each node, stored by an exact pass: in memory, or in a nameless file from
 * which the rows of a few nodes are read at a time.
 */
#ifndef PLIM_INFER_NODE_ROWS_H
#define PLIM_INFER_NODE_ROWS_H

#include <plimsoll/job.h>

typedef struct plim__node_rows plim__node_rows_t;

/*
 * At most `most` nodes are looked up at once. Rows are in memory if they take at most `memory`
 * bytes, else in `scratch`, which outlives this. Account "node rows". PLIM_ERR_BUDGET,
 * PLIM_ERR_SPACE, PLIM_ERR_DISK, PLIM_ERR_IO.
 */
plim_status_t plim__node_rows_create(const plim_job_t *job, const char *scratch, int64_t num_nodes,
                                     int64_t width, int64_t most, int64_t memory,
                                     plim__node_rows_t **rows_out);
void plim__node_rows_destroy(plim__node_rows_t *rows);

/* Bytes of memory for rows in a file. */
size_t plim__node_rows_estimate(const plim_job_t *job, int64_t width, int64_t most);

/* Stores the rows of the next nodes, from node 0 on: a plim__exact_take_fn. */
plim_status_t plim__node_rows_take(void *rows, int64_t first, int64_t count, int64_t width,
                                   const float *values);

/*
 * Finds the rows of `count` nodes, which may repeat, after all rows were stored: that of nodes[i]
 * is (*rows_out)[(*places_out)[i] * width]. Both are valid until the next call, and as long as
 * `nodes`. PLIM_ERR_IO, PLIM_ERR_STOPPED.
 */
plim_status_t plim__node_rows_find(plim__node_rows_t *rows, const int64_t *nodes, int64_t count,
                                   const float **rows_out, const int64_t **places_out);

#endif
