/*
 * An OpenAI-compatible HTTP/1.1 server on an engine. routes.c lists its endpoints.
 *
 * It listens from server_start on, before its model is loaded, so that its user can tell a server that loads from
 * one that is gone, and a port that is in use is noticed at once. Until server_serve it answers most requests with status 503.
 *
 * Between server_start and server_stop it runs on threads of its own, in which all signals are blocked. generation.h describes
 * these threads and the order of the locks. All functions here are called on the program's thread.
 */
#ifndef SERVE_HTTP_SERVER_H
#define SERVE_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkllama/engine/engine.h"
#include "chunkllama/model/model.h"
#include "keys.h"
#include "log.h"
#include "serve/protocol/openai.h"
#include "tls.h"

typedef struct http_server http_server;

enum { SERVER_DEFAULT_PORT = 8080 };

/*
 * The settings of a server. Fill them with server_config_init, then change fields as needed. Strings, keys, sockets and
 * TLS are borrowed until server_stop.
 */
typedef struct server_config {
    const char *host;          /* address or name to listen on; default "127.0.0.1"; NULL: no port, only unix_listener */
    uint16_t port;             /* default SERVER_DEFAULT_PORT; 0: any free port, which server_port reports */
    http_tls *tls;             /* encrypts the connections to the port, not those of unix_listener; NULL (default): none are */
    int unix_listener;         /* also accept connections from this Unix socket, which listens; -1 (default): there is none */
    const char *model_name;    /* the model's name for clients, UTF-8; NULL (default): cl_model_file_name of model_path */
    const char *model_path;    /* default "model" */
    const openai_names *names; /* that requests may send; NULL (default): any, and /v1/models lists model_name */
    /*
     * Values of fields that requests leave out, and those of requests by llama-server's names and of the page, read by
     * server_serve; NULL (default): OpenAI's.
     */
    const openai_defaults *request, *local;
    const server_keys *keys; /* clients must send "Authorization: Bearer KEY" to /v1; NULL (default): no key is needed */
    const char *cors_origin; /* web pages of this origin may call the server, "*": all pages; NULL (default): none */
    /*
     * Names, separated by commas or blanks, by which clients may address the server beside "localhost" and addresses, "*": any.
     * NULL (default): any, unless no key is needed and only this machine can connect (browser.c says why).
     */
    const char *allowed_hosts;
    bool no_page;          /* browsers get no page at /, only the list of endpoints; default false */
    size_t max_body_bytes; /* larger requests are refused with status 413; default 16 MiB */
    /*
     * Bytes that bodies which arrive, and requests which wait or run, take together, beyond REQUEST_BYTES of each; of a tenant
     * at most as much as it leaves free (shares.h). Beyond that large requests are refused with status 503, and those that
     * never fit with 400 or 413; default 512 MiB.
     */
    size_t request_memory;
    /*
     * Further connections are refused with status 503; default 1024. server_start raises the process's soft limit of open files
     * for them, and allows fewer if the hard limit is too low.
     */
    int32_t max_connections;
    int32_t timeout_s; /* seconds after which an idle connection is closed; default 60 */
    /* Seconds for a request to arrive, and one more for each 64 KiB of its body; default 10. */
    int32_t request_timeout_s;
    /* Seconds for preparing a request: reading its JSON, its chat, its tokens and its grammar, together; default 20. */
    double prepare_timeout_s;
    /* Seconds from a request's submission to the engine after which it ends with status 504; 0 (default): no limit. */
    double generation_timeout_s;
    /* Seconds from then for which a request may wait, after which it is refused with status 429; 0 (default): no limit. */
    double queue_timeout_s;
    bool has_grammars;  /* requests may have a grammar; default true */
    bool can_pin;       /* the engine has pin_bytes, so /cache/pin may be used; default false */
    int32_t chunk_size; /* tokens of a chunk of the engine's K/V cache, for /metrics and /cache; default 64 */
    int32_t max_seqs;   /* sequences that the engine has at once, for /cache; default 32 */
    /*
     * The folder of files and batches (serve/batches/store.h), which is created if its parent exists; NULL (default): there are
     * none. One server at a time has it. Strings of keys' tenants must mean the same in all servers that use it.
     */
    const char *files_dir;
    int64_t max_file_bytes;  /* of a file that a client sends; default 512 MiB */
    int32_t batch_choices;   /* choices of batches in the engine at once; default 24 */
    server_log *log;         /* where lines about requests go; NULL (default): nowhere */
    bool log_prompts;        /* they have prompts, and messages of errors, which may quote them; default false */
    double log_load_s;       /* seconds between two lines about the load of a busy server; 0: none; default 10 */
    int32_t metrics_tenants; /* tenants whose tokens /metrics has, at most METRICS_MOST_TENANTS; default 0 */
    int32_t n_threads;       /* threads that receive requests and write answers, besides those that prepare them; default 2 */
} server_config;

/* Set all fields to their defaults. */
void server_config_init(server_config *config);

/*
 * Open files_dir, and listen. Two settings of the process change: the soft limit of open files, if it is too low for
 * max_connections, and jansson's allocation functions, so no other thread may use jansson meanwhile. Errors: CL_ERR_ARG for a
 * host or an origin that cannot be; CL_ERR_FILE says why host and port cannot be listened on, or why files_dir cannot be used;
 * CL_ERR_FORMAT names a damaged file there; CL_ERR_LIMIT if the limit of open files is too low for any connections;
 * CL_ERR_NOMEM.
 */
cl_status server_start(const server_config *config, http_server **s, cl_error *error);

/*
 * From now on serve a model; to be called once. chat: how chats are written; NULL: chats are refused. chat_kwargs: variables of
 * the chat template that requests do not set, an object; NULL: none. All are borrowed until server_stop.
 */
void server_serve(http_server *s, cl_engine *e, const cl_model *m, const cl_chat *chat, const json_t *chat_kwargs);

/*
 * From now on accept these keys and no others; requests that were accepted go on. *keys is taken over, and empty afterwards;
 * its weights do not count, since they are the engine's, and the use of quotas stays counted. Errors, after which no key has
 * changed, are those of keyring_replace (keyring.h); CL_ERR_NOMEM if memory is lacking for the quotas.
 */
cl_status server_replace_keys(http_server *s, server_keys *keys, cl_error *error);

/*
 * Expire the pins of cache_control whose TTL has passed, so that an idle server returns their memory, and that of large
 * requests which ended before the last call. To be called every few seconds on one thread, after server_serve.
 */
void server_tick(http_server *s);

/*
 * Log the load, and what has failed in the file tier, if config.log_load_s seconds, or 10, have passed since the last time.
 * Returns the seconds after which to call again. After server_serve.
 */
double server_log_load(http_server *s);

/*
 * Begin to end: from now on /readyz and all requests but those for the server's state get status 503, connections without a
 * request are closed, and batches begin no more requests. What was accepted before goes on.
 */
void server_drain(http_server *s);

/* The requests that were accepted and whose answers have not been sent yet; those of batches do not count. */
int32_t server_n_requests(const http_server *s);

/* The port that the server listens on; 0: none. And whether it takes connections of this machine alone. */
uint16_t server_port(const http_server *s);
bool server_is_local(const http_server *s);

/* The model's name for clients; valid until server_stop. */
const char *server_model_name(const http_server *s);

/*
 * Drain, accept no more connections, end all generations with an error, let pending answers be sent for up to two seconds, free
 * everything, and set *s to NULL. NULL and pointers to NULL are ignored.
 */
void server_stop(http_server **s);

#endif
