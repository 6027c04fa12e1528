#include "nn/attention_pass.h"

#include "base/check.h"
#include "base/rng.h"

#include <string.h>

#define HEADS_AT_ONCE 32

void plim__attention_drop(const plim__attention_t *attention, int64_t v, int64_t u, int first,
                          int count, float *values)
{
    const uint64_t key = plim__rng_prefix(attention->key, (uint64_t)attention->nodes[v],
                                          (uint64_t)attention->nodes[u]);
    const float scale = 1.0f / (1.0f - attention->dropout);
    for (int i = 0; i < count; i++) {
        const bool dropped =
            plim__rng_double(key, (uint64_t)first + (uint64_t)i) < (double)attention->dropout;
        values[i] = dropped ? 0.0f : values[i] * scale;
    }
}

void plim__attention_add(const plim__kernels_t *kernels, const plim__attention_t *attention,
                         int64_t v, int64_t u, const float *weights, const float *row, float *sum)
{
    const int64_t channels = attention->channels;
    if (!(attention->dropout > 0)) {
        kernels->add_scaled(attention->heads, channels, weights, row, sum);
        return;
    }
    for (int first = 0; first < attention->heads; first += HEADS_AT_ONCE) {
        float kept[HEADS_AT_ONCE];
        const int count = (int)plim__min_i64(HEADS_AT_ONCE, attention->heads - first);
        memcpy(kept, weights + first, (size_t)count * sizeof kept[0]);
        plim__attention_drop(attention, v, u, first, count, kept);
        kernels->add_scaled(count, channels, kept, row + first * channels, sum + first * channels);
    }
}
