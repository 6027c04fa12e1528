#include <plimsoll/limit.h>

#include "base/fail.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

PLIM_API plim_status_t plim_limits_discover(const plim_limit_options_t *options,
                                            plim_limits_t *limits_out)
{
    memset(limits_out, 0, sizeof *limits_out);
    if (options->memory < 0 || options->threads < 0)
        return plim__fail(PLIM_ERR_USAGE, "--memory and --threads must be positive");
    limits_out->num_memory = 1;
    limits_out->memory[0].value = (int64_t)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE);
    (void)snprintf(limits_out->memory[0].source, sizeof limits_out->memory[0].source, "host");
    if (options->memory > 0) {
        limits_out->memory[0].value = options->memory;
        (void)snprintf(limits_out->memory[0].source, sizeof limits_out->memory[0].source,
                       "--memory");
    }
    limits_out->num_threads = 1;
    limits_out->threads[0].value =
        options->threads ? options->threads : sysconf(_SC_NPROCESSORS_ONLN);
    return PLIM_OK;
}
