/*
 * The last line of the terminal, as apt shows its progress: the scrolling region ends above it, so
 * the command's output never meets it. A watcher that is killed leaves the region as it is:
 * reset(1) or a new window size ends it.
 */
#include "watch/watch_process.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define SAVE "\0337"
#define RESTORE "\0338"

static int rows; /* of the terminal while the line is open; 0: it is not */

static bool terminal_size(struct winsize *size_out)
{
    const char *kind = getenv("TERM");
    return isatty(STDERR_FILENO) == 1 && kind != NULL && kind[0] != '\0' &&
           strcmp(kind, "dumb") != 0 && ioctl(STDERR_FILENO, TIOCGWINSZ, size_out) == 0 &&
           size_out->ws_row >= 4 && size_out->ws_col >= 20;
}

/* Lets the terminal scroll in its first `count` rows. */
static void set_region(int count)
{
    /* A line feed first: the cursor may be in the last row, which the region loses. */
    (void)fprintf(stderr, "\n" SAVE "\033[1;%dr" RESTORE "\033[1A", count);
    (void)fflush(stderr);
}

void status_line_begin(void)
{
    struct winsize size;
    if (!terminal_size(&size))
        return;
    rows = size.ws_row;
    set_region(rows - 1);
}

bool status_line_is_open(void)
{
    return rows > 0;
}

void status_line_draw(const char *text)
{
    struct winsize size;
    if (rows == 0 || !terminal_size(&size))
        return;
    if (size.ws_row != rows) {
        rows = size.ws_row;
        set_region(rows - 1);
    }
    char line[256];
    (void)snprintf(line, sizeof line, "%.*s", size.ws_col - 1, text);
    (void)fprintf(stderr, SAVE "\033[%d;1H\033[2K", rows);
    cli_print_text(stderr, line);
    (void)fputs(RESTORE, stderr);
    (void)fflush(stderr);
}

void status_line_end(void)
{
    if (rows == 0)
        return;
    (void)fprintf(stderr, SAVE "\033[%d;1H\033[2K\033[r" RESTORE, rows);
    (void)fflush(stderr);
    rows = 0;
}
