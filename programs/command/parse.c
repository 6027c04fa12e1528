/* Parses the values of options: words, fan-outs, seeds, shapes, directories. */
#include "command/cli.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool cli_parse_int(const cli_common_t *common, const char *option, const char *text,
                   int64_t minimum, int64_t most, int64_t *value_out)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool valid = errno == 0 && end != text;
    if (valid && *end != '\0') {
        double large = strtod(text, &end);
        const char *unit =
            *end != '\0' ? strchr(units, *end >= 'a' ? *end - 'a' + 'A' : *end) : NULL;
        valid = unit != NULL && end[1] == '\0';
        for (long i = 0; valid && i <= unit - units; i++)
            large *= 1000;
        valid = valid && large > -9e18 && large < 9e18;
        value = valid ? (long long)(large + (large < 0 ? -0.5 : 0.5)) : 0;
    }
    if (!valid || value < minimum || value > most) {
        char bound[32] = " on";
        if (most < INT32_MAX || (valid && value > most))
            (void)snprintf(bound, sizeof bound, " to %lld", (long long)most);
        (void)cli_wrong_use(common, "%s: '%s' is not a whole number from %lld%s", option, text,
                            (long long)minimum, bound);
        return false;
    }
    *value_out = value;
    return true;
}

bool cli_parse_real(const cli_common_t *common, const char *option, const char *text, double below,
                    double *value_out)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (errno != 0 || end == text || *end != '\0' || !isfinite(value) || value < 0 ||
        value >= below) {
        char bound[32] = "";
        if (isfinite(below))
            (void)snprintf(bound, sizeof bound, " and below %g", below);
        (void)cli_wrong_use(common, "%s: '%s' is not a number from 0 on%s", option, text, bound);
        return false;
    }
    *value_out = value;
    return true;
}

/* Synonyms from other tools. */
static const struct {
    const char *given, *meant;
} aliases[] = {
    {"val", "valid"},        {"validation", "valid"},  {"graphsage", "sage"},
    {"sageconv", "sage"},    {"gcnconv", "gcn"},       {"gatconv", "gat"},
    {"ginconv", "gin"},      {"batch_norm", "batch"},  {"batchnorm", "batch"},
    {"layer_norm", "layer"}, {"layernorm", "layer"},   {"sum", "add"},
    {"add", "sum"},          {"bfloat16", "bf16"},     {"float32", "f32"},
    {"fp32", "f32"},         {"float16", "f16"},       {"fp16", "f16"},
    {"ce", "cross_entropy"}, {"nll", "cross_entropy"}, {"acc", "accuracy"},
    {"rocauc", "roc_auc"},   {"auc", "roc_auc"},
};

static int folded(char letter)
{
    return letter == '-' ? '_' : tolower((unsigned char)letter);
}

/* "cross-entropy" is "cross_entropy", and "SAGE" is "sage". */
static bool same_word(const char *given, const char *word)
{
    while (*word != '\0' && folded(*given) == folded(*word)) {
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

#define WORD_MAX 40

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Letters to insert, drop, replace or swap with their neighbour that make one word the other. */
static int edit_distance(const char *a, const char *b)
{
    int rows[3][WORD_MAX + 1]; /* row i % 3: from the first i letters of `a` to those of `b` */
    const int height = (int)strlen(a), width = (int)strlen(b);
    for (int j = 0; j <= width; j++)
        rows[0][j] = j;
    for (int i = 1; i <= height; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i + 2) % 3], *above_that = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= width; j++) {
            const bool same = folded(a[i - 1]) == folded(b[j - 1]);
            row[j] = smaller(above[j - 1] + !same, smaller(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) &&
                folded(a[i - 2]) == folded(b[j - 1]))
                row[j] = smaller(row[j], above_that[j - 2] + 1);
        }
    }
    return rows[height % 3][width];
}

/* Whether `word` begins with the letters of `part`. */
static bool begins_with(const char *word, const char *part)
{
    while (*part != '\0' && folded(*word) == folded(*part)) {
        word++;
        part++;
    }
    return *part == '\0';
}

void cli_nearest_try(cli_nearest_t *nearest, const char *given, const char *word)
{
    const size_t length = strlen(given), width = strlen(word);
    if (length > WORD_MAX || width > WORD_MAX)
        return;
    const int most = smaller(3, length < 6 ? 1 : (int)length / 3);
    int distance = edit_distance(given, word);
    /* "num" is near "num-layers", and "hidden-size" is near "hidden". */
    if ((length >= 3 && begins_with(word, given)) ||
        (width >= 3 && begins_with(given, word) && folded(given[width]) == '_'))
        distance = smaller(distance, most);
    if (distance > most || (nearest->word != NULL && distance >= nearest->distance))
        return;
    *nearest = (cli_nearest_t){word, distance};
}

const char *cli_nearest_text(const cli_nearest_t *nearest, const char *prefix, char text_out[96])
{
    text_out[0] = '\0';
    if (nearest->word != NULL)
        (void)snprintf(text_out, 96, "; did you mean %s%s?", prefix, nearest->word);
    return text_out;
}

/* The hint for a mistyped word: one of `words`, or a synonym of one. */
static const char *hint_of(const char *given, const char *const *words, char text_out[96])
{
    cli_nearest_t nearest = {NULL, 0};
    for (int i = 0; words[i] != NULL; i++) {
        cli_nearest_try(&nearest, given, words[i]);
        for (size_t k = 0; k < sizeof aliases / sizeof aliases[0]; k++)
            if (strcmp(aliases[k].meant, words[i]) == 0)
                cli_nearest_try(&nearest, given, aliases[k].given);
    }
    return cli_nearest_text(&nearest, "", text_out);
}

int cli_parse_word(const cli_common_t *common, const char *option, const char *text,
                   const char *const *words)
{
    char list[128] = "", hint[96];
    size_t used = 0;
    for (int i = 0; words[i] != NULL; i++) {
        if (means_word(text, words[i]))
            return i;
        const char *joint = i == 0 ? "" : words[i + 1] == NULL ? " or " : ", ";
        int wrote = snprintf(list + used, sizeof list - used, "%s%s", joint, words[i]);
        used += wrote > 0 && (size_t)wrote < sizeof list - used ? (size_t)wrote : 0;
    }
    (void)cli_wrong_use(common, "%s is %s, not '%s'%s", option, list, text,
                        hint_of(text, words, hint));
    return -1;
}

static bool is_number(const char *text)
{
    char *end;
    (void)strtoll(text, &end, 10);
    return end != text && *end == '\0';
}

#define NUMBERS_TEXT 256 /* bytes of a list of numbers on the command line */

/* Reads "15,10,5", "15 10 5" or "[15, 10, 5]". */
static bool read_numbers(const char *text, int most, int64_t *numbers_out, int *count_out)
{
    const char closing = *text == '[' ? ']' : *text == '(' ? ')' : '\0';
    const char *at = text + (closing != '\0');
    for (*count_out = 0; *count_out < most;) {
        char *end;
        errno = 0;
        long long value = strtoll(at, &end, 10);
        if (errno != 0 || end == at)
            return false;
        numbers_out[(*count_out)++] = value;
        at = end + strspn(end, " ");
        if (*at == closing)
            return closing == '\0' || at[1] == '\0';
        if (*at == ',')
            at++;
        else if (at == end)
            return false;
    }
    return false;
}

/* Whether the next word of the command line belongs to a fan-out. */
static bool fanout_goes_on(const char *text, const char *next)
{
    const size_t length = strlen(text);
    const bool open = (text[0] == '[' || text[0] == '(') && strpbrk(text, "])") == NULL;
    if (open || (length > 0 && text[length - 1] == ','))
        return true;
    return strpbrk(text, ",[(") == NULL && is_number(next);
}

/* Reads a list that may go on in the next words, which come behind it in joined_out. */
static bool take_numbers(const char *text, char ***next, int most, int64_t *numbers_out,
                         int *count_out, char joined_out[NUMBERS_TEXT])
{
    int used = snprintf(joined_out, NUMBERS_TEXT, "%s", text);
    while (used < NUMBERS_TEXT && **next != NULL && fanout_goes_on(joined_out, **next))
        used += snprintf(joined_out + used, NUMBERS_TEXT - (size_t)used, " %s", *(*next)++);
    return used < NUMBERS_TEXT && read_numbers(joined_out, most, numbers_out, count_out);
}

bool cli_parse_fanout(const cli_common_t *common, const char *option, const char *text,
                      char ***next, plim_recipe_t *recipe)
{
    char joined[NUMBERS_TEXT];
    const bool valid =
        take_numbers(text, next, PLIM_HOPS_MAX, recipe->fanout, &recipe->num_hops, joined);
    if (!valid)
        (void)cli_wrong_use(common,
                            "%s: '%s' is not one number a hop, like 15,10,5 (at most %d hops; "
                            "-1: all neighbours)",
                            option, joined, PLIM_HOPS_MAX);
    for (int i = 0; valid && i < recipe->num_hops; i++)
        if (recipe->fanout[i] == 0) {
            (void)cli_wrong_use(common,
                                "%s: '%s' draws nothing at hop %d; give 1 or more neighbours, or "
                                "-1 for all, at each hop",
                                option, joined, i + 1);
            return false;
        }
    return valid;
}

bool cli_parse_categories(const cli_common_t *common, const char *option, const char *text,
                          char ***next, int most, int64_t *counts_out)
{
    char joined[NUMBERS_TEXT];
    int64_t counts[PLIM_CATEGORIES_MAX];
    int count;
    bool valid = take_numbers(text, next, most, counts, &count, joined);
    for (int i = 0; valid && i < count; i++)
        valid = counts[i] >= 1 && counts[i] <= INT32_MAX;
    if (!valid) {
        (void)cli_wrong_use(common,
                            "%s: '%s' is not one number from 1 on for each column, like 5,6,2 (at "
                            "most %d columns)",
                            option, joined, most);
        return false;
    }
    memset(counts_out, 0, (size_t)most * sizeof *counts_out);
    memcpy(counts_out, counts, (size_t)count * sizeof *counts_out);
    return true;
}

bool cli_parse_negatives(const cli_common_t *common, const char *option, const char *text,
                         const char **file_out, int64_t *drawn_out)
{
    const bool number = text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
    *file_out = number ? NULL : text;
    *drawn_out = 0;
    return !number || cli_parse_int(common, option, text, 1, INT32_MAX, drawn_out);
}

bool cli_parse_seed(const cli_common_t *common, const char *option, const char *text,
                    uint64_t *seed_out)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || strchr(text, '-') != NULL) {
        (void)cli_wrong_use(common, "%s: '%s' is not a whole number from 0 to 2^64 - 1", option,
                            text);
        return false;
    }
    *seed_out = value;
    return true;
}

#define AT(member) CLI_AT(plim_generate_options_t, member)

const cli_option_t cli_shape_options[] = {
    {"scale", "X", "of a shape: nodes, edges and splits times X (0.01: a hundredth)",
     "Features and classes stay.", AT(scale), CLI_BELOW(1e6)},
    {"spread", "S", "of a shape: 0: its own locality (default) ... 1: neighbours without any",
     "Each neighbour is drawn from the whole graph with a probability of S squared.", AT(spread),
     CLI_BELOW(2)},
    {"dtype", "TYPE", "of a shape: features as %s; default: the shape's",
     "Both represent the same numbers. For free the default is f32.", AT(features),
     CLI_LIST(PLIM_F16, "f16", "f32")},
    {"edge-columns", "LIST",
     "of a shape: edges have features:F, weight, types:T and time, as listed",
     "Separated by commas, as features:8,types:4. Features are of the type of those of nodes; time "
     "gives times to edges and nodes. They tell of labels what rows and lists do not.",
     AT(edge_columns), .kind = CLI_TEXT},
    CLI_OPTIONS_END};

const cli_option_t cli_shape_count_options[] = {
    {"nodes", "N", "as 1000000, 1M or 1.5G, instead of the shape's; free needs all four",
     "Splits stay as large as the shape's.", AT(num_nodes), CLI_RANGE(1, INT64_MAX)},
    {"edges", "E", "instead of the shape's",
     "Of an undirected shape (products, reddit) each counts once and is in two lists.",
     AT(num_edges), CLI_RANGE(0, INT64_MAX)},
    {"features", "F", "instead of the shape's", AT(num_features), CLI_RANGE(0, INT64_MAX)},
    {"classes", "C", "instead of the shape's", AT(num_classes), CLI_RANGE(1, INT64_MAX)},
    CLI_OPTIONS_END};

const char *const cli_shapes[] = {"papers100M", "products",  "arxiv", "reddit",
                                  "free",       "molecules", NULL};

const char *cli_shape_named(const char *name, char text_out[192])
{
    char hint[96];
    const bool ogb = begins_with(name, "ogbn-");
    for (int i = 0; cli_shapes[i] != NULL; i++)
        if (same_word(name + (ogb ? 5 : 0), cli_shapes[i]))
            return cli_shapes[i];
    (void)snprintf(text_out, 192,
                   "; the shapes are papers100M, products, arxiv, reddit, free and molecules%s",
                   hint_of(name + (ogb ? 5 : 0), cli_shapes, hint));
    return NULL;
}

bool cli_check_free_shape(const cli_common_t *common)
{
    if (cli_given(common, "nodes") && cli_given(common, "edges") && cli_given(common, "features") &&
        cli_given(common, "classes"))
        return true;
    (void)cli_wrong_use(common, "the free shape needs --nodes, --edges, --features and --classes");
    return false;
}

bool cli_parse_size(const cli_common_t *common, const char *option, const char *text,
                    int64_t *bytes_out)
{
    const size_t length = strlen(text);
    int64_t bytes;
    if (plim_size_parse(text, &bytes) != PLIM_OK || bytes <= 0) {
        (void)cli_wrong_use(common, "%s: '%s' is not a size like 4G or 300M", option, text);
        return false;
    }
    if (bytes < 1000000 && !isalpha((unsigned char)text[length - 1])) {
        (void)cli_wrong_use(common, "%s: in which unit is %s? Write %sG, %sM, %sK or %sB", option,
                            text, text, text, text, text);
        return false;
    }
    *bytes_out = bytes;
    return true;
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
    (void)cli_wrong_use(common,
                        "--scratch: %s is in the dataset directory, which is never written to; "
                        "name another directory",
                        scratch);
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
    if (!cli_ranks_speaks())
        return cli_exit_code(PLIM_ERR_DATA);
    (void)snprintf(message, sizeof message,
                   "the dataset of %s is no longer at %s; name its new directory: plimsoll %s %s%s "
                   "DIR",
                   run, dataset, common->verb->name, trains ? "--resume " : "", run);
    return cli_failed_with(common, PLIM_ERR_DATA, message, NULL);
}

const char *cli_feature_type(plim_dtype_t type)
{
    return type == PLIM_I64 ? "i64" : type == PLIM_F16 ? "f16" : "f32";
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
