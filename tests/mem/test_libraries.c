/* The process itself, brought into a state that is always the same. */
#include "support/harness.h"

#include "mem/kernel_text.h"
#include "mem/libraries.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define SETTING "/sys/kernel/mm/transparent_hugepage/enabled"

static bool set(const char *word)
{
    const int file = open(SETTING, O_WRONLY | O_CLOEXEC);
    const bool done = file >= 0 && write(file, word, strlen(word)) == (ssize_t)strlen(word);
    if (file >= 0)
        (void)close(file);
    return done;
}

static int64_t huge_bytes(void)
{
    plim__kernel_lines_t lines;
    const char *line;
    int64_t kib, sum = 0;
    assert_true(plim__kernel_lines_open(&lines, "", "/proc/self/smaps"));
    while ((line = plim__kernel_lines_next(&lines)) != NULL)
        if (plim__kernel_field(line, "AnonHugePages", &kib))
            sum += kib << 10;
    plim__kernel_lines_close(&lines);
    return sum;
}

static int64_t huge_when_touched(size_t size)
{
    char *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(base != MAP_FAILED);
    for (size_t at = 0; at < size; at += HUGE_PAGE / 8)
        base[at] = 1;
    const int64_t bytes = huge_bytes();
    (void)munmap(base, size);
    return bytes;
}

/* What libraries map, of which they use little, is not there as a whole. */
static void has_no_huge_pages_unasked(void **state)
{
    (void)state;
    char before[64];
    if (plim__kernel_read("", SETTING, before, sizeof before) <= 0 || !set("always")) {
        print_message("SKIPPED: huge pages for everybody cannot be switched on here\n");
        skip();
    }
    const bool given = huge_when_touched(8 * HUGE_PAGE) > 0;
    (void)plim__libraries_bytes();
    const int64_t after = huge_when_touched(8 * HUGE_PAGE);
    if (strstr(before, "[always]") == NULL)
        (void)set(strstr(before, "[madvise]") != NULL ? "madvise" : "never");
    if (!given || TEST_SANITIZED) {
        print_message("SKIPPED: %s\n", given ? "a sanitizer's process is not ours alone"
                                             : "this kernel has no huge page at hand");
        skip();
    }
    assert_int_equal(after, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_no_huge_pages_unasked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
