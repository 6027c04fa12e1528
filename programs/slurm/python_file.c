/* Reads the literal keyword arguments of loaders and argparse in a Python file. */
#include "slurm/python_file.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

typedef enum token_kind {
    TOKEN_END,
    TOKEN_NAME,
    TOKEN_NUMBER,
    TOKEN_STRING,
    TOKEN_OTHER
} token_kind_t;

typedef struct token {
    token_kind_t kind;
    const char *at; /* of a string: its content */
    size_t length;
    int line;
} token_t;

typedef struct script_reader {
    const char *at, *end;
    int line;
} script_reader_t;

static bool is(const token_t *token, const char *text)
{
    return token->kind != TOKEN_STRING && strlen(text) == token->length &&
           memcmp(token->at, text, token->length) == 0;
}

/* Behind an opening quote at `at`; leaves the reader behind the closing one. */
static token_t read_string(script_reader_t *reader, int line)
{
    const char quote = *reader->at;
    const bool triple =
        reader->end - reader->at >= 3 && reader->at[1] == quote && reader->at[2] == quote;
    reader->at += triple ? 3 : 1;
    token_t token = {TOKEN_STRING, reader->at, 0, line};
    for (; reader->at < reader->end; reader->at++) {
        if (*reader->at == '\\' && reader->at + 1 < reader->end) {
            reader->line += reader->at[1] == '\n';
            reader->at++;
            continue;
        }
        if (*reader->at == '\n' && !triple)
            break; /* not closed: the next line is code again */
        reader->line += *reader->at == '\n';
        if (*reader->at == quote && (!triple || (reader->end - reader->at >= 3 &&
                                                 reader->at[1] == quote && reader->at[2] == quote)))
            break;
    }
    token.length = (size_t)(reader->at - token.at);
    if (reader->at < reader->end && *reader->at == quote)
        reader->at += triple ? 3 : 1;
    return token;
}

static token_t next_token(script_reader_t *reader)
{
    while (reader->at < reader->end &&
           (isspace((unsigned char)*reader->at) || *reader->at == '#' || *reader->at == '\\')) {
        if (*reader->at == '#')
            while (reader->at < reader->end && *reader->at != '\n')
                reader->at++;
        if (reader->at < reader->end) {
            reader->line += *reader->at == '\n';
            reader->at++;
        }
    }
    token_t token = {TOKEN_END, reader->at, 0, reader->line};
    if (reader->at == reader->end)
        return token;
    if (*reader->at == '\'' || *reader->at == '"')
        return read_string(reader, token.line);
    if (read_is_letter(*reader->at)) {
        const bool number = isdigit((unsigned char)*reader->at) != 0;
        while (reader->at < reader->end &&
               (read_is_letter(*reader->at) || (number && *reader->at == '.')))
            reader->at++;
        token.length = (size_t)(reader->at - token.at);
        token.kind = number ? TOKEN_NUMBER : TOKEN_NAME;
        /* Prefixes of strings: r"", f"", b"", rb"". */
        if (!number && token.length <= 2 && reader->at < reader->end &&
            (*reader->at == '\'' || *reader->at == '"')) {
            const bool plain = memchr(token.at, 'f', token.length) == NULL &&
                               memchr(token.at, 'F', token.length) == NULL;
            token = read_string(reader, token.line);
            token.kind = plain ? TOKEN_STRING : TOKEN_OTHER;
        }
        return token;
    }
    reader->at++;
    token.kind = TOKEN_OTHER;
    token.length = 1;
    return token;
}

/* Appends a token to the text of a value. */
static void append(read_setting_t *setting, const token_t *token)
{
    const size_t used = strlen(setting->value), left = sizeof setting->value - 1 - used;
    const size_t length = token->length < left ? token->length : left;
    memcpy(setting->value + used, token->at, length);
    setting->value[used + length] = '\0';
    if (token->kind == TOKEN_NAME)
        setting->literal &= is(token, "True") || is(token, "False") || is(token, "None");
    else if (token->kind == TOKEN_OTHER)
        setting->literal &= token->length == 1 && strchr("[](),-", *token->at) != NULL;
}

/* One argument of a call. */
typedef struct argument {
    read_setting_t setting; /* name "": by position */
    bool unpacked;          /* *args, **kwargs */
    bool string;            /* the value is one string */
} argument_t;

/* Reads an argument of a call, up to the comma or the parenthesis that ends it. False: none is
 * left. */
static bool next_argument(script_reader_t *reader, argument_t *out)
{
    int depth = 0, tokens = 0;
    token_t first = {TOKEN_END, NULL, 0, 0};
    *out = (argument_t){.setting = {.literal = true}};
    for (;;) {
        token_t token = next_token(reader);
        if (token.kind == TOKEN_END)
            return false;
        const bool other = token.kind == TOKEN_OTHER && token.length == 1;
        if (other && depth == 0 && (*token.at == ')' || *token.at == ',')) {
            if (*token.at == ')')
                reader->at = token.at; /* the caller sees the end again */
            return tokens > 0 || *token.at == ',';
        }
        if (other && strchr("([{", *token.at) != NULL)
            depth++;
        else if (other && strchr(")]}", *token.at) != NULL)
            depth--;
        if (tokens == 0) {
            first = token;
            out->setting.line = token.line;
            out->unpacked = is(&token, "*");
        }
        if (tokens == 1 && is(&token, "=") && first.kind == TOKEN_NAME) {
            read_copy_text(out->setting.name, sizeof out->setting.name, first.at, first.length);
            out->setting.value[0] = '\0';
            out->setting.literal = true;
            tokens = 2;
            continue;
        }
        append(&out->setting, &token);
        tokens++;
        out->string = token.kind == TOKEN_STRING &&
                      (tokens == 1 || (tokens == 3 && out->setting.name[0] != '\0'));
    }
}

static bool at_end(const script_reader_t *reader)
{
    return reader->at < reader->end && *reader->at == ')';
}

static void take_loader(read_python_t *python, script_reader_t *reader, const token_t *name)
{
    static read_loader_t ignored;
    const bool kept = python->num_loaders < READ_LOADERS;
    read_loader_t *loader = kept ? &python->loaders[python->num_loaders++] : &ignored;
    argument_t argument;
    python->more_loaders += !kept;
    *loader = (read_loader_t){.line = name->line};
    read_copy_text(loader->name, sizeof loader->name, name->at, name->length);
    while (next_argument(reader, &argument)) {
        loader->unpacked |= argument.unpacked;
        if (argument.setting.name[0] != '\0')
            read_add_setting(loader->keywords, &loader->num_keywords, READ_KEYWORDS,
                             argument.setting);
        if (at_end(reader))
            break;
    }
}

/* add_argument('-w', '--num_workers', type=int, default=4) */
static void take_argument(read_python_t *python, script_reader_t *reader)
{
    read_setting_t setting = {.line = reader->line};
    argument_t argument;
    while (next_argument(reader, &argument)) {
        const read_setting_t *one = &argument.setting;
        if (one->name[0] == '\0' && argument.string && strncmp(one->value, "--", 2) == 0) {
            read_copy_text(setting.name, sizeof setting.name, one->value + 2,
                           strlen(one->value + 2));
            setting.line = one->line;
        } else if (strcmp(one->name, "default") == 0) {
            memcpy(setting.value, one->value, sizeof setting.value);
            setting.literal = one->literal;
        } else if (strcmp(one->name, "action") == 0 && strcmp(one->value, "store_true") == 0) {
            (void)snprintf(setting.value, sizeof setting.value, "False");
            setting.literal = true;
        } else if (strcmp(one->name, "action") == 0 && strcmp(one->value, "append") == 0) {
            setting.repeats = true;
        }
        if (at_end(reader))
            break;
    }
    if (setting.name[0] != '\0')
        read_add_setting(python->arguments, &python->num_arguments, READ_SETTINGS, setting);
}

static void take_dataset(read_python_t *python, const token_t *token, bool *several)
{
    char name[READ_NAME];
    if (token->length < 6 || token->length >= sizeof name || memcmp(token->at, "ogbn", 4) != 0)
        return;
    read_copy_text(name, sizeof name, token->at, token->length);
    *several |= python->dataset[0] != '\0' && strcmp(python->dataset, name) != 0;
    memcpy(python->dataset, name, sizeof name);
}

void read_python_file(const char *text, size_t size, read_python_t *python_out)
{
    script_reader_t reader = {text, text + size, 1};
    token_t before = {TOKEN_END, text, 0, 1};
    bool several = false;
    memset(python_out, 0, sizeof *python_out);
    for (token_t token; (token = next_token(&reader)).kind != TOKEN_END; before = token) {
        if (token.kind == TOKEN_STRING)
            take_dataset(python_out, &token, &several);
        if (token.kind != TOKEN_NAME)
            continue;
        python_out->handles_usr1 |=
            is(&token, "SIGUSR1") || is(&token, "lightning") || is(&token, "pytorch_lightning");
        python_out->torch |= is(&token, "torch") || is(&token, "torch_geometric");
        const bool call = reader.at < reader.end && *reader.at == '(' && !is(&before, "class") &&
                          !is(&before, "def");
        const bool loader =
            token.length > 6 && memcmp(token.at + token.length - 6, "Loader", 6) == 0;
        if (!call || (!loader && !is(&token, "add_argument")))
            continue;
        reader.at++;
        if (loader)
            take_loader(python_out, &reader, &token);
        else
            take_argument(python_out, &reader);
    }
    if (several)
        python_out->dataset[0] = '\0';
}
