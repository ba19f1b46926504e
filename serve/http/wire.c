/* Follows the bytes of connections, and takes the place of the functions by which they are received: see wire.h. */
#include "wire.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

/* ---- States: each function returns true, as the end of a condition below ---- */

static bool enter(http_wire *w, wire_state state) {
    w->state = state;
    return true;
}

/* The next byte belongs to the same line. */
static bool go_on(http_wire *w, wire_state state) {
    w->n_line++;
    return enter(w, state);
}

/* It begins a line. */
static bool begin_line(http_wire *w, wire_state state) {
    w->n_line = 0;
    return enter(w, state);
}

/* ---- Heads ---- */

static const char coding[] = "transfer-encoding:", length[] = "content-length:";

static bool begins(const http_wire *w, const char *name) { return strncasecmp(w->line, name, strlen(name)) == 0; }

/*
 * A line of a head is complete. Heads that say twice where the body ends, or by a number that `line` does not hold, are refused
 * elsewhere (head.c), and so are methods that look like a field.
 */
static bool end_line(http_wire *w) {
    w->line[w->n_line < sizeof w->line ? w->n_line : sizeof w->line - 1] = '\0';
    if (begins(w, coding)) w->is_chunked = true;
    if (begins(w, length)) w->left = strtoull(w->line + strlen(length), NULL, 10);
    if (w->n_line > 0) return begin_line(w, WIRE_HEAD);
    const bool is_chunked = w->is_chunked;
    w->is_chunked = false;
    if (is_chunked) w->left = 0;
    return enter(w, is_chunked ? WIRE_SIZE : w->left > 0 ? WIRE_BODY : WIRE_HEAD);
}

static bool pass_head(http_wire *w, char c) {
    if (c == '\n') return end_line(w);
    if (c != ' ' && c != '\t' && c != '\r' && w->n_line < sizeof w->line) w->line[w->n_line++] = c;
    return true;
}

/* ---- Chunked bodies: whether the next byte is right ---- */

static int digit_of(char c) {
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c | 32 : c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Whether a character may be part of an extension or a trailer. */
static bool is_text(char c) { return c == '\t' || ((unsigned char)c >= ' ' && c != 0x7f); }

bool wire_is_token(const char *name, size_t size) {
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)name[i];
        const bool ok = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || (c && strchr(others, c));
        if (!ok) return false;
    }
    return size > 0;
}

static bool pass_size(http_wire *w, char c) {
    enum { MOST_DIGITS = 16 };
    const int digit = digit_of(c);
    if (digit >= 0) {
        w->left = w->left << 4 | (uint64_t)digit;
        return w->n_line < MOST_DIGITS && go_on(w, WIRE_SIZE);
    }
    return w->n_line > 0 && (c == ';' || c == '\r') && go_on(w, c == ';' ? WIRE_EXTENSION : WIRE_SIZE_LF);
}

static bool pass_extension(http_wire *w, char c) {
    if (c == '\r') return go_on(w, WIRE_SIZE_LF);
    return is_text(c) && w->n_line < WIRE_LINE_BYTES && go_on(w, WIRE_EXTENSION);
}

static bool pass_size_lf(http_wire *w, char c) {
    return c == '\n' && (w->left > 0 ? enter(w, WIRE_DATA) : begin_line(w, WIRE_TRAILER));
}

static bool pass_data_cr(http_wire *w, char c) { return c == '\r' && enter(w, WIRE_DATA_LF); }

static bool pass_data_lf(http_wire *w, char c) { return c == '\n' && begin_line(w, WIRE_SIZE); }

static bool pass_trailer(http_wire *w, char c) {
    if (c == '\r' && w->n_line == 0) return enter(w, WIRE_TRAILER_LF);
    if (c == ':') return w->n_line > 0 && go_on(w, WIRE_TRAILER_VALUE);
    return wire_is_token(&c, 1) && w->n_line < WIRE_LINE_BYTES && go_on(w, WIRE_TRAILER);
}

static bool pass_trailer_value(http_wire *w, char c) {
    if (c == '\r') return enter(w, WIRE_TRAILER_LF);
    return is_text(c) && w->n_line < WIRE_LINE_BYTES && go_on(w, WIRE_TRAILER_VALUE);
}

static bool pass_trailer_lf(http_wire *w, char c) {
    return c == '\n' && begin_line(w, w->n_line > 0 ? WIRE_TRAILER : WIRE_HEAD);
}

static bool pass_nothing(http_wire *w, char c) {
    (void)w, (void)c;
    return false;
}

/* ---- Streams ---- */

/* Pass over the rest of a body or chunk, as far as it has come. Returns its bytes. */
static size_t skip(http_wire *w, size_t n) {
    const size_t size = w->left < n ? (size_t)w->left : n;
    w->left -= size;
    if (w->left == 0) w->state = w->state == WIRE_BODY ? WIRE_HEAD : WIRE_DATA_CR;
    return size;
}

/* A byte was wrong. */
static void end(http_wire *w) {
    if (w->state != WIRE_EXTENSION && w->state != WIRE_SIZE_LF) w->n_line = 0;
    w->state = WIRE_BROKEN;
}

size_t wire_pass(http_wire *w, const char *bytes, size_t n) {
    static bool (*const pass[])(http_wire * w, char c) = {
        [WIRE_HEAD] = pass_head,
        [WIRE_SIZE] = pass_size,
        [WIRE_EXTENSION] = pass_extension,
        [WIRE_SIZE_LF] = pass_size_lf,
        [WIRE_DATA_CR] = pass_data_cr,
        [WIRE_DATA_LF] = pass_data_lf,
        [WIRE_TRAILER] = pass_trailer,
        [WIRE_TRAILER_VALUE] = pass_trailer_value,
        [WIRE_TRAILER_LF] = pass_trailer_lf,
        [WIRE_BROKEN] = pass_nothing,
    };
    for (size_t at = 0; at < n;) {
        if (w->state == WIRE_BODY || w->state == WIRE_DATA) {
            at += skip(w, n - at);
        } else if (pass[w->state](w, bytes[at])) {
            at++;
        } else {
            end(w);
            return at;
        }
    }
    return n;
}

/* ---- Connections ---- */

/*
 * By socket: the functions below get nothing else. Only the thread that serves a connection uses its entry, and the limit
 * on connections leaves no socket beyond the table. Pages of it that no socket has used take no memory.
 */
enum { N_SOCKETS = 1 << 17 };
static struct connection {
    atomic_bool is_open;
    bool encrypted;
    http_wire wire;
} connections[N_SOCKETS];

void wire_open(int fd, bool encrypted) {
    if (fd >= N_SOCKETS) return;
    connections[fd].wire = (http_wire){0};
    connections[fd].encrypted = encrypted;
    atomic_store(&connections[fd].is_open, true);
}

void wire_close(int fd) {
    if (fd < N_SOCKETS) atomic_store(&connections[fd].is_open, false);
}

/* The stream that arrives by a socket as it is, or `encrypted`; NULL: it is none of the server's. */
static http_wire *find(int fd, bool encrypted) {
    struct connection *c = fd >= 0 && fd < N_SOCKETS ? &connections[fd] : NULL;
    return c && atomic_load(&c->is_open) && c->encrypted == encrypted ? &c->wire : NULL;
}

/*
 * Check the bytes that were received into buf [size]: n, or < 1 for none. In place of wrong ones come two lines that are
 * neither the size of a chunk, nor its end, nor a trailer.
 */
static ssize_t check(int fd, bool encrypted, char *buf, size_t size, ssize_t n) {
    static const char wrong[] = "!\n!\n";
    http_wire *w = n > 0 ? find(fd, encrypted) : NULL;
    size_t at = w ? wire_pass(w, buf, (size_t)n) : 0;
    if (!w || at == (size_t)n) return n;
    if (w->n_line > at) { /* libmicrohttpd has the chunk's size already, and would accept anything behind it */
        errno = ECONNRESET;
        return -1;
    }
    at -= w->n_line;
    const size_t put = size - at < sizeof wrong - 1 ? size - at : sizeof wrong - 1;
    memcpy(buf + at, wrong, put);
    return (ssize_t)(at + put);
}

/* These take the place of the libraries' functions for libmicrohttpd, too, since the program comes before it. */
#define EXPORTED __attribute__((visibility("default")))

EXPORTED ssize_t recv(int fd, void *buf, size_t size, int flags) {
    const ssize_t n = recvfrom(fd, buf, size, flags, NULL, NULL);
    return flags & MSG_PEEK ? n : check(fd, false, buf, size, n);
}

EXPORTED ssize_t gnutls_record_recv(gnutls_session_t session, void *buf, size_t size) {
    unsigned char sequence[8];
    const ssize_t n = gnutls_record_recv_seq(session, buf, size, sequence);
    return check(gnutls_transport_get_int(session), true, buf, size, n);
}
