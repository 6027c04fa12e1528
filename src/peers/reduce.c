#include "peers/reduce.h"

#include "base/check.h"

#include <assert.h>
#include <string.h>

/* Chunks begin at cache lines. */
#define CHUNK_FLOATS (PLIM__LINE / sizeof(float))

struct plim__reduce {
    plim__arena_t arena;
    plim__peers_t *peers; /* NULL: one rank */
    int64_t num_weights, num_shares;
    int rank, num_ranks;
    int64_t chunk;                        /* floats of one, padding of the last included */
    plim__share_range_t shares;           /* of this rank */
    plim__share_stack_t stack;            /* of this rank's shares since the last exchange */
    int depth;                            /* of the stack, at most */
    double losses[PLIM__SHARE_NODES_MAX]; /* of the stack's nodes */

    /* A block for each chunk: head and losses (as messages have them), then `depth` nodes. */
    char *blocks;
    size_t block_bytes;
    char *received;
    /* Of the exchange, in bytes (num_ranks): */
    size_t *send_sizes, *send_offsets, *receive_sizes, *receive_offsets;
    size_t *chunk_sizes, *chunk_offsets;
};

/* Subtrees of the shares of a rank. */
static int num_subtrees(const plim__reduce_t *reduce, int rank)
{
    return plim__share_num_subtrees(reduce->num_shares,
                                    plim__share_range(reduce->num_shares, rank, reduce->num_ranks));
}

/* Bytes of a message before its floats. */
static size_t front_bytes(int subtrees)
{
    return sizeof(plim__peer_head_t) +
           plim__round_up((size_t)subtrees * sizeof(double), PLIM__LINE);
}

/* Bytes of `count` chunks. */
static size_t chunks_bytes(const plim__reduce_t *reduce, int64_t count)
{
    return plim__mul_saturating_size((size_t)count, (size_t)reduce->chunk * sizeof(float));
}

static void lay_out(plim__arena_t *arena, void *object)
{
    plim__reduce_t *reduce = object;
    const size_t ranks = (size_t)reduce->num_ranks;
    size_t **const tables[] = {&reduce->send_sizes,    &reduce->send_offsets,
                               &reduce->receive_sizes, &reduce->receive_offsets,
                               &reduce->chunk_sizes,   &reduce->chunk_offsets};
    size_t received = 0;
    for (int rank = 0; rank < reduce->num_ranks; rank++) {
        const int subtrees = num_subtrees(reduce, rank);
        if (rank != reduce->rank)
            received = plim__add_saturating_size(
                received,
                plim__add_saturating_size(front_bytes(subtrees), chunks_bytes(reduce, subtrees)));
    }
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        *tables[i] = plim__arena_carve(arena, ranks, sizeof **tables[i], PLIM__LINE);
    reduce->blocks = plim__arena_carve(arena, ranks, reduce->block_bytes, PLIM__LINE);
    reduce->received = plim__arena_carve(arena, received, 1, PLIM__LINE);
}

static plim__reduce_t make_draft(int64_t num_weights, int64_t num_shares, int rank, int num_ranks)
{
    plim__reduce_t draft = {.num_weights = num_weights,
                            .num_shares = num_shares,
                            .rank = rank,
                            .num_ranks = num_ranks,
                            .shares = plim__share_range(num_shares, rank, num_ranks),
                            .stack = {.num_shares = num_shares}};
    draft.chunk =
        (int64_t)plim__round_up((size_t)((num_weights - 1) / num_ranks + 1), CHUNK_FLOATS);
    draft.depth = plim__share_stack_depth(num_shares, draft.shares);
    draft.block_bytes = plim__add_saturating_size(front_bytes(num_subtrees(&draft, rank)),
                                                  chunks_bytes(&draft, draft.depth));
    return draft;
}

size_t plim__reduce_bytes(int64_t num_weights, int64_t num_shares, int rank, int num_ranks)
{
    plim__reduce_t draft = make_draft(num_weights, num_shares, rank, num_ranks);
    return plim__object_bytes(lay_out, &draft, sizeof draft);
}

size_t plim__reduce_bytes_most(int64_t num_weights, int64_t num_shares, int num_ranks)
{
    size_t most = 0;
    int largest = 0;
    for (int rank = 0; rank < num_ranks; rank++) {
        const plim__reduce_t draft = make_draft(num_weights, num_shares, rank, num_ranks);
        const int subtrees = num_subtrees(&draft, rank);
        /* Ranks differ in their blocks, and in what they do not receive: their own subtrees. */
        const size_t own =
            plim__mul_saturating_size(draft.block_bytes, (size_t)num_ranks) -
            plim__add_saturating_size(front_bytes(subtrees), chunks_bytes(&draft, subtrees));
        if (own > most) {
            most = own;
            largest = rank;
        }
    }
    return plim__reduce_bytes(num_weights, num_shares, largest, num_ranks);
}

/* Writes the sizes and offsets of all messages. */
static void describe(plim__reduce_t *reduce)
{
    const int own = num_subtrees(reduce, reduce->rank);
    size_t received = 0;
    for (int rank = 0; rank < reduce->num_ranks; rank++) {
        const size_t index = (size_t)rank;
        const int subtrees = num_subtrees(reduce, rank);
        const int64_t begin = plim__min_i64(rank * reduce->chunk, reduce->num_weights);
        const int64_t end = plim__min_i64(begin + reduce->chunk, reduce->num_weights);
        const bool other = rank != reduce->rank;
        reduce->send_sizes[rank] = other ? front_bytes(own) + chunks_bytes(reduce, own) : 0;
        reduce->send_offsets[rank] = index * reduce->block_bytes;
        reduce->receive_sizes[rank] =
            other ? front_bytes(subtrees) + chunks_bytes(reduce, subtrees) : 0;
        reduce->receive_offsets[rank] = received;
        received += reduce->receive_sizes[rank];
        reduce->chunk_sizes[rank] = (size_t)(end - begin) * sizeof(float);
        reduce->chunk_offsets[rank] = (size_t)begin * sizeof(float);
    }
}

plim_status_t plim__reduce_create(const plim_job_t *job, plim__peers_t *peers, int64_t num_weights,
                                  int64_t num_shares, plim__reduce_t **reduce_out)
{
    const int num_ranks = plim__peers_num_ranks(peers);
    const int64_t numbers[] = {num_weights, num_shares};
    int64_t least[2], greatest[2];
    plim__reduce_t *reduce = NULL;
    plim_status_t status = PLIM_OK;
    if (num_shares < num_ranks || num_shares > PLIM__SHARES_MAX || num_weights < 1)
        status =
            plim__fail(PLIM_ERR_USAGE,
                       "%lld shares of %lld weights for %d ranks: each rank takes at least "
                       "one share, and a batch has at most %d",
                       (long long)num_shares, (long long)num_weights, num_ranks, PLIM__SHARES_MAX);
    if (status == PLIM_OK) {
        plim__reduce_t draft =
            make_draft(num_weights, num_shares, plim__peers_rank(peers), num_ranks);
        draft.peers = peers;
        status = plim__object_create(job->ledger, "shares", lay_out, &draft, sizeof draft,
                                     &draft.arena, &reduce);
    }
    if (reduce != NULL) {
        describe(reduce);
        plim__arena_touch(&reduce->arena);
    }
    status = plim__peers_agree(peers, PLIM__STAGE_START, status, 2, numbers, least, greatest);
    for (int i = 0; i < 2 && status == PLIM_OK; i++)
        if (least[i] != greatest[i])
            status = plim__fail(PLIM_ERR_USAGE,
                                "ranks differ in their number of %s: from %lld to %lld; give all "
                                "the same options",
                                i == 0 ? "weights" : "shares", (long long)least[i],
                                (long long)greatest[i]);
    if (status != PLIM_OK) {
        plim__reduce_destroy(reduce);
        return status;
    }
    *reduce_out = reduce;
    return PLIM_OK;
}

void plim__reduce_destroy(plim__reduce_t *reduce)
{
    if (reduce != NULL)
        plim__arena_destroy(&reduce->arena);
}

plim__share_range_t plim__reduce_shares(const plim__reduce_t *reduce)
{
    return reduce->shares;
}

/* Chunk `chunk` of the index-th node on this rank's stack. */
static float *node_chunk(const plim__reduce_t *reduce, int chunk, int index)
{
    char *block = reduce->blocks + (size_t)chunk * reduce->block_bytes;
    return (float *)(block + reduce->block_bytes - chunks_bytes(reduce, reduce->depth)) +
           index * reduce->chunk;
}

static void add(float *restrict sum, const float *restrict addend, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sum[i] += addend[i];
}

void plim__reduce_add(plim__reduce_t *reduce, const float *gradient, double loss)
{
    plim__share_stack_t *stack = &reduce->stack;
    const int64_t share =
        stack->depth > 0 ? stack->nodes[stack->depth - 1].end : reduce->shares.begin;
    assert(share < reduce->shares.end);
    const int at = stack->depth; /* of the new node */
    const int additions = plim__share_stack_push(stack, (plim__share_range_t){share, share + 1});
    for (int chunk = 0; chunk < reduce->num_ranks; chunk++) {
        const int64_t count = (int64_t)(reduce->chunk_sizes[chunk] / sizeof(float));
        const float *values = gradient + reduce->chunk_offsets[chunk] / sizeof(float);
        if (additions == 0)
            memcpy(node_chunk(reduce, chunk, at), values, reduce->chunk_sizes[chunk]);
        else
            add(node_chunk(reduce, chunk, at - 1), values, count);
        for (int i = 1; i < additions; i++)
            add(node_chunk(reduce, chunk, at - i - 1), node_chunk(reduce, chunk, at - i), count);
    }
    if (additions == 0)
        reduce->losses[at] = loss;
    else
        reduce->losses[at - 1] += loss;
    for (int i = 1; i < additions; i++)
        reduce->losses[at - i - 1] += reduce->losses[at - i];
}

void plim__reduce_discard(plim__reduce_t *reduce)
{
    reduce->stack.depth = 0;
}

/* Sends this rank's subtrees and reads the heads of the others': the error of the lowest failed
 * rank.
 */
static plim_status_t exchange_subtrees(plim__reduce_t *reduce, plim_status_t status)
{
    plim__peers_t *peers = reduce->peers;
    plim__peer_head_t head = plim__peers_head(peers, PLIM__STAGE_STEP);
    const int subtrees = num_subtrees(reduce, reduce->rank);
    bool failed = status != PLIM_OK;
    head.status = status;
    head.size = front_bytes(subtrees) + chunks_bytes(reduce, subtrees) - sizeof head;
    for (int rank = 0; rank < reduce->num_ranks; rank++) {
        char *block = reduce->blocks + (size_t)rank * reduce->block_bytes;
        memcpy(block, &head, sizeof head);
        memcpy(block + sizeof head, reduce->losses, (size_t)subtrees * sizeof(double));
    }
    PLIM_TRY(plim__peers_exchange(peers, PLIM__STAGE_STEP, reduce->blocks, reduce->send_sizes,
                                  reduce->send_offsets, reduce->received, reduce->receive_sizes,
                                  reduce->receive_offsets));
    for (int rank = 0; rank < reduce->num_ranks; rank++) {
        const size_t size = reduce->receive_sizes[rank];
        if (rank == reduce->rank)
            continue;
        PLIM_TRY(plim__peers_read_head(peers, PLIM__STAGE_STEP, rank,
                                       reduce->received + reduce->receive_offsets[rank], size,
                                       size - sizeof head, true, &head));
        failed |= head.status != PLIM_OK;
    }
    return failed ? plim__peers_agree(peers, PLIM__STAGE_STEP, status, 0, NULL, NULL, NULL)
                  : PLIM_OK;
}

static void add_to(float *restrict sum, const float *restrict left, const float *restrict right,
                   int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sum[i] = left[i] + right[i];
}

/* Adds the subtrees of this rank's chunk from all ranks, in place but for the root, which goes to
 * sum_out. */
static void add_subtrees(plim__reduce_t *reduce, float *sum_out, double *loss_out)
{
    plim__share_stack_t stack = {.num_shares = reduce->num_shares};
    ptrdiff_t sums[PLIM__SHARE_NODES_MAX] = {0}; /* bytes from `blocks` on */
    double losses[PLIM__SHARE_NODES_MAX] = {0};
    const int64_t count = (int64_t)(reduce->chunk_sizes[reduce->rank] / sizeof(float));
    for (int rank = 0; rank < reduce->num_ranks; rank++) {
        const bool own = rank == reduce->rank;
        const int subtrees = num_subtrees(reduce, rank);
        char *message = own ? reduce->blocks + (size_t)rank * reduce->block_bytes
                            : reduce->received + reduce->receive_offsets[rank];
        plim__share_range_t range = plim__share_range(reduce->num_shares, rank, reduce->num_ranks);
        for (int i = 0; i < subtrees; i++) {
            const plim__share_range_t subtree = plim__share_subtree(reduce->num_shares, range);
            const int at = stack.depth;
            range.begin = subtree.end;
            sums[at] = message + front_bytes(subtrees) + chunks_bytes(reduce, i) - reduce->blocks;
            memcpy(&losses[at], message + sizeof(plim__peer_head_t) + (size_t)i * sizeof losses[at],
                   sizeof losses[at]);
            const int additions = plim__share_stack_push(&stack, subtree);
            for (int top = at; top > at - additions; top--) {
                float *left = (float *)(reduce->blocks + sums[top - 1]);
                const float *right = (const float *)(reduce->blocks + sums[top]);
                if (top == 1 && subtree.end == reduce->num_shares)
                    add_to(sum_out, left, right, count);
                else
                    add(left, right, count);
                losses[top - 1] += losses[top];
            }
        }
    }
    assert(stack.depth == 1);
    *loss_out = losses[0];
}

plim_status_t plim__reduce_exchange(plim__reduce_t *reduce, plim_status_t status, float *sum_out,
                                    double *loss_out)
{
    const bool whole = reduce->stack.depth > 0 &&
                       reduce->stack.nodes[reduce->stack.depth - 1].end == reduce->shares.end;
    double loss;
    reduce->stack.depth = 0;
    if (status == PLIM_OK && !whole)
        status = plim__fail(PLIM_ERR_USAGE, "not all shares of the batch were added");
    if (reduce->peers == NULL) {
        PLIM_TRY(status);
        memcpy(sum_out, node_chunk(reduce, 0, 0), (size_t)reduce->num_weights * sizeof(float));
        *loss_out = reduce->losses[0];
        return PLIM_OK;
    }
    PLIM_TRY(exchange_subtrees(reduce, status));
    float *chunk = sum_out + reduce->chunk_offsets[reduce->rank] / sizeof(float);
    add_subtrees(reduce, chunk, &loss);
    PLIM_TRY(plim__peers_gather(reduce->peers, PLIM__STAGE_STEP, chunk, sum_out,
                                reduce->chunk_sizes, reduce->chunk_offsets));
    *loss_out = loss;
    return PLIM_OK;
}
