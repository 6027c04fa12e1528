/* nn/finish.h for rows that are not in training. */
#ifndef PLIM_TRAIN_EXACT_FINISH_H
#define PLIM_TRAIN_EXACT_FINISH_H

#include "train/exact_layer.h"

/* What plim__exact_finish_rows needs at `kept` for so many rows. */
size_t plim__exact_finish_bytes(const plim__exact_finish_t *finish, int64_t rows);

/* y (rows, width) in place: bias, norm, then `residual` (rows, width; NULL: none), activation. */
void plim__exact_finish_rows(plim__team_t *team, const plim__exact_finish_t *finish, int64_t rows,
                             float *y, const float *residual, void *kept);

#endif
