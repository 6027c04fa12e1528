#include "support/training.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char directory[512];
static char graph[600];

const test_way_t test_plain_way = {.threads = 2, .line = PLIM_LINE_NONE};

void test_training_path(const char *name, char path_out[700])
{
    (void)snprintf(path_out, 700, "%s/%s", directory, name);
}

const char *test_training_graph(void)
{
    return graph;
}

int test_training_begin(void **state)
{
    plim_generate_options_t options = PLIM_GENERATE_OPTIONS_INIT;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    (void)state;
    test_directory_make(directory);
    (void)snprintf(graph, sizeof graph, "%s/graph", directory);
    options.shape = "free";
    options.target = graph;
    options.num_nodes = 3000;
    options.num_edges = 24000;
    options.num_features = 24;
    options.num_classes = 5;
    options.features = PLIM_F16;
    options.edge_columns = "time";
    assert_ok(plim_generate(&job, &options));
    test_job_end(&job);
    return 0;
}

int test_training_end(void **state)
{
    (void)state;
    test_directory_remove(directory);
    return 0;
}

plim_training_t test_training_two_hops(plim_model_kind_t kind, int64_t hidden, int64_t batch_size,
                                       int64_t first, int64_t second)
{
    plim_training_t training = PLIM_TRAINING_INIT;
    training.model.kind = kind;
    training.model.hidden = hidden;
    training.recipe.batch_size = batch_size;
    training.recipe.num_hops = kind == PLIM_MLP ? 0 : 2;
    training.recipe.fanout[0] = first;
    training.recipe.fanout[1] = second;
    return training;
}

plim_training_t test_training_small(void)
{
    plim_training_t training = PLIM_TRAINING_INIT;
    training.model.kind = PLIM_SAGE;
    training.model.hidden = 16;
    training.model.dropout = 0.3f;
    training.recipe.batch_size = 100;
    training.recipe.fanout[0] = 4;
    training.recipe.fanout[1] = 3;
    training.recipe.seed = 7;
    training.epochs = 4;
    return training;
}

void test_bed_open(int64_t line, const plim_training_t *training, const plim_plan_params_t *params,
                   test_bed_t *bed)
{
    bed->job = test_job_make(line, 2, PLIM_IO_AUTO);
    assert_ok(plim_dataset_open(&bed->job, graph, &bed->dataset));
    assert_ok(plim_train_plan(&bed->job, bed->dataset, training, params, &bed->plan));
    assert_ok(plim_loader_create(&bed->job, bed->dataset, bed->plan, &bed->loader));
    assert_ok(plim_trainer_create(&bed->job, bed->dataset, training, bed->plan, &bed->trainer));
    (void)plim_trainer_values(bed->trainer, PLIM_VALUES_WEIGHTS, &bed->count);
}

void test_bed_close(test_bed_t *bed)
{
    plim_trainer_release(bed->trainer);
    plim_loader_release(bed->loader);
    plim_plan_release(bed->plan);
    plim_dataset_release(bed->dataset);
    test_job_end(&bed->job);
}

plim_status_t test_train(const char *name, const plim_training_t *training, const test_way_t *way,
                         plim_train_result_t *result_out)
{
    plim_job_t job = test_job_make(way->line, way->threads, PLIM_IO_AUTO);
    plim_plan_t *plan;
    plim_dataset_t *dataset;
    char path[700];
    test_training_path(name, path);
    job.stop = way->stop;
    assert_ok(plim_dataset_open(&job, way->dataset != NULL ? way->dataset : graph, &dataset));
    plim_plan_params_t wanted = way->wanted;
    wanted.size = sizeof wanted;
    assert_ok(plim_train_plan(&job, dataset, training, &wanted, &plan));
    plim_status_t status = (way->resume ? plim_train_resume : plim_train)(
        &job, dataset, training, plan, path, way->events, way->user, result_out);
    plim_plan_release(plan);
    plim_dataset_release(dataset);
    test_job_end(&job);
    return status;
}

/* A file whole, ended by a zero. */
static char *read_whole(const char *name, const char *file, size_t *size_out)
{
    char path[800];
    (void)snprintf(path, sizeof path, "%s/%s/%s", directory, name, file);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    assert_int_equal(fseek(in, 0, SEEK_END), 0);
    const long size = ftell(in);
    rewind(in);
    char *text = malloc((size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, in), (size_t)size);
    text[size] = '\0';
    (void)fclose(in);
    *size_out = (size_t)size;
    return text;
}

/* The bytes of the tensors of a safetensors file, whatever its notes say. */
static char *read_tensors(const char *name, const char *file, size_t *size_out)
{
    size_t size;
    uint64_t header;
    char *whole = read_whole(name, file, &size);
    memcpy(&header, whole, sizeof header);
    assert_true(size > header + 8);
    *size_out = size - header - 8;
    memmove(whole, whole + header + 8, *size_out);
    return whole;
}

void test_assert_same_run(const char *one, const char *other)
{
    static const char *const files[] = {"last.safetensors", "best.safetensors"};
    size_t size, other_size;
    char *text = read_whole(one, "metrics.jsonl", &size);
    char *other_text = read_whole(other, "metrics.jsonl", &other_size);
    assert_string_equal(text, other_text);
    free(text);
    free(other_text);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        text = read_tensors(one, files[i], &size);
        other_text = read_tensors(other, files[i], &other_size);
        assert_int_equal(size, other_size);
        assert_memory_equal(text, other_text, size);
        free(text);
        free(other_text);
    }
}
