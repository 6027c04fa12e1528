/* Options of `plimsoll train`, with the spellings of PyG's, OGB's and DGL's scripts. */
#include "command/verb_train.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

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
    OPTION_FAN_OUT,
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
    OPTION_EVAL_FANOUT,
    OPTION_EVAL_EXACT,
    OPTION_EVAL_SPLITS,
    OPTION_MICROBATCH,
    OPTION_ACCUMULATION,
    OPTION_SHARES,
    OPTION_RECOMPUTE,
    OPTION_PRECISION,
    OPTION_CHECKPOINT_EVERY,
    OPTION_CHECKPOINT_MINUTES,
    OPTION_MEMORY_EVERY,
    OPTION_RUN,
    OPTION_RESUME,
    OPTION_INIT,
    OPTION_ROW_CACHE,
    OPTION_SCRATCH,
    OPTION_STAGE,
    OPTION_VERIFY,
    OPTION_USE_SAGE,
    OPTION_USE_GAT,
    OPTION_USE_LAYER_NORM,
    OPTION_USE_BATCH_NORM,
    OPTION_USE_AMP,
    OPTION_LOADER, /* an option of PyTorch's DataLoader */
    OPTION_DEVICE
};

static const struct option long_options[] = {
    {"model", required_argument, NULL, OPTION_MODEL},
    {"layers", required_argument, NULL, OPTION_LAYERS},
    {"num-layers", required_argument, NULL, OPTION_LAYERS},
    {"n-layers", required_argument, NULL, OPTION_LAYERS},
    {"hidden", required_argument, NULL, OPTION_HIDDEN},
    {"hidden-channels", required_argument, NULL, OPTION_HIDDEN},
    {"hidden-dim", required_argument, NULL, OPTION_HIDDEN},
    {"num-hidden", required_argument, NULL, OPTION_HIDDEN},
    {"n-hidden", required_argument, NULL, OPTION_HIDDEN},
    {"heads", required_argument, NULL, OPTION_HEADS},
    {"num-heads", required_argument, NULL, OPTION_HEADS},
    {"aggr", required_argument, NULL, OPTION_AGGR},
    {"norm", required_argument, NULL, OPTION_NORM},
    {"act", required_argument, NULL, OPTION_ACT},
    {"dropout", required_argument, NULL, OPTION_DROPOUT},
    {"residual", no_argument, NULL, OPTION_RESIDUAL},
    {"pool", required_argument, NULL, OPTION_POOL},
    {"fanout", required_argument, NULL, OPTION_FANOUT},
    {"num-neighbors", required_argument, NULL, OPTION_FANOUT},
    {"fan-out", required_argument, NULL, OPTION_FAN_OUT},
    {"batch", required_argument, NULL, OPTION_BATCH},
    {"batch-size", required_argument, NULL, OPTION_BATCH},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"epochs", required_argument, NULL, OPTION_EPOCHS},
    {"num-epochs", required_argument, NULL, OPTION_EPOCHS},
    {"n-epochs", required_argument, NULL, OPTION_EPOCHS},
    {"lr", required_argument, NULL, OPTION_LR},
    {"learning-rate", required_argument, NULL, OPTION_LR},
    {"optimizer", required_argument, NULL, OPTION_OPTIMIZER},
    {"momentum", required_argument, NULL, OPTION_MOMENTUM},
    {"weight-decay", required_argument, NULL, OPTION_WEIGHT_DECAY},
    {"wd", required_argument, NULL, OPTION_WEIGHT_DECAY},
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
    {"eval-fanout", required_argument, NULL, OPTION_EVAL_FANOUT},
    {"eval-exact", required_argument, NULL, OPTION_EVAL_EXACT},
    {"eval-splits", required_argument, NULL, OPTION_EVAL_SPLITS},
    {"microbatch", required_argument, NULL, OPTION_MICROBATCH},
    {"gradient-accumulation-steps", required_argument, NULL, OPTION_ACCUMULATION},
    {"shares", required_argument, NULL, OPTION_SHARES},
    {"recompute", no_argument, NULL, OPTION_RECOMPUTE},
    {"gradient-checkpointing", no_argument, NULL, OPTION_RECOMPUTE},
    {"precision", required_argument, NULL, OPTION_PRECISION},
    {"checkpoint-every", required_argument, NULL, OPTION_CHECKPOINT_EVERY},
    {"checkpoint-minutes", required_argument, NULL, OPTION_CHECKPOINT_MINUTES},
    {"memory-every", required_argument, NULL, OPTION_MEMORY_EVERY},
    {"log-interval", required_argument, NULL, OPTION_MEMORY_EVERY},
    {"run", required_argument, NULL, OPTION_RUN},
    {"resume", optional_argument, NULL, OPTION_RESUME},
    {"init", required_argument, NULL, OPTION_INIT},
    {"row-cache", required_argument, NULL, OPTION_ROW_CACHE},
    {"scratch", required_argument, NULL, OPTION_SCRATCH},
    {"stage", optional_argument, NULL, OPTION_STAGE},
    {"verify", no_argument, NULL, OPTION_VERIFY},
    {"use-sage", no_argument, NULL, OPTION_USE_SAGE},
    {"use-gat", no_argument, NULL, OPTION_USE_GAT},
    {"use-layer-norm", no_argument, NULL, OPTION_USE_LAYER_NORM},
    {"use-batch-norm", no_argument, NULL, OPTION_USE_BATCH_NORM},
    {"use-amp", no_argument, NULL, OPTION_USE_AMP},
    {"use-fp16", no_argument, NULL, OPTION_USE_AMP},
    {"num-workers", required_argument, NULL, OPTION_LOADER},
    {"prefetch-factor", required_argument, NULL, OPTION_LOADER},
    {"persistent-workers", no_argument, NULL, OPTION_LOADER},
    {"pin-memory", no_argument, NULL, OPTION_LOADER},
    {"device", required_argument, NULL, OPTION_DEVICE},
    {"gpu", required_argument, NULL, OPTION_DEVICE},
    CLI_COMMON_OPTIONS};

#define NUM_OPTIONS (sizeof long_options / sizeof long_options[0])
#define MORE_OPTIONS_MAX 32

_Static_assert((int)OPTION_DEVICE < (int)TRAIN_OPTION_MORE, "codes of their own");

#define AT(field) offsetof(plim_training_t, field)

/* Options that are one of a few words, and the enumeration that they set. */
static const struct {
    int code;
    const char *option;
    plim_words_t of;
    size_t offset;
} word_options[] = {
    {OPTION_MODEL, "--model", PLIM_WORDS_MODEL, AT(model.kind)},
    {OPTION_AGGR, "--aggr", PLIM_WORDS_AGGREGATION, AT(model.aggregation)},
    {OPTION_NORM, "--norm", PLIM_WORDS_NORM, AT(model.norm)},
    {OPTION_ACT, "--act", PLIM_WORDS_ACTIVATION, AT(model.activation)},
    {OPTION_POOL, "--pool", PLIM_WORDS_POOL, AT(model.pool)},
    {OPTION_PRECISION, "--precision", PLIM_WORDS_PRECISION, AT(model.precision)},
    {OPTION_OPTIMIZER, "--optimizer", PLIM_WORDS_OPTIMISER, AT(optimiser.kind)},
    {OPTION_SCHEDULE, "--schedule", PLIM_WORDS_SCHEDULE, AT(optimiser.schedule)},
    {OPTION_LOSS, "--loss", PLIM_WORDS_LOSS, AT(loss)},
    {OPTION_METRIC, "--metric", PLIM_WORDS_METRIC, AT(metric)},
};

_Static_assert(sizeof(plim_model_kind_t) == sizeof(int) && sizeof(plim_metric_t) == sizeof(int),
               "enumerations are written as int");

static bool take_word(int code, train_t *train)
{
    size_t i = 0;
    while (i + 1 < sizeof word_options / sizeof word_options[0] && word_options[i].code != code)
        i++;
    const int word =
        cli_parse_word(&train->common, word_options[i].option, plim_words(word_options[i].of));
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

static bool take_fanout(train_t *train, bool maybe_dgl, int argc, char **argv)
{
    plim_recipe_t *recipe = &train->training.recipe;
    if (!cli_parse_fanout(&train->common, "--fanout", argc, argv, recipe))
        return false;
    train->fanout_given = true;
    train->fanout_order = false;
    for (int i = 1; i < recipe->num_hops; i++)
        train->fanout_order |= maybe_dgl && recipe->fanout[i] != recipe->fanout[0];
    return true;
}

static bool take_device(train_t *train)
{
    train->loader_words = true;
    if (strcmp(optarg, "cpu") == 0 || strcmp(optarg, "-1") == 0)
        return true;
    (void)cli_wrong_use(
        &train->common,
        "--device %s: plimsoll train computes on the CPU. On a GPU, train in Python "
        "with torch and plimsoll.NeighborLoader(…, device='cuda'): build the package "
        "with tools/wheel --build-only (README, Install), pip install "
        "build/wheel/dist/*.whl. Its GPU memory: plimsoll plan --for pyg "
        "--gpu-memory SIZE. Here: --device cpu",
        optarg);
    return false;
}

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
        if (!cli_parse_real(&train->common, "--dropout", optarg, 1, &real))
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

static bool take_optimiser(int code, train_t *train)
{
    const cli_common_t *common = &train->common;
    plim_optimiser_t *optimiser = &train->training.optimiser;
    switch (code) {
    case OPTION_LR:
        return cli_parse_real(common, "--lr", optarg, INFINITY, &optimiser->rate);
    case OPTION_MOMENTUM:
        return cli_parse_real(common, "--momentum", optarg, 1, &optimiser->momentum);
    case OPTION_WEIGHT_DECAY:
        return cli_parse_real(common, "--weight-decay", optarg, INFINITY, &optimiser->weight_decay);
    case OPTION_CLIP:
        return cli_parse_real(common, "--clip", optarg, INFINITY, &optimiser->clip_norm);
    case OPTION_STEP_SIZE:
        return take_int(train, "--step-size", 1, &optimiser->schedule_epochs);
    case OPTION_GAMMA:
        return cli_parse_real(common, "--gamma", optarg, INFINITY, &optimiser->schedule_factor);
    default:
        return take_model(code, train);
    }
}

/* Takes the word after a flag, as in "--use_amp True". Returns whether it turns the flag off. */
static bool turned_off(int argc, char **argv)
{
    const char *next = optarg == NULL && optind < argc ? argv[optind] : "";
    const bool off = strcasecmp(next, "false") == 0;
    optind += off || strcasecmp(next, "true") == 0;
    return off;
}

/* Flags of other scripts, and the option and word that they stand for. */
static struct {
    int code, meant;
    char word[8];
} flags[] = {
    {OPTION_USE_SAGE, OPTION_MODEL, "sage"},       {OPTION_USE_GAT, OPTION_MODEL, "gat"},
    {OPTION_USE_LAYER_NORM, OPTION_NORM, "layer"}, {OPTION_USE_BATCH_NORM, OPTION_NORM, "batch"},
    {OPTION_USE_AMP, OPTION_PRECISION, "bf16"},
};

/* The code that a flag stands for, with its word in optarg; other codes are returned as they are.
 */
static int resolve_flag(int code, train_t *train)
{
    train->amp |= code == OPTION_USE_AMP;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (flags[i].code == code) {
            optarg = flags[i].word;
            return flags[i].meant;
        }
    return code;
}

/* --resume RUN; or --resume alone, which goes with --run RUN. */
static bool take_resume(train_t *train, int argc, char **argv)
{
    bool named = false;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        named = named || strcmp(argv[i], "--run") == 0 || strncmp(argv[i], "--run=", 6) == 0;
    train->requeued = optarg == NULL && named;
    if (train->requeued)
        return true;
    if (optarg == NULL && argv != NULL && optind < argc)
        optarg = argv[optind++];
    train->resume = optarg;
    if (train->resume == NULL)
        (void)cli_wrong_use(&train->common,
                            "--resume needs the directory of a run: --resume RUN, or --run RUN "
                            "--resume, which also begins the run");
    return train->resume != NULL;
}

/* "valid,test" or "all". */
static bool take_splits(train_t *train)
{
    static const struct {
        const char *name;
        unsigned bits;
    } splits[] = {{"train", 1}, {"valid", 2}, {"val", 2}, {"test", 4}, {"all", PLIM_EVAL_ALL}};
    const size_t count = sizeof splits / sizeof splits[0];
    unsigned bits = 0;
    for (const char *at = optarg; bits == 0 || *at != '\0';) {
        const size_t length = strcspn(at, ", ");
        size_t i = 0;
        while (i < count &&
               (strlen(splits[i].name) != length || strncmp(at, splits[i].name, length) != 0))
            i++;
        if (i == count) {
            (void)cli_wrong_use(&train->common,
                                "--eval-splits: '%s' is not a list of train, valid and test, or "
                                "all",
                                optarg);
            return false;
        }
        bits |= splits[i].bits;
        at += length + strspn(at + length, ", ");
    }
    train->training.eval_splits = (plim_eval_splits_t)bits;
    return true;
}

static bool take_evaluation(int code, train_t *train, int argc, char **argv)
{
    plim_training_t *training = &train->training;
    plim_recipe_t drawn = PLIM_RECIPE_INIT;
    switch (code) {
    case OPTION_EVAL_FANOUT:
        if (!cli_parse_fanout(&train->common, "--eval-fanout", argc, argv, &drawn))
            return false;
        for (int i = 0; i < drawn.num_hops; i++)
            if (drawn.fanout[i] == 0) {
                (void)cli_wrong_use(&train->common,
                                    "--eval-fanout: give 1 or more neighbours, or -1 for all");
                return false;
            }
        memset(training->eval_fanout, 0, sizeof training->eval_fanout);
        memcpy(training->eval_fanout, drawn.fanout,
               (size_t)drawn.num_hops * sizeof drawn.fanout[0]);
        return true;
    case OPTION_EVAL_EXACT:
        if (!take_int(train, "--eval-exact", 1, &train->exact_every))
            return false;
        training->eval_exact = true;
        training->eval_every = train->exact_every;
        return true;
    case OPTION_EVAL_SPLITS:
        return take_splits(train);
    default:
        training->eval_train = true;
        return true;
    }
}

static bool is_given(const train_t *train, int code)
{
    return (train->given >> (code - CLI_OPTION_OWN) & 1) != 0;
}

/* False after an error message. */
static bool take_option(int code, train_t *train, int argc, char **argv)
{
    const cli_common_t *common = &train->common;
    plim_training_t *training = &train->training;
    double minutes;
    code = resolve_flag(code, train);
    train->given |= (uint64_t)1 << (code - CLI_OPTION_OWN);
    switch (code) {
    case OPTION_FANOUT:
    case OPTION_FAN_OUT:
        return take_fanout(train, code == OPTION_FAN_OUT, argc, argv);
    case OPTION_LOADER:
        train->loader_words = true;
        return true;
    case OPTION_DEVICE:
        return take_device(train);
    case OPTION_BATCH:
        return take_int(train, "--batch", 1, &training->recipe.batch_size);
    case OPTION_SEED:
        return cli_parse_seed(common, &training->recipe.seed);
    case OPTION_EPOCHS:
        return take_epochs(train);
    case OPTION_EVAL_EVERY:
        return take_int(train, "--eval-every", 0, &training->eval_every);
    case OPTION_LOG_STEPS:
        if (!take_int(train, "--log-steps", 1, &train->print_every))
            return false;
        if (!is_given(train, OPTION_EVAL_EVERY))
            training->eval_every = train->print_every;
        return true;
    case OPTION_PATIENCE:
        return take_int(train, "--patience", 0, &training->patience);
    case OPTION_EVAL_TRAIN:
    case OPTION_EVAL_FANOUT:
    case OPTION_EVAL_EXACT:
    case OPTION_EVAL_SPLITS:
        return take_evaluation(code, train, argc, argv);
    case OPTION_MICROBATCH:
        return take_int(train, "--microbatch", 0, &training->microbatch);
    case OPTION_ACCUMULATION:
        return take_int(train, "--gradient-accumulation-steps", 1, &training->accumulation);
    case OPTION_SHARES:
        return take_int(train, "--shares", 1, &training->shares);
    case OPTION_CHECKPOINT_EVERY:
        return take_int(train, "--checkpoint-every", 0, &training->checkpoint_steps);
    case OPTION_CHECKPOINT_MINUTES:
        if (!cli_parse_real(common, "--checkpoint-minutes", optarg, 1e9, &minutes))
            return false;
        training->checkpoint_seconds = minutes * 60;
        return true;
    case OPTION_MEMORY_EVERY:
        return take_int(train, "--memory-every", 0, &training->memory_steps);
    case OPTION_RUN:
        train->run = optarg;
        return true;
    case OPTION_RESUME:
        return take_resume(train, argc, argv);
    case OPTION_INIT:
        training->init = optarg;
        return true;
    case OPTION_ROW_CACHE:
        return cli_parse_cache(common, "--row-cache", &train->params.row_cache);
    case OPTION_SCRATCH:
        train->params.scratch = optarg;
        return true;
    case OPTION_STAGE:
        train->stage = true;
        train->stage_directory = optarg;
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
        if (turned_off(argc, argv))
            continue;
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
    if (drawn && train->resume == NULL && !train->layers_given) {
        model->num_layers = recipe->num_hops;
    } else if (drawn && (train->fanout_given ? recipe->num_hops == 1 : train->resume == NULL)) {
        /* One number is for every layer, as in PyG's scripts. */
        const int64_t every = train->fanout_given ? recipe->fanout[0] : 10;
        for (recipe->num_hops = 0; recipe->num_hops < model->num_layers; recipe->num_hops++)
            recipe->fanout[recipe->num_hops] = every;
    }
    if (training->eval_fanout[0] != 0 && training->eval_fanout[1] == 0)
        for (int i = 1; i < recipe->num_hops; i++)
            training->eval_fanout[i] = training->eval_fanout[0];
    if (training->eval_train && training->eval_splits != PLIM_EVAL_AUTO)
        training->eval_splits = (plim_eval_splits_t)(training->eval_splits | 1);
    if (train->exact_every > 0 && training->eval_every != train->exact_every) {
        (void)cli_wrong_use(&train->common,
                            "--eval-exact %" PRId64 " evaluates every %" PRId64
                            " epochs: leave out --eval-every and --log-steps",
                            train->exact_every, train->exact_every);
        return false;
    }
    if (model->kind != PLIM_GAT && train->heads_given && model->heads > 1) {
        (void)cli_wrong_use(&train->common, "--heads is for --model gat; %s has none",
                            plim_words(PLIM_WORDS_MODEL)[model->kind]);
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

/* Whether a split that is evaluated between epochs has seeds. */
static bool is_scored(const plim_training_t *training, const plim_dataset_info_t *info)
{
    const bool chosen = training->eval_splits != PLIM_EVAL_AUTO;
    unsigned splits = chosen ? (unsigned)training->eval_splits : 1U << PLIM_VALID | 1U << PLIM_TEST;
    splits |= training->eval_train ? 1U << PLIM_TRAIN : 0;
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++)
        if ((splits >> split & 1) != 0 && info->num_split[split] > 0)
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
    const bool never = training->eval_every == 0;
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
        {OPTION_EVAL_EVERY, !is_scored(training, info), "--eval-every (no split to evaluate)"},
        {OPTION_EVAL_TRAIN, never, "--eval-train (nothing is evaluated)"},
        {OPTION_EVAL_FANOUT, never, "--eval-fanout (nothing is evaluated)"},
        {OPTION_EVAL_SPLITS, never, "--eval-splits (nothing is evaluated)"},
        {OPTION_ROW_CACHE, rows_in_memory, "--row-cache (all features fit in memory)"},
        {OPTION_SCRATCH, rows_in_memory && !train->stage, "--scratch (all features fit in memory)"},
        {OPTION_MICROBATCH, training->microbatch >= training->recipe.batch_size,
         "--microbatch (no less than --batch)"},
    };
    _Static_assert(sizeof options / sizeof options[0] <= TRAIN_IDLE_MAX,
                   "every option has an entry");
    int count = 0;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (options[i].idle && is_given(train, options[i].code))
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
    if (train->loader_words)
        cli_remark("--num_workers, --persistent_workers, --prefetch_factor, --pin_memory and "
                   "--device cpu change nothing: plimsoll loads batches and trains in --threads "
                   "threads of the CPU");
    if (train->amp)
        cli_remark("mixed precision is --precision bf16: matrix products read bfloat16, and no "
                   "loss is scaled");
    if (train->fanout_order)
        cli_warn("--fan-out is read from the seeds outward, as PyG's num_neighbors; if it is of a "
                 "DGL script, which lists the hops the other way round, turn it round");
}
