#include "train/inference.h"

#include "base/fail.h"
#include "base/job.h"
#include "plan/plan_settings.h"
#include "plan/run_settings.h"
#include "train/run.h"

#include <string.h>

/* Reads a run's settings and checks them against the dataset. */
static plim_status_t read_run(const plim_job_t *job, const plim_dataset_t *dataset, const char *run,
                              plim_training_t *training_out)
{
    plim_run_info_t info = PLIM_RUN_INFO_INIT;
    const char *fingerprint = plim_dataset_info(dataset)->fingerprint;
    PLIM_TRY(plim_run_read(job, run, &info));
    if (strcmp(info.fingerprint, fingerprint) != 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s was trained on another dataset: its fingerprint is %s, and %s has %s",
                          run, info.fingerprint, plim__dataset_path(dataset), fingerprint);
    PLIM_TRY(plim__plan_settings_check(dataset, &info.training));
    if (plim__model_skips_loops(&info.training.model))
        PLIM_TRY(plim__statistics_loops(job, dataset, true));
    *training_out = info.training;
    return PLIM_OK;
}

plim_status_t plim__inference_agree(const plim__session_t *session, plim_status_t status)
{
    return plim__peers_agree(session->peers, PLIM__STAGE_EVALUATION, status, 0, NULL, NULL, NULL);
}

plim_status_t plim__inference_load_weights(plim__session_t *session, const char *run,
                                           const plim_inference_t *inference)
{
    PLIM_TRY(plim__run_weights(session->job, session->directory, run, inference->weights,
                               session->parameters, session->num_parameters));
    plim__model_changed(session->model);
    return PLIM_OK;
}

plim_status_t plim__inference_share_weights(plim__session_t *session)
{
    PLIM_TRY(plim__session_share_weights(session->peers, PLIM__STAGE_EVALUATION,
                                         plim__model_arrays(session->model)));
    plim__model_changed(session->model);
    return PLIM_OK;
}

/* Creates a model with only its parameters, and a team of one; rank 0 reads the weights. */
static plim_status_t create_exact(plim__session_t *session, const char *run,
                                  const plim_inference_t *inference)
{
    plim_ledger_t *ledger = session->job->ledger;
    PLIM_TRY(plim__team_create(ledger, 1, &session->team));
    session->params = plim__train_weights_params(session->info, &session->training);
    PLIM_TRY(plim__model_create(ledger, session->team, &session->params, &session->model));
    session->parameters = plim__model_parameters(session->model, &session->num_parameters);
    return plim__peers_rank(session->peers) == 0
               ? plim__inference_load_weights(session, run, inference)
               : PLIM_OK;
}

plim_status_t plim__inference_open_exact(plim__session_t *session, const char *run,
                                         const plim_inference_t *inference)
{
    PLIM_TRY(plim__inference_agree(session, create_exact(session, run, inference)));
    return plim__inference_share_weights(session);
}

plim__exact_params_t plim__inference_exact_params(const plim__session_t *session, const char *run,
                                                  const plim_inference_t *inference,
                                                  bool embeddings)
{
    plim__exact_params_t params = {.model = session->training.model,
                                   .columns = session->params.columns,
                                   .num_outputs = session->num_outputs,
                                   .parameters = session->parameters,
                                   .num_parameters = session->num_parameters,
                                   .embeddings = embeddings,
                                   .peers = session->peers,
                                   .scratch =
                                       inference->scratch != NULL ? inference->scratch : run};
    memcpy(params.fanout, session->training.recipe.fanout, sizeof params.fanout);
    return params;
}

plim_status_t plim__inference_begin(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const char *run, const char *request,
                                    plim_train_event_fn events, void *user,
                                    plim__session_t *session_out)
{
    plim_training_t training = PLIM_TRAINING_INIT;
    plim__peers_t *peers;
    *session_out = (plim__session_t){.peers = NULL};
    PLIM_TRY(plim__peers_open(job, &peers));
    const plim_status_t status = read_run(job, dataset, run, &training);
    if (status == PLIM_OK)
        plim__session_begin(job, dataset, &training, plim__peers_rank(peers) == 0 ? events : NULL,
                            user, session_out);
    session_out->peers = peers;
    const plim_status_t agreed = plim__inference_agree(session_out, status);
    if (status != PLIM_OK || agreed != PLIM_OK)
        return status != PLIM_OK ? status : agreed;
    return plim__run_settings_agree(peers, PLIM__STAGE_START, session_out->info, &training,
                                    request);
}
