/*
 * Options of the verbs. Each verb lists groups of options; from them come reading the command line,
 * --help, completions (`plimsoll --complete`) and the option lists of the man pages
 * (`plimsoll --describe`, which tools/man-options reads).
 */
#ifndef PLIM_CLI_OPTIONS_H
#define PLIM_CLI_OPTIONS_H

#include <plimsoll/plimsoll.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a value is read. */
typedef enum cli_kind {
    CLI_FLAG = 0, /* a bool becomes true; a value, if there is one, is ignored */
    CLI_INTEGER,  /* int or int64_t, from `min` to `max`, also as 1.5K */
    CLI_REAL,     /* float or double, from 0 on and below `below` */
    CLI_SEED,     /* uint64_t */
    CLI_SIZE,     /* int64_t, a size with its unit; the one word, if there is one, is `min` */
    CLI_WORD,     /* an enumeration or int: one of the words, of which the first is `min` */
    CLI_TEXT,     /* const char *, as it is given */
    CLI_CALL      /* as `take` reads it */
} cli_kind_t;

typedef struct cli_option cli_option_t;

/*
 * Reads a value (NULL: an optional one that is not given) into the verb's struct. *next points to
 * the words after it, ended by NULL; it is moved past those that belong to the value. False after
 * an error message.
 */
typedef bool (*cli_take_fn)(void *context, char *value, char ***next);

struct cli_option {
    const char *name;  /* NULL: the end of a table */
    const char *value; /* its placeholder; NULL: takes none; "[SECONDS]", "[=DIR]": optional */
    const char *help;  /* NULL: not shown. "%s" becomes the list of words. In the man page the first
                          sentence; the list of words stands in its heading there */
    const char *more;  /* further sentences of the man page; NULL: none */
    /* Another spelling: of "hidden", or for "model=sage". Sets its own flag, if it has one. */
    const char *means;
    const char *from;  /* whose spelling it is, for the man page */
    const char *field; /* where the value goes in the verb's struct: "training.model.hidden" */
    size_t offset, size;
    cli_kind_t kind;
    int64_t min, max;
    double below;
    const char *const *words; /* ended by NULL; of other kinds than CLI_WORD: for completions */
    int library_words;        /* a plim_words_t and 1, instead of `words`; 0: none */
    cli_take_fn take;
    bool plans; /* changes the plan of a training: shown by plan, too */
};

/* Parts of an entry. */
#define CLI_AT(type, member)                                                                       \
    .field = #member, .offset = offsetof(type, member), .size = sizeof(((type *)0)->member)
#define CLI_RANGE(from_, to) .kind = CLI_INTEGER, .min = from_, .max = to
#define CLI_BELOW(bound) .kind = CLI_REAL, .below = bound
#define CLI_LIST(first, ...)                                                                       \
    .kind = CLI_WORD, .min = first, .words = (const char *const[])                                 \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
#define CLI_LIST_OF(of) .kind = CLI_WORD, .library_words = of + 1
#define CLI_SIZE_OR(word, number)                                                                  \
    .kind = CLI_SIZE, .min = number, .words = (const char *const[])                                \
    {                                                                                              \
        word, NULL                                                                                 \
    }
#define CLI_BY(function) .kind = CLI_CALL, .take = function
#define CLI_HINTS(...)                                                                             \
    .words = (const char *const[])                                                                 \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
#define CLI_ALIAS(name_, from_, means_)                                                            \
    {                                                                                              \
        .name = name_, .from = from_, .means = means_                                              \
    }
#define CLI_OPTIONS_END                                                                            \
    {                                                                                              \
        .name = NULL                                                                               \
    }

typedef struct cli_group {
    const char *title; /* NULL: goes on from the group before */
    const cli_option_t *options;
    size_t base;  /* of the offsets in the verb's struct */
    bool of_plan; /* shows only options that change a plan */
} cli_group_t;

/* Most options of a verb, with other spellings. */
#define CLI_OPTIONS_MAX 128

extern const cli_option_t cli_common_options[];
#define CLI_COMMON_GROUP                                                                           \
    {                                                                                              \
        .title = "Common options", .options = cli_common_options                                   \
    }

struct cli_verb;
struct cli_common;

/*
 * Reads a command line into the struct of common->verb, whose first member is a cli_common_t;
 * optind is then the first operand. False: the verb must return *exit_out, after --help or an error
 * message.
 */
bool cli_read_options(int argc, char **argv, void *context, int *exit_out);

/* Reads one option by its name. False after an error message. */
bool cli_set_option(void *context, const char *name, char *value);

/* Whether an option was given, in any spelling. */
bool cli_given(const struct cli_common *common, const char *name);

/* "--batch" for "batch_size", a member of the struct that the verb at work fills, also with what it
 * is a member of ("recipe.batch_size"). NULL: no option sets it. */
const char *cli_option_of(const char *field);

/* The words of an option, ended by NULL; NULL: none. */
const char *const *cli_option_words(const cli_option_t *option);

void cli_print_help(const struct cli_verb *verb);

/* `plimsoll --complete WORDS`: prints what the last word may become, one a line with its help after
 * a tab; ":file", ":directory" and ":command" stand for the shell's own. */
void cli_complete(int count, char **words);

/* `plimsoll --describe`: prints all verbs and their options as one JSON object. */
void cli_describe(void);

#endif
