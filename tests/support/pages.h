/* What the kernel does with pages that it may take. */
#ifndef PLIM_TESTS_PAGES_H
#define PLIM_TESTS_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How many pages of [base, base + size), from a page's begin on, are in memory. */
int64_t test_pages_there(const void *base, size_t size);

/*
 * Keeps this thread, and those it starts, on one processor, or gives it back all it had. The kernel
 * passes over pages that wait in the list of another processor.
 */
void test_pages_pin(bool pinned);

/* So many may wait there still, brought in by threads of the kernel's. */
#define TEST_PAGES_WAITING 31

/* Whether MADV_PAGEOUT takes at once what MADV_FREE has let go; says so when it does not. */
bool test_pageout_works(void);

#endif
