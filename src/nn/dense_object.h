/* The internals of a plim__dense, for the files that create and use it. */
#ifndef PLIM_NN_DENSE_OBJECT_H
#define PLIM_NN_DENSE_OBJECT_H

#include "mem/arena.h"
#include "nn/dense.h"
#include "nn/onednn.h"

enum { FORWARD, INPUT, WEIGHT, KINDS };

#define HEIGHTS 3
#define TALLEST 512

/* Heights of tiles; the last is PLIM__ROWS. */
extern const int64_t plim__tile_heights[KINDS][HEIGHTS];

#define LANES_MAX 8

/* Calls and buffers of one worker. */
typedef struct tools {
    plim__call_t calls[KINDS][HEIGHTS];
    float *wide[2]; /* (TALLEST, out) of dy and (TALLEST, in) of x, if they must be widened */
} tools_t;

/* Sizes that oneDNN decides: bytes of scratch of a worker, and of packed weights. */
typedef struct plim__dense_needs {
    size_t scratch;
    size_t weights[WEIGHT];
} plim__dense_needs_t;

/* A weight in the layout of the products of one kind. */
typedef struct packed {
    plim__product_t packing;
    plim__call_t call;
    void *data;
    bool stale; /* older than `plain` */
} packed_t;

struct plim__dense {
    plim__arena_t arena;
    plim__dense_params_t params;
    bool widens;
    struct dnnl_engine *engine;
    plim__product_t products[KINDS][HEIGHTS];
    packed_t packed[WEIGHT]; /* for FORWARD and INPUT */
    float *plain;            /* (out, in) */
    float *lanes;            /* (plim__dense_lanes, out, in) */
    int64_t lanes_used;      /* lanes since the last plim__dense_gradient; the others are zero */
    tools_t *tools;          /* (workers) */
    plim__dense_needs_t needs;
    char *scratch;      /* (workers, needs.scratch in whole pages) one call at a time */
    char *wide;         /* (workers) tools_t.wide */
    atomic_bool failed; /* a call failed: results are invalid */
};

/* Lanes of dW for `rows` rows. */
static inline int64_t plim__dense_lanes(int64_t rows)
{
    return plim__max_i64(1, plim__min_i64(rows / TALLEST, LANES_MAX));
}

/* Lanes that have memory. */
static inline int64_t plim__dense_lanes_most(const plim__dense_params_t *params)
{
    return params->rows > 0 ? plim__dense_lanes(params->rows) : LANES_MAX;
}

/* Whether the object has products of this kind. */
static inline bool plim__dense_wanted(const plim__dense_params_t *params, int kind)
{
    return kind == FORWARD || (kind == INPUT ? params->input_gradient : params->backward);
}

#endif
