/*
 * Small files in the user's cache: what was found out once, and can be found out again. Nothing
 * depends on them: what cannot be read or written is not there, and nobody is told.
 */
#ifndef PLIM_IO_CACHE_FILE_H
#define PLIM_IO_CACHE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#define PLIM__CACHE_TEXT 512 /* bytes of a file at most */

/*
 * The text kept under that name, a file name of its own, in $XDG_CACHE_HOME/plimsoll or else
 * ~/.cache/plimsoll; ended by a NUL. False when there is none, when it is too long, is no plain
 * file of this user, or is not what was written there.
 */
bool plim__cache_read(const char *name, char text_out[PLIM__CACHE_TEXT]);

/* Keeps it: the whole of it or nothing. */
void plim__cache_write(const char *name, const char *text);

#endif
