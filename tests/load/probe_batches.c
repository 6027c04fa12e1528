/* probe_batches DIR BATCH SEED EPOCHS: the training seeds of each batch in the order in which they
 * are trained, a line each: epoch, step, ids (of nodes, which for many graphs are the first nodes
 * of each). */
#include "base/fail.h"
#include "load/loader.h"
#include "plan/load_plan.h"
#include "support/harness.h"
#include "support/loader.h"

#include <plimsoll/plimsoll.h>
#include <stdio.h>
#include <stdlib.h>

static plim_status_t print_epoch(plim_loader_t *loader, int64_t epoch)
{
    plim_batch_t *batch;
    PLIM_TRY(plim_stream_start(test_stream(loader, PLIM_TRAIN), epoch, 0));
    for (;;) {
        PLIM_TRY(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &batch));
        if (batch == NULL)
            return PLIM_OK;
        (void)printf("%lld %lld", (long long)epoch, (long long)batch->step);
        for (int64_t i = 0; i < batch->num_seeds; i++) {
            const int64_t at =
                batch->graph_indptr != NULL ? ((const int64_t *)batch->graph_indptr)[i] : i;
            (void)printf(" %lld", (long long)((const int64_t *)batch->nodes)[at]);
        }
        (void)printf("\n");
        plim_batch_release(batch);
    }
}

static plim_status_t print_all(const plim_job_t *job, char **argv)
{
    plim_dataset_t *dataset;
    plim_loader_t *loader;
    plim__load_plan_t plan;
    plim_recipe_t recipe = PLIM_RECIPE_INIT;
    PLIM_TRY(plim_dataset_open(job, argv[1], &dataset));
    recipe.num_hops = 0;
    recipe.index_type = PLIM_I64;
    recipe.batch_size = atoll(argv[2]);
    recipe.seed = (uint64_t)atoll(argv[3]);
    PLIM_TRY(plim__load_plan(job, dataset, &recipe, NULL, &plan));
    PLIM_TRY(plim__loader_create(job, dataset, &plan, &loader));
    for (int64_t epoch = 0; epoch < atoll(argv[4]); epoch++)
        PLIM_TRY(print_epoch(loader, epoch));
    plim_loader_release(loader);
    plim_dataset_release(dataset);
    return PLIM_OK;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    const plim_status_t status = print_all(&job, argv);
    if (status != PLIM_OK)
        (void)fprintf(stderr, "%s\n", plim_last_error());
    test_job_end(&job);
    return status == PLIM_OK ? 0 : 1;
}
