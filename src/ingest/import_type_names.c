/*
 * Names of the types of edges: a text with a name a line, or with a type and its name, the types
 * being 0, 1, 2 … in this order, as OGB's mapping/reltype2relid.csv.gz has them.
 */
#include "ingest/import.h"

#include "base/fail.h"
#include "base/job.h"
#include "store/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BUFFER ((size_t)64 << 10)
#define NAMES_MAX ((int64_t)1 << 24)

/* Whether a field is the number `value`. */
static bool is_number(plim__text_field_t field, int64_t value)
{
    char text[24];
    const int size = snprintf(text, sizeof text, "%" PRId64, value);
    return field.size == (size_t)size && memcmp(field.begin, text, field.size) == 0;
}

/* Skips the heading of a text of two columns, whose first field is no number. */
static plim_status_t skip_heading(plim__text_t *text, int64_t *columns_out)
{
    plim__text_line_t line;
    PLIM_TRY(plim__text_peek(text, &line));
    *columns_out = line.columns;
    return line.columns > 1 && line.word_first ? plim__text_skip(text) : PLIM_OK;
}

static plim_status_t copy(plim__import_t *import, plim__text_t *text, const char *name,
                          plim__column_t *texts, plim__column_t *offsets)
{
    int64_t columns, end = 0;
    bool more;
    PLIM_TRY(skip_heading(text, &columns));
    PLIM_TRY(plim__column_write(offsets, &end, sizeof end));
    for (int64_t type = 0;; type++) {
        plim__text_field_t fields[2];
        PLIM_TRY(plim__job_check(import->job));
        PLIM_TRY(plim__text_names(text, columns > 1 ? 2 : 1, fields, &more));
        if (!more)
            return PLIM_OK;
        const plim__text_field_t word = fields[columns > 1];
        if (columns > 1 && !is_number(fields[0], type))
            return plim__fail(PLIM_ERR_DATA,
                              "%s: '%.*s' stands where type %" PRId64
                              " is expected; write lines type,name for the types 0, 1, 2 …, or a "
                              "name a line",
                              name, (int)(fields[0].size < 32 ? fields[0].size : 32),
                              fields[0].begin, type);
        if (word.size > PLIM__ID_TEXT_MAX || type >= NAMES_MAX)
            return plim__fail(PLIM_ERR_DATA,
                              "%s: the name of type %" PRId64
                              " has more than %d bytes, or there are more than %" PRId64 " names",
                              name, type, PLIM__ID_TEXT_MAX, NAMES_MAX);
        end += (int64_t)word.size;
        PLIM_TRY(plim__column_write(texts, word.begin, word.size));
        PLIM_TRY(plim__column_write(offsets, &end, sizeof end));
        import->num_type_names = type + 1;
    }
}

plim_status_t plim__import_type_names(plim__import_t *import, plim__text_t *text, const char *name)
{
    const int64_t open = -1;
    plim__column_t *texts, *offsets;
    PLIM_TRY(plim__import_begin(import));
    PLIM_TRY(plim__column_open(import->writer, PLIM__TYPE_TEXT, PLIM__NPY_U8, 1, &open,
                               NAMES_MAX * PLIM__ID_TEXT_MAX, BUFFER, &texts));
    PLIM_TRY(plim__column_open(import->writer, PLIM__TYPE_OFFSETS, PLIM__NPY_I64, 1, &open,
                               (NAMES_MAX + 1) * (int64_t)sizeof(int64_t), BUFFER, &offsets));
    PLIM_TRY(copy(import, text, name, texts, offsets));
    PLIM_TRY(plim__column_close(texts));
    PLIM_TRY(plim__column_close(offsets));
    (void)snprintf(import->type_names_from, sizeof import->type_names_from, "%s", name);
    return PLIM_OK;
}

plim_status_t plim__import_type_names_check(plim__import_t *import)
{
    if (import->type_names_from[0] == '\0')
        return PLIM_OK;
    if ((import->given & PLIM_EDGE_TYPE) == 0)
        return plim__fail(PLIM_ERR_DATA,
                          "%s names types of edges, but edges have none; add "
                          "edge_type, or leave the file out",
                          import->type_names_from);
    if (import->num_type_names < import->num_edge_types)
        return plim__fail(PLIM_ERR_DATA,
                          "%s names %" PRId64 " types of edges, but edges have the type %" PRId64
                          "; name every type",
                          import->type_names_from, import->num_type_names,
                          import->num_edge_types - 1);
    import->num_edge_types = import->num_type_names;
    return PLIM_OK;
}
