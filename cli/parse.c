/* Parses the values of options: words, fan-outs, seeds, shapes, directories. */
#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool cli_parse_real(const cli_common_t *common, const char *option, const char *text,
                    double minimum, double below, double *value_out)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (errno != 0 || end == text || *end != '\0' || !isfinite(value) || value < minimum ||
        value >= below) {
        char bound[32] = "";
        if (isfinite(below))
            (void)snprintf(bound, sizeof bound, " and below %g", below);
        (void)cli_wrong_use(common, "%s: '%s' is not a number from %g on%s", option, text, minimum,
                            bound);
        return false;
    }
    *value_out = value;
    return true;
}

/* Words that people know from elsewhere. */
static const struct {
    const char *given, *meant;
} aliases[] = {
    {"val", "valid"},     {"validation", "valid"}, {"graphsage", "sage"},
    {"bfloat16", "bf16"}, {"float32", "f32"},      {"float16", "f16"},
};

/* "cross_entropy" is "cross-entropy", and "SAGE" is "sage". */
static bool same_word(const char *given, const char *word)
{
    while (*word != '\0' && (tolower((unsigned char)*given) == tolower((unsigned char)*word) ||
                             (*given == '_' && *word == '-'))) {
        given++;
        word++;
    }
    return *given == '\0' && *word == '\0';
}

static bool means_word(const char *given, const char *word)
{
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (same_word(given, aliases[i].given) && strcmp(aliases[i].meant, word) == 0)
            return true;
    return same_word(given, word);
}

int cli_parse_word(const cli_common_t *common, const char *option, const char *const *words)
{
    char list[128] = "";
    size_t used = 0;
    for (int i = 0; words[i] != NULL; i++) {
        if (means_word(optarg, words[i]))
            return i;
        const char *joint = i == 0 ? "" : words[i + 1] == NULL ? " or " : ", ";
        int wrote = snprintf(list + used, sizeof list - used, "%s%s", joint, words[i]);
        used += wrote > 0 && (size_t)wrote < sizeof list - used ? (size_t)wrote : 0;
    }
    (void)cli_wrong_use(common, "%s is %s, not '%s'", option, list, optarg);
    return -1;
}

static bool is_number(const char *text)
{
    char *end;
    (void)strtoll(text, &end, 10);
    return end != text && *end == '\0';
}

/* Appends the numbers of one word, "15,10,5" or "15". */
static bool add_fanout(const char *word, plim_recipe_t *recipe)
{
    for (const char *at = word;;) {
        char *end;
        errno = 0;
        long long value = strtoll(at, &end, 10);
        bool valid = errno == 0 && end != at && (*end == ',' || *end == '\0');
        if (!valid || recipe->num_hops == PLIM_HOPS_MAX)
            return false;
        recipe->fanout[recipe->num_hops++] = value;
        if (*end == '\0')
            return true;
        at = end + 1;
    }
}

bool cli_parse_fanout(const cli_common_t *common, int argc, char **argv, plim_recipe_t *recipe)
{
    const char *word = optarg;
    recipe->num_hops = 0;
    bool valid = add_fanout(word, recipe);
    while (valid && strchr(optarg, ',') == NULL && optind < argc && is_number(argv[optind])) {
        word = argv[optind++];
        valid = add_fanout(word, recipe);
    }
    if (!valid)
        (void)cli_wrong_use(common,
                            "--fanout: '%s' is not one number a hop, like 15,10,5 (at most %d "
                            "hops; -1: all neighbours)",
                            word, PLIM_HOPS_MAX);
    return valid;
}

bool cli_parse_seed(const cli_common_t *common, uint64_t *seed_out)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(optarg, &end, 10);
    if (errno != 0 || end == optarg || *end != '\0' || strchr(optarg, '-') != NULL) {
        (void)cli_wrong_use(common, "--seed: '%s' is not a whole number from 0 to 2^64 - 1",
                            optarg);
        return false;
    }
    *seed_out = value;
    return true;
}

bool cli_take_shape_option(const cli_common_t *common, int code, plim_generate_options_t *shape,
                           unsigned *given)
{
    static const char *const types[] = {"f16", "f32", NULL};
    int type;
    *given |= 1U << (code - CLI_SHAPE_SCALE);
    switch (code) {
    case CLI_SHAPE_SCALE:
        return cli_parse_real(common, "--scale", optarg, 0, 1e6, &shape->scale);
    case CLI_SHAPE_SPREAD:
        return cli_parse_real(common, "--spread", optarg, 0, 2, &shape->spread);
    case CLI_SHAPE_DTYPE:
        type = cli_parse_word(common, "--dtype", types);
        shape->features = type == 0 ? PLIM_F16 : PLIM_F32;
        return type >= 0;
    case CLI_SHAPE_NODES:
        return cli_parse_int(common, "--nodes", optarg, 1, INT64_MAX, &shape->num_nodes);
    case CLI_SHAPE_EDGES:
        return cli_parse_int(common, "--edges", optarg, 0, INT64_MAX, &shape->num_edges);
    case CLI_SHAPE_FEATURES:
        return cli_parse_int(common, "--features", optarg, 0, INT64_MAX, &shape->num_features);
    default:
        return cli_parse_int(common, "--classes", optarg, 1, INT64_MAX, &shape->num_classes);
    }
}

bool cli_check_free_shape(const cli_common_t *common, unsigned given)
{
    const unsigned counts = 0xfU << (CLI_SHAPE_NODES - CLI_SHAPE_SCALE);
    if ((given & counts) == counts)
        return true;
    (void)cli_wrong_use(common, "the free shape needs --nodes, --edges, --features and --classes");
    return false;
}

bool cli_parse_cache(const cli_common_t *common, const char *option, int64_t *bytes_out)
{
    if (same_word(optarg, "none")) {
        *bytes_out = -1;
        return true;
    }
    if (plim_size_parse(optarg, bytes_out) == PLIM_OK && *bytes_out > 0)
        return true;
    (void)cli_wrong_use(common, "%s: '%s' is not a size like 500M, nor 'none'", option, optarg);
    return false;
}

/* The real path of `path`, or of its nearest parent that exists. */
static bool resolve(const char *path, char real_out[PATH_MAX])
{
    char part[PATH_MAX];
    if (strlen(path) >= sizeof part)
        return false;
    memcpy(part, path, strlen(path) + 1);
    while (realpath(part, real_out) == NULL) {
        char *slash = strrchr(part, '/');
        if (errno != ENOENT || strcmp(part, ".") == 0)
            return false;
        if (slash == NULL)
            memcpy(part, ".", 2);
        else
            *(slash == part ? slash + 1 : slash) = '\0';
    }
    return true;
}

bool cli_check_scratch(const cli_common_t *common, const char *dataset, const char *scratch)
{
    char real_scratch[PATH_MAX], real_dataset[PATH_MAX];
    if (scratch == NULL || realpath(dataset, real_dataset) == NULL ||
        !resolve(scratch, real_scratch))
        return true;
    size_t length = strlen(real_dataset);
    if (strncmp(real_scratch, real_dataset, length) != 0 ||
        (real_scratch[length] != '/' && real_scratch[length] != '\0'))
        return true;
    (void)cli_wrong_use(
        common, "--scratch: %s %s, which is never written to; name another directory", scratch,
        real_scratch[length] == '/' ? "lies in the dataset" : "is the dataset itself");
    return false;
}

int cli_check_moved(const cli_common_t *common, const char *run, const char *dataset)
{
    const bool trains = common->verb == &cli_verb_train;
    char path[PATH_MAX], message[3 * PATH_MAX];
    struct stat about;
    (void)snprintf(path, sizeof path, "%s/dataset.json", dataset);
    if (stat(path, &about) == 0 || (errno != ENOENT && errno != ENOTDIR))
        return CLI_DONE;
    (void)snprintf(message, sizeof message,
                   "the dataset of %s is no longer at %s; name its new directory: plimsoll %s %s%s "
                   "DIR",
                   run, dataset, common->verb->name, trains ? "--resume " : "", run);
    return cli_failed_with(common, PLIM_ERR_DATA, message, NULL);
}

const char *cli_count_text(double count, char text_out[24])
{
    static const char units[] = " KMGTP";
    int i = 0;
    for (; count >= 1000 && units[i + 1] != '\0'; i++)
        count /= 1000;
    int digits = i == 0 || count >= 100 ? 0 : count >= 10 ? 1 : 2;
    (void)snprintf(text_out, 24, "%.*f%.*s", digits, count, i > 0, &units[i]);
    return text_out;
}
