/*
 * The ledger's promise, by the kernel's own count: a process in a control group whose limit is the
 * line may reserve and touch all that the ledger calls available, and never meets the limit.
 */
/* labels: asan tsan */
#include "support/cgroup.h"
#include "support/harness.h"

#include "base/threads.h"
#include "mem/arena.h"
#include "mem/headroom.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECES 8
#define MANY_THREADS 8

static plim_status_t use_stack(void *context, int worker)
{
    char stack[128 << 10];
    (void)context;
    memset(stack, worker, sizeof stack);
    return stack[worker] == worker ? PLIM_OK : PLIM_ERR_DATA;
}

/* All that is available, in several arenas, every page of it written; and threads come and go. */
static int fill(int64_t line, int threads)
{
    plim_ledger_t *ledger;
    plim__arena_t arenas[PIECES];
    int account;
    if (plim__ledger_create(line, 1, false, &ledger) != PLIM_OK)
        return 10;
    size_t stacks = (size_t)threads * PLIM__STACK_BYTES;
    if (plim__ledger_reserve(ledger, "stacks", stacks, &account) != PLIM_OK)
        return 11;
    for (int i = 0; i < PIECES; i++) {
        size_t size = (size_t)plim__ledger_available(ledger) / (size_t)(PIECES - i) & ~(size_t)4095;
        if (plim__arena_create(ledger, "filling", size, &arenas[i]) != PLIM_OK)
            return 12;
        memset(arenas[i].base, 1, size);
    }
    if (plim__parallel(threads, use_stack, NULL) != PLIM_OK)
        return 13;
    if (plim__ledger_available(ledger) >= 4096)
        return 14;
    for (int i = 0; i < PIECES; i++)
        plim__arena_destroy(&arenas[i]);
    plim__ledger_release(ledger, account, stacks);
    plim__ledger_destroy(ledger);
    return 0;
}

/* A new program, as a user's would be: not a copy of this one, whose pages are charged elsewhere.
 */
static int run_filler(const test_cgroup_t *group, int64_t line, int threads)
{
    char line_text[32], threads_text[16];
    (void)snprintf(line_text, sizeof line_text, "%lld", (long long)line);
    (void)snprintf(threads_text, sizeof threads_text, "%d", threads);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && test_cgroup_enter(group))
            (void)execl("/proc/self/exe", "fill", line_text, threads_text, (char *)NULL);
        _exit(20);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* A group to measure in; false, and reported, where that is not possible. */
static bool make_group(int64_t limit, test_cgroup_t *group_out)
{
    if (TEST_SANITIZED) {
        print_message("SKIPPED: the memory of a sanitizer is not the ledger's to count\n");
        return false;
    }
    return test_cgroup_make(limit, group_out);
}

static void all_that_is_available_can_be_used(void **state)
{
    (void)state;
    const int64_t lines[] = {64, 128, 300, 1024};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        int64_t line = lines[i] << 20;
        test_cgroup_t group;
        if (!make_group(line, &group))
            skip();
        int status = run_filler(&group, line, i % 2 == 0 ? MANY_THREADS : 1);
        int64_t peak = test_cgroup_peak(&group);
        int64_t hits = test_cgroup_hits(&group);
        int64_t kills = test_cgroup_kills(&group);
        test_cgroup_remove(&group);
        print_message("line %lld MiB: peak %.2f MiB, %.2f %% of it left\n", (long long)lines[i],
                      (double)peak / 0x1p20, 100.0 * (double)(line - peak) / (double)line);
        assert_int_equal(status, 0);
        assert_int_equal(kills, 0);
        assert_int_equal(hits, 0);
        assert_true(peak <= line);
    }
}

/* A neighbour in the same group holds 40 MiB; there must be that much less for us, and it must
 * suffice. */
static void neighbours_count(void **state)
{
    (void)state;
    const int64_t line = (int64_t)512 << 20;
    const size_t held = (size_t)40 << 20;
    test_cgroup_t group;
    int ready[2];
    char byte = 0;
    if (!make_group(line, &group))
        skip();
    assert_int_equal(pipe(ready), 0);
    pid_t neighbour = fork();
    assert_true(neighbour >= 0);
    if (neighbour == 0) {
        char *memory = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && test_cgroup_enter(&group)
                           ? malloc(held)
                           : NULL;
        if (memory == NULL)
            _exit(1);
        memset(memory, 1, held);
        if (write(ready[1], memory, 1) == 1)
            (void)pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    int status = run_filler(&group, line, 1);
    int64_t peak = test_cgroup_peak(&group);
    int64_t hits = test_cgroup_hits(&group);
    assert_int_equal(kill(neighbour, SIGKILL), 0);
    assert_int_equal(waitpid(neighbour, NULL, 0), neighbour);
    test_cgroup_remove(&group);
    (void)close(ready[0]);
    (void)close(ready[1]);
    assert_int_equal(status, 0);
    assert_int_equal(hits, 0);
    assert_true(peak > line * 85 / 100 && peak <= line);
}

static void a_recorded_neighbour_counts(void **state)
{
    (void)state;
    const char *machine = PLIM_TEST_SOURCE_DIR "/tests/mem/machines/v2-neighbour";
    const int64_t gib = (int64_t)1 << 30;
    /* 16 GiB for the job, of which others hold 5 GiB: with a line of 8 GiB there is room enough. */
    assert_int_equal(plim__footprint_neighbours(machine, 16 * gib), 5 * gib);
    assert_int_equal(plim__footprint_neighbours(machine, 12 * gib), 1 * gib);
    assert_int_equal(plim__footprint_neighbours(machine, 8 * gib), 0);
    /* A job that is planned for a larger machine does not meet them there. */
    assert_int_equal(plim__footprint_neighbours(machine, 24 * gib), 0);
    assert_int_equal(plim__footprint_neighbours(machine, PLIM_LINE_NONE), 0);
}

static void an_account_says_what_was_touched(void **state)
{
    (void)state;
    plim_job_t job = test_job_make((int64_t)1 << 30, 1, PLIM_IO_AUTO);
    plim_account_info_t infos[64];
    plim__arena_t first, second;
    assert_ok(plim__arena_create(job.ledger, "touched", 20 * PLIM__PAGE, &first));
    assert_ok(plim__arena_create(job.ledger, "touched", 10 * PLIM__PAGE, &second));
    const int account = first.account;
    memset(first.base, 1, 3 * PLIM__PAGE);
    second.base[9 * PLIM__PAGE] = 1;
    plim__arena_destroy(&first);
    memset(second.base, 1, 7 * PLIM__PAGE); /* more than both had when the first of them ended */
    plim__arena_destroy(&second);
    assert_ok(plim__arena_create(job.ledger, "touched", 20 * PLIM__PAGE, &first));
    memset(first.base, 1, 2 * PLIM__PAGE);
    plim__arena_destroy(&first);
    assert_true(plim__ledger_accounts(job.ledger, 64, infos) > account);
    assert_int_equal(infos[account].peak, 30 * PLIM__PAGE);
    assert_int_equal(infos[account].touched, 8 * PLIM__PAGE);
    test_job_end(&job);
}

/* A ledger can be had under any line; nothing can be reserved where the process is past it. */
static void a_line_below_the_process_refuses_everything(void **state)
{
    (void)state;
    for (int64_t line = -1; line < 8192; line += 4097) {
        plim_ledger_t *ledger;
        int account;
        assert_ok(plim__ledger_create(line, 1, false, &ledger));
        assert_true(plim__ledger_available(ledger) < 0);
        assert_int_equal(plim__ledger_reserve(ledger, "one", 1, &account), PLIM_ERR_BUDGET);
        assert_non_null(strstr(plim_last_error(), "`memory`"));
        plim__ledger_destroy(ledger);
    }
    plim__ledger_destroy(NULL);
}

static void accounts_add_up(void **state)
{
    (void)state;
    plim_job_t job = test_job_make((int64_t)1 << 30, 1, PLIM_IO_AUTO);
    plim_account_info_t infos[64];
    int account, other, again;
    int64_t before = plim__ledger_reserved(job.ledger);
    assert_ok(plim__ledger_reserve(job.ledger, "first", 1000, &account));
    assert_ok(plim__ledger_reserve(job.ledger, "second", 2000, &other));
    assert_ok(plim__ledger_reserve(job.ledger, "first", 500, &again));
    assert_int_equal(account, again);
    assert_int_not_equal(account, other);
    plim__ledger_release(job.ledger, other, 2000);
    int count = plim__ledger_accounts(job.ledger, 64, infos);
    int64_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += infos[i].reserved;
    assert_int_equal(sum, plim__ledger_reserved(job.ledger));
    assert_int_equal(sum, before + 1500);
    assert_int_equal(plim__ledger_peak(job.ledger), before + 3500);
    assert_int_equal(plim__ledger_available(job.ledger), plim__ledger_line(job.ledger) - sum);
    assert_string_equal(infos[0].name, "process");
    assert_string_equal(infos[other].name, "second");
    assert_int_equal(infos[other].peak, 2000);
    assert_int_equal(plim__ledger_accounts(job.ledger, 0, infos), count);
    test_job_end(&job);
}

/* More names than the table holds: all of them still count. */
static void names_without_end(void **state)
{
    (void)state;
    plim_job_t job = test_job_make((int64_t)1 << 30, 1, PLIM_IO_AUTO);
    int64_t before = plim__ledger_reserved(job.ledger);
    int accounts[200];
    for (int i = 0; i < 200; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "account %d", i);
        assert_ok(plim__ledger_reserve(job.ledger, name, 4096, &accounts[i]));
    }
    assert_int_equal(plim__ledger_reserved(job.ledger), before + (int64_t)200 * 4096);
    for (int i = 0; i < 200; i++)
        plim__ledger_release(job.ledger, accounts[i], 4096);
    assert_int_equal(plim__ledger_reserved(job.ledger), before);
    test_job_end(&job);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[0], "fill") == 0)
        return fill(strtoll(argv[1], NULL, 10), atoi(argv[2]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_is_available_can_be_used),
        cmocka_unit_test(neighbours_count),
        cmocka_unit_test(a_recorded_neighbour_counts),
        cmocka_unit_test(an_account_says_what_was_touched),
        cmocka_unit_test(a_line_below_the_process_refuses_everything),
        cmocka_unit_test(accounts_add_up),
        cmocka_unit_test(names_without_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
