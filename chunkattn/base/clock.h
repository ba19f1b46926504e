/* Time, for measurements and for deadlines. */
#ifndef CHUNKATTN_BASE_CLOCK_H
#define CHUNKATTN_BASE_CLOCK_H

#include <pthread.h>
#include <time.h>

/* Seconds of a monotonic clock, from an arbitrary start. */
static inline double clock_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Initialise a condition variable whose timed waits end at a clock_deadline, even if the time of day is changed meanwhile. */
static inline void clock_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t attributes; /* none of these calls can fail on Linux */
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* The time `seconds` (>= 0) from now, for pthread_cond_timedwait with a variable of clock_cond_init. */
static inline struct timespec clock_deadline(double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += (long)(1e9 * (seconds - (double)(time_t)seconds));
    t.tv_sec += (time_t)seconds + t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

#endif
