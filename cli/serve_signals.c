/* Waits for the signals of `serve`, and for the requests that a server still answers when it is to end. */
#include <math.h>
#include <time.h>

#include "chunkattn/base/clock.h"
#include "serve.h"

/* Seconds between two looks at the system's memory, and, while requests end, at how many are left. */
static const double memory_s = 1, requests_s = 0.02;
/*
 * Seconds that every request gets to end, without a line about it. A client may have its whole answer, and signal at once,
 * before the thread that has sent it counts the request as ended.
 */
static const double grace_s = 0.1;

void serve_signals_block(cli_serving *v) {
    struct sigaction hangup;
    sigemptyset(&v->ends);
    sigaddset(&v->ends, SIGINT);
    sigaddset(&v->ends, SIGTERM);
    v->signals = v->ends;
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&v->signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &v->signals, NULL);
}

static void follow_memory(cli_serving *v) {
    if (!v->memory || clock_seconds() < v->memory_look) return;
    server_tick(v->running);
    pressure_follow(v->memory, v->model.engine);
    v->memory_look = clock_seconds() + memory_s;
}

/* Wait at most `seconds` for a signal that ends the server. Returns its number; 0: none came. */
static int wait_for_end(cli_serving *v, double seconds) {
    siginfo_t info;
    seconds = fmin(seconds, server_log_load(v->running));
    const double whole = isinf(seconds) ? 0 : floor(seconds);
    const struct timespec time = {.tv_sec = (time_t)whole, .tv_nsec = isinf(seconds) ? 0 : (long)(1e9 * (seconds - whole))};
    const int signal = isinf(seconds) ? sigwaitinfo(&v->signals, &info) : sigtimedwait(&v->signals, &info, &time);
    follow_memory(v);
    /* The kernel sends SIGHUP when the terminal was closed; it is lost if a SIGHUP of a process is still pending. */
    if (signal != SIGHUP || info.si_code == SI_KERNEL) return signal > 0 ? signal : 0;
    service_manager_reloading(&v->manager);
    serve_files_reread(v);
    service_manager_ready(&v->manager);
    return 0;
}

static void log_requests(const cli_serving *v, log_level level, const char *event, int32_t n_requests, double seconds) {
    log_line line;
    if (!log_begin(&line, v->log, level, event)) return;
    log_integer(&line, "requests", n_requests);
    if (seconds > 0) log_real(&line, "seconds_at_most", seconds);
    log_end(&line);
}

/* Let the requests end that were accepted. Returns the exit status. */
static int drain(cli_serving *v, double seconds) {
    const double begin = clock_seconds(), until = begin + fmax(seconds, grace_s);
    bool announced = seconds <= grace_s;
    int signal = 0;
    server_drain(v->running);
    service_manager_stopping(&v->manager, server_n_requests(v->running), seconds);
    service_manager_close(&v->manager); /* no SIGHUP makes the server ready again */
    int32_t n;
    while ((n = server_n_requests(v->running)) > 0 && signal == 0 && clock_seconds() < until) {
        signal = wait_for_end(v, requests_s);
        if (announced || signal || clock_seconds() < begin + grace_s) continue;
        announced = true;
        log_requests(v, LOG_LEVEL_INFO, "waiting for requests to end; a second signal stops at once", n, seconds);
    }
    if (n == 0) return 0;
    log_requests(v, LOG_LEVEL_WARN, "stopping with unfinished requests", n, 0);
    return signal ? 128 + signal : SERVE_CUT;
}

int serve_until_end(cli_serving *v) {
    while (wait_for_end(v, v->memory ? memory_s : INFINITY) == 0) {
    }
    const int status = drain(v, v->opt->shutdown_timeout);
    pthread_sigmask(SIG_UNBLOCK, &v->ends, NULL);
    return status;
}
