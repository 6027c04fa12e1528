/*
 * Fits a loader under a line: chooses where topology and rows lie and how large windows, caches and
 * slots are, and adds up what the choices cost. Pure functions of their arguments.
 */
#ifndef PLIM_PLAN_LOAD_FIT_H
#define PLIM_PLAN_LOAD_FIT_H

#include "plan/load_facts.h"

/* True, and all of the plan but its minimum, when something fits under facts->line. */
bool plim__load_fit(const plim__load_facts_t *facts, plim__load_plan_t *plan_out);

/* Bytes under the line before the loader: facts->fixed and the line's reserve. */
int64_t plim__load_fixed(const plim__load_facts_t *facts);

/* Bytes that the client holds while the loader of that plan is made. */
int64_t plim__load_early(const plim__load_facts_t *facts, const plim__load_plan_t *plan);

/* The smallest line under which plim__load_fit is true. */
int64_t plim__load_minimum(const plim__load_facts_t *facts);

#endif
