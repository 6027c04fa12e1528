#include "io/decoder_input.h"

#include "base/check.h"
#include "base/fail.h"

#include <string.h>

void plim__decoder_input_init(plim__decoder_input_t *feed, plim__arena_t *arena,
                              plim__stream_t *inner)
{
    feed->inner = inner;
    feed->buffer = plim__arena_carve(arena, 1, PLIM__FEED_MARGIN + PLIM__FEED_BYTES, PLIM__PAGE);
    feed->begin = feed->buffer + PLIM__FEED_MARGIN;
    feed->end = feed->begin;
    feed->ended = false;
}

plim_status_t plim__decoder_input_need(plim__decoder_input_t *feed, size_t size)
{
    if (plim__decoder_input_have(feed) >= size)
        return PLIM_OK;
    size_t have = plim__decoder_input_have(feed);
    memmove(feed->buffer, feed->begin - PLIM__FEED_MARGIN, PLIM__FEED_MARGIN + have);
    feed->begin = feed->buffer + PLIM__FEED_MARGIN;
    feed->end = feed->begin + have;
    while (plim__decoder_input_have(feed) < size && !feed->ended) {
        size_t got;
        PLIM_TRY(feed->inner->read(feed->inner, feed->end,
                                   PLIM__FEED_BYTES - plim__decoder_input_have(feed), &got));
        feed->ended = got == 0;
        feed->end += got;
    }
    return PLIM_OK;
}

plim_status_t plim__decoder_input_skip(plim__decoder_input_t *feed, int64_t size,
                                       int64_t *passed_out)
{
    int64_t passed = 0;
    while (passed < size) {
        PLIM_TRY(plim__decoder_input_need(feed, 1));
        int64_t step = plim__min_i64((int64_t)plim__decoder_input_have(feed), size - passed);
        if (step == 0)
            break;
        feed->begin += step;
        passed += step;
    }
    *passed_out = passed;
    return PLIM_OK;
}
