/* A run's directory: settings come back exactly, a second job stays out, and whatever does not fit
 * is refused with words. */
/* labels: asan unprivileged */
#include "support/run.h"

#include "plan/run_settings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void settings_come_back_exactly(void **state)
{
    (void)state;
    world_t world;
    plim_run_info_t info = PLIM_RUN_INFO_INIT;
    char absolute[PLIM_PATH_MAX];
    world_make(&world);
    plim_training_t *training = &world.training;
    training->model = (plim_model_t){.kind = PLIM_GAT,
                                     .num_layers = 3,
                                     .hidden = 257,
                                     .heads = 8,
                                     .aggregation = PLIM_MAX,
                                     .norm = PLIM_NORM_BATCH,
                                     .activation = PLIM_ELU,
                                     .dropout = 0.1f,
                                     .residual = true,
                                     .pool = PLIM_POOL_ADD,
                                     .precision = PLIM_PRECISION_BF16,
                                     .recompute = true};
    training->recipe.batch_size = 77;
    training->recipe.num_hops = 3;
    memcpy(training->recipe.fanout, (int64_t[PLIM_HOPS_MAX]){15, -1, 5}, 8 * sizeof(int64_t));
    training->recipe.seed = UINT64_MAX - 1;
    training->optimiser = (plim_optimiser_t){PLIM_SGD,           0.1 + 0.2, 1.0 / 3, 0.7,
                                             nextafter(1, 0),    5e-324,    1e300,   0.1,
                                             PLIM_SCHEDULE_STEP, 7,         2.0 / 3};
    training->loss = PLIM_LOSS_BCE;
    training->metric = PLIM_METRIC_ROC_AUC;
    training->epochs = INT32_MAX;
    training->eval_every = 3;
    training->patience = 4;
    training->eval_train = true;
    training->microbatch = 11;
    training->checkpoint_steps = 12;
    training->checkpoint_seconds = 0.1;
    training->memory_steps = 13;
    make_run(&world);
    memset(&info, 0x5a, sizeof info);
    info.size = sizeof info;
    assert_ok(plim_run_read(&world.job, world.path, &info));
    /* Field by field: padding has no value. */
    assert_memory_equal(&info.training.optimiser.rate, &training->optimiser.rate,
                        7 * sizeof(double));
    assert_true(info.training.optimiser.schedule_factor == training->optimiser.schedule_factor);
    assert_int_equal(info.training.optimiser.kind, PLIM_SGD);
    assert_true(info.training.model.dropout == 0.1f);
    assert_int_equal(info.training.model.kind, PLIM_GAT);
    assert_int_equal(info.training.model.precision, PLIM_PRECISION_BF16);
    assert_true(info.training.model.recompute && info.training.model.residual);
    assert_int_equal(info.training.model.hidden, 257);
    assert_true(info.training.recipe.seed == UINT64_MAX - 1);
    assert_int_equal(info.training.recipe.num_hops, 3);
    assert_int_equal(info.training.recipe.fanout[1], -1);
    assert_true(info.training.checkpoint_seconds == 0.1);
    assert_true(info.training.epochs == INT32_MAX);
    assert_int_equal(info.training.memory_steps, 13);
    assert_non_null(realpath(world.directory, absolute));
    assert_string_equal(info.dataset, absolute);
    assert_string_equal(info.fingerprint, "0123456789abcdef");
    assert_int_equal(info.epochs_done, -1);
    assert_int_equal(info.step, -1);
    /* And by the comparison itself, which knows every setting. */
    *training = info.training;
    reopen_run(&world);
    world_end(&world);
}

static void a_second_job_is_kept_out(void **state)
{
    (void)state;
    world_t world;
    plim__run_t *run, *second;
    char words[64];
    world_make(&world);
    assert_ok(create_run(&world, &run));
    assert_int_equal(open_run(&world, &second), PLIM_ERR_USAGE);
    assert_says("another process is training this run");
    (void)snprintf(words, sizeof words, "process %ld on", (long)getpid());
    assert_says(words);
    assert_int_equal(create_run(&world, &second), PLIM_ERR_USAGE);
    assert_says("holds a run already");
    const int inherited = dup(run->lock_fd); /* as a forked child would: it locks nothing */
    plim__run_close(run);
    assert_int_equal(create_run(&world, &second), PLIM_ERR_USAGE);
    assert_says("holds a run already (run.json); resume it");
    assert_ok(open_run(&world, &run));
    (void)close(inherited);
    plim__run_close(run);
    plim__run_close(NULL);
    world_end(&world);
}

/* A job that dies while it sets the directory up leaves nothing that is in the next one's way: a
 * lock, and a run.json that has not got its name yet. Other files may be there. */
static void begins_in_a_directory_that_is_there(void **state)
{
    (void)state;
    world_t world;
    plim__run_t *run;
    static plim_run_info_t info = PLIM_RUN_INFO_INIT;
    world_make(&world);
    assert_int_equal(open_run(&world, &run), PLIM_ERR_USAGE);
    assert_says("holds no run");
    assert_int_equal(mkdir(world.path, 0700), 0);
    assert_int_equal(open_run(&world, &run), PLIM_ERR_USAGE);
    assert_int_equal(plim_run_read(&world.job, world.path, &info), PLIM_ERR_USAGE);
    assert_int_equal(size_of(&world, ".lock"), -1);
    append_raw(&world, "notes.txt", "mine");
    append_raw(&world, ".lock", "process 1 on elsewhere\n");
    append_raw(&world, ".run.json.partial", "{");
    assert_ok(create_run(&world, &run));
    assert_int_equal(size_of(&world, "metrics.jsonl"), 0);
    assert_int_equal(size_of(&world, "timeline.jsonl"), 0);
    assert_int_equal(size_of(&world, "notes.txt"), 4);
    plim__run_close(run);
    world_end(&world);
}

/* A kill right after run.json has its name: the rest is made by the resume. */
static void a_run_of_run_json_alone_resumes(void **state)
{
    (void)state;
    static const char *const names[] = {"metrics.jsonl", "timeline.jsonl", ".lock"};
    world_t world;
    plim__run_t *run;
    char path[700];
    world_make(&world);
    make_run(&world);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        path_in(&world, names[i], path);
        assert_int_equal(unlink(path), 0);
    }
    assert_ok(open_run(&world, &run));
    assert_int_equal(size_of(&world, "metrics.jsonl"), 0);
    plim__run_close(run);
    world_end(&world);
}

static void needs_a_directory_to_be_in(void **state)
{
    (void)state;
    world_t world;
    plim__run_t *run;
    world_make(&world);
    (void)snprintf(world.path, sizeof world.path, "%s/no/run", world.directory);
    assert_int_equal(create_run(&world, &run), PLIM_ERR_IO);
    assert_says("cannot create the directory");
    (void)snprintf(world.path, sizeof world.path, "%s/run///", world.directory);
    make_run(&world);
    static char path[PLIM_PATH_MAX + 100];
    memset(path, 'x', sizeof path - 1);
    assert_int_equal(
        plim__run_create(&world.job, path, world.directory, &world.dataset, &world.training, &run),
        PLIM_ERR_USAGE);
    (void)snprintf(world.path, sizeof world.path, "%s/other", world.directory);
    assert_int_equal(plim__run_create(&world.job, world.path, "/no/such/dataset", &world.dataset,
                                      &world.training, &run),
                     PLIM_ERR_IO);
    assert_says("/no/such/dataset");
    world.training.optimiser.rate = NAN;
    assert_int_equal(create_run(&world, &run), PLIM_ERR_USAGE);
    assert_says("finite");
    world_end(&world);
}

typedef struct change {
    size_t offset;
    size_t size;
    union {
        int64_t count;
        double real;
        float single;
        int name;
        bool flag;
    } value;
    const char *words; /* NULL: it may change */
} change_t;

#define CHANGE(field, kind, to, text)                                                              \
    {                                                                                              \
        offsetof(plim_training_t, field), sizeof((plim_training_t *)0)->field, {.kind = to}, text  \
    }

static void what_decides_the_result_must_stay(void **state)
{
    (void)state;
    static const change_t changes[] = {
        CHANGE(model.kind, name, PLIM_SAGE, "`model` is gcn in the run but sage now"),
        CHANGE(model.num_layers, name, 3, "`layers` is 2 in the run but 3 now"),
        CHANGE(model.hidden, count, 65, "`hidden` is 64 in the run but 65 now"),
        CHANGE(model.dropout, single, 0.5f, "`dropout` is 0 in the run but 0.5 now"),
        CHANGE(model.residual, flag, true, "`residual` is false in the run but true now"),
        CHANGE(model.precision, name, PLIM_PRECISION_BF16,
               "`precision` is f32 in the run but bf16 now"),
        CHANGE(recipe.batch_size, count, 7, "`batch_size` is 1024 in the run but 7 now"),
        CHANGE(recipe.fanout[1], count, 9, "`fanout` is [10, 10] in the run but [10, 9] now"),
        CHANGE(recipe.num_hops, name, 0, "`fanout` is [10, 10] in the run but [] now"),
        CHANGE(recipe.seed, count, -1, "`seed` is 0 in the run but 18446744073709551615 now"),
        CHANGE(optimiser.kind, name, PLIM_ADAMW, "`optimiser` is adam in the run but adamw now"),
        CHANGE(optimiser.rate, real, 0.1, "`rate` is 0.01 in the run but 0.1 now"),
        CHANGE(optimiser.schedule, name, PLIM_SCHEDULE_COSINE,
               "`schedule` is none in the run but cosine"),
        CHANGE(loss, name, PLIM_LOSS_MSE, "`loss` is auto in the run but mse now"),
        CHANGE(eval_every, count, 2, "`eval_every` is 1 in the run but 2 now"),
        CHANGE(patience, count, 2, "`patience` is 0 in the run but 2 now"),
        CHANGE(epochs, count, 9, NULL), /* none is begun */
        CHANGE(epochs, count, 11, NULL),
        CHANGE(microbatch, count, 5, NULL),
        CHANGE(model.recompute, flag, true, NULL),
        CHANGE(checkpoint_steps, count, 5, NULL),
        CHANGE(checkpoint_seconds, real, 5, NULL),
        CHANGE(memory_steps, count, 5, NULL),
        /* The trainer's affair, not a setting. */
        CHANGE(recipe.row_type, name, PLIM_F16, NULL),
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        world_t world;
        plim__run_t *run;
        plim_run_info_t info = PLIM_RUN_INFO_INIT;
        world_make(&world);
        make_run(&world);
        memcpy((char *)&world.training + changes[i].offset, &changes[i].value, changes[i].size);
        plim_status_t status = open_run(&world, &run);
        if (changes[i].words == NULL) {
            assert_ok(status);
            plim__run_close(run);
            /* It is written down: the next job need not say it again. */
            assert_ok(plim_run_read(&world.job, world.path, &info));
            assert_int_equal(info.training.epochs, world.training.epochs);
            assert_int_equal(info.training.checkpoint_steps, world.training.checkpoint_steps);
        } else {
            assert_int_equal(status, PLIM_ERR_USAGE);
            assert_says(changes[i].words);
        }
        world_end(&world);
    }
}

/* Even numbers that no check has seen. */
static void long_fan_outs_are_cut_in_messages(void **state)
{
    (void)state;
    world_t world;
    plim__run_t *run;
    world_make(&world);
    make_run(&world);
    world.training.recipe.num_hops = PLIM_HOPS_MAX;
    for (int i = 0; i < PLIM_HOPS_MAX; i++)
        world.training.recipe.fanout[i] = INT64_MIN;
    assert_int_equal(open_run(&world, &run), PLIM_ERR_USAGE);
    assert_says("`fanout` is [10, 10] in the run but [-9223372036854775808, ");
    world_end(&world);
}

/* What could not begin leaves what was there before. */
static void discards_what_it_made(void **state)
{
    (void)state;
    world_t world;
    plim__run_t *run;
    world_make(&world);
    assert_ok(create_run(&world, &run));
    plim__run_discard(run);
    plim__run_close(run);
    assert_int_equal(access(world.path, F_OK), -1);
    assert_int_equal(mkdir(world.path, 0700), 0);
    append_raw(&world, "note", "mine");
    assert_ok(create_run(&world, &run));
    plim__run_discard(run);
    plim__run_close(run);
    assert_int_equal(size_of(&world, "note"), 4);
    assert_int_equal(size_of(&world, "run.json"), -1);
    make_run(&world);
    world_end(&world);
}

static void a_cosine_schedule_fixes_the_epochs(void **state)
{
    (void)state;
    world_t world;
    plim__run_t *run;
    world_make(&world);
    world.training.optimiser.schedule = PLIM_SCHEDULE_COSINE;
    make_run(&world);
    world.training.epochs++;
    assert_int_equal(open_run(&world, &run), PLIM_ERR_USAGE);
    assert_says("cosine schedule");
    world.training.epochs--;
    reopen_run(&world);
    world_end(&world);
}

static void another_dataset_is_refused(void **state)
{
    (void)state;
    world_t world;
    plim__run_t *run;
    world_make(&world);
    make_run(&world);
    world.dataset.fingerprint[3] = 'f';
    assert_int_equal(open_run(&world, &run), PLIM_ERR_USAGE);
    assert_says("its fingerprint is 0123456789abcdef, this one's 012f456789abcdef");
    world_end(&world);
}

static void another_machine_is_logged(void **state)
{
    (void)state;
    world_t world;
    world_make(&world);
    make_run(&world);
    reopen_run(&world);
    assert_string_equal(world.log, "");
    unseal(&world);
    replace_text(&world, "run.json", "\"vectors\": \"", "\"vectors\": \"no-");
    reopen_run(&world);
    assert_non_null(strstr(world.log, "warning: "));
    assert_non_null(strstr(world.log, "(no-"));
    assert_non_null(strstr(world.log, "last bits of results may differ"));
    world.log[0] = '\0';
    replace_text(&world, "run.json", "\"vectors\": \"no-", "\"vectors\": \"");
    replace_text(&world, "run.json", "\"onednn\": \"", "\"onednn\": \"old ");
    reopen_run(&world);
    assert_non_null(strstr(world.log, "with old "));
    world.log[0] = '\0';
    replace_text(&world, "run.json", "\"onednn\": \"old ", "\"onednn\": \"");
    world.job.threads = 1;
    reopen_run(&world);
    assert_non_null(strstr(world.log, "2 threads, now with 1: results are the same"));
    assert_null(strstr(world.log, "warning"));
    world_end(&world);
}

static void a_damaged_run_json_is_refused(void **state)
{
    (void)state;
    static const char *const edits[][3] = {
        {"\"plimsoll\": \"run\"", "\"plimsoll\": \"dataset\"", "does not describe a run"},
        {"\"format\": 1", "\"format\": 0", "format"},
        {"\"model\": \"gcn\"", "\"model\": \"gnn\"", "\"model\""},
        {"\"hidden\": 64", "\"hidden\": -64", "\"hidden\""},
        {"\"hidden\": 64", "\"hidden\": 64.5", "\"hidden\""},
        {"\"layers\": 2", "\"layers\": 4294967298", "\"layers\""},
        {"\"residual\": false", "\"residual\": 0", "\"residual\""},
        {"\"fanout\": [", "\"fanout\": [1,1,1,1,1,1,1,", "\"fanout\""},
        {"\"seed\": 0", "\"seed\": \"-1\"", "\"seed\""},
        {"\"seed\": 0", "\"seed\": \"99999999999999999999\"", "\"seed\""},
        {"\"settings\": {", "\"settings\": {\"model\": \"sage\",", "duplicate"},
        {"\"settings\": {", "\"settings\": {{", "line"},
        {"\"threads\": 2", "\"threads\": 0", "\"threads\""},
        {"\"fingerprint\": \"", "\"fingerprint\": \"00", "\"fingerprint\""},
    };
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        world_t world;
        plim_run_info_t info = PLIM_RUN_INFO_INIT;
        world_make(&world);
        make_run(&world);
        unseal(&world); /* as older versions wrote it */
        replace_text(&world, "run.json", edits[i][0], edits[i][1]);
        assert_int_equal(plim_run_read(&world.job, world.path, &info), PLIM_ERR_DATA);
        assert_says(edits[i][2]);
        world_end(&world);
    }
}

/* Every bit of run.json: found, or without effect, which only the seal's own key is. */
static void every_flipped_bit_of_run_json_is_found(void **state)
{
    (void)state;
    world_t world;
    char path[700];
    static plim_run_info_t before = PLIM_RUN_INFO_INIT, after = PLIM_RUN_INFO_INIT;
    int without_effect = 0;
    world_make(&world);
    make_run(&world);
    assert_ok(plim_run_read(&world.job, world.path, &before));
    path_in(&world, "run.json", path);
    for (int64_t bit = 0; bit < 8 * size_of(&world, "run.json"); bit++) {
        flip_bit(path, bit);
        memset(&after, 0, sizeof after);
        after.size = sizeof after;
        plim_status_t status = plim_run_read(&world.job, world.path, &after);
        flip_bit(path, bit);
        without_effect += status == PLIM_OK;
        if (status == PLIM_OK) {
            assert_true(plim__run_settings_same(&before.training, &after.training));
            assert_string_equal(before.dataset, after.dataset);
            assert_string_equal(before.fingerprint, after.fingerprint);
        } else {
            assert_int_equal(status, PLIM_ERR_DATA);
        }
    }
    assert_true(without_effect <= 8 * (int)sizeof "\"self\"");
    world_end(&world);
}

static void a_newer_format_is_said_to_be_one(void **state)
{
    (void)state;
    world_t world;
    plim_run_info_t info = PLIM_RUN_INFO_INIT;
    world_make(&world);
    make_run(&world);
    unseal(&world);
    replace_text(&world, "run.json", "\"format\": 1", "\"format\": 2");
    assert_ok(plim_run_read(&world.job, world.path, &info));
    replace_text(&world, "run.json", "\"readable_by\": 1", "\"readable_by\": 2");
    assert_int_equal(plim_run_read(&world.job, world.path, &info), PLIM_ERR_UNSUPPORTED);
    assert_says("use a newer plimsoll");
    world_end(&world);
}

/* A GCN of a version that counted self-loops twice: settings that count them once continue it only
 * where there are none. Other models do not care. */
static void how_often_loops_count_must_stay(void **state)
{
    (void)state;
    for (int kind = PLIM_GCN; kind <= PLIM_SAGE; kind++) {
        world_t world;
        plim__run_t *run;
        plim_run_info_t info = PLIM_RUN_INFO_INIT;
        world_make(&world);
        world.training.model.kind = (plim_model_kind_t)kind;
        make_run(&world);
        unseal(&world);
        replace_text(&world, "run.json", "\"loops_twice\"", "\"unknown\"");
        assert_ok(plim_run_read(&world.job, world.path, &info));
        assert_int_equal(info.training.model.loops_twice, kind == PLIM_GCN);
        world.dataset.max_self_loops = 2;
        const plim_status_t status = open_run(&world, &run);
        if (kind == PLIM_GCN) {
            assert_int_equal(status, PLIM_ERR_USAGE);
            assert_says("loops_twice");
            world.dataset.max_self_loops = 0;
            assert_ok(open_run(&world, &run));
        } else {
            assert_ok(status);
        }
        plim__run_close(run);
        world_end(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_come_back_exactly),
        cmocka_unit_test(a_second_job_is_kept_out),
        cmocka_unit_test(begins_in_a_directory_that_is_there),
        cmocka_unit_test(a_run_of_run_json_alone_resumes),
        cmocka_unit_test(needs_a_directory_to_be_in),
        cmocka_unit_test(what_decides_the_result_must_stay),
        cmocka_unit_test(long_fan_outs_are_cut_in_messages),
        cmocka_unit_test(discards_what_it_made),
        cmocka_unit_test(a_cosine_schedule_fixes_the_epochs),
        cmocka_unit_test(another_dataset_is_refused),
        cmocka_unit_test(another_machine_is_logged),
        cmocka_unit_test(a_damaged_run_json_is_refused),
        cmocka_unit_test(every_flipped_bit_of_run_json_is_found),
        cmocka_unit_test(a_newer_format_is_said_to_be_one),
        cmocka_unit_test(how_often_loops_count_must_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
