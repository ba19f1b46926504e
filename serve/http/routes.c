/* The table of all routes, and the handlers that answer at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batches.h"
#include "cache.h"

/* ---- The server ---- */

static enum MHD_Result handle_index(http_exchange *x);

/* A reply with one member. */
static enum MHD_Result reply_member(http_exchange *x, const char *key, const char *value) {
    openai_writer w = {0};
    writer_open(&w, NULL, '{');
    writer_string(&w, key, value);
    writer_close(&w);
    return http_reply_json(x, MHD_HTTP_OK, &w);
}

/* /readyz and /health, too: while the server is not ready, they are refused like other requests. */
static enum MHD_Result handle_health(http_exchange *x) { return reply_member(x, "status", "ok"); }

static enum MHD_Result handle_version(http_exchange *x) { return reply_member(x, "version", cl_version()); }

static enum MHD_Result handle_ollama_version(http_exchange *x) { return reply_member(x, "version", OLLAMA_VERSION); }

static enum MHD_Result handle_metrics(http_exchange *x) {
    metrics_source source = {.engine.struct_size = sizeof source.engine,
                             .kv.struct_size = sizeof source.kv,
                             .model_name = x->srv->model_name,
                             .chunk_size = x->srv->config.chunk_size,
                             .request_bytes = shares_amount(&x->srv->memory),
                             .process = process_stats_read(&x->srv->process),
                             .started_at = x->srv->started_at,
                             .n_connections = acceptor_n_connections(x->srv->arrivals),
                             .max_connections = x->srv->config.max_connections,
                             .lost_lines = server_log_lost(x->srv->config.log)};
    if (atomic_load_explicit(&x->srv->serves, memory_order_acquire)) {
        cl_engine_get_stats(x->srv->engine, &source.engine);
        cl_engine_get_kv_stats(x->srv->engine, &source.kv);
        source.n_ctx = cl_engine_n_ctx(x->srv->engine);
    }
    size_t size = 0;
    char *text = metrics_write(&x->srv->metrics, &source, &size);
    return http_reply(x, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", text, size);
}

/* ---- The model ---- */

static void write_model(openai_writer *w, const http_server *s, const char *name) {
    writer_open(w, NULL, '{');
    writer_string(w, "id", name);
    writer_string(w, "object", "model");
    writer_integer(w, "created", s->started_at);
    writer_string(w, "owned_by", "chunkattn");
    writer_integer(w, "max_model_len", cl_engine_n_ctx(s->engine));
    writer_close(w);
}

static enum MHD_Result handle_models(http_exchange *x) {
    openai_writer w = {0};
    writer_open(&w, NULL, '{');
    writer_string(&w, "object", "list");
    writer_open(&w, "data", '[');
    const openai_names *names = x->srv->context.names;
    if (!names) write_model(&w, x->srv, x->srv->context.model_name);
    for (size_t i = 0; names && i < names->n; i++) write_model(&w, x->srv, names->names[i]);
    writer_close(&w);
    writer_close(&w);
    return http_reply_json(x, MHD_HTTP_OK, &w);
}

static enum MHD_Result handle_model(http_exchange *x) {
    const char *name = x->path + strlen("/v1/models/");
    openai_writer w = {0};
    openai_error error;
    const openai_context *c = &x->srv->context;
    if (c->names ? openai_names_have(c->names, name) : strcmp(name, c->model_name) == 0) {
        write_model(&w, x->srv, name);
        return http_reply_json(x, MHD_HTTP_OK, &w);
    }
    const openai_names only = {.names = &x->srv->model_name, .n = 1};
    openai_fail_model(&error, name, c->names ? c->names : &only);
    return http_reply_error(x, &error);
}

static enum MHD_Result handle_tokenizer_info(http_exchange *x) {
    openai_writer w = {0};
    openai_write_tokenizer_info(&w, &x->srv->context);
    return http_reply_json(x, MHD_HTTP_OK, &w);
}

static enum MHD_Result handle_props(http_exchange *x) {
    openai_writer w = {0};
    llama_server_write_props(&w, &x->srv->context, x->srv->config.max_seqs);
    return http_reply_json(x, MHD_HTTP_OK, &w);
}

/* llama-server's slots are the sequences that run at once; those in use come first. */
static enum MHD_Result handle_slots(http_exchange *x) {
    const http_server *s = x->srv;
    cl_engine_stats stats = {.struct_size = sizeof stats};
    cattn_stats kv = {.struct_size = sizeof kv};
    openai_writer w = {0};
    cl_engine_get_stats(s->engine, &stats);
    cl_engine_get_kv_stats(s->engine, &kv);
    const int64_t n_used = (int64_t)kv.n_seqs - stats.n_pins; /* which are sequences as well */
    writer_open(&w, NULL, '[');
    for (int32_t i = 0; i < s->config.max_seqs; i++) {
        writer_open(&w, NULL, '{');
        writer_integer(&w, "id", i);
        writer_integer(&w, "n_ctx", s->context.n_ctx);
        writer_value(&w, "is_processing", json_boolean(i < n_used));
        writer_close(&w);
    }
    writer_close(&w);
    return http_reply_json(x, MHD_HTTP_OK, &w);
}

/* Ollama's models on the disk, and those in memory, are the same one here. */
static enum MHD_Result handle_ollama_models(http_exchange *x) {
    openai_writer w = {0};
    ollama_write_models(&w, &x->srv->context);
    return http_reply_json(x, MHD_HTTP_OK, &w);
}

/* ---- The table ---- */

#define GET    .method = MHD_HTTP_METHOD_GET
#define POST   .method = MHD_HTTP_METHOD_POST
#define DELETE .method = MHD_HTTP_METHOD_DELETE
#define ENGINE POST, .access = ROUTE_TENANTS, .kind = &generation_computed

/* openapi.json describes the same. */
static const http_route routes[] = {
    {"/", GET, .always = true, .access = ROUTE_ALL, .handle = handle_index},
    {"/web/", GET, .prefix = true, .suffix = "", .always = true, .access = ROUTE_ALL, .handle = page_handle_file},
    {"/livez", GET, .always = true, .beyond_limit = true, .access = ROUTE_ALL, .handle = handle_health},
    {"/readyz", GET, .beyond_limit = true, .access = ROUTE_ALL, .handle = handle_health},
    {"/health", GET, .beyond_limit = true, .access = ROUTE_ALL, .handle = handle_health},
    {"/version", GET, .always = true, .access = ROUTE_ALL, .handle = handle_version},
    {"/openapi.json", GET, .always = true, .access = ROUTE_ALL, .handle = page_handle_openapi},
    {"/metrics", GET, .always = true, .beyond_limit = true, .access = ROUTE_MONITOR, .handle = handle_metrics},
    {"/v1/models", GET, .access = ROUTE_TENANTS, .handle = handle_models},
    {"/v1/models/", GET, .prefix = true, .access = ROUTE_TENANTS, .handle = handle_model},
    {"/v1/chat/completions", ENGINE, .dialect = &openai_chat},
    {"/v1/chat/completions/render", POST, .access = ROUTE_TENANTS, .kind = &generation_render_chat},
    {"/v1/completions", ENGINE, .dialect = &openai_completion},
    {"/v1/completions/render", POST, .access = ROUTE_TENANTS, .kind = &generation_render_completion},
    {"/v1/responses", ENGINE, .dialect = &openai_responses},
    {"/v1/messages", ENGINE, .dialect = &anthropic_messages},
    {"/v1/messages/count_tokens", POST, .access = ROUTE_TENANTS, .kind = &generation_count_tokens,
     .dialect = &anthropic_messages},
    {"/v1/embeddings", ENGINE, .dialect = &openai_embedding},
    {"/v1/score", ENGINE, .dialect = &openai_score},
    {"/score", ENGINE, .dialect = &openai_score},
    {"/v1/rerank", ENGINE, .dialect = &openai_rerank},
    {"/v2/rerank", ENGINE, .dialect = &openai_rerank},
    {"/rerank", ENGINE, .dialect = &openai_rerank},
    {"/v1/reranking", ENGINE, .dialect = &openai_rerank},
    {"/reranking", ENGINE, .dialect = &openai_rerank},
    {"/v1/files", GET, .access = ROUTE_TENANTS, .handle = batches_list_files},
    {"/v1/files", POST, .access = ROUTE_TENANTS, .upload = true, .handle = batches_create_file},
    {"/v1/files/", GET, .prefix = true, .suffix = "/content", .access = ROUTE_TENANTS, .handle = batches_get_content},
    {"/v1/files/", GET, .prefix = true, .suffix = "", .access = ROUTE_TENANTS, .handle = batches_get_file},
    {"/v1/files/", DELETE, .prefix = true, .suffix = "", .access = ROUTE_TENANTS, .handle = batches_delete_file},
    {"/v1/batches", GET, .access = ROUTE_TENANTS, .handle = batches_list_batches},
    {"/v1/batches", POST, .access = ROUTE_TENANTS, .kind = &batches_create_batch},
    {"/v1/batches/", GET, .prefix = true, .suffix = "", .access = ROUTE_TENANTS, .handle = batches_get_batch},
    {"/v1/batches/", DELETE, .prefix = true, .suffix = "", .access = ROUTE_TENANTS, .handle = batches_delete_batch},
    {"/v1/batches/", POST, .prefix = true, .suffix = "/cancel", .access = ROUTE_TENANTS, .handle = batches_cancel_batch},
    {"/tokenize", POST, .access = ROUTE_TENANTS, .kind = &generation_tokenize},
    {"/detokenize", POST, .access = ROUTE_TENANTS, .kind = &generation_detokenize},
    {"/tokenizer_info", GET, .access = ROUTE_TENANTS, .handle = handle_tokenizer_info},
    /* llama-server's own, and its paths without /v1 */
    {"/completion", ENGINE, .dialect = &llama_server_completion},
    {"/completions", ENGINE, .dialect = &llama_server_completion},
    {"/infill", ENGINE, .dialect = &llama_server_infill},
    {"/embedding", ENGINE, .dialect = &llama_server_embedding},
    {"/embeddings", ENGINE, .dialect = &llama_server_embedding},
    {"/apply-template", POST, .access = ROUTE_TENANTS, .kind = &generation_apply_template},
    {"/props", GET, .access = ROUTE_TENANTS, .handle = handle_props},
    {"/slots", GET, .access = ROUTE_OPERATOR, .handle = handle_slots},
    {"/models", GET, .access = ROUTE_TENANTS, .handle = handle_models},
    {"/chat/completions", ENGINE, .dialect = &openai_chat},
    {"/responses", ENGINE, .dialect = &openai_responses},
    {"/v1/health", GET, .beyond_limit = true, .access = ROUTE_ALL, .handle = handle_health},
    /* Ollama's own */
    {"/api/chat", ENGINE, .dialect = &ollama_chat},
    {"/api/generate", ENGINE, .dialect = &ollama_generate},
    {"/api/embed", ENGINE, .dialect = &ollama_embed},
    {"/api/embeddings", ENGINE, .dialect = &ollama_embeddings},
    {"/api/show", POST, .access = ROUTE_TENANTS, .kind = &generation_show},
    {"/api/tags", GET, .access = ROUTE_TENANTS, .handle = handle_ollama_models},
    {"/api/ps", GET, .access = ROUTE_TENANTS, .handle = handle_ollama_models},
    {"/api/version", GET, .always = true, .access = ROUTE_ALL, .handle = handle_ollama_version},
    {"/cache", GET, .access = ROUTE_OPERATOR, .handle = cache_handle_get},
    {"/cache/explain", POST, .access = ROUTE_OPERATOR, .kind = &cache_explain},
    {"/cache/pin", POST, .access = ROUTE_OPERATOR, .kind = &cache_pin},
    {CACHE_PIN_PATH, DELETE, .prefix = true, .access = ROUTE_OPERATOR, .handle = cache_handle_unpin},
    {"/cache/reset", POST, .access = ROUTE_OPERATOR, .handle = cache_handle_reset},
    {"/reset_prefix_cache", POST, .access = ROUTE_OPERATOR, .handle = cache_handle_reset}, /* vLLM's name */
};
enum { N_ROUTES = sizeof routes / sizeof *routes };

/* The page for browsers, and for others all routes. */
static enum MHD_Result handle_index(http_exchange *x) {
    if (page_is_wanted(x)) return page_handle_index(x);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return http_reply_no_memory(x);
    fprintf(out, "ChunkLlama: an OpenAI-compatible server that stores, computes and reads a shared prompt prefix once.\n");
    for (size_t i = 0; i < N_ROUTES; i++) {
        const http_route *r = &routes[i];
        if (r->handle == page_handle_file && x->srv->config.no_page) continue;
        fprintf(out, "%s %s%s%s\n", r->method, r->path, r->prefix ? "ID" : "", r->suffix ? r->suffix : "");
    }
    if (fclose(out) != 0) {
        free(text);
        text = NULL;
    }
    return http_reply(x, MHD_HTTP_OK, "text/plain; charset=utf-8", text, size);
}

static bool serves(const http_route *r, const char *path) {
    if (!r->prefix) return strcmp(path, r->path) == 0;
    if (strncmp(path, r->path, strlen(r->path)) != 0) return false;
    const char *name = path + strlen(r->path);
    const size_t size = strcspn(name, "/");
    return !r->suffix || (size > 0 && strcmp(name + size, r->suffix) == 0);
}

bool route_has_method(const http_route *r, const char *method) {
    return strcmp(strcmp(method, MHD_HTTP_METHOD_HEAD) == 0 ? MHD_HTTP_METHOD_GET : method, r->method) == 0;
}

const http_route *route_find(const char *path, const char *method) {
    const http_route *found = NULL;
    for (size_t i = 0; i < N_ROUTES; i++) {
        if (!serves(&routes[i], path)) continue;
        if (route_has_method(&routes[i], method)) return &routes[i];
        if (!found) found = &routes[i];
    }
    return found;
}

void route_list_methods(const char *path, char *text, size_t size) {
    size_t used = 0;
    *text = '\0';
    for (size_t i = 0; i < N_ROUTES && used < size; i++) {
        const char *method = routes[i].method;
        if (!serves(&routes[i], path)) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s%s", used ? ", " : "", method,
                                 strcmp(method, MHD_HTTP_METHOD_GET) == 0 ? ", HEAD" : "");
    }
}
