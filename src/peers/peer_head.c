#include "peers/peer_head.h"

#include "base/fail.h"

#include <inttypes.h>
#include <string.h>

#define MAGIC UINT64_C(0x31737265656d6c70) /* "plmeers1" */
#define VERSION 1

const char *plim__stage_name(int64_t stage)
{
    static const char *const names[] = {
        [PLIM__STAGE_START] = "start",
        [PLIM__STAGE_STAGING] = "staging",
        [PLIM__STAGE_PLAN] = "plan",
        [PLIM__STAGE_STEP] = "step",
        [PLIM__STAGE_EVALUATION] = "evaluation",
        [PLIM__STAGE_CHECKPOINT] = "checkpoint",
        [PLIM__STAGE_END] = "end",
    };
    return stage >= PLIM__STAGE_START && stage <= PLIM__STAGE_END ? names[stage] : "unknown stage";
}

plim__peer_head_t plim__peer_head(plim__stage_t stage, int rank, int num_ranks, uint64_t sequence)
{
    return (plim__peer_head_t){.magic = MAGIC,
                               .version = VERSION,
                               .stage = (uint32_t)stage,
                               .rank = (uint32_t)rank,
                               .num_ranks = (uint32_t)num_ranks,
                               .sequence = sequence};
}

plim_status_t plim__peer_head_read(const void *bytes, size_t available,
                                   const plim__peer_head_t *expected, uint64_t size_most,
                                   bool exact, plim__peer_head_t *head_out)
{
    plim__peer_head_t head;
    const unsigned rank = expected->rank;
    if (available < sizeof head)
        return plim__fail(PLIM_ERR_DATA, "rank %u sent %zu bytes where a head of %zu begins", rank,
                          available, sizeof head);
    memcpy(&head, bytes, sizeof head);
    if (head.magic != expected->magic)
        return plim__fail(
            PLIM_ERR_DATA,
            "rank %u sent a message that is not Plimsoll's (it begins with %016" PRIx64
            "): does every rank run plimsoll?",
            rank, head.magic);
    if (head.version != expected->version)
        return plim__fail(PLIM_ERR_DATA,
                          "rank %u sends messages of version %" PRIu32 ", this rank of %" PRIu32
                          ": install one version of Plimsoll on all nodes",
                          rank, head.version, expected->version);
    if (head.rank != expected->rank || head.num_ranks != expected->num_ranks)
        return plim__fail(PLIM_ERR_DATA,
                          "a message of rank %u of %" PRIu32 " came from rank %" PRIu32
                          " of %" PRIu32,
                          rank, expected->num_ranks, head.rank, head.num_ranks);
    if (head.stage != expected->stage || head.sequence != expected->sequence)
        return plim__fail(PLIM_ERR_DATA,
                          "rank %u is in %s (message %" PRIu64
                          "), this rank in %s (message %" PRIu64
                          "): do all ranks have the same options and files?",
                          rank, plim__stage_name(head.stage), head.sequence,
                          plim__stage_name(expected->stage), expected->sequence);
    if (head.size > size_most || (exact && head.size != size_most))
        return plim__fail(PLIM_ERR_DATA,
                          "rank %u announces %" PRIu64 " bytes in %s (message %" PRIu64
                          "), where this rank expects %s%" PRIu64,
                          rank, head.size, plim__stage_name(head.stage), head.sequence,
                          exact ? "" : "at most ", size_most);
    const int32_t greatest = head.stage == PLIM__STAGE_STEP ? PLIM__PLAN_AGAIN : PLIM_OK;
    if (head.status > greatest || head.status < PLIM_ERR_TIMEOUT || head.reserved[0] != 0 ||
        head.reserved[1] != 0)
        return plim__fail(PLIM_ERR_DATA, "rank %u sent a damaged head (status %" PRId32 ")", rank,
                          head.status);
    *head_out = head;
    return PLIM_OK;
}
