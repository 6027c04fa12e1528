#include "load/links_file.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/radix.h"
#include "io/inflate.h"
#include "io/npy.h"
#include "io/range_reader.h"
#include "mem/arena.h"
#include "store/dataset.h"

#include <pthread.h>
#include <string.h>

#define CHUNK 4096 /* pairs that are read at once */
#define STRETCHES 3
#define PLACE_BITS 18 /* of a place in a stretch */
#define HEADER_BUFFER 4096
#define CHECKED ((int64_t)1 << 20) /* bytes at either end that a checksum covers */

/* The pairs of some places of an epoch. */
typedef struct stretch {
    int64_t epoch, first; /* its first place */
    int64_t count;        /* 0: none */
    int64_t used;         /* when it was used last */
    int64_t *sources;     /* (capacity) */
    int64_t *targets;     /* (capacity) */
} stretch_t;

struct plim__links_file {
    plim__arena_t arena;
    const char *path; /* NULL: the edges of a dataset */
    char *path_copy;
    plim__file_t file;
    plim__npy_t npy;
    int64_t num_pairs, num_nodes;
    int64_t num_edges, rank, num_ranks; /* of edges: pair i is edge i * num_ranks + rank */
    bool by_rows;                       /* (num_pairs, 2): both nodes of a pair lie together */
    plim__range_reader_t *reader;
    pthread_mutex_t lock; /* guards the reader and what follows */
    plim__read_t *reads;  /* (2, CHUNK) */
    char *entries;        /* (2, CHUNK) of the file's type */
    int64_t *positions;   /* (CHUNK) */
    int64_t capacity;     /* places of a stretch; 0: not shuffled */
    uint64_t *keys;       /* (capacity) position << PLACE_BITS | place */
    uint64_t *scratch;    /* (capacity) */
    stretch_t stretches[STRETCHES];
    int64_t uses;
};

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim__links_file_t *file = draft;
    if (file->path != NULL)
        file->path_copy = plim__arena_carve(arena, strlen(file->path) + 1, 1, 1);
    file->reads = plim__arena_carve(arena, (size_t)2 * CHUNK, sizeof *file->reads, 1);
    file->entries = plim__arena_carve(arena, (size_t)2 * CHUNK, sizeof(int64_t), 1);
    file->positions = plim__arena_carve(arena, CHUNK, sizeof *file->positions, 1);
    const size_t capacity = (size_t)file->capacity;
    file->keys = plim__arena_carve(arena, capacity, sizeof *file->keys, 1);
    file->scratch = plim__arena_carve(arena, capacity, sizeof *file->scratch, 1);
    for (int i = 0; i < STRETCHES; i++) {
        stretch_t *stretch = &file->stretches[i];
        stretch->sources = plim__arena_carve(arena, capacity, sizeof *stretch->sources, 1);
        stretch->targets = plim__arena_carve(arena, capacity, sizeof *stretch->targets, 1);
    }
}

static const plim__range_reader_params_t reader_params = {
    .depth = 64, .max_read = 2 * sizeof(int64_t), .merge_distance = (size_t)32 << 10};

static plim__links_file_t draft_of(const plim_links_t *links, bool shuffled)
{
    const int64_t pairs = links->num_pairs;
    return (plim__links_file_t){.path = links->path,
                                .file = {.fd = -1},
                                .num_pairs = pairs,
                                .rank = links->rank,
                                .num_ranks = links->num_ranks,
                                .capacity = shuffled ? plim__min_i64(pairs, PLIM__LINKS_AHEAD) : 0};
}

size_t plim__links_file_estimate(const plim_job_t *job, const plim_links_t *links, bool shuffled)
{
    plim__links_file_t draft = draft_of(links, shuffled);
    return plim__add_saturating_size(plim__object_bytes(lay_out, &draft, sizeof draft),
                                     plim__range_reader_estimate(job->io_engine, &reader_params));
}

static plim_status_t read_header(const plim_job_t *job, const char *path, plim__npy_t *npy_out)
{
    plim__reader_t *header;
    PLIM_TRY(plim__reader_file(job, path, HEADER_BUFFER, &header));
    const plim_status_t status = plim__npy_read(header, npy_out);
    plim__reader_close(header);
    return status;
}

/* Continues a checksum with the bytes from `first` to `end`. */
static plim_status_t check_bytes(const plim__file_t *file, int64_t first, int64_t end,
                                 uint32_t *crc)
{
    char bytes[HEADER_BUFFER];
    for (int64_t size; first < end; first += size) {
        size = plim__min_i64(end - first, (int64_t)sizeof bytes);
        PLIM_TRY(plim__file_read_at(file, first, bytes, (size_t)size));
        *crc = plim__inflate_crc(*crc, bytes, (size_t)size);
    }
    return PLIM_OK;
}

plim_status_t plim__links_file_describe(const plim_job_t *job, const char *path,
                                        int64_t *num_pairs_out, int64_t *checksum_out)
{
    plim__npy_t npy;
    plim__file_t file;
    PLIM_TRY(read_header(job, path, &npy));
    PLIM_TRY(plim__file_open(path, PLIM__FILE_READ, false, &file));
    uint32_t crc = plim__inflate_crc(0, &file.size, sizeof file.size);
    plim_status_t status = check_bytes(&file, 0, plim__min_i64(file.size, CHECKED), &crc);
    if (status == PLIM_OK)
        status = check_bytes(&file, plim__max_i64(0, file.size - CHECKED), file.size, &crc);
    plim__file_close(&file);
    PLIM_TRY(status);
    *num_pairs_out = npy.count / 2;
    *checksum_out = crc;
    return PLIM_OK;
}

static plim_status_t check_shape(plim__links_file_t *file)
{
    const plim__npy_t *npy = &file->npy;
    const bool pairs = npy->num_dims == 2 && (npy->shape[0] == 2 || npy->shape[1] == 2);
    if (file->num_pairs > INT64_MAX >> PLACE_BITS)
        return plim__fail(PLIM_ERR_UNSUPPORTED, "%s: %lld pairs are too many for this version",
                          file->path, (long long)file->num_pairs);
    if (!plim__dtype_is_id(npy->type) || !pairs || npy->count != 2 * file->num_pairs)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: a file of links must be an array of int32, uint32 or int64, of "
                          "shape (2, %lld) or (%lld, 2)",
                          file->path, (long long)file->num_pairs, (long long)file->num_pairs);
    /* In column-major order the axes are exchanged. */
    file->by_rows = (npy->shape[0] != 2) != npy->fortran;
    return PLIM_OK;
}

static plim_status_t open_edges(const plim_dataset_t *dataset, plim__links_file_t *file)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(dataset);
    const plim__manifest_file_t *entry = &manifest->files[manifest->topologies[0].indices];
    file->npy = (plim__npy_t){.type = entry->type, .header_size = PLIM__NPY_HEADER};
    return plim__dataset_file_open(dataset, entry, true, &file->file);
}

static plim_status_t open_file(const plim_job_t *job, plim__links_file_t *file)
{
    PLIM_TRY(read_header(job, file->path, &file->npy));
    PLIM_TRY(check_shape(file));
    PLIM_TRY(plim__file_open(file->path, PLIM__FILE_READ, true, &file->file));
    if ((file->file.size - file->npy.header_size) / (int64_t)plim__dtype_size(file->npy.type) <
        file->npy.count)
        return plim__fail(PLIM_ERR_DATA, "%s: it is shorter than its header says", file->path);
    return PLIM_OK;
}

plim_status_t plim__links_file_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                      const plim_links_t *links, bool shuffled,
                                      plim__links_file_t **file_out)
{
    plim__links_file_t draft = draft_of(links, shuffled), *file;
    draft.num_nodes = plim_dataset_info(dataset)->num_nodes;
    draft.num_edges = plim_dataset_info(dataset)->num_edges;
    PLIM_TRY(plim__object_create(job->ledger, "seeds and labels", lay_out, &draft, sizeof draft,
                                 &draft.arena, &file));
    if (links->path != NULL)
        file->path = memcpy(file->path_copy, links->path, strlen(links->path) + 1);
    pthread_mutex_init(&file->lock, NULL);
    plim_status_t status = file->path != NULL ? open_file(job, file) : open_edges(dataset, file);
    if (status == PLIM_OK)
        status = plim__range_reader_create(job, &reader_params, &file->reader);
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
    return plim__id_at(file->npy.type, file->entries, i);
}

/* The place of a pair in the file; of edges that of its edge. */
static int64_t place_of(const plim__links_file_t *file, int64_t position)
{
    return file->path != NULL ? position
                              : (position * file->num_ranks + file->rank) % file->num_edges;
}

/* Reads a chunk. Sources lie before targets among the entries, or by rows beside them; of edges
 * alone. Pair i goes to place i, or to that of keys[i]. */
static plim_status_t read_chunk(plim__links_file_t *file, const plim__offsets_t *offsets,
                                const int64_t *positions, int64_t count, const uint64_t *keys,
                                int64_t *sources_out, int64_t *targets_out)
{
    const size_t width = plim__dtype_size(file->npy.type);
    const int64_t nodes = file->by_rows ? 2 : 1; /* of a read */
    const size_t size = (size_t)nodes * width;
    const int64_t reads = file->path == NULL ? count : 2 / nodes * count;
    for (int64_t i = 0; i < reads; i++) {
        const int64_t entry = file->by_rows ? 2 * positions[i]
                                            : place_of(file, positions[i % count]) +
                                                  (i < count ? 0 : file->num_pairs);
        file->reads[i] = (plim__read_t){.offset = file->npy.header_size + entry * (int64_t)width,
                                        .size = size,
                                        .to = file->entries + (size_t)i * size};
    }
    PLIM_TRY(plim__range_reader_read(file->reader, &file->file, file->reads, reads));
    for (int64_t i = 0; i < count; i++) {
        const int64_t position = positions[i];
        const int64_t source = node_at(file, i * nodes);
        const int64_t target = file->path == NULL
                                   ? plim__offsets_node_of(offsets, place_of(file, position))
                                   : node_at(file, file->by_rows ? 2 * i + 1 : count + i);
        if (source < 0 || source >= file->num_nodes || target < 0 || target >= file->num_nodes)
            return plim__fail(PLIM_ERR_DATA,
                              "%s: pair %lld is (%lld, %lld), but there are %lld nodes",
                              file->file.path, (long long)position, (long long)source,
                              (long long)target, (long long)file->num_nodes);
        const int64_t place =
            keys != NULL ? (int64_t)(keys[i] & (((uint64_t)1 << PLACE_BITS) - 1)) : i;
        sources_out[place] = source;
        targets_out[place] = target;
    }
    return PLIM_OK;
}

plim_status_t plim__links_file_read(plim__links_file_t *file, const plim__offsets_t *offsets,
                                    const int64_t *positions, int64_t count, int64_t *sources_out,
                                    int64_t *targets_out)
{
    plim_status_t status = PLIM_OK;
    pthread_mutex_lock(&file->lock);
    for (int64_t i = 0; i < count && status == PLIM_OK; i += CHUNK)
        status = read_chunk(file, offsets, positions + i, plim__min_i64(CHUNK, count - i), NULL,
                            sources_out + i, targets_out + i);
    pthread_mutex_unlock(&file->lock);
    return status;
}

/* Reads the pairs of a stretch, by ascending position. */
static plim_status_t fill(plim__links_file_t *file, const plim__offsets_t *offsets,
                          plim__links_order_t order, const void *context, int64_t count,
                          stretch_t *stretch)
{
    const int bits = 64 - __builtin_clzll((unsigned long long)file->num_pairs);
    order(context, stretch->epoch, stretch->first, count, stretch->sources);
    for (int64_t i = 0; i < count; i++)
        file->keys[i] = (uint64_t)stretch->sources[i] << PLACE_BITS | (uint64_t)i;
    const uint64_t *sorted = plim__radix_sort(file->keys, file->scratch, count, bits + PLACE_BITS);
    for (int64_t done = 0; done < count; done += CHUNK) {
        const int64_t chunk = plim__min_i64(CHUNK, count - done);
        for (int64_t i = 0; i < chunk; i++)
            file->positions[i] = (int64_t)(sorted[done + i] >> PLACE_BITS);
        PLIM_TRY(read_chunk(file, offsets, file->positions, chunk, sorted + done, stretch->sources,
                            stretch->targets));
    }
    stretch->count = count;
    return PLIM_OK;
}

/* The stretch with that place of an epoch, read if it is not there. */
static plim_status_t find(plim__links_file_t *file, const plim__offsets_t *offsets,
                          plim__links_order_t order, const void *context, int64_t epoch,
                          int64_t place, stretch_t **stretch_out)
{
    const int64_t first = place / file->capacity * file->capacity;
    stretch_t *stretch = &file->stretches[0];
    for (int i = 0; i < STRETCHES; i++) {
        stretch_t *one = &file->stretches[i];
        const bool has = one->count > 0 && one->epoch == epoch && one->first == first;
        if (has || one->used < stretch->used)
            stretch = one;
        if (has)
            break;
    }
    stretch->used = ++file->uses;
    *stretch_out = stretch;
    if (stretch->count > 0 && stretch->epoch == epoch && stretch->first == first)
        return PLIM_OK;
    stretch->count = 0;
    stretch->epoch = epoch;
    stretch->first = first;
    return fill(file, offsets, order, context,
                plim__min_i64(file->capacity, file->num_pairs - first), stretch);
}

plim_status_t plim__links_file_take(plim__links_file_t *file, const plim__offsets_t *offsets,
                                    plim__links_order_t order, const void *context, int64_t epoch,
                                    int64_t first, int64_t count, int64_t *sources_out,
                                    int64_t *targets_out)
{
    plim_status_t status = PLIM_OK;
    pthread_mutex_lock(&file->lock);
    while (count > 0) {
        stretch_t *stretch;
        status = find(file, offsets, order, context, epoch, first, &stretch);
        if (status != PLIM_OK)
            break;
        const int64_t from = first - stretch->first;
        const int64_t taken = plim__min_i64(count, stretch->count - from);
        memcpy(sources_out, stretch->sources + from, (size_t)taken * sizeof *sources_out);
        memcpy(targets_out, stretch->targets + from, (size_t)taken * sizeof *targets_out);
        sources_out += taken;
        targets_out += taken;
        first += taken;
        count -= taken;
    }
    pthread_mutex_unlock(&file->lock);
    return status;
}
