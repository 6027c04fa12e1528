/* A run that has no room in the middle of it, whenever that is, plans anew and ends with the same
 * bits. */
#include "support/training.h"
#include "support/wrapped.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void count_steps(void *user, const plim_train_event_t *event)
{
    if (event->kind == PLIM_EVENT_STEP)
        ++*(int *)user;
}

static void squeezed_anywhere(void **state)
{
    (void)state;
    plim_training_t training = test_training_small();
    plim_train_result_t expected = PLIM_TRAIN_RESULT_INIT, result = PLIM_TRAIN_RESULT_INIT;
    test_way_t way = test_plain_way;
    int steps = 0, all = 0;
    way.events = count_steps;
    way.user = &steps;
    assert_ok(test_train("calm", &training, &way, &expected));
    all = steps;
    /* Steps, evaluations and the end of an epoch: the first batch, and one in each stretch. */
    for (int n = 1; n <= all + 4; n += n < 4 ? 1 : all / 7) {
        char name[32];
        (void)snprintf(name, sizeof name, "squeezed-%d", n);
        training.microbatch = 0;
        test_squeeze_at(n);
        assert_ok(test_train(name, &training, &way, &result));
        test_squeeze_at(0);
        assert_int_equal(result.epochs, expected.epochs);
        test_assert_same_run("calm", name);
    }
}

/* Batches that come in parts, and gradients of several: what was begun is done again. */
static void squeezed_in_a_group(void **state)
{
    (void)state;
    plim_training_t training = test_training_small();
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    training.microbatch = 30;
    training.accumulation = 3;
    training.epochs = 2;
    assert_ok(test_train("group", &training, &test_plain_way, &result));
    for (int n = 2; n < 12; n += 3) {
        char name[32];
        (void)snprintf(name, sizeof name, "group-%d", n);
        test_squeeze_at(n);
        assert_ok(test_train(name, &training, &test_plain_way, &result));
        test_squeeze_at(0);
        test_assert_same_run("group", name);
    }
}

/* A host that takes memory of its own, more than the line, at its third step. */
typedef struct host {
    size_t bytes;
    void *memory;
    int steps;
} host_t;

static void take_memory(void *user, const plim_train_event_t *event)
{
    host_t *host = user;
    if (event->kind != PLIM_EVENT_STEP || ++host->steps != 3)
        return;
    host->memory =
        mmap(NULL, host->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(host->memory, MAP_FAILED);
    memset(host->memory, 1, host->bytes);
    test_squeeze_at(1);
}

/* Below its minimum a run saves and stops, and later continues with the same bits. */
static void stopped_below_the_minimum(void **state)
{
    (void)state;
    const plim_training_t training = test_training_small();
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    test_way_t way = test_plain_way;
    way.line = (int64_t)256 << 20;
    host_t host = {.bytes = (size_t)way.line};
    assert_ok(test_train("roomy", &training, &way, &result));
    way.events = take_memory;
    way.user = &host;
    assert_int_equal(test_train("crowded", &training, &way, &result), PLIM_ERR_STOPPED);
    assert_int_equal(munmap(host.memory, host.bytes), 0);
    way.resume = true;
    assert_ok(test_train("crowded", &training, &way, &result));
    assert_int_equal(result.epochs, training.epochs);
    test_assert_same_run("roomy", "crowded");
}

static void remove_checkpoint(void *user, const plim_train_event_t *event)
{
    char path[800];
    test_training_path(user, path);
    (void)strcat(path, "/last.safetensors");
    if (event->kind == PLIM_EVENT_CHECKPOINT)
        assert_int_equal(unlink(path), 0);
}

/* A run does not begin again because its checkpoint was removed between saving and loading it. */
static void needs_the_checkpoint_that_it_saved(void **state)
{
    (void)state;
    plim_training_t training = test_training_small();
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    test_way_t way = test_plain_way;
    char name[] = "removed";
    training.eval_every = 0;
    way.events = remove_checkpoint;
    way.user = name;
    test_squeeze_at(7);
    assert_int_equal(test_train(name, &training, &way, &result), PLIM_ERR_IO);
    test_squeeze_at(0);
    assert_non_null(strstr(plim_last_error(), "last.safetensors"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(squeezed_anywhere),
        cmocka_unit_test(squeezed_in_a_group),
        cmocka_unit_test(stopped_below_the_minimum),
        cmocka_unit_test(needs_the_checkpoint_that_it_saved),
    };
    return cmocka_run_group_tests(tests, test_training_begin, test_training_end);
}
