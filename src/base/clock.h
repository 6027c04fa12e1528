/* Monotonic time, and other clocks. */
#ifndef PLIM_BASE_CLOCK_H
#define PLIM_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t plim__clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline double plim__clock_seconds_since(int64_t start_ns)
{
    return (double)(plim__clock_ns() - start_ns) * 1e-9;
}

/* Seconds by any clock, such as CLOCK_REALTIME or processor time; 0 if it does not exist. */
static inline double plim__clock_seconds(clockid_t clock)
{
    struct timespec now = {0};
    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
