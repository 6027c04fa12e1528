#include "store/file_check.h"

#include "base/check.h"
#include "base/fail.h"

#define XXH_INLINE_ALL /* for the size of XXH3_state_t */
#include <xxhash.h>

#define READ_BYTES ((int64_t)1 << 20) /* bytes of one read, which bounds the page cache in use */

_Static_assert(sizeof(XXH3_state_t) <= sizeof((plim__file_check_t *)0)->state, "the state fits");
_Static_assert(_Alignof(XXH3_state_t) <= _Alignof(plim__file_check_t), "the state is aligned");

static XXH3_state_t *state_of(plim__file_check_t *check)
{
    return (XXH3_state_t *)(void *)check->state;
}

plim_status_t plim__file_check_begin(plim__file_check_t *check, const plim__file_t *file,
                                     const plim__manifest_file_t *entry)
{
    _Alignas(4096) char header[PLIM__NPY_HEADER];
    check->file = file;
    check->entry = entry;
    check->at = 0;
    (void)XXH3_64bits_reset(state_of(check));
    PLIM_TRY(plim__file_read_at(file, 0, header, sizeof header));
    return plim__file_check_add(check, header, sizeof header);
}

plim_status_t plim__file_check_fail(const plim__file_t *file, const plim__manifest_file_t *entry,
                                    int64_t number, uint64_t found)
{
    const int64_t start = number * PLIM__CHECKSUM_BYTES;
    return plim__fail(PLIM_ERR_DATA,
                      "%s is damaged in the bytes %lld to %lld: their checksum is %016llx, not "
                      "%016llx; copy or make the dataset again",
                      file->path, (long long)start,
                      (long long)plim__min_i64(start + PLIM__CHECKSUM_BYTES, entry->bytes) - 1,
                      (unsigned long long)found, (unsigned long long)entry->checksums[number]);
}

/* Compares the checksum of the chunk that ends here. */
static plim_status_t compare(plim__file_check_t *check)
{
    const int64_t number = (check->at - 1) / PLIM__CHECKSUM_BYTES;
    const uint64_t found = XXH3_64bits_digest(state_of(check));
    if (number >= check->entry->num_checksums || found != check->entry->checksums[number])
        return plim__file_check_fail(check->file, check->entry, number, found);
    (void)XXH3_64bits_reset(state_of(check));
    return PLIM_OK;
}

plim_status_t plim__file_check_add(plim__file_check_t *check, const void *data, size_t size)
{
    const char *from = data;
    while (size > 0) {
        const int64_t left = PLIM__CHECKSUM_BYTES - check->at % PLIM__CHECKSUM_BYTES;
        const size_t part = (size_t)plim__min_i64(left, (int64_t)size);
        (void)XXH3_64bits_update(state_of(check), from, part);
        check->at += (int64_t)part;
        from += part;
        size -= part;
        if (check->at % PLIM__CHECKSUM_BYTES == 0 || check->at == check->entry->bytes)
            PLIM_TRY(compare(check));
    }
    return PLIM_OK;
}

plim_status_t plim__file_check_end(plim__file_check_t *check)
{
    if (check->at == check->entry->bytes)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_DATA, "%s: %lld bytes were read instead of %lld", check->file->path,
                      (long long)check->at, (long long)check->entry->bytes);
}

plim_status_t plim__dataset_read_whole(const plim_dataset_t *dataset,
                                       const plim__manifest_file_t *entry, void *to)
{
    plim__file_check_t check;
    plim__file_t file;
    PLIM_TRY(plim__dataset_file_open(dataset, entry, false, &file));
    plim_status_t status = plim__file_check_begin(&check, &file, entry);
    const int64_t bytes = file.size - PLIM__NPY_HEADER;
    for (int64_t at = 0; at < bytes && status == PLIM_OK; at += READ_BYTES) {
        const size_t size = (size_t)plim__min_i64(READ_BYTES, bytes - at);
        status = plim__file_read_at(&file, PLIM__NPY_HEADER + at, (char *)to + at, size);
        if (status == PLIM_OK)
            status = plim__file_check_add(&check, (char *)to + at, size);
    }
    if (status == PLIM_OK)
        status = plim__file_check_end(&check);
    plim__file_close(&file);
    return status;
}
