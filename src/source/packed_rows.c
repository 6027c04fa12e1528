#include "source/packed_rows.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "io/bulk.h"
#include "io/commit.h"
#include "io/own.h"
#include "source/rows.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define MAGIC "plimhot3"

_Static_assert(PLIM__BULK_CHUNK == PLIM__DROPPABLE_CHUNK, "a checksum covers what is read at once");

typedef struct header {
    char magic[8];
    plim__packed_rows_identity_t identity;
    uint64_t table_hash;  /* of the chunk checksums */
    uint64_t header_hash; /* of all fields before it */
} header_t;

static uint64_t hash_of_header(const header_t *header)
{
    return XXH3_64bits(header, offsetof(header_t, header_hash));
}

static header_t make_header(const plim__packed_rows_t *packed)
{
    header_t header;
    memset(&header, 0, sizeof header);
    memcpy(header.magic, MAGIC, sizeof header.magic);
    header.identity = packed->identity;
    header.table_hash = XXH3_64bits(packed->checksums,
                                    (size_t)packed->memory->num_chunks * sizeof *packed->checksums);
    header.header_hash = hash_of_header(&header);
    return header;
}

/* Padded to whole pages: all transfers are aligned. */
size_t plim__packed_rows_table(size_t cache_bytes)
{
    const size_t chunks = (cache_bytes + PLIM__DROPPABLE_CHUNK - 1) / PLIM__DROPPABLE_CHUNK;
    return plim__round_up(chunks * sizeof(uint64_t), PLIM__PAGE);
}

int64_t plim__packed_rows_bytes(int64_t cache_bytes)
{
    const size_t pages = plim__round_up((size_t)cache_bytes, PLIM__PAGE);
    return plim__packed_rows_offset((int64_t)pages) + (int64_t)plim__packed_rows_table(pages);
}

static int64_t file_bytes(const plim__packed_rows_t *packed)
{
    return plim__packed_rows_bytes((int64_t)packed->memory->bytes);
}

static bool make_path(const char *scratch, const char *fingerprint, uint64_t key,
                      char path_out[PATH_MAX])
{
    const int length = snprintf(path_out, PATH_MAX, "%s/row-cache-%s-%016llx-%ld.plim", scratch,
                                fingerprint, (unsigned long long)key, (long)geteuid());
    return length >= 0 && length < PATH_MAX;
}

plim_status_t plim__packed_rows_name(plim__packed_rows_t *packed, const char *scratch)
{
    if (scratch == NULL)
        return PLIM_OK;
    const int length = snprintf(packed->scratch, sizeof packed->scratch, "%s", scratch);
    if (length < 0 ||
        !make_path(scratch, packed->identity.fingerprint, packed->identity.key, packed->path))
        return plim__fail(PLIM_ERR_USAGE, "%.100s…: the path is too long", scratch);
    return PLIM_OK;
}

/* Opens a file that only this user can have written. The message tells why it is not. */
static plim_status_t open_own(const plim__packed_rows_t *packed, plim__file_t *file_out)
{
    struct stat about;
    const int directory = open(packed->scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return plim__fail_errno(errno, "cannot open the directory %s", packed->scratch);
    plim_status_t status =
        plim__file_open_in(directory, packed->path, PLIM__FILE_READ, true, file_out);
    if (status == PLIM_OK &&
        (fstat(file_out->fd, &about) != 0 || plim__own_distrust(directory, &about) != NULL)) {
        plim__file_close(file_out);
        status = plim__fail(PLIM_ERR_DATA, "%s can be written by others", packed->path);
    }
    (void)close(directory);
    return status;
}

/* NULL if header and checksum table match this set of rows. */
static const char *why_not(plim__packed_rows_t *packed, const plim__file_t *file)
{
    header_t header;
    char *page = packed->memory->base; /* not filled yet: serves as a buffer */
    if (file->size < (int64_t)PLIM__PAGE)
        return "is not of the size it must have";
    if (plim__file_read_at(file, 0, page, PLIM__PAGE) != PLIM_OK)
        return "cannot be read";
    memcpy(&header, page, sizeof header);
    if (memcmp(header.magic, MAGIC, sizeof header.magic) != 0 ||
        header.header_hash != hash_of_header(&header))
        return "is damaged at its start";
    if (memcmp(&header.identity, &packed->identity, sizeof header.identity) != 0)
        return "holds other rows";
    if (file->size != file_bytes(packed))
        return "is not of the size it must have";
    if (plim__file_read_at(file, plim__packed_rows_offset((int64_t)packed->memory->bytes),
                           packed->checksums,
                           plim__packed_rows_table(packed->memory->bytes)) != PLIM_OK)
        return "cannot be read";
    return header.table_hash != make_header(packed).table_hash ? "is damaged at its end" : NULL;
}

static plim_status_t take_chunk(void *context, int64_t at, void *data, size_t size)
{
    plim__packed_rows_t *packed = context;
    if (XXH3_64bits(data, size) != packed->checksums[at / (int64_t)PLIM__DROPPABLE_CHUNK])
        return plim__fail(PLIM_ERR_DATA, "is damaged between %lld and %lld",
                          (long long)plim__packed_rows_offset(at),
                          (long long)plim__packed_rows_offset(at + (int64_t)size));
    plim__droppable_filled(packed->memory, at, size);
    return PLIM_OK;
}

plim_status_t plim__packed_rows_load(plim__packed_rows_t *packed, bool *loaded_out)
{
    plim__file_t file;
    *loaded_out = false;
    if (packed->scratch[0] == '\0' || access(packed->path, F_OK) != 0)
        return PLIM_OK;
    if (open_own(packed, &file) != PLIM_OK) {
        plim__log(packed->job, PLIM_LOG_WARNING, "%s; packing the rows again", plim_last_error());
        return PLIM_OK;
    }
    const char *reason = why_not(packed, &file);
    if (reason == NULL) {
        plim_status_t status =
            plim__bulk_read(packed->job, &file, plim__packed_rows_offset(0), packed->memory->base,
                            (int64_t)packed->memory->bytes, take_chunk, packed);
        if (status == PLIM_OK) {
            packed->file = file;
            *loaded_out = true;
            return PLIM_OK;
        }
        if (status != PLIM_ERR_DATA && status != PLIM_ERR_IO) {
            plim__file_close(&file);
            return status;
        }
        reason = plim_last_error();
    }
    plim__log(packed->job, PLIM_LOG_WARNING, "%s %s; packing the rows again", packed->path, reason);
    plim__file_close(&file);
    return PLIM_OK;
}

void plim__packed_rows_begin(plim__packed_rows_t *packed)
{
    const char *scratch = packed->scratch;
    int64_t space;
    plim__file_system_t system;
    if (scratch[0] == '\0')
        return;
    if (plim__file_system(scratch, &system) != PLIM_OK ||
        plim__file_space(scratch, &space) != PLIM_OK) {
        plim__log(packed->job, PLIM_LOG_WARNING, "%s; the row cache is not saved",
                  plim_last_error());
    } else if (system.memory) {
        plim__log(packed->job, PLIM_LOG_WARNING,
                  "%s is in memory; the row cache is not saved there, choose a disk", scratch);
    } else if (space < file_bytes(packed)) {
        plim__log(packed->job, PLIM_LOG_WARNING,
                  "%s has %lld bytes free, the row cache needs %lld; it is not saved", scratch,
                  (long long)space, (long long)file_bytes(packed));
    } else if (plim__file_open(scratch, PLIM__FILE_TEMPORARY, true, &packed->file) != PLIM_OK) {
        packed->file.fd = -1;
        plim__log(packed->job, PLIM_LOG_WARNING, "%s; the row cache is not saved",
                  plim_last_error());
    }
}

plim_status_t plim__packed_rows_put(plim__packed_rows_t *packed, int64_t at, size_t size)
{
    const char *data = packed->memory->base + at;
    packed->checksums[at / (int64_t)PLIM__DROPPABLE_CHUNK] = XXH3_64bits(data, size);
    return plim__file_write_at(&packed->file, plim__packed_rows_offset(at), data, size);
}

void plim__packed_rows_finish(plim__packed_rows_t *packed)
{
    _Alignas(4096) char page[PLIM__PAGE] = {0};
    const header_t header = make_header(packed);
    memcpy(page, &header, sizeof header);
    plim_status_t status =
        plim__file_write_at(&packed->file, plim__packed_rows_offset((int64_t)packed->memory->bytes),
                            packed->checksums, plim__packed_rows_table(packed->memory->bytes));
    if (status == PLIM_OK)
        status = plim__file_write_at(&packed->file, 0, page, sizeof page);
    if (status == PLIM_OK)
        status = plim__commit_nameless(&packed->file, AT_FDCWD, packed->path);
    if (status != PLIM_OK)
        plim__log(packed->job, PLIM_LOG_WARNING, "%s; the next start fills the row cache again",
                  plim_last_error());
    packed->file.size = file_bytes(packed);
}
