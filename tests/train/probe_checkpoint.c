/* probe_checkpoint save DIR: a run in DIR/run with both checkpoints, whose values are known;
 * probe_checkpoint load DIR FILE: a file's weights as text, one tensor a line. */
#include "support/run.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int save(world_t *world, model_t *model)
{
    plim__run_t *run;
    plim__position_t position = {.epoch = 2, .step = 5, .best_epoch = 1, .loss_sum = 0.1};
    position.best_score[1] = 0.75;
    assert_ok(create_run(world, &run));
    assert_ok(plim__run_save_best(run, model->parameters, NUM_PARAMETERS, &position));
    assert_ok(plim__run_save(run, model->parameters, NUM_PARAMETERS, &position));
    plim__run_close(run);
    return 0;
}

static int load(world_t *world, const char *file, model_t *model)
{
    if (plim__run_weights(&world->job, AT_FDCWD, world->path, file, model->parameters,
                          NUM_PARAMETERS) != PLIM_OK) {
        (void)fprintf(stderr, "%s\n", plim_last_error());
        return 1;
    }
    for (int i = 0; i < NUM_PARAMETERS; i++) {
        (void)printf("%s", model->parameters[i].name);
        for (int64_t j = 0; j < model->parameters[i].count; j++)
            (void)printf(" %a", (double)model->parameters[i].value[j]);
        (void)printf("\n");
    }
    return 0;
}

int main(int argc, char **argv)
{
    static world_t world = {.training = PLIM_TRAINING_INIT};
    static model_t model;
    if (argc < 3)
        return 2;
    world.job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    memcpy(world.dataset.fingerprint, "0123456789abcdef", 17);
    (void)snprintf(world.directory, sizeof world.directory, "%s", argv[2]);
    (void)snprintf(world.path, sizeof world.path, "%s/run", argv[2]);
    model_make(&model, 1, 2);
    int code = argc > 3 ? load(&world, argv[3], &model) : save(&world, &model);
    test_job_end(&world.job);
    return code;
}
