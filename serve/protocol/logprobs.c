/* Writes logprobs in OpenAI's two shapes, chat's list of tokens and completions' parallel arrays, and in vLLM's for prompts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/str.h"
#include "openai.h"

/* The likeliest tokens that logprobs show of the n that are known. */
static size_t n_shown(const openai_request *r, int32_t n_top) { return (size_t)(n_top < r->n_top ? n_top : r->n_top); }

/* The first tokens of prompt i, which have no logprobs: nothing precedes the first, and others may be left out. */
static size_t n_unscored(const openai_request *r, size_t i) {
    const size_t n = r->prompts[i].tokens.n, from = (size_t)r->params.prompt_logprobs_from;
    return from < 1 ? 1 : from < n ? from : n;
}

/* The bytes of a token, owned. */
typedef struct piece {
    char *bytes;
    size_t size;
} piece;

/* The bytes of token `id`. If memory is lacking, there are none and the writer fails. */
static piece piece_get(openai_writer *w, const openai_result *result, int32_t id) {
    piece p;
    p.bytes = openai_text_of(result->context->model->tok, &id, 1, &p.size);
    if (p.bytes) return p;
    writer_fail(w);
    return (piece){0};
}

/* A name by the token's id, as in vLLM. If memory is lacking, it is empty and the writer fails. */
static piece id_get(openai_writer *w, int32_t id) {
    enum { MAX = 32 };
    piece p = {malloc(MAX), 0};
    if (p.bytes)
        p.size = (size_t)snprintf(p.bytes, MAX, "token_id:%d", id);
    else
        writer_fail(w);
    return p;
}

static bool is_utf8(const piece *p) { return cl_utf8_valid(p->bytes, p->size) == p->size; }

/* Characters that begin in the piece, so that a character spread over several pieces counts once. */
static int64_t n_characters(const piece *p) {
    int64_t n = 0;
    for (size_t i = 0; i < p->size; i++) n += ((unsigned char)p->bytes[i] & 0xc0) != 0x80;
    return n;
}

double openai_reported(float logprob) { return isfinite(logprob) ? (double)logprob : -9999.0; }

/* ---- Chat ---- */

/* The members "token", "logprob" and "bytes". */
static void write_chat_token(openai_writer *w, const openai_result *result, const cl_sampler_logprob *l) {
    piece p = piece_get(w, result, l->id);
    const bool by_id = result->request->tokens_as_ids;
    piece name = by_id ? id_get(w, l->id) : p;
    writer_bytes(w, "token", name.bytes, name.size);
    if (by_id) free(name.bytes);
    writer_real(w, "logprob", openai_reported(l->logprob));
    writer_byte_values(w, "bytes", p.bytes, p.size);
    free(p.bytes);
}

void openai_write_token_logprobs(openai_writer *w, const char *key, const openai_result *result, const openai_logprobs *l,
                                 size_t first) {
    const size_t stride = (size_t)result->request->params.n_top;
    writer_open(w, key, '[');
    for (size_t i = first; i < l->n; i++) {
        writer_open(w, NULL, '{');
        write_chat_token(w, result, &l->chosen[i]);
        writer_open(w, "top_logprobs", '[');
        for (size_t j = 0; j < n_shown(result->request, l->n_top[i]); j++) {
            writer_open(w, NULL, '{');
            write_chat_token(w, result, &l->top[i * stride + j]);
            writer_close(w);
        }
        writer_close(w);
        writer_close(w);
    }
    writer_close(w);
}

static void write_chat(openai_writer *w, const openai_result *result, const openai_logprobs *l, size_t first) {
    writer_open(w, "logprobs", '{');
    openai_write_token_logprobs(w, "content", result, l, first);
    writer_null(w, "refusal");
    writer_close(w);
}

/* ---- Completions: four parallel arrays ---- */

/* The tokens that one answer or chunk reports. */
typedef struct span {
    openai_writer *w;
    const openai_result *result;
    size_t choice, first; /* the choice's tokens from this index on */
    bool echo;            /* after those of its prompt */
    int64_t offset;       /* characters before the next token */
} span;

/* A token of a span. l is NULL for a prompt's token without logprob; otherwise it is token i of l. */
typedef struct span_token {
    int32_t id;
    const openai_logprobs *l;
    size_t i;
} span_token;

/*
 * The name of token `id`: its bytes, or a text such as "bytes:\xe2\x80" if they are not UTF-8, so that names stay distinct. If
 * memory is lacking, it is empty and the writer fails.
 */
static piece name_get(openai_writer *w, const openai_result *result, int32_t id) {
    static const char prefix[] = "bytes:";
    if (result->request->tokens_as_ids) return id_get(w, id);
    piece p = piece_get(w, result, id);
    if (is_utf8(&p)) return p;
    char *name = malloc(sizeof prefix + 4 * p.size), *end = name;
    if (name) end += sprintf(end, "%s", prefix);
    for (size_t i = 0; name && i < p.size; i++) end += sprintf(end, "\\x%02x", (unsigned char)p.bytes[i]);
    if (!name) writer_fail(w);
    free(p.bytes);
    return (piece){name, (size_t)(end - name)};
}

static void put_token(span *s, const span_token *t) {
    piece name = name_get(s->w, s->result, t->id);
    writer_bytes(s->w, NULL, name.bytes, name.size);
    free(name.bytes);
}

static void put_logprob(span *s, const span_token *t) {
    if (t->l)
        writer_real(s->w, NULL, openai_reported(t->l->chosen[t->i].logprob));
    else
        writer_null(s->w, NULL);
}

static void put_candidate(span *s, const cl_sampler_logprob *l) {
    piece name = name_get(s->w, s->result, l->id);
    writer_named_real(s->w, name.bytes, name.size, openai_reported(l->logprob));
    free(name.bytes);
}

/* {token: logprob} of the likeliest tokens and of the chosen token, which may not be one of them. */
static void put_candidates(span *s, const span_token *t) {
    const size_t n_top = t->l ? n_shown(s->result->request, t->l->n_top[t->i]) : 0;
    if (n_top == 0) {
        writer_null(s->w, NULL);
        return;
    }
    const cl_sampler_logprob *top = t->l->top + t->i * (size_t)s->result->request->params.n_top;
    writer_open(s->w, NULL, '{');
    for (size_t j = 0; j < n_top; j++) put_candidate(s, &top[j]);
    put_candidate(s, &t->l->chosen[t->i]);
    writer_close(s->w);
}

static void put_offset(span *s, const span_token *t) {
    piece p = piece_get(s->w, s->result, t->id);
    writer_integer(s->w, NULL, s->offset);
    s->offset += n_characters(&p);
    free(p.bytes);
}

static void put_all(span *s, const openai_logprobs *l, size_t first, void (*put)(span *s, const span_token *t)) {
    for (size_t i = first; i < l->n; i++) put(s, &(span_token){l->chosen[i].id, l, i});
}

static void write_array(span *s, const char *key, void (*put)(span *s, const span_token *t)) {
    const openai_request *r = s->result->request;
    const size_t i = s->choice / (size_t)r->params.n;
    writer_open(s->w, key, '[');
    for (size_t k = 0; s->echo && k < n_unscored(r, i); k++) put(s, &(span_token){.id = r->prompts[i].tokens.ids[k]});
    if (s->echo) put_all(s, &s->result->prompt_logprobs[i], 0, put);
    put_all(s, &s->result->choices[s->choice].logprobs, s->first, put);
    writer_close(s->w);
}

void openai_write_logprobs(openai_writer *w, const openai_result *result, size_t choice, size_t first, bool echo,
                           int64_t *text_offset) {
    if (!result->request->logprobs) {
        writer_null(w, "logprobs");
        return;
    }
    if (result->request->endpoint == OPENAI_CHAT) {
        write_chat(w, result, &result->choices[choice].logprobs, first);
        return;
    }
    span s = {w, result, choice, first, echo, *text_offset};
    writer_open(w, "logprobs", '{');
    write_array(&s, "tokens", put_token);
    write_array(&s, "token_logprobs", put_logprob);
    write_array(&s, "top_logprobs", put_candidates);
    write_array(&s, "text_offset", put_offset);
    writer_close(w);
    *text_offset = s.offset;
}

/* ---- Prompts ---- */

/* {"logprob", "rank", "decoded_token"}, with the token's id as its name. */
static void write_ranked(openai_writer *w, const openai_result *result, const cl_sampler_logprob *l, int32_t rank) {
    char id[16];
    snprintf(id, sizeof id, "%d", l->id);
    piece p = piece_get(w, result, l->id);
    writer_open(w, id, '{');
    writer_real(w, "logprob", openai_reported(l->logprob));
    writer_integer(w, "rank", rank);
    writer_bytes(w, "decoded_token", p.bytes, p.size);
    writer_close(w);
    free(p.bytes);
}

void openai_write_prompt_logprobs(openai_writer *w, const openai_result *result, size_t i) {
    const openai_request *r = result->request;
    const openai_logprobs *l = &result->prompt_logprobs[i];
    writer_open(w, "prompt_logprobs", '[');
    for (size_t k = 0; k < n_unscored(r, i); k++) writer_null(w, NULL);
    for (size_t k = 0; k < l->n; k++) {
        writer_open(w, NULL, '{');
        write_ranked(w, result, &l->chosen[k], l->ranks[k]);
        for (int32_t j = 0; j < l->n_top[k] && j < r->n_prompt_top; j++) {
            const cl_sampler_logprob *top = &l->top[k * (size_t)r->params.n_top + (size_t)j];
            if (top->id >= 0 && top->id != l->chosen[k].id) write_ranked(w, result, top, j + 1);
        }
        writer_close(w);
    }
    writer_close(w);
}
