/*
 * Columns of edges (features, weight, type, time) and the times of nodes. Those of edges wait, in
 * their files or in a spool, until the edges come; then both are read in step and sorted together.
 */
#include "ingest/import.h"

#include "base/bounds.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "store/manifest.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Values that are converted at once, unless one edge has more. */
#define BLOCK_BYTES ((size_t)1 << 20)
#define HEADINGS_MAX 256              /* columns of a text of edges with a heading */
#define OPEN_BYTES ((int64_t)1 << 42) /* most bytes of a column from a text */

/* Names without their endings, as PyG, OGB and dataset directories have them. */
static const struct {
    const char *name;
    unsigned column;
} names[] = {
    {"edge_attr", PLIM_EDGE_FEATURES},  {"edge_feat", PLIM_EDGE_FEATURES},
    {"edge-feat", PLIM_EDGE_FEATURES},  {"edge_features", PLIM_EDGE_FEATURES},
    {"edge_feats", PLIM_EDGE_FEATURES}, {"edge_feat_int", PLIM_EDGE_FEATURES},
    {"edge_weight", PLIM_EDGE_WEIGHT},  {"edge_weights", PLIM_EDGE_WEIGHT},
    {"edge_type", PLIM_EDGE_TYPE},      {"edge_types", PLIM_EDGE_TYPE},
    {"edge_reltype", PLIM_EDGE_TYPE},   {"edge_time", PLIM_EDGE_TIME},
    {"edge_year", PLIM_EDGE_TIME},      {"node_time", PLIM_NODE_TIME},
    {"node_year", PLIM_NODE_TIME},      {"time", PLIM__COLUMN_TIME},
};

const char *plim__import_column_name(int i, unsigned *column_out)
{
    if ((size_t)i >= sizeof names / sizeof names[0])
        return NULL;
    *column_out = names[i].column;
    return names[i].name;
}

unsigned plim__import_column_named(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i].name) == length && memcmp(names[i].name, name, length) == 0)
            return names[i].column;
    return 0;
}

unsigned plim__import_column_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    const char *end = strchr(name, '.');
    if (end == NULL || (strncmp(end, ".npy", 4) != 0 && strncmp(end, ".csv", 4) != 0 &&
                        strncmp(end, ".tsv", 4) != 0 && strncmp(end, ".txt", 4) != 0))
        return 0;
    return plim__import_column_named(name, (size_t)(end - name));
}

static const char *title(unsigned column)
{
    return plim__column_names[__builtin_ctz(column)];
}

/* The type in which an array of that column is stored. */
static plim__dtype_t stored_type(const plim__import_t *import, unsigned column, plim__dtype_t from)
{
    switch (column) {
    case PLIM_EDGE_FEATURES:
        return plim__import_stored_type(import, from);
    case PLIM_EDGE_WEIGHT:
        return PLIM__NPY_F32;
    case PLIM_EDGE_TYPE:
        return PLIM__NPY_I32;
    default:
        return PLIM__NPY_I64;
    }
}

static plim_status_t check_form(unsigned column, const plim__npy_t *npy, const char *name)
{
    const bool flat = npy->num_dims == 1 || (npy->num_dims == 2 && npy->shape[1] == 1);
    if (column == PLIM_EDGE_FEATURES && npy->num_dims == 2 && npy->shape[1] >= 1 &&
        npy->shape[1] <= PLIM__COLUMNS_MAX && npy->fortran)
        return plim__fail(PLIM_ERR_DATA,
                          "%s is in Fortran order; save it in C order (numpy.ascontiguousarray)",
                          name);
    if (!flat && (column != PLIM_EDGE_FEATURES || npy->num_dims != 2 || npy->shape[1] < 1 ||
                  npy->shape[1] > PLIM__COLUMNS_MAX))
        return plim__fail(
            PLIM_ERR_DATA, "%s must have the shape [%s], but it has %d dimensions%s", name,
            column == PLIM_EDGE_FEATURES ? "E] or [E, F"
            : column == PLIM_NODE_TIME   ? "N"
                                         : "E",
            npy->num_dims, npy->num_dims == 2 ? ", or an impossible number of columns" : "");
    if ((column & (PLIM_EDGE_TYPE | PLIM_EDGE_TIME | PLIM_NODE_TIME)) != 0 &&
        !plim__dtype_is_integer(npy->type))
        return plim__fail(PLIM_ERR_DATA, "%s: %s are integers, but it has the type %s", name,
                          column == PLIM_EDGE_TYPE ? "types" : "times",
                          plim__dtype_name(npy->type));
    return PLIM_OK;
}

/* Whether `time` is of the nodes or of the edges, by its length. */
static plim_status_t resolve_time(const plim__import_t *import, int64_t rows, const char *name,
                                  unsigned *column)
{
    if (*column != PLIM__COLUMN_TIME)
        return PLIM_OK;
    const bool of_nodes = rows == import->nodes.value, of_edges = rows == import->edges.value;
    if (of_nodes && !of_edges)
        *column = PLIM_NODE_TIME;
    else if (of_edges && !of_nodes)
        *column = PLIM_EDGE_TIME;
    else if (of_nodes)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: there are as many nodes as edges, so it may be of either; call it "
                          "node_time or edge_time",
                          name);
    else
        return plim__fail(PLIM_ERR_DATA,
                          "%s has %" PRId64
                          " entries, which is not known to be the number of nodes "
                          "or of edges; call it node_time or edge_time",
                          name, rows);
    return PLIM_OK;
}

static plim__import_column_t *column_at(plim__import_t *import, unsigned column)
{
    return &import->columns[__builtin_ctz(column)];
}

/* Checks that a column may come now, and records its source. */
static plim_status_t begin(plim__import_t *import, unsigned column, const char *name)
{
    plim__import_column_t *given = column_at(import, column);
    if (given->from[0] != '\0')
        return plim__fail(PLIM_ERR_DATA, "%s: %s was already read from %s; keep one of the two",
                          name, title(column), given->from);
    if (column != PLIM_NODE_TIME && import->edges_done)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "%s comes after the edges in the archive; unpack the archive and import "
                          "the directory",
                          name);
    if (column != PLIM_NODE_TIME && import->options->self_loops == PLIM_SELF_LOOPS_ADD)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: self-loops that are added would have no %s; omit `self_loops` add: "
                          "models add them by themselves",
                          name, title(column));
    (void)snprintf(given->from, sizeof given->from, "%s", name);
    return PLIM_OK;
}

/* Records the type and shape of a column that was read. */
static plim_status_t record_column(plim__import_t *import, unsigned column, plim__dtype_t type,
                                   int num_dims, int64_t rows, int64_t width)
{
    plim__import_column_t *given = column_at(import, column);
    given->type = type;
    given->num_dims = column == PLIM_EDGE_FEATURES ? num_dims : 1;
    given->rows = rows;
    given->width = width;
    import->given |= column;
    if (column == PLIM_NODE_TIME)
        return PLIM_OK;
    return plim__import_agree(&import->edges, "edges", rows, given->from);
}

/* Copies an array of integers to node_time.npy. */
static plim_status_t write_node_time(plim__import_t *import, plim__ids_t *ids, int64_t *rows_out)
{
    const int64_t open = -1;
    int64_t chunk[PLIM__ID_CHUNK], got;
    plim__column_t *column;
    PLIM_TRY(plim__import_begin(import));
    PLIM_TRY(plim__column_open(import->writer, "node_time", PLIM__NPY_I64, 1, &open, OPEN_BYTES,
                               import->buffer, &column));
    *rows_out = 0;
    do {
        PLIM_TRY(plim__job_check(import->job));
        PLIM_TRY(ids->read(ids, chunk, PLIM__ID_CHUNK, &got));
        PLIM_TRY(plim__column_write(column, chunk, (size_t)got * sizeof *chunk));
        *rows_out += got;
    } while (got == PLIM__ID_CHUNK);
    return plim__column_close(column);
}

static plim_status_t spool_array(plim__import_t *import, plim__import_column_t *given,
                                 plim__reader_t *reader, int64_t bytes)
{
    char piece[8192];
    PLIM_TRY(plim__spool_create(import->job, import->tmp, import->buffer, &given->spool));
    for (int64_t left = bytes; left > 0;) {
        const size_t part = (size_t)plim__min_i64(left, (int64_t)sizeof piece);
        PLIM_TRY(plim__job_check(import->job));
        PLIM_TRY(plim__reader_read_all(reader, piece, part));
        PLIM_TRY(plim__spool_write(given->spool, piece, part));
        left -= (int64_t)part;
    }
    return plim__spool_rewind(given->spool, true);
}

/* An array after its header; `path`: where the values stay, or NULL to spool them. */
static plim_status_t take_array(plim__import_t *import, unsigned column, plim__reader_t *reader,
                                const plim__npy_t *npy, const char *path)
{
    int64_t rows = npy->num_dims > 0 ? npy->shape[0] : 1;
    PLIM_TRY(resolve_time(import, rows, reader->name, &column));
    PLIM_TRY(check_form(column, npy, reader->name));
    PLIM_TRY(begin(import, column, reader->name));
    plim__import_column_t *given = column_at(import, column);
    if (column == PLIM_NODE_TIME) {
        plim__ids_npy_t ids;
        PLIM_TRY(plim__ids_npy_open(&ids, reader, npy->type, npy->count));
        PLIM_TRY(write_node_time(import, &ids.ids, &rows));
        PLIM_TRY(plim__reader_end(reader));
    } else if (path != NULL) {
        (void)snprintf(given->path, sizeof given->path, "%s", path);
        given->header = npy->header_size;
    } else {
        PLIM_TRY(
            spool_array(import, given, reader, npy->count * (int64_t)plim__dtype_size(npy->type)));
        PLIM_TRY(plim__reader_end(reader));
    }
    return record_column(import, column, npy->type, npy->num_dims, rows,
                         npy->num_dims == 2 ? npy->shape[1] : 1);
}

plim_status_t plim__import_column_npy(plim__import_t *import, unsigned column,
                                      plim__reader_t *reader, const plim__npy_t *npy)
{
    return take_array(import, column, reader, npy, NULL);
}

plim_status_t plim__import_column_file(plim__import_t *import, unsigned column, const char *path)
{
    plim__reader_t *reader;
    plim__npy_t npy;
    PLIM_TRY(plim__reader_file(import->job, path, PLIM__PAGE, &reader));
    plim_status_t status = plim__npy_read(reader, &npy);
    if (status == PLIM_OK)
        status = take_array(import, column, reader, &npy, path);
    plim__reader_close(reader);
    return status;
}

plim_status_t plim__import_column_begin(plim__import_t *import, unsigned column, const char *name)
{
    PLIM_TRY(begin(import, column, name));
    plim__import_column_t *given = column_at(import, column);
    given->whole = true;
    return plim__spool_create(import->job, import->tmp, import->buffer, &given->spool);
}

plim_status_t plim__import_column_put(plim__import_t *import, unsigned column, const double *values,
                                      int64_t count)
{
    plim__import_column_t *given = column_at(import, column);
    for (int64_t i = 0; i < count && given->whole; i++)
        given->whole = values[i] == floor(values[i]) && fabs(values[i]) < 0x1p53;
    return plim__spool_write(given->spool, values, (size_t)count * sizeof *values);
}

plim_status_t plim__import_column_end(plim__import_t *import, unsigned column, int num_dims,
                                      int64_t rows, int64_t width)
{
    plim__import_column_t *given = column_at(import, column);
    if ((column == PLIM_EDGE_TYPE || column == PLIM_EDGE_TIME) && !given->whole)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: %s are integers (in a text below 2^53), but some values are not",
                          given->from, column == PLIM_EDGE_TYPE ? "types" : "times");
    PLIM_TRY(plim__spool_rewind(given->spool, true));
    return record_column(import, column, PLIM__NPY_F64, num_dims, rows, width);
}

static plim_status_t copy_text(plim__import_t *import, unsigned column, plim__text_t *text,
                               int64_t columns, int64_t width, double *values, int64_t capacity,
                               int64_t *rows_out)
{
    int64_t got;
    *rows_out = 0;
    do {
        PLIM_TRY(plim__job_check(import->job));
        PLIM_TRY(plim__text_rows_f64(text, columns, width, capacity, values, &got));
        PLIM_TRY(plim__import_column_put(import, column, values, got * width));
        *rows_out += got;
    } while (got == capacity);
    return PLIM_OK;
}

/* Reads `width` fields of each line of a text of `columns` fields. */
static plim_status_t take_fields(plim__import_t *import, unsigned column, plim__text_t *text,
                                 const char *name, int64_t columns, int64_t width)
{
    plim__arena_t arena;
    int64_t rows = 0;
    PLIM_TRY(plim__import_column_begin(import, column, name));
    if (width < 1) /* an empty text */
        return plim__import_column_end(import, column, 1, 0, 1);
    const int64_t capacity = plim__max_i64(1, (int64_t)(BLOCK_BYTES / sizeof(double)) / width);
    PLIM_TRY(plim__arena_create(import->job->ledger, "import blocks",
                                (size_t)(capacity * width) * sizeof(double), &arena));
    plim_status_t status =
        copy_text(import, column, text, columns, width, (void *)arena.base, capacity, &rows);
    plim__arena_destroy(&arena);
    PLIM_TRY(status);
    return plim__import_column_end(import, column, width == 1 ? 1 : 2, rows, width);
}

plim_status_t plim__import_column_text(plim__import_t *import, unsigned column, plim__text_t *text,
                                       const char *name)
{
    plim__text_line_t line;
    if (column == PLIM_NODE_TIME) {
        plim__ids_text_t ids;
        int64_t rows = 0;
        PLIM_TRY(begin(import, column, name));
        PLIM_TRY(plim__ids_text_open(&ids, text, name));
        PLIM_TRY(write_node_time(import, &ids.ids, &rows));
        return record_column(import, column, PLIM__NPY_I64, 1, rows, 1);
    }
    if (column == PLIM__COLUMN_TIME)
        return plim__fail(PLIM_ERR_DATA, "%s: call it node_time or edge_time", name);
    PLIM_TRY(plim__text_table(text, false, &line));
    const int64_t index = line.index && line.columns > 1 ? 1 : 0;
    const int64_t width = line.columns - index;
    if (index > 0)
        plim__text_pass(text, index);
    if (column != PLIM_EDGE_FEATURES && width > 1)
        return plim__fail(PLIM_ERR_DATA, "%s has %" PRId64 " columns instead of one", name, width);
    return take_fields(import, column, text, name, line.columns, width);
}

unsigned plim__import_column_headed(const char *name, size_t length)
{
    static const struct {
        const char *name;
        unsigned column;
    } words[] = {{"weight", PLIM_EDGE_WEIGHT},  {"type", PLIM_EDGE_TYPE},
                 {"reltype", PLIM_EDGE_TYPE},   {"time", PLIM_EDGE_TIME},
                 {"timestamp", PLIM_EDGE_TIME}, {"year", PLIM_EDGE_TIME}};
    static const char *const begins[] = {"edge_attr", "edge_feat", "feat"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strlen(words[i].name) == length && strncasecmp(words[i].name, name, length) == 0)
            return words[i].column;
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
        if (length >= strlen(begins[i]) && strncasecmp(begins[i], name, strlen(begins[i])) == 0)
            return PLIM_EDGE_FEATURES;
    return plim__import_column_named(name, length) & PLIM_COLUMNS_OF_EDGES;
}

/* Where the fields of each column begin in the text, and how many there are. */
typedef struct headings {
    int64_t columns; /* of the text; 0: no heading */
    int64_t first[PLIM_COLUMNS];
    int64_t count[PLIM_COLUMNS];
} headings_t;

static plim_status_t read_headings(plim__import_t *import, plim__text_t *text, const char *path,
                                   headings_t *headings)
{
    plim__text_field_t fields[HEADINGS_MAX];
    plim__text_line_t line;
    bool more;
    PLIM_TRY(plim__text_peek(text, &line));
    /* A heading with an empty field (pandas' index) has no names that can be read: its columns are
     * ignored, with a warning. */
    if (!line.heading || line.unnamed || line.columns < 3 || line.columns > HEADINGS_MAX)
        return PLIM_OK;
    headings->columns = line.columns;
    PLIM_TRY(plim__text_names(text, line.columns, fields, &more));
    for (int64_t i = 2; i < line.columns; i++) {
        const unsigned column = plim__import_column_headed(fields[i].begin, fields[i].size);
        if (column == 0)
            continue;
        const int place = __builtin_ctz(column);
        if (headings->count[place] > 0 &&
            (column != PLIM_EDGE_FEATURES || headings->first[place] + headings->count[place] != i))
            return plim__fail(PLIM_ERR_DATA,
                              "%s: column %" PRId64
                              " is another %s; keep one, and features side by "
                              "side",
                              path, i + 1, title(column));
        if (headings->count[place]++ == 0)
            headings->first[place] = i;
        import->headed_columns++;
    }
    return PLIM_OK;
}

plim_status_t plim__import_headed_columns(plim__import_t *import, const char *path)
{
    headings_t headings = {.columns = 0};
    plim__text_t *text;
    PLIM_TRY(plim__import_text_open(import, path, &text));
    plim_status_t status = read_headings(import, text, path, &headings);
    plim__text_close(text);
    for (int i = 0; i < PLIM_COLUMNS && status == PLIM_OK; i++) {
        if (headings.count[i] == 0)
            continue;
        PLIM_TRY(plim__import_text_open(import, path, &text));
        status = plim__text_skip(text);
        plim__text_pass(text, headings.first[i]);
        if (status == PLIM_OK)
            status = take_fields(import, 1u << i, text, path, headings.columns, headings.count[i]);
        plim__text_close(text);
    }
    return status;
}

/* The type that an array of the source counts as: texts are read as doubles, whole ones are
 * integers. */
static plim__dtype_t source_type(const plim__import_column_t *given)
{
    return given->type == PLIM__NPY_F64 && given->whole ? PLIM__NPY_I64 : given->type;
}

bool plim__import_has_columns(const plim__import_t *import)
{
    return (import->given & PLIM_COLUMNS_OF_EDGES) != 0 || import->options->edge_ids;
}

int plim__import_fields(const plim__import_t *import, plim__edge_field_t fields_out[PLIM_COLUMNS])
{
    int count = 0;
    for (int i = 0; i < PLIM_COLUMNS; i++) {
        const unsigned column = 1u << i;
        const plim__import_column_t *given = &import->columns[i];
        if (column == PLIM_EDGE_ID && import->options->edge_ids)
            fields_out[count++] = (plim__edge_field_t){PLIM_EDGE_ID, PLIM__NPY_I64, 1, 1};
        else if ((import->given & PLIM_COLUMNS_OF_EDGES & column) != 0)
            fields_out[count++] = (plim__edge_field_t){
                (plim_column_t)column, stored_type(import, column, source_type(given)),
                given->num_dims, given->width};
    }
    return count;
}

int64_t plim__import_spooled_columns(const plim__import_t *import)
{
    int64_t bytes = 0;
    for (int i = 0; i < PLIM_COLUMNS; i++)
        if (import->columns[i].spool != NULL)
            bytes = plim__add_saturating_i64(
                bytes, import->columns[i].rows * import->columns[i].width *
                           (int64_t)plim__dtype_size(import->columns[i].type));
    return bytes;
}

void plim__import_columns_close(plim__import_t *import)
{
    for (int i = 0; i < PLIM_COLUMNS; i++) {
        plim__spool_destroy(import->columns[i].spool);
        plim__reader_close(import->columns[i].reader);
        import->columns[i].spool = NULL;
        import->columns[i].reader = NULL;
    }
}

/* Most bytes of one edge's values in the source, in any column. */
static size_t most_raw(const plim__import_t *import)
{
    size_t most = sizeof(int64_t);
    for (int i = 0; i < PLIM_COLUMNS; i++) {
        const plim__import_column_t *given = &import->columns[i];
        const size_t bytes = (size_t)given->width * sizeof(double);
        most = bytes > most ? bytes : most;
    }
    return most;
}

int64_t plim__import_values_block(const plim__import_t *import, size_t values, size_t *bytes_out)
{
    const size_t each = 2 * most_raw(import) + values;
    const int64_t rows = plim__min_i64((int64_t)(BLOCK_BYTES / each) + 1, import->block);
    *bytes_out = (size_t)rows * each;
    return rows;
}

static plim_status_t bad_value(const plim__import_column_t *given, plim__dtype_t type,
                               const void *raw, int64_t at, plim__dtype_t to)
{
    const int64_t number = given->at * given->width + at;
    const double value = plim__feature_convert_value(type, raw, at);
    if (!isfinite(value))
        return plim__fail(PLIM_ERR_DATA, "%s: row %" PRId64 ": %s is not allowed; write a number",
                          given->from, number / given->width, isnan(value) ? "NaN" : "infinity");
    if (to != PLIM__NPY_F16 && to != PLIM__NPY_F32)
        return plim__fail(PLIM_ERR_DATA, "%s: row %" PRId64 ": %.17g is not an integer of 64 bits",
                          given->from, number / given->width, value);
    return plim__fail(PLIM_ERR_DATA, "%s: row %" PRId64 ": %g is too large for %s", given->from,
                      number / given->width, value,
                      to == PLIM__NPY_F16 ? "f16 (65504 at most)" : "f32");
}

/* Converts `count` values of the source to the stored type; types come as 64 bits. */
static plim_status_t convert(plim__import_t *import, const plim__import_column_t *given,
                             plim__dtype_t to_type, const void *raw, void *to, int64_t count)
{
    const plim__dtype_t made = to_type == PLIM__NPY_I32 ? PLIM__NPY_I64 : to_type;
    const int64_t good = plim__feature_convert(import->path, given->type, raw, made, to, count,
                                               &import->feature_error);
    return good == count ? PLIM_OK : bad_value(given, given->type, raw, good, to_type);
}

/* Checks types and narrows them to 32 bits, in place: by copies, as one object holds both. */
static plim_status_t narrow_types(plim__import_t *import, const plim__import_column_t *given,
                                  char *types, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t type;
        memcpy(&type, types + (size_t)i * sizeof type, sizeof type);
        if (type < 0 || type >= PLIM__EDGE_TYPES_MAX)
            return plim__fail(PLIM_ERR_DATA,
                              "%s: row %" PRId64 ": %" PRId64 " is not a type; types are 0, 1, 2 …",
                              given->from, given->at + i, type);
        const int32_t narrow = (int32_t)type;
        memcpy(types + (size_t)i * sizeof narrow, &narrow, sizeof narrow);
        import->num_edge_types = plim__max_i64(import->num_edge_types, type + 1);
    }
    return PLIM_OK;
}

static plim_status_t open_column(plim__import_t *import, plim__import_column_t *given)
{
    if (given->reader != NULL || given->spool != NULL)
        return PLIM_OK;
    return plim__reader_file_at(import->job, given->path, import->buffer, given->header,
                                &given->reader);
}

plim_status_t plim__import_columns_open(plim__import_t *import)
{
    for (int i = 0; i < PLIM_COLUMNS; i++)
        if ((import->given & PLIM_COLUMNS_OF_EDGES & 1u << i) != 0)
            PLIM_TRY(open_column(import, &import->columns[i]));
    return PLIM_OK;
}

const char *plim__import_values_of(const plim__import_t *import, int64_t count, const char *work)
{
    return work + 2 * (size_t)count * most_raw(import);
}

plim_status_t plim__import_values(plim__import_t *import, const plim__edge_field_t *fields,
                                  int num_fields, int64_t first, int64_t count, char *work)
{
    const size_t raw_bytes = (size_t)count * most_raw(import);
    char *raw = work, *made = work + raw_bytes, *values = made + raw_bytes;
    size_t stride = 0, at = 0;
    for (int i = 0; i < num_fields; i++)
        stride += (size_t)fields[i].width * plim__dtype_size(fields[i].type);
    for (int i = 0; i < num_fields; i++) {
        const plim__edge_field_t *field = &fields[i];
        plim__import_column_t *given = column_at(import, (unsigned)field->column);
        const size_t size = (size_t)field->width * plim__dtype_size(field->type);
        const int64_t items = count * field->width;
        if (field->column == PLIM_EDGE_ID) {
            for (int64_t j = 0; j < count; j++)
                ((int64_t *)(void *)made)[j] = first + j;
        } else {
            const size_t bytes = (size_t)items * plim__dtype_size(given->type);
            PLIM_TRY(given->spool != NULL ? plim__spool_read(given->spool, raw, bytes)
                                          : plim__reader_read_all(given->reader, raw, bytes));
            PLIM_TRY(convert(import, given, field->type, raw, made, items));
            if (field->type == PLIM__NPY_I32)
                PLIM_TRY(narrow_types(import, given, made, items));
            given->at += count;
        }
        for (int64_t j = 0; j < count; j++)
            memcpy(values + (size_t)j * stride + at, made + (size_t)j * size, size);
        at += size;
    }
    return PLIM_OK;
}

plim_status_t plim__import_columns_end(plim__import_t *import)
{
    for (int i = 0; i < PLIM_COLUMNS; i++)
        if (import->columns[i].reader != NULL)
            PLIM_TRY(plim__reader_end(import->columns[i].reader));
    plim__import_columns_close(import);
    return PLIM_OK;
}
