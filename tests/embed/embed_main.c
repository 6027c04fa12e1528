/* The scene of embed.c in a C program, twice. */
#include <plimsoll/job.h>

#include <stdio.h>
#include <stdlib.h>

int embed_run(const char *directory, plim_log_fn log);

static int run_once(void)
{
    char directory[] = "/tmp/plimsoll-embed-XXXXXX";
    char command[64];
    if (mkdtemp(directory) == NULL)
        return 1;
    const int failed = embed_run(directory, NULL);
    (void)snprintf(command, sizeof command, "rm -rf %s", directory);
    return system(command) != 0 || failed != 0;
}

int main(void)
{
    return run_once() != 0 || run_once() != 0;
}
