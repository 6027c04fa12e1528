#include "source/offsets.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "mem/arena.h"
#include "source/self_loops.h"
#include "store/sweep.h"

#include <emmintrin.h>
#include <string.h>

#define LINE_NODES 56
#define DEGREES_AHEAD 24
#define LONG_DEGREE 128 /* the smallest degree that a byte does not store */
#define LONG_BYTE 255   /* marks a long list: the only value with the highest bit set */

/* Lines from one chunk of indptr.npy: the offsets of 64 lines are a whole number of pages. */
#define CHUNK_LINES 2048
#define CHUNK_NODES ((int64_t)CHUNK_LINES * LINE_NODES)
#define CHUNK_BYTES (CHUNK_NODES * (int64_t)sizeof(int64_t))

typedef struct offsets_line {
    uint64_t word; /* low bits: start of the first list; above: index of the first long list */
    uint8_t degrees[LINE_NODES];
} offsets_line_t;

struct plim__offsets {
    plim__arena_t arena;
    offsets_line_t *lines; /* (num_nodes / LINE_NODES, rounded up) */
    int64_t *long_degrees; /* (num_long) */
    uint64_t start_mask;
    unsigned start_bits;
    int64_t num_nodes;
    int64_t num_edges;
    int64_t max_degree;
    int64_t num_long;
    plim__self_loops_t loops; /* that degrees leave out */
};

/* Counters of one worker. */
typedef struct offsets_tally {
    int64_t degrees[PLIM_DEGREE_BUCKETS];
    int64_t max_degree;
    int64_t num_long; /* of the current chunk */
} offsets_tally_t;

typedef struct offsets_reading {
    plim__arena_t arena;
    plim__offsets_t *offsets;
    const plim__file_t *file;
    int64_t long_used;        /* advanced in the order of the chunks */
    offsets_tally_t *tallies; /* (threads) */
} offsets_reading_t;

static int64_t count_lines(int64_t num_nodes)
{
    return num_nodes / LINE_NODES + (num_nodes % LINE_NODES != 0);
}

/* The number of long lists, from dataset.json's degree counts. */
static int64_t count_long(const plim__manifest_t *manifest)
{
    int64_t count = 0;
    for (int i = plim__degree_bucket(LONG_DEGREE); i < PLIM_DEGREE_BUCKETS; i++)
        count += manifest->degrees[i];
    return count;
}

static plim__offsets_t draft_of(const plim_dataset_t *dataset, bool skip_loops)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(dataset);
    const plim_dataset_info_t *info = &manifest->info;
    const int64_t known = plim__dataset_max_self_loops(dataset);
    const int64_t most = !skip_loops ? 0 : known < 0 ? 1 : known; /* until they are counted */
    return (plim__offsets_t){.num_nodes = info->num_nodes,
                             .num_edges = info->num_edges,
                             .max_degree = info->max_degree,
                             .num_long = count_long(manifest),
                             .loops = {.bits = plim__self_loops_bits(most)}};
}

static void lay_out(plim__arena_t *arena, void *object)
{
    plim__offsets_t *offsets = object;
    const size_t num_lines = (size_t)count_lines(offsets->num_nodes);
    offsets->lines = plim__arena_carve(arena, num_lines, sizeof(offsets_line_t), PLIM__PAGE);
    offsets->long_degrees = plim__arena_carve(arena, (size_t)offsets->num_long, sizeof(int64_t), 1);
    const size_t words = plim__self_loops_words(offsets->num_nodes, offsets->loops.bits);
    offsets->loops.words = plim__arena_carve(arena, words, sizeof(uint64_t), 1);
}

size_t plim__offsets_estimate(const plim_dataset_t *dataset, bool skip_loops)
{
    plim__offsets_t draft = draft_of(dataset, skip_loops);
    return plim__object_bytes(lay_out, &draft, sizeof draft);
}

static size_t tallies_bytes(const plim_job_t *job)
{
    return (size_t)plim__job_threads(job) * sizeof(offsets_tally_t);
}

size_t plim__offsets_work_minimum(const plim_job_t *job)
{
    return plim__round_up(tallies_bytes(job), PLIM__PAGE) + plim__sweep_minimum(job, CHUNK_BYTES);
}

static plim_status_t fail_step(const offsets_reading_t *reading, int64_t number, int64_t from,
                               int64_t to)
{
    return plim__fail(PLIM_ERR_DATA,
                      "%s: offset %lld is %lld after %lld; offsets ascend from 0 to %lld, in steps "
                      "of at most %lld; copy or import the dataset again",
                      reading->file->path, (long long)number, (long long)to, (long long)from,
                      (long long)reading->offsets->num_edges,
                      (long long)reading->offsets->max_degree);
}

/* Builds the line of nodes `first` … first+count-1 from the chunk's offsets. */
static plim_status_t make_line(const offsets_reading_t *reading, offsets_tally_t *tally,
                               int64_t chunk, const int64_t *entries, int64_t first, int64_t count)
{
    const plim__offsets_t *offsets = reading->offsets;
    offsets_line_t *line = &offsets->lines[chunk * CHUNK_LINES + first / LINE_NODES];
    int64_t last = entries[first];
    if (last < 0 || last > offsets->num_edges)
        return fail_step(reading, chunk * CHUNK_NODES + first, 0, last);
    line->word = (uint64_t)last | (uint64_t)tally->num_long << offsets->start_bits;
    for (int64_t i = 0; i < count; i++) {
        int64_t next = entries[first + i + 1];
        if (next < last || next > offsets->num_edges || next - last > offsets->max_degree)
            return fail_step(reading, chunk * CHUNK_NODES + first + i + 1, last, next);
        int64_t degree = next - last;
        tally->degrees[plim__degree_bucket(degree)]++;
        tally->max_degree = plim__max_i64(tally->max_degree, degree);
        line->degrees[i] = (uint8_t)(degree < LONG_DEGREE ? degree : LONG_BYTE);
        tally->num_long += degree >= LONG_DEGREE;
        last = next;
    }
    return PLIM_OK;
}

static plim_status_t process(void *context, int worker, int64_t chunk, void *data, size_t size)
{
    const offsets_reading_t *reading = context;
    const plim__offsets_t *offsets = reading->offsets;
    offsets_tally_t *tally = &reading->tallies[worker];
    const int64_t *entries = data;
    int64_t num_nodes = (int64_t)(size / sizeof(int64_t));
    bool last = chunk * CHUNK_NODES + num_nodes == offsets->num_nodes;
    if ((chunk == 0 && entries[0] != 0) || (last && entries[num_nodes] != offsets->num_edges))
        return plim__fail(PLIM_ERR_DATA,
                          "%s: the offsets do not go from 0 to %lld, the number of edges; copy the "
                          "dataset again or import it again",
                          reading->file->path, (long long)offsets->num_edges);
    tally->num_long = 0;
    for (int64_t i = 0; i < num_nodes; i += LINE_NODES)
        PLIM_TRY(
            make_line(reading, tally, chunk, entries, i, plim__min_i64(LINE_NODES, num_nodes - i)));
    return PLIM_OK;
}

/* Appends the chunk's long lists to those of the previous chunks. */
static plim_status_t merge(void *context, int worker, int64_t chunk, void *data, size_t size)
{
    offsets_reading_t *reading = context;
    plim__offsets_t *offsets = reading->offsets;
    int64_t num_long = reading->tallies[worker].num_long;
    int64_t num_lines = count_lines((int64_t)(size / sizeof(int64_t)));
    offsets_line_t *lines = offsets->lines + chunk * CHUNK_LINES;
    const int64_t *entries = data;
    if (num_long > offsets->num_long - reading->long_used)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: more lists of %d entries and more than the %lld that dataset.json "
                          "counts; copy or import the dataset again",
                          reading->file->path, LONG_DEGREE, (long long)offsets->num_long);
    int64_t *to = offsets->long_degrees + reading->long_used;
    for (int64_t i = 0; i < num_lines && num_long > 0; i++) {
        lines[i].word += (uint64_t)reading->long_used << offsets->start_bits;
        for (int64_t j = 0; j < LINE_NODES; j++) {
            const int64_t node = i * LINE_NODES + j;
            if (lines[i].degrees[j] == LONG_BYTE)
                *to++ = entries[node + 1] - entries[node];
        }
    }
    for (int64_t i = 0; i < num_lines && num_long == 0; i++)
        lines[i].word += (uint64_t)reading->long_used << offsets->start_bits;
    reading->long_used += num_long;
    return PLIM_OK;
}

static plim_status_t check_tallies(const offsets_reading_t *reading,
                                   const plim__manifest_t *manifest, int threads)
{
    offsets_tally_t sum = {.max_degree = 0};
    for (int i = 0; i < threads; i++) {
        for (int j = 0; j < PLIM_DEGREE_BUCKETS; j++)
            sum.degrees[j] += reading->tallies[i].degrees[j];
        sum.max_degree = plim__max_i64(sum.max_degree, reading->tallies[i].max_degree);
    }
    if (sum.max_degree == manifest->info.max_degree &&
        memcmp(sum.degrees, manifest->degrees, sizeof sum.degrees) == 0)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_DATA,
                      "%s: its degrees are not those that dataset.json counts; copy the dataset "
                      "again or import it again",
                      reading->file->path);
}

static plim_status_t read_offsets(const plim_job_t *job, const plim_dataset_t *dataset,
                                  plim__offsets_t *offsets)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(dataset);
    const int threads = plim__job_threads(job);
    plim__file_t file;
    plim__arena_t arena;
    offsets_reading_t reading = {.offsets = offsets, .file = &file};
    const plim__manifest_file_t *entry = &manifest->files[manifest->topologies[0].indptr];
    const plim__sweep_t sweep = {.file = &file,
                                 .entry = entry,
                                 .start = PLIM__NPY_HEADER,
                                 .end = PLIM__NPY_HEADER +
                                        offsets->num_nodes * (int64_t)sizeof(int64_t),
                                 .chunk = CHUNK_BYTES,
                                 .behind = sizeof(int64_t),
                                 .phase = "reading offsets",
                                 .context = &reading,
                                 .process = process,
                                 .merge = merge};
    PLIM_TRY(plim__arena_create(job->ledger, "offsets", tallies_bytes(job), &arena));
    reading.tallies = (void *)arena.base;
    plim_status_t status = plim__dataset_file_open(dataset, entry, true, &file);
    if (status == PLIM_OK) {
        status = plim__sweep_run(job, &sweep);
        plim__file_close(&file);
    }
    if (status == PLIM_OK)
        status = check_tallies(&reading, manifest, threads);
    plim__arena_destroy(&arena);
    return status;
}

static plim_status_t create(const plim_job_t *job, const plim_dataset_t *dataset, bool skip_loops,
                            plim__offsets_t **offsets_out)
{
    plim__offsets_t draft = draft_of(dataset, skip_loops), *offsets;
    int start_bits = plim__degree_bucket(draft.num_edges);
    if (start_bits + plim__degree_bucket(draft.num_long) > 64)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "%s: %lld edges and %lld lists of %d entries and more do not fit the "
                          "64 bits that a line of offsets has for both",
                          plim__dataset_path(dataset), (long long)draft.num_edges,
                          (long long)draft.num_long, LONG_DEGREE);
    draft.start_bits = (unsigned)start_bits;
    draft.start_mask = ((uint64_t)1 << start_bits) - 1;
    PLIM_TRY(plim__object_create(job->ledger, "offsets", lay_out, &draft, sizeof draft,
                                 &draft.arena, &offsets));
    plim__arena_want_huge(offsets->arena.base, offsets->arena.size);
    plim_status_t status = read_offsets(job, dataset, offsets);
    if (status == PLIM_OK && offsets->loops.bits > 0)
        status = plim__self_loops_fill(job, dataset, offsets, &offsets->loops);
    if (status != PLIM_OK) {
        plim__offsets_destroy(offsets);
        return status;
    }
    *offsets_out = offsets;
    return PLIM_OK;
}

plim_status_t plim__offsets_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                   bool skip_loops, plim__offsets_t **offsets_out)
{
    if (skip_loops && plim__dataset_max_self_loops(dataset) < 0) {
        plim__offsets_t *offsets;
        PLIM_TRY(create(job, dataset, false, &offsets));
        const plim_status_t status = plim__self_loops_count(job, dataset, offsets);
        if (status == PLIM_OK && plim__dataset_max_self_loops(dataset) == 0) {
            *offsets_out = offsets;
            return PLIM_OK;
        }
        plim__offsets_destroy(offsets);
        PLIM_TRY(status);
    }
    return create(job, dataset, skip_loops, offsets_out);
}

void plim__offsets_destroy(plim__offsets_t *offsets)
{
    if (offsets != NULL)
        plim__arena_destroy(&offsets->arena);
}

/* The 64 bytes from 56 - i on mask a line's first i degrees and exclude its word. */
static const uint8_t before[128] __attribute__((aligned(64))) = {
#define EIGHT 255, 255, 255, 255, 255, 255, 255, 255
    EIGHT, EIGHT, EIGHT, EIGHT, EIGHT,
    EIGHT, EIGHT, EIGHT
#undef EIGHT
};

plim__list_t plim__offsets_list(const plim__offsets_t *offsets, int64_t node)
{
    const offsets_line_t *line = &offsets->lines[(uint64_t)node / LINE_NODES];
    const uint64_t place = (uint64_t)node % LINE_NODES;
    const __m128i *bytes = (const __m128i *)(const void *)line;
    const __m128i *masks = (const __m128i *)(const void *)(before + LINE_NODES - place);
    __m128i a = _mm_and_si128(_mm_load_si128(bytes), _mm_loadu_si128(masks));
    __m128i b = _mm_and_si128(_mm_load_si128(bytes + 1), _mm_loadu_si128(masks + 1));
    __m128i c = _mm_and_si128(_mm_load_si128(bytes + 2), _mm_loadu_si128(masks + 2));
    __m128i d = _mm_and_si128(_mm_load_si128(bytes + 3), _mm_loadu_si128(masks + 3));
    a = _mm_srli_si128(a, sizeof line->word);
    const __m128i zero = _mm_setzero_si128();
    __m128i sum = _mm_add_epi64(_mm_add_epi64(_mm_sad_epu8(a, zero), _mm_sad_epu8(b, zero)),
                                _mm_add_epi64(_mm_sad_epu8(c, zero), _mm_sad_epu8(d, zero)));
    int64_t bytes_before = _mm_cvtsi128_si64(sum) + _mm_cvtsi128_si64(_mm_srli_si128(sum, 8));
    uint64_t is_long = (uint64_t)(unsigned)_mm_movemask_epi8(a) |
                       (uint64_t)(unsigned)_mm_movemask_epi8(b) << 16 |
                       (uint64_t)(unsigned)_mm_movemask_epi8(c) << 32 |
                       (uint64_t)(unsigned)_mm_movemask_epi8(d) << 48;
    plim__list_t list = {.start = (int64_t)(line->word & offsets->start_mask) + bytes_before,
                         .degree = line->degrees[place]};
    if (__builtin_expect(is_long != 0 || list.degree == LONG_BYTE, 0)) {
        const int64_t *degrees = offsets->long_degrees + (line->word >> offsets->start_bits);
        int64_t num_before = __builtin_popcountll(is_long);
        for (int64_t i = 0; i < num_before; i++)
            list.start += degrees[i] - LONG_BYTE;
        if (list.degree == LONG_BYTE)
            list.degree = degrees[num_before];
    }
    return list;
}

void plim__offsets_prefetch(const plim__offsets_t *offsets, int64_t node)
{
    __builtin_prefetch(&offsets->lines[(uint64_t)node / LINE_NODES]);
}

int64_t plim__offsets_node_of(const plim__offsets_t *offsets, int64_t entry)
{
    int64_t low = 0, high = offsets->num_nodes;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (plim__offsets_list(offsets, middle).start <= entry)
            low = middle;
        else
            high = middle;
    }
    return low;
}

bool plim__offsets_skip_loops(const plim__offsets_t *offsets)
{
    return offsets != NULL && offsets->loops.bits > 0;
}

int64_t plim__offsets_degree(const plim__offsets_t *offsets, int64_t node)
{
    const int64_t degree = plim__offsets_list(offsets, node).degree;
    return offsets->loops.bits > 0 ? degree - plim__self_loops_of(&offsets->loops, node) : degree;
}

void plim__offsets_degrees(const plim__offsets_t *offsets, const int64_t *nodes, int64_t count,
                           int32_t *degrees_out)
{
    for (int64_t i = 0; i < count && i < DEGREES_AHEAD; i++)
        plim__offsets_prefetch(offsets, nodes[i]);
    for (int64_t i = 0; i < count; i++) {
        const uint64_t node = (uint64_t)nodes[i];
        if (i + DEGREES_AHEAD < count)
            plim__offsets_prefetch(offsets, nodes[i + DEGREES_AHEAD]);
        int32_t degree = offsets->lines[node / LINE_NODES].degrees[node % LINE_NODES];
        if (__builtin_expect(degree == LONG_BYTE, 0))
            degree = (int32_t)plim__offsets_list(offsets, nodes[i]).degree;
        degrees_out[i] = degree;
    }
    for (int64_t i = 0; i < count && offsets->loops.bits > 0; i++)
        degrees_out[i] -= (int32_t)plim__self_loops_of(&offsets->loops, nodes[i]);
}
