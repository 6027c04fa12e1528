/* `plimsoll train`: its options, and printing plans, events and results. */
#ifndef PLIM_CLI_VERB_TRAIN_H
#define PLIM_CLI_VERB_TRAIN_H

#include "command/cli.h"

typedef struct train {
    cli_common_t common;
    const char *dataset; /* NULL with --resume: the path in run.json */
    const char *run;     /* NULL: a new directory under runs/ */
    const char *resume;  /* NULL: a new run */
    bool requeued;       /* --run RUN --resume: begin the run, continue it, or do nothing */
    plim_training_t training;
    plim_plan_params_t params;
    int64_t more_epochs;         /* --epochs +N; 0: not given */
    int64_t print_every;         /* --log_steps: epochs between lines; 0: a line each */
    int64_t eval_exact;          /* --eval-exact: epochs between evaluations; 0: not given */
    bool verify;                 /* verify the whole dataset first */
    bool stage;                  /* copy the dataset first */
    const char *stage_directory; /* to this directory; NULL: to params.scratch */
    bool loader_words;           /* options of PyTorch's DataLoader, or a device, were given */
    bool amp;                    /* --use_amp or --use_fp16 was given */
    bool fan_out;                /* --fan-out was given */
    bool fanout_repeated;        /* the one number of --fanout is for each of several layers */
} train_t;

/* The options of train, which plan takes too; their struct is train_t. */
extern const cli_option_t train_model_options[], train_task_options[], train_sampling_options[],
    train_step_options[], train_memory_options[], train_run_options[], train_script_options[];

/* Applies the command line to `train`, which may hold the settings of a run. False: return
 * *exit_out. */
bool train_read_options(int argc, char **argv, train_t *train, int *exit_out);

/* Fills in missing options from the model and the dataset. False after an error message. */
bool train_resolve(train_t *train, const plim_dataset_info_t *info);

/* Lists the given options without effect, each with the reason. Returns their number. */
#define TRAIN_IDLE_MAX 18
int train_idle(const train_t *train, const plim_dataset_info_t *info, const cli_plan_t *plan,
               const char *texts_out[TRAIN_IDLE_MAX]);

/* Warns about them, and remarks on words of other scripts that mean something else here. */
void train_warn_idle(const train_t *train, const plim_dataset_info_t *info, const cli_plan_t *plan);

/* A phase as text: "while training". */
const char *train_phase_text(plim_phase_t phase);

/* "0.4 s", "38 s", "12 min", "1.5 h". */
const char *train_seconds_text(double seconds, char text_out[24]);

/* The first part of a run directory's name, where none is given: runs/DATASET-MODEL. */
void train_name_run(const train_t *train, char name_out[256]);

/* Writes the options of this start that a resume takes again, for run.json. */
void train_write_start(const train_t *train, char text_out[PLIM_START_MAX]);

/* Takes what the run's last start was given, unless it is given now, before the job starts under
 * it; a remark names it. Errors of the run are reported when it is read again. */
void train_take_start(train_t *train);

/* The directory to copy the dataset to; NULL: it is not copied, or the directory is not given. */
static inline const char *train_stage(const train_t *train)
{
    if (!train->stage)
        return NULL;
    return train->stage_directory != NULL ? train->stage_directory : train->params.scratch;
}

/* Texts of a plan besides its accounts; "" if missing. */
typedef struct train_plan_texts {
    char graph[64], features[64];  /* places of the data */
    char parts[64], recompute[64]; /* reduced sizes of batches */
    char batch[96], epoch[160];    /* expectations */
} train_plan_texts_t;

/* Seeds of a part where batches, or their shares, are computed in parts; 0: they are not. */
int64_t train_part_seeds(const cli_plan_t *plan, const plim_training_t *training);

void train_plan_texts(const cli_plan_t *plan, const plim_training_t *training,
                      train_plan_texts_t *texts_out);

/* "gcn, 2 layers, hidden 16, fan-out 3,2, batch 128, f32". */
const char *train_recipe_text(const plim_training_t *training, char text_out[256]);

/* Prints what is trained, on what. */
void train_print_recipe(const train_t *train, const plim_dataset_info_t *info);

/* Prints the table of phases and accounts at the end of a training. */
void train_print_where(const plim_job_t *job);

/* Prints the plan; with --json also the event "plan". */
void train_print_plan(const train_t *train, const plim_dataset_info_t *info, const cli_plan_t *plan,
                      const char *run);

/* A plim_train_event_fn; `user` is a cli_common_t. */
void train_print_event(void *user, const plim_train_event_t *event);

/* Prints the result, or adds it to `object`. */
void train_print_result(const train_t *train, const plim_train_result_t *result, json_t *object);

/* "train", "valid", "test". */
const char *train_split_name(int split);

/* A score, or null when it is not finite. */
json_t *train_json_score(double score);

#endif
