/* The verbs, and reading command lines by their tables of options. */
#include "command/cli.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

const cli_verb_t *const cli_verbs[] = {
    &cli_verb_bench,    &cli_verb_cache,  &cli_verb_doctor,  &cli_verb_evaluate,
    &cli_verb_generate, &cli_verb_import, &cli_verb_inspect, &cli_verb_limit,
    &cli_verb_mark,     &cli_verb_plan,   &cli_verb_predict, &cli_verb_report,
    &cli_verb_slurm,    &cli_verb_train,  &cli_verb_watch,   NULL};

const char *const cli_engine_names[] = {"auto", "uring", "threads", NULL};
_Static_assert(PLIM_IO_AUTO == 0 && PLIM_IO_URING == 1 && PLIM_IO_THREADS == 2, "as the names");

#define AT(member) CLI_AT(cli_common_t, member)

const cli_option_t cli_common_options[] = {
    {"memory", "SIZE", "the memory line (4G, 300M); default, and max: the smallest limit found",
     "Sizes are powers of 1024: 4G, 4GB, 4Gi and 4GiB are the same, and a number below a million "
     "needs its unit. This option can lower the line, but not raise it above the job's own limit.",
     AT(memory), CLI_SIZE_OR("max", 0)},
    {"threads", "N", "number of threads; default: all that the job may use",
     "Ranks that may run on the same processors divide them.", AT(threads), CLI_RANGE(1, 1024)},
    {"io", "ENGINE", "engine of reads and writes: %s; default auto",
     "uring is io_uring, threads a pool of threads, and auto the first of these that works. The "
     "result is the same.",
     AT(io_engine), .kind = CLI_WORD, .words = cli_engine_names},
    {"json", NULL, "print only JSON objects on standard output, one a line",
     "Fields are named with their unit, such as 'line_bytes'. Errors are objects with 'error', "
     "'status' and 'exit_code'; 'remedy' is what to type next, where that is known.",
     AT(json)},
    {"quiet", NULL, "print no progress and no remarks",
     "Only warnings and errors are on standard error. Results on standard output stay.", AT(quiet)},
    {"help", NULL, "this text", "The same as -h.", .kind = CLI_FLAG},
    CLI_OPTIONS_END};

/* The verb whose command line was read last. */
static const cli_verb_t *verb_at_work;

typedef struct place {
    int index; /* among all options of the verb */
    const cli_option_t *option;
    const cli_group_t *group;
} place_t;

/* Goes on to the next option; begin with {.index = -1}. False after the last one. */
static bool step(const cli_verb_t *verb, place_t *place)
{
    if (place->group == NULL)
        *place = (place_t){-1, NULL, verb->groups};
    place->option = place->option == NULL ? place->group->options : place->option + 1;
    while (place->option->name == NULL) {
        place->group++;
        if (place->group->options == NULL)
            return false;
        place->option = place->group->options;
    }
    place->index++;
    return true;
}

/* The first option of the name that ends at `end`. */
static bool find(const cli_verb_t *verb, const char *name, char end, place_t *place_out)
{
    const char *stop = strchr(name, end);
    const size_t length = stop != NULL ? (size_t)(stop - name) : strlen(name);
    place_t place = {0};
    while (step(verb, &place))
        if (strlen(place.option->name) == length &&
            strncmp(place.option->name, name, length) == 0) {
            *place_out = place;
            return true;
        }
    return false;
}

bool cli_given(const cli_common_t *common, const char *name)
{
    place_t place;
    return find(common->verb, name, '\0', &place) && common->given[place.index];
}

const char *cli_option_of(const char *field)
{
    static char text[64];
    place_t place = {0};
    while (verb_at_work != NULL && step(verb_at_work, &place)) {
        const char *own = place.option->field;
        const size_t length = strlen(field), width = own != NULL ? strlen(own) : 0;
        if (width < length || strcmp(own + width - length, field) != 0 ||
            (width > length && own[width - length - 1] != '.'))
            continue;
        (void)snprintf(text, sizeof text, "--%s", place.option->name);
        return text;
    }
    return NULL;
}

const char *const *cli_option_words(const cli_option_t *option)
{
    return option->library_words > 0 ? plim_words((plim_words_t)(option->library_words - 1))
                                     : option->words;
}

static void store_integer(void *at, size_t size, int64_t value)
{
    const int small = (int)value;
    memcpy(at, size == sizeof small ? (const void *)&small : &value, size);
}

static void store_real(void *at, size_t size, double value)
{
    const float small = (float)value;
    memcpy(at, size == sizeof small ? (const void *)&small : &value, size);
}

/* Reads a value into the verb's struct. False after an error message. */
static bool take_value(void *context, const place_t *place, char *value, char ***next)
{
    const cli_common_t *common = context;
    const cli_option_t *option = place->option;
    const char *const *words = cli_option_words(option);
    void *at = (char *)context + place->group->base + option->offset;
    char name[64];
    int64_t number = 0;
    double real = 0;
    bool taken = true;
    (void)snprintf(name, sizeof name, "--%s", option->name);
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)at = true;
        return true;
    case CLI_INTEGER:
        taken = cli_parse_int(common, name, value, option->min, option->max, &number);
        break;
    case CLI_WORD:
        number = cli_parse_word(common, name, value, words);
        taken = number >= 0;
        number += option->min;
        break;
    case CLI_SIZE:
        number = option->min;
        taken = (words != NULL && strcasecmp(value, words[0]) == 0) ||
                cli_parse_size(common, name, value, &number);
        break;
    case CLI_REAL:
        taken = cli_parse_real(common, name, value, option->below, &real);
        if (taken)
            store_real(at, option->size, real);
        return taken;
    case CLI_SEED:
        return cli_parse_seed(common, name, value, at);
    case CLI_TEXT:
        *(const char **)at = value;
        return true;
    case CLI_CALL:
        return option->take((char *)context + place->group->base, value, next);
    }
    if (taken)
        store_integer(at, option->size, number);
    return taken;
}

/* Reads the option at `place`, in any spelling, and notes that it was given. */
static bool take(void *context, place_t place, char *value, char ***next)
{
    cli_common_t *common = context;
    while (place.option->means != NULL) {
        char *equals = strchr(place.option->means, '=');
        if (place.option->size > 0)
            *((char *)context + place.group->base + place.option->offset) = true;
        if (!find(common->verb, place.option->means, '=', &place))
            return false;
        value = equals != NULL ? equals + 1 : value;
    }
    common->given[place.index] = true;
    return take_value(context, &place, value, next);
}

bool cli_set_option(void *context, const char *name, char *value)
{
    const cli_common_t *common = context;
    char *none[] = {NULL}, **next = none;
    place_t place;
    if (find(common->verb, name, '\0', &place))
        return take(context, place, value, &next);
    (void)cli_wrong_use(common, "there is no option --%s", name);
    return false;
}

static int value_needed(const cli_verb_t *verb, const cli_option_t *option)
{
    place_t place;
    if (option->means != NULL && strchr(option->means, '=') == NULL &&
        find(verb, option->means, '\0', &place))
        option = place.option;
    return option->value == NULL     ? no_argument
           : option->value[0] == '[' ? optional_argument
                                     : required_argument;
}

/* Scripts write --batch_size. */
static void dashes_for_underscores(char *name)
{
    for (; *name != '\0' && *name != '='; name++)
        if (*name == '_')
            *name = '-';
}

/* The code of the first option; getopt's own are characters. */
#define FIRST_CODE 0x100

static const struct option *list_options(const cli_verb_t *verb)
{
    static struct option options[CLI_OPTIONS_MAX + 1];
    static char names[CLI_OPTIONS_MAX][32];
    place_t place = {0};
    int count = 0;
    while (step(verb, &place)) {
        assert(count < CLI_OPTIONS_MAX);
        (void)snprintf(names[count], sizeof names[0], "%s", place.option->name);
        dashes_for_underscores(names[count]);
        const bool help = strcmp(names[count], "help") == 0;
        options[count] = (struct option){names[count], value_needed(verb, place.option), NULL,
                                         help ? 'h' : FIRST_CODE + count};
        count++;
    }
    options[count] = (struct option){NULL, 0, NULL, 0};
    return options;
}

/* Reports the option that getopt_long did not take. Returns the exit code. */
static int refuse_option(const cli_common_t *common, const struct option *options, const char *word)
{
    cli_nearest_t nearest = {NULL, 0};
    char name[64], hint[96];
    if (optopt > 0 && optopt < FIRST_CODE && optopt != 'h')
        return cli_wrong_use(common, "there is no option -%c", optopt);
    if (optopt != 0)
        return cli_wrong_use(common, "an option that takes no value: %s", word);
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    for (; options->name != NULL; options++)
        cli_nearest_try(&nearest, name + strspn(name, "-"), options->name);
    return cli_wrong_use(common, "there is no option %s%s", name,
                         cli_nearest_text(&nearest, "--", hint));
}

/* Takes the word after a flag, as in "--use_amp True". Returns whether it turns the flag off. */
static bool turned_off(char *const *argv)
{
    const char *next = argv[optind] != NULL ? argv[optind] : "";
    const bool off = strcasecmp(next, "false") == 0;
    optind += off || strcasecmp(next, "true") == 0;
    return off;
}

bool cli_read_options(int argc, char **argv, void *context, int *exit_out)
{
    cli_common_t *common = context;
    const struct option *options = list_options(common->verb);
    place_t place;
    int code;
    verb_at_work = common->verb;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--", 2) == 0)
            dashes_for_underscores(argv[i]);
        /* --json is found first, so that every error is an object. */
        common->json |= !common->in_order && strcmp(argv[i], "--json") == 0;
    }
    optind = 0;
    opterr = 0;
    *exit_out = CLI_WRONG_USE;
    while ((code = getopt_long(argc, argv, common->in_order ? "+:h" : ":h", options, NULL)) != -1) {
        if (code == 'h') {
            cli_print_help(common->verb);
            *exit_out = CLI_DONE;
            return false;
        }
        if (code == ':' || code == '?') {
            (void)(code == '?' ? refuse_option(common, options, argv[optind - 1])
                               : cli_wrong_use(common, "%s needs a value", argv[optind - 1]));
            return false;
        }
        place = (place_t){0};
        while (step(common->verb, &place) && place.index < code - FIRST_CODE)
            continue;
        if (place.group->options != cli_common_options &&
            options[place.index].has_arg == no_argument && turned_off(argv))
            continue;
        char **next = argv + optind;
        if (!take(context, place, optarg, &next))
            return false;
        optind = (int)(next - argv);
    }
    *exit_out = CLI_DONE;
    return true;
}
