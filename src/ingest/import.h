/*
 * Shared by the importers: the context of an import, and functions that write edges, features,
 * labels and splits from any kind of source. An importer recognises its kind of source, plans with
 * the counts that it knows, and passes readers on in the order in which they come.
 *
 *     recognise → plan (refuse here) → edges, features, labels, splits in any order → finish
 */
#ifndef PLIM_INGEST_IMPORT_H
#define PLIM_INGEST_IMPORT_H

#include "ingest/class_names.h"
#include "ingest/edge_sort.h"
#include "ingest/edge_source.h"
#include "ingest/feature_convert.h"
#include "ingest/names.h"
#include "mem/arena.h"
#include "store/dataset_writer.h"

#include <limits.h>
#include <plimsoll/ingest.h>

/* A number that several files may state; they must agree. */
typedef struct plim__agreed {
    int64_t value; /* -1: unknown */
    char from[PLIM__READER_NAME];
} plim__agreed_t;

/* How the first column of a text of rows is read if it has ids. */
typedef enum plim__row_naming {
    PLIM__ROW_NAMING_NONE, /* they must be 0, 1, 2 …; there may be none */
    PLIM__ROW_NAMING_ADD,  /* as the names of nodes, whose order is that of the rows */
    PLIM__ROW_NAMING_SAME, /* as these names, which must be in the same order */
    PLIM__ROW_NAMING_KEYS  /* as names to look up */
} plim__row_naming_t;

/* A column of edges that waits for the edges, or the times of nodes. */
typedef struct plim__import_column {
    char from[PLIM__READER_NAME]; /* "": the source has none */
    char path[PATH_MAX];          /* of the array that is read in step with the edges, */
    int64_t header;               /* and the offset of its values; or: */
    plim__spool_t *spool;
    plim__reader_t *reader; /* of `path`, once it is read */
    plim__dtype_t type;     /* of the values in the source */
    bool whole;             /* doubles of a text that are integers */
    int num_dims;
    int64_t rows, width;
    int64_t at; /* rows read in step with the edges */
} plim__import_column_t;

typedef struct plim__import {
    const plim_job_t *job;
    const plim_import_options_t *options;
    plim__arena_t arena;
    char tmp[PATH_MAX];    /* directory of temporary files */
    char parent[PATH_MAX]; /* directory that will contain the target */
    const char *kind;      /* recognised kind of source, for messages and provenance */
    size_t start;          /* bytes on the ledger when the import began, */
    size_t other_bytes;    /* and bytes for everything but the build */
    size_t buffer;         /* bytes of a reader's or column's buffer, whole pages */
    int64_t block;         /* edges, ids or values handled at a time */
    plim__half_path_t path;
    plim__dataset_writer_t *writer; /* NULL until something is written */
    plim__agreed_t nodes;
    bool nodes_ready;      /* the number of nodes is known, and whether there is one graph */
    plim__agreed_t graphs; /* unknown for one graph */
    plim__agreed_t counts; /* entries in the lists of node and edge counts of each graph */
    plim__agreed_t edges;  /* as counted in the source */

    /* Edges that wait until the number of nodes is known, and counts of each graph. */
    plim__id_spool_t sources, destinations;
    plim__id_spool_t graph_nodes, graph_edges;

    /* A SciPy matrix: */
    plim__id_spool_t sparse[2]; /* indptr and indices, or rows and columns */
    bool sparse_pairs;          /* the latter */
    char sparse_format[4];      /* "csr", "csc", "coo"; "" when unknown */
    bool edges_done;
    bool edges_from_text;          /* the spooled edges are from a text, with */
    plim__text_lines_t edge_lines; /* their lines, for messages */
    bool tables;                   /* texts may have pandas' headings and index */

    plim__names_t names; /* of nodes, with --relabel and names; else zeroed */
    plim__row_naming_t row_naming;
    bool label_last;            /* the last column of texts of rows is the label, not a feature */
    bool row_numbers;           /* the first column numbers the rows, also without a heading */
    plim__name_keys_t row_keys; /* PLIM__ROW_NAMING_KEYS: the names of the rows */

    unsigned given; /* a set of plim_column_t: those that the source has */
    plim__import_column_t columns[PLIM_COLUMNS];
    bool columns_wait; /* the edges wait for the end: columns may come after them */
    int64_t num_edge_types;
    int64_t num_type_names;
    char type_names_from[PLIM__READER_NAME]; /* "" without names */
    int64_t headed_columns;                  /* fields of a text of edges that are columns */

    int64_t num_left_out; /* files and arrays that are not imported, */
    char left_out[384];   /* and the names of the first of them */

    int64_t archive_bytes; /* size of the current npz, -1 when unknown */
    plim__arena_t row;     /* a row of features to be divided by its sum */
    bool features_done;
    int64_t feature_rows; /* -1 without features */
    double feature_error;
    char features_from[PLIM__READER_NAME];
    bool labels_done;
    int64_t label_rows; /* -1 without labels */
    int64_t num_classes;
    plim__class_names_t class_names; /* of classes that are words */
    bool multi_label;
    char labels_from[PLIM__READER_NAME];
    struct {
        bool done;
        bool mask;       /* read from a mask */
        bool unordered;  /* ids do not ascend: one may occur twice */
        int64_t last;    /* the last id, -1 at first */
        int64_t most;    /* the maximum id, -1 when empty */
        int64_t most_at; /* and its position */
        char from[PLIM__READER_NAME];
    } splits[3];
} plim__import_t;

/* One kind of source: whether `path` is one, and the import of it. */
typedef struct plim__importer {
    const char *name;
    bool (*recognise)(const char *path);
    plim_status_t (*run)(plim__import_t *import);
} plim__importer_t;

extern const plim__importer_t plim__importer_files;
extern const plim__importer_t plim__importer_graphbolt;
extern const plim__importer_t plim__importer_npy;
extern const plim__importer_t plim__importer_npz;
extern const plim__importer_t plim__importer_ogb;
extern const plim__importer_t plim__importer_ragged;
extern const plim__importer_t plim__importer_text;

/* Creates the staging directory of the dataset, once. */
plim_status_t plim__import_begin(plim__import_t *import);

/* Records something that is not imported. All of it is logged once, at the end. */
void plim__import_leave_out(plim__import_t *import, const char *name);

/* Sets the number, or compares it. PLIM_ERR_DATA, naming both files, when they differ. */
plim_status_t plim__import_agree(plim__agreed_t *agreed, const char *what, int64_t value,
                                 const char *from);

/* A file as a reader. A compressed file is decompressed on a thread of its own. */
plim_status_t plim__import_open(plim__import_t *import, const char *path,
                                plim__reader_t **reader_out);

/* The same for a reader. Takes ownership of `inner`, also on failure. */
plim_status_t plim__import_inflate(plim__import_t *import, plim__reader_t *inner,
                                   plim__reader_t **reader_out);

/* A reader as text. Takes ownership of `inner`, also on failure. And a file, which may be
 * compressed. */
plim_status_t plim__import_text(plim__import_t *import, plim__reader_t *inner,
                                plim__text_t **text_out);
plim_status_t plim__import_text_open(plim__import_t *import, const char *path,
                                     plim__text_t **text_out);

/*
 * Skips the heading of a text with a row for each node and describes its first row. If the heading
 * names the first column as ids, or import->row_numbers or row_naming is set, these are read as
 * row_naming says, and not counted in line_out->columns. `wide`: as for plim__text_table.
 */
plim_status_t plim__import_rows_begin(plim__import_t *import, plim__text_t *text, bool wide,
                                      plim__text_line_t *line_out);

/*
 * With --relabel and names: reads the names of nodes from the first column of a text; writes the
 * names once they are complete, and sets the number of nodes; reads edges, labels and a split by
 * names. PLIM_ERR_DATA, with the line, for a name that no node has.
 */
plim_status_t plim__import_names_list(plim__import_t *import, const char *path);
plim_status_t plim__import_names_finish(plim__import_t *import);
plim_status_t plim__import_named_edges(plim__import_t *import, const char *path);
plim_status_t plim__import_named_labels(plim__import_t *import, const char *path);
plim_status_t plim__import_named_split(plim__import_t *import, int split, const char *path);

/* Reads a text of edges between names and numbers these by their first appearance. */
plim_status_t plim__import_named_text(plim__import_t *import, const char *path);

/* Whether the first edge of a text is between names instead of integers. */
plim_status_t plim__import_is_named(plim__import_t *import, const char *path, bool *named_out);

/* Sizes known before the dataset is written; 0 when unknown or already written. */
typedef struct plim__import_needs {
    int64_t num_nodes; /* -1 when unknown */
    int64_t num_edges;
    int64_t feature_bytes; /* bytes of features.npy */
    int64_t label_rows;
    int64_t other_bytes; /* splits, ids, graph offsets */
    const char *what;    /* part of the dataset, for messages; NULL: all */
    bool at_least;       /* the sizes are lower bounds */
    bool guessed;        /* the sizes are guesses */
    bool names_wait;     /* ends are names, to be sorted and translated first */
    bool edges_wait;     /* both ends are spooled before the build */
    bool sources_wait;   /* only the sources are spooled */
    bool edges_first;    /* the build is done before features are written */
} plim__import_needs_t;

/* Most bytes of the spill of the build. */
int64_t plim__import_csc_spill(const plim__import_t *import, int64_t num_nodes, int64_t num_edges);

/* PLIM_ERR_DATA when a graph of this size cannot be built in any memory. */
plim_status_t plim__import_check_size(const plim__import_t *import, int64_t num_nodes,
                                      int64_t num_edges);

/* The same, and PLIM_ERR_BUDGET, with the minimum, when the graph cannot be built in the memory
 * that was available when the import began. */
plim_status_t plim__import_check_memory(const plim__import_t *import, int64_t num_nodes,
                                        int64_t num_edges);

/* Likely number of edges in a text of `bytes` bytes. */
int64_t plim__import_guess_edges(int64_t bytes, bool compressed);

/* Logs the disk space that is needed and free. PLIM_ERR_SPACE when it is too little. Also checks
 * the memory of the build, as far as its size is known. */
plim_status_t plim__import_plan(plim__import_t *import, const plim__import_needs_t *needs);

/* Reads edges from a source, into the build when the number of nodes is known, else into a spool.
 * `count`: number of edges, -1 when unknown. */
plim_status_t plim__import_edges(plim__import_t *import, plim__edge_source_t *edges, int64_t count);

/* Spools the next `total` ids of a source. PLIM_ERR_DATA for a negative one: `what` names it in the
 * message, such as "source" of an edge; NULL: any id goes. */
plim_status_t plim__import_spool_ids(plim__import_t *import, plim__ids_t *ids, const char *what,
                                     int64_t total, plim__id_spool_t *spool);

/* Reads edges from the first two columns of a text. */
plim_status_t plim__import_edges_text(plim__import_t *import, plim__text_t *text, const char *name,
                                      int64_t count);

/* Reads edges from an array [2, E] or [E, 2] after its header. */
plim_status_t plim__import_edges_npy(plim__import_t *import, plim__reader_t *reader,
                                     const plim__npy_t *npy);

/* The column of a file's name such as edge_attr.npy or edge_year.csv.gz, or of a name without its
 * ending; 0 for others; PLIM__COLUMN_TIME: of nodes or of edges, as its length says. */
#define PLIM__COLUMN_TIME 128u
unsigned plim__import_column_of(const char *path);
unsigned plim__import_column_named(const char *name, size_t length);
/* Writes the names of the types of edges from a text, and checks them once the edges are there. */
plim_status_t plim__import_type_names(plim__import_t *import, plim__text_t *text, const char *name);
plim_status_t plim__import_type_names_check(plim__import_t *import);

/* The column of edges that a heading such as "weight", "year" or "feat0" means; 0 for others. */
unsigned plim__import_column_headed(const char *name, size_t length);
/* The i-th of these names, without ending; NULL after the last. */
const char *plim__import_column_name(int i, unsigned *column_out);

/* Takes a column: from an array in an archive, after its header; from a file, which is read
 * together with the edges; or from a text. */
plim_status_t plim__import_column_npy(plim__import_t *import, unsigned column,
                                      plim__reader_t *reader, const plim__npy_t *npy);
plim_status_t plim__import_column_file(plim__import_t *import, unsigned column, const char *path);
plim_status_t plim__import_column_text(plim__import_t *import, unsigned column, plim__text_t *text,
                                       const char *name);

/* Takes the columns of edges that the heading of a text of edges names: weight, type, time, feat…
 */
plim_status_t plim__import_headed_columns(plim__import_t *import, const char *path);

/* Takes a column of edges value by value: begin, put …, end. */
plim_status_t plim__import_column_begin(plim__import_t *import, unsigned column, const char *name);
plim_status_t plim__import_column_put(plim__import_t *import, unsigned column, const double *values,
                                      int64_t count);
plim_status_t plim__import_column_end(plim__import_t *import, unsigned column, int num_dims,
                                      int64_t rows, int64_t width);

/* Whether edges carry values, and the fields of those values. */
bool plim__import_has_columns(const plim__import_t *import);
int plim__import_fields(const plim__import_t *import, plim__edge_field_t fields_out[PLIM_COLUMNS]);

/* Bytes of the columns that are spooled. */
int64_t plim__import_spooled_columns(const plim__import_t *import);

/* Edges whose values of `values` bytes are converted at once, and the bytes of the work for them.
 */
int64_t plim__import_values_block(const plim__import_t *import, size_t values, size_t *bytes_out);

/*
 * Opens the columns. plim__import_values reads the values of `count` edges from edge `first` on
 * into `work`, where plim__import_values_of finds them.
 */
plim_status_t plim__import_columns_open(plim__import_t *import);
const char *plim__import_values_of(const plim__import_t *import, int64_t count, const char *work);
plim_status_t plim__import_values(plim__import_t *import, const plim__edge_field_t *fields,
                                  int num_fields, int64_t first, int64_t count, char *work);

/* Checks that the columns ended with the edges; and closes them, also after an error. */
plim_status_t plim__import_columns_end(plim__import_t *import);
void plim__import_columns_close(plim__import_t *import);

/* Builds from spooled edges, if there are any and the number of nodes is known. */
plim_status_t plim__import_build_edges(plim__import_t *import);

/* Reads features from an array [N, F] or [N] after its header. Transposes Fortran order in memory.
 */
plim_status_t plim__import_features_npy(plim__import_t *import, plim__reader_t *reader,
                                        const plim__npy_t *npy);

/* The same for a file in Fortran order, a slab of rows at a time. */
plim_status_t plim__import_features_slabs(plim__import_t *import, const char *path,
                                          const plim__npy_t *npy);

/* The type in which features of nodes or edges are stored that the source has as `source`. */
plim__dtype_t plim__import_stored_type(const plim__import_t *import, plim__dtype_t source);

/* Bytes of features.npy for such an array; saturates. */
int64_t plim__import_feature_bytes(const plim__import_t *import, const plim__npy_t *npy);

/* Categories [N, C] or [N], integers from 0, stored one-hot: each column becomes as many columns as
 * it has categories. Reads the file twice. */
plim_status_t plim__import_features_one_hot(plim__import_t *import, const char *path);

plim_status_t plim__import_features_text(plim__import_t *import, plim__text_t *text,
                                         const char *name);

/* A source of labels, row by row. */
typedef struct plim__label_source plim__label_source_t;
struct plim__label_source {
    /* Reads up to `capacity` (at least 2,048) values of whole rows; 0 at the end. NaN: unlabelled.
     */
    plim_status_t (*read)(plim__label_source_t *source, double *to, int64_t capacity,
                          int64_t *got_out);
    const char *name;
    const char *row_name;            /* name of a row in messages */
    const plim__text_lines_t *lines; /* for a text, else NULL; borrowed */
    int64_t columns;
    bool graphs;   /* labels of graphs instead of nodes */
    bool floats;   /* the source has a floating-point type */
    bool integers; /* or an integer type; a text has neither */
    bool vector;   /* the source has one dimension, and so will values; known at the end of it */
};

plim_status_t plim__import_labels(plim__import_t *import, plim__label_source_t *source);

/* Appended to the error for a label that is not a number. */
#define PLIM__LABELS_REMEDY                                                                        \
    "write classes as 0, 1, 2 …, or as words (in quotes if they contain blanks), in one column " \
    "or "                                                                                          \
    "in the second after ids; ids that are names need `relabel`"

/* Lets the labels of a text in one column be words, after its heading was read. */
void plim__import_labels_words(plim__import_t *import, plim__text_t *text);

/* Labels [R] or [R, T] of nodes, or of graphs when `graphs` (floats are then values unless the
 * options say otherwise). */
plim_status_t plim__import_labels_npy(plim__import_t *import, plim__reader_t *reader,
                                      const plim__npy_t *npy, bool graphs);
plim_status_t plim__import_labels_text(plim__import_t *import, plim__text_t *text, const char *name,
                                       bool graphs);

/* One of the splits 0 train, 1 valid, 2 test: ids or a mask. A mask has booleans, or has 0 and 1
 * and is named so or has an entry for each node. Logs which one it is. */
plim_status_t plim__import_split(plim__import_t *import, int split, plim__ids_t *ids);
plim_status_t plim__import_split_text(plim__import_t *import, int split, plim__text_t *text,
                                      const char *name);
plim_status_t plim__import_split_npy(plim__import_t *import, int split, plim__reader_t *reader,
                                     const plim__npy_t *npy);

/* Draws the splits that the options ask for from the labels already written. PLIM_ERR_USAGE without
 * labels, or if the source has splits. */
plim_status_t plim__import_draw_splits(plim__import_t *import);

/* PLIM_ERR_DATA when a written split has an id below `bound` twice. */
plim_status_t plim__import_split_once(const plim__import_t *import, int split, int64_t bound);

/* An .npz: arrays by the names of plim__part_stems, or a SciPy matrix. */
plim_status_t plim__import_npz(plim__import_t *import, const char *path);

/*
 * A SciPy matrix in an .npz (scipy.sparse.save_npz) as edges from rows to columns; the values are
 * not read. Reads a member that is a part of one; the parts come in any order and are spooled.
 * After the last member the graph is built, if there were any. PLIM_ERR_DATA for a matrix that is
 * not square, or neither csr, csc nor coo. Without `format` and `shape`, indptr and indices are
 * CSC.
 */
bool plim__import_sparse_is(const char *member);
plim_status_t plim__import_sparse(plim__import_t *import, const char *member,
                                  plim__reader_t *reader);
plim_status_t plim__import_sparse_finish(plim__import_t *import);

/* Converts the names in the spooled edges to ids and writes ids.npy. */
plim_status_t plim__import_relabel(plim__import_t *import);

/* Writes graph_indptr.npy from the counts in graph_nodes. */
plim_status_t plim__import_graph_offsets(plim__import_t *import);

#endif
