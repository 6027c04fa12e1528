/* Files of lines that are appended to, cut back and mended. */
#ifndef PLIM_TRAIN_RUN_LINES_H
#define PLIM_TRAIN_RUN_LINES_H

#include <plimsoll/dataset.h>

#define PLIM__RUN_PATH (PLIM_PATH_MAX + 32) /* of a file in the run's directory */

typedef struct plim__run_lines {
    int fd; /* -1 when closed */
    int64_t size;
    char path[PLIM__RUN_PATH]; /* set by the owner */
} plim__run_lines_t;

/* Opens or makes the file at lines->path. */
plim_status_t plim__run_lines_open(plim__run_lines_t *lines);
void plim__run_lines_close(plim__run_lines_t *lines);

/* Appends a line and its newline; after an error nothing of it is left. */
plim_status_t plim__run_lines_append(plim__run_lines_t *lines, const char *line);

/* Makes the file `size` bytes long, durable. PLIM_ERR_DATA when it is shorter, or no line ends
 * there. */
plim_status_t plim__run_lines_cut(plim__run_lines_t *lines, int64_t size);

/* Cuts off what follows the last newline: a line half written by a process that was killed. */
plim_status_t plim__run_lines_mend(plim__run_lines_t *lines);

/* Makes what was appended durable. */
plim_status_t plim__run_lines_sync(const plim__run_lines_t *lines);

#endif
