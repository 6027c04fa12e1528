/*
 * Names of nodes: fields of texts, of up to PLIM__ID_TEXT_MAX bytes. A name is compared by a key,
 * the 128-bit XXH3 of its bytes. Names, keys and edges stay on disk; a table of keys is in memory,
 * as many at a time as fit, and each part of it is one pass over the keys that are looked up.
 */
#ifndef PLIM_INGEST_NAMES_H
#define PLIM_INGEST_NAMES_H

#include "ingest/ids.h"

#include <xxhash.h>

/* A spool of keys, for names to look up. Zeroed: none. */
typedef struct plim__name_keys {
    plim__spool_t *file;
    int64_t count;
} plim__name_keys_t;

/* The names of nodes in the order of their ids. */
typedef struct plim__names {
    const plim_job_t *job;
    const char *tmp; /* directory of temporary files, borrowed */
    size_t buffer;
    plim__name_keys_t keys;
    plim__spool_t *texts; /* a byte for the length, then the name */
    int64_t text_bytes;   /* of the names alone */
    bool integers;        /* each name is the usual form of a 64-bit integer */
    char from[PLIM__READER_NAME];
} plim__names_t;

/* `from`: the file that names the nodes, for messages. `tmp` is borrowed. Memory: two spools. */
plim_status_t plim__names_create(plim__names_t *names, const plim_job_t *job, const char *tmp,
                                 size_t buffer, const char *from);

/* A zeroed one is harmless. */
void plim__names_destroy(plim__names_t *names);

/* Adds the name of the next node. PLIM_ERR_DATA for a name that is too long. */
plim_status_t plim__names_add(plim__names_t *names, plim__text_field_t name);

/* PLIM_ERR_DATA, with its row, for a name that occurs twice. Memory as for plim__names_find. */
plim_status_t plim__names_check(plim__names_t *names);

/* Adds a key to a spool, which is created for the first one. Destroying a zeroed one is harmless.
 */
plim_status_t plim__name_keys_add(plim__name_keys_t *keys, const plim__names_t *names,
                                  plim__text_field_t name);
void plim__name_keys_destroy(plim__name_keys_t *keys);

/*
 * Looks all keys up: *ids_out becomes a spool of their nodes, at its front. *missing_out is the
 * position of the first key that no node has, or -1. Memory: the table, all that
 * is available under the line if it is large; PLIM_ERR_BUDGET below 3 MiB.
 */
plim_status_t plim__names_find(plim__names_t *names, const plim__name_keys_t *keys,
                               plim__id_spool_t *ids_out, int64_t *missing_out);

/*
 * The same without names: numbers the keys by their first appearance. *firsts_out becomes a spool
 * of the positions of first appearances, at its front. The caller adds those names in this order.
 */
plim_status_t plim__names_number(plim__names_t *names, const plim__name_keys_t *keys,
                                 plim__id_spool_t *ids_out, plim__id_spool_t *firsts_out);

#endif
