/* Errors, and text and JSON output. */
#include "base/fail.h"
#include "base/printable.h"
#include "command/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds the error to `object` (taken; NULL: a new one) and prints it. */
static void print_json_error(json_t *object, const char *message, plim_status_t status, int code)
{
    if (object == NULL)
        object = json_object();
    (void)json_object_set_new(object, "error", cli_json_text(message));
    if (cli_remedy_text()[0] != '\0')
        (void)json_object_set_new(object, "remedy", cli_json_text(cli_remedy_text()));
    (void)json_object_set_new(object, "status", json_string(plim_status_name(status)));
    (void)json_object_set_new(object, "exit_code", json_integer(code));
    cli_print_json(object);
}

void cli_print_text(FILE *out, const char *text)
{
    for (const char *end = text + strlen(text); text < end;) {
        const size_t size = plim__printable(text, (size_t)(end - text));
        (void)fwrite(size > 0 ? text : "?", 1, size > 0 ? size : 1, out);
        text += size > 0 ? size : 1;
    }
}

static void print_error(const cli_common_t *common, const char *message)
{
    (void)fprintf(stderr, "plimsoll %s: ", common->verb->name);
    cli_print_text(stderr, message);
    if (cli_remedy_text()[0] != '\0') {
        (void)fputs(". ", stderr);
        cli_print_text(stderr, cli_remedy_text());
    }
    (void)fputc('\n', stderr);
}

int cli_wrong_use(const cli_common_t *common, const char *format, ...)
{
    va_list arguments;
    char message[1024];
    if (cli_ranks_other()) /* the first rank has the same words */
        return CLI_WRONG_USE;
    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    print_error(common, message);
    (void)fprintf(stderr, "Try 'plimsoll %s --help'.\n", common->verb->name);
    if (common->json)
        print_json_error(NULL, message, PLIM_ERR_USAGE, CLI_WRONG_USE);
    return CLI_WRONG_USE;
}

int cli_exit_code(plim_status_t status)
{
    switch (status) {
    case PLIM_OK:
        return CLI_DONE;
    case PLIM_ERR_BUDGET:
    case PLIM_ERR_SPACE:
        return CLI_DOES_NOT_FIT;
    case PLIM_ERR_DATA:
        return CLI_BAD_DATA;
    case PLIM_ERR_USAGE:
        return CLI_WRONG_USE;
    case PLIM_ERR_STOPPED:
        return CLI_STOPPED;
    case PLIM_ERR_DIVERGED:
        return CLI_DIVERGED;
    case PLIM_ERR_DISK:
        return CLI_DISK_FULL;
    case PLIM_ERR_NOMEM:
    case PLIM_ERR_TIMEOUT:
    case PLIM_ERR_IO:
    case PLIM_ERR_UNSUPPORTED:
        break;
    }
    return CLI_FAILED;
}

int cli_failed(const cli_common_t *common, plim_status_t status)
{
    return cli_failed_with(common, status, plim_last_error(), NULL);
}

int cli_program_failed(const cli_common_t *common, plim_status_t status)
{
    return cli_failed_with(common, status, plim__fail_text(), NULL);
}

plim_status_t cli_pass_failure(plim_status_t status)
{
    return status == PLIM_OK ? PLIM_OK : plim__fail(status, "%s", plim_last_error());
}

int cli_failed_with(const cli_common_t *common, plim_status_t status, const char *message,
                    json_t *object)
{
    int code = cli_exit_code(status);
    char text[CLI_MESSAGE_MAX];
    print_error(common, cli_message_text(message, text));
    if (status == PLIM_ERR_BUDGET)
        cli_print_line_hint();
    if (common->json)
        print_json_error(object, text, status, code);
    return code;
}

json_t *cli_json_text(const char *text)
{
    json_t *string = json_string(text);
    if (string != NULL)
        return string;
    char plain[2048];
    size_t length = 0;
    for (; text[length] != '\0' && length < sizeof plain - 1; length++) {
        plain[length] = '?';
        if ((unsigned char)text[length] < 0x80)
            plain[length] = text[length];
    }
    plain[length] = '\0';
    return json_string(plain);
}

static int flush_error; /* errno of the first flush that failed */

void cli_flush(void)
{
    if (fflush(stdout) != 0 && flush_error == 0)
        flush_error = errno;
}

int cli_check_output(void)
{
    cli_flush();
    if (ferror(stdout) == 0 && flush_error == 0)
        return CLI_DONE;
    (void)fprintf(stderr, "plimsoll: standard output: %s\n",
                  flush_error != 0 ? strerror(flush_error) : "not all of it could be written");
    return plim__disk_full(flush_error) ? CLI_DISK_FULL : CLI_FAILED;
}

/* jansson escapes every control character except DEL, which occurs only in strings. */
static int print_chunk(const char *chunk, size_t size, void *out)
{
    for (size_t i = 0; i < size; i++)
        if ((chunk[i] == 0x7f ? fputs("\\u007f", out) : fputc(chunk[i], out)) == EOF)
            return -1;
    return 0;
}

void cli_print_json(json_t *object)
{
    (void)json_dump_callback(object, print_chunk, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    (void)printf("\n");
    cli_flush();
    json_decref(object);
}

const char *cli_signal_name(int number)
{
    static const char *const names[] = {
        [SIGHUP] = "HUP",   [SIGINT] = "INT",       [SIGQUIT] = "QUIT", [SIGILL] = "ILL",
        [SIGTRAP] = "TRAP", [SIGABRT] = "ABRT",     [SIGBUS] = "BUS",   [SIGFPE] = "FPE",
        [SIGKILL] = "KILL", [SIGUSR1] = "USR1",     [SIGSEGV] = "SEGV", [SIGUSR2] = "USR2",
        [SIGPIPE] = "PIPE", [SIGALRM] = "ALRM",     [SIGTERM] = "TERM", [SIGSTKFLT] = "STKFLT",
        [SIGCHLD] = "CHLD", [SIGCONT] = "CONT",     [SIGSTOP] = "STOP", [SIGTSTP] = "TSTP",
        [SIGTTIN] = "TTIN", [SIGTTOU] = "TTOU",     [SIGURG] = "URG",   [SIGXCPU] = "XCPU",
        [SIGXFSZ] = "XFSZ", [SIGVTALRM] = "VTALRM", [SIGPROF] = "PROF", [SIGWINCH] = "WINCH",
        [SIGIO] = "IO",     [SIGPWR] = "PWR",       [SIGSYS] = "SYS",
    };
    if (number <= 0 || (size_t)number >= sizeof names / sizeof names[0])
        return "RT";
    return names[number];
}
