#include "support/cgroup.h"

#include "support/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static bool write_text(const char *directory, const char *file, const char *text)
{
    char path[700];
    (void)snprintf(path, sizeof path, "%s/%s", directory, file);
    int descriptor = open(path, O_WRONLY | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    bool written = write(descriptor, text, strlen(text)) == (ssize_t)strlen(text);
    return close(descriptor) == 0 && written;
}

static bool read_text(const char *directory, const char *file, char *text_out, size_t size)
{
    char path[700];
    (void)snprintf(path, sizeof path, "%s/%s", directory, file);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    ssize_t got = read(descriptor, text_out, size - 1);
    (void)close(descriptor);
    text_out[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/* "N", or for a key the N of its line "key N". */
static int64_t read_number(const test_cgroup_t *group, const char *file, const char *key)
{
    char text[4096];
    if (!read_text(group->path, file, text, sizeof text))
        return -1;
    const char *start = key != NULL ? strstr(text, key) : text;
    return start != NULL ? strtoll(start + (key != NULL ? strlen(key) : 0), NULL, 10) : -1;
}

bool test_cgroup_make(int64_t limit_bytes, test_cgroup_t *group_out)
{
    static int count;
    const char *top = "/sys/fs/cgroup/memory";
    test_cgroup_t group = {.version = 1};
    char text[32];
    if (access("/sys/fs/cgroup/memory/memory.limit_in_bytes", F_OK) != 0) {
        top = "/sys/fs/cgroup";
        group.version = 2;
        /* From the root, if we may: its own processes do not stand in the way there. */
        (void)write_text(top, "cgroup.subtree_control", "+memory");
    }
    (void)snprintf(group.path, sizeof group.path, "%s/plimsoll-test-%d-%d", top, (int)getpid(),
                   count++);
    (void)snprintf(group.leaf, sizeof group.leaf, "%s/leaf", group.path);
    (void)snprintf(text, sizeof text, "%lld", (long long)limit_bytes);
    const char *file = group.version == 1 ? "memory.limit_in_bytes" : "memory.max";
    if (mkdir(group.path, 0755) != 0) {
        print_message("SKIPPED: no cgroup can be made in %s: %s (root is needed)\n", top,
                      strerror(errno));
        return false;
    }
    if ((limit_bytes != INT64_MAX && !write_text(group.path, file, text)) ||
        mkdir(group.leaf, 0755) != 0) {
        print_message("SKIPPED: the cgroup %s takes no memory limit (no memory controller)\n",
                      group.path);
        test_cgroup_remove(&group);
        return false;
    }
    *group_out = group;
    return true;
}

bool test_cgroup_enter(const test_cgroup_t *group)
{
    return write_text(group->leaf, "cgroup.procs", "0");
}

int64_t test_cgroup_peak(const test_cgroup_t *group)
{
    return read_number(group, group->version == 1 ? "memory.max_usage_in_bytes" : "memory.peak",
                       NULL);
}

int64_t test_cgroup_hits(const test_cgroup_t *group)
{
    return group->version == 1 ? read_number(group, "memory.failcnt", NULL)
                               : read_number(group, "memory.events", "\nmax ");
}

int64_t test_cgroup_kills(const test_cgroup_t *group)
{
    return read_number(group, group->version == 1 ? "memory.oom_control" : "memory.events",
                       "oom_kill ");
}

void test_cgroup_remove(const test_cgroup_t *group)
{
    const struct timespec pause = {0, 10000000};
    (void)rmdir(group->leaf);
    /* A process that has just ended may still be counted in. */
    for (int i = 0; i < 6000 && rmdir(group->path) != 0 && errno == EBUSY; i++) {
        (void)nanosleep(&pause, NULL);
        (void)rmdir(group->leaf);
    }
}

void test_cgroup_run(int64_t limit_bytes,
                     int (*work)(const test_cgroup_t *group, int64_t limit_bytes))
{
    test_cgroup_t group;
    int status;
    if (!test_cgroup_make(limit_bytes, &group))
        skip();
    pid_t child = fork();
    if (child == 0)
        _exit(work(&group, limit_bytes));
    assert_int_equal(waitpid(child, &status, 0), child);
    test_cgroup_remove(&group);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}
