/* Rows that ranks bring to rank 0: in their order, and refused where a rank sends others than it
 * should. */
/* labels: asan */
#include "support/harness.h"
#include "support/ranks.h"

#include "load/slot_ring.h"
#include "train/collect.h"

#include <string.h>

#define TIMEOUT_SECONDS 60

enum { BATCH = 6, WIDTH = 4, ROWS = 40, FEW = 3 };

static float value_of(int64_t row, int64_t column)
{
    return (float)(row * WIDTH + column);
}

/* What rank 0 has been handed. */
typedef struct taken {
    int64_t rows;
} taken_t;

static plim_status_t take(void *context, int64_t rows, const float *values, const void *labels)
{
    taken_t *taken = context;
    for (int64_t i = 0; i < rows; i++, taken->rows++) {
        int64_t label;
        memcpy(&label, (const char *)labels + i * (int64_t)sizeof label, sizeof label);
        rank_assert(label == taken->rows);
        for (int64_t column = 0; column < WIDTH; column++)
            rank_assert(values[i * WIDTH + column] == value_of(taken->rows, column));
    }
    return PLIM_OK;
}

/* Adds this rank's rows of the group that begins at row `first`. */
static void add_rows(plim__collect_t *collect, int rank, int num_ranks, int64_t first)
{
    const int64_t left = ROWS - first, most = (int64_t)BATCH * num_ranks;
    const int64_t group = left < most ? left : most;
    for (int64_t row = first + plim__share_first(group, num_ranks, rank);
         row < first + plim__share_first(group, num_ranks, rank + 1); row++) {
        float values[WIDTH];
        for (int64_t column = 0; column < WIDTH; column++)
            values[column] = value_of(row, column);
        plim__collect_add(collect, 1, values, &row);
    }
}

static void collect_all(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    plim__peers_t *peers;
    plim__collect_t *collect;
    taken_t taken = {0};
    const int64_t group = (int64_t)BATCH * num_ranks;
    (void)context;
    rank_ok(plim__peers_open(job, &peers));
    rank_ok(plim__collect_create(job->ledger, peers, BATCH, WIDTH, sizeof(int64_t), &collect));
    plim__collect_begin(collect, ROWS);
    for (int64_t first = 0; first < ROWS; first += group) {
        add_rows(collect, rank, num_ranks, first);
        rank_ok(plim__collect_end(collect, PLIM_OK, first + group >= ROWS, take, &taken));
    }
    rank_assert(taken.rows == (rank == 0 ? ROWS : 0));
    plim__collect_destroy(collect);
    plim__peers_close(peers);
}

static void rows_arrive_in_order(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++)
        test_ranks_threads(ranks, TIMEOUT_SECONDS, NULL, collect_all, NULL);
}

/* Rank 1 has half as many rows, twice as wide: as many bytes. */
static void be_wider(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    plim__peers_t *peers;
    plim__collect_t *collect;
    const int64_t times = rank == 1 ? 2 : 1;
    const float values[2 * WIDTH] = {0};
    taken_t taken = {0};
    (void)num_ranks;
    (void)context;
    rank_ok(plim__peers_open(job, &peers));
    rank_ok(plim__collect_create(job->ledger, peers, BATCH / times, WIDTH * times, 0, &collect));
    plim__collect_begin(collect, ROWS);
    for (int64_t row = 0; row < BATCH / times; row++)
        plim__collect_add(collect, 1, values, NULL);
    rank_assert(plim__collect_end(collect, PLIM_OK, false, take, &taken) == PLIM_ERR_DATA);
    rank_assert(taken.rows == 0);
    plim__collect_destroy(collect);
    plim__peers_close(peers);
}

static void another_width_is_refused(void **state)
{
    (void)state;
    test_ranks_threads(3, TIMEOUT_SECONDS, NULL, be_wider, NULL);
}

/* Sends as rank 1 in its own turn, and in rank 2's too: both fit into the buffer of a batch. */
static void intrude(plim__peers_t *peers)
{
    const int64_t own[] = {WIDTH, sizeof(int64_t), BATCH, 3 * FEW};
    const size_t row = WIDTH * sizeof(float) + sizeof(int64_t);
    static const char rows[1024];
    size_t none[3] = {0}, sizes[3], offsets[3];
    char received[8];
    rank_ok(plim__peers_agree(peers, PLIM__STAGE_EVALUATION, PLIM_OK, 4, own, NULL, NULL));
    for (int turn = 1; turn <= 2; turn++) {
        const size_t sent[3] = {turn == 1 ? FEW * row : row, 0, 0};
        rank_ok(plim__peers_all_to_all(peers, PLIM__STAGE_EVALUATION, rows, sent, none, received, 0,
                                       sizes, offsets));
    }
    rank_assert(plim__peers_agree(peers, PLIM__STAGE_EVALUATION, PLIM_OK, 0, NULL, NULL, NULL) ==
                PLIM_ERR_DATA);
}

static plim_status_t take_any(void *context, int64_t rows, const float *values, const void *labels)
{
    (void)values;
    (void)labels;
    *(int64_t *)context += rows;
    return PLIM_OK;
}

static void be_intruded(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    plim__peers_t *peers;
    plim__collect_t *collect;
    int64_t taken = 0;
    (void)context;
    rank_ok(plim__peers_open(job, &peers));
    if (rank == 1) {
        intrude(peers);
        plim__peers_close(peers);
        return;
    }
    rank_ok(plim__collect_create(job->ledger, peers, BATCH, WIDTH, sizeof(int64_t), &collect));
    plim__collect_begin(collect, (int64_t)FEW * num_ranks);
    for (int64_t row = 0; row < FEW; row++) {
        const float values[WIDTH] = {0};
        plim__collect_add(collect, 1, values, &row);
    }
    rank_assert(plim__collect_end(collect, PLIM_OK, true, take_any, &taken) == PLIM_ERR_DATA);
    rank_assert(rank > 0 || strstr(plim_last_error(), "rank 1 has") != NULL);
    rank_assert(taken == (rank == 0 ? 2 * FEW : 0));
    plim__collect_destroy(collect);
    plim__peers_close(peers);
}

static void rows_out_of_turn_are_refused(void **state)
{
    (void)state;
    test_ranks_threads(3, TIMEOUT_SECONDS, NULL, be_intruded, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_arrive_in_order),
        cmocka_unit_test(another_width_is_refused),
        cmocka_unit_test(rows_out_of_turn_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
