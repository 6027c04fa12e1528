/* What is left of memory follows what is used, in a real group and in files made up. */
#include "support/cgroup.h"
#include "support/harness.h"
#include "support/kernel_files.h"

#include "mem/headroom.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((int64_t)1 << 20)

/* The limit stands above the group of the process; half of the clean page cache counts as free. */
static void adds_up_a_recorded_group(void **state)
{
    (void)state;
    char root[512];
    test_directory_make(root);
    test_kernel_put(root, "/proc/self/cgroup", "0::/job/step\n");
    test_kernel_put(root, "/proc/self/mountinfo",
                    "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    test_kernel_put(root, "/proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable:  8000000 kB\n");
    assert_true(plim__headroom(root) == (int64_t)8000000 * 1024);
    test_kernel_put(root, "/sys/fs/cgroup/job/memory.max", "1000000\n");
    test_kernel_put(root, "/sys/fs/cgroup/job/memory.high", "max\n");
    test_kernel_put(root, "/sys/fs/cgroup/job/memory.current", "700000\n");
    test_kernel_put(root, "/sys/fs/cgroup/job/memory.stat",
                    "anon 1\nfile 100000\nshmem 20000\nfile_dirty 30000\nfile_writeback 10000\n");
    test_kernel_put(root, "/sys/fs/cgroup/job/step/memory.max", "max\n");
    test_kernel_put(root, "/sys/fs/cgroup/job/step/memory.current", "700000\n");
    assert_int_equal(plim__headroom(root), 300000 + 20000);
    test_kernel_put(root, "/sys/fs/cgroup/job/memory.high", "600000\n");
    assert_int_equal(plim__headroom(root), 20000);
    test_directory_remove(root);
}

static int in_the_group(const test_cgroup_t *group, int64_t limit)
{
    if (!test_cgroup_enter(group))
        return 2;
    int64_t before = plim__headroom("");
    char *piece =
        mmap(NULL, (size_t)(64 * MIB), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (piece == MAP_FAILED)
        return 3;
    memset(piece, 1, (size_t)(64 * MIB));
    int64_t taken = before - plim__headroom("");
    return before > limit || before < limit - 32 * MIB || taken < 60 * MIB || taken > 68 * MIB;
}

static void follows_a_real_group(void **state)
{
    (void)state;
    test_skip_sanitized("a sanitizer adds memory of its own to what is touched");
    test_cgroup_run(192 * MIB, in_the_group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adds_up_a_recorded_group),
        cmocka_unit_test(follows_a_real_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
