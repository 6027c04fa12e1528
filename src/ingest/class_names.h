/*
 * Classes that are given as words: the distinct words of a column of labels, in memory, and sorted
 * by their bytes. A class is the position of its word in this order.
 */
#ifndef PLIM_INGEST_CLASS_NAMES_H
#define PLIM_INGEST_CLASS_NAMES_H

#include "io/text.h"
#include "mem/arena.h"
#include "store/dataset_writer.h"

#define PLIM__CLASS_NAMES_MAX 16384               /* words, */
#define PLIM__CLASS_NAMES_BYTES ((size_t)1 << 20) /* and bytes of all of them */

typedef struct plim__class_names {
    plim_ledger_t *ledger; /* borrowed; the rest is zeroed at first */
    plim__arena_t arena;   /* made for the first word */
    bool numbers;          /* a label was a number, so none may be a word */
    int64_t count;
    int32_t *sorted;  /* (count) words in their order, by the number of their first appearance */
    int32_t *classes; /* (count) the class of each number, after plim__class_names_finish */
    int32_t *begins;  /* (count + 1) where each word begins, by the number, */
    char *text;       /* in here */
    char heading[64]; /* last word of the heading before the labels, "" for none */
} plim__class_names_t;

/*
 * For plim__text_set_words, with the names as context: replaces a word by the number of its first
 * appearance. NaN, an empty field and -1 mean unlabelled. PLIM_ERR_DATA for a word after a number,
 * and for too many words. Memory: 1.2 MiB from the first word on.
 */
plim_status_t plim__class_names_take(void *context, plim__text_field_t field, bool number,
                                     double *value);

/* Numbers the classes. PLIM_ERR_DATA if the heading is one of the words: then it was a label. */
plim_status_t plim__class_names_finish(plim__class_names_t *names, const char *from);

/* Writes class_text.npy and class_offsets.npy. */
plim_status_t plim__class_names_write(const plim__class_names_t *names,
                                      plim__dataset_writer_t *writer, size_t buffer);

/* A zeroed one is harmless. */
void plim__class_names_destroy(plim__class_names_t *names);

#endif
