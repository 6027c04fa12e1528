/* Sources of edges, read front to back. Every importer uses one. */
#ifndef PLIM_INGEST_EDGE_SOURCE_H
#define PLIM_INGEST_EDGE_SOURCE_H

#include "ingest/ids.h"

typedef struct plim__edge_source plim__edge_source_t;

struct plim__edge_source {
    /* Reads up to `capacity` edges, fewer only at the end. One thread at a time calls it. */
    plim_status_t (*read)(plim__edge_source_t *edges, int64_t *source, int64_t *destination,
                          int64_t capacity, int64_t *got_out);
    int64_t position;                /* edges delivered so far */
    const char *place;               /* name of an edge in messages */
    const plim__text_lines_t *lines; /* for a text, else NULL; borrowed */
    char name[PLIM__READER_NAME];
};

/* The place of edge `at` for messages: "line 7" in a text, else "edge 5". Not while another thread
 * reads. */
#define PLIM__PLACE 40
const char *plim__edge_place(const plim__edge_source_t *edges, int64_t at,
                             char place_out[PLIM__PLACE]);

/* Two sequences of equal length, read in step. */
typedef struct plim__edges_pairs {
    plim__edge_source_t edges;
    plim__ids_t *source;      /* borrowed */
    plim__ids_t *destination; /* borrowed */
} plim__edges_pairs_t;

void plim__edges_pairs_open(plim__edges_pairs_t *pairs, plim__ids_t *source,
                            plim__ids_t *destination);

/* One sequence: source, destination, source, destination … */
typedef struct plim__edges_mixed {
    plim__edge_source_t edges;
    plim__ids_t *ids; /* borrowed */
} plim__edges_mixed_t;

void plim__edges_mixed_open(plim__edges_mixed_t *mixed, plim__ids_t *ids);

/* CSC: `indptr` has num_nodes + 1 offsets, ascending from 0, of the in-neighbours in `indices`. */
typedef struct plim__edges_csc {
    plim__edge_source_t edges;
    plim__ids_t *indptr;  /* borrowed */
    plim__ids_t *indices; /* borrowed */
    int64_t num_edges;    /* length of indices */
    int64_t node;         /* node of the list being read; -1 at first */
    int64_t end;          /* end of that list */
} plim__edges_csc_t;

void plim__edges_csc_open(plim__edges_csc_t *csc, plim__ids_t *indptr, plim__ids_t *indices,
                          int64_t num_edges);

/*
 * Edges of many graphs, with ids from 0 in each graph. They are converted to ids of the whole, by
 * the numbers of nodes and edges of each graph. PLIM_ERR_DATA for an id outside of its graph.
 */
typedef struct plim__edges_local {
    plim__edge_source_t edges;
    plim__edge_source_t *inner;   /* borrowed */
    plim__ids_t *nodes_of_graphs; /* borrowed */
    plim__ids_t *edges_of_graphs; /* borrowed */
    int64_t graph;                /* graph being read, -1 at first */
    int64_t first_node;
    int64_t num_nodes;
    int64_t left; /* edges of it not read yet */
} plim__edges_local_t;

void plim__edges_local_open(plim__edges_local_t *local, plim__edge_source_t *inner,
                            plim__ids_t *nodes_of_graphs, plim__ids_t *edges_of_graphs);

/* A text: the first two numbers of each line. A heading and pandas' index are skipped. */
typedef struct plim__edges_text {
    plim__edge_source_t edges;
    plim__text_t *text; /* borrowed */
    int64_t columns;    /* fields of every line, without */
    int64_t index;      /* 1 for pandas' index before them, else 0 */
} plim__edges_text_t;

plim_status_t plim__edges_text_open(plim__edges_text_t *edges, plim__text_t *text,
                                    const char *name);

#endif
