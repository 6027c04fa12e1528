/* Zips, zips in them, and the .npy headers of their members. Members are read or passed over as
 * their names say. */
#include "fuzz.h"
#include "io/npy.h"

#include <string.h>

static void walk(plim__reader_t *inner, int depth)
{
    static char buffers[3][1 << 19];
    plim__zip_t *zip;
    const char *name;
    int64_t size;
    FUZZ_ASSERT(plim__zip_open(fuzz_job(), inner, &zip) == PLIM_OK);
    while (plim__zip_next(zip, &name, &size) == PLIM_OK && name != NULL) {
        plim__reader_t *reader;
        plim__npy_t npy;
        size_t got = 1;
        FUZZ_ASSERT(name[0] != '\0' && strlen(name) < PLIM__READER_NAME && size >= -1);
        if (name[0] == 's' || plim__zip_member(zip, &reader) != PLIM_OK)
            continue;
        if (strstr(name, ".npz") != NULL && depth < 2) {
            walk(reader, depth + 1);
            continue;
        }
        if (strstr(name, ".npy") != NULL)
            (void)plim__npy_read(reader, &npy);
        /* Odd sizes, below and above what is decoded through a buffer. */
        size_t piece = name[0] == 'l' ? sizeof buffers[0] : 1 + (size_t)(unsigned char)name[0] * 7;
        while (got > 0 && reader->position < (int64_t)1 << 24) {
            if (reader->read(reader, buffers[depth], piece, &got) != PLIM_OK)
                break;
            FUZZ_ASSERT(got <= piece);
            FUZZ_ASSERT(size < 0 || reader->position <= size);
        }
        plim__reader_close(reader);
    }
    plim__zip_close(zip);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    plim__reader_t *reader;
    FUZZ_ASSERT(plim__reader_memory(fuzz_job(), "fuzz.zip", data, size, &reader) == PLIM_OK);
    walk(reader, 0);
    fuzz_check_ledger();
    return 0;
}
