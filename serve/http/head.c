/*
 * Checks the head of a request as RFC 9112 requires where libmicrohttpd does not: the target, names and values of fields, and
 * where the body ends. A head that a proxy reads differently could hide a second request in the body of the first.
 *
 * Zero characters: libmicrohttpd 0.9.75 replaces the separators between the strings of a head by zeros, and drops the bytes
 * behind a zero that the client sent. But the strings still lie in the received head, in its order, so the bytes between them
 * show whether something was dropped. Later versions refuse such heads themselves. A string that lies elsewhere is ignored.
 */
#include <string.h>
#include <strings.h>

#include "http.h"
#include "wire.h"

/* ---- Fields ---- */

enum { MOST_DIGITS = 19 }; /* of Content-Length, whose value fits 64 bits and the line of wire.h then */

typedef struct head_fields {
    int n_hosts, n_lengths, n_codings;
    const char *coding; /* the value of Transfer-Encoding */
    host_text host;     /* the value of Host */
    bool bad_name, bad_value, long_length;
} head_fields;

/* Whether a value has no control characters but tabs. */
static bool is_value(const char *value, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (((unsigned char)value[i] < 0x20 && value[i] != '\t') || value[i] == 0x7f) return false;
    return true;
}

static enum MHD_Result note_field(void *fields, enum MHD_ValueKind kind, const char *name, size_t name_size, const char *value,
                                  size_t value_size) {
    (void)kind;
    head_fields *f = fields;
    f->bad_name |= !wire_is_token(name, name_size);
    f->bad_value |= value && !is_value(value, value_size);
    if (strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0) {
        f->n_hosts++;
        f->host = host_without_blanks((host_text){value, value ? value_size : 0});
    }
    if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0) {
        f->n_lengths++;
        f->long_length |= value_size > MOST_DIGITS;
    }
    if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
        f->n_codings++;
        f->coding = value ? value : "";
    }
    return MHD_YES;
}

/* Whether a list of codings names "chunked", the only one that the server knows. */
static bool names_chunked(const char *codings) {
    for (const char *at = codings; *at; at += strcspn(at, ",")) {
        at += strspn(at, ", \t");
        const size_t size = strcspn(at, ", \t;");
        if (size == strlen("chunked") && strncasecmp(at, "chunked", size) == 0) return true;
    }
    return false;
}

bool head_is_clear(const http_exchange *x, const char *method, const char *target, const char *version, host_text *host,
                   openai_error *error) {
    head_fields f = {0};
    MHD_get_connection_values_n(x->connection, MHD_HEADER_KIND, note_field, &f);
    const bool is_old = strcmp(version, MHD_HTTP_VERSION_1_0) == 0,
               is_chunked = f.coding && strcasecmp(f.coding, "chunked") == 0,
               is_server = strcmp(target, "*") == 0; /* as a whole, not one of its paths */
    const struct {
        bool is_wrong;
        int status;
        const char *code, *message;
    } rules[] = {
        {!wire_is_token(method, strlen(method)), 400, "invalid_method",
         "the method has a character that methods may not have; send a method such as GET or POST"},
        {!x->target.is_valid || (is_server && strcmp(method, MHD_HTTP_METHOD_OPTIONS) != 0), 400, "invalid_target",
         "the target of the request is no path that begins with '/', and no URL of http or https with a valid host; send a "
         "path such as /v1/models"},
        {f.bad_name, 400, "invalid_header",
         "the name of a header contains a character that names may not have, such as a blank before the colon; send NAME: "
         "VALUE"},
        {f.bad_value, 400, "invalid_header", "the value of a header contains a control character; send printable text"},
        {f.n_hosts > 1, 400, "ambiguous_host", "the headers name the host twice; send one Host"},
        {f.host.size > 0 && !host_is_valid(f.host), 400, "invalid_host",
         "Host is not valid; send an IP address, of IPv6 in brackets, or a name of at most 255 letters, digits, '-', '.', '_' "
         "and '~', and perhaps ':' and a port up to 65535"},
        {f.n_lengths > 1 || f.n_codings > 1 || (f.n_lengths && f.n_codings), 400, "ambiguous_length",
         "the headers say twice where the body ends; send one Content-Length, or only Transfer-Encoding"},
        {f.long_length, 400, "ambiguous_length", "Content-Length has more than 19 digits; send it without leading zeros"},
        {f.n_codings && is_old, 400, "ambiguous_length", "HTTP/1.0 has no Transfer-Encoding; send Content-Length"},
        {f.coding && !is_chunked && !names_chunked(f.coding), 501, "unknown_coding",
         "the Transfer-Encoding is not known; send Content-Length, or Transfer-Encoding: chunked"},
        {f.n_codings && !is_chunked, 400, "ambiguous_length",
         "Transfer-Encoding is not just chunked; send Transfer-Encoding: chunked without other codings, parameters and blanks"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (!rules[i].is_wrong) continue;
        openai_fail(error, NULL, "%s", rules[i].message);
        return openai_set_status(error, rules[i].status, rules[i].code);
    }
    const http_target *t = &x->target;
    *host = t->host > 0 ? (host_text){target + t->host, t->path - t->host} : f.host;
    return true;
}

/* ---- Zero characters ---- */

typedef struct head_walk {
    const char *begin, *end; /* the head as it was received */
    const char *at;          /* the end of the last string; NULL: not known */
    int n_zeros;             /* that the next string may follow: 1 on the same line, 2 on the next one */
    bool found;
} head_walk;

/* Examine the bytes between the last string and `next`: blanks, ends of lines, and zeros in place of separators. */
static void look_between(head_walk *w, const char *next, int n_zeros) {
    for (const char *at = w->at; at && at < next; at++) {
        if (*at == '\0')
            n_zeros--;
        else if (!strchr(" \t\r\n", *at))
            w->found = true;
    }
    if (n_zeros < 0) w->found = true;
}

/* Pass over the next string of the head. */
static void pass(head_walk *w, const char *string, size_t size, int n_zeros) {
    const bool known = string >= w->begin && string + size <= w->end && (!w->at || w->at <= string);
    if (known) look_between(w, string, n_zeros);
    w->at = known ? string + size : NULL;
}

static enum MHD_Result pass_field(void *walk, enum MHD_ValueKind kind, const char *name, size_t name_size, const char *value,
                                  size_t value_size) {
    (void)kind;
    pass(walk, name, name_size, 2);
    if (value) pass(walk, value, value_size, 1);
    return MHD_YES;
}

bool head_has_zero(struct MHD_Connection *connection, const char *method, const char *target, size_t target_size,
                   const char *version) {
    const union MHD_ConnectionInfo *size = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (!size) return false;
    head_walk w = {.begin = method, .end = method + size->header_size, .at = method};
    pass(&w, method, strlen(method), 0);
    pass(&w, target, target_size, 1);
    pass(&w, version, strlen(version), 1);
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, pass_field, &w);
    look_between(&w, w.end, 4);
    return w.found;
}
