/*
 * The library's messages in the words of the command line.
 *
 * The library names a setting by the field of its public structs, in backquotes: "raise `memory`
 * to 361M". Here `memory` becomes --memory. Other words in backquotes stay as they are.
 */
#include "command/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Settings that are no field of the verb's own struct. */
static const struct {
    const char *setting, *option;
} others[] = {
    {"eval_exact", "--eval-exact"}, {"layers", "--layers"}, {"model", "--model"},
    {"optimiser", "--optimizer"},   {"split", "--split"},   {"targets", "--targets"},
    {"whole", "--verify"},
};

/* The option of a setting; NULL: the word names no setting. */
static const char *option_of(const char *word, size_t size)
{
    char name[64];
    if (size >= sizeof name)
        return NULL;
    memcpy(name, word, size);
    name[size] = '\0';
    const char *option = size > 0 ? cli_option_of(name) : NULL;
    for (size_t i = 0; option == NULL && i < sizeof others / sizeof others[0]; i++)
        if (strcmp(others[i].setting, name) == 0)
            option = others[i].option;
    return option;
}

const char *cli_message_text(const char *message, char text_out[CLI_MESSAGE_MAX])
{
    char *to = text_out, *const end = text_out + CLI_MESSAGE_MAX - 1;
    for (const char *from = message; *from != '\0' && to < end;) {
        const char *close = *from == '`' ? strchr(from + 1, '`') : NULL;
        const char *option = NULL;
        if (close != NULL)
            option = option_of(from + 1, (size_t)(close - from - 1));
        if (option == NULL || strlen(option) > (size_t)(end - to)) {
            *to++ = *from++;
            continue;
        }
        memcpy(to, option, strlen(option));
        to += strlen(option);
        from = close + 1;
    }
    *to = '\0';
    return text_out;
}

static char remedy[CLI_MESSAGE_MAX / 2];

void cli_remedy(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(remedy, sizeof remedy, format, arguments);
    va_end(arguments);
}

const char *cli_remedy_text(void)
{
    return remedy;
}

const char *cli_last_error(void)
{
    static char text[CLI_MESSAGE_MAX];
    return cli_message_text(plim_last_error(), text);
}
