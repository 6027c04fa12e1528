/* What prediction takes after training: a process of its own, under the same line. */
#ifndef PLIM_PLAN_PREDICT_COST_H
#define PLIM_PLAN_PREDICT_COST_H

#include "load/plan_data.h"
#include "store/dataset.h"

#include <plimsoll/train.h>

typedef struct plim__predict_cost {
    int64_t minimum;    /* the least line under which it runs; 0: not known */
    int64_t disk_bytes; /* of layers in between and of what is written */
} plim__predict_cost_t;

/*
 * Bytes of buffers and layers in memory for all nodes' exact prediction under the ledger's line; 0
 * when they do not fit. Asked before anything of the prediction stands on the ledger.
 */
int64_t plim__predict_exact_bytes(const plim_job_t *job, const plim_dataset_t *dataset,
                                  const plim_training_t *training);

/*
 * Enters all nodes' exact prediction (of an MLP, or of many graphs: that of the largest split) in
 * the plan's accounts, as phase PLIM__PHASE_PREDICT. The plan's loader says what is held before.
 * Where it does not fit under the plan's line its least is entered.
 */
void plim__predict_cost_enter(const plim_job_t *job, const plim_dataset_t *dataset,
                              const plim_training_t *training, plim__train_plan_t *plan,
                              plim__predict_cost_t *cost_out);

#endif
