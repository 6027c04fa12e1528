/*
 * A run's directory: run.json, metrics.jsonl, timeline.jsonl, last.safetensors, best.safetensors,
 * and the lock that keeps a second job out.
 *
 * metrics.jsonl holds nothing that depends on machine or time, so a killed and resumed run ends
 * with the same bytes. Resuming truncates lines that were appended after the last checkpoint.
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
    int directory;       /* open: files are used in it, whatever others do to its name */
    bool made_directory; /* this job made these; plim__run_discard removes only them */
    bool made_lock;
    bool made_json;
    int lock_fd; /* -1 if the file system has no locks */
    plim__run_lines_t metrics;
    plim__run_lines_t timeline;
    bool timeline_lost;       /* the disk was full; no more lines are written */
    char init[PLIM_PATH_MAX]; /* first weights, as in run.json; "": drawn by the seed */
    plim__run_drafts_t last, best;
    plim__checkpoint_t checkpoint; /* settings, dataset and machine of the run */
} plim__run_t;

/* Creates `path` (its parent must exist) with run.json, durable, and locks it. PLIM_ERR_USAGE if it
 * is a dataset, holds a run, holds an entry with the name of a run's file, or is another user's;
 * PLIM_ERR_IO. Existing files stay unchanged. `dataset_path` is made absolute. */
plim_status_t plim__run_create(const plim_job_t *job, const char *path, const char *dataset_path,
                               const plim_dataset_info_t *dataset, const plim_training_t *training,
                               plim__run_t **run_out);

/*
 * Locks an existing run and compares. PLIM_ERR_USAGE for another dataset, for a setting that
 * changes the result (the message names it), for other first weights than it began with, for more
 * epochs after patience ended the run, for another user's run, and if another process holds it.
 * Logs a change of processor, threads or library versions.
 */
plim_status_t plim__run_open(const plim_job_t *job, const char *path,
                             const plim_dataset_info_t *dataset, const plim_training_t *training,
                             plim__run_t **run_out);
void plim__run_close(plim__run_t *run);

/* Removes a new run whose weights were never updated: the files that it made, and its directory if
 * plim__run_create made that. The caller still closes the run. */
void plim__run_discard(plim__run_t *run);

/*
 * Loads last.safetensors into parameters, moments and position, and truncates metrics.jsonl to it.
 * Without a checkpoint the position is the first, metrics.jsonl becomes empty, and *found_out is
 * false.
 */
plim_status_t plim__run_load(plim__run_t *run, plim__parameter_t *parameters, int count,
                             plim__position_t *position_out, bool *found_out);

/*
 * Reserves disk space for the next checkpoint, or for the first two of a run that has none. After
 * that plim__run_save succeeds once more even if another process fills the disk. With `best` it
 * reserves best.safetensors too. Call it at a run's start and after each plim__run_save.
 * PLIM_ERR_SPACE.
 */
plim_status_t plim__run_reserve(plim__run_t *run, const plim__parameter_t *parameters, int count,
                                bool best);

/* Writes last.safetensors; metrics.jsonl is made durable first. Sets the position's metrics_bytes
 * and metrics_crc. */
plim_status_t plim__run_save(plim__run_t *run, const plim__parameter_t *parameters, int count,
                             plim__position_t *position);

/* Writes a checkpoint into a reserved draft without naming it, so that the process allocates all
 * memory that saving takes. No file changes. */
plim_status_t plim__run_rehearse_save(plim__run_t *run, const plim__parameter_t *parameters,
                                      int count, const plim__position_t *position);

/* Writes best.safetensors: the values and their scores. Call it before the plim__run_save whose
 * position refers to it; otherwise a kill between the two would lose it. */
plim_status_t plim__run_save_best(plim__run_t *run, const plim__parameter_t *parameters, int count,
                                  const plim__position_t *position);

/* Reads best.safetensors into the values of parameters. PLIM_ERR_DATA if it is of another epoch
 * than `epoch`, PLIM_ERR_IO if it does not exist. */
plim_status_t plim__run_load_best(const plim__run_t *run, int64_t epoch,
                                  plim__parameter_t *parameters, int count);

/* Appends one line (without its newline) to metrics.jsonl or timeline.jsonl. If the disk is full,
 * the timeline stops with a warning: it holds only speeds, no results. */
plim_status_t plim__run_metrics(plim__run_t *run, const char *line);
plim_status_t plim__run_timeline(plim__run_t *run, const char *line);

/* Reads a weights file (NULL: the run's best, else its last) into the values of parameters; the
 * file must have every parameter with its shape. For evaluate and predict, which need no lock
 * (directory AT_FDCWD), and for the open directory of a run. */
plim_status_t plim__run_weights(const plim_job_t *job, int directory, const char *run,
                                const char *weights, plim__parameter_t *parameters, int count);

/* directory/name; PLIM_ERR_USAGE if that is too long. */
plim_status_t plim__run_path(const char *directory, const char *name,
                             char path_out[PLIM__RUN_PATH]);

/* Whether last.safetensors exists. */
bool plim__run_is_saved(const plim__run_t *run);

/* Releases the disk space of all drafts. */
void plim__run_release(plim__run_t *run);

/* Whether `name` is a run's file or a temporary file of one. */
bool plim__run_has_file(const char *name);

/* Reads the position of last.safetensors; *found_out is false if the run has none yet. `directory`:
 * of an open run, else AT_FDCWD. */
plim_status_t plim__run_position(const plim_job_t *job, int directory, const char *path,
                                 plim__position_t *position_out, bool *found_out);

#endif
