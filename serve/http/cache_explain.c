/*
 * POST /cache/explain: how far a prompt is in the cache, and why not further. The preparer's thread tokenizes the prompt, the
 * engine's thread looks it up, and the connection's thread puts the result into words.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache.h"
#include "generation_state.h"

/* Tokens of the text before a difference, and of the texts after it. */
enum { N_BEFORE = 32, N_AFTER = 16 };

/* generation.own */
typedef struct question {
    const cl_token_list *prompt; /* the one of the generation's request */
    char tenant[OPENAI_MAX_TENANT + 1];
    cattn_explanation found;
} question;

static bool prepare(http_generation *g, const json_t *body) {
    question *q = generation_allocate_own(g, sizeof *q);
    if (!q || !cache_read_prompt(g, body, q->tenant)) return false;
    q->prompt = &g->request.prompts[0].tokens;
    return true;
}

static void look(http_generation *g, const cattn_cache *cache) {
    (void)cache;
    question *q = g->own;
    cl_engine_request request = g->request.params;
    request.prompt = q->prompt->ids;
    request.n_prompt = (int64_t)q->prompt->n;
    q->found.struct_size = sizeof q->found;
    cl_engine_explain(g->srv->engine, &request, &q->found, NULL);
}

/* ---- The answer ---- */

static const char *reason_of(const cattn_explanation *e) {
    switch (e->end) {
    case CATTN_MATCH_WHOLE: return "whole";
    case CATTN_MATCH_DIFFERS: return "differs";
    case CATTN_MATCH_EVICTED: return "evicted";
    case CATTN_MATCH_PRIVATE: return "not_shared";
    default: return e->n_matched == 0 ? "absent" : "ends";
    }
}

/* One sentence for a person. */
static void write_message(openai_writer *w, const question *q) {
    const cattn_explanation *e = &q->found;
    const long long n = (long long)q->prompt->n, n_matched = (long long)e->n_matched;
    char text[400];
    switch (e->end) {
    case CATTN_MATCH_WHOLE:
        snprintf(text, sizeof text, "%lld of %lld tokens match: all that can, since the last ones are always computed.",
                 n_matched, n);
        break;
    case CATTN_MATCH_DIFFERS:
        snprintf(text, sizeof text, "%lld of %lld tokens match; at position %lld the cache has another token than the prompt.",
                 n_matched, n, (long long)e->difference);
        break;
    case CATTN_MATCH_EVICTED:
        snprintf(text, sizeof text,
                 "%lld of %lld tokens match; %lld were in the cache, and those that are missing have been evicted since %.1f "
                 "seconds ago: raise --kv-budget, or pin what prompts have in common.",
                 n_matched, n, (long long)e->n_evicted, e->evicted_seconds);
        break;
    case CATTN_MATCH_PRIVATE:
        snprintf(text, sizeof text, "Nothing matches, since the server shares nothing: --sharing is private.");
        break;
    default:
        snprintf(text, sizeof text,
                 "%lld of %lld tokens match; the cache has nothing behind them, and does not know that it had.", n_matched, n);
    }
    writer_string(w, "message", text);
}

static void write_token(openai_writer *w, const char *key, const http_server *s, const int32_t *tokens, int64_t n) {
    if (n <= 0) {
        writer_null(w, key);
        return;
    }
    writer_open(w, key, '{');
    writer_integer(w, "token", tokens[0]);
    cache_write_text(w, "token_text", s, tokens, 1);
    cache_write_text(w, "text", s, tokens, n < N_AFTER ? n : N_AFTER);
    writer_close(w);
}

/* What the prompt and the cache have where they part, and the text before that. */
static void write_difference(openai_writer *w, http_server *s, const question *q) {
    const cattn_explanation *e = &q->found;
    const cl_token_list *prompt = q->prompt;
    if (e->end == CATTN_MATCH_WHOLE || e->end == CATTN_MATCH_PRIVATE) {
        writer_null(w, "difference");
        return;
    }
    const int64_t at = e->difference >= 0 ? e->difference : e->n_matched, n_prompt = (int64_t)prompt->n;
    const int64_t before = at > N_BEFORE ? at - N_BEFORE : 0, in_next = at - e->n_matched;
    writer_open(w, "difference", '{');
    writer_integer(w, "position", at);
    cache_write_text(w, "before", s, prompt->ids + before, at - before);
    write_token(w, "prompt", s, prompt->ids + at, n_prompt - at);
    write_token(w, "cache", s, e->next + in_next, e->difference >= 0 ? e->n_next - in_next : 0);
    writer_close(w);
}

/* Seconds that computing n tokens takes at the mean rate of all prompts so far; null if none was computed. */
static void write_seconds(openai_writer *w, const char *key, const cl_engine_stats *stats, int64_t n) {
    const double n_computed = (double)(stats->prefill_tokens_computed + stats->recomputed_tokens);
    n_computed > 0 ? writer_real(w, key, stats->prefill_s / n_computed * (double)n) : writer_null(w, key);
}

static void write_found(openai_writer *w, http_server *s, const question *q) {
    const cattn_explanation *e = &q->found;
    const int64_t n = (int64_t)q->prompt->n;
    cl_engine_stats stats = {.struct_size = sizeof stats};
    cl_engine_get_stats(s->engine, &stats);
    writer_string(w, "object", "cache.explanation");
    writer_string(w, "tenant", q->tenant);
    writer_integer(w, "tokens", n);
    writer_integer(w, "matched", e->n_matched);
    writer_integer(w, "ready", e->n_ready);
    writer_integer(w, "coming", e->n_coming);
    writer_integer(w, "computing", e->n_matched - e->n_ready - e->n_coming);
    writer_integer(w, "in_file", e->n_in_tier);
    writer_string(w, "reason", reason_of(e));
    write_message(w, q);
    write_difference(w, s, q);
    if (e->n_evicted > 0) {
        writer_open(w, "evicted", '{');
        writer_integer(w, "tokens", e->n_evicted);
        writer_real(w, "seconds_ago", e->evicted_seconds);
        writer_close(w);
    } else
        writer_null(w, "evicted");
    if (e->n_other_matched > 0) {
        writer_open(w, "other", '{');
        writer_string(w, "tenant", cache_tenant(s, e->other_domain));
        writer_integer(w, "matched", e->n_other_matched);
        writer_close(w);
    } else
        writer_null(w, "other");
    write_seconds(w, "saved_seconds", &stats, e->n_matched);
    write_seconds(w, "missing_seconds", &stats, n - e->n_matched);
}

/* What a request of this body would be refused for, whatever the cache has; null: nothing that is known before it runs. */
static void write_refusal(openai_writer *w, const http_server *s, const openai_request *r) {
    char text[200];
    if (!r->grammar_field || s->config.has_grammars) {
        writer_null(w, "refusal");
        return;
    }
    snprintf(text, sizeof text,
             "%s needs llguidance, which this server lacks: install libllguidance.so, or name it with --grammar-library",
             r->grammar_field);
    writer_string(w, "refusal", text);
}

static enum MHD_Result reply(http_exchange *x, http_generation *g) {
    openai_writer w = {0};
    writer_open(&w, NULL, '{');
    write_found(&w, x->srv, g->own);
    write_refusal(&w, x->srv, &g->request);
    writer_close(&w);
    return http_reply_json(x, MHD_HTTP_OK, &w);
}

const generation_kind cache_explain = {.prepare = prepare, .look = look, .reply = reply};
