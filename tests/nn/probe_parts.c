/*
 * Parts of src/nn by themselves, for comparison with PyTorch: numbers come by standard input
 * and go by standard output, as they lie in memory.
 *
 *     probe_parts optimiser KIND RATE MOMENTUM WEIGHT_DECAY CLIP COUNT STEPS
 *         value (COUNT), gradients (STEPS, COUNT) -> value
 *     probe_parts schedule KIND RATE EPOCHS PERIOD FACTOR
 *         -> rate (EPOCHS) f64
 *     probe_parts loss KIND ROWS WIDTH SCALE
 *         outputs (ROWS, WIDTH), labels -> sum f64, doutputs
 *     probe_parts finish NORM ACTIVATION TRAINING ROWS WIDTH
 *         y, dh (ROWS, WIDTH); bias, gamma, beta, running_mean, running_var (WIDTH)
 *         -> h, dy; dbias, dgamma, dbeta, running_mean, running_var
 */
#include "nn/epilogue.h"
#include "nn/loss.h"
#include "nn/optimiser.h"
#include "support/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *input(size_t count, size_t size)
{
    void *data = calloc(count + 1, size);
    if (data == NULL || fread(data, size, count, stdin) != count) {
        (void)fprintf(stderr, "probe_parts: short input\n");
        exit(1);
    }
    return data;
}

static void output(const void *data, size_t count, size_t size)
{
    if (fwrite(data, size, count, stdout) != count)
        exit(1);
}

static void probe_optimiser(plim__team_t *team, char **words)
{
    plim_optimiser_t optimiser = PLIM_OPTIMISER_INIT;
    optimiser.kind = (plim_optimiser_kind_t)atoi(words[0]);
    optimiser.rate = strtod(words[1], NULL);
    optimiser.momentum = strtod(words[2], NULL);
    optimiser.weight_decay = strtod(words[3], NULL);
    optimiser.clip_norm = strtod(words[4], NULL);
    const int64_t count = atoll(words[5]), steps = atoll(words[6]);
    float *moments = calloc((size_t)(2 * count), sizeof(float));
    plim__parameter_t parameter = {.count = count,
                                   .value = input((size_t)count, sizeof(float)),
                                   .moment = {moments, moments + count}};
    for (int64_t step = 1; step <= steps; step++) {
        parameter.gradient = input((size_t)count, sizeof(float));
        plim__optimiser_step(team, &optimiser, optimiser.rate, step, &parameter, 1);
        free(parameter.gradient);
    }
    output(parameter.value, (size_t)count, sizeof(float));
    free(parameter.value);
    free(moments);
}

static void probe_schedule(char **words)
{
    plim_optimiser_t optimiser = PLIM_OPTIMISER_INIT;
    optimiser.schedule = (plim_schedule_t)atoi(words[0]);
    optimiser.rate = strtod(words[1], NULL);
    const int64_t epochs = atoll(words[2]);
    optimiser.schedule_epochs = atoll(words[3]);
    optimiser.schedule_factor = strtod(words[4], NULL);
    for (int64_t epoch = 0; epoch < epochs; epoch++) {
        const double rate = plim__schedule_rate(&optimiser, epoch, epochs);
        output(&rate, 1, sizeof rate);
    }
}

static void probe_loss(plim__team_t *team, char **words)
{
    const plim_loss_t loss = (plim_loss_t)atoi(words[0]);
    const int64_t rows = atoll(words[1]), width = atoll(words[2]);
    const size_t count = (size_t)(rows * width);
    float *outputs = input(count, sizeof(float));
    void *labels = loss == PLIM_LOSS_CROSS_ENTROPY ? input((size_t)rows, sizeof(int64_t))
                                                   : input(count, sizeof(float));
    float *doutputs = calloc(count, sizeof(float));
    const double sum =
        plim__loss(team, loss, rows, width, outputs, labels, strtof(words[3], NULL), doutputs);
    output(&sum, 1, sizeof sum);
    output(doutputs, count, sizeof(float));
    free(outputs);
    free(labels);
    free(doutputs);
}

static void probe_finish(plim__team_t *team, char **words)
{
    plim__epilogue_t finish = {.norm = (plim_norm_t)atoi(words[0]),
                               .activation = (plim_activation_t)atoi(words[1]),
                               .training = atoi(words[2]) != 0,
                               .width = atoll(words[4])};
    const int64_t rows = atoll(words[3]);
    const size_t width = (size_t)finish.width, count = (size_t)rows * width;
    float *y = input(count, sizeof(float)), *dh = input(count, sizeof(float));
    float *learnt = input(3 * width, sizeof(float)), *running = input(2 * width, sizeof(float));
    float *h_data = calloc(count, sizeof(float)), *sums = calloc(3 * width, sizeof(float));
    finish.bias = learnt;
    finish.gamma = learnt + width;
    finish.beta = learnt + 2 * width;
    finish.running_mean = running;
    finish.running_var = running + width;
    void *kept = calloc(plim__epilogue_kept(&finish, rows) + 1, 1);
    void *scratch = calloc(plim__epilogue_scratch(&finish) + 1, 1);
    plim__matrix_t h = {h_data, rows, finish.width, finish.width, PLIM__F32};
    plim__matrix_t dy = {dh, rows, finish.width, finish.width, PLIM__F32};
    const plim__epilogue_gradients_t gradients = {sums, sums + width, sums + 2 * width};
    plim__epilogue_forward(team, &finish, y, NULL, &h, kept);
    if (finish.training)
        plim__epilogue_backward(team, &finish, &h, kept, dh, &dy, NULL, &gradients, scratch);
    output(h_data, count, sizeof(float));
    output(dh, count, sizeof(float));
    output(sums, 3 * width, sizeof(float));
    output(running, 2 * width, sizeof(float));
    void *all[] = {y, dh, learnt, running, h_data, sums, kept, scratch};
    for (int i = 0; i < 8; i++)
        free(all[i]);
}

int main(int argc, char **argv)
{
    plim_job_t job = test_job_make((int64_t)1 << 30, 1, PLIM_IO_AUTO);
    plim__team_t *team;
    const char *what = argc > 1 ? argv[1] : "";
    int status = 0;
    if (plim__team_create(job.ledger, 2, &team) != PLIM_OK)
        return 1;
    if (strcmp(what, "optimiser") == 0 && argc == 9)
        probe_optimiser(team, argv + 2);
    else if (strcmp(what, "schedule") == 0 && argc == 7)
        probe_schedule(argv + 2);
    else if (strcmp(what, "loss") == 0 && argc == 6)
        probe_loss(team, argv + 2);
    else if (strcmp(what, "finish") == 0 && argc == 7)
        probe_finish(team, argv + 2);
    else
        status = 2;
    plim__team_destroy(team);
    test_job_end(&job);
    return status;
}
