/* What `plimsoll evaluate` and `plimsoll predict` share: a run, its dataset, which weights. */
#ifndef PLIM_CLI_CLI_INFER_H
#define PLIM_CLI_CLI_INFER_H

#include "verb_train.h"

typedef struct infer {
    cli_common_t common;
    const char *run;
    const char *dataset; /* NULL: where run.json says */
    plim_inference_t inference;
    int split;   /* 0 … 2; 3: all; -1: not given */
    bool chosen; /* --exact or --sampled was given */
    bool verify; /* the dataset, all of it, before anything else */
} infer_t;

enum {
    INFER_OPTION_SPLIT = CLI_OPTION_OWN,
    INFER_OPTION_WEIGHTS,
    INFER_OPTION_SCRATCH,
    INFER_OPTION_VERIFY,
    INFER_OWN
};

#define INFER_SPLIT_ALL 3

#define INFER_OPTIONS                                                                              \
    {"split", required_argument, NULL, INFER_OPTION_SPLIT},                                        \
        {"weights", required_argument, NULL, INFER_OPTION_WEIGHTS},                                \
        {"scratch", required_argument, NULL, INFER_OPTION_SCRATCH},                                \
    {                                                                                              \
        "verify", no_argument, NULL, INFER_OPTION_VERIFY                                           \
    }

/* False when the option's value is none, already said. */
bool infer_take_option(infer_t *infer, int code);

/* RUN, or RUN DIR. */
bool infer_take_words(infer_t *infer, int argc, char **argv);

/*
 * Starts the job, reads the run, opens its dataset, and calls `work`; ends all of it and returns
 * the exit code.
 */
typedef plim_status_t (*infer_work_fn)(infer_t *infer, plim_job_t *job,
                                       const plim_dataset_t *dataset, const plim_run_info_t *info,
                                       void *context);
int infer_run(infer_t *infer, infer_work_fn work, void *context);

#endif
