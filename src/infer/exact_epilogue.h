/* nn/epilogue.h for rows that are not in training. */
#ifndef PLIM_INFER_EXACT_EPILOGUE_H
#define PLIM_INFER_EXACT_EPILOGUE_H

#include "infer/exact_layer.h"
#include "nn/team.h"

/* y (rows, width) in place: bias, norm, then `residual` (rows, width; NULL: none), activation.
 * plim__exact_epilogue_bytes are needed at `kept`. */
void plim__exact_epilogue_rows(plim__team_t *team, const plim__exact_epilogue_t *finish,
                               int64_t rows, float *y, const float *residual, void *kept);

#endif
