#include "nn/edge_terms.h"

#include "nn/vector.h"

#include <stdbool.h>
#include <string.h>

/* Partial sums of a table's gradient. */
#define RANGES 16

#define TASK_ROWS 64

void plim__relu_sum_rows(const plim__edges_t *hop, const plim__edge_terms_t *terms,
                         const float *self, const plim__matrix_t *x, plim__matrix_t *out,
                         int64_t first, int64_t end)
{
    const plim__row_relu_t relu = {.indptr = hop->indptr,
                                   .indices = hop->indices,
                                   .num_edges = hop->num_edges,
                                   .num_self = hop->num_dst,
                                   .terms = terms,
                                   .self = self,
                                   .x = x,
                                   .out = out};
    plim__kernels()->relu_sum(&relu, first, end);
}

typedef struct relu_backward {
    plim__row_relu_t relu;
    plim__work_split_t split;
    const plim__kernels_t *kernels;
} relu_backward_t;

static void source_task(void *context, int worker, int64_t task)
{
    (void)worker;
    const relu_backward_t *backward = context;
    backward->kernels->relu_back(&backward->relu, plim__work_split_row(&backward->split, task),
                                 plim__work_split_row(&backward->split, task + 1));
}

/* Nanoseconds of an edge: its row, and a row of the table for each of its entries. */
static double edge_cost(const plim__edge_terms_t *terms)
{
    return plim__work_split_cost((size_t)terms->width * sizeof(float) *
                                 (1 + (size_t)terms->entries / 2));
}

void plim__relu_sum_backward(plim__team_t *team, const plim__edges_t *hop,
                             const plim__reverse_t *reverse, const plim__edge_terms_t *terms,
                             const float *self, const plim__matrix_t *x, const plim__matrix_t *dout,
                             const plim__matrix_t *droot, plim__matrix_t *dx)
{
    relu_backward_t backward = {
        .relu = {.indptr = reverse->indptr,
                 .indices = reverse->destinations,
                 .edges = reverse->edges,
                 .num_edges = hop->num_edges,
                 .num_self = hop->num_dst,
                 .terms = terms,
                 .self = self,
                 .x = x,
                 .dout = dout,
                 .extra = droot,
                 .out = dx},
        .split = plim__work_split_make(reverse->indptr, hop->num_src, edge_cost(terms)),
        .kernels = plim__kernels()};
    plim__team_run(team, backward.split.tasks, backward.split.cost, source_task, &backward);
}

/* A gradient of the table, in RANGES ranges of rows. */
typedef struct terms_backward {
    const plim__edges_t *hop; /* NULL: rows of dout are those of the terms */
    const plim__edge_terms_t *terms;
    const plim__term_gradients_t *gradients;
    const plim__matrix_t *dout;
    const plim__kernels_t *kernels;
    plim__work_split_t split;
    float *partials; /* (RANGES, table_rows + 3, width): the table, the bias, two rows */
} terms_backward_t;

size_t plim__edge_terms_scratch(int64_t table_rows, int64_t width)
{
    const size_t rows = plim__mul_saturating_size((size_t)table_rows + 3, RANGES);
    return plim__mul_saturating_size(plim__mul_saturating_size(rows, (size_t)width), sizeof(float));
}

static float *partial_of(const terms_backward_t *backward, int64_t range)
{
    const plim__edge_terms_t *terms = backward->terms;
    return backward->partials + range * (terms->table_rows + 3) * terms->width;
}

/* Adds the gradient of a term to the rows of the table that it consists of. */
static void add_gradient(const terms_backward_t *backward, int64_t term, const float *gradient,
                         float *partial)
{
    const plim__edge_terms_t *terms = backward->terms;
    const float one = 1;
    for (int64_t k = 0; k < terms->entries; k++) {
        const int64_t at = term * terms->entries + k;
        const int64_t row = terms->rows != NULL ? terms->rows[at] : k;
        backward->kernels->add_scaled(1, terms->width,
                                      terms->values != NULL ? &terms->values[at] : &one, gradient,
                                      partial + row * terms->width);
    }
    if (terms->bias != NULL)
        plim__vector_add(partial + terms->table_rows * terms->width, gradient, terms->width);
}

/* Computes each edge's share of the gradient of v's own term; false if there is none. */
static bool share_own(const terms_backward_t *backward, int64_t v, float *own)
{
    const plim__edges_t *hop = backward->hop;
    const int64_t width = backward->terms->width;
    int64_t count = 0;
    for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++)
        count += hop->indices[e] != v;
    if (backward->gradients->own == NULL || count == 0)
        return false;
    backward->gradients->own(backward->gradients->context, v, own);
    for (int64_t i = 0; i < width; i++)
        own[i] /= (float)count;
    return true;
}

static void edges_range(void *context, int worker, int64_t range)
{
    (void)worker;
    const terms_backward_t *backward = context;
    const plim__term_gradients_t *gradients = backward->gradients;
    const plim__edges_t *hop = backward->hop;
    const plim__edge_terms_t *terms = backward->terms;
    float *partial = partial_of(backward, range);
    float *gradient = partial + (terms->table_rows + 1) * terms->width;
    float *own = gradient + terms->width;
    memset(partial, 0, (size_t)((terms->table_rows + 1) * terms->width) * sizeof *partial);
    const int64_t last = plim__work_split_row(&backward->split, range + 1);
    for (int64_t v = plim__work_split_row(&backward->split, range); v < last; v++) {
        const bool shared = share_own(backward, v, own);
        for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++) {
            if (gradients->own != NULL && hop->indices[e] == v)
                continue;
            gradients->edge(gradients->context, v, e, gradient);
            if (shared)
                plim__vector_add(gradient, own, terms->width);
            add_gradient(backward, e, gradient, partial);
        }
    }
}

static void rows_range(void *context, int worker, int64_t range)
{
    (void)worker;
    const terms_backward_t *backward = context;
    const plim__edge_terms_t *terms = backward->terms;
    const plim__matrix_t *dout = backward->dout;
    float *partial = partial_of(backward, range);
    memset(partial, 0, (size_t)((terms->table_rows + 1) * terms->width) * sizeof *partial);
    const int64_t end = (range + 1) * dout->rows / RANGES;
    for (int64_t row = range * dout->rows / RANGES; row < end; row++)
        add_gradient(backward, row, (const float *)dout->data + row * dout->stride, partial);
}

/* Adds the ranges, in their order. */
static void add_ranges(const terms_backward_t *backward, float *dtable, float *dbias)
{
    const plim__edge_terms_t *terms = backward->terms;
    for (int64_t range = 0; range < RANGES; range++) {
        const float *partial = partial_of(backward, range);
        plim__vector_add(dtable, partial, terms->table_rows * terms->width);
        if (dbias != NULL)
            plim__vector_add(dbias, partial + terms->table_rows * terms->width, terms->width);
    }
}

void plim__edge_terms_backward(plim__team_t *team, const plim__edges_t *hop,
                               const plim__edge_terms_t *terms,
                               const plim__term_gradients_t *gradients, float *dtable, float *dbias,
                               void *scratch)
{
    terms_backward_t backward = {
        .hop = hop,
        .terms = terms,
        .gradients = gradients,
        .kernels = plim__kernels(),
        .split = plim__work_split_ranges(hop->indptr, hop->num_dst, RANGES, 2 * edge_cost(terms)),
        .partials = scratch};
    plim__team_run(team, RANGES, backward.split.cost, edges_range, &backward);
    add_ranges(&backward, dtable, dbias);
}

static void relu_edge(const void *context, int64_t v, int64_t e, float *gradient)
{
    plim__row_relu_t relu = *(const plim__row_relu_t *)context;
    plim__matrix_t row = plim__matrix_make(gradient, 1, relu.terms->width, PLIM__F32);
    relu.destination = v;
    relu.out = &row;
    plim__kernels()->relu_edges(&relu, e, e + 1);
}

void plim__relu_sum_terms(plim__team_t *team, const plim__edges_t *hop,
                          const plim__edge_terms_t *terms, const plim__matrix_t *x,
                          const plim__matrix_t *dout, float *dtable, float *dbias, void *scratch)
{
    const plim__row_relu_t relu = {.indices = hop->indices, .terms = terms, .x = x, .dout = dout};
    const plim__term_gradients_t gradients = {.edge = relu_edge, .context = &relu};
    plim__edge_terms_backward(team, hop, terms, &gradients, dtable, dbias, scratch);
}

typedef struct terms_forward {
    const plim__edge_terms_t *terms;
    plim__matrix_t *out;
} terms_forward_t;

static void rows_task(void *context, int worker, int64_t task)
{
    (void)worker;
    const terms_forward_t *forward = context;
    plim__kernels()->terms(forward->terms, 0, forward->out, task * TASK_ROWS,
                           plim__min_i64(forward->out->rows, (task + 1) * TASK_ROWS));
}

void plim__terms_forward(plim__team_t *team, const plim__edge_terms_t *terms, plim__matrix_t *out)
{
    terms_forward_t forward = {terms, out};
    plim__team_run(team, (out->rows + TASK_ROWS - 1) / TASK_ROWS,
                   (int64_t)(TASK_ROWS * edge_cost(terms)), rows_task, &forward);
}

void plim__terms_backward(plim__team_t *team, const plim__edge_terms_t *terms,
                          const plim__matrix_t *dout, float *dtable, void *scratch)
{
    terms_backward_t backward = {
        .terms = terms, .dout = dout, .kernels = plim__kernels(), .partials = scratch};
    const int64_t rows = dout->rows / RANGES + 1;
    plim__team_run(team, RANGES, (int64_t)((double)rows * edge_cost(terms)), rows_range, &backward);
    add_ranges(&backward, dtable, NULL);
}
