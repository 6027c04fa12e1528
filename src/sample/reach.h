/*
 * How many nodes a recipe's batches need, and how often: the nodes of an access-probability
 * computation by their hazard, in bins of a doubling each. What caches of any size save, and how
 * many nodes any number of batches meets, follows from it.
 */
#ifndef PLIM_SAMPLE_REACH_H
#define PLIM_SAMPLE_REACH_H

#include <stdint.h>

#define PLIM__REACH_BINS 32 /* bin i: hazards of 2^i … 2^(i + 1) - 1, in units of 2^-28 */

typedef enum plim__reach_kind { PLIM__REACH_LISTS, PLIM__REACH_ROWS } plim__reach_kind_t;

#define PLIM__REACH_KINDS 2

typedef struct plim__reach_bin {
    int64_t nodes;
    int64_t bytes; /* of their lists, or rows, in a cache */
} plim__reach_bin_t;

typedef struct plim__reach {
    int64_t seeds; /* of a batch with these hazards; 0: not measured */
    plim__reach_bin_t bins[PLIM__REACH_KINDS][PLIM__REACH_BINS];
} plim__reach_t;

#endif
