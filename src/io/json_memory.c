#include "io/json_memory.h"

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
