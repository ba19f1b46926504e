/*
 * OpenAI-compatible HTTP/1.1 server over an engine: /v1/chat/completions, /v1/completions, /v1/models, /health, /metrics.
 *
 * Runs between server_start and server_stop on threads of its own, in which all signals are blocked.
 */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "llama/model.h"
#include "openai/openai.h"

typedef struct server server;

/* Fill with server_config_init, then change what you need. Strings are borrowed until server_stop. */
typedef struct server_config {
    const char *host;        /* address or name to listen on; default "127.0.0.1" */
    uint16_t port;           /* 0: any free one, see server_port; default 8080 */
    const char *model_name;  /* as clients see it; NULL (default): cl_model_file_name of its path. UTF-8 */
    cl_chat_format chat;     /* default: the model's */
    openai_defaults request; /* for what requests leave out; default: OpenAI's */
    const char *api_key;     /* what clients must send as "Authorization: Bearer KEY" to /v1; NULL (default): nothing */
    const char *cors_origin; /* web pages of this origin may call the server, "*": all; NULL (default): none */
    size_t max_body_bytes;   /* larger requests get 413; default 16 MiB */
    int32_t max_connections; /* further ones wait to be accepted; default 1024 */
    int32_t timeout_s;       /* a connection that neither sends nor takes bytes for so long is closed; default 60 */
    int32_t n_threads;       /* that receive requests and write answers; one more reads them; default 2 */
} server_config;

void server_config_init(server_config *config, const cl_model *m);

/*
 * Listen and serve. e and m are borrowed until server_stop.
 * Errors: CL_ERR_ARG names the field; CL_ERR_FILE when host and port cannot be listened on, saying why; CL_ERR_NOMEM.
 */
cl_status server_start(const server_config *config, cl_engine *e, const cl_model *m, server **s, cl_error *error);

/* The port that is listened on. */
uint16_t server_port(const server *s);

/* The model's name as clients see it. */
const char *server_model_name(const server *s);

/*
 * Accept no more, cancel what is being generated (its clients are told), let answers go out for up to two seconds, free
 * everything and set *s to NULL. NULL and pointers to NULL are ignored.
 */
void server_stop(server **s);

#endif
