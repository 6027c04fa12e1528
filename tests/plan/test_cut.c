/* Where batches must be cut, the cut is the largest that fits, whatever is wide. */
/* labels: plain long */
#include "load/plan_data.h"
#include "plan/train_plan.h"
#include "support/harness.h"
#include "support/training.h"

#include "base/check.h"
#include "base/job.h"
#include "mem/arena.h"
#include "nn/matrix.h"
#include "store/dataset.h"

#include <plimsoll/plimsoll.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)
#define BATCH 1024
#define WARNING_MAX 512
#define LINES 4 /* each half as far from the least as the one before */

static const struct {
    int64_t features, hidden, classes, targets;
    plim_model_kind_t kind;
} cases[] = {
    {32, 64, 10, 0, PLIM_SAGE},     {32, 64, 1000, 0, PLIM_SAGE}, {32, 64, 10000, 0, PLIM_SAGE},
    {32, 64, 100000, 0, PLIM_SAGE}, {32, 64, 10000, 0, PLIM_GAT}, {32, 64, 10000, 0, PLIM_MLP},
    {5000, 64, 10, 0, PLIM_GCN},    {32, 1024, 10, 0, PLIM_SAGE}, {32, 64, 0, 3000, PLIM_GIN},
};

#define NUM_CASES (sizeof cases / sizeof cases[0])

/* What dataset.json would say of a graph that wide. */
static plim_dataset_t *from_shape(const plim_job_t *job, size_t which)
{
    plim_generate_options_t options = PLIM_GENERATE_OPTIONS_INIT;
    plim_dataset_t *dataset, *targets;
    options.shape = "free";
    options.num_nodes = 100000;
    options.num_edges = 1000000;
    options.num_features = cases[which].features;
    options.num_classes = cases[which].classes > 0 ? cases[which].classes : 2;
    assert_ok(plim_dataset_from_shape(job, &options, &dataset));
    if (cases[which].targets == 0)
        return dataset;
    plim__manifest_t manifest = *plim__dataset_manifest(dataset);
    manifest.info.num_classes = 0;
    for (int i = 0; i < manifest.num_files; i++)
        if (strcmp(manifest.files[i].name, "labels.npy") == 0) {
            manifest.files[i].type = PLIM__NPY_F32;
            manifest.files[i].num_dims = 2;
            manifest.files[i].shape[1] = cases[which].targets;
        }
    assert_ok(plim__dataset_from_manifest(job, "targets", &manifest, &targets));
    plim_dataset_release(dataset);
    return targets;
}

static plim_training_t training_of(size_t which)
{
    plim_training_t training =
        test_training_two_hops(cases[which].kind, cases[which].hidden, BATCH, 10, 5);
    if (cases[which].targets > 0)
        training.loss = PLIM_LOSS_BCE;
    return training;
}

/* Seeds at a time under that line; with a wish, whether it is had. */
static int64_t seeds_under(const plim_job_t *job, const plim_dataset_t *dataset,
                           const plim_training_t *training, int64_t memory, int64_t wish,
                           plim__train_plan_t *plan)
{
    const plim_plan_params_t wanted = {.memory = memory, .part_seeds = wish, .no_advice = true};
    if (plim__train_plan(job, dataset, training, &wanted, plan) != PLIM_OK)
        return 0;
    return plan->load.part_seeds > 0 ? plan->load.part_seeds : BATCH;
}

/* The most seeds that are had when they are wished for. */
static int64_t most_by_hand(const plim_job_t *job, const plim_dataset_t *dataset,
                            const plim_training_t *training, int64_t memory)
{
    plim__train_plan_t plan;
    int64_t low = 1, high = BATCH;
    while (low < high) {
        const int64_t middle = high - (high - low) / 2;
        if (seeds_under(job, dataset, training, memory, middle, &plan) == middle)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static int64_t parts_of(int64_t seeds)
{
    return (BATCH - 1) / seeds + 1;
}

/*
 * More parts than a few are not counted singly. Where
 * rows are read from disk, windows and caches come before parts that are larger than a tile. With
 * more memory there are no more parts, and resumed under the same line there are as many.
 */
static void the_cut_is_the_largest_that_fits(void **state)
{
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    for (size_t which = 0; which < NUM_CASES; which++) {
        plim_dataset_t *dataset = from_shape(&job, which);
        const plim_training_t training = training_of(which);
        plim__train_plan_t whole, plan;
        assert_ok(plim__train_plan(&job, dataset, &training, NULL, &whole));
        int64_t before = 1;
        for (int i = LINES; i > 0; i--) {
            const int64_t line = whole.minimum + ((whole.total - whole.minimum) >> i);
            const int64_t seeds = seeds_under(&job, dataset, &training, line, 0, &plan);
            int64_t most = most_by_hand(&job, dataset, &training, line - MIB);
            if (plan.load.window_steps > 0 && most > PLIM__ROWS && seeds < most)
                most = PLIM__ROWS; /* the rest of the line reads less */
            print_message("case %zu, %lld KiB: %lld seeds of %lld, %lld KiB\n", which,
                          (long long)line / 1024, (long long)seeds, (long long)most,
                          (long long)plan.total / 1024);
            assert_true(seeds >= before);
            assert_true(4 * parts_of(seeds) <= 5 * parts_of(most));
            before = seeds;
            assert_int_equal(seeds_under(&job, dataset, &training, line, seeds, &plan), seeds);
        }
        assert_true(before > 1);
        plim_dataset_release(dataset);
    }
    test_job_end(&job);
}

/*
 * The cut follows from the dataset, the recipe and the line. A process that holds more, or has more
 * threads, keeps it at the caches' expense, or is refused with a --microbatch that fits.
 */
static void the_cut_is_the_same_in_any_process(void **state)
{
    static const int64_t more[] = {0, 1, 8, 16, 24, 32, 40, 64}; /* MiB */
    const int64_t line = 144 * MIB;
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    const plim_training_t training = training_of(7);
    int64_t seeds = 0, given = 0;
    int kept = 0, named = 0;
    for (int threads = 1; threads <= 16; threads *= 2)
        for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
            plim_job_t job = test_job_make(line, threads, PLIM_IO_AUTO);
            plim_dataset_t *dataset = from_shape(&job, 7);
            plim__train_plan_t plan;
            int account;
            assert_ok(plim__ledger_reserve(job.ledger, "heap", (size_t)(more[i] * MIB), &account));
            const plim_plan_params_t wanted = {.no_advice = true};
            const plim_status_t status = plim__train_plan(&job, dataset, &training, &wanted, &plan);
            const char *option = strstr(plim_last_error(), "`microbatch` to ");
            if (status == PLIM_OK) {
                kept++;
                seeds = seeds > 0 ? seeds : plan.load.part_seeds; /* 0: whole */
                assert_int_equal(plan.load.part_seeds, seeds);
                assert_true(plan.total <= line);
            } else if (option != NULL) {
                named++;
                assert_int_equal(status, PLIM_ERR_BUDGET);
                given = strtoll(option + strlen("`microbatch` to "), NULL, 10);
                assert_in_range(given, 1, seeds - 1);
                assert_int_equal(seeds_under(&job, dataset, &training, 0, given, &plan), given);
            }
            plim_dataset_release(dataset);
            test_job_end(&job);
        }
    print_message("%d keep %lld seeds; %d are told of a microbatch\n", kept, (long long)seeds,
                  named);
    assert_true(seeds > 0 && seeds < BATCH && kept > 8 && named > 0);
}

/* The memory that a message names: "raise `memory` to 80M", "with `memory` 80M"; 0: none. */
static int64_t named_line(const char *message)
{
    const char *option = strstr(message, "`memory` ");
    return option != NULL ? strtoll(option + strcspn(option, "0123456789"), NULL, 10) * MIB : 0;
}

static void note_warning(void *user, plim_log_level_t level, const char *message)
{
    if (level == PLIM_LOG_WARNING)
        (void)snprintf(user, WARNING_MAX, "%s", message);
}

/* Whatever a process holds besides: the minimum is accepted, so is the line that a refusal names,
 * and batches are whole under the line that a warning names for that. */
static void named_lines_are_accepted(void **state)
{
    static const int64_t more[] = {0, 40, 96}; /* MiB */
    char warning[WARNING_MAX];
    int refused = 0, cut = 0;
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    for (int i = 0; i < 3; i++) {
        const size_t which = i == 0 ? 0 : 7;
        plim_job_t job = test_job_make(PLIM_LINE_NONE, i == 1 ? 8 : 2, PLIM_IO_AUTO);
        plim_dataset_t *dataset = from_shape(&job, which);
        const plim_training_t training = training_of(which);
        plim_plan_params_t wanted = {.no_advice = true};
        plim__train_plan_t plan;
        int account;
        assert_ok(plim__ledger_reserve(job.ledger, "heap", (size_t)(more[i] * MIB), &account));
        assert_ok(plim__train_plan(&job, dataset, &training, &wanted, &plan));
        const int64_t minimum = plan.minimum, whole = plan.total;
        job.log = note_warning;
        job.user = warning;
        for (int64_t line = minimum; line < whole;
             line += plim__max_i64((whole - minimum) / 6, MIB)) {
            warning[0] = '\0';
            wanted.memory = line;
            plim_status_t status = plim__train_plan(&job, dataset, &training, &wanted, &plan);
            plim__job_deliver(&job);
            assert_true(status == PLIM_OK || line > minimum);
            assert_true(status == PLIM_OK || status == PLIM_ERR_BUDGET);
            const bool parts = status == PLIM_OK && plan.load.part_seeds > 0;
            wanted.memory = status == PLIM_OK ? named_line(warning) : named_line(plim_last_error());
            refused += status != PLIM_OK;
            cut += parts;
            if (status == PLIM_OK && !parts)
                continue;
            assert_true(wanted.memory > line);
            assert_ok(plim__train_plan(&job, dataset, &training, &wanted, &plan));
            assert_true(!parts || plan.load.part_seeds == 0);
        }
        plim_dataset_release(dataset);
        test_job_end(&job);
    }
    print_message("%d lines are refused, %d cut batches\n", refused, cut);
    assert_true(cut > 0);
}

/* A run that continues keeps its whole batches under lines under which a new run cuts them. */
static void a_continued_run_keeps_its_cut(void **state)
{
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim_dataset_t *dataset = from_shape(&job, 7);
    const plim_training_t training = training_of(7);
    plim__train_plan_t whole, plan;
    int kept = 0;
    assert_ok(plim__train_plan(&job, dataset, &training, NULL, &whole));
    for (int64_t line = whole.minimum; line < whole.total; line += MIB) {
        const plim_plan_params_t continued = {.memory = line,
                                              .part_nodes = whole.load.part_nodes,
                                              .part_edges = whole.load.part_edges,
                                              .no_advice = true};
        const bool cut = seeds_under(&job, dataset, &training, line, 0, &plan) < BATCH;
        assert_ok(plim__train_plan(&job, dataset, &training, &continued, &plan));
        assert_true(plan.total <= line);
        assert_true(cut || plan.load.part_seeds == 0);
        kept += cut && plan.load.part_seeds == 0;
    }
    assert_true(kept > 0);
    plim_dataset_release(dataset);
    test_job_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cut_is_the_same_in_any_process),
        cmocka_unit_test(the_cut_is_the_largest_that_fits),
        cmocka_unit_test(a_continued_run_keeps_its_cut),
        cmocka_unit_test(named_lines_are_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
