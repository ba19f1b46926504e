/*
 * The certificate and the key with which connections are encrypted, by GnuTLS inside libmicrohttpd.
 *
 * They may be replaced while the server runs: a connection keeps those that were in force when it was accepted. So older ones
 * are kept until the end, a few KiB for each renewal.
 */
#ifndef SERVE_HTTP_TLS_H
#define SERVE_HTTP_TLS_H

#include <stdint.h>

#include "chunkllama/common/error.h"

typedef struct http_tls http_tls;

/* A file in PEM's format that was read. */
typedef struct tls_file {
    const char *path; /* for errors */
    const char *text; /* ends with a zero */
} tls_file;

/*
 * Create the credentials of a server. cert: its certificate, followed by those of intermediate authorities; key: its private
 * key, not encrypted. Both are copied.
 *
 * Errors, which name the option and the file: CL_ERR_FORMAT if one of them is wrong, or they do not belong together;
 * CL_ERR_UNSUPPORTED if libmicrohttpd was built without TLS; CL_ERR_NOMEM.
 */
cl_status tls_create(http_tls **t, const tls_file *cert, const tls_file *key, cl_error *error);

/* Free it, after the daemon that uses it has ended. NULL and pointers to NULL are ignored. */
void tls_destroy(http_tls **t);

/* Use others for connections that are accepted from now on. Errors as above, after which nothing has changed. Any thread. */
cl_status tls_replace(http_tls *t, const tls_file *cert, const tls_file *key, cl_error *error);

/* Give a connection's GnuTLS session, before its handshake, the latest ones. Any thread. */
void tls_use(http_tls *t, void *session);

/* The PEM texts of tls_create, valid until tls_destroy. */
const char *tls_cert(const http_tls *t);
const char *tls_key(const http_tls *t);

/* When the latest certificate expires, the first of its chain, in seconds since 1970; -1: GnuTLS cannot tell. Any thread. */
int64_t tls_expires_at(http_tls *t);

#endif
