/* Shared by all verbs: options, exit codes, the job, output. */
#ifndef PLIM_CLI_H
#define PLIM_CLI_H

#include <plimsoll/plimsoll.h>

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
    const char *summary; /* one line for `plimsoll --help` */
    const char *help;    /* `plimsoll VERB --help` without the common options */
    int (*run)(int argc, char **argv);
} cli_verb_t;

extern const cli_verb_t cli_verb_bench;
extern const cli_verb_t cli_verb_evaluate;
extern const cli_verb_t cli_verb_generate;
extern const cli_verb_t cli_verb_import;
extern const cli_verb_t cli_verb_inspect;
extern const cli_verb_t cli_verb_limit;
extern const cli_verb_t cli_verb_plan;
extern const cli_verb_t cli_verb_predict;
extern const cli_verb_t cli_verb_train;

/* The options that every verb takes. */
typedef struct cli_common {
    const cli_verb_t *verb;
    int64_t memory; /* 0: not given */
    int threads;    /* 0: not given */
    plim_io_engine_t io_engine;
    bool json;
    bool quiet;
} cli_common_t;

/* Codes of long options without a letter: common ones from here, a verb's own from CLI_OPTION_OWN.
 */
enum { CLI_OPTION_COMMON = 0x100, CLI_OPTION_OWN = 0x200 };

#define CLI_COMMON_OPTIONS                                                                         \
    {"memory", required_argument, NULL, CLI_OPTION_COMMON + 0},                                    \
        {"threads", required_argument, NULL, CLI_OPTION_COMMON + 1},                               \
        {"io", required_argument, NULL, CLI_OPTION_COMMON + 2},                                    \
        {"json", no_argument, NULL, CLI_OPTION_COMMON + 3},                                        \
        {"quiet", no_argument, NULL, CLI_OPTION_COMMON + 4}, {"help", no_argument, NULL, 'h'},     \
    {                                                                                              \
        NULL, 0, NULL, 0                                                                           \
    }

/*
 * The next option of a verb's command line, the common ones taken care of. Returns a verb's own
 * code, -1 at the end, or -2 when the verb must return *exit_out (after --help or an error
 * message).
 */
int cli_next_option(int argc, char **argv, const struct option *options, cli_common_t *common,
                    int *exit_out);

/*
 * Parses an option's whole number, plain or as people write large ones (100M, 1.6G: thousands, not
 * 1024s). False after an error message.
 */
bool cli_parse_int(const cli_common_t *common, const char *option, const char *text,
                   int64_t minimum, int64_t most, int64_t *value_out);

/* The same for a number with a point, from `minimum` on and below `below`. */
bool cli_parse_real(const cli_common_t *common, const char *option, const char *text,
                    double minimum, double below, double *value_out);

/* The index of optarg in `words` (ended by NULL); -1 after an error message. */
int cli_parse_word(const cli_common_t *common, const char *option, const char *const *words);

/* Parses optarg: "15,10,5", or numbers in the words that follow, as in PyG's scripts ("15 10 5").
 */
bool cli_parse_fanout(const cli_common_t *common, int argc, char **argv, plim_recipe_t *recipe);

/* Options of a shape, shared by generate and plan: --scale, --spread, --dtype, and the four counts
 * of the free shape. `code` is one of these. False after an error message. */
enum {
    CLI_SHAPE_SCALE = 0x300,
    CLI_SHAPE_SPREAD,
    CLI_SHAPE_DTYPE,
    CLI_SHAPE_NODES,
    CLI_SHAPE_EDGES,
    CLI_SHAPE_FEATURES,
    CLI_SHAPE_CLASSES,
    CLI_SHAPE_END
};

#define CLI_SHAPE_OPTIONS                                                                          \
    {"scale", required_argument, NULL, CLI_SHAPE_SCALE},                                           \
        {"spread", required_argument, NULL, CLI_SHAPE_SPREAD},                                     \
        {"dtype", required_argument, NULL, CLI_SHAPE_DTYPE},                                       \
        {"nodes", required_argument, NULL, CLI_SHAPE_NODES},                                       \
        {"edges", required_argument, NULL, CLI_SHAPE_EDGES},                                       \
        {"features", required_argument, NULL, CLI_SHAPE_FEATURES},                                 \
    {                                                                                              \
        "classes", required_argument, NULL, CLI_SHAPE_CLASSES                                      \
    }

bool cli_take_shape_option(const cli_common_t *common, int code, plim_generate_options_t *shape,
                           unsigned *given);

/* Whether all counts of the free shape are in `given`. False after an error message. */
bool cli_check_free_shape(const cli_common_t *common, unsigned given);

/* Parses the value of the option just read. */
bool cli_parse_seed(const cli_common_t *common, uint64_t *seed_out);

/* Parses optarg: a size, or "none", which is -1. */
bool cli_parse_cache(const cli_common_t *common, const char *option, int64_t *bytes_out);

/* CLI_DONE if a run's dataset is still there, or the exit code after an error message. */
int cli_check_moved(const cli_common_t *common, const char *run, const char *dataset);

/* False after an error message when `scratch` (NULL: none) lies in the dataset, which is read-only.
 */
bool cli_check_scratch(const cli_common_t *common, const char *dataset, const char *scratch);

/* Prints "plimsoll VERB: message" and "Try …". Returns CLI_WRONG_USE. */
int cli_wrong_use(const cli_common_t *common, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints the library's last error, with --json also as an object. Returns the exit code. */
int cli_failed(const cli_common_t *common, plim_status_t status);

/* The same with another message. Adds the error to `object` (taken; NULL without --json). */
int cli_failed_with(const cli_common_t *common, plim_status_t status, const char *message,
                    json_t *object);

/*
 * Prints a text that may come from a file or be a file's name: control characters (C0, DEL, C1) and
 * bytes that are not UTF-8 become '?', so that no file can steer the terminal.
 */
void cli_print_text(FILE *out, const char *text);

/* Text as JSON; bytes that are not UTF-8 (a file may be called anything) become '?'. */
json_t *cli_json_text(const char *text);

/* A plan as the JSON object it prints as. */
json_t *cli_json_plan(const plim_plan_t *plan);

/* A whole number of an object, 0 when there is none; whether one of its words is `word`. */
int64_t cli_json_int(const json_t *object, const char *name);
bool cli_json_is(const json_t *object, const char *name, const char *word);

/* Flushes standard output and remembers the first error. */
void cli_flush(void);

/* CLI_DONE, or the exit code after an error message when standard output could not be written. */
int cli_check_output(void);

/* Whether errno says that the disk, a quota or ulimit -f is used up. */
bool cli_disk_full(int error);

/* Prints the object on one line of standard output and drops it. */
void cli_print_json(json_t *object);

/* plim_limits_discover with --memory and --threads. */
plim_status_t cli_find_limits(const cli_common_t *common, plim_limits_t *limits_out);

/*
 * Finds the line and the threads and says which limit it is, opens the ledger and the meter,
 * catches SIGINT, SIGTERM and SIGUSR1 for the stop flag. One job at a time.
 */
plim_status_t cli_job_start(const cli_common_t *common, plim_job_t **job_out);
void cli_job_end(plim_job_t *job);

/* The same for plans of what is not run here: under a line of its own, or (plan_only) where nothing
 * is refused for the line; `silent`: without messages. The limit is not reported. */
plim_status_t cli_job_start_under(const cli_common_t *common, const plim_limits_t *limits,
                                  int64_t line, bool plan_only, bool silent, plim_job_t **job_out);

/* How to raise the limit from `source`; NULL if unknown. */
const char *cli_limit_hint(const char *source);

/* Prints the source of the line and how to raise it, unless it is --memory. */
void cli_print_line_hint(void);

/* "1.62M": counts as people read them. */
const char *cli_count_text(double count, char text_out[24]);

/* Prints a remark on standard error, unless --quiet. */
void cli_remark(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints a warning there, also with --quiet. */
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Progress of a phase that comes back again and again: on a terminal its bar goes when it is done,
 * elsewhere there is a line only when it takes long. `extra` stands behind the rate.
 */
void cli_show_passing(const plim_progress_t *progress, const char *extra);

/* Before a line on standard output: wipes such a bar off, and ends its phase. */
void cli_leave_phase(void);

/*
 * What the job has cost so far: says it in one line, and adds it to `object` unless that is NULL
 * (seconds, phases with theirs, line_bytes, reserved_peak_bytes, peak_bytes, rss_peak_bytes, and
 * where the kernel tells group_peak_bytes, group_cache_bytes, group_dirty_bytes).
 */
void cli_job_report(plim_job_t *job, json_t *object);

/* Prints the dataset at `target` in one line or as JSON, and the job's report. */
plim_status_t cli_print_dataset(const cli_common_t *common, plim_job_t *job, const char *target);

#endif
