/*
 * A loader over a kernel on its bad days: transfers that end early, are interrupted or fail. The
 * batches are the same, or the error names the file and the place; then the loader can be started
 * again. This program defines the calls by which the library reads, so the linker prefers them to
 * libc's and liburing's; each passes through unless a fault is switched on.
 */
#include "load/loader.h"
#include "plan/load_plan.h"
#include "support/dataset.h"
#include "support/harness.h"
#include "support/loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <liburing.h>
#include <plimsoll/plan.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINE ((int64_t)1 << 30)
#define DEPTH 4

static atomic_bool fault_short;    /* transfers end early, on multiples of 4,096 bytes */
static atomic_int fault_often;     /* this errno in two of three transfers */
static atomic_int fault_once;      /* this errno … */
static atomic_int fault_countdown; /* … in the transfer that makes it 0 */
static atomic_int injected;

static void faults_off(void)
{
    fault_short = false;
    fault_often = fault_once = fault_countdown = injected = 0;
}

/* The errno to fail with now, or 0. */
static int fault_now(void)
{
    static atomic_uint turn;
    int error = 0;
    if (fault_often != 0 && atomic_fetch_add(&turn, 1) % 3 != 0)
        error = fault_often;
    if (fault_once != 0 && atomic_fetch_sub(&fault_countdown, 1) == 1)
        error = fault_once;
    if (error != 0)
        atomic_fetch_add(&injected, 1);
    return error;
}

static size_t shortened(size_t size)
{
    if (!fault_short || size <= 4096)
        return size;
    atomic_fetch_add(&injected, 1);
    return (size / 2 + 4095) / 4096 * 4096;
}

ssize_t pread(int fd, void *to, size_t size, off_t offset)
{
    int error = fault_now();
    if (error != 0) {
        errno = error;
        return -1;
    }
    return syscall(SYS_pread64, fd, to, shortened(size), offset);
}

/* Shortens what is about to be submitted, and spoils what has been completed. A completion may be
 * seen again by the next call; it then counts again, which does no harm. */
int io_uring_submit_and_wait(struct io_uring *ring, unsigned wanted)
{
    int (*real)(struct io_uring *, unsigned);
    *(void **)&real = dlsym(RTLD_NEXT, "io_uring_submit_and_wait");
    for (unsigned i = ring->sq.sqe_head; i != ring->sq.sqe_tail; i++) {
        struct io_uring_sqe *sqe = &ring->sq.sqes[i & *ring->sq.kring_mask];
        sqe->len = (unsigned)shortened(sqe->len);
    }
    int taken = real(ring, wanted);
    unsigned tail = io_uring_smp_load_acquire(ring->cq.ktail);
    for (unsigned i = *ring->cq.khead; i != tail; i++) {
        int error = fault_now();
        if (error != 0)
            ring->cq.cqes[i & *ring->cq.kring_mask].res = -error;
    }
    return taken;
}

static char directory[512];
static char path[600];

/* More seeds than a window has. */
static const test_graph_t graph = {.num_nodes = TEST_SANITIZED ? 4000 : 6000,
                                   .num_features = 50,
                                   .num_classes = 5,
                                   .half = true,
                                   .seed = 23};

static const plim_recipe_t recipe = {.size = sizeof(plim_recipe_t),
                                     .batch_size = 64,
                                     .num_hops = 2,
                                     .fanout = {4, 3},
                                     .row_type = PLIM_F32,
                                     .index_type = PLIM_I32};

/* Ways to load, all with reads while batches are made. */
typedef struct way {
    plim_io_engine_t engine;
    plim_plan_params_t wanted;
} way_t;

static const way_t ways[] = {
    {PLIM_IO_THREADS,
     {.topology = PLIM_PLACE_DISK, .rows = PLIM_PLACE_DISK, .row_cache = -1, .list_cache = -1}},
    {PLIM_IO_THREADS,
     {.topology = PLIM_PLACE_DISK,
      .rows = PLIM_PLACE_DISK,
      .row_cache = 200000,
      .list_cache = 50000}},
    {PLIM_IO_AUTO,
     {.topology = PLIM_PLACE_DISK, .rows = PLIM_PLACE_DISK, .row_cache = -1, .list_cache = -1}},
    {PLIM_IO_AUTO,
     {.topology = PLIM_PLACE_DISK,
      .rows = PLIM_PLACE_DISK,
      .row_cache = 200000,
      .list_cache = 50000}},
    {PLIM_IO_AUTO, {.topology = PLIM_PLACE_MEMORY, .rows = PLIM_PLACE_MEMORY}}};

typedef struct world {
    plim_job_t job;
    plim_dataset_t *dataset;
    plim__load_plan_t plan;
} world_t;

static world_t make_world(const way_t *way)
{
    world_t world = {.job = test_job_make(LINE, 2, way->engine)};
    plim_plan_params_t wanted = way->wanted;
    wanted.window = 16;
    if (access(path, F_OK) != 0)
        assert_ok(test_dataset_make(&world.job, path, &graph));
    assert_ok(plim_dataset_open(&world.job, path, &world.dataset));
    assert_ok(plim__load_plan(&world.job, world.dataset, &recipe, &wanted, &world.plan));
    world.plan.io_depth = DEPTH;
    return world;
}

static void end_world(world_t *world)
{
    faults_off();
    plim_dataset_release(world->dataset);
    test_job_end(&world->job);
}

static plim_status_t read_epoch(plim_loader_t *loader, int64_t epoch, uint64_t *hash_out)
{
    plim_batch_t *batch;
    uint64_t hash = 0;
    plim_status_t status = plim_stream_start(test_stream(loader, PLIM_TRAIN), epoch, 0);
    while (status == PLIM_OK) {
        status = plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &batch);
        if (status != PLIM_OK || batch == NULL)
            break;
        hash = plim_loader_hash(loader, batch, hash);
        plim_batch_release(batch);
    }
    *hash_out = hash;
    return status;
}

static plim_status_t read_epochs(plim_loader_t *loader, uint64_t hashes_out[2])
{
    plim_status_t status = read_epoch(loader, 0, &hashes_out[0]);
    return status == PLIM_OK ? read_epoch(loader, 1, &hashes_out[1]) : status;
}

static void check_message(void)
{
    const char *message = plim_last_error();
    if (strstr(message, path) == NULL || strstr(message, " at offset ") == NULL)
        fail_msg("'%s' does not name the file and the place", message);
}

/* Makes a loader and reads two epochs, once more when there was an error. */
static plim_status_t load(const world_t *world)
{
    static uint64_t right[2]; /* the first one's */
    uint64_t hashes[2];
    plim_loader_t *loader;
    plim_status_t status = plim__loader_create(&world->job, world->dataset, &world->plan, &loader);
    if (status != PLIM_OK) {
        check_message();
        return status;
    }
    status = read_epochs(loader, hashes);
    if (status != PLIM_OK) {
        check_message();
        assert_ok(read_epochs(loader, hashes));
    }
    plim_loader_release(loader);
    if (right[0] == 0)
        memcpy(right, hashes, sizeof right);
    assert_memory_equal(hashes, right, sizeof right);
    return status;
}

static void short_and_interrupted_transfers_change_nothing(void **state)
{
    static const struct {
        bool shorter;
        int often;
    } faults[] = {{false, 0}, {true, 0}, {false, EINTR}, {true, EAGAIN}};
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        world_t world = make_world(&ways[i]);
        for (size_t j = 0; j < sizeof faults / sizeof faults[0]; j++) {
            fault_short = faults[j].shorter;
            fault_often = faults[j].often;
            assert_ok(load(&world));
            assert_true(j == 0 || atomic_load(&injected) > 0);
            faults_off();
        }
        end_world(&world);
    }
}

/* The first transfer fails, then in another run the second, and so on, in growing steps. */
static void any_transfer_may_fail(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        world_t world = make_world(&ways[i]);
        int failed = 0;
        bool hit = true;
        for (int number = 1; hit; number += 1 + number / (TEST_SANITIZED ? 2 : 8)) {
            faults_off();
            fault_once = EIO;
            fault_countdown = number;
            plim_status_t status = load(&world);
            hit = atomic_load(&injected) > 0;
            /* It may do no harm: a window begun ahead is built again when it is due. */
            assert_true(status == PLIM_OK || (hit && status == PLIM_ERR_IO));
            failed += status != PLIM_OK;
        }
        assert_true(failed > 5);
        end_world(&world);
    }
}

static int make_directory(void **state)
{
    (void)state;
    test_directory_make(directory);
    (void)snprintf(path, sizeof path, "%s/graph", directory);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    test_directory_remove(directory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_and_interrupted_transfers_change_nothing),
        cmocka_unit_test(any_transfer_may_fail),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
