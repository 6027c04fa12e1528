/*
 * Ranges of a file read ahead and handed over in their order; pieces of a file written behind. Both
 * may be memory instead, which costs nothing.
 */
#ifndef PLIM_INFER_EXACT_STREAM_H
#define PLIM_INFER_EXACT_STREAM_H

#include "infer/exact_cost.h"
#include "io/engine.h"
#include "mem/arena.h"

/* A range of bytes, and whose rows or lists lie in it. */
typedef struct plim__exact_chunk {
    int64_t offset, size;
    int64_t piece;
    int64_t first, end; /* ranks */
} plim__exact_chunk_t;

/* The next range, at most a stream's capacity; false when there is none. */
typedef bool (*plim__exact_next_fn)(void *context, plim__exact_chunk_t *chunk_out);

typedef struct plim__exact_stream {
    const plim_job_t *job;
    plim__engine_t *engine;
    int ahead;
    int64_t capacity;
    char *buffers[PLIM__EXACT_AHEAD];
    plim__op_t ops[PLIM__EXACT_AHEAD];
    plim__exact_chunk_t chunks[PLIM__EXACT_AHEAD];
    int64_t begun, ended; /* ranges asked for, ranges handed over */

    const plim__file_t *file; /* NULL: `memory` */
    const char *memory;
    plim__exact_next_fn next;
    void *context;
    bool more;
    int64_t bytes; /* read in all */
} plim__exact_stream_t;

/* `ahead`: 2 … PLIM__EXACT_AHEAD ranges of at most `capacity` bytes, from an arena; its engine
 * besides. */
plim_status_t plim__exact_stream_make(plim__exact_stream_t *stream, const plim_job_t *job,
                                      plim__arena_t *arena, int ahead, int64_t capacity);
void plim__exact_stream_end(plim__exact_stream_t *stream);

/* From now on the ranges that `next` names, of the file or the memory. What was left of the last
 * ones is dropped. */
void plim__exact_stream_start(plim__exact_stream_t *stream, const plim__file_t *file,
                              const char *memory, plim__exact_next_fn next, void *context);

/* Waits for what is in flight, and forgets it. */
void plim__exact_stream_drop(plim__exact_stream_t *stream);

/* The chunk that comes next; NULL: none. */
const plim__exact_chunk_t *plim__exact_stream_peek(plim__exact_stream_t *stream);

/* Waits for it. The bytes are there until the next call. PLIM_ERR_IO, PLIM_ERR_DATA,
 * PLIM_ERR_STOPPED. */
plim_status_t plim__exact_stream_take(plim__exact_stream_t *stream, plim__exact_chunk_t *chunk_out,
                                      char **data_out);

/* A matrix between two layers, or states between two passes: in pieces, each from a page's boundary
 * on. */
typedef struct plim__exact_store {
    plim__arena_t memory; /* base NULL: in the file */
    plim__file_t file;
    plim_ledger_t *ledger;
    int account;
    size_t charged; /* for a file system in memory */
    int64_t piece_bytes;
    int64_t pieces;
} plim__exact_store_t;

/* PLIM_ERR_IO, PLIM_ERR_BUDGET, PLIM_ERR_NOMEM. A zeroed store is harmless to destroy. */
plim_status_t plim__exact_store_make(plim__exact_store_t *store, const plim_job_t *job,
                                     const char *scratch, bool in_memory, int64_t piece_bytes,
                                     int64_t pieces);
void plim__exact_store_destroy(plim__exact_store_t *store);

/* Writes pieces while the next ones are computed. */
typedef struct plim__exact_writer {
    plim__engine_t *engine;
    char *buffers[2];
    plim__op_t ops[2];
    bool busy[2];
    int turn;
    int64_t bytes; /* written in all */
} plim__exact_writer_t;

plim_status_t plim__exact_writer_make(plim__exact_writer_t *writer, const plim_job_t *job,
                                      plim__arena_t *arena, int64_t capacity);
void plim__exact_writer_end(plim__exact_writer_t *writer);

/* Where what belongs at `offset` of the store is to be put; then, that it is there. */
plim_status_t plim__exact_writer_place(plim__exact_writer_t *writer, plim__exact_store_t *store,
                                       int64_t offset, void **to_out);
void plim__exact_writer_put(plim__exact_writer_t *writer, plim__exact_store_t *store,
                            int64_t offset, int64_t size);

/* Waits until all is written. */
plim_status_t plim__exact_writer_flush(plim__exact_writer_t *writer);

#endif
