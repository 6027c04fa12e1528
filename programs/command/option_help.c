/* What is shown of the tables of options: --help, completions, and the JSON for the man pages. */
#include "command/cli.h"

#include <string.h>

/* ---- --help ---- */

#define HELP_INDENT 19
#define HELP_WIDTH 92

/* A word as it is shown: those of the library are names in run.json, "cross_entropy". */
static const char *shown_word(const cli_option_t *option, int index, char text_out[64])
{
    (void)snprintf(text_out, 64, "%s", cli_option_words(option)[index]);
    for (char *c = text_out; option->library_words > 0 && *c != '\0'; c++)
        if (*c == '_')
            *c = '-';
    return text_out;
}

/* "a, b or c". */
static void join_words(const cli_option_t *option, char *text_out, size_t size)
{
    const char *const *words = cli_option_words(option);
    char word[64];
    size_t used = 0;
    for (int i = 0; words[i] != NULL && used < size; i++)
        used += (size_t)snprintf(text_out + used, size - used, "%s%s",
                                 i == 0                 ? ""
                                 : words[i + 1] == NULL ? " or "
                                                        : ", ",
                                 shown_word(option, i, word));
}

static void help_text(const cli_option_t *option, char text_out[1024])
{
    const char *list = strstr(option->help, "%s");
    char words[256] = "";
    if (list != NULL)
        join_words(option, words, sizeof words);
    (void)snprintf(text_out, 1024, "%.*s%s%s",
                   list != NULL ? (int)(list - option->help) : (int)strlen(option->help),
                   option->help, words, list != NULL ? list + 2 : "");
}

static void print_option(const cli_option_t *option)
{
    char text[1024];
    const char *value = option->value != NULL ? option->value : "";
    const char *space = value[0] == '\0' || strncmp(value, "[=", 2) == 0 ? "" : " ";
    const char *letter = strcmp(option->name, "help") == 0 ? "-h, " : "";
    int column = printf("  %s--%s%s%s", letter, option->name, space, value);
    if (column >= HELP_INDENT)
        column = printf("\n") - 1;
    help_text(option, text);
    column += printf("%*s", HELP_INDENT - column, "");
    for (char *word = text, *end; *word != '\0'; word = end + strspn(end, " ")) {
        end = word + strcspn(word, " ");
        if (column + (int)(end - word) > HELP_WIDTH)
            column = printf("\n%*s", HELP_INDENT - 1, "") - 1;
        column += printf("%s%.*s", column > HELP_INDENT || word > text ? " " : "",
                         (int)(end - word), word);
    }
    (void)printf("\n");
}

static bool is_shown(const cli_group_t *group, const cli_option_t *option)
{
    return option->help != NULL && (option->plans || !group->of_plan);
}

void cli_print_help(const cli_verb_t *verb)
{
    (void)fputs(verb->help, stdout);
    for (const cli_group_t *group = verb->groups; group->options != NULL; group++) {
        if (group->title != NULL)
            (void)printf("\n%s:\n", group->title);
        for (const cli_option_t *option = group->options; option->name != NULL; option++)
            if (is_shown(group, option))
                print_option(option);
    }
}

/* ---- completions ---- */

/* Prints a candidate if it begins with what is typed. */
static void offer(const char *typed, const char *before, const char *word, const char *help)
{
    char text[128];
    (void)snprintf(text, sizeof text, "%s%s", before, word);
    if (word[0] == ':')
        (void)puts(word);
    else if (strncmp(text, typed, strlen(typed)) == 0)
        (void)printf("%s\t%s\n", text, help);
}

static void offer_words(const char *typed, const char *before, const char *const *words)
{
    for (int i = 0; words != NULL && words[i] != NULL; i++)
        offer(typed, before, words[i], "");
}

/* `before`: what stands before the value in its word, "--io=" or "". */
static void offer_values(const cli_option_t *option, const char *before, const char *typed)
{
    static const char *const sizes[] = {"256M", "1G", "4G", "16G", "64G", NULL};
    const char *const *words = cli_option_words(option);
    char word[64];
    for (int i = 0; words != NULL && words[i] != NULL; i++)
        offer(typed, before, shown_word(option, i, word), "");
    if (option->kind == CLI_SIZE)
        offer_words(typed, before, sizes);
    else if (words == NULL && strstr(option->value, "FILE") != NULL)
        offer(typed, before, ":file", "");
    else if (words == NULL &&
             (strstr(option->value, "DIR") != NULL || strstr(option->value, "RUN") != NULL))
        offer(typed, before, ":directory", "");
}

/* The option that `word` ("--io", "--io=u") names; NULL: none that takes a value. */
static const cli_option_t *option_of(const cli_verb_t *verb, const char *word)
{
    const size_t length = strcspn(word, "=");
    for (const cli_group_t *group = verb->groups; group->options != NULL; group++)
        for (const cli_option_t *option = group->options; option->name != NULL; option++)
            if (length == strlen(option->name) + 2 && option->value != NULL &&
                strncmp(word, "--", 2) == 0 && strncmp(word + 2, option->name, length - 2) == 0)
                return option;
    return NULL;
}

static void offer_options(const cli_verb_t *verb, const char *typed)
{
    char help[1024], name[64];
    for (const cli_group_t *group = verb->groups; group->options != NULL; group++)
        for (const cli_option_t *option = group->options; option->name != NULL; option++) {
            if (!is_shown(group, option))
                continue;
            help_text(option, help);
            (void)snprintf(name, sizeof name, "--%s", option->name);
            offer(typed, "", name, help);
        }
}

static void offer_verbs(const char *typed)
{
    for (int i = 0; cli_verbs[i] != NULL; i++)
        offer(typed, "", cli_verbs[i]->name, cli_verbs[i]->summary);
}

static const cli_verb_t *verb_named(const char *name)
{
    int i = 0;
    while (cli_verbs[i] != NULL && strcmp(cli_verbs[i]->name, name) != 0)
        i++;
    return cli_verbs[i];
}

void cli_complete(int count, char **words)
{
    const char *typed = count > 0 ? words[count - 1] : "";
    const char *before = count > 1 ? words[count - 2] : "";
    char prefix[64] = "";
    if (count <= 1) {
        offer_verbs(typed);
        offer(typed, "", "help", "explain a verb");
        offer(typed, "", "--help", "list the verbs");
        offer(typed, "", "--version", "the version, and the MPI plugins");
        return;
    }
    if (strcmp(words[0], "help") == 0)
        offer_verbs(typed);
    const cli_verb_t *verb = verb_named(words[0]);
    if (verb == NULL)
        return;
    /* bash takes --io=uring for three words. */
    if (strcmp(typed, "=") == 0)
        typed = "";
    else if (strcmp(before, "=") == 0 && count > 2)
        before = words[count - 3];
    const cli_option_t *option = option_of(verb, before);
    if (option == NULL && strchr(typed, '=') != NULL) {
        option = option_of(verb, typed);
        (void)snprintf(prefix, sizeof prefix, "%.*s", (int)strcspn(typed, "=") + 1, typed);
    }
    if (option != NULL && (prefix[0] != '\0' || option->value[0] != '['))
        offer_values(option, prefix, typed);
    else if (typed[0] == '-')
        offer_options(verb, typed);
    else if (count == 2 && verb->first_operand != NULL)
        offer_words(typed, "", verb->first_operand);
    else if (verb->operand != NULL)
        offer(typed, "", verb->operand, "");
}

/* ---- the man pages ---- */

static json_t *text_or_null(const char *text)
{
    return text != NULL ? json_string(text) : json_null();
}

static json_t *describe_option(const cli_group_t *group, const cli_option_t *option)
{
    char words[256] = "";
    if (option->kind == CLI_WORD)
        join_words(option, words, sizeof words);
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:s, s:b}", "name", option->name, "value",
                     text_or_null(option->value), "help", text_or_null(option->help), "more",
                     text_or_null(option->more), "means", text_or_null(option->means), "from",
                     text_or_null(option->from), "words", words, "shown",
                     (int)is_shown(group, option));
}

void cli_describe(void)
{
    json_t *verbs = json_object();
    for (int i = 0; cli_verbs[i] != NULL; i++) {
        json_t *groups = json_array();
        for (const cli_group_t *group = cli_verbs[i]->groups; group->options != NULL; group++) {
            json_t *options = json_array();
            for (const cli_option_t *option = group->options; option->name != NULL; option++)
                (void)json_array_append_new(options, describe_option(group, option));
            (void)json_array_append_new(groups, json_pack("{s:o, s:b, s:o}", "title",
                                                          text_or_null(group->title), "of_plan",
                                                          (int)group->of_plan, "options", options));
        }
        (void)json_object_set_new(verbs, cli_verbs[i]->name, groups);
    }
    cli_print_json(verbs);
}
