#include "nn/optimiser.h"

#include "base/check.h"
#include "nn/sum.h"
#include "nn/vector.h"

#include <math.h>
#include <string.h>

/* Values that one thread takes at a time. */
#define TASK_VALUES 16384

/* Tasks of the sum of one tensor's squares; they depend on its size alone. */
#define SUM_TASKS 64

int plim__optimiser_moments(const plim_optimiser_t *optimiser)
{
    if (optimiser->kind == PLIM_SGD)
        return optimiser->momentum != 0 ? 1 : 0;
    return 2;
}

double plim__schedule_rate(const plim_optimiser_t *optimiser, int64_t epoch, int64_t epochs)
{
    const double pi = 3.14159265358979323846;
    if (optimiser->schedule == PLIM_SCHEDULE_COSINE && epochs > 0)
        return optimiser->rate * (1 + cos(pi * (double)epoch / (double)epochs)) / 2;
    if (optimiser->schedule == PLIM_SCHEDULE_STEP && optimiser->schedule_epochs > 0) {
        const int64_t times = epoch / optimiser->schedule_epochs;
        return optimiser->rate * pow(optimiser->schedule_factor, (double)times);
    }
    return optimiser->rate;
}

typedef struct norm {
    const float *values;
    int64_t count, task_values;
    double sums[SUM_TASKS];
} norm_t;

PLIM__KERNEL void square_sum_body(const float *x, int64_t count, double *sum_out)
{
    *sum_out = plim__sum_squares(x, count);
}

PLIM__VECTORISED(square_sum, (const float *x, int64_t count, double *sum_out), (x, count, sum_out))

static void norm_task(void *context, int worker, int64_t task)
{
    (void)worker;
    norm_t *norm = context;
    const int64_t begin = task * norm->task_values;
    square_sum(norm->values + begin, plim__min_i64(norm->task_values, norm->count - begin),
               &norm->sums[task]);
}

double plim__gradient_norm(plim__team_t *team, const plim__parameter_t *parameters, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++) {
        const plim__parameter_t *parameter = &parameters[i];
        if (parameter->gradient == NULL || parameter->count == 0)
            continue;
        norm_t norm = {.values = parameter->gradient, .count = parameter->count};
        norm.task_values = plim__max_i64(TASK_VALUES, (norm.count - 1) / SUM_TASKS + 1);
        const int64_t tasks = (norm.count - 1) / norm.task_values + 1;
        plim__team_run(team, tasks, norm.task_values / 4, norm_task, &norm);
        for (int64_t task = 0; task < tasks; task++)
            sum += norm.sums[task];
    }
    return sqrt(sum);
}

/* One tensor's step; factors are rounded to float as in PyTorch. */
typedef struct step {
    plim_optimiser_kind_t kind;
    plim__parameter_t *parameter;
    float clip;   /* 1: no clipping */
    float decay;  /* added share of the value (Adam, SGD) */
    float shrink; /* the value's factor (AdamW) */
    float momentum;
    float share1, share2;      /* 1 - beta */
    float beta2;               /* of the second moment */
    float correction, epsilon; /* sqrt(1 - beta2^step) */
    float size;                /* -rate / (1 - beta1^step); SGD: -rate */
} step_t;

PLIM__KERNEL void adam_body(const step_t *step, int64_t begin, int64_t end)
{
    float *restrict value = step->parameter->value;
    float *restrict gradient = step->parameter->gradient;
    float *restrict first = step->parameter->moment[0];
    float *restrict second = step->parameter->moment[1];
    const step_t s = *step;
    for (int64_t i = begin; i < end; i++) {
        const float shrunk = value[i] * s.shrink;
        const float g = gradient[i] * s.clip + shrunk * s.decay;
        first[i] = first[i] + s.share1 * (g - first[i]);
        second[i] = second[i] * s.beta2 + s.share2 * g * g;
        const float below = sqrtf(second[i]) / s.correction + s.epsilon;
        value[i] = shrunk + s.size * first[i] / below;
        gradient[i] = 0.0f;
    }
}

PLIM__VECTORISED(adam, (const step_t *step, int64_t begin, int64_t end), (step, begin, end))

PLIM__KERNEL void sgd_body(const step_t *step, int64_t begin, int64_t end)
{
    float *restrict value = step->parameter->value;
    float *restrict gradient = step->parameter->gradient;
    float *restrict moment = step->parameter->moment[0];
    const step_t s = *step;
    if (s.momentum == 0.0f || moment == NULL) {
        for (int64_t i = begin; i < end; i++) {
            value[i] += s.size * (gradient[i] * s.clip + value[i] * s.decay);
            gradient[i] = 0.0f;
        }
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        moment[i] = moment[i] * s.momentum + (gradient[i] * s.clip + value[i] * s.decay);
        value[i] += s.size * moment[i];
        gradient[i] = 0.0f;
    }
}

PLIM__VECTORISED(sgd, (const step_t *step, int64_t begin, int64_t end), (step, begin, end))

static void step_task(void *context, int worker, int64_t task)
{
    (void)worker;
    const step_t *step = context;
    const int64_t begin = task * TASK_VALUES;
    const int64_t end = plim__min_i64(step->parameter->count, begin + TASK_VALUES);
    if (step->kind == PLIM_SGD)
        sgd(step, begin, end);
    else
        adam(step, begin, end);
}

static step_t step_of(const plim_optimiser_t *optimiser, double rate, int64_t number)
{
    step_t step = {.kind = optimiser->kind, .clip = 1.0f, .shrink = 1.0f};
    if (optimiser->kind == PLIM_ADAMW)
        step.shrink = (float)(1 - rate * optimiser->weight_decay);
    else
        step.decay = (float)optimiser->weight_decay;
    if (optimiser->kind == PLIM_SGD) {
        step.momentum = (float)optimiser->momentum;
        step.size = (float)-rate;
        return step;
    }
    step.share1 = (float)(1 - optimiser->beta1);
    step.share2 = (float)(1 - optimiser->beta2);
    step.beta2 = (float)optimiser->beta2;
    step.epsilon = (float)optimiser->epsilon;
    step.correction = (float)sqrt(1 - pow(optimiser->beta2, (double)number));
    step.size = (float)-(rate / (1 - pow(optimiser->beta1, (double)number)));
    return step;
}

void plim__optimiser_step(plim__team_t *team, const plim_optimiser_t *optimiser, double rate,
                          int64_t step, plim__parameter_t *parameters, int count)
{
    step_t each = step_of(optimiser, rate, step);
    if (optimiser->clip_norm > 0) {
        const double norm = plim__gradient_norm(team, parameters, count);
        const double clip = optimiser->clip_norm / (norm + 1e-6);
        if (clip < 1)
            each.clip = (float)clip;
    }
    for (int i = 0; i < count; i++) {
        if (parameters[i].gradient == NULL || parameters[i].count == 0)
            continue;
        each.parameter = &parameters[i];
        const int64_t tasks = (parameters[i].count - 1) / TASK_VALUES + 1;
        plim__team_run(team, tasks, plim__min_i64(parameters[i].count, TASK_VALUES) * 2 / 3,
                       step_task, &each);
    }
}
