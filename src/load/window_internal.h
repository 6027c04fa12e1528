/*
 * What the files of a window share. The draws area is one array of entries of the ids' size, from
 * which each hop takes its places and its ids, through one cursor:
 *
 *     | places of hop 0 | ids of hop 0, in pieces | places of hop 1 | ids of hop 1 … | free |
 *
 * places[rank] is where the ids of that member of the hop's set begin, or NONE_DRAWN. Pieces come
 * in the order in which builders finish them, so a place says nothing about where the one before
 * ends: the last id of a node has its highest bit set instead (ids are below 2^31, or 2^63). So a
 * node takes 4 bytes beside its ids, and builders never wait for each other.
 */
#ifndef PLIM_LOAD_WINDOW_INTERNAL_H
#define PLIM_LOAD_WINDOW_INTERNAL_H

#include "load/window.h"
#include "mem/arena.h"

#define NONE_DRAWN UINT32_MAX
#define LAST_I32 ((uint32_t)1 << 31)
#define LAST_I64 ((uint64_t)1 << 63)

#define PIECE 16384      /* nodes that a builder takes at once */
#define CHUNK 2048       /* nodes that a worker gathers at once */
#define DRAW_MOST 262144 /* ids that fit a builder's scratch, unless a single draw is longer */

/* A builder's scratch. */
typedef struct builder {
    int64_t *nodes;  /* (PIECE) */
    int64_t *indptr; /* (PIECE + 1) */
    int64_t *ids;    /* (draw_capacity) */
} builder_t;

/* A worker's scratch. */
typedef struct worker {
    int64_t *ranks;  /* (CHUNK) in the set of stored rows, or -1 */
    int64_t *others; /* (CHUNK) nodes that are not stored … */
    int64_t *where;  /* (CHUNK) … and their positions in the chunk */
} worker_t;

typedef struct window_topology {
    plim__topology_t source;
    plim__load_window_t *window;
} window_topology_t;

typedef struct window_rows {
    plim__rows_t source;
    plim__load_window_t *window;
} window_rows_t;

/* What did not fit when a build failed. */
typedef struct overflow {
    bool draws;
    int hop;             /* at which the draws did not fit */
    int64_t rows_wanted; /* 0 when it was not the rows */
} overflow_t;

struct plim__load_window {
    plim__arena_t arena;
    plim__load_window_params_t params; /* draws cut to what a place can name */
    const plim_job_t *job;
    plim__topology_t *topology_below;
    plim__rows_t *rows_below;
    window_topology_t topology;
    window_rows_t rows;
    int64_t draw_capacity;
    builder_t *builders; /* (params.builders) */
    worker_t *workers;   /* (params.workers) */

    /* D_0 … D_H: destinations of each hop; the last becomes the set of stored rows (only where rows
     * are stored: else it is never made). */
    plim__node_set_t sets[PLIM__HOPS_MAX + 1];
    void *area;                             /* (params.draws) entries of index_type */
    const uint32_t *places[PLIM__HOPS_MAX]; /* in the area */
    char *store;                            /* (params.rows) rows of row_bytes */

    bool ready; /* built, for `epoch` */
    int64_t epoch;
    int64_t used_draws;
    int64_t used_rows;
    int64_t held_rows; /* needed besides, and held by the source below */

    /* The largest build that fitted since one did not: its seeds, and what it used. */
    int64_t fitted_seeds;
    int64_t fitted_draws;
    int64_t fitted_rows;

    /* The least batch that did not fit by itself: its seeds (0: none), and what was too small. */
    int64_t refused_seeds;
    overflow_t refused;
    int refusals; /* for its sake, since one was tried */
};

static inline bool plim__load_window_stores_rows(const plim__load_window_t *window)
{
    return window->params.rows > 0;
}

/* Draws and reads all that these seeds need. *fits_out is false, and *overflow_out says why, when
 * a capacity was too small; the window is ready only when it fits. */
plim_status_t plim__load_window_fill(plim__load_window_t *window, int64_t epoch,
                                     const int64_t *seeds, int64_t count, bool *fits_out,
                                     overflow_t *overflow_out);

/* Makes the window's two sources. */
void plim__load_window_sources(plim__load_window_t *window);

#endif
