/*
 * The text of a reply. Its first byte chooses how the model writes, and whether calls and reasoning are split off. The parts
 * must not depend on how the text is cut; calls come in order, each with a name; and where nothing is split off, the content is
 * the text.
 */
#include "fuzz.h"

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

#include "chunkllama/chat/reply.h"

enum { REASONING = 8, IN_REASONING = 16, TOOLS = 32, CONSTRAINED = 64 };

static json_t *tools;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    tools = json_loads("[{\"type\":\"function\",\"function\":{\"name\":\"add\",\"parameters\":{\"properties\":{\"a\":{\"type\":"
                       "\"number\"},\"b\":{\"type\":\"string\"}}}}}]",
                       0, NULL);
    return 0;
}

/* The text of all parts, each behind its kind. */
typedef struct found {
    char *text;
    size_t size, capacity;
    int32_t kind, call; /* of the last part; -1: none yet */
    size_t n_content;
} found;

static void put(found *f, const char *text, size_t size) {
    if (f->size + size > f->capacity) {
        f->capacity = 2 * (f->size + size);
        f->text = realloc(f->text, f->capacity);
        FUZZ_CHECK(f->text, "no memory");
    }
    memcpy(f->text + f->size, text, size);
    f->size += size;
}

static void add(found *f, cl_reply *r, const char *text, size_t size, bool last) {
    const cl_reply_part *parts;
    size_t n;
    FUZZ_CHECK(cl_reply_add(r, text, size, last, &parts, &n), "no memory");
    for (size_t i = 0; i < n; i++) {
        const cl_reply_part *p = &parts[i];
        FUZZ_CHECK(p->size > 0, "an empty part");
        if (p->kind == CL_REPLY_CALL) FUZZ_CHECK(p->call == ++f->call && p->call < CL_REPLY_MAX_CALLS, "call %d", p->call);
        if (p->kind == CL_REPLY_ARGUMENTS) {
            const bool follows = f->kind == CL_REPLY_CALL || f->kind == CL_REPLY_ARGUMENTS;
            FUZZ_CHECK(p->call == f->call && follows, "arguments of call %d", p->call);
        }
        if (p->kind == CL_REPLY_CONTENT) f->n_content += p->size;
        if ((int32_t)p->kind != f->kind || p->kind == CL_REPLY_CALL) put(f, (const char[]){(char)p->kind}, 1);
        put(f, p->text, p->size);
        f->kind = (int32_t)p->kind;
    }
}

static found split(const cl_reply_options *options, const char *text, size_t size, size_t step) {
    found f = {.kind = -1, .call = -1};
    cl_reply *r = cl_reply_create(options);
    FUZZ_CHECK(r, "no memory");
    for (size_t at = 0; at < size; at += step) add(&f, r, text + at, size - at < step ? size - at : step, false);
    add(&f, r, "", 0, true);
    cl_reply_free(&r);
    return f;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const templates[] = {
        "<tool_call></think>", "<|start_header_id|>\"parameters\"",        "[TOOL_CALLS][/THINK]",  "<start_function_call>",
        "[func_name1(",        "<|channel|>analysis<|channel|>commentary", "<|im_middle|></think>", "<arg_key></think>"};
    if (size == 0) return 0;
    cl_reply_format format;
    cl_reply_format_find(cl_str_of(templates[data[0] % 8]), true, &format);
    const cl_reply_options options = {.format = &format,
                                      .tools = data[0] & TOOLS ? tools : NULL,
                                      .constrained = data[0] & CONSTRAINED,
                                      .reasoning = data[0] & REASONING,
                                      .in_reasoning = data[0] & IN_REASONING};
    const char *text = (const char *)data + 1;
    found whole = split(&options, text, size - 1, size), bytes = split(&options, text, size - 1, 1);
    FUZZ_CHECK(whole.size == bytes.size && (whole.size == 0 || memcmp(whole.text, bytes.text, whole.size) == 0),
               "the parts differ");
    if (!options.tools && !options.reasoning && !format.around)
        FUZZ_CHECK(whole.n_content == size - 1 && (size == 1 || memcmp(whole.text + 1, text, size - 1) == 0),
                   "the text differs");
    free(whole.text);
    free(bytes.text);
    return 0;
}
