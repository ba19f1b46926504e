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

/* Models that are trained to give embeddings may need an end token behind the text. */
static bool add_end_tokens(const openai_context *context, openai_request *r, openai_error *error) {
    const cl_tokenizer *tok = context->model->tok;
    if (!cl_tokenizer_adds_eos(tok)) return true;
    const int32_t eos = cl_tokenizer_eos(tok);
    for (size_t i = 0; i < r->n_prompts; i++) {
        cl_token_list *tokens = &r->prompts[i].tokens;
        cl_error cause;
        if (tokens->ids[tokens->n - 1] != eos && cl_token_list_add(tokens, eos, &cause) != CL_OK)
            return openai_fail_from(error, NULL, &cause);
    }
    return true;
}

static bool parse(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    cl_engine_request *p = &r->params;
    return openai_check_body(context, body, error) && openai_check_offered(r->endpoint, body, error) &&
           field_int32(body, "priority", -CL_ENGINE_MAX_PRIORITY, CL_ENGINE_MAX_PRIORITY, &p->priority, error) &&
           parse_pooling(context, body, &p->pooling, error) && parse_form(context, body, r, error) &&
           openai_parse_prompt_list(context, field_get(body, "input"), "input", OPENAI_MAX_INPUTS, r, error) &&
           add_end_tokens(context, r, error);
}

bool openai_embedding_parse(const openai_context *context, const json_t *body, openai_request *request, openai_error *error) {
    *request = (openai_request){.endpoint = OPENAI_EMBEDDING, .id_prefix = "embd-", .n = 1};
    cl_engine_request_init(&request->params);
    request->params.max_tokens = 0;
    request->params.timeout_s = context->timeout_s;
    request->params.queue_timeout_s = context->queue_timeout_s;
    if (parse(context, body, request, error)) return true;
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

/* Write the member "embedding" as base64 of its components, which this CPU stores as little-endian f32. */
static void write_base64(openai_writer *w, const float *x, int32_t n, double length) {
    float *scaled = calloc((size_t)n, sizeof *scaled);
    for (int32_t i = 0; scaled && i < n; i++) scaled[i] = (float)((double)x[i] / length);
    char *text = scaled ? base64((const unsigned char *)scaled, (size_t)n * sizeof *scaled) : NULL;
    text ? writer_string(w, "embedding", text) : writer_fail(w);
    free(text);
    free(scaled);
}

static void write_floats(openai_writer *w, const float *x, int32_t n, double length) {
    writer_open(w, "embedding", '[');
    for (int32_t i = 0; i < n; i++) writer_real(w, NULL, (double)(float)((double)x[i] / length));
    writer_close(w);
}

void openai_write_embeddings(openai_writer *w, const char *key, const openai_result *result) {
    const openai_request *r = result->request;
    const openai_usage usage = openai_result_usage(result);
    writer_open(w, key, '{');
    openai_write_head(w, result, "list");
    writer_open(w, "data", '[');
    for (size_t i = 0; i < r->n_prompts; i++) {
        const float *x = result->embeddings[i];
        writer_open(w, NULL, '{');
        writer_string(w, "object", "embedding");
        writer_integer(w, "index", (int64_t)i);
        (r->base64 ? write_base64 : write_floats)(w, x, r->dimensions, length_of(x, r->dimensions));
        writer_close(w);
    }
    writer_close(w);
    openai_write_usage(w, "usage", &usage);
    writer_close(w);
}
