#include "io/inflate.h"

#include "base/check.h"
#include "base/fail.h"

#include <isa-l/crc.h>

void plim__inflate_begin(plim__inflate_t *inflate)
{
    isal_inflate_init(&inflate->state);
    inflate->taken = 0;
}

static const char *complaint_of(int code)
{
    switch (code) {
    case ISAL_INVALID_BLOCK:
        return "a deflate block's header is invalid";
    case ISAL_INVALID_SYMBOL:
        return "a deflate code is invalid";
    case ISAL_INVALID_LOOKBACK:
        return "a deflate distance reaches too far back";
    default:
        return code < 0 ? "its deflate data is invalid" : NULL;
    }
}

/* Decodes once from the next `size` bytes of the input. */
static const char *step(plim__inflate_t *inflate, plim__decoder_input_t *input, size_t size)
{
    struct inflate_state *state = &inflate->state;
    state->next_in = input->begin;
    state->avail_in = (uint32_t)size;
    int code = isal_inflate(state);
    unsigned char *next = state->next_in;
    /* Whole bytes in the bit buffer after the last block belong to the next member: hand them
     * back. The input's margin still holds them. */
    if (state->block_state == ISAL_BLOCK_FINISH) {
        next -= state->read_in_length / 8;
        state->read_in_length = 0;
    }
    inflate->taken += next - input->begin;
    input->begin = next;
    return complaint_of(code);
}

plim_status_t plim__inflate_read(plim__inflate_t *inflate, plim__decoder_input_t *input,
                                 int64_t limit, void *to, size_t capacity, size_t *got_out,
                                 const char **complaint_out)
{
    struct inflate_state *state = &inflate->state;
    const size_t most = (size_t)1 << 30;
    uint32_t space = (uint32_t)(capacity < most ? capacity : most);
    *complaint_out = NULL;
    state->next_out = to;
    state->avail_out = space;
    while (state->block_state != ISAL_BLOCK_FINISH && state->avail_out == space &&
           *complaint_out == NULL) {
        PLIM_TRY(plim__decoder_input_need(input, 1));
        int64_t left =
            plim__min_i64((int64_t)plim__decoder_input_have(input), limit - inflate->taken);
        *complaint_out = step(inflate, input, (size_t)left);
        if (left == 0 && state->avail_out == space && state->block_state != ISAL_BLOCK_FINISH)
            *complaint_out = "it ends inside a deflate block";
    }
    *got_out = space - state->avail_out;
    return PLIM_OK;
}

uint32_t plim__inflate_crc(uint32_t crc, const void *data, size_t size)
{
    /* ISA-L's declaration lacks const. */
    return crc32_gzip_refl(crc, (const unsigned char *)data, size);
}
