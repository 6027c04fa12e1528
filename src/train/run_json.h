/* run.json: a run's description, written when it begins. Only settings that do not change the
 * result change later. */
#ifndef PLIM_TRAIN_RUN_JSON_H
#define PLIM_TRAIN_RUN_JSON_H

#include "base/job.h"

#include <plimsoll/train.h>

#define PLIM__RUN_FORMAT 1 /* version to write, and newest version to read */
#define PLIM__RUN_ACCOUNT "checkpoint"

/* The machine that computed a run. Processor and versions may change the last bits of the results;
 * the number of threads may not. */
typedef struct plim__machine {
    char cpu[96];     /* name of the processor */
    char vectors[16]; /* vector extension, by which libraries choose kernels */
    int threads;
    char version[32]; /* of plimsoll */
    char library[64]; /* of oneDNN */
} plim__machine_t;

/* Describes this machine; "unknown" for fields that /proc/cpuinfo does not have. */
plim__machine_t plim__machine_here(const plim_job_t *job);

/* Logs the differences between `now` and `before`, the machine that computed `what`, and their
 * effect. */
void plim__machine_compare(const plim_job_t *job, const char *what, const plim__machine_t *before,
                           const plim__machine_t *now);

typedef struct plim__run_json {
    plim_training_t training;
    char dataset[PLIM_PATH_MAX];
    char fingerprint[17];
    plim__machine_t machine;    /* machine that began the run */
    char init[PLIM_PATH_MAX];   /* file of the first weights; "": drawn by the seed */
    char start[PLIM_START_MAX]; /* the host's text; "": none */
    char pairs[PLIM_PATH_MAX];  /* file of links; "": edges, another task */
    char valid_pairs[PLIM_PATH_MAX], valid_negatives[PLIM_PATH_MAX]; /* "": none */
} plim__run_json_t;

/* Writes the whole file, durable and sealed (io/seal.h); with `fresh` it must not exist.
 * PLIM_ERR_USAGE for settings or a dataset path that JSON cannot represent; PLIM_ERR_IO. */
plim_status_t plim__run_json_write(const plim_job_t *job, int directory, const char *path,
                                   const plim__run_json_t *about, bool fresh);

/* PLIM_ERR_DATA for damage, also if the seal does not match (older versions wrote no seal);
 * PLIM_ERR_IO; PLIM_ERR_UNSUPPORTED for a newer format. */
plim_status_t plim__run_json_read(const plim_job_t *job, int directory, const char *path,
                                  plim__run_json_t *about_out);

/* Converts the settings to one line of JSON, and back (`name` is for messages). */
plim_status_t plim__run_json_settings(const plim_job_t *job, const plim_training_t *training,
                                      char *text_out, size_t size);
plim_status_t plim__run_json_settings_of(const plim_job_t *job, const char *text, const char *name,
                                         plim_training_t *training_out);

#endif
