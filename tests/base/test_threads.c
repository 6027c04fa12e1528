/* Parallel work: everything done once, errors carried over with their messages, order kept. */
/* labels: asan tsan */
#include "support/harness.h"

#include "base/condition.h"
#include "base/fail.h"
#include "base/threads.h"

#include <stdatomic.h>
#include <string.h>

static plim_status_t count_up(void *context, int worker)
{
    (void)worker;
    atomic_fetch_add((atomic_int *)context, 1);
    return PLIM_OK;
}

static plim_status_t fail_in_three(void *context, int worker)
{
    (void)context;
    return worker == 3 ? plim__fail(PLIM_ERR_DATA, "worker %d is unhappy", worker) : PLIM_OK;
}

static void runs_all_and_carries_errors(void **state)
{
    (void)state;
    atomic_int count = 0;
    assert_ok(plim__parallel(8, count_up, &count));
    assert_int_equal(atomic_load(&count), 8);
    assert_int_equal(plim__parallel(8, fail_in_three, NULL), PLIM_ERR_DATA);
    assert_string_equal(plim_last_error(), "worker 3 is unhappy");
}

typedef struct order {
    int64_t made[8];
    int64_t next;
    int64_t fail_at;
} order_t;

static plim_status_t make_piece(void *context, int worker, int64_t piece)
{
    order_t *order = context;
    order->made[worker] = piece;
    if (order->fail_at >= 0 && piece >= order->fail_at)
        return plim__fail(PLIM_ERR_IO, "piece %d", (int)piece);
    return PLIM_OK;
}

static plim_status_t take_piece(void *context, int worker, int64_t piece)
{
    order_t *order = context;
    if (order->made[worker] != piece || order->next != piece)
        return plim__fail(PLIM_ERR_USAGE, "out of order");
    order->next++;
    return PLIM_OK;
}

static void keeps_order(void **state)
{
    (void)state;
    order_t order = {.fail_at = -1};
    assert_ok(plim__ordered(8, 10000, make_piece, take_piece, &order));
    assert_int_equal(order.next, 10000);
    assert_ok(plim__ordered(8, 0, make_piece, take_piece, &order));
}

static void reports_the_first_piece_that_failed(void **state)
{
    (void)state;
    for (int round = 0; round < 50; round++) {
        order_t order = {.fail_at = 40};
        assert_int_equal(plim__ordered(8, 1000, make_piece, take_piece, &order), PLIM_ERR_IO);
        assert_string_equal(plim_last_error(), "piece 40");
        assert_int_equal(order.next, 40);
    }
}

/* Tokens that one worker hands out, some at a time, and the others take. */
typedef struct tokens {
    pthread_mutex_t lock;
    plim__condition_t given, taken;
    int left, taken_count;
    bool ended;
} tokens_t;

enum { NUM_TOKENS = 20000 };

static void give(tokens_t *tokens)
{
    for (int given = 0; given < NUM_TOKENS;) {
        const int more = 1 + given % 5 < NUM_TOKENS - given ? 1 + given % 5 : NUM_TOKENS - given;
        pthread_mutex_lock(&tokens->lock);
        tokens->left += more;
        given += more;
        plim__condition_wake(&tokens->given, more);
        while (tokens->left > 3)
            plim__condition_wait(&tokens->taken, &tokens->lock);
        tokens->ended = given == NUM_TOKENS;
        if (tokens->ended)
            plim__condition_wake_all(&tokens->given);
        pthread_mutex_unlock(&tokens->lock);
    }
}

static plim_status_t pass_tokens(void *context, int worker)
{
    tokens_t *tokens = context;
    if (worker == 0) {
        give(tokens);
        return PLIM_OK;
    }
    pthread_mutex_lock(&tokens->lock);
    for (;;) {
        while (tokens->left == 0 && !tokens->ended)
            plim__condition_wait(&tokens->given, &tokens->lock);
        if (tokens->left == 0)
            break;
        tokens->left--;
        tokens->taken_count++;
        plim__condition_wake(&tokens->taken, 1);
    }
    pthread_mutex_unlock(&tokens->lock);
    return PLIM_OK;
}

/* With pthread_cond_t of an old glibc a waiter may sleep for ever. */
static void every_waiter_is_woken(void **state)
{
    (void)state;
    for (int threads = 2; threads < 10; threads++) {
        tokens_t tokens = {.lock = PTHREAD_MUTEX_INITIALIZER};
        assert_ok(plim__parallel(threads, pass_tokens, &tokens));
        assert_int_equal(tokens.taken_count, NUM_TOKENS);
        pthread_mutex_destroy(&tokens.lock);
    }
}

static void a_wait_ends_in_time(void **state)
{
    (void)state;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    plim__condition_t never = {0};
    pthread_mutex_lock(&lock);
    plim__condition_wait_for(&never, &lock, 1000000);
    plim__condition_wait_for(&never, &lock, -1);
    pthread_mutex_unlock(&lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_all_and_carries_errors),
        cmocka_unit_test(keeps_order),
        cmocka_unit_test(reports_the_first_piece_that_failed),
        cmocka_unit_test(every_waiter_is_woken),
        cmocka_unit_test(a_wait_ends_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
