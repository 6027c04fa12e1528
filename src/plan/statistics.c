#include "plan/statistics.h"

#include "base/check.h"
#include "base/fail.h"
#include "io/cache_file.h"
#include "load/largest_graph.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1 /* of what is kept, and of how it is found */
#define NAME_TEXT 128
#define UNKNOWN_TIMES 8

/* What decides a trial's result, as a name: the fingerprint, and how is drawn. */
static void name_trial(const plim_dataset_info_t *info, const plim_recipe_t *recipe,
                       char name_out[NAME_TEXT])
{
    int used = snprintf(name_out, NAME_TEXT, "trial-%d-%s-%d%s", VERSION, info->fingerprint,
                        (int)recipe->form, recipe->replace ? "r" : "");
    for (int i = 0; i < recipe->num_hops && used < NAME_TEXT; i++)
        used += snprintf(name_out + used, (size_t)(NAME_TEXT - used), "-%lld",
                         (long long)recipe->fanout[i]);
    if (used >= NAME_TEXT)
        name_out[0] = '\0'; /* fan-outs of so many digits are not kept */
}

/* The next number of a text, within bounds. */
static bool take_number(const char **text, int64_t least, int64_t most, int64_t *value_out)
{
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(*text, &end, 10);
    if (errno != 0 || end == *text || value < least || value > most)
        return false;
    *text = end;
    *value_out = value;
    return true;
}

static bool parse_sizes(const plim_dataset_info_t *info, const char *text, plim__probe_t *trial_out)
{
    plim__probe_t trial = {0};
    int64_t count, least = 1;
    if (!take_number(&text, 0, PLIM__PROBE_SIZES, &count))
        return false;
    for (; trial.count < count; trial.count++) {
        plim__probe_size_t *size = &trial.sizes[trial.count];
        if (!take_number(&text, least, info->num_nodes, &size->seeds) ||
            !take_number(&text, size->seeds, info->num_nodes, &size->nodes) ||
            !take_number(&text, 1, INT64_MAX / 4, &size->edges))
            return false;
        least = size->seeds + 1;
    }
    *trial_out = trial;
    return true;
}

static void keep_sizes(const char *name, const plim__probe_t *trial)
{
    char text[PLIM__CACHE_TEXT];
    int used = snprintf(text, sizeof text, "%d\n", trial->count);
    for (int i = 0; i < trial->count; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%lld %lld %lld\n",
                         (long long)trial->sizes[i].seeds, (long long)trial->sizes[i].nodes,
                         (long long)trial->sizes[i].edges);
    plim__cache_write(name, text);
}

plim_status_t plim__statistics_probe(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim_recipe_t *recipe, bool reads,
                                     plim__probe_t *trial_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    char name[NAME_TEXT], text[PLIM__CACHE_TEXT];
    plim__probe_t trial = {0};
    *trial_out = trial;
    if (plim__dataset_is_shape(dataset))
        return PLIM_OK;
    name_trial(info, recipe, name);
    if (name[0] != '\0' && plim__cache_read(name, text) && parse_sizes(info, text, trial_out))
        return PLIM_OK;
    if (!reads)
        return PLIM_OK;
    const plim_status_t status = plim__probe_run(job, dataset, recipe, &trial);
    if (status == PLIM_ERR_BUDGET)
        return PLIM_OK;
    if (status != PLIM_OK)
        return status;
    if (name[0] != '\0')
        keep_sizes(name, &trial);
    *trial_out = trial;
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
