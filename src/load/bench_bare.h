/* The engine alone, for comparison: reads of given places with a full queue, and nothing else. */
#ifndef PLIM_LOAD_BENCH_BARE_H
#define PLIM_LOAD_BENCH_BARE_H

#include "io/engine.h"
#include "mem/arena.h"

/* One thread's engine and buffers. */
typedef struct plim__bare_lane plim__bare_lane_t;

size_t plim__bare_lane_estimate(plim_io_engine_t kind, int depth, size_t bytes);
plim_status_t plim__bare_lane_create(const plim_job_t *job, int depth, size_t bytes,
                                     plim__bare_lane_t **lane_out);
void plim__bare_lane_destroy(plim__bare_lane_t *lane);

/*
 * Reads [places[i], places[i] + bytes) of the file, widened to its alignment, each for itself and
 * in that order; the lane was made for that many bytes. Adds the transfers and what they moved.
 */
plim_status_t plim__bare_lane_read(plim__bare_lane_t *lane, const plim__file_t *file,
                                   const int64_t *places, int64_t count, size_t bytes,
                                   int64_t *transfers, int64_t *bytes_read);

#endif
