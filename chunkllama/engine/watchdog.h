/*
 * A thread that ends calls which take too long. The watched object says when a call of it begins and ends, without a lock or a
 * system call. Time is that of the CPU, so nothing is ended because the machine is busy.
 */
#ifndef CHUNKLLAMA_ENGINE_WATCHDOG_H
#define CHUNKLLAMA_ENGINE_WATCHDOG_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

typedef struct cl_watchdog cl_watchdog;

/* Something whose calls are watched, one at a time. */
typedef struct cl_watched cl_watched;
struct cl_watched {
    void (*stop)(cl_watched *w); /* make the call that runs return soon; from the watchdog's thread */

    /* Used by the watchdog. */
    atomic_uint n;    /* calls begun and ended; odd while one runs */
    atomic_int clock; /* of the thread that makes the call */
    unsigned seen;    /* n when the watchdog looked last, if odd */
    double seen_s;    /* the clock then */
    cl_watched *before, *next;
};

/* Calls may take `limit` seconds, and up to a fifth more. NULL if memory or threads are lacking. */
cl_watchdog *cl_watchdog_create(double limit);
/* It must watch nothing any more. NULL and pointers to NULL are ignored. */
void cl_watchdog_free(cl_watchdog **d);

/* Begin and end watching *w, in which only `stop` is set. Any thread. */
void cl_watchdog_add(cl_watchdog *d, cl_watched *w);
void cl_watchdog_remove(cl_watchdog *d, cl_watched *w);

/* A call begins, or ends, on this thread. */
static inline void cl_watched_begin(cl_watched *w) {
    clockid_t clock;
    if (pthread_getcpuclockid(pthread_self(), &clock) != 0) return;
    atomic_store_explicit(&w->clock, (int)clock, memory_order_relaxed);
    atomic_fetch_add_explicit(&w->n, 1, memory_order_release);
}
static inline void cl_watched_end(cl_watched *w) {
    if (atomic_load_explicit(&w->n, memory_order_relaxed) % 2 == 1) atomic_fetch_add_explicit(&w->n, 1, memory_order_release);
}

#endif
