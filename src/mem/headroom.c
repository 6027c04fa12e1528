#include "mem/headroom.h"

#include "base/check.h"
#include "mem/cgroup.h"

#include <plimsoll/job.h>
#include <unistd.h>

#define TEXT_BYTES 8192
#define RESERVE_PERCENT 3
#define RESERVE_MIN ((int64_t)32 << 20)
#define RESERVE_THREAD ((int64_t)1 << 20)
#define RESERVE_MAX ((int64_t)2 << 30)

/* The reserve is at least this under any line. */
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

static void open_group(const plim__cgroup_t *group, bool lowest, plim__headroom_group_t *opened)
{
    const char *file;
    opened->version = group->version;
    opened->lowest = lowest;
    opened->statistics = plim__cgroup_open(group, "memory.stat");
    for (int i = 0; i < 2; i++) {
        file = plim__cgroup_memory_file(group->version, i);
        opened->limits[i] = file != NULL ? plim__cgroup_open(group, file) : -1;
    }
}

void plim__headroom_open(const char *root, plim__headroom_t *headroom_out)
{
    plim__headroom_t headroom = {.root = root};
    headroom.status = plim__kernel_open(root, "/proc/self/status");
    headroom.host = plim__kernel_open(root, "/proc/meminfo");
    plim__cgroup_t group;
    int version = 0; /* of the group before */
    group.root = root;
    group.version = 0;
    while (headroom.num_groups < PLIM__HEADROOM_GROUPS && plim__cgroup_next(&group)) {
        open_group(&group, group.version != version, &headroom.groups[headroom.num_groups++]);
        version = group.version;
    }
    *headroom_out = headroom;
}

static void close_file(int file)
{
    if (file >= 0)
        (void)close(file);
}

void plim__headroom_close(plim__headroom_t *headroom)
{
    if (headroom->root == NULL)
        return;
    for (int i = 0; i < headroom->num_groups; i++) {
        close_file(headroom->groups[i].statistics);
        close_file(headroom->groups[i].limits[0]);
        close_file(headroom->groups[i].limits[1]);
    }
    close_file(headroom->status);
    close_file(headroom->host);
    headroom->root = NULL;
}

/* Reads a file's present text; false if it does not exist or cannot be read any more. The latter
 * sets `failed`, since this process may have been moved to another group. */
static bool read_text(plim__headroom_t *headroom, int file, char text_out[TEXT_BYTES])
{
    if (file < 0)
        return false;
    const ssize_t size = pread(file, text_out, TEXT_BYTES - 1, 0);
    headroom->failed |= size < 0;
    text_out[size > 0 ? size : 0] = '\0';
    return size > 0;
}

/* The group's limit and its name; INT64_MAX without. */
static int64_t limit_of(plim__headroom_t *headroom, const plim__headroom_group_t *group,
                        const char **file_out)
{
    char text[TEXT_BYTES];
    int64_t limit = INT64_MAX, bytes;
    for (int i = 0; i < 2; i++)
        if (read_text(headroom, group->limits[i], text) && plim__kernel_number(text, &bytes) &&
            plim__cgroup_is_limit(bytes) && bytes < limit) {
            limit = bytes;
            *file_out = plim__cgroup_memory_file(group->version, i);
        }
    return limit;
}

static void bound_by_group(plim__headroom_t *headroom, int index, int64_t own,
                           plim__headroom_bound_t *minimum)
{
    char text[TEXT_BYTES];
    const plim__headroom_group_t *group = &headroom->groups[index];
    const char *file = NULL;
    int64_t limit = limit_of(headroom, group, &file), hidden;
    const bool tells_hidden = group->version == 1 && group->lowest;
    if ((limit == INT64_MAX && !tells_hidden) || !read_text(headroom, group->statistics, text))
        return;
    /* The limit of a group that the container hides; who else is in it is not known. */
    if (tells_hidden && plim__kernel_field(text, "hierarchical_memory_limit", &hidden) &&
        plim__cgroup_is_limit(hidden) && hidden < limit) {
        limit = hidden;
        file = "hierarchical_memory_limit";
    }
    if (limit == INT64_MAX)
        return;
    const int64_t others = plim__max_i64(0, plim__cgroup_unreclaimable(group->version, text) - own);
    if (limit - others < minimum->bytes)
        *minimum = (plim__headroom_bound_t){.bytes = limit - others,
                                            .limit = limit,
                                            .group = index,
                                            .others = others,
                                            .file = file};
}

static void bound_by_host(plim__headroom_t *headroom, int64_t fixed,
                          plim__headroom_bound_t *minimum)
{
    char text[TEXT_BYTES];
    int64_t available, whole, bytes;
    if (!read_text(headroom, headroom->host, text) ||
        !plim__kernel_field(text, "MemAvailable", &available) ||
        !plim__kernel_field(text, "MemTotal", &whole) || available > whole ||
        whole >= INT64_MAX >> 10 || !plim__add_i64(available << 10, fixed, &bytes))
        return;
    if (bytes < minimum->bytes)
        *minimum = (plim__headroom_bound_t){.bytes = bytes,
                                            .limit = whole << 10,
                                            .group = -1,
                                            .others = plim__max_i64(0, (whole << 10) - bytes)};
}

/* `own` and `fixed`: unreclaimable and total bytes of the process that the bound is for. */
static void find_bound(plim__headroom_t *headroom, int64_t own, int64_t fixed,
                       plim__headroom_bound_t *bound_out)
{
    plim__headroom_bound_t minimum = {.bytes = INT64_MAX, .limit = INT64_MAX, .group = -1};
    for (int i = 0; i < headroom->num_groups; i++)
        bound_by_group(headroom, i, own, &minimum);
    bound_by_host(headroom, fixed, &minimum);
    minimum.fixed = fixed;
    *bound_out = minimum;
}

/* Opens all files again after one could not be read. */
static void reopen_failed(plim__headroom_t *headroom)
{
    if (!headroom->failed)
        return;
    const char *root = headroom->root;
    plim__headroom_close(headroom);
    plim__headroom_open(root, headroom);
}

void plim__headroom_read(plim__headroom_t *headroom, int64_t droppable,
                         plim__headroom_bound_t *bound_out)
{
    char text[TEXT_BYTES] = "";
    reopen_failed(headroom);
    (void)read_text(headroom, headroom->status, text);
    find_bound(headroom, plim__kernel_bytes(text, "RssAnon") + plim__kernel_bytes(text, "RssShmem"),
               plim__max_i64(plim__kernel_bytes(text, "VmRSS") - droppable, 0), bound_out);
}

void plim__headroom_read_anonymous(plim__headroom_t *headroom, int64_t droppable,
                                   plim__headroom_bound_t *bound_out, int64_t *files_out)
{
    char text[TEXT_BYTES] = "";
    reopen_failed(headroom);
    (void)read_text(headroom, headroom->status, text);
    const int64_t own = plim__kernel_bytes(text, "RssAnon");
    find_bound(headroom, own, plim__max_i64(own - droppable, 0), bound_out);
    *files_out = plim__kernel_bytes(text, "RssFile");
}

int64_t plim__headroom_left(const plim__headroom_t *headroom, int64_t droppable)
{
    char text[TEXT_BYTES];
    int64_t kib;
    if (plim__kernel_read(headroom->root, "/proc/self/smaps_rollup", text, sizeof text) <= 0 ||
        !plim__kernel_field(text, "LazyFree", &kib) || kib >= INT64_MAX >> 10)
        return droppable;
    return plim__min_i64(droppable, kib << 10);
}

void plim__headroom_read_all(plim__headroom_t *headroom, plim__headroom_bound_t *bound_out)
{
    reopen_failed(headroom);
    find_bound(headroom, 0, 0, bound_out);
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
            const int64_t limit = plim__cgroup_lowest_limit(&group, NULL);
            if (line_bytes > limit)
                return 0; /* the job is planned for another machine */
            if (limit != INT64_MAX)
                most = plim__max_i64(most, unreclaimable(&group) - own - (limit - line_bytes));
        } while (plim__cgroup_up(&group));
    }
    return plim__min_i64(most, line_bytes);
}

/* Page cache of the group and all below it that could be dropped without writing: no tmpfs. */
static int64_t clean_cache(const plim__cgroup_t *group)
{
    char text[TEXT_BYTES];
    if (plim__cgroup_read(group, "memory.stat", text, sizeof text) <= 0)
        return 0;
    int64_t clean = group->version == 1
                        ? plim__kernel_count(text, "total_cache") -
                              plim__kernel_count(text, "total_shmem") -
                              plim__kernel_count(text, "total_dirty") -
                              plim__kernel_count(text, "total_writeback")
                        : plim__kernel_count(text, "file") - plim__kernel_count(text, "shmem") -
                              plim__kernel_count(text, "file_dirty") -
                              plim__kernel_count(text, "file_writeback");
    return plim__max_i64(clean, 0);
}

/* What this group leaves; INT64_MAX without a limit. */
static int64_t group_headroom(const plim__cgroup_t *group)
{
    const int64_t limit = plim__cgroup_lowest_limit(group, NULL);
    int64_t usage;
    const char *counter = group->version == 1 ? "memory.usage_in_bytes" : "memory.current";
    if (limit == INT64_MAX || !plim__cgroup_number(group, counter, &usage))
        return INT64_MAX;
    return plim__max_i64(limit - usage, 0) + clean_cache(group) / 2;
}

int64_t plim__headroom(const char *root)
{
    char text[TEXT_BYTES];
    int64_t left = INT64_MAX, kib;
    for (int version = 1; version <= 2; version++) {
        plim__cgroup_t group;
        if (!plim__cgroup_find(root, version, "memory", &group))
            continue;
        do
            left = plim__min_i64(left, group_headroom(&group));
        while (plim__cgroup_up(&group));
    }
    if (plim__kernel_read(root, "/proc/meminfo", text, sizeof text) > 0 &&
        plim__kernel_field(text, "MemAvailable", &kib) && kib < INT64_MAX >> 10)
        left = plim__min_i64(left, kib << 10);
    return left;
}
