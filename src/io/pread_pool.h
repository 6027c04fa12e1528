/*
 * A pool of threads that do operations with pread and pwrite. One owner hands operations over and
 * collects them; the threads, their stacks and all bookkeeping lie in the owner's arena.
 */
#ifndef PLIM_IO_PREAD_POOL_H
#define PLIM_IO_PREAD_POOL_H

#include "io/engine.h"
#include "mem/arena.h"

#define PLIM__PREAD_POOL_THREADS_MAX 32

typedef struct plim__pread_pool plim__pread_pool_t;

size_t plim__pread_pool_estimate(int threads);

/* Starts up to `threads` threads, at least one. PLIM_ERR_IO when not one could be started. */
plim_status_t plim__pread_pool_start(plim__arena_t *arena, int threads,
                                     plim__pread_pool_t **pool_out);

/* Ends the threads; nothing may be in flight. */
void plim__pread_pool_stop(plim__pread_pool_t *pool);

/* Hands over the list of `count` operations that begins at `first`, linked by `next`. */
void plim__pread_pool_hand(plim__pread_pool_t *pool, plim__op_t *first, plim__op_t *last,
                           int count);

/* Waits until at least one operation has ended; returns the list of those that have. */
plim__op_t *plim__pread_pool_collect(plim__pread_pool_t *pool);

#endif
