/* How large the batches of a training are, for estimates outside of the library. */
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/params.h"
#include "plan/plan_settings.h"
#include "plan/statistics.h"

/* Measured where the probe allows it, else expected. */
static plim__load_size_t size_of(const plim__manifest_t *manifest, const plim__probe_t *probe,
                                 const plim_recipe_t *recipe, int64_t seeds)
{
    return probe->count >= 2 ? plim__load_size_probed(probe, seeds)
                             : plim__load_size_expected(manifest, recipe, seeds);
}

PLIM_API plim_status_t plim_batch_sizes(const plim_job_t *job, const plim_dataset_t *dataset,
                                        const plim_training_t *training, int count,
                                        plim_batch_size_t *sizes)
{
    plim_training_t settings = PLIM_TRAINING_INIT;
    plim__probe_t probe = {0}, before_probe = {0};
    PLIM_ENTER(job);
    PLIM_TRY(plim__dataset_check(dataset));
    PLIM_TRY(plim__params_take(training, "plim_training_t", &settings, sizeof settings));
    PLIM_TRY(plim__plan_settings_check(dataset, &settings));
    const plim__manifest_t *manifest = plim__dataset_manifest(dataset);
    const plim_recipe_t *recipe = &settings.recipe;
    const int hops = recipe->num_hops;
    plim_recipe_t shorter = *recipe;
    shorter.num_hops = hops - 1;
    if (hops > 0)
        PLIM_TRY(plim__statistics_probe(job, dataset, recipe, true, &probe));
    if (hops > 1 && probe.count > 0)
        PLIM_TRY(plim__statistics_probe(job, dataset, &shorter, true, &before_probe));
    if (probe.count < 2)
        before_probe.count = 0;
    for (int i = 0; i < count; i++) {
        plim_batch_size_t *size = &sizes[i];
        const plim__load_size_t all = size_of(manifest, &probe, recipe, size->seeds);
        plim__load_size_t before = {.nodes = size->seeds};
        if (hops > 1)
            before = size_of(manifest, &before_probe, &shorter, size->seeds);
        size->nodes = plim__min_i64(all.nodes, manifest->info.num_nodes);
        /* Places of offsets count as edges there: one for each node that drew, and one a hop. */
        size->edges = hops > 0 ? plim__max_i64(all.edges - before.nodes - hops, 0) : 0;
    }
    return PLIM_OK;
}
