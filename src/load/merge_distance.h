/*
 * The merge distance: two reads closer than this are cheaper as one transfer. A transfer of s bytes
 * takes call + s * byte seconds, so the merge distance is call / byte.
 */
#ifndef PLIM_LOAD_MERGE_DISTANCE_H
#define PLIM_LOAD_MERGE_DISTANCE_H

#include "load/plan_data.h"

/* The merge distance, between a page and 64 KiB, from the seconds that reads of these two sizes
 * take. */
#define PLIM__MERGE_SMALL (4 << 10)
#define PLIM__MERGE_LARGE (64 << 10)
size_t plim__merge_distance_of(double small_seconds, double large_seconds);

/*
 * Measures it in about a tenth of a second, by reads at random places of the larger file that the
 * plan leaves on disk. Returns the plan's own figure when the dataset is small or the reads fail.
 * Memory: 9 MiB a thread, released before it returns.
 */
size_t plim__merge_distance_measure(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim__load_plan_t *plan);

#endif
