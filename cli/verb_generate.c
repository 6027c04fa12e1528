#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPTION_SCALE = CLI_OPTION_OWN,
    OPTION_SPREAD,
    OPTION_SEED,
    OPTION_TMP,
    OPTION_NODES,
    OPTION_EDGES,
    OPTION_FEATURES,
    OPTION_CLASSES,
    OPTION_DTYPE
};

static const struct option long_options[] = {{"scale", required_argument, NULL, OPTION_SCALE},
                                             {"spread", required_argument, NULL, OPTION_SPREAD},
                                             {"seed", required_argument, NULL, OPTION_SEED},
                                             {"tmp", required_argument, NULL, OPTION_TMP},
                                             {"nodes", required_argument, NULL, OPTION_NODES},
                                             {"edges", required_argument, NULL, OPTION_EDGES},
                                             {"features", required_argument, NULL, OPTION_FEATURES},
                                             {"classes", required_argument, NULL, OPTION_CLASSES},
                                             {"dtype", required_argument, NULL, OPTION_DTYPE},
                                             CLI_COMMON_OPTIONS};

static bool parse_double(const cli_common_t *common, const char *option, double *value_out)
{
    char *end;
    errno = 0;
    *value_out = strtod(optarg, &end);
    if (errno == 0 && end != optarg && *end == '\0')
        return true;
    (void)cli_wrong_use(common, "%s: '%s' is not a number", option, optarg);
    return false;
}

/* False when the option's value is none, already said. */
static bool take_option(int code, const cli_common_t *common, plim_generate_options_t *options)
{
    const int64_t most = INT64_MAX;
    switch (code) {
    case OPTION_SCALE:
        return parse_double(common, "--scale", &options->scale);
    case OPTION_SPREAD:
        return parse_double(common, "--spread", &options->spread);
    case OPTION_SEED:
        return cli_parse_seed(common, &options->seed);
    case OPTION_TMP:
        options->tmp = optarg;
        return true;
    case OPTION_NODES:
        return cli_parse_int(common, "--nodes", optarg, 1, most, &options->num_nodes);
    case OPTION_EDGES:
        return cli_parse_int(common, "--edges", optarg, 0, most, &options->num_edges);
    case OPTION_FEATURES:
        return cli_parse_int(common, "--features", optarg, 0, most, &options->num_features);
    case OPTION_CLASSES:
        return cli_parse_int(common, "--classes", optarg, 1, most, &options->num_classes);
    default:
        if (strcmp(optarg, "f16") != 0 && strcmp(optarg, "f32") != 0) {
            (void)cli_wrong_use(common, "--dtype is f16 or f32, not '%s'", optarg);
            return false;
        }
        options->features = strcmp(optarg, "f16") == 0 ? PLIM_F16 : PLIM_F32;
        return true;
    }
}

static int run(int argc, char **argv)
{
    plim_generate_options_t options = PLIM_GENERATE_OPTIONS_INIT;
    cli_common_t common = {.verb = &cli_verb_generate};
    plim_limits_t limits;
    plim_job_t *job;
    unsigned counts = 0; /* one bit for each of the free shape's */
    int exit_code;
    int code;
    while ((code = cli_next_option(argc, argv, long_options, &common, &exit_code)) != -1) {
        if (code == -2)
            return exit_code;
        if (!take_option(code, &common, &options))
            return CLI_WRONG_USE;
        if (code >= OPTION_NODES && code <= OPTION_CLASSES)
            counts |= 1U << (code - OPTION_NODES);
    }
    if (argc - optind != 2)
        return cli_wrong_use(&common, "a shape and a target directory are needed");
    options.shape = argv[optind];
    options.target = argv[optind + 1];
    if (strcmp(options.shape, "free") == 0 && counts != 0xf)
        return cli_wrong_use(&common,
                             "the free shape needs --nodes, --edges, --features and --classes");
    plim_status_t status = cli_job_start(&common, &job, &limits);
    if (status != PLIM_OK)
        return cli_failed(&common, status);
    status = plim_generate(job, &options);
    if (status == PLIM_OK)
        status = cli_say_made(&common, job, options.target);
    cli_job_end(job);
    return status == PLIM_OK ? CLI_DONE : cli_failed(&common, status);
}

const cli_verb_t cli_verb_generate = {
    .name = "generate",
    .summary = "make a dataset of a named shape, of any size",
    .help =
        "usage: plimsoll generate SHAPE DIR [options]\n"
        "       plimsoll generate free DIR --nodes N --edges E --features F --classes C\n\n"
        "Makes the dataset directory DIR: a graph with exactly the shape's counts, heavy-tailed\n"
        "degrees, communities that carry the label and features that carry part of it. The same\n"
        "options give the same bytes, whatever the memory, threads and machine.\n\n"
        "Shapes: papers100M, products, arxiv, reddit; free takes its counts from options.\n\n"
        "  --scale X        nodes, edges and splits times X (0.01: a hundredth)\n"
        "  --spread S       0: the shape's own locality … 1: neighbours without any\n"
        "  --seed S         another graph of the same shape; default 0\n"
        "  --dtype TYPE     of the features, f16 or f32; default: the shape's\n"
        "  --tmp DIR        where edges wait to be sorted; default: beside the target\n"
        "  --nodes N        counts of the free shape, all four of them; 1000000, 1M and\n"
        "  --edges E        1.5G are numbers\n"
        "  --features F\n"
        "  --classes C\n",
    .run = run,
};
