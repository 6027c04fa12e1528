/* Small trainings for tests: a generated graph, runs in directories of their own, and what they
 * left there. */
#ifndef PLIM_TESTS_TRAINING_H
#define PLIM_TESTS_TRAINING_H

#include "support/harness.h"

#include <plimsoll/plimsoll.h>

/* Setup and teardown of a group: the graph, and the directory that everything lies in. */
int test_training_begin(void **state);
int test_training_end(void **state);

/* Where the graph is. */
const char *test_training_graph(void);

/* A recipe of two hops (an MLP: of none); everything else is the default. */
plim_training_t test_training_two_hops(plim_model_kind_t kind, int64_t hidden, int64_t batch_size,
                                       int64_t first, int64_t second);

/* Two layers of SAGE over drawn neighbourhoods, four epochs. */
plim_training_t test_training_small(void);

/* A loader and a trainer over the generated graph. */
typedef struct test_bed {
    plim_job_t job;
    plim_dataset_t *dataset;
    plim_plan_t *plan;
    plim_loader_t *loader;
    plim_trainer_t *trainer;
    int64_t count; /* of weights */
} test_bed_t;

void test_bed_open(int64_t line, const plim_training_t *training, const plim_plan_params_t *params,
                   test_bed_t *bed);
void test_bed_close(test_bed_t *bed);

/* How a run is made, beside its settings. */
typedef struct test_way {
    const char *dataset; /* NULL: the generated graph */
    int threads;
    int64_t line;
    plim_plan_params_t wanted;
    plim_train_event_fn events;
    void *user;
    const volatile int *stop;
    bool resume;
} test_way_t;

extern const test_way_t test_plain_way;

/* Where something of that name lies, or would. */
void test_training_path(const char *name, char path_out[700]);

/* Plans and trains the run of that name, or resumes it. */
plim_status_t test_train(const char *name, const plim_training_t *training, const test_way_t *way,
                         plim_train_result_t *result_out);

/* Weights, moments, best weights and metrics of two runs are the same bits. */
void test_assert_same_run(const char *one, const char *other);

#endif
