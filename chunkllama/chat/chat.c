/* Makes the chats of a file, of a template and of the built-in ones: compiles their templates and finds their abilities. */
#include "chat.h"

#include <stdio.h>
#include <stdlib.h>

#include "chat_builtin.h"
#include "chat_internal.h"
#include "chat_probe.h"

/* ---- Own variables ---- */

/* Set a variable of the template's own to a text, which need not be UTF-8. */
static bool set_own(json_t *own, const char *name, cl_str text) {
    size_t size;
    char *mended = cl_utf8_mended(text.data, text.size, &size);
    const bool ok = mended && json_object_set_new_nocheck(own, name, json_stringn_nocheck(mended, size)) == 0;
    free(mended);
    return ok;
}

/*
 * Set the special tokens that templates know by name. A folder's tokenizer_config.json names them by their text; a GGUF file
 * has ids.
 */
static bool set_tokens(json_t *own, const cl_model_file *file, const cl_tokenizer *tok) {
    static const char *const tokens[][3] = {
        {"bos_token", "tokenizer.bos_token", "tokenizer.ggml.bos_token_id"},
        {"eos_token", "tokenizer.eos_token", "tokenizer.ggml.eos_token_id"},
        {"unk_token", "tokenizer.unk_token", "tokenizer.ggml.unknown_token_id"},
        {"pad_token", "tokenizer.pad_token", "tokenizer.ggml.padding_token_id"},
    };
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        cl_str text;
        uint64_t id;
        char name[256];
        if (!cl_model_file_get_string(file, tokens[i][1], &text)) {
            if (!cl_model_file_get_u64(file, tokens[i][2], &id) || id >= (uint64_t)cl_tokenizer_n_vocab(tok)) continue;
            const size_t size = cl_tokenizer_piece(tok, (int32_t)id, true, name, sizeof name);
            text = (cl_str){name, size < sizeof name ? size : sizeof name};
        }
        if (!set_own(own, tokens[i][0], text)) return false;
    }
    return true;
}

/* ---- Making a chat ---- */

static void free_template(cl_chat_template *t) {
    cl_jinja_free(&t->jinja);
    free(t->text);
}

void cl_chat_free(cl_chat **chat) {
    cl_chat *c = chat ? *chat : NULL;
    if (!c) return;
    free_template(&c->main);
    free_template(&c->tool_use);
    json_decref(c->own);
    free(c);
    *chat = NULL;
}

/* A chat without a template. */
static cl_status new_chat(const char *name, const cl_model_file *file, const cl_tokenizer *tok, cl_chat **chat,
                          cl_error *error) {
    cl_chat *c = *chat = calloc(1, sizeof *c);
    if (!c) return cl_fail(error, CL_ERR_NOMEM, "no memory for a chat template");
    c->tok = tok;
    c->name = name;
    c->own = json_object();
    if (c->own && set_tokens(c->own, file, tok)) return CL_OK;
    cl_chat_free(chat);
    return cl_fail(error, CL_ERR_NOMEM, "no memory for a chat template");
}

/* Compile a template and find its abilities. `what` names it in messages. */
static cl_status load(const cl_chat *chat, cl_chat_template *t, const char *what, cl_str text, cl_error *error) {
    cl_error cause;
    const cl_status status = cl_jinja_compile(text.data, text.size, &t->jinja, &cause);
    if (status != CL_OK) return cl_fail(error, status, "%s: %s", what, cause.message);
    t->text = malloc(text.size + 1);
    if (!t->text) return cl_fail(error, CL_ERR_NOMEM, "no memory for %s", what);
    memcpy(t->text, text.data, text.size);
    t->size = text.size;
    return cl_chat_probe(t->jinja, text, chat->own, &t->can, error);
}

cl_status cl_chat_of_template(const char *text, size_t size, const cl_model_file *file, const cl_tokenizer *tok, cl_chat **chat,
                              cl_error *error) {
    cl_status status = new_chat(CL_CHAT_TEMPLATE, file, tok, chat, error);
    if (status == CL_OK) status = load(*chat, &(*chat)->main, "the chat template", (cl_str){text, size}, error);
    if (status == CL_OK) status = cl_chat_find_reply(*chat, error);
    if (status != CL_OK) cl_chat_free(chat);
    return status;
}

cl_status cl_chat_of_file(const cl_model_file *file, const cl_tokenizer *tok, cl_chat **chat, cl_error *error) {
    static const char key[] = "tokenizer.chat_template", tool_key[] = "tokenizer.chat_template.tool_use";
    cl_str text = {"", 0}, tool_text = {"", 0};
    *chat = NULL;
    cl_model_file_get_string(file, key, &text);
    cl_model_file_get_string(file, tool_key, &tool_text);
    if (text.size == 0) return CL_OK;
    cl_status status = new_chat(CL_CHAT_TEMPLATE, file, tok, chat, error);
    if (status == CL_OK) status = load(*chat, &(*chat)->main, key, text, error);
    if (status == CL_OK && tool_text.size > 0) status = load(*chat, &(*chat)->tool_use, tool_key, tool_text, error);
    if (status == CL_OK) status = cl_chat_find_reply(*chat, error);
    if (status != CL_OK) cl_chat_free(chat);
    return status;
}

/* Take over the text that the file's own template writes before a chat without a system message, if it writes as this one
 * otherwise. */
static cl_status set_start(const cl_chat *chat, const cl_model_file *file, cl_error *error) {
    cl_chat *own;
    cl_prompt start = {0};
    cl_status status = cl_chat_of_file(file, chat->tok, &own, error);
    if (status != CL_OK && status != CL_ERR_NOMEM) return CL_OK; /* it is not needed */
    if (own) status = cl_chat_probe_start(own->main.jinja, chat->main.jinja, chat->own, &start, error);
    if (status == CL_OK && !set_own(chat->own, CL_CHAT_BUILTIN_START, (cl_str){start.text ? start.text : "", start.size}))
        status = cl_fail(error, CL_ERR_NOMEM, "no memory for a chat template");
    cl_prompt_free(&start);
    cl_chat_free(&own);
    return status;
}

cl_status cl_chat_by_name(const char *name, const cl_model_file *file, const cl_tokenizer *tok, cl_chat **chat,
                          cl_error *error) {
    *chat = NULL;
    const cl_chat_builtin *builtin = cl_chat_builtin_find(name);
    if (!builtin) return cl_fail(error, CL_ERR_ARG, "chat format '%.40s' is not known; use " CL_CHAT_NAMES, name);
    cl_status status = new_chat(builtin->name, file, tok, chat, error);
    if (status == CL_OK) status = load(*chat, &(*chat)->main, builtin->name, cl_str_of(builtin->text), error);
    if (status == CL_OK) status = set_start(*chat, file, error);
    if (status == CL_OK) status = cl_chat_find_reply(*chat, error);
    if (status != CL_OK) cl_chat_free(chat);
    return status;
}

/* ---- Properties ---- */

const char *cl_chat_name(const cl_chat *chat) { return chat->name; }

cl_str cl_chat_text(const cl_chat *chat, bool with_tools) {
    const cl_chat_template *t = cl_chat_template_for(chat, with_tools);
    return (cl_str){t->text, t->size};
}

bool cl_chat_has_tools(const cl_chat *chat) { return cl_chat_template_for(chat, true)->can.tools; }

bool cl_chat_takes_argument_text(const cl_chat *chat, bool with_tools) {
    const cl_chat_abilities *can = &cl_chat_template_for(chat, with_tools)->can;
    return can->argument_text || !can->calls;
}
