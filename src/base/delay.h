/*
 * plim__delay suspends the calling thread at random, in the test program plimsoll_delays only:
 * calls stand where threads take work or hand it on, so that tests see orders of events that a
 * quiet machine rarely produces. Elsewhere it is empty.
 */
#ifndef PLIM_BASE_DELAY_H
#define PLIM_BASE_DELAY_H

#ifdef PLIM_DELAYS
#include "base/clock.h"
#include "base/rng.h"

#include <sched.h>
#include <time.h>

#define PLIM__DELAY_NS_MOST 300000

static inline void plim__delay(void)
{
    static _Thread_local uint64_t key, counter;
    if (key == 0)
        key = plim__rng_key((uint64_t)plim__clock_ns(), (uint64_t)(uintptr_t)&key, 0, 0);
    const uint64_t draw = plim__rng_u64(key, counter++);
    if (draw % 16 == 0) {
        const struct timespec moment = {.tv_nsec = (long)(draw / 16 % PLIM__DELAY_NS_MOST)};
        (void)nanosleep(&moment, NULL);
    } else if (draw % 4 == 1) {
        (void)sched_yield();
    }
}
#else
static inline void plim__delay(void)
{
}
#endif

#endif
