/*
 * Measures the rates of this machine with the library's own functions, on data of its own: some
 * milliseconds for each point, less than a second in all. The processor time of the team is
 * measured, and the median of several stretches counts, so that other processes disturb little.
 */
#include "plan/rates.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/rng.h"
#include "io/npy.h"
#include "io/reader.h"
#include "mem/arena.h"
#include "mem/headroom.h"
#include "nn/attention.h"
#include "nn/dense.h"
#include "nn/epilogue.h"
#include "nn/loss.h"
#include "nn/optimiser.h"
#include "sample/blocks.h"

#include <math.h>
#include <string.h>

enum {
    THREADS_MOST = 8,     /* that measure: their data must stay small */
    ROWS_EACH = 2048,     /* rows of a product for each of them: more than their caches hold, … */
    ROWS_MOST = 8192,     /* … and of all together */
    EDGES_LEAST = 16384,  /* of a hop */
    FAN_IN = 8,           /* edges of a destination */
    PIECE_ROWS = 64,      /* destinations that a thread sums at once */
    VALUE_ROWS = 8192,    /* of epilogue and loss, … */
    VALUE_WIDTH = 64,     /* … and their columns */
    HEADS = 2,            /* of attention … */
    ATTEND_ROWS = 4096,   /* … and its sources, which are its destinations too */
    DEGREE = 16,          /* of the lists that are drawn from */
    DRAW_SEEDS = 512,     /* of a batch … */
    DRAW_FANOUT = 10,     /* … of two hops */
    COPY_ROWS = 16384,    /* rows that are copied at once, … */
    COPY_PIECE = 256,     /* … so many by a thread */
    MOVE_PIECE = 1 << 16, /* bytes that a thread moves at once: its caches hold them */
    DEPTH = 64,           /* I/Os in flight */
    READS = 256,          /* I/Os at once */
    READ_MOST = 64 << 10, /* bytes of the largest */
    READ_CALLS = 255,     /* most calls for a point of the disk */
    STRETCHES = 5,        /* for each point */
    FILE_PARTS = 4        /* a file holds at least so many times what is read at once */
};

#define STRETCH_SECONDS 5e-4 /* of processor time */
#define DISK_NS ((int64_t)100000000)
#define LONG_NS ((int64_t)1000000)  /* work that a team shares always */
#define ASLEEP_NS ((int64_t)100000) /* after which the team's threads sleep */
#define SPIN_NS ((int64_t)50000)
#define SHARED_RUNS 32
#define MEMORY ((size_t)64 << 20) /* of a point: more than most caches hold */
#define NORMAL_BYTE 0x3c          /* 0x3c3c… is 0.011 as a float or bf16 */
#define COST_LEAST 1e-12          /* a clock that stands still must not make work free */

typedef struct bench {
    const plim_job_t *job;
    plim__arena_t arena; /* carved anew for each point */
    plim__team_t *team;
} bench_t;

/* Inserts a cost into `count` ascending ones. */
static void insert(double *costs, int count, double cost)
{
    for (; count > 0 && costs[count - 1] > cost; count--)
        costs[count] = costs[count - 1];
    costs[count] = cost;
}

/* Core-seconds of a run: the median of some stretches of runs. */
static double cost_of(const plim__team_t *team, void (*work)(void *context), void *context)
{
    double costs[STRETCHES];
    work(context);
    for (int i = 0; i < STRETCHES; i++) {
        const double start = plim__team_core_seconds(team);
        double now = start;
        int runs = 0;
        for (; now - start < STRETCH_SECONDS; runs++) {
            work(context);
            now = plim__team_core_seconds(team);
        }
        insert(costs, i, (now - start) / runs);
    }
    return fmax(costs[STRETCHES / 2], COST_LEAST);
}

/* Memory full of small normal numbers, in any type: denormal ones would be slow. */
static void *take(bench_t *bench, size_t bytes)
{
    void *data = plim__arena_carve(&bench->arena, bytes, 1, PLIM__PAGE);
    return data != NULL ? memset(data, NORMAL_BYTE, bytes) : NULL;
}

static plim__matrix_t matrix(bench_t *bench, int64_t rows, int64_t width, plim__element_t element)
{
    void *data = take(bench, plim__matrix_bytes(rows, width, element));
    return (plim__matrix_t){data, rows, width, width, element};
}

/* Everything that was carved before is free again. */
static void begin_point(bench_t *bench)
{
    bench->arena.used = 0;
}

/* A product and its gradients. */
typedef struct products {
    plim__team_t *team;
    plim__dense_t *dense;
    plim__matrix_t x, dy;
    float *out, *weight, *gradient;
} products_t;

static void product_forward(void *context)
{
    const products_t *products = context;
    plim__dense_forward(products->dense, products->team, &products->x, products->out);
}

static void product_input(void *context)
{
    const products_t *products = context;
    plim__dense_backward_input(products->dense, products->team, &products->dy, products->out);
}

static void product_weight(void *context)
{
    products_t *products = context;
    plim__dense_backward_weight(products->dense, products->team, &products->dy, &products->x);
}

/* What a step does to each weight besides the update: packing it for both passes, adding up the
 * gradient. The products have one row. */
static void pack(void *context)
{
    products_t *products = context;
    plim__matrix_t x = products->x, dy = products->dy;
    x.rows = dy.rows = 1;
    plim__dense_set_weight(products->dense, 0, x.width, products->weight);
    plim__dense_forward(products->dense, products->team, &x, products->out);
    plim__dense_backward_input(products->dense, products->team, &dy, products->out);
    plim__dense_backward_weight(products->dense, products->team, &dy, &x);
    plim__dense_gradient(products->dense, products->team, 0, x.width, true, products->gradient);
}

static plim_status_t measure_product(bench_t *bench, plim__element_t element, int point,
                                     plim__rates_t *rates)
{
    const plim__rate_t first =
        element == PLIM__BF16 ? PLIM__RATE_BF16_FORWARD : PLIM__RATE_F32_FORWARD;
    const int64_t in = (int64_t)plim__rate_x(first, point);
    const int64_t out = (int64_t)plim__rate_y(first, point);
    const int64_t rows =
        plim__min_i64((int64_t)ROWS_EACH * plim__team_size(bench->team), ROWS_MOST);
    const plim__dense_params_t params = {.in = in,
                                         .out = out,
                                         .element = element,
                                         .backward = true,
                                         .input_gradient = true,
                                         .workers = plim__team_size(bench->team)};
    products_t products = {.team = bench->team};
    begin_point(bench);
    products.x = matrix(bench, rows, in, element);
    products.dy = matrix(bench, rows, out, element);
    products.out = matrix(bench, rows, in > out ? in : out, PLIM__F32).data;
    products.weight = take(bench, (size_t)(in * out) * sizeof(float));
    products.gradient = take(bench, (size_t)(in * out) * sizeof(float));
    PLIM_TRY(plim__arena_check(&bench->arena));
    PLIM_TRY(plim__dense_create(bench->job->ledger, &params, &products.dense));
    plim__dense_set_weight(products.dense, 0, in, products.weight);
    const double scale = 1 / (double)rows;
    rates->cost[first][point] = cost_of(bench->team, product_forward, &products) * scale;
    rates->cost[first + 1][point] = cost_of(bench->team, product_input, &products) * scale;
    rates->cost[first + 2][point] = cost_of(bench->team, product_weight, &products) * scale;
    if (point == PLIM__RATE_POINTS - 1 && element == PLIM__F32)
        rates->cost[PLIM__RATE_PACK][0] =
            cost_of(bench->team, pack, &products) / (double)(in * out);
    const plim_status_t status = plim__dense_check(products.dense);
    plim__dense_destroy(products.dense);
    return status;
}

/* A hop with random edges, forward and back. */
typedef struct sums {
    plim__team_t *team;
    plim__edges_t hop;
    plim__reverse_t reverse;
    plim__matrix_t x, out; /* forward: sources, destinations; backward: the gradients of … */
    plim__attention_t attention;
    plim__attention_state_t state;
    plim__matrix_t dz;
    float *gradients;
    void *scratch;
} sums_t;

static plim__edges_t random_hop(bench_t *bench, int64_t num_dst, int64_t num_src, int64_t num_edges)
{
    int32_t *indptr = take(bench, ((size_t)num_dst + 1) * sizeof *indptr);
    int32_t *indices = take(bench, (size_t)num_edges * sizeof *indices);
    if (plim__arena_check(&bench->arena) == PLIM_OK) {
        for (int64_t v = 0; v <= num_dst; v++)
            indptr[v] = (int32_t)(v * num_edges / num_dst);
        for (int64_t e = 0; e < num_edges; e++)
            indices[e] = (int32_t)(plim__mix64((uint64_t)e) % (uint64_t)num_src);
    }
    return (plim__edges_t){num_dst, num_src, num_edges, indptr, indices};
}

static plim__reverse_t reverse_of(bench_t *bench, const plim__edges_t *hop)
{
    return (plim__reverse_t){.indptr = take(bench, ((size_t)hop->num_src + 1) * sizeof(int32_t)),
                             .edges = take(bench, (size_t)hop->num_edges * sizeof(int32_t)),
                             .destinations = take(bench, (size_t)hop->num_edges * sizeof(int32_t))};
}

static void sum_piece(void *context, int worker, int64_t piece)
{
    sums_t *sums = context;
    const plim__scales_t scales = {NULL, NULL, NULL};
    (void)worker;
    plim__aggregate_forward_rows(&sums->hop, &scales, &sums->x, &sums->out, NULL,
                                 piece * PIECE_ROWS, (piece + 1) * PIECE_ROWS);
}

static void sum_forward(void *context)
{
    const sums_t *sums = context;
    plim__team_run(sums->team, sums->hop.num_dst / PIECE_ROWS, LONG_NS, sum_piece, context);
}

static void sum_backward(void *context)
{
    sums_t *sums = context;
    const plim__scales_t scales = {NULL, NULL, NULL};
    plim__aggregate_backward(sums->team, &sums->hop, &sums->reverse, &scales, &sums->out, NULL,
                             &sums->x);
}

static void make_reverse(void *context)
{
    sums_t *sums = context;
    plim__reverse_make(&sums->hop, &sums->reverse);
}

/* Rows of a table of the point's width and bytes, which is read at random. */
static int64_t table_rows(plim__rate_t rate, int point)
{
    return (int64_t)(exp2(plim__rate_y(rate, point)) / (plim__rate_x(rate, point) * sizeof(float)));
}

static plim_status_t measure_sums(bench_t *bench, int point, plim__rates_t *rates)
{
    const int64_t width = (int64_t)plim__rate_x(PLIM__RATE_SUM, point);
    const int64_t rows = table_rows(PLIM__RATE_SUM, point);
    const int64_t edges = plim__max_i64(rows, EDGES_LEAST);
    sums_t sums = {.team = bench->team};
    begin_point(bench);
    sums.hop = random_hop(bench, edges / FAN_IN, rows, edges);
    sums.x = matrix(bench, rows, width, PLIM__F32);
    sums.out = matrix(bench, edges / FAN_IN, width, PLIM__F32);
    PLIM_TRY(plim__arena_check(&bench->arena));
    rates->cost[PLIM__RATE_SUM][point] =
        cost_of(bench->team, sum_forward, &sums) / (double)(sums.hop.num_edges + sums.hop.num_dst);
    begin_point(bench);
    sums.hop = random_hop(bench, rows, rows, edges);
    sums.reverse = reverse_of(bench, &sums.hop);
    sums.out = matrix(bench, rows, width, PLIM__F32);
    sums.x = matrix(bench, rows, width, PLIM__F32);
    PLIM_TRY(plim__arena_check(&bench->arena));
    rates->cost[PLIM__RATE_REVERSE][0] = cost_of(bench->team, make_reverse, &sums) / (double)edges;
    rates->cost[PLIM__RATE_SUM_BACK][point] =
        cost_of(bench->team, sum_backward, &sums) / (double)(edges + rows);
    return PLIM_OK;
}

static void attend(void *context)
{
    sums_t *sums = context;
    plim__attention_forward(sums->team, &sums->hop, &sums->attention, &sums->x, &sums->state,
                            &sums->out);
}

static void attend_back(void *context)
{
    sums_t *sums = context;
    plim__attention_backward(sums->team, &sums->hop, &sums->reverse, &sums->attention, &sums->x,
                             &sums->state, &sums->out, &sums->dz, sums->gradients,
                             sums->gradients + sums->x.width, sums->scratch);
}

static plim_status_t measure_attention(bench_t *bench, int point, plim__rates_t *rates)
{
    const int64_t channels = (int64_t)plim__rate_x(PLIM__RATE_ATTEND, point);
    const int64_t width = HEADS * channels, rows = ATTEND_ROWS, edges = EDGES_LEAST;
    const size_t scores = HEADS * sizeof(float);
    sums_t sums = {.team = bench->team};
    begin_point(bench);
    sums.hop = random_hop(bench, rows, rows, edges);
    sums.reverse = reverse_of(bench, &sums.hop);
    sums.x = matrix(bench, rows, width, PLIM__F32);
    sums.dz = matrix(bench, rows, width, PLIM__F32);
    sums.out = matrix(bench, rows, width, PLIM__F32);
    sums.gradients = take(bench, 2 * (size_t)width * sizeof(float));
    sums.state.score_src = take(bench, (size_t)rows * scores);
    sums.state.score_dst = take(bench, (size_t)rows * scores);
    sums.state.weights = take(bench, (size_t)(edges + rows) * scores);
    const float *weights = take(bench, 2 * (size_t)width * sizeof(float));
    sums.scratch = take(bench, plim__attention_scratch(rows, rows, edges, HEADS, channels));
    PLIM_TRY(plim__arena_check(&bench->arena));
    sums.attention = (plim__attention_t){
        .heads = HEADS, .channels = channels, .att_src = weights, .att_dst = weights + width};
    plim__reverse_make(&sums.hop, &sums.reverse);
    const double scale = 1 / (double)((edges + 2 * rows) * HEADS);
    rates->cost[PLIM__RATE_ATTEND][point] = cost_of(bench->team, attend, &sums) * scale;
    rates->cost[PLIM__RATE_ATTEND_BACK][point] = cost_of(bench->team, attend_back, &sums) * scale;
    return PLIM_OK;
}

/* Work on each value of a matrix, and on each weight. */
typedef struct values {
    plim__team_t *team;
    plim__epilogue_t epilogue;
    plim__epilogue_gradients_t gradients;
    plim__matrix_t h, dy;
    float *y, *dh;
    int64_t *labels;
    void *kept, *scratch;
    plim__parameter_t parameter;
} values_t;

static void epilogue_forward(void *context)
{
    values_t *values = context;
    plim__epilogue_forward(values->team, &values->epilogue, values->y, NULL, &values->h,
                           values->kept);
}

static void epilogue_backward(void *context)
{
    values_t *values = context;
    plim__epilogue_backward(values->team, &values->epilogue, &values->h, values->kept, values->dh,
                            &values->dy, NULL, &values->gradients, values->scratch);
}

static void find_loss(void *context)
{
    const values_t *values = context;
    (void)plim__loss(values->team, PLIM_LOSS_CROSS_ENTROPY, VALUE_ROWS, VALUE_WIDTH, values->y,
                     values->labels, 1.0f, values->dh);
}

static void update(void *context)
{
    static const plim_optimiser_t adam = PLIM_OPTIMISER_INIT;
    values_t *values = context;
    plim__optimiser_step(values->team, &adam, adam.rate, 1, &values->parameter, 1);
}

static plim_status_t measure_values(bench_t *bench, plim__rate_t rate, plim__rates_t *rates)
{
    const int64_t rows = VALUE_ROWS, width = VALUE_WIDTH, count = rows * width;
    const bool norm = rate == PLIM__RATE_NORM;
    values_t values = {.team = bench->team};
    begin_point(bench);
    float *columns = take(bench, 6 * (size_t)width * sizeof(float));
    values.y = matrix(bench, rows, width, PLIM__F32).data;
    values.h = matrix(bench, rows, width, PLIM__F32);
    values.dy = matrix(bench, rows, width, PLIM__F32);
    values.dh = matrix(bench, rows, width, PLIM__F32).data;
    values.labels = take(bench, (size_t)rows * sizeof *values.labels);
    values.epilogue = (plim__epilogue_t){.width = width,
                                         .bias = columns,
                                         .norm = norm ? PLIM_NORM_LAYER : PLIM_NORM_NONE,
                                         .gamma = columns + width,
                                         .beta = columns + 2 * width,
                                         .activation = PLIM_RELU,
                                         .dropout = rate == PLIM__RATE_DROPOUT ? 0.5f : 0,
                                         .training = true,
                                         .nodes = take(bench, (size_t)rows * sizeof(int32_t))};
    values.gradients = (plim__epilogue_gradients_t){
        columns + 3 * width, norm ? columns + 4 * width : NULL, norm ? columns + 5 * width : NULL};
    values.kept = take(bench, plim__epilogue_kept(&values.epilogue, rows) + 1);
    values.scratch = take(bench, plim__epilogue_scratch(&values.epilogue, rows) + 1);
    PLIM_TRY(plim__arena_check(&bench->arena));
    memset(values.labels, 0, (size_t)rows * sizeof *values.labels); /* a class that exists */
    const double scale = 1 / (double)count;
    rates->cost[rate][0] = cost_of(bench->team, epilogue_forward, &values) * scale;
    rates->cost[rate][1] = cost_of(bench->team, epilogue_backward, &values) * scale;
    if (rate != PLIM__RATE_EPILOGUE)
        return PLIM_OK;
    rates->cost[PLIM__RATE_LOSS][0] = cost_of(bench->team, find_loss, &values) * scale;
    values.parameter = (plim__parameter_t){.num_dims = 1,
                                           .shape = {count},
                                           .count = count,
                                           .value = values.y,
                                           .gradient = values.h.data,
                                           .moment = {values.dy.data, values.dh}};
    rates->cost[PLIM__RATE_UPDATE][0] = cost_of(bench->team, update, &values) * scale;
    return PLIM_OK;
}

static void spin(int64_t nanoseconds)
{
    const int64_t began = plim__clock_ns();
    while (plim__clock_ns() - began < nanoseconds)
        ;
}

static void spin_piece(void *context, int worker, int64_t piece)
{
    (void)context;
    (void)worker;
    (void)piece;
    spin(SPIN_NS);
}

/* Seconds until sleeping threads have taken their shares: what a run takes longer than a share. */
static double share_seconds(const bench_t *bench)
{
    int64_t best = INT64_MAX;
    for (int run = 0; run < SHARED_RUNS; run++) {
        spin(ASLEEP_NS);
        const int64_t start = plim__clock_ns();
        plim__team_run(bench->team, plim__team_size(bench->team), LONG_NS, spin_piece, NULL);
        best = plim__min_i64(best, plim__clock_ns() - start - SPIN_NS);
    }
    return fmax((double)best * 1e-9, COST_LEAST);
}

/* A thread that draws batches. */
typedef struct drawer {
    plim__blocks_t *blocks;
    plim__blocks_out_t out;
    int64_t epoch; /* no two batches are the same */
    int64_t edges; /* drawn so far */
    plim_status_t status;
} drawer_t;

/* Lists in memory: node v's are entries[v * DEGREE] … */
typedef struct lists {
    plim__topology_t source;
    const int32_t *entries;
    int64_t num_nodes;
    plim__team_t *team;
    drawer_t drawers[THREADS_MOST];
    int64_t runs;
} lists_t;

static plim_status_t draw_lists(plim__topology_t *source, int worker, const plim__hop_t *hop,
                                const int64_t *nodes, int64_t count, plim__drawn_t *drawn)
{
    const lists_t *lists = (const lists_t *)(const void *)source;
    const int64_t taken = plim__draw_count(hop, DEGREE);
    int64_t positions[DEGREE];
    (void)worker;
    drawn->indptr[0] = 0;
    drawn->taken = plim__min_i64(count, drawn->capacity / taken);
    for (int64_t i = 0; i < drawn->taken; i++) {
        int64_t *ids = drawn->ids + i * taken;
        plim__draw_positions(hop, nodes[i], DEGREE, positions);
        for (int64_t j = 0; j < taken; j++)
            ids[j] = lists->entries[nodes[i] * DEGREE + positions[j]];
        drawn->indptr[i + 1] = (i + 1) * taken;
    }
    return PLIM_OK;
}

static void draw_batch(void *context, int worker, int64_t piece)
{
    lists_t *lists = context;
    drawer_t *drawer = &lists->drawers[worker];
    int64_t seeds[DRAW_SEEDS];
    bool fits;
    (void)piece;
    drawer->epoch += THREADS_MOST;
    for (int64_t i = 0; i < DRAW_SEEDS; i++)
        seeds[i] = (int64_t)(plim__mix64((uint64_t)(drawer->epoch * DRAW_SEEDS + i)) %
                             (uint64_t)lists->num_nodes);
    const plim_status_t status =
        plim__blocks_build(drawer->blocks, &lists->source, worker, drawer->epoch, seeds, DRAW_SEEDS,
                           &drawer->out, &fits);
    if (status != PLIM_OK)
        drawer->status = status;
    for (int hop = 0; hop < drawer->out.num_hops; hop++)
        drawer->edges += drawer->out.blocks[hop].num_edges;
}

/* A batch for each thread. */
static void draw_batches(void *context)
{
    lists_t *lists = context;
    lists->runs++;
    plim__team_run(lists->team, plim__team_size(lists->team), LONG_NS, draw_batch, lists);
}

static plim_status_t make_drawer(bench_t *bench, int worker, drawer_t *drawer)
{
    static const plim__blocks_params_t recipe = {
        .num_hops = 2, .fanout = {DRAW_FANOUT, DRAW_FANOUT}, .most_drawn = DRAW_FANOUT};
    plim__blocks_params_t params = recipe;
    plim__blocks_out_t *out = &drawer->out;
    out->index_type = PLIM_I32;
    out->num_hops = params.num_hops;
    /* Seeds may repeat, so the graph bounds nothing. */
    plim__blocks_bound(&params, INT64_MAX, INT64_MAX, DEGREE, DRAW_SEEDS, &out->node_capacity,
                       &out->edge_capacity);
    out->nodes = take(bench, (size_t)out->node_capacity * sizeof(int32_t));
    out->edges = take(bench, (size_t)out->edge_capacity * sizeof(int32_t));
    PLIM_TRY(plim__arena_check(&bench->arena));
    params.node_capacity = out->node_capacity;
    drawer->epoch = worker;
    return plim__blocks_create(bench->job, &params, &drawer->blocks);
}

static plim_status_t measure_draws(bench_t *bench, int point, plim__rates_t *rates)
{
    const int64_t count = (int64_t)exp2(plim__rate_x(PLIM__RATE_DRAW, point)) / 4;
    lists_t lists = {
        .source = {.draw = draw_lists}, .num_nodes = count / DEGREE, .team = bench->team};
    plim_status_t status = PLIM_OK;
    int64_t edges = 0;
    begin_point(bench);
    int32_t *entries = take(bench, (size_t)count * sizeof *entries);
    PLIM_TRY(plim__arena_check(&bench->arena));
    for (int64_t i = 0; i < count; i++)
        entries[i] = (int32_t)(plim__mix64((uint64_t)i) % (uint64_t)lists.num_nodes);
    lists.entries = entries;
    for (int i = 0; i < plim__team_size(bench->team) && status == PLIM_OK; i++)
        status = make_drawer(bench, i, &lists.drawers[i]);
    const double seconds = status == PLIM_OK ? cost_of(bench->team, draw_batches, &lists) : 0;
    for (int i = 0; i < plim__team_size(bench->team); i++) {
        edges += lists.drawers[i].edges;
        if (status == PLIM_OK)
            status = lists.drawers[i].status;
        plim__blocks_destroy(lists.drawers[i].blocks);
    }
    rates->cost[PLIM__RATE_DRAW][point] =
        seconds * (double)lists.runs / (double)plim__max_i64(edges, 1);
    return status;
}

typedef struct copies {
    plim__team_t *team;
    const char *from;
    char *to;
    size_t bytes; /* of a row */
    uint64_t rows;
    uint64_t run;
} copies_t;

static void copy_piece(void *context, int worker, int64_t piece)
{
    const copies_t *copies = context;
    const uint64_t first = (uint64_t)piece * COPY_PIECE;
    (void)worker;
    for (uint64_t i = first; i < first + COPY_PIECE; i++) {
        const uint64_t row = plim__mix64(copies->run * COPY_ROWS + i) % copies->rows;
        memcpy(copies->to + i * copies->bytes, copies->from + row * copies->bytes, copies->bytes);
    }
}

static void copy_rows(void *context)
{
    copies_t *copies = context;
    copies->run++;
    plim__team_run(copies->team, COPY_ROWS / COPY_PIECE, LONG_NS, copy_piece, copies);
}

static plim_status_t measure_copies(bench_t *bench, int point, plim__rates_t *rates)
{
    const size_t whole = (size_t)16 << 20;
    copies_t copies = {.team = bench->team, .bytes = (size_t)plim__rate_x(PLIM__RATE_COPY, point)};
    begin_point(bench);
    char *from = take(bench, whole);
    copies.to = take(bench, COPY_ROWS * copies.bytes);
    PLIM_TRY(plim__arena_check(&bench->arena));
    copies.from = from;
    copies.rows = whole / copies.bytes;
    rates->cost[PLIM__RATE_COPY][point] = cost_of(bench->team, copy_rows, &copies) / COPY_ROWS;
    return PLIM_OK;
}

/* Bytes moved from one half of the memory to the other. */
typedef struct moves {
    plim__team_t *team;
    char *from, *to;
    bool far; /* else each thread has one place, over and over */
} moves_t;

static void move_piece(void *context, int worker, int64_t piece)
{
    const moves_t *moves = context;
    const size_t at = (size_t)(moves->far ? piece : worker) * MOVE_PIECE;
    memcpy(moves->to + at, moves->from + at, MOVE_PIECE);
}

static void move_all(void *context)
{
    const moves_t *moves = context;
    plim__team_run(moves->team, (int64_t)(MEMORY / 2 / MOVE_PIECE), LONG_NS, move_piece, context);
}

static plim_status_t measure_memory(bench_t *bench, plim__rates_t *rates)
{
    moves_t moves = {.team = bench->team};
    begin_point(bench);
    moves.from = take(bench, MEMORY / 2);
    moves.to = take(bench, MEMORY / 2);
    PLIM_TRY(plim__arena_check(&bench->arena));
    const double near = cost_of(bench->team, move_all, &moves);
    moves.far = true;
    const double far = cost_of(bench->team, move_all, &moves);
    rates->cost[PLIM__RATE_MEMORY][0] = fmax(far - near, COST_LEAST) / (double)MEMORY;
    return PLIM_OK;
}

static plim_status_t measure_all(bench_t *bench, plim__rates_t *rates)
{
    for (int point = 0; point < PLIM__RATE_POINTS; point++) {
        PLIM_TRY(plim__job_check(bench->job));
        PLIM_TRY(measure_product(bench, PLIM__F32, point, rates));
        PLIM_TRY(measure_product(bench, PLIM__BF16, point, rates));
        PLIM_TRY(measure_sums(bench, point, rates));
    }
    for (int point = 0; point < 2; point++) {
        PLIM_TRY(measure_attention(bench, point, rates));
        PLIM_TRY(measure_draws(bench, point, rates));
        PLIM_TRY(measure_copies(bench, point, rates));
    }
    PLIM_TRY(measure_values(bench, PLIM__RATE_EPILOGUE, rates));
    PLIM_TRY(measure_values(bench, PLIM__RATE_DROPOUT, rates));
    PLIM_TRY(measure_values(bench, PLIM__RATE_NORM, rates));
    PLIM_TRY(measure_memory(bench, rates));
    rates->cost[PLIM__RATE_SHARE][0] = share_seconds(bench);
    return PLIM_OK;
}

/* The memory, refused where it would be half of what this process can still take. */
static plim_status_t take_memory(const plim_job_t *job, plim__arena_t *arena_out)
{
    if (plim__headroom("") / 2 < (int64_t)MEMORY)
        return plim__fail(PLIM_ERR_BUDGET, "measuring this machine's rates takes %zu MiB",
                          MEMORY >> 20);
    PLIM_TRY(plim__arena_create(job->ledger, "rates", MEMORY, arena_out));
    return PLIM_OK;
}

plim_status_t plim__rates_measure_computing(const plim_job_t *job, plim__rates_t *rates)
{
    const int threads =
        plim__job_threads(job) < THREADS_MOST ? plim__job_threads(job) : THREADS_MOST;
    bench_t bench = {.job = job};
    plim__rates_t measured = *rates;
    PLIM_TRY(take_memory(job, &bench.arena));
    plim__arena_touch(&bench.arena);
    plim_status_t status = plim__team_create_for(job, threads, &bench.team);
    if (status == PLIM_OK) {
        status = measure_all(&bench, &measured);
        plim__team_destroy(bench.team);
    }
    plim__arena_destroy(&bench.arena);
    if (status != PLIM_OK)
        return status;
    *rates = measured;
    rates->computing_known = true;
    return PLIM_OK;
}

/* The dataset's largest file. */
static const plim__manifest_file_t *largest_file(const plim__manifest_t *manifest)
{
    static const char *const names[] = {"features.npy", "indices.npy"};
    const plim__manifest_file_t *largest = NULL;
    for (int i = 0; i < 2; i++) {
        const plim__manifest_file_t *file = plim__manifest_find(manifest, names[i]);
        if (file != NULL && (largest == NULL || file->bytes > largest->bytes))
            largest = file;
    }
    return largest;
}

/* Reads at random places, in ascending order as a window's are. The median of some calls counts. */
static plim_status_t measure_reads(plim__reader_t *reader, const plim__file_t *file, char *to,
                                   int point, plim__rates_t *rates)
{
    const size_t bytes = (size_t)plim__rate_x(PLIM__RATE_READ, point);
    const int64_t places = file->size / (int64_t)bytes - 1;
    const int64_t began = plim__clock_ns();
    const double core_began = plim__clock_used(CLOCK_PROCESS_CPUTIME_ID);
    int64_t count = 0, before, after, moved;
    double costs[READ_CALLS] = {0};
    int calls = 0;
    plim__read_t reads[READS];
    plim__reader_totals(reader, &before, &moved);
    for (; calls < READ_CALLS && plim__clock_ns() - began < DISK_NS; calls++) {
        const int64_t start = plim__clock_ns();
        for (int64_t i = 0; i < READS; i++, count++) {
            const int64_t first = places * i / READS, end = places * (i + 1) / READS;
            const uint64_t spread = (uint64_t)plim__max_i64(end - first, 1);
            const int64_t at = first + (int64_t)(plim__mix64((uint64_t)count) % spread);
            reads[i] = (plim__read_t){at * (int64_t)bytes, bytes, to + (size_t)i * bytes};
        }
        PLIM_TRY(plim__reader_read(reader, file, reads, READS));
        insert(costs, calls, plim__clock_seconds_since(start));
    }
    plim__reader_totals(reader, &after, &moved);
    const double done = (double)plim__max_i64(after - before, 1);
    rates->cost[PLIM__RATE_READ][point] = costs[calls / 2] * calls / done;
    rates->cost[PLIM__RATE_READ_CORE][point] =
        fmax(plim__clock_used(CLOCK_PROCESS_CPUTIME_ID) - core_began, COST_LEAST) / done;
    return PLIM_OK;
}

plim_status_t plim__rates_measure_disk(const plim_job_t *job, const plim_dataset_t *dataset,
                                       plim__rates_t *rates)
{
    const plim__manifest_file_t *entry = largest_file(plim__dataset_manifest(dataset));
    const plim__reader_params_t params = {.depth = DEPTH, .max_read = READ_MOST};
    plim__rates_t measured = *rates;
    plim__reader_t *reader = NULL;
    plim__arena_t arena;
    plim__file_t file;
    if (plim__dataset_is_shape(dataset) || entry == NULL ||
        entry->bytes < (int64_t)FILE_PARTS * READS * 4096)
        return PLIM_OK;
    PLIM_TRY(take_memory(job, &arena));
    plim_status_t status = plim__dataset_file_open(dataset, entry, true, &file);
    if (status == PLIM_OK) {
        status = plim__reader_create(job, &params, &reader);
        for (int point = 0; point < 2 && status == PLIM_OK; point++)
            status = measure_reads(reader, &file, arena.base, point, &measured);
        plim__reader_destroy(reader);
        plim__file_close(&file);
    }
    plim__arena_destroy(&arena);
    if (status != PLIM_OK)
        return status;
    *rates = measured;
    rates->disk_known = true;
    return PLIM_OK;
}
