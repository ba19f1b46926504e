/* The families' formats, and which of them a template uses. */
#include <stdio.h>

#include "reply.h"

/* ---- Families ---- */

typedef struct family {
    const char *has[2]; /* texts that are all in the template; NULL: none */
    cl_reply_format format;
} family;

static const cl_reply_tags qwen_tags = {
    .begin = "<function=",
    .named = ">",
    .key = "<parameter=",
    .value = ">",
    .value_end = "</parameter>",
    .end = "</function>",
    .lines = true,
};
static const cl_reply_tags glm_tags = {
    .begin = "",
    .named = "",
    .key = "<arg_key>",
    .value = "</arg_key>\n<arg_value>",
    .value_end = "</arg_value>",
    .end = "</tool_call>",
};
static const cl_reply_tags minimax_tags = {
    .begin = "<invoke name=\"",
    .named = "\">",
    .key = "<parameter name=\"",
    .value = "\">",
    .value_end = "</parameter>",
    .end = "</invoke>",
    .lines = true,
};

#define DEEPSEEK_CALLS .begin = "<｜tool▁calls▁begin｜>", .end = "<｜tool▁calls▁end｜>"
#define LFM2                                                                                                                   \
    { .name = "lfm2", .syntax = CL_REPLY_PYTHON, .array = true, .begin = "<|tool_call_start|>", .end = "<|tool_call_end|>" }

static const char *const json_begins[] = {CL_REPLY_CALLS_BEGIN, NULL};
static const char *const harmony_begins[] = {"<|channel|>analysis to=", " to=functions.", NULL};

/* The first whose texts are in a template is its family; otherwise it is the last. */
static const family families[] = {
    {{"<|channel|>commentary"},
     {.name = "harmony",
      .syntax = CL_REPLY_NAMED,
      .single = true,
      .begin = "<|channel|>commentary to=",
      .begins = harmony_begins,
      .prefix = "functions.",
      .between = " <|constrain|>json<|message|>",
      .end = "<|call|>",
      .stop = "<|call|>"}},
    {{"<|im_middle|>"},
     {.name = "kimi",
      .syntax = CL_REPLY_NAMED,
      .begin = "<|tool_calls_section_begin|>",
      .open = "<|tool_call_begin|>",
      .prefix = "functions.",
      .numbered = true,
      .between = "<|tool_call_argument_begin|>",
      .close = "<|tool_call_end|>",
      .end = "<|tool_calls_section_end|>"}},
    {{"<｜tool▁calls▁begin｜>", "```json"},
     {.name = "deepseek",
      .syntax = CL_REPLY_NAMED,
      DEEPSEEK_CALLS,
      .open = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
      .between = "\n```json\n",
      .close = "\n```<｜tool▁call▁end｜>"}},
    {{"<｜tool▁calls▁begin｜>"},
     {.name = "deepseek",
      .syntax = CL_REPLY_NAMED,
      DEEPSEEK_CALLS,
      .open = "<｜tool▁call▁begin｜>",
      .between = "<｜tool▁sep｜>",
      .close = "<｜tool▁call▁end｜>"}},
    {{"<arg_key>"},
     {.name = "glm", .syntax = CL_REPLY_TAGS, .tags = &glm_tags, .begin = "<tool_call>", .stop = "<|observation|>"}},
    {{"<minimax:tool_call>"},
     {.name = "minimax",
      .syntax = CL_REPLY_TAGS,
      .tags = &minimax_tags,
      .begin = "<minimax:tool_call>",
      .end = "</minimax:tool_call>"}},
    {{"<|tool_call>"},
     {.name = "gemma",
      .syntax = CL_REPLY_GEMMA,
      .quote = "<|\"|>",
      .begin = "<|tool_call>",
      .end = "<tool_call|>",
      .stop = "<|tool_response>"}},
    {{"<start_function_call>"},
     {.name = "gemma",
      .syntax = CL_REPLY_GEMMA,
      .quote = "<escape>",
      .begin = "<start_function_call>",
      .end = "<end_function_call>",
      .stop = "<start_function_response>"}},
    {{"<|tool_call_start|>"}, LFM2},
    {{"<|tool_list_start|>"}, LFM2},
    {{"<|START_ACTION|>"},
     {.name = "command",
      .syntax = CL_REPLY_JSON,
      .array = true,
      .function = "tool_name",
      .arguments = "parameters",
      .id = "tool_call_id",
      .begin = "<|START_ACTION|>",
      .end = "<|END_ACTION|>"}},
    {{"[TOOL_CALLS]"}, {.name = "mistral", .syntax = CL_REPLY_MISTRAL, .begin = "[TOOL_CALLS]"}},
    {{"<seed:tool_call>"},
     {.name = "seed", .syntax = CL_REPLY_JSON, .tagged = true, .begin = "<seed:tool_call>", .end = "</seed:tool_call>"}},
    {{">>>all"}, {.name = "functionary", .syntax = CL_REPLY_RECIPIENT, .begin = ">>>"}},
    {{"<tool_calls>["},
     {.name = "apriel", .syntax = CL_REPLY_JSON, .array = true, .begin = CL_REPLY_CALLS_BEGIN, .end = CL_REPLY_CALLS_END}},
    {{"<tool_call>", "<parameter="},
     {.name = "qwen", .syntax = CL_REPLY_JSON, .tagged = true, .begin = "<tool_call>", .end = "</tool_call>"}},
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

/* ---- Reasoning ---- */

typedef struct thought {
    const char *has; /* a text that is in the template; where it takes earlier reasoning out of the chat it names `answer` */
    const char *think, *answer;
    const char *const *around;
    const char *resume;
    bool again;
} thought;

static const char *const command_around[] = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", NULL};
static const char *const harmony_around[] = {
    "<|channel|>final<|message|>", "<|channel|>commentary<|message|>", "<|start|>assistant", "<|end|>", "<|return|>", NULL};
static const char *const apriel_around[] = {"[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]", NULL};

/* The first whose text is in a template says how its model reasons. */
static const thought thoughts[] = {
    {.has = "<|channel|>analysis",
     .think = "<|channel|>analysis<|message|>",
     .answer = "<|end|>",
     .around = harmony_around,
     .resume = "<|start|>assistant",
     .again = true},
    {.has = "<channel|>", .think = "<|channel>thought", .answer = "<channel|>", .again = true},
    {.has = "<|END_RESPONSE|>", .think = "<|START_THINKING|>", .answer = "<|END_THINKING|>", .around = command_around},
    {.has = "[BEGIN FINAL RESPONSE]",
     .think = "Here are my reasoning steps:",
     .answer = "[BEGIN FINAL RESPONSE]",
     .around = apriel_around},
    {.has = "</think>", .think = "<think>", .answer = "</think>"},
    {.has = "[/THINK]", .think = "[THINK]", .answer = "[/THINK]"},
    {.has = "</seed:think>", .think = "<seed:think>", .answer = "</seed:think>"},
};

static void find_thought(cl_str template, cl_reply_format *format) {
    for (size_t i = 0; i < sizeof thoughts / sizeof *thoughts; i++) {
        const thought *t = &thoughts[i];
        if (!cl_str_contains(template, t->has)) continue;
        snprintf(format->think, sizeof format->think, "%s", t->think);
        snprintf(format->answer, sizeof format->answer, "%s", t->answer);
        format->around = t->around;
        format->resume = t->resume;
        format->rethinks = t->again;
        return;
    }
}

/* ---- The format ---- */

/* Set what a row leaves out. */
static void complete(cl_reply_format *f) {
    const char **const texts[] = {&f->open, &f->close, &f->prefix, &f->between, &f->quote, &f->resume};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!*texts[i]) *texts[i] = "";
    if (!f->function) f->function = "name";
    if (!f->arguments) f->arguments = "arguments";
    if (!f->tags && (f->syntax == CL_REPLY_JSON || f->syntax == CL_REPLY_FUNCTION)) f->tags = &qwen_tags;
    if (!f->begins && f->syntax == CL_REPLY_JSON) f->begins = json_begins;
}

bool cl_reply_format_find(cl_str template, bool has_tools, cl_reply_format *format) {
    const family *f = families, *last = &families[sizeof families / sizeof *families - 1];
    while (f < last && (!has_tools || !is_of(template, f))) f++;
    *format = f->format;
    if (f->format.syntax == CL_REPLY_MISTRAL) format->array = !cl_str_contains(template, "[ARGS]");
    find_thought(template, format);
    complete(format);
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

/* The marker at *i of a list, or NULL; then *i is an index behind the list. */
static const char *marker_in(const char *const *list, size_t *i) {
    for (; list && *list; list++, --*i)
        if (*i == 0) return *list;
    return NULL;
}

const char *cl_reply_format_marker(const cl_reply_format *f, size_t i) {
    static const char *const mistral[] = {"[ARGS]", "[CALL_ID]", NULL};
    const cl_reply_tags *t = f->tags;
    const char *const all[] = {f->begin, f->end, f->think, f->answer, f->open, f->close, f->between, f->quote, NULL};
    const char *const tags[] = {t ? t->begin : NULL,   t ? t->key : "", t ? t->value : "",
                                t ? t->value_end : "", t ? t->end : "", NULL};
    const char *const json[] = {CL_REPLY_CALLS_BEGIN, CL_REPLY_CALLS_END, NULL};
    const char *const *const lists[] = {all,
                                        tags,
                                        f->begins,
                                        f->around,
                                        f->syntax == CL_REPLY_JSON ? json : NULL,
                                        f->syntax == CL_REPLY_MISTRAL ? mistral : NULL};
    const char *marker = NULL;
    for (size_t k = 0; !marker && k < sizeof lists / sizeof *lists; k++) marker = marker_in(lists[k], &i);
    return marker;
}
