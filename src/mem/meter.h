/* The meter on a recorded machine, for tests. */
#ifndef PLIM_MEM_METER_H
#define PLIM_MEM_METER_H

#include <plimsoll/meter.h>

plim_status_t plim__meter_open_below(const plim_job_t *job, const char *root,
                                     plim_meter_t **meter_out);

#endif
