/* timeline.jsonl: speed, times by part, and the kernel's memory counters of a run. */
#ifndef PLIM_TRAIN_TIMELINE_H
#define PLIM_TRAIN_TIMELINE_H

#include "train/run.h"
#include "train/trainer.h"

#include <plimsoll/meter.h>

/* Seconds and operations of matrix products since the run started. */
typedef struct plim__spent {
    double waiting;               /* waiting for batches */
    double sparse, dense, finish; /* time in the model */
    double loss;
    double update; /* updating weights */
    double evaluation;
    double saving;
    double dense_flops;
    int64_t lists, lists_cached, rows, rows_cached; /* that windows needed, and found in caches */
} plim__spent_t;

typedef struct plim__timeline {
    plim_meter_t *meter;                       /* NULL: no lines are written */
    int64_t at;                                /* time of the last line, or of the start */
    int64_t steps;                             /* batches so far … */
    int64_t steps_then;                        /* … and at the last line */
    plim__spent_t spent;                       /* at the last line */
    double evaluation_seconds, saving_seconds; /* so far */
} plim__timeline_t;

/* Writes the line of a plan: the accounts in the phase in which this process holds the most.
 * `began`: when this training or resume began, in seconds since 1970. */
plim_status_t plim__timeline_plan(const plim__train_plan_t *plan, const plim_job_t *job,
                                  double began, bool resumed, plim__run_t *run);

/* Starts a new interval: the next line covers the work from now on. */
void plim__timeline_restart(plim__timeline_t *timeline, const plim_trainer_t *trainer,
                            const plim_loader_t *loader);

/* Writes a line for the work since the last one; without `force` only after a second. */
plim_status_t plim__timeline_write(plim__timeline_t *timeline, const plim_trainer_t *trainer,
                                   const plim_loader_t *loader, plim__run_t *run, bool force);

#endif
