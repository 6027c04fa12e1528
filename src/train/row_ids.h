/*
 * Reads the id of each row of a prediction, in order: rows are a split's nodes (or graphs) in the
 * order of its file, or all nodes. Ids are the source's ids or names if the dataset keeps them.
 * Also reads the names of classes.
 */
#ifndef PLIM_TRAIN_ROW_IDS_H
#define PLIM_TRAIN_ROW_IDS_H

#include "store/dataset.h"

#include <plimsoll/loader.h>

#define PLIM__ROW_IDS_BLOCK 512

/* A file of int64, read a block at a time. */
typedef struct plim__row_ids_file {
    plim__file_t file; /* fd -1: none */
    int64_t count;
    int64_t first, valid; /* of the block */
    int64_t block[PLIM__ROW_IDS_BLOCK];
} plim__row_ids_file_t;

/* Names, one after the other in a file. */
typedef struct plim__row_names {
    plim__row_ids_file_t offsets; /* where they begin, */
    plim__file_t text;            /* in this file, */
    int64_t text_bytes;           /* of this size */
    size_t size;                  /* bytes of the current name, */
    char name[PLIM__ID_TEXT_MAX]; /* not terminated */
} plim__row_names_t;

typedef struct plim__row_ids {
    const char *path;           /* the dataset's, borrowed */
    int64_t next;               /* row */
    plim__row_ids_file_t split; /* nodes of the split; none: all nodes */
    plim__row_ids_file_t ids;   /* the source's integer ids, */
    plim__row_names_t names;    /* or its names */
    plim__row_names_t classes;  /* names of the classes; none: numbers */
} plim__row_ids_t;

/* `split` may be PLIM_ALL_NODES. A zeroed one, or one that failed to open, may be closed. */
plim_status_t plim__row_ids_open(const plim_dataset_t *dataset, plim_split_t split,
                                 plim__row_ids_t *ids_out);
void plim__row_ids_close(plim__row_ids_t *ids);

/* Whether the ids are not just 0, 1, 2 …, and whether they are names. */
static inline bool plim__row_ids_matter(const plim__row_ids_t *ids)
{
    return ids->split.count >= 0 || ids->ids.count >= 0 || ids->names.offsets.count >= 0;
}

static inline bool plim__row_ids_named(const plim__row_ids_t *ids)
{
    return ids->names.offsets.count >= 0;
}

/* The next row's id; with names its name is in ids->names. PLIM_ERR_DATA for damaged files. */
plim_status_t plim__row_ids_next(plim__row_ids_t *ids, int64_t *id_out);

/* Whether classes have names. plim__row_ids_class reads one into ids->classes; errors as above. */
static inline bool plim__row_ids_classes(const plim__row_ids_t *ids)
{
    return ids->classes.offsets.count >= 0;
}

plim_status_t plim__row_ids_class(plim__row_ids_t *ids, int64_t class);

#endif
