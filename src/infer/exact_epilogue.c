#include "infer/exact_epilogue.h"

#include "nn/epilogue.h"

static plim__epilogue_t make(const plim__exact_epilogue_t *finish)
{
    return (plim__epilogue_t){.width = finish->width,
                              .bias = finish->bias,
                              .norm = finish->norm,
                              .gamma = finish->gamma,
                              .beta = finish->beta,
                              .running_mean = (float *)(uintptr_t)finish->mean, /* only read */
                              .running_var = (float *)(uintptr_t)finish->variance,
                              .activation = finish->activation};
}

void plim__exact_epilogue_rows(plim__team_t *team, const plim__exact_epilogue_t *finish,
                               int64_t rows, float *y, const float *residual, void *kept)
{
    const plim__epilogue_t made = make(finish);
    plim__matrix_t h = {y, rows, finish->width, finish->width, PLIM__F32};
    const plim__matrix_t own = {(float *)(uintptr_t)residual, rows, finish->width, finish->width,
                                PLIM__F32};
    plim__epilogue_forward(team, &made, y, residual != NULL ? &own : NULL, &h, kept);
}
