/* Writes logprobs in OpenAI's two shapes: chat's list of tokens and completions' parallel arrays. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama/common/str.h"
#include "openai.h"

/* The bytes of a token, owned. */
typedef struct piece {
    char *bytes;
    size_t size;
} piece;

/* Allocate the bytes of token `id`. False: memory is lacking. */
static bool piece_get(const openai_result *result, int32_t id, piece *p) {
    const cl_tokenizer *tok = result->context->model->tok;
    char nothing[1];
    p->size = cl_tokenizer_piece(tok, id, true, nothing, 0);
    p->bytes = malloc(p->size + 1);
    return p->bytes && cl_tokenizer_piece(tok, id, true, p->bytes, p->size) == p->size;
}

static bool is_utf8(const piece *p) { return cl_utf8_valid(p->bytes, p->size) == p->size; }

/* Characters that begin in the piece, so that a character spread over several pieces counts once. */
static int64_t n_characters(const piece *p) {
    int64_t n = 0;
    for (size_t i = 0; i < p->size; i++) n += ((unsigned char)p->bytes[i] & 0xc0) != 0x80;
    return n;
}

/* JSON has no infinity; OpenAI's servers report -9999 for impossible tokens. */
static json_t *logprob_json(float logprob) { return json_real(isfinite(logprob) ? (double)logprob : -9999.0); }

/* ---- Chat ---- */

/* {"token", "logprob", "bytes"} */
static json_t *chat_entry(const openai_result *result, const cl_sampler_logprob *l) {
    piece p = {0};
    json_t *bytes = json_array(), *entry = NULL;
    if (piece_get(result, l->id, &p)) {
        for (size_t i = 0; i < p.size; i++) json_array_append_new(bytes, json_integer((unsigned char)p.bytes[i]));
        entry = json_pack("{s:o, s:o, s:O}", "token", openai_text_json(p.bytes, p.size), "logprob", logprob_json(l->logprob),
                          "bytes", bytes);
    }
    json_decref(bytes);
    free(p.bytes);
    return entry;
}

static json_t *chat_json(const openai_result *result, const openai_logprobs *l, size_t first) {
    const size_t stride = (size_t)result->request->params.n_top;
    json_t *content = json_array();
    for (size_t i = first; i < l->n; i++) {
        json_t *entry = chat_entry(result, &l->chosen[i]), *top = json_array();
        for (int32_t j = 0; j < l->n_top[i]; j++)
            json_array_append_new(top, chat_entry(result, &l->top[i * stride + (size_t)j]));
        json_object_set_new(entry, "top_logprobs", top);
        json_array_append_new(content, entry);
    }
    return json_pack("{s:o, s:n}", "content", content, "refusal");
}

/* ---- Completions ---- */

/* A token as a string. One that is not whole characters is written as "bytes:\xe2\x80", which keeps the keys distinct. */
static json_t *name_json(const piece *p) {
    if (is_utf8(p)) return json_stringn(p->bytes, p->size);
    char *name = malloc(sizeof "bytes:" + 4 * p->size);
    if (!name) return NULL;
    char *end = name + sprintf(name, "bytes:");
    for (size_t i = 0; i < p->size; i++) end += sprintf(end, "\\x%02x", (unsigned char)p->bytes[i]);
    json_t *json = json_string(name);
    free(name);
    return json;
}

/* The four parallel arrays of a completion. */
typedef struct token_arrays {
    json_t *tokens, *token_logprobs, *top_logprobs, *text_offset;
    int64_t offset; /* characters before the next token */
} token_arrays;

static void add_candidate(json_t *candidates, const openai_result *result, const cl_sampler_logprob *l) {
    piece p = {0};
    if (piece_get(result, l->id, &p)) {
        json_t *name = name_json(&p);
        json_object_setn_new(candidates, json_string_value(name), json_string_length(name), logprob_json(l->logprob));
        json_decref(name);
    }
    free(p.bytes);
}

/* {token: logprob} of the likeliest tokens and of the chosen token, which may not be one of them. */
static json_t *candidates_json(const openai_result *result, const openai_logprobs *l, size_t i) {
    if (l->n_top[i] == 0) return json_null();
    json_t *candidates = json_object();
    const cl_sampler_logprob *top = l->top + i * (size_t)result->request->params.n_top;
    for (int32_t j = 0; j < l->n_top[i]; j++) add_candidate(candidates, result, &top[j]);
    add_candidate(candidates, result, &l->chosen[i]);
    return candidates;
}

/* Append one token. Steals the references to logprob and candidates. */
static void add_token(token_arrays *a, const openai_result *result, int32_t id, json_t *logprob, json_t *candidates) {
    piece p = {0};
    if (piece_get(result, id, &p)) {
        json_array_append_new(a->tokens, name_json(&p));
        json_array_append_new(a->text_offset, json_integer(a->offset));
        a->offset += n_characters(&p);
    }
    json_array_append_new(a->token_logprobs, logprob);
    json_array_append_new(a->top_logprobs, candidates);
    free(p.bytes);
}

static void add_tokens(token_arrays *a, const openai_result *result, const openai_logprobs *l, size_t first) {
    for (size_t i = first; i < l->n; i++)
        add_token(a, result, l->chosen[i].id, logprob_json(l->chosen[i].logprob), candidates_json(result, l, i));
}

static json_t *completion_json(const openai_result *result, size_t choice, size_t first, bool echo, int64_t *text_offset) {
    const size_t i = choice / (size_t)result->request->params.n;
    token_arrays a = {json_array(), json_array(), json_array(), json_array(), *text_offset};
    if (echo) {
        add_token(&a, result, result->request->prompts[i].tokens.ids[0], json_null(), json_null()); /* nothing precedes it */
        add_tokens(&a, result, &result->prompt_logprobs[i], 0);
    }
    add_tokens(&a, result, &result->choices[choice].logprobs, first);
    *text_offset = a.offset;
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", a.tokens, "token_logprobs", a.token_logprobs, "top_logprobs",
                     a.top_logprobs, "text_offset", a.text_offset);
}

json_t *openai_logprobs_json(const openai_result *result, size_t choice, size_t first, bool echo, int64_t *text_offset) {
    if (!result->request->params.logprobs) return json_null();
    if (result->request->endpoint == OPENAI_CHAT) return chat_json(result, &result->choices[choice].logprobs, first);
    return completion_json(result, choice, first, echo, text_offset);
}
