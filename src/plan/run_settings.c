#include "plan/run_settings.h"

#include "base/bounds.h"
#include "base/fail.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind {
    NAME,
    INT,
    COUNT,
    REAL,
    FLOAT,
    FLAG,
    SEED,
    FANOUT,
    EVAL_FANOUT,
    CATEGORIES
} kind_t;

typedef struct setting {
    const char *key;
    kind_t kind;
    bool decides; /* the setting changes the result */
    size_t offset;
    const char *const *names; /* names of an enum's values, ended by NULL */
} setting_t;

static const char *const models[] = {
    [PLIM_MLP] = "mlp",     [PLIM_GCN] = "gcn",   [PLIM_SAGE] = "sage",
    [PLIM_GAT] = "gat",     [PLIM_GIN] = "gin",   [PLIM_GINE] = "gine",
    [PLIM_GATV2] = "gatv2", [PLIM_RGCN] = "rgcn", NULL};
static const char *const aggregations[] = {
    [PLIM_MEAN] = "mean", [PLIM_MAX] = "max", [PLIM_SUM] = "sum", NULL};
static const char *const norms[] = {
    [PLIM_NORM_NONE] = "none", [PLIM_NORM_LAYER] = "layer", [PLIM_NORM_BATCH] = "batch", NULL};
static const char *const activations[] = {
    [PLIM_ACTIVATION_NONE] = "none", [PLIM_RELU] = "relu", [PLIM_ELU] = "elu", NULL};
static const char *const pools[] = {
    [PLIM_POOL_MEAN] = "mean", [PLIM_POOL_ADD] = "add", [PLIM_POOL_MAX] = "max", NULL};
static const char *const precisions[] = {
    [PLIM_PRECISION_F32] = "f32", [PLIM_PRECISION_BF16] = "bf16", NULL};
static const char *const optimisers[] = {
    [PLIM_ADAM] = "adam", [PLIM_ADAMW] = "adamw", [PLIM_SGD] = "sgd", NULL};
static const char *const schedules[] = {[PLIM_SCHEDULE_NONE] = "none",
                                        [PLIM_SCHEDULE_COSINE] = "cosine",
                                        [PLIM_SCHEDULE_STEP] = "step",
                                        NULL};
static const char *const losses[] = {
    [PLIM_LOSS_AUTO] = "auto", [PLIM_LOSS_CROSS_ENTROPY] = "cross_entropy",
    [PLIM_LOSS_BCE] = "bce",   [PLIM_LOSS_MSE] = "mse",
    [PLIM_LOSS_MAE] = "mae",   NULL};
static const char *const metrics[] = {[PLIM_METRIC_AUTO] = "auto",
                                      [PLIM_METRIC_ACCURACY] = "accuracy",
                                      [PLIM_METRIC_ROC_AUC] = "roc_auc",
                                      [PLIM_METRIC_MAE] = "mae",
                                      [PLIM_METRIC_RMSE] = "rmse",
                                      [PLIM_METRIC_COSINE] = "cosine",
                                      [PLIM_METRIC_R2] = "r2",
                                      [PLIM_METRIC_MRR] = "mrr",
                                      NULL};

static const char *const eval_splits[] = {"auto", "train",      "valid",      "train,valid",
                                          "test", "train,test", "valid,test", "train,valid,test",
                                          NULL};

static const char *const decoders[] = {[PLIM_DECODER_DOT] = "dot",
                                       [PLIM_DECODER_MLP] = "mlp",
                                       [PLIM_DECODER_DISTMULT] = "distmult",
                                       NULL};
static const char *const temporals[] = {[PLIM_TEMPORAL_NONE] = "none",
                                        [PLIM_TEMPORAL_UNIFORM] = "uniform",
                                        [PLIM_TEMPORAL_LAST] = "last",
                                        NULL};
static const char *const tasks[] = {[PLIM_TASK_LABELS] = "labels", [PLIM_TASK_LINK] = "link", NULL};
static const char *const excluded[] = {[PLIM_EXCLUDE_NONE] = "none",
                                       [PLIM_EXCLUDE_PAIRS] = "self",
                                       [PLIM_EXCLUDE_REVERSES] = "reverse",
                                       NULL};

PLIM_API const char *const *plim_words(plim_words_t of)
{
    static const char *const *const all[] = {[PLIM_WORDS_MODEL] = models,
                                             [PLIM_WORDS_AGGREGATION] = aggregations,
                                             [PLIM_WORDS_NORM] = norms,
                                             [PLIM_WORDS_ACTIVATION] = activations,
                                             [PLIM_WORDS_POOL] = pools,
                                             [PLIM_WORDS_PRECISION] = precisions,
                                             [PLIM_WORDS_OPTIMISER] = optimisers,
                                             [PLIM_WORDS_SCHEDULE] = schedules,
                                             [PLIM_WORDS_LOSS] = losses,
                                             [PLIM_WORDS_METRIC] = metrics,
                                             [PLIM_WORDS_EVAL_SPLITS] = eval_splits,
                                             [PLIM_WORDS_TASK] = tasks,
                                             [PLIM_WORDS_EXCLUDE] = excluded,
                                             [PLIM_WORDS_DECODER] = decoders,
                                             [PLIM_WORDS_TEMPORAL] = temporals};
    return all[of];
}

#define AT(field) offsetof(plim_training_t, field)

static const setting_t settings[] = {
    {"model", NAME, true, AT(model.kind), models},
    {"layers", INT, true, AT(model.num_layers), NULL},
    {"hidden", COUNT, true, AT(model.hidden), NULL},
    {"heads", INT, true, AT(model.heads), NULL},
    {"aggregation", NAME, true, AT(model.aggregation), aggregations},
    {"norm", NAME, true, AT(model.norm), norms},
    {"activation", NAME, true, AT(model.activation), activations},
    {"dropout", FLOAT, true, AT(model.dropout), NULL},
    {"residual", FLAG, true, AT(model.residual), NULL},
    {"pool", NAME, true, AT(model.pool), pools},
    {"precision", NAME, true, AT(model.precision), precisions},
    {"batch_size", COUNT, true, AT(recipe.batch_size), NULL},
    {"fanout", FANOUT, true, AT(recipe), NULL},
    {"seed", SEED, true, AT(recipe.seed), NULL},
    {"optimiser", NAME, true, AT(optimiser.kind), optimisers},
    {"rate", REAL, true, AT(optimiser.rate), NULL},
    {"momentum", REAL, true, AT(optimiser.momentum), NULL},
    {"beta1", REAL, true, AT(optimiser.beta1), NULL},
    {"beta2", REAL, true, AT(optimiser.beta2), NULL},
    {"epsilon", REAL, true, AT(optimiser.epsilon), NULL},
    {"weight_decay", REAL, true, AT(optimiser.weight_decay), NULL},
    {"clip_norm", REAL, true, AT(optimiser.clip_norm), NULL},
    {"schedule", NAME, true, AT(optimiser.schedule), schedules},
    {"schedule_epochs", COUNT, true, AT(optimiser.schedule_epochs), NULL},
    {"schedule_factor", REAL, true, AT(optimiser.schedule_factor), NULL},
    {"loss", NAME, true, AT(loss), losses},
    {"metric", NAME, true, AT(metric), metrics},
    {"epochs", COUNT, false, AT(epochs), NULL}, /* has its own rule */
    {"eval_every", COUNT, true, AT(eval_every), NULL},
    {"patience", COUNT, false, AT(patience), NULL}, /* has its own rule */
    {"eval_train", FLAG, true, AT(eval_train), NULL},
    {"accumulation", COUNT, true, AT(accumulation), NULL},
    {"recompute", FLAG, false, AT(model.recompute), NULL},
    {"microbatch", COUNT, false, AT(microbatch), NULL},
    {"checkpoint_steps", COUNT, false, AT(checkpoint_steps), NULL},
    {"checkpoint_seconds", REAL, false, AT(checkpoint_seconds), NULL},
    {"memory_steps", COUNT, false, AT(memory_steps), NULL},
    {"eval_fanout", EVAL_FANOUT, true, AT(eval_fanout), NULL},
    {"eval_splits", NAME, true, AT(eval_splits), eval_splits},
    {"eval_exact", FLAG, true, AT(eval_exact), NULL},
    {"shares", COUNT, true, AT(shares), NULL},
    {"loops_twice", FLAG, true, AT(model.loops_twice), NULL},
    {"edge_features", FLAG, true, AT(edge_features), NULL},
    {"edge_weight", FLAG, true, AT(edge_weight), NULL},
    {"bases", COUNT, true, AT(bases), NULL},
    {"edge_categories", EVAL_FANOUT, true, AT(edge_categories), NULL},
    {"task", NAME, true, AT(task), tasks},
    {"negatives", REAL, true, AT(negatives), NULL},
    {"exclude", NAME, true, AT(exclude), excluded},
    {"num_pairs", SEED, true, AT(num_pairs), NULL},
    {"pairs_checksum", SEED, true, AT(pairs_checksum), NULL},
    {"node_categories", CATEGORIES, true, AT(node_categories), NULL},
    {"valid_drawn", COUNT, true, AT(valid_drawn), NULL},
    {"num_valid_pairs", SEED, true, AT(num_valid_pairs), NULL},
    {"valid_checksum", SEED, true, AT(valid_checksum), NULL},
    {"valid_shared", FLAG, true, AT(valid_shared), NULL},
    {"decoder", NAME, true, AT(decoder), decoders},
    {"num_pair_types", SEED, true, AT(num_pair_types), NULL},
    {"temporal", NAME, true, AT(temporal), temporals},
};

#define NUM_ADDED 22 /* the last settings, which runs of earlier versions lack */

#define NUM_SETTINGS (sizeof settings / sizeof settings[0])

_Static_assert(sizeof(plim_model_kind_t) == sizeof(int) && sizeof(plim_pool_t) == sizeof(int),
               "enums are read and written as int");

static const void *at(const plim_training_t *training, const setting_t *setting)
{
    return (const char *)training + setting->offset;
}

static int get_int(const void *from)
{
    int value;
    memcpy(&value, from, sizeof value);
    return value;
}

static double get_double(const void *from)
{
    double value;
    memcpy(&value, from, sizeof value);
    return value;
}

/* The name of an enum value; NULL for an invalid one. */
static const char *name_of(const setting_t *setting, int value)
{
    int count = 0;
    while (setting->names[count] != NULL)
        count++;
    return value >= 0 && value < count ? setting->names[value] : NULL;
}

/* The shortest decimal for a float: 0.1 rather than 0.10000000149011612. It reads back as the same
 * float. */
static double plain(float value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%.7g", (double)value);
    double nearest = strtod(text, NULL);
    return (float)nearest == value ? nearest : (double)value;
}

/* The length of the array that a list is kept in. */
static int most_numbers(const setting_t *setting)
{
    return setting->kind == CATEGORIES ? PLIM_CATEGORIES_MAX : PLIM_HOPS_MAX;
}

/* The fan-outs of a recipe, or those of evaluation (or other counts), which end at the first 0. */
static const int64_t *fanout_at(const setting_t *setting, const void *from, int *count_out)
{
    const plim_recipe_t *recipe = from;
    const int64_t *fanout = setting->kind == FANOUT ? recipe->fanout : from;
    int count = 0;
    if (setting->kind == FANOUT)
        count = recipe->num_hops < PLIM_HOPS_MAX ? recipe->num_hops : PLIM_HOPS_MAX;
    else
        while (count < most_numbers(setting) && fanout[count] != 0)
            count++;
    *count_out = count;
    return fanout;
}

static json_t *render_fanout(const setting_t *setting, const void *from)
{
    json_t *list = json_array();
    int count;
    const int64_t *fanout = fanout_at(setting, from, &count);
    for (int i = 0; i < count; i++)
        if (json_array_append_new(list, json_integer(fanout[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* JSON readers know integers up to 2^63; a larger seed is a string. */
static json_t *render_seed(uint64_t seed)
{
    char digits[24];
    if (seed <= INT64_MAX)
        return json_integer((json_int_t)seed);
    (void)snprintf(digits, sizeof digits, "%llu", (unsigned long long)seed);
    return json_string(digits);
}

static json_t *render(const setting_t *setting, const void *from)
{
    switch (setting->kind) {
    case NAME:
        return json_string(name_of(setting, get_int(from)));
    case INT:
        return json_integer(get_int(from));
    case COUNT:
        return json_integer(*(const int64_t *)from);
    case REAL:
        return json_real(get_double(from));
    case FLOAT:
        return json_real(plain(*(const float *)from));
    case FLAG:
        return json_boolean(*(const bool *)from);
    case SEED:
        return render_seed(*(const uint64_t *)from);
    case FANOUT:
    case EVAL_FANOUT:
    case CATEGORIES:
        return render_fanout(setting, from);
    }
    return NULL;
}

json_t *plim__run_settings_render(const plim_training_t *training)
{
    json_t *object = json_object();
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        const setting_t *setting = &settings[i];
        if (json_object_set_new(object, setting->key, render(setting, at(training, setting))) !=
            0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

unsigned plim__run_settings_real(double value, char text_out[PLIM__REAL_TEXT])
{
    for (unsigned digits = 15;; digits++) {
        (void)snprintf(text_out, PLIM__REAL_TEXT, "%.*g", (int)digits, value);
        if (digits == 17 || strtod(text_out, NULL) == value)
            return digits;
    }
}

unsigned plim__run_settings_digits(const plim_training_t *training)
{
    unsigned most = 15;
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        if (settings[i].kind != REAL && settings[i].kind != FLOAT)
            continue;
        const void *from = at(training, &settings[i]);
        char text[PLIM__REAL_TEXT];
        const unsigned digits = plim__run_settings_real(
            settings[i].kind == REAL ? get_double(from) : plain(*(const float *)from), text);
        most = digits > most ? digits : most;
    }
    return most;
}

static bool parse_name(const json_t *value, const char *const *names, int *index_out)
{
    const char *text = json_string_value(value);
    for (int i = 0; text != NULL && names[i] != NULL; i++)
        if (strcmp(text, names[i]) == 0) {
            *index_out = i;
            return true;
        }
    return false;
}

static bool parse_integer(const json_t *value, int64_t minimum, int64_t most, int64_t *number_out)
{
    if (!json_is_integer(value) || json_integer_value(value) < minimum ||
        json_integer_value(value) > most)
        return false;
    *number_out = json_integer_value(value);
    return true;
}

static bool parse_seed(const json_t *value, uint64_t *seed_out)
{
    const char *text = json_string_value(value);
    char *end;
    int64_t number = 0;
    if (text == NULL) {
        bool whole = parse_integer(value, 0, INT64_MAX, &number);
        *seed_out = (uint64_t)number;
        return whole;
    }
    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    *seed_out = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

static bool parse_fanout(const json_t *value, int most, int64_t *fanout)
{
    size_t count = json_array_size(value);
    if (!json_is_array(value) || count > (size_t)most)
        return false;
    memset(fanout, 0, (size_t)most * sizeof fanout[0]);
    for (size_t i = 0; i < count; i++)
        if (!parse_integer(json_array_get(value, i), -1, INT32_MAX, &fanout[i]))
            return false;
    return true;
}

static bool parse(const setting_t *setting, const json_t *value, void *to)
{
    int64_t number = 0;
    plim_recipe_t *recipe = to;
    switch (setting->kind) {
    case NAME:
        return parse_name(value, setting->names, to);
    case INT:
        if (!parse_integer(value, 0, INT32_MAX, &number))
            return false;
        *(int *)to = (int)number;
        return true;
    case COUNT:
        return parse_integer(value, 0, PLIM__TURNS_MAX, to);
    case REAL:
        *(double *)to = json_number_value(value);
        return json_is_number(value) && isfinite(*(double *)to);
    case FLOAT:
        *(float *)to = (float)json_number_value(value);
        return json_is_number(value) && isfinite(*(float *)to);
    case FLAG:
        *(bool *)to = json_is_true(value);
        return json_is_boolean(value);
    case SEED:
        return parse_seed(value, to);
    case FANOUT:
        recipe->num_hops = (int)json_array_size(value);
        return parse_fanout(value, PLIM_HOPS_MAX, recipe->fanout);
    case EVAL_FANOUT:
    case CATEGORIES:
        return parse_fanout(value, most_numbers(setting), to);
    }
    return false;
}

plim_status_t plim__run_settings_parse(const json_t *object, const char *name,
                                       plim_training_t *training_out)
{
    plim_training_t training = PLIM_TRAINING_INIT;
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        const setting_t *setting = &settings[i];
        const json_t *value = json_object_get(object, setting->key);
        if (value == NULL && i >= NUM_SETTINGS - NUM_ADDED) {
            if (setting->offset == AT(model.loops_twice))
                training.model.loops_twice = training.model.kind == PLIM_GCN;
            continue;
        }
        if (!parse(setting, value, (char *)&training + setting->offset))
            return plim__fail(PLIM_ERR_DATA, "%s: its setting \"%s\" is missing or impossible",
                              name, setting->key);
    }
    *training_out = training;
    return PLIM_OK;
}

#define SETTING_TEXT 512
_Static_assert(PLIM__REAL_TEXT <= SETTING_TEXT, "a number fits");

/* Formats a setting's value for a message. Different values have different texts. */
static void describe(const setting_t *setting, const void *from, char text_out[SETTING_TEXT])
{
    const int64_t *fanout;
    const char *name;
    int used = 0, count;
    switch (setting->kind) {
    case NAME:
        name = name_of(setting, get_int(from));
        (void)snprintf(text_out, SETTING_TEXT, "%s", name != NULL ? name : "unknown");
        return;
    case INT:
        (void)snprintf(text_out, SETTING_TEXT, "%d", get_int(from));
        return;
    case COUNT:
        (void)snprintf(text_out, SETTING_TEXT, "%lld", (long long)*(const int64_t *)from);
        return;
    case REAL:
        (void)plim__run_settings_real(get_double(from), text_out);
        return;
    case FLOAT:
        (void)plim__run_settings_real(plain(*(const float *)from), text_out);
        return;
    case FLAG:
        (void)snprintf(text_out, SETTING_TEXT, "%s", *(const bool *)from ? "true" : "false");
        return;
    case SEED:
        (void)snprintf(text_out, SETTING_TEXT, "%llu", (unsigned long long)*(const uint64_t *)from);
        return;
    case FANOUT:
    case EVAL_FANOUT:
    case CATEGORIES:
        fanout = fanout_at(setting, from, &count);
        for (int i = 0; i < count && used < SETTING_TEXT; i++)
            used += snprintf(text_out + used, SETTING_TEXT - (size_t)used, "%s%lld",
                             i == 0 ? "[" : ", ", (long long)fanout[i]);
        if (used < SETTING_TEXT)
            (void)snprintf(text_out + used, SETTING_TEXT - (size_t)used, used == 0 ? "[]" : "]");
        return;
    }
}

/* Whether both have the same value, and the texts of both. */
static bool same(const setting_t *setting, const plim_training_t *a, const plim_training_t *b,
                 char a_out[SETTING_TEXT], char b_out[SETTING_TEXT])
{
    describe(setting, at(a, setting), a_out);
    describe(setting, at(b, setting), b_out);
    return strcmp(a_out, b_out) == 0;
}

static plim_status_t compare_epochs(const plim_training_t *before, const plim_training_t *now,
                                    int64_t begun, const char *name)
{
    if (now->epochs < begun)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: the run is in epoch %lld already, so `epochs` cannot be %lld; give "
                          "%lld or more, or "
                          "begin a new run",
                          name, (long long)begun, (long long)now->epochs, (long long)begun);
    if (now->epochs != before->epochs && before->optimiser.schedule == PLIM_SCHEDULE_COSINE)
        return plim__fail(
            PLIM_ERR_USAGE,
            "%s: `epochs` is %lld in the run but %lld now; with a cosine schedule every "
            "step's rate depends on it, so it must stay: begin a new run",
            name, (long long)before->epochs, (long long)now->epochs);
    return PLIM_OK;
}

/* Patience may grow: a run that has not ended yet would not have ended with more patience. */
static plim_status_t compare_patience(const plim_training_t *before, const plim_training_t *now,
                                      const char *name)
{
    if (now->patience == 0 || (before->patience > 0 && now->patience >= before->patience))
        return PLIM_OK;
    return plim__fail(
        PLIM_ERR_USAGE,
        "%s: `patience` is %lld in the run but %lld now; a run can be made more patient "
        "(0: it never ends early), not less",
        name, (long long)before->patience, (long long)now->patience);
}

plim_status_t plim__run_settings_compare(const plim_training_t *before, const plim_training_t *now,
                                         bool loops, int64_t begun, const char *name)
{
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        const setting_t *setting = &settings[i];
        char then_text[SETTING_TEXT], now_text[SETTING_TEXT];
        if (!setting->decides || same(setting, before, now, then_text, now_text) ||
            (!loops && setting->offset == AT(model.loops_twice)))
            continue;
        return plim__fail(
            PLIM_ERR_USAGE,
            "%s: `%s` is %s in the run but %s now, which would change the result; leave "
            "it as it was or begin a new run",
            name, setting->key, then_text, now_text);
    }
    PLIM_TRY(compare_patience(before, now, name));
    return compare_epochs(before, now, begun, name);
}

bool plim__run_settings_same(const plim_training_t *a, const plim_training_t *b)
{
    char a_text[SETTING_TEXT], b_text[SETTING_TEXT];
    for (size_t i = 0; i < NUM_SETTINGS; i++)
        if (!same(&settings[i], a, b, a_text, b_text))
            return false;
    return true;
}

plim_status_t plim__run_settings_agree(plim__peers_t *peers, plim__stage_t stage,
                                       const plim_dataset_info_t *info,
                                       const plim_training_t *training, const char *more)
{
    char text[PLIM__COMPARE_BYTES];
    size_t used = 0;
    if (peers == NULL)
        return PLIM_OK;
    used += (size_t)snprintf(text, sizeof text, "the dataset's fingerprint is %s\n%s",
                             info->fingerprint, more);
    for (size_t i = 0; i < NUM_SETTINGS && used < sizeof text; i++) {
        char value[SETTING_TEXT];
        describe(&settings[i], at(training, &settings[i]), value);
        used += (size_t)snprintf(text + used, sizeof text - used, "`%s` is %s\n", settings[i].key,
                                 value);
    }
    return plim__peers_compare(peers, stage, text);
}
