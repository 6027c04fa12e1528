/* How evaluation and prediction with the weights of a run begin. */
#ifndef PLIM_TRAIN_INFERENCE_H
#define PLIM_TRAIN_INFERENCE_H

#include "train/session.h"

#include <plimsoll/train.h>

/* Joins the other ranks and reads the settings of a run. All ranks do this; their settings must be
 * equal, and so must their requests (lines, as for plim__run_settings_agree). The caller closes the
 * session's peers, also after an error. */
plim_status_t plim__inference_begin(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const char *run, const char *request,
                                    plim_train_event_fn events, void *user,
                                    plim__session_t *session_out);

/* Waits for all ranks; all return an error of one. */
plim_status_t plim__inference_agree(const plim__session_t *session, plim_status_t status);

/* Reads the weights; copies rank 0's to all ranks. */
plim_status_t plim__inference_load_weights(plim__session_t *session, const char *run,
                                           const plim_inference_t *inference);
plim_status_t plim__inference_share_weights(plim__session_t *session);

/* For exact passes: creates a model with only its parameters, and a team of one. Rank 0 reads the
 * weights for all ranks. */
plim_status_t plim__inference_open_exact(plim__session_t *session, const char *run,
                                         const plim_inference_t *inference);
plim__exact_params_t plim__inference_exact_params(const plim__session_t *session, const char *run,
                                                  const plim_inference_t *inference,
                                                  bool embeddings);

#endif
