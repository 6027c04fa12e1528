/* How good a run's weights are, on any split. */
#include "cli_infer.h"

#include <math.h>
#include <stdio.h>

enum { OPTION_EXACT = INFER_OWN };

static const struct option long_options[] = {
    INFER_OPTIONS, {"exact", no_argument, NULL, OPTION_EXACT}, CLI_COMMON_OPTIONS};

/* A NaN, which some sums give a sign, prints as "nan". */
static double without_sign(double value)
{
    return isnan(value) ? (double)NAN : value;
}

static json_t *describe(const infer_t *infer, const char *metric, unsigned splits,
                        const double score[3], const double loss[3])
{
    json_t *object = json_pack("{s:o, s:b, s:s}", "run", cli_json_text(infer->run), "exact",
                               (int)infer->inference.exact, "metric", metric);
    for (int split = 0; split < 3; split++)
        if ((splits >> split & 1) != 0)
            (void)json_object_set_new(object, train_split_name(split),
                                      json_pack("{s:o, s:o}", "score",
                                                train_json_score(score[split]), "loss",
                                                train_json_score(loss[split])));
    return object;
}

static plim_status_t evaluate(infer_t *infer, plim_job_t *job, const plim_dataset_t *dataset,
                              const plim_run_info_t *run, void *context)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    double score[3], loss[3];
    unsigned splits = 7U;
    (void)context;
    if (infer->split < 0)
        splits = 1U << PLIM_VALID | 1U << PLIM_TEST;
    else if (infer->split != INFER_SPLIT_ALL)
        splits = 1U << infer->split;
    if (infer->split < 0 || infer->split == INFER_SPLIT_ALL)
        for (int split = 0; split < 3; split++)
            if (info->num_split[split] == 0)
                splits &= ~(1U << split);
    plim_status_t status = plim_evaluate(job, dataset, infer->run, &infer->inference, splits,
                                         train_say_event, &infer->common, score, loss);
    if (status != PLIM_OK)
        return status;
    cli_leave_phase();
    const char *metric = plim_words(PLIM_WORDS_METRIC)[plim_training_metric(info, &run->training)];
    json_t *object = NULL;
    if (infer->common.json)
        object = describe(infer, metric, splits, score, loss);
    else
        for (int split = 0; split < 3; split++)
            if ((splits >> split & 1) != 0)
                (void)printf("%s: %s %.4f, loss %.4f\n", train_split_name(split), metric,
                             without_sign(score[split]), without_sign(loss[split]));
    cli_flush();
    cli_job_report(job, object);
    if (object != NULL)
        cli_print_json(object);
    return PLIM_OK;
}

static int run(int argc, char **argv)
{
    infer_t infer = {
        .common = {.verb = &cli_verb_evaluate}, .inference = PLIM_INFERENCE_INIT, .split = -1};
    int exit_code, code;
    while ((code = cli_next_option(argc, argv, long_options, &infer.common, &exit_code)) != -1) {
        if (code == -2)
            return exit_code;
        if (code == OPTION_EXACT)
            infer.inference.exact = infer.chosen = true;
        else if (!infer_take_option(&infer, code))
            return CLI_WRONG_USE;
    }
    if (!infer_take_words(&infer, argc, argv))
        return CLI_WRONG_USE;
    return infer_run(&infer, evaluate, NULL);
}

const cli_verb_t cli_verb_evaluate = {
    .name = "evaluate",
    .summary = "how good a run's weights are, sampled or exact",
    .help =
        "usage: plimsoll evaluate RUN [DIR] [options]\n\n"
        "Scores the best weights of a run by its metric: with neighbourhoods drawn as in\n"
        "training, which gives what training said, or exactly. DIR is the dataset, where it has\n"
        "moved since.\n\n"
        "Options:\n"
        "  --split NAME     train, valid, test or all; default: valid and test\n"
        "  --exact          whole neighbourhoods, layer by layer\n"
        "  --weights FILE   a safetensors file; default: the run's best, else its last\n"
        "  --scratch DIR    where layers between go that do not fit in memory; default: RUN\n"
        "  --verify         check all of the dataset first, as inspect --verify does\n",
    .run = run,
};
