#include "infer/link_scores.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/rng.h"
#include "infer/node_rows.h"
#include "io/npy.h"
#include "io/reader.h"
#include "load/links_file.h"
#include "mem/arena.h"
#include "nn/decoder.h"

#include <math.h>
#include <string.h>

#define CHUNK_MOST ((int64_t)4096) /* pairs that are scored at once */
#define CHUNK_BYTES ((int64_t)4 << 20)
#define READER_BYTES ((size_t)128 << 10)
#define HEADER_BYTES ((size_t)4096)
#define DRAWN_STREAM 0x6472617773u

static const int64_t hits_at[PLIM_LINK_HITS] = {1, 3, 10, 20, 50, 100};
#define HITS_MOST 100

/* What pairs are compared with. */
typedef enum form {
    ALONE = 0, /* nothing */
    SHARED,    /* negative pairs, that all share */
    TARGETS,   /* targets of each pair's source, in a file */
    DRAWN      /* and drawn ones */
} form_t;

struct plim__link_scores {
    plim__arena_t arena;
    const plim_job_t *job;
    int64_t num_nodes, width;
    form_t form;
    int64_t num_pairs, num_negatives; /* of each pair, unless they are shared */
    int64_t num_types;                /* of pairs; 0: they have none */
    uint64_t seed;
    plim__node_rows_t *rows;
    plim__team_t *team; /* while scores are computed */
    plim__decoder_t *decoder;
    plim__links_file_t *pairs, *negatives;
    const char *path;         /* of the negatives */
    plim__npy_t npy;          /* of TARGETS */
    plim__reader_t *targets;  /* at the next ones */
    char *entries;            /* (chunk) of the file's type */
    int64_t chunk;            /* pairs that are scored at once */
    int64_t *positions;       /* (chunk) */
    int64_t *nodes;           /* (2 * chunk) sources of those that are scored, then targets */
    int64_t *types;           /* (chunk) of those that are scored; NULL: they have none */
    int64_t *sources;         /* (chunk) of pairs with negatives of their own */
    int64_t *pair_types;      /* (chunk) the same */
    int64_t *above;           /* (chunk) negatives above a pair, twice, and those that are equal */
    float *scores;            /* (chunk) */
    float *positives;         /* of SHARED (num_pairs), else (chunk) */
    float largest[HITS_MOST]; /* of the negatives so far, a heap: the smallest first */
    int64_t num_largest;
};

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim__link_scores_t *scores = draft;
    const size_t chunk = (size_t)scores->chunk;
    int64_t **const of_pairs[] = {&scores->positions, &scores->sources, &scores->above};
    for (size_t i = 0; i < sizeof of_pairs / sizeof of_pairs[0]; i++)
        *of_pairs[i] = plim__arena_carve(arena, chunk, sizeof(int64_t), 1);
    int64_t **const typed[] = {&scores->types, &scores->pair_types};
    for (size_t i = 0; i < sizeof typed / sizeof typed[0] && scores->num_types > 0; i++)
        *typed[i] = plim__arena_carve(arena, chunk, sizeof(int64_t), 1);
    scores->nodes = plim__arena_carve(arena, 2 * chunk, sizeof *scores->nodes, 1);
    scores->entries = plim__arena_carve(arena, chunk, sizeof(int64_t), 1);
    scores->scores = plim__arena_carve(arena, chunk, sizeof *scores->scores, 1);
    scores->positives =
        plim__arena_carve(arena, scores->form == SHARED ? (size_t)scores->num_pairs : chunk,
                          sizeof *scores->positives, 1);
}

/* Opens a file behind its header. */
static plim_status_t open_array(const plim_job_t *job, const char *path, size_t buffer,
                                plim__npy_t *npy_out, plim__reader_t **reader_out)
{
    PLIM_TRY(plim__reader_file(job, path, buffer, reader_out));
    const plim_status_t status = plim__npy_read(*reader_out, npy_out);
    if (status == PLIM_OK)
        return PLIM_OK;
    plim__reader_close(*reader_out);
    *reader_out = NULL;
    return status;
}

static plim_status_t read_header(const plim_job_t *job, const char *path, plim__npy_t *npy_out)
{
    plim__reader_t *reader;
    PLIM_TRY(open_array(job, path, HEADER_BYTES, npy_out, &reader));
    plim__reader_close(reader);
    return PLIM_OK;
}

/* Finds the form of the negatives and their number. */
static plim_status_t find_form(const plim_job_t *job, const plim__link_files_t *files,
                               plim__link_scores_t *draft)
{
    plim__npy_t *npy = &draft->npy;
    const int64_t columns = plim__links_columns(draft->num_types);
    draft->path = files->negatives;
    draft->form = DRAWN;
    draft->num_negatives = files->drawn;
    if (draft->path == NULL)
        return files->drawn >= 1 && files->drawn <= INT32_MAX
                   ? PLIM_OK
                   : plim__fail(PLIM_ERR_USAGE, "pairs are scored against `negatives`: give a "
                                                "file, or how many to draw for each pair");
    PLIM_TRY(read_header(job, draft->path, npy));
    draft->form = SHARED;
    draft->num_negatives = npy->count / columns;
    if (npy->count == 0)
        return plim__fail(PLIM_ERR_USAGE, "%s is empty", draft->path);
    if (columns == 3 && npy->num_dims == 2 && npy->shape[0] == draft->num_pairs &&
        npy->shape[1] == columns)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: (%lld, 3) may be three targets of each pair, or as many sources, "
                          "targets and types; %sgive targets in another number than three",
                          draft->path, (long long)draft->num_pairs,
                          draft->num_pairs == columns ? "" : "give these as (3, pairs), or ");
    if (npy->num_dims == 2 && (npy->shape[0] == columns || npy->shape[1] == columns))
        return PLIM_OK;
    if (!plim__dtype_is_id(npy->type) || npy->num_dims != 2 || npy->fortran ||
        npy->shape[0] != draft->num_pairs)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: negatives must be an array of int32, uint32 or int64: pairs, (%lld, "
                          "n) or (n, %lld), or targets in C order, (%lld, n) for %lld pairs",
                          draft->path, (long long)columns, (long long)columns,
                          (long long)draft->num_pairs, (long long)draft->num_pairs);
    draft->form = TARGETS;
    draft->num_negatives = npy->shape[1];
    return PLIM_OK;
}

static plim_status_t open_pairs(const plim__link_scores_t *scores, const plim_dataset_t *dataset,
                                const char *path, int64_t count, plim__links_file_t **file_out)
{
    plim_links_t links = PLIM_LINKS_INIT;
    links.path = path;
    links.num_pairs = count;
    links.num_types = scores->num_types;
    return plim__links_file_create(scores->job, dataset, &links, false, file_out);
}

/* Reads pairs first … first + count - 1 of a file into scores->nodes and types. */
static plim_status_t read_pairs(plim__link_scores_t *scores, plim__links_file_t *file,
                                int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        scores->positions[i] = first + i;
    const plim__links_out_t out = {scores->nodes, scores->nodes + count, scores->types};
    return plim__links_file_read(file, NULL, scores->positions, count, out);
}

/* Goes back to the first target. */
static plim_status_t rewind_targets(plim__link_scores_t *scores)
{
    plim__reader_close(scores->targets);
    scores->targets = NULL;
    return open_array(scores->job, scores->path, READER_BYTES, &scores->npy, &scores->targets);
}

/* Reads the next targets. */
static plim_status_t read_targets(plim__link_scores_t *scores, int64_t count, int64_t *targets_out)
{
    const size_t size = plim__dtype_size(scores->npy.type);
    const int64_t first = (scores->targets->position - scores->npy.header_size) / (int64_t)size;
    PLIM_TRY(plim__reader_read_all(scores->targets, scores->entries, (size_t)count * size));
    for (int64_t i = 0; i < count; i++) {
        const int64_t node = plim__id_at(scores->npy.type, scores->entries, i);
        if (node < 0 || node >= scores->num_nodes)
            return plim__fail(PLIM_ERR_DATA,
                              "%s: negative %lld of pair %lld is %lld, but there are %lld nodes",
                              scores->path, (long long)((first + i) % scores->num_negatives),
                              (long long)((first + i) / scores->num_negatives), (long long)node,
                              (long long)scores->num_nodes);
        targets_out[i] = node;
    }
    return PLIM_OK;
}

/* Reads a file of pairs from end to end. */
static plim_status_t check_pairs(plim__link_scores_t *scores, plim__links_file_t *file,
                                 int64_t pairs)
{
    for (int64_t first = 0; first < pairs; first += scores->chunk) {
        PLIM_TRY(read_pairs(scores, file, first, plim__min_i64(scores->chunk, pairs - first)));
        PLIM_TRY(plim__job_check(scores->job));
    }
    return PLIM_OK;
}

/* Opens the files and reads them once: a wrong node is found before the pass over the graph. */
static plim_status_t check_files(plim__link_scores_t *scores, const plim_dataset_t *dataset,
                                 const char *pairs)
{
    PLIM_TRY(open_pairs(scores, dataset, pairs, scores->num_pairs, &scores->pairs));
    PLIM_TRY(check_pairs(scores, scores->pairs, scores->num_pairs));
    if (scores->form == SHARED) {
        PLIM_TRY(
            open_pairs(scores, dataset, scores->path, scores->num_negatives, &scores->negatives));
        return check_pairs(scores, scores->negatives, scores->num_negatives);
    }
    if (scores->form != TARGETS)
        return PLIM_OK;
    PLIM_TRY(rewind_targets(scores));
    for (int64_t left = scores->npy.count; left > 0; left -= plim__min_i64(scores->chunk, left)) {
        PLIM_TRY(read_targets(scores, plim__min_i64(scores->chunk, left), scores->nodes));
        PLIM_TRY(plim__job_check(scores->job));
    }
    return rewind_targets(scores);
}

/* Reads the files' headers. */
static plim_status_t describe(const plim_job_t *job, const plim__link_files_t *files, bool compares,
                              plim__link_scores_t *draft)
{
    PLIM_TRY(read_header(job, files->pairs, &draft->npy));
    draft->num_types = files->num_types;
    draft->num_pairs = draft->npy.count / plim__links_columns(files->num_types);
    if (draft->num_pairs == 0)
        return plim__fail(PLIM_ERR_USAGE, "%s has no pairs", files->pairs);
    return compares ? find_form(job, files, draft) : PLIM_OK;
}

plim_status_t plim__link_files_describe(const plim_job_t *job, const plim__link_files_t *files,
                                        int64_t *num_pairs_out, bool *shared_out,
                                        int64_t *checksum_out)
{
    plim__link_scores_t draft = {.job = job};
    const bool types = files->num_types > 0;
    int64_t count, pairs, negatives = 0;
    PLIM_TRY(describe(job, files, true, &draft));
    PLIM_TRY(plim__links_file_describe(job, files->pairs, types, &count, &pairs));
    if (files->negatives != NULL)
        PLIM_TRY(plim__links_file_describe(job, files->negatives, types, NULL, &negatives));
    *num_pairs_out = draft.num_pairs;
    *shared_out = draft.form == SHARED;
    *checksum_out = pairs << 31 ^ negatives;
    return PLIM_OK;
}

static int64_t chunk_of(int64_t width)
{
    const int64_t both = 2 * width * (int64_t)sizeof(float);
    return plim__min_i64(CHUNK_MOST, plim__max_i64(CHUNK_BYTES / both, 64));
}

static plim__decoder_params_t decoder_params(const plim_job_t *job, const plim__scorer_t *scorer,
                                             int64_t width)
{
    return (plim__decoder_params_t){.scorer = *scorer,
                                    .width = width,
                                    .max_pairs = chunk_of(width),
                                    .workers = plim__job_threads(job)};
}

size_t plim__link_scores_estimate(const plim_job_t *job, int64_t num_pairs, int64_t num_types,
                                  bool shared, int64_t width, const plim__scorer_t *scorer)
{
    plim__link_scores_t draft = {.form = shared ? SHARED : TARGETS,
                                 .num_pairs = num_pairs,
                                 .num_types = num_types,
                                 .chunk = chunk_of(width)};
    plim_links_t links = PLIM_LINKS_INIT;
    links.path = "";
    links.num_pairs = num_pairs;
    links.num_types = num_types;
    const size_t files = 2 * (plim__links_file_estimate(job, &links, false) + PATH_MAX) +
                         plim__reader_file_estimate(job->io_engine, READER_BYTES);
    const plim__decoder_params_t decoder = decoder_params(job, scorer, width);
    const size_t rows = plim__node_rows_estimate(job, width, 2 * draft.chunk);
    return plim__add_saturating_size(
        plim__add_saturating_size(plim__object_bytes(lay_out, &draft, sizeof draft), files),
        plim__add_saturating_size(
            rows, scorer->kind != PLIM_DECODER_DOT ? plim__decoder_estimate(&decoder) : 0));
}

int64_t plim__link_scores_disk(int64_t num_nodes, int64_t width)
{
    return plim__mul_saturating_i64(num_nodes, width * (int64_t)sizeof(float));
}

plim_status_t plim__link_scores_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                       const plim__link_scores_params_t *params,
                                       plim__link_scores_t **scores_out)
{
    plim__link_scores_t draft = {.job = job,
                                 .num_nodes = plim_dataset_info(dataset)->num_nodes,
                                 .width = params->width,
                                 .seed = params->seed,
                                 .chunk = chunk_of(params->width)};
    plim__link_scores_t *scores;
    PLIM_TRY(describe(job, &params->files, params->compares, &draft));
    PLIM_TRY(plim__object_create(job->ledger, "evaluation", lay_out, &draft, sizeof draft,
                                 &draft.arena, &scores));
    plim_status_t status = check_files(scores, dataset, params->files.pairs);
    const plim__decoder_params_t decoder = decoder_params(job, &params->scorer, params->width);
    if (status == PLIM_OK && params->scorer.kind != PLIM_DECODER_DOT)
        status = plim__decoder_create(job->ledger, &decoder, params->parameters,
                                      params->num_parameters, &scores->decoder);
    const int64_t spare = plim__ledger_available(job->ledger) - params->minimum;
    if (status == PLIM_OK)
        status = plim__node_rows_create(job, params->scratch, scores->num_nodes, scores->width,
                                        2 * scores->chunk, spare / 2, &scores->rows);
    if (status != PLIM_OK) {
        plim__link_scores_destroy(scores);
        return status;
    }
    *scores_out = scores;
    return PLIM_OK;
}

void plim__link_scores_destroy(plim__link_scores_t *scores)
{
    if (scores == NULL)
        return;
    plim__team_destroy(scores->team);
    plim__decoder_destroy(scores->decoder);
    plim__node_rows_destroy(scores->rows);
    plim__links_file_destroy(scores->pairs);
    plim__links_file_destroy(scores->negatives);
    plim__reader_close(scores->targets);
    plim__arena_t arena = scores->arena;
    plim__arena_destroy(&arena);
}

int64_t plim__link_scores_pairs(const plim__link_scores_t *scores)
{
    return scores->num_pairs;
}

plim_status_t plim__link_scores_take(void *scores, int64_t first, int64_t count, int64_t width,
                                     const float *values)
{
    return plim__node_rows_take(((plim__link_scores_t *)scores)->rows, first, count, width, values);
}

/* Scores scores->nodes; `done` of `total` for progress. */
static plim_status_t score(plim__link_scores_t *scores, int64_t count, int64_t done, int64_t total,
                           float *scores_out)
{
    const float *rows;
    const int64_t *places;
    PLIM_TRY(plim__node_rows_find(scores->rows, scores->nodes, 2 * count, &rows, &places));
    const plim__pairs_t pairs = {count, places, places + count, scores->types, count};
    plim__decode(scores->team, scores->decoder, &pairs, scores->width, rows, scores_out);
    PLIM_TRY(plim__decoder_check(scores->decoder));
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(scores_out[i]))
            return plim__fail(PLIM_ERR_DIVERGED,
                              "the score of the pair (%lld, %lld) is not finite: the weights are "
                              "too large; take other `weights`, or train with a lower learning "
                              "rate (`rate`)",
                              (long long)scores->nodes[i], (long long)scores->nodes[count + i]);
    plim__progress(scores->job, "scoring pairs", "pairs", done + count, total);
    return plim__job_check(scores->job);
}

/* The value goes down from place `at` of a heap whose smallest is first. */
static void sift(float *heap, int64_t count, int64_t at, float value)
{
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        child += child + 1 < count && heap[child + 1] < heap[child];
        if (heap[child] >= value)
            break;
        heap[at] = heap[child];
    }
    heap[at] = value;
}

static void sort_descending(float *values, int64_t count)
{
    for (int64_t i = count / 2 - 1; i >= 0; i--)
        sift(values, count, i, values[i]);
    for (int64_t end = count - 1; end > 0; end--) {
        const float last = values[end];
        values[end] = values[0];
        sift(values, end, 0, last);
    }
}

static void keep_largest(plim__link_scores_t *scores, float value)
{
    float *heap = scores->largest;
    if (scores->num_largest == HITS_MOST) {
        if (value > heap[0])
            sift(heap, HITS_MOST, 0, value);
        return;
    }
    int64_t at = scores->num_largest++;
    for (; at > 0 && heap[(at - 1) / 2] > value; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = value;
}

/* How many of the descending values are above `bound`; with `equal`, or equal to it. */
static int64_t count_above(const float *values, int64_t count, float bound, bool equal)
{
    int64_t low = 0, high = count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (values[middle] > bound || (equal && values[middle] == bound))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Negatives that all pairs share: OGB's hits@k, and the area under the ROC curve. */
static plim_status_t compare_shared(plim__link_scores_t *scores, plim_link_scores_t *found)
{
    const int64_t pairs = scores->num_pairs, negatives = scores->num_negatives;
    const int64_t all = plim__add_saturating_i64(pairs, negatives);
    float *descending = scores->positives;
    double right = 0; /* twice: of each negative the pairs above it, and half of its equals */
    for (int64_t first = 0; first < pairs; first += scores->chunk) {
        const int64_t count = plim__min_i64(scores->chunk, pairs - first);
        PLIM_TRY(read_pairs(scores, scores->pairs, first, count));
        PLIM_TRY(score(scores, count, first, all, descending + first));
    }
    sort_descending(descending, pairs);
    for (int64_t first = 0; first < negatives; first += scores->chunk) {
        const int64_t count = plim__min_i64(scores->chunk, negatives - first);
        PLIM_TRY(read_pairs(scores, scores->negatives, first, count));
        PLIM_TRY(score(scores, count, pairs + first, all, scores->scores));
        for (int64_t i = 0; i < count; i++) {
            keep_largest(scores, scores->scores[i]);
            right += (double)(count_above(descending, pairs, scores->scores[i], false) +
                              count_above(descending, pairs, scores->scores[i], true));
        }
    }
    sort_descending(scores->largest, scores->num_largest);
    for (int i = 0; i < PLIM_LINK_HITS; i++) {
        const int64_t k = hits_at[i];
        found->hits[i] =
            negatives < k ? 1
                          : (double)count_above(descending, pairs, scores->largest[k - 1], false) /
                                (double)pairs;
    }
    found->auc = right / (2 * (double)pairs * (double)negatives);
    return PLIM_OK;
}

/* Fills in candidates first … first + count - 1 of the negatives of pairs from `pair` on. */
static plim_status_t fill_own(plim__link_scores_t *scores, int64_t pair, int64_t first,
                              int64_t count)
{
    const int64_t each = scores->num_negatives;
    for (int64_t i = 0; i < count; i++)
        scores->nodes[i] = scores->sources[(first + i) / each];
    for (int64_t i = 0; i < count && scores->num_types > 0; i++)
        scores->types[i] = scores->pair_types[(first + i) / each];
    if (scores->form == TARGETS)
        return read_targets(scores, count, scores->nodes + count);
    for (int64_t i = 0; i < count; i++) {
        uint64_t counter = 0;
        const uint64_t key = plim__rng_key(scores->seed, (uint64_t)(pair + (first + i) / each),
                                           (uint64_t)((first + i) % each), DRAWN_STREAM);
        scores->nodes[count + i] =
            (int64_t)plim__rng_below(key, &counter, (uint64_t)scores->num_nodes);
    }
    return PLIM_OK;
}

/* Adds the ranks of `count` pairs from `pair` on, each among its own negatives. */
static plim_status_t compare_own(plim__link_scores_t *scores, int64_t pair, int64_t count,
                                 plim_link_scores_t *sums)
{
    const int64_t each = scores->num_negatives, own = count * each;
    const int64_t all = plim__mul_saturating_i64(scores->num_pairs, each + 1);
    const int64_t done = plim__mul_saturating_i64(pair, each + 1) + count;
    PLIM_TRY(read_pairs(scores, scores->pairs, pair, count));
    memcpy(scores->sources, scores->nodes, (size_t)count * sizeof *scores->sources);
    if (scores->num_types > 0)
        memcpy(scores->pair_types, scores->types, (size_t)count * sizeof *scores->types);
    memset(scores->above, 0, (size_t)count * sizeof *scores->above);
    PLIM_TRY(score(scores, count, done - count, all, scores->positives));
    for (int64_t first = 0; first < own; first += scores->chunk) {
        const int64_t some = plim__min_i64(scores->chunk, own - first);
        PLIM_TRY(fill_own(scores, pair, first, some));
        PLIM_TRY(score(scores, some, done + first, all, scores->scores));
        for (int64_t i = 0; i < some; i++) {
            const int64_t of = (first + i) / each;
            scores->above[of] += (scores->scores[i] > scores->positives[of]) +
                                 (scores->scores[i] >= scores->positives[of]);
        }
    }
    for (int64_t i = 0; i < count; i++) {
        const double rank = 0.5 * (double)scores->above[i] + 1;
        sums->mrr += 1 / rank;
        for (int k = 0; k < PLIM_LINK_HITS; k++)
            sums->hits[k] += rank <= (double)hits_at[k];
    }
    return PLIM_OK;
}

plim_status_t plim__link_scores_compare(plim__link_scores_t *scores, plim_link_scores_t *found_out)
{
    const double pairs = (double)scores->num_pairs;
    plim_link_scores_t found = PLIM_LINK_SCORES_INIT;
    found.num_pairs = scores->num_pairs;
    found.num_negatives = scores->num_negatives;
    found.shared = scores->form == SHARED;
    found.mrr = found.shared ? (double)NAN : 0;
    found.auc = (double)NAN;
    PLIM_TRY(plim__team_create_for(scores->job, plim__job_threads(scores->job), &scores->team));
    if (found.shared) {
        PLIM_TRY(compare_shared(scores, &found));
    } else {
        for (int64_t pair = 0; pair < scores->num_pairs; pair += scores->chunk)
            PLIM_TRY(compare_own(scores, pair,
                                 plim__min_i64(scores->chunk, scores->num_pairs - pair), &found));
        found.mrr /= pairs;
        for (int k = 0; k < PLIM_LINK_HITS; k++)
            found.hits[k] /= pairs;
    }
    *found_out = found;
    return PLIM_OK;
}

plim_status_t plim__link_scores_give(plim__link_scores_t *scores, plim__exact_take_fn take,
                                     void *context)
{
    PLIM_TRY(plim__team_create_for(scores->job, plim__job_threads(scores->job), &scores->team));
    for (int64_t first = 0; first < scores->num_pairs; first += scores->chunk) {
        const int64_t count = plim__min_i64(scores->chunk, scores->num_pairs - first);
        PLIM_TRY(read_pairs(scores, scores->pairs, first, count));
        PLIM_TRY(score(scores, count, first, scores->num_pairs, scores->scores));
        PLIM_TRY(take(context, first, count, 1, scores->scores));
    }
    return PLIM_OK;
}
