/*
 * The input buffer of a decoder. The decoder reads its bytes in place. The last few bytes
 * before `begin` are kept too, since igzip reads some bytes too many and hands them back.
 *
 *     buffer:  │ margin │ passed │ begin … end │ free │
 */
#ifndef PLIM_IO_DECODER_INPUT_H
#define PLIM_IO_DECODER_INPUT_H

#include "io/reader.h"
#include "mem/arena.h"

#define PLIM__INPUT_BYTES ((size_t)256 << 10)
#define PLIM__INPUT_MARGIN ((size_t)64)

typedef struct plim__decoder_input {
    plim__reader_t *inner; /* borrowed */
    unsigned char *buffer;
    unsigned char *begin;
    unsigned char *end;
    bool ended; /* the inner reader has ended */
} plim__decoder_input_t;

/* Carves the buffer. */
void plim__decoder_input_init(plim__decoder_input_t *input, plim__arena_t *arena,
                              plim__reader_t *inner);

/* Reads until `size` (at most PLIM__INPUT_BYTES) bytes are at `begin`; fewer only at the end of the
 * reader. */
plim_status_t plim__decoder_input_need(plim__decoder_input_t *input, size_t size);

static inline size_t plim__decoder_input_have(const plim__decoder_input_t *input)
{
    return (size_t)(input->end - input->begin);
}

/* The position of `begin` among the inner reader's bytes. */
static inline int64_t plim__decoder_input_position(const plim__decoder_input_t *input)
{
    return input->inner->position - (input->end - input->begin);
}

/* Skips `size` bytes; *passed_out is less at the inner reader's end. */
plim_status_t plim__decoder_input_skip(plim__decoder_input_t *input, int64_t size,
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
