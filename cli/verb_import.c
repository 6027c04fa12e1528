#include "cli.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum {
    OPTION_SYMMETRISE = CLI_OPTION_OWN,
    OPTION_REMOVE_DUPLICATES,
    OPTION_SELF_LOOPS,
    OPTION_RELABEL,
    OPTION_FEATURES,
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
    case OPTION_NODES:
        return cli_parse_int(common, "--nodes", optarg, 1, INT64_MAX - 1, &wish->num_nodes);
    case OPTION_TMP:
        wish->tmp = optarg;
        return true;
    default:
        return true;
    }
}

static json_t *describe(const plim_import_options_t *wish, const plim_dataset_info_t *info)
{
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s}", "target",
                     cli_json_text(wish->target), "num_nodes", (json_int_t)info->num_nodes,
                     "num_edges", (json_int_t)info->num_edges, "num_features",
                     (json_int_t)info->num_features, "num_graphs", (json_int_t)info->num_graphs,
                     "num_labels", (json_int_t)info->num_labels, "num_classes",
                     (json_int_t)info->num_classes, "num_train", (json_int_t)info->num_split[0],
                     "num_valid", (json_int_t)info->num_split[1], "num_test",
                     (json_int_t)info->num_split[2], "bytes", (json_int_t)info->bytes,
                     "feature_error", info->feature_error, "fingerprint", info->fingerprint);
}

static void say(const plim_import_options_t *wish, const plim_dataset_info_t *info)
{
    char bytes[24];
    (void)printf("%s: %" PRId64 " nodes, %" PRId64 " edges", wish->target, info->num_nodes,
                 info->num_edges);
    if (info->num_graphs > 0)
        (void)printf(", %" PRId64 " graphs", info->num_graphs);
    if (info->num_features > 0)
        (void)printf(", %" PRId64 " features (%s)", info->num_features,
                     info->feature_type == PLIM_F16 ? "f16" : "f32");
    if (info->label_kind == PLIM_LABELS_CLASSES)
        (void)printf(", %" PRId64 " classes", info->num_classes);
    if (info->label_kind == PLIM_LABELS_VALUES)
        (void)printf(", %" PRId64 " targets", info->num_targets);
    (void)printf("; train %" PRId64 ", valid %" PRId64 ", test %" PRId64 "; %s\n",
                 info->num_split[0], info->num_split[1], info->num_split[2],
                 plim_size_text(info->bytes, bytes));
}

static plim_status_t import_and_say(const cli_common_t *common, plim_job_t *job,
                                    const plim_import_options_t *wish)
{
    plim_dataset_t *dataset;
    json_t *object = NULL;
    plim_status_t status = plim_import(job, wish);
    if (status != PLIM_OK)
        return status;
    status = plim_dataset_open(job, wish->target, &dataset);
    if (status != PLIM_OK)
        return status;
    if (common->json)
        object = describe(wish, plim_dataset_info(dataset));
    else if (!common->quiet)
        say(wish, plim_dataset_info(dataset));
    plim_dataset_close(dataset);
    cli_job_report(job, object);
    if (object != NULL)
        cli_print_json(object);
    return PLIM_OK;
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
        {"nodes", required_argument, NULL, OPTION_NODES},
        {"tmp", required_argument, NULL, OPTION_TMP},
        CLI_COMMON_OPTIONS};
    cli_common_t common = {.verb = &cli_verb_import};
    plim_import_options_t wish = PLIM_IMPORT_OPTIONS_INIT;
    plim_limits_t limits;
    plim_job_t job;
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
    status = import_and_say(&common, &job, &wish);
    cli_job_end(&job);
    return status == PLIM_OK ? CLI_DONE : cli_failed(&common, status);
}

const cli_verb_t cli_verb_import = {
    .name = "import",
    .summary = "make a dataset from the data people have",
    .help = "usage: plimsoll import SOURCE DIR [options]\n\n"
            "Makes the dataset directory DIR from SOURCE, whose kind is recognised: OGB's zip or\n"
            "directory (binary or csv), .npy files, GraphBolt's metadata.yaml, graphs with\n"
            "node_ptr.npy, or a text of edges (csv, tsv, spaces; gz, zst).\n\n"
            "  --symmetrise          add the reverse of each edge; duplicates go\n"
            "  --remove-duplicates   keep one of equal edges\n"
            "  --self-loops WHAT     keep (default), add (exactly one a node) or remove\n"
            "  --relabel             texts of edges: ids are names; ids.npy keeps them\n"
            "  --features TYPE       f16 or f32; default: as the source has them\n"
            "  --nodes N             number of nodes, where the source does not say\n"
            "  --tmp DIR             where temporary files go; default: beside the target\n",
    .run = run,
};
