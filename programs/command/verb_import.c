/* `plimsoll import`: writes a dataset from files of other formats. */
#include "command/cli.h"

#include <stdlib.h>

typedef struct import {
    cli_common_t common;
    plim_import_options_t options;
} import_t;

/* Reads "0.6,0.2,0.2". The library checks the values. */
static bool take_split(void *context, char *value, char ***next)
{
    import_t *import = context;
    char *at = value;
    (void)next;
    for (int i = 0; i < 3; i++) {
        char *end;
        import->options.split[i] = strtod(at, &end);
        if (end == at || *end != (i < 2 ? ',' : '\0')) {
            (void)cli_wrong_use(&import->common,
                                "--split: '%s' is not three shares of train, valid and test, such "
                                "as 0.6,0.2,0.2",
                                value);
            return false;
        }
        at = end + 1;
    }
    return true;
}

#define AT(member) CLI_AT(import_t, options.member)

static const cli_option_t own_options[] = {
    {"symmetrise", NULL, "add the reverse of each edge; duplicates go", AT(symmetrise)},
    {"remove-duplicates", NULL, "keep one of equal edges", AT(remove_duplicates)},
    {"duplicates", "WHAT",
     "of equal edges one is kept; its columns are the %s of theirs; default first",
     "Features and weights of equal edges are those of the first in the source, their sum, or the "
     "largest of each; sum and largest imply --remove-duplicates. Types are always those of the "
     "first, and times, except that largest takes the latest. The reverse of an edge has the "
     "edge's own columns, and a self-loop counts once.",
     AT(duplicates), CLI_LIST(PLIM_DUPLICATES_FIRST, "first", "sum", "largest")},
    {"edge-ids", NULL, "keep the number of each edge in the source, as edge_id.npy",
     "Batches of plimsoll.NeighborLoader then have e_id as PyTorch Geometric's.", AT(edge_ids)},
    {"self-loops", "WHAT", "%s self-loops; default keep",
     "add gives every node exactly one. GCN and GAT count a node once in any case, as in PyTorch "
     "Geometric.",
     AT(self_loops), CLI_LIST(PLIM_SELF_LOOPS_KEEP, "keep", "add", "remove")},
    {"relabel", NULL, "texts: ids are any integers or names; the dataset keeps them",
     "In a text edge list of non-negative 64-bit integers, however sparse, nodes are numbered in "
     "the order of their ids, and ids.npy keeps the ids. If the first edge has other names, all "
     "ids are texts of up to 255 bytes, and nodes are numbered in the order of their first "
     "appearance. In a directory of files, nodes are numbered in the order of the rows of "
     "nodes.csv (also ids, node_ids or names), features.csv or labels.csv, the first that exists, "
     "whose first column has the name of each node; edges, labels and splits are then texts with "
     "names, in any order, or masks and arrays in the order of the nodes. A node without a row in "
     "labels.csv is unlabelled. Names with blanks between commas need no quotes; names with "
     "separators are in double quotes. The dataset keeps names as id_text.npy and "
     "id_offsets.npy, or as ids.npy if all are integers, and plimsoll-predict(1) writes them.",
     AT(relabel)},
    {"features", "TYPE", "%s; default: as the source has them, integers as i64",
     "By default floats of 64 bits are stored as f32, and OGB's categories of atoms one-hot. A "
     "value too large for f16 is an error; the worst relative error is recorded. i64 takes whole "
     "numbers only, and keeps categories. It holds for features of edges too.",
     AT(features), CLI_LIST(PLIM_I64, "i64", "f16", "f32")},
    {"normalise-features", NULL,
     "divide each row of features by its sum, as PyG's NormalizeFeatures does",
     "Or by 1 if the sum is smaller; so it equals that transform if the smallest feature is 0. "
     "Features must not be negative.",
     AT(normalise_features)},
    {"targets", "WHAT", "%s (a regression); default: whole numbers in one column are classes",
     "With values only NaN means unknown.", AT(targets),
     CLI_LIST(PLIM_TARGETS_CLASSES, "classes", "values")},
    {"nodes", "N", "number of nodes, for sources that do not tell it",
     "A text edge list does not show isolated nodes after its largest id.", AT(num_nodes),
     CLI_RANGE(1, INT64_MAX - 1)},
    {"split", "A,B,C",
     "draw train, valid and test: shares of the labelled nodes, such as 0.6,0.2,0.2",
     "For a source without splits; of the labelled graphs in a dataset of many graphs. Their sum "
     "is at most 1. They are drawn uniformly, without regard to classes; sizes are exact, and ids "
     "ascend. The command prints the sizes and the seed, and dataset.json records them.",
     AT(split), CLI_BY(take_split)},
    {"seed", "N", "seed of that draw; default 0", AT(seed), .kind = CLI_SEED},
    {"tmp", "DIR", "directory of temporary files; default: next to the target",
     "They take at most 8 bytes an edge, or 48 with names.", AT(tmp), .kind = CLI_TEXT},
    CLI_ALIAS("symmetrize", NULL, "symmetrise"),
    CLI_ALIAS("normalize-features", NULL, "normalise-features"),
    CLI_OPTIONS_END};

static const cli_group_t groups[] = {
    {.title = "Options", .options = own_options}, CLI_COMMON_GROUP, {.options = NULL}};

static int run(int argc, char **argv)
{
    import_t import = {.common = {.verb = &cli_verb_import}, .options = PLIM_IMPORT_OPTIONS_INIT};
    const cli_common_t *common = &import.common;
    plim_job_t *job;
    int exit_code;
    if (!cli_read_options(argc, argv, &import, &exit_code))
        return exit_code;
    if (argc - optind != 2)
        return cli_wrong_use(
            common, "give the source and the dataset directory to make, like: plimsoll import "
                    "edges.csv DIR");
    import.options.source = argv[optind];
    import.options.target = argv[optind + 1];
    plim_status_t status = cli_job_start(common, &job);
    if (status != PLIM_OK)
        return cli_failed(common, status);
    status = plim_import(job, &import.options);
    if (status == PLIM_OK)
        status = cli_print_dataset(common, job, import.options.target);
    cli_job_end(job);
    return status == PLIM_OK ? CLI_DONE : cli_failed(common, status);
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
        "or a text of edges (csv, tsv, spaces; gz, zst).\n",
    .groups = groups,
    .operand = ":file",
    .run = run,
};
