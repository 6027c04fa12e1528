/* The class of a place in the structural order, and the places of a class. */
#ifndef PLIM_GENERATE_GENERATE_PLACE_H
#define PLIM_GENERATE_GENERATE_PLACE_H

#include "base/permute.h"
#include "generate/generate_shape.h"

/* The permutation that turns places into ids. */
plim__permute_t plim__place_permutation(const plim__shape_t *shape);

/* A run of places. */
typedef struct plim__range {
    int64_t first;
    int64_t count;
} plim__range_t;

/* The region of a place: the core without the stars, or the periphery. Stars belong to the core. */
plim__range_t plim__place_region(const plim__shape_t *shape, int64_t place);

/* The class of a place. Stars have all classes in turn. */
int64_t plim__place_class(const plim__shape_t *shape, int64_t place);

/* The label of a place: its class, or with the probability of the label noise another one. */
int64_t plim__place_label(const plim__shape_t *shape, int64_t place, int64_t class);

/* The time of a place, below PLIM__TIMES. */
#define PLIM__TIMES 1000
int64_t plim__place_time(const plim__shape_t *shape, int64_t place);

/* The places of a class in a region. Sizes have a long tail: of 172 classes the largest has 5.5 %
 * of all places, the smallest 0.06 %. After the last class there is an empty one. */
plim__range_t plim__place_community(const plim__shape_t *shape, plim__range_t region,
                                    int64_t class);

#endif
