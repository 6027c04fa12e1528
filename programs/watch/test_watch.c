/* Lines of a timeline are whole JSON whatever they hold; a watch sees its child and its own end. */
/* labels: asan unprivileged */
#include "support/harness.h"

#include "watch/watch.h"
#include "watch/watch_record.h"
#include "watch/watch_tree.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Writes the record to a file and returns the line as JSON. */
static json_t *written(watch_record_t *record)
{
    static char text[WATCH_RECORD_LINE + 1];
    FILE *file = tmpfile();
    assert_non_null(file);
    record->file = fileno(file);
    assert_true(watch_record_write(record));
    const ssize_t length = pread(record->file, text, sizeof text - 1, 0);
    assert_true(length > 0 && text[length - 1] == '\n');
    text[length] = '\0';
    assert_ptr_equal(strchr(text, '\n'), text + length - 1);
    for (ssize_t i = 0; i < length - 1; i++)
        assert_true(text[i] >= 0x20 && text[i] < 0x7f);
    (void)fclose(file);
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(object);
    return object;
}

static void text_of_any_bytes_is_json(void **state)
{
    (void)state;
    static const struct {
        const char *given, *expected;
    } cases[] = {
        {"plain", "plain"},
        {"\"\\/", "\"\\/"},
        {"a\n\t\x1b\x7f", "a????"},
        {"\xc3\xbc \xe4\xb8\xad \xf0\x9f\x98\x80", "\xc3\xbc \xe4\xb8\xad \xf0\x9f\x98\x80"},
        {"\xff\xc3(\xc0\x80\xed\xa0\x80", "\?\?(\?\?\?\?\?"},
        {"\xc2\x85", "?"},
        {"\xe4\xb8", "??"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        watch_record_t record = {0};
        watch_record_begin(&record, "mark");
        plim__json_put_printable(&record.json, "text", cases[i].given, 200);
        json_t *object = written(&record);
        assert_string_equal(json_string_value(json_object_get(object, "text")), cases[i].expected);
        json_decref(object);
    }
}

static void a_full_line_stays_json(void **state)
{
    (void)state;
    static char word[5000];
    watch_record_t record = {0};
    memset(word, '"', sizeof word - 1);
    watch_record_begin(&record, "begin");
    plim__json_open(&record.json, "command", '[');
    for (int i = 0; i < 20; i++)
        plim__json_put_printable(&record.json, NULL, word, sizeof word);
    plim__json_close(&record.json, ']');
    json_t *object = written(&record);
    const json_t *words = json_object_get(object, "command");
    assert_true(json_array_size(words) >= 5 && json_array_size(words) < 20);
    assert_string_equal(json_string_value(json_array_get(words, 0)), word);
    json_decref(object);
}

static void sees_a_child(void **state)
{
    (void)state;
    char directory[512], word[] = "child", *words[] = {word, NULL};
    int status, go[2];
    struct rusage usage;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    watch_params_t params = {0};
    watch_state_t now = {0};
    watch_end_t end = {0};
    watch_t *watch;
    test_directory_make(directory);
    params.directory = directory;
    assert_int_equal(pipe(go), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char byte;
        (void)close(go[1]);
        _exit(read(go[0], &byte, 1) == 0 ? 3 : 4);
    }
    assert_ok(watch_open(&job, &params, &watch));
    assert_ok(watch_begin(watch, child, words));
    const int marks = open(watch_marks(watch), O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(write(marks, "first\n", 6), 6);
    (void)close(marks);
    assert_ok(watch_tick(watch, &now));
    assert_int_equal(now.processes, 1);
    assert_true(now.rss > 0 && now.held > 0 && now.line > 0 && now.used > 0);
    assert_string_equal(now.phase, "first");
    (void)close(go[0]);
    (void)close(go[1]);
    assert_int_equal(wait4(child, &status, 0, &usage), child);
    assert_ok(watch_end(watch, status, &usage, &end));
    assert_int_equal(end.left, 0);
    assert_true(end.peak > 0 && end.seconds >= 0);
    watch_close(watch);
    test_directory_remove(directory);
    test_job_end(&job);
}

/* Where ulimit -n leaves no descriptors, processes count nevertheless. */
static void files_are_read_by_name_where_few_may_be_open(void **state)
{
    (void)state;
    static watch_tree_t tree;
    watch_tree_totals_t totals;
    struct rlimit before;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)pause();
        _exit(0);
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit few = {.rlim_cur = 64, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    watch_tree_open(&tree, child, 0);
    watch_tree_read(&tree, 0, &totals);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(tree.count, 1);
    assert_int_equal(tree.process[0].statm, -1);
    assert_true(totals.rss > 0);
    watch_tree_close(&tree);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* A process beyond the most that are followed is left out: looking for more of its kind must end.
 */
static void a_full_tree_takes_no_more(void **state)
{
    (void)state;
    static watch_tree_t tree;
    watch_tree_totals_t totals;
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            (void)pause();
            _exit(0);
        }
    }
    watch_tree_open(&tree, children[0], 0);
    for (tree.count = 1; tree.count < WATCH_TREE_PROCESSES; tree.count++)
        tree.process[tree.count] = tree.process[0];
    watch_tree_read(&tree, 0, &totals);
    assert_int_equal(tree.count, WATCH_TREE_PROCESSES);
    tree.count = 1; /* the others are copies */
    watch_tree_close(&tree);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kill(children[i], SIGKILL), 0);
        assert_int_equal(waitpid(children[i], NULL, 0), children[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_of_any_bytes_is_json),
        cmocka_unit_test(a_full_line_stays_json),
        cmocka_unit_test(sees_a_child),
        cmocka_unit_test(files_are_read_by_name_where_few_may_be_open),
        cmocka_unit_test(a_full_tree_takes_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
