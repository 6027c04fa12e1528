#include "watch/watch_tree.h"

#include "base/check.h"
#include "base/clock.h"
#include "mem/kernel_text.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SECOND ((int64_t)1000000000)
#define PSS_SHARE 500 /* reading PSS takes at most 1/500 of the time */
#define PSS_AGE (10 * SECOND)
#define SPARE_FILES 64 /* descriptors that are left for other uses */

/* The start of an open file as text; false if it cannot be read: the process is gone. */
static bool read_open(int file, char *text, size_t size)
{
    const ssize_t length = file >= 0 ? pread(file, text, size - 1, 0) : -1;
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

static int open_of(const watch_tree_t *tree, pid_t pid, const char *name)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < tree->files_most)
        return file;
    (void)close(file);
    return -1;
}

static bool read_of(watch_tree_t *tree, pid_t pid, const char *name)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    return plim__kernel_read("", path, tree->text, WATCH_TREE_TEXT) > 0;
}

/*
 * The fields of /proc/PID/stat from the third on: "123 (a name) S 1 …", where the name may hold
 * blanks and parentheses. Returns how many of `count` there are; letters count as 0.
 */
static int stat_fields(const char *text, int64_t *fields_out, int count)
{
    const char *rest = strrchr(text, ')');
    int found = 0;
    for (rest = rest != NULL ? strchr(rest, ' ') : NULL; rest != NULL && found < count;
         rest = strchr(rest + 1, ' '))
        fields_out[found++] = strtoll(rest + 1, NULL, 10);
    return found;
}

/* Numbers in `fields` of stat_fields. */
enum { PARENT = 1, FAULTS = 7, MAJOR_FAULTS = 9, TICKS = 11, NUM_FIELDS = 15 };

/* The parent of a process; 0 if it is gone. */
static pid_t parent_of(watch_tree_t *tree, pid_t pid)
{
    int64_t fields[PARENT + 1];
    if (!read_of(tree, pid, "stat") || stat_fields(tree->text, fields, PARENT + 1) <= PARENT)
        return 0;
    return (pid_t)fields[PARENT];
}

static bool is_member(const watch_tree_t *tree, pid_t pid)
{
    for (int i = 0; i < tree->count; i++)
        if (tree->process[i].pid == pid)
            return true;
    return false;
}

/* False if the table is full. */
static bool add(watch_tree_t *tree, pid_t pid, pid_t parent)
{
    if (tree->count == WATCH_TREE_PROCESSES)
        return false;
    watch_tree_process_t *process = &tree->process[tree->count];
    memset(process, 0, sizeof *process);
    process->pid = pid;
    process->parent = parent;
    process->statm = open_of(tree, pid, "statm");
    process->status = open_of(tree, pid, "status");
    process->began = true;
    process->pss = -1;
    tree->changed = true;
    tree->count++;
    if (tree->count > tree->most)
        tree->most = tree->count;
    return true;
}

static void drop(watch_tree_t *tree, int index)
{
    watch_tree_process_t *process = &tree->process[index];
    if (process->statm >= 0)
        (void)close(process->statm);
    if (process->status >= 0)
        (void)close(process->status);
    if (!process->began && tree->num_gone < WATCH_TREE_PROCESSES)
        tree->gone[tree->num_gone++] = process->pid;
    tree->changed = true;
    *process = tree->process[--tree->count];
}

/* Lists the processes of the machine, ascending as the kernel gives them; -1 if there are too many
 * or the listing failed. */
static int list_pids(watch_tree_t *tree, pid_t *pids_out)
{
    int count = 0;
    pid_t last = 0;
    long got;
    if (lseek(tree->processes_file, 0, SEEK_SET) != 0)
        return -1;
    while ((got = syscall(SYS_getdents64, tree->processes_file, tree->text, WATCH_TREE_TEXT)) > 0) {
        for (long at = 0; at < got;) {
            /* struct linux_dirent64: inode and offset (16 bytes), length, type, name */
            unsigned short length;
            memcpy(&length, tree->text + at + 16, sizeof length);
            const pid_t pid = (pid_t)strtol(tree->text + at + 19, NULL, 10);
            at += length;
            if (pid <= 0)
                continue;
            if (count == WATCH_TREE_PIDS || pid <= last)
                return -1;
            pids_out[count++] = last = pid;
        }
    }
    return got < 0 ? -1 : count;
}

/* Whether a new process belongs to the tree and was added. */
static bool try_process(watch_tree_t *tree, pid_t pid)
{
    if (pid == tree->watcher || pid == tree->ignored)
        return false;
    const pid_t parent = parent_of(tree, pid);
    return (parent == tree->watcher || is_member(tree, parent)) && add(tree, pid, parent);
}

/* Finds processes that were created since the last listing. */
static void find_new(watch_tree_t *tree)
{
    pid_t *before = tree->known[tree->before], *now = tree->known[!tree->before];
    const int count = list_pids(tree, now);
    bool found;
    if (count < 0) {
        tree->newest[0] = '\0'; /* again at the next tick */
        return;
    }
    /* A child can have a lower number than its parent: as long as one is found, there may be
     * more. */
    do {
        found = false;
        for (int i = 0, j = 0; i < count; i++) {
            while (j < tree->num_known && before[j] < now[i])
                j++;
            const bool known = j < tree->num_known && before[j] == now[i];
            if (!known && !is_member(tree, now[i]) && try_process(tree, now[i]))
                found = true;
        }
    } while (found);
    tree->before = !tree->before;
    tree->num_known = count;
}

void watch_tree_open(watch_tree_t *tree, pid_t root, pid_t ignored)
{
    struct rlimit files;
    tree->watcher = getpid();
    tree->ignored = ignored;
    tree->files_most = getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < INT_MAX
                           ? (int)files.rlim_cur - SPARE_FILES
                           : INT_MAX;
    tree->processes_file = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    tree->load_file = plim__kernel_open("", "/proc/loadavg");
    tree->newest[0] = '\0';
    tree->count = tree->most = tree->num_known = tree->num_gone = tree->pss_next = 0;
    tree->round_at = tree->pss_since = tree->pss_spent = 0;
    memset(&tree->ended, 0, sizeof tree->ended);
    memset(&tree->largest, 0, sizeof tree->largest);
    (void)add(tree, root, tree->watcher);
}

void watch_tree_close(watch_tree_t *tree)
{
    while (tree->count > 0)
        drop(tree, tree->count - 1);
    if (tree->processes_file >= 0)
        (void)close(tree->processes_file);
    if (tree->load_file >= 0)
        (void)close(tree->load_file);
}

/* Reads a process's memory; false if it is gone. `round`: in any case. Adds to *spike what a new
 * peak exceeds the memory that was seen by. */
static bool read_memory(watch_tree_t *tree, watch_tree_process_t *process, bool round,
                        int64_t *spike)
{
    char pages[sizeof process->pages];
    if (process->statm >= 0 ? !read_open(process->statm, tree->text, sizeof pages)
                            : !read_of(tree, process->pid, "statm"))
        return false;
    (void)snprintf(pages, sizeof pages, "%s", tree->text);
    if (!round && strcmp(pages, process->pages) == 0)
        return true;
    if (process->status >= 0 ? !read_open(process->status, tree->text, WATCH_TREE_TEXT)
                             : !read_of(tree, process->pid, "status"))
        return false;
    const int64_t rss = process->rss, peak = process->peak;
    memcpy(process->pages, pages, sizeof pages);
    if (sscanf(tree->text, "Name:\t%63[^\n]", process->name) != 1)
        process->name[0] = '\0';
    process->parent = (pid_t)plim__kernel_count(tree->text, "PPid");
    process->rss = plim__kernel_bytes(tree->text, "VmRSS");
    process->anonymous = plim__kernel_bytes(tree->text, "RssAnon");
    process->file = plim__kernel_bytes(tree->text, "RssFile");
    process->shared = plim__kernel_bytes(tree->text, "RssShmem");
    process->swap = plim__kernel_bytes(tree->text, "VmSwap");
    process->peak = plim__max_i64(plim__kernel_bytes(tree->text, "VmHWM"), process->rss);
    if (process->peak > tree->largest.peak)
        tree->largest = *process;
    if (process->peak > peak && !process->began)
        *spike = plim__max_i64(*spike, process->peak - plim__max_i64(rss, process->rss));
    return true;
}

/* Reads counters that change slowly, or that are not needed each tick. */
static void read_counters(watch_tree_t *tree, watch_tree_process_t *process)
{
    int64_t fields[NUM_FIELDS];
    if (read_of(tree, process->pid, "stat") &&
        stat_fields(tree->text, fields, NUM_FIELDS) == NUM_FIELDS) {
        process->faults = fields[FAULTS] + fields[FAULTS + 1];
        process->major_faults = fields[MAJOR_FAULTS] + fields[MAJOR_FAULTS + 1];
        process->ticks = fields[TICKS] + fields[TICKS + 1] + fields[TICKS + 2] + fields[TICKS + 3];
    }
    if (read_of(tree, process->pid, "io")) { /* refused for another user's process */
        process->read = plim__kernel_count(tree->text, "read_bytes");
        process->written = plim__kernel_count(tree->text, "write_bytes");
    }
}

/* A copy of a shared page changes the PSS of two processes and the RSS of none, so an old PSS is
 * read again too. */
static bool wants_pss(const watch_tree_process_t *process, int64_t now)
{
    return process->pss < 0 || process->pss_rss != process->rss || now - process->pss_at >= PSS_AGE;
}

/* Reads the PSS of one process, if the time that all readings took allows it. A single process
 * shares with no process here. */
static void read_pss(watch_tree_t *tree, int64_t now)
{
    if (tree->pss_since == 0)
        tree->pss_since = now;
    if (tree->count < 2 || tree->pss_spent * PSS_SHARE > now - tree->pss_since)
        return;
    int turns = tree->count;
    while (turns > 0 && !wants_pss(&tree->process[tree->pss_next % tree->count], now)) {
        tree->pss_next = (tree->pss_next + 1) % tree->count;
        turns--;
    }
    if (turns == 0)
        return;
    watch_tree_process_t *process = &tree->process[tree->pss_next % tree->count];
    tree->pss_next = (tree->pss_next + 1) % tree->count;
    process->pss_at = now;
    const double began = plim__clock_seconds(CLOCK_THREAD_CPUTIME_ID);
    if (read_of(tree, process->pid, "smaps_rollup")) {
        process->pss = plim__kernel_bytes(tree->text, "Pss");
        process->pss_rss = process->rss;
        process->pss_new = true;
    }
    const double spent = plim__clock_seconds(CLOCK_THREAD_CPUTIME_ID) - began;
    tree->pss_spent += (int64_t)(spent * (double)SECOND);
}

/* A process's memory with shared pages divided among their users, as far as known. */
static int64_t held_by(const watch_tree_process_t *process)
{
    if (process->pss < 0)
        return process->anonymous + process->shared;
    return plim__max_i64(process->pss + process->rss - process->pss_rss, 0);
}

void watch_tree_read(watch_tree_t *tree, int64_t now, watch_tree_totals_t *totals_out)
{
    char load[sizeof tree->newest];
    const bool round = now - tree->round_at >= SECOND;
    const double ticks = (double)sysconf(_SC_CLK_TCK);
    watch_tree_totals_t totals = tree->ended;
    /* Its last number is the newest pid. */
    if (!read_open(tree->load_file, load, sizeof load) || strrchr(load, ' ') == NULL ||
        strcmp(strrchr(load, ' '), tree->newest) != 0) {
        (void)snprintf(tree->newest, sizeof tree->newest, "%s",
                       strrchr(load, ' ') != NULL ? strrchr(load, ' ') : "");
        find_new(tree);
    }
    if (round)
        tree->round_at = now;
    for (int i = 0; i < tree->count;) {
        watch_tree_process_t *process = &tree->process[i];
        if (!read_memory(tree, process, round, &totals.spike)) {
            drop(tree, i);
            continue;
        }
        if (round)
            read_counters(tree, process);
        totals.rss += process->rss;
        totals.anonymous += process->anonymous;
        totals.file += process->file;
        totals.shared += process->shared;
        totals.swap += process->swap;
        totals.held += held_by(process);
        totals.faults += process->faults;
        totals.major_faults += process->major_faults;
        totals.read += process->read;
        totals.written += process->written;
        totals.cpu += (double)process->ticks / ticks;
        i++;
    }
    read_pss(tree, now);
    *totals_out = totals;
}

void watch_tree_waited(watch_tree_t *tree, const struct rusage *usage)
{
    watch_tree_totals_t *ended = &tree->ended;
    ended->faults += usage->ru_minflt;
    ended->major_faults += usage->ru_majflt;
    ended->read += (int64_t)usage->ru_inblock * 512;
    ended->written += (int64_t)usage->ru_oublock * 512;
    ended->cpu += (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) +
                  (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * 1e-6;
}

static bool has_moved(const watch_tree_process_t *process)
{
    return process->began || watch_record_differs(process->rss, process->listed);
}

bool watch_tree_moved(const watch_tree_t *tree)
{
    if (tree->changed)
        return true;
    for (int i = 0; i < tree->count; i++)
        if (has_moved(&tree->process[i]))
            return true;
    return false;
}

/* False if the line is full. */
static bool list_process(watch_tree_process_t *process, watch_record_t *record)
{
    const size_t position = record->json.used;
    plim__json_open(&record->json, NULL, '{');
    watch_record_number(record, "pid", process->pid);
    watch_record_number(record, "parent", process->parent);
    plim__json_put_printable(&record->json, "name", process->name, sizeof process->name);
    watch_record_number(record, "rss_bytes", process->rss);
    watch_record_number(record, "anonymous_bytes", process->anonymous);
    watch_record_number(record, "shared_bytes", process->shared);
    watch_record_number(record, "peak_bytes", process->peak);
    if (process->pss_new)
        watch_record_number(record, "pss_bytes", process->pss);
    plim__json_close(&record->json, '}');
    if (!plim__json_keep(&record->json, position))
        return false;
    process->listed = process->rss;
    process->began = process->pss_new = false;
    return true;
}

void watch_tree_list(watch_tree_t *tree, watch_record_t *record)
{
    plim__json_writer_t *json = &record->json;
    const size_t start = json->used;
    plim__json_open(json, "processes", '[');
    const size_t empty = json->used;
    bool fits = !json->overflow;
    while (tree->num_gone > 0 && fits) {
        const size_t position = json->used;
        plim__json_open(json, NULL, '{');
        watch_record_number(record, "pid", tree->gone[tree->num_gone - 1]);
        plim__json_put_bool(json, "ended", true);
        plim__json_close(json, '}');
        fits = plim__json_keep(json, position);
        if (fits)
            tree->num_gone--;
    }
    for (int i = 0; i < tree->count && fits; i++)
        if (has_moved(&tree->process[i]))
            fits = list_process(&tree->process[i], record);
    tree->changed = !fits;
    const bool none = json->used == empty;
    plim__json_close(json, ']');
    if (none)
        json->used = start;
}
