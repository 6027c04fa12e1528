/* A part's forward and backward pass. */
#include "nn/model_internal.h"

#include "base/fail.h"

void plim__linear_forward(plim__model_t *model, plim__linear_t *product, const plim__matrix_t *x,
                          float *y)
{
    plim__dense_forward(product->dense, model->team, x, y);
    model->dense_flops += 2.0 * (double)x->rows * (double)product->in * (double)product->out;
    plim__model_lap(model, &model->dense_ns);
}

void plim__linear_backward(plim__model_t *model, plim__linear_t *product, plim__matrix_t *dy,
                           plim__matrix_t *x, float *dx)
{
    plim__dense_backward_weight(product->dense, model->team, dy, x);
    if (dx != NULL)
        plim__dense_backward_input(product->dense, model->team, dy, dx);
    model->dense_flops +=
        (dx != NULL ? 4.0 : 2.0) * (double)dy->rows * (double)product->in * (double)product->out;
    plim__model_lap(model, &model->dense_ns);
}

void plim__sum_backward(plim__model_t *model, plim__layer_t *layer, const plim__scales_t *scales)
{
    if (layer->raw)
        return;
    plim__reverse_make(&layer->hop, &layer->reverse);
    plim__matrix_t dinput =
        plim__matrix_make(layer->dinput, layer->hop.num_src, layer->in, PLIM__F32);
    const plim__matrix_t residual =
        plim__matrix_make(layer->dresidual, layer->rows, layer->in, PLIM__F32);
    plim__aggregate_backward(model->team, &layer->hop, &layer->reverse, scales, &layer->dx,
                             layer->residual ? &residual : NULL, &dinput);
    plim__model_lap(model, &model->sparse_ns);
}

void plim__layer_add_residual(plim__model_t *model, plim__layer_t *layer)
{
    if (!layer->residual || layer->raw)
        return;
    const plim__matrix_t residual =
        plim__matrix_make(layer->dresidual, layer->rows, layer->in, PLIM__F32);
    plim__matrix_t dinput =
        plim__matrix_make(layer->dinput, layer->hop.num_src, layer->in, PLIM__F32);
    plim__matrix_add(model->team, &residual, &dinput);
    plim__model_lap(model, &model->finish_ns);
}

static plim_status_t too_large(const char *what, int64_t count, int64_t most)
{
    return plim__fail(PLIM_ERR_USAGE,
                      "a part of %lld %s is larger than the %lld that the model was created for: "
                      "take batches from a loader of its plan",
                      (long long)count, what, (long long)most);
}

/* Sets a layer's hop from the batch; an MLP has no hop. */
static plim_status_t set_hop(plim__model_t *model, const plim_batch_t *batch, plim__layer_t *layer)
{
    const plim__model_params_t *params = &model->params;
    const int count = params->model.num_layers;
    if (params->model.kind == PLIM_MLP) {
        const int64_t rows = params->graph_level ? batch->num_nodes : batch->num_seeds;
        const int64_t most = params->graph_level ? params->max_src : params->max_seeds;
        layer->hop = (plim__edges_t){.num_dst = rows, .num_src = rows};
        layer->rows = rows;
        return rows <= most ? PLIM_OK : too_large("rows", rows, most);
    }
    const plim_block_t *block = &batch->blocks[params->graph_level ? 0 : count - 1 - layer->index];
    layer->hop = (plim__edges_t){block->num_dst, block->num_src, block->num_edges, block->indptr,
                                 block->indices};
    layer->rows = block->num_dst;
    if (block->num_dst > params->max_dst[layer->index])
        return too_large("destinations", block->num_dst, params->max_dst[layer->index]);
    if (layer->index == 0 && block->num_src > params->max_src)
        return too_large("nodes", block->num_src, params->max_src);
    if (block->first_dst != 0 || block->num_src < block->num_dst ||
        (layer->index > 0 && block->num_src != model->layers[layer->index - 1].rows))
        return plim__fail(PLIM_ERR_USAGE, "the batch's blocks are not a chain of native ones");
    return PLIM_OK;
}

static plim_status_t begin_part(plim__model_t *model, const plim_batch_t *batch,
                                const plim__batch_columns_t *columns)
{
    const plim__model_params_t *params = &model->params;
    const int count = params->model.num_layers;
    const int blocks = params->graph_level ? 1 : count;
    if (params->model.kind != PLIM_MLP && batch->num_blocks != blocks)
        return plim__fail(PLIM_ERR_USAGE, "a batch of %d blocks for a model that reads %d",
                          batch->num_blocks, blocks);
    if (batch->num_seeds > params->max_seeds)
        return too_large("seeds", batch->num_seeds, params->max_seeds);
    int64_t edges = 0;
    for (int i = 0; i < count; i++) {
        PLIM_TRY(set_hop(model, batch, &model->layers[i]));
        if (i == 0 || !params->graph_level)
            edges += model->layers[i].hop.num_edges;
    }
    if (edges > params->max_edges)
        return too_large("edges", edges, params->max_edges);
    const int64_t given = model->layers[count - 1].rows;
    if (given != (params->graph_level ? batch->num_nodes : batch->num_seeds))
        return plim__fail(PLIM_ERR_USAGE, "a batch of %lld seeds whose last layer gives %lld",
                          (long long)batch->num_seeds, (long long)given);
    PLIM_TRY(plim__model_set_columns(model, batch, columns));
    model->num_seeds = batch->num_seeds;
    model->nodes = (plim__node_ids_t){batch->nodes, batch->node_type == PLIM_I64};
    model->degrees = batch->degrees;
    if (model->layers[0].raw) {
        model->layers[0].input.data = (void *)batch->rows;
        model->layers[0].input.rows = model->layers[0].hop.num_src;
    }
    return PLIM_OK;
}

/* Runs the layer step by step, each over all rows. */
static void forward_steps(plim__model_t *model, plim__layer_t *layer,
                          const plim__matrix_t *residual)
{
    if (model->conv->forward != NULL) {
        model->conv->forward(model, layer);
    } else {
        plim__layer_input(model, layer, &layer->x);
        const bool two = layer->product[1].dense != NULL;
        plim__linear_forward(model, &layer->product[0], &layer->x, two ? layer->inner_y : layer->y);
        if (two) {
            const plim__epilogue_t inner = plim__layer_inner(model, layer);
            plim__epilogue_forward(model->team, &inner, layer->inner_y, NULL, &layer->inner_h,
                                   layer->inner_kept);
            plim__model_lap(model, &model->finish_ns);
            plim__linear_forward(model, &layer->product[1], &layer->inner_h, layer->y);
        }
    }
    const plim__epilogue_t epilogue = plim__layer_epilogue(model, layer);
    plim__epilogue_forward(model->team, &epilogue, layer->y, layer->residual ? residual : NULL,
                           &layer->h, layer->kept);
    plim__model_lap(model, &model->finish_ns);
}

static void forward_layer(plim__model_t *model, plim__layer_t *layer)
{
    plim__matrix_t residual = layer->input;
    residual.rows = layer->rows;
    if (layer->residual && residual.element == PLIM__F16) {
        plim__matrix_convert(model->team, &residual, &layer->converted);
        residual = layer->converted;
    }
    if (model->conv->prepare != NULL)
        model->conv->prepare(model, layer);
    if (plim__layer_tiled(model))
        plim__layer_forward_tiles(model, layer, &residual);
    else
        forward_steps(model, layer, &residual);
}

static void forward_head(plim__model_t *model, const plim_batch_t *batch)
{
    plim__head_t *head = &model->head;
    const plim__layer_t *last = &model->layers[model->params.model.num_layers - 1];
    plim__pooling_forward(model->team, model->params.model.pool, batch->num_seeds,
                          batch->graph_indptr, &last->h, head->pooled, head->chosen);
    if (model->element != PLIM__F32) {
        const plim__matrix_t pooled =
            plim__matrix_make(head->pooled, head->x.rows, head->x.width, PLIM__F32);
        plim__matrix_convert(model->team, &pooled, &head->x);
    }
    plim__model_lap(model, &model->sparse_ns);
    plim__linear_forward(model, &head->product, &head->x, head->h.data);
    const plim__epilogue_t epilogue = plim__model_epilogue(model, &head->after, true, false, 0);
    plim__epilogue_forward(model->team, &epilogue, head->h.data, NULL, &head->h, head->kept);
    plim__model_lap(model, &model->finish_ns);
}

/* The input of the last layer, or of the head, as floats. */
static const float *embeddings_of(plim__model_t *model)
{
    if (model->params.graph_level)
        return model->head.pooled;
    plim__matrix_t read = model->layers[model->params.model.num_layers - 1].input;
    if (model->embeddings == NULL)
        return read.data;
    read.rows = model->num_seeds;
    plim__matrix_t wide = plim__matrix_make(model->embeddings, read.rows, read.width, PLIM__F32);
    plim__matrix_convert(model->team, &read, &wide);
    return model->embeddings;
}

plim_status_t plim__model_forward(plim__model_t *model, const plim_batch_t *batch,
                                  const plim__pass_t *pass, plim__model_output_t *output_out)
{
    const int count = model->params.model.num_layers;
    PLIM_TRY(begin_part(model, batch, pass->columns));
    model->pass = *pass;
    plim__workspace_t *workspace = &model->workspace;
    workspace->used[PLIM__FRONT] = workspace->used[PLIM__BACK] = workspace->peak = 0;
    plim__model_place(model, workspace);
    if (workspace->peak > workspace->size)
        return too_large("bytes of activations", (int64_t)workspace->peak,
                         (int64_t)workspace->size);
    model->lap_ns = plim__clock_ns();
    plim__encoder_forward(model);
    for (int i = 0; i < count; i++)
        forward_layer(model, &model->layers[i]);
    if (model->params.graph_level)
        forward_head(model, batch);
    const plim__layer_t *last = &model->layers[count - 1];
    output_out->outputs = model->params.graph_level ? model->head.h.data : last->h.data;
    output_out->embeddings = pass->embeddings ? embeddings_of(model) : NULL;
    output_out->embedding_width = model->params.graph_level ? last->out : last->in;
    return plim__model_check(model);
}

static void backward_head(plim__model_t *model, const plim_batch_t *batch, const float *doutputs)
{
    plim__head_t *head = &model->head;
    const plim__layer_t *last = &model->layers[model->params.model.num_layers - 1];
    const plim__epilogue_t epilogue = plim__model_epilogue(model, &head->after, true, false, 0);
    const plim__epilogue_gradients_t gradients = plim__model_epilogue_gradients(&head->after);
    plim__epilogue_backward(model->team, &epilogue, &head->h, head->kept, doutputs, &head->dy, NULL,
                            &gradients, head->scratch);
    plim__model_lap(model, &model->finish_ns);
    plim__linear_backward(model, &head->product, &head->dy, &head->x, head->dpooled);
    plim__matrix_t dh = plim__matrix_make((void *)last->dh, last->rows, last->out, PLIM__F32);
    plim__pooling_backward(model->team, model->params.model.pool, batch->num_seeds,
                           batch->graph_indptr, head->chosen, head->dpooled, &dh);
    plim__model_lap(model, &model->sparse_ns);
}

static void backward_layer(plim__model_t *model, plim__layer_t *layer, const float *dh)
{
    const plim__epilogue_t epilogue = plim__layer_epilogue(model, layer);
    const plim__epilogue_gradients_t gradients = plim__model_epilogue_gradients(&layer->after);
    plim__epilogue_backward(model->team, &epilogue, &layer->h, layer->kept, dh, &layer->dy,
                            layer->dresidual, &gradients, layer->scratch);
    plim__model_lap(model, &model->finish_ns);
    model->conv->backward(model, layer);
}

plim_status_t plim__model_backward(plim__model_t *model, const plim_batch_t *batch,
                                   const float *doutputs)
{
    model->lap_ns = plim__clock_ns();
    if (model->params.graph_level)
        backward_head(model, batch, doutputs);
    for (int i = model->params.model.num_layers - 1; i >= 0; i--) {
        plim__layer_t *layer = &model->layers[i];
        backward_layer(model, layer, layer->plain ? doutputs : layer->dh);
    }
    plim__encoder_backward(model);
    return plim__model_check(model);
}
