/* Finding .npy files in a directory, and importing them by path: they can be read from anywhere. */
#ifndef PLIM_INGEST_IMPORT_FILES_H
#define PLIM_INGEST_IMPORT_FILES_H

#include "ingest/import.h"

/*
 * The file under `root`, at most two directories down, that has the first of `names` (NULL-ended;
 * '*' once stands for anything, of several the first by name is taken) which any has; "" when there
 * is none. Two of the same name are PLIM_ERR_UNSUPPORTED: parts of a graph of several types.
 */
plim_status_t plim__files_find(const char *root, const char *const *names, char path_out[PATH_MAX]);

/* Notes as left out the .npy and .npz files under `root` that are not in `used` (NULL-ended paths,
 * as they were found). */
void plim__files_leave_out(plim__import_t *import, const char *root, const char *const *used);

/* Whether there is any. */
bool plim__files_has(const char *root, const char *const *names);

/* Bytes of a file, 0 when it cannot be asked. */
int64_t plim__files_size(const char *path);

/* An array's header alone, or with the stream that stands behind it. */
plim_status_t plim__files_header(plim__import_t *import, const char *path, plim__npy_t *npy_out);
plim_status_t plim__files_array(plim__import_t *import, const char *path,
                                plim__stream_t **stream_out, plim__npy_t *npy_out);

/* As plim__import_edges_npy, but sources and destinations are read from two places at once. */
plim_status_t plim__files_edges(plim__import_t *import, const char *path);

plim_status_t plim__files_features(plim__import_t *import, const char *path);
plim_status_t plim__files_labels(plim__import_t *import, const char *path, bool graphs);
plim_status_t plim__files_split(plim__import_t *import, int split, const char *path);

#endif
