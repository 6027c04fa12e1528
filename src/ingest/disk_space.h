/* Disk space of making a dataset: said first, and refused first. */
#ifndef PLIM_INGEST_DISK_SPACE_H
#define PLIM_INGEST_DISK_SPACE_H

#include "base/job.h"

#include <limits.h>

typedef struct plim__disk_space {
    const char *parent; /* the directory that the dataset goes into */
    const char *tmp;    /* that of temporary files */
    int64_t dataset;    /* bytes of all its files */
    int64_t temporary;  /* bytes of temporary files at most */
    int64_t together;   /* bytes of both at the same time at most, where they share a disk */
    int64_t largest;    /* bytes that one file has at least; 0: not known */
    const char *what;   /* what the figures are of, as in "with the features"; NULL: all */
    bool exact;         /* false: the figures are the least that is known yet … */
    bool guessed;       /* … or only likely: said, and warned of, but not refused */
} plim__disk_space_t;

/* The directory that holds `path` ("." for a bare name); trailing slashes do not count.
 * PLIM_ERR_USAGE when it is too long. */
plim_status_t plim__disk_space_parent(const char *path, char parent_out[PATH_MAX]);

/*
 * Says through the job's log what is needed and what is free, warns where a disk is memory, and
 * returns PLIM_ERR_SPACE when something that is not a guess does not fit or is a larger file than
 * ulimit -f allows, PLIM_ERR_BUDGET
 * when it would lie in memory and not fit under the line; PLIM_ERR_IO when a
 * directory cannot be asked.
 */
plim_status_t plim__disk_space_check(const plim_job_t *job, const plim__disk_space_t *room);

#endif
