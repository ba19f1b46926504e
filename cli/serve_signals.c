/* Waits for the signals of `serve`, and for the requests that a server still answers when it is to end. */
#include "serve_signals.h"

#include <math.h>
#include <time.h>

#include "chunkattn/base/clock.h"

/* Seconds between two looks at the system's memory, and, while requests end, at how many are left. */
static const double memory_s = 1, requests_s = 0.02;
/*
 * Seconds that every request gets to end, without a line about it. A client may have its whole answer, and signal at once,
 * before the thread that has sent it counts the request as ended.
 */
static const double grace_s = 0.1;

void serve_signals_block(serve_signals *signals) {
    struct sigaction hangup;
    sigemptyset(&signals->ends);
    sigaddset(&signals->ends, SIGINT);
    sigaddset(&signals->ends, SIGTERM);
    signals->all = signals->ends;
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&signals->all, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals->all, NULL);
}

/* The scene, and how the waiting goes. */
typedef struct waiting {
    serve_scene of;
    double memory_look; /* clock_seconds() of the next look at the system's memory */
} waiting;

static void follow_memory(waiting *s) {
    if (!s->of.memory || clock_seconds() < s->memory_look) return;
    server_tick(s->of.running);
    pressure_follow(s->of.memory, s->of.engine);
    s->memory_look = clock_seconds() + memory_s;
}

/* Wait at most `seconds` for a signal that ends the server. Returns its number; 0: none came. */
static int wait_for_end(waiting *s, double seconds) {
    siginfo_t info;
    seconds = fmin(seconds, server_log_load(s->of.running));
    const double whole = floor(seconds);
    const struct timespec time = {.tv_sec = isinf(seconds) ? 0 : (time_t)whole,
                                  .tv_nsec = isinf(seconds) ? 0 : (long)(1e9 * (seconds - whole))};
    const int signal =
        isinf(seconds) ? sigwaitinfo(&s->of.signals->all, &info) : sigtimedwait(&s->of.signals->all, &info, &time);
    follow_memory(s);
    /* The kernel sends SIGHUP when the terminal was closed; it is lost if a SIGHUP of a process is still pending. */
    if (signal != SIGHUP || info.si_code == SI_KERNEL) return signal > 0 ? signal : 0;
    service_manager_reloading(s->of.manager);
    serve_reload_again(s->of.reload, s->of.running, s->of.log);
    service_manager_ready(s->of.manager);
    return 0;
}

static void log_waiting(const waiting *s, int32_t n_requests, double seconds) {
    log_line line;
    if (!log_begin(&line, s->of.log, LOG_LEVEL_INFO, "waiting for requests to end; a second signal stops at once")) return;
    log_integer(&line, "requests", n_requests);
    log_real(&line, "seconds_at_most", seconds);
    log_end(&line);
}

static void log_cut(const waiting *s, int32_t n_requests) {
    log_line line;
    if (!log_begin(&line, s->of.log, LOG_LEVEL_WARN, "stopping with unfinished requests")) return;
    log_integer(&line, "requests", n_requests);
    log_end(&line);
}

/* Let the requests end that were accepted. Returns the exit status. */
static int drain(waiting *s, double seconds) {
    const double begin = clock_seconds(), until = begin + fmax(seconds, grace_s);
    static const service_manager nobody = {.socket = -1};
    bool announced = seconds <= grace_s;
    int signal = 0;
    server_drain(s->of.running);
    service_manager_stopping(s->of.manager, server_n_requests(s->of.running), seconds);
    s->of.manager = &nobody; /* no SIGHUP makes the server ready again */
    int32_t n;
    while ((n = server_n_requests(s->of.running)) > 0 && signal == 0 && clock_seconds() < until) {
        signal = wait_for_end(s, requests_s);
        if (announced || signal || clock_seconds() < begin + grace_s) continue;
        announced = true;
        log_waiting(s, n, seconds);
    }
    if (n == 0) return 0;
    log_cut(s, n);
    return signal ? 128 + signal : SERVE_CUT;
}

int serve_until_end(const serve_scene *scene, double seconds) {
    waiting s = {.of = *scene};
    while (wait_for_end(&s, scene->memory ? memory_s : INFINITY) == 0) {
    }
    const int status = drain(&s, seconds);
    pthread_sigmask(SIG_UNBLOCK, &scene->signals->ends, NULL);
    return status;
}
