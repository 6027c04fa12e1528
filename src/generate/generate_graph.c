#include "generate/generate_graph.h"

#include "base/check.h"
#include "base/fail.h"
#include "generate/generate_degree.h"
#include "generate/generate_place.h"
#include "mem/arena.h"

#include <math.h>
#include <string.h>

#define LONGEST_LIST 200000 /* the longest list of the real graphs */
#define HOT_RATIO 16        /* the same for the most drawn of the periphery, */
#define HOT_SHARE 12        /* one place in this many */
#define CHOICE_BITS 20
#define SMALL_LIST 24 /* up to this length duplicates are found by a linear search */
#define LONG_LIST 512 /* from this length on candidates are not batched with other lists */
#define BATCH 1024    /* candidates resolved at once */
#define EXTRA 256     /* the same if a list needs more */
#define EDGE_BUFFER 4096

/*
 * How a source is drawn from `count` places: Zipf-like with exponent 3/4, whose inverse
 * distribution is a fourth power, or uniformly. One formula covers both, so that mixed draws need
 * no branch: rank = ((1 + u reach)^4 - 1) scale + u slope.
 */
typedef struct law {
    int64_t first;
    int64_t last; /* rank */
    double reach;
    double scale;
    double slope;
} law_t;

enum { LAW_EVERYWHERE, LAW_HOT, LAW_COMMUNITY, LAW_REGION, NUM_LAWS };

/* The pools of a community's lists, with cumulative probabilities below 2^CHOICE_BITS. */
typedef struct pools {
    uint32_t chances[NUM_LAWS - 1];
    law_t laws[NUM_LAWS];
    int64_t end; /* the first place with other pools */
} pools_t;

/* Random bits that become ids, through two permutations. */
typedef struct candidates {
    uint64_t *bits;
    int64_t *ids;
    int64_t *near; /* places */
    int64_t *far;  /* ranks in the whole graph */
    int32_t *near_at;
    int32_t *far_at;
} candidates_t;

/* A list whose candidates are in the batch. */
typedef struct list {
    int64_t degree;
    uint64_t key;
    int64_t num_candidates;
} list_t;

typedef struct graph_worker {
    int64_t *set; /* hash set with open addressing, -1 for empty */
    candidates_t batch;
    candidates_t extra;
    int64_t num_candidates; /* in the batch */
    int64_t num_lists;
    list_t *lists;        /* (BATCH) */
    int64_t *list_ids;    /* (BATCH): first places, then ids */
    int64_t *degrees;     /* (PLIM__DEGREE_BLOCK) */
    int64_t *source;      /* (EDGE_BUFFER) */
    int64_t *destination; /* (EDGE_BUFFER) */
    int64_t num_edges;
} graph_worker_t;

struct plim__graph {
    plim__arena_t arena;
    plim__shape_t shape;
    plim__degrees_t degrees;
    int64_t capacity; /* maximum length of a list */
    plim__permute_t place_to_id;
    plim__permute_t rank_to_id; /* for sources from the whole graph */
    uint64_t list_key;
    int num_workers;
    graph_worker_t *workers; /* (num_workers) */
    uint64_t *sums;          /* (blocks + 1), for the degrees */
};

/* An undirected edge is in one of two lists and is written both ways. */
int64_t plim__graph_list_edges(const plim__shape_t *shape)
{
    return shape->undirected ? shape->num_edges / 2 : shape->num_edges;
}

/* All other nodes, or half of them in an undirected graph. */
int64_t plim__graph_list_capacity(const plim__shape_t *shape)
{
    return shape->undirected ? (shape->num_nodes - 1) / 2 : shape->num_nodes - 1;
}

int64_t plim__graph_longest_list(const plim__shape_t *shape)
{
    int64_t mean = plim__graph_list_edges(shape) / shape->num_nodes + 1;
    return plim__min_i64(plim__max_i64(LONGEST_LIST, 4 * mean), plim__graph_list_capacity(shape));
}

/* Size of a hash set for `count` members: a power of two, at most half full. */
static int64_t set_size(int64_t count)
{
    int64_t size = 64;
    while (size < 2 * count)
        size *= 2;
    return size;
}

static void candidates_carve(plim__arena_t *arena, size_t count, candidates_t *candidates_out)
{
    candidates_out->bits = plim__arena_carve(arena, count, sizeof(uint64_t), PLIM__LINE);
    candidates_out->ids = plim__arena_carve(arena, count, sizeof(int64_t), PLIM__LINE);
    candidates_out->near = plim__arena_carve(arena, count, sizeof(int64_t), PLIM__LINE);
    candidates_out->far = plim__arena_carve(arena, count, sizeof(int64_t), PLIM__LINE);
    candidates_out->near_at = plim__arena_carve(arena, count, sizeof(int32_t), PLIM__LINE);
    candidates_out->far_at = plim__arena_carve(arena, count, sizeof(int32_t), PLIM__LINE);
}

static void worker_carve(plim__arena_t *arena, const plim__shape_t *shape, graph_worker_t *worker)
{
    size_t set = (size_t)set_size(plim__graph_longest_list(shape));
    worker->set = plim__arena_carve(arena, set, sizeof(int64_t), PLIM__LINE);
    candidates_carve(arena, BATCH, &worker->batch);
    candidates_carve(arena, EXTRA, &worker->extra);
    worker->lists = plim__arena_carve(arena, BATCH, sizeof(list_t), PLIM__LINE);
    worker->list_ids = plim__arena_carve(arena, BATCH, sizeof(int64_t), PLIM__LINE);
    worker->degrees = plim__arena_carve(arena, PLIM__DEGREE_BLOCK, sizeof(int64_t), PLIM__LINE);
    worker->source = plim__arena_carve(arena, EDGE_BUFFER, sizeof(int64_t), PLIM__LINE);
    worker->destination = plim__arena_carve(arena, EDGE_BUFFER, sizeof(int64_t), PLIM__LINE);
}

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim__graph_t *graph = draft;
    const size_t blocks = (size_t)plim__degrees_blocks(graph->shape.num_nodes);
    const size_t workers = (size_t)graph->num_workers;
    graph->sums = plim__arena_carve(arena, blocks + 1, sizeof(uint64_t), 1);
    graph->workers = plim__arena_carve(arena, workers, sizeof(graph_worker_t), 1);
    for (size_t i = 0; i < workers; i++) {
        graph_worker_t worker = {.num_lists = 0};
        worker_carve(arena, &graph->shape, &worker);
        if (graph->workers != NULL)
            graph->workers[i] = worker;
    }
}

size_t plim__graph_estimate(const plim_job_t *job, const plim__shape_t *shape)
{
    plim__graph_t graph = {.shape = *shape, .num_workers = job->threads};
    return plim__object_bytes(lay_out, &graph, sizeof graph);
}

plim_status_t plim__graph_create(const plim_job_t *job, const plim__shape_t *shape,
                                 plim__graph_t **graph_out)
{
    plim__graph_t draft = {.shape = *shape, .num_workers = job->threads}, *graph;
    PLIM_TRY(plim__object_create(job->ledger, "generate graph", lay_out, &draft, sizeof draft,
                                 &draft.arena, &graph));
    graph->capacity = plim__graph_list_capacity(shape);
    graph->place_to_id = plim__place_permutation(shape);
    graph->rank_to_id = plim__permute_make((uint64_t)shape->num_nodes,
                                           plim__rng_key(shape->seed, PLIM__KEY_EVERYWHERE, 0, 0));
    graph->list_key = plim__rng_key(shape->seed, PLIM__KEY_LIST, 0, 0);
    plim_status_t status =
        plim__degrees_make(job, shape, plim__graph_list_edges(shape),
                           plim__graph_longest_list(shape), graph->sums, &graph->degrees);
    if (status != PLIM_OK) {
        plim__graph_destroy(graph);
        return status;
    }
    *graph_out = graph;
    return PLIM_OK;
}

void plim__graph_destroy(plim__graph_t *graph)
{
    if (graph == NULL)
        return;
    plim__arena_destroy(&graph->arena);
}

/* `ratio`: upper bound for the ratio of the most to the least frequent place. */
static law_t law_zipf(plim__range_t range, double ratio)
{
    double most = (double)range.count + 1;
    double root = sqrt(sqrt(most < ratio ? most : ratio));
    double span = (root * root) * (root * root) - 1;
    return (law_t){range.first, range.count - 1, root - 1, (double)range.count / span, 0};
}

static law_t law_even(plim__range_t range)
{
    return (law_t){range.first, range.count - 1, 0, 0, (double)range.count};
}

static inline int64_t law_draw(const law_t *law, uint64_t bits)
{
    double u = (double)(int64_t)(bits >> 11) * 0x1p-53;
    double t = 1 + u * law->reach;
    double square = t * t;
    int64_t rank = (int64_t)((square * square - 1) * law->scale + u * law->slope);
    return law->first + (rank < law->last ? rank : law->last);
}

static pools_t pools_at(const plim__graph_t *graph, int64_t place)
{
    const plim__shape_t *shape = &graph->shape;
    bool core = place < shape->num_core;
    const plim__draw_mix_t *mix = core ? &shape->core : &shape->periphery;
    plim__range_t region = plim__place_region(shape, place);
    plim__range_t community = plim__place_community(shape, region, plim__place_class(shape, place));
    if (community.count == 0) /* a star of a class without other nodes */
        community = region;
    plim__range_t hot = {community.first, (community.count + HOT_SHARE - 1) / HOT_SHARE};
    if (core)
        hot = (plim__range_t){0, shape->num_stars};
    if (hot.count == 0)
        hot = community;
    const double one = 1 << CHOICE_BITS;
    pools_t pools = {.end =
                         place < shape->num_stars ? place + 1 : community.first + community.count};
    pools.chances[0] = (uint32_t)(mix->everywhere * one + 0.5);
    pools.chances[1] = (uint32_t)((mix->everywhere + mix->hot) * one + 0.5);
    pools.chances[2] = (uint32_t)((mix->everywhere + mix->hot + mix->community) * one + 0.5);
    pools.laws[LAW_EVERYWHERE] = law_zipf((plim__range_t){0, shape->num_nodes}, 1e18);
    pools.laws[LAW_HOT] = law_zipf(hot, core ? PLIM__COMMUNITY_RATIO : HOT_RATIO);
    pools.laws[LAW_COMMUNITY] =
        core && shape->even_core ? law_even(community) : law_zipf(community, PLIM__COMMUNITY_RATIO);
    pools.laws[LAW_REGION] = law_even(region);
    return pools;
}

/* Converts the bits of the first `count` candidates to ids. */
static void candidates_resolve(const plim__graph_t *graph, const pools_t *pools,
                               const candidates_t *candidates, int64_t count)
{
    int32_t num_near = 0;
    int32_t num_far = 0;
    for (int32_t i = 0; i < count; i++) {
        uint64_t bits = candidates->bits[i];
        uint32_t choice = (uint32_t)bits & ((1 << CHOICE_BITS) - 1);
        int which = (choice >= pools->chances[0]) + (choice >= pools->chances[1]) +
                    (choice >= pools->chances[2]);
        int64_t drawn = law_draw(&pools->laws[which], bits);
        candidates->near[num_near] = drawn;
        candidates->near_at[num_near] = i;
        num_near += which != LAW_EVERYWHERE;
        candidates->far[num_far] = drawn;
        candidates->far_at[num_far] = i;
        num_far += which == LAW_EVERYWHERE;
    }
    plim__permute_many(&graph->place_to_id, candidates->near, num_near, false);
    plim__permute_many(&graph->rank_to_id, candidates->far, num_far, false);
    for (int32_t i = 0; i < num_near; i++)
        candidates->ids[candidates->near_at[i]] = candidates->near[i];
    for (int32_t i = 0; i < num_far; i++)
        candidates->ids[candidates->far_at[i]] = candidates->far[i];
}

/* Whether an undirected edge belongs to this list. A destination owns the half of the ids that
 * follows its own id, so every pair belongs to exactly one list. */
static inline bool belongs(const plim__graph_t *graph, int64_t source, int64_t destination)
{
    int64_t ahead = source - destination;
    if (!graph->shape.undirected)
        return ahead != 0;
    if (ahead < 0)
        ahead += graph->shape.num_nodes;
    return ahead != 0 && ahead <= graph->capacity;
}

/* A list being filled, and the sink of its edges. */
typedef struct draft {
    const plim__graph_t *graph;
    graph_worker_t *worker;
    int number; /* of the worker */
    plim__edge_sink_fn sink;
    void *context;
    int64_t destination;
    int64_t degree;
    int64_t count; /* sources so far */
    int64_t *set;  /* NULL while there are few: `small` is searched instead */
    int64_t mask;
    unsigned shift;
    int64_t small[SMALL_LIST];
} draft_t;

static void draft_begin(draft_t *draft, int64_t destination, int64_t degree)
{
    draft->destination = destination;
    draft->degree = degree;
    draft->count = 0;
    draft->set = NULL;
    if (degree <= SMALL_LIST)
        return;
    int64_t size = set_size(degree);
    draft->set = draft->worker->set;
    draft->mask = size - 1;
    draft->shift = 64 - (unsigned)__builtin_ctzll((uint64_t)size);
    memset(draft->set, 0xff, (size_t)size * sizeof(int64_t));
}

/* Adds a source. False when the list has it already. */
static inline bool draft_is_new(draft_t *draft, int64_t source)
{
    if (draft->set == NULL) {
        bool known = false;
        for (int64_t i = 0; i < draft->count; i++)
            known |= draft->small[i] == source;
        if (!known)
            draft->small[draft->count] = source;
        return !known;
    }
    int64_t at = (int64_t)(((uint64_t)source * 0x9e3779b97f4a7c15u) >> draft->shift);
    while (draft->set[at] >= 0) {
        if (draft->set[at] == source)
            return false;
        at = (at + 1) & draft->mask;
    }
    draft->set[at] = source;
    return true;
}

static plim_status_t draft_flush(draft_t *draft)
{
    graph_worker_t *worker = draft->worker;
    int64_t count = worker->num_edges;
    worker->num_edges = 0;
    if (count == 0)
        return PLIM_OK;
    return draft->sink(draft->context, draft->number, worker->source, worker->destination, count);
}

static inline plim_status_t draft_offer(draft_t *draft, int64_t source)
{
    graph_worker_t *worker = draft->worker;
    if (!belongs(draft->graph, source, draft->destination) || !draft_is_new(draft, source))
        return PLIM_OK;
    draft->count++;
    worker->source[worker->num_edges] = source;
    worker->destination[worker->num_edges++] = draft->destination;
    if (draft->graph->shape.undirected) {
        worker->source[worker->num_edges] = draft->destination;
        worker->destination[worker->num_edges++] = source;
    }
    return worker->num_edges > EDGE_BUFFER - 2 ? draft_flush(draft) : PLIM_OK;
}

static plim_status_t draft_offer_all(draft_t *draft, const int64_t *ids, int64_t count)
{
    for (int64_t i = 0; i < count && draft->count < draft->degree; i++)
        PLIM_TRY(draft_offer(draft, ids[i]));
    return PLIM_OK;
}

/*
 * Fills the rest of a list that is long for its pools: takes ids in the order of a permutation of
 * all possible sources, so that any length is reached.
 */
static plim_status_t draft_fill(draft_t *draft, uint64_t key)
{
    const plim__graph_t *graph = draft->graph;
    plim__permute_t order = plim__permute_make((uint64_t)graph->capacity, plim__mix64(key));
    for (int64_t i = 0; i < graph->capacity && draft->count < draft->degree; i++) {
        int64_t source =
            draft->destination + 1 + (int64_t)plim__permute_forward(&order, (uint64_t)i);
        if (source >= graph->shape.num_nodes)
            source -= graph->shape.num_nodes;
        PLIM_TRY(draft_offer(draft, source));
    }
    return PLIM_OK;
}

/* Draws more candidates for a list that is not full. */
static plim_status_t draft_more(draft_t *draft, const pools_t *pools, const list_t *list)
{
    const candidates_t *extra = &draft->worker->extra;
    int64_t drawn = list->num_candidates;
    int64_t most = 8 * draft->degree + 64;
    while (draft->count < draft->degree && drawn < most) {
        int64_t wanted = 2 * (draft->degree - draft->count) + 4;
        int64_t count = plim__min_i64(plim__min_i64(wanted, EXTRA), most - drawn);
        for (int64_t i = 0; i < count; i++)
            extra->bits[i] = plim__rng_u64(list->key, (uint64_t)(drawn + i));
        candidates_resolve(draft->graph, pools, extra, count);
        PLIM_TRY(draft_offer_all(draft, extra->ids, count));
        drawn += count;
    }
    return draft->count < draft->degree ? draft_fill(draft, list->key) : PLIM_OK;
}

static plim_status_t batch_finish(draft_t *draft, const pools_t *pools)
{
    graph_worker_t *worker = draft->worker;
    const int64_t *ids = worker->batch.ids;
    candidates_resolve(draft->graph, pools, &worker->batch, worker->num_candidates);
    plim__permute_many(&draft->graph->place_to_id, worker->list_ids, worker->num_lists, false);
    for (int64_t i = 0; i < worker->num_lists; i++) {
        const list_t *list = &worker->lists[i];
        draft_begin(draft, worker->list_ids[i], list->degree);
        PLIM_TRY(draft_offer_all(draft, ids, list->num_candidates));
        ids += list->num_candidates;
        PLIM_TRY(draft_more(draft, pools, list));
    }
    worker->num_lists = 0;
    worker->num_candidates = 0;
    return PLIM_OK;
}

static plim_status_t batch_add(draft_t *draft, const pools_t *pools, int64_t place, int64_t degree)
{
    graph_worker_t *worker = draft->worker;
    int64_t wanted = draft->graph->shape.undirected ? 2 * degree : degree;
    if (degree >= LONG_LIST)
        wanted = 0;
    if (worker->num_candidates + wanted > BATCH || worker->num_lists == BATCH)
        PLIM_TRY(batch_finish(draft, pools));
    list_t *list = &worker->lists[worker->num_lists];
    list->degree = degree;
    list->key = plim__rng_u64(draft->graph->list_key, (uint64_t)place);
    list->num_candidates = wanted;
    worker->list_ids[worker->num_lists++] = place;
    uint64_t *bits = worker->batch.bits + worker->num_candidates;
    for (int64_t i = 0; i < wanted; i++)
        bits[i] = plim__rng_u64(list->key, (uint64_t)i);
    worker->num_candidates += wanted;
    return PLIM_OK;
}

int64_t plim__graph_blocks(const plim__graph_t *graph)
{
    return graph->degrees.num_blocks;
}

plim_status_t plim__graph_draw(plim__graph_t *graph, int number, int64_t block,
                               plim__edge_sink_fn sink, void *context)
{
    graph_worker_t *worker = &graph->workers[number];
    draft_t draft = {
        .graph = graph, .worker = worker, .number = number, .sink = sink, .context = context};
    int64_t begin = block * PLIM__DEGREE_BLOCK;
    int64_t count = plim__degrees_block(&graph->degrees, block, worker->degrees);
    pools_t pools = pools_at(graph, begin);
    for (int64_t i = 0; i < count; i++) {
        if (begin + i >= pools.end) {
            PLIM_TRY(batch_finish(&draft, &pools));
            pools = pools_at(graph, begin + i);
        }
        if (worker->degrees[i] > 0)
            PLIM_TRY(batch_add(&draft, &pools, begin + i, worker->degrees[i]));
    }
    PLIM_TRY(batch_finish(&draft, &pools));
    return draft_flush(&draft);
}
