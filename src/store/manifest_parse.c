/* Parses dataset.json, which is untrusted. */
#include "store/manifest_json.h"

#include "base/fail.h"
#include "io/seal.h"

#include <jansson.h>
#include <string.h>

static plim_status_t wrong(const char *name, const char *key, const char *what)
{
    return plim__fail(PLIM_ERR_DATA, "%s: \"%s\" is missing or not %s", name, key, what);
}

static plim_status_t get_count(const json_t *object, const char *key, const char *name,
                               int64_t *value_out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return wrong(name, key, "a count");
    *value_out = json_integer_value(value);
    return PLIM_OK;
}

static plim_status_t get_text(const json_t *object, const char *key, const char *name,
                              const char **text_out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        return wrong(name, key, "a string");
    *text_out = json_string_value(value);
    return PLIM_OK;
}

static plim_status_t check_version(const json_t *root, const char *name, int *format_out)
{
    int64_t format = 0, readable_by = 0;
    const char *kind = "";
    PLIM_TRY(get_text(root, "plimsoll", name, &kind));
    if (strcmp(kind, "dataset") != 0)
        return plim__fail(PLIM_ERR_DATA, "%s describes a %.40s, not a dataset", name, kind);
    PLIM_TRY(get_count(root, "format", name, &format));
    PLIM_TRY(get_count(root, "readable_by", name, &readable_by));
    if (format < 1 || readable_by < 1 || readable_by > format || format > INT32_MAX)
        return plim__fail(PLIM_ERR_DATA, "%s: impossible versions: format %lld, readable by %lld",
                          name, (long long)format, (long long)readable_by);
    if (readable_by > PLIM__FORMAT)
        return plim__fail(
            PLIM_ERR_UNSUPPORTED,
            "%s: its format %lld needs a reader of format %lld, but this version reads %d; "
            "use a newer plimsoll",
            name, (long long)format, (long long)readable_by, PLIM__FORMAT);
    *format_out = (int)format;
    return PLIM_OK;
}

static bool find_type(const char *text, plim__dtype_t *type_out)
{
    for (int type = PLIM__NPY_BOOL; type <= PLIM__NPY_F64; type++)
        if (strcmp(text, plim__dtype_name((plim__dtype_t)type)) == 0) {
            *type_out = (plim__dtype_t)type;
            return true;
        }
    return false;
}

static bool read_digits(const json_t *value, uint64_t *number_out)
{
    uint64_t number = 0;
    if (!json_is_string(value) || json_string_length(value) != PLIM__CHECKSUM_DIGITS)
        return false;
    for (const char *c = json_string_value(value); *c != '\0'; c++) {
        if (!(*c >= '0' && *c <= '9') && !(*c >= 'a' && *c <= 'f'))
            return false;
        number = number << 4 | (uint64_t)(*c <= '9' ? *c - '0' : *c - 'a' + 10);
    }
    *number_out = number;
    return true;
}

static plim_status_t parse_file(const json_t *object, const char *name, plim__arena_t *arena,
                                plim__manifest_file_t *file_out)
{
    const char *own = "", *type = "";
    const json_t *shape = json_object_get(object, "shape");
    const json_t *checksums = json_object_get(object, "checksums");
    if (!json_is_object(object))
        return wrong(name, "files", "a list of objects");
    PLIM_TRY(get_text(object, "name", name, &own));
    if (!plim__manifest_name_valid(own))
        return plim__fail(PLIM_ERR_DATA, "%s: '%.100s' is not a possible name of a file", name,
                          own);
    memcpy(file_out->name, own, strlen(own) + 1);
    PLIM_TRY(get_text(object, "dtype", name, &type));
    if (!find_type(type, &file_out->type))
        return plim__fail(PLIM_ERR_DATA, "%s: %s has the unknown type '%.40s'", name, own, type);
    PLIM_TRY(get_count(object, "bytes", name, &file_out->bytes));
    if (!json_is_array(shape) || json_array_size(shape) > PLIM__NPY_DIMS)
        return wrong(name, "shape", "a list of at most 4 counts");
    file_out->num_dims = (int)json_array_size(shape);
    for (int i = 0; i < file_out->num_dims; i++) {
        const json_t *extent = json_array_get(shape, (size_t)i);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0)
            return wrong(name, "shape", "a list of counts");
        file_out->shape[i] = json_integer_value(extent);
    }
    if (!json_is_array(checksums))
        return wrong(name, "checksums", "a list");
    size_t count = json_array_size(checksums);
    uint64_t *numbers = plim__arena_carve(arena, count, sizeof *numbers, 1);
    for (size_t i = 0; i < count; i++)
        if (numbers == NULL || !read_digits(json_array_get(checksums, i), &numbers[i]))
            return wrong(name, "checksums", "a list of 16 hexadecimal digits each");
    file_out->num_checksums = (int64_t)count;
    file_out->checksums = numbers;
    return PLIM_OK;
}

static plim_status_t parse_degrees(const json_t *root, const char *name, plim__manifest_t *manifest)
{
    const json_t *degrees = json_object_get(root, "degrees_log2");
    if (!json_is_array(degrees) || json_array_size(degrees) > PLIM_DEGREE_BUCKETS)
        return wrong(name, "degrees_log2", "a list of at most 64 counts");
    for (size_t i = 0; i < json_array_size(degrees); i++) {
        const json_t *count = json_array_get(degrees, i);
        if (!json_is_integer(count) || json_integer_value(count) < 0)
            return wrong(name, "degrees_log2", "a list of counts");
        manifest->degrees[i] = json_integer_value(count);
    }
    return PLIM_OK;
}

/* Compares the counts and types in the text, `declared`, with those that follow from the files. */
static plim_status_t check_declared(const json_t *root, const char *name,
                                    const plim_dataset_info_t *declared,
                                    const plim_dataset_info_t *info)
{
    const char *index_type = "", *feature_type = "", *label_kind = "", *fingerprint = "";
    for (int i = 0; i < PLIM__MANIFEST_COUNTS; i++) {
        const plim__manifest_count_key_t *count = &plim__manifest_counts[i];
        int64_t claim = *(const int64_t *)(const void *)((const char *)declared + count->offset);
        int64_t fact = *(const int64_t *)(const void *)((const char *)info + count->offset);
        if (claim != fact)
            return plim__fail(PLIM_ERR_DATA, "%s: \"%s\" is %lld, but its files give %lld", name,
                              count->key, (long long)claim, (long long)fact);
    }
    PLIM_TRY(get_text(root, "index_type", name, &index_type));
    PLIM_TRY(get_text(root, "feature_type", name, &feature_type));
    PLIM_TRY(get_text(root, "label_kind", name, &label_kind));
    PLIM_TRY(get_text(root, "fingerprint", name, &fingerprint));
    if (strcmp(index_type, plim__manifest_type_name(info->index_type)) != 0 ||
        strcmp(feature_type, plim__manifest_type_name(info->feature_type)) != 0 ||
        strcmp(label_kind, plim__manifest_label_name(info->label_kind)) != 0)
        return plim__fail(PLIM_ERR_DATA, "%s: its types do not match its files", name);
    if (strcmp(fingerprint, info->fingerprint) != 0)
        return plim__fail(PLIM_ERR_DATA, "%s: its fingerprint does not match its checksums", name);
    return PLIM_OK;
}

static plim_status_t parse_root(const json_t *root, const char *name, plim__arena_t *arena,
                                plim__manifest_t *manifest)
{
    static const char *const keys[] = {"source", "options", "version"};
    const char **texts[] = {&manifest->source, &manifest->options, &manifest->version};
    const json_t *error = json_object_get(root, "feature_error");
    const json_t *files = json_object_get(root, "files");
    const json_t *provenance = json_object_get(root, "provenance");

    PLIM_TRY(check_version(root, name, &manifest->info.format));
    for (int i = 0; i < PLIM__MANIFEST_COUNTS; i++) {
        const plim__manifest_count_key_t *count = &plim__manifest_counts[i];
        PLIM_TRY(get_count(root, count->key, name,
                           (int64_t *)(void *)((char *)&manifest->info + count->offset)));
    }
    if (!json_is_number(error))
        return wrong(name, "feature_error", "a number");
    manifest->info.feature_error = json_number_value(error);
    manifest->info.multi_label = json_is_true(json_object_get(root, "multi_label"));
    PLIM_TRY(parse_degrees(root, name, manifest));
    manifest->info.max_self_loops = -1;
    if (json_object_get(root, "max_self_loops") != NULL)
        PLIM_TRY(get_count(root, "max_self_loops", name, &manifest->info.max_self_loops));
    if (json_object_get(root, "num_edge_types") != NULL)
        PLIM_TRY(get_count(root, "num_edge_types", name, &manifest->info.num_edge_types));
    for (int i = 0; i < 3; i++) {
        const char *text = "";
        PLIM_TRY(get_text(provenance, keys[i], name, &text));
        size_t length = strlen(text) + 1;
        char *copy = plim__arena_carve(arena, length, 1, 1);
        if (copy == NULL)
            return wrong(name, keys[i], "a string");
        *texts[i] = memcpy(copy, text, length);
    }
    if (!json_is_array(files) || json_array_size(files) > PLIM__FILES_MAX)
        return wrong(name, "files", "a list of at most 32");
    manifest->num_files = (int)json_array_size(files);
    for (int i = 0; i < manifest->num_files; i++)
        PLIM_TRY(parse_file(json_array_get(files, (size_t)i), name, arena, &manifest->files[i]));
    plim_dataset_info_t declared = manifest->info;
    PLIM_TRY(plim__manifest_resolve(manifest, name));
    return check_declared(root, name, &declared, &manifest->info);
}

/* Size of the arena: the manifest, its texts and its checksums. */
static size_t manifest_size(const json_t *root)
{
    const json_t *provenance = json_object_get(root, "provenance");
    const json_t *files = json_object_get(root, "files");
    const json_t *value;
    const char *key;
    size_t i;
    size_t size = plim__arena_carve_bytes(1, sizeof(plim__manifest_t), 1);
    json_object_foreach((json_t *)provenance, key, value) size +=
        plim__arena_carve_bytes(json_string_length(value) + 1, 1, 1);
    json_array_foreach(files, i, value) size += plim__arena_carve_bytes(
        json_array_size(json_object_get(value, "checksums")), sizeof(uint64_t), 1);
    return size;
}

static plim_status_t parse_json(const plim_job_t *job, const json_t *root, const char *name,
                                plim__arena_t *arena_out, plim__manifest_t **manifest_out)
{
    plim__arena_t arena;
    if (!json_is_object(root))
        return plim__fail(PLIM_ERR_DATA, "%s is not a JSON object", name);
    PLIM_TRY(plim__arena_create(job->ledger, "dataset", manifest_size(root), &arena));
    plim__manifest_t *manifest = plim__arena_carve(&arena, 1, sizeof *manifest, 1);
    plim_status_t status = parse_root(root, name, &arena, manifest);
    if (status != PLIM_OK) {
        plim__arena_destroy(&arena);
        return status;
    }
    *arena_out = arena;
    *manifest_out = manifest;
    return PLIM_OK;
}

plim_status_t plim__manifest_parse(const plim_job_t *job, const char *text, size_t size,
                                   const char *name, plim__arena_t *arena_out,
                                   plim__manifest_t **manifest_out)
{
    json_error_t error;
    int account;
    if (size > PLIM__MANIFEST_BYTES)
        return plim__fail(PLIM_ERR_DATA, "%s has %zu bytes, more than any dataset needs", name,
                          size);
    size_t memory = plim__json_memory(text, size);
    PLIM_TRY(plim__ledger_reserve(job->ledger, "json", memory, &account));
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    plim_status_t status;
    if (root == NULL && json_error_code(&error) == json_error_out_of_memory)
        status = plim__fail(PLIM_ERR_NOMEM, "%s: out of memory while reading it", name);
    else if (root == NULL)
        status = plim__fail(PLIM_ERR_DATA, "%s: line %d, column %d: %s", name, error.line,
                            error.column, error.text);
    else
        status = parse_json(job, root, name, arena_out, manifest_out);
    json_decref(root);
    plim__ledger_release(job->ledger, account, memory);
    return status;
}

plim_status_t plim__manifest_check_seal(const char *text, size_t size, const char *name)
{
    if (plim__seal_check(text, size) == PLIM__SEAL_GOOD)
        return PLIM_OK;
    return plim__fail(
        PLIM_ERR_DATA,
        "%s was changed or damaged: its checksum, in the last line, does not match; copy or make "
        "the dataset again",
        name);
}
