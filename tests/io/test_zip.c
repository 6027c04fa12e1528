/* Zips in every form are read to the byte; no damage goes unnoticed. */
#include "support/harness.h"
#include "support/zip_make.h"

#include "base/rng.h"
#include "io/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Data like that of papers100M: ids (int64, half of their bytes zero), then float32 noise. */
static unsigned char *make_data(size_t size, uint64_t seed)
{
    unsigned char *data = malloc(size);
    assert_non_null(data);
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t value = plim__rng_u64(seed, i);
        if (i < size / 2)
            value = (value % 111059956u);
        else
            value = (value & 0x007fffff007fffffu) | 0x3d0000003d000000u;
        memcpy(data + i, &value, 8);
    }
    memset(data + size / 8 * 8, 'x', size % 8);
    return data;
}

static plim__zip_t *open_zip(plim_job_t *job, const test_zip_t *made)
{
    plim__reader_t *reader;
    plim__zip_t *zip;
    assert_ok(plim__reader_memory(job, "test.zip", made->bytes, made->size, &reader));
    assert_ok(plim__zip_open(job, reader, &zip));
    return zip;
}

/* Reads in chunks of changing size, small and large. */
static void expect_member(plim__reader_t *reader, const unsigned char *data, size_t size)
{
    unsigned char *got_data = malloc(size + 1);
    size_t at = 0, chunk = 1;
    assert_non_null(got_data);
    for (;;) {
        size_t got, want = size + 1 - at < chunk ? size + 1 - at : chunk;
        assert_ok(reader->read(reader, got_data + at, want, &got));
        if (got == 0)
            break;
        at += got;
        chunk = chunk > 3000000 ? 7 : chunk * 5 + 1;
    }
    assert_int_equal(at, size);
    assert_memory_equal(got_data, data, size);
    assert_int_equal(reader->position, (int64_t)size);
    free(got_data);
}

static const test_zip_form_t forms[] = {
    {.stored = false},
    {.stored = true},
    {.zip64 = true},
    {.stored = true, .zip64 = true},
    {.descriptor = true},
    {.descriptor = true, .zip64 = true},
    {.descriptor = true, .no_mark = true},
    {.descriptor = true, .zip64 = true, .no_mark = true},
    {.stored = true, .descriptor = true},
    {.stored = true, .descriptor = true, .zip64 = true},
};
#define NUM_FORMS (sizeof forms / sizeof forms[0])

static void reads_every_form(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 100, 70000, 3000001};
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        unsigned char *data = make_data(sizes[k], k);
        test_zip_t made;
        test_zip_begin(&made, NUM_FORMS * (sizes[k] + sizes[k] / 8 + 1000));
        for (size_t i = 0; i < NUM_FORMS; i++) {
            char name[32];
            (void)snprintf(name, sizeof name, "member%zu.npy", i);
            test_zip_add(&made, name, data, sizes[k], forms[i]);
            test_zip_add(&made, "folder/", data, 0, (test_zip_form_t){.stored = true});
        }
        test_zip_end(&made);
        /* Every member read; then every second one passed over. */
        for (size_t step = 1; step <= 2; step++) {
            plim__zip_t *zip = open_zip(&job, &made);
            const char *name;
            int64_t size;
            for (size_t i = 0; i < NUM_FORMS; i++) {
                assert_ok(plim__zip_next(zip, &name, &size));
                assert_non_null(name);
                assert_int_equal(atoi(name + 6), (int)i);
                assert_int_equal(size, forms[i].descriptor ? -1 : (int64_t)sizes[k]);
                if (i % step != 0)
                    continue;
                plim__reader_t *reader;
                assert_ok(plim__zip_member(zip, &reader));
                expect_member(reader, data, sizes[k]);
                plim__reader_close(reader);
            }
            assert_ok(plim__zip_next(zip, &name, &size));
            assert_null(name);
            assert_ok(plim__zip_next(zip, &name, &size));
            assert_null(name);
            plim__zip_close(zip);
        }
        test_zip_free(&made);
        free(data);
    }
    test_job_end(&job);
}

typedef struct sum {
    int64_t bytes;
    uint32_t crc; /* of all members' CRCs */
} sum_t;

/* Reads all of a zip, members that are zips too; the first status that is not PLIM_OK. */
static plim_status_t read_everything(const plim_job_t *job, plim__reader_t *inner, int depth,
                                     sum_t *sum)
{
    static char buffers[4][300000];
    plim__zip_t *zip;
    plim_status_t status = plim__zip_open(job, inner, &zip);
    if (status != PLIM_OK)
        return status;
    for (;;) {
        const char *name;
        int64_t size;
        plim__reader_t *reader = NULL;
        status = plim__zip_next(zip, &name, &size);
        if (status != PLIM_OK || name == NULL)
            break;
        bool nested = strstr(name, ".npz") != NULL && depth < 3;
        status = plim__zip_member(zip, &reader);
        if (status == PLIM_OK && nested) {
            status = plim__reader_ahead(job, reader, (size_t)1 << 20, &reader);
            if (status == PLIM_OK)
                status = read_everything(job, reader, depth + 1, sum);
        }
        size_t got = nested ? 0 : 1;
        while (status == PLIM_OK && got > 0) {
            status = plim__reader_read_some(reader, buffers[depth], sizeof buffers[0], &got);
            if (status == PLIM_OK) {
                sum->bytes += (int64_t)got;
                sum->crc = sum->crc * 31 + test_crc(buffers[depth], got);
            }
        }
        if (!nested)
            plim__reader_close(reader);
        if (status != PLIM_OK)
            break;
    }
    plim__zip_close(zip);
    return status;
}

static plim_status_t read_bytes(const plim_job_t *job, const void *bytes, size_t size,
                                sum_t *sum_out)
{
    plim__reader_t *reader;
    *sum_out = (sum_t){0, 0};
    plim_status_t status = plim__reader_memory(job, "test.zip", bytes, size, &reader);
    return status != PLIM_OK ? status : read_everything(job, reader, 0, sum_out);
}

/* papers100M's layout in small: a deflated zip in a deflated zip, 48 MB when unpacked. */
static void reads_a_zip_in_a_zip(void **state)
{
    (void)state;
    const size_t size = 24000000;
    unsigned char *data = make_data(size, 5);
    test_zip_t inner, outer;
    test_zip_begin(&inner, 3 * size);
    test_zip_add(&inner, "edge_index.npy", data, size, (test_zip_form_t){.zip64 = true});
    test_zip_add(&inner, "node_feat.npy", data, size,
                 (test_zip_form_t){.zip64 = true, .descriptor = true});
    test_zip_end(&inner);
    test_zip_begin(&outer, 3 * size);
    test_zip_add(&outer, "papers100M-bin/", data, 0, (test_zip_form_t){.stored = true});
    test_zip_add(&outer, "papers100M-bin/raw/data.npz", inner.bytes, inner.size,
                 (test_zip_form_t){.zip64 = true});
    test_zip_add(&outer, "papers100M-bin/split/time/train.csv.gz", data, 1000,
                 (test_zip_form_t){.zip64 = true});
    test_zip_end(&outer);
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    int64_t before = plim__ledger_reserved(job.ledger);
    sum_t sum;
    assert_ok(read_bytes(&job, outer.bytes, outer.size, &sum));
    assert_int_equal(sum.bytes, 2 * (int64_t)size + 1000);
    /* Two zips, and one ring of 1 MiB. */
    assert_in_range(plim__ledger_peak(job.ledger) - before, 1, 4 << 20);
    assert_int_equal(plim__ledger_reserved(job.ledger), before);
    test_job_end(&job);
    test_zip_free(&inner);
    test_zip_free(&outer);
    free(data);
}

/* A small zip with a member of every form, one of them a zip. */
static void make_small(test_zip_t *made)
{
    unsigned char *data = make_data(3000, 9);
    test_zip_t inner;
    test_zip_begin(&inner, 20000);
    test_zip_add(&inner, "a.npy", data, 3000, forms[0]);
    test_zip_end(&inner);
    test_zip_begin(made, 100000);
    for (size_t i = 0; i < NUM_FORMS; i++)
        test_zip_add(made, i % 2 == 0 ? "inner.npz" : "plain.npy", inner.bytes, inner.size,
                     forms[i]);
    test_zip_end(made);
    test_zip_free(&inner);
    free(data);
}

/* A flipped bit of the data or its descriptor is noticed, unless it is one of the few that deflate
 * does not use: then the data is the same. */
static void notices_damage(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    unsigned char *data = make_data(20000, 3);
    for (size_t i = 0; i < NUM_FORMS; i++) {
        test_zip_t made;
        sum_t sum;
        test_zip_begin(&made, 50000);
        test_zip_add(&made, "a.npy", data, 20000, forms[i]);
        size_t end = made.size;
        test_zip_end(&made);
        size_t begin = 30 + 5 + (forms[i].zip64 ? 20 : 0);
        sum_t intact;
        assert_ok(read_bytes(&job, made.bytes, made.size, &intact));
        int unused = 0;
        for (uint64_t k = 0; k < 300; k++) {
            size_t at = begin + plim__rng_u64(11, k) % (end - begin);
            unsigned char mask = (unsigned char)(1u << (plim__rng_u64(12, k) % 8));
            made.bytes[at] ^= mask;
            plim_status_t status = read_bytes(&job, made.bytes, made.size, &sum);
            if (status == PLIM_OK)
                assert_true(sum.bytes == intact.bytes && sum.crc == intact.crc);
            else
                assert_int_equal(status, PLIM_ERR_DATA);
            unused += status == PLIM_OK;
            made.bytes[at] ^= mask;
        }
        assert_in_range(unused, 0, 3);
        /* The CRC and the sizes in the header. */
        for (size_t at = 14; at < 26 && !forms[i].descriptor; at++) {
            made.bytes[at] ^= 1;
            if (!forms[i].zip64 || at < 18)
                assert_int_equal(read_bytes(&job, made.bytes, made.size, &sum), PLIM_ERR_DATA);
            made.bytes[at] ^= 1;
        }
        test_zip_free(&made);
    }
    free(data);
    test_job_end(&job);
}

static void notices_truncation_anywhere(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    test_zip_t made;
    sum_t sum;
    make_small(&made);
    assert_ok(read_bytes(&job, made.bytes, made.size, &sum));
    for (size_t size = 0; size < made.size; size += 1 + size % 97) {
        if (read_bytes(&job, made.bytes, size, &sum) != PLIM_ERR_DATA)
            fail_msg("cut to %zu of %zu bytes, and no error", size, made.size);
    }
    test_zip_free(&made);
    test_job_end(&job);
}

static void expect_refusal(plim_job_t *job, const test_zip_t *made, const char *message)
{
    sum_t sum;
    assert_int_equal(read_bytes(job, made->bytes, made->size, &sum), PLIM_ERR_DATA);
    if (strstr(plim_last_error(), message) == NULL)
        fail_msg("'%s' does not say '%s'", plim_last_error(), message);
}

static void says_what_is_wrong(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    test_zip_t made;
    test_zip_begin(&made, 10000);
    test_zip_add(&made, "a\x1b[31m.npy", "some data", 9, (test_zip_form_t){.stored = true});
    size_t member = made.size;
    test_zip_end(&made);
    made.bytes[6] = 1;
    expect_refusal(&job, &made, "test.zip: a?[31m.npy: it is encrypted");
    made.bytes[6] = 0;
    made.bytes[8] = 12;
    expect_refusal(&job, &made, "deflate");
    made.bytes[8] = 0;
    made.bytes[member] = 'X';
    expect_refusal(&job, &made, "central directory");
    made.bytes[member] = 'P';
    made.bytes[0] = 'X';
    expect_refusal(&job, &made, "test.zip: damaged zip at byte 0");
    made.bytes[0] = 'P';
    made.bytes[30 + 10] ^= 1;
    expect_refusal(&job, &made, "test.zip: a?[31m.npy: damaged at byte");
    /* A member that the directory does not list. */
    made.bytes[30 + 10] ^= 1;
    memmove(made.bytes + member, made.bytes + member + made.central_size, 98);
    made.size -= made.central_size;
    expect_refusal(&job, &made, "central directory");
    test_zip_free(&made);
    test_job_end(&job);
}

/* Whatever the central directory says otherwise of a member is noticed, of members that are read
 * and of those that are passed over. */
static void compares_the_directory(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    for (size_t i = 0; i < NUM_FORMS; i++) {
        test_zip_t made;
        sum_t sum;
        test_zip_begin(&made, 10000);
        test_zip_add(&made, "one.npy", "some data", 9, forms[i]);
        test_zip_add(&made, "two.npy", "more of it", 10, forms[i]);
        size_t central = made.size;
        size_t extra = forms[i].zip64 ? 20 : 0;
        test_zip_end(&made);
        assert_ok(read_bytes(&job, made.bytes, made.size, &sum));
        for (size_t at = 16; at < 46 + 7 + extra; at++) {
            bool sums = at < 20 || (at < 28 && !forms[i].zip64);
            bool wide = at >= 46 + 7 + 4;
            if (!sums && !wide && (at < 46 || at >= 46 + 7))
                continue;
            made.bytes[central + at] ^= 1;
            expect_refusal(&job, &made, "central directory");
            plim__zip_t *zip = open_zip(&job, &made);
            const char *name = "";
            int64_t size;
            plim_status_t status = PLIM_OK;
            while (name != NULL && status == PLIM_OK)
                status = plim__zip_next(zip, &name, &size);
            assert_int_equal(status, PLIM_ERR_DATA);
            plim__zip_close(zip);
            made.bytes[central + at] ^= 1;
        }
        test_zip_free(&made);
    }
    test_job_end(&job);
}

static void passes_over_names_that_are_not_wanted(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    char long_name[1001];
    memset(long_name, 'n', 1000);
    long_name[1000] = '\0';
    test_zip_t made;
    test_zip_begin(&made, 10000);
    test_zip_add(&made, long_name, "data", 4, forms[0]);
    test_zip_add(&made, "zero.npy", "data", 4, forms[4]);
    test_zip_add(&made, "../../etc/passwd", "data", 4, forms[1]);
    test_zip_end(&made);
    unsigned char *zero = made.bytes;
    while ((zero = memmem(zero, made.size - (size_t)(zero - made.bytes), "zero.npy", 8)) != NULL)
        zero[4] = '\0';
    plim__zip_t *zip = open_zip(&job, &made);
    const char *name;
    int64_t size;
    assert_ok(plim__zip_next(zip, &name, &size));
    assert_string_equal(name, "../../etc/passwd");
    assert_ok(plim__zip_next(zip, &name, &size));
    assert_null(name);
    plim__zip_close(zip);
    test_zip_free(&made);
    test_job_end(&job);
}

static plim_status_t read_small(plim_job_t *job, void *context)
{
    const test_zip_t *made = context;
    sum_t sum;
    return read_bytes(job, made->bytes, made->size, &sum);
}

static void survives_refused_memory(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    test_zip_t made;
    make_small(&made);
    test_fail_each_arena(&job, read_small, &made);
    test_zip_free(&made);
    test_job_end(&job);
}

/* What the tools people have write, straight from a pipe. */
static void reads_what_tools_write(void **state)
{
    (void)state;
    static const struct {
        const char *tool;
        const char *command;
    } cases[] = {
        {"zip", "cd '%s' && head -c 300000 /dev/urandom > a && yes | head -c 300000 > b && "
                "zip -q t.zip a b && zip -q - a b | cat > u.zip && cat a | zip -q v.zip - b && "
                "zip -q -0 - a b | cat > w.zip"},
        {"python3", "cd '%s' && python3 -c \"\n"
                    "import zipfile, sys, io\n"
                    "class Pipe(io.RawIOBase):\n"
                    "    def __init__(self, f): self.f = f\n"
                    "    def writable(self): return True\n"
                    "    def write(self, b): return self.f.write(b)\n"
                    "for name, pipe in ('t', 0), ('u', 1):\n"
                    "  for k, method in enumerate((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED)):\n"
                    "    f = open('tv'[k] + '.zip' if not pipe else 'uw'[k] + '.zip', 'wb')\n"
                    "    with zipfile.ZipFile(Pipe(f) if pipe else f, 'w', method) as z:\n"
                    "        for n in 'a', 'b':\n"
                    "            with z.open(n, 'w', force_zip64=n == 'a') as m:\n"
                    "                m.write(bytes(range(256)) * 1171 + b'PK' * 112)\n"
                    "    f.close()\n\""},
    };
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    for (size_t i = 0; i < 2; i++) {
        char folder[512], command[2048];
        (void)snprintf(command, sizeof command, "command -v %s > /dev/null", cases[i].tool);
        if (system(command) != 0) {
            print_message("SKIPPED: no %s here\n", cases[i].tool);
            continue;
        }
        test_directory_make(folder);
        (void)snprintf(command, sizeof command, cases[i].command, folder);
        assert_int_equal(system(command), 0);
        for (const char *which = "tuvw"; *which != '\0'; which++) {
            static unsigned char bytes[2000000];
            char path[600];
            sum_t sum;
            (void)snprintf(path, sizeof path, "%s/%c.zip", folder, *which);
            FILE *file = fopen(path, "rb");
            assert_non_null(file);
            size_t size = fread(bytes, 1, sizeof bytes, file);
            (void)fclose(file);
            assert_ok(read_bytes(&job, bytes, size, &sum));
            assert_int_equal(sum.bytes, 600000);
        }
        test_directory_remove(folder);
    }
    test_job_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_form),
        cmocka_unit_test(reads_a_zip_in_a_zip),
        cmocka_unit_test(notices_damage),
        cmocka_unit_test(notices_truncation_anywhere),
        cmocka_unit_test(says_what_is_wrong),
        cmocka_unit_test(compares_the_directory),
        cmocka_unit_test(passes_over_names_that_are_not_wanted),
        cmocka_unit_test(survives_refused_memory),
        cmocka_unit_test(reads_what_tools_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
