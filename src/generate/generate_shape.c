/* The named shapes, and the conversion of options to exact counts. */
#include "generate/generate_shape.h"

#include "base/check.h"
#include "base/fail.h"
#include "store/dataset.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A shape at full size. Shares are of all nodes; `edges` counts an undirected edge once. */
typedef struct named_shape {
    const char *name;
    int64_t nodes;
    int64_t edges;
    int64_t features;
    int64_t classes;
    int64_t split[3];
    double core_share;
    double star_share;
    double core_degree;
    plim__draw_mix_t core;
    plim__draw_mix_t periphery;
    double distance;
    double label_noise;
    plim_dtype_t feature_type;
    bool undirected;
    bool even_core;
} named_shape_t;

/* A shape without a periphery, whose lists draw this share from their own communities. */
#define ALL_CORE(share)                                                                            \
    .core_share = 1, .core_degree = 1, .core = {.everywhere = 0.1, .community = (share)},          \
    .distance = 14

static const named_shape_t shapes[] = {
    {.name = "papers100M",
     .nodes = 111059956,
     .edges = 1615685872,
     .features = 128,
     .classes = 172,
     .split = {1207179, 125265, 214338},
     .feature_type = PLIM_F16,
     .core_share = 0.0985,
     .star_share = 0.0003,
     .core_degree = 6.6,
     .even_core = true,
     .core = {.everywhere = 0.0055, .hot = 0.41, .community = 0.575},
     .periphery = {.everywhere = 0.25, .hot = 0.5, .community = 0.2},
     .distance = 20,
     .label_noise = 0.31},
    {.name = "products",
     .nodes = 2449029,
     .edges = 61859140,
     .features = 100,
     .classes = 47,
     .split = {196615, 39323, 2213091},
     .undirected = true,
     .feature_type = PLIM_F32,
     ALL_CORE(0.8),
     .label_noise = 0.2},
    {.name = "arxiv",
     .nodes = 169343,
     .edges = 1166243,
     .features = 128,
     .classes = 40,
     .split = {90941, 29799, 48603},
     .feature_type = PLIM_F32,
     ALL_CORE(0.85),
     .label_noise = 0.27},
    {.name = "reddit",
     .nodes = 232965,
     .edges = 57307946,
     .features = 602,
     .classes = 41,
     .split = {153431, 23831, 55703},
     .undirected = true,
     .feature_type = PLIM_F32,
     ALL_CORE(0.8),
     .label_noise = 0.04},
};

#define NUM_SHAPES (sizeof shapes / sizeof shapes[0])
#define MAX_NODES ((int64_t)1 << 40)
#define MAX_EDGES ((int64_t)1 << 50)
#define MAX_FEATURES 1000000
#define MAX_CLASSES 1000000
#define MAX_EDGE_TYPES 1000000
#define MAX_COLUMN_BYTES ((int64_t)1 << 61) /* with rows and lists still an int64_t */

static int64_t scaled(int64_t count, double scale)
{
    return (int64_t)((double)count * scale + 0.5);
}

/* Counts that are given take the place of the shape's. */
static void take_named(const named_shape_t *named, const plim_generate_options_t *options,
                       plim__shape_t *shape)
{
    const double scale = options->scale;
    const int64_t edges = options->num_edges != 0 ? plim__min_i64(options->num_edges, MAX_EDGES + 1)
                                                  : scaled(named->edges, scale);
    shape->name = named->name;
    shape->num_nodes = options->num_nodes != 0 ? options->num_nodes : scaled(named->nodes, scale);
    shape->num_edges = edges * (named->undirected ? 2 : 1);
    shape->num_features = options->num_features != 0 ? options->num_features : named->features;
    shape->num_classes = options->num_classes != 0 ? options->num_classes : named->classes;
    for (int i = 0; i < 3; i++)
        shape->num_split[i] = scaled(named->split[i], scale);
    shape->undirected = named->undirected;
    shape->feature_type = named->feature_type;
    shape->num_core = scaled(shape->num_nodes, named->core_share);
    shape->num_stars = scaled(shape->num_nodes, named->star_share);
    shape->core = named->core;
    shape->periphery = named->periphery;
    shape->core_degree = named->core_degree;
    shape->even_core = named->even_core;
    shape->distance = named->distance;
    shape->label_noise = named->label_noise;
}

static void take_free(const plim_generate_options_t *options, plim__shape_t *shape)
{
    static const named_shape_t *const like = &shapes[2];
    take_named(like, options, shape);
    shape->name = "free";
    shape->num_edges = options->num_edges;
    shape->num_features = options->num_features;
    shape->num_core = options->num_nodes;
    shape->num_split[0] = scaled(options->num_nodes, 0.6);
    shape->num_split[1] = scaled(options->num_nodes, 0.2);
    shape->num_split[2] = options->num_nodes;
}

/* Rounding must not give more labelled nodes than there are; a whole region stays whole. */
static void fit_splits(plim__shape_t *shape)
{
    int64_t left = shape->num_nodes;
    for (int i = 0; i < 3; i++) {
        shape->num_split[i] = plim__min_i64(shape->num_split[i], left);
        left -= shape->num_split[i];
    }
    if (shape->num_core == shape->num_nodes)
        shape->num_split[2] += left;
    int64_t labelled = shape->num_nodes - left;
    if (shape->num_core < shape->num_nodes)
        shape->num_core = plim__max_i64(shape->num_core, labelled);
    shape->num_stars = plim__min_i64(shape->num_stars, shape->num_core / 2);
}

/* `spread` takes its share of every draw; squared, since one stray hop of three gives a stray row.
 */
static void spread_mix(plim__draw_mix_t *mix, double spread)
{
    double keep = 1 - spread * spread;
    mix->everywhere = 1 - (1 - mix->everywhere) * keep;
    mix->hot *= keep;
    mix->community *= keep;
}

static plim_status_t check_counts(const plim__shape_t *shape, double scale)
{
    if (shape->num_nodes < 1 || shape->num_nodes > MAX_NODES || shape->num_edges < 0 ||
        shape->num_edges > MAX_EDGES)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: %lld nodes and %lld edges cannot be generated; nodes may be 1 to "
                          "%lld, edges 0 to %lld",
                          shape->name, (long long)shape->num_nodes, (long long)shape->num_edges,
                          (long long)MAX_NODES, (long long)MAX_EDGES);
    if (shape->num_features < 0 || shape->num_features > MAX_FEATURES || shape->num_classes < 1 ||
        shape->num_classes > MAX_CLASSES)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: %lld features and %lld classes cannot be generated; features may be "
                          "0 to %d, classes 1 to %d",
                          shape->name, (long long)shape->num_features,
                          (long long)shape->num_classes, MAX_FEATURES, MAX_CLASSES);
    /* Below 2^40 nodes the product fits 128 bits; an undirected list holds half the others. */
    unsigned __int128 pairs =
        (unsigned __int128)shape->num_nodes * (uint64_t)(shape->num_nodes - 1);
    if (shape->undirected)
        pairs = 2 * (unsigned __int128)shape->num_nodes * (uint64_t)((shape->num_nodes - 1) / 2);
    if ((unsigned __int128)(uint64_t)shape->num_edges <= pairs)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_USAGE,
                      "%s: %lld edges between different nodes do not fit %lld nodes; %s",
                      shape->name, (long long)shape->num_edges, (long long)shape->num_nodes,
                      scale != 1 ? "raise `scale`" : "ask for fewer edges or more nodes");
}

static plim_status_t check_columns(const plim__shape_t *shape)
{
    int64_t each = shape->num_edge_features * (int64_t)plim__feature_bytes(shape->feature_type);
    each += (shape->num_edge_types > 0 ? 4 : 0) + (shape->edge_weights ? 4 : 0) +
            (shape->times ? 8 : 0);
    if (each == 0 || shape->num_edges <= MAX_COLUMN_BYTES / each)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_USAGE,
                      "%s: %lld edges with %lld bytes of `edge_columns` each cannot be generated; "
                      "together they may be %lld bytes",
                      shape->name, (long long)shape->num_edges, (long long)each,
                      (long long)MAX_COLUMN_BYTES);
}

static plim_status_t bad_edge_columns(const char *text)
{
    return plim__fail(
        PLIM_ERR_USAGE,
        "`edge_columns` is '%.64s'; it must be a list of features:F (F from 1 to %d), "
        "weight, types:T (T from 1 to %d) and time, each at most once",
        text, MAX_FEATURES, MAX_EDGE_TYPES);
}

/* A count after a colon at *at. */
static bool take_count(const char **at, long most, int64_t *count_out)
{
    char *end;
    if (**at != ':' || (*at)[1] < '1' || (*at)[1] > '9' || *count_out != 0)
        return false;
    errno = 0;
    const long count = strtol(*at + 1, &end, 10);
    *at = end;
    *count_out = count;
    return errno == 0 && count <= most;
}

static bool take_flag(bool *flag)
{
    const bool first = !*flag;
    *flag = true;
    return first;
}

/* "features:8,weight,types:4,time" */
static plim_status_t take_edge_columns(const char *text, plim__shape_t *shape)
{
    for (const char *at = text;; at++) {
        const size_t length = strcspn(at, ":,");
        const char *word = at;
        bool good = false;
        at += length;
        if (strncmp(word, "features", length) == 0 && length == 8)
            good = take_count(&at, MAX_FEATURES, &shape->num_edge_features);
        else if (strncmp(word, "types", length) == 0 && length == 5)
            good = take_count(&at, MAX_EDGE_TYPES, &shape->num_edge_types);
        else if (strncmp(word, "weight", length) == 0 && length == 6)
            good = take_flag(&shape->edge_weights);
        else if (strncmp(word, "time", length) == 0 && length == 4)
            good = take_flag(&shape->times);
        if (!good || (*at != ',' && *at != '\0'))
            return bad_edge_columns(text);
        if (*at == '\0')
            return PLIM_OK;
    }
}

plim_status_t plim__shape_resolve(const plim_generate_options_t *options, plim__shape_t *shape_out)
{
    plim__shape_t shape = {.seed = options->seed};
    if (!(options->scale > 0) || options->scale > 1e6)
        return plim__fail(PLIM_ERR_USAGE, "`scale` is %g; it must be above 0 and at most 1000000",
                          options->scale);
    if (!(options->spread >= 0 && options->spread <= 1))
        return plim__fail(PLIM_ERR_USAGE, "`spread` is %g; it must be from 0 to 1",
                          options->spread);
    if (strcmp(options->shape, "free") == 0) {
        if (options->num_nodes < 1 || options->num_classes < 1 || options->scale != 1)
            return plim__fail(PLIM_ERR_USAGE, "the free shape needs `num_nodes`, `num_edges`, "
                                              "`num_features` and `num_classes`, without `scale`");
        take_free(options, &shape);
    } else {
        const named_shape_t *named = NULL;
        for (size_t i = 0; i < NUM_SHAPES; i++)
            if (strcmp(options->shape, shapes[i].name) == 0)
                named = &shapes[i];
        if (named == NULL)
            return plim__fail(PLIM_ERR_USAGE,
                              "unknown shape '%.64s'; choose papers100M, products, arxiv, "
                              "reddit or free; molecules are for `generate` only",
                              options->shape);
        take_named(named, options, &shape);
    }
    if (options->features != 0 && options->features != PLIM_F16 && options->features != PLIM_F32)
        return plim__fail(PLIM_ERR_USAGE, "features must be f16 or f32");
    if (options->features != 0)
        shape.feature_type = options->features;
    if (options->edge_columns != NULL)
        PLIM_TRY(take_edge_columns(options->edge_columns, &shape));
    PLIM_TRY(check_counts(&shape, options->scale));
    PLIM_TRY(check_columns(&shape));
    fit_splits(&shape);
    spread_mix(&shape.core, options->spread);
    spread_mix(&shape.periphery, options->spread);
    *shape_out = shape;
    return PLIM_OK;
}
