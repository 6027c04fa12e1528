#include "support/features.h"

#include "support/dataset.h"

#include "base/half.h"
#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t width(plim_dtype_t type)
{
    return type == PLIM_F16 ? 2 : 4;
}

void test_features_make(test_features_t *world, int64_t num_nodes, int64_t num_features, bool half,
                        plim_io_engine_t engine)
{
    char name[700];
    memset(world, 0, sizeof *world);
    test_directory_make(world->directory);
    (void)snprintf(world->path, sizeof world->path, "%s/data", world->directory);
    world->job = test_job_make(PLIM_LINE_NONE, 2, engine);
    test_graph_t graph = {.num_nodes = num_nodes,
                          .num_features = num_features,
                          .num_classes = 3,
                          .half = half,
                          .seed = 5};
    assert_ok(test_dataset_make(&world->job, world->path, &graph));
    assert_ok(plim_dataset_open(&world->job, world->path, &world->dataset));
    world->type = half ? PLIM_F16 : PLIM_F32;
    world->num_nodes = num_nodes;
    world->num_features = num_features;
    size_t bytes = (size_t)(num_nodes * num_features) * width(world->type);
    world->features = malloc(bytes);
    assert_non_null(world->features);
    (void)snprintf(name, sizeof name, "%s/features.npy", world->path);
    FILE *file = fopen(name, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 4096, SEEK_SET), 0);
    assert_int_equal(fread(world->features, 1, bytes, file), bytes);
    (void)fclose(file);
}

void test_features_end(test_features_t *world)
{
    plim_dataset_release(world->dataset);
    test_job_end(&world->job);
    free(world->features);
    test_directory_remove(world->directory);
}

/* Element `feature` of a node's row in the wanted type, as bits. */
static uint32_t expected(const test_features_t *world, int64_t node, int64_t feature,
                         plim_dtype_t wanted)
{
    size_t at = (size_t)(node * world->num_features + feature);
    float value;
    uint32_t bits;
    if (world->type == PLIM_F16) {
        uint16_t half = ((const uint16_t *)(const void *)world->features)[at];
        if (wanted == PLIM_F16)
            return half;
        value = plim__f32_from_f16(half);
    } else {
        value = ((const float *)(const void *)world->features)[at];
        if (wanted == PLIM_F16)
            return plim__f16_from_f32(value);
    }
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

void test_features_compare(const test_features_t *world, const int64_t *nodes, int64_t count,
                           plim_dtype_t wanted, const void *rows)
{
    for (int64_t i = 0; i < count; i++) {
        size_t bytes = (size_t)world->num_features * width(wanted);
        if (wanted == world->type && memcmp((const char *)rows + (size_t)i * bytes,
                                            world->features + (size_t)nodes[i] * bytes, bytes) == 0)
            continue;
        for (int64_t f = 0; f < world->num_features; f++) {
            uint32_t bits = 0;
            memcpy(&bits,
                   (const char *)rows + (size_t)(i * world->num_features + f) * width(wanted),
                   width(wanted));
            if (bits != expected(world, nodes[i], f, wanted))
                fail_msg("row %lld of node %lld differs at feature %lld", (long long)i,
                         (long long)nodes[i], (long long)f);
        }
    }
}

void test_features_gather(const test_features_t *world, plim__rows_t *source, int worker,
                          const int64_t *nodes, int64_t count)
{
    static const plim_dtype_t types[] = {PLIM_F16, PLIM_F32};
    for (int t = 0; t < 2; t++) {
        size_t bytes = (size_t)(count * world->num_features) * width(types[t]);
        char *rows = malloc(bytes + 64);
        assert_non_null(rows);
        memset(rows, 0x5a, bytes + 64);
        assert_ok(plim__rows_gather(source, worker, nodes, count, types[t], rows));
        test_features_compare(world, nodes, count, types[t], rows);
        for (size_t i = bytes; i < bytes + 64; i++)
            assert_int_equal(rows[i], 0x5a);
        free(rows);
    }
}

void test_features_check(const test_features_t *world, plim__rows_t *source)
{
    int64_t n = world->num_nodes;
    int64_t count = plim_dataset_info(world->dataset)->num_features > 1000 ? 50 : 300;
    int64_t *nodes = malloc((size_t)count * sizeof *nodes);
    uint64_t draw = 0;
    assert_non_null(nodes);
    test_features_gather(world, source, 0, nodes, 0);
    nodes[0] = n - 1;
    test_features_gather(world, source, 1, nodes, 1);
    for (int64_t i = 0; i < count; i++)
        nodes[i] = i * (n - 1) / (count - 1);
    test_features_gather(world, source, 0, nodes, count);
    for (int64_t i = 0; i < count; i++)
        nodes[i] = (int64_t)plim__rng_below(9, &draw, (uint64_t)n);
    test_features_gather(world, source, 1, nodes, count);
    for (int64_t i = 0; i < count; i++)
        nodes[i] = n - 1 - i % 7;
    test_features_gather(world, source, 0, nodes, count);
    free(nodes);
}
