/* Splits, their labels and their orders: what the files say, every order as likely as any other. */
/* labels: asan tsan */
#include "load/seeds.h"
#include "store/labels.h"
#include "support/dataset.h"
#include "support/harness.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE ((int64_t)1 << 30)

static char directory[512];

static int make_directory(void **state)
{
    (void)state;
    test_directory_make(directory);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    test_directory_remove(directory);
    return 0;
}

static plim_dataset_t *make(const plim_job_t *job, const char *name, const test_graph_t *graph)
{
    char path[600];
    plim_dataset_t *dataset;
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    assert_ok(test_dataset_make(job, path, graph));
    assert_ok(plim_dataset_open(job, path, &dataset));
    return dataset;
}

/* What test_dataset_make writes as the label of a row, found by reading the file. */
static int64_t *read_column(const char *name, const char *column, int64_t count)
{
    char path[700];
    int64_t *values = calloc((size_t)count + 1, sizeof *values);
    (void)snprintf(path, sizeof path, "%s/%s/%s", directory, name, column);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 4096, SEEK_SET), 0);
    assert_int_equal(fread(values, sizeof *values, (size_t)count, file), count);
    (void)fclose(file);
    return values;
}

static int64_t *read_labels(const char *name, plim__dtype_t type, int64_t count)
{
    const int64_t words = (int64_t)plim__dtype_size(type) * count / 8;
    int64_t *stored = read_column(name, "labels.npy", words), *labels = calloc((size_t)count, 8);
    plim__labels_widen(type, stored, count, labels);
    free(stored);
    return labels;
}

static void splits_come_as_the_files_say(void **state)
{
    (void)state;
    const plim__dtype_t types[] = {PLIM__NPY_I8, PLIM__NPY_I16, PLIM__NPY_I32, PLIM__NPY_I64};
    size_t stays = 0;
    for (int e = 0; e < 4; e++) {
        plim_job_t job = test_job_make(LINE, 2, e % 2 == 0 ? PLIM_IO_AUTO : PLIM_IO_THREADS);
        char name[16];
        (void)snprintf(name, sizeof name, "files%d", e);
        plim_dataset_t *dataset =
            make(&job, name,
                 &(test_graph_t){
                     .num_nodes = 10000, .num_classes = 9, .seed = 3, .label_type = types[e]});
        plim__seeds_t *seeds;
        int64_t before = plim__ledger_reserved(job.ledger);
        assert_true(plim__seeds_stays(dataset) >= stays + 4000); /* a smaller type takes less */
        stays = plim__seeds_stays(dataset);
        assert_ok(plim__seeds_create(&job, dataset, 5, &seeds));
        assert_true(plim__ledger_peak(job.ledger) - before <=
                    (int64_t)plim__seeds_estimate(&job, dataset));
        assert_int_equal(plim__seeds_label_bytes(seeds), sizeof(int64_t));
        int64_t *labels = read_labels(name, types[e], 10000);
        for (int split = 0; split < 3; split++) {
            int64_t count = plim__seeds_count(seeds, split);
            int64_t *ids = calloc((size_t)count, 8), *got = calloc((size_t)count, 8);
            char *seen = calloc(10000, 1);
            assert_int_equal(count, plim_dataset_info(dataset)->num_split[split]);
            plim__seeds_prepare(seeds, 7);
            plim__seeds_take(seeds, split, split == PLIM_TRAIN, 7, 0, 1, ids, got);
            plim__seeds_take(seeds, split, split == PLIM_TRAIN, 7, 1, count - 1, ids + 1, got + 1);
            for (int64_t i = 0; i < count; i++) {
                assert_int_equal(got[i], labels[ids[i]]);
                assert_int_equal(ids[i] % 3, split);
                assert_int_equal(seen[ids[i]]++, 0);
                if (split != PLIM_TRAIN)
                    assert_int_equal(ids[i], plim__seeds_ids(seeds, split)[i]);
            }
            free(seen);
            free(got);
            free(ids);
        }
        free(labels);
        plim__seeds_destroy(seeds);
        assert_int_equal(plim__ledger_reserved(job.ledger), before);
        plim_dataset_release(dataset);
        test_job_end(&job);
    }
}

/* Targets are rows of floats, as they stand in the file; NaN is one too. */
static void targets_come_as_rows(void **state)
{
    (void)state;
    enum { ROWS = 2000, TARGETS = 3 };
    static float targets[ROWS * TARGETS], got[ROWS * TARGETS];
    static int64_t indptr[ROWS + 1], ids[ROWS];
    plim_job_t job = test_job_make(LINE, 2, PLIM_IO_AUTO);
    char path[600];
    plim__dataset_writer_t *writer;
    plim_dataset_t *dataset;
    plim__seeds_t *seeds;
    for (int64_t i = 0; i < ROWS * TARGETS; i++)
        targets[i] = i % 13 == 0 ? NAN : (float)i / 8;
    for (int64_t i = 0; i < ROWS; i++)
        ids[i] = i * 7 % ROWS; /* not ascending */
    (void)snprintf(path, sizeof path, "%s/targets", directory);
    assert_ok(plim__dataset_begin(&job, path, &writer));
    assert_ok(test_column(writer, "indptr", PLIM__NPY_I64, 1, (int64_t[]){ROWS + 1}, indptr,
                          sizeof indptr));
    assert_ok(test_column(writer, "indices", PLIM__NPY_I32, 1, (int64_t[]){0}, indptr, 0));
    assert_ok(test_column(writer, "labels", PLIM__NPY_F32, 2, (int64_t[]){ROWS, TARGETS}, targets,
                          sizeof targets));
    assert_ok(test_column(writer, "test", PLIM__NPY_I64, 1, (int64_t[]){ROWS}, ids, sizeof ids));
    assert_ok(plim__dataset_finish(
        writer, &(plim__dataset_facts_t){.num_nodes = ROWS, .source = "test", .options = ""}));
    assert_ok(plim_dataset_open(&job, path, &dataset));
    assert_ok(plim__seeds_create(&job, dataset, 1, &seeds));
    assert_int_equal(plim__seeds_count(seeds, PLIM_TRAIN), 0);
    assert_int_equal(plim__seeds_label_bytes(seeds), TARGETS * sizeof(float));
    int64_t taken[ROWS];
    plim__seeds_take(seeds, PLIM_TEST, false, 0, 0, ROWS, taken, got);
    for (int64_t i = 0; i < ROWS; i++)
        assert_memory_equal(got + i * TARGETS, targets + ids[i] * TARGETS, TARGETS * sizeof *got);
    plim__seeds_destroy(seeds);
    plim_dataset_release(dataset);
    test_job_end(&job);
}

static void orders_depend_on_seed_and_epoch_alone(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(LINE, 1, PLIM_IO_AUTO);
    plim_dataset_t *dataset =
        make(&job, "orders", &(test_graph_t){.num_nodes = 3000, .num_classes = 2, .seed = 1});
    plim__seeds_t *one, *other;
    int64_t a[1000], b[1000], c[1000];
    assert_ok(plim__seeds_create(&job, dataset, 11, &one));
    assert_ok(plim__seeds_create(&job, dataset, 12, &other));
    plim__seeds_prepare(one, 4);
    plim__seeds_take(one, PLIM_TRAIN, true, 4, 0, 1000, a, NULL);
    plim__seeds_prepare(one, 5);
    plim__seeds_take(one, PLIM_TRAIN, true, 5, 0, 1000, b, NULL);
    plim__seeds_take(one, PLIM_TRAIN, true, 4, 0, 1000, c, NULL); /* the one before stays */
    assert_memory_equal(a, c, sizeof a);
    assert_memory_not_equal(a, b, sizeof a);
    plim__seeds_prepare(one, 6);
    plim__seeds_prepare(one, 4);
    plim__seeds_take(one, PLIM_TRAIN, true, 4, 0, 1000, c, NULL);
    assert_memory_equal(a, c, sizeof a);
    plim__seeds_prepare(other, 4);
    plim__seeds_take(other, PLIM_TRAIN, true, 4, 0, 1000, c, NULL);
    assert_memory_not_equal(a, c, sizeof a);
    plim__seeds_destroy(other);
    plim__seeds_destroy(one);
    plim_dataset_release(dataset);
    test_job_end(&job);
}

/* All orders of four entries, and the places of eleven, over many epochs. */
static void every_order_is_as_likely(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(LINE, 1, PLIM_IO_AUTO);
    plim_dataset_t *dataset =
        make(&job, "four", &(test_graph_t){.num_nodes = 12, .num_classes = 2, .seed = 1});
    plim__seeds_t *seeds;
    enum { EPOCHS = 240000 };
    int64_t orders[256] = {0};
    double chi = 0;
    assert_ok(plim__seeds_create(&job, dataset, 99, &seeds));
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        int64_t ids[4];
        plim__seeds_prepare(seeds, epoch);
        plim__seeds_take(seeds, PLIM_TRAIN, true, epoch, 0, 4, ids, NULL);
        orders[ids[0] / 3 * 64 + ids[1] / 3 * 16 + ids[2] / 3 * 4 + ids[3] / 3]++;
    }
    int occurring = 0;
    for (int i = 0; i < 256; i++)
        if (orders[i] > 0) {
            double off = (double)orders[i] - EPOCHS / 24.0;
            occurring++;
            chi += off * off / (EPOCHS / 24.0);
        }
    assert_int_equal(occurring, 24);
    assert_true(chi < 49.7); /* 23 degrees of freedom: 0.1 % */
    plim__seeds_destroy(seeds);
    plim_dataset_release(dataset);

    enum { PLACES = 11, MORE = 55000 };
    dataset = make(&job, "eleven", &(test_graph_t){.num_nodes = 33, .num_classes = 2, .seed = 1});
    int64_t counts[PLACES][PLACES] = {{0}};
    assert_ok(plim__seeds_create(&job, dataset, 98, &seeds));
    for (int64_t epoch = 0; epoch < MORE; epoch++) {
        int64_t ids[PLACES];
        plim__seeds_prepare(seeds, epoch);
        plim__seeds_take(seeds, PLIM_TRAIN, true, epoch, 0, PLACES, ids, NULL);
        for (int i = 0; i < PLACES; i++)
            counts[i][ids[i] / 3]++;
    }
    chi = 0;
    for (int i = 0; i < PLACES * PLACES; i++) {
        double off = (double)counts[i / PLACES][i % PLACES] - MORE / (double)PLACES;
        chi += off * off / (MORE / (double)PLACES);
    }
    assert_true(chi < 149.4); /* 100 degrees of freedom: 0.1 % */
    plim__seeds_destroy(seeds);
    plim_dataset_release(dataset);
    test_job_end(&job);
}

/* A training split too large to be shuffled: every entry once, another order each epoch. */
static void large_splits_are_permuted(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(LINE, 2, PLIM_IO_AUTO);
    const int64_t count = PLIM__SEEDS_SHUFFLED + 7;
    char path[600];
    plim__dataset_writer_t *writer;
    plim_dataset_t *dataset;
    plim__seeds_t *seeds;
    int64_t *ids = calloc((size_t)count + 1, sizeof *ids);
    (void)snprintf(path, sizeof path, "%s/large", directory);
    assert_ok(plim__dataset_begin(&job, path, &writer));
    assert_ok(test_column(writer, "indptr", PLIM__NPY_I64, 1, (int64_t[]){count + 1}, ids,
                          (size_t)(count + 1) * 8));
    assert_ok(test_column(writer, "indices", PLIM__NPY_I32, 1, (int64_t[]){0}, ids, 0));
    for (int64_t i = 0; i < count; i++)
        ids[i] = count - 1 - i;
    assert_ok(test_column(writer, "labels", PLIM__NPY_I64, 1, &count, ids, (size_t)count * 8));
    assert_ok(test_column(writer, "train", PLIM__NPY_I64, 1, &count, ids, (size_t)count * 8));
    assert_ok(plim__dataset_finish(
        writer, &(plim__dataset_facts_t){
                    .num_nodes = count, .num_classes = count, .source = "test", .options = ""}));
    assert_ok(plim_dataset_open(&job, path, &dataset));
    assert_ok(plim__seeds_create(&job, dataset, 1, &seeds));
    char *seen = calloc((size_t)count, 1);
    int64_t stay = 0;
    for (int64_t first = 0; first < count; first += 1000) {
        int64_t here[1000], labels[1000], next[1000];
        int64_t n = count - first < 1000 ? count - first : 1000;
        plim__seeds_prepare(seeds, 2);
        plim__seeds_take(seeds, PLIM_TRAIN, true, 2, first, n, here, labels);
        plim__seeds_take(seeds, PLIM_TRAIN, true, 3, first, n, next, NULL);
        for (int64_t i = 0; i < n; i++) {
            assert_int_equal(seen[here[i]]++, 0);
            assert_int_equal(labels[i], count - 1 - here[i]);
            stay += here[i] == next[i];
        }
    }
    assert_true(stay < 12);
    free(seen);
    free(ids);
    plim__seeds_destroy(seeds);
    plim_dataset_release(dataset);
    test_job_end(&job);
}

/* Puts a number into a file of the dataset, behind its header. */
static void overwrite(const char *name, const char *column, int64_t index, int64_t value)
{
    char path[700];
    (void)snprintf(path, sizeof path, "%s/%s/%s", directory, name, column);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &value, sizeof value, 4096 + index * 8), sizeof value);
    (void)close(fd);
}

static void damaged_files_are_named(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(LINE, 1, PLIM_IO_AUTO);
    const struct {
        const char *column;
        int64_t index, value;
        const char *word;
    } damages[] = {{"train.npy", 3, -1, "train.npy"},  {"valid.npy", 9, 300, "valid.npy"},
                   {"test.npy", 1, 8, "test.npy"}, /* the entry after it is 8 as well */
                   {"train.npy", 99, 0, "train.npy"},  {"labels.npy", 7, 5, "labels.npy"},
                   {"labels.npy", 7, -2, "labels.npy"}};
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        char name[16];
        plim__seeds_t *seeds;
        (void)snprintf(name, sizeof name, "damaged%d", (int)i);
        plim_dataset_t *dataset =
            make(&job, name,
                 &(test_graph_t){
                     .num_nodes = 300, .num_classes = 5, .seed = 1, .label_type = PLIM__NPY_I64});
        overwrite(name, damages[i].column, damages[i].index, damages[i].value);
        int64_t before = plim__ledger_reserved(job.ledger);
        assert_int_equal(plim__seeds_create(&job, dataset, 1, &seeds), PLIM_ERR_DATA);
        assert_non_null(strstr(plim_last_error(), damages[i].word));
        assert_int_equal(plim__ledger_reserved(job.ledger), before);
        plim_dataset_release(dataset);
    }
    test_job_end(&job);
}

static plim_status_t create_once(plim_job_t *job, void *context)
{
    plim__seeds_t *seeds;
    plim_status_t status = plim__seeds_create(job, context, 1, &seeds);
    if (status == PLIM_OK)
        plim__seeds_destroy(seeds);
    return status;
}

static void survives_each_failing_arena(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(LINE, 1, PLIM_IO_THREADS);
    plim_dataset_t *dataset =
        make(&job, "failing", &(test_graph_t){.num_nodes = 300, .num_classes = 5, .seed = 1});
    test_fail_each_arena(&job, create_once, dataset);
    plim_dataset_release(dataset);
    plim__seeds_destroy(NULL);
    test_job_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_come_as_the_files_say),
        cmocka_unit_test(targets_come_as_rows),
        cmocka_unit_test(orders_depend_on_seed_and_epoch_alone),
        cmocka_unit_test(every_order_is_as_likely),
        cmocka_unit_test(large_splits_are_permuted),
        cmocka_unit_test(damaged_files_are_named),
        cmocka_unit_test(survives_each_failing_arena),
    };
    return cmocka_run_group_tests_name("seeds", tests, make_directory, remove_directory);
}
