/* Limit discovery on recorded machines, and on this one: its rlimits, affinity, variables, groups.
 */
/* labels: asan unprivileged */
#include "support/cgroup.h"
#include "support/harness.h"

#include <plimsoll/limit.h>

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MACHINES PLIM_TEST_SOURCE_DIR "/tests/mem/machines"

/* The variables of a recorded process: "NAME=value" lines; none without such a file. */
static void read_environment(const char *root, char *text, size_t size, char **entries, int most)
{
    char path[1024];
    int count = 0;
    (void)snprintf(path, sizeof path, "%s/environment", root);
    FILE *file = fopen(path, "re");
    size_t length = file != NULL ? fread(text, 1, size - 1, file) : 0;
    if (file != NULL)
        (void)fclose(file);
    text[length] = '\0';
    for (char *line = strtok(text, "\n"); line != NULL && count < most - 1;
         line = strtok(NULL, "\n"))
        entries[count++] = line;
    entries[count] = NULL;
}

static void check_limit(const char *machine, const char *expected, const plim_limit_t *limit)
{
    char found[320];
    (void)snprintf(found, sizeof found, "%lld %s", (long long)limit->value, limit->source);
    if (strcmp(found, expected) != 0)
        print_error("%s: found '%s', expected '%s'\n", machine, found, expected);
    assert_string_equal(found, expected);
}

/* Compares what was found with the machine's expect file; the list of threads only where given. */
static void check_machine(const char *machine, const char *root, const plim_limits_t *limits)
{
    char path[1024];
    char line[512];
    int memory = 0, threads = 0, others = 0;
    (void)snprintf(path, sizeof path, "%s/expect", root);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *value = strchr(line, ' ');
        assert_non_null(value);
        *value++ = '\0';
        if (strcmp(line, "memory") == 0 && memory < limits->num_memory) {
            check_limit(machine, value, &limits->memory[memory++]);
        } else if (strcmp(line, "thread") == 0 && threads < limits->num_threads) {
            check_limit(machine, value, &limits->threads[threads++]);
        } else if (strcmp(line, "line") == 0) {
            check_limit(machine, value, &limits->memory[limits->line]);
            others++;
        } else if (strcmp(line, "threads") == 0) {
            check_limit(machine, value, &limits->threads[limits->threads_line]);
            others++;
        } else if (strcmp(line, "login") == 0) {
            assert_string_equal(limits->login_node ? limits->login_why : "no", value);
            others++;
        } else {
            fail_msg("%s: expected %s %s as well", machine, line, value);
        }
    }
    (void)fclose(file);
    if (memory != limits->num_memory)
        fail_msg("%s: %s is not expected", machine, limits->memory[memory].source);
    assert_true(threads == 0 || threads == limits->num_threads);
    assert_int_equal(others, 3);
}

static void finds_what_recorded_machines_have(void **state)
{
    (void)state;
    static plim_limits_t limits = PLIM_LIMITS_INIT;
    static char text[16384];
    char *environment[128];
    int machines = 0;
    DIR *directory = opendir(MACHINES);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] == '.' || strchr(entry->d_name, '.') != NULL)
            continue;
        char root[768];
        (void)snprintf(root, sizeof root, "%s/%s", MACHINES, entry->d_name);
        read_environment(root, text, sizeof text, environment, 128);
        plim_limit_options_t options = {
            .size = sizeof options, .root = root, .environment = environment};
        assert_ok(plim_limits_discover(&options, &limits));
        check_machine(entry->d_name, root, &limits);
        machines++;
    }
    (void)closedir(directory);
    assert_true(machines >= 14);
}

static void wanted_counts_as_limit(void **state)
{
    (void)state;
    static plim_limits_t limits = PLIM_LIMITS_INIT;
    char *environment[] = {NULL};
    plim_limit_options_t options = {.size = sizeof options,
                                    .memory = (int64_t)1 << 30,
                                    .threads = 1,
                                    .root = MACHINES "/v2-docker",
                                    .environment = environment};
    assert_ok(plim_limits_discover(&options, &limits));
    check_limit("v2-docker", "1073741824 `memory`", &limits.memory[limits.line]);
    check_limit("v2-docker", "1 `threads`", &limits.threads[limits.threads_line]);
    /* A wish past what there is does not move the line. */
    options.memory = (int64_t)5 << 30;
    options.threads = 64;
    assert_ok(plim_limits_discover(&options, &limits));
    check_limit("v2-docker", "4294967296 cgroup v2 / memory.max", &limits.memory[limits.line]);
    check_limit("v2-docker", "2 cgroup v2 / cpu.max", &limits.threads[limits.threads_line]);
    options.memory = -1;
    assert_int_equal(plim_limits_discover(&options, &limits), PLIM_ERR_USAGE);
    /* Ranks divide what they share: the node's limits, and CPUs unless --threads is given. */
    options.memory = 0;
    options.threads = 0;
    options.local_ranks = options.cpu_ranks = 2;
    assert_ok(plim_limits_discover(&options, &limits));
    assert_int_equal(limits.local_ranks, 2);
    check_limit("v2-docker", "2147483648 cgroup v2 / memory.max, a part of 2",
                &limits.memory[limits.line]);
    check_limit("v2-docker", "1 cgroup v2 / cpu.max, a part of 2",
                &limits.threads[limits.threads_line]);
}

static void finds_nothing_where_nothing_is(void **state)
{
    (void)state;
    static plim_limits_t limits = PLIM_LIMITS_INIT;
    char root[512];
    char *environment[] = {NULL};
    test_directory_make(root);
    plim_limit_options_t options = {
        .size = sizeof options, .root = root, .environment = environment};
    assert_ok(plim_limits_discover(&options, &limits));
    assert_int_equal(limits.num_memory, 1);
    assert_int_equal(limits.memory[0].value, PLIM_LINE_NONE);
    assert_int_equal(limits.num_threads, 1);
    assert_int_equal(limits.threads[0].value, 1);
    assert_false(limits.login_node);
    test_directory_remove(root);
}

/* Runs body() in a child, which returns 0 when all is as it should be. */
static void assert_in_child(int (*body)(void))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(body());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static plim_limits_t own =
    PLIM_LIMITS_INIT; /* large: not on the stack of a child that has little */

/* The value of the first own limit whose source begins so; -1 when there is none. */
static int64_t own_limit(const plim_limit_t *list, int count, const char *source)
{
    for (int i = 0; i < count; i++)
        if (strncmp(list[i].source, source, strlen(source)) == 0)
            return list[i].value;
    return -1;
}

static int64_t own_memory(const char *source)
{
    plim_limit_options_t options = PLIM_LIMIT_OPTIONS_INIT;
    return plim_limits_discover(&options, &own) == PLIM_OK
               ? own_limit(own.memory, own.num_memory, source)
               : -1;
}

static int child_with_rlimit(void)
{
    struct rlimit limit = {(rlim_t)3 << 30, RLIM_INFINITY};
    if (own_memory("RLIMIT_DATA") != -1 || setrlimit(RLIMIT_DATA, &limit) != 0)
        return 1;
    int64_t bytes = own_memory("RLIMIT_DATA");
    return bytes <= (int64_t)3 << 30 && bytes > (int64_t)2 << 30 ? 0 : 2;
}

static int child_with_affinity(void)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return 1;
    for (size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0 || own_memory("") < 0)
        return 2;
    return own_limit(own.threads, own.num_threads, "affinity") == 1 ? 0 : 3;
}

static int child_of_slurm(void)
{
    if (setenv("SLURM_JOB_ID", "7", 1) != 0 || setenv("SLURMD_NODENAME", "n1", 1) != 0 ||
        setenv("SLURM_MEM_PER_NODE", "3", 1) != 0 || setenv("SLURM_CPUS_PER_TASK", "3", 1) != 0)
        return 1;
    if (own_memory("SLURM_MEM_PER_NODE") != (int64_t)3 << 20 || own.login_node)
        return 2;
    return own_limit(own.threads, own.num_threads, "SLURM_CPUS_PER_TASK") == 3 ? 0 : 3;
}

static void finds_its_ulimit(void **state)
{
    (void)state;
    if (TEST_SANITIZED) {
        print_message("SKIPPED: a sanitizer maps terabytes, no ulimit leaves anything to find\n");
        skip();
    }
    assert_in_child(child_with_rlimit);
}

static void finds_what_this_process_has(void **state)
{
    (void)state;
    assert_in_child(child_with_affinity);
    assert_in_child(child_of_slurm);
}

#define REAL_LIMIT (((int64_t)96 << 20) + 4096)

/* Two levels below the top, the limit on the upper one: the child must look further up than home.
 */
static void finds_the_limit_of_a_real_group(void **state)
{
    (void)state;
    static plim_limits_t limits = PLIM_LIMITS_INIT;
    test_cgroup_t group;
    if (!test_cgroup_make(REAL_LIMIT, &group))
        skip();
    plim_limit_options_t options = PLIM_LIMIT_OPTIONS_INIT;
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool found = test_cgroup_enter(&group) &&
                     plim_limits_discover(&options, &limits) == PLIM_OK &&
                     write(pipes[1], &limits.memory[limits.line], sizeof(plim_limit_t)) ==
                         (ssize_t)sizeof(plim_limit_t);
        _exit(found ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    plim_limit_t line;
    assert_int_equal(read(pipes[0], &line, sizeof line), sizeof line);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
    test_cgroup_remove(&group);
    assert_int_equal(line.value, REAL_LIMIT);
    assert_non_null(strstr(line.source, "cgroup v"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_recorded_machines_have),
        cmocka_unit_test(wanted_counts_as_limit),
        cmocka_unit_test(finds_nothing_where_nothing_is),
        cmocka_unit_test(finds_its_ulimit),
        cmocka_unit_test(finds_what_this_process_has),
        cmocka_unit_test(finds_the_limit_of_a_real_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
