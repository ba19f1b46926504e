/* What the server writes to its log: see log_lines.h. */
#include "log_lines.h"

#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "chunkattn/base/clock.h"
#include "generation_state.h"

/* ---- Requests ---- */

/* A server that is overloaded or still loads is no error of the server, and requests that are wrong are ordinary. */
static log_level level_of(const http_exchange *x, const char *finish, bool warns) {
    const bool reads = strcmp(x->method, MHD_HTTP_METHOD_POST) != 0 && strcmp(x->method, MHD_HTTP_METHOD_DELETE) != 0;
    if (x->status >= 500 && x->status != MHD_HTTP_SERVICE_UNAVAILABLE) return LOG_LEVEL_ERROR;
    if (x->status >= 500 || x->status == MHD_HTTP_TOO_MANY_REQUESTS || (finish && strcmp(finish, "error") == 0))
        return LOG_LEVEL_WARN;
    if (x->status < 400 && warns) return LOG_LEVEL_WARN;
    return reads && x->status < 400 ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO;
}

/* The tenant's name; NULL: the client sent no key that the server knows. */
static const char *tenant_of(const http_exchange *x) {
    if (x->gen) return cache_tenant(x->srv, x->gen->task.domain);
    return x->srv->keys.needed && !x->has_key ? NULL : cache_tenant(x->srv, x->domain);
}

/* How the engine's work for a request ended; NULL: it had none. With the generation's lock held. */
static const char *finish_of(const http_generation *g, bool sent) {
    const bool server_ends = atomic_load(&g->srv->stopping) && g->state != GENERATION_ABANDONED;
    if (g->n_submitted == 0 || !g->kind->write) return NULL;
    if (!sent) return server_ends ? "stopped" : "disconnected";
    if (g->state == GENERATION_STOPPED) return "stopped"; /* also if the engine's last event has come since */
    if (g->state == GENERATION_FAILED || g->out.failed || g->result.failed || g->n_ended < g->n_submitted) return "error";
    return openai_finish_name(g->usage.finish);
}

static void add_usage(log_line *line, const http_generation *g, const generation_usage *u) {
    const int64_t n_choices = (int64_t)g->n_submitted * g->request.params.n;
    log_integer(line, "prompt_tokens", u->n_prompt);
    log_integer(line, "cached_tokens", u->n_cached);
    log_integer(line, "shared_with", u->n_sharing);
    log_integer(line, "completion_tokens", u->n_tokens);
    if (u->first_at > 0) log_real(line, "ttft_s", u->first_at - g->arrived_at);
    const double token_s = metrics_token_s(u->last_at - u->first_at, u->n_tokens, n_choices);
    if (token_s >= 0) log_real(line, "tpot_s", token_s);
}

/* The beginning of the first prompt, as the model gets it: with the names of special tokens. */
static void add_prompt(log_line *line, const http_generation *g) {
    const cl_token_list *tokens = &g->request.prompts[0].tokens;
    /* One token too many, so that the line marks where it is cut. */
    const size_t n = tokens->n <= LOG_VALUE_BYTES ? tokens->n : LOG_VALUE_BYTES + 1;
    size_t size;
    char *text = openai_text_of(g->srv->context.model->tok, tokens->ids, n, &size);
    if (text) log_bytes(line, "prompt", text, size);
    free(text);
}

/* The events of the engine may still come, so the fields that they change are copied under the lock. */
static const char *copy_usage(http_generation *g, bool sent, generation_usage *usage) {
    pthread_mutex_lock(&g->lock);
    *usage = g->usage;
    const char *finish = finish_of(g, sent);
    pthread_mutex_unlock(&g->lock);
    return finish;
}

/* Begin a request's line. One that is refused costs the client next to nothing, so there may be very many. */
static bool begin_request(log_line *line, const http_exchange *x, const char *finish, bool warns) {
    server_log *log = x->srv->config.log;
    const log_level level = level_of(x, finish, warns);
    if (finish || (x->status > 0 && x->status < 400)) return log_begin(line, log, level, "request");
    return log_begin_limited(line, log, level, "request", LOG_REFUSED);
}

void log_exchange(http_exchange *x, bool sent) {
    http_generation *g = x->gen;
    generation_usage usage = {0};
    log_line line;
    metrics_reply(&x->srv->metrics, x->status);
    const char *finish = g ? copy_usage(g, sent, &usage) : NULL;
    const bool computed = finish; /* the preparer does not use the request any more */
    if (computed) metrics_of_tenant(&x->srv->metrics, tenant_of(x), usage.n_prompt, usage.n_cached, usage.n_tokens);
    const char *weaker = computed && g->request.weaker[0] ? g->request.weaker : NULL;
    const char *odd = computed && g->request.odd.text[0] ? g->request.odd.text : NULL;
    if (!begin_request(&line, x, finish, weaker || odd)) return;
    if (computed || x->request_id[0]) log_text(&line, "id", computed ? g->result.id : x->request_id);
    log_text(&line, "tenant", tenant_of(x));
    log_text(&line, "method", x->method);
    log_text(&line, "endpoint", x->endpoint);
    if (x->status) log_integer(&line, "status", x->status); /* none: the client left before */
    if (computed) add_usage(&line, g, &usage);
    log_text(&line, "finish", finish);
    if (!finish && !sent) log_text(&line, "finish", "disconnected");
    log_text(&line, "error", computed && g->result.failed && g->result.error.type ? g->result.error.type : x->failure);
    log_text(&line, "schema_not_enforced", weaker);
    log_text(&line, "odd_arguments", odd);
    log_real(&line, "seconds", clock_seconds() - x->arrived_at);
    if (computed && g->request.special_name[0]) {
        log_text(&line, "names_special_token", g->request.special_name);
        log_text(&line, "hint", "it is text here; send parse_special, or start with --parse-special, to make it the token");
    }
    if (x->srv->config.log_prompts) log_text(&line, "message", x->message);
    if (x->srv->config.log_prompts && computed && g->request.n_prompts) add_prompt(&line, g);
    log_end(&line);
}

void log_refused_connection(void *server) {
    struct http_server *s = server;
    log_line line;
    metrics_reply(&s->metrics, MHD_HTTP_SERVICE_UNAVAILABLE);
    if (!log_begin_limited(&line, s->config.log, LOG_LEVEL_WARN, "connection", LOG_CONNECTION)) return;
    log_integer(&line, "status", MHD_HTTP_SERVICE_UNAVAILABLE);
    log_text(&line, "error", "too_many_connections");
    log_end(&line);
}

void log_daemon(void *server, const char *format, va_list values) {
    static const char refuses[] = "Error processing request (HTTP response code is %u";
    struct http_server *s = server;
    log_line line;
    if (strncmp(format, refuses, strlen(refuses)) != 0) return;
    const unsigned status = va_arg(values, unsigned);
    metrics_reply(&s->metrics, status);
    const bool broken = status < 500 || status == MHD_HTTP_HTTP_VERSION_NOT_SUPPORTED;
    if (!log_begin_limited(&line, s->config.log, broken ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR, "request", LOG_UNREADABLE)) return;
    log_integer(&line, "status", status);
    log_text(&line, "error", broken ? "unreadable_request" : "out_of_memory");
    log_end(&line);
}

/* ---- The load ---- */

void log_tier(http_server *s) {
    cattn_stats kv = {.struct_size = sizeof kv};
    log_line line;
    cl_engine_get_kv_stats(s->engine, &kv);
    const uint64_t n_errors = kv.tier_errors - s->tier_errors, n_refused = kv.tier_refused - s->tier_refused;
    s->tier_errors = kv.tier_errors;
    s->tier_refused = kv.tier_refused;
    if (n_errors + n_refused == 0) return;
    if (!log_begin(&line, s->config.log, LOG_LEVEL_WARN, "the file of --kv-tier fails; what it lacks is computed")) return;
    log_integer(&line, "failed_calls", (int64_t)n_errors);
    log_integer(&line, "damaged_chunks", (int64_t)n_refused);
    log_text(&line, "fix", n_errors ? "look for a full or failing disk" : "if this repeats, look for a failing disk");
    log_end(&line);
}

void log_load(http_server *s) {
    cl_engine_stats now = {.struct_size = sizeof now};
    cattn_stats kv = {.struct_size = sizeof kv};
    log_line line;
    cl_engine_get_stats(s->engine, &now);
    cl_engine_get_kv_stats(s->engine, &kv);
    const cl_engine_stats before = s->logged;
    const double at = clock_seconds(), seconds = at - s->logged_at;
    s->logged = now;
    s->logged_at = at;
    const bool busy = now.n_running + now.n_waiting > 0 || now.steps > before.steps;
    if (!busy || s->config.log_load_s == 0 || !log_begin(&line, s->config.log, LOG_LEVEL_INFO, "load")) return;
    const int64_t n_prompt = now.prompt_tokens - before.prompt_tokens, n_cached = now.cached_tokens - before.cached_tokens;
    const int64_t n_prefill = now.prefill_tokens_computed - before.prefill_tokens_computed;
    log_integer(&line, "running", now.n_running);
    log_integer(&line, "waiting", now.n_waiting);
    log_real(&line, "prefill_tokens_per_s", (double)n_prefill / seconds);
    log_real(&line, "completion_tokens_per_s", (double)(now.completion_tokens - before.completion_tokens) / seconds);
    log_integer(&line, "kv_bytes_used", (int64_t)(kv.chunk_bytes * kv.chunks_live));
    log_integer(&line, "kv_bytes_saved", (int64_t)(kv.chunk_bytes * (kv.chunks_unshared - kv.chunks_live)));
    log_integer(&line, "kv_bytes_retained", (int64_t)(kv.chunk_bytes * kv.chunks_retained));
    if (n_prompt > 0) log_real(&line, "hit_rate", (double)n_cached / (double)n_prompt);
    log_end(&line);
}
