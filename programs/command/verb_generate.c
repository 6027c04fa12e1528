/* `plimsoll generate`: writes a dataset of a named shape. */
#include "command/cli.h"

#include <string.h>

typedef struct generate {
    cli_common_t common;
    plim_generate_options_t options;
} generate_t;

static int run(int argc, char **argv)
{
    generate_t generate = {.common = {.verb = &cli_verb_generate},
                           .options = PLIM_GENERATE_OPTIONS_INIT};
    const cli_common_t *common = &generate.common;
    plim_generate_options_t *options = &generate.options;
    plim_job_t *job;
    char hint[192];
    int exit_code;
    if (!cli_read_options(argc, argv, &generate, &exit_code))
        return exit_code;
    if (argc - optind != 2)
        return cli_wrong_use(
            common, "give a shape and the directory to make, like: plimsoll generate arxiv DIR");
    options->shape = cli_shape_named(argv[optind], hint);
    if (options->shape == NULL)
        return cli_wrong_use(common, "there is no shape '%s'%s", argv[optind], hint);
    options->target = argv[optind + 1];
    if (strcmp(options->shape, "free") == 0 && !cli_check_free_shape(common))
        return CLI_WRONG_USE;
    plim_status_t status = cli_job_start(common, &job);
    if (status != PLIM_OK)
        return cli_failed(common, status);
    status = plim_generate(job, options);
    if (status == PLIM_OK)
        status = cli_print_dataset(common, job, options->target);
    cli_job_end(job);
    return status == PLIM_OK ? CLI_DONE : cli_failed(common, status);
}

static const cli_option_t own_options[] = {
    {"seed", "S", "another graph of the same shape; default 0",
     CLI_AT(plim_generate_options_t, seed), .kind = CLI_SEED},
    {"tmp", "DIR", "directory of temporary files; default: next to the target",
     "They take about 8 bytes an edge.", CLI_AT(plim_generate_options_t, tmp), .kind = CLI_TEXT},
    CLI_OPTIONS_END};

static const cli_group_t groups[] = {
    {.title = "Options", .options = cli_shape_options, .base = offsetof(generate_t, options)},
    {.options = own_options, .base = offsetof(generate_t, options)},
    {.options = cli_shape_count_options, .base = offsetof(generate_t, options)},
    CLI_COMMON_GROUP,
    {.options = NULL}};

const cli_verb_t cli_verb_generate = {
    .name = "generate",
    .single = true,
    .summary = "make a dataset of a named shape, of any size",
    .help =
        "usage: plimsoll generate SHAPE DIR [options]\n"
        "       plimsoll generate free DIR --nodes N --edges E --features F --classes C\n\n"
        "Makes the dataset directory DIR: a graph with exactly the shape's counts, heavy-tailed\n"
        "degrees, communities that carry the label and features that carry part of it. The same\n"
        "options give the same bytes, whatever the memory, threads and machine; where DIR is that\n"
        "dataset already, nothing is done.\n\n"
        "Shapes: papers100M, products, arxiv, reddit; free takes its counts from options.\n"
        "molecules are 100,000 small graphs (times --scale) of atoms and bonds with integer\n"
        "categories, and a value of each graph to which bonds contribute most.\n",
    .groups = groups,
    .first_operand = cli_shapes,
    .operand = ":directory",
    .run = run,
};
