/*
 * The window builder: a thread that prepares the next window of batches while the workers build
 * batches from the current one.
 */
#ifndef PLIM_LOAD_WINDOW_BUILDER_H
#define PLIM_LOAD_WINDOW_BUILDER_H

#include "load/load_sources.h"
#include "load/slot_ring.h"

typedef struct plim__window_builder plim__window_builder_t;

/* Bytes of the builder itself, without its windows. */
size_t plim__window_builder_estimate(const plim_dataset_info_t *info,
                                     const plim__load_plan_t *plan);

/* Context and ring must outlive the builder. *builder_out is set also after an error, to be
 * destroyed. */
plim_status_t plim__window_builder_create(plim__load_context_t *context, plim__slot_ring_t *ring,
                                          plim__window_builder_t **builder_out);

/* Joins the thread: ring->ending is true. NULL is harmless. */
void plim__window_builder_destroy(plim__window_builder_t *builder);

/* Turns to the new run while no worker builds batches. `stale`: cached rows that windows rely on
 * were released, so no window is used again. Lock held; may release it meanwhile. */
void plim__window_builder_start(plim__window_builder_t *builder, bool stale);

/* Forgets the windows of a stream that ends. */
void plim__window_builder_forget(plim__window_builder_t *builder, const plim_stream_t *stream);

/* The sources of a microbatch's batch; and to be called once a microbatch was built. Any thread. */
plim__load_sources_t plim__window_builder_sources(plim__window_builder_t *builder,
                                                  int64_t sequence);
void plim__window_builder_built(plim__window_builder_t *builder, int64_t sequence);

/* Adds the number of windows and, where windows store rows, how many rows were needed and cached.
 */
void plim__window_builder_stats(plim__window_builder_t *builder, plim_load_stats_t *stats);

#endif
