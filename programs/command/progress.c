/*
 * Progress on standard error, as tqdm shows it, and the log lines between.
 *
 * On a terminal a phase has a bar, and its finished line stays. While the bar is drawn, the cursor
 * waits at its beginning: a terminal that becomes narrower wraps the bar below the cursor, so
 * erasing from there on erases all of it. In a file a phase writes a line when it ends for the
 * first time, or after a line before its end; all other lines wait for a minute after the last one.
 */
#include "base/clock.h"
#include "command/cli.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ERASE "\r\033[J"
#define LINE_MAX_CHARS 250
#define BAR_MIN 4
#define BAR_MAX 40      /* on a terminal */
#define BAR_IN_FILES 10 /* as tqdm's */
#define WHOLE_MAX 10000000
#define PHASES_MAX 16

static const double terminal_seconds = 0.2; /* between two drawings of a bar */
static const double file_seconds = 60;

static struct {
    bool terminal;
    bool quiet;
    bool bar_open; /* a bar is on the terminal, the cursor at its beginning */
    double began;  /* the job */
    double line;   /* the last line or drawing */
    double event;  /* the last event of a phase, or its end */
} display;

/* The phase; its name is "" between two phases. */
static struct {
    char name[64], unit[16];
    int64_t first, done, total;
    double loss; /* NAN: none */
    double began;
    bool shown; /* a line before its end is written */
    bool ended; /* its last line is written */
} phase;

/* Seconds of each phase, in the order of their first appearance. */
static struct {
    char name[64];
    double seconds;
} phases[PHASES_MAX];
static int num_phases;

static double clock_now(void)
{
    return plim__clock_seconds(CLOCK_MONOTONIC);
}

void cli_progress_begin(bool quiet)
{
    const char *kind = getenv("TERM");
    display.terminal =
        isatty(STDERR_FILENO) == 1 && kind != NULL && kind[0] != '\0' && strcmp(kind, "dumb") != 0;
    display.quiet = quiet;
    display.began = display.line = display.event = clock_now();
}

double cli_job_seconds(void)
{
    return clock_now() - display.began;
}

void cli_clear_bar(void)
{
    if (display.bar_open)
        (void)fputs(ERASE, stderr);
    display.bar_open = false;
}

void cli_log(void *user, plim_log_level_t level, const char *message)
{
    char text[CLI_MESSAGE_MAX];
    (void)user;
    if ((display.quiet && level == PLIM_LOG_INFO) || !cli_ranks_speaks())
        return;
    cli_clear_bar();
    (void)fputs(level == PLIM_LOG_WARNING ? "warning: " : "", stderr);
    cli_print_text(stderr, cli_message_text(message, text));
    (void)fputc('\n', stderr);
}

static void log_formatted(plim_log_level_t level, const char *format, va_list arguments)
{
    char message[1280];
    (void)vsnprintf(message, sizeof message, format, arguments);
    cli_log(NULL, level, message);
}

void cli_remark(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    log_formatted(PLIM_LOG_INFO, format, arguments);
    va_end(arguments);
}

void cli_warn(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    log_formatted(PLIM_LOG_WARNING, format, arguments);
    va_end(arguments);
}

const char *cli_time_text(double seconds, char text_out[24])
{
    long long whole = seconds < 1e9 ? (long long)(seconds + 0.5) : 999999999;
    if (whole >= 3600)
        (void)snprintf(text_out, 24, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60,
                       whole % 60);
    else
        (void)snprintf(text_out, 24, "%02lld:%02lld", whole / 60, whole % 60);
    return text_out;
}

static bool counts_bytes(void)
{
    return strcmp(phase.unit, "bytes") == 0;
}

/* "5290", "1.62G" from ten millions on, "512 MiB". */
static const char *amount_text(int64_t amount, char text_out[24])
{
    if (counts_bytes())
        return plim_size_text(amount, text_out);
    if (amount >= WHOLE_MAX)
        return cli_count_text((double)amount, text_out);
    (void)snprintf(text_out, 24, "%lld", (long long)amount);
    return text_out;
}

/* "61.70it/s", "1.25s/it", "3.20Medges/s", "512 MiB/s". */
static void rate_text(double rate, char text_out[48])
{
    char amount[24];
    if (rate <= 0)
        (void)snprintf(text_out, 48, "?%s/s", counts_bytes() ? "B" : phase.unit);
    else if (counts_bytes())
        (void)snprintf(text_out, 48, "%s/s", plim_size_text((int64_t)rate, amount));
    else if (rate < 1)
        (void)snprintf(text_out, 48, "%.2fs/%s", 1 / rate, phase.unit);
    else if (rate < 100000)
        (void)snprintf(text_out, 48, "%.2f%s/s", rate, phase.unit);
    else
        (void)snprintf(text_out, 48, "%s%s/s", cli_count_text(rate, amount), phase.unit);
}

/* Columns that a line may have: one less than the terminal, whose last one would wrap. */
static int columns(void)
{
    struct winsize size = {0};
    if (!display.terminal)
        return 120;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return 79;
    return size.ws_col <= LINE_MAX_CHARS ? size.ws_col - 1 : LINE_MAX_CHARS - 1;
}

/*
 * "Training:  56%|#####     | 5290/9432 [01:25<01:07, 61.70it/s, loss=1.68]". A narrow terminal
 * loses the bar, then the times; then the line is cut.
 */
static void compose(double seconds, int width, char line_out[LINE_MAX_CHARS])
{
    char done[24], total[24], elapsed[24], left[24], rate[48], loss[32] = "";
    char counts[64], times[64], tail[192], bar[BAR_MAX + 1] = "";
    const double speed = seconds > 0 ? (double)(phase.done - phase.first) / seconds : 0;
    const double share = phase.total > 0 ? (double)phase.done / (double)phase.total : 0;
    const double rest = (double)(phase.total - phase.done);
    rate_text(speed, rate);
    (void)cli_time_text(seconds, elapsed);
    if (!isnan(phase.loss))
        (void)snprintf(loss, sizeof loss, ", loss=%.3g", phase.loss);
    if (phase.total > 0) {
        (void)snprintf(counts, sizeof counts, "%s/%s", amount_text(phase.done, done),
                       amount_text(phase.total, total));
        (void)snprintf(times, sizeof times, "%s<%s, ", elapsed,
                       rest <= 0   ? "00:00"
                       : speed > 0 ? cli_time_text(rest / speed, left)
                                   : "?");
    } else {
        (void)snprintf(counts, sizeof counts, "%s%s", amount_text(phase.done, done),
                       counts_bytes() ? "" : phase.unit);
        (void)snprintf(times, sizeof times, "%s, ", elapsed);
    }
    (void)snprintf(tail, sizeof tail, "%s [%s%s%s]", counts, times, rate, loss);
    const int head = (int)strlen(phase.name) + 2 + (phase.total > 0 ? 4 : 0);
    int bar_width = width - head - 3 - (int)strlen(tail);
    if (bar_width > (display.terminal ? BAR_MAX : BAR_IN_FILES))
        bar_width = display.terminal ? BAR_MAX : BAR_IN_FILES;
    if (phase.total > 0 && bar_width >= BAR_MIN) {
        memset(bar, ' ', (size_t)bar_width);
        memset(bar, '#', (size_t)((share < 1 ? share : 1) * bar_width));
        (void)snprintf(line_out, LINE_MAX_CHARS, "%s: %3.0f%%|%s| %s", phase.name, share * 100, bar,
                       tail);
        return;
    }
    if (head + 1 + (int)strlen(tail) > width)
        (void)snprintf(tail, sizeof tail, "%s [%s%s]", counts, rate, loss);
    if (phase.total > 0)
        (void)snprintf(line_out, LINE_MAX_CHARS, "%s: %3.0f%% %s", phase.name, share * 100, tail);
    else
        (void)snprintf(line_out, LINE_MAX_CHARS, "%s: %s", phase.name, tail);
    if ((int)strlen(line_out) > width)
        line_out[width] = '\0';
}

static void draw(double now, bool last)
{
    char line[LINE_MAX_CHARS];
    compose(now - phase.began, columns(), line);
    (void)fprintf(stderr, "%s%s%s", display.terminal ? ERASE : "", line,
                  last || !display.terminal ? "\n" : "\r");
    display.bar_open = display.terminal && !last;
    display.line = now;
    phase.shown = true;
}

static int find_phase(const char *name)
{
    int i = 0;
    while (i < num_phases && strcmp(phases[i].name, name) != 0)
        i++;
    return i;
}

/* Writes the last line of the phase, unless a file had one lately. */
static void write_last(void)
{
    const bool again = find_phase(phase.name) < num_phases;
    if (phase.ended)
        return;
    phase.ended = true;
    if (display.quiet ||
        (!display.terminal && again && !phase.shown && display.event - display.line < file_seconds))
        return;
    draw(display.event, true);
}

static void add_seconds(const char *name, double seconds)
{
    const int i = find_phase(name);
    if (i == PHASES_MAX)
        return;
    if (i == num_phases) {
        (void)snprintf(phases[i].name, sizeof phases[i].name, "%s", name);
        phases[i].seconds = 0;
        num_phases++;
    }
    phases[i].seconds += seconds;
}

/* Ends the phase with its last event. */
static void end_phase(void)
{
    if (phase.name[0] == '\0')
        return;
    write_last();
    cli_clear_bar();
    add_seconds(phase.name, display.event - phase.began);
    phase.name[0] = '\0';
}

void cli_leave_phase(void)
{
    end_phase();
    display.event = clock_now();
}

void cli_pass_time(const char *name)
{
    const double now = clock_now();
    const double seconds = now - display.event;
    if (phase.ended)
        end_phase();
    add_seconds(name, seconds);
    /* The phase goes on as if this time had not passed. */
    phase.began += seconds;
    display.event = now;
}

static void begin_phase(const plim_progress_t *progress, int64_t first, double began)
{
    end_phase();
    (void)snprintf(phase.name, sizeof phase.name, "%s", progress->phase);
    (void)snprintf(phase.unit, sizeof phase.unit, "%s", progress->unit);
    phase.first = phase.done = first;
    phase.total = progress->total;
    phase.loss = (double)NAN;
    phase.began = began;
    phase.shown = phase.ended = false;
    if (display.terminal)
        display.line = began;
}

static void advance(const plim_progress_t *progress, double now)
{
    /* Threads may report out of order: the largest counts. */
    if (phase.ended || progress->done < phase.done)
        return;
    phase.done = progress->done;
    phase.total = progress->total;
    display.event = now;
    if (phase.total > 0 && phase.done >= phase.total)
        write_last();
    else if (!display.quiet &&
             now - display.line >= (display.terminal ? terminal_seconds : file_seconds))
        draw(now, false);
}

void cli_progress(void *user, const plim_progress_t *progress)
{
    const double now = clock_now();
    (void)user;
    if (strcmp(phase.name, progress->phase) != 0 || (phase.ended && progress->done == 0))
        begin_phase(progress, progress->done, now);
    advance(progress, now);
}

void cli_show_steps(const plim_progress_t *progress, double loss)
{
    const double now = clock_now();
    if (strcmp(phase.name, progress->phase) != 0 || progress->done < phase.done)
        begin_phase(progress, progress->done > 0 ? progress->done - 1 : 0, display.event);
    phase.loss = loss;
    advance(progress, now);
}

bool cli_phase(int index, const char **name_out, double *seconds_out)
{
    if (index < 0 || index >= num_phases)
        return false;
    *name_out = phases[index].name;
    *seconds_out = phases[index].seconds;
    return true;
}
