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
#define WINDOWS 3
#define PLACE_BITS 18 /* of a place in a window */
#define HEADER_BUFFER 4096
#define CHECKED ((int64_t)1 << 20) /* bytes at either end that a checksum covers */

/* The pairs of PLIM__LINKS_AHEAD places of an epoch, or of its last places. */
typedef struct pair_window {
    int64_t epoch, first; /* its first place */
    int64_t count;        /* 0: none */
    int64_t used;         /* when it was used last */
    int64_t *sources;     /* (capacity) */
    int64_t *targets;     /* (capacity) */
    int64_t *types;       /* (capacity); NULL without */
} pair_window_t;

struct plim__links_file {
    plim__arena_t arena;
    const char *path; /* NULL: the edges of a dataset */
    char *path_copy;
    plim__file_t file;
    plim__npy_t npy;
    int64_t num_pairs, num_nodes, num_types;
    plim__file_t types;                 /* edge_type.npy, of edges with types */
    int64_t num_edges, rank, num_ranks; /* of edges: pair i is edge i * num_ranks + rank */
    bool by_rows;                       /* (num_pairs, 2): the numbers of a pair lie together */
    plim__range_reader_t *reader;
    pthread_mutex_t lock; /* guards the reader and what follows */
    plim__read_t *reads;  /* (columns, CHUNK) */
    char *entries;        /* (columns, CHUNK) of the file's type */
    int64_t *positions;   /* (CHUNK) */
    int64_t capacity;     /* places of a window; 0: not shuffled */
    uint64_t *keys;       /* (capacity) position << PLACE_BITS | place */
    uint64_t *scratch;    /* (capacity) */
    pair_window_t windows[WINDOWS];
    int64_t uses;
};

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim__links_file_t *file = draft;
    if (file->path != NULL)
        file->path_copy = plim__arena_carve(arena, strlen(file->path) + 1, 1, 1);
    const size_t columns = (size_t)plim__links_columns(file->num_types);
    file->reads = plim__arena_carve(arena, columns * CHUNK, sizeof *file->reads, 1);
    file->entries = plim__arena_carve(arena, columns * CHUNK, sizeof(int64_t), 1);
    file->positions = plim__arena_carve(arena, CHUNK, sizeof *file->positions, 1);
    const size_t capacity = (size_t)file->capacity;
    file->keys = plim__arena_carve(arena, capacity, sizeof *file->keys, 1);
    file->scratch = plim__arena_carve(arena, capacity, sizeof *file->scratch, 1);
    for (int i = 0; i < WINDOWS; i++) {
        pair_window_t *window = &file->windows[i];
        window->sources = plim__arena_carve(arena, capacity, sizeof *window->sources, 1);
        window->targets = plim__arena_carve(arena, capacity, sizeof *window->targets, 1);
        if (file->num_types > 0)
            window->types = plim__arena_carve(arena, capacity, sizeof *window->types, 1);
    }
}

static const plim__range_reader_params_t reader_params = {
    .depth = 64, .max_read = 3 * sizeof(int64_t), .merge_distance = (size_t)32 << 10};

static plim__links_file_t draft_of(const plim_links_t *links, bool shuffled)
{
    const int64_t pairs = links->num_pairs;
    return (plim__links_file_t){.path = links->path,
                                .file = {.fd = -1},
                                .types = {.fd = -1},
                                .num_pairs = pairs,
                                .num_types = links->num_types,
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

static plim_status_t check_shape(plim__links_file_t *file)
{
    const plim__npy_t *npy = &file->npy;
    const int64_t columns = plim__links_columns(file->num_types);
    const bool pairs = npy->num_dims == 2 && (npy->shape[0] == columns || npy->shape[1] == columns);
    if (file->num_pairs > INT64_MAX >> PLACE_BITS)
        return plim__fail(PLIM_ERR_UNSUPPORTED, "%s: %lld pairs are too many for this version",
                          file->path, (long long)file->num_pairs);
    if (!plim__dtype_is_id(npy->type) || !pairs || npy->count != columns * file->num_pairs)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: a file of links must be an array of int32, uint32 or int64, of "
                          "shape (%lld, pairs) or (pairs, %lld)%s",
                          file->path, (long long)columns, (long long)columns,
                          columns == 3 ? ": sources, targets and types of edges" : "");
    /* In column-major order the axes are exchanged. */
    file->by_rows = (npy->shape[0] != columns) != npy->fortran;
    return PLIM_OK;
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

plim_status_t plim__links_file_describe(const plim_job_t *job, const char *path, bool types,
                                        int64_t *num_pairs_out, int64_t *checksum_out)
{
    plim__links_file_t pairs = {.path = path, .num_types = types};
    plim__file_t file;
    PLIM_TRY(read_header(job, path, &pairs.npy));
    pairs.num_pairs = pairs.npy.count / plim__links_columns(types);
    if (num_pairs_out != NULL)
        PLIM_TRY(check_shape(&pairs));
    PLIM_TRY(plim__file_open(path, PLIM__FILE_READ, false, &file));
    uint32_t crc = plim__inflate_crc(0, &file.size, sizeof file.size);
    plim_status_t status = check_bytes(&file, 0, plim__min_i64(file.size, CHECKED), &crc);
    if (status == PLIM_OK)
        status = check_bytes(&file, plim__max_i64(0, file.size - CHECKED), file.size, &crc);
    plim__file_close(&file);
    PLIM_TRY(status);
    if (num_pairs_out != NULL)
        *num_pairs_out = pairs.num_pairs;
    *checksum_out = crc;
    return PLIM_OK;
}

static plim_status_t open_edges(const plim_dataset_t *dataset, plim__links_file_t *file)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(dataset);
    const plim__manifest_file_t *entry = &manifest->files[manifest->topologies[0].indices];
    file->npy = (plim__npy_t){.type = entry->type, .header_size = PLIM__NPY_HEADER};
    PLIM_TRY(plim__dataset_file_open(dataset, entry, true, &file->file));
    if (file->num_types == 0)
        return PLIM_OK;
    return plim__dataset_file_open(dataset, plim__manifest_find(manifest, "edge_type.npy"), true,
                                   &file->types);
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
    if (file->types.fd >= 0)
        plim__file_close(&file->types);
    pthread_mutex_destroy(&file->lock);
    plim__arena_t arena = file->arena;
    plim__arena_destroy(&arena);
}

const char *plim__links_file_path(const plim__links_file_t *file)
{
    return file->path;
}

/* The place of a pair in the file; of edges that of its edge. */
static int64_t place_of(const plim__links_file_t *file, int64_t position)
{
    return file->path != NULL ? position
                              : (position * file->num_ranks + file->rank) % file->num_edges;
}

/* Reads the numbers of pairs, of edges one, into the entries: pair by pair, or column by column. */
static plim_status_t read_numbers(plim__links_file_t *file, const plim__file_t *from,
                                  plim__dtype_t type, const int64_t *positions, int64_t count)
{
    const size_t width = plim__dtype_size(type);
    const int64_t columns = file->path == NULL ? 1 : plim__links_columns(file->num_types);
    const int64_t each = file->by_rows ? columns : 1; /* numbers of a read */
    const int64_t reads = columns / each * count;
    for (int64_t i = 0; i < reads; i++) {
        const int64_t entry =
            each * place_of(file, positions[i % count]) + i / count * file->num_pairs;
        file->reads[i] = (plim__read_t){.offset = file->npy.header_size + entry * (int64_t)width,
                                        .size = (size_t)each * width,
                                        .to = file->entries + (size_t)(i * each) * width};
    }
    return plim__range_reader_read(file->reader, from, file->reads, reads);
}

static int64_t number_at(const plim__links_file_t *file, int64_t i, int64_t column, int64_t count)
{
    const int64_t columns = plim__links_columns(file->num_types);
    return plim__id_at(file->npy.type, file->entries,
                       file->by_rows ? i * columns + column : column * count + i);
}

/* Where pair i goes: to place i, or to that of keys[i]. */
static int64_t place_at(const uint64_t *keys, int64_t i)
{
    return keys != NULL ? (int64_t)(keys[i] & (((uint64_t)1 << PLACE_BITS) - 1)) : i;
}

/* Writes the types of a chunk's pairs to their places. A file has been read into `entries`, types
 * included; the types of edges are read here. */
static plim_status_t read_types(plim__links_file_t *file, const int64_t *positions, int64_t count,
                                const uint64_t *keys, int64_t *types_out)
{
    if (file->path == NULL)
        PLIM_TRY(read_numbers(file, &file->types, PLIM__NPY_I32, positions, count));
    for (int64_t i = 0; i < count; i++) {
        const int64_t type = file->path == NULL ? plim__id_at(PLIM__NPY_I32, file->entries, i)
                                                : number_at(file, i, 2, count);
        if (type < 0 || type >= file->num_types)
            return plim__fail(PLIM_ERR_DATA, "%s: pair %lld is of type %lld, but there are %lld",
                              file->path != NULL ? file->path : file->types.path,
                              (long long)positions[i], (long long)type, (long long)file->num_types);
        types_out[place_at(keys, i)] = type;
    }
    return PLIM_OK;
}

/* Reads a chunk. */
static plim_status_t read_chunk(plim__links_file_t *file, const plim__offsets_t *offsets,
                                const int64_t *positions, int64_t count, const uint64_t *keys,
                                plim__links_out_t out)
{
    const bool edges = file->path == NULL;
    if (edges && out.types != NULL)
        PLIM_TRY(read_types(file, positions, count, keys, out.types));
    if (edges && out.sources == NULL)
        return PLIM_OK;
    PLIM_TRY(read_numbers(file, &file->file, file->npy.type, positions, count));
    if (!edges && out.types != NULL)
        PLIM_TRY(read_types(file, positions, count, keys, out.types));
    for (int64_t i = 0; i < count && out.sources != NULL; i++) {
        const int64_t position = positions[i], place = place_at(keys, i);
        const int64_t source = number_at(file, i, 0, count);
        const int64_t target = edges ? plim__offsets_node_of(offsets, place_of(file, position))
                                     : number_at(file, i, 1, count);
        if (source < 0 || source >= file->num_nodes || target < 0 || target >= file->num_nodes)
            return plim__fail(PLIM_ERR_DATA,
                              "%s: pair %lld is (%lld, %lld), but there are %lld nodes",
                              file->file.path, (long long)position, (long long)source,
                              (long long)target, (long long)file->num_nodes);
        out.sources[place] = source;
        out.targets[place] = target;
    }
    return PLIM_OK;
}

static plim__links_out_t behind(plim__links_out_t out, int64_t count)
{
    return (plim__links_out_t){out.sources != NULL ? out.sources + count : NULL,
                               out.targets != NULL ? out.targets + count : NULL,
                               out.types != NULL ? out.types + count : NULL};
}

plim_status_t plim__links_file_read(plim__links_file_t *file, const plim__offsets_t *offsets,
                                    const int64_t *positions, int64_t count, plim__links_out_t out)
{
    plim_status_t status = PLIM_OK;
    pthread_mutex_lock(&file->lock);
    for (int64_t i = 0; i < count && status == PLIM_OK; i += CHUNK)
        status = read_chunk(file, offsets, positions + i, plim__min_i64(CHUNK, count - i), NULL,
                            behind(out, i));
    pthread_mutex_unlock(&file->lock);
    return status;
}

/* Reads the pairs of a window, by ascending position. */
static plim_status_t fill(plim__links_file_t *file, const plim__offsets_t *offsets,
                          plim__links_order_t order, const void *context, int64_t count,
                          pair_window_t *window)
{
    const int bits = plim__radix_bits(file->num_pairs);
    order(context, window->epoch, window->first, count, window->sources);
    for (int64_t i = 0; i < count; i++)
        file->keys[i] = (uint64_t)window->sources[i] << PLACE_BITS | (uint64_t)i;
    const uint64_t *sorted = plim__radix_sort(file->keys, file->scratch, count, bits + PLACE_BITS);
    for (int64_t done = 0; done < count; done += CHUNK) {
        const int64_t chunk = plim__min_i64(CHUNK, count - done);
        for (int64_t i = 0; i < chunk; i++)
            file->positions[i] = (int64_t)(sorted[done + i] >> PLACE_BITS);
        PLIM_TRY(read_chunk(file, offsets, file->positions, chunk, sorted + done,
                            (plim__links_out_t){window->sources, window->targets, window->types}));
    }
    window->count = count;
    return PLIM_OK;
}

/* The window with that place of an epoch, read if it is not there. */
static plim_status_t find(plim__links_file_t *file, const plim__offsets_t *offsets,
                          plim__links_order_t order, const void *context, int64_t epoch,
                          int64_t place, pair_window_t **window_out)
{
    const int64_t first = place / file->capacity * file->capacity;
    pair_window_t *window = &file->windows[0];
    for (int i = 0; i < WINDOWS; i++) {
        pair_window_t *one = &file->windows[i];
        const bool has = one->count > 0 && one->epoch == epoch && one->first == first;
        if (has || one->used < window->used)
            window = one;
        if (has)
            break;
    }
    window->used = ++file->uses;
    *window_out = window;
    if (window->count > 0 && window->epoch == epoch && window->first == first)
        return PLIM_OK;
    window->count = 0;
    window->epoch = epoch;
    window->first = first;
    return fill(file, offsets, order, context,
                plim__min_i64(file->capacity, file->num_pairs - first), window);
}

plim_status_t plim__links_file_take(plim__links_file_t *file, const plim__offsets_t *offsets,
                                    plim__links_order_t order, const void *context, int64_t epoch,
                                    int64_t first, int64_t count, plim__links_out_t out)
{
    plim_status_t status = PLIM_OK;
    pthread_mutex_lock(&file->lock);
    while (count > 0) {
        pair_window_t *window;
        status = find(file, offsets, order, context, epoch, first, &window);
        if (status != PLIM_OK)
            break;
        const int64_t from = first - window->first;
        const int64_t taken = plim__min_i64(count, window->count - from);
        const size_t bytes = (size_t)taken * sizeof *out.sources;
        if (out.sources != NULL) {
            memcpy(out.sources, window->sources + from, bytes);
            memcpy(out.targets, window->targets + from, bytes);
        }
        if (out.types != NULL)
            memcpy(out.types, window->types + from, bytes);
        out = behind(out, taken);
        first += taken;
        count -= taken;
    }
    pthread_mutex_unlock(&file->lock);
    return status;
}
