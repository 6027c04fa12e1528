/* What plimsoll watch does with its own process and its children. */
#ifndef PLIM_CLI_WATCH_PROCESS_H
#define PLIM_CLI_WATCH_PROCESS_H

#include "command/cli.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

/*
 * Prepares this process: orphans of its descendants become its children, open files are raised to
 * the hard limit, and the signals that it forwards wait for watch_next_signal. Ends with the
 * process.
 */
void watch_prepare(void);

/* Forks. The child waits for watch_release, then becomes the command with PLIMSOLL_WATCH=marks. -1
 * with errno. */
pid_t watch_fork(char *const *words, const char *marks);

/*
 * Arranges that the kernel kills the command before this process, then lets the command begin.
 * Returns 0, or the errno of exec: the child then exits with 126 or 127.
 */
int watch_release(pid_t command);

/* The next signal before `deadline` (monotonic ns); 0: none. */
int watch_next_signal(int64_t deadline, siginfo_t *info_out);

/* Sends a signal that arrived to the command, unless the terminal has sent it to both. Returns
 * whether it was sent. */
bool watch_forward(pid_t command, const siginfo_t *info);

/* nvidia-smi, which prints the GPUs' memory every 5 s; 0 if there is none. */
pid_t watch_gpus_start(void);
void watch_gpus_end(void);

typedef struct watch_gpu {
    int64_t index;
    int64_t used, total; /* bytes */
} watch_gpu_t;

/* A GPU of the next line that it printed; false: none yet. */
bool watch_gpus_next(watch_gpu_t *gpu_out);

/*
 * A line at the bottom of the terminal, below the region in which the command's output scrolls.
 * Nothing happens if standard error is not a terminal.
 */
void status_line_begin(void);
bool status_line_is_open(void);
void status_line_draw(const char *text);
void status_line_end(void);

#endif
