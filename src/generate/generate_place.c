#include "generate/generate_place.h"

#include "base/check.h"

/* By the sizes of ogbn-arxiv's 40 classes, in percent, beside these: the largest 16 (20), the
 * eleventh 2.8 (2.2), the thirty-first 0.35 (0.40). */
#define SIZE_SKEW 9

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

/* Where class c begins among `count` places: a hyperbola, in which the last class is
 * (SIZE_SKEW + 1)^2 times the first. */
static int64_t class_begin(int64_t count, int64_t classes, int64_t c)
{
    unsigned __int128 share = (unsigned __int128)(uint64_t)c * (uint64_t)count;
    return (int64_t)(share / (uint64_t)(classes + SIZE_SKEW * (classes - c)));
}

static int64_t class_at(int64_t count, int64_t classes, int64_t index)
{
    int64_t low = 0, high = classes;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (class_begin(count, classes, middle) <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int64_t plim__place_class(const plim__shape_t *shape, int64_t place)
{
    if (place < shape->num_stars)
        return place % shape->num_classes;
    plim__range_t region = plim__place_region(shape, place);
    return class_at(region.count, shape->num_classes, place - region.first);
}

int64_t plim__place_label(const plim__shape_t *shape, int64_t place, int64_t class)
{
    const int64_t classes = shape->num_classes;
    const uint64_t key = plim__rng_key(shape->seed, PLIM__KEY_LABEL, 0, 0);
    const uint64_t bits = plim__rng_u64(key, (uint64_t)place);
    if (bits >= (uint64_t)(shape->label_noise * 0x1p63) * 2 || classes < 2)
        return class;
    const uint64_t other = plim__mix64(bits) % (uint64_t)(classes - 1);
    return (class + 1 + (int64_t)other) % classes;
}

int64_t plim__place_time(const plim__shape_t *shape, int64_t place)
{
    const uint64_t key = plim__rng_key(shape->seed, PLIM__KEY_TIME, 0, 0);
    return (int64_t)(plim__rng_u64(key, (uint64_t)place) % PLIM__TIMES);
}

plim__range_t plim__place_community(const plim__shape_t *shape, plim__range_t region, int64_t class)
{
    int64_t begin = class_begin(region.count, shape->num_classes, class);
    int64_t end =
        class_begin(region.count, shape->num_classes, plim__min_i64(class + 1, shape->num_classes));
    return (plim__range_t){region.first + begin, end - begin};
}
