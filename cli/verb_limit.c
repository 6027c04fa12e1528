#include "cli.h"

#include <stdio.h>

static int run(int argc, char **argv)
{
    static const struct option options[] = {CLI_COMMON_OPTIONS};
    cli_common_t common = {.verb = &cli_verb_limit};
    int exit_code;
    int code;
    while ((code = cli_next_option(argc, argv, options, &common, &exit_code)) != -1)
        if (code == -2)
            return exit_code;
    plim_limits_t limits;
    plim_limit_options_t wish = {common.memory, common.threads, NULL, NULL};
    plim_status_t status = plim_limits_discover(&wish, &limits);
    if (status != PLIM_OK)
        return cli_failed(&common, status);
    char text[24];
    for (int i = 0; i < limits.num_memory; i++)
        (void)printf("%s %s\n", plim_size_text(limits.memory[i].value, text),
                     limits.memory[i].source);
    return CLI_DONE;
}

const cli_verb_t cli_verb_limit = {
    .name = "limit",
    .summary = "what memory and threads this job really has, and who says so",
    .help = "usage: plimsoll limit [options]\n",
    .run = run,
};
