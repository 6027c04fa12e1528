/* Finds .npy files in a directory and imports them by path; they can be read from any offset. */
#ifndef PLIM_INGEST_IMPORT_FILES_H
#define PLIM_INGEST_IMPORT_FILES_H

#include "ingest/import.h"

/*
 * Finds a file under `root`, at most two directories deep, by the first of `names` that matches
 * (NULL-terminated; one '*' matches anything, and the first match by name counts); "" when there is
 * none. PLIM_ERR_UNSUPPORTED for two files of the same name: parts of a graph of several types.
 */
plim_status_t plim__files_find(const char *root, const char *const *names, char path_out[PATH_MAX]);

/*
 * Finds a text in `root` itself by the first of `stems` (NULL-terminated) that has one: stem.csv,
 * .tsv, .txt …, plain or compressed (.gz, .zst); "" when there is none. PLIM_ERR_DATA for two.
 */
plim_status_t plim__files_find_text(const char *root, const char *const *stems,
                                    char path_out[PATH_MAX]);

/* Whether a file's name is that of a text, and the length of its stem. */
bool plim__files_is_text(const char *name, size_t *stem_out);

/* Records the .npy, .npz, .csv and .tsv files under `root` that are not in `used` (NULL-terminated
 * paths) as not imported. */
void plim__files_leave_out(plim__import_t *import, const char *root, const char *const *used);

/* Whether such a file exists. */
bool plim__files_has(const char *root, const char *const *names);

/* Bytes of a file, 0 on error. */
int64_t plim__files_size(const char *path);

/* The header of an array, or also the reader at its data. */
plim_status_t plim__files_header(plim__import_t *import, const char *path, plim__npy_t *npy_out);
plim_status_t plim__files_array(plim__import_t *import, const char *path,
                                plim__reader_t **reader_out, plim__npy_t *npy_out);

/* As plim__import_edges_npy, but reads sources and destinations from two offsets at once. */
plim_status_t plim__files_edges(plim__import_t *import, const char *path);

plim_status_t plim__files_features(plim__import_t *import, const char *path);
plim_status_t plim__files_labels(plim__import_t *import, const char *path, bool graphs);
plim_status_t plim__files_split(plim__import_t *import, int split, const char *path);

/* Finds the files of columns, in `root` as arrays or texts; "" where there is none. The last one is
 * `time`. PLIM_ERR_DATA for two of one column. */
#define PLIM__FILES_COLUMNS (PLIM_COLUMNS + 1)
plim_status_t plim__files_find_columns(const char *root,
                                       char paths_out[PLIM__FILES_COLUMNS][PATH_MAX]);

/* Takes the columns; the numbers of nodes and edges are known as far as arrays have them. */
plim_status_t plim__files_columns(plim__import_t *import,
                                  char paths[PLIM__FILES_COLUMNS][PATH_MAX]);

/* The text of the names of types of edges in a directory; reads it unless its path is "". */
extern const char *const plim__files_type_name_stems[];
plim_status_t plim__files_type_names(plim__import_t *import, const char *path);

/* Opens a text, which may be compressed. */
plim_status_t plim__files_text(plim__import_t *import, const char *path, plim__text_t **text_out);

#endif
