/*
 * The working set: the rows that a recipe can reach, and the lists that it draws from, packed in a
 * file in the scratch directory in the order of their access probability (source/node_order.h). The
 * caches are the beginnings of both, and what they miss is read from the rest, where little else
 * lies between.
 *
 *     | header, a page | rows, by place | lists, by place | checksum of each page
 *     | bits of the nodes | classes of rows | classes of lists |
 *
 * A place holds a row rounded up to 8 bytes, as in the cache; lists lie entry by entry, as in
 * indices.npy; classes begin on pages. Lists have classes of their own; nodes of class 0 have no
 * packed list. Where a list begins follows from the degrees. The header has the expected needs, so
 * that later starts choose the sizes of the caches without reading the graph.
 *
 * The file depends on the dataset, the fan-outs and nothing else, so all lines and jobs can share
 * it. It appears complete or not at all. Readers compare the checksum of each page; positions and
 * places are computed again from the bits. A file that is damaged or gone only costs time: rows and
 * lists are then read from the dataset.
 */
#ifndef PLIM_SOURCE_WORKING_SET_H
#define PLIM_SOURCE_WORKING_SET_H

#include "base/job.h"
#include "source/node_order.h"
#include "source/offsets.h"
#include "store/dataset.h"

#include <stdatomic.h>

#define PLIM__LIST_BLOCK_BITS 12 /* blocks of 4,096 lists: see source/list_cache.h */
#define PLIM__LIST_PACKED_MOST (((int64_t)1 << 20) - 1) /* entries of a packed list */
#define PLIM__WORKING_SHARES 16
#define PLIM__WORKING_ONE ((double)(1 << 28))

/* [class][i]: how many members of a class a window of 2^-i of the seeds is expected to need, in
 * units of 2^-28. Class 0 of lists counts those that are needed but not packed. */
typedef struct plim__working_needs {
    uint64_t rows[PLIM__ORDER_CLASSES][PLIM__WORKING_SHARES];
    uint64_t lists[PLIM__ORDER_CLASSES][PLIM__WORKING_SHARES];
} plim__working_needs_t;

/* The most that a working set may hold. */
typedef struct plim__working_size {
    int64_t rows;
    int64_t lists;   /* 0: none are packed */
    int64_t entries; /* of the packed lists; if there are none, the most that an existing file may
                        have for its rows to be used */
} plim__working_size_t;

typedef struct plim__working_set {
    plim__arena_t arena; /* account "working set" */
    plim_job_t job;
    plim__node_order_t order;
    int64_t row_bytes;
    int64_t stride;                 /* bytes between places */
    bool complete;                  /* no row that can be reached is left out */
    bool with_lists;                /* they were packed, if there are any */
    int64_t lists_in_file;          /* more than num_lists: not enough memory is planned */
    int64_t num_lists;              /* 0: the fields below are unused */
    plim__node_order_t lists;       /* of the same nodes; class 0: not packed */
    const plim__offsets_t *offsets; /* borrowed */
    int64_t width;                  /* bytes of an entry */
    int64_t *list_blocks;           /* entries before each block of lists, … */
    uint32_t *list_starts;          /* … and of the block before each list */
    int64_t class_entries[PLIM__ORDER_CLASSES + 1]; /* where each class of lists begins */
    plim__working_needs_t needs;
    plim__file_t file;
    _Atomic bool readable; /* rows and lists can be read from the file */
    uint32_t *checks;      /* (pages of header, rows and lists) */
    uint64_t key;
    char fingerprint[24];
    char path[PATH_MAX];
} plim__working_set_t;

/* Upper bounds for a set of this size: bytes of the file, of the object, and of the memory used
 * only while the file is made. */
int64_t plim__working_set_bytes(const plim_dataset_t *dataset, plim__working_size_t size);
size_t plim__working_set_estimate(const plim_dataset_t *dataset, plim__working_size_t size);
size_t plim__working_set_making(const plim_job_t *job);

/* Creates a working set of exactly this size, without a file; the caller fills its orders' nodes
 * and classes, and `needs`. `key` identifies the recipe, `offsets` are borrowed.
 * PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_USAGE for a path that is too long. */
plim_status_t plim__working_set_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                       const plim__offsets_t *offsets, const char *scratch,
                                       uint64_t key, plim__working_size_t size,
                                       plim__working_set_t **set_out);
void plim__working_set_destroy(plim__working_set_t *set);

/* Seals the orders once all nodes have their classes; false if the classes do not have num_lists
 * lists. */
bool plim__working_set_seal(plim__working_set_t *set);

/*
 * Opens the file of this dataset and recipe. *set_out is NULL if there is no intact one within
 * `most`, or if it was packed without lists and `most` has some. A file with more lists than
 * most.lists, made under another line, serves with its rows alone. Damage is logged and is not an
 * error.
 * PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_USAGE.
 */
plim_status_t plim__working_set_open(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim__offsets_t *offsets, const char *scratch,
                                     uint64_t key, plim__working_size_t most,
                                     plim__working_set_t **set_out);

/*
 * Claims the right to make the file: false if another process is making it. *lock_out is given to
 * plim__working_set_release, and is -1 where there is no lock: on some file systems, or where
 * another user's file has its name.
 */
bool plim__working_set_claim(const plim_dataset_t *dataset, const char *scratch, uint64_t key,
                             int *lock_out);
void plim__working_set_release(const plim_dataset_t *dataset, const char *scratch, uint64_t key,
                               int lock);

/*
 * Writes the file of a sealed set in one pass over features.npy and, if it has lists, one over
 * indices.npy; both files' checksums are compared. A file that cannot be written is logged and is
 * not an error: the set then has no file. PLIM_ERR_DATA, PLIM_ERR_IO, PLIM_ERR_BUDGET,
 * PLIM_ERR_NOMEM, PLIM_ERR_STOPPED.
 */
plim_status_t plim__working_set_save(plim__working_set_t *set, const plim_dataset_t *dataset,
                                     const char *scratch);

/* To be called after a read of the file failed: logs the last error, and nothing is read from the
 * file any more. Any thread. */
void plim__working_set_lost(plim__working_set_t *set);

/* Offset of a place in the file. */
static inline int64_t plim__working_set_offset(const plim__working_set_t *set, int64_t place)
{
    return (int64_t)PLIM__PAGE + place * set->stride;
}

/* Place, among the packed lists, of the list of the member at this position, or of a node; -1 if it
 * is not packed. */
static inline int64_t plim__working_set_list_at(const plim__working_set_t *set, int64_t position)
{
    return position < 0 || plim__node_order_class(&set->lists, position) == 0
               ? -1
               : plim__node_order_at(&set->lists, position) - set->lists.first[1];
}

static inline int64_t plim__working_set_list(const plim__working_set_t *set, int64_t node)
{
    return plim__working_set_list_at(set, plim__node_set_position(&set->order.nodes, node));
}

/* The node whose list has a place, -1 if none has; and the places of all lists. */
static inline int64_t plim__working_set_list_node(const plim__working_set_t *set, int64_t place)
{
    return plim__node_order_node(&set->lists, place + set->lists.first[1]);
}

static inline int64_t plim__working_set_list_places(const plim__working_set_t *set)
{
    return set->num_lists == 0 ? 0 : set->lists.first[PLIM__ORDER_CLASSES] - set->lists.first[1];
}

/* The first entry of a list, among all packed ones; and an entry's offset in the file. */
static inline int64_t plim__working_set_list_start(const plim__working_set_t *set, int64_t place)
{
    return set->list_blocks[place >> PLIM__LIST_BLOCK_BITS] + set->list_starts[place];
}

static inline int64_t plim__working_set_entry_offset(const plim__working_set_t *set, int64_t entry)
{
    return plim__working_set_offset(set, set->order.first[PLIM__ORDER_CLASSES]) +
           entry * set->width;
}

#endif
