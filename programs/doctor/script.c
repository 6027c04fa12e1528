/* Finds habits that cost memory in the lines of a Python script. */
#include "doctor/script.h"

#include "base/printable.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LINE_MAX_READ 1024
#define MANY_WORKERS 8

const char *doctor_habit_name(doctor_habit_t habit)
{
    static const char *const names[] = {"loss_list", "loss_sum", "output_list", "pinned_workers",
                                        "evaluation_gradients"};
    return names[habit];
}

const char *doctor_habit_remedy(doctor_habit_t habit)
{
    static const char *const remedies[] = {
        "append loss.item(): the tensor keeps all activations of its step",
        "add loss.item() or loss.detach(): the sum keeps all activations of every step",
        "append out.detach().cpu(): the tensor keeps all activations of its batch, or its place "
        "on the GPU",
        "pin_memory=False, or fewer workers: pinned batches of many workers cannot be swapped or "
        "taken back",
        "evaluate under torch.no_grad(): otherwise activations are kept for a backward pass that "
        "never comes"};
    return remedies[habit];
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) != 0 || c == '_';
}

/* Where `word` stands as a whole word; NULL: nowhere. */
static const char *find_word(const char *text, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        if ((at == text || !is_word(at[-1])) && !is_word(at[length]))
            return at;
    return NULL;
}

/* Copies the code of a line: without comments, and with texts as "". Keeps track of texts in
 * triple quotes. */
static void copy_code(doctor_script_t *script, const char *line, size_t length, char *code)
{
    size_t used = 0;
    for (size_t i = 0; i < length && used < LINE_MAX_READ - 3; i++) {
        const char c = line[i];
        const bool triple = i + 2 < length && line[i + 1] == c && line[i + 2] == c;
        if (script->quote != 0) {
            if (c == script->quote && triple) {
                script->quote = 0;
                i += 2;
            }
        } else if (c == '#') {
            break;
        } else if ((c == '"' || c == '\'') && triple) {
            script->quote = c;
            i += 2;
        } else if (c == '"' || c == '\'') {
            while (++i < length && line[i] != c)
                i += line[i] == '\\';
            code[used++] = '"';
            code[used++] = '"';
        } else {
            code[used++] = c;
        }
    }
    while (used > 0 && isspace((unsigned char)code[used - 1]))
        used--;
    code[used] = '\0';
}

static doctor_found_habit_t habit_of(const doctor_script_t *script, doctor_habit_t habit,
                                     const char *code)
{
    doctor_found_habit_t found = {.habit = habit, .line = script->line};
    code += strspn(code, " \t");
    plim__text_printable(code, strlen(code), found.code, sizeof found.code);
    return found;
}

static void add_habit(doctor_script_t *script, doctor_found_habit_t found)
{
    if (script->num_habits < DOCTOR_HABITS)
        script->habits[script->num_habits++] = found;
}

/* Whether the value of an expression holds no graph. */
static bool is_detached(const char *text)
{
    static const char *const words[] = {".item(",   ".detach(", ".tolist(",  ".numpy(",
                                        ".argmax(", ".data",    "float(",    ".cpu(",
                                        ".max(",    "int(",     ".argsort(", ".topk("};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strstr(text, words[i]) != NULL)
            return true;
    return false;
}

/* "loss", "train_loss", "out.loss": one name, whose last part ends in "loss". */
static bool is_loss(const char *begin, const char *end)
{
    for (const char *at = begin; at < end; at++)
        if (!is_word(*at) && *at != '.')
            return false;
    return end - begin >= 4 && strncasecmp(end - 4, "loss", 4) == 0;
}

static bool is_output(const char *begin, const char *end)
{
    static const char *const names[] = {"out",    "output", "outputs", "pred", "preds", "logits",
                                        "y_pred", "y_hat",  "emb",     "h",    "z"};
    if (end - begin > 6 && strncmp(begin, "model(", 6) == 0 && end[-1] == ')')
        return true;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == (size_t)(end - begin) &&
            strncmp(begin, names[i], (size_t)(end - begin)) == 0)
            return true;
    return false;
}

static void look_at_append(doctor_script_t *script, const char *code, bool guarded)
{
    const char *begin = strstr(code, ".append("), *end = code + strlen(code);
    if (begin == NULL || end[-1] != ')' || is_detached(begin))
        return;
    begin += 8;
    end--;
    while (begin < end && isspace((unsigned char)*begin))
        begin++;
    while (begin < end && isspace((unsigned char)end[-1]))
        end--;
    if (!guarded && is_loss(begin, end))
        add_habit(script, habit_of(script, DOCTOR_HABIT_LOSS_LIST, code));
    else if (!guarded && is_output(begin, end))
        add_habit(script, habit_of(script, DOCTOR_HABIT_OUTPUT_LIST, code));
}

/* "total += loss", "total = total + loss * n". */
static void look_at_sum(doctor_script_t *script, const char *code, bool guarded)
{
    const char *name = code + strspn(code, " \t"), *end = name;
    while (is_word(*end) || *end == '.')
        end++;
    const char *at = end + strspn(end, " ");
    const size_t length = (size_t)(end - name);
    char target[48];
    if (guarded || length == 0 || length >= sizeof target)
        return;
    (void)snprintf(target, sizeof target, "%.*s", (int)length, name);
    if (strncmp(at, "+=", 2) == 0)
        at += 2;
    else if (*at == '=' && at[1] != '=' && find_word(at + 1, target) != NULL &&
             strchr(at, '+') != NULL)
        at = strchr(at, '+') + 1;
    else
        return;
    at += strspn(at, " ");
    end = at;
    while (is_word(*end) || *end == '.')
        end++;
    if (!is_loss(at, end) || *end == '(' || is_detached(at))
        return;
    doctor_found_habit_t found = habit_of(script, DOCTOR_HABIT_LOSS_SUM, code);
    (void)snprintf(found.name, sizeof found.name, "%s", target);
    add_habit(script, found);
}

/* Names whose backward() is called: what is added to them is meant to keep its graph. */
static void look_at_backward(doctor_script_t *script, const char *code)
{
    const char *at = strstr(code, ".backward(");
    const char *begin = at;
    if (at == NULL || script->num_backward == DOCTOR_NAMES)
        return;
    if (at > code && at[-1] == ')') { /* scaler.scale(loss).backward() */
        begin = --at;
        while (begin > code && is_word(begin[-1]))
            begin--;
    }
    while (begin > code && (is_word(begin[-1]) || begin[-1] == '.'))
        begin--;
    (void)snprintf(script->backward[script->num_backward++], sizeof script->backward[0], "%.*s",
                   (int)(at - begin), begin);
}

static void look_at_call(doctor_script_t *script, const char *code)
{
    const char *workers = find_word(code, "num_workers");
    const bool began = script->brackets == 0;
    if (began) {
        script->pinned = false;
        script->workers = 0;
        script->call_line = 0;
    }
    if (strstr(code, "pin_memory=True") != NULL || strstr(code, "pin_memory = True") != NULL) {
        script->pinned = true;
        script->call_line = script->line;
    }
    if (workers != NULL) {
        workers += strlen("num_workers");
        workers += strspn(workers, " =");
        script->workers = (int)strtol(workers, NULL, 10);
    }
    for (const char *at = code; *at != '\0'; at++)
        script->brackets += strchr("([{", *at) != NULL ? 1 : strchr(")]}", *at) != NULL ? -1 : 0;
    script->brackets = script->brackets < 0 ? 0 : script->brackets;
    if (script->brackets == 0 && script->pinned && script->workers >= MANY_WORKERS) {
        doctor_found_habit_t found = habit_of(script, DOCTOR_HABIT_PINNED, code);
        found.line = script->call_line;
        add_habit(script, found);
        script->pinned = false;
    }
}

static bool turns_gradients_off(const char *code)
{
    return strstr(code, "no_grad") != NULL || strstr(code, "inference_mode") != NULL ||
           strstr(code, "set_grad_enabled(False)") != NULL;
}

static void end_function(doctor_script_t *script)
{
    if (script->function.evaluates && !script->function.guarded && !script->function.trains &&
        script->function.whole && script->function.call.line > 0)
        add_habit(script, script->function.call);
    memset(&script->function, 0, sizeof script->function);
}

/* "def test(loader):": a name that speaks of evaluation. */
static bool is_evaluation(const char *code)
{
    static const char *const words[] = {"eval", "test", "valid", "infer", "predict"};
    const char *name = find_word(code, "def");
    const char *end = name != NULL ? strchr(name, '(') : NULL;
    for (size_t i = 0; end != NULL && i < sizeof words / sizeof words[0]; i++) {
        const char *at = strstr(name, words[i]);
        if (at != NULL && at < end)
            return true;
    }
    return false;
}

static void follow_function(doctor_script_t *script, const char *code, int indent)
{
    const char *first = code + indent;
    const bool definition = strncmp(first, "def ", 4) == 0 || strncmp(first, "async def ", 10) == 0;
    if (script->function.evaluates && indent <= script->function.indent)
        end_function(script);
    if (definition && !script->function.evaluates && is_evaluation(code)) {
        script->function.evaluates = true;
        script->function.indent = indent;
        script->function.guarded = script->decorated;
    }
    if (*first == '@')
        script->decorated = script->decorated || turns_gradients_off(code);
    else
        script->decorated = false;
    if (!script->function.evaluates || definition)
        return;
    script->function.guarded = script->function.guarded || turns_gradients_off(code);
    script->function.trains = script->function.trains || strstr(code, ".backward(") != NULL;
    script->function.whole =
        script->function.whole || strncmp(first, "for ", 4) == 0 || strstr(code, ".eval()") != NULL;
    const char *call = find_word(code, "model");
    if (script->function.call.line == 0 && call != NULL && call[5] == '(')
        script->function.call = habit_of(script, DOCTOR_HABIT_GRADIENTS, code);
}

void doctor_script_line(doctor_script_t *script, int64_t number, const char *line, size_t length)
{
    char code[LINE_MAX_READ];
    const bool in_text = script->quote != 0;
    script->line = number;
    copy_code(script, line, length, code);
    const int indent = (int)strspn(code, " \t");
    if (code[indent] == '\0' || in_text)
        return;
    if (script->brackets == 0) {
        const bool off_by_decorator = script->decorated && code[indent] != '@';
        follow_function(script, code, indent);
        if (indent < script->guard)
            script->guard = 0;
        if (script->guard == 0 && (off_by_decorator || (strncmp(code + indent, "with ", 5) == 0 &&
                                                        turns_gradients_off(code))))
            script->guard = indent + 1;
    }
    const bool guarded = script->guard > 0 || script->function.guarded;
    look_at_append(script, code, guarded);
    look_at_sum(script, code, guarded);
    look_at_backward(script, code);
    look_at_call(script, code);
}

void doctor_script_end(doctor_script_t *script)
{
    int kept = 0;
    end_function(script);
    for (int i = 0; i < script->num_habits; i++) {
        bool trained = false;
        for (int k = 0; k < script->num_backward; k++)
            trained = trained || (script->habits[i].habit == DOCTOR_HABIT_LOSS_SUM &&
                                  strcmp(script->habits[i].name, script->backward[k]) == 0);
        if (!trained)
            script->habits[kept++] = script->habits[i];
    }
    script->num_habits = kept;
}
