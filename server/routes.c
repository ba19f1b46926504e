/* The table of all routes, and the handlers that answer at once. */
#include <string.h>

#include "generation.h"

static enum MHD_Result handle_index(exchange *x) {
    static const char text[] = "ChunkLlama: an OpenAI-compatible server that stores, computes and reads a shared prompt prefix "
                               "once.\nPOST /v1/chat/completions, POST /v1/completions, POST /v1/responses, POST "
                               "/v1/messages, POST /v1/messages/count_tokens, GET /v1/models, GET /cache, POST /cache/pin, "
                               "DELETE /cache/pin/ID, GET /health, GET /metrics\n";
    return http_reply(x, MHD_HTTP_OK, "text/plain; charset=utf-8", strdup(text), sizeof text - 1);
}

static enum MHD_Result handle_health(exchange *x) {
    openai_writer w = {0};
    writer_open(&w, NULL, '{');
    writer_string(&w, "status", "ok");
    writer_close(&w);
    return http_reply_json(x, MHD_HTTP_OK, &w);
}

static enum MHD_Result handle_metrics(exchange *x) {
    cl_engine_stats stats = {.struct_size = sizeof stats};
    cattn_stats kv_stats = {.struct_size = sizeof kv_stats};
    cl_engine_get_stats(x->srv->engine, &stats);
    cl_engine_get_kv_stats(x->srv->engine, &kv_stats);
    size_t size = 0;
    char *text = metrics_write(&x->srv->metrics, &stats, &kv_stats, x->srv->context.model_name, &size);
    return http_reply(x, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", text, size);
}

static void write_model(openai_writer *w, const server *s) {
    writer_open(w, NULL, '{');
    writer_string(w, "id", s->context.model_name);
    writer_string(w, "object", "model");
    writer_integer(w, "created", s->started_at);
    writer_string(w, "owned_by", "chunkattn");
    writer_integer(w, "max_model_len", cl_engine_n_ctx(s->engine));
    writer_close(w);
}

static enum MHD_Result handle_models(exchange *x) {
    openai_writer w = {0};
    writer_open(&w, NULL, '{');
    writer_string(&w, "object", "list");
    writer_open(&w, "data", '[');
    write_model(&w, x->srv);
    writer_close(&w);
    writer_close(&w);
    return http_reply_json(x, MHD_HTTP_OK, &w);
}

static enum MHD_Result handle_model(exchange *x) {
    const char *name = x->path + strlen("/v1/models/");
    openai_writer w = {0};
    openai_error error;
    if (strcmp(name, x->srv->context.model_name) == 0) {
        write_model(&w, x->srv);
        return http_reply_json(x, MHD_HTTP_OK, &w);
    }
    openai_fail(&error, "model", "there is no model '%.200s'; this server serves '%.200s'", name, x->srv->context.model_name);
    error.status = MHD_HTTP_NOT_FOUND;
    error.code = "model_not_found";
    return http_reply_error(x, &error);
}

/* ---- The cache ---- */

static enum MHD_Result handle_cache(exchange *x) {
    cattn_stats kv = {.struct_size = sizeof kv};
    cl_engine_get_kv_stats(x->srv->engine, &kv);
    const struct {
        const char *name;
        uint64_t value;
    } members[] = {
        {"budget_bytes", kv.budget_bytes},
        {"bytes_in_use", kv.bytes_in_use},
        {"live_bytes", kv.chunks_live * kv.chunk_bytes},
        {"retained_bytes", kv.chunks_retained * kv.chunk_bytes},
        {"reserved_bytes", kv.chunks_reserved * kv.chunk_bytes},
        {"unshared_bytes", kv.chunks_unshared * kv.chunk_bytes},
        {"pinned_bytes", kv.chunks_pinned * kv.chunk_bytes},
        {"sequences", kv.n_seqs},
        {"nodes", kv.n_nodes},
        {"tokens_stored", kv.tokens_stored},
        {"tokens_retained", kv.tokens_retained},
        {"tokens_referenced", kv.tokens_referenced},
        {"slots_padding", kv.slots_padding},
    };
    openai_writer w = {0};
    writer_open(&w, NULL, '{');
    writer_string(&w, "object", "cache");
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        writer_integer(&w, members[i].name, (int64_t)members[i].value);
    pins_write_all(&w, "pins", &x->srv->pins);
    writer_close(&w);
    return http_reply_json(x, MHD_HTTP_OK, &w);
}

static const char PIN_PATH[] = "/cache/pin/";

static enum MHD_Result handle_unpin(exchange *x) {
    const char *name = x->path + sizeof PIN_PATH - 1;
    const uint64_t id = pins_id(name);
    if (!pins_remove(&x->srv->pins, id)) {
        openai_error error;
        openai_fail(&error, NULL, "there is no pin '%.100s'; GET /cache lists those that POST /cache/pin has made", name);
        error.status = MHD_HTTP_NOT_FOUND;
        error.code = "pin_not_found";
        return http_reply_error(x, &error);
    }
    cl_engine_unpin(x->srv->engine, id);
    openai_writer w = {0};
    writer_open(&w, NULL, '{');
    writer_string(&w, "id", name);
    writer_string(&w, "object", "cache.pin");
    writer_value(&w, "deleted", json_true());
    writer_close(&w);
    return http_reply_json(x, MHD_HTTP_OK, &w);
}

static const route routes[] = {
    {"/", MHD_HTTP_METHOD_GET, false, ROUTE_ALL, handle_index},
    {"/health", MHD_HTTP_METHOD_GET, false, ROUTE_ALL, handle_health},
    {"/metrics", MHD_HTTP_METHOD_GET, false, ROUTE_MONITOR, handle_metrics},
    {"/v1/models", MHD_HTTP_METHOD_GET, false, ROUTE_TENANTS, handle_models},
    {"/v1/models/", MHD_HTTP_METHOD_GET, true, ROUTE_TENANTS, handle_model},
    {"/v1/chat/completions", MHD_HTTP_METHOD_POST, false, ROUTE_TENANTS, generation_begin},
    {"/v1/completions", MHD_HTTP_METHOD_POST, false, ROUTE_TENANTS, generation_begin},
    {"/v1/responses", MHD_HTTP_METHOD_POST, false, ROUTE_TENANTS, generation_begin},
    {"/v1/messages", MHD_HTTP_METHOD_POST, false, ROUTE_TENANTS, generation_begin},
    {"/v1/messages/count_tokens", MHD_HTTP_METHOD_POST, false, ROUTE_TENANTS, generation_begin},
    {"/cache", MHD_HTTP_METHOD_GET, false, ROUTE_OPERATOR, handle_cache},
    {"/cache/pin", MHD_HTTP_METHOD_POST, false, ROUTE_OPERATOR, generation_begin_pin},
    {PIN_PATH, MHD_HTTP_METHOD_DELETE, true, ROUTE_OPERATOR, handle_unpin},
};

const route *route_find(const char *path) {
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const route *r = &routes[i];
        if (r->prefix ? strncmp(path, r->path, strlen(r->path)) == 0 : strcmp(path, r->path) == 0) return r;
    }
    return NULL;
}
