/* Exact outputs are those of the very same model on batches of whole neighbourhoods. */
/* labels: asan tsan */
#include "load/loader.h"
#include "support/harness.h"
#include "support/loader.h"

#include "infer/exact.h"
#include "nn/model.h"
#include "plan/plan_settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NODES 1200
#define FEATURES 20
#define CLASSES 6
#define BATCH 400

#define EDGE_FEATURES 3
#define EDGE_TYPES 7

static const test_graph_t graph = {.num_nodes = NODES,
                                   .num_features = FEATURES,
                                   .num_classes = CLASSES,
                                   .half = true,
                                   .columns =
                                       PLIM_EDGE_FEATURES | PLIM_EDGE_WEIGHT | PLIM_EDGE_TYPE,
                                   .edge_width = EDGE_FEATURES,
                                   .edge_form = PLIM_F16,
                                   .drawable = true,
                                   .seed = 21};
static char scratch[512];

typedef struct world {
    test_loader_t data;
    plim__team_t *team;
    plim__model_t *model;
    plim_loader_t *loader;
} world_t;

/* In place: the loader keeps the job's address. */
static void world_make(world_t *world, const plim_model_t *model, const plim__columns_t *columns)
{
    *world = (world_t){.data = test_loader_open("batches", &graph, 2, PLIM_IO_AUTO)};
    plim_recipe_t recipe = test_two_hops;
    recipe.batch_size = BATCH;
    recipe.num_hops = model->kind == PLIM_MLP ? 0 : model->num_layers;
    recipe.degrees = true;
    recipe.skip_loops = model->kind == PLIM_GCN && !model->loops_twice && !columns->edge_weights;
    recipe.columns = (columns->edge_features > 0 ? PLIM_EDGE_FEATURES : 0U) |
                     (columns->edge_weights ? PLIM_EDGE_WEIGHT : 0U) |
                     (columns->edge_types > 0 ? PLIM_EDGE_TYPE : 0U);
    recipe.row_type = PLIM_F16;
    for (int i = 0; i < recipe.num_hops; i++)
        recipe.fanout[i] = -1;
    const plim__load_plan_t plan = test_plan_memory(world->data.info, &recipe, 2);
    plim__model_params_t params = {.model = *model,
                                   .num_features = FEATURES,
                                   .num_outputs = CLASSES,
                                   .row_type = PLIM_F16,
                                   .workers = 2,
                                   .max_src = NODES,
                                   .max_edges = plan.slot_edges,
                                   .max_seeds = BATCH,
                                   .columns = *columns};
    for (int i = 0; i < model->num_layers; i++)
        params.max_dst[i] = NODES;
    assert_ok(plim__team_create(world->data.job.ledger, 2, &world->team));
    assert_ok(plim__model_create(world->data.job.ledger, world->team, &params, &world->model));
    plim__model_initialise(world->model, 5);
    assert_ok(plim__loader_create(&world->data.job, world->data.dataset, &plan, &world->loader));
}

static void world_end(world_t *world)
{
    plim_loader_release(world->loader);
    plim__model_destroy(world->model);
    plim__team_destroy(world->team);
    test_loader_close(&world->data);
}

/* Norms that have seen something, and biases that are not zero; features of edges, which are large,
 * weigh little. */
static void move_parameters(world_t *world, bool gine)
{
    int count;
    plim__parameter_t *parameters = plim__model_parameters(world->model, &count);
    for (int i = 0; i < count; i++)
        for (int64_t k = 0; k < parameters[i].count; k++)
            parameters[i].value[k] = (parameters[i].value[k] + (float)((k * 7 + i) % 11) * 0.02f) *
                                     (strstr(parameters[i].name, "edge") != NULL ||
                                              (gine && strstr(parameters[i].name, ".lin.") != NULL)
                                          ? 0.002f
                                          : 1.0f);
    plim__model_changed(world->model);
}

/* The validation split's outputs and embeddings, batch by batch. */
static int64_t by_batches(world_t *world, float *outputs, float *embeddings)
{
    int64_t rows = 0;
    assert_ok(plim_stream_start(test_stream(world->loader, PLIM_VALID), 0, 0));
    for (;;) {
        plim_batch_t *batch;
        plim__model_output_t output;
        assert_ok(plim_stream_next(test_stream(world->loader, PLIM_VALID), -1, &batch));
        if (batch == NULL)
            return rows;
        const plim__batch_columns_t columns = plim__plan_settings_batch(batch);
        const plim__pass_t pass = {.embeddings = true, .columns = &columns};
        assert_ok(plim__model_forward(world->model, batch, &pass, &output));
        memcpy(outputs + rows * CLASSES, output.outputs,
               (size_t)(batch->num_seeds * CLASSES) * sizeof(float));
        memcpy(embeddings + rows * output.embedding_width, output.embeddings,
               (size_t)(batch->num_seeds * output.embedding_width) * sizeof(float));
        rows += batch->num_seeds;
        plim_batch_release(batch);
    }
}

typedef struct sheet {
    float *values;
    int64_t rows, width;
} sheet_t;

static plim_status_t take(void *context, int64_t first, int64_t rows, int64_t width,
                          const float *outputs)
{
    sheet_t *sheet = context;
    assert_int_equal(first, sheet->rows);
    memcpy(sheet->values + first * width, outputs, (size_t)(rows * width) * sizeof(float));
    sheet->rows += rows;
    sheet->width = width;
    return PLIM_OK;
}

static void compare(const sheet_t *exact, const float *expected, const char *what)
{
    for (int64_t i = 0; i < exact->rows; i++) {
        float scale = 0.1f;
        for (int64_t j = 0; j < exact->width; j++)
            scale = fmaxf(scale, fabsf(expected[i * exact->width + j]));
        for (int64_t j = 0; j < exact->width; j++) {
            const int64_t at = i * exact->width + j;
            if (!(fabsf(exact->values[at] - expected[at]) <= 1e-5f * scale))
                fail_msg("%s: row %lld column %lld: %.9g exactly, %.9g in batches", what,
                         (long long)i, (long long)j, (double)exact->values[at],
                         (double)expected[at]);
        }
    }
}

static void check_columns(const plim_model_t *model, const plim__columns_t *columns,
                          const char *what)
{
    world_t world;
    float *outputs = calloc((size_t)NODES * CLASSES, sizeof *outputs);
    float *embeddings = calloc((size_t)NODES * 64, sizeof *embeddings);
    float *values = calloc((size_t)NODES * 64, sizeof *values);
    plim__exact_params_t params = {.model = *model,
                                   .columns = *columns,
                                   .num_outputs = CLASSES,
                                   .scratch = scratch,
                                   .most_rows = 40000};
    world_make(&world, model, columns);
    params.parameters = plim__model_parameters(world.model, &params.num_parameters);
    move_parameters(&world, model->kind == PLIM_GINE);
    const int64_t rows = by_batches(&world, outputs, embeddings);
    assert_int_equal(rows, world.data.info->num_split[PLIM_VALID]);
    for (int embedded = 0; embedded < 2; embedded++) {
        sheet_t sheet = {.values = values};
        params.embeddings = embedded != 0;
        assert_ok(plim__exact_run(&world.data.job, world.data.dataset, &params,
                                  world.data.splits[PLIM_VALID], rows, take, &sheet));
        assert_int_equal(sheet.rows, rows);
        compare(&sheet, embedded ? embeddings : outputs, what);
    }
    free(values);
    free(embeddings);
    free(outputs);
    world_end(&world);
}

static void check(const plim_model_t *model, const char *what)
{
    const plim__columns_t none = {.edge_features = 0};
    check_columns(model, &none, what);
}

static void test_every_kind(void **state)
{
    (void)state;
    static const char *const names[] = {"MLP", "GCN", "SAGE", "GAT", "GIN"};
    for (int kind = PLIM_MLP; kind <= PLIM_GIN; kind++)
        for (int layers = 1; layers <= 3; layers++) {
            plim_model_t model = PLIM_MODEL_INIT;
            model.kind = (plim_model_kind_t)kind;
            model.num_layers = layers;
            model.hidden = layers == 2 ? 12 : 24;
            model.heads = kind == PLIM_GAT ? 4 : 1;
            model.norm = (plim_norm_t)(layers - 1);
            model.residual = layers == 3;
            model.activation = layers == 2 ? PLIM_ELU : PLIM_RELU;
            model.dropout = 0.5f; /* of training alone */
            model.aggregation = layers == 2 ? PLIM_MAX : PLIM_MEAN;
            check(&model, names[kind]);
        }
}

static void test_columns(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        plim_model_kind_t kind;
        plim__columns_t columns;
    } kinds[] = {{"GCN with weights", PLIM_GCN, {.edge_weights = true}},
                 {"GAT with features", PLIM_GAT, {.edge_features = EDGE_FEATURES, PLIM_F16}},
                 {"GATv2", PLIM_GATV2, {0}},
                 {"GATv2 with features", PLIM_GATV2, {.edge_features = EDGE_FEATURES, PLIM_F16}},
                 {"GINE", PLIM_GINE, {.edge_features = EDGE_FEATURES, PLIM_F16}},
                 {"R-GCN", PLIM_RGCN, {.edge_types = EDGE_TYPES, .bases = 3}}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (int layers = 1; layers <= 3; layers++) {
            plim_model_t model = PLIM_MODEL_INIT;
            model.kind = kinds[i].kind;
            model.num_layers = layers;
            model.hidden = layers == 2 ? 12 : 24;
            model.heads = kinds[i].kind == PLIM_GAT || kinds[i].kind == PLIM_GATV2 ? 4 : 1;
            model.norm = (plim_norm_t)(layers - 1);
            model.residual = layers == 3;
            check_columns(&model, &kinds[i].columns, kinds[i].name);
        }
}

/* A run that counts self-loops twice is evaluated as it was trained. */
static void test_loops_twice(void **state)
{
    (void)state;
    plim_model_t model = PLIM_MODEL_INIT;
    model.hidden = 12;
    model.loops_twice = true;
    check(&model, "GCN with loops twice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_kind),
                                       cmocka_unit_test(test_columns),
                                       cmocka_unit_test(test_loops_twice)};
    test_directory_make(scratch);
    const int failed = cmocka_run_group_tests(tests, test_loader_begin, test_loader_end);
    test_directory_remove(scratch);
    return failed;
}
