/*
 * Lists of 64-bit keys that stay in memory while there is room and go to disk when there is not.
 *
 *     buffers   ├ being filled by the caller ┤├ resident, oldest first ┤├ being written ┤├ free ┤
 *     file      ├ slot 0 ┤├ slot 1 ┤ …        one nameless file; a slot is one chunk of one list
 *
 * A list is a set: the order of its keys is not kept. Keys come in chunks of chunk / 8 keys; only
 * the last chunk put into a list may hold fewer. Chunks are written in the order in which they were
 * put, at the next free slot, so writing is sequential; four bytes a slot link a list's chunks.
 * Slots that were read are used again, so the file never holds more than the lists do.
 *
 * All calls are thread-safe except open and close; a list is with one thread at a time, but for
 * put.
 */
#ifndef PLIM_INGEST_SPILL_H
#define PLIM_INGEST_SPILL_H

#include "base/job.h"
#include "mem/arena.h"

typedef struct plim__spill plim__spill_t;

typedef struct plim__spill_list {
    int64_t count;   /* keys in all */
    int64_t on_disk; /* of them on disk */
    uint32_t slot;   /* newest chunk on disk */
    uint32_t first;  /* oldest and newest resident buffer */
    uint32_t last;
} plim__spill_list_t;

#define PLIM__SPILL_NONE UINT32_MAX
#define PLIM__SPILL_LIST_INIT                                                                      \
    (plim__spill_list_t)                                                                           \
    {                                                                                              \
        0, 0, PLIM__SPILL_NONE, PLIM__SPILL_NONE, PLIM__SPILL_NONE                                 \
    }

typedef struct plim__spill_params {
    const char *tmp;     /* directory of the file, borrowed; NULL: no file, memory must do */
    size_t chunk;        /* bytes, a power of two and at least PLIM__PAGE */
    int64_t num_slots;   /* chunks on disk at most */
    int64_t num_buffers; /* lent at most */
    int depth;           /* writes, and reads, in flight */
} plim__spill_params_t;

/* What open carves from the arena; the engine's memory, when there is a file, comes on top. */
size_t plim__spill_piece(const plim__spill_params_t *params);

/* PLIM_ERR_IO when no file can be made in `tmp`; what plim__engine_create returns. */
plim_status_t plim__spill_open(const plim_job_t *job, const plim__spill_params_t *params,
                               plim__arena_t *arena, plim__spill_t **spill_out);

/* Waits for what is being written. NULL is harmless; the memory stays the arena's. */
void plim__spill_close(plim__spill_t *spill);

/*
 * Gives it `count` buffers of one chunk each at `base` (page-aligned) in place of those it had, of
 * which none may be resident or with a caller.
 */
void plim__spill_lend(plim__spill_t *spill, void *base, int64_t count);

/* Buffers that have never been taken since they were lent: the last ones. */
int64_t plim__spill_untouched(plim__spill_t *spill);

/*
 * A free buffer for one chunk. When there is none the oldest resident chunks go to disk, from then
 * on every chunk that is put does. PLIM_ERR_IO of any write so far.
 */
plim_status_t plim__spill_take(plim__spill_t *spill, uint64_t **buffer_out);

/* Adds the first `count` > 0 keys of a taken buffer to the list; the buffer is the spill's again.
 * The list must stay where it is while it has keys. */
plim_status_t plim__spill_put(plim__spill_t *spill, plim__spill_list_t *list, uint64_t *buffer,
                              int64_t count);

/* Brings everything to disk, so that no buffer is in use any more. */
plim_status_t plim__spill_flush(plim__spill_t *spill);

/*
 * Moves keys out of the list: as many chunks as fit into `capacity` keys (a multiple of a chunk's)
 * at `to` (page-aligned), in no order. *count_out is 0 when the list is empty. A list with resident
 * keys is read only when nothing will be taken, put or flushed any more: its buffers stay in use.
 */
plim_status_t plim__spill_read(plim__spill_t *spill, plim__spill_list_t *list, uint64_t *to,
                               int64_t capacity, int64_t *count_out);

/* Forgets the list's keys without reading them. */
void plim__spill_drop(plim__spill_t *spill, plim__spill_list_t *list);

/* Bytes written so far. */
int64_t plim__spill_written(plim__spill_t *spill);

#endif
