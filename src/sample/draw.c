#include "sample/draw.h"

void plim__draw_positions(const plim__hop_t *hop, int64_t node, int64_t degree,
                          int64_t *positions_out)
{
    const uint64_t key =
        plim__rng_key(hop->seed, (uint64_t)hop->epoch, (uint64_t)hop->hop, (uint64_t)node);
    const int64_t count = plim__draw_count(hop, degree);
    uint64_t counter = 0;
    if (count == degree && !(hop->replace && hop->fanout >= 0)) {
        for (int64_t i = 0; i < count; i++)
            positions_out[i] = i;
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t last = hop->replace ? degree - 1 : degree - count + i;
        int64_t position = (int64_t)plim__rng_below(key, &counter, (uint64_t)last + 1);
        for (int64_t j = 0; j < i && !hop->replace; j++)
            if (positions_out[j] == position) {
                position = last;
                break;
            }
        positions_out[i] = position;
    }
}
