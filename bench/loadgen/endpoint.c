/* Prepares requests to an endpoint, posts JSON to it, and asks it for its model. */
#include "endpoint.h"

#include <stdio.h>

#include "buffer.h"

enum { MAX_URL = 1024 /* bytes */, GET_TIMEOUT_S = 30 };

cl_status load_endpoint_open(load_endpoint *e, const char *url, const char *api_key, cl_error *error) {
    *e = (load_endpoint){.url = url};
    if (strlen(url) > MAX_URL / 2) return cl_fail(error, CL_ERR_ARG, "--url has more than %d characters", MAX_URL / 2);
    if (curl_global_init(CURL_GLOBAL_ALL) != CURLE_OK) return cl_fail(error, CL_ERR_NOMEM, "libcurl cannot start");
    char line[1024];
    const char *lines[] = {"Content-Type: application/json", "Expect:", NULL}; /* do not wait for "100 Continue" */
    if (api_key) {
        if ((size_t)snprintf(line, sizeof line, "Authorization: Bearer %s", api_key) >= sizeof line)
            return cl_fail(error, CL_ERR_ARG, "--api-key has more than %zu characters", sizeof line - 32);
        lines[2] = line;
    }
    for (int i = 0; i < 3 && lines[i]; i++) {
        struct curl_slist *longer = curl_slist_append(e->headers, lines[i]);
        if (!longer) return cl_fail(error, CL_ERR_NOMEM, "no memory for headers");
        e->headers = longer;
    }
    return CL_OK;
}

void load_endpoint_close(load_endpoint *e) {
    curl_slist_free_all(e->headers);
    e->headers = NULL;
    curl_global_cleanup();
}

CURL *load_endpoint_request(const load_endpoint *e, const char *path, const char *body) {
    char url[MAX_URL];
    const size_t size = strlen(e->url);
    snprintf(url, sizeof url, "%.*s%s", (int)(size && e->url[size - 1] == '/' ? size - 1 : size), e->url, path);
    CURL *curl = curl_easy_init();
    if (!curl) return NULL;
    CURLcode code = curl_easy_setopt(curl, CURLOPT_URL, url);
    if (code == CURLE_OK) code = curl_easy_setopt(curl, CURLOPT_HTTPHEADER, e->headers);
    if (code == CURLE_OK) code = curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    if (code == CURLE_OK) code = curl_easy_setopt(curl, CURLOPT_PROXY, ""); /* a proxy would be measured, too */
    if (code == CURLE_OK && body) code = curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
    if (code == CURLE_OK && body) code = curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    if (code == CURLE_OK) return curl;
    curl_easy_cleanup(curl);
    return NULL;
}

/* libcurl's callback: append the bytes to the buffer ctx. */
static size_t keep(char *bytes, size_t one, size_t size, void *ctx) {
    (void)one;
    return load_buffer_add(ctx, bytes, size) ? size : 0;
}

/* Wait for the answer to a request of at most timeout_s seconds (0: no limit), and keep it. */
static CURLcode perform(CURL *curl, long timeout_s, load_buffer *answer, long *http_status) {
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, keep);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, timeout_s);
    const CURLcode code = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, http_status);
    curl_easy_cleanup(curl);
    return code;
}

static cl_status unreachable(const load_endpoint *e, CURLcode code, cl_error *error) {
    return cl_fail(error, CL_ERR_FILE, "cannot reach %s: %s; --url names the endpoint, without /v1", e->url,
                   curl_easy_strerror(code));
}

cl_status load_endpoint_post(const load_endpoint *e, const char *path, const char *body, long *http_status, json_t **answer,
                             cl_error *error) {
    load_buffer text = {0};
    *answer = NULL;
    CURL *curl = load_endpoint_request(e, path, body);
    if (!curl) return cl_fail(error, CL_ERR_NOMEM, "no memory for a request");
    const CURLcode code = perform(curl, 0, &text, http_status);
    if (code == CURLE_OK) *answer = json_loadb(text.size ? text.bytes : "", text.size, 0, NULL);
    load_buffer_free(&text);
    if (code == CURLE_WRITE_ERROR)
        return cl_fail(error, CL_ERR_FORMAT, "the answer of %s%s has more than %d bytes", e->url, path, LOAD_BUFFER_MAX);
    return code == CURLE_OK ? CL_OK : unreachable(e, code, error);
}

cl_status load_endpoint_model(const load_endpoint *e, char **name, cl_error *error) {
    load_buffer body = {0};
    long http_status = 0;
    *name = NULL;
    CURL *curl = load_endpoint_request(e, "/v1/models", NULL);
    if (!curl) return cl_fail(error, CL_ERR_NOMEM, "no memory for a request");
    const CURLcode code = perform(curl, GET_TIMEOUT_S, &body, &http_status);
    json_t *list = json_loadb(body.size ? body.bytes : "", body.size, 0, NULL);
    const char *id = json_string_value(json_object_get(json_array_get(json_object_get(list, "data"), 0), "id"));
    cl_status status = CL_OK;
    if (code == CURLE_WRITE_ERROR)
        status = cl_fail(error, CL_ERR_FORMAT, "%s/v1/models has more than %d bytes; name the model with --model-name", e->url,
                         LOAD_BUFFER_MAX);
    else if (code != CURLE_OK)
        status = unreachable(e, code, error);
    else if (http_status == 404)
        status =
            cl_fail(error, CL_ERR_FORMAT, "there is no %s/v1/models (HTTP 404); --url names the endpoint, without /v1", e->url);
    else if (http_status != 200 || !id)
        status = cl_fail(error, CL_ERR_FORMAT, "%s/v1/models answered HTTP %ld%s; --model-name and --api-key may be missing",
                         e->url, http_status, http_status == 200 ? " without a model" : "");
    else if (!(*name = strdup(id)))
        status = cl_fail(error, CL_ERR_NOMEM, "no memory for the model's name");
    json_decref(list);
    load_buffer_free(&body);
    return status;
}
