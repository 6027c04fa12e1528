/* timeline.jsonl: how fast a run goes, where its time goes, and what the kernel says of its memory.
 */
#ifndef PLIM_TRAIN_TIMELINE_H
#define PLIM_TRAIN_TIMELINE_H

#include "train/run.h"
#include "train/trainer.h"

#include <plimsoll/meter.h>

/* Seconds since the run was started, and products' operations. */
typedef struct plim__spent {
    double waiting;               /* for batches */
    double sparse, dense, finish; /* in the model */
    double loss;
    double update; /* of the weights */
    double evaluation;
    double saving;
    double dense_flops;
} plim__spent_t;

typedef struct plim__timeline {
    plim_meter_t *meter;                       /* NULL: no lines are written */
    int64_t at;                                /* clock of the last line, or of the start */
    int64_t steps;                             /* batches until now … */
    int64_t steps_then;                        /* … and then */
    plim__spent_t spent;                       /* then */
    double evaluation_seconds, saving_seconds; /* until now */
} plim__timeline_t;

/* Begins anew: the next line is for what is done from now on. */
void plim__timeline_restart(plim__timeline_t *timeline, const plim_trainer_t *trainer,
                            const plim_loader_t *loader);

/* A line for what was done since the last one; without `force` only after a second. */
plim_status_t plim__timeline_write(plim__timeline_t *timeline, const plim_trainer_t *trainer,
                                   const plim_loader_t *loader, plim__run_t *run, bool force);

#endif
