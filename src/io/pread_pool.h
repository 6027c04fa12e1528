/*
 * A pool of threads that run operations with pread and pwrite. Its owner hands operations over and
 * collects them. Threads' stacks and all state are in memory of the owner.
 */
#ifndef PLIM_IO_PREAD_POOL_H
#define PLIM_IO_PREAD_POOL_H

#include "io/engine.h"
#include "mem/arena.h"

#define PLIM__PREAD_POOL_THREADS_MAX 32

typedef struct plim__pread_pool plim__pread_pool_t;

size_t plim__pread_pool_bytes(int threads);

/* Starts up to `threads` threads, at least one, in plim__pread_pool_bytes zeroed bytes on a page
 * boundary. PLIM_ERR_IO when no thread could be started. */
plim_status_t plim__pread_pool_start(plim__pread_pool_t *pool, int threads);

/* Ends the threads. No operation may be in flight. */
void plim__pread_pool_stop(plim__pread_pool_t *pool);

/* Hands over `count` operations, from `first` to `last`, linked by `next`. */
void plim__pread_pool_hand(plim__pread_pool_t *pool, plim__op_t *first, plim__op_t *last,
                           int count);

/* Waits until at least one operation has ended; returns the list of the ended ones. */
plim__op_t *plim__pread_pool_collect(plim__pread_pool_t *pool);

#endif
