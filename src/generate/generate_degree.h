/*
 * In-degrees of the generated graph: node `place` has an integer weight, lognormal with power-law
 * hubs. With the weights' running sum c and total W its degree is floor(E c(place+1) / W) -
 * floor(E c(place) / W): degrees sum to E exactly, and a block of nodes needs only the sum at its
 * beginning.
 */
#ifndef PLIM_GENERATE_GENERATE_DEGREE_H
#define PLIM_GENERATE_GENERATE_DEGREE_H

#include "base/job.h"
#include "generate/generate_shape.h"

#define PLIM__DEGREE_BLOCK ((int64_t)1 << 14) /* nodes of one block */

#define PLIM__LOGNORMAL_BITS 12
#define PLIM__LOGNORMAL_SIZE (1 << PLIM__LOGNORMAL_BITS)

typedef struct plim__degrees {
    int64_t num_nodes;
    int64_t num_core;
    int64_t num_edges;
    int64_t longest; /* the maximum degree */
    int64_t num_blocks;
    uint64_t *weight_before; /* (num_blocks + 1): sum of the weights before each block */
    uint64_t weight_limit;
    uint64_t core_factor; /* in units of 2^-8 */
    uint64_t body_key;
    uint64_t hub_key;
    uint64_t ratio; /* edges per weight times 2^ratio_bits, rounded up */
    unsigned ratio_bits;
    uint32_t lognormal[PLIM__LOGNORMAL_SIZE + 1];
} plim__degrees_t;

int64_t plim__degrees_blocks(int64_t num_nodes);

/*
 * Computes the weights of all nodes on job->threads threads. `num_edges` are divided among the
 * nodes, at most `longest` a node (num_edges <= num_nodes * longest). The caller owns
 * `weight_before`: plim__degrees_blocks() + 1 zeros. PLIM_ERR_STOPPED.
 */
plim_status_t plim__degrees_make(const plim_job_t *job, const plim__shape_t *shape,
                                 int64_t num_edges, int64_t longest, uint64_t *weight_before,
                                 plim__degrees_t *degrees_out);

/* Degrees of the nodes of a block, in order; returns the number of nodes. */
int64_t plim__degrees_block(const plim__degrees_t *degrees, int64_t block,
                            int64_t degrees_out[PLIM__DEGREE_BLOCK]);

/*
 * The expected distribution of degrees, without computing any weight: calls `each` with a share of
 * all nodes and its degree. The shares add up to 1.
 */
typedef void (*plim__degree_fn)(void *context, double share, double degree);
void plim__degrees_expect(const plim__shape_t *shape, int64_t num_edges, int64_t longest,
                          plim__degree_fn each, void *context);

#endif
