/* Writes a chat: its messages as the template takes them, the template's text, and what BOS and the last message need. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "chat_internal.h"
#include "chunkllama/common/deadline.h"
#include "chunkllama/common/json_doc.h"

void cl_chat_input_init(cl_chat_input *in) { *in = (cl_chat_input){.add_generation_prompt = true, .now = (int64_t)time(NULL)}; }

static cl_status no_memory(cl_error *error) { return cl_fail(error, CL_ERR_NOMEM, "no memory for the text of a chat"); }

/* ---- The end within the last message ---- */

/*
 * Added to the last message's content, so that its end is found in the template's text: Transformers' word. The space shows
 * whether the template removes white space at the end of contents.
 */
static const char MARK[] = "CONTINUE_FINAL_MESSAGE_TAG ";
enum { MARK_SIZE = sizeof MARK - 2 }; /* without the space */

/* A copy of a text with the mark; NULL: memory is lacking. */
static json_t *marked(const json_t *text) {
    cl_prompt p = {0};
    cl_prompt_add(&p, (cl_str){json_string_value(text), json_string_length(text)});
    cl_prompt_add(&p, cl_str_of(MARK));
    json_t *string = p.no_memory ? NULL : json_stringn_nocheck(p.text, p.size);
    cl_prompt_free(&p);
    return string;
}

/* Add the mark to the content of the last message, which is a string or an array of parts. The messages are the chat's own. */
static cl_status mark_last(json_t *messages, cl_error *error) {
    json_t *last = json_array_get(messages, json_array_size(messages) - 1), *content = json_object_get(last, "content");
    if (json_is_string(content))
        return json_object_set_new_nocheck(last, "content", marked(content)) == 0 ? CL_OK : no_memory(error);
    const size_t n = json_array_size(content);
    if (n == 0)
        return cl_fail(error, CL_ERR_ARG, "the last message has no content that could be continued (continue_final_message)");
    json_t *parts = cl_json_copy(content), *part = cl_json_copy(json_array_get(content, n - 1));
    const bool ok = parts && part && json_object_set_new_nocheck(part, "text", marked(json_object_get(part, "text"))) == 0 &&
                    json_array_set(parts, n - 1, part) == 0 && json_object_set(last, "content", parts) == 0;
    json_decref(part);
    json_decref(parts);
    return ok ? CL_OK : no_memory(error);
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Cut the text where the mark begins, and with it the white space that the template would have removed there. */
static cl_status cut_at_mark(cl_prompt *text, cl_error *error) {
    size_t at = text->size >= MARK_SIZE ? text->size - MARK_SIZE + 1 : 0;
    while (at > 0 && memcmp(text->text + at - 1, MARK, MARK_SIZE) != 0) at--;
    if (at == 0)
        return cl_fail(error, CL_ERR_ARG,
                       "the chat template does not write the content of the last message, so it cannot be "
                       "continued (continue_final_message)");
    at--;
    const bool removes_space = at + MARK_SIZE == text->size || text->text[at + MARK_SIZE] != ' ';
    while (removes_space && at > 0 && is_space(text->text[at - 1])) at--;
    cl_prompt_remove(text, at, text->size);
    return CL_OK;
}

/* ---- Variables ---- */

/* Set a variable; `value` is released, and NULL means that memory is lacking. */
static bool set(json_t *variables, const char *name, json_t *value) {
    return json_object_set_new_nocheck(variables, name, value) == 0;
}

static json_t *value_or_null(const json_t *value) { return value ? json_incref((json_t *)value) : json_null(); }

static cl_status make_variables(const cl_chat_template *t, const cl_chat_input *in, const cl_chat_arrangement *arrangement,
                                json_t **variables, int64_t *n_steps, cl_error *error) {
    const bool gives_tools = json_array_size(in->tools) > 0 && arrangement->tools != CL_TOOLS_DESCRIBED;
    json_t *messages = cl_chat_rewrite(&t->can, arrangement, in->messages, in->tools, n_steps), *v = *variables = json_object();
    const bool ok = messages && v && (!in->kwargs || json_object_update(v, (json_t *)in->kwargs) == 0) &&
                    set(v, "messages", json_incref(messages)) &&
                    set(v, "tools", gives_tools ? cl_chat_complete_tools(&t->can, in->tools, n_steps) : json_null()) &&
                    set(v, "documents", value_or_null(in->documents)) &&
                    set(v, "add_generation_prompt", json_boolean(in->add_generation_prompt));
    cl_status status = ok ? CL_OK : no_memory(error);
    if (status == CL_OK && in->continue_final_message) status = mark_last(messages, error);
    json_decref(messages);
    return status;
}

/* ---- The text ---- */

/*
 * The text begins with a BOS of n bytes, because the file asks for one. Remove it if the template has written another one.
 */
static void remove_second_bos(cl_prompt *text, size_t n) {
    if (text->n_own > 0 && text->own[0].end >= 2 * n && memcmp(text->text, text->text + n, n) == 0)
        cl_prompt_remove(text, 0, n);
}

static cl_status render(const cl_chat *chat, const cl_chat_template *t, const cl_chat_input *in, const json_t *variables,
                        int64_t *n_steps, cl_prompt *text, cl_error *error) {
    cl_jinja_options options;
    cl_jinja_options_init(&options);
    options.now = in->now;
    options.max_steps = *n_steps;
    options.n_steps = n_steps;
    if (cl_tokenizer_adds_bos(chat->tok)) cl_prompt_add_token(text, chat->tok, cl_tokenizer_bos(chat->tok));
    const size_t bos_size = text->size;
    cl_error cause;
    cl_status status = cl_jinja_render(t->jinja, variables, chat->own, &options, text, &cause);
    if (status == CL_ERR_NOMEM || text->no_memory) return no_memory(error);
    const cl_status late = status == CL_OK ? CL_OK : cl_deadline_check(error);
    if (late != CL_OK) return late;
    if (status != CL_OK) return cl_fail(error, CL_ERR_ARG, "the chat template refuses this chat: %s", cause.message);
    remove_second_bos(text, bos_size);
    return in->continue_final_message ? cut_at_mark(text, error) : CL_OK;
}

cl_status cl_chat_render_as(const cl_chat *chat, const cl_chat_template *t, const cl_chat_input *in,
                            const cl_chat_arrangement *arrangement, int64_t *n_steps, cl_prompt *text, cl_error *error) {
    json_t *variables = NULL;
    int64_t n_rewriting;
    cl_status status = make_variables(t, in, arrangement, &variables, &n_rewriting, error);
    if (status == CL_OK) status = render(chat, t, in, variables, n_steps, text, error);
    *n_steps += n_rewriting;
    json_decref(variables);
    return status;
}

cl_status cl_chat_render(const cl_chat *chat, const cl_chat_input *in, cl_prompt *text, cl_error *error) {
    if (json_array_size(in->messages) == 0) return cl_fail(error, CL_ERR_ARG, "messages: at least one is needed");
    const cl_chat_template *t = cl_chat_template_for(chat, json_array_size(in->tools) > 0);
    cl_jinja_options options;
    cl_chat_arrangement arrangement;
    cl_jinja_options_init(&options);
    const cl_status status = cl_chat_arrange(chat, t, in, &arrangement, error);
    return status == CL_OK ? cl_chat_render_as(chat, t, in, &arrangement, &options.max_steps, text, error) : status;
}

/* ---- Tokens ---- */

cl_status cl_chat_tokenize(const cl_chat *chat, const cl_chat_input *in, cl_token_list *out, cl_error *error) {
    cl_prompt text = {0};
    cl_status status = cl_chat_render(chat, in, &text, error);
    if (status == CL_OK)
        status = cl_tokenizer_encode_spans(chat->tok, text.text, text.size, true, text.own, text.n_own, out, error);
    cl_prompt_free(&text);
    return status;
}

/* A string in which bytes that are not UTF-8 are replaced; NULL: memory is lacking. */
static json_t *mended_string(const char *text, size_t size) {
    size_t mended_size;
    char *mended = cl_utf8_mended(text, size, &mended_size);
    json_t *string = mended ? json_stringn_nocheck(mended, mended_size) : NULL;
    free(mended);
    return string;
}

cl_status cl_chat_tokenize_messages(const cl_chat *chat, const cl_chat_message *messages, size_t n, const json_t *kwargs,
                                    cl_token_list *out, cl_error *error) {
    cl_chat_input in;
    cl_chat_input_init(&in);
    json_t *array = json_array();
    bool ok = array;
    for (size_t i = 0; ok && i < n; i++) {
        json_t *message = json_object();
        ok = json_array_append_new(array, message) == 0 &&
             set(message, "role", mended_string(messages[i].role, strlen(messages[i].role))) &&
             set(message, "content", mended_string(messages[i].content, messages[i].content_size));
    }
    in.messages = array;
    in.kwargs = kwargs;
    const cl_status status = ok ? cl_chat_tokenize(chat, &in, out, error) : no_memory(error);
    json_decref(array);
    return status;
}
