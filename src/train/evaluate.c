/*
 * Scores and predictions of a finished run's weights: sampled as in training, or exact. For a
 * dataset of many graphs and for a model that reads no neighbours, batches are exact. Batches come
 * from a split, so predictions for all nodes of a graph always use the exact pass.
 */
#include "train/evaluate.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/params.h"
#include "infer/exact.h"
#include "load/loader.h"
#include "mem/size_text.h"
#include "plan/plan_settings.h"
#include "plan/run_settings.h"
#include "plan/train_plan.h"
#include "train/embedding_table.h"
#include "train/evaluate_links.h"
#include "train/inference.h"
#include "train/output.h"
#include "train/run.h"
#include "train/session.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define REQUEST_TEXT 128

static bool draws(const plim__session_t *session)
{
    return plim__plan_settings_draws(session->info, &session->training);
}

/* Creates session->collect, for rows of `width` floats. */
static plim_status_t create_collect(plim__session_t *session, int64_t width)
{
    const plim_stream_params_t params =
        plim__plan_settings_evaluation(session->info, &session->training, PLIM_TEST);
    const int64_t rows =
        params.batch_size > 0 ? params.batch_size : session->training.recipe.batch_size;
    const size_t label = session->info->label_kind == PLIM_LABELS_CLASSES
                             ? sizeof(int64_t)
                             : (size_t)session->info->num_targets * sizeof(float);
    session->embedding_width = width;
    return plim__collect_create(session->job->ledger, session->peers, rows, width, label,
                                &session->collect);
}

/* Creates loader and model for batches, whose outputs have `width` columns. The caller destroys the
 * loader, also after an error. */
static plim_status_t create_sampled(plim__session_t *session, const char *run,
                                    const plim_inference_t *inference, int64_t width,
                                    plim_loader_t **loader_out)
{
    plim__train_plan_t plan;
    char total[PLIM__SIZE_TEXT], line[PLIM__SIZE_TEXT];
    if (session->peers != NULL)
        PLIM_TRY(create_collect(session, width));
    PLIM_TRY(plim__evaluation_plan(session->job, session->dataset, &session->training, &plan));
    plim__log(session->job, PLIM_LOG_INFO, "planned: at most %s of %s",
              plim__size_text(plan.total, total), plim__size_text(plan.line, line));
    PLIM_TRY(plim__loader_create(session->job, session->dataset, &plan.load, loader_out));
    plim__session_count_labels(session, *loader_out);
    PLIM_TRY(plim__session_open(session, &plan, false));
    return plim__peers_rank(session->peers) == 0
               ? plim__inference_load_weights(session, run, inference)
               : PLIM_OK;
}

static plim_status_t open_sampled(plim__session_t *session, const char *run,
                                  const plim_inference_t *inference, int64_t width,
                                  plim_loader_t **loader_out)
{
    PLIM_TRY(
        plim__inference_agree(session, create_sampled(session, run, inference, width, loader_out)));
    return plim__inference_share_weights(session);
}

/* The nodes of the requested splits in sequence, and their labels. */
typedef struct wanted {
    plim__arena_t arena;
    int64_t *nodes;
    char *labels; /* label_bytes each */
    size_t label_bytes;
    int64_t first[4];   /* first node of each split; [3] is the total */
    plim__team_t *team; /* computes the scores */
    plim__score_t *scores[3];
} wanted_t;

static void carve_wanted(wanted_t *wanted, plim__arena_t *arena)
{
    const size_t count = (size_t)wanted->first[3];
    wanted->nodes = plim__arena_carve(arena, count, sizeof(int64_t), 1);
    wanted->labels = plim__arena_carve(arena, count, wanted->label_bytes, 1);
}

static plim_status_t find_wanted(plim__session_t *session, unsigned splits, wanted_t *wanted)
{
    plim__seeds_t *seeds;
    const plim_job_t *job = session->job;
    for (int split = 0; split < 3; split++)
        wanted->first[split + 1] =
            wanted->first[split] +
            ((splits >> split & 1) != 0 ? session->info->num_split[split] : 0);
    PLIM_TRY(plim__seeds_create(job, session->dataset, session->training.recipe.seed, &seeds));
    wanted->label_bytes = plim__seeds_label_bytes(seeds);
    plim__arena_t counting = plim__arena_counting();
    carve_wanted(wanted, &counting);
    plim_status_t status =
        plim__arena_create(job->ledger, "wanted nodes", counting.used, &wanted->arena);
    if (status == PLIM_OK) {
        carve_wanted(wanted, &wanted->arena);
        for (int split = 0; split < 3; split++)
            plim__seeds_take(seeds, (plim_split_t)split, false, 0, 0,
                             wanted->first[split + 1] - wanted->first[split],
                             wanted->nodes + wanted->first[split],
                             wanted->labels + (size_t)wanted->first[split] * wanted->label_bytes);
    }
    for (int split = 0; split < 3; split++)
        session->labelled[split] = plim__seeds_labelled(seeds, (plim_split_t)split);
    plim__seeds_destroy(seeds);
    for (int split = 0; split < 3 && status == PLIM_OK; split++) {
        if (wanted->first[split + 1] > wanted->first[split])
            status =
                plim__score_create(job->ledger, session->training.metric, session->training.loss,
                                   wanted->first[split + 1] - wanted->first[split],
                                   session->num_outputs, 1, &wanted->scores[split]);
        if (wanted->scores[split] != NULL && session->hits != NULL)
            plim__score_rank(wanted->scores[split], session->hits);
    }
    return status;
}

/* Adds the outputs of requested nodes first … first + rows - 1 to the scores of their splits. */
static plim_status_t score_exact(void *context, int64_t first, int64_t rows, int64_t width,
                                 const float *outputs)
{
    wanted_t *wanted = context;
    for (int split = 0; split < 3; split++) {
        const int64_t from = plim__max_i64(first, wanted->first[split]);
        const int64_t to = plim__min_i64(first + rows, wanted->first[split + 1]);
        if (from < to)
            plim__score_add(wanted->scores[split], wanted->team, to - from, width,
                            outputs + (from - first) * width,
                            wanted->labels + (size_t)from * wanted->label_bytes);
    }
    return PLIM_OK;
}

/* Warns about seeds without labels. An error if no seed of the splits has one. */
static plim_status_t check_labels(const plim__session_t *session, unsigned splits)
{
    int64_t labelled = 0;
    plim__session_warn_labels(session, splits);
    for (int split = 0; split < 3; split++)
        labelled += (splits >> split & 1) != 0 ? session->labelled[split] : 0;
    return labelled > 0 ? PLIM_OK
                        : plim__fail(PLIM_ERR_USAGE,
                                     "%s: no seed that is to be scored has a label; choose another "
                                     "`split`",
                                     plim__dataset_path(session->dataset));
}

/* Entries of the caller's errors. */
static size_t errors_count(const plim__session_t *session)
{
    return 3 * (1 + (size_t)session->num_outputs);
}

/* Copies the scores of rank 0, which alone takes the outputs of exact passes, to all. */
static plim_status_t share_scores(const plim__session_t *session, double score[3], double loss[3])
{
    const plim__stage_t stage = PLIM__STAGE_EVALUATION;
    PLIM_TRY(plim__peers_broadcast(session->peers, stage, 0, score, 3 * sizeof *score));
    if (session->errors != NULL)
        PLIM_TRY(plim__peers_broadcast(session->peers, stage, 0, session->errors,
                                       errors_count(session) * sizeof *session->errors));
    return plim__peers_broadcast(session->peers, stage, 0, loss, 3 * sizeof *loss);
}

/* Evaluates all splits in one pass over the graph. Checks their labels and logs its plan unless it
 * is `quiet`, as in a run, which has done both before its first epoch. */
static plim_status_t evaluate_exact(plim__session_t *session, const char *run,
                                    const plim_inference_t *inference, unsigned splits, bool quiet,
                                    double score[3], double loss[3])
{
    wanted_t wanted = {.nodes = NULL};
    plim__team_t *ranking = NULL; /* hits compare every output with a whole table */
    PLIM_TRY(plim__inference_open_exact(session, run, inference));
    plim_status_t status = PLIM_OK;
    if (session->hits != NULL)
        status = plim__team_create_for(session->job, plim__job_threads(session->job), &ranking);
    wanted.team = ranking != NULL ? ranking : session->team;
    if (status == PLIM_OK)
        status = find_wanted(session, splits, &wanted);
    if (status == PLIM_OK && !quiet)
        status = check_labels(session, splits);
    status = plim__inference_agree(session, status);
    if (status == PLIM_OK) {
        plim__exact_params_t params = plim__inference_exact_params(session, run, inference, false);
        params.quiet = quiet;
        status = plim__exact_run(session->job, session->dataset, &params, wanted.nodes,
                                 wanted.first[3], score_exact, &wanted);
    }
    for (int split = 0; split < 3; split++) {
        if (status == PLIM_OK && wanted.scores[split] != NULL) {
            score[split] = plim__score_value(wanted.scores[split]);
            loss[split] = plim__score_loss(wanted.scores[split]);
            if (session->errors != NULL)
                plim__score_errors(wanted.scores[split],
                                   session->errors + split * (1 + session->num_outputs));
        }
        plim__score_destroy(wanted.scores[split]);
    }
    plim__arena_destroy(&wanted.arena);
    plim__team_destroy(ranking);
    return status == PLIM_OK ? share_scores(session, score, loss) : status;
}

plim_status_t plim__evaluate_exact(const plim_job_t *job, const plim_dataset_t *dataset,
                                   const plim_training_t *training, plim__peers_t *peers,
                                   const char *run, int directory, const char *weights,
                                   unsigned splits, double score[3], double loss[3])
{
    plim_inference_t inference = PLIM_INFERENCE_INIT;
    plim__session_t session;
    inference.weights = weights;
    plim__session_begin(job, dataset, training, NULL, NULL, &session);
    session.peers = peers;
    session.directory = directory;
    const plim_status_t status =
        training->task == PLIM_TASK_LINK
            ? plim__evaluate_valid_pairs(&session, run, &inference, &score[PLIM_VALID])
            : evaluate_exact(&session, run, &inference, splits, true, score, loss);
    plim__session_end(&session);
    return status;
}

static plim_status_t evaluate_sampled(plim__session_t *session, const char *run,
                                      const plim_inference_t *inference, unsigned splits,
                                      double score[3], double loss[3])
{
    plim_loader_t *loader = NULL;
    plim_status_t status = open_sampled(session, run, inference, session->num_outputs, &loader);
    if (status == PLIM_OK)
        status = check_labels(session, splits);
    for (int split = 0; split < 3 && status == PLIM_OK; split++)
        if ((splits >> split & 1) != 0)
            status = plim__session_evaluate(session, loader, (plim_split_t)split, 0, &score[split],
                                            &loss[split]);
    plim_loader_release(loader);
    return status == PLIM_OK ? share_scores(session, score, loss) : status;
}

/* Evaluates by the weights of a run. */
static plim_status_t evaluate(plim__session_t *session, const char *run,
                              const plim_inference_t *inference, unsigned splits, double score[3],
                              double loss[3])
{
    plim__embedding_table_t table = {.stored = NULL};
    plim_status_t status = PLIM_OK;
    if (inference->table != NULL) {
        status = plim__embedding_table_read(session->job, session->dataset, inference->table,
                                            inference->hits, &table);
        session->hits = &table.hits;
    }
    status = plim__inference_agree(session, status);
    session->errors = session->info->label_kind == PLIM_LABELS_VALUES ? inference->errors : NULL;
    for (size_t i = 0; session->errors != NULL && i < errors_count(session); i++)
        session->errors[i] = (plim_errors_t){NAN, NAN, NAN};
    if (status == PLIM_OK)
        status = inference->exact && draws(session)
                     ? evaluate_exact(session, run, inference, splits, false, score, loss)
                     : evaluate_sampled(session, run, inference, splits, score, loss);
    plim__session_end(session);
    plim__arena_destroy(&table.arena);
    return status;
}

/* Whether layers can be computed for all nodes at once, if that is asked for. */
static plim_status_t check_exact(const plim__session_t *session, const char *run, bool exact)
{
    if (!exact || session->training.temporal == PLIM_TEMPORAL_NONE)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_USAGE,
                      "%s: its neighbours are drawn by time, so a node's neighbourhood depends on "
                      "the seed, and no pass over the graph serves all seeds: leave out `exact`",
                      run);
}

/* Names the splits to choose instead of an empty one. */
static plim_status_t fail_empty_split(const plim__session_t *session, int empty)
{
    static const char *const words[] = {"train", "valid", "test"};
    const char *path = plim__dataset_path(session->dataset);
    char others[32] = "";
    size_t used = 0;
    for (int split = 0; split < 3; split++)
        if (session->info->num_split[split] > 0)
            used += (size_t)snprintf(others + used, sizeof others - used, "%s%s",
                                     used > 0 ? " or " : "", words[split]);
    if (used == 0)
        return plim__fail(PLIM_ERR_USAGE, "%s: all its splits are empty; import it with splits",
                          path);
    return plim__fail(PLIM_ERR_USAGE, "%s: its %s split is empty; give `split` %s", path,
                      plim__split_names[empty], others);
}

static plim_status_t check_splits(const plim__session_t *session, const char *run, unsigned splits)
{
    if (session->training.task == PLIM_TASK_LINK)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: a run over links has no scores of splits; evaluate `pairs`", run);
    if (splits == 0 || splits > 7)
        return plim__fail(PLIM_ERR_USAGE, "no split was given");
    for (int split = 0; split < 3; split++)
        if ((splits >> split & 1) != 0 && session->info->num_split[split] == 0)
            return fail_empty_split(session, split);
    return PLIM_OK;
}

PLIM_API plim_status_t plim_evaluate(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const char *run, const plim_inference_t *inference,
                                     plim_splits_t splits, plim_train_event_fn events, void *user,
                                     double score_out[3], double loss_out[3])
{
    plim_inference_t known = PLIM_INFERENCE_INIT;
    PLIM_ENTER(job);
    PLIM_TRY(plim__dataset_check(dataset));
    PLIM_TRY(plim__params_take(inference, "plim_inference_t", &known, sizeof known));
    plim__session_t session;
    char request[REQUEST_TEXT];
    double score[3] = {NAN, NAN, NAN}, loss[3] = {NAN, NAN, NAN};
    const plim_job_t own = plim__train_job(job);
    (void)snprintf(request, sizeof request,
                   "`exact` is %d\nthe bits of `split` are %u\n`errors` are %d\n", (int)known.exact,
                   splits, (int)(known.errors != NULL));
    plim_status_t status =
        plim__inference_begin(&own, dataset, run, request, events, user, &session);
    if (status == PLIM_OK)
        status = check_splits(&session, run, splits);
    if (status == PLIM_OK)
        status = check_exact(&session, run, known.exact);
    if (status == PLIM_OK)
        status = evaluate(&session, run, &known, splits, score, loss);
    plim__peers_close(session.peers);
    if (status != PLIM_OK)
        return status;
    for (int split = 0; split < 3; split++)
        if ((splits >> split & 1) != 0 && session.labelled[split] > 0 && !isfinite(loss[split]))
            return plim__fail(PLIM_ERR_DIVERGED,
                              "%s: its loss on the %s split is not finite: the weights are too "
                              "large; take other `weights`, or train with a lower learning "
                              "rate (`rate`)",
                              run, plim__split_names[split]);
    memcpy(score_out, score, sizeof score);
    memcpy(loss_out, loss, sizeof loss);
    return PLIM_OK;
}

static plim_status_t take_exact(void *context, int64_t first, int64_t rows, int64_t width,
                                const float *outputs)
{
    (void)first;
    return plim__output_take(context, rows, width, outputs);
}

static plim_status_t predict_exact(plim__session_t *session, const char *run,
                                   const plim_inference_t *inference, plim_split_t split,
                                   int64_t most_bytes, plim__output_t *output)
{
    wanted_t wanted = {.nodes = NULL};
    PLIM_TRY(plim__inference_open_exact(session, run, inference));
    plim_status_t status = plim__inference_agree(
        session, split != PLIM_ALL_NODES ? find_wanted(session, 1U << split, &wanted) : PLIM_OK);
    if (status == PLIM_OK) {
        plim__exact_params_t params = plim__inference_exact_params(
            session, run, inference, output->kind == PLIM_PREDICT_EMBEDDINGS);
        params.most_bytes = most_bytes;
        status = plim__exact_run(session->job, session->dataset, &params, wanted.nodes,
                                 output->rows, take_exact, output);
    }
    for (int i = 0; i < 3; i++)
        plim__score_destroy(wanted.scores[i]);
    plim__arena_destroy(&wanted.arena);
    return status;
}

static plim_status_t take_sampled(void *context, int64_t rows, const plim__model_output_t *outputs,
                                  const void *labels)
{
    plim__output_t *output = context;
    (void)labels;
    if (output->kind == PLIM_PREDICT_EMBEDDINGS)
        return plim__output_take(output, rows, outputs->embedding_width, outputs->embeddings);
    return plim__output_take(output, rows, output->logits, outputs->outputs);
}

/* Columns of the input of the last layer; of graphs, of what is pooled. */
static int64_t embedding_width(const plim__session_t *session)
{
    const plim_model_t *model = &session->training.model;
    return model->num_layers == 1 && session->info->num_graphs == 0
               ? plim__model_input(model, &session->params.columns, session->info->num_features)
               : model->hidden;
}

static plim_status_t predict_sampled(plim__session_t *session, const char *run,
                                     const plim_inference_t *inference, plim_split_t split,
                                     plim__output_t *output)
{
    plim_loader_t *loader = NULL;
    const int64_t width =
        output->kind == PLIM_PREDICT_EMBEDDINGS ? embedding_width(session) : session->num_outputs;
    plim_status_t status = open_sampled(session, run, inference, width, &loader);
    if (status == PLIM_OK) {
        session->in_order = true;
        session->embeddings = output->kind == PLIM_PREDICT_EMBEDDINGS;
        status = plim__session_pass(session, loader, split, 0, take_sampled, output);
    }
    plim_loader_release(loader);
    return status;
}

/* Checks that this kind of output exists for the requested nodes, and counts them. */
static plim_status_t check_prediction(const plim__session_t *session, const char *run,
                                      const plim_inference_t *inference, plim_split_t split,
                                      plim_predict_kind_t kind, int64_t *rows_out)
{
    const plim_dataset_info_t *info = session->info;
    const char *path = plim__dataset_path(session->dataset);
    if (split < PLIM_TRAIN || split > PLIM_ALL_NODES)
        return plim__fail(PLIM_ERR_USAGE, "there is no split %d", (int)split);
    if (session->training.task == PLIM_TASK_LINK &&
        (kind != PLIM_PREDICT_EMBEDDINGS || split != PLIM_ALL_NODES))
        return plim__fail(PLIM_ERR_USAGE,
                          "a run over links predicts `kind` embeddings of all nodes, and scores of "
                          "`pairs`");
    if (kind == PLIM_PREDICT_CLASSES && info->label_kind != PLIM_LABELS_CLASSES)
        return plim__fail(PLIM_ERR_USAGE, "%s: its labels are values, not classes; ask for logits",
                          path);
    const plim_loss_t loss = plim__training_loss(info, &session->training);
    if (kind == PLIM_PREDICT_PROBABILITIES && loss != PLIM_LOSS_CROSS_ENTROPY &&
        loss != PLIM_LOSS_BCE)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: the run predicts values, which have no probabilities; ask for "
                          "logits",
                          path);
    if (split == PLIM_ALL_NODES && info->num_graphs > 0)
        return plim__fail(
            PLIM_ERR_USAGE,
            "%s: a dataset of many graphs is predicted by its splits; choose train, valid or test",
            path);
    PLIM_TRY(check_exact(session, run, inference->exact));
    if (split == PLIM_ALL_NODES && !inference->exact && draws(session))
        return plim__fail(
            PLIM_ERR_USAGE,
            "neighbourhoods are drawn for the nodes of a split; predict %sone split",
            session->training.temporal == PLIM_TEMPORAL_NONE ? "all of them exactly, or " : "");
    *rows_out = split == PLIM_ALL_NODES ? info->num_nodes : info->num_split[split];
    if (*rows_out == 0)
        return fail_empty_split(session, (int)split);
    return PLIM_OK;
}

/* Predicts by the weights of a run; rank 0 writes the file. */
static plim_status_t predict(plim__session_t *session, const char *run,
                             const plim_inference_t *inference, plim_split_t split,
                             plim_predict_kind_t kind, const char *out)
{
    const plim_training_t *training = &session->training;
    const bool writes = plim__peers_rank(session->peers) == 0;
    plim__output_t output = {.kind = kind};
    PLIM_TRY(check_prediction(session, run, inference, split, kind, &output.rows));
    if (training->task == PLIM_TASK_LINK) /* the rows that pairs are scored by */
        kind = output.kind = PLIM_PREDICT_LOGITS;
    const int64_t width = kind == PLIM_PREDICT_EMBEDDINGS
                              ? plim__max_i64(training->model.hidden, session->info->num_features)
                              : session->num_outputs;
    /* As in the training's plan. */
    const bool exact = split == PLIM_ALL_NODES || (inference->exact && draws(session));
    const int64_t most_bytes =
        exact && draws(session)
            ? plim__predict_exact_bytes(session->job, session->dataset, training)
            : 0;
    plim_status_t status = PLIM_OK;
    if (writes)
        status = plim__output_open(session->job->ledger, out, kind, session->dataset, split,
                                   output.rows, width, &output);
    output.logits = session->num_outputs;
    output.sigmoid = plim__training_loss(session->info, training) == PLIM_LOSS_BCE;
    status = plim__inference_agree(session, status);
    if (status == PLIM_OK)
        status = exact ? predict_exact(session, run, inference, split, most_bytes, &output)
                       : predict_sampled(session, run, inference, split, &output);
    const bool failed = status != PLIM_OK; /* on all ranks */
    if (writes && !failed)
        status = plim__output_finish(&output);
    if (writes)
        plim__output_close(&output);
    plim__session_end(session);
    return failed ? status : plim__inference_agree(session, status);
}

PLIM_API plim_status_t plim_predict(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const char *run, const plim_inference_t *inference,
                                    plim_split_t split, plim_predict_kind_t kind, const char *out,
                                    plim_train_event_fn events, void *user)
{
    plim_inference_t known = PLIM_INFERENCE_INIT;
    PLIM_ENTER(job);
    PLIM_TRY(plim__dataset_check(dataset));
    PLIM_TRY(plim__params_take(inference, "plim_inference_t", &known, sizeof known));
    plim__session_t session;
    char request[REQUEST_TEXT];
    const plim_job_t own = plim__train_job(job);
    (void)snprintf(request, sizeof request,
                   "`exact` is %d\nthe number of `split` is %d\nthe number of `kind` is %d\n",
                   (int)known.exact, (int)split, (int)kind);
    plim_status_t status =
        plim__inference_begin(&own, dataset, run, request, events, user, &session);
    if (status == PLIM_OK)
        status = kind == PLIM_PREDICT_SCORES ? plim__predict_links(&session, run, &known, out)
                                             : predict(&session, run, &known, split, kind, out);
    plim__peers_close(session.peers);
    return status;
}
