/* Checks of a manifest, the same for reading and writing. */
#include "store/manifest.h"

#include "base/bounds.h"
#include "base/check.h"
#include "base/fail.h"
#include "store/dataset.h"
#include "store/labels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL /* for the size of XXH3_state_t */
#include <xxhash.h>

const plim__manifest_file_t *plim__manifest_find(const plim__manifest_t *manifest, const char *name)
{
    for (int i = 0; i < manifest->num_files; i++)
        if (strcmp(manifest->files[i].name, name) == 0)
            return &manifest->files[i];
    return NULL;
}

bool plim__manifest_name_valid(const char *name)
{
    size_t stem = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return stem > 0 && strcmp(name + stem, ".npy") == 0 &&
           stem + sizeof ".npy" <= sizeof((plim__manifest_file_t *)0)->name;
}

void plim__manifest_sort(plim__manifest_t *manifest)
{
    for (int i = 1; i < manifest->num_files; i++)
        for (int j = i; j > 0 && strcmp(manifest->files[j - 1].name, manifest->files[j].name) > 0;
             j--) {
            plim__manifest_file_t later = manifest->files[j - 1];
            manifest->files[j - 1] = manifest->files[j];
            manifest->files[j] = later;
        }
}

bool plim__manifest_count(const plim__manifest_file_t *file, int64_t *count_out)
{
    int64_t count = 1;
    for (int i = 0; i < file->num_dims; i++)
        if (file->shape[i] < 0 || !plim__mul_i64(count, file->shape[i], &count))
            return false;
    *count_out = count;
    return true;
}

static plim_status_t check_file(const plim__manifest_file_t *file, const char *name)
{
    int64_t count, bytes;
    if (!plim__manifest_name_valid(file->name))
        return plim__fail(PLIM_ERR_DATA, "%s: '%s' is not a possible name of a file", name,
                          file->name);
    if (!plim__manifest_count(file, &count) ||
        !plim__mul_i64(count, (int64_t)plim__dtype_size(file->type), &bytes) ||
        !plim__add_i64(bytes, PLIM__NPY_HEADER, &bytes) || bytes != file->bytes)
        return plim__fail(PLIM_ERR_DATA, "%s: %s cannot have %lld bytes with its type and shape",
                          name, file->name, (long long)file->bytes);
    if (file->num_checksums != (bytes - 1) / PLIM__CHECKSUM_BYTES + 1)
        return plim__fail(PLIM_ERR_DATA, "%s: %s has %lld checksums for %lld bytes", name,
                          file->name, (long long)file->num_checksums, (long long)bytes);
    return PLIM_OK;
}

static plim_status_t bad_type(const plim__manifest_file_t *file, const char *name)
{
    return plim__fail(PLIM_ERR_DATA, "%s: %s must not have the type %s", name, file->name,
                      plim__dtype_name(file->type));
}

/* Checks that the file has `num_dims` dimensions, `rows` rows (-1: any number) and the type. */
static plim_status_t expect(const plim__manifest_file_t *file, int num_dims, int64_t rows,
                            plim__dtype_t type, const char *name)
{
    if (file->num_dims != num_dims || (rows >= 0 && file->shape[0] != rows))
        return plim__fail(
            PLIM_ERR_DATA,
            "%s: %s must have %d dimension%s, the first of %lld, but has %d, the first "
            "of %lld",
            name, file->name, num_dims, num_dims == 1 ? "" : "s",
            (long long)(rows >= 0 ? rows : file->shape[0]), file->num_dims,
            (long long)(file->num_dims > 0 ? file->shape[0] : 1));
    return file->type == type ? PLIM_OK : bad_type(file, name);
}

static plim_status_t check_columns(const plim__manifest_file_t *file, const char *name)
{
    if (file->shape[1] >= 1 && file->shape[1] <= PLIM__COLUMNS_MAX)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_DATA, "%s: %s has %lld columns; 1 to %lld are supported", name,
                      file->name, (long long)file->shape[1], (long long)PLIM__COLUMNS_MAX);
}

/* Checks the columns of `count` names, if there are any. */
static plim_status_t check_names(const plim__manifest_t *manifest, const char *text_name,
                                 const char *offsets_name, int64_t count, const char *name)
{
    const plim__manifest_file_t *text = plim__manifest_find(manifest, text_name);
    const plim__manifest_file_t *offsets = plim__manifest_find(manifest, offsets_name);
    if (text == NULL && offsets == NULL)
        return PLIM_OK;
    if (text == NULL || offsets == NULL)
        return plim__fail(PLIM_ERR_DATA, "%s: %s is missing", name,
                          text == NULL ? text_name : offsets_name);
    PLIM_TRY(expect(text, 1, -1, PLIM__NPY_U8, name));
    return expect(offsets, 1, count + 1, PLIM__NPY_I64, name);
}

static plim_status_t resolve_graph(plim__manifest_t *manifest, const char *name)
{
    plim_dataset_info_t *info = &manifest->info;
    const plim__manifest_file_t *indptr = plim__manifest_find(manifest, "indptr.npy");
    const plim__manifest_file_t *indices = plim__manifest_find(manifest, "indices.npy");
    const plim__manifest_file_t *graphs = plim__manifest_find(manifest, "graph_indptr.npy");
    const plim__manifest_file_t *ids = plim__manifest_find(manifest, "ids.npy");

    if (indptr == NULL || indices == NULL)
        return plim__fail(PLIM_ERR_DATA, "%s: %s is missing", name,
                          indptr == NULL ? "indptr.npy" : "indices.npy");
    if (info->num_nodes < 1 || info->num_nodes > PLIM__ITEMS_MAX)
        return plim__fail(PLIM_ERR_DATA, "%s: the number of nodes, %lld, is out of range", name,
                          (long long)info->num_nodes);
    PLIM_TRY(expect(indptr, 1, info->num_nodes + 1, PLIM__NPY_I64, name));
    const bool wide = info->num_nodes > INT32_MAX && indices->type == PLIM__NPY_I64;
    PLIM_TRY(
        expect(indices, 1, -1, wide ? PLIM__NPY_I64 : plim__index_written(info->num_nodes), name));
    info->num_edges = indices->shape[0];
    if (info->num_edges > PLIM__ITEMS_MAX)
        return plim__fail(PLIM_ERR_DATA, "%s: the number of edges, %lld, is out of range", name,
                          (long long)info->num_edges);
    info->index_type = indices->type == PLIM__NPY_I32   ? PLIM_I32
                       : indices->type == PLIM__NPY_U32 ? PLIM_U32
                                                        : PLIM_I64;
    manifest->topologies[0] = (plim__manifest_topology_t){(int)(indptr - manifest->files),
                                                          (int)(indices - manifest->files)};

    if (info->num_graphs < 0 || info->num_graphs > PLIM__ITEMS_MAX ||
        (graphs == NULL) != (info->num_graphs == 0))
        return plim__fail(PLIM_ERR_DATA, "%s: %lld graphs %s graph_indptr.npy", name,
                          (long long)info->num_graphs, graphs == NULL ? "without" : "with");
    if (graphs != NULL)
        PLIM_TRY(expect(graphs, 1, info->num_graphs + 1, PLIM__NPY_I64, name));
    if (ids != NULL)
        PLIM_TRY(expect(ids, 1, info->num_nodes, PLIM__NPY_I64, name));
    return check_names(manifest, PLIM__ID_TEXT ".npy", PLIM__ID_OFFSETS ".npy", info->num_nodes,
                       name);
}

static plim_status_t resolve_feature_type(const plim__manifest_file_t *file, const char *name,
                                          plim_dtype_t *type_out)
{
    if (file->type != PLIM__NPY_F16 && file->type != PLIM__NPY_F32 && file->type != PLIM__NPY_I64)
        return bad_type(file, name);
    *type_out = file->type == PLIM__NPY_F16   ? PLIM_F16
                : file->type == PLIM__NPY_F32 ? PLIM_F32
                                              : PLIM_I64;
    return PLIM_OK;
}

static plim_status_t resolve_features(plim__manifest_t *manifest, const char *name)
{
    plim_dataset_info_t *info = &manifest->info;
    const plim__manifest_file_t *features = plim__manifest_find(manifest, "features.npy");

    manifest->num_tables = 0;
    info->num_features = 0;
    info->feature_type = (plim_dtype_t)0;
    if (!isfinite(info->feature_error) || info->feature_error < 0)
        return plim__fail(PLIM_ERR_DATA, "%s: the feature error, %g, is out of range", name,
                          info->feature_error);
    if (features == NULL)
        return PLIM_OK;
    PLIM_TRY(expect(features, 2, info->num_nodes, features->type, name));
    PLIM_TRY(resolve_feature_type(features, name, &info->feature_type));
    PLIM_TRY(check_columns(features, name));
    manifest->tables[manifest->num_tables++] = (int)(features - manifest->files);
    info->num_features = features->shape[1];
    return PLIM_OK;
}

const char *const plim__column_names[PLIM_COLUMNS] = {"edge_features", "edge_weight", "edge_type",
                                                      "edge_time",     "edge_id",     "node_time"};

/* The only type of a column that has one; edge features may have three. */
static const plim__dtype_t column_types[PLIM_COLUMNS] = {
    PLIM__NPY_F32, PLIM__NPY_F32, PLIM__NPY_I32, PLIM__NPY_I64, PLIM__NPY_I64, PLIM__NPY_I64};

static plim_status_t resolve_edge_features(plim_dataset_info_t *info,
                                           const plim__manifest_file_t *file, const char *name)
{
    const bool matrix = file->num_dims != 1;
    PLIM_TRY(resolve_feature_type(file, name, &info->edge_feature_type));
    PLIM_TRY(expect(file, matrix ? 2 : 1, info->num_edges, file->type, name));
    if (matrix)
        PLIM_TRY(check_columns(file, name));
    info->num_edge_features = matrix ? file->shape[1] : 1;
    info->edge_feature_dims = file->num_dims;
    return PLIM_OK;
}

static plim_status_t resolve_columns(plim__manifest_t *manifest, const char *name)
{
    plim_dataset_info_t *info = &manifest->info;
    info->columns = 0;
    info->num_edge_features = 0;
    info->edge_feature_dims = 0;
    info->edge_feature_type = (plim_dtype_t)0;
    for (int i = 0; i < PLIM_COLUMNS; i++) {
        char own[sizeof manifest->files[0].name];
        (void)snprintf(own, sizeof own, "%s.npy", plim__column_names[i]);
        const plim__manifest_file_t *file = plim__manifest_find(manifest, own);
        if (file == NULL)
            continue;
        if (1u << i == PLIM_EDGE_FEATURES)
            PLIM_TRY(resolve_edge_features(info, file, name));
        else
            PLIM_TRY(expect(file, 1, 1u << i == PLIM_NODE_TIME ? info->num_nodes : info->num_edges,
                            column_types[i], name));
        manifest->columns[i] = (int)(file - manifest->files);
        info->columns |= 1u << i;
    }
    if ((info->columns & PLIM_EDGE_TYPE) == 0 ? info->num_edge_types != 0
                                              : info->num_edge_types < (info->num_edges > 0) ||
                                                    info->num_edge_types > PLIM__EDGE_TYPES_MAX)
        return plim__fail(PLIM_ERR_DATA, "%s: %lld types of edges %s edge_type.npy", name,
                          (long long)info->num_edge_types,
                          (info->columns & PLIM_EDGE_TYPE) != 0 ? "in" : "without");
    return check_names(manifest, PLIM__TYPE_TEXT ".npy", PLIM__TYPE_OFFSETS ".npy",
                       info->num_edge_types, name);
}

static plim_status_t resolve_labels(plim__manifest_t *manifest, const char *name)
{
    static const char *const splits[] = {"train.npy", "valid.npy", "test.npy"};
    plim_dataset_info_t *info = &manifest->info;
    const plim__manifest_file_t *labels = plim__manifest_find(manifest, "labels.npy");
    int64_t rows = info->num_graphs > 0 ? info->num_graphs : info->num_nodes;

    info->label_kind = PLIM_LABELS_NONE;
    info->num_labels = 0;
    info->num_targets = 0;
    info->label_dims = 0;
    if (labels != NULL) {
        const bool classes = plim__label_type_valid(labels->type);
        if (!classes && labels->type != PLIM__NPY_F32)
            return bad_type(labels, name);
        info->label_kind = classes ? PLIM_LABELS_CLASSES : PLIM_LABELS_VALUES;
        const bool matrix = !classes && labels->num_dims != 1;
        PLIM_TRY(expect(labels, matrix ? 2 : 1, rows, labels->type, name));
        if (matrix)
            PLIM_TRY(check_columns(labels, name));
        info->num_labels = rows;
        info->num_targets = classes ? 0 : matrix ? labels->shape[1] : 1;
        info->label_dims = labels->num_dims;
    }
    if (info->num_classes < 0 || info->num_classes > PLIM__NUM_CLASSES_MAX)
        return plim__fail(PLIM_ERR_DATA, "%s: %lld classes; at most %lld are supported", name,
                          (long long)info->num_classes, (long long)PLIM__NUM_CLASSES_MAX);
    if (info->num_classes > 0 && info->label_kind != PLIM_LABELS_CLASSES)
        return plim__fail(PLIM_ERR_DATA, "%s: %lld classes, but its labels are not classes", name,
                          (long long)info->num_classes);
    PLIM_TRY(check_names(manifest, PLIM__CLASS_TEXT ".npy", PLIM__CLASS_OFFSETS ".npy",
                         info->num_classes, name));
    if (info->multi_label && info->num_targets < 2)
        return plim__fail(PLIM_ERR_DATA, "%s: multi-label, but with %lld columns of values", name,
                          (long long)info->num_targets);
    for (int i = 0; i < 3; i++) {
        const plim__manifest_file_t *split = plim__manifest_find(manifest, splits[i]);
        info->num_split[i] = 0;
        if (split == NULL)
            continue;
        PLIM_TRY(expect(split, 1, -1, PLIM__NPY_I64, name));
        if (split->shape[0] > rows)
            return plim__fail(PLIM_ERR_DATA, "%s: %s has %lld entries for %lld %s", name, splits[i],
                              (long long)split->shape[0], (long long)rows,
                              info->num_graphs > 0 ? "graphs" : "nodes");
        info->num_split[i] = split->shape[0];
    }
    return PLIM_OK;
}

static plim_status_t check_degrees(const plim__manifest_t *manifest, const char *name)
{
    const plim_dataset_info_t *info = &manifest->info;
    int64_t sum = 0;
    int last = 0;
    for (int i = 0; i < PLIM_DEGREE_BUCKETS; i++) {
        if (manifest->degrees[i] < 0 || !plim__add_i64(sum, manifest->degrees[i], &sum))
            return plim__fail(PLIM_ERR_DATA, "%s: the histogram of degrees has impossible counts",
                              name);
        if (manifest->degrees[i] > 0)
            last = i;
    }
    if (sum != info->num_nodes || info->max_degree < 0 || info->max_degree > info->num_edges ||
        plim__degree_bucket(info->max_degree) != last)
        return plim__fail(
            PLIM_ERR_DATA,
            "%s: the histogram of degrees (of %lld nodes) does not match %lld nodes and a "
            "maximum degree of %lld",
            name, (long long)sum, (long long)info->num_nodes, (long long)info->max_degree);
    if (info->max_self_loops < -1 || info->max_self_loops > info->max_degree)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: a node with %lld self-loops does not match a maximum degree of %lld",
                          name, (long long)info->max_self_loops, (long long)info->max_degree);
    return PLIM_OK;
}

static plim_status_t resolve_contents(plim__manifest_t *manifest, const char *name)
{
    PLIM_TRY(resolve_graph(manifest, name));
    PLIM_TRY(resolve_features(manifest, name));
    PLIM_TRY(resolve_columns(manifest, name));
    PLIM_TRY(resolve_labels(manifest, name));
    PLIM_TRY(check_degrees(manifest, name));
    plim__manifest_fingerprint(manifest, manifest->info.fingerprint);
    return PLIM_OK;
}

plim_status_t plim__manifest_resolve(plim__manifest_t *manifest, const char *name)
{
    manifest->info.bytes = 0;
    for (int i = 0; i < manifest->num_files; i++) {
        PLIM_TRY(check_file(&manifest->files[i], name));
        if (i > 0 && strcmp(manifest->files[i - 1].name, manifest->files[i].name) >= 0)
            return plim__fail(PLIM_ERR_DATA, "%s: its files are not in ascending order", name);
        if (!plim__add_i64(manifest->info.bytes, manifest->files[i].bytes, &manifest->info.bytes))
            return plim__fail(PLIM_ERR_DATA, "%s: its files are larger than any disk", name);
    }
    return resolve_contents(manifest, name);
}

plim_status_t plim__manifest_from_shape(plim__manifest_t *manifest, const char *name)
{
    manifest->info.bytes = 0;
    plim__manifest_sort(manifest);
    for (int i = 0; i < manifest->num_files; i++) {
        plim__manifest_file_t *file = &manifest->files[i];
        int64_t count, bytes;
        file->num_checksums = 0;
        if (!plim__manifest_count(file, &count) ||
            !plim__mul_i64(count, (int64_t)plim__dtype_size(file->type), &bytes) ||
            !plim__add_i64(bytes, (int64_t)PLIM__NPY_HEADER, &file->bytes) ||
            !plim__add_i64(manifest->info.bytes, file->bytes, &manifest->info.bytes))
            return plim__fail(PLIM_ERR_USAGE, "%s: its files are larger than any disk", name);
    }
    return resolve_contents(manifest, name);
}

static void hash_i64(XXH3_state_t *state, int64_t value)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)value >> (8 * i));
    (void)XXH3_64bits_update(state, bytes, sizeof bytes);
}

void plim__manifest_fingerprint(const plim__manifest_t *manifest, char fingerprint_out[17])
{
    XXH3_state_t state;
    (void)XXH3_64bits_reset(&state);
    for (int i = 0; i < manifest->num_files; i++) {
        const plim__manifest_file_t *file = &manifest->files[i];
        const char *type = plim__dtype_name(file->type);
        (void)XXH3_64bits_update(&state, file->name, strlen(file->name) + 1);
        (void)XXH3_64bits_update(&state, type, strlen(type) + 1);
        hash_i64(&state, file->num_dims);
        for (int j = 0; j < file->num_dims; j++)
            hash_i64(&state, file->shape[j]);
        hash_i64(&state, file->bytes);
        for (int64_t j = 0; j < file->num_checksums; j++)
            hash_i64(&state, (int64_t)file->checksums[j]);
    }
    if (manifest->info.multi_label)
        hash_i64(&state, 1); /* decides the loss */
    if (manifest->info.num_edge_types > 0)
        hash_i64(&state, manifest->info.num_edge_types); /* decides the model */
    (void)snprintf(fingerprint_out, 17, "%016llx", (unsigned long long)XXH3_64bits_digest(&state));
}
