/*
 * What `serve` reads when it starts, and again at SIGHUP: the file of API keys, and the certificate of TLS with its key.
 *
 * A file is opened by its path each time, so it may be replaced by another of the same name. In the sandbox no file can be
 * opened later; it then stays open, and only what is written into it can be read again. If nothing was, the log says so, since
 * the path may name another file by then.
 */
#ifndef CLI_SERVE_RELOAD_H
#define CLI_SERVE_RELOAD_H

#include <sys/types.h>
#include <time.h>

#include "options.h"
#include "serve/http/log.h"
#include "serve/http/server.h"

/* A file that is read several times. */
typedef struct reread_file {
    const char *path;           /* NULL: there is none */
    int fd;                     /* -1: it is opened each time */
    struct timespec written_at; /* when what was read last was written; with fd */
    off_t size;                 /* of what was read last; with fd */
} reread_file;

typedef struct serve_reload {
    const options *opt;
    reread_file keys_file, cert_file, key_file;
    server_keys keys; /* as they were at the start */
    http_tls *tls;    /* NULL: connections are not encrypted */
} serve_reload;

/*
 * Read the files, before the sandbox. Free with serve_reload_close after the server has stopped, also after an error, which
 * names the option.
 */
cl_status serve_reload_open(serve_reload *r, const options *opt, cl_error *error);
void serve_reload_close(serve_reload *r);

/* Write a line about the certificate to the log, if there is one: this message, or that it has expired. */
void serve_reload_log_tls(const serve_reload *r, server_log *log, const char *message);

/* Read the files again, and let the server use what they hold. What was read, or why it was not, goes to the log. */
void serve_reload_again(serve_reload *r, http_server *running, server_log *log);

#endif
