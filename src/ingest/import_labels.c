/*
 * Labels: classes (integers, -1 for unlabelled) or values (f32, NaN for unlabelled). Unless the
 * options say which, floats of one column are classes when all of them are whole, as OGB stores
 * classes; that is known only at the end, so they are spooled.
 */
#include "ingest/import.h"

#include "base/bounds.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "store/labels.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define CHUNK 2048 /* values handled at a time */

/* Integers up to this are exact in a double. */
#define EXACT_MAX 0x1p53

typedef struct label_sink {
    plim__import_t *import;
    plim__label_source_t *source;
    bool whole;           /* every value so far is an integer or NaN, */
    bool yes_no;          /* and is 0, 1 or -1 */
    bool minus;           /* -1 is among them */
    int64_t most;         /* the maximum class so far */
    int64_t labelled;     /* values that are a class, if they are classes */
    int64_t values;       /* so far */
    plim__spool_t *spool; /* of doubles */
} label_sink_t;

/* The place of value `at` for messages: its row, or its line in a text. */
static const char *place(const label_sink_t *sink, int64_t at, char place_out[PLIM__PLACE])
{
    const plim__label_source_t *source = sink->source;
    int64_t row = at / source->columns;
    int64_t line = source->lines != NULL ? plim__text_line_of(source->lines, row) : 0;
    (void)snprintf(place_out, PLIM__PLACE, "%s %" PRId64, line > 0 ? "line" : source->row_name,
                   line > 0 ? line : row);
    return place_out;
}

static plim_status_t bad_label(const label_sink_t *sink, int64_t at, double value)
{
    char at_place[PLIM__PLACE];
    return plim__fail(
        PLIM_ERR_DATA,
        "%s: %s: %.17g is not a class; classes are 0, 1, 2 …; write -1 for unlabelled, "
        "or NaN among floats; to read the labels as values, for a regression, give `targets` "
        "values",
        sink->source->name, place(sink, at, at_place), value);
}

/* NaN converted to an integer is the minimum, which is neither a class nor a target. */
static plim_status_t bad_integer(const label_sink_t *sink, int64_t at, double value)
{
    char at_place[PLIM__PLACE];
    return plim__fail(
        PLIM_ERR_DATA, "%s: %s, column %" PRId64 ": %.17g is too large for a label; %s",
        sink->source->name, place(sink, at, at_place), at % sink->source->columns, value,
        sink->source->columns == 1 ? "write -1 for unlabelled"
                                   : "save floats, with NaN for unlabelled");
}

/* Spools values and classifies them. */
static plim_status_t put(label_sink_t *sink, const double *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        double value = values[i];
        if (isnan(value))
            continue;
        if (sink->source->integers && fabs(value) > EXACT_MAX)
            return bad_integer(sink, sink->values + i, value);
        sink->labelled += value >= 0;
        sink->minus |= value == -1;
        sink->yes_no &= value == 0 || value == 1 || value == -1;
        if (value != floor(value) || isinf(value))
            sink->whole = false;
        else if (value <= EXACT_MAX && value > (double)sink->most)
            sink->most = (int64_t)value;
    }
    sink->values += count;
    return plim__spool_write(sink->spool, values, (size_t)count * sizeof *values);
}

static plim_status_t write_classes(label_sink_t *sink, plim__column_t *column)
{
    const plim__class_names_t *names = &sink->import->class_names;
    const plim__dtype_t type = plim__label_type(sink->most + 1);
    double values[CHUNK];
    int64_t classes[CHUNK], narrow[CHUNK];
    for (int64_t done = 0; done < sink->values;) {
        int64_t chunk = plim__min_i64(CHUNK, sink->values - done);
        PLIM_TRY(plim__spool_read(sink->spool, values, (size_t)chunk * sizeof *values));
        for (int64_t i = 0; i < chunk; i++) {
            if (!isnan(values[i]) && (values[i] < -1 || values[i] != floor(values[i]) ||
                                      values[i] >= (double)PLIM__NUM_CLASSES_MAX))
                return bad_label(sink, done + i, values[i]);
            classes[i] = isnan(values[i]) ? -1 : (int64_t)values[i];
            if (names->count > 0 && classes[i] >= 0)
                classes[i] = names->classes[classes[i]];
        }
        plim__labels_narrow(type, classes, chunk, narrow);
        PLIM_TRY(plim__column_write(column, narrow, (size_t)chunk * plim__dtype_size(type)));
        done += chunk;
    }
    return PLIM_OK;
}

static plim_status_t write_values(label_sink_t *sink, plim__column_t *column)
{
    double values[CHUNK];
    float targets[CHUNK];
    char at_place[PLIM__PLACE];
    for (int64_t done = 0; done < sink->values;) {
        int64_t chunk = plim__min_i64(CHUNK, sink->values - done);
        PLIM_TRY(plim__spool_read(sink->spool, values, (size_t)chunk * sizeof *values));
        for (int64_t i = 0; i < chunk; i++) {
            targets[i] = (float)values[i];
            if (isinf(targets[i]))
                return plim__fail(PLIM_ERR_DATA,
                                  "%s: %s, column %" PRId64
                                  ": %g is too large for f32; scale the targets",
                                  sink->source->name, place(sink, done + i, at_place),
                                  (done + i) % sink->source->columns, values[i]);
        }
        PLIM_TRY(plim__column_write(column, targets, (size_t)chunk * sizeof *targets));
        done += chunk;
    }
    return PLIM_OK;
}

/* Warns when labels look like something else. */
static void remark(const label_sink_t *sink, bool classes)
{
    const plim_job_t *job = sink->import->job;
    const char *name = sink->source->name;
    const bool guessed = sink->import->options->targets == PLIM_TARGETS_AUTO;
    if (classes && guessed && sink->most >= sink->labelled)
        plim__log(job, PLIM_LOG_WARNING,
                  "%s: labels are read as %" PRId64 " classes for %" PRId64
                  " labelled %s; are they ids or values? Number classes 0, 1, 2 …; for values, "
                  "import with `targets` values",
                  name, sink->most + 1, sink->labelled, sink->source->graphs ? "graphs" : "nodes");
    else if (classes && guessed && !sink->source->integers && sink->import->class_names.count == 0)
        plim__log(job, PLIM_LOG_INFO,
                  "%s: labels are whole numbers, read as %" PRId64
                  " classes; for a regression import with `targets` values",
                  name, sink->most + 1);
    if (classes || !sink->yes_no || sink->source->columns < 2)
        return;
    if (sink->minus)
        plim__log(job, PLIM_LOG_WARNING,
                  "%s: targets are -1, 0 and 1, and -1 is read as a value; write NaN for unknown "
                  "ones to get a multi-label task",
                  name);
    else
        plim__log(job, PLIM_LOG_INFO,
                  "%s: targets of 0 and 1 in %" PRId64
                  " columns: a multi-label task, by default trained with bce and scored by ROC-AUC",
                  name, sink->source->columns);
}

static plim_status_t write_labels(label_sink_t *sink, bool classes)
{
    plim__import_t *import = sink->import;
    plim__column_t *column;
    int64_t shape[2] = {sink->values / sink->source->columns, sink->source->columns};
    PLIM_TRY(plim__import_begin(import));
    PLIM_TRY(plim__spool_rewind(sink->spool, true));
    const plim__dtype_t type = classes ? plim__label_type(sink->most + 1) : PLIM__NPY_F32;
    PLIM_TRY(plim__column_open(
        import->writer, "labels", type, classes || sink->source->vector ? 1 : 2, shape,
        sink->values * (int64_t)plim__dtype_size(type), import->buffer, &column));
    PLIM_TRY(classes ? write_classes(sink, column) : write_values(sink, column));
    PLIM_TRY(plim__column_close(column));
    if (import->class_names.count > 0) {
        plim__log(import->job, PLIM_LOG_INFO,
                  "%s: the classes are words, numbered in their order: %" PRId64
                  " classes; " PLIM__CLASS_TEXT ".npy keeps the words",
                  sink->source->name, import->class_names.count);
        PLIM_TRY(plim__class_names_write(&import->class_names, import->writer, import->buffer));
    }
    import->num_classes = classes ? sink->most + 1 : 0;
    import->multi_label = !classes && sink->yes_no && !sink->minus && shape[1] > 1 && shape[0] > 0;
    remark(sink, classes);
    import->label_rows = shape[0];
    import->labels_done = true;
    return PLIM_OK;
}

static plim_status_t copy(label_sink_t *sink)
{
    double values[CHUNK];
    int64_t got;
    do {
        PLIM_TRY(plim__job_check(sink->import->job));
        PLIM_TRY(sink->source->read(sink->source, values, CHUNK, &got));
        PLIM_TRY(put(sink, values, got));
    } while (got > 0);
    return PLIM_OK;
}

/* Whether labels are classes, as the options say or as they look: labels of graphs are classes only
 * if the source has integers, or all numbers in a text are. */
static plim_status_t choose_classes(const label_sink_t *sink, bool *classes_out)
{
    const plim__label_source_t *source = sink->source;
    const plim_targets_t targets = sink->import->options->targets;
    if (targets == PLIM_TARGETS_VALUES && sink->import->class_names.count > 0)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: its labels are words, which are classes, not values: leave out "
                          "`targets` values",
                          source->name);
    if (targets == PLIM_TARGETS_CLASSES && source->columns > 1)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: its labels have %" PRId64 " columns, and classes have one: leave "
                          "out `targets` classes",
                          source->name, source->columns);
    *classes_out = targets == PLIM_TARGETS_AUTO
                       ? source->columns == 1 && sink->whole && (!source->graphs || !source->floats)
                       : targets == PLIM_TARGETS_CLASSES;
    return PLIM_OK;
}

plim_status_t plim__import_labels(plim__import_t *import, plim__label_source_t *source)
{
    bool classes = false;
    label_sink_t sink = {
        .import = import, .source = source, .whole = true, .yes_no = true, .most = -1};
    if (import->labels_done)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: labels were already read from %s; keep one of the two", source->name,
                          import->labels_from);
    if (source->columns < 1 || source->columns > CHUNK)
        return plim__fail(PLIM_ERR_DATA,
                          "%s has %" PRId64 " columns of labels; 1 to %d are supported",
                          source->name, source->columns, CHUNK);
    (void)snprintf(import->labels_from, sizeof import->labels_from, "%s", source->name);
    PLIM_TRY(plim__spool_create(import->job, import->tmp, import->buffer, &sink.spool));
    plim_status_t status = copy(&sink);
    if (status == PLIM_OK)
        status = plim__class_names_finish(&import->class_names, source->name);
    if (status == PLIM_OK)
        status = plim__import_agree(source->graphs ? &import->graphs : &import->nodes,
                                    source->graphs ? "graphs" : "nodes",
                                    sink.values / source->columns, source->name);
    if (status == PLIM_OK)
        status = choose_classes(&sink, &classes);
    if (status == PLIM_OK)
        status = write_labels(&sink, classes);
    plim__spool_destroy(sink.spool);
    return status;
}

typedef struct npy_labels {
    plim__label_source_t source;
    plim__reader_t *reader;
    plim__dtype_t type;
    int64_t left;
} npy_labels_t;

static plim_status_t npy_read(plim__label_source_t *source, double *to, int64_t capacity,
                              int64_t *got_out)
{
    npy_labels_t *labels = (npy_labels_t *)source;
    uint64_t raw[CHUNK];
    int64_t count = plim__min_i64(plim__min_i64(capacity, CHUNK), labels->left);
    PLIM_TRY(
        plim__reader_read_all(labels->reader, raw, (size_t)count * plim__dtype_size(labels->type)));
    for (int64_t i = 0; i < count; i++)
        to[i] = plim__feature_convert_value(labels->type, raw, i);
    labels->left -= count;
    *got_out = count;
    return PLIM_OK;
}

plim_status_t plim__import_labels_npy(plim__import_t *import, plim__reader_t *reader,
                                      const plim__npy_t *npy, bool graphs)
{
    if (npy->num_dims != 1 && npy->num_dims != 2)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: labels must have the shape [N] or [N, T], but it has %d dimensions",
                          reader->name, npy->num_dims);
    if (npy->fortran)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "%s: labels of several columns in Fortran order are not supported; save "
                          "them in C order (numpy.ascontiguousarray)",
                          reader->name);
    PLIM_TRY(plim__import_agree(graphs ? &import->graphs : &import->nodes,
                                graphs ? "graphs" : "nodes", npy->shape[0], reader->name));
    bool floats =
        npy->type == PLIM__NPY_F16 || npy->type == PLIM__NPY_F32 || npy->type == PLIM__NPY_F64;
    npy_labels_t labels = {.source = {.read = npy_read,
                                      .name = reader->name,
                                      .row_name = "row",
                                      .columns = npy->num_dims == 2 ? npy->shape[1] : 1,
                                      .graphs = graphs,
                                      .floats = floats,
                                      .integers = !floats,
                                      .vector = npy->num_dims == 1},
                           .reader = reader,
                           .type = npy->type,
                           .left = npy->count};
    PLIM_TRY(plim__import_labels(import, &labels.source));
    return plim__reader_end(reader);
}

void plim__import_labels_words(plim__import_t *import, plim__text_t *text)
{
    plim__class_names_t *names = &import->class_names;
    (void)snprintf(names->heading, sizeof names->heading, "%s", plim__text_heading_end(text));
    plim__text_set_words(text, plim__class_names_take, names);
}

typedef struct text_labels {
    plim__label_source_t source;
    plim__text_t *text;
    int64_t all_columns; /* of the text: ids and features before the labels */
} text_labels_t;

static plim_status_t text_read(plim__label_source_t *source, double *to, int64_t capacity,
                               int64_t *got_out)
{
    text_labels_t *labels = (text_labels_t *)source;
    int64_t columns = source->columns, rows;
    PLIM_TRY(plim__text_rows_f64(labels->text, labels->all_columns, columns, capacity / columns, to,
                                 &rows));
    *got_out = rows * columns;
    return PLIM_OK;
}

plim_status_t plim__import_labels_text(plim__import_t *import, plim__text_t *text, const char *name,
                                       bool graphs)
{
    plim__text_line_t line;
    plim__text_set_remedy(text, PLIM__LABELS_REMEDY);
    PLIM_TRY(plim__import_rows_begin(import, text, false, &line));
    text_labels_t labels = {.source = {.read = text_read,
                                       .name = name,
                                       .row_name = "row",
                                       .lines = plim__text_lines(text),
                                       .columns = import->label_last ? 1 : line.columns,
                                       .graphs = graphs},
                            .text = text,
                            .all_columns = line.columns + line.ids};
    if (import->label_last)
        plim__text_pass(text, labels.all_columns - 1);
    if (labels.source.columns == 1)
        plim__import_labels_words(import, text);
    return plim__import_labels(import, &labels.source);
}
