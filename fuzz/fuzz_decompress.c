/* gzip, zstd and plain bytes. */
#include "fuzz.h"
#include "io/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char buffer[1 << 19];
    plim__stream_t *stream;
    size_t got = 1;
    /* Reads of one size an input, small or large. */
    size_t piece = size % 3 == 0 ? sizeof buffer : 1 + size % 997;
    FUZZ_ASSERT(plim__stream_memory(fuzz_job(), "fuzz", data, size, &stream) == PLIM_OK);
    if (plim__stream_decompress(fuzz_job(), stream, &stream) == PLIM_OK) {
        while (got > 0 && stream->position < (int64_t)1 << 24) {
            if (stream->read(stream, buffer, piece, &got) != PLIM_OK)
                break;
            FUZZ_ASSERT(got <= piece);
        }
        plim__stream_close(stream);
    }
    fuzz_check_ledger();
    return 0;
}
