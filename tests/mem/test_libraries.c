/* The process itself, brought into a state that is always the same. */
#include "support/harness.h"

#include "mem/arena.h"
#include "mem/kernel_text.h"
#include "mem/libraries.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define SIZE (8 * HUGE_PAGE)
#define SETTING "/sys/kernel/mm/transparent_hugepage/enabled"
#define EXCEPT_ADVISED 3 /* PR_GET_THP_DISABLE's word for it, from Linux 6.18 on */

static char before[64];

static bool set(const char *word)
{
    const int file = open(SETTING, O_WRONLY | O_CLOEXEC);
    const bool done = file >= 0 && write(file, word, strlen(word)) == (ssize_t)strlen(word);
    if (file >= 0)
        (void)close(file);
    return done;
}

static int set_back(void **state)
{
    static const char *const words[] = {"[always", "[madvise", "[never"};
    (void)state;
    for (int i = 0; i < 3; i++)
        if (strstr(before, words[i]) != NULL)
            (void)set(words[i] + 1);
    return 0;
}

static int64_t huge_bytes(void)
{
    char text[2048];
    int64_t kib;
    assert_true(plim__kernel_read("", "/proc/self/smaps_rollup", text, sizeof text) > 0);
    assert_true(plim__kernel_field(text, "AnonHugePages", &kib));
    return kib << 10;
}

static int64_t huge_when_touched(bool asked)
{
    char *base = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(base != MAP_FAILED);
    if (asked)
        plim__arena_want_huge(base, SIZE);
    for (size_t at = 0; at < SIZE; at += HUGE_PAGE / 8)
        base[at] = 1;
    const int64_t bytes = huge_bytes();
    (void)munmap(base, SIZE);
    return bytes;
}

/* What libraries map, of which they use little, is not there as a whole. */
static void has_huge_pages_only_where_asked_for(void **state)
{
    (void)state;
    if (plim__kernel_read("", SETTING, before, sizeof before) <= 0 || !set("always")) {
        print_message("SKIPPED: huge pages for everybody cannot be switched on here\n");
        skip();
    }
    if (TEST_SANITIZED || huge_when_touched(false) == 0) {
        print_message("SKIPPED: %s\n", TEST_SANITIZED ? "a sanitizer's process is not ours alone"
                                                      : "this kernel has no huge page at hand");
        skip();
    }
    (void)plim__libraries_bytes();
    assert_int_equal(huge_when_touched(false), 0);
    if (prctl(PR_GET_THP_DISABLE, 0L, 0L, 0L, 0L) == EXCEPT_ADVISED)
        assert_true(huge_when_touched(true) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(has_huge_pages_only_where_asked_for, set_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
