/* Arenas stay inside the ledger, and the ledger inside its line. */
/* labels: asan unprivileged */
#include "support/harness.h"

#include "mem/arena.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static void reserves_and_releases(void **state)
{
    (void)state;
    plim_job_t job = test_job_make((int64_t)256 << 20, 1, PLIM_IO_AUTO);
    int64_t before = plim__ledger_reserved(job.ledger);
    plim__arena_t arena;
    assert_ok(plim__arena_create(job.ledger, "thing", 10000, &arena));
    assert_int_equal(plim__ledger_reserved(job.ledger) - before, 12288);
    char *first = plim__arena_carve(&arena, 100, 1, 1);
    char *second = plim__arena_carve(&arena, 1, 8192, 4096);
    assert_non_null(first);
    assert_int_equal((uintptr_t)second % 4096, 0);
    assert_ok(plim__arena_check(&arena));
    assert_null(plim__arena_carve(&arena, 1, 4096, 1));
    assert_int_equal(plim__arena_check(&arena), PLIM_ERR_BUDGET);
    assert_null(plim__arena_carve(&arena, SIZE_MAX / 2, 4, 1));
    plim__arena_destroy(&arena);
    assert_int_equal(plim__ledger_reserved(job.ledger), before);
    test_job_end(&job);
}

typedef struct object {
    plim__arena_t arena;
    size_t count;
    char *pages;
    int *numbers;
    bool greedy; /* carves more over memory than it counted */
} object_t;

static void lay_out(plim__arena_t *arena, void *draft)
{
    object_t *object = draft;
    const bool more = object->greedy && arena->base != NULL;
    object->numbers = plim__arena_carve(arena, object->count, sizeof(int), 1);
    object->pages = plim__arena_carve(arena, object->count + (more ? 1 : 0), 4096, 4096);
}

static void lays_an_object_out(void **state)
{
    (void)state;
    plim_job_t job = test_job_make((int64_t)256 << 20, 1, PLIM_IO_AUTO);
    const int64_t before = plim__ledger_reserved(job.ledger);
    object_t draft = {.count = 3}, *object = NULL;
    assert_int_equal(plim__object_bytes(lay_out, &draft, sizeof draft), 4 * 4096);
    assert_ok(plim__object_create(job.ledger, "object", lay_out, &draft, sizeof draft, &draft.arena,
                                  &object));
    assert_int_equal(plim__ledger_reserved(job.ledger) - before, 4 * 4096);
    assert_int_equal(object->count, 3);
    memset(object->pages, 1, 3 * 4096);
    memset(object->numbers, 1, 3 * sizeof(int));
    plim__arena_destroy(&object->arena);

    object_t greedy = {.count = 3, .greedy = true};
    assert_int_equal(plim__object_create(job.ledger, "object", lay_out, &greedy, sizeof greedy,
                                         &greedy.arena, &object),
                     PLIM_ERR_BUDGET);
    object_t giant = {.count = SIZE_MAX / 2};
    assert_int_equal(plim__object_create(job.ledger, "object", lay_out, &giant, sizeof giant,
                                         &giant.arena, &object),
                     PLIM_ERR_BUDGET);
    assert_int_equal(plim__ledger_reserved(job.ledger), before);
    test_job_end(&job);
}

static void refuses_past_the_line(void **state)
{
    (void)state;
    plim_job_t job = test_job_make((int64_t)256 << 20, 1, PLIM_IO_AUTO);
    plim__arena_t arena;
    int64_t before = plim__ledger_reserved(job.ledger);
    assert_int_equal(plim__arena_create(job.ledger, "giant", (size_t)1 << 40, &arena),
                     PLIM_ERR_BUDGET);
    assert_int_equal(plim__arena_create(job.ledger, "giant", SIZE_MAX, &arena), PLIM_ERR_BUDGET);
    assert_int_equal(plim__ledger_reserved(job.ledger), before);
    test_job_end(&job);
}

static plim_status_t make_one(plim_job_t *job, void *context)
{
    plim__arena_t arena;
    (void)context;
    plim_status_t status = plim__arena_create(job->ledger, "thing", 4096, &arena);
    if (status == PLIM_OK)
        plim__arena_destroy(&arena);
    return status;
}

static void reports_refused_memory(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    test_fail_each_arena(&job, make_one, NULL);
    test_job_end(&job);
}

/* Reclaiming by force what may be dropped: each page is there or reads as zeros, its neighbours
 * that lie in the range only in part are there. */
static void pages_may_be_dropped(void **state)
{
    (void)state;
    enum { PAGES = 64 };
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__arena_t arena;
    int dropped = 0;
    assert_ok(plim__arena_create(job.ledger, "thing", PAGES * PLIM__PAGE, &arena));
    char *pages = plim__arena_carve(&arena, PAGES, PLIM__PAGE, PLIM__PAGE);
    plim__arena_want_small(pages, PAGES * PLIM__PAGE);
    memset(pages, 7, PAGES * PLIM__PAGE);
    plim__arena_may_drop(pages + 1, PAGES * PLIM__PAGE - 2);
    plim__arena_may_drop(pages + 1, 10);
    (void)madvise(pages, PAGES * PLIM__PAGE, MADV_PAGEOUT);
    unsigned char resident[PAGES];
    assert_true(plim__arena_resident(pages, PAGES * PLIM__PAGE, resident));
    for (int i = 0; i < PAGES; i++)
        assert_int_equal(resident[i] & 1, pages[(size_t)i * PLIM__PAGE] != 0);
    for (size_t i = 0; i < PAGES * PLIM__PAGE; i++) {
        char expected = pages[i / PLIM__PAGE * PLIM__PAGE];
        assert_true(expected == 7 || expected == 0);
        assert_int_equal(pages[i], expected);
        dropped += expected == 0;
    }
    assert_int_equal(pages[0], 7);
    assert_int_equal(pages[(PAGES - 1) * PLIM__PAGE], 7);
    print_message("%d of %d pages were dropped\n", dropped / (int)PLIM__PAGE, PAGES);
    plim__arena_destroy(&arena);
    test_job_end(&job);
}

/* Whether the mapping that holds `address` is kept from huge pages, by the kernel's word. */
static bool is_kept_small(const void *address)
{
    char line[512];
    bool inside = false, small = false;
    FILE *file = fopen("/proc/self/smaps", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        uintptr_t first, end;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &first, &end) == 2)
            inside = (uintptr_t)address >= first && (uintptr_t)address < end;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0)
            small = strstr(line, " nh") != NULL;
    }
    (void)fclose(file);
    return small;
}

/* Wherever huge pages are given to everybody, a page that is touched costs a page. */
static void pages_are_small_unless_asked(void **state)
{
    (void)state;
    plim_job_t job = test_job_make((int64_t)256 << 20, 1, PLIM_IO_AUTO);
    plim__arena_t arena;
    assert_ok(plim__arena_create(job.ledger, "stacks", 8 << 20, &arena));
    assert_true(is_kept_small(arena.base));
    plim__arena_want_huge(arena.base, arena.size);
    assert_false(is_kept_small(arena.base));
    plim__arena_destroy(&arena);
    test_job_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reserves_and_releases), cmocka_unit_test(lays_an_object_out),
        cmocka_unit_test(refuses_past_the_line), cmocka_unit_test(reports_refused_memory),
        cmocka_unit_test(pages_may_be_dropped),  cmocka_unit_test(pages_are_small_unless_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
