/* Reads #SBATCH lines, variables and the Python command of a batch script. */
#include "doctor/batch_script.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool read_is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* "num-workers" and "NUM_WORKERS" are "num_workers". */
static bool same_name(const char *a, const char *b)
{
    while (*a != '\0' && *b != '\0') {
        const int left = *a == '-' ? '_' : tolower((unsigned char)*a);
        const int right = *b == '-' ? '_' : tolower((unsigned char)*b);
        if (left != right)
            return false;
        a++;
        b++;
    }
    return *a == *b;
}

const read_setting_t *read_find(const read_setting_t *settings, int count, const char *name)
{
    for (int i = count - 1; i >= 0; i--)
        if (same_name(settings[i].name, name))
            return &settings[i];
    return NULL;
}

void read_copy_text(char *out, size_t size, const char *text, size_t length)
{
    if (length > size - 1)
        length = size - 1;
    memcpy(out, text, length);
    out[length] = '\0';
}

void read_add_setting(read_setting_t *settings, int *count, int most, read_setting_t setting)
{
    if (*count < most)
        settings[(*count)++] = setting;
}

#define WORDS 128

/* A line of a shell, joined and cut into words without their quotes. */
typedef struct shell_line {
    char text[4096]; /* the words, each ended by NUL */
    int num_words;
    const char *words[WORDS];
    bool background; /* ends with & */
    int line;
} shell_line_t;

/* Whether the rest of a line ends with a single &. */
static bool ends_in_background(const char *at, const char *end)
{
    const char *last = memchr(at, '\n', (size_t)(end - at));
    last = last != NULL ? last : end;
    while (last > at && isspace((unsigned char)last[-1]))
        last--;
    return last - at >= 2 && last[-1] == '&' && last[-2] != '&';
}

/* Reads the next command, to the end of its line or to & ; |, with lines that a backslash joins.
 * Returns where the next one begins. */
static const char *next_line(const char *at, const char *end, int *line, shell_line_t *out)
{
    size_t used = 0;
    char quote = '\0';
    char previous = '\0';
    bool inside = false; /* of a word */
    out->num_words = 0;
    out->background = false;
    out->line = *line;
    for (; at < end && (*at != '\n' || quote != '\0'); previous = *at++) {
        const bool space = quote == '\0' && isspace((unsigned char)*at);
        *line += *at == '\n';
        if (*at == '\\' && quote != '\'' && at + 1 < end) {
            at++;
            *line += *at == '\n';
            if (*at == '\n')
                continue;
        } else if (quote == '\0' && !inside && *at == '#') {
            while (at < end && *at != '\n')
                at++;
            break;
        } else if (quote == '\0' && strchr("&;|", *at) != NULL && *at != '\0' && previous != '>' &&
                   (at + 1 == end || at[1] != '>')) {
            const bool twice = at + 1 < end && at[1] == *at;
            out->background = !twice && (*at == '&' || (*at == '|' && ends_in_background(at, end)));
            at += twice;
            break;
        } else if ((*at == '\'' || *at == '"') && (quote == '\0' || quote == *at)) {
            quote = quote == '\0' ? *at : '\0';
            if (quote == '\0')
                continue;
        } else if (space) {
            if (inside && used < sizeof out->text)
                out->text[used++] = '\0';
            inside = false;
            continue;
        }
        if (!inside) {
            if (out->num_words == WORDS || used >= sizeof out->text - 1)
                continue;
            out->words[out->num_words++] = out->text + used;
            inside = true;
        }
        if (!(quote == *at && (*at == '\'' || *at == '"')) && used < sizeof out->text - 1)
            out->text[used++] = *at;
    }
    out->text[used < sizeof out->text ? used : sizeof out->text - 1] = '\0';
    *line += at < end && *at == '\n';
    return at < end ? at + 1 : end;
}

/* Letters of sbatch's options that matter here. */
static const char *long_name(char letter)
{
    static const struct {
        char letter;
        const char *name;
    } names[] = {{'t', "time"},      {'c', "cpus-per-task"}, {'n', "ntasks"},  {'N', "nodes"},
                 {'p', "partition"}, {'a', "array"},         {'J', "job-name"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].letter == letter)
            return names[i].name;
    return NULL;
}

/* "#SBATCH --mem=4G -c 8 # comment" */
static void take_requests(read_batch_t *batch, const shell_line_t *line)
{
    for (int i = 0; i < line->num_words; i++) {
        const char *word = line->words[i];
        read_setting_t request = {.line = line->line, .literal = true};
        const char *value = "";
        if (strncmp(word, "--", 2) == 0) {
            const size_t length = strcspn(word + 2, "=");
            read_copy_text(request.name, sizeof request.name, word + 2, length);
            if (word[2 + length] == '=')
                value = word + 3 + length;
            else if (i + 1 < line->num_words && line->words[i + 1][0] != '-')
                value = line->words[++i];
        } else if (word[0] == '-' && long_name(word[1]) != NULL) {
            (void)snprintf(request.name, sizeof request.name, "%s", long_name(word[1]));
            if (word[2] != '\0')
                value = word + 2;
            else if (i + 1 < line->num_words)
                value = line->words[++i];
        } else {
            continue;
        }
        read_copy_text(request.value, sizeof request.value, value, strlen(value));
        read_add_setting(batch->requests, &batch->num_requests, READ_SETTINGS, request);
    }
}

/* Marks the variables that a word uses, and writes the word with the values of those that are
 * known. Returns whether all are. */
static bool expand(read_batch_t *batch, const char *word, char *out, size_t size)
{
    size_t used = 0;
    bool known = true;
    while (*word != '\0') {
        char name[READ_NAME];
        const bool braces = word[0] == '$' && word[1] == '{';
        const char *begin = word + (braces ? 2 : 1);
        size_t length = 0;
        if (word[0] == '$')
            while (read_is_letter(begin[length]))
                length++;
        if (length == 0) {
            known = known && *word != '$' && *word != '`';
            if (used < size - 1)
                out[used++] = *word;
            word++;
            continue;
        }
        read_copy_text(name, sizeof name, begin, length);
        word = begin + length;
        const char *value = NULL;
        for (int i = 0; i < batch->num_variables; i++)
            if (strcmp(batch->variables[i].name, name) == 0) {
                batch->variables[i].used = true;
                value = batch->variables[i].literal ? batch->variables[i].value : NULL;
            }
        if (braces && *word == '}')
            word++;
        else
            value = braces ? NULL : value;
        known = known && value != NULL;
        for (; value != NULL && *value != '\0' && used < size - 1; value++)
            out[used++] = *value;
    }
    out[used] = '\0';
    return known;
}

/* NAME=value, or "export NAME=value". False: a command follows. */
static bool take_variable(read_batch_t *batch, const shell_line_t *line)
{
    const bool export = line->num_words > 1 && strcmp(line->words[0], "export") == 0;
    for (int i = export ? 1 : 0; i < line->num_words; i++) {
        const char *word = line->words[i];
        size_t length = 0;
        while (read_is_letter(word[length]))
            length++;
        if (length == 0 || word[length] != '=' || isdigit((unsigned char)word[0]))
            return false;
        read_setting_t variable = {.line = line->line};
        read_copy_text(variable.name, sizeof variable.name, word, length);
        variable.literal = expand(batch, word + length + 1, variable.value, sizeof variable.value);
        read_add_setting(batch->variables, &batch->num_variables, READ_SETTINGS, variable);
    }
    return true;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), size = strlen(end);
    return length > size && strcmp(text + length - size, end) == 0;
}

static void take_options(read_batch_t *batch, const shell_line_t *line, int first)
{
    for (int i = first; i < line->num_words; i++) {
        const char *word = line->words[i];
        if (strncmp(word, "--", 2) != 0 || word[2] == '\0')
            continue;
        read_setting_t option = {.line = line->line, .literal = true};
        const size_t length = strcspn(word + 2, "=");
        read_copy_text(option.name, sizeof option.name, word + 2, length);
        if (word[2 + length] == '=')
            option.literal = expand(batch, word + 3 + length, option.value, sizeof option.value);
        else if (i + 1 < line->num_words && strncmp(line->words[i + 1], "--", 2) != 0)
            option.literal = expand(batch, line->words[i + 1], option.value, sizeof option.value);
        read_add_setting(batch->options, &batch->num_options, READ_SETTINGS, option);
    }
}

static void take_command(read_batch_t *batch, const shell_line_t *line)
{
    char word[512];
    int program = -1, script = -1;
    for (int i = 0; i < line->num_words; i++) {
        (void)expand(batch, line->words[i], word, sizeof word);
        const char *base = strrchr(word, '/') != NULL ? strrchr(word, '/') + 1 : word;
        if (program < 0 && (strncmp(base, "python", 6) == 0 || strcmp(base, "torchrun") == 0 ||
                            strcmp(base, "accelerate") == 0))
            program = i;
        else if (program >= 0 && script < 0 && ends_with(word, ".py"))
            script = i;
    }
    if (line->num_words > 2 && strcmp(line->words[0], "trap") == 0)
        for (int i = 2; i < line->num_words; i++)
            batch->traps_usr1 |= ends_with(line->words[i], "USR1") ||
                                 strcmp(line->words[i], "USR1") == 0 ||
                                 strcmp(line->words[i], "10") == 0;
    if (script < 0)
        return;
    if (batch->python[0] != '\0') {
        batch->more_commands++;
        return;
    }
    (void)expand(batch, line->words[script], batch->python, sizeof batch->python);
    batch->python_line = line->line;
    batch->python_background = line->background;
    for (int i = 0; i < program; i++)
        batch->python_srun |= strcmp(line->words[i], "srun") == 0;
    take_options(batch, line, script + 1);
}

void read_batch_script(const char *text, size_t size, read_batch_t *batch_out)
{
    static const char word[] = "#SBATCH";
    const char *at = text, *end = text + size;
    shell_line_t parts = {.num_words = 0};
    bool began = false; /* a command was read: requests end */
    int line = 1;
    memset(batch_out, 0, sizeof *batch_out);
    while (at < end) {
        const size_t left = (size_t)(end - at);
        if (left > sizeof word && memcmp(at, word, sizeof word - 1) == 0 &&
            isspace((unsigned char)at[sizeof word - 1])) {
            const int here = line;
            at = next_line(at + sizeof word - 1, end, &line, &parts);
            if (!began)
                take_requests(batch_out, &parts);
            else if (batch_out->late_line == 0)
                batch_out->late_line = here;
            continue;
        }
        at = next_line(at, end, &line, &parts);
        if (parts.num_words == 0)
            continue;
        began = true;
        if (!take_variable(batch_out, &parts))
            take_command(batch_out, &parts);
    }
}

int64_t read_slurm_bytes(const char *text)
{
    static const char units[] = "kmgt";
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    const char *unit = *end != '\0' ? strchr(units, *end | 0x20) : NULL;
    const int shift = unit != NULL ? 10 * (int)(unit - units + 1) : 20;
    if (end == text || errno != 0 || value < 0 || value >= (int64_t)1 << 22 << (40 - shift) ||
        (*end != '\0' && unit == NULL))
        return -1;
    return (int64_t)value << shift;
}

int64_t read_requested_memory(const char *text, size_t size)
{
    read_batch_t batch;
    read_batch_script(text, size, &batch);
    const read_setting_t *memory = read_find(batch.requests, batch.num_requests, "mem");
    return memory != NULL ? read_slurm_bytes(memory->value) : -1;
}
