#include "io/cache_file.h"

#include "io/seal.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEAL_DIGITS PLIM__SEAL_DIGITS

/* The cache directory. False when the user has none. */
static bool find_directory(char path_out[PATH_MAX])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = -1;
    if (cache != NULL && cache[0] == '/')
        length = snprintf(path_out, PATH_MAX, "%s/plimsoll", cache);
    else if (home != NULL && home[0] == '/')
        length = snprintf(path_out, PATH_MAX, "%s/.cache/plimsoll", home);
    return length > 0 && length < PATH_MAX;
}

static bool find_path(const char *name, const char *end, char path_out[PATH_MAX])
{
    char directory[PATH_MAX];
    if (!find_directory(directory))
        return false;
    const int length = snprintf(path_out, PATH_MAX, "%s/%s%s", directory, name, end);
    return length > 0 && length < PATH_MAX;
}

/* The first line of the file is the checksum of the rest. */
bool plim__cache_read(const char *name, char text_out[PLIM__CACHE_TEXT])
{
    char path[PATH_MAX], whole[PLIM__CACHE_TEXT + SEAL_DIGITS + 2], seal[SEAL_DIGITS + 1];
    struct stat about;
    if (!find_path(name, "", path))
        return false;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    ssize_t size = -1;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == geteuid())
        size = read(fd, whole, sizeof whole);
    (void)close(fd);
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

/* Creates the directory and its parent if they are missing. */
static bool make_directory(void)
{
    char path[PATH_MAX];
    if (!find_directory(path))
        return false;
    char *slash = strrchr(path, '/');
    *slash = '\0';
    (void)mkdir(path, 0700);
    *slash = '/';
    (void)mkdir(path, 0700);
    return access(path, W_OK | X_OK) == 0;
}

void plim__cache_write(const char *name, const char *text)
{
    char path[PATH_MAX], draft[PATH_MAX], whole[PLIM__CACHE_TEXT + SEAL_DIGITS + 2];
    char seal[SEAL_DIGITS + 1], end[32];
    if (strlen(text) >= PLIM__CACHE_TEXT || !make_directory())
        return;
    plim__seal_digits(text, strlen(text), seal);
    (void)snprintf(end, sizeof end, ".%ld", (long)getpid());
    const int size = snprintf(whole, sizeof whole, "%s\n%s", seal, text);
    if (!find_path(name, "", path) || !find_path(name, end, draft))
        return;
    (void)unlink(draft);
    const int fd = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    const bool written = write(fd, whole, (size_t)size) == size;
    if (close(fd) != 0 || !written || rename(draft, path) != 0)
        (void)unlink(draft);
}
