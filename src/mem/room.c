#include "mem/room.h"

#include "base/check.h"
#include "mem/cgroup.h"

#include <unistd.h>

#define TEXT_BYTES 8192

static void open_group(const plim__cgroup_t *group, bool lowest, plim__room_group_t *opened)
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

void plim__room_open(const char *root, plim__room_t *room_out)
{
    plim__room_t room = {.root = root};
    room.status = plim__kernel_open(root, "/proc/self/status");
    room.host = plim__kernel_open(root, "/proc/meminfo");
    for (int version = 1; version <= 2; version++) {
        plim__cgroup_t group;
        bool lowest = true;
        if (!plim__cgroup_find(root, version, "memory", &group))
            continue;
        do {
            if (room.num_groups == PLIM__ROOM_GROUPS)
                break;
            open_group(&group, lowest, &room.groups[room.num_groups++]);
            lowest = false;
        } while (plim__cgroup_up(&group));
    }
    *room_out = room;
}

static void close_file(int file)
{
    if (file >= 0)
        (void)close(file);
}

void plim__room_close(plim__room_t *room)
{
    if (room->root == NULL)
        return;
    for (int i = 0; i < room->num_groups; i++) {
        close_file(room->groups[i].statistics);
        close_file(room->groups[i].limits[0]);
        close_file(room->groups[i].limits[1]);
    }
    close_file(room->status);
    close_file(room->host);
    room->root = NULL;
}

/* The whole of a file as it is now; false when there is none, or (then all is opened again: this
 * process may have been moved to another group) it cannot be read any more. */
static bool read_text(plim__room_t *room, int file, char text_out[TEXT_BYTES])
{
    if (file < 0)
        return false;
    const ssize_t size = pread(file, text_out, TEXT_BYTES - 1, 0);
    room->failed |= size < 0;
    text_out[size > 0 ? size : 0] = '\0';
    return size > 0;
}

static int64_t field(const char *text, const char *key)
{
    int64_t value;
    return plim__kernel_field(text, key, &value) ? value : 0;
}

/* The group's limit and its name; INT64_MAX without. */
static int64_t limit_of(plim__room_t *room, const plim__room_group_t *group, const char **file_out)
{
    char text[TEXT_BYTES];
    int64_t limit = INT64_MAX, bytes;
    for (int i = 0; i < 2; i++)
        if (read_text(room, group->limits[i], text) && plim__kernel_number(text, &bytes) &&
            bytes > 0 && bytes < (int64_t)1 << 62 && bytes < limit) {
            limit = bytes;
            *file_out = plim__cgroup_memory_file(group->version, i);
        }
    return limit;
}

static void look_at_group(plim__room_t *room, const plim__room_group_t *group, int64_t own,
                          plim__room_sight_t *least)
{
    char text[TEXT_BYTES];
    const char *file = NULL;
    int64_t limit = limit_of(room, group, &file), hidden;
    const bool tells_hidden = group->version == 1 && group->lowest;
    if ((limit == INT64_MAX && !tells_hidden) || !read_text(room, group->statistics, text))
        return;
    /* Of groups above that a container does not see; who else is in them is not known. */
    if (tells_hidden && plim__kernel_field(text, "hierarchical_memory_limit", &hidden) &&
        hidden > 0 && hidden < (int64_t)1 << 62 && hidden < limit) {
        limit = hidden;
        file = "hierarchical_memory_limit";
    }
    if (limit == INT64_MAX)
        return;
    const int64_t others = plim__max_i64(0, plim__cgroup_unreclaimable(group->version, text) - own);
    if (limit - others < least->bytes)
        *least = (plim__room_sight_t){limit - others, limit, others, file};
}

static void look_at_host(plim__room_t *room, int64_t kept_bytes, plim__room_sight_t *least)
{
    char text[TEXT_BYTES];
    int64_t available, whole, bytes;
    if (!read_text(room, room->host, text) ||
        !plim__kernel_field(text, "MemAvailable", &available) ||
        !plim__kernel_field(text, "MemTotal", &whole) || available > whole ||
        whole >= INT64_MAX >> 10 || !plim__add_i64(available << 10, kept_bytes, &bytes))
        return;
    if (bytes < least->bytes)
        *least =
            (plim__room_sight_t){bytes, whole << 10, plim__max_i64(0, (whole << 10) - bytes), NULL};
}

void plim__room_look(plim__room_t *room, int64_t kept_bytes, plim__room_sight_t *sight_out)
{
    char text[TEXT_BYTES];
    plim__room_sight_t least = {INT64_MAX, INT64_MAX, 0, NULL};
    if (room->failed) {
        const char *root = room->root;
        plim__room_close(room);
        plim__room_open(root, room);
    }
    int64_t own = read_text(room, room->status, text) ? field(text, "RssAnon") : 0;
    own = own < INT64_MAX >> 10 ? own << 10 : 0;
    for (int i = 0; i < room->num_groups; i++)
        look_at_group(room, &room->groups[i], own, &least);
    look_at_host(room, kept_bytes, &least);
    *sight_out = least;
}
