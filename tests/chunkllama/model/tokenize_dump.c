/*
 * tokenize_dump MODEL.gguf < strings.jsonl > ids.jsonl: each line a JSON string in, a JSON array of its token ids out, encoded
 * as the start of a prompt without BOS, or with --around as a text with the tokens that belong around it. With --decode: each
 * line an array of ids in, the string of their bytes out. With
 * --chat: each line a chat in, its ids out, or a string: why the template refuses it.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/chat/chat.h"

static int give_up(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    return 1;
}

static const char *format; /* of --chat-format; NULL: the file's own template */

static json_t *ids_to_json(cl_token_list *ids) {
    json_t *out = json_array();
    for (size_t i = 0; i < ids->n; i++) json_array_append_new(out, json_integer(ids->ids[i]));
    cl_token_list_free(ids);
    return out;
}

static json_t *encode(const cl_model_file *file, const cl_tokenizer *tok, const json_t *line) {
    (void)file;
    cl_token_list ids = {0};
    cl_error error;
    if (cl_tokenizer_encode(tok, json_string_value(line), json_string_length(line), true, &ids, &error) != CL_OK)
        exit(give_up("tokenizer_encode", error.message));
    return ids_to_json(&ids);
}

static json_t *encode_around(const cl_model_file *file, const cl_tokenizer *tok, const json_t *line) {
    (void)file;
    cl_token_list ids = {0};
    cl_error error;
    if (cl_tokenizer_add_leading(tok, &ids, &error) != CL_OK ||
        cl_tokenizer_encode(tok, json_string_value(line), json_string_length(line), true, &ids, &error) != CL_OK ||
        cl_tokenizer_add_trailing(tok, &ids, &error) != CL_OK)
        exit(give_up("tokenizer_encode", error.message));
    return ids_to_json(&ids);
}

/* How a line's chat is written: by its own template, by that of --chat-format, or as the file says. */
static cl_chat *open_chat(const cl_model_file *file, const cl_tokenizer *tok, const json_t *line) {
    cl_chat *made;
    cl_error error = {.message = "no template"};
    const json_t *text = json_object_get(line, "template");
    const cl_status status =
        text     ? cl_chat_of_template(json_string_value(text), json_string_length(text), file, tok, &made, &error)
        : format ? cl_chat_by_name(format, file, tok, &made, &error)
                 : cl_chat_of_file(file, tok, &made, &error);
    if (status != CL_OK || !made) exit(give_up("chat", error.message));
    return made;
}

/* A chat: its messages, or an object with the members of cl_chat_input, and perhaps a template. */
static json_t *chat(const cl_model_file *file, const cl_tokenizer *tok, const json_t *line) {
    static cl_chat *of_all;
    if (!of_all && !json_object_get(line, "template")) of_all = open_chat(file, tok, line);
    cl_chat *own = json_object_get(line, "template") ? open_chat(file, tok, line) : NULL;
    cl_token_list ids = {0};
    cl_error error;
    const bool whole = json_is_object(line);
    cl_chat_input in;
    cl_chat_input_init(&in);
    in.messages = whole ? json_object_get(line, "messages") : line;
    in.tools = json_object_get(line, "tools");
    in.documents = json_object_get(line, "documents");
    in.kwargs = json_object_get(line, "kwargs");
    in.continue_final_message = json_is_true(json_object_get(line, "continue_final_message"));
    in.add_generation_prompt = !in.continue_final_message && !json_is_false(json_object_get(line, "add_generation_prompt"));
    if (json_object_get(line, "now")) in.now = json_integer_value(json_object_get(line, "now"));
    const cl_status status = cl_chat_tokenize(own ? own : of_all, &in, &ids, &error);
    cl_chat_free(&own);
    if (status == CL_OK) return ids_to_json(&ids);
    cl_token_list_free(&ids);
    return json_string(error.message);
}

static json_t *decode(const cl_model_file *file, const cl_tokenizer *tok, const json_t *line) {
    (void)file;
    char *text = NULL;
    size_t size = 0;
    for (size_t i = 0; i < json_array_size(line); i++) {
        const int32_t id = (int32_t)json_integer_value(json_array_get(line, i));
        const size_t n = cl_tokenizer_piece(tok, id, true, NULL, 0);
        text = realloc(text, size + n + 1);
        if (!text) exit(give_up("decode", "no memory"));
        cl_tokenizer_piece(tok, id, true, text + size, n);
        size += n;
    }
    json_t *out = json_stringn(text ? text : "", size);
    free(text);
    if (!out) exit(give_up("decode", "the bytes are no UTF-8"));
    return out;
}

int main(int argc, char **argv) {
    json_t *(*work)(const cl_model_file *, const cl_tokenizer *, const json_t *) = encode;
    if (argc == 3 && strcmp(argv[2], "--decode") == 0) work = decode;
    if (argc == 3 && strcmp(argv[2], "--around") == 0) work = encode_around;
    if (argc == 3 && strcmp(argv[2], "--chat") == 0) work = chat;
    if (argc == 4 && strcmp(argv[2], "--chat-format") == 0) {
        work = chat;
        format = argv[3];
    }
    if (argc != 2 + (work != encode) + (format != NULL))
        return give_up("usage",
                       "tokenize_dump MODEL.gguf [--around | --decode | --chat | --chat-format NAME] < in.jsonl > out.jsonl");
    cl_model_file *file;
    cl_tokenizer *tok;
    cl_error error;
    if (cl_model_file_open(argv[1], &file, &error) != CL_OK || cl_tokenizer_create(file, &tok, &error) != CL_OK)
        return give_up(argv[1], error.message);
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    while ((n = getline(&line, &capacity, stdin)) > 0) {
        json_error_t wrong;
        json_t *in = json_loadb(line, (size_t)n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &wrong);
        if (!in) return give_up("input", wrong.text);
        json_t *out = work(file, tok, in);
        json_dumpf(out, stdout, JSON_ENCODE_ANY | JSON_COMPACT);
        putchar('\n');
        json_decref(out);
        json_decref(in);
    }
    free(line);
    cl_tokenizer_free(&tok);
    cl_model_file_close(&file);
    return 0;
}
