/* plimsoll limit: every limit found, and which one is the line. */
#include "command/cli.h"

#include <stdio.h>
#include <string.h>

static const char help[] =
    "usage: plimsoll limit [options]\n\n"
    "Prints every limit on the memory and the threads of a job started here: --memory, control\n"
    "groups (v1, v2, in containers too), ulimit, Slurm's variables, the host's free memory. The\n"
    "smallest is the line; all other verbs stay under it. Limits that several MPI ranks on this\n"
    "node share are divided among them. Warns if this looks like a login node.\n";

/* How to raise a limit. The first entry that matches is printed. */
static const struct {
    const char *part; /* substring of the source */
    const char *hint;
} hints[] = {
    {"--memory", "raise --memory, up to the next smallest limit above"},
    {"SLURM_MEM_PER_CPU", "ask Slurm for more with --mem-per-cpu, or for more CPUs"},
    {"SLURM_MEM_PER_GPU", "ask Slurm for more with --mem-per-gpu"},
    {"SLURM_", "ask Slurm for more with --mem"},
    {"slurm", "ask Slurm for more with --mem (or --mem-per-cpu)"},
    {"user.slice", "this is the limit of a user's session here; a job may have more"},
    {"RLIMIT_AS", "raise it with ulimit -v"},
    {"RLIMIT_DATA", "raise it with ulimit -d"},
    {"cgroup", "raise the container's or service's limit (docker run --memory, "
               "resources.limits.memory, MemoryMax=)"},
    {"host", "end what else runs here, or use a machine with more memory"},
};

const char *cli_limit_hint(const char *source)
{
    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++)
        if (strstr(source, hints[i].part) != NULL)
            return hints[i].hint;
    return NULL;
}

static json_t *limit_list(const plim_limit_t *list, int count, const char *unit)
{
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        (void)json_array_append_new(array,
                                    json_pack("{s:o, s:I}", "source", cli_json_text(list[i].source),
                                              unit, (json_int_t)list[i].value));
    return array;
}

static void print_json(const plim_limits_t *limits)
{
    const plim_limit_t *line = &limits->memory[limits->line];
    const plim_limit_t *threads = &limits->threads[limits->threads_line];
    json_t *object =
        json_pack("{s:I, s:o, s:o, s:I, s:o, s:o, s:i, s:b}", "line_bytes", (json_int_t)line->value,
                  "line_source", cli_json_text(line->source), "limits",
                  limit_list(limits->memory, limits->num_memory, "bytes"), "threads",
                  (json_int_t)threads->value, "threads_source", cli_json_text(threads->source),
                  "thread_limits", limit_list(limits->threads, limits->num_threads, "threads"),
                  "local_ranks", limits->local_ranks, "login_node", (int)limits->login_node);
    if (limits->login_node)
        (void)json_object_set_new(object, "login_why", cli_json_text(limits->login_why));
    cli_print_json(object);
}

static void print_text(const plim_limits_t *limits)
{
    char text[24];
    (void)printf("Memory\n");
    for (int i = 0; i < limits->num_memory; i++)
        (void)printf("%s %10s  %s\n", i == limits->line ? "->" : "  ",
                     plim_size_text(limits->memory[i].value, text), limits->memory[i].source);
    (void)printf("Threads\n");
    for (int i = 0; i < limits->num_threads; i++)
        (void)printf("%s %10lld  %s\n", i == limits->threads_line ? "->" : "  ",
                     (long long)limits->threads[i].value, limits->threads[i].source);
    const plim_limit_t *line = &limits->memory[limits->line];
    (void)printf("\nThe line is %s.", plim_size_text(line->value, text));
    const char *hint = cli_limit_hint(line->source);
    if (hint != NULL)
        (void)printf(" If that is too little: %s.", hint);
    (void)printf("\n");
    if (limits->local_ranks > 1)
        (void)printf("%d ranks share this node and divide its limits.\n", limits->local_ranks);
    if (limits->login_node)
        (void)printf("This looks like a login node: %s. Submit long work as a job "
                     "(sbatch, srun), which has its own limits.\n",
                     limits->login_why);
}

static int run(int argc, char **argv)
{
    static plim_limits_t limits;
    cli_common_t common = {.verb = &cli_verb_limit};
    int exit_code;
    if (!cli_read_options(argc, argv, &common, &exit_code))
        return exit_code;
    if (optind < argc)
        return cli_wrong_use(&common, "it takes no argument, but here is '%s'", argv[optind]);
    plim_status_t status = cli_find_limits(&common, &limits);
    if (status != PLIM_OK)
        return cli_failed(&common, status);
    if (common.json)
        print_json(&limits);
    else
        print_text(&limits);
    return CLI_DONE;
}

static const cli_group_t groups[] = {CLI_COMMON_GROUP, {.options = NULL}};

const cli_verb_t cli_verb_limit = {
    .name = "limit",
    .summary = "print the memory and thread limits of this job and their sources",
    .help = help,
    .groups = groups,
    .run = run,
};
