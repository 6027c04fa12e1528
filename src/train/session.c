#include "train/session.h"

#include "base/fail.h"
#include "base/job.h"
#include "load/loader_params.h"
#include "load/slots.h"
#include "plan/plan_settings.h"

#include <math.h>
#include <string.h>

void plim__session_begin(const plim_job_t *job, const plim_dataset_t *dataset,
                         const plim_training_t *training, plim_train_event_fn events, void *user,
                         plim__session_t *session_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    *session_out = (plim__session_t){.job = job,
                                     .dataset = dataset,
                                     .info = info,
                                     .training = *training,
                                     .num_outputs = plim__plan_settings_outputs(info),
                                     .events = events,
                                     .user = user};
    session_out->training.loss = plim_training_loss(info, training);
    session_out->training.metric = plim_training_metric(info, training);
}

plim_status_t plim__session_open(plim__session_t *session, const plim__train_plan_t *plan,
                                 bool training)
{
    plim_ledger_t *ledger = session->job->ledger;
    PLIM_TRY(plim__team_create_for(session->job, plim__job_threads(session->job), &session->team));
    session->training.model.recompute = plan->recompute;
    session->params = plim__train_model_params(session->info, &session->training, &plan->load,
                                               training, plim__team_size(session->team));
    PLIM_TRY(plim__model_create(ledger, session->team, &session->params, &session->model));
    session->parameters = plim__model_parameters(session->model, &session->num_parameters);
    PLIM_TRY(plim__score_create(ledger, session->training.metric, session->training.loss,
                                plim__load_largest_split(session->info), session->num_outputs,
                                &session->score));
    if (session->hits != NULL)
        plim__score_rank(session->score, session->hits);
    return PLIM_OK;
}

void plim__session_count_labels(plim__session_t *session, const plim_loader_t *loader)
{
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++)
        session->labelled[split] = plim_loader_labelled(loader, (plim_split_t)split);
}

void plim__session_end(plim__session_t *session)
{
    plim__score_destroy(session->score);
    plim__model_destroy(session->model);
    plim__team_destroy(session->team);
    session->score = NULL;
    session->model = NULL;
    session->team = NULL;
}

plim_status_t plim__session_check_batch(const plim__session_t *session, const plim_batch_t *batch)
{
    const plim__slots_t *slots = ((const plim__slot_t *)(const void *)batch)->slots;
    const plim_recipe_t wanted = plim__plan_settings_recipe(session->info, &session->training);
    if (slots != NULL && strcmp(slots->fingerprint, session->info->fingerprint) == 0 &&
        slots->recipe.row_type == wanted.row_type &&
        slots->recipe.index_type == wanted.index_type && !slots->recipe.no_features &&
        slots->recipe.degrees >= wanted.degrees)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_USAGE,
                      "the batch is of another dataset, or of a recipe whose types or arrays are "
                      "not those of the model: take it from a loader of the trainer's plan");
}

static plim_status_t run_stream(plim__session_t *session, plim_stream_t *stream, plim_split_t split,
                                int64_t epoch, plim__session_take_fn take, void *context)
{
    plim_train_event_t event = {.size = sizeof(plim_train_event_t),
                                .kind = PLIM_EVENT_EVAL,
                                .split = split,
                                .epoch = epoch,
                                .steps = plim_stream_steps(stream),
                                .loss = NAN,
                                .score = {NAN, NAN, NAN}};
    const plim__pass_t pass = {.seed = session->training.recipe.seed,
                               .embeddings = session->embeddings};
    plim__model_output_t output;
    plim_batch_t *batch;
    PLIM_TRY(plim_stream_start(stream, 0, 0));
    for (;;) {
        PLIM_TRY(plim__job_check(session->job));
        PLIM_TRY(plim_stream_next(stream, -1, &batch));
        if (batch == NULL)
            return PLIM_OK;
        plim_status_t status = plim__session_check_batch(session, batch);
        if (status == PLIM_OK)
            status = plim__model_forward(session->model, batch, &pass, &output);
        if (status == PLIM_OK)
            status = take(context, batch, &output);
        event.step = batch->step + batch->last_part;
        const bool last = batch->last_part;
        plim_batch_release(batch);
        if (status != PLIM_OK)
            return status;
        if (last)
            plim__session_tell(session, &event);
    }
}

plim_status_t plim__session_pass(plim__session_t *session, plim_loader_t *loader,
                                 plim_split_t split, int64_t epoch, plim__session_take_fn take,
                                 void *context)
{
    plim_stream_params_t params =
        plim__plan_settings_evaluation(session->info, &session->training, split);
    plim_stream_t *stream;
    params.shuffle = split == PLIM_TRAIN && !session->in_order;
    PLIM_TRY(plim_loader_stream(loader, &params, &stream));
    plim_status_t status = run_stream(session, stream, split, epoch, take, context);
    plim_stream_release(stream);
    return status;
}

plim_status_t plim__session_score(void *context, const plim_batch_t *batch,
                                  const plim__model_output_t *output)
{
    plim__session_t *session = context;
    plim__score_add(session->score, session->team, batch->num_seeds, session->num_outputs,
                    output->outputs, batch->labels);
    return PLIM_OK;
}

plim_status_t plim__session_evaluate(plim__session_t *session, plim_loader_t *loader,
                                     plim_split_t split, int64_t epoch, double *score_out,
                                     double *loss_out)
{
    *score_out = NAN;
    *loss_out = NAN;
    if (plim_loader_labelled(loader, split) == 0)
        return PLIM_OK;
    plim__score_reset(session->score);
    PLIM_TRY(plim__session_pass(session, loader, split, epoch, plim__session_score, session));
    *score_out = plim__score_value(session->score);
    *loss_out = plim__score_loss(session->score);
    return PLIM_OK;
}
