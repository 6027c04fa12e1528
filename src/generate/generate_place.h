/* Which class a place of the structural order belongs to, and where a class's places are. */
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

/* The region of a place, stars counting as core, and without the stars. */
plim__range_t plim__place_region(const plim__shape_t *shape, int64_t place);

/* The class of a place. Stars have all classes in turn, so that the hottest are not of one. */
int64_t plim__place_class(const plim__shape_t *shape, int64_t place);

/* The places of a class in a region: sizes rise evenly, the last class three times the first. */
plim__range_t plim__place_community(const plim__shape_t *shape, plim__range_t region,
                                    int64_t class);

#endif
