/* safetensors: a written file reads back; a changed one is refused with a message. */
#include "support/harness.h"

#include "base/fail.h"
#include "support/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct world {
    plim_job_t job;
    char directory[512];
    char path[600];
} world_t;

static void world_make(world_t *world)
{
    test_directory_make(world->directory);
    (void)snprintf(world->path, sizeof world->path, "%s/a.safetensors", world->directory);
    world->job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
}

static void world_end(world_t *world)
{
    test_job_end(&world->job);
    test_directory_remove(world->directory);
}

static float matrix[6] = {1.5f, -0.0f, INFINITY, 1e-45f, 3, 4};
static int64_t number[1] = {INT64_MIN};
static const plim__note_t notes[] = {{"format", "pt"}, {"odd \"key\"\n", "a\\b\t\x7f\xc3"}};

static void make_tensors(plim__tensor_t tensors_out[4])
{
    memset(tensors_out, 0, 4 * sizeof *tensors_out);
    tensors_out[0] = (plim__tensor_t){"convs.0.weight", PLIM_F32, 2, {2, 3, 0, 0}, (void *)matrix};
    tensors_out[1] = (plim__tensor_t){"empty", PLIM_F32, 2, {0, 7, 0, 0}, NULL};
    tensors_out[2] = (plim__tensor_t){"tracked", PLIM_I64, 0, {0, 0, 0, 0}, (void *)number};
    tensors_out[3] = (plim__tensor_t){"bias", PLIM_F32, 1, {6, 0, 0, 0}, (void *)matrix};
}

static void reads_back_what_was_written(void **state)
{
    (void)state;
    world_t world;
    plim__tensor_t tensors[4], found;
    plim__safetensors_t *file;
    world_make(&world);
    make_tensors(tensors);
    assert_ok(test_safetensors_write(&world.job, world.path, notes, 2, tensors, 4));
    assert_ok(plim__safetensors_open(&world.job, AT_FDCWD, world.path, &file));
    assert_string_equal(plim__safetensors_note(file, "format"), "pt");
    assert_string_equal(plim__safetensors_note(file, "odd \"key\"\n"), "a\\b\t\x7f?");
    assert_null(plim__safetensors_note(file, "pt"));
    assert_int_equal(plim__safetensors_count(file), 4);
    for (int i = 0; i < 4; i++) {
        char data[64];
        memset(data, 0x5a, sizeof data);
        plim__safetensors_describe(file, i, &found);
        assert_string_equal(found.name, tensors[i].name);
        assert_int_equal(found.type, tensors[i].type);
        assert_int_equal(found.num_dims, tensors[i].num_dims);
        assert_memory_equal(found.shape, tensors[i].shape, sizeof found.shape);
        found.data = data;
        assert_ok(plim__safetensors_read(file, &found));
        size_t bytes = i == 1 ? 0 : i == 2 ? 8 : 24;
        if (bytes > 0)
            assert_memory_equal(data, tensors[i].data, bytes);
        assert_int_equal(data[bytes], 0x5a);
    }
    plim__safetensors_close(file);
    plim__safetensors_close(NULL);
    world_end(&world);
}

static void write_raw(const char *path, uint64_t length, const char *header, size_t data)
{
    static const char zeros[64];
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(&length, 1, 8, file), 8);
    assert_int_equal(fwrite(header, 1, strlen(header), file), strlen(header));
    assert_int_equal(fwrite(zeros, 1, data, file), data);
    assert_int_equal(fclose(file), 0);
}

#define HALF "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"

/* Reads all of a file; PLIM_OK with whether it still holds what make_tensors says. */
static plim_status_t read_all(const world_t *world, bool *same_out)
{
    plim__tensor_t tensors[4];
    plim__safetensors_t *file;
    plim_status_t status = PLIM_OK;
    make_tensors(tensors);
    *same_out = true;
    PLIM_TRY(plim__safetensors_open(&world->job, AT_FDCWD, world->path, &file));
    for (int i = 0; i < 4 && status == PLIM_OK; i++) {
        static const size_t sizes[] = {24, 0, 8, 24};
        plim__tensor_t wanted = tensors[i];
        char data[64];
        wanted.data = data;
        status = plim__safetensors_read(file, &wanted);
        *same_out &= status == PLIM_OK && (i == 1 || memcmp(data, tensors[i].data, sizes[i]) == 0);
    }
    const char *note = plim__safetensors_note(file, "format");
    *same_out &= note != NULL && strcmp(note, "pt") == 0;
    plim__safetensors_close(file);
    return status;
}

/* Length, header, blanks behind it and data. Only the key of the first note can change: its file
 * passes for one without checksums, and holds what it held. */
static void finds_every_flipped_bit(void **state)
{
    (void)state;
    world_t world;
    plim__tensor_t tensors[4];
    struct stat about;
    unsigned char byte;
    int unseen = 0;
    world_make(&world);
    make_tensors(tensors);
    assert_ok(test_safetensors_write(&world.job, world.path, notes, 2, tensors, 4));
    int fd = open(world.path, O_RDWR);
    assert_int_equal(fstat(fd, &about), 0);
    for (off_t at = 0; at < about.st_size; at++)
        for (int bit = 0; bit < 8; bit++) {
            bool same;
            if (at >= 1024 && at < 4096 && (at + bit) % 61 != 0)
                continue; /* of the blanks some are enough: a flip costs a write to the disk */
            assert_int_equal(pread(fd, &byte, 1, at), 1);
            byte = (unsigned char)(byte ^ 1u << bit);
            assert_int_equal(pwrite(fd, &byte, 1, at), 1);
            plim_status_t status = read_all(&world, &same);
            byte = (unsigned char)(byte ^ 1u << bit);
            assert_int_equal(pwrite(fd, &byte, 1, at), 1);
            if (status == PLIM_OK) {
                assert_true(same);
                assert_in_range(at, sizeof "{\"__metadata__\": {\"", 64);
                unseen++;
            } else {
                assert_int_equal(status, PLIM_ERR_DATA);
            }
        }
    assert_true(unseen < 8 * (int)sizeof "checksum");
    (void)close(fd);
    world_end(&world);
}

/* A program that saves a file again keeps its notes, the checksums too; it is not damaged. */
static void takes_what_another_program_has_saved_again(void **state)
{
    (void)state;
    world_t world;
    plim__safetensors_t *file;
    float data[1] = {0};
    const plim__tensor_t wanted = {"a", PLIM_F32, 1, {1, 0, 0, 0}, data};
    world_make(&world);
    const char *header = "{\"__metadata__\":{\"checksum\":\"0123456789abcdef\",\"checksums\":"
                         "\"0123456789abcdef\"},\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
                         "\"data_offsets\":[0,4]}}";
    write_raw(world.path, strlen(header), header, 4);
    assert_ok(plim__safetensors_open(&world.job, AT_FDCWD, world.path, &file));
    assert_false(plim__safetensors_sealed(file));
    assert_ok(plim__safetensors_read(file, &wanted));
    plim__safetensors_close(file);
    world_end(&world);
}

static void says_what_is_missing_or_of_another_shape(void **state)
{
    (void)state;
    world_t world;
    plim__tensor_t tensors[4], wanted;
    plim__safetensors_t *file;
    float data[6];
    world_make(&world);
    make_tensors(tensors);
    assert_ok(test_safetensors_write(&world.job, world.path, NULL, 0, tensors, 4));
    assert_ok(plim__safetensors_open(&world.job, AT_FDCWD, world.path, &file));
    wanted = (plim__tensor_t){"nothing", PLIM_F32, 1, {6, 0, 0, 0}, data};
    assert_int_equal(plim__safetensors_read(file, &wanted), PLIM_ERR_DATA);
    assert_non_null(strstr(plim_last_error(), "no tensor 'nothing'"));
    wanted = (plim__tensor_t){"convs.0.weight", PLIM_F32, 2, {3, 2, 0, 0}, data};
    assert_int_equal(plim__safetensors_read(file, &wanted), PLIM_ERR_DATA);
    assert_non_null(strstr(plim_last_error(), "F32 [2, 3], but F32 [3, 2]"));
    wanted = (plim__tensor_t){"tracked", PLIM_F32, 0, {0, 0, 0, 0}, data};
    assert_int_equal(plim__safetensors_read(file, &wanted), PLIM_ERR_DATA);
    assert_non_null(strstr(plim_last_error(), "I64 [], but F32 []"));
    plim__safetensors_close(file);
    world_end(&world);
}

/* Larger than every buffer, and not a multiple of anything. */
static void writes_tensors_of_any_size_in_fixed_memory(void **state)
{
    (void)state;
    enum { COUNT = 1200001 };
    world_t world;
    plim__safetensors_t *file;
    struct stat about;
    float *data = malloc(COUNT * sizeof *data);
    float *again = malloc(COUNT * sizeof *again);
    assert_non_null(data);
    assert_non_null(again);
    for (int i = 0; i < COUNT; i++)
        data[i] = (float)i;
    world_make(&world);
    plim__tensor_t tensor = {"big", PLIM_F32, 1, {COUNT, 0, 0, 0}, data};
    int64_t before = plim__ledger_reserved(world.job.ledger);
    assert_ok(test_safetensors_write(&world.job, world.path, notes, 1, &tensor, 1));
    assert_int_equal(stat(world.path, &about), 0);
    assert_int_equal(about.st_size % 4096, COUNT * sizeof *data % 4096);
    assert_ok(plim__safetensors_open(&world.job, AT_FDCWD, world.path, &file));
    tensor.data = again;
    assert_ok(plim__safetensors_read(file, &tensor));
    assert_memory_equal(data, again, COUNT * sizeof *data);
    plim__safetensors_close(file);
    assert_int_equal(plim__ledger_reserved(world.job.ledger), before);
    assert_true(plim__ledger_peak(world.job.ledger) - before <=
                (int64_t)plim__safetensors_estimate(PLIM__TENSORS_MAX));
    world_end(&world);
    free(again);
    free(data);
}

/* As many tensors as there may be, with the longest names: within the estimate. */
static void holds_the_most_tensors(void **state)
{
    (void)state;
    world_t world;
    plim__safetensors_t *file;
    static plim__tensor_t tensors[PLIM__TENSORS_MAX + 1];
    float value = 1;
    world_make(&world);
    for (int i = 0; i <= PLIM__TENSORS_MAX; i++) {
        tensors[i] = (plim__tensor_t){"", PLIM_F32, 4, {1, 1, 1, 1}, &value};
        (void)snprintf(tensors[i].name, sizeof tensors[i].name, "%0*d", PLIM__TENSOR_NAME_MAX - 1,
                       i);
    }
    int64_t before = plim__ledger_reserved(world.job.ledger);
    assert_ok(test_safetensors_write(&world.job, world.path, notes, 2, tensors, PLIM__TENSORS_MAX));
    assert_ok(plim__safetensors_open(&world.job, AT_FDCWD, world.path, &file));
    assert_int_equal(plim__safetensors_count(file), PLIM__TENSORS_MAX);
    plim__safetensors_close(file);
    assert_true(plim__ledger_peak(world.job.ledger) - before <=
                (int64_t)plim__safetensors_estimate(PLIM__TENSORS_MAX));
    world_end(&world);
}

static void refuses_what_no_file_can_hold(void **state)
{
    (void)state;
    world_t world;
    plim__tensor_t tensors[4];
    plim__note_t twice[] = {{"a", "1"}, {"a", "2"}};
    static char text[300 << 10];
    struct stat about;
    world_make(&world);
    make_tensors(tensors);
    memset(text, 'x', sizeof text - 1);
    twice[1] = (plim__note_t){"b", text};
    assert_int_equal(test_safetensors_write(&world.job, world.path, twice, 2, tensors, 4),
                     PLIM_ERR_USAGE);
    tensors[3].shape[0] = INT64_MAX / 2;
    assert_int_equal(test_safetensors_write(&world.job, world.path, notes, 2, tensors, 4),
                     PLIM_ERR_USAGE);
    tensors[3].shape[0] = (int64_t)1 << 50;
    assert_int_equal(test_safetensors_write(&world.job, world.path, notes, 2, tensors, 4),
                     PLIM_ERR_SPACE);
    assert_int_equal(stat(world.path, &about), -1);
    assert_int_equal(test_safetensors_write(&world.job, "/nowhere/at/all", notes, 2, tensors, 4),
                     PLIM_ERR_IO);
    world_end(&world);
}

static void refuses_hostile_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        plim_status_t status;
        const char *words;
    } cases[] = {
        {HALF "}", 8, PLIM_OK, ""},
        {HALF "}   ", 8, PLIM_OK, ""},
        {"{}", 0, PLIM_OK, ""},
        {"{\"__metadata__\":{\"a\":\"b\"}}", 0, PLIM_OK, ""},
        {HALF "}", 7, PLIM_ERR_DATA, "7 bytes"},
        {HALF "}", 9, PLIM_ERR_DATA, "9 bytes of data"},
        {" " HALF "}", 8, PLIM_ERR_DATA, "does not begin with '{'"},
        {HALF, 8, PLIM_ERR_DATA, "JSON"},
        {HALF "}x", 8, PLIM_ERR_DATA, "JSON"},
        {HALF ",\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[8,12]}}", 12, PLIM_ERR_DATA,
         "duplicate"},
        {HALF ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[12,16]}}", 16,
         PLIM_ERR_DATA, "hole"},
        {HALF ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, PLIM_ERR_DATA,
         "overlaps"},
        {HALF ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, PLIM_ERR_DATA,
         "overlaps"},
        {HALF ",\"b\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]}}", 8, PLIM_ERR_DATA,
         "overlaps"},
        {HALF ",\"b\":7}", 8, PLIM_ERR_DATA, "an object"},
        {HALF ",\"\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,8]}}", 8,
         PLIM_ERR_UNSUPPORTED, "name"},
        {HALF ",\"b\":{\"shape\":[0],\"data_offsets\":[8,8]}}", 8, PLIM_ERR_DATA, "dtype"},
        {HALF ",\"b\":{\"dtype\":\"BF16\",\"shape\":[0],\"data_offsets\":[8,8]}}", 8,
         PLIM_ERR_UNSUPPORTED, "'BF16'"},
        {HALF ",\"b\":{\"dtype\":\"F32\",\"data_offsets\":[8,8]}}", 8, PLIM_ERR_DATA, "shape"},
        {HALF ",\"b\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[8,4]}}", 8, PLIM_ERR_DATA,
         "shape"},
        {HALF ",\"b\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1],\"data_offsets\":[8,12]}}", 12,
         PLIM_ERR_UNSUPPORTED, "dimensions"},
        {HALF ",\"b\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[8,14]}}", 14,
         PLIM_ERR_DATA, "shape"},
        {HALF ",\"b\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[8,8]}}",
         8, PLIM_ERR_DATA, "offsets"},
        {HALF ",\"b\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],"
              "\"data_offsets\":[8,8]}}",
         8, PLIM_ERR_DATA, "JSON"},
        {HALF ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[16,8]}}", 16,
         PLIM_ERR_DATA, "data_offsets"},
        {HALF ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8]}}", 16, PLIM_ERR_DATA,
         "data_offsets"},
        {HALF ",\"__metadata__\":{\"a\":1}}", 8, PLIM_ERR_DATA, "note 'a'"},
        {HALF ",\"__metadata__\":[]}", 8, PLIM_ERR_DATA, "metadata"},
        {"{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4,
         PLIM_ERR_DATA, "JSON"},
    };
    world_t world;
    plim__safetensors_t *file;
    world_make(&world);
    int64_t before = plim__ledger_reserved(world.job.ledger);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_raw(world.path, strlen(cases[i].header), cases[i].header, cases[i].data);
        plim_status_t status = plim__safetensors_open(&world.job, AT_FDCWD, world.path, &file);
        if (status != cases[i].status)
            print_message("%s\n", cases[i].header);
        assert_int_equal(status, cases[i].status);
        if (status == PLIM_OK)
            plim__safetensors_close(file);
        else if (strstr(plim_last_error(), cases[i].words) == NULL)
            fail_msg("'%s' does not say '%s'", plim_last_error(), cases[i].words);
        assert_int_equal(plim__ledger_reserved(world.job.ledger), before);
    }
    world_end(&world);
}

static void refuses_impossible_lengths(void **state)
{
    (void)state;
    static char deep[256 << 10];
    world_t world;
    plim__safetensors_t *file;
    world_make(&world);
    assert_int_equal(plim__safetensors_open(&world.job, AT_FDCWD, world.path, &file), PLIM_ERR_IO);
    assert_int_equal(plim__safetensors_open(&world.job, AT_FDCWD, world.directory, &file),
                     PLIM_ERR_IO);
    static const uint64_t lengths[] = {0, 1, 11, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 62};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        write_raw(world.path, lengths[i], "{}", 8);
        assert_int_equal(plim__safetensors_open(&world.job, AT_FDCWD, world.path, &file),
                         PLIM_ERR_DATA);
    }
    assert_int_equal(truncate(world.path, 9), 0);
    assert_int_equal(plim__safetensors_open(&world.job, AT_FDCWD, world.path, &file),
                     PLIM_ERR_DATA);
    assert_int_equal(truncate(world.path, 0), 0);
    assert_int_equal(plim__safetensors_open(&world.job, AT_FDCWD, world.path, &file),
                     PLIM_ERR_DATA);
    /* A header that is nothing but brackets would take a hundred times its size to parse. */
    memset(deep, '{', sizeof deep - 1);
    write_raw(world.path, sizeof deep - 1, deep, 0);
    assert_int_equal(plim__safetensors_open(&world.job, AT_FDCWD, world.path, &file),
                     PLIM_ERR_UNSUPPORTED);
    write_raw(world.path, 300 << 10, deep, 0);
    assert_int_equal(truncate(world.path, 400 << 10), 0);
    assert_int_equal(plim__safetensors_open(&world.job, AT_FDCWD, world.path, &file),
                     PLIM_ERR_UNSUPPORTED);
    world_end(&world);
}

static plim_status_t write_and_open(plim_job_t *job, void *context)
{
    const world_t *world = context;
    plim__tensor_t tensors[4];
    plim__safetensors_t *file;
    make_tensors(tensors);
    plim_status_t status = test_safetensors_write(job, world->path, notes, 2, tensors, 4);
    if (status != PLIM_OK)
        return status;
    status = plim__safetensors_open(job, AT_FDCWD, world->path, &file);
    if (status == PLIM_OK)
        plim__safetensors_close(file);
    return status;
}

static void survives_every_failing_arena(void **state)
{
    (void)state;
    world_t world;
    world_make(&world);
    test_fail_each_arena(&world.job, write_and_open, &world);
    world_end(&world);
}

/* In a child: a file may not grow beyond 64 KiB there. Returns the status. */
static plim_status_t write_limited(world_t *world, const plim__tensor_t *tensor)
{
    int how;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit limit = {64 << 10, 64 << 10};
        (void)signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
            _exit(99);
        _exit(-test_safetensors_write(&world->job, world->path, notes, 2, tensor, 1));
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    return (plim_status_t)-WEXITSTATUS(how);
}

static void a_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    world_t world;
    plim__tensor_t tensors[4];
    plim__safetensors_t *file;
    static float big[100000];
    world_make(&world);
    make_tensors(tensors);
    assert_ok(test_safetensors_write(&world.job, world.path, notes, 2, tensors, 4));
    plim__tensor_t tensor = {"big", PLIM_F32, 1, {100000, 0, 0, 0}, big};
    assert_int_equal(write_limited(&world, &tensor), PLIM_ERR_SPACE);
    assert_ok(plim__safetensors_open(&world.job, AT_FDCWD, world.path, &file));
    assert_int_equal(plim__safetensors_count(file), 4);
    plim__safetensors_close(file);
    assert_int_equal(unlink(world.path), 0);
    assert_int_equal(rmdir(world.directory), 0); /* nothing else is left */
    assert_int_equal(mkdir(world.directory, 0700), 0);
    world_end(&world);
}

static void is_as_readable_as_its_directory(void **state)
{
    (void)state;
    world_t world;
    struct stat about;
    world_make(&world);
    const mode_t before = umask(022);
    assert_int_equal(chmod(world.directory, 0770), 0);
    assert_ok(test_safetensors_write(&world.job, world.path, notes, 2, NULL, 0));
    assert_int_equal(stat(world.path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0640);
    assert_int_equal(chmod(world.directory, 0700), 0);
    assert_ok(test_safetensors_write(&world.job, world.path, notes, 2, NULL, 0));
    assert_int_equal(stat(world.path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    (void)umask(before);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back_what_was_written),
        cmocka_unit_test(finds_every_flipped_bit),
        cmocka_unit_test(takes_what_another_program_has_saved_again),
        cmocka_unit_test(says_what_is_missing_or_of_another_shape),
        cmocka_unit_test(writes_tensors_of_any_size_in_fixed_memory),
        cmocka_unit_test(holds_the_most_tensors),
        cmocka_unit_test(refuses_what_no_file_can_hold),
        cmocka_unit_test(refuses_hostile_headers),
        cmocka_unit_test(refuses_impossible_lengths),
        cmocka_unit_test(survives_every_failing_arena),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(is_as_readable_as_its_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
