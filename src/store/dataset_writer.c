/*
 * The columns' files are in a staging directory until dataset.json is complete. A closed column
 * keeps its entry for dataset.json: a small arena with the checksums, in the writer's list.
 */
#include "store/dataset_writer.h"

#include "base/check.h"
#include "base/fail.h"
#include "io/commit.h"
#include "mem/arena.h"
#include "store/manifest.h"

#include <plimsoll/version.h>
#include <stdio.h>
#include <string.h>

#define ACCOUNT "dataset writer"

struct plim__column {
    plim__arena_t arena; /* contains this struct */
    plim__column_t *next;
    plim__writer_t *file; /* NULL once closed */
    char path[PATH_MAX];
    plim__manifest_file_t entry;
    bool open_ended; /* shape[0] is set by the close */
    bool complete;   /* closed without an error */
    int64_t max_bytes;
    int64_t written;   /* bytes of data, without the header */
    const void *space; /* from plim__column_space, for plim__column_advance */
    uint64_t *checksums;
    /* For indptr: */
    bool counts_degrees;
    bool ascending;
    int64_t last; /* the last offset; -1 before the first */
    int64_t max_degree;
    int64_t degrees[PLIM_DEGREE_BUCKETS];
    unsigned char carry[8]; /* an offset split between two writes */
};

struct plim__dataset_writer {
    plim__arena_t arena;
    plim_job_t job;
    plim__staging_t staging;
    char staging_path[32];   /* by its descriptor */
    plim__column_t *columns; /* the last opened one first */
    plim__manifest_t manifest;
};

plim_status_t plim__dataset_begin(const plim_job_t *job, const char *target,
                                  plim__dataset_writer_t **writer_out)
{
    plim__arena_t arena;
    PLIM_TRY(plim__arena_create(job->ledger, ACCOUNT, sizeof **writer_out, &arena));
    plim__dataset_writer_t *writer = plim__arena_carve(&arena, 1, sizeof *writer, 1);
    writer->arena = arena;
    writer->job = *job;
    writer->manifest.info.max_self_loops = -1;
    plim_status_t status = plim__staging_begin(target, &writer->staging);
    if (status != PLIM_OK) {
        plim__arena_destroy(&arena);
        return status;
    }
    (void)snprintf(writer->staging_path, sizeof writer->staging_path, "/proc/self/fd/%d",
                   writer->staging.directory);
    *writer_out = writer;
    return PLIM_OK;
}

const char *plim__dataset_staging(const plim__dataset_writer_t *writer)
{
    return writer->staging_path;
}

void plim__dataset_self_loops(plim__dataset_writer_t *writer, int64_t most)
{
    writer->manifest.info.max_self_loops = most;
}

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim__column_t *column = draft;
    const size_t checksums = (size_t)(column->max_bytes / PLIM__CHECKSUM_BYTES) + 2;
    column->checksums = plim__arena_carve(arena, checksums, sizeof(uint64_t), 1);
}

size_t plim__column_estimate(plim_io_engine_t kind, size_t buffer, int64_t max_bytes)
{
    plim__column_t column = {.max_bytes = max_bytes};
    return plim__add_saturating_size(
        plim__object_bytes(lay_out, &column, sizeof column),
        plim__writer_estimate(kind, buffer, max_bytes + PLIM__NPY_HEADER));
}

/* Bytes of one row: the product of all dimensions but the first. */
static bool row_bytes(const plim__manifest_file_t *entry, int64_t *bytes_out)
{
    plim__manifest_file_t row = *entry;
    if (row.num_dims > 0)
        row.shape[0] = 1;
    return plim__manifest_count(&row, bytes_out) &&
           plim__mul_i64(*bytes_out, (int64_t)plim__dtype_size(row.type), bytes_out);
}

static void header_of(const plim__manifest_file_t *entry,
                      unsigned char header_out[PLIM__NPY_HEADER])
{
    plim__npy_t npy = {.type = entry->type, .num_dims = entry->num_dims};
    memcpy(npy.shape, entry->shape, sizeof npy.shape);
    plim__npy_header(&npy, header_out);
}

/* Makes the entry: name, type and shape. A first dimension of -1 is 0 until the close. */
static plim_status_t make_entry(const char *name, plim__dtype_t type, int num_dims,
                                const int64_t *shape, plim__manifest_file_t *entry_out)
{
    plim__manifest_file_t entry = {.type = type, .num_dims = num_dims};
    int64_t bytes;
    (void)snprintf(entry.name, sizeof entry.name, "%s.npy", name);
    memcpy(entry.shape, shape, (size_t)num_dims * sizeof *shape);
    if (shape[0] == -1)
        entry.shape[0] = 0;
    if (!row_bytes(&entry, &bytes))
        return plim__fail(PLIM_ERR_USAGE, "the column '%s' has an impossible shape", name);
    *entry_out = entry;
    return PLIM_OK;
}

plim_status_t plim__column_open(plim__dataset_writer_t *writer, const char *name,
                                plim__dtype_t type, int num_dims, const int64_t *shape,
                                int64_t max_bytes, size_t buffer, plim__column_t **column_out)
{
    unsigned char header[PLIM__NPY_HEADER];
    plim__column_t draft = {.max_bytes = max_bytes, .ascending = true, .last = -1}, *column;
    if (max_bytes < 0 || max_bytes > INT64_MAX / 2)
        return plim__fail(PLIM_ERR_USAGE, "the column '%s' cannot have %lld bytes", name,
                          (long long)max_bytes);
    PLIM_TRY(make_entry(name, type, num_dims, shape, &draft.entry));
    header_of(&draft.entry, header);
    draft.open_ended = shape[0] == -1;
    draft.counts_degrees = strcmp(draft.entry.name, "indptr.npy") == 0 && type == PLIM__NPY_I64;
    PLIM_TRY(plim__object_create(writer->job.ledger, ACCOUNT, lay_out, &draft, sizeof draft,
                                 &draft.arena, &column));
    plim_status_t status = plim__file_path(column->path, writer->staging.path, column->entry.name);
    if (status == PLIM_OK)
        status = plim__writer_create(&writer->job, writer->staging.directory, column->path, buffer,
                                     max_bytes + PLIM__NPY_HEADER, &column->file);
    if (status == PLIM_OK)
        status = plim__writer_write(column->file, header, sizeof header);
    if (status != PLIM_OK) {
        plim__writer_destroy(column->file);
        plim__arena_destroy(&column->arena);
        return status;
    }
    column->next = writer->columns;
    writer->columns = column;
    *column_out = column;
    return PLIM_OK;
}

static void count_degrees(plim__column_t *column, const int64_t *offsets, size_t count)
{
    int64_t last = column->last;
    for (size_t i = 0; i < count; i++) {
        int64_t offset = offsets[i];
        if (last < 0) { /* the first offset, or after an error */
            column->ascending = column->ascending && offset == 0;
        } else if (offset < last) {
            column->ascending = false;
        } else {
            int64_t degree = offset - last;
            column->degrees[plim__degree_bucket(degree)]++;
            column->max_degree = plim__max_i64(column->max_degree, degree);
        }
        last = offset;
    }
    column->last = last;
}

/* Counts the degrees in bytes appended to indptr; a write may end inside an offset. */
static void watch_offsets(plim__column_t *column, const unsigned char *bytes, size_t size)
{
    int64_t offsets[512];
    size_t carried = (size_t)(column->written % 8);
    if (carried > 0) {
        size_t missing = 8 - carried < size ? 8 - carried : size;
        memcpy(column->carry + carried, bytes, missing);
        bytes += missing;
        size -= missing;
        if (carried + missing < 8)
            return;
        memcpy(offsets, column->carry, 8);
        count_degrees(column, offsets, 1);
    }
    while (size >= 8) {
        size_t whole = size < sizeof offsets ? size / 8 * 8 : sizeof offsets;
        memcpy(offsets, bytes, whole);
        count_degrees(column, offsets, whole / 8);
        bytes += whole;
        size -= whole;
    }
    memcpy(column->carry, bytes, size);
}

plim_status_t plim__column_write(plim__column_t *column, const void *from, size_t size)
{
    if (size == 0)
        return PLIM_OK;
    if (column->counts_degrees)
        watch_offsets(column, from, size);
    column->written += (int64_t)size;
    return plim__writer_write(column->file, from, size);
}

plim_status_t plim__column_space(plim__column_t *column, void **to_out, size_t *size_out)
{
    PLIM_TRY(plim__writer_space(column->file, to_out, size_out));
    column->space = *to_out;
    return PLIM_OK;
}

plim_status_t plim__column_advance(plim__column_t *column, size_t size)
{
    if (column->counts_degrees)
        watch_offsets(column, column->space, size);
    column->written += (int64_t)size;
    return plim__writer_advance(column->file, size);
}

/* Sets the first dimension if it is open, and checks the shape. */
static plim_status_t resolve_shape(plim__column_t *column)
{
    plim__manifest_file_t *entry = &column->entry;
    int64_t row = 0, bytes;
    (void)row_bytes(entry, &row);
    if (column->open_ended && row > 0)
        entry->shape[0] = column->written / row;
    if (!plim__mul_i64(entry->shape[0], row, &bytes) || bytes != column->written)
        return plim__fail(PLIM_ERR_USAGE, "%s: the %lld bytes written do not match its shape",
                          entry->name, (long long)column->written);
    if (column->counts_degrees && !column->ascending)
        return plim__fail(PLIM_ERR_USAGE, "%s: its offsets do not ascend from 0", entry->name);
    return PLIM_OK;
}

/* Writes the header of the final shape, finishes the file and keeps its checksums. */
static plim_status_t finish_file(plim__column_t *column)
{
    plim__manifest_file_t *entry = &column->entry;
    const uint64_t *checksums;
    PLIM_TRY(resolve_shape(column));
    if (column->open_ended) {
        unsigned char header[PLIM__NPY_HEADER];
        header_of(entry, header);
        PLIM_TRY(plim__writer_set_front(column->file, header, sizeof header));
    }
    PLIM_TRY(plim__writer_finish(column->file, &entry->bytes, &checksums, &entry->num_checksums));
    memcpy(column->checksums, checksums, (size_t)entry->num_checksums * sizeof *checksums);
    entry->checksums = column->checksums;
    return PLIM_OK;
}

plim_status_t plim__column_close(plim__column_t *column)
{
    plim_status_t status = finish_file(column);
    plim__writer_destroy(column->file);
    column->file = NULL;
    column->complete = status == PLIM_OK;
    return status;
}

/* Makes the manifest from the columns and the facts. */
static plim_status_t make_manifest(plim__dataset_writer_t *writer,
                                   const plim__dataset_facts_t *facts)
{
    plim__manifest_t *manifest = &writer->manifest;
    const plim__column_t *offsets = NULL;
    manifest->info.num_nodes = facts->num_nodes;
    manifest->info.num_graphs = facts->num_graphs;
    manifest->info.num_classes = facts->num_classes;
    manifest->info.multi_label = facts->multi_label;
    manifest->info.num_edge_types = facts->num_edge_types;
    manifest->info.feature_error = facts->feature_error;
    manifest->source = facts->source != NULL ? facts->source : "";
    manifest->options = facts->options != NULL ? facts->options : "";
    manifest->version = PLIM_VERSION;
    for (const plim__column_t *column = writer->columns; column != NULL; column = column->next) {
        if (!column->complete)
            return plim__fail(PLIM_ERR_USAGE, "%s: %s was not closed, or closing it failed",
                              writer->staging.target, column->entry.name);
        manifest->files[manifest->num_files++] = column->entry;
        if (column->counts_degrees)
            offsets = column;
    }
    if (offsets != NULL) {
        manifest->info.max_degree = offsets->max_degree;
        memcpy(manifest->degrees, offsets->degrees, sizeof manifest->degrees);
    }
    plim__manifest_sort(manifest);
    PLIM_TRY(plim__manifest_resolve(manifest, writer->staging.target));
    if (offsets != NULL && offsets->last != manifest->info.num_edges)
        return plim__fail(PLIM_ERR_DATA, "%s: indptr.npy ends with %lld, but there are %lld edges",
                          writer->staging.target, (long long)offsets->last,
                          (long long)manifest->info.num_edges);
    return PLIM_OK;
}

static plim_status_t write_manifest(plim__dataset_writer_t *writer)
{
    char path[PATH_MAX];
    plim__arena_t arena;
    const char *text;
    size_t size;
    PLIM_TRY(plim__file_path(path, writer->staging.path, PLIM__MANIFEST_NAME));
    PLIM_TRY(plim__manifest_render(&writer->job, &writer->manifest, &arena, &text, &size));
    plim_status_t status = plim__commit_file(writer->staging.directory, path, text, size, false);
    plim__arena_destroy(&arena);
    return status;
}

plim_status_t plim__dataset_finish(plim__dataset_writer_t *writer,
                                   const plim__dataset_facts_t *facts)
{
    plim_status_t status = make_manifest(writer, facts);
    if (status == PLIM_OK)
        status = write_manifest(writer);
    if (status == PLIM_OK)
        status = plim__staging_commit(&writer->staging);
    plim__dataset_abandon(writer); /* after a commit it only frees */
    return status;
}

void plim__dataset_abandon(plim__dataset_writer_t *writer)
{
    if (writer == NULL)
        return;
    while (writer->columns != NULL) {
        plim__column_t *column = writer->columns;
        writer->columns = column->next;
        plim__writer_destroy(column->file);
        plim__arena_destroy(&column->arena);
    }
    plim__staging_abandon(&writer->staging);
    plim__arena_destroy(&writer->arena);
}
