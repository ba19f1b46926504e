/* Serves the files that are part of the program: the page that browsers get at /, with its own files, and openapi.json. */
#include <stdio.h>
#include <string.h>

#include "http.h"

static const char index_path[] = "web/index.html";

/*
 * The page loads only its own files and calls only its own server, runs no script that a text could bring along, and is not
 * shown inside other pages.
 */
static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static const http_file *find(const char *path) {
    for (size_t i = 0; i < n_embedded_files; i++)
        if (strcmp(embedded_files[i].path, path) == 0) return &embedded_files[i];
    return NULL;
}

static const char *type_of(const char *path) {
    static const char *const types[][2] = {{".html", "text/html; charset=utf-8"},
                                           {".css", "text/css; charset=utf-8"},
                                           {".js", "text/javascript; charset=utf-8"},
                                           {".svg", "image/svg+xml"},
                                           {".json", "application/json"}};
    const char *end = strrchr(path, '.');
    for (size_t i = 0; end && i < sizeof types / sizeof *types; i++)
        if (strcmp(end, types[i][0]) == 0) return types[i][1];
    return "application/octet-stream";
}

/* Add headers, pairs of name and value. */
static bool add_headers(struct MHD_Response *response, const char *const (*headers)[2], size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!MHD_add_response_header(response, headers[i][0], headers[i][1])) return false;
    return true;
}

/*
 * Reply with a file. Browsers ask each time whether their copy is still the right one, so after an update of the program no
 * file of the page is older than the others.
 */
static enum MHD_Result reply_file(http_exchange *x, const http_file *file) {
    const char *const headers[][2] = {{MHD_HTTP_HEADER_ETAG, file->etag},
                                      {MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache"},
                                      {MHD_HTTP_HEADER_VARY, MHD_HTTP_HEADER_ACCEPT},
                                      {"Content-Security-Policy", policy},
                                      {"X-Content-Type-Options", "nosniff"},
                                      {"Referrer-Policy", "no-referrer"}};
    const bool known = http_client_has(x, file->etag);
    struct MHD_Response *response =
        MHD_create_response_from_buffer(known ? 0 : file->size, (void *)file->bytes, MHD_RESPMEM_PERSISTENT);
    if (response && !add_headers(response, headers, sizeof headers / sizeof *headers)) {
        MHD_destroy_response(response);
        response = NULL;
    }
    if (!response) return http_reply_no_memory(x);
    return http_queue(x, known ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK, type_of(file->path), response);
}

bool page_is_wanted(const http_exchange *x) {
    const char *accepted = http_header(x, MHD_HTTP_HEADER_ACCEPT);
    return !x->srv->config.no_page && accepted && strstr(accepted, "text/html");
}

enum MHD_Result page_handle_index(http_exchange *x) { return reply_file(x, find(index_path)); }

/* The page itself is only at /, since the addresses in it are relative to that. */
enum MHD_Result page_handle_file(http_exchange *x) {
    const http_file *file = x->srv->config.no_page ? NULL : find(x->path + 1);
    return file && strcmp(file->path, index_path) != 0 ? reply_file(x, file) : http_reply_not_found(x);
}

enum MHD_Result page_handle_openapi(http_exchange *x) { return reply_file(x, find("http/openapi.json")); }
