#include "load/links_file.h"

#include "base/check.h"
#include "base/fail.h"
#include "io/npy.h"
#include "io/range_reader.h"
#include "mem/arena.h"

#include <pthread.h>
#include <string.h>

#define CHUNK 1024 /* pairs that are read at once */
#define HEADER_BUFFER 4096

struct plim__links_file {
    plim__arena_t arena;
    const char *path;
    char *path_copy;
    plim__file_t file;
    plim__npy_t npy;
    int64_t num_pairs, num_nodes;
    bool by_rows; /* (num_pairs, 2): both nodes of a pair lie together */
    plim__range_reader_t *reader;
    pthread_mutex_t lock; /* guards the reader and what follows */
    plim__read_t *reads;  /* (2, CHUNK) */
    char *entries;        /* (2, CHUNK) of the file's type */
};

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim__links_file_t *file = draft;
    file->path_copy = plim__arena_carve(arena, strlen(file->path) + 1, 1, 1);
    file->reads = plim__arena_carve(arena, (size_t)2 * CHUNK, sizeof *file->reads, 1);
    file->entries = plim__arena_carve(arena, (size_t)2 * CHUNK, sizeof(int64_t), 1);
}

static const plim__range_reader_params_t reader_params = {
    .depth = 64, .max_read = 2 * sizeof(int64_t), .merge_distance = (size_t)4 << 10};

size_t plim__links_file_estimate(const plim_job_t *job, const char *path)
{
    plim__links_file_t draft = {.path = path};
    return plim__add_saturating_size(plim__object_bytes(lay_out, &draft, sizeof draft),
                                     plim__range_reader_estimate(job->io_engine, &reader_params));
}

static plim_status_t check_shape(plim__links_file_t *file)
{
    const plim__npy_t *npy = &file->npy;
    const bool integers =
        npy->type == PLIM__NPY_I32 || npy->type == PLIM__NPY_U32 || npy->type == PLIM__NPY_I64;
    const bool pairs = npy->num_dims == 2 && (npy->shape[0] == 2 || npy->shape[1] == 2);
    if (!integers || !pairs || npy->count != 2 * file->num_pairs)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: a file of links must be an array of int32, uint32 or int64, of "
                          "shape (2, %lld) or (%lld, 2)",
                          file->path, (long long)file->num_pairs, (long long)file->num_pairs);
    /* In column-major order the axes are exchanged. */
    file->by_rows = (npy->shape[0] != 2) != npy->fortran;
    return PLIM_OK;
}

static plim_status_t open_file(const plim_job_t *job, plim__links_file_t *file)
{
    plim__reader_t *header;
    PLIM_TRY(plim__reader_file(job, file->path, HEADER_BUFFER, &header));
    plim_status_t status = plim__npy_read(header, &file->npy);
    plim__reader_close(header);
    if (status == PLIM_OK)
        status = check_shape(file);
    if (status != PLIM_OK)
        return status;
    PLIM_TRY(plim__file_open(file->path, PLIM__FILE_READ, true, &file->file));
    if ((file->file.size - file->npy.header_size) / (int64_t)plim__dtype_size(file->npy.type) <
        file->npy.count)
        return plim__fail(PLIM_ERR_DATA, "%s: it is shorter than its header says", file->path);
    return plim__range_reader_create(job, &reader_params, &file->reader);
}

plim_status_t plim__links_file_create(const plim_job_t *job, const char *path, int64_t num_pairs,
                                      int64_t num_nodes, plim__links_file_t **file_out)
{
    plim__links_file_t draft = {.path = path,
                                .file = {.fd = -1},
                                .num_pairs = num_pairs,
                                .num_nodes = num_nodes},
                       *file;
    PLIM_TRY(plim__object_create(job->ledger, "seeds and labels", lay_out, &draft, sizeof draft,
                                 &draft.arena, &file));
    file->path = memcpy(file->path_copy, path, strlen(path) + 1);
    pthread_mutex_init(&file->lock, NULL);
    const plim_status_t status = open_file(job, file);
    if (status != PLIM_OK) {
        plim__links_file_destroy(file);
        return status;
    }
    *file_out = file;
    return PLIM_OK;
}

void plim__links_file_destroy(plim__links_file_t *file)
{
    if (file == NULL)
        return;
    plim__range_reader_destroy(file->reader);
    if (file->file.fd >= 0)
        plim__file_close(&file->file);
    pthread_mutex_destroy(&file->lock);
    plim__arena_t arena = file->arena;
    plim__arena_destroy(&arena);
}

const char *plim__links_file_path(const plim__links_file_t *file)
{
    return file->path;
}

static int64_t node_at(const plim__links_file_t *file, int64_t i)
{
    if (file->npy.type == PLIM__NPY_I64)
        return ((const int64_t *)(const void *)file->entries)[i];
    if (file->npy.type == PLIM__NPY_U32)
        return ((const uint32_t *)(const void *)file->entries)[i];
    return ((const int32_t *)(const void *)file->entries)[i];
}

/* Reads a chunk. Sources lie before targets among the entries, or by rows beside them. */
static plim_status_t read_chunk(plim__links_file_t *file, const int64_t *positions, int64_t count,
                                int64_t *sources_out, int64_t *targets_out)
{
    const size_t width = plim__dtype_size(file->npy.type);
    const int64_t nodes = file->by_rows ? 2 : 1; /* of a read */
    const size_t size = (size_t)nodes * width;
    const int64_t reads = 2 / nodes * count;
    for (int64_t i = 0; i < reads; i++) {
        const int64_t entry = file->by_rows
                                  ? 2 * positions[i]
                                  : positions[i % count] + (i < count ? 0 : file->num_pairs);
        file->reads[i] = (plim__read_t){.offset = file->npy.header_size + entry * (int64_t)width,
                                        .size = size,
                                        .to = file->entries + (size_t)i * size};
    }
    PLIM_TRY(plim__range_reader_read(file->reader, &file->file, file->reads, reads));
    for (int64_t i = 0; i < count; i++) {
        const int64_t position = positions[i];
        const int64_t source = node_at(file, i * nodes);
        const int64_t target = node_at(file, file->by_rows ? 2 * i + 1 : count + i);
        if (source < 0 || source >= file->num_nodes || target < 0 || target >= file->num_nodes)
            return plim__fail(PLIM_ERR_DATA,
                              "%s: pair %lld is (%lld, %lld), but there are %lld nodes", file->path,
                              (long long)position, (long long)source, (long long)target,
                              (long long)file->num_nodes);
        sources_out[i] = source;
        targets_out[i] = target;
    }
    return PLIM_OK;
}

plim_status_t plim__links_file_read(plim__links_file_t *file, const int64_t *positions,
                                    int64_t count, int64_t *sources_out, int64_t *targets_out)
{
    plim_status_t status = PLIM_OK;
    pthread_mutex_lock(&file->lock);
    for (int64_t i = 0; i < count && status == PLIM_OK; i += CHUNK)
        status = read_chunk(file, positions + i, plim__min_i64(CHUNK, count - i), sources_out + i,
                            targets_out + i);
    pthread_mutex_unlock(&file->lock);
    return status;
}
