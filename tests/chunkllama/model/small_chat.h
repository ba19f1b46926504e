/* Chats on small vocabularies: what is written of one, and parts of which chats and templates are put together. */
#ifndef TESTS_CHUNKLLAMA_MODEL_SMALL_CHAT_H
#define TESTS_CHUNKLLAMA_MODEL_SMALL_CHAT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/chat/chat.h"
#include "small_vocab.h"

/* A byte-level vocabulary with these special tokens, of which the first two are BOS and EOS. */
static inline small_vocab vocab_with(const char *chat_template, const char *const *special) {
    small_vocab v = byte_level_vocab("gpt-2");
    v.chat_template = chat_template;
    v.bos = v.n;
    v.eos = v.n + 1;
    for (; *special; special++) add_piece(&v, *special, 3, 0);
    return v;
}

typedef struct opened {
    gguf_bytes bytes;
    cl_model_file *file;
    cl_tokenizer *tok;
    cl_chat *chat;
} opened;

/* The chat of a built-in template, or of the vocabulary's own (NULL). */
static inline cl_status try_open(const small_vocab *v, const char *name, opened *o, cl_error *error) {
    *o = (opened){0};
    o->file = open_vocab(v, &o->bytes);
    assert_int_equal(cl_tokenizer_create(o->file, &o->tok, error), CL_OK);
    return name ? cl_chat_by_name(name, o->file, o->tok, &o->chat, error) : cl_chat_of_file(o->file, o->tok, &o->chat, error);
}

static inline void close_chat(opened *o) {
    cl_chat_free(&o->chat);
    cl_tokenizer_free(&o->tok);
    cl_model_file_close(&o->file);
    free(o->bytes.data);
}

static inline opened open_chat(const small_vocab *v, const char *name) {
    opened o;
    cl_error error = {.message = ""};
    if (try_open(v, name, &o, &error) != CL_OK) fail_msg("%s", error.message);
    assert_non_null(o.chat);
    return o;
}

/*
 * Read a chat: an object with the members of cl_chat_input, in JSON with single quotes. Returns the object, from which `in`
 * borrows.
 */
static inline json_t *read_chat(const char *input, cl_chat_input *in) {
    char *json = strdup(input);
    for (char *at = json; *at; at++)
        if (*at == '\'') *at = '"';
    json_error_t wrong;
    json_t *object = json_loads(json, 0, &wrong);
    if (!object) fail_msg("%s: %s", json, wrong.text);
    cl_chat_input_init(in);
    in->messages = json_object_get(object, "messages");
    in->tools = json_object_get(object, "tools");
    in->documents = json_object_get(object, "documents");
    in->kwargs = json_object_get(object, "kwargs");
    in->continue_final_message = json_is_true(json_object_get(object, "continue_final_message"));
    in->add_generation_prompt = !in->continue_final_message;
    in->now = 1719835200; /* noon of 1 July 2024, in UTC */
    free(json);
    return object;
}

/* The text of a chat's tokens, and how many of them are special. */
static inline cl_status render(const cl_chat *chat, const cl_tokenizer *tok, const char *input, char *text, size_t size,
                               int *n_special, cl_error *error) {
    cl_chat_input in;
    json_t *object = read_chat(input, &in);
    cl_token_list ids = {0};
    const cl_status status = cl_chat_tokenize(chat, &in, &ids, error);
    size_t at = 0;
    *n_special = 0;
    for (size_t i = 0; status == CL_OK && i < ids.n; i++) {
        at += cl_tokenizer_piece(tok, ids.ids[i], true, text + at, size - at);
        assert_true(at < size);
        *n_special += cl_tokenizer_piece(tok, ids.ids[i], false, NULL, 0) == 0;
    }
    text[at] = 0;
    cl_token_list_free(&ids);
    json_decref(object);
    return status;
}

static inline void expect(const small_vocab *v, const char *name, const char *input, const char *prompt, int special) {
    static char text[1 << 16];
    int n_special;
    cl_error error = {.message = ""};
    opened o = open_chat(v, name);
    if (render(o.chat, o.tok, input, text, sizeof text, &n_special, &error) != CL_OK) fail_msg("%s", error.message);
    assert_string_equal(text, prompt);
    assert_int_equal(n_special, special);
    close_chat(&o);
}

static inline void expect_refusal(const small_vocab *v, const char *name, const char *input, const char *part) {
    static char text[1 << 16];
    int n_special;
    cl_error error = {.message = ""};
    opened o = open_chat(v, name);
    assert_int_equal(render(o.chat, o.tok, input, text, sizeof text, &n_special, &error), CL_ERR_ARG);
    if (!strstr(error.message, part)) fail_msg("'%s' does not say '%s'", error.message, part);
    close_chat(&o);
}

/* A template of tests/chunkllama/jinja/templates; the caller frees it. */
static inline char *published(const char *name) {
    char path[512];
    snprintf(path, sizeof path, TEMPLATES "/%s.jinja", name);
    FILE *in = fopen(path, "rb");
    if (!in) fail_msg("%s is not there", path);
    char *text = calloc(1, 1 << 16);
    const size_t size = fread(text, 1, (1 << 16) - 1, in);
    assert_true(fclose(in) == 0 && size > 0);
    return text;
}

/* ---- Special tokens ---- */

static const char *const inst[] = {"<s>", "</s>", NULL};
static const char *const inst_special[] = {"<s>", "</s>", "[INST]", "[/INST]", NULL};
static const char *const bars[] = {"<s>", "<|end|>", "<|user|>", "<|assistant|>", "<|tool|>", NULL};

/* ---- Chats ---- */

#define SYSTEM     "{'role': 'system', 'content': 'Sys'}"
#define USER       "{'role': 'user', 'content': ' one '}"
#define ASSISTANT  "{'role': 'assistant', 'content': 'two '}"
#define CALL(i)    "{'id': 'call_" i "', 'type': 'function', 'function': {'name': 'f', 'arguments': {'a': " i "}}}"
#define CALLS      "{'role': 'assistant', 'content': null, 'tool_calls': [" CALL("1") ", " CALL("2") "]}"
#define CHAT(list) "{'messages': [" list "]}"

/* ---- Templates ---- */

#define PLAIN                                                                                                                  \
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}{% if add_generation_prompt %}{{ "   \
    "'<|assistant|>' }}{% endif %}"
#define WITH_CALLS(arguments, more)                                                                                            \
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ '<|' + m.role + '|>' }}{% if m.tool_calls %}"      \
    "{% for c in m.tool_calls %}" more "{{ c.id + c.function.name }}{{ " arguments " }}{% endfor %}"                           \
    "{% else %}{{ (m.tool_call_id or '') + m.content }}{% endif %}{% endfor %}"

#endif
