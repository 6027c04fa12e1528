/*
 * The place of a file or directory that is written under a temporary name, .NAME.partial, and then
 * renamed: its directory, open, and its names. For commit.c, draft.c and staging.c.
 */
#ifndef PLIM_IO_PLACE_H
#define PLIM_IO_PLACE_H

#include <limits.h>
#include <plimsoll/status.h>
#include <stdbool.h>

#define PLIM__PARTIAL_PREFIX "."
#define PLIM__PARTIAL_SUFFIX ".partial"

typedef struct plim__place {
    int fd;                /* the directory, open */
    bool opened;           /* by plim__place_open */
    char parent[PATH_MAX]; /* the directory's path, never empty */
    char name[NAME_MAX + 1];
    char path[PATH_MAX];    /* parent/name, without trailing slashes */
    char partial[PATH_MAX]; /* parent/.name.partial */
} plim__place_t;

/* Splits `path` and opens its directory, unless `directory` is it (else AT_FDCWD). PLIM_ERR_USAGE
 * for an impossible name, PLIM_ERR_IO. */
plim_status_t plim__place_open(int directory, const char *path, plim__place_t *place_out);
void plim__place_close(const plim__place_t *place);

/* PLIM_ERR_USAGE if the name exists. */
plim_status_t plim__place_refuse_existing(const plim__place_t *place);

/* Renames `partial` in the directory to the name; with `fresh`, PLIM_ERR_USAGE when that exists.
 * PLIM_ERR_DATA if another user, who can write to the directory, has replaced it. */
plim_status_t plim__place_rename(const plim__place_t *place, const char *partial, bool fresh);

/* Removes the temporary file `name` of a killed process. PLIM_ERR_USAGE for anything but a regular
 * file of this user. */
plim_status_t plim__place_clear(const plim__place_t *place, const char *name);

/* plim__place_rename, made durable; removes the file after an error. */
plim_status_t plim__place_name(const plim__place_t *place, const char *partial, bool fresh);

/* The error for a file or directory that others have replaced. */
plim_status_t plim__place_exchanged(const plim__place_t *place);

/* fsync; `path` is for the message. */
plim_status_t plim__place_sync(int fd, const char *path);

#endif
