/* Reads chunks of files ahead and writes ranges of rows behind, while the threads compute. */
#include "infer/exact_internal.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"

#include <assert.h>
#include <errno.h>
#include <unistd.h>

void plim__exact_reader_lay_out(plim__arena_t *arena, plim__exact_reader_t *reader, int ahead,
                                int64_t capacity)
{
    /* A range may begin and end anywhere: reads up to a page more at both ends. */
    const size_t bytes = plim__round_up((size_t)capacity, PLIM__PAGE) + 2 * PLIM__PAGE;
    *reader = (plim__exact_reader_t){.ahead = ahead, .capacity = capacity};
    for (int i = 0; i < ahead; i++)
        reader->buffers[i] = plim__arena_carve(arena, 1, bytes, PLIM__PAGE);
}

plim_status_t plim__exact_reader_open(plim__exact_reader_t *reader, const plim_job_t *job)
{
    reader->job = job;
    return plim__engine_create(job, reader->ahead, &reader->engine);
}

void plim__exact_reader_close(plim__exact_reader_t *reader)
{
    plim__engine_destroy(reader->engine);
    reader->engine = NULL;
}

void plim__exact_reader_drop(plim__exact_reader_t *reader)
{
    for (; reader->ended < reader->begun; reader->ended++)
        if (reader->file != NULL && reader->chunks[reader->ended % reader->ahead].size > 0)
            (void)plim__engine_wait(reader->engine, &reader->ops[reader->ended % reader->ahead]);
    reader->begun = reader->ended = 0;
    reader->more = false;
}

static void submit(plim__exact_reader_t *reader, int slot)
{
    const plim__exact_chunk_t *chunk = &reader->chunks[slot];
    const int64_t unit = (int64_t)reader->file->align;
    const int64_t start = chunk->offset & ~(unit - 1);
    const size_t size = plim__round_up((size_t)(chunk->offset + chunk->size - start), (size_t)unit);
    reader->ops[slot] = (plim__op_t){
        .file = reader->file, .offset = start, .data = reader->buffers[slot], .size = size};
    plim__engine_submit(reader->engine, &reader->ops[slot]);
}

/* Requests as many ranges as there are free buffers; the range returned last keeps its buffer. */
static void fill(plim__exact_reader_t *reader)
{
    bool asked = false;
    while (reader->more && reader->begun - reader->ended < reader->ahead - 1) {
        const int slot = (int)(reader->begun % reader->ahead);
        reader->more = reader->next(reader->context, &reader->chunks[slot]);
        if (!reader->more)
            break;
        reader->begun++;
        if (reader->file != NULL && reader->chunks[slot].size > 0) {
            assert(reader->chunks[slot].size <= reader->capacity);
            submit(reader, slot);
            asked = true;
        }
    }
    if (asked)
        plim__engine_flush(reader->engine);
}

void plim__exact_reader_start(plim__exact_reader_t *reader, const plim__file_t *file,
                              const char *memory, plim__exact_next_fn next, void *context)
{
    plim__exact_reader_drop(reader);
    reader->file = file;
    reader->memory = memory;
    reader->next = next;
    reader->context = context;
    reader->more = true;
    fill(reader);
}

const plim__exact_chunk_t *plim__exact_reader_peek(plim__exact_reader_t *reader)
{
    return reader->ended < reader->begun ? &reader->chunks[reader->ended % reader->ahead] : NULL;
}

plim_status_t plim__exact_reader_take(plim__exact_reader_t *reader, plim__exact_chunk_t *chunk_out,
                                      char **data_out)
{
    const int slot = (int)(reader->ended % reader->ahead);
    const plim__exact_chunk_t *chunk = &reader->chunks[slot];
    PLIM_TRY(plim__job_check(reader->job));
    *chunk_out = *chunk;
    if (reader->file == NULL) {
        *data_out = (char *)(uintptr_t)reader->memory + chunk->offset;
    } else if (chunk->size == 0) {
        *data_out = reader->buffers[slot];
    } else {
        PLIM_TRY(plim__engine_wait(reader->engine, &reader->ops[slot]));
        if (reader->ops[slot].moved <
            (size_t)(chunk->offset + chunk->size - reader->ops[slot].offset))
            return plim__fail(
                PLIM_ERR_DATA, "%s: truncated at %lld; fetch or make the file again",
                reader->file->path,
                (long long)(reader->ops[slot].offset + (int64_t)reader->ops[slot].moved));
        *data_out = reader->buffers[slot] + (chunk->offset - reader->ops[slot].offset);
    }
    reader->ended++;
    fill(reader);
    return PLIM_OK;
}

plim_status_t plim__exact_store_create(plim__exact_store_t *store, const plim_job_t *job,
                                       const char *scratch, bool in_memory, int64_t range_bytes,
                                       int64_t ranges)
{
    const int64_t bytes = plim__mul_saturating_i64(range_bytes, ranges);
    plim__file_system_t system;
    *store = (plim__exact_store_t){
        .ledger = job->ledger, .range_bytes = range_bytes, .file = {.fd = -1}};
    if (in_memory)
        return plim__arena_create(job->ledger, "exact layers", (size_t)bytes, &store->memory);
    PLIM_TRY(plim__file_system(scratch, &system));
    if (system.memory) {
        PLIM_TRY(plim__ledger_reserve(job->ledger, "exact layers", (size_t)bytes, &store->account));
        store->charged = (size_t)bytes;
    }
    plim_status_t status = plim__file_open(scratch, PLIM__FILE_TEMPORARY, true, &store->file);
    /* Ranges are read whole: the part of the last one that is never written is a hole. */
    if (status == PLIM_OK && ftruncate(store->file.fd, bytes) != 0)
        status = plim__fail_errno(errno, "%s: a temporary file of %lld bytes", scratch,
                                  (long long)bytes);
    store->file.size = bytes;
    if (status != PLIM_OK)
        plim__exact_store_destroy(store);
    return status;
}

void plim__exact_store_destroy(plim__exact_store_t *store)
{
    if (store->memory.base != NULL)
        plim__arena_destroy(&store->memory);
    else if (store->ledger != NULL && store->file.fd >= 0)
        plim__file_close(&store->file);
    if (store->charged > 0)
        plim__ledger_release(store->ledger, store->account, store->charged);
    *store = (plim__exact_store_t){.file = {.fd = -1}};
}

void plim__exact_writer_lay_out(plim__arena_t *arena, plim__exact_writer_t *writer,
                                int64_t capacity)
{
    *writer = (plim__exact_writer_t){.turn = 0};
    for (int i = 0; i < 2; i++)
        writer->buffers[i] =
            plim__arena_carve(arena, 1, plim__round_up((size_t)capacity, PLIM__PAGE), PLIM__PAGE);
}

static plim_status_t wait_for(plim__exact_writer_t *writer, int slot)
{
    if (!writer->busy[slot])
        return PLIM_OK;
    writer->busy[slot] = false;
    return plim__engine_wait(writer->engine, &writer->ops[slot]);
}

plim_status_t plim__exact_writer_place(plim__exact_writer_t *writer, plim__exact_store_t *store,
                                       int64_t offset, void **to_out)
{
    if (store->memory.base != NULL) {
        *to_out = store->memory.base + offset;
        return PLIM_OK;
    }
    PLIM_TRY(wait_for(writer, writer->turn));
    *to_out = writer->buffers[writer->turn];
    return PLIM_OK;
}

void plim__exact_writer_put(plim__exact_writer_t *writer, plim__exact_store_t *store,
                            int64_t offset, int64_t size)
{
    const int slot = writer->turn;
    if (store->memory.base != NULL)
        return;
    const size_t whole = plim__round_up((size_t)size, PLIM__PAGE);
    writer->ops[slot] = (plim__op_t){.file = &store->file,
                                     .offset = offset,
                                     .data = writer->buffers[slot],
                                     .size = whole,
                                     .write = true};
    writer->busy[slot] = true;
    plim__engine_submit(writer->engine, &writer->ops[slot]);
    plim__engine_flush(writer->engine);
    writer->turn = 1 - slot;
}

plim_status_t plim__exact_writer_flush(plim__exact_writer_t *writer)
{
    plim_status_t first = wait_for(writer, 0);
    plim__failure_t failure;
    plim__fail_save(&failure);
    plim_status_t second = wait_for(writer, 1);
    return first != PLIM_OK ? plim__fail_restore(first, &failure) : second;
}
