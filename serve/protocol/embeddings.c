/* Requests for embeddings, and their answers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

/* ---- The request ---- */

/* As the model's file says, or else the last state, as in vLLM for models that generate. */
static cl_engine_pooling pooling_of_model(const cl_model *m) {
    return m->params.pools_mean ? CL_ENGINE_POOL_MEAN : CL_ENGINE_POOL_LAST;
}

static bool parse_pooling(const openai_context *context, const json_t *body, cl_engine_pooling *pooling, openai_error *error) {
    const json_t *value = field_get(body, "pooling");
    const char *name = "";
    if (value && !field_name(value, "pooling", &name, error)) return false;
    if (strcmp(name, "last") == 0)
        *pooling = CL_ENGINE_POOL_LAST;
    else if (strcmp(name, "mean") == 0)
        *pooling = CL_ENGINE_POOL_MEAN;
    else if (value)
        return openai_refuse(error, "pooling", "is '%.40s'; it must be \"last\" or \"mean\"", name);
    else
        *pooling = context->defaults.pooling ? context->defaults.pooling : pooling_of_model(context->model);
    return true;
}

static bool parse_form(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    const json_t *value = field_get(body, "encoding_format");
    const char *name = "float";
    if (value && !field_name(value, "encoding_format", &name, error)) return false;
    r->base64 = strcmp(name, "base64") == 0;
    if (!r->base64 && strcmp(name, "float") != 0)
        return openai_refuse(error, "encoding_format", "is '%.40s'; it must be \"float\" or \"base64\"", name);
    r->dimensions = context->model->params.n_embd;
    return field_int32(body, "dimensions", 1, r->dimensions, &r->dimensions, error);
}

/* Whether the vectors keep their lengths: Jina's name, vLLM's earlier one, its own, and llama-server's number. */
static bool parse_raw(const json_t *body, openai_request *r, openai_error *error) {
    static const char *const names[] = {"normalized", "normalize", "use_activation"}; /* the last one counts */
    bool normalized = true;
    int32_t norm = 2;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!field_bool(body, names[i], &normalized, error)) return false;
    if (!field_int32(body, "embd_normalize", -1, 2, &norm, error)) return false;
    r->raw = !normalized || norm == -1;
    return true;
}

static bool ends_with(const cl_token_list *list, const cl_token_list *end) {
    return list->n >= end->n && memcmp(list->ids + list->n - end->n, end->ids, end->n * sizeof *end->ids) == 0;
}

/* Models that are trained to give embeddings may need tokens behind the text, such as EOS. */
static bool add_trailing(const openai_context *context, openai_request *r, openai_error *error) {
    const cl_tokenizer *tok = context->model->tok;
    cl_token_list trailing = {0};
    cl_error cause;
    cl_status status = cl_tokenizer_add_trailing(tok, &trailing, &cause);
    for (size_t i = 0; trailing.n > 0 && status == CL_OK && i < r->n_prompts; i++) {
        cl_token_list *tokens = &r->prompts[i].tokens;
        if (!ends_with(tokens, &trailing)) status = cl_tokenizer_add_trailing(tok, tokens, &cause);
    }
    cl_token_list_free(&trailing);
    return status == CL_OK || openai_fail_from(error, NULL, &cause);
}

bool openai_embedding_begin(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    cl_engine_request *p = &r->params;
    *r = (openai_request){.endpoint = OPENAI_EMBEDDING, .id_prefix = "embd-", .n = 1};
    cl_engine_request_init(p);
    p->max_tokens = 0;
    return openai_check_body(context, body, error) && openai_check_offered(r->endpoint, body, error) &&
           openai_parse_common(context, body, r, error) && parse_pooling(context, body, &p->pooling, error) &&
           parse_form(context, body, r, error) && openai_parse_special(context, body, r, error);
}

bool openai_embedding_end(const openai_context *context, openai_request *r, openai_error *error) {
    return (!r->adds_special || add_trailing(context, r, error)) && openai_truncate_prompts(context, r, error);
}

bool openai_embedding_parse(const openai_context *context, const json_t *body, openai_request *request, openai_error *error) {
    const char *texts = !field_get(body, "input") && field_get(body, "content") ? "content" : "input"; /* llama-server's name */
    return openai_embedding_parse_as(context, body, texts, request, error);
}

bool openai_embedding_parse_as(const openai_context *context, const json_t *body, const char *texts, openai_request *request,
                               openai_error *error) {
    if (openai_embedding_begin(context, body, request, error) && parse_raw(body, request, error) &&
        openai_parse_prompt_list(context, field_get(body, texts), texts, OPENAI_MAX_INPUTS, request, error) &&
        openai_embedding_end(context, request, error))
        return true;
    openai_request_free(request);
    return false;
}

/* ---- The answer ---- */

/* What the first n components are divided by, for their length to be 1; those of a zero vector stay. */
static double length_of(const float *x, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum > 0 ? sqrt(sum) : 1;
}

/* Bytes [n] as base64 (RFC 4648), allocated; NULL if memory is lacking. */
static char *base64(const unsigned char *bytes, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc((n + 2) / 3 * 4 + 1), *end = text;
    if (!text) return NULL;
    for (size_t i = 0; i < n; i += 3) {
        const size_t left = n - i;
        const unsigned group = (unsigned)bytes[i] << 16 | (left > 1 ? bytes[i + 1] : 0u) << 8 | (left > 2 ? bytes[i + 2] : 0u);
        *end++ = digits[group >> 18];
        *end++ = digits[group >> 12 & 63];
        *end++ = left > 1 ? digits[group >> 6 & 63] : '=';
        *end++ = left > 2 ? digits[group & 63] : '=';
    }
    *end = '\0';
    return text;
}

/* Write a vector as base64 of its components, which this CPU stores as little-endian f32. */
static void write_base64(openai_writer *w, const char *key, const float *x, int32_t n, double length) {
    float *scaled = calloc((size_t)n, sizeof *scaled);
    for (int32_t i = 0; scaled && i < n; i++) scaled[i] = (float)((double)x[i] / length);
    char *text = scaled ? base64((const unsigned char *)scaled, (size_t)n * sizeof *scaled) : NULL;
    text ? writer_string(w, key, text) : writer_fail(w);
    free(text);
    free(scaled);
}

static void write_floats(openai_writer *w, const char *key, const float *x, int32_t n, double length) {
    writer_open(w, key, '[');
    for (int32_t i = 0; i < n; i++) writer_real(w, NULL, (double)(float)((double)x[i] / length));
    writer_close(w);
}

void openai_write_embedding(openai_writer *w, const char *key, const openai_result *result, size_t i) {
    const openai_request *r = result->request;
    const float *x = result->embeddings[i];
    (r->base64 ? write_base64 : write_floats)(w, key, x, r->dimensions, r->raw ? 1 : length_of(x, r->dimensions));
}

void openai_write_embeddings(openai_writer *w, const char *key, const openai_result *result) {
    const openai_request *r = result->request;
    const openai_usage usage = openai_result_usage(result);
    writer_open(w, key, '{');
    openai_write_head(w, result, "list");
    writer_open(w, "data", '[');
    for (size_t i = 0; i < r->n_prompts; i++) {
        writer_open(w, NULL, '{');
        writer_string(w, "object", "embedding");
        writer_integer(w, "index", (int64_t)i);
        openai_write_embedding(w, "embedding", result, i);
        writer_close(w);
    }
    writer_close(w);
    openai_write_usage(w, "usage", &usage);
    writer_close(w);
}
