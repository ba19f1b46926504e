/* Receives requests, checks them, calls their routes, and queues replies. */
#include "http.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "batches.h"
#include "chunkattn/base/clock.h"
#include "log_lines.h"
#include "wire.h"

/* ---- Replies ---- */

static const char type_json[] = "application/json";

static int socket_of(struct MHD_Connection *connection) {
    return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

/* Add the headers that every reply has. */
static bool add_headers(const http_server *s, struct MHD_Response *response, const char *type) {
    const char *origin = s->config.cors_origin;
    return MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type) &&
           (!origin || MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_ORIGIN, origin));
}

/* The connection ends with this reply. */
static bool add_close(struct MHD_Response *response) {
    return MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
}

/* Write a time as OpenAI does: 250ms, 1.5s, 6m0s. */
static void write_time(char *text, size_t size, double seconds) {
    const double ms = ceil(1000 * seconds);
    if (ms < 1000)
        snprintf(text, size, "%.0fms", ms);
    else if (ms < 60000)
        snprintf(text, size, "%.15gs", ms / 1000);
    else
        snprintf(text, size, "%.0fm%.0fs", floor(ms / 60000), floor(fmod(ms, 60000) / 1000));
}

/* Add the headers about the rest of a limit; what: requests or tokens. */
static bool add_quota(struct MHD_Response *response, const quota_left *q, const char *what) {
    char names[3][40], values[3][32];
    static const char *const parts[] = {"limit", "remaining", "reset"};
    if (q->limit == 0) return true;
    snprintf(values[0], sizeof values[0], "%" PRId64, q->limit);
    snprintf(values[1], sizeof values[1], "%" PRId64, q->left);
    write_time(values[2], sizeof values[2], q->reset_s);
    bool ok = true;
    for (size_t i = 0; i < 3; i++) {
        snprintf(names[i], sizeof names[i], "x-ratelimit-%s-%s", parts[i], what);
        ok = ok && MHD_add_response_header(response, names[i], values[i]);
    }
    return ok;
}

/* Add the request's id under the names by which the clients of OpenAI and of Anthropic read it. */
static bool add_request_id(struct MHD_Response *response, const http_exchange *x) {
    if (!x->request_id[0]) return true;
    return MHD_add_response_header(response, "X-Request-Id", x->request_id) &&
           (x->dialect != &anthropic_messages || MHD_add_response_header(response, "Request-Id", x->request_id));
}

bool http_create_no_memory_replies(http_server *s) {
    for (size_t i = 0; i < OPENAI_N_DIALECTS; i++) {
        const char *text = openai_dialects[i]->no_memory_body;
        s->no_memory[i] = MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_PERSISTENT);
        if (!s->no_memory[i] || !add_headers(s, s->no_memory[i], type_json)) return false;
    }
    return true;
}

void http_destroy_no_memory_replies(http_server *s) {
    for (size_t i = 0; i < OPENAI_N_DIALECTS; i++)
        if (s->no_memory[i]) MHD_destroy_response(s->no_memory[i]);
}

enum MHD_Result http_reply_no_memory(http_exchange *x) {
    size_t i = 0;
    while (openai_dialects[i] != x->dialect) i++;
    x->status = MHD_HTTP_INTERNAL_SERVER_ERROR;
    x->failure = "out_of_memory";
    return MHD_queue_response(x->connection, MHD_HTTP_INTERNAL_SERVER_ERROR, x->srv->no_memory[i]);
}

enum MHD_Result http_queue(http_exchange *x, unsigned status, const char *type, struct MHD_Response *response) {
    x->status = status;
    const bool whole = response && add_headers(x->srv, response, type) && add_request_id(response, x) &&
                       (!x->last || add_close(response)) && add_quota(response, &x->quota.requests, "requests") &&
                       add_quota(response, &x->quota.tokens, "tokens");
    const enum MHD_Result ok = whole ? MHD_queue_response(x->connection, status, response) : http_reply_no_memory(x);
    if (response) MHD_destroy_response(response);
    return ok;
}

/* Reply with text [size], which is freed, and with one more header (NULL: none). */
static enum MHD_Result reply_with(http_exchange *x, unsigned status, const char *type, char *text, size_t size,
                                  const char *header, const char *value) {
    if (!text) return http_reply_no_memory(x);
    struct MHD_Response *response = MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);
    if (!response) free(text);
    if (response && header && !MHD_add_response_header(response, header, value)) {
        MHD_destroy_response(response);
        return http_reply_no_memory(x);
    }
    return http_queue(x, status, type, response);
}

enum MHD_Result http_reply(http_exchange *x, unsigned status, const char *type, char *text, size_t size) {
    return reply_with(x, status, type, text, size, NULL, NULL);
}

enum MHD_Result http_reply_json(http_exchange *x, unsigned status, openai_writer *json) {
    size_t size;
    char *text = writer_end(json, &size);
    return http_reply(x, status, type_json, text, size);
}

enum MHD_Result http_reply_json_with(http_exchange *x, unsigned status, openai_writer *json, const char *header,
                                     const char *value) {
    size_t size = 0;
    char *text = json ? writer_end(json, &size) : strdup("");
    return reply_with(x, status, type_json, text, size, header, value);
}

/* Reply with an error, and with one more header (NULL: none). */
static enum MHD_Result reply_error_with(http_exchange *x, const openai_error *error, const char *header, const char *value) {
    openai_writer w = {0};
    size_t size;
    x->failure = error->code ? error->code : error->type;
    char text[OPENAI_ERROR_TEXT];
    if (x->srv->config.log_prompts && !x->message) x->message = strdup(openai_error_text(error, text));
    x->dialect->write_error(&w, NULL, error);
    char *json = writer_end(&w, &size);
    return reply_with(x, (unsigned)error->status, type_json, json, size, header, value);
}

enum MHD_Result http_reply_error(http_exchange *x, const openai_error *error) {
    char seconds[32];
    if (error->retry_after_s == 0) return reply_error_with(x, error, NULL, NULL);
    snprintf(seconds, sizeof seconds, "%" PRId64, error->retry_after_s);
    return reply_error_with(x, error, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
}

/* ---- Routing ---- */

/* Reply with an error of the request, and with one more header (NULL: none). */
static enum MHD_Result refuse_with(http_exchange *x, int status, const char *code, const char *message, const char *header,
                                   const char *value) {
    openai_error error;
    openai_fail(&error, NULL, "%s", message);
    error.code = code;
    error.status = status;
    return reply_error_with(x, &error, header, value);
}

static enum MHD_Result refuse(http_exchange *x, int status, const char *code, const char *message) {
    return refuse_with(x, status, code, message, NULL, NULL);
}

/* A header's value [*size] without the blanks behind it; NULL: it was not sent. */
static const char *find_key_header(const http_exchange *x, const char *name, size_t *size) {
    const char *value = NULL;
    MHD_lookup_connection_value_n(x->connection, MHD_HEADER_KIND, name, strlen(name), &value, size);
    while (value && *size > 0 && (value[*size - 1] == ' ' || value[*size - 1] == '\t')) --*size;
    return value;
}

/*
 * Find the tenant of the API key that the client sent, as OpenAI's clients do or as Anthropic's do. Clients of Anthropic may
 * send both headers, of which one has a key for something else.
 */
static void find_key(http_exchange *x) {
    http_keyring *keys = &x->srv->keys;
    size_t size = 0;
    if (!keys->needed) return;
    const char *sent = find_key_header(x, MHD_HTTP_HEADER_AUTHORIZATION, &size);
    if (sent && size > 7 && strncasecmp(sent, "Bearer ", 7) == 0) {
        const size_t begin = 7 + strspn(sent + 7, " ");
        x->has_key = keyring_find(keys, sent + begin, size - begin, &x->domain);
    }
    sent = x->has_key ? NULL : find_key_header(x, "x-api-key", &size);
    if (sent) x->has_key = keyring_find(keys, sent, size, &x->domain);
}

const char *http_header(const http_exchange *x, const char *name) {
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

const char *http_parameter(const http_exchange *x, const char *name) {
    return MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, name);
}

bool http_integer_parameter(const http_exchange *x, const char *name, int64_t min, int64_t max, int64_t *value,
                            openai_error *error) {
    const char *text = http_parameter(x, name);
    if (!text) return true;
    errno = 0;
    char *end;
    const long long number = strtoll(text, &end, 10);
    if (*text >= '0' && *text <= '9' && !*end && errno == 0 && number >= min && number <= max) {
        *value = number;
        return true;
    }
    return openai_refuse(error, name, "is '%.40s'; it must be an integer from %" PRId64 " to %" PRId64, text, min, max);
}

bool http_client_has(const http_exchange *x, const char *etag) {
    const char *known = http_header(x, MHD_HTTP_HEADER_IF_NONE_MATCH);
    return known && strstr(known, etag);
}

enum MHD_Result http_reply_not_found(http_exchange *x) {
    char message[256];
    snprintf(message, sizeof message, "there is no endpoint %.200s; GET / lists all endpoints", x->path);
    return refuse(x, MHD_HTTP_NOT_FOUND, "not_found", message);
}

/*
 * A browser asks whether a page of another origin may call the server, and with which headers. All headers are allowed: clients
 * differ in their additions (OpenAI's for JavaScript sends a dozen "x-stainless-..."), "*" would exclude Authorization, and
 * unknown headers have no effect here.
 */
static enum MHD_Result reply_preflight(http_exchange *x) {
    struct MHD_Response *response = MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT);
    if (!response) return http_reply_no_memory(x);
    const char *wanted = http_header(x, MHD_HTTP_HEADER_ACCESS_CONTROL_REQUEST_HEADERS);
    MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, DELETE");
    MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_HEADERS,
                            wanted && *wanted ? wanted : "Authorization, Content-Type");
    return http_queue(x, MHD_HTTP_NO_CONTENT, "text/plain", response);
}

static enum MHD_Result reply_wrong_method(http_exchange *x, const char *method) {
    char message[512], methods[96], allowed[128];
    route_list_methods(x->path, methods, sizeof methods);
    snprintf(message, sizeof message, "%.100s is not allowed for %.200s; use %s", method, x->path, methods);
    snprintf(allowed, sizeof allowed, "%s%s", methods, x->srv->config.cors_origin ? ", OPTIONS" : "");
    return refuse_with(x, MHD_HTTP_METHOD_NOT_ALLOWED, NULL, message, MHD_HTTP_HEADER_ALLOW, allowed);
}

/* Nobody knows how long loading takes; a client that follows this header tries again soon. */
static enum MHD_Result refuse_loading(http_exchange *x) {
    openai_error error;
    openai_fail(&error, NULL, "Loading model; send the request again later, or wait until /readyz answers 200");
    openai_unavailable(&error, 5);
    error.code = "model_loading";
    return http_reply_error(x, &error);
}

/* A connection beyond the limit ends with its answer, and its place is for those that ask for the server's health. */
static enum MHD_Result refuse_beyond(http_exchange *x) {
    openai_error error;
    return http_reply_error(x, acceptor_limit_error(x->srv->arrivals, &error));
}

/* The server holds as many bytes of large requests as it may for this tenant. */
static enum MHD_Result refuse_share(http_exchange *x) {
    openai_error error;
    return http_reply_error(x, generation_share_error(x->srv, &error));
}

static bool may_call(const http_exchange *x, const http_route *r) {
    http_keyring *keys = &x->srv->keys;
    const bool is_operator = x->has_key && x->domain == 0;
    switch (r->access) {
    case ROUTE_TENANTS: return !keys->needed || x->has_key;
    case ROUTE_MONITOR: return is_operator || !keyring_has_tenants(keys);
    case ROUTE_OPERATOR: return is_operator || !keys->needed;
    default: return true;
    }
}

static enum MHD_Result refuse_access(http_exchange *x) {
    if (x->has_key)
        return refuse(x, MHD_HTTP_FORBIDDEN, "forbidden",
                      "this endpoint concerns the requests of all tenants; send a key of the tenant '" OPENAI_DEFAULT_TENANT
                      "'");
    return refuse_with(x, MHD_HTTP_UNAUTHORIZED, "invalid_api_key",
                       "this server requires its API key; send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'",
                       MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
}

/* Whether a handler will read the body, judged by the headers alone. */
static bool wants_body(const http_exchange *x, const char *path, const char *method) {
    const http_route *r = route_find(path, method);
    return r && strcmp(r->method, MHD_HTTP_METHOD_POST) == 0 && route_has_method(r, method) && may_call(x, r) &&
           x->state == EXCHANGE_SERVED && (!r->upload || x->srv->files);
}

static enum MHD_Result refuse_coding(http_exchange *x, const char *coding) {
    char message[256];
    snprintf(message, sizeof message, "Content-Encoding %.100s is not supported; send the body uncompressed", coding);
    return refuse_with(x, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, NULL, message, MHD_HTTP_HEADER_ACCEPT_ENCODING, "identity");
}

static enum MHD_Result refuse_size(http_exchange *x) {
    char message[256];
    const bool by_share = x->body_limit == shares_most(&x->srv->memory) + REQUEST_BYTES;
    snprintf(message, sizeof message, "the body is larger than %zu bytes, the limit of this server%s; send a smaller one",
             x->body_limit, by_share ? " by half of --request-memory" : "");
    return refuse(x, MHD_HTTP_CONTENT_TOO_LARGE, "request_too_large", message);
}

static enum MHD_Result dispatch(http_exchange *x, const char *method) {
    const http_route *r = route_find(x->path, method);
    openai_error error;
    if (x->srv->config.cors_origin && strcmp(method, MHD_HTTP_METHOD_OPTIONS) == 0) return reply_preflight(x);
    if (!r) return http_reply_not_found(x);
    if (!route_has_method(r, method)) return reply_wrong_method(x, method);
    if (!may_call(x, r)) return refuse_access(x);
    if (x->state == EXCHANGE_ENDING && !r->always) return http_reply_error(x, generation_stopped_error(&error));
    if (x->state == EXCHANGE_LOADING && !r->always) return refuse_loading(x);
    const char *coding = http_header(x, MHD_HTTP_HEADER_CONTENT_ENCODING);
    if (coding && strcasecmp(coding, "identity") != 0) return refuse_coding(x, coding);
    if (x->body_use == BODY_TOO_LARGE) return refuse_size(x);
    if (x->body_use == BODY_NO_MEMORY) return http_reply_error(x, generation_memory_error(&error));
    if (x->body_use == BODY_NO_SHARE) return refuse_share(x);
    if (x->body_use == BODY_NO_TRANSFER) return batches_refuse_transfer(x);
    return r->kind ? generation_begin(x, r->kind) : r->handle(x);
}

/* ---- The request ---- */

/* The path in a request's target. */
static const char *path_of(const http_exchange *x, const char *target) {
    const char *path = target + x->target.path;
    return x->target.host > 0 && !*path ? "/" : path;
}

/* Count the request as one that is to be answered before the server ends, unless it came too late. */
static exchange_state accept_unless_ending(http_server *s) {
    atomic_fetch_add(&s->n_requests, 1);
    if (!atomic_load(&s->drains))
        return atomic_load_explicit(&s->serves, memory_order_acquire) ? EXCHANGE_SERVED : EXCHANGE_LOADING;
    atomic_fetch_sub(&s->n_requests, 1);
    return EXCHANGE_ENDING;
}

bool http_set_request_id(http_exchange *x, const char *id) {
    const bool fits = id && openai_is_request_id(id);
    if (fits) snprintf(x->request_id, sizeof x->request_id, "%s", id);
    return fits;
}

/* Take the client's id of the request, or make one. */
static void begin_request_id(http_exchange *x) {
    x->is_named = http_set_request_id(x, http_header(x, "X-Request-Id"));
    if (!x->is_named) openai_random_id(x->request_id); /* "" without random bytes */
}

/* In whose shape the answer is, also if it is an error of HTTP: that of the path's route, or of the API that it is part of. */
static const openai_dialect *dialect_of(const char *path, const http_route *r) {
    static const struct {
        const char *path;
        const openai_dialect *dialect;
    } apis[] = {{"/v1/messages", &anthropic_messages}, {"/api", &ollama_chat}};
    if (r && r->dialect) return r->dialect;
    for (size_t i = 0; i < sizeof apis / sizeof *apis; i++) {
        const size_t size = strlen(apis[i].path);
        if (strncmp(path, apis[i].path, size) == 0 && strchr("/", path[size])) return apis[i].dialect;
    }
    return &openai_chat;
}

static bool head_has_no_zero(http_exchange *x, const char *target, const char *method, const char *version,
                             openai_error *error) {
    if (!x->zero_in_target && !head_has_zero(x->connection, method, target, x->target_size, version)) return true;
    openai_fail(error, NULL,
                "the URL or a header contains a zero character, or a header has several lines; send one line without it");
    error->code = "zero_character";
    return false;
}

/* Check the head of a request. True: the request is accepted. Otherwise it was refused with *result. */
static bool check_head(http_exchange *x, const char *target, const char *method, const char *version, enum MHD_Result *result) {
    const http_route *r = route_find(path_of(x, target), method);
    host_text host;
    openai_error error;
    x->state = EXCHANGE_REFUSED;
    x->dialect = dialect_of(path_of(x, target), r);
    begin_request_id(x);
    if (!head_has_no_zero(x, target, method, version, &error) || !head_is_clear(x, method, target, version, &host, &error) ||
        !browser_may_call(x, method, host, &error)) {
        x->last = true; /* libmicrohttpd does not wait for the body, and closes the connection after the reply */
        *result = http_reply_error(x, &error);
        return false;
    }
    x->last = !acceptor_is_within(x->srv->arrivals, socket_of(x->connection));
    if (!x->last || (r && r->beyond_limit)) return true;
    *result = refuse_beyond(x);
    return false;
}

/* Begin a request whose head is complete. True: *result is the result of http_on_request. */
static bool begin(http_exchange *x, const char *target, const char *method, const char *version, enum MHD_Result *result) {
    snprintf(x->method, sizeof x->method, "%s", method);
    snprintf(x->endpoint, sizeof x->endpoint, "%s", path_of(x, target));
    if (!check_head(x, target, method, version, result)) return true;
    x->state = accept_unless_ending(x->srv);
    x->last |= x->state == EXCHANGE_ENDING;
    find_key(x);
    const char *path = path_of(x, target);
    body_begin(x, route_find(path, method), wants_body(x, path, method));
    *result = MHD_YES;
    return !body_is_answered_unread(x);
}

enum MHD_Result http_on_request(void *cls, struct MHD_Connection *connection, const char *target, const char *method,
                                const char *version, const char *upload, size_t *upload_size, void **state) {
    (void)cls;
    http_exchange *x = *state;
    enum MHD_Result result;
    if (!x) return MHD_NO; /* memory was lacking */
    if (x->state == EXCHANGE_BEGINS && begin(x, target, method, version, &result)) return result;
    if (*upload_size > 0) {
        acceptor_body_arrives(x->srv->arrivals, socket_of(connection), *upload_size);
        const bool goes_on = body_add(x, upload, *upload_size);
        *upload_size = 0;
        return goes_on ? MHD_YES : MHD_NO;
    }
    if (x->gen) return generation_resumed(x);
    acceptor_request_complete(x->srv->arrivals, socket_of(connection));
    x->path = path_of(x, target);
    return dispatch(x, method);
}

void http_on_connection(void *cls, struct MHD_Connection *connection, void **state, enum MHD_ConnectionNotificationCode code) {
    const http_server *s = cls;
    (void)state;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        wire_close(socket_of(connection));
        acceptor_connection_ends(s->arrivals, socket_of(connection));
        return;
    }
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    wire_open(socket_of(connection), info && info->tls_session);
    if (info && info->tls_session) tls_use(s->config.tls, info->tls_session);
}

void *http_on_request_line(void *cls, const char *target, struct MHD_Connection *connection) {
    http_server *s = cls;
    acceptor_request_begins(s->arrivals, socket_of(connection));
    http_exchange *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    x->srv = s;
    x->arrived_at = clock_seconds();
    x->connection = connection;
    x->dialect = &openai_chat;
    x->target_size = strlen(target);
    x->target = target_read(target);
    x->zero_in_target = strstr(target, "%00");
    return x;
}

void http_on_completed(void *cls, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode code) {
    http_server *s = cls;
    acceptor_request_ends(s->arrivals, socket_of(connection));
    http_exchange *x = *state;
    if (!x) return;
    *state = NULL;
    if (x->state != EXCHANGE_BEGINS) log_exchange(x, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    if (x->gen) generation_close(x->gen);
    batches_end_upload(x->srv, x->domain, x->upload);
    shares_give_back(&s->memory, x->domain, x->counted);
    if (x->state >= EXCHANGE_LOADING) atomic_fetch_sub(&s->n_requests, 1);
    free(x->body);
    free(x->message);
    free(x);
}
