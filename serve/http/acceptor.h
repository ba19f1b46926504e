/*
 * Accepts connections on a thread of its own, limits how many are open, ends those whose request does not arrive, and notices
 * clients that hang up, also while their connection is suspended, when libmicrohttpd does not read from it.
 *
 * libmicrohttpd could accept connections itself. But at the limit of open files its threads try to accept without a pause, at
 * its own limit further clients wait without an answer, and it overlooks the end of a connection that arrives together with a
 * part of a request. Here the connection limit leaves enough files for everything else, and each request has a deadline.
 *
 * A few connections beyond the limit are accepted as *spare* ones: each may send one request, which must arrive soon, so that
 * the server's health can be asked at any time. Further ones are refused with status 503 without being read.
 */
#ifndef SERVE_HTTP_ACCEPTOR_H
#define SERVE_HTTP_ACCEPTOR_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/protocol/openai.h"

typedef struct http_acceptor http_acceptor;

enum { ACCEPTOR_MAX_LISTENERS = 2 };

/* A socket that listens. */
typedef struct acceptor_listener {
    int fd;         /* borrowed until acceptor_destroy */
    bool encrypted; /* its connections begin with TLS, so those that are refused are closed without an answer */
} acceptor_listener;

typedef struct acceptor_config {
    acceptor_listener listeners[ACCEPTOR_MAX_LISTENERS]; /* [n_listeners] */
    int n_listeners;
    int32_t max_connections;   /* beside spare ones */
    int32_t max_spare;         /* spare connections; further ones are refused */
    int32_t request_timeout_s; /* seconds for a request's head and the first ACCEPTOR_BODY_RATE bytes of its body */
    int32_t idle_timeout_s;    /* seconds from one request of a connection to the line that begins the next one */
    const char *cors_origin;   /* the origin whose pages may read the refusal; NULL: none. Copied. */
    /*
     * The client of a connection that acceptor_watch watches has hung up. Called once, with the acceptor's lock held, so it
     * must not call the acceptor.
     */
    void (*on_hangup)(void *owner);
    void (*on_refused)(void *ctx); /* called after a connection was refused, on the acceptor's thread; NULL: nothing is */
    void *ctx;
} acceptor_config;

/* The spare connections that a server with this limit should have. */
static inline int32_t acceptor_spare(int32_t max_connections) {
    const int32_t n = 4 + max_connections / 16;
    return n < 64 ? n : 64;
}

enum {
    /* The deadline of a request is extended by a second for each of these bytes of its body. */
    ACCEPTOR_BODY_RATE = 64 << 10,
    /* Files of the acceptor: two of its own, one in reserve, and connections whose last answer was sent. */
    ACCEPTOR_FILES = 3 + 16,
};

/* NULL if memory or files are lacking. */
http_acceptor *acceptor_create(const acceptor_config *config);

/*
 * Start to accept connections: those of the listener i for daemons[i], which has no listening socket itself. The same daemon
 * may be there twice. False if threads are lacking.
 */
bool acceptor_start(http_acceptor *a, struct MHD_Daemon *const daemons[ACCEPTOR_MAX_LISTENERS]);

/*
 * From now on close connections that have no request: those that have had one at once, and others after a second. New ones are
 * still accepted.
 */
void acceptor_drain(http_acceptor *a);

/* Accept no more connections. NULL, and an acceptor that was not started, are ignored. */
void acceptor_stop(http_acceptor *a);

/* The connections that are served; from any thread. */
int32_t acceptor_n_connections(http_acceptor *a);

/* Stop and free, after the daemon has ended. NULL and pointers to NULL are ignored. */
void acceptor_destroy(http_acceptor **a);

/* ---- What the daemon's callbacks report about an accepted connection, by its socket; from any thread ---- */

/* The line that begins a request has arrived. */
void acceptor_request_begins(http_acceptor *a, int fd);

/* Whether the connection is within the limit. A spare one is from then on, if the limit allows it now. */
bool acceptor_is_within(http_acceptor *a, int fd);

/* Fill *error with the error that it is not, and return it. */
const openai_error *acceptor_limit_error(const http_acceptor *a, openai_error *error);

/* `size` bytes of the request's body have arrived. */
void acceptor_body_arrives(http_acceptor *a, int fd, size_t size);

/* The request is complete; its answer may take any time. */
void acceptor_request_complete(http_acceptor *a, int fd);

/*
 * Until the next call for the connection, let on_hangup be called with `owner` when its client hangs up, or has already; NULL:
 * let it not be called. A client that closes only its sending half counts as gone, as in most servers: until something is sent
 * to it, it looks the same as one that has closed the whole connection. When this returns, no call for the previous owner runs.
 */
void acceptor_watch(http_acceptor *a, int fd, void *owner);

/* The answer was sent; the connection waits for its next request, or ends. */
void acceptor_request_ends(http_acceptor *a, int fd);

/*
 * The daemon is about to close the connection's socket. Unless the client has closed the connection, it lingers for up to a
 * second, so that the client can read its last answer.
 */
void acceptor_connection_ends(http_acceptor *a, int fd);

#endif
