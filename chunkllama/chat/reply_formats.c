/* The families' formats, and which of them a template uses. */
#include <stdio.h>

#include "reply.h"

/* ---- Families ---- */

typedef struct family {
    const char *has[2]; /* texts that are all in the template; NULL: none */
    cl_reply_format format;
} family;

/* The first whose texts are in a template is its family; otherwise it is the last. */
static const family families[] = {
    {{"<start_function_call>"},
     {.name = "gemma",
      .syntax = CL_REPLY_GEMMA,
      .begin = "<start_function_call>",
      .end = "<end_function_call>",
      .stop = "<start_function_response>"}},
    {{"[TOOL_CALLS]"}, {.name = "mistral", .syntax = CL_REPLY_MISTRAL, .begin = "[TOOL_CALLS]"}},
    {{"<seed:tool_call>"}, {.name = "seed", .syntax = CL_REPLY_JSON, .begin = "<seed:tool_call>", .end = "</seed:tool_call>"}},
    {{">>>all"}, {.name = "functionary", .syntax = CL_REPLY_RECIPIENT, .begin = ">>>"}},
    {{"<tool_calls>["},
     {.name = "apriel", .syntax = CL_REPLY_JSON, .array = true, .begin = CL_REPLY_CALLS_BEGIN, .end = CL_REPLY_CALLS_END}},
    {{"<tool_call>"}, {.name = "hermes", .syntax = CL_REPLY_JSON, .begin = "<tool_call>", .end = "</tool_call>"}},
    {{"<function=", "</function>"},
     {.name = "functionary", .syntax = CL_REPLY_FUNCTION, .begin = "<function=", .end = "</function>"}},
    {{"[func_name1("}, {.name = "pythonic", .syntax = CL_REPLY_PYTHON, .array = true}},
    {{"<|start_header_id|>", "\"parameters\""},
     {.name = "llama3", .syntax = CL_REPLY_BARE, .arguments = "parameters", .begin = "<|python_tag|>"}},
    {{NULL}, {.name = "hermes", .syntax = CL_REPLY_JSON, .begin = "<tool_call>", .end = "</tool_call>"}},
};

static bool is_of(cl_str template, const family *f) {
    return cl_str_contains(template, f->has[0]) && (!f->has[1] || cl_str_contains(template, f->has[1]));
}

/* The markers around reasoning. The template names the second, where it takes earlier reasoning out of the chat. */
static const char *const thoughts[][2] = {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}, {"<seed:think>", "</seed:think>"}};

bool cl_reply_format_find(cl_str template, bool has_tools, cl_reply_format *format) {
    const family *f = families, *last = &families[sizeof families / sizeof *families - 1];
    while (f < last && (!has_tools || !is_of(template, f))) f++;
    *format = f->format;
    if (f->format.syntax == CL_REPLY_MISTRAL) format->array = !cl_str_contains(template, "[ARGS]");
    if (!format->arguments) format->arguments = "arguments";
    for (size_t i = 0; i < sizeof thoughts / sizeof *thoughts; i++) {
        if (!cl_str_contains(template, thoughts[i][1])) continue;
        snprintf(format->think, sizeof format->think, "%s", thoughts[i][0]);
        snprintf(format->answer, sizeof format->answer, "%s", thoughts[i][1]);
        break;
    }
    return has_tools && f == last;
}

/* ---- Probing ---- */

static bool is_space(char byte) { return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r'; }

/* The first place of `part` in text; NULL: none. */
static const char *find(cl_str text, const char *part) {
    const size_t size = strlen(part);
    for (size_t i = 0; i + size <= text.size; i++)
        if (memcmp(text.data + i, part, size) == 0) return text.data + i;
    return NULL;
}

/* Set a marker to [from, to) if that is short enough, and looks like one: <...> or [...]. */
static void set_marker(char marker[CL_REPLY_MAX_MARKER], const char *from, const char *to) {
    const size_t size = (size_t)(to - from);
    if (size < 3 || size >= CL_REPLY_MAX_MARKER) return;
    memcpy(marker, from, size);
    marker[size] = '\0';
}

/* The marker that ends before `to`, behind white space. */
static void set_begin(char marker[CL_REPLY_MAX_MARKER], const char *text, const char *to) {
    while (to > text && is_space(to[-1])) to--;
    if (to == text || (to[-1] != '>' && to[-1] != ']')) return;
    const char open = to[-1] == '>' ? '<' : '[', *from = to - 1;
    while (from > text && *from != open) from--;
    if (*from == open) set_marker(marker, from, to);
}

/* The marker that begins at `from`, behind white space. */
static void set_end(char marker[CL_REPLY_MAX_MARKER], const char *from, const char *end) {
    while (from < end && is_space(*from)) from++;
    if (from == end || (*from != '<' && *from != '[')) return;
    const char close = *from == '<' ? '>' : ']', *to = from;
    while (to < end && *to != close) to++;
    if (to < end) set_marker(marker, from, to + 1);
}

void cl_reply_format_probe(cl_str text, cl_reply_format *format) {
    static const char name_key[] = "\"name\"";
    const char *name = find(text, "\"" CL_REPLY_PROBE_NAME "\"");
    if (!name || format->syntax != CL_REPLY_JSON) return;
    const char *const end = text.data + text.size;
    /* The object begins with the key of the name; whatever the order, all of its text is before the last brace. */
    const char *object = name;
    while (object > text.data && *object != '{') object--;
    const char *value = find((cl_str){name, (size_t)(end - name)}, "\"" CL_REPLY_PROBE_VALUE "\"");
    if (*object != '{' || !value || !find((cl_str){object, (size_t)(name - object)}, name_key)) return;
    const char *close = value + strlen("\"" CL_REPLY_PROBE_VALUE "\"");
    for (int depth = 2; close < end && depth > 0; close++) {
        if (*close == '}')
            depth--;
        else if (!is_space(*close))
            return;
    }
    format->begin[0] = format->end[0] = '\0';
    set_begin(format->begin, text.data, object);
    set_end(format->end, close, end);
    format->syntax = format->begin[0] ? CL_REPLY_JSON : CL_REPLY_BARE;
    const cl_str between = {name, (size_t)(value - name)};
    format->arguments = find(between, "\"parameters\"") ? "parameters" : "arguments";
    format->name = "generic";
}

const char *cl_reply_format_marker(const cl_reply_format *f, size_t i) {
    static const char *const more[][2] = {[CL_REPLY_JSON] = {CL_REPLY_CALLS_BEGIN, CL_REPLY_CALLS_END},
                                          [CL_REPLY_MISTRAL] = {"[ARGS]", "[CALL_ID]"},
                                          [CL_REPLY_GEMMA] = {"<escape>"},
                                          [CL_REPLY_N_SYNTAXES] = {NULL}};
    const char *const all[] = {f->begin, f->end, f->think, f->answer, more[f->syntax][0], more[f->syntax][1]};
    enum { N = sizeof all / sizeof *all };
    return i < N ? (all[i] ? all[i] : "") : NULL;
}
