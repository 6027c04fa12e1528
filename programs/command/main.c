/* Finds the verb and runs it. */
#include "command/cli.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static void print_help(FILE *out)
{
    (void)fprintf(
        out, "usage: plimsoll VERB [options]\n\n"
             "Trains graph neural networks on graphs larger than memory. Everything stays under\n"
             "the memory line: the smallest memory limit of the job, or --memory.\n\nVerbs:\n");
    for (size_t i = 0; cli_verbs[i] != NULL; i++)
        (void)fprintf(out, "  %-10s %s\n", cli_verbs[i]->name, cli_verbs[i]->summary);
    (void)fprintf(
        out, "\nOptions:\n"
             "  --version    the version, and the MPI plugins; with --json also how it was built\n"
             "  -h, --help   this text\n"
             "\nplimsoll VERB --help and man plimsoll-VERB explain a verb.\n"
             "Exit codes: 0 done; 1 failed; 2 wrong use; 3 does not fit under the line or on\n"
             "the disk (nothing was started); 4 damaged or inconsistent data;\n"
             "5 training diverged (a loss, weight or prediction is not finite);\n"
             "6 the disk filled up (saved work stays, a run can be resumed);\n"
             "75 stopped, by a signal or because others took the memory (no partial output stays,\n"
             "a run can be resumed).\n");
}

static int run_verb(int argc, char **argv)
{
    cli_nearest_t nearest = {NULL, 0};
    char hint[96];
    for (size_t i = 0; cli_verbs[i] != NULL; i++) {
        if (strcmp(argv[0], cli_verbs[i]->name) == 0)
            return cli_verbs[i]->single && cli_ranks_idle(argv[0]) ? CLI_DONE
                                                                   : cli_verbs[i]->run(argc, argv);
        cli_nearest_try(&nearest, argv[0], cli_verbs[i]->name);
    }
    (void)fputs("plimsoll: there is no verb '", stderr);
    cli_print_text(stderr, argv[0]);
    (void)fprintf(stderr, "'%s%s plimsoll --help lists them%s\n",
                  cli_nearest_text(&nearest, "", hint), nearest.word == NULL ? ";" : "",
                  argv[0][0] == '-' ? " (options come after the verb)" : "");
    return CLI_WRONG_USE;
}

static void print_version(bool json)
{
    json_t *plugins = cli_ranks_plugins();
    if (json) {
        cli_print_json(json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "version", PLIM_VERSION,
                                 "library_version", plim_version(), "compiler", PLIM_COMPILER,
                                 "build_type", PLIM_BUILD_TYPE, "onednn", PLIM_ONEDNN_SONAME,
                                 "mpi_plugins", plugins));
        return;
    }
    size_t i;
    json_t *plugin;
    (void)printf("plimsoll %s\n", PLIM_VERSION);
    json_array_foreach(plugins, i, plugin)
    {
        const json_t *mpi = json_object_get(plugin, "mpi");
        (void)printf("plugin %s: ", json_string_value(json_object_get(plugin, "name")));
        cli_print_text(stdout,
                       json_string_value(mpi != NULL ? mpi : json_object_get(plugin, "error")));
        (void)fputc('\n', stdout);
    }
    json_decref(plugins);
}

static int run(int argc, char **argv)
{
    static char help_option[] = "--help";
    if (argc < 2) {
        print_help(stderr);
        return CLI_WRONG_USE;
    }
    if (strcmp(argv[1], "help") == 0 && argc > 2) {
        char *arguments[] = {argv[2], help_option, NULL};
        return run_verb(2, arguments);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return CLI_DONE;
    }
    if (strcmp(argv[1], "--complete") == 0) {
        cli_complete(argc - 2, argv + 2);
        return CLI_DONE;
    }
    if (strcmp(argv[1], "--describe") == 0) {
        cli_describe();
        return CLI_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        print_version(argc > 2 && strcmp(argv[2], "--json") == 0);
        return CLI_DONE;
    }
    return run_verb(argc - 1, argv + 1);
}

/* Stack of the main thread: 132 KiB were measured; arguments and environment may add 128. */
#define STACK_BYTES ((rlim_t)512 << 10)

static bool stack_suffices(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= STACK_BYTES)
        return true;
    (void)fprintf(stderr,
                  "plimsoll: the stack limit is %lld KiB, %lld are needed; type: ulimit -s %lld\n",
                  (long long)(limit.rlim_cur >> 10), (long long)(STACK_BYTES >> 10),
                  (long long)(STACK_BYTES >> 10));
    return false;
}

int main(int argc, char **argv)
{
#ifdef M_ARENA_MAX
    /* glibc gives each thread a heap with 64 MiB of address space. Only libraries allocate here,
     * and little, so one heap is enough. */
    (void)mallopt(M_ARENA_MAX, 1);
#endif
    /* A write past ulimit -f then fails with EFBIG, like a full disk. */
    (void)signal(SIGXFSZ, SIG_IGN);
    if (!stack_suffices())
        return CLI_DOES_NOT_FIT;
    int code = run(argc, argv);
    const int lost = cli_check_output();
    code = code != CLI_DONE ? code : lost;
    cli_ranks_leave(code);
    return code;
}
