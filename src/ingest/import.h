/*
 * What the importers share: the context of one import, and the ways in which edges, features,
 * labels and splits go into the dataset, whatever they are read from. An importer recognises its
 * kind of source, tells the plan what it knows, and hands over streams in the order they come.
 *
 *     recognise → plan (refuse here) → edges, features, labels, splits in any order → finish
 */
#ifndef PLIM_INGEST_IMPORT_H
#define PLIM_INGEST_IMPORT_H

#include "ingest/edge_source.h"
#include "ingest/feature_convert.h"
#include "mem/arena.h"
#include "store/dataset_writer.h"

#include <limits.h>
#include <plimsoll/ingest.h>

/* A number that several files may state; they must agree. */
typedef struct plim__agreed {
    int64_t value; /* -1: not known yet */
    char from[PLIM__STREAM_NAME];
} plim__agreed_t;

typedef struct plim__import {
    const plim_job_t *job;
    const plim_import_options_t *options;
    plim__arena_t arena;
    char tmp[PATH_MAX];    /* where temporary files go */
    char parent[PATH_MAX]; /* the directory that will hold the target */
    const char *kind;      /* what was recognised, for people and for provenance */
    size_t start;          /* bytes on the ledger when the import began … */
    size_t spare;          /* … and those for everything but the build */
    size_t buffer;         /* bytes of a stream's or column's buffer, whole pages */
    int64_t block;         /* edges, ids or values handled at a time */
    plim__half_path_t path;
    plim__dataset_writer_t *writer; /* NULL until something is written */
    plim__agreed_t nodes;
    bool nodes_ready;      /* the number of nodes, and whether it is one graph, are settled */
    plim__agreed_t graphs; /* stays unknown for one graph */
    plim__agreed_t counts; /* entries of the lists that count nodes and edges of each graph */
    plim__agreed_t edges;  /* as the source counts them */

    /* Edges that wait until the number of nodes is known, and counts per graph. */
    plim__id_spool_t sources, destinations;
    plim__id_spool_t graph_nodes, graph_edges;
    bool edges_done;
    bool edges_from_text;          /* those put aside, and then … */
    plim__text_lines_t edge_lines; /* … the lines they came from, for messages */

    int64_t num_left_out; /* files and arrays that are not imported, and … */
    char left_out[384];   /* … the names of the first of them */

    int64_t archive_bytes; /* of the npz at hand, -1 when it does not say */
    plim__arena_t row;     /* one of features on its way to be divided by its sum */
    bool features_done;
    int64_t feature_rows; /* -1 without features */
    double feature_error;
    char features_from[PLIM__STREAM_NAME];
    bool labels_done;
    int64_t label_rows; /* -1 without labels */
    int64_t num_classes;
    bool multi_label;
    char labels_from[PLIM__STREAM_NAME];
    struct {
        bool done;
        bool mask;       /* read from one */
        bool unordered;  /* ids do not ascend: one may be there twice */
        int64_t last;    /* the id put last, -1 at first */
        int64_t most;    /* the greatest id, -1 when empty */
        int64_t most_at; /* and its position */
        char from[PLIM__STREAM_NAME];
    } splits[3];
} plim__import_t;

/* One kind of source: whether `path` is one, and the import of it. */
typedef struct plim__importer {
    const char *name;
    bool (*recognise)(const char *path);
    plim_status_t (*run)(plim__import_t *import);
} plim__importer_t;

extern const plim__importer_t plim__importer_graphbolt;
extern const plim__importer_t plim__importer_npy;
extern const plim__importer_t plim__importer_ogb;
extern const plim__importer_t plim__importer_ragged;
extern const plim__importer_t plim__importer_text;

/* Makes the dataset's staging directory, once. */
plim_status_t plim__import_begin(plim__import_t *import);

/* Notes something that is not imported; what was noted is said once, at the end. */
void plim__import_leave_out(plim__import_t *import, const char *name);

/* States a number; PLIM_ERR_DATA naming both files when another one was stated before. */
plim_status_t plim__import_agree(plim__agreed_t *agreed, const char *what, int64_t value,
                                 const char *from);

/* A file as a stream: decompressed, and then on a thread of its own, when it is compressed. */
plim_status_t plim__import_open(plim__import_t *import, const char *path,
                                plim__stream_t **stream_out);

/* The same for a stream that may be compressed or not. Takes `inner` over, also on failure. */
plim_status_t plim__import_inflate(plim__import_t *import, plim__stream_t *inner,
                                   plim__stream_t **stream_out);

/* A stream as text. Takes `inner` over, also on failure. */
plim_status_t plim__import_text(plim__import_t *import, plim__stream_t *inner,
                                plim__text_t **text_out);

/* What is known of the dataset before it is written; 0 for what is not or is there already. */
typedef struct plim__import_needs {
    int64_t num_nodes; /* -1 when it is not known */
    int64_t num_edges;
    int64_t feature_bytes; /* of features.npy */
    int64_t label_rows;
    int64_t other_bytes; /* splits, ids, graph offsets */
    const char *what;    /* what this is of, for people; NULL: of all */
    bool at_least;       /* more may be found */
    bool guessed;        /* it may also be less */
    bool names_wait;     /* ends are names, which are sorted and translated first */
    bool edges_wait;     /* both ends are put aside before the build */
    bool sources_wait;   /* only the sources are */
    bool edges_first;    /* the build is done before features are written */
} plim__import_needs_t;

/* Bytes of the build's spill at most. */
int64_t plim__import_csc_spill(const plim__import_t *import, int64_t num_nodes, int64_t num_edges);

/* PLIM_ERR_BUDGET, with the least that would do, when such a graph cannot be built in the memory
 * that was there when the import began; PLIM_ERR_DATA when it cannot be built at all. */
plim_status_t plim__import_check_memory(const plim__import_t *import, int64_t num_nodes,
                                        int64_t num_edges);

/* Edges that a text of `bytes` bytes likely holds. */
int64_t plim__import_guess_edges(int64_t bytes, bool compressed);

/* Says the disk space needed and there; PLIM_ERR_SPACE when it cannot do. The build's memory is
 * checked as well, as far as its size is known. */
plim_status_t plim__import_plan(plim__import_t *import, const plim__import_needs_t *needs);

/* Edges from a source, straight into the build when the number of nodes is known, else put aside.
 * `count`: of them, -1 when not known. */
plim_status_t plim__import_edges(plim__import_t *import, plim__edge_source_t *edges, int64_t count);

/* Edges from the first two columns of a text. */
plim_status_t plim__import_edges_text(plim__import_t *import, plim__text_t *text, const char *name,
                                      int64_t count);

/* An array [2, E] or [E, 2] whose header was read. */
plim_status_t plim__import_edges_npy(plim__import_t *import, plim__stream_t *stream,
                                     const plim__npy_t *npy);

/* Builds from the edges put aside, when there are such and the number of nodes is known. */
plim_status_t plim__import_settle_edges(plim__import_t *import);

/* An array [N, F] or [N] whose header was read; in Fortran order it is turned in memory. */
plim_status_t plim__import_features_npy(plim__import_t *import, plim__stream_t *stream,
                                        const plim__npy_t *npy);

/* The same for a file in Fortran order, a slab of rows at a time from all of its columns. */
plim_status_t plim__import_features_slabs(plim__import_t *import, const char *path,
                                          const plim__npy_t *npy);
/* Bytes of features.npy for such an array; saturates. */
int64_t plim__import_feature_bytes(const plim__import_t *import, const plim__npy_t *npy);

/* Categories [N, C] or [N], whole numbers from 0: each column becomes as many columns of 0 and 1
 * as it has categories. Read twice. */
plim_status_t plim__import_features_one_hot(plim__import_t *import, const char *path);

plim_status_t plim__import_features_text(plim__import_t *import, plim__text_t *text,
                                         const char *name);

/* Labels from anywhere, row by row. */
typedef struct plim__label_source plim__label_source_t;
struct plim__label_source {
    /* Up to `capacity` (at least 2,048) values of whole rows; 0 at the end. NaN: unlabelled. */
    plim_status_t (*read)(plim__label_source_t *source, double *to, int64_t capacity,
                          int64_t *got_out);
    const char *name;
    const char *row_name;            /* what a row is called in messages */
    const plim__text_lines_t *lines; /* a text's, else NULL; borrowed */
    int64_t columns;
    bool graphs;   /* labels of graphs, not of nodes */
    bool floats;   /* the source's type is one of floats */
    bool integers; /* or of integers; a text is neither */
};

plim_status_t plim__import_labels(plim__import_t *import, plim__label_source_t *source);

/* Labels [R] or [R, T]: of graphs when `graphs` (floats are values then), else of nodes. */
plim_status_t plim__import_labels_npy(plim__import_t *import, plim__stream_t *stream,
                                      const plim__npy_t *npy, bool graphs);
plim_status_t plim__import_labels_text(plim__import_t *import, plim__text_t *text, const char *name,
                                       bool graphs);

/* One of the splits 0 train, 1 valid, 2 test: ids, or a mask, which is one of booleans, one of 0
 * and 1 that is named so, or one of 0 and 1 as long as there are nodes. What it was is logged. */
plim_status_t plim__import_split(plim__import_t *import, int split, plim__ids_t *ids);
plim_status_t plim__import_split_npy(plim__import_t *import, int split, plim__stream_t *stream,
                                     const plim__npy_t *npy);

/* PLIM_ERR_DATA when a split that was written holds one of its ids, below `bound`, twice. */
plim_status_t plim__import_split_once(const plim__import_t *import, int split, int64_t bound);

/* Turns the names put aside as ends of edges into ids, and writes ids.npy. */
plim_status_t plim__import_relabel(plim__import_t *import);

/* graph_indptr.npy from the counts put aside in graph_nodes. */
plim_status_t plim__import_graph_offsets(plim__import_t *import);

#endif
