/*
 * What Slurm and MPI launchers say in the environment, and whether this looks like a login node.
 *
 * A task that Slurm started has SLURMD_NODENAME; one of a step (srun) has SLURM_STEP_ID too. The
 * shell of salloc has neither: it holds a job's variables while it runs on the login node.
 */
#include "base/check.h"
#include "mem/kernel_text.h"
#include "mem/limit.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

int plim__slurm_local_ranks(const plim__discovery_t *discovery)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                        "MV2_COMM_WORLD_LOCAL_SIZE", "PALS_LOCAL_SIZE"};
    int64_t ranks = 1, found, node = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (plim__discovery_count(discovery, sizes[i], &found))
            ranks = plim__max_i64(ranks, found);
    /* Outside of a step nothing was started more than once, whatever the job asked for. */
    if (plim__discovery_variable(discovery, "SLURM_STEP_ID") != NULL) {
        const char *text = plim__discovery_variable(discovery, "SLURM_NODEID");
        if (text == NULL || !plim__kernel_number(text, &node))
            node = 0;
        text = plim__discovery_variable(discovery, "SLURM_STEP_TASKS_PER_NODE");
        if ((text != NULL && number_at(text, node, &found)) ||
            plim__discovery_count(discovery, "SLURM_NTASKS_PER_NODE", &found))
            ranks = plim__max_i64(ranks, found);
    }
    return (int)plim__min_i64(ranks, 65536);
}

/* A size in MB, or with a letter of its own ("4096", "64G"); 0 means all there is, so no limit. */
static bool slurm_size(const plim__discovery_t *discovery, const char *name, int64_t *bytes_out)
{
    static const char units[] = "KMGT";
    const char *text = plim__discovery_variable(discovery, name);
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

void plim__slurm_memory(plim__discovery_t *discovery)
{
    static const char *const each[][2] = {{"SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"},
                                          {"SLURM_MEM_PER_GPU", "SLURM_GPUS_ON_NODE"}};
    int64_t bytes, count, product;
    if (slurm_size(discovery, "SLURM_MEM_PER_NODE", &bytes))
        plim__discovery_add_memory(discovery, bytes, true, "SLURM_MEM_PER_NODE");
    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++)
        if (slurm_size(discovery, each[i][0], &bytes) &&
            plim__discovery_count(discovery, each[i][1], &count) &&
            plim__mul_i64(bytes, count, &product))
            plim__discovery_add_memory(discovery, product, true, "%s x %s", each[i][0], each[i][1]);
}

void plim__slurm_threads(plim__discovery_t *discovery)
{
    int64_t count;
    if (plim__discovery_count(discovery, "SLURM_CPUS_PER_TASK", &count))
        plim__discovery_add_threads(discovery, count, false, "SLURM_CPUS_PER_TASK");
    if (plim__discovery_count(discovery, "SLURM_CPUS_ON_NODE", &count))
        plim__discovery_add_threads(discovery, count, true, "SLURM_CPUS_ON_NODE");
}

static bool exists_below(const char *root, const char *directory, size_t length, const char *name)
{
    char path[PLIM__PATH_MAX];
    int used = snprintf(path, sizeof path, "%s%.*s/%s", root, (int)length, directory, name);
    return used > 0 && (size_t)used < sizeof path && access(path, F_OK) == 0;
}

/* Where a client of Slurm shows: its configuration, or its commands. */
static bool slurm_client(const plim__discovery_t *discovery, char where_out[128])
{
    static const char *const directories[] = {"/etc/slurm", "/etc/slurm-llnl", "/run/slurm/conf"};
    for (size_t i = 0; i < sizeof directories / sizeof directories[0]; i++)
        if (exists_below(discovery->root, directories[i], strlen(directories[i]), "slurm.conf")) {
            (void)snprintf(where_out, 128, "%s/slurm.conf is here", directories[i]);
            return true;
        }
    const char *path = plim__discovery_variable(discovery, "PATH");
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

/* True for login3, hpc-login, cluster-head-1, uan02 … : one of the name's words says it. */
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

void plim__login_node(plim__discovery_t *discovery)
{
    static const char *const jobs[] = {"PBS_JOBID", "LSB_JOBID", "SGE_TASK_ID", "FLUX_JOB_ID"};
    plim_limits_t *limits = discovery->limits;
    char where[128];
    char name[65] = "";
    if (plim__discovery_variable(discovery, "SLURM_JOB_ID") != NULL) {
        if (plim__discovery_variable(discovery, "SLURMD_NODENAME") != NULL)
            return;
        limits->login_node = true;
        (void)snprintf(limits->login_why, sizeof limits->login_why,
                       "SLURM_JOB_ID is set, but Slurm did not start this process (the shell of "
                       "salloc?): start it with srun");
        return;
    }
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++)
        if (plim__discovery_variable(discovery, jobs[i]) != NULL)
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
