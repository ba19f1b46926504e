/*
 * A monotonic clock that stands still but for what the test moves it, so that no limit of the linked code is reached before the
 * test wants it. Included by one file of a program, which is linked with --wrap=clock_gettime. It is decades ahead of the
 * system's clock, so that a timed wait that follows it ends by a signal only.
 */
#ifndef TESTS_SUPPORT_STILL_CLOCK_H
#define TESTS_SUPPORT_STILL_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

static _Atomic int64_t still_ns = INT64_C(1000000000) * 1000000000;

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t) {
    if (clock != CLOCK_MONOTONIC) return __real_clock_gettime(clock, t);
    const int64_t ns = atomic_load(&still_ns);
    *t = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    return 0;
}

static inline void move_clock(double seconds) { atomic_fetch_add(&still_ns, (int64_t)(1e9 * seconds)); }

#endif
