/*
 * Memory taken from both ends of one piece, in the order in which a pass needs it, and given back
 * by going back to a mark.
 *
 *     ├ front ──────►          free          ◄────── back ┤
 *
 * Without a base nothing is handed out and all is counted: so the code that places matrices is the
 * code that estimates them.
 */
#ifndef PLIM_NN_WORKSPACE_H
#define PLIM_NN_WORKSPACE_H

#include "base/check.h"
#include "mem/arena.h"

typedef enum plim__side { PLIM__FRONT = 0, PLIM__BACK } plim__side_t;

typedef struct plim__workspace {
    char *base; /* NULL: only counted */
    size_t size;
    size_t used[2]; /* of each side */
    size_t peak;    /* the most that both held together; beyond size nothing was handed out */
} plim__workspace_t;

static inline plim__side_t plim__workspace_other(plim__side_t side)
{
    return side == PLIM__FRONT ? PLIM__BACK : PLIM__FRONT;
}

/* NULL when it is only counted, or is too much. */
static inline void *plim__workspace_take(plim__workspace_t *room, plim__side_t side, size_t bytes)
{
    bytes = plim__round_up(bytes, PLIM__LINE);
    room->used[side] = plim__add_saturating_size(room->used[side], bytes);
    const size_t both = plim__add_saturating_size(room->used[0], room->used[1]);
    if (both > room->peak)
        room->peak = both;
    if (room->base == NULL || both > room->size)
        return NULL;
    return side == PLIM__FRONT ? room->base + (room->used[side] - bytes)
                               : room->base + (room->size - room->used[side]);
}

#endif
