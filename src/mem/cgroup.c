#include "mem/cgroup.h"

#include "base/check.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* True when `word` is one of the comma-separated words of `list`. */
static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    while (list != NULL) {
        if (strncmp(list, word, length) == 0 && (list[length] == ',' || list[length] == '\0'))
            return true;
        list = strchr(list, ',');
        if (list != NULL)
            list++;
    }
    return false;
}

/* Cuts the next field off at `separator`; NULL when there is none left. */
static char *next_field(char **rest, char separator)
{
    char *field = *rest;
    if (field == NULL)
        return NULL;
    char *end = strchr(field, separator);
    if (end != NULL)
        *end++ = '\0';
    *rest = end;
    return field;
}

/* mountinfo writes blanks and backslashes in paths as \ooo. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; to++) {
        if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' &&
            from[2] <= '7' && from[3] >= '0' && from[3] <= '7') {
            *to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

/* This process's path in the hierarchy, from a line "4:memory:/path" (v1) or "0::/path" (v2). */
static bool find_path(const char *root, int version, const char *controller, char *path_out)
{
    plim__kernel_lines_t lines;
    bool found = false;
    if (!plim__kernel_lines_open(&lines, root, "/proc/self/cgroup"))
        return false;
    for (char *rest; !found && (rest = plim__kernel_lines_next(&lines)) != NULL;) {
        const char *number = next_field(&rest, ':');
        const char *controllers = next_field(&rest, ':');
        if (controllers == NULL || rest == NULL || rest[0] != '/' || strlen(rest) >= PLIM__PATH_MAX)
            continue;
        found = version == 1 ? has_word(controllers, controller)
                             : strcmp(number, "0") == 0 && controllers[0] == '\0';
        if (found)
            (void)snprintf(path_out, PLIM__PATH_MAX, "%s", rest);
    }
    plim__kernel_lines_close(&lines);
    return found;
}

/* One line of mountinfo, as far as it matters here. */
typedef struct mount {
    const char *top;   /* the path in the hierarchy that is mounted */
    const char *point; /* where */
} mount_t;

/* "36 35 0:31 TOP POINT rw,relatime shared:1 … - TYPE SOURCE OPTIONS" */
static bool parse_mount(char *line, int version, const char *controller, mount_t *mount_out)
{
    char *rest = strstr(line, " - ");
    if (rest == NULL)
        return false;
    *rest = '\0';
    rest += 3;
    const char *type = next_field(&rest, ' ');
    (void)next_field(&rest, ' ');
    if (rest == NULL || strcmp(type, version == 1 ? "cgroup" : "cgroup2") != 0 ||
        (version == 1 && !has_word(rest, controller)))
        return false;
    rest = line;
    for (int i = 0; i < 3; i++)
        (void)next_field(&rest, ' ');
    char *top = next_field(&rest, ' ');
    char *point = next_field(&rest, ' ');
    if (top == NULL || point == NULL || top[0] != '/' || point[0] != '/')
        return false;
    unescape(top);
    unescape(point);
    *mount_out = (mount_t){top, point};
    return true;
}

/* What follows `top` in `path`, "" or "/…"; NULL when the path does not lie below it. */
static const char *path_below(const char *path, const char *top)
{
    size_t length = strlen(top);
    if (length == 1)
        return path;
    if (strncmp(path, top, length) != 0 || (path[length] != '/' && path[length] != '\0'))
        return NULL;
    return path + length;
}

/* True when the path leads up and out ("/../x": a group outside of the namespace). */
static bool leads_out(const char *path)
{
    for (const char *dots = path; (dots = strstr(dots, "/..")) != NULL; dots += 3)
        if (dots[3] == '/' || dots[3] == '\0')
            return true;
    return false;
}

static bool exists(const plim__cgroup_t *group)
{
    char whole[3 * PLIM__PATH_MAX];
    (void)snprintf(whole, sizeof whole, "%s%s%s", group->root, group->mount, group->path);
    return access(whole, F_OK) == 0;
}

static bool path_up(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash == NULL || path[1] == '\0')
        return false;
    slash[slash == path] = '\0';
    return true;
}

/* Maps `path` to what the mount shows; true when the very group is in sight. */
static bool place(plim__cgroup_t *group, const mount_t *mount, const char *path)
{
    const char *below = path_below(path, mount->top);
    bool exact = below != NULL && !leads_out(below);
    (void)snprintf(group->mount, sizeof group->mount, "%s", mount->point);
    (void)snprintf(group->path, sizeof group->path, "%s", exact && below[0] != '\0' ? below : "/");
    while (!exists(group) && path_up(group->path))
        exact = false;
    return exact;
}

bool plim__cgroup_find(const char *root, int version, const char *controller,
                       plim__cgroup_t *group_out)
{
    char path[PLIM__PATH_MAX];
    plim__kernel_lines_t lines;
    size_t best = 0; /* rank of the best mount so far: one that shows the group, then the most */
    if (!find_path(root, version, controller, path) ||
        !plim__kernel_lines_open(&lines, root, "/proc/self/mountinfo"))
        return false;
    for (char *line; (line = plim__kernel_lines_next(&lines)) != NULL;) {
        mount_t mount;
        if (!parse_mount(line, version, controller, &mount) ||
            strlen(mount.point) >= PLIM__PATH_MAX)
            continue;
        plim__cgroup_t group;
        group.root = root;
        group.version = version;
        bool exact = place(&group, &mount, path);
        size_t rank = (exact ? 2 : 1) * PLIM__PATH_MAX - strlen(mount.top) % PLIM__PATH_MAX;
        if (rank > best) {
            best = rank;
            *group_out = group;
        }
    }
    plim__kernel_lines_close(&lines);
    return best > 0;
}

bool plim__cgroup_up(plim__cgroup_t *group)
{
    int64_t counts_children;
    if (!path_up(group->path))
        return false;
    return group->version == 2 ||
           !plim__cgroup_number(group, "memory.use_hierarchy", &counts_children) ||
           counts_children != 0;
}

bool plim__cgroup_next(plim__cgroup_t *group)
{
    if (group->version > 0 && plim__cgroup_up(group))
        return true;
    while (group->version < 2)
        if (plim__cgroup_find(group->root, ++group->version, "memory", group))
            return true;
    return false;
}

/* The file's path below the root. */
static const char *file_path(const plim__cgroup_t *group, const char *file,
                             char path_out[2 * PLIM__PATH_MAX + 64])
{
    (void)snprintf(path_out, 2 * PLIM__PATH_MAX + 64, "%s%s/%s", group->mount,
                   group->path[1] == '\0' ? "" : group->path, file);
    return path_out;
}

int64_t plim__cgroup_read(const plim__cgroup_t *group, const char *file, char *text_out,
                          size_t size)
{
    char path[2 * PLIM__PATH_MAX + 64];
    return plim__kernel_read(group->root, file_path(group, file, path), text_out, size);
}

int plim__cgroup_open(const plim__cgroup_t *group, const char *file)
{
    char path[2 * PLIM__PATH_MAX + 64];
    return plim__kernel_open(group->root, file_path(group, file, path));
}

bool plim__cgroup_number(const plim__cgroup_t *group, const char *file, int64_t *value_out)
{
    char text[64];
    return plim__cgroup_read(group, file, text, sizeof text) > 0 &&
           plim__kernel_number(text, value_out);
}

const char *plim__cgroup_memory_file(int version, int number)
{
    static const char *const files[2][2] = {{"memory.limit_in_bytes", NULL},
                                            {"memory.max", "memory.high"}};
    return number < 2 ? files[version - 1][number] : NULL;
}

bool plim__cgroup_memory_limit(const plim__cgroup_t *group, const char *file, int64_t *bytes_out)
{
    int64_t bytes;
    if (!plim__cgroup_number(group, file, &bytes) || !plim__cgroup_is_limit(bytes))
        return false;
    *bytes_out = bytes;
    return true;
}

int64_t plim__cgroup_lowest_limit(const plim__cgroup_t *group, const char **file_out)
{
    const char *file, *lowest = plim__cgroup_memory_file(group->version, 0);
    int64_t limit = INT64_MAX, bytes;
    for (int i = 0; (file = plim__cgroup_memory_file(group->version, i)) != NULL; i++)
        if (plim__cgroup_memory_limit(group, file, &bytes) && bytes < limit) {
            limit = bytes;
            lowest = file;
        }
    if (file_out != NULL)
        *file_out = lowest;
    return limit;
}

/* Sum of those fields that are there. */
static int64_t sum_fields(const char *text, const char *const *keys)
{
    int64_t sum = 0, value;
    for (; *keys != NULL; keys++)
        if (plim__kernel_field(text, *keys, &value) && !plim__add_i64(sum, value, &sum))
            return INT64_MAX;
    return sum;
}

int64_t plim__cgroup_unreclaimable(int version, const char *statistics)
{
    static const char *const keys[2][6] = {
        {"total_rss", "total_shmem", NULL},
        {"anon", "shmem", "kernel_stack", "pagetables", "slab_unreclaimable", NULL}};
    return sum_fields(statistics, keys[version - 1]);
}
