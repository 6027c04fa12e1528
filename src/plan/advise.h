/* Advice for the one who was refused; plim_train_advise gives it in full. */
#ifndef PLIM_PLAN_ADVISE_H
#define PLIM_PLAN_ADVISE_H

#include "store/dataset.h"

#include <plimsoll/train.h>

#define PLIM__ADVICE_TEXT 512

/* ", or --hidden 128, or --batch 256"; "" when nothing would help. */
void plim__advise_text(const plim_job_t *job, const plim_dataset_t *dataset,
                       const plim_training_t *training, const plim_plan_params_t *wishes,
                       char text_out[PLIM__ADVICE_TEXT]);

#endif
