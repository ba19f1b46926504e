/* GET /cache, POST /cache/reset, and the code that the other endpoints below /cache share. */
#include "cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/text/tokenizer.h"
#include "generation_state.h"
#include "serve/protocol/parse.h"

/* ---- Shared ---- */

void cache_write_state(openai_writer *w, http_server *s, const cattn_stats *kv) {
    const struct {
        const char *name;
        uint64_t value;
    } members[] = {
        {"budget_bytes", kv->budget_bytes},
        {"bytes_in_use", kv->bytes_in_use},
        {"live_bytes", kv->chunks_live * kv->chunk_bytes},
        {"retained_bytes", kv->chunks_retained * kv->chunk_bytes},
        {"reserved_bytes", kv->chunks_reserved * kv->chunk_bytes},
        {"unshared_bytes", kv->chunks_unshared * kv->chunk_bytes},
        {"pinned_bytes", kv->chunks_pinned * kv->chunk_bytes},
        {"sequences", kv->n_seqs},
        {"max_sequences", (uint64_t)s->config.max_seqs},
        {"chunk_tokens", (uint64_t)s->config.chunk_size},
        {"nodes", kv->n_nodes},
        {"tokens_stored", kv->tokens_stored},
        {"tokens_retained", kv->tokens_retained},
        {"tokens_referenced", kv->tokens_referenced},
        {"slots_padding", kv->slots_padding},
    };
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) writer_integer(w, members[i].name, (int64_t)members[i].value);
    pins_write_all(w, "pins", &s->pins);
}

void cache_write_text(openai_writer *w, const char *key, const http_server *s, const int32_t *tokens, int64_t n) {
    size_t size;
    char *text = openai_text_of(s->context.model->tok, tokens, (size_t)n, &size);
    text ? writer_bytes(w, key, text, size) : writer_fail(w);
    free(text);
}

const char *cache_tenant(http_server *s, uint32_t domain) {
    if (domain == 0) return OPENAI_DEFAULT_TENANT;
    return keyring_tenant(&s->keys, domain);
}

bool cache_read_prompt(http_generation *g, const json_t *body, char *tenant) {
    uint32_t domain;
    const char *name = OPENAI_DEFAULT_TENANT;
    const json_t *named = field_get(body, "tenant");
    if (named && !field_name(named, "tenant", &name, &g->error)) return false;
    if (!keyring_find_tenant(&g->srv->keys, name, &domain))
        return openai_fail(&g->error, "tenant", "there is no tenant '%.64s'; leave it out, or name one of --api-keys", name);
    snprintf(tenant, OPENAI_MAX_TENANT + 1, "%s", name);
    const bool ok = openai_pin_parse(&g->srv->context, body, &g->request, &g->error);
    g->request.params.domain = domain;
    return ok;
}

/* ---- GET /cache ---- */

static enum MHD_Result reply_state(http_exchange *x, const char *object, const cattn_stats *kv) {
    openai_writer w = {0};
    writer_open(&w, NULL, '{');
    writer_string(&w, "object", object);
    cache_write_state(&w, x->srv, kv);
    writer_close(&w);
    return http_reply_json(x, MHD_HTTP_OK, &w);
}

enum MHD_Result cache_handle_get(http_exchange *x) {
    static const char *const of_nodes[] = {"nodes", "cursor", "node", "text", "min_tokens"};
    cache_end_pins(x->srv);
    for (size_t i = 0; i < sizeof of_nodes / sizeof *of_nodes; i++)
        if (http_parameter(x, of_nodes[i])) return cache_handle_nodes(x);
    cattn_stats kv = {.struct_size = sizeof kv};
    cl_engine_get_kv_stats(x->srv->engine, &kv);
    return reply_state(x, "cache", &kv);
}

/* ---- POST /cache/reset ---- */

static void look(http_generation *g, const cattn_cache *cache) { cattn_cache_stats(cache, g->own); }

static enum MHD_Result reply(http_exchange *x, http_generation *g) { return reply_state(x, "cache.reset", g->own); }

/* Whether a parameter of vLLM's is set, whose effect a reset does not have here. */
static bool is_requested(const http_exchange *x, const char *name) {
    const char *value = http_parameter(x, name);
    return value && strcmp(value, "false") != 0 && strcmp(value, "0") != 0;
}

enum MHD_Result cache_handle_reset(http_exchange *x) {
    static const generation_kind reset = {.look = look, .reply = reply};
    static const char *const refused[] = {"reset_running_requests", "reset_external"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        openai_error error;
        if (!is_requested(x, refused[i])) continue;
        openai_refuse(&error, refused[i],
                      "is not supported: requests that run, pins and the file tier stay as they are; leave it out");
        return http_reply_error(x, &error);
    }
    cattn_stats *after = calloc(1, sizeof *after);
    if (after) {
        after->struct_size = sizeof *after;
        cl_engine_reset_cache(x->srv->engine, NULL);
    }
    return generation_begin_with(x, &reset, after);
}
