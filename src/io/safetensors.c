/* Reads safetensors files, which are untrusted. */
#include "io/safetensors.h"

#include "base/check.h"
#include "base/fail.h"
#include "io/safetensors_format.h"
#include "io/seal.h"
#include "mem/arena.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* Bytes of one read, which bounds the page cache in use. */
#define CHUNK ((size_t)1 << 20)

typedef struct entry {
    plim__tensor_t tensor; /* its data is NULL */
    int64_t begin;         /* offset from the end of the header */
    int64_t end;
} entry_t;

struct plim__safetensors {
    plim__arena_t arena;
    plim__file_t file;
    int64_t data_offset; /* of the data in the file */
    int num_entries;
    entry_t *entries; /* (PLIM__TENSORS_MAX), ascending in the file */
    char *header;     /* text of the header; after parsing, its notes: key, NUL, text, NUL, … */
    size_t notes_size;
    const char *checksums; /* (num_entries, PLIM__TENSORS_DIGITS) digits; NULL without a seal */
    char path[PLIM_PATH_MAX];
};

const char *plim__tensor_type_name(plim_dtype_t type)
{
    switch (type) {
    case PLIM_I32:
        return "I32";
    case PLIM_U32:
        return "U32";
    case PLIM_I64:
        return "I64";
    case PLIM_F16:
        return "F16";
    case PLIM_F32:
        return "F32";
    }
    return NULL;
}

int64_t plim__tensor_type_size(plim_dtype_t type)
{
    switch (type) {
    case PLIM_F16:
        return 2;
    case PLIM_I32:
    case PLIM_U32:
    case PLIM_F32:
        return 4;
    case PLIM_I64:
        return 8;
    }
    return 0;
}

bool plim__tensor_bytes(const plim__tensor_t *tensor, int64_t *bytes_out)
{
    int64_t bytes = plim__tensor_type_size(tensor->type);
    if (bytes == 0 || tensor->num_dims < 0 || tensor->num_dims > 4)
        return false;
    for (int i = 0; i < tensor->num_dims; i++)
        if (tensor->shape[i] < 0 || !plim__mul_i64(bytes, tensor->shape[i], &bytes))
            return false;
    *bytes_out = bytes;
    return true;
}

void plim__tensor_front_digits(char *front, size_t size, char digits_out[PLIM__TENSORS_DIGITS + 1])
{
    memset(front + PLIM__TENSORS_SEAL_AT, '0', PLIM__TENSORS_DIGITS);
    plim__seal_digits(front, size, digits_out);
}

static plim_status_t damaged(const plim__safetensors_t *file, const char *where)
{
    return plim__fail(
        PLIM_ERR_DATA,
        "%s is damaged in %s: the checksum does not match; restore a copy, choose other "
        "`weights`, or train again",
        file->path, where);
}

/* A shape for messages: "[3, 4]". */
static const char *shape_text(const plim__tensor_t *tensor, char text_out[96])
{
    int used = snprintf(text_out, 96, "[");
    for (int i = 0; i < tensor->num_dims; i++)
        used += snprintf(text_out + used, 96 - (size_t)used, "%s%lld", i == 0 ? "" : ", ",
                         (long long)tensor->shape[i]);
    (void)snprintf(text_out + used, 96 - (size_t)used, "]");
    return text_out;
}

static plim_status_t wrong(const char *path, const char *name, const char *what)
{
    return plim__fail(PLIM_ERR_DATA, "%s: tensor '%.100s': %s", path, name, what);
}

static bool get_number(const json_t *value, int64_t *number_out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *number_out = json_integer_value(value);
    return true;
}

static plim_status_t parse_type(const char *path, const char *name, const json_t *value,
                                plim_dtype_t *type_out)
{
    static const plim_dtype_t types[] = {PLIM_F32, PLIM_F16, PLIM_I64, PLIM_I32};
    if (!json_is_string(value))
        return wrong(path, name, "\"dtype\" is missing or not a string");
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(json_string_value(value), plim__tensor_type_name(types[i])) == 0) {
            *type_out = types[i];
            return PLIM_OK;
        }
    return plim__fail(
        PLIM_ERR_UNSUPPORTED,
        "%s: tensor '%.100s' has the type '%.20s', which is not supported; save it as "
        "F32",
        path, name, json_string_value(value));
}

static plim_status_t parse_shape(const char *path, const char *name, const json_t *value,
                                 plim__tensor_t *tensor)
{
    if (!json_is_array(value))
        return wrong(path, name, "\"shape\" is missing or not a list");
    if (json_array_size(value) > 4)
        return plim__fail(PLIM_ERR_UNSUPPORTED, "%s: tensor '%.100s' has more than 4 dimensions",
                          path, name);
    tensor->num_dims = (int)json_array_size(value);
    for (int i = 0; i < tensor->num_dims; i++)
        if (!get_number(json_array_get(value, (size_t)i), &tensor->shape[i]))
            return wrong(path, name, "\"shape\" is not a list of counts");
    return PLIM_OK;
}

static plim_status_t parse_entry(const char *path, const char *name, const json_t *value,
                                 entry_t *entry_out)
{
    const json_t *offsets = json_object_get(value, "data_offsets");
    size_t length = strlen(name);
    int64_t bytes;
    if (length == 0 || length >= PLIM__TENSOR_NAME_MAX)
        return plim__fail(PLIM_ERR_UNSUPPORTED, "%s: a tensor's name is %zu bytes long", path,
                          length);
    memcpy(entry_out->tensor.name, name, length + 1);
    if (!json_is_object(value))
        return wrong(path, name, "its description is not an object");
    PLIM_TRY(parse_type(path, name, json_object_get(value, "dtype"), &entry_out->tensor.type));
    PLIM_TRY(parse_shape(path, name, json_object_get(value, "shape"), &entry_out->tensor));
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !get_number(json_array_get(offsets, 0), &entry_out->begin) ||
        !get_number(json_array_get(offsets, 1), &entry_out->end) ||
        entry_out->begin > entry_out->end)
        return wrong(path, name, "\"data_offsets\" is not a pair of ascending offsets");
    if (!plim__tensor_bytes(&entry_out->tensor, &bytes) ||
        bytes != entry_out->end - entry_out->begin)
        return wrong(path, name, "its type and shape do not match its offsets");
    return PLIM_OK;
}

/* Keeps the entries sorted by offset, empty ones first. Files are written in that order, so entries
 * seldom move. */
static void insert_entry(plim__safetensors_t *file, const entry_t *entry)
{
    int at = file->num_entries++;
    for (; at > 0; at--) {
        const entry_t *before = &file->entries[at - 1];
        if (before->begin < entry->begin ||
            (before->begin == entry->begin && before->end <= entry->end))
            break;
        file->entries[at] = *before;
    }
    file->entries[at] = *entry;
}

/* Stores the notes' keys and texts over the text of the header: decoded and without quotes they are
 * never longer. */
static plim_status_t keep_notes(plim__safetensors_t *file, json_t *notes)
{
    const char *key;
    json_t *value;
    if (!json_is_object(notes))
        return plim__fail(PLIM_ERR_DATA, "%s: \"__metadata__\" is not an object", file->path);
    json_object_foreach(notes, key, value)
    {
        if (!json_is_string(value))
            return plim__fail(PLIM_ERR_DATA, "%s: its note '%.100s' is not a string", file->path,
                              key);
        const char *texts[] = {key, json_string_value(value)};
        for (int i = 0; i < 2; i++) {
            size_t size = strlen(texts[i]) + 1;
            memcpy(file->header + file->notes_size, texts[i], size);
            file->notes_size += size;
        }
    }
    return PLIM_OK;
}

static plim_status_t take_header(plim__safetensors_t *file, json_t *root)
{
    const char *key;
    json_t *value;
    int64_t end = 0;
    if (!json_is_object(root))
        return plim__fail(PLIM_ERR_DATA, "%s: its header is not an object", file->path);
    json_object_foreach(root, key, value)
    {
        entry_t entry = {.begin = 0};
        if (strcmp(key, PLIM__TENSORS_METADATA) == 0) {
            PLIM_TRY(keep_notes(file, value));
            continue;
        }
        if (file->num_entries == PLIM__TENSORS_MAX)
            return plim__fail(PLIM_ERR_UNSUPPORTED, "%s: more than %d tensors", file->path,
                              PLIM__TENSORS_MAX);
        PLIM_TRY(parse_entry(file->path, key, value, &entry));
        insert_entry(file, &entry);
    }
    for (int i = 0; i < file->num_entries; i++) {
        const entry_t *entry = &file->entries[i];
        if (entry->begin != end)
            return wrong(file->path, entry->tensor.name,
                         entry->begin > end ? "there is a hole before it"
                                            : "it overlaps the tensor before it");
        end = entry->end;
    }
    if (end != file->file.size - file->data_offset)
        return plim__fail(
            PLIM_ERR_DATA,
            "%s has %lld bytes of data, but its header describes %lld; it is truncated "
            "or not a safetensors file",
            file->path, (long long)(file->file.size - file->data_offset), (long long)end);
    return PLIM_OK;
}

static plim_status_t parse_header(const plim_job_t *job, plim__safetensors_t *file, size_t length)
{
    json_error_t error;
    int account;
    size_t memory = plim__json_memory(file->header, length);
    if (memory > PLIM__TENSORS_JSON)
        return plim__fail(
            PLIM_ERR_UNSUPPORTED,
            "%s: its header describes too many tensors: reading it needs %zu bytes of "
            "memory, at most %zu are allowed",
            file->path, memory, PLIM__TENSORS_JSON);
    PLIM_TRY(plim__ledger_reserve(job->ledger, PLIM__TENSORS_ACCOUNT, memory, &account));
    json_t *root = json_loadb(file->header, length, JSON_REJECT_DUPLICATES, &error);
    plim_status_t status;
    if (root != NULL)
        status = take_header(file, root);
    else if (json_error_code(&error) == json_error_out_of_memory)
        status = plim__fail(PLIM_ERR_NOMEM, "%s: out of memory while reading it", file->path);
    else
        status = plim__fail(PLIM_ERR_DATA, "%s: its header is not JSON: column %d: %s", file->path,
                            error.column, error.text);
    json_decref(root);
    plim__ledger_release(job->ledger, account, memory);
    return status;
}

/* Whether the file begins with the seal that we write. */
static bool has_seal(const char *front, size_t size)
{
    return size >= PLIM__TENSORS_SEAL_AT + PLIM__TENSORS_DIGITS &&
           memcmp(front + PLIM__TENSORS_FRONT, PLIM__TENSORS_SEAL, sizeof PLIM__TENSORS_SEAL - 1) ==
               0;
}

static plim_status_t check_front(const plim__safetensors_t *file, char *front, size_t size)
{
    char written[PLIM__TENSORS_DIGITS], digits[PLIM__TENSORS_DIGITS + 1];
    memcpy(written, front + PLIM__TENSORS_SEAL_AT, PLIM__TENSORS_DIGITS);
    plim__tensor_front_digits(front, size, digits);
    return memcmp(written, digits, PLIM__TENSORS_DIGITS) == 0 ? PLIM_OK
                                                              : damaged(file, "its header");
}

/* Reads length and header at once, and checks their seal before parsing. */
static plim_status_t read_header(const plim_job_t *job, plim__safetensors_t *file)
{
    char *front = file->header;
    uint64_t length = 0;
    if (file->file.size < PLIM__TENSORS_FRONT + 2)
        return plim__fail(PLIM_ERR_DATA, "%s: %lld bytes are too few for a safetensors file",
                          file->path, (long long)file->file.size);
    const size_t most = PLIM__TENSORS_FRONT + PLIM__TENSORS_HEADER;
    size_t size = (size_t)plim__min_i64(file->file.size, (int64_t)most);
    PLIM_TRY(plim__file_read_at(&file->file, 0, front, size));
    const bool sealed = has_seal(front, size);
    memcpy(&length, front, sizeof length);
    if (length < 2 || length > (uint64_t)file->file.size - PLIM__TENSORS_FRONT)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: its header has %llu bytes, the file %lld; it is truncated or not a "
                          "safetensors file",
                          file->path, (unsigned long long)length, (long long)file->file.size);
    if (length > PLIM__TENSORS_HEADER && !sealed)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "%s: its header has %llu bytes; at most %zu are supported", file->path,
                          (unsigned long long)length, PLIM__TENSORS_HEADER);
    if (length > PLIM__TENSORS_HEADER)
        return damaged(file, "its header's length");
    if (sealed)
        PLIM_TRY(check_front(file, front, PLIM__TENSORS_FRONT + (size_t)length));
    memmove(front, front + PLIM__TENSORS_FRONT, (size_t)length);
    if (file->header[0] != '{')
        return plim__fail(PLIM_ERR_DATA,
                          "%s: not a safetensors file: its header does not begin with '{'",
                          file->path);
    file->data_offset = PLIM__TENSORS_FRONT + (int64_t)length;
    PLIM_TRY(parse_header(job, file, (size_t)length));
    if (!sealed)
        return PLIM_OK;
    file->checksums = plim__safetensors_note(file, PLIM__TENSORS_CHECKSUMS);
    if (file->checksums == NULL ||
        strlen(file->checksums) != (size_t)file->num_entries * PLIM__TENSORS_DIGITS)
        return damaged(file, "its header");
    return PLIM_OK;
}

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim__safetensors_t *file = draft;
    file->entries = plim__arena_carve(arena, PLIM__TENSORS_MAX, sizeof *file->entries, 1);
    file->header = plim__arena_carve(arena, PLIM__TENSORS_FRONT + PLIM__TENSORS_HEADER, 1, 1);
}

size_t plim__safetensors_estimate(int num_tensors)
{
    size_t json = PLIM__TENSORS_JSON_NOTES + (size_t)num_tensors * PLIM__TENSORS_JSON_EACH;
    if (num_tensors == PLIM__TENSORS_MAX || json > PLIM__TENSORS_JSON)
        json = PLIM__TENSORS_JSON;
    size_t write = plim__safetensors_write_estimate();
    plim__safetensors_t file = {.num_entries = 0};
    size_t read = plim__object_bytes(lay_out, &file, sizeof file) + json;
    return plim__round_up(write > read ? write : read, PLIM__PAGE);
}

plim_status_t plim__safetensors_open(const plim_job_t *job, int directory, const char *path,
                                     plim__safetensors_t **file_out)
{
    plim__safetensors_t draft = {.file = {.fd = -1}}, *file;
    if (strlen(path) >= PLIM_PATH_MAX)
        return plim__fail(PLIM_ERR_USAGE, "the path '%.100s…' is too long", path);
    memcpy(draft.path, path, strlen(path) + 1);
    PLIM_TRY(plim__object_create(job->ledger, PLIM__TENSORS_ACCOUNT, lay_out, &draft, sizeof draft,
                                 &draft.arena, &file));
    plim_status_t status =
        plim__file_open_in(directory, file->path, PLIM__FILE_READ, false, &file->file);
    if (status == PLIM_OK)
        status = read_header(job, file);
    if (status != PLIM_OK)
        plim__safetensors_close(file);
    else
        *file_out = file;
    return status;
}

void plim__safetensors_close(plim__safetensors_t *file)
{
    if (file == NULL)
        return;
    plim__file_close(&file->file);
    plim__arena_destroy(&file->arena);
}

const char *plim__safetensors_note(const plim__safetensors_t *file, const char *key)
{
    for (size_t at = 0; at < file->notes_size;) {
        const char *text = file->header + at + strlen(file->header + at) + 1;
        if (strcmp(file->header + at, key) == 0)
            return text;
        at = (size_t)(text - file->header) + strlen(text) + 1;
    }
    return NULL;
}

bool plim__safetensors_sealed(const plim__safetensors_t *file)
{
    return file->checksums != NULL;
}

int plim__safetensors_count(const plim__safetensors_t *file)
{
    return file->num_entries;
}

void plim__safetensors_describe(const plim__safetensors_t *file, int index,
                                plim__tensor_t *tensor_out)
{
    *tensor_out = file->entries[index].tensor;
}

static bool same_form(const plim__tensor_t *a, const plim__tensor_t *b)
{
    bool same = a->type == b->type && a->num_dims == b->num_dims;
    for (int i = 0; same && i < a->num_dims; i++)
        same = a->shape[i] == b->shape[i];
    return same;
}

plim_status_t plim__safetensors_read(plim__safetensors_t *file, const plim__tensor_t *tensor)
{
    char wanted[96], found[96];
    const entry_t *entry = NULL;
    for (int i = 0; i < file->num_entries && entry == NULL; i++)
        if (strcmp(file->entries[i].tensor.name, tensor->name) == 0)
            entry = &file->entries[i];
    if (entry == NULL)
        return plim__fail(PLIM_ERR_DATA, "%s has no tensor '%s'", file->path, tensor->name);
    if (!same_form(&entry->tensor, tensor))
        return plim__fail(PLIM_ERR_DATA, "%s: tensor '%s' is %s %s, but %s %s is expected",
                          file->path, tensor->name, plim__tensor_type_name(entry->tensor.type),
                          shape_text(&entry->tensor, found), plim__tensor_type_name(tensor->type),
                          shape_text(tensor, wanted));
    char *to = tensor->data, digits[PLIM__TENSORS_DIGITS + 1];
    for (int64_t at = entry->begin; at < entry->end;) {
        size_t size = (size_t)plim__min_i64(entry->end - at, (int64_t)CHUNK);
        PLIM_TRY(plim__file_read_at(&file->file, file->data_offset + at, to, size));
        at += (int64_t)size;
        to += size;
    }
    if (file->checksums == NULL)
        return PLIM_OK;
    plim__seal_digits(tensor->data, (size_t)(entry->end - entry->begin), digits);
    return memcmp(file->checksums + (entry - file->entries) * PLIM__TENSORS_DIGITS, digits,
                  PLIM__TENSORS_DIGITS) == 0
               ? PLIM_OK
               : damaged(file, tensor->name);
}
