/* An OpenAI endpoint: where it is, and what a libcurl handle needs to speak with it. */
#ifndef LOADGEN_ENDPOINT_H
#define LOADGEN_ENDPOINT_H

#include <curl/curl.h>

#include "llama/common/error.h"

typedef struct endpoint {
    const char *url; /* "http://127.0.0.1:8080", without /v1 */
    struct curl_slist *headers;
} endpoint;

/* api_key NULL: none. Borrows url. Free with endpoint_close. */
cl_status endpoint_open(endpoint *e, const char *url, const char *api_key, cl_error *error);
void endpoint_close(endpoint *e);

/* A handle for a request of its path, "/v1/completions" or the like; body NULL: GET. Borrows body. NULL without memory. */
CURL *endpoint_request(const endpoint *e, const char *path, const char *body);

/* The name of the first model that /v1/models lists, allocated. */
cl_status endpoint_model(const endpoint *e, char **name, cl_error *error);

#endif
