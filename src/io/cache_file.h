/*
 * Small files in the user's cache directory, with results that can be computed again. Nothing
 * depends on them: errors of reading and writing are ignored.
 */
#ifndef PLIM_IO_CACHE_FILE_H
#define PLIM_IO_CACHE_FILE_H

#include <stdbool.h>

#define PLIM__CACHE_TEXT 8192 /* maximum bytes of a file, with the NUL */

/*
 * Reads the file `name` in $XDG_CACHE_HOME/plimsoll, else ~/.cache/plimsoll, as a C string. False
 * when there is none, when it is too long, is not a regular file of this user, or is damaged.
 */
bool plim__cache_read(const char *name, char text_out[PLIM__CACHE_TEXT]);

/* Writes the file, all of it or nothing. */
void plim__cache_write(const char *name, const char *text);

#endif
