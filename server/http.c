/* One HTTP exchange. */
#include "http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "generation.h"
#include "routes.h"

/* ---- Replies ---- */

enum MHD_Result http_queue(exchange *x, unsigned status, const char *type, struct MHD_Response *response) {
    if (!response) return MHD_NO;
    const char *origin = x->server->config.cors_origin;
    enum MHD_Result ok = MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (ok && origin) ok = MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    if (ok) ok = MHD_queue_response(x->connection, status, response);
    MHD_destroy_response(response);
    return ok;
}

/* With a header of its own; NULL: none. */
static enum MHD_Result reply_with(exchange *x, unsigned status, const char *type, char *text, size_t size, const char *header,
                                  const char *value) {
    if (!text) return MHD_NO;
    struct MHD_Response *response = MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);
    if (!response) free(text);
    if (response && header && !MHD_add_response_header(response, header, value)) {
        MHD_destroy_response(response);
        return MHD_NO;
    }
    return http_queue(x, status, type, response);
}

enum MHD_Result http_reply(exchange *x, unsigned status, const char *type, char *text, size_t size) {
    return reply_with(x, status, type, text, size, NULL, NULL);
}

static enum MHD_Result reply_json_with(exchange *x, unsigned status, json_t *json, const char *header, const char *value) {
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return reply_with(x, status, "application/json", text, text ? strlen(text) : 0, header, value);
}

enum MHD_Result http_reply_json(exchange *x, unsigned status, json_t *json) {
    return reply_json_with(x, status, json, NULL, NULL);
}

enum MHD_Result http_reply_error(exchange *x, const openai_error *error) {
    return http_reply_json(x, (unsigned)error->status, openai_error_json(error));
}

/* ---- Routing ---- */

/* With a header of its own; NULL: none. */
static enum MHD_Result refuse_with(exchange *x, int status, const char *code, const char *message, const char *header,
                                   const char *value) {
    openai_error error;
    openai_fail(&error, NULL, "%s", message);
    error.code = code;
    return reply_json_with(x, (unsigned)status, openai_error_json(&error), header, value);
}

static enum MHD_Result refuse(exchange *x, int status, const char *code, const char *message) {
    return refuse_with(x, status, code, message, NULL, NULL);
}

/* Compares all of the key whatever the first difference is, so that its time does not tell how much was right. */
static bool has_key(const exchange *x) {
    const char *key = x->server->config.api_key;
    const char *sent = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    if (!key) return true;
    if (!sent || strncasecmp(sent, "Bearer ", 7) != 0) return false;
    sent += 7 + strspn(sent + 7, " ");
    if (strlen(sent) != strlen(key)) return false;
    unsigned char differs = 0;
    for (size_t i = 0; key[i]; i++) differs |= (unsigned char)(key[i] ^ sent[i]);
    return differs == 0;
}

/*
 * A browser asks whether a page of another origin may call, and with which headers. It may with any: what clients add differs
 * (OpenAI's for JavaScript a dozen "x-stainless-..."), "*" would leave out Authorization, and unknown ones change nothing here.
 */
static enum MHD_Result reply_preflight(exchange *x) {
    struct MHD_Response *response = MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT);
    if (!response) return MHD_NO;
    const char *wanted =
        MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCESS_CONTROL_REQUEST_HEADERS);
    MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_METHODS, "GET, POST");
    MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_HEADERS,
                            wanted && *wanted ? wanted : "Authorization, Content-Type");
    return http_queue(x, MHD_HTTP_NO_CONTENT, "text/plain", response);
}

static enum MHD_Result reply_wrong_method(exchange *x, const char *method, const char *wanted) {
    char message[512], allowed[32];
    snprintf(message, sizeof message, "%.100s is not allowed for %.200s: use %s", method, x->path, wanted);
    snprintf(allowed, sizeof allowed, "%s%s%s", wanted, strcmp(wanted, MHD_HTTP_METHOD_GET) == 0 ? ", HEAD" : "",
             x->server->config.cors_origin ? ", OPTIONS" : "");
    return refuse_with(x, MHD_HTTP_METHOD_NOT_ALLOWED, NULL, message, MHD_HTTP_HEADER_ALLOW, allowed);
}

typedef struct length_headers {
    int n_lengths, n_encodings;
} length_headers;

static enum MHD_Result count_length_header(void *seen, enum MHD_ValueKind kind, const char *key, const char *value) {
    (void)kind;
    (void)value;
    length_headers *l = seen;
    l->n_lengths += strcasecmp(key, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0;
    l->n_encodings += strcasecmp(key, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0;
    return MHD_YES;
}

/*
 * Whether the headers say in two ways where the body ends. The daemon takes one of them; a proxy before it may take the other,
 * and what is a body to one is the next request to the other.
 */
static bool is_ambiguous(const exchange *x) {
    length_headers seen = {0};
    MHD_get_connection_values(x->connection, MHD_HEADER_KIND, count_length_header, &seen);
    return seen.n_lengths > 1 || (seen.n_lengths && seen.n_encodings);
}

static bool may_call(const exchange *x, const route *route) { return !route->needs_key || has_key(x); }

/* Whether a handler is to see the body, told from the headers alone. */
static bool wants_body(const exchange *x, const char *path, const char *method) {
    const route *route = route_find(path);
    return route && strcmp(route->method, MHD_HTTP_METHOD_POST) == 0 && strcmp(method, route->method) == 0 &&
           may_call(x, route);
}

static enum MHD_Result dispatch(exchange *x, const char *method) {
    const route *route = route_find(x->path);
    char message[256];
    if (x->server->config.cors_origin && strcmp(method, MHD_HTTP_METHOD_OPTIONS) == 0) return reply_preflight(x);
    if (!route) {
        snprintf(message, sizeof message, "there is nothing at %.200s", x->path);
        return refuse(x, MHD_HTTP_NOT_FOUND, "not_found", message);
    }
    /* The daemon leaves out the body of an answer to HEAD. */
    if (strcmp(strcmp(method, MHD_HTTP_METHOD_HEAD) == 0 ? MHD_HTTP_METHOD_GET : method, route->method) != 0)
        return reply_wrong_method(x, method, route->method);
    if (!may_call(x, route))
        return refuse_with(x, MHD_HTTP_UNAUTHORIZED, "invalid_api_key",
                           "this server wants its API key: send it as 'Authorization: Bearer KEY'",
                           MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    const char *coding = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_ENCODING);
    if (coding && strcasecmp(coding, "identity") != 0) {
        snprintf(message, sizeof message, "a body with Content-Encoding %.100s is not read here: send it without", coding);
        return refuse_with(x, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, NULL, message, MHD_HTTP_HEADER_ACCEPT_ENCODING, "identity");
    }
    if (x->too_large) {
        snprintf(message, sizeof message, "the body is larger than %zu bytes, the most this server takes",
                 x->server->config.max_body_bytes);
        return refuse(x, MHD_HTTP_CONTENT_TOO_LARGE, "request_too_large", message);
    }
    return route->handle(x);
}

/* ---- The request ---- */

static exchange *exchange_begin(server *s, struct MHD_Connection *connection) {
    exchange *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    x->server = s;
    x->connection = connection;
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    x->too_large = length && strtoull(length, NULL, 10) > s->config.max_body_bytes;
    return x;
}

/*
 * A body that is too large or unwanted is read to its end and dropped: to answer and close before would make most clients see
 * a broken connection instead of the answer, and to keep it would let clients without the key fill the memory.
 */
static bool add_body(exchange *x, const char *data, size_t size) {
    if (x->unwanted) return true;
    if (x->body_size + size > x->server->config.max_body_bytes) x->too_large = true;
    if (x->too_large) return true;
    if (x->body_size + size > x->body_capacity) {
        const size_t capacity = 2 * (x->body_size + size);
        char *grown = realloc(x->body, capacity);
        if (!grown) return false;
        x->body = grown;
        x->body_capacity = capacity;
    }
    memcpy(x->body + x->body_size, data, size);
    x->body_size += size;
    return true;
}

/* The path of a request's target, which may be a whole URL (RFC 9112, 3.2.2). */
static const char *path_of(const char *target) {
    const size_t scheme = strncasecmp(target, "http://", 7) == 0 ? 7 : strncasecmp(target, "https://", 8) == 0 ? 8 : 0;
    if (!scheme) return target;
    const char *path = strchr(target + scheme, '/');
    return path ? path : "/";
}

enum MHD_Result http_on_request(void *cls, struct MHD_Connection *connection, const char *target, const char *method,
                                const char *version, const char *upload, size_t *upload_size, void **state) {
    (void)version;
    const char *path = path_of(target);
    exchange *x = *state;
    if (!x) {
        *state = x = exchange_begin(cls, connection);
        if (!x) return MHD_NO;
        if (is_ambiguous(x)) /* the daemon closes the connection after an answer that does not wait for the body */
            return refuse_with(x, MHD_HTTP_BAD_REQUEST, "ambiguous_length",
                               "where the body ends is said twice: send one Content-Length, or Transfer-Encoding without it",
                               MHD_HTTP_HEADER_CONNECTION, "close");
        x->unwanted = !wants_body(x, path, method);
        /* A client that asks before it sends can be told at once. */
        const bool asks = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_EXPECT);
        if (!asks || (!x->too_large && !x->unwanted)) return MHD_YES;
    }
    if (*upload_size > 0) {
        if (!add_body(x, upload, *upload_size)) return MHD_NO;
        *upload_size = 0;
        return MHD_YES;
    }
    if (x->generation) return generation_resumed(x);
    x->path = path;
    return dispatch(x, method);
}

void http_on_completed(void *cls, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode code) {
    (void)cls;
    (void)connection;
    (void)code;
    exchange *x = *state;
    if (!x) return;
    *state = NULL;
    if (x->generation) generation_close(x->generation);
    free(x->body);
    free(x);
}
