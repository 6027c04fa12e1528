/*
 * Many graphs as ragged arrays:
 *
 *     node_ptr.npy, edge_ptr.npy   offsets, one more than there are graphs
 *     edge_index_local.npy [2, E]  ids from 0 in each graph
 *     graph_label.npy              integers are classes, floats are values
 *     node_feat_int.npy [N, C] or node_tag.npy [N]   categories, which become 0 and 1
 *     edge_attr.npy [E, F] or [E], edge_weight.npy, edge_type.npy, edge_time.npy, in the same order
 *     train_idx.npy, valid_idx.npy, test_idx.npy, or with _fold1
 */
#include "base/fail.h"
#include "base/job.h"
#include "ingest/import_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const node_ptr_stems[] = {"node_ptr", NULL};
static const char *const edge_ptr_stems[] = {"edge_ptr", NULL};
static const char *const edge_stems[] = {"edge_index_local", "edge_index", NULL};
static const char *const label_stems[] = {"graph_label", "graph_labels", NULL};
static const char *const category_stems[] = {"node_feat_int", "node_tag", NULL};
static const char *const feature_stems[] = {"node_feat", "features", NULL};
static const char *const split_stems[3][4] = {
    {"train_idx", "train_idx_fold1", "train", NULL},
    {"valid_idx", "valid_idx_fold1", "valid", NULL},
    {"test_idx", "test_idx_fold1", "test", NULL},
};

/* Converts offsets to counts, in a spool. */
static plim_status_t counts_from(plim__import_t *import, plim__ids_t *offsets,
                                 plim__id_spool_t *counts, int64_t *total_out)
{
    int64_t chunk[PLIM__ID_CHUNK], got, last = 0;
    PLIM_TRY(offsets->read(offsets, chunk, 1, &got));
    if (got == 0 || chunk[0] != 0)
        return plim__fail(PLIM_ERR_DATA, "%s: offsets must begin with 0", offsets->name);
    PLIM_TRY(plim__id_spool_create(counts, import->job, import->tmp, PLIM__PAGE, offsets->name));
    do {
        PLIM_TRY(offsets->read(offsets, chunk, PLIM__ID_CHUNK, &got));
        for (int64_t i = 0; i < got; i++) {
            int64_t offset = chunk[i];
            if (offset < last)
                return plim__fail(PLIM_ERR_DATA,
                                  "%s: element %" PRId64 " is %" PRId64
                                  ", less than the one before it; offsets must ascend",
                                  offsets->name, offsets->position - got + i, offset);
            chunk[i] = offset - last;
            last = offset;
        }
        PLIM_TRY(plim__id_spool_write(counts, chunk, got));
    } while (got > 0);
    *total_out = last;
    return PLIM_OK;
}

static plim_status_t read_offsets(plim__import_t *import, const char *path,
                                  plim__id_spool_t *counts, plim__agreed_t *agreed,
                                  const char *what)
{
    plim__reader_t *reader;
    plim__npy_t npy;
    plim__ids_npy_t ids;
    int64_t total = 0;
    PLIM_TRY(plim__files_array(import, path, &reader, &npy));
    plim_status_t status = plim__ids_npy_open(&ids, reader, npy.type, npy.count);
    if (status == PLIM_OK)
        status = counts_from(import, &ids.ids, counts, &total);
    plim__reader_close(reader);
    PLIM_TRY(status);
    PLIM_TRY(plim__import_agree(agreed, what, total, path));
    return plim__import_agree(&import->graphs, "graphs", counts->count, path);
}

/* The files of the layout; an empty path is missing. */
typedef struct ragged_files {
    char node_ptr[PATH_MAX];
    char edge_ptr[PATH_MAX];
    char edges[PATH_MAX];
    char categories[PATH_MAX];
    char features[PATH_MAX];
    char labels[PATH_MAX];
    char splits[3][PATH_MAX];
    char columns[PLIM__FILES_COLUMNS][PATH_MAX];
    char type_names[PATH_MAX];
} ragged_files_t;

static plim_status_t find_array(const char *root, const char *const *stems, char path_out[PATH_MAX])
{
    return plim__files_find(root, PLIM__FILES_ARRAY, stems, path_out);
}

static plim_status_t find_all(const char *root, ragged_files_t *found)
{
    PLIM_TRY(find_array(root, node_ptr_stems, found->node_ptr));
    PLIM_TRY(find_array(root, edge_ptr_stems, found->edge_ptr));
    PLIM_TRY(find_array(root, edge_stems, found->edges));
    PLIM_TRY(find_array(root, category_stems, found->categories));
    if (found->categories[0] == '\0')
        PLIM_TRY(find_array(root, feature_stems, found->features));
    PLIM_TRY(find_array(root, label_stems, found->labels));
    PLIM_TRY(plim__files_find_columns(root, found->columns));
    PLIM_TRY(
        plim__files_find(root, PLIM__FILES_TEXT, plim__files_type_name_stems, found->type_names));
    for (int i = 0; i < 3; i++)
        PLIM_TRY(find_array(root, split_stems[i], found->splits[i]));
    return PLIM_OK;
}

/* How many columns categories become is known only when they are read. */
static plim_status_t plan(plim__import_t *import, const ragged_files_t *found)
{
    plim__import_needs_t needs = {.num_nodes = import->nodes.value,
                                  .num_edges = import->edges.value,
                                  .label_rows = plim__files_size(found->labels) / 4,
                                  .other_bytes = 24 * import->graphs.value,
                                  .at_least = true,
                                  .edges_first = true};
    const bool kept = import->options->features == PLIM_I64;
    const char *features =
        kept && found->categories[0] != '\0' ? found->categories : found->features;
    plim__npy_t npy;
    if (features[0] != '\0') {
        PLIM_TRY(plim__files_header(import, features, &npy));
        needs.feature_bytes = plim__import_feature_bytes(import, &npy);
    }
    return plim__import_plan(import, &needs);
}

static plim_status_t read_splits(plim__import_t *import, const ragged_files_t *found)
{
    for (int i = 0; i < 3; i++) {
        if (found->splits[i][0] == '\0')
            continue;
        if (strstr(found->splits[i], "_fold1.npy") != NULL)
            plim__log(import->job, PLIM_LOG_INFO, "%s: using the split of fold 1",
                      found->splits[i]);
        PLIM_TRY(plim__files_split(import, i, found->splits[i]));
    }
    return PLIM_OK;
}

static plim_status_t run(plim__import_t *import)
{
    ragged_files_t found = {.edges = ""};
    const char *root = import->options->source;
    PLIM_TRY(find_all(root, &found));
    if (found.edges[0] == '\0')
        return plim__fail(PLIM_ERR_DATA, "%s has no edge_index_local.npy", root);
    const char *used[11 + PLIM__FILES_COLUMNS] = {
        found.node_ptr, found.edge_ptr,  found.edges,     found.categories, found.features,
        found.labels,   found.splits[0], found.splits[1], found.splits[2],  found.type_names};
    for (int i = 0; i < PLIM__FILES_COLUMNS; i++)
        used[10 + i] = found.columns[i];
    plim__files_leave_out(import, root, used);
    PLIM_TRY(read_offsets(import, found.node_ptr, &import->graph_nodes, &import->nodes, "nodes"));
    PLIM_TRY(read_offsets(import, found.edge_ptr, &import->graph_edges, &import->edges, "edges"));
    import->nodes_ready = true;
    PLIM_TRY(plim__files_columns(import, found.columns));
    PLIM_TRY(plan(import, &found));
    PLIM_TRY(plim__files_edges(import, found.edges));
    if (found.categories[0] != '\0')
        PLIM_TRY(import->options->features == PLIM_I64
                     ? plim__files_features(import, found.categories)
                     : plim__import_features_one_hot(import, found.categories));
    if (found.features[0] != '\0')
        PLIM_TRY(plim__files_features(import, found.features));
    if (found.labels[0] != '\0')
        PLIM_TRY(plim__files_labels(import, found.labels, true));
    PLIM_TRY(read_splits(import, &found));
    return plim__files_type_names(import, found.type_names);
}

static bool recognise(const char *path)
{
    return plim__files_has(path, PLIM__FILES_ARRAY, node_ptr_stems) &&
           plim__files_has(path, PLIM__FILES_ARRAY, edge_ptr_stems);
}

const plim__importer_t plim__importer_ragged = {"ragged graphs", recognise, run};
