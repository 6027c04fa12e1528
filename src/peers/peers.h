/*
 * The ranks of a job, as the library sees them: operations over the job's transport that wait,
 * check what they receive, and end with an error that names rank and stage.
 *
 * Every function takes NULL for a job of one rank: then nothing is sent. All ranks call the same
 * functions in the same order, from one thread at a time. Each message begins with a head (or is
 * preceded by one, where it is large) with stage, sequence number and size: a rank that runs
 * another version, is elsewhere in its work, or sends damaged bytes is an error, PLIM_ERR_DATA.
 *
 * A wait tests the transport for some 50 µs, and longer where many bytes move, then naps between
 * tests; where ranks outnumber processors it yields between the first tests. When the transport's
 * timeout passes, the wait ends with PLIM_ERR_TIMEOUT and names the rank that is late; the job then
 * sends nothing more. The stop flag does not end a wait: rank 0 may be saving the run. It travels
 * with the next message (peers/reduce.h, plim__peers_agree), so that all ranks stop at the same
 * step.
 */
#ifndef PLIM_PEERS_PEERS_H
#define PLIM_PEERS_PEERS_H

#include "mem/arena.h"
#include "peers/peer_head.h"

typedef struct plim__peers plim__peers_t;

/*
 * Connects to the other ranks of the job's transport and checks that they run this version of the
 * library; *peers_out is NULL for a job of one rank. The peers are valid while the job lives.
 * Errors of a wait and of plim__arena_create.
 */
plim_status_t plim__peers_open(const plim_job_t *job, plim__peers_t **peers_out);
void plim__peers_close(plim__peers_t *peers);

/* NULL is rank 0 of 1. */
int plim__peers_rank(const plim__peers_t *peers);
int plim__peers_num_ranks(const plim__peers_t *peers);

/* PLIM_ERR_DATA for a rank that sent another number of rows than this one expects. */
plim_status_t plim__peers_fail_rows(int rank);

#define PLIM__AGREE_MAX 16

/*
 * Waits for all ranks; each passes its status and `count` numbers, at most PLIM__AGREE_MAX. If all
 * are PLIM_OK, returns the least and the greatest of each number (either may be NULL). Otherwise
 * every rank gets the error (or PLIM__PLAN_AGAIN) of the lowest failed rank, with its message
 * ("rank 2: …"). So a rank whose work has failed calls this instead of returning.
 */
plim_status_t plim__peers_agree(plim__peers_t *peers, plim__stage_t stage, plim_status_t status,
                                int count, const int64_t *numbers, int64_t *least_out,
                                int64_t *greatest_out);

#define PLIM__COMPARE_BYTES 4096

/*
 * Compares a text of lines with rank 0's, on every rank: PLIM_ERR_USAGE for all names the lowest
 * rank that differs, with its first line that does. A text ends in NUL within PLIM__COMPARE_BYTES.
 */
plim_status_t plim__peers_compare(plim__peers_t *peers, plim__stage_t stage, const char *text);

/* Copies `size` bytes of rank `root` to all ranks; all pass the same size. Nothing for NULL. */
plim_status_t plim__peers_broadcast(plim__peers_t *peers, plim__stage_t stage, int root,
                                    void *buffer, size_t size);

/*
 * Gathers sizes[r] bytes of each rank r, in the order of ranks and one behind the other, at
 * `receive`. All ranks pass the same sizes. `send` may be its own place in `receive`. For NULL,
 * sizes[0] bytes are copied.
 */
plim_status_t plim__peers_all_gather(plim__peers_t *peers, plim__stage_t stage, const void *send,
                                     void *receive, const size_t *sizes);

/*
 * Sends send_sizes[r] bytes at send + send_offsets[r] to each rank r. The messages received are
 * stored one after the other at `receive`, each at a multiple of PLIM__LINE; receive_sizes_out and
 * receive_offsets_out (num_ranks each) say where. PLIM_ERR_DATA if they need more than `capacity`.
 */
plim_status_t plim__peers_all_to_all(plim__peers_t *peers, plim__stage_t stage, const void *send,
                                     const size_t *send_sizes, const size_t *send_offsets,
                                     void *receive, size_t capacity, size_t *receive_sizes_out,
                                     size_t *receive_offsets_out);

/*
 * For peers/reduce.h, where a round trip for heads alone would be felt: the messages carry their
 * heads inside, and both sides know all sizes. plim__peers_head is for the next operation,
 * plim__peers_read_head (as plim__peer_head_read) for the last one, from `rank`.
 */
plim__peer_head_t plim__peers_head(const plim__peers_t *peers, plim__stage_t stage);
plim_status_t plim__peers_read_head(plim__peers_t *peers, plim__stage_t stage, int rank,
                                    const void *bytes, size_t available, uint64_t size_most,
                                    bool exact, plim__peer_head_t *head_out);
plim_status_t plim__peers_exchange(plim__peers_t *peers, plim__stage_t stage, const void *send,
                                   const size_t *send_sizes, const size_t *send_offsets,
                                   void *receive, const size_t *receive_sizes,
                                   const size_t *receive_offsets);
plim_status_t plim__peers_gather(plim__peers_t *peers, plim__stage_t stage, const void *send,
                                 void *receive, const size_t *sizes, const size_t *offsets);

#endif
