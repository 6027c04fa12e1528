/*
 * Any range of the cache's memory can be filled from features.npy without its neighbours: it holds
 * rows and parts of rows, and each part is a read straight into its place.
 *
 *     memory   ├──── … row 4 ┤├ row 5 ──────┤├ row 6 … ────┤
 *     reads     end of row 4    all of row 5   start of row 6
 */
#include "source/row_cache.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"
#include "io/bulk.h"
#include "mem/droppable.h"
#include "source/packed_rows.h"
#include "store/sweep.h"

#include <xxhash.h>

#define THREADS_MAX 8
#define PIECE ((int64_t)512 << 10) /* bytes of features.npy at a time, if all of it is read */

/* Rows are prefetched this many bytes ahead of the copy, since a core keeps some tens of cache
 * lines in flight. The node set's line is prefetched earlier. */
#define AHEAD_BYTES ((size_t)4096)
#define AHEAD_ROWS_MAX 32
#define RANK_AHEAD 20

struct plim__row_cache {
    plim__arena_t arena;
    plim_job_t job;
    plim__droppable_t memory;
    bool all;
    plim__node_set_t nodes; /* unused if all rows are cached; its lines are borrowed */
    plim__row_form_t form;
    size_t stride;    /* bytes between rows */
    int64_t num_rows; /* number of cached rows, those of the smallest ranks */
    const plim__row_filler_t *fillers;
    int num_fillers;
    plim__file_t file;          /* features.npy */
    plim__packed_rows_t packed; /* image of the memory in the scratch directory */
    atomic_bool packing;        /* the packed file is being written without errors so far */
};

static size_t stride_of(const plim__row_form_t *form)
{
    return plim__round_up(form->bytes, sizeof(uint64_t));
}

static plim__row_cache_t carve(plim__arena_t *arena, const plim_dataset_t *dataset,
                               const plim__row_cache_params_t *params)
{
    const int64_t num_nodes = plim_dataset_info(dataset)->num_nodes;
    const int64_t count = params->all || params->nodes == NULL ? num_nodes : params->nodes->count;
    const plim__row_form_t form = plim__row_form_of(dataset);
    plim__row_cache_t cache = {.all = params->all,
                               .form = form,
                               .stride = stride_of(&form),
                               .num_rows = plim__max_i64(plim__min_i64(params->most, count), 0),
                               .fillers = params->fillers,
                               .num_fillers = params->num_fillers};
    const size_t bytes =
        plim__round_up(plim__mul_saturating_size((size_t)cache.num_rows, cache.stride), PLIM__PAGE);
    plim__droppable_carve(arena, bytes, params->num_fillers, &cache.memory);
    if (params->scratch != NULL)
        cache.packed.checksums =
            plim__arena_carve(arena, plim__packed_rows_table(bytes), 1, PLIM__PAGE);
    return cache;
}

size_t plim__row_cache_estimate(const plim_dataset_t *dataset,
                                const plim__row_cache_params_t *params)
{
    plim__arena_t arena = plim__arena_counting();
    (void)carve(&arena, dataset, params);
    (void)plim__arena_carve(&arena, 1, sizeof(plim__row_cache_t), 1);
    return plim__round_up(arena.used, PLIM__PAGE);
}

static int fill_threads(const plim_job_t *job, int num_fillers)
{
    const int threads = num_fillers < job->threads ? num_fillers : job->threads;
    return threads < THREADS_MAX ? threads : THREADS_MAX;
}

int64_t plim__rows_packed_bytes(const plim_dataset_t *dataset, size_t cache_bytes)
{
    const plim__row_form_t form = plim__row_form_of(dataset);
    const size_t stride = stride_of(&form);
    if (stride == 0)
        return 0;
    const int64_t most = (int64_t)(cache_bytes / stride);
    return plim__packed_rows_bytes(plim__min_i64(most, plim_dataset_info(dataset)->num_nodes) *
                                   (int64_t)stride);
}

size_t plim__row_cache_filling(const plim_job_t *job, const plim__row_cache_params_t *params)
{
    if (params->all)
        return plim__sweep_minimum(job, PIECE);
    const size_t filling = (size_t)(fill_threads(job, params->num_fillers) - 1) * PLIM__STACK_BYTES;
    const size_t loading = params->scratch != NULL ? plim__bulk_estimate(job) : 0;
    return filling > loading ? filling : loading;
}

static void mark_word(char *word)
{
    uint64_t bits;
    memcpy(&bits, word, sizeof bits);
    bits ^= PLIM__ROW_CACHE_KEY;
    memcpy(word, &bits, sizeof bits);
}

/* Sets the marks in [begin, end) of the memory. */
static void mark(plim__row_cache_t *cache, int64_t begin, int64_t end)
{
    const int64_t stride = (int64_t)cache->stride, page = (int64_t)PLIM__PAGE;
    end = plim__min_i64(end, cache->num_rows * stride);
    for (int64_t at = (begin + stride - 1) / stride * stride; at < end; at += stride)
        mark_word(cache->memory.base + at);
    for (int64_t at = (begin + page - 1) / page * page; at < end; at += page)
        if (at % stride != 0)
            mark_word(cache->memory.base + at);
}

static plim_status_t read_wanted(plim__row_cache_t *cache, const plim__row_filler_t *filler,
                                 int64_t *num_reads)
{
    const int64_t count = *num_reads;
    *num_reads = 0;
    return plim__reader_read(filler->reader, &cache->file, filler->reads, count);
}

/* Queues a read of the part of a row in [begin, end) of the memory. Extends the previous read if
 * both file and memory are adjacent. */
static plim_status_t want(plim__row_cache_t *cache, const plim__row_filler_t *filler,
                          int64_t *num_reads, int64_t rank, int64_t node, int64_t begin,
                          int64_t end)
{
    const int64_t row = rank * (int64_t)cache->stride, bytes = (int64_t)cache->form.bytes;
    const int64_t from = plim__max_i64(row, begin), to = plim__min_i64(row + bytes, end);
    const plim__read_t read = {PLIM__NPY_HEADER + node * bytes + (from - row), (size_t)(to - from),
                               cache->memory.base + from};
    plim__read_t *last = *num_reads > 0 ? &filler->reads[*num_reads - 1] : NULL;
    if (from >= to) /* only padding of the row */
        return PLIM_OK;
    if (last != NULL && last->offset + (int64_t)last->size == read.offset &&
        (char *)last->to + last->size == (char *)read.to &&
        last->size + read.size <= PLIM__ROW_READ_MAX) {
        last->size += read.size;
        return PLIM_OK;
    }
    if (*num_reads == filler->capacity)
        PLIM_TRY(read_wanted(cache, filler, num_reads));
    filler->reads[(*num_reads)++] = read;
    return PLIM_OK;
}

static plim_status_t fill_from_features(plim__row_cache_t *cache, const plim__row_filler_t *filler,
                                        int64_t begin, int64_t end)
{
    const int64_t stride = (int64_t)cache->stride;
    const int64_t last = plim__min_i64((end + stride - 1) / stride, cache->num_rows);
    int64_t rank = begin / stride, num_reads = 0;
    int64_t from = cache->all ? rank : plim__node_set_select(&cache->nodes, rank);
    while (rank < last) {
        int64_t count = plim__min_i64(last - rank, filler->capacity);
        if (!cache->all)
            count = plim__node_set_list(&cache->nodes, from, count, filler->nodes);
        for (int64_t i = 0; i < count; i++)
            PLIM_TRY(want(cache, filler, &num_reads, rank + i,
                          cache->all ? from + i : filler->nodes[i], begin, end));
        from = cache->all ? from + count : filler->nodes[count - 1] + 1;
        rank += count;
    }
    PLIM_TRY(read_wanted(cache, filler, &num_reads));
    mark(cache, begin, end);
    return PLIM_OK;
}

static plim_status_t fill_from_packed(plim__row_cache_t *cache, const plim__row_filler_t *filler,
                                      int64_t begin, int64_t end)
{
    const int64_t step = (int64_t)PLIM__ROW_READ_MAX;
    int64_t count = 0;
    for (int64_t at = begin; at < end; at += step)
        filler->reads[count++] =
            (plim__read_t){plim__packed_rows_offset(at), (size_t)plim__min_i64(step, end - at),
                           cache->memory.base + at};
    return plim__reader_read(filler->reader, &cache->packed.file, filler->reads, count);
}

static void close_packed(plim__row_cache_t *cache)
{
    plim__log(&cache->job, PLIM_LOG_WARNING, "%s; going on without packed rows", plim_last_error());
    plim__file_close(&cache->packed.file);
}

/* Reads from the packed file while it is readable: others may clean up the scratch directory. */
static plim_status_t fill_again(void *context, int worker, int64_t at, size_t size)
{
    plim__row_cache_t *cache = context;
    const plim__row_filler_t *filler = &cache->fillers[worker];
    if (cache->packed.file.fd >= 0) {
        plim_status_t status = fill_from_packed(cache, filler, at, at + (int64_t)size);
        if (status != PLIM_ERR_DATA && status != PLIM_ERR_IO)
            return status;
        close_packed(cache);
    }
    return fill_from_features(cache, filler, at, at + (int64_t)size);
}

static plim_status_t fill_first(void *context, int worker, int64_t at, size_t size)
{
    plim__row_cache_t *cache = context;
    PLIM_TRY(fill_from_features(cache, &cache->fillers[worker], at, at + (int64_t)size));
    if (atomic_load(&cache->packing) &&
        plim__packed_rows_put(&cache->packed, at, size) != PLIM_OK &&
        atomic_exchange(&cache->packing, false))
        plim__log(&cache->job, PLIM_LOG_WARNING, "%s; going on without packed rows",
                  plim_last_error());
    return PLIM_OK;
}

/* The memory position of a byte of features.npy's rows. */
static int64_t place_of(const plim__row_cache_t *cache, int64_t at)
{
    const int64_t bytes = (int64_t)cache->form.bytes;
    return at / bytes * (int64_t)cache->stride + at % bytes;
}

/* Copies a piece of features.npy to its places and sets the marks that it completes. */
static plim_status_t place_piece(void *context, int worker, int64_t piece, void *data, size_t size)
{
    plim__row_cache_t *cache = context;
    const int64_t bytes = (int64_t)cache->form.bytes;
    const int64_t first = piece * PIECE, end = first + (int64_t)size;
    (void)worker;
    if (cache->stride == cache->form.bytes)
        memcpy(cache->memory.base + first, data, size);
    for (int64_t at = first; at < end && cache->stride != cache->form.bytes;) {
        const int64_t part = plim__min_i64(bytes - at % bytes, end - at);
        memcpy(cache->memory.base + place_of(cache, at), (char *)data + (at - first), (size_t)part);
        at += part;
    }
    /* The next piece marks a word that it completes, in settle_piece. */
    const int64_t from = (int64_t)plim__round_up((size_t)place_of(cache, first), sizeof(uint64_t));
    int64_t to = place_of(cache, end);
    if (end < cache->num_rows * bytes)
        to &= ~(int64_t)(sizeof(uint64_t) - 1);
    mark(cache, from, to);
    return PLIM_OK;
}

/* Everything before the piece is in place, so a word that begins there and ends here can be
 * marked. */
static plim_status_t settle_piece(void *context, int worker, int64_t piece, void *data, size_t size)
{
    plim__row_cache_t *cache = context;
    const int64_t at = place_of(cache, piece * PIECE);
    (void)worker;
    (void)data;
    (void)size;
    if (at % (int64_t)sizeof(uint64_t) != 0)
        mark(cache, at & ~(int64_t)(sizeof(uint64_t) - 1), at);
    return PLIM_OK;
}

static plim_status_t fill_all(plim__row_cache_t *cache, const plim_dataset_t *dataset)
{
    const plim__sweep_t sweep = {
        .file = &cache->file,
        .entry = plim__manifest_find(plim__dataset_manifest(dataset), "features.npy"),
        .start = PLIM__NPY_HEADER,
        .end = PLIM__NPY_HEADER + cache->num_rows * (int64_t)cache->form.bytes,
        .piece = PIECE,
        .phase = "reading features",
        .context = cache,
        .look = place_piece,
        .settle = settle_piece};
    plim__droppable_fill_begin(&cache->memory);
    plim_status_t status = plim__sweep_run(&cache->job, &sweep);
    plim__droppable_fill_end(&cache->memory);
    return status;
}

/* Fills the cache from features.npy and writes the packed file. */
static plim_status_t fill_some(plim__row_cache_t *cache)
{
    const int threads = fill_threads(&cache->job, cache->num_fillers);
    const size_t stacks = (size_t)(threads - 1) * PLIM__STACK_BYTES;
    int account;
    PLIM_TRY(plim__ledger_reserve(cache->job.ledger, "row cache", stacks, &account));
    plim__packed_rows_begin(&cache->packed);
    atomic_store(&cache->packing, cache->packed.file.fd >= 0);
    plim_status_t status = plim__droppable_fill(&cache->memory, &cache->job, threads,
                                                "filling the row cache", fill_first, cache);
    plim__ledger_release(cache->job.ledger, account, stacks);
    if (status == PLIM_OK && atomic_load(&cache->packing))
        plim__packed_rows_finish(&cache->packed);
    else
        plim__file_close(&cache->packed.file);
    return status;
}

static plim_status_t fill(plim__row_cache_t *cache, const plim_dataset_t *dataset)
{
    bool loaded = false;
    if (cache->all)
        return fill_all(cache, dataset);
    if (cache->num_rows == 0)
        return PLIM_OK;
    plim__droppable_fill_begin(&cache->memory);
    PLIM_TRY(plim__packed_rows_load(&cache->packed, &loaded));
    if (!loaded)
        return fill_some(cache);
    plim__droppable_fill_end(&cache->memory);
    return PLIM_OK;
}

static plim_status_t identify(plim__row_cache_t *cache, const plim_dataset_t *dataset,
                              const plim__row_cache_params_t *params)
{
    plim__packed_rows_t *packed = &cache->packed;
    packed->file.fd = -1;
    packed->job = &cache->job;
    packed->memory = &cache->memory;
    if (params->all)
        return PLIM_OK;
    packed->identity = (plim__packed_rows_identity_t){
        .key = params->key,
        .set_hash = XXH3_64bits(params->nodes->lines,
                                (size_t)params->nodes->num_lines * sizeof *params->nodes->lines),
        .num_rows = (uint64_t)cache->num_rows,
        .row_bytes = cache->form.bytes,
        .num_pages = cache->memory.bytes / PLIM__PAGE,
        .chunk_bytes = PLIM__DROPPABLE_CHUNK};
    const char *fingerprint = plim_dataset_info(dataset)->fingerprint;
    memcpy(packed->identity.fingerprint, fingerprint,
           sizeof plim_dataset_info(dataset)->fingerprint);
    return plim__packed_rows_name(packed, params->scratch);
}

plim_status_t plim__row_cache_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim__row_cache_params_t *params,
                                     plim__row_cache_t **cache_out)
{
    plim__arena_t arena;
    PLIM_TRY(plim__arena_create(job->ledger, "row cache", plim__row_cache_estimate(dataset, params),
                                &arena));
    const plim__row_cache_t carved = carve(&arena, dataset, params);
    plim__row_cache_t *cache = plim__arena_carve(&arena, 1, sizeof *cache, 1);
    memcpy(cache, &carved, sizeof *cache);
    cache->job = *job;
    cache->arena = arena;
    cache->file.fd = -1;
    if (!params->all)
        cache->nodes = *params->nodes;
    plim_status_t status = identify(cache, dataset, params);
    if (status == PLIM_OK)
        status = plim__row_form_open(dataset, &cache->file, &cache->form);
    if (status == PLIM_OK)
        status = fill(cache, dataset);
    if (status != PLIM_OK) {
        plim__row_cache_destroy(cache);
        return status;
    }
    *cache_out = cache;
    return PLIM_OK;
}

void plim__row_cache_destroy(plim__row_cache_t *cache)
{
    if (cache == NULL)
        return;
    plim__file_close(&cache->packed.file);
    plim__file_close(&cache->file);
    plim__droppable_end(&cache->memory);
    plim__arena_destroy(&cache->arena);
}

/* Memory position of the node's row; -1 if it is not cached. */
static inline int64_t row_of(const plim__row_cache_t *cache, int64_t node)
{
    const int64_t rank = cache->all ? node : plim__node_set_rank(&cache->nodes, node);
    return rank < 0 || rank >= cache->num_rows ? -1 : rank * (int64_t)cache->stride;
}

bool plim__row_cache_holds(const plim__row_cache_t *cache, int64_t node)
{
    const int64_t row = row_of(cache, node);
    return row >= 0 && plim__droppable_has(&cache->memory, row, (int64_t)cache->stride);
}

/* Copies the part of a row in one page, which begins with a mark; false if the page was dropped. */
static inline __attribute__((always_inline)) bool copy_part(const char *from, size_t bytes,
                                                            char *to)
{
    uint64_t word;
    memcpy(to, from, bytes);
    plim__droppable_copied();
    word = *(const volatile uint64_t *)(const void *)from;
    if (__builtin_expect(word == 0, 0))
        return false;
    word ^= PLIM__ROW_CACHE_KEY;
    memcpy(to, &word, bytes < sizeof word ? bytes : sizeof word);
    return true;
}

static bool copy_parts(const plim__row_cache_t *cache, size_t at, char *to)
{
    const size_t end = at + cache->form.bytes;
    while (at < end) {
        const size_t page_end = (at / PLIM__PAGE + 1) * PLIM__PAGE;
        const size_t size = (page_end < end ? page_end : end) - at;
        if (!copy_part(cache->memory.base + at, size, to))
            return false;
        at += size;
        to += size;
    }
    return true;
}

/* Arguments and results of one plim__row_cache_take. */
typedef struct taking {
    plim__row_cache_t *cache;
    const int64_t *nodes;
    int64_t count;
    const plim__row_target_t *target;
    bool whole; /* no page was dropped */
    uint64_t *missing;
    int64_t num_missing;
    int64_t lost;
} taking_t;

/*
 * Inlined with constant `bytes` for the common sizes, so that a copy is a few moves; 0 for rows
 * that may cross pages. The loop's variables are copied out of the structs, since the compiler must
 * assume that each row's copy changes all memory.
 */
static inline __attribute__((always_inline)) void take_rows(taking_t *taking, size_t bytes)
{
    plim__row_cache_t *cache = taking->cache;
    const plim__row_target_t target = *taking->target;
    const int64_t *nodes = taking->nodes;
    const int64_t count = taking->count, num_rows = cache->num_rows;
    const int64_t stride = bytes > 0 ? (int64_t)bytes : (int64_t)cache->stride;
    const plim__node_set_t set = cache->nodes;
    const bool all = cache->all, whole = taking->whole;
    const bool converts = target.type != cache->form.type;
    const char *base = cache->memory.base;
    const size_t size = bytes > 0 ? bytes : cache->form.bytes;
    const int64_t ahead = plim__min_i64((int64_t)(AHEAD_BYTES / size) + 1, AHEAD_ROWS_MAX);
    for (int64_t i = -ahead; i < count; i++) {
        if (!all && i + ahead + RANK_AHEAD < count)
            plim__node_set_prefetch(&set, nodes[i + ahead + RANK_AHEAD]);
        if (i + ahead < count) {
            const int64_t node = nodes[i + ahead];
            const int64_t rank = all ? node : plim__node_set_rank(&set, node);
            if (rank >= 0 && rank < num_rows)
                plim__row_prefetch(base + rank * stride, size);
        }
        if (i < 0)
            continue;
        const int64_t rank = all ? nodes[i] : plim__node_set_rank(&set, nodes[i]);
        const int64_t row = rank * stride;
        if (rank >= 0 && rank < num_rows &&
            (whole || plim__droppable_has(&cache->memory, row, stride))) {
            char *to = target.stored + (size_t)i * target.stored_step;
            if (bytes > 0 ? copy_part(base + row, bytes, to) : copy_parts(cache, (size_t)row, to)) {
                if (converts)
                    plim__row_arrived(&cache->form, &target, (size_t)i);
                continue;
            }
            plim__droppable_miss(&cache->memory, row);
            plim__droppable_miss(&cache->memory, row + stride - 1);
            taking->lost++;
        }
        taking->missing[taking->num_missing++] = (uint64_t)i;
    }
}

int64_t plim__row_cache_take(plim__row_cache_t *cache, int reader, const int64_t *nodes,
                             int64_t count, const plim__row_target_t *target, uint64_t *missing_out,
                             int64_t *lost_out)
{
    taking_t taking = {cache, nodes, count, target, false, missing_out, 0, 0};
    const bool in_one_page = cache->stride == cache->form.bytes && PLIM__PAGE % cache->stride == 0;
    taking.whole = plim__droppable_enter(&cache->memory, reader);
    if (in_one_page && cache->form.bytes == 128)
        take_rows(&taking, 128);
    else if (in_one_page && cache->form.bytes == 256)
        take_rows(&taking, 256);
    else if (in_one_page && cache->form.bytes == 512)
        take_rows(&taking, 512);
    else
        take_rows(&taking, 0);
    plim__droppable_leave(&cache->memory, reader);
    *lost_out = taking.lost;
    return taking.num_missing;
}

plim_status_t plim__row_cache_refresh(plim__row_cache_t *cache, int filler, int64_t nanoseconds)
{
    return plim__droppable_refresh(&cache->memory, filler, nanoseconds, fill_again, cache);
}

plim__droppable_t *plim__row_cache_memory(plim__row_cache_t *cache)
{
    return &cache->memory;
}
