#include "base/printable.h"

#include <string.h>

size_t plim__printable(const char *bytes, size_t length)
{
    const unsigned char *text = (const unsigned char *)bytes;
    if (text[0] < 0x80)
        return text[0] >= 0x20 && text[0] != 0x7f;
    const size_t size = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    /* Overlong forms and C1 (U+0080 to U+009F) are below these second bytes. */
    const unsigned char minimum = text[0] == 0xc2 || text[0] == 0xe0 ? 0xa0
                                  : text[0] == 0xf0                  ? 0x90
                                                                     : 0x80;
    if (text[0] < 0xc2 || text[0] > 0xf4 || size > length || text[1] < minimum)
        return 0;
    /* Surrogates, and what is past U+10FFFF. */
    if ((text[0] == 0xed && text[1] > 0x9f) || (text[0] == 0xf4 && text[1] > 0x8f))
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    return size;
}

size_t plim__printable_add(plim__printable_t *out, const char *text, size_t length)
{
    static const char ellipsis[] = "\xe2\x80\xa6";
    const size_t bytes = plim__printable(text, length);
    const size_t taken = bytes > 0 ? bytes : 1;
    if (!out->cut && out->used + taken + sizeof ellipsis > out->size) {
        memcpy(out->text + out->used, ellipsis, sizeof ellipsis);
        out->cut = true;
    }
    if (!out->cut) {
        memcpy(out->text + out->used, bytes > 0 ? text : "?", taken);
        out->used += taken;
        out->text[out->used] = '\0';
    }
    return taken;
}

void plim__text_printable(const char *text, size_t length, char *text_out, size_t size)
{
    plim__printable_t out = {text_out, size, 0, false};
    text_out[0] = '\0';
    for (size_t i = 0; i < length && !out.cut;)
        i += plim__printable_add(&out, text + i, length - i);
}
