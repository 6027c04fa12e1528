/*
 * dataset.json in memory: its contents, their checks, parsing and rendering. docs/format.md
 * describes the format.
 */
#ifndef PLIM_STORE_MANIFEST_H
#define PLIM_STORE_MANIFEST_H

#include "io/npy.h"
#include "io/writer.h"
#include "mem/arena.h"

#include <plimsoll/dataset.h>

#define PLIM__FORMAT 6 /* version to write, and newest version to read */
#define PLIM__MANIFEST_NAME "dataset.json"
#define PLIM__MANIFEST_BYTES ((size_t)64 << 20) /* maximum size of dataset.json */
#define PLIM__FILES_MAX 32
#define PLIM__EDGE_TYPES_MAX ((int64_t)1 << 31)

/* Columns with the names of nodes, one after the other, and with the offset of each. */
#define PLIM__ID_TEXT "id_text"
#define PLIM__ID_OFFSETS "id_offsets"
#define PLIM__ID_TEXT_MAX 255 /* bytes of a name */

/* The same for the words that classes were imported as. */
#define PLIM__CLASS_TEXT "class_text"
#define PLIM__CLASS_OFFSETS "class_offsets"

/* The same for the names of edge types. */
#define PLIM__TYPE_TEXT "edge_type_text"
#define PLIM__TYPE_OFFSETS "edge_type_offsets"

/* One array. `name` is a file name, without any directory. */
typedef struct plim__manifest_file {
    char name[48];
    plim__dtype_t type;
    int num_dims;
    int64_t shape[PLIM__NPY_DIMS];
    int64_t bytes; /* of the file, its header included */
    int64_t num_checksums;
    const uint64_t *checksums; /* (num_checksums), one for PLIM__CHECKSUM_BYTES of the file each */
} plim__manifest_file_t;

#define PLIM__TOPOLOGIES_MAX 1
#define PLIM__TABLES_MAX 1

/* The names of columns without ".npy", in the order of plim_column_t's bits. */
extern const char *const plim__column_names[PLIM_COLUMNS];

/* The files of a topology: their numbers in the manifest. */
typedef struct plim__manifest_topology {
    int indptr;
    int indices;
} plim__manifest_topology_t;

typedef struct plim__manifest {
    plim_dataset_info_t info;
    int64_t degrees[PLIM_DEGREE_BUCKETS];
    int64_t reach;      /* of a shape: nodes that training nodes may draw; 0: all */
    const char *source; /* provenance */
    const char *options;
    const char *version;
    int num_files;
    plim__manifest_file_t files[PLIM__FILES_MAX]; /* ascending by name */
    /* The sources of the dataset; set by plim__manifest_resolve and plim__manifest_from_shape. */
    plim__manifest_topology_t topologies[PLIM__TOPOLOGIES_MAX];
    int num_tables;
    int tables[PLIM__TABLES_MAX]; /* numbers of the files of rows */
    int columns[PLIM_COLUMNS];    /* numbers of the files of columns that info.columns has */
} plim__manifest_t;

/* The file of this name ("indptr.npy"), or NULL. */
const plim__manifest_file_t *plim__manifest_find(const plim__manifest_t *manifest,
                                                 const char *name);

/* Whether a name is allowed in a manifest: [a-z0-9_]+.npy, so never a path. */
bool plim__manifest_name_valid(const char *name);

void plim__manifest_sort(plim__manifest_t *manifest);

/* Number of elements. False when it overflows or the shape is negative. */
bool plim__manifest_count(const plim__manifest_file_t *file, int64_t *count_out);

/*
 * Fills in the counts and types that follow from the files' types and shapes, and checks all rules
 * of the format that do not need the files' contents. num_nodes, num_graphs, num_classes,
 * max_degree, max_self_loops and feature_error must be set. PLIM_ERR_DATA, with `name` in the
 * message.
 */
plim_status_t plim__manifest_resolve(plim__manifest_t *manifest, const char *name);

/* The same for a dataset without files: sizes follow from types and shapes, and there are no
 * checksums. */
plim_status_t plim__manifest_from_shape(plim__manifest_t *manifest, const char *name);

/* Hash of every file's name, type, shape, size and checksums, in hexadecimal. */
void plim__manifest_fingerprint(const plim__manifest_t *manifest, char fingerprint_out[17]);

/*
 * Parses dataset.json. Unknown keys are ignored. PLIM_ERR_UNSUPPORTED for a file that needs a newer
 * reader, PLIM_ERR_DATA for other errors, with `name` in the message. The manifest is in a new
 * arena in the account "dataset"; jansson's memory is reserved in "json" while parsing. The seal is
 * not checked.
 */
plim_status_t plim__manifest_parse(const plim_job_t *job, const char *text, size_t size,
                                   const char *name, plim__arena_t *arena_out,
                                   plim__manifest_t **manifest_out);

/* PLIM_ERR_DATA when the text was changed after sealing. */
plim_status_t plim__manifest_check_seal(const char *text, size_t size, const char *name);

/*
 * Renders and seals dataset.json, at the start of a new arena in the account "dataset writer";
 * jansson's memory as above.
 */
plim_status_t plim__manifest_render(const plim_job_t *job, const plim__manifest_t *manifest,
                                    plim__arena_t *arena_out, const char **text_out,
                                    size_t *size_out);

/* The bucket of a degree: 0 for degree 0, else 1 + floor(log2(degree)). */
static inline int plim__degree_bucket(int64_t degree)
{
    return degree == 0 ? 0 : 64 - __builtin_clzll((unsigned long long)degree);
}

#endif
