/* One HTTP exchange: the request collected, its route found, the reply queued. */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include "server_state.h"

typedef struct exchange {
    server *server;
    struct MHD_Connection *connection;
    const char *path; /* during a route's handler */
    char *body;       /* not terminated */
    size_t body_size, body_capacity;
    bool too_large;                /* the body; what came of it was dropped */
    bool unwanted;                 /* the body: the request is refused whatever it holds, or has no use for it */
    struct generation *generation; /* what the connection waits for; NULL: nothing */
} exchange;

/* Callbacks of the daemon; cls is the server. */
enum MHD_Result http_on_request(void *cls, struct MHD_Connection *connection, const char *target, const char *method,
                                const char *version, const char *upload, size_t *upload_size, void **state);
void http_on_completed(void *cls, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode code);

/* Replies. What is given is taken over and freed; NULL (no memory) closes the connection. */
enum MHD_Result http_reply(exchange *x, unsigned status, const char *type, char *text, size_t size);
enum MHD_Result http_reply_json(exchange *x, unsigned status, json_t *json);
enum MHD_Result http_reply_error(exchange *x, const openai_error *error);
/* With the headers every reply has. */
enum MHD_Result http_queue(exchange *x, unsigned status, const char *type, struct MHD_Response *response);

#endif
