#include "ingest/import_files.h"

#include "base/fail.h"

#include <dirent.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define DEPTH_MAX 2

static const char *const edge_arrays[] = {"edge_index", "edges", "edge_list", "edgelist", NULL};
static const char *const edge_texts[] = {"edges",    "edge_index", "edge_list",
                                         "edgelist", "edge-list",  NULL};
static const char *const feature_arrays[] = {"node_feat", "node-feat",     "features", "feat", "x",
                                             "feats",     "node_features", "feature",  NULL};
static const char *const feature_texts[] = {
    "features", "feat", "x", "node_feat", "feats", "node-feat", "feature", "node_features", NULL};
static const char *const label_arrays[] = {"node_label",  "node-label", "node_label*",
                                           "labels",      "label",      "y",
                                           "node_labels", "targets",    NULL};
static const char *const label_texts[] = {
    "labels", "label", "y", "node_label", "node-label", "node_labels", "targets", "classes", NULL};
static const char *const train_arrays[] = {"train",     "train_idx",   "train_mask",
                                           "idx_train", "train_masks", NULL};
static const char *const train_texts[] = {"train", "train_idx", "train_mask", "idx_train", NULL};
static const char *const valid_arrays[] = {"valid",       "val",      "valid_idx", "val_idx",
                                           "valid_mask",  "val_mask", "idx_val",   "val_masks",
                                           "valid_masks", NULL};
static const char *const valid_texts[] = {"valid",      "val",      "valid_idx", "val_idx",
                                          "valid_mask", "val_mask", "idx_val",   NULL};
static const char *const test_arrays[] = {"test",     "test_idx",   "test_mask",
                                          "idx_test", "test_masks", NULL};
static const char *const test_texts[] = {"test", "test_idx", "test_mask", "idx_test", NULL};

const plim__part_stems_t plim__part_stems[PLIM__PARTS] = {
    [PLIM__PART_EDGES] = {edge_arrays, edge_texts},
    [PLIM__PART_FEATURES] = {feature_arrays, feature_texts},
    [PLIM__PART_LABELS] = {label_arrays, label_texts},
    [PLIM__PART_TRAIN] = {train_arrays, train_texts},
    [PLIM__PART_VALID] = {valid_arrays, valid_texts},
    [PLIM__PART_TEST] = {test_arrays, test_texts},
};

plim__part_t plim__files_part_of(const char *stem, size_t length, bool array)
{
    for (int part = 0; part < PLIM__PARTS; part++) {
        const char *const *known =
            array ? plim__part_stems[part].arrays : plim__part_stems[part].texts;
        for (; *known != NULL; known++)
            if (strlen(*known) == length && memcmp(*known, stem, length) == 0)
                return (plim__part_t)part;
    }
    return PLIM__PARTS;
}

/* A search for one name, or for a text: a name without its ending. */
typedef struct search {
    char name[64];
    bool text;
    int found;
    plim__import_t *import;  /* if not NULL, matches that are not */
    const char *const *used; /* in this list are recorded as not imported */
    size_t root_length;
    char first[PATH_MAX];
    char other[PATH_MAX];
} search_t;

static void consider(search_t *search, const char *path)
{
    if (search->import != NULL) {
        for (const char *const *used = search->used; *used != NULL; used++)
            if (strcmp(path, *used) == 0)
                return;
        plim__import_leave_out(search->import, path + search->root_length + 1);
        return;
    }
    search->found++;
    bool pattern = strchr(search->name, '*') != NULL;
    if (search->found == 1 || (pattern && strcmp(path, search->first) < 0))
        (void)snprintf(search->first, PATH_MAX, "%s", path);
    else
        (void)snprintf(search->other, PATH_MAX, "%s", path);
}

static const char *const text_endings[] = {".csv",   ".tsv",      ".txt", ".dat",
                                           ".edges", ".edgelist", ".el",  NULL};

bool plim__files_is_text(const char *name, size_t *stem_out)
{
    size_t length = strlen(name);
    if (length > 3 && strcmp(name + length - 3, ".gz") == 0)
        length -= 3;
    else if (length > 4 && strcmp(name + length - 4, ".zst") == 0)
        length -= 4;
    for (const char *const *ending = text_endings; *ending != NULL; ending++) {
        size_t size = strlen(*ending);
        if (length > size && memcmp(name + length - size, *ending, size) == 0) {
            *stem_out = length - size;
            return true;
        }
    }
    return false;
}

static bool matches(const search_t *search, const char *name)
{
    size_t stem;
    if (!search->text)
        return fnmatch(search->name, name, 0) == 0;
    return plim__files_is_text(name, &stem) && strlen(search->name) == stem &&
           memcmp(name, search->name, stem) == 0;
}

/* Walks a directory; skips hidden entries. Texts count only in the directory itself: the usual
 * names are also those of other files. */
static void walk(search_t *search, const char *path, int depth)
{
    char entry_path[PATH_MAX];
    struct dirent *entry;
    struct stat status;
    DIR *directory = opendir(path);
    if (directory == NULL)
        return;
    while ((entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] == '.' ||
            snprintf(entry_path, sizeof entry_path, "%s/%s", path, entry->d_name) >= PATH_MAX ||
            stat(entry_path, &status) != 0)
            continue;
        if (S_ISDIR(status.st_mode) && depth < (search->text ? 0 : DEPTH_MAX))
            walk(search, entry_path, depth + 1);
        else if (S_ISREG(status.st_mode) && matches(search, entry->d_name))
            consider(search, entry_path);
    }
    (void)closedir(directory);
}

static search_t search_for(const char *root, plim__files_kind_t kind, const char *stem)
{
    static const char *const endings[] = {".npy", ".npz", ""};
    search_t search = {.text = kind == PLIM__FILES_TEXT};
    (void)snprintf(search.name, sizeof search.name, "%s%s", stem, endings[kind]);
    walk(&search, root, 0);
    return search;
}

plim_status_t plim__files_find(const char *root, plim__files_kind_t kind, const char *const *stems,
                               char path_out[PATH_MAX])
{
    path_out[0] = '\0';
    for (; *stems != NULL && path_out[0] == '\0'; stems++) {
        const search_t search = search_for(root, kind, *stems);
        if (search.found > 1 && search.text)
            return plim__fail(PLIM_ERR_DATA, "%s and %s: two files for the same part; keep one",
                              search.first, search.other);
        if (search.found > 1 && strchr(*stems, '*') == NULL)
            return plim__fail(
                PLIM_ERR_UNSUPPORTED,
                "%s and %s: several datasets, or a graph of several types of nodes or "
                "edges; give a directory with one graph of one type",
                search.first, search.other);
        (void)snprintf(path_out, PATH_MAX, "%s", search.first);
    }
    return PLIM_OK;
}

bool plim__files_has(const char *root, plim__files_kind_t kind, const char *const *stems)
{
    for (; *stems != NULL; stems++)
        if (search_for(root, kind, *stems).found > 0)
            return true;
    return false;
}

static plim_status_t find_either(const char *root, const char *const *arrays,
                                 const char *const *texts, char path_out[PATH_MAX])
{
    PLIM_TRY(plim__files_find(root, PLIM__FILES_ARRAY, arrays, path_out));
    return path_out[0] != '\0' ? PLIM_OK
                               : plim__files_find(root, PLIM__FILES_TEXT, texts, path_out);
}

plim_status_t plim__files_find_part(const char *root, plim__part_t part, char path_out[PATH_MAX])
{
    const plim__part_stems_t *stems = &plim__part_stems[part];
    return find_either(root, stems->arrays, stems->texts, path_out);
}

void plim__files_leave_out(plim__import_t *import, const char *root, const char *const *used)
{
    static const char *const patterns[] = {"*.np[yz]", "*.[ct]sv", "*.[ct]sv.gz", "*.[ct]sv.zst"};
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        search_t search = {.import = import, .used = used, .root_length = strlen(root)};
        (void)snprintf(search.name, sizeof search.name, "%s", patterns[i]);
        walk(&search, root, 0);
    }
}

int64_t plim__files_size(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 ? (int64_t)status.st_size : 0;
}

plim_status_t plim__files_array(plim__import_t *import, const char *path,
                                plim__reader_t **reader_out, plim__npy_t *npy_out)
{
    plim__reader_t *reader;
    PLIM_TRY(plim__reader_file(import->job, path, import->buffer, &reader));
    plim_status_t status = plim__npy_read(reader, npy_out);
    if (status != PLIM_OK) {
        plim__reader_close(reader);
        return status;
    }
    *reader_out = reader;
    return PLIM_OK;
}

plim_status_t plim__files_header(plim__import_t *import, const char *path, plim__npy_t *npy_out)
{
    plim__reader_t *reader;
    PLIM_TRY(plim__reader_file(import->job, path, PLIM__PAGE, &reader));
    plim_status_t status = plim__npy_read(reader, npy_out);
    plim__reader_close(reader);
    return status;
}

/* Reads sources and destinations in step, from two readers over the file. */
static plim_status_t edges_by_rows(plim__import_t *import, const char *path, plim__reader_t *reader,
                                   const plim__npy_t *npy)
{
    int64_t count = npy->count / 2;
    plim__reader_t *other;
    plim__ids_npy_t sources, destinations;
    plim__edges_pairs_t pairs;
    PLIM_TRY(plim__reader_file_at(import->job, path, import->buffer,
                                  npy->header_size + count * (int64_t)plim__dtype_size(npy->type),
                                  &other));
    plim_status_t status = plim__ids_npy_open(&sources, reader, npy->type, count);
    if (status == PLIM_OK)
        status = plim__ids_npy_open(&destinations, other, npy->type, count);
    if (status == PLIM_OK) {
        plim__edges_pairs_open(&pairs, &sources.ids, &destinations.ids);
        status = plim__import_edges(import, &pairs.edges, count);
    }
    if (status == PLIM_OK)
        status = plim__reader_end(other);
    plim__reader_close(other);
    return status;
}

plim_status_t plim__files_edges(plim__import_t *import, const char *path)
{
    plim__reader_t *reader;
    plim__npy_t npy;
    PLIM_TRY(plim__files_array(import, path, &reader, &npy));
    bool rows = npy.num_dims == 2 && npy.shape[0] == 2;
    bool columns = npy.num_dims == 2 && npy.shape[1] == 2 && !rows;
    plim_status_t status = (rows && !npy.fortran) || (columns && npy.fortran)
                               ? edges_by_rows(import, path, reader, &npy)
                               : plim__import_edges_npy(import, reader, &npy);
    plim__reader_close(reader);
    return status;
}

plim_status_t plim__files_features(plim__import_t *import, const char *path)
{
    plim__reader_t *reader;
    plim__npy_t npy;
    PLIM_TRY(plim__files_array(import, path, &reader, &npy));
    plim_status_t status = npy.fortran ? plim__import_features_slabs(import, path, &npy)
                                       : plim__import_features_npy(import, reader, &npy);
    plim__reader_close(reader);
    return status;
}

plim_status_t plim__files_labels(plim__import_t *import, const char *path, bool graphs)
{
    plim__reader_t *reader;
    plim__npy_t npy;
    PLIM_TRY(plim__files_array(import, path, &reader, &npy));
    plim_status_t status = plim__import_labels_npy(import, reader, &npy, graphs);
    plim__reader_close(reader);
    return status;
}

plim_status_t plim__files_split(plim__import_t *import, int split, const char *path)
{
    plim__reader_t *reader;
    plim__npy_t npy;
    PLIM_TRY(plim__files_array(import, path, &reader, &npy));
    plim_status_t status = plim__import_split_npy(import, split, reader, &npy);
    plim__reader_close(reader);
    return status;
}

/* The place of a column in the list of paths. */
static int place_of(unsigned column)
{
    return column == PLIM__COLUMN_TIME ? PLIM_COLUMNS : __builtin_ctz(column);
}

plim_status_t plim__files_find_columns(const char *root,
                                       char paths_out[PLIM__FILES_COLUMNS][PATH_MAX])
{
    unsigned column;
    const char *stem;
    memset(paths_out, 0, (size_t)PLIM__FILES_COLUMNS * PATH_MAX);
    for (int i = 0; (stem = plim__import_column_name(i, &column)) != NULL; i++) {
        const char *const stems[] = {stem, NULL};
        char path[PATH_MAX], *known = paths_out[place_of(column)];
        PLIM_TRY(find_either(root, stems, stems, path));
        if (path[0] != '\0' && known[0] != '\0')
            return plim__fail(PLIM_ERR_DATA, "%s and %s: two files for the same part; keep one",
                              known, path);
        if (path[0] != '\0')
            (void)snprintf(known, PATH_MAX, "%s", path);
    }
    return PLIM_OK;
}

plim_status_t plim__files_columns(plim__import_t *import, char paths[PLIM__FILES_COLUMNS][PATH_MAX])
{
    for (int i = 0; i < PLIM__FILES_COLUMNS; i++) {
        const unsigned column = i == PLIM_COLUMNS ? PLIM__COLUMN_TIME : 1u << i;
        size_t stem;
        if (paths[i][0] == '\0')
            continue;
        if (!plim__files_is_text(paths[i], &stem)) {
            PLIM_TRY(plim__import_column_file(import, column, paths[i]));
            continue;
        }
        plim__text_t *text;
        PLIM_TRY(plim__import_text_open(import, paths[i], &text));
        const plim_status_t status = plim__import_column_text(import, column, text, paths[i]);
        plim__text_close(text);
        PLIM_TRY(status);
    }
    return PLIM_OK;
}

const char *const plim__files_type_name_stems[] = {"edge_type_names", "reltype2relid", NULL};

plim_status_t plim__files_type_names(plim__import_t *import, const char *path)
{
    plim__text_t *text;
    if (path[0] == '\0')
        return PLIM_OK;
    PLIM_TRY(plim__import_text_open(import, path, &text));
    const plim_status_t status = plim__import_type_names(import, text, path);
    plim__text_close(text);
    return status;
}
