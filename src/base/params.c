#include "base/params.h"

#include "base/fail.h"

#include <string.h>

static size_t size_of(const void *sized)
{
    size_t size;
    memcpy(&size, sized, sizeof size);
    return size;
}

static plim_status_t check_size(const void *sized, const char *type)
{
    if (sized == NULL || size_of(sized) < sizeof(size_t))
        return plim__fail(
            PLIM_ERR_USAGE,
            "%s is missing, or its size is not set; initialise it with the macro that "
            "ends in _INIT",
            type);
    return PLIM_OK;
}

plim_status_t plim__params_take(const void *params, const char *type, void *known_out,
                                size_t known_size)
{
    PLIM_TRY(check_size(params, type));
    const size_t size = size_of(params);
    const char *bytes = params;
    for (size_t i = known_size; i < size; i++)
        if (bytes[i] != 0)
            return plim__fail(PLIM_ERR_USAGE,
                              "%s has a field set that this version (%s) does not know; use a "
                              "newer libplimsoll",
                              type, plim_version());
    memcpy(known_out, params, size < known_size ? size : known_size);
    memcpy(known_out, &known_size, sizeof known_size);
    return PLIM_OK;
}

plim_status_t plim__output_check(const void *output, const char *type)
{
    return check_size(output, type);
}

void plim__output_give(void *output, const void *known, size_t known_size)
{
    const size_t size = size_of(output);
    memcpy(output, known, size < known_size ? size : known_size);
    memcpy(output, &size, sizeof size);
}
