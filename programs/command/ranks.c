/*
 * Ranks: several processes that a launcher (mpirun, srun) has started to work as one. The command
 * is not linked with MPI: when the launcher's environment shows several ranks, it loads the plugin
 * for that MPI, which lies beside the library (or where PLIMSOLL_MPI says).
 */
#include "command/cli.h"

#include <cpuid.h>
#include <dlfcn.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

/* Of leaf 7, in edx. */
#define AMX_BF16_BIT (1u << 22)

/* How long ranks wait for each other when they start, and when they end with an error. */
#define GATHER_SECONDS 120
#define GATHER_NAP_NS 100000
#define LEAVE_SECONDS 5
#define ABORT_SECONDS 3

/* What a launcher leaves in the environment of its processes. */
typedef struct launcher {
    const char *size, *rank;    /* variables */
    const char *name;           /* for messages */
    const char *plugins[3];     /* to try, in this order; NULL: it connects its processes to none */
    const char *without_plugin; /* what to do about that */
} launcher_t;

static const launcher_t launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "Open MPI's mpirun", {"openmpi", "mpi"}, NULL},
    {"PMI_SIZE", "PMI_RANK", "mpiexec or srun --mpi=pmi2", {"mpich", "mpi"}, NULL},
    {"SLURM_STEP_NUM_TASKS", "PMIX_RANK", "srun --mpi=pmix", {"openmpi", "mpi", "mpich"}, NULL},
    {"SLURM_STEP_NUM_TASKS",
     "SLURM_PROCID",
     "srun",
     {NULL},
     "use srun --mpi=pmix (Open MPI) or "
     "--mpi=pmi2 (MPICH)"},
};

static plim_transport_t ranks = PLIM_TRANSPORT_INIT;
static int cpu_ranks = 1; /* that may run on the same CPUs of the same node */

/* The launcher of this process if it started several; *size_out is how many. */
static const launcher_t *find_launcher(int *size_out)
{
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        const char *size = getenv(launchers[i].size);
        const long count = size != NULL ? strtol(size, NULL, 10) : 0;
        if (getenv(launchers[i].rank) == NULL || count < 1)
            continue;
        *size_out = count < INT_MAX ? (int)count : INT_MAX;
        return count > 1 ? &launchers[i] : NULL;
    }
    return NULL;
}

/* The directory of the library; false where it is not known. */
static bool find_directory(char directory_out[PATH_MAX])
{
    Dl_info info;
    char path[PATH_MAX];
    void *address;
    const char *(*const function)(void) = plim_version;
    memcpy(&address, &function, sizeof address);
    if (dladdr(address, &info) == 0 || realpath(info.dli_fname, path) == NULL)
        return false;
    char *slash = strrchr(path, '/');
    if (slash == NULL)
        return false;
    *slash = '\0';
    (void)snprintf(directory_out, PATH_MAX, "%s", path);
    return true;
}

/* Installed plugins lie in a folder beside the library; in a build tree and in a wheel, next to it.
 */
static const char *const folders[] = {"/plimsoll", ""};

#define NUM_FOLDERS (sizeof folders / sizeof folders[0])

/* The path of a file beside the library; false if there is none. */
static bool find_file(const char *name, char path_out[PATH_MAX])
{
    char directory[PATH_MAX];
    if (!find_directory(directory))
        return false;
    for (size_t i = 0; i < NUM_FOLDERS; i++) {
        const int length = snprintf(path_out, PATH_MAX, "%s%s/%s", directory, folders[i], name);
        if (length < PATH_MAX && access(path_out, R_OK) == 0)
            return true;
    }
    return false;
}

/* The plugin for a launcher. */
static bool find_plugin(const launcher_t *launcher, char path_out[PATH_MAX])
{
    const char *own = getenv("PLIMSOLL_MPI");
    char name[64];
    if (own != NULL && own[0] != '\0')
        return snprintf(path_out, PATH_MAX, "%s", own) < PATH_MAX;
    for (size_t i = 0; i < 3 && launcher->plugins[i] != NULL; i++) {
        (void)snprintf(name, sizeof name, "plimsoll-%s.so", launcher->plugins[i]);
        if (find_file(name, path_out))
            return true;
    }
    return false;
}

/* Says on one rank only that the ranks cannot work together. */
__attribute__((format(printf, 3, 4))) static int refuse(const launcher_t *launcher, int size,
                                                        const char *format, ...)
{
    const char *rank = getenv(launcher->rank);
    va_list arguments;
    if (rank != NULL && strcmp(rank, "0") != 0)
        return CLI_WRONG_USE;
    (void)fprintf(stderr, "plimsoll: %s started %d ranks, ", launcher->name, size);
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fputc('\n', stderr);
    return CLI_WRONG_USE;
}

static int refuse_without_plugin(const launcher_t *launcher, int size)
{
    char source[PATH_MAX];
    if (launcher->without_plugin != NULL)
        return refuse(launcher, size, "but each of them finds itself alone: %s",
                      launcher->without_plugin);
    if (find_file("mpi/mpi_plugin.c", source))
        *strrchr(source, '/') = '\0';
    else
        (void)snprintf(source, sizeof source, "DIRECTORY-OF-mpi_plugin.c");
    return refuse(launcher, size,
                  "but there is no plugin for its MPI. Compile it with the mpicc of that MPI:\n"
                  "  mpicc -shared -fPIC -O2 -I %s -o ~/plimsoll-mpi.so %s/mpi_plugin.c\n"
                  "  export PLIMSOLL_MPI=~/plimsoll-mpi.so",
                  source, source);
}

/* Instruction sets as ONEDNN_MAX_CPU_ISA names them, each a part of the next. */
static const char *const instructions[] = {
    "SSE41",           "AVX", "AVX2", "AVX512_CORE", "AVX512_CORE_VNNI", "AVX512_CORE_BF16",
    "AVX512_CORE_AMX",
};

#define NUM_INSTRUCTIONS ((int)(sizeof instructions / sizeof instructions[0]))

/* The last one that this processor has, or that the user has set. */
static int find_instructions(void)
{
    static const char *const variables[] = {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"};
    unsigned eax, ebx, ecx, edx;
    int found = 0;
    if (__builtin_cpu_supports("avx"))
        found = 1;
    if (found == 1 && __builtin_cpu_supports("avx2"))
        found = 2;
    if (found == 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        found = 3;
    if (found == 3 && __builtin_cpu_supports("avx512vnni"))
        found = 4;
    if (found == 4 && __builtin_cpu_supports("avx512bf16"))
        found = 5;
    if (found == 5 && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
        (edx & AMX_BF16_BIT) != 0)
        found = 6;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *set = getenv(variables[i]);
        for (int j = 0; set != NULL && j < found; j++)
            if (strcasecmp(set, instructions[j]) == 0)
                found = j;
    }
    return found;
}

/* Gathers `size` bytes of each rank; false when they do not come. */
static bool gather_bytes(const plim_transport_t *transport, const void *own, size_t size,
                         void *all_out)
{
    static size_t sizes[PLIM_RANKS_MAX], offsets[PLIM_RANKS_MAX];
    const int64_t naps = (int64_t)GATHER_SECONDS * 1000000000 / GATHER_NAP_NS;
    bool done = false;
    for (int rank = 0; rank < transport->num_ranks; rank++) {
        sizes[rank] = size;
        offsets[rank] = (size_t)rank * size;
    }
    if (transport->start_all_gather(transport->state, own, all_out, sizes, offsets) != PLIM_OK)
        return false;
    for (int64_t i = 0; !done && i < naps; i++) {
        if (transport->test(transport->state, &done) != PLIM_OK)
            return false;
        if (!done)
            (void)nanosleep(&(struct timespec){.tv_nsec = GATHER_NAP_NS}, NULL);
    }
    return done;
}

static bool gather(const plim_transport_t *transport, int32_t own, int32_t *numbers_out)
{
    return gather_bytes(transport, &own, sizeof own, numbers_out);
}

/* Bits need one kind of arithmetic: where processors differ, oneDNN, which is loaded later, gets
 * the lowest instruction set on all ranks. */
static bool agree_instructions(const plim_transport_t *transport)
{
    static int32_t numbers[PLIM_RANKS_MAX];
    const int own = find_instructions();
    int lowest = own, highest = own;
    if (!gather(transport, own, numbers))
        return false;
    for (int rank = 0; rank < transport->num_ranks; rank++) {
        if (numbers[rank] < 0 || numbers[rank] >= NUM_INSTRUCTIONS)
            return false;
        lowest = numbers[rank] < lowest ? numbers[rank] : lowest;
        highest = numbers[rank] > highest ? numbers[rank] : highest;
    }
    if (lowest == highest)
        return true;
    if (transport->rank == 0)
        cli_remark("processors differ: all ranks compute with %s", instructions[lowest]);
    (void)unsetenv("DNNL_MAX_CPU_ISA");
    return setenv("ONEDNN_MAX_CPU_ISA", instructions[lowest], 1) == 0;
}

/* Continues a hash; FNV-1a. */
#define HASH_BEGIN 2166136261u

static uint32_t hash_bytes(uint32_t hash, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 16777619u;
    return hash;
}

/* A hash of the node (by its kernel's boot) and of the CPUs that this process may run on. */
static int32_t hash_cpus(void)
{
    char boot[64] = "";
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    (void)sched_getaffinity(0, sizeof cpus, &cpus);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file != NULL) {
        (void)fgets(boot, sizeof boot, file);
        (void)fclose(file);
    }
    const uint32_t hash = hash_bytes(HASH_BEGIN, boot, sizeof boot);
    return (int32_t)(hash_bytes(hash, &cpus, sizeof cpus) >> 1);
}

/* Counts the ranks that share this rank's CPUs: mpirun may bind each to CPUs of its own, or none.
 */
static bool count_cpu_ranks(const plim_transport_t *transport)
{
    static int32_t hashes[PLIM_RANKS_MAX];
    if (!gather(transport, hash_cpus(), hashes))
        return false;
    cpu_ranks = 0;
    for (int rank = 0; rank < transport->num_ranks; rank++)
        cpu_ranks += hashes[rank] == hashes[transport->rank];
    if (cpu_ranks > transport->local_ranks) /* nodes that look alike */
        cpu_ranks = transport->local_ranks;
    return true;
}

/*
 * Exchanges messages with every rank, small ones and such as MPI splits, so that MPI holds what it
 * allocates late. After 16 rounds Open MPI grew by 0.2 MiB at most, MPICH by 2 with 8 ranks.
 */
#define REHEARSAL_ROUNDS 16
#define REHEARSAL_BYTES ((size_t)1 << 20) /* received in a round */
#define MESSAGE_BYTES ((size_t)64 << 10)

static bool rehearse(const plim_transport_t *transport)
{
    const size_t part = REHEARSAL_BYTES / (size_t)transport->num_ranks;
    const size_t most = part < MESSAGE_BYTES ? part : MESSAGE_BYTES;
    char *own = calloc(1, most), *all = calloc((size_t)transport->num_ranks, most);
    bool done = own != NULL && all != NULL;
    for (int round = 0; done && round < REHEARSAL_ROUNDS; round++)
        done =
            gather_bytes(transport, own, most / 16, all) && gather_bytes(transport, own, most, all);
    free(own);
    free(all);
    return done;
}

/* Resident memory of this process in KiB; 0: unknown. */
static int64_t resident_kib(void)
{
    long long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%lld %lld", &all, &resident) != 2)
        resident = 0;
    (void)fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* The memory that joining took on the rank where it took most: all plan with the same. */
static bool measure_bytes(plim_transport_t *transport, int64_t before_kib)
{
    static int32_t all[PLIM_RANKS_MAX];
    if (!rehearse(transport))
        return false;
    const int64_t grown = resident_kib() - before_kib;
    if (!gather(transport, (int32_t)(grown < INT32_MAX ? grown : INT32_MAX), all))
        return false;
    for (int rank = 0; rank < transport->num_ranks; rank++)
        if (transport->bytes < (int64_t)all[rank] * 1024)
            transport->bytes = (int64_t)all[rank] * 1024;
    return true;
}

int cli_ranks_join(void)
{
    char path[PATH_MAX], message[512] = "";
    plim_transport_t found = PLIM_TRANSPORT_INIT;
    plim_plugin_open_fn open_plugin = NULL;
    const char *timeout = getenv("PLIMSOLL_RANKS_TIMEOUT");
    int size = 1;
    const launcher_t *launcher = find_launcher(&size);
    if (launcher == NULL || ranks.num_ranks > 1)
        return CLI_DONE;
    if (!find_plugin(launcher, path))
        return refuse_without_plugin(launcher, size);
    const int64_t before_kib = resident_kib();
    /* Open MPI's own plugins look for its symbols. */
    void *plugin = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (plugin == NULL)
        return refuse(launcher, size, "but the plugin cannot be loaded: %s", dlerror());
    void *address = dlsym(plugin, PLIM_PLUGIN_OPEN);
    memcpy(&open_plugin, &address, sizeof open_plugin);
    if (open_plugin == NULL)
        return refuse(launcher, size, "but %s is no plugin of Plimsoll", path);
    if (open_plugin(&found, message, sizeof message) != PLIM_OK)
        return refuse(launcher, size, "but %s cannot join them: %s", path, message);
    if (found.num_ranks == 1) {
        (void)found.close(found.state, LEAVE_SECONDS);
        return refuse(launcher, size,
                      "but each of them finds itself alone: %s is for another MPI than the "
                      "launcher's; plimsoll --version lists the plugins",
                      path);
    }
    if (!agree_instructions(&found) || !count_cpu_ranks(&found) ||
        !measure_bytes(&found, before_kib)) {
        (void)found.close(found.state, LEAVE_SECONDS);
        return refuse(launcher, size,
                      "but they cannot agree on instructions, threads and memory: does each of "
                      "them run this version of plimsoll?");
    }
    found.timeout_seconds = timeout != NULL ? strtod(timeout, NULL) : 0;
    ranks = found;
    return CLI_DONE;
}

bool cli_ranks_compare(const cli_common_t *common, const char *option, const char *word)
{
    static int32_t hashes[PLIM_RANKS_MAX];
    const uint32_t own = word != NULL ? hash_bytes(HASH_BEGIN, word, strlen(word)) : 0;
    if (ranks.num_ranks == 1)
        return true;
    if (!gather(&ranks, (int32_t)(own >> 1), hashes)) {
        (void)cli_wrong_use(common, "rank 0 lost the others: %s", ranks.message(ranks.state));
        return false;
    }
    for (int rank = 1; rank < ranks.num_ranks; rank++)
        if (hashes[rank] != hashes[0]) {
            (void)cli_wrong_use(common,
                                "rank %d has another %s than rank 0; start all ranks with the same "
                                "options",
                                rank, option);
            return false;
        }
    return true;
}

const plim_transport_t *cli_ranks(void)
{
    return ranks.num_ranks > 1 ? &ranks : NULL;
}

int cli_ranks_on_cpus(void)
{
    return cpu_ranks;
}

bool cli_ranks_speaks(void)
{
    return ranks.rank == 0;
}

bool cli_ranks_other(void)
{
    int size;
    const launcher_t *launcher = find_launcher(&size);
    const char *rank = launcher != NULL ? getenv(launcher->rank) : NULL;
    return rank != NULL && strcmp(rank, "0") != 0;
}

bool cli_ranks_idle(const char *verb)
{
    int size;
    if (find_launcher(&size) != NULL && !cli_ranks_other())
        cli_warn("%s does not divide its work among ranks: one of %d does it all", verb, size);
    return cli_ranks_other();
}

/*
 * Ranks that end well, or save a run because one of them was stopped, wait for each other: rank 0
 * may still be writing. After another error that all ranks have, they come soon. If they do not
 * come, the error is this rank's alone: it says so, and ends the others. The first rank to do that
 * is enough.
 */
void cli_ranks_leave(int exit_code)
{
    const bool patient = exit_code == CLI_DONE || exit_code == CLI_STOPPED;
    const long turn_ns = 100000000L * (ranks.rank < 9 ? ranks.rank : 9);
    const double most =
        ranks.timeout_seconds > 0 ? ranks.timeout_seconds : PLIM_PEERS_TIMEOUT_SECONDS;
    if (ranks.num_ranks == 1 || ranks.close(ranks.state, patient ? most : LEAVE_SECONDS) == PLIM_OK)
        return;
    if (!cli_ranks_speaks() && exit_code != CLI_DONE) {
        (void)nanosleep(&(struct timespec){.tv_nsec = turn_ns}, NULL);
        (void)fprintf(stderr, "plimsoll: rank %d: %s\n", ranks.rank, cli_last_error());
    }
    /* MPICH may wait for a silent rank even here; a process that dies ends its job too. */
    (void)signal(SIGALRM, SIG_DFL);
    (void)alarm(ABORT_SECONDS);
    ranks.abort(ranks.state, exit_code != CLI_DONE ? exit_code : CLI_FAILED);
}

static json_t *plugin_json(const char *path, const char *name)
{
    plim_plugin_describe_fn describe = NULL;
    void *plugin = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    void *address = plugin != NULL ? dlsym(plugin, PLIM_PLUGIN_DESCRIBE) : NULL;
    memcpy(&describe, &address, sizeof describe);
    return json_pack("{s:s, s:o}", "name", name, describe != NULL ? "mpi" : "error",
                     cli_json_text(describe != NULL ? describe() : dlerror()));
}

json_t *cli_ranks_plugins(void)
{
    static const char *const names[] = {"plimsoll-openmpi.so", "plimsoll-mpich.so",
                                        "plimsoll-mpi.so"};
    const char *own = getenv("PLIMSOLL_MPI");
    json_t *plugins = json_array();
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (find_file(names[i], path))
            (void)json_array_append_new(plugins, plugin_json(path, names[i]));
    if (own != NULL && own[0] != '\0')
        (void)json_array_append_new(plugins, plugin_json(own, "of PLIMSOLL_MPI"));
    return plugins;
}
