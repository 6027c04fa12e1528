/*
 * What the ranks of a job exchange in an exact evaluation, with the bytes that each receives:
 *
 *     unite    members of a set, N/8 bytes and a little more, twice
 *     gather   each layer's product, once however many panels and blocks there are: its sources
 *              times the columns that are aggregated, 4 bytes each
 *     collect  the requested outputs, to peer 0
 *
 * Layers stay where they were computed, so memory and disk between layers are divided too.
 * Considered: outputs gathered after each layer, so that every peer has the whole next input. That
 * moves `out` columns where the product may have fewer, and the product is then formed by every
 * peer, or gathered as well; a peer would keep all rows.
 *
 * A failure or a stop of one peer travels to the next plim__exact_agree, where all return it.
 */
#include "infer/exact_internal.h"

#include "base/check.h"
#include "base/fail.h"

#include <string.h>

#define STAGE PLIM__STAGE_EVALUATION

plim_status_t plim__exact_agree(const plim__exact_t *exact, plim_status_t status)
{
    return plim__peers_agree(exact->peers, STAGE, status, 0, NULL, NULL, NULL);
}

/* Divides lines [first, end) among the peers; sizes and offsets in bytes. */
static void divide_lines(const plim__exact_t *exact, int64_t first, int64_t end)
{
    const int peers = plim__peers_num_ranks(exact->peers);
    for (int peer = 0; peer < peers; peer++) {
        const int64_t from = first + (end - first) * peer / peers;
        const int64_t to = first + (end - first) * (peer + 1) / peers;
        exact->send_offsets[peer] = (size_t)from * sizeof(plim__node_set_line_t);
        exact->send_sizes[peer] = (size_t)(to - from) * sizeof(plim__node_set_line_t);
    }
}

plim_status_t plim__exact_unite(plim__exact_t *exact, plim__node_set_t *members)
{
    const int self = plim__peers_rank(exact->peers), peers = plim__peers_num_ranks(exact->peers);
    int64_t fit = exact->rows.capacity / (int64_t)sizeof(plim__node_set_line_t);
    char *received = exact->rows.buffers[0];
    if (exact->peers == NULL)
        return PLIM_OK;
    /* Peers with less memory have smaller buffers. */
    PLIM_TRY(plim__peers_agree(exact->peers, STAGE, PLIM_OK, 1, &fit, &fit, NULL));
    if (fit < peers)
        return plim__fail(PLIM_ERR_DATA, "a rank has room for %lld lines of a set", (long long)fit);
    const int64_t most = fit - fit % peers;
    for (int64_t first = 0; first < members->num_lines; first += most) {
        plim_status_t status = PLIM_OK;
        divide_lines(exact, first, plim__min_i64(first + most, members->num_lines));
        PLIM_TRY(plim__peers_all_to_all(exact->peers, STAGE, members->lines, exact->send_sizes,
                                        exact->send_offsets, received, (size_t)exact->rows.capacity,
                                        exact->receive_sizes, exact->receive_offsets));
        uint64_t *own = (uint64_t *)(void *)((char *)members->lines + exact->send_offsets[self]);
        for (int peer = 0; peer < peers && status == PLIM_OK; peer++) {
            const uint64_t *theirs =
                (const uint64_t *)(const void *)(received + exact->receive_offsets[peer]);
            if (exact->receive_sizes[peer] != exact->send_sizes[self])
                status = plim__peers_fail_rows(peer);
            for (size_t i = 0; status == PLIM_OK && i < exact->send_sizes[self] / sizeof *own; i++)
                own[i] |= theirs[i];
        }
        PLIM_TRY(plim__exact_agree(exact, status));
        PLIM_TRY(plim__peers_all_gather(exact->peers, STAGE, own, members->lines + first,
                                        exact->send_sizes));
    }
    return PLIM_OK;
}

/* The stripe of peer 0 in the group that begins at position `first`. */
static int64_t first_stripe(const plim__exact_t *exact, int64_t first)
{
    const int64_t node = plim__exact_node_at(exact->from, first);
    const int64_t stripe = plim__exact_stripe(exact->held->shift, node);
    return stripe - stripe % plim__peers_num_ranks(exact->peers);
}

int64_t plim__exact_group_end(const plim__exact_t *exact, int64_t first, int64_t end)
{
    if (exact->peers == NULL)
        return end;
    const int64_t next = first_stripe(exact, first) + plim__peers_num_ranks(exact->peers);
    return plim__min_i64(plim__exact_stripe_position(exact->from, exact->held->shift, next), end);
}

plim_status_t plim__exact_gather(plim__exact_t *exact, int64_t first, int64_t end,
                                 plim_status_t status, int64_t width, float *rows)
{
    const int self = plim__peers_rank(exact->peers), peers = plim__peers_num_ranks(exact->peers);
    int64_t own = first, begin = first;
    if (exact->peers == NULL)
        return status;
    const int64_t stripe = first_stripe(exact, first);
    for (int peer = 0; peer < peers; peer++) {
        const int64_t position =
            plim__exact_stripe_position(exact->from, exact->held->shift, stripe + peer + 1);
        const int64_t stop = plim__max_i64(first, plim__min_i64(position, end));
        own = peer == self ? begin : own;
        exact->send_sizes[peer] = (size_t)((stop - begin) * width) * sizeof *rows;
        begin = stop;
    }
    PLIM_TRY(plim__exact_agree(exact, status));
    return plim__peers_all_gather(exact->peers, STAGE, rows + (own - first) * width, rows,
                                  exact->send_sizes);
}

static int peer_of(const plim__exact_t *exact, int64_t node)
{
    return (int)(plim__exact_stripe(exact->all_nodes.shift, node) %
                 plim__peers_num_ranks(exact->peers));
}

plim_status_t plim__exact_collect(plim__exact_t *exact, plim_status_t status, const int64_t *nodes,
                                  int64_t first, int64_t count, int64_t width, float *rows_out)
{
    const int self = plim__peers_rank(exact->peers), peers = plim__peers_num_ranks(exact->peers);
    const size_t row = (size_t)width * sizeof *rows_out;
    PLIM_TRY(plim__exact_agree(exact, status));
    for (int peer = 0; peer < peers; peer++)
        exact->send_sizes[peer] = exact->send_offsets[peer] = 0;
    for (int64_t i = first; i < first + count; i++)
        if (peer_of(exact, nodes != NULL ? nodes[i] : i) == self)
            exact->send_sizes[0] += row;
    PLIM_TRY(plim__peers_all_to_all(exact->peers, STAGE, exact->h, exact->send_sizes,
                                    exact->send_offsets, exact->state,
                                    (size_t)exact->sizes.written + (size_t)peers * PLIM__LINE,
                                    exact->receive_sizes, exact->receive_offsets));
    for (int64_t i = first; self == 0 && i < first + count; i++) {
        const int peer = peer_of(exact, nodes != NULL ? nodes[i] : i);
        if (exact->receive_sizes[peer] < row) {
            status = plim__peers_fail_rows(peer);
            break;
        }
        memcpy(rows_out + (i - first) * width,
               (const char *)exact->state + exact->receive_offsets[peer], row);
        exact->receive_sizes[peer] -= row;
        exact->receive_offsets[peer] += row;
    }
    return plim__exact_agree(exact, status);
}
