#include "ingest/edge_source.h"

#include "base/check.h"
#include "base/fail.h"

#include <inttypes.h>
#include <stdio.h>

static void begin(plim__edge_source_t *edges, const char *name)
{
    edges->position = 0;
    edges->place = "edge";
    edges->lines = NULL;
    (void)snprintf(edges->name, sizeof edges->name, "%s", name);
}

const char *plim__edge_place(const plim__edge_source_t *edges, int64_t at,
                             char place_out[PLIM__PLACE])
{
    int64_t line = edges->lines != NULL ? plim__text_line_of(edges->lines, at) : 0;
    (void)snprintf(place_out, PLIM__PLACE, "%s %" PRId64, line > 0 ? "line" : edges->place,
                   line > 0 ? line : at);
    return place_out;
}

static plim_status_t pairs_read(plim__edge_source_t *edges, int64_t *source, int64_t *destination,
                                int64_t capacity, int64_t *got_out)
{
    plim__edges_pairs_t *pairs = (plim__edges_pairs_t *)edges;
    int64_t got, other;
    PLIM_TRY(pairs->source->read(pairs->source, source, capacity, &got));
    PLIM_TRY(pairs->destination->read(pairs->destination, destination, capacity, &other));
    if (got != other)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: %" PRId64 " sources, but %" PRId64
                          " destinations; every edge needs both",
                          edges->name, edges->position + got, edges->position + other);
    edges->position += got;
    *got_out = got;
    return PLIM_OK;
}

void plim__edges_pairs_open(plim__edges_pairs_t *pairs, plim__ids_t *source,
                            plim__ids_t *destination)
{
    begin(&pairs->edges, destination->name);
    pairs->edges.read = pairs_read;
    pairs->source = source;
    pairs->destination = destination;
}

static plim_status_t mixed_read(plim__edge_source_t *edges, int64_t *source, int64_t *destination,
                                int64_t capacity, int64_t *got_out)
{
    plim__edges_mixed_t *mixed = (plim__edges_mixed_t *)edges;
    int64_t both[2048];
    int64_t done = 0;
    while (done < capacity) {
        int64_t part = plim__min_i64(capacity - done, 1024), got;
        PLIM_TRY(mixed->ids->read(mixed->ids, both, 2 * part, &got));
        if (got == 0)
            break;
        if (got % 2 != 0)
            return plim__fail(PLIM_ERR_DATA,
                              "%s ends after the source of edge %" PRId64
                              "; every edge needs a destination",
                              edges->name, edges->position + done + got / 2);
        for (int64_t i = 0; i < got / 2; i++) {
            source[done + i] = both[2 * i];
            destination[done + i] = both[2 * i + 1];
        }
        done += got / 2;
    }
    edges->position += done;
    *got_out = done;
    return PLIM_OK;
}

void plim__edges_mixed_open(plim__edges_mixed_t *mixed, plim__ids_t *ids)
{
    begin(&mixed->edges, ids->name);
    mixed->edges.read = mixed_read;
    mixed->ids = ids;
}

/* Reads and checks the next offset. *more_out is false at the end. */
static plim_status_t csc_next_offset(plim__edges_csc_t *csc, bool *more_out)
{
    int64_t offset, got;
    PLIM_TRY(csc->indptr->read(csc->indptr, &offset, 1, &got));
    *more_out = got == 1;
    if (got == 0)
        return PLIM_OK;
    bool first = csc->indptr->position == 1;
    if (first ? offset != 0 : offset < csc->end || offset > csc->num_edges)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: element %" PRId64 " is %" PRId64
                          "; offsets must ascend from 0 to the %" PRId64 " indices",
                          csc->indptr->name, csc->indptr->position - 1, offset, csc->num_edges);
    csc->end = offset;
    csc->node += first ? 0 : 1;
    return PLIM_OK;
}

static plim_status_t csc_too_short(const plim__edges_csc_t *csc)
{
    return plim__fail(PLIM_ERR_DATA,
                      "%s ends with %" PRId64 ", but there are %" PRId64
                      " indices; the two files do not belong together",
                      csc->indptr->name, csc->end, csc->num_edges);
}

static plim_status_t csc_read(plim__edge_source_t *edges, int64_t *source, int64_t *destination,
                              int64_t capacity, int64_t *got_out)
{
    plim__edges_csc_t *csc = (plim__edges_csc_t *)edges;
    int64_t got;
    bool more = true;
    PLIM_TRY(csc->indices->read(csc->indices, source, capacity, &got));
    for (int64_t i = 0; i < got; i++) {
        while (more && (csc->node < 0 || csc->end <= edges->position + i))
            PLIM_TRY(csc_next_offset(csc, &more));
        if (!more)
            return csc_too_short(csc);
        destination[i] = csc->node;
    }
    edges->position += got;
    if (got < capacity) { /* the end: the remaining offsets must be equal */
        while (more)
            PLIM_TRY(csc_next_offset(csc, &more));
        if (csc->end != csc->num_edges)
            return csc_too_short(csc);
    }
    *got_out = got;
    return PLIM_OK;
}

void plim__edges_csc_open(plim__edges_csc_t *csc, plim__ids_t *indptr, plim__ids_t *indices,
                          int64_t num_edges)
{
    begin(&csc->edges, indices->name);
    csc->edges.read = csc_read;
    csc->edges.place = "element";
    csc->indptr = indptr;
    csc->indices = indices;
    csc->num_edges = num_edges;
    csc->node = -1;
    csc->end = 0;
}

/* Moves to the next graph with edges. *more_out is false after the last graph. */
static plim_status_t local_next_graph(plim__edges_local_t *local, bool *more_out)
{
    *more_out = true;
    while (local->left == 0) {
        int64_t nodes, edges, got_nodes, got_edges;
        PLIM_TRY(local->nodes_of_graphs->read(local->nodes_of_graphs, &nodes, 1, &got_nodes));
        PLIM_TRY(local->edges_of_graphs->read(local->edges_of_graphs, &edges, 1, &got_edges));
        if (got_nodes != got_edges)
            return plim__fail(PLIM_ERR_DATA, "%s and %s have different numbers of graphs",
                              local->nodes_of_graphs->name, local->edges_of_graphs->name);
        *more_out = got_nodes == 1;
        if (got_nodes == 0)
            return PLIM_OK;
        if (nodes < 0 || edges < 0 ||
            !plim__add_i64(local->first_node, local->num_nodes, &local->first_node))
            return plim__fail(PLIM_ERR_DATA,
                              "%s: graph %" PRId64 " has %" PRId64 " nodes and %" PRId64
                              " edges, which is impossible; check the file",
                              local->nodes_of_graphs->name, local->graph + 1, nodes, edges);
        local->graph++;
        local->num_nodes = nodes;
        local->left = edges;
    }
    return PLIM_OK;
}

static plim_status_t local_place(plim__edges_local_t *local, int64_t *source, int64_t *destination)
{
    plim__edge_source_t *edges = &local->edges;
    char place[PLIM__PLACE];
    uint64_t limit = (uint64_t)local->num_nodes;
    if ((uint64_t)*source >= limit || (uint64_t)*destination >= limit)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: %s: id %" PRId64 " is not in graph %" PRId64 ", which has %" PRId64
                          " nodes; check the counts of the graphs",
                          edges->name, plim__edge_place(edges, edges->position, place),
                          (uint64_t)*source >= limit ? *source : *destination, local->graph,
                          local->num_nodes);
    *source += local->first_node;
    *destination += local->first_node;
    local->left--;
    edges->position++;
    return PLIM_OK;
}

static plim_status_t local_read(plim__edge_source_t *edges, int64_t *source, int64_t *destination,
                                int64_t capacity, int64_t *got_out)
{
    plim__edges_local_t *local = (plim__edges_local_t *)edges;
    char place[PLIM__PLACE];
    int64_t got;
    bool more;
    PLIM_TRY(local->inner->read(local->inner, source, destination, capacity, &got));
    for (int64_t i = 0; i < got; i++) {
        PLIM_TRY(local_next_graph(local, &more));
        if (!more)
            return plim__fail(PLIM_ERR_DATA, "%s: %s belongs to no graph, by the counts in %s",
                              edges->name, plim__edge_place(edges, edges->position, place),
                              local->edges_of_graphs->name);
        PLIM_TRY(local_place(local, &source[i], &destination[i]));
    }
    if (got < capacity) {
        PLIM_TRY(local_next_graph(local, &more));
        if (more)
            return plim__fail(PLIM_ERR_DATA,
                              "%s ends after %" PRId64 " edges; %" PRId64 " edges of graph %" PRId64
                              " are missing, by the counts in %s",
                              edges->name, edges->position, local->left, local->graph,
                              local->edges_of_graphs->name);
    }
    *got_out = got;
    return PLIM_OK;
}

void plim__edges_local_open(plim__edges_local_t *local, plim__edge_source_t *inner,
                            plim__ids_t *nodes_of_graphs, plim__ids_t *edges_of_graphs)
{
    begin(&local->edges, inner->name);
    local->edges.read = local_read;
    local->edges.place = inner->place;
    local->edges.lines = inner->lines;
    local->inner = inner;
    local->nodes_of_graphs = nodes_of_graphs;
    local->edges_of_graphs = edges_of_graphs;
    local->graph = -1;
    local->first_node = 0;
    local->num_nodes = 0;
    local->left = 0;
}

static plim_status_t text_read(plim__edge_source_t *edges, int64_t *source, int64_t *destination,
                               int64_t capacity, int64_t *got_out)
{
    plim__edges_text_t *text = (plim__edges_text_t *)edges;
    int64_t both[2048], done = 0, got = 0;
    do {
        int64_t part = plim__min_i64(capacity - done, 1024);
        if (text->columns > 0)
            PLIM_TRY(
                plim__text_rows_i64(text->text, text->index + text->columns, 2, part, both, &got));
        for (int64_t i = 0; i < got; i++) {
            source[done + i] = both[2 * i];
            destination[done + i] = both[2 * i + 1];
        }
        done += got;
    } while (got == 1024 && done < capacity);
    edges->position += done;
    *got_out = done;
    return PLIM_OK;
}

plim_status_t plim__edges_text_open(plim__edges_text_t *edges, plim__text_t *text, const char *name)
{
    plim__text_line_t line;
    PLIM_TRY(plim__text_table(text, false, &line));
    const int64_t index = line.index ? 1 : 0;
    if (line.columns - index == 1)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: line %" PRId64
                          ": an edge needs two ids, but this line has one number",
                          name, line.number);
    plim__text_set_remedy(
        text,
        "ids must be integers; with `relabel` they can be names, if those of the first edge are");
    begin(&edges->edges, name);
    edges->edges.read = text_read;
    edges->edges.lines = plim__text_lines(text);
    edges->text = text;
    edges->columns = line.columns - index;
    edges->index = index;
    if (index > 0)
        plim__text_skip_first(text);
    return PLIM_OK;
}
