/*
 * A file of rates is a text: a line of version and machine, then a line for each rate with the
 * costs of its points. The cache has one file for computing and one for the disk.
 */
#include "plan/rates.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/threads.h"
#include "io/cache_file.h"
#include "io/commit.h"
#include "io/seal.h"
#include "mem/kernel_text.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define FAMILY "plimsoll rates "
#define HEADING FAMILY "1" /* of the files and of how their content is measured */
#define NAME_TEXT 64
#define CPU_TEXT 128
#define SOURCE_TEXT 256
#define COST_MOST 1e3 /* seconds */

enum { COMPUTING = 1, DISK = 2 };

static const struct {
    const char *name;
    int kind;
    int points;
    double x[2], y[2];
    double cost[PLIM__RATE_POINTS];
} table[PLIM__NUM_RATES] = {
    [PLIM__RATE_F32_FORWARD] =
        {"f32-forward", COMPUTING, 4, {16, 256}, {16, 256}, {1.4e-08, 1.5e-07, 1.8e-07, 2e-06}},
    [PLIM__RATE_F32_INPUT] =
        {"f32-input", COMPUTING, 4, {16, 256}, {16, 256}, {1.4e-08, 8e-08, 2.3e-07, 2e-06}},
    [PLIM__RATE_F32_WEIGHT] =
        {"f32-weight", COMPUTING, 4, {16, 256}, {16, 256}, {1.3e-08, 2.4e-07, 1.9e-07, 2.9e-06}},
    [PLIM__RATE_BF16_FORWARD] =
        {"bf16-forward", COMPUTING, 4, {16, 256}, {16, 256}, {1.6e-08, 1.4e-07, 2.1e-07, 1.7e-06}},
    [PLIM__RATE_BF16_INPUT] =
        {"bf16-input", COMPUTING, 4, {16, 256}, {16, 256}, {1.7e-08, 1.5e-07, 2.4e-07, 2e-06}},
    [PLIM__RATE_BF16_WEIGHT] =
        {"bf16-weight", COMPUTING, 4, {16, 256}, {16, 256}, {1.7e-08, 3.1e-07, 2.1e-07, 2.3e-06}},
    [PLIM__RATE_SUM] =
        {"sum", COMPUTING, 4, {16, 256}, {19, 24}, {2.7e-09, 1.8e-08, 2.9e-08, 1.1e-07}},
    [PLIM__RATE_SUM_BACK] =
        {"sum-back", COMPUTING, 4, {16, 256}, {19, 24}, {1.3e-08, 3.6e-08, 2.8e-08, 1.6e-07}},
    [PLIM__RATE_REVERSE] = {"reverse", COMPUTING, 1, {0}, {0}, {1e-08}},
    [PLIM__RATE_ATTEND] = {"attend", COMPUTING, 2, {16, 256}, {0}, {3.5e-08, 2.1e-07}},
    [PLIM__RATE_ATTEND_BACK] = {"attend-back", COMPUTING, 2, {16, 256}, {0}, {5.8e-08, 4.3e-07}},
    [PLIM__RATE_EPILOGUE] = {"epilogue", COMPUTING, 2, {0}, {0}, {5e-10, 7.8e-10}},
    [PLIM__RATE_DROPOUT] = {"dropout", COMPUTING, 2, {0}, {0}, {7.8e-10, 8.3e-10}},
    [PLIM__RATE_NORM] = {"norm", COMPUTING, 2, {0}, {0}, {2.3e-09, 3.6e-09}},
    [PLIM__RATE_LOSS] = {"loss", COMPUTING, 1, {0}, {0}, {2.2e-09}},
    [PLIM__RATE_UPDATE] = {"update", COMPUTING, 1, {0}, {0}, {1.1e-09}},
    [PLIM__RATE_PACK] = {"pack", COMPUTING, 1, {0}, {0}, {8e-09}},
    [PLIM__RATE_MEMORY] = {"memory", COMPUTING, 1, {0}, {0}, {1e-10}},
    [PLIM__RATE_SHARE] = {"share", COMPUTING, 1, {0}, {0}, {1e-05}},
    [PLIM__RATE_DRAW] = {"draw", COMPUTING, 2, {19, 24}, {0}, {3.3e-08, 5.6e-08}},
    [PLIM__RATE_COPY] = {"copy", COMPUTING, 2, {64, 1024}, {0}, {1.1e-07, 3.6e-07}},
    [PLIM__RATE_READ] = {"read", DISK, 2, {4096, 65536}, {0}, {7.9e-06, 3.7e-05}},
    [PLIM__RATE_READ_CORE] = {"read-core", DISK, 2, {4096, 65536}, {0}, {4.2e-06, 1.4e-05}},
};

int plim__rate_points(plim__rate_t rate)
{
    return table[rate].points;
}

double plim__rate_x(plim__rate_t rate, int point)
{
    return table[rate].x[table[rate].points == 4 ? point / 2 : point];
}

double plim__rate_y(plim__rate_t rate, int point)
{
    return table[rate].y[point % 2];
}

/* Where x lies between two points: 0 at the first and before it, 1 at the second, more beyond. */
static double place(const double points[2], double x)
{
    return fmax(0, (x - points[0]) / (points[1] - points[0]));
}

/* The line through two costs; it does not fall. */
static double along(double first, double second, double where)
{
    return first + fmax(second - first, where < 1 ? second - first : 0) * where;
}

double plim__rate_at(const plim__rates_t *rates, plim__rate_t rate, double x, double y)
{
    const double *cost = rates->cost[rate];
    const double by_x = place(table[rate].x, x);
    if (table[rate].points == 2)
        return along(cost[0], cost[1], by_x);
    const double by_y = place(table[rate].y, y);
    return along(along(cost[0], cost[1], by_y), along(cost[2], cost[3], by_y), by_x);
}

plim__rates_t plim__rates_default(void)
{
    plim__rates_t rates = {.computing_known = false};
    for (int i = 0; i < PLIM__NUM_RATES; i++)
        memcpy(rates.cost[i], table[i].cost, sizeof rates.cost[i]);
    return rates;
}

/* The name of the processor in /proc/cpuinfo. */
static void cpu_name(char name_out[CPU_TEXT])
{
    plim__kernel_lines_t lines;
    const char *line;
    (void)snprintf(name_out, CPU_TEXT, "unknown");
    if (!plim__kernel_lines_open(&lines, "", "/proc/cpuinfo"))
        return;
    while ((line = plim__kernel_lines_next(&lines)) != NULL) {
        const char *colon = strchr(line, ':');
        if (colon != NULL && strncmp(line, "model name", strlen("model name")) == 0) {
            (void)snprintf(name_out, CPU_TEXT, "%s", colon + 1 + strspn(colon + 1, " "));
            break;
        }
    }
    plim__kernel_lines_close(&lines);
}

/* The cache's file of computing: processor and threads. */
static void name_computing(int threads, char name_out[NAME_TEXT])
{
    char text[CPU_TEXT + 64], cpu[CPU_TEXT], digits[PLIM__SEAL_DIGITS + 1];
    cpu_name(cpu);
    (void)snprintf(text, sizeof text, "%s %s %d", HEADING, cpu, threads);
    plim__seal_digits(text, strlen(text), digits);
    (void)snprintf(name_out, NAME_TEXT, "rates-%s", digits);
}

/* What is mounted there, such as "server:/export", by /proc/self/mountinfo: "ID PARENT MAJOR:MINOR
 * ROOT POINT OPTIONS … - TYPE SOURCE OPTIONS"; "" if it is not known. */
static void mount_source(dev_t device, char source_out[SOURCE_TEXT])
{
    plim__kernel_lines_t lines;
    char number[48];
    const char *line;
    source_out[0] = '\0';
    (void)snprintf(number, sizeof number, " %u:%u ", major(device), minor(device));
    if (!plim__kernel_lines_open(&lines, "", "/proc/self/mountinfo"))
        return;
    while (source_out[0] == '\0' && (line = plim__kernel_lines_next(&lines)) != NULL) {
        const char *type = strstr(line, number) != NULL ? strstr(line, " - ") : NULL;
        const char *source = type != NULL ? strchr(type + strlen(" - "), ' ') : NULL;
        if (source != NULL)
            (void)snprintf(source_out, SOURCE_TEXT, "%.*s", (int)strcspn(source + 1, " "),
                           source + 1);
    }
    plim__kernel_lines_close(&lines);
}

/* The cache's file of the disk: the file system of the dataset, or of the working directory for a
 * dataset without files, and the I/O engine. NFS tells no id of a file system, so what is mounted
 * counts too. False when the system is not known. */
static bool name_disk(const plim_job_t *job, const plim_dataset_t *dataset,
                      char name_out[NAME_TEXT])
{
    const char *path = plim__dataset_is_shape(dataset) ? "." : plim__dataset_path(dataset);
    char text[SOURCE_TEXT + 128], source[SOURCE_TEXT], digits[PLIM__SEAL_DIGITS + 1];
    struct statfs about;
    struct stat place;
    uint64_t id = 0;
    if (statfs(path, &about) != 0 || stat(path, &place) != 0)
        return false;
    mount_source(place.st_dev, source);
    memcpy(&id, &about.f_fsid, sizeof id < sizeof about.f_fsid ? sizeof id : sizeof about.f_fsid);
    (void)snprintf(text, sizeof text, "%s %lx %llx %s %d", HEADING, (unsigned long)about.f_type,
                   (unsigned long long)id, source, (int)job->io_engine);
    plim__seal_digits(text, strlen(text), digits);
    (void)snprintf(name_out, NAME_TEXT, "disk-%s", digits);
    return true;
}

/* The lines of the rates of these kinds. */
static void print_rates(const plim__rates_t *rates, int kinds, char text_out[PLIM__CACHE_TEXT])
{
    int used = 0;
    for (int i = 0; i < PLIM__NUM_RATES; i++) {
        if ((table[i].kind & kinds) == 0)
            continue;
        used += snprintf(text_out + used, PLIM__CACHE_TEXT - (size_t)used, "%s", table[i].name);
        for (int point = 0; point < table[i].points; point++)
            used += snprintf(text_out + used, PLIM__CACHE_TEXT - (size_t)used, " %.4g",
                             rates->cost[i][point]);
        used += snprintf(text_out + used, PLIM__CACHE_TEXT - (size_t)used, "\n");
    }
}

/* Parses the line of rate `i` at *text and moves behind it. */
static bool take_line(int i, const char **text, plim__rates_t *rates)
{
    const size_t length = strlen(table[i].name);
    const char *at = *text + length;
    if (strncmp(*text, table[i].name, length) != 0 || *at != ' ')
        return false;
    for (int point = 0; point < table[i].points; point++) {
        char *end;
        const double cost = strtod(at, &end);
        if (*at != ' ' || end == at || !(cost > 0) || cost > COST_MOST)
            return false;
        rates->cost[i][point] = cost;
        at = end;
    }
    if (*at != '\n')
        return false;
    *text = at + 1;
    return true;
}

/* Parses all lines of a kind; *text moves behind them. */
static bool take_rates(int kind, const char **text, plim__rates_t *rates)
{
    plim__rates_t taken = *rates;
    for (int i = 0; i < PLIM__NUM_RATES; i++)
        if (table[i].kind == kind && !take_line(i, text, &taken))
            return false;
    *rates = taken;
    return true;
}

/* Parses the first line, "plimsoll rates 1: PROCESSOR, 32 threads"; *text moves behind it. */
static bool take_heading(const char **text, plim__rates_t *rates)
{
    static const char begin[] = HEADING ": ", end[] = " threads\n";
    const size_t length = strcspn(*text, "\n");
    const char *comma = memrchr(*text, ',', length);
    char *rest;
    if (strncmp(*text, begin, strlen(begin)) != 0 || comma == NULL)
        return false;
    const long threads = strtol(comma + 1, &rest, 10);
    if (threads < 1 || threads > PLIM__THREADS_MAX || strncmp(rest, end, strlen(end)) != 0)
        return false;
    rates->threads = (int)threads;
    *text += length + 1;
    return true;
}

static plim_status_t read_file(const char *file, plim__rates_t *rates)
{
    char whole[PLIM__CACHE_TEXT];
    const int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return plim__fail(PLIM_ERR_USAGE, "%s: the rates cannot be read: %s", file,
                          strerror(errno));
    const ssize_t size = read(fd, whole, sizeof whole - 1);
    (void)close(fd);
    whole[size > 0 ? size : 0] = '\0';
    const char *text = whole;
    if (take_heading(&text, rates)) {
        rates->computing_known = take_rates(COMPUTING, &text, rates);
        rates->disk_known = rates->computing_known && take_rates(DISK, &text, rates);
    }
    if (!rates->computing_known || *text != '\0')
        return plim__fail(PLIM_ERR_USAGE,
                          "%s is no file of rates of this version; write one on the machine that "
                          "will train: plimsoll plan ... --write-rates FILE",
                          file);
    rates->from_file = true;
    return PLIM_OK;
}

/* Reads the kept rates of computing with so many threads. */
static bool find_computing(int threads, plim__rates_t *rates)
{
    char name[NAME_TEXT], text[PLIM__CACHE_TEXT];
    const char *at = text;
    name_computing(threads, name);
    return plim__cache_read(name, text) && take_rates(COMPUTING, &at, rates);
}

plim_status_t plim__rates_find(const plim_job_t *job, const plim_dataset_t *dataset,
                               const char *file, plim__rates_t *rates_out)
{
    char name[NAME_TEXT], text[PLIM__CACHE_TEXT];
    const char *at = text;
    plim__rates_t rates = plim__rates_default();
    if (file != NULL) {
        PLIM_TRY(read_file(file, &rates));
        *rates_out = rates;
        return PLIM_OK;
    }
    /* Costs are those of a core, and the ranks of a node keep as many cores busy as one process
     * with all of their threads. */
    const int threads = plim__job_threads(job), ranks = job->core->transport.local_ranks;
    rates.computing_known =
        find_computing(threads, &rates) || (ranks > 1 && find_computing(threads * ranks, &rates));
    rates.disk_known = name_disk(job, dataset, name) && plim__cache_read(name, text) &&
                       take_rates(DISK, &at, &rates);
    *rates_out = rates;
    return PLIM_OK;
}

void plim__rates_keep(const plim_job_t *job, const plim_dataset_t *dataset,
                      const plim__rates_t *rates)
{
    char name[NAME_TEXT], text[PLIM__CACHE_TEXT];
    if (rates->computing_known) {
        name_computing(plim__job_threads(job), name);
        print_rates(rates, COMPUTING, text);
        plim__cache_write(name, text);
    }
    if (rates->disk_known && name_disk(job, dataset, name)) {
        print_rates(rates, DISK, text);
        plim__cache_write(name, text);
    }
}

plim_status_t plim__rates_write(const plim_job_t *job, const plim__rates_t *rates, const char *file)
{
    char text[PLIM__CACHE_TEXT], whole[PLIM__CACHE_TEXT + CPU_TEXT + 64], cpu[CPU_TEXT];
    cpu_name(cpu);
    print_rates(rates, rates->disk_known ? COMPUTING | DISK : COMPUTING, text);
    const int size = snprintf(whole, sizeof whole, "%s: %s, %d threads\n%s", HEADING, cpu,
                              plim__job_threads(job), text);
    return plim__commit_file(AT_FDCWD, file, whole, (size_t)size, false);
}

/* Whether rates may be written to `file`: it is new, empty, or an earlier file of rates. */
static plim_status_t check_place(const char *file)
{
    char front[sizeof FAMILY] = "";
    struct stat about;
    ssize_t size = -1;
    if (lstat(file, &about) != 0)
        return PLIM_OK; /* writing tells what else is wrong */
    const int fd =
        S_ISREG(about.st_mode) ? open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    if (fd >= 0) {
        size = read(fd, front, strlen(FAMILY));
        (void)close(fd);
    }
    if (size == 0 || strcmp(front, FAMILY) == 0)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_USAGE,
                      "%s is there already and is no file of rates; remove it or name another file",
                      file);
}

PLIM_API plim_status_t plim_rates_threads(const char *file, int *threads_out)
{
    plim__rates_t rates = plim__rates_default();
    PLIM_TRY(read_file(file, &rates));
    *threads_out = rates.threads;
    return PLIM_OK;
}

PLIM_API plim_status_t plim_rates_measure(const plim_job_t *job, const plim_dataset_t *dataset,
                                          const char *file)
{
    plim__rates_t rates, kept;
    PLIM_ENTER(job);
    PLIM_TRY(plim__dataset_check(dataset));
    if (file != NULL)
        PLIM_TRY(check_place(file));
    PLIM_TRY(plim__rates_find(job, dataset, NULL, &kept));
    rates = kept;
    plim_status_t status = PLIM_OK;
    if (!kept.computing_known)
        status = plim__rates_measure_computing(job, &rates);
    if (status == PLIM_OK && !kept.disk_known)
        status = plim__rates_measure_disk(job, dataset, &rates);
    if (rates.computing_known != kept.computing_known || rates.disk_known != kept.disk_known)
        plim__rates_keep(job, dataset, &rates);
    if (status == PLIM_OK && file != NULL)
        status = plim__rates_write(job, &rates, file);
    return status;
}
