/* Finds files in a directory by their names, and imports .npy files, which can be read from any
 * offset. */
#ifndef PLIM_INGEST_IMPORT_FILES_H
#define PLIM_INGEST_IMPORT_FILES_H

#include "ingest/import.h"

typedef enum plim__files_kind {
    PLIM__FILES_ARRAY,   /* stem.npy, and */
    PLIM__FILES_ARCHIVE, /* stem.npz, at most two directories down */
    PLIM__FILES_TEXT /* stem.csv, .tsv, .txt …, plain or compressed, in the directory itself */
} plim__files_kind_t;

/*
 * Finds the file of the first of `stems` (NULL-terminated) that has one; "" when there is none. A
 * stem may have one '*', which matches anything: the first match by name counts.
 * PLIM_ERR_UNSUPPORTED for two arrays of the same name, which are parts of a graph of several
 * types; PLIM_ERR_DATA for two texts.
 */
plim_status_t plim__files_find(const char *root, plim__files_kind_t kind, const char *const *stems,
                               char path_out[PATH_MAX]);

/* Whether such a file exists. */
bool plim__files_has(const char *root, plim__files_kind_t kind, const char *const *stems);

/* The parts of a graph that every source of arrays may have. */
typedef enum plim__part {
    PLIM__PART_EDGES,
    PLIM__PART_FEATURES,
    PLIM__PART_LABELS,
    PLIM__PART_TRAIN,
    PLIM__PART_VALID,
    PLIM__PART_TEST,
    PLIM__PARTS
} plim__part_t;

/* The stems of a part's files, the first that exists counts; NULL-terminated. */
typedef struct plim__part_stems {
    const char *const *arrays;
    const char *const *texts;
} plim__part_stems_t;

extern const plim__part_stems_t plim__part_stems[PLIM__PARTS];

/* Finds the array of a part, or else its text. */
plim_status_t plim__files_find_part(const char *root, plim__part_t part, char path_out[PATH_MAX]);

/* The part of an array or, if not `array`, of a text by its stem; PLIM__PARTS for others. */
plim__part_t plim__files_part_of(const char *stem, size_t length, bool array);

/* Whether a file's name is that of a text, and the length of its stem. */
bool plim__files_is_text(const char *name, size_t *stem_out);

/* Records the .npy, .npz, .csv and .tsv files under `root` that are not in `used` (NULL-terminated
 * paths) as not imported. */
void plim__files_leave_out(plim__import_t *import, const char *root, const char *const *used);

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

#endif
