/* What a training is expected to cost beside loading: layers, evaluations, checkpoints. */
#include "plan/effort.h"
#include "plan/expect.h"

#include "base/check.h"
#include "base/job.h"
#include "load/loader_params.h"
#include "plan/load_facts.h"
#include "plan/plan_settings.h"
#include "plan/train_plan.h"

#include <math.h>
#include <string.h>

/* Work of the team: shared, if that is faster. */
static void add_team(const plim__view_t *view, double core_seconds, plim__effort_t *effort)
{
    const double shared = core_seconds / view->threads + view->rates->cost[PLIM__RATE_SHARE][0];
    effort->caller += fmin(core_seconds, shared);
    effort->team += core_seconds;
}

/* Work of the computing thread alone. */
static void add_alone(double seconds, plim__effort_t *effort)
{
    effort->caller += seconds;
    effort->team += seconds;
}

/* One layer of one part. */
typedef struct layer {
    bool first;
    double sources, rows, edges; /* rows: destinations */
    double in, out;              /* columns */
    double source_bytes;         /* of its input */
    double byte;                 /* what one costs beyond the rates */
} layer_t;

/* A product's forward pass, or both gradients, of which the first layer needs no input's. */
static void add_product(const plim__view_t *view, const plim_model_t *model, const layer_t *layer,
                        double rows, double in, double out, bool back, plim__effort_t *effort)
{
    const plim__rate_t forward =
        model->precision == PLIM_PRECISION_BF16 ? PLIM__RATE_BF16_FORWARD : PLIM__RATE_F32_FORWARD;
    const double moved = (in + out) * sizeof(float) * layer->byte;
    if (!back) {
        add_team(view, rows * (plim__rate_at(view->rates, forward, in, out) + moved), effort);
        return;
    }
    add_team(view, rows * (plim__rate_at(view->rates, forward + 2, in, out) + moved), effort);
    if (!layer->first)
        add_team(view, rows * (plim__rate_at(view->rates, forward + 1, in, out) + moved), effort);
}

/* Columns of a product's output; the output layer of a GAT takes its heads' mean. */
static double columns_out(const plim_model_t *model, const layer_t *layer)
{
    const bool mean = model->kind == PLIM_GAT && layer->out != (double)model->hidden;
    return mean ? layer->out * model->heads : layer->out;
}

static void add_products(const plim__view_t *view, const plim_model_t *model, const layer_t *layer,
                         bool back, plim__effort_t *effort)
{
    const double in = model->kind == PLIM_SAGE ? 2 * layer->in : layer->in;
    const double rows = model->kind == PLIM_GAT ? layer->sources : layer->rows;
    add_product(view, model, layer, rows, in, columns_out(model, layer), back, effort);
    if (model->kind == PLIM_GIN)
        add_product(view, model, layer, layer->rows, layer->out, layer->out, back, effort);
}

static void add_sums(const plim__view_t *view, const plim_model_t *model, const layer_t *layer,
                     bool back, plim__effort_t *effort)
{
    const double units = layer->edges + (back ? layer->sources : layer->rows);
    if (model->kind == PLIM_MLP)
        return;
    if (back && (model->kind == PLIM_GAT || !layer->first))
        add_alone(layer->edges * view->rates->cost[PLIM__RATE_REVERSE][0], effort);
    if (model->kind == PLIM_GAT) {
        const double channels = columns_out(model, layer) / model->heads;
        const plim__rate_t rate = back ? PLIM__RATE_ATTEND_BACK : PLIM__RATE_ATTEND;
        const double moved = channels * sizeof(float) * layer->byte * (back ? 2 : 1);
        add_team(view,
                 (layer->edges + layer->rows + layer->sources) * model->heads *
                     (plim__rate_at(view->rates, rate, channels, 0) + moved),
                 effort);
        return;
    }
    const double bytes = back ? layer->rows * layer->in * 4 : layer->source_bytes;
    const double large = plim__rate_y(PLIM__RATE_SUM, 1);
    /* Another thread has just written the rows that the first layer reads: no cache has them. */
    const double table = layer->first ? large : fmin(log2(fmax(bytes, 1)), large);
    const plim__rate_t rate = back ? PLIM__RATE_SUM_BACK : PLIM__RATE_SUM;
    const double moved = layer->in * sizeof(float) * layer->byte;
    if (!back || !layer->first)
        add_team(view, units * (plim__rate_at(view->rates, rate, layer->in, table) + moved),
                 effort);
}

static void add_epilogue(const plim__view_t *view, const plim_model_t *model, const layer_t *layer,
                         bool last, bool back, plim__effort_t *effort)
{
    const double values = layer->rows * columns_out(model, layer);
    plim__rate_t rate = PLIM__RATE_EPILOGUE;
    if (!last && model->norm != PLIM_NORM_NONE)
        rate = PLIM__RATE_NORM;
    else if (!last && model->dropout > 0)
        rate = PLIM__RATE_DROPOUT;
    double cost = view->rates->cost[rate][back ? 1 : 0];
    if (rate == PLIM__RATE_NORM && model->dropout > 0)
        cost += fmax(view->rates->cost[PLIM__RATE_DROPOUT][back ? 1 : 0] -
                         view->rates->cost[PLIM__RATE_EPILOGUE][back ? 1 : 0],
                     0);
    cost += (back ? 3.0 : 2.0) * sizeof(float) * layer->byte;
    add_team(view, values * cost, effort);
    if (model->kind == PLIM_GIN)
        add_team(view, values * cost, effort);
}

/* Layer `i` of a part. */
static layer_t layer_of(const plim__view_t *view, const plim_model_t *model,
                        const plim__batch_hops_t *part, int i)
{
    const bool graphs = view->info->num_graphs > 0;
    const bool last = i + 1 == model->num_layers && !graphs;
    const int hop = part->count > 0 && !graphs ? part->count - 1 - i : 0;
    const double sources = part->nodes[part->count == 0 ? 0 : hop + 1];
    const double hidden = (double)model->hidden;
    return (layer_t){.first = i == 0,
                     .rows = part->nodes[hop],
                     .sources = sources,
                     .edges = part->edges[hop],
                     .in = i == 0 ? (double)view->info->num_features : hidden,
                     .out = last ? (double)plim__plan_settings_outputs(view->info) : hidden,
                     .source_bytes = sources * (i == 0 ? view->row_bytes : hidden * sizeof(float))};
}

/* One part through the model; with gradients in training. */
static void add_model(const plim__view_t *view, const plim_training_t *training,
                      const plim__batch_hops_t *part, bool trains, bool recompute,
                      plim__effort_t *effort)
{
    const plim_model_t *model = &training->model;
    const bool graphs = view->info->num_graphs > 0;
    double bytes = 0; /* of all layers: the next pass over one of them comes after the others */
    for (int i = 0; i < model->num_layers; i++) {
        const layer_t layer = layer_of(view, model, part, i);
        const double rows = model->kind == PLIM_GAT ? layer.sources + layer.rows : layer.rows;
        bytes += layer.source_bytes + rows * columns_out(model, &layer) * sizeof(float);
    }
    const double byte = plim__memory_cost(view, bytes);
    for (int i = 0; i < model->num_layers; i++) {
        const bool last = i + 1 == model->num_layers && !graphs;
        layer_t layer = layer_of(view, model, part, i);
        layer.byte = byte;
        const int forwards = trains && recompute ? 2 : 1;
        for (int pass = 0; pass < forwards; pass++) {
            add_sums(view, model, &layer, false, effort);
            if (pass == 0 || model->kind == PLIM_GAT)
                add_products(view, model, &layer, false, effort);
        }
        add_epilogue(view, model, &layer, last, false, effort);
        if (!trains)
            continue;
        add_epilogue(view, model, &layer, last, true, effort);
        add_products(view, model, &layer, true, effort);
        add_sums(view, model, &layer, true, effort);
    }
}

/* Learnt values, by the account of weights, gradients and moments. */
static double weights_of(const plim__view_t *view, const plim_training_t *training)
{
    const plim_model_t *model = &training->model;
    const double hidden = (double)model->hidden, in = (double)view->info->num_features;
    const double outputs = (double)plim__plan_settings_outputs(view->info);
    const double wide = model->kind == PLIM_SAGE ? 2 : 1;
    const double inner = (double)(model->num_layers > 2 ? model->num_layers - 2 : 0);
    if (model->num_layers == 1)
        return wide * in * outputs;
    return wide * (in * hidden + inner * hidden * hidden + hidden * outputs) +
           (model->kind == PLIM_GIN ? (inner + 1) * hidden * hidden + outputs * outputs : 0);
}

/* One epoch of steps, or an evaluation of `seeds` seeds. */
static plim__effort_t pass_over(const plim__view_t *view, const plim_training_t *training,
                                const plim__train_plan_t *plan, double seeds, bool trains)
{
    const double batch = (double)view->recipe.batch_size;
    const double steps = ceil(seeds / batch);
    const double parts = plim__batch_parts(view, fmin(batch, fmax(seeds, 1)));
    const double outputs = (double)plim__plan_settings_outputs(view->info);
    const plim__batch_hops_t part = plim__batch_hops(view, fmin(batch, seeds) / parts);
    plim__effort_t loading = {0}, step = {0};
    plim__add_loading(view, seeds, batch, parts, &loading);
    add_model(view, training, &part, trains, plan->recompute, &step);
    add_team(view, fmin(batch, seeds) / parts * outputs * view->rates->cost[PLIM__RATE_LOSS][0],
             &step);
    if (trains) /* its gradients are added up */
        add_team(view, weights_of(view, training) * view->rates->cost[PLIM__RATE_PACK][0], &step);
    step.caller *= parts;
    step.team *= parts;
    if (trains) {
        plim__effort_t update = {0};
        add_team(view, weights_of(view, training) * view->rates->cost[PLIM__RATE_UPDATE][0],
                 &update);
        step.caller += update.caller / (double)training->accumulation;
        step.team += update.team / (double)training->accumulation;
    }
    loading.caller += step.caller * steps;
    loading.team += step.team * steps;
    return loading;
}

/* Layer `index` of an exact pass: the rows of `rows` nodes by those of `sources` nodes. */
static void add_exact_layer(const plim__view_t *view, const plim_model_t *model, int index,
                            double rows, double sources, const plim__exact_cost_t *cost,
                            plim__effort_t *effort)
{
    const bool first = index == 0, last = index + 1 == model->num_layers;
    const double nodes = (double)view->info->num_nodes;
    const double slices = fmax((double)cost->layers[index].slices, 1);
    const double blocks = fmax((double)cost->layers[index].blocks, 1);
    const double columns = (double)cost->layers[index].columns;
    const double hidden = (double)model->hidden * sizeof(float);
    const bool max = model->kind == PLIM_SAGE && model->aggregation == PLIM_MAX;
    const layer_t layer = {
        .first = first,
        .sources = sources,
        .rows = rows,
        .edges = rows / fmax(nodes, 1) * (double)view->info->num_edges,
        .in = (double)(first ? view->info->num_features : model->hidden),
        .out = (double)(last ? plim__plan_settings_outputs(view->info) : model->hidden),
        .byte = plim__memory_cost(view, sources * (first ? view->row_bytes : hidden))};
    const double lists = layer.edges * (double)plim__index_bytes(view->info->index_type);
    const double states =
        rows * slices * columns * sizeof(float) * (blocks - 1 + (slices - 1) / slices);
    const double own = model->kind == PLIM_SAGE ? rows / fmax(sources, 1) : 0;
    const double inputs = first                            ? nodes * view->row_bytes
                          : cost->layers[index - 1].stored ? sources * layer.in * sizeof(float)
                                                           : 0;
    plim__add_scan(view, (slices + own) * inputs + slices * blocks * lists + states, effort);
    plim__add_moves(view, states, effort); /* written by a pass, read by the next */
    if (rows < nodes)                      /* whose inputs are needed */
        plim__add_scan(view, lists, effort);
    if (cost->layers[index].stored)
        plim__add_moves(view, rows * layer.out * sizeof(float), effort);
    if (model->kind == PLIM_GAT) {
        add_products(view, model, &layer, false, effort);
        add_sums(view, model, &layer, false, effort);
    } else {
        const double table = sources / blocks * columns * sizeof(float);
        const bool before = layer.out <= layer.in && !max; /* the product, since it is narrower */
        add_team(view,
                 slices * (layer.edges + rows) *
                     (plim__rate_at(view->rates, PLIM__RATE_SUM, columns,
                                    fmin(log2(fmax(table, 1)), plim__rate_y(PLIM__RATE_SUM, 1))) +
                      columns * sizeof(float) * plim__memory_cost(view, table)),
                 effort);
        add_product(view, model, &layer, before ? sources : rows, layer.in, layer.out, false,
                    effort);
        if (model->kind == PLIM_SAGE)
            add_product(view, model, &layer, rows, layer.in, layer.out, false, effort);
        if (model->kind == PLIM_GIN)
            add_product(view, model, &layer, rows, layer.out, layer.out, false, effort);
    }
    add_epilogue(view, model, &layer, last, false, effort);
}

/* An exact pass, layer by layer: all splits, what their neighbours need, and theirs. */
static plim__effort_t exact_pass(const plim__view_t *view, const plim_training_t *training,
                                 const plim__exact_cost_t *cost)
{
    const plim_dataset_info_t *info = view->info;
    const double nodes = (double)info->num_nodes;
    const double degree = (double)info->num_edges / fmax(nodes, 1);
    plim_model_t model = training->model;
    double rows[PLIM_HOPS_MAX + 1]; /* [i]: inputs of layer i */
    plim__effort_t effort = {0};
    model.precision = PLIM_PRECISION_F32; /* whatever training's is */
    rows[model.num_layers] = (double)(info->num_split[PLIM_TRAIN] + info->num_split[PLIM_VALID] +
                                      info->num_split[PLIM_TEST]);
    for (int i = model.num_layers - 1; i >= 0; i--)
        rows[i] = fmin(rows[i + 1] * (1 + degree), nodes);
    plim__add_scan(view, (nodes + 1) * sizeof(int64_t), &effort);
    for (int i = 0; i < model.num_layers; i++)
        add_exact_layer(view, &model, i, rows[i + 1], rows[i], cost, &effort);
    return effort;
}

/* An evaluation of a split, by batches of its own fan-out. */
static plim__effort_t split_pass(const plim__view_t *view, const plim_training_t *training,
                                 const plim__train_plan_t *plan, plim_split_t split)
{
    const plim_stream_params_t stream = plim__plan_settings_evaluation(view->info, training, split);
    plim__load_plan_t load = plan->load;
    plim__view_t own = *view;
    own.recipe = plim__load_stream_recipe(&view->recipe, &stream);
    own.plan = &load;
    for (int i = 0; i < own.recipe.num_hops; i++)
        if (own.recipe.fanout[i] != view->recipe.fanout[i])
            load.probe.count = 0, load.reaches.batch.seeds = 0; /* they were of other draws */
    return pass_over(&own, training, plan, (double)view->info->num_split[split], false);
}

/* What else a run directory holds: four headers of checkpoints, and lines. */
#define RUN_FILES_BYTES ((int64_t)1 << 20)

static int64_t account_bytes(const plim__train_plan_t *plan, const char *name)
{
    for (int i = 0; i < plan->num_accounts; i++)
        if (strcmp(plan->accounts[i].name, name) == 0)
            return plan->accounts[i].bytes;
    return 0;
}

/* Adds `rounds` evaluations between epochs, and `again` one at the end. `fixed`: seconds of each
 * that ranks do not divide. */
static void add_evaluations(double seconds, double fixed, double read_bytes, int64_t rounds,
                            bool again, plim__expectation_t *expect)
{
    const double times = (double)rounds + (again ? 1 : 0);
    if (rounds > 0)
        expect->evaluation_seconds += seconds + fixed;
    expect->run_seconds += times * (seconds + fixed);
    expect->run_evaluation_seconds += times * seconds;
    expect->run_read_bytes += plim__whole(times * read_bytes);
}

/* `rounds` evaluations between epochs, of which this rank computes `part`. At the end the splits
 * are scored that have no score of the best weights; without best weights, all. */
static void expect_evaluations(const plim__view_t *view, const plim_training_t *training,
                               const plim__exact_cost_t *exact, double part, int64_t rounds,
                               const plim__train_plan_t *plan, plim__expectation_t *expect)
{
    const unsigned splits = plim__plan_settings_splits(training);
    const bool best =
        rounds > 0 && (splits >> PLIM_VALID & 1) != 0 && view->info->num_split[PLIM_VALID] > 0;
    if (exact !=
        NULL) { /* a pass scores all splits, and loader and model are made again after it */
        const plim__effort_t effort = exact_pass(view, training, exact);
        add_evaluations(part * plim__effort_seconds(view, &effort), expect->start_seconds,
                        effort.read_bytes + (double)plan->load.expect.run_read_bytes, rounds, !best,
                        expect);
        return;
    }
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++) {
        if (view->info->num_split[split] == 0)
            continue;
        const plim__effort_t effort = split_pass(view, training, plan, (plim_split_t)split);
        const bool between = (splits >> split & 1) != 0;
        add_evaluations(part * plim__effort_seconds(view, &effort), 0, effort.read_bytes,
                        between ? rounds : 0, !best || !between, expect);
    }
}

/* Checkpoints: the rehearsal's and the last; after epochs, as far as their share allows; those that
 * are asked for; the best weights, and before exact evaluations. Each counts as all of the model's
 * and the optimiser's memory. */
static double checkpoint_seconds(const plim__view_t *view, const plim_training_t *training,
                                 const plim__train_plan_t *plan, int64_t rounds,
                                 const plim__expectation_t *expect)
{
    const double epochs = (double)training->epochs;
    const double steps = epochs * (double)expect->epoch_steps / (double)training->accumulation;
    plim__effort_t save = {0};
    plim__add_moves(view, (double)account_bytes(plan, "weights and optimiser"), &save);
    const double seconds = plim__effort_seconds(view, &save);
    double count = 2 + (double)rounds * (training->eval_exact ? 2 : 1);
    if (training->checkpoint_steps > 0)
        count += steps / (double)training->checkpoint_steps;
    if (training->checkpoint_seconds > 0)
        count += expect->run_seconds / training->checkpoint_seconds;
    return count * seconds + fmin(epochs * seconds, PLIM__SAVE_SHARE * expect->run_seconds);
}

/* The part of a pass that a rank of the job computes: the most shares that one has. */
static double rank_part(const plim_job_t *job, const plim_training_t *training)
{
    const int64_t shares = training->shares, ranks = job->core->transport.num_ranks;
    const int64_t most = (shares - 1) / ranks + 1;
    return (double)most / (double)shares;
}

void plim__train_expect(const plim_job_t *job, const plim_dataset_t *dataset,
                        const plim_training_t *training, const plim__rates_t *rates,
                        const plim__exact_cost_t *exact, plim__train_plan_t *plan)
{
    const plim__view_t view = plim__view_of(job, dataset, rates, &plan->load);
    plim__expectation_t *expect = &plan->expect;
    const double epochs = (double)training->epochs, part = rank_part(job, training);
    const int64_t rounds = training->eval_every > 0 ? training->epochs / training->eval_every : 0;
    const plim__effort_t epoch = pass_over(
        &view, training, plan, (double)plim__max_i64(view.info->num_split[PLIM_TRAIN], 1), true);
    expect->epoch_seconds = part * plim__effort_seconds(&view, &epoch);
    expect->epoch_core_seconds = part * (epoch.any + epoch.team);
    expect->run_seconds = expect->start_seconds + epochs * expect->epoch_seconds;
    expect->run_read_bytes += plim__whole(epochs * (double)expect->epoch_read_bytes);
    if (training->eval_every > 0)
        expect_evaluations(&view, training, exact, part, rounds, plan, expect);
    expect->run_seconds += checkpoint_seconds(&view, training, plan, rounds, expect);
    /* The last and the best, each twice while it is written. Without gradients the last is what the
     * account has, and the best is as large as these. */
    const int64_t weights = account_bytes(plan, "weights and optimiser");
    const int64_t files =
        plim__add_saturating_i64(RUN_FILES_BYTES, plim__mul_saturating_i64(weights, 2));
    expect->disk_bytes = plim__add_saturating_i64(
        expect->disk_bytes, plim__add_saturating_i64(files, plan->evaluation_disk_bytes));
}
