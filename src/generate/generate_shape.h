/*
 * A shape to generate: exact counts, and the parameters of the model for degrees, communities and
 * access pattern.
 *
 * Nodes have a structural order, which a keyed permutation turns into ids:
 *
 *     ├ stars ┤├────── core ──────┤├──────────────── periphery ────────────────┤
 *     0       num_stars           num_core                                    num_nodes
 *
 * Labelled nodes are spread evenly over stars and core. A core node draws its neighbours from the
 * stars and the core, a peripheral one from its own community in the periphery; both draw with a
 * small probability from the whole graph. Each class is a community, with a contiguous part of the
 * core and one of the periphery.
 */
#ifndef PLIM_GENERATE_GENERATE_SHAPE_H
#define PLIM_GENERATE_GENERATE_SHAPE_H

#include <plimsoll/ingest.h>

/* Uses of the keys derived from the seed. */
enum {
    PLIM__KEY_PLACE = 1,
    PLIM__KEY_EVERYWHERE,
    PLIM__KEY_DEGREE,
    PLIM__KEY_HUB,
    PLIM__KEY_LIST,
    PLIM__KEY_FILL,
    PLIM__KEY_SPLIT,
    PLIM__KEY_LABEL,
    PLIM__KEY_MEAN,
    PLIM__KEY_NOISE,
    PLIM__KEY_SUBJECT,
    PLIM__KEY_AXIS,
    PLIM__KEY_EDGE,
    PLIM__KEY_EDGE_MEAN,
    PLIM__KEY_TIME
};

/* Probabilities of the pools that a list draws from; the rest is the whole region. */
typedef struct plim__draw_mix {
    double everywhere; /* all nodes, Zipf-like */
    double hot;        /* the stars; in the periphery the most drawn twelfth of the community */
    double community;  /* the destination's own community, in its own region */
} plim__draw_mix_t;

typedef struct plim__shape {
    const char *name;
    int64_t num_nodes;
    int64_t num_edges; /* as stored: both directions of an undirected graph */
    int64_t num_features;
    int64_t num_classes;
    int64_t num_split[3]; /* train, valid, test; together at most num_core */
    int64_t num_stars;
    int64_t num_core; /* stars included */
    bool undirected;
    plim_dtype_t feature_type;
    plim__draw_mix_t core;
    plim__draw_mix_t periphery;
    double core_degree; /* in-degree of stars and core, as a multiple of the periphery's */
    bool even_core;     /* core sources are drawn evenly, not Zipf-like */
    double distance;    /* mean squared length of class means, relative to the variance of noise */
    double label_noise; /* share of labels of another class */
    int64_t num_edge_features; /* of the type of features; 0: none */
    int64_t num_edge_types;    /* 0: none */
    bool edge_weights;
    bool times; /* of edges and of nodes */
    uint64_t seed;
} plim__shape_t;

/*
 * Resolves options: the named shape times the scale, or the free one. PLIM_ERR_USAGE for an unknown
 * shape, counts that do not match, and more edges than pairs of nodes.
 */
plim_status_t plim__shape_resolve(const plim_generate_options_t *options, plim__shape_t *shape_out);

#endif
