/* `plimsoll import`: writes a dataset from files of other formats. */
#include "command/cli.h"

#include <stdlib.h>

enum {
    OPTION_SYMMETRISE = CLI_OPTION_OWN,
    OPTION_REMOVE_DUPLICATES,
    OPTION_SELF_LOOPS,
    OPTION_RELABEL,
    OPTION_FEATURES,
    OPTION_NORMALISE_FEATURES,
    OPTION_TARGETS,
    OPTION_NODES,
    OPTION_SPLIT,
    OPTION_SEED,
    OPTION_TMP
};

/* Parses "0.6,0.2,0.2". The library checks the values. */
static bool parse_split(const cli_common_t *common, double split[3])
{
    char *at = optarg;
    for (int i = 0; i < 3; i++) {
        char *end;
        split[i] = strtod(at, &end);
        if (end == at || *end != (i < 2 ? ',' : '\0')) {
            (void)cli_wrong_use(common,
                                "--split: '%s' is not three shares of train, valid and test, such "
                                "as 0.6,0.2,0.2",
                                optarg);
            return false;
        }
        at = end + 1;
    }
    return true;
}

/* False after an error message. */
static bool take_option(const cli_common_t *common, int code, plim_import_options_t *options)
{
    static const char *const types[] = {"f16", "f32", NULL};
    static const char *const targets[] = {"classes", "values", NULL};
    static const char *const self_loops[] = {"keep", "add", "remove", NULL};
    static const plim_self_loops_t self_loop_values[] = {PLIM_SELF_LOOPS_KEEP, PLIM_SELF_LOOPS_ADD,
                                                         PLIM_SELF_LOOPS_REMOVE};
    int word;
    switch (code) {
    case OPTION_SYMMETRISE:
        options->symmetrise = true;
        return true;
    case OPTION_REMOVE_DUPLICATES:
        options->remove_duplicates = true;
        return true;
    case OPTION_SELF_LOOPS:
        word = cli_parse_word(common, "--self-loops", self_loops);
        options->self_loops = word < 0 ? PLIM_SELF_LOOPS_KEEP : self_loop_values[word];
        return word >= 0;
    case OPTION_RELABEL:
        options->relabel = true;
        return true;
    case OPTION_FEATURES:
        word = cli_parse_word(common, "--features", types);
        options->features = word == 0 ? PLIM_F16 : PLIM_F32;
        return word >= 0;
    case OPTION_NORMALISE_FEATURES:
        options->normalise_features = true;
        return true;
    case OPTION_TARGETS:
        word = cli_parse_word(common, "--targets", targets);
        options->targets = word == 0 ? PLIM_TARGETS_CLASSES : PLIM_TARGETS_VALUES;
        return word >= 0;
    case OPTION_NODES:
        return cli_parse_int(common, "--nodes", optarg, 1, INT64_MAX - 1, &options->num_nodes);
    case OPTION_SPLIT:
        return parse_split(common, options->split);
    case OPTION_SEED:
        return cli_parse_seed(common, &options->seed);
    default:
        options->tmp = optarg;
        return true;
    }
}

static int run(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"symmetrise", no_argument, NULL, OPTION_SYMMETRISE},
        {"symmetrize", no_argument, NULL, OPTION_SYMMETRISE},
        {"remove-duplicates", no_argument, NULL, OPTION_REMOVE_DUPLICATES},
        {"self-loops", required_argument, NULL, OPTION_SELF_LOOPS},
        {"relabel", no_argument, NULL, OPTION_RELABEL},
        {"features", required_argument, NULL, OPTION_FEATURES},
        {"normalise-features", no_argument, NULL, OPTION_NORMALISE_FEATURES},
        {"normalize-features", no_argument, NULL, OPTION_NORMALISE_FEATURES},
        {"targets", required_argument, NULL, OPTION_TARGETS},
        {"nodes", required_argument, NULL, OPTION_NODES},
        {"split", required_argument, NULL, OPTION_SPLIT},
        {"seed", required_argument, NULL, OPTION_SEED},
        {"tmp", required_argument, NULL, OPTION_TMP},
        CLI_COMMON_OPTIONS};
    cli_common_t common = {.verb = &cli_verb_import};
    plim_import_options_t options = PLIM_IMPORT_OPTIONS_INIT;
    plim_job_t *job;
    int exit_code, code;
    while ((code = cli_next_option(argc, argv, long_options, &common, &exit_code)) != -1) {
        if (code == -2)
            return exit_code;
        if (!take_option(&common, code, &options))
            return CLI_WRONG_USE;
    }
    if (argc - optind != 2)
        return cli_wrong_use(&common, "a source and a target are needed");
    options.source = argv[optind];
    options.target = argv[optind + 1];
    plim_status_t status = cli_job_start(&common, &job);
    if (status != PLIM_OK)
        return cli_failed(&common, status);
    status = plim_import(job, &options);
    if (status == PLIM_OK)
        status = cli_print_dataset(&common, job, options.target);
    cli_job_end(job);
    return status == PLIM_OK ? CLI_DONE : cli_failed(&common, status);
}

const cli_verb_t cli_verb_import = {
    .name = "import",
    .single = true,
    .summary = "make a dataset from files of other formats",
    .help =
        "usage: plimsoll import SOURCE DIR [options]\n\n"
        "Makes the dataset directory DIR from SOURCE, whose kind is recognised: a directory\n"
        "with edge_index.npy, edges.csv or adj.npz (a SciPy matrix), x.npy or features.csv,\n"
        "y.npy or labels.csv (numbers or words), or nodes.csv (id, features, label), and train,\n"
        "valid and test as ids or masks; an .npz of these arrays, or of a SciPy matrix; OGB's\n"
        "zip or directory (binary or csv); GraphBolt's metadata.yaml; graphs with node_ptr.npy;\n"
        "or a text of edges (csv, tsv, spaces; gz, zst).\n\n"
        "  --symmetrise          add the reverse of each edge; duplicates go\n"
        "  --remove-duplicates   keep one of equal edges\n"
        "  --self-loops WHAT     keep (default), add (exactly one a node) or remove\n"
        "  --relabel             texts: ids are any integers or names; the dataset keeps them\n"
        "  --features TYPE       f16 or f32; default: as the source has them. Integers are\n"
        "                        converted only if it is given\n"
        "  --normalise-features  divide each row of features by its sum, as PyG's\n"
        "                        NormalizeFeatures does\n"
        "  --targets WHAT        classes or values (a regression); default: whole numbers in one\n"
        "                        column are classes\n"
        "  --nodes N             number of nodes, for sources that do not tell it\n"
        "  --split A,B,C         draw train, valid and test: shares of the labelled nodes, such\n"
        "                        as 0.6,0.2,0.2\n"
        "  --seed N              seed of that draw; default: 0\n"
        "  --tmp DIR             directory of temporary files; default: next to the target\n",
    .run = run,
};
