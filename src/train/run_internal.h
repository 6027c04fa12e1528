/* An open run's inside, for run.c, run_save.c and output.c alone. */
#ifndef PLIM_TRAIN_RUN_INTERNAL_H
#define PLIM_TRAIN_RUN_INTERNAL_H

#include "train/run.h"
#include "train/run_json.h"
#include "train/run_lines.h"

#define PLIM__RUN_JSON "run.json"
#define PLIM__RUN_LAST "last.safetensors"
#define PLIM__RUN_BEST "best.safetensors"

/* Drafts of one file of the run that wait to be written: their room is taken. Two until the file is
 * there, then one, whose room the next one takes over from the file that it replaces. */
typedef struct plim__run_drafts {
    plim__draft_t draft[2];
    int count;
} plim__run_drafts_t;

struct plim__run {
    plim__arena_t arena;
    const plim_job_t *job;
    char path[PLIM_PATH_MAX];
    bool made_directory; /* by this job, as the others: only these are removed again */
    bool made_lock;
    bool made_json;
    int lock_fd; /* -1 where the file system has no locks */
    plim__run_lines_t metrics;
    plim__run_lines_t timeline;
    bool timeline_lost; /* the disk was full: it has no more lines */
    plim__run_drafts_t last, best;
    plim__checkpoint_t checkpoint; /* settings, dataset and machine of the run */
};

/* directory/name; PLIM_ERR_USAGE when that is too long. */
plim_status_t plim__run_path(const char *directory, const char *name,
                             char path_out[PLIM__RUN_PATH]);

/* Gives the room of all drafts back. */
void plim__run_release(plim__run_t *run);

/* Whether a run keeps a file of that name in its directory, or one in the making. */
bool plim__run_has_file(const char *name);

/* Where last.safetensors of a run stands; *found_out is false when there is none yet. */
plim_status_t plim__run_position(const plim_job_t *job, const char *path,
                                 plim__position_t *position_out, bool *found_out);

#endif
