/* Renders dataset.json: the same bytes for the same manifest on every machine. */
#include "store/manifest_json.h"

#include "base/fail.h"
#include "io/seal.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define COUNT(name, field)                                                                         \
    {                                                                                              \
        name, offsetof(plim_dataset_info_t, field)                                                 \
    }

const plim__manifest_count_key_t plim__manifest_counts[PLIM__MANIFEST_COUNTS] = {
    COUNT("num_nodes", num_nodes),       COUNT("num_edges", num_edges),
    COUNT("num_features", num_features), COUNT("num_graphs", num_graphs),
    COUNT("num_labels", num_labels),     COUNT("num_classes", num_classes),
    COUNT("num_targets", num_targets),   COUNT("num_train", num_split[0]),
    COUNT("num_valid", num_split[1]),    COUNT("num_test", num_split[2]),
    COUNT("max_degree", max_degree),
};

const char *plim__manifest_type_name(plim_dtype_t type)
{
    switch (type) {
    case PLIM_I32:
        return "int32";
    case PLIM_U32:
        return "uint32";
    case PLIM_I64:
        return "int64";
    case PLIM_F16:
        return "float16";
    case PLIM_F32:
        return "float32";
    }
    return "none";
}

const char *plim__manifest_label_name(plim_label_kind_t kind)
{
    return kind == PLIM_LABELS_CLASSES ? "classes" : kind == PLIM_LABELS_VALUES ? "values" : "none";
}

/* A provenance text. A path may not be UTF-8; other bytes are then replaced by '?'. */
static json_t *text_of(char *text)
{
    json_t *value = json_string(text);
    if (value != NULL)
        return value;
    for (char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c >= 0x80)
            *c = '?';
    return json_string(text);
}

static json_t *file_of(const plim__manifest_file_t *file)
{
    json_t *shape = json_array();
    json_t *checksums = json_array();
    bool complete = true;
    for (int i = 0; i < file->num_dims; i++)
        complete &= json_array_append_new(shape, json_integer(file->shape[i])) == 0;
    for (int64_t i = 0; i < file->num_checksums; i++) {
        char digits[PLIM__CHECKSUM_DIGITS + 1];
        (void)snprintf(digits, sizeof digits, "%016llx", (unsigned long long)file->checksums[i]);
        complete &= json_array_append_new(checksums, json_string(digits)) == 0;
    }
    json_t *object = json_pack("{s:s, s:s, s:o, s:I, s:o}", "name", file->name, "dtype",
                               plim__dtype_name(file->type), "shape", shape, "bytes",
                               (json_int_t)file->bytes, "checksums", checksums);
    if (complete)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *degrees_of(const plim__manifest_t *manifest)
{
    json_t *degrees = json_array();
    bool complete = true;
    int used = PLIM_DEGREE_BUCKETS;
    while (used > 1 && manifest->degrees[used - 1] == 0)
        used--;
    for (int i = 0; i < used; i++)
        complete &= json_array_append_new(degrees, json_integer(manifest->degrees[i])) == 0;
    if (complete)
        return degrees;
    json_decref(degrees);
    return NULL;
}

/* NULL when out of memory. `texts`: source, options, version. */
static json_t *root_of(const plim__manifest_t *manifest, char *texts[3])
{
    const plim_dataset_info_t *info = &manifest->info;
    const bool vector = info->label_kind == PLIM_LABELS_VALUES && info->label_dims == 1;
    const plim__manifest_file_t *labels = plim__manifest_find(manifest, "labels.npy");
    const bool narrow = info->label_kind == PLIM_LABELS_CLASSES && labels->type != PLIM__NPY_I64;
    /* Older readers know neither features of nodes that are integers, nor uint32, nor classes that
     * are not int64, nor types of edges in the fingerprint, nor values of one dimension. */
    json_t *root =
        json_pack("{s:s, s:i, s:i}", "plimsoll", "dataset", "format", PLIM__FORMAT, "readable_by",
                  info->feature_type == PLIM_I64 ? 6
                  : info->index_type == PLIM_U32 ? 5
                  : narrow                       ? 4
                  : info->num_edge_types > 0     ? 3
                  : vector                       ? 2
                                                 : 1);
    bool complete = true;
    for (int i = 0; i < PLIM__MANIFEST_COUNTS; i++) {
        const plim__manifest_count_key_t *count = &plim__manifest_counts[i];
        int64_t value = *(const int64_t *)(const void *)((const char *)info + count->offset);
        complete &= json_object_set_new(root, count->key, json_integer(value)) == 0;
    }
    json_t *files = json_array();
    for (int i = 0; i < manifest->num_files; i++)
        complete &= json_array_append_new(files, file_of(&manifest->files[i])) == 0;
    json_t *rest =
        json_pack("{s:s, s:s, s:s, s:f, s:o, s:s, s:{s:o, s:o, s:o}, s:o}", "index_type",
                  plim__manifest_type_name(info->index_type), "feature_type",
                  plim__manifest_type_name(info->feature_type), "label_kind",
                  plim__manifest_label_name(info->label_kind), "feature_error", info->feature_error,
                  "degrees_log2", degrees_of(manifest), "fingerprint", info->fingerprint,
                  "provenance", "source", text_of(texts[0]), "options", text_of(texts[1]),
                  "version", text_of(texts[2]), "files", files);
    complete &= json_object_update(root, rest) == 0;
    if (info->multi_label) /* only then, so that the bytes of other datasets stay the same */
        complete &= json_object_set_new(root, "multi_label", json_true()) == 0;
    if (info->max_self_loops >= 0)
        complete &=
            json_object_set_new(root, "max_self_loops", json_integer(info->max_self_loops)) == 0;
    if ((info->columns & PLIM_EDGE_TYPE) != 0)
        complete &=
            json_object_set_new(root, "num_edge_types", json_integer(info->num_edge_types)) == 0;
    json_decref(rest);
    if (complete)
        return root;
    json_decref(root);
    return NULL;
}

typedef struct manifest_page {
    char *text;
    size_t used;
    size_t size;
} manifest_page_t;

static int append(const char *buffer, size_t size, void *data)
{
    manifest_page_t *page = data;
    if (size > page->size - page->used)
        return -1;
    memcpy(page->text + page->used, buffer, size);
    page->used += size;
    return 0;
}

static plim_status_t seal(manifest_page_t *page)
{
    if (!plim__seal_put(page->text, page->size, &page->used) || page->used > PLIM__MANIFEST_BYTES)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "%s would have %zu bytes, more than can be read; shorten its provenance",
                          PLIM__MANIFEST_NAME, page->used);
    return PLIM_OK;
}

static plim_status_t render_texts(const plim__manifest_t *manifest, char *texts[3],
                                  manifest_page_t *page)
{
    json_t *root = root_of(manifest, texts);
    if (root == NULL)
        return plim__fail(PLIM_ERR_NOMEM, "out of memory while writing %s", PLIM__MANIFEST_NAME);
    int failed = json_dump_callback(root, append, page, JSON_INDENT(2));
    json_decref(root);
    if (failed != 0)
        return plim__fail(PLIM_ERR_NOMEM, "out of memory while writing %s", PLIM__MANIFEST_NAME);
    return seal(page);
}

plim_status_t plim__manifest_render(const plim_job_t *job, const plim__manifest_t *manifest,
                                    plim__arena_t *arena_out, const char **text_out,
                                    size_t *size_out)
{
    const char *given[] = {manifest->source, manifest->options, manifest->version};
    char *texts[3];
    plim__arena_t arena;
    int account;
    size_t letters = 0;
    size_t checksums = 0;
    for (int i = 0; i < 3; i++)
        letters += strlen(given[i]) + 1 + PLIM__LINE;
    for (int i = 0; i < manifest->num_files; i++)
        checksums += (size_t)manifest->files[i].num_checksums;
    /* A letter becomes at most six when escaped; a checksum is a line of 28 bytes, and takes about
     * 96 bytes in jansson. */
    size_t size = ((size_t)16 << 10) + 6 * letters + 32 * checksums;
    size_t memory = ((size_t)64 << 10) + 4 * letters + 160 * checksums;
    PLIM_TRY(plim__arena_create(job->ledger, "dataset writer", size + letters, &arena));
    plim_status_t status = plim__ledger_reserve(job->ledger, "json", memory, &account);
    if (status != PLIM_OK)
        goto destroy_arena;
    manifest_page_t page = {plim__arena_carve(&arena, size, 1, 1), 0, size};
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(given[i]) + 1;
        texts[i] = memcpy(plim__arena_carve(&arena, length, 1, 1), given[i], length);
    }
    status = render_texts(manifest, texts, &page);
    plim__ledger_release(job->ledger, account, memory);
    if (status != PLIM_OK)
        goto destroy_arena;
    *arena_out = arena;
    *text_out = page.text;
    *size_out = page.used;
    return PLIM_OK;
destroy_arena:
    plim__arena_destroy(&arena);
    return status;
}
