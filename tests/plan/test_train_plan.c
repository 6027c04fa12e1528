/* A whole run's plan: what it counts is what is made, and its least line is the least. */
#include "load/loader.h"
#include "support/dataset.h"
#include "support/harness.h"
#include "support/loader.h"
#include "support/training.h"

#include "base/check.h"
#include "base/job.h"
#include "mem/arena.h"
#include "mem/headroom.h"
#include "nn/score.h"
#include "plan/plan_settings.h"
#include "plan/train_plan.h"

#include <plimsoll/plimsoll.h>

#include <stdio.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)
#define WARNING_MAX 512

static const test_graph_t medium = {
    .num_nodes = 20000, .num_features = 32, .num_classes = 7, .half = true};

static plim_training_t small_training(plim_model_kind_t kind)
{
    return test_training_two_hops(kind, 16, 256, 5, 4);
}

static int64_t bytes_of(const plim__train_plan_t *plan, const char *name)
{
    for (int i = 0; i < plan->num_accounts; i++)
        if (strcmp(plan->accounts[i].name, name) == 0)
            return plan->accounts[i].bytes;
    return 0;
}

static void check_sums(const plim__train_plan_t *plan)
{
    int64_t sum[PLIM_PHASES] = {0}, most = 0;
    assert_in_range(plan->num_accounts, 1, PLIM__PLAN_ACCOUNTS);
    assert_true(plan->minimum <= plan->total);
    for (int i = 0; i < plan->num_accounts; i++) {
        const plim__plan_account_t *account = &plan->accounts[i];
        int64_t bytes = 0;
        for (int phase = 0; phase < PLIM_PHASES; phase++) {
            assert_true(account->phase[phase] >= 0);
            bytes = account->phase[phase] > bytes ? account->phase[phase] : bytes;
            sum[phase] += account->phase[phase];
        }
        assert_true(bytes > 0 && account->bytes == bytes);
    }
    for (int phase = 0; phase < PLIM_PHASES; phase++) {
        assert_int_equal(plan->phase[phase], sum[phase]);
        if (phase != PLIM_PHASE_PREDICT || sum[phase] <= plan->line) /* else a warning says so */
            most = sum[phase] > most ? sum[phase] : most;
    }
    assert_int_equal(plan->total, most);
    assert_int_equal(plan->phase[plan->peak_phase], most);
    assert_true(plan->total <= plan->line && plan->minimum <= plan->line);
    assert_true(plan->load.total < plan->total);
    assert_true(bytes_of(plan, "weights and optimiser") > 0 && bytes_of(plan, "activations") > 0 &&
                bytes_of(plan, "checkpoint") > 0 && bytes_of(plan, "slots") > 0 &&
                bytes_of(plan, "process") > 0 && bytes_of(plan, "reserve") > 0);
}

static plim_status_t plan_under(const test_place_t *place, const plim_training_t *training,
                                int64_t memory, plim__train_plan_t *plan)
{
    const plim_plan_params_t wanted = {.memory = memory};
    return plim__train_plan(&place->job, place->dataset, training, &wanted, plan);
}

static void the_recipe_is_the_models(void **state)
{
    (void)state;
    test_place_t place = test_place_open(&medium, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    for (plim_model_kind_t kind = PLIM_MLP; kind <= PLIM_GIN; kind++) {
        const plim_training_t training = small_training(kind);
        plim__train_plan_t plan;
        assert_ok(plim__train_plan(&place.job, place.dataset, &training, NULL, &plan));
        check_sums(&plan);
        assert_int_equal(plan.load.recipe.num_hops, kind == PLIM_MLP ? 0 : 2);
        assert_int_equal(plan.load.recipe.degrees, kind == PLIM_GCN);
        assert_int_equal(plan.load.recipe.row_type, PLIM_F16);
        assert_int_equal(plan.load.recipe.index_type, PLIM_I32);
    }
    plim_training_t wrong = small_training(PLIM_GCN);
    wrong.loss = PLIM_LOSS_MSE;
    plim__train_plan_t plan;
    assert_int_equal(plim__train_plan(&place.job, place.dataset, &wrong, NULL, &plan),
                     PLIM_ERR_USAGE);
    test_place_close(&place);
}

/* Makes everything that is planned under the planned line, and runs an epoch of the loader. */
static void make_all(const test_place_t *place, const plim_training_t *training,
                     const plim__train_plan_t *plan)
{
    const plim_dataset_info_t *info = plim_dataset_info(place->dataset);
    const int threads = plim__job_threads(&place->job);
    plim__model_params_t params =
        plim__train_model_params(info, training, &plan->load, true, threads);
    params.model.recompute = plan->recompute;
    plim__team_t *team;
    plim__model_t *model;
    plim__score_t *score;
    plim_loader_t *loader;
    plim_batch_t *batch;
    plim_ledger_t *ledger = place->job.ledger;
    const int64_t before = plim__ledger_reserved(ledger), earlier = plim__ledger_peak(ledger);
    assert_ok(plim__team_create(ledger, threads, &team));
    assert_ok(plim__loader_create(&place->job, place->dataset, &plan->load, &loader));
    assert_ok(plim__model_create(ledger, team, &params, &model));
    assert_ok(plim__score_create(ledger, plim__training_metric(info, training),
                                 plim__training_loss(info, training), info->num_nodes,
                                 params.num_outputs, 1, &score));
    const int64_t most = plan->total - bytes_of(plan, "process") - bytes_of(plan, "reserve");
    assert_true(plim__ledger_reserved(ledger) - before <= most);
    plim__model_initialise(model, 1);
    plim__model_changed(model);
    if (info->num_graphs == 0) /* the graphs of test_dataset_make are not apart */
        assert_ok(plim_stream_start(test_stream(loader, PLIM_TRAIN), 0, 0));
    while (info->num_graphs == 0) {
        const plim__pass_t pass = {.training = true, .step = 1};
        plim__model_output_t output;
        assert_ok(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &batch));
        if (batch == NULL)
            break;
        assert_ok(plim__model_forward(model, batch, &pass, &output));
        plim_batch_release(batch);
    }
    assert_true(plim__ledger_peak(ledger) <= plim__max_i64(before + most, earlier));
    plim_loader_release(loader);
    plim__score_destroy(score);
    plim__model_destroy(model);
    plim__team_destroy(team);
    assert_int_equal(plim__ledger_reserved(ledger), before);
}

/* Under the least line and under more, whatever is planned can be made and holds every batch. */
static void what_is_planned_can_be_made(void **state)
{
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    for (int round = 0; round < 6; round++) {
        static const plim_model_kind_t kinds[] = {PLIM_GCN, PLIM_SAGE, PLIM_GAT,
                                                  PLIM_GIN, PLIM_MLP,  PLIM_SAGE};
        test_place_t place = test_place_open(
            &(test_graph_t){
                .num_nodes = 3000, .num_features = 9, .num_classes = 4, .graphs = round == 5},
            PLIM_LINE_NONE, 1 + round % 3, PLIM_IO_AUTO);
        plim_training_t training = small_training(kinds[round]);
        training.recipe.num_hops = round == 5 ? 0 : training.recipe.num_hops;
        training.model.heads = 2;
        training.microbatch = round == 1 ? 50 : 0;
        plim__train_plan_t plan;
        assert_ok(plim__train_plan(&place.job, place.dataset, &training, NULL, &plan));
        make_all(&place, &training, &plan);
        assert_ok(plan_under(&place, &training, plan.minimum, &plan));
        check_sums(&plan);
        make_all(&place, &training, &plan);
        test_place_close(&place);
    }
}

/* With as many threads as the nominal process, and its engine. */
static void the_least_line_is_exact(void **state)
{
    (void)state;
    test_place_t place =
        test_place_open(&medium, PLIM_LINE_NONE, PLIM__NOMINAL_THREADS, PLIM_IO_THREADS);
    for (int norm = PLIM_NORM_NONE; norm <= PLIM_NORM_BATCH; norm++) {
        plim_training_t training = small_training(PLIM_SAGE);
        training.model.norm = (plim_norm_t)norm;
        plim__train_plan_t plan, least;
        assert_ok(plim__train_plan(&place.job, place.dataset, &training, NULL, &plan));
        assert_ok(plan_under(&place, &training, plan.minimum, &least));
        check_sums(&least);
        assert_int_equal(least.minimum, plan.minimum);
        assert_in_range(least.total, plan.minimum - (int64_t)PLIM__PAGE, plan.minimum);
        assert_int_equal(plan_under(&place, &training, plan.minimum - 1, &least), PLIM_ERR_BUDGET);
        char text[64];
        const int64_t given = (plan.minimum - 1) / MIB + 1;
        (void)snprintf(text, sizeof text, "`memory` to %lldM", (long long)given);
        assert_non_null(strstr(plim_last_error(), text));
        if (norm == PLIM_NORM_BATCH)
            assert_non_null(strstr(plim_last_error(), "whole batches"));
    }
    test_place_close(&place);
}

static void more_memory_never_hurts(void **state)
{
    (void)state;
    test_place_t place = test_place_open(&medium, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    const plim_training_t training = small_training(PLIM_GCN);
    plim__train_plan_t plan;
    assert_ok(plim__train_plan(&place.job, place.dataset, &training, NULL, &plan));
    bool rows = false, topology = false, fitted = false;
    for (int64_t memory = plan.minimum - 2 * MIB; memory < plan.minimum + 48 * MIB; memory += MIB) {
        plim_status_t status = plan_under(&place, &training, memory, &plan);
        assert_true(status == PLIM_OK || (status == PLIM_ERR_BUDGET && !fitted));
        if (status != PLIM_OK)
            continue;
        fitted = true;
        check_sums(&plan);
        assert_true(plan.load.rows_in_memory || !rows);
        assert_true(plan.load.topology_in_memory || !topology);
        rows = plan.load.rows_in_memory;
        topology = plan.load.topology_in_memory;
    }
    assert_true(rows && topology);
    test_place_close(&place);
}

/* A process of fewer threads than the nominal one holds less, also where whole batches fit. */
static void the_minimum_is_not_above_the_total(void **state)
{
    (void)state;
    for (int threads = 1; threads <= PLIM__NOMINAL_THREADS; threads *= 2) {
        test_place_t place = test_place_open(&medium, PLIM_LINE_NONE, threads, PLIM_IO_AUTO);
        const plim_training_t training = small_training(PLIM_SAGE);
        plim__train_plan_t plan;
        assert_ok(plan_under(&place, &training, 200 * MIB, &plan));
        check_sums(&plan);
        assert_ok(plan_under(&place, &training, plan.minimum, &plan));
        check_sums(&plan);
        test_place_close(&place);
    }
}

/* A batch that is large beside the graph, so that slots and activations decide what fits. */
static const test_graph_t wide = {
    .num_nodes = 40000, .num_features = 128, .num_classes = 7, .half = true};

static plim_training_t wide_training(void)
{
    plim_training_t training = small_training(PLIM_GCN);
    training.model.hidden = 64;
    training.recipe.batch_size = 1024;
    training.recipe.fanout[0] = 15;
    training.recipe.fanout[1] = 10;
    return training;
}

static void note_warning(void *user, plim_log_level_t level, const char *message)
{
    if (level == PLIM_LOG_WARNING)
        (void)snprintf(user, WARNING_MAX, "%s", message);
}

/* From the least line to whole batches: fewer and fewer parts, and a warning while there are any.
 */
static void more_memory_never_means_more_parts(void **state)
{
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    char warning[WARNING_MAX];
    test_place_t place =
        test_place_open(&wide, PLIM_LINE_NONE, PLIM__NOMINAL_THREADS, PLIM_IO_THREADS);
    place.job.log = note_warning;
    place.job.user = warning;
    const plim_training_t training = wide_training();
    plim__train_plan_t plan;
    assert_ok(plim__train_plan(&place.job, place.dataset, &training, NULL, &plan));
    assert_int_equal(plan.load.part_seeds, 0);
    int64_t before = 1, whole_at = 0;
    const int64_t least = plan.minimum, enough = plan.total;
    for (int64_t memory = least; memory < enough + 32 * MIB; memory += MIB / 2) {
        warning[0] = '\0';
        assert_ok(plan_under(&place, &training, memory, &plan));
        plim__job_deliver(&place.job);
        check_sums(&plan);
        const int64_t seeds = plan.load.part_seeds > 0 ? plan.load.part_seeds : 1024;
        assert_true(seeds >= before);
        assert_int_equal(strstr(warning, " in parts of ") != NULL, seeds < 1024);
        if (seeds == 1024 && before < 1024)
            whole_at = memory;
        before = seeds;
    }
    assert_true(whole_at > least && whole_at <= enough + MIB);
    test_place_close(&place);
}

/* Every part of every batch has the planned number of seeds: none is cut once more. */
static void batches_are_cut_as_planned(void **state)
{
    (void)state;
    test_place_t place = test_place_open(&wide, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    const plim_training_t training = wide_training();
    plim__train_plan_t plan, again;
    plim_loader_t *loader;
    plim_batch_t *batch;
    assert_ok(plim__train_plan(&place.job, place.dataset, &training, NULL, &plan));
    const int64_t least = plan.minimum, enough = plan.total;
    for (int i = 0; i < 3; i++) {
        assert_ok(plan_under(&place, &training, least + (enough - least) * i / 4, &plan));
        const int64_t part = plan.load.part_seeds;
        assert_in_range(part, 1, 512);
        assert_ok(plim__loader_create(&place.job, place.dataset, &plan.load, &loader));
        for (int64_t step = 0; step < 2; step++) {
            assert_ok(plim_stream_start(test_stream(loader, PLIM_TRAIN), 0, step));
            do {
                assert_ok(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &batch));
                const int64_t left = batch->batch_seeds - batch->first_seed;
                assert_int_equal(batch->num_seeds, left < part ? left : part);
                const bool last = batch->last_part;
                plim_batch_release(batch);
                if (last)
                    break;
            } while (true);
        }
        plim_loader_release(loader);
        const plim_plan_params_t wanted = {.part_seeds = part};
        assert_ok(plim__train_plan(&place.job, place.dataset, &training, &wanted, &again));
        assert_int_equal(again.load.part_seeds, part);
    }
    test_place_close(&place);
}

/* What seeds may need before they are halved follows from the recipe and their number; the line,
 * the threads and what slots have room for do not show. */
static void what_a_part_may_need_is_the_recipes(void **state)
{
    (void)state;
    int64_t nodes[2] = {0}, edges[2] = {0};
    for (int threads = 1; threads <= PLIM__NOMINAL_THREADS; threads *= 2) {
        test_place_t place = test_place_open(&wide, PLIM_LINE_NONE, threads, PLIM_IO_AUTO);
        plim_training_t training = wide_training();
        plim__train_plan_t plan;
        for (int i = 0; i < 2; i++) {
            training.recipe.batch_size = i == 0 ? 16 : 64;
            assert_ok(plim__train_plan(&place.job, place.dataset, &training, NULL, &plan));
            const int64_t least = plan.minimum, enough = plan.total;
            for (int part = 4; part >= 0; part--) {
                assert_ok(
                    plan_under(&place, &training, least + (enough - least) * part / 4, &plan));
                assert_true(plan.load.part_nodes > 0 && plan.load.part_edges > 0);
                assert_true(plan.load.slot_nodes >= plan.load.part_nodes);
                assert_true(plan.load.slot_edges >= plan.load.part_edges);
                if (plan.load.part_seeds > 0)
                    continue;
                if (nodes[i] == 0) {
                    nodes[i] = plan.load.part_nodes;
                    edges[i] = plan.load.part_edges;
                }
                assert_int_equal(plan.load.part_nodes, nodes[i]);
                assert_int_equal(plan.load.part_edges, edges[i]);
            }
            /* A run that goes on takes what it had, whatever would be found now. */
            const plim_plan_params_t wanted = {.part_nodes = nodes[i] / 2,
                                               .part_edges = edges[i] / 2};
            assert_ok(plim__train_plan(&place.job, place.dataset, &training, &wanted, &plan));
            assert_int_equal(plan.load.part_nodes, nodes[i] / 2);
            assert_int_equal(plan.load.part_edges, edges[i] / 2);
        }
        test_place_close(&place);
    }
    assert_true(nodes[0] > 0 && nodes[1] > nodes[0]);
}

/* Without gradients less will do, batch norm may work on parts, and other things help. */
static void evaluation_has_a_plan_of_its_own(void **state)
{
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    test_place_t place = test_place_open(&wide, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim_training_t training = wide_training();
    plim__train_plan_t trained, plan;
    assert_ok(plim__train_plan(&place.job, place.dataset, &training, NULL, &trained));
    assert_ok(plim__evaluation_plan(&place.job, place.dataset, &training, &plan));
    assert_true(plan.minimum < trained.minimum && plan.total < trained.total);
    assert_true(bytes_of(&plan, "activations") < bytes_of(&trained, "activations"));
    training.model.norm = PLIM_NORM_BATCH;
    assert_ok(plim__train_plan(&place.job, place.dataset, &training, NULL, &trained));
    plim_job_t tight = test_job_make(plan.minimum + 2 * MIB, 2, PLIM_IO_AUTO);
    plim_dataset_t *dataset;
    assert_ok(plim_dataset_open(&tight, place.path, &dataset));
    assert_ok(plim__evaluation_plan(&tight, dataset, &training, &plan));
    assert_true(plan.minimum < trained.minimum && plan.load.part_seeds > 0);
    plim_dataset_release(dataset);
    test_job_end(&tight);
    tight = test_job_make(plan.minimum - 2 * MIB, 2, PLIM_IO_AUTO);
    assert_ok(plim_dataset_open(&tight, place.path, &dataset));
    assert_int_equal(plim__evaluation_plan(&tight, dataset, &training, &plan), PLIM_ERR_BUDGET);
    assert_non_null(strstr(plim_last_error(), "evaluation on batches of 1024"));
    assert_non_null(strstr(plim_last_error(), "`exact`"));
    assert_null(strstr(plim_last_error(), "smaller"));
    plim_dataset_release(dataset);
    test_job_end(&tight);
    test_place_close(&place);
}

/* Microbatches make slots and activations smaller; batch norm forbids them, planned or not. */
static void splitting_is_planned(void **state)
{
    (void)state;
    test_place_t place =
        test_place_open(&medium, PLIM_LINE_NONE, PLIM__NOMINAL_THREADS, PLIM_IO_THREADS);
    plim_training_t training = small_training(PLIM_SAGE);
    plim__train_plan_t whole, parts;
    assert_ok(plim__train_plan(&place.job, place.dataset, &training, NULL, &whole));
    training.microbatch = 32;
    assert_ok(plim__train_plan(&place.job, place.dataset, &training, NULL, &parts));
    assert_int_equal(parts.load.part_seeds, 32);
    assert_true(bytes_of(&parts, "activations") < bytes_of(&whole, "activations"));
    training.microbatch = 0;
    assert_ok(plan_under(&place, &training, whole.minimum, &parts));
    assert_true(parts.load.slot_nodes < whole.load.slot_nodes); /* split for want of room */
    training.model.norm = PLIM_NORM_BATCH;
    assert_ok(plim__train_plan(&place.job, place.dataset, &training, NULL, &parts));
    assert_true(parts.minimum > whole.minimum);
    assert_ok(plan_under(&place, &training, parts.minimum, &parts));
    assert_true(parts.load.slot_nodes >= whole.load.slot_nodes);
    training.microbatch = 32;
    assert_int_equal(plim__train_plan(&place.job, place.dataset, &training, NULL, &parts),
                     PLIM_ERR_USAGE);
    test_place_close(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_recipe_is_the_models),
        cmocka_unit_test(what_is_planned_can_be_made),
        cmocka_unit_test(the_least_line_is_exact),
        cmocka_unit_test(more_memory_never_hurts),
        cmocka_unit_test(the_minimum_is_not_above_the_total),
        cmocka_unit_test(splitting_is_planned),
        cmocka_unit_test(more_memory_never_means_more_parts),
        cmocka_unit_test(batches_are_cut_as_planned),
        cmocka_unit_test(what_a_part_may_need_is_the_recipes),
        cmocka_unit_test(evaluation_has_a_plan_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
