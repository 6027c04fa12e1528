/* The meter agrees with what the test itself has just used, and reads recorded v1 and v2 groups. */
/* labels: asan tsan unprivileged */
#include "support/cgroup.h"
#include "support/harness.h"

#include "mem/meter.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECE ((size_t)32 << 20)

static char *touch_piece(void)
{
    char *piece = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(piece != MAP_FAILED);
    memset(piece, 1, PIECE);
    return piece;
}

static void assert_near(int64_t value, int64_t expected, int64_t slack)
{
    if (value < expected - slack || value > expected + slack)
        print_error("%lld is not %lld +- %lld\n", (long long)value, (long long)expected,
                    (long long)slack);
    assert_true(value >= expected - slack && value <= expected + slack);
}

static bool sanitized(void)
{
    if (TEST_SANITIZED)
        print_message("SKIPPED: a sanitizer adds memory of its own to what is touched\n");
    return TEST_SANITIZED;
}

static void sees_memory_come_and_go(void **state)
{
    (void)state;
    if (sanitized())
        skip();
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim_meter_t *meter;
    plim_sample_t before = PLIM_SAMPLE_INIT, full = before, after = before;
    assert_ok(plim_meter_open(&job, &meter));
    assert_ok(plim_meter_read(meter, &before));
    char *piece = touch_piece();
    assert_ok(plim_meter_read(meter, &full));
    assert_int_equal(munmap(piece, PIECE), 0);
    assert_ok(plim_meter_read(meter, &after));
    /* The kernel counts pages in batches a thread and CPU: a few hundred KiB are its right. */
    const int64_t slack = (int64_t)2 << 20;
    assert_near(full.anonymous_bytes - before.anonymous_bytes, (int64_t)PIECE, slack);
    assert_near(full.rss_bytes - before.rss_bytes, (int64_t)PIECE, slack);
    assert_near(after.rss_bytes - before.rss_bytes, 0, slack);
    assert_true(after.rss_peak_bytes >= full.rss_bytes - slack);
    assert_near(full.rss_bytes, full.anonymous_bytes + full.file_bytes + full.shared_bytes, slack);
    plim_meter_close(meter);
    plim_meter_close(NULL);
    test_job_end(&job);
}

/* In a group of its own: what the meter must say, 0 when it does. */
static int child_in_group(const test_cgroup_t *group)
{
    plim_job_t job;
    plim_meter_t *meter;
    plim_sample_t sample = PLIM_SAMPLE_INIT;
    if (!test_cgroup_enter(group) ||
        test_job_try(PLIM_LINE_NONE, 1, PLIM_IO_AUTO, &job) != PLIM_OK ||
        plim_meter_open(&job, &meter) != PLIM_OK)
        return 1;
    char *piece = touch_piece();
    (void)munmap(piece, PIECE);
    (void)plim_meter_read(meter, &sample);
    if (sample.group_bytes < 0 || sample.group_bytes > (int64_t)PIECE / 2)
        return 2;
    if (sample.group_peak_bytes != -1 &&
        (sample.group_peak_bytes < (int64_t)PIECE || sample.group_peak_bytes > 2 * (int64_t)PIECE))
        return 3;
    return sample.group_kills == 0 && sample.group_limit_hits == 0 &&
                   sample.group_cache_bytes >= 0 && sample.group_dirty_bytes >= 0
               ? 0
               : 4;
}

static void sees_its_group(void **state)
{
    (void)state;
    test_cgroup_t group;
    if (sanitized() || !test_cgroup_make((int64_t)128 << 20, &group))
        skip();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(child_in_group(&group));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    test_cgroup_remove(&group);
    assert_int_equal(status, 0);
}

static void put(const char *root, const char *path, const char *text)
{
    char whole[1024];
    (void)snprintf(whole, sizeof whole, "%s/%s", root, path);
    for (char *slash = whole + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(whole, 0755);
        *slash = '/';
    }
    FILE *file = fopen(whole, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static plim_sample_t read_below(const char *root)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim_meter_t *meter;
    plim_sample_t sample = PLIM_SAMPLE_INIT;
    assert_ok(plim__meter_open_below(&job, root, &meter));
    assert_ok(plim_meter_read(meter, &sample));
    plim_meter_close(meter);
    test_job_end(&job);
    return sample;
}

static void reads_a_v2_group(void **state)
{
    (void)state;
    char root[512];
    test_directory_make(root);
    put(root, "proc/self/status", "Name:\tplimsoll\nVmHWM:\t    9216 kB\nVmRSS:\t    8192 kB\n");
    put(root, "proc/self/cgroup", "0::/job\n");
    put(root, "proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put(root, "sys/fs/cgroup/job/memory.current", "104857600\n");
    put(root, "sys/fs/cgroup/job/memory.peak", "209715200\n");
    put(root, "sys/fs/cgroup/job/memory.stat",
        "anon 8388608\nfile 4194304\nkernel 1048576\nfile_mapped 12\nfile_dirty 40960\n");
    put(root, "sys/fs/cgroup/job/memory.events",
        "low 0\nhigh 3\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n");
    put(root, "sys/fs/cgroup/job/memory.pressure",
        "some avg10=0.12 avg60=0.00 avg300=0.00 total=98765\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=54321\n");
    plim_sample_t sample = read_below(root);
    assert_int_equal(sample.rss_bytes, 8192 << 10);
    assert_int_equal(sample.rss_peak_bytes, 9216 << 10);
    assert_int_equal(sample.anonymous_bytes, -1);
    assert_int_equal(sample.group_bytes, 104857600);
    assert_int_equal(sample.group_peak_bytes, 209715200);
    assert_int_equal(sample.group_cache_bytes, 4194304);
    assert_int_equal(sample.group_dirty_bytes, 40960);
    assert_int_equal(sample.group_limit_hits, 12);
    assert_int_equal(sample.group_kills, 1);
    assert_int_equal(sample.group_stall_us, 98765);
    test_directory_remove(root);
}

static void does_not_take_the_machine_for_a_group(void **state)
{
    (void)state;
    char root[512];
    test_directory_make(root);
    put(root, "proc/self/cgroup", "4:memory:/\n0::/\n");
    put(root, "proc/self/mountinfo",
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put(root, "sys/fs/cgroup/memory/memory.usage_in_bytes", "104857600\n");
    put(root, "sys/fs/cgroup/memory/cgroup.sane_behavior", "0\n");
    plim_sample_t sample = read_below(root);
    assert_int_equal(sample.rss_bytes, -1);
    assert_int_equal(sample.group_bytes, -1);
    assert_int_equal(sample.group_peak_bytes, -1);
    assert_int_equal(sample.group_kills, -1);
    test_directory_remove(root);
}

static int open_files(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    assert_non_null(directory);
    while (readdir(directory) != NULL)
        count++;
    (void)closedir(directory);
    return count;
}

static plim_status_t open_and_close(plim_job_t *job, void *context)
{
    plim_meter_t *meter;
    (void)context;
    plim_status_t status = plim_meter_open(job, &meter);
    if (status == PLIM_OK)
        plim_meter_close(meter);
    return status;
}

static void leaves_nothing_behind(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    int before = open_files();
    test_fail_each_arena(&job, open_and_close, NULL);
    assert_int_equal(open_files(), before);
    test_job_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sees_memory_come_and_go),
        cmocka_unit_test(sees_its_group),
        cmocka_unit_test(reads_a_v2_group),
        cmocka_unit_test(does_not_take_the_machine_for_a_group),
        cmocka_unit_test(leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
