/*
 * The struct of a window. The draws area is one array of entries of the ids' size; one cursor gives
 * each hop its places and its ids:
 *
 *     | places of hop 0 | ids of hop 0, by task | places of hop 1 | ids of hop 1 … | free |
 *
 * places[position] is where the ids of that member of the hop's set begin, or NONE_DRAWN. Tasks are
 * stored in the order in which builders finish them, so a place does not tell where the ids before
 * it end; instead the last id of a node has its highest bit set (ids are below 2^31, or 2^63). A
 * node takes 4 bytes besides its ids, and builders never wait for each other.
 */
#ifndef PLIM_LOAD_WINDOW_INTERNAL_H
#define PLIM_LOAD_WINDOW_INTERNAL_H

#include "load/window.h"
#include "mem/arena.h"

#include <pthread.h>
#include <stdatomic.h>

#define NONE_DRAWN UINT32_MAX
#define LAST_I32 ((uint32_t)1 << 31)
#define LAST_I64 ((uint64_t)1 << 63)

#define CHUNK 2048 /* nodes that a worker gathers at once */

/* A worker's buffers for the rows of CHUNK nodes. */
typedef struct chunk {
    int64_t positions[CHUNK]; /* in the set of stored rows, or -1 */
    int64_t others[CHUNK];    /* nodes that are not stored … */
    int64_t where[CHUNK];     /* … and their positions in the chunk */
} chunk_t;

typedef struct window_topology {
    plim__topology_t source;
    plim__load_window_t *window;
} window_topology_t;

typedef struct window_rows {
    plim__rows_t source;
    plim__load_window_t *window;
} window_rows_t;

/* What builds have shown about the number of seeds that fit. */
typedef struct fitted {
    /* The largest build that fitted since the last overflow: its seeds, and what it used. */
    int64_t seeds;
    int64_t draws;
    int64_t rows;

    int64_t refused_seeds; /* of the smallest single batch that did not fit; 0: none */
    int refusals;          /* because of it, since a batch was tried */
} fitted_t;

struct plim__load_window {
    plim__arena_t arena;
    plim__load_window_params_t params; /* draws limited to what a place can address */
    const plim_job_t *job;
    plim__topology_t *topology_below;
    plim__topology_t *draws_below; /* the same, or another window */
    plim__rows_t *rows_below;
    window_topology_t topology;
    window_rows_t rows;
    int64_t draw_capacity;
    int64_t *task_nodes;     /* (builders, TASK_NODES) the builders' buffers */
    int64_t *task_indptr;    /* (builders, TASK_NODES + 1) */
    int64_t *task_ids;       /* (builders, draw_capacity) */
    int64_t *task_positions; /* (builders, draw_capacity) with positions */
    chunk_t *chunks;         /* (workers) */

    /* D_0 … D_H: the destinations of each hop. The last becomes the set of stored rows, and exists
     * only where rows are stored. */
    plim__node_set_t sets[PLIM__HOPS_MAX + 1];
    void *area;                             /* (params.draws) entries of index_type */
    uint32_t *positions;                    /* (params.draws) in their lists, or NULL */
    const uint32_t *places[PLIM__HOPS_MAX]; /* in the area */
    char *store;                            /* (params.rows) rows of row_bytes */

    plim__window_rows_t mode; /* of the next builds */
    int64_t epoch;
    int64_t used_draws;
    int64_t used_rows;
    int64_t held_rows;  /* also needed, and cached by the source below */
    fitted_t fitted[2]; /* of builds with rows, and of builds without */
};

static inline bool plim__load_window_with_rows(const plim__load_window_t *window)
{
    return window->params.rows > 0 && window->mode != PLIM__WINDOW_NONE;
}

/* The rows that are not cached, once they are listed. */
static inline plim__node_set_t *plim__load_window_listed(plim__load_window_t *window)
{
    return &window->sets[window->params.num_hops];
}

/* All builders' walk over the members of a set. The lock guards the two cursors. */
typedef struct plim__window_walk {
    plim__load_window_t *window;
    const plim__node_set_t *set;
    pthread_mutex_t lock;
    int64_t task_nodes; /* members taken at once */
    int64_t next_node;
    int64_t next_position;
    atomic_bool ended; /* a builder failed, or nothing more fits: stop taking tasks */
    void *context;     /* of the work */
} plim__window_walk_t;

/* Runs `work` in the window's builders, with the walk and a builder's number. Each claims tasks
 * until there are none left: a task is a range of members, in the builder's buffer; claim returns
 * its length, 0 at the end, and the position of the first member. */
plim_status_t plim__window_walk_run(plim__window_walk_t *walk,
                                    plim_status_t (*work)(void *walk, int builder));
int64_t plim__window_walk_claim(plim__window_walk_t *walk, int builder, int64_t **nodes_out,
                                int64_t *position_out);

/* Initialises the window's two sources. */
void plim__load_window_sources(plim__load_window_t *window);

#endif
