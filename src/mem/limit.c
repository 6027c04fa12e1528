/*
 * Limit discovery: lists every limit on memory and threads with its source; the smallest is the
 * line. Files and variables may hold anything: what does not read as a limit is left out.
 *
 * A task that Slurm started has SLURMD_NODENAME; one of a step (srun) has SLURM_STEP_ID too. The
 * shell of salloc has neither: it holds a job's variables while it runs on the login node.
 */
#include "base/check.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/params.h"
#include "mem/cgroup.h"
#include "mem/size_text.h"

#include <limits.h>
#include <plimsoll/limit.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct discovery {
    const char *root;   /* "" for this machine, or a recorded tree */
    char **environment; /* "NAME=value" …, NULL */
    plim_limits_t *limits;
} discovery_t;

/* The value of an environment variable; NULL when it is not set or empty. */
static const char *variable(const discovery_t *discovery, const char *name)
{
    size_t length = strlen(name);
    for (char **entry = discovery->environment; *entry != NULL; entry++)
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=' &&
            (*entry)[length + 1] != '\0')
            return *entry + length + 1;
    return NULL;
}

/* A variable that holds a whole number of at least 1. */
static bool count_variable(const discovery_t *discovery, const char *name, int64_t *count_out)
{
    const char *text = variable(discovery, name);
    int64_t count;
    if (text == NULL || !plim__kernel_number(text, &count) || count < 1)
        return false;
    *count_out = count;
    return true;
}

typedef enum kind { MEMORY, THREADS } kind_t;

/* Adds a limit that `ranks` ranks share equally. In a full list it replaces the largest limit if
 * that is larger, so that the smallest of all is never lost. */
__attribute__((format(printf, 5, 6))) static void
add(discovery_t *discovery, kind_t kind, int64_t value, int ranks, const char *format, ...)
{
    plim_limits_t *limits = discovery->limits;
    plim_limit_t *list = kind == MEMORY ? limits->memory : limits->threads;
    int *count = kind == MEMORY ? &limits->num_memory : &limits->num_threads;
    plim_limit_t limit = {.value = ranks > 1 ? plim__max_i64(value / ranks, 1) : value};
    va_list arguments;
    va_start(arguments, format);
    const int used = vsnprintf(limit.source, sizeof limit.source, format, arguments);
    va_end(arguments);
    if (ranks > 1 && used >= 0 && (size_t)used < sizeof limit.source)
        (void)snprintf(limit.source + used, sizeof limit.source - (size_t)used, ", a part of %d",
                       ranks);
    if (*count < PLIM_LIMITS_MAX) {
        list[(*count)++] = limit;
        return;
    }
    int largest = 0;
    for (int i = 1; i < *count; i++)
        if (list[i].value > list[largest].value)
            largest = i;
    if (limit.value < list[largest].value)
        list[largest] = limit;
}

/* Address space of oneDNN's file, for processes that have not loaded it yet: 41 MiB of version 2.6,
 * about 80 of version 3. */
#define ONEDNN_MAPPED_BYTES ((int64_t)96 << 20)

/*
 * The soft limit in a line "Max address space  4294967296  unlimited  bytes". These limits count
 * mapped memory, touched or not, so mapped memory that is not resident is subtracted. Later
 * mappings other than arenas come out of the reserve.
 */
static void add_resource_limit(discovery_t *discovery, const char *limits_text, const char *title,
                               const char *name, int64_t idle)
{
    int64_t bytes;
    const char *line = strstr(limits_text, title);
    if (line == NULL || !plim__kernel_number(line + strlen(title), &bytes))
        return;
    char text[PLIM__SIZE_TEXT];
    add(discovery, MEMORY, bytes > idle ? bytes - idle : 0, 1, "%s, less %s that no plan counts",
        name, plim__size_text(idle, text));
}

static bool maps_onednn(const char *root)
{
    plim__kernel_lines_t lines;
    const char *line;
    bool found = false;
    if (!plim__kernel_lines_open(&lines, root, "/proc/self/maps"))
        return false;
    while (!found && (line = plim__kernel_lines_next(&lines)) != NULL)
        found = strstr(line, "/libdnnl.so") != NULL;
    plim__kernel_lines_close(&lines);
    return found;
}

static void add_resource_limits(discovery_t *discovery)
{
    char limits_text[4096];
    char status[8192];
    int64_t mapped = 0, data = 0, resident = 0, anonymous = 0;
    if (plim__kernel_read(discovery->root, "/proc/self/limits", limits_text, sizeof limits_text) <=
        0)
        return;
    if (plim__kernel_read(discovery->root, "/proc/self/status", status, sizeof status) > 0 &&
        plim__kernel_field(status, "VmSize", &mapped) &&
        plim__kernel_field(status, "VmData", &data) &&
        plim__kernel_field(status, "VmRSS", &resident)) {
        if (!plim__kernel_field(status, "RssAnon", &anonymous))
            anonymous = 0;
    }
    const int64_t most = (int64_t)1 << 50;
    mapped = mapped > resident && mapped < most ? (mapped - resident) * 1024 : 0;
    data = data > anonymous && data < most ? (data - anonymous) * 1024 : 0;
    add_resource_limit(discovery, limits_text, "Max address space", "RLIMIT_AS (ulimit -v)",
                       mapped + (maps_onednn(discovery->root) ? 0 : ONEDNN_MAPPED_BYTES));
    add_resource_limit(discovery, limits_text, "Max data size", "RLIMIT_DATA (ulimit -d)", data);
}

/* MemAvailable, or an estimate of it for kernels before 3.14. */
static void add_host_memory(discovery_t *discovery)
{
    char text[8192];
    int64_t kib, free_kib, buffers, cached;
    const int64_t most = INT64_MAX >> 12;
    if (plim__kernel_read(discovery->root, "/proc/meminfo", text, sizeof text) <= 0)
        return;
    const char *name = "MemAvailable";
    if (!plim__kernel_field(text, name, &kib)) {
        if (!plim__kernel_field(text, "MemFree", &free_kib) ||
            !plim__kernel_field(text, "Buffers", &buffers) ||
            !plim__kernel_field(text, "Cached", &cached) || free_kib > most || buffers > most ||
            cached > most)
            return;
        name = "MemFree + Buffers + Cached";
        kib = free_kib + buffers + cached;
    }
    if (kib > 0 && kib <= most)
        add(discovery, MEMORY, kib * 1024, discovery->limits->local_ranks,
            "host %s (/proc/meminfo)", name);
}

/* The next range "a" or "a-b" of a list such as "0-3,8"; false at its end and at other text. */
static bool next_range(const char **list, int64_t *first_out, int64_t *last_out)
{
    long long first, last;
    int used = 0;
    if (sscanf(*list, "%lld%n", &first, &used) != 1 || first < 0)
        return false;
    last = first;
    *list += used;
    if (sscanf(*list, "-%lld%n", &last, &used) == 1)
        *list += used;
    *list += strspn(*list, ",");
    *first_out = first;
    *last_out = last;
    return last >= first;
}

/* How many CPUs are in both lists. */
static int64_t count_common(const char *allowed, const char *online)
{
    int64_t count = 0, first, last, from, to;
    while (next_range(&allowed, &first, &last))
        for (const char *rest = online; next_range(&rest, &from, &to);) {
            int64_t begin = first > from ? first : from;
            int64_t end = last < to ? last : to;
            count += end >= begin ? end - begin + 1 : 0;
        }
    return count;
}

/*
 * A recorded machine's affinity: Cpus_allowed_list may name CPUs that do not exist (virtual
 * machines made for more), so those online count.
 */
static int64_t recorded_affinity(const char *root)
{
    char status[8192];
    char online[1024];
    if (plim__kernel_read(root, "/proc/self/status", status, sizeof status) <= 0)
        return 0;
    const char *allowed = strstr(status, "Cpus_allowed_list:");
    if (allowed == NULL)
        return 0;
    allowed += strlen("Cpus_allowed_list:");
    if (plim__kernel_read(root, "/sys/devices/system/cpu/online", online, sizeof online) <= 0)
        (void)snprintf(online, sizeof online, "0-1048575");
    return count_common(allowed, online);
}

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

/* Ranks in a group. Slurm makes one group a task; all others hold every rank of the node. */
static int ranks_of(const discovery_t *discovery, const plim__cgroup_t *group)
{
    const char *name = strrchr(group->path, '/');
    return name != NULL && strncmp(name, "/task_", 6) == 0 ? 1 : discovery->limits->local_ranks;
}

/* v1 also reports the lowest limit of all groups above, even of those that a container hides. */
static void add_hidden_memory(discovery_t *discovery, const plim__cgroup_t *group,
                              int64_t lowest_seen)
{
    char text[4096];
    char name[180];
    int64_t bytes;
    if (plim__cgroup_read(group, "memory.stat", text, sizeof text) > 0 &&
        plim__kernel_field(text, "hierarchical_memory_limit", &bytes) && bytes > 0 &&
        bytes < lowest_seen)
        add(discovery, MEMORY, bytes, discovery->limits->local_ranks,
            "cgroup v1 %s memory.stat hierarchical_memory_limit", shown(group, name));
}

static void add_group_memory(discovery_t *discovery, int version)
{
    plim__cgroup_t group;
    char name[180];
    if (!plim__cgroup_find(discovery->root, version, "memory", &group))
        return;
    plim__cgroup_t own = group;
    int64_t minimum = (int64_t)1 << 62;
    do {
        const char *file;
        int64_t bytes;
        for (int i = 0; (file = plim__cgroup_memory_file(version, i)) != NULL; i++) {
            if (!plim__cgroup_memory_limit(&group, file, &bytes))
                continue;
            add(discovery, MEMORY, bytes, ranks_of(discovery, &group), "cgroup v%d %s %s", version,
                shown(&group, name), file);
            minimum = bytes < minimum ? bytes : minimum;
        }
    } while (plim__cgroup_up(&group));
    if (version == 1)
        add_hidden_memory(discovery, &own, minimum);
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

static void add_group_threads(discovery_t *discovery, int version)
{
    plim__cgroup_t group;
    char name[180];
    if (!plim__cgroup_find(discovery->root, version, "cpu", &group))
        return;
    do {
        int64_t quota, period;
        if (!read_quota(&group, &quota, &period) || quota < 1 || period < 1)
            continue;
        /* Rounded up: threads wait for the disk now and then, and half a CPU is useful. */
        add(discovery, THREADS, (quota - 1) / period + 1, ranks_of(discovery, &group),
            "cgroup v%d %s %s", version, shown(&group, name),
            version == 1 ? "cpu.cfs_quota_us" : "cpu.max");
    } while (plim__cgroup_up(&group));
}

static void add_cgroup_limits(discovery_t *discovery)
{
    for (int version = 2; version >= 1; version--) {
        add_group_memory(discovery, version);
        add_group_threads(discovery, version);
    }
}

/* The index-th number of a list such as "2(x3),1", which is 2 2 2 1. */
static bool number_at(const char *list, int64_t index, int64_t *value_out)
{
    while (index >= 0) {
        long long value, times = 1;
        int used = 0;
        if (sscanf(list, "%lld%n", &value, &used) != 1 || value < 1)
            return false;
        list += used;
        if (sscanf(list, "(x%lld)%n", &times, &used) == 1 && times >= 1)
            list += used;
        *value_out = value;
        index -= times;
        if (*list != ',')
            return index < 0;
        list++;
    }
    return true;
}

static int local_ranks(const discovery_t *discovery)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                        "MV2_COMM_WORLD_LOCAL_SIZE", "PALS_LOCAL_SIZE",
                                        "LOCAL_WORLD_SIZE"};
    int64_t ranks = 1, found = 1, node = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (count_variable(discovery, sizes[i], &found))
            ranks = plim__max_i64(ranks, found);
    /* Outside of a step nothing was started more than once, whatever the job asked for. */
    if (variable(discovery, "SLURM_STEP_ID") != NULL) {
        const char *text = variable(discovery, "SLURM_NODEID");
        if (text == NULL || !plim__kernel_number(text, &node))
            node = 0;
        text = variable(discovery, "SLURM_STEP_TASKS_PER_NODE");
        if ((text != NULL && number_at(text, node, &found)) ||
            count_variable(discovery, "SLURM_NTASKS_PER_NODE", &found))
            ranks = plim__max_i64(ranks, found);
    }
    return (int)plim__min_i64(ranks, 65536);
}

/* A size in MB, or with a letter of its own ("4096", "64G"); 0 means all there is, so no limit. */
static bool slurm_size(const discovery_t *discovery, const char *name, int64_t *bytes_out)
{
    static const char units[] = "KMGT";
    const char *text = variable(discovery, name);
    char *end;
    if (text == NULL || text[0] < '0' || text[0] > '9')
        return false;
    long long value = strtoll(text, &end, 10);
    int shift = 20;
    const char *unit = *end != '\0' ? strchr(units, *end >= 'a' ? *end - 'a' + 'A' : *end) : NULL;
    if (unit != NULL) {
        shift = 10 * (int)(unit - units + 1);
        end++;
    }
    if (*end != '\0' || value < 1)
        return false;
    return plim__mul_i64(value, (int64_t)1 << shift, bytes_out);
}

static void add_slurm_memory(discovery_t *discovery)
{
    static const char *const each[][2] = {{"SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"},
                                          {"SLURM_MEM_PER_GPU", "SLURM_GPUS_ON_NODE"}};
    int64_t bytes, count, product;
    if (slurm_size(discovery, "SLURM_MEM_PER_NODE", &bytes))
        add(discovery, MEMORY, bytes, discovery->limits->local_ranks, "SLURM_MEM_PER_NODE");
    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++)
        if (slurm_size(discovery, each[i][0], &bytes) &&
            count_variable(discovery, each[i][1], &count) && plim__mul_i64(bytes, count, &product))
            add(discovery, MEMORY, product, discovery->limits->local_ranks, "%s x %s", each[i][0],
                each[i][1]);
}

static void add_slurm_threads(discovery_t *discovery)
{
    int64_t count;
    if (count_variable(discovery, "SLURM_CPUS_PER_TASK", &count))
        add(discovery, THREADS, count, 1, "SLURM_CPUS_PER_TASK");
    if (count_variable(discovery, "SLURM_CPUS_ON_NODE", &count))
        add(discovery, THREADS, count, discovery->limits->local_ranks, "SLURM_CPUS_ON_NODE");
}

static bool exists_below(const char *root, const char *directory, size_t length, const char *name)
{
    char path[PLIM__PATH_MAX];
    int used = snprintf(path, sizeof path, "%s%.*s/%s", root, (int)length, directory, name);
    return used > 0 && (size_t)used < sizeof path && access(path, F_OK) == 0;
}

/* Where a client of Slurm shows: its configuration, or its commands. */
static bool slurm_client(const discovery_t *discovery, char where_out[128])
{
    static const char *const directories[] = {"/etc/slurm", "/etc/slurm-llnl", "/run/slurm/conf"};
    for (size_t i = 0; i < sizeof directories / sizeof directories[0]; i++)
        if (exists_below(discovery->root, directories[i], strlen(directories[i]), "slurm.conf")) {
            (void)snprintf(where_out, 128, "%s/slurm.conf is here", directories[i]);
            return true;
        }
    const char *path = variable(discovery, "PATH");
    while (path != NULL) {
        size_t length = strcspn(path, ":");
        if (length > 0 && length < INT_MAX &&
            exists_below(discovery->root, path, length, "sinfo")) {
            (void)snprintf(where_out, 128, "%.*s/sinfo is here",
                           (int)plim__min_i64((int64_t)length, 90), path);
            return true;
        }
        path = path[length] == ':' ? path + length + 1 : NULL;
    }
    return false;
}

/* True for names such as login3, hpc-login, cluster-head-1, uan02. */
static bool named_login(const char *name)
{
    static const char *const words[] = {"login",  "lgn",      "head", "headnode",
                                        "submit", "frontend", "uan"};
    while (*name != '\0') {
        size_t length = strcspn(name, "-_.\n");
        size_t letters = length;
        while (letters > 0 && name[letters - 1] >= '0' && name[letters - 1] <= '9')
            letters--;
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
            if (letters == strlen(words[i]) && strncmp(name, words[i], letters) == 0)
                return true;
        if (name[length] != '-' && name[length] != '_')
            return false;
        name += length + 1;
    }
    return false;
}

static void find_login_node(discovery_t *discovery)
{
    static const char *const jobs[] = {"PBS_JOBID", "LSB_JOBID", "SGE_TASK_ID", "FLUX_JOB_ID"};
    plim_limits_t *limits = discovery->limits;
    char where[128];
    char name[65] = "";
    if (variable(discovery, "SLURM_JOB_ID") != NULL) {
        if (variable(discovery, "SLURMD_NODENAME") != NULL)
            return;
        limits->login_node = true;
        (void)snprintf(limits->login_why, sizeof limits->login_why,
                       "SLURM_JOB_ID is set, but Slurm did not start this process (the shell of "
                       "salloc?): start it with srun");
        return;
    }
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++)
        if (variable(discovery, jobs[i]) != NULL)
            return;
    (void)plim__kernel_read(discovery->root, "/proc/sys/kernel/hostname", name, sizeof name);
    name[strcspn(name, "\n")] = '\0';
    if (slurm_client(discovery, where)) {
        limits->login_node = true;
        (void)snprintf(limits->login_why, sizeof limits->login_why,
                       "%s, but no job (SLURM_JOB_ID is not set)", where);
    } else if (named_login(name)) {
        limits->login_node = true;
        (void)snprintf(limits->login_why, sizeof limits->login_why, "it is called %s", name);
    }
}

static int smallest(const plim_limit_t *list, int count)
{
    int minimum = 0;
    for (int i = 1; i < count; i++)
        if (list[i].value < list[minimum].value)
            minimum = i;
    return minimum;
}

static void discover(const plim_limit_options_t *options, plim_limits_t *limits_out)
{
    discovery_t discovery = {options->root != NULL ? options->root : "",
                             options->environment != NULL ? options->environment : environ,
                             limits_out};
    limits_out->local_ranks =
        options->local_ranks > 0 ? options->local_ranks : local_ranks(&discovery);

    if (options->memory > 0)
        add(&discovery, MEMORY, options->memory, 1, "`memory`");
    if (options->threads > 0)
        add(&discovery, THREADS, options->threads, 1, "`threads`");
    add_cgroup_limits(&discovery);
    add_slurm_memory(&discovery);
    add_slurm_threads(&discovery);
    add_host_memory(&discovery);
    const int64_t cpus =
        discovery.root[0] != '\0' ? recorded_affinity(discovery.root) : plim__cpu_count();
    if (cpus > 0)
        add(&discovery, THREADS, cpus, options->threads == 0 ? options->cpu_ranks : 1,
            "affinity (the CPUs it may run on)");

    if (limits_out->num_threads == 0)
        add(&discovery, THREADS, 1, 1, "no count of CPUs was found");
    limits_out->threads_line = smallest(limits_out->threads, limits_out->num_threads);
    add_resource_limits(&discovery);
    if (limits_out->num_memory == 0)
        add(&discovery, MEMORY, PLIM_LINE_NONE, 1, "no limit was found");
    limits_out->line = smallest(limits_out->memory, limits_out->num_memory);
    find_login_node(&discovery);
}

PLIM_API plim_status_t plim_limits_discover(const plim_limit_options_t *options,
                                            plim_limits_t *limits_out)
{
    plim_limit_options_t known = PLIM_LIMIT_OPTIONS_INIT;
    plim_limits_t limits = PLIM_LIMITS_INIT;
    PLIM_TRY(plim__output_check(limits_out, "plim_limits_t"));
    if (options != NULL)
        PLIM_TRY(plim__params_take(options, "plim_limit_options_t", &known, sizeof known));
    if (known.memory < 0 || known.threads < 0 || known.local_ranks < 0 || known.cpu_ranks < 0)
        return plim__fail(PLIM_ERR_USAGE, "limits and numbers of ranks must be positive");
    discover(&known, &limits);
    plim__output_give(limits_out, &limits, sizeof limits);
    return PLIM_OK;
}
