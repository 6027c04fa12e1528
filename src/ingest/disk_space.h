/* Disk space for making a dataset, checked before the work begins. */
#ifndef PLIM_INGEST_DISK_SPACE_H
#define PLIM_INGEST_DISK_SPACE_H

#include "base/job.h"

#include <limits.h>

typedef struct plim__disk_space {
    const char *parent; /* directory that will contain the dataset */
    const char *tmp;    /* directory of temporary files */
    int64_t dataset;    /* bytes of all its files */
    int64_t temporary;  /* maximum bytes of temporary files */
    int64_t together;   /* maximum bytes of both at the same time, if they share a disk */
    int64_t largest;    /* lower bound for the largest file; 0: unknown */
    const char *what;   /* part of the dataset, such as "with the features"; NULL: all */
    bool exact;         /* false: the figures are lower bounds, */
    bool guessed;       /* or guesses, which give a warning instead of an error */
} plim__disk_space_t;

/* The directory that contains `path` ("." for a bare name); trailing slashes are ignored.
 * PLIM_ERR_USAGE when it is too long. */
plim_status_t plim__disk_space_parent(const char *path, char parent_out[PATH_MAX]);

/*
 * Logs the disk space that is needed and free, and warns about file systems in memory.
 * PLIM_ERR_SPACE when figures that are not guesses do not fit, or a file exceeds ulimit -f;
 * PLIM_ERR_BUDGET when files in memory do not fit under the line; PLIM_ERR_IO.
 */
plim_status_t plim__disk_space_check(const plim_job_t *job, const plim__disk_space_t *space);

#endif
