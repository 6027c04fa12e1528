/* Zips, zips in them, and the .npy headers of their members. Members are read or passed over as
 * their names say. */
#include "fuzz.h"
#include "io/npy.h"

#include <string.h>

static void walk(plim__stream_t *inner, int depth)
{
    static char buffers[3][1 << 19];
    plim__zip_t *zip;
    const char *name;
    int64_t size;
    FUZZ_ASSERT(plim__zip_open(fuzz_job(), inner, &zip) == PLIM_OK);
    while (plim__zip_next(zip, &name, &size) == PLIM_OK && name != NULL) {
        plim__stream_t *stream;
        plim__npy_t npy;
        size_t got = 1;
        FUZZ_ASSERT(name[0] != '\0' && strlen(name) < PLIM__STREAM_NAME && size >= -1);
        if (name[0] == 's' || plim__zip_member(zip, &stream) != PLIM_OK)
            continue;
        if (strstr(name, ".npz") != NULL && depth < 2) {
            walk(stream, depth + 1);
            continue;
        }
        if (strstr(name, ".npy") != NULL)
            (void)plim__npy_read(stream, &npy);
        /* Odd sizes, below and above what is decoded through a buffer. */
        size_t piece = name[0] == 'l' ? sizeof buffers[0] : 1 + (size_t)(unsigned char)name[0] * 7;
        while (got > 0 && stream->position < (int64_t)1 << 24) {
            if (stream->read(stream, buffers[depth], piece, &got) != PLIM_OK)
                break;
            FUZZ_ASSERT(got <= piece);
            FUZZ_ASSERT(size < 0 || stream->position <= size);
        }
        plim__stream_close(stream);
    }
    plim__zip_close(zip);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    plim__stream_t *stream;
    FUZZ_ASSERT(plim__stream_memory(fuzz_job(), "fuzz.zip", data, size, &stream) == PLIM_OK);
    walk(stream, 0);
    fuzz_check_ledger();
    return 0;
}
