/* Exact evaluation by several ranks: the bits of one, for every kind of model, whatever the memory
 * of each rank and the order asked for; and one end for all. */
#include "support/harness.h"
#include "support/ranks.h"
#include "support/reference.h"

#include "base/fail.h"
#include "base/job.h"
#include "base/rng.h"
#include "infer/exact.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES 6000
#define FEATURES 24
#define CLASSES 5
#define TIMEOUT_SECONDS 60

static const test_graph_t graph = {.num_nodes = NODES,
                                   .num_features = FEATURES,
                                   .num_classes = CLASSES,
                                   .half = true,
                                   .columns =
                                       PLIM_EDGE_FEATURES | PLIM_EDGE_WEIGHT | PLIM_EDGE_TYPE,
                                   .edge_width = 3,
                                   .drawable = true,
                                   .seed = 3};

static char scratch[512];

/* An evaluation by ranks. */
typedef struct call {
    test_weights_t weights;
    bool embeddings;
    const int64_t *nodes; /* NULL: all */
    int64_t count, width;
    int64_t most_rows, most_rows_other; /* of rank 1 */
    int other;                          /* the rank that fails; -1: none */
    plim_status_t expected;
    int64_t away;  /* of rank `other`: bytes of the line that are not free */
    bool stopped;  /* rank `other` is stopped before it begins */
    bool declines; /* rank 0 does not take the rows */
    float *values; /* (count, width) */
    int64_t rows;
} call_t;

static plim_status_t take(void *context, int64_t first, int64_t rows, int64_t width,
                          const float *outputs)
{
    call_t *call = context;
    rank_assert(first == call->rows && width == call->width);
    if (call->declines)
        return plim__fail(PLIM_ERR_DISK, "not wanted");
    memcpy(call->values + first * width, outputs, (size_t)(rows * width) * sizeof(float));
    call->rows += rows;
    return PLIM_OK;
}

static plim_status_t refuse(void *context, int64_t first, int64_t rows, int64_t width,
                            const float *outputs)
{
    (void)context, (void)first, (void)rows, (void)width, (void)outputs;
    rank_assert(false);
    return PLIM_OK;
}

static void body(const plim_job_t *given, int rank, int num_ranks, void *context)
{
    call_t *call = context;
    /* Threads that map and unmap rings at one address look like a race to ThreadSanitizer. */
    plim_job_t own = *given, *job = &own;
    volatile int stop = call->stopped && rank == call->other;
    plim_dataset_t *dataset;
    plim__peers_t *peers;
    char path[700];
    int account = 0;
    own.io_engine = PLIM_IO_THREADS;
    own.stop = &stop;
    own.threads = 1 + rank % 2;
    (void)snprintf(path, sizeof path, "%s/ranks", test_loader_directory);
    rank_ok(plim_dataset_open(job, path, &dataset));
    rank_ok(plim__peers_open(job, &peers));
    const int64_t before = plim__ledger_reserved(job->ledger);
    plim__exact_params_t params = {.model = call->weights.model,
                                   .columns = call->weights.columns,
                                   .num_outputs = CLASSES,
                                   .parameters = call->weights.table,
                                   .num_parameters = call->weights.count,
                                   .embeddings = call->embeddings,
                                   .scratch = scratch,
                                   .most_rows = rank == 1 ? call->most_rows_other : call->most_rows,
                                   .peers = peers};
    const size_t away = call->away > 0 && rank == call->other
                            ? (size_t)(plim__ledger_available(job->ledger) - call->away)
                            : 0;
    if (away > 0)
        rank_ok(plim__ledger_reserve(job->ledger, "away", away, &account));
    const plim_status_t status =
        plim__exact_run(job, dataset, &params, call->nodes, call->nodes != NULL ? call->count : 0,
                        rank == 0 ? take : refuse, call);
    rank_assert(status == call->expected);
    if (away > 0)
        plim__ledger_release(job->ledger, account, away);
    rank_assert(plim__ledger_reserved(job->ledger) == before);
    plim__peers_close(peers);
    plim_dataset_release(dataset);
    (void)num_ranks;
}

static void run(int num_ranks, call_t *call)
{
    call->rows = 0;
    memset(call->values, 0, (size_t)(call->count * call->width) * sizeof(float));
    test_ranks_threads(num_ranks, TIMEOUT_SECONDS, NULL, body, call);
}

static call_t make_call_of(const plim_model_t *model, const plim__columns_t *columns)
{
    test_loader_t world = test_loader_open("ranks", &graph, 2, PLIM_IO_THREADS);
    test_loader_close(&world);
    return (call_t){.weights = test_weights_of(model, columns, FEATURES, CLASSES),
                    .count = NODES,
                    .width = CLASSES,
                    .other = -1,
                    .values = calloc((size_t)NODES * 2 * FEATURES, sizeof(float))};
}

static call_t make_call(const plim_model_t *model)
{
    const plim__columns_t none = {.edge_features = 0};
    return make_call_of(model, &none);
}

static void end_call(call_t *call)
{
    free(call->values);
    test_weights_free(&call->weights);
}

/* Runs by 2, 3 or 5 ranks in turn, with layers in memory and on disk, in one pass and in many, give
 * the values of one rank. */
static void check(call_t *call)
{
    static const struct {
        int ranks;
        int64_t most_rows, most_rows_other; /* attention needs three floats a node */
    } ways[] = {{2, 0, 0}, {3, 200000, 72000}, {5, 72000, 0}};
    static size_t turn;
    const size_t way = turn++ % (sizeof ways / sizeof ways[0]);
    const size_t bytes = (size_t)(call->count * call->width) * sizeof(float);
    float *alone = malloc(bytes);
    call->most_rows = call->most_rows_other = 0;
    run(1, call);
    assert_int_equal(call->rows, call->count);
    memcpy(alone, call->values, bytes);
    call->most_rows = ways[way].most_rows;
    call->most_rows_other = ways[way].most_rows_other;
    run(ways[way].ranks, call);
    assert_int_equal(call->rows, call->count);
    assert_memory_equal(call->values, alone, bytes);
    free(alone);
}

static void check_model(const plim_model_t *model)
{
    static const int64_t counts[] = {NODES, 700, 7};
    int64_t nodes[NODES];
    for (int i = 0; i < 4; i++) {
        call_t call = make_call(model);
        call.count = i == 0 ? NODES : counts[i - 1];
        call.nodes = i == 0 ? NULL : nodes;
        for (int64_t k = 0; k < call.count; k++) /* in any order; of the last, ascending */
            nodes[k] = i == 3 ? 3 * k : (int64_t)(plim__rng_u64(8, (uint64_t)k) % NODES);
        check(&call);
        end_call(&call);
    }
}

static const plim_model_t base_model = PLIM_MODEL_INIT;

static void test_every_model(void **state)
{
    (void)state;
    for (plim_model_kind_t kind = PLIM_MLP; kind <= PLIM_GIN; kind++) {
        plim_model_t model = base_model;
        model.kind = kind;
        model.hidden = 16;
        if (kind == PLIM_GAT)
            model.heads = 2;
        check_model(&model);
    }
}

static void test_columns(void **state)
{
    (void)state;
    static const struct {
        plim_model_kind_t kind;
        plim__columns_t columns;
    } kinds[] = {{PLIM_GCN, {.edge_weights = true}},
                 {PLIM_RGCN, {.edge_types = 7, .bases = 2}},
                 {PLIM_GAT, {.edge_features = 3, PLIM_F32}},
                 {PLIM_GATV2, {.edge_features = 3, PLIM_F32}},
                 {PLIM_GINE, {.edge_features = 3, PLIM_F32}}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        plim_model_t model = base_model;
        model.kind = kinds[i].kind;
        model.hidden = 16;
        model.heads = model.kind == PLIM_GAT || model.kind == PLIM_GATV2 ? 2 : 1;
        call_t call = make_call_of(&model, &kinds[i].columns);
        check(&call);
        end_call(&call);
    }
}

static void test_deep_and_wide(void **state)
{
    plim_model_t model = base_model;
    (void)state;
    model.kind = PLIM_SAGE;
    model.aggregation = PLIM_MAX;
    model.num_layers = 3;
    model.hidden = 40;
    model.norm = PLIM_NORM_LAYER;
    model.residual = true;
    check_model(&model);
}

static void test_embeddings(void **state)
{
    (void)state;
    for (int layers = 1; layers <= 2; layers++) {
        plim_model_t model = base_model;
        model.hidden = 16;
        model.num_layers = layers;
        call_t call = make_call(&model);
        call.embeddings = true;
        call.width = layers == 1 ? FEATURES : 16;
        check(&call);
        end_call(&call);
    }
}

/* Whatever goes wrong on one rank, all return it. */
static void test_an_error_of_one_is_that_of_all(void **state)
{
    plim_model_t model = base_model;
    (void)state;
    model.hidden = 16;
    for (int other = 0; other < 3; other++) {
        call_t call = make_call(&model);
        call.other = other;
        call.away = 4096;
        call.expected = PLIM_ERR_BUDGET;
        run(3, &call);
        call.away = 0;
        call.stopped = true;
        call.expected = PLIM_ERR_STOPPED;
        run(3, &call);
        end_call(&call);
    }
    call_t call = make_call(&model);
    call.declines = true;
    call.expected = PLIM_ERR_DISK;
    run(3, &call);
    end_call(&call);
}

/* A layer's product goes to the other ranks once, however often its lists are read. */
static void test_bytes_moved(void **state)
{
    plim_model_t model = base_model;
    (void)state;
    model.hidden = 16;
    call_t call = make_call(&model);
    long long bytes[2];
    for (int i = 0; i < 2; i++) {
        call.most_rows = call.most_rows_other = i == 0 ? 0 : 72000;
        run(2, &call);
        bytes[i] = atomic_load(&test_ranks_bytes);
    }
    /* Both layers' products of 16 and 5 columns, and half of the outputs. */
    const long long floats = NODES * (16 + 5) + NODES / 2 * 5;
    assert_true(bytes[0] > 3 * floats && bytes[0] < 4 * floats + 200000);
    assert_true(bytes[1] < 4 * floats + 400000);
    end_call(&call);
}

static void count_disk(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    const plim__file_system_t network = {.network = true}, own = {.network = false};
    (void)rank;
    (void)context;
    job->core->transport.local_ranks = 2;
    rank_assert(plim__exact_disk_together(job, &network, 10) == 10 * num_ranks);
    rank_assert(plim__exact_disk_together(job, &own, 10) == 20);
}

/* Layers of all ranks on a network's file system, of a node's ranks on its own. */
static void test_disk_of_all_ranks(void **state)
{
    (void)state;
    test_ranks_threads(3, TIMEOUT_SECONDS, NULL, count_disk, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_model),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_deep_and_wide),
        cmocka_unit_test(test_embeddings),
        cmocka_unit_test(test_an_error_of_one_is_that_of_all),
        cmocka_unit_test(test_bytes_moved),
        cmocka_unit_test(test_disk_of_all_ranks),
    };
    test_directory_make(scratch);
    const int failed = cmocka_run_group_tests(tests, test_loader_begin, test_loader_end);
    test_directory_remove(scratch);
    return failed;
}
