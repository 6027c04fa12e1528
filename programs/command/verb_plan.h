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

/* Options of --for pyg alone; their struct is plan_pyg_options_t. */
extern const cli_option_t plan_pyg_script_options[];

/* --late-loaders of a sweep: yes or no. False after an error message. */
bool plan_pyg_set_late(const cli_common_t *common, const char *value, plan_pyg_options_t *options);

/* Prints an estimate for PyTorch Geometric, as a table or as JSON. */
void plan_pyg_print(const cli_common_t *common, const plim_training_t *training,
                    const plan_pyg_options_t *options, const pyg_plan_t *plan);

/* The columns of a sweep, and an estimate as their row. */
void plan_pyg_print_head(void);
void plan_pyg_print_row(const pyg_plan_t *plan, const pyg_params_t *params);

typedef struct plan {
    train_t train;                 /* first: its options are parsed with the others */
    plim_generate_options_t shape; /* shape.shape is NULL: a dataset directory */
    plan_sweep_t sweep;
    bool for_pyg;
    bool pyg_given; /* an option of --for pyg alone was given */
    bool measure;
    int other_library; /* --for: 0, the only one */
    plan_pyg_options_t pyg;
    bool elsewhere;     /* --threads may exceed what this machine has */
    double try_seconds; /* --try; 0: not given */
    int64_t ranks;      /* --ranks; 0: not given */
    plim_limits_t limits;
    int64_t line;
    const char *line_source;
} plan_t;

/* The plan of a training under a line. */
typedef struct plan_found {
    bool fits;
    int64_t line;
    bool planned;         /* `plan` is set */
    cli_plan_t plan;      /* under the line, or under the minimum if it does not fit */
    int64_t packed_bytes; /* disk space of --scratch; 0: it was given, or would save no reads */
    int64_t packed_reads; /* reads of an epoch with --scratch */
    bool tried;           /* `trial` is a trial of this training under the line */
    plim_trial_t trial;
    plim_dataset_info_t info;
    char refusal[1024]; /* if it does not fit */
    int num_advice;
    plim_advice_t advice[PLAN_ADVICE];
} plan_found_t;

/* Finds the line and the threads. */
plim_status_t plan_prepare(plan_t *plan);

/* Resolves and plans `train` under `line`. Returns PLIM_OK also if it does not fit. *wrong_out: the
 * settings are wrong, and an error message was printed. */
plim_status_t plan_find(const plan_t *plan, train_t *train, int64_t line, bool advised,
                        plan_found_t *found_out, bool *wrong_out);

/* Resolves plan->train and estimates it for PyTorch Geometric. *wrong_out as above. */
plim_status_t plan_pyg_find(plan_t *plan, pyg_plan_t *estimate_out, bool *wrong_out);

/* MPI's memory in each of plan->ranks ranks, which plans count in the process: measured if the
 * command runs under mpirun. Open MPI and MPICH take 10 to 18 MiB on one machine; fast networks
 * take more. */
#define PLAN_MPI_BYTES ((int64_t)64 << 20)
int64_t plan_mpi_bytes(const plan_t *plan);

/* What plan->ranks ranks exchange, and how they divide a batch; nothing without --ranks. */
void plan_ranks_print(const plan_t *plan, const train_t *train, const plan_found_t *found);
json_t *plan_ranks_json(const plan_t *plan, const train_t *train, const plan_found_t *found);

/* Batches have a share for each rank, unless --shares says otherwise. False after an error message:
 * fewer shares than ranks. */
bool plan_resolve_ranks(plan_t *plan, train_t *train);

/* Prints the plan: a summary, the table, and the lines for a batch script; or as one JSON object.
 */
void plan_print(const plan_t *plan, const train_t *train, const plan_found_t *found);
json_t *plan_json(const plan_t *plan, const train_t *train, const plan_found_t *found);

/* The options of an advice: "--batch-size 512 --precision bf16". */
#define PLAN_CHANGE 320
const char *plan_change(const plim_advice_t *advice, char text_out[PLAN_CHANGE]);

/* What to ask a scheduler for: the peak with a share of it and bytes for the script's shell, but no
 * more than the line; PLAN_TIME_MARGIN times the time of the trial, and PLAN_TIME_MINUTES for the
 * start and Slurm's signal, which comes up to three minutes before the limit. */
#define PLAN_MEMORY_SHARE 20
#define PLAN_MEMORY_MARGIN ((int64_t)32 << 20)
#define PLAN_TIME_MARGIN 2
#define PLAN_TIME_MINUTES 4
typedef struct plan_ask {
    int64_t mebibytes;
    int64_t minutes; /* 0: not known without a trial */
    int64_t cpus;
    bool line; /* the memory is the line's: the peak leaves no margin under it */
} plan_ask_t;
plan_ask_t plan_ask(const plan_t *plan, const plan_found_t *found);

/* "1-02:30:00", as --time takes it. */
const char *plan_time_text(int64_t minutes, char text_out[32]);

/* Reads --try [SECONDS], also of the next word. False after an error message. */
#define PLAN_TRY_SECONDS 20
bool plan_parse_try(const cli_common_t *common, const char *text, char ***next,
                    double *seconds_out);

/* Whether this machine has the plan's line. False after an error message. */
bool plan_can_try(const plan_t *plan);

/* Reads --sweep and the words that follow it: "batch=128,256" "fanout=3,2:10,5". */
bool plan_take_sweep(void *context, char *value, char ***next);

/* Plans and prints every combination. Returns the exit code. */
int plan_run_sweep(plan_t *plan);

#endif
