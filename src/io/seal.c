#include "io/seal.h"

#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define HEAD "\"self\": \""
#define DIGITS PLIM__SEAL_DIGITS
#define TAIL "\"\n}\n"

#define HEAD_BYTES (sizeof HEAD - 1)
#define TAIL_BYTES (sizeof TAIL - 1)

_Static_assert(sizeof ",\n  " HEAD TAIL + DIGITS <= PLIM__SEAL_BYTES, "bytes that a seal adds");

void plim__seal_digits(const void *from, size_t size, char digits_out[DIGITS + 1])
{
    (void)snprintf(digits_out, DIGITS + 1, "%016llx", (unsigned long long)XXH3_64bits(from, size));
}

bool plim__seal_put(char *text, size_t size, size_t *used)
{
    static const char head[] = ",\n  " HEAD;
    char digits[DIGITS + 1];
    if (*used < 2 || size < *used + PLIM__SEAL_BYTES)
        return false;
    char *at = text + *used - 2; /* overwrites the final "\n}" */
    at = (char *)memcpy(at, head, sizeof head - 1) + sizeof head - 1;
    plim__seal_digits(text, (size_t)(at - text), digits);
    at = (char *)memcpy(at, digits, DIGITS) + DIGITS;
    at = (char *)memcpy(at, TAIL, TAIL_BYTES) + TAIL_BYTES;
    *used = (size_t)(at - text);
    return true;
}

plim__seal_t plim__seal_check(const char *text, size_t size)
{
    char digits[DIGITS + 1];
    if (size < HEAD_BYTES + DIGITS + TAIL_BYTES)
        return PLIM__SEAL_MISSING;
    const size_t sealed = size - TAIL_BYTES - DIGITS;
    if (memcmp(text + sealed - HEAD_BYTES, HEAD, HEAD_BYTES) != 0 ||
        memcmp(text + size - TAIL_BYTES, TAIL, TAIL_BYTES) != 0)
        return PLIM__SEAL_MISSING;
    plim__seal_digits(text, sealed, digits);
    return memcmp(text + sealed, digits, DIGITS) == 0 ? PLIM__SEAL_GOOD : PLIM__SEAL_WRONG;
}

size_t plim__json_memory(const char *text, size_t size)
{
    size_t memory = ((size_t)16 << 10) + 4 * size;
    for (size_t i = 0; i < size; i++)
        switch (text[i]) {
        case '{':
            memory += 384;
            break;
        case '[':
        case ':':
            memory += 256;
            break;
        case ',':
            memory += 128;
            break;
        default:
            break;
        }
    return memory;
}
