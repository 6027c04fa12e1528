/* One epoch of batches: cc epoch.c $(pkg-config --cflags --libs plimsoll); ./a.out DATASET */
#include <plimsoll/plimsoll.h>

#include <inttypes.h>
#include <stdio.h>

static plim_status_t run_epoch(plim_stream_t *stream)
{
    plim_batch_t *batch;
    plim_status_t status = plim_stream_start(stream, 0, 0);
    while (status == PLIM_OK && (status = plim_stream_next(stream, -1, &batch)) == PLIM_OK) {
        if (batch == NULL)
            return PLIM_OK;
        (void)printf("step %" PRId64 ": %" PRId64 " seeds, %" PRId64 " nodes, edges", batch->step,
                     batch->num_seeds, batch->num_nodes);
        for (int i = batch->num_blocks - 1; i >= 0; i--) /* as a model runs them */
            (void)printf(" %" PRId64, batch->blocks[i].num_edges);
        (void)printf("%s\n", batch->last_part ? "" : ", in parts");
        plim_batch_release(batch);
    }
    return status;
}

int main(int argc, char **argv)
{
    static plim_limits_t limits = PLIM_LIMITS_INIT;
    plim_recipe_t recipe = PLIM_RECIPE_INIT; /* 1024 seeds, 10 neighbours at each of 2 hops */
    plim_job_params_t params = PLIM_JOB_PARAMS_INIT;
    plim_job_t *job = NULL;
    plim_dataset_t *dataset = NULL;
    plim_plan_t *plan = NULL;
    const plim_stream_params_t training = PLIM_STREAM_PARAMS_INIT;
    plim_loader_t *loader = NULL;
    plim_stream_t *stream = NULL;
    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s DATASET\n", argv[0]);
        return 2;
    }
    plim_status_t status = plim_limits_discover(NULL, &limits);
    params.line = limits.memory[limits.line].value;
    if (status == PLIM_OK)
        status = plim_job_create(&params, &job);
    if (status == PLIM_OK)
        status = plim_dataset_open(job, argv[1], &dataset);
    if (status == PLIM_OK)
        status = plim_load_plan(job, dataset, &recipe, NULL, &plan);
    if (status == PLIM_OK)
        status = plim_loader_create(job, dataset, plan, &loader);
    if (status == PLIM_OK)
        status = plim_loader_stream(loader, &training, &stream);
    if (status == PLIM_OK)
        status = run_epoch(stream);
    if (status != PLIM_OK)
        (void)fprintf(stderr, "%s\n", plim_last_error());
    plim_stream_release(stream);
    plim_loader_release(loader);
    plim_plan_release(plan);
    plim_dataset_release(dataset);
    plim_job_release(job);
    return status != PLIM_OK;
}
