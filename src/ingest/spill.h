/*
 * Lists of 64-bit keys, in memory as long as they fit, else on disk.
 *
 *     buffers   ├ being filled by the caller ┤├ resident, oldest first ┤├ being written ┤├ free ┤
 *     file      ├ slot 0 ┤├ slot 1 ┤ …        one nameless file; a slot is one chunk of one list
 *
 * The order of a list's keys is not kept. Keys come in chunks of chunk / 8 keys; only the last
 * chunk of a list may be shorter. Chunks are written in the order of plim__spill_put to the next
 * free slot, so writing is sequential; four bytes a slot link the chunks of a list. Slots are
 * reused after reading, so the file is never larger than the lists.
 *
 * All calls are thread-safe except open and close. One thread at a time uses a list, except for
 * plim__spill_put.
 */
#ifndef PLIM_INGEST_SPILL_H
#define PLIM_INGEST_SPILL_H

#include "base/job.h"
#include "mem/arena.h"

typedef struct plim__spill plim__spill_t;

typedef struct plim__spill_list {
    int64_t count;   /* keys in all */
    int64_t on_disk; /* keys on disk */
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
    const char *tmp;     /* directory of the file, borrowed; NULL: memory only */
    size_t chunk;        /* bytes, a power of two and at least PLIM__PAGE */
    int64_t num_slots;   /* most chunks on disk */
    int64_t num_buffers; /* most buffers lent */
    int depth;           /* writes, and reads, in flight */
} plim__spill_params_t;

/* Lays the spill out, also over a counting arena. The engine of a file needs memory of its own. */
plim__spill_t *plim__spill_carve(plim__arena_t *arena, const plim__spill_params_t *params);

/* Opens the file. PLIM_ERR_IO when none can be created in `tmp`; errors of plim__engine_create. */
plim_status_t plim__spill_open(const plim_job_t *job, const plim__spill_params_t *params,
                               plim__spill_t *spill);

/* Waits for writes in flight. NULL is harmless. The memory belongs to the arena. */
void plim__spill_close(plim__spill_t *spill);

/*
 * Lends `count` buffers of one chunk each at `base` (page-aligned) instead of the earlier ones,
 * none of which may be in use.
 */
void plim__spill_lend(plim__spill_t *spill, void *base, int64_t count);

/* Number of buffers, at the end, that were not taken since they were lent. */
int64_t plim__spill_untouched(plim__spill_t *spill);

/*
 * Takes a free buffer for one chunk. When there is none, the oldest chunks are written to disk, and
 * from then on every chunk that is put. PLIM_ERR_IO when a write failed.
 */
plim_status_t plim__spill_take(plim__spill_t *spill, uint64_t **buffer_out);

/* Adds the first `count` > 0 keys of a taken buffer to the list and returns the buffer to the
 * spill. The list must not be moved while it has keys. */
plim_status_t plim__spill_put(plim__spill_t *spill, plim__spill_list_t *list, uint64_t *buffer,
                              int64_t count);

/* Writes everything to disk, so that no buffer is in use. */
plim_status_t plim__spill_flush(plim__spill_t *spill);

/*
 * Moves keys out of the list to `to` (page-aligned): as many chunks as fit into `capacity` keys (a
 * multiple of a chunk), in any order. *count_out is 0 when the list is empty. A list with keys in
 * memory may be read only after the last take, put and flush: its buffers stay in use.
 */
plim_status_t plim__spill_read(plim__spill_t *spill, plim__spill_list_t *list, uint64_t *to,
                               int64_t capacity, int64_t *count_out);

void plim__spill_drop(plim__spill_t *spill, plim__spill_list_t *list);

int64_t plim__spill_written(plim__spill_t *spill);

#endif
