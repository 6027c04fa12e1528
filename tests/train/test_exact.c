/*
 * Exact outputs against a plain reference in double precision, for every kind of model; and the
 * same bits whatever the memory, the threads, the engine, and the order asked for.
 */
#include "support/harness.h"
#include "support/lists.h"
#include "support/loader.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/half.h"
#include "base/rng.h"
#include "mem/arena.h"
#include "nn/vector.h"
#include "train/exact.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NODES 3000
#define FEATURES 24
#define LINE ((int64_t)1 << 30)
#define CLASSES 5
#define PARAMETERS_MAX 64

/* A model with weights of all names that PyG would give it. */
typedef struct weights {
    plim_model_t model;
    int64_t num_features;
    int count;
    plim__parameter_t table[PARAMETERS_MAX];
} weights_t;

static void add(weights_t *weights, const char *list, int index, const char *rest, int64_t count,
                double low, double high)
{
    plim__parameter_t *parameter = &weights->table[weights->count];
    const uint64_t key = plim__rng_key(5, (uint64_t)weights->count, 0, 0);
    assert_true(weights->count < PARAMETERS_MAX);
    (void)snprintf(parameter->name, sizeof parameter->name, "%s.%d.%s", list, index, rest);
    parameter->count = count;
    parameter->value = calloc((size_t)count, sizeof(float));
    for (int64_t i = 0; i < count; i++)
        parameter->value[i] = (float)(low + (high - low) * plim__rng_double(key, (uint64_t)i));
    weights->count++;
}

static void add_norm(weights_t *weights, const char *list, int index, const char *prefix,
                     int64_t width)
{
    const bool batch = weights->model.norm == PLIM_NORM_BATCH;
    char name[64];
    if (weights->model.norm == PLIM_NORM_NONE)
        return;
    static const char *const parts[] = {"weight", "bias", "running_mean", "running_var"};
    for (int i = 0; i < (batch ? 4 : 2); i++) {
        (void)snprintf(name, sizeof name, "%s%s%s", prefix, batch ? "module." : "", parts[i]);
        add(weights, list, index, name, width, i == 0 || i == 3 ? 0.5 : -0.3, i == 3 ? 2.0 : 1.0);
    }
}

static weights_t make_weights(const plim_model_t *model, int64_t num_features)
{
    weights_t weights = {.model = *model, .num_features = num_features};
    for (int i = 0; i < model->num_layers; i++) {
        const bool last = i == model->num_layers - 1;
        const int64_t in = i == 0 ? num_features : model->hidden;
        const int64_t out = last ? CLASSES : model->hidden;
        const int64_t wide = model->kind == PLIM_GAT && last ? out * model->heads : out;
        switch (model->kind) {
        case PLIM_MLP:
            add(&weights, "lins", i, "weight", out * in, -0.5, 0.5);
            add(&weights, "lins", i, "bias", out, -0.5, 0.5);
            break;
        case PLIM_GCN:
            add(&weights, "convs", i, "lin.weight", out * in, -0.5, 0.5);
            add(&weights, "convs", i, "bias", out, -0.5, 0.5);
            break;
        case PLIM_SAGE:
            add(&weights, "convs", i, "lin_l.weight", out * in, -0.5, 0.5);
            add(&weights, "convs", i, "lin_l.bias", out, -0.5, 0.5);
            add(&weights, "convs", i, "lin_r.weight", out * in, -0.5, 0.5);
            break;
        case PLIM_GAT:
            add(&weights, "convs", i, "lin.weight", wide * in, -0.5, 0.5);
            add(&weights, "convs", i, "att_src", wide, -1, 1);
            add(&weights, "convs", i, "att_dst", wide, -1, 1);
            add(&weights, "convs", i, "bias", out, -0.5, 0.5);
            break;
        case PLIM_GIN:
            add(&weights, "convs", i, "eps", 1, i == 0 ? 0.25 : 0, i == 0 ? 0.25 : 0);
            add(&weights, "convs", i, "nn.lins.0.weight", out * in, -0.2, 0.2);
            add(&weights, "convs", i, "nn.lins.0.bias", out, -0.5, 0.5);
            add_norm(&weights, "convs", i, "nn.norms.0.", out);
            add(&weights, "convs", i, "nn.lins.1.weight", out * out, -0.5, 0.5);
            add(&weights, "convs", i, "nn.lins.1.bias", out, -0.5, 0.5);
            break;
        }
        if (!last)
            add_norm(&weights, "norms", i, "", out);
    }
    return weights;
}

static void free_weights(weights_t *weights)
{
    for (int i = 0; i < weights->count; i++)
        free(weights->table[i].value);
}

static const float *value(const weights_t *weights, const char *list, int index, const char *rest)
{
    char name[PLIM__NAME_MAX];
    (void)snprintf(name, sizeof name, "%s.%d.%s", list, index, rest);
    for (int i = 0; i < weights->count; i++)
        if (strcmp(weights->table[i].name, name) == 0)
            return weights->table[i].value;
    fail_msg("no %s", name);
    return NULL;
}

/* y (out) += W (out, in) x (in). */
static void multiply(const float *weight, int64_t out, int64_t in, const double *x, double *y)
{
    for (int64_t i = 0; i < out; i++)
        for (int64_t k = 0; k < in; k++)
            y[i] += (double)weight[i * in + k] * x[k];
}

static void plus(const float *bias, int64_t count, double *y)
{
    for (int64_t i = 0; i < count; i++)
        y[i] += (double)bias[i];
}

static void norm_row(const weights_t *weights, const char *list, int index, const char *prefix,
                     int64_t width, double *y)
{
    char name[64];
    const bool batch = weights->model.norm == PLIM_NORM_BATCH;
    const char *module = batch ? "module." : "";
    double mean = 0, variance = 0;
    if (weights->model.norm == PLIM_NORM_NONE)
        return;
    (void)snprintf(name, sizeof name, "%s%sweight", prefix, module);
    const float *gamma = value(weights, list, index, name);
    (void)snprintf(name, sizeof name, "%s%sbias", prefix, module);
    const float *beta = value(weights, list, index, name);
    for (int64_t i = 0; i < width; i++)
        mean += y[i] / (double)width;
    for (int64_t i = 0; i < width; i++)
        variance += (y[i] - mean) * (y[i] - mean) / (double)width;
    for (int64_t i = 0; i < width; i++) {
        if (batch) {
            (void)snprintf(name, sizeof name, "%smodule.running_mean", prefix);
            mean = (double)value(weights, list, index, name)[i];
            (void)snprintf(name, sizeof name, "%smodule.running_var", prefix);
            variance = (double)value(weights, list, index, name)[i];
        }
        y[i] = (y[i] - mean) / sqrt(variance + 1e-5) * (double)gamma[i] + (double)beta[i];
    }
}

static void activate(const weights_t *weights, int64_t width, double *y)
{
    for (int64_t i = 0; i < width; i++)
        if (y[i] < 0 && weights->model.activation != PLIM_ACTIVATION_NONE)
            y[i] = weights->model.activation == PLIM_ELU ? expm1(y[i]) : 0;
}

static double degree_of(const test_loader_t *world, int64_t v)
{
    return (double)(world->indptr[v + 1] - world->indptr[v]);
}

static void attend(const weights_t *weights, const test_loader_t *world, int layer, int64_t v,
                   int64_t in, int64_t channels, bool mean, const double *x, double *y)
{
    const float *weight = value(weights, "convs", layer, "lin.weight");
    const float *att_src = value(weights, "convs", layer, "att_src");
    const float *att_dst = value(weights, "convs", layer, "att_dst");
    for (int head = 0; head < weights->model.heads; head++) {
        const float *mine = weight + head * channels * in;
        double own[64] = {0}, sums[64] = {0}, dst = 0, total = 0;
        multiply(mine, channels, in, x + v * in, own);
        for (int64_t j = 0; j < channels; j++)
            dst += own[j] * (double)att_dst[head * channels + j];
        for (int64_t e = world->indptr[v]; e <= world->indptr[v + 1]; e++) {
            const int64_t u = e < world->indptr[v + 1] ? world->indices[e] : v;
            double z[64] = {0}, score = dst;
            if (u == v && e < world->indptr[v + 1])
                continue;
            multiply(mine, channels, in, x + u * in, z);
            for (int64_t j = 0; j < channels; j++)
                score += z[j] * (double)att_src[head * channels + j];
            const double a = exp(score > 0 ? score : 0.2 * score);
            total += a;
            for (int64_t j = 0; j < channels; j++)
                sums[j] += a * z[j];
        }
        for (int64_t j = 0; j < channels; j++)
            y[mean ? j : head * channels + j] +=
                sums[j] / total / (mean ? weights->model.heads : 1);
    }
}

/* What is folded over the neighbours of v, as PyG has it. */
static void fold(const weights_t *weights, const test_loader_t *world, int layer, int64_t v,
                 int64_t in, const double *x, double *sum)
{
    const plim_model_kind_t kind = weights->model.kind;
    const bool max = kind == PLIM_SAGE && weights->model.aggregation == PLIM_MAX;
    const double degree = degree_of(world, v);
    for (int64_t k = 0; k < in; k++) {
        double value_here = max && degree > 0 ? -INFINITY : 0;
        for (int64_t e = world->indptr[v]; e < world->indptr[v + 1]; e++) {
            const int64_t u = world->indices[e];
            const double one = x[u * in + k];
            if (max)
                value_here = one > value_here ? one : value_here;
            else if (kind == PLIM_GCN)
                value_here += one / sqrt((degree_of(world, u) + 1) * (degree + 1));
            else
                value_here += kind == PLIM_SAGE ? one / degree : one;
        }
        if (kind == PLIM_GCN)
            value_here += x[v * in + k] / (degree + 1);
        if (kind == PLIM_GIN)
            value_here += x[v * in + k] * (1 + (double)value(weights, "convs", layer, "eps")[0]);
        sum[k] = value_here;
    }
}

static void compute_row(const weights_t *weights, const test_loader_t *world, int layer, int64_t v,
                        int64_t in, int64_t out, bool last, const double *x, double *y)
{
    double sum[128], inner[128] = {0};
    const plim_model_kind_t kind = weights->model.kind;
    memset(y, 0, (size_t)out * sizeof *y);
    if (kind != PLIM_MLP && kind != PLIM_GAT)
        fold(weights, world, layer, v, in, x, sum);
    switch (kind) {
    case PLIM_MLP:
        multiply(value(weights, "lins", layer, "weight"), out, in, x + v * in, y);
        plus(value(weights, "lins", layer, "bias"), out, y);
        break;
    case PLIM_GCN:
        multiply(value(weights, "convs", layer, "lin.weight"), out, in, sum, y);
        plus(value(weights, "convs", layer, "bias"), out, y);
        break;
    case PLIM_SAGE:
        multiply(value(weights, "convs", layer, "lin_l.weight"), out, in, sum, y);
        plus(value(weights, "convs", layer, "lin_l.bias"), out, y);
        multiply(value(weights, "convs", layer, "lin_r.weight"), out, in, x + v * in, y);
        break;
    case PLIM_GAT:
        attend(weights, world, layer, v, in, last ? out : out / weights->model.heads, last, x, y);
        plus(value(weights, "convs", layer, "bias"), out, y);
        break;
    case PLIM_GIN:
        multiply(value(weights, "convs", layer, "nn.lins.0.weight"), out, in, sum, inner);
        plus(value(weights, "convs", layer, "nn.lins.0.bias"), out, inner);
        norm_row(weights, "convs", layer, "nn.norms.0.", out, inner);
        activate(weights, out, inner);
        multiply(value(weights, "convs", layer, "nn.lins.1.weight"), out, out, inner, y);
        plus(value(weights, "convs", layer, "nn.lins.1.bias"), out, y);
        break;
    }
    if (!last)
        norm_row(weights, "norms", layer, "", out, y);
    if (weights->model.residual && in == out)
        for (int64_t i = 0; i < out; i++)
            y[i] += x[v * in + i];
    if (!last)
        activate(weights, out, y);
}

/* (nodes, width) after so many layers; the caller's. */
static double *reference(const weights_t *weights, const test_loader_t *world, int layers)
{
    const int64_t n = world->info->num_nodes;
    int64_t in = weights->num_features;
    double *x = calloc((size_t)(n * in), sizeof *x);
    for (int64_t i = 0; i < n * in; i++)
        x[i] = world->info->feature_type == PLIM_F16
                   ? (double)plim__f32_from_f16(((const uint16_t *)(void *)world->features)[i])
                   : (double)((const float *)(void *)world->features)[i];
    for (int layer = 0; layer < layers; layer++) {
        const bool last = layer == weights->model.num_layers - 1;
        const int64_t out = last ? CLASSES : weights->model.hidden;
        double *y = calloc((size_t)(n * out), sizeof *y);
        for (int64_t v = 0; v < n; v++)
            compute_row(weights, world, layer, v, in, out, last, x, y + v * out);
        free(x);
        x = y;
        in = out;
    }
    return x;
}

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
    const weights_t *weights;
    bool embeddings;
    int64_t most_rows;
    const int64_t *nodes;
    int64_t count;
    sheet_t sheet;
} trial_t;

static plim__exact_params_t params_of(const trial_t *trial)
{
    return (plim__exact_params_t){.model = trial->weights->model,
                                  .num_outputs = CLASSES,
                                  .parameters = trial->weights->table,
                                  .num_parameters = trial->weights->count,
                                  .embeddings = trial->embeddings,
                                  .scratch = scratch,
                                  .most_rows = trial->most_rows};
}

static plim_status_t run(plim_job_t *job, void *context)
{
    trial_t *trial = context;
    const plim__exact_params_t params = params_of(trial);
    const int64_t rows = trial->nodes != NULL ? trial->count : trial->world->info->num_nodes;
    trial->sheet.rows = 0;
    memset(trial->sheet.values, 0, (size_t)(rows * trial->sheet.width) * sizeof(float));
    return plim__exact_run(job, trial->world->dataset, &params, trial->nodes, trial->count, take,
                           &trial->sheet);
}

/* The same with no more than `extra` bytes above the least. */
static plim_status_t run_tight(plim_job_t *job, trial_t *trial, size_t extra)
{
    const plim__exact_params_t params = params_of(trial);
    const size_t least = plim__exact_least(job, trial->world->dataset, &params);
    const size_t away = (size_t)plim_ledger_available(job->ledger) - least - extra;
    int account;
    assert_ok(plim__ledger_reserve(job->ledger, "away", away, &account));
    const plim_status_t status = run(job, trial);
    plim__ledger_release(job->ledger, account, away);
    return status;
}

static void compare(const trial_t *trial, const double *expected)
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

/* Layers that were not computed in one go, by what is said of them. */
static int cuts;

static void count_cuts(void *user, plim_log_level_t level, const char *message)
{
    (void)user;
    (void)level;
    cuts += strstr(message, "in 1 passes") == NULL;
}

/* All that may not change a bit: memory, threads, engine, vectors. */
static void check_model(const plim_model_t *model, const test_graph_t *graph, const char *name)
{
    test_loader_t world = test_loader_open(name, graph, 2, PLIM_IO_AUTO);
    weights_t weights = make_weights(model, graph->num_features);
    double *expected = reference(&weights, &world, model->num_layers);
    const size_t values = (size_t)graph->num_nodes * CLASSES;
    trial_t trial = {.world = &world,
                     .weights = &weights,
                     .sheet = {.values = calloc(values, sizeof(float)), .width = CLASSES}};
    float *first = calloc(values, sizeof *first);
    assert_ok(run(&world.job, &trial));
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
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        plim_job_t job = test_job_make(LINE, ways[i].threads, ways[i].engine);
        plim__vector_limit(ways[i].path);
        trial.most_rows = ways[i].most_rows;
        cuts = 0;
        job.log = count_cuts;
        assert_ok(ways[i].extra < 0 ? run(&job, &trial)
                                    : run_tight(&job, &trial, (size_t)ways[i].extra));
        plim__vector_limit(PLIM__VECTOR_AVX512);
        assert_true(model->kind == PLIM_MLP || ways[i].most_rows != 36000 || cuts > 0);
        compare(&trial, expected);
        assert_memory_equal(trial.sheet.values, first, values * sizeof *first);
        test_job_end(&job);
    }
    free(first);
    free(trial.sheet.values);
    free(expected);
    free_weights(&weights);
    test_loader_close(&world);
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

/* A world for what is not about models: GCN of two layers. */
typedef struct small {
    test_loader_t world;
    weights_t weights;
    double *expected;
    float values[2 * NODES * FEATURES];
    trial_t trial;
} small_t;

static small_t *small_make(void)
{
    small_t *small = calloc(1, sizeof *small);
    plim_model_t model = base_model;
    model.hidden = 16;
    small->world = test_loader_open("half", &half_graph, 2, PLIM_IO_AUTO);
    small->weights = make_weights(&model, FEATURES);
    small->expected = reference(&small->weights, &small->world, 2);
    small->trial = (trial_t){.world = &small->world,
                             .weights = &small->weights,
                             .sheet = {.values = small->values, .width = CLASSES}};
    return small;
}

static void small_end(small_t *small)
{
    free(small->expected);
    free_weights(&small->weights);
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
        free_weights(&small->weights);
        free(small->expected);
        small->weights = make_weights(&model, FEATURES);
        small->expected = reference(&small->weights, &small->world, layers - 1);
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

/* Refused before anything is started, with the line that would do. */
static void test_too_little_memory_is_refused(void **state)
{
    (void)state;
    small_t *small = small_make();
    plim_job_t *job = &small->world.job;
    const plim__exact_params_t params = params_of(&small->trial);
    const size_t least = plim__exact_least(job, small->world.dataset, &params);
    const size_t away = (size_t)plim_ledger_available(job->ledger) - least + 4096;
    const int64_t before = plim_ledger_reserved(job->ledger);
    int account;
    assert_ok(plim__ledger_reserve(job->ledger, "away", away, &account));
    assert_int_equal(run(job, &small->trial), PLIM_ERR_BUDGET);
    assert_int_equal(small->trial.sheet.rows, 0);
    assert_non_null(strstr(plim_last_error(), "exact evaluation"));
    plim__ledger_release(job->ledger, account, away);
    assert_int_equal(plim_ledger_reserved(job->ledger), before);
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
    const int64_t before = plim_ledger_reserved(job->ledger);
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
        assert_int_equal(plim_ledger_reserved(job->ledger), before);
    }
    job->stop = NULL;
    job->progress = NULL;
    small_end(small);
}

static void test_what_the_taker_says_is_passed_on(void **state)
{
    (void)state;
    small_t *small = small_make();
    const int64_t before = plim_ledger_reserved(small->world.job.ledger);
    small->trial.sheet.answer = PLIM_ERR_IO;
    assert_int_equal(run(&small->world.job, &small->trial), PLIM_ERR_IO);
    assert_int_equal(plim_ledger_reserved(small->world.job.ledger), before);
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
    const int count = plim_ledger_accounts(job.ledger, 48, infos);
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
    assert_int_equal(run(&small->world.job, &small->trial), PLIM_ERR_IO);
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
        cmocka_unit_test(test_gin),
        cmocka_unit_test(test_mlp),
        cmocka_unit_test(test_nodes_in_the_order_asked_for),
        cmocka_unit_test(test_embeddings),
        cmocka_unit_test(test_every_failing_arena_is_survived),
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
