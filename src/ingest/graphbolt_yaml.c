/*
 * Reads libyaml's events one at a time and tracks the path of keys and indices of each, such as
 * "graph/edges/0/path". Keeps scalars at known paths and ignores the rest.
 */
#include "ingest/graphbolt_yaml.h"

#include "base/bounds.h"
#include "base/fail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define DEPTH_MAX 16
#define KEY_MAX 64

typedef struct frame {
    bool sequence;
    bool has_key; /* in a mapping: the next node is the value of `key` */
    int index;    /* of the next entry in a sequence */
    char key[KEY_MAX];
} frame_t;

typedef struct yaml_reader {
    const char *name;
    plim__graphbolt_t *graphbolt;
    int depth;
    frame_t frames[DEPTH_MAX];
    size_t line; /* of the current event */
} yaml_reader_t;

static plim_status_t bad(const yaml_reader_t *reader, const char *what)
{
    return plim__fail(PLIM_ERR_DATA, "%s: line %zu: %s", reader->name, reader->line + 1, what);
}

static plim_status_t several_types(const yaml_reader_t *reader, const char *what)
{
    return plim__fail(
        PLIM_ERR_UNSUPPORTED,
        "%s: line %zu: several types of %s; only graphs of one type of nodes and edges "
        "are supported",
        reader->name, reader->line + 1, what);
}

/* Whether level `level` of the path is this key, not a sequence. */
static bool is_key(const yaml_reader_t *reader, int level, const char *key)
{
    return level < reader->depth && !reader->frames[level].sequence &&
           strcmp(reader->frames[level].key, key) == 0;
}

/* The index at level `level`, -1 when it is not a sequence. */
static int index_at(const yaml_reader_t *reader, int level)
{
    return level < reader->depth && reader->frames[level].sequence ? reader->frames[level].index
                                                                   : -1;
}

static plim_status_t keep(const yaml_reader_t *reader, const char *value, size_t length, char *to,
                          size_t capacity)
{
    if (length >= capacity || memchr(value, '\0', length) != NULL)
        return bad(reader, "a string is too long or has a zero byte");
    memcpy(to, value, length);
    to[length] = '\0';
    return PLIM_OK;
}

static plim_status_t keep_array(const yaml_reader_t *reader, int level, const char *value,
                                size_t length, plim__yaml_array_t *array)
{
    if (is_key(reader, level, "domain"))
        return keep(reader, value, length, array->domain, sizeof array->domain);
    if (is_key(reader, level, "name"))
        return keep(reader, value, length, array->name, sizeof array->name);
    if (is_key(reader, level, "format"))
        return keep(reader, value, length, array->format, sizeof array->format);
    if (is_key(reader, level, "path"))
        return keep(reader, value, length, array->path, sizeof array->path);
    return PLIM_OK;
}

static plim_status_t keep_count(const yaml_reader_t *reader, const char *value, size_t length,
                                int64_t *count_out)
{
    char text[32], *end;
    PLIM_TRY(keep(reader, value, length, text, sizeof text));
    errno = 0;
    long long count = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || count < 0 || count > PLIM__ITEMS_MAX)
        return bad(reader, "a number of nodes is expected here");
    *count_out = count;
    return PLIM_OK;
}

static plim_status_t graph_scalar(yaml_reader_t *reader, const char *value, size_t length)
{
    int index = index_at(reader, 2);
    if (is_key(reader, 1, "nodes")) {
        if (index > 0)
            return several_types(reader, "nodes");
        return index == 0 && is_key(reader, 3, "num")
                   ? keep_count(reader, value, length, &reader->graphbolt->num_nodes)
                   : PLIM_OK;
    }
    if (!is_key(reader, 1, "edges") || index < 0)
        return PLIM_OK;
    if (index > 0)
        return several_types(reader, "edges");
    return keep_array(reader, 3, value, length, &reader->graphbolt->edges);
}

static plim_status_t feature_scalar(yaml_reader_t *reader, const char *value, size_t length)
{
    int index = index_at(reader, 1);
    if (index < 0)
        return PLIM_OK;
    if (index >= PLIM__YAML_FEATURES)
        return bad(reader, "more than 16 features");
    if (index >= reader->graphbolt->num_features)
        reader->graphbolt->num_features = index + 1;
    return keep_array(reader, 2, value, length, &reader->graphbolt->features[index]);
}

/* tasks/0/train_set/0/data/INDEX/… */
static plim_status_t task_scalar(yaml_reader_t *reader, const char *value, size_t length)
{
    static const char *const sets[3] = {"train_set", "validation_set", "test_set"};
    if (index_at(reader, 1) != 0)
        return PLIM_OK;
    for (int set = 0; set < 3; set++) {
        if (!is_key(reader, 2, sets[set]))
            continue;
        if (index_at(reader, 3) > 0)
            return several_types(reader, "nodes in a set");
        int index = index_at(reader, 5);
        if (!is_key(reader, 4, "data") || index < 0)
            return PLIM_OK;
        if (index >= PLIM__YAML_ARRAYS)
            return bad(reader, "more than 4 arrays in a set");
        if (index >= reader->graphbolt->num_arrays[set])
            reader->graphbolt->num_arrays[set] = index + 1;
        return keep_array(reader, 6, value, length, &reader->graphbolt->arrays[set][index]);
    }
    return PLIM_OK;
}

static plim_status_t take_scalar(yaml_reader_t *reader, const char *value, size_t length)
{
    if (reader->depth == 0)
        return bad(reader, "not a metadata.yaml of GraphBolt: it is a single value");
    if (is_key(reader, 0, "graph_topology"))
        return plim__fail(
            PLIM_ERR_UNSUPPORTED,
            "%s describes a graph that GraphBolt has preprocessed; give the directory "
            "above it, whose metadata.yaml names the edges",
            reader->name);
    if (is_key(reader, 0, "graph"))
        return graph_scalar(reader, value, length);
    if (is_key(reader, 0, "feature_data"))
        return feature_scalar(reader, value, length);
    if (is_key(reader, 0, "tasks"))
        return task_scalar(reader, value, length);
    return PLIM_OK;
}

/* After a value: a mapping expects a key, a sequence its next entry. */
static void pass_value(yaml_reader_t *reader)
{
    if (reader->depth == 0)
        return;
    frame_t *frame = &reader->frames[reader->depth - 1];
    frame->has_key = false;
    frame->index++;
}

static plim_status_t scalar(yaml_reader_t *reader, const char *value, size_t length)
{
    frame_t *frame = reader->depth > 0 ? &reader->frames[reader->depth - 1] : NULL;
    if (frame != NULL && !frame->sequence && !frame->has_key) {
        /* No known key is longer. */
        (void)snprintf(frame->key, sizeof frame->key, "%.*s", (int)(length < 63 ? length : 63),
                       value);
        frame->has_key = true;
        return PLIM_OK;
    }
    PLIM_TRY(take_scalar(reader, value, length));
    pass_value(reader);
    return PLIM_OK;
}

static plim_status_t begin(yaml_reader_t *reader, bool sequence)
{
    frame_t *frame = reader->depth > 0 ? &reader->frames[reader->depth - 1] : NULL;
    if (frame != NULL && !frame->sequence && !frame->has_key)
        return bad(reader, "a key must be a string");
    if (reader->depth == DEPTH_MAX)
        return bad(reader, "nested too deeply");
    reader->frames[reader->depth++] = (frame_t){.sequence = sequence};
    return PLIM_OK;
}

static plim_status_t take_event(yaml_reader_t *reader, const yaml_event_t *event)
{
    reader->line = event->start_mark.line;
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        return plim__fail(PLIM_ERR_UNSUPPORTED, "%s: line %zu: YAML aliases are not supported",
                          reader->name, reader->line + 1);
    case YAML_SCALAR_EVENT:
        return scalar(reader, (const char *)event->data.scalar.value, event->data.scalar.length);
    case YAML_SEQUENCE_START_EVENT:
        return begin(reader, true);
    case YAML_MAPPING_START_EVENT:
        return begin(reader, false);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        reader->depth--;
        pass_value(reader);
        return PLIM_OK;
    default:
        return PLIM_OK;
    }
}

static plim_status_t read_events(yaml_parser_t *parser, yaml_reader_t *reader)
{
    bool ended = false;
    while (!ended) {
        yaml_event_t event;
        if (yaml_parser_parse(parser, &event) == 0)
            return parser->error == YAML_MEMORY_ERROR
                       ? plim__fail(PLIM_ERR_NOMEM, "%s: out of memory in libyaml", reader->name)
                       : plim__fail(PLIM_ERR_DATA, "%s: line %zu: not YAML: %s", reader->name,
                                    parser->problem_mark.line + 1,
                                    parser->problem != NULL ? parser->problem : "unreadable");
        plim_status_t status = take_event(reader, &event);
        ended = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
        if (status != PLIM_OK)
            return status;
    }
    return PLIM_OK;
}

plim_status_t plim__graphbolt_parse(const char *name, const void *data, size_t size,
                                    plim__graphbolt_t *graphbolt_out)
{
    yaml_parser_t parser;
    yaml_reader_t reader = {.name = name, .graphbolt = graphbolt_out};
    memset(graphbolt_out, 0, sizeof *graphbolt_out);
    graphbolt_out->num_nodes = -1;
    if (size > PLIM__YAML_MAX)
        return plim__fail(PLIM_ERR_DATA, "%s has %zu bytes; at most %zu are supported", name, size,
                          PLIM__YAML_MAX);
    if (yaml_parser_initialize(&parser) == 0)
        return plim__fail(PLIM_ERR_NOMEM, "%s: out of memory in libyaml", name);
    yaml_parser_set_input_string(&parser, data, size);
    plim_status_t status = read_events(&parser, &reader);
    yaml_parser_delete(&parser);
    if (status == PLIM_OK && graphbolt_out->edges.path[0] == '\0')
        status = plim__fail(PLIM_ERR_DATA, "%s names no edges (graph: edges: - path: …)", name);
    return status;
}
