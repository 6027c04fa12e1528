/*
 * The expected degrees of a generated graph, without drawing it: the distribution of list lengths,
 * and for undirected graphs also of how often other nodes draw a node. Both are binned, with eight
 * bins a doubling. The random deviation of sums is neglected.
 */
#include "base/check.h"
#include "generate/generate_degree.h"
#include "generate/generate_graph.h"
#include "generate/generate_place.h"
#include "store/manifest.h"

#include <math.h>
#include <string.h>

#define BINS_OF_DOUBLING 8
#define BINS (BINS_OF_DOUBLING * 44)
#define POINTS 256      /* of a distribution of draws */
#define GROUPS 32       /* of classes, by size */
#define GREATEST_AT 0.7 /* nodes expected above it: the median of the maximum */

/* The share of nodes and the sum of degrees in each bin. */
typedef struct spectrum {
    double share[BINS];
    double sum[BINS]; /* of share times degree */
} spectrum_t;

static void add_point(void *context, double share, double degree)
{
    spectrum_t *spectrum = context;
    int bin = degree <= 1 ? 0 : 1 + (int)(log2(degree) * BINS_OF_DOUBLING);
    if (bin >= BINS)
        bin = BINS - 1;
    spectrum->share[bin] += share;
    spectrum->sum[bin] += share * degree;
}

static double degree_of(const spectrum_t *spectrum, int bin)
{
    return spectrum->share[bin] > 0 ? spectrum->sum[bin] / spectrum->share[bin] : 0;
}

/* Draws of the node at `place` in [0, 1) relative to the mean, by the Zipf-like distribution of
 * generate_graph.c, in which the most frequent place is drawn `ratio` times as often as the least.
 */
static double heat(double place, double ratio)
{
    const double root = sqrt(sqrt(ratio));
    const double span = ratio - 1;
    if (root <= 1)
        return 1;
    return span / (4 * (root - 1) * pow(1 + span * place, 0.75));
}

/* Draws of a node from its own community at each of POINTS places; the mean is `mean`. No list has
 * a node twice. */
static void expect_community(double lists, double mean, double drawn_out[POINTS])
{
    double low = mean, high = mean;
    for (int round = 0; round < 80; round++) {
        const double rate = round < 20 ? high : (low + high) / 2;
        double sum = 0;
        for (int i = 0; i < POINTS; i++) {
            const double hot = heat((i + 0.5) / POINTS, PLIM__COMMUNITY_RATIO);
            drawn_out[i] = lists * -expm1(-rate * hot / lists);
            sum += drawn_out[i] / POINTS;
        }
        if (round < 20 && sum >= mean)
            round = 19;
        else if (round < 20)
            high *= 2;
        else if (sum < mean)
            low = rate;
        else
            high = rate;
    }
}

/* Nodes of some classes of nearly the same size. */
typedef struct degree_group {
    double share;
    double lists; /* of its community that a node can be in: an undirected edge is in one of two */
    double
        near; /* draws of a node from its own community; those that exceed it are from all nodes */
} degree_group_t;

static degree_group_t group_of(const plim__shape_t *shape, double mean, int number, int groups)
{
    const plim__range_t all = plim__place_region(shape, 0);
    const int64_t first = number * shape->num_classes / groups;
    const int64_t end = (number + 1) * shape->num_classes / groups;
    const int64_t places = plim__place_community(shape, all, end).first -
                           plim__place_community(shape, all, first).first;
    degree_group_t group = {.share = (double)places / (double)all.count};
    group.lists = fmax((double)places / (double)(end - first) / 2, 1);
    group.near = fmin(mean * (shape->core.hot + shape->core.community), 0.9 * group.lists);
    return group;
}

/* For an undirected graph: how often other nodes draw a node. */
static void expect_drawn(const plim__shape_t *shape, spectrum_t *spectrum)
{
    const int groups = (int)plim__min_i64(shape->num_classes, GROUPS);
    const double mean = (double)plim__graph_list_edges(shape) / (double)shape->num_nodes;
    const double far = mean * shape->core.everywhere;
    double rest = mean - far;
    for (int number = 0; number < groups; number++) {
        const degree_group_t group = group_of(shape, mean, number, groups);
        rest -= group.share * group.near;
    }
    for (int number = 0; number < groups; number++) {
        const degree_group_t group = group_of(shape, mean, number, groups);
        double drawn[POINTS];
        expect_community(group.lists, group.near, drawn);
        for (int i = 0; i < POINTS; i++)
            for (int j = 0; j < POINTS; j += 8) {
                const double place = (j + 4.0) / POINTS;
                const double everywhere = far * heat(place, (double)shape->num_nodes + 1);
                add_point(spectrum, group.share * 8.0 / POINTS / POINTS,
                          drawn[i] + everywhere + rest);
            }
    }
}

/* Adds a share of nodes to the buckets of the two integers next to its degree. */
static void count(double buckets[PLIM_DEGREE_BUCKETS], double share, double degree)
{
    const double whole = floor(degree);
    buckets[plim__degree_bucket((int64_t)whole)] += share * (whole + 1 - degree);
    buckets[plim__degree_bucket((int64_t)whole + 1)] += share * (degree - whole);
}

typedef struct counting {
    double buckets[PLIM_DEGREE_BUCKETS];
    spectrum_t all;
} counting_t;

static void count_point(void *context, double share, double degree)
{
    counting_t *counting = context;
    count(counting->buckets, share, degree);
    add_point(&counting->all, share, degree);
}

/* List lengths and draws by others are independent. */
static void count_both(const spectrum_t *own, const spectrum_t *drawn, counting_t *counting)
{
    for (int i = 0; i < BINS; i++)
        for (int j = 0; j < BINS; j++)
            if (own->share[i] > 0 && drawn->share[j] > 0)
                count_point(counting, own->share[i] * drawn->share[j],
                            degree_of(own, i) + degree_of(drawn, j));
}

static double greatest(const spectrum_t *all, double num_nodes)
{
    double above = 0;
    int bin = BINS - 1;
    while (bin > 0 && above + all->share[bin] * num_nodes < GREATEST_AT)
        above += all->share[bin--] * num_nodes;
    return fmax(degree_of(all, bin), 1);
}

/* Integer counts in each bucket up to that of the maximum degree, which has at least one. */
static void round_buckets(const double buckets[PLIM_DEGREE_BUCKETS], int64_t num_nodes,
                          int64_t max_degree, int64_t degrees_out[PLIM_DEGREE_BUCKETS])
{
    const int last = plim__degree_bucket(max_degree);
    int64_t left = num_nodes;
    int most = 0;
    memset(degrees_out, 0, PLIM_DEGREE_BUCKETS * sizeof degrees_out[0]);
    for (int i = 0; i <= last; i++) {
        degrees_out[i] = plim__min_i64((int64_t)(buckets[i] * (double)num_nodes + 0.5), left);
        if (i == last)
            degrees_out[i] = plim__max_i64(degrees_out[i], plim__min_i64(1, left));
        left -= degrees_out[i];
        if (degrees_out[i] > degrees_out[most])
            most = i;
    }
    if (degrees_out[last] == 0) {
        degrees_out[last]++;
        left--;
    }
    degrees_out[most] += left;
}

void plim__graph_expect(const plim__shape_t *shape, int64_t degrees_out[PLIM_DEGREE_BUCKETS],
                        int64_t *max_degree_out)
{
    counting_t counting = {{0}, {{0}, {0}}};
    const int64_t edges = plim__graph_list_edges(shape);
    const int64_t longest = plim__graph_longest_list(shape);
    if (shape->undirected) {
        spectrum_t own = {{0}, {0}}, drawn = {{0}, {0}};
        plim__degrees_expect(shape, edges, longest, add_point, &own);
        expect_drawn(shape, &drawn);
        count_both(&own, &drawn, &counting);
    } else {
        plim__degrees_expect(shape, edges, longest, count_point, &counting);
    }
    const double most = greatest(&counting.all, (double)shape->num_nodes);
    *max_degree_out = plim__min_i64((int64_t)(most + 0.5), shape->num_edges);
    round_buckets(counting.buckets, shape->num_nodes, *max_degree_out, degrees_out);
}
