/* Zips made in memory, in every form a writer may choose. */
#ifndef PLIM_TESTS_ZIP_MAKE_H
#define PLIM_TESTS_ZIP_MAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct test_zip {
    unsigned char *bytes;
    size_t size;
    size_t capacity;
    unsigned char *central; /* the central directory so far */
    size_t central_size;
    int members;
} test_zip_t;

typedef struct test_zip_form {
    bool stored;
    bool zip64;      /* sizes in a ZIP64 field */
    bool descriptor; /* sizes behind the data */
    bool no_mark;    /* … without the descriptor's mark */
} test_zip_form_t;

void test_zip_begin(test_zip_t *zip, size_t capacity);
void test_zip_add(test_zip_t *zip, const char *name, const void *data, size_t size,
                  test_zip_form_t form);
void test_zip_end(test_zip_t *zip);
void test_zip_free(test_zip_t *zip);

/* Raw deflate of `data`; returns its size. */
size_t test_deflate(const void *data, size_t size, unsigned char *to, size_t capacity);
uint32_t test_crc(const void *data, size_t size);

#endif
