#include "plan/load_size.h"

#include "base/check.h"

#include <math.h>

#define MOST 9e18

#define ONE_WAY 0.1 /* of all nodes: where more have no list, edges go one way */

/*
 * Entries drawn from the list of a node at the end of an edge. Where edges go both ways its list is
 * as long as lists are there; else it has nothing to do with the edge.
 */
static double mean_drawn(const plim__manifest_t *manifest, int64_t fanout, bool replace)
{
    const bool one_way = (double)manifest->degrees[0] > ONE_WAY * (double)manifest->info.num_nodes;
    double weight = one_way ? (double)manifest->degrees[0] : 0, drawn = 0;
    for (int i = 1; i < PLIM_DEGREE_BUCKETS; i++) {
        double count = (double)manifest->degrees[i];
        /* The middle of 2^(i-1) … 2^i - 1, and not above the longest list. */
        double degree = fmin(1.5 * exp2(i - 1) - 0.5, (double)manifest->info.max_degree);
        double taken = degree;
        if (fanout >= 0)
            taken = replace ? (double)fanout : fmin((double)fanout, degree);
        const double times = one_way ? count : count * degree;
        weight += times;
        drawn += times * taken;
    }
    return weight > 0 ? drawn / weight : 0;
}

static int64_t whole(double value)
{
    return value < MOST ? (int64_t)ceil(value) : INT64_MAX;
}

plim__load_size_t plim__load_size_expected(const plim__manifest_t *manifest,
                                           const plim_recipe_t *recipe, int64_t num_seeds)
{
    const int64_t reach = manifest->reach > 0 ? manifest->reach : manifest->info.num_nodes;
    double all = (double)plim__max_i64(reach, 1);
    double met = fmin((double)num_seeds, all);
    double expanded = met; /* destinations of the next hop */
    double edges = 0;
    for (int hop = 0; hop < recipe->num_hops; hop++) {
        double draws = expanded * mean_drawn(manifest, recipe->fanout[hop], recipe->replace);
        double fresh = (all - met) * -expm1(-draws / all);
        edges += expanded + 1 + draws;
        met += fresh;
        expanded = recipe->form == PLIM_PYG ? fresh : met;
    }
    return (plim__load_size_t){.nodes = whole(met), .edges = whole(edges)};
}

/* The value at `seeds` of the power law through two points. */
static double by_power(const plim__probe_size_t *from, const plim__probe_size_t *to,
                       int64_t from_value, int64_t to_value, int64_t seeds)
{
    double power =
        log((double)to_value / (double)from_value) / log((double)to->seeds / (double)from->seeds);
    return (double)to_value * pow((double)seeds / (double)to->seeds, fmin(fmax(power, 0), 1));
}

plim__load_size_t plim__load_size_tried(const plim__probe_t *trial, int64_t num_seeds)
{
    int last = 1;
    while (last + 1 < trial->count && trial->sizes[last].seeds < num_seeds)
        last++;
    const plim__probe_size_t *from = &trial->sizes[last - 1], *to = &trial->sizes[last];
    return (plim__load_size_t){
        .nodes = whole(by_power(from, to, from->nodes, to->nodes, num_seeds)),
        .edges = whole(by_power(from, to, from->edges, to->edges, num_seeds))};
}
