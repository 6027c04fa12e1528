#include "support/zip_make.h"

#include "support/harness.h"

#include <isa-l/crc.h>
#include <isa-l/igzip_lib.h>
#include <stdlib.h>
#include <string.h>

size_t test_deflate(const void *data, size_t size, unsigned char *to, size_t capacity)
{
    static struct isal_zstream stream;
    static uint8_t level[ISAL_DEF_LVL1_DEFAULT];
    isal_deflate_init(&stream);
    stream.level = 1;
    stream.level_buf = level;
    stream.level_buf_size = sizeof level;
    stream.end_of_stream = 1;
    stream.next_in = (uint8_t *)data;
    stream.avail_in = (uint32_t)size;
    stream.next_out = to;
    stream.avail_out = (uint32_t)capacity;
    assert_int_equal(isal_deflate(&stream), COMP_OK);
    assert_int_equal(stream.internal_state.state, ZSTATE_END);
    return capacity - stream.avail_out;
}

uint32_t test_crc(const void *data, size_t size)
{
    return crc32_gzip_refl(0, data, size);
}

static unsigned char *put(unsigned char *to, uint64_t value, int width)
{
    for (int i = 0; i < width; i++)
        *to++ = (unsigned char)(value >> (8 * i));
    return to;
}

void test_zip_begin(test_zip_t *zip, size_t capacity)
{
    memset(zip, 0, sizeof *zip);
    zip->capacity = capacity;
    zip->bytes = malloc(capacity);
    zip->central = malloc((size_t)1 << 20);
    assert_true(zip->bytes != NULL && zip->central != NULL);
}

static void list_member(test_zip_t *zip, const char *name, uint32_t crc, size_t packed, size_t size,
                        bool zip64)
{
    unsigned char *p = zip->central + zip->central_size;
    size_t extra = zip64 ? 20 : 0;
    memset(p, 0, 46);
    memcpy(p, "PK\x01\x02", 4);
    (void)put(p + 16, crc, 4);
    (void)put(p + 20, zip64 ? UINT32_MAX : packed, 4);
    (void)put(p + 24, zip64 ? UINT32_MAX : size, 4);
    (void)put(p + 28, strlen(name), 2);
    (void)put(p + 30, extra, 2);
    p = memcpy(p + 46, name, strlen(name));
    if (zip64)
        (void)put(put(put(put(p + strlen(name), 1, 2), 16, 2), size, 8), packed, 8);
    zip->central_size += 46 + strlen(name) + extra;
    zip->members++;
}

void test_zip_add(test_zip_t *zip, const char *name, const void *data, size_t size,
                  test_zip_form_t form)
{
    unsigned char *header = zip->bytes + zip->size, *p = header;
    size_t name_size = strlen(name), extra = form.zip64 ? 20 : 0;
    assert_true(zip->size + 30 + name_size + extra + size + 64 <= zip->capacity);
    unsigned char *body = header + 30 + name_size + extra;
    size_t packed = size;
    if (form.stored)
        memcpy(body, data, size);
    else
        packed = test_deflate(data, size, body, zip->capacity - (size_t)(body - zip->bytes) - 64);
    uint32_t crc = test_crc(data, size);
    uint64_t told_packed = form.descriptor ? 0 : packed, told_size = form.descriptor ? 0 : size;
    memcpy(p, "PK\x03\x04\x14\x00", 6);
    p = put(p + 6, form.descriptor ? 8 : 0, 2);
    p = put(p, form.stored ? 0 : 8, 2);
    p = put(p, 0, 4);
    p = put(p, form.descriptor ? 0 : crc, 4);
    p = put(p, form.zip64 ? UINT32_MAX : told_packed, 4);
    p = put(p, form.zip64 ? UINT32_MAX : told_size, 4);
    p = put(p, name_size, 2);
    p = put(p, extra, 2);
    memcpy(p, name, name_size);
    p += name_size;
    if (form.zip64)
        p = put(put(put(put(p, 1, 2), 16, 2), told_size, 8), told_packed, 8);
    p += packed;
    if (form.descriptor) {
        if (!form.no_mark)
            p = put(p, 0x08074b50, 4);
        p = put(p, crc, 4);
        p = put(put(p, packed, form.zip64 ? 8 : 4), size, form.zip64 ? 8 : 4);
    }
    zip->size = (size_t)(p - zip->bytes);
    list_member(zip, name, crc, packed, size, form.zip64);
}

void test_zip_end(test_zip_t *zip)
{
    unsigned char *p = zip->bytes + zip->size;
    assert_true(zip->size + zip->central_size + 98 <= zip->capacity);
    memcpy(p, zip->central, zip->central_size);
    p += zip->central_size;
    memset(p, 0, 98);
    memcpy(p, "PK\x06\x06", 4); /* as a writer of large archives ends one */
    (void)put(p + 4, 44, 8);
    memcpy(p + 56, "PK\x06\x07", 4);
    memcpy(p + 76, "PK\x05\x06", 4);
    zip->size += zip->central_size + 98;
}

void test_zip_free(test_zip_t *zip)
{
    free(zip->bytes);
    free(zip->central);
}
