/* Many operations at once through either engine, and what happens where the kernel refuses one. */
/* labels: asan tsan unprivileged */
#include "support/harness.h"

#include "io/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* glibc puts it on the stack of every thread, as it does with what a large host has of it. */
static _Thread_local volatile char static_tls[64 << 10];

static const plim_io_engine_t engines[] = {PLIM_IO_AUTO, PLIM_IO_THREADS};

enum { BLOCK = 8192, BLOCKS = 300 };

typedef struct world {
    char directory[512];
    plim__file_t file;
    char *data; /* (BLOCKS, BLOCK), page aligned */
    plim__op_t ops[BLOCKS];
} world_t;

static void world_make(world_t *world, bool direct)
{
    static_tls[0] = 1;
    test_directory_make(world->directory);
    assert_ok(plim__file_open(world->directory, PLIM__FILE_TEMPORARY, direct, &world->file));
    world->data = aligned_alloc(4096, (size_t)BLOCK * BLOCKS);
    assert_non_null(world->data);
}

static void world_end(world_t *world)
{
    plim__file_close(&world->file);
    free(world->data);
    test_directory_remove(world->directory);
}

static plim__op_t *block_op(world_t *world, int i, bool write)
{
    world->ops[i] = (plim__op_t){.file = &world->file,
                                 .offset = (int64_t)i * BLOCK,
                                 .data = world->data + (size_t)i * BLOCK,
                                 .size = BLOCK,
                                 .write = write};
    return &world->ops[i];
}

/* Writes all blocks and reads them back, waiting in orders that differ from the submissions'. */
static plim_status_t transfer_all(plim__engine_t *engine, world_t *world)
{
    plim_status_t status = PLIM_OK;
    for (int i = 0; i < BLOCKS; i++) {
        memset(world->data + (size_t)i * BLOCK, i % 251, BLOCK);
        plim__engine_submit(engine, block_op(world, i, true));
    }
    for (int i = BLOCKS - 1; i >= 0 && status == PLIM_OK; i--)
        status = plim__engine_wait(engine, &world->ops[i]);
    memset(world->data, 0xff, (size_t)BLOCK * BLOCKS);
    for (int i = 0; i < BLOCKS && status == PLIM_OK; i++)
        plim__engine_submit(engine, block_op(world, i * 7 % BLOCKS, false));
    for (int i = 0; i < BLOCKS && status == PLIM_OK; i++)
        status = plim__engine_wait(engine, &world->ops[i]);
    return status;
}

static bool all_blocks_right(const world_t *world)
{
    for (size_t i = 0; i < (size_t)BLOCK * BLOCKS; i++) {
        if ((unsigned char)world->data[i] != i / BLOCK % 251)
            return false;
    }
    return true;
}

/* Whether the memory of an engine made since then is what such an engine takes. */
static bool has_estimate(const plim_job_t *job, int64_t before, int depth, plim_io_engine_t kind)
{
    return plim__ledger_reserved(job->ledger) - before ==
           (int64_t)plim__engine_estimate(kind, depth);
}

static void transfers_at_every_depth(void **state)
{
    (void)state;
    static const int depths[] = {1, 2, 31, 64, 300, 1024};
    for (size_t e = 0; e < 2 * sizeof engines / sizeof engines[0]; e++) {
        plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, engines[e / 2]);
        int64_t before = plim__ledger_reserved(job.ledger);
        world_t *world = malloc(sizeof *world);
        assert_non_null(world);
        world_make(world, e % 2 == 0);
        for (size_t d = 0; d < sizeof depths / sizeof depths[0]; d++) {
            plim__engine_t *engine;
            assert_ok(plim__engine_create(&job, depths[d], &engine));
            assert_true(has_estimate(&job, before, depths[d], engines[e / 2]) ||
                        (engines[e / 2] == PLIM_IO_AUTO &&
                         (has_estimate(&job, before, depths[d], PLIM_IO_URING) ||
                          has_estimate(&job, before, depths[d], PLIM_IO_THREADS))));
            assert_true(plim__ledger_reserved(job.ledger) - before <=
                        (int64_t)plim__engine_estimate(engines[e / 2], depths[d]));
            assert_ok(transfer_all(engine, world));
            assert_true(all_blocks_right(world));
            plim__engine_destroy(engine);
            assert_int_equal(plim__ledger_reserved(job.ledger), before);
        }
        world_end(world);
        free(world);
        test_job_end(&job);
    }
}

static void destroying_waits(void **state)
{
    (void)state;
    for (size_t e = 0; e < sizeof engines / sizeof engines[0]; e++) {
        plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, engines[e]);
        plim__engine_t *engine;
        world_t *world = malloc(sizeof *world);
        assert_non_null(world);
        world_make(world, true);
        assert_ok(plim__engine_create(&job, 64, &engine));
        for (int i = 0; i < BLOCKS; i++) {
            memset(world->data + (size_t)i * BLOCK, i % 251, BLOCK);
            plim__engine_submit(engine, block_op(world, i, true));
        }
        plim__engine_destroy(engine);
        memset(world->data, 0, (size_t)BLOCK * BLOCKS);
        assert_ok(plim__file_read_at(&world->file, 0, world->data, (size_t)BLOCK * BLOCKS));
        assert_true(all_blocks_right(world));
        world_end(world);
        free(world);
        test_job_end(&job);
    }
    plim__engine_destroy(NULL);
}

static void names_file_and_offset(void **state)
{
    (void)state;
    for (size_t e = 0; e < sizeof engines / sizeof engines[0]; e++) {
        plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, engines[e]);
        plim__engine_t *engine;
        world_t *world = malloc(sizeof *world);
        assert_non_null(world);
        world_make(world, true);
        assert_ok(plim__engine_create(&job, 4, &engine));
        plim__engine_submit(engine, block_op(world, 0, true));
        assert_ok(plim__engine_wait(engine, &world->ops[0]));
        plim__engine_submit(engine, block_op(world, 0, false));
        plim__engine_submit(engine, block_op(world, 5, false));
        assert_int_equal(plim__engine_wait(engine, &world->ops[5]), PLIM_ERR_DATA);
        assert_non_null(strstr(plim_last_error(), "offset 40960"));
        assert_non_null(strstr(plim_last_error(), world->directory));
        assert_ok(plim__engine_wait(engine, &world->ops[0]));
        plim__file_t closed = world->file;
        closed.fd = -1;
        block_op(world, 7, true)->file = &closed;
        plim__engine_submit(engine, &world->ops[7]);
        assert_int_equal(plim__engine_wait(engine, &world->ops[7]), PLIM_ERR_IO);
        assert_non_null(strstr(plim_last_error(), "cannot write 8192 bytes at offset 57344"));
        block_op(world, 1, true)->offset = -1;
        plim__engine_submit(engine, &world->ops[1]);
        assert_int_equal(plim__engine_wait(engine, &world->ops[1]), PLIM_ERR_IO);
        plim__engine_destroy(engine);
        world_end(world);
        free(world);
        test_job_end(&job);
    }
}

static plim_status_t make_one(plim_job_t *job, void *context)
{
    plim__engine_t *engine;
    (void)context;
    plim_status_t status = plim__engine_create(job, 16, &engine);
    if (status == PLIM_OK)
        plim__engine_destroy(engine);
    return status;
}

static void survives_refused_memory(void **state)
{
    (void)state;
    for (size_t e = 0; e < sizeof engines / sizeof engines[0]; e++) {
        plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, engines[e]);
        test_fail_each_arena(&job, make_one, NULL);
        test_job_end(&job);
    }
}

/* From now on this process gets `error` from the system call. False when seccomp is not there. */
static bool refuse_call(int number, int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int lines_logged;

static void count_line(void *user, plim_log_level_t level, const char *message)
{
    (void)user;
    (void)level;
    lines_logged += strstr(message, "io_uring") != NULL;
}

#define EXIT_SKIP 77

/* Runs the scene in a process of its own, which returns 0 when all went as it should. */
static void run_apart(int (*scene)(int), int argument, const char *needs)
{
    int how;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(scene(argument));
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    if (WEXITSTATUS(how) == EXIT_SKIP) {
        print_message("SKIPPED: this machine has no %s\n", needs);
        skip();
    }
    assert_int_equal(WEXITSTATUS(how), 0);
}

static int transfer_with(plim__engine_t *engine)
{
    world_t *world = malloc(sizeof *world);
    if (world == NULL)
        return 20;
    world_make(world, true);
    bool right = transfer_all(engine, world) == PLIM_OK && all_blocks_right(world);
    world_end(world);
    free(world);
    return right ? 0 : 21;
}

static int without_ring(int error)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_URING);
    plim__engine_t *engine = NULL;
    if (!refuse_call(SYS_io_uring_setup, error))
        return EXIT_SKIP;
    if (plim__engine_create(&job, 8, &engine) != PLIM_ERR_UNSUPPORTED || engine != NULL)
        return 1;
    if (strstr(plim_last_error(), "io_uring") == NULL)
        return 2;
    job.io_engine = PLIM_IO_AUTO;
    job.log = count_line;
    for (int i = 0; i < 3; i++) {
        if (plim__engine_create(&job, 8, &engine) != PLIM_OK)
            return 3;
        int wrong = transfer_with(engine);
        plim__engine_destroy(engine);
        if (wrong != 0)
            return wrong;
    }
    plim__job_deliver(&job);
    test_job_end(&job);
    return lines_logged == 1 ? 0 : 4;
}

static void falls_back_without_io_uring(void **state)
{
    (void)state;
    run_apart(without_ring, EPERM, "seccomp");
    run_apart(without_ring, ENOSYS, "seccomp");
    run_apart(without_ring, ENOMEM, "seccomp");
}

/* A sandbox that closes after the ring was made: the work is done all the same. */
static int entering_refused(int error)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_URING);
    plim__engine_t *engine;
    if (plim__engine_create(&job, 8, &engine) != PLIM_OK || !refuse_call(SYS_io_uring_enter, error))
        return EXIT_SKIP;
    int wrong = transfer_with(engine);
    plim__engine_destroy(engine);
    return wrong;
}

static void works_when_the_ring_is_closed_later(void **state)
{
    (void)state;
    run_apart(entering_refused, EPERM, "io_uring or seccomp");
    run_apart(entering_refused, EAGAIN, "io_uring or seccomp");
}

static int with_little_memlock(int kind)
{
    struct rlimit limit = {65536, 65536};
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, (plim_io_engine_t)kind);
    plim__engine_t *engine;
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return EXIT_SKIP;
    for (int depth = 2; depth <= 1024; depth *= 8) {
        plim_status_t status = plim__engine_create(&job, depth, &engine);
        if (status == PLIM_ERR_UNSUPPORTED && kind == PLIM_IO_URING)
            return 0;
        if (status != PLIM_OK)
            return 1;
        int wrong = transfer_with(engine);
        plim__engine_destroy(engine);
        if (wrong != 0)
            return wrong;
    }
    return 0;
}

static void works_with_little_memlock(void **state)
{
    (void)state;
    run_apart(with_little_memlock, PLIM_IO_AUTO, "setrlimit");
    run_apart(with_little_memlock, PLIM_IO_URING, "setrlimit");
}

static int without_threads(int error)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_THREADS);
    plim__engine_t *engine = NULL;
    int64_t before = plim__ledger_reserved(job.ledger);
    if (!refuse_call(SYS_clone3, error) || !refuse_call(SYS_clone, error))
        return EXIT_SKIP;
    if (plim__engine_create(&job, 8, &engine) != PLIM_ERR_IO || engine != NULL)
        return 1;
    return strstr(plim_last_error(), "ulimit -u") != NULL &&
                   plim__ledger_reserved(job.ledger) == before
               ? 0
               : 2;
}

static void says_when_threads_are_refused(void **state)
{
    (void)state;
    run_apart(without_threads, EAGAIN, "seccomp");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transfers_at_every_depth),
        cmocka_unit_test(destroying_waits),
        cmocka_unit_test(names_file_and_offset),
        cmocka_unit_test(survives_refused_memory),
        cmocka_unit_test(falls_back_without_io_uring),
        cmocka_unit_test(works_when_the_ring_is_closed_later),
        cmocka_unit_test(works_with_little_memlock),
        cmocka_unit_test(says_when_threads_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
