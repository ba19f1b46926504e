/*
 * Accepts connections on a thread of its own, limits how many are open, and ends those whose request does not arrive.
 *
 * libmicrohttpd could accept connections itself. But at the limit of open files its threads try to accept without a pause, at
 * its own limit further clients wait without an answer, and it overlooks the end of a connection that arrives together with a
 * part of a request. Here the connection limit leaves enough files for everything else, a client beyond it is refused with
 * status 503, and each request has a deadline.
 */
#ifndef SERVER_ACCEPTOR_H
#define SERVER_ACCEPTOR_H

#include <microhttpd.h>
#include <stddef.h>
#include <stdint.h>

#include "llama/common/error.h"

typedef struct acceptor acceptor;

typedef struct acceptor_config {
    int listener;              /* the socket that listens; borrowed until acceptor_destroy */
    int32_t max_connections;   /* further connections are refused */
    int32_t request_timeout_s; /* seconds for a request's head and the first ACCEPTOR_BODY_RATE bytes of its body */
    int32_t idle_timeout_s;    /* seconds from one request of a connection to the line that begins the next one */
    const char *cors_origin;   /* the origin whose pages may read the refusal; NULL: none. Copied. */
} acceptor_config;

enum {
    /* The deadline of a request is extended by a second for each of these bytes of its body. */
    ACCEPTOR_BODY_RATE = 64 << 10,
    /* Files of the acceptor: two of its own, one in reserve, and connections whose last answer was sent. */
    ACCEPTOR_FILES = 3 + 16,
};

/* NULL if memory or files are lacking. */
acceptor *acceptor_create(const acceptor_config *config);

/* Start to accept connections for the daemon, which has no listening socket. False if threads are lacking. */
bool acceptor_start(acceptor *a, struct MHD_Daemon *daemon);

/* Accept no more connections. NULL, and an acceptor that was not started, are ignored. */
void acceptor_stop(acceptor *a);

/* Stop and free, after the daemon has ended. NULL and pointers to NULL are ignored. */
void acceptor_destroy(acceptor **a);

/* ---- What the daemon's callbacks report about an accepted connection, by its socket; from any thread ---- */

/* The line that begins a request has arrived. */
void acceptor_request_begins(acceptor *a, int fd);

/* `size` bytes of the request's body have arrived. */
void acceptor_body_arrives(acceptor *a, int fd, size_t size);

/* The request is complete; its answer may take any time. */
void acceptor_request_complete(acceptor *a, int fd);

/* The answer was sent; the connection waits for its next request, or ends. */
void acceptor_request_ends(acceptor *a, int fd);

/*
 * The daemon is about to close the connection's socket. Unless the client has closed the connection, it lingers for up to a
 * second, so that the client can read its last answer.
 */
void acceptor_connection_ends(acceptor *a, int fd);

#endif
