#include "plan/plan_settings.h"

#include "base/bounds.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/params.h"
#include "infer/link_scores.h"
#include "load/links.h"
#include "load/loader_params.h"
#include "load/slots.h"
#include "nn/model.h"
#include "nn/score.h"
#include "source/draw.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define BASES_MOST 1024
#define BASES_USUAL 30 /* as in PyTorch Geometric's examples */

plim_status_t plim__plan_settings_take(const plim_job_t *job, const plim_dataset_t *dataset,
                                       const plim_training_t *given, plim_training_t *training_out)
{
    PLIM_TRY(plim__dataset_check(dataset));
    PLIM_TRY(plim__params_take(given, "plim_training_t", training_out, sizeof *training_out));
    plim_training_t *training = training_out;
    if (training->task < PLIM_TASK_LABELS || training->task > PLIM_TASK_LINK)
        return plim__fail(PLIM_ERR_USAGE, "there is no task %d", (int)training->task);
    const bool link = training->task == PLIM_TASK_LINK;
    if (training->pairs != NULL && !link)
        return plim__fail(PLIM_ERR_USAGE, "`pairs` are of the `task` link only");
    training->num_pairs = link ? plim_dataset_info(dataset)->num_edges : 0;
    training->pairs_checksum = 0;
    training->num_pair_types =
        training->decoder == PLIM_DECODER_DISTMULT ? plim_dataset_info(dataset)->num_edge_types : 0;
    if ((training->valid_pairs == NULL) !=
        (training->valid_negatives == NULL && training->valid_drawn == 0))
        return plim__fail(PLIM_ERR_USAGE,
                          "`valid_negatives` are those of `valid_pairs`: give both");
    if (training->decoder < PLIM_DECODER_DOT || training->decoder > PLIM_DECODER_DISTMULT)
        return plim__fail(PLIM_ERR_USAGE, "there is no decoder %d", (int)training->decoder);
    if (training->decoder != PLIM_DECODER_DOT && !link)
        return plim__fail(PLIM_ERR_USAGE, "`decoder` is of the `task` link only");
    if (training->valid_pairs != NULL && !link)
        return plim__fail(PLIM_ERR_USAGE, "`valid_pairs` are of the `task` link only");
    training->num_valid_pairs = training->valid_checksum = 0;
    training->valid_shared = false;
    if (training->valid_pairs != NULL) {
        const plim__link_files_t files = {training->valid_pairs, training->valid_negatives,
                                          training->valid_drawn, training->num_pair_types};
        PLIM_TRY(plim__link_files_describe(job, &files, &training->num_valid_pairs,
                                           &training->valid_shared, &training->valid_checksum));
    }
    const plim_links_t links = plim__plan_settings_links(training);
    PLIM_TRY(plim__links_check_negatives(&links));
    return training->pairs == NULL
               ? PLIM_OK
               : plim__links_file_describe(job, training->pairs, training->num_pair_types > 0,
                                           &training->num_pairs, &training->pairs_checksum);
}

/* Labels and the training split, which links need not have. */
static plim_status_t check_labels(const plim_dataset_t *dataset)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const char *path = plim__dataset_path(dataset);
    if (info->label_kind == PLIM_LABELS_NONE)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: it has no labels to train on; import it with labels, or learn its "
                          "edges (`task` link)",
                          path);
    if (info->label_kind == PLIM_LABELS_CLASSES && info->num_classes < 2)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: its labels have %lld class, but training needs at least 2", path,
                          (long long)info->num_classes);
    if (info->num_split[PLIM_TRAIN] == 0)
        return plim__fail(
            PLIM_ERR_USAGE,
            "%s: it has no training split; import it with splits, or let the import draw them "
            "(`split` 0.6,0.2,0.2)",
            path);
    return PLIM_OK;
}

static plim__categories_t categories_of(const int64_t *counts, int most)
{
    plim__categories_t categories = {0};
    while (categories.columns < most && counts[categories.columns] > 0) {
        categories.counts[categories.columns] = counts[categories.columns];
        categories.columns++;
    }
    return categories;
}

static plim__categories_t edge_categories(const plim_training_t *training)
{
    return categories_of(training->edge_categories, PLIM_HOPS_MAX);
}

static plim__categories_t node_categories(const plim_training_t *training)
{
    return categories_of(training->node_categories, PLIM_CATEGORIES_MAX);
}

/* Integer features of nodes and their categories belong together. */
static plim_status_t check_node_categories(const plim_dataset_t *dataset,
                                           const plim_training_t *training)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const plim__categories_t categories = node_categories(training);
    int64_t rows = 0;
    for (int i = 0; i < categories.columns; i++)
        rows = plim__add_saturating_i64(rows, categories.counts[i]);
    if (info->feature_type != PLIM_I64 && categories.columns > 0)
        return plim__fail(PLIM_ERR_USAGE, "`node_categories` are of integer features of nodes: "
                                          "leave them out");
    if (info->feature_type == PLIM_I64 && categories.columns != info->num_features)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: the features of nodes are integers in %lld columns (at most %d are "
                          "read), but `node_categories` has %d entries; give the number of values "
                          "of each column, or import them as floats if they are numbers",
                          plim__dataset_path(dataset), (long long)info->num_features,
                          PLIM_CATEGORIES_MAX, categories.columns);
    if (rows > PLIM__WIDTH_MAX)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "`node_categories` are %lld in all; up to %lld are supported",
                          (long long)rows, (long long)PLIM__WIDTH_MAX);
    return PLIM_OK;
}

static plim_status_t check_dataset(const plim_dataset_t *dataset, const plim_training_t *training)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const char *path = plim__dataset_path(dataset);
    if (info->num_features == 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: it has no features, and a model needs some; import it with them",
                          path);
    const int64_t outputs = plim__plan_settings_outputs(info, training);
    if (training->task == PLIM_TASK_LABELS)
        PLIM_TRY(check_labels(dataset));
    PLIM_TRY(check_node_categories(dataset, training));
    if (info->num_features > PLIM__WIDTH_MAX || outputs > PLIM__WIDTH_MAX)
        return plim__fail(
            PLIM_ERR_UNSUPPORTED,
            "%s: it has %lld features and %lld classes or targets; models compute with "
            "up to %lld of each",
            path, (long long)info->num_features, (long long)outputs, (long long)PLIM__WIDTH_MAX);
    return PLIM_OK;
}

static bool attends(plim_model_kind_t kind)
{
    return kind == PLIM_GAT || kind == PLIM_GATV2;
}

static bool reads_edge_features(const plim_training_t *training)
{
    const plim_model_kind_t kind = training->model.kind;
    return kind == PLIM_GINE || (attends(kind) && training->edge_features);
}

static bool reads_edge_weight(const plim_training_t *training)
{
    return training->model.kind == PLIM_GCN && training->edge_weight;
}

/* The columns of the dataset that the batches carry for the model. */
static unsigned columns_read(const plim_training_t *training)
{
    return (reads_edge_features(training) ? PLIM_EDGE_FEATURES : 0U) |
           (reads_edge_weight(training) ? PLIM_EDGE_WEIGHT : 0U) |
           (training->model.kind == PLIM_RGCN ? PLIM_EDGE_TYPE : 0U);
}

/* Integer features of edges and their categories belong together. */
static plim_status_t check_categories(const plim_dataset_info_t *info,
                                      const plim_training_t *training)
{
    const bool integers = info->edge_feature_type == PLIM_I64;
    const int count = edge_categories(training).columns;
    if (count > 0 && (training->model.kind != PLIM_GINE || !integers))
        return plim__fail(PLIM_ERR_USAGE,
                          "`edge_categories` are of the model gine and of integer features of "
                          "edges: leave them out");
    if (!integers || !reads_edge_features(training))
        return PLIM_OK;
    if (attends(training->model.kind))
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "the features of edges are integers, categories that only the model gine "
                          "reads; import them as floats");
    if (count != info->num_edge_features)
        return plim__fail(PLIM_ERR_USAGE,
                          "the features of edges are integers in %lld columns, but "
                          "`edge_categories` has %d entries; give the number of values of each "
                          "column, such as 5,6,2 for the bonds of OGB",
                          (long long)info->num_edge_features, count);
    return PLIM_OK;
}

/* Whether the dataset has what the model reads of edges, and a loader of it brings it. */
static plim_status_t check_columns(const plim_dataset_t *dataset, const plim_training_t *training)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const char *path = plim__dataset_path(dataset);
    const unsigned read = columns_read(training);
    const unsigned missing = read & ~info->columns;
    if (missing != 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s has no %s of edges, which the model reads; import it with them, or "
                          "choose another `model`",
                          path,
                          (missing & PLIM_EDGE_FEATURES) != 0 ? "features"
                          : (missing & PLIM_EDGE_TYPE) != 0   ? "types"
                                                              : "weights");
    if (training->edge_weight && !reads_edge_weight(training))
        return plim__fail(PLIM_ERR_USAGE, "`edge_weight` is read by the model gcn only");
    if (training->edge_features && !reads_edge_features(training))
        return plim__fail(PLIM_ERR_USAGE,
                          "`edge_features` are read by the models gine, gat and gatv2 only");
    if (training->bases < 0 || training->bases > BASES_MOST)
        return plim__fail(PLIM_ERR_USAGE, "`bases` is %lld; it must be from 0 to %d",
                          (long long)training->bases, BASES_MOST);
    if (training->bases > 0 && training->model.kind != PLIM_RGCN)
        return plim__fail(PLIM_ERR_USAGE, "`bases` is of the model rgcn only");
    return check_categories(info, training);
}

static plim_status_t check_model(const plim_dataset_info_t *info, const plim_training_t *training)
{
    const plim_model_t *model = &training->model;
    const int hops = training->recipe.num_hops;
    const bool drawn = plim__plan_settings_draws(info, training);
    if (model->kind < PLIM_MLP || model->kind > PLIM_RGCN)
        return plim__fail(PLIM_ERR_USAGE, "there is no model %d", (int)model->kind);
    if (model->num_layers < 1 || model->num_layers > PLIM_HOPS_MAX)
        return plim__fail(PLIM_ERR_USAGE, "`num_layers` is %d; it must be from 1 to %d",
                          model->num_layers, PLIM_HOPS_MAX);
    if (drawn && hops != model->num_layers)
        return plim__fail(
            PLIM_ERR_USAGE,
            "the model has %d layers, but `fanout` has %d entries; give one for each layer",
            model->num_layers, hops);
    if (!drawn && hops != 0)
        return plim__fail(PLIM_ERR_USAGE,
                          info->num_graphs > 0
                              ? "a dataset of many graphs gives whole graphs: leave out `fanout`"
                              : "an MLP uses no neighbours: leave out `fanout`");
    if (model->hidden < 1 || model->hidden > PLIM__WIDTH_MAX)
        return plim__fail(PLIM_ERR_USAGE, "`hidden` is %lld; it must be from 1 to %lld",
                          (long long)model->hidden, (long long)PLIM__WIDTH_MAX);
    if (model->heads < 1 || (attends(model->kind) && model->hidden % model->heads != 0))
        return plim__fail(PLIM_ERR_USAGE,
                          "%lld hidden channels cannot be divided among %d heads; make `hidden` a "
                          "multiple of `heads`",
                          (long long)model->hidden, model->heads);
    if (!(model->dropout >= 0.0f && model->dropout < 1.0f))
        return plim__fail(PLIM_ERR_USAGE, "`dropout` is %g; it must be at least 0 and below 1",
                          (double)model->dropout);
    if (training->shares < 1 || training->shares > PLIM_SHARES_MAX)
        return plim__fail(PLIM_ERR_USAGE, "`shares` is %lld; it must be from 1 to %d",
                          (long long)training->shares, PLIM_SHARES_MAX);
    if (model->norm == PLIM_NORM_BATCH && training->shares > 1)
        return plim__fail(PLIM_ERR_USAGE,
                          "batch norm needs the whole batch, so it cannot be cut into %lld "
                          "shares; use `norm` layer, or `shares` 1 on one rank",
                          (long long)training->shares);
    if (model->norm == PLIM_NORM_BATCH && training->microbatch > 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "batch norm needs the whole batch, so it cannot be split into "
                          "microbatches; use `norm` layer, or a smaller `batch_size`");
    return PLIM_OK;
}

static plim_status_t check_optimiser(const plim_optimiser_t *optimiser)
{
    const struct {
        const char *name;
        double value, below;
    } numbers[] = {
        {"rate", optimiser->rate, INFINITY},
        {"momentum", optimiser->momentum, 1},
        {"beta1", optimiser->beta1, 1},
        {"beta2", optimiser->beta2, 1},
        {"epsilon", optimiser->epsilon, INFINITY},
        {"weight_decay", optimiser->weight_decay, INFINITY},
        {"clip_norm", optimiser->clip_norm, INFINITY},
        {"schedule_factor", optimiser->schedule_factor, INFINITY},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (!(numbers[i].value >= 0 && numbers[i].value < numbers[i].below))
            return plim__fail(PLIM_ERR_USAGE, "`%s` is %g; it must be at least 0 and %s",
                              numbers[i].name, numbers[i].value,
                              isinf(numbers[i].below) ? "finite" : "below 1");
    if (optimiser->schedule == PLIM_SCHEDULE_STEP && optimiser->schedule_epochs < 1)
        return plim__fail(PLIM_ERR_USAGE,
                          "the step schedule needs the number of epochs between its steps "
                          "(`schedule_epochs`)");
    return PLIM_OK;
}

/* What is decided otherwise, or not possible yet, for links. */
static plim_status_t check_links(const plim_dataset_t *dataset, const plim_training_t *training)
{
    const bool valid = training->num_valid_pairs > 0;
    const plim_metric_t metric = training->valid_shared ? PLIM_METRIC_ROC_AUC : PLIM_METRIC_MRR;
    const struct {
        const char *name;
        bool given;
        const char *why;
    } refused[] = {
        {"microbatch", training->microbatch > 0, "batches of links are not cut"},
        {"eval_every", training->eval_every > 0 && !valid,
         "its evaluations score `valid_pairs`: give these too"},
        {"eval_exact", training->eval_exact && !valid,
         "its evaluations score `valid_pairs`: give these too"},
        {"patience", training->patience > 0 && !valid,
         "its evaluations score `valid_pairs`: give these too"},
        {"valid_pairs", valid && (training->eval_every < 1 || !training->eval_exact),
         "pairs are scored exactly: set `eval_every` and `eval_exact`"},
        {"loss", training->loss != PLIM_LOSS_AUTO && training->loss != PLIM_LOSS_BCE,
         "the loss of links is bce"},
        {"eval_splits", training->eval_splits != PLIM_SPLITS_AUTO, "links have no splits"},
        {"eval_train", training->eval_train, "links have no splits"},
        {"temporal", training->temporal != PLIM_TEMPORAL_NONE, "pairs have no times"},
        {"metric", training->metric != PLIM_METRIC_AUTO && (!valid || training->metric != metric),
         "by `valid_negatives` it is mrr, or roc-auc where all pairs share them"},
    };
    if (plim_dataset_info(dataset)->num_graphs > 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: links are of one graph; a dataset of many graphs has the `task` "
                          "labels",
                          plim__dataset_path(dataset));
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (refused[i].given)
            return plim__fail(PLIM_ERR_USAGE, "`%s` is not for the `task` link: %s",
                              refused[i].name, refused[i].why);
    const int64_t over = training->recipe.batch_size % training->shares;
    if (over != 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "the %lld shares of a batch of links must be equal: make `batch_size` "
                          "%lld instead of %lld",
                          (long long)training->shares,
                          (long long)(training->recipe.batch_size + training->shares - over),
                          (long long)training->recipe.batch_size);
    return PLIM_OK;
}

/* Whether loss and metric are of the labels' kind. */
static plim_status_t check_task(const plim_dataset_t *dataset, const plim_training_t *training)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const char *path = plim__dataset_path(dataset);
    const bool classes = info->label_kind == PLIM_LABELS_CLASSES;
    const plim_loss_t loss = plim__training_loss(info, training);
    const plim_metric_t metric = plim__training_metric(info, training);
    if (classes && loss != PLIM_LOSS_CROSS_ENTROPY)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: its labels are classes, so the loss is cross-entropy; for a "
                          "regression import the data again with `targets` values",
                          path);
    if (!classes && loss == PLIM_LOSS_CROSS_ENTROPY)
        return plim__fail(
            PLIM_ERR_USAGE,
            "%s: its labels are values, not classes: the loss is mse, mae, or bce for "
            "values of 0 and 1",
            path);
    if (metric == PLIM_METRIC_ACCURACY && !classes)
        return plim__fail(
            PLIM_ERR_USAGE,
            "%s: its labels are values, which have no accuracy; use the `metric` rmse, "
            "mae, r2, or roc-auc with bce",
            path);
    if (metric == PLIM_METRIC_ROC_AUC && (classes ? info->num_classes != 2 : loss != PLIM_LOSS_BCE))
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: ROC-AUC needs two classes, or values of 0 and 1 with bce", path);
    const bool measures = plim__score_measures(metric) || metric == PLIM_METRIC_COSINE;
    if (metric == PLIM_METRIC_MRR)
        return plim__fail(PLIM_ERR_USAGE, "the `metric` mrr is of the `task` link");
    if (measures && classes)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: its labels are classes, which are right or wrong, not near or far; "
                          "use the `metric` accuracy%s",
                          path, info->num_classes == 2 ? " or roc-auc" : "");
    return PLIM_OK;
}

/* Whether evaluation can be made as the settings say. */
static plim_status_t check_evaluation(const plim_dataset_info_t *info,
                                      const plim_training_t *training)
{
    const int64_t *fanout = training->eval_fanout;
    const bool drawn = plim__plan_settings_draws(info, training);
    int count = 0;
    if (training->eval_splits > PLIM_SPLITS_ALL)
        return plim__fail(PLIM_ERR_USAGE, "eval_splits is %u; it must be between 0 and %d",
                          (unsigned)training->eval_splits, (int)PLIM_SPLITS_ALL);
    while (count < PLIM_HOPS_MAX && fanout[count] != 0) {
        if (fanout[count] < PLIM_FANOUT_ALL || fanout[count] > PLIM__FANOUT_MAX)
            return plim__fail(PLIM_ERR_USAGE,
                              "`eval_fanout` has %lld; give -1 (all neighbours) or 1 to %d",
                              (long long)fanout[count], PLIM__FANOUT_MAX);
        count++;
    }
    if (count > 0 && drawn && count != training->model.num_layers)
        return plim__fail(PLIM_ERR_USAGE,
                          "the model has %d layers, but `eval_fanout` has %d entries; give one for "
                          "each layer",
                          training->model.num_layers, count);
    if ((count > 0 || training->eval_exact) && !drawn && training->task != PLIM_TASK_LINK)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: its scores are exact already; leave out `eval_fanout` and "
                          "`eval_exact`",
                          info->num_graphs > 0 ? "a dataset of many graphs gives whole graphs"
                                               : "an MLP uses no neighbours");
    if (count > 0 && training->eval_exact)
        return plim__fail(PLIM_ERR_USAGE,
                          "`eval_exact` takes all neighbours: leave out `eval_fanout`");
    return PLIM_OK;
}

/* Checks `temporal`, and that the recipe leaves to it the fields that it sets. */
static plim_status_t check_draws(const plim_dataset_t *dataset, const plim_training_t *training)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const plim_recipe_t *recipe = &training->recipe;
    if (recipe->replace)
        return plim__fail(PLIM_ERR_USAGE,
                          "training draws without replacement; leave `replace` false");
    if (recipe->disjoint || recipe->draw_by != 0 || recipe->latest || recipe->own_times)
        return plim__fail(PLIM_ERR_USAGE, "a training's neighbours are drawn uniformly, or as "
                                          "`temporal` says: leave out `disjoint`, `draw_by`, "
                                          "`latest` and `own_times`");
    if (training->temporal < PLIM_TEMPORAL_NONE || training->temporal > PLIM_TEMPORAL_LAST)
        return plim__fail(PLIM_ERR_USAGE, "there is no way %d to draw by time",
                          (int)training->temporal);
    if (training->temporal == PLIM_TEMPORAL_NONE)
        return PLIM_OK;
    if (!plim__plan_settings_draws(info, training))
        return plim__fail(PLIM_ERR_USAGE, "%s: leave out `temporal`",
                          info->num_graphs > 0 ? "a dataset of many graphs gives whole graphs"
                                               : "an MLP uses no neighbours");
    if (training->model.kind == PLIM_GCN)
        return plim__fail(PLIM_ERR_USAGE,
                          "gcn weighs edges by degrees in the whole graph, which count later "
                          "edges: with `temporal` choose another `model`, such as sage");
    if ((info->columns & PLIM_NODE_TIME) == 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s has no node_time.npy, the times of seeds that `temporal` needs; "
                          "import it with them",
                          plim__dataset_path(dataset));
    if (training->eval_exact)
        return plim__fail(PLIM_ERR_USAGE,
                          "with `temporal` a node's neighbourhood depends on the seed, so no pass "
                          "over the graph serves all seeds: leave out `eval_exact`; `eval_fanout` "
                          "-1 takes all neighbours that are not later");
    return PLIM_OK;
}

plim_status_t plim__plan_settings_check(const plim_dataset_t *dataset,
                                        const plim_training_t *training)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    PLIM_TRY(check_dataset(dataset, training));
    PLIM_TRY(check_model(info, training));
    PLIM_TRY(check_columns(dataset, training));
    PLIM_TRY(check_draws(dataset, training));
    const plim_recipe_t recipe = plim__plan_settings_recipe(info, training);
    PLIM_TRY(plim__load_recipe_check(dataset, &recipe));
    PLIM_TRY(check_optimiser(&training->optimiser));
    PLIM_TRY((training->task == PLIM_TASK_LINK ? check_links : check_task)(dataset, training));
    PLIM_TRY(check_evaluation(info, training));
    if (training->epochs < 1 || training->epochs > PLIM__TURNS_MAX)
        return plim__fail(PLIM_ERR_USAGE, "`epochs` is %lld; it must be at least 1",
                          (long long)training->epochs);
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {{"eval_every", training->eval_every},
                  {"patience", training->patience},
                  {"microbatch", training->microbatch},
                  {"checkpoint_steps", training->checkpoint_steps},
                  {"memory_steps", training->memory_steps},
                  {"schedule_epochs", training->optimiser.schedule_epochs}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i].value < 0 || counts[i].value > PLIM__TURNS_MAX)
            return plim__fail(PLIM_ERR_USAGE, "`%s` is %lld; it must be from 0 to %lld",
                              counts[i].name, (long long)counts[i].value,
                              (long long)PLIM__TURNS_MAX);
    if (!(training->checkpoint_seconds >= 0))
        return plim__fail(PLIM_ERR_USAGE, "`checkpoint_seconds` must not be negative");
    if (training->accumulation < 1 || training->accumulation > PLIM__TURNS_MAX)
        return plim__fail(PLIM_ERR_USAGE, "`accumulation` is %lld; it must be at least 1",
                          (long long)training->accumulation);
    const bool validates =
        training->eval_every > 0 && (plim__plan_settings_splits(training) >> PLIM_VALID & 1) != 0;
    if (training->patience > 0 && training->task != PLIM_TASK_LINK &&
        (!validates || info->num_split[PLIM_VALID] == 0))
        return plim__fail(PLIM_ERR_USAGE,
                          "`patience` counts evaluations without a better score, but there are no "
                          "evaluations: %s",
                          validates ? "the dataset has no validation split" : "set `eval_every`");
    return PLIM_OK;
}

plim_loss_t plim__training_loss(const plim_dataset_info_t *info, const plim_training_t *training)
{
    if (training->task == PLIM_TASK_LINK)
        return PLIM_LOSS_BCE;
    if (training->loss != PLIM_LOSS_AUTO)
        return training->loss;
    if (info->label_kind == PLIM_LABELS_CLASSES)
        return PLIM_LOSS_CROSS_ENTROPY;
    return info->multi_label ? PLIM_LOSS_BCE : PLIM_LOSS_MSE;
}

plim_metric_t plim__training_metric(const plim_dataset_info_t *info,
                                    const plim_training_t *training)
{
    if (training->metric != PLIM_METRIC_AUTO)
        return training->metric;
    if (training->num_valid_pairs > 0 && !training->valid_shared)
        return PLIM_METRIC_MRR;
    if (plim__training_loss(info, training) == PLIM_LOSS_BCE)
        return PLIM_METRIC_ROC_AUC;
    return info->label_kind == PLIM_LABELS_CLASSES ? PLIM_METRIC_ACCURACY : PLIM_METRIC_RMSE;
}

PLIM_API void plim_training_task(const plim_dataset_info_t *info, const plim_training_t *training,
                                 plim_loss_t *loss_out, plim_metric_t *metric_out)
{
    *loss_out = plim__training_loss(info, training);
    *metric_out = plim__training_metric(info, training);
}

plim_links_t plim__plan_settings_links(const plim_training_t *training)
{
    plim_links_t links = PLIM_LINKS_INIT;
    if (training->task != PLIM_TASK_LINK)
        return links;
    links.num_pairs = training->num_pairs;
    links.path = training->pairs;
    links.all_edges = training->pairs == NULL;
    links.negatives = PLIM_NEGATIVE_PAIRS;
    links.amount = training->negatives;
    links.exclude = training->exclude;
    links.num_types = training->num_pair_types;
    return links;
}

plim__scorer_t plim__plan_settings_scorer(const plim_training_t *training)
{
    plim__scorer_t scorer = {.kind = PLIM_DECODER_DOT};
    if (training->task != PLIM_TASK_LINK)
        return scorer;
    scorer.kind = training->decoder;
    if (scorer.kind == PLIM_DECODER_DISTMULT)
        scorer.types = plim__max_i64(1, training->num_pair_types);
    return scorer;
}

static int64_t batch_pairs(const plim_training_t *training)
{
    return plim__min_i64(training->recipe.batch_size / training->shares, training->num_pairs);
}

int64_t plim__plan_settings_pairs(const plim_training_t *training)
{
    const plim_links_t links = plim__plan_settings_links(training);
    const int64_t pairs = batch_pairs(training);
    return plim__add_saturating_i64(pairs, plim__negatives_count(&links, pairs));
}

int64_t plim__plan_settings_places(const plim_training_t *training)
{
    const plim_links_t links = plim__plan_settings_links(training);
    return plim__links_places(&links, batch_pairs(training));
}

plim_stream_params_t plim__plan_settings_stream(const plim_training_t *training,
                                                plim_links_t *links_out)
{
    plim_stream_params_t stream = PLIM_STREAM_PARAMS_INIT;
    *links_out = plim__plan_settings_links(training);
    if (training->task == PLIM_TASK_LINK) {
        stream.links = links_out;
        stream.batch_size = training->recipe.batch_size / training->shares;
    }
    return stream;
}

int64_t plim__plan_settings_outputs(const plim_dataset_info_t *info,
                                    const plim_training_t *training)
{
    if (training->task == PLIM_TASK_LINK)
        return training->model.hidden;
    return info->label_kind == PLIM_LABELS_CLASSES ? info->num_classes : info->num_targets;
}

/* The type in which batches carry values; integers stay. */
static plim_dtype_t recipe_type(const plim_dataset_info_t *info)
{
    return info->feature_type == PLIM_F16 ? PLIM_F16 : PLIM_F32;
}

plim_recipe_t plim__plan_settings_recipe(const plim_dataset_info_t *info,
                                         const plim_training_t *training)
{
    plim_recipe_t recipe = training->recipe;
    recipe.replace = false;
    recipe.form = PLIM_NATIVE;
    recipe.no_features = false;
    recipe.degrees = training->model.kind == PLIM_GCN;
    /* A weight of a self-loop is the node's own. */
    recipe.skip_loops = plim__model_skips_loops(&training->model) && info->max_self_loops != 0 &&
                        !reads_edge_weight(training);
    recipe.columns = columns_read(training);
    if (training->temporal != PLIM_TEMPORAL_NONE) {
        recipe.own_times = (info->columns & PLIM_EDGE_TIME) != 0;
        recipe.draw_by = recipe.own_times ? PLIM_EDGE_TIME : PLIM_NODE_TIME;
        recipe.disjoint = true;
        recipe.latest = training->temporal == PLIM_TEMPORAL_LAST;
    }
    recipe.edge_index = recipe.edge_ids = false;
    recipe.row_type = recipe_type(info);
    recipe.index_type = PLIM_I32;
    return recipe;
}

plim__columns_t plim__plan_settings_columns(const plim_dataset_info_t *info,
                                            const plim_training_t *training)
{
    plim__columns_t columns = {.edge_weights = reads_edge_weight(training),
                               .node_categories = node_categories(training),
                               .edge_feature_type = recipe_type(info)};
    if (reads_edge_features(training) && info->edge_feature_type != PLIM_I64) {
        columns.edge_features = info->num_edge_features;
    } else if (reads_edge_features(training)) {
        columns.edge_categories = edge_categories(training);
    }
    if (training->model.kind == PLIM_RGCN) {
        columns.edge_types = info->num_edge_types;
        columns.bases = training->bases > 0
                            ? training->bases
                            : plim__min_i64(plim__max_i64(info->num_edge_types, 1), BASES_USUAL);
    }
    return columns;
}

plim__batch_columns_t plim__plan_settings_batch(const plim_batch_t *batch)
{
    const plim__slot_t *slot = (const plim__slot_t *)(const void *)batch;
    return (plim__batch_columns_t){.edge_weights = batch->edge_weight,
                                   .weight_sums = slot->weight_sums,
                                   .edge_features = batch->edge_features,
                                   .edge_types = batch->edge_type,
                                   .edge_categories = batch->edge_features,
                                   .node_categories = batch->rows};
}

bool plim__plan_settings_draws(const plim_dataset_info_t *info, const plim_training_t *training)
{
    return info->num_graphs == 0 && training->model.kind != PLIM_MLP;
}

unsigned plim__plan_settings_splits(const plim_training_t *training)
{
    if (training->task == PLIM_TASK_LINK) /* valid_pairs */
        return 1U << PLIM_VALID;
    if (training->eval_splits != PLIM_SPLITS_AUTO)
        return (unsigned)training->eval_splits;
    return 1U << PLIM_VALID | 1U << PLIM_TEST | (training->eval_train ? 1U << PLIM_TRAIN : 0);
}

/* About how many nodes one seed reaches. */
static double reach(const plim_dataset_info_t *info, const int64_t *fanout, int hops)
{
    const double mean = (double)info->num_edges / (double)info->num_nodes;
    double nodes = 1;
    for (int i = 0; i < hops; i++)
        nodes *= 1 + (fanout[i] < 0 ? mean : fmin((double)fanout[i], mean));
    return nodes;
}

plim_stream_params_t plim__plan_settings_evaluation(const plim_dataset_info_t *info,
                                                    const plim_training_t *training,
                                                    plim_split_t split)
{
    const plim_recipe_t *recipe = &training->recipe;
    const int64_t *fanout = training->eval_fanout;
    const int hops = recipe->num_hops;
    plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
    params.split = split;
    params.shuffle = false;
    if (fanout[0] == 0 || !plim__plan_settings_draws(info, training))
        return params;
    const double ratio = reach(info, recipe->fanout, hops) / reach(info, fanout, hops);
    params.batch_size = recipe->batch_size;
    if (ratio < 1)
        params.batch_size = plim__max_i64((int64_t)((double)recipe->batch_size * ratio), 1);
    params.num_hops = hops;
    memcpy(params.fanout, fanout, sizeof params.fanout);
    return params;
}

bool plim__plan_settings_sampled(const plim_training_t *training)
{
    const plim_recipe_t *recipe = &training->recipe;
    const int64_t *fanout = training->eval_fanout[0] != 0 ? training->eval_fanout : recipe->fanout;
    bool sampled = false;
    for (int i = 0; i < recipe->num_hops && i < PLIM_HOPS_MAX; i++)
        sampled = sampled || fanout[i] >= 0;
    return sampled && !training->eval_exact;
}
