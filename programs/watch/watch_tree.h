/*
 * The processes of a watched command: all its descendants, found by their parents.
 *
 * The watcher is the subreaper of the tree (prctl PR_SET_CHILD_SUBREAPER, which its host sets), so
 * an orphan becomes its child and stays in the tree. No other process can enter the tree: each one
 * on the machine is looked at once. /proc is only listed when a process was created somewhere.
 *
 * Files of a process stay open while it lives, as far as ulimit -n allows. Each tick reads statm,
 * and status if statm has changed; stat and io are read once a second. PSS (smaps_rollup), which
 * walks page tables, takes turns on at most 0.2 % of the time.
 */
#ifndef WATCH_TREE_H
#define WATCH_TREE_H

#include "watch/watch_record.h"

#include <sys/types.h>

#define WATCH_TREE_PROCESSES 1024 /* followed at most */
#define WATCH_TREE_PIDS 65536     /* of the machine, remembered between two listings */
#define WATCH_TREE_TEXT ((size_t)32 << 10)

typedef struct watch_tree_process {
    pid_t pid, parent;
    int statm, status;                                /* descriptors; -1: read by name */
    bool began;                                       /* not listed in the record yet */
    bool pss_new;                                     /* read since it was last listed */
    char name[64];                                    /* comm, as status has it */
    char pages[64];                                   /* text of statm when status was read */
    int64_t rss, anonymous, file, shared, swap, peak; /* bytes; peak: VmHWM */
    int64_t listed;                                   /* rss when it was last listed */
    int64_t pss, pss_rss, pss_at; /* PSS; rss and time (ns) when it was read; -1: never */
    int64_t faults, major_faults, read, written, ticks; /* with children that it waited for */
} watch_tree_process_t;

/* Sums over the tree. */
typedef struct watch_tree_totals {
    int64_t rss, anonymous, file, shared, swap;
    int64_t held; /* with shared pages divided among their users */
    int64_t faults, major_faults, read, written;
    double cpu;
    /* How far a peak of one process rose above what this tick and the one before it saw. */
    int64_t spike;
} watch_tree_totals_t;

typedef struct watch_tree {
    pid_t watcher, ignored; /* a child of the watcher that is not in the tree; 0: none */
    int processes_file;     /* /proc */
    int load_file;          /* /proc/loadavg, whose last number is the newest pid */
    int files_most;         /* descriptors below this number are kept */
    char newest[32];
    int count, most;                        /* processes now, and their maximum */
    bool changed;                           /* one began or ended since the last watch_tree_list */
    int64_t round_at, pss_since, pss_spent; /* ns */
    int pss_next;
    watch_tree_totals_t ended;    /* counters of processes that the watcher waited for */
    watch_tree_process_t largest; /* pid, name and peak of the process with the highest peak */
    int num_gone;
    watch_tree_process_t process[WATCH_TREE_PROCESSES];
    pid_t gone[WATCH_TREE_PROCESSES]; /* ended since the last listing */
    pid_t known[2][WATCH_TREE_PIDS];  /* of the machine, ascending: before, and now */
    int before;                       /* which of the two is of the last listing */
    int num_known;
    char text[WATCH_TREE_TEXT];
} watch_tree_t;

/* The tree of the process `root`, a child of the calling process. */
void watch_tree_open(watch_tree_t *tree, pid_t root, pid_t ignored);
void watch_tree_close(watch_tree_t *tree);

/* Looks at all processes. Allocates nothing. */
void watch_tree_read(watch_tree_t *tree, int64_t now, watch_tree_totals_t *totals_out);

/* Adds the counters of a process that the watcher has waited for. */
struct rusage;
void watch_tree_waited(watch_tree_t *tree, const struct rusage *usage);

/*
 * Adds "processes" to a line: those that began, ended or changed by more than 1 MiB and 1 %. Those
 * that do not fit wait for the next line.
 */
void watch_tree_list(watch_tree_t *tree, watch_record_t *record);

/* Whether there is something to list. */
bool watch_tree_moved(const watch_tree_t *tree);

#endif
