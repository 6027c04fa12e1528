/* plimsoll cache: the working sets in a scratch directory, listed or removed. */
#include "command/cli.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct cache {
    cli_common_t common;
    bool remove;
} cache_t;

static const char help[] =
    "usage: plimsoll cache DIR [--remove]\n\n"
    "Lists your working sets in DIR, a directory that was given as --scratch: files of the\n"
    "rows and lists that a dataset and fan-outs need, by the dataset's fingerprint. All of them\n"
    "can be removed at any time: jobs that use one go on with it, and the next job makes it\n"
    "again. The lock of a job that is packing one stays.\n";

#define PREFIX "working-set-"
#define DIGITS ((size_t)16) /* of the dataset's fingerprint, and of the recipe's key */

/* Whether it is a working set of this user, or the lock of one that was not finished. */
static bool is_ours(int directory, const char *name, struct stat *about)
{
    static const char hex[] = "0123456789abcdef";
    const size_t first = strlen(PREFIX), second = first + DIGITS + 1, end = second + DIGITS;
    char rest[64], lock[64];
    (void)snprintf(rest, sizeof rest, "-%ld.plim", (long)geteuid());
    (void)snprintf(lock, sizeof lock, "%s.lock", rest);
    return strncmp(name, PREFIX, first) == 0 && strspn(name + first, hex) == DIGITS &&
           name[second - 1] == '-' && strspn(name + second, hex) == DIGITS &&
           (strcmp(name + end, rest) == 0 || strcmp(name + end, lock) == 0) &&
           fstatat(directory, name, about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(about->st_mode) &&
           about->st_uid == geteuid();
}

/* Removes a file, unless it is the lock of a job that is packing: true if it was removed, else
 * *error_out may be set. A lock is removed while it is held, so that a job that has opened it
 * meanwhile notices. */
static bool remove_file(int directory, const char *name, int *error_out)
{
    int lock = -1;
    bool held = false;
    if (strcmp(strrchr(name, '.'), ".lock") == 0) {
        lock = openat(directory, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        held = lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    }
    const bool removed = !held && unlinkat(directory, name, 0) == 0;
    if (!removed && !held && errno != ENOENT)
        *error_out = errno;
    if (lock >= 0)
        (void)close(lock);
    return removed;
}

static void print_file(const char *name, const struct stat *about)
{
    char bytes[24], date[32] = "";
    struct tm local;
    if (localtime_r(&about->st_mtime, &local) != NULL)
        (void)strftime(date, sizeof date, "%Y-%m-%d %H:%M", &local);
    (void)printf("%10s  %s  dataset %.16s  %s\n", plim_size_text(about->st_size, bytes), date,
                 name + strlen(PREFIX), name);
}

/* Lists the files, or removes them; returns the error of one that cannot be removed, or 0. */
static int each_file(const cache_t *cache, DIR *entries, json_t *files, int64_t *bytes_out)
{
    const int directory = dirfd(entries);
    struct dirent *entry;
    struct stat about;
    int error = 0;
    while ((entry = readdir(entries)) != NULL) {
        const char *name = entry->d_name;
        if (!is_ours(directory, name, &about))
            continue;
        if (cache->remove && !remove_file(directory, name, &error))
            continue;
        *bytes_out += about.st_size;
        if (cache->common.json)
            (void)json_array_append_new(files, json_pack("{s:o, s:s%, s:I, s:I}", "name",
                                                         cli_json_text(name), "fingerprint",
                                                         name + strlen(PREFIX), DIGITS, "bytes",
                                                         (json_int_t)about.st_size, "modified_s",
                                                         (json_int_t)about.st_mtime));
        else
            print_file(name, &about);
    }
    return error;
}

static int run(int argc, char **argv)
{
    cache_t cache = {.common = {.verb = &cli_verb_cache}};
    const cli_common_t *common = &cache.common;
    int exit_code;
    int64_t bytes = 0;
    char text[24], message[512];
    if (!cli_read_options(argc, argv, &cache, &exit_code))
        return exit_code;
    if (optind != argc - 1)
        return cli_wrong_use(common, "give one directory, the --scratch of your runs");
    DIR *entries = opendir(argv[optind]);
    if (entries == NULL) {
        (void)snprintf(message, sizeof message, "cannot open the directory %.200s: %s",
                       argv[optind], strerror(errno));
        return cli_failed_with(common, PLIM_ERR_IO, message, NULL);
    }
    json_t *files = json_array();
    const int error = each_file(&cache, entries, files, &bytes);
    const bool removed = error == 0;
    (void)closedir(entries);
    if (common->json)
        cli_print_json(json_pack("{s:o, s:I, s:b}", "files", files, "bytes", (json_int_t)bytes,
                                 "removed", (int)(cache.remove && removed)));
    else {
        (void)printf("%s%s\n", plim_size_text(bytes, text), cache.remove ? " removed" : "");
        json_decref(files);
    }
    if (removed)
        return CLI_DONE;
    (void)snprintf(message, sizeof message, "cannot remove a file in %.200s: %s", argv[optind],
                   strerror(error));
    return cli_failed_with(common, PLIM_ERR_IO, message, NULL);
}

static const cli_option_t own_options[] = {{"remove", NULL, "remove them", CLI_AT(cache_t, remove)},
                                           CLI_OPTIONS_END};

static const cli_group_t groups[] = {
    {.title = "Options", .options = own_options}, CLI_COMMON_GROUP, {.options = NULL}};

const cli_verb_t cli_verb_cache = {
    .name = "cache",
    .summary = "list or remove the working sets in a scratch directory",
    .help = help,
    .groups = groups,
    .operand = ":directory",
    .run = run,
    .single = true,
};
