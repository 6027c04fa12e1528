/*
 * Plain .npy files in a directory, or one or two directories down (IGB's and MAG240M's processed/):
 *
 *     edge_index.npy [2, E] or [E, 2], or indptr.npy and indices.npy (CSC)
 *     node_feat.npy, features.npy, x.npy           node_label*.npy, labels.npy, y.npy
 *     train, valid or val, test .npy: ids or a mask; also with _idx or _mask
 *
 * Headers are read first, so that the number of nodes is known before the edges are read.
 */
#include "ingest/import.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "ingest/import_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The files of the layout; an empty path is missing. */
typedef struct found {
    char edges[PATH_MAX];
    char indptr[PATH_MAX];
    char indices[PATH_MAX];
    char features[PATH_MAX];
    char labels[PATH_MAX];
    char splits[3][PATH_MAX];
} found_t;

static const char *const edge_names[] = {"edge_index.npy", NULL};
static const char *const indptr_names[] = {"indptr.npy", NULL};
static const char *const indices_names[] = {"indices.npy", NULL};
static const char *const feature_names[] = {"node_feat.npy", "node-feat.npy", "features.npy",
                                            "feat.npy",      "x.npy",         NULL};
static const char *const label_names[] = {"node_label.npy",
                                          "node-label.npy",
                                          "node_label*.npy",
                                          "labels.npy",
                                          "label.npy",
                                          "y.npy",
                                          NULL};
static const char *const split_names[3][8] = {
    {"train.npy", "train_idx.npy", "train_mask.npy", NULL},
    {"valid.npy", "val.npy", "valid_idx.npy", "val_idx.npy", "valid_mask.npy", "val_mask.npy",
     NULL},
    {"test.npy", "test_idx.npy", "test_mask.npy", NULL},
};

static plim_status_t find_all(const char *root, found_t *found)
{
    PLIM_TRY(plim__files_find(root, edge_names, found->edges));
    PLIM_TRY(plim__files_find(root, indptr_names, found->indptr));
    PLIM_TRY(plim__files_find(root, indices_names, found->indices));
    PLIM_TRY(plim__files_find(root, feature_names, found->features));
    PLIM_TRY(plim__files_find(root, label_names, found->labels));
    for (int i = 0; i < 3; i++)
        PLIM_TRY(plim__files_find(root, split_names[i], found->splits[i]));
    return PLIM_OK;
}

static plim_status_t check_edges(const char *root, const found_t *found)
{
    bool csc = found->indptr[0] != '\0' && found->indices[0] != '\0';
    if (csc && found->edges[0] != '\0')
        return plim__fail(PLIM_ERR_DATA,
                          "%s and %s both have edges; keep edge_index.npy, or indptr.npy and "
                          "indices.npy",
                          found->edges, found->indices);
    if (!csc && found->edges[0] == '\0')
        return plim__fail(PLIM_ERR_DATA,
                          "%s has neither edge_index.npy nor both indptr.npy and indices.npy",
                          root);
    return PLIM_OK;
}

/* Sets the number of nodes by the first dimension of the array. */
static plim_status_t state_nodes(plim__import_t *import, const char *path, int64_t less,
                                 plim__npy_t *npy_out)
{
    PLIM_TRY(plim__files_header(import, path, npy_out));
    if (npy_out->num_dims < 1 || npy_out->shape[0] < less)
        return plim__fail(PLIM_ERR_DATA,
                          "%s has %d dimensions, the first of which is too short for a graph", path,
                          npy_out->num_dims);
    return plim__import_agree(&import->nodes, "nodes", npy_out->shape[0] - less, path);
}

static plim_status_t plan(plim__import_t *import, const found_t *found)
{
    plim__npy_t npy;
    plim__import_needs_t needs = {.other_bytes = 0};
    if (found->features[0] != '\0') {
        PLIM_TRY(state_nodes(import, found->features, 0, &npy));
        needs.feature_bytes = plim__import_feature_bytes(import, &npy);
    }
    if (found->labels[0] != '\0') {
        PLIM_TRY(state_nodes(import, found->labels, 0, &npy));
        needs.label_rows = npy.count;
    }
    if (found->indptr[0] != '\0' && found->edges[0] == '\0')
        PLIM_TRY(state_nodes(import, found->indptr, 1, &npy));
    PLIM_TRY(
        plim__files_header(import, found->edges[0] != '\0' ? found->edges : found->indices, &npy));
    needs.num_edges = found->edges[0] != '\0' ? npy.count / 2 : npy.count;
    needs.num_nodes = import->nodes.value;
    needs.edges_wait = needs.num_nodes < 0;
    needs.edges_first = needs.num_nodes >= 0;
    for (int i = 0; i < 3; i++)
        if (found->splits[i][0] != '\0')
            needs.other_bytes += plim__files_size(found->splits[i]);
    import->nodes_ready = import->nodes.value >= 0;
    return plim__import_plan(import, &needs);
}

static plim_status_t read_csc(plim__import_t *import, const found_t *found)
{
    plim__stream_t *indptr, *indices;
    plim__npy_t indptr_npy, indices_npy;
    plim__ids_npy_t offsets, sources;
    plim__edges_csc_t edges;
    PLIM_TRY(plim__files_array(import, found->indptr, &indptr, &indptr_npy));
    plim_status_t status = plim__files_array(import, found->indices, &indices, &indices_npy);
    if (status != PLIM_OK)
        goto close_indptr;
    if (indptr_npy.num_dims != 1 || indices_npy.num_dims != 1)
        status = plim__fail(PLIM_ERR_DATA, "%s and %s must have one dimension", found->indptr,
                            found->indices);
    if (status == PLIM_OK)
        status = plim__ids_npy_open(&offsets, indptr, indptr_npy.type, indptr_npy.count);
    if (status == PLIM_OK)
        status = plim__ids_npy_open(&sources, indices, indices_npy.type, indices_npy.count);
    if (status == PLIM_OK) {
        plim__edges_csc_open(&edges, &offsets.ids, &sources.ids, indices_npy.count);
        status = plim__import_edges(import, &edges.edges, indices_npy.count);
    }
    plim__stream_close(indices);
close_indptr:
    plim__stream_close(indptr);
    return status;
}

static plim_status_t run(plim__import_t *import)
{
    found_t found = {.edges = ""};
    const char *root = import->options->source;
    PLIM_TRY(find_all(root, &found));
    PLIM_TRY(check_edges(root, &found));
    plim__files_leave_out(import, root,
                          (const char *const[]){found.edges, found.indptr, found.indices,
                                                found.features, found.labels, found.splits[0],
                                                found.splits[1], found.splits[2], NULL});
    PLIM_TRY(plan(import, &found));
    if (found.edges[0] != '\0')
        PLIM_TRY(plim__files_edges(import, found.edges));
    else
        PLIM_TRY(read_csc(import, &found));
    if (found.features[0] != '\0')
        PLIM_TRY(plim__files_features(import, found.features));
    if (found.labels[0] != '\0')
        PLIM_TRY(plim__files_labels(import, found.labels, false));
    for (int i = 0; i < 3; i++)
        if (found.splits[i][0] != '\0')
            PLIM_TRY(plim__files_split(import, i, found.splits[i]));
    return PLIM_OK;
}

static bool recognise(const char *path)
{
    return plim__files_has(path, edge_names) ||
           (plim__files_has(path, indptr_names) && plim__files_has(path, indices_names));
}

const plim__importer_t plim__importer_npy = {".npy files", recognise, run};
