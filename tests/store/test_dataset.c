/* Opening and verifying: valid datasets open, every error is found. */
#include "support/dataset.h"
#include "support/harness.h"

#include "base/rng.h"
#include "store/manifest.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char base[512];
static char path[600];

static int set_up(void **state)
{
    (void)state;
    test_directory_make(base);
    (void)snprintf(path, sizeof path, "%s/set", base);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)chmod(path, 0755);
    test_directory_remove(base);
    return 0;
}

static plim_status_t open_and_verify(plim_job_t *job, void *context)
{
    plim_dataset_t *dataset;
    plim_status_t status = plim_dataset_open(job, context, &dataset);
    if (status != PLIM_OK)
        return status;
    status = plim_dataset_verify(job, dataset);
    plim_dataset_release(dataset);
    return status;
}

static void says_what_it_holds(void **state)
{
    (void)state;
    plim_dataset_t *dataset;
    plim_dataset_file_t file = PLIM_DATASET_FILE_INIT;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    test_graph_t graph = {.num_nodes = 103,
                          .num_features = 6,
                          .num_classes = 5,
                          .half = true,
                          .graphs = true,
                          .ids = true,
                          .options = "--of x"};
    assert_ok(test_dataset_make(&job, path, &graph));
    assert_ok(plim_dataset_open(&job, path, &dataset));
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    assert_int_equal(info->format, PLIM__FORMAT);
    assert_int_equal(info->max_self_loops, -1); /* the writer was not told */
    assert_int_equal(info->num_nodes, 103);
    assert_int_equal(info->num_features, 6);
    assert_int_equal(info->feature_type, PLIM_F16);
    assert_int_equal(info->index_type, PLIM_I32);
    assert_int_equal(info->num_graphs, 21);
    assert_int_equal(info->num_labels, 21);
    assert_int_equal(info->num_classes, 5);
    assert_int_equal(info->label_kind, PLIM_LABELS_CLASSES);
    assert_int_equal(info->num_split[0], 7);
    assert_int_equal(info->num_split[2], 7);
    assert_true(info->feature_error == 0.1 / 3);
    assert_int_equal(strlen(info->fingerprint), 16);
    assert_string_equal(plim_dataset_info(dataset)->source, "test \"quoted\" \xc3\xa9");
    assert_string_equal(plim_dataset_info(dataset)->options, "--of x");
    assert_true(plim_dataset_file(dataset, 0, &file));
    assert_string_equal(file.name, "features.npy");
    assert_string_equal(file.type, "<f2");
    assert_int_equal(file.bytes, 4096 + 103 * 6 * 2);
    assert_false(plim_dataset_file(dataset, 9, &file));
    assert_false(plim_dataset_file(dataset, -1, &file));
    assert_ok(plim_dataset_verify(&job, dataset));
    plim_dataset_release(dataset);
    plim_dataset_release(NULL);
    test_job_end(&job);
}

static void says_which_columns_it_has(void **state)
{
    static const plim_dtype_t forms[] = {PLIM_F32, PLIM_F16, PLIM_I64};
    (void)state;
    for (unsigned columns = 0; columns < 1u << PLIM_COLUMNS; columns++) {
        plim_dataset_t *dataset;
        char own[600];
        plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
        const test_graph_t graph = {.num_nodes = 9,
                                    .num_classes = 2,
                                    .columns = columns,
                                    .edge_width = columns % 3,
                                    .edge_form = forms[columns / 3 % 3]};
        (void)snprintf(own, sizeof own, "%s/columns%u", base, columns);
        assert_ok(test_dataset_make(&job, own, &graph));
        assert_ok(plim_dataset_open(&job, own, &dataset));
        const plim_dataset_info_t *info = plim_dataset_info(dataset);
        const bool features = (columns & PLIM_EDGE_FEATURES) != 0;
        assert_int_equal(info->columns, columns);
        assert_int_equal(info->num_edge_features, !features         ? 0
                                                  : columns % 3 > 0 ? columns % 3
                                                                    : 1);
        assert_int_equal(info->edge_feature_dims, !features ? 0 : columns % 3 > 0 ? 2 : 1);
        assert_int_equal(info->edge_feature_type, features ? graph.edge_form : 0);
        assert_int_equal(info->num_edge_types, (columns & PLIM_EDGE_TYPE) != 0 ? 7 : 0);
        assert_ok(plim_dataset_verify(&job, dataset));
        plim_dataset_release(dataset);
        test_job_end(&job);
    }
}

static void fingerprint_is_of_the_data_alone(void **state)
{
    (void)state;
    plim_dataset_t *first, *same, *other;
    char paths[2][600];
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    test_graph_t graph = {.num_nodes = 50, .num_features = 2, .num_classes = 2, .options = "a"};
    assert_ok(test_dataset_make(&job, path, &graph));
    (void)snprintf(paths[0], sizeof paths[0], "%s/same", base);
    (void)snprintf(paths[1], sizeof paths[1], "%s/other", base);
    graph.options = "b";
    assert_ok(test_dataset_make(&job, paths[0], &graph));
    graph.seed = 1;
    assert_ok(test_dataset_make(&job, paths[1], &graph));
    assert_ok(plim_dataset_open(&job, path, &first));
    assert_ok(plim_dataset_open(&job, paths[0], &same));
    assert_ok(plim_dataset_open(&job, paths[1], &other));
    assert_string_equal(plim_dataset_info(first)->fingerprint,
                        plim_dataset_info(same)->fingerprint);
    assert_string_not_equal(plim_dataset_info(first)->fingerprint,
                            plim_dataset_info(other)->fingerprint);
    plim_dataset_release(first);
    plim_dataset_release(same);
    plim_dataset_release(other);
    test_job_end(&job);
}

/* The files of the dataset, their sizes and the sum of these. */
typedef struct listing {
    int count;
    char names[16][64];
    int64_t sizes[16];
    int64_t total;
} listing_t;

static void list(listing_t *listing)
{
    DIR *open = opendir(path);
    assert_non_null(open);
    for (struct dirent *entry; (entry = readdir(open)) != NULL;) {
        struct stat about;
        if (entry->d_name[0] == '.')
            continue;
        int i = listing->count++;
        (void)snprintf(listing->names[i], sizeof listing->names[i], "%.60s", entry->d_name);
        assert_int_equal(fstatat(dirfd(open), entry->d_name, &about, 0), 0);
        listing->sizes[i] = about.st_size;
        listing->total += about.st_size;
    }
    (void)closedir(open);
}

static void flip(const char *name, int64_t bit)
{
    char whole[700];
    unsigned char byte;
    (void)snprintf(whole, sizeof whole, "%s/%s", path, name);
    int fd = open(whole, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, bit / 8), 1);
    byte ^= (unsigned char)(1u << (bit % 8));
    assert_int_equal(pwrite(fd, &byte, 1, bit / 8), 1);
    (void)close(fd);
}

/* Half of the flips fall on any bit of all files alike, half on any file alike, so that small files
 * and headers get their share. */
static void every_flipped_bit_is_found(void **state)
{
    (void)state;
    listing_t listing = {0};
    const uint64_t key = plim__rng_key(20, 0, 0, 0);
    uint64_t counter = 0;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_THREADS);
    test_graph_t graph = {.num_nodes = 600,
                          .num_features = 9,
                          .num_classes = 5,
                          .half = true,
                          .graphs = true,
                          .ids = true};
    assert_ok(test_dataset_make(&job, path, &graph));
    list(&listing);
    assert_int_equal(listing.count, 10);
    for (int i = 0; i < 1000; i++) {
        int file = (int)plim__rng_below(key, &counter, (uint64_t)listing.count);
        int64_t at = (int64_t)plim__rng_below(key, &counter, (uint64_t)listing.sizes[file] * 8);
        if (i % 2 == 0) {
            at = (int64_t)plim__rng_below(key, &counter, (uint64_t)listing.total * 8);
            for (file = 0; at >= listing.sizes[file] * 8; file++)
                at -= listing.sizes[file] * 8;
        }
        flip(listing.names[file], at);
        plim_status_t status = open_and_verify(&job, path);
        if (status != PLIM_ERR_DATA && status != PLIM_ERR_UNSUPPORTED)
            fail_msg("bit %lld of %s: %s", (long long)at, listing.names[file],
                     plim_status_name(status));
        assert_non_null(strstr(plim_last_error(), listing.names[file]));
        flip(listing.names[file], at);
    }
    assert_ok(open_and_verify(&job, path));
    test_job_end(&job);
}

static void wrong_sizes_and_missing_files_are_found(void **state)
{
    (void)state;
    char whole[700], away[700];
    plim_dataset_t *dataset;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    test_graph_t graph = {.num_nodes = 20, .num_features = 3, .num_classes = 2};
    assert_int_equal(plim_dataset_open(&job, path, &dataset), PLIM_ERR_USAGE);
    assert_non_null(strstr(plim_last_error(), path));
    assert_int_equal(plim_dataset_open(&job, base, &dataset), PLIM_ERR_USAGE);
    assert_non_null(strstr(plim_last_error(), "not a dataset"));
    assert_ok(test_dataset_make(&job, path, &graph));
    (void)snprintf(whole, sizeof whole, "%s/labels.npy", path);
    (void)snprintf(away, sizeof away, "%s/away", base);
    assert_int_equal(truncate(whole, 4096 + 20 * 8 - 1), 0);
    assert_int_equal(plim_dataset_open(&job, path, &dataset), PLIM_ERR_DATA);
    assert_non_null(strstr(plim_last_error(), "labels.npy"));
    assert_int_equal(truncate(whole, 4096 + 20 * 8 + 1), 0);
    assert_int_equal(plim_dataset_open(&job, path, &dataset), PLIM_ERR_DATA);
    assert_int_equal(rename(whole, away), 0);
    assert_int_equal(plim_dataset_open(&job, path, &dataset), PLIM_ERR_IO);
    assert_non_null(strstr(plim_last_error(), "labels.npy"));
    test_job_end(&job);
}

static void needs_no_right_to_write(void **state)
{
    (void)state;
    struct stat before, after;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    test_graph_t graph = {.num_nodes = 200, .num_features = 3, .num_classes = 2};
    assert_ok(test_dataset_make(&job, path, &graph));
    assert_int_equal(chmod(path, 0555), 0);
    assert_int_equal(stat(path, &before), 0);
    if (geteuid() == 0)
        print_message("runs as root, to whom the mode means nothing: only times are compared\n");
    assert_ok(open_and_verify(&job, path));
    assert_int_equal(stat(path, &after), 0);
    assert_memory_equal(&before.st_mtim, &after.st_mtim, sizeof before.st_mtim);
    assert_memory_equal(&before.st_ctim, &after.st_ctim, sizeof before.st_ctim);
    test_job_end(&job);
}

static void fails_cleanly_without_memory(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_THREADS);
    test_graph_t graph = {.num_nodes = 200, .num_features = 3, .num_classes = 2};
    assert_ok(test_dataset_make(&job, path, &graph));
    test_fail_each_arena(&job, open_and_verify, path);
    test_job_end(&job);
}

/* From no room at all to enough of it: refused for the budget, or done; never anything else. */
static void works_under_a_low_line(void **state)
{
    (void)state;
    test_graph_t graph = {.num_nodes = 2000, .num_features = 30, .num_classes = 2};
    plim_job_t job = test_job_make((int64_t)4 << 30, 8, PLIM_IO_THREADS);
    assert_ok(test_dataset_make(&job, path, &graph));
    int64_t least = -1;
    for (int64_t room = 64 << 10; room < (int64_t)64 << 20; room += room / 4) {
        int account;
        size_t rest = (size_t)(plim__ledger_available(job.ledger) - room);
        assert_ok(plim__ledger_reserve(job.ledger, "the rest", rest, &account));
        plim_status_t status = open_and_verify(&job, path);
        plim__ledger_release(job.ledger, account, rest);
        if (status != PLIM_ERR_BUDGET)
            assert_ok(status);
        if (status == PLIM_OK && least < 0)
            least = room;
        assert_true(least < 0 || status == PLIM_OK);
    }
    test_job_end(&job);
    print_message("verifies in %lld KiB\n", (long long)least >> 10);
    assert_in_range(least, 1, 8 << 20); /* under sanitizers stacks are larger */
}

/* A right dataset.json with one thing replaced by another, its seal made anew where it matters. */
static void hostile_text_is_refused(void **state)
{
    static const struct {
        const char *from, *to;
    } changes[] = {
        {"\"num_nodes\": 30", "\"num_nodes\": -30"},
        {"\"num_nodes\": 30", "\"num_nodes\": 9223372036854775807"},
        {"\"num_nodes\": 30", "\"num_nodes\": 9223372036854775808"},
        {"\"num_nodes\": 30", "\"num_nodes\": 30.0"},
        {"\"num_nodes\": 30", "\"num_nodes\": 31"},
        {"\"num_nodes\": 30", "\"num_nodes\": 30, \"num_nodes\": 30"},
        {"\"num_train\": 10", "\"num_train\": 11"},
        {"\"num_classes\": 2", "\"num_classes\": -2"},
        {"\"max_degree\": ", "\"max_degree\": 9"},
        {"\"max_degree\": ", "\"max_self_loops\": 13, \"max_degree\": "},
        {"\"max_degree\": ", "\"max_self_loops\": -1, \"max_degree\": "},
        {"\"format\": 6", "\"format\": 0"},
        {"\"readable_by\": 4", "\"readable_by\": 0"},
        {"\"readable_by\": 4", "\"readable_by\": true"},
        {"\"dataset\"", "\"something\""},
        {"\"labels.npy\"", "\"../labels.npy\""},
        {"\"labels.npy\"", "\"x/labels.npy\""},
        {"\"labels.npy\"", "\"labels\\u0000.npy\""},
        {"\"labels.npy\"", "\"train.npy\""},
        {"\"labels.npy\"", "\".npy\""},
        {"\"labels.npy\"", "\"labels_labels_labels_labels_labels_labels_labels.npy\""},
        {"\"indptr.npy\"", "\"inptrs.npy\""},
        {"\"<f4\"", "\"<f8\""},
        {"\"<f4\"", "\"<c8\""},
        {"\"<f4\"", "4"},
        {"\"shape\": [", "\"shape\": [1, 1, 1, "},
        {"\"shape\": [", "\"shape\": [4611686018427387904, 4, "},
        {"\"shape\": [", "\"shape\": [-1, "},
        {"\"bytes\": ", "\"bytes\": 1"},
        {"\"bytes\": ", "\"bytes\": -"},
        {"\"checksums\": [", "\"checksums\": [\"0123456789abcdef\","},
        {"\"checksums\": [", "\"checksums\": [1,"},
        {"\"checksums\": [", "\"checksums\": {\"a\": 1}, \"x\": ["},
        {"\"feature_error\": 0.0", "\"feature_error\": -1.0"},
        {"\"feature_error\": 0.0", "\"feature_error\": 1e999"},
        {"\"feature_error\": 0.0", "\"feature_error\": null"},
        {"\"degrees_log2\": [", "\"degrees_log2\": [1,"},
        {"\"fingerprint\": \"", "\"fingerprint\": \"0"},
        {"\"provenance\": {", "\"provenance\": [1], \"x\": {"},
        {"\"files\": [", "\"files\": [[],"},
        {"\"files\": [", "\"files\": [{},"},
        {"\"label_kind\": \"classes\"", "\"label_kind\": \"values\""},
        {"\"index_type\": \"int32\"", "\"index_type\": \"int64\""},
        {"\"edge_weight.npy\"", "\"edge_id.npy\""}, /* of another type */
        {"\"edge_time.npy\"", "\"node_time.npy\""}, /* of another length */
        {"\"num_edge_types\": 7", "\"num_edge_types\": -7"},
        {"\"num_edge_types\": 7", "\"num_edge_types\": 2147483649"},
        {"\"num_edge_types\": 7", "\"num_edge_types\": 8"}, /* another fingerprint */
        {"\"num_edge_types\": 7", "\"other\": 7"},
        {"{", "[{"},
        {"}\n", "}\n}\n"},
    };
    (void)state;
    char whole[700];
    static char text[65536], changed[70000];
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    test_graph_t graph = {.num_nodes = 30,
                          .num_features = 3,
                          .num_classes = 2,
                          .columns = PLIM_EDGE_WEIGHT | PLIM_EDGE_TYPE | PLIM_EDGE_TIME};
    assert_ok(test_dataset_make(&job, path, &graph));
    (void)snprintf(whole, sizeof whole, "%s/dataset.json", path);
    FILE *file = fopen(whole, "rb");
    assert_non_null(file);
    size_t size = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    plim__arena_t arena;
    plim__manifest_t *manifest;
    assert_ok(plim__manifest_parse(&job, text, size, "it", &arena, &manifest));
    manifest->info.num_edge_types = 0; /* with a fingerprint that agrees */
    assert_int_equal(plim__manifest_resolve(manifest, "it"), PLIM_ERR_DATA);
    plim__arena_destroy(&arena);
    assert_ok(plim__manifest_check_seal(text, size, "it"));
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        char *place = strstr(text, changes[i].from);
        assert_non_null(place);
        int length = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(place - text), text,
                              changes[i].to, place + strlen(changes[i].from));
        int64_t before = plim__ledger_reserved(job.ledger);
        plim_status_t status =
            plim__manifest_parse(&job, changed, (size_t)length, "it", &arena, &manifest);
        if (status != PLIM_ERR_DATA)
            fail_msg("%s for %s: %s", changes[i].to, changes[i].from, plim_status_name(status));
        assert_int_equal(plim__manifest_check_seal(changed, (size_t)length, "it"), PLIM_ERR_DATA);
        assert_int_equal(plim__ledger_reserved(job.ledger), before);
    }
    for (size_t length = 0; length < size; length += 7) {
        assert_int_equal(plim__manifest_parse(&job, text, length, "it", &arena, &manifest),
                         PLIM_ERR_DATA);
        assert_int_equal(plim__manifest_check_seal(text, length, "it"), PLIM_ERR_DATA);
    }
    test_job_end(&job);
}

static void newer_formats_follow_the_rule(void **state)
{
    static const struct {
        const char *to;
        plim_status_t status;
    } versions[] = {
        {"\"format\": 7,\n  \"readable_by\": 1", PLIM_OK},
        {"\"format\": 7,\n  \"new\": {\"x\": [1, null]},\n  \"readable_by\": 1", PLIM_OK},
        {"\"format\": 7,\n  \"readable_by\": 7", PLIM_ERR_UNSUPPORTED},
    };
    static const char from[] = "\"format\": 6,\n  \"readable_by\": 4";
    (void)state;
    char whole[700];
    static char text[65536], changed[70000];
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    test_graph_t graph = {.num_nodes = 30, .num_features = 3, .num_classes = 2};
    assert_ok(test_dataset_make(&job, path, &graph));
    (void)snprintf(whole, sizeof whole, "%s/dataset.json", path);
    FILE *file = fopen(whole, "rb");
    assert_non_null(file);
    (void)fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    char *place = strstr(text, from);
    assert_non_null(place);
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        plim__arena_t arena;
        plim__manifest_t *manifest;
        int length = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(place - text), text,
                              versions[i].to, place + sizeof from - 1);
        plim_status_t status =
            plim__manifest_parse(&job, changed, (size_t)length, "it", &arena, &manifest);
        assert_int_equal(status, versions[i].status);
        if (status != PLIM_OK)
            continue;
        assert_int_equal(manifest->info.format, 7);
        plim__arena_destroy(&arena);
    }
    test_job_end(&job);
}

/* What jansson holds, counted as malloc gives it out. */
static size_t held, most_held;

static void *counting_malloc(size_t size)
{
    void *memory = malloc(size);
    held += memory != NULL ? malloc_usable_size(memory) + 16 : 0;
    most_held = held > most_held ? held : most_held;
    return memory;
}

static void counting_free(void *memory)
{
    held -= memory != NULL ? malloc_usable_size(memory) + 16 : 0;
    free(memory);
}

/* Texts that are dear to parse; none of them may take more than was reserved for it. */
static void json_memory_is_reserved_honestly(void **state)
{
    static const struct {
        const char *head, *part, *tail;
        int count;
    } shapes[] = {
        {"[", "{},", "0]", 20000},
        {"[", "[],", "0]", 20000},
        {"[", "1,", "0]", 40000},
        {"[", "\"\",", "0]", 20000},
        {"[", "\"0123456789abcdef\",\n", "0]", 20000},
        {"[", "{\"a\":{}},", "0]", 20000},
        {"[", "1.5,", "0]", 20000},
        {"", "[", "", 2000},
        {"", "{\"a\":", "", 2000},
        {"\"", "aaaaaaaaaaaaaaaa", "\"", 20000},
        {"{\"", "aaaaaaaaaaaaaaaa", "\": 1}", 20000},
        {"{", "\"%d\":1,", "\"x\":1}", 20000},
    };
    (void)state;
    static char text[1 << 19];
    json_set_alloc_funcs(counting_malloc, counting_free);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
        plim_account_info_t accounts[8];
        plim__arena_t arena;
        plim__manifest_t *manifest;
        size_t size = (size_t)snprintf(text, sizeof text, "%s", shapes[i].head);
        bool numbered = strchr(shapes[i].part, '%') != NULL;
        for (int j = 0; j < shapes[i].count; j++)
            size += numbered
                        ? (size_t)snprintf(text + size, sizeof text - size, "\"%d\":1,", j)
                        : (size_t)snprintf(text + size, sizeof text - size, "%s", shapes[i].part);
        size += (size_t)snprintf(text + size, sizeof text - size, "%s", shapes[i].tail);
        assert_true(size < sizeof text);
        held = most_held = 0;
        assert_int_equal(plim__manifest_parse(&job, text, size, "it", &arena, &manifest),
                         PLIM_ERR_DATA);
        assert_int_equal(held, 0);
        int count = plim__ledger_accounts(job.ledger, 8, accounts);
        for (int j = 0; j < count; j++)
            if (strcmp(accounts[j].name, "json") == 0) {
                print_message("%-12.12s %zu bytes, %zu held, %lld reserved\n", shapes[i].part, size,
                              most_held, (long long)accounts[j].peak);
                assert_true(accounts[j].peak >= (int64_t)most_held);
            }
        test_job_end(&job);
    }
    json_set_alloc_funcs(malloc, free);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(says_what_it_holds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(fingerprint_is_of_the_data_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_flipped_bit_is_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrong_sizes_and_missing_files_are_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(needs_no_right_to_write, set_up, tear_down),
        cmocka_unit_test_setup_teardown(fails_cleanly_without_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(works_under_a_low_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(hostile_text_is_refused, set_up, tear_down),
        cmocka_unit_test(json_memory_is_reserved_honestly),
        cmocka_unit_test_setup_teardown(newer_formats_follow_the_rule, set_up, tear_down),
        cmocka_unit_test_setup_teardown(says_which_columns_it_has, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
