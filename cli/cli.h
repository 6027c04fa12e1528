/* What the verbs share: options, exit codes, starting a job, speaking. */
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
    const char *help;    /* all of `plimsoll VERB --help`, the common options aside */
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
 * code, -1 at the end, or -2 when the verb must return *exit_out at once (--help, or wrong use,
 * already said).
 */
int cli_next_option(int argc, char **argv, const struct option *options, cli_common_t *common,
                    int *exit_out);

/*
 * Parses an option's whole number, plain or as people write large ones (100M, 1.6G: thousands, not
 * 1024s); false when it is none or out of range, already said.
 */
bool cli_parse_int(const cli_common_t *common, const char *option, const char *text,
                   int64_t minimum, int64_t most, int64_t *value_out);

/* The same for a number with a point, from `minimum` on and below `below`. */
bool cli_parse_real(const cli_common_t *common, const char *option, const char *text,
                    double minimum, double below, double *value_out);

/* Of the option just read (optarg): the number of its word among `words` (ended by NULL); -1 when
 * it is none, already said. */
int cli_parse_word(const cli_common_t *common, const char *option, const char *const *words);

/* Of the option just read: "15,10,5", or numbers that follow it one by one, as PyG's scripts have
 * them ("15 10 5"). */
bool cli_parse_fanout(const cli_common_t *common, int argc, char **argv, plim_recipe_t *recipe);

/* Of the option just read. */
bool cli_parse_seed(const cli_common_t *common, uint64_t *seed_out);

/* A size, or "none", which is -1: of the option just read, whose name is `option`. */
bool cli_parse_cache(const cli_common_t *common, const char *option, int64_t *bytes_out);

/* Whether a run's dataset is still where the run says; else it is said how to name its new place,
 * and the exit code returned. */
int cli_check_moved(const cli_common_t *common, const char *run, const char *dataset);

/* A dataset is never written to: false when `scratch` (NULL: none) lies in it, already said. */
bool cli_check_scratch(const cli_common_t *common, const char *dataset, const char *scratch);

/* Says "plimsoll VERB: message" and "Try …", returns CLI_WRONG_USE. */
int cli_wrong_use(const cli_common_t *common, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Says the library's last error, as JSON too when asked for, and returns the exit code for
 * `status`. */
int cli_failed(const cli_common_t *common, plim_status_t status);

/* The same, the error joining what was found before it: takes `object`, which is NULL without
 * --json. */
int cli_failed_after(const cli_common_t *common, plim_status_t status, json_t *object);

/* The same with another message than the library's last. */
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

/* Flushes standard output, and keeps in mind why that failed. */
void cli_flush(void);

/* CLI_DONE; or the exit code when standard output could not be written, which is reported here. */
int cli_said_all(void);

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
plim_status_t cli_job_start(const cli_common_t *common, plim_job_t **job_out,
                            plim_limits_t *limits_out);
void cli_job_end(plim_job_t *job);

/* The same for plans of what is not run here: under a line of its own, or (plan_only) where nothing
 * is refused for the line; `silent`: without messages. The limit is not reported. */
plim_status_t cli_job_start_under(const cli_common_t *common, const plim_limits_t *limits,
                                  int64_t line, bool plan_only, bool silent, plim_job_t **job_out);

/* What to do when the line is too low, by what set it; NULL when nothing is known. */
const char *cli_limit_hint(const char *source);

/* After an error over the line: which limit it follows from and how to raise that, unless it is
 * --memory, which errors name themselves. */
void cli_say_line_hint(void);

/* "1.62M": counts as people read them. */
const char *cli_count_text(double count, char text_out[24]);

/* A remark on standard error, unless --quiet. */
void cli_remark(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A warning there, --quiet or not. */
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

/* What was made at `target`, in one line or as JSON, with the job's report. */
plim_status_t cli_say_made(const cli_common_t *common, plim_job_t *job, const char *target);

#endif
