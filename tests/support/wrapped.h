/* Functions that tests stand in for: the test programs are linked with --wrap of each. */
#ifndef PLIM_TESTS_WRAPPED_H
#define PLIM_TESTS_WRAPPED_H

#include "nn/vector.h"

/* The n-th mapping of memory from now on fails (n = 1 is the next one), and only that one; 0
 * switches it off. _pending is 0 once it has failed. */
void test_map_fail_at(int n);
int test_map_fail_pending(void);

/* The n-th look of a loader's governor from now on, and only that one, finds memory tight; 0
 * switches it off. */
void test_squeeze_at(int n);

/* Loops are computed with at most these instructions. */
void test_vector_limit(plim__vector_path_t most);

#endif
