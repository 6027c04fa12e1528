/* What a run's weights say of nodes or graphs. */
#include "cli_infer.h"

#include <stdio.h>

enum { OPTION_OUT = INFER_OWN, OPTION_KIND, OPTION_SAMPLED };

static const struct option long_options[] = {INFER_OPTIONS,
                                             {"out", required_argument, NULL, OPTION_OUT},
                                             {"kind", required_argument, NULL, OPTION_KIND},
                                             {"sampled", no_argument, NULL, OPTION_SAMPLED},
                                             CLI_COMMON_OPTIONS};

/* In the order of plim_predict_kind_t. */
static const char *const kinds[] = {"logits", "classes", "embeddings", NULL};

typedef struct predict {
    const char *out;
    plim_predict_kind_t kind;
} predict_t;

static plim_status_t predict(infer_t *infer, plim_job_t *job, const plim_dataset_t *dataset,
                             const plim_run_info_t *run, void *context)
{
    const predict_t *wish = context;
    const int split = infer->split == INFER_SPLIT_ALL ? -1 : infer->split;
    json_t *object = NULL;
    (void)run;
    plim_status_t status = plim_predict(job, dataset, infer->run, &infer->inference, split,
                                        wish->kind, wish->out, train_say_event, &infer->common);
    if (status != PLIM_OK)
        return status;
    cli_leave_phase();
    const char *name = split < 0 ? "all" : train_split_name(split);
    if (infer->common.json)
        object = json_pack("{s:o, s:o, s:s, s:s, s:b}", "run", cli_json_text(infer->run), "out",
                           cli_json_text(wish->out), "split", name, "kind", kinds[wish->kind],
                           "exact", (int)infer->inference.exact);
    else if (!infer->common.quiet)
        (void)printf("%s: %s of %s\n", wish->out, kinds[wish->kind], name);
    cli_flush();
    cli_job_report(job, object);
    if (object != NULL)
        cli_print_json(object);
    return PLIM_OK;
}

static int run(int argc, char **argv)
{
    infer_t infer = {.common = {.verb = &cli_verb_predict},
                     .inference = PLIM_INFERENCE_INIT,
                     .split = PLIM_TEST};
    predict_t wish = {NULL, PLIM_PREDICT_LOGITS};
    int exit_code, code;
    infer.inference.exact = true;
    while ((code = cli_next_option(argc, argv, long_options, &infer.common, &exit_code)) != -1) {
        if (code == -2)
            return exit_code;
        if (code == OPTION_SAMPLED) {
            infer.inference.exact = false;
            infer.chosen = true;
        } else if (code == OPTION_OUT) {
            wish.out = optarg;
        } else if (code == OPTION_KIND) {
            const int kind = cli_parse_word(&infer.common, "--kind", kinds);
            if (kind < 0)
                return CLI_WRONG_USE;
            wish.kind = (plim_predict_kind_t)kind;
        } else if (!infer_take_option(&infer, code)) {
            return CLI_WRONG_USE;
        }
    }
    if (!infer_take_words(&infer, argc, argv))
        return CLI_WRONG_USE;
    if (wish.out == NULL)
        return cli_wrong_use(&infer.common, "--out FILE.npy is needed: where predictions go");
    return infer_run(&infer, predict, &wish);
}

const cli_verb_t cli_verb_predict = {
    .name = "predict",
    .summary = "what a run's weights say of nodes or graphs, as .npy",
    .help =
        "usage: plimsoll predict RUN [DIR] --out FILE.npy [options]\n\n"
        "Writes what the best weights of a run say of a split's nodes (or graphs), in the order\n"
        "of the split's file, or of all nodes. DIR is the dataset, where it has moved since.\n\n"
        "Options:\n"
        "  --out FILE       the .npy file, written whole or not at all; replaces an .npy file,\n"
        "                   but never one of a dataset or a run\n"
        "  --split NAME     train, valid, test (default) or all\n"
        "  --kind KIND      logits (default): float32 (n, outputs); classes: int64 (n);\n"
        "                   embeddings: float32 (n, hidden), what the last layer reads\n"
        "  --sampled        neighbourhoods drawn as in training, not whole ones\n"
        "  --weights FILE   a safetensors file; default: the run's best, else its last\n"
        "  --scratch DIR    where layers between go that do not fit in memory; default: RUN\n"
        "  --verify         check all of the dataset first, as inspect --verify does\n",
    .run = run,
};
