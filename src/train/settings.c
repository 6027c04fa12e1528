/* The table of settings, and what it serves for. */
#include "train/settings.h"

#include "base/fail.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind { NAME, INT, COUNT, REAL, FLOAT, FLAG, SEED, FANOUT } kind_t;

typedef struct setting {
    const char *key;
    kind_t kind;
    bool decides; /* the result */
    size_t offset;
    const char *const *names; /* of an enum's values, ended by NULL */
} setting_t;

static const char *const models[] = {"mlp", "gcn", "sage", "gat", "gin", NULL};
static const char *const aggregations[] = {"mean", "max", NULL};
static const char *const norms[] = {"none", "layer", "batch", NULL};
static const char *const activations[] = {"none", "relu", "elu", NULL};
static const char *const pools[] = {"mean", "add", "max", NULL};
static const char *const precisions[] = {"f32", "bf16", NULL};
static const char *const optimisers[] = {"adam", "adamw", "sgd", NULL};
static const char *const schedules[] = {"none", "cosine", "step", NULL};
static const char *const losses[] = {"auto", "cross_entropy", "bce", "mse", "mae", NULL};
static const char *const metrics[] = {"auto", "accuracy", "roc_auc", "mae", "rmse", NULL};

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
    {"replace", FLAG, true, AT(recipe.replace), NULL},
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
    {"epochs", COUNT, false, AT(epochs), NULL}, /* compared by a rule of its own */
    {"eval_every", COUNT, true, AT(eval_every), NULL},
    {"patience", COUNT, true, AT(patience), NULL},
    {"eval_train", FLAG, true, AT(eval_train), NULL},
    {"recompute", FLAG, false, AT(model.recompute), NULL},
    {"microbatch", COUNT, false, AT(microbatch), NULL},
    {"checkpoint_steps", COUNT, false, AT(checkpoint_steps), NULL},
    {"checkpoint_seconds", REAL, false, AT(checkpoint_seconds), NULL},
    {"memory_steps", COUNT, false, AT(memory_steps), NULL},
};

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

/* The name of an enum's value; NULL for one that it does not have. */
static const char *name_of(const setting_t *setting, int value)
{
    int count = 0;
    while (setting->names[count] != NULL)
        count++;
    return value >= 0 && value < count ? setting->names[value] : NULL;
}

/* The number a person would have written for a float: 0.1 rather than 0.10000000149011612. It is
 * the same float again. */
static double plain(float value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%.7g", (double)value);
    double nearest = strtod(text, NULL);
    return (float)nearest == value ? nearest : (double)value;
}

static json_t *render_fanout(const plim_recipe_t *recipe)
{
    json_t *list = json_array();
    for (int i = 0; i < recipe->num_hops && i < PLIM_HOPS_MAX; i++)
        if (json_array_append_new(list, json_integer(recipe->fanout[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* JSON's readers know integers up to 2^63; a larger seed is a text. */
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
        return render_fanout(from);
    }
    return NULL;
}

json_t *plim__settings_render(const plim_training_t *training)
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

unsigned plim__settings_digits(const plim_training_t *training)
{
    unsigned digits = 15;
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        if (settings[i].kind != REAL && settings[i].kind != FLOAT)
            continue;
        const void *from = at(training, &settings[i]);
        double value = settings[i].kind == REAL ? get_double(from) : plain(*(const float *)from);
        char text[40];
        (void)snprintf(text, sizeof text, "%.*g", (int)digits, value);
        while (digits < 17 && strtod(text, NULL) != value)
            (void)snprintf(text, sizeof text, "%.*g", (int)++digits, value);
    }
    return digits;
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

static bool parse_integer(const json_t *value, int64_t least, int64_t most, int64_t *number_out)
{
    if (!json_is_integer(value) || json_integer_value(value) < least ||
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

static bool parse_fanout(const json_t *value, plim_recipe_t *recipe)
{
    size_t count = json_array_size(value);
    if (!json_is_array(value) || count > PLIM_HOPS_MAX)
        return false;
    memset(recipe->fanout, 0, sizeof recipe->fanout);
    recipe->num_hops = (int)count;
    for (size_t i = 0; i < count; i++)
        if (!parse_integer(json_array_get(value, i), -1, INT32_MAX, &recipe->fanout[i]))
            return false;
    return true;
}

static bool parse(const setting_t *setting, const json_t *value, void *to)
{
    int64_t number = 0;
    switch (setting->kind) {
    case NAME:
        return parse_name(value, setting->names, to);
    case INT:
        if (!parse_integer(value, 0, INT32_MAX, &number))
            return false;
        *(int *)to = (int)number;
        return true;
    case COUNT:
        return parse_integer(value, 0, INT64_MAX, to);
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
        return parse_fanout(value, to);
    }
    return false;
}

plim_status_t plim__settings_parse(const json_t *object, const char *name,
                                   plim_training_t *training_out)
{
    plim_training_t training = PLIM_TRAINING_INIT;
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        const setting_t *setting = &settings[i];
        if (!parse(setting, json_object_get(object, setting->key),
                   (char *)&training + setting->offset))
            return plim__fail(PLIM_ERR_DATA, "%s: its setting \"%s\" is missing or impossible",
                              name, setting->key);
    }
    *training_out = training;
    return PLIM_OK;
}

static bool same_fanout(const plim_recipe_t *a, const plim_recipe_t *b)
{
    bool same = a->num_hops == b->num_hops;
    for (int i = 0; same && i < a->num_hops && i < PLIM_HOPS_MAX; i++)
        same = a->fanout[i] == b->fanout[i];
    return same;
}

static bool same(const setting_t *setting, const void *a, const void *b)
{
    switch (setting->kind) {
    case NAME:
    case INT:
        return get_int(a) == get_int(b);
    case COUNT:
    case SEED:
        return *(const uint64_t *)a == *(const uint64_t *)b;
    case REAL:
        return get_double(a) == get_double(b);
    case FLOAT:
        return *(const float *)a == *(const float *)b;
    case FLAG:
        return *(const bool *)a == *(const bool *)b;
    case FANOUT:
        return same_fanout(a, b);
    }
    return false;
}

/* A setting as a message shows it. */
static void describe(const setting_t *setting, const void *from, char text_out[128])
{
    const plim_recipe_t *recipe = from;
    const char *name;
    int used = 0;
    switch (setting->kind) {
    case NAME:
        name = name_of(setting, get_int(from));
        (void)snprintf(text_out, 128, "%s", name != NULL ? name : "unknown");
        return;
    case INT:
        (void)snprintf(text_out, 128, "%d", get_int(from));
        return;
    case COUNT:
        (void)snprintf(text_out, 128, "%lld", (long long)*(const int64_t *)from);
        return;
    case REAL:
        (void)snprintf(text_out, 128, "%.17g", get_double(from));
        return;
    case FLOAT:
        (void)snprintf(text_out, 128, "%.9g", (double)*(const float *)from);
        return;
    case FLAG:
        (void)snprintf(text_out, 128, "%s", *(const bool *)from ? "true" : "false");
        return;
    case SEED:
        (void)snprintf(text_out, 128, "%llu", (unsigned long long)*(const uint64_t *)from);
        return;
    case FANOUT:
        for (int i = 0; i < recipe->num_hops && i < PLIM_HOPS_MAX; i++)
            used += snprintf(text_out + used, 128 - (size_t)used, "%s%lld", i == 0 ? "[" : ", ",
                             (long long)recipe->fanout[i]);
        (void)snprintf(text_out + used, 128 - (size_t)used, used == 0 ? "[]" : "]");
        return;
    }
}

static plim_status_t compare_epochs(const plim_training_t *before, const plim_training_t *now,
                                    plim_status_t status, const char *name)
{
    if (now->epochs < before->epochs)
        return plim__fail(status,
                          "%s: epochs are %lld there but %lld now; a run can be made "
                          "longer, not shorter",
                          name, (long long)before->epochs, (long long)now->epochs);
    if (now->epochs != before->epochs && before->optimiser.schedule == PLIM_SCHEDULE_COSINE)
        return plim__fail(status,
                          "%s: epochs are %lld there but %lld now; with a cosine schedule every "
                          "step's rate depends on them, so the run cannot be made longer: begin "
                          "a new one",
                          name, (long long)before->epochs, (long long)now->epochs);
    return PLIM_OK;
}

plim_status_t plim__settings_compare(const plim_training_t *before, const plim_training_t *now,
                                     plim_status_t status, const char *name)
{
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        const setting_t *setting = &settings[i];
        char then_text[128], now_text[128];
        if (!setting->decides || same(setting, at(before, setting), at(now, setting)))
            continue;
        describe(setting, at(before, setting), then_text);
        describe(setting, at(now, setting), now_text);
        return plim__fail(status,
                          "%s: %s is %s there but %s now, which would change the result; leave it "
                          "as it was or begin a new run",
                          name, setting->key, then_text, now_text);
    }
    return compare_epochs(before, now, status, name);
}

bool plim__settings_same(const plim_training_t *a, const plim_training_t *b)
{
    for (size_t i = 0; i < NUM_SETTINGS; i++)
        if (!same(&settings[i], at(a, &settings[i]), at(b, &settings[i])))
            return false;
    return true;
}
