/*
 * ROC-AUC is exact: it keeps every score in a 64-bit key that sorts like the score and ends in the
 * label, so that ties are adjacent. Memory: one key a value, and a second copy of one column for
 * sorting.
 */
#include "nn/score.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/radix.h"
#include "mem/arena.h"
#include "nn/loss.h"
#include "peers/share_tree.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define KEY_BITS 33

/* Sums over the rows of a share. */
typedef struct sums {
    double loss;
    double distance;  /* MAE, RMSE, cosine */
    int64_t known;    /* labels */
    int64_t right;    /* accuracy, hits@k */
    int64_t compared; /* cosine, hits@k: rows with known values */
} sums_t;

/* Sums over a column of values in the rows of a share. Means and squared distances from them are
 * added without cancellation (Chan, Golub, LeVeque). */
typedef struct column_sums {
    int64_t known;
    double distance, squares; /* of outputs from values */
    double mean, spread;      /* of values, and the sum of their squared distances from it */
} column_sums_t;

struct plim__score {
    plim__arena_t arena;
    plim_metric_t metric;
    plim_loss_t loss;
    int64_t max_rows, columns;
    int64_t num_shares;
    int64_t rows;             /* added so far */
    sums_t *sums;             /* (num_shares) */
    column_sums_t *errors;    /* (num_shares, columns) if the metric measures, else NULL */
    int64_t share;            /* that rows are added to */
    const plim__hits_t *hits; /* NULL: the metric; else hits@k */
    uint64_t *keys;           /* (columns, max_rows) */
    uint64_t *sort_scratch;   /* (max_rows) */
    int64_t *counts;          /* (columns) keys so far */
    /* Of a gathering (num_shares): */
    size_t *sizes;
    int64_t *rank_counts;
};

static void lay_out(plim__arena_t *arena, void *object)
{
    plim__score_t *score = object;
    const size_t rows = (size_t)plim__max_i64(score->max_rows, 1);
    const size_t columns = (size_t)score->columns;
    score->sums = plim__arena_carve(arena, (size_t)score->num_shares, sizeof *score->sums, 1);
    score->sizes = plim__arena_carve(arena, (size_t)score->num_shares, sizeof *score->sizes, 1);
    score->rank_counts =
        plim__arena_carve(arena, (size_t)score->num_shares, sizeof *score->rank_counts, 1);
    if (plim__score_measures(score->metric))
        score->errors =
            plim__arena_carve(arena, plim__mul_saturating_size((size_t)score->num_shares, columns),
                              sizeof *score->errors, 1);
    if (score->metric != PLIM_METRIC_ROC_AUC)
        return;
    score->keys =
        plim__arena_carve(arena, plim__mul_saturating_size(rows, columns), sizeof *score->keys, 1);
    score->sort_scratch = plim__arena_carve(arena, rows, sizeof *score->sort_scratch, 1);
    score->counts = plim__arena_carve(arena, columns, sizeof *score->counts, 1);
}

size_t plim__score_estimate(plim_metric_t metric, int64_t max_rows, int64_t columns,
                            int64_t num_shares)
{
    plim__score_t draft = {.metric = metric,
                           .max_rows = max_rows,
                           .columns = plim__max_i64(columns, 1),
                           .num_shares = num_shares};
    return plim__object_bytes(lay_out, &draft, sizeof draft);
}

plim_status_t plim__score_create(plim_ledger_t *ledger, plim_metric_t metric, plim_loss_t loss,
                                 int64_t max_rows, int64_t columns, int64_t num_shares,
                                 plim__score_t **score_out)
{
    /* Cross entropy ranks by the difference of two logits, which is one column. */
    plim__score_t draft = {.metric = metric,
                           .loss = loss,
                           .max_rows = max_rows,
                           .num_shares = num_shares,
                           .columns =
                               loss == PLIM_LOSS_CROSS_ENTROPY ? 1 : plim__max_i64(columns, 1)};
    PLIM_TRY(plim__object_create(ledger, "evaluation", lay_out, &draft, sizeof draft, &draft.arena,
                                 score_out));
    plim__arena_touch(&(*score_out)->arena);
    return PLIM_OK;
}

void plim__score_destroy(plim__score_t *score)
{
    if (score != NULL)
        plim__arena_destroy(&score->arena);
}

void plim__score_rank(plim__score_t *score, const plim__hits_t *hits)
{
    score->hits = hits;
    score->metric = PLIM_METRIC_RMSE; /* counts nothing in `right` and `compared` */
}

void plim__score_reset(plim__score_t *score)
{
    score->rows = score->share = 0;
    memset(score->sums, 0, (size_t)score->num_shares * sizeof *score->sums);
    if (score->errors != NULL)
        memset(score->errors, 0,
               (size_t)(score->num_shares * score->columns) * sizeof *score->errors);
    if (score->counts != NULL)
        memset(score->counts, 0, (size_t)score->columns * sizeof *score->counts);
}

void plim__score_share(plim__score_t *score, int64_t share)
{
    score->share = share;
}

static void keep(plim__score_t *score, int64_t column, float value, bool positive)
{
    uint32_t bits;
    value += 0.0f; /* no negative zero: it ties with zero */
    memcpy(&bits, &value, sizeof bits);
    bits = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    uint64_t *keys = score->keys + column * score->max_rows;
    keys[score->counts[column]++] = (uint64_t)bits << 1 | (positive ? 1u : 0u);
}

int64_t plim__largest_at(const float *x, int64_t width)
{
    int64_t at = 0;
    for (int64_t i = 1; i < width; i++)
        if (x[i] > x[at])
            at = i;
    return at;
}

static void add_classes(plim__score_t *score, sums_t *sums, int64_t rows, int64_t width,
                        const float *outputs, const int64_t *classes)
{
    for (int64_t row = 0; row < rows; row++) {
        const float *x = outputs + row * width;
        if (classes[row] < 0 || classes[row] >= width)
            continue;
        sums->known++;
        if (score->metric == PLIM_METRIC_ACCURACY)
            sums->right += plim__largest_at(x, width) == classes[row];
        else if (score->metric == PLIM_METRIC_ROC_AUC && width == 2)
            keep(score, 0, x[1] - x[0], classes[row] == 1);
    }
}

static void add_error(column_sums_t *column, double distance, double label)
{
    const double away = label - column->mean;
    column->known++;
    column->distance += fabs(distance);
    column->squares += distance * distance;
    column->mean += away / (double)column->known;
    column->spread += away * (label - column->mean);
}

static void add_value(plim__score_t *score, sums_t *sums, int64_t column, float output, float label)
{
    const double distance = (double)output - (double)label;
    sums->known++;
    if (score->errors != NULL && column < score->columns)
        add_error(&score->errors[score->share * score->columns + column], distance, (double)label);
    switch (score->metric) {
    case PLIM_METRIC_ROC_AUC:
        if (column < score->columns)
            keep(score, column, output, label > 0.5f);
        break;
    case PLIM_METRIC_ACCURACY: /* of yes and no: the sign of BCE's logit */
        sums->right += (output > 0.0f) == (label > 0.5f);
        break;
    case PLIM_METRIC_MAE:
        sums->distance += fabs(distance);
        break;
    case PLIM_METRIC_COSINE: /* of rows */
        break;
    default:
        sums->distance += distance * distance;
    }
}

/* Adds the cosine of a row's known values; 0 if one of the two has no length. */
static void add_cosine(sums_t *sums, int64_t width, const float *outputs, const float *labels)
{
    double product = 0, output = 0, label = 0;
    int64_t known = 0;
    for (int64_t i = 0; i < width; i++) {
        if (isnan(labels[i]))
            continue;
        product += (double)outputs[i] * (double)labels[i];
        output += (double)outputs[i] * (double)outputs[i];
        label += (double)labels[i] * (double)labels[i];
        known++;
    }
    if (known == 0)
        return;
    sums->compared++;
    if (output * label != 0)
        sums->distance += product / (sqrt(output) * sqrt(label));
}

static void add_values(plim__score_t *score, sums_t *sums, int64_t rows, int64_t width,
                       const float *outputs, const float *labels)
{
    for (int64_t i = 0; i < rows * width; i++)
        if (!isnan(labels[i]))
            add_value(score, sums, i % width, outputs[i], labels[i]);
    for (int64_t row = 0; row < rows && score->metric == PLIM_METRIC_COSINE; row++)
        add_cosine(sums, width, outputs + row * width, labels + row * width);
}

static void add_hits(const plim__score_t *score, sums_t *sums, plim__team_t *team, int64_t rows,
                     const float *outputs, const float *labels)
{
    int64_t compared;
    sums->right += plim__hits_count(score->hits, team, rows, outputs, labels, &compared);
    sums->compared += compared;
}

/* Row by row, so that sums do not depend on how many rows come at once. */
static void add_losses(const plim__score_t *score, sums_t *sums, plim__team_t *team, int64_t rows,
                       int64_t width, const float *outputs, const void *labels)
{
    const size_t label =
        score->loss == PLIM_LOSS_CROSS_ENTROPY ? sizeof(int64_t) : (size_t)width * sizeof(float);
    for (int64_t row = 0; row < rows; row++)
        sums->loss += plim__loss(team, score->loss, 1, width, outputs + row * width,
                                 (const char *)labels + (size_t)row * label, 0.0f, NULL);
}

void plim__score_add(plim__score_t *score, plim__team_t *team, int64_t rows, int64_t width,
                     const float *outputs, const void *labels)
{
    sums_t *sums = &score->sums[score->share];
    rows = plim__min_i64(rows, score->max_rows - score->rows);
    if (rows <= 0)
        return;
    score->rows += rows;
    add_losses(score, sums, team, rows, width, outputs, labels);
    if (score->loss == PLIM_LOSS_CROSS_ENTROPY)
        add_classes(score, sums, rows, width, outputs, labels);
    else
        add_values(score, sums, rows, width, outputs, labels);
    if (score->hits != NULL)
        add_hits(score, sums, team, rows, outputs, labels);
}

/* Gathers the keys of a column; their order does not matter. */
static plim_status_t gather_keys(plim__score_t *score, plim__peers_t *peers, int64_t column)
{
    const int rank = plim__peers_rank(peers), num_ranks = plim__peers_num_ranks(peers);
    uint64_t *keys = score->keys + column * score->max_rows;
    int64_t before = 0, all = 0;
    for (int i = 0; i < num_ranks; i++)
        score->sizes[i] = sizeof *score->rank_counts;
    PLIM_TRY(plim__peers_all_gather(peers, PLIM__STAGE_EVALUATION, &score->counts[column],
                                    score->rank_counts, score->sizes));
    for (int i = 0; i < num_ranks; i++) {
        const int64_t count = score->rank_counts[i];
        if (count < 0 || count > score->max_rows - all)
            return plim__fail(PLIM_ERR_DATA, "rank %d has %lld of at most %lld outputs", i,
                              (long long)count, (long long)score->max_rows);
        score->sizes[i] = (size_t)count * sizeof *keys;
        before += i < rank ? count : 0;
        all += count;
    }
    memmove(keys + before, keys, score->sizes[rank]);
    score->counts[column] = all;
    return plim__peers_all_gather(peers, PLIM__STAGE_EVALUATION, keys + before, keys, score->sizes);
}

plim_status_t plim__score_gather(plim__score_t *score, plim__peers_t *peers)
{
    const int rank = plim__peers_rank(peers), num_ranks = plim__peers_num_ranks(peers);
    if (peers == NULL)
        return PLIM_OK;
    for (int i = 0; i < num_ranks; i++) {
        const plim__share_range_t range = plim__share_range(score->num_shares, i, num_ranks);
        score->sizes[i] = (size_t)(range.end - range.begin) * sizeof *score->sums;
    }
    const int64_t first = plim__share_range(score->num_shares, rank, num_ranks).begin;
    PLIM_TRY(plim__peers_all_gather(peers, PLIM__STAGE_EVALUATION, score->sums + first, score->sums,
                                    score->sizes));
    if (score->errors != NULL) {
        for (int i = 0; i < num_ranks; i++)
            score->sizes[i] = score->sizes[i] / sizeof *score->sums * (size_t)score->columns *
                              sizeof *score->errors;
        PLIM_TRY(plim__peers_all_gather(peers, PLIM__STAGE_EVALUATION,
                                        score->errors + first * score->columns, score->errors,
                                        score->sizes));
    }
    for (int64_t column = 0; score->keys != NULL && column < score->columns; column++)
        PLIM_TRY(gather_keys(score, peers, column));
    return PLIM_OK;
}

/* The share of pairs of a positive and a negative in which the positive is higher; ties count half.
 */
static double area(plim__score_t *score, int64_t column)
{
    uint64_t *keys = score->keys + column * score->max_rows;
    const int64_t count = score->counts[column];
    uint64_t *sorted = plim__radix_sort(keys, score->sort_scratch, count, KEY_BITS);
    int64_t positives = 0, negatives = 0;
    unsigned __int128 twice = 0;
    for (int64_t i = 0; i < count;) {
        int64_t ups = 0, downs = 0;
        const uint64_t value = sorted[i] >> 1;
        for (; i < count && sorted[i] >> 1 == value; i++) {
            ups += (int64_t)(sorted[i] & 1u);
            downs += (int64_t)(~sorted[i] & 1u);
        }
        twice += (unsigned __int128)ups * (unsigned __int128)(2 * negatives + downs);
        positives += ups;
        negatives += downs;
    }
    if (sorted != keys)
        memcpy(keys, sorted, (size_t)count * sizeof *keys);
    if (positives == 0 || negatives == 0)
        return NAN;
    return (double)twice / (2.0 * (double)positives * (double)negatives);
}

static void add_sums(sums_t *sum, const sums_t *addend)
{
    sum->loss += addend->loss;
    sum->distance += addend->distance;
    sum->known += addend->known;
    sum->right += addend->right;
    sum->compared += addend->compared;
}

/* Adds up the shares. */
static sums_t total(const plim__score_t *score)
{
    plim__share_stack_t stack = {.num_shares = score->num_shares};
    sums_t sums[PLIM__SHARE_NODES_MAX];
    for (int64_t share = 0; share < score->num_shares; share++) {
        sums[stack.depth] = score->sums[share];
        int top = stack.depth;
        (void)plim__share_stack_push(&stack, (plim__share_range_t){share, share + 1});
        for (; top >= stack.depth; top--)
            add_sums(&sums[top - 1], &sums[top]);
    }
    return sums[0];
}

static void add_columns(column_sums_t *sum, const column_sums_t *addend)
{
    const double known = (double)(sum->known + addend->known);
    const double away = addend->mean - sum->mean;
    if (addend->known == 0)
        return;
    sum->spread +=
        addend->spread + away * away * ((double)sum->known / known) * (double)addend->known;
    sum->mean += away * ((double)addend->known / known);
    sum->known += addend->known;
    sum->distance += addend->distance;
    sum->squares += addend->squares;
}

/* Adds up the shares of a column, as total does. */
static column_sums_t column_total(const plim__score_t *score, int64_t column)
{
    plim__share_stack_t stack = {.num_shares = score->num_shares};
    column_sums_t sums[PLIM__SHARE_NODES_MAX];
    for (int64_t share = 0; share < score->num_shares; share++) {
        sums[stack.depth] = score->errors[share * score->columns + column];
        int top = stack.depth;
        (void)plim__share_stack_push(&stack, (plim__share_range_t){share, share + 1});
        for (; top >= stack.depth; top--)
            add_columns(&sums[top - 1], &sums[top]);
    }
    return sums[0];
}

static double r2_of(const column_sums_t *sums)
{
    return sums->spread > 0 ? 1 - sums->squares / sums->spread : NAN;
}

static plim_errors_t errors_of(const column_sums_t *sums)
{
    if (sums->known == 0)
        return (plim_errors_t){NAN, NAN, NAN};
    return (plim_errors_t){sums->distance / (double)sums->known,
                           sqrt(sums->squares / (double)sums->known), r2_of(sums)};
}

/* The mean over columns that have one. */
static double r2_mean(const plim__score_t *score)
{
    double sum = 0;
    int64_t columns = 0;
    for (int64_t column = 0; column < score->columns; column++) {
        const column_sums_t sums = column_total(score, column);
        const double value = r2_of(&sums);
        if (isnan(value))
            continue;
        sum += value;
        columns++;
    }
    return columns > 0 ? sum / (double)columns : NAN;
}

void plim__score_errors(const plim__score_t *score, plim_errors_t *errors_out)
{
    column_sums_t all = {0};
    for (int64_t column = 0; column < score->columns; column++) {
        const column_sums_t sums =
            score->errors != NULL ? column_total(score, column) : (column_sums_t){0};
        errors_out[column + 1] = errors_of(&sums);
        all.known += sums.known;
        all.distance += sums.distance;
        all.squares += sums.squares;
    }
    errors_out[0] = errors_of(&all);
    errors_out[0].r2 = score->errors != NULL ? r2_mean(score) : NAN;
}

double plim__score_value(plim__score_t *score)
{
    const sums_t sums = total(score);
    if (score->hits != NULL)
        return sums.compared > 0 ? (double)sums.right / (double)sums.compared : NAN;
    if (score->metric == PLIM_METRIC_COSINE)
        return sums.compared > 0 ? sums.distance / (double)sums.compared : NAN;
    if (score->metric == PLIM_METRIC_ROC_AUC) {
        double sum = 0;
        int64_t columns = 0;
        for (int64_t column = 0; column < score->columns; column++) {
            const double value = area(score, column);
            if (isnan(value))
                continue;
            sum += value;
            columns++;
        }
        return columns > 0 ? sum / (double)columns : NAN;
    }
    if (sums.known == 0)
        return NAN;
    if (score->metric == PLIM_METRIC_ACCURACY)
        return (double)sums.right / (double)sums.known;
    if (score->loss == PLIM_LOSS_CROSS_ENTROPY) /* classes have no distance */
        return NAN;
    if (score->metric == PLIM_METRIC_R2)
        return r2_mean(score);
    const double mean = sums.distance / (double)sums.known;
    return score->metric == PLIM_METRIC_MAE ? mean : sqrt(mean);
}

double plim__score_loss(const plim__score_t *score)
{
    const sums_t sums = total(score);
    return sums.known > 0 ? sums.loss / plim__loss_weight(score->loss, score->columns, sums.known)
                          : NAN;
}

bool plim__score_better(plim_metric_t metric, double a, double b)
{
    if (isnan(a) || isnan(b))
        return !isnan(a);
    return metric == PLIM_METRIC_MAE || metric == PLIM_METRIC_RMSE ? a < b : a > b;
}
