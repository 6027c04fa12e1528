/* An open dataset, for the layers that read its files. */
#ifndef PLIM_STORE_DATASET_H
#define PLIM_STORE_DATASET_H

#include "io/file.h"
#include "store/manifest.h"

static inline size_t plim__index_bytes(plim_dtype_t type)
{
    return type == PLIM_I64 ? sizeof(int64_t) : sizeof(int32_t);
}

/* The type of indices.npy in new datasets. Caches hold complements, since 0 marks a lost page. */
static inline plim__dtype_t plim__index_written(int64_t num_nodes)
{
    return num_nodes <= INT32_MAX    ? PLIM__NPY_I32
           : num_nodes <= UINT32_MAX ? PLIM__NPY_U32
                                     : PLIM__NPY_I64;
}

/* Entry i of indices.npy. A negative int32, which is damage, becomes a number above all nodes. */
static inline int64_t plim__index_at(const void *entries, bool wide, int64_t i)
{
    return wide ? ((const int64_t *)entries)[i] : ((const uint32_t *)entries)[i];
}

/* The error for an entry that is not a node. */
plim_status_t plim__index_fail(const char *path, int64_t entry, int64_t value, int64_t num_nodes);

/* The signed type that holds the nodes' ids. */
static inline plim_dtype_t plim__id_type(const plim_dataset_info_t *info)
{
    return info->num_nodes <= INT32_MAX ? PLIM_I32 : PLIM_I64;
}

static inline size_t plim__feature_bytes(plim_dtype_t type)
{
    return type == PLIM_F16 ? 2 : type == PLIM_I64 ? 8 : 4;
}

/* PLIM_ERR_USAGE in a forked child. */
plim_status_t plim__dataset_check(const plim_dataset_t *dataset);

const plim__manifest_t *plim__dataset_manifest(const plim_dataset_t *dataset);

/* The most edges of one node to itself, from dataset.json or as noted by a caller that counted
 * them; -1: not known. Any thread. */
int64_t plim__dataset_max_self_loops(const plim_dataset_t *dataset);
void plim__dataset_note_self_loops(const plim_dataset_t *dataset, int64_t most);

/* The dataset's info, with self-loops as noted. */
plim_dataset_info_t plim__dataset_known(const plim_dataset_t *dataset);

/*
 * Keeps one short named text while the dataset is open; the next one replaces it. For statistics of
 * the dataset when the user's cache cannot be written. Any thread.
 */
#define PLIM__NOTE_BYTES 256
void plim__dataset_note(const plim_dataset_t *dataset, const char *name, const char *text);
bool plim__dataset_noted(const plim_dataset_t *dataset, const char *name,
                         char text_out[PLIM__NOTE_BYTES]);

/* The path of the directory, or the name of a shape. */
const char *plim__dataset_path(const plim_dataset_t *dataset);

/* The path of the dataset that this one is a copy of (plim_dataset_open_copy); else its own. */
const char *plim__dataset_origin(const plim_dataset_t *dataset);

/*
 * Makes a dataset without files from num_nodes, num_classes, max_degree, degrees and the files'
 * names, types and shapes in the manifest. Opening a file of it is PLIM_ERR_USAGE.
 */
plim_status_t plim__dataset_from_manifest(const plim_job_t *job, const char *name,
                                          const plim__manifest_t *manifest,
                                          plim_dataset_t **dataset_out);
bool plim__dataset_is_shape(const plim_dataset_t *dataset);

/*
 * Opens the file of a manifest entry for reading. Its data begins at PLIM__NPY_HEADER. The dataset
 * must outlive the file. PLIM_ERR_IO, PLIM_ERR_DATA when its size does not match dataset.json.
 */
plim_status_t plim__dataset_file_open(const plim_dataset_t *dataset,
                                      const plim__manifest_file_t *entry, bool direct,
                                      plim__file_t *file_out);

#endif
