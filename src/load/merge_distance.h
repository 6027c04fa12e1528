/* What one more transfer costs on this machine's disk, in bytes moved meanwhile. */
#ifndef PLIM_LOAD_MERGE_DISTANCE_H
#define PLIM_LOAD_MERGE_DISTANCE_H

#include "load/plan_data.h"

/* The gap, between a page and 64 KiB, from the seconds that reads of the two sizes take: a read of
 * s bytes takes call + s * byte, and the gap is call / byte. */
#define PLIM__MERGE_SMALL (4 << 10)
#define PLIM__MERGE_LARGE (64 << 10)
size_t plim__merge_distance_of(double small_seconds, double large_seconds);

/*
 * Two wanted places closer than this are cheaper read as one: where little is wanted reads stay
 * single pages, where much is they grow together into a sweep. Measured by two bursts of reads at
 * random places of the larger file that the plan leaves on disk, small and large ones, which takes
 * a tenth of a second; the plan's own figure where nothing large lies on disk or the bursts cannot
 * be made. Memory: 9 MiB a thread, given back.
 */
size_t plim__merge_distance_measure(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim__load_plan_t *plan);

#endif
