/*
 * Writes safetensors files. Data goes from the caller's memory through one aligned buffer, by
 * direct I/O where the file system allows it, so a checkpoint of any size needs the same memory and
 * no page cache.
 */
#include "base/check.h"
#include "base/fail.h"
#include "base/json_write.h"
#include "io/commit.h"
#include "io/safetensors_format.h"
#include "mem/arena.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensors are written as they are in memory");

/* The front of the file: the header's length, and its text. */
typedef struct header_page {
    char *text; /* (PLIM__TENSORS_HEADER) */
    size_t used;
} header_page_t;

#define NO_DIGITS "0000000000000000"

_Static_assert(sizeof NO_DIGITS - 1 == PLIM__TENSORS_DIGITS, "as many zeros as digits");

/* The beginning, with zeros for the checksum of the front. */
static const char front[] = PLIM__TENSORS_SEAL NO_DIGITS "\"";

static void put_tensor(plim__json_writer_t *json, const plim__tensor_t *tensor, int64_t begin,
                       int64_t end)
{
    plim__json_open(json, tensor->name, '{');
    plim__json_put_text(json, "dtype", plim__tensor_type_name(tensor->type), SIZE_MAX);
    plim__json_open(json, "shape", '[');
    for (int i = 0; i < tensor->num_dims; i++)
        plim__json_put_integer(json, NULL, tensor->shape[i]);
    plim__json_close(json, ']');
    plim__json_open(json, "data_offsets", '[');
    plim__json_put_integer(json, NULL, begin);
    plim__json_put_integer(json, NULL, end);
    plim__json_close(json, ']');
    plim__json_close(json, '}');
}

/* Checks the shapes and writes the checksum of each tensor, one after another. */
static plim_status_t put_checksums(const char *path, const plim__tensor_t *tensors, int num_tensors,
                                   char digits_out[PLIM__TENSORS_BUFFER])
{
    int64_t sum = 0;
    if ((size_t)num_tensors >= PLIM__TENSORS_BUFFER / PLIM__TENSORS_DIGITS)
        return plim__fail(PLIM_ERR_USAGE, "%s: a header cannot hold %d tensors", path, num_tensors);
    digits_out[0] = '\0';
    for (int i = 0; i < num_tensors; i++) {
        int64_t bytes;
        if (!plim__tensor_bytes(&tensors[i], &bytes) || !plim__add_i64(sum, bytes, &sum))
            return plim__fail(PLIM_ERR_USAGE, "%s: tensor %s has an impossible type or shape", path,
                              tensors[i].name);
        plim__seal_digits(tensors[i].data, (size_t)bytes, digits_out);
        digits_out += PLIM__TENSORS_DIGITS;
    }
    return PLIM_OK;
}

/* Renders the front of the file, up to the data; `checksums` are those of the tensors. */
static plim_status_t render(const char *path, const plim__note_t *notes, int num_notes,
                            const plim__tensor_t *tensors, int num_tensors, const char *checksums,
                            header_page_t *page)
{
    const size_t size = PLIM__TENSORS_HEADER - PLIM__TENSORS_FRONT;
    plim__json_writer_t json = plim__json_writer(page->text + PLIM__TENSORS_FRONT, size);
    json.used = sizeof front - 1;
    memcpy(json.text, front, sizeof front);
    plim__json_put_text(&json, PLIM__TENSORS_CHECKSUMS, checksums, SIZE_MAX);
    for (int i = 0; i < num_notes; i++)
        plim__json_put_text(&json, notes[i].key, notes[i].text, SIZE_MAX);
    plim__json_close(&json, '}');
    int64_t offset = 0;
    for (int i = 0; i < num_tensors; i++) {
        int64_t bytes = 0;
        (void)plim__tensor_bytes(&tensors[i], &bytes);
        put_tensor(&json, &tensors[i], offset, offset + bytes);
        offset += bytes;
    }
    plim__json_close(&json, '}');
    page->used = plim__round_up(PLIM__TENSORS_FRONT + json.used, PLIM__PAGE);
    if (json.overflow || page->used > PLIM__TENSORS_HEADER)
        return plim__fail(
            PLIM_ERR_USAGE,
            "%s: the names and notes of %d tensors do not fit in a header of %zu bytes", path,
            num_tensors, PLIM__TENSORS_HEADER);
    memset(json.text + json.used, ' ', page->used - PLIM__TENSORS_FRONT - json.used);
    uint64_t length = page->used - PLIM__TENSORS_FRONT;
    char digits[PLIM__TENSORS_DIGITS + 1];
    memcpy(page->text, &length, sizeof length);
    plim__tensor_front_digits(page->text, page->used, digits);
    memcpy(page->text + PLIM__TENSORS_SEAL_AT, digits, PLIM__TENSORS_DIGITS);
    return PLIM_OK;
}

/* A file written front to back, one buffer at a time. */
typedef struct sink {
    plim__draft_t *draft;
    char *buffer; /* PLIM__TENSORS_BUFFER bytes, page-aligned */
    size_t used;
    int64_t offset; /* in the file, of the buffer's first byte */
} sink_t;

static plim_status_t flush(sink_t *sink)
{
    const plim__file_t *file = &sink->draft->file;
    size_t size = plim__round_up(sink->used, file->align);
    if (size == 0)
        return PLIM_OK;
    memset(sink->buffer + sink->used, 0, size - sink->used);
    PLIM_TRY(plim__file_write_at(file, sink->offset, sink->buffer, size));
    sink->offset += (int64_t)sink->used;
    sink->used = 0;
    return PLIM_OK;
}

static plim_status_t pour(sink_t *sink, const char *from, size_t size)
{
    while (size > 0) {
        size_t space = PLIM__TENSORS_BUFFER - sink->used;
        size_t part = size < space ? size : space;
        memcpy(sink->buffer + sink->used, from, part);
        sink->used += part;
        from += part;
        size -= part;
        if (sink->used == PLIM__TENSORS_BUFFER)
            PLIM_TRY(flush(sink));
    }
    return PLIM_OK;
}

/* Writes all of it and, with `commit`, cuts it to its exact length and gives it its name. */
static plim_status_t fill(sink_t *sink, const header_page_t *page, const plim__tensor_t *tensors,
                          int num_tensors, bool commit)
{
    int64_t bytes = 0;
    PLIM_TRY(pour(sink, page->text, page->used));
    for (int i = 0; i < num_tensors; i++) {
        if (plim__tensor_bytes(&tensors[i], &bytes))
            PLIM_TRY(pour(sink, tensors[i].data, (size_t)bytes));
    }
    PLIM_TRY(flush(sink));
    return commit ? plim__draft_commit(sink->draft, sink->offset) : PLIM_OK;
}

static void lay_out(plim__arena_t *arena, header_page_t *page, sink_t *sink)
{
    page->text = plim__arena_carve(arena, PLIM__TENSORS_HEADER, 1, PLIM__PAGE);
    sink->buffer = plim__arena_carve(arena, PLIM__TENSORS_BUFFER, 1, PLIM__PAGE);
}

size_t plim__safetensors_write_estimate(void)
{
    plim__arena_t arena = plim__arena_counting();
    lay_out(&arena, &(header_page_t){.used = 0}, &(sink_t){.used = 0});
    return arena.used;
}

int64_t plim__safetensors_most(const plim__tensor_t *tensors, int num_tensors)
{
    int64_t sum = (int64_t)PLIM__TENSORS_HEADER + (int64_t)PLIM__PAGE, bytes;
    for (int i = 0; i < num_tensors; i++)
        if (plim__tensor_bytes(&tensors[i], &bytes)) /* impossible shapes are refused later */
            sum = plim__add_saturating_i64(sum, bytes);
    return sum;
}

plim_status_t plim__safetensors_write_draft(const plim_job_t *job, plim__draft_t *draft,
                                            const plim__note_t *notes, int num_notes,
                                            const plim__tensor_t *tensors, int num_tensors,
                                            bool commit)
{
    plim__arena_t arena;
    PLIM_TRY(plim__arena_create(job->ledger, PLIM__TENSORS_ACCOUNT,
                                plim__safetensors_write_estimate(), &arena));
    header_page_t page = {.used = 0};
    sink_t sink = {.draft = draft};
    lay_out(&arena, &page, &sink);
    plim_status_t status = plim__arena_check(&arena);
    if (status == PLIM_OK)
        status = put_checksums(draft->path, tensors, num_tensors, sink.buffer);
    if (status == PLIM_OK)
        status = render(draft->path, notes, num_notes, tensors, num_tensors, sink.buffer, &page);
    if (status == PLIM_OK)
        status = fill(&sink, &page, tensors, num_tensors, commit);
    plim__arena_destroy(&arena);
    return status;
}
