#include "cli.h"

#include <string.h>

enum {
    OPTION_SYMMETRISE = CLI_OPTION_OWN,
    OPTION_REMOVE_DUPLICATES,
    OPTION_SELF_LOOPS,
    OPTION_RELABEL,
    OPTION_FEATURES,
    OPTION_NORMALISE_FEATURES,
    OPTION_NODES,
    OPTION_TMP
};

/* One option of this verb; false when its value is wrong, already said. */
static bool take_option(const cli_common_t *common, int code, plim_import_options_t *wish)
{
    switch (code) {
    case OPTION_SYMMETRISE:
        wish->symmetrise = true;
        return true;
    case OPTION_REMOVE_DUPLICATES:
        wish->remove_duplicates = true;
        return true;
    case OPTION_SELF_LOOPS:
        if (strcmp(optarg, "keep") == 0)
            wish->self_loops = PLIM_SELF_LOOPS_KEEP;
        else if (strcmp(optarg, "add") == 0)
            wish->self_loops = PLIM_SELF_LOOPS_ADD;
        else if (strcmp(optarg, "remove") == 0)
            wish->self_loops = PLIM_SELF_LOOPS_REMOVE;
        else
            return (void)cli_wrong_use(common, "--self-loops is keep, add or remove, not '%s'",
                                       optarg),
                   false;
        return true;
    case OPTION_RELABEL:
        wish->relabel = true;
        return true;
    case OPTION_FEATURES:
        if (strcmp(optarg, "f16") == 0)
            wish->features = PLIM_F16;
        else if (strcmp(optarg, "f32") == 0)
            wish->features = PLIM_F32;
        else
            return (void)cli_wrong_use(common, "--features is f16 or f32, not '%s'", optarg), false;
        return true;
    case OPTION_NORMALISE_FEATURES:
        wish->normalise_features = true;
        return true;
    case OPTION_NODES:
        return cli_parse_int(common, "--nodes", optarg, 1, INT64_MAX - 1, &wish->num_nodes);
    case OPTION_TMP:
        wish->tmp = optarg;
        return true;
    default:
        return true;
    }
}

static int run(int argc, char **argv)
{
    static const struct option options[] = {
        {"symmetrise", no_argument, NULL, OPTION_SYMMETRISE},
        {"symmetrize", no_argument, NULL, OPTION_SYMMETRISE},
        {"remove-duplicates", no_argument, NULL, OPTION_REMOVE_DUPLICATES},
        {"self-loops", required_argument, NULL, OPTION_SELF_LOOPS},
        {"relabel", no_argument, NULL, OPTION_RELABEL},
        {"features", required_argument, NULL, OPTION_FEATURES},
        {"normalise-features", no_argument, NULL, OPTION_NORMALISE_FEATURES},
        {"normalize-features", no_argument, NULL, OPTION_NORMALISE_FEATURES},
        {"nodes", required_argument, NULL, OPTION_NODES},
        {"tmp", required_argument, NULL, OPTION_TMP},
        CLI_COMMON_OPTIONS};
    cli_common_t common = {.verb = &cli_verb_import};
    plim_import_options_t wish = PLIM_IMPORT_OPTIONS_INIT;
    plim_limits_t limits;
    plim_job_t *job;
    int exit_code, code;
    while ((code = cli_next_option(argc, argv, options, &common, &exit_code)) != -1) {
        if (code == -2)
            return exit_code;
        if (!take_option(&common, code, &wish))
            return CLI_WRONG_USE;
    }
    if (argc - optind != 2)
        return cli_wrong_use(&common, "a source and a target are needed");
    wish.source = argv[optind];
    wish.target = argv[optind + 1];
    plim_status_t status = cli_job_start(&common, &job, &limits);
    if (status != PLIM_OK)
        return cli_failed(&common, status);
    status = plim_import(job, &wish);
    if (status == PLIM_OK)
        status = cli_say_made(&common, job, wish.target);
    cli_job_end(job);
    return status == PLIM_OK ? CLI_DONE : cli_failed(&common, status);
}

const cli_verb_t cli_verb_import = {
    .name = "import",
    .summary = "make a dataset from the data people have",
    .help =
        "usage: plimsoll import SOURCE DIR [options]\n\n"
        "Makes the dataset directory DIR from SOURCE, whose kind is recognised: OGB's zip or\n"
        "directory (binary or csv), .npy files, GraphBolt's metadata.yaml, graphs with\n"
        "node_ptr.npy, or a text of edges (csv, tsv, spaces; gz, zst).\n\n"
        "  --symmetrise          add the reverse of each edge; duplicates go\n"
        "  --remove-duplicates   keep one of equal edges\n"
        "  --self-loops WHAT     keep (default), add (exactly one a node) or remove\n"
        "  --relabel             texts of edges: ids are any 64-bit integers; ids.npy keeps them\n"
        "  --features TYPE       f16 or f32; default: as the source has them\n"
        "  --normalise-features  divide each row of features by its sum, as PyG's\n"
        "                        NormalizeFeatures does\n"
        "  --nodes N             number of nodes, where the source does not say\n"
        "  --tmp DIR             where temporary files go; default: beside the target\n",
    .run = run,
};
