/* `plimsoll plan`: its options, its result, and printing it. */
#ifndef PLIM_CLI_VERB_PLAN_H
#define PLIM_CLI_VERB_PLAN_H

#include "command/verb_train.h"
#include "pyg/pyg.h"

#define PLAN_SWEEP_KEYS 8
#define PLAN_SWEEP_VALUES 32
#define PLAN_SWEEP_ROWS 1024
#define PLAN_ADVICE 8

/* --sweep: settings and their values; every combination is planned. */
typedef struct plan_sweep {
    int num_keys; /* 0: no sweep */
    struct {
        const char *name;
        int num_values;
        char *values[PLAN_SWEEP_VALUES];
    } keys[PLAN_SWEEP_KEYS];
} plan_sweep_t;

/* `plan --for pyg`: the form of the script, and the numbers that its peak is compared with. */
typedef struct plan_pyg_options {
    pyg_params_t pyg;
    int64_t ours; /* plimsoll's minimum for the same training; 0: unknown */
} plan_pyg_options_t;

enum {
    PLAN_PYG_GRAPH = TRAIN_OPTION_MORE + 0x40,
    PLAN_PYG_MAPPED,
    PLAN_PYG_LOADERS,
    PLAN_PYG_WORKERS,
    PLAN_PYG_PREFETCH,
    PLAN_PYG_PERSISTENT,
    PLAN_PYG_PIN,
    PLAN_PYG_GPU,
    PLAN_PYG_LATE
};

/* Options of --for pyg alone, for the verb's table of options. */
#define PLAN_PYG_OPTIONS                                                                           \
    {"graph", required_argument, NULL, PLAN_PYG_GRAPH},                                            \
        {"mapped-features", no_argument, NULL, PLAN_PYG_MAPPED},                                   \
        {"loaders", required_argument, NULL, PLAN_PYG_LOADERS},                                    \
        {"workers", required_argument, NULL, PLAN_PYG_WORKERS},                                    \
        {"num-workers", required_argument, NULL, PLAN_PYG_WORKERS},                                \
        {"prefetch", required_argument, NULL, PLAN_PYG_PREFETCH},                                  \
        {"prefetch-factor", required_argument, NULL, PLAN_PYG_PREFETCH},                           \
        {"persistent-workers", no_argument, NULL, PLAN_PYG_PERSISTENT},                            \
        {"pin-memory", no_argument, NULL, PLAN_PYG_PIN},                                           \
        {"late-loaders", no_argument, NULL, PLAN_PYG_LATE},                                        \
    {                                                                                              \
        "gpu-memory", required_argument, NULL, PLAN_PYG_GPU                                        \
    }

/* Takes one of these options. False after an error message. */
bool plan_pyg_take_option(const cli_common_t *common, int code, plan_pyg_options_t *options);

/* Takes a value of --sweep: workers, loaders, late-loaders or gpu-memory. False after an error
 * message. */
bool plan_pyg_set(const cli_common_t *common, const char *name, char *value,
                  plan_pyg_options_t *options);

/* Prints an estimate for PyTorch Geometric (pyg_json). */
void plan_pyg_print(const cli_common_t *common, const plim_training_t *training,
                    const plan_pyg_options_t *options, json_t *estimate);

/* The columns of a sweep, and an estimate as their row. */
void plan_pyg_print_head(void);
void plan_pyg_print_row(const json_t *estimate);

typedef struct plan {
    train_t train;                 /* first: its options are parsed with the others */
    plim_generate_options_t shape; /* shape.shape is NULL: a dataset directory */
    unsigned shape_given;          /* a bit for each CLI_SHAPE_ option that was given */
    plan_sweep_t sweep;
    bool for_pyg;
    bool pyg_given; /* an option of --for pyg alone was given */
    plan_pyg_options_t pyg;
    bool elsewhere;     /* --threads may exceed what this machine has */
    double try_seconds; /* --try; 0: not given */
    bool silent;        /* no messages: the plan is for a part of the answer */
    int64_t ranks;      /* --ranks; 0: not given */
    plim_limits_t limits;
    int64_t line;
    const char *line_source;
} plan_t;

/* The plan of a training under a line. */
typedef struct plan_found {
    bool fits;
    int64_t line;
    json_t *plan; /* under the line, or under the minimum if it does not fit */
    bool tried;   /* `trial` is a trial of this training under the line */
    plim_trial_t trial;
    plim_dataset_info_t info;
    char refusal[1024]; /* if it does not fit */
    int num_advice;
    plim_advice_t advice[PLAN_ADVICE];
} plan_found_t;

/* Finds the line and the threads. */
plim_status_t plan_prepare(plan_t *plan);

/* Settles and plans `train` under `line`. Returns PLIM_OK also if it does not fit. *said_out: the
 * settings are wrong, and an error message was printed. */
plim_status_t plan_find(const plan_t *plan, train_t *train, int64_t line, bool advised,
                        plan_found_t *found_out, bool *said_out);

void plan_found_end(plan_found_t *found);

/* Settles `train` and estimates it for PyTorch Geometric; the caller releases the object. *said_out
 * as above. */
plim_status_t plan_pyg_find(const plan_t *plan, train_t *train, const plan_pyg_options_t *options,
                            json_t **estimate_out, bool *said_out);

/* MPI's memory in each of plan->ranks ranks, which plans count in the process: measured if the
 * command runs under mpirun. Open MPI and MPICH take 10 to 18 MiB on one machine; fast networks
 * take more. */
#define PLAN_MPI_BYTES ((int64_t)64 << 20)
int64_t plan_mpi_bytes(const plan_t *plan);

/* Adds to the plan what plan->ranks ranks exchange, and how they divide a batch. */
void plan_ranks(const plan_t *plan, const train_t *train, plan_found_t *found);
void plan_ranks_print(const json_t *plan);

/* Batches have a share for each rank, unless --shares says otherwise. False after an error message:
 * fewer shares than ranks. */
bool plan_settle_ranks(plan_t *plan, train_t *train);

/* Prints the plan: a summary, the table, and the lines for a batch script; or as one JSON object.
 */
void plan_print(const plan_t *plan, const train_t *train, const plan_found_t *found);
json_t *plan_json(const plan_t *plan, const plan_found_t *found);

/* What to ask a scheduler for: the peak with a share of it and bytes for the script's shell, but no
 * more than the line; PLAN_TIME_MARGIN times the time of the trial, and a minute. */
#define PLAN_MEMORY_SHARE 20
#define PLAN_MEMORY_SPARE ((int64_t)32 << 20)
#define PLAN_TIME_MARGIN 2
typedef struct plan_ask {
    int64_t mebibytes;
    int64_t minutes; /* 0: not known without a trial */
    int64_t cpus;
} plan_ask_t;
plan_ask_t plan_ask(const plan_t *plan, const plan_found_t *found);

/* "1-02:30:00", as --time takes it. */
const char *plan_time_text(int64_t minutes, char text_out[32]);

/* Takes --try [SECONDS]: a number in `optarg` or in the next word. False after an error message. */
#define PLAN_TRY_SECONDS 20
bool plan_take_try(const cli_common_t *common, int argc, char **argv, double *seconds_out);

/* Whether this machine has the plan's line. False after an error message. */
bool plan_can_try(const plan_t *plan);

/* The trial as a JSON object; null where there is none. */
json_t *plan_trial_json(const plan_found_t *found);

/* Parses --sweep and the words that follow it: "batch=128,256" "fanout=3,2:10,5". */
bool plan_take_sweep(plan_t *plan, int argc, char **argv);

/* Plans and prints every combination. Returns the exit code. */
int plan_run_sweep(plan_t *plan);

#endif
