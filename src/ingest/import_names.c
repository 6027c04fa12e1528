/*
 * Texts with the ids of nodes: rows that begin with the node's id, and, with --relabel, names of
 * any kind in place of ids. The names are kept as ids.npy if all are integers, else as id_text.npy
 * and id_offsets.npy.
 */
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "ingest/import_files.h"
#include "io/number.h"
#include "store/manifest.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define CHUNK 2048 /* values handled at a time */

/* Checks an id that only numbers the row. */
static plim_status_t check_number(int64_t row, plim__text_field_t field)
{
    const char *end = field.begin;
    int64_t id;
    if (plim__number_i64(&end, &id) && end == field.begin + field.size && id == row)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_DATA,
                      "the id is %.*s, but the ids of rows must be 0, 1, 2 …, here %" PRId64
                      "; `relabel` takes any ids in any order",
                      (int)(field.size < 64 ? field.size : 64), field.begin, row);
}

/* Compares a row's name with the node's. */
static plim_status_t check_same(plim__names_t *names, int64_t row, plim__text_field_t field)
{
    XXH128_hash_t key;
    if (row >= names->keys.count)
        return plim__fail(PLIM_ERR_DATA, "there are more rows than the %" PRId64 " of %s",
                          names->keys.count, names->from);
    PLIM_TRY(plim__spool_read(names->keys.file, &key, sizeof key));
    if (XXH128_isEqual(key, XXH3_128bits(field.begin, field.size)))
        return PLIM_OK;
    return plim__fail(PLIM_ERR_DATA,
                      "the id is %.*s, but row %" PRId64 " of %s has another one; features must be "
                      "in the order of the nodes",
                      (int)(field.size < 64 ? field.size : 64), field.begin, row, names->from);
}

static plim_status_t take_id(void *context, int64_t row, plim__text_field_t field)
{
    plim__import_t *import = context;
    switch (import->row_naming) {
    case PLIM__ROW_NAMING_NONE:
        return check_number(row, field);
    case PLIM__ROW_NAMING_ADD:
        return plim__names_add(&import->names, field);
    case PLIM__ROW_NAMING_SAME:
        return check_same(&import->names, row, field);
    case PLIM__ROW_NAMING_KEYS:
        break;
    }
    return plim__name_keys_add(&import->row_keys, &import->names, field);
}

plim_status_t plim__import_rows_begin(plim__import_t *import, plim__text_t *text, bool wide,
                                      plim__text_line_t *line_out)
{
    const bool known = import->row_numbers || import->row_naming != PLIM__ROW_NAMING_NONE;
    PLIM_TRY(import->tables ? plim__text_table(text, wide, line_out)
                            : plim__text_heading(text, line_out));
    if (!line_out->ids && !known)
        return PLIM_OK;
    if (import->row_naming == PLIM__ROW_NAMING_SAME)
        PLIM_TRY(plim__spool_rewind(import->names.keys.file, false));
    plim__text_set_first(text, take_id, import);
    PLIM_TRY(plim__text_peek(text, line_out));
    line_out->ids = true;
    line_out->columns = plim__max_i64(line_out->columns - 1, 0);
    return PLIM_OK;
}

plim_status_t plim__import_names_list(plim__import_t *import, const char *path)
{
    plim__text_t *text;
    plim__text_line_t line;
    plim__text_field_t name;
    bool more = true;
    PLIM_TRY(plim__import_text_open(import, path, &text));
    plim_status_t status = plim__text_names_heading(text, 1, &line);
    while (status == PLIM_OK && more) {
        status = plim__text_names(text, 1, &name, &more);
        if (status == PLIM_OK && more)
            status = plim__names_add(&import->names, name);
    }
    plim__text_close(text);
    if (status == PLIM_OK && import->names.keys.count == 0)
        status = plim__fail(PLIM_ERR_DATA, "%s is empty", path);
    return status;
}

/* Reads the next name of a node; it ends with a newline. */
static plim_status_t next_name(plim__names_t *names, char name_out[PLIM__ID_TEXT_MAX + 1],
                               size_t *size_out)
{
    unsigned char size;
    PLIM_TRY(plim__spool_read(names->texts, &size, sizeof size));
    PLIM_TRY(plim__spool_read(names->texts, name_out, size));
    name_out[size] = '\n';
    *size_out = size;
    return PLIM_OK;
}

static plim_status_t write_integers(plim__import_t *import)
{
    char name[PLIM__ID_TEXT_MAX + 1];
    int64_t shape[1] = {import->names.keys.count}, id = 0;
    size_t size;
    plim__column_t *column;
    PLIM_TRY(plim__column_open(import->writer, "ids", PLIM__NPY_I64, 1, shape, 8 * shape[0],
                               import->buffer, &column));
    for (int64_t node = 0; node < shape[0]; node++) {
        const char *end = name;
        PLIM_TRY(next_name(&import->names, name, &size));
        (void)plim__number_i64(&end, &id); /* it was checked when the name was added */
        PLIM_TRY(plim__column_write(column, &id, sizeof id));
    }
    return plim__column_close(column);
}

static plim_status_t write_texts(plim__import_t *import)
{
    char name[PLIM__ID_TEXT_MAX + 1];
    const int64_t count = import->names.keys.count;
    int64_t shape[1] = {count + 1}, bytes[1] = {import->names.text_bytes}, end = 0;
    size_t size;
    plim__column_t *texts, *offsets;
    PLIM_TRY(plim__column_open(import->writer, PLIM__ID_TEXT, PLIM__NPY_U8, 1, bytes, bytes[0],
                               import->buffer, &texts));
    PLIM_TRY(plim__column_open(import->writer, PLIM__ID_OFFSETS, PLIM__NPY_I64, 1, shape,
                               8 * shape[0], import->buffer, &offsets));
    PLIM_TRY(plim__column_write(offsets, &end, sizeof end));
    for (int64_t node = 0; node < count; node++) {
        PLIM_TRY(next_name(&import->names, name, &size));
        PLIM_TRY(plim__column_write(texts, name, size));
        end += (int64_t)size;
        PLIM_TRY(plim__column_write(offsets, &end, sizeof end));
    }
    PLIM_TRY(plim__column_close(texts));
    return plim__column_close(offsets);
}

plim_status_t plim__import_names_finish(plim__import_t *import)
{
    plim__names_t *names = &import->names;
    PLIM_TRY(plim__names_check(names));
    PLIM_TRY(plim__import_agree(&import->nodes, "nodes", names->keys.count, names->from));
    import->nodes_ready = true;
    PLIM_TRY(plim__import_begin(import));
    PLIM_TRY(plim__spool_rewind(names->texts, true));
    return names->integers ? write_integers(import) : write_texts(import);
}

/* A text of names, and their keys. */
typedef struct name_text {
    plim__name_keys_t keys;
    plim__text_lines_t lines;
    int64_t columns; /* names of a line, */
    int64_t index;   /* and 1 for pandas' index before them, else 0 */
} name_text_t;

/* Opens the text after its heading. */
static plim_status_t open_named(plim__import_t *import, const char *path, int64_t columns,
                                name_text_t *named, plim__text_t **text_out)
{
    plim__text_t *text;
    plim__text_line_t line;
    PLIM_TRY(plim__import_text_open(import, path, &text));
    plim_status_t status = plim__text_names_heading(text, columns, &line);
    if (status != PLIM_OK) {
        plim__text_close(text);
        return status;
    }
    named->columns = columns;
    named->index = line.index && line.columns > columns ? 1 : 0;
    *text_out = text;
    return PLIM_OK;
}

/* Reads the names of the next line, without the index. */
static plim_status_t next_line(plim__text_t *text, const name_text_t *named,
                               plim__text_field_t names_out[2], bool *more_out)
{
    plim__text_field_t fields[3];
    PLIM_TRY(plim__text_names(text, named->index + named->columns, fields, more_out));
    for (int64_t i = 0; i < named->columns && *more_out; i++)
        names_out[i] = fields[named->index + i];
    return PLIM_OK;
}

/* Reads all names of a text as keys. The caller destroys them, also after an error. */
static plim_status_t read_keys(plim__import_t *import, const char *path, int64_t columns,
                               name_text_t *named)
{
    plim__text_t *text;
    plim__text_field_t names[2];
    bool more = true;
    PLIM_TRY(open_named(import, path, columns, named, &text));
    plim_status_t status = PLIM_OK;
    while (status == PLIM_OK && more) {
        if (named->keys.count % 65536 < columns)
            status = plim__job_check(import->job);
        if (status == PLIM_OK)
            status = next_line(text, named, names, &more);
        for (int64_t i = 0; i < columns && more && status == PLIM_OK; i++)
            status = plim__name_keys_add(&named->keys, &import->names, names[i]);
    }
    named->lines = *plim__text_lines(text);
    plim__text_close(text);
    if (status == PLIM_OK && named->keys.count == 0)
        status = plim__fail(PLIM_ERR_DATA, "%s is empty", path);
    return status;
}

/* The names of a text as nodes. PLIM_ERR_DATA for one that no node has. */
static plim_status_t find_nodes(plim__import_t *import, const char *path,
                                const plim__name_keys_t *keys, const plim__text_lines_t *lines,
                                int64_t columns, plim__id_spool_t *ids_out)
{
    int64_t missing;
    PLIM_TRY(plim__names_find(&import->names, keys, ids_out, &missing));
    if (missing < 0)
        return PLIM_OK;
    plim__id_spool_destroy(ids_out);
    const int64_t row = missing / columns, line = plim__text_line_of(lines, row);
    return plim__fail(PLIM_ERR_DATA,
                      "%s: %s %" PRId64 ", name %" PRId64 " is not one of the %" PRId64
                      " nodes in %s; add it there, or remove the line",
                      path, line > 0 ? "line" : "row", line > 0 ? line : row, missing % columns + 1,
                      import->names.keys.count, import->names.from);
}

/* Builds from ids in pairs. Takes ownership of the spool. */
static plim_status_t take_pairs(plim__import_t *import, const char *path, plim__id_spool_t *ids)
{
    plim__edges_mixed_t mixed;
    (void)snprintf(ids->ids.name, sizeof ids->ids.name, "%s", path);
    plim__edges_mixed_open(&mixed, &ids->ids);
    mixed.edges.lines = &import->edge_lines;
    plim__import_needs_t needs = {
        .num_nodes = import->nodes.value, .num_edges = ids->count / 2, .what = "for the graph"};
    plim_status_t status = plim__import_plan(import, &needs);
    if (status == PLIM_OK)
        status = plim__import_edges(import, &mixed.edges, ids->count / 2);
    plim__id_spool_destroy(ids);
    return status;
}

/* The ids of the nodes that a text names in its first columns, and the lines they stand in. */
static plim_status_t read_nodes(plim__import_t *import, const char *path, int columns,
                                plim__text_lines_t *lines_out, plim__id_spool_t *ids_out)
{
    name_text_t named = {.columns = 0};
    plim_status_t status = read_keys(import, path, columns, &named);
    *lines_out = named.lines;
    if (status == PLIM_OK)
        status = find_nodes(import, path, &named.keys, &named.lines, columns, ids_out);
    plim__name_keys_destroy(&named.keys);
    return status;
}

plim_status_t plim__import_named_edges(plim__import_t *import, const char *path)
{
    plim__id_spool_t ids;
    PLIM_TRY(read_nodes(import, path, 2, &import->edge_lines, &ids));
    return take_pairs(import, path, &ids);
}

plim_status_t plim__import_named_split(plim__import_t *import, int split, const char *path)
{
    plim__text_lines_t lines;
    plim__id_spool_t ids;
    PLIM_TRY(read_nodes(import, path, 1, &lines, &ids));
    (void)snprintf(ids.ids.name, sizeof ids.ids.name, "%s", path);
    const plim_status_t status = plim__import_split(import, split, &ids.ids);
    plim__id_spool_destroy(&ids);
    return status;
}

/* Reads the text again and adds the names at the positions of their first appearance. */
static plim_status_t add_firsts(plim__import_t *import, const char *path, plim__id_spool_t *firsts)
{
    name_text_t named = {.columns = 0};
    plim__text_t *text;
    plim__text_field_t names[2];
    int64_t first, got, position = 0;
    bool more = true;
    PLIM_TRY(open_named(import, path, 2, &named, &text));
    plim_status_t status = firsts->ids.read(&firsts->ids, &first, 1, &got);
    while (status == PLIM_OK && got == 1 && more) {
        status = next_line(text, &named, names, &more);
        for (int i = 0; i < 2 && more && status == PLIM_OK; i++, position++)
            if (got == 1 && position == first) {
                status = plim__names_add(&import->names, names[i]);
                if (status == PLIM_OK)
                    status = firsts->ids.read(&firsts->ids, &first, 1, &got);
            }
    }
    plim__text_close(text);
    if (status == PLIM_OK && got == 1)
        status = plim__fail(PLIM_ERR_DATA, "%s has changed while it was read", path);
    return status;
}

plim_status_t plim__import_named_text(plim__import_t *import, const char *path)
{
    name_text_t named = {.columns = 0};
    plim__id_spool_t ids = {.file = NULL}, firsts = {.file = NULL};
    PLIM_TRY(plim__names_create(&import->names, import->job, import->tmp, import->buffer, path));
    plim_status_t status = read_keys(import, path, 2, &named);
    import->edge_lines = named.lines;
    if (status == PLIM_OK)
        status = plim__names_number(&import->names, &named.keys, &ids, &firsts);
    plim__name_keys_destroy(&named.keys);
    if (status == PLIM_OK)
        status = add_firsts(import, path, &firsts);
    plim__id_spool_destroy(&firsts);
    if (status == PLIM_OK)
        status = plim__import_names_finish(import);
    if (status == PLIM_OK)
        return take_pairs(import, path, &ids);
    plim__id_spool_destroy(&ids);
    return status;
}

/* Whether a number may contain the byte. */
static bool may_be_number(char byte)
{
    return (byte >= '0' && byte <= '9') || byte == '+' || byte == '-' || byte == '.' ||
           byte == 'e' || byte == 'E';
}

plim_status_t plim__import_is_named(plim__import_t *import, const char *path, bool *named_out)
{
    name_text_t named = {.columns = 0};
    plim__text_t *text;
    plim__text_field_t names[2];
    bool more;
    PLIM_TRY(open_named(import, path, 2, &named, &text));
    plim_status_t status = next_line(text, &named, names, &more);
    *named_out = false;
    for (int i = 0; i < 2 && status == PLIM_OK && more; i++)
        for (size_t j = 0; j < names[i].size; j++)
            *named_out |= !may_be_number(names[i].begin[j]);
    plim__text_close(text);
    return status;
}

/* Labels in the order of nodes, a slab of nodes at a time, from rows in any order. */
typedef struct scattered {
    plim__label_source_t source;
    plim__import_t *import;
    plim__spool_t *values;           /* doubles, row by row, */
    plim__id_spool_t nodes;          /* and the rows' nodes */
    const plim__text_lines_t *lines; /* of these rows, for messages */
    double *slab; /* (slab_rows, columns); all bits of a row without labels are set */
    int64_t slab_rows;
    int64_t first; /* node of the slab's first row */
    int64_t taken; /* nodes delivered */
} scattered_t;

/* Refuses the row of a node that has one already. */
static plim_status_t refuse_second(const scattered_t *scattered, int64_t row)
{
    const int64_t line = plim__text_line_of(scattered->lines, row);
    return plim__fail(PLIM_ERR_DATA,
                      "%s: %s %" PRId64
                      " names a node that an earlier one named; each may occur once",
                      scattered->source.name, line > 0 ? "line" : "row", line > 0 ? line : row);
}

/* Fills the slab at `taken`; nodes without a row are unlabelled. */
static plim_status_t fill_slab(scattered_t *scattered)
{
    const int64_t columns = scattered->source.columns;
    double row[CHUNK];
    int64_t node, got;
    scattered->first = scattered->taken;
    uint64_t bits; /* all are set in a NaN that no text gives */
    memset(scattered->slab, 0xff,
           (size_t)(scattered->slab_rows * columns) * sizeof *scattered->slab);
    PLIM_TRY(plim__spool_rewind(scattered->values, false));
    PLIM_TRY(plim__id_spool_rewind(&scattered->nodes, false));
    for (int64_t i = 0; i < scattered->nodes.count; i++) {
        PLIM_TRY(scattered->nodes.ids.read(&scattered->nodes.ids, &node, 1, &got));
        PLIM_TRY(plim__spool_read(scattered->values, row, (size_t)columns * sizeof row[0]));
        if (node < scattered->first || node - scattered->first >= scattered->slab_rows)
            continue;
        double *to = scattered->slab + (node - scattered->first) * columns;
        memcpy(&bits, to, sizeof bits);
        if (bits != UINT64_MAX)
            return refuse_second(scattered, i);
        memcpy(to, row, (size_t)columns * sizeof row[0]);
    }
    return PLIM_OK;
}

static plim_status_t scattered_read(plim__label_source_t *source, double *to, int64_t capacity,
                                    int64_t *got_out)
{
    scattered_t *scattered = (scattered_t *)source;
    const int64_t left = scattered->import->nodes.value - scattered->taken;
    if (left > 0 &&
        (scattered->first < 0 || scattered->taken - scattered->first == scattered->slab_rows))
        PLIM_TRY(fill_slab(scattered));
    int64_t rows = plim__min_i64(left, capacity / source->columns);
    if (left > 0)
        rows = plim__min_i64(rows, scattered->first + scattered->slab_rows - scattered->taken);
    memcpy(to, scattered->slab + (scattered->taken - scattered->first) * source->columns,
           (size_t)(rows * source->columns) * sizeof *to);
    scattered->taken += rows;
    *got_out = rows * source->columns;
    return PLIM_OK;
}

/* Reads the rows' names as keys, and their values. */
static plim_status_t read_labels(plim__import_t *import, plim__text_t *text, scattered_t *scattered)
{
    plim__text_line_t line;
    double values[CHUNK];
    int64_t got;
    import->row_naming = PLIM__ROW_NAMING_KEYS;
    plim__text_set_remedy(text, PLIM__LABELS_REMEDY);
    PLIM_TRY(plim__import_rows_begin(import, text, false, &line));
    if (line.columns < 1 || line.columns > CHUNK)
        return plim__fail(PLIM_ERR_DATA,
                          "%s has %" PRId64 " columns of labels after the ids; 1 to %d are "
                          "supported",
                          scattered->source.name, line.columns, CHUNK);
    scattered->source.columns = line.columns;
    if (line.columns == 1)
        plim__import_labels_words(import, text);
    const int64_t most = CHUNK / line.columns;
    do {
        PLIM_TRY(plim__job_check(import->job));
        PLIM_TRY(plim__text_rows_f64(text, 1 + line.columns, line.columns, most, values, &got));
        PLIM_TRY(plim__spool_write(scattered->values, values,
                                   (size_t)(got * line.columns) * sizeof values[0]));
    } while (got == most);
    return PLIM_OK;
}

/* Stores the labels in the order of nodes, as many at a time as fit. */
static plim_status_t scatter(plim__import_t *import, scattered_t *scattered)
{
    plim__arena_t arena;
    const int64_t bytes = scattered->source.columns * (int64_t)sizeof(double);
    const int64_t share = plim__ledger_available(import->job->ledger) / 4;
    scattered->slab_rows = plim__min_i64(import->nodes.value, plim__max_i64(share / bytes, 1));
    scattered->first = -1;
    PLIM_TRY(plim__arena_create(import->job->ledger, "import blocks",
                                (size_t)(scattered->slab_rows * bytes), &arena));
    scattered->slab = (void *)arena.base;
    plim_status_t status = plim__import_labels(import, &scattered->source);
    plim__arena_destroy(&arena);
    return status;
}

plim_status_t plim__import_named_labels(plim__import_t *import, const char *path)
{
    scattered_t scattered = {.source = {.read = scattered_read, .name = path, .row_name = "node"},
                             .import = import};
    plim__text_t *text;
    plim__text_lines_t lines = {.rows = 0};
    PLIM_TRY(plim__spool_create(import->job, import->tmp, import->buffer, &scattered.values));
    plim_status_t status = plim__import_text_open(import, path, &text);
    if (status == PLIM_OK) {
        status = read_labels(import, text, &scattered);
        lines = *plim__text_lines(text);
        plim__text_close(text);
    }
    if (status == PLIM_OK && import->row_keys.count == 0)
        status = plim__fail(PLIM_ERR_DATA, "%s is empty", path);
    if (status == PLIM_OK)
        status = find_nodes(import, path, &import->row_keys, &lines, 1, &scattered.nodes);
    plim__name_keys_destroy(&import->row_keys);
    scattered.lines = &lines;
    if (status == PLIM_OK) {
        status = scatter(import, &scattered);
        plim__id_spool_destroy(&scattered.nodes);
    }
    plim__spool_destroy(scattered.values);
    return status;
}
