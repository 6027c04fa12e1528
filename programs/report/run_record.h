/* The record of one run: what its files tell, reduced to what a page shows. */
#ifndef PLIM_REPORT_RUN_RECORD_H
#define PLIM_REPORT_RUN_RECORD_H

#include "base/job.h"
#include "base/json_piece.h"
#include "report/track.h"

#define PLIM__RECORD_TEXT 65536 /* bytes of a line, or of run.json, with its NUL */
#define PLIM__RECORD_PARTS 32   /* accounts or kinds of memory */
#define PLIM__RECORD_PHASES 64
#define PLIM__RECORD_STAGES 6
#define PLIM__RECORD_GPUS 8 /* more than so many are not shown */

/* What a training measures by epoch. */
enum { PLIM__LOSS, PLIM__VALID_LOSS, PLIM__SCORE_TRAIN, PLIM__SCORE_VALID, PLIM__SCORE_TEST };
#define PLIM__RECORD_CURVES 5

/* What is known of a watched command's memory at a tick: parts of it, by index. */
enum {
    PLIM__PART_HELD,      /* of the command's processes, shared pages counted once */
    PLIM__PART_ANONYMOUS, /* of the control group, like the rest */
    PLIM__PART_SHARED,
    PLIM__PART_KERNEL,
    PLIM__PART_CACHE, /* page cache that the kernel can take back */
    PLIM__PART_GROUP, /* 1: the limit is the control group's or a parent's */
    PLIM__PART_HOST,  /* 1: it is the host's memory, and what others hold is none of the run's */
    PLIM__PART_OTHERS /* HOST: memory of other processes */
};

typedef struct plim__report_phase {
    char name[64];
    double begin; /* seconds */
    double peak;  /* highest use in it */
} plim__report_phase_t;

typedef struct plim__run_record {
    plim__arena_t arena;
    char name[256];   /* the directory as given, printable */
    char *verdict;    /* the doctor's; "": none */
    char *about;      /* run.json; "": none */
    char *begin;      /* the last begin of a watch, its end, the last plan; "": none */
    char *end;        /* … */
    char *plan;       /* … */
    char *buffer;     /* of reads */
    bool training;    /* lines of plimsoll train */
    int64_t restarts; /* resumed, or watched again */
    char ranks[128];  /* of each start, "4, 1, 3", as far as they fit; "": unknown */
    double seconds;   /* length, without the time between restarts */
    double unix_time; /* of the last line; 0: none yet */
    double offset;    /* seconds of earlier watches in the same file */

    plim__track_t memory;                     /* use; beside: the line, then the parts */
    plim__track_t curve[PLIM__RECORD_CURVES]; /* by epoch, from 1 at 0 on */
    plim__track_t speed;                      /* steps a second; of a watch processors in use */
    plim__track_t rows, lists;                /* share found in the cache */
    plim__track_t reading;                    /* of a watch: bytes read a second */
    plim__track_t gpu[PLIM__RECORD_GPUS];     /* bytes in use */
    double gpu_bytes[PLIM__RECORD_GPUS];      /* that it has */

    int num_parts; /* of a training: accounts by name */
    char part[PLIM__RECORD_PARTS][32];
    double stage[PLIM__RECORD_STAGES]; /* seconds, as plim__stage_names */
    double evaluation, saving;         /* seconds */
    double last_epoch;                 /* begun; 0: none */
    double whole_epochs;               /* that ended, and their seconds of training */
    double whole_seconds;
    double best_epoch, best[3], final_loss;
    double epochs;        /* completed, by metrics.jsonl */
    double marked_epoch;  /* the last one that is a phase */
    double reserved_peak; /* of the ledger */
    double line_index;    /* of the last tick, in the limits of `begin` */
    char limit_kind;      /* of that: 'c'ontrol group, 'h'ost, '-'-memory; 0: not looked up */
    double counter[3];    /* seconds, cpu_s, read_bytes of the last tick that told; -1 */
    int64_t lines;        /* of the timeline */

    int64_t num_marks; /* phases begun */
    int64_t stride;    /* one of so many is kept */
    int num_phases;
    plim__report_phase_t phase[PLIM__RECORD_PHASES];
} plim__run_record_t;

extern const char *const plim__stage_names[PLIM__RECORD_STAGES];

/* Reads a directory. `found_out`: it holds at least one file of a run. Errors of plim_report_add.
 */
plim_status_t plim__run_record_create(const plim_job_t *job, const char *directory,
                                      const char *verdict, bool *found_out,
                                      plim__run_record_t **record_out);
void plim__run_record_destroy(plim__run_record_t *record);

/* For the fuzzer: an empty record, and a line of either file. */
plim_status_t plim__run_record_begin(const plim_job_t *job, const char *name,
                                     plim__run_record_t **record_out);
void plim__run_record_timeline(plim__run_record_t *record, plim__json_t line);
void plim__run_record_metrics(plim__run_record_t *record, plim__json_t line);

/* The text as an object. */
plim__json_t plim__run_record_json(const char *text);

#endif
