/*
 * GET /cache?nodes=N: a part of the tree, for a page that draws it. The engine's thread copies the needed fields of N nodes at
 * most between two steps; all else is done on the connection's thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache.h"
#include "generation_state.h"

enum { MAX_TEXT = 16384, DEFAULT_TEXT = 24, MAX_ALL_TEXT = 1 << 20 }; /* tokens of a node's text; of all texts */

/* generation.own, in one allocation. */
typedef struct nodes {
    cattn_walk_options options;
    int64_t n_text;   /* tokens of each node's text */
    uint64_t cursor;  /* before the look where it begins, afterwards where it goes on; 0: the end */
    char version[20]; /* of the tree before the look */
    cattn_status status;
    cattn_stats kv;
    double looked_at;       /* seconds since 1970 */
    int64_t n;              /* nodes */
    int32_t *tokens;        /* [n][n_text] of [options.max_nodes][n_text] the first tokens of each node, behind `info` */
    int32_t *last;          /* [n] of [options.max_nodes] the last token of each node, behind `tokens` */
    cattn_node_info info[]; /* [n] of [options.max_nodes]; tokens are not valid */
} nodes;

/* ---- The version: as long as it is the same, so is the tree ---- */

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* Write the version of the tree, and of the parameters on which an answer depends, as an ETag. */
static void write_version(const http_server *s, const nodes *q, char *version, size_t size) {
    cl_engine_stats stats = {.struct_size = sizeof stats};
    cattn_stats kv = {.struct_size = sizeof kv};
    cl_engine_get_stats(s->engine, &stats);
    cl_engine_get_kv_stats(s->engine, &kv);
    const uint64_t values[] = {(uint64_t)s->started_at,
                               (uint64_t)q->options.max_nodes,
                               (uint64_t)q->options.min_tokens,
                               q->options.node_id,
                               (uint64_t)q->n_text,
                               (uint64_t)stats.steps,
                               (uint64_t)stats.n_running,
                               (uint64_t)stats.n_waiting,
                               (uint64_t)stats.requests_finished,
                               kv.budget_bytes,
                               kv.n_seqs,
                               kv.n_nodes,
                               kv.tokens_joined,
                               kv.tokens_stored,
                               kv.tokens_retained,
                               kv.tokens_referenced,
                               kv.tokens_evicted,
                               kv.tokens_restored,
                               kv.chunks_pinned};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) hash = mix(hash, values[i]);
    snprintf(version, size, "\"%016" PRIx64 "\"", hash);
}

/* ---- The engine's thread ---- */

static int copy_node(void *ctx, const cattn_node_info *node) {
    nodes *q = ctx;
    const int64_t n_text = node->n_tokens < q->n_text ? node->n_tokens : q->n_text;
    memcpy(q->tokens + q->n * q->n_text, node->tokens, (size_t)n_text * sizeof *node->tokens);
    q->last[q->n] = node->tokens[node->n_tokens - 1];
    q->info[q->n++] = *node;
    return 0;
}

static void look(http_generation *g, const cattn_cache *cache) {
    nodes *q = g->own;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    q->looked_at = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    q->status = cattn_cache_walk(cache, &q->options, &q->cursor, copy_node, q, NULL);
    cattn_cache_stats(cache, &q->kv);
}

/* ---- The answer ---- */

static void write_node(openai_writer *w, http_server *s, const nodes *q, int64_t i) {
    const cattn_node_info *node = &q->info[i];
    const char *tenant = cache_tenant(s, node->domain);
    writer_open(w, NULL, '{');
    writer_integer(w, "id", (int64_t)node->id);
    node->parent_id ? writer_integer(w, "parent", (int64_t)node->parent_id) : writer_null(w, "parent");
    writer_integer(w, "depth", node->depth);
    writer_string(w, "tenant", tenant);
    writer_integer(w, "position", node->first_pos);
    writer_integer(w, "tokens", node->n_tokens);
    writer_integer(w, "ready", node->n_ready);
    writer_integer(w, "coming", node->n_coming);
    writer_integer(w, "chunks", node->n_chunks);
    writer_integer(w, "bytes", (int64_t)node->own_bytes);
    writer_string(w, "state", node->n_seqs > node->n_pins ? "live" : node->n_pins > 0 ? "pinned" : "retained");
    writer_integer(w, "sequences", (int64_t)(node->n_seqs - node->n_pins));
    writer_integer(w, "pins", (int64_t)node->n_pins);
    writer_integer(w, "readers", (int64_t)node->n_step_seqs);
    writer_integer(w, "hits", (int64_t)node->n_hits);
    writer_integer(w, "last_use", (int64_t)(q->looked_at - node->idle_seconds + 0.5));
    const int64_t n_text = node->n_tokens < q->n_text ? node->n_tokens : q->n_text;
    if (q->n_text > 0) cache_write_text(w, "text", s, q->tokens + i * q->n_text, n_text);
    if (q->n_text > 0) cache_write_text(w, "end", s, &q->last[i], 1);
    writer_close(w);
}

static enum MHD_Result reply(http_exchange *x, http_generation *g) {
    const nodes *q = g->own;
    openai_error error;
    if (q->status == CATTN_ERR_ARG) {
        openai_fail(&error, "node", "there is no node %" PRIu64 " any more, or it is none of the first %d", q->options.node_id,
                    CATTN_MAX_SEARCH_NODES);
        openai_set_status(&error, MHD_HTTP_NOT_FOUND, "node_not_found");
        return http_reply_error(x, &error);
    }
    if (q->status != CATTN_OK) {
        openai_fail(&error, "cursor", "the cache does not know this cursor any more; begin again without it");
        error.code = "cursor_not_found";
        return http_reply_error(x, &error);
    }
    cl_engine_stats stats = {.struct_size = sizeof stats};
    cl_engine_get_stats(x->srv->engine, &stats);
    openai_writer w = {0};
    writer_open(&w, NULL, '{');
    writer_string(&w, "object", "cache.nodes");
    cache_write_state(&w, x->srv, &q->kv);
    writer_integer(&w, "running", stats.n_running);
    writer_integer(&w, "waiting", stats.n_waiting);
    writer_integer(&w, "prompt_tokens", stats.prompt_tokens);
    writer_integer(&w, "cached_tokens", stats.cached_tokens);
    writer_integer(&w, "completion_tokens", stats.completion_tokens);
    writer_real(&w, "time", q->looked_at);
    char cursor[24];
    snprintf(cursor, sizeof cursor, "%" PRIu64, q->cursor);
    writer_string(&w, "next", q->cursor ? cursor : NULL);
    writer_open(&w, "data", '[');
    for (int64_t i = 0; i < q->n; i++) write_node(&w, x->srv, q, i);
    writer_close(&w);
    writer_close(&w);
    return http_reply_json_with(x, MHD_HTTP_OK, &w, MHD_HTTP_HEADER_ETAG, q->version);
}

/* ---- The request ---- */

/* NULL without memory. */
static nodes *allocate(const nodes *from) {
    const size_t n = (size_t)from->options.max_nodes;
    nodes *q = malloc(sizeof *q + n * (sizeof *q->info + ((size_t)from->n_text + 1) * sizeof *q->tokens));
    if (!q) return NULL;
    *q = *from;
    q->tokens = (int32_t *)(q->info + n);
    q->last = q->tokens + n * (size_t)from->n_text;
    return q;
}

enum MHD_Result cache_handle_nodes(http_exchange *x) {
    static const generation_kind kind = {.look = look, .reply = reply};
    nodes q = {.n_text = DEFAULT_TEXT, .kv = {.struct_size = sizeof q.kv}};
    openai_error error;
    int64_t cursor = 0, node = 0;
    cattn_walk_options_init(&q.options);
    if (!http_integer_parameter(x, "nodes", 1, CATTN_MAX_WALK_NODES, &q.options.max_nodes, &error) ||
        !http_integer_parameter(x, "text", 0, MAX_TEXT, &q.n_text, &error) ||
        !http_integer_parameter(x, "min_tokens", 0, INT64_C(1) << 40, &q.options.min_tokens, &error) ||
        !http_integer_parameter(x, "node", 1, INT64_MAX, &node, &error) ||
        !http_integer_parameter(x, "cursor", 1, INT64_MAX, &cursor, &error))
        return http_reply_error(x, &error);
    if (q.options.max_nodes * q.n_text > MAX_ALL_TEXT) {
        openai_fail(&error, "text", "'nodes' times 'text' is %" PRId64 "; it must be at most %d",
                    q.options.max_nodes * q.n_text, MAX_ALL_TEXT);
        return http_reply_error(x, &error);
    }
    if (cursor > 0 && node > 0) {
        openai_refuse(&error, "node", "and 'cursor' exclude each other; leave one out");
        return http_reply_error(x, &error);
    }
    q.cursor = (uint64_t)cursor;
    q.options.node_id = (uint64_t)node;
    write_version(x->srv, &q, q.version, sizeof q.version);
    if (cursor == 0 && http_client_has(x, q.version))
        return http_reply_json_with(x, MHD_HTTP_NOT_MODIFIED, NULL, MHD_HTTP_HEADER_ETAG, q.version);
    return generation_begin_with(x, &kind, allocate(&q));
}
