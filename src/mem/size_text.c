#include "mem/size_text.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"

#include <plimsoll/limit.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char units[] = "KMGTP";

const char *plim__size_text(int64_t bytes, char text_out[PLIM__SIZE_TEXT])
{
    if (bytes == PLIM_LINE_NONE) {
        (void)snprintf(text_out, PLIM__SIZE_TEXT, "unlimited");
        return text_out;
    }
    double value = (double)bytes;
    int unit = -1;
    /* 1023.7 MiB would be shown as 1024 MiB: it is 1.00 GiB. */
    while (value >= (unit < 0 ? 1024 : 1023.5) && unit + 1 < (int)strlen(units)) {
        value /= 1024;
        unit++;
    }
    int digits = value == (double)(int64_t)value ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    if (unit < 0)
        (void)snprintf(text_out, PLIM__SIZE_TEXT, "%lld B", (long long)bytes);
    else
        (void)snprintf(text_out, PLIM__SIZE_TEXT, "%.*f %ciB", digits, value, units[unit]);
    return text_out;
}

PLIM_API const char *plim_size_text(int64_t bytes, char text_out[24])
{
    return plim__size_text(bytes, text_out);
}

/* Digits, and past a point more of them; not strtod, which also takes 0x1p4, inf and, depending on
 * the locale, 1,5. Moves *text behind them; false without a digit or past 2^62. */
static bool parse_decimal(const char **text, int64_t *whole_out, double *fraction_out)
{
    const char *at = *text;
    int64_t whole = 0;
    double fraction = 0, place = 0.1;
    if (*at < '0' || *at > '9')
        return false;
    for (; *at >= '0' && *at <= '9'; at++)
        if (!plim__mul_i64(whole, 10, &whole) || !plim__add_i64(whole, *at - '0', &whole))
            return false;
    if (*at == '.')
        for (at++; *at >= '0' && *at <= '9'; at++, place /= 10)
            fraction += (*at - '0') * place;
    *text = at;
    *whole_out = whole;
    *fraction_out = fraction;
    return true;
}

PLIM_API plim_status_t plim_size_parse(const char *text, int64_t *bytes_out)
{
    const char *end = text;
    int64_t whole, bytes, scale = 1;
    double fraction;
    if (!parse_decimal(&end, &whole, &fraction))
        return plim__fail(PLIM_ERR_USAGE, "'%s' is not a size; write it like 4G, 1.5G or 300M",
                          text);
    end += *end == ' ' && end[1] != '\0';
    const char *unit =
        *end != '\0' ? strchr(units, *end >= 'a' && *end <= 'z' ? *end - 'a' + 'A' : *end) : NULL;
    if (unit != NULL) {
        scale = (int64_t)1 << (10 * (unit - units + 1));
        end++;
    }
    end += unit != NULL && (*end == 'i' || *end == 'I');
    end += *end == 'B' || *end == 'b';
    if (*end != '\0')
        return plim__fail(PLIM_ERR_USAGE, "'%s' is not a size; write it like 4G, 1.5G or 300M",
                          text);
    if (!plim__mul_i64(whole, scale, &bytes) || bytes >= (int64_t)1 << 62)
        return plim__fail(PLIM_ERR_USAGE, "'%s' is larger than any memory or disk", text);
    *bytes_out = bytes + (int64_t)(fraction * (double)scale);
    return PLIM_OK;
}
