/*
 * Receives the signals of `serve` on a thread of its own, lets requests end that the server still answers, and ends the program
 * when its time has passed, whatever other threads do.
 */
#include <errno.h>
#include <math.h>
#include <time.h>
#include <unistd.h>

#include "chunkattn/base/clock.h"
#include "chunkattn/base/signals.h"
#include "serve.h"

/*
 * Seconds between two looks at memory, with --memory-pressure and without; and, while requests end, at how many are left.
 */
static const double memory_s = 1, tick_s = 10, requests_s = 0.02;
/*
 * Seconds that every request gets to end, without a line about it. A client may have its whole answer, and signal at once,
 * before the thread that has sent it counts the request as ended.
 */
static const double grace_s = 0.1;
/* Seconds between two looks at the clock by the thread that receives signals, while the server ends. */
static const double watch_s = 0.1;
/*
 * Seconds of --shutdown-timeout that requests do not get, at most: answers that are cut are sent for 2 of them, and the file of
 * --kv-tier is written for 5. Where the whole time is short, they are a quarter of it.
 */
static const double rest_s = 8;
/* Seconds that the program gets at least. */
static const double least_s = 2;

static double time_for_all(const cli_serving *v) { return fmax(v->opt->shutdown_timeout, least_s); }

static double time_for_requests(const cli_serving *v) {
    const double all = v->opt->shutdown_timeout;
    return fmax(all - fmin(all / 4, rest_s), grace_s);
}

/* ---- The thread that receives signals ---- */

/* End the program at once: nothing needs an orderly end yet, or the time for one has passed. */
static _Noreturn void end_at_once(const cli_serving *v, int status) {
    unix_socket_remove(&v->socket);
    _exit(status);
}

static _Noreturn void end_late(const cli_serving *v, int status) {
    log_line line;
    if (log_begin(&line, v->log, LOG_LEVEL_ERROR, "stopping without an orderly end, since the time for it has passed")) {
        log_text(&line, "waiting_for", atomic_load(&v->signals.waiting_for));
        log_end_now(&line);
    }
    end_at_once(v, status);
}

/* Set when the requests and the program end. A second signal takes the requests' time away. */
static void set_times(cli_serving *v) {
    serve_signals *s = &v->signals;
    const double now = clock_seconds(), all = time_for_all(v), requests = time_for_requests(v);
    if (s->n_ends == 0) s->cut_at = now + requests;
    s->end_at = s->n_ends == 0 ? now + all : fmin(s->end_at, now + all - requests);
}

/* Note a signal. Returns whether it ends the program at once. */
static bool note(cli_serving *v, int signal, const siginfo_t *info) {
    serve_signals *s = &v->signals;
    /* The kernel sends SIGHUP when the terminal was closed; it is lost if a SIGHUP of a process is still pending. */
    const bool ends = signal != SIGHUP || info->si_code == SI_KERNEL;
    pthread_mutex_lock(&s->lock);
    if (ends) {
        set_times(v);
        s->end = signal;
        s->n_ends++;
    } else {
        s->hangup = true;
    }
    const bool at_once = ends && !s->orderly;
    pthread_cond_broadcast(&s->came);
    pthread_mutex_unlock(&s->lock);
    return at_once;
}

static void *receive(void *arg) {
    cli_serving *v = arg;
    const serve_signals *s = &v->signals;
    const struct timespec wait = {.tv_nsec = (long)(1e9 * watch_s)};
    for (;;) {
        siginfo_t info;
        const int signal = s->n_ends ? sigtimedwait(&s->set, &info, &wait) : sigwaitinfo(&s->set, &info);
        if (atomic_load(&s->stop)) return NULL;
        if (signal > 0 && note(v, signal, &info)) end_at_once(v, 128 + signal);
        if (s->n_ends && clock_seconds() + watch_s >= s->end_at) end_late(v, s->n_ends > 1 ? 128 + s->end : SERVE_CUT);
    }
}

void serve_signals_block(cli_serving *v) {
    serve_signals *s = &v->signals;
    struct sigaction hangup, ignore = {.sa_handler = SIG_IGN};
    sigemptyset(&s->set);
    sigaddset(&s->set, SIGINT);
    sigaddset(&s->set, SIGTERM);
    s->ends = s->set;
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&s->set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &s->set, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
    pthread_mutex_init(&s->lock, NULL);
    clock_cond_init(&s->came);
    atomic_init(&s->stop, false);
    atomic_init(&s->waiting_for, "");
}

cl_status serve_signals_start(cli_serving *v, cl_error *error) {
    sigset_t before;
    signals_block_all(&before);
    v->signals.started = pthread_create(&v->signals.thread, NULL, receive, v) == 0;
    signals_restore(&before);
    return v->signals.started ? CL_OK : cl_fail(error, CL_ERR_NOMEM, "cannot start a thread");
}

void serve_signals_stop(cli_serving *v) {
    serve_signals *s = &v->signals;
    atomic_store(&s->stop, true);
    if (s->started && pthread_kill(s->thread, SIGINT) == 0) pthread_join(s->thread, NULL); /* it wakes up, and ends */
    pthread_cond_destroy(&s->came);
    pthread_mutex_destroy(&s->lock);
    pthread_sigmask(SIG_UNBLOCK, &s->ends, NULL);
}

void serve_signals_set_orderly(cli_serving *v, bool orderly) {
    pthread_mutex_lock(&v->signals.lock);
    v->signals.orderly = orderly;
    pthread_mutex_unlock(&v->signals.lock);
}

/* ---- The program's thread ---- */

static void follow_memory(cli_serving *v) {
    if (clock_seconds() < v->memory_look) return;
    server_tick(v->running);
    if (v->memory) pressure_follow(v->memory, v->model.engine);
    v->memory_look = clock_seconds() + memory_s;
}

static void reread(cli_serving *v) {
    service_manager_reloading(&v->manager);
    serve_files_reread(v);
    service_manager_ready(&v->manager);
}

/* Wait until more than n signals have come that end the server, at most `seconds`, or until there is something to log. Returns
 * how many have. */
static int wait_for_end(cli_serving *v, double seconds, int n) {
    serve_signals *s = &v->signals;
    seconds = fmin(seconds, server_log_load(v->running));
    const struct timespec until = clock_deadline(seconds);
    int failed = 0;
    pthread_mutex_lock(&s->lock);
    while (s->n_ends <= n && !s->hangup && !failed) failed = pthread_cond_timedwait(&s->came, &s->lock, &until);
    const bool hangup = s->hangup;
    n = s->n_ends;
    s->hangup = false;
    pthread_mutex_unlock(&s->lock);
    follow_memory(v);
    if (hangup) reread(v);
    return n;
}

static void log_requests(const cli_serving *v, log_level level, const char *event, int32_t n_requests, double seconds) {
    log_line line;
    if (!log_begin(&line, v->log, level, event)) return;
    log_integer(&line, "requests", n_requests);
    if (seconds > 0) log_real(&line, "seconds_at_most", seconds);
    log_end(&line);
}

static int last_signal(cli_serving *v) {
    pthread_mutex_lock(&v->signals.lock);
    const int signal = v->signals.end;
    pthread_mutex_unlock(&v->signals.lock);
    return signal;
}

/* Let the requests end that were accepted. Returns the exit status. */
static int drain(cli_serving *v) {
    const double seconds = time_for_requests(v), begin = clock_seconds(), cut_at = v->signals.cut_at;
    bool announced = seconds <= grace_s, again = false;
    server_drain(v->running);
    service_manager_stopping(&v->manager, server_n_requests(v->running), time_for_all(v));
    service_manager_close(&v->manager); /* no SIGHUP makes the server ready again */
    int32_t n;
    while ((n = server_n_requests(v->running)) > 0 && !again && clock_seconds() < cut_at) {
        again = wait_for_end(v, requests_s, 1) > 1;
        if (announced || again || clock_seconds() < begin + grace_s) continue;
        announced = true;
        log_requests(v, LOG_LEVEL_INFO, "waiting for requests to end; a second signal stops at once", n, seconds);
    }
    if (n == 0) return 0;
    log_requests(v, LOG_LEVEL_WARN, "stopping with unfinished requests", n, 0);
    return again ? 128 + last_signal(v) : SERVE_CUT;
}

int serve_until_end(cli_serving *v) {
    while (wait_for_end(v, v->memory ? memory_s : tick_s, 0) == 0) {
    }
    serve_end_waits_for(v, "requests");
    const int status = drain(v);
    serve_signals_set_orderly(v, false);
    return status;
}

void serve_end_waits_for(cli_serving *v, const char *what) { atomic_store(&v->signals.waiting_for, what); }
