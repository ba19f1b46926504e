/* Looks at the watched calls a few times in the time limit: see watchdog.h. */
#include "watchdog.h"

#include <stdlib.h>

#include "chunkattn/base/clock.h"
#include "chunkattn/base/signals.h"

struct cl_watchdog {
    double limit; /* seconds */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t changed;
    cl_watched *first;
    bool stops;
};

/* The CPU time of the thread that makes a call; negative: it has ended. */
static double cpu_seconds(cl_watched *w) {
    struct timespec t;
    const clockid_t clock = (clockid_t)atomic_load_explicit(&w->clock, memory_order_relaxed);
    return clock_gettime(clock, &t) == 0 ? (double)t.tv_sec + 1e-9 * (double)t.tv_nsec : -1;
}

static void look_at(const cl_watchdog *d, cl_watched *w) {
    const unsigned n = atomic_load_explicit(&w->n, memory_order_acquire);
    if (n % 2 == 0) return;
    const double now = cpu_seconds(w);
    if (w->seen != n) {
        w->seen = n;
        w->seen_s = now;
    } else if (now - w->seen_s > d->limit && atomic_load_explicit(&w->n, memory_order_acquire) == n) {
        w->stop(w);
    }
}

static void *watch(void *arg) {
    cl_watchdog *d = arg;
    thread_set_name("cl-watchdog");
    pthread_mutex_lock(&d->mutex);
    while (!d->stops) {
        if (!d->first) {
            pthread_cond_wait(&d->changed, &d->mutex);
            continue;
        }
        for (cl_watched *w = d->first; w; w = w->next) look_at(d, w);
        const struct timespec until = clock_deadline(d->limit / 5);
        pthread_cond_timedwait(&d->changed, &d->mutex, &until);
    }
    pthread_mutex_unlock(&d->mutex);
    return NULL;
}

cl_watchdog *cl_watchdog_create(double limit) {
    sigset_t before;
    cl_watchdog *d = calloc(1, sizeof *d);
    if (!d) return NULL;
    d->limit = limit;
    pthread_mutex_init(&d->mutex, NULL);
    clock_cond_init(&d->changed);
    signals_block_all(&before);
    const int failed = pthread_create(&d->thread, NULL, watch, d);
    signals_restore(&before);
    if (!failed) return d;
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->mutex);
    free(d);
    return NULL;
}

void cl_watchdog_free(cl_watchdog **dp) {
    cl_watchdog *d = dp ? *dp : NULL;
    if (!d) return;
    pthread_mutex_lock(&d->mutex);
    d->stops = true;
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->mutex);
    pthread_join(d->thread, NULL);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->mutex);
    free(d);
    *dp = NULL;
}

void cl_watchdog_add(cl_watchdog *d, cl_watched *w) {
    atomic_init(&w->n, 0);
    atomic_init(&w->clock, 0);
    w->seen = 0;
    w->before = NULL;
    pthread_mutex_lock(&d->mutex);
    w->next = d->first;
    if (w->next) w->next->before = w;
    d->first = w;
    if (!w->next) pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->mutex);
}

void cl_watchdog_remove(cl_watchdog *d, cl_watched *w) {
    pthread_mutex_lock(&d->mutex);
    if (w->before)
        w->before->next = w->next;
    else
        d->first = w->next;
    if (w->next) w->next->before = w->before;
    pthread_mutex_unlock(&d->mutex);
}
