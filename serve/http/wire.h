/*
 * Checks how chunked bodies are framed, as their bytes arrive (RFC 9112, 7.1).
 *
 * libmicrohttpd 0.9.75 takes a bare LF for the end of a line of such a body, any bytes for an extension of a chunk and any
 * lines for trailers, where a proxy may see another body, and so another next request. It has no option against that, and no
 * function through which it receives. But it receives by recv() and gnutls_record_recv() alone, so wire.c defines these two,
 * and puts bytes that libmicrohttpd refuses with status 400 in the place of those that must not come.
 */
#ifndef SERVE_HTTP_WIRE_H
#define SERVE_HTTP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WIRE_LINE_BYTES = 4096 }; /* of the line of a chunk's size with its extensions, or of a trailer */

/* What the next byte belongs to. */
typedef enum wire_state {
    WIRE_HEAD, /* a line of a head */
    WIRE_BODY, /* a body with Content-Length */
    WIRE_SIZE, /* the line of a chunk: digits, extensions, and the LF of its end */
    WIRE_EXTENSION,
    WIRE_SIZE_LF,
    WIRE_DATA, /* a chunk, and the CR and LF behind it */
    WIRE_DATA_CR,
    WIRE_DATA_LF,
    WIRE_TRAILER, /* the name of a field behind the last chunk, its value, and its LF */
    WIRE_TRAILER_VALUE,
    WIRE_TRAILER_LF,
    WIRE_BROKEN, /* nothing: a byte was wrong */
} wire_state;

/* The bytes of a connection so far. Zero-initialise. */
typedef struct http_wire {
    wire_state state;
    char line[64];   /* of a head: the characters of the line but blanks, as far as they fit */
    size_t n_line;   /* bytes of the line so far, of a head those in `line`; WIRE_BROKEN: those of a chunk's size, if it came */
    bool is_chunked; /* by the head, as far as it has come */
    uint64_t left;   /* bytes of the body or the chunk */
} http_wire;

/* Pass over bytes [n] that have arrived. Returns the index of the first wrong one; n: there is none. */
size_t wire_pass(http_wire *w, const char *bytes, size_t n);

/* From now on check what arrives on a connection's socket; until wire_close, which comes before the socket is closed. */
void wire_open(int fd, bool encrypted);
void wire_close(int fd);

/* Whether a name consists of the characters of tokens (RFC 9110, 5.6.2). */
bool wire_is_token(const char *name, size_t size);

#endif
