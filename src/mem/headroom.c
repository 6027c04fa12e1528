#include "mem/headroom.h"

#include "base/check.h"
#include "mem/cgroup.h"

#define STAT_BYTES 8192

static int64_t field(const char *text, const char *key)
{
    int64_t value;
    return plim__kernel_field(text, key, &value) ? value : 0;
}

/* Page cache of the group and all below it that could be dropped without writing: no tmpfs. */
static int64_t clean_cache(const plim__cgroup_t *group)
{
    char text[STAT_BYTES];
    if (plim__cgroup_read(group, "memory.stat", text, sizeof text) <= 0)
        return 0;
    int64_t clean = group->version == 1
                        ? field(text, "total_cache") - field(text, "total_shmem") -
                              field(text, "total_dirty") - field(text, "total_writeback")
                        : field(text, "file") - field(text, "shmem") - field(text, "file_dirty") -
                              field(text, "file_writeback");
    return plim__max_i64(clean, 0);
}

/* What this very group leaves; INT64_MAX without a limit. */
static int64_t group_room(const plim__cgroup_t *group)
{
    const char *file;
    int64_t limit = INT64_MAX, bytes, usage;
    for (int i = 0; (file = plim__cgroup_memory_file(group->version, i)) != NULL; i++)
        if (plim__cgroup_memory_limit(group, file, &bytes))
            limit = plim__min_i64(limit, bytes);
    const char *counter = group->version == 1 ? "memory.usage_in_bytes" : "memory.current";
    if (limit == INT64_MAX || !plim__cgroup_number(group, counter, &usage))
        return INT64_MAX;
    return plim__max_i64(limit - usage, 0) + clean_cache(group) / 2;
}

int64_t plim__headroom(const char *root)
{
    char text[STAT_BYTES];
    int64_t room = INT64_MAX, kib;
    for (int version = 1; version <= 2; version++) {
        plim__cgroup_t group;
        if (!plim__cgroup_find(root, version, "memory", &group))
            continue;
        do
            room = plim__min_i64(room, group_room(&group));
        while (plim__cgroup_up(&group));
    }
    if (plim__kernel_read(root, "/proc/meminfo", text, sizeof text) > 0 &&
        plim__kernel_field(text, "MemAvailable", &kib) && kib < INT64_MAX >> 10)
        room = plim__min_i64(room, kib << 10);
    return room;
}
