/*
 * OGB's layouts, as a downloaded zip or an unpacked directory:
 *
 *     binary:  NAME/raw/data.npz (edge_index, node_feat, num_nodes_list …), raw/node-label.npz
 *     csv:     NAME/raw/edge.csv.gz, node-feat.csv.gz, node-label.csv.gz, num-node-list.csv.gz …
 *     both:    NAME/split/<split>/{train,valid,test}.csv.gz, NAME/mapping/reltype2relid.csv.gz
 *
 * A zip is read once, forward only, in the order of its members; an npz in it is a zip in a zip. A
 * zip or npz may also hold arrays by the names of plim__part_stems, or a SciPy matrix. In
 * a directory, counts and labels are read first, so that edges need not be spooled. Arrays may also
 * be .npy files there, and texts may be uncompressed.
 */
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "ingest/import_files.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The role of a file; in a directory files are read in this order. */
typedef enum role {
    ROLE_NODE_COUNTS,
    ROLE_EDGE_COUNTS,
    ROLE_NODE_LABELS,
    ROLE_GRAPH_LABELS,
    ROLE_SPLIT,
    ROLE_COLUMN, /* of edges, or the times of nodes */
    ROLE_EDGES,
    ROLE_FEATURES,
    ROLE_ARCHIVE, /* an npz: arrays, each with a role of its own */
    ROLE_SPARSE,  /* a part of a SciPy matrix */
    ROLE_TYPES,   /* only in graphs with several types of nodes */
    ROLE_TYPE_NAMES,
    ROLE_NONE
} role_t;

/* Names of OGB, and of texts in a zip; arrays have the names of plim__part_stems. */
static const struct {
    const char *name;
    role_t role;
} names[] = {
    {"num-node-list.csv", ROLE_NODE_COUNTS},
    {"num_nodes_list.npy", ROLE_NODE_COUNTS},
    {"num-edge-list.csv", ROLE_EDGE_COUNTS},
    {"num_edges_list.npy", ROLE_EDGE_COUNTS},
    {"node-label.csv", ROLE_NODE_LABELS},
    {"labels.csv", ROLE_NODE_LABELS},
    {"graph-label.csv", ROLE_GRAPH_LABELS},
    {"graph_label.npy", ROLE_GRAPH_LABELS},
    {"graph-label.npy", ROLE_GRAPH_LABELS},
    {"edge.csv", ROLE_EDGES},
    {"edges.csv", ROLE_EDGES},
    {"node-feat.csv", ROLE_FEATURES},
    {"features.csv", ROLE_FEATURES},
    {"data.npz", ROLE_ARCHIVE},
    {"node-label.npz", ROLE_ARCHIVE},
    {"graph-label.npz", ROLE_ARCHIVE},
    {"reltype2relid.csv", ROLE_TYPE_NAMES},
    {"edge_type_names.csv", ROLE_TYPE_NAMES},
    {"triplet-type-list.csv", ROLE_TYPES},
    {"num-node-dict.csv", ROLE_TYPES},
    {"edge_index_dict.npz", ROLE_TYPES},
};

static const char *const split_names[3] = {"train", "valid", "test"};

static bool ends_with(const char *text, size_t length, const char *end)
{
    size_t size = strlen(end);
    return length >= size && memcmp(text + length - size, end, size) == 0;
}

/* The name of the file in a path, and its length without .gz or .zst. */
static const char *own_name(const char *path, size_t *length_out)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    size_t length = strlen(name);
    if (ends_with(name, length, ".gz"))
        length -= 3;
    else if (ends_with(name, length, ".zst"))
        length -= 4;
    *length_out = length;
    return name;
}

static bool is_npy(const char *path)
{
    size_t length;
    const char *name = own_name(path, &length);
    return ends_with(name, length, ".npy");
}

/* Whether a file may have data of the graph, by its extension. */
static bool is_data(const char *path)
{
    size_t length;
    const char *name = own_name(path, &length);
    return ends_with(name, length, ".npy") || ends_with(name, length, ".npz") ||
           ends_with(name, length, ".csv");
}

/* Whether a member may be data: in raw/, or in an archive of arrays only. */
static bool is_raw(const char *member)
{
    return strstr(member, "raw/") != NULL || strchr(member, '/') == NULL;
}

/* The part of a path after its last directory named split; NULL when there is none. */
static const char *below_split(const char *path)
{
    const char *below = NULL;
    for (const char *next = path; next != NULL; next = strchr(next, '/')) {
        next += *next == '/';
        if (strncmp(next, "split/", 6) == 0)
            below = next + 6;
    }
    return below;
}

/* The role of an array by the names of plim__part_stems, or of a split's text. Splits have these
 * names only in archives without OGB's directories. */
static role_t role_of_part(const char *path, const char *name, size_t length, int *which_out)
{
    const bool array = ends_with(name, length, ".npy");
    if (!array && !ends_with(name, length, ".csv"))
        return ROLE_NONE;
    const plim__part_t part = plim__files_part_of(name, length - 4, array);
    if (part >= PLIM__PART_TRAIN && part <= PLIM__PART_TEST) {
        *which_out = (int)(part - PLIM__PART_TRAIN);
        return strstr(path, "raw/") == NULL && below_split(path) == NULL ? ROLE_SPLIT : ROLE_NONE;
    }
    if (!array || part == PLIM__PARTS)
        return ROLE_NONE;
    return part == PLIM__PART_EDGES      ? ROLE_EDGES
           : part == PLIM__PART_FEATURES ? ROLE_FEATURES
                                         : ROLE_NODE_LABELS;
}

/* The role of a path relative to the root, and which split or column it is. */
static role_t role_of(const char *path, int *which_out)
{
    size_t length;
    const char *name = own_name(path, &length);
    for (int i = 0; i < 3 && below_split(path) != NULL; i++) {
        size_t size = strlen(split_names[i]);
        if (length == size + 4 && memcmp(name, split_names[i], size) == 0 &&
            (ends_with(name, length, ".csv") || ends_with(name, length, ".npy"))) {
            *which_out = i;
            return ROLE_SPLIT;
        }
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i].name) == length && memcmp(name, names[i].name, length) == 0)
            return names[i].role;
    const unsigned column = plim__import_column_of(path);
    if (column != 0) {
        *which_out = (int)column;
        return ROLE_COLUMN;
    }
    const role_t role = role_of_part(path, name, length, which_out);
    return role == ROLE_NONE && plim__import_sparse_is(name) ? ROLE_SPARSE : role;
}

/*
 * Whether an archive may have columns of edges: its directory, at its end, has such a name. Edges
 * then wait for them. Finding a name that means something else costs only a detour over the disk.
 */
static bool names_columns(const char *path)
{
    char tail[16384 + 1], word[64];
    const char *name;
    unsigned column;
    bool found = false;
    FILE *file = fopen(path, "rbe");
    if (file == NULL)
        return false;
    if (fseek(file, -(long)(sizeof tail - 1), SEEK_END) != 0)
        rewind(file);
    const size_t got = fread(tail, 1, sizeof tail - 1, file);
    (void)fclose(file);
    for (int i = 0; !found && (name = plim__import_column_name(i, &column)) != NULL; i++)
        if (column != PLIM_NODE_TIME) {
            (void)snprintf(word, sizeof word, "%s.", name);
            found = memmem(tail, got, word, strlen(word)) != NULL;
        }
    return found;
}

/* Reads the numbers of nodes or edges of each graph. Those of many graphs are spooled. */
static plim_status_t take_counts(plim__import_t *import, plim__ids_t *ids, bool nodes)
{
    plim__id_spool_t *spool = nodes ? &import->graph_nodes : &import->graph_edges;
    plim__agreed_t *agreed = nodes ? &import->nodes : &import->edges;
    const char *what = nodes ? "nodes" : "edges";
    int64_t counts[PLIM__ID_CHUNK], got, sum = 0;
    if (spool->file != NULL)
        return plim__fail(PLIM_ERR_DATA, "%s: the counts were already read from another file",
                          ids->name);
    PLIM_TRY(plim__id_spool_create(spool, import->job, import->tmp, PLIM__PAGE, ids->name));
    do {
        PLIM_TRY(ids->read(ids, counts, PLIM__ID_CHUNK, &got));
        for (int64_t i = 0; i < got; i++)
            if (counts[i] < 0 || !plim__add_i64(sum, counts[i], &sum))
                return plim__fail(PLIM_ERR_DATA,
                                  "%s: entry %" PRId64 " is %" PRId64
                                  ", which is impossible for a graph",
                                  ids->name, spool->count + i, counts[i]);
        PLIM_TRY(plim__id_spool_write(spool, counts, got));
    } while (got == PLIM__ID_CHUNK);
    if (spool->count == 0)
        return plim__fail(PLIM_ERR_DATA, "%s is empty; it must have the number of %s", ids->name,
                          what);
    PLIM_TRY(plim__import_agree(agreed, what, sum, ids->name));
    PLIM_TRY(plim__import_agree(&import->counts, "graphs", spool->count, ids->name));
    if (spool->count == 1) {
        plim__id_spool_destroy(spool);
        import->nodes_ready = import->nodes_ready || nodes;
        return PLIM_OK;
    }
    if (import->edges_done)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "%s counts %" PRId64
                          " graphs, but comes after their edges in the archive; "
                          "unpack the archive and import the directory",
                          ids->name, spool->count);
    PLIM_TRY(plim__import_agree(&import->graphs, "graphs", spool->count, ids->name));
    import->nodes_ready = import->graph_nodes.file != NULL && import->graph_edges.file != NULL;
    return PLIM_OK;
}

/* Exact for the graph if its numbers of nodes and edges are known. */
static plim_status_t take_edges_text(plim__import_t *import, plim__text_t *text, const char *name)
{
    bool counted = import->edges.value >= 0 && import->nodes_ready;
    plim__import_needs_t needs = {.num_nodes = import->nodes.value,
                                  .num_edges = import->edges.value,
                                  .label_rows = import->labels_done ? 0 : import->nodes.value,
                                  .at_least = true,
                                  .edges_wait = !counted,
                                  .edges_first = counted};
    PLIM_TRY(plim__import_plan(import, &needs));
    return plim__import_edges_text(import, text, name, import->edges.value);
}

static plim_status_t take_text(plim__import_t *import, role_t role, int which, plim__text_t *text,
                               const char *name)
{
    plim__ids_text_t ids;
    switch (role) {
    case ROLE_NODE_COUNTS:
    case ROLE_EDGE_COUNTS:
        PLIM_TRY(plim__ids_text_open(&ids, text, name));
        return take_counts(import, &ids.ids, role == ROLE_NODE_COUNTS);
    case ROLE_NODE_LABELS:
    case ROLE_GRAPH_LABELS:
        return plim__import_labels_text(import, text, name, role == ROLE_GRAPH_LABELS);
    case ROLE_SPLIT:
        return plim__import_split_text(import, which, text, name);
    case ROLE_COLUMN:
        return plim__import_column_text(import, (unsigned)which, text, name);
    case ROLE_EDGES:
        return take_edges_text(import, text, name);
    case ROLE_FEATURES:
        return plim__import_features_text(import, text, name);
    case ROLE_TYPE_NAMES:
        return plim__import_type_names(import, text, name);
    default:
        return PLIM_OK;
    }
}

/*
 * Lower bound for features.npy when only the header of the edges was read: arrays are not smaller
 * than their compressed size, and an npz has besides edges only features and a few numbers a node.
 */
static int64_t min_features(const plim__import_t *import, const plim__npy_t *edges)
{
    int64_t others = edges->count * (int64_t)plim__dtype_size(edges->type);
    int64_t nodes = plim__max_i64(import->nodes.value, 0);
    int64_t left = import->archive_bytes - import->archive_bytes / 256 - others - 16 * nodes;
    if (import->features_done || left < 0)
        return 0;
    return import->options->features == PLIM_F16 ? left / 2 : left;
}

static plim_status_t plan_at_edges(plim__import_t *import, const plim__npy_t *npy)
{
    plim__import_needs_t needs = {.num_nodes = import->nodes.value,
                                  .num_edges = npy->count / 2,
                                  .feature_bytes = min_features(import, npy),
                                  .label_rows = import->labels_done ? 0 : import->nodes.value,
                                  .at_least = true,
                                  .edges_wait = !import->nodes_ready || import->columns_wait,
                                  .sources_wait = true,
                                  .edges_first = import->nodes_ready && !import->columns_wait};
    return plim__import_plan(import, &needs);
}

/* Now the size is exact; spooled edges will be built while the features are written. */
static plim_status_t plan_at_features(plim__import_t *import, const plim__npy_t *npy)
{
    int64_t rows = npy->num_dims > 0 ? npy->shape[0] : 0;
    plim__import_needs_t needs = {.num_nodes = import->edges_done ? 0 : rows,
                                  .num_edges = import->edges_done ? 0 : import->sources.count,
                                  .feature_bytes = plim__import_feature_bytes(import, npy),
                                  .label_rows = import->labels_done ? 0 : rows,
                                  .what =
                                      import->edges_done ? "for the features" : "with the features",
                                  .at_least = !import->edges_done && import->sources.file == NULL};
    return plim__import_plan(import, &needs);
}

static plim_status_t take_array(plim__import_t *import, role_t role, int which,
                                plim__reader_t *reader)
{
    plim__npy_t npy;
    plim__ids_npy_t ids;
    PLIM_TRY(plim__npy_read(reader, &npy));
    switch (role) {
    case ROLE_NODE_COUNTS:
    case ROLE_EDGE_COUNTS:
        PLIM_TRY(plim__ids_npy_open(&ids, reader, npy.type, npy.count));
        PLIM_TRY(take_counts(import, &ids.ids, role == ROLE_NODE_COUNTS));
        return plim__reader_end(reader);
    case ROLE_NODE_LABELS:
    case ROLE_GRAPH_LABELS:
        return plim__import_labels_npy(import, reader, &npy, role == ROLE_GRAPH_LABELS);
    case ROLE_SPLIT:
        return plim__import_split_npy(import, which, reader, &npy);
    case ROLE_COLUMN:
        return plim__import_column_npy(import, (unsigned)which, reader, &npy);
    case ROLE_EDGES:
        PLIM_TRY(plan_at_edges(import, &npy));
        return plim__import_edges_npy(import, reader, &npy);
    case ROLE_FEATURES:
        PLIM_TRY(plan_at_features(import, &npy));
        return plim__import_features_npy(import, reader, &npy);
    default:
        return PLIM_OK;
    }
}

/* Labels of nodes mean that there is one graph, so its edges need not wait for the counts. */
static plim_status_t after(plim__import_t *import, role_t role, bool array)
{
    if (role == ROLE_NODE_LABELS && array && import->counts.value < 0)
        import->nodes_ready = true;
    return import->nodes_ready ? plim__import_build_edges(import) : PLIM_OK;
}

/* Takes ownership of the reader. */
static plim_status_t take_npz(plim__import_t *import, plim__reader_t *reader)
{
    plim__zip_t *zip;
    const char *name;
    int64_t size;
    int which = -1;
    plim_status_t status;
    import->archive_bytes = reader->size;
    PLIM_TRY(plim__zip_open(import->job, reader, &zip));
    while ((status = plim__zip_next(zip, &name, &size)) == PLIM_OK && name != NULL) {
        plim__reader_t *member;
        role_t role = role_of(name, &which);
        if (role == ROLE_NONE || role == ROLE_ARCHIVE || role == ROLE_SPLIT || !is_npy(name)) {
            plim__import_leave_out(import, name);
            continue;
        }
        status = plim__zip_member(zip, &member);
        if (status == PLIM_OK)
            status = plim__reader_ahead(import->job, member, import->buffer, &member);
        if (status != PLIM_OK)
            break;
        status = role == ROLE_SPARSE ? plim__import_sparse(import, name, member)
                                     : take_array(import, role, which, member);
        plim__reader_close(member);
        if (status == PLIM_OK)
            status = after(import, role, true);
        if (status != PLIM_OK)
            break;
    }
    plim__zip_close(zip);
    return status == PLIM_OK ? plim__import_sparse_finish(import) : status;
}

plim_status_t plim__import_npz(plim__import_t *import, const char *path)
{
    plim__reader_t *reader;
    PLIM_TRY(plim__reader_file(import->job, path, import->buffer, &reader));
    import->columns_wait |= names_columns(path);
    return take_npz(import, reader);
}

/* Imports the file at `path` in the layout. Takes ownership of the reader. */
static plim_status_t take(plim__import_t *import, role_t role, int which, const char *path,
                          plim__reader_t *reader)
{
    plim_status_t status;
    if (role == ROLE_ARCHIVE)
        return take_npz(import, reader);
    if (role == ROLE_TYPES) {
        status = plim__fail(PLIM_ERR_UNSUPPORTED,
                            "%s: the graph has several types of nodes or edges; only graphs of "
                            "one type are supported",
                            reader->name);
        plim__reader_close(reader);
        return status;
    }
    PLIM_TRY(plim__import_inflate(import, reader, &reader));
    bool array = is_npy(path);
    if (array) {
        status = role == ROLE_SPARSE ? plim__import_sparse(import, path, reader)
                                     : take_array(import, role, which, reader);
        plim__reader_close(reader);
    } else {
        plim__text_t *text;
        char name[PLIM__READER_NAME];
        (void)snprintf(name, sizeof name, "%s", reader->name);
        PLIM_TRY(plim__import_text(import, reader, &text));
        status = take_text(import, role, which, text, name);
        plim__text_close(text);
    }
    return status == PLIM_OK ? after(import, role, array) : status;
}

/* The directory of a split, so that all splits come from the same one. */
static bool same_scheme(char scheme[256], const char *path)
{
    const char *begin = below_split(path);
    const char *end = strrchr(path, '/');
    size_t length = end > begin ? (size_t)(end - begin) : 0;
    if (scheme[0] == '\0')
        (void)snprintf(scheme, 256, "%.*s", (int)length, begin);
    return strlen(scheme) == length && memcmp(scheme, begin, length) == 0;
}

static plim_status_t take_member(plim__import_t *import, plim__zip_t *zip, const char *name,
                                 role_t role, int which)
{
    plim__reader_t *member;
    PLIM_TRY(plim__zip_member(zip, &member));
    if (role == ROLE_ARCHIVE)
        PLIM_TRY(plim__reader_ahead(import->job, member, import->buffer, &member));
    return take(import, role, which, name, member);
}

/* A guess before reading: most of a large archive is features. */
static plim_status_t plan_archive(plim__import_t *import, int64_t bytes)
{
    plim__import_needs_t needs = {.feature_bytes =
                                      import->options->features == PLIM_F16 ? bytes / 2 : bytes,
                                  .what = "guessed from the archive's size",
                                  .guessed = true};
    return plim__import_plan(import, &needs);
}

static plim_status_t run_zip(plim__import_t *import)
{
    plim__reader_t *reader;
    plim__zip_t *zip;
    const char *name;
    char scheme[256] = "";
    int64_t size;
    int which = -1;
    plim_status_t status;
    import->columns_wait = names_columns(import->options->source);
    PLIM_TRY(plim__reader_file(import->job, import->options->source, import->buffer, &reader));
    status = plan_archive(import, reader->size);
    if (status != PLIM_OK) {
        plim__reader_close(reader);
        return status;
    }
    PLIM_TRY(plim__zip_open(import->job, reader, &zip));
    while ((status = plim__zip_next(zip, &name, &size)) == PLIM_OK && name != NULL) {
        role_t role = role_of(name, &which);
        if (role == ROLE_SPLIT && below_split(name) != NULL && !same_scheme(scheme, name)) {
            plim__log(import->job, PLIM_LOG_WARNING, "%s is not imported: using the split %s", name,
                      scheme);
            continue;
        }
        if (role == ROLE_NONE && is_data(name) && is_raw(name))
            plim__import_leave_out(import, name);
        if (role != ROLE_NONE)
            status = take_member(import, zip, name, role, which);
        if (status != PLIM_OK)
            break;
    }
    plim__zip_close(zip);
    return status == PLIM_OK ? plim__import_sparse_finish(import) : status;
}

static bool is_directory(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Finds the directories that contain raw/: `path` itself, or those in it. Returns their number and
 * two of them. */
static int find_root(const char *path, char root_out[PATH_MAX], char other_out[PATH_MAX])
{
    char raw[PATH_MAX];
    struct dirent *entry;
    int found = 0;
    if (snprintf(raw, sizeof raw, "%s/raw", path) < PATH_MAX && is_directory(raw)) {
        (void)snprintf(root_out, PATH_MAX, "%s", path);
        return 1;
    }
    DIR *directory = opendir(path);
    if (directory == NULL)
        return 0;
    while ((entry = readdir(directory)) != NULL)
        if (entry->d_name[0] != '.' &&
            snprintf(raw, sizeof raw, "%s/%s/raw", path, entry->d_name) < PATH_MAX &&
            is_directory(raw)) {
            raw[strlen(raw) - 4] = '\0';
            (void)snprintf(other_out, PATH_MAX, "%s", found > 0 ? root_out : "");
            (void)snprintf(root_out, PATH_MAX, "%s", raw);
            found++;
        }
    (void)closedir(directory);
    return found;
}

/* Reads every file of `role` in one folder of the layout. */
static plim_status_t visit(plim__import_t *import, const char *root, const char *folder,
                           role_t role)
{
    char path[PATH_MAX];
    plim_status_t status = PLIM_OK;
    struct dirent *entry;
    if (snprintf(path, sizeof path, "%s/%s", root, folder) >= PATH_MAX)
        return PLIM_OK;
    DIR *directory = opendir(path);
    if (directory == NULL)
        return errno == ENOENT ? PLIM_OK : plim__fail_errno(errno, "cannot list %s", path);
    while (status == PLIM_OK && (entry = readdir(directory)) != NULL) {
        char file[PATH_MAX];
        plim__reader_t *reader;
        int which = -1;
        if (snprintf(file, sizeof file, "%s/%s", path, entry->d_name) >= PATH_MAX ||
            role_of(file + strlen(root) + 1, &which) != role || is_directory(file))
            continue;
        status = plim__reader_file(import->job, file, import->buffer, &reader);
        import->columns_wait |= role == ROLE_ARCHIVE && names_columns(file);
        if (status == PLIM_OK)
            status = take(import, role, which, file, reader);
    }
    (void)closedir(directory);
    return status;
}

/* Reads the first directory of splits by name. */
static plim_status_t visit_splits(plim__import_t *import, const char *root)
{
    char path[PATH_MAX], chosen[256] = "", folder[264];
    struct dirent *entry;
    int found = 0;
    if (snprintf(path, sizeof path, "%s/split", root) >= PATH_MAX)
        return PLIM_OK;
    DIR *directory = opendir(path);
    if (directory == NULL)
        return PLIM_OK;
    while ((entry = readdir(directory)) != NULL) {
        char entry_path[PATH_MAX];
        if (entry->d_name[0] == '.' ||
            snprintf(entry_path, sizeof entry_path, "%s/%s", path, entry->d_name) >= PATH_MAX ||
            !is_directory(entry_path))
            continue;
        found++;
        if (chosen[0] == '\0' || strcmp(entry->d_name, chosen) < 0)
            (void)snprintf(chosen, sizeof chosen, "%s", entry->d_name);
    }
    (void)closedir(directory);
    if (found == 0)
        return PLIM_OK;
    if (found > 1)
        plim__log(import->job, PLIM_LOG_WARNING, "%s has %d splits; using %s", path, found, chosen);
    (void)snprintf(folder, sizeof folder, "split/%s", chosen);
    return visit(import, root, folder, ROLE_SPLIT);
}

/* Records files in raw/ without a role. */
static void leave_out(plim__import_t *import, const char *root)
{
    char path[PATH_MAX];
    struct dirent *entry;
    int which;
    if (snprintf(path, sizeof path, "%s/raw", root) >= PATH_MAX)
        return;
    DIR *directory = opendir(path);
    if (directory == NULL)
        return;
    while ((entry = readdir(directory)) != NULL)
        if (is_data(entry->d_name) && role_of(entry->d_name, &which) == ROLE_NONE)
            plim__import_leave_out(import, entry->d_name);
    (void)closedir(directory);
}

static plim_status_t run_directory(plim__import_t *import)
{
    static const char *const folders[] = {"raw", "raw/data", "raw/node-label", "mapping"};
    static const role_t order[] = {
        ROLE_TYPES,  ROLE_NODE_COUNTS, ROLE_EDGE_COUNTS, ROLE_GRAPH_LABELS, ROLE_NODE_LABELS,
        ROLE_COLUMN, ROLE_EDGES,       ROLE_ARCHIVE,     ROLE_FEATURES,     ROLE_TYPE_NAMES};
    char root[PATH_MAX], other[PATH_MAX];
    int found = find_root(import->options->source, root, other);
    if (found == 0)
        return plim__fail(PLIM_ERR_DATA, "%s no longer has raw/", import->options->source);
    if (found > 1)
        return plim__fail(PLIM_ERR_DATA, "%s has several datasets (%s, %s%s); give one of them",
                          import->options->source, strrchr(other, '/') + 1, strrchr(root, '/') + 1,
                          found > 2 ? " …" : "");
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        for (size_t f = 0; f < sizeof folders / sizeof folders[0]; f++)
            PLIM_TRY(visit(import, root, folders[f], order[i]));
    leave_out(import, root);
    return visit_splits(import, root);
}

static bool is_zip(const char *path)
{
    unsigned char magic[4] = {0};
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode)) /* opening a pipe would block */
        return false;
    FILE *file = fopen(path, "rbe");
    if (file == NULL)
        return false;
    size_t got = fread(magic, 1, sizeof magic, file);
    (void)fclose(file);
    return got == 4 && memcmp(magic, "PK\3\4", 4) == 0;
}

static bool recognise(const char *path)
{
    char root[PATH_MAX], other[PATH_MAX];
    return is_directory(path) ? find_root(path, root, other) > 0 : is_zip(path);
}

static plim_status_t run(plim__import_t *import)
{
    return is_directory(import->options->source) ? run_directory(import) : run_zip(import);
}

static bool recognise_npz(const char *path)
{
    return ends_with(path, strlen(path), ".npz") && is_zip(path);
}

const plim__importer_t plim__importer_npz = {".npz file", recognise_npz, run_zip};
const plim__importer_t plim__importer_ogb = {"OGB", recognise, run};
