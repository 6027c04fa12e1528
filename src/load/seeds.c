#include "load/seeds.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/permute.h"
#include "base/radix.h"
#include "io/range_reader.h"
#include "store/file_check.h"
#include "store/labels.h"
#include "store/sweep.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define ORDER_STREAM 0x6f72646572u /* separates the keys of orders from those of draws */
#define NO_EPOCH INT64_MIN
#define READS 1024                       /* labels read at once */
#define MET_NODES ((int64_t)1 << 17)     /* whose repetitions are counted at once */
#define CHECK_CHUNK ((int64_t)256 << 10) /* of labels.npy when comparing checksums */

static const char *const split_files[3] = {"train.npy", "valid.npy", "test.npy"};

typedef struct split_seeds {
    int64_t count;
    int64_t *ids;     /* (count) */
    char *labels;     /* (count, stored_bytes); NULL without */
    int64_t labelled; /* entries with a label */
    int64_t known;    /* labels: classes, or known values of any column */
} split_seeds_t;

struct plim__seeds {
    plim__arena_t arena;
    bool listed;          /* a list, not the splits */
    const int64_t *given; /* the caller's list while it is copied; NULL: all, ascending */
    uint64_t seed;
    int64_t capacity; /* of a list */
    bool shuffled;    /* the training split has orders */
    bool has_times;
    int64_t *times;      /* (count) of a list's entries; NULL without */
    plim__dtype_t type;  /* of labels.npy */
    size_t stored_bytes; /* of an entry's labels, in the file and here */
    int64_t columns;     /* of values; 0 for classes */
    split_seeds_t splits[3];
    plim_links_t links;       /* copied; num_pairs 0: none. The training split counts pairs */
    int64_t batch_pairs;      /* of them in a batch */
    bool disjoint;            /* of links */
    plim__links_file_t *file; /* of links that are not held; NULL: none */
    int64_t num_nodes;
    double *sums[2];    /* (num_nodes) of links with weights: of sources, and of targets */
    int32_t *orders[2]; /* (count of the training split): of an even and of an odd epoch */
    int64_t epochs[2];  /* of these orders */
};

/* Buffers for reading: one key for each entry of any split, sorted by id. */
typedef struct seeds_work {
    plim__arena_t arena;
    uint64_t *keys; /* (total) id << position_bits | position over all splits */
    uint64_t *sort_scratch;
    int64_t total;
    int position_bits;
    plim__read_t *reads; /* (READS) */
} seeds_work_t;

/* Bytes of an entry's labels in labels.npy; 0 without. */
static size_t stored_bytes(const plim_dataset_t *dataset)
{
    const plim__manifest_file_t *file =
        plim__manifest_find(plim__dataset_manifest(dataset), "labels.npy");
    const int64_t columns = plim_dataset_info(dataset)->num_targets;
    return file == NULL ? 0 : plim__dtype_size(file->type) * (columns > 0 ? (size_t)columns : 1);
}

static bool in_file(const plim_links_t *links)
{
    return links->path != NULL || links->all_edges;
}

static bool has_orders(const plim__seeds_t *seeds)
{
    return seeds->shuffled && seeds->splits[PLIM_TRAIN].count <= PLIM__SEEDS_SHUFFLED;
}

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim__seeds_t *seeds = draft;
    for (int i = 0; i < 3; i++) {
        split_seeds_t *split = &seeds->splits[i];
        const size_t nodes = in_file(&seeds->links)       ? 0
                             : seeds->links.num_pairs > 0 ? 2
                                                          : 1; /* of an entry */
        split->ids = plim__arena_carve(arena, (size_t)split->count, nodes * sizeof *split->ids, 1);
        split->labels = plim__arena_carve(arena, (size_t)split->count, seeds->stored_bytes, 1);
    }
    if (seeds->has_times)
        seeds->times = plim__arena_carve(arena, (size_t)seeds->splits[PLIM_TRAIN].count,
                                         sizeof *seeds->times, 1);
    for (int i = 0; i < 2 && has_orders(seeds); i++)
        seeds->orders[i] = plim__arena_carve(arena, (size_t)seeds->splits[PLIM_TRAIN].count,
                                             sizeof *seeds->orders[i], 1);
    const double *const given[] = {seeds->links.source_sums, seeds->links.target_sums};
    for (int i = 0; i < 2; i++)
        if (given[i] != NULL)
            seeds->sums[i] =
                plim__arena_carve(arena, (size_t)seeds->num_nodes, sizeof *seeds->sums[i], 1);
}

static void lay_out_work(plim__arena_t *arena, void *draft)
{
    seeds_work_t *work = draft;
    work->keys = plim__arena_carve(arena, (size_t)work->total, sizeof *work->keys, 1);
    work->sort_scratch =
        plim__arena_carve(arena, (size_t)work->total, sizeof *work->sort_scratch, 1);
    work->reads = plim__arena_carve(arena, READS, sizeof *work->reads, 1);
}

/* The object for the three splits. */
static plim__seeds_t splits_draft(const plim_dataset_t *dataset)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const plim__manifest_file_t *file =
        plim__manifest_find(plim__dataset_manifest(dataset), "labels.npy");
    plim__seeds_t draft = {.shuffled = true,
                           .type = file != NULL ? file->type : PLIM__NPY_I64,
                           .stored_bytes = stored_bytes(dataset),
                           .columns =
                               info->label_kind == PLIM_LABELS_VALUES ? info->num_targets : 0,
                           .epochs = {NO_EPOCH, NO_EPOCH}};
    for (int i = 0; i < 3; i++)
        draft.splits[i].count = info->num_split[i];
    return draft;
}

/* The object for a list, which stands in place of the training split. */
static plim__seeds_t list_draft(const plim_dataset_t *dataset, int64_t count, bool shuffled,
                                bool times)
{
    plim__seeds_t draft = splits_draft(dataset);
    draft.shuffled = shuffled;
    draft.has_times = times;
    draft.splits[PLIM_TRAIN].count = count;
    draft.splits[PLIM_VALID].count = draft.splits[PLIM_TEST].count = 0;
    return draft;
}

static plim__seeds_t links_draft(const plim_dataset_t *dataset, const plim_links_t *links,
                                 bool shuffled, bool times)
{
    plim__seeds_t draft = list_draft(dataset, links->num_pairs, shuffled, times);
    draft.stored_bytes = 0;
    draft.columns = 0;
    draft.links = *links;
    draft.num_nodes = plim_dataset_info(dataset)->num_nodes;
    return draft;
}

static int64_t total_of(const plim__seeds_t *seeds)
{
    return seeds->splits[0].count + seeds->splits[1].count + seeds->splits[2].count;
}

static size_t work_bytes(int64_t total)
{
    seeds_work_t work = {.total = total};
    return plim__object_bytes(lay_out_work, &work, sizeof work);
}

static plim__range_reader_params_t reader_params(const plim_dataset_t *dataset)
{
    return (plim__range_reader_params_t){
        .depth = 32, .max_read = stored_bytes(dataset), .merge_distance = (size_t)32 << 10};
}

size_t plim__seeds_stays(const plim_dataset_t *dataset)
{
    plim__seeds_t draft = splits_draft(dataset);
    return plim__object_bytes(lay_out, &draft, sizeof draft);
}

size_t plim__seeds_list_stays(const plim_dataset_t *dataset, int64_t count, bool shuffled,
                              bool times)
{
    plim__seeds_t draft = list_draft(dataset, count, shuffled, times);
    return plim__object_bytes(lay_out, &draft, sizeof draft);
}

size_t plim__seeds_links_stays(const plim_job_t *job, const plim_dataset_t *dataset,
                               const plim_links_t *links, bool shuffled, bool times)
{
    plim__seeds_t draft = links_draft(dataset, links, shuffled, times);
    return plim__add_saturating_size(
        plim__object_bytes(lay_out, &draft, sizeof draft),
        in_file(links) ? plim__links_file_estimate(job, links, shuffled) : 0);
}

size_t plim__seeds_own_stays(const plim_job_t *job, const plim_dataset_t *dataset,
                             const plim__seeds_t *seeds)
{
    return seeds->links.num_pairs > 0
               ? plim__seeds_links_stays(job, dataset, &seeds->links, seeds->shuffled,
                                         seeds->has_times)
               : plim__seeds_list_stays(dataset, seeds->splits[PLIM_TRAIN].count, seeds->shuffled,
                                        seeds->has_times);
}

size_t plim__seeds_list_work(const plim_job_t *job, const plim_dataset_t *dataset, int64_t count)
{
    const plim__range_reader_params_t params = reader_params(dataset);
    const size_t reader =
        stored_bytes(dataset) > 0 ? plim__range_reader_estimate(job->io_engine, &params) : 0;
    return plim__add_saturating_size(work_bytes(count), reader);
}

size_t plim__seeds_estimate(const plim_job_t *job, const plim_dataset_t *dataset)
{
    const plim__seeds_t draft = splits_draft(dataset);
    const plim__range_reader_params_t params = reader_params(dataset);
    const size_t check = plim__sweep_minimum(job, CHECK_CHUNK);
    size_t labels = plim__range_reader_estimate(job->io_engine, &params);
    labels = stored_bytes(dataset) == 0 ? 0 : labels > check ? labels : check;
    return plim__add_saturating_size(
        plim__add_saturating_size(plim__seeds_stays(dataset), work_bytes(total_of(&draft))),
        labels);
}

static plim_status_t read_ids(const plim_dataset_t *dataset, int number, split_seeds_t *split)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const plim__manifest_file_t *entry =
        plim__manifest_find(plim__dataset_manifest(dataset), split_files[number]);
    const int64_t bound = info->num_graphs > 0 ? info->num_graphs : info->num_nodes;
    if (split->count == 0)
        return PLIM_OK;
    PLIM_TRY(plim__dataset_read_whole(dataset, entry, split->ids));
    for (int64_t i = 0; i < split->count; i++)
        if (split->ids[i] < 0 || split->ids[i] >= bound)
            return plim__fail(PLIM_ERR_DATA,
                              "%s/%s: entry %lld is %lld, but there are %lld %s; make the dataset "
                              "again",
                              plim__dataset_path(dataset), entry->name, (long long)i,
                              (long long)split->ids[i], (long long)bound,
                              info->num_graphs > 0 ? "graphs" : "nodes");
    return PLIM_OK;
}

/* Sorts the entries of all splits by id, and checks that none occurs twice in a split. */
static plim_status_t sort_entries(const plim_dataset_t *dataset, const plim__seeds_t *seeds,
                                  seeds_work_t *work)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const int id_bits = plim__radix_bits(info->num_graphs > 0 ? info->num_graphs : info->num_nodes);
    work->position_bits = plim__radix_bits(work->total);
    if (id_bits + work->position_bits > 64)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "%s: splits of %lld entries in all over %lld nodes are too large for "
                          "this version",
                          plim__dataset_path(dataset), (long long)work->total,
                          (long long)info->num_nodes);
    int64_t position = 0;
    for (int i = 0; i < 3; i++)
        for (int64_t j = 0; j < seeds->splits[i].count; j++, position++)
            work->keys[position] =
                (uint64_t)seeds->splits[i].ids[j] << work->position_bits | (uint64_t)position;
    uint64_t *sorted = plim__radix_sort(work->keys, work->sort_scratch, work->total,
                                        id_bits + work->position_bits);
    work->keys = sorted;
    const uint64_t mask = ((uint64_t)1 << work->position_bits) - 1;
    for (int64_t i = 1; i < work->total && !seeds->listed; i++) {
        int64_t start = 0;
        if ((sorted[i] & ~mask) != (sorted[i - 1] & ~mask))
            continue;
        for (int j = 0; j < 3; start += seeds->splits[j++].count) {
            int64_t first = (int64_t)(sorted[i - 1] & mask) - start;
            int64_t second = (int64_t)(sorted[i] & mask) - start;
            if (first >= 0 && second < seeds->splits[j].count)
                return plim__fail(PLIM_ERR_DATA,
                                  "%s/%s: entries %lld and %lld are both %lld, but a split must "
                                  "not repeat entries; remove one and make the dataset again",
                                  plim__dataset_path(dataset), split_files[j], (long long)first,
                                  (long long)second, (long long)seeds->splits[j].ids[first]);
        }
    }
    return PLIM_OK;
}

/* The destination of the label of an entry of any split. */
static char *label_place(const plim__seeds_t *seeds, int64_t position)
{
    int i = 0;
    while (position >= seeds->splits[i].count)
        position -= seeds->splits[i++].count;
    return seeds->splits[i].labels + (size_t)position * seeds->stored_bytes;
}

static plim_status_t pick_labels(const plim__seeds_t *seeds, const seeds_work_t *work,
                                 plim__range_reader_t *reader, const plim__file_t *file)
{
    const uint64_t mask = ((uint64_t)1 << work->position_bits) - 1;
    for (int64_t first = 0; first < work->total; first += READS) {
        int64_t count = plim__min_i64(READS, work->total - first);
        for (int64_t i = 0; i < count; i++) {
            uint64_t key = work->keys[first + i];
            work->reads[i] =
                (plim__read_t){.offset = PLIM__NPY_HEADER + (int64_t)(key >> work->position_bits) *
                                                                (int64_t)seeds->stored_bytes,
                               .size = seeds->stored_bytes,
                               .to = label_place(seeds, (int64_t)(key & mask))};
        }
        PLIM_TRY(plim__range_reader_read(reader, file, work->reads, count));
    }
    return PLIM_OK;
}

static int64_t class_at(const plim__seeds_t *seeds, const split_seeds_t *split, int64_t place)
{
    int64_t class;
    plim__labels_widen(seeds->type, split->labels + (size_t)place * seeds->stored_bytes, 1, &class);
    return class;
}

static plim_status_t check_classes(const plim_dataset_t *dataset, const plim__seeds_t *seeds)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    if (info->label_kind != PLIM_LABELS_CLASSES)
        return PLIM_OK;
    for (int i = 0; i < 3; i++) {
        for (int64_t j = 0; j < seeds->splits[i].count; j++) {
            const int64_t class = class_at(seeds, &seeds->splits[i], j);
            if (class < -1 || class >= info->num_classes)
                return plim__fail(PLIM_ERR_DATA,
                                  "%s/labels.npy: entry %lld is %lld, but there are %lld classes; "
                                  "make the dataset again",
                                  plim__dataset_path(dataset), (long long)seeds->splits[i].ids[j],
                                  (long long)class, (long long)info->num_classes);
        }
    }
    return PLIM_OK;
}

/* Labels are picked from all over the file, so its checksums are compared as a whole first. */
static plim_status_t check_labels(const plim_job_t *job, const plim__file_t *file,
                                  const plim__manifest_file_t *entry)
{
    const plim__sweep_t sweep = {.file = file,
                                 .entry = entry,
                                 .start = PLIM__NPY_HEADER,
                                 .end = entry->bytes,
                                 .chunk = CHECK_CHUNK,
                                 .phase = "checking labels"};
    return plim__sweep_run(job, &sweep);
}

static plim_status_t read_labels(const plim_job_t *job, const plim_dataset_t *dataset,
                                 const plim__seeds_t *seeds, const seeds_work_t *work, bool checked)
{
    const plim__range_reader_params_t params = reader_params(dataset);
    const plim__manifest_file_t *entry =
        plim__manifest_find(plim__dataset_manifest(dataset), "labels.npy");
    plim__range_reader_t *reader;
    plim__file_t file;
    if (seeds->stored_bytes == 0 || work->total == 0)
        return PLIM_OK;
    PLIM_TRY(plim__dataset_file_open(dataset, entry, true, &file));
    plim_status_t status = checked ? PLIM_OK : check_labels(job, &file, entry);
    if (status == PLIM_OK)
        status = plim__range_reader_create(job, &params, &reader);
    if (status == PLIM_OK) {
        status = pick_labels(seeds, work, reader, &file);
        plim__range_reader_destroy(reader);
    }
    plim__file_close(&file);
    return status == PLIM_OK ? check_classes(dataset, seeds) : status;
}

/* The number of labels of one entry. */
static int64_t labels_of(const plim__seeds_t *seeds, const split_seeds_t *split, int64_t place)
{
    const void *at = split->labels + (size_t)place * seeds->stored_bytes;
    int64_t known = 0;
    if (seeds->columns == 0)
        return class_at(seeds, split, place) >= 0;
    for (int64_t i = 0; i < seeds->columns; i++)
        known += !isnan(((const float *)at)[i]);
    return known;
}

static void count_labels(plim__seeds_t *seeds)
{
    for (int i = 0; i < 3 && seeds->stored_bytes > 0; i++) {
        split_seeds_t *split = &seeds->splits[i];
        for (int64_t j = 0; j < split->count; j++) {
            const int64_t known = labels_of(seeds, split, j);
            split->labelled += known > 0;
            split->known += known;
        }
    }
}

/* Whether all entries of a list exist. */
static plim_status_t check_ids(const plim_dataset_info_t *info, const int64_t *nodes, int64_t count)
{
    const int64_t bound = info->num_graphs > 0 ? info->num_graphs : info->num_nodes;
    for (int64_t i = 0; i < count; i++)
        if (nodes[i] < 0 || nodes[i] >= bound)
            return plim__fail(PLIM_ERR_USAGE,
                              "seed %lld of the list is %lld, but there are %lld %s", (long long)i,
                              (long long)nodes[i], (long long)bound,
                              info->num_graphs > 0 ? "graphs" : "nodes");
    return PLIM_OK;
}

/* Copies the caller's list, or lists all. */
static plim_status_t list_ids(const plim_dataset_info_t *info, plim__seeds_t *seeds)
{
    split_seeds_t *list = &seeds->splits[PLIM_TRAIN];
    if (seeds->given == NULL) {
        for (int64_t i = 0; i < list->count; i++)
            list->ids[i] = i;
        return PLIM_OK;
    }
    PLIM_TRY(check_ids(info, seeds->given, list->count));
    memcpy(list->ids, seeds->given, (size_t)list->count * sizeof *list->ids);
    return PLIM_OK;
}

plim_status_t plim__seeds_replace(plim__seeds_t *seeds, const plim_dataset_info_t *info,
                                  const int64_t *nodes, int64_t count)
{
    split_seeds_t *list = &seeds->splits[PLIM_TRAIN];
    if (seeds->stored_bytes > 0 || has_orders(seeds) || seeds->has_times ||
        seeds->links.num_pairs > 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "links, and seeds with labels or times, or in a shuffled order, cannot "
                          "be replaced");
    if (count < 1 || count > seeds->capacity)
        return plim__fail(PLIM_ERR_USAGE, "%lld seeds; the stream was added with %lld",
                          (long long)count, (long long)seeds->capacity);
    PLIM_TRY(check_ids(info, nodes, count));
    memcpy(list->ids, nodes, (size_t)count * sizeof *list->ids);
    list->count = count;
    return PLIM_OK;
}

static plim_status_t fill(const plim_job_t *job, const plim_dataset_t *dataset, bool checked,
                          plim__seeds_t *seeds)
{
    seeds_work_t draft = {.total = total_of(seeds)}, *work;
    if (seeds->listed)
        PLIM_TRY(list_ids(plim_dataset_info(dataset), seeds));
    for (int i = 0; i < 3 && !seeds->listed; i++)
        PLIM_TRY(read_ids(dataset, i, &seeds->splits[i]));
    PLIM_TRY(plim__object_create(job->ledger, "seeds and labels", lay_out_work, &draft,
                                 sizeof draft, &draft.arena, &work));
    plim_status_t status = sort_entries(dataset, seeds, work);
    if (status == PLIM_OK)
        status = read_labels(job, dataset, seeds, work, checked);
    plim__arena_destroy(&work->arena);
    if (status == PLIM_OK)
        count_labels(seeds);
    return status;
}

static plim_status_t create(const plim_job_t *job, const plim_dataset_t *dataset,
                            plim__seeds_t *draft, bool checked, plim__seeds_t **seeds_out)
{
    plim__seeds_t *seeds;
    PLIM_TRY(plim__object_create(job->ledger, "seeds and labels", lay_out, draft, sizeof *draft,
                                 &draft->arena, &seeds));
    plim_status_t status = fill(job, dataset, checked, seeds);
    seeds->given = NULL;
    if (status != PLIM_OK) {
        plim__seeds_destroy(seeds);
        return status;
    }
    *seeds_out = seeds;
    return PLIM_OK;
}

plim_status_t plim__seeds_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                 uint64_t seed, plim__seeds_t **seeds_out)
{
    plim__seeds_t draft = splits_draft(dataset);
    draft.seed = seed;
    return create(job, dataset, &draft, false, seeds_out);
}

plim_status_t plim__seeds_create_list(const plim_job_t *job, const plim_dataset_t *dataset,
                                      uint64_t seed, const int64_t *nodes, const int64_t *times,
                                      int64_t count, bool shuffled, bool labels,
                                      plim__seeds_t **seeds_out)
{
    plim__seeds_t draft = list_draft(dataset, count, shuffled, times != NULL);
    draft.seed = seed;
    draft.listed = true;
    draft.given = nodes;
    draft.capacity = count;
    if (!labels) {
        draft.stored_bytes = 0;
        draft.columns = 0;
    }
    PLIM_TRY(create(job, dataset, &draft, true, seeds_out));
    if (times != NULL)
        memcpy((*seeds_out)->times, times, (size_t)count * sizeof *times);
    return PLIM_OK;
}

/* Copies the caller's pairs and weights. */
static plim_status_t copy_links(const plim_job_t *job, const plim_dataset_t *dataset,
                                plim__seeds_t *seeds)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    plim_links_t *links = &seeds->links;
    const int64_t pairs = links->num_pairs;
    int64_t *ids = seeds->splits[PLIM_TRAIN].ids;
    const double **given[] = {&links->source_sums, &links->target_sums};
    if (in_file(links)) {
        PLIM_TRY(plim__links_file_create(job, dataset, links, seeds->shuffled, &seeds->file));
        links->path = plim__links_file_path(seeds->file);
    } else {
        PLIM_TRY(check_ids(info, links->sources, pairs));
        PLIM_TRY(check_ids(info, links->targets, pairs));
        memcpy(ids, links->sources, (size_t)pairs * sizeof *ids);
        memcpy(ids + pairs, links->targets, (size_t)pairs * sizeof *ids);
        links->sources = ids;
        links->targets = ids + pairs;
    }
    for (int i = 0; i < 2; i++) {
        if (*given[i] == NULL)
            continue;
        PLIM_TRY(plim__links_check_sums(*given[i], seeds->num_nodes));
        memcpy(seeds->sums[i], *given[i], (size_t)seeds->num_nodes * sizeof(double));
        *given[i] = seeds->sums[i];
    }
    return PLIM_OK;
}

plim_status_t plim__seeds_create_links(const plim_job_t *job, const plim_dataset_t *dataset,
                                       uint64_t seed, const plim_links_t *links,
                                       const int64_t *times, int64_t batch_pairs, bool shuffled,
                                       bool disjoint, plim__seeds_t **seeds_out)
{
    plim__seeds_t draft = links_draft(dataset, links, shuffled, times != NULL), *seeds;
    draft.disjoint = disjoint;
    draft.seed = seed;
    draft.batch_pairs = batch_pairs;
    PLIM_TRY(plim__object_create(job->ledger, "seeds and labels", lay_out, &draft, sizeof draft,
                                 &draft.arena, &seeds));
    const plim_status_t status = copy_links(job, dataset, seeds);
    if (status != PLIM_OK) {
        plim__seeds_destroy(seeds);
        return status;
    }
    if (times != NULL)
        memcpy(seeds->times, times, (size_t)links->num_pairs * sizeof *times);
    *seeds_out = seeds;
    return PLIM_OK;
}

const plim_links_t *plim__seeds_links(const plim__seeds_t *seeds)
{
    return seeds->links.num_pairs > 0 ? &seeds->links : NULL;
}

int64_t plim__seeds_batch_pairs(const plim__seeds_t *seeds)
{
    return seeds->batch_pairs;
}

void plim__seeds_destroy(plim__seeds_t *seeds)
{
    if (seeds == NULL)
        return;
    plim__links_file_destroy(seeds->file);
    plim__arena_destroy(&seeds->arena);
}

int64_t plim__seeds_count(const plim__seeds_t *seeds, plim_split_t split)
{
    return split == PLIM_TRAIN && seeds->links.num_pairs > 0
               ? plim__links_seeds(&seeds->links, seeds->batch_pairs)
               : seeds->splits[split].count;
}

int64_t plim__seeds_repeats(const plim__seeds_t *seeds, int64_t num_nodes)
{
    const split_seeds_t *list = &seeds->splits[PLIM_TRAIN];
    uint64_t met[MET_NODES / 64];
    int64_t repeats = 0;
    for (int64_t first = 0; first < num_nodes; first += MET_NODES) {
        memset(met, 0, sizeof met);
        for (int64_t i = 0; i < list->count; i++) {
            const int64_t node = list->ids[i] - first;
            if (node < 0 || node >= MET_NODES)
                continue;
            repeats += (int64_t)(met[node / 64] >> node % 64 & 1);
            met[node / 64] |= (uint64_t)1 << node % 64;
        }
    }
    return repeats;
}

int64_t plim__seeds_labelled(const plim__seeds_t *seeds, plim_split_t split)
{
    return seeds->splits[split].labelled;
}

size_t plim__seeds_label_bytes(const plim__seeds_t *seeds)
{
    return seeds->columns > 0        ? (size_t)seeds->columns * sizeof(float)
           : seeds->stored_bytes > 0 ? sizeof(int64_t)
                                     : 0;
}

const int64_t *plim__seeds_ids(const plim__seeds_t *seeds, plim_split_t split)
{
    return seeds->splits[split].ids;
}

static uint64_t order_key(const plim__seeds_t *seeds, int64_t epoch)
{
    return plim__rng_key(seeds->seed, (uint64_t)epoch, PLIM_TRAIN, ORDER_STREAM);
}

void plim__seeds_prepare(plim__seeds_t *seeds, int64_t epoch)
{
    const int which = (int)(epoch & 1);
    const uint64_t key = order_key(seeds, epoch);
    int32_t *order = seeds->orders[which];
    uint64_t counter = 0;
    if (order == NULL || seeds->epochs[which] == epoch)
        return;
    for (int32_t i = 0; i < (int32_t)seeds->splits[PLIM_TRAIN].count; i++) {
        uint64_t j = plim__rng_below(key, &counter, (uint64_t)i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    seeds->epochs[which] = epoch;
}

/* Hands out the labels of entries place … place + count - 1. */
static void take_labels(const plim__seeds_t *seeds, const split_seeds_t *split, int64_t place,
                        int64_t count, void *labels_out)
{
    const char *from = split->labels + (size_t)place * seeds->stored_bytes;
    if (seeds->columns == 0)
        plim__labels_widen(seeds->type, from, count, labels_out);
    else
        memcpy(labels_out, from, (size_t)count * seeds->stored_bytes);
}

static void take_places(const plim__seeds_t *seeds, const split_seeds_t *split,
                        const int32_t *places, int64_t count, int64_t *ids_out, char *labels_out)
{
    const size_t size = plim__seeds_label_bytes(seeds);
    for (int64_t i = 0; i < count; i++)
        ids_out[i] = split->ids[places[i]];
    for (int64_t i = 0; i < count && labels_out != NULL; i++)
        take_labels(seeds, split, places[i], 1, labels_out + (size_t)i * size);
}

/* The positions of entries in the order of an epoch, in a split too large to be shuffled. */
static void permute_positions(const plim__seeds_t *seeds, int64_t epoch, int64_t first,
                              int64_t count, int64_t *positions_out)
{
    const plim__permute_t permute =
        plim__permute_make((uint64_t)seeds->splits[PLIM_TRAIN].count, order_key(seeds, epoch));
    for (int64_t i = 0; i < count; i++)
        positions_out[i] = first + i;
    plim__permute_many(&permute, positions_out, count, false);
}

/* For such a split: ids_out holds the positions first. */
static void take_permuted(const plim__seeds_t *seeds, int64_t epoch, int64_t first, int64_t count,
                          int64_t *ids_out, char *labels_out)
{
    const split_seeds_t *split = &seeds->splits[PLIM_TRAIN];
    const size_t size = plim__seeds_label_bytes(seeds);
    permute_positions(seeds, epoch, first, count, ids_out);
    for (int64_t i = 0; i < count; i++) {
        if (labels_out != NULL)
            take_labels(seeds, split, ids_out[i], 1, labels_out + (size_t)i * size);
        ids_out[i] = split->ids[ids_out[i]];
    }
}

static void order_of(const void *seeds, int64_t epoch, int64_t first, int64_t count,
                     int64_t *positions_out)
{
    const bool present = plim__seeds_positions(seeds, true, epoch, first, count, positions_out);
    assert(present);
    (void)present;
}

/* The pairs of a batch, from the list or the file. */
static plim_status_t take_pairs(const plim__seeds_t *seeds, const plim__negatives_t *negatives,
                                bool shuffled, const plim__links_batch_t *batch,
                                int64_t *sources_out, int64_t *targets_out)
{
    const plim__offsets_t *offsets = negatives != NULL ? negatives->lists->offsets : NULL;
    const plim__links_out_t out = {.sources = sources_out, .targets = targets_out};
    if (seeds->file != NULL && shuffled)
        return plim__links_file_take(seeds->file, offsets, order_of, seeds, batch->epoch,
                                     batch->first, batch->pairs, out);
    if (shuffled)
        order_of(seeds, batch->epoch, batch->first, batch->pairs, sources_out);
    for (int64_t i = 0; i < batch->pairs && !shuffled; i++)
        sources_out[i] = batch->first + i;
    if (seeds->file != NULL)
        return plim__links_file_read(seeds->file, offsets, sources_out, batch->pairs, out);
    for (int64_t i = 0; i < batch->pairs; i++) {
        const int64_t position = sources_out[i];
        sources_out[i] = batch->links->sources[position];
        targets_out[i] = batch->links->targets[position];
    }
    return PLIM_OK;
}

plim_status_t plim__seeds_take_links(const plim__seeds_t *seeds, plim__negatives_t *negatives,
                                     bool shuffled, int64_t epoch, int64_t first, int64_t count,
                                     int64_t *ids_out)
{
    const plim_links_t *links = &seeds->links;
    const int64_t each = plim__links_places(links, seeds->batch_pairs);
    for (int64_t step = first / each; count > 0; step++) {
        const int64_t pair = step * seeds->batch_pairs;
        const int64_t pairs = plim__min_i64(seeds->batch_pairs, links->num_pairs - pair);
        const int64_t places = plim__links_places(links, pairs);
        int64_t *targets = ids_out + plim__links_targets(links, pairs);
        assert(places <= count);
        const plim__links_batch_t batch = {links, seeds->num_nodes, seeds->seed, epoch, pair,
                                           pairs, seeds->disjoint};
        PLIM_TRY(take_pairs(seeds, negatives, shuffled, &batch, ids_out, targets));
        PLIM_TRY(
            plim__negatives_draw(&batch, negatives, ids_out, ids_out + pairs, targets + pairs));
        ids_out += places;
        count -= places;
    }
    return PLIM_OK;
}

plim_status_t plim__seeds_link_types(const plim__seeds_t *seeds, const plim__negatives_t *negatives,
                                     bool shuffled, int64_t epoch, int64_t first, int64_t count,
                                     const int64_t *positions, int64_t *types_out)
{
    const plim__offsets_t *offsets = negatives != NULL ? negatives->lists->offsets : NULL;
    const plim__links_out_t out = {.types = types_out};
    return shuffled ? plim__links_file_take(seeds->file, offsets, order_of, seeds, epoch, first,
                                            count, out)
                    : plim__links_file_read(seeds->file, offsets, positions, count, out);
}

void plim__seeds_take(const plim__seeds_t *seeds, plim_split_t split, bool shuffled, int64_t epoch,
                      int64_t first, int64_t count, int64_t *ids_out, void *labels_out)
{
    const split_seeds_t *from = &seeds->splits[split];
    if (seeds->stored_bytes == 0)
        labels_out = NULL;
    if (shuffled && seeds->orders[epoch & 1] != NULL) {
        assert(seeds->epochs[epoch & 1] == epoch);
        take_places(seeds, from, seeds->orders[epoch & 1] + first, count, ids_out, labels_out);
    } else if (shuffled) {
        take_permuted(seeds, epoch, first, count, ids_out, labels_out);
    } else {
        memcpy(ids_out, from->ids + first, (size_t)count * sizeof *ids_out);
        if (labels_out != NULL)
            take_labels(seeds, from, first, count, labels_out);
    }
}

bool plim__seeds_positions(const plim__seeds_t *seeds, bool shuffled, int64_t epoch, int64_t first,
                           int64_t count, int64_t *positions_out)
{
    const int which = (int)(epoch & 1);
    if (shuffled && seeds->orders[which] == NULL) {
        permute_positions(seeds, epoch, first, count, positions_out);
        return true;
    }
    if (shuffled && seeds->epochs[which] != epoch)
        return false;
    for (int64_t i = 0; i < count; i++)
        positions_out[i] = shuffled ? seeds->orders[which][first + i] : first + i;
    return true;
}

/* The times of whole batches of places. */
static bool link_times(const plim__seeds_t *seeds, bool shuffled, int64_t epoch, int64_t first,
                       int64_t count, int64_t *times_out)
{
    const plim_links_t *links = &seeds->links;
    const int64_t each = plim__links_places(links, seeds->batch_pairs);
    for (int64_t step = first / each, places; count > 0; step++, count -= places) {
        const int64_t pair = step * seeds->batch_pairs;
        const int64_t pairs = plim__min_i64(seeds->batch_pairs, links->num_pairs - pair);
        places = plim__links_places(links, pairs);
        (void)plim__seeds_positions(seeds, shuffled, epoch, pair, pairs, times_out);
        for (int64_t i = 0; i < pairs; i++)
            times_out[i] = seeds->times[times_out[i]];
        plim__links_times(links, pairs, times_out);
        times_out += places;
    }
    return true;
}

bool plim__seeds_times(const plim__seeds_t *seeds, bool shuffled, int64_t epoch, int64_t first,
                       int64_t count, int64_t *times_out)
{
    if (!seeds->has_times)
        return false;
    if (seeds->links.num_pairs > 0)
        return link_times(seeds, shuffled, epoch, first, count, times_out);
    (void)plim__seeds_positions(seeds, shuffled, epoch, first, count, times_out);
    for (int64_t i = 0; i < count; i++)
        times_out[i] = seeds->times[times_out[i]];
    return true;
}

int64_t plim__seeds_labels(const plim__seeds_t *seeds, plim_split_t split, bool shuffled,
                           int64_t epoch, int64_t first, int64_t count)
{
    const split_seeds_t *from = &seeds->splits[split];
    const int64_t each = seeds->columns > 0 ? seeds->columns : 1;
    int64_t known = 0;
    if (seeds->stored_bytes == 0 || from->known == from->count * each)
        return seeds->stored_bytes == 0 ? 0 : count * each;
    const int32_t *order = shuffled ? seeds->orders[epoch & 1] : NULL;
    const plim__permute_t permute =
        plim__permute_make((uint64_t)from->count, order_key(seeds, epoch));
    for (int64_t i = first; i < first + count; i++) {
        int64_t place = i;
        if (order != NULL)
            place = order[i];
        else if (shuffled)
            place = (int64_t)plim__permute_forward(&permute, (uint64_t)place);
        known += labels_of(seeds, from, place);
    }
    return known;
}

bool plim__graph_nodes(const int64_t *graph_indptr, const int64_t *graphs, int64_t num_graphs,
                       int64_t capacity, int64_t *nodes_out, int64_t *count_out)
{
    int64_t count = 0;
    for (int64_t i = 0; i < num_graphs; i++) {
        const int64_t end = graph_indptr[graphs[i] + 1];
        if (end - graph_indptr[graphs[i]] > capacity - count)
            return false;
        for (int64_t node = graph_indptr[graphs[i]]; node < end; node++)
            nodes_out[count++] = node;
    }
    *count_out = count;
    return true;
}
