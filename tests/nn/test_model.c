/*
 * Models: gradients against differences, the same bits for any number of threads and with
 * recomputation, parts that add up, and room that is neither exceeded nor grown.
 */
/* labels: asan tsan onednn */
#include "nn/model.h"
#include "support/batches.h"
#include "support/harness.h"

#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES ((int64_t)2 << 30)
#define SEEDS 40
#define OUTPUTS 5

typedef struct setting {
    const char *name;
    plim_model_t model;
    bool graphs;
    plim_dtype_t row_type;
    enum { NO_COLUMNS, VALUES, CATEGORIES, OF_NODES } columns;
} setting_t;

#define MODEL(kind_, layers, ...)                                                                  \
    {                                                                                              \
        .kind = (kind_), .num_layers = (layers), .hidden = 12, .activation = PLIM_ELU, __VA_ARGS__ \
    }

static const setting_t settings[] = {
    {"mlp", MODEL(PLIM_MLP, 3, .norm = PLIM_NORM_LAYER, .dropout = 0.3f), false, PLIM_F16,
     NO_COLUMNS},
    {"mlp of one layer", MODEL(PLIM_MLP, 1, .dropout = 0), false, PLIM_F32, NO_COLUMNS},
    {"gcn", MODEL(PLIM_GCN, 2, .dropout = 0.5f), false, PLIM_F16, NO_COLUMNS},
    {"gcn of one layer", MODEL(PLIM_GCN, 1, .dropout = 0.5f), false, PLIM_F32, NO_COLUMNS},
    {"gcn, weights", MODEL(PLIM_GCN, 3, .dropout = 0.2f), false, PLIM_F32, VALUES},
    {"gcn, residual", MODEL(PLIM_GCN, 3, .residual = true, .norm = PLIM_NORM_LAYER), false,
     PLIM_F32, NO_COLUMNS},
    {"gcn, batch norm", MODEL(PLIM_GCN, 3, .norm = PLIM_NORM_BATCH), false, PLIM_F32, NO_COLUMNS},
    {"sage", MODEL(PLIM_SAGE, 3, .dropout = 0.2f), false, PLIM_F16, NO_COLUMNS},
    {"sage, residual", MODEL(PLIM_SAGE, 3, .residual = true), false, PLIM_F32, NO_COLUMNS},
    {"sage, max", MODEL(PLIM_SAGE, 2, .aggregation = PLIM_MAX), false, PLIM_F32, NO_COLUMNS},
    {"sage, sum", MODEL(PLIM_SAGE, 2, .aggregation = PLIM_SUM), false, PLIM_F32, NO_COLUMNS},
    {"gin", MODEL(PLIM_GIN, 3, .dropout = 0.2f), false, PLIM_F16, NO_COLUMNS},
    {"gin, batch norm", MODEL(PLIM_GIN, 2, .norm = PLIM_NORM_BATCH), false, PLIM_F32, NO_COLUMNS},
    {"gine", MODEL(PLIM_GINE, 3, .dropout = 0.2f), false, PLIM_F16, VALUES},
    {"gine of one layer", MODEL(PLIM_GINE, 1), false, PLIM_F32, VALUES},
    {"gine, residual", MODEL(PLIM_GINE, 2, .residual = true), false, PLIM_F32, VALUES},
    {"gine, categories", MODEL(PLIM_GINE, 2), false, PLIM_F32, CATEGORIES},
    {"gcn, categories", MODEL(PLIM_GCN, 2, .dropout = 0.2f), false, PLIM_F32, OF_NODES},
    {"sage, categories", MODEL(PLIM_SAGE, 2, .aggregation = PLIM_MAX), false, PLIM_F32, OF_NODES},
    {"mlp, categories", MODEL(PLIM_MLP, 2), false, PLIM_F32, OF_NODES},
    {"gat, categories", MODEL(PLIM_GAT, 2, .heads = 2), false, PLIM_F32, OF_NODES},
    {"gat", MODEL(PLIM_GAT, 2, .dropout = 0.3f, .heads = 3), false, PLIM_F16, NO_COLUMNS},
    {"gat, residual", MODEL(PLIM_GAT, 3, .residual = true, .heads = 2), false, PLIM_F32,
     NO_COLUMNS},
    {"gat, features", MODEL(PLIM_GAT, 3, .dropout = 0.3f, .heads = 3), false, PLIM_F16, VALUES},
    {"gat of one layer, features", MODEL(PLIM_GAT, 1, .heads = 2), false, PLIM_F32, VALUES},
    {"gatv2", MODEL(PLIM_GATV2, 2, .dropout = 0.3f, .heads = 3), false, PLIM_F16, NO_COLUMNS},
    {"gatv2, residual", MODEL(PLIM_GATV2, 3, .residual = true, .heads = 2), false, PLIM_F32,
     NO_COLUMNS},
    {"gatv2, features", MODEL(PLIM_GATV2, 3, .dropout = 0.3f, .heads = 2), false, PLIM_F16, VALUES},
    {"graphs, gatv2", MODEL(PLIM_GATV2, 2, .heads = 2), true, PLIM_F32, VALUES},
    {"rgcn", MODEL(PLIM_RGCN, 3, .dropout = 0.2f), false, PLIM_F16, VALUES},
    {"rgcn of one layer", MODEL(PLIM_RGCN, 1), false, PLIM_F32, VALUES},
    {"rgcn, residual", MODEL(PLIM_RGCN, 2, .residual = true), false, PLIM_F32, VALUES},
    {"rgcn, categories", MODEL(PLIM_RGCN, 2), false, PLIM_F32, OF_NODES},
    {"graphs, rgcn", MODEL(PLIM_RGCN, 2, .norm = PLIM_NORM_BATCH), true, PLIM_F32, VALUES},
    {"graphs, gcn", MODEL(PLIM_GCN, 2, .dropout = 0.2f, .pool = PLIM_POOL_MEAN), true, PLIM_F32,
     false},
    {"graphs, gcn, weights", MODEL(PLIM_GCN, 2), true, PLIM_F32, VALUES},
    {"graphs, gin", MODEL(PLIM_GIN, 3, .norm = PLIM_NORM_BATCH, .pool = PLIM_POOL_ADD), true,
     PLIM_F32, NO_COLUMNS},
    {"graphs, gine", MODEL(PLIM_GINE, 3, .norm = PLIM_NORM_BATCH, .pool = PLIM_POOL_ADD), true,
     PLIM_F16, VALUES},
    {"graphs, gine, categories", MODEL(PLIM_GINE, 2, .residual = true), true, PLIM_F32, OF_NODES},
    {"graphs, gat", MODEL(PLIM_GAT, 2, .heads = 2, .pool = PLIM_POOL_MAX), true, PLIM_F16,
     NO_COLUMNS},
    {"graphs, mlp", MODEL(PLIM_MLP, 2, .pool = PLIM_POOL_MEAN), true, PLIM_F32, NO_COLUMNS},
};
#define NUM_SETTINGS (sizeof settings / sizeof settings[0])

static int64_t features_of(const setting_t *setting)
{
    return setting->model.residual ? setting->model.hidden : 9;
}

static test_batch_shape_t shape_of(const setting_t *setting)
{
    test_batch_shape_t shape = {.num_nodes = 300,
                                .num_features = features_of(setting),
                                .row_type = setting->row_type,
                                .num_hops = setting->model.num_layers,
                                .graphs = setting->graphs};
    for (int i = 0; i < PLIM_HOPS_MAX; i++)
        shape.fanout[i] = setting->graphs ? 7 : 3;
    return shape;
}

static plim__columns_t columns_of(const setting_t *setting)
{
    const plim_model_kind_t kind = setting->model.kind;
    const bool values = setting->columns == VALUES || kind == PLIM_RGCN;
    plim__columns_t columns = {0};
    if (values)
        columns = test_columns_of(kind, setting->row_type);
    else if (kind == PLIM_GINE)
        columns.edge_categories = (plim__categories_t)TEST_EDGE_CATEGORIES;
    if (setting->columns == OF_NODES)
        columns.node_categories = (plim__categories_t)TEST_NODE_CATEGORIES;
    return columns;
}

static plim__model_params_t params_of(const setting_t *setting, const plim_batch_t *batch,
                                      int threads)
{
    const int layers = setting->model.num_layers;
    plim__model_params_t params = {.model = setting->model,
                                   .num_features = features_of(setting),
                                   .num_outputs = OUTPUTS,
                                   .row_type = setting->row_type,
                                   .graph_level = setting->graphs,
                                   .training = true,
                                   .moments = 2,
                                   .workers = threads,
                                   .max_src = batch->num_nodes,
                                   .max_seeds = batch->num_seeds,
                                   .columns = columns_of(setting)};
    for (int i = 0; i < layers; i++)
        params.max_dst[i] =
            setting->graphs ? batch->num_nodes : batch->blocks[layers - 1 - i].num_dst;
    for (int i = 0; i < batch->num_blocks; i++)
        params.max_edges += batch->blocks[i].num_edges;
    return params;
}

/* A model, its team and a batch that it was made for. */
typedef struct bed {
    plim_job_t job;
    plim__team_t *team;
    plim__model_t *model;
    plim__parameter_t *parameters;
    int count;
    test_batch_t batch;
} bed_t;

static bed_t bed_make(const setting_t *setting, int threads)
{
    bed_t bed = {.job = test_job_make(LINE_BYTES, threads, PLIM_IO_AUTO)};
    const test_batch_shape_t shape = shape_of(setting);
    test_batch_make(&shape, 0, SEEDS, &bed.batch);
    const plim__model_params_t params = params_of(setting, &bed.batch.batch, threads);
    assert_ok(plim__team_create(bed.job.ledger, threads, &bed.team));
    assert_ok(plim__model_create(bed.job.ledger, bed.team, &params, &bed.model));
    plim__model_initialise(bed.model, 3);
    bed.parameters = plim__model_parameters(bed.model, &bed.count);
    return bed;
}

static void bed_end(bed_t *bed)
{
    plim__model_destroy(bed->model);
    plim__team_destroy(bed->team);
    test_batch_free(&bed->batch);
    test_job_end(&bed->job);
}

static const plim__pass_t training_pass = {.training = true, .seed = 9, .epoch = 2, .step = 5};

/* Sum over seeds of c·o + o·o/2, c being the seed's own, and its gradient. */
static double loss_of(const plim_batch_t *batch, int64_t first, const float *outputs,
                      float *doutputs)
{
    double sum = 0;
    for (int64_t v = 0; v < batch->num_seeds; v++)
        for (int64_t i = 0; i < OUTPUTS; i++) {
            const float own = test_hash_float((uint64_t)(first + v), (uint64_t)i, 77);
            const float output = outputs[v * OUTPUTS + i];
            sum += (double)own * (double)output + 0.5 * (double)output * (double)output;
            doutputs[v * OUTPUTS + i] = own + output;
        }
    return sum;
}

static double run_forward(bed_t *bed, const test_batch_t *batch, int64_t first, float *doutputs)
{
    plim__model_output_t output;
    plim__pass_t pass = training_pass;
    pass.columns = &batch->columns;
    assert_ok(plim__model_forward(bed->model, &batch->batch, &pass, &output));
    return loss_of(&batch->batch, first, output.outputs, doutputs);
}

static double run_step(bed_t *bed, const test_batch_t *batch, int64_t first)
{
    static float doutputs[SEEDS * OUTPUTS];
    const double loss = run_forward(bed, batch, first, doutputs);
    assert_ok(plim__model_backward(bed->model, &batch->batch, doutputs));
    return loss;
}

static void clear_gradients(bed_t *bed)
{
    for (int i = 0; i < bed->count; i++)
        if (bed->parameters[i].gradient != NULL)
            memset(bed->parameters[i].gradient, 0, (size_t)bed->parameters[i].count * 4);
}

static void move_values(bed_t *bed, plim__parameter_t *parameter, uint64_t key, float by)
{
    for (int64_t k = 0; k < parameter->count; k++)
        parameter->value[k] += by * test_hash_float(key, (uint64_t)k, 31);
    plim__model_changed(bed->model);
}

/* Along a random direction of one tensor. */
static void check_parameter(const setting_t *setting, bed_t *bed, int index)
{
    static float unused[SEEDS * OUTPUTS];
    plim__parameter_t *parameter = &bed->parameters[index];
    const test_batch_t *batch = &bed->batch;
    /* An edge's message has a kink: the difference must not cross many of them. */
    const bool kinks = setting->model.kind == PLIM_GINE || setting->model.kind == PLIM_GATV2;
    const float by = kinks ? 1e-4f : 1e-3f;
    double expected = 0;
    double length = 0;
    for (int64_t k = 0; k < parameter->count; k++) {
        const double along = (double)test_hash_float((uint64_t)index, (uint64_t)k, 31);
        expected += along * (double)parameter->gradient[k];
        length += fabs(along * (double)parameter->gradient[k]);
    }
    move_values(bed, parameter, (uint64_t)index, by);
    const double above = run_forward(bed, batch, 0, unused);
    move_values(bed, parameter, (uint64_t)index, -2 * by);
    const double under = run_forward(bed, batch, 0, unused);
    move_values(bed, parameter, (uint64_t)index, by);
    const double measured = (above - under) / (2 * (double)by);
    const double allowed = 0.01 * fabs(expected) + 2e-3 * length + (kinks ? 0.1 : 2e-2);
    if (fabs(measured - expected) > allowed)
        fail_msg("%s: %s: gradient %g, measured %g", setting->name, parameter->name, expected,
                 measured);
}

static void test_gradients_agree_with_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        bed_t bed = bed_make(&settings[i], 2);
        clear_gradients(&bed);
        (void)run_step(&bed, &bed.batch, 0);
        plim__model_gather_gradients(bed.model);
        for (int k = 0; k < bed.count; k++)
            if (bed.parameters[k].gradient != NULL)
                check_parameter(&settings[i], &bed, k);
        bed_end(&bed);
    }
}

/* Gradients of one step, one after the other; the caller frees them. */
static float *step_gradients(const setting_t *setting, int threads, int64_t part,
                             int64_t *count_out)
{
    bed_t bed = bed_make(setting, threads);
    const test_batch_shape_t shape = shape_of(setting);
    int64_t total = 0;
    for (int64_t first = 0; first < SEEDS; first += part) {
        test_batch_t some;
        test_batch_make(&shape, first, part < SEEDS - first ? part : SEEDS - first, &some);
        (void)run_step(&bed, &some, first);
        test_batch_free(&some);
    }
    plim__model_gather_gradients(bed.model);
    for (int i = 0; i < bed.count; i++)
        total += bed.parameters[i].count;
    float *all = calloc((size_t)total + 1, sizeof *all);
    assert_non_null(all);
    int64_t at = 0;
    for (int i = 0; i < bed.count; i++) {
        const plim__parameter_t *parameter = &bed.parameters[i];
        /* Of a buffer, what became of it. */
        memcpy(all + at, parameter->gradient != NULL ? parameter->gradient : parameter->value,
               (size_t)parameter->count * sizeof *all);
        at += parameter->count;
    }
    bed_end(&bed);
    *count_out = total;
    return all;
}

static void check_same_bits(const setting_t *one, int threads, const setting_t *other)
{
    int64_t count;
    float *first = step_gradients(one, 1, SEEDS, &count);
    float *second = step_gradients(other, threads, SEEDS, &count);
    if (memcmp(first, second, (size_t)count * sizeof *first) != 0)
        fail_msg("%s: other bits", one->name);
    free(first);
    free(second);
}

static void test_threads_give_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        check_same_bits(&settings[i], 2, &settings[i]);
        check_same_bits(&settings[i], 3, &settings[i]);
    }
}

static void test_recomputing_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_SETTINGS; i++)
        for (int precision = 0; precision < 2; precision++) {
            setting_t kept = settings[i];
            kept.model.precision = (plim_precision_t)precision;
            setting_t again = kept;
            again.model.recompute = true;
            check_same_bits(&kept, 2, &again);
        }
}

static void test_parts_add_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        if (settings[i].model.norm == PLIM_NORM_BATCH)
            continue; /* is never split */
        int64_t count;
        float *whole = step_gradients(&settings[i], 2, SEEDS, &count);
        float *parts = step_gradients(&settings[i], 2, 13, &count);
        double largest = 0;
        double apart = 0;
        for (int64_t k = 0; k < count; k++) {
            largest = fmax(largest, fabs((double)whole[k]));
            apart = fmax(apart, fabs((double)whole[k] - (double)parts[k]));
        }
        if (apart > 1e-6 * largest)
            fail_msg("%s: gradients up to %g differ by %g", settings[i].name, largest, apart);
        free(whole);
        free(parts);
    }
}

static void test_outside_training_nothing_is_random(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        bed_t bed = bed_make(&settings[i], 2);
        const plim__batch_columns_t *columns = &bed.batch.columns;
        const plim__pass_t passes[] = {
            {.seed = 1, .embeddings = true, .columns = columns},
            {.seed = 2, .epoch = 3, .step = 4, .embeddings = true, .columns = columns}};
        float first[SEEDS * OUTPUTS];
        plim__model_output_t output;
        for (int k = 0; k < 2; k++) {
            assert_ok(plim__model_forward(bed.model, &bed.batch.batch, &passes[k], &output));
            if (k == 0)
                memcpy(first, output.outputs, sizeof first);
        }
        assert_memory_equal(first, output.outputs, sizeof first);
        assert_non_null(output.embeddings);
        if (!settings[i].graphs && settings[i].model.num_layers == 1) {
            assert_int_equal(output.embedding_width, features_of(&settings[i]));
            assert_true(output.embeddings[1] == test_hash_float(0, 1, 5));
        }
        bed_end(&bed);
    }
}

static const float *values_of(const bed_t *bed, const char *name)
{
    for (int i = 0; i < bed->count; i++)
        if (strcmp(bed->parameters[i].name, name) == 0)
            return bed->parameters[i].value;
    fail_msg("no %s", name);
    return bed->parameters[0].value;
}

/* The last layer is linear in what it read: an MLP's outputs follow from its embeddings. */
static void test_embeddings_are_what_the_last_layer_read(void **state)
{
    (void)state;
    for (int precision = 0; precision < 2; precision++) {
        setting_t setting = settings[0];
        setting.model.precision = (plim_precision_t)precision;
        bed_t bed = bed_make(&setting, 1);
        plim__model_output_t output;
        const plim__pass_t pass = {.embeddings = true};
        assert_ok(plim__model_forward(bed.model, &bed.batch.batch, &pass, &output));
        const float *weight = values_of(&bed, "lins.2.weight");
        const float *bias = values_of(&bed, "lins.2.bias");
        const int64_t width = output.embedding_width;
        const int64_t row = 7;
        for (int64_t k = 0; k < OUTPUTS; k++) {
            float sum = bias[k];
            for (int64_t i = 0; i < width; i++)
                sum += weight[k * width + i] * output.embeddings[row * width + i];
            assert_true(fabsf(sum - output.outputs[row * OUTPUTS + k]) <
                        (precision == 0 ? 1e-5f : 2e-2f));
        }
        bed_end(&bed);
    }
}

static void test_a_step_allocates_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        bed_t bed = bed_make(&settings[i], 2);
        int64_t reserved = 0;
        size_t heap = 0;
        for (int step = 0; step < 23; step++) {
            if (step == 8) { /* oneDNN has made what it keeps, and malloc caches what it frees */
                reserved = plim__ledger_reserved(bed.job.ledger);
                heap = mallinfo2().uordblks;
            }
            (void)run_step(&bed, &bed.batch, 0);
            plim__model_gather_gradients(bed.model);
            plim__model_changed(bed.model);
        }
        assert_int_equal(plim__ledger_reserved(bed.job.ledger), reserved);
        assert_int_equal(mallinfo2().uordblks, heap);
        bed_end(&bed);
    }
}

static plim_status_t create_once(plim_job_t *job, void *context)
{
    const plim__model_params_t *params = context;
    plim__team_t *team = NULL;
    plim__model_t *model = NULL;
    plim_status_t status = plim__team_create(job->ledger, 2, &team);
    if (status == PLIM_OK)
        status = plim__model_create(job->ledger, team, params, &model);
    plim__model_destroy(model);
    plim__team_destroy(team);
    return status;
}

static void test_every_failing_arena_is_survived(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(LINE_BYTES, 2, PLIM_IO_AUTO);
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        test_batch_t batch;
        const test_batch_shape_t shape = shape_of(&settings[i]);
        test_batch_make(&shape, 0, SEEDS, &batch);
        plim__model_params_t params = params_of(&settings[i], &batch.batch, 2);
        test_fail_each_arena(&job, create_once, &params);
        test_batch_free(&batch);
    }
    test_job_end(&job);
}

/* No more is reserved than the estimate, and a batch as large as the model was made for fits. */
static void test_the_estimate_is_enough(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_SETTINGS; i++)
        for (int variant = 0; variant < 4; variant++) {
            setting_t setting = settings[i];
            setting.model.recompute = variant % 2 != 0;
            setting.model.precision = variant / 2 != 0 ? PLIM_PRECISION_BF16 : PLIM_PRECISION_F32;
            bed_t bed = bed_make(&setting, 2);
            const plim__model_params_t params = params_of(&setting, &bed.batch.batch, 2);
            const int64_t with = plim__ledger_reserved(bed.job.ledger);
            plim__model_destroy(bed.model);
            const int64_t without = plim__ledger_reserved(bed.job.ledger);
            assert_true(with - without <= (int64_t)plim__model_estimate(&params));
            assert_ok(plim__model_create(bed.job.ledger, bed.team, &params, &bed.model));
            plim__model_initialise(bed.model, 3);
            (void)run_step(&bed, &bed.batch, 0);
            bed_end(&bed);
        }
}

static void test_larger_parts_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        bed_t bed = bed_make(&settings[i], 2);
        test_batch_t larger;
        const test_batch_shape_t shape = shape_of(&settings[i]);
        test_batch_make(&shape, 0, SEEDS + 1, &larger);
        plim__model_output_t output;
        assert_int_equal(plim__model_forward(bed.model, &larger.batch, &training_pass, &output),
                         PLIM_ERR_USAGE);
        test_batch_free(&larger);
        bed_end(&bed);
    }
}

static void test_unknown_categories_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        const plim__columns_t columns = columns_of(&settings[i]);
        bed_t bed = bed_make(&settings[i], 2);
        plim__model_output_t output;
        plim__pass_t pass = training_pass;
        pass.columns = &bed.batch.columns;
        for (int k = 0; k < 2; k++) {
            const int count =
                k == 0 ? columns.edge_categories.columns : columns.node_categories.columns;
            int64_t *values = k == 0 ? bed.batch.edge_categories : bed.batch.node_categories;
            for (int which = 0; which < count; which++) {
                const int64_t kept = values[which];
                values[which] = which % 2 == 0 ? -1 : 4;
                assert_int_equal(plim__model_forward(bed.model, &bed.batch.batch, &pass, &output),
                                 PLIM_ERR_DATA);
                values[which] = kept;
            }
        }
        bed_end(&bed);
    }
}

/* A batch without the columns that the model reads. */
static void test_missing_columns_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        if (settings[i].columns == NO_COLUMNS)
            continue;
        bed_t bed = bed_make(&settings[i], 2);
        plim__model_output_t output;
        const plim__batch_columns_t none = {0};
        plim__pass_t pass = training_pass;
        for (int k = 0; k < 2; k++, pass.columns = &none)
            assert_int_equal(plim__model_forward(bed.model, &bed.batch.batch, &pass, &output),
                             PLIM_ERR_USAGE);
        bed_end(&bed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_agree_with_differences),
        cmocka_unit_test(test_threads_give_the_same_bits),
        cmocka_unit_test(test_recomputing_gives_the_same_bits),
        cmocka_unit_test(test_parts_add_up),
        cmocka_unit_test(test_outside_training_nothing_is_random),
        cmocka_unit_test(test_embeddings_are_what_the_last_layer_read),
        cmocka_unit_test(test_a_step_allocates_nothing),
        cmocka_unit_test(test_every_failing_arena_is_survived),
        cmocka_unit_test(test_the_estimate_is_enough),
        cmocka_unit_test(test_larger_parts_are_refused),
        cmocka_unit_test(test_missing_columns_are_refused),
        cmocka_unit_test(test_unknown_categories_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
