/*
 * Reads a dataset's files once, in parallel, for checksums, invariants and statistics together.
 *
 *     files ─► chunks (the bytes of a checksum, or a sample) ─► workers: read ahead, hash, scan
 *           ─► joined in the order of the chunks ─► report
 *
 * A file comes after those that it is checked against (indices after indptr). The error of the
 * first chunk in that order is reported.
 */
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/params.h"
#include "base/printable.h"
#include "base/threads.h"
#include "io/engine.h"
#include "store/file_check.h"
#include "store/scan.h"
#include "store/unique.h"

#include <string.h>

#define XXH_INLINE_ALL /* for the size of XXH3_state_t */
#include <xxhash.h>

#define DEPTH 4                      /* blocks read ahead by a worker */
#define BLOCK_MOST ((size_t)1 << 20) /* largest and */
#define BLOCK_MIN ((size_t)64 << 10) /* smallest bytes of a block */
#define SAMPLE_CHUNKS 64
#define SAMPLE_BYTES ((int64_t)256 << 10)

/* One file and its chunks: chunk i is [i * stride, i * stride + length), up to the end. */
typedef struct inspected_file {
    plim__file_t file;
    const plim__manifest_file_t *entry;
    plim__scan_rule_t rule;
    plim__joint_t joint;
    int64_t first_chunk;
    int64_t num_chunks;
    int64_t stride;
    int64_t length;
} inspected_file_t;

typedef struct inspect_worker {
    plim__scan_t scan;
    plim__engine_t *engine;
    XXH3_state_t *state;
    char *blocks[DEPTH];
    plim__op_t ops[DEPTH];
} inspect_worker_t;

typedef struct inspection {
    plim__arena_t arena;
    const plim_job_t *job;
    const plim_dataset_t *dataset;
    bool whole;
    size_t block;
    int num_workers;
    inspect_worker_t *workers;
    int num_sources;
    inspected_file_t sources[PLIM__FILES_MAX];
    int64_t num_chunks;
    int64_t bytes_total;
    int64_t bytes_done; /* written by take_chunk only */
} inspection_t;

#define ID_OFFSETS PLIM__ID_OFFSETS ".npy"
#define CLASS_OFFSETS PLIM__CLASS_OFFSETS ".npy"
#define TYPE_OFFSETS PLIM__TYPE_OFFSETS ".npy"

static plim__scan_rule_t rule_of(const plim__manifest_t *manifest,
                                 const plim__manifest_file_t *entry)
{
    static const struct {
        const char *name;
        plim__scan_kind_t kind;
    } kinds[] = {
        {"indptr.npy", PLIM__SCAN_OFFSETS},  {"graph_indptr.npy", PLIM__SCAN_OFFSETS},
        {"indices.npy", PLIM__SCAN_INDICES}, {"labels.npy", PLIM__SCAN_CLASSES},
        {"train.npy", PLIM__SCAN_ROWS},      {"valid.npy", PLIM__SCAN_ROWS},
        {"test.npy", PLIM__SCAN_ROWS},       {"features.npy", PLIM__SCAN_VALUES},
        {"edge_type.npy", PLIM__SCAN_ROWS},  {"edge_id.npy", PLIM__SCAN_ROWS},
        {ID_OFFSETS, PLIM__SCAN_OFFSETS},    {CLASS_OFFSETS, PLIM__SCAN_OFFSETS},
        {TYPE_OFFSETS, PLIM__SCAN_OFFSETS},
    };
    const plim_dataset_info_t *info = &manifest->info;
    plim__scan_rule_t rule = {.kind = PLIM__SCAN_BYTES, .type = entry->type};
    (void)plim__manifest_count(entry, &rule.count);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(entry->name, kinds[i].name) == 0)
            rule.kind = kinds[i].kind;
    rule.degrees = strcmp(entry->name, "indptr.npy") == 0;
    if (rule.kind == PLIM__SCAN_OFFSETS)
        rule.bound = rule.degrees ? info->num_edges : info->num_nodes;
    if (strcmp(entry->name, ID_OFFSETS) == 0)
        rule.bound = plim__manifest_find(manifest, PLIM__ID_TEXT ".npy")->shape[0];
    if (strcmp(entry->name, CLASS_OFFSETS) == 0)
        rule.bound = plim__manifest_find(manifest, PLIM__CLASS_TEXT ".npy")->shape[0];
    if (strcmp(entry->name, TYPE_OFFSETS) == 0)
        rule.bound = plim__manifest_find(manifest, PLIM__TYPE_TEXT ".npy")->shape[0];
    if (rule.kind == PLIM__SCAN_INDICES)
        rule.bound = info->num_nodes;
    if (rule.kind == PLIM__SCAN_CLASSES) {
        rule.bound = info->num_classes;
        if (info->label_kind == PLIM_LABELS_VALUES)
            rule.kind = PLIM__SCAN_VALUES;
    }
    if (rule.kind == PLIM__SCAN_ROWS)
        rule.bound = info->num_graphs > 0 ? info->num_graphs : info->num_nodes;
    if (strcmp(entry->name, "edge_type.npy") == 0)
        rule.bound = info->num_edge_types;
    if (strcmp(entry->name, "edge_id.npy") == 0)
        rule.bound = INT64_MAX;
    return rule;
}

/* Order of the files: offsets of degrees, files checked by themselves, indices, values. */
static int turn_of(const plim__scan_rule_t *rule)
{
    return rule->degrees                      ? 0
           : rule->kind == PLIM__SCAN_INDICES ? 2
           : rule->kind == PLIM__SCAN_VALUES  ? 3
                                              : 1;
}

/* Without `whole`, reads all of a file, a sample, or nothing. */
static void choose_chunks(inspected_file_t *source, bool whole)
{
    const int64_t bytes = source->entry->bytes;
    bool sampled = source->rule.kind == PLIM__SCAN_VALUES && bytes > SAMPLE_CHUNKS * SAMPLE_BYTES;
    bool wanted = source->rule.degrees || source->rule.kind == PLIM__SCAN_CLASSES ||
                  source->rule.kind == PLIM__SCAN_VALUES;
    source->stride = source->length = PLIM__CHECKSUM_BYTES;
    source->num_chunks = source->entry->num_checksums;
    if (!whole && sampled) {
        source->num_chunks = SAMPLE_CHUNKS;
        source->length = SAMPLE_BYTES;
        source->stride = bytes / SAMPLE_CHUNKS / (int64_t)PLIM__PAGE * (int64_t)PLIM__PAGE;
    }
    if (!whole && !wanted)
        source->num_chunks = 0;
}

static void range_of(const inspected_file_t *source, int64_t number, int64_t *start_out,
                     int64_t *end_out)
{
    *start_out = number * source->stride;
    *end_out = plim__min_i64(source->entry->bytes, *start_out + source->length);
}

static void close_sources(inspection_t *inspection)
{
    for (int i = 0; i < inspection->num_sources; i++)
        plim__file_close(&inspection->sources[i].file);
}

static plim_status_t open_sources(inspection_t *inspection)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(inspection->dataset);
    for (int turn = 0; turn < 4; turn++)
        for (int i = 0; i < manifest->num_files; i++) {
            inspected_file_t source = {.entry = &manifest->files[i],
                                       .rule = rule_of(manifest, &manifest->files[i])};
            if (turn_of(&source.rule) != turn)
                continue;
            choose_chunks(&source, inspection->whole);
            source.first_chunk = inspection->num_chunks;
            PLIM_TRY(
                plim__dataset_file_open(inspection->dataset, source.entry, true, &source.file));
            inspection->num_chunks += source.num_chunks;
            for (int64_t chunk = 0, start, end; chunk < source.num_chunks; chunk++) {
                range_of(&source, chunk, &start, &end);
                inspection->bytes_total += end - start;
            }
            /* The first source is indptr.npy. */
            source.rule.offsets = &inspection->sources[0].file;
            source.rule.offsets_count = manifest->info.num_nodes + 1;
            inspection->sources[inspection->num_sources++] = source;
        }
    return PLIM_OK;
}

static void submit(const inspection_t *inspection, inspect_worker_t *worker,
                   const inspected_file_t *source, int slot, int64_t at, int64_t end)
{
    plim__op_t *op = &worker->ops[slot];
    size_t size = (size_t)plim__min_i64(end - at, (int64_t)inspection->block);
    *op = (plim__op_t){.file = &source->file,
                       .offset = at,
                       .data = worker->blocks[slot],
                       .size = plim__round_up(size, source->file.align)};
    plim__engine_submit(worker->engine, op);
    plim__engine_flush(worker->engine);
}

/* Hashes and scans one block; the file's header is only hashed. */
static plim_status_t digest(inspect_worker_t *worker, const inspected_file_t *source,
                            const char *block, size_t size, int64_t at)
{
    size_t header = at == 0 ? PLIM__NPY_HEADER : 0;
    (void)XXH3_64bits_update(worker->state, block, size);
    return plim__scan_block(&worker->scan, block + header,
                            (size - header) / plim__dtype_size(source->entry->type));
}

static plim_status_t read_chunk(const inspection_t *inspection, inspect_worker_t *worker,
                                const inspected_file_t *source, int64_t start, int64_t end)
{
    const int64_t block = (int64_t)inspection->block;
    plim_status_t status = PLIM_OK;
    int64_t asked = start;
    for (int slot = 0; slot < DEPTH && asked < end; slot++, asked += block)
        submit(inspection, worker, source, slot, asked, end);
    int slot = 0;
    for (int64_t at = start; at < asked && at < end; at += block, slot = (slot + 1) % DEPTH) {
        plim_status_t read = plim__engine_wait(worker->engine, &worker->ops[slot]);
        if (status != PLIM_OK)
            continue; /* only wait for the other reads */
        status = read;
        if (status == PLIM_OK)
            status = digest(worker, source, worker->blocks[slot],
                            (size_t)plim__min_i64(end - at, block), at);
        if (status == PLIM_OK && asked < end) {
            submit(inspection, worker, source, slot, asked, end);
            asked += block;
        }
    }
    return status;
}

static const inspected_file_t *source_of(const inspection_t *inspection, int64_t chunk)
{
    const inspected_file_t *source = inspection->sources;
    while (chunk >= source->first_chunk + source->num_chunks)
        source++;
    return source;
}

static plim_status_t report_finding(const inspection_t *inspection, const inspected_file_t *source,
                                    const char *finding)
{
    if (finding[0] == '\0')
        return PLIM_OK;
    return plim__fail(PLIM_ERR_DATA, "%s: %s%s", source->file.path, finding,
                      inspection->whole
                          ? ", though its checksums match; make the dataset again"
                          : "; inspect with `whole` to see whether the file is damaged");
}

static plim_status_t make_chunk(void *context, int number, int64_t chunk)
{
    inspection_t *inspection = context;
    inspect_worker_t *worker = &inspection->workers[number];
    const inspected_file_t *source = source_of(inspection, chunk);
    int64_t start, end;
    range_of(source, chunk - source->first_chunk, &start, &end);
    int64_t skipped = start == 0 ? 0 : start - PLIM__NPY_HEADER;
    PLIM_TRY(plim__job_check(inspection->job));
    (void)XXH3_64bits_reset(worker->state);
    PLIM_TRY(plim__scan_start(&worker->scan, &source->rule,
                              skipped / (int64_t)plim__dtype_size(source->entry->type)));
    PLIM_TRY(read_chunk(inspection, worker, source, start, end));
    if (inspection->whole) {
        uint64_t checksum = XXH3_64bits_digest(worker->state);
        uint64_t expected = source->entry->checksums[chunk - source->first_chunk];
        if (checksum != expected)
            return plim__file_check_fail(&source->file, source->entry, chunk - source->first_chunk,
                                         checksum);
    }
    return report_finding(inspection, source, worker->scan.finding);
}

static plim_status_t take_chunk(void *context, int number, int64_t chunk)
{
    inspection_t *inspection = context;
    inspect_worker_t *worker = &inspection->workers[number];
    inspected_file_t *source =
        &inspection->sources[source_of(inspection, chunk) - inspection->sources];
    int64_t start, end;
    range_of(source, chunk - source->first_chunk, &start, &end);
    plim__scan_join(&worker->scan, &source->joint);
    if (chunk + 1 == source->first_chunk + source->num_chunks)
        plim__scan_end(&worker->scan, &source->joint);
    inspection->bytes_done += end - start;
    plim__progress(inspection->job, inspection->whole ? "verifying" : "inspecting", "bytes",
                   inspection->bytes_done, inspection->bytes_total);
    return report_finding(inspection, source, worker->scan.finding);
}

/* The smallest degree that numerator/denominator of the nodes do not exceed. */
static int64_t quantile(const int64_t *cells, int64_t num_nodes, int numerator, int denominator)
{
    __int128 wanted = ((__int128)num_nodes * numerator + denominator - 1) / denominator;
    int64_t seen = 0;
    for (int i = 0; i < PLIM__DEGREES_CELLS; i++) {
        seen += cells[i];
        if (seen >= wanted)
            return plim__degree_of_cell(i);
    }
    return 0;
}

static plim_status_t report_degrees(const inspection_t *inspection, const plim__tally_t *tally,
                                    plim_dataset_report_t *report)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(inspection->dataset);
    const plim_dataset_info_t *info = &manifest->info;
    for (int i = 0; i < PLIM__DEGREES_CELLS; i++)
        report->degrees_log2[plim__degree_bucket(plim__degree_of_cell(i))] += tally->degrees[i];
    if (tally->degree_max != info->max_degree ||
        memcmp(report->degrees_log2, manifest->degrees, sizeof manifest->degrees) != 0)
        return plim__fail(PLIM_ERR_DATA,
                          "%s/%s: its degrees do not match indptr.npy; make the dataset again",
                          plim__dataset_path(inspection->dataset), PLIM__MANIFEST_NAME);
    if (inspection->whole && info->max_self_loops >= 0 &&
        (info->max_self_loops > tally->self_loops ||
         (info->max_self_loops == 0 && tally->self_loops > 0)))
        return plim__fail(PLIM_ERR_DATA,
                          "%s/%s: its self-loops do not match indices.npy; make the dataset again",
                          plim__dataset_path(inspection->dataset), PLIM__MANIFEST_NAME);
    report->degree_mean = (double)info->num_edges / (double)info->num_nodes;
    report->degree_min = tally->degree_min;
    report->degree_max = tally->degree_max;
    report->degree_zero = tally->degrees[0];
    report->degree_median = quantile(tally->degrees, info->num_nodes, 1, 2);
    report->degree_p90 = quantile(tally->degrees, info->num_nodes, 9, 10);
    report->degree_p99 = quantile(tally->degrees, info->num_nodes, 99, 100);
    report->degree_p999 = quantile(tally->degrees, info->num_nodes, 999, 1000);
    report->num_self_loops = inspection->whole ? tally->self_loops : -1;
    report->num_duplicates = inspection->whole ? tally->duplicates : -1;
    return PLIM_OK;
}

/* The most frequent classes; ties by the smaller class. */
static void report_classes(const plim_dataset_info_t *info, const plim__tally_t *tally,
                           plim_dataset_report_t *report)
{
    report->num_unlabelled = tally->unlabelled;
    report->num_classes_seen = info->num_classes <= PLIM__CLASSES_MAX ? 0 : -1;
    for (int64_t label = 0; label < PLIM__CLASSES_MAX; label++) {
        int64_t count = tally->classes[label];
        if (count == 0)
            continue;
        report->num_classes_seen++;
        int place = report->num_top;
        while (place > 0 && report->top_count[place - 1] < count)
            place--;
        if (place == PLIM_TOP_CLASSES)
            continue;
        report->num_top += report->num_top < PLIM_TOP_CLASSES;
        for (int i = report->num_top - 1; i > place; i--) {
            report->top_class[i] = report->top_class[i - 1];
            report->top_count[i] = report->top_count[i - 1];
        }
        report->top_class[place] = label;
        report->top_count[place] = count;
    }
}

static plim_status_t read_type_names(const plim__file_t *offsets, const plim__file_t *texts,
                                     int count, plim_dataset_report_t *report)
{
    int64_t bounds[PLIM_TOP_CLASSES + 1];
    char name[PLIM__ID_TEXT_MAX];
    PLIM_TRY(plim__file_read_at(offsets, PLIM__NPY_HEADER, bounds,
                                (size_t)(count + 1) * sizeof *bounds));
    for (int i = 0; i < count; i++) {
        const int64_t begin = bounds[i], end = bounds[i + 1];
        if (begin < 0 || end < begin || end - begin > PLIM__ID_TEXT_MAX ||
            end > texts->size - PLIM__NPY_HEADER)
            return plim__fail(PLIM_ERR_DATA,
                              "%s: the name of type %d has an impossible length; make the dataset "
                              "again",
                              offsets->path, i);
        PLIM_TRY(plim__file_read_at(texts, PLIM__NPY_HEADER + begin, name, (size_t)(end - begin)));
        plim__text_printable(name, (size_t)(end - begin), report->type_names[i], PLIM_TYPE_NAME);
    }
    report->num_type_names = count;
    return PLIM_OK;
}

static plim_status_t report_type_names(const plim_dataset_t *dataset, plim_dataset_report_t *report)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(dataset);
    const plim__manifest_file_t *offsets_entry = plim__manifest_find(manifest, TYPE_OFFSETS);
    const int count = (int)plim__min_i64(manifest->info.num_edge_types, PLIM_TOP_CLASSES);
    plim__file_t offsets, texts;
    if (offsets_entry == NULL)
        return PLIM_OK;
    PLIM_TRY(plim__dataset_file_open(dataset, offsets_entry, false, &offsets));
    plim_status_t status = plim__dataset_file_open(
        dataset, plim__manifest_find(manifest, PLIM__TYPE_TEXT ".npy"), false, &texts);
    if (status == PLIM_OK) {
        status = read_type_names(&offsets, &texts, count, report);
        plim__file_close(&texts);
    }
    plim__file_close(&offsets);
    return status;
}

static plim_status_t make_report(inspection_t *inspection, plim_dataset_report_t *report_out)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(inspection->dataset);
    plim_dataset_report_t report = {.whole = inspection->whole,
                                    .bytes_read = inspection->bytes_done};
    plim__tally_t *tally = &inspection->workers[0].scan.tally;
    plim__file_system_t system;
    for (int i = 1; i < inspection->num_workers; i++)
        plim__tally_add(tally, &inspection->workers[i].scan.tally);
    PLIM_TRY(report_degrees(inspection, tally, &report));
    report_classes(&manifest->info, tally, &report);
    for (int i = 0; i < inspection->num_sources; i++) {
        const inspected_file_t *source = &inspection->sources[i];
        if (source->rule.kind == PLIM__SCAN_VALUES)
            plim__values_stats(&source->joint.values,
                               strcmp(source->entry->name, "features.npy") == 0 ? &report.features
                                                                                : &report.targets);
    }
    PLIM_TRY(plim__file_system(plim__dataset_path(inspection->dataset), &system));
    memcpy(report.file_system, system.name, sizeof report.file_system);
    report.network = system.network;
    report.memory = system.memory;
    PLIM_TRY(report_type_names(inspection->dataset, &report));
    plim__output_give(report_out, &report, sizeof report);
    return PLIM_OK;
}

static inspect_worker_t lay_out_worker(plim__arena_t *arena, size_t block)
{
    inspect_worker_t worker = {.engine = NULL};
    plim__scan_carve(&worker.scan, arena);
    worker.state = plim__arena_carve(arena, 1, sizeof *worker.state, 1);
    for (int i = 0; i < DEPTH; i++)
        worker.blocks[i] = plim__arena_carve(arena, 1, block, PLIM__PAGE);
    return worker;
}

static void lay_out(plim__arena_t *arena, void *draft)
{
    inspection_t *inspection = draft;
    const size_t workers = (size_t)inspection->num_workers;
    inspection->workers = plim__arena_carve(arena, workers, sizeof(inspect_worker_t), 1);
    for (size_t i = 0; i < workers; i++) {
        const inspect_worker_t worker = lay_out_worker(arena, inspection->block);
        if (inspection->workers != NULL)
            inspection->workers[i] = worker;
    }
    (void)plim__arena_carve(arena, workers, PLIM__STACK_BYTES, 1); /* counts the threads' stacks */
}

static size_t estimate(const plim_job_t *job, int workers, size_t block)
{
    inspection_t draft = {.num_workers = workers, .block = block};
    return plim__object_bytes(lay_out, &draft, sizeof draft) +
           (size_t)workers * plim__engine_estimate(job->io_engine, DEPTH);
}

/* As many workers as threads, with large blocks; fewer and smaller ones under a low limit. */
static void choose_size(const plim_job_t *job, int *workers_out, size_t *block_out)
{
    const int64_t available = plim__ledger_available(job->ledger);
    *workers_out = plim__job_threads(job);
    *block_out = BLOCK_MOST;
    while (*workers_out > 1 && (int64_t)estimate(job, *workers_out, *block_out) > available)
        --*workers_out;
    while (*block_out > BLOCK_MIN && (int64_t)estimate(job, *workers_out, *block_out) > available)
        *block_out /= 2;
}

static plim_status_t create(const plim_job_t *job, const plim_dataset_t *dataset, bool whole,
                            inspection_t **inspection_out)
{
    inspection_t draft = {.job = job, .dataset = dataset, .whole = whole};
    choose_size(job, &draft.num_workers, &draft.block);
    const size_t bytes = estimate(job, draft.num_workers, draft.block);
    if (plim__ledger_available(job->ledger) < (int64_t)bytes) {
        (void)plim__ledger_refuse(job->ledger, "the dataset", "inspecting it", bytes);
        return PLIM_ERR_BUDGET;
    }
    return plim__object_create(job->ledger, "inspect", lay_out, &draft, sizeof draft, &draft.arena,
                               inspection_out);
}

/* Checks that no split has an id twice, which the scans of chunks do not see. */
static plim_status_t check_splits(const plim_job_t *job, const plim_dataset_t *dataset)
{
    static const char *const names[] = {"train.npy", "valid.npy", "test.npy"};
    const plim__manifest_t *manifest = plim__dataset_manifest(dataset);
    for (int i = 0; i < 3; i++) {
        const plim__manifest_file_t *entry = plim__manifest_find(manifest, names[i]);
        plim__file_t file;
        if (entry == NULL)
            continue;
        PLIM_TRY(plim__dataset_file_open(dataset, entry, false, &file));
        const plim_status_t status = plim__unique_check(job, &file, file.path, entry->shape[0],
                                                        rule_of(manifest, entry).bound);
        plim__file_close(&file);
        PLIM_TRY(status);
    }
    return PLIM_OK;
}

PLIM_API plim_status_t plim_dataset_inspect(const plim_job_t *job, const plim_dataset_t *dataset,
                                            bool whole, plim_dataset_report_t *report_out)
{
    inspection_t *inspection = NULL;
    PLIM_ENTER(job);
    PLIM_TRY(plim__dataset_check(dataset));
    PLIM_TRY(plim__output_check(report_out, "plim_dataset_report_t"));
    PLIM_TRY(create(job, dataset, whole, &inspection));
    plim_status_t status = open_sources(inspection);
    for (int i = 0; i < inspection->num_workers && status == PLIM_OK; i++)
        status = plim__engine_create(job, DEPTH, &inspection->workers[i].engine);
    if (status == PLIM_OK)
        status = plim__ordered(inspection->num_workers, inspection->num_chunks, make_chunk,
                               take_chunk, inspection);
    if (status == PLIM_OK)
        status = make_report(inspection, report_out);
    for (int i = 0; i < inspection->num_workers; i++)
        plim__engine_destroy(inspection->workers[i].engine);
    close_sources(inspection);
    plim__arena_destroy(&inspection->arena);
    return status == PLIM_OK && whole ? check_splits(job, dataset) : status;
}

PLIM_API plim_status_t plim_dataset_verify(const plim_job_t *job, const plim_dataset_t *dataset)
{
    plim_dataset_report_t report = PLIM_DATASET_REPORT_INIT;
    return plim_dataset_inspect(job, dataset, true, &report);
}
