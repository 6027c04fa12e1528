/*
 * The sum of the shares' gradients over all ranks, in the order of the share tree: the same bits on
 * every rank, for any number of ranks.
 *
 * The gradient of W floats is divided into one chunk for each rank. A rank adds its own shares as
 * they come; its subtrees lie chunk by chunk, as they are sent. One all-to-all brings the subtrees
 * of chunk r to rank r, which adds them in tree order; one all-gather brings the chunks to all.
 *
 *     rank 0   [head losses | subtree 0, chunk 0 | subtree 1, chunk 0]  ─► stays
 *              [head losses | subtree 0, chunk 1 | subtree 1, chunk 1]  ─► rank 1
 *
 * Each message carries the rank's status and losses, so all ranks learn of a failure or a
 * stop at the same step. Nothing is sent in a job of one rank.
 */
#ifndef PLIM_PEERS_REDUCE_H
#define PLIM_PEERS_REDUCE_H

#include "peers/peers.h"
#include "peers/share_tree.h"

typedef struct plim__reduce plim__reduce_t;

/* Bytes of a reduction, in the account "shares". */
size_t plim__reduce_bytes(int64_t num_weights, int64_t num_shares, int rank, int num_ranks);

/* The bytes of the rank that needs most. Plans count these, so that all ranks report one minimum.
 */
size_t plim__reduce_bytes_most(int64_t num_weights, int64_t num_shares, int num_ranks);

/*
 * num_shares is at least the number of ranks. PLIM_ERR_USAGE otherwise, and when ranks differ in
 * weights or shares; errors of plim__arena_create, on all ranks when on one.
 */
plim_status_t plim__reduce_create(const plim_job_t *job, plim__peers_t *peers, int64_t num_weights,
                                  int64_t num_shares, plim__reduce_t **reduce_out);
void plim__reduce_destroy(plim__reduce_t *reduce);

/* The shares that this rank adds, in this order. */
plim__share_range_t plim__reduce_shares(const plim__reduce_t *reduce);

/* Adds the gradient and the loss of the next share of this rank. */
void plim__reduce_add(plim__reduce_t *reduce, const float *gradient, double loss);

/* Forgets the shares that were added since the last exchange. */
void plim__reduce_discard(plim__reduce_t *reduce);

/*
 * Ends a batch: sum_out (num_weights) is the sum of all shares, *loss_out that of their losses.
 * With a status that is not PLIM_OK the rank takes part without its shares: every rank gets the
 * error of the lowest failed rank, with its message, and sums are not written. Errors of a wait,
 * after which sum_out may be partly written.
 */
plim_status_t plim__reduce_exchange(plim__reduce_t *reduce, plim_status_t status, float *sum_out,
                                    double *loss_out);

#endif
