/* Files of lines: append, truncate, repair. */
#ifndef PLIM_TRAIN_RUN_LINES_H
#define PLIM_TRAIN_RUN_LINES_H

#include "io/file.h"

#include <plimsoll/dataset.h>

#define PLIM__RUN_PATH (PLIM_PATH_MAX + 32) /* maximum length of a path in the run's directory */

#define PLIM__LINE_MAX 65536 /* maximum bytes of a line; ours have less than a tenth */

typedef struct plim__run_lines {
    plim__file_t file;
    bool made;                 /* plim__run_lines_open made the file, so a discard may remove it */
    uint32_t crc;              /* CRC-32 of the file, valid after plim__run_lines_cut */
    char path[PLIM__RUN_PATH]; /* set by the owner */
} plim__run_lines_t;

/*
 * Opens the file at lines->path in the open directory, or creates it; with `fresh` it must be new:
 * PLIM_ERR_USAGE. Refuses links, special files and files with a second name, since writing would
 * change another file, and files of other users (PLIM_ERR_DATA). They stay unchanged.
 */
plim_status_t plim__run_lines_open(plim__run_lines_t *lines, int directory, bool fresh);

/* Appends a line and its newline; after an error the file is as before. */
plim_status_t plim__run_lines_append(plim__run_lines_t *lines, const char *line);

/* Truncates the file to `size` bytes, durably. PLIM_ERR_DATA if it is shorter, or `crc` is given
 * and does not match the remaining bytes. */
plim_status_t plim__run_lines_cut(plim__run_lines_t *lines, int64_t size, const uint32_t *crc);

/*
 * Truncates the partial line that a killed process left after the last newline. Reads at most the
 * last PLIM__LINE_MAX bytes; PLIM_ERR_DATA if no line ends there.
 */
plim_status_t plim__run_lines_drop_partial(plim__run_lines_t *lines);

#endif
