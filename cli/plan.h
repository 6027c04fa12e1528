/* What `plimsoll plan` is asked for, and what it says. */
#ifndef PLIM_CLI_PLAN_H
#define PLIM_CLI_PLAN_H

#include "cli.h"

/* `plan --for pyg`: how the script is written, and what its peak is compared with. */
typedef struct plan_pyg_options {
    plim_pyg_options_t pyg;
    int64_t line; /* under which it would run; 0: unknown */
    int64_t ours; /* what plimsoll holds for the same training; 0: unknown */
} plan_pyg_options_t;

enum {
    PLAN_PYG_GRAPH = CLI_OPTION_OWN + 0x80,
    PLAN_PYG_MAPPED,
    PLAN_PYG_LOADERS,
    PLAN_PYG_WORKERS,
    PLAN_PYG_PREFETCH,
    PLAN_PYG_PERSISTENT,
    PLAN_PYG_PIN,
    PLAN_PYG_GPU,
    PLAN_PYG_END
};

/* The options that only --for pyg has, for the verb's table of options. */
#define PLAN_PYG_OPTIONS                                                                           \
    {"graph", required_argument, NULL, PLAN_PYG_GRAPH},                                            \
        {"mapped-features", no_argument, NULL, PLAN_PYG_MAPPED},                                   \
        {"loaders", required_argument, NULL, PLAN_PYG_LOADERS},                                    \
        {"workers", required_argument, NULL, PLAN_PYG_WORKERS},                                    \
        {"prefetch", required_argument, NULL, PLAN_PYG_PREFETCH},                                  \
        {"persistent-workers", no_argument, NULL, PLAN_PYG_PERSISTENT},                            \
        {"pin-memory", no_argument, NULL, PLAN_PYG_PIN},                                           \
    {                                                                                              \
        "gpu-memory", required_argument, NULL, PLAN_PYG_GPU                                        \
    }

/* Of the verb's help. */
extern const char plan_pyg_help[];

/* Takes one of these options (PLAN_PYG_GRAPH <= code < PLAN_PYG_END); false when its value is none,
 * already said. */
bool plan_pyg_take_option(const cli_common_t *common, int code, plan_pyg_options_t *options);

/* Says what the training takes in PyTorch Geometric, for people or as JSON; the exit code. */
int plan_for_pyg(const cli_common_t *common, const plim_job_t *job, const plim_dataset_t *dataset,
                 const plim_training_t *training, const plan_pyg_options_t *options);

#endif
