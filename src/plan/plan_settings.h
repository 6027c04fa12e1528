/* Checks a training's settings against a dataset, and derives outputs and recipe from both. */
#ifndef PLIM_PLAN_PLAN_SETTINGS_H
#define PLIM_PLAN_PLAN_SETTINGS_H

#include "nn/model.h"
#include "store/dataset.h"

#include <plimsoll/train.h>

/* Copies a caller's settings, with defaults for fields that it does not know, and counts the pairs:
 * of the file, or the dataset's edges. Errors of plim__dataset_check, plim__links_file_describe;
 * PLIM_ERR_USAGE. */
plim_status_t plim__plan_settings_take(const plim_job_t *job, const plim_dataset_t *dataset,
                                       const plim_training_t *given, plim_training_t *training_out);

/* PLIM_ERR_USAGE names settings that do not fit together, and ones that would;
 * PLIM_ERR_UNSUPPORTED for graphs whose ids need 64 bits. */
plim_status_t plim__plan_settings_check(const plim_dataset_t *dataset,
                                        const plim_training_t *training);

/* Columns of the model's outputs. */
int64_t plim__plan_settings_outputs(const plim_dataset_info_t *info,
                                    const plim_training_t *training);

/* The links of PLIM_TASK_LINK; without pairs for another task. And the pairs of a batch with its
 * negatives, and its places. */
plim_links_t plim__plan_settings_links(const plim_training_t *training);
int64_t plim__plan_settings_pairs(const plim_training_t *training);
int64_t plim__plan_settings_places(const plim_training_t *training);

/* How pairs are scored; zeros for another task. */
plim__scorer_t plim__plan_settings_scorer(const plim_training_t *training);

/* The stream of training batches; of links it points to *links_out. */
plim_stream_params_t plim__plan_settings_stream(const plim_training_t *training,
                                                plim_links_t *links_out);

/* The recipe of the training's batches: what the model decides is set here. */
plim_recipe_t plim__plan_settings_recipe(const plim_dataset_info_t *info,
                                         const plim_training_t *training);

/* The columns of edges that the model reads. */
plim__columns_t plim__plan_settings_columns(const plim_dataset_info_t *info,
                                            const plim_training_t *training);

/* Of a batch by that recipe, for the model. */
plim__batch_columns_t plim__plan_settings_batch(const plim_batch_t *batch);

/*
 * The stream of an evaluation of `split`, in order. With eval_fanout its batches have fewer seeds
 * where these reach more nodes than training's, so they need about as much memory. It follows from
 * the settings and dataset.json alone, so a score does not depend on the line.
 */
plim_stream_params_t plim__plan_settings_evaluation(const plim_dataset_info_t *info,
                                                    const plim_training_t *training,
                                                    plim_split_t split);

/* Bits of the splits that are evaluated between epochs. */
unsigned plim__plan_settings_splits(const plim_training_t *training);

/* Whether scores are of drawn neighbourhoods: a fan-out of evaluation may leave neighbours out. */
bool plim__plan_settings_sampled(const plim_training_t *training);

/* Whether the model reads drawn neighbourhoods: a single graph, and not an MLP. */
bool plim__plan_settings_draws(const plim_dataset_info_t *info, const plim_training_t *training);

/* The loss and the metric, with PLIM_LOSS_AUTO and PLIM_METRIC_AUTO resolved. */
plim_loss_t plim__training_loss(const plim_dataset_info_t *info, const plim_training_t *training);
plim_metric_t plim__training_metric(const plim_dataset_info_t *info,
                                    const plim_training_t *training);

#endif
