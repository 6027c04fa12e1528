/* .npy headers: what NumPy writes is read, what it would refuse is refused, what we write it reads.
 */
#include "support/harness.h"

#include "io/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads a file of this dict and no data. */
static plim_status_t read_dict(plim_job_t *job, int major, const char *dict, plim__npy_t *npy_out)
{
    unsigned char bytes[4096] = "\x93NUMPY";
    size_t size = strlen(dict);
    size_t at = major == 1 ? 10 : 12;
    bytes[6] = (unsigned char)major;
    bytes[8] = (unsigned char)(size & 0xff);
    bytes[9] = (unsigned char)(size >> 8);
    memcpy(bytes + at, dict, size);
    plim__reader_t *reader;
    assert_ok(plim__reader_memory(job, "test.npy", bytes, at + size, &reader));
    plim_status_t status = plim__npy_read(reader, npy_out);
    plim__reader_close(reader);
    return status;
}

typedef struct good {
    int major;
    const char *dict;
    plim__dtype_t type;
    bool fortran;
    int num_dims;
    int64_t shape[PLIM__NPY_DIMS];
} good_t;

static void reads_what_numpy_writes(void **state)
{
    (void)state;
    static const good_t cases[] = {
        {1,
         "{'descr': '<i8', 'fortran_order': False, 'shape': (0, 5), }  \n",
         PLIM__NPY_I64,
         false,
         2,
         {0, 5}},
        {2,
         "{'descr': '<f2', 'fortran_order': True, 'shape': (0, 7), }\n",
         PLIM__NPY_F16,
         false,
         2,
         {0, 7}},
        {3,
         "{'shape': (0,), 'fortran_order': True, 'descr': '|b1'}",
         PLIM__NPY_BOOL,
         false,
         1,
         {0}},
        {1,
         "{\"descr\":\"|u1\",\"fortran_order\":False,\"shape\":(0L,3L,4L,5L)}",
         PLIM__NPY_U8,
         false,
         4,
         {0, 3, 4, 5}},
        {1,
         " { 'descr' : '=f8' , 'fortran_order' : False , 'shape' : ( 0 , ) , } ",
         PLIM__NPY_F64,
         false,
         1,
         {0}},
        {1,
         "{'descr': 'i4', 'fortran_order': False, 'shape': (3,0)}",
         PLIM__NPY_I32,
         false,
         2,
         {3, 0}},
        {1, "{'descr': '>i1', 'fortran_order': False, 'shape': (0,)}", PLIM__NPY_I8, false, 1, {0}},
    };
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        plim__npy_t npy;
        assert_ok(read_dict(&job, cases[i].major, cases[i].dict, &npy));
        assert_int_equal(npy.type, cases[i].type);
        assert_int_equal(npy.fortran, cases[i].fortran);
        assert_int_equal(npy.num_dims, cases[i].num_dims);
        assert_int_equal(npy.count, 0);
        assert_int_equal(npy.header_size, strlen(cases[i].dict) + (cases[i].major == 1 ? 10 : 12));
        assert_memory_equal(npy.shape, cases[i].shape, sizeof(int64_t) * (size_t)npy.num_dims);
    }
    test_job_end(&job);
}

static void keeps_the_order_of_arrays(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__npy_t npy;
    /* A file of 10 + 57 bytes of header and 24 of data. */
    static const char head[] = "\x93NUMPY\x01\x00";
    const char *dict = "{'descr':'<f4','fortran_order':True,'shape':(2,3)}";
    unsigned char bytes[200];
    size_t size = 10 + strlen(dict);
    memcpy(bytes, head, 8);
    bytes[8] = (unsigned char)strlen(dict);
    bytes[9] = 0;
    memcpy(bytes + 10, dict, strlen(dict));
    for (size_t data = 23; data <= 25; data++) {
        plim__reader_t *reader;
        assert_ok(plim__reader_memory(&job, "test.npy", bytes, size + data, &reader));
        plim_status_t status = plim__npy_read(reader, &npy);
        assert_int_equal(status, data == 24 ? PLIM_OK : PLIM_ERR_DATA);
        if (status != PLIM_OK)
            assert_non_null(strstr(plim_last_error(), "24"));
        plim__reader_close(reader);
    }
    assert_true(npy.fortran);
    assert_int_equal(npy.count, 6);
    assert_int_equal(npy.header_size, (int64_t)size);
    test_job_end(&job);
}

typedef struct bad {
    const char *dict;
    const char *message; /* a part of it */
} bad_t;

static void refuses_what_it_cannot_read(void **state)
{
    (void)state;
    static const bad_t cases[] = {
        {"{'descr': '>i8', 'fortran_order': False, 'shape': (0,)}", "big-endian"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (0,)}", "Python objects"},
        {"{'descr': '<U3', 'fortran_order': False, 'shape': (0,)}", "dtype '<U3'"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (0,)}", "dtype '<c8'"},
        {"{'descr': '\x1b[m', 'fortran_order': False, 'shape': (0,)}", "dtype '?[m'"},
        {"{'descr': [('a', '<i8')], 'fortran_order': False, 'shape': (0,)}", "structured"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (-1,)}", "a dimension"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (9223372036854775808,)}",
         "a dimension"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (1152921504606846976,)}", "63 bits"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (4294967296, 4294967296, 0)}",
         "63 bits"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (1,1,1,1,1)}", "4 dimensions"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': 3}", "'shape'"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (1 2)}", "'shape'"},
        {"{'descr': '<i8', 'fortran_order': 0, 'shape': (0,)}", "'fortran_order'"},
        {"{'descr': '<i8', 'fortran_order': False}", "missing"},
        {"{'descr': '<i8', 'descr': '<i8', 'fortran_order': False, 'shape': (0,)}", "twice"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (0,), 'x': 1}", "key"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (0,)} x", "dict"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (0,)", "comma"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (0,", "dimension"},
        {"{'descr': '<i8", "'descr'"},
        {"{'descr'", "key"},
        {"{", "key"},
        {"", "dict"},
    };
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        plim__npy_t npy;
        assert_int_equal(read_dict(&job, 1, cases[i].dict, &npy), PLIM_ERR_DATA);
        if (strstr(plim_last_error(), cases[i].message) == NULL ||
            strstr(plim_last_error(), "test.npy") == NULL)
            fail_msg("'%s' does not say '%s'", plim_last_error(), cases[i].message);
    }
    test_job_end(&job);
}

static void refuses_what_is_no_npy(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *message;
    } cases[] = {
        {"", 0, "0 bytes"},
        {"\x93NUMPY\x01\x00\x04", 9, "9 bytes"},
        {"\x93NUMPY\x01\x00\x04\x00{}", 12, "12 bytes"},
        {"\x93NUMPX\x01\x00\x04\x00{}  ", 14, "NUMPY"},
        {"\x93NUMPY\x04\x00\x04\x00{}  ", 14, "format 4.0"},
        {"\x93NUMPY\x01\x01\x04\x00{}  ", 14, "format 1.1"},
        {"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14, "4294967295"},
    };
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        plim__reader_t *reader;
        plim__npy_t npy;
        assert_ok(plim__reader_memory(&job, "test.npy", cases[i].bytes, cases[i].size, &reader));
        assert_int_equal(plim__npy_read(reader, &npy), PLIM_ERR_DATA);
        if (strstr(plim_last_error(), cases[i].message) == NULL)
            fail_msg("'%s' does not say '%s'", plim_last_error(), cases[i].message);
        plim__reader_close(reader);
    }
    test_job_end(&job);
}

/* Every type and number of dimensions, written, and read by us and (when it is here) by NumPy. */
static void writes_what_it_and_numpy_read(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    bool numpy = system("python3 -c 'import numpy' 2> /dev/null") == 0;
    char folder[512];
    test_directory_make(folder);
    for (int type = PLIM__NPY_BOOL; type <= PLIM__NPY_F64; type++) {
        static unsigned char bytes[PLIM__NPY_HEADER + 1000];
        int dims = type % (PLIM__NPY_DIMS + 1);
        plim__npy_t npy = {.type = (plim__dtype_t)type, .num_dims = dims, .shape = {2, 3, 4, 1}},
                    back;
        npy.count = (int64_t[]){1, 2, 6, 24, 24}[dims];
        plim__npy_header(&npy, bytes);
        size_t size = PLIM__NPY_HEADER + (size_t)npy.count * plim__dtype_size(npy.type);
        plim__reader_t *reader;
        assert_ok(plim__reader_memory(&job, "test.npy", bytes, size, &reader));
        assert_ok(plim__npy_read(reader, &back));
        plim__reader_close(reader);
        assert_int_equal(back.type, type);
        assert_int_equal(back.num_dims, dims);
        assert_int_equal(back.count, npy.count);
        assert_memory_equal(back.shape, npy.shape, (size_t)dims * sizeof(int64_t));
        assert_int_equal(back.header_size, PLIM__NPY_HEADER);
        if (!numpy)
            continue;
        char path[600], command[1400];
        (void)snprintf(path, sizeof path, "%s/%d.npy", folder, type);
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(bytes, 1, size, file), size);
        assert_int_equal(fclose(file), 0);
        (void)snprintf(command, sizeof command,
                       "python3 -c \"import numpy; a = numpy.load('%s', mmap_mode='r'); "
                       "assert a.dtype.str == '%s' and a.ndim == %d and a.size == %d\"",
                       path, plim__dtype_name(npy.type), dims, (int)npy.count);
        assert_int_equal(system(command), 0);
    }
    if (!numpy)
        print_message("SKIPPED: python3 has no numpy here; headers were read by us alone\n");
    test_directory_remove(folder);
    test_job_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_numpy_writes),
        cmocka_unit_test(keeps_the_order_of_arrays),
        cmocka_unit_test(refuses_what_it_cannot_read),
        cmocka_unit_test(refuses_what_is_no_npy),
        cmocka_unit_test(writes_what_it_and_numpy_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
