/* plim_import: recognises the kind of source, runs its importer and checks that all parts match. */
#include "ingest/import.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/params.h"
#include "ingest/disk_space.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Tried in this order: the more specific first. */
static const plim__importer_t *const importers[] = {
    &plim__importer_graphbolt, &plim__importer_ragged, &plim__importer_npz,  &plim__importer_ogb,
    &plim__importer_npy,       &plim__importer_files,  &plim__importer_text,
};

#define NUM_IMPORTERS (sizeof importers / sizeof importers[0])

/* If the number of nodes is not given, a maximum id above this, and above this many ids an edge, is
 * a typing error or a name. */
#define ABSURD_NODES 1000000
#define ABSURD_SHARE 1000

#define LISTED 10 /* names of files in a message */

#define BUFFER_MIN ((size_t)128 << 10)
#define BUFFER_MOST ((size_t)4 << 20)
#define BLOCK_MIN 4096
#define BLOCK_MOST 65536

/* Most memory of readers, spools and columns with the smallest buffers: a zip in a zip, each with a
 * thread that inflates ahead, spooled ids and a column, or a gzip of text. Without the build. */
#define FIXED_BYTES ((size_t)10 << 20)

plim_status_t plim__import_begin(plim__import_t *import)
{
    if (import->writer != NULL)
        return PLIM_OK;
    return plim__dataset_begin(import->job, import->options->target, &import->writer);
}

void plim__import_leave_out(plim__import_t *import, const char *name)
{
    size_t used = strlen(import->left_out);
    if (used + strlen(name) + 3 < sizeof import->left_out)
        (void)snprintf(import->left_out + used, sizeof import->left_out - used, "%s%s",
                       used > 0 ? ", " : "", name);
    import->num_left_out++;
}

plim_status_t plim__import_agree(plim__agreed_t *agreed, const char *what, int64_t value,
                                 const char *from)
{
    if (agreed->value >= 0 && agreed->value != value)
        return plim__fail(PLIM_ERR_DATA,
                          "%s says %" PRId64 " %s, but %s says %" PRId64
                          "; the files do not belong together",
                          from, value, what, agreed->from, agreed->value);
    if (value < 0)
        return plim__fail(PLIM_ERR_DATA, "%s: %" PRId64 " is not a possible number of %s", from,
                          value, what);
    if (agreed->value < 0) {
        agreed->value = value;
        (void)snprintf(agreed->from, sizeof agreed->from, "%s", from);
    }
    return PLIM_OK;
}

plim_status_t plim__import_inflate(plim__import_t *import, plim__reader_t *inner,
                                   plim__reader_t **reader_out)
{
    plim__reader_t *reader;
    int64_t size = inner->size;
    PLIM_TRY(plim__reader_decompress(import->job, inner, &reader));
    if (size >= 0 && reader->size == size) { /* not compressed */
        *reader_out = reader;
        return PLIM_OK;
    }
    return plim__reader_ahead(import->job, reader, import->buffer, reader_out);
}

plim_status_t plim__import_open(plim__import_t *import, const char *path,
                                plim__reader_t **reader_out)
{
    plim__reader_t *reader;
    PLIM_TRY(plim__reader_file(import->job, path, import->buffer, &reader));
    return plim__import_inflate(import, reader, reader_out);
}

plim_status_t plim__import_text(plim__import_t *import, plim__reader_t *inner,
                                plim__text_t **text_out)
{
    return plim__text_open(import->job, inner, (size_t)1 << 20, text_out);
}

plim_status_t plim__import_text_open(plim__import_t *import, const char *path,
                                     plim__text_t **text_out)
{
    plim__reader_t *reader;
    PLIM_TRY(plim__import_open(import, path, &reader));
    return plim__import_text(import, reader, text_out);
}

static plim_status_t check_options(const plim_import_options_t *options)
{
    struct stat status;
    if (options->source == NULL || options->target == NULL || options->num_nodes < 0 ||
        (options->features != 0 && options->features != PLIM_F16 && options->features != PLIM_F32 &&
         options->features != PLIM_I64) ||
        options->targets < PLIM_TARGETS_AUTO || options->targets > PLIM_TARGETS_VALUES ||
        options->duplicates < PLIM_DUPLICATES_FIRST ||
        options->duplicates > PLIM_DUPLICATES_LARGEST)
        return plim__fail(PLIM_ERR_USAGE,
                          "an import needs a source and a target; features must be "
                          "f16, f32 or i64, targets classes or values, and a number of "
                          "nodes positive");
    const double *split = options->split;
    if (!(split[0] >= 0 && split[1] >= 0 && split[2] >= 0 &&
          split[0] + split[1] + split[2] <= 1 + 1e-9) ||
        (split[0] == 0 && split[1] + split[2] > 0))
        return plim__fail(PLIM_ERR_USAGE,
                          "`split` is %g,%g,%g; give the shares of train, valid and test, such as "
                          "0.6,0.2,0.2, with a sum of at most 1 and some training nodes",
                          split[0], split[1], split[2]);
    if (options->edge_ids && options->self_loops == PLIM_SELF_LOOPS_ADD)
        return plim__fail(PLIM_ERR_USAGE, "self-loops that are added have no number in the source; "
                                          "omit `edge_ids`, or `self_loops` add");
    if (stat(options->source, &status) != 0)
        return plim__fail_errno(errno, "cannot import %s", options->source);
    if (stat(options->target, &status) == 0)
        return plim__fail(PLIM_ERR_USAGE, "%s already exists; remove it or choose another target",
                          options->target);
    return PLIM_OK;
}

/* Chooses buffers and blocks for the available memory. PLIM_ERR_BUDGET when it is too little. */
static plim_status_t set_sizes(plim__import_t *import)
{
    const plim_job_t *job = import->job;
    int64_t available = plim__ledger_available(job->ledger);
    import->start = (size_t)plim__ledger_reserved(job->ledger);
    import->other_bytes = FIXED_BYTES;
    import->buffer = BUFFER_MIN;
    while (import->buffer < BUFFER_MOST && (int64_t)import->buffer * 128 <= available)
        import->buffer *= 2;
    import->block = BLOCK_MIN;
    while (import->block < BLOCK_MOST && import->block * 16 * job->threads * 64 <= available)
        import->block *= 2;
    return plim__import_check_memory(import, 1, 1);
}

/* Names of a directory's entries, ascending, as far as there is space; "…" stands for the others.
 */
static void list_entries(const char *path, char *text_out, size_t size)
{
    char names[LISTED][NAME_MAX + 2]; /* with a slash after a directory */
    int count = 0, others = 0;
    size_t used = 0;
    struct dirent *entry;
    DIR *directory = opendir(path);
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        char name[NAME_MAX + 2];
        int at = count;
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(name, sizeof name, "%s%s", entry->d_name,
                       entry->d_type == DT_DIR ? "/" : "");
        while (at > 0 && strcmp(names[at - 1], name) > 0)
            at--;
        others += count == LISTED;
        if (at == LISTED)
            continue;
        count += count < LISTED;
        memmove(names[at + 1 < LISTED ? at + 1 : at], names[at],
                (size_t)(count - at - 1) * sizeof names[0]);
        memcpy(names[at], name, sizeof name);
    }
    if (directory != NULL)
        (void)closedir(directory);
    (void)snprintf(text_out, size, "%s", count == 0 ? "nothing" : "");
    for (int i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(text_out + used, size - used, "%s%s", i > 0 ? ", " : "", names[i]);
    if (others > 0 && used < size)
        (void)snprintf(text_out + used, size - used, ", …");
}

static bool has_entry(const char *path, const char *name)
{
    char entry[PATH_MAX];
    struct stat status;
    return snprintf(entry, sizeof entry, "%s/%s", path, name) < PATH_MAX &&
           stat(entry, &status) == 0;
}

/* Builds the error for a source that no importer recognises. */
static plim_status_t not_recognised(const char *path)
{
    char raw[PATH_MAX], found[320];
    struct stat status, above;
    if (stat(path, &status) != 0)
        return plim__fail_errno(errno, "cannot import %s", path);
    if (!S_ISDIR(status.st_mode))
        return plim__fail(PLIM_ERR_DATA,
                          "%s is neither a file nor a directory; write its contents to a file",
                          path);
    if (has_entry(path, "run.json"))
        return plim__fail(PLIM_ERR_DATA,
                          "%s is the directory of a training run, which has no graph to import",
                          path);
    if (snprintf(raw, sizeof raw, "%s/../raw", path) < PATH_MAX && stat(raw, &above) == 0 &&
        above.st_dev == status.st_dev && above.st_ino == status.st_ino)
        return plim__fail(PLIM_ERR_DATA, "%s is a part of a dataset; give the directory above it",
                          path);
    list_entries(path, found, sizeof found);
    return plim__fail(PLIM_ERR_DATA,
                      "%.200s: not recognised: there are no edges. Found: %s. Expected names: "
                      "edge_index.npy [2, E], edges.csv (two columns) or adj.npz (SciPy); x.npy or "
                      "features.csv; y.npy or labels.csv; or nodes.csv (id, features, label); "
                      "train, valid and test .npy or .csv (ids), or train_mask.npy …. An .npz, a "
                      ".zip, or a text of edges is given as a file; PyTorch's .pt files are "
                      "read in Python: plimsoll.from_pyg(data, 'DIR')",
                      path, found);
}

static plim_status_t refuse_torch(const char *path)
{
    const char *end = strrchr(path, '.');
    if (end == NULL || (strcmp(end, ".pt") != 0 && strcmp(end, ".pth") != 0))
        return PLIM_OK;
    return plim__fail(PLIM_ERR_DATA,
                      "%s is a PyTorch file, which is read in Python: "
                      "plimsoll.from_pyg(data, 'DIR') takes the Data object that your code loads "
                      "(such as dataset[0]), or a list of them; plimsoll.from_pt_files('FILES', "
                      "'DIR') reads a directory of .pt files with a graph each",
                      path);
}

static plim_status_t recognise(plim__import_t *import, const plim__importer_t **importer_out)
{
    PLIM_TRY(refuse_torch(import->options->source));
    for (size_t i = 0; i < NUM_IMPORTERS; i++)
        if (importers[i]->recognise(import->options->source)) {
            import->kind = importers[i]->name;
            plim__log(import->job, PLIM_LOG_INFO, "%s: recognised as %s", import->options->source,
                      import->kind);
            *importer_out = importers[i];
            return PLIM_OK;
        }
    return not_recognised(import->options->source);
}

static plim_status_t check_rows(const char *from, int64_t rows, const plim__agreed_t *items,
                                const char *what)
{
    if (rows == items->value)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_DATA,
                      "%s has %" PRId64 " rows, but %s says %" PRId64
                      " %s; the files do not belong together",
                      from, rows, items->from, items->value, what);
}

/* Compares rows and ids with the number of nodes or graphs, which is known by now. */
static plim_status_t check_whole(const plim__import_t *import)
{
    bool graphs = import->graphs.value >= 0;
    const plim__agreed_t *items = graphs ? &import->graphs : &import->nodes;
    const char *what = graphs ? "graphs" : "nodes";
    if (import->features_done)
        PLIM_TRY(check_rows(import->features_from, import->feature_rows, &import->nodes, "nodes"));
    if (import->labels_done)
        PLIM_TRY(check_rows(import->labels_from, import->label_rows, items, what));
    const plim__import_column_t *times = &import->columns[__builtin_ctz(PLIM_NODE_TIME)];
    if ((import->given & PLIM_NODE_TIME) != 0)
        PLIM_TRY(check_rows(times->from, times->rows, &import->nodes, "nodes"));
    for (int i = 0; i < 3; i++)
        if (import->splits[i].done && import->splits[i].most >= items->value)
            return plim__fail(PLIM_ERR_DATA,
                              "%s: entry %" PRId64 " is %" PRId64 ", but %s says %" PRId64
                              " %s; correct it",
                              import->splits[i].from, import->splits[i].most_at,
                              import->splits[i].most, items->from, items->value, what);
    for (int i = 0; i < 3; i++)
        PLIM_TRY(plim__import_split_once(import, i, items->value));
    return PLIM_OK;
}

/* Logs what training needs and the source lacks. */
static void remark_missing(const plim__import_t *import)
{
    const bool split = import->splits[0].done || import->options->split[0] > 0;
    if (import->features_done && import->labels_done && split)
        return;
    plim__log(import->job, PLIM_LOG_INFO, "%s: training also needs:%s%s%s", import->options->source,
              import->features_done ? "" : " features (x.npy, features.csv)",
              import->labels_done ? "" : " labels (y.npy, labels.csv)",
              split ? "" : " splits (train.npy, train_mask.npy, or `split` 0.6,0.2,0.2)");
}

/* Builds the graph if that had to wait, and writes what is derived. */
static plim_status_t complete(plim__import_t *import)
{
    if (import->num_left_out > 0)
        plim__log(import->job, PLIM_LOG_WARNING, "%s: not imported (%" PRId64 "): %s",
                  import->options->source, import->num_left_out, import->left_out);
    if (!import->edges_done && import->sources.file == NULL)
        return plim__fail(PLIM_ERR_DATA,
                          "%s (%s) has no edges%s%s; name an array of the shape [2, E] edge_index, "
                          "or a text of two columns edges.csv",
                          import->options->source, import->kind,
                          import->num_left_out > 0 ? ", but has " : "", import->left_out);
    if (import->nodes.value < 0) {
        int64_t most = plim__max_i64(import->sources.most, import->destinations.most);
        if (most < 0 || most == INT64_MAX)
            return plim__fail(PLIM_ERR_DATA, "%s: the number of nodes is unknown; give `num_nodes`",
                              import->options->source);
        if (most >= ABSURD_NODES && most / ABSURD_SHARE >= import->sources.count)
            return plim__fail(PLIM_ERR_DATA,
                              "%s: its maximum id is %" PRId64 ", but it has only %" PRId64
                              " edge%s; correct the id, convert ids to 0, 1, 2 … with `relabel`, "
                              "or confirm it with `num_nodes` %" PRId64,
                              import->options->source, most, import->sources.count,
                              import->sources.count == 1 ? "" : "s", most + 1);
        PLIM_TRY(plim__import_agree(&import->nodes, "nodes", most + 1, "the maximum id"));
    }
    if (import->nodes.value == 0)
        return plim__fail(PLIM_ERR_DATA, "%s: the graph has no nodes", import->options->source);
    import->nodes_ready = true;
    import->columns_wait = false;
    PLIM_TRY(plim__import_build_edges(import));
    if (import->graphs.value >= 0 && import->graph_nodes.file == NULL)
        return plim__fail(PLIM_ERR_DATA,
                          "%s counts %" PRId64 " graphs, but their numbers of nodes are unknown",
                          import->graphs.from, import->graphs.value);
    if (import->graphs.value >= 0)
        PLIM_TRY(plim__import_graph_offsets(import));
    if (import->options->split[0] > 0)
        PLIM_TRY(plim__import_draw_splits(import));
    PLIM_TRY(plim__import_type_names_check(import));
    remark_missing(import);
    return check_whole(import);
}

#define OPTIONS_TEXT 320

static void add_option(char text[OPTIONS_TEXT], const char *name, const char *value)
{
    const size_t used = strlen(text);
    (void)snprintf(text + used, OPTIONS_TEXT - used, "%s--%s%s%s", used > 0 ? " " : "", name,
                   value[0] != '\0' ? " " : "", value);
}

/* The options as dataset.json keeps them, in the command's words. */
static void describe_options(const plim_import_options_t *options, char text_out[OPTIONS_TEXT])
{
    char number[96];
    text_out[0] = '\0';
    if (options->symmetrise)
        add_option(text_out, "symmetrise", "");
    if (options->remove_duplicates)
        add_option(text_out, "remove-duplicates", "");
    if (options->self_loops != PLIM_SELF_LOOPS_KEEP)
        add_option(text_out, "self-loops",
                   options->self_loops == PLIM_SELF_LOOPS_ADD ? "add" : "remove");
    if (options->duplicates != PLIM_DUPLICATES_FIRST)
        add_option(text_out, "duplicates",
                   options->duplicates == PLIM_DUPLICATES_SUM ? "sum" : "largest");
    if (options->edge_ids)
        add_option(text_out, "edge-ids", "");
    if (options->relabel)
        add_option(text_out, "relabel", "");
    if (options->features != 0)
        add_option(text_out, "features",
                   options->features == PLIM_F16   ? "f16"
                   : options->features == PLIM_F32 ? "f32"
                                                   : "i64");
    if (options->normalise_features)
        add_option(text_out, "normalise-features", "");
    if (options->targets != PLIM_TARGETS_AUTO)
        add_option(text_out, "targets",
                   options->targets == PLIM_TARGETS_CLASSES ? "classes" : "values");
    if (options->num_nodes > 0) {
        (void)snprintf(number, sizeof number, "%" PRId64, options->num_nodes);
        add_option(text_out, "nodes", number);
    }
    if (options->split[0] > 0) {
        (void)snprintf(number, sizeof number, "%g,%g,%g", options->split[0], options->split[1],
                       options->split[2]);
        add_option(text_out, "split", number);
        (void)snprintf(number, sizeof number, "%" PRIu64, options->seed);
        add_option(text_out, "seed", number);
    }
}

static plim_status_t commit(plim__import_t *import)
{
    char source[PLIM__READER_NAME], options[OPTIONS_TEXT];
    const char *path = import->options->source;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    size_t begin = length;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    (void)snprintf(source, sizeof source, "import %.*s (%s)", (int)(length - begin), path + begin,
                   import->kind);
    describe_options(import->options, options);
    plim__dataset_facts_t facts = {.num_nodes = import->nodes.value,
                                   .num_graphs =
                                       import->graphs.value > 0 ? import->graphs.value : 0,
                                   .num_classes = import->num_classes,
                                   .multi_label = import->multi_label,
                                   .num_edge_types = import->num_edge_types,
                                   .feature_error = import->feature_error,
                                   .source = source,
                                   .options = options};
    plim__dataset_writer_t *writer = import->writer;
    import->writer = NULL;
    return plim__dataset_finish(writer, &facts);
}

static plim_status_t run(plim__import_t *import)
{
    const plim__importer_t *importer = NULL;
    const plim_import_options_t *options = import->options;
    PLIM_TRY(plim__disk_space_parent(options->target, import->parent));
    (void)snprintf(import->tmp, sizeof import->tmp, "%s",
                   options->tmp != NULL ? options->tmp : import->parent);
    PLIM_TRY(recognise(import, &importer));
    if (options->relabel &&
        ((importer != &plim__importer_text && importer != &plim__importer_files) ||
         options->num_nodes > 0))
        return plim__fail(PLIM_ERR_USAGE,
                          "`relabel` works with a text of edges, or a directory with edges.csv, "
                          "and without `num_nodes`: the number of distinct ids is the number of "
                          "nodes");
    PLIM_TRY(set_sizes(import));
    if (options->num_nodes > 0)
        PLIM_TRY(plim__import_agree(&import->nodes, "nodes", options->num_nodes, "`num_nodes`"));
    PLIM_TRY(importer->run(import));
    PLIM_TRY(complete(import));
    return commit(import);
}

PLIM_API plim_status_t plim_import(const plim_job_t *job, const plim_import_options_t *options)
{
    plim__arena_t arena;
    plim_import_options_t known = PLIM_IMPORT_OPTIONS_INIT;
    PLIM_ENTER(job);
    PLIM_TRY(plim__params_take(options, "plim_import_options_t", &known, sizeof known));
    plim_job_t own = *job;
    own.threads = plim__job_threads(job);
    PLIM_TRY(check_options(&known));
    PLIM_TRY(plim__arena_create(job->ledger, "import", sizeof(plim__import_t), &arena));
    plim__import_t *import = (void *)arena.base;
    import->job = &own;
    import->options = &known;
    import->path = plim__half_best();
    import->nodes.value = import->edges.value = -1;
    import->graphs.value = import->counts.value = -1;
    import->feature_rows = import->label_rows = -1;
    import->class_names.ledger = job->ledger;
    plim_status_t status = run(import);
    plim__failure_t failure;
    if (status != PLIM_OK)
        plim__fail_save(&failure);
    plim__dataset_abandon(import->writer);
    plim__import_columns_close(import);
    plim__id_spool_destroy(&import->sources);
    plim__id_spool_destroy(&import->destinations);
    plim__id_spool_destroy(&import->graph_nodes);
    plim__id_spool_destroy(&import->graph_edges);
    plim__id_spool_destroy(&import->sparse[0]);
    plim__id_spool_destroy(&import->sparse[1]);
    plim__names_destroy(&import->names);
    plim__name_keys_destroy(&import->row_keys);
    plim__class_names_destroy(&import->class_names);
    plim__arena_destroy(&import->row);
    plim__arena_destroy(&arena);
    return status == PLIM_OK ? PLIM_OK : plim__fail_restore(status, &failure);
}
