/*
 * Measures sums over neighbours alone, on random hops of the sizes of workloads A and B.
 *
 *     cmake --preset release && cmake --build build/release --target bench_aggregate
 *     build/release/bench_aggregate [THREADS] [baseline|avx2|avx512] [HOP]
 *
 * HOP is how the names of the hops begin that are measured: "A", "B layer 1".
 *
 * A is a GCN on a batch of 128, fanout 3,2, 128 features in f16, hidden 16; B a GraphSAGE on a
 * batch of 1,024, fanout 15,10,5, hidden 256. A's inputs change from call to call, so that they
 * come from the outer caches, as a loader's do. Prints one line of JSON for each: the median and
 * the least microseconds of a call, the bytes it reads and writes, and the median rate of that
 * beside the rate of a memcpy by the caller alone that reads and writes as many.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "base/rng.h"
#include "nn/attention.h"
#include "nn/vector.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETS_MAX 16
#define CALLS_MAX 401

typedef struct set {
    plim__edges_t hop;
    plim__reverse_t reverse;
    plim__matrix_t x, out, root, dout, dx;
    float *src, *dst, *self;
    int32_t *chosen;
    int32_t *degrees;
    plim__attention_t attention;
    plim__attention_state_t state;
    float *datt;
    void *scratch;
} set_t;

typedef struct shape {
    const char *name;
    int64_t num_dst, num_src, num_edges, width;
    plim__element_t element, to;
    int sets;
    int calls;
} shape_t;

static plim__team_t *team;

static void *take(size_t bytes)
{
    void *memory = aligned_alloc(64, plim__round_up(bytes + 1, 64));
    if (memory == NULL) {
        (void)fprintf(stderr, "no memory\n");
        exit(1);
    }
    memset(memory, 0, plim__round_up(bytes + 1, 64));
    return memory;
}

static plim__matrix_t matrix(int64_t rows, int64_t width, int64_t stride, plim__element_t element)
{
    plim__matrix_t made = {NULL, rows, width, stride, element};
    made.data = take((size_t)(rows * stride) * plim__element_bytes(element));
    if (element == PLIM__F32) {
        for (int64_t i = 0; i < rows * stride; i++)
            ((float *)made.data)[i] = (float)(i % 251) * 0.01f;
    } else {
        for (int64_t i = 0; i < rows * stride; i++)
            ((uint16_t *)made.data)[i] = (uint16_t)(0x3c00 + i % 97);
    }
    return made;
}

static void make_attention(set_t *set, int heads)
{
    const plim__edges_t *hop = &set->hop;
    const int64_t width = set->x.width;
    set->attention = (plim__attention_t){.heads = heads,
                                         .channels = width / heads,
                                         .att_src = take((size_t)width * sizeof(float)),
                                         .att_dst = take((size_t)width * sizeof(float))};
    set->state.score_src = take((size_t)(hop->num_src * heads) * sizeof(float));
    set->state.score_dst = take((size_t)(hop->num_dst * heads) * sizeof(float));
    set->state.weights = take((size_t)((hop->num_edges + hop->num_dst) * heads) * sizeof(float));
    set->datt = take((size_t)(2 * width) * sizeof(float));
    set->scratch = take(plim__attention_scratch(hop->num_src, hop->num_dst, hop->num_edges, heads,
                                                set->attention.channels));
}

/* What a loader delivers. */
static void make_input(const shape_t *shape, uint64_t seed, set_t *set)
{
    const int64_t num_dst = shape->num_dst, num_src = shape->num_src;
    int32_t *indptr = take((size_t)(num_dst + 1) * sizeof *indptr);
    int32_t *indices = take((size_t)shape->num_edges * sizeof *indices);
    for (int64_t v = 0; v <= num_dst; v++)
        indptr[v] = (int32_t)(v * shape->num_edges / num_dst);
    uint64_t counter = 0;
    for (int64_t e = 0; e < shape->num_edges; e++)
        indices[e] = (int32_t)plim__rng_below(seed, &counter, (uint64_t)num_src);
    set->hop = (plim__edges_t){num_dst, num_src, shape->num_edges, indptr, indices};
    set->x = matrix(num_src, shape->width, shape->width, shape->element);
    set->degrees = take((size_t)num_src * sizeof(int32_t));
    for (int64_t u = 0; u < num_src; u++)
        set->degrees[u] = (int32_t)(u % 100);
}

/* What a layer has of its own. */
static void make_output(const shape_t *shape, set_t *set)
{
    const int64_t num_dst = shape->num_dst, num_src = shape->num_src;
    set->reverse.indptr = take((size_t)(num_src + 1) * sizeof(int32_t));
    set->reverse.edges = take((size_t)shape->num_edges * sizeof(int32_t));
    set->reverse.destinations = take((size_t)shape->num_edges * sizeof(int32_t));
    plim__reverse_make(&set->hop, &set->reverse);
    set->out = matrix(num_dst, shape->width, 2 * shape->width, shape->to);
    set->root = set->out;
    set->root.data = (char *)set->out.data + (size_t)shape->width * plim__element_bytes(shape->to);
    set->dout = matrix(num_dst, shape->width, shape->width, PLIM__F32);
    set->dx = matrix(num_src, shape->width, shape->width, PLIM__F32);
    set->src = take((size_t)num_src * sizeof(float));
    set->dst = take((size_t)num_dst * sizeof(float));
    set->self = take((size_t)num_dst * sizeof(float));
    set->chosen = take((size_t)(num_dst * shape->width) * sizeof(int32_t));
    make_attention(set, 4);
    plim__scales_gcn(&set->hop, set->degrees, 0, set->src, set->dst, set->self);
}

/* A forward sum, or the largest, shared out among the team by rows. */
typedef struct forward {
    set_t *set;
    plim__scales_t scales;
    plim__matrix_t *root;
    bool max;
} forward_t;

static void forward_piece(void *context, int worker, int64_t piece)
{
    const forward_t *forward = context;
    set_t *set = forward->set;
    const int64_t first = piece * 256;
    const int64_t end = first + 256 < set->hop.num_dst ? first + 256 : set->hop.num_dst;
    (void)worker;
    if (forward->max)
        plim__aggregate_max_forward_rows(&set->hop, &set->x, &set->out, set->chosen, forward->root,
                                         first, end);
    else
        plim__aggregate_forward_rows(&set->hop, &forward->scales, &set->x, &set->out, forward->root,
                                     first, end);
}

static void run_forward(forward_t forward)
{
    plim__team_run(team, (forward.set->hop.num_dst + 255) / 256, 100000, forward_piece, &forward);
}

static void run_gcn(set_t *set)
{
    const plim__scales_t scales = {set->src, set->dst, set->self};
    run_forward((forward_t){set, scales, NULL, false});
}

static void run_gcn_back(set_t *set)
{
    const plim__scales_t scales = {set->src, set->dst, set->self};
    plim__aggregate_backward(team, &set->hop, &set->reverse, &scales, &set->dout, NULL, &set->dx);
}

static void run_scales(set_t *set)
{
    plim__scales_gcn(&set->hop, set->degrees, 0, set->src, set->dst, set->self);
}

static void run_reverse(set_t *set)
{
    plim__reverse_make(&set->hop, &set->reverse);
}

static void run_mean(set_t *set)
{
    const plim__scales_t scales = {NULL, set->dst, NULL};
    run_forward((forward_t){set, scales, &set->root, false});
}

static void run_mean_back(set_t *set)
{
    const plim__scales_t scales = {NULL, set->dst, NULL};
    plim__aggregate_backward(team, &set->hop, &set->reverse, &scales, &set->dout, &set->dout,
                             &set->dx);
}

static void run_max(set_t *set)
{
    run_forward((forward_t){.set = set, .root = &set->root, .max = true});
}

static void run_max_back(set_t *set)
{
    plim__aggregate_max_backward(team, &set->hop, &set->reverse, set->chosen, &set->dout, NULL,
                                 &set->dx);
}

static void run_attention(set_t *set)
{
    plim__attention_forward(team, &set->hop, &set->attention, &set->x, &set->state, &set->out);
}

static void run_attention_back(set_t *set)
{
    plim__attention_backward(team, &set->hop, &set->reverse, &set->attention, &set->x, &set->state,
                             &set->dout, &set->dx, set->datt, set->datt + set->x.width,
                             set->scratch);
}

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double median_us(set_t *sets, const shape_t *shape, void (*run)(set_t *set),
                        double *least_out)
{
    static int64_t times[CALLS_MAX];
    for (int i = 0; i < shape->sets; i++)
        run(&sets[i]);
    for (int i = 0; i < shape->calls; i++) {
        const int64_t start = plim__clock_ns();
        run(&sets[i % shape->sets]);
        times[i] = plim__clock_ns() - start;
    }
    qsort(times, (size_t)shape->calls, sizeof times[0], by_size);
    const int middle = shape->calls / 2;
    *least_out = (double)times[0] * 1e-3;
    return (double)times[middle] * 1e-3;
}

static double copy_us(int64_t bytes, int calls)
{
    char *from = take((size_t)bytes), *to = take((size_t)bytes);
    int64_t best = INT64_MAX;
    for (int i = 0; i < calls; i++) {
        const int64_t start = plim__clock_ns();
        memcpy(to, from, (size_t)bytes);
        best = plim__min_i64(best, plim__clock_ns() - start);
        from[i] ^= to[bytes - 1];
    }
    free(from);
    free(to);
    return (double)best * 1e-3;
}

/* `bytes` are those read and written; a copy of half as many reads and writes as many. */
static void report(set_t *sets, const shape_t *shape, const char *what, void (*run)(set_t *set),
                   int64_t bytes)
{
    double least;
    const double us = median_us(sets, shape, run, &least);
    const double copied = copy_us(bytes / 2, 10);
    printf("{\"hop\": \"%s\", \"what\": \"%s\", \"us\": %.1f, \"least_us\": %.1f, \"mb\": %.2f, "
           "\"gb_per_s\": %.2f, "
           "\"memcpy_gb_per_s\": %.2f}\n",
           shape->name, what, us, least, (double)bytes * 1e-6, (double)bytes * 1e-3 / us,
           (double)bytes * 1e-3 / copied);
}

static void bench_shape(const shape_t *shape)
{
    static set_t sets[SETS_MAX];
    memset(sets, 0, sizeof sets);
    for (int i = 0; i < shape->sets; i++) {
        if (i > 0)
            sets[i] = sets[0];
        make_input(shape, (uint64_t)i, &sets[i]);
        if (i == 0)
            make_output(shape, &sets[0]);
    }
    const int64_t read = shape->width * (int64_t)plim__element_bytes(shape->element);
    const int64_t write = shape->width * (int64_t)plim__element_bytes(shape->to);
    const int64_t row = shape->width * 4;
    const int64_t forward = (shape->num_edges + shape->num_dst) * read;
    const int64_t backward = (shape->num_edges + shape->num_dst + shape->num_src) * row;
    report(sets, shape, "gcn", run_gcn, forward + shape->num_dst * write);
    report(sets, shape, "gcn backward", run_gcn_back, backward);
    report(sets, shape, "mean and root", run_mean, forward + 2 * shape->num_dst * write);
    report(sets, shape, "mean and root backward", run_mean_back, backward + shape->num_dst * row);
    report(sets, shape, "max and root", run_max, forward + shape->num_dst * (2 * write + row));
    report(sets, shape, "max backward", run_max_back, backward + shape->num_edges * row);
    if (shape->element == PLIM__F32 && shape->to == PLIM__F32) {
        report(sets, shape, "attention, 4 heads", run_attention,
               forward + (shape->num_src + shape->num_dst) * row);
        report(sets, shape, "attention backward", run_attention_back,
               2 * forward + 2 * shape->num_src * row);
    }
    report(sets, shape, "gcn scales", run_scales, shape->num_src * 8 + shape->num_dst * 16);
    report(sets, shape, "reverse", run_reverse, shape->num_src * 12 + shape->num_edges * 20);
}

int main(int argc, char **argv)
{
    static const shape_t shapes[] = {
        {"A layer 0, f16", 512, 1200, 1200, 128, PLIM__F16, PLIM__F32, 16, 401},
        {"A layer 1, f32", 128, 512, 384, 16, PLIM__F32, PLIM__F32, 16, 401},
        {"B layer 0, f16", 130000, 212000, 650000, 128, PLIM__F16, PLIM__F32, 1, 11},
        {"B layer 0, f16 to bf16", 130000, 212000, 650000, 128, PLIM__F16, PLIM__BF16, 1, 11},
        {"B layer 1, f32", 15000, 130000, 150000, 256, PLIM__F32, PLIM__F32, 1, 11},
        {"B layer 1, bf16", 15000, 130000, 150000, 256, PLIM__BF16, PLIM__BF16, 1, 11},
    };
    const int threads = argc > 1 ? atoi(argv[1]) : 2;
    if (argc > 2)
        plim__vector_limit(strcmp(argv[2], "baseline") == 0 ? PLIM__VECTOR_BASELINE
                           : strcmp(argv[2], "avx2") == 0   ? PLIM__VECTOR_AVX2
                                                            : PLIM__VECTOR_AVX512);
    plim_ledger_t *ledger;
    if (plim__ledger_create(PLIM_LINE_NONE, &ledger) != PLIM_OK ||
        plim__team_create(ledger, threads, &team) != PLIM_OK) {
        (void)fprintf(stderr, "%s\n", plim_last_error());
        return 1;
    }
    const char *wanted = argc > 3 ? argv[3] : "";
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (strncmp(shapes[i].name, wanted, strlen(wanted)) == 0)
            bench_shape(&shapes[i]);
    plim__team_destroy(team);
    plim__ledger_destroy(ledger);
    return 0;
}
