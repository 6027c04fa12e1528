/* A layer's finish as this pass wants it, and the keys of dropout. */
#include "nn/model_internal.h"

#include "base/rng.h"

/* Draws of the loader have keys of the same seed; these must be others. */
#define DROPOUT_STREAM 0x64726f706f757421u

uint64_t plim__model_key(const plim__model_t *model, int layer, int kind)
{
    const plim__pass_t *pass = &model->pass;
    return plim__rng_key(pass->seed ^ DROPOUT_STREAM, (uint64_t)pass->epoch, (uint64_t)pass->step,
                         2 * (uint64_t)layer + (uint64_t)kind);
}

static float *value_of(const plim__parameter_t *parameter)
{
    return parameter == NULL ? NULL : parameter->value;
}

static float *gradient_of(const plim__parameter_t *parameter)
{
    return parameter == NULL ? NULL : parameter->gradient;
}

plim__epilogue_t plim__model_epilogue(const plim__model_t *model,
                                      const plim__epilogue_parameters_t *finishing, bool plain,
                                      bool dropout, int layer)
{
    const plim_model_t *settings = &model->params.model;
    plim__epilogue_t finish = {0};
    finish.width = finishing->width;
    finish.bias = value_of(finishing->bias);
    finish.training = model->pass.training;
    if (plain)
        return finish;
    finish.norm = settings->norm;
    finish.gamma = value_of(finishing->gamma);
    finish.beta = value_of(finishing->beta);
    finish.running_mean = value_of(finishing->mean);
    finish.running_var = value_of(finishing->variance);
    finish.activation = settings->activation;
    if (dropout && settings->dropout > 0) {
        finish.dropout = settings->dropout;
        finish.key = plim__model_key(model, layer, 0);
        finish.nodes = model->nodes;
    }
    return finish;
}

plim__epilogue_t plim__layer_epilogue(const plim__model_t *model, const plim__layer_t *layer)
{
    return plim__model_epilogue(model, &layer->after, layer->plain, true, layer->index);
}

/* PyG's GIN has no dropout between its products. */
plim__epilogue_t plim__layer_inner(const plim__model_t *model, const plim__layer_t *layer)
{
    return plim__model_epilogue(model, &layer->inner, false, false, layer->index);
}

plim__epilogue_gradients_t
plim__model_epilogue_gradients(const plim__epilogue_parameters_t *finishing)
{
    return (plim__epilogue_gradients_t){gradient_of(finishing->bias), gradient_of(finishing->gamma),
                                        gradient_of(finishing->beta)};
}
