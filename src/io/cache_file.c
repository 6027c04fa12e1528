#include "io/cache_file.h"

#include "io/own.h"
#include "io/seal.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEAL_DIGITS PLIM__SEAL_DIGITS
#define DIRECTORY "plimsoll"

/* The user's directory of caches. False when there is none. */
static bool find_caches(char path_out[PATH_MAX])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = -1;
    if (cache != NULL && cache[0] == '/')
        length = snprintf(path_out, PATH_MAX, "%s", cache);
    else if (home != NULL && home[0] == '/')
        length = snprintf(path_out, PATH_MAX, "%s/.cache", home);
    return length > 0 && length < PATH_MAX;
}

/* Opens the directory of our files there. It and the directory of caches must be this user's; -1 if
 * they cannot be used. */
static int open_directory(bool make)
{
    char path[PATH_MAX];
    struct stat about;
    int caches;
    if (!find_caches(path))
        return -1;
    if (make)
        (void)mkdir(path, 0700);
    if (plim__own_directory(path, &caches) != PLIM_OK)
        return -1;
    if (make)
        (void)mkdirat(caches, DIRECTORY, 0700);
    int fd = openat(caches, DIRECTORY, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &about) != 0 || plim__own_foreign(fd, &about) != NULL)) {
        (void)close(fd);
        fd = -1;
    }
    (void)close(caches);
    return fd;
}

/* The bytes of a file that only this user can have written; -1 if it is not one. */
static ssize_t read_own(int directory, const char *name, char *to, size_t size)
{
    struct stat about;
    ssize_t got = -1;
    const int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -1;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) &&
        plim__own_distrust(directory, &about) == NULL)
        got = read(fd, to, size);
    (void)close(fd);
    return got;
}

/* The first line of the file is the checksum of the rest. */
bool plim__cache_read(const char *name, char text_out[PLIM__CACHE_TEXT])
{
    char whole[PLIM__CACHE_TEXT + SEAL_DIGITS + 2], seal[SEAL_DIGITS + 1];
    const int directory = open_directory(false);
    if (directory < 0)
        return false;
    const ssize_t size = read_own(directory, name, whole, sizeof whole);
    (void)close(directory);
    if (size <= SEAL_DIGITS || (size_t)size == sizeof whole || whole[SEAL_DIGITS] != '\n')
        return false;
    const char *text = whole + SEAL_DIGITS + 1;
    const size_t length = (size_t)size - SEAL_DIGITS - 1;
    plim__seal_digits(text, length, seal);
    if (memcmp(seal, whole, SEAL_DIGITS) != 0 || length >= PLIM__CACHE_TEXT ||
        memchr(text, '\0', length) != NULL)
        return false;
    memcpy(text_out, text, length);
    text_out[length] = '\0';
    return true;
}

static void write_file(int directory, const char *name, const char *from, size_t size)
{
    char draft[NAME_MAX + 32];
    (void)snprintf(draft, sizeof draft, "%.*s.%ld", NAME_MAX, name, (long)getpid());
    (void)unlinkat(directory, draft, 0);
    const int fd = openat(directory, draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    const bool written = write(fd, from, size) == (ssize_t)size;
    if (close(fd) != 0 || !written || renameat(directory, draft, directory, name) != 0)
        (void)unlinkat(directory, draft, 0);
}

void plim__cache_write(const char *name, const char *text)
{
    char whole[PLIM__CACHE_TEXT + SEAL_DIGITS + 2], seal[SEAL_DIGITS + 1];
    const int directory = strlen(text) < PLIM__CACHE_TEXT ? open_directory(true) : -1;
    if (directory < 0)
        return;
    plim__seal_digits(text, strlen(text), seal);
    const int size = snprintf(whole, sizeof whole, "%s\n%s", seal, text);
    write_file(directory, name, whole, (size_t)size);
    (void)close(directory);
}
