#include "report/page.h"

#include "base/printable.h"

#include <math.h>
#include <plimsoll/limit.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void add(report_page_t *page, const char *bytes, size_t length)
{
    if (page->text != NULL && length < page->size - page->used)
        memcpy(page->text + page->used, bytes, length);
    page->used += length;
}

void report_page_put(report_page_t *page, const char *html)
{
    add(page, html, strlen(html));
}

void report_page_format(report_page_t *page, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    report_page_put(page, text);
}

/* Marks, embeddings, overrides and isolates of direction; characters that HTML forbids. */
static bool is_unsafe(const char *text, size_t length)
{
    const unsigned char *at = (const unsigned char *)text;
    if (length == 3 && at[0] == 0xe2 && at[1] == 0x80)
        return at[2] == 0x8e || at[2] == 0x8f || (at[2] >= 0xa8 && at[2] <= 0xae);
    if (length == 3 && at[0] == 0xe2 && at[1] == 0x81)
        return at[2] >= 0xa6 && at[2] <= 0xa9;
    if (length == 3 && at[0] == 0xef && at[1] == 0xb7)
        return at[2] >= 0x90 && at[2] <= 0xaf;
    const size_t last = length - 1;
    return length >= 3 && at[last] >= 0xbe && at[last - 1] == 0xbf &&
           (length == 3 ? at[0] == 0xef : (at[last - 2] & 0x0f) == 0x0f);
}

void report_page_text(report_page_t *page, const char *text)
{
    static const struct {
        char character;
        const char *entity;
    } entities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
    const size_t length = strlen(text);
    for (size_t i = 0; i < length;) {
        const size_t bytes = plim__printable(text + i, length - i);
        const char *entity = NULL;
        for (size_t k = 0; k < sizeof entities / sizeof entities[0]; k++)
            if (text[i] == entities[k].character)
                entity = entities[k].entity;
        if (bytes == 0 || is_unsafe(text + i, bytes))
            entity = "\xef\xbf\xbd";
        if (entity != NULL)
            report_page_put(page, entity);
        else
            add(page, text + i, bytes);
        i += bytes > 0 ? bytes : 1;
    }
}

void report_page_json(report_page_t *page, plim__json_t value)
{
    char text[4096];
    const char *at = NULL;
    bool more = false;
    if (value.begin < value.end && *value.begin == '[') {
        for (plim__json_t one; plim__json_next_element(value, &at, &one); more = true) {
            report_page_put(page, more ? ", " : "");
            plim__text_printable(one.begin, (size_t)(one.end - one.begin), text, sizeof text);
            if (*one.begin == '"')
                plim__json_text(one, text, sizeof text);
            report_page_text(page, text);
        }
        return;
    }
    if (value.begin < value.end && *value.begin == '"')
        plim__json_text(value, text, sizeof text);
    else
        plim__text_printable(value.begin, (size_t)(value.end - value.begin), text, sizeof text);
    report_page_text(page, text);
}

void report_page_bytes(report_page_t *page, double bytes)
{
    char text[24];
    report_page_put(page, bytes < 0 ? "–" : plim_size_text((int64_t)fmin(bytes, 9e18), text));
}

void report_page_seconds(report_page_t *page, double seconds)
{
    const int64_t whole = seconds < 9e15 ? (int64_t)(seconds + 0.5) : 0;
    if (!(seconds >= 0))
        report_page_put(page, "–");
    else if (seconds < 0.9995)
        report_page_format(page, "%.*f ms", seconds < 0.00995 ? 1 : 0, seconds * 1000);
    else if (seconds < 59.95)
        report_page_format(page, "%.*f s", seconds < 9.995 ? 2 : 1, seconds);
    else if (whole < 3600)
        report_page_format(page, "%lld:%02lld min", (long long)(whole / 60),
                           (long long)(whole % 60));
    else
        report_page_format(page, "%lld:%02lld:%02lld h", (long long)(whole / 3600),
                           (long long)(whole / 60 % 60), (long long)(whole % 60));
}

void report_page_number(report_page_t *page, double number)
{
    const double size = fabs(number);
    if (size >= 1e6 || (size > 0 && size < 1e-3))
        report_page_format(page, "%.2e", number);
    else
        report_page_format(page, "%.*f",
                           size >= 100 || number == floor(number) ? 0
                           : size >= 10                           ? 1
                           : size >= 1                            ? 2
                                                                  : 3,
                           number);
}
