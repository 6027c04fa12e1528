/* Random hops and matrices, for tests of computations over them. */
#ifndef PLIM_TESTS_HOPS_H
#define PLIM_TESTS_HOPS_H

#include "nn/aggregate.h"

/* A hop with its reverse; sources are drawn with repeats, destinations among them. */
typedef struct test_hop {
    plim__edges_t hop;
    plim__reverse_t reverse;
} test_hop_t;

/* Lists of 0 to 2 * mean edges; every fourth destination has none; some edges are to oneself. */
void test_hop_make(uint64_t seed, int64_t num_dst, int64_t num_src, int64_t mean,
                   test_hop_t *hop_out);
/* The lists of destinations [first, last) alone; sources keep their numbers (so the destinations
 * are not themselves any more, and self-scales do not apply). */
void test_hop_part(const test_hop_t *whole, int64_t first, int64_t last, test_hop_t *part_out);
void test_hop_end(test_hop_t *hop);

/* Random values in [-1, 1); what lies behind a row's width is 0x55 in every byte. */
plim__matrix_t test_matrix_make(uint64_t seed, int64_t rows, int64_t width, int64_t stride,
                                plim__element_t element);
void test_matrix_end(plim__matrix_t *matrix);
double test_matrix_at(const plim__matrix_t *matrix, int64_t row, int64_t column);
/* Fails when a byte behind a row's width is not 0x55. */
void test_matrix_assert_guards(const plim__matrix_t *matrix);

/* Says which vector paths this processor cannot show; and a teardown after which all it has may be
 * taken again. */
void test_say_missing_paths(void);
int test_every_path(void **state);

#endif
