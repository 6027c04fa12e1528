/*
 * The droppable cache: memory whose content can be read again. It is released when other processes
 * need memory: by the kernel, which takes pages under MADV_FREE, or by lowering the target. It is
 * filled and released in chunks of a huge page's size.
 *
 *     chunks   | filled | filled | lost | filled | empty, as long as the target is below |
 *              0                                 target                         num_chunks
 *
 * A page that the kernel has taken reads as zeros. The owner therefore stores items that are never
 * zero (nor are the first 8 bytes of a page), and checks an item after copying it: if it is not
 * zero, the copy is good.
 *
 * This requires that no thread fills a chunk while another reads it. A reader reads between
 * plim__droppable_enter and plim__droppable_leave. Filling first marks the chunk empty, then waits
 * for all readers that may not have seen the mark to leave. Releasing does not wait: readers
 * find zeros.
 */
#ifndef PLIM_MEM_DROPPABLE_H
#define PLIM_MEM_DROPPABLE_H

#include "mem/arena.h"

#include <plimsoll/job.h>
#include <pthread.h>
#include <stdatomic.h>

#define PLIM__DROPPABLE_CHUNK ((size_t)2 << 20)

enum { PLIM__CHUNK_EMPTY = 0, PLIM__CHUNK_FILLED, PLIM__CHUNK_SUSPECT };

typedef struct plim__droppable_reader {
    _Alignas(64) _Atomic uint64_t section; /* odd: between enter and leave */
} plim__droppable_reader_t;

typedef struct plim__droppable {
    char *base;   /* aligned to huge pages if it is large and the arena's first object */
    size_t bytes; /* whole pages */
    int64_t num_chunks;
    _Atomic unsigned char *states; /* (num_chunks) SUSPECT: a reader found zeros there */
    _Atomic bool whole;            /* all chunks are filled, as far as is known */
    int num_readers;
    plim__droppable_reader_t *readers; /* (num_readers) */
    _Atomic int64_t target;            /* chunks that may be filled */
    _Atomic int64_t end;  /* chunks from here on are released; changed under the lock */
    pthread_mutex_t lock; /* held while filling; lowering the target never waits for it */
} plim__droppable_t;

/* Reads the content of [at, at + size) again, to its place, as worker `worker` of the owner. */
typedef plim_status_t (*plim__droppable_fill_fn)(void *context, int worker, int64_t at,
                                                 size_t size);

/*
 * Carves the memory, which should be the arena's first object, and its tables; all chunks are
 * empty. Call plim__droppable_end before the arena ends, except for a counting arena.
 */
void plim__droppable_carve(plim__arena_t *arena, size_t bytes, int num_readers,
                           plim__droppable_t *memory_out);
void plim__droppable_end(plim__droppable_t *memory); /* a zeroed one is harmless */

/*
 * Fills all chunks before the first use, with at most `threads` threads; workers are numbered from
 * 0. An owner that fills the memory itself does so between _begin and _end. PLIM_ERR_STOPPED, and
 * errors of `fill`.
 */
plim_status_t plim__droppable_fill(plim__droppable_t *memory, const plim_job_t *job, int threads,
                                   const char *phase, plim__droppable_fill_fn fill, void *context);
void plim__droppable_fill_begin(plim__droppable_t *memory);
void plim__droppable_fill_end(plim__droppable_t *memory);

/*
 * Fills lost chunks and chunks that the target allows again, lowest first, while memory allows and
 * for at most `nanoseconds`. One thread at a time, outside of sections; others may read.
 */
plim_status_t plim__droppable_refresh(plim__droppable_t *memory, int worker, int64_t nanoseconds,
                                      plim__droppable_fill_fn fill, void *context);

/*
 * Limits the cache to its first `bytes` bytes. Chunks behind them are released at once, or by the
 * refresh that is under way; a refresh fills them again after the limit was raised. Any thread, one
 * at a time.
 */
void plim__droppable_limit(plim__droppable_t *memory, size_t bytes);

/* Bytes of filled chunks; the kernel may have taken some of their pages. Any thread. */
size_t plim__droppable_filled_bytes(const plim__droppable_t *memory);

/* Reader `reader` begins to read, one thread at a time for each number. True when all was filled:
 * then no part needs plim__droppable_has before plim__droppable_leave. */
static inline bool plim__droppable_enter(plim__droppable_t *memory, int reader)
{
    _Atomic uint64_t *section = &memory->readers[reader].section;
    atomic_store(section, atomic_load_explicit(section, memory_order_relaxed) + 1);
    return atomic_load(&memory->whole);
}

static inline void plim__droppable_leave(plim__droppable_t *memory, int reader)
{
    _Atomic uint64_t *section = &memory->readers[reader].section;
    atomic_store(section, atomic_load_explicit(section, memory_order_relaxed) + 1);
}

/* Whether [at, at + size), at least a byte, may be read in this section. Outside of sections: as
 * far as is known. */
static inline bool plim__droppable_has(const plim__droppable_t *memory, int64_t at, int64_t size)
{
    const int64_t last = (at + size - 1) / (int64_t)PLIM__DROPPABLE_CHUNK;
    for (int64_t chunk = at / (int64_t)PLIM__DROPPABLE_CHUNK; chunk <= last; chunk++)
        if (atomic_load(&memory->states[chunk]) == PLIM__CHUNK_EMPTY)
            return false;
    return true;
}

/* A reader found zeros at `at`: the next refresh looks there. */
void plim__droppable_miss(plim__droppable_t *memory, int64_t at);

/* Orders the loads before it before those after it. x86, the only architecture that CMake accepts,
 * never reorders loads, so only the compiler is told. */
static inline void plim__droppable_copied(void)
{
    __asm__ volatile("" ::: "memory");
}

#endif
