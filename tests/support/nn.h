/* What tests of src/nn share: numbers, teams, and each way to compute the same. */
#ifndef PLIM_TESTS_NN_H
#define PLIM_TESTS_NN_H

#include "nn/matrix.h"
#include "nn/team.h"

#include <stdbool.h>

/* `count` numbers in [-scale, scale), by the seed alone. */
void test_numbers(uint64_t seed, int64_t count, float scale, float *out);

/* A matrix whose rows are `stride` apart, in memory from test_malloc. */
plim__matrix_t test_rows(int64_t rows, int64_t width, int64_t stride, plim__element_t element);

/* One value, whatever the element. */
double test_value_at(const plim__matrix_t *matrix, int64_t row, int64_t column);
void test_value_set(plim__matrix_t *matrix, int64_t row, int64_t column, float value);

/* Fails unless |got - want| <= tolerance * max(1, |want|). */
void test_close(double got, double want, double tolerance, const char *what, int64_t at);

/* A team of two on a ledger of its own, as set-up and tear-down of a group: *state is the team. */
int test_team_set_up(void **state);
int test_team_tear_down(void **state);

/*
 * compute(context, team, out) with teams of 1, 2, 3 and 8 threads and on every instruction set:
 * `bytes` at out must be the same each time.
 */
void test_same_bits(void (*compute)(void *context, plim__team_t *team, void *out), void *context,
                    size_t bytes);

#endif
