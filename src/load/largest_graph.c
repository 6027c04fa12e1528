#include "load/largest_graph.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "io/npy.h"
#include "mem/arena.h"

#define HELD ((int64_t)(PLIM__LARGEST_GRAPH_BYTES / 2 / sizeof(int64_t)))

/* An array of offsets that is gone through from front to back. */
typedef struct offsets {
    plim__file_t file;
    int64_t count;
    int64_t first; /* number of the first one held */
    int64_t held;
    int64_t *values; /* (HELD), on a page's boundary */
} offsets_t;

static plim_status_t open_offsets(const plim_dataset_t *dataset, const char *name, int64_t count,
                                  int64_t *values, offsets_t *offsets)
{
    const plim__manifest_file_t *entry = plim__manifest_find(plim__dataset_manifest(dataset), name);
    *offsets = (offsets_t){.file = {.fd = -1}, .count = count, .values = values};
    if (entry == NULL)
        return plim__fail(PLIM_ERR_DATA, "%s: there is no %s in it", plim__dataset_path(dataset),
                          name);
    return plim__dataset_file_open(dataset, entry, true, &offsets->file);
}

/* The offset of that number, which is not before those asked for earlier. */
static plim_status_t offset_at(offsets_t *offsets, int64_t number, int64_t *value_out)
{
    if (number >= offsets->first + offsets->held) {
        offsets->first = number / HELD * HELD;
        offsets->held = plim__min_i64(offsets->count - offsets->first, HELD);
        size_t bytes = (size_t)offsets->held * sizeof(int64_t);
        PLIM_TRY(plim__file_read_at(
            &offsets->file, (int64_t)PLIM__NPY_HEADER + offsets->first * (int64_t)sizeof(int64_t),
            offsets->values, plim__round_up(bytes, offsets->file.align)));
    }
    *value_out = offsets->values[number - offsets->first];
    return PLIM_OK;
}

static plim_status_t go_through(const plim_job_t *job, const plim_dataset_info_t *info,
                                offsets_t *graphs, offsets_t *lists, int64_t *nodes_out,
                                int64_t *edges_out)
{
    int64_t node = 0, edge = 0, nodes = 0, edges = 0;
    for (int64_t i = 0; i <= info->num_graphs; i++) {
        int64_t next_node, next_edge;
        if (i % HELD == 0)
            PLIM_TRY(plim__job_check(job));
        PLIM_TRY(offset_at(graphs, i, &next_node));
        if (next_node < node || next_node > info->num_nodes || (i == 0 && next_node != 0))
            return plim__fail(PLIM_ERR_DATA,
                              "%s: does not ascend from 0 to the number of nodes; make the dataset "
                              "anew",
                              graphs->file.path);
        PLIM_TRY(offset_at(lists, next_node, &next_edge));
        if (next_edge < edge || next_edge > info->num_edges)
            return plim__fail(PLIM_ERR_DATA,
                              "%s: does not ascend from 0 to the number of edges; make the dataset "
                              "anew",
                              lists->file.path);
        nodes = plim__max_i64(nodes, next_node - node);
        edges = plim__max_i64(edges, next_edge - edge);
        node = next_node;
        edge = next_edge;
    }
    *nodes_out = nodes;
    *edges_out = edges;
    return PLIM_OK;
}

plim_status_t plim__largest_graph(const plim_job_t *job, const plim_dataset_t *dataset,
                                  int64_t *nodes_out, int64_t *edges_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    offsets_t graphs = {.file = {.fd = -1}}, lists = {.file = {.fd = -1}};
    plim__arena_t arena;
    PLIM_TRY(plim__arena_create(job->ledger, "trial", PLIM__LARGEST_GRAPH_BYTES, &arena));
    int64_t *values = plim__arena_carve(&arena, 2 * (size_t)HELD, sizeof(int64_t), PLIM__PAGE);
    plim_status_t status =
        open_offsets(dataset, "graph_indptr.npy", info->num_graphs + 1, values, &graphs);
    if (status == PLIM_OK)
        status = open_offsets(dataset, "indptr.npy", info->num_nodes + 1, values + HELD, &lists);
    if (status == PLIM_OK)
        status = go_through(job, info, &graphs, &lists, nodes_out, edges_out);
    plim__file_close(&lists.file);
    plim__file_close(&graphs.file);
    plim__arena_destroy(&arena);
    return status;
}
