/* Files of lines that are appended to, cut back and mended. */
#ifndef PLIM_TRAIN_RUN_LINES_H
#define PLIM_TRAIN_RUN_LINES_H

#include <plimsoll/dataset.h>
#include <stdbool.h>

#define PLIM__RUN_PATH (PLIM_PATH_MAX + 32) /* of a file in the run's directory */

#define PLIM__LINE_MAX 65536 /* bytes of a line at most; ours have less than a tenth */

typedef struct plim__run_lines {
    int fd;    /* -1 when closed */
    bool made; /* by plim__run_lines_open, so that it may be removed again */
    int64_t size;
    uint32_t crc;              /* CRC-32 of the whole file, once plim__run_lines_cut has read it */
    char path[PLIM__RUN_PATH]; /* set by the owner */
} plim__run_lines_t;

/*
 * Opens the file at lines->path, or makes it where there is none; with `fresh` it must be new:
 * PLIM_ERR_USAGE. A link, whatever else is no file, and a file that has a second name are
 * PLIM_ERR_DATA: what is appended or cut off would be another's. They are left as they are.
 */
plim_status_t plim__run_lines_open(plim__run_lines_t *lines, bool fresh);
void plim__run_lines_close(plim__run_lines_t *lines);

/* Appends a line and its newline; after an error nothing of it is left. */
plim_status_t plim__run_lines_append(plim__run_lines_t *lines, const char *line);

/* Makes the file `size` bytes long, durable. PLIM_ERR_DATA when it is shorter, no line ends there,
 * or `crc` is given and is not the CRC-32 of the bytes that stay. */
plim_status_t plim__run_lines_cut(plim__run_lines_t *lines, int64_t size, const uint32_t *crc);

/*
 * Cuts off what follows the last newline: a line half written by a process that was killed. Reads
 * the file's last PLIM__LINE_MAX bytes at most; PLIM_ERR_DATA when no line ends there.
 */
plim_status_t plim__run_lines_mend(plim__run_lines_t *lines);

/* Makes what was appended durable. */
plim_status_t plim__run_lines_sync(const plim__run_lines_t *lines);

#endif
