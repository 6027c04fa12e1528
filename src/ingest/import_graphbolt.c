/*
 * GraphBolt's directories (DGL's OnDiskDataset): metadata.yaml names edges, features, and the sets
 * of the first task, each an array of ids and an array of labels. Labels of the sets become labels
 * of nodes, a slab of nodes at a time.
 */
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "ingest/graphbolt_yaml.h"
#include "ingest/import_files.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const set_names[3] = {"train_set", "validation_set", "test_set"};

/* The parsed YAML and its path. */
typedef struct graphbolt_layout {
    plim__graphbolt_t yaml;
    char name[PATH_MAX]; /* of metadata.yaml */
    char text[PLIM__YAML_MAX];
    char seeds[3][PATH_MAX]; /* "" when the set is missing */
    char labels[3][PATH_MAX];
    char features[PATH_MAX];
    char edges[PATH_MAX];
    char columns[PLIM__FILES_COLUMNS][PATH_MAX]; /* of edges, and the times of nodes */
} graphbolt_layout_t;

static plim_status_t join(const plim__import_t *import, const char *path, char path_out[PATH_MAX])
{
    int size = path[0] == '/'
                   ? snprintf(path_out, PATH_MAX, "%s", path)
                   : snprintf(path_out, PATH_MAX, "%s/%s", import->options->source, path);
    return size < PATH_MAX ? PLIM_OK
                           : plim__fail(PLIM_ERR_DATA, "%.100s…: the path is too long", path);
}

/*
 * A path from metadata.yaml, which is untrusted: only files in the directory are read, after
 * resolving dots and links. A missing file fails when it is opened.
 */
static plim_status_t join_inside(const plim__import_t *import, const char *name, const char *path,
                                 char path_out[PATH_MAX])
{
    char directory[PATH_MAX], file[PATH_MAX];
    PLIM_TRY(join(import, path, path_out));
    if (realpath(path_out, file) == NULL)
        return errno == ENOENT || errno == ENOTDIR
                   ? PLIM_OK
                   : plim__fail_errno(errno, "%s: cannot find %s", name, path);
    if (realpath(import->options->source, directory) == NULL)
        return plim__fail_errno(errno, "cannot find %s", import->options->source);
    const size_t length = strlen(directory);
    if (strncmp(file, directory, length) == 0 && (file[length] == '/' || length == 1))
        return PLIM_OK;
    return plim__fail(
        PLIM_ERR_DATA,
        "%s names %s, which is outside of the directory and is not read; copy it into "
        "the directory and name it by its path there",
        name, path);
}

static plim_status_t array_path(const plim__import_t *import, const graphbolt_layout_t *layout,
                                const plim__yaml_array_t *array, char path_out[PATH_MAX])
{
    if (strcmp(array->format, "numpy") != 0)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "%s: %s has the format '%s', which is not supported; save it with "
                          "numpy.save",
                          layout->name, array->path, array->format);
    return join_inside(import, layout->name, array->path, path_out);
}

static plim_status_t read_yaml(plim__import_t *import, graphbolt_layout_t *layout)
{
    plim__reader_t *reader;
    size_t size;
    int account;
    PLIM_TRY(join(import, "metadata.yaml", layout->name));
    PLIM_TRY(plim__reader_file(import->job, layout->name, PLIM__PAGE, &reader));
    plim_status_t status =
        reader->size > (int64_t)sizeof layout->text
            ? plim__fail(PLIM_ERR_DATA, "%s is larger than %zu bytes", layout->name,
                         sizeof layout->text)
            : plim__reader_read_some(reader, layout->text, sizeof layout->text, &size);
    plim__reader_close(reader);
    PLIM_TRY(status);
    PLIM_TRY(plim__ledger_reserve(import->job->ledger, "yaml", PLIM__YAML_MEMORY, &account));
    status = plim__graphbolt_parse(layout->name, layout->text, size, &layout->yaml);
    plim__ledger_release(import->job->ledger, account, PLIM__YAML_MEMORY);
    return status;
}

/* Finds the arrays of ids and labels in a set: by name, else by position. */
static plim_status_t find_sets(plim__import_t *import, graphbolt_layout_t *layout)
{
    for (int set = 0; set < 3; set++)
        for (int i = 0; i < layout->yaml.num_arrays[set]; i++) {
            const plim__yaml_array_t *array = &layout->yaml.arrays[set][i];
            bool unnamed = array->name[0] == '\0';
            if (strcmp(array->name, "seeds") == 0 || strcmp(array->name, "seed_nodes") == 0 ||
                (unnamed && i == 0))
                PLIM_TRY(array_path(import, layout, array, layout->seeds[set]));
            else if (strcmp(array->name, "labels") == 0 || (unnamed && i == 1))
                PLIM_TRY(array_path(import, layout, array, layout->labels[set]));
            else
                plim__log(import->job, PLIM_LOG_WARNING, "%s: %s of %s is not imported",
                          layout->name, array->name, set_names[set]);
        }
    return PLIM_OK;
}

/* The column that a feature of nodes or edges is by its name, or 0. */
static unsigned column_of(const plim__yaml_array_t *array)
{
    const unsigned column = plim__import_column_headed(array->name, strlen(array->name));
    if (strcmp(array->domain, "edge") == 0)
        return column & PLIM_COLUMNS_OF_EDGES;
    return column == PLIM_EDGE_TIME ||
                   plim__import_column_named(array->name, strlen(array->name)) == PLIM_NODE_TIME
               ? PLIM_NODE_TIME
               : 0;
}

/* Takes the first feature that is a column. */
static plim_status_t take_column(plim__import_t *import, graphbolt_layout_t *layout,
                                 const plim__yaml_array_t *array, bool *taken_out)
{
    const unsigned column = column_of(array);
    char *path = column != 0 ? layout->columns[__builtin_ctz(column)] : NULL;
    *taken_out = path != NULL && path[0] == '\0';
    return *taken_out ? array_path(import, layout, array, path) : PLIM_OK;
}

/* Columns by their names; and the node features named "feat", else the first ones. */
static plim_status_t find_features(plim__import_t *import, graphbolt_layout_t *layout)
{
    const plim__yaml_array_t *chosen = NULL;
    bool taken[PLIM__YAML_FEATURES];
    for (int i = 0; i < layout->yaml.num_features; i++) {
        const plim__yaml_array_t *array = &layout->yaml.features[i];
        PLIM_TRY(take_column(import, layout, array, &taken[i]));
        if (!taken[i] && strcmp(array->domain, "node") == 0 &&
            (chosen == NULL ||
             (strcmp(chosen->name, "feat") != 0 && strcmp(array->name, "feat") == 0)))
            chosen = array;
    }
    for (int i = 0; i < layout->yaml.num_features; i++)
        if (&layout->yaml.features[i] != chosen && !taken[i])
            plim__log(import->job, PLIM_LOG_WARNING, "%s: the feature %s is not imported",
                      layout->name, layout->yaml.features[i].name);
    return chosen != NULL ? array_path(import, layout, chosen, layout->features) : PLIM_OK;
}

static plim_status_t plan(plim__import_t *import, graphbolt_layout_t *layout, bool text)
{
    plim__npy_t npy;
    plim__import_needs_t needs = {.what = text ? "guessed from the text's size" : NULL,
                                  .guessed = text};
    if (layout->yaml.num_nodes >= 0)
        PLIM_TRY(plim__import_agree(&import->nodes, "nodes", layout->yaml.num_nodes, layout->name));
    if (layout->features[0] != '\0') {
        PLIM_TRY(plim__files_header(import, layout->features, &npy));
        needs.feature_bytes = plim__import_feature_bytes(import, &npy);
    }
    if (text) {
        needs.num_edges = plim__import_guess_edges(plim__files_size(layout->edges), false);
    } else {
        PLIM_TRY(plim__files_header(import, layout->edges, &npy));
        needs.num_edges = npy.count / 2;
    }
    needs.num_nodes = import->nodes.value;
    needs.label_rows = import->nodes.value;
    needs.edges_wait = text || import->nodes.value < 0;
    needs.edges_first = import->nodes.value >= 0;
    for (int set = 0; set < 3; set++)
        needs.other_bytes += plim__files_size(layout->seeds[set]);
    import->nodes_ready = import->nodes.value >= 0;
    PLIM_TRY(plim__files_columns(import, layout->columns));
    return plim__import_plan(import, &needs);
}

static plim_status_t read_edges_text(plim__import_t *import, const char *path)
{
    plim__text_t *text;
    PLIM_TRY(plim__import_text_open(import, path, &text));
    plim_status_t status = plim__import_edges_text(import, text, path, -1);
    plim__text_close(text);
    return status;
}

/* Labels of the nodes [first, first + count), gathered from the sets. */
typedef struct set_labels {
    plim__label_source_t source;
    plim__import_t *import;
    const graphbolt_layout_t *layout;
    double *slab; /* (capacity) */
    int64_t capacity;
    int64_t first;
    int64_t count;
    int64_t taken;
} set_labels_t;

static plim_status_t scatter(set_labels_t *labels, int set, plim__ids_t *seeds,
                             plim__reader_t *values, plim__dtype_t type)
{
    int64_t ids[1024], got;
    uint64_t raw[1024];
    do {
        PLIM_TRY(plim__job_check(labels->import->job));
        PLIM_TRY(seeds->read(seeds, ids, 1024, &got));
        PLIM_TRY(plim__reader_read_all(values, raw, (size_t)got * plim__dtype_size(type)));
        for (int64_t i = 0; i < got; i++) {
            if (labels->import->splits[set].mask && ids[i] == 0)
                continue;
            if (labels->import->splits[set].mask)
                ids[i] = seeds->position - got + i;
            if (ids[i] < 0 || ids[i] >= labels->import->nodes.value)
                return plim__fail(PLIM_ERR_DATA,
                                  "%s: entry %" PRId64 " is %" PRId64 ", but there are %" PRId64
                                  " nodes",
                                  labels->layout->seeds[set], seeds->position - got + i, ids[i],
                                  labels->import->nodes.value);
            if (ids[i] >= labels->first && ids[i] < labels->first + labels->count)
                labels->slab[ids[i] - labels->first] = plim__feature_convert_value(type, raw, i);
        }
    } while (got > 0);
    return plim__reader_end(values);
}

static plim_status_t scatter_set(set_labels_t *labels, int set)
{
    plim__reader_t *seeds, *values;
    plim__npy_t seeds_npy, values_npy;
    plim__ids_npy_t ids;
    const graphbolt_layout_t *layout = labels->layout;
    PLIM_TRY(plim__files_array(labels->import, layout->seeds[set], &seeds, &seeds_npy));
    plim_status_t status =
        plim__files_array(labels->import, layout->labels[set], &values, &values_npy);
    if (status != PLIM_OK)
        goto close_seeds;
    if (values_npy.count != seeds_npy.count)
        status = plim__fail(
            PLIM_ERR_DATA,
            "%s has %" PRId64 " ids, but %s has %" PRId64 " labels; each id needs one label",
            layout->seeds[set], seeds_npy.count, layout->labels[set], values_npy.count);
    labels->source.vector &= values_npy.num_dims == 1;
    if (status == PLIM_OK)
        status = plim__ids_npy_open(&ids, seeds, seeds_npy.type, seeds_npy.count);
    if (status == PLIM_OK)
        status = scatter(labels, set, &ids.ids, values, values_npy.type);
    plim__reader_close(values);
close_seeds:
    plim__reader_close(seeds);
    return status;
}

static plim_status_t labels_read(plim__label_source_t *source, double *to, int64_t capacity,
                                 int64_t *got_out)
{
    set_labels_t *labels = (set_labels_t *)source;
    if (labels->taken == labels->count) {
        labels->first += labels->count;
        labels->count =
            plim__min_i64(labels->capacity, labels->import->nodes.value - labels->first);
        labels->taken = 0;
        for (int64_t i = 0; i < labels->count; i++)
            labels->slab[i] = (double)NAN;
        for (int set = 0; set < 3 && labels->count > 0; set++)
            if (labels->layout->labels[set][0] != '\0' && labels->layout->seeds[set][0] != '\0')
                PLIM_TRY(scatter_set(labels, set));
    }
    int64_t got = plim__min_i64(capacity, labels->count - labels->taken);
    memcpy(to, labels->slab + labels->taken, (size_t)got * sizeof *to);
    labels->taken += got;
    *got_out = got;
    return PLIM_OK;
}

static plim_status_t read_labels(plim__import_t *import, const graphbolt_layout_t *layout)
{
    plim__arena_t arena;
    /* Besides the slab: four readers, a spool and a column. */
    int64_t room = plim__ledger_available(import->job->ledger) / 2 / 8;
    int64_t capacity = plim__min_i64(plim__max_i64(room, 1024), import->nodes.value);
    PLIM_TRY(plim__arena_create(import->job->ledger, "import labels",
                                (size_t)capacity * sizeof(double), &arena));
    set_labels_t labels = {.source = {.read = labels_read,
                                      .name = layout->name,
                                      .row_name = "node",
                                      .columns = 1,
                                      .vector = true},
                           .import = import,
                           .layout = layout,
                           .slab = (void *)arena.base,
                           .capacity = capacity};
    plim_status_t status = plim__import_labels(import, &labels.source);
    plim__arena_destroy(&arena);
    return status;
}

static plim_status_t read_sets(plim__import_t *import, const graphbolt_layout_t *layout)
{
    bool labelled = false;
    for (int set = 0; set < 3; set++) {
        labelled = labelled || (layout->labels[set][0] != '\0' && layout->seeds[set][0] != '\0');
        if (layout->seeds[set][0] != '\0')
            PLIM_TRY(plim__files_split(import, set, layout->seeds[set]));
    }
    if (import->nodes.value < 0) /* edges are spooled: the maximum id will tell */
        return labelled ? plim__fail(
                              PLIM_ERR_DATA,
                              "%s does not give the number of nodes (graph: nodes: - num: …); use "
                              "`num_nodes`",
                              layout->name)
                        : PLIM_OK;
    return labelled ? read_labels(import, layout) : PLIM_OK;
}

static plim_status_t run_layout(plim__import_t *import, graphbolt_layout_t *layout)
{
    PLIM_TRY(read_yaml(import, layout));
    bool text = strcmp(layout->yaml.edges.format, "csv") == 0;
    if (!text && strcmp(layout->yaml.edges.format, "numpy") != 0)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "%s: edges have the format '%s'; csv and numpy are supported",
                          layout->name, layout->yaml.edges.format);
    PLIM_TRY(join_inside(import, layout->name, layout->yaml.edges.path, layout->edges));
    PLIM_TRY(find_sets(import, layout));
    PLIM_TRY(find_features(import, layout));
    PLIM_TRY(plan(import, layout, text));
    PLIM_TRY(text ? read_edges_text(import, layout->edges)
                  : plim__files_edges(import, layout->edges));
    if (layout->features[0] != '\0')
        PLIM_TRY(plim__files_features(import, layout->features));
    return read_sets(import, layout);
}

static plim_status_t run(plim__import_t *import)
{
    plim__arena_t arena;
    PLIM_TRY(
        plim__arena_create(import->job->ledger, "import yaml", sizeof(graphbolt_layout_t), &arena));
    plim_status_t status = run_layout(import, (void *)arena.base);
    plim__arena_destroy(&arena);
    return status;
}

static bool recognise(const char *path)
{
    char file[PATH_MAX];
    struct stat status;
    return snprintf(file, sizeof file, "%s/metadata.yaml", path) < PATH_MAX &&
           stat(file, &status) == 0 && S_ISREG(status.st_mode);
}

const plim__importer_t plim__importer_graphbolt = {"GraphBolt directory", recognise, run};
