/*
 * Checks the values in each file and counts statistics. A scan goes through one run of a file's
 * elements after another, in blocks front to back; several scans work on different runs at the same
 * time. plim__scan_join checks across the boundary of two runs, in the order of the runs.
 */
#ifndef PLIM_STORE_SCAN_H
#define PLIM_STORE_SCAN_H

#include "io/file.h"
#include "mem/arena.h"
#include "store/manifest.h"
#include "store/values.h"

typedef enum plim__scan_kind {
    PLIM__SCAN_BYTES,   /* any bytes */
    PLIM__SCAN_OFFSETS, /* ascending from 0 to `bound` */
    PLIM__SCAN_INDICES, /* in [0, bound), ascending in each list */
    PLIM__SCAN_CLASSES, /* in [-1, bound) */
    PLIM__SCAN_ROWS,    /* in [0, bound) */
    PLIM__SCAN_VALUES
} plim__scan_kind_t;

/* How one file is scanned. Shared by all scans, read-only. */
typedef struct plim__scan_rule {
    plim__scan_kind_t kind;
    plim__dtype_t type;
    int64_t count; /* elements in the file */
    int64_t bound;
    bool degrees;                /* OFFSETS: their differences are the nodes' in-degrees */
    const plim__file_t *offsets; /* INDICES: indptr.npy, of offsets_count elements */
    int64_t offsets_count;
} plim__scan_rule_t;

/* Degrees below EXACT have a counter each; above it there are 1,024 counters a power of two. */
#define PLIM__DEGREES_EXACT 2048
#define PLIM__DEGREES_STEPS 1024
#define PLIM__DEGREES_CELLS (PLIM__DEGREES_EXACT + 52 * PLIM__DEGREES_STEPS)
#define PLIM__CLASSES_MAX 65536 /* classes are counted up to this many */

/* Counts over all runs, independent of how runs are divided among scans. */
typedef struct plim__tally {
    int64_t *degrees; /* (PLIM__DEGREES_CELLS) */
    int64_t *classes; /* (PLIM__CLASSES_MAX) */
    int64_t unlabelled;
    int64_t degree_min;
    int64_t degree_max;
    int64_t self_loops;
    int64_t duplicates;
} plim__tally_t;

/* A window on the offsets of the lists that a run of indices belongs to. */
typedef struct plim__window {
    int64_t *offsets; /* (capacity) */
    int64_t first;    /* index of the first offset in it */
    int64_t count;    /* offsets in it */
    int64_t capacity;
} plim__window_t;

typedef struct plim__scan {
    const plim__scan_rule_t *rule;
    plim__tally_t tally;
    plim__values_t values; /* VALUES: sums of this run */
    plim__window_t window;
    int64_t position; /* index of the next element in the file */
    int64_t start;    /* index of the run's first element in the file, */
    int64_t first;    /* the element itself, and for INDICES its node */
    int64_t first_node;
    int64_t last; /* the last element so far, and its node */
    int64_t last_node;
    int64_t list_end;  /* INDICES: end of the list of last_node */
    bool empty;        /* no element of the run was scanned yet */
    char finding[192]; /* the first error in the run, or "" */
} plim__scan_t;

/* Carves the scan's tables, also from a counting arena. */
void plim__scan_carve(plim__scan_t *scan, plim__arena_t *arena);

/* Begins a run at element `position`. PLIM_ERR_IO. */
plim_status_t plim__scan_start(plim__scan_t *scan, const plim__scan_rule_t *rule, int64_t position);

/* Scans the run's next `count` elements. The first error in them is stored in scan->finding.
 * PLIM_ERR_IO when the offsets cannot be read. */
plim_status_t plim__scan_block(plim__scan_t *scan, const void *data, size_t count);

/* State between the runs of a file; zeroed before the first. */
typedef struct plim__joint {
    bool begun;
    int64_t last;
    int64_t last_node;
    plim__values_sum_t values;
} plim__joint_t;

/* After a run: checks it against the run before it. Call in the order of the runs. */
void plim__scan_join(plim__scan_t *scan, plim__joint_t *joint);

/* After the run that reached the end of the file. */
void plim__scan_end(plim__scan_t *scan, const plim__joint_t *joint);

void plim__tally_add(plim__tally_t *to, const plim__tally_t *from);

/* The cell in which a degree is counted, and the smallest degree of a cell. */
int plim__degree_cell(int64_t degree);
int64_t plim__degree_of_cell(int cell);

#endif
