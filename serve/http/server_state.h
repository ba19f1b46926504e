/* The server's state, which its source files share. */
#ifndef SERVE_HTTP_SERVER_STATE_H
#define SERVE_HTTP_SERVER_STATE_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "acceptor.h"
#include "keyring.h"
#include "metrics.h"
#include "pins.h"
#include "preparer.h"
#include "process_stats.h"
#include "serve/batches/worker.h"
#include "serve/protocol/dialect.h"
#include "server.h"
#include "shares.h"

struct http_generation;

struct http_server {
    /* Constant once `serves` is true; not to be read before. */
    cl_engine *engine;
    openai_context context;
    atomic_bool serves; /* set once, by server_serve */

    /* Constant while the server runs. */
    server_config config;
    char *model_name;                                  /* owned; context.model_name points to it */
    int64_t started_at;                                /* seconds since 1970 */
    uint16_t port;                                     /* 0: none */
    int listener;                                      /* the socket that listens on it, owned; -1: none */
    bool is_local;                                     /* it takes connections of this machine only */
    struct MHD_Daemon *daemon, *tls_daemon;            /* of connections without and with TLS; NULL: there are none */
    struct MHD_Response *no_memory[OPENAI_N_DIALECTS]; /* http_reply_no_memory */
    http_acceptor *arrivals;                           /* accepts the daemon's connections */
    http_preparer *requests;                           /* generations whose requests are to be read */
    http_preparer *grammars;                           /* those that were read and have a grammar, which is to be compiled */
    batch_store *files;                                /* NULL: config.files_dir is not set, as the next two */
    http_preparer *disk;                               /* generations that write to it */
    batch_worker *batches;
    atomic_bool drains;    /* set once, by server_drain */
    atomic_bool stopping;  /* set once, by generation_stop_all */
    atomic_int n_requests; /* as server_n_requests */
    http_shares memory;    /* bytes of requests that arrive or wait, beyond REQUEST_BYTES of each */
    http_shares transfers; /* files that clients send or receive */
    atomic_size_t n_freed; /* bytes of `memory` that requests have given back since memory was last returned to the system */

    /* Of the program's thread. */
    cl_engine_stats logged; /* as of the last line about the load, and its time by clock_seconds() */
    double logged_at;

    bool trims; /* the next server_tick returns memory */

    uint64_t tier_errors, tier_refused; /* of the file tier, as of the last line about it */

    process_files process;
    server_metrics metrics;
    server_pins pins;
    http_keyring keys;
    http_quota quotas;

    /* Guarded by `lock`, as are the generations' n_owners. generation.h describes the order of locks. */
    pthread_mutex_t lock;
    pthread_cond_t freed; /* a generation was freed */
    struct http_generation *generations;
};

/*
 * Connections that wait to be accepted. The acceptor accepts or refuses one in microseconds, so only a burst fills this
 * backlog. A longer one would mostly hold connections whose clients have hung up.
 */
enum { LISTENER_BACKLOG = 512 };

/*
 * Bytes of a body, and of what is prepared from it, that do not count: however much large requests hold, ordinary ones are
 * served, and the limit on connections bounds these bytes.
 */
enum { REQUEST_BYTES = 64 << 10 };

/* Whether a listening socket takes connections of this machine only. */
bool listener_is_local(int fd);

/*
 * Listen on host and *port (0: any free port; set to the one chosen). The socket is the caller's to close. Errors: CL_ERR_ARG
 * if the host cannot be resolved, CL_ERR_FILE if it cannot be listened on.
 */
cl_status listener_open(const char *host, uint16_t *port, int *fd, cl_error *error);

/*
 * Raise the process's soft limit of open files, up to the hard one, to the server's need for its daemons of n_threads each,
 * beside `more` for its other files, and lower *max_connections to the number that the limit then allows. The server must not
 * have opened its files yet. CL_ERR_LIMIT: the limit does not allow a connection for each thread.
 */
cl_status files_fit_connections(int32_t n_threads, int32_t n_daemons, int32_t more, int32_t *max_connections, cl_error *error);

#endif
