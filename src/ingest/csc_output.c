/* Writes the lists: sources in order, offsets through a window of the indptr column. */
#include "ingest/csc_internal.h"

#include "base/check.h"
#include "base/fail.h"
#include "store/dataset.h"

plim_status_t plim__csc_output_open(plim__csc_t *csc, plim__dataset_writer_t *writer)
{
    plim__csc_output_t *output = &csc->output;
    const plim__csc_params_t *params = &csc->params;
    const plim__dtype_t type = plim__index_written(params->num_nodes);
    bool exact = !params->remove_duplicates && params->self_loops == PLIM_SELF_LOOPS_KEEP;
    int64_t offsets = params->num_nodes + 1;
    int64_t edges = exact ? csc->total : -1;
    *output =
        (plim__csc_output_t){.num_nodes = params->num_nodes, .index_size = plim__dtype_size(type)};
    PLIM_TRY(plim__column_open(writer, "indptr", PLIM__NPY_I64, 1, &offsets,
                               offsets * (int64_t)sizeof(int64_t), csc->shape.column_buffer,
                               &output->indptr));
    return plim__column_open(writer, "indices", type, 1, &edges,
                             csc->total * (int64_t)output->index_size, csc->shape.column_buffer,
                             &output->indices);
}

static plim_status_t close_window(plim__csc_output_t *output)
{
    size_t bytes = (size_t)output->window_fill * sizeof(int64_t);
    output->window_fill = output->window_size = 0;
    return bytes > 0 ? plim__column_advance(output->indptr, bytes) : PLIM_OK;
}

static plim_status_t next_window(plim__csc_output_t *output)
{
    void *to;
    size_t bytes;
    PLIM_TRY(close_window(output));
    PLIM_TRY(plim__column_space(output->indptr, &to, &bytes));
    output->window = to;
    output->window_size = (int64_t)(bytes / sizeof(int64_t));
    return PLIM_OK;
}

/* Begins the list of `node`; empty lists before it start here, too. */
static plim_status_t begin_list(plim__csc_output_t *output, int64_t node)
{
    if (output->degree > output->max_degree)
        output->max_degree = output->degree;
    output->degree = 0;
    while (output->next_node <= node) {
        if (output->window_fill == output->window_size)
            PLIM_TRY(next_window(output));
        int64_t count =
            plim__min_i64(node + 1 - output->next_node, output->window_size - output->window_fill);
        for (int64_t i = 0; i < count; i++)
            output->window[output->window_fill + i] = output->num_edges;
        output->window_fill += count;
        output->next_node += count;
    }
    return PLIM_OK;
}

plim_status_t plim__csc_output_lists(plim__csc_t *csc, const plim__csc_sorter_t *sorter,
                                     int64_t first_node)
{
    plim__csc_output_t *output = &csc->output;
    int bits = csc->shape.source_bits;
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    for (int64_t i = 0; i < sorter->num_records; i++) {
        int64_t node = first_node + (int64_t)(sorter->records[i] >> bits);
        int64_t run = (int64_t)(sorter->records[i] & mask) + 1;
        if (node >= output->next_node)
            PLIM_TRY(begin_list(output, node));
        output->num_edges += run;
        output->degree += run;
    }
    output->max_self_loops = plim__max_i64(output->max_self_loops, sorter->max_self_loops);
    return plim__column_write(output->indices, sorter->sources,
                              (size_t)sorter->num_sources * output->index_size);
}

plim_status_t plim__csc_output_repeat(plim__csc_t *csc, int64_t node, int64_t source, int64_t count)
{
    plim__csc_output_t *output = &csc->output;
    if (count == 0)
        return PLIM_OK;
    if (node >= output->next_node)
        PLIM_TRY(begin_list(output, node));
    output->num_edges += count;
    output->degree += count;
    if (node == source)
        output->max_self_loops = plim__max_i64(output->max_self_loops, count);
    while (count > 0) {
        void *to;
        size_t bytes;
        PLIM_TRY(plim__column_space(output->indices, &to, &bytes));
        int64_t part = plim__min_i64(count, (int64_t)(bytes / output->index_size));
        for (int64_t i = 0; i < part; i++) {
            if (output->index_size == sizeof(uint32_t))
                ((uint32_t *)to)[i] = (uint32_t)source;
            else
                ((int64_t *)to)[i] = source;
        }
        PLIM_TRY(plim__column_advance(output->indices, (size_t)part * output->index_size));
        count -= part;
    }
    return PLIM_OK;
}

plim_status_t plim__csc_output_close(plim__csc_t *csc)
{
    plim__csc_output_t *output = &csc->output;
    PLIM_TRY(begin_list(output, output->num_nodes));
    PLIM_TRY(close_window(output));
    PLIM_TRY(plim__column_close(output->indptr));
    return plim__column_close(output->indices);
}
