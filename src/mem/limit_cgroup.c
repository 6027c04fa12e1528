/* Limits of the control groups this process is in, from its own to the top of what it can see. */
#include "mem/cgroup.h"
#include "mem/limit.h"

#include <stdio.h>
#include <string.h>

/* A group's name as shown: a long one loses its start, the part nearest to the process stays. */
static const char *shown(const plim__cgroup_t *group, char text_out[180])
{
    size_t length = strlen(group->path);
    if (length < 180)
        (void)snprintf(text_out, 180, "%s", group->path);
    else
        (void)snprintf(text_out, 180, "...%s", group->path + length - 170);
    return text_out;
}

/* Slurm makes one group a task: what such a group has is its own. All others hold every rank of the
 * node. */
static bool shared_by_ranks(const plim__cgroup_t *group)
{
    const char *name = strrchr(group->path, '/');
    return name == NULL || strncmp(name, "/task_", 6) != 0;
}

/*
 * In v1 the kernel also tells the least limit of all groups above, even of those that a container
 * does not see.
 */
static void add_hidden_memory(plim__discovery_t *discovery, const plim__cgroup_t *group,
                              int64_t least_seen)
{
    char text[4096];
    char name[180];
    int64_t bytes;
    if (plim__cgroup_read(group, "memory.stat", text, sizeof text) > 0 &&
        plim__kernel_field(text, "hierarchical_memory_limit", &bytes) && bytes > 0 &&
        bytes < least_seen)
        plim__discovery_add_memory(discovery, bytes, true,
                                   "cgroup v1 %s memory.stat hierarchical_memory_limit",
                                   shown(group, name));
}

static void add_memory(plim__discovery_t *discovery, int version)
{
    plim__cgroup_t group;
    char name[180];
    if (!plim__cgroup_find(discovery->root, version, "memory", &group))
        return;
    plim__cgroup_t own = group;
    int64_t least = (int64_t)1 << 62;
    do {
        const char *file;
        int64_t bytes;
        for (int i = 0; (file = plim__cgroup_memory_file(version, i)) != NULL; i++) {
            if (!plim__cgroup_memory_limit(&group, file, &bytes))
                continue;
            plim__discovery_add_memory(discovery, bytes, shared_by_ranks(&group),
                                       "cgroup v%d %s %s", version, shown(&group, name), file);
            least = bytes < least ? bytes : least;
        }
    } while (plim__cgroup_up(&group));
    if (version == 1)
        add_hidden_memory(discovery, &own, least);
}

/* The time a group may run, as quota and period in microseconds; false without a quota. */
static bool read_quota(const plim__cgroup_t *group, int64_t *quota_out, int64_t *period_out)
{
    char text[64];
    if (group->version == 1)
        return plim__cgroup_number(group, "cpu.cfs_quota_us", quota_out) &&
               plim__cgroup_number(group, "cpu.cfs_period_us", period_out);
    if (plim__cgroup_read(group, "cpu.max", text, sizeof text) <= 0)
        return false;
    const char *blank = strchr(text, ' ');
    return blank != NULL && plim__kernel_number(text, quota_out) &&
           plim__kernel_number(blank + 1, period_out);
}

static void add_threads(plim__discovery_t *discovery, int version)
{
    plim__cgroup_t group;
    char name[180];
    if (!plim__cgroup_find(discovery->root, version, "cpu", &group))
        return;
    do {
        int64_t quota, period;
        if (!read_quota(&group, &quota, &period) || quota < 1 || period < 1)
            continue;
        /* Rounded up: threads wait for the disk now and then, and half a CPU is worth using. */
        plim__discovery_add_threads(discovery, (quota - 1) / period + 1, shared_by_ranks(&group),
                                    "cgroup v%d %s %s", version, shown(&group, name),
                                    version == 1 ? "cpu.cfs_quota_us" : "cpu.max");
    } while (plim__cgroup_up(&group));
}

void plim__cgroup_limits(plim__discovery_t *discovery)
{
    for (int version = 2; version >= 1; version--) {
        add_memory(discovery, version);
        add_threads(discovery, version);
    }
}
