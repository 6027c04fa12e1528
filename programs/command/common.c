/* Common options, errors, and text and JSON output. */
#include "base/fail.h"
#include "base/printable.h"
#include "command/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char common_help[] =
    "\nCommon options:\n"
    "  --memory SIZE    the memory line (4G, 300M); default, and max: the smallest limit found\n"
    "  --threads N      number of threads; default: all that the job may use\n"
    "  --io ENGINE      auto, uring or threads\n"
    "  --json           print only JSON objects on standard output, one a line\n"
    "  --quiet          print no progress and no remarks\n"
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

const char *const cli_engine_names[] = {"auto", "uring", "threads", NULL};
_Static_assert(PLIM_IO_AUTO == 0 && PLIM_IO_URING == 1 && PLIM_IO_THREADS == 2, "as the names");

static bool take_common(int code, cli_common_t *common, int *exit_out)
{
    int64_t value;
    int word;
    switch (code) {
    case CLI_OPTION_COMMON + 0:
        *exit_out = CLI_WRONG_USE;
        common->memory_given = true;
        if (strcmp(optarg, "max") == 0) {
            common->memory = 0;
            return true;
        }
        return cli_parse_size(common, "--memory", optarg, &common->memory);
    case CLI_OPTION_COMMON + 1:
        *exit_out = CLI_WRONG_USE;
        if (!cli_parse_int(common, "--threads", optarg, 1, 1024, &value))
            return false;
        common->threads = (int)value;
        return true;
    case CLI_OPTION_COMMON + 2:
        *exit_out = CLI_WRONG_USE;
        word = cli_parse_word(common, "--io", cli_engine_names);
        common->io_engine = word < 0 ? PLIM_IO_AUTO : (plim_io_engine_t)word;
        common->io_given = true;
        return word >= 0;
    case CLI_OPTION_COMMON + 3:
        common->json = true;
        return true;
    default:
        common->quiet = true;
        return true;
    }
}

/* Reports the option that getopt_long did not take. Returns the exit code. */
static int refuse_option(const cli_common_t *common, const struct option *options, const char *word)
{
    cli_nearest_t nearest = {NULL, 0};
    char name[64], hint[96];
    if (optopt > 0 && optopt < CLI_OPTION_COMMON && optopt != 'h')
        return cli_wrong_use(common, "there is no option -%c", optopt);
    if (optopt != 0)
        return cli_wrong_use(common, "an option that takes no value: %s", word);
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    for (; options->name != NULL; options++)
        cli_nearest_try(&nearest, name + strspn(name, "-"), options->name);
    return cli_wrong_use(common, "there is no option %s%s", name,
                         cli_nearest_text(&nearest, "--", hint));
}

int cli_next_option(int argc, char **argv, const struct option *options, cli_common_t *common,
                    int *exit_out)
{
    if (optind <= 1) {
        dashes_for_underscores(argc, argv);
        /* --json is found first, so that every error is an object. */
        for (int i = 1; !common->in_order && i < argc && strcmp(argv[i], "--") != 0; i++)
            common->json = common->json || strcmp(argv[i], "--json") == 0;
    }
    opterr = 0;
    for (;;) {
        int code = getopt_long(argc, argv, common->in_order ? "+:h" : ":h", options, NULL);
        if (code == 'h') {
            (void)printf("%s%s", common->verb->help, common_help);
            *exit_out = CLI_DONE;
            return -2;
        }
        if (code == ':') {
            *exit_out = cli_wrong_use(common, "%s needs a value", argv[optind - 1]);
            return -2;
        }
        if (code == '?') {
            *exit_out = refuse_option(common, options, argv[optind - 1]);
            return -2;
        }
        if (code < CLI_OPTION_COMMON || code >= CLI_OPTION_OWN)
            return code;
        if (!take_common(code, common, exit_out))
            return -2;
    }
}

bool cli_parse_int(const cli_common_t *common, const char *option, const char *text,
                   int64_t minimum, int64_t most, int64_t *value_out)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool valid = errno == 0 && end != text;
    if (valid && *end != '\0') {
        double large = strtod(text, &end);
        const char *unit =
            *end != '\0' ? strchr(units, *end >= 'a' ? *end - 'a' + 'A' : *end) : NULL;
        valid = unit != NULL && end[1] == '\0';
        for (long i = 0; valid && i <= unit - units; i++)
            large *= 1000;
        valid = valid && large > -9e18 && large < 9e18;
        value = valid ? (long long)(large + (large < 0 ? -0.5 : 0.5)) : 0;
    }
    if (!valid || value < minimum || value > most) {
        (void)cli_wrong_use(common, "%s: '%s' is not a whole number from %lld to %lld", option,
                            text, (long long)minimum, (long long)most);
        return false;
    }
    *value_out = value;
    return true;
}

/* Adds the error to `object` (taken; NULL: a new one) and prints it. */
static void print_json_error(json_t *object, const char *message, plim_status_t status, int code)
{
    if (object == NULL)
        object = json_object();
    (void)json_object_set_new(object, "error", cli_json_text(message));
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
    print_error(common, message);
    if (status == PLIM_ERR_BUDGET)
        cli_print_line_hint();
    if (common->json)
        print_json_error(object, message, status, code);
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

json_t *cli_json_plan(const plim_plan_t *plan)
{
    return json_loads(plim_plan_json(plan), 0, NULL);
}

int64_t cli_json_int(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

int64_t cli_minimum_line(const json_t *plan)
{
    const int64_t mib = (int64_t)1 << 20;
    return (cli_json_int(plan, "minimum_bytes") + mib - 1) / mib * mib;
}

const char *cli_minimum_text(const json_t *plan, char text_out[24])
{
    (void)snprintf(text_out, 24, "%lld MiB", (long long)(cli_minimum_line(plan) >> 20));
    return text_out;
}

bool cli_json_is(const json_t *object, const char *name, const char *word)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL && strcmp(text, word) == 0;
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
    return cli_disk_full(flush_error) ? CLI_DISK_FULL : CLI_FAILED;
}

bool cli_disk_full(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

/* jansson escapes every control character except DEL, which occurs only in strings. */
static int print_piece(const char *piece, size_t size, void *out)
{
    for (size_t i = 0; i < size; i++)
        if ((piece[i] == 0x7f ? fputs("\\u007f", out) : fputc(piece[i], out)) == EOF)
            return -1;
    return 0;
}

void cli_print_json(json_t *object)
{
    (void)json_dump_callback(object, print_piece, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    (void)printf("\n");
    cli_flush();
    json_decref(object);
}
