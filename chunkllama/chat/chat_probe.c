/* Renders the sample chats. Their texts are words that no template contains. */
#define _GNU_SOURCE /* memmem */
#include "chat_probe.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "chunkllama/common/json_doc.h"

#define WORD  "Quxwordx"
#define OTHER "quxotherx"
#define TOOL  "quxtoolx"
#define CALL  "quxcallx" /* of another function, so that it is not taken for the tool */
#define AGAIN "quxagainx"
#define FIELD "quxfieldx"
#define VALUE "quxvaluex"

/* Steps that a template may take for one of these chats: a second for all of them, where a usual one takes a millisecond. */
enum { MAX_STEPS = 2 << 20 };

typedef struct probe {
    const cl_jinja *template;
    const json_t *own;
    const char *tools; /* of chats without calls: "null", unless the template refuses all of these */
    cl_prompt text;    /* of the last chat that was rendered; owned */
    bool no_memory;
} probe;

static bool writes(const probe *p, const char *part) {
    return p->text.size > 0 && cl_str_contains((cl_str){p->text.text, p->text.size}, part);
}

static bool fail_memory(probe *p) {
    p->no_memory = true;
    return false;
}

/* Render a chat: the template's variables, as JSON in which a format's arguments are filled in. False: it was refused. */
__attribute__((format(printf, 2, 3))) static bool renders(probe *p, const char *format, ...) {
    char text[2048];
    va_list args;
    va_start(args, format);
    const int size = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_error_t wrong;
    bool no_memory;
    json_t *variables = cl_json_parse(text, (size_t)size, 0, &wrong, &no_memory);
    if (!variables) return fail_memory(p); /* the text is valid */
    cl_jinja_options options;
    cl_jinja_options_init(&options);
    options.max_steps = MAX_STEPS;
    cl_prompt_free(&p->text);
    p->text = (cl_prompt){0};
    cl_error ignored;
    const cl_status status = cl_jinja_render(p->template, variables, p->own, &options, &p->text, &ignored);
    json_decref(variables);
    return status == CL_ERR_NOMEM || p->text.no_memory ? fail_memory(p) : status == CL_OK;
}

/* What is filled into CHAT_OF are first the arguments of the messages, then the tools. */
#define CHAT_OF(messages, tools)                                                                                               \
    "{\"messages\": [" messages "], \"documents\": null, \"add_generation_prompt\": true, \"tools\": " tools "}"
#define TOOLS(more) "[{\"type\": \"function\", \"function\": {\"name\": \"" TOOL "\"" more "}}]"
#define DESCRIPTION ", \"description\": \"It.\""
#define PARAMETERS                                                                                                             \
    ", \"parameters\": {\"type\": \"object\", \"properties\": {\"it\": {\"type\": \"string\", \"description\": \"It.\"}}, "    \
    "\"required\": [\"it\"]}"
#define CHAT(messages)      CHAT_OF(messages, "%s")
#define TOOL_CHAT(messages) CHAT_OF(messages, TOOLS(DESCRIPTION PARAMETERS))
#define MESSAGE(role)       "{\"role\": \"" role "\", \"content\": %s}"
#define STRING(word)        "\"" word "\""
#define PARTS(word)         "[{\"type\": \"text\", \"text\": \"" word "\"}]"

/* ---- Tools ---- */

/* Whether these tools are written in a chat, which may begin with a system message. */
static bool writes_tools(probe *p, const char *system, const char *user, const char *tools) {
    const bool ok = system ? renders(p, CHAT(MESSAGE("system") ", " MESSAGE("user")), system, user, tools)
                           : renders(p, CHAT(MESSAGE("user")), user, tools);
    return ok && writes(p, TOOL);
}

static void probe_tools(probe *p, cl_chat_abilities *can, const char *system, const char *user) {
    can->tools_alone = writes_tools(p, NULL, user, TOOLS(DESCRIPTION PARAMETERS));
    can->tools_system = writes_tools(p, system, user, TOOLS(DESCRIPTION PARAMETERS)) && writes(p, WORD);
    can->tools = can->tools_alone || can->tools_system;
    if (can->tools_alone) system = NULL;
    can->tool_texts = can->tools && !writes_tools(p, system, user, TOOLS(PARAMETERS));
    can->tool_schemas = can->tools && !writes_tools(p, system, user, TOOLS(DESCRIPTION));
}

/* ---- Calls ---- */

/* Whether a call with arguments in this form is written: its name, and its argument neither as Python shows it nor escaped. */
static bool writes_call(const probe *p, bool argument_text) {
    if (!writes(p, CALL) || !writes(p, FIELD) || !writes(p, VALUE)) return false;
    return argument_text ? writes(p, "\"" FIELD "\": ") : !writes(p, "'" FIELD "'");
}

/* The parts of a chat with calls. What is filled in: the content; id and arguments of a call; id and content of a result. */
#define CALLS         "{\"role\": \"assistant\", \"content\": %s, \"tool_calls\": ["
#define CALL_OF(name) "{\"id\": \"%s\", \"type\": \"function\", \"function\": {\"name\": \"" name "\", \"arguments\": %s}}"
#define ONE_CALL      CALL_OF(CALL)
#define RESULT        "{\"role\": \"tool\", \"tool_call_id\": \"%s\", \"name\": \"" CALL "\", \"content\": %s}"

#define UNNAMED_RESULT "{\"role\": \"tool\", \"tool_call_id\": \"%s\", \"content\": %s}"

/* An id that is long, one that is short, and one with the call's name; arguments as an object, and as text. */
static const char *const call_ids[] = {"call_0123456789", "abcdef012", "functions." CALL ":0"};
static const char *const again_ids[] = {"call_0123456789", "abcdef012", "functions." AGAIN ":1"};
static const char *const call_arguments[] = {"{\"" FIELD "\": \"" VALUE "\"}", "\"{\\\"" FIELD "\\\": \\\"" VALUE "\\\"}\""};

/* Find a form of calls that the template writes. */
static void probe_calls(probe *p, cl_chat_abilities *can) {
    const char *word = can->strings ? STRING(WORD) : PARTS(WORD), *nothing = can->strings ? STRING("") : PARTS("");
    const char *contents[] = {"null", nothing};
    for (int form = 0; form < 12 && !can->calls && !p->no_memory; form++) {
        const int kind = form / 4; /* of the id */
        const bool is_empty = form & 2, is_text = form & 1;
        const char *id = call_ids[kind], *again = again_ids[kind];
        const bool ok = renders(p, TOOL_CHAT(MESSAGE("user") ", " CALLS ONE_CALL "]}, " RESULT), nothing, contents[is_empty],
                                id, call_arguments[is_text], id, word);
        if (!ok || !writes_call(p, is_text) || !writes(p, WORD) || (!is_empty && writes(p, "None"))) continue;
        /* The name of a call may stand nowhere but in that of its result. */
        const bool unnamed = renders(p, TOOL_CHAT(MESSAGE("user") ", " CALLS ONE_CALL "]}, " UNNAMED_RESULT), nothing,
                                     contents[is_empty], id, call_arguments[is_text], id, word) &&
                             writes(p, WORD) && !writes(p, CALL);
        if (unnamed) continue;
        can->calls = true;
        can->argument_text = is_text;
        can->null_content = !is_empty;
        can->short_ids = kind == 1;
        can->named_ids = kind == 2;
        can->calls_alone = !renders(p, TOOL_CHAT(MESSAGE("user") ", " CALLS ONE_CALL "]}, " RESULT), nothing, word, id,
                                    call_arguments[is_text], id, nothing) ||
                           !writes_call(p, is_text);
        can->single_calls =
            !renders(p, TOOL_CHAT(MESSAGE("user") ", " CALLS ONE_CALL ", " CALL_OF(AGAIN) "]}, " RESULT ", " RESULT), nothing,
                     contents[is_empty], id, call_arguments[is_text], again, call_arguments[is_text], id, word, again, word) ||
            !writes(p, AGAIN);
    }
}

/* Whether reasoning before a call is written from `thinking`, beside a content. */
static bool writes_thinking(probe *p, const cl_chat_abilities *can, const char *content) {
    const char *nothing = can->strings ? STRING("") : PARTS(""), *id = call_ids[can->named_ids ? 2 : can->short_ids];
    return renders(p,
                   TOOL_CHAT(MESSAGE("user") ", {\"role\": \"assistant\", \"content\": %s, \"thinking\": \"" WORD
                                             "\", \"tool_calls\": [" ONE_CALL "]}, " RESULT),
                   nothing, content, id, call_arguments[can->argument_text], id, nothing) &&
           writes(p, WORD);
}

static void probe_thinking(probe *p, cl_chat_abilities *can) {
    can->thinking = writes_thinking(p, can, can->strings ? STRING("") : PARTS(""));
    if (!can->thinking) return;
    can->thinking_alone = !writes_thinking(p, can, can->strings ? STRING(OTHER) : PARTS(OTHER)) || !writes(p, OTHER);
}

/* ---- All abilities ---- */

static void probe_content(probe *p, cl_chat_abilities *can) {
    can->strings = renders(p, CHAT(MESSAGE("user")), STRING(WORD), p->tools) && writes(p, WORD);
    can->parts = renders(p, CHAT(MESSAGE("user")), PARTS(WORD), p->tools) && writes(p, WORD) && !writes(p, "'text'") &&
                 !writes(p, "\"text\"");
}

cl_status cl_chat_probe(const cl_jinja *template, cl_str text, const json_t *own, cl_chat_abilities *can, cl_error *error) {
    probe p = {.template = template, .own = own, .tools = "null"};
    *can = (cl_chat_abilities){0};
    probe_content(&p, can);
    if (!can->strings && !can->parts) { /* it may write chats with tools alone, as Hermes' does */
        p.tools = TOOLS(DESCRIPTION PARAMETERS);
        probe_content(&p, can);
    }
    if (!can->strings && !can->parts) {
        *can = (cl_chat_abilities){.system = true,
                                   .developer = true,
                                   .strings = true,
                                   .tools = true,
                                   .tools_alone = true,
                                   .tools_system = true,
                                   .calls = true,
                                   .null_content = true};
    } else {
        const char *other = can->strings ? STRING("It") : PARTS("It"), *word = can->strings ? STRING(WORD) : PARTS(WORD);
        can->system = renders(&p, CHAT(MESSAGE("system") ", " MESSAGE("user")), word, other, p.tools) && writes(&p, WORD);
        can->developer = cl_str_contains(text, "developer") &&
                         renders(&p, CHAT(MESSAGE("developer") ", " MESSAGE("user")), word, other, p.tools) && writes(&p, WORD);
        probe_tools(&p, can, word, other);
        probe_calls(&p, can);
        if (can->calls && !cl_str_contains(text, "reasoning_content")) probe_thinking(&p, can);
    }
    cl_prompt_free(&p.text);
    return p.no_memory ? cl_fail(error, CL_ERR_NOMEM, "no memory to try the chat template") : CL_OK;
}

cl_status cl_chat_probe_start(const cl_jinja *template, const cl_jinja *plain, const json_t *own, cl_prompt *out,
                              cl_error *error) {
    probe p = {.template = template, .own = own}, q = {.template = plain, .own = own};
    const bool ok =
        renders(&p, CHAT(MESSAGE("user")), STRING(WORD), "null") && renders(&q, CHAT(MESSAGE("user")), STRING(WORD), "null");
    const size_t n = p.text.size - q.text.size;
    if (ok && p.text.size > q.text.size && memcmp(p.text.text + n, q.text.text, q.text.size) == 0)
        cl_prompt_add(out, (cl_str){p.text.text, n});
    const bool no_memory = p.no_memory || q.no_memory || out->no_memory;
    cl_prompt_free(&p.text);
    cl_prompt_free(&q.text);
    return no_memory ? cl_fail(error, CL_ERR_NOMEM, "no memory to try the chat template") : CL_OK;
}
