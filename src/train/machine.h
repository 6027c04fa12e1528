/* On what a run was computed: what may change the last bits of its results, and what may not. */
#ifndef PLIM_TRAIN_MACHINE_H
#define PLIM_TRAIN_MACHINE_H

#include "base/job.h"

typedef struct plim__machine {
    char cpu[96];     /* the processor's name */
    char vectors[16]; /* the kind of vector unit, by which libraries choose their kernels */
    int threads;
    char version[32]; /* plimsoll's */
    char library[64]; /* oneDNN's */
} plim__machine_t;

/* This machine, as far as it says. */
plim__machine_t plim__machine_here(const plim_job_t *job);

/* Logs what differs from where `what` was computed, and what that means. */
void plim__machine_compare(const plim_job_t *job, const char *what, const plim__machine_t *before,
                           const plim__machine_t *now);

#endif
