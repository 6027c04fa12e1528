/* Shared by all verbs: options, exit codes, the job, output. */
#ifndef PLIM_CLI_H
#define PLIM_CLI_H

#include <plimsoll/plimsoll.h>

#include "command/options.h"

#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

enum {
    CLI_DONE = 0,
    CLI_FAILED = 1,
    CLI_WRONG_USE = 2,
    CLI_DOES_NOT_FIT = 3,
    CLI_BAD_DATA = 4,
    CLI_DIVERGED = 5,
    CLI_DISK_FULL = 6,
    CLI_STOPPED = 75
};

typedef struct cli_verb {
    const char *name;
    const char *summary;       /* one line for `plimsoll --help` */
    const char *help;          /* `plimsoll VERB --help` without the options */
    const cli_group_t *groups; /* of its options, ended by one without */
    /* What shells offer for operands: words, ":directory", ":file" or ":command". */
    const char *const *first_operand; /* ended by NULL; NULL: as the others */
    const char *operand;
    int (*run)(int argc, char **argv);
    bool single; /* of several ranks only the first works */
} cli_verb_t;

extern const cli_verb_t *const cli_verbs[]; /* ended by NULL */

extern const cli_verb_t cli_verb_bench;
extern const cli_verb_t cli_verb_cache;
extern const cli_verb_t cli_verb_doctor;
extern const cli_verb_t cli_verb_evaluate;
extern const cli_verb_t cli_verb_generate;
extern const cli_verb_t cli_verb_import;
extern const cli_verb_t cli_verb_inspect;
extern const cli_verb_t cli_verb_limit;
extern const cli_verb_t cli_verb_mark;
extern const cli_verb_t cli_verb_plan;
extern const cli_verb_t cli_verb_predict;
extern const cli_verb_t cli_verb_report;
extern const cli_verb_t cli_verb_slurm;
extern const cli_verb_t cli_verb_train;
extern const cli_verb_t cli_verb_watch;

/* The options that every verb takes, and which were given. */
typedef struct cli_common {
    const cli_verb_t *verb;
    bool given[CLI_OPTIONS_MAX];
    int64_t memory; /* 0: not given, or max */
    int threads;    /* 0: not given */
    plim_io_engine_t io_engine;
    bool json;
    bool quiet;
    const plim_transport_t
        *transport; /* of the verb's jobs; NULL: to the ranks that were started */
    bool in_order;  /* options end at the first word: another verb's command line begins there */
} cli_common_t;

/* The names of plim_io_engine_t in the order of its values, ended by NULL. */
extern const char *const cli_engine_names[];

/*
 * Parses an option's whole number, plain or with a suffix (100M, 1.6G: powers of 1000). False after
 * an error message.
 */
bool cli_parse_int(const cli_common_t *common, const char *option, const char *text,
                   int64_t minimum, int64_t most, int64_t *value_out);

/* The same for a number with a point, from 0 on and below `below`. */
bool cli_parse_real(const cli_common_t *common, const char *option, const char *text, double below,
                    double *value_out);

/* The index of `text` in `words` (ended by NULL); -1 after an error message. */
int cli_parse_word(const cli_common_t *common, const char *option, const char *text,
                   const char *const *words);

/* The nearest of the words tried so far; begin with {NULL, 0}. */
typedef struct cli_nearest {
    const char *word; /* NULL: none is near */
    int distance;
} cli_nearest_t;

/* Keeps `word` if it is near `given`, and nearer than the words before it. */
void cli_nearest_try(cli_nearest_t *nearest, const char *given, const char *word);

/* "; did you mean --hidden?", or "" if no word is near. */
const char *cli_nearest_text(const cli_nearest_t *nearest, const char *prefix, char text_out[96]);

/* Parses a fan-out and the words at *next that belong to it, and moves *next past them: 15,10,5 or
 * "15 10 5" or 15 10 5 or [15, 10, 5]. */
bool cli_parse_fanout(const cli_common_t *common, const char *option, const char *text,
                      char ***next, plim_recipe_t *recipe);
/* A list of numbers from 1 on, at most PLIM_CATEGORIES_MAX; the rest of counts_out (most) is 0. */
bool cli_parse_categories(const cli_common_t *common, const char *option, const char *text,
                          char ***next, int most, int64_t *counts_out);

/* Options of a shape, for generate and plan: --scale, --spread, --dtype, and the four counts of the
 * free shape. Their struct is plim_generate_options_t. */
extern const cli_option_t cli_shape_options[];
extern const cli_option_t cli_shape_count_options[];

/* The names of the shapes, ended by NULL. */
extern const char *const cli_shapes[];

/* The shape of this name: "papers100m", "ogbn-papers100M" and "ogbn_papers100M" are papers100M.
 * NULL: no shape; text_out then begins with "; " and lists the shapes. */
const char *cli_shape_named(const char *name, char text_out[192]);

/* Whether all counts of the free shape were given. False after an error message. */
bool cli_check_free_shape(const cli_common_t *common);

/* What pairs are compared with: a number from 1 on to *drawn_out, or a file to *file_out; the other
 * becomes 0 or NULL. */
bool cli_parse_negatives(const cli_common_t *common, const char *option, const char *text,
                         const char **file_out, int64_t *drawn_out);

bool cli_parse_seed(const cli_common_t *common, const char *option, const char *text,
                    uint64_t *seed_out);

/* A size above 0, with its unit unless it is a million bytes or more. */
bool cli_parse_size(const cli_common_t *common, const char *option, const char *text,
                    int64_t *bytes_out);

/* CLI_DONE if a run's dataset still exists, or the exit code after an error message. */
int cli_check_moved(const cli_common_t *common, const char *run, const char *dataset);

/* False after an error message if `scratch` (NULL: none) is inside the dataset, which is
 * read-only. */
bool cli_check_scratch(const cli_common_t *common, const char *dataset, const char *scratch);

/* Prints "plimsoll VERB: message" and "Try …". Returns CLI_WRONG_USE. */
int cli_wrong_use(const cli_common_t *common, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints the library's last error, with --json also as an object. Returns the exit code. */
int cli_failed(const cli_common_t *common, plim_status_t status);

/* The same of a failure of a program: functions of doctor, report, watch and pyg and the shared
 * helpers set the command's own copy of base/fail.h, not the library's. */
int cli_program_failed(const cli_common_t *common, plim_status_t status);

/* Makes a failure of the library one of a program; PLIM_OK stays. */
plim_status_t cli_pass_failure(plim_status_t status);

/* PLIM_ERR_STOPPED, as a failure of a program, after a signal that asks to stop. */
plim_status_t cli_check_stopped(void);

/* The exit code of a status. */
int cli_exit_code(plim_status_t status);

/* The same with another message. Adds the error to `object` (taken; NULL without --json). */
int cli_failed_with(const cli_common_t *common, plim_status_t status, const char *message,
                    json_t *object);

/*
 * A message of the library with the options that set what it names in backquotes: "raise `memory`
 * to 361M" becomes "raise --memory to 361M". The command's own texts have no such words.
 */
#define CLI_MESSAGE_MAX 2048
const char *cli_message_text(const char *message, char text_out[CLI_MESSAGE_MAX]);

/* The library's last error as such a text, valid until the next call. */
const char *cli_last_error(void);

/* What to type after the failure that a verb is about to return: cli_failed prints it behind the
 * message, and as `remedy` of its JSON object. "": nothing. */
void cli_remedy(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *cli_remedy_text(void);

/*
 * Prints a text from a file, or a file's name: control characters (C0, DEL, C1) and bytes that are
 * not UTF-8 become '?', so that no file can control the terminal.
 */
void cli_print_text(FILE *out, const char *text);

/* Text as JSON; bytes that are not UTF-8 become '?'. */
json_t *cli_json_text(const char *text);

/* The figures of a plan and its accounts; and the same as JSON. */
#define CLI_PLAN_ACCOUNTS 32
typedef struct cli_plan {
    plim_plan_info_t info;
    int num_accounts;
    plim_plan_account_t accounts[CLI_PLAN_ACCOUNTS];
} cli_plan_t;
plim_status_t cli_plan_read(const plim_plan_t *plan, cli_plan_t *plan_out);
json_t *cli_plan_json(const cli_plan_t *plan);

/* The phases of a plan by their JSON names ("train"). */
const char *cli_phase_name(plim_phase_t phase);

/* The minimum of a plan as every text names it: in whole MiB, rounded up, so that --memory takes
 * it. In bytes, and "92 MiB". */
int64_t cli_minimum_line(const cli_plan_t *plan);
const char *cli_minimum_text(const cli_plan_t *plan, char text_out[24]);

/* Flushes standard output and stores the first error. */
void cli_flush(void);

/* CLI_DONE, or the exit code after an error message when standard output could not be written. */
int cli_check_output(void);

/* Prints the object on one line of standard output and drops it. */
void cli_print_json(json_t *object);

/* plim_limits_discover with --memory and --threads. */
plim_status_t cli_find_limits(const cli_common_t *common, plim_limits_t *limits_out);

/*
 * Finds the line and the threads and prints the limit, creates the ledger and the meter, and
 * catches SIGINT, SIGTERM and SIGUSR1 for the stop flag. One job at a time.
 */
plim_status_t cli_job_start(const cli_common_t *common, plim_job_t **job_out);
void cli_job_end(plim_job_t *job);

/* Ends the job of a verb for ranks. Returns `exit_code` if that is of an error that was printed
 * already, else that of `status`, whose error the rank that speaks prints. */
int cli_job_finish(const cli_common_t *common, plim_job_t *job, int exit_code,
                   plim_status_t status);

/* The same for plans that are not run here: under a given line, or (plan_only) without a line;
 * `silent`: without messages. Does not print the limit. */
plim_status_t cli_job_start_under(const cli_common_t *common, const plim_limits_t *limits,
                                  int64_t line, bool plan_only, bool silent, plim_job_t **job_out);

/* A job for estimates: under the line found here, or (plan_only) without a line, and without
 * messages. */
plim_status_t cli_job_start_silent(const cli_common_t *common, bool plan_only,
                                   plim_job_t **job_out);

/* Appends a line to the marks of a watch, PLIMSOLL_WATCH. False with errno. */
bool cli_mark(const char *path, const char *line);

/* The dataset `path`, or its copy in the directory `stage`, which is made first (NULL: none). */
plim_status_t cli_open_dataset(const plim_job_t *job, const char *path, const char *stage,
                               plim_dataset_t **dataset_out);
#define CLI_STAGE_WHERE "--stage needs --scratch DIR, where the copy goes"

/* How to raise the limit from `source`; NULL if unknown. */
const char *cli_limit_hint(const char *source);

/* Prints the source of the line and how to raise it, unless it is --memory. */
void cli_print_line_hint(void);

/* The name of a signal without SIG ("TERM"); "RT" for one without a name. */
const char *cli_signal_name(int number);

/* "1.62M": a count with a suffix. */
const char *cli_count_text(double count, char text_out[24]);
const char *cli_feature_type(plim_dtype_t type); /* i64, f16 or f32 */

/* Prints a remark on standard error, unless --quiet. */
void cli_remark(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints a warning on standard error, also with --quiet. */
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Joins the ranks that a launcher has started together; a process that was started alone stays
 * alone. CLI_DONE, or the exit code after a message. Jobs that start later have the transport.
 */
int cli_ranks_join(void);

/* Whether all ranks have been given the same word for an option (NULL: none). False after an error
 * message that names the rank. */
bool cli_ranks_compare(const cli_common_t *common, const char *option, const char *word);

/* The transport to the other ranks; NULL: there are none. */
const plim_transport_t *cli_ranks(void);

/* Ranks that may run on the same CPUs as this one, itself included. */
int cli_ranks_on_cpus(void);

/* Whether this process prints more than its own errors: it is alone, or rank 0. */
bool cli_ranks_speaks(void);

/* Whether a launcher has started this process as another rank than the first. */
bool cli_ranks_other(void);

/* For a verb whose work ranks do not divide: whether this is another rank than the first, which
 * says that it works alone. */
bool cli_ranks_idle(const char *verb);

/* The last thing before a rank ends: those that were joined end together. */
void cli_ranks_leave(int exit_code);

/* The MPI plugins: objects of `name` and `mpi`, or `error` where one cannot be loaded. */
json_t *cli_ranks_plugins(void);

/* Starts the clock of the job and looks whether standard error is a terminal. */
void cli_progress_begin(bool quiet);

/* A plim_log_fn and a plim_progress_fn. */
void cli_log(void *user, plim_log_level_t level, const char *message);
void cli_progress(void *user, const plim_progress_t *progress);

/* Progress of steps: their phase began with the last event before it. NAN: no loss. */
void cli_show_steps(const plim_progress_t *progress, double loss);

/* Ends the phase; its last line stays. */
void cli_leave_phase(void);

/* Adds the time since the last event to the phase `name`, which has no line, instead of the present
 * phase. */
void cli_pass_time(const char *name);

/* Clears the bar before a line on standard output; its phase goes on. */
void cli_clear_bar(void);

/* The index-th phase that has ended; false if there is none. Seconds since the job began. */
bool cli_phase(int index, const char **name_out, double *seconds_out);
double cli_job_seconds(void);

/* "01:02" or "1:02:03". */
const char *cli_time_text(double seconds, char text_out[24]);

/*
 * Prints the job's time and memory in one line, and adds them to `object` unless that is NULL
 * (seconds, phases with theirs, line_bytes, reserved_peak_bytes, peak_bytes, rss_peak_bytes, and if
 * the kernel provides them group_peak_bytes, group_cache_bytes, group_dirty_bytes).
 */
void cli_job_report(plim_job_t *job, json_t *object);

/* Prints the dataset at `target` in one line or as JSON, and the job's report. */
plim_status_t cli_print_dataset(const cli_common_t *common, plim_job_t *job, const char *target);

#endif
