#include "load/links.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/params.h"
#include "base/radix.h"

#include <math.h>
#include <string.h>

#define NODES_MOST ((int64_t)1 << 32) /* that an edge has half of 64 bits for */
#define AMOUNT_MOST 1000000.0

int64_t plim__links_places(const plim_links_t *links, int64_t pairs)
{
    const int64_t negatives = plim__negatives_count(links, pairs);
    const int64_t nodes = links->negatives == PLIM_NEGATIVE_TARGETS ? 1 : 2;
    return plim__add_saturating_i64(plim__mul_saturating_i64(2, pairs),
                                    plim__mul_saturating_i64(nodes, negatives));
}

int64_t plim__links_pairs(const plim_links_t *links, int64_t places)
{
    int64_t low = 0, high = places; /* more pairs have more places */
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (plim__links_places(links, middle) < places)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int64_t plim__links_seeds(const plim_links_t *links, int64_t batch_pairs)
{
    return plim__add_saturating_i64(
        plim__mul_saturating_i64(links->num_pairs / batch_pairs,
                                 plim__links_places(links, batch_pairs)),
        plim__links_places(links, links->num_pairs % batch_pairs));
}

plim_status_t plim__links_check_negatives(const plim_links_t *links)
{
    const bool targets = links->negatives == PLIM_NEGATIVE_TARGETS;
    if (links->negatives < PLIM_NEGATIVES_NONE || links->negatives > PLIM_NEGATIVE_TARGETS)
        return plim__fail(PLIM_ERR_USAGE, "there are no negatives %d", (int)links->negatives);
    if (links->negatives != PLIM_NEGATIVES_NONE &&
        !(links->amount > 0 && links->amount <= AMOUNT_MOST))
        return plim__fail(PLIM_ERR_USAGE,
                          "%g negatives of a pair; it must be more than 0, up to %g", links->amount,
                          AMOUNT_MOST);
    if (links->exclude < PLIM_EXCLUDE_NONE || links->exclude > PLIM_EXCLUDE_REVERSES)
        return plim__fail(PLIM_ERR_USAGE, "there is no way %d to leave out edges",
                          (int)links->exclude);
    if (targets && links->amount != floor(links->amount))
        return plim__fail(PLIM_ERR_USAGE,
                          "%g negative targets of a pair; it must be a whole number",
                          links->amount);
    if (links->rank < 0 || links->rank >= links->num_ranks)
        return plim__fail(PLIM_ERR_USAGE, "rank %d of %d: they are numbered from 0", links->rank,
                          links->num_ranks);
    return PLIM_OK;
}

plim_status_t plim__links_take(const plim_links_t *given, const plim_dataset_info_t *info,
                               const plim_recipe_t *recipe, int64_t batch_pairs,
                               plim_links_t *links_out)
{
    plim_links_t links = PLIM_LINKS_INIT;
    PLIM_TRY(plim__params_take(given, "plim_links_t", &links, sizeof links));
    if (info->num_graphs > 0 || (recipe->disjoint && recipe->form == PLIM_NATIVE))
        return plim__fail(PLIM_ERR_USAGE,
                          "batches of links come from one graph, disjoint in PyG's form alone");
    if (links.num_pairs < 1)
        return plim__fail(PLIM_ERR_USAGE, "%lld links", (long long)links.num_pairs);
    PLIM_TRY(plim__links_check_negatives(&links));
    if (links.all_edges && (info->num_edges == 0 || links.path != NULL ||
                            links.num_pairs != (info->num_edges - 1) / links.num_ranks + 1))
        return plim__fail(PLIM_ERR_USAGE, "%lld links are not those of %lld edges for %d ranks",
                          (long long)links.num_pairs, (long long)info->num_edges, links.num_ranks);
    if (links.num_types < 0 ||
        (links.num_types > 0 &&
         (links.all_edges ? links.num_types != info->num_edge_types : links.path == NULL)))
        return plim__fail(PLIM_ERR_USAGE,
                          "%lld types of links: they are in a file, or those of the dataset's "
                          "edges, of which there are %lld",
                          (long long)links.num_types, (long long)info->num_edge_types);
    const int64_t places = plim__links_places(&links, batch_pairs);
    if (batch_pairs < 1 || places > INT32_MAX)
        return plim__fail(PLIM_ERR_USAGE,
                          "batches of %lld links have %lld nodes with their negatives; 1 to 2^31 - "
                          "1 are possible",
                          (long long)batch_pairs, (long long)places);
    if (plim__links_seeds(&links, batch_pairs) >= INT64_MAX / 2 ||
        plim__radix_bits(info->num_nodes) + plim__radix_bits(places) > 64)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "%lld links over %lld nodes are too many for this version",
                          (long long)links.num_pairs, (long long)info->num_nodes);
    if (recipe->disjoint && links.exclude != PLIM_EXCLUDE_NONE && info->num_nodes > NODES_MOST)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "edges are left out of trees only in graphs of up to 2^32 nodes");
    *links_out = links;
    return PLIM_OK;
}

plim_status_t plim__links_check_sums(const double *sums, int64_t num_nodes)
{
    double before = 0;
    for (int64_t i = 0; i < num_nodes; before = sums[i++])
        if (!(sums[i] >= before) || !isfinite(sums[i]))
            return plim__fail(PLIM_ERR_USAGE,
                              "the weight of node %lld for negatives is negative or not finite",
                              (long long)i);
    if (!(before > 0))
        return plim__fail(PLIM_ERR_USAGE, "the weights of nodes for negatives are all 0");
    return PLIM_OK;
}

int64_t plim__links_targets(const plim_links_t *links, int64_t pairs)
{
    const bool both = links->negatives == PLIM_NEGATIVE_PAIRS;
    return pairs + (both ? plim__negatives_count(links, pairs) : 0);
}

void plim__links_times(const plim_links_t *links, int64_t pairs, int64_t *times)
{
    const bool both = links->negatives == PLIM_NEGATIVE_PAIRS;
    const int64_t block = plim__links_targets(links, pairs);
    const int64_t places = plim__links_places(links, pairs);
    for (int64_t i = pairs; i < places; i++)
        times[i] = times[(both ? i % block : i) % pairs];
}

int64_t plim__links_unite(int64_t *nodes, int64_t places, int64_t num_nodes, uint64_t *keys,
                          int64_t *index_out)
{
    const int bits = plim__radix_bits(places);
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    int64_t seeds = 0;
    for (int64_t i = 0; i < places; i++)
        keys[i] = (uint64_t)nodes[i] << bits | (uint64_t)i;
    uint64_t *scratch = (uint64_t *)index_out;
    if (plim__radix_sort(keys, scratch, places, plim__radix_bits(num_nodes) + bits) == scratch)
        memcpy(keys, scratch, (size_t)places * sizeof *keys);
    for (int64_t i = 0; i < places; i++) {
        const int64_t node = (int64_t)(keys[i] >> bits);
        if (seeds == 0 || nodes[seeds - 1] != node)
            nodes[seeds++] = node;
        index_out[keys[i] & mask] = seeds - 1;
    }
    return seeds;
}

const uint64_t *plim__links_excluded(const plim_links_t *links, int64_t pairs, const int64_t *index,
                                     uint64_t *keys, uint64_t *scratch, int64_t *count_out)
{
    const int64_t *targets = index + plim__links_targets(links, pairs);
    int64_t count = 0;
    for (int64_t i = 0; i < pairs && links->exclude != PLIM_EXCLUDE_NONE; i++) {
        keys[count++] = plim__blocks_edge(index[i], targets[i]);
        if (links->exclude == PLIM_EXCLUDE_REVERSES)
            keys[count++] = plim__blocks_edge(targets[i], index[i]);
    }
    *count_out = count;
    return plim__radix_sort(keys, scratch, count, 64);
}
