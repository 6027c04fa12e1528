/* Public functions over base/fail.h. The command compiles base/fail.c once more, without these. */
#include "base/fail.h"
#include "base/params.h"

#include <plimsoll/version.h>

PLIM_API const char *plim_version(void)
{
    return PLIM_VERSION;
}

PLIM_API const char *plim_last_error(void)
{
    return plim__fail_text();
}

PLIM_API plim_status_t plim_last_figures(plim_figures_t *figures_out)
{
    if (figures_out == NULL || figures_out->size == 0)
        return PLIM_ERR_USAGE;
    const plim_figures_t figures = plim__fail_last_figures();
    plim__output_give(figures_out, &figures, sizeof figures);
    return PLIM_OK;
}

PLIM_API const char *plim_status_name(plim_status_t status)
{
    switch (status) {
    case PLIM_OK:
        return "ok";
    case PLIM_ERR_NOMEM:
        return "no memory";
    case PLIM_ERR_BUDGET:
        return "budget";
    case PLIM_ERR_SPACE:
        return "disk space";
    case PLIM_ERR_IO:
        return "i/o";
    case PLIM_ERR_DATA:
        return "data";
    case PLIM_ERR_USAGE:
        return "usage";
    case PLIM_ERR_UNSUPPORTED:
        return "unsupported";
    case PLIM_ERR_STOPPED:
        return "stopped";
    case PLIM_ERR_DIVERGED:
        return "diverged";
    case PLIM_ERR_DISK:
        return "disk full";
    case PLIM_ERR_TIMEOUT:
        return "timeout";
    }
    return "unknown";
}
