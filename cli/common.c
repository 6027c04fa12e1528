/* Options, messages and the job that every verb starts with. */
#include "cli.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile int stop_flag;

static const char common_help[] =
    "\nCommon options:\n"
    "  --memory SIZE    the memory line (4G, 300M); default: the smallest limit found\n"
    "  --threads N      threads; default: what the job has\n"
    "  --io ENGINE      auto, uring or threads\n"
    "  --json           one JSON object a line on standard output, nothing else there\n"
    "  --quiet          no progress\n"
    "  -h, --help       this text\n";

/* PyG's and OGB's spellings: --batch_size is --batch-size. */
static void dashes_for_underscores(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strncmp(argv[i], "--", 2) == 0)
            for (char *c = argv[i]; *c != '\0' && *c != '='; c++)
                if (*c == '_')
                    *c = '-';
}

static bool take_common(int code, cli_common_t *common, int *exit_out)
{
    int64_t value;
    switch (code) {
    case CLI_OPTION_COMMON + 0:
        if (plim_size_parse(optarg, &common->memory) != PLIM_OK || common->memory == 0) {
            *exit_out =
                cli_wrong_use(common, "--memory: '%s' is not a size; write it like 4G", optarg);
            return false;
        }
        return true;
    case CLI_OPTION_COMMON + 1:
        if (!cli_parse_int(common, "--threads", optarg, 1, 1024, &value)) {
            *exit_out = CLI_WRONG_USE;
            return false;
        }
        common->threads = (int)value;
        return true;
    case CLI_OPTION_COMMON + 2:
        if (strcmp(optarg, "auto") == 0)
            common->io_engine = PLIM_IO_AUTO;
        else if (strcmp(optarg, "uring") == 0)
            common->io_engine = PLIM_IO_URING;
        else if (strcmp(optarg, "threads") == 0)
            common->io_engine = PLIM_IO_THREADS;
        else {
            *exit_out = cli_wrong_use(common, "--io is auto, uring or threads, not '%s'", optarg);
            return false;
        }
        return true;
    case CLI_OPTION_COMMON + 3:
        common->json = true;
        return true;
    case CLI_OPTION_COMMON + 4:
        common->quiet = true;
        return true;
    default:
        return true;
    }
}

int cli_next_option(int argc, char **argv, const struct option *options, cli_common_t *common,
                    int *exit_out)
{
    if (optind == 1)
        dashes_for_underscores(argc, argv);
    opterr = 0;
    for (;;) {
        int before = optind;
        int code = getopt_long(argc, argv, ":h", options, NULL);
        if (code == 'h') {
            (void)printf("%s%s", common->verb->help, common_help);
            *exit_out = CLI_DONE;
            return -2;
        }
        if (code == ':' || code == '?') {
            *exit_out = cli_wrong_use(common, code == ':' ? "%s needs a value" : "what is %s?",
                                      argv[before < argc ? before : argc - 1]);
            return -2;
        }
        if (code < CLI_OPTION_COMMON || code >= CLI_OPTION_OWN)
            return code;
        if (!take_common(code, common, exit_out))
            return -2;
    }
}

bool cli_parse_int(const cli_common_t *common, const char *option, const char *text, int64_t least,
                   int64_t most, int64_t *value_out)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < least || value > most) {
        (void)cli_wrong_use(common, "%s: '%s' is not a whole number from %lld to %lld", option,
                            text, (long long)least, (long long)most);
        return false;
    }
    *value_out = value;
    return true;
}

int cli_wrong_use(const cli_common_t *common, const char *format, ...)
{
    va_list arguments;
    (void)fprintf(stderr, "plimsoll %s: ", common->verb->name);
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fprintf(stderr, "\nTry 'plimsoll %s --help'.\n", common->verb->name);
    return CLI_WRONG_USE;
}

int cli_failed(const cli_common_t *common, plim_status_t status)
{
    int code = CLI_FAILED;
    if (status == PLIM_ERR_BUDGET || status == PLIM_ERR_SPACE)
        code = CLI_DOES_NOT_FIT;
    else if (status == PLIM_ERR_DATA)
        code = CLI_BAD_DATA;
    else if (status == PLIM_ERR_USAGE)
        code = CLI_WRONG_USE;
    (void)fprintf(stderr, "plimsoll %s: %s\n", common->verb->name, plim_last_error());
    if (common->json) {
        json_t *line = json_pack("{s:s, s:s, s:i}", "error", plim_last_error(), "status",
                                 plim_status_name(status), "exit", code);
        (void)json_dumpf(line, stdout, JSON_COMPACT);
        (void)printf("\n");
        json_decref(line);
    }
    return code;
}

static void raise_stop_flag(int signal_number)
{
    (void)signal_number;
    stop_flag = 1;
}

/* What the progress line needs between calls. */
typedef struct speech {
    char phase[64];
    struct timespec phase_began;
    struct timespec last_shown;
    bool terminal;
    bool line_open; /* a progress line without its newline stands on the terminal */
    bool quiet;
} speech_t;

static speech_t speech;

static void close_line(void)
{
    if (speech.line_open)
        (void)fprintf(stderr, "\n");
    speech.line_open = false;
}

static void say(void *user, plim_log_level_t level, const char *message)
{
    (void)user;
    if (speech.quiet && level == PLIM_LOG_INFO)
        return;
    close_line();
    (void)fprintf(stderr, "%s%s\n", level == PLIM_LOG_WARNING ? "warning: " : "", message);
}

static double seconds_between(const struct timespec *from, const struct timespec *to)
{
    return (double)(to->tv_sec - from->tv_sec) + (double)(to->tv_nsec - from->tv_nsec) * 1e-9;
}

static void show(void *user, const plim_progress_t *progress)
{
    struct timespec now;
    (void)user;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    if (strcmp(speech.phase, progress->phase) != 0) {
        close_line();
        (void)snprintf(speech.phase, sizeof speech.phase, "%s", progress->phase);
        speech.phase_began = now;
        speech.last_shown = now;
    }
    bool finished = progress->total > 0 && progress->done >= progress->total;
    double since = seconds_between(&speech.last_shown, &now);
    if (speech.quiet || (!finished && since < (speech.terminal ? 0.2 : 15)))
        return;
    speech.last_shown = now;
    double seconds = seconds_between(&speech.phase_began, &now);
    double rate = seconds > 0 ? (double)progress->done / seconds : 0;
    char bar[21] = "--------------------";
    if (progress->total > 0) {
        double share = (double)progress->done / (double)progress->total;
        for (int i = 0; i < (int)(share * 20 + 0.5) && i < 20; i++)
            bar[i] = '#';
        (void)fprintf(stderr, "%s%s: %3.0f%%|%s| %lld/%lld %s [%.0fs, %.3g %s/s]",
                      speech.terminal ? "\r\033[K" : "", progress->phase, share * 100, bar,
                      (long long)progress->done, (long long)progress->total, progress->unit,
                      seconds, rate, progress->unit);
    } else {
        (void)fprintf(stderr, "%s%s: %lld %s [%.0fs, %.3g %s/s]", speech.terminal ? "\r\033[K" : "",
                      progress->phase, (long long)progress->done, progress->unit, seconds, rate,
                      progress->unit);
    }
    speech.line_open = true;
    if (!speech.terminal || finished)
        close_line();
    (void)fflush(stderr);
}

plim_status_t cli_job_start(const cli_common_t *common, plim_job_t *job_out,
                            plim_limits_t *limits_out)
{
    plim_limit_options_t options = {common->memory, common->threads, NULL, NULL};
    plim_job_t job = PLIM_JOB_INIT;
    plim_status_t status = plim_limits_discover(&options, limits_out);
    if (status != PLIM_OK)
        return status;
    status = plim_ledger_create(limits_out->memory[limits_out->line].value, &job.ledger);
    if (status != PLIM_OK)
        return status;
    job.threads = (int)limits_out->threads[limits_out->threads_line].value;
    job.io_engine = common->io_engine;
    speech.terminal = isatty(STDERR_FILENO) == 1;
    speech.quiet = common->quiet;
    job.log = say;
    job.progress = show;
    job.stop = &stop_flag;
    struct sigaction action = {.sa_handler = raise_stop_flag, .sa_flags = (int)SA_RESETHAND};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    *job_out = job;
    return PLIM_OK;
}

void cli_job_end(plim_job_t *job)
{
    close_line();
    plim_ledger_destroy(job->ledger);
    job->ledger = NULL;
}
