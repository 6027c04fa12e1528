/*
 * Exact outputs against a plain reference in double precision, for every kind of model; and the
 * same bits whatever the memory, the threads, the engine, and the order asked for.
 */
#include "support/harness.h"
#include "support/lists.h"
#include "support/loader.h"
#include "support/reference.h"
#include "support/wrapped.h"

#include "base/fail.h"
#include "base/rng.h"
#include "infer/exact.h"
#include "mem/arena.h"
#include "nn/vector.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NODES 3000
#define FEATURES 24
#define LINE ((int64_t)1 << 30)
#define CLASSES 5

/* Where outputs go. */
typedef struct sheet {
    float *values;
    int64_t width;
    int64_t rows;
    plim_status_t answer;
} sheet_t;

static plim_status_t take(void *context, int64_t first, int64_t rows, int64_t width,
                          const float *outputs)
{
    sheet_t *sheet = context;
    if (sheet->answer != PLIM_OK)
        return plim__fail(sheet->answer, "not wanted");
    assert_int_equal(first, sheet->rows);
    assert_int_equal(width, sheet->width);
    memcpy(sheet->values + first * width, outputs, (size_t)(rows * width) * sizeof(float));
    sheet->rows += rows;
    return PLIM_OK;
}

static char scratch[512];

/* One run. */
typedef struct trial {
    const test_loader_t *world;
    const test_weights_t *weights;
    bool embeddings;
    int64_t most_rows;
    const int64_t *nodes;
    int64_t count;
    sheet_t sheet;
} probe_t;

static plim__exact_params_t params_of(const probe_t *trial)
{
    return (plim__exact_params_t){.model = trial->weights->model,
                                  .columns = trial->weights->columns,
                                  .num_outputs = CLASSES,
                                  .parameters = trial->weights->table,
                                  .num_parameters = trial->weights->count,
                                  .embeddings = trial->embeddings,
                                  .scratch = scratch,
                                  .most_rows = trial->most_rows};
}

static plim_status_t run(plim_job_t *job, void *context)
{
    probe_t *trial = context;
    const plim__exact_params_t params = params_of(trial);
    const int64_t rows = trial->nodes != NULL ? trial->count : trial->world->info->num_nodes;
    trial->sheet.rows = 0;
    memset(trial->sheet.values, 0, (size_t)(rows * trial->sheet.width) * sizeof(float));
    return plim__exact_run(job, trial->world->dataset, &params, trial->nodes, trial->count, take,
                           &trial->sheet);
}

/* The same with no more than `extra` bytes above the least. */
static size_t minimum_of(const plim_job_t *job, probe_t *trial)
{
    const plim__exact_params_t params = params_of(trial);
    return plim__exact_cost_minimum(job, trial->world->dataset, &params.model, &params.columns,
                                    params.num_outputs, params.embeddings);
}

static plim_status_t run_tight(plim_job_t *job, probe_t *trial, size_t extra)
{
    const size_t least = minimum_of(job, trial);
    const size_t away = (size_t)plim__ledger_available(job->ledger) - least - extra;
    int account;
    assert_ok(plim__ledger_reserve(job->ledger, "away", away, &account));
    const plim_status_t status = run(job, trial);
    plim__ledger_release(job->ledger, account, away);
    return status;
}

static void compare(const probe_t *trial, const double *expected)
{
    const int64_t width = trial->sheet.width;
    const int64_t rows = trial->nodes != NULL ? trial->count : trial->world->info->num_nodes;
    assert_int_equal(trial->sheet.rows, rows);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t node = trial->nodes != NULL ? trial->nodes[i] : i;
        double scale = 0.1;
        for (int64_t j = 0; j < width; j++)
            scale = fmax(scale, fabs(expected[node * width + j]));
        for (int64_t j = 0; j < width; j++)
            if (!(fabs((double)trial->sheet.values[i * width + j] - expected[node * width + j]) <=
                  1e-5 * scale))
                fail_msg("node %lld column %lld: %.9g, expected %.9g", (long long)node,
                         (long long)j, (double)trial->sheet.values[i * width + j],
                         expected[node * width + j]);
    }
}

static const plim_model_t base_model = PLIM_MODEL_INIT;

/* Layers that were not computed in one go, by name. */
static int cuts;

static void count_cuts(void *user, plim_log_level_t level, const char *message)
{
    (void)user;
    (void)level;
    cuts += strstr(message, "in 1 passes") == NULL;
}

/* All that may not change a bit: memory, threads, engine, vectors. Under a sanitizer each graph
 * takes every other way. */
static void check_weights(test_weights_t weights, const test_graph_t *graph, const char *name)
{
    const plim_model_t *model = &weights.model;
    test_loader_t world = test_loader_open(name, graph, 2, PLIM_IO_AUTO);
    double *expected =
        graph->columns == 0 ? test_reference(&weights, &world, model->num_layers) : NULL;
    const size_t values = (size_t)graph->num_nodes * CLASSES;
    probe_t trial = {.world = &world,
                     .weights = &weights,
                     .sheet = {.values = calloc(values, sizeof(float)), .width = CLASSES}};
    float *first = calloc(values, sizeof *first);
    assert_ok(run(&world.job, &trial));
    if (expected != NULL)
        compare(&trial, expected);
    memcpy(first, trial.sheet.values, values * sizeof *first);
    static const struct {
        int threads;
        plim_io_engine_t engine;
        int64_t extra;     /* memory above the least; -1: all there is */
        int64_t most_rows; /* of which three floats a node are the least that attention needs */
        plim__vector_path_t path;
    } ways[] = {{1, PLIM_IO_AUTO, -1, 0, PLIM__VECTOR_BASELINE},
                {1, PLIM_IO_THREADS, 0, 36000, PLIM__VECTOR_AVX512},
                {3, PLIM_IO_AUTO, 0, 70000, PLIM__VECTOR_AVX2},
                {2, PLIM_IO_THREADS, 30000, 120000, PLIM__VECTOR_AVX512},
                {2, PLIM_IO_AUTO, 100000, 0, PLIM__VECTOR_AVX512}};
    for (size_t i = TEST_SANITIZED && graph->half; i < sizeof ways / sizeof ways[0];
         i += TEST_SANITIZED ? 2 : 1) {
        plim_job_t job = test_job_make(LINE, ways[i].threads, ways[i].engine);
        test_vector_limit(ways[i].path);
        trial.most_rows = ways[i].most_rows;
        cuts = 0;
        job.log = count_cuts;
        assert_ok(ways[i].extra < 0 ? run(&job, &trial)
                                    : run_tight(&job, &trial, (size_t)ways[i].extra));
        test_vector_limit(PLIM__VECTOR_AVX512);
        assert_true(model->kind == PLIM_MLP || ways[i].most_rows != 36000 || cuts > 0);
        if (expected != NULL)
            compare(&trial, expected);
        assert_memory_equal(trial.sheet.values, first, values * sizeof *first);
        test_job_end(&job);
    }
    free(first);
    free(trial.sheet.values);
    free(expected);
    test_weights_free(&weights);
    test_loader_close(&world);
}

static void check_model(const plim_model_t *model, const test_graph_t *graph, const char *name)
{
    check_weights(test_weights_make(model, graph->num_features, CLASSES), graph, name);
}

static const test_graph_t half_graph = {
    .num_nodes = NODES, .num_features = FEATURES, .num_classes = CLASSES, .half = true, .seed = 3};
static const test_graph_t float_graph = {
    .num_nodes = NODES, .num_features = 7, .num_classes = CLASSES, .seed = 4};

static void check_both(const plim_model_t *model)
{
    check_model(model, &half_graph, "half");
    check_model(model, &float_graph, "float");
}

static void test_gcn(void **state)
{
    (void)state;
    plim_model_t model = base_model;
    model.hidden = 16;
    check_both(&model);
    model.num_layers = 3;
    model.hidden = 24;
    model.norm = PLIM_NORM_LAYER;
    model.residual = true;
    check_both(&model);
    model.num_layers = 1;
    check_both(&model);
}

static void test_sage(void **state)
{
    (void)state;
    plim_model_t model = base_model;
    model.kind = PLIM_SAGE;
    model.hidden = 20;
    model.num_layers = 3;
    check_both(&model);
    model.norm = PLIM_NORM_BATCH;
    model.activation = PLIM_ELU;
    model.aggregation = PLIM_MAX;
    check_both(&model);
    model.aggregation = PLIM_SUM;
    check_both(&model);
}

static void test_gat(void **state)
{
    (void)state;
    plim_model_t model = base_model;
    model.kind = PLIM_GAT;
    model.hidden = 24;
    model.heads = 4;
    model.activation = PLIM_ELU;
    check_both(&model);
    model.heads = 1;
    model.num_layers = 3;
    model.residual = true;
    check_both(&model);
}

static void test_gin(void **state)
{
    (void)state;
    plim_model_t model = base_model;
    model.kind = PLIM_GIN;
    model.hidden = 16;
    model.norm = PLIM_NORM_BATCH;
    check_both(&model);
}

static void test_mlp(void **state)
{
    (void)state;
    plim_model_t model = base_model;
    model.kind = PLIM_MLP;
    model.hidden = 32;
    model.num_layers = 3;
    model.norm = PLIM_NORM_LAYER;
    check_both(&model);
}

/* What edges carry changes no bit either; of some, a chunk holds a few edges, and lists are longer.
 */
static void test_columns(void **state)
{
    (void)state;
    static const test_graph_t graphs[] = {
        {.num_nodes = NODES, .edge_width = 3, .edge_form = PLIM_F16, .half = true, .seed = 5},
        {.num_nodes = 400, .edge_width = 3500, .edge_form = PLIM_F16, .seed = 6}};
    static const struct {
        plim_model_kind_t kind;
        plim__columns_t columns;
    } kinds[] = {{PLIM_GCN, {.edge_weights = true}},         {PLIM_GATV2, {0}},
                 {PLIM_RGCN, {.edge_types = 7, .bases = 3}}, {PLIM_GAT, {.edge_features = 1}},
                 {PLIM_GATV2, {.edge_features = 1}},         {PLIM_GINE, {.edge_features = 1}}};
    for (int g = 0; g < 2; g++)
        for (size_t i = g == 0 ? 0 : 3; i < sizeof kinds / sizeof kinds[0]; i++) {
            test_graph_t graph = graphs[g];
            plim_model_t model = base_model;
            plim__columns_t columns = kinds[i].columns;
            graph.num_features = FEATURES;
            graph.num_classes = CLASSES;
            graph.columns = PLIM_EDGE_FEATURES | PLIM_EDGE_WEIGHT | PLIM_EDGE_TYPE;
            graph.drawable = true;
            columns.edge_features *= graph.edge_width;
            columns.edge_feature_type = graph.half ? PLIM_F16 : PLIM_F32;
            model.kind = kinds[i].kind;
            model.hidden = 24;
            model.heads = model.kind == PLIM_GAT || model.kind == PLIM_GATV2 ? 4 : 1;
            check_weights(test_weights_of(&model, &columns, FEATURES, CLASSES), &graph,
                          g == 0 ? "columns" : "wide");
        }
}

/* A world for what is not about models: GCN of two layers. */
typedef struct small {
    test_loader_t world;
    test_weights_t weights;
    double *expected;
    float values[2 * NODES * FEATURES];
    probe_t trial;
} small_t;

static small_t *small_make(void)
{
    small_t *small = calloc(1, sizeof *small);
    plim_model_t model = base_model;
    model.hidden = 16;
    small->world = test_loader_open("half", &half_graph, 2, PLIM_IO_AUTO);
    small->weights = test_weights_make(&model, FEATURES, CLASSES);
    small->expected = test_reference(&small->weights, &small->world, 2);
    small->trial = (probe_t){.world = &small->world,
                             .weights = &small->weights,
                             .sheet = {.values = small->values, .width = CLASSES}};
    return small;
}

static void small_end(small_t *small)
{
    free(small->expected);
    test_weights_free(&small->weights);
    test_loader_close(&small->world);
    free(small);
}

/* Few nodes and many, ascending, in any order and more than once; none at all. */
static void test_nodes_in_the_order_asked_for(void **state)
{
    (void)state;
    small_t *small = small_make();
    int64_t nodes[2 * NODES];
    const int64_t counts[] = {0, 1, 2, 40, NODES, (int64_t)2 * NODES};
    for (int order = 0; order < 3; order++)
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            for (int64_t k = 0; k < counts[i]; k++)
                nodes[k] = order == 0   ? (k * (NODES / (counts[i] + 1) + 1)) % NODES
                           : order == 1 ? NODES - 1 - k % NODES
                                        : (int64_t)plim__rng_u64(8, (uint64_t)k) % NODES;
            for (int64_t k = 0; k < counts[i]; k++)
                nodes[k] = nodes[k] < 0 ? -nodes[k] : nodes[k];
            small->trial.nodes = nodes;
            small->trial.count = counts[i];
            assert_ok(run(&small->world.job, &small->trial));
            compare(&small->trial, small->expected);
            assert_ok(run_tight(&small->world.job, &small->trial, 0));
            compare(&small->trial, small->expected);
        }
    nodes[0] = NODES;
    small->trial.count = 1;
    assert_int_equal(run(&small->world.job, &small->trial), PLIM_ERR_USAGE);
    small_end(small);
}

/* What the last layer reads; of a model of one layer, the features. */
static void test_embeddings(void **state)
{
    (void)state;
    for (int layers = 1; layers <= 3; layers++) {
        small_t *small = small_make();
        plim_model_t model = base_model;
        model.hidden = 16;
        model.num_layers = layers;
        test_weights_free(&small->weights);
        free(small->expected);
        small->weights = test_weights_make(&model, FEATURES, CLASSES);
        small->expected = test_reference(&small->weights, &small->world, layers - 1);
        small->trial.embeddings = true;
        small->trial.sheet.width = layers == 1 ? FEATURES : 16;
        assert_ok(run(&small->world.job, &small->trial));
        compare(&small->trial, small->expected);
        assert_ok(run_tight(&small->world.job, &small->trial, 0));
        compare(&small->trial, small->expected);
        small_end(small);
    }
}

static void test_every_failing_arena_is_survived(void **state)
{
    (void)state;
    small_t *small = small_make();
    int64_t nodes[] = {7, 3, 2999, 3};
    test_fail_each_arena(&small->world.job, run, &small->trial);
    small->trial.most_rows = 60000;
    test_fail_each_arena(&small->world.job, run, &small->trial);
    small->trial.nodes = nodes;
    small->trial.count = 4;
    test_fail_each_arena(&small->world.job, run, &small->trial);
    small_end(small);
}

/* With what weights need beside the lists, and GATv2 with features of edges. */
static void test_every_failing_arena_of_columns_is_survived(void **state)
{
    (void)state;
    static const plim__columns_t columns[] = {{.edge_weights = true},
                                              {.edge_features = 3, PLIM_F16}};
    static const test_graph_t graph = {.num_nodes = NODES,
                                       .num_features = FEATURES,
                                       .num_classes = CLASSES,
                                       .half = true,
                                       .columns = PLIM_EDGE_FEATURES | PLIM_EDGE_WEIGHT,
                                       .edge_width = 3,
                                       .edge_form = PLIM_F16,
                                       .drawable = true,
                                       .seed = 7};
    for (int i = 0; i < 2; i++) {
        small_t *small = small_make();
        plim_model_t model = base_model;
        model.hidden = 16;
        model.kind = i == 0 ? PLIM_GCN : PLIM_GATV2;
        test_weights_free(&small->weights);
        test_loader_close(&small->world);
        small->world = test_loader_open("few columns", &graph, 2, PLIM_IO_AUTO);
        small->weights = test_weights_of(&model, &columns[i], FEATURES, CLASSES);
        small->trial.most_rows = 60000;
        test_fail_each_arena(&small->world.job, run, &small->trial);
        small_end(small);
    }
}

/* Refused before anything is started, with the line that would do. */
static void test_too_little_memory_is_refused(void **state)
{
    (void)state;
    small_t *small = small_make();
    plim_job_t *job = &small->world.job;
    const size_t least = minimum_of(job, &small->trial);
    const size_t room = (size_t)plim__ledger_available(job->ledger);
    const size_t away = room - least + 4096;
    const int64_t before = plim__ledger_reserved(job->ledger);
    int account;
    assert_ok(plim__ledger_reserve(job->ledger, "away", away, &account));
    assert_int_equal(run(job, &small->trial), PLIM_ERR_BUDGET);
    assert_int_equal(small->trial.sheet.rows, 0);
    assert_non_null(strstr(plim_last_error(), "exact evaluation"));
    plim__ledger_release(job->ledger, account, away);
    assert_int_equal(plim__ledger_reserved(job->ledger), before);
    small_end(small);
}

/* A line raised step by step: it fits, or is refused and leaves nothing behind. */
static void test_any_line_fits_or_is_refused(void **state)
{
    (void)state;
    small_t *small = small_make();
    plim_job_t *job = &small->world.job;
    int64_t nodes[] = {17, 3, 2999};
    for (int some = 0; some < 2; some++) {
        small->trial.nodes = some ? nodes : NULL;
        small->trial.count = 3;
        for (size_t extra = 0; extra < 2000000; extra = extra * 2 + 5000) {
            assert_ok(run_tight(job, &small->trial, extra));
            compare(&small->trial, small->expected);
        }
    }
    small_end(small);
}

static void test_missing_weights_are_named(void **state)
{
    (void)state;
    small_t *small = small_make();
    small->weights.table[1].count--;
    assert_int_equal(run(&small->world.job, &small->trial), PLIM_ERR_USAGE);
    assert_non_null(strstr(plim_last_error(), small->weights.table[1].name));
    small->weights.table[1].count++;
    small_end(small);
}

/* Raised by the progress of the n-th report. */
static volatile int stop;
static int until_stop;

static void raise_stop(void *user, const plim_progress_t *progress)
{
    (void)user;
    assert_true(progress->done <= progress->total);
    if (--until_stop == 0)
        stop = 1;
}

static void test_stopped_anywhere(void **state)
{
    (void)state;
    small_t *small = small_make();
    plim_job_t *job = &small->world.job;
    const int64_t before = plim__ledger_reserved(job->ledger);
    job->stop = &stop;
    job->progress = raise_stop;
    small->trial.most_rows = 60000;
    plim_status_t status = PLIM_ERR_STOPPED;
    for (int n = 1; status != PLIM_OK; n += n < 10 ? 1 : 13) {
        stop = 0;
        until_stop = n;
        status = run_tight(job, &small->trial, 0);
        if (stop == 0)
            assert_ok(status);
        else if (status != PLIM_OK)
            assert_int_equal(status, PLIM_ERR_STOPPED);
        assert_int_equal(plim__ledger_reserved(job->ledger), before);
    }
    job->stop = NULL;
    job->progress = NULL;
    small_end(small);
}

static void test_what_the_taker_says_is_passed_on(void **state)
{
    (void)state;
    small_t *small = small_make();
    const int64_t before = plim__ledger_reserved(small->world.job.ledger);
    small->trial.sheet.answer = PLIM_ERR_IO;
    assert_int_equal(run(&small->world.job, &small->trial), PLIM_ERR_IO);
    assert_int_equal(plim__ledger_reserved(small->world.job.ledger), before);
    small_end(small);
}

/* An entry that is no node, at both ends of the range; a file that became shorter under us. */
static void test_damaged_lists_are_found(void **state)
{
    (void)state;
    static const int32_t wrong[] = {NODES, INT32_MAX, -1, INT32_MIN};
    small_t *small = small_make();
    const char *path = plim__dataset_path(small->world.dataset);
    char name[700];
    int64_t nodes[] = {5, 2, 900};
    (void)snprintf(name, sizeof name, "%s/indices.npy", path);
    for (int some = 0; some < 2; some++)
        for (size_t i = 0; i < 4; i++) {
            const int64_t place = some ? small->world.indptr[900] : 777;
            test_overwrite(path, "indices.npy", place, &wrong[i], sizeof wrong[i]);
            small->trial.nodes = some ? nodes : NULL;
            small->trial.count = 3;
            assert_int_equal(run(&small->world.job, &small->trial), PLIM_ERR_DATA);
            assert_non_null(strstr(plim_last_error(), "indices.npy"));
            test_overwrite(path, "indices.npy", place, &small->world.indices[place], 4);
        }
    small->trial.nodes = NULL;
    const int64_t whole = 4096 + small->world.info->num_edges * 4;
    assert_int_equal(truncate(name, whole / 2), 0);
    assert_int_equal(run(&small->world.job, &small->trial), PLIM_ERR_DATA);
    (void)remove(name);
    assert_int_equal(run(&small->world.job, &small->trial), PLIM_ERR_IO);
    small_end(small);
}

/* The most that was reserved for layers in between, in a run whose rows go through the scratch. */
static int64_t stored_peak(small_t *small)
{
    plim_account_info_t infos[48];
    plim_job_t job = test_job_make(LINE, 2, PLIM_IO_AUTO);
    int64_t peak = 0;
    small->trial.most_rows = 40000;
    assert_ok(run(&job, &small->trial));
    compare(&small->trial, small->expected);
    const int count = plim__ledger_accounts(job.ledger, 48, infos);
    for (int i = 0; i < count; i++)
        if (strcmp(infos[i].name, "exact layers") == 0)
            peak = infos[i].peak;
    test_job_end(&job);
    return peak;
}

/* A scratch directory that is none; one in memory counts as such. */
static void test_scratch(void **state)
{
    (void)state;
    small_t *small = small_make();
    char kept[sizeof scratch];
    plim__file_system_t system;
    memcpy(kept, scratch, sizeof kept);
    (void)snprintf(scratch, sizeof scratch, "%.400s/none", kept);
    assert_int_equal(run(&small->world.job, &small->trial), PLIM_ERR_USAGE);
    (void)snprintf(scratch, sizeof scratch, "/dev/shm");
    if (plim__file_system(scratch, &system) == PLIM_OK && system.memory) {
        assert_true(stored_peak(small) >= (int64_t)NODES * 16 * 4);
    } else {
        print_message("not tried: /dev/shm is not a file system in memory here\n");
    }
    memcpy(scratch, kept, sizeof kept);
    if (plim__file_system(scratch, &system) == PLIM_OK && !system.memory)
        assert_int_equal(stored_peak(small), 0);
    small_end(small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gcn),
        cmocka_unit_test(test_sage),
        cmocka_unit_test(test_gat),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_gin),
        cmocka_unit_test(test_mlp),
        cmocka_unit_test(test_nodes_in_the_order_asked_for),
        cmocka_unit_test(test_embeddings),
        cmocka_unit_test(test_every_failing_arena_is_survived),
        cmocka_unit_test(test_every_failing_arena_of_columns_is_survived),
        cmocka_unit_test(test_too_little_memory_is_refused),
        cmocka_unit_test(test_any_line_fits_or_is_refused),
        cmocka_unit_test(test_missing_weights_are_named),
        cmocka_unit_test(test_stopped_anywhere),
        cmocka_unit_test(test_what_the_taker_says_is_passed_on),
        cmocka_unit_test(test_scratch),
        cmocka_unit_test(test_damaged_lists_are_found), /* the last: "half" is gone after it */
    };
    test_directory_make(scratch);
    const int failed = cmocka_run_group_tests(tests, test_loader_begin, test_loader_end);
    test_directory_remove(scratch);
    return failed;
}
