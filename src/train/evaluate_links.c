#include "train/evaluate_links.h"

#include "base/fail.h"
#include "base/job.h"
#include "base/params.h"
#include "infer/link_scores.h"
#include "plan/plan_settings.h"
#include "train/inference.h"
#include "train/output.h"

#include <stdio.h>

static plim_status_t check(const plim__session_t *session, const char *run,
                           const plim_inference_t *inference)
{
    if (session->training.task != PLIM_TASK_LINK)
        return plim__fail(PLIM_ERR_USAGE, "%s is no run over links: it does not score pairs", run);
    if (inference->pairs == NULL)
        return plim__fail(PLIM_ERR_USAGE,
                          "a run over links scores the `pairs` of a file: give one");
    return PLIM_OK;
}

static plim_status_t create(const plim__session_t *session, const plim__exact_params_t *exact,
                            const plim_inference_t *inference, bool compares,
                            plim__link_scores_t **scores_out)
{
    const plim__link_scores_params_t params = {
        .files = {inference->pairs, inference->negatives, inference->drawn,
                  session->training.num_pair_types},
        .seed = session->training.recipe.seed,
        .width = session->num_outputs,
        .scratch = exact->scratch,
        .minimum = (int64_t)plim__exact_cost_minimum(session->job, session->dataset, &exact->model,
                                                     &exact->columns, exact->num_outputs, false),
        .compares = compares,
        .scorer = plim__plan_settings_scorer(&session->training),
        .parameters = session->parameters,
        .num_parameters = session->num_parameters};
    return plim__link_scores_create(session->job, session->dataset, &params, scores_out);
}

static plim_status_t take(void *output, int64_t first, int64_t rows, int64_t width,
                          const float *scores)
{
    (void)first;
    return plim__output_take(output, rows, width, scores);
}

static plim_status_t write(plim__link_scores_t *scores, plim__output_t *output)
{
    PLIM_TRY(plim__link_scores_give(scores, take, output));
    return plim__output_finish(output);
}

/* Computes the rows of all nodes, and by them on rank 0 scores against negatives; or, with `out`, a
 * file of scores. */
static plim_status_t score(plim__session_t *session, const char *run,
                           const plim_inference_t *inference, const char *out, bool quiet,
                           plim_link_scores_t *found)
{
    const bool first = plim__peers_rank(session->peers) == 0;
    plim__link_scores_t *scores = NULL;
    plim__output_t output = {.draft.file.fd = -1, .ids_draft.file.fd = -1};
    PLIM_TRY(plim__inference_open_exact(session, run, inference));
    plim__exact_params_t params = plim__inference_exact_params(session, run, inference, false);
    params.quiet = quiet;
    plim_status_t status = PLIM_OK;
    if (first)
        status = create(session, &params, inference, out == NULL, &scores);
    if (first && status == PLIM_OK && out != NULL)
        status = plim__output_open(session->job->ledger, out, PLIM_PREDICT_SCORES, NULL, PLIM_TEST,
                                   plim__link_scores_pairs(scores), 1, &output);
    status = plim__inference_agree(session, status);
    if (status == PLIM_OK)
        status = plim__exact_run(session->job, session->dataset, &params, NULL,
                                 session->info->num_nodes, plim__link_scores_take, scores);
    if (status == PLIM_OK) {
        if (first)
            status =
                out != NULL ? write(scores, &output) : plim__link_scores_compare(scores, found);
        status = plim__inference_agree(session, status);
    }
    if (status == PLIM_OK && out == NULL)
        status =
            plim__peers_broadcast(session->peers, PLIM__STAGE_EVALUATION, 0, found, sizeof *found);
    if (out != NULL)
        plim__output_close(&output);
    plim__link_scores_destroy(scores);
    return status;
}

plim_status_t plim__predict_links(plim__session_t *session, const char *run,
                                  const plim_inference_t *inference, const char *out)
{
    PLIM_TRY(check(session, run, inference));
    const plim_status_t status = score(session, run, inference, out, false, NULL);
    plim__session_end(session);
    return status;
}

plim_status_t plim__evaluate_valid_pairs(plim__session_t *session, const char *run,
                                         const plim_inference_t *inference, double *score_out)
{
    plim_inference_t valid = *inference;
    plim_link_scores_t found = PLIM_LINK_SCORES_INIT;
    valid.pairs = session->training.valid_pairs;
    valid.negatives = session->training.valid_negatives;
    valid.drawn = session->training.valid_drawn;
    PLIM_TRY(score(session, run, &valid, NULL, true, &found));
    *score_out = found.shared ? found.auc : found.mrr;
    return PLIM_OK;
}

PLIM_API plim_status_t plim_evaluate_links(const plim_job_t *job, const plim_dataset_t *dataset,
                                           const char *run, const plim_inference_t *inference,
                                           plim_train_event_fn events, void *user,
                                           plim_link_scores_t *scores_out)
{
    plim_inference_t known = PLIM_INFERENCE_INIT;
    plim_link_scores_t found = PLIM_LINK_SCORES_INIT;
    plim__session_t session;
    PLIM_ENTER(job);
    PLIM_TRY(plim__dataset_check(dataset));
    PLIM_TRY(plim__params_take(inference, "plim_inference_t", &known, sizeof known));
    PLIM_TRY(plim__output_check(scores_out, "plim_link_scores_t"));
    const plim_job_t own = plim__train_job(job);
    plim_status_t status =
        plim__inference_begin(&own, dataset, run, "pairs are scored\n", events, user, &session);
    if (status == PLIM_OK)
        status = check(&session, run, &known);
    if (status == PLIM_OK) {
        status = score(&session, run, &known, NULL, false, &found);
        plim__session_end(&session);
    }
    plim__peers_close(session.peers);
    if (status == PLIM_OK)
        plim__output_give(scores_out, &found, sizeof found);
    return status;
}
