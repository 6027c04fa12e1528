/* The front door: finds the verb. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

static const cli_verb_t *const verbs[] = {&cli_verb_limit};

#define NUM_VERBS (sizeof verbs / sizeof verbs[0])

static void print_help(FILE *out)
{
    (void)fprintf(
        out, "usage: plimsoll VERB [options]\n\n"
             "Trains graph neural networks on graphs larger than memory, and never loads past\n"
             "the memory line.\n\nVerbs:\n");
    for (size_t i = 0; i < NUM_VERBS; i++)
        (void)fprintf(out, "  %-10s %s\n", verbs[i]->name, verbs[i]->summary);
    (void)fprintf(out,
                  "\nplimsoll VERB --help explains one of them; so does man plimsoll-VERB.\n"
                  "Exit codes: 0 done; 1 failed; 2 wrong use; 3 does not fit under the line or on\n"
                  "the disk (nothing was started); 4 the data is damaged or not what it says.\n");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return CLI_WRONG_USE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return CLI_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        (void)printf("plimsoll %s\n", PLIM_VERSION);
        return CLI_DONE;
    }
    for (size_t i = 0; i < NUM_VERBS; i++)
        if (strcmp(argv[1], verbs[i]->name) == 0)
            return verbs[i]->run(argc - 1, argv + 1);
    (void)fprintf(stderr, "plimsoll: there is no verb '%s'; plimsoll --help lists them\n", argv[1]);
    return CLI_WRONG_USE;
}
