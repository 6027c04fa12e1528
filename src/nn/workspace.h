/*
 * A two-ended stack for activations: a pass takes memory from both ends of one allocation, and
 * returns to a mark to give it back.
 *
 *     ├ front ──────►          free          ◄────── back ┤
 *
 * A workspace without a base hands out nothing and only counts: the code that places matrices is
 * also their estimate.
 */
#ifndef PLIM_NN_WORKSPACE_H
#define PLIM_NN_WORKSPACE_H

#include "base/check.h"
#include "mem/arena.h"

typedef enum plim__side { PLIM__FRONT = 0, PLIM__BACK } plim__side_t;

typedef struct plim__workspace {
    char *base; /* NULL: only counts */
    size_t size;
    size_t used[2]; /* of each side */
    size_t peak;    /* of both together; above `size`, something was not handed out */
} plim__workspace_t;

static inline plim__side_t plim__workspace_other(plim__side_t side)
{
    return side == PLIM__FRONT ? PLIM__BACK : PLIM__FRONT;
}

/* NULL when the workspace only counts, or is full. */
static inline void *plim__workspace_take(plim__workspace_t *workspace, plim__side_t side,
                                         size_t bytes)
{
    bytes = plim__round_up(bytes, PLIM__LINE);
    workspace->used[side] = plim__add_saturating_size(workspace->used[side], bytes);
    const size_t both = plim__add_saturating_size(workspace->used[0], workspace->used[1]);
    if (both > workspace->peak)
        workspace->peak = both;
    if (workspace->base == NULL || both > workspace->size)
        return NULL;
    return side == PLIM__FRONT ? workspace->base + (workspace->used[side] - bytes)
                               : workspace->base + (workspace->size - workspace->used[side]);
}

#endif
