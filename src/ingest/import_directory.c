/*
 * A directory with a file for each part of a graph, as .npy or text:
 *
 *     edge_index.npy [2, E] or [E, 2], or indptr.npy and indices.npy (CSC), or edges.csv, or
 *         adj.npz (SciPy)
 *     node_feat.npy, features.npy, x.npy, features.csv, x.csv …
 *     node_label*.npy, labels.npy, y.npy, labels.csv, y.csv …
 *     or nodes.csv with both: id, features, label
 *     train, valid or val, test: .npy or .csv; ids or a mask; also with _idx or _mask
 *
 * .npy files may also be one or two directories down (IGB's and MAG240M's processed/). Headers of
 * arrays are read first, so that the number of nodes is known before the edges are read; if only
 * texts have it, labels and features are read before the edges.
 */
#include "ingest/import.h"

#include "base/fail.h"
#include "base/job.h"
#include "ingest/import_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define NUMBERED_ROWS 8 /* that must begin with 0, 1, 2 … to be numbered by their first column */

/* The files of the layout; an empty path is missing. */
typedef struct directory_files {
    char edges[PATH_MAX];
    char indptr[PATH_MAX];
    char indices[PATH_MAX];
    char features[PATH_MAX];
    char labels[PATH_MAX];
    char splits[3][PATH_MAX];
    char nodes[PATH_MAX]; /* names of nodes, with --relabel */
    char columns[PLIM__FILES_COLUMNS][PATH_MAX];
    char type_names[PATH_MAX];
    bool combined; /* features and labels are those of nodes.csv */
} directory_files_t;

static const char *const sparse_stems[] = {"adj", "adjacency", "graph", "edges", "adj_full", NULL};
static const char *const indptr_stems[] = {"indptr", NULL};
static const char *const indices_stems[] = {"indices", NULL};
static const char *const node_stems[] = {"nodes", "ids", "node_ids", "names", NULL};

static plim_status_t find_all(const char *root, bool relabel, directory_files_t *found)
{
    PLIM_TRY(plim__files_find(root, PLIM__FILES_ARRAY, indptr_stems, found->indptr));
    PLIM_TRY(plim__files_find(root, PLIM__FILES_ARRAY, indices_stems, found->indices));
    if (found->indptr[0] != '\0' && found->indices[0] != '\0')
        PLIM_TRY(plim__files_find(root, PLIM__FILES_ARRAY,
                                  plim__part_stems[PLIM__PART_EDGES].arrays, found->edges));
    else
        PLIM_TRY(plim__files_find_part(root, PLIM__PART_EDGES, found->edges));
    if (found->edges[0] == '\0' && (found->indptr[0] == '\0' || found->indices[0] == '\0'))
        PLIM_TRY(plim__files_find(root, PLIM__FILES_ARCHIVE, sparse_stems, found->edges));
    PLIM_TRY(plim__files_find_part(root, PLIM__PART_FEATURES, found->features));
    PLIM_TRY(plim__files_find_part(root, PLIM__PART_LABELS, found->labels));
    for (int i = 0; i < 3; i++)
        PLIM_TRY(
            plim__files_find_part(root, (plim__part_t)(PLIM__PART_TRAIN + i), found->splits[i]));
    PLIM_TRY(plim__files_find_columns(root, found->columns));
    PLIM_TRY(
        plim__files_find(root, PLIM__FILES_TEXT, plim__files_type_name_stems, found->type_names));
    return relabel || found->labels[0] == '\0'
               ? plim__files_find(root, PLIM__FILES_TEXT, node_stems, found->nodes)
               : PLIM_OK;
}

/* Whether a column is headed as labels usually are: "label", "class_label", "y" … */
static bool is_label_heading(const char *word)
{
    static const char *const words[] = {"y",       "target", "targets", "category",
                                        "subject", "labels", "classes"};
    static const char *const ends[] = {"label", "class"};
    const size_t length = strlen(word);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcasecmp(word, words[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (length >= 5 && strcasecmp(word + length - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

/* Finds out whether nodes.csv has features and labels: id, features, label. The last column is the
 * label if its heading says so, or if there is no heading and it is a word after features. */
static plim_status_t look_at_nodes(plim__import_t *import, directory_files_t *found)
{
    plim__text_t *text;
    plim__text_line_t line = {.columns = 0};
    if (found->nodes[0] == '\0' || found->labels[0] != '\0')
        return PLIM_OK;
    PLIM_TRY(plim__import_text_open(import, found->nodes, &text));
    plim_status_t status = plim__text_table(text, false, &line);
    const char *heading = plim__text_heading_end(text);
    const bool table = heading[0] != '\0' && line.columns > 1;
    const bool only_last = line.word_last && line.words == 1 + line.word_first;
    found->combined =
        table ? is_label_heading(heading) : heading[0] == '\0' && line.columns > 2 && only_last;
    plim__text_close(text);
    PLIM_TRY(status);
    if (!found->combined) {
        if (table)
            plim__log(import->job, PLIM_LOG_WARNING,
                      "%s: only ids are read from it; to import its other columns as features and "
                      "labels, call the last one label",
                      found->nodes);
        return PLIM_OK;
    }
    if (line.columns > 2 && found->features[0] != '\0')
        return plim__fail(PLIM_ERR_DATA, "%s and %s both have features; keep one of the two",
                          found->nodes, found->features);
    import->label_last = true;
    if (line.columns > 2)
        (void)snprintf(found->features, PATH_MAX, "%s", found->nodes);
    (void)snprintf(found->labels, PATH_MAX, "%s", found->nodes);
    found->nodes[0] = '\0';
    return PLIM_OK;
}

static bool is_archive(const char *path)
{
    const size_t length = strlen(path);
    return length > 4 && strcmp(path + length - 4, ".npz") == 0;
}

static bool is_text(const char *path)
{
    size_t stem;
    return path[0] != '\0' && plim__files_is_text(path, &stem);
}

static plim_status_t check_edges(const char *root, const directory_files_t *found)
{
    bool csc = found->indptr[0] != '\0' && found->indices[0] != '\0';
    if (csc && found->edges[0] != '\0')
        return plim__fail(PLIM_ERR_DATA,
                          "%s and %s both have edges; keep edge_index.npy, or indptr.npy and "
                          "indices.npy",
                          found->edges, found->indices);
    if (!csc && found->edges[0] == '\0')
        return plim__fail(PLIM_ERR_DATA,
                          "%s has neither edge_index.npy nor both indptr.npy and indices.npy",
                          root);
    return PLIM_OK;
}

/* Sets the number of nodes by the first dimension of the array. */
static plim_status_t state_nodes(plim__import_t *import, const char *path, int64_t less,
                                 plim__npy_t *npy_out)
{
    PLIM_TRY(plim__files_header(import, path, npy_out));
    if (npy_out->num_dims < 1 || npy_out->shape[0] < less)
        return plim__fail(PLIM_ERR_DATA,
                          "%s has %d dimensions, and the first is too short for a graph", path,
                          npy_out->num_dims);
    return plim__import_agree(&import->nodes, "nodes", npy_out->shape[0] - less, path);
}

static plim_status_t plan_edges(plim__import_t *import, const directory_files_t *found,
                                plim__import_needs_t *needs)
{
    plim__npy_t npy;
    if (is_text(found->edges) || is_archive(found->edges)) {
        needs->num_edges =
            plim__import_guess_edges(plim__files_size(found->edges), is_archive(found->edges));
        needs->edges_wait = true;
        return PLIM_OK;
    }
    PLIM_TRY(
        plim__files_header(import, found->edges[0] != '\0' ? found->edges : found->indices, &npy));
    needs->num_edges = found->edges[0] != '\0' ? npy.count / 2 : npy.count;
    needs->edges_wait = import->nodes.value < 0;
    needs->edges_first = import->nodes.value >= 0;
    return plim__import_agree(&import->edges, "edges", needs->num_edges,
                              found->edges[0] != '\0' ? found->edges : found->indices);
}

static plim_status_t plan(plim__import_t *import, directory_files_t *found)
{
    plim__npy_t npy;
    plim__import_needs_t needs = {.other_bytes = 0};
    if (is_text(found->features)) {
        needs.feature_bytes = plim__files_size(found->features) / 2;
    } else if (found->features[0] != '\0') {
        PLIM_TRY(state_nodes(import, found->features, 0, &npy));
        needs.feature_bytes = plim__import_feature_bytes(import, &npy);
    }
    if (found->labels[0] != '\0' && !is_text(found->labels)) {
        PLIM_TRY(state_nodes(import, found->labels, 0, &npy));
        needs.label_rows = npy.count;
    }
    if (found->indptr[0] != '\0' && found->edges[0] == '\0')
        PLIM_TRY(state_nodes(import, found->indptr, 1, &npy));
    PLIM_TRY(plan_edges(import, found, &needs));
    needs.num_nodes = import->nodes.value;
    needs.guessed = is_text(found->edges) || is_archive(found->edges) || is_text(found->features);
    needs.names_wait = import->options->relabel;
    if (needs.guessed)
        needs.what = "guessed from the files' sizes";
    for (int i = 0; i < 3; i++)
        if (found->splits[i][0] != '\0')
            needs.other_bytes += plim__files_size(found->splits[i]);
    import->nodes_ready = import->nodes.value >= 0;
    PLIM_TRY(plim__files_columns(import, found->columns));
    if (is_text(found->edges))
        PLIM_TRY(plim__import_headed_columns(import, found->edges));
    return plim__import_plan(import, &needs);
}

static plim_status_t read_csc(plim__import_t *import, const directory_files_t *found)
{
    plim__reader_t *indptr, *indices;
    plim__npy_t indptr_npy, indices_npy;
    plim__ids_npy_t offsets, sources;
    plim__edges_csc_t edges;
    PLIM_TRY(plim__files_array(import, found->indptr, &indptr, &indptr_npy));
    plim_status_t status = plim__files_array(import, found->indices, &indices, &indices_npy);
    if (status != PLIM_OK)
        goto close_indptr;
    if (indptr_npy.num_dims != 1 || indices_npy.num_dims != 1)
        status = plim__fail(PLIM_ERR_DATA, "%s and %s must have one dimension", found->indptr,
                            found->indices);
    if (status == PLIM_OK)
        status = plim__ids_npy_open(&offsets, indptr, indptr_npy.type, indptr_npy.count);
    if (status == PLIM_OK)
        status = plim__ids_npy_open(&sources, indices, indices_npy.type, indices_npy.count);
    if (status == PLIM_OK) {
        plim__edges_csc_open(&edges, &offsets.ids, &sources.ids, indices_npy.count);
        status = plim__import_edges(import, &edges.edges, indices_npy.count);
    }
    plim__reader_close(indices);
close_indptr:
    plim__reader_close(indptr);
    return status;
}

/* Counts the columns of a text, and finds out (unless counting_out is NULL) whether its first rows,
 * at least three, begin with 0, 1, 2 … before other columns. */
static plim_status_t look_at_rows(plim__import_t *import, const char *path, int64_t *columns_out,
                                  bool *counting_out)
{
    plim__text_t *text;
    plim__text_line_t line = {.columns = 0};
    double first[NUMBERED_ROWS];
    int64_t got = 0;
    PLIM_TRY(plim__import_text_open(import, path, &text));
    plim_status_t status = plim__text_table(text, true, &line);
    *columns_out = line.columns;
    if (counting_out != NULL)
        *counting_out = false;
    if (status == PLIM_OK && counting_out != NULL && line.columns > 1 && !line.word_first) {
        status = plim__text_rows_f64(text, line.columns, 1, NUMBERED_ROWS, first, &got);
        *counting_out = got > 2;
        for (int64_t i = 0; i < got && status == PLIM_OK; i++)
            *counting_out = *counting_out && first[i] == (double)i;
    }
    plim__text_close(text);
    return status;
}

static plim_status_t read_text(plim__import_t *import, plim__part_t part, const char *path)
{
    plim__text_t *text;
    PLIM_TRY(plim__import_text_open(import, path, &text));
    plim_status_t status = PLIM_OK;
    switch (part) {
    case PLIM__PART_EDGES:
        status = plim__import_edges_text(import, text, path, -1);
        break;
    case PLIM__PART_FEATURES:
        status = plim__import_features_text(import, text, path);
        if (status == PLIM_OK)
            status = plim__import_agree(&import->nodes, "nodes", import->feature_rows, path);
        break;
    case PLIM__PART_LABELS:
        status = plim__import_labels_text(import, text, path, false);
        break;
    default:
        status = plim__import_split_text(import, (int)(part - PLIM__PART_TRAIN), text, path);
        break;
    }
    plim__text_close(text);
    return status;
}

/* Reads features or labels; a first column of 0, 1, 2 … numbers the rows, always in nodes.csv. */
static plim_status_t read_rows(plim__import_t *import, plim__part_t part, const char *path,
                               bool combined)
{
    int64_t columns;
    if (import->row_naming == PLIM__ROW_NAMING_NONE) {
        PLIM_TRY(look_at_rows(import, path, &columns, &import->row_numbers));
        import->row_numbers = import->row_numbers || combined;
        if (import->row_numbers)
            plim__log(import->job, PLIM_LOG_INFO, "%s: the first column is read as the nodes' ids",
                      path);
    }
    PLIM_TRY(read_text(import, part, path));
    import->row_numbers = false;
    return PLIM_OK;
}

static plim_status_t read_edges(plim__import_t *import, const directory_files_t *found)
{
    if (is_text(found->edges))
        return read_text(import, PLIM__PART_EDGES, found->edges);
    if (is_archive(found->edges))
        return plim__import_npz(import, found->edges);
    return found->edges[0] != '\0' ? plim__files_edges(import, found->edges)
                                   : read_csc(import, found);
}

static plim_status_t read_features(plim__import_t *import, const directory_files_t *found)
{
    const char *path = found->features;
    if (path[0] == '\0')
        return PLIM_OK;
    return is_text(path) ? read_rows(import, PLIM__PART_FEATURES, path, found->combined)
                         : plim__files_features(import, path);
}

static plim_status_t read_labels(plim__import_t *import, const directory_files_t *found)
{
    const char *path = found->labels;
    if (path[0] == '\0')
        return PLIM_OK;
    return is_text(path) ? read_rows(import, PLIM__PART_LABELS, path, found->combined)
                         : plim__files_labels(import, path, false);
}

/* Texts that have the number of nodes come before the edges. */
static plim_status_t read_graph(plim__import_t *import, const directory_files_t *found)
{
    const bool edges_first = import->nodes.value >= 0;
    if (edges_first)
        PLIM_TRY(read_edges(import, found));
    PLIM_TRY(read_features(import, found));
    PLIM_TRY(read_labels(import, found));
    if (edges_first)
        return PLIM_OK;
    import->nodes_ready = import->nodes.value >= 0;
    return read_edges(import, found);
}

/* Labels with names in any order; or, in one column or an array, in the order of the nodes. */
static plim_status_t read_named_labels(plim__import_t *import, const directory_files_t *found)
{
    int64_t columns = 1;
    if (found->combined) {
        import->row_naming = PLIM__ROW_NAMING_SAME;
        return read_labels(import, found);
    }
    if (is_text(found->labels))
        PLIM_TRY(look_at_rows(import, found->labels, &columns, NULL));
    if (columns > 1)
        return plim__import_named_labels(import, found->labels);
    import->row_naming = PLIM__ROW_NAMING_NONE;
    return read_labels(import, found);
}

/* Reads edges, labels and splits whose ids are names of nodes. */
static plim_status_t read_named(plim__import_t *import, const directory_files_t *found)
{
    const char *table = found->nodes[0] != '\0'    ? found->nodes
                        : is_text(found->features) ? found->features
                                                   : found->labels;
    if (!is_text(table) || !is_text(found->edges))
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: `relabel` needs texts: edges.csv, and the id of each node in the "
                          "first column of nodes.csv, features.csv or labels.csv",
                          import->options->source);
    PLIM_TRY(plim__names_create(&import->names, import->job, import->tmp, import->buffer, table));
    if (table == found->nodes)
        PLIM_TRY(plim__import_names_list(import, table));
    import->row_naming = table == found->features ? PLIM__ROW_NAMING_ADD : PLIM__ROW_NAMING_SAME;
    if (table != found->labels)
        PLIM_TRY(read_features(import, found));
    import->row_naming = PLIM__ROW_NAMING_ADD;
    if (table == found->labels)
        PLIM_TRY(read_labels(import, found));
    PLIM_TRY(plim__import_names_finish(import));
    if (table == found->labels)
        PLIM_TRY(read_features(import, found));
    else
        PLIM_TRY(read_named_labels(import, found));
    return plim__import_named_edges(import, found->edges);
}

/* A split of names, or a mask in the order of nodes. */
static plim_status_t read_split(plim__import_t *import, int split, const char *path)
{
    plim__npy_t npy;
    const char *slash = strrchr(path, '/');
    const bool mask = strstr(slash != NULL ? slash : path, "mask") != NULL;
    if (path[0] == '\0')
        return PLIM_OK;
    if (is_text(path))
        return import->options->relabel && !mask
                   ? plim__import_named_split(import, split, path)
                   : read_text(import, (plim__part_t)(PLIM__PART_TRAIN + split), path);
    if (import->options->relabel && !mask) {
        PLIM_TRY(plim__files_header(import, path, &npy));
        if (npy.type != PLIM__NPY_BOOL)
            return plim__fail(PLIM_ERR_USAGE,
                              "%s: with `relabel`, give a split as a text of ids, such as "
                              "train.csv, or as a mask",
                              path);
    }
    return plim__files_split(import, split, path);
}

/* The name of a file in the source, or "none". */
static const char *name_of(const plim__import_t *import, const char *path)
{
    return path[0] != '\0' ? path + strlen(import->options->source) + 1 : "none";
}

static void log_found(const plim__import_t *import, const directory_files_t *found)
{
    plim__log(import->job, PLIM_LOG_INFO,
              "%s: edges: %s; features: %s; labels: %s; train: %s; valid: %s; test: %s",
              import->options->source,
              name_of(import, found->edges[0] != '\0' ? found->edges : found->indices),
              name_of(import, found->features), name_of(import, found->labels),
              name_of(import, found->splits[0]), name_of(import, found->splits[1]),
              name_of(import, found->splits[2]));
}

static plim_status_t run(plim__import_t *import)
{
    directory_files_t found = {.edges = ""};
    const char *root = import->options->source;
    import->tables = true;
    PLIM_TRY(find_all(root, import->options->relabel, &found));
    PLIM_TRY(check_edges(root, &found));
    PLIM_TRY(look_at_nodes(import, &found));
    const char *used[11 + PLIM__FILES_COLUMNS] = {
        found.edges,     found.indptr,    found.indices,
        found.features,  found.labels,    found.splits[0],
        found.splits[1], found.splits[2], import->options->relabel ? found.nodes : "",
        found.type_names};
    for (int i = 0; i < PLIM__FILES_COLUMNS; i++)
        used[10 + i] = found.columns[i];
    plim__files_leave_out(import, root, used);
    log_found(import, &found);
    PLIM_TRY(plan(import, &found));
    PLIM_TRY(import->options->relabel ? read_named(import, &found) : read_graph(import, &found));
    for (int i = 0; i < 3; i++)
        PLIM_TRY(read_split(import, i, found.splits[i]));
    return plim__files_type_names(import, found.type_names);
}

static bool recognise_files(const char *path)
{
    return plim__files_has(path, PLIM__FILES_TEXT, plim__part_stems[PLIM__PART_EDGES].texts);
}

static bool recognise_npy(const char *path)
{
    return plim__files_has(path, PLIM__FILES_ARRAY, plim__part_stems[PLIM__PART_EDGES].arrays) ||
           (plim__files_has(path, PLIM__FILES_ARRAY, indptr_stems) &&
            plim__files_has(path, PLIM__FILES_ARRAY, indices_stems)) ||
           (plim__files_has(path, PLIM__FILES_ARCHIVE, sparse_stems) && !recognise_files(path));
}

const plim__importer_t plim__importer_npy = {".npy files", recognise_npy, run};
const plim__importer_t plim__importer_files = {"files", recognise_files, run};
