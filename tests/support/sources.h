/* Sources whose caches hold all rows, or all lists. */
#ifndef PLIM_TESTS_SOURCES_H
#define PLIM_TESTS_SOURCES_H

#include "source/rows.h"
#include "source/topology.h"

static inline plim__source_params_t test_all_rows(int workers)
{
    return (plim__source_params_t){.workers = workers, .depth = 8, .all = true};
}

static inline plim_status_t test_rows_cached(const plim_job_t *job, const plim_dataset_t *dataset,
                                             plim__rows_t **source_out)
{
    const plim__source_params_t params = test_all_rows(4);
    return plim__rows_disk_create(job, dataset, &params, source_out);
}

static inline plim__source_params_t test_all_lists(int workers)
{
    return (plim__source_params_t){.workers = workers, .depth = 8, .all = true};
}

static inline plim_status_t test_lists_cached(const plim_job_t *job, const plim_dataset_t *dataset,
                                              const plim__offsets_t *offsets, int workers,
                                              plim__topology_t **source_out)
{
    const plim__source_params_t params = test_all_lists(workers);
    return plim__topology_disk_create(job, dataset, offsets, &params, source_out);
}

#endif
