/* Opening, aligning, reading to the end, and leaving the page cache as it was. */
/* labels: asan unprivileged */
#include "support/harness.h"

#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static char *page_aligned(size_t size)
{
    char *data = aligned_alloc(4096, size);
    assert_non_null(data);
    return data;
}

/* Pages of the file that are in the page cache, asked of the kernel. */
static int64_t cached_pages(const char *path)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &about), 0);
    size_t pages = ((size_t)about.st_size + 4095) / 4096;
    void *map = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED);
    unsigned char *resident = malloc(pages);
    assert_non_null(resident);
    assert_int_equal(mincore(map, (size_t)about.st_size, resident), 0);
    int64_t count = 0;
    for (size_t i = 0; i < pages; i++)
        count += resident[i] & 1;
    free(resident);
    (void)munmap(map, (size_t)about.st_size);
    (void)close(fd);
    return count;
}

static bool in_memory(const char *path)
{
    plim__file_system_t system;
    assert_ok(plim__file_system(path, &system));
    return system.memory;
}

static void round_trips(void **state)
{
    (void)state;
    char directory[512], path[600];
    char *data = page_aligned(16384), *back = page_aligned(16384);
    test_directory_make(directory);
    (void)snprintf(path, sizeof path, "%s/file", directory);
    for (int direct = 0; direct < 2; direct++) {
        plim__file_t file;
        memset(data, 'a' + direct, 16384);
        assert_ok(plim__file_open(path, PLIM__FILE_CREATE, direct != 0, &file));
        assert_true(file.align >= 1 && file.align <= 4096 && (file.align & (file.align - 1)) == 0);
        assert_true(file.direct || file.align == 1);
        assert_int_equal(file.size, 0);
        assert_ok(plim__file_write_at(&file, 4096, data, 12288));
        assert_ok(plim__file_sync(&file));
        assert_ok(plim__file_read_at(&file, 8192, back, 8192));
        assert_memory_equal(back, data, 8192);
        /* Its owner makes it end inside a unit, and may then read all of that unit. */
        assert_int_equal(ftruncate(file.fd, 10001), 0);
        file.size = 10001;
        size_t unit = file.direct ? file.align : 1;
        size_t tail = (10001 - 8192 + unit - 1) / unit * unit;
        memset(back, 'z', 16384);
        assert_ok(plim__file_read_at(&file, 8192, back, tail));
        assert_memory_equal(back, data, 10001 - 8192);
        assert_int_equal(plim__file_read_at(&file, 8192, back, tail + unit), PLIM_ERR_DATA);
        assert_non_null(strstr(plim_last_error(), "offset 8192"));
        assert_non_null(strstr(plim_last_error(), path));
        plim__file_close(&file);
        plim__file_close(&file);
        assert_int_equal(file.fd, -1);
        assert_int_equal(unlink(path), 0);
    }
    free(data);
    free(back);
    test_directory_remove(directory);
}

static void refuses_what_is_no_file(void **state)
{
    (void)state;
    char directory[512], path[600];
    plim__file_t file = {.fd = 77};
    test_directory_make(directory);
    assert_int_equal(plim__file_open(directory, PLIM__FILE_READ, true, &file), PLIM_ERR_IO);
    assert_non_null(strstr(plim_last_error(), "a directory"));
    (void)snprintf(path, sizeof path, "%s/pipe", directory);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(plim__file_open(path, PLIM__FILE_READ, true, &file), PLIM_ERR_IO);
    assert_int_equal(plim__file_open(path, PLIM__FILE_CREATE, true, &file), PLIM_ERR_IO);
    (void)snprintf(path, sizeof path, "%s/absent", directory);
    assert_int_equal(plim__file_open(path, PLIM__FILE_READ, true, &file), PLIM_ERR_IO);
    assert_non_null(strstr(plim_last_error(), path));
    assert_non_null(strstr(plim_last_error(), "check the path"));
    assert_int_equal(plim__file_open(path, PLIM__FILE_TEMPORARY, true, &file), PLIM_ERR_IO);
    assert_int_equal(file.fd, 77);
    test_directory_remove(directory);
}

static void temporary_files_have_no_name(void **state)
{
    (void)state;
    char directory[512];
    char *data = page_aligned(4096), *back = page_aligned(4096);
    test_directory_make(directory);
    plim__file_t file;
    memset(data, 'x', 4096);
    assert_ok(plim__file_open(directory, PLIM__FILE_TEMPORARY, true, &file));
    assert_ok(plim__file_write_at(&file, 0, data, 4096));
    assert_ok(plim__file_read_at(&file, 0, back, 4096));
    assert_memory_equal(data, back, 4096);
    assert_int_equal(rmdir(directory), 0); /* which only an empty directory allows */
    /* A forked child that still has the file open keeps no disk space. */
    struct stat about;
    const int inherited = dup(file.fd);
    plim__file_close(&file);
    assert_int_equal(fstat(inherited, &about), 0);
    assert_int_equal(about.st_blocks, 0);
    (void)close(inherited);
    free(data);
    free(back);
}

/* The least that is left in the cache of 16 MiB written and read buffered: next to nothing. */
static void buffered_files_stay_out_of_the_cache(void **state)
{
    (void)state;
    char directory[512], path[600];
    enum { CHUNK = 1 << 20, CHUNKS = 16 };
    test_directory_make(directory);
    if (in_memory(directory)) {
        test_directory_remove(directory);
        print_message("SKIPPED: $TMPDIR is a tmpfs, which is page cache; point it at a disk\n");
        skip();
    }
    (void)snprintf(path, sizeof path, "%s/file", directory);
    char *data = page_aligned(CHUNK);
    memset(data, 'x', CHUNK);
    plim__file_t file;
    assert_ok(plim__file_open(path, PLIM__FILE_CREATE, false, &file));
    assert_false(file.direct);
    for (int i = 0; i < CHUNKS; i++)
        assert_ok(plim__file_write_at(&file, (int64_t)i * CHUNK, data, CHUNK));
    assert_true(cached_pages(path) <= CHUNK / 4096);
    assert_ok(plim__file_sync(&file));
    for (int i = 0; i < CHUNKS; i++)
        assert_ok(plim__file_read_at(&file, (int64_t)i * CHUNK, data, CHUNK));
    assert_true(cached_pages(path) <= 32);
    for (int i = 0; i < 1000; i++) /* rows that do not fill their pages */
        assert_ok(plim__file_read_at(&file, 15000 * (int64_t)i + 17, data, 300));
    assert_true(cached_pages(path) <= 32);
    plim__file_close(&file);
    free(data);
    test_directory_remove(directory);
}

static void tells_the_space(void **state)
{
    (void)state;
    char directory[512];
    int64_t bytes = -1;
    struct statvfs about;
    test_directory_make(directory);
    assert_ok(plim__file_space(directory, &bytes));
    assert_int_equal(statvfs(directory, &about), 0);
    assert_true(bytes >= 0 && bytes <= (int64_t)(about.f_blocks * about.f_frsize));
    assert_int_equal(plim__file_space("/nonexistent", &bytes), PLIM_ERR_IO);
    test_directory_remove(directory);
}

static void knows_file_systems(void **state)
{
    (void)state;
    static const struct {
        uint32_t magic;
        const char *name;
        bool network;
        bool memory;
    } expected[] = {
        {0xef53, "ext4", false, false},        {0x58465342, "xfs", false, false},
        {0x01021994, "tmpfs", false, true},    {0x858458f6, "ramfs", false, true},
        {0x6969, "nfs", true, false},          {0x0bd00bd0, "lustre", true, false},
        {0x47504653, "gpfs", true, false},     {0x19830326, "beegfs", true, false},
        {0x00c36400, "cephfs", true, false},   {0xff534d42, "cifs", true, false},
        {0x9123683e, "btrfs", false, false},   {0x2fc12fc1, "zfs", false, false},
        {0x794c7630, "overlay", false, false}, {0x12345678, "unknown", false, false},
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        plim__file_system_t system = plim__file_system_of(expected[i].magic);
        assert_string_equal(system.name, expected[i].name);
        assert_int_equal(system.network, expected[i].network);
        assert_int_equal(system.memory, expected[i].memory);
    }
    plim__file_system_t system;
    if (access("/dev/shm", X_OK) == 0) {
        assert_ok(plim__file_system("/dev/shm", &system));
        assert_true(system.memory || strcmp(system.name, "overlay") == 0);
    }
    assert_int_equal(plim__file_system("/nonexistent", &system), PLIM_ERR_USAGE);
}

static void accepts_a_disk_with_space_only(void **state)
{
    (void)state;
    char directory[512];
    test_directory_make(directory);
    assert_int_equal(plim__file_check_disk("/nonexistent", 0, "it needs"), PLIM_ERR_USAGE);
    if (in_memory("/dev/shm"))
        assert_int_equal(plim__file_check_disk("/dev/shm", 0, "it needs"), PLIM_ERR_SPACE);
    if (!in_memory(directory))
        assert_ok(plim__file_check_disk(directory, 1, "it needs"));
    assert_int_equal(plim__file_check_disk(directory, INT64_MAX, "it needs"), PLIM_ERR_SPACE);
    test_directory_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trips),
        cmocka_unit_test(refuses_what_is_no_file),
        cmocka_unit_test(temporary_files_have_no_name),
        cmocka_unit_test(buffered_files_stay_out_of_the_cache),
        cmocka_unit_test(tells_the_space),
        cmocka_unit_test(knows_file_systems),
        cmocka_unit_test(accepts_a_disk_with_space_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
