/*
 * One HTTP exchange: receives the request, finds its route, queues the reply. All functions run on the connection's thread.
 */
#ifndef SERVE_HTTP_HTTP_H
#define SERVE_HTTP_HTTP_H

#include "server_state.h"

/* How far the server goes into a request, which its complete head decides. */
typedef enum exchange_state {
    EXCHANGE_BEGINS,  /* its head is not complete */
    EXCHANGE_REFUSED, /* for its head, or since the connection is beyond the limit */
    EXCHANGE_ENDING,  /* the server was to end, so only routes that work always are served */
    EXCHANGE_LOADING, /* the same, since the server did not serve its model yet; counted in n_requests of the server */
    EXCHANGE_SERVED,  /* counted likewise */
} exchange_state;

/* What becomes of a request's body. */
typedef enum exchange_body {
    BODY_READ,
    BODY_UNWANTED,    /* no handler will read it; this one and the next four are dropped */
    BODY_TOO_LARGE,   /* it exceeds the limit */
    BODY_NO_MEMORY,   /* memory is lacking for it */
    BODY_NO_SHARE,    /* its tenant would hold more than its share of --request-memory */
    BODY_NO_TRANSFER, /* its tenant transfers as many files as it may */
} exchange_body;

/* A part of a head: a host, perhaps with a port. */
typedef struct host_text {
    const char *at;
    size_t size;
} host_text;

/* The parts of a request's target: a path, a whole URL of http or https, or "*" (RFC 9112, 3.2). */
typedef struct http_target {
    bool is_valid; /* false: it is none of these, and the next two are 0 */
    size_t host;   /* where a URL's host begins; 0: the target is no URL */
    size_t path;   /* where the path begins, and the host ends */
} http_target;

/* A request and its reply. It lives from the request's first line until http_on_completed, on its connection's thread. */
typedef struct http_exchange {
    http_server *srv;
    struct MHD_Connection *connection;
    const char *path; /* without the query; valid while a route's handler runs */
    char *body;       /* [body_size], owned, not terminated; generation_begin takes it over */
    size_t body_size, body_capacity;
    size_t counted;             /* bytes of it that are counted in srv->memory */
    size_t droppable;           /* bytes that may still be dropped; beyond them the connection is closed */
    struct http_upload *upload; /* receives the body instead, of a route with `upload`; owned; NULL: nothing does */
    size_t body_limit;          /* bytes */
    size_t target_size;         /* of the target as it was sent, with its query */
    http_target target;
    bool has_key;      /* the client has sent an API key of the server */
    uint32_t domain;   /* of its tenant; 0 without a key */
    quota_state quota; /* of its tenant, if the request is counted; for headers */
    exchange_state state;
    exchange_body body_use;
    bool zero_in_target;                        /* the target contains %00 */
    bool last;                                  /* the connection ends with the reply */
    char method[8], endpoint[96];               /* the path, as it was sent, for the log; longer ones are cut */
    double arrived_at;                          /* clock_seconds() when the first line came */
    char request_id[OPENAI_MAX_REQUEST_ID + 1]; /* that the reply has: the client's X-Request-Id, or a random one; "": none */
    bool is_named;                              /* it is the client's */
    unsigned status;                            /* of the reply; 0: none was queued */
    const char *failure;                        /* the code or type of the error that it reports, a static string; NULL: none */
    char *message;                              /* its message, if the log has messages; owned; NULL: none */
    struct http_generation *gen;                /* the generation that the connection waits for; NULL: none */
    const openai_dialect *dialect;              /* that of the path's route; openai_chat for routes that have none */
} http_exchange;

/* ---- Callbacks of the daemon; cls is the server ---- */

void http_on_connection(void *cls, struct MHD_Connection *connection, void **state, enum MHD_ConnectionNotificationCode code);
void *http_on_request_line(void *cls, const char *target, struct MHD_Connection *connection);
enum MHD_Result http_on_request(void *cls, struct MHD_Connection *connection, const char *target, const char *method,
                                const char *version, const char *upload, size_t *upload_size, void **state);
void http_on_completed(void *cls, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode code);

/*
 * ---- Replies ----
 *
 * A route's handler ends with one of these, and returns its result. If memory is lacking for the reply, they reply with a
 * constant error of status 500.
 */

/* Create and destroy that reply in all dialects, since there may be no memory for it later. False: memory is lacking. */
bool http_create_no_memory_replies(http_server *s);
void http_destroy_no_memory_replies(http_server *s);

/* Reply with it. */
enum MHD_Result http_reply_no_memory(http_exchange *x);

/* Reply with text [size], which is freed afterwards; NULL: memory was lacking for it. */
enum MHD_Result http_reply(http_exchange *x, unsigned status, const char *type, char *text, size_t size);

/* Reply with the JSON that was written; the writer is empty afterwards. */
enum MHD_Result http_reply_json(http_exchange *x, unsigned status, openai_writer *json);

/* The same with one more header. A reply of status 304 has no JSON: NULL. */
enum MHD_Result http_reply_json_with(http_exchange *x, unsigned status, openai_writer *json, const char *header,
                                     const char *value);

/* Reply with the error object and its HTTP status. */
enum MHD_Result http_reply_error(http_exchange *x, const openai_error *error);

/* Whether the client has the version of the answer with this ETag; it then wants status 304. */
bool http_client_has(const http_exchange *x, const char *etag);

/* A header's value, or a parameter's of the query; NULL: it was not sent. */
const char *http_header(const http_exchange *x, const char *name);
const char *http_parameter(const http_exchange *x, const char *name);

/* Read a parameter as a whole number, >= 0; *value stays if it was not sent. False: *error says why. */
bool http_integer_parameter(const http_exchange *x, const char *name, int64_t min, int64_t max, int64_t *value,
                            openai_error *error);

/* Let the reply have this id of the request. False: it cannot be the value of a header; NULL and "" cannot either. */
bool http_set_request_id(http_exchange *x, const char *id);

/* Reply that there is no endpoint with the request's path. */
enum MHD_Result http_reply_not_found(http_exchange *x);

/* Queue a response with the headers that every reply has. Takes the response over; NULL closes the connection. */
enum MHD_Result http_queue(http_exchange *x, unsigned status, const char *type, struct MHD_Response *response);

/* ---- Bodies (body.c) ---- */

struct http_route;

/* Decide by the headers alone what becomes of the body. r: the route of the path, or NULL; wanted: a handler reads the body. */
void body_begin(http_exchange *x, const struct http_route *r, bool wanted);

/* Whether the answer is known before the body, and the client need not send it: it waits to hear so, or the body is long. */
bool body_is_answered_unread(http_exchange *x);

/* Add a piece of the body. False: it has no end, as far as bytes are dropped, and the connection is to be closed. */
bool body_add(http_exchange *x, const char *data, size_t size);

/* ---- Browsers (browser.c) ---- */

/*
 * Whether the request may be served, as far as web pages in browsers are concerned. host: that it is for; size 0: it names
 * none. False: *error says why not.
 */
bool browser_may_call(const http_exchange *x, const char *method, host_text host, openai_error *error);

/* ---- Hosts (host.c) ---- */

host_text host_without_port(host_text h);
host_text host_without_blanks(host_text h); /* behind it */

/* Whether it is an IP address, of IPv6 in brackets. */
bool host_is_address(host_text h);

/* Whether it is such an address, or a name of letters, digits and "-._~", with at most a port. */
bool host_is_valid(host_text h);

/* Find the parts of a target as it was sent. They contain no %XX, so the decoded target has them at the same places. */
http_target target_read(const char *target);

/* ---- Heads (head.c) ---- */

/*
 * Whether a proxy before the server reads the target and the fields of a head, and where its body ends, as the server does.
 * *host becomes the one that the request is for: that of a target that is a URL, or else that of Host (RFC 9112, 3.2.2).
 * False: *error says why not.
 */
bool head_is_clear(const http_exchange *x, const char *method, const char *target, const char *version, host_text *host,
                   openai_error *error);

/*
 * Whether the head of a request contains a zero character, outside its body. method, target and version are those that
 * http_on_request receives first; target_size is the length of the target that http_on_request_line received.
 */
bool head_has_zero(struct MHD_Connection *connection, const char *method, const char *target, size_t target_size,
                   const char *version);

/* ---- Routes (routes.c) ---- */

/* Who may use a route of a server with API keys. */
typedef enum route_access {
    ROUTE_ALL,
    ROUTE_TENANTS,  /* clients with any key */
    ROUTE_MONITOR,  /* all, but if there are several tenants only clients with a key of the tenant "default" */
    ROUTE_OPERATOR, /* clients with a key of the tenant "default" */
} route_access;

typedef struct http_route {
    const char *path;
    const char *method;
    bool prefix;        /* the route also serves all longer paths that begin with `path` */
    const char *suffix; /* with prefix: only paths of `path`, a name without slashes, and this text; NULL: any */
    bool upload;        /* the body is a form with a file, which goes to the disk (upload.h) */
    bool always;        /* it also works before the server serves a model, and when it is to end */
    bool beyond_limit;  /* it also works on connections beyond the limit */
    route_access access;
    enum MHD_Result (*handle)(http_exchange *x); /* answers at once; NULL with `kind` */
    const struct generation_kind *kind;          /* how its requests are read and answered, if answering takes time */
    const openai_dialect *dialect;               /* of its requests and answers; NULL: errors are those of openai_chat */
} http_route;

/* The route that serves a path with a method; the first one of the path if none does; NULL: no method serves it. */
const http_route *route_find(const char *path, const char *method);

/* Whether a route's method is this one, or HEAD for GET: libmicrohttpd omits the body of the reply. */
bool route_has_method(const http_route *r, const char *method);

/* Write the methods that serve a path, such as "GET, HEAD, POST", to text [size]. */
void route_list_methods(const char *path, char *text, size_t size);

/* ---- Files in the program (page.c) ---- */

/* A file of the sources. cmake/embed.cmake writes the table of them. */
typedef struct http_file {
    const char *path; /* from serve/, such as "web/app.js" */
    const unsigned char *bytes;
    size_t size;
    const char *etag; /* as in a header; it differs where the bytes differ */
} http_file;

extern const http_file embedded_files[]; /* [n_embedded_files] */
extern const size_t n_embedded_files;

/* Whether the request asks for the page rather than the list of endpoints, as browsers do, and the server has it. */
bool page_is_wanted(const http_exchange *x);

enum MHD_Result page_handle_index(http_exchange *x);   /* the page itself */
enum MHD_Result page_handle_file(http_exchange *x);    /* its files: /web/NAME */
enum MHD_Result page_handle_openapi(http_exchange *x); /* the API's description, openapi.json */

#endif
