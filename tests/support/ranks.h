/*
 * Ranks of a test: a transport over Unix sockets, one pair of them for each pair of ranks, that
 * counts, and that is late, falls silent, dies or sends damaged bytes on request. Ranks are threads
 * or processes.
 */
#ifndef PLIM_TESTS_RANKS_H
#define PLIM_TESTS_RANKS_H

#include <plimsoll/job.h>
#include <stdatomic.h>

#define TEST_RANKS_MAX 8

/* What one rank does wrong, at its operation number `at` (from 0 on). */
typedef struct test_fault {
    enum { TEST_NO_FAULT, TEST_LATE, TEST_SILENT, TEST_DIES, TEST_DAMAGES, TEST_TRUNCATES } kind;
    int rank;
    int64_t at;
    size_t byte;   /* TEST_DAMAGES: of each message, its bits inverted; TEST_TRUNCATES: its size */
    int micros;    /* TEST_LATE: at each operation from `at` on, up to this long */
    int exit_code; /* TEST_DIES */
} test_fault_t;

/* What a rank runs. The job has the transport. */
typedef void (*test_rank_fn)(const plim_job_t *job, int rank, int num_ranks, void *context);

/* Counts of all ranks of the last call. */
extern atomic_llong test_ranks_operations, test_ranks_bytes;

/* Runs body on num_ranks threads at once, with waits of at most timeout_seconds. A failed assertion
 * of a body ends the program. */
void test_ranks_threads(int num_ranks, double timeout_seconds, const test_fault_t *fault,
                        test_rank_fn body, void *context);

/* The same in processes; exit codes go to codes_out (num_ranks). */
void test_ranks_processes(int num_ranks, double timeout_seconds, const test_fault_t *fault,
                          test_rank_fn body, void *context, int *codes_out);

/* Fails the whole program: cmocka's assertions belong to its own thread. */
#define rank_assert(condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            test_rank_fail(#condition, __FILE__, __LINE__);                                        \
    } while (0)
#define rank_ok(call) rank_assert((call) == PLIM_OK)
void test_rank_fail(const char *condition, const char *file, int line);

#endif
