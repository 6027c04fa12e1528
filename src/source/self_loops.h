/*
 * How many self-loops each node has: GCN counts a node once, whatever loops its list holds, so its
 * degrees are those of the edges from other nodes. The table takes a bit a node where no list holds
 * the node twice, else as many bits as the largest count needs.
 */
#ifndef PLIM_SOURCE_SELF_LOOPS_H
#define PLIM_SOURCE_SELF_LOOPS_H

#include "source/offsets.h"

typedef struct plim__self_loops {
    uint64_t *words; /* (plim__self_loops_words) */
    unsigned bits;   /* of a node: 1, 2, 4, …, 64; 0: no table */
} plim__self_loops_t;

static inline int64_t plim__self_loops_of(const plim__self_loops_t *loops, int64_t node)
{
    const uint64_t place = (uint64_t)node * loops->bits;
    const uint64_t mask = ~(uint64_t)0 >> (64 - loops->bits);
    return (int64_t)(loops->words[place / 64] >> place % 64 & mask);
}

/* Bits of a node, for counts up to `most`; and words of the table. */
unsigned plim__self_loops_bits(int64_t most);
size_t plim__self_loops_words(int64_t num_nodes, unsigned bits);

/*
 * Fills a table of zeros in one pass over indices.npy. PLIM_ERR_DATA where a node has more loops
 * than dataset.json says; PLIM_ERR_IO, PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_STOPPED. Memory:
 * at most plim__offsets_work_minimum, or more where the line allows.
 */
plim_status_t plim__self_loops_fill(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim__offsets_t *offsets, plim__self_loops_t *loops);

/* Finds the most loops of a node in one pass likewise, and notes it in the dataset. */
plim_status_t plim__self_loops_count(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim__offsets_t *offsets);

#endif
