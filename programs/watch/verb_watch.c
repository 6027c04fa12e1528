/* plimsoll watch: runs a command and records its memory until it ends, however that is. */
#include "base/clock.h"
#include "base/fail.h"
#include "doctor/verdict.h"
#include "watch/watch.h"
#include "watch/watch_process.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
    "usage: plimsoll watch [options] -- COMMAND [ARGUMENTS]\n\n"
    "Runs any command and records the memory of all its processes and of its control group\n"
    "over time, in timeline.jsonl of a directory. The record survives if the command is killed\n"
    "for memory. On a terminal it shows memory, the nearest limit (the line) and the trend. It\n"
    "warns near the line, forwards signals, and ends with the command's exit code (128 + n\n"
    "after signal n). The command names its phases with plimsoll mark.\n\n"
    "Here --memory is one more limit to compare with; it is not enforced. --threads and --io\n"
    "have no effect.\n";

#define WARNINGS_MAX 8
#define TREND_SAMPLES 64
#define TREND_STEP 0.5 /* seconds between two samples */
#define DRAW_SECONDS 0.5

typedef struct watch_options {
    const char *out; /* NULL: a new directory */
    double interval; /* seconds */
    double warnings[WARNINGS_MAX];
    int num_warnings;
    double signal_at; /* fraction; 0: no signal */
    int signal;
} watch_options_t;

typedef struct watch_run {
    cli_common_t common;
    watch_options_t options;
    watch_t *watch;
    pid_t command;
    int status; /* of the command, once it has ended */
    bool ended;
    struct rusage usage;
    bool failing; /* the timeline could not be written; reported once */
    struct {
        double at;
        int64_t used;
    } trend[TREND_SAMPLES]; /* a ring */
    int64_t num_trend;
    double drawn; /* when the live line was drawn */
} watch_run_t;

/* ---- options ---- */

/* "100ms", "2s", "0.5". */
static bool take_interval(void *context, char *text, char ***next)
{
    watch_run_t *run = context;
    char *end;
    double value = strtod(text, &end);
    (void)next;
    if (strcmp(end, "ms") == 0)
        value /= 1000;
    else if (*end != '\0' && strcmp(end, "s") != 0)
        value = -1;
    if (end == text || !(value >= 0.01 && value <= 60)) {
        (void)cli_wrong_use(&run->common, "--interval: '%s' is not a time from 10ms to 60s", text);
        return false;
    }
    run->options.interval = value;
    return true;
}

static bool take_warnings(void *context, char *text, char ***next)
{
    watch_run_t *run = context;
    watch_options_t *options = &run->options;
    const char *at = text;
    (void)next;
    options->num_warnings = 0;
    for (;;) {
        char *end;
        const double value = strtod(at, &end);
        if (end == at || !(value > 0 && value <= 1) || options->num_warnings == WARNINGS_MAX ||
            (*end != ',' && *end != '\0')) {
            (void)cli_wrong_use(&run->common,
                                "--warn: '%s' is not a list of at most %d fractions, like 0.8,0.9",
                                text, WARNINGS_MAX);
            return false;
        }
        options->warnings[options->num_warnings++] = value;
        if (*end == '\0')
            return true;
        at = end + 1;
    }
}

/* "0.95:USR1" or "0.95:SIGUSR1". */
static bool take_signal(void *context, char *text, char ***next)
{
    watch_run_t *run = context;
    watch_options_t *options = &run->options;
    char *end;
    (void)next;
    options->signal_at = strtod(text, &end);
    options->signal = 0;
    if (end != text && *end == ':' && options->signal_at > 0 && options->signal_at <= 1) {
        const char *name = end + 1 + (strncmp(end + 1, "SIG", 3) == 0 ? 3 : 0);
        for (int i = 1; i <= SIGSYS; i++)
            if (strcmp(name, cli_signal_name(i)) == 0)
                options->signal = i;
    }
    if (options->signal == 0)
        (void)cli_wrong_use(&run->common,
                            "--signal-at: '%s' is not a fraction of the line and a signal, like "
                            "0.95:USR1",
                            text);
    return options->signal != 0;
}

#define AT(member) CLI_AT(watch_run_t, options.member)

static const cli_option_t own_options[] = {
    {"out", "DIR", "record to this directory; default: a new one, watch-DATE-TIME-PID",
     "It is made if it does not exist. A timeline that is there is continued: a requeued job "
     "records to the same place. A directory with a training run or a dataset is refused, and one "
     "that another watch is writing to.",
     AT(out), .kind = CLI_TEXT},
    {"interval", "TIME", "time between two looks, 10ms to 60s; default 100ms",
     "What is seen is written if something has changed by 1 MiB and 1 %, at least once a second.",
     AT(interval), CLI_BY(take_interval), CLI_HINTS("10ms", "100ms", "1s")},
    {"warn", "LIST", "warn once at each of these fractions of the line; default 0.8,0.9",
     AT(warnings), CLI_BY(take_warnings), CLI_HINTS("0.8,0.9")},
    {"signal-at", "F:S", "send signal S (USR1) to the command once, at the fraction F of the line",
     "A command that saves its state on this signal does so before the kernel kills it.",
     AT(signal_at), CLI_BY(take_signal), CLI_HINTS("0.95:USR1")},
    CLI_OPTIONS_END};

static const cli_group_t groups[] = {
    {.title = "Options", .options = own_options}, CLI_COMMON_GROUP, {.options = NULL}};

/* Reads the options; NULL after --help or an error, with *exit_out. */
static char **parse(int argc, char **argv, watch_run_t *run, int *exit_out)
{
    int dashes = 1;
    while (dashes < argc && strcmp(argv[dashes], "--") != 0)
        dashes++;
    const char *first = dashes + 1 < argc ? argv[dashes + 1] : NULL; /* of the command */
    if (!cli_read_options(argc, argv, run, exit_out))
        return NULL;
    if (first == NULL || optind >= argc || argv[optind] != first) {
        *exit_out = cli_wrong_use(&run->common, "write -- before the command, like: plimsoll watch "
                                                "-- python train.py");
        return NULL;
    }
    return argv + optind;
}

/* ---- the live line ---- */

/* Bytes a second over the last half minute; 0 if it is too early to tell. */
static double trend_of(watch_run_t *run, const watch_state_t *state)
{
    const int64_t count = run->num_trend;
    if (count == 0 || state->seconds - run->trend[(count - 1) % TREND_SAMPLES].at >= TREND_STEP) {
        run->trend[count % TREND_SAMPLES].at = state->seconds;
        run->trend[count % TREND_SAMPLES].used = state->used;
        run->num_trend++;
    }
    const int64_t oldest = run->num_trend > TREND_SAMPLES ? run->num_trend - TREND_SAMPLES : 0;
    const double seconds = state->seconds - run->trend[oldest % TREND_SAMPLES].at;
    if (seconds < 2 * TREND_STEP)
        return 0;
    return (double)(state->used - run->trend[oldest % TREND_SAMPLES].used) / seconds;
}

/* "01:23 | 3.2 GiB of 4 GiB (80%) +12 MiB/s, line in 01:05 | 33 processes | epoch 5"; without a
 * limit of its own "01:23 | 3.2 GiB, host 10 GiB of 64 GiB (16%) +12 MiB/s, …" */
static void draw(watch_run_t *run, const watch_state_t *state)
{
    char line[256], used[24], limit[24], elapsed[24], rate[24], left[24], trend[80] = "";
    const double slope = trend_of(run, state);
    if (!status_line_is_open() || (run->drawn > 0 && state->seconds - run->drawn < DRAW_SECONDS))
        return;
    run->drawn = state->seconds;
    if (fabs(slope) >= 1024) {
        int length = snprintf(trend, sizeof trend, " %c%s/s", slope < 0 ? '-' : '+',
                              plim_size_text((int64_t)fabs(slope), rate));
        const double rest = (double)(state->line - state->used) / slope;
        if (slope > 0 && rest < 86400 && state->line >= 0)
            (void)snprintf(trend + length, sizeof trend - (size_t)length, ", line in %s",
                           cli_time_text(rest, left));
    }
    int length = snprintf(line, sizeof line, "%s | ", cli_time_text(state->seconds, elapsed));
    if (state->line > 0 && state->host)
        length += snprintf(line + length, sizeof line - (size_t)length, "%s, host ",
                           plim_size_text(state->held, used));
    if (state->line > 0)
        length += snprintf(line + length, sizeof line - (size_t)length, "%s of %s (%.0f%%)%s",
                           plim_size_text(state->used, used), plim_size_text(state->line, limit),
                           100.0 * (double)state->used / (double)state->line, trend);
    else
        length += snprintf(line + length, sizeof line - (size_t)length, "%s",
                           plim_size_text(state->held, used));
    (void)snprintf(line + length, sizeof line - (size_t)length, " | %d process%s%s%s",
                   state->processes, state->processes == 1 ? "" : "es",
                   state->phase[0] != '\0' ? " | " : "", state->phase);
    status_line_draw(line);
}

/* ---- while it runs ---- */

/* Says once that the timeline cannot be written; the command goes on. */
static void note_failure(watch_run_t *run, plim_status_t status)
{
    if (status == PLIM_OK || run->failing)
        return;
    run->failing = true;
    cli_warn("%s; the command runs on, parts of its timeline are missing", plim__fail_text());
}

static void append_event(watch_run_t *run)
{
    note_failure(run, watch_event_end(run->watch));
}

/* Begins the line of a signal to the command. */
static plim__json_writer_t *begin_signal(watch_run_t *run, int signal, bool sent, const char *from)
{
    plim__json_writer_t *json = watch_event_begin(run->watch, "signal");
    plim__json_put_text(json, "signal", cli_signal_name(signal), SIZE_MAX);
    plim__json_put_bool(json, "sent", sent);
    plim__json_put_text(json, "from", from, SIZE_MAX);
    return json;
}

/* Warns and signals at the chosen fractions, once each. */
static void compare(watch_run_t *run, const watch_state_t *state)
{
    watch_options_t *options = &run->options;
    const double share = state->line > 0 ? (double)state->used / (double)state->line : 0;
    char used[24], limit[24], held[24];
    for (int i = 0; i < options->num_warnings; i++) {
        if (options->warnings[i] <= 0 || share < options->warnings[i])
            continue;
        plim__json_writer_t *json = watch_event_begin(run->watch, "warning");
        plim__json_put_real(json, "fraction", 4, options->warnings[i]);
        plim__json_put_integer(json, "used_bytes", state->used);
        plim__json_put_integer(json, "line_bytes", state->line);
        append_event(run);
        if (state->host)
            cli_warn("the host's memory is at %.0f%%: %s of %s, of which this command holds %s",
                     100 * share, plim_size_text(state->used, used),
                     plim_size_text(state->line, limit), plim_size_text(state->held, held));
        else
            cli_warn("memory is at %.0f%% of the line: %s of %s (%s)", 100 * share,
                     plim_size_text(state->used, used), plim_size_text(state->line, limit),
                     state->source);
        options->warnings[i] = 0;
    }
    if (options->signal_at > 0 && share >= options->signal_at) {
        const bool sent = kill(run->command, options->signal) == 0;
        (void)begin_signal(run, options->signal, sent, "watch");
        append_event(run);
        cli_warn("sent %s to the command at %.0f%% of the line (--signal-at)",
                 cli_signal_name(options->signal), 100 * share);
        options->signal_at = 0;
    }
}

static void tick(watch_run_t *run)
{
    watch_state_t state = {0};
    watch_gpu_t gpu;
    note_failure(run, watch_tick(run->watch, &state));
    compare(run, &state);
    while (watch_gpus_next(&gpu)) {
        plim__json_writer_t *json = watch_event_begin(run->watch, "gpu");
        plim__json_put_integer(json, "gpu", gpu.index);
        plim__json_put_integer(json, "used_bytes", gpu.used);
        plim__json_put_integer(json, "total_bytes", gpu.total);
        append_event(run);
    }
    draw(run, &state);
}

/* The name of the process that sent a signal; "" if it has ended. */
static void sender_name(pid_t pid, char name_out[32])
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    FILE *file = fopen(path, "re");
    name_out[0] = '\0';
    if (file == NULL)
        return;
    if (fgets(name_out, 32, file) == NULL)
        name_out[0] = '\0';
    (void)fclose(file);
    name_out[strcspn(name_out, "\n")] = '\0';
}

static void pass_on(watch_run_t *run, const siginfo_t *info)
{
    char name[32];
    if (info->si_signo == SIGWINCH)
        return;
    const bool sent = watch_forward(run->command, info);
    plim__json_writer_t *json =
        begin_signal(run, info->si_signo, sent, info->si_code > 0 ? "terminal" : "user");
    if (info->si_code <= 0 && info->si_pid > 0) {
        plim__json_put_integer(json, "sender_pid", info->si_pid);
        sender_name(info->si_pid, name);
        if (name[0] != '\0')
            plim__json_put_printable(json, "sender_name", name, sizeof name);
    }
    append_event(run);
}

/* Waits for every child that has ended. */
static void reap(watch_run_t *run, pid_t monitor)
{
    int status;
    struct rusage usage;
    pid_t child;
    while ((child = wait4(-1, &status, WNOHANG, &usage)) > 0) {
        if (child == run->command) {
            run->status = status;
            run->usage = usage;
            run->ended = true;
        } else if (child != monitor) {
            watch_waited(run->watch, &usage);
        }
    }
}

static void watch_until_end(watch_run_t *run, pid_t monitor)
{
    const int64_t interval = (int64_t)(run->options.interval * 1e9);
    int64_t next = plim__clock_ns();
    siginfo_t info;
    reap(run, monitor);
    while (!run->ended) {
        tick(run);
        next += interval;
        if (next < plim__clock_ns()) /* stopped, or the machine was busy */
            next = plim__clock_ns() + interval;
        int number;
        while (!run->ended && (number = watch_next_signal(next, &info)) != 0) {
            if (number == SIGCHLD)
                reap(run, monitor);
            else
                pass_on(run, &info);
        }
    }
}

/* ---- the end ---- */

static void how_it_ended(const watch_run_t *run, const watch_end_t *end, char text_out[640])
{
    char limit[24], after[24];
    (void)cli_time_text(end->seconds, after);
    int length;
    if (WIFSIGNALED(run->status))
        length = snprintf(text_out, 640, "killed by signal %d (%s) after %s", WTERMSIG(run->status),
                          cli_signal_name(WTERMSIG(run->status)), after);
    else
        length = snprintf(text_out, 640, "exit code %d after %s", WEXITSTATUS(run->status), after);
    const int64_t kills = end->kills > 0 ? end->kills : 0;
    char *rest = text_out + length;
    const size_t room = 640 - (size_t)length;
    if (kills > 0 && end->limit_group[0] != '\0')
        length = snprintf(rest, room,
                          "; the kernel killed %lld process%s for memory: control group %s reached "
                          "its limit of %s",
                          (long long)kills, kills == 1 ? "" : "es", end->limit_group,
                          plim_size_text(end->limit_bytes, limit));
    else if (kills > 0)
        length = snprintf(rest, room,
                          "; the kernel killed %lld process%s of this control group "
                          "for memory: a limit above it, or the host's memory",
                          (long long)kills, kills == 1 ? "" : "es");
    else if (end->host_kills > 0)
        length = snprintf(rest, room,
                          "; the kernel killed %lld process%s for memory on this host "
                          "meanwhile, none in this control group",
                          (long long)end->host_kills, end->host_kills == 1 ? "" : "es");
    else
        length = 0;
    if (end->left > 0 && (size_t)length < room)
        (void)snprintf(rest + length, room - (size_t)length, "; %d of its processes live on",
                       end->left);
}

/* Prints the doctor's verdict on the record in a few lines; nothing if it has none. */
static void print_verdict(const plim_job_t *job, const char *directory)
{
    doctor_t *doctor;
    if (doctor_create(job, &doctor) != PLIM_OK)
        return;
    if (doctor_read_directory(doctor, directory) == PLIM_OK) {
        const doctor_verdict_t *verdict = doctor_verdict(doctor);
        cli_remark("watch: verdict (%s, %s): %s", doctor_cause_name(verdict->cause),
                   doctor_confidence_name(verdict->confidence), verdict->summary);
        if (verdict->cause == DOCTOR_EXIT_CODE && verdict->num_unknown > 0)
            cli_remark("watch: not known %s", verdict->unknown[0]);
        if (verdict->num_changes > 0)
            cli_remark("watch: change first: %s", verdict->change[0].text);
    }
    doctor_destroy(doctor);
}

static void print_end(const plim_job_t *job, const watch_run_t *run, const watch_end_t *end,
                      const char *directory)
{
    char peak[24], used[24], line[24], at[24], text[640];
    cli_remark("watch: the command's processes held at most %s", plim_size_text(end->peak, peak));
    if (end->line > 0 && end->host)
        cli_remark("watch: it had no memory limit of its own; all processes on the host used at "
                   "most %s of %s (%.0f%%)",
                   plim_size_text(end->used, used), plim_size_text(end->line, line),
                   100.0 * (double)end->used / (double)end->line);
    else if (end->line > 0)
        cli_remark("watch: nearest to a limit: %s of %s (%.0f%%, %s) at %s%s%s%s",
                   plim_size_text(end->used, used), plim_size_text(end->line, line),
                   100.0 * (double)end->used / (double)end->line, end->source,
                   cli_time_text(end->at, at), end->phase[0] != '\0' ? " in '" : "", end->phase,
                   end->phase[0] != '\0' ? "'" : "");
    how_it_ended(run, end, text);
    cli_remark("watch: %s", text);
    if (run->status != 0)
        print_verdict(job, directory);
    cli_remark("watch: recorded in %s%s%s", directory,
               run->status != 0 ? "; evidence and more changes: plimsoll doctor " : "",
               run->status != 0 ? directory : "");
}

static void print_json(const watch_run_t *run, const watch_end_t *end, const char *directory,
                       int code)
{
    json_t *object =
        json_pack("{s:o, s:i, s:f, s:I, s:I, s:I, s:i}", "run", cli_json_text(directory),
                  "exit_code", code, "seconds", end->seconds, "peak_bytes", (json_int_t)end->peak,
                  "kills", (json_int_t)end->kills, "host_kills", (json_int_t)end->host_kills,
                  "left_running", end->left);
    if (WIFSIGNALED(run->status))
        (void)json_object_set_new(object, "signal",
                                  json_string(cli_signal_name(WTERMSIG(run->status))));
    if (end->line > 0) {
        (void)json_object_set_new(object, "used_bytes", json_integer(end->used));
        (void)json_object_set_new(object, "line_bytes", json_integer(end->line));
        (void)json_object_set_new(object, "line_source", cli_json_text(end->source));
    }
    cli_print_json(object);
}

/* watch-20261117-092031-1234 */
static void default_directory(char path_out[64])
{
    const time_t now = time(NULL);
    struct tm parts;
    char date[32] = "";
    if (localtime_r(&now, &parts) != NULL)
        (void)strftime(date, sizeof date, "%Y%m%d-%H%M%S", &parts);
    (void)snprintf(path_out, 64, "watch-%s-%d", date, (int)getpid());
}

/* Runs the command under an open watch. Returns its exit code. */
static int run_command(const plim_job_t *job, watch_run_t *run, char **words, const char *directory,
                       pid_t monitor)
{
    watch_end_t end = {0};
    run->command = watch_fork(words, watch_marks(run->watch));
    if (run->command < 0) {
        char message[64];
        (void)snprintf(message, sizeof message, "fork: %s", strerror(errno));
        return cli_failed_with(&run->common, PLIM_ERR_IO, message, NULL);
    }
    const plim_status_t status = watch_begin(run->watch, run->command, words);
    note_failure(run, status);
    const int error = watch_release(run->command);
    if (error == 0 && !run->common.quiet)
        status_line_begin();
    watch_until_end(run, monitor);
    status_line_end();
    note_failure(run, watch_end(run->watch, run->status, &run->usage, &end));
    const int code =
        WIFEXITED(run->status) ? WEXITSTATUS(run->status) : 128 + WTERMSIG(run->status);
    if (error != 0) {
        (void)fputs("plimsoll watch: cannot run ", stderr);
        cli_print_text(stderr, words[0]);
        (void)fprintf(stderr, ": %s\n", strerror(error));
    } else {
        print_end(job, run, &end, directory);
    }
    if (run->common.json)
        print_json(run, &end, directory, code);
    return code;
}

static int run(int argc, char **argv)
{
    static watch_run_t run = {
        .common = {.verb = &cli_verb_watch},
        .options = {.interval = 0.1, .warnings = {0.8, 0.9}, .num_warnings = 2}};
    plim_job_params_t job_params = PLIM_JOB_PARAMS_INIT;
    watch_params_t params = {0};
    plim_job_t *job;
    char directory[64];
    int code;
    char **words = parse(argc, argv, &run, &code);
    if (words == NULL)
        return code;
    default_directory(directory);
    params.directory = run.options.out != NULL ? run.options.out : directory;
    params.memory = run.common.memory;
    params.interval = run.options.interval;
    job_params.plan_only = true; /* the watcher itself stands under no line */
    plim_status_t status = plim_job_create(&job_params, &job);
    if (status != PLIM_OK)
        return cli_failed(&run.common, status);
    cli_progress_begin(run.common.quiet);
    watch_prepare();
    const pid_t monitor = watch_gpus_start();
    params.ignored = monitor;
    status = watch_open(job, &params, &run.watch);
    code = status == PLIM_OK ? run_command(job, &run, words, params.directory, monitor)
                             : cli_program_failed(&run.common, status);
    watch_gpus_end();
    watch_close(run.watch);
    plim_job_release(job);
    return code;
}

const cli_verb_t cli_verb_watch = {
    .name = "watch",
    .summary = "run any command and record its memory until it ends",
    .help = help,
    .groups = groups,
    .operand = ":command",
    .run = run,
};
