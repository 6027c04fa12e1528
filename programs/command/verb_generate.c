/* `plimsoll generate`: writes a dataset of a named shape. */
#include "command/cli.h"

#include <string.h>

enum { OPTION_SEED = CLI_OPTION_OWN, OPTION_TMP };

static const struct option long_options[] = {CLI_SHAPE_OPTIONS,
                                             {"seed", required_argument, NULL, OPTION_SEED},
                                             {"tmp", required_argument, NULL, OPTION_TMP},
                                             CLI_COMMON_OPTIONS};

static int run(int argc, char **argv)
{
    plim_generate_options_t options = PLIM_GENERATE_OPTIONS_INIT;
    cli_common_t common = {.verb = &cli_verb_generate};
    plim_job_t *job;
    unsigned given = 0;
    char hint[192];
    int exit_code, code;
    while ((code = cli_next_option(argc, argv, long_options, &common, &exit_code)) != -1) {
        if (code == -2)
            return exit_code;
        if (code == OPTION_TMP)
            options.tmp = optarg;
        else if (!(code == OPTION_SEED ? cli_parse_seed(&common, &options.seed)
                                       : cli_take_shape_option(&common, code, &options, &given)))
            return CLI_WRONG_USE;
    }
    if (argc - optind != 2)
        return cli_wrong_use(&common, "a shape and a target directory are needed");
    options.shape = cli_shape_named(argv[optind], hint);
    if (options.shape == NULL)
        return cli_wrong_use(&common, "there is no shape '%s'%s", argv[optind], hint);
    options.target = argv[optind + 1];
    if (strcmp(options.shape, "free") == 0 && !cli_check_free_shape(&common, given))
        return CLI_WRONG_USE;
    plim_status_t status = cli_job_start(&common, &job);
    if (status != PLIM_OK)
        return cli_failed(&common, status);
    status = plim_generate(job, &options);
    if (status == PLIM_OK)
        status = cli_print_dataset(&common, job, options.target);
    cli_job_end(job);
    return status == PLIM_OK ? CLI_DONE : cli_failed(&common, status);
}

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
        "Shapes: papers100M, products, arxiv, reddit; free takes its counts from options.\n\n"
        "  --scale X        nodes, edges and splits times X (0.01: a hundredth)\n"
        "  --spread S       0: the shape's own locality … 1: neighbours without any\n"
        "  --seed S         another graph of the same shape; default 0\n"
        "  --dtype TYPE     of the features, f16 or f32; default: the shape's\n"
        "  --tmp DIR        directory of temporary files; default: next to the target\n"
        "  --nodes N        counts of the free shape, all four of them; 1000000, 1M and\n"
        "  --edges E        1.5G are numbers\n"
        "  --features F\n"
        "  --classes C\n",
    .run = run,
};
