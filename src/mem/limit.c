/*
 * Limit discovery: every limit on memory and threads is listed with its source; the smallest is the
 * line. Files and variables may hold anything: what does not read as a limit is left out.
 */
#include "mem/limit.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/params.h"
#include "mem/kernel_text.h"
#include "mem/size_text.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *plim__discovery_variable(const plim__discovery_t *discovery, const char *name)
{
    size_t length = strlen(name);
    for (char **entry = discovery->environment; *entry != NULL; entry++)
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=' &&
            (*entry)[length + 1] != '\0')
            return *entry + length + 1;
    return NULL;
}

bool plim__discovery_count(const plim__discovery_t *discovery, const char *name, int64_t *count_out)
{
    const char *text = plim__discovery_variable(discovery, name);
    int64_t count;
    if (text == NULL || !plim__kernel_number(text, &count) || count < 1)
        return false;
    *count_out = count;
    return true;
}

/* Appends to a full list too, in place of its largest entry if that is larger: the smallest of all
 * is never lost. */
static void append(plim_limit_t *list, int *count, const plim_limit_t *limit)
{
    if (*count < PLIM_LIMITS_MAX) {
        list[(*count)++] = *limit;
        return;
    }
    int largest = 0;
    for (int i = 1; i < *count; i++)
        if (list[i].value > list[largest].value)
            largest = i;
    if (limit->value < list[largest].value)
        list[largest] = *limit;
}

static plim_limit_t share(const plim__discovery_t *discovery, int64_t value, bool shared,
                          const char *format, va_list arguments)
{
    plim_limit_t limit = {.value = value};
    int used = vsnprintf(limit.source, sizeof limit.source, format, arguments);
    int ranks = discovery->limits->local_ranks;
    if (shared && ranks > 1) {
        limit.value = value / ranks > 0 ? value / ranks : 1;
        if (used >= 0 && (size_t)used < sizeof limit.source)
            (void)snprintf(limit.source + used, sizeof limit.source - (size_t)used,
                           ", a part of %d", ranks);
    }
    return limit;
}

void plim__discovery_add_memory(plim__discovery_t *discovery, int64_t bytes, bool shared,
                                const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    plim_limit_t limit = share(discovery, bytes, shared, format, arguments);
    va_end(arguments);
    append(discovery->limits->memory, &discovery->limits->num_memory, &limit);
}

void plim__discovery_add_threads(plim__discovery_t *discovery, int64_t count, bool shared,
                                 const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    plim_limit_t limit = share(discovery, count, shared, format, arguments);
    va_end(arguments);
    append(discovery->limits->threads, &discovery->limits->num_threads, &limit);
}

/* Address space of oneDNN's file, for processes that have not loaded it yet: 41 MiB of version 2.6,
 * about 80 of version 3. */
#define ONEDNN_MAPPED_BYTES ((int64_t)96 << 20)

/*
 * The soft limit in a line "Max address space  4294967296  unlimited  bytes". These limits count
 * what is mapped, touched or not: what is mapped and not resident now is not there to be used. What
 * is mapped later and is no arena comes out of the reserve that every line has.
 */
static void add_resource_limit(plim__discovery_t *discovery, const char *limits_text,
                               const char *title, const char *name, int64_t idle)
{
    int64_t bytes;
    const char *line = strstr(limits_text, title);
    if (line == NULL || !plim__kernel_number(line + strlen(title), &bytes))
        return;
    char text[PLIM__SIZE_TEXT];
    plim__discovery_add_memory(discovery, bytes > idle ? bytes - idle : 0, false,
                               "%s, less %s that no plan counts", name,
                               plim__size_text(idle, text));
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

static void add_resource_limits(plim__discovery_t *discovery)
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

/* MemAvailable, or for kernels before 3.14 what it is made of. */
static void add_host_memory(plim__discovery_t *discovery)
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
        plim__discovery_add_memory(discovery, kib * 1024, true, "host %s (/proc/meminfo)", name);
}

/* The next range "a" or "a-b" of a list such as "0-3,8"; false at its end or at what is no range.
 */
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

static int64_t affinity(const char *root)
{
    unsigned long mask[1024]; /* cpu_set_t ends at 1,024 CPUs, and machines do not */
    if (root[0] != '\0')
        return recorded_affinity(root);
    memset(mask, 0, sizeof mask);
    if (sched_getaffinity(0, sizeof mask, (cpu_set_t *)mask) != 0)
        return sysconf(_SC_NPROCESSORS_ONLN);
    return CPU_COUNT_S(sizeof mask, (cpu_set_t *)mask);
}

static int smallest(const plim_limit_t *list, int count)
{
    int least = 0;
    for (int i = 1; i < count; i++)
        if (list[i].value < list[least].value)
            least = i;
    return least;
}

static void discover(const plim_limit_options_t *options, plim_limits_t *limits_out)
{
    plim__discovery_t discovery = {options->root != NULL ? options->root : "",
                                   options->environment != NULL ? options->environment : environ,
                                   limits_out};
    limits_out->local_ranks = plim__slurm_local_ranks(&discovery);

    if (options->memory > 0)
        plim__discovery_add_memory(&discovery, options->memory, false, "--memory");
    if (options->threads > 0)
        plim__discovery_add_threads(&discovery, options->threads, false, "--threads");
    plim__cgroup_limits(&discovery);
    plim__slurm_memory(&discovery);
    plim__slurm_threads(&discovery);
    add_host_memory(&discovery);
    int64_t cpus = affinity(discovery.root);
    if (cpus > 0)
        plim__discovery_add_threads(&discovery, cpus, false, "affinity (the CPUs it may run on)");

    if (limits_out->num_threads == 0)
        plim__discovery_add_threads(&discovery, 1, false, "no count of CPUs was found");
    limits_out->threads_line = smallest(limits_out->threads, limits_out->num_threads);
    add_resource_limits(&discovery);
    if (limits_out->num_memory == 0)
        plim__discovery_add_memory(&discovery, PLIM_LINE_NONE, false, "no limit was found");
    limits_out->line = smallest(limits_out->memory, limits_out->num_memory);
    plim__login_node(&discovery);
}

PLIM_API plim_status_t plim_limits_discover(const plim_limit_options_t *options,
                                            plim_limits_t *limits_out)
{
    plim_limit_options_t known = PLIM_LIMIT_OPTIONS_INIT;
    plim_limits_t limits = PLIM_LIMITS_INIT;
    PLIM_TRY(plim__output_check(limits_out, "plim_limits_t"));
    if (options != NULL)
        PLIM_TRY(plim__params_take(options, "plim_limit_options_t", &known, sizeof known));
    if (known.memory < 0 || known.threads < 0)
        return plim__fail(PLIM_ERR_USAGE, "--memory and --threads must be positive");
    discover(&known, &limits);
    plim__output_give(limits_out, &limits, sizeof limits);
    return PLIM_OK;
}
