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

static void log_set_aside(void *server, const char *name, const char *aside, const char *reason) {
    const http_server *s = server;
    log_line line;
    if (!log_begin(&line, s->config.log, LOG_LEVEL_ERROR, "--files-dir: something damaged is not used")) return;
    log_text(&line, "file", name);
    log_text(&line, "renamed_to", aside);
    log_text(&line, "reason", reason);
    log_end(&line);
}

cl_status batches_open(http_server *s, cl_error *error) {
    const server_config *c = &s->config;
    if (!c->files_dir) return CL_OK;
    const store_watcher watcher = {log_set_aside, s};
    const cl_status status = store_open(c->files_dir, &watcher, &s->files, error);
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

static void end_transfer(http_server *s, uint32_t domain) { shares_give_back(&s->transfers, domain, 1); }

exchange_body batches_begin_upload(http_exchange *x) {
    if (!shares_take(&x->srv->transfers, x->domain, 1)) return BODY_NO_TRANSFER;
    x->upload = upload_begin(x->srv->files, x->connection, x->srv->config.max_file_bytes);
    if (x->upload) return BODY_READ;
    end_transfer(x->srv, x->domain);
    return BODY_NO_MEMORY;
}

void batches_end_upload(http_server *s, uint32_t domain, http_upload *u) {
    if (!u) return;
    upload_free(u);
    end_transfer(s, domain);
}

enum MHD_Result batches_refuse_transfer(http_exchange *x) {
    openai_error error;
    openai_fail(&error, NULL,
                "this client sends and receives as many files at once as it may, of %d for all; send the request again later",
                BATCHES_MAX_TRANSFERS);
    openai_unavailable(&error, 1);
    error.code = "too_many_transfers";
    return http_reply_error(x, &error);
}

/* A file that is being sent. */
typedef struct download {
    http_server *srv;
    uint32_t domain;
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
    end_transfer(d->srv, d->domain);
    free(d);
}

/* A response with the contents of a file of this size, which ends the transfer, too; NULL: memory is lacking. */
static struct MHD_Response *content_response(const http_exchange *x, int fd, uint64_t size) {
    download *d = calloc(1, sizeof *d);
    if (!d) {
        end_transfer(x->srv, x->domain);
        close(fd);
        return NULL;
    }
    *d = (download){.srv = x->srv, .domain = x->domain, .fd = fd};
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
    if (!shares_take(&x->srv->transfers, x->domain, 1)) {
        close(fd);
        return batches_refuse_transfer(x);
    }
    struct MHD_Response *response = content_response(x, fd, (uint64_t)size);
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
    uint32_t domain;
    http_upload *file; /* NULL: the server has no folder for it */
} received;

/* Take over the received body; NULL: memory is lacking. */
static received *take_upload(http_exchange *x) {
    received *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    if (x->upload) upload_complete(x->upload);
    *r = (received){.srv = x->srv, .domain = x->domain, .file = x->upload};
    x->upload = NULL;
    return r;
}

static void release_upload(void *own) {
    received *r = own;
    batches_end_upload(r->srv, r->domain, r->file);
    free(r);
}

static bool create_file(http_generation *g, const json_t *body) {
    (void)body;
    received *r = g->own;
    const store_owner owner = owner_of(g->srv, g->task.domain);
    return has_files(g->srv, &g->error) && upload_end(r->file, &owner, &g->answer, &g->error);
}

/* Write that the object of the generation's id was removed. */
static bool write_deleted(http_generation *g, const char *kind) {
    writer_open(&g->answer, NULL, '{');
    writer_string(&g->answer, "id", g->own);
    writer_string(&g->answer, "object", kind);
    writer_value(&g->answer, "deleted", json_true());
    writer_close(&g->answer);
    return true;
}

static bool delete_file(http_generation *g, const json_t *body) {
    (void)body;
    return has_files(g->srv, &g->error) && store_remove_file(g->srv->files, g->task.domain, g->own, &g->error) &&
           write_deleted(g, "file");
}

static bool delete_batch(http_generation *g, const json_t *body) {
    (void)body;
    return has_files(g->srv, &g->error) && batch_remove(g->srv->files, g->task.domain, g->own, &g->error) &&
           write_deleted(g, "batch");
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

enum MHD_Result batches_delete_batch(http_exchange *x) {
    static const generation_kind kind = {.on_disk = true, .no_body = true, .prepare = delete_batch};
    return generation_begin_with(x, &kind, id_in(x, BATCHES_PATH));
}

enum MHD_Result batches_cancel_batch(http_exchange *x) {
    static const generation_kind kind = {.on_disk = true, .no_body = true, .prepare = cancel_batch};
    return generation_begin_with(x, &kind, id_in(x, BATCHES_PATH));
}
