/* Optimisers against their definitions in double precision; schedules against PyTorch's words. */
#include "nn/optimiser.h"

#include "support/harness.h"
#include "support/nn.h"

#include <math.h>
#include <string.h>

enum { COUNT = 37, STEPS = 60 };

typedef struct tensor {
    float value[COUNT], gradient[COUNT], moments[2][COUNT];
} tensor_t;

static plim__parameter_t parameter_of(tensor_t *tensor)
{
    return (plim__parameter_t){.num_dims = 1,
                               .shape = {COUNT},
                               .count = COUNT,
                               .value = tensor->value,
                               .gradient = tensor->gradient,
                               .moment = {tensor->moments[0], tensor->moments[1]}};
}

/* One value's step as the papers have it. */
static void reference(const plim_optimiser_t *o, int64_t step, double g, double *x, double *m,
                      double *v)
{
    if (o->kind == PLIM_ADAMW)
        *x -= o->rate * o->weight_decay * *x;
    else
        g += o->weight_decay * *x;
    if (o->kind == PLIM_SGD) {
        *m = o->momentum * *m + g;
        *x -= o->rate * *m;
        return;
    }
    *m = o->beta1 * *m + (1 - o->beta1) * g;
    *v = o->beta2 * *v + (1 - o->beta2) * g * g;
    const double mean = *m / (1 - pow(o->beta1, (double)step));
    const double square = *v / (1 - pow(o->beta2, (double)step));
    *x -= o->rate * mean / (sqrt(square) + o->epsilon);
}

static void check(plim__team_t *team, const plim_optimiser_t *optimiser)
{
    tensor_t tensors[2];
    double x[2][COUNT], m[2][COUNT] = {{0}}, v[2][COUNT] = {{0}}, g[2][COUNT];
    float buffer = 3.0f;
    memset(tensors, 0, sizeof tensors);
    plim__parameter_t parameters[3] = {parameter_of(&tensors[0]),
                                       {.count = 1, .value = &buffer}, /* is not learnt */
                                       parameter_of(&tensors[1])};
    for (int t = 0; t < 2; t++) {
        test_numbers((uint64_t)t, COUNT, 1.0f, tensors[t].value);
        for (int i = 0; i < COUNT; i++)
            x[t][i] = (double)tensors[t].value[i];
    }
    for (int64_t step = 1; step <= STEPS; step++) {
        double norm = 0;
        for (int t = 0; t < 2; t++) {
            test_numbers((uint64_t)(100 * step + t), COUNT, 1.0f, tensors[t].gradient);
            for (int i = 0; i < COUNT; i++) {
                g[t][i] = (double)tensors[t].gradient[i];
                norm += g[t][i] * g[t][i];
            }
        }
        norm = sqrt(norm);
        test_close(plim__gradient_norm(team, parameters, 3), norm, 1e-12, "norm", step);
        const double clip = optimiser->clip_norm / (norm + 1e-6);
        for (int i = 0; i < 2 * COUNT; i++)
            reference(optimiser, step, g[i / COUNT][i % COUNT] * (clip > 0 ? fmin(clip, 1) : 1),
                      &x[i / COUNT][i % COUNT], &m[i / COUNT][i % COUNT], &v[i / COUNT][i % COUNT]);
        plim__optimiser_step(team, optimiser, optimiser->rate, step, parameters, 3);
        for (int i = 0; i < 2 * COUNT; i++) {
            test_close((double)tensors[i / COUNT].value[i % COUNT], x[i / COUNT][i % COUNT], 2e-6,
                       "value", i);
            assert_true(tensors[i / COUNT].gradient[i % COUNT] == 0);
        }
    }
    assert_true(buffer == 3.0f);
}

static void every_kind_does_as_defined(void **state)
{
    for (int kind = PLIM_ADAM; kind <= PLIM_SGD; kind++) {
        for (int options = 0; options < 8; options++) {
            plim_optimiser_t optimiser = PLIM_OPTIMISER_INIT;
            optimiser.kind = (plim_optimiser_kind_t)kind;
            optimiser.momentum = options & 1 ? 0.9 : 0.0;
            optimiser.weight_decay = options & 2 ? 0.05 : 0.0;
            optimiser.clip_norm = options & 4 ? 1.5 : 0.0;
            check(*state, &optimiser);
        }
    }
}

static void moments_are_counted(void **state)
{
    (void)state;
    plim_optimiser_t optimiser = PLIM_OPTIMISER_INIT;
    assert_int_equal(plim__optimiser_moments(&optimiser), 2);
    optimiser.kind = PLIM_ADAMW;
    assert_int_equal(plim__optimiser_moments(&optimiser), 2);
    optimiser.kind = PLIM_SGD;
    assert_int_equal(plim__optimiser_moments(&optimiser), 0);
    optimiser.momentum = 0.9;
    assert_int_equal(plim__optimiser_moments(&optimiser), 1);
}

static void schedules(void **state)
{
    (void)state;
    plim_optimiser_t optimiser = PLIM_OPTIMISER_INIT;
    optimiser.rate = 0.4;
    assert_true(plim__schedule_rate(&optimiser, 7, 10) == 0.4);
    optimiser.schedule = PLIM_SCHEDULE_COSINE;
    assert_true(plim__schedule_rate(&optimiser, 0, 10) == 0.4);
    test_close(plim__schedule_rate(&optimiser, 5, 10), 0.2, 1e-15, "cosine", 5);
    test_close(plim__schedule_rate(&optimiser, 10, 10), 0.0, 1e-15, "cosine", 10);
    optimiser.schedule = PLIM_SCHEDULE_STEP;
    optimiser.schedule_epochs = 3;
    optimiser.schedule_factor = 0.5;
    assert_true(plim__schedule_rate(&optimiser, 2, 10) == 0.4);
    assert_true(plim__schedule_rate(&optimiser, 3, 10) == 0.2);
    assert_true(plim__schedule_rate(&optimiser, 8, 10) == 0.1);
    optimiser.schedule_epochs = 0; /* never */
    assert_true(plim__schedule_rate(&optimiser, 8, 10) == 0.4);
}

static void moments_without_gradient_are_not_subnormal(void **state)
{
    tensor_t tensor;
    memset(&tensor, 0, sizeof tensor);
    plim__parameter_t parameter = parameter_of(&tensor);
    plim_optimiser_t optimiser = PLIM_OPTIMISER_INIT;
    test_numbers(1, COUNT, 1.0f, tensor.gradient);
    for (int64_t step = 1; step <= 1500; step++)
        plim__optimiser_step(*state, &optimiser, optimiser.rate, step, &parameter, 1);
    for (int i = 0; i < COUNT; i++) {
        assert_true(fpclassify(tensor.moments[0][i]) != FP_SUBNORMAL); /* which is slow */
        assert_true(fabsf(tensor.moments[0][i]) < 1e-36f);
    }
}

enum { LARGE = 70001 };

static void compute_bits(void *context, plim__team_t *team, void *out)
{
    const plim_optimiser_t *optimiser = context;
    static float gradient[LARGE];
    float *value = out;
    plim__parameter_t parameter = {.count = LARGE,
                                   .value = value,
                                   .gradient = gradient,
                                   .moment = {value + LARGE, value + LARGE + LARGE}};
    test_numbers(1, LARGE, 1.0f, value);
    for (int64_t step = 1; step <= 3; step++) {
        test_numbers((uint64_t)step, LARGE, 1.0f, gradient);
        plim__optimiser_step(team, optimiser, optimiser->rate, step, &parameter, 1);
    }
}

static void any_team_and_processor_give_the_same_bits(void **state)
{
    (void)state;
    for (int kind = PLIM_ADAM; kind <= PLIM_SGD; kind++) {
        plim_optimiser_t optimiser = PLIM_OPTIMISER_INIT;
        optimiser.kind = (plim_optimiser_kind_t)kind;
        optimiser.momentum = 0.9;
        optimiser.weight_decay = 0.01;
        optimiser.clip_norm = 1.0;
        test_same_bits(compute_bits, &optimiser, sizeof(float) * 3 * LARGE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_does_as_defined),
        cmocka_unit_test(moments_are_counted),
        cmocka_unit_test(schedules),
        cmocka_unit_test(moments_without_gradient_are_not_subnormal),
        cmocka_unit_test(any_team_and_processor_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, test_team_set_up, test_team_tear_down);
}
