/* The job of a verb: limits, signals, and the report at the end. */
#include "base/clock.h"
#include "base/fail.h"
#include "base/printable.h"
#include "command/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static plim_job_t *_Atomic current; /* the job that a signal stops; NULL: no job */
static volatile bool stopped;       /* a signal has arrived */

static plim_meter_t *meter; /* NULL if it did not fit */
static bool own_group;      /* the control group was made for this job */

/* Launchers send a signal twice (to the process, then to its group). Only a second ^C after a while
 * ends the process at once. */
static void raise_stop_flag(int signal_number)
{
    static _Atomic int64_t first; /* time of the first ^C */
    const int64_t patience = 2000000000;
    plim_job_t *job = atomic_load(&current);
    stopped = true;
    if (job != NULL)
        plim_job_stop(job, true);
    if (signal_number != SIGINT)
        return;
    const int64_t at = plim__clock_ns();
    int64_t before = 0;
    if (!atomic_compare_exchange_strong(&first, &before, at) && at - before > patience) {
        (void)signal(SIGINT, SIG_DFL);
        (void)raise(SIGINT);
    }
}

/*
 * A group's peak counts all its processes since it was made. It describes this job only if little
 * memory was used there before; in the group of a login session it would include the browser.
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

static char line_source[sizeof((plim_limit_t *)0)->source]; /* source of the line */

void cli_print_line_hint(void)
{
    const char *hint = cli_limit_hint(line_source);
    if (hint == NULL || strcmp(line_source, "--memory") == 0)
        return;
    (void)fprintf(stderr, "plimsoll: the line comes from %s; %s\n", line_source, hint);
}

static void print_line(const cli_common_t *common, const plim_limits_t *limits)
{
    char text[24];
    const plim_limit_t *line = &limits->memory[limits->line];
    memcpy(line_source, line->source, sizeof line_source);
    const plim_limit_t *threads = &limits->threads[limits->threads_line];
    cli_remark("memory line: %s from %s; %lld thread%s from %s", plim_size_text(line->value, text),
               line->source, (long long)threads->value, threads->value == 1 ? "" : "s",
               threads->source);
    if (common->threads > threads->value)
        cli_warn("--threads %d is above another limit: %lld thread%s from %s", common->threads,
                 (long long)threads->value, threads->value == 1 ? "" : "s", threads->source);
    if (common->memory > line->value)
        cli_warn("--memory is above another limit: the line is %s from %s", text, line->source);
    if (limits->login_node)
        cli_warn("this looks like a login node (%s); submit long work as a job (sbatch, srun)",
                 limits->login_why);
}

plim_status_t cli_check_stopped(void)
{
    return stopped ? plim__fail(PLIM_ERR_STOPPED, "stopped on request") : PLIM_OK;
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
    params.log = silent ? NULL : cli_log;
    params.progress = cli_progress;
    params.transport = common->transport != NULL ? common->transport : cli_ranks();
    plim_status_t status = plim_job_create(&params, &job);
    if (status != PLIM_OK)
        return status;
    start_meter(job);
    cli_progress_begin(common->quiet);
    atomic_store(&current, job);
    if (stopped) /* arrived during an earlier job */
        plim_job_stop(job, true);
    struct sigaction action = {.sa_handler = raise_stop_flag};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGUSR1, &action, NULL); /* Slurm can send it before the end */
    *job_out = job;
    return PLIM_OK;
}

/* Names the source of a limit as an option (--memory), and makes it printable: a control group may
 * have any name. */
static void in_options(plim_limit_t *limit)
{
    char text[CLI_MESSAGE_MAX];
    (void)cli_message_text(limit->source, text);
    plim__text_printable(text, strlen(text), limit->source, sizeof limit->source);
}

plim_status_t cli_find_limits(const cli_common_t *common, plim_limits_t *limits_out)
{
    plim_limit_options_t options = PLIM_LIMIT_OPTIONS_INIT;
    options.memory = common->memory;
    options.threads = common->threads;
    options.local_ranks = cli_ranks() != NULL ? cli_ranks()->local_ranks : 0;
    options.cpu_ranks = cli_ranks_on_cpus();
    limits_out->size = sizeof *limits_out;
    const plim_status_t status = plim_limits_discover(&options, limits_out);
    for (int i = 0; status == PLIM_OK && i < limits_out->num_memory; i++)
        in_options(&limits_out->memory[i]);
    for (int i = 0; status == PLIM_OK && i < limits_out->num_threads; i++)
        in_options(&limits_out->threads[i]);
    return status;
}

plim_status_t cli_job_start(const cli_common_t *common, plim_job_t **job_out)
{
    static plim_limits_t limits;
    plim_status_t status = cli_find_limits(common, &limits);
    if (status != PLIM_OK)
        return status;
    status = cli_job_start_under(common, &limits, limits.memory[limits.line].value, false, false,
                                 job_out);
    print_line(common, &limits); /* also if the process alone does not fit */
    return status;
}

plim_status_t cli_job_start_silent(const cli_common_t *common, bool plan_only, plim_job_t **job_out)
{
    static plim_limits_t limits;
    const plim_status_t status = cli_find_limits(common, &limits);
    if (status != PLIM_OK)
        return status;
    return cli_job_start_under(common, &limits, limits.memory[limits.line].value, plan_only, true,
                               job_out);
}

void cli_job_end(plim_job_t *job)
{
    cli_leave_phase();
    plim_meter_close(meter);
    meter = NULL;
    atomic_store(&current, NULL);
    plim_job_release(job);
}

int cli_job_finish(const cli_common_t *common, plim_job_t *job, int exit_code, plim_status_t status)
{
    cli_job_end(job);
    if (exit_code != CLI_DONE)
        return exit_code;
    if (!cli_ranks_speaks()) /* cli_ranks_leave prints an error that is this rank's alone */
        return cli_exit_code(status);
    return status == PLIM_OK ? CLI_DONE : cli_failed(common, status);
}

static void add_bytes(json_t *object, const char *name, int64_t bytes)
{
    if (object != NULL && bytes >= 0 && bytes != PLIM_LINE_NONE)
        (void)json_object_set_new(object, name, json_integer(bytes));
}

static void add_phases(json_t *object)
{
    json_t *array = json_array();
    const char *name;
    double seconds;
    for (int i = 0; cli_phase(i, &name, &seconds); i++)
        (void)json_array_append_new(array,
                                    json_pack("{s:s, s:f}", "phase", name, "seconds", seconds));
    (void)json_object_set_new(object, "phases", array);
}

/* Adds the reserved peak and the resident bytes of each account. */
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
    plim_sample_t sample = PLIM_SAMPLE_INIT;
    plim_job_info_t about = PLIM_JOB_INFO_INIT;
    char peak[24], line[24], cache[24], dirty[24], elapsed[24];
    char message[256];
    if (meter == NULL)
        return;
    cli_leave_phase();
    const double seconds = cli_job_seconds();
    (void)plim_meter_read(meter, &sample);
    (void)plim_job_info(job, &about);
    int64_t peak_bytes = own_group ? sample.group_peak_bytes : sample.rss_peak_bytes;
    int used =
        snprintf(message, sizeof message, "took %s; peak %s of %s (%s",
                 cli_time_text(seconds, elapsed), plim_size_text(peak_bytes, peak),
                 plim_size_text(about.line, line), own_group ? "the control group's" : "resident");
    if (own_group && sample.group_cache_bytes >= 0 && sample.group_dirty_bytes >= 0)
        used += snprintf(message + used, sizeof message - (size_t)used, "; page cache %s, dirty %s",
                         plim_size_text(sample.group_cache_bytes, cache),
                         plim_size_text(sample.group_dirty_bytes, dirty));
    (void)snprintf(message + used, sizeof message - (size_t)used, ")");
    cli_log(NULL, PLIM_LOG_INFO, message);
    if (object != NULL) {
        (void)json_object_set_new(object, "seconds", json_real(seconds));
        add_phases(object);
        add_accounts(object, job);
    }
    add_bytes(object, "line_bytes", about.line);
    add_bytes(object, "reserved_peak_bytes", about.peak);
    add_bytes(object, "peak_bytes", peak_bytes);
    add_bytes(object, "rss_peak_bytes", sample.rss_peak_bytes);
    add_bytes(object, "group_peak_bytes", sample.group_peak_bytes);
    add_bytes(object, "group_cache_bytes", sample.group_cache_bytes);
    add_bytes(object, "group_dirty_bytes", sample.group_dirty_bytes);
}

/* What to type instead of a path that is no dataset. */
static void suggest_dataset(const char *path)
{
    char manifest[PLIM_PATH_MAX + 16], run[PLIM_PATH_MAX + 16];
    struct stat about;
    (void)snprintf(manifest, sizeof manifest, "%s/dataset.json", path);
    (void)snprintf(run, sizeof run, "%s/run.json", path);
    if (stat(path, &about) != 0)
        cli_remedy("Make one with plimsoll import or plimsoll generate");
    else if (S_ISREG(about.st_mode) || (access(manifest, F_OK) != 0 && access(run, F_OK) != 0))
        cli_remedy("Make a dataset of it with: plimsoll import %s DIR", path);
}

bool cli_mark(const char *path, const char *line)
{
    struct stat about;
    /* Never made here: a watch that has ended takes no marks. Others may have put a link to a file
     * of this user in its place. */
    const int file = open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return false;
    errno = EINVAL;
    const bool written = fstat(file, &about) == 0 && S_ISREG(about.st_mode) &&
                         about.st_nlink == 1 &&
                         write(file, line, strlen(line)) == (ssize_t)strlen(line);
    const int error = errno;
    (void)close(file);
    errno = error;
    return written;
}

plim_status_t cli_open_dataset(const plim_job_t *job, const char *path, const char *stage,
                               plim_dataset_t **dataset_out)
{
    char copy[PLIM_PATH_MAX];
    plim_dataset_t *dataset;
    const char *marks = getenv("PLIMSOLL_WATCH");
    if (marks != NULL)
        (void)cli_mark(marks, "plimsoll: dataset\n");
    plim_status_t status = plim_dataset_open(job, path, &dataset);
    if (status == PLIM_ERR_USAGE)
        suggest_dataset(path);
    if (status == PLIM_ERR_BUDGET)
        cli_remedy("That only opens it; plimsoll plan %s names what a training needs", path);
    if (status == PLIM_OK && stage == NULL)
        *dataset_out = dataset;
    if (status != PLIM_OK || stage == NULL)
        return status;
    status = plim_dataset_stage(job, dataset, stage, copy);
    if (status == PLIM_OK)
        status = plim_dataset_open_copy(job, dataset, copy, dataset_out);
    if (status == PLIM_ERR_SPACE)
        cli_remedy("Without --stage only packed rows are kept there");
    plim_dataset_release(dataset);
    return status;
}
