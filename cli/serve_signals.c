/* Waits for the signals of `serve`, and for the requests that a server still answers when it is to end. */
#include "serve_signals.h"

#include <math.h>
#include <time.h>

#include "base/clock.h"

/* Seconds between two looks at the system's memory, and, while requests end, at how many are left. */
static const double memory_s = 1, requests_s = 0.02;
static const double announce_s = 0.1; /* seconds after which it is reported that requests have not ended yet */

void serve_signals_block(serve_signals *signals) {
    struct sigaction hangup;
    sigemptyset(&signals->ends);
    sigaddset(&signals->ends, SIGINT);
    sigaddset(&signals->ends, SIGTERM);
    signals->all = signals->ends;
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&signals->all, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals->all, NULL);
}

/* A server that runs, and the memory that it gives back. */
typedef struct scene {
    const serve_signals *signals;
    server *running;
    cl_engine *engine;
    pressure *memory; /* NULL: it keeps its memory */
    serve_reload *reload;
    server_log *log;
    double memory_look; /* clock_seconds() of the next look at the system's memory */
} scene;

static void follow_memory(scene *s) {
    if (!s->memory || clock_seconds() < s->memory_look) return;
    server_tick(s->running);
    pressure_follow(s->memory, s->engine);
    s->memory_look = clock_seconds() + memory_s;
}

/* Wait `seconds` for a signal that ends the server, INFINITY: until one comes. Returns its number; 0: none came. */
static int wait_for_end(scene *s, double seconds) {
    siginfo_t info;
    const double whole = floor(seconds);
    const struct timespec time = {.tv_sec = isinf(seconds) ? 0 : (time_t)whole,
                                  .tv_nsec = isinf(seconds) ? 0 : (long)(1e9 * (seconds - whole))};
    const int signal = isinf(seconds) ? sigwaitinfo(&s->signals->all, &info) : sigtimedwait(&s->signals->all, &info, &time);
    follow_memory(s);
    /* The kernel sends SIGHUP when the terminal was closed. */
    if (signal != SIGHUP || info.si_code == SI_KERNEL) return signal > 0 ? signal : 0;
    serve_reload_again(s->reload, s->running, s->log);
    return 0;
}

static void log_waiting(const scene *s, int32_t n_requests, double seconds) {
    log_line line;
    if (!log_begin(&line, s->log, LOG_LEVEL_INFO, "waiting for requests to end; a second signal stops at once")) return;
    log_integer(&line, "requests", n_requests);
    log_real(&line, "seconds_at_most", seconds);
    log_end(&line);
}

static void log_cut(const scene *s, int32_t n_requests) {
    log_line line;
    if (!log_begin(&line, s->log, LOG_LEVEL_WARN, "stopping with unfinished requests")) return;
    log_integer(&line, "requests", n_requests);
    log_end(&line);
}

/* Let the requests end that were accepted. What ends at once is not worth a line. Returns the exit status. */
static int drain(scene *s, double seconds) {
    const double begin = clock_seconds(), until = begin + seconds;
    bool announced = false;
    int signal = 0;
    server_drain(s->running);
    int32_t n;
    while ((n = server_n_requests(s->running)) > 0 && signal == 0 && clock_seconds() < until) {
        signal = wait_for_end(s, requests_s);
        if (announced || signal || clock_seconds() < begin + announce_s) continue;
        announced = true;
        log_waiting(s, n, seconds);
    }
    if (n == 0) return 0;
    log_cut(s, n);
    return signal ? 128 + signal : SERVE_CUT;
}

int serve_until_end(const serve_signals *signals, server *running, cl_engine *engine, pressure *memory, serve_reload *reload,
                    server_log *log, double seconds) {
    scene s = {.signals = signals, .running = running, .engine = engine, .memory = memory, .reload = reload, .log = log};
    while (wait_for_end(&s, memory ? memory_s : INFINITY) == 0) {
    }
    const int status = drain(&s, seconds);
    pthread_sigmask(SIG_UNBLOCK, &signals->ends, NULL);
    return status;
}
