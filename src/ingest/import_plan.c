/* Disk space and memory that an import needs, checked before it begins. */
#include "ingest/import.h"

#include "base/check.h"
#include "base/fail.h"
#include "ingest/disk_space.h"
#include "store/dataset.h"

#define MIB ((int64_t)1 << 20)
#define BYTES_MAX ((int64_t)1 << 60)

/* `count` x `bytes`, saturating; 0 when `count` is unknown. */
static int64_t times(int64_t count, int64_t bytes)
{
    int64_t product;
    if (count <= 0)
        return 0;
    return plim__mul_i64(count, bytes, &product) && product < BYTES_MAX ? product : BYTES_MAX;
}

static int64_t graph_bytes(const plim__import_t *import, const plim__import_needs_t *needs)
{
    const int64_t index_bytes = (int64_t)plim__dtype_size(plim__index_written(needs->num_nodes));
    int64_t edges = times(needs->num_edges, import->options->symmetrise ? 2 : 1);
    if (import->options->self_loops == PLIM_SELF_LOOPS_ADD && needs->num_nodes > 0)
        edges += needs->num_nodes;
    plim__edge_sort_params_t columns = {.num_fields = 0};
    columns.num_fields = plim__import_fields(import, columns.fields);
    const int64_t values = (int64_t)plim__edge_sort_values(&columns);
    return times(needs->num_nodes, 8) + times(edges, index_bytes + values);
}

/* The spool shrinks while the spill grows, so the larger of the two counts. */
static int64_t spill_bytes(const plim__import_t *import, const plim__import_needs_t *needs)
{
    int64_t width = needs->num_nodes > (int64_t)1 << 32 ? 8 : 4;
    int64_t ends = needs->edges_wait ? 2 : needs->sources_wait ? 1 : 0;
    if (needs->names_wait) { /* the names, their sorted runs, and a translated copy of one end */
        width = 8;
        ends = 5;
    }
    int64_t building = plim__import_csc_spill(import, plim__max_i64(needs->num_nodes, 1),
                                              plim__max_i64(needs->num_edges, 0));
    return plim__max_i64(times(times(needs->num_edges, width), ends), times(building, 1)) +
           times(plim__import_spooled_columns(import), 1);
}

/* A line of two short ids; texts are compressed to about a third. */
int64_t plim__import_guess_edges(int64_t bytes, bool compressed)
{
    return compressed ? bytes / 5 : bytes / 14;
}

plim_status_t plim__import_plan(plim__import_t *import, const plim__import_needs_t *needs)
{
    const int64_t num_edges = plim__max_i64(needs->num_edges, 0);
    if (needs->num_nodes >= 1) /* else the disk space of an impossible build would be refused */
        PLIM_TRY(plim__import_check_size(import, needs->num_nodes, num_edges));
    int64_t graph = graph_bytes(import, needs);
    int64_t rows = times(needs->feature_bytes, 1) + times(needs->label_rows, 8) +
                   times(needs->other_bytes, 1) + MIB;
    int64_t spill = spill_bytes(import, needs);
    /* If edges come first, their temporary files are gone before the features are written. */
    int64_t together =
        needs->edges_first ? plim__max_i64(graph + spill, graph + rows) : graph + spill + rows;
    plim__disk_space_t space = {.parent = import->parent,
                                .tmp = import->tmp,
                                .dataset = graph + rows,
                                .temporary = spill,
                                .together = together,
                                .largest = needs->feature_bytes,
                                .what = needs->what,
                                .guessed = needs->guessed,
                                .exact = !needs->at_least && needs->num_nodes >= 0};
    PLIM_TRY(plim__disk_space_check(import->job, &space));
    if (needs->num_nodes < 1 || needs->guessed)
        return PLIM_OK;
    return plim__import_check_memory(import, needs->num_nodes, num_edges);
}
