/* A dataset that is not there: what the generator would make of its options. */
#include "base/fail.h"
#include "ingest/generate_shape.h"

PLIM_API plim_status_t plim_dataset_imagine(const plim_job_t *job,
                                            const plim_generate_options_t *options,
                                            plim_dataset_t **dataset_out)
{
    plim__shape_t shape;
    (void)job;
    (void)dataset_out;
    PLIM_TRY(plim__shape_resolve(options, &shape));
    return plim__fail(PLIM_ERR_UNSUPPORTED, "%s: it must be generated first", shape.name);
}
