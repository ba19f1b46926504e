/*
 * What the server writes to its log: a line for each request that has been answered or given up, and one for its load while it
 * is busy. Of requests and connections that are refused there are lines for some only (log.h), since clients can send any
 * number of them. Both are written on threads that no step waits for.
 */
#ifndef SERVE_HTTP_LOG_LINES_H
#define SERVE_HTTP_LOG_LINES_H

#include <stdarg.h>

#include "http.h"

/*
 * The exchange ends; sent: its whole answer was sent. Counts the reply for /metrics, too. On the connection's thread, before
 * generation_close.
 */
void log_exchange(http_exchange *x, bool sent);

/* A connection was refused since there are too many. The callback of the acceptor; s is the server. */
void log_refused_connection(void *s);

/*
 * libmicrohttpd reports something. Of requests that it refuses itself, such as one whose head is too long, nothing else is
 * known than the status: they get a line, and /metrics counts them. MHD_OPTION_EXTERNAL_LOGGER; s is the server.
 */
void log_daemon(void *s, const char *format, va_list values);

/* The load since the last call, if there was any and config.log_load_s is not 0. On the program's thread. */
void log_load(http_server *s);

/* What has failed in the file tier since the last call, if anything has. On the program's thread. */
void log_tier(http_server *s);

#endif
