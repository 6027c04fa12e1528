/*
 * How many nodes a recipe's batches need, and how often: the nodes of an access-probability
 * computation, by probability per byte, the order in which caches admit them. It tells what caches
 * of any size save, and how many nodes any number of batches meets.
 */
#ifndef PLIM_SAMPLE_REACH_H
#define PLIM_SAMPLE_REACH_H

#include <stdint.h>

/* A bin is half a doubling of the probability per byte, up to 1; the first has everything below. */
#define PLIM__REACH_BINS 96

typedef enum plim__reach_kind { PLIM__REACH_LISTS, PLIM__REACH_ROWS } plim__reach_kind_t;

#define PLIM__REACH_KINDS 2

typedef struct plim__reach_bin {
    int64_t nodes;
    int64_t bytes; /* of their lists, or rows, in a cache */
    int64_t needs; /* sum of their probabilities, in units of 2^-28 */
} plim__reach_bin_t;

typedef struct plim__reach {
    int64_t seeds; /* of the window that the probabilities are for; 0: not measured */
    plim__reach_bin_t bins[PLIM__REACH_KINDS][PLIM__REACH_BINS];
} plim__reach_t;

/* Of a batch, and of an epoch. A node draws the same neighbours in all batches of an epoch, so an
 * epoch needs fewer nodes than its batches would if they drew independently. */
typedef struct plim__reaches {
    plim__reach_t batch, epoch;
} plim__reaches_t;

#endif
