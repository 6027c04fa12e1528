/* The small text files of /proc and /sys, read without allocating, below a root of choice. */
#ifndef PLIM_MEM_KERNEL_TEXT_H
#define PLIM_MEM_KERNEL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLIM__PATH_MAX ((size_t)4096)

/*
 * Reads the start of the file root + path, at most size - 1 bytes, and ends it with NUL. Returns
 * the bytes read, or -1 when there is no such file or it cannot be read. root "" is this machine.
 */
int64_t plim__kernel_read(const char *root, const char *path, char *text_out, size_t size);

/* Opens root + path for reading; -1 when that is not possible. */
int plim__kernel_open(const char *root, const char *path);

/* Reads a decimal number that is not negative at the start of `text`; false when there is none, or
 * one past 64 bits, or more than white space follows it on its line. */
bool plim__kernel_number(const char *text, int64_t *value_out);

/* Finds the line "key number …" or "key: number …" in `text`. */
bool plim__kernel_field(const char *text, const char *key, int64_t *value_out);

/* The number of such a line; in _bytes it is in KiB and the result in bytes. 0 if it is missing. */
int64_t plim__kernel_count(const char *text, const char *key);
int64_t plim__kernel_bytes(const char *text, const char *key);

/* The lines of a file of any length. A line longer than the buffer is skipped: callers look for
 * short ones, and half a line could be mistaken for another. */
typedef struct plim__kernel_lines {
    int file;
    size_t begin; /* the text not handed out yet is buffer[begin, end) */
    size_t end;
    char buffer[8192];
} plim__kernel_lines_t;

bool plim__kernel_lines_open(plim__kernel_lines_t *lines, const char *root, const char *path);

/* The next line without its newline; NULL at the end. */
char *plim__kernel_lines_next(plim__kernel_lines_t *lines);
void plim__kernel_lines_close(plim__kernel_lines_t *lines);

/* Bytes of this process by a field of /proc/self/status, such as RssAnon; 0 if it is missing. */
int64_t plim__kernel_own_bytes(const char *root, const char *key);

#endif
