/*
 * Writes safetensors files. Data goes from the caller's memory through one aligned buffer, by
 * direct I/O where the file system allows it, so a checkpoint of any size needs the same memory and
 * no page cache.
 */
#include "base/check.h"
#include "base/fail.h"
#include "io/commit.h"
#include "io/safetensors_format.h"
#include "mem/arena.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensors are written as they are in memory");

/* The text of the header; `full` when it did not fit. */
typedef struct header_page {
    char *text;
    size_t used;
    size_t size;
    bool full;
} header_page_t;

static void put(header_page_t *page, const char *text, size_t length)
{
    if (length > page->size - page->used) {
        page->full = true;
        return;
    }
    memcpy(page->text + page->used, text, length);
    page->used += length;
}

static void put_text(header_page_t *page, const char *text)
{
    put(page, text, strlen(text));
}

static void put_number(header_page_t *page, int64_t number)
{
    char digits[24];
    (void)snprintf(digits, sizeof digits, "%lld", (long long)number);
    put_text(page, digits);
}

static void put_quoted(header_page_t *page, const char *text)
{
    put(page, "\"", 1);
    for (const char *c = text; *c != '\0'; c++) {
        unsigned char byte = (unsigned char)*c;
        char escape[8];
        if (byte == '"' || byte == '\\') {
            (void)snprintf(escape, sizeof escape, "\\%c", byte);
            put_text(page, escape);
        } else if (byte < 0x20) {
            (void)snprintf(escape, sizeof escape, "\\u%04x", byte);
            put_text(page, escape);
        } else {
            put(page, byte < 0x7f ? c : "?", 1);
        }
    }
    put(page, "\"", 1);
}

#define NO_DIGITS "0000000000000000"
#define SECOND_NOTE "\",\"" PLIM__TENSORS_CHECKSUMS "\":\""

_Static_assert(sizeof NO_DIGITS - 1 == PLIM__TENSORS_DIGITS, "as many zeros as digits");

/* The checksums come first, as zeros; seal fills them in. */
static void put_notes(header_page_t *page, const plim__note_t *notes, int num_notes,
                      int num_tensors)
{
    put_text(page, PLIM__TENSORS_SEAL NO_DIGITS SECOND_NOTE);
    for (int i = 0; i < num_tensors; i++)
        put_text(page, NO_DIGITS);
    put_text(page, "\"");
    for (int i = 0; i < num_notes; i++) {
        put_text(page, ",");
        put_quoted(page, notes[i].key);
        put_text(page, ":");
        put_quoted(page, notes[i].text);
    }
    put_text(page, "}");
}

static void put_tensor(header_page_t *page, const plim__tensor_t *tensor, int64_t begin,
                       int64_t end)
{
    put_quoted(page, tensor->name);
    put_text(page, ":{\"dtype\":");
    put_quoted(page, plim__tensor_type_name(tensor->type));
    put_text(page, ",\"shape\":[");
    for (int i = 0; i < tensor->num_dims; i++) {
        put_text(page, i == 0 ? "" : ",");
        put_number(page, tensor->shape[i]);
    }
    put_text(page, "],\"data_offsets\":[");
    put_number(page, begin);
    put_text(page, ",");
    put_number(page, end);
    put_text(page, "]}");
}

/* Renders the front of the file, up to the data. */
static plim_status_t render(const char *path, const plim__note_t *notes, int num_notes,
                            const plim__tensor_t *tensors, int num_tensors, header_page_t *page)
{
    int64_t offset = 0;
    page->used = PLIM__TENSORS_FRONT;
    put_notes(page, notes, num_notes, num_tensors);
    for (int i = 0; i < num_tensors; i++) {
        int64_t bytes, end;
        if (!plim__tensor_bytes(&tensors[i], &bytes) || !plim__add_i64(offset, bytes, &end))
            return plim__fail(PLIM_ERR_USAGE, "%s: tensor %s has an impossible type or shape", path,
                              tensors[i].name);
        put_text(page, ",");
        put_tensor(page, &tensors[i], offset, end);
        offset = end;
    }
    put_text(page, "}");
    while (page->used % PLIM__PAGE != 0 && !page->full)
        put_text(page, " ");
    if (page->full)
        return plim__fail(
            PLIM_ERR_USAGE,
            "%s: the names and notes of %d tensors do not fit in a header of %zu bytes", path,
            num_tensors, page->size);
    uint64_t length = page->used - PLIM__TENSORS_FRONT;
    memcpy(page->text, &length, sizeof length);
    return PLIM_OK;
}

/* Fills in the tensors' checksums, then the checksum of the front. */
static void seal(const header_page_t *page, const plim__tensor_t *tensors, int num_tensors)
{
    char digits[PLIM__TENSORS_DIGITS + 1];
    char *to = page->text + PLIM__TENSORS_SEAL_AT + PLIM__TENSORS_DIGITS + sizeof SECOND_NOTE - 1;
    for (int i = 0; i < num_tensors; i++, to += PLIM__TENSORS_DIGITS) {
        int64_t bytes = 0;
        (void)plim__tensor_bytes(&tensors[i], &bytes);
        plim__seal_digits(tensors[i].data, (size_t)bytes, digits);
        memcpy(to, digits, PLIM__TENSORS_DIGITS);
    }
    plim__tensor_front_digits(page->text, page->used, digits);
    memcpy(page->text + PLIM__TENSORS_SEAL_AT, digits, PLIM__TENSORS_DIGITS);
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
    seal(page, tensors, num_tensors);
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
    header_page_t page = {.size = PLIM__TENSORS_HEADER};
    sink_t sink = {.draft = draft};
    lay_out(&arena, &page, &sink);
    plim_status_t status = plim__arena_check(&arena);
    if (status == PLIM_OK)
        status = render(draft->path, notes, num_notes, tensors, num_tensors, &page);
    if (status == PLIM_OK)
        status = fill(&sink, &page, tensors, num_tensors, commit);
    plim__arena_destroy(&arena);
    return status;
}
