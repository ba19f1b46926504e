/*
 * The signals of `serve`. SIGINT and SIGTERM end the server: the first one lets the requests end that were accepted, a second
 * one does not wait for them. SIGHUP ends it if the terminal was closed; otherwise files are read again.
 */
#ifndef CLI_SERVE_SIGNALS_H
#define CLI_SERVE_SIGNALS_H

#include <signal.h>

#include "serve/http/log.h"
#include "serve/http/pressure.h"
#include "serve/http/server.h"
#include "serve/http/service_manager.h"
#include "serve_reload.h"

enum { SERVE_CUT = 124 }; /* exit status: the time for requests to end has passed; that of timeout(1) */

typedef struct serve_signals {
    sigset_t ends; /* SIGINT and SIGTERM */
    sigset_t all;  /* with SIGHUP, unless the program ignores it as under nohup */
} serve_signals;

/* Block the signals, before any thread starts, so that only the functions below receive them. */
void serve_signals_block(serve_signals *signals);

/* A server that runs, and what it does with signals. */
typedef struct serve_scene {
    const serve_signals *signals;
    http_server *running;
    cl_engine *engine;
    http_pressure *memory;          /* adapts the K/V budget to the system's memory; NULL: the server keeps its memory */
    serve_reload *reload;           /* what SIGHUP reads again */
    server_log *log;                /* tells what the server waits for, as does the next */
    const service_manager *manager; /* knows already that the server is ready */
} serve_scene;

/*
 * Run the server until it is to end, then until its requests have ended, a second signal comes, or `seconds` have passed.
 * Returns the program's exit status: 0 if no request is left, SERVE_CUT, or 128 and the second signal's number. Afterwards
 * another signal ends the program at once.
 */
int serve_until_end(const serve_scene *scene, double seconds);

#endif
