#include "train/row_ids.h"

#include "base/check.h"
#include "base/fail.h"

static plim_status_t open_file(const plim_dataset_t *dataset, const char *name,
                               plim__row_ids_file_t *file)
{
    const plim__manifest_file_t *entry = plim__manifest_find(plim__dataset_manifest(dataset), name);
    if (entry == NULL)
        return PLIM_OK;
    PLIM_TRY(plim__dataset_file_open(dataset, entry, false, &file->file));
    file->count = entry->shape[0];
    return PLIM_OK;
}

static plim_status_t open_names(const plim_dataset_t *dataset, const char *text_name,
                                const char *offsets_name, plim__row_names_t *names)
{
    const plim__manifest_file_t *text =
        plim__manifest_find(plim__dataset_manifest(dataset), text_name);
    if (text == NULL)
        return PLIM_OK;
    PLIM_TRY(plim__dataset_file_open(dataset, text, false, &names->text));
    names->text_bytes = text->shape[0];
    return open_file(dataset, offsets_name, &names->offsets);
}

plim_status_t plim__row_ids_open(const plim_dataset_t *dataset, plim_split_t split,
                                 plim__row_ids_t *ids_out)
{
    static const char *const names[] = {"train.npy", "valid.npy", "test.npy"};
    static const plim__row_ids_file_t none = {.file = {.fd = -1}, .count = -1};
    plim__row_ids_t *ids = ids_out;
    ids->path = plim__dataset_path(dataset);
    ids->next = 0;
    ids->split = ids->ids = ids->names.offsets = ids->classes.offsets = none;
    ids->names.text.fd = ids->classes.text.fd = -1;
    PLIM_TRY(
        open_names(dataset, PLIM__CLASS_TEXT ".npy", PLIM__CLASS_OFFSETS ".npy", &ids->classes));
    if (split != PLIM_ALL_NODES)
        PLIM_TRY(open_file(dataset, names[split], &ids->split));
    if (plim_dataset_info(dataset)->num_graphs > 0)
        return PLIM_OK;
    PLIM_TRY(open_file(dataset, "ids.npy", &ids->ids));
    return open_names(dataset, PLIM__ID_TEXT ".npy", PLIM__ID_OFFSETS ".npy", &ids->names);
}

static void close_file(plim__file_t *file)
{
    if (file->fd >= 0)
        plim__file_close(file);
}

void plim__row_ids_close(plim__row_ids_t *ids)
{
    if (ids->path == NULL)
        return;
    close_file(&ids->split.file);
    close_file(&ids->ids.file);
    close_file(&ids->names.offsets.file);
    close_file(&ids->names.text);
    close_file(&ids->classes.offsets.file);
    close_file(&ids->classes.text);
}

static plim_status_t damaged(const plim__row_ids_t *ids)
{
    return plim__fail(PLIM_ERR_DATA, "%s: its ids are damaged; make the dataset again", ids->path);
}

static plim_status_t read_at(const plim__row_ids_t *ids, plim__row_ids_file_t *file, int64_t at,
                             int64_t *value_out)
{
    if (at < 0 || at >= file->count)
        return damaged(ids);
    if (at < file->first || at >= file->first + file->valid) {
        const int64_t first = at - at % PLIM__ROW_IDS_BLOCK;
        const int64_t count = plim__min_i64(PLIM__ROW_IDS_BLOCK, file->count - first);
        PLIM_TRY(plim__file_read_at(&file->file,
                                    PLIM__NPY_HEADER + first * (int64_t)sizeof(int64_t),
                                    file->block, (size_t)count * sizeof(int64_t)));
        file->first = first;
        file->valid = count;
    }
    *value_out = file->block[at - file->first];
    return PLIM_OK;
}

static plim_status_t read_name(const plim__row_ids_t *ids, plim__row_names_t *names, int64_t at)
{
    int64_t begin = 0, end = 0;
    PLIM_TRY(read_at(ids, &names->offsets, at, &begin));
    PLIM_TRY(read_at(ids, &names->offsets, at + 1, &end));
    if (begin < 0 || end <= begin || end - begin > PLIM__ID_TEXT_MAX ||
        end > names->text.size - PLIM__NPY_HEADER)
        return damaged(ids);
    names->size = (size_t)(end - begin);
    return plim__file_read_at(&names->text, PLIM__NPY_HEADER + begin, names->name, names->size);
}

plim_status_t plim__row_ids_next(plim__row_ids_t *ids, int64_t *id_out)
{
    int64_t node = ids->next;
    if (ids->split.count >= 0)
        PLIM_TRY(read_at(ids, &ids->split, ids->next, &node));
    ids->next++;
    if (ids->ids.count >= 0)
        return read_at(ids, &ids->ids, node, id_out);
    *id_out = node;
    return plim__row_ids_named(ids) ? read_name(ids, &ids->names, node) : PLIM_OK;
}

plim_status_t plim__row_ids_class(plim__row_ids_t *ids, int64_t class)
{
    return read_name(ids, &ids->classes, class);
}
