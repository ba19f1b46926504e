/* An OpenAI endpoint: its address, and libcurl handles for requests to it. */
#ifndef BENCH_LOADGEN_ENDPOINT_H
#define BENCH_LOADGEN_ENDPOINT_H

#include <curl/curl.h>
#include <jansson.h>

#include "chunkllama/common/error.h"

typedef struct load_endpoint {
    const char *url;            /* such as "http://127.0.0.1:8080", without /v1; borrowed */
    struct curl_slist *headers; /* of every request, owned */
} load_endpoint;

/*
 * Initialise libcurl and the headers. url is borrowed until load_endpoint_close, which is also due after a failure; api_key
 * (NULL: none) for the call only. Errors: CL_ERR_ARG: url or api_key is too long; CL_ERR_NOMEM.
 */
cl_status load_endpoint_open(load_endpoint *e, const char *url, const char *api_key, cl_error *error);
void load_endpoint_close(load_endpoint *e);

/*
 * A new handle for a request to a path such as "/v1/completions"; NULL if memory is lacking. The caller frees it with
 * curl_easy_cleanup. body is the JSON text to post, borrowed while the handle lives; NULL: a GET request.
 */
CURL *load_endpoint_request(const load_endpoint *e, const char *path, const char *body);

/*
 * Post a JSON text to a path, and wait for the answer. *http_status is its status, and *answer its JSON, for the caller to free
 * with json_decref; NULL: it is no JSON. CL_ERR_FILE: the endpoint cannot be reached; CL_ERR_FORMAT: the answer is too long;
 * CL_ERR_NOMEM.
 */
cl_status load_endpoint_post(const load_endpoint *e, const char *path, const char *body, long *http_status, json_t **answer,
                             cl_error *error);

/*
 * Set *name to the first model that /v1/models lists, allocated for the caller. Errors: CL_ERR_FILE: the endpoint cannot be
 * reached; CL_ERR_FORMAT: its answer has no model; CL_ERR_NOMEM.
 */
cl_status load_endpoint_model(const load_endpoint *e, char **name, cl_error *error);

#endif
