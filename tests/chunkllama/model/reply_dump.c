/*
 * reply_dump MODEL.gguf < lines.jsonl > lines.jsonl: each line an object {"template", "tools", ...} in. With "text", its parts
 * out: {"reasoning", "content", "calls": [[name, arguments], ...]}, with the flag "constrained"; otherwise the grammar of
 * replies, as a string, with the flags "required", "parallel", "reasons", "in_reasoning", and the text of a grammar,
 * "answer", which is a schema, or as "kind" says "regex" or "lark".
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/chat/reply_grammar.h"
#include "chunkllama/schema/schema.h"

static int give_up(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    return 1;
}

static bool flag(const json_t *line, const char *name) { return json_is_true(json_object_get(line, name)); }

/* Append text [size] to the string at a key or index. */
static json_t *longer(const json_t *before, const cl_reply_part *part) {
    json_t *more = json_stringn(part->text, part->size);
    json_t *text = json_sprintf("%s%s", before ? json_string_value(before) : "", json_string_value(more));
    json_decref(more);
    return text;
}

static json_t *split(const cl_reply_format *format, const json_t *line) {
    const cl_reply_options options = {.format = format,
                                      .tools = json_object_get(line, "tools"),
                                      .constrained = flag(line, "constrained"),
                                      .reasoning = format->think[0],
                                      .in_reasoning = flag(line, "in_reasoning")};
    cl_reply *reply = cl_reply_create(&options);
    const json_t *text = json_object_get(line, "text");
    const cl_reply_part *parts;
    size_t n;
    if (!reply || !cl_reply_add(reply, json_string_value(text), json_string_length(text), true, &parts, &n))
        exit(give_up("reply", "no memory"));
    json_t *out = json_pack("{ss ss s[]}", "reasoning", "", "content", "", "calls"), *calls = json_object_get(out, "calls");
    for (size_t i = 0; i < n; i++) {
        const char *key = parts[i].kind == CL_REPLY_REASONING ? "reasoning" : "content";
        json_t *call = json_array_get(calls, json_array_size(calls) - 1);
        switch (parts[i].kind) {
        case CL_REPLY_CALL: json_array_append_new(calls, json_pack("[os]", longer(NULL, &parts[i]), "")); break;
        case CL_REPLY_ARGUMENTS: json_array_set_new(call, 1, longer(json_array_get(call, 1), &parts[i])); break;
        default: json_object_set_new(out, key, longer(json_object_get(out, key), &parts[i])); break;
        }
    }
    cl_reply_free(&reply);
    return out;
}

/* Without a name, a JSON schema. */
static cl_grammar_kind kind_of(const char *name) {
    if (!name) return CL_GRAMMAR_JSON_SCHEMA;
    return strcmp(name, "regex") == 0 ? CL_GRAMMAR_REGEX : CL_GRAMMAR_LARK;
}

static json_t *grammar(const cl_reply_format *format, const cl_tokenizer *tok, const json_t *line) {
    char weaker[CL_SCHEMA_WEAKER_BYTES] = "";
    const cl_reply_grammar g = {
        .format = format,
        .tok = tok,
        .tools = json_is_array(json_object_get(line, "tools")) ? json_object_get(line, "tools") : NULL,
        .required = flag(line, "required"),
        .parallel = flag(line, "parallel"),
        .reasons = flag(line, "reasons"),
        .in_reasoning = flag(line, "in_reasoning"),
        .answer = json_string_value(json_object_get(line, "answer")),
        .kind = kind_of(json_string_value(json_object_get(line, "kind"))),
        .open = flag(line, "open"),
        .weaker = weaker,
    };
    char *text;
    cl_error error;
    if (cl_reply_grammar_write(&g, &text, &error) != CL_OK) exit(give_up("reply_grammar", error.message));
    json_t *out = json_string(text);
    free(text);
    return out;
}

int main(int argc, char **argv) {
    if (argc != 2) return give_up("usage", "reply_dump MODEL.gguf < in.jsonl > out.jsonl");
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
        json_t *in = json_loadb(line, (size_t)n, 0, &wrong);
        if (!in) return give_up("input", wrong.text);
        cl_reply_format format;
        cl_reply_format_find(cl_str_of(json_string_value(json_object_get(in, "template"))), true, &format);
        json_t *out = json_object_get(in, "text") ? split(&format, in) : grammar(&format, tok, in);
        json_dumpf(out, stdout, JSON_ENCODE_ANY | JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(out);
        json_decref(in);
    }
    free(line);
    cl_tokenizer_free(&tok);
    cl_model_file_close(&file);
    return 0;
}
