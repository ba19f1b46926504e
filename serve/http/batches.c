/* The endpoints /v1/files and /v1/batches. */
#include "batches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generation_state.h"
#include "serve/batches/batch.h"
#include "upload.h"

enum { RETRY_S = 1 }; /* seconds until a batch for which the disk or memory was lacking goes on */

static const char FILES_PATH[] = "/v1/files/", BATCHES_PATH[] = "/v1/batches/";

/* ---- Start and end ---- */

cl_status batches_open(http_server *s, cl_error *error) {
    const server_config *c = &s->config;
    if (!c->files_dir) return CL_OK;
    const cl_status status = store_open(c->files_dir, &s->files, error);
    if (status != CL_OK) return status;
    s->disk = preparer_create(generation_prepare);
    if (!s->disk) return cl_fail(error, CL_ERR_NOMEM, "cannot start a thread for files");
    const worker_config config = {
        .store = s->files, .max_choices = c->batch_choices, .max_line = c->max_body_bytes, .retry_s = RETRY_S};
    return worker_create(&config, &s->batches, error);
}

void batches_close(http_server *s) {
    preparer_destroy(&s->disk); /* its last tasks may wake the worker */
    worker_destroy(&s->batches);
    store_close(&s->files);
}

/* ---- The tenant, and the parameters of a list ---- */

static store_owner owner_of(http_server *s, uint32_t domain) {
    const char *name = keyring_tenant(&s->keys, domain);
    return (store_owner){.tenant = name ? name : OPENAI_DEFAULT_TENANT, .domain = domain};
}

/* Whether the server has a folder for files. False: *error says how to get one. */
static bool has_files(const http_server *s, openai_error *error) {
    if (s->files) return true;
    openai_fail(error, NULL, "this server keeps no files, so it has no batches; start it with --files-dir");
    return openai_set_status(error, MHD_HTTP_NOT_FOUND, "files_disabled");
}

/* Copy the id in a path behind `prefix` to id [STORE_ID]; one that is too long for an id is cut, and then unknown. */
static void read_id(const char *path, const char *prefix, char *id) {
    const char *begin = path + strlen(prefix);
    const size_t size = strcspn(begin, "/");
    snprintf(id, STORE_ID, "%.*s", (int)(size < STORE_ID ? size : STORE_ID), begin);
}

/* ---- Reading ---- */

/* Reply with the written body, or with the error if `ok` is false. */
static enum MHD_Result reply(http_exchange *x, bool ok, openai_writer *w, const openai_error *error) {
    if (ok) return http_reply_json(x, MHD_HTTP_OK, w);
    writer_free(w);
    return http_reply_error(x, error);
}

static enum MHD_Result get(http_exchange *x, store_kind kind, const char *prefix) {
    char id[STORE_ID];
    openai_writer w = {0};
    openai_error error;
    read_id(x->path, prefix, id);
    const bool ok = has_files(x->srv, &error) && store_get(x->srv->files, kind, x->domain, id, &w, &error);
    return reply(x, ok, &w, &error);
}

enum MHD_Result batches_get_file(http_exchange *x) { return get(x, STORE_FILE, FILES_PATH); }
enum MHD_Result batches_get_batch(http_exchange *x) { return get(x, STORE_BATCH, BATCHES_PATH); }

/* A parameter that may be empty, which is as if it were absent. */
static const char *text_parameter(const http_exchange *x, const char *name) {
    const char *value = http_parameter(x, name);
    return value && *value ? value : NULL;
}

/* Read the parameters of a list from the query. limit: that of a query without one. */
static bool read_query(const http_exchange *x, int64_t limit, int64_t most, store_query *query, openai_error *error) {
    const char *order = http_parameter(x, "order");
    query->after = text_parameter(x, "after");
    query->limit = limit;
    if (!http_integer_parameter(x, "limit", 1, most, &query->limit, error)) return false;
    if (order && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
        return openai_fail(error, "order", "order is '%.40s'; it must be asc or desc", order);
    query->oldest_first = order && strcmp(order, "asc") == 0;
    return true;
}

static enum MHD_Result list(http_exchange *x, store_kind kind, const store_query *query) {
    openai_writer w = {0};
    openai_error error;
    const bool ok = store_list(x->srv->files, kind, x->domain, query, &w, &error);
    return reply(x, ok, &w, &error);
}

enum MHD_Result batches_list_files(http_exchange *x) {
    store_query query = {0};
    openai_error error;
    if (!has_files(x->srv, &error) || !read_query(x, 10000, 10000, &query, &error)) return http_reply_error(x, &error);
    query.purpose = text_parameter(x, "purpose");
    return list(x, STORE_FILE, &query);
}

enum MHD_Result batches_list_batches(http_exchange *x) {
    store_query query = {0};
    openai_error error;
    if (!has_files(x->srv, &error) || !read_query(x, 20, 100, &query, &error)) return http_reply_error(x, &error);
    return list(x, STORE_BATCH, &query);
}

/* ---- Contents ---- */

/* Count a transfer; false: there are as many as there may be. */
static bool begin_transfer(http_server *s) {
    if (atomic_fetch_add(&s->n_transfers, 1) < BATCHES_MAX_TRANSFERS) return true;
    atomic_fetch_sub(&s->n_transfers, 1);
    return false;
}

static void end_transfer(http_server *s) { atomic_fetch_sub(&s->n_transfers, 1); }

http_upload *batches_begin_upload(http_exchange *x) {
    if (!begin_transfer(x->srv)) return NULL;
    http_upload *u = upload_begin(x->srv->files, x->connection, x->srv->config.max_file_bytes);
    if (!u) end_transfer(x->srv);
    return u;
}

void batches_end_upload(http_server *s, http_upload *u) {
    if (!u) return;
    upload_free(u);
    end_transfer(s);
}

/* A file that is being sent. */
typedef struct download {
    http_server *srv;
    int fd;
} download;

static ssize_t read_content(void *cls, uint64_t position, char *buf, size_t max) {
    const download *d = cls;
    const ssize_t n = pread(d->fd, buf, max, (off_t)position);
    return n > 0 ? n : MHD_CONTENT_READER_END_WITH_ERROR; /* the size was announced */
}

static void end_download(void *cls) {
    download *d = cls;
    close(d->fd);
    end_transfer(d->srv);
    free(d);
}

/* A response with the contents of a file of this size; NULL: memory is lacking, or there are too many transfers. */
static struct MHD_Response *content_response(http_server *s, int fd, uint64_t size) {
    const bool begun = begin_transfer(s);
    download *d = begun ? calloc(1, sizeof *d) : NULL;
    if (!d) {
        if (begun) end_transfer(s);
        close(fd);
        return NULL;
    }
    *d = (download){.srv = s, .fd = fd};
    struct MHD_Response *response = MHD_create_response_from_callback(size, 64 << 10, read_content, d, end_download);
    if (!response) end_download(d);
    return response;
}

enum MHD_Result batches_get_content(http_exchange *x) {
    char id[STORE_ID];
    int64_t size;
    openai_error error;
    if (!has_files(x->srv, &error)) return http_reply_error(x, &error);
    read_id(x->path, FILES_PATH, id);
    const int fd = store_open_file(x->srv->files, x->domain, id, &size, &error);
    if (fd < 0) return http_reply_error(x, &error);
    struct MHD_Response *response = content_response(x->srv, fd, (uint64_t)size);
    if (!response) return http_reply_error(x, generation_memory_error(&error));
    return http_queue(x, MHD_HTTP_OK, "application/octet-stream", response);
}

/* ---- Writing, on the thread for files ---- */

/* g->own of the kinds whose path has an id: the id; NULL: memory is lacking. */
static char *id_in(const http_exchange *x, const char *prefix) {
    char *id = calloc(1, STORE_ID);
    if (id) read_id(x->path, prefix, id);
    return id;
}

/* g->own of POST /v1/files. */
typedef struct received {
    http_server *srv;
    http_upload *file; /* NULL: the server has no folder for it */
} received;

/* Take over the received body; NULL: memory is lacking. */
static received *take_upload(http_exchange *x) {
    received *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    if (x->upload) upload_complete(x->upload);
    *r = (received){.srv = x->srv, .file = x->upload};
    x->upload = NULL;
    return r;
}

static void release_upload(void *own) {
    received *r = own;
    batches_end_upload(r->srv, r->file);
    free(r);
}

static bool create_file(http_generation *g, const json_t *body) {
    (void)body;
    received *r = g->own;
    const store_owner owner = owner_of(g->srv, g->task.domain);
    return has_files(g->srv, &g->error) && upload_end(r->file, &owner, &g->answer, &g->error);
}

static bool delete_file(http_generation *g, const json_t *body) {
    (void)body;
    if (!has_files(g->srv, &g->error) || !store_remove_file(g->srv->files, g->task.domain, g->own, &g->error)) return false;
    writer_open(&g->answer, NULL, '{');
    writer_string(&g->answer, "id", g->own);
    writer_string(&g->answer, "object", "file");
    writer_value(&g->answer, "deleted", json_true());
    writer_close(&g->answer);
    return true;
}

static bool create_batch(http_generation *g, const json_t *body) {
    const store_owner owner = owner_of(g->srv, g->task.domain);
    if (!has_files(g->srv, &g->error) || !batch_create(g->srv->files, &owner, body, &g->answer, &g->error)) return false;
    worker_wake(g->srv->batches);
    return true;
}

static bool cancel_batch(http_generation *g, const json_t *body) {
    (void)body;
    if (!has_files(g->srv, &g->error) || !batch_cancel(g->srv->files, g->task.domain, g->own, &g->answer, &g->error))
        return false;
    worker_wake(g->srv->batches);
    return true;
}

const generation_kind batches_create_batch = {.on_disk = true, .prepare = create_batch};

enum MHD_Result batches_create_file(http_exchange *x) {
    static const generation_kind kind = {.on_disk = true, .no_body = true, .release = release_upload, .prepare = create_file};
    return generation_begin_with(x, &kind, take_upload(x));
}

enum MHD_Result batches_delete_file(http_exchange *x) {
    static const generation_kind kind = {.on_disk = true, .no_body = true, .prepare = delete_file};
    return generation_begin_with(x, &kind, id_in(x, FILES_PATH));
}

enum MHD_Result batches_cancel_batch(http_exchange *x) {
    static const generation_kind kind = {.on_disk = true, .no_body = true, .prepare = cancel_batch};
    return generation_begin_with(x, &kind, id_in(x, BATCHES_PATH));
}
