#include "load/negatives.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/rng.h"

#include <math.h>

#define NEGATIVE_STREAM 0x6e65676174697665u /* separates the keys of negatives from others */
#define DRAWS_MOST 100
#define AT_ONCE PLIM__NEGATIVES_AT_ONCE
#define WIDTH PLIM__NEGATIVES_WIDTH

typedef struct negative {
    int64_t source, target;
    uint64_t key, counter; /* of the next draw */
} negative_t;

int64_t plim__negatives_count(const plim_links_t *links, int64_t pairs)
{
    if (links->negatives == PLIM_NEGATIVES_NONE)
        return 0;
    /* In double precision, as PyG computes it. */
    const double negatives = ceil((double)pairs * links->amount);
    return negatives < 0x1p62 ? (int64_t)negatives : INT64_MAX;
}

/* A node in proportion to its weight: the first whose running sum is larger. */
static int64_t draw_weighted(const double *sums, int64_t num_nodes, double point)
{
    int64_t low = 0, high = num_nodes - 1;
    point *= sums[num_nodes - 1];
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (sums[middle] > point)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int64_t draw_node(const double *sums, int64_t num_nodes, negative_t *negative)
{
    return sums != NULL
               ? draw_weighted(sums, num_nodes,
                               plim__rng_double(negative->key, negative->counter++))
               : (int64_t)plim__rng_below(negative->key, &negative->counter, (uint64_t)num_nodes);
}

static void draw(const plim_links_t *links, int64_t num_nodes, negative_t *negative)
{
    if (links->negatives == PLIM_NEGATIVE_PAIRS)
        negative->source = draw_node(links->source_sums, num_nodes, negative);
    negative->target = draw_node(links->target_sums, num_nodes, negative);
}

/* The number-th negative of a pair at that place of the epoch, before it is drawn. */
static negative_t begin(const plim_links_t *links, uint64_t prefix, int64_t place, int64_t number,
                        int64_t source)
{
    const uint64_t of_all = (uint64_t)place * (uint64_t)links->num_ranks + (uint64_t)links->rank;
    return (negative_t){.source = source,
                        .key = plim__rng_key_of(prefix, of_all),
                        .counter = (uint64_t)number << 32};
}

/* Where a source may still be in a list: entries low … high - 1. */
typedef struct range {
    int64_t low, high;
} span_t;

/* The k-th of the entries that are looked at. */
static int64_t entry_of(const span_t *range, int64_t count, int64_t k)
{
    return range->low + (range->high - range->low) * k / count;
}

static int64_t looked_at(const span_t *range)
{
    return plim__min_i64(range->high - range->low, WIDTH);
}

/* Narrows a range by these of its entries, which ascend; returns whether the source is one. */
static bool narrow(span_t *range, const int64_t *entries, int64_t source)
{
    const int64_t count = looked_at(range);
    const span_t before = *range;
    int64_t k = 0;
    while (k < count && entries[k] <= source)
        k++;
    range->high = range->low;
    if (k > 0 && entries[k - 1] == source)
        return true;
    if (k > 0 && count == WIDTH) {
        range->low = entry_of(&before, count, k - 1) + 1;
        range->high = k < count ? entry_of(&before, count, k) : before.high;
    }
    return false;
}

/* Which of at most AT_ONCE negatives are edges, or a node with itself: a search in each target's
 * list, a step in all lists at once. */
static plim_status_t find_edges(plim__negatives_t *scratch, negative_t *const *negatives,
                                int64_t count, bool *edges_out)
{
    span_t ranges[AT_ONCE];
    for (int64_t i = 0; i < count; i++) {
        edges_out[i] = negatives[i]->source == negatives[i]->target;
        ranges[i] = (span_t){0, 0};
        if (!edges_out[i])
            ranges[i].high =
                plim__offsets_list(scratch->lists->offsets, negatives[i]->target).degree;
    }
    for (;;) {
        int64_t which[AT_ONCE], lists = 0, entries = 0;
        for (int64_t i = 0; i < count; i++) {
            const int64_t looked = looked_at(&ranges[i]);
            if (looked == 0)
                continue;
            scratch->nodes[lists] = negatives[i]->target;
            scratch->indptr[lists] = entries;
            which[lists++] = i;
            for (int64_t k = 0; k < looked; k++)
                scratch->entries[entries++] = entry_of(&ranges[i], looked, k);
        }
        scratch->indptr[lists] = entries;
        if (lists == 0)
            return PLIM_OK;
        PLIM_TRY(plim__topology_entries(scratch->lists, scratch->worker, scratch->nodes,
                                        scratch->indptr, lists, scratch->entries));
        for (int64_t j = 0; j < lists; j++)
            edges_out[which[j]] = narrow(&ranges[which[j]], scratch->entries + scratch->indptr[j],
                                         negatives[which[j]]->source);
    }
}

static bool has_weight(const double *sums, int64_t node)
{
    return sums == NULL || sums[node] > (node > 0 ? sums[node - 1] : 0);
}

/* Takes the first target from the last one on that is no edge. */
static plim_status_t search(plim__negatives_t *scratch, const plim_links_t *links,
                            int64_t num_nodes, negative_t *negative)
{
    negative_t tried[AT_ONCE], *list[AT_ONCE];
    bool edges[AT_ONCE];
    for (int64_t done = 0; done < num_nodes;) {
        int64_t count = 0;
        PLIM_TRY(plim__job_check(scratch->job));
        for (; done < num_nodes && count < AT_ONCE; done++) {
            const int64_t target = (negative->target + done) % num_nodes;
            tried[count] = (negative_t){.source = negative->source, .target = target};
            list[count] = &tried[count];
            count += has_weight(links->target_sums, target);
        }
        PLIM_TRY(find_edges(scratch, list, count, edges));
        for (int64_t i = 0; i < count; i++) {
            if (edges[i])
                continue;
            negative->target = tried[i].target;
            return PLIM_OK;
        }
    }
    return plim__fail(PLIM_ERR_USAGE,
                      "node %lld has edges to all nodes that negatives are drawn from, so each "
                      "negative of it is an edge",
                      (long long)negative->source);
}

/* Draws those that are edges again. */
static plim_status_t leave_edges(plim__negatives_t *scratch, const plim_links_t *links,
                                 int64_t num_nodes, negative_t *drawn, int64_t count)
{
    negative_t *left[AT_ONCE];
    bool edges[AT_ONCE];
    for (int64_t i = 0; i < count; i++)
        left[i] = &drawn[i];
    for (int turn = 0; turn < DRAWS_MOST && count > 0; turn++) {
        int64_t kept = 0;
        PLIM_TRY(find_edges(scratch, left, count, edges));
        for (int64_t i = 0; i < count; i++) {
            if (!edges[i])
                continue;
            draw(links, num_nodes, left[i]);
            left[kept++] = left[i];
        }
        count = kept;
    }
    for (int64_t i = 0; i < count; i++)
        PLIM_TRY(search(scratch, links, num_nodes, left[i]));
    return PLIM_OK;
}

plim_status_t plim__negatives_draw(const plim_links_t *links, plim__negatives_t *negatives,
                                   int64_t num_nodes, uint64_t seed, int64_t epoch, int64_t first,
                                   int64_t pairs, const int64_t *sources, int64_t *sources_out,
                                   int64_t *targets_out)
{
    const int64_t all = plim__negatives_count(links, pairs);
    const bool both = links->negatives == PLIM_NEGATIVE_PAIRS;
    const int64_t each = both ? 0 : (int64_t)links->amount;
    const uint64_t prefix = plim__rng_prefix(seed, (uint64_t)epoch, NEGATIVE_STREAM);
    negative_t drawn[AT_ONCE];
    for (int64_t done = 0; done < all; done += AT_ONCE) {
        const int64_t count = plim__min_i64(AT_ONCE, all - done);
        for (int64_t i = 0; i < count; i++) {
            const int64_t number = both ? (done + i) / pairs : (done + i) % each;
            const int64_t pair = both ? (done + i) % pairs : (done + i) / each;
            drawn[i] = begin(links, prefix, first + pair, number, sources[pair]);
            draw(links, num_nodes, &drawn[i]);
        }
        if (links->no_edges)
            PLIM_TRY(leave_edges(negatives, links, num_nodes, drawn, count));
        for (int64_t i = 0; i < count; i++) {
            if (both)
                sources_out[done + i] = drawn[i].source;
            targets_out[done + i] = drawn[i].target;
        }
    }
    return PLIM_OK;
}
