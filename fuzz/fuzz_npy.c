/* .npy headers: what is accepted makes sense, and survives being written and read again. */
#include "fuzz.h"
#include "io/npy.h"

#include <string.h>

/* Our header for the same array, with the data behind it. */
static void check_round_trip(const plim__npy_t *npy, const uint8_t *data, size_t size)
{
    static unsigned char bytes[PLIM__NPY_HEADER + ((size_t)1 << 20)];
    plim__reader_t *reader;
    plim__npy_t again;
    if (size > sizeof bytes - PLIM__NPY_HEADER)
        return;
    plim__npy_header(npy, bytes);
    memcpy(bytes + PLIM__NPY_HEADER, data, size);
    FUZZ_ASSERT(plim__reader_memory(fuzz_job(), "again", bytes, PLIM__NPY_HEADER + size, &reader) ==
                PLIM_OK);
    FUZZ_ASSERT(plim__npy_read(reader, &again) == PLIM_OK);
    FUZZ_ASSERT(again.type == npy->type && again.num_dims == npy->num_dims);
    FUZZ_ASSERT(again.count == npy->count && again.header_size == PLIM__NPY_HEADER);
    FUZZ_ASSERT(memcmp(again.shape, npy->shape, sizeof again.shape) == 0);
    plim__reader_close(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    plim__reader_t *reader;
    plim__npy_t npy;
    FUZZ_ASSERT(plim__reader_memory(fuzz_job(), "fuzz.npy", data, size, &reader) == PLIM_OK);
    if (plim__npy_read(reader, &npy) == PLIM_OK) {
        int64_t count = 1;
        for (int i = 0; i < npy.num_dims; i++)
            count *= npy.shape[i];
        FUZZ_ASSERT(count == npy.count);
        FUZZ_ASSERT(npy.header_size + count * (int64_t)plim__dtype_size(npy.type) == (int64_t)size);
        check_round_trip(&npy, data + npy.header_size, size - (size_t)npy.header_size);
    }
    plim__reader_close(reader);
    fuzz_check_ledger();
    return 0;
}
