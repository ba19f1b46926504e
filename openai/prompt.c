/* Reads a request's prompts as token ids: chat messages through the chat format, text and token ids as they are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

static bool no_memory(openai_error *error) {
    return openai_fail_from(error, NULL, &(cl_error){CL_ERR_NOMEM, "out of memory for the prompt"});
}

/*
 * If the tokenizer may shorten text (cl_tokenizer_shortens), n bytes of text become at least n / MAX_SHORTENED bytes of pieces.
 * A character that NFC composes has at least a third of the bytes of its parts, and the space that replaces a U+2581 a third of
 * its bytes; 4 leaves a margin.
 */
enum { MAX_SHORTENED = 4 };

/*
 * Refuse text that cannot fit the context whatever it contains. The engine would refuse it too, by its number of tokens; but
 * tokenizing megabytes takes seconds, during which all requests behind this one wait.
 */
static bool check_size(const openai_context *context, const char *where, size_t size, openai_error *error) {
    const cl_tokenizer *tok = context->model->tok;
    const size_t shortened = cl_tokenizer_shortens(tok) ? MAX_SHORTENED : 1;
    const size_t limit = (size_t)context->n_ctx * shortened * cl_tokenizer_longest(tok);
    if (limit == 0 || size <= limit) return true;
    cl_error cause;
    cl_fail(&cause, CL_ERR_LIMIT, CL_CONTEXT_LENGTH_MESSAGE ", at most %zu bytes of text; '%s' has %zu bytes: shorten it",
            (long long)context->n_ctx, limit, where, size);
    return openai_fail_from(error, where, &cause);
}

/* ---- Chat ---- */

/* Join the text parts of message i's content, which is an array, into one allocated string, one part per line. */
static char *join_parts(const json_t *parts, size_t i, size_t *size, openai_error *error) {
    char where[64];
    *size = 0;
    for (size_t j = 0; j < json_array_size(parts); j++) {
        const json_t *part = json_array_get(parts, j);
        const json_t *kind = json_object_get(part, "type");
        const char *type = NULL;
        snprintf(where, sizeof where, "messages[%zu].content[%zu]", i, j);
        if (json_is_string(kind) && !field_name(kind, where, &type, error)) return NULL;
        if (!type || strcmp(type, "text") != 0 || !json_is_string(json_object_get(part, "text"))) {
            openai_fail(error, where, "'%s' must be {\"type\": \"text\", \"text\": ...}; this model accepts only text", where);
            return NULL;
        }
        *size += (j > 0) + json_string_length(json_object_get(part, "text"));
    }
    char *text = malloc(*size + 1), *end = text;
    if (!text) {
        no_memory(error);
        return NULL;
    }
    for (size_t j = 0; j < json_array_size(parts); j++) {
        const json_t *part = json_object_get(json_array_get(parts, j), "text");
        if (j > 0) *end++ = '\n'; /* as vLLM and llama.cpp do for templates that expect a string */
        memcpy(end, json_string_value(part), json_string_length(part));
        end += json_string_length(part);
    }
    *end = '\0';
    return text;
}

/* Read a message's role; `where` is its name in messages. */
static bool parse_role(const json_t *value, const char *where, const char **role, openai_error *error) {
    if (!json_is_string(value)) value = NULL;
    *role = "";
    if (value && !field_name(value, where, role, error)) return false;
    if (strcmp(*role, "developer") == 0) *role = "system"; /* OpenAI's newer name for "system" */
    return strcmp(*role, "system") == 0 || strcmp(*role, "user") == 0 || strcmp(*role, "assistant") == 0 ||
           openai_fail(error, where, "'%s' must be \"system\", \"user\" or \"assistant\"", where);
}

/* Read message i. If its content must be joined from parts, it is allocated in *joined, for the caller to free. */
static bool parse_message(const json_t *value, size_t i, cl_chat_message *message, char **joined, openai_error *error) {
    char where[64];
    snprintf(where, sizeof where, "messages[%zu]", i);
    if (!json_is_object(value)) return openai_fail(error, where, "'%s' must be an object, not %s", where, field_kind(value));

    snprintf(where, sizeof where, "messages[%zu].role", i);
    if (!parse_role(json_object_get(value, "role"), where, &message->role, error)) return false;
    if (field_get_requested(value, "tool_calls") || field_get_requested(value, "function_call")) {
        snprintf(where, sizeof where, "messages[%zu].tool_calls", i);
        return openai_fail(error, where, "'%s' is not supported by this server; describe the call in 'content'", where);
    }
    const json_t *content = field_get(value, "content");
    snprintf(where, sizeof where, "messages[%zu].content", i);
    if (json_is_string(content)) {
        message->content = json_string_value(content);
        message->content_size = json_string_length(content);
        return true;
    }
    if (!json_is_array(content))
        return openai_fail(error, where, "'%s' must be a string or an array of text parts%s%s", where, content ? ", not " : "",
                           content ? field_kind(content) : "");
    message->content = *joined = join_parts(content, i, &message->content_size, error);
    return *joined;
}

/* check_size of all messages together. Text that a chat format would trim counts too; no real prompt comes near the limit. */
static bool check_messages(const openai_context *context, const cl_chat_message *messages, size_t n, openai_error *error) {
    size_t size = 0;
    for (size_t i = 0; i < n; i++) size += messages[i].content_size;
    return check_size(context, "messages", size, error);
}

static bool parse_messages(const openai_context *context, const json_t *body, openai_prompt *prompt, openai_error *error) {
    const json_t *value = field_get(body, "messages");
    if (!json_is_array(value) || json_array_size(value) == 0)
        return openai_fail(error, "messages", "'messages' must be an array of at least one message");
    const cl_model *m = context->model;
    if (context->chat == CL_CHAT_NONE)
        return openai_fail(error, "messages", "this model has no chat format: %s",
                           m->chat_error.code != CL_OK
                               ? m->chat_error.message
                               : "its file has no chat template; send 'prompt' to /v1/completions instead");

    const size_t n = json_array_size(value);
    cl_chat_message *messages = calloc(n, sizeof *messages);
    char **joined = calloc(n, sizeof *joined);
    bool ok = messages && joined;
    if (!ok) no_memory(error);
    for (size_t i = 0; ok && i < n; i++) ok = parse_message(json_array_get(value, i), i, &messages[i], &joined[i], error);
    ok = ok && check_messages(context, messages, n, error);
    cl_error cause;
    if (ok && cl_chat_render(context->chat, m->tok, m->file, messages, n, &prompt->tokens, &cause) != CL_OK)
        ok = openai_fail_from(error, "messages", &cause);
    for (size_t i = 0; joined && i < n; i++) free(joined[i]);
    free(joined);
    free(messages);
    return ok;
}

/* ---- Completions ---- */

/* Refuse more tokens than the context holds. The engine would too, but only after all prompts have been tokenized. */
static bool check_count(const openai_context *context, const char *where, size_t n_tokens, openai_error *error) {
    if (context->n_ctx == 0 || n_tokens <= (size_t)context->n_ctx) return true;
    cl_error cause;
    cl_fail(&cause, CL_ERR_LIMIT, CL_CONTEXT_LENGTH_MESSAGE "; '%s' has %zu: shorten it", (long long)context->n_ctx, where,
            n_tokens);
    return openai_fail_from(error, where, &cause);
}

static bool add_token(cl_token_list *list, int32_t id, openai_error *error) {
    cl_error cause;
    return cl_token_list_add(list, id, &cause) == CL_OK || openai_fail_from(error, "prompt", &cause);
}

static bool parse_text(const openai_context *context, const json_t *value, const char *where, bool echo, openai_prompt *prompt,
                       openai_error *error) {
    const cl_tokenizer *tok = context->model->tok;
    const char *text = json_string_value(value);
    const size_t size = json_string_length(value);
    const bool bos = cl_tokenizer_adds_bos(tok) || (size == 0 && cl_tokenizer_bos(tok) >= 0);
    if (!check_size(context, where, size, error)) return false;
    if (bos && !add_token(&prompt->tokens, cl_tokenizer_bos(tok), error)) return false;
    cl_error cause;
    if (cl_tokenizer_encode(tok, text, size, true, &prompt->tokens, &cause) != CL_OK)
        return openai_fail_from(error, "prompt", &cause);
    if (!check_count(context, where, prompt->tokens.n, error)) return false;
    if (!echo) return true;
    prompt->text = malloc(size + 1);
    if (!prompt->text) return no_memory(error);
    memcpy(prompt->text, text, size + 1);
    prompt->text_size = size;
    return true;
}

/* Set the prompt's text from its token ids, for echo. */
static bool set_text(const cl_tokenizer *tok, openai_prompt *prompt, openai_error *error) {
    size_t size = 0, at = 0;
    char nothing[1];
    for (size_t i = 0; i < prompt->tokens.n; i++) size += cl_tokenizer_piece(tok, prompt->tokens.ids[i], true, nothing, 0);
    prompt->text = malloc(size + 1);
    if (!prompt->text) return no_memory(error);
    for (size_t i = 0; i < prompt->tokens.n; i++)
        at += cl_tokenizer_piece(tok, prompt->tokens.ids[i], true, prompt->text + at, size - at);
    prompt->text[size] = '\0';
    prompt->text_size = size;
    return true;
}

static bool parse_ids(const openai_context *context, const json_t *value, const char *where, bool echo, openai_prompt *prompt,
                      openai_error *error) {
    if (!check_count(context, where, json_array_size(value), error)) return false;
    char element[96];
    for (size_t i = 0; i < json_array_size(value); i++) {
        int32_t id;
        snprintf(element, sizeof element, "%s[%zu]", where, i);
        if (!field_token(json_array_get(value, i), element, context->model, &id, error) ||
            !add_token(&prompt->tokens, id, error))
            return false;
    }
    return !echo || set_text(context->model->tok, prompt, error);
}

static bool parse_prompt(const openai_context *context, const json_t *value, const char *where, bool echo,
                         openai_prompt *prompt, openai_error *error) {
    if (json_is_string(value)) {
        if (!parse_text(context, value, where, echo, prompt, error)) return false;
    } else if (json_is_array(value)) {
        if (!parse_ids(context, value, where, echo, prompt, error)) return false;
    } else {
        return openai_fail(error, where, "'%s' must be a string or an array of token ids, not %s", where, field_kind(value));
    }
    if (prompt->tokens.n == 0) return openai_fail(error, where, "'%s' must have at least one token", where);
    return true;
}

bool openai_parse_prompts(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    const bool chat = r->endpoint == OPENAI_CHAT;
    const json_t *value = chat ? NULL : field_get(body, "prompt");
    if (!chat && !value)
        return openai_fail(error, "prompt", "'prompt' is missing; send a string, an array of strings, or token ids");
    /* An array of integers is one prompt; the elements of any other array are one prompt each. */
    const bool several = json_is_array(value) && !json_is_integer(json_array_get(value, 0));
    const size_t n = several ? json_array_size(value) : 1;
    if (n == 0 || n > OPENAI_MAX_PROMPTS)
        return openai_fail(error, "prompt", "'prompt' has %zu prompts; it must have from 1 to %d", n, OPENAI_MAX_PROMPTS);
    r->prompts = calloc(n, sizeof *r->prompts);
    if (!r->prompts) return no_memory(error);
    r->n_prompts = n;
    if (chat) return parse_messages(context, body, r->prompts, error);
    if (!several) return parse_prompt(context, value, "prompt", r->echo, r->prompts, error);
    for (size_t i = 0; i < n; i++) {
        char where[64];
        snprintf(where, sizeof where, "prompt[%zu]", i);
        if (!parse_prompt(context, json_array_get(value, i), where, r->echo, &r->prompts[i], error)) return false;
    }
    return true;
}
