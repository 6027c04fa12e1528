/*
 * The head of a message between ranks: the sender's stage and sequence number, which the
 * receiver compares with its own. Numbers are little-endian; a machine of another byte order fails
 * the first comparison.
 */
#ifndef PLIM_PEERS_PEER_HEAD_H
#define PLIM_PEERS_PEER_HEAD_H

#include <plimsoll/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where in its work a rank is; names are in messages. */
typedef enum plim__stage {
    PLIM__STAGE_START = 1,
    PLIM__STAGE_STAGING,
    PLIM__STAGE_PLAN,
    PLIM__STAGE_STEP,
    PLIM__STAGE_EVALUATION,
    PLIM__STAGE_CHECKPOINT,
    PLIM__STAGE_END
} plim__stage_t;

/* "step", …; "unknown stage" for other numbers, which may come from a peer. */
const char *plim__stage_name(int64_t stage);

/* Not an error, in PLIM__STAGE_STEP only: a rank asks all ranks to stop the epoch here and
 * continue it under other plans. */
#define PLIM__PLAN_AGAIN ((plim_status_t)1)

typedef struct plim__peer_head {
    uint64_t magic;
    uint32_t version; /* of the messages */
    uint32_t stage;
    uint32_t rank, num_ranks; /* of the sender */
    uint64_t sequence;        /* operations of the sender before this one */
    uint64_t size;            /* bytes that follow, here or in the next operation */
    int32_t status;           /* plim_status_t of the sender's work so far */
    uint32_t flags;
    uint64_t reserved[2]; /* 0 */
} plim__peer_head_t;

_Static_assert(sizeof(plim__peer_head_t) == 64, "a head is one cache line");

/* A head of this version; the caller adds size, status and flags. */
plim__peer_head_t plim__peer_head(plim__stage_t stage, int rank, int num_ranks, uint64_t sequence);

/*
 * Reads the head at `bytes`, `available` of which were received, and compares it with the head that
 * the sender should have sent: all but size, status and flags must be equal. The size is at most
 * size_most, or exactly that if `exact`; the status is a plim_status_t, or PLIM__PLAN_AGAIN.
 * PLIM_ERR_DATA names the sender and the difference.
 */
plim_status_t plim__peer_head_read(const void *bytes, size_t available,
                                   const plim__peer_head_t *expected, uint64_t size_most,
                                   bool exact, plim__peer_head_t *head_out);

#endif
