/*
 * GAT's weighted sums: for each head h, e(u,v) = LeakyReLU_0.2(att_src·z_u + att_dst·z_v), a =
 * softmax of e over v's neighbours and v itself (edges from v to itself are skipped: v counts
 * once), and out[v] = sum of a(u,v) z_u. GATv2 has e(u,v) = att·LeakyReLU_0.2(z_u + z'_v). What an
 * edge carries adds a term inside the LeakyReLU; of v itself it is the mean of its edges' terms.
 * Attention dropout is keyed by the nodes' ids, so splitting a batch does not change it.
 */
#ifndef PLIM_NN_ATTENTION_H
#define PLIM_NN_ATTENTION_H

#include "nn/edge_terms.h"
#include "nn/node_ids.h"

typedef struct plim__attention {
    int heads;
    int64_t channels;       /* of one head; z is (num_src, heads * channels) */
    const float *att_src;   /* (heads, channels) */
    const float *att_dst;   /* (heads, channels) */
    float dropout;          /* of attention weights; 0: none */
    uint64_t key;           /* of the dropout: (seed, epoch, step, layer) */
    plim__node_ids_t nodes; /* of the sources, for the dropout */
    /* GATv2: z' (num_dst, heads * channels), and att_src is att; NULL: GAT. */
    const plim__matrix_t *z_dst;
    /* What edges add, `heads` wide (GATv2: heads * channels); NULL: nothing. */
    const plim__edge_terms_t *terms;
    float *term_rows; /* GATv2 with terms: (workers, heads * channels) scratch */
} plim__attention_t;

/* Results of forward that backward needs; the caller provides the arrays. */
typedef struct plim__attention_state {
    float *score_src; /* (num_src, heads) att_src·z */
    float *score_dst; /* (num_dst, heads) */
    float *weights;   /* (num_edges + num_dst, heads): a before dropout, of edges, then of selves */
    /* With terms: of edges and of selves (num_edges + num_dst, heads); GATv2: of selves alone
     * (num_dst, heads * channels). GATv2 has no scores. */
    float *terms;
} plim__attention_state_t;

/* Further gradients; NULL for what the attention does not have. */
typedef struct plim__attention_gradients {
    plim__matrix_t *dz_dst; /* (num_dst, heads * channels) overwritten */
    float *dtable;          /* of the terms, added to */
    void *scratch;          /* plim__edge_terms_scratch bytes */
} plim__attention_gradients_t;

/* z: F32, num_src rows; out: F32, num_dst rows of heads * channels. */
void plim__attention_forward(plim__team_t *team, const plim__edges_t *hop,
                             const plim__attention_t *attention, const plim__matrix_t *z,
                             plim__attention_state_t *state, plim__matrix_t *out);

/*
 * dz (num_src rows, F32, overwritten) from dout; datt_src and datt_dst (heads, channels) are added
 * to. `more` may be NULL for GAT without terms. `scratch` has plim__attention_scratch bytes.
 */
void plim__attention_backward(plim__team_t *team, const plim__edges_t *hop,
                              const plim__reverse_t *reverse, const plim__attention_t *attention,
                              const plim__matrix_t *z, const plim__attention_state_t *state,
                              const plim__matrix_t *dout, plim__matrix_t *dz, float *datt_src,
                              float *datt_dst, const plim__attention_gradients_t *more,
                              void *scratch);
size_t plim__attention_scratch(int64_t num_src, int64_t num_dst, int64_t num_edges, int heads,
                               int64_t channels);

#endif
