/* The job of a verb: limits, signals, progress, and the report at the end. */
#include "cli.h"

#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static plim_job_t *_Atomic current; /* the job that a signal stops; NULL: none runs */
static volatile bool stopped;       /* a signal came */

/* The progress line and log on standard error. */
static struct {
    char phase[64];
    struct timespec phase_began;
    struct timespec last_shown;
    int64_t most_done;
    bool finished; /* the phase has shown its last line */
    bool terminal;
    bool passing;   /* the phase's bar is wiped off the terminal when it is done */
    char extra[48]; /* what else stands at the end of the line */
    bool line_open; /* a progress line without its newline stands on the terminal */
    bool quiet;
} display;

/* Where the time went: phases in the order of their first appearance. */
enum { PHASES_MOST = 16 };
static struct {
    char name[64];
    double seconds;
} phases[PHASES_MOST];
static int num_phases;

static struct timespec job_began;
static plim_meter_t *meter; /* NULL where even it did not fit */
static bool own_group;      /* the control group was made for this job */

/* Launchers send a signal twice (to the process, then to its group): only who presses ^C again
 * after a while does not want to wait. */
static void raise_stop_flag(int signal_number)
{
    static _Atomic int64_t first; /* when ^C was pressed */
    const int64_t patience = 2000000000;
    struct timespec now;
    plim_job_t *job = atomic_load(&current);
    stopped = true;
    if (job != NULL)
        plim_job_stop(job, true);
    if (signal_number != SIGINT || clock_gettime(CLOCK_MONOTONIC, &now) != 0)
        return;
    const int64_t at = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    int64_t before = 0;
    if (!atomic_compare_exchange_strong(&first, &before, at) && at - before > patience) {
        (void)signal(SIGINT, SIG_DFL);
        (void)raise(SIGINT);
    }
}

static void close_line(void)
{
    if (display.line_open)
        (void)fprintf(stderr, "\n");
    display.line_open = false;
}

/* Ends an open line, or wipes it off. */
static void leave_line(void)
{
    if (display.line_open && display.terminal && display.passing) {
        (void)fprintf(stderr, "\r\033[K");
        display.line_open = false;
    }
    close_line();
}

static void print_log(void *user, plim_log_level_t level, const char *message)
{
    (void)user;
    if (display.quiet && level == PLIM_LOG_INFO)
        return;
    leave_line();
    (void)fputs(level == PLIM_LOG_WARNING ? "warning: " : "", stderr);
    cli_print_text(stderr, message);
    (void)fputc('\n', stderr);
}

static double seconds_between(const struct timespec *from, const struct timespec *to)
{
    return (double)(to->tv_sec - from->tv_sec) + (double)(to->tv_nsec - from->tv_nsec) * 1e-9;
}

/* "1.62G" edges, "512 MiB" for bytes. */
static const char *amount_text(double amount, const char *unit, char text_out[24])
{
    return strcmp(unit, "bytes") == 0 ? plim_size_text((int64_t)amount, text_out)
                                      : cli_count_text(amount, text_out);
}

/* "01:02" or "1:02:03". */
static const char *time_text(double seconds, char text_out[24])
{
    long long whole = seconds < 1e9 ? (long long)(seconds + 0.5) : 999999999;
    if (whole >= 3600)
        (void)snprintf(text_out, 24, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60,
                       whole % 60);
    else
        (void)snprintf(text_out, 24, "%02lld:%02lld", whole / 60, whole % 60);
    return text_out;
}

static void draw(const plim_progress_t *progress, double seconds)
{
    char done[24], total[24], rate[24], elapsed[24], left[24];
    char bar[21] = "                    ";
    const char *unit = strcmp(progress->unit, "bytes") == 0 ? "" : progress->unit;
    double speed = seconds > 0 ? (double)progress->done / seconds : 0;
    (void)amount_text((double)progress->done, progress->unit, done);
    (void)amount_text(speed, progress->unit, rate);
    if (speed < 100 && unit[0] != '\0')
        (void)snprintf(rate, sizeof rate, "%.2f", speed);
    (void)time_text(seconds, elapsed);
    (void)fprintf(stderr, "%s%s: ", display.terminal ? "\r\033[K" : "", progress->phase);
    if (progress->total > 0) {
        double share = (double)progress->done / (double)progress->total;
        for (int i = 0; i < (int)(share * 20 + 0.5) && i < 20; i++)
            bar[i] = '#';
        double rest = (double)(progress->total - progress->done);
        (void)fprintf(stderr, "%3.0f%%|%s| %s/%s %s%s[%s<%s, ", share * 100, bar, done,
                      amount_text((double)progress->total, progress->unit, total), unit,
                      unit[0] != '\0' ? " " : "", elapsed,
                      speed > 0 ? time_text(rest / speed, left) : "?");
    } else {
        (void)fprintf(stderr, "%s %s%s[%s, ", done, unit, unit[0] != '\0' ? " " : "", elapsed);
    }
    (void)fprintf(stderr, "%s%s%s/s%s]", rate, unit[0] != '\0' ? " " : "", unit, display.extra);
}

/* Charges the time since the phase began to it; a phase that comes back goes on. */
static void end_phase(const struct timespec *now)
{
    int i = 0;
    while (i < num_phases && strcmp(phases[i].name, display.phase) != 0)
        i++;
    if (display.phase[0] == '\0' || i == PHASES_MOST)
        return;
    if (i == num_phases) {
        (void)snprintf(phases[i].name, sizeof phases[i].name, "%s", display.phase);
        phases[i].seconds = 0;
        num_phases++;
    }
    phases[i].seconds += seconds_between(&display.phase_began, now);
}

static void show(void *user, const plim_progress_t *progress)
{
    struct timespec now;
    (void)user;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    const bool again = display.finished && progress->done == 0;
    if (again || strcmp(display.phase, progress->phase) != 0) {
        leave_line();
        end_phase(&now);
        display.passing = false;
        display.extra[0] = '\0';
        (void)snprintf(display.phase, sizeof display.phase, "%s", progress->phase);
        display.phase_began = now;
        display.last_shown = now;
        display.finished = false;
        display.most_done = 0;
    }
    /* Threads may speak out of order; the farthest one is right. */
    if (progress->done < display.most_done)
        return;
    display.most_done = progress->done;
    bool finished = progress->total > 0 && progress->done >= progress->total;
    double since = seconds_between(&display.last_shown, &now);
    if (display.quiet || display.finished || (display.passing && finished) ||
        (!finished && since < (display.terminal ? 0.2 : 15)))
        return;
    display.last_shown = now;
    draw(progress, seconds_between(&display.phase_began, &now));
    display.finished = finished;
    display.line_open = true;
    if (!display.terminal || finished)
        close_line();
}

void cli_show_passing(const plim_progress_t *progress, const char *extra)
{
    if (strcmp(display.phase, progress->phase) != 0 || progress->done < display.most_done) {
        const plim_progress_t start = {progress->phase, progress->unit, 0, progress->total};
        cli_leave_phase();
        show(NULL, &start);
    }
    display.passing = true;
    (void)snprintf(display.extra, sizeof display.extra, "%s", extra);
    show(NULL, progress);
    if (progress->done >= progress->total)
        leave_line();
}

void cli_leave_phase(void)
{
    struct timespec now;
    leave_line();
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    end_phase(&now);
    display.phase[0] = '\0';
}

static void print_formatted(plim_log_level_t level, const char *format, va_list arguments)
{
    char message[1280];
    (void)vsnprintf(message, sizeof message, format, arguments);
    print_log(NULL, level, message);
}

void cli_remark(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_formatted(PLIM_LOG_INFO, format, arguments);
    va_end(arguments);
}

void cli_warn(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_formatted(PLIM_LOG_WARNING, format, arguments);
    va_end(arguments);
}

/*
 * A group's peak is that of all its processes since it was made. It tells of this job when nothing
 * of size ran there before; in the group of a login session it would blame the job for the browser.
 */
#define OWN_GROUP_BYTES ((int64_t)64 << 20)

static void start_meter(const plim_job_t *job)
{
    plim_sample_t sample = PLIM_SAMPLE_INIT;
    own_group = false;
    if (plim_meter_open(job, &meter) != PLIM_OK) {
        meter = NULL;
        return;
    }
    (void)plim_meter_read(meter, &sample);
    own_group = sample.group_peak_bytes >= 0 &&
                sample.group_peak_bytes - sample.rss_bytes <= OWN_GROUP_BYTES;
}

static char line_source[sizeof((plim_limit_t *)0)->source]; /* which limit the line follows from */

void cli_print_line_hint(void)
{
    const char *hint = cli_limit_hint(line_source);
    if (hint == NULL || strcmp(line_source, "--memory") == 0)
        return;
    (void)fputs("plimsoll: the line comes from ", stderr);
    cli_print_text(stderr, line_source); /* a control group may be called anything */
    (void)fprintf(stderr, "; %s\n", hint);
}

static void print_line(const cli_common_t *common, const plim_limits_t *limits)
{
    char text[24];
    const plim_limit_t *line = &limits->memory[limits->line];
    memcpy(line_source, line->source, sizeof line_source);
    cli_remark("memory line: %s from %s; %lld threads from %s", plim_size_text(line->value, text),
               line->source, (long long)limits->threads[limits->threads_line].value,
               limits->threads[limits->threads_line].source);
    if (common->memory > line->value)
        cli_warn("--memory is above another limit: the line is %s from %s", text, line->source);
    if (limits->login_node)
        cli_warn("this looks like a login node (%s); submit long work as a job (sbatch, srun)",
                 limits->login_why);
}

plim_status_t cli_job_start_under(const cli_common_t *common, const plim_limits_t *limits,
                                  int64_t line, bool plan_only, bool silent, plim_job_t **job_out)
{
    plim_job_params_t params = PLIM_JOB_PARAMS_INIT;
    plim_job_t *job;
    params.line = line;
    params.threads = (int)limits->threads[limits->threads_line].value;
    params.io_engine = common->io_engine;
    params.plan_only = plan_only;
    params.log = silent ? NULL : print_log;
    params.progress = show;
    plim_status_t status = plim_job_create(&params, &job);
    if (status != PLIM_OK)
        return status;
    start_meter(job);
    (void)clock_gettime(CLOCK_MONOTONIC, &job_began);
    display.terminal = isatty(STDERR_FILENO) == 1;
    display.quiet = common->quiet;
    atomic_store(&current, job);
    if (stopped) /* while a job before this one ran */
        plim_job_stop(job, true);
    struct sigaction action = {.sa_handler = raise_stop_flag};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGUSR1, &action, NULL); /* what Slurm is often told to send before the end */
    *job_out = job;
    return PLIM_OK;
}

plim_status_t cli_find_limits(const cli_common_t *common, plim_limits_t *limits_out)
{
    plim_limit_options_t options = PLIM_LIMIT_OPTIONS_INIT;
    options.memory = common->memory;
    options.threads = common->threads;
    limits_out->size = sizeof *limits_out;
    return plim_limits_discover(&options, limits_out);
}

plim_status_t cli_job_start(const cli_common_t *common, plim_job_t **job_out)
{
    static plim_limits_t limits;
    plim_status_t status = cli_find_limits(common, &limits);
    if (status != PLIM_OK)
        return status;
    status = cli_job_start_under(common, &limits, limits.memory[limits.line].value, false, false,
                                 job_out);
    print_line(common, &limits); /* also where the process alone does not fit */
    return status;
}

void cli_job_end(plim_job_t *job)
{
    leave_line();
    plim_meter_close(meter);
    meter = NULL;
    atomic_store(&current, NULL);
    plim_job_release(job);
}

static void add_bytes(json_t *object, const char *name, int64_t bytes)
{
    if (object != NULL && bytes >= 0 && bytes != PLIM_LINE_NONE)
        (void)json_object_set_new(object, name, json_integer(bytes));
}

static void add_phases(json_t *object, const struct timespec *now)
{
    json_t *array = json_array();
    end_phase(now);
    display.phase[0] = '\0';
    for (int i = 0; i < num_phases; i++)
        (void)json_array_append_new(
            array, json_pack("{s:s, s:f}", "phase", phases[i].name, "seconds", phases[i].seconds));
    (void)json_object_set_new(object, "phases", array);
}

/* What each account had reserved at most, and what of it was really in memory. */
static void add_accounts(json_t *object, const plim_job_t *job)
{
    plim_account_info_t info = PLIM_ACCOUNT_INFO_INIT;
    json_t *array = json_array();
    for (int i = 0; plim_job_account(job, i, &info); i++)
        (void)json_array_append_new(array, json_pack("{s:s, s:I, s:I}", "name", info.name,
                                                     "reserved_bytes", (json_int_t)info.peak,
                                                     "touched_bytes", (json_int_t)info.touched));
    (void)json_object_set_new(object, "accounts", array);
}

void cli_job_report(plim_job_t *job, json_t *object)
{
    struct timespec now;
    plim_sample_t sample = PLIM_SAMPLE_INIT;
    char peak[24], line[24], cache[24], dirty[24], elapsed[24];
    char message[256];
    if (meter == NULL)
        return;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    double seconds = seconds_between(&job_began, &now);
    (void)plim_meter_read(meter, &sample);
    int64_t peak_bytes = own_group ? sample.group_peak_bytes : sample.rss_peak_bytes;
    int used =
        snprintf(message, sizeof message, "took %s; peak %s of %s (%s", time_text(seconds, elapsed),
                 plim_size_text(peak_bytes, peak), plim_size_text(plim_job_line(job), line),
                 own_group ? "the control group's" : "resident");
    if (own_group && sample.group_cache_bytes >= 0 && sample.group_dirty_bytes >= 0)
        used += snprintf(message + used, sizeof message - (size_t)used, "; page cache %s, dirty %s",
                         plim_size_text(sample.group_cache_bytes, cache),
                         plim_size_text(sample.group_dirty_bytes, dirty));
    (void)snprintf(message + used, sizeof message - (size_t)used, ")");
    print_log(NULL, PLIM_LOG_INFO, message);
    if (object != NULL) {
        (void)json_object_set_new(object, "seconds", json_real(seconds));
        add_phases(object, &now);
        add_accounts(object, job);
    }
    add_bytes(object, "line_bytes", plim_job_line(job));
    add_bytes(object, "reserved_peak_bytes", plim_job_peak(job));
    add_bytes(object, "peak_bytes", peak_bytes);
    add_bytes(object, "rss_peak_bytes", sample.rss_peak_bytes);
    add_bytes(object, "group_peak_bytes", sample.group_peak_bytes);
    add_bytes(object, "group_cache_bytes", sample.group_cache_bytes);
    add_bytes(object, "group_dirty_bytes", sample.group_dirty_bytes);
}
