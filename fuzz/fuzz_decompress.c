/* gzip, zstd and plain bytes. */
#include "fuzz.h"
#include "io/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char buffer[1 << 19];
    plim__reader_t *reader;
    size_t got = 1;
    /* Reads of one size an input, small or large. */
    size_t piece = size % 3 == 0 ? sizeof buffer : 1 + size % 997;
    FUZZ_ASSERT(plim__reader_memory(fuzz_job(), "fuzz", data, size, &reader) == PLIM_OK);
    if (plim__reader_decompress(fuzz_job(), reader, &reader) == PLIM_OK) {
        while (got > 0 && reader->position < (int64_t)1 << 24) {
            if (reader->read(reader, buffer, piece, &got) != PLIM_OK)
                break;
            FUZZ_ASSERT(got <= piece);
        }
        plim__reader_close(reader);
    }
    fuzz_check_ledger();
    return 0;
}
