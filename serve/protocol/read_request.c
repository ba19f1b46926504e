/* Reads a request's body, and submits its prompts to the engine. */
#include <math.h>
#include <stdlib.h>

#include "chunkllama/engine/check.h"
#include "dialect.h"
#include "messages.h"
#include "parse.h"

openai_context openai_local_context(const openai_context *context) {
    openai_context local = *context;
    local.defaults = context->local;
    return local;
}

bool openai_check_fields(const openai_context *context, const openai_request *request, openai_error *error) {
    cl_error cause;
    return cl_check_fields(&request->params, cl_tokenizer_n_vocab(context->model->tok), &cause) == CL_OK ||
           openai_fail_from_engine(error, request, &cause);
}

/* About the bytes of the logprobs of all prompts, by their numbers, strings and objects, if one choice has them. */
static size_t bytes_of_logprobs(const openai_request *r) {
    const size_t n_top = (size_t)r->n_top, from = (size_t)r->params.prompt_logprobs_from;
    if (!r->params.prompt_logprobs) return 0;
    const size_t of_token = r->echo && r->logprobs ? 6 : 0,
                 of_scored = (of_token > 0 ? 2 * n_top : 0) + 8 * (size_t)(r->n_prompt_top + 1);
    size_t n = 0;
    for (size_t i = 0; i < r->n_prompts; i++) {
        const size_t n_tokens = r->prompts[i].tokens.n, n_scored = n_tokens > from ? n_tokens - from : 0;
        n += of_token * n_tokens + of_scored * n_scored;
    }
    return n * OPENAI_VALUE_BYTES;
}

/*
 * About the bytes with which choices repeat the prompts: their texts, their ids, and, but for the first choice, for which they
 * were computed, their logprobs. Chats have these once for all choices.
 */
static size_t repeated_bytes(const openai_request *r) {
    const size_t n = (size_t)r->n, of_id = r->return_token_ids ? OPENAI_VALUE_BYTES : 0;
    size_t size = r->endpoint == OPENAI_COMPLETION && n > 1 ? (n - 1) * bytes_of_logprobs(r) : 0;
    for (size_t i = 0; i < r->n_prompts; i++) size += n * (r->prompts[i].text_size + of_id * r->prompts[i].tokens.n);
    return size;
}

/* About the bytes of a prompt's embedding: as an event, in the result, and as text; scores have no text of it. */
static size_t bytes_of_embedding(const openai_context *context, const openai_request *r) {
    const size_t n = (size_t)context->model->params.n_embd, n_written = r->n_queries > 0 ? 0 : (size_t)r->dimensions;
    return 2 * n * sizeof(float) + n_written * (r->base64 ? 4 * sizeof(float) : OPENAI_VALUE_BYTES);
}

/* Logprobs count twice where they were computed: as events and results, and in the answer. */
size_t openai_answer_bytes(const openai_context *context, const openai_request *r) {
    return repeated_bytes(r) + 2 * bytes_of_logprobs(r) +
           (r->params.pooling ? r->n_prompts * bytes_of_embedding(context, r) : 0);
}

bool openai_check_repeated(const openai_request *r, openai_error *error) {
    const size_t size = repeated_bytes(r);
    return size <= OPENAI_MAX_REPEATED ||
           openai_fail(
               error, r->n > 1 ? "n" : "prompt",
               "the choices of the answer would repeat the prompts in %zu bytes; at most %d are possible: lower 'n', or "
               "send fewer or shorter prompts",
               size, OPENAI_MAX_REPEATED);
}

bool openai_request_parse(const openai_context *context, openai_endpoint endpoint, const json_t *body, openai_request *request,
                          openai_error *error) {
    return openai_request_parse_as(context, endpoint, "response_format", OPENAI_MAX_TOOL_NAME, body, request, error);
}

bool openai_request_parse_as(const openai_context *context, openai_endpoint endpoint, const char *format, size_t max_tool_name,
                             const json_t *body, openai_request *request, openai_error *error) {
    *request = (openai_request){.endpoint = endpoint,
                                .id_prefix = endpoint == OPENAI_CHAT ? "chatcmpl-" : "cmpl-",
                                .n_ctx = context->n_ctx,
                                .format = format};
    cl_engine_request_init(&request->params);
    if (openai_check_body(context, body, error) && openai_check_offered(endpoint, body, error) &&
        (endpoint != OPENAI_CHAT || openai_check_texts(context, body, error)) &&
        openai_parse_params(context, body, request, error) && openai_parse_tools(body, max_tool_name, request, error) &&
        openai_parse_prompts(context, body, request, error) && openai_prepare_replies(context, request, error) &&
        openai_limit_reasoning(context, request, error) && openai_check_repeated(request, error))
        return true;
    openai_request_free(request);
    return false;
}

bool openai_pin_parse(const openai_context *context, const json_t *body, openai_request *request, openai_error *error) {
    *request = (openai_request){0};
    const json_t *url = field_get(body, "url");
    const openai_dialect *dialect = url ? openai_dialect_read(url, "url", error) : openai_dialect_of(body);
    if (!dialect || !dialect->parse(context, body, request, error)) return false;
    if (request->n_prompts != 1) {
        openai_refuse(error, "prompt", "has %zu prompts; send them one by one", request->n_prompts);
        openai_request_free(request);
        return false;
    }
    cl_engine_request *p = &request->params;
    request->stream = false;
    request->n = p->n = 1;
    p->max_tokens = 0;
    p->beam_search = p->prompt_logprobs = false;
    p->pooling = CL_ENGINE_POOL_NONE;
    p->min_tokens = 0;
    p->grammar_kind = CL_GRAMMAR_NONE;
    p->grammar = NULL;
    p->grammar_size = 0;
    request->pin_ttl_s = 0;
    p->pin_tokens = 0;
    p->pin = true;
    return true;
}

void openai_request_free(openai_request *request) {
    for (int32_t i = 0; i < request->params.n_stop; i++) free(request->stop[i]);
    for (size_t i = 0; i < request->n_prompts; i++) {
        cl_token_list_free(&request->prompts[i].tokens);
        free(request->prompts[i].text);
    }
    free(request->prompts);
    free(request->id);
    free(request->salt);
    free(request->grammar);
    openai_rules_free(&request->rules);
    cl_token_list_free(&request->reasoning_end);
    json_decref(request->tools);
    json_decref(request->callable);
    json_decref(request->repeated);
    *request = (openai_request){.endpoint = request->endpoint};
}

int64_t openai_retry_after(cl_engine *e) {
    cl_engine_stats stats = {.struct_size = sizeof stats};
    cl_engine_get_stats(e, &stats);
    return (int64_t)ceil(stats.retry_after_s);
}

int64_t openai_max_tokens(const openai_request *request, size_t prompt) {
    const int64_t left = request->n_ctx - (int64_t)request->prompts[prompt].tokens.n, n = request->params.max_tokens;
    return left > 0 && n > left ? -1 : n;
}

size_t openai_submit(const openai_request *request, size_t first, cl_engine *e, void *owner,
                     void (*on_event)(void *submitted, const cl_engine_event *event), openai_submitted *submitted,
                     openai_error *error) {
    for (size_t i = first; i < request->n_prompts; i++) {
        submitted[i] = (openai_submitted){.owner = owner, .prompt = i};
        cl_engine_request params = request->params;
        params.prompt = request->prompts[i].tokens.ids;
        params.n_prompt = (int64_t)request->prompts[i].tokens.n;
        params.max_tokens = openai_max_tokens(request, i);
        params.in_reasoning = request->prompts[i].in_reasoning;
        params.on_event = on_event;
        params.ctx = &submitted[i];
        params.part_of = i > first ? submitted[first].id : 0;
        cl_error cause;
        if (cl_engine_submit(e, &params, &submitted[i].id, &cause) == CL_OK) continue;
        openai_fail_from_engine(error, request, &cause);
        if (cause.code == CL_ERR_BUSY) error->retry_after_s = openai_retry_after(e);
        return i;
    }
    return request->n_prompts;
}
