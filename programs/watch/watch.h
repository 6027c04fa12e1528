/*
 * Watching a command: the memory of its processes and of its control group over time, recorded in
 * timeline.jsonl of a directory (docs/format.md) and compared with the limits.
 *
 * The caller starts the command, as its child, and calls watch_tick at an interval of its
 * choice. The caller also makes itself the subreaper of the command (PR_SET_CHILD_SUBREAPER),
 * without which orphans leave the tree, handles signals and waits for children.
 */
#ifndef WATCH_H
#define WATCH_H

#include "base/json_write.h"

#include <plimsoll/job.h>
#include <sys/types.h>

typedef struct watch watch_t;

typedef struct watch_params {
    const char *directory; /* is made if it does not exist; its parent must */
    int64_t memory;        /* one more limit on the tree; 0: none */
    double interval;       /* seconds between ticks: recorded only */
    pid_t ignored;         /* a child of this process that is not in the tree; 0: none */
} watch_params_t;

/*
 * Opens a watch and its directory, which belongs to one watch at a time; a timeline that is there
 * is continued. The job is the meter's. PLIM_ERR_USAGE if the directory holds a training run or a
 * dataset or another watch has it; PLIM_ERR_IO, PLIM_ERR_DISK, PLIM_ERR_NOMEM. Memory: 1 MiB, of
 * which what is used becomes resident; two open files a process. Failures as in base/fail.h.
 */
plim_status_t watch_open(const plim_job_t *job, const watch_params_t *params, watch_t **watch_out);

/* Ends a watch without a record of its end if there is none yet. NULL is harmless. */
void watch_close(watch_t *watch);

/* Absolute path of the file to which the command appends lines, its marks. The watch's own. */
const char *watch_marks(const watch_t *watch);

/* Records the beginning: `pid` is the command, a child of this process, `words` its command line,
 * ended by NULL. PLIM_ERR_IO, PLIM_ERR_DISK. */
plim_status_t watch_begin(watch_t *watch, pid_t pid, char *const *words);

/* The memory at a tick, in bytes; -1 if unknown. */
typedef struct watch_state {
    double seconds;     /* since the beginning */
    int64_t used;       /* under the limit with the least left, without what the kernel can free */
    int64_t line;       /* this limit */
    const char *source; /* "cgroup v1 /job_7 memory.limit_in_bytes"; valid until the next tick */
    int processes;
    int64_t rss, held;                 /* sums over the tree; held: shared pages count once */
    int64_t group, cache, peak, kills; /* the control group's */
    const char *phase;                 /* the last mark; "": none */
    bool host; /* the limit is the host's memory, and `used` is that of all processes on it */
} watch_state_t;

/*
 * Reads all counters once and appends them to the timeline if they have changed, at least once a
 * second. Allocates nothing. PLIM_ERR_IO or PLIM_ERR_DISK if the timeline could not be written: the
 * output is valid, and a later tick may succeed again.
 */
plim_status_t watch_tick(watch_t *watch, watch_state_t *state_out);

/* Begins a line of this kind, to which the caller adds members, and appends it. Errors as for a
 * tick. */
plim__json_writer_t *watch_event_begin(watch_t *watch, const char *kind);
plim_status_t watch_event_end(watch_t *watch);

/* A child of this process other than the command was waited for: an orphan of the tree. */
struct rusage;
void watch_waited(watch_t *watch, const struct rusage *usage);

/* How it ended. */
typedef struct watch_end {
    double seconds;
    int64_t used, line;    /* at the tick that came nearest to its limit */
    char source[256];      /* of this limit */
    double at;             /* seconds until then */
    char phase[256];       /* then; "": none */
    int64_t peak;          /* most that the tree held, with spikes that the kernel has counted */
    int64_t kills;         /* processes of this control group killed for memory meanwhile */
    int64_t host_kills;    /* the same on the whole host; -1: unknown */
    char limit_group[256]; /* nearest group that was at its limit meanwhile; "": none */
    int64_t limit_bytes;   /* its limit */
    int left;              /* processes of the tree that live on */
    bool host;             /* as in the state, of `used` and `line` */
} watch_end_t;

/* Records the end, with the command's status and usage as wait4 gave them. Errors as for a tick;
 * the output is valid then too. */
plim_status_t watch_end(watch_t *watch, int status, const struct rusage *usage,
                        watch_end_t *end_out);

#endif
