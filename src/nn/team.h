/*
 * The threads that compute. They start once and sleep between runs, so that a loader's threads can
 * use the processors. The caller is one of them; it does short work alone.
 *
 * Results must not depend on which thread runs a task: a sum over rows is split into tasks by the
 * number of rows alone, and the tasks are added in their order. Any number of threads gives the
 * same bits.
 *
 * Work takes subnormal numbers as 0 and makes none: arithmetic on them is up to a hundred times
 * slower, and gradients and moments near 0 would be full of them at the end of a training.
 */
#ifndef PLIM_NN_TEAM_H
#define PLIM_NN_TEAM_H

#include "base/job.h"

#include <stddef.h>
#include <stdint.h>

typedef struct plim__team plim__team_t;

/* Memory of a team, stacks included. */
size_t plim__team_estimate(int threads);

/* `threads` in all, the caller's included; at least 1, at most PLIM__THREADS_MAX. PLIM_ERR_BUDGET,
 * PLIM_ERR_NOMEM. The team is smaller if not all threads can be started. */
plim_status_t plim__team_create(plim_ledger_t *ledger, int threads, plim__team_t **team_out);
void plim__team_destroy(plim__team_t *team);

/* The same on a job's ledger; logs when fewer threads could be started. */
plim_status_t plim__team_create_for(const plim_job_t *job, int threads, plim__team_t **team_out);

/* Workers are numbered from 0 (the caller) to this less one. */
int plim__team_size(const plim__team_t *team);

/*
 * work(context, worker, task) once for each task 0 … tasks-1, in any order, at once; returns
 * when all are done. `cost` is the rough time of one task in nanoseconds: if all tasks together
 * are short, the caller does everything. One caller at a time; `work` must not call it.
 */
void plim__team_run(plim__team_t *team, int64_t tasks, int64_t cost,
                    void (*work)(void *context, int worker, int64_t task), void *context);

#endif
