/*
 * A run's directory: run.json, metrics.jsonl, timeline.jsonl, last.safetensors, best.safetensors;
 * and the lock that keeps a second job out.
 *
 * metrics.jsonl holds nothing that differs from one machine or try to the next (no times): killed
 * and resumed, it ends as the same bytes. What was appended after the last checkpoint is cut off
 * when the run resumes.
 */
#ifndef PLIM_TRAIN_RUN_H
#define PLIM_TRAIN_RUN_H

#include "train/checkpoint.h"
#include "train/run_lines.h"

#define PLIM__RUN_JSON "run.json"
#define PLIM__RUN_LAST "last.safetensors"
#define PLIM__RUN_BEST "best.safetensors"

/* Drafts of one file with their disk space reserved. Two until the file exists, then one: the next
 * draft takes over the space of the file that it replaces. */
typedef struct plim__run_drafts {
    plim__draft_t draft[2];
    int count;
} plim__run_drafts_t;

typedef struct plim__run {
    plim__arena_t arena;
    const plim_job_t *job;
    char path[PLIM_PATH_MAX];
    bool made_directory; /* these were made by this job: only they are removed again */
    bool made_lock;
    bool made_json;
    int lock_fd; /* -1 where the file system has no locks */
    plim__run_lines_t metrics;
    plim__run_lines_t timeline;
    bool timeline_lost; /* the disk was full: no more lines are written */
    plim__run_drafts_t last, best;
    plim__checkpoint_t checkpoint; /* settings, dataset and machine of the run */
} plim__run_t;

/* Memory of an open run: tables, and what a checkpoint takes while it is written. */
size_t plim__run_estimate(void);

/* Makes `path` (its parent must exist) with run.json, durable, and locks it. PLIM_ERR_USAGE when it
 * holds a run already, or anything under a name that a run's files have, or is a dataset;
 * PLIM_ERR_IO. What is there stays as it is. `dataset_path` is made absolute. */
plim_status_t plim__run_create(const plim_job_t *job, const char *path, const char *dataset_path,
                               const plim_dataset_info_t *dataset, const plim_training_t *training,
                               plim__run_t **run_out);

/*
 * Locks an existing run and compares: PLIM_ERR_DATA for another dataset; PLIM_ERR_USAGE naming what
 * decides the result and is not as in run.json, for more epochs of a run that patience ended, or
 * that another process has the run. Other processors, threads or library versions are logged.
 */
plim_status_t plim__run_open(const plim_job_t *job, const char *path,
                             const plim_dataset_info_t *dataset, const plim_training_t *training,
                             plim__run_t **run_out);
void plim__run_close(plim__run_t *run);

/* Removes a run that was made and could not begin: the files that plim__run_create made, and its
 * directory where that was made with them. It is still to be closed. */
void plim__run_discard(plim__run_t *run);

/*
 * last.safetensors into parameters, moments and position, and metrics.jsonl cut back to it. A run
 * that has none yet starts anew: the position is the first, metrics.jsonl empty, *found_out false.
 */
plim_status_t plim__run_load(plim__run_t *run, plim__parameter_t *parameters, int count,
                             plim__position_t *position_out, bool *found_out);

/*
 * Reserves disk space for the next checkpoint, or for the first two of a run that has none. After
 * that plim__run_save succeeds once more even if somebody else fills the disk. With `best` it
 * reserves best.safetensors too. For a run's start and after each plim__run_save. PLIM_ERR_SPACE.
 */
plim_status_t plim__run_reserve(plim__run_t *run, const plim__parameter_t *parameters, int count,
                                bool best);

/* last.safetensors anew, metrics.jsonl made durable before it; the position's metrics_bytes and
 * metrics_crc are set here. */
plim_status_t plim__run_save(plim__run_t *run, const plim__parameter_t *parameters, int count,
                             plim__position_t *position);

/* Writes what plim__run_save would, into a reserved draft that stays one: so the process has held
 * whatever saving takes, and no file changes. */
plim_status_t plim__run_rehearse_save(plim__run_t *run, const plim__parameter_t *parameters,
                                      int count, const plim__position_t *position);

/* best.safetensors anew: values only, and what they reached. To be called before the plim__run_save
 * whose position counts it, or a kill between the two would lose it. */
plim_status_t plim__run_save_best(plim__run_t *run, const plim__parameter_t *parameters, int count,
                                  const plim__position_t *position);

/* best.safetensors back into the values of parameters. PLIM_ERR_DATA when it is of another epoch
 * than `epoch`, PLIM_ERR_IO when there is none. */
plim_status_t plim__run_load_best(const plim__run_t *run, int64_t epoch,
                                  plim__parameter_t *parameters, int count);

/* Appends one line (without its newline) to metrics.jsonl or timeline.jsonl. Where the disk is
 * full, the timeline is given up with a warning: it says how fast a run was, not what it reached.
 */
plim_status_t plim__run_metrics(plim__run_t *run, const char *line);
plim_status_t plim__run_timeline(plim__run_t *run, const char *line);

/* A weights file (NULL: the run's best, else its last) into the values of parameters; every
 * parameter must be there with its shape. For evaluate and predict, which need no lock. */
plim_status_t plim__run_weights(const plim_job_t *job, const char *run, const char *weights,
                                plim__parameter_t *parameters, int count);

/* directory/name; PLIM_ERR_USAGE when that is too long. */
plim_status_t plim__run_path(const char *directory, const char *name,
                             char path_out[PLIM__RUN_PATH]);

/* Releases the disk space of all drafts. */
void plim__run_release(plim__run_t *run);

/* Whether a run keeps a file of that name in its directory, or one in the making. */
bool plim__run_has_file(const char *name);

/* Position of last.safetensors; *found_out is false when the run has none yet. */
plim_status_t plim__run_position(const plim_job_t *job, const char *path,
                                 plim__position_t *position_out, bool *found_out);

#endif
