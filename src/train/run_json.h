/* run.json: what a run is, written when it begins; only what does not decide the result changes. */
#ifndef PLIM_TRAIN_RUN_JSON_H
#define PLIM_TRAIN_RUN_JSON_H

#include "base/job.h"

#include <plimsoll/train.h>

#define PLIM__RUN_FORMAT 1 /* the version written, and the newest that can be read */
#define PLIM__RUN_ACCOUNT "checkpoint"

/* What a run was computed on. Processor and versions may change the last bits of its results; the
 * number of threads may not. */
typedef struct plim__machine {
    char cpu[96];     /* the processor's name */
    char vectors[16]; /* the kind of vector unit, by which libraries choose their kernels */
    int threads;
    char version[32]; /* plimsoll's */
    char library[64]; /* oneDNN's */
} plim__machine_t;

/* This machine; "unknown" for what /proc/cpuinfo does not tell. */
plim__machine_t plim__machine_here(const plim_job_t *job);

/* Logs how `now` differs from `before`, where `what` was computed, and what that means. */
void plim__machine_compare(const plim_job_t *job, const char *what, const plim__machine_t *before,
                           const plim__machine_t *now);

typedef struct plim__run_json {
    plim_training_t training;
    char dataset[PLIM_PATH_MAX];
    char fingerprint[17];
    plim__machine_t machine; /* where it was begun */
} plim__run_json_t;

/* The most memory that reading or writing takes. */
size_t plim__run_json_estimate(void);

/* Anew, whole, durable and sealed (io/seal.h); with `fresh` nothing may be there. PLIM_ERR_USAGE
 * for settings or a dataset's path that cannot be written down; PLIM_ERR_IO. */
plim_status_t plim__run_json_write(const plim_job_t *job, const char *path,
                                   const plim__run_json_t *about, bool fresh);

/* PLIM_ERR_DATA, also when its seal does not agree (those of older versions have none);
 * PLIM_ERR_IO; PLIM_ERR_UNSUPPORTED for a newer format. */
plim_status_t plim__run_json_read(const plim_job_t *job, const char *path,
                                  plim__run_json_t *about_out);

/* The settings as one line of JSON, and back (`name` for messages). */
plim_status_t plim__run_json_settings(const plim_job_t *job, const plim_training_t *training,
                                      char *text_out, size_t size);
plim_status_t plim__run_json_settings_of(const plim_job_t *job, const char *text, const char *name,
                                         plim_training_t *training_out);

#endif
