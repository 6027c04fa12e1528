/*
 * The packed file: an image of the row cache's memory in the scratch directory, so that a later
 * start reads it straight into place, and a refresh in runs instead of row by row.
 *
 *     | header, 4 KiB | the cache's pages | XXH3 of each chunk |
 *
 * Every chunk is checked before use; a damaged file is written again.
 */
#ifndef PLIM_SOURCE_PACKED_ROWS_H
#define PLIM_SOURCE_PACKED_ROWS_H

#include "io/file.h"
#include "mem/droppable.h"

#include <limits.h>

/* Identifies the rows in a file; only a cache with the same identity can use it. */
typedef struct plim__packed_rows_identity {
    char fingerprint[24]; /* of the dataset, NUL-terminated */
    uint64_t key;         /* of the recipe; names the file */
    uint64_t set_hash;    /* of the set of nodes */
    uint64_t num_rows;
    uint64_t row_bytes;
    uint64_t num_pages;
    uint64_t chunk_bytes;
} plim__packed_rows_identity_t;

typedef struct plim__packed_rows {
    plim__file_t file; /* closed if there is none */
    const plim_job_t *job;
    plim__droppable_t *memory; /* memory of the cache */
    plim__packed_rows_identity_t identity;
    uint64_t *checksums; /* (chunks), rounded up to pages */
    char scratch[PATH_MAX];
    char path[PATH_MAX];
} plim__packed_rows_t;

/* Bytes of the file for a cache of `cache_bytes`, and of its checksum table. */
int64_t plim__packed_rows_bytes(int64_t cache_bytes);
size_t plim__packed_rows_table(size_t cache_bytes);

/* Sets the file's name. PLIM_ERR_USAGE if the path is too long. */
plim_status_t plim__packed_rows_name(plim__packed_rows_t *packed, const char *scratch);

/*
 * Fills the cache's memory from the file, between plim__droppable_fill_begin and _end: true if the
 * file exists and is intact. Damage is logged and is not an error. PLIM_ERR_STOPPED,
 * PLIM_ERR_NOMEM.
 */
plim_status_t plim__packed_rows_load(plim__packed_rows_t *packed, bool *loaded_out);

/* Begins a new unnamed file. Logs failure. */
void plim__packed_rows_begin(plim__packed_rows_t *packed);

/* Writes a chunk of the memory; any thread. PLIM_ERR_IO. */
plim_status_t plim__packed_rows_put(plim__packed_rows_t *packed, int64_t at, size_t size);

/* Writes the rest and names the file. If naming fails, this run still uses it. */
void plim__packed_rows_finish(plim__packed_rows_t *packed);

/* Offset in the file of a byte of the memory. */
static inline int64_t plim__packed_rows_offset(int64_t at)
{
    return at + (int64_t)PLIM__PAGE;
}

#endif
