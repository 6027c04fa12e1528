#include "mem/size_text.h"

#include <errno.h>
#include <plimsoll/ledger.h>
#include <plimsoll/limit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

static const char units[] = "KMGTP";

const char *plim__size_text(int64_t bytes, char text_out[PLIM__SIZE_TEXT])
{
    if (bytes == PLIM_LINE_NONE)
        return strcpy(text_out, "unlimited");
    double value = (double)bytes;
    int unit = -1;
    while (value >= 1024 && unit + 1 < (int)strlen(units)) {
        value /= 1024;
        unit++;
    }
    int digits = unit < 0 || value == (double)(int64_t)value ? 0
                 : value < 10                                ? 2
                 : value < 100                               ? 1
                                                             : 0;
    if (unit < 0)
        (void)snprintf(text_out, PLIM__SIZE_TEXT, "%d B", (int)bytes);
    else
        (void)snprintf(text_out, PLIM__SIZE_TEXT, "%.*f %ciB", digits, value, units[unit]);
    return text_out;
}

PLIM_API const char *plim_size_text(int64_t bytes, char text_out[24])
{
    return plim__size_text(bytes, text_out);
}

PLIM_API plim_status_t plim_size_parse(const char *text, int64_t *bytes_out)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || errno != 0 || !(value >= 0))
        return plim__fail(PLIM_ERR_USAGE, "'%s' is not a size; write it like 4G, 1.5G or 300M",
                          text);
    const char *unit = *end != '\0' ? strchr(units, *end >= 'a' ? *end - 32 : *end) : NULL;
    if (unit != NULL) {
        for (long i = 0; i <= unit - units; i++)
            value *= 1024;
        end++;
    }
    if (strcmp(end, "iB") != 0 && strcmp(end, "B") != 0 && strcmp(end, "b") != 0 && *end != '\0')
        return plim__fail(PLIM_ERR_USAGE, "'%s' is not a size; write it like 4G, 1.5G or 300M",
                          text);
    if (value >= 0x1p62)
        return plim__fail(PLIM_ERR_USAGE, "'%s' is larger than any memory or disk", text);
    *bytes_out = (int64_t)value;
    return PLIM_OK;
}
