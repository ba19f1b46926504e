/* Rewrites messages, one after the other; then what concerns all of them: tools, and the system message. */
#include "chat_messages.h"

#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/json_doc.h"
#include "chunkllama/common/json_text.h"
#include "chunkllama/text/prompt.h"

/* ---- Text of values: new references, or NULL if memory is lacking ---- */

/* A string of a text, which is freed. */
static json_t *take_text(cl_prompt *text) {
    json_t *string = text->no_memory ? NULL : json_stringn_nocheck(text->text ? text->text : "", text->size);
    cl_prompt_free(text);
    return string;
}

static void add_string(cl_prompt *text, const json_t *string) {
    cl_prompt_add(text, (cl_str){json_string_value(string), json_string_length(string)});
}

static void add_literal(cl_prompt *text, const char *literal) { cl_prompt_add(text, cl_str_of(literal)); }

/* Add a value as JSON in the form of Python's json.dumps, which models know. */
static void add_json(cl_prompt *text, const json_t *value) {
    char *dumped = cl_json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    if (dumped) add_literal(text, dumped);
    text->no_memory |= !dumped;
    free(dumped);
}

/* Content as one string: parts become one line each, as in vLLM and llama.cpp; null becomes "". */
static json_t *content_text(const json_t *content) {
    if (json_is_string(content)) return json_incref((json_t *)content);
    cl_prompt text = {0};
    for (size_t i = 0; i < json_array_size(content); i++) {
        if (i > 0) add_literal(&text, "\n");
        add_string(&text, json_object_get(json_array_get(content, i), "text"));
    }
    return take_text(&text);
}

static bool is_empty(const json_t *string) { return json_string_length(string) == 0; }

/* Two strings with a separator between them, unless one of them is empty. Both are released. */
static json_t *join(json_t *a, const char *separator, json_t *b) {
    cl_prompt text = {.no_memory = !a || !b};
    if (a) add_string(&text, a);
    if (a && b && !is_empty(a) && !is_empty(b)) add_literal(&text, separator);
    if (b) add_string(&text, b);
    json_decref(a);
    json_decref(b);
    return take_text(&text);
}

static json_t *content_of(const json_t *message) { return content_text(json_object_get(message, "content")); }

/* A message, and the text that it gets as its content if texts of others are joined to it. */
typedef struct joint {
    json_t *message; /* borrowed; NULL: there is none yet */
    cl_prompt text;  /* owned */
} joint;

/* Add a string, which is released, as a paragraph. */
static void add_paragraph(cl_prompt *text, json_t *string) {
    text->no_memory |= !string;
    if (text->size > 0 && !is_empty(string)) add_literal(text, "\n\n");
    add_string(text, string);
    json_decref(string);
}

/* Join a string, which is released, to the content. What is joined is copied once, however many strings follow. */
static void join_to(joint *j, json_t *string) {
    if (j->text.size == 0) add_paragraph(&j->text, content_of(j->message));
    add_paragraph(&j->text, string);
}

/* ---- Messages ---- */

typedef struct rewriter {
    const cl_chat_abilities *can;
    const cl_chat_arrangement *arrangement;
    bool describes_calls;
    json_t *out;       /* the messages so far; owned */
    cl_prompt results; /* of calls, the text of a message that is not among them yet; owned */
    joint last;        /* the last message, if text is joined to it */
    json_t *ids;       /* of calls, and what they became, if the template needs names in them; owned */
    size_t n_ids;
    int64_t n_steps; /* that were taken */
    bool no_memory;
} rewriter;

enum { STEPS_OF_COPY = 32, STEPS_OF_MEMBER = 4, BYTES_OF_STEP = 8 }; /* that are written or joined */

/* A copy of a message, a call, or an array of calls. */
static json_t *copy_of(rewriter *w, const json_t *value) {
    w->n_steps += STEPS_OF_COPY + STEPS_OF_MEMBER * (int64_t)(json_array_size(value) + json_object_size(value));
    return cl_json_copy(value);
}

/* Set a member; `value` is released, and NULL means that memory is lacking. */
static void set(rewriter *w, json_t *object, const char *key, json_t *value) {
    w->n_steps += STEPS_OF_MEMBER + (int64_t)json_string_length(value) / BYTES_OF_STEP;
    w->no_memory |= !value || json_object_set_new_nocheck(object, key, value) != 0;
}

static void end_joint(rewriter *w, joint *j) {
    w->no_memory |= j->text.no_memory;
    if (j->text.size > 0) set(w, j->message, "content", take_text(&j->text));
    j->text = (cl_prompt){0};
}

bool cl_chat_is_role(const json_t *message, const char *role) {
    const char *actual = json_string_value(json_object_get(message, "role"));
    return actual && strcmp(actual, role) == 0;
}

bool cl_chat_is_system(const json_t *message) {
    return cl_chat_is_role(message, "system") || cl_chat_is_role(message, "developer");
}

bool cl_chat_has_text(const json_t *content) {
    if (json_is_string(content)) return !is_empty(content);
    for (size_t i = 0; i < json_array_size(content); i++)
        if (!is_empty(json_object_get(json_array_get(content, i), "text"))) return true;
    return false;
}

/* An id in the form that Mistral's templates require; the same ids stay the same. */
static json_t *short_id(const json_t *id) {
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    enum { SIZE = 9, BASE = sizeof digits - 1 };
    const char *text = json_is_string(id) ? json_string_value(id) : "";
    if (strlen(text) == SIZE && strspn(text, digits) == SIZE) return json_incref((json_t *)id);
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3;
    char shortened[SIZE + 1] = {0};
    for (int i = 0; i < SIZE; i++, hash /= BASE) shortened[i] = digits[hash % BASE];
    return json_string_nocheck(shortened);
}

/* An id in the form in which Kimi's templates write a call's name. */
static json_t *named_id(rewriter *w, const json_t *call) {
    const char *name = json_string_value(json_object_get(json_object_get(call, "function"), "name"));
    const char *id = json_string_value(json_object_get(call, "id"));
    json_t *named = json_sprintf("functions.%s:%zu", name ? name : "", w->n_ids++);
    if (id) set(w, w->ids, id, json_incref(named));
    return named;
}

static json_t *json_text(const json_t *value) {
    cl_prompt text = {0};
    add_json(&text, value);
    return take_text(&text);
}

/* Make the arguments of a call, which is a copy, JSON text or an object, as the template takes them. */
static void adapt_arguments(rewriter *w, json_t *call) {
    json_t *function = json_object_get(call, "function"), *arguments = json_object_get(function, "arguments");
    const bool is_text = json_is_string(arguments), dumps = w->can->argument_text && !is_text;
    if (!dumps && !(is_text && w->arrangement->calls == CL_CALLS_ODD_AS_OBJECT)) return;
    json_t *copy = copy_of(w, function);
    set(w, copy, "arguments", dumps ? json_text(arguments) : json_pack("{s:O}", "arguments", arguments));
    set(w, call, "function", copy);
}

/* Replace a message's calls by copies with ids and arguments in the form that the template takes. */
static void adapt_calls(rewriter *w, json_t *message) {
    json_t *calls = copy_of(w, json_object_get(message, "tool_calls"));
    for (size_t i = 0; calls && i < json_array_size(calls); i++) {
        json_t *call = copy_of(w, json_array_get(calls, i));
        if (call && w->can->short_ids) set(w, call, "id", short_id(json_object_get(call, "id")));
        if (call && w->can->named_ids) set(w, call, "id", named_id(w, call));
        if (call) adapt_arguments(w, call);
        w->no_memory |= !call || json_array_set_new(calls, i, call) != 0;
    }
    set(w, message, "tool_calls", calls);
}

/* Write a message's calls into its content. */
static void describe_calls(rewriter *w, json_t *message) {
    const json_t *calls = json_object_get(message, "tool_calls");
    cl_prompt text = {0};
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *function = json_object_get(json_array_get(calls, i), "function");
        const json_t *arguments = json_object_get(function, "arguments");
        add_literal(&text, i > 0 ? "\n<tool_call>\n{\"name\": " : "<tool_call>\n{\"name\": ");
        add_json(&text, json_object_get(function, "name"));
        add_literal(&text, ", \"arguments\": ");
        json_is_string(arguments) ? add_string(&text, arguments) : add_json(&text, arguments);
        add_literal(&text, "}\n</tool_call>");
    }
    set(w, message, "content", join(content_of(message), "\n", take_text(&text)));
    json_object_del(message, "tool_calls");
}

/* Add the result of a call to the text of those before it. */
static void add_result(rewriter *w, const json_t *message) {
    json_t *content = content_of(message);
    w->no_memory |= !content;
    add_literal(&w->results, w->results.size > 0 ? "\n<tool_response>\n" : "<tool_response>\n");
    add_string(&w->results, content);
    add_literal(&w->results, "\n</tool_response>");
    json_decref(content);
}

static bool ends_with_user(const rewriter *w) {
    return cl_chat_is_role(json_array_get(w->out, json_array_size(w->out) - 1), "user");
}

static void join_to_last(rewriter *w, json_t *string) {
    w->n_steps += STEPS_OF_MEMBER;
    w->last.message = json_array_get(w->out, json_array_size(w->out) - 1);
    join_to(&w->last, string);
}

/* Write the results of consecutive calls: at the end of the user's message before them, or as a message of the user. */
static void end_results(rewriter *w) {
    w->no_memory |= w->results.no_memory;
    if (w->results.size == 0) return;
    json_t *text = take_text(&w->results);
    w->results = (cl_prompt){0};
    if (ends_with_user(w)) {
        join_to_last(w, text);
        return;
    }
    json_t *user = json_object();
    set(w, user, "role", json_string_nocheck("user"));
    set(w, user, "content", text);
    w->no_memory |= json_array_append_new(w->out, user) != 0;
}

/* Let a message of the user begin with the results of calls before it, since in many templates roles must alternate. */
static void begin_with_results(rewriter *w, json_t *message) {
    json_t *content = content_of(message);
    set(w, message, "content", join(take_text(&w->results), "\n\n", content));
    w->results = (cl_prompt){0};
}

static void rewrite_calls(rewriter *w, json_t *message) {
    if (w->describes_calls)
        describe_calls(w, message);
    else if (w->can->short_ids || w->can->named_ids || w->can->argument_text || w->arrangement->calls == CL_CALLS_ODD_AS_OBJECT)
        adapt_calls(w, message);
}

/* Let reasoning also be `thinking`, with the content that stands beside calls if the template takes only one of them. */
static void rewrite_reasoning(rewriter *w, json_t *message, bool has_calls) {
    json_t *reasoning = json_object_get(message, "reasoning_content"), *content = json_object_get(message, "content");
    const bool joins = has_calls && w->can->thinking_alone;
    if (!w->can->thinking || !json_is_string(reasoning)) return;
    set(w, message, "thinking", joins ? join(json_incref(reasoning), "\n\n", content_text(content)) : json_incref(reasoning));
    if (joins) set(w, message, "content", json_string_nocheck(""));
}

/*
 * Make content null, a string or parts, as the template takes it; make_parts follows. Parts of a system message become a string
 * also where parts are possible, since some templates write only the first one (Gemma 3). has_calls: calls stand beside it.
 */
static void rewrite_content(rewriter *w, json_t *message, bool has_calls) {
    const json_t *content = json_object_get(message, "content");
    const bool is_null = has_calls && w->can->null_content && !cl_chat_has_text(content);
    const bool takes_parts = w->can->parts && !cl_chat_is_role(message, "system");
    if (!is_null && (json_is_string(content) || (json_is_array(content) && takes_parts))) return;
    set(w, message, "content", is_null ? json_null() : content_text(content));
}

static void add_message(rewriter *w, const json_t *original) {
    const bool is_result = cl_chat_is_role(original, "tool");
    if (is_result && w->describes_calls) {
        add_result(w, original);
        return;
    }
    const bool is_user = cl_chat_is_role(original, "user"), joins = is_user && w->results.size > 0 && ends_with_user(w);
    if (!is_user || joins) end_results(w);
    if (joins) { /* results without a call, between two messages of the user */
        join_to_last(w, content_of(original));
        return;
    }
    json_t *message = copy_of(w, original);
    w->no_memory |= !message;
    if (!message) return;
    if (w->results.size > 0) begin_with_results(w, message);
    const bool has_calls = json_array_size(json_object_get(message, "tool_calls")) > 0;
    if (cl_chat_is_role(message, "developer") && !w->can->developer) set(w, message, "role", json_string_nocheck("system"));
    const json_t *id = json_object_get(message, "tool_call_id");
    json_t *named =
        is_result && w->can->named_ids && json_is_string(id) ? json_object_get(w->ids, json_string_value(id)) : NULL;
    if (is_result && w->can->short_ids) set(w, message, "tool_call_id", short_id(id));
    if (named) set(w, message, "tool_call_id", json_incref(named));
    rewrite_reasoning(w, message, has_calls);
    if (has_calls) rewrite_calls(w, message);
    rewrite_content(w, message, has_calls);
    end_joint(w, &w->last);
    w->no_memory |= json_array_append_new(w->out, message) != 0;
}

static const char *id_of(const json_t *call) { return json_string_value(json_object_get(call, "id")); }

/* Add a message with one of the calls of `original`, whose content and reasoning come with the first. */
static void add_call(rewriter *w, const json_t *original, size_t i) {
    json_t *message = copy_of(w, original), *calls = json_array();
    w->no_memory |= json_array_append(calls, json_array_get(json_object_get(original, "tool_calls"), i)) != 0;
    set(w, message, "tool_calls", calls);
    if (i > 0) {
        set(w, message, "content", json_null());
        json_object_del(message, "reasoning_content");
    }
    if (!w->no_memory) add_message(w, message);
    json_decref(message);
}

/* Add the messages of a list, and empty it. */
static void add_messages(rewriter *w, json_t *messages) {
    for (size_t i = 0; !w->no_memory && i < json_array_size(messages); i++) add_message(w, json_array_get(messages, i));
    json_array_clear(messages);
}

/* The results of calls: an empty list for each of their ids, a new reference. */
static json_t *make_lists(rewriter *w, const json_t *calls) {
    json_t *lists = json_object();
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const char *id = id_of(json_array_get(calls, i));
        if (id) w->no_memory |= json_object_set_new_nocheck(lists, id, json_array()) != 0;
    }
    return lists;
}

/*
 * Add a message with several calls, which is at index `at`, as one for each call, followed by its results. They are among the
 * messages of the role tool that follow; those that answer none of the calls come last. Returns the index after these messages.
 */
static size_t add_calls_apart(rewriter *w, const json_t *messages, size_t at) {
    const json_t *original = json_array_get(messages, at++), *calls = json_object_get(original, "tool_calls"), *result;
    json_t *results = make_lists(w, calls), *others = json_array();
    w->no_memory |= !results || !others;
    for (; (result = json_array_get(messages, at)) && cl_chat_is_role(result, "tool"); at++) {
        json_t *list = json_object_get(results, json_string_value(json_object_get(result, "tool_call_id")));
        w->no_memory |= json_array_append(list ? list : others, (json_t *)result) != 0;
    }
    for (size_t i = 0; !w->no_memory && i < json_array_size(calls); i++) {
        add_call(w, original, i);
        add_messages(w, json_object_get(results, id_of(json_array_get(calls, i))));
    }
    add_messages(w, others);
    json_decref(results);
    json_decref(others);
    return at;
}

/* ---- All messages ---- */

/* The text that describes tools, as Qwen's templates have it. */
static json_t *tools_text(const json_t *tools) {
    cl_prompt text = {0};
    add_literal(&text, "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with "
                       "function signatures within <tools></tools> XML tags:\n<tools>");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        add_literal(&text, "\n");
        add_json(&text, json_array_get(tools, i));
    }
    add_literal(&text, "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
                       "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
                       "<args-json-object>}\n</tool_call>");
    return take_text(&text);
}

/* Put text before or after the content of message i. */
static void add_to_content(rewriter *w, size_t i, json_t *text, bool before) {
    json_t *message = json_array_get(w->out, i), *content = content_of(message);
    set(w, message, "content", before ? join(text, "\n\n", content) : join(content, "\n\n", text));
}

/* Put text at the end of the system message, which is added if there is none. */
static void add_to_system(rewriter *w, json_t *text) {
    if (cl_chat_is_system(json_array_get(w->out, 0))) {
        add_to_content(w, 0, text, false);
        return;
    }
    json_t *system = json_object();
    set(w, system, "role", json_string_nocheck("system"));
    set(w, system, "content", text);
    w->no_memory |= json_array_insert_new(w->out, 0, system) != 0;
}

typedef struct merger {
    rewriter *w;
    bool late_to_user;  /* messages of the system behind others are given to the user */
    joint system, last; /* all that are not given to the user; the last other message */
    bool was_given;     /* the message before this one was given to the user */
} merger;

/* A message that is given to the user is joined to those of the user beside it: in many templates roles must alternate. */
static void merge(merger *m, json_t *message) {
    const bool is_system = cl_chat_is_system(message), is_given = is_system && m->late_to_user && m->last.message;
    if (is_given) set(m->w, message, "role", json_string_nocheck("user"));
    if (is_system && !is_given && m->system.message) {
        join_to(&m->system, content_of(message));
    } else if (is_system && !is_given) {
        m->system.message = message;
    } else if ((is_given || m->was_given) && cl_chat_is_role(m->last.message, "user") && cl_chat_is_role(message, "user")) {
        join_to(&m->last, content_of(message));
    } else {
        end_joint(m->w, &m->last);
        m->last.message = message;
        m->w->no_memory |= json_array_append(m->w->out, message) != 0;
    }
    m->was_given = is_given;
}

/* Merge the messages of the system with the first one, or the later ones with the user's. */
static void merge_systems(rewriter *w, bool late_to_user) {
    merger m = {.w = w, .late_to_user = late_to_user};
    json_t *messages = w->out;
    w->out = json_array();
    for (size_t i = 0; i < json_array_size(messages); i++) merge(&m, json_array_get(messages, i));
    end_joint(w, &m.last);
    end_joint(w, &m.system);
    if (m.system.message) w->no_memory |= json_array_insert(w->out, 0, m.system.message) != 0;
    json_decref(messages);
}

/* Put the system message before the first of the user, or let it be the user's if it is the only one. */
static void move_system(rewriter *w) {
    json_t *system = json_array_get(w->out, 0);
    if (!cl_chat_is_system(system)) return;
    for (size_t i = 1; i < json_array_size(w->out); i++) {
        if (!cl_chat_is_role(json_array_get(w->out, i), "user")) continue;
        add_to_content(w, i, content_of(system), true);
        w->no_memory |= json_array_remove(w->out, 0) != 0;
        return;
    }
    set(w, system, "role", json_string_nocheck("user"));
}

/* Make parts of contents that are strings. */
static void make_parts(rewriter *w) {
    for (size_t i = 0; i < json_array_size(w->out); i++) {
        json_t *message = json_array_get(w->out, i), *content = json_object_get(message, "content");
        if (!json_is_string(content)) continue;
        json_t *part = json_object(), *parts = json_array();
        set(w, part, "type", json_string_nocheck("text"));
        set(w, part, "text", json_incref(content));
        w->no_memory |= json_array_append_new(parts, part) != 0;
        set(w, message, "content", parts);
    }
}

json_t *cl_chat_rewrite(const cl_chat_abilities *can, const cl_chat_arrangement *arrangement, const json_t *messages,
                        const json_t *tools, int64_t *n_steps) {
    const bool describes_calls = !can->calls || arrangement->calls == CL_CALLS_DESCRIBED;
    rewriter w = {.can = can, .arrangement = arrangement, .describes_calls = describes_calls, .out = json_array()};
    const cl_chat_systems how = arrangement->systems;
    if (can->named_ids) w.ids = json_object();
    w.no_memory = !w.out || (can->named_ids && !w.ids);
    for (size_t i = 0; !w.no_memory && i < json_array_size(messages);) {
        const json_t *message = json_array_get(messages, i);
        if (can->single_calls && !describes_calls && json_array_size(json_object_get(message, "tool_calls")) > 1)
            i = add_calls_apart(&w, messages, i);
        else
            add_message(&w, json_array_get(messages, i++));
    }
    end_results(&w);
    end_joint(&w, &w.last);
    if (!w.no_memory && how != CL_SYSTEMS_AS_THEY_ARE)
        merge_systems(&w, how == CL_SYSTEMS_LATE_TO_USER || how == CL_SYSTEMS_ALL_TO_USER);
    if (!w.no_memory && json_array_size(tools) > 0 && arrangement->tools == CL_TOOLS_DESCRIBED)
        add_to_system(&w, tools_text(tools));
    if (!w.no_memory && arrangement->tools == CL_TOOLS_BESIDE_SYSTEM) add_to_system(&w, json_string_nocheck(""));
    if (!w.no_memory && (how == CL_SYSTEMS_ALL_TO_USER || how == CL_SYSTEMS_FIRST_TO_USER)) move_system(&w);
    if (!w.no_memory && !can->strings) make_parts(&w);
    cl_prompt_free(&w.results);
    json_decref(w.ids);
    *n_steps = w.n_steps;
    if (w.no_memory) json_decref(w.out);
    return w.no_memory ? NULL : w.out;
}

/* ---- Tools ---- */

static bool is_missing(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return !value || json_is_null(value);
}

/* A copy of a tool with what a template needs; NULL: memory is lacking. */
static json_t *complete_tool(rewriter *w, const json_t *tool) {
    const json_t *given = json_object_get(tool, "function");
    if (!json_is_object(given)) return json_incref((json_t *)tool);
    json_t *copy = copy_of(w, tool), *function = copy_of(w, given);
    if (w->can->tool_texts && is_missing(function, "description")) set(w, function, "description", json_string_nocheck(""));
    if (w->can->tool_schemas && is_missing(function, "parameters"))
        set(w, function, "parameters", json_pack("{s:s, s:{}}", "type", "object", "properties"));
    set(w, copy, "function", function);
    return copy;
}

json_t *cl_chat_complete_tools(const cl_chat_abilities *can, const json_t *tools, int64_t *n_steps) {
    rewriter w = {.can = can};
    if (!can->tool_texts && !can->tool_schemas) return json_incref((json_t *)tools);
    w.out = json_array();
    w.no_memory = !w.out;
    for (size_t i = 0; !w.no_memory && i < json_array_size(tools); i++)
        w.no_memory |= json_array_append_new(w.out, complete_tool(&w, json_array_get(tools, i))) != 0;
    *n_steps += w.n_steps;
    if (w.no_memory) json_decref(w.out);
    return w.no_memory ? NULL : w.out;
}
