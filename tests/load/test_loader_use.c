/* The loader in use: who holds what, parts, errors, stopping; nothing grows, hangs or is lost. */
#include "load/loader.h"
#include "plan/load_plan.h"
#include "support/harness.h"
#include "support/loader.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A consumer in another thread: takes what it is given, looks at it, releases it. */
typedef struct consumer {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    plim_batch_t *batch;
    bool ended;
    int64_t nodes;
} consumer_t;

static void *consume(void *context)
{
    consumer_t *consumer = context;
    pthread_mutex_lock(&consumer->lock);
    for (;;) {
        while (consumer->batch == NULL && !consumer->ended)
            pthread_cond_wait(&consumer->moved, &consumer->lock);
        plim_batch_t *batch = consumer->batch;
        if (batch == NULL)
            break;
        consumer->batch = NULL;
        pthread_cond_broadcast(&consumer->moved);
        pthread_mutex_unlock(&consumer->lock);
        int64_t nodes = 0;
        for (int64_t i = 0; i < batch->num_nodes; i++)
            nodes += ((const int32_t *)batch->nodes)[i];
        plim_batch_release(batch);
        pthread_mutex_lock(&consumer->lock);
        consumer->nodes += nodes;
    }
    pthread_mutex_unlock(&consumer->lock);
    return NULL;
}

static void give(consumer_t *consumer, plim_batch_t *batch)
{
    pthread_mutex_lock(&consumer->lock);
    while (consumer->batch != NULL)
        pthread_cond_wait(&consumer->moved, &consumer->lock);
    consumer->batch = batch;
    consumer->ended = batch == NULL;
    pthread_cond_broadcast(&consumer->moved);
    pthread_mutex_unlock(&consumer->lock);
}

static void other_threads_may_hold_batches(void **state)
{
    (void)state;
    test_loader_t fixture = test_plain_loader(2);
    for (int mode = 0; mode < 2; mode++) {
        plim__load_plan_t plan = test_plan_disk(fixture.info, &test_two_hops, 3, 4);
        plan.topology_in_memory = plan.rows_in_memory = mode == 0;
        plan.num_slots = 7;
        plim_loader_t *loader;
        plim_batch_t *batch;
        consumer_t consumers[2] = {
            {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER},
            {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER}};
        pthread_t threads[2];
        int64_t nodes = 0;
        assert_ok(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, consume, &consumers[i]), 0);
        for (int64_t epoch = 0; epoch < 5; epoch++) {
            assert_ok(plim_stream_start(test_stream(loader, PLIM_TRAIN), epoch, 0));
            while ((batch = test_next(test_stream(loader, PLIM_TRAIN))) != NULL) {
                for (int64_t i = 0; i < batch->num_nodes; i++)
                    nodes += ((const int32_t *)batch->nodes)[i];
                plim_batch_retain(batch);
                give(&consumers[0], batch);
                give(&consumers[1], batch);
            }
        }
        for (int i = 0; i < 2; i++) {
            give(&consumers[i], NULL);
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_int_equal(consumers[i].nodes, nodes);
        }
        plim_loader_release(loader);
    }
    test_loader_close(&fixture);
}

/* A slot that is given back while workers sleep wakes none of them; a caller who keeps all others
 * needs it. */
static void the_last_slot_is_used(void **state)
{
    (void)state;
    test_loader_t fixture = test_plain_loader(3);
    plim__load_plan_t plan = test_plan_memory(fixture.info, &test_two_hops, 3);
    plim_batch_t *held[7];
    plan.num_slots = 7;
    plim_loader_t *loader = test_loader_start(&fixture, &plan);
    assert_ok(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &held[0]));
    while (atomic_load(&loader->slots->free) != 0 || atomic_load(&loader->ring.sleepers) != 2)
        (void)usleep(1000);
    plim_batch_release(held[0]);
    for (int i = 0; i < 7; i++) {
        assert_ok(plim_stream_next(&loader->streams[PLIM_TRAIN], 60, &held[i]));
        assert_int_equal(held[i]->step, 1 + i);
    }
    for (int i = 0; i < 7; i++)
        plim_batch_release(held[i]);
    plim_loader_release(loader);
    test_loader_close(&fixture);
}

static void holding_every_slot_is_logged(void **state)
{
    (void)state;
    test_loader_t fixture = test_plain_loader(2);
    for (int workers = 1; workers <= 3; workers++) {
        plim__load_plan_t plan = test_plan_memory(fixture.info, &test_two_hops, workers);
        plim_loader_t *loader;
        plim_batch_t *held[3], *batch;
        plan.num_slots = 3;
        assert_ok(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        assert_int_equal(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &batch),
                         PLIM_ERR_USAGE); /* not started */
        assert_ok(plim_stream_start(test_stream(loader, PLIM_TRAIN), 0, 0));
        for (int i = 0; i < 3; i++)
            assert_ok(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &held[i]));
        assert_int_equal(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &batch),
                         PLIM_ERR_USAGE);
        assert_non_null(strstr(plim_last_error(), "slots"));
        /* What is held stays valid over a start, and one slot given back is enough to go on. */
        uint64_t hash = plim_loader_hash(loader, held[1], 0);
        plim_batch_release(held[0]);
        for (int i = 0; i < 5; i++) {
            assert_ok(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &batch));
            assert_int_equal(batch->step, 3 + i);
            plim_batch_release(batch);
        }
        assert_ok(plim_stream_start(test_stream(loader, PLIM_TEST), 0, 2));
        assert_ok(plim_stream_next(test_stream(loader, PLIM_TEST), -1, &batch));
        assert_int_equal(batch->step, 2);
        assert_true(plim_loader_hash(loader, held[1], 0) == hash);
        plim_batch_release(held[1]);
        plim_batch_release(held[2]);
        plim_batch_release(batch);
        plim_loader_release(loader);
    }
    test_loader_close(&fixture);
}

/* Types and sizes of another loader's batches may be others. */
static void a_batch_of_another_loader_is_not_hashed(void **state)
{
    (void)state;
    test_loader_t fixture = test_plain_loader(1);
    plim__load_plan_t plan = test_plan_memory(fixture.info, &test_two_hops, 1);
    plim_loader_t *loader, *larger;
    plim_batch_t *batch;
    assert_ok(plim__loader_create(&fixture.job, fixture.dataset, &plan, &larger));
    plan.slot_nodes = 100;
    plan.recipe.index_type = PLIM_I64;
    assert_ok(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader));
    assert_ok(plim_stream_start(test_stream(larger, PLIM_TRAIN), 0, 0));
    assert_ok(plim_stream_next(test_stream(larger, PLIM_TRAIN), -1, &batch));
    assert_true(plim_loader_hash(larger, batch, 7) != 7);
    assert_true(plim_loader_hash(loader, batch, 7) == 7);
    plim_batch_release(batch);
    plim_loader_release(larger);
    plim_loader_release(loader);
    test_loader_close(&fixture);
}

static void parts_come_one_after_the_other(void **state)
{
    (void)state;
    test_loader_t fixture = test_plain_loader(2);
    plim__load_plan_t plan = test_plan_memory(fixture.info, &test_two_hops, 2);
    plim_batch_t *batch, *next;
    plan.slot_nodes = 100;
    plim_loader_t *loader = test_loader_start(&fixture, &plan);
    int64_t seeds = 0;
    for (bool last = false; !last;) {
        assert_ok(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &batch));
        assert_int_equal(batch->step, 0);
        assert_int_equal(batch->first_seed, seeds);
        assert_int_equal(batch->batch_seeds, test_two_hops.batch_size);
        test_check_batch(&fixture, &test_two_hops, batch);
        seeds += batch->num_seeds;
        if (!batch->last_part) {
            assert_int_equal(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &next),
                             PLIM_ERR_USAGE);
            assert_non_null(strstr(plim_last_error(), "part"));
            assert_int_equal(plim_stream_start(test_stream(loader, PLIM_TRAIN), -1, 0),
                             PLIM_ERR_USAGE);
        }
        last = batch->last_part;
        plim_batch_release(batch);
    }
    assert_int_equal(seeds, test_two_hops.batch_size);
    assert_ok(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1,
                               &batch)); /* left in the middle, and still held */
    assert_ok(plim_stream_start(test_stream(loader, PLIM_TRAIN), 1, 0));
    assert_ok(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &next));
    plim_batch_release(next);
    plim_batch_release(batch);
    plim_loader_release(loader);

    /* What cannot be cut is refused: PyG's form, and a single seed. */
    for (int i = 0; i < 2; i++) {
        plim_recipe_t recipe = test_two_hops;
        recipe.form = i == 0 ? PLIM_PYG : PLIM_NATIVE;
        plan = test_plan_memory(fixture.info, &recipe, 2);
        assert_ok(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        plim_stream_t *stream = test_stream(loader, PLIM_TRAIN);
        plan.slot_nodes = i == 0 ? 100 : 3; /* no plan has slots that small */
        assert_ok(plim__loader_remake(loader, &plan));
        assert_ok(plim_stream_start(stream, 0, 0));
        assert_int_equal(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &batch),
                         PLIM_ERR_BUDGET);
        assert_non_null(strstr(plim_last_error(), i == 0 ? "PyG" : "alone"));
        assert_int_equal(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &batch),
                         PLIM_ERR_BUDGET);
        plim_loader_release(loader);
    }
    test_loader_close(&fixture);
}

/*
 * Bytes in anonymous pages, counted by the kernel page by page (statm's count lags behind), stacks
 * aside: a thread touches a deeper page of its own when it first waits where it never had to.
 */
static int64_t resident_bytes(void)
{
    char line[512];
    long long from, to, sum = 0, kilobytes;
    bool stack = false;
    FILE *file = fopen("/proc/self/smaps", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%llx-%llx ", (unsigned long long *)&from, (unsigned long long *)&to) == 2)
            stack = strstr(line, "[stack]") != NULL || (size_t)(to - from) == PLIM__STACK_BYTES;
        else if (sscanf(line, "Anonymous: %lld kB", &kilobytes) == 1 && !stack)
            sum += kilobytes << 10;
    }
    (void)fclose(file);
    return sum;
}

static void a_thousand_epochs_take_no_more_than_two(void **state)
{
    (void)state;
    test_loader_t fixture = test_plain_loader(2);
    for (int mode = 0; mode < 2; mode++) {
        plim__load_plan_t plan = test_plan_disk(fixture.info, &test_two_hops, 2, 8);
        plan.topology_in_memory = plan.rows_in_memory = mode == 0;
        plan.recipe.batch_size = 250;
        plim_loader_t *loader;
        plim_batch_t *batch;
        const int64_t epochs = (mode == 0 ? 1000 : 100) / (TEST_SANITIZED ? 20 : 1);
        int64_t reserved = 0, resident = 0;
        assert_ok(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        for (int64_t epoch = 0; epoch < epochs; epoch++) {
            assert_ok(plim_stream_start(test_stream(loader, PLIM_TRAIN), epoch, 0));
            while ((batch = test_next(test_stream(loader, PLIM_TRAIN))) != NULL) {
                plim_batch_release(batch);
            }
            if (epoch == 1) {
                reserved = plim__ledger_reserved(fixture.job.ledger);
                resident = resident_bytes();
            }
        }
        assert_int_equal(plim__ledger_reserved(fixture.job.ledger), reserved);
        if (TEST_SANITIZED)
            print_message("skipped: resident bytes, which are the sanitizer's too\n");
        else
            assert_int_equal(resident_bytes(), resident);
        plim_loader_release(loader);
    }
    test_loader_close(&fixture);
}

/* A dataset of its own, whose file is cut while the loader reads it. */
static void a_file_that_shrinks_is_an_error(void **state)
{
    (void)state;
    const char *files[] = {"features.npy", "indices.npy"};
    for (int i = 0; i < 4; i++) {
        char name[32], path[700];
        (void)snprintf(name, sizeof name, "cut%d", i);
        test_loader_t fixture =
            test_loader_open(name, &test_plain_graph, 2, i < 2 ? PLIM_IO_AUTO : PLIM_IO_THREADS);
        plim__load_plan_t plan = test_plan_disk(fixture.info, &test_two_hops, 2, 2);
        plim_batch_t *batch = NULL;
        plim_status_t status;
        int64_t delivered = 0;
        plim_loader_t *loader = test_loader_start(&fixture, &plan);
        assert_ok(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &batch));
        plim_batch_release(batch);
        (void)snprintf(path, sizeof path, "%s/%s/%s", test_loader_directory, name, files[i % 2]);
        assert_int_equal(truncate(path, 4096 + 512), 0);
        while ((status = plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &batch)) ==
                   PLIM_OK &&
               batch != NULL) {
            plim_batch_release(batch);
            delivered++;
        }
        assert_int_equal(status, PLIM_ERR_DATA);
        assert_non_null(strstr(plim_last_error(), files[i % 2]));
        assert_true(delivered < plim__stream_steps(test_stream(loader, PLIM_TRAIN)));
        assert_int_equal(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &batch),
                         PLIM_ERR_DATA); /* and stays one */
        assert_ok(plim_stream_start(test_stream(loader, PLIM_TRAIN), 1, 0));
        assert_int_equal(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &batch),
                         PLIM_ERR_DATA);
        plim_loader_release(loader);
        test_loader_close(&fixture);
    }
}

static void stops_when_it_is_told_to(void **state)
{
    (void)state;
    volatile int stop = 0;
    test_loader_t fixture = test_plain_loader(2);
    fixture.job.stop = &stop;
    for (int mode = 0; mode < 4; mode++) {
        plim__load_plan_t plan = test_plan_disk(fixture.info, &test_two_hops, 2, 3);
        plan.topology_in_memory = plan.rows_in_memory = mode % 2 == 0;
        plim_batch_t *batch;
        plim_loader_t *loader = test_loader_start(&fixture, &plan);
        if (mode < 2) {
            assert_ok(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &batch));
            plim_batch_release(batch);
        }
        __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
        assert_int_equal(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &batch),
                         PLIM_ERR_STOPPED);
        __atomic_store_n(&stop, 0, __ATOMIC_RELAXED);
        if (mode % 2 == 1) { /* and goes on when it is asked again */
            int64_t parts = 0;
            (void)test_hash_from(loader, PLIM_TRAIN, 0, 0, 0, &parts);
            assert_int_equal(parts, plim__stream_steps(test_stream(loader, PLIM_TRAIN)));
        }
        plim_loader_release(loader);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    plim__load_plan_t plan = test_plan_disk(fixture.info, &test_two_hops, 2, 3);
    plim_loader_t *loader = NULL;
    plan.row_cache_bytes = plan.list_cache_bytes = 10000;
    assert_int_equal(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader),
                     PLIM_ERR_STOPPED);
    assert_null(loader);
    test_loader_close(&fixture);
}

static void nap(long microseconds)
{
    const struct timespec time = {.tv_nsec = microseconds * 1000};
    (void)nanosleep(&time, NULL);
}

/*
 * A window for the next epoch, begun ahead and stopped half-made, is not held against that epoch
 * when it is started after all. Whoever holds the loader's lock keeps the builder from saying how
 * it ended until the start has taken it over.
 */
static void a_stop_does_not_outlast_a_start(void **state)
{
    (void)state;
    volatile int stop = 0;
    test_loader_t fixture =
        test_loader_open("test_plain_graph", &test_plain_graph, 1, PLIM_IO_THREADS);
    fixture.job.stop = &stop;
    plim__load_plan_t plan = test_plan_disk(fixture.info, &test_two_hops, 1, 1000);
    plim_loader_t *loader;
    plim_batch_t *batch;
    assert_ok(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader));
    const int64_t steps = plim__stream_steps(test_stream(loader, PLIM_TRAIN));
    for (int64_t i = 0; i < 50; i++) {
        assert_ok(plim_stream_start(test_stream(loader, PLIM_TRAIN), i,
                                    steps)); /* only the guess is left */
        nap(20 * (i % 10));
        pthread_mutex_lock(&loader->ring.lock);
        __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
        nap(10000);
        __atomic_store_n(&stop, 0, __ATOMIC_RELAXED);
        pthread_mutex_unlock(&loader->ring.lock);
        assert_ok(plim_stream_start(test_stream(loader, PLIM_TRAIN), i + 1, 0));
        assert_ok(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &batch));
        plim_batch_release(batch);
    }
    plim_loader_release(loader);
    test_loader_close(&fixture);
}

static void survives_each_failing_arena(void **state)
{
    (void)state;
    test_loader_t fixture =
        test_loader_open("test_plain_graph", &test_plain_graph, 1, PLIM_IO_THREADS);
    plim__load_plan_t plan = test_plan_memory(fixture.info, &test_two_hops, 2);
    test_loader_fails(&fixture, &plan);
    plan = test_plan_disk(fixture.info, &test_two_hops, 2, 3);
    plan.list_cache_bytes = plan.row_cache_bytes = 20000;
    test_loader_fails(&fixture, &plan);
    plim_loader_release(NULL);
    test_loader_close(&fixture);
}

/* By the plan and, when it was made by hand, by the loader, before anything is added to a size. */
static void senseless_recipes_are_refused(void **state)
{
    (void)state;
    static const test_graph_t graphs = {
        .num_nodes = 300, .num_features = 8, .num_classes = 3, .graphs = true};
    for (int many = 0; many < 2; many++) {
        test_loader_t fixture =
            test_loader_open(many == 1 ? "graphs" : "test_plain_graph",
                             many == 1 ? &graphs : &test_plain_graph, 1, PLIM_IO_AUTO);
        plim_recipe_t good = test_two_hops, bad[9];
        plim_loader_t *loader;
        good.num_hops = many == 1 ? 0 : 2;
        for (int i = 0; i < 9; i++)
            bad[i] = good;
        bad[0].batch_size = 0;
        bad[1].batch_size = INT64_MAX;
        bad[2].batch_size = (int64_t)INT32_MAX + 1;
        bad[3].num_hops = -1;
        bad[4].num_hops = many == 1 ? 1 : PLIM_HOPS_MAX + 1;
        bad[5].form = (plim_form_t)2;
        bad[6].row_type = PLIM_I32;
        bad[7].index_type = PLIM_F16;
        bad[8].num_hops = 1;
        bad[8].fanout[0] = -2;
        for (int i = 0; i < 9; i++) {
            plim__load_plan_t plan = test_plan_memory(fixture.info, &good, 1), planned;
            plan.recipe = bad[i];
            assert_int_equal(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader),
                             PLIM_ERR_USAGE);
            assert_int_equal(
                plim__load_plan(&fixture.job, fixture.dataset, &bad[i], NULL, &planned),
                PLIM_ERR_USAGE);
        }
        test_loader_close(&fixture);
    }
}

/* The name of the only file in a directory; "" without one. */
static void only_file(const char *directory, char path_out[1200])
{
    DIR *entries = opendir(directory);
    assert_non_null(entries);
    path_out[0] = '\0';
    for (struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries))
        if (entry->d_name[0] != '.')
            (void)snprintf(path_out, 1200, "%s/%s", directory, entry->d_name);
    (void)closedir(entries);
}

static void spoil(const char *path)
{
    struct stat about;
    const int file = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(fstat(file, &about), 0);
    for (int64_t at = 4096; at < about.st_size; at++)
        assert_int_equal(pwrite(file, "\x77", 1, at), 1);
    assert_int_equal(close(file), 0);
}

static void check_epoch(const test_loader_t *fixture, const plim__load_plan_t *plan,
                        plim_loader_t *loader, int64_t epoch)
{
    plim_batch_t *batch;
    plim_stream_t *stream = test_stream(loader, PLIM_TRAIN);
    assert_ok(plim_stream_start(stream, epoch, 0));
    while ((batch = test_next(stream)) != NULL) {
        test_check_rows(fixture, &plan->recipe, batch);
        plim_batch_release(batch);
    }
}

/* A loader that starts while another process packs the rows reads them from the dataset, and from
 * the packed file in the first epoch that begins when it is there. */
static void rows_packed_by_another_are_taken_up(void **state)
{
    (void)state;
    char path[1200], aside[1300], lock[1300], features[700];
    test_loader_t fixture = test_loader_open("another", &test_plain_graph, 2, PLIM_IO_AUTO);
    plim__load_plan_t plan = test_plan_disk(fixture.info, &test_two_hops, 2, 4);
    (void)snprintf(plan.scratch, sizeof plan.scratch, "%s/scratch", test_loader_directory);
    assert_int_equal(mkdir(plan.scratch, 0700), 0);
    plan.working = (plim__working_size_t){TEST_NODES, TEST_NODES, fixture.info->num_edges};
    plim_loader_release(test_loader_start(&fixture, &plan));
    only_file(plan.scratch, path);
    if (path[0] == '\0') {
        test_loader_close(&fixture);
        print_message("SKIPPED: rows are not packed in memory; set TMPDIR to a disk\n");
        skip();
    }
    (void)snprintf(aside, sizeof aside, "%s.aside", path);
    (void)snprintf(lock, sizeof lock, "%s.lock", path);
    assert_int_equal(rename(path, aside), 0);
    const int other = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(other >= 0 && flock(other, LOCK_EX) == 0);
    plim_loader_t *loader = test_loader_start(&fixture, &plan);
    check_epoch(&fixture, &plan, loader, 0);
    assert_null(loader->context.working_set);
    assert_int_equal(rename(aside, path), 0);
    assert_ok(plim__loader_remake(loader, &plan)); /* takes it up, and no epoch does so again */
    const plim__working_set_t *set = loader->context.working_set;
    assert_non_null(set);
    check_epoch(&fixture, &plan, loader, 1);
    assert_ptr_equal(loader->context.working_set, set);
    plim_loader_release(loader);
    assert_int_equal(rename(path, aside), 0);
    loader = test_loader_start(&fixture, &plan);
    const int64_t own = plim__ledger_reserved(fixture.job.ledger) - loader->bytes;
    assert_int_equal(rename(aside, path), 0);
    check_epoch(&fixture, &plan, loader, 1);
    assert_non_null(loader->context.working_set);
    assert_int_equal(plim__ledger_reserved(fixture.job.ledger) - loader->bytes, own);
    (void)snprintf(features, sizeof features, "%s/another/features.npy", test_loader_directory);
    spoil(features);
    check_epoch(&fixture, &plan, loader, 2);
    plim_loader_release(loader);
    assert_int_equal(close(other), 0);
    test_loader_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_threads_may_hold_batches),
        cmocka_unit_test(rows_packed_by_another_are_taken_up),
        cmocka_unit_test(the_last_slot_is_used),
        cmocka_unit_test(holding_every_slot_is_logged),
        cmocka_unit_test(a_batch_of_another_loader_is_not_hashed),
        cmocka_unit_test(parts_come_one_after_the_other),
        cmocka_unit_test(a_thousand_epochs_take_no_more_than_two),
        cmocka_unit_test(a_file_that_shrinks_is_an_error),
        cmocka_unit_test(stops_when_it_is_told_to),
        cmocka_unit_test(a_stop_does_not_outlast_a_start),
        cmocka_unit_test(survives_each_failing_arena),
        cmocka_unit_test(senseless_recipes_are_refused),
    };
    return cmocka_run_group_tests_name("loader.use", tests, test_loader_begin, test_loader_end);
}
