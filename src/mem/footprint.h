/* What is taken under the line before the first arena. */
#ifndef PLIM_MEM_FOOTPRINT_H
#define PLIM_MEM_FOOTPRINT_H

#include "base/job.h"

#include <stdint.h>

/*
 * What this process costs by itself under a line of line_bytes: its own memory now, its libraries,
 * and what the kernel takes for it and charges to its control group. The same from run to run.
 */
int64_t plim__footprint_process(int64_t line_bytes);

/* The part of it that grows with the line: page tables, and what the kernel charges in advance. */
int64_t plim__footprint_growth(int64_t line_bytes);

/* The part of it that is the kernel's: that, and its structures. */
int64_t plim__footprint_kernel(int64_t line_bytes);

/* The least line under which so many bytes fit beside that part. */
int64_t plim__footprint_minimum(int64_t bytes);

/*
 * What others hold, so that it is not there to be used: for each control group above this process,
 * its limit less the unreclaimable memory of its other processes bounds what is left. Returns by
 * how much that is below the line; 0 when it is not, or when the line is above a limit: then what
 * it is for runs elsewhere. `root` as for plim__kernel_read.
 */
int64_t plim__footprint_neighbours(const char *root, int64_t line_bytes);

/* A warning that code gives way; `least` is the line from which on it need not. */
void plim__footprint_log_code(const plim_job_t *job, int64_t least);

#endif
