#include "support/hops.h"

#include "base/half.h"
#include "base/rng.h"
#include "nn/bf16.h"
#include "nn/vector.h"
#include "support/harness.h"
#include "support/wrapped.h"

#include <stdlib.h>
#include <string.h>

#define GUARD 0x55

static void *must(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    assert_non_null(memory);
    return memory;
}

static void finish(test_hop_t *hop, int32_t *indptr, int32_t *indices)
{
    const size_t num_edges = (size_t)hop->hop.num_edges;
    hop->hop.indptr = indptr;
    hop->hop.indices = indices;
    hop->reverse.indptr = must((size_t)hop->hop.num_src + 1, sizeof(int32_t));
    hop->reverse.edges = must(num_edges, sizeof(int32_t));
    hop->reverse.destinations = must(num_edges, sizeof(int32_t));
    plim__reverse_make(&hop->hop, &hop->reverse);
}

void test_hop_make(uint64_t seed, int64_t num_dst, int64_t num_src, int64_t mean,
                   test_hop_t *hop_out)
{
    uint64_t counter = 0;
    int32_t *indptr = must((size_t)num_dst + 1, sizeof *indptr);
    int32_t *indices = must((size_t)(num_dst * 2 * mean), sizeof *indices);
    for (int64_t v = 0; v < num_dst; v++) {
        int64_t drawn = (int64_t)plim__rng_below(seed, &counter, (uint64_t)(2 * mean + 1));
        if (v % 4 == 1)
            drawn = 0;
        indptr[v + 1] = indptr[v] + (int32_t)drawn;
        for (int64_t e = indptr[v]; e < indptr[v + 1]; e++) {
            indices[e] = (int32_t)plim__rng_below(seed, &counter, (uint64_t)num_src);
            if (plim__rng_below(seed, &counter, 9) == 0)
                indices[e] = (int32_t)v;
        }
    }
    *hop_out = (test_hop_t){.hop = {num_dst, num_src, indptr[num_dst], NULL, NULL}};
    finish(hop_out, indptr, indices);
}

void test_hop_part(const test_hop_t *whole, int64_t first, int64_t last, test_hop_t *part_out)
{
    const int32_t begin = whole->hop.indptr[first];
    const int64_t num_edges = whole->hop.indptr[last] - begin;
    int32_t *indptr = must((size_t)(last - first) + 1, sizeof *indptr);
    int32_t *indices = must((size_t)num_edges, sizeof *indices);
    for (int64_t v = first; v <= last; v++)
        indptr[v - first] = whole->hop.indptr[v] - begin;
    for (int64_t e = 0; e < num_edges; e++)
        indices[e] = whole->hop.indices[begin + e];
    *part_out = (test_hop_t){.hop = {last - first, whole->hop.num_src, num_edges, NULL, NULL}};
    finish(part_out, indptr, indices);
}

void test_hop_end(test_hop_t *hop)
{
    free((void *)hop->hop.indptr);
    free((void *)hop->hop.indices);
    free(hop->reverse.indptr);
    free(hop->reverse.edges);
    free(hop->reverse.destinations);
}

plim__matrix_t test_matrix_make(uint64_t seed, int64_t rows, int64_t width, int64_t stride,
                                plim__element_t element)
{
    const size_t bytes = (size_t)(rows * stride) * plim__element_bytes(element);
    plim__matrix_t matrix = {must(bytes, 1), rows, width, stride, element};
    memset(matrix.data, GUARD, bytes);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < width; c++) {
            const float value =
                (float)plim__rng_double(seed, (uint64_t)(r * width + c)) * 2.0f - 1.0f;
            const int64_t at = r * stride + c;
            if (element == PLIM__F32)
                ((float *)matrix.data)[at] = value;
            else
                ((uint16_t *)matrix.data)[at] =
                    element == PLIM__F16 ? plim__f16_from_f32(value) : plim__bf16_from_f32(value);
        }
    }
    return matrix;
}

void test_matrix_end(plim__matrix_t *matrix)
{
    free(matrix->data);
}

double test_matrix_at(const plim__matrix_t *matrix, int64_t row, int64_t column)
{
    const int64_t at = row * matrix->stride + column;
    if (matrix->element == PLIM__F32)
        return (double)((const float *)matrix->data)[at];
    const uint16_t half = ((const uint16_t *)matrix->data)[at];
    return (double)(matrix->element == PLIM__F16 ? plim__f32_from_f16(half)
                                                 : plim__f32_from_bf16(half));
}

void test_matrix_assert_guards(const plim__matrix_t *matrix)
{
    const size_t size = plim__element_bytes(matrix->element);
    for (int64_t r = 0; r < matrix->rows; r++) {
        const unsigned char *row =
            (const unsigned char *)matrix->data + (size_t)(r * matrix->stride) * size;
        for (size_t i = (size_t)matrix->width * size; i < (size_t)matrix->stride * size; i++)
            assert_int_equal(row[i], GUARD);
    }
}

void test_say_missing_paths(void)
{
    if (plim__vector_path() < PLIM__VECTOR_AVX512)
        print_message("SKIPPED the AVX-512 path: this processor has no AVX-512\n");
    if (plim__vector_path() < PLIM__VECTOR_AVX2)
        print_message("SKIPPED the AVX2 path: this processor has no AVX2 and F16C\n");
}

int test_every_path(void **state)
{
    (void)state;
    test_vector_limit(PLIM__VECTOR_AVX512);
    return 0;
}
