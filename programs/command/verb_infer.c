/* `plimsoll evaluate` and `plimsoll predict`: use the weights of a run. */
#include "base/fail.h"
#include "command/verb_train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Targets whose errors are printed one by one. */
#define TARGETS_PRINTED 32

typedef struct infer {
    cli_common_t common;
    const char *run;
    const char *dataset; /* NULL: the path in run.json */
    plim_inference_t inference;
    int split;       /* 0 … 2; 3: all; -1: not given */
    bool sampled;    /* --sampled of predict */
    bool verify;     /* verify the whole dataset first */
    const char *out; /* of predict */
    plim_predict_kind_t kind;
} infer_t;

_Static_assert(PLIM_ALL_NODES == 3, "the order of SPLITS");
#define SPLITS CLI_LIST(0, "train", "valid", "test", "all")
#define AT(member) CLI_AT(infer_t, member)

static const cli_option_t shared_options[] = {
    {"weights", "FILE", "a safetensors file; default: the run's best, else its last",
     "With the model's parameters: the default is best.safetensors, else last.safetensors.",
     AT(inference.weights), .kind = CLI_TEXT},
    {"scratch", "DIR", "directory of hidden states that do not fit in memory; default: RUN",
     "Unnamed temporary files there hold intermediate layers. The command checks the free space "
     "first.",
     AT(inference.scratch), .kind = CLI_TEXT},
    {"verify", NULL, "verify the whole dataset first, as inspect --verify does", AT(verify)},
    {"pairs", "FILE",
     "of a run over links, the pairs to score: a .npy file of integers, (2, pairs) or (pairs, 2), "
     "with the types of distmult as a third number",
     "Of any size.", AT(inference.pairs), .kind = CLI_TEXT},
    CLI_OPTIONS_END};

typedef plim_status_t (*work_fn)(infer_t *infer, plim_job_t *job, const plim_dataset_t *dataset,
                                 const plim_run_info_t *info);

static bool take_words(infer_t *infer, int argc, char **argv)
{
    const int words = argc - optind;
    if (words < 1 || words > 2) {
        (void)cli_wrong_use(&infer->common, "give the directory of a run, and the dataset's if it "
                                            "has moved");
        return false;
    }
    infer->run = argv[optind];
    infer->dataset = words == 2 ? argv[optind + 1] : NULL;
    return true;
}

static void warn_idle(const infer_t *infer, const plim_dataset_info_t *info,
                      const plim_model_t *model)
{
    const bool drawn = info->num_graphs == 0 && model->kind != PLIM_MLP;
    const bool chosen = cli_given(&infer->common, "exact") || cli_given(&infer->common, "sampled");
    const bool choice = chosen && !drawn;
    const bool scratch = infer->inference.scratch != NULL && !infer->inference.exact;
    if (choice || scratch)
        cli_warn("options without effect: %s%s%s",
                 !choice                  ? ""
                 : infer->inference.exact ? "--exact (no neighbours are drawn)"
                                          : "--sampled (no neighbours are drawn)",
                 choice && scratch ? ", " : "", scratch ? "--scratch (of exact passes)" : "");
}

/* Reads the run, opens its dataset and calls `work`. *exit_out: the exit code after an error
 * message.
 */
static plim_status_t work_on_run(infer_t *infer, plim_job_t *job, work_fn work, int *exit_out)
{
    plim_run_info_t info = PLIM_RUN_INFO_INIT;
    plim_dataset_t *dataset;
    PLIM_TRY(plim_run_read(job, infer->run, &info));
    const char *path = infer->dataset != NULL ? infer->dataset : info.dataset;
    if (info.training.task == PLIM_TASK_LINK && !infer->sampled)
        infer->inference.exact = true;
    if (info.training.temporal != PLIM_TEMPORAL_NONE && !cli_given(&infer->common, "exact"))
        infer->inference.exact = false;
    if (infer->dataset == NULL)
        *exit_out = cli_check_moved(&infer->common, infer->run, path);
    if (*exit_out == CLI_DONE && !cli_check_scratch(&infer->common, path, infer->inference.scratch))
        *exit_out = CLI_WRONG_USE;
    if (*exit_out != CLI_DONE)
        return PLIM_OK;
    PLIM_TRY(cli_open_dataset(job, path, NULL, &dataset));
    plim_status_t status = infer->verify ? plim_dataset_verify(job, dataset) : PLIM_OK;
    if (status == PLIM_OK) {
        warn_idle(infer, plim_dataset_info(dataset), &info.training.model);
        status = work(infer, job, dataset, &info);
    }
    plim_dataset_release(dataset);
    return status;
}

/* Returns the exit code. */
static int run_infer(infer_t *infer, work_fn work)
{
    plim_job_t *job;
    int exit_code = cli_ranks_join();
    if (exit_code != CLI_DONE)
        return exit_code;
    if (!cli_ranks_compare(&infer->common, "run", infer->run))
        return CLI_WRONG_USE;
    infer->common.quiet |= !cli_ranks_speaks();
    plim_status_t status = cli_job_start(&infer->common, &job);
    if (status != PLIM_OK)
        return cli_failed(&infer->common, status);
    status = work_on_run(infer, job, work, &exit_code);
    return cli_job_finish(&infer->common, job, exit_code, status);
}

/* Removes the sign of a NaN, so that it prints as "nan". */
static double without_sign(double value)
{
    return isnan(value) ? (double)NAN : value;
}

static json_t *errors_json(const plim_errors_t *errors)
{
    return json_pack("{s:o, s:o, s:o}", "mae", train_json_score(errors->mae), "rmse",
                     train_json_score(errors->rmse), "r2", train_json_score(errors->r2));
}

/* Adds the errors of a split, and, if there are several targets, of each. */
static void add_errors(json_t *split, const plim_errors_t *errors, int64_t targets)
{
    json_t *all = errors_json(errors), *each = json_array();
    for (int64_t i = 1; i <= targets; i++)
        (void)json_array_append_new(each, errors_json(&errors[i]));
    (void)json_object_update(split, all);
    if (targets > 1)
        (void)json_object_set(split, "targets", each);
    json_decref(all);
    json_decref(each);
}

static json_t *scores_json(const infer_t *infer, const char *metric, unsigned splits,
                           const double score[3], const double loss[3], int64_t targets)
{
    const plim_errors_t *errors = infer->inference.errors;
    json_t *object = json_pack("{s:o, s:b, s:s}", "run", cli_json_text(infer->run), "exact",
                               (int)infer->inference.exact, "metric", metric);
    for (int split = 0; split < 3; split++) {
        if ((splits >> split & 1) == 0)
            continue;
        json_t *of = json_pack("{s:o, s:o}", "score", train_json_score(score[split]), "loss",
                               train_json_score(loss[split]));
        if (errors != NULL)
            add_errors(of, errors + split * (1 + targets), targets);
        (void)json_object_set_new(object, train_split_name(split), of);
    }
    return object;
}

static void print_errors(const plim_errors_t *errors)
{
    (void)printf("mae %.4f, rmse %.4f, r2 %.4f\n", without_sign(errors->mae),
                 without_sign(errors->rmse), without_sign(errors->r2));
}

static void print_scores(const infer_t *infer, const char *metric, int split, double score,
                         double loss, int64_t targets)
{
    const plim_errors_t *errors = infer->inference.errors;
    (void)printf("%s: %s %.4f, loss %.4f\n", train_split_name(split), metric, without_sign(score),
                 without_sign(loss));
    if (errors == NULL)
        return;
    errors += split * (1 + targets);
    (void)printf("    ");
    print_errors(errors);
    for (int64_t i = 0; targets > 1 && i < targets && i < TARGETS_PRINTED; i++) {
        (void)printf("    target %lld: ", (long long)i);
        print_errors(&errors[i + 1]);
    }
    if (targets > TARGETS_PRINTED)
        (void)printf("    … %lld targets in all; --json has each\n", (long long)targets);
}

/* Memory for the errors of an evaluation of values; NULL for other metrics. */
static plim_errors_t *make_errors(plim_metric_t metric, int64_t targets)
{
    const bool measures =
        metric == PLIM_METRIC_MAE || metric == PLIM_METRIC_RMSE || metric == PLIM_METRIC_R2;
    return measures ? calloc(3 * (1 + (size_t)targets), sizeof(plim_errors_t)) : NULL;
}

static plim_status_t evaluate(infer_t *infer, plim_job_t *job, const plim_dataset_t *dataset,
                              const plim_run_info_t *run)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    double score[3], loss[3];
    unsigned splits = PLIM_SPLITS_ALL;
    if (infer->split < 0)
        splits = PLIM_SPLITS_VALID | PLIM_SPLITS_TEST;
    else if (infer->split != PLIM_ALL_NODES)
        splits = 1U << infer->split;
    if (infer->split < 0 || infer->split == PLIM_ALL_NODES)
        for (int split = 0; split < 3; split++)
            if (info->num_split[split] == 0)
                splits &= ~(1U << split);
    if (splits == 0)
        splits = PLIM_SPLITS_VALID; /* refused with the names of those that are not empty */
    plim_loss_t trained;
    plim_metric_t scored;
    plim_training_task(info, &run->training, &trained, &scored);
    if (infer->inference.table == NULL)
        infer->inference.errors = make_errors(scored, info->num_targets);
    plim_status_t status =
        plim_evaluate(job, dataset, infer->run, &infer->inference, (plim_splits_t)splits,
                      train_print_event, &infer->common, score, loss);
    if (status != PLIM_OK || !cli_ranks_speaks()) {
        free(infer->inference.errors);
        return status;
    }
    cli_leave_phase();
    const char *metric = plim_words(PLIM_WORDS_METRIC)[scored];
    char hits[32];
    if (infer->inference.table != NULL) {
        (void)snprintf(hits, sizeof hits, "hits@%lld", (long long)infer->inference.hits);
        metric = hits;
    }
    json_t *object = NULL;
    if (infer->common.json)
        object = scores_json(infer, metric, splits, score, loss, info->num_targets);
    else
        for (int split = 0; split < 3; split++)
            if ((splits >> split & 1) != 0)
                print_scores(infer, metric, split, score[split], loss[split], info->num_targets);
    free(infer->inference.errors);
    cli_flush();
    cli_job_report(job, object);
    if (object != NULL)
        cli_print_json(object);
    return PLIM_OK;
}

static bool take_negatives(void *context, char *value, char ***next)
{
    infer_t *infer = context;
    (void)next;
    return cli_parse_negatives(&infer->common, "--negatives", value, &infer->inference.negatives,
                               &infer->inference.drawn);
}

static const int link_hits[PLIM_LINK_HITS] = {1, 3, 10, 20, 50, 100};

static json_t *link_scores_json(const infer_t *infer, const plim_link_scores_t *scores)
{
    char name[16];
    json_t *object =
        json_pack("{s:o, s:b, s:I, s:I}", "run", cli_json_text(infer->run), "exact", 1, "pairs",
                  (json_int_t)scores->num_pairs, "negatives", (json_int_t)scores->num_negatives);
    (void)json_object_set_new(object, scores->shared ? "auc" : "mrr",
                              json_real(scores->shared ? scores->auc : scores->mrr));
    for (int i = 0; i < PLIM_LINK_HITS; i++) {
        (void)snprintf(name, sizeof name, "hits@%d", link_hits[i]);
        (void)json_object_set_new(object, name, json_real(scores->hits[i]));
    }
    return object;
}

static void print_link_scores(const plim_link_scores_t *scores)
{
    (void)printf("%lld pairs, %s%lld negatives: %s %.4f", (long long)scores->num_pairs,
                 scores->shared ? "" : "each with ", (long long)scores->num_negatives,
                 scores->shared ? "auc" : "mrr", scores->shared ? scores->auc : scores->mrr);
    for (int i = 0; i < PLIM_LINK_HITS; i++)
        (void)printf(", hits@%d %.4f", link_hits[i], scores->hits[i]);
    (void)printf("\n");
}

static plim_status_t evaluate_links(infer_t *infer, plim_job_t *job, const plim_dataset_t *dataset)
{
    plim_link_scores_t scores = PLIM_LINK_SCORES_INIT;
    const plim_status_t status = plim_evaluate_links(job, dataset, infer->run, &infer->inference,
                                                     train_print_event, &infer->common, &scores);
    if (status != PLIM_OK || !cli_ranks_speaks())
        return status;
    cli_leave_phase();
    json_t *object = infer->common.json ? link_scores_json(infer, &scores) : NULL;
    if (object == NULL)
        print_link_scores(&scores);
    cli_flush();
    cli_job_report(job, object);
    if (object != NULL)
        cli_print_json(object);
    return PLIM_OK;
}

/* evaluate's work: of a run over links, or of another. */
static plim_status_t evaluate_any(infer_t *infer, plim_job_t *job, const plim_dataset_t *dataset,
                                  const plim_run_info_t *run)
{
    if (infer->inference.pairs != NULL || infer->inference.negatives != NULL ||
        infer->inference.drawn > 0)
        return evaluate_links(infer, job, dataset);
    return evaluate(infer, job, dataset, run);
}

static int run_evaluate(int argc, char **argv)
{
    infer_t infer = {
        .common = {.verb = &cli_verb_evaluate}, .inference = PLIM_INFERENCE_INIT, .split = -1};
    int exit_code;
    if (!cli_read_options(argc, argv, &infer, &exit_code))
        return exit_code;
    if ((infer.inference.hits > 0) != (infer.inference.table != NULL))
        return cli_wrong_use(&infer.common, "--hits K and --table FILE go together");
    if (!take_words(&infer, argc, argv))
        return CLI_WRONG_USE;
    if (infer.inference.pairs != NULL && (infer.split >= 0 || infer.inference.table != NULL))
        return cli_wrong_use(&infer.common, "--pairs goes without --split and --hits");
    return run_infer(&infer, evaluate_any);
}

static const cli_option_t evaluate_options[] = {
    {"split", "NAME", "%s; default: valid and test", AT(split), SPLITS},
    {"exact", NULL, "whole neighbourhoods, layer by layer",
     "Not of a run with --temporal. Checksums of graph and features are compared only with "
     "--verify.",
     AT(inference.exact)},
    {"hits", "K",
     "the share of seeds for which the row of the table nearest to their values is among the K "
     "nearest to their output",
     "For a regression onto embeddings, by cosine.", AT(inference.hits), CLI_RANGE(1, INT32_MAX)},
    {"table", "FILE", "the table of --hits: embeddings as .npy",
     "An array of floats with a row for each embedding; it is held in memory.", AT(inference.table),
     .kind = CLI_TEXT},
    {"negatives", "FILE|N",
     "what --pairs are scored against: a .npy file of pairs, for AUC and hits@k; or of targets for "
     "each pair's source, (pairs, n), for MRR; or how many targets to draw for each",
     "As OGB's evaluators compute them. Drawn ones are any nodes, the same in every evaluation of "
     "a run. An array with an axis of 2 is one of pairs; where pairs have types, one with an axis "
     "of 3.",
     AT(inference.negatives), CLI_BY(take_negatives)},
    CLI_OPTIONS_END};

static const cli_group_t evaluate_groups[] = {{.title = "Options", .options = evaluate_options},
                                              {.options = shared_options},
                                              CLI_COMMON_GROUP,
                                              {.options = NULL}};

const cli_verb_t cli_verb_evaluate = {
    .name = "evaluate",
    .summary = "score a run's weights, sampled or exact",
    .help =
        "usage: plimsoll evaluate RUN [DIR] [options]\n\n"
        "Computes the metric and the loss of a run's best weights, with sampled neighbourhoods\n"
        "(as the training's evaluations do) or exactly; of a regression also MAE, RMSE and R2, of\n"
        "each target too. Of a run over links, MRR or AUC, and hits@k, of --pairs. DIR is the\n"
        "dataset, if it has moved.\n",
    .groups = evaluate_groups,
    .operand = ":directory",
    .run = run_evaluate,
};

/* In the order of plim_predict_kind_t. */
static const char *const kinds[] = {"logits",        "classes", "embeddings",
                                    "probabilities", "scores",  NULL};

static plim_status_t predict(infer_t *infer, plim_job_t *job, const plim_dataset_t *dataset,
                             const plim_run_info_t *run)
{
    json_t *object = NULL;
    const bool links = run->training.task == PLIM_TASK_LINK;
    if (links && !cli_given(&infer->common, "split"))
        infer->split = PLIM_ALL_NODES;
    if (links && infer->inference.pairs == NULL && !cli_given(&infer->common, "kind"))
        infer->kind = PLIM_PREDICT_EMBEDDINGS;
    plim_status_t status =
        plim_predict(job, dataset, infer->run, &infer->inference, (plim_split_t)infer->split,
                     infer->kind, infer->out, train_print_event, &infer->common);
    if (status != PLIM_OK || !cli_ranks_speaks())
        return status;
    cli_leave_phase();
    const char *name = infer->kind == PLIM_PREDICT_SCORES ? "pairs"
                       : infer->split == PLIM_ALL_NODES   ? "all"
                                                          : train_split_name(infer->split);
    if (infer->common.json)
        object = json_pack("{s:o, s:o, s:s, s:s, s:b}", "run", cli_json_text(infer->run), "out",
                           cli_json_text(infer->out), "split", name, "kind", kinds[infer->kind],
                           "exact", (int)infer->inference.exact);
    else if (!infer->common.quiet) {
        cli_print_text(stdout, infer->out);
        (void)printf(": %s of %s\n", kinds[infer->kind], name);
    }
    cli_flush();
    cli_job_report(job, object);
    if (object != NULL)
        cli_print_json(object);
    return PLIM_OK;
}

static int run_predict(int argc, char **argv)
{
    infer_t infer = {.common = {.verb = &cli_verb_predict},
                     .inference = PLIM_INFERENCE_INIT,
                     .split = PLIM_TEST};
    int exit_code;
    if (!cli_read_options(argc, argv, &infer, &exit_code))
        return exit_code;
    infer.inference.exact = !infer.sampled;
    if (infer.inference.pairs != NULL && !cli_given(&infer.common, "kind"))
        infer.kind = PLIM_PREDICT_SCORES;
    if (infer.inference.pairs != NULL &&
        (infer.kind != PLIM_PREDICT_SCORES || cli_given(&infer.common, "split") || infer.sampled))
        return cli_wrong_use(
            &infer.common, "--pairs goes with '--kind scores', and without --split and --sampled");
    if (!take_words(&infer, argc, argv))
        return CLI_WRONG_USE;
    if (infer.out == NULL)
        return cli_wrong_use(&infer.common,
                             "--out FILE.npy or FILE.csv is needed: where predictions go");
    return run_infer(&infer, predict);
}

static const cli_option_t predict_options[] = {
    {"out", "FILE",
     "a name ending in .npy (the ids of out.npy are in out.ids.npy) or .csv (ids in the first "
     "column; classes as the words that were imported), written whole or not at all; replaces "
     "earlier predictions, but no file of a dataset or a run",
     "OUTPUT has the details.", AT(out), .kind = CLI_TEXT},
    {"split", "NAME", "%s; default test; of a run over links: all", AT(split), SPLITS},
    {"kind", "KIND",
     "%s; default logits, of a run over links embeddings, with --pairs scores. logits: float32 (n, "
     "outputs); classes: int64 (n); probabilities: float32 (n, outputs); embeddings: float32 (n, "
     "hidden), the input of the last layer; scores: "
     "float32 (pairs), of --pairs",
     "classes are those with the largest output; probabilities are the softmax of the outputs, or "
     "with the loss bce the sigmoid of each. Of a run over links embeddings are the outputs of the "
     "last layer, by which pairs are scored.",
     AT(kind), .kind = CLI_WORD, .words = kinds},
    {"sampled", NULL,
     "sampled neighbourhoods, as in the training's evaluations; default: whole ones, except for "
     "runs with --temporal",
     "Sampled ones are drawn by its --eval-fanout, else its --fanout. Not with '--split all'.",
     AT(sampled)},
    CLI_OPTIONS_END};

static const cli_group_t predict_groups[] = {{.title = "Options", .options = predict_options},
                                             {.options = shared_options},
                                             CLI_COMMON_GROUP,
                                             {.options = NULL}};

const cli_verb_t cli_verb_predict = {
    .name = "predict",
    .summary = "write a run's predictions of nodes or graphs as .npy or .csv",
    .help =
        "usage: plimsoll predict RUN [DIR] --out FILE [options]\n\n"
        "Writes the predictions of a run's best weights for the nodes (or graphs) of a split, in\n"
        "the order of the split's file, or for all nodes; or, of a run over links, the scores of\n"
        "--pairs. DIR is the dataset, if it has moved.\n",
    .groups = predict_groups,
    .operand = ":directory",
    .run = run_predict,
};
