#include "mem/kernel_text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int plim__kernel_open(const char *root, const char *path)
{
    char whole[PLIM__PATH_MAX];
    int length = snprintf(whole, sizeof whole, "%s%s", root, path);
    if (length < 0 || (size_t)length >= sizeof whole)
        return -1;
    return open(whole, O_RDONLY | O_CLOEXEC);
}

static ssize_t read_some(int file, char *to, size_t size)
{
    ssize_t got;
    do
        got = read(file, to, size);
    while (got < 0 && errno == EINTR);
    return got;
}

int64_t plim__kernel_read(const char *root, const char *path, char *text_out, size_t size)
{
    int file = plim__kernel_open(root, path);
    if (file < 0)
        return -1;
    size_t length = 0;
    ssize_t got;
    while ((got = read_some(file, text_out + length, size - 1 - length)) > 0)
        length += (size_t)got;
    (void)close(file);
    text_out[length] = '\0';
    return got < 0 ? -1 : (int64_t)length;
}

bool plim__kernel_number(const char *text, int64_t *value_out)
{
    char *end;
    while (*text == ' ' || *text == '\t')
        text++;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || strchr(" \t\n", *end) == NULL) /* which finds the terminating NUL too */
        return false;
    *value_out = value;
    return true;
}

bool plim__kernel_field(const char *text, const char *key, int64_t *value_out)
{
    size_t length = strlen(key);
    for (const char *line = text; line != NULL;) {
        if (strncmp(line, key, length) == 0 && strchr(": \t", line[length]) != NULL &&
            line[length] != '\0')
            return plim__kernel_number(line + length + (line[length] == ':'), value_out);
        line = strchr(line, '\n');
        if (line != NULL)
            line++;
    }
    return false;
}

int64_t plim__kernel_count(const char *text, const char *key)
{
    int64_t value;
    return plim__kernel_field(text, key, &value) ? value : 0;
}

int64_t plim__kernel_bytes(const char *text, const char *key)
{
    const int64_t kib = plim__kernel_count(text, key);
    return kib < INT64_MAX >> 10 ? kib << 10 : 0;
}

bool plim__kernel_lines_open(plim__kernel_lines_t *lines, const char *root, const char *path)
{
    lines->begin = 0;
    lines->end = 0;
    lines->file = plim__kernel_open(root, path);
    return lines->file >= 0;
}

/* Moves what is left to the front and reads more behind it; false at the end of the file. */
static bool fill(plim__kernel_lines_t *lines)
{
    lines->end -= lines->begin;
    memmove(lines->buffer, lines->buffer + lines->begin, lines->end);
    lines->begin = 0;
    ssize_t got =
        read_some(lines->file, lines->buffer + lines->end, sizeof lines->buffer - 1 - lines->end);
    if (got <= 0)
        return false;
    lines->end += (size_t)got;
    return true;
}

char *plim__kernel_lines_next(plim__kernel_lines_t *lines)
{
    bool overlong = false;
    for (;;) {
        char *line = lines->buffer + lines->begin;
        size_t left = lines->end - lines->begin;
        char *newline = memchr(line, '\n', left);
        if (newline != NULL) {
            lines->begin += (size_t)(newline - line) + 1;
            *newline = '\0';
            if (!overlong)
                return line;
            overlong = false;
        } else if (left == sizeof lines->buffer - 1) {
            overlong = true;
            lines->begin = lines->end;
        } else if (!fill(lines)) {
            left = lines->end - lines->begin;
            if (left == 0 || overlong)
                return NULL;
            lines->buffer[lines->end] = '\0';
            line = lines->buffer + lines->begin;
            lines->begin = lines->end;
            return line;
        }
    }
}

void plim__kernel_lines_close(plim__kernel_lines_t *lines)
{
    (void)close(lines->file);
}

int64_t plim__kernel_own_bytes(const char *root, const char *key)
{
    char text[8192];
    return plim__kernel_read(root, "/proc/self/status", text, sizeof text) > 0
               ? plim__kernel_bytes(text, key)
               : 0;
}
