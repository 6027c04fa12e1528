/*
 * Sources of integers, read front to back: node ids, offsets, counts. And a compact spool for them.
 */
#ifndef PLIM_INGEST_IDS_H
#define PLIM_INGEST_IDS_H

#include "ingest/spool.h"
#include "io/npy.h"
#include "io/text.h"

typedef struct plim__ids plim__ids_t;

struct plim__ids {
    /* Reads up to `capacity` numbers, fewer only at the end. */
    plim_status_t (*read)(plim__ids_t *ids, int64_t *to, int64_t capacity, int64_t *got_out);
    int64_t position; /* numbers delivered so far */
    char name[PLIM__READER_NAME];
};

/* `count` numbers of any integer type, from a reader at the first of them. */
typedef struct plim__ids_npy {
    plim__ids_t ids;
    plim__reader_t *reader; /* borrowed */
    plim__dtype_t type;
    int64_t left;
} plim__ids_npy_t;

/* PLIM_ERR_DATA when the type is not an integer type. */
plim_status_t plim__ids_npy_open(plim__ids_npy_t *ids, plim__reader_t *reader, plim__dtype_t type,
                                 int64_t count);

/* A text with one number a line; a heading and pandas' index are skipped. */
typedef struct plim__ids_text {
    plim__ids_t ids;
    plim__text_t *text; /* borrowed */
    int64_t columns;    /* 2 with an index, else 1 */
} plim__ids_text_t;

plim_status_t plim__ids_text_open(plim__ids_text_t *ids, plim__text_t *text, const char *name);

/*
 * A spool of numbers. Each chunk of up to PLIM__ID_CHUNK numbers uses the smallest sufficient
 * number of bytes a number, at least 4. Negative numbers take 8.
 */
#define PLIM__ID_CHUNK 2048

typedef struct plim__id_spool {
    plim__ids_t ids;     /* reads them back */
    plim__spool_t *file; /* NULL when there is none */
    int64_t count;
    int64_t most; /* the maximum so far, -1 at first */
    int64_t chunk[PLIM__ID_CHUNK];
    int64_t chunk_size;  /* numbers in it */
    int64_t chunk_taken; /* numbers of it already delivered */
} plim__id_spool_t;

/* `name`: of the numbers, for messages. Memory: plim__spool_estimate(buffer). */
plim_status_t plim__id_spool_create(plim__id_spool_t *spool, const plim_job_t *job,
                                    const char *directory, size_t buffer, const char *name);
plim_status_t plim__id_spool_write(plim__id_spool_t *spool, const int64_t *from, int64_t count);
plim_status_t plim__id_spool_rewind(plim__id_spool_t *spool, bool consume);

/* A zeroed one is harmless. */
void plim__id_spool_destroy(plim__id_spool_t *spool);

#endif
