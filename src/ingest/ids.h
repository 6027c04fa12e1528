/*
 * Whole numbers from front to back, whatever they come from: node ids, offsets, counts. And a way
 * of putting them aside that takes no more bytes than they need.
 */
#ifndef PLIM_INGEST_IDS_H
#define PLIM_INGEST_IDS_H

#include "ingest/spool.h"
#include "io/npy.h"
#include "io/text.h"

typedef struct plim__ids plim__ids_t;

struct plim__ids {
    /* Up to `capacity` numbers; fewer only at the end. */
    plim_status_t (*read)(plim__ids_t *ids, int64_t *to, int64_t capacity, int64_t *got_out);
    int64_t position; /* numbers delivered so far */
    char name[PLIM__STREAM_NAME];
};

/* `count` numbers of any integer type from a stream that stands at the first of them. */
typedef struct plim__ids_npy {
    plim__ids_t ids;
    plim__stream_t *stream; /* borrowed */
    plim__dtype_t type;
    int64_t left;
} plim__ids_npy_t;

/* PLIM_ERR_DATA when the type is none of the integers. */
plim_status_t plim__ids_npy_open(plim__ids_npy_t *ids, plim__stream_t *stream, plim__dtype_t type,
                                 int64_t count);

/* A text of one number a line (a first line of headings is passed over). */
typedef struct plim__ids_text {
    plim__ids_t ids;
    plim__text_t *text; /* borrowed */
} plim__ids_text_t;

plim_status_t plim__ids_text_open(plim__ids_text_t *ids, plim__text_t *text, const char *name);

/*
 * Numbers put aside: each piece of up to PLIM__ID_PIECE of them with the least number of whole
 * bytes that holds them, but not less than 4. Negative ones are kept, too, in 8.
 */
#define PLIM__ID_PIECE 2048

typedef struct plim__id_spool {
    plim__ids_t ids;     /* for reading them back */
    plim__spool_t *file; /* NULL when there is none */
    int64_t count;
    int64_t most; /* the greatest so far, -1 at first */
    int64_t piece[PLIM__ID_PIECE];
    int64_t piece_size;  /* numbers in it */
    int64_t piece_taken; /* delivered of them */
} plim__id_spool_t;

/* `name`: what the numbers are, for messages. Memory: plim__spool_estimate(buffer). */
plim_status_t plim__id_spool_create(plim__id_spool_t *aside, const plim_job_t *job,
                                    const char *directory, size_t buffer, const char *name);
plim_status_t plim__id_spool_write(plim__id_spool_t *aside, const int64_t *from, int64_t count);
plim_status_t plim__id_spool_rewind(plim__id_spool_t *aside, bool consume);

/* A zeroed one is harmless. */
void plim__id_spool_destroy(plim__id_spool_t *aside);

#endif
