/* Writes whole answers and the chunks of streams. */
#include <stdlib.h>

#include "llama/common/str.h"
#include "openai.h"

json_t *openai_text_json(const char *bytes, size_t size) {
    if (size == 0) return json_string("");
    json_t *json = json_stringn(bytes, size);
    if (json) return json;
    size_t mended_size; /* the bytes are not UTF-8, which is rare */
    char *mended = cl_utf8_mended(bytes, size, &mended_size);
    if (!mended) return NULL;
    json = json_stringn_nocheck(mended, mended_size);
    free(mended);
    return json;
}

json_t *openai_usage_json(const openai_usage *usage) {
    const json_int_t prompt = usage->prompt_tokens, completion = usage->completion_tokens, cached = usage->cached_tokens;
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", prompt, "completion_tokens", completion, "total_tokens",
                     prompt + completion, "prompt_tokens_details", "cached_tokens", cached);
}

/* The fields that every answer and chunk begins with. */
static json_t *head_json(const openai_result *result, const char *object) {
    return json_pack("{s:s, s:s, s:I, s:s}", "id", result->id, "object", object, "created", (json_int_t)result->created,
                     "model", result->context->model_name);
}

/* The token ids from index `first` on. */
static json_t *ids_json(const cl_token_list *list, size_t first) {
    json_t *ids = json_array();
    for (size_t i = first; i < list->n; i++) json_array_append_new(ids, json_integer(list->ids[i]));
    return ids;
}

/* The prompt's text followed by the choice's own. */
static json_t *echoed_json(const openai_prompt *prompt, const char *text, size_t size) {
    json_t *before = openai_text_json(prompt->text, prompt->text_size), *after = openai_text_json(text, size);
    json_t *joined = json_pack("s%+%", json_string_value(before), json_string_length(before), json_string_value(after),
                               json_string_length(after));
    json_decref(before);
    json_decref(after);
    return joined;
}

static json_t *finish_json(cl_engine_finish finish) {
    const char *name = openai_finish_name(finish);
    return name ? json_string(name) : json_null();
}

static json_t *choice_json(const openai_result *result, size_t i) {
    const openai_request *r = result->request;
    const openai_choice *c = &result->choices[i];
    const openai_prompt *prompt = &r->prompts[i / (size_t)r->params.n];
    int64_t offset = 0;
    json_t *logprobs = openai_logprobs_json(result, i, 0, r->echo, &offset), *choice;
    if (r->endpoint == OPENAI_CHAT)
        choice = json_pack("{s:i, s:{s:s, s:o, s:n}, s:o, s:o}", "index", (int)i, "message", "role", "assistant", "content",
                           openai_text_json(c->text, c->text_size), "refusal", "logprobs", logprobs, "finish_reason",
                           finish_json(c->finish));
    else
        choice = json_pack("{s:i, s:o, s:o, s:o}", "index", (int)i, "text",
                           r->echo ? echoed_json(prompt, c->text, c->text_size) : openai_text_json(c->text, c->text_size),
                           "logprobs", logprobs, "finish_reason", finish_json(c->finish));
    if (r->return_token_ids) {
        json_object_set_new(choice, "token_ids", ids_json(&c->tokens, 0));
        json_object_set_new(choice, "prompt_token_ids", ids_json(&prompt->tokens, 0));
    }
    return choice;
}

json_t *openai_result_json(const openai_result *result) {
    json_t *answer = head_json(result, result->request->endpoint == OPENAI_CHAT ? "chat.completion" : "text_completion");
    json_t *choices = json_array();
    for (size_t i = 0; i < result->n_choices; i++) json_array_append_new(choices, choice_json(result, i));
    const openai_usage usage = openai_result_usage(result);
    json_object_set_new(answer, "choices", choices);
    json_object_set_new(answer, "usage", openai_usage_json(&usage));
    return answer;
}

/* A chunk with these choices, and with include_usage also with `usage`, which may be JSON null. Steals both references. */
static json_t *chunk_json(const openai_result *result, json_t *choices, json_t *usage) {
    json_t *chunk = head_json(result, result->request->endpoint == OPENAI_CHAT ? "chat.completion.chunk" : "text_completion");
    json_object_set_new(chunk, "choices", choices);
    if (result->request->include_usage) json_object_set_new(chunk, "usage", usage);
    return chunk;
}

/* The usage of choice c of prompt i so far. */
static json_t *usage_so_far(const openai_result *result, size_t i, const openai_choice *c) {
    openai_usage usage = result->usage[i];
    usage.completion_tokens = (int64_t)c->tokens.n;
    return openai_usage_json(&usage);
}

json_t *openai_chunk_json(openai_result *result, size_t i, const cl_engine_event *event) {
    const openai_request *r = result->request;
    const bool chat = r->endpoint == OPENAI_CHAT, has_token = event->token >= 0;
    if (event->prompt) return json_null(); /* the choice's first chunk reports the prompt */
    const bool shows =
        event->text_size || event->finish != CL_ENGINE_RUNNING || (has_token && (r->params.logprobs || r->return_token_ids));
    if (!shows) return json_null();

    const size_t index = i * (size_t)r->params.n + (size_t)event->choice;
    openai_choice *c = &result->choices[index];
    const bool first = !c->begun, echo = first && r->echo;
    c->begun = true;
    const size_t first_token = c->tokens.n - has_token;
    json_t *logprobs =
        has_token || echo ? openai_logprobs_json(result, index, first_token, echo, &c->text_offset) : json_null();
    json_t *text =
        echo ? echoed_json(&r->prompts[i], event->text, event->text_size) : openai_text_json(event->text, event->text_size);
    json_t *choice = json_pack("{s:i}", "index", (int)index);
    if (chat) {
        json_t *delta = json_object();
        if (first) json_object_set_new(delta, "role", json_string("assistant"));
        if (first || event->text_size) json_object_set(delta, "content", text);
        json_object_set_new(choice, "delta", delta);
    } else {
        json_object_set(choice, "text", text);
    }
    json_decref(text);
    json_object_set_new(choice, "logprobs", logprobs);
    json_object_set_new(choice, "finish_reason", finish_json(event->finish));
    if (r->return_token_ids) {
        json_object_set_new(choice, "token_ids", ids_json(&c->tokens, first_token));
        if (first) json_object_set_new(choice, "prompt_token_ids", ids_json(&r->prompts[i].tokens, 0));
    }
    return chunk_json(result, json_pack("[o]", choice), r->continuous_usage ? usage_so_far(result, i, c) : json_null());
}

json_t *openai_chunk_usage_json(const openai_result *result) {
    const openai_usage usage = openai_result_usage(result);
    return chunk_json(result, json_array(), openai_usage_json(&usage));
}
