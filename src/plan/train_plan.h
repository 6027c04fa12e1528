/* Plans of training, evaluation and prediction, as numbers, and the model that they are made for.
 */
#ifndef PLIM_PLAN_TRAIN_PLAN_H
#define PLIM_PLAN_TRAIN_PLAN_H

#include "infer/exact.h"
#include "load/plan_data.h"
#include "nn/decoder.h"
#include "nn/model.h"
#include "plan/statistics.h"

#include <plimsoll/train.h>

/*
 * Bytes of src/train that do not depend on the model: the trainer's tables, an open run's, and
 * those for writing a checkpoint besides plim__safetensors_estimate. The plan may not ask
 * src/train, which stands above it; a test compares.
 */
#define PLIM__TRAINER_BYTES ((size_t)256 << 10)

/* Maximum share of a run's time for saving after epochs: not every short epoch is saved. */
#define PLIM__SAVE_SHARE 0.05

/* The model for the largest part that a slot of the plan can hold. `training`: as in
 * plim__model_params_t; `workers`: the team's size. */
plim__model_params_t plim__train_model_params(const plim_dataset_info_t *info,
                                              const plim_training_t *settings,
                                              const plim__load_plan_t *plan, bool training,
                                              int workers);

/* The decoder with parameters of a training over links; max_pairs 0: it has no such decoder. */
plim__decoder_params_t plim__train_decoder_params(const plim_training_t *settings, int workers);

/* The model that holds parameters alone, for exact inference. */
plim__model_params_t plim__train_weights_params(const plim_dataset_info_t *info,
                                                const plim_training_t *settings);

/* Arrays of a trainer beside its model. Over a counting arena the pointers are NULL. */
typedef struct plim__train_scratch {
    float *doutputs; /* (max_seeds, num_outputs) gradient of the outputs */
    float *buffers;  /* the model's buffers as of the last update */
    float *group;    /* with shares: the gradients of the group's batches so far; else NULL */
    /* Of links, else NULL: (plim__plan_settings_pairs) of the pairs, then of the negatives. */
    float *scores, *labels, *dscores;
} plim__train_scratch_t;

plim__train_scratch_t plim__train_scratch_carve(plim__arena_t *arena,
                                                const plim__model_params_t *params,
                                                const plim_training_t *settings);

#define PLIM__MODEL_ACCOUNTS 8

/* Bytes of a training or (!training) an evaluation beside the loader, and account by account in
 * each phase (accounts_out may be NULL); saturates at INT64_MAX. */
int64_t plim__train_model_cost(const plim_job_t *job, const plim_dataset_info_t *info,
                               const plim_training_t *settings, const plim__load_plan_t *plan,
                               bool training,
                               plim__plan_account_t accounts_out[PLIM__MODEL_ACCOUNTS],
                               int *num_accounts_out);

/* Seeds that a training computes at a time if parts of `wanted` are asked for (0: whole batches):
 * at most a share. */
int64_t plim__train_part_seeds(const plim_dataset_info_t *info, const plim_training_t *training,
                               int64_t wanted);

/* Bytes of a training besides the plan's loader, to compare with the plan's model_bytes. */
int64_t plim__train_model_bytes(const plim_job_t *job, const plim_dataset_info_t *info,
                                const plim_training_t *training, const plim__train_plan_t *plan);

/* PLIM_ERR_USAGE if the job has more ranks than a batch has shares. */
plim_status_t plim__train_check_ranks(const plim_job_t *job, const plim_training_t *training);

/* A copy of the job whose callbacks are those of rank 0 alone: one rank logs for all. */
plim_job_t plim__train_job(const plim_job_t *job);

/* plim_train_plan, as numbers alone; a refusal names no other settings. */
plim_status_t plim__train_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                               const plim_training_t *training, const plim_plan_params_t *params,
                               plim__train_plan_t *plan_out);

/*
 * Alternatives, which advice compares: whether a training fits under `line`, and the smallest line
 * (else whole MiB above it) under which it does, 0 for none. `whole`: with whole batches; else they
 * may be cut into single seeds. Nothing is read or logged, and params->memory is not looked at.
 * `known`: sizes of the recipe's batches; NULL: those in the user's cache, else as dataset.json
 * says.
 */
bool plim__train_fits(const plim_job_t *job, const plim_dataset_t *dataset,
                      const plim_training_t *training, const plim_plan_params_t *params,
                      const plim__probe_t *known, int64_t line, bool whole);
int64_t plim__train_minimum(const plim_job_t *job, const plim_dataset_t *dataset,
                            const plim_training_t *training, const plim_plan_params_t *params,
                            const plim__probe_t *known, bool whole);

#define PLIM__ADVICE_TEXT 512

/* Changes of settings with which a refused training fits, ", or `hidden` 128, or `batch_size` 256";
 * "" when nothing would help. */
void plim__train_advice(const plim_job_t *job, const plim_dataset_t *dataset,
                        const plim_training_t *training, const plim_plan_params_t *params,
                        char text_out[PLIM__ADVICE_TEXT]);

/* Completes plan->expect, which is the loader's, for a whole training. `exact`: the cost of an
 * exact evaluation, or NULL. */
void plim__train_expect(const plim_dataset_t *dataset, const plim_training_t *training,
                        const plim__exact_cost_t *exact, plim__train_plan_t *plan);

/* The plan for a model that only computes forward. Batches may be cut whatever the norm. */
plim_status_t plim__evaluation_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim_training_t *training, plim__train_plan_t *plan_out);

/*
 * Bytes of buffers and layers in memory for all nodes' exact prediction under the ledger's line; 0
 * when they do not fit. To be asked before anything of the prediction is on the ledger.
 */
int64_t plim__predict_exact_bytes(const plim_job_t *job, const plim_dataset_t *dataset,
                                  const plim_training_t *training);

#endif
