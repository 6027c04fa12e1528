#include "sample/block_count.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/node_set.h"
#include "mem/arena.h"

#define CHUNK_NODES 512
#define CHUNK_ENTRIES 4096
#define AHEAD 16

struct plim__block_count {
    plim__arena_t arena;
    int64_t universe; /* nodes of the graph */
    int64_t most_drawn;
    plim__node_set_t met;      /* of the batch so far */
    plim__node_set_t frontier; /* met at the hop before: they draw at this one */
    plim__node_set_t fresh;    /* met at this hop */
    int64_t *nodes;            /* (CHUNK_NODES) of the frontier */
    plim__drawn_t drawn;       /* draws of one chunk */
};

static plim__node_set_t carve_set(plim__arena_t *arena, int64_t universe)
{
    const size_t bytes = plim__node_set_bytes(universe);
    return plim__node_set_make(plim__arena_carve(arena, 1, bytes, PLIM__LINE), universe);
}

static void lay_out(plim__arena_t *arena, void *object)
{
    plim__block_count_t *count = object;
    count->met = carve_set(arena, count->universe);
    count->frontier = carve_set(arena, count->universe);
    count->fresh = carve_set(arena, count->universe);
    count->nodes = plim__arena_carve(arena, CHUNK_NODES, sizeof(int64_t), 1);
    count->drawn.capacity = plim__max_i64(CHUNK_ENTRIES, count->most_drawn);
    count->drawn.indptr = plim__arena_carve(arena, CHUNK_NODES + 1, sizeof(int64_t), 1);
    count->drawn.ids = plim__arena_carve(arena, (size_t)count->drawn.capacity, sizeof(int64_t), 1);
}

size_t plim__block_count_estimate(int64_t num_nodes, int64_t most_drawn)
{
    plim__block_count_t draft = {.universe = num_nodes, .most_drawn = most_drawn};
    return plim__object_bytes(lay_out, &draft, sizeof draft);
}

plim_status_t plim__block_count_create(const plim_job_t *job, int64_t num_nodes, int64_t most_drawn,
                                       plim__block_count_t **count_out)
{
    plim__block_count_t draft = {.universe = num_nodes, .most_drawn = most_drawn}, *count;
    PLIM_TRY(plim__object_create(job->ledger, "slots", lay_out, &draft, sizeof draft, &draft.arena,
                                 &count));
    plim__arena_touch(&count->arena);
    *count_out = count;
    return PLIM_OK;
}

void plim__block_count_destroy(plim__block_count_t *count)
{
    if (count != NULL)
        plim__arena_destroy(&count->arena);
}

/* Adds drawn ids to the batch; returns how many are new. */
static int64_t meet(plim__block_count_t *count, const int64_t *ids, int64_t num_ids)
{
    int64_t added = 0;
    for (int64_t i = 0; i < num_ids; i++) {
        plim__node_set_prefetch(&count->met, ids[i + AHEAD < num_ids ? i + AHEAD : i]);
        if (plim__node_set_add(&count->met, ids[i])) {
            (void)plim__node_set_add(&count->fresh, ids[i]);
            added++;
        }
    }
    return added;
}

/* Draws for some destinations of a hop; adds to the drawn edges and to the new nodes. */
static plim_status_t draw(plim__block_count_t *count, plim__topology_t *source, int worker,
                          const plim__hop_t *hop, const int64_t *nodes, int64_t num_nodes,
                          int64_t *edges, int64_t *fresh)
{
    plim__drawn_t *drawn = &count->drawn;
    for (int64_t done = 0; done < num_nodes; done += drawn->taken) {
        const plim__draws_t draws =
            plim__draws_of(hop, nodes + done, plim__min_i64(num_nodes - done, CHUNK_NODES));
        PLIM_TRY(plim__topology_draw(source, worker, &draws, drawn));
        *edges += drawn->indptr[drawn->taken];
        *fresh += meet(count, drawn->ids, drawn->indptr[drawn->taken]);
    }
    return PLIM_OK;
}

/* Draws for the nodes that the hop before met. */
static plim_status_t draw_frontier(plim__block_count_t *count, plim__topology_t *source, int worker,
                                   const plim__hop_t *hop, int64_t *edges, int64_t *fresh)
{
    const plim__node_set_t before = count->frontier;
    count->frontier = count->fresh;
    count->fresh = before;
    plim__node_set_clear(&count->fresh);
    for (int64_t next = 0, found;
         (found = plim__node_set_list(&count->frontier, next, CHUNK_NODES, count->nodes)) > 0;) {
        next = count->nodes[found - 1] + 1;
        PLIM_TRY(draw(count, source, worker, hop, count->nodes, found, edges, fresh));
    }
    return PLIM_OK;
}

plim_status_t plim__block_count_run(plim__block_count_t *count, plim__topology_t *source,
                                    int worker, const plim__blocks_params_t *params, int64_t epoch,
                                    const int64_t *seeds, int64_t num_seeds, int64_t *nodes_out,
                                    int64_t *edges_out)
{
    int64_t nodes = num_seeds, edges = 0, destinations = num_seeds;
    plim__node_set_clear(&count->met);
    plim__node_set_clear(&count->fresh);
    for (int64_t i = 0; i < num_seeds; i++) /* a seed that occurs twice is two nodes */
        (void)plim__node_set_add(&count->met, seeds[i]);
    for (int i = 0; i < params->num_hops; i++) {
        const plim__hop_t hop = {params->seed, epoch, i, params->fanout[i], params->replace};
        int64_t drawn = 0, fresh = 0;
        PLIM_TRY(i == 0 ? draw(count, source, worker, &hop, seeds, num_seeds, &drawn, &fresh)
                        : draw_frontier(count, source, worker, &hop, &drawn, &fresh));
        edges += destinations + 1 + drawn;
        nodes += fresh;
        destinations = fresh;
    }
    *nodes_out = nodes;
    *edges_out = edges;
    return PLIM_OK;
}
