#include "load/negatives.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

#define NEGATIVE_STREAM 0x6e65676174697665u /* separates the keys of negatives from others */
#define DRAWS_MOST 100                      /* of a negative */
#define LATE_MOST 1000 /* sources, or targets, that were drawn for a negative and are late */
#define LOOKED_UP_MOST (1 << 16) /* targets of a source that are searched … */
#define SEARCHED_MOST (1 << 20)  /* … and of all sources */
#define AT_ONCE PLIM__NEGATIVES_AT_ONCE
#define WIDTH PLIM__NEGATIVES_WIDTH

typedef struct negative {
    int64_t source, target;
    int64_t until;         /* the latest time of its nodes, by node_time */
    uint64_t key, counter; /* of the next draw */
    int late[2];           /* nodes that were drawn and are late: sources, targets */
} negative_t;

int64_t plim__negatives_count(const plim_links_t *links, int64_t pairs)
{
    if (links->negatives == PLIM_NEGATIVES_NONE)
        return 0;
    /* In double precision, as PyG computes it. */
    const double negatives = ceil((double)pairs * links->amount);
    return negatives >= 0 && negatives < 0x1p62 ? (int64_t)negatives : INT64_MAX;
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

/* Negative `number` of a batch before it is drawn. */
static negative_t begin(const plim__links_batch_t *batch, uint64_t prefix, int64_t number,
                        const int64_t *sources, const int64_t *times)
{
    const plim_links_t *links = batch->links;
    const bool turns = batch->disjoint || links->negatives == PLIM_NEGATIVE_PAIRS;
    const int64_t each = turns ? batch->pairs : (int64_t)links->amount;
    const int64_t pair = turns ? number % each : number / each;
    const uint64_t of_pair = (uint64_t)(turns ? number / each : number % each);
    const uint64_t place = (uint64_t)(batch->first + pair) * (uint64_t)links->num_ranks;
    return (negative_t){.source = sources[pair],
                        .until = times != NULL ? times[pair] : 0,
                        .key = plim__rng_key_of(prefix, place + (uint64_t)links->rank),
                        .counter = of_pair << 32};
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

/* Which of at most AT_ONCE negatives are edges: a search in each target's list, a step in all lists
 * at once. Those that are refused already stay so. */
static plim_status_t find_edges(plim__negatives_t *scratch, negative_t *const *negatives,
                                int64_t count, bool *refused)
{
    span_t ranges[AT_ONCE];
    for (int64_t i = 0; i < count; i++) {
        ranges[i] = (span_t){0, 0};
        if (!refused[i])
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
            refused[which[j]] = narrow(&ranges[which[j]], scratch->entries + scratch->indptr[j],
                                       negatives[which[j]]->source);
    }
}

/* Finds the first of the nodes with the earliest time. */
static plim_status_t find_earliest(plim__negatives_t *scratch, int64_t num_nodes)
{
    const int64_t most = AT_ONCE * WIDTH / 2;
    int64_t *nodes = scratch->entries, *times = nodes + most;
    int64_t earliest = -1, time = 0;
    for (int64_t first = 0; first < num_nodes; first += most) {
        const int64_t count = plim__min_i64(most, num_nodes - first);
        for (int64_t i = 0; i < count; i++)
            nodes[i] = first + i;
        PLIM_TRY(plim__rows_gather(scratch->node_time, scratch->time_worker, nodes, count, PLIM_I64,
                                   times));
        for (int64_t i = 0; i < count; i++) {
            if (earliest >= 0 && times[i] >= time)
                continue;
            earliest = first + i;
            time = times[i];
        }
    }
    scratch->earliest = earliest;
    scratch->earliest_time = time;
    return PLIM_OK;
}

static int64_t *end_of(negative_t *negative, bool targets)
{
    return targets ? &negative->target : &negative->source;
}

/* Of these negatives, leaves those whose source, or target, is late and to be drawn again. After
 * LATE_MOST such nodes it is the earliest of all. */
static plim_status_t leave_late(const plim__links_batch_t *batch, plim__negatives_t *scratch,
                                bool targets, negative_t **left, int64_t *count)
{
    bool late[AT_ONCE];
    int64_t kept = 0;
    for (int64_t i = 0; i < *count; i++)
        scratch->nodes[i] = *end_of(left[i], targets);
    PLIM_TRY(plim__rows_gather(scratch->node_time, scratch->time_worker, scratch->nodes, *count,
                               PLIM_I64, scratch->entries));
    for (int64_t i = 0; i < *count; i++)
        late[i] = scratch->entries[i] > left[i]->until;
    for (int64_t i = 0; i < *count; i++) {
        if (!late[i])
            continue;
        if (++left[i]->late[targets] < LATE_MOST) {
            left[kept++] = left[i];
            continue;
        }
        if (scratch->earliest < 0)
            PLIM_TRY(find_earliest(scratch, batch->num_nodes));
        if (scratch->earliest_time > left[i]->until)
            return plim__fail(PLIM_ERR_USAGE,
                              "a pair of time %lld has no negative: all nodes are later "
                              "than the time of its pair",
                              (long long)left[i]->until);
        *end_of(left[i], targets) = scratch->earliest;
    }
    *count = kept;
    return PLIM_OK;
}

/* Draws the sources, or the targets, of at most AT_ONCE negatives, each until it is not late. */
static plim_status_t draw_ends(const plim__links_batch_t *batch, plim__negatives_t *scratch,
                               bool targets, negative_t *const *negatives, int64_t count)
{
    const double *sums = targets ? batch->links->target_sums : batch->links->source_sums;
    negative_t *left[AT_ONCE];
    for (int64_t i = 0; i < count; i++)
        left[i] = negatives[i];
    while (count > 0) {
        for (int64_t i = 0; i < count; i++)
            *end_of(left[i], targets) = draw_node(sums, batch->num_nodes, left[i]);
        if (scratch == NULL || scratch->node_time == NULL)
            return PLIM_OK;
        PLIM_TRY(leave_late(batch, scratch, targets, left, &count));
    }
    return PLIM_OK;
}

static plim_status_t draw(const plim__links_batch_t *batch, plim__negatives_t *scratch,
                          negative_t *const *negatives, int64_t count)
{
    if (batch->links->negatives == PLIM_NEGATIVE_PAIRS)
        PLIM_TRY(draw_ends(batch, scratch, false, negatives, count));
    return draw_ends(batch, scratch, true, negatives, count);
}

static plim_status_t refuse(plim__negatives_t *scratch, negative_t *const *negatives, int64_t count,
                            bool *refused_out)
{
    for (int64_t i = 0; i < count; i++)
        refused_out[i] = negatives[i]->source == negatives[i]->target;
    return find_edges(scratch, negatives, count, refused_out);
}

static bool has_weight(const double *sums, int64_t node)
{
    return sums == NULL || sums[node] > (node > 0 ? sums[node - 1] : 0);
}

/* Takes the first target from the last one on that is no edge. */
static plim_status_t search_targets(plim__negatives_t *scratch, const plim__links_batch_t *batch,
                                    negative_t *negative, int64_t *searched, bool *found_out)
{
    negative_t tried[AT_ONCE], *list[AT_ONCE];
    bool refused[AT_ONCE];
    int64_t done = 0;
    *found_out = false;
    for (int64_t all = 0; done < batch->num_nodes && all < LOOKED_UP_MOST;) {
        int64_t count = 0;
        for (; done < batch->num_nodes && count < AT_ONCE; done++) {
            const int64_t target = (negative->target + done) % batch->num_nodes;
            if (!has_weight(batch->links->target_sums, target))
                continue;
            tried[count] = *negative;
            tried[count].target = target;
            list[count] = &tried[count];
            count++;
        }
        PLIM_TRY(refuse(scratch, list, count, refused));
        for (int64_t i = 0; i < count; i++) {
            if (refused[i])
                continue;
            *negative = tried[i];
            *found_out = true;
            return PLIM_OK;
        }
        all += count;
    }
    *searched += done;
    return PLIM_OK;
}

/* Searches for a target; of negative pairs also for other sources. */
static plim_status_t search(plim__negatives_t *scratch, const plim__links_batch_t *batch,
                            negative_t *negative)
{
    for (int64_t searched = 0; searched < SEARCHED_MOST;) {
        bool found;
        PLIM_TRY(search_targets(scratch, batch, negative, &searched, &found));
        if (found)
            return PLIM_OK;
        if (batch->links->negatives != PLIM_NEGATIVE_PAIRS)
            break;
        PLIM_TRY(draw(batch, scratch, &negative, 1));
    }
    return plim__fail(PLIM_ERR_USAGE,
                      "node %lld has no negative: it has edges to all nodes that negatives are "
                      "drawn from, or to almost all",
                      (long long)negative->source);
}

/* Draws negatives, and again those that are edges. With times, the last draw stays. */
static plim_status_t draw_all(const plim__links_batch_t *batch, plim__negatives_t *scratch,
                              negative_t *drawn, int64_t count)
{
    negative_t *left[AT_ONCE];
    bool refused[AT_ONCE];
    for (int64_t i = 0; i < count; i++)
        left[i] = &drawn[i];
    for (int turn = 0; turn < DRAWS_MOST && count > 0; turn++) {
        int64_t kept = 0;
        PLIM_TRY(draw(batch, scratch, left, count));
        if (!batch->links->no_edges)
            return PLIM_OK;
        PLIM_TRY(refuse(scratch, left, count, refused));
        for (int64_t i = 0; i < count; i++)
            if (refused[i])
                left[kept++] = left[i];
        count = kept;
    }
    for (int64_t i = 0; i < count && scratch->node_time == NULL; i++)
        PLIM_TRY(search(scratch, batch, left[i]));
    return PLIM_OK;
}

bool plim__negatives_look(const plim_links_t *links, const plim_recipe_t *recipe)
{
    return links->all_edges || (links->negatives != PLIM_NEGATIVES_NONE &&
                                (links->no_edges || recipe->draw_by == PLIM_NODE_TIME));
}

plim_status_t plim__negatives_draw(const plim__links_batch_t *batch, plim__negatives_t *negatives,
                                   const int64_t *sources, int64_t *sources_out,
                                   int64_t *targets_out)
{
    const int64_t all = plim__negatives_count(batch->links, batch->pairs);
    const bool both = batch->links->negatives == PLIM_NEGATIVE_PAIRS;
    const bool looks =
        batch->links->no_edges || (negatives != NULL && negatives->node_time != NULL);
    const uint64_t prefix = plim__rng_prefix(batch->seed, (uint64_t)batch->epoch, NEGATIVE_STREAM);
    const int64_t *times = looks ? negatives->times : NULL;
    negative_t drawn[AT_ONCE];
    for (int64_t done = 0; done < all; done += AT_ONCE) {
        const int64_t count = plim__min_i64(AT_ONCE, all - done);
        for (int64_t i = 0; i < count; i++)
            drawn[i] = begin(batch, prefix, done + i, sources, times);
        PLIM_TRY(draw_all(batch, negatives, drawn, count));
        for (int64_t i = 0; i < count; i++) {
            if (both)
                sources_out[done + i] = drawn[i].source;
            targets_out[done + i] = drawn[i].target;
        }
    }
    return PLIM_OK;
}
