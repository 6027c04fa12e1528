#include "mem/footprint.h"

#include "base/check.h"
#include "mem/cgroup.h"

#include <plimsoll/job.h>

#define RESERVE_PERCENT 3
#define RESERVE_MIN ((int64_t)32 << 20)
#define RESERVE_THREAD ((int64_t)1 << 20)
#define RESERVE_MAX ((int64_t)2 << 30)

int64_t plim__footprint_process(void)
{
    return plim__kernel_own_bytes("", "VmRSS");
}

/* What the reserve is under any line. */
static int64_t reserve_min(int threads)
{
    return RESERVE_MIN + threads * RESERVE_THREAD;
}

int64_t plim__footprint_reserve(int64_t line_bytes, int threads)
{
    const int64_t share = line_bytes == PLIM_LINE_NONE ? 0 : line_bytes / 100 * RESERVE_PERCENT;
    return plim__max_i64(plim__min_i64(share, RESERVE_MAX), reserve_min(threads));
}

int64_t plim__footprint_minimum(int64_t bytes, int threads)
{
    /* Where 3 % of the line are the reserve, the rest are 97 %; a round percent above covers the
     * division's remainder. */
    const int64_t whole = plim__mul_saturating_i64(bytes / (100 - RESERVE_PERCENT) + 1, 100);
    const int64_t most = plim__add_saturating_i64(bytes, RESERVE_MAX);
    return plim__max_i64(plim__add_saturating_i64(bytes, reserve_min(threads)),
                         plim__min_i64(whole, most));
}

static int64_t unreclaimable(const plim__cgroup_t *group)
{
    char text[8192];
    if (plim__cgroup_read(group, "memory.stat", text, sizeof text) <= 0)
        return 0;
    return plim__cgroup_unreclaimable(group->version, text);
}

int64_t plim__footprint_neighbours(const char *root, int64_t line_bytes)
{
    int64_t most = 0;
    plim__cgroup_t group;
    if (line_bytes == PLIM_LINE_NONE)
        return 0;
    const int64_t own =
        plim__kernel_own_bytes(root, "RssAnon") + plim__kernel_own_bytes(root, "RssShmem");
    for (int version = 1; version <= 2; version++) {
        if (!plim__cgroup_find(root, version, "memory", &group))
            continue;
        do {
            int64_t limit = INT64_MAX, bytes;
            const char *file;
            for (int i = 0; (file = plim__cgroup_memory_file(version, i)) != NULL; i++)
                if (plim__cgroup_memory_limit(&group, file, &bytes))
                    limit = plim__min_i64(limit, bytes);
            if (line_bytes > limit)
                return 0; /* of a job that is planned for elsewhere */
            if (limit != INT64_MAX)
                most = plim__max_i64(most, unreclaimable(&group) - own - (limit - line_bytes));
        } while (plim__cgroup_up(&group));
    }
    return plim__min_i64(most, line_bytes);
}
