/*
 * The input buffer of a decoder: what a stream gives, looked at in place, with a few bytes already
 * passed kept before it, because inflating reads some bytes too many and hands them back.
 *
 *     buffer:  │ margin │ passed │ begin … end │ free │
 */
#ifndef PLIM_IO_DECODER_INPUT_H
#define PLIM_IO_DECODER_INPUT_H

#include "io/stream.h"
#include "mem/arena.h"

#define PLIM__FEED_BYTES ((size_t)256 << 10)
#define PLIM__FEED_MARGIN ((size_t)64)

typedef struct plim__decoder_input {
    plim__stream_t *inner; /* borrowed */
    unsigned char *buffer;
    unsigned char *begin;
    unsigned char *end;
    bool ended; /* the stream gives no more */
} plim__decoder_input_t;

/* Carves the buffer: PLIM__FEED_PIECE bytes of the arena at most. */
#define PLIM__FEED_PIECE (PLIM__FEED_MARGIN + PLIM__FEED_BYTES + PLIM__PAGE)
void plim__decoder_input_init(plim__decoder_input_t *feed, plim__arena_t *arena,
                              plim__stream_t *inner);

/* Makes `size` (at most PLIM__FEED_BYTES) bytes stand at `begin`; fewer only when the stream ended.
 */
plim_status_t plim__decoder_input_need(plim__decoder_input_t *feed, size_t size);

static inline size_t plim__decoder_input_have(const plim__decoder_input_t *feed)
{
    return (size_t)(feed->end - feed->begin);
}

/* Where `begin` is in the stream. */
static inline int64_t plim__decoder_input_position(const plim__decoder_input_t *feed)
{
    return feed->inner->position - (feed->end - feed->begin);
}

/* Passes `size` bytes; *passed_out is less when the stream ended. */
plim_status_t plim__decoder_input_skip(plim__decoder_input_t *feed, int64_t size,
                                       int64_t *passed_out);

static inline uint32_t plim__decoder_input_u16(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static inline uint32_t plim__decoder_input_u32(const unsigned char *p)
{
    return plim__decoder_input_u16(p) | plim__decoder_input_u16(p + 2) << 16;
}

static inline uint64_t plim__decoder_input_u64(const unsigned char *p)
{
    return plim__decoder_input_u32(p) | (uint64_t)plim__decoder_input_u32(p + 4) << 32;
}

#endif
