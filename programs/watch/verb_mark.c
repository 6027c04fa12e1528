/* plimsoll mark: names a phase in the timeline of the watch around this process. */
#include "command/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: plimsoll mark TEXT...\n\n"
    "Names the phase that begins now in the timeline of plimsoll watch, such as 'epoch 5'. It\n"
    "appends a line to the file that PLIMSOLL_WATCH names, which any program can do itself:\n"
    "    echo \"epoch 5\" >> \"$PLIMSOLL_WATCH\"\n"
    "Without a watch it does nothing.\n";

/* The words with a blank between; control characters would be a second line or worse. */
static void join(char *const *words, char text_out[512])
{
    size_t used = 0;
    for (; *words != NULL && used < 510; words++) {
        if (used > 0)
            text_out[used++] = ' ';
        for (const char *c = *words; *c != '\0' && used < 510; c++)
            text_out[used++] = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
    }
    text_out[used] = '\n';
    text_out[used + 1] = '\0';
}

static int run(int argc, char **argv)
{
    cli_common_t common = {.verb = &cli_verb_mark};
    char text[512], message[1024];
    int exit_code;
    if (!cli_read_options(argc, argv, &common, &exit_code))
        return exit_code;
    if (optind == argc)
        return cli_wrong_use(&common, "give the name of a phase, like: plimsoll mark epoch 5");
    const char *path = getenv("PLIMSOLL_WATCH");
    cli_progress_begin(common.quiet);
    if (path == NULL || path[0] == '\0') {
        cli_remark("plimsoll mark: no plimsoll watch here (PLIMSOLL_WATCH is not set)");
        return CLI_DONE;
    }
    join(argv + optind, text);
    if (cli_mark(path, text))
        return CLI_DONE;
    (void)snprintf(message, sizeof message, "%.800s (PLIMSOLL_WATCH): %s", path,
                   errno == ENOENT ? "the watch has ended" : strerror(errno));
    return cli_failed_with(&common, PLIM_ERR_IO, message, NULL);
}

static const cli_group_t groups[] = {CLI_COMMON_GROUP, {.options = NULL}};

const cli_verb_t cli_verb_mark = {
    .name = "mark",
    .summary = "name a phase in the timeline of plimsoll watch",
    .help = help,
    .groups = groups,
    .run = run,
};
