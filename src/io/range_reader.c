/*
 * A batch becomes transfers, `depth` of them in flight, each in a slot with a bounce buffer:
 *
 *     reads        [a]  [b][c]     [d]              [e]
 *     transfers  ├ a … b c … d ─┤                 ├ e ─┤    on multiples of the alignment
 *
 * An aligned read that is alone in its transfer goes straight to its destination. Slots are
 * refilled in the order in which they end, so the queue stays full.
 */
#include "io/range_reader.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "mem/arena.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define READ_MAX ((size_t)1 << 29)

typedef struct read_slot {
    plim__op_t op; /* first member: the engine returns it, and it is cast to the slot */
    char *bounce;
    int64_t first; /* reads [first, first + count) of the batch */
    int64_t count;
} read_slot_t;

struct plim__range_reader {
    plim__arena_t arena;
    plim__engine_t *engine;
    plim_job_t job;
    plim__range_reader_params_t params;
    size_t capacity; /* bytes of a bounce buffer */
    int busy;
    int64_t failed; /* the first read of the batch whose transfer failed, or -1 */
    plim__op_t failed_op;
    int64_t damaged;    /* its first page with another checksum, or -1 */
    read_slot_t *slots; /* (depth) */
    char *bounce;       /* (depth, capacity) */
    int *free;          /* (depth - busy) numbers of free slots */
    int64_t transfers;
    int64_t bytes;
};

/* Alignment may add less than a page at either end. */
static size_t bounce_bytes(const plim__range_reader_params_t *params)
{
    size_t most = params->max_read > PLIM__READ_MERGED ? params->max_read : PLIM__READ_MERGED;
    return plim__round_up(most, PLIM__PAGE) + 2 * PLIM__PAGE;
}

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim__range_reader_t *reader = draft;
    const size_t depth = (size_t)reader->params.depth;
    reader->slots = plim__arena_carve(arena, depth, sizeof(read_slot_t), 1);
    reader->free = plim__arena_carve(arena, depth, sizeof(int), 1);
    reader->bounce = plim__arena_carve(arena, depth, reader->capacity, PLIM__PAGE);
}

size_t plim__range_reader_estimate(plim_io_engine_t kind, const plim__range_reader_params_t *params)
{
    plim__range_reader_t reader = {.params = *params, .capacity = bounce_bytes(params)};
    return plim__object_bytes(lay_out, &reader, sizeof reader) +
           plim__engine_estimate(kind, params->depth);
}

plim_status_t plim__range_reader_create(const plim_job_t *job,
                                        const plim__range_reader_params_t *params,
                                        plim__range_reader_t **reader_out)
{
    plim__range_reader_t draft = {.job = *job, .params = *params, .capacity = bounce_bytes(params)};
    plim__range_reader_t *reader;
    if (params->max_read > READ_MAX)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "a row or list of %zu bytes is longer than the %zu of one read",
                          params->max_read, READ_MAX);
    if (params->merge_distance > READ_MAX)
        draft.params.merge_distance = READ_MAX;
    PLIM_TRY(plim__object_create(job->ledger, "I/O", lay_out, &draft, sizeof draft, &draft.arena,
                                 &reader));
    for (int i = 0; i < params->depth; i++) {
        reader->slots[i].bounce = reader->bounce + (size_t)i * reader->capacity;
        reader->free[i] = i;
    }
    plim_status_t status = plim__engine_create(job, params->depth, &reader->engine);
    if (status != PLIM_OK) {
        plim__arena_destroy(&reader->arena);
        return status;
    }
    plim__arena_touch(&reader->arena);
    *reader_out = reader;
    return PLIM_OK;
}

void plim__range_reader_destroy(plim__range_reader_t *reader)
{
    if (reader == NULL)
        return;
    plim__engine_destroy(reader->engine);
    plim__arena_destroy(&reader->arena);
}

void plim__range_reader_totals(const plim__range_reader_t *reader, int64_t *transfers_out,
                               int64_t *bytes_out)
{
    *transfers_out = reader->transfers;
    *bytes_out = reader->bytes;
}

static plim_status_t check_read(const plim__range_reader_t *reader, const plim__file_t *file,
                                const plim__read_t *read)
{
    if (read->size > reader->params.max_read)
        return plim__fail(PLIM_ERR_USAGE, "%s: a read of %zu bytes is larger than the reader's %zu",
                          file->path, read->size, reader->params.max_read);
    if (read->offset < 0 || read->offset > INT64_MAX - (int64_t)READ_MAX)
        return plim__fail(PLIM_ERR_USAGE, "%s: a read at the impossible offset %lld", file->path,
                          (long long)read->offset);
    return PLIM_OK;
}

/* Merges reads from `first` on into one aligned transfer. */
static plim_status_t gather(const plim__range_reader_t *reader, const plim__file_t *file,
                            const plim__read_t *reads, int64_t first, int64_t count,
                            plim__op_t *op_out, int64_t *taken_out)
{
    int64_t unit = (int64_t)file->align;
    const plim__read_t *read = &reads[first];
    PLIM_TRY(check_read(reader, file, read));
    int64_t start = read->offset & ~(unit - 1);
    int64_t exact = read->offset + (int64_t)read->size; /* the end of the furthest read */
    int64_t next = first + 1;
    for (; next < count; next++) {
        read = &reads[next];
        int64_t end;
        if (read->offset < reads[next - 1].offset ||
            !plim__add_i64(read->offset, (int64_t)read->size, &end) ||
            (read->offset & ~(unit - 1)) - exact >
                (int64_t)reader->params.merge_distance + unit - 1 ||
            end - start > (int64_t)(reader->capacity - PLIM__PAGE))
            break;
        PLIM_TRY(check_read(reader, file, read));
        exact = plim__max_i64(exact, end);
    }
    *op_out = (plim__op_t){.file = file,
                           .offset = start,
                           .size = plim__round_up((size_t)(exact - start), (size_t)unit)};
    *taken_out = next - first;
    return PLIM_OK;
}

static bool goes_straight(const plim__read_t *read, const plim__op_t *op)
{
    return read->offset == op->offset && read->size == op->size &&
           (uintptr_t)read->to % op->file->align == 0;
}

static void start(plim__range_reader_t *reader, const plim__read_t *reads, int64_t first,
                  int64_t taken, const plim__op_t *op)
{
    read_slot_t *slot = &reader->slots[reader->free[reader->params.depth - 1 - reader->busy]];
    slot->op = *op;
    slot->op.data = taken == 1 && goes_straight(&reads[first], op) ? reads[first].to : slot->bounce;
    slot->first = first;
    slot->count = taken;
    reader->busy++;
    reader->transfers++;
    reader->bytes += (int64_t)op->size;
    plim__engine_submit(reader->engine, &slot->op);
}

uint32_t plim__page_check(const void *page, int64_t number)
{
    return (uint32_t)XXH3_64bits_withSeed(page, PLIM__PAGE, (uint64_t)number);
}

/* Compares the checksums of a read's pages from *next_page on, and sets that to the one after them;
 * the first page that is damaged, or -1. */
static int64_t check_pages(const plim__op_t *op, const plim__read_t *read, int64_t *next_page)
{
    const int64_t page = (int64_t)PLIM__PAGE, end = read->offset + (int64_t)read->size;
    int64_t number = plim__max_i64(read->offset / page, *next_page);
    for (; number * page < end; number++)
        if (plim__page_check((const char *)op->data + (number * page - op->offset), number) !=
            op->file->page_checks[number])
            return number;
    *next_page = number;
    return -1;
}

/* Copies an ended transfer to its destinations. False when it failed, is too short, or damaged. */
static bool deliver(plim__range_reader_t *reader, const read_slot_t *slot,
                    const plim__read_t *reads)
{
    const plim__op_t *op = &slot->op;
    int64_t next_page = 0;
    if (op->error != 0)
        return false;
    for (int64_t i = slot->first; i < slot->first + slot->count; i++) {
        const plim__read_t *read = &reads[i];
        size_t at = (size_t)(read->offset - op->offset);
        if (at + read->size > op->moved)
            return false;
        if (op->file->page_checks != NULL) {
            const int64_t damaged = check_pages(op, read, &next_page);
            reader->damaged = damaged >= 0 ? damaged : reader->damaged;
            if (damaged >= 0)
                return false;
        }
        if (op->data == slot->bounce)
            memcpy(read->to, slot->bounce + at, read->size);
    }
    return true;
}

/* Waits for at least one transfer and frees the slots of those that ended. */
static void retire(plim__range_reader_t *reader, const plim__read_t *reads)
{
    for (plim__op_t *op = plim__engine_progress(reader->engine); op != NULL; op = op->next) {
        read_slot_t *slot = (read_slot_t *)op;
        if (!deliver(reader, slot, reads) && (reader->failed < 0 || slot->first < reader->failed)) {
            reader->failed = slot->first;
            reader->failed_op = *op;
        }
        reader->busy--;
        reader->free[reader->params.depth - 1 - reader->busy] = (int)(slot - reader->slots);
    }
}

plim_status_t plim__range_reader_read(plim__range_reader_t *reader, const plim__file_t *file,
                                      const plim__read_t *reads, int64_t count)
{
    plim_status_t status = PLIM_OK;
    plim__op_t op;
    reader->failed = reader->damaged = -1;
    for (int64_t first = 0, taken; first < count && reader->failed < 0; first += taken) {
        /* A batch may be thousands of reads on a slow disk: check for a stop before each. */
        status = plim__job_stopped(&reader->job);
        if (status == PLIM_OK)
            status = gather(reader, file, reads, first, count, &op, &taken);
        if (status != PLIM_OK)
            break;
        while (reader->busy == reader->params.depth)
            retire(reader, reads);
        start(reader, reads, first, taken, &op);
    }
    while (reader->busy > 0)
        retire(reader, reads);
    if (reader->failed < 0)
        return status;
    const plim__op_t *failed = &reader->failed_op;
    if (reader->damaged >= 0)
        return plim__fail(PLIM_ERR_DATA, "%s is damaged between %lld and %lld", file->path,
                          (long long)(reader->damaged * (int64_t)PLIM__PAGE),
                          (long long)((reader->damaged + 1) * (int64_t)PLIM__PAGE));
    PLIM_TRY(plim__engine_wait(reader->engine, &reader->failed_op));
    long long end = failed->offset + (int64_t)failed->moved;
    return plim__fail(
        PLIM_ERR_DATA,
        "%s is truncated: it ends at byte %lld, inside the read at byte %lld; download or make "
        "it again",
        file->path, end, (long long)reads[reader->failed].offset);
}
