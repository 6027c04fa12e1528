/* Draws of one node after another, and of nodes that own their draws. */
#ifndef PLIM_TESTS_DRAWS_H
#define PLIM_TESTS_DRAWS_H

#include "source/topology.h"

static inline void test_draw_positions(const plim__hop_t *hop, int64_t owner, int64_t degree,
                                       int64_t *positions_out)
{
    plim__draw_positions(plim__draw_key(plim__draw_prefix(hop), owner), hop, degree, positions_out);
}

static inline plim_status_t test_topology_draw(plim__topology_t *source, int worker,
                                               const plim__hop_t *hop, const int64_t *nodes,
                                               int64_t count, plim__drawn_t *drawn)
{
    const plim__draws_t draws = plim__draws_of(hop, nodes, count);
    return plim__topology_draw(source, worker, &draws, drawn);
}

#endif
