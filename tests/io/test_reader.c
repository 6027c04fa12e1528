/* Readers deliver the bytes below them, whatever is between; and say when those are damaged. */
#include "support/harness.h"
#include "support/zip_make.h"

#include "base/fail.h"
#include "base/rng.h"
#include "io/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define DATA_BYTES 3000000

static unsigned char data[DATA_BYTES];

static int make_data(void **state)
{
    (void)state;
    for (size_t i = 0; i < DATA_BYTES; i++)
        data[i] = (unsigned char)(plim__rng_u64(1, i / 3) >> (i % 61));
    return 0;
}

static plim__reader_t *over(plim_job_t *job, const void *bytes, size_t size)
{
    plim__reader_t *reader;
    assert_ok(plim__reader_memory(job, "test", bytes, size, &reader));
    return reader;
}

/* Reads in chunks of many sizes and compares; closes. */
static void expect(plim__reader_t *reader, const unsigned char *wanted, size_t size)
{
    unsigned char *buffer = malloc(size + 1);
    size_t at = 0, got = 1;
    assert_non_null(buffer);
    for (uint64_t k = 0; got > 0; k++) {
        size_t chunk = 1 + plim__rng_u64(2, k) % (k % 5 == 0 ? 700000 : 5000);
        chunk = chunk < size + 1 - at ? chunk : size + 1 - at;
        assert_ok(reader->read(reader, buffer + at, chunk, &got));
        at += got;
        assert_int_equal(reader->position, (int64_t)at);
    }
    assert_int_equal(at, size);
    assert_memory_equal(buffer, wanted, size);
    assert_ok(plim__reader_end(reader));
    plim__reader_close(reader);
    free(buffer);
}

static void reads_exactly(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    char buffer[200];
    size_t got;
    plim__reader_t *reader = over(&job, data, 100);
    assert_ok(plim__reader_read_all(reader, buffer, 60));
    assert_memory_equal(buffer, data, 60);
    assert_int_equal(plim__reader_end(reader), PLIM_ERR_DATA);
    assert_non_null(strstr(plim_last_error(), "60 bytes"));
    assert_ok(plim__reader_skip(reader, 9));
    assert_int_equal(plim__reader_read_all(reader, buffer, 50), PLIM_ERR_DATA);
    assert_non_null(strstr(plim_last_error(), "100 bytes"));
    assert_int_equal(plim__reader_skip(reader, 1), PLIM_ERR_DATA);
    assert_ok(plim__reader_end(reader));
    assert_ok(plim__reader_read_some(reader, buffer, 50, &got));
    assert_int_equal(got, 0);
    plim__reader_close(reader);
    plim__reader_close(NULL);
    expect(over(&job, data, DATA_BYTES), data, DATA_BYTES);
    test_job_end(&job);
}

/* The front of a longer file: nothing behind the part in memory is read. */
static void ends_with_what_is_in_memory(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__reader_t *reader = over(&job, data, 100);
    reader->size = DATA_BYTES;
    expect(reader, data, 100);
    test_job_end(&job);
}

static void reads_ahead_the_same_bytes(void **state)
{
    (void)state;
    static const size_t buffers[] = {1, 2, 3, 100, 65536, 1000000, 4 << 20};
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        size_t size = buffers[i] < 100 ? 5000 : DATA_BYTES;
        plim__reader_t *reader;
        assert_ok(plim__reader_ahead(&job, over(&job, data, size), buffers[i], &reader));
        assert_int_equal(reader->size, (int64_t)size);
        assert_string_equal(reader->name, "test");
        expect(reader, data, size);
    }
    test_job_end(&job);
}

/* Gives `left` bytes, then fails or waits a little for each byte more. */
typedef struct faulty {
    plim__reader_t reader;
    int64_t left;
    plim_status_t status;
    bool closed;
} faulty_t;

static plim_status_t faulty_read(plim__reader_t *reader, void *to, size_t capacity, size_t *got_out)
{
    faulty_t *faulty = (faulty_t *)reader;
    size_t got = capacity;
    if (faulty->left == 0 && faulty->status != PLIM_OK)
        return plim__fail(faulty->status, "the disk is on fire");
    if (faulty->left > 0)
        got = (int64_t)capacity < faulty->left ? capacity : (size_t)faulty->left;
    memset(to, 'f', got);
    faulty->left -= faulty->left > 0 ? (int64_t)got : 0;
    reader->position += (int64_t)got;
    *got_out = got;
    return PLIM_OK;
}

static void faulty_close(plim__reader_t *reader)
{
    ((faulty_t *)reader)->closed = true;
}

static faulty_t make_faulty(int64_t left, plim_status_t status)
{
    faulty_t faulty = {.left = left, .status = status};
    faulty.reader.read = faulty_read;
    faulty.reader.close = faulty_close;
    faulty.reader.size = -1;
    return faulty;
}

static void passes_errors_on_after_the_bytes_before(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    faulty_t faulty = make_faulty(100001, PLIM_ERR_IO);
    plim__reader_t *reader;
    static char buffer[200000];
    size_t got;
    assert_ok(plim__reader_ahead(&job, &faulty.reader, 4096, &reader));
    assert_ok(plim__reader_read_all(reader, buffer, 100001));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(reader->read(reader, buffer, 1, &got), PLIM_ERR_IO);
        assert_string_equal(plim_last_error(), "the disk is on fire");
    }
    plim__reader_close(reader);
    assert_true(faulty.closed);
    test_job_end(&job);
}

/* Without reading to its source's end, which has none. */
static void closes_at_once(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    for (int i = 0; i < 200; i++) {
        faulty_t faulty = make_faulty(0, PLIM_OK); /* without end */
        plim__reader_t *reader;
        char buffer[1000];
        assert_ok(plim__reader_ahead(&job, &faulty.reader, 1 << 16, &reader));
        for (int k = 0; k < i; k++)
            assert_ok(plim__reader_read_all(reader, buffer, sizeof buffer));
        plim__reader_close(reader);
        assert_true(faulty.closed);
    }
    test_job_end(&job);
}

/* A gzip member with every optional field. Returns its size. */
static size_t make_gzip(const void *from, size_t size, bool fields, unsigned char *to,
                        size_t capacity)
{
    static const unsigned char plain[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3};
    static const unsigned char full[] = {
        0x1f, 0x8b, 8, 2 + 4 + 8 + 16, 0, 0, 0, 0, 0, 3, 3, 0, 'x', 'y', 'z', 'n', 'm', 0, 'c', 'o',
        0,    7,    7};
    size_t at = fields ? sizeof full : sizeof plain;
    memcpy(to, fields ? full : plain, at);
    at += test_deflate(from, size, to + at, capacity - at - 8);
    uint32_t crc = test_crc(from, size), modulo = (uint32_t)size;
    memcpy(to + at, &crc, 4);
    memcpy(to + at + 4, &modulo, 4);
    return at + 8;
}

static void decompresses_gzip(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    static unsigned char packed[2 * DATA_BYTES];
    plim__reader_t *reader;
    size_t third = DATA_BYTES / 3;
    size_t size = make_gzip(data, third, false, packed, sizeof packed);
    size += make_gzip(data + third, third, true, packed + size, sizeof packed - size);
    size += make_gzip(data, 0, false, packed + size, sizeof packed - size);
    size += make_gzip(data + 2 * third, third, false, packed + size, sizeof packed - size);
    memset(packed + size, 0, 512);
    assert_ok(plim__reader_decompress(&job, over(&job, packed, size), &reader));
    expect(reader, data, DATA_BYTES);
    assert_ok(plim__reader_decompress(&job, over(&job, packed, size + 512), &reader));
    assert_int_equal(reader->size, -1);
    expect(reader, data, DATA_BYTES);
    test_job_end(&job);
}

static size_t make_zstd(const void *from, size_t size, int level, unsigned char *to,
                        size_t capacity)
{
    size_t packed = ZSTD_compress(to, capacity, from, size, level);
    assert_false(ZSTD_isError(packed));
    return packed;
}

static void decompresses_zstd(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    static unsigned char packed[2 * DATA_BYTES];
    static const unsigned char skippable[] = {0x5e, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'a', 'b', 'c'};
    plim__reader_t *reader;
    memcpy(packed, skippable, sizeof skippable);
    size_t size = sizeof skippable;
    /* The second frame's window is larger than the first one's. */
    size += make_zstd(data, 1000, 1, packed + size, sizeof packed - size);
    size += make_zstd(data + 1000, DATA_BYTES - 1000, 19, packed + size, sizeof packed - size);
    assert_ok(plim__reader_decompress(&job, over(&job, packed, size), &reader));
    expect(reader, data, DATA_BYTES);
    test_job_end(&job);
}

static void leaves_plain_bytes_alone(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__reader_t *reader;
    for (size_t size = 0; size < 6; size++) {
        assert_ok(plim__reader_decompress(&job, over(&job, "abcdef", size), &reader));
        assert_int_equal(reader->size, (int64_t)size);
        expect(reader, (const unsigned char *)"abcdef", size);
    }
    assert_ok(plim__reader_decompress(&job, over(&job, data, DATA_BYTES), &reader));
    expect(reader, data, DATA_BYTES);
    test_job_end(&job);
}

static plim_status_t drain(plim_job_t *job, const void *bytes, size_t size, uint32_t *crc_out)
{
    static unsigned char buffer[300000];
    plim__reader_t *reader;
    size_t got = 0;
    plim_status_t status = plim__reader_memory(job, "test.gz", bytes, size, &reader);
    if (status == PLIM_OK)
        status = plim__reader_decompress(job, reader, &reader);
    if (status != PLIM_OK)
        return status;
    status = plim__reader_read_some(reader, buffer, sizeof buffer, &got);
    if (status == PLIM_OK && got == sizeof buffer)
        status = plim__reader_end(reader);
    *crc_out = test_crc(buffer, got);
    plim__reader_close(reader);
    return status;
}

static void notices_damage_and_truncation(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    static unsigned char packed[100000];
    uint32_t intact, crc;
    for (int kind = 0; kind < 2; kind++) {
        size_t size = kind == 0 ? make_gzip(data, 50000, true, packed, sizeof packed)
                                : make_zstd(data, 50000, 3, packed, sizeof packed);
        assert_ok(drain(&job, packed, size, &intact));
        for (size_t cut = 5; cut < size; cut += 1 + cut / 10)
            assert_int_equal(drain(&job, packed, cut, &crc), PLIM_ERR_DATA);
        for (uint64_t k = 0; k < 300 && kind == 0; k++) {
            size_t at = 23 + plim__rng_u64(4, k) % (size - 23);
            packed[at] ^= 4;
            if (drain(&job, packed, size, &crc) == PLIM_OK)
                assert_int_equal(crc, intact);
            packed[at] ^= 4;
        }
        packed[size] = 'x';
        assert_int_equal(drain(&job, packed, size + 1, &crc), PLIM_ERR_DATA);
        assert_non_null(strstr(plim_last_error(), "test.gz: damaged"));
    }
    test_job_end(&job);
}

static void refuses_giant_windows(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    int64_t process = plim__ledger_reserved(job.ledger);
    test_job_end(&job);
    job = test_job_make(process + ((int64_t)40 << 20), 1, PLIM_IO_AUTO);
    /* magic, no flags, a window of 2^(10+21) and of 2^(10+16), one empty last block */
    unsigned char frame[] = {0x28, 0xb5, 0x2f, 0xfd, 0, 21 << 3, 1, 0, 0};
    uint32_t crc;
    assert_int_equal(drain(&job, frame, sizeof frame, &crc), PLIM_ERR_DATA);
    assert_non_null(strstr(plim_last_error(), "more than 128 MiB"));
    frame[5] = 16 << 3;
    assert_int_equal(drain(&job, frame, sizeof frame, &crc), PLIM_ERR_BUDGET);
    frame[5] = 13 << 3;
    assert_ok(drain(&job, frame, sizeof frame, &crc));
    test_job_end(&job);
}

typedef struct packed {
    unsigned char bytes[2000];
    size_t size;
} packed_t;

static plim_status_t open_layers(plim_job_t *job, void *context)
{
    const packed_t *packed = context;
    plim__reader_t *reader;
    char buffer[1000];
    plim_status_t status = plim__reader_memory(job, "test", packed->bytes, packed->size, &reader);
    if (status == PLIM_OK)
        status = plim__reader_decompress(job, reader, &reader);
    if (status == PLIM_OK)
        status = plim__reader_ahead(job, reader, 100, &reader);
    if (status != PLIM_OK)
        return status;
    status = plim__reader_read_all(reader, buffer, sizeof buffer);
    plim__reader_close(reader);
    return status;
}

static void survives_refused_memory(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    packed_t packed;
    packed.size = make_gzip(data, 1000, true, packed.bytes, sizeof packed.bytes);
    test_fail_each_arena(&job, open_layers, &packed);
    packed.size = make_zstd(data, 500, 1, packed.bytes, sizeof packed.bytes);
    packed.size += make_zstd(data, 500, 1, packed.bytes + packed.size, 1000);
    test_fail_each_arena(&job, open_layers, &packed);
    test_job_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_exactly),
        cmocka_unit_test(ends_with_what_is_in_memory),
        cmocka_unit_test(reads_ahead_the_same_bytes),
        cmocka_unit_test(passes_errors_on_after_the_bytes_before),
        cmocka_unit_test(closes_at_once),
        cmocka_unit_test(decompresses_gzip),
        cmocka_unit_test(decompresses_zstd),
        cmocka_unit_test(leaves_plain_bytes_alone),
        cmocka_unit_test(notices_damage_and_truncation),
        cmocka_unit_test(refuses_giant_windows),
        cmocka_unit_test(survives_refused_memory),
    };
    return cmocka_run_group_tests(tests, make_data, NULL);
}
