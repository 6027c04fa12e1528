#include "io/decoder_input.h"

#include "base/check.h"
#include "base/fail.h"

#include <string.h>

void plim__decoder_input_init(plim__decoder_input_t *input, plim__arena_t *arena,
                              plim__reader_t *inner)
{
    input->inner = inner;
    input->buffer = plim__arena_carve(arena, 1, PLIM__INPUT_MARGIN + PLIM__INPUT_BYTES, PLIM__PAGE);
    input->begin = input->end = input->buffer == NULL ? NULL : input->buffer + PLIM__INPUT_MARGIN;
    input->ended = false;
}

plim_status_t plim__decoder_input_need(plim__decoder_input_t *input, size_t size)
{
    if (plim__decoder_input_have(input) >= size)
        return PLIM_OK;
    size_t have = plim__decoder_input_have(input);
    memmove(input->buffer, input->begin - PLIM__INPUT_MARGIN, PLIM__INPUT_MARGIN + have);
    input->begin = input->buffer + PLIM__INPUT_MARGIN;
    input->end = input->begin + have;
    while (plim__decoder_input_have(input) < size && !input->ended) {
        size_t got;
        PLIM_TRY(input->inner->read(input->inner, input->end,
                                    PLIM__INPUT_BYTES - plim__decoder_input_have(input), &got));
        input->ended = got == 0;
        input->end += got;
    }
    return PLIM_OK;
}

plim_status_t plim__decoder_input_skip(plim__decoder_input_t *input, int64_t size,
                                       int64_t *passed_out)
{
    int64_t passed = 0;
    while (passed < size) {
        PLIM_TRY(plim__decoder_input_need(input, 1));
        int64_t step = plim__min_i64((int64_t)plim__decoder_input_have(input), size - passed);
        if (step == 0)
            break;
        input->begin += step;
        passed += step;
    }
    *passed_out = passed;
    return PLIM_OK;
}
