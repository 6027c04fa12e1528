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

/* Settings whose option has another name, or other separators. */
static const struct {
    const char *setting, *option;
} renamed[] = {
    {"accumulation", "gradient-accumulation-steps"},
    {"activation", "act"},
    {"aggregation", "aggr"},
    {"batch_size", "batch"},
    {"checkpoint_seconds", "checkpoint-minutes"},
    {"checkpoint_steps", "checkpoint-every"},
    {"clip_norm", "clip"},
    {"io_engine", "io"},
    {"memory_steps", "memory-every"},
    {"num_classes", "classes"},
    {"num_edges", "edges"},
    {"num_features", "features"},
    {"num_layers", "layers"},
    {"num_nodes", "nodes"},
    {"optimiser", "optimizer"},
    {"rate", "lr"},
    {"schedule_epochs", "step-size"},
    {"schedule_factor", "gamma"},
    {"whole", "verify"},
};

/* The others. */
static const char *const same[] = {
    "kind",
    "layers",
    "dropout",
    "epochs",
    "eval_every",
    "eval_exact",
    "eval_fanout",
    "eval_splits",
    "exact",
    "eval_train",
    "fanout",
    "features",
    "heads",
    "hidden",
    "init",
    "loss",
    "memory",
    "metric",
    "model",
    "microbatch",
    "momentum",
    "normalise_features",
    "norm",
    "patience",
    "pool",
    "precision",
    "recompute",
    "relabel",
    "remove_duplicates",
    "residual",
    "row_cache",
    "scale",
    "schedule",
    "scratch",
    "seed",
    "self_loops",
    "shares",
    "split",
    "spread",
    "symmetrise",
    "targets",
    "threads",
    "tmp",
    "weight_decay",
    "weights",
};

static bool is(const char *name, const char *word, size_t size)
{
    return strlen(name) == size && memcmp(name, word, size) == 0;
}

/* The option of a setting without its dashes; NULL: the word names no setting. */
static const char *option_of(const char *word, size_t size)
{
    for (size_t i = 0; i < sizeof renamed / sizeof renamed[0]; i++)
        if (is(renamed[i].setting, word, size))
            return renamed[i].option;
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        if (is(same[i], word, size))
            return same[i];
    return NULL;
}

const char *cli_message_text(const char *message, char text_out[CLI_MESSAGE_MAX])
{
    char *to = text_out, *const end = text_out + CLI_MESSAGE_MAX - 1;
    for (const char *from = message; *from != '\0' && to < end;) {
        const char *close = *from == '`' ? strchr(from + 1, '`') : NULL;
        const char *option = NULL;
        if (close != NULL)
            option = option_of(from + 1, (size_t)(close - from - 1));
        if (option == NULL || strlen(option) + 2 > (size_t)(end - to)) {
            *to++ = *from++;
            continue;
        }
        *to++ = '-';
        *to++ = '-';
        for (; *option != '\0'; option++)
            *to++ = *option != '_' ? *option : '-';
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
