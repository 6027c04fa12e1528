#include "base/json_scan.h"

#include "base/printable.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *skip_string(const char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++)
        at += *at == '\\' && at + 1 < end;
    return at < end ? at + 1 : end;
}

/* The end of the value at `at`. */
static const char *skip_value(const char *at, const char *end)
{
    int64_t depth = 0;
    while (at < end) {
        if (*at == '"') {
            at = skip_string(at, end);
            if (depth == 0)
                return at;
            continue;
        }
        if (depth == 0 && (*at == ',' || *at == '}' || *at == ']' || *at == '\n'))
            return at;
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        at++;
        if (depth == 0 && (at[-1] == '}' || at[-1] == ']'))
            return at;
    }
    return end;
}

static const char *skip_filling(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == ',' || *at == ':' || *at == '\n'))
        at++;
    return at;
}

static const char *first_inside(plim__json_t value, const char *at)
{
    if (at == NULL)
        at = value.begin < value.end ? value.begin + 1 : value.end;
    return skip_filling(at, value.end);
}

bool plim__json_next_member(plim__json_t object, const char **at, plim__json_t *key_out,
                            plim__json_t *value_out)
{
    const char *name = first_inside(object, *at);
    if (name >= object.end || *name != '"')
        return false;
    const char *behind = skip_string(name, object.end);
    const char *value = skip_filling(behind, object.end);
    *at = skip_value(value, object.end);
    *key_out = (plim__json_t){name, behind};
    *value_out = (plim__json_t){value, *at};
    return true;
}

bool plim__json_next_element(plim__json_t array, const char **at, plim__json_t *element_out)
{
    const char *begin = first_inside(array, *at);
    if (begin >= array.end || *begin == ']')
        return false;
    *at = skip_value(begin, array.end);
    *element_out = (plim__json_t){begin, *at};
    return *at > begin;
}

plim__json_t plim__json_get(plim__json_t object, const char *key)
{
    const char *at = NULL;
    for (plim__json_t name, value; plim__json_next_member(object, &at, &name, &value);)
        if (plim__json_is(name, key))
            return value;
    return (plim__json_t){object.end, object.end};
}

bool plim__json_is(plim__json_t value, const char *word)
{
    const size_t length = strlen(word);
    return (size_t)(value.end - value.begin) == length + 2 && *value.begin == '"' &&
           memcmp(value.begin + 1, word, length) == 0;
}

double plim__json_real(plim__json_t value, double missing)
{
    char text[32];
    const size_t length = (size_t)(value.end - value.begin);
    if (length == 0 || length >= sizeof text)
        return missing;
    memcpy(text, value.begin, length);
    text[length] = '\0';
    char *end;
    const double number = strtod(text, &end);
    const bool whole = *end == '\0' && text[strspn(text, "0123456789+-.eE")] == '\0';
    return whole && isfinite(number) && fabs(number) < (double)PLIM__JSON_NUMBER_MOST ? number
                                                                                      : missing;
}

/* The four digits of \uXXXX at `at`; -1 if they are not there. */
static long hex_digits(const char *at, const char *end)
{
    long code = 0;
    if (end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const char c = at[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return -1;
        code = code * 16 + digit;
    }
    return code;
}

static size_t encode_utf8(long code, char bytes_out[4])
{
    if (code < 0x80) {
        bytes_out[0] = (char)code;
        return 1;
    }
    const size_t size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; i--, code >>= 6)
        bytes_out[i] = (char)(0x80 | (code & 0x3f));
    bytes_out[0] = (char)((size == 2 ? 0xc0 : size == 3 ? 0xe0 : 0xf0) | code);
    return size;
}

/* The character of the escape at `at`, behind its backslash; moves *at behind it. */
static size_t take_escape(const char **at, const char *end, char bytes_out[4])
{
    if (**at != 'u') {
        bytes_out[0] = **at == '"' || **at == '\\' || **at == '/' ? **at : '\n';
        *at += 1;
        return 1;
    }
    long code = hex_digits(*at + 1, end);
    *at += code < 0 ? 1 : 5;
    if (code >= 0xd800 && code < 0xdc00 && end - *at >= 6 && (*at)[0] == '\\' && (*at)[1] == 'u') {
        const long low = hex_digits(*at + 2, end);
        if (low >= 0xdc00 && low < 0xe000) {
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            *at += 6;
        }
    }
    return encode_utf8(code < 0 ? 0 : code, bytes_out);
}

void plim__json_text(plim__json_t value, char *text_out, size_t size)
{
    plim__printable_t out = {text_out, size, 0, false};
    text_out[0] = '\0';
    if (value.end - value.begin < 2 || *value.begin != '"')
        return;
    const char *end = value.end - 1;
    for (const char *at = value.begin + 1; at < end;) {
        char bytes[4];
        const char *escape = at + 1;
        if (*at != '\\' || escape == end) {
            at += plim__printable_add(&out, at, (size_t)(end - at));
            continue;
        }
        const size_t length = take_escape(&escape, end, bytes);
        (void)plim__printable_add(&out, bytes, length);
        at = escape;
    }
}
