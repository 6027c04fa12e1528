/* Runs for tests: a world with a directory and a job, and a model of three tensors. */
#ifndef PLIM_TESTS_RUN_H
#define PLIM_TESTS_RUN_H

#include "support/harness.h"

#include "train/run.h"

enum { NUM_PARAMETERS = 3, VALUES = 12 };

/* A weight, a bias and a buffer that is not learnt. */
typedef struct model {
    plim__parameter_t parameters[NUM_PARAMETERS];
    float values[NUM_PARAMETERS][3][VALUES]; /* value, first and second moment */
    float gradients[NUM_PARAMETERS][VALUES];
} model_t;

/* All values, from `start` on. The parameters point into the model: it must not move. */
void model_make(model_t *model, float start, int num_moments);

typedef struct world {
    plim_job_t job;
    char directory[512];
    char path[600]; /* of the run in it */
    plim_dataset_info_t dataset;
    plim_training_t training;
    char log[4096]; /* what the job logged */
} world_t;

/* Settings are PLIM_TRAINING_INIT. The world must not move. */
void world_make(world_t *world);
void world_end(world_t *world);

plim_status_t create_run(world_t *world, plim__run_t **run_out);
plim_status_t open_run(world_t *world, plim__run_t **run_out);

/* Creates the run, or opens it, and closes it again; both must succeed. */
void make_run(world_t *world);
void reopen_run(world_t *world);

/* Of files in the run's directory. */
void path_in(const world_t *world, const char *name, char path_out[700]);
int64_t size_of(const world_t *world, const char *name); /* -1: there is none */
void append_raw(const world_t *world, const char *name, const char *text);
void replace_text(const world_t *world, const char *name, const char *from, const char *to);

/* Takes the seal off run.json, as if an older version had written it. */
void unseal(const world_t *world);

/* Flips one bit of a file. */
void flip_bit(const char *path, int64_t bit);

/* Fails when the last error does not hold these words. */
void assert_says(const char *words);

#endif
