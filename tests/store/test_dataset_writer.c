/* What the dataset writer leaves behind: a complete directory of the same bytes each time, or none.
 */
/* labels: asan unprivileged */
#include "support/dataset.h"
#include "support/harness.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char base[512];
static char path[600];

static int set_up(void **state)
{
    (void)state;
    test_directory_make(base);
    (void)snprintf(path, sizeof path, "%s/set", base);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_directory_remove(base);
    return 0;
}

/* How many entries a directory has, hidden ones included. */
static int entries(const char *directory)
{
    DIR *open = opendir(directory);
    int count = 0;
    assert_non_null(open);
    for (struct dirent *entry; (entry = readdir(open)) != NULL;)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    (void)closedir(open);
    return count;
}

/* The file's bytes, to be freed. */
static char *slurp(const char *directory, const char *name, size_t *size_out)
{
    char whole[700];
    (void)snprintf(whole, sizeof whole, "%s/%s", directory, name);
    FILE *file = fopen(whole, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size_t size = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(size + 1);
    assert_int_equal(fread(bytes, 1, size, file), size);
    bytes[size] = '\0';
    (void)fclose(file);
    *size_out = size;
    return bytes;
}

static void same_bytes_for_any_engine_and_line(void **state)
{
    static const char *const names[] = {"dataset.json", "indptr.npy", "indices.npy", "features.npy",
                                        "labels.npy",   "train.npy",  "valid.npy",   "test.npy"};
    (void)state;
    char other[600];
    test_graph_t graph = {.num_nodes = 5000, .num_features = 7, .num_classes = 4, .half = true};
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_THREADS);
    (void)snprintf(other, sizeof other, "%s/other", base);
    assert_ok(test_dataset_make(&job, path, &graph));
    assert_int_equal(entries(path), 8);
    test_job_end(&job);
    job = test_job_make((int64_t)96 << 20, 2, PLIM_IO_AUTO);
    assert_ok(test_dataset_make(&job, other, &graph));
    test_job_end(&job);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t first_size, second_size;
        char *first = slurp(path, names[i], &first_size);
        char *second = slurp(other, names[i], &second_size);
        assert_int_equal(first_size, second_size);
        assert_memory_equal(first, second, first_size);
        free(first);
        free(second);
    }
}

static void open_end_is_resolved(void **state)
{
    (void)state;
    plim__dataset_writer_t *writer;
    plim__column_t *column;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    const int64_t indptr[] = {0, 1, 3};
    const int32_t indices[] = {1, 0, 1};
    assert_ok(plim__dataset_begin(&job, path, &writer));
    assert_ok(plim__column_open(writer, "indices", PLIM__NPY_I32, 1, (int64_t[]){-1}, 4096, 4096,
                                &column));
    assert_ok(plim__column_write(column, indices, 5)); /* chunks need not be whole elements */
    assert_ok(plim__column_write(column, (const char *)indices + 5, 7));
    assert_ok(plim__column_close(column));
    assert_ok(
        plim__column_open(writer, "indptr", PLIM__NPY_I64, 1, (int64_t[]){3}, 24, 4096, &column));
    for (size_t i = 0; i < sizeof indptr; i++)
        assert_ok(plim__column_write(column, (const char *)indptr + i, 1));
    assert_ok(plim__column_close(column));
    plim__dataset_facts_t facts = {.num_nodes = 2, .source = "here", .options = ""};
    assert_ok(plim__dataset_finish(writer, &facts));
    size_t size;
    char *bytes = slurp(path, "indices.npy", &size);
    assert_int_equal(size, 4096 + 12);
    assert_non_null(strstr(bytes + 10, "(3,)"));
    assert_memory_equal(bytes + 4096, indices, 12);
    free(bytes);
    bytes = slurp(path, "dataset.json", &size);
    assert_non_null(strstr(bytes, "\"max_degree\": 2,"));
    assert_non_null(strstr(bytes, "\"num_edges\": 3,"));
    free(bytes);
    assert_int_equal(entries(base), 1);
    test_job_end(&job);
}

static void offsets_are_watched_without_a_copy_too(void **state)
{
    (void)state;
    plim__dataset_writer_t *writer;
    plim__column_t *column;
    void *space;
    size_t room;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    const int64_t indptr[] = {0, 5, 3};
    assert_ok(plim__dataset_begin(&job, path, &writer));
    assert_ok(
        plim__column_open(writer, "indptr", PLIM__NPY_I64, 1, (int64_t[]){3}, 24, 8192, &column));
    assert_ok(plim__column_space(column, &space, &room));
    assert_true(room >= sizeof indptr);
    memcpy(space, indptr, sizeof indptr);
    assert_ok(plim__column_advance(column, sizeof indptr));
    assert_int_equal(plim__column_close(column), PLIM_ERR_USAGE);
    assert_non_null(strstr(plim_last_error(), "ascend"));
    plim__dataset_facts_t facts = {.num_nodes = 2};
    assert_int_equal(plim__dataset_finish(writer, &facts), PLIM_ERR_USAGE);
    assert_int_equal(entries(base), 0);
    test_job_end(&job);
}

static void refuses_what_does_not_fit_together(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    const int64_t indptr[] = {0, 1, 2};
    const int32_t indices[] = {1, 0};
    const int64_t labels[] = {0, 1, 0};
    /* Which of the columns are of what length, and the facts; each is wrong in one thing. */
    const struct {
        int64_t nodes, graphs, classes, labels, edges;
        const char *names;
    } cases[] = {
        {3, 0, 2, 2, 2, "indptr"},      {2, 1, 2, 2, 2, "graph_indptr"},
        {2, 0, 0, 3, 2, "labels"},      {2, 0, 2, 2, 1, "indptr"},
        {0, 0, 2, 2, 2, "nodes"},       {2, 0, -1, 2, 2, "classes"},
        {2, 0, 2, -1, 2, "labels.npy"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        plim__dataset_writer_t *writer;
        assert_ok(plim__dataset_begin(&job, path, &writer));
        assert_ok(test_column(writer, "indptr", PLIM__NPY_I64, 1, (int64_t[]){3}, indptr, 24));
        assert_ok(test_column(writer, "indices", PLIM__NPY_I32, 1, &cases[i].edges, indices,
                              (size_t)cases[i].edges * 4));
        if (cases[i].labels >= 0)
            assert_ok(test_column(writer, "labels", PLIM__NPY_I64, 1, &cases[i].labels, labels,
                                  (size_t)cases[i].labels * 8));
        else
            assert_ok(test_column(writer, "labels", PLIM__NPY_U32, 1, (int64_t[]){2}, labels, 8));
        plim__dataset_facts_t facts = {.num_nodes = cases[i].nodes,
                                       .num_graphs = cases[i].graphs,
                                       .num_classes = cases[i].classes};
        assert_int_equal(plim__dataset_finish(writer, &facts), PLIM_ERR_DATA);
        assert_non_null(strstr(plim_last_error(), cases[i].names));
        assert_int_equal(entries(base), 0);
    }
    test_job_end(&job);
}

static void refuses_wrong_use(void **state)
{
    (void)state;
    plim__dataset_writer_t *writer;
    plim__column_t *column, *again;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    const int64_t three[] = {3};
    assert_ok(plim__dataset_begin(&job, path, &writer));
    assert_int_equal(plim__column_open(writer, "x", PLIM__NPY_I64, 2, (int64_t[]){2, INT64_MAX}, 24,
                                       4096, &column),
                     PLIM_ERR_USAGE);
    assert_ok(plim__column_open(writer, "indptr", PLIM__NPY_I64, 1, three, 24, 4096, &column));
    assert_int_equal(plim__column_open(writer, "indptr", PLIM__NPY_I64, 1, three, 24, 4096, &again),
                     PLIM_ERR_IO);
    assert_ok(plim__column_write(column, (int64_t[]){0, 1}, 16));
    assert_int_equal(plim__column_write(column, (int64_t[]){0, 1}, 16), PLIM_ERR_USAGE);
    assert_int_equal(plim__column_close(column), PLIM_ERR_USAGE);
    assert_ok(plim__column_open(writer, "indices", PLIM__NPY_I32, 1, three, 12, 4096, &column));
    plim__dataset_facts_t facts = {.num_nodes = 2};
    assert_int_equal(plim__dataset_finish(writer, &facts), PLIM_ERR_USAGE);
    assert_int_equal(entries(base), 0);
    plim__dataset_abandon(NULL);
    test_job_end(&job);
}

static plim_status_t make(plim_job_t *job, void *context)
{
    char set[700];
    plim_status_t status = test_dataset_make(job, path, context);
    (void)snprintf(set, sizeof set, "%s/dataset.json", path);
    assert_int_equal(access(set, F_OK) == 0, status == PLIM_OK);
    if (status == PLIM_OK)
        test_directory_remove(path);
    assert_int_equal(entries(base), 0);
    return status;
}

static void leaves_nothing_when_memory_ends(void **state)
{
    (void)state;
    test_graph_t graph = {.num_nodes = 40, .num_features = 3, .num_classes = 2, .graphs = true};
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_THREADS);
    test_fail_each_arena(&job, make, &graph);
    test_job_end(&job);
}

static void stays_inside_its_estimate(void **state)
{
    (void)state;
    plim__dataset_writer_t *writer;
    plim__column_t *column;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_THREADS);
    assert_ok(plim__dataset_begin(&job, path, &writer));
    int64_t before = plim__ledger_reserved(job.ledger);
    assert_ok(plim__column_open(writer, "train", PLIM__NPY_I64, 1, (int64_t[]){-1},
                                (int64_t)1 << 40, 8192, &column));
    assert_ok(plim__column_write(column, &(int64_t){7}, 8));
    assert_ok(plim__column_close(column));
    assert_true(plim__ledger_peak(job.ledger) - before <=
                (int64_t)plim__column_estimate(PLIM_IO_THREADS, 8192, (int64_t)1 << 40));
    plim__dataset_abandon(writer);
    assert_int_equal(entries(base), 0);
    test_job_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(same_bytes_for_any_engine_and_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(open_end_is_resolved, set_up, tear_down),
        cmocka_unit_test_setup_teardown(offsets_are_watched_without_a_copy_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_what_does_not_fit_together, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_wrong_use, set_up, tear_down),
        cmocka_unit_test_setup_teardown(leaves_nothing_when_memory_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stays_inside_its_estimate, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
