/* The packed file. Nothing in it is believed before it was checked; a bad one is made again. */
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "feature/row_cache_internal.h"
#include "io/commit.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define MAGIC "plimhot2"

typedef struct header {
    char magic[8];
    char fingerprint[24]; /* of the dataset, NUL at the end */
    uint64_t key;
    uint64_t set_hash;
    uint64_t num_rows;
    uint64_t row_bytes;
    uint64_t num_pages;
    uint64_t chunk_bytes;
    uint64_t table_hash;  /* of the chunks' checksums */
    uint64_t held;        /* as in the params: for the next plan, and nothing here */
    uint64_t header_hash; /* of all before it */
} header_t;

static uint64_t hash_of_header(const header_t *header)
{
    return XXH3_64bits(header, offsetof(header_t, header_hash));
}

static header_t make_header(const plim__row_cache_t *hot)
{
    header_t header;
    size_t chunks = (size_t)plim__row_cache_num_chunks(hot);
    memset(&header, 0, sizeof header);
    memcpy(header.magic, MAGIC, sizeof header.magic);
    memcpy(header.fingerprint, hot->fingerprint, sizeof hot->fingerprint);
    header.key = hot->key;
    header.set_hash = hot->set_hash;
    header.num_rows = (uint64_t)hot->num_rows;
    header.row_bytes = hot->form.bytes;
    header.num_pages = (uint64_t)hot->num_pages;
    header.chunk_bytes = PLIM__ROW_CACHE_CHUNK;
    header.table_hash = XXH3_64bits(hot->checksums, chunks * sizeof *hot->checksums);
    header.held = (uint64_t)hot->held;
    header.header_hash = hash_of_header(&header);
    return header;
}

/* The table of checksums is padded to whole pages: all transfers are aligned. */
static size_t table_bytes(const plim__row_cache_t *hot)
{
    return plim__round_up((size_t)plim__row_cache_num_chunks(hot) * sizeof(uint64_t), PLIM__PAGE);
}

static int64_t file_bytes(const plim__row_cache_t *hot)
{
    return plim__row_cache_file_offset(hot->num_pages) + (int64_t)table_bytes(hot);
}

int64_t plim__rows_packed_bytes(const plim_dataset_t *dataset, size_t cache_bytes)
{
    const size_t stride = plim__round_up(plim__row_form_of(dataset).bytes, sizeof(uint64_t));
    if (stride == 0)
        return 0;
    const int64_t most = (int64_t)(cache_bytes / stride);
    const size_t rows = (size_t)plim__min_i64(most, plim_dataset_info(dataset)->num_nodes);
    const plim__row_cache_t hot = {
        .num_pages = (int64_t)(plim__round_up(rows * stride, PLIM__PAGE) / PLIM__PAGE)};
    return file_bytes(&hot);
}

bool plim__row_cache_file_path(const char *scratch, const char *fingerprint, uint64_t key,
                               char path_out[PATH_MAX])
{
    const int length = snprintf(path_out, PATH_MAX, "%s/hot-rows-%s-%016llx.plim", scratch,
                                fingerprint, (unsigned long long)key);
    return length >= 0 && length < PATH_MAX;
}

/* What others could have written is not read: its rows would be believed. */
static const char *why_not_ours(const plim__file_t *file)
{
    struct stat about;
    return fstat(file->fd, &about) == 0 ? plim__file_distrust(&about) : "cannot be looked at";
}

/* NULL when the header and the table of checksums are those of this choice of rows. */
static const char *why_not(plim__row_cache_t *hot, const plim__file_t *file, char *page)
{
    header_t header;
    const char *reason = why_not_ours(file);
    if (reason != NULL)
        return reason;
    if (file->size < (int64_t)PLIM__PAGE)
        return "is not of the size it must have";
    if (plim__file_read_at(file, 0, page, PLIM__PAGE) != PLIM_OK)
        return "cannot be read";
    memcpy(&header, page, sizeof header);
    if (memcmp(header.magic, MAGIC, sizeof header.magic) != 0 ||
        header.header_hash != hash_of_header(&header))
        return "is damaged at its start";
    header_t expected = make_header(hot);
    if (memcmp(&header, &expected, offsetof(header_t, table_hash)) != 0)
        return "holds other rows";
    if (file->size != file_bytes(hot))
        return "is not of the size it must have";
    if (plim__file_read_at(file, plim__row_cache_file_offset(hot->num_pages), hot->checksums,
                           table_bytes(hot)) != PLIM_OK)
        return "cannot be read";
    return header.table_hash != make_header(hot).table_hash ? "is damaged at its end" : NULL;
}

int64_t plim__rows_packed_held(const plim_dataset_t *dataset, const char *scratch, uint64_t key)
{
    const char *fingerprint = plim_dataset_info(dataset)->fingerprint;
    char path[PATH_MAX];
    header_t header = {.held = 0};
    plim__file_t file;
    if (!plim__row_cache_file_path(scratch, fingerprint, key, path) || access(path, F_OK) != 0 ||
        plim__file_open(path, PLIM__FILE_READ, false, &file) != PLIM_OK)
        return 0;
    const bool good = why_not_ours(&file) == NULL && file.size >= (int64_t)sizeof header &&
                      plim__file_read_at(&file, 0, &header, sizeof header) == PLIM_OK &&
                      memcmp(header.magic, MAGIC, sizeof header.magic) == 0 &&
                      header.header_hash == hash_of_header(&header) && header.held <= INT64_MAX;
    plim__file_close(&file);
    return good ? (int64_t)header.held : 0;
}

static plim_status_t take_chunk(void *context, int64_t at, void *data, size_t size)
{
    plim__row_cache_t *hot = context;
    if (XXH3_64bits(data, size) != hot->checksums[at / (int64_t)PLIM__ROW_CACHE_CHUNK])
        return plim__fail(PLIM_ERR_DATA, "is damaged between %lld and %lld",
                          (long long)(at + (int64_t)PLIM__PAGE),
                          (long long)(at + (int64_t)(PLIM__PAGE + size)));
    int64_t first = at / (int64_t)PLIM__PAGE;
    plim__row_cache_let_go(hot, first, first + (int64_t)(size / PLIM__PAGE));
    return PLIM_OK;
}

plim_status_t plim__row_cache_file_load(plim__row_cache_t *hot, bool *loaded_out)
{
    plim__file_t file;
    *loaded_out = false;
    if (hot->scratch[0] == '\0' || access(hot->packed_path, F_OK) != 0)
        return PLIM_OK;
    const char *reason = NULL;
    if (plim__file_open(hot->packed_path, PLIM__FILE_READ, true, &file) != PLIM_OK) {
        plim__log(&hot->job, PLIM_LOG_WARNING, "%s; packing the rows again", plim_last_error());
        return PLIM_OK;
    }
    /* The first page of the rows is free yet, and serves as a buffer. */
    reason = why_not(hot, &file, hot->pages);
    if (reason == NULL) {
        plim_status_t status =
            plim__bulk_read(&hot->job, &file, plim__row_cache_file_offset(0), hot->pages,
                            hot->num_pages * (int64_t)PLIM__PAGE, take_chunk, hot);
        if (status == PLIM_OK) {
            hot->packed = file;
            *loaded_out = true;
            return PLIM_OK;
        }
        if (status != PLIM_ERR_DATA && status != PLIM_ERR_IO) {
            plim__file_close(&file);
            return status;
        }
        reason = plim_last_error();
    }
    plim__log(&hot->job, PLIM_LOG_WARNING, "%s %s; packing the rows again", hot->packed_path,
              reason);
    plim__file_close(&file);
    return PLIM_OK;
}

void plim__row_cache_file_begin(plim__row_cache_t *hot)
{
    int64_t space;
    plim__file_system_t system;
    if (hot->scratch[0] == '\0')
        return;
    if (plim__file_system(hot->scratch, &system) != PLIM_OK ||
        plim__file_space(hot->scratch, &space) != PLIM_OK) {
        plim__log(&hot->job, PLIM_LOG_WARNING, "%s; hot rows are not kept", plim_last_error());
        return;
    }
    if (system.memory) {
        plim__log(&hot->job, PLIM_LOG_WARNING,
                  "%s lies in memory; hot rows are not kept there, choose a disk", hot->scratch);
        return;
    }
    if (space < file_bytes(hot)) {
        plim__log(&hot->job, PLIM_LOG_WARNING,
                  "%s has %lld bytes free, packed hot rows need %lld; they are not kept",
                  hot->scratch, (long long)space, (long long)file_bytes(hot));
        return;
    }
    if (plim__file_open(hot->scratch, PLIM__FILE_TEMPORARY, true, &hot->packed) != PLIM_OK) {
        hot->packed.fd = -1;
        plim__log(&hot->job, PLIM_LOG_WARNING, "%s; hot rows are not kept", plim_last_error());
    }
}

plim_status_t plim__row_cache_file_put(plim__row_cache_t *hot, int64_t chunk)
{
    int64_t first = chunk * PLIM__ROW_CACHE_CHUNK_PAGES;
    const char *data = hot->pages + (size_t)first * PLIM__PAGE;
    size_t left = (size_t)(hot->num_pages - first) * PLIM__PAGE;
    size_t size = left < PLIM__ROW_CACHE_CHUNK ? left : PLIM__ROW_CACHE_CHUNK;
    hot->checksums[chunk] = XXH3_64bits(data, size);
    return plim__file_write_at(&hot->packed, plim__row_cache_file_offset(first), data, size);
}

void plim__row_cache_file_finish(plim__row_cache_t *hot)
{
    _Alignas(4096) char page[PLIM__PAGE] = {0};
    header_t header = make_header(hot);
    memcpy(page, &header, sizeof header);
    plim_status_t status =
        plim__file_write_at(&hot->packed, plim__row_cache_file_offset(hot->num_pages),
                            hot->checksums, table_bytes(hot));
    if (status == PLIM_OK)
        status = plim__file_write_at(&hot->packed, 0, page, sizeof page);
    if (status == PLIM_OK)
        status = plim__commit_nameless(&hot->packed, hot->packed_path);
    if (status != PLIM_OK)
        plim__log(&hot->job, PLIM_LOG_WARNING, "%s; the next start packs hot rows again",
                  plim_last_error());
    hot->packed.size = file_bytes(hot);
}
