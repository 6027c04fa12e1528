/*
 * What the doctor knows: texts that it recognised, with their figures, and the state of the job as
 * Slurm or a timeline tells it.
 *
 *     bytes ─► lines ─► texts (table) ─► facts ─► verdict ─► advice, JSON
 *              log_lines.c  log_texts.c           verdict.c   advice.c, doctor.c
 */
#ifndef DOCTOR_FACTS_H
#define DOCTOR_FACTS_H

#include "base/json_scan.h"
#include "base/printable.h"
#include "doctor/doctor.h"
#include "doctor/script.h"

#include <plimsoll/loader.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Why a job ended. In order of precedence: of two causes in the same texts the first one explains
 * the second. */
typedef enum doctor_cause {
    DOCTOR_OOM_TMPFS = 0, /* the kernel, at a control group's limit, that files in memory filled */
    DOCTOR_OOM_PARENT,    /* at the limit of a group above the victim's */
    DOCTOR_OOM_NUMA,      /* the memory nodes that the job was bound to */
    DOCTOR_OOM_CGROUP,    /* at the limit of the victim's own group */
    DOCTOR_OOM_HOST,      /* the whole machine ran out */
    DOCTOR_OOM_KERNEL,    /* the kernel; the limit is unknown */
    DOCTOR_OOM_SLURM,     /* Slurm says so; the kernel's lines are missing */
    DOCTOR_OOM_DAEMON,    /* systemd-oomd, earlyoom, Ray: before the kernel did */
    DOCTOR_OOM_EVICTED,   /* Kubernetes took the pod off a node that was short */
    DOCTOR_CUDA_ASSERT,   /* an assertion on the GPU: an index out of range, no lack of memory */
    DOCTOR_CUDA_OOM,
    DOCTOR_CUDA_ERROR, /* cuBLAS, cuDNN or a kernel failed, and the text does not say why */
    DOCTOR_SHM_FULL,
    DOCTOR_DISK_FULL,
    DOCTOR_OPEN_FILES,
    DOCTOR_THREADS,
    DOCTOR_ALLOC_REFUSED, /* bad_alloc, MemoryError, ENOMEM: refused, not killed */
    DOCTOR_HARDWARE,
    DOCTOR_NODE_FAIL,
    DOCTOR_PREEMPTED,
    DOCTOR_TIME_LIMIT,
    DOCTOR_REQUEUED,
    DOCTOR_CANCELLED,
    DOCTOR_SEGFAULT,
    DOCTOR_BUS_ERROR,
    DOCTOR_ABORTED,
    DOCTOR_KILLED, /* SIGKILL by an unknown sender */
    DOCTOR_WORKER_EXIT,
    DOCTOR_PYTHON_ERROR,
    DOCTOR_PEER_LOST,  /* a rank waited for another one in vain */
    DOCTOR_TERMINATED, /* SIGTERM, SIGINT or SIGHUP */
    DOCTOR_EXIT_CODE,  /* only a code */
    DOCTOR_NONE,
    DOCTOR_NUM_CAUSES
} doctor_cause_t;

/* The name in JSON, "oom_cgroup". */
const char *doctor_cause_name(doctor_cause_t cause);

/* Whether the job wanted more of the machine's memory than it had: DOCTOR_OOM_* and, with
 * `refused`, DOCTOR_ALLOC_REFUSED. */
bool doctor_cause_is_memory(doctor_cause_t cause, bool refused);

typedef enum doctor_role {
    DOCTOR_ROLE_CAUSE,       /* by itself explains the end */
    DOCTOR_ROLE_SYMPTOM,     /* an end without its reason: a signal, an exit code */
    DOCTOR_ROLE_CONSEQUENCE, /* a process reports the end of another */
    DOCTOR_ROLE_HARMLESS,    /* words of a cause in a text that ends no job */
    DOCTOR_ROLE_CONTEXT      /* figures only */
} doctor_role_t;

/* Figures that texts carry; bytes unless noted. */
typedef enum doctor_figure {
    DOCTOR_FIGURE_NONE = 0,
    DOCTOR_TRIED,       /* the allocation that failed */
    DOCTOR_TOTAL,       /* the GPU's memory */
    DOCTOR_FREE,        /* of the GPU */
    DOCTOR_ALLOCATED,   /* by PyTorch, in use */
    DOCTOR_RESERVED,    /* by PyTorch, in use or not */
    DOCTOR_UNALLOCATED, /* reserved, but not in use */
    DOCTOR_IN_USE,      /* by this process */
    DOCTOR_ALLOWED,     /* to this process, by a memory fraction */
    DOCTOR_NEEDED,      /* the limit under which it fits, as the message names it */
    DOCTOR_LIMIT,
    DOCTOR_ANON, /* of the victim or its group */
    DOCTOR_SHMEM,
    DOCTOR_PID,    /* a number */
    DOCTOR_SIGNAL, /* a number */
    DOCTOR_CODE,   /* an exit code, negative for a signal */
    DOCTOR_COUNT,  /* a number of kills */
    DOCTOR_NUM_FIGURES,
    /* In rows only. */
    DOCTOR_FIGURE_REQUEST = DOCTOR_NUM_FIGURES, /* the --mem of an #SBATCH line: DOCTOR_LIMIT */
    DOCTOR_FIGURE_RANK_CODE                     /* DOCTOR_CODE of one of torchrun's ranks */
} doctor_figure_t;

/* Figures saturate here, so that sums and small multiples of them fit 64 bits. */
#define DOCTOR_FIGURE_MOST PLIM__JSON_NUMBER_MOST

#define DOCTOR_CAPTURES 8

/* One text that programs leave behind. */
typedef struct doctor_text_row {
    unsigned char cause; /* doctor_cause_t */
    unsigned char role;  /* doctor_role_t */
    unsigned char signal;
    const char *pattern;                   /* log_pattern.h */
    unsigned char figure[DOCTOR_CAPTURES]; /* doctor_figure_t of each number in the pattern */
} doctor_text_row_t;

extern const doctor_text_row_t doctor_texts[];
extern const int doctor_num_texts;

/* Rows of facts that no pattern makes: behind those of the table. */
enum { DOCTOR_FACT_PYTHON, DOCTOR_FACT_STATE, DOCTOR_NUM_OTHER };

#define DOCTOR_EVIDENCE 240
#define DOCTOR_WORD 128
#define DOCTOR_SOURCES 64

/* One text that was found. */
typedef struct doctor_fact {
    doctor_cause_t cause;
    doctor_role_t role;
    int source;
    int64_t line;
    int64_t progress;                   /* lines of progress in its source before it */
    int64_t figure[DOCTOR_NUM_FIGURES]; /* -1: unknown */
    char word[2][DOCTOR_WORD];
    char text[DOCTOR_EVIDENCE]; /* printable UTF-8, cut */
} doctor_fact_t;

/* The facts of one row: the first and the last, the others are only counted. */
typedef struct doctor_found {
    int64_t count;
    doctor_fact_t first, last;
} doctor_found_t;

typedef struct doctor_source {
    char name[256];
    int64_t lines;
    int64_t progress; /* lines that look like progress: epochs, steps, losses */
    bool script;      /* Python's source, not a log */
} doctor_source_t;

/* How the job ended by Slurm's word. */
typedef struct doctor_slurm {
    char job[32];      /* "123", "123_4"; "": unknown */
    char state[24];    /* of the job; "": unknown */
    int code, signal;  /* -1: unknown */
    int num_steps;     /* steps of srun */
    int steps_done;    /* those that COMPLETED with 0:0 */
    int64_t requested; /* memory; -1 */
    int64_t resident;  /* the largest MaxRSS, or what seff calls utilized; -1 */
} doctor_slurm_t;

/* The settings of a training in PyTorch Geometric, as far as the texts show them; -1: not shown. */
typedef struct doctor_recipe {
    int64_t nodes, edges, features;
    int64_t batch_size, workers, prefetch, hidden, layers, epochs;
    int persistent, pinned;
    int num_hops;
    int64_t fanout[PLIM_HOPS_MAX];
    bool deep;        /* num_neighbors has more hops, which are neither kept nor estimated */
    int loaders;      /* NeighborLoader( calls seen */
    bool gnn;         /* a text names a library, a loader or a layer of GNNs */
    bool ours;        /* it reads a dataset of plimsoll, so that its data is not in memory */
    char shape[24];   /* "papers100M", "products", …; "" */
    char model[16];   /* "sage", "gcn", "gat", "gin"; "" */
    char layer[16];   /* the same by its layers, or "several" */
    char dataset[64]; /* as the texts write it */
} doctor_recipe_t;

#define DOCTOR_POINTS 512
#define DOCTOR_PHASES 64
#define DOCTOR_TREE 128

/* The highest use within an interval. */
typedef struct doctor_point {
    double seconds;
    int64_t bytes;
} doctor_point_t;

/* A course of any length in points of equal numbers of samples. */
typedef struct doctor_series {
    int stride;   /* samples in a point: doubled when the points are full */
    int in_point; /* samples of the last point so far */
    int num_points;
    doctor_point_t point[DOCTOR_POINTS];
} doctor_series_t;

typedef struct doctor_phase {
    char name[64];
    double begin;
    int64_t first, peak; /* bytes at its begin, and the most */
    int64_t gpu_peak;    /* the most that one GPU held; 0: not recorded */
} doctor_phase_t;

/* A process of the tree: its private memory when it was last told. */
typedef struct doctor_process {
    int64_t pid, bytes;
} doctor_process_t;

/* What a timeline shows. Bytes are of memory that the kernel cannot take back. */
typedef struct doctor_growth {
    double interval; /* seconds between two ticks; INFINITY: unknown */
    int64_t samples;
    doctor_series_t held;
    doctor_series_t gpu; /* of the fullest GPU */
    int num_phases;      /* marks; a run without marks has none */
    doctor_phase_t phase[DOCTOR_PHASES];
    int num_processes;
    doctor_process_t process[DOCTOR_TREE];
    int64_t peak, limit;   /* the highest use, and the limit then; -1 */
    bool on_host;          /* this limit is the host's memory: the job had none of its own */
    int64_t others;        /* on_host: what other processes held then; -1 */
    int host_index;        /* of the host's memory in the list of limits; -1 */
    int64_t seen;          /* the highest use of a tick: less than `peak` if it rose between two */
    double peak_s, kill_s; /* when the highest use was, and the group's last kill; -1 */
    char peak_phase[64], kill_phase[64];        /* the phases of both; "": no marks */
    int64_t last, shared_last, cache_last;      /* of the last sample */
    int64_t processes_at_peak, largest_at_peak; /* a number; private bytes of the largest */
    int64_t hits, kills;                        /* of the group during the run; -1: unknown */
    int64_t first_hits, first_kills;            /* counters of the first sample; -1 */
    int64_t parent_hits, host_kills;            /* by the end's line; -1 */
    int64_t code, signal;                       /* of the command's end; -1 */
    bool ended;                                 /* there is an end's line */
    bool training;                              /* lines of plimsoll train */
    bool steps;                                 /* lines of a MemoryMonitor: seconds are steps */
    int64_t gpu_peak;                           /* of the fullest GPU; 0: not recorded */
    char job[32];
} doctor_growth_t;

/* Bytes of a line that are looked at in one chunk, and how much of a longer line's chunk is looked
 * at again with the next one. */
#define DOCTOR_LINE_MAX 65536
#define DOCTOR_LINE_OVERLAP 1024

typedef struct doctor_log_lines {
    char text[DOCTOR_LINE_MAX + 1];
    size_t length;
    int escape; /* inside of a terminal's escape sequence */
} doctor_log_lines_t;

#define DOCTOR_TRIPLES 4096

/* A message whose figures stand on the lines below its first one. */
#define DOCTOR_WRAPPED_LINES 12

typedef struct doctor_wrapped {
    int lines;   /* that may still belong to it */
    size_t used; /* of text */
    int source;
    int64_t line, progress; /* of its first line */
    char text[2048];
} doctor_wrapped_t;

struct doctor {
    const plim_job_t *job;
    doctor_log_lines_t lines;
    int num_sources;
    doctor_source_t source[DOCTOR_SOURCES];
    doctor_found_t *found;        /* (num_texts + DOCTOR_NUM_OTHER) */
    char buffer[256 << 10];       /* of reads */
    bool *present;                /* (num_texts): the line may hold the text, see log_pattern.h */
    bool triples[DOCTOR_TRIPLES]; /* hashes of the texts that may stand anywhere */
    struct doctor_verdict *verdict;
    bool traceback;            /* the lines of a Python traceback are being read */
    bool semaphore;            /* its last lines make a semaphore, a file in /dev/shm */
    bool root_cause;           /* torchrun's first failure follows */
    bool expandable;           /* expandable_segments:True was set, and the platform has it */
    bool not_expandable;       /* torch says that the platform does not have it */
    bool alloc_conf;           /* torch calls the variable PYTORCH_ALLOC_CONF */
    unsigned char columns[12]; /* of sacct's table, by position: see slurm_table.c; 0: none */
    bool heading;              /* `columns` are set */
    bool row_piped;            /* the row at hand is separated by | */
    int64_t limit, shmem;      /* of the group, by the kernel; -1 */
    int64_t kills;             /* oom_kill by a counter; -1: unknown */
    doctor_slurm_t slurm;
    doctor_recipe_t recipe;
    doctor_wrapped_t wrapped;
    doctor_script_t script; /* the one that is being read */
    int num_habits;
    struct {
        int source;
        doctor_found_habit_t found;
    } habits[DOCTOR_HABITS];
    int64_t epochs_done; /* of plimsoll train, by metrics.jsonl; -1: not a Plimsoll training */
    doctor_growth_t growth;
};

/* Prepares the search for texts. */
void doctor_facts_prepare(doctor_t *doctor);

/* Takes a clean line of the current source. */
void doctor_facts_line(doctor_t *doctor, const char *line, size_t length);

/* Adds a fact of a row, with the evidence of this line. */
doctor_fact_t *doctor_facts_add(doctor_t *doctor, int row, doctor_cause_t cause, doctor_role_t role,
                                const char *line, size_t length);

/* slurm_table.c: rows of sacct, lines of scontrol and seff. True: the line was one. */
bool doctor_slurm_line(doctor_t *doctor, const char *line, size_t length);

/* recipe.c */
void doctor_recipe_line(doctor_recipe_t *recipe, const char *line, size_t length, bool script);
doctor_recipe_t doctor_recipe_none(void);
/* Takes num_neighbors from "[15, 10, 5]", "15,10,5" or "15 10 5", with more than PLIM_HOPS_MAX hops
 * only that it is deep; false: it is not in the text. */
bool doctor_recipe_fanout(doctor_recipe_t *recipe, const char *at, const char *end);
/* "sage", "gcn", "gat" or "gin": as the texts name it, else by its layers; "": neither. */
const char *doctor_recipe_model(const doctor_recipe_t *recipe);

/* growth.c: a line of timeline.jsonl. True: the line was one. */
bool doctor_growth_line(doctor_t *doctor, const char *line, size_t length);

/* A MemoryMonitor's line: "Step 1000: CPU: 81.2MB, Limit: 1024.0MB, Left: 900.0MB". */
typedef struct doctor_step {
    int64_t number, held, limit, left;
    int64_t gpu; /* -1: none */
} doctor_step_t;

void doctor_growth_step(doctor_growth_t *growth, const doctor_step_t *step);
void doctor_growth_reset(doctor_growth_t *growth);

/* How memory grew. */
typedef enum doctor_pattern {
    DOCTOR_PATTERN_NONE,    /* no timeline, or nothing remarkable */
    DOCTOR_PATTERN_START,   /* rose from the beginning on until the end */
    DOCTOR_PATTERN_LEAK,    /* rose steadily */
    DOCTOR_PATTERN_EPOCHS,  /* every phase of a kind held more than the one before */
    DOCTOR_PATTERN_SPIKE,   /* rose at once after it had been flat */
    DOCTOR_PATTERN_WORKERS, /* several processes, each with its own */
    DOCTOR_PATTERN_TMPFS,   /* files in memory */
    DOCTOR_PATTERN_CACHE    /* page cache filled the group, and no process was short */
} doctor_pattern_t;

typedef struct doctor_shape {
    doctor_pattern_t pattern;
    double bytes_per_s;      /* LEAK, START; a step, where growth.steps */
    int64_t bytes_per_phase; /* EPOCHS */
    int64_t gpu_per_phase;   /* mean rise of the fullest GPU from phase to phase; 0: none … */
    double gpu_per_s;        /* … or a second, where no phases are marked */
    int64_t rise;            /* SPIKE, START: how much */
    const char *phase;       /* in which the end, or the spike, was; "": no marks */
} doctor_shape_t;

/* Whether a watch's record ends without its end's line: its watcher was killed too, or still runs.
 */
bool doctor_growth_is_cut(const doctor_growth_t *growth);

/* `progress`: the job's log shows that it trained. */
doctor_shape_t doctor_growth_shape(const doctor_growth_t *growth, bool progress);
const char *doctor_pattern_name(doctor_pattern_t pattern);

/* log_lines.c: bytes of the current source; `end` after the last. */
void doctor_log_bytes(doctor_t *doctor, const char *bytes, size_t size);
void doctor_log_end(doctor_t *doctor);

/* Begins a source; its lines are numbered from 1. `script`: it is Python's source, not a log. */
void doctor_source(doctor_t *doctor, const char *name, bool script);

/* The directory of the run whose timeline was read, not terminated; NULL: none was read by name. */
const char *doctor_run(const doctor_t *doctor, int *length_out);

#endif
