/*
 * One window or two. Two keep the disk and the workers busy at once: batches are built from one
 * while the other is filled. But where reading takes much longer than building, little is lost when
 * neither waits for the other, and one window with the memory of both needs half as many passes
 * over the files, or fewer. So the times of windows are measured, of the stream with the most steps
 * alone; then one window is tried, and kept if its steps are faster.
 */
#ifndef PLIM_LOAD_WINDOW_PACE_H
#define PLIM_LOAD_WINDOW_PACE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct plim__window_pace {
    const void *of;       /* the stream; NULL: none yet */
    int64_t stream_steps; /* of an epoch */
    bool one;             /* there is one window */
    bool decided;         /* for good */

    /* Since the last decision: */
    int64_t windows;
    int64_t steps;
    int64_t read_ns;
    int64_t built_ns;

    double of_two; /* ns a step with two windows; 0: not known of this stream */
} plim__window_pace_t;

/* Measures this stream from now on if it has more steps than the one before. */
void plim__window_pace_follow(plim__window_pace_t *pace, const void *stream, int64_t steps);
void plim__window_pace_forget(plim__window_pace_t *pace, const void *stream);

/* Reports the number of windows after a change. If it is as before, the change failed for lack of
 * memory and is not tried again. */
void plim__window_pace_changed(plim__window_pace_t *pace, bool one);

/* A window of the steps from `first` on was filled in read_ns, and all its batches were built in
 * built_ns. Returns whether there shall be one window instead of two, or two instead of one. */
bool plim__window_pace_built(plim__window_pace_t *pace, const void *stream, int64_t first,
                             int64_t steps, int64_t read_ns, int64_t built_ns);

#endif
