/*
 * What stands under the line besides our arenas: the process as it was found, and one reserve for
 * everything that comes later and is not ours (heaps and code of libraries, page tables and other
 * kernel charges).
 */
#ifndef PLIM_MEM_FOOTPRINT_H
#define PLIM_MEM_FOOTPRINT_H

#include <stdint.h>

/*
 * What the process is taken to hold, and how many threads it is taken to have, where a result must
 * not follow from a measurement: batches are cut, and cached rows chosen, by these. The command
 * line's process stays below it with oneDNN loaded (about 15 MiB).
 */
#define PLIM__NOMINAL_PROCESS ((int64_t)24 << 20)
#define PLIM__NOMINAL_THREADS 4

/* Bytes that this process has in memory now (VmRSS). */
int64_t plim__footprint_process(void);

/*
 * The reserve under a line: 3 % of it, at least 32 MiB and 1 MiB for each thread, at most 2 GiB
 * unless the threads alone need more. Without a line (PLIM_LINE_NONE) it is the least.
 */
int64_t plim__footprint_reserve(int64_t line_bytes, int threads);

/* The smallest line under which so many bytes fit beside its reserve. */
int64_t plim__footprint_minimum(int64_t bytes, int threads);

/*
 * What other processes hold, so that it is not there to be used: for each control group above this
 * process, its limit less the unreclaimable memory of its other processes bounds what is left.
 * Returns by how much that is below the line; 0 when it is not, or when the line is above a limit:
 * then the job is planned for another machine. `root` as for plim__kernel_read.
 */
int64_t plim__footprint_neighbours(const char *root, int64_t line_bytes);

#endif
