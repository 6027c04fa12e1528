/* What would fit, if the result might change. */
#include "plan/settings.h"

#include "base/fail.h"

PLIM_API plim_status_t plim_train_advise(const plim_job_t *job, const plim_dataset_t *dataset,
                                         const plim_training_t *training,
                                         const plim_load_wishes_t *wishes, int capacity,
                                         plim_advice_t *advice_out, int *count_out)
{
    (void)job;
    (void)wishes;
    (void)capacity;
    (void)advice_out;
    PLIM_TRY(plim__settings_check(dataset, training));
    *count_out = 0;
    return PLIM_OK;
}
