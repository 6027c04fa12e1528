#include "train/session.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "load/loader.h"
#include "load/loader_params.h"
#include "load/negatives.h"
#include "load/slot_ring.h"
#include "load/slots.h"
#include "peers/share_tree.h"
#include "plan/plan_settings.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>

const char *const plim__split_names[3] = {"training", "validation", "test"};

void plim__session_begin(const plim_job_t *job, const plim_dataset_t *dataset,
                         const plim_training_t *training, plim_train_event_fn events, void *user,
                         plim__session_t *session_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    *session_out = (plim__session_t){.job = job,
                                     .dataset = dataset,
                                     .info = info,
                                     .training = *training,
                                     .num_outputs = plim__plan_settings_outputs(info, training),
                                     .directory = AT_FDCWD,
                                     .events = events,
                                     .user = user};
    session_out->training.loss = plim__training_loss(info, training);
    session_out->training.metric = plim__training_metric(info, training);
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
    if (session->training.task == PLIM_TASK_LINK) {
        const plim__decoder_params_t decoder =
            plim__train_decoder_params(&session->training, plim__team_size(session->team));
        return training && decoder.max_pairs > 0
                   ? plim__decoder_create(ledger, &decoder, session->parameters,
                                          session->num_parameters, &session->decoder)
                   : PLIM_OK;
    }
    PLIM_TRY(plim__score_create(ledger, session->training.metric, session->training.loss,
                                plim__load_largest_split(session->info), session->num_outputs,
                                session->training.shares, &session->score));
    if (session->hits != NULL)
        plim__score_rank(session->score, session->hits);
    return PLIM_OK;
}

void plim__session_count_labels(plim__session_t *session, const plim_loader_t *loader)
{
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++)
        session->labelled[split] = plim__loader_labelled(loader, (plim_split_t)split);
}

void plim__session_warn_labels(const plim__session_t *session, unsigned splits)
{
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++) {
        const int64_t seeds = session->info->num_split[split], labelled = session->labelled[split];
        if ((splits >> split & 1) != 0 && labelled < seeds)
            plim__log(session->job, PLIM_LOG_WARNING,
                      "%lld of %lld seeds of the %s split have a label; %s", (long long)labelled,
                      (long long)seeds, plim__split_names[split],
                      labelled > 0 ? "the others do not count" : "it has no score");
    }
}

void plim__session_end(plim__session_t *session)
{
    plim__collect_destroy(session->collect);
    plim__score_destroy(session->score);
    plim__decoder_destroy(session->decoder);
    plim__model_destroy(session->model);
    plim__team_destroy(session->team);
    session->collect = NULL;
    session->score = NULL;
    session->decoder = NULL;
    session->model = NULL;
    session->team = NULL;
}

/* Checks that the buffers for scores hold the pairs, and that the decoder has their types. Streams
 * that the caller opened may have other links than the training. */
static plim_status_t check_pairs(const plim__session_t *session, const plim_batch_t *batch)
{
    const plim_training_t *training = &session->training;
    const plim_links_t links = plim__plan_settings_links(training);
    const plim_array_t *array;
    const int64_t pairs = batch->num_pairs;
    bool same = pairs + batch->num_negatives <= plim__plan_settings_pairs(training) &&
                batch->num_negatives == plim__negatives_count(&links, pairs) &&
                (pairs == 0 || (batch->pair_types != NULL) == (links.num_types > 0));
    for (int i = 0; (array = plim_batch_array(batch, i)) != NULL; i++)
        same = same && (array->data != batch->pair_index || array->ndim == 2);
    for (int64_t i = 0; same && batch->pair_types != NULL && i < pairs; i++)
        same = batch->pair_types[i] < links.num_types;
    return same ? PLIM_OK
                : plim__fail(PLIM_ERR_USAGE,
                             "the batch has more pairs, other negatives or other types of pairs "
                             "than the training: take it from the stream of the trainer's plan");
}

plim_status_t plim__session_check_batch(const plim__session_t *session, const plim_batch_t *batch)
{
    const plim__slots_t *slots = ((const plim__slot_t *)(const void *)batch)->slots;
    const plim_recipe_t wanted = plim__plan_settings_recipe(session->info, &session->training);
    const bool links = session->training.task == PLIM_TASK_LINK;
    if ((batch->pair_index != NULL) != links)
        return plim__fail(PLIM_ERR_USAGE, "the batch is of %s, and the trainer computes %s",
                          links ? "nodes" : "links", links ? "links" : "nodes");
    if (slots != NULL && strcmp(slots->fingerprint, session->info->fingerprint) == 0 &&
        slots->recipe.row_type == wanted.row_type &&
        slots->recipe.index_type == wanted.index_type && !slots->recipe.no_features &&
        slots->recipe.degrees >= wanted.degrees && slots->recipe.skip_loops == wanted.skip_loops &&
        (wanted.columns & ~slots->recipe.columns) == 0 && wanted.draw_by == slots->recipe.draw_by &&
        wanted.latest == slots->recipe.latest)
        return links ? check_pairs(session, batch) : PLIM_OK;
    return plim__fail(PLIM_ERR_USAGE,
                      "the batch is of another dataset, or of a recipe whose types or arrays are "
                      "not those of the model: take it from a loader of the trainer's plan");
}

plim_status_t plim__session_share_array(plim__peers_t *peers, plim__stage_t stage, float *values,
                                        int64_t count)
{
    if (values == NULL || count == 0)
        return PLIM_OK;
    return plim__peers_broadcast(peers, stage, 0, values, (size_t)count * sizeof *values);
}

plim_status_t plim__session_share_weights(plim__peers_t *peers, plim__stage_t stage,
                                          const plim__model_arrays_t *arrays)
{
    PLIM_TRY(plim__session_share_array(peers, stage, arrays->weights, arrays->num_weights));
    return plim__session_share_array(peers, stage, arrays->buffers, arrays->num_buffers);
}

static plim_train_event_t event_of(plim_split_t split, int64_t epoch, int64_t steps)
{
    return (plim_train_event_t){.size = sizeof(plim_train_event_t),
                                .kind = PLIM_EVENT_EVAL,
                                .split = split,
                                .epoch = epoch,
                                .steps = steps,
                                .loss = NAN,
                                .score = {NAN, NAN, NAN}};
}

/* The next part of a batch. The caller releases it, also after an error if it is not NULL. */
static plim_status_t forward_part(plim__session_t *session, plim_stream_t *stream,
                                  plim_batch_t **batch_out, plim__model_output_t *output_out)
{
    plim__pass_t pass = {.seed = session->training.recipe.seed, .embeddings = session->embeddings};
    *batch_out = NULL;
    PLIM_TRY(plim__job_check(session->job));
    PLIM_TRY(plim_stream_next(stream, -1, batch_out));
    PLIM_TRY(plim__session_check_batch(session, *batch_out));
    const plim__batch_columns_t columns = plim__plan_settings_batch(*batch_out);
    pass.columns = &columns;
    return (*batch_out)->num_seeds > 0
               ? plim__model_forward(session->model, *batch_out, &pass, output_out)
               : PLIM_OK;
}

/* Scores the following rows in the share of `step`: the steps of a pass are cut into shares, like
 * the seeds of a batch. */
static void begin_share(const plim__session_t *session, int64_t steps, int64_t step)
{
    int64_t share = 0;
    while (step >= plim__share_first(steps, session->training.shares, share + 1))
        share++;
    plim__score_share(session->score, share);
}

/* Passes over this rank's shares of the steps. */
static plim_status_t run_stream(plim__session_t *session, plim_stream_t *stream, plim_split_t split,
                                int64_t epoch, plim__session_take_fn take, void *context)
{
    const int64_t steps = plim__stream_steps(stream), shares = session->training.shares;
    const plim__share_range_t range = plim__share_range(shares, plim__peers_rank(session->peers),
                                                        plim__peers_num_ranks(session->peers));
    const int64_t first = plim__share_first(steps, shares, range.begin);
    const int64_t end = plim__share_first(steps, shares, range.end);
    plim_train_event_t event = event_of(split, epoch, steps); /* other ranks are as far */
    plim__model_output_t output = {.outputs = NULL};
    plim_batch_t *batch;
    stream->end_step = end; /* other ranks read the rest */
    PLIM_TRY(plim_stream_start(stream, 0, first));
    session->ends_pass = false;
    for (int64_t step = first; step < end && !session->ends_pass;) {
        begin_share(session, steps, step);
        plim_status_t status = forward_part(session, stream, &batch, &output);
        if (status == PLIM_OK)
            status = take(context, batch->num_seeds, &output, batch->labels);
        const bool last = batch == NULL || batch->last_part;
        plim_batch_release(batch);
        PLIM_TRY(status);
        step += last;
        event.step = plim__mul_saturating_i64(step - first, steps) / (end - first);
        if (last)
            plim__session_tell(session, &event);
    }
    return PLIM_OK;
}

/* How rank 0 takes the rows of all ranks. */
typedef struct rank_rows {
    plim__session_t *session;
    int64_t steps;
    plim__session_take_fn take;
    void *context;
} rank_rows_t;

static plim_status_t take_collected(void *context, int64_t rows, const float *values,
                                    const void *labels)
{
    const rank_rows_t *taking = context;
    plim__session_t *session = taking->session;
    const plim__model_output_t output = {.outputs = values,
                                         .embeddings = session->embeddings ? values : NULL,
                                         .embedding_width = session->embedding_width};
    begin_share(session, taking->steps, plim__collect_step(session->collect));
    return taking->take(taking->context, rows, &output, labels);
}

/* Computes this rank's batch of a group, part by part. */
static plim_status_t compute_batch(plim__session_t *session, plim_stream_t *stream)
{
    for (bool last = false; !last;) {
        plim__model_output_t output;
        plim_batch_t *batch;
        const plim_status_t status = forward_part(session, stream, &batch, &output);
        if (status == PLIM_OK && batch->num_seeds > 0)
            plim__collect_add(session->collect, batch->num_seeds,
                              session->embeddings ? output.embeddings : output.outputs,
                              batch->labels);
        last = batch == NULL || batch->last_part;
        plim_batch_release(batch);
        PLIM_TRY(status);
    }
    return PLIM_OK;
}

/* Each rank computes one batch of every group: the stream's batches are larger by the number of
 * ranks, and are cut into that many shares. Neighbours are drawn by node, so the cut changes
 * nothing. */
static plim_status_t pass_together(plim__session_t *session, plim_loader_t *loader,
                                   plim_stream_params_t *params, int64_t epoch,
                                   plim__session_take_fn take, void *context)
{
    const int64_t rows = plim__collect_batch_rows(session->collect);
    const int ranks = plim__peers_num_ranks(session->peers);
    const int64_t steps = (session->info->num_split[params->split] - 1) / rows + 1;
    rank_rows_t taking = {session, steps, take, context};
    plim_train_event_t event = event_of(params->split, epoch, steps);
    plim_stream_t *stream = NULL;
    params->batch_size = plim__mul_saturating_i64(rows, ranks);
    params->num_shares = ranks;
    params->share = plim__peers_rank(session->peers);
    plim__collect_begin(session->collect, session->info->num_split[params->split]);
    plim_status_t status = plim_loader_stream(loader, params, &stream);
    if (status == PLIM_OK)
        status = plim_stream_start(stream, 0, 0);
    for (bool ended = false; !ended;) {
        if (status == PLIM_OK)
            status = compute_batch(session, stream);
        event.step = plim__min_i64(event.step + ranks, steps);
        status = plim__collect_end(session->collect, status, event.step == steps, take_collected,
                                   &taking);
        ended = status != PLIM_OK || event.step == steps;
        if (status == PLIM_OK)
            plim__session_tell(session, &event);
    }
    if (stream != NULL)
        plim_stream_release(stream);
    return status;
}

plim_status_t plim__session_pass(plim__session_t *session, plim_loader_t *loader,
                                 plim_split_t split, int64_t epoch, plim__session_take_fn take,
                                 void *context)
{
    plim_stream_params_t params =
        plim__plan_settings_evaluation(session->info, &session->training, split);
    plim_stream_t *stream;
    params.shuffle = split == PLIM_TRAIN && !session->in_order;
    if (session->collect != NULL)
        return pass_together(session, loader, &params, epoch, take, context);
    PLIM_TRY(plim_loader_stream(loader, &params, &stream));
    plim_status_t status = run_stream(session, stream, split, epoch, take, context);
    stream->end_step = INT64_MAX;
    plim_stream_release(stream);
    return status;
}

plim_status_t plim__session_score(void *context, int64_t rows, const plim__model_output_t *output,
                                  const void *labels)
{
    plim__session_t *session = context;
    plim__score_add(session->score, session->team, rows, session->num_outputs, output->outputs,
                    labels);
    return PLIM_OK;
}

plim_status_t plim__session_evaluate(plim__session_t *session, plim_loader_t *loader,
                                     plim_split_t split, int64_t epoch, double *score_out,
                                     double *loss_out)
{
    *score_out = NAN;
    *loss_out = NAN;
    if (plim__loader_labelled(loader, split) == 0)
        return PLIM_OK;
    plim__score_reset(session->score);
    plim_status_t status =
        plim__session_pass(session, loader, split, epoch, plim__session_score, session);
    if (session->collect == NULL) { /* else the ranks have agreed already */
        PLIM_TRY(
            plim__peers_agree(session->peers, PLIM__STAGE_EVALUATION, status, 0, NULL, NULL, NULL));
        status = plim__score_gather(session->score, session->peers);
    }
    PLIM_TRY(status);
    *score_out = plim__score_value(session->score);
    *loss_out = plim__score_loss(session->score);
    if (session->errors != NULL)
        plim__score_errors(session->score, session->errors + split * (1 + session->num_outputs));
    return PLIM_OK;
}
