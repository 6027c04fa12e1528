/* The dataset's lists and rows, in memory or on disk as planned. */
#include "base/fail.h"
#include "load/loader.h"

static plim_status_t open_topology(plim_loader_t *loader)
{
    const plim__load_plan_t *plan = &loader->plan;
    plim__topology_disk_params_t params = loader->params.lists;
    if (plan->topology_in_memory)
        return plim__topology_memory_create(loader->asked, loader->dataset, loader->offsets,
                                            loader->params.num_sources, &loader->base.topology);
    if (loader->access.lists.count > 0)
        params.hot = &loader->access.lists;
    else
        params.cache_bytes = 0;
    return plim__topology_disk_create(loader->asked, loader->dataset, loader->offsets, &params,
                                      &loader->base.topology);
}

static plim_status_t open_rows(plim_loader_t *loader)
{
    plim__rows_disk_params_t params = loader->params.rows;
    if (!loader->params.with_rows)
        return PLIM_OK;
    if (loader->plan.rows_in_memory)
        return plim__rows_memory_create(loader->asked, loader->dataset, &loader->base.rows);
    params.cache_key = plim__load_cache_key(loader->info, &loader->plan.recipe);
    params.held = loader->plan.held;
    if (loader->access.rows.count > 0)
        params.hot = &loader->access.rows;
    else
        params.cache_bytes = 0;
    return plim__rows_disk_create(loader->asked, loader->dataset, &params, &loader->base.rows);
}

plim_status_t plim__load_sources_open(plim_loader_t *loader)
{
    PLIM_TRY(plim__offsets_create(loader->asked, loader->dataset, &loader->offsets));
    PLIM_TRY(plim__load_cache_choose(loader));
    PLIM_TRY(open_topology(loader));
    return open_rows(loader);
}

void plim__load_sources_close(plim_loader_t *loader)
{
    plim__rows_destroy(loader->base.rows);
    plim__topology_destroy(loader->base.topology);
    plim__access_free(&loader->access);
    plim__offsets_destroy(loader->offsets);
}
