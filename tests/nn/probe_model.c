/*
 * A model by itself, for comparison with PyTorch Geometric: numbers come by standard input and go
 * by standard output, as they lie in memory.
 *
 *     probe_model names SETTING=NUMBER…
 *         -> a line "name dimension…" for each parameter and buffer
 *     probe_model step SETTING=NUMBER…
 *         for each block, the seeds' first: num_dst, num_src, num_edges (int64), indptr, indices;
 *         nodes, degrees (int32), rows, graph_indptr (graphs only), labels (int64), the columns of
 *         the settings, in the order of plim__batch_columns_t, then each parameter and buffer
 *         -> outputs, the mean loss (f64), its gradient by each parameter (a buffer's value), and,
 *            outside training, outputs and embeddings
 */
#include "nn/loss.h"
#include "nn/model.h"
#include "support/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    plim__model_params_t params;
    int64_t nodes;
    int64_t blocks;
    plim__batch_columns_t columns;
} settings_t;

static void *input(int64_t count, size_t size)
{
    void *data = calloc((size_t)count + 1, size);
    if (data == NULL || fread(data, size, (size_t)count, stdin) != (size_t)count) {
        (void)fprintf(stderr, "probe_model: short input\n");
        exit(1);
    }
    return data;
}

static void output(const void *data, int64_t count, size_t size)
{
    if (fwrite(data, size, (size_t)count, stdout) != (size_t)count)
        exit(1);
}

static void must(plim_status_t status)
{
    if (status == PLIM_OK)
        return;
    (void)fprintf(stderr, "probe_model: %s\n", plim_last_error());
    exit(1);
}

static bool named(const char *word, const char *name, int64_t *value_out)
{
    const size_t length = strlen(name);
    if (strncmp(word, name, length) != 0 || word[length] != '=')
        return false;
    *value_out = atoll(word + length + 1);
    return true;
}

/* A further column, of `count` values. */
static void add_category(plim__categories_t *categories, int64_t count)
{
    categories->counts[categories->columns++] = count;
}

static void set(settings_t *settings, const char *word)
{
    plim__model_params_t *params = &settings->params;
    plim_model_t *model = &params->model;
    int64_t value;
    if (named(word, "kind", &value))
        model->kind = (plim_model_kind_t)value;
    else if (named(word, "layers", &value))
        model->num_layers = (int)value;
    else if (named(word, "hidden", &value))
        model->hidden = value;
    else if (named(word, "heads", &value))
        model->heads = (int)value;
    else if (named(word, "max", &value))
        model->aggregation = (plim_aggregation_t)value;
    else if (named(word, "norm", &value))
        model->norm = (plim_norm_t)value;
    else if (named(word, "activation", &value))
        model->activation = (plim_activation_t)value;
    else if (named(word, "residual", &value))
        model->residual = value != 0;
    else if (named(word, "pool", &value))
        model->pool = (plim_pool_t)value;
    else if (named(word, "bf16", &value))
        model->precision = (plim_precision_t)value;
    else if (named(word, "fanout", &value))
        for (int i = 0; i < PLIM_HOPS_MAX; i++)
            params->fanout[i] = value;
    else if (named(word, "features", &value))
        params->num_features = value;
    else if (named(word, "outputs", &value))
        params->num_outputs = value;
    else if (named(word, "graphs", &value))
        params->graph_level = value != 0;
    else if (named(word, "half", &value))
        params->row_type = params->columns.edge_feature_type = value != 0 ? PLIM_F16 : PLIM_F32;
    else if (named(word, "seeds", &value))
        params->max_seeds = value;
    else if (named(word, "nodes", &value))
        settings->nodes = value;
    else if (named(word, "weights", &value))
        params->columns.edge_weights = value != 0;
    else if (named(word, "edge_features", &value))
        params->columns.edge_features = value;
    else if (named(word, "edge_types", &value))
        params->columns.edge_types = value;
    else if (named(word, "bases", &value))
        params->columns.bases = value;
    else if (named(word, "edge_category", &value))
        add_category(&params->columns.edge_categories, value);
    else if (named(word, "node_category", &value))
        add_category(&params->columns.node_categories, value);
    else if (named(word, "blocks", &value))
        settings->blocks = value;
    else {
        (void)fprintf(stderr, "probe_model: what is %s?\n", word);
        exit(1);
    }
}

static void read_batch(settings_t *settings, plim_batch_t *batch)
{
    plim__model_params_t *params = &settings->params;
    batch->num_seeds = params->max_seeds;
    batch->num_nodes = settings->nodes;
    batch->num_blocks = (int)settings->blocks;
    for (int i = 0; i < batch->num_blocks; i++) {
        int64_t *sizes = input(3, sizeof *sizes);
        plim_block_t *block = &batch->blocks[i];
        *block = (plim_block_t){.num_dst = sizes[0], .num_src = sizes[1], .num_edges = sizes[2]};
        block->indptr = input(block->num_dst + 1, sizeof(int32_t));
        block->indices = input(block->num_edges, sizeof(int32_t));
        free(sizes);
        params->max_edges += block->num_edges;
    }
    for (int i = 0; i < params->model.num_layers && batch->num_blocks > 0; i++)
        params->max_dst[i] =
            batch->blocks[params->graph_level ? 0 : params->model.num_layers - 1 - i].num_dst;
    params->max_src = batch->num_nodes;
    batch->nodes = input(batch->num_nodes, sizeof(int32_t));
    batch->degrees = input(batch->num_nodes, sizeof(int32_t));
    batch->rows =
        input(batch->num_nodes * params->num_features, params->row_type == PLIM_F16 ? 2 : 4);
    if (params->graph_level)
        batch->graph_indptr = input(batch->num_seeds + 1, sizeof(int32_t));
    batch->labels = input(batch->num_seeds, sizeof(int64_t));
}

static void read_columns(settings_t *settings)
{
    const plim__model_params_t *params = &settings->params;
    plim__batch_columns_t *columns = &settings->columns;
    if (params->columns.edge_weights)
        columns->edge_weights = input(params->max_edges, sizeof(float));
    if (params->columns.edge_weights && !params->graph_level)
        columns->weight_sums = input(settings->nodes, sizeof(float));
    if (params->columns.edge_features > 0)
        columns->edge_features = input(params->max_edges * params->columns.edge_features,
                                       params->columns.edge_feature_type == PLIM_F16 ? 2 : 4);
    if (params->columns.edge_types > 0)
        columns->edge_types = input(params->max_edges, sizeof(int64_t));
    if (params->columns.edge_categories.columns > 0)
        columns->edge_categories =
            input(params->max_edges * params->columns.edge_categories.columns, sizeof(int64_t));
    if (params->columns.node_categories.columns > 0)
        columns->node_categories =
            input(settings->nodes * params->columns.node_categories.columns, sizeof(int64_t));
}

static void free_batch(plim_batch_t *batch, plim__batch_columns_t *columns)
{
    free((void *)columns->edge_weights);
    free((void *)columns->weight_sums);
    free((void *)columns->edge_features);
    free((void *)columns->edge_types);
    free((void *)columns->edge_categories);
    free((void *)columns->node_categories);
    for (int i = 0; i < batch->num_blocks; i++) {
        free((void *)batch->blocks[i].indptr);
        free((void *)batch->blocks[i].indices);
    }
    free((void *)batch->nodes);
    free((void *)batch->degrees);
    free((void *)batch->rows);
    free((void *)batch->graph_indptr);
    free((void *)batch->labels);
}

static void list_names(plim__model_t *model)
{
    int count;
    const plim__parameter_t *parameters = plim__model_parameters(model, &count);
    for (int i = 0; i < count; i++) {
        (void)printf("%s", parameters[i].name);
        for (int k = 0; k < parameters[i].num_dims; k++)
            (void)printf(" %lld", (long long)parameters[i].shape[k]);
        (void)printf("\n");
    }
}

static void read_values(plim__model_t *model)
{
    int count;
    plim__parameter_t *parameters = plim__model_parameters(model, &count);
    for (int i = 0; i < count; i++) {
        float *values = input(parameters[i].count, sizeof *values);
        memcpy(parameters[i].value, values, (size_t)parameters[i].count * sizeof *values);
        free(values);
    }
    plim__model_changed(model);
}

static void step(plim__team_t *team, plim__model_t *model, const plim_batch_t *batch,
                 const plim__batch_columns_t *columns, int64_t width)
{
    int count;
    const plim__parameter_t *parameters = plim__model_parameters(model, &count);
    plim__model_output_t got;
    const plim__pass_t training = {.training = true, .columns = columns};
    const plim__pass_t reading = {.embeddings = true, .columns = columns};
    const int64_t seeds = batch->num_seeds;
    float *doutputs = calloc((size_t)(seeds * width) + 1, sizeof *doutputs);
    if (doutputs == NULL)
        exit(1);
    must(plim__model_forward(model, batch, &training, &got));
    output(got.outputs, seeds * width, sizeof(float));
    const double loss = plim__loss(team, PLIM_LOSS_CROSS_ENTROPY, seeds, width, got.outputs,
                                   batch->labels, 1.0f / (float)seeds, doutputs) /
                        (double)seeds;
    output(&loss, 1, sizeof loss);
    must(plim__model_backward(model, batch, doutputs));
    plim__model_gather_gradients(model);
    for (int i = 0; i < count; i++)
        output(parameters[i].gradient != NULL ? parameters[i].gradient : parameters[i].value,
               parameters[i].count, sizeof(float));
    must(plim__model_forward(model, batch, &reading, &got));
    output(got.outputs, seeds * width, sizeof(float));
    output(got.embeddings, seeds * got.embedding_width, sizeof(float));
    free(doutputs);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    const bool names = strcmp(argv[1], "names") == 0;
    settings_t settings = {.params = {.training = true, .workers = 2}};
    for (int i = 2; i < argc; i++)
        set(&settings, argv[i]);
    plim_batch_t batch = {.last_part = true};
    if (!names) {
        read_batch(&settings, &batch);
        read_columns(&settings);
    }
    plim_job_t job = test_job_make((int64_t)2 << 30, 2, PLIM_IO_AUTO);
    plim__team_t *team;
    plim__model_t *model;
    must(plim__team_create(job.ledger, 2, &team));
    must(plim__model_create(job.ledger, team, &settings.params, &model));
    if (names) {
        list_names(model);
    } else {
        read_values(model);
        step(team, model, &batch, &settings.columns, settings.params.num_outputs);
    }
    plim__model_destroy(model);
    plim__team_destroy(team);
    test_job_end(&job);
    free_batch(&batch, &settings.columns);
    return 0;
}
