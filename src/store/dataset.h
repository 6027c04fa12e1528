/* An open dataset, for the layers that read its files. */
#ifndef PLIM_STORE_DATASET_H
#define PLIM_STORE_DATASET_H

#include "io/file.h"
#include "store/manifest.h"

static inline size_t plim__index_bytes(plim_dtype_t type)
{
    return type == PLIM_I32 ? sizeof(int32_t) : sizeof(int64_t);
}

static inline size_t plim__feature_bytes(plim_dtype_t type)
{
    return type == PLIM_F16 ? 2 : type == PLIM_I64 ? 8 : 4;
}

/* PLIM_ERR_USAGE in a forked child. */
plim_status_t plim__dataset_check(const plim_dataset_t *dataset);

const plim__manifest_t *plim__dataset_manifest(const plim_dataset_t *dataset);

/* The most edges of one node to itself: as dataset.json counts, else as noted by whoever counted
 * them; -1: not known. Any thread. */
int64_t plim__dataset_max_self_loops(const plim_dataset_t *dataset);
void plim__dataset_note_self_loops(const plim_dataset_t *dataset, int64_t most);

/* The dataset's info with what was noted. */
plim_dataset_info_t plim__dataset_known(const plim_dataset_t *dataset);

/*
 * Keeps a short text that was measured of the dataset, while it is open: the last one, by its name.
 * For statistics where the user's cache cannot be written. Any thread.
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
