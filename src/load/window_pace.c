#include "load/window_pace.h"

#include <stddef.h>

/* The number of windows is decided at the end of an epoch, after at least the least number of
 * windows; in a long epoch after the most. */
#define WINDOWS_LEAST 3
#define WINDOWS_MOST 12

/* One window is tried if reading takes more than this many times as long as building. */
#define READ_LONGER 3

static void begin(plim__window_pace_t *pace)
{
    pace->windows = pace->steps = pace->read_ns = pace->built_ns = 0;
}

void plim__window_pace_follow(plim__window_pace_t *pace, const void *stream, int64_t steps)
{
    if (pace->of != NULL && steps <= pace->stream_steps)
        return;
    pace->of = stream;
    pace->stream_steps = steps;
    pace->of_two = 0;
    begin(pace);
}

void plim__window_pace_forget(plim__window_pace_t *pace, const void *stream)
{
    if (pace->of == stream)
        pace->of = NULL;
}

void plim__window_pace_changed(plim__window_pace_t *pace, bool one)
{
    pace->decided |= one == pace->one;
    pace->one = one;
    begin(pace);
}

bool plim__window_pace_built(plim__window_pace_t *pace, const void *stream, int64_t first,
                             int64_t steps, int64_t read_ns, int64_t built_ns)
{
    const bool whole = steps == pace->stream_steps; /* an epoch: nothing is read twice */
    if (pace->decided || stream != pace->of || (whole && !pace->one))
        return false;
    pace->windows++;
    pace->steps += steps;
    pace->read_ns += read_ns;
    pace->built_ns += built_ns;
    const bool last = first + steps == pace->stream_steps;
    if (pace->windows < WINDOWS_MOST && (!last || pace->windows < WINDOWS_LEAST))
        return false;
    const double read = (double)pace->read_ns, built = (double)pace->built_ns;
    const double all = (double)pace->steps;
    begin(pace);
    if (pace->one) {
        pace->decided = true;
        return pace->of_two > 0 && (read + built) / all > pace->of_two;
    }
    pace->of_two = read / all;
    return read > READ_LONGER * built;
}
