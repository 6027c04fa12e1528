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

/* Decodes once from the next `input` bytes of the feed. */
static const char *step(plim__inflate_t *inflate, plim__decoder_input_t *feed, size_t input)
{
    struct inflate_state *state = &inflate->state;
    state->next_in = feed->begin;
    state->avail_in = (uint32_t)input;
    int code = isal_inflate(state);
    unsigned char *next = state->next_in;
    /* Bytes in the bit buffer behind the last block belong to what follows; the margin has them. */
    if (state->block_state == ISAL_BLOCK_FINISH) {
        next -= state->read_in_length / 8;
        state->read_in_length = 0;
    }
    inflate->taken += next - feed->begin;
    feed->begin = next;
    return complaint_of(code);
}

plim_status_t plim__inflate_read(plim__inflate_t *inflate, plim__decoder_input_t *feed,
                                 int64_t limit, void *to, size_t capacity, size_t *got_out,
                                 const char **complaint_out)
{
    struct inflate_state *state = &inflate->state;
    const size_t most = (size_t)1 << 30;
    uint32_t room = (uint32_t)(capacity < most ? capacity : most);
    *complaint_out = NULL;
    state->next_out = to;
    state->avail_out = room;
    while (state->block_state != ISAL_BLOCK_FINISH && state->avail_out == room &&
           *complaint_out == NULL) {
        PLIM_TRY(plim__decoder_input_need(feed, 1));
        int64_t left =
            plim__min_i64((int64_t)plim__decoder_input_have(feed), limit - inflate->taken);
        *complaint_out = step(inflate, feed, (size_t)left);
        if (left == 0 && state->avail_out == room && state->block_state != ISAL_BLOCK_FINISH)
            *complaint_out = "it ends inside a deflate block";
    }
    *got_out = room - state->avail_out;
    return PLIM_OK;
}

uint32_t plim__inflate_crc(uint32_t crc, const void *data, size_t size)
{
    /* ISA-L's header lacks a const it keeps. */
    return crc32_gzip_refl(crc, (const unsigned char *)data, size);
}
