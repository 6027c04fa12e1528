#include "generate/generate_degree.h"

#include "base/check.h"
#include "base/exact_math.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/rng.h"
#include "base/threads.h"

#include <math.h>
#include <stdatomic.h>

#define LOGNORMAL_SIGMA 1.2
#define WEIGHT_ONE 4096 /* the lognormal's median */
#define WEIGHT_MAX ((uint64_t)1 << 40)
#define HUB_BITS 20
#define HUB_CHANCE ((1 << HUB_BITS) / 10000) /* one node in ten thousand */
#define HUB_INDEX 1.2                        /* index of the Pareto tail of hubs, which begins at */
#define HUB_MIN 20                           /* this multiple of the node's weight */

int64_t plim__degrees_blocks(int64_t num_nodes)
{
    return (num_nodes + PLIM__DEGREE_BLOCK - 1) / PLIM__DEGREE_BLOCK;
}

/* Quantiles of the lognormal at (i + 1/2) / (size + 1), by integrating the normal density. */
static void fill_lognormal(uint32_t *table)
{
    const double step = 1.0 / 1024;
    const double density = step / 2.50662827463100050242; /* the root of 2 pi */
    double below = 0;
    int filled = 0;
    for (int i = -5 * 1024; i < 5 * 1024; i++) {
        double z = i * step;
        below += density * plim__exp(-z * z / 2);
        double value = plim__exp(LOGNORMAL_SIGMA * z) * WEIGHT_ONE;
        while (filled <= PLIM__LOGNORMAL_SIZE && below * (PLIM__LOGNORMAL_SIZE + 1) >= filled + 0.5)
            table[filled++] = (uint32_t)value;
    }
}

static uint64_t hub_weight(const plim__degrees_t *degrees, int64_t place, uint64_t weight)
{
    double u = plim__rng_double(degrees->hub_key, (uint64_t)place) + 0x1p-53;
    double hub = (double)weight * HUB_MIN * plim__exp2(-plim__log2(u) / HUB_INDEX);
    return hub < (double)WEIGHT_MAX ? (uint64_t)hub : WEIGHT_MAX;
}

static inline uint64_t node_weight(const plim__degrees_t *degrees, int64_t place)
{
    uint64_t bits = plim__rng_u64(degrees->body_key, (uint64_t)place);
    const uint32_t *at = &degrees->lognormal[bits >> (64 - PLIM__LOGNORMAL_BITS)];
    uint64_t weight = at[0] + (((uint64_t)(at[1] - at[0]) * (uint32_t)(bits >> HUB_BITS)) >> 32);
    if ((bits & ((1 << HUB_BITS) - 1)) < HUB_CHANCE)
        weight = hub_weight(degrees, place, weight);
    if (place < degrees->num_core)
        weight = weight * degrees->core_factor >> 8;
    return weight < degrees->weight_limit ? weight + 1 : degrees->weight_limit;
}

static int64_t block_end(const plim__degrees_t *degrees, int64_t block)
{
    return plim__min_i64(degrees->num_nodes, (block + 1) * PLIM__DEGREE_BLOCK);
}

typedef struct weighing {
    const plim_job_t *job;
    plim__degrees_t *degrees;
    atomic_llong next;
} weighing_t;

static plim_status_t weigh_blocks(void *context, int worker)
{
    weighing_t *weighing = context;
    plim__degrees_t *degrees = weighing->degrees;
    (void)worker;
    for (;;) {
        int64_t block = atomic_fetch_add(&weighing->next, 1);
        if (block >= degrees->num_blocks)
            return PLIM_OK;
        PLIM_TRY(plim__job_check(weighing->job));
        uint64_t sum = 0;
        for (int64_t place = block * PLIM__DEGREE_BLOCK; place < block_end(degrees, block); place++)
            sum += node_weight(degrees, place);
        degrees->weight_before[block + 1] = sum;
    }
}

/* Sums the weights, limited so that no degree exceeds `longest`. */
static plim_status_t weigh(const plim_job_t *job, plim__degrees_t *degrees)
{
    weighing_t weighing = {.job = job, .degrees = degrees};
    degrees->weight_limit = WEIGHT_MAX;
    for (int round = 0;; round++) {
        atomic_store(&weighing.next, 0);
        PLIM_TRY(plim__parallel(job->threads, weigh_blocks, &weighing));
        for (int64_t i = 0; i < degrees->num_blocks; i++)
            degrees->weight_before[i + 1] += degrees->weight_before[i];
        /* A node's share is rounded up by less than one, so weight x edges / total + 1 is its
         * maximum. With equal weights the shares differ by one, which num_edges allows for. */
        unsigned __int128 total = degrees->weight_before[degrees->num_blocks];
        unsigned __int128 most = total * (uint64_t)plim__max_i64(degrees->longest - 1, 0);
        unsigned __int128 edges = (uint64_t)plim__max_i64(degrees->num_edges, 1);
        if (degrees->weight_limit == 1 || edges * degrees->weight_limit <= most)
            return PLIM_OK;
        /* An eighth less than necessary, since the total shrinks with the limit. */
        uint64_t limit = (uint64_t)(most / edges / 8 * 7);
        degrees->weight_limit = round < 40 && limit > 1 ? limit : 1;
    }
}

/* Edges per weight in fixed point, rounded up by less than one edge in total. */
static void set_ratio(plim__degrees_t *degrees)
{
    unsigned __int128 total = degrees->weight_before[degrees->num_blocks];
    unsigned __int128 edges = (uint64_t)degrees->num_edges;
    unsigned bits = 63;
    while (((edges << bits) + total - 1) / total >> 63 != 0)
        bits--;
    degrees->ratio_bits = bits;
    degrees->ratio = (uint64_t)(((edges << bits) + total - 1) / total);
}

plim_status_t plim__degrees_make(const plim_job_t *job, const plim__shape_t *shape,
                                 int64_t num_edges, int64_t longest, uint64_t *weight_before,
                                 plim__degrees_t *degrees_out)
{
    plim__degrees_t *degrees = degrees_out;
    *degrees = (plim__degrees_t){.num_nodes = shape->num_nodes,
                                 .num_core = shape->num_core,
                                 .num_edges = num_edges,
                                 .longest = longest,
                                 .num_blocks = plim__degrees_blocks(shape->num_nodes),
                                 .weight_before = weight_before,
                                 .core_factor = (uint64_t)(shape->core_degree * 256 + 0.5),
                                 .body_key = plim__rng_key(shape->seed, PLIM__KEY_DEGREE, 0, 0),
                                 .hub_key = plim__rng_key(shape->seed, PLIM__KEY_HUB, 0, 0)};
    fill_lognormal(degrees->lognormal);
    PLIM_TRY(weigh(job, degrees));
    set_ratio(degrees);
    return PLIM_OK;
}

int64_t plim__degrees_block(const plim__degrees_t *degrees, int64_t block,
                            int64_t degrees_out[PLIM__DEGREE_BLOCK])
{
    int64_t begin = block * PLIM__DEGREE_BLOCK;
    int64_t count = block_end(degrees, block) - begin;
    unsigned __int128 weight = degrees->weight_before[block];
    int64_t before = (int64_t)(weight * degrees->ratio >> degrees->ratio_bits);
    for (int64_t i = 0; i < count; i++) {
        weight += node_weight(degrees, begin + i);
        int64_t after = (int64_t)(weight * degrees->ratio >> degrees->ratio_bits);
        degrees_out[i] = after - before;
        before = after;
    }
    return count;
}

/* Number of points of the lognormal, and of the tail of hubs at some of them. */
#define EXPECT_BODY 2048
#define EXPECT_BODY_OF_HUBS 64
#define EXPECT_TAIL 64

/* The lognormal at the middle of part i of equal parts. */
static double middle_weight(const uint32_t *lognormal, int i, int parts)
{
    const int at = (2 * i + 1) * PLIM__LOGNORMAL_SIZE / (2 * parts);
    return lognormal[at];
}

/* The distribution of node_weight in a region: calls `each` with shares and weights. */
static void expect_region(const uint32_t *lognormal, double factor, double limit, double share,
                          plim__degree_fn each, void *context)
{
    const int chance = HUB_CHANCE;
    const double hubs = (double)chance / (1 << HUB_BITS);
    for (int i = 0; i < EXPECT_BODY; i++) {
        const double weight = middle_weight(lognormal, i, EXPECT_BODY);
        each(context, share * (1 - hubs) / EXPECT_BODY, fmin(weight * factor + 1, limit));
    }
    for (int i = 0; i < EXPECT_BODY_OF_HUBS; i++) {
        const double weight = middle_weight(lognormal, i, EXPECT_BODY_OF_HUBS);
        double above = 1; /* the tail, in steps of a quarter of the rest */
        for (int j = 0; j < EXPECT_TAIL; j++) {
            const double part = j + 1 < EXPECT_TAIL ? above * 0.25 : above;
            const double middle = above - part / 2;
            const double hub = weight * HUB_MIN * pow(middle, -1 / HUB_INDEX);
            each(context, share * hubs / EXPECT_BODY_OF_HUBS * part,
                 fmin(fmin(hub, (double)WEIGHT_MAX) * factor + 1, limit));
            above -= part;
        }
    }
}

typedef struct expecting {
    double mean, most;
    double ratio; /* edges per weight */
    double longest;
    plim__degree_fn each;
    void *context;
} expecting_t;

static void add_weight(void *context, double share, double weight)
{
    expecting_t *expecting = context;
    expecting->mean += share * weight;
    expecting->most = fmax(expecting->most, weight);
}

static void pass_degree(void *context, double share, double weight)
{
    const expecting_t *expecting = context;
    expecting->each(expecting->context, share, fmin(weight * expecting->ratio, expecting->longest));
}

static void expect_all(const plim__shape_t *shape, const uint32_t *lognormal, double limit,
                       plim__degree_fn each, void *context)
{
    const double core = (double)shape->num_core / (double)shape->num_nodes;
    expect_region(lognormal, shape->core_degree, limit, core, each, context);
    if (core < 1)
        expect_region(lognormal, 1, limit, 1 - core, each, context);
}

void plim__degrees_expect(const plim__shape_t *shape, int64_t num_edges, int64_t longest,
                          plim__degree_fn each, void *context)
{
    uint32_t lognormal[PLIM__LOGNORMAL_SIZE + 1];
    const double mean_degree = (double)num_edges / (double)shape->num_nodes;
    expecting_t expecting = {.longest = (double)longest, .each = each, .context = context};
    double limit = (double)WEIGHT_MAX;
    fill_lognormal(lognormal);
    for (int round = 0; round < 40; round++) {
        expecting.mean = expecting.most = 0;
        expect_all(shape, lognormal, limit, add_weight, &expecting);
        expecting.ratio = mean_degree / expecting.mean;
        if (limit * expecting.ratio <= (double)longest - 1 || limit <= 1)
            break;
        limit = fmax(((double)longest - 1) / expecting.ratio / 8 * 7, 1);
    }
    expect_all(shape, lognormal, limit, pass_degree, &expecting);
}
