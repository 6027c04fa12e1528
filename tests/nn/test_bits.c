/*
 * The same bits from any number of threads: every model, in both precisions, over widths from 1 to
 * 5,000, with each instruction set that oneDNN can be held to. Steps of training, whole: forward,
 * loss, back, optimiser. Combinations are sampled; `nn_test_bits all` tries each of them, in
 * minutes.
 */
/* labels: plain onednn */
#include "support/batches.h"
#include "support/harness.h"
#include "support/wrapped.h"

#include "nn/loss.h"
#include "nn/model.h"
#include "nn/optimiser.h"
#include "nn/vector.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUTS 7
#define SEEDS_MOST 900
#define STEPS 2

static const int64_t widths[] = {1, 2, 15, 33, 64, 100, 129, 300, 640, 1000, 1433, 2049, 5000};
#define NUM_WIDTHS (int)(sizeof widths / sizeof widths[0])

static const plim_model_t models[] = {
    {.kind = PLIM_GCN, .num_layers = 2, .dropout = 0.3f, .activation = PLIM_RELU},
    {.kind = PLIM_SAGE, .num_layers = 2, .norm = PLIM_NORM_LAYER, .activation = PLIM_RELU},
    {.kind = PLIM_SAGE, .num_layers = 3, .aggregation = PLIM_MAX, .activation = PLIM_ELU},
    {.kind = PLIM_GAT, .num_layers = 2, .heads = 2, .dropout = 0.2f, .activation = PLIM_ELU},
    {.kind = PLIM_GIN, .num_layers = 2, .norm = PLIM_NORM_BATCH, .activation = PLIM_RELU},
    {.kind = PLIM_MLP, .num_layers = 3, .residual = true, .activation = PLIM_RELU},
    {.kind = PLIM_GINE, .num_layers = 2, .activation = PLIM_RELU},
    {.kind = PLIM_GATV2, .num_layers = 2, .heads = 2, .dropout = 0.2f, .activation = PLIM_ELU},
    {.kind = PLIM_RGCN, .num_layers = 2, .dropout = 0.2f, .activation = PLIM_RELU},
};
#define NUM_MODELS (int)(sizeof models / sizeof models[0])

typedef struct setting {
    plim_model_t model;
    int64_t num_features;
} setting_t;

/* Of a combination: hidden widths are odd, even, small and large alike. */
static setting_t setting_of(int model, int width, bool bfloat16)
{
    static const int64_t hidden[] = {2, 18, 32, 70, 256};
    setting_t setting = {models[model], widths[width]};
    setting.model.hidden = hidden[(model + width) % 5];
    setting.model.precision = bfloat16 ? PLIM_PRECISION_BF16 : PLIM_PRECISION_F32;
    return setting;
}

static plim__model_params_t params_of(const setting_t *setting, const plim_batch_t *batch,
                                      int threads)
{
    const int layers = setting->model.num_layers;
    plim__model_params_t params = {.model = setting->model,
                                   .num_features = setting->num_features,
                                   .num_outputs = OUTPUTS,
                                   .row_type = PLIM_F32,
                                   .training = true,
                                   .moments = 2,
                                   .workers = threads,
                                   .max_src = batch->num_nodes,
                                   .max_seeds = batch->num_seeds};
    if (setting->model.kind >= PLIM_GINE)
        params.columns = test_columns_of(setting->model.kind, PLIM_F32);
    for (int i = 0; i < layers; i++)
        params.max_dst[i] = batch->blocks[layers - 1 - i].num_dst;
    for (int i = 0; i < batch->num_blocks; i++)
        params.max_edges += batch->blocks[i].num_edges;
    return params;
}

static void take_step(plim__model_t *model, plim__team_t *team, const test_batch_t *made,
                      int64_t step, float *doutputs)
{
    const plim_batch_t *batch = &made->batch;
    const plim__pass_t pass = {
        .training = true, .seed = 9, .step = step, .columns = &made->columns};
    const plim_optimiser_t optimiser = PLIM_OPTIMISER_INIT;
    static int64_t labels[SEEDS_MOST];
    plim__model_output_t output;
    int count;
    plim__parameter_t *parameters = plim__model_parameters(model, &count);
    for (int64_t i = 0; i < batch->num_seeds; i++)
        labels[i] = (i * 5 + step) % OUTPUTS;
    assert_ok(plim__model_forward(model, batch, &pass, &output));
    (void)plim__loss(team, PLIM_LOSS_CROSS_ENTROPY, batch->num_seeds, OUTPUTS, output.outputs,
                     labels, 1.0f / (float)batch->num_seeds, doutputs);
    assert_ok(plim__model_backward(model, batch, doutputs));
    plim__model_gather_gradients(model);
    plim__optimiser_step(team, &optimiser, 0.01, step + 1, parameters, count);
    plim__model_changed(model);
}

/* All weights after some steps, as one array that the caller frees. */
static float *train(const setting_t *setting, const test_batch_t *batch, int threads,
                    int64_t *count_out)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, threads, PLIM_IO_AUTO);
    const plim__model_params_t params = params_of(setting, &batch->batch, threads);
    plim__team_t *team;
    plim__model_t *model;
    static float doutputs[SEEDS_MOST * OUTPUTS];
    int count;
    int64_t total = 0;
    assert_ok(plim__team_create(job.ledger, threads, &team));
    assert_ok(plim__model_create(job.ledger, team, &params, &model));
    plim__model_initialise(model, 3);
    for (int64_t step = 0; step < STEPS; step++)
        take_step(model, team, batch, step, doutputs);
    const plim__parameter_t *parameters = plim__model_parameters(model, &count);
    for (int i = 0; i < count; i++)
        total += parameters[i].count;
    float *all = malloc((size_t)total * sizeof *all);
    assert_non_null(all);
    float *at = all;
    for (int i = 0; i < count; at += parameters[i++].count)
        memcpy(at, parameters[i].value, (size_t)parameters[i].count * sizeof *at);
    plim__model_destroy(model);
    plim__team_destroy(team);
    test_job_end(&job);
    *count_out = total;
    return all;
}

static void check(const setting_t *setting, const int *threads, int num_threads)
{
    test_batch_shape_t shape = {.num_nodes = 5000,
                                .num_features = setting->num_features,
                                .row_type = PLIM_F32,
                                .num_hops = setting->model.num_layers};
    test_batch_t batch;
    int64_t count;
    for (int i = 0; i < PLIM_HOPS_MAX; i++)
        shape.fanout[i] = 4;
    /* Several lanes of rows, or several tiles. */
    test_batch_make(&shape, 0, setting->num_features <= 129 ? SEEDS_MOST : 120, &batch);
    float *first = train(setting, &batch, 1, &count);
    for (int i = 0; i < num_threads; i++) {
        float *other = train(setting, &batch, threads[i], &count);
        if (memcmp(first, other, (size_t)count * sizeof *first) != 0)
            fail_msg("model %d of %lld features, hidden %lld, %s: %d threads give other bits",
                     (int)setting->model.kind, (long long)setting->num_features,
                     (long long)setting->model.hidden,
                     setting->model.precision == PLIM_PRECISION_BF16 ? "bf16" : "f32", threads[i]);
        free(other);
    }
    free(first);
    test_batch_free(&batch);
}

static bool all; /* whether the processes of every_instruction_set try each combination too */

static void every_combination(void **state)
{
    (void)state;
    const int threads[] = {2, 3, 4, 5, 6, 7, 8};
    for (int number = 0; number < NUM_MODELS * NUM_WIDTHS * 2; number++) {
        const setting_t setting =
            setting_of(number / 2 / NUM_WIDTHS, number / 2 % NUM_WIDTHS, number % 2 == 1);
        check(&setting, threads, 7);
    }
}

/* Each model with each width in one of the precisions, by one of 2 … 8 threads. */
static void all_widths_and_models(void **state)
{
    (void)state;
    for (int model = 0; model < NUM_MODELS; model++)
        for (int width = 0; width < NUM_WIDTHS; width++) {
            const int number = model * NUM_WIDTHS + width;
            if (TEST_SANITIZED && (widths[width] > 300 || number % 3 != 0))
                continue; /* minutes */
            const setting_t setting = setting_of(model, width, number % 2 == 1);
            const int threads[] = {2 + number % 7};
            check(&setting, threads, 1);
        }
}

/* Less of the same for a process with fewer instructions. */
static void some_widths_and_models(void **state)
{
    (void)state;
    for (int number = 0; number < (TEST_SANITIZED ? 5 : NUM_WIDTHS); number++) {
        const setting_t setting =
            setting_of(number % NUM_MODELS, number % NUM_WIDTHS, number % 4 < 2);
        const int threads[] = {2 + number % 7};
        check(&setting, threads, 1);
    }
}

/* oneDNN reads its limit once, so a process of its own is asked. */
static void every_instruction_set(void **state)
{
    (void)state;
    static const char *const sets[] = {"SSE41", "AVX2", "AVX512_CORE"};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        if (TEST_SANITIZED && i != 1)
            continue;
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            (void)setenv("ONEDNN_MAX_CPU_ISA", sets[i], 1);
            (void)execl("/proc/self/exe", "test_bits", sets[i], all ? "all" : NULL, (char *)NULL);
            _exit(1);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail_msg("threads show on %s (wait status %d)", sets[i], status);
    }
}

int main(int argc, char **argv)
{
    all = argc > 1 && strcmp(argv[argc - 1], "all") == 0;
    const struct CMUnitTest every = cmocka_unit_test(every_combination);
    const struct CMUnitTest tests[] = {
        all ? every : (struct CMUnitTest)cmocka_unit_test(all_widths_and_models),
        cmocka_unit_test(every_instruction_set),
    };
    const struct CMUnitTest some[] = {
        all ? every : (struct CMUnitTest)cmocka_unit_test(some_widths_and_models)};
    if (argc == (all ? 2 : 1))
        return cmocka_run_group_tests(tests, NULL, NULL);
    test_vector_limit(strcmp(argv[1], "SSE41") == 0  ? PLIM__VECTOR_BASELINE
                      : strcmp(argv[1], "AVX2") == 0 ? PLIM__VECTOR_AVX2
                                                     : PLIM__VECTOR_AVX512);
    return cmocka_run_group_tests(some, NULL, NULL);
}
