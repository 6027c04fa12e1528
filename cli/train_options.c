/* Options of `plimsoll train`, with the spellings of PyG's and OGB's scripts. */
#include "verb_train.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPTION_MODEL = CLI_OPTION_OWN,
    OPTION_LAYERS,
    OPTION_HIDDEN,
    OPTION_HEADS,
    OPTION_AGGR,
    OPTION_NORM,
    OPTION_ACT,
    OPTION_DROPOUT,
    OPTION_RESIDUAL,
    OPTION_POOL,
    OPTION_FANOUT,
    OPTION_BATCH,
    OPTION_SEED,
    OPTION_EPOCHS,
    OPTION_LR,
    OPTION_OPTIMIZER,
    OPTION_MOMENTUM,
    OPTION_WEIGHT_DECAY,
    OPTION_CLIP,
    OPTION_SCHEDULE,
    OPTION_STEP_SIZE,
    OPTION_GAMMA,
    OPTION_LOSS,
    OPTION_METRIC,
    OPTION_EVAL_EVERY,
    OPTION_LOG_STEPS,
    OPTION_PATIENCE,
    OPTION_EVAL_TRAIN,
    OPTION_MICROBATCH,
    OPTION_ACCUMULATION,
    OPTION_RECOMPUTE,
    OPTION_PRECISION,
    OPTION_CHECKPOINT_EVERY,
    OPTION_CHECKPOINT_MINUTES,
    OPTION_MEMORY_EVERY,
    OPTION_RUN,
    OPTION_RESUME,
    OPTION_ROW_CACHE,
    OPTION_SCRATCH,
    OPTION_VERIFY
};

static const struct option long_options[] = {
    {"model", required_argument, NULL, OPTION_MODEL},
    {"layers", required_argument, NULL, OPTION_LAYERS},
    {"num-layers", required_argument, NULL, OPTION_LAYERS},
    {"hidden", required_argument, NULL, OPTION_HIDDEN},
    {"hidden-channels", required_argument, NULL, OPTION_HIDDEN},
    {"heads", required_argument, NULL, OPTION_HEADS},
    {"aggr", required_argument, NULL, OPTION_AGGR},
    {"norm", required_argument, NULL, OPTION_NORM},
    {"act", required_argument, NULL, OPTION_ACT},
    {"dropout", required_argument, NULL, OPTION_DROPOUT},
    {"residual", no_argument, NULL, OPTION_RESIDUAL},
    {"pool", required_argument, NULL, OPTION_POOL},
    {"fanout", required_argument, NULL, OPTION_FANOUT},
    {"num-neighbors", required_argument, NULL, OPTION_FANOUT},
    {"batch", required_argument, NULL, OPTION_BATCH},
    {"batch-size", required_argument, NULL, OPTION_BATCH},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"epochs", required_argument, NULL, OPTION_EPOCHS},
    {"lr", required_argument, NULL, OPTION_LR},
    {"optimizer", required_argument, NULL, OPTION_OPTIMIZER},
    {"momentum", required_argument, NULL, OPTION_MOMENTUM},
    {"weight-decay", required_argument, NULL, OPTION_WEIGHT_DECAY},
    {"clip", required_argument, NULL, OPTION_CLIP},
    {"schedule", required_argument, NULL, OPTION_SCHEDULE},
    {"step-size", required_argument, NULL, OPTION_STEP_SIZE},
    {"gamma", required_argument, NULL, OPTION_GAMMA},
    {"loss", required_argument, NULL, OPTION_LOSS},
    {"metric", required_argument, NULL, OPTION_METRIC},
    {"eval-every", required_argument, NULL, OPTION_EVAL_EVERY},
    {"eval-steps", required_argument, NULL, OPTION_EVAL_EVERY},
    {"log-steps", required_argument, NULL, OPTION_LOG_STEPS},
    {"patience", required_argument, NULL, OPTION_PATIENCE},
    {"eval-train", no_argument, NULL, OPTION_EVAL_TRAIN},
    {"microbatch", required_argument, NULL, OPTION_MICROBATCH},
    {"gradient-accumulation-steps", required_argument, NULL, OPTION_ACCUMULATION},
    {"recompute", no_argument, NULL, OPTION_RECOMPUTE},
    {"precision", required_argument, NULL, OPTION_PRECISION},
    {"checkpoint-every", required_argument, NULL, OPTION_CHECKPOINT_EVERY},
    {"checkpoint-minutes", required_argument, NULL, OPTION_CHECKPOINT_MINUTES},
    {"memory-every", required_argument, NULL, OPTION_MEMORY_EVERY},
    {"log-interval", required_argument, NULL, OPTION_MEMORY_EVERY},
    {"run", required_argument, NULL, OPTION_RUN},
    {"resume", required_argument, NULL, OPTION_RESUME},
    {"row-cache", required_argument, NULL, OPTION_ROW_CACHE},
    {"scratch", required_argument, NULL, OPTION_SCRATCH},
    {"verify", no_argument, NULL, OPTION_VERIFY},
    CLI_COMMON_OPTIONS};

#define NUM_OPTIONS (sizeof long_options / sizeof long_options[0])
#define MORE_OPTIONS_MAX 32

_Static_assert((int)OPTION_VERIFY < (int)TRAIN_OPTION_MORE, "codes of their own");

/* Words that differ from run.json's: a dash for an underscore. */
static const char *const losses[] = {
    [PLIM_LOSS_AUTO] = "auto", [PLIM_LOSS_CROSS_ENTROPY] = "cross-entropy",
    [PLIM_LOSS_BCE] = "bce",   [PLIM_LOSS_MSE] = "mse",
    [PLIM_LOSS_MAE] = "mae",   NULL};
static const char *const metrics[] = {
    [PLIM_METRIC_AUTO] = "auto",       [PLIM_METRIC_ACCURACY] = "accuracy",
    [PLIM_METRIC_ROC_AUC] = "roc-auc", [PLIM_METRIC_MAE] = "mae",
    [PLIM_METRIC_RMSE] = "rmse",       NULL};

#define AT(field) offsetof(plim_training_t, field)

/* Options that are one of a few words, and the enumeration that they set. */
static const struct {
    int code;
    const char *option;
    plim_words_t of;
    const char *const *words; /* instead of the library's */
    size_t offset;
} word_options[] = {
    {OPTION_MODEL, "--model", PLIM_WORDS_MODEL, NULL, AT(model.kind)},
    {OPTION_AGGR, "--aggr", PLIM_WORDS_AGGREGATION, NULL, AT(model.aggregation)},
    {OPTION_NORM, "--norm", PLIM_WORDS_NORM, NULL, AT(model.norm)},
    {OPTION_ACT, "--act", PLIM_WORDS_ACTIVATION, NULL, AT(model.activation)},
    {OPTION_POOL, "--pool", PLIM_WORDS_POOL, NULL, AT(model.pool)},
    {OPTION_PRECISION, "--precision", PLIM_WORDS_PRECISION, NULL, AT(model.precision)},
    {OPTION_OPTIMIZER, "--optimizer", PLIM_WORDS_OPTIMISER, NULL, AT(optimiser.kind)},
    {OPTION_SCHEDULE, "--schedule", PLIM_WORDS_SCHEDULE, NULL, AT(optimiser.schedule)},
    {OPTION_LOSS, "--loss", PLIM_WORDS_LOSS, losses, AT(loss)},
    {OPTION_METRIC, "--metric", PLIM_WORDS_METRIC, metrics, AT(metric)},
};

_Static_assert(sizeof(plim_model_kind_t) == sizeof(int) && sizeof(plim_metric_t) == sizeof(int),
               "enumerations are written as int");

const char *train_model_name(plim_model_kind_t kind)
{
    return plim_words(PLIM_WORDS_MODEL)[kind];
}

static bool take_word(int code, train_t *train)
{
    size_t i = 0;
    while (i + 1 < sizeof word_options / sizeof word_options[0] && word_options[i].code != code)
        i++;
    const char *const *words = word_options[i].words;
    const int word = cli_parse_word(&train->common, word_options[i].option,
                                    words != NULL ? words : plim_words(word_options[i].of));
    if (word < 0)
        return false;
    memcpy((char *)&train->training + word_options[i].offset, &word, sizeof word);
    return true;
}

/* "10": the total; "+10": that many more than the run has. */
static bool take_epochs(train_t *train)
{
    const bool more = optarg[0] == '+';
    int64_t epochs;
    if (!cli_parse_int(&train->common, "--epochs", optarg, 1, INT32_MAX, &epochs))
        return false;
    train->epochs_given = true;
    train->more_epochs = more ? epochs : 0;
    if (!more)
        train->training.epochs = epochs;
    return true;
}

static bool take_int(const train_t *train, const char *option, int64_t minimum, int64_t *value_out)
{
    return cli_parse_int(&train->common, option, optarg, minimum, INT32_MAX, value_out);
}

/* How the model is built. */
static bool take_model(int code, train_t *train)
{
    plim_model_t *model = &train->training.model;
    int64_t value;
    double real;
    switch (code) {
    case OPTION_LAYERS:
        train->layers_given = true;
        if (!cli_parse_int(&train->common, "--layers", optarg, 1, PLIM_HOPS_MAX, &value))
            return false;
        model->num_layers = (int)value;
        return true;
    case OPTION_HIDDEN:
        return take_int(train, "--hidden", 1, &model->hidden);
    case OPTION_HEADS:
        train->heads_given = true;
        if (!cli_parse_int(&train->common, "--heads", optarg, 1, 1024, &value))
            return false;
        model->heads = (int)value;
        return true;
    case OPTION_DROPOUT:
        if (!cli_parse_real(&train->common, "--dropout", optarg, 0, 1, &real))
            return false;
        model->dropout = (float)real;
        return true;
    case OPTION_RESIDUAL:
        model->residual = true;
        return true;
    case OPTION_RECOMPUTE:
        model->recompute = true;
        return true;
    default:
        return take_word(code, train);
    }
}

/* How its weights are changed. */
static bool take_optimiser(int code, train_t *train)
{
    const cli_common_t *common = &train->common;
    plim_optimiser_t *optimiser = &train->training.optimiser;
    switch (code) {
    case OPTION_LR:
        return cli_parse_real(common, "--lr", optarg, 0, INFINITY, &optimiser->rate);
    case OPTION_MOMENTUM:
        return cli_parse_real(common, "--momentum", optarg, 0, 1, &optimiser->momentum);
    case OPTION_WEIGHT_DECAY:
        return cli_parse_real(common, "--weight-decay", optarg, 0, INFINITY,
                              &optimiser->weight_decay);
    case OPTION_CLIP:
        return cli_parse_real(common, "--clip", optarg, 0, INFINITY, &optimiser->clip_norm);
    case OPTION_STEP_SIZE:
        return take_int(train, "--step-size", 1, &optimiser->schedule_epochs);
    case OPTION_GAMMA:
        return cli_parse_real(common, "--gamma", optarg, 0, INFINITY, &optimiser->schedule_factor);
    default:
        return take_model(code, train);
    }
}

/* False after an error message. */
static bool take_option(int code, train_t *train, int argc, char **argv)
{
    const cli_common_t *common = &train->common;
    plim_training_t *training = &train->training;
    double minutes;
    train->given |= (uint64_t)1 << (code - CLI_OPTION_OWN);
    switch (code) {
    case OPTION_FANOUT:
        train->fanout_given = true;
        return cli_parse_fanout(common, argc, argv, &training->recipe);
    case OPTION_BATCH:
        return take_int(train, "--batch", 1, &training->recipe.batch_size);
    case OPTION_SEED:
        return cli_parse_seed(common, &training->recipe.seed);
    case OPTION_EPOCHS:
        return take_epochs(train);
    case OPTION_EVAL_EVERY:
        return take_int(train, "--eval-every", 0, &training->eval_every);
    case OPTION_LOG_STEPS:
        train->print_every = 0;
        if (!take_int(train, "--log-steps", 1, &training->eval_every))
            return false;
        train->print_every = training->eval_every;
        return true;
    case OPTION_PATIENCE:
        return take_int(train, "--patience", 0, &training->patience);
    case OPTION_EVAL_TRAIN:
        training->eval_train = true;
        return true;
    case OPTION_MICROBATCH:
        return take_int(train, "--microbatch", 0, &training->microbatch);
    case OPTION_ACCUMULATION:
        return take_int(train, "--gradient-accumulation-steps", 1, &training->accumulation);
    case OPTION_CHECKPOINT_EVERY:
        return take_int(train, "--checkpoint-every", 0, &training->checkpoint_steps);
    case OPTION_CHECKPOINT_MINUTES:
        if (!cli_parse_real(common, "--checkpoint-minutes", optarg, 0, 1e9, &minutes))
            return false;
        training->checkpoint_seconds = minutes * 60;
        return true;
    case OPTION_MEMORY_EVERY:
        return take_int(train, "--memory-every", 0, &training->memory_steps);
    case OPTION_RUN:
        train->run = optarg;
        return true;
    case OPTION_RESUME:
        train->resume = optarg;
        return true;
    case OPTION_ROW_CACHE:
        return cli_parse_cache(common, "--row-cache", &train->params.row_cache);
    case OPTION_SCRATCH:
        train->params.scratch = optarg;
        return true;
    case OPTION_VERIFY:
        train->verify = true;
        return true;
    default:
        return take_optimiser(code, train);
    }
}

bool train_read_options(int argc, char **argv, train_t *train, int *exit_out)
{
    struct option options[NUM_OPTIONS + MORE_OPTIONS_MAX];
    size_t count = 0;
    int code;
    if (train->more != NULL)
        while (count < MORE_OPTIONS_MAX && train->more->options[count].name != NULL) {
            options[count] = train->more->options[count];
            count++;
        }
    memcpy(options + count, long_options, sizeof long_options);
    while ((code = cli_next_option(argc, argv, options, &train->common, exit_out)) != -1) {
        if (code == -2)
            return false;
        const bool taken = code >= (int)TRAIN_OPTION_MORE
                               ? train->more->take(train, code, argc, argv)
                               : take_option(code, train, argc, argv);
        if (!taken) {
            *exit_out = CLI_WRONG_USE;
            return false;
        }
    }
    return true;
}

bool train_set_option(train_t *train, const char *name, char *value)
{
    for (size_t i = 0; i < NUM_OPTIONS && long_options[i].name != NULL; i++)
        if (strcmp(long_options[i].name, name) == 0 &&
            long_options[i].has_arg == required_argument && long_options[i].val >= CLI_OPTION_OWN) {
            optarg = value;
            return take_option(long_options[i].val, train, 0, NULL);
        }
    (void)cli_wrong_use(&train->common, "there is no option --%s with a value", name);
    return false;
}

bool train_settle(train_t *train, const plim_dataset_info_t *info)
{
    plim_training_t *training = &train->training;
    plim_recipe_t *recipe = &training->recipe;
    plim_model_t *model = &training->model;
    const bool drawn = info->num_graphs == 0 && model->kind != PLIM_MLP;
    if (!drawn && !train->fanout_given)
        recipe->num_hops = 0;
    if (drawn && train->resume == NULL) {
        if (!train->fanout_given && train->layers_given)
            for (recipe->num_hops = 0; recipe->num_hops < model->num_layers; recipe->num_hops++)
                recipe->fanout[recipe->num_hops] = 10;
        if (!train->layers_given)
            model->num_layers = recipe->num_hops;
    }
    if (model->kind != PLIM_GAT && train->heads_given && model->heads > 1) {
        (void)cli_wrong_use(&train->common, "--heads is for --model gat; %s has none",
                            train_model_name(model->kind));
        return false;
    }
    return true;
}

/* Whether a layer is as wide as its input, so that --residual adds it. */
static bool adds_inputs(const plim_training_t *training, const plim_dataset_info_t *info)
{
    const int64_t outputs =
        info->label_kind == PLIM_LABELS_CLASSES ? info->num_classes : info->num_targets;
    const int64_t hidden = training->model.hidden;
    const int layers = training->model.num_layers;
    for (int i = 0; i < layers; i++)
        if ((i == 0 ? info->num_features : hidden) ==
            (i + 1 == layers && info->num_graphs == 0 ? outputs : hidden))
            return true;
    return false;
}

int train_idle(const train_t *train, const plim_dataset_info_t *info, const json_t *plan,
               const char *texts_out[TRAIN_IDLE_MAX])
{
    const plim_training_t *training = &train->training;
    const plim_model_t *model = &training->model;
    const bool steps = training->optimiser.schedule == PLIM_SCHEDULE_STEP;
    const bool single = model->num_layers == 1 && info->num_graphs == 0;
    const bool rows_in_memory = cli_json_is(plan, "features", "memory");
    const bool scored =
        training->eval_train || info->num_split[PLIM_VALID] > 0 || info->num_split[PLIM_TEST] > 0;
    const struct {
        int code;
        bool idle;
        const char *text;
    } options[] = {
        {OPTION_MOMENTUM, training->optimiser.kind != PLIM_SGD, "--momentum (of sgd)"},
        {OPTION_AGGR, model->kind != PLIM_SAGE, "--aggr (of sage)"},
        {OPTION_HEADS, model->kind != PLIM_GAT, "--heads (of gat)"},
        {OPTION_STEP_SIZE, !steps, "--step-size (of --schedule step)"},
        {OPTION_GAMMA, !steps, "--gamma (of --schedule step)"},
        {OPTION_POOL, info->num_graphs == 0, "--pool (of datasets of many graphs)"},
        {OPTION_HIDDEN, single, "--hidden (one layer has no hidden channels)"},
        {OPTION_DROPOUT, single, "--dropout (between layers, and there is one)"},
        {OPTION_NORM, single, "--norm (between layers, and there is one)"},
        {OPTION_ACT, single, "--act (between layers, and there is one)"},
        {OPTION_RESIDUAL, !adds_inputs(training, info),
         "--residual (no layer is as wide as its input)"},
        {OPTION_EVAL_EVERY, !scored, "--eval-every (no split to evaluate)"},
        {OPTION_EVAL_TRAIN, training->eval_every == 0, "--eval-train (nothing is evaluated)"},
        {OPTION_ROW_CACHE, rows_in_memory, "--row-cache (all features fit in memory)"},
        {OPTION_SCRATCH, rows_in_memory, "--scratch (all features fit in memory)"},
        {OPTION_MICROBATCH, training->microbatch >= training->recipe.batch_size,
         "--microbatch (no less than --batch)"},
    };
    _Static_assert(sizeof options / sizeof options[0] <= TRAIN_IDLE_MAX,
                   "every option has an entry");
    int count = 0;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (options[i].idle && (train->given >> (options[i].code - CLI_OPTION_OWN) & 1) != 0)
            texts_out[count++] = options[i].text;
    return count;
}

void train_warn_idle(const train_t *train, const plim_dataset_info_t *info, const json_t *plan)
{
    const char *texts[TRAIN_IDLE_MAX];
    const int count = train_idle(train, info, plan, texts);
    char line[1024] = "";
    size_t used = 0;
    for (int i = 0; i < count && used < sizeof line; i++)
        used +=
            (size_t)snprintf(line + used, sizeof line - used, "%s%s", i > 0 ? ", " : "", texts[i]);
    if (count > 0)
        cli_warn("options without effect: %s", line);
}
