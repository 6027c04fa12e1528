/*
 * What the doctor knows: texts that it recognised, with their figures, and the state of the job as
 * Slurm or a timeline tells it.
 *
 *     bytes ─► lines ─► texts (table) ─► facts ─► verdict ─► advice, JSON
 *              log_lines.c  log_texts.c           verdict.c   advice.c, doctor.c
 */
#ifndef PLIM_DOCTOR_FACTS_H
#define PLIM_DOCTOR_FACTS_H

#include "base/job.h"
#include "base/json_piece.h"
#include "base/printable.h"
#include "mem/arena.h"

#include <plimsoll/doctor.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Why a job ended. In order of precedence: of two causes in the same texts the first one explains
 * the second. */
typedef enum plim__cause {
    PLIM__OOM_TMPFS = 0, /* the kernel, at a control group's limit, that files in memory filled */
    PLIM__OOM_PARENT,    /* at the limit of a group above the victim's */
    PLIM__OOM_NUMA,      /* the memory nodes that the job was bound to */
    PLIM__OOM_CGROUP,    /* at the limit of the victim's own group */
    PLIM__OOM_HOST,      /* the whole machine ran out */
    PLIM__OOM_KERNEL,    /* the kernel; whose limit it was is not told */
    PLIM__OOM_SLURM,     /* Slurm says so; the kernel's lines are missing */
    PLIM__OOM_DAEMON,    /* systemd-oomd, earlyoom, Ray: before the kernel did */
    PLIM__OOM_EVICTED,   /* Kubernetes took the pod off a node that was short */
    PLIM__CUDA_OOM,
    PLIM__SHM_FULL,
    PLIM__DISK_FULL,
    PLIM__OPEN_FILES,
    PLIM__THREADS,
    PLIM__ALLOC_REFUSED, /* bad_alloc, MemoryError, ENOMEM: refused, not killed */
    PLIM__HARDWARE,
    PLIM__NODE_FAIL,
    PLIM__PREEMPTED,
    PLIM__TIME_LIMIT,
    PLIM__REQUEUED,
    PLIM__CANCELLED,
    PLIM__SEGFAULT,
    PLIM__BUS_ERROR,
    PLIM__ABORTED,
    PLIM__KILLED, /* SIGKILL; by whom is not told */
    PLIM__WORKER_EXIT,
    PLIM__PYTHON_ERROR,
    PLIM__PEER_LOST,  /* a rank waited for another one in vain */
    PLIM__TERMINATED, /* SIGTERM or SIGINT */
    PLIM__EXIT_CODE,  /* only a code */
    PLIM__NONE,
    PLIM__NUM_CAUSES
} plim__cause_t;

/* The name in JSON, "oom_cgroup". */
const char *plim__cause_name(plim__cause_t cause);

/* Whether the job wanted more of the machine's memory than it had: PLIM__OOM_* and, with
 * `refused`, PLIM__ALLOC_REFUSED. */
bool plim__cause_is_memory(plim__cause_t cause, bool refused);

typedef enum plim__role {
    PLIM__ROLE_CAUSE,       /* by itself explains the end */
    PLIM__ROLE_SYMPTOM,     /* an end without its reason: a signal, an exit code */
    PLIM__ROLE_CONSEQUENCE, /* somebody reports another one's end */
    PLIM__ROLE_HARMLESS,    /* the same words, but nobody died of it */
    PLIM__ROLE_CONTEXT      /* figures only */
} plim__role_t;

/* Figures that texts carry; bytes unless said otherwise. */
typedef enum plim__figure {
    PLIM__FIGURE_NONE = 0,
    PLIM__TRIED,       /* the allocation that failed */
    PLIM__TOTAL,       /* the GPU's memory */
    PLIM__FREE,        /* of the GPU */
    PLIM__ALLOCATED,   /* by PyTorch, in use */
    PLIM__RESERVED,    /* by PyTorch, in use or not */
    PLIM__UNALLOCATED, /* reserved, but not in use */
    PLIM__IN_USE,      /* by this process */
    PLIM__ALLOWED,     /* to this process, by a memory fraction */
    PLIM__LIMIT,
    PLIM__USAGE,
    PLIM__ANON, /* of the victim or its group */
    PLIM__SHMEM,
    PLIM__PID,    /* a number */
    PLIM__SIGNAL, /* a number */
    PLIM__CODE,   /* an exit code, negative for a signal */
    PLIM__COUNT,  /* a number of kills */
    PLIM__FAILCNT,
    PLIM__NUM_FIGURES
} plim__figure_t;

/* Figures saturate here, so that sums and small multiples of them fit 64 bits. */
#define PLIM__FIGURE_MOST PLIM__JSON_NUMBER_MOST

#define PLIM__CAPTURES 8

/* One text that programs leave behind. */
typedef struct plim__text_row {
    unsigned char cause; /* plim__cause_t */
    unsigned char role;  /* plim__role_t */
    unsigned char signal;
    const char *pattern;                  /* log_pattern.h */
    unsigned char figure[PLIM__CAPTURES]; /* plim__figure_t of each number in the pattern */
} plim__text_row_t;

extern const plim__text_row_t plim__texts[];
extern const int plim__num_texts;

/* Rows of facts that no pattern makes: behind those of the table. */
enum { PLIM__FACT_PYTHON, PLIM__FACT_STATE, PLIM__NUM_OTHER };

#define PLIM__EVIDENCE 240
#define PLIM__WORD 128
#define PLIM__SOURCES 64

/* One text that was found. */
typedef struct plim__fact {
    plim__cause_t cause;
    plim__role_t role;
    int source;
    int64_t line;
    int64_t progress;                  /* lines of progress in its source before it */
    int64_t figure[PLIM__NUM_FIGURES]; /* -1: not told */
    char word[2][PLIM__WORD];
    char text[PLIM__EVIDENCE]; /* printable UTF-8, cut */
} plim__fact_t;

/* The facts of one row: the first and the last, the others are only counted. */
typedef struct plim__found {
    int64_t count;
    plim__fact_t first, last;
} plim__found_t;

typedef struct plim__source {
    char name[256];
    int64_t lines;
    int64_t progress; /* lines that look like progress: epochs, steps, losses */
} plim__source_t;

/* How the job ended by Slurm's word. */
typedef struct plim__slurm {
    char job[32];      /* "123", "123_4"; "": not told */
    char state[24];    /* of the job; "": not told */
    int code, signal;  /* -1: not told */
    int num_steps;     /* steps of srun */
    int steps_done;    /* those that COMPLETED with 0:0 */
    int64_t requested; /* memory; -1 */
    int64_t resident;  /* the largest MaxRSS, or what seff calls utilized; -1 */
} plim__slurm_t;

#define PLIM__HOPS 8

/* The settings of a training in PyTorch Geometric, as far as the texts show them; -1: not shown. */
typedef struct plim__recipe {
    int64_t nodes, edges, features;
    int64_t batch_size, workers, prefetch, hidden, layers, epochs;
    int persistent, pinned;
    int num_hops;
    int64_t fanout[PLIM__HOPS];
    int loaders;      /* NeighborLoader( calls seen */
    bool gnn;         /* a text names a library, a loader or a layer of GNNs */
    bool ours;        /* it reads a dataset of plimsoll, so that its data is not in memory */
    char shape[24];   /* "papers100M", "products", …; "" */
    char model[16];   /* "sage", "gcn", "gat", "gin"; "" */
    char dataset[64]; /* as the texts write it */
} plim__recipe_t;

#define PLIM__POINTS 512
#define PLIM__PHASES 64
#define PLIM__TREE 128

/* The highest use within a piece of time. */
typedef struct plim__point {
    double seconds;
    int64_t bytes;
} plim__point_t;

typedef struct plim__phase {
    char name[64];
    double begin;
    int64_t first, peak; /* bytes at its begin, and the most */
} plim__phase_t;

/* A process of the tree: its private memory when it was last told. */
typedef struct plim__process {
    int64_t pid, bytes;
} plim__process_t;

/* What a timeline shows. Bytes are of memory that the kernel cannot take back. */
typedef struct plim__growth {
    double interval; /* seconds between two ticks; INFINITY: not told */
    int64_t samples;
    int stride;   /* samples in a point: doubled when the points are full */
    int in_point; /* samples of the last point so far */
    int num_points;
    plim__point_t point[PLIM__POINTS];
    int num_phases; /* marks; a run without marks has none */
    plim__phase_t phase[PLIM__PHASES];
    int num_processes;
    plim__process_t process[PLIM__TREE];
    int64_t peak, limit;   /* the highest use, and the limit then; -1 */
    bool on_host;          /* this limit is the host's memory: the job had none of its own */
    int64_t others;        /* on_host: what other processes held then; -1 */
    int host_index;        /* of the host's memory in the list of limits; -1 */
    int64_t seen;          /* the highest use of a tick: less than `peak` if it rose between two */
    double peak_s, kill_s; /* when the highest use was, and the group's last kill; -1 */
    char peak_phase[64], kill_phase[64];        /* the phases of both; "": no marks */
    int64_t last, shared_last, cache_last;      /* of the last sample */
    int64_t processes_at_peak, largest_at_peak; /* a number; private bytes of the largest */
    int64_t hits, kills;                        /* of the group during the run; -1: not told */
    int64_t first_hits, first_kills;            /* counters of the first sample; -1 */
    int64_t parent_hits, host_kills;            /* by the end's line; -1 */
    int64_t code, signal;                       /* of the command's end; -1 */
    int64_t sender;                             /* who sent it a signal; -1: nobody */
    bool ended;                                 /* there is an end's line */
    bool training;                              /* lines of plimsoll train */
    char job[32];
} plim__growth_t;

/* Bytes of a line that are looked at in one piece, and how much of a longer line's piece is looked
 * at again with the next one. */
#define PLIM__LINE_MAX 65536
#define PLIM__LINE_OVERLAP 1024

typedef struct plim__log_lines {
    char text[PLIM__LINE_MAX + 1];
    size_t length;
    int escape; /* inside of a terminal's escape sequence */
} plim__log_lines_t;

#define PLIM__TRIPLES 4096

struct plim_doctor {
    pid_t process; /* first: 0 in a forked child */
    plim__arena_t arena;
    const plim_job_t *job;
    plim__log_lines_t lines;
    int num_sources;
    plim__source_t source[PLIM__SOURCES];
    plim__found_t *found;        /* (num_texts + PLIM__NUM_OTHER) */
    char *buffer;                /* of reads */
    bool *present;               /* (num_texts): the line may hold the text, see log_pattern.h */
    bool triples[PLIM__TRIPLES]; /* hashes of the texts that may stand anywhere */
    struct plim__verdict *verdict;
    bool traceback;             /* the lines of a Python traceback are being read */
    bool root_cause;            /* torchrun's first failure follows */
    bool expandable;            /* expandable_segments:True was set, and the platform has it */
    bool not_expandable;        /* torch says that the platform does not have it */
    bool alloc_conf;            /* torch calls the variable PYTORCH_ALLOC_CONF */
    unsigned char columns[12];  /* of sacct's table, by position: see slurm_table.c; 0: none */
    bool heading;               /* `columns` are set */
    bool row_piped;             /* the row at hand is separated by | */
    int64_t limit, shmem, anon; /* of the group, by the kernel; -1 */
    int64_t kills;              /* oom_kill by a counter; -1: not told */
    plim__slurm_t slurm;
    plim__recipe_t recipe;
    int64_t epochs_done; /* of plimsoll train, by metrics.jsonl; -1: not a Plimsoll training */
    plim__growth_t growth;
};

/* Prepares the search for texts. */
void plim__facts_prepare(plim_doctor_t *doctor);

/* Takes a clean line of the current source. */
void plim__facts_line(plim_doctor_t *doctor, const char *line, size_t length);

/* Adds a fact of a row, with the evidence of this line. */
plim__fact_t *plim__facts_add(plim_doctor_t *doctor, int row, plim__cause_t cause,
                              plim__role_t role, const char *line, size_t length);

/* slurm_table.c: rows of sacct, lines of scontrol and seff. True: the line was one. */
bool plim__slurm_line(plim_doctor_t *doctor, const char *line, size_t length);

/* recipe.c */
void plim__recipe_line(plim__recipe_t *recipe, const char *line, size_t length, bool script);
plim__recipe_t plim__recipe_none(void);

/* growth.c: a line of timeline.jsonl. True: the line was one. */
bool plim__growth_line(plim_doctor_t *doctor, const char *line, size_t length);
void plim__growth_reset(plim__growth_t *growth);

/* How memory grew. */
typedef enum plim__pattern {
    PLIM__PATTERN_NONE,    /* no timeline, or nothing remarkable */
    PLIM__PATTERN_START,   /* rose from the beginning on until the end */
    PLIM__PATTERN_LEAK,    /* rose steadily */
    PLIM__PATTERN_EPOCHS,  /* every phase of a kind held more than the one before */
    PLIM__PATTERN_SPIKE,   /* rose at once after it had been flat */
    PLIM__PATTERN_WORKERS, /* several processes, each with its own */
    PLIM__PATTERN_TMPFS,   /* files in memory */
    PLIM__PATTERN_CACHE    /* page cache filled the group, and nobody was short */
} plim__pattern_t;

typedef struct plim__shape {
    plim__pattern_t pattern;
    double bytes_per_s;      /* LEAK, START */
    int64_t bytes_per_phase; /* EPOCHS */
    int64_t rise;            /* SPIKE, START: how much */
    const char *phase;       /* in which the end, or the spike, was; "": no marks */
} plim__shape_t;

/* Whether a watch's record ends without its end's line: its watcher was killed too, or still runs.
 */
bool plim__growth_is_cut(const plim__growth_t *growth);

/* `progress`: the job's log shows that it trained. */
plim__shape_t plim__growth_shape(const plim__growth_t *growth, bool progress);
const char *plim__pattern_name(plim__pattern_t pattern);

/* log_lines.c: bytes of the current source; `end` after the last. */
void plim__log_bytes(plim_doctor_t *doctor, const char *bytes, size_t size);
void plim__log_end(plim_doctor_t *doctor);

/* Begins a source; its lines are numbered from 1. */
void plim__doctor_source(plim_doctor_t *doctor, const char *name);

/* The directory of the run whose timeline was read, not terminated; NULL: none was read by name. */
const char *plim__doctor_run(const plim_doctor_t *doctor, int *length_out);

#endif
