/* Parameters and buffers by PyG's names, in PyG's order, and their initial values. */
#include "nn/model_internal.h"

#include "base/rng.h"

#include <math.h>
#include <stdio.h>

/* Separates these keys from those of the loader's draws and of dropout, which have the same
 * seed. */
#define INITIAL_STREAM 0x696e697469616c21u

plim__initial_t plim__initial_glorot(int64_t rows, int64_t columns)
{
    return (plim__initial_t){.bound = sqrt(6.0 / ((double)rows + (double)columns))};
}

plim__initial_t plim__initial_linear(int64_t in)
{
    return (plim__initial_t){.bound = 1.0 / sqrt((double)in)};
}

plim__parameter_t *plim__table_add(plim__table_t *table, plim__initial_t initial, const char *list,
                                   int index, const char *name, int64_t shape0, int64_t shape1,
                                   int64_t shape2)
{
    const int64_t shape[3] = {shape0, shape1, shape2};
    const int place = table->count++;
    int64_t count = 1;
    int num_dims = 0;
    while (num_dims < 3 && shape[num_dims] > 0)
        count = plim__mul_saturating_i64(count, shape[num_dims++]);
    size_t *sum = initial.buffer ? &table->buffers : &table->weights;
    *sum = plim__add_saturating_size(*sum, (size_t)count);
    if (table->entries == NULL)
        return NULL;
    plim__parameter_t *entry = &table->entries[place];
    if (index < 0)
        (void)snprintf(entry->name, sizeof entry->name, "%s.%s", list, name);
    else
        (void)snprintf(entry->name, sizeof entry->name, "%s.%d.%s", list, index, name);
    entry->num_dims = num_dims;
    for (int i = 0; i < num_dims; i++)
        entry->shape[i] = shape[i];
    entry->count = count;
    table->initial[place] = initial;
    return entry;
}

void plim__table_norm(plim__table_t *table, plim_norm_t norm, const char *list, int index,
                      const char *name, plim__epilogue_parameters_t *finishing)
{
    static const struct {
        const char *name;
        plim__initial_t initial;
    } parts[] = {{"weight", {0, 1, false}},
                 {"bias", {0, 0, false}},
                 {"running_mean", {0, 0, true}},
                 {"running_var", {0, 1, true}}};
    plim__parameter_t **places[] = {&finishing->gamma, &finishing->beta, &finishing->mean,
                                    &finishing->variance};
    if (norm == PLIM_NORM_NONE)
        return;
    const int count = norm == PLIM_NORM_BATCH ? 4 : 2;
    for (int i = 0; i < count; i++) {
        char full[PLIM__NAME_MAX];
        (void)snprintf(full, sizeof full, "%s%s%s", name, norm == PLIM_NORM_BATCH ? "module." : "",
                       parts[i].name);
        *places[i] =
            plim__table_add(table, parts[i].initial, list, index, full, finishing->width, 0, 0);
    }
}

void plim__model_describe(plim__model_t *model, plim__table_t *table)
{
    const plim_model_t *settings = &model->params.model;
    plim__encoder_parameters(model, table);
    for (int i = 0; i < settings->num_layers; i++)
        model->conv->parameters(model, table, &model->layers[i]);
    for (int i = 0; i < settings->num_layers; i++) {
        plim__layer_t *layer = &model->layers[i];
        if (!layer->plain)
            plim__table_norm(table, settings->norm, "norms", i, "", &layer->after);
    }
    const int64_t width = model->params.num_outputs;
    const plim__scorer_t *scorer = &model->params.scorer;
    if (scorer->kind == PLIM_DECODER_DISTMULT)
        (void)plim__table_add(table, plim__initial_glorot(scorer->types, width), "decoder.rel_emb",
                              -1, "weight", scorer->types, width, 0);
    if (scorer->kind == PLIM_DECODER_MLP) {
        const plim__initial_t linear = plim__initial_linear(width);
        (void)plim__table_add(table, linear, "decoder.lins", 0, "weight", width, width, 0);
        (void)plim__table_add(table, linear, "decoder.lins", 0, "bias", width, 0, 0);
        (void)plim__table_add(table, linear, "decoder.lins", 1, "weight", 1, width, 0);
        (void)plim__table_add(table, linear, "decoder.lins", 1, "bias", 1, 0, 0);
    }
    if (!model->params.graph_level)
        return;
    plim__head_t *head = &model->head;
    const plim__initial_t linear = plim__initial_linear(head->product.in);
    head->product.weight[0] =
        plim__table_add(table, linear, "lin", -1, "weight", head->product.out, head->product.in, 0);
    head->after.bias = plim__table_add(table, linear, "lin", -1, "bias", head->product.out, 0, 0);
}

plim__parameter_t *plim__model_parameters(plim__model_t *model, int *count_out)
{
    *count_out = model->table.count;
    return model->table.entries;
}

const plim__model_arrays_t *plim__model_arrays(const plim__model_t *model)
{
    return &model->arrays;
}

void plim__model_initialise(plim__model_t *model, uint64_t seed)
{
    for (int i = 0; i < model->table.count; i++) {
        plim__parameter_t *parameter = &model->table.entries[i];
        const plim__initial_t *initial = &model->table.initial[i];
        const uint64_t key = plim__rng_key(seed ^ INITIAL_STREAM, (uint64_t)i, 0, 0);
        for (int64_t k = 0; k < parameter->count; k++) {
            const double unit = 2 * plim__rng_double(key, (uint64_t)k) - 1;
            parameter->value[k] =
                initial->bound > 0 ? (float)(unit * initial->bound) : initial->constant;
        }
    }
    plim__model_changed(model);
}
