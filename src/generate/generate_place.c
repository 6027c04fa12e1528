#include "generate/generate_place.h"

#include "base/check.h"

#include <math.h>

plim__permute_t plim__place_permutation(const plim__shape_t *shape)
{
    return plim__permute_make((uint64_t)shape->num_nodes,
                              plim__rng_key(shape->seed, PLIM__KEY_PLACE, 0, 0));
}

plim__range_t plim__place_region(const plim__shape_t *shape, int64_t place)
{
    if (place < shape->num_core)
        return (plim__range_t){shape->num_stars, shape->num_core - shape->num_stars};
    return (plim__range_t){shape->num_core, shape->num_nodes - shape->num_core};
}

/* Where class c begins among `count` places: count (c + c^2 / classes) / (2 classes). */
static int64_t class_begin(int64_t count, int64_t classes, int64_t c)
{
    unsigned __int128 share = (unsigned __int128)(uint64_t)c * (uint64_t)(classes + c);
    unsigned __int128 whole = 2 * (unsigned __int128)(uint64_t)classes * (uint64_t)classes;
    return (int64_t)(share * (uint64_t)count / whole);
}

/* Solves for c in floating point, then corrects it by exact steps. */
static int64_t class_at(int64_t count, int64_t classes, int64_t index)
{
    double share = ((double)index + 0.5) / (double)count;
    int64_t c = (int64_t)((sqrt(1 + 8 * share) - 1) / 2 * (double)classes);
    c = plim__max_i64(0, plim__min_i64(c, classes - 1));
    while (c > 0 && class_begin(count, classes, c) > index)
        c--;
    while (c < classes - 1 && class_begin(count, classes, c + 1) <= index)
        c++;
    return c;
}

int64_t plim__place_class(const plim__shape_t *shape, int64_t place)
{
    if (place < shape->num_stars)
        return place % shape->num_classes;
    plim__range_t region = plim__place_region(shape, place);
    return class_at(region.count, shape->num_classes, place - region.first);
}

plim__range_t plim__place_community(const plim__shape_t *shape, plim__range_t region, int64_t class)
{
    int64_t begin = class_begin(region.count, shape->num_classes, class);
    int64_t end = class_begin(region.count, shape->num_classes, class + 1);
    return (plim__range_t){region.first + begin, end - begin};
}
