/* .npy headers: what NumPy writes is read, what it would refuse is refused, what we write it reads.
 */
#include "support/harness.h"

#include "io/npy.h"

#include <stdio.h>
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
    plim__stream_t *stream;
    assert_ok(plim__stream_memory(job, "test.npy", bytes, at + size, &stream));
    plim_status_t status = plim__npy_read(stream, npy_out);
    plim__stream_close(stream);
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
         PLIM__I64,
         false,
         2,
         {0, 5}},
        {2,
         "{'descr': '<f2', 'fortran_order': True, 'shape': (0, 7), }\n",
         PLIM__F16,
         false,
         2,
         {0, 7}},
        {3, "{'shape': (0,), 'fortran_order': True, 'descr': '|b1'}", PLIM__BOOL, false, 1, {0}},
        {1,
         "{\"descr\":\"|u1\",\"fortran_order\":False,\"shape\":(0L,3L,4L,5L)}",
         PLIM__U8,
         false,
         4,
         {0, 3, 4, 5}},
        {1,
         " { 'descr' : '=f8' , 'fortran_order' : False , 'shape' : ( 0 , ) , } ",
         PLIM__F64,
         false,
         1,
         {0}},
        {1, "{'descr': 'i4', 'fortran_order': False, 'shape': (3,0)}", PLIM__I32, false, 2, {3, 0}},
        {1, "{'descr': '>i1', 'fortran_order': False, 'shape': (0,)}", PLIM__I8, false, 1, {0}},
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_numpy_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
