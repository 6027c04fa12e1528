/* The record of one run: what its files tell, reduced to what a page shows. */
#ifndef REPORT_RUN_RECORD_H
#define REPORT_RUN_RECORD_H

#include "base/json_scan.h"
#include "doctor/verdict.h"
#include "report/track.h"

#include <plimsoll/status.h>

#define REPORT_RECORD_TEXT 65536 /* bytes of a line, or of run.json, with its NUL */
#define REPORT_RECORD_PARTS 32   /* accounts or kinds of memory */
#define REPORT_RECORD_PHASES 64
#define REPORT_RECORD_STAGES 6
#define REPORT_RECORD_GPUS 8 /* shown at most */

/* What a training measures by epoch. */
enum { REPORT_LOSS, REPORT_VALID_LOSS, REPORT_SCORE_TRAIN, REPORT_SCORE_VALID, REPORT_SCORE_TEST };
#define REPORT_RECORD_CURVES 5

/* What is known of a watched command's memory at a tick: parts of it, by index. */
enum {
    REPORT_PART_HELD,      /* of the command's processes, shared pages counted once */
    REPORT_PART_ANONYMOUS, /* of the control group, like the rest */
    REPORT_PART_SHARED,
    REPORT_PART_KERNEL,
    REPORT_PART_CACHE, /* page cache that the kernel can take back */
    REPORT_PART_GROUP, /* 1: the limit is the control group's or a parent's */
    REPORT_PART_HOST,  /* 1: it is the host's memory, of which others hold a part */
    REPORT_PART_OTHERS /* HOST: memory of other processes */
};

typedef struct report_phase {
    char name[64];
    double begin; /* seconds */
    double peak;  /* highest use in it */
} report_phase_t;

typedef struct report_run_record {
    char name[256];   /* the directory as given, printable */
    doctor_t *doctor; /* its own, after its verdict; NULL: none */
    const doctor_verdict_t *verdict;
    char about[REPORT_RECORD_TEXT];      /* run.json; "": none */
    char begin[REPORT_RECORD_TEXT];      /* of the last watch; "": none */
    char plan[REPORT_RECORD_TEXT];       /* the last one of a training; "": none */
    char buffer[4 * REPORT_RECORD_TEXT]; /* of reads */
    bool training;                       /* lines of plimsoll train */
    int64_t restarts;                    /* resumed, or watched again */
    char ranks[128];  /* of each start, "4, 1, 3", as far as they fit; "": unknown */
    double seconds;   /* length, without the time between restarts */
    double unix_time; /* of a training: of the last line; 0: not known */
    double offset;    /* seconds of earlier watches in the same file */

    report_track_t memory;                      /* use; others: the line, then the parts */
    report_track_t curve[REPORT_RECORD_CURVES]; /* by epoch, from 1 at 0 on */
    report_track_t speed;                       /* steps a second; of a watch processors in use */
    report_track_t rows, lists;                 /* share found in the cache */
    report_track_t reading;                     /* of a watch: bytes read a second */
    report_track_t gpu[REPORT_RECORD_GPUS];     /* bytes in use */
    double gpu_bytes[REPORT_RECORD_GPUS];       /* that it has */

    int num_parts; /* of a training: accounts by name */
    char part[REPORT_RECORD_PARTS][32];
    double stage[REPORT_RECORD_STAGES]; /* seconds, as report_stage_names */
    double start, evaluation, saving;   /* seconds; start: until the first step, of all starts */
    double last_epoch;                  /* begun; 0: none */
    double whole_epochs;                /* that ended, and their seconds of training */
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
    int64_t stride;    /* every stride-th phase is kept */
    int num_phases;
    report_phase_t phase[REPORT_RECORD_PHASES];
} report_run_record_t;

extern const char *const report_stage_names[REPORT_RECORD_STAGES];

/* Reads a directory. `found_out`: it holds at least one file of a run. Errors of report_add. */
plim_status_t report_run_record_create(const char *directory, bool *found_out,
                                       report_run_record_t **record_out);
void report_run_record_destroy(report_run_record_t *record);

/* For the fuzzer: an empty record, and a line of either file. */
plim_status_t report_run_record_begin(const char *name, report_run_record_t **record_out);
void report_run_record_timeline(report_run_record_t *record, plim__json_t line);
void report_run_record_metrics(report_run_record_t *record, plim__json_t line);

/* The text as an object. */
plim__json_t report_run_record_json(const char *text);

#endif
