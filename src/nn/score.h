/* Metrics of a split, added up part by part: accuracy, ROC-AUC, MAE, RMSE, R2, cosine, hits@k, and
 * the loss. */
#ifndef PLIM_NN_SCORE_H
#define PLIM_NN_SCORE_H

#include "nn/hits.h"
#include "peers/peers.h"

#include <plimsoll/train.h>
#include <stdbool.h>

typedef struct plim__score plim__score_t;

/* Whether the metric measures distances from values, each column of values separately. */
static inline bool plim__score_measures(plim_metric_t metric)
{
    return metric == PLIM_METRIC_MAE || metric == PLIM_METRIC_RMSE || metric == PLIM_METRIC_R2;
}

/* ROC-AUC keeps 8 bytes for each of max_rows x columns values. Each share of a split is summed
 * alone, and the sums are added in the order of the share tree. */
size_t plim__score_estimate(plim_metric_t metric, int64_t max_rows, int64_t columns,
                            int64_t num_shares);
plim_status_t plim__score_create(plim_ledger_t *ledger, plim_metric_t metric, plim_loss_t loss,
                                 int64_t max_rows, int64_t columns, int64_t num_shares,
                                 plim__score_t **score_out);
void plim__score_destroy(plim__score_t *score);

/* From now on the value is hits@k against a table, which the score borrows. Labels are values. */
void plim__score_rank(plim__score_t *score, const plim__hits_t *hits);

void plim__score_reset(plim__score_t *score);

/* Adds the following rows to this share; at first, and after a reset, to share 0. */
void plim__score_share(plim__score_t *score, int64_t share);

/* `outputs` (rows, width) and the rows' labels as plim__loss takes them. Rows beyond
 * max_rows in all are ignored (a bug of the caller). */
void plim__score_add(plim__score_t *score, plim__team_t *team, int64_t rows, int64_t width,
                     const float *outputs, const void *labels);

/* Gathers what the other ranks have added to their shares (peers NULL: there are none). Errors of
 * plim__peers_all_gather. */
plim_status_t plim__score_gather(plim__score_t *score, plim__peers_t *peers);

/* NAN when nothing had a label (ROC-AUC: or only one class did). Ties count half. */
double plim__score_value(plim__score_t *score);
double plim__score_loss(const plim__score_t *score);

/* The errors of all columns together, then of each: (1 + columns). NAN unless the metric measures.
 */
void plim__score_errors(const plim__score_t *score, plim_errors_t *errors_out);

/* Whether a is a better value of the metric than b; anything is better than NAN. */
bool plim__score_better(plim_metric_t metric, double a, double b);

/* Index of the largest value, the first of equals. */
int64_t plim__largest_at(const float *values, int64_t width);

#endif
