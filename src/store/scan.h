/*
 * What the bytes of each file must hold, and what is counted on the way. A scan goes through one
 * run of a file's elements after another, in blocks from front to back; any number of scans work on
 * different runs at the same time. What only shows across two runs is settled by
 * plim__scan_join, in the runs' order.
 */
#ifndef PLIM_STORE_SCAN_H
#define PLIM_STORE_SCAN_H

#include "io/file.h"
#include "mem/arena.h"
#include "store/manifest.h"
#include "store/values.h"

typedef enum plim__scan_kind {
    PLIM__SCAN_BYTES,   /* nothing is known about them */
    PLIM__SCAN_OFFSETS, /* ascending from 0 to `bound` */
    PLIM__SCAN_INDICES, /* in [0, bound), ascending in each list */
    PLIM__SCAN_CLASSES, /* in [-1, bound) */
    PLIM__SCAN_ROWS,    /* in [0, bound) */
    PLIM__SCAN_VALUES
} plim__scan_kind_t;

/* How one file is scanned; shared by all scans, read only. */
typedef struct plim__scan_rule {
    plim__scan_kind_t kind;
    plim__dtype_t type;
    int64_t count; /* elements in the file */
    int64_t bound;
    bool degrees;                /* OFFSETS: their differences are the nodes' in-degrees */
    const plim__file_t *offsets; /* INDICES: indptr.npy, whose header says offsets_count */
    int64_t offsets_count;
} plim__scan_rule_t;

/* Degrees are counted one by one below this, above it in 1,024 steps for each power of two. */
#define PLIM__DEGREES_EXACT 2048
#define PLIM__DEGREES_STEPS 1024
#define PLIM__DEGREES_CELLS (PLIM__DEGREES_EXACT + 52 * PLIM__DEGREES_STEPS)
#define PLIM__CLASSES_MAX 65536 /* counted one by one up to this many */

/* What was counted, over all runs: sums that do not depend on who counted what. */
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
    int64_t first;    /* offset number of the first one held */
    int64_t held;
    int64_t capacity;
} plim__window_t;

typedef struct plim__scan {
    const plim__scan_rule_t *rule;
    plim__tally_t tally;
    plim__values_t values; /* VALUES: of this run */
    plim__window_t window;
    int64_t position; /* number of the next element in the file */
    int64_t start;    /* number of the run's first element in the file … */
    int64_t first;    /* … the element itself, and for INDICES its node */
    int64_t first_node;
    int64_t last; /* the element seen last, and its node */
    int64_t last_node;
    int64_t list_end;  /* INDICES: where the list of last_node ends */
    bool empty;        /* nothing of the run was seen yet */
    char finding[192]; /* the first thing wrong in the run; "" so far */
} plim__scan_t;

size_t plim__scan_estimate(void);
void plim__scan_carve(plim__scan_t *scan, plim__arena_t *arena);

/* Begins a run at element `position`. PLIM_ERR_IO. */
plim_status_t plim__scan_start(plim__scan_t *scan, const plim__scan_rule_t *rule, int64_t position);

/* The run's next `count` elements. What is wrong with them goes into scan->finding, once;
 * PLIM_ERR_IO only when the offsets cannot be read. */
plim_status_t plim__scan_block(plim__scan_t *scan, const void *data, size_t count);

/* Where the runs of one file have come to; zeroed before the first. */
typedef struct plim__joint {
    bool begun;
    int64_t last;
    int64_t last_node;
    plim__values_sum_t values;
} plim__joint_t;

/* After a run: what it shares with the one before it, in the runs' order. Findings as above. */
void plim__scan_join(plim__scan_t *scan, plim__joint_t *joint);

/* After the last run that reached the file's end. */
void plim__scan_end(plim__scan_t *scan, const plim__joint_t *joint);

/* Adds what `from` counted to `to`. */
void plim__tally_add(plim__tally_t *to, const plim__tally_t *from);

/* The cell a degree is counted in, and the least degree of a cell. */
int plim__degree_cell(int64_t degree);
int64_t plim__degree_of_cell(int cell);

#endif
