/*
 * Finds the arrangement in which a template takes a chat: it must not refuse the chat, and must not leave out a text of the
 * system, a tool, a result, or the name of a call, nor arguments that are no JSON. To see what is left out, each of these is
 * replaced by a word of its own, and the chat is rendered in one arrangement after the other. The first one in which all words
 * are written is taken, or else the one in which most are. A chat like those that chat_probe.c renders needs no such trial:
 * the template's abilities say how it is written.
 */
#define _GNU_SOURCE /* memmem */
#include <stdlib.h>
#include <string.h>

#include "chat_internal.h"
#include "chunkllama/common/deadline.h"
#include "chunkllama/common/json_doc.h"

/* ---- Words: WORD, the word's index in six digits, an x ---- */

static const char WORD[] = "quxword";
enum { WORD_SIZE = sizeof WORD - 1, N_DIGITS = 6 };

typedef struct trial {
    const cl_chat *chat;
    const cl_chat_template *t;
    cl_chat_input in;                 /* the chat; begin_trial sets messages and tools of its own, with words */
    size_t n_users, n_systems, n_odd; /* messages of the user, of the system, and with odd arguments */
    size_t n_calls;                   /* messages with calls, and results, if the template knows calls */
    bool is_irregular;                /* these have another order than in the sample chats, or text beside a call */
    size_t n_words;
    bool *seen;      /* [n_words] owned; whether the last text has them */
    int64_t n_steps; /* left for all further texts */
    bool no_memory;
} trial;

/* Set a member; `value` is released, and NULL means that memory is lacking. */
static void set(trial *x, json_t *object, const char *key, json_t *value) {
    x->no_memory |= !value || json_object_set_new_nocheck(object, key, value) != 0;
}

static json_t *next_word(trial *x, const char *before) {
    return json_sprintf("%s%s%0*zux", before, WORD, N_DIGITS, x->n_words++);
}

/* Find the words that a text has, and count them. */
static size_t count_words(trial *x, const cl_prompt *text) {
    size_t n = 0;
    const char *at = text->text, *const end = at ? at + text->size : at;
    memset(x->seen, 0, x->n_words * sizeof *x->seen);
    while (at && (at = memmem(at, (size_t)(end - at), WORD, WORD_SIZE)) && end - at > WORD_SIZE + N_DIGITS) {
        char digits[N_DIGITS + 1] = "";
        memcpy(digits, at += WORD_SIZE, N_DIGITS);
        const size_t i = strtoul(digits, NULL, 10);
        if (at[N_DIGITS] != 'x' || i >= x->n_words || x->seen[i]) continue;
        x->seen[i] = true;
        n++;
    }
    return n;
}

/* ---- The chat with words ---- */

/* Whether the arguments of a function that is called are text, since they are no JSON object, but the template needs one. */
static bool is_odd(const trial *x, const json_t *function) {
    return x->t->can.calls && !x->t->can.argument_text && json_is_string(json_object_get(function, "arguments"));
}

static bool has_odd_call(const trial *x, const json_t *message) {
    const json_t *calls = json_object_get(message, "tool_calls");
    for (size_t i = 0; i < json_array_size(calls); i++)
        if (is_odd(x, json_object_get(json_array_get(calls, i), "function"))) return true;
    return false;
}

/* Put words in place of the names and the odd arguments in the calls of a message, which is a copy. */
static void mark_calls(trial *x, json_t *message) {
    json_t *calls = cl_json_copy(json_object_get(message, "tool_calls"));
    for (size_t i = 0; calls && i < json_array_size(calls); i++) {
        const json_t *given = json_array_get(calls, i), *called = json_object_get(given, "function");
        if (!json_is_object(called)) continue;
        json_t *call = cl_json_copy(given), *function = cl_json_copy(called);
        if (is_odd(x, function)) set(x, function, "arguments", next_word(x, "{"));
        set(x, function, "name", next_word(x, ""));
        set(x, call, "function", function);
        x->no_memory |= json_array_set_new(calls, i, call) != 0;
    }
    set(x, message, "tool_calls", calls);
}

static bool is_result(const json_t *message) { return cl_chat_is_role(message, "tool"); }

static size_t count_calls(const json_t *message) { return json_array_size(json_object_get(message, "tool_calls")); }

static void mark_message(trial *x, json_t *messages, const json_t *message) {
    const bool is_word = cl_chat_is_system(message) || is_result(message), has_calls = count_calls(message) > 0;
    json_t *copy = is_word || has_calls ? cl_json_copy(message) : json_incref((json_t *)message);
    x->no_memory |= json_array_append_new(messages, copy) != 0;
    if (x->no_memory) return;
    if (is_word) set(x, copy, "content", next_word(x, ""));
    if (has_calls) mark_calls(x, copy);
}

/* The tools, and one more, whose name is a word. */
static json_t *marked_tools(trial *x, const json_t *tools) {
    json_t *name = next_word(x, ""), *copy = cl_json_copy(tools);
    json_t *tool = json_pack("{s:s, s:{s:o, s:s, s:{s:s, s:{}}}}", "type", "function", "function", "name", name, "description",
                             "It.", "parameters", "type", "object", "properties");
    x->no_memory |= json_array_append_new(copy, tool) != 0;
    return copy;
}

static void begin_trial(trial *x) {
    json_t *messages = json_array();
    x->no_memory = !messages;
    for (size_t i = 0; !x->no_memory && i < json_array_size(x->in.messages); i++)
        mark_message(x, messages, json_array_get(x->in.messages, i));
    x->in.messages = messages;
    x->in.tools = json_array_size(x->in.tools) > 0 ? marked_tools(x, x->in.tools) : NULL;
    x->in.continue_final_message = false;
    x->seen = malloc((x->n_words + 1) * sizeof *x->seen);
    x->no_memory |= !x->seen;
}

static void end_trial(trial *x) {
    json_decref((json_t *)x->in.messages);
    json_decref((json_t *)x->in.tools);
    free(x->seen);
}

/* ---- Arrangements ---- */

/* How many words the template writes in an arrangement of the chat; -1: it refuses the chat. */
static int64_t try_one(trial *x, const cl_chat_arrangement *arrangement) {
    cl_prompt text = {0};
    cl_error ignored;
    int64_t n_steps = x->n_steps;
    const cl_status status = cl_chat_render_as(x->chat, x->t, &x->in, arrangement, &n_steps, &text, &ignored);
    const int64_t n = status == CL_OK ? (int64_t)count_words(x, &text) : -1;
    x->no_memory |= status == CL_ERR_NOMEM;
    x->n_steps -= n_steps;
    cl_prompt_free(&text);
    return n;
}

/* Whether an arrangement can lead to another text than those before it. */
static bool is_sensible(const trial *x, const cl_chat_arrangement *arrangement) {
    const cl_chat_abilities *can = &x->t->can;
    const bool has_tools = json_array_size(x->in.tools) > 0, describes = arrangement->tools == CL_TOOLS_DESCRIBED;
    if (!describes && has_tools && !can->tools) return false;
    if (arrangement->tools != CL_TOOLS_GIVEN && !has_tools) return false;
    if (arrangement->tools == CL_TOOLS_BESIDE_SYSTEM && x->n_systems > 0) return false;
    if (arrangement->calls == CL_CALLS_ODD_AS_OBJECT && x->n_odd == 0) return false;
    if (arrangement->calls == CL_CALLS_DESCRIBED && x->n_calls == 0) return false;
    return arrangement->systems == CL_SYSTEMS_AS_THEY_ARE || x->n_systems > 0 || describes;
}

/* Set *arrangement to the first one in which all words are written, or else to the one in which most are. */
static void try_all(trial *x, cl_chat_arrangement *arrangement) {
    enum {
        N_SYSTEMS = CL_SYSTEMS_FIRST_TO_USER + 1,
        N_CALLS = CL_CALLS_DESCRIBED + 1,
        N_TOOLS = CL_TOOLS_DESCRIBED + 1,
        N_ARRANGEMENTS = N_TOOLS * N_CALLS * N_SYSTEMS
    };
    int64_t most = -1;
    for (int i = 0; i < N_ARRANGEMENTS && most < (int64_t)x->n_words; i++) {
        if (x->n_steps <= 0 || x->no_memory || cl_deadline_passed()) return;
        const cl_chat_arrangement next = {.systems = (cl_chat_systems)(i % N_SYSTEMS),
                                          .calls = (cl_chat_calls)(i / N_SYSTEMS % N_CALLS),
                                          .tools = (cl_chat_tools)(i / N_SYSTEMS / N_CALLS)};
        const int64_t n = is_sensible(x, &next) ? try_one(x, &next) : -1;
        if (n > most) *arrangement = next;
        if (n > most) most = n;
    }
}

/*
 * Whether the sample chats have shown how the template writes this one. It has a message of the user; at most one of the
 * system, which comes first; tools, if the template has written them in such a chat, or takes none; no variables that may
 * change how these are written; and calls in the usual form and order.
 */
static bool is_known(const trial *x) {
    const cl_chat_abilities *can = &x->t->can;
    const bool has_tools = json_array_size(x->in.tools) > 0;
    const char *first = json_string_value(json_object_get(json_array_get(x->in.messages, 0), "role"));
    const bool begins = x->n_systems == 1 && first && strcmp(first, "system") == 0;
    if (x->n_users == 0 || x->n_odd > 0 || x->is_irregular || (x->n_systems > 0 && !begins)) return false;
    if (json_object_size(x->in.kwargs) > 0) return x->n_systems == 0 && !has_tools;
    return !has_tools || !can->tools || (x->n_systems > 0 ? can->tools_system : can->tools_alone);
}

/* Whether a message has a call that the template may lose, since text stands beside it. */
static bool has_call_beside_text(const trial *x, const json_t *message) {
    return x->t->can.calls_alone && count_calls(message) > 0 && cl_chat_has_text(json_object_get(message, "content"));
}

static void count(trial *x) {
    const json_t *before = NULL;
    int64_t n_open = 0; /* calls whose results have not come */
    for (size_t i = 0; i < json_array_size(x->in.messages); i++) {
        const json_t *message = json_array_get(x->in.messages, i);
        const bool follows = is_result(before) && cl_chat_is_role(message, "user");
        x->n_users += cl_chat_is_role(message, "user");
        x->n_systems += cl_chat_is_system(message);
        x->n_odd += has_odd_call(x, message);
        x->n_calls += x->t->can.calls && (count_calls(message) > 0 || is_result(message));
        x->is_irregular |= is_result(message) ? n_open-- <= 0 : n_open > 0 || follows || has_call_beside_text(x, message);
        if (!is_result(message)) n_open = (int64_t)count_calls(message);
        before = message;
    }
    x->is_irregular = x->t->can.calls && (x->is_irregular || n_open > 0);
}

cl_status cl_chat_arrange(const cl_chat *chat, const cl_chat_template *t, const cl_chat_input *in,
                          cl_chat_arrangement *arrangement, cl_error *error) {
    cl_jinja_options options;
    cl_jinja_options_init(&options);
    trial x = {.chat = chat, .t = t, .in = *in, .n_steps = options.max_steps};
    *arrangement = (cl_chat_arrangement){.systems = t->can.system ? CL_SYSTEMS_AS_THEY_ARE : CL_SYSTEMS_ALL_TO_USER,
                                         .tools = t->can.tools ? CL_TOOLS_GIVEN : CL_TOOLS_DESCRIBED};
    count(&x);
    if (is_known(&x)) return CL_OK;
    begin_trial(&x);
    if (!x.no_memory) try_all(&x, arrangement);
    end_trial(&x);
    return x.no_memory ? cl_fail(error, CL_ERR_NOMEM, "no memory for the text of a chat") : CL_OK;
}
