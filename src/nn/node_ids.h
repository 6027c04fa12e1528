/* The ids in the dataset of a batch's nodes: what dropout is keyed by. */
#ifndef PLIM_NN_NODE_IDS_H
#define PLIM_NN_NODE_IDS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct plim__node_ids {
    const void *ids; /* int32, or int64 if wide */
    bool wide;
} plim__node_ids_t;

static inline uint64_t plim__node_id(const plim__node_ids_t *nodes, int64_t i)
{
    return nodes->wide ? ((const uint64_t *)nodes->ids)[i] : ((const uint32_t *)nodes->ids)[i];
}

#endif
