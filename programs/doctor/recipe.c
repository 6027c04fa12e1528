/*
 * The settings of a training as logs show them: "Namespace(batch_size=1024, …)",
 * "{'batch_size': 1024, …}", a command line
 * "--num_workers 8", a script's "NeighborLoader(…, num_neighbors=[15, 10])", PyG's
 * "Data(x=[2449029, 100], edge_index=[2, 123718280])" and DGL's "Graph(num_nodes=…, num_edges=…,".
 */
#include "doctor/log_pattern.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

doctor_recipe_t doctor_recipe_none(void)
{
    return (doctor_recipe_t){.nodes = -1,
                             .edges = -1,
                             .features = -1,
                             .batch_size = -1,
                             .workers = -1,
                             .prefetch = -1,
                             .hidden = -1,
                             .layers = -1,
                             .epochs = -1,
                             .persistent = -1,
                             .pinned = -1};
}

/* Names of settings in PyG's, OGB's and DGL's examples. */
static const struct {
    const char *name;
    size_t offset;
    int64_t most;
} numbers[] = {
    {"batch_size", offsetof(doctor_recipe_t, batch_size), 1 << 30},
    {"num_workers", offsetof(doctor_recipe_t, workers), 1024},
    {"n_workers", offsetof(doctor_recipe_t, workers), 1024},
    {"workers", offsetof(doctor_recipe_t, workers), 1024},
    {"prefetch_factor", offsetof(doctor_recipe_t, prefetch), 1024},
    {"hidden_channels", offsetof(doctor_recipe_t, hidden), 1 << 20},
    {"hidden_dim", offsetof(doctor_recipe_t, hidden), 1 << 20},
    {"num_hidden", offsetof(doctor_recipe_t, hidden), 1 << 20},
    {"n_hidden", offsetof(doctor_recipe_t, hidden), 1 << 20},
    {"hidden", offsetof(doctor_recipe_t, hidden), 1 << 20},
    {"num_layers", offsetof(doctor_recipe_t, layers), 8},
    {"n_layers", offsetof(doctor_recipe_t, layers), 8},
    {"layers", offsetof(doctor_recipe_t, layers), 8},
    {"epochs", offsetof(doctor_recipe_t, epochs), 1 << 30},
    {"num_epochs", offsetof(doctor_recipe_t, epochs), 1 << 30},
    {"n_epochs", offsetof(doctor_recipe_t, epochs), 1 << 30},
};

static const char *const fanouts[] = {"num_neighbors", "fan_out", "fanout", "sizes"};

static bool letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' ||
           (c >= '0' && c <= '9');
}

/* "--num-workers" is num_workers. */
static bool same(const char *begin, const char *end, const char *name)
{
    for (; begin < end && *name != '\0'; begin++, name++)
        if ((*begin == '-' ? '_' : *begin) != *name)
            return false;
    return begin == end && *name == '\0';
}

static const char *skip(const char *at, const char *end, const char *set)
{
    while (at < end && strchr(set, *at) != NULL && *at != '\0')
        at++;
    return at;
}

bool doctor_recipe_fanout(doctor_recipe_t *recipe, const char *at, const char *end)
{
    int count = 0;
    int64_t fanout[PLIM_HOPS_MAX];
    const char *behind = skip(at, end, "[('\"");
    const bool list = behind > at;
    while (count <= PLIM_HOPS_MAX) {
        doctor_captured_t captured;
        const char *stop = behind;
        while (stop < end && ((*stop >= '0' && *stop <= '9') || *stop == '-'))
            stop++;
        if (!doctor_pattern_match("^%d$", behind, behind, stop, &captured) ||
            captured.number[0] < -1 || captured.number[0] > 1 << 20)
            break;
        if (count < PLIM_HOPS_MAX)
            fanout[count] = captured.number[0];
        count++;
        behind = skip(stop, end, list ? ", " : ",");
    }
    if (count == 0)
        return false;
    recipe->deep = count > PLIM_HOPS_MAX;
    recipe->num_hops = recipe->deep ? 0 : count;
    memcpy(recipe->fanout, fanout, (size_t)recipe->num_hops * sizeof fanout[0]);
    return true;
}

static void take_word(const char *at, const char *end, char *word_out, size_t size)
{
    at = skip(at, end, "'\"");
    const char *stop = at;
    while (stop < end && letter(*stop))
        stop++;
    if (stop > at)
        plim__text_printable(at, (size_t)(stop - at), word_out, size);
}

static void take_model(const char *at, const char *end, char model_out[16])
{
    enum { GCN = 1 };
    static const char *const models[] = {"sage", [GCN] = "gcn", "gat", "gin"};
    char word[32] = "";
    take_word(at, end, word, sizeof word);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        const char *found = strcasestr(word, models[i]);
        /* "GraphSAGE", "graphsage", "my_gat" and "rgcn", not "usage" or "engine". */
        if (found != NULL &&
            (found == word || i == GCN || !isalpha((unsigned char)found[-1]) ||
             (islower((unsigned char)found[-1]) && isupper((unsigned char)*found)) ||
             (found - word >= 5 && strncasecmp(found - 5, "graph", 5) == 0)))
            (void)snprintf(model_out, 16, "%s", models[i]);
    }
}

/* A layer of PyG or DGL that is made: "GCNConv(100, 256)". */
static void take_layer(doctor_recipe_t *recipe, const char *line, const char *end)
{
    static const char *const layers[] = {"SAGEConv(", "GCNConv(", "GATConv(", "GINConv("};
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        char model[16] = "";
        const char *at = memmem(line, (size_t)(end - line), layers[i], strlen(layers[i]));
        if (at == NULL || (at > line && letter(at[-1])))
            continue;
        take_model(at, end, model);
        const bool other = recipe->layer[0] != '\0' && strcmp(recipe->layer, model) != 0;
        (void)snprintf(recipe->layer, sizeof recipe->layer, "%s", other ? "several" : model);
    }
}

const char *doctor_recipe_model(const doctor_recipe_t *recipe)
{
    if (recipe->model[0] != '\0' || strcmp(recipe->layer, "several") == 0)
        return recipe->model;
    return recipe->layer;
}

/* A setting's name stands at [begin, end), its value at `value`. */
static void take_setting(doctor_recipe_t *recipe, const char *begin, const char *end,
                         const char *value, const char *stop)
{
    doctor_captured_t captured;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (same(begin, end, numbers[i].name) &&
            doctor_pattern_match("^%d", value, value, stop, &captured) && captured.number[0] >= 0 &&
            captured.number[0] <= numbers[i].most)
            memcpy((char *)recipe + numbers[i].offset, &captured.number[0], sizeof(int64_t));
    for (size_t i = 0; i < sizeof fanouts / sizeof fanouts[0]; i++)
        if (same(begin, end, fanouts[i]))
            (void)doctor_recipe_fanout(recipe, value, stop);
    if (same(begin, end, "persistent_workers"))
        recipe->persistent = value < stop && *value == 'T';
    if (same(begin, end, "pin_memory"))
        recipe->pinned = value < stop && *value == 'T';
    if (same(begin, end, "model") || same(begin, end, "gnn"))
        take_model(value, stop, recipe->model);
    if (same(begin, end, "dataset"))
        take_word(value, stop, recipe->dataset, sizeof recipe->dataset);
}

/* Finds the pattern where it begins a word: "x=[" is not the end of "edge_index=[". */
static bool find_field(const char *pattern, const char *line, const char *end,
                       doctor_captured_t *captured_out)
{
    for (const char *at = line; doctor_pattern_match(pattern, at, at, end, captured_out);
         at = captured_out->at + 1)
        if (captured_out->at == line || !letter(captured_out->at[-1]))
            return true;
    return false;
}

/* The edges of a printed graph; -1: none. */
static int64_t find_edges(const char *line, const char *end)
{
    doctor_captured_t captured;
    if (find_field("edge_index=[2, %d]", line, end, &captured))
        return captured.number[0];
    if (find_field("adj_t=[%d, %d, nnz=%d]", line, end, &captured))
        return captured.number[2];
    if (doctor_pattern_match("Graph(num_nodes=%d, num_edges=%d,", line, line, end, &captured))
        return captured.number[1];
    return -1;
}

/* PyG's Data, its fields in any order, or DGL's Graph. Of several, the largest: batches are printed
 * too. DGL has the width of the rows on a later line. */
static void take_data(doctor_recipe_t *recipe, const char *line, const char *end)
{
    doctor_captured_t captured;
    const int64_t edges = find_edges(line, end);
    if (edges > recipe->edges) {
        recipe->edges = edges;
        if (find_field("x=[%d, %d]", line, end, &captured)) {
            recipe->nodes = captured.number[0];
            recipe->features = captured.number[1];
        } else if (find_field("num_nodes=%d", line, end, &captured)) {
            recipe->nodes = captured.number[0];
            recipe->features = 0;
        }
    }
    if (recipe->features == 0 &&
        doctor_pattern_match("'feat': Scheme(shape=(%d,)", line, line, end, &captured))
        recipe->features = captured.number[0];
}

static void take_shape(doctor_recipe_t *recipe, const char *line, const char *end)
{
    static const struct {
        const char *text, *shape;
    } known[] = {{"papers100M", "papers100M"},  {"ogbn-products", "products"},
                 {"ogbn_products", "products"}, {"ogbn-arxiv", "arxiv"},
                 {"ogbn_arxiv", "arxiv"},       {"Reddit(", "reddit"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (memmem(line, (size_t)(end - line), known[i].text, strlen(known[i].text)) != NULL)
            (void)snprintf(recipe->shape, sizeof recipe->shape, "%s", known[i].shape);
}

/* Words of libraries and layers that only a GNN's texts have. */
static bool names_gnn(const char *line, size_t length)
{
    static const char *const words[] = {
        "edge_index", "NeighborLoader", "NeighborSampler", "torch_geometric", "dgl.",
        "GraphSAGE",  "SAGEConv",       "GCNConv",         "GATConv",         "GINConv"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (memmem(line, length, words[i], strlen(words[i])) != NULL)
            return true;
    return false;
}

/* Calls with which a script reads a dataset of plimsoll. */
static bool calls_ours(const char *line, size_t length)
{
    static const char *const calls[] = {"plimsoll.open(", "plimsoll.NeighborLoader(",
                                        "plimsoll.GraphLoader("};
    static const char import[] = "from plimsoll import";
    const char *names = memmem(line, length, import, sizeof import - 1);
    if (names != NULL && memmem(names, (size_t)(line + length - names), "Loader", 6) != NULL)
        return true;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (memmem(line, length, calls[i], strlen(calls[i])) != NULL)
            return true;
    return false;
}

void doctor_recipe_line(doctor_recipe_t *recipe, const char *line, size_t length, bool script)
{
    const char *end = line + length;
    if (length > 8192)
        return;
    recipe->ours = recipe->ours || (script && calls_ours(line, length));
    take_shape(recipe, line, end);
    recipe->gnn = recipe->gnn || names_gnn(line, length);
    take_layer(recipe, line, end);
    if (memchr(line, '=', length) == NULL && memmem(line, length, "--", 2) == NULL &&
        memmem(line, length, "': ", 3) == NULL && memmem(line, length, "\": ", 3) == NULL)
        return;
    take_data(recipe, line, end);
    if (script && memmem(line, length, "NeighborLoader(", 15) != NULL && recipe->loaders < 3)
        recipe->loaders++;
    for (const char *at = line; at < end;) {
        if (!letter(*at)) {
            at++;
            continue;
        }
        const char *begin = at;
        while (at < end && letter(*at))
            at++;
        const char *name = skip(begin, at, "-");
        const bool option = name - begin == 2;
        const char *value = skip(at, end, " '\"");
        if (value < end && (*value == '=' || *value == ':'))
            value = skip(value + 1, end, " ");
        else if (!option)
            continue;
        take_setting(recipe, name, at, skip(value, end, "'\""), end);
    }
}
