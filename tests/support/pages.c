#include "support/pages.h"

#include "support/harness.h"

#include "mem/arena.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int64_t test_pages_there(const void *base, size_t size)
{
    size_t pages = (size + PLIM__PAGE - 1) / PLIM__PAGE;
    unsigned char *there = malloc(pages + 1);
    int64_t count = 0;
    assert_non_null(there);
    assert_int_equal(mincore((void *)(uintptr_t)base, size, there), 0);
    for (size_t i = 0; i < pages; i++)
        count += there[i] & 1;
    free(there);
    return count;
}

void test_pages_pin(bool pinned)
{
    static cpu_set_t all;
    if (!pinned) {
        assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
        return;
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_SET((size_t)sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
}

bool test_pageout_works(void)
{
    const size_t size = 64 * PLIM__PAGE;
    bool works = false;
    /* More than once: pages wait in a list of the processor that the test may just have left. */
    for (int i = 0; i < 5 && !works; i++) {
        char *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(pages != MAP_FAILED);
        memset(pages, 1, size);
        works = madvise(pages, size, MADV_FREE) == 0 && madvise(pages, size, MADV_PAGEOUT) == 0 &&
                test_pages_there(pages, size) == 0;
        (void)munmap(pages, size);
    }
    if (!works)
        print_message("SKIPPED: MADV_PAGEOUT does not take what MADV_FREE has let go\n");
    return works;
}
