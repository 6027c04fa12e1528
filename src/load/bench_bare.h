/* The engine alone, for comparison: reads of given places with a full queue, and nothing else. */
#ifndef PLIM_LOAD_BENCH_BARE_H
#define PLIM_LOAD_BENCH_BARE_H

#include "io/engine.h"
#include "load/plan_data.h"
#include "mem/arena.h"

#include <plimsoll/bench.h>

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

/* plim_bench_gather_plan and plim_bench_gather by numbers alone. */
plim_status_t plim__bench_gather_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                      const plim_recipe_t *recipe, const plim_plan_params_t *wishes,
                                      plim__load_plan_t *plan_out);
plim_status_t plim__bench_gather(const plim_job_t *job, const plim_dataset_t *dataset,
                                 const plim__load_plan_t *plan, int64_t calls,
                                 plim_bench_result_t *gather_out, plim_bench_result_t *bare_out);

#endif
