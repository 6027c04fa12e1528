#include "support/reference.h"

#include "base/half.h"
#include "base/rng.h"
#include "support/harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(test_weights_t *weights, const char *list, int index, const char *rest,
                int64_t count, double low, double high)
{
    plim__parameter_t *parameter = &weights->table[weights->count];
    const uint64_t key = plim__rng_key(5, (uint64_t)weights->count, 0, 0);
    assert_true(weights->count < TEST_PARAMETERS_MAX);
    (void)snprintf(parameter->name, sizeof parameter->name, "%s.%d.%s", list, index, rest);
    parameter->count = count;
    parameter->value = calloc((size_t)count, sizeof(float));
    for (int64_t i = 0; i < count; i++)
        parameter->value[i] = (float)(low + (high - low) * plim__rng_double(key, (uint64_t)i));
    weights->count++;
}

static void add_norm(test_weights_t *weights, const char *list, int index, const char *prefix,
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

test_weights_t test_weights_make(const plim_model_t *model, int64_t num_features,
                                 int64_t num_outputs)
{
    const plim__columns_t none = {.edge_features = 0};
    return test_weights_of(model, &none, num_features, num_outputs);
}

test_weights_t test_weights_of(const plim_model_t *model, const plim__columns_t *columns,
                               int64_t num_features, int64_t num_outputs)
{
    const int64_t entries = columns->edge_features;
    test_weights_t weights = {.model = *model,
                              .columns = *columns,
                              .num_features = num_features,
                              .num_outputs = num_outputs};
    for (int i = 0; i < model->num_layers; i++) {
        const bool last = i == model->num_layers - 1;
        const int64_t in = i == 0 ? num_features : model->hidden;
        const int64_t out = last ? num_outputs : model->hidden;
        const bool attends = model->kind == PLIM_GAT || model->kind == PLIM_GATV2;
        const int64_t wide = attends && last ? out * model->heads : out;
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
            if (entries > 0) { /* the features of edges are large */
                add(&weights, "convs", i, "att_edge", wide, -0.05, 0.05);
                add(&weights, "convs", i, "lin_edge.weight", wide * entries, -0.05, 0.05);
            }
            break;
        case PLIM_GATV2:
            add(&weights, "convs", i, "lin_l.weight", wide * in, -0.5, 0.5);
            add(&weights, "convs", i, "lin_l.bias", wide, -0.5, 0.5);
            add(&weights, "convs", i, "lin_r.weight", wide * in, -0.5, 0.5);
            add(&weights, "convs", i, "lin_r.bias", wide, -0.5, 0.5);
            add(&weights, "convs", i, "att", wide, -1, 1);
            add(&weights, "convs", i, "bias", out, -0.5, 0.5);
            if (entries > 0)
                add(&weights, "convs", i, "lin_edge.weight", wide * entries, -0.01, 0.01);
            break;
        case PLIM_RGCN:
            add(&weights, "convs", i, "weight", columns->bases * in * out, -0.5, 0.5);
            add(&weights, "convs", i, "comp", columns->edge_types * columns->bases, -0.5, 0.5);
            add(&weights, "convs", i, "root", in * out, -0.5, 0.5);
            add(&weights, "convs", i, "bias", out, -0.5, 0.5);
            break;
        case PLIM_GINE:
            add(&weights, "convs", i, "lin.weight", in * entries, -0.01, 0.01);
            add(&weights, "convs", i, "lin.bias", in, -0.5, 0.5);
            /* fall through */
        case PLIM_GIN:
            add(&weights, "convs", i, "eps", 1, i == 0 ? 0.25 : 0, i == 0 ? 0.25 : 0);
            add(&weights, "convs", i, "nn.lins.0.weight", out * in, -0.2, 0.2);
            add(&weights, "convs", i, "nn.lins.0.bias", out, -0.5, 0.5);
            add_norm(&weights, "convs", i, "nn.norms.0.", out);
            add(&weights, "convs", i, "nn.lins.1.weight", out * out, -0.5, 0.5);
            add(&weights, "convs", i, "nn.lins.1.bias", out, -0.5, 0.5);
            break;
        default:
            fail_msg("no reference of this model");
        }
        if (!last)
            add_norm(&weights, "norms", i, "", out);
    }
    return weights;
}

void test_weights_free(test_weights_t *weights)
{
    for (int i = 0; i < weights->count; i++)
        free(weights->table[i].value);
}

static const float *value(const test_weights_t *weights, const char *list, int index,
                          const char *rest)
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

static void norm_row(const test_weights_t *weights, const char *list, int index, const char *prefix,
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

static void activate(const test_weights_t *weights, int64_t width, double *y)
{
    for (int64_t i = 0; i < width; i++)
        if (y[i] < 0 && weights->model.activation != PLIM_ACTIVATION_NONE)
            y[i] = weights->model.activation == PLIM_ELU ? expm1(y[i]) : 0;
}

/* The edges into v; for GCN those from other nodes. */
static double degree_of(const test_loader_t *world, plim_model_kind_t kind, int64_t v)
{
    int64_t degree = 0;
    for (int64_t e = world->indptr[v]; e < world->indptr[v + 1]; e++)
        degree += kind != PLIM_GCN || world->indices[e] != v;
    return (double)degree;
}

static void attend(const test_weights_t *weights, const test_loader_t *world, int layer, int64_t v,
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

/* Aggregates the messages of v's neighbours, as PyG does. */
static void fold(const test_weights_t *weights, const test_loader_t *world, int layer, int64_t v,
                 int64_t in, const double *x, double *sum)
{
    const plim_model_kind_t kind = weights->model.kind;
    const bool max = kind == PLIM_SAGE && weights->model.aggregation == PLIM_MAX;
    const bool mean = kind == PLIM_SAGE && weights->model.aggregation == PLIM_MEAN;
    const double degree = degree_of(world, kind, v);
    for (int64_t k = 0; k < in; k++) {
        double value_here = max && degree > 0 ? -INFINITY : 0;
        for (int64_t e = world->indptr[v]; e < world->indptr[v + 1]; e++) {
            const int64_t u = world->indices[e];
            const double one = x[u * in + k];
            if (max)
                value_here = one > value_here ? one : value_here;
            else if (kind == PLIM_GCN)
                value_here +=
                    u == v ? 0 : one / sqrt((degree_of(world, kind, u) + 1) * (degree + 1));
            else
                value_here += mean ? one / degree : one;
        }
        if (kind == PLIM_GCN)
            value_here += x[v * in + k] / (degree + 1);
        if (kind == PLIM_GIN)
            value_here += x[v * in + k] * (1 + (double)value(weights, "convs", layer, "eps")[0]);
        sum[k] = value_here;
    }
}

static void compute_row(const test_weights_t *weights, const test_loader_t *world, int layer,
                        int64_t v, int64_t in, int64_t out, bool last, const double *x, double *y)
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
    default:
        fail_msg("no reference of this model");
    }
    if (!last)
        norm_row(weights, "norms", layer, "", out, y);
    if (weights->model.residual && in == out)
        for (int64_t i = 0; i < out; i++)
            y[i] += x[v * in + i];
    if (!last)
        activate(weights, out, y);
}

double *test_reference(const test_weights_t *weights, const test_loader_t *world, int layers)
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
        const int64_t out = last ? weights->num_outputs : weights->model.hidden;
        double *y = calloc((size_t)(n * out), sizeof *y);
        for (int64_t v = 0; v < n; v++)
            compute_row(weights, world, layer, v, in, out, last, x, y + v * out);
        free(x);
        x = y;
        in = out;
    }
    return x;
}
