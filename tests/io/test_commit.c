/* Directories and files that appear whole or not at all. */
/* labels: asan unprivileged */
#include "support/harness.h"

#include "io/commit.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct place {
    char directory[512];
    char target[600];
    char partial[600];
} place_t;

static void place_make(place_t *place)
{
    test_directory_make(place->directory);
    (void)snprintf(place->target, sizeof place->target, "%s/data", place->directory);
    (void)snprintf(place->partial, sizeof place->partial, "%s/.data.partial", place->directory);
}

static bool exists(const char *path)
{
    struct stat about;
    return lstat(path, &about) == 0;
}

/* Without the lock of a staging directory. */
static int entries(const char *path)
{
    int count = 0;
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory))
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                 strcmp(entry->d_name, ".lock") != 0;
    (void)closedir(directory);
    return count;
}

static void put(const char *directory, const char *name, const char *text)
{
    char path[1200];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void commits_a_directory(void **state)
{
    (void)state;
    static const char *const tails[] = {"", "/", "///"};
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        place_t place;
        plim__staging_t staging;
        char target[700];
        place_make(&place);
        (void)snprintf(target, sizeof target, "%s%s", place.target, tails[i]);
        assert_ok(plim__staging_begin(target, &staging));
        assert_string_equal(staging.path, place.partial);
        assert_string_equal(staging.target, place.target);
        put(staging.path, "a", "1");
        assert_false(exists(place.target));
        assert_ok(plim__staging_commit(&staging));
        assert_int_equal(entries(place.target), 1);
        assert_int_equal(entries(place.directory), 1);
        plim__staging_abandon(&staging);
        assert_int_equal(entries(place.target), 1);
        test_directory_remove(place.directory);
    }
}

static void works_in_the_current_directory(void **state)
{
    (void)state;
    place_t place;
    plim__staging_t staging;
    char before[4096];
    place_make(&place);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(place.directory), 0);
    assert_ok(plim__staging_begin("data", &staging));
    assert_string_equal(staging.path, ".data.partial");
    assert_ok(plim__staging_commit(&staging));
    assert_true(exists("data"));
    assert_ok(plim__commit_file(AT_FDCWD, "note", "x", 1, false));
    assert_true(exists("note"));
    assert_int_equal(chdir(before), 0);
    test_directory_remove(place.directory);
}

static void abandons_everything(void **state)
{
    (void)state;
    place_t place;
    plim__staging_t staging;
    char path[1300];
    place_make(&place);
    assert_ok(plim__staging_begin(place.target, &staging));
    for (int i = 0; i < 300; i++) {
        (void)snprintf(path, sizeof path, "a-file-with-a-long-name-%d", i);
        put(staging.path, path, "1");
    }
    (void)snprintf(path, sizeof path, "%s/below", staging.path);
    assert_int_equal(mkdir(path, 0700), 0);
    put(path, "b", "2");
    plim__staging_abandon(&staging);
    assert_int_equal(entries(place.directory), 0);
    plim__staging_abandon(&staging);
    plim__staging_t zeroed = {0};
    plim__staging_abandon(&zeroed);
    test_directory_remove(place.directory);
}

static void removes_what_a_killed_run_left(void **state)
{
    (void)state;
    place_t place;
    plim__staging_t staging;
    place_make(&place);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (plim__staging_begin(place.target, &staging) != PLIM_OK)
            _exit(1);
        put(staging.path, "half.npy", "written");
        put(staging.path, ".nfs00000000deadbeef00000001", "unlinked while it was open");
        (void)raise(SIGKILL);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    assert_true(exists(place.partial));
    assert_ok(plim__staging_begin(place.target, &staging));
    assert_int_equal(entries(staging.path), 0);
    plim__staging_abandon(&staging);
    test_directory_remove(place.directory);
}

/* A directory of that name that somebody else made is not touched. */
static void empties_only_what_is_its_own(void **state)
{
    (void)state;
    place_t place;
    plim__staging_t staging;
    char path[1200];
    for (int i = 0; i < 3; i++) {
        place_make(&place);
        assert_int_equal(mkdir(place.partial, 0700), 0);
        put(place.partial, "half.npy", "written");
        (void)snprintf(path, sizeof path, "%s/link.npy", place.partial);
        if (i == 0)
            put(place.partial, "thesis.tex", "1");
        else if (i == 1)
            assert_int_equal(symlink(place.directory, path), 0);
        else
            assert_int_equal(mkdir(path, 0700), 0);
        assert_int_equal(plim__staging_begin(place.target, &staging), PLIM_ERR_USAGE);
        assert_int_equal(entries(place.partial), 2);
        test_directory_remove(place.directory);
    }
}

static mode_t mode_of(const char *path)
{
    struct stat about;
    assert_int_equal(lstat(path, &about), 0);
    return about.st_mode & 07777;
}

/* A finished directory has the usual permissions; an unfinished one is closed to other users. */
static void keeps_others_out_until_the_end(void **state)
{
    (void)state;
    static const mode_t masks[] = {0, 002, 022, 077};
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        place_t place;
        plim__staging_t staging;
        place_make(&place);
        assert_int_equal(chmod(place.directory, 02775), 0);
        const mode_t mask = umask(masks[i]);
        assert_ok(plim__staging_begin(place.target, &staging));
        assert_int_equal(mode_of(place.partial) & 0777, 0700);
        put(staging.path, "a", "1");
        assert_ok(plim__staging_commit(&staging));
        (void)umask(mask);
        assert_int_equal(mode_of(place.target), 02000 | (0777 & ~masks[i]));
        test_directory_remove(place.directory);
    }
}

/* What another user put under a name of ours is neither used nor changed, by root least of all. */
static void leaves_what_belongs_to_others(void **state)
{
    (void)state;
    place_t place;
    plim__staging_t staging;
    plim__draft_t draft;
    char path[700];
    place_make(&place);
    if (geteuid() != 0) {
        test_directory_remove(place.directory);
        print_message("SKIPPED: only root gives files away\n");
        skip();
    }
    assert_int_equal(mkdir(place.partial, 0777), 0);
    assert_int_equal(chown(place.partial, 12001, 12001), 0);
    assert_int_equal(plim__staging_begin(place.target, &staging), PLIM_ERR_USAGE);
    assert_non_null(strstr(plim_last_error(), "another user"));
    assert_int_equal(rmdir(place.partial), 0); /* empty, and still there */
    put(place.directory, ".data.partial", "theirs");
    (void)snprintf(path, sizeof path, "%s-%ld", place.partial, (long)getpid());
    put(place.directory, strrchr(path, '/') + 1, "theirs");
    assert_int_equal(chown(place.partial, 12001, 12001), 0);
    assert_int_equal(chown(path, 12001, 12001), 0);
    assert_int_equal(plim__commit_file(AT_FDCWD, place.target, "x", 1, false), PLIM_ERR_USAGE);
    assert_int_equal(plim__draft_open(AT_FDCWD, place.target, false, 1, &draft), PLIM_ERR_USAGE);
    plim__draft_close(&draft);
    assert_int_equal(entries(place.directory), 2);
    test_directory_remove(place.directory);
}

/* A directory that others can write to: they exchange the one that is being written for a link. */
static void writes_where_it_began(void **state)
{
    (void)state;
    place_t place;
    plim__staging_t staging;
    char moved[700], victim[700], path[800];
    place_make(&place);
    (void)snprintf(moved, sizeof moved, "%s/moved", place.directory);
    (void)snprintf(victim, sizeof victim, "%s/victim", place.directory);
    assert_int_equal(mkdir(victim, 0700), 0);
    put(victim, "dataset.json", "precious");
    assert_ok(plim__staging_begin(place.target, &staging));
    assert_int_equal(rename(place.partial, moved), 0);
    assert_int_equal(symlink(victim, place.partial), 0);
    (void)snprintf(path, sizeof path, "%s/dataset.json", staging.path);
    assert_ok(plim__commit_file(staging.directory, path, "{}", 2, false));
    assert_int_equal(plim__staging_commit(&staging), PLIM_ERR_DATA);
    assert_non_null(strstr(plim_last_error(), "replaced"));
    plim__staging_abandon(&staging);
    assert_int_equal(entries(moved), 0);
    assert_int_equal(entries(victim), 1);
    test_directory_remove(place.directory);
}

/* A user's own dataset under the name of a staging directory is not taken for one. */
static void empties_no_dataset(void **state)
{
    (void)state;
    place_t place;
    plim__staging_t staging;
    place_make(&place);
    assert_int_equal(mkdir(place.partial, 0755), 0);
    put(place.partial, "dataset.json", "{}");
    put(place.partial, "indptr.npy", "precious");
    assert_int_equal(plim__staging_begin(place.target, &staging), PLIM_ERR_USAGE);
    assert_int_equal(entries(place.partial), 2);
    test_directory_remove(place.directory);
}

static void refuses_what_is_in_use(void **state)
{
    (void)state;
    place_t place;
    plim__staging_t first, second;
    place_make(&place);
    assert_ok(plim__staging_begin(place.target, &first));
    put(first.path, "a", "1");
    assert_int_equal(plim__staging_begin(place.target, &second), PLIM_ERR_USAGE);
    assert_non_null(strstr(plim_last_error(), "another process"));
    assert_int_equal(entries(first.path), 1);
    assert_int_equal(mkdir(place.target, 0700), 0);
    assert_int_equal(plim__staging_commit(&first), PLIM_ERR_USAGE);
    assert_int_equal(entries(place.target), 0);
    plim__staging_abandon(&first);
    assert_int_equal(plim__staging_begin(place.target, &first), PLIM_ERR_USAGE);
    assert_non_null(strstr(plim_last_error(), place.target));
    assert_int_equal(entries(place.directory), 1);
    test_directory_remove(place.directory);
}

/* One contender: 0 when it committed, 1 when it was told that somebody else has it. */
static int contend(const char *target)
{
    plim__staging_t staging;
    plim_status_t status = plim__staging_begin(target, &staging);
    if (status == PLIM_ERR_USAGE)
        return 1;
    if (status != PLIM_OK)
        return 2;
    put(staging.path, "a", "1");
    put(staging.path, "b", "2");
    return plim__staging_commit(&staging) == PLIM_OK ? 0 : 3;
}

static void one_of_many_wins(void **state)
{
    (void)state;
    enum { CONTENDERS = 8, ROUNDS = 10 };
    for (int round = 0; round < ROUNDS; round++) {
        place_t place;
        pid_t children[CONTENDERS];
        int won = 0;
        place_make(&place);
        for (int i = 0; i < CONTENDERS; i++) {
            children[i] = fork();
            assert_true(children[i] >= 0);
            if (children[i] == 0)
                _exit(contend(place.target));
        }
        for (int i = 0; i < CONTENDERS; i++) {
            int how;
            assert_int_equal(waitpid(children[i], &how, 0), children[i]);
            assert_true(WIFEXITED(how) && WEXITSTATUS(how) <= 1);
            won += WEXITSTATUS(how) == 0;
        }
        assert_int_equal(won, 1);
        assert_int_equal(entries(place.target), 2);
        assert_int_equal(entries(place.directory), 1);
        test_directory_remove(place.directory);
    }
}

static void refuses_impossible_targets(void **state)
{
    (void)state;
    place_t place;
    plim__staging_t staging;
    char path[1200];
    place_make(&place);
    static const char *const nameless[] = {"", "/", ".", "..", "a/..", "./"};
    for (size_t i = 0; i < sizeof nameless / sizeof nameless[0]; i++)
        assert_int_equal(plim__staging_begin(nameless[i], &staging), PLIM_ERR_USAGE);
    (void)snprintf(path, sizeof path, "%s/missing/data", place.directory);
    assert_int_equal(plim__staging_begin(path, &staging), PLIM_ERR_IO);
    assert_non_null(strstr(plim_last_error(), "/missing"));
    put(place.directory, "plain", "1");
    (void)snprintf(path, sizeof path, "%s/plain/data", place.directory);
    assert_int_equal(plim__staging_begin(path, &staging), PLIM_ERR_USAGE);
    (void)snprintf(path, sizeof path, "%s/%0250d", place.directory, 1);
    assert_int_equal(plim__staging_begin(path, &staging), PLIM_ERR_USAGE);
    assert_int_equal(symlink("/", place.partial), 0);
    assert_int_equal(plim__staging_begin(place.target, &staging), PLIM_ERR_IO);
    test_directory_remove(place.directory);
}

static void commits_a_file(void **state)
{
    (void)state;
    place_t place;
    char text[16] = {0};
    place_make(&place);
    assert_ok(plim__commit_file(AT_FDCWD, place.target, "first one", 9, false));
    assert_ok(plim__commit_file(AT_FDCWD, place.target, "second", 6, false));
    FILE *file = fopen(place.target, "r");
    assert_non_null(file);
    assert_int_equal(fread(text, 1, sizeof text, file), 6);
    assert_string_equal(text, "second");
    (void)fclose(file);
    assert_int_equal(entries(place.directory), 1);
    assert_int_equal(plim__commit_file(AT_FDCWD, "/nonexistent/file", "", 0, false), PLIM_ERR_IO);
    assert_int_equal(plim__commit_file(AT_FDCWD, place.directory, "", 0, false), PLIM_ERR_IO);
    assert_int_equal(entries(place.directory), 1);
    test_directory_remove(place.directory);
}

/* A nameless file gets its name only when it is whole, and takes the place of an older one. */
static void commits_a_nameless_file(void **state)
{
    (void)state;
    place_t place;
    place_make(&place);
    put(place.directory, "data", "old");
    plim__file_t file;
    char text[4] = "";
    assert_ok(plim__file_open(place.directory, PLIM__FILE_TEMPORARY, false, &file));
    assert_ok(plim__file_write_at(&file, 0, "new", 3));
    assert_int_equal(entries(place.directory), 1);
    if (plim__commit_nameless(&file, AT_FDCWD, place.target) != PLIM_OK) {
        print_message("SKIPPED: %s\n", plim_last_error());
        plim__file_close(&file);
        test_directory_remove(place.directory);
        skip();
    }
    plim__file_close(&file);
    assert_int_equal(entries(place.directory), 1);
    assert_ok(plim__file_open(place.target, PLIM__FILE_READ, false, &file));
    assert_int_equal(file.size, 3);
    assert_ok(plim__file_read_at(&file, 0, text, 3));
    assert_string_equal(text, "new");
    assert_int_equal(plim__commit_nameless(&file, AT_FDCWD, "/"), PLIM_ERR_USAGE);
    plim__file_close(&file);
    test_directory_remove(place.directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commits_a_directory),
        cmocka_unit_test(works_in_the_current_directory),
        cmocka_unit_test(abandons_everything),
        cmocka_unit_test(removes_what_a_killed_run_left),
        cmocka_unit_test(empties_only_what_is_its_own),
        cmocka_unit_test(keeps_others_out_until_the_end),
        cmocka_unit_test(leaves_what_belongs_to_others),
        cmocka_unit_test(writes_where_it_began),
        cmocka_unit_test(empties_no_dataset),
        cmocka_unit_test(refuses_what_is_in_use),
        cmocka_unit_test(one_of_many_wins),
        cmocka_unit_test(refuses_impossible_targets),
        cmocka_unit_test(commits_a_file),
        cmocka_unit_test(commits_a_nameless_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
