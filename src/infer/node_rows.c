#include "infer/node_rows.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/radix.h"
#include "io/file.h"
#include "io/range_reader.h"
#include "mem/arena.h"

#define BUFFER_BYTES ((size_t)1 << 20) /* of a write */
#define PLACE_BITS 16

struct plim__node_rows {
    plim__arena_t arena;
    int64_t num_nodes, width, most;
    bool on_disk;
    float *table; /* (num_nodes, width); NULL: on disk */
    /* On disk: */
    plim__file_t file;
    plim__range_reader_t *reader;
    char *buffer; /* what follows `written` in the file */
    size_t used;  /* of it */
    int64_t written;
    uint64_t *keys, *scratch; /* (most) node << PLACE_BITS | place */
    plim__read_t *reads;      /* (most) */
    int64_t *places;          /* (most) */
    float *found;             /* (most, width) */
};

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim__node_rows_t *rows = draft;
    const size_t row = plim__mul_saturating_size((size_t)rows->width, sizeof(float));
    const size_t most = (size_t)rows->most;
    if (!rows->on_disk) {
        rows->table = plim__arena_carve(arena, (size_t)rows->num_nodes, row, 1);
        return;
    }
    rows->buffer = plim__arena_carve(arena, 1, BUFFER_BYTES, PLIM__PAGE);
    rows->keys = plim__arena_carve(arena, most, sizeof *rows->keys, 1);
    rows->scratch = plim__arena_carve(arena, most, sizeof *rows->scratch, 1);
    rows->reads = plim__arena_carve(arena, most, sizeof *rows->reads, 1);
    rows->places = plim__arena_carve(arena, most, sizeof *rows->places, 1);
    rows->found = plim__arena_carve(arena, most, row, 1);
}

/* Opens the file and takes its space on the disk, where the file system can do that. */
static plim_status_t open_file(plim__file_t *file, const char *scratch, int64_t bytes)
{
    static const char need[] = "the rows of all nodes need";
    PLIM_TRY(plim__file_size_allowed(scratch, bytes));
    PLIM_TRY(plim__file_check_space(scratch, bytes, scratch, need,
                                    "free some, or choose another `scratch` directory"));
    PLIM_TRY(plim__file_open(scratch, PLIM__FILE_TEMPORARY, true, file));
    return plim__file_reserve(file, bytes, need);
}

static plim__range_reader_params_t reader_params(int64_t width)
{
    return (plim__range_reader_params_t){
        .depth = 64, .max_read = (size_t)width * sizeof(float), .merge_distance = (size_t)4 << 10};
}

size_t plim__node_rows_estimate(const plim_job_t *job, int64_t width, int64_t most)
{
    const plim__range_reader_params_t params = reader_params(width);
    plim__node_rows_t draft = {.on_disk = true, .width = width, .most = most};
    return plim__add_saturating_size(plim__object_bytes(lay_out, &draft, sizeof draft),
                                     plim__range_reader_estimate(job->io_engine, &params));
}

plim_status_t plim__node_rows_create(const plim_job_t *job, const char *scratch, int64_t num_nodes,
                                     int64_t width, int64_t most, int64_t memory,
                                     plim__node_rows_t **rows_out)
{
    const int64_t row = width * (int64_t)sizeof(float);
    const int64_t bytes = plim__mul_saturating_i64(num_nodes, row);
    const plim__range_reader_params_t params = reader_params(width);
    plim__node_rows_t draft = {
        .num_nodes = num_nodes, .width = width, .most = most, .file = {.fd = -1}};
    plim__node_rows_t *rows;
    plim__file_system_t system;
    if (bytes > memory)
        PLIM_TRY(plim__file_system(scratch, &system));
    draft.on_disk = bytes > memory && !system.memory;
    if (most > (int64_t)1 << PLACE_BITS || num_nodes > INT64_MAX >> PLACE_BITS)
        return plim__fail(PLIM_ERR_UNSUPPORTED, "rows of %lld nodes, %lld at once, are too many",
                          (long long)num_nodes, (long long)most);
    PLIM_TRY(plim__object_create(job->ledger, "node rows", lay_out, &draft, sizeof draft,
                                 &draft.arena, &rows));
    plim_status_t status = PLIM_OK;
    if (rows->on_disk)
        status = open_file(&rows->file, scratch, plim__add_saturating_i64(bytes, PLIM__PAGE));
    if (status == PLIM_OK && rows->on_disk)
        status = plim__range_reader_create(job, &params, &rows->reader);
    if (status != PLIM_OK) {
        plim__node_rows_destroy(rows);
        return status;
    }
    *rows_out = rows;
    return PLIM_OK;
}

void plim__node_rows_destroy(plim__node_rows_t *rows)
{
    if (rows == NULL)
        return;
    plim__range_reader_destroy(rows->reader);
    if (rows->file.fd >= 0)
        plim__file_close(&rows->file);
    plim__arena_t arena = rows->arena;
    plim__arena_destroy(&arena);
}

static plim_status_t append(plim__node_rows_t *rows, const char *from, size_t size)
{
    while (size > 0) {
        const size_t part = size < BUFFER_BYTES - rows->used ? size : BUFFER_BYTES - rows->used;
        memcpy(rows->buffer + rows->used, from, part);
        rows->used += part;
        from += part;
        size -= part;
        if (rows->used == BUFFER_BYTES) {
            PLIM_TRY(plim__file_write_at(&rows->file, rows->written, rows->buffer, BUFFER_BYTES));
            rows->written += (int64_t)BUFFER_BYTES;
            rows->used = 0;
        }
    }
    return PLIM_OK;
}

plim_status_t plim__node_rows_take(void *context, int64_t first, int64_t count, int64_t width,
                                   const float *values)
{
    plim__node_rows_t *rows = context;
    const size_t size = (size_t)(count * width) * sizeof *values;
    if (width != rows->width || count > rows->num_nodes - first)
        return plim__fail(PLIM_ERR_DATA, "rows of %lld values do not fit those of %lld",
                          (long long)width, (long long)rows->width);
    if (!rows->on_disk) {
        memcpy(rows->table + first * width, values, size);
        return PLIM_OK;
    }
    PLIM_TRY(append(rows, (const char *)values, size));
    if (first + count < rows->num_nodes)
        return PLIM_OK;
    /* Direct writes are of whole pages. */
    rows->file.size = rows->written + (int64_t)rows->used;
    return plim__file_write_at(&rows->file, rows->written, rows->buffer,
                               plim__round_up(rows->used, PLIM__PAGE));
}

plim_status_t plim__node_rows_find(plim__node_rows_t *rows, const int64_t *nodes, int64_t count,
                                   const float **rows_out, const int64_t **places_out)
{
    const int64_t row = rows->width * (int64_t)sizeof(float);
    const int bits = 64 - __builtin_clzll((unsigned long long)rows->num_nodes);
    int64_t num_reads = 0, last = -1;
    *rows_out = rows->on_disk ? rows->found : rows->table;
    *places_out = rows->on_disk ? rows->places : nodes;
    if (!rows->on_disk)
        return PLIM_OK;
    for (int64_t i = 0; i < count; i++)
        rows->keys[i] = (uint64_t)nodes[i] << PLACE_BITS | (uint64_t)i;
    const uint64_t *sorted = plim__radix_sort(rows->keys, rows->scratch, count, bits + PLACE_BITS);
    for (int64_t i = 0; i < count; i++) {
        const int64_t node = (int64_t)(sorted[i] >> PLACE_BITS);
        if (node != last) {
            rows->reads[num_reads] = (plim__read_t){.offset = node * row,
                                                    .size = (size_t)row,
                                                    .to = rows->found + num_reads * rows->width};
            num_reads++;
        }
        rows->places[sorted[i] & (((uint64_t)1 << PLACE_BITS) - 1)] = num_reads - 1;
        last = node;
    }
    return plim__range_reader_read(rows->reader, &rows->file, rows->reads, num_reads);
}
