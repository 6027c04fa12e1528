#include "base/process.h"

#include "base/fail.h"

#include <unistd.h>

bool plim__process_is(pid_t owner)
{
    return owner == getpid();
}

plim_status_t plim__process_check(pid_t owner)
{
    if (plim__process_is(owner))
        return PLIM_OK;
    return plim__fail(PLIM_ERR_USAGE,
                      "this object belongs to the process that made it, not to one forked from it; "
                      "create a new job and all other objects in the child");
}
