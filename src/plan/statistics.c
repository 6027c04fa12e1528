#include "plan/statistics.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/params.h"
#include "io/cache_file.h"
#include "load/probe.h"
#include "plan/plan_settings.h"
#include "source/offsets.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 2 /* of the cached files and of how their content is measured */
#define NAME_TEXT 128
#define UNKNOWN_TIMES 8
#define ONE_WAY 0.1 /* edges go one way where more than this share of nodes has no list */

/*
 * Mean number of entries drawn from the list of a node that an edge leads to. In a graph whose
 * edges go both ways such a node is met in proportion to its degree, else independently of it.
 */
static double mean_drawn(const plim__manifest_t *manifest, int64_t fanout, bool replace)
{
    const bool one_way = (double)manifest->degrees[0] > ONE_WAY * (double)manifest->info.num_nodes;
    double weight = one_way ? (double)manifest->degrees[0] : 0, drawn = 0;
    for (int i = 1; i < PLIM_DEGREE_BUCKETS; i++) {
        double count = (double)manifest->degrees[i];
        /* The middle of 2^(i-1) … 2^i - 1, and not above the longest list. */
        double degree = fmin(1.5 * exp2(i - 1) - 0.5, (double)manifest->info.max_degree);
        double taken = degree;
        if (fanout >= 0)
            taken = replace ? (double)fanout : fmin((double)fanout, degree);
        const double times = one_way ? count : count * degree;
        weight += times;
        drawn += times * taken;
    }
    return weight > 0 ? drawn / weight : 0;
}

static int64_t whole(double value)
{
    return value < 9e18 ? (int64_t)ceil(value) : INT64_MAX;
}

plim__load_size_t plim__load_size_expected(const plim__manifest_t *manifest,
                                           const plim_recipe_t *recipe, int64_t num_seeds)
{
    const int64_t reach = manifest->reach > 0 ? manifest->reach : manifest->info.num_nodes;
    double all = (double)plim__max_i64(reach, 1);
    const double trees = recipe->disjoint ? (double)num_seeds : 1; /* of one seed each */
    double met = fmin((double)num_seeds / trees, all);
    double expanded = met; /* destinations of the next hop */
    double edges = 0;
    for (int hop = 0; hop < recipe->num_hops; hop++) {
        double draws = expanded * mean_drawn(manifest, recipe->fanout[hop], recipe->replace);
        double fresh = (all - met) * -expm1(-draws / all);
        edges += expanded + 1 + draws;
        met += fresh;
        expanded = recipe->form == PLIM_PYG ? fresh : met;
    }
    return (plim__load_size_t){.nodes = whole(met * trees), .edges = whole(edges * trees)};
}

/* The value at `seeds` of the power law through two points. */
static double by_power(const plim__probe_size_t *from, const plim__probe_size_t *to,
                       int64_t from_value, int64_t to_value, int64_t seeds)
{
    double power =
        log((double)to_value / (double)from_value) / log((double)to->seeds / (double)from->seeds);
    return (double)to_value * pow((double)seeds / (double)to->seeds, fmin(fmax(power, 0), 1));
}

plim__load_size_t plim__load_size_probed(const plim__probe_t *probe, int64_t num_seeds)
{
    int last = 1;
    while (last + 1 < probe->count && probe->sizes[last].seeds < num_seeds)
        last++;
    const plim__probe_size_t *from = &probe->sizes[last - 1], *to = &probe->sizes[last];
    return (plim__load_size_t){
        .nodes = whole(by_power(from, to, from->nodes, to->nodes, num_seeds)),
        .edges = whole(by_power(from, to, from->edges, to->edges, num_seeds))};
}

/* The file name of a probe or a reach: the dataset's fingerprint and what of the recipe decides
 * the draws. */
static void name_draws(const char *kind, const plim_dataset_info_t *info,
                       const plim_recipe_t *recipe, char name_out[NAME_TEXT])
{
    int used = snprintf(name_out, NAME_TEXT, "%s-%d-%s-%d%s%s", kind, VERSION, info->fingerprint,
                        (int)recipe->form, recipe->replace ? "r" : "", recipe->disjoint ? "d" : "");
    for (int i = 0; i < recipe->num_hops && used < NAME_TEXT; i++)
        used += snprintf(name_out + used, (size_t)(NAME_TEXT - used), "-%lld",
                         (long long)recipe->fanout[i]);
    if (used >= NAME_TEXT)
        name_out[0] = '\0'; /* too long a name: it is not kept */
}

/* Parses the next number of *text, which must be within bounds, and moves behind it. */
static bool take_number(const char **text, int64_t minimum, int64_t most, int64_t *value_out)
{
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(*text, &end, 10);
    if (errno != 0 || end == *text || value < minimum || value > most)
        return false;
    *text = end;
    *value_out = value;
    return true;
}

static bool parse_sizes(const plim_dataset_info_t *info, const plim_recipe_t *recipe,
                        const char *text, plim__probe_t *probe_out)
{
    plim__probe_t probe = {0};
    int64_t count, minimum = 1;
    if (!take_number(&text, 0, PLIM__PROBE_SIZES, &count))
        return false;
    for (; probe.count < count; probe.count++) {
        plim__probe_size_t *size = &probe.sizes[probe.count];
        if (!take_number(&text, minimum, info->num_nodes, &size->seeds))
            return false;
        const int64_t most =
            plim__mul_saturating_i64(info->num_nodes, recipe->disjoint ? size->seeds : 1);
        if (!take_number(&text, size->seeds, most, &size->nodes) ||
            !take_number(&text, 1, INT64_MAX / 4, &size->edges))
            return false;
        minimum = size->seeds + 1;
    }
    *probe_out = probe;
    return true;
}

static void keep_sizes(const plim_dataset_t *dataset, const char *name, const plim__probe_t *probe)
{
    char text[PLIM__CACHE_TEXT];
    int used = snprintf(text, sizeof text, "%d\n", probe->count);
    for (int i = 0; i < probe->count; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%lld %lld %lld\n",
                         (long long)probe->sizes[i].seeds, (long long)probe->sizes[i].nodes,
                         (long long)probe->sizes[i].edges);
    plim__cache_write(name, text);
    if (!plim__cache_read(name, text)) /* the directory cannot be written */
        plim__dataset_note(dataset, name, text);
}

plim_status_t plim__statistics_probe(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim_recipe_t *recipe, bool reads,
                                     plim__probe_t *probe_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    char name[NAME_TEXT], text[PLIM__CACHE_TEXT];
    plim__probe_t probe = {0};
    *probe_out = probe;
    if (plim__dataset_is_shape(dataset))
        return PLIM_OK;
    name_draws("probe", info, recipe, name);
    if (name[0] != '\0' &&
        (plim__cache_read(name, text) || plim__dataset_noted(dataset, name, text)) &&
        parse_sizes(info, recipe, text, probe_out))
        return PLIM_OK;
    if (!reads)
        return PLIM_OK;
    const plim_status_t status = plim__probe_run(job, dataset, recipe, &probe);
    if (status == PLIM_ERR_BUDGET)
        return PLIM_OK;
    if (status != PLIM_OK)
        return status;
    if (name[0] != '\0')
        keep_sizes(dataset, name, &probe);
    *probe_out = probe;
    return PLIM_OK;
}

static bool parse_reach(const plim_dataset_info_t *info, const char *text, plim__reach_t *reach_out)
{
    plim__reach_t reach = {0};
    int64_t bins, kind, number;
    if (!take_number(&text, 1, info->num_nodes, &reach.seeds) ||
        !take_number(&text, 0, (int64_t)PLIM__REACH_KINDS * PLIM__REACH_BINS, &bins))
        return false;
    for (; bins > 0; bins--) {
        if (!take_number(&text, 0, PLIM__REACH_KINDS - 1, &kind) ||
            !take_number(&text, 0, PLIM__REACH_BINS - 1, &number))
            return false;
        plim__reach_bin_t *bin = &reach.bins[kind][number];
        if (!take_number(&text, 1, info->num_nodes, &bin->nodes) ||
            !take_number(&text, 0, INT64_MAX / 4, &bin->bytes) ||
            !take_number(&text, 0, plim__mul_saturating_i64(bin->nodes, (int64_t)1 << 28),
                         &bin->needs))
            return false;
    }
    *reach_out = reach;
    return true;
}

static void keep_reach(const char *name, const plim__reach_t *reach)
{
    char text[PLIM__CACHE_TEXT];
    const plim__reach_bin_t *bins = reach->bins[0];
    const int all = PLIM__REACH_KINDS * PLIM__REACH_BINS;
    int count = 0;
    for (int i = 0; i < all; i++)
        count += bins[i].nodes > 0;
    int used = snprintf(text, sizeof text, "%lld %d\n", (long long)reach->seeds, count);
    for (int i = 0; i < all && used < (int)sizeof text; i++)
        if (bins[i].nodes > 0)
            used += snprintf(text + used, sizeof text - (size_t)used, "%d %d %lld %lld %lld\n",
                             i / PLIM__REACH_BINS, i % PLIM__REACH_BINS, (long long)bins[i].nodes,
                             (long long)bins[i].bytes, (long long)bins[i].needs);
    if (used < (int)sizeof text)
        plim__cache_write(name, text);
}

static plim_status_t find_reach(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim_recipe_t *recipe, int64_t together, bool reads,
                                plim__reach_t *reach_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    char kind[32], name[NAME_TEXT], text[PLIM__CACHE_TEXT];
    (void)snprintf(kind, sizeof kind, "reach-%lld", (long long)together);
    name_draws(kind, info, recipe, name);
    if (name[0] != '\0' && plim__cache_read(name, text) && parse_reach(info, text, reach_out))
        return PLIM_OK;
    if (!reads)
        return PLIM_OK;
    const plim_status_t status = plim__probe_reach(job, dataset, recipe, together, reach_out);
    if (status == PLIM_ERR_BUDGET)
        return PLIM_OK;
    if (status == PLIM_OK && name[0] != '\0')
        keep_reach(name, reach_out);
    return status;
}

/* Fixed-point hazards are exact enough down to batches of this part of the seeds. */
#define SMALLEST_PART 1024

plim_status_t plim__statistics_reach(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim_recipe_t *recipe, bool reads,
                                     plim__reaches_t *reaches_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const int64_t all = info->num_split[PLIM_TRAIN];
    plim__reaches_t reaches = {0};
    *reaches_out = reaches;
    if (plim__dataset_is_shape(dataset) || info->num_graphs > 0 || all == 0)
        return PLIM_OK;
    const int64_t batch =
        plim__min_i64(plim__max_i64(recipe->batch_size, all / SMALLEST_PART), all);
    PLIM_TRY(find_reach(job, dataset, recipe, batch, reads, &reaches.batch));
    PLIM_TRY(find_reach(job, dataset, recipe, all, reads, &reaches.epoch));
    if (reaches.batch.seeds > 0 && reaches.epoch.seeds > 0)
        *reaches_out = reaches;
    return PLIM_OK;
}

plim_status_t plim__statistics_loops(const plim_job_t *job, const plim_dataset_t *dataset,
                                     bool reads)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    char name[NAME_TEXT], text[PLIM__CACHE_TEXT];
    const char *at = text;
    int64_t most;
    plim__offsets_t *offsets;
    if (plim__dataset_max_self_loops(dataset) >= 0)
        return PLIM_OK;
    (void)snprintf(name, sizeof name, "loops-%d-%s", VERSION, info->fingerprint);
    if (plim__cache_read(name, text) && take_number(&at, 0, info->max_degree, &most)) {
        plim__dataset_note_self_loops(dataset, most);
        return PLIM_OK;
    }
    if (!reads)
        return PLIM_OK;
    const plim_status_t status = plim__offsets_create(job, dataset, true, &offsets);
    if (status == PLIM_ERR_BUDGET)
        return PLIM_OK;
    PLIM_TRY(status);
    plim__offsets_destroy(offsets);
    (void)snprintf(text, sizeof text, "%lld\n", (long long)plim__dataset_max_self_loops(dataset));
    plim__cache_write(name, text);
    return PLIM_OK;
}

plim_status_t plim__statistics_largest(const plim_job_t *job, const plim_dataset_t *dataset,
                                       bool reads, int64_t *nodes_out, int64_t *edges_out,
                                       bool *guessed_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    char name[NAME_TEXT], text[PLIM__CACHE_TEXT];
    const char *at = text;
    const int64_t graphs = plim__max_i64(info->num_graphs, 1);
    *guessed_out = false;
    (void)snprintf(name, sizeof name, "largest-%d-%s", VERSION, info->fingerprint);
    if (plim__cache_read(name, text) &&
        take_number(&at, info->num_nodes / graphs, info->num_nodes, nodes_out) &&
        take_number(&at, info->num_edges / graphs, info->num_edges, edges_out))
        return PLIM_OK;
    if (!reads) {
        *guessed_out = true;
        *nodes_out = plim__min_i64(info->num_nodes / graphs * UNKNOWN_TIMES + 1, info->num_nodes);
        *edges_out = plim__min_i64(info->num_edges / graphs * UNKNOWN_TIMES + 1, info->num_edges);
        return PLIM_OK;
    }
    PLIM_TRY(plim__largest_graph(job, dataset, nodes_out, edges_out));
    (void)snprintf(text, sizeof text, "%lld %lld\n", (long long)*nodes_out, (long long)*edges_out);
    plim__cache_write(name, text);
    return PLIM_OK;
}

/* Measured where the probe allows it, else expected. */
static plim__load_size_t size_of(const plim__manifest_t *manifest, const plim__probe_t *probe,
                                 const plim_recipe_t *recipe, int64_t seeds)
{
    return probe->count >= 2 ? plim__load_size_probed(probe, seeds)
                             : plim__load_size_expected(manifest, recipe, seeds);
}

PLIM_API plim_status_t plim_batch_sizes(const plim_job_t *job, const plim_dataset_t *dataset,
                                        const plim_training_t *training, int count,
                                        plim_batch_size_t *sizes)
{
    plim_training_t settings = PLIM_TRAINING_INIT;
    plim__probe_t probe = {0}, before_probe = {0};
    PLIM_ENTER(job);
    PLIM_TRY(plim__plan_settings_take(job, dataset, training, &settings));
    PLIM_TRY(plim__plan_settings_check(dataset, &settings));
    const plim__manifest_t *manifest = plim__dataset_manifest(dataset);
    plim_recipe_t *recipe = &settings.recipe;
    recipe->disjoint = settings.temporal != PLIM_TEMPORAL_NONE;
    const int hops = recipe->num_hops;
    plim_recipe_t shorter = *recipe;
    shorter.num_hops = hops - 1;
    if (hops > 0)
        PLIM_TRY(plim__statistics_probe(job, dataset, recipe, true, &probe));
    if (hops > 1 && probe.count > 0)
        PLIM_TRY(plim__statistics_probe(job, dataset, &shorter, true, &before_probe));
    if (probe.count < 2)
        before_probe.count = 0;
    for (int i = 0; i < count; i++) {
        plim_batch_size_t *size = &sizes[i];
        const plim__load_size_t all = size_of(manifest, &probe, recipe, size->seeds);
        plim__load_size_t before = {.nodes = size->seeds};
        if (hops > 1)
            before = size_of(manifest, &before_probe, &shorter, size->seeds);
        size->nodes =
            recipe->disjoint ? all.nodes : plim__min_i64(all.nodes, manifest->info.num_nodes);
        /* Places of offsets count as edges there: one for each node that drew, and one a hop. */
        size->edges = hops > 0 ? plim__max_i64(all.edges - before.nodes - hops, 0) : 0;
    }
    return PLIM_OK;
}
