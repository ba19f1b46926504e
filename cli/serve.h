/* A server that runs, and the parts of `serve` beside its start: the files that SIGHUP reads again, and the signals. */
#ifndef CLI_SERVE_H
#define CLI_SERVE_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <time.h>

#include "serve/http/log.h"
#include "serve/http/pressure.h"
#include "serve/http/server.h"
#include "serve/http/service_manager.h"
#include "serve/http/unix_socket.h"
#include "session.h"

/* A file that is read several times. */
typedef struct cli_serve_file {
    const char *path;           /* NULL: there is none */
    int fd;                     /* -1: it is opened each time */
    struct timespec written_at; /* when what was read last was written; with fd */
    off_t size;                 /* of what was read last; with fd */
} cli_serve_file;

/* The signals of `serve`, and the thread that receives them. */
typedef struct serve_signals {
    sigset_t ends; /* SIGINT and SIGTERM */
    sigset_t set;  /* with SIGHUP, unless the program ignores it as under nohup */
    pthread_t thread;
    bool started;
    atomic_bool stop;
    _Atomic(const char *) waiting_for; /* what keeps the program from its end, for the log; static */

    pthread_mutex_t lock; /* guards the fields below, which the thread itself reads without it where it alone writes them */
    pthread_cond_t came;
    bool orderly;  /* a signal does not end the program at once */
    int n_ends;    /* signals that came and end the server */
    int end;       /* the last of them */
    double cut_at; /* clock_seconds() at which requests that have not ended get an error; from the first signal on the same */
    double end_at; /* the same at which the program ends in any case */
    bool hangup;   /* files are to be read again */
} serve_signals;

/* What serves: cmd_serve opens and closes all of it. */
typedef struct cli_serving {
    const cli_options *opt;
    serve_signals signals;
    cli_serve_file keys_file, cert_file, key_file;
    server_keys keys; /* as they were at the start */
    http_tls *tls;    /* NULL: connections are not encrypted */
    service_manager manager;
    http_pressure *memory; /* adapts the K/V budget to the system's memory; NULL: the server keeps its memory */
    double memory_look;    /* clock_seconds() of the next look at the system's memory */
    unix_socket socket;
    cli_session model;
    openai_defaults request, local; /* of requests, and of those by llama-server's names and of the page */
    server_log *log;
    http_server *running;
} cli_serving;

/* Add a line to the log; the fields file, reason and fix are left out if they are NULL. */
void serve_log(const cli_serving *v, log_level level, const char *event, const char *file, const char *reason, const char *fix);

/* ---- Files (serve_reload.c) ---- */

/*
 * What `serve` reads when it starts, and again at SIGHUP: the file of API keys, and the certificate of TLS with its key.
 *
 * A file is opened by its path each time, so it may be replaced by another of the same name. In the sandbox no file can be
 * opened later; it then stays open, and only what is written into it can be read again. If nothing was, the log says so, since
 * the path may name another file by then.
 */

/*
 * Read the files, before the sandbox. Free with serve_files_close after the server has stopped, also after an error, which
 * names the option.
 */
cl_status serve_files_open(cli_serving *v, cl_error *error);
void serve_files_close(cli_serving *v);

/* Read the files again, and let the server use what they hold. What was read, or why it was not, goes to the log. */
void serve_files_reread(cli_serving *v);

/* Write a line about the certificate to the log, if there is one: this message, or that it has expired. */
void serve_log_tls(const cli_serving *v, const char *message);

/* ---- Signals (serve_signals.c) ---- */

enum { SERVE_CUT = 124 }; /* exit status: the time for requests to end has passed; that of timeout(1) */

/*
 * Block the signals, before any thread starts. SIGINT and SIGTERM end the server: the first one lets the requests end that were
 * accepted, a second one does not wait for them. SIGHUP ends it if the terminal was closed; otherwise files are read again.
 * SIGPIPE and SIGXFSZ are ignored: what the program prints may have no reader, and a file that becomes too large is an error of
 * the call that writes it.
 */
void serve_signals_block(cli_serving *v);

/*
 * Start the thread that receives the signals. They end the program at once until serve_signals_set_orderly, and after
 * serve_until_end. When --shutdown-timeout has passed since the first signal, the thread ends the program with the status
 * SERVE_CUT, whatever other threads wait for; after a second signal it does so sooner, by as much as requests had left.
 */
cl_status serve_signals_start(cli_serving *v, cl_error *error);

/* Whether a signal begins an orderly end, or ends the program at once. */
void serve_signals_set_orderly(cli_serving *v, bool orderly);

/* Stop the thread, if it was started. Afterwards signals have their default effect. */
void serve_signals_stop(cli_serving *v);

/*
 * Run the server until it is to end, then until its requests have ended, a second signal comes, or their part of
 * --shutdown-timeout has passed. Returns the program's exit status: 0 if no request is left, SERVE_CUT, or 128 and the second
 * signal's number.
 */
int serve_until_end(cli_serving *v);

/* Say what the program's end waits for, for the log. what: static. */
void serve_end_waits_for(cli_serving *v, const char *what);

#endif
