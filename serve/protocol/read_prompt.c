/*
 * Reads a request's prompts as token ids: text and token ids as they are, and the texts around a gap with the model's tokens
 * for that. read_chat.c reads the prompt of a chat.
 */
#include <stdlib.h>
#include <string.h>

#include "parse.h"

/*
 * If the tokenizer may shorten text (cl_tokenizer_shortens), n bytes of text become at least n / MAX_SHORTENED bytes of pieces.
 * A character that NFC composes has at least a third of the bytes of its parts, and the space that replaces a U+2581 a third of
 * its bytes; 4 leaves a margin.
 */
enum { MAX_SHORTENED = 4 };

/* The bytes of the longest text that the context may hold; 0: no limit. */
static size_t longest_text(const openai_context *context) {
    const cl_tokenizer *tok = context->model->tok;
    return (size_t)context->n_ctx * (cl_tokenizer_shortens(tok) ? MAX_SHORTENED : 1) * cl_tokenizer_longest(tok);
}

static const char *reason_of(const openai_context *context) { return context->n_ctx_reason ? context->n_ctx_reason : ""; }

static bool check_limit(const openai_context *context, const char *where, size_t size, size_t limit, openai_error *error) {
    if (context->n_ctx == 0 || size <= limit) return true;
    cl_error cause;
    cl_fail(&cause, CL_ERR_LIMIT, CL_CONTEXT_LENGTH_MESSAGE "%s, at most %zu bytes of text; '%s' has %zu bytes: shorten it",
            (long long)context->n_ctx, reason_of(context), limit, where, size);
    return openai_fail_from(error, where, &cause);
}

bool openai_check_size(const openai_context *context, const char *where, size_t size, openai_error *error) {
    return check_limit(context, where, size, longest_text(context), error);
}

/*
 * A template may leave out much of a chat, such as the names of fields, identifiers and earlier reasoning, but it is not worth
 * rendering beyond this.
 */
enum { MOST_LEFT_OUT = 4, ALWAYS_RENDERED = 64 << 10 };

bool openai_check_texts(const openai_context *context, const json_t *body, openai_error *error) {
    static const char *const fields[] = {"messages", "system",    "instructions",        "input",
                                         "tools",    "documents", "chat_template_kwargs"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!check_limit(context, fields[i], field_text_size(json_object_get(body, fields[i])),
                         MOST_LEFT_OUT * longest_text(context) + ALWAYS_RENDERED, error))
            return false;
    return true;
}

bool openai_check_count(const openai_context *context, const char *where, size_t n_tokens, openai_error *error) {
    if (context->n_ctx == 0 || n_tokens <= (size_t)context->n_ctx) return true;
    cl_error cause;
    cl_fail(&cause, CL_ERR_LIMIT, CL_CONTEXT_LENGTH_MESSAGE "%s; '%s' has %zu: shorten it", (long long)context->n_ctx,
            reason_of(context), where, n_tokens);
    return openai_fail_from(error, where, &cause);
}

bool openai_check_detokenized(const char *where, size_t size, openai_error *error) {
    return size <= OPENAI_MAX_TEXT ||
           openai_refuse(error, where, "has %zu bytes of text; an answer may have %d of it: send fewer tokens", size,
                         OPENAI_MAX_TEXT);
}

static bool add_token(cl_token_list *list, int32_t id, openai_error *error) {
    cl_error cause;
    return cl_token_list_add(list, id, &cause) == CL_OK || openai_fail_from(error, "prompt", &cause);
}

bool openai_parse_special(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    r->adds_special = true;
    r->parse_special = context->defaults.parse_special;
    return field_bool(body, "add_special_tokens", &r->adds_special, error) &&
           field_bool(body, "parse_special", &r->parse_special, error);
}

/* Note a name of a special token that stays text, for the log: other servers would have made it the token. */
static void note_special(const cl_tokenizer *tok, const char *text, size_t size, openai_request *r) {
    cl_str name;
    if (!r->parse_special && !r->special_name[0] && cl_tokenizer_names_special(tok, text, size, &name))
        cl_str_show(name, r->special_name, sizeof r->special_name);
}

/* The tokens before a text. One without any begins with BOS all the same. */
static cl_status add_leading(const cl_tokenizer *tok, size_t size, cl_token_list *tokens, cl_error *cause) {
    const cl_status status = cl_tokenizer_add_leading(tok, tokens, cause);
    if (status != CL_OK || tokens->n > 0 || size > 0 || cl_tokenizer_bos(tok) < 0) return status;
    return cl_token_list_add(tokens, cl_tokenizer_bos(tok), cause);
}

/* Append the tokens of a text; begins: it is the beginning of the prompt. */
static bool add_text(const openai_context *context, const json_t *value, const char *where, bool begins, openai_request *r,
                     cl_token_list *tokens, openai_error *error) {
    const cl_tokenizer *tok = context->model->tok;
    const char *text = json_string_value(value);
    const size_t size = json_string_length(value);
    cl_error cause;
    cl_status status = begins && r->adds_special ? add_leading(tok, size, tokens, &cause) : CL_OK;
    if (status == CL_OK)
        status =
            (r->parse_special ? cl_tokenizer_encode_template : cl_tokenizer_encode)(tok, text, size, begins, tokens, &cause);
    if (status != CL_OK) return openai_fail_from(error, where, &cause);
    note_special(tok, text, size, r);
    return true;
}

static bool check_fit(const openai_context *context, const openai_request *r, const char *where, size_t n_tokens,
                      openai_error *error) {
    return r->truncate != 0 || openai_check_count(context, where, n_tokens, error);
}

static bool parse_text(const openai_context *context, const json_t *value, const char *where, openai_request *r,
                       openai_prompt *prompt, openai_error *error) {
    const size_t size = json_string_length(value);
    if (!openai_check_size(context, where, size, error) || !add_text(context, value, where, true, r, &prompt->tokens, error) ||
        !check_fit(context, r, where, prompt->tokens.n, error))
        return false;
    if (!r->echo) return true;
    prompt->text = malloc(size + 1);
    if (!prompt->text) return openai_fail_memory(error);
    memcpy(prompt->text, json_string_value(value), size + 1);
    prompt->text_size = size;
    return true;
}

/* Set the text of one of r's prompts from its token ids. All texts together have a limit. */
static bool set_text(const openai_context *context, const openai_request *r, openai_prompt *prompt, openai_error *error) {
    const cl_tokenizer *tok = context->model->tok;
    free(prompt->text);
    prompt->text = NULL;
    prompt->text_size = openai_text_size(tok, prompt->tokens.ids, prompt->tokens.n);
    size_t size = 0;
    for (size_t i = 0; i < r->n_prompts; i++) size += r->prompts[i].text_size;
    if (!openai_check_detokenized("prompt", size, error)) return false;
    prompt->text = openai_text_of(tok, prompt->tokens.ids, prompt->tokens.n, &prompt->text_size);
    return prompt->text || openai_fail_memory(error);
}

bool openai_set_texts(const openai_context *context, openai_request *r, openai_error *error) {
    bool ok = true;
    for (size_t i = 0; ok && i < r->n_prompts; i++) ok = set_text(context, r, &r->prompts[i], error);
    return ok;
}

/* Token ids, and texts between them. All texts together have the limit of one. */
static bool parse_parts(const openai_context *context, const json_t *value, const char *where, openai_request *r,
                        openai_prompt *prompt, openai_error *error) {
    if (!check_fit(context, r, where, json_array_size(value), error) ||
        !openai_check_size(context, where, field_text_size(value), error))
        return false;
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *part = json_array_get(value, i);
        const field_path path = path_of("%s[%zu]", where, i);
        int32_t id;
        if (json_is_string(part)
                ? !add_text(context, part, path.text, i == 0, r, &prompt->tokens, error)
                : !field_token(part, path.text, context->model, &id, error) || !add_token(&prompt->tokens, id, error))
            return false;
    }
    return check_fit(context, r, where, prompt->tokens.n, error) && (!r->echo || set_text(context, r, prompt, error));
}

/* llama-server's object of a text and of media, which no model here takes. */
static bool parse_object(const openai_context *context, const json_t *value, const char *where, openai_request *r,
                         openai_prompt *prompt, openai_error *error) {
    const json_t *text = field_get(value, "prompt_string");
    const field_path path = path_of("%s.prompt_string", where), media = path_of("%s.multimodal_data", where);
    if (field_get_requested(value, "multimodal_data")) {
        openai_refuse(error, media.text, "is not supported by this server; it reads text alone: leave it out");
        return openai_set_status(error, 400, "unsupported_parameter");
    }
    if (!json_is_string(text)) return openai_refuse(error, path.text, "must be a string, not %s", field_kind(text));
    return parse_text(context, text, path.text, r, prompt, error);
}

bool openai_parse_prompt(const openai_context *context, const json_t *value, const char *where, openai_request *r,
                         openai_prompt *prompt, openai_error *error) {
    if (json_is_string(value)) {
        if (!parse_text(context, value, where, r, prompt, error)) return false;
    } else if (json_is_array(value)) {
        if (!parse_parts(context, value, where, r, prompt, error)) return false;
    } else if (field_get(value, "prompt_string")) {
        if (!parse_object(context, value, where, r, prompt, error)) return false;
    } else {
        return openai_refuse(error, where, "must be a string or an array of token ids, not %s", field_kind(value));
    }
    if (prompt->tokens.n == 0) return openai_refuse(error, where, "must have at least one token");
    return true;
}

/* ---- Both ---- */

/* The number of tokens that the context can hold, beside the completion, or a token of one without a limit, but at least one.
 */
static int64_t room_for_prompt(const openai_context *context, const openai_request *r) {
    const int64_t n = context->n_ctx - (r->params.max_tokens < 0 ? 1 : r->params.max_tokens);
    return context->n_ctx == 0 ? INT64_MAX : n > 0 ? n : 1;
}

/* Keep a prompt's last tokens, as many as the request says. */
static bool truncate_prompt(const openai_context *context, const openai_request *r, openai_prompt *prompt,
                            openai_error *error) {
    cl_token_list *list = &prompt->tokens;
    const int64_t n_kept = r->truncate < 0 ? room_for_prompt(context, r) : r->truncate;
    if (r->truncate == 0 || (int64_t)list->n <= n_kept) return true;
    memmove(list->ids, list->ids + list->n - n_kept, (size_t)n_kept * sizeof *list->ids);
    list->n = (size_t)n_kept;
    return !r->echo || set_text(context, r, prompt, error);
}

bool openai_truncate_prompts(const openai_context *context, openai_request *r, openai_error *error) {
    bool ok = true;
    for (size_t i = 0; ok && i < r->n_prompts; i++) ok = truncate_prompt(context, r, &r->prompts[i], error);
    return ok;
}

/* Whether a value is one prompt, as an array with a token id is. Otherwise each element of an array is one. */
static bool is_one_prompt(const json_t *value) {
    for (size_t i = 0; i < json_array_size(value); i++)
        if (json_is_number(json_array_get(value, i))) return true;
    return !json_is_array(value);
}

bool openai_parse_prompt_list(const openai_context *context, const json_t *value, const char *name, size_t most,
                              openai_request *r, openai_error *error) {
    if (!value) return openai_refuse(error, name, "is missing; send a string, an array of strings, or token ids");
    const bool several = !is_one_prompt(value);
    const size_t n = several ? json_array_size(value) : 1;
    if (n == 0 || n > most) return openai_refuse(error, name, "has %zu prompts; it must have from 1 to %zu", n, most);
    r->prompts = calloc(n, sizeof *r->prompts);
    if (!r->prompts) return openai_fail_memory(error);
    r->n_prompts = n;
    if (!several) return openai_parse_prompt(context, value, name, r, r->prompts, error);
    for (size_t i = 0; i < n; i++)
        if (!openai_parse_prompt(context, json_array_get(value, i), path_of("%s[%zu]", name, i).text, r, &r->prompts[i], error))
            return false;
    return true;
}

static bool add_tokens(cl_token_list *list, const int32_t *ids, size_t n, openai_error *error) {
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) ok = add_token(list, ids[i], error);
    return ok;
}

/*
 * Put a prompt into the form for a gap between two texts, behind its BOS token: prefix, the prompt, suffix, the text behind the
 * gap, middle.
 */
static bool add_suffix(openai_prompt *prompt, const cl_tokenizer *tok, const cl_fim_tokens *fim, const cl_token_list *after,
                       openai_error *error) {
    cl_token_list whole = {0};
    cl_token_list *before = &prompt->tokens;
    const size_t n_bos = before->n > 0 && before->ids[0] == cl_tokenizer_bos(tok);
    const bool ok = add_tokens(&whole, before->ids, n_bos, error) && add_token(&whole, fim->prefix, error) &&
                    add_tokens(&whole, before->ids + n_bos, before->n - n_bos, error) &&
                    add_token(&whole, fim->suffix, error) && add_tokens(&whole, after->ids, after->n, error) &&
                    add_token(&whole, fim->middle, error);
    cl_token_list_free(ok ? before : &whole);
    if (ok) *before = whole;
    return ok;
}

/* The tokens of the text behind the gap. */
static bool encode_suffix(const openai_context *context, const json_t *value, cl_token_list *tokens, openai_error *error) {
    const size_t size = json_string_length(value);
    cl_error cause;
    if (!json_is_string(value)) return openai_refuse(error, "suffix", "must be a string, not %s", field_kind(value));
    return openai_check_size(context, "suffix", size, error) &&
           (cl_tokenizer_encode(context->model->tok, json_string_value(value), size, false, tokens, &cause) == CL_OK ||
            openai_fail_from(error, "suffix", &cause));
}

bool openai_fail_gaps(openai_error *error, const char *name) {
    openai_refuse(error, name,
                  "needs a model that was trained to fill gaps; this one's vocabulary has no tokens such as "
                  "<|fim_prefix|>: leave it out");
    return openai_set_status(error, 400, "unsupported_parameter");
}

/* Read `suffix`, the text behind the generated one, into the prompts. */
static bool parse_suffix(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    const json_t *value = field_get_requested(body, "suffix");
    const cl_tokenizer *tok = context->model->tok;
    cl_fim_tokens fim;
    cl_token_list after = {0};
    if (!value) return true;
    if (!cl_tokenizer_fim(tok, &fim)) return openai_fail_gaps(error, "suffix");
    if (r->echo) return openai_refuse(error, "echo", "is not supported with 'suffix'; leave it out");
    if (r->truncate != 0) return openai_refuse(error, "truncate_prompt_tokens", "is not supported with 'suffix'; leave it out");
    bool ok = encode_suffix(context, value, &after, error);
    for (size_t i = 0; ok && i < r->n_prompts; i++) ok = add_suffix(&r->prompts[i], tok, &fim, &after, error);
    cl_token_list_free(&after);
    return ok;
}

static bool parse_chat(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    r->prompts = calloc(1, sizeof *r->prompts);
    if (!r->prompts) return openai_fail_memory(error);
    r->n_prompts = 1;
    return openai_parse_chat(context, body, r, r->prompts, error);
}

/* Whether the choices of all prompts are few enough, before the prompts are read. */
static bool check_choices(const json_t *prompt, const openai_request *r, openai_error *error) {
    const size_t n_prompts = is_one_prompt(prompt) ? 1 : json_array_size(prompt);
    if (n_prompts > OPENAI_MAX_PROMPTS || n_prompts * (size_t)r->params.n <= OPENAI_MAX_CHOICES) return true;
    return openai_refuse(error, r->params.n > r->n ? "best_of" : "n",
                         "is %d for each of %zu prompts; a request may have %d choices: lower it, or send fewer prompts",
                         r->params.n, n_prompts, OPENAI_MAX_CHOICES);
}

bool openai_parse_prompts(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    const bool ok =
        r->endpoint == OPENAI_CHAT
            ? parse_chat(context, body, r, error)
            : check_choices(field_get(body, "prompt"), r, error) && openai_parse_special(context, body, r, error) &&
                  openai_parse_prompt_list(context, field_get(body, "prompt"), "prompt", OPENAI_MAX_PROMPTS, r, error) &&
                  parse_suffix(context, body, r, error);
    return ok && openai_truncate_prompts(context, r, error);
}
