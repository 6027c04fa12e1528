#include "ingest/ids.h"

#include "base/check.h"
#include "base/fail.h"
#include "ingest/feature_convert.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static plim_status_t npy_read(plim__ids_t *base, int64_t *to, int64_t capacity, int64_t *got_out)
{
    plim__ids_npy_t *ids = (plim__ids_npy_t *)base;
    int64_t count = plim__min_i64(capacity, ids->left);
    size_t size = plim__dtype_size(ids->type);
    if (ids->type == PLIM__NPY_I64) {
        PLIM_TRY(plim__reader_read_all(ids->reader, to, (size_t)count * size));
    } else {
        uint64_t raw[2048];
        for (int64_t done = 0; done < count;) {
            int64_t chunk = plim__min_i64(count - done, (int64_t)(sizeof raw / size));
            PLIM_TRY(plim__reader_read_all(ids->reader, raw, (size_t)chunk * size));
            int64_t good = plim__feature_convert_ids(ids->type, raw, to + done, chunk);
            if (good < chunk)
                return plim__fail(PLIM_ERR_DATA,
                                  "%s: element %" PRId64 " is %" PRIu64
                                  ", too large for an id or a count; check the file",
                                  ids->reader->name, base->position + done + good, raw[good]);
            done += chunk;
        }
    }
    ids->left -= count;
    base->position += count;
    *got_out = count;
    return PLIM_OK;
}

plim_status_t plim__ids_npy_open(plim__ids_npy_t *ids, plim__reader_t *reader, plim__dtype_t type,
                                 int64_t count)
{
    if (type == PLIM__NPY_F16 || type == PLIM__NPY_F32 || type == PLIM__NPY_F64)
        return plim__fail(PLIM_ERR_DATA,
                          "%s has the type %s, but integers are expected; save it with "
                          "astype('int64')",
                          reader->name, plim__dtype_name(type));
    ids->ids.read = npy_read;
    ids->ids.position = 0;
    (void)snprintf(ids->ids.name, sizeof ids->ids.name, "%s", reader->name);
    ids->reader = reader;
    ids->type = type;
    ids->left = count;
    return PLIM_OK;
}

static plim_status_t text_read(plim__ids_t *base, int64_t *to, int64_t capacity, int64_t *got_out)
{
    plim__ids_text_t *ids = (plim__ids_text_t *)base;
    PLIM_TRY(plim__text_rows_i64(ids->text, ids->columns, 1, capacity, to, got_out));
    base->position += *got_out;
    return PLIM_OK;
}

plim_status_t plim__ids_text_open(plim__ids_text_t *ids, plim__text_t *text, const char *name)
{
    plim__text_line_t line;
    PLIM_TRY(plim__text_table(text, false, &line));
    ids->columns = line.index ? 2 : 1;
    if (line.index)
        plim__text_skip_first(text);
    ids->ids.read = text_read;
    ids->ids.position = 0;
    (void)snprintf(ids->ids.name, sizeof ids->ids.name, "%s", name);
    ids->text = text;
    return PLIM_OK;
}

/* A chunk in the spool: one word, count << 8 | width, then count numbers of `width` bytes each. */
static size_t pack(const int64_t *from, int64_t count, size_t width, unsigned char *to)
{
    if (width == 4) {
        uint32_t narrow[PLIM__ID_CHUNK];
        for (int64_t i = 0; i < count; i++)
            narrow[i] = (uint32_t)from[i];
        memcpy(to, narrow, (size_t)count * 4);
    } else {
        for (int64_t i = 0; i < count; i++)
            memcpy(to + (size_t)i * width, &from[i], width);
    }
    return (size_t)count * width;
}

static void unpack(const unsigned char *from, int64_t count, size_t width, int64_t *to)
{
    if (width == 4) {
        uint32_t narrow[PLIM__ID_CHUNK];
        memcpy(narrow, from, (size_t)count * 4);
        for (int64_t i = 0; i < count; i++)
            to[i] = (int64_t)narrow[i];
    } else {
        for (int64_t i = 0; i < count; i++) {
            to[i] = 0;
            memcpy(&to[i], from + (size_t)i * width, width);
        }
    }
}

static plim_status_t write_chunk(plim__id_spool_t *spool, const int64_t *from, int64_t count)
{
    unsigned char bytes[8 + PLIM__ID_CHUNK * 8];
    uint64_t all = 0;
    int64_t most = spool->most;
    for (int64_t i = 0; i < count; i++) {
        all |= (uint64_t)from[i];
        most = from[i] > most ? from[i] : most;
    }
    size_t width = 4;
    while (width < 8 && all >> (8 * width) != 0)
        width++;
    uint64_t head = (uint64_t)count << 8 | width;
    memcpy(bytes, &head, sizeof head);
    size_t size = pack(from, count, width, bytes + sizeof head);
    spool->most = most;
    spool->count += count;
    return plim__spool_write(spool->file, bytes, sizeof head + size);
}

plim_status_t plim__id_spool_write(plim__id_spool_t *spool, const int64_t *from, int64_t count)
{
    while (count > 0) {
        int64_t chunk = plim__min_i64(count, PLIM__ID_CHUNK);
        PLIM_TRY(write_chunk(spool, from, chunk));
        from += chunk;
        count -= chunk;
    }
    return PLIM_OK;
}

static plim_status_t read_chunk(plim__id_spool_t *spool)
{
    unsigned char bytes[PLIM__ID_CHUNK * 8];
    uint64_t head;
    PLIM_TRY(plim__spool_read(spool->file, &head, sizeof head));
    size_t width = head & 0xff;
    int64_t count = (int64_t)(head >> 8);
    if (width < 4 || width > 8 || count > PLIM__ID_CHUNK)
        return plim__fail(PLIM_ERR_IO,
                          "%s: the temporary file was changed or damaged; check the disk",
                          spool->ids.name);
    PLIM_TRY(plim__spool_read(spool->file, bytes, (size_t)count * width));
    unpack(bytes, count, width, spool->chunk);
    spool->chunk_size = count;
    spool->chunk_taken = 0;
    return PLIM_OK;
}

static plim_status_t spool_read(plim__ids_t *base, int64_t *to, int64_t capacity, int64_t *got_out)
{
    plim__id_spool_t *spool = (plim__id_spool_t *)base;
    int64_t count = plim__min_i64(capacity, spool->count - base->position);
    for (int64_t done = 0; done < count;) {
        if (spool->chunk_taken == spool->chunk_size)
            PLIM_TRY(read_chunk(spool));
        int64_t chunk = plim__min_i64(count - done, spool->chunk_size - spool->chunk_taken);
        memcpy(to + done, spool->chunk + spool->chunk_taken, (size_t)chunk * sizeof *to);
        spool->chunk_taken += chunk;
        done += chunk;
    }
    base->position += count;
    *got_out = count;
    return PLIM_OK;
}

plim_status_t plim__id_spool_create(plim__id_spool_t *spool, const plim_job_t *job,
                                    const char *directory, size_t buffer, const char *name)
{
    spool->ids.read = spool_read;
    spool->ids.position = 0;
    (void)snprintf(spool->ids.name, sizeof spool->ids.name, "%s", name);
    spool->count = 0;
    spool->most = -1;
    return plim__spool_create(job, directory, buffer, &spool->file);
}

plim_status_t plim__id_spool_rewind(plim__id_spool_t *spool, bool consume)
{
    spool->ids.position = 0;
    spool->chunk_size = 0;
    spool->chunk_taken = 0;
    return plim__spool_rewind(spool->file, consume);
}

void plim__id_spool_destroy(plim__id_spool_t *spool)
{
    plim__spool_destroy(spool->file);
    spool->file = NULL;
}
