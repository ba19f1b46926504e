/* Chats that are rewritten for their template: what it refuses or leaves out reaches the model in another form. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/chat/chat_internal.h"
#include "chunkllama/common/deadline.h"
#include "small_chat.h"

/* ---- Messages of the system, wherever they stand ---- */

#define LATE      "{'role': 'system', 'content': 'Late'}"
#define DEVELOPER "{'role': 'developer', 'content': 'Dev'}"
#define GO        "{'role': 'user', 'content': 'go'}"
#define EACH      "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
#define FIRST_ONLY                                                                                                             \
    "{% for m in messages %}{% if m.role == 'user' and '\\n' in m.content %}{{ raise_exception('lines') }}{% endif %}"         \
    "{% if m.role != 'system' or loop.first %}[{{ m.role }}:{{ m.content }}]{% endif %}{% endfor %}"
#define LATE_REFUSED                                                                                                           \
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('late') }}{% endif %}"            \
    "[{{ m.role }}:{{ m.content }}]{% endfor %}"
#define ONE_TOOL        "{'type': 'function', 'function': {'name': 'f', 'description': 'd', 'parameters': {}}}"
#define WITH_TOOL(list) "{'tools': [" ONE_TOOL "], 'messages': [" list "]}"

/* They stay where the template takes them; otherwise they become the user's, at their places, or all are the first message. */
static void systems_are_merged_for_the_template(void **state) {
    (void)state;
    small_vocab v = vocab_with(NULL, inst_special);
    expect(&v, "mistral", CHAT(SYSTEM ", " USER ", " LATE ", " GO), "<s>[INST] Sys\n\n one \n\nLate\n\ngo [/INST]", 3);
    expect(&v, "mistral", CHAT(USER ", " LATE ", " ASSISTANT ", " GO),
           "<s>[INST]  one \n\nLate [/INST]two </s>[INST] go [/INST]", 6);
    expect(&v, "mistral", CHAT(SYSTEM ", " USER ", " ASSISTANT ", " LATE),
           "<s>[INST] Sys\n\n one  [/INST]two </s>[INST] Late [/INST]", 6);
    expect(&v, "mistral", CHAT(SYSTEM ", " DEVELOPER ", " GO), "<s>[INST] Sys\n\nDev\n\ngo [/INST]", 3);
    static const struct {
        const char *template, *chat, *prompt;
    } cases[] = {
        {EACH, CHAT(SYSTEM ", " GO ", " LATE ", " GO), "[system:Sys][user:go][system:Late][user:go]"},
        /* only the last one is written */
        {"{% set s = namespace(text='') %}{% for m in messages if m.role == 'system' %}{% set s.text = m.content %}{% endfor "
         "%}<{{ s.text "
         "}}>{% for m in messages if m.role != 'system' %}[{{ m.role }}:{{ m.content }}]{% endfor %}",
         CHAT(SYSTEM ", " GO ", " LATE ", " GO), "<Sys>[user:go\n\nLate\n\ngo]"},
        /* only the first one is written, and messages of the user may have one line */
        {FIRST_ONLY, CHAT(SYSTEM ", " GO ", " LATE ", " ASSISTANT ", " DEVELOPER),
         "[system:Sys\n\nLate\n\nDev][user:go][assistant:two ]"},
        {FIRST_ONLY, CHAT(GO ", " LATE ", " ASSISTANT), "[system:Late][user:go][assistant:two ]"},
        /* a developer is the system where the template writes no such role, whatever its text says */
        {"{# developer #}{% for m in messages if m.role in ['system', 'user'] %}[{{ m.role }}:{{ m.content }}]{% endfor %}",
         CHAT(DEVELOPER ", " GO), "[system:Dev][user:go]"},
        /* none without tools */
        {"{% for m in messages if m.role != 'system' %}{% if tools and loop.first %}<{{ messages[0].content }}{{ tools|tojson "
         "}}>{% endif "
         "%}[{{ m.role }}:{{ m.content }}]{% endfor %}",
         CHAT(SYSTEM ", " GO), "[user:Sys\n\ngo]"},
        {"{% if messages[0].role == 'system' %}{{ messages[0].content }}{{ tools|tojson if tools }}{% endif %}{% for m in "
         "messages if m.role "
         "!= 'system' %}[{{ m.role }}:{{ m.content }}]{% endfor %}",
         WITH_TOOL(GO),
         "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"d\", \"parameters\": {}}}][user:go]"},
        /* a variable of the request decides */
        {"{% for m in messages if not (hide and m.role == 'system') %}[{{ m.role }}:{{ m.content }}]{% endfor %}",
         "{'kwargs': {'hide': true}, 'messages': [" SYSTEM ", " GO "]}", "[user:Sys\n\ngo]"},
        {"{% for m in messages if not (hide and m.role == 'system') %}[{{ m.role }}:{{ m.content }}]{% endfor %}",
         "{'kwargs': {'hide': false}, 'messages': [" SYSTEM ", " GO "]}", "[system:Sys][user:go]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        v.chat_template = cases[i].template;
        expect(&v, NULL, cases[i].chat, cases[i].prompt, 0);
    }
    for (size_t i = 0; i < 2; i++) { /* runs of them */
        v.chat_template = i ? FIRST_ONLY : LATE_REFUSED;
        expect(&v, NULL, CHAT(GO ", " LATE ", " SYSTEM ", " GO ", " ASSISTANT ", " LATE),
               i ? "[system:Late\n\nSys\n\nLate][user:go][user:go][assistant:two ]"
                 : "[user:go\n\nLate\n\nSys\n\ngo][assistant:two ][user:Late]",
               0);
    }
    v.chat_template = "{{ raise_exception('never') }}"; /* if nothing helps, the template's own words */
    expect_refusal(&v, NULL, CHAT(GO ", " LATE), "never");
}

#define NO_FIRST                                                                                                               \
    "{% set rest = messages[1:] if messages[0].role == 'system' else messages %}{% for m in rest %}[{{ m.role }}:"             \
    "{{ messages[0].content + '|' if loop.first and messages[0].role == 'system' }}{{ m.content }}]{% endfor %}"
#define ASKED                                                                                                                  \
    "{% if not messages | selectattr('role', 'equalto', 'user') | list %}{{ raise_exception('no user') }}{% endif %}" EACH
#define TOLD                                                                                                                   \
    "{% for m in messages %}[{{ m.role }}:{{ m.content }}{% for t in tools or [] if m.role == 'user' %}{{ t.function.name }}"  \
    "{% endfor %}]{% endfor %}"

/* A template may write the system's text, or tools, only beside a message of the user: without one, the text is the user's. */
static void systems_alone_are_written(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        {NO_FIRST, CHAT(SYSTEM), "[user:Sys]"},
        {NO_FIRST, CHAT(SYSTEM ", " ASSISTANT), "[assistant:Sys|two ]"},
        {ASKED, CHAT(SYSTEM), "[user:Sys]"},
        {ASKED, CHAT(SYSTEM ", " ASSISTANT), "[user:Sys][assistant:two ]"},
        {ASKED, "{'kwargs': {'x': 1}, 'messages': [" DEVELOPER "]}", "[user:Dev]"},
        {TOLD, WITH_TOOL(SYSTEM), "[user:Sysf]"},
        {TOLD, WITH_TOOL(SYSTEM ", " GO), "[system:Sys][user:gof]"},
        {EACH, CHAT(SYSTEM), "[system:Sys]"},
        {EACH, CHAT(ASSISTANT), "[assistant:two ]"},
    };
    small_vocab v = vocab_with(NULL, inst_special);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        v.chat_template = cases[i][0];
        expect(&v, NULL, cases[i][1], cases[i][2], 0);
    }
    static const char *const losing[] = {"gemma3", "llama2", "mistral_v3", "mixtral", "qwen3_5_think", "llama3_1", "llama3_2"};
    for (size_t i = 0; i < 2 * (sizeof losing / sizeof *losing); i++) {
        static char text[1 << 16];
        char *template = published(losing[i / 2]);
        int n_special;
        cl_error error = {.message = ""};
        v.chat_template = template;
        opened o = open_chat(&v, NULL);
        if (render(o.chat, o.tok, i % 2 ? WITH_TOOL(SYSTEM) : CHAT(SYSTEM), text, sizeof text, &n_special, &error) != CL_OK)
            fail_msg("%s: %s", losing[i / 2], error.message);
        if (!strstr(text, "Sys") || (i % 2 && !strstr(text, "\"name\": \"f\""))) fail_msg("%s: %s", losing[i / 2], text);
        close_chat(&o);
        free(template);
    }
}

#define CALLS_BY(arguments)                                                                                                    \
    "{% for m in messages %}[{{ m.role }}:{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ c.function.name "           \
    "}}=" arguments "{% endfor %}]{% endfor %}{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"
#define CALL_OF(arguments)                                                                                                     \
    GO ", {'role': 'assistant', 'content': null, 'tool_calls': [{'id': 'a', 'type': 'function', 'function': {'name': 'f', "    \
       "'arguments': " arguments "}}]}, {'role': 'tool', 'tool_call_id': 'a', 'content': 'no'}"
#define ODD_CALL   CALL_OF("'{cut'")
#define WHOLE_CALL CALL_OF("{'a': 1}")

/* Arguments that are no object are written as text, or, where the template needs an object, in one. */
static void odd_calls_are_written(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {CALLS_BY("{{ c.function.arguments | tojson }}"), "[user:go][assistant:f=\"{cut\"][tool:no]"},
        {CALLS_BY("{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}"),
         "[user:go][assistant:f={cut][tool:no]"},
        {CALLS_BY("{% for k, v in c.function.arguments.items() %}{{ k }}:{{ v }}{% endfor %}"),
         "[user:go][assistant:f=arguments:{cut][tool:no]"},
        {CALLS_BY("{% for k, v in c.function.arguments | items %}{{ k }}:{{ v }}{% endfor %}"),
         "[user:go][assistant:f=arguments:{cut][tool:no]"},
        {EACH,
         "[user:go][assistant:<tool_call>\n{\"name\": \"f\", \"arguments\": {cut}\n</tool_call>][user:<tool_response>\nno\n"
         "</tool_response>]"},
    };
    small_vocab v = vocab_with(NULL, inst);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        v.chat_template = cases[i][0];
        expect(&v, NULL, CHAT(ODD_CALL), cases[i][1], 0);
    }
    /* The template, like Mistral's, takes no message of the user behind a result: then the call and the result are text. */
    v.chat_template =
        "{% for m in messages %}{% if m.role == 'user' and not loop.first and messages[loop.index0 - 1].role == 'tool' %}"
        "{{ raise_exception('order') }}{% endif %}[{{ m.role }}:{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
        "{{ c.function.name }}={{ c.function.arguments | tojson }}{% endfor %}]{% endfor %}";
    expect(&v, NULL, CHAT(ODD_CALL), "[user:go][assistant:f=\"{cut\"][tool:no]", 0);
    for (size_t i = 0; i < 2; i++)
        expect(&v, NULL, i ? CHAT(ODD_CALL ", " GO) : CHAT(WHOLE_CALL ", " GO),
               i ? "[user:go][assistant:<tool_call>\n{\"name\": \"f\", \"arguments\": "
                   "{cut}\n</tool_call>][user:<tool_response>\nno\n"
                   "</tool_response>\n\ngo]"
                 : "[user:go][assistant:<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "
                   "1}}\n</tool_call>][user:<tool_response>\n"
                   "no\n</tool_response>\n\ngo]",
               0);
    v.chat_template = EACH; /* a result that the template cannot write is the user's, with what the user writes next */
    expect(&v, NULL, CHAT(ODD_CALL ", " GO ", " GO),
           "[user:go][assistant:<tool_call>\n{\"name\": \"f\", \"arguments\": {cut}\n</tool_call>][user:<tool_response>\nno\n"
           "</tool_response>\n\ngo][user:go]",
           0);
}

#define ONE_CALL     "{'role': 'assistant', 'content': null, 'tool_calls': [" F_CALL("a") "]}"
#define TOLD_CALL    "{'role': 'assistant', 'content': 'Look.', 'tool_calls': [" F_CALL("a") "]}"
#define EMPTY_CALL   "{'role': 'assistant', 'content': '', 'tool_calls': [" F_CALL("a") "]}"
#define BOTH_CALLS   "{'role': 'assistant', 'content': null, 'tool_calls': [" F_CALL("a") ", " F_CALL("b") "]}"
#define F_CALL(id)   "{'id': '" id "', 'type': 'function', 'function': {'name': 'call_" id "', 'arguments': {'x': 'arg_" id "'}}}"
#define F_RESULT(id) "{'role': 'tool', 'tool_call_id': '" id "', 'name': 'call_" id "', 'content': 'result_" id "'}"

/* Calls and results that do not follow each other as usual, of an agent that was interrupted or a history that was cut. */
static void irregular_calls_are_written(void **state) {
    (void)state;
    static const struct {
        const char *chat, *parts[6];
    } cases[] = {
        {CHAT(USER ", " EMPTY_CALL ", " F_RESULT("a") ", " GO), {"call_a", "arg_a", "result_a", "go"}},
        {CHAT(USER ", " TOLD_CALL ", " F_RESULT("a") ", " ASSISTANT ", " GO), {"call_a", "arg_a", "result_a", "two", "go"}},
        {CHAT(USER ", " ONE_CALL ", " GO), {"call_a", "arg_a", "go"}},
        {CHAT(USER ", " TOLD_CALL ", " GO), {"call_a", "arg_a", "go"}},
        {CHAT(USER ", " BOTH_CALLS ", " F_RESULT("a") ", " GO), {"call_a", "call_b", "arg_b", "result_a", "go"}},
        {CHAT(USER ", " BOTH_CALLS ", " F_RESULT("a") ", " F_RESULT("b")),
         {"call_a", "call_b", "arg_b", "result_a", "result_b"}},
        {CHAT(USER ", " F_RESULT("a") ", " ASSISTANT ", " GO), {"one", "result_a", "two", "go"}},
        {CHAT(USER ", " F_RESULT("a") ", " GO), {"one", "result_a", "go"}},
        {CHAT(F_RESULT("a") ", " GO), {"result_a", "go"}},
        {CHAT(USER ", " ONE_CALL ", " F_RESULT("a") ", " F_RESULT("b") ", " ASSISTANT ", " GO),
         {"call_a", "result_a", "result_b"}},
    };
    static const char *const names[] = {"cohere2",       "deepseek_r1_distill",
                                        "deepseekv3",    "gemma3",
                                        "gemma4_v5",     "glm4moe",
                                        "gptoss",        "granite3",
                                        "lfm2_v2",       "llama2",
                                        "llama3_1",      "llama3_2",
                                        "mistral_v3",    "mixtral",
                                        "muse_glimmer",  "nemotron_3_nano",
                                        "phi4_mini",     "qwen2_5",
                                        "qwen3_5_think", "smollm3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *template = published(names[i]);
        const small_vocab v = vocab_with(template, inst);
        opened o = open_chat(&v, NULL);
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
            static char text[1 << 16];
            int n_special;
            cl_error error = {.message = ""};
            if (render(o.chat, o.tok, cases[k].chat, text, sizeof text, &n_special, &error) != CL_OK)
                fail_msg("%s, %s: %s", names[i], cases[k].chat, error.message);
            for (size_t part = 0; part < 6 && cases[k].parts[part]; part++)
                if (!strstr(text, cases[k].parts[part])) fail_msg("%s, %s: %s", names[i], cases[k].parts[part], text);
        }
        close_chat(&o);
        free(template);
    }
    small_vocab v = vocab_with(EACH, inst); /* results without a call join the messages of the user beside them */
    expect(&v, NULL, CHAT(GO ", " F_RESULT("a") ", " GO), "[user:go\n\n<tool_response>\nresult_a\n</tool_response>\n\ngo]", 0);
    expect(&v, NULL, CHAT(GO ", " F_RESULT("a") ", " ASSISTANT),
           "[user:go\n\n<tool_response>\nresult_a\n</tool_response>][assistant:two ]", 0);
}

/* The time of a request ends its template, and is no refusal of the template's. */
static void the_deadline_counts(void **state) {
    (void)state;
    static const cl_deadline passed = {.limit_s = 3};
    char text[64];
    int n_special;
    cl_error error;
    small_vocab v = vocab_with(EACH, inst);
    opened o = open_chat(&v, NULL);
    cl_deadline_set(&passed);
    assert_int_equal(render(o.chat, o.tok, CHAT(GO ", " LATE), text, sizeof text, &n_special, &error), CL_ERR_LIMIT);
    cl_deadline_set(NULL);
    assert_null(strstr(error.message, "refuses"));
    close_chat(&o);
}

/* The allocations of jansson while a chat with a late message of the system is written, which takes several trials. */
static size_t n_allocations;
static void *count_allocation(size_t size) {
    n_allocations++;
    return malloc(size);
}

static cl_status render_late(const opened *o, const cl_deadline *deadline, size_t *n) {
    static const cl_chat_message messages[] = {{"user", "a", 1}, {"system", "b", 1}};
    json_malloc_t old_malloc;
    json_free_t old_free;
    cl_token_list ids = {0};
    json_get_alloc_funcs(&old_malloc, &old_free);
    json_set_alloc_funcs(count_allocation, free);
    n_allocations = 0;
    cl_deadline_set(deadline);
    const cl_status status = cl_chat_tokenize_messages(o->chat, messages, 2, NULL, &ids, NULL);
    cl_deadline_set(NULL);
    json_set_alloc_funcs(old_malloc, old_free);
    *n = n_allocations;
    cl_token_list_free(&ids);
    return status;
}

/* It also ends the trials, of which there are none then, and needs no place for its message. */
static void the_deadline_ends_trials(void **state) {
    (void)state;
    static const cl_deadline passed = {.limit_s = 3};
    size_t n, n_late;
    small_vocab v = vocab_with(LATE_REFUSED, inst);
    opened o = open_chat(&v, NULL);
    assert_int_equal(render_late(&o, NULL, &n), CL_OK);
    assert_int_equal(render_late(&o, &passed, &n_late), CL_ERR_LIMIT);
    assert_true(n_late < n);
    close_chat(&o);
}

/* The steps of a chat that is written by an arrangement. */
static int64_t steps_of(const opened *o, cl_chat_arrangement arrangement, json_t *messages, json_t *tools) {
    cl_chat_input in;
    cl_prompt text = {0};
    cl_error error;
    int64_t n_steps = 1 << 20;
    cl_chat_input_init(&in);
    in.messages = messages;
    in.tools = tools;
    assert_int_equal(
        cl_chat_render_as(o->chat, cl_chat_template_for(o->chat, true), &in, &arrangement, &n_steps, &text, &error), CL_OK);
    cl_prompt_free(&text);
    return n_steps;
}

/* What rewriting writes and copies counts as steps, of which all trials together may take as many as one text. */
static void rewriting_is_counted(void **state) {
    (void)state;
    enum { SIZE = 80000, N_CALLS = 100 };
    small_vocab v = vocab_with("{% for m in messages[:1] %}{{ m.role }}{% endfor %}", inst);
    opened o = open_chat(&v, NULL);
    char *text = calloc(1, SIZE + 1);
    memset(text, 'a', SIZE);
    json_t *messages = json_pack("[{ssss}]", "role", "user", "content", "a"), *calls = json_array();
    json_t *none = json_array(), *tools = json_pack("[{ss}]", "description", text);
    const cl_chat_arrangement given = {0}, described = {.tools = CL_TOOLS_DESCRIBED}, odd = {.calls = CL_CALLS_ODD_AS_OBJECT};
    assert_true(steps_of(&o, described, messages, tools) > steps_of(&o, given, messages, none) + SIZE / 10);
    for (int i = 0; i < N_CALLS; i++)
        json_array_append_new(calls, json_pack("{s{sss{}}}", "function", "name", "f", "arguments"));
    json_array_append_new(messages, json_pack("{sssnso}", "role", "assistant", "content", "tool_calls", calls));
    assert_true(steps_of(&o, odd, messages, none) > steps_of(&o, given, messages, none) + 30 * N_CALLS);
    json_decref(messages);
    json_decref(none);
    json_decref(tools);
    free(text);
    close_chat(&o);
}

/* Results without a call, between messages of the user, are joined to these; a text is copied once, however many follow. */
static void joining_takes_linear_time(void **state) {
    (void)state;
    enum { N = 500 };
    static const char plain[] = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content|length }}{% endif %}{% endfor %}";
    small_vocab v = vocab_with(plain, inst);
    opened o = open_chat(&v, NULL);
    const cl_chat_arrangement described = {.calls = CL_CALLS_DESCRIBED};
    json_t *messages = json_array(), *none = json_array();
    int64_t steps[2] = {0};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < N; i++) {
            json_array_append_new(messages, json_pack("{ssss}", "role", "user", "content", "a"));
            json_array_append_new(messages, json_pack("{ssssss}", "role", "tool", "tool_call_id", "b", "content", "c"));
        }
        steps[k] = steps_of(&o, described, messages, none);
    }
    assert_true(steps[1] < 3 * steps[0]);
    json_decref(messages);
    json_decref(none);
    close_chat(&o);
}

#define REASONED                                                                                                               \
    CHAT("{'role': 'assistant', 'content': 'look', 'reasoning_content': 'hm', 'tool_calls': [{'id': 'a', 'type': 'function', " \
         "'function': {'name': 'f', 'arguments': {}}}]}")

/* A template that reads `thinking` gets the reasoning there, and with it the content that it refuses or loses beside it. */
static void reasoning_is_thinking_elsewhere(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"{% if m.thinking and m.content %}{{ raise_exception('both') }}{% endif %}[{{ m.content }}|{{ m.thinking }}]",
         "[|hm\n\nlook]"},
        {"[{{ m.thinking or m.content }}]", "[hm\n\nlook]"},
        {"[{{ m.content }}|{{ m.thinking }}]", "[look|hm]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char template[1024];
        snprintf(template, sizeof template,
                 "{%% for m in messages %%}%s{%% for c in m.tool_calls or [] %%}{{ c.function.name }}{{ c.function.arguments | "
                 "tojson }}{%% endfor %%}{%% endfor %%}{%% for t in tools or [] %%}{{ t.function.name }}{%% endfor %%}",
                 cases[i][0]);
        char prompt[64];
        snprintf(prompt, sizeof prompt, "%sf{}", cases[i][1]);
        const small_vocab v = vocab_with(template, inst);
        expect(&v, NULL, REASONED, prompt, 0);
    }
}

/* ---- What a template does not write ---- */

#define TOOLS     "'tools': [{'type': 'function', 'function': {'name': 'f', 'parameters': {'a': 0.1}}}]"
#define RESULT(i) "{'role': 'tool', 'tool_call_id': 'call_" i "', 'content': 'r" i "'}"
#define DESCRIBED                                                                                                              \
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function "          \
    "signatures within <tools></tools> XML tags:\n<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"f\", "          \
    "\"parameters\": {\"a\": 0.1}}}\n</tools>\n\nFor each function call, return a json object with function name and "         \
    "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "             \
    "<args-json-object>}\n</tool_call>"

/* Where a template ignores tools, calls and results are text in the form that Hermes and Qwen models know. */
static void tools_are_described(void **state) {
    (void)state;
    small_vocab v = vocab_with(PLAIN, bars);
    expect(&v, NULL, "{'messages': [" USER "], " TOOLS "}", "<|system|>" DESCRIBED "<|end|><|user|> one <|end|><|assistant|>",
           4);
    expect(&v, NULL, "{'messages': [" SYSTEM ", " USER "], " TOOLS "}",
           "<|system|>Sys\n\n" DESCRIBED "<|end|><|user|> one <|end|><|assistant|>", 4);
    expect(&v, NULL, CHAT(USER ", " CALLS ", " RESULT("1") ", " RESULT("2")),
           "<|user|> one <|end|><|assistant|><tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
           "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 2}}\n</tool_call><|end|><|user|><tool_response>\nr1\n"
           "</tool_response>\n<tool_response>\nr2\n</tool_response><|end|><|assistant|>",
           7);
    /* Text of arguments stays as the model wrote it. */
    expect(&v, NULL,
           CHAT(USER ", {'role': 'assistant', 'content': 'Well.', 'tool_calls': [{'function': {'name': 'f', 'arguments': "
                     "'{ }'}}]}"),
           "<|user|> one <|end|><|assistant|>Well.\n<tool_call>\n{\"name\": \"f\", \"arguments\": { }}\n</tool_call><|end|>"
           "<|assistant|>",
           5);
    opened o = open_chat(&v, NULL);
    assert_true(!cl_chat_has_tools(o.chat) && cl_chat_takes_argument_text(o.chat, true));
    close_chat(&o);
}

/* A tool may lack a description and parameters; where the template cannot do without, they are empty. */
static void tools_are_completed(void **state) {
    (void)state;
#define BARE                                                                                                                   \
    "{'tools': [{'type': 'function', 'function': {'name': 'bare_tool', 'description': null}}, " ONE_TOOL "], 'messages': [" GO \
    "]}"
    static const char *const cases[][2] = {
        {"{% for t in tools or [] %}({{ t.function.name + ':' + t.function.description }}{{ t.function.parameters.items() | "
         "list "
         "| length }}){% endfor %}" EACH,
         "(bare_tool:2)(f:d0)[user:go]"},
        {"{% for t in tools or [] %}({{ t.function.name }}{{ t.function.parameters.items() | list | length }}){% endfor "
         "%}" EACH,
         "(bare_tool2)(f0)[user:go]"},
        {"{% for t in tools or [] %}{{ t.function | tojson }}{% endfor %}" EACH,
         "{\"name\": \"bare_tool\", \"description\": null}{\"name\": \"f\", \"description\": \"d\", \"parameters\": {}}"
         "[user:go]"},
        {"{% for t in tools %}{{ t.function.name + t.function.description }}{% endfor %}" EACH, /* never without tools */
         "bare_toolfd[user:go]"},
    };
    small_vocab v = vocab_with(NULL, inst);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        v.chat_template = cases[i][0];
        expect(&v, NULL, BARE, cases[i][1], 0);
    }
    static const char *const names[] = {"gptoss",          "gptoss_training", "hermes",       "muse_glimmer",
                                        "gemma4_v5",       "lfm2_v2",         "llama3_1",     "mistral_v3",
                                        "nemotron_3_nano", "qwen2_5",         "qwen3_5_think"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        static char text[1 << 16];
        char *template = published(names[i]);
        int n_special;
        cl_error error = {.message = ""};
        v.chat_template = template;
        opened o = open_chat(&v, NULL);
        if (render(o.chat, o.tok, BARE, text, sizeof text, &n_special, &error) != CL_OK)
            fail_msg("%s: %s", names[i], error.message);
        if (!strstr(text, "bare_tool")) fail_msg("%s: %s", names[i], text);
        close_chat(&o);
        free(template);
    }
}

/* Templates in which user and assistant alternate, and which have no system message, take tools as well. */
static void tools_are_described_in_turns(void **state) {
    (void)state;
    small_vocab v = vocab_with("{% for m in messages %}{% if m.role != ['user', 'assistant'][loop.index0 % 2] %}{{ "
                               "raise_exception('out of turn') }}{% endif %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}"
                               "{% endfor %}",
                               bars);
    expect(&v, NULL, "{'messages': [" SYSTEM ", " USER ", " CALLS ", " RESULT("1") ", " RESULT("2") "], " TOOLS "}",
           "<|user|>Sys\n\n" DESCRIBED
           "\n\n one <|end|><|assistant|><tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n"
           "</tool_call>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 2}}\n</tool_call><|end|><|user|>"
           "<tool_response>\nr1\n</tool_response>\n<tool_response>\nr2\n</tool_response><|end|>",
           6);
    expect(&v, NULL, CHAT(SYSTEM), "<|user|>Sys<|end|>", 2);
    expect_refusal(&v, NULL, CHAT(USER ", " USER), "out of turn");
}

static void a_template_that_writes_calls_gets_them(void **state) {
    (void)state;
    small_vocab v = vocab_with(WITH_CALLS("c.function.arguments | tojson", "{{ m.content }}"), bars);
    const char *talk = "{'messages': [" USER ", " CALLS ", " RESULT("1") "], " TOOLS "}";
    expect(&v, NULL, talk,
           "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"a\": 0.1}}}]<|user|> one "
           "<|assistant|>call_1f{\"a\": 1}call_2f{\"a\": 2}<|tool|>call_1r1",
           3);
    opened o = open_chat(&v, NULL);
    assert_true(cl_chat_has_tools(o.chat) && !cl_chat_takes_argument_text(o.chat, true));
    close_chat(&o);
    v.chat_template = WITH_CALLS("c.function.arguments | tojson", "{{ 'null' if m.content is none }}");
    expect(&v, NULL, CHAT(USER ", " CALLS), "<|user|> one <|assistant|>nullcall_1f{\"a\": 1}nullcall_2f{\"a\": 2}", 2);
    v.chat_template = WITH_CALLS("'```' + c.function.arguments", ""); /* text, as in DeepSeek's */
    expect(&v, NULL,
           CHAT(USER ", {'role': 'assistant', 'tool_calls': [{'id': 'x', 'function': {'name': 'f', 'arguments': '{ }'}}]}"),
           "<|user|> one <|assistant|>xf```{ }", 2);
    expect(&v, NULL, CHAT(USER ", " CALLS), "<|user|> one <|assistant|>call_1f```{\"a\": 1}call_2f```{\"a\": 2}", 2);
    o = open_chat(&v, NULL);
    assert_true(cl_chat_takes_argument_text(o.chat, true));
    close_chat(&o);
}

/* Mistral's templates refuse ids of another length. */
static void ids_are_shortened(void **state) {
    (void)state;
    small_vocab v = vocab_with(
        WITH_CALLS("c.function.arguments | tojson", "{% if c.id | length != 9 %}{{ raise_exception('length 9!') }}{% endif %}"),
        bars);
    static char text[4096];
    char first[10], second[10];
    int n_special;
    cl_error error = {.message = ""};
    opened o = open_chat(&v, NULL);
    if (render(o.chat, o.tok, CHAT(USER ", " CALLS ", " RESULT("1") ", " RESULT("2")), text, sizeof text, &n_special, &error) !=
        CL_OK)
        fail_msg("%s", error.message);
    const int n = sscanf(text, "<|user|> one <|assistant|>%9[a-zA-Z0-9]f{\"a\": 1}%9[a-zA-Z0-9]f{\"a\": 2}", first, second);
    assert_int_equal(n, 2);
    assert_string_not_equal(first, second);
    char results[80];
    snprintf(results, sizeof results, "<|tool|>%sr1<|tool|>%sr2", first, second);
    assert_string_equal(strstr(text, "<|tool|>"), results);
    close_chat(&o);
    expect(&v, NULL, CHAT(USER ", {'role': 'tool', 'tool_call_id': 'abc456XYZ', 'content': 'r'}"),
           "<|user|> one <|tool|>abc456XYZr", 2);
}

/* Kimi's templates write the ids of calls, in which the names are. */
static void ids_have_names(void **state) {
    (void)state;
    small_vocab v =
        vocab_with("{% for m in messages %}<|{{ m.name or m.role }}|>{% if m.role == 'tool' %}{{ m.tool_call_id }} {% endif %}"
                   "{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ c.id }} {{ c.function.arguments | tojson }}"
                   "{% endfor %}{% endfor %}",
                   bars);
    expect(&v, NULL, CHAT(USER ", " CALLS ", " RESULT("2") ", " RESULT("1")),
           "<|user|> one <|assistant|>functions.f:0 {\"a\": 1}functions.f:1 {\"a\": 2}<|tool|>functions.f:1 r2"
           "<|tool|>functions.f:0 r1",
           4);
}

/* Llama 3.1's template refuses several calls in one message: each gets a message, followed by its result. */
static void several_calls_come_one_by_one(void **state) {
    (void)state;
    small_vocab v = vocab_with(WITH_CALLS("c.function.arguments | tojson",
                                          "{% if m.tool_calls | length > 1 %}{{ raise_exception('one!') }}{% endif %}"
                                          "{{ m.content or '' }}{{ m.reasoning_content or '' }}"),
                               bars);
    expect(&v, NULL,
           CHAT(USER ", {'role': 'assistant', 'content': 'c', 'reasoning_content': 'r', 'tool_calls': [" CALL("1") ", " CALL(
               "2") "]}, " RESULT("3") ", " RESULT("2") ", " RESULT("1") ", " ASSISTANT),
           "<|user|> one <|assistant|>crcall_1f{\"a\": 1}<|tool|>call_1r1<|assistant|>call_2f{\"a\": 2}<|tool|>call_2r2<|tool|>"
           "call_3r3<|assistant|>two ",
           7);
}

static size_t n_left; /* allocations of jansson until one fails */
static bool has_failed;
static void *fail_once(size_t size) {
    has_failed |= n_left == 0;
    return n_left-- == 0 ? NULL : malloc(size);
}

/* Write the chat with the n-th allocation of jansson failing. */
static cl_status render_without_memory(const opened *o, const cl_chat_input *in, size_t n) {
    json_malloc_t old_malloc;
    json_free_t old_free;
    cl_prompt text = {0};
    json_get_alloc_funcs(&old_malloc, &old_free);
    n_left = n;
    has_failed = false;
    json_set_alloc_funcs(fail_once, free);
    const cl_status status = cl_chat_render(o->chat, in, &text, NULL);
    json_set_alloc_funcs(old_malloc, old_free);
    cl_prompt_free(&text);
    return status;
}

#define NINE(x) x ", " x ", " x ", " x ", " x ", " x ", " x ", " x ", " x /* more than an array of jansson has at first */
#define A_PART  "{'type': 'text', 'text': 'a'}"

/* Chats with calls, some with odd arguments, or with parts, are written whole or not at all. */
static void lacking_memory_is_an_error(void **state) {
    (void)state;
    static const char *const templates[] = {
        WITH_CALLS("c.function.arguments | tojson",
                   "{% if m.tool_calls | length > 1 %}{{ raise_exception('one!') }}{% endif %}"),
        WITH_CALLS("c.function.arguments | tojson", "{% if c.id | length != 9 %}{{ raise_exception('length 9!') }}{% endif %}"),
        WITH_CALLS("'```' + c.function.arguments", ""),
        CALLS_BY("{{ c.function.arguments.items() | list | tojson }}"),
        EACH,
        "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}",
    };
    static const char *const chats[] = {
        CHAT(USER ", " CALLS ", " RESULT("2") ", " RESULT("1") ", " ODD_CALL ", " LATE),
        "{'messages': [" USER
        ", {'role': 'assistant', 'content': '', 'tool_calls': [" NINE(CALL("1")) "]}, " LATE
                                                                                 "], 'tools': [" NINE(ONE_TOOL) "]}",
        "{'messages': [" USER ", {'role': 'assistant', 'content': [" NINE(A_PART) "]}], 'continue_final_message': true}",
    };
    enum { N_CHATS = sizeof chats / sizeof *chats };
    for (size_t i = 0; i < N_CHATS * (sizeof templates / sizeof *templates); i++) {
        const small_vocab v = vocab_with(templates[i / N_CHATS], bars);
        cl_chat_input in;
        json_t *object = read_chat(chats[i % N_CHATS], &in);
        opened o = open_chat(&v, NULL);
        size_t n = 0;
        for (has_failed = true; has_failed; n++) {
            const cl_status status = render_without_memory(&o, &in, n);
            if (status != (has_failed ? CL_ERR_NOMEM : CL_OK)) fail_msg("chat %zu, allocation %zu: %d", i, n, (int)status);
        }
        assert_true(n > 20);
        close_chat(&o);
        json_decref(object);
    }
}

#define PARTS "{'role': 'user', 'content': [{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': 'b'}]}"

static void content_has_the_form_that_the_template_takes(void **state) {
    (void)state;
    small_vocab v = vocab_with(PLAIN, bars); /* strings: parts become one line each */
    expect(&v, NULL, CHAT(PARTS), "<|user|>a\nb<|end|><|assistant|>", 3);
    v.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"; /* it would show a list as Python does */
    expect(&v, NULL, CHAT(PARTS), "a\nb", 0);
    v.chat_template = "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}"; /* parts alone */
    expect(&v, NULL, CHAT(PARTS ", " ASSISTANT), "[a][b][two ]", 0);
    v.chat_template = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
                      "{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endif %}{% endfor %}"; /* both */
    expect(&v, NULL, CHAT(PARTS ", " ASSISTANT), "[a][b]two ", 0);
    expect(&v, NULL, CHAT(USER ", {'role': 'assistant', 'content': null}, " USER), " one  one ", 0);
}

static void developers_are_systems_elsewhere(void **state) {
    (void)state;
    small_vocab v = vocab_with(PLAIN, bars);
    const char *chat = CHAT("{'role': 'developer', 'content': 'd'}, " USER);
    expect(&v, NULL, chat, "<|system|>d<|end|><|user|> one <|end|><|assistant|>", 4);
    v.chat_template = "{# developer #}" PLAIN;
    expect(&v, NULL, chat, "<|developer|>d<|end|><|user|> one <|end|><|assistant|>", 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(systems_are_merged_for_the_template),
        cmocka_unit_test(systems_alone_are_written),
        cmocka_unit_test(odd_calls_are_written),
        cmocka_unit_test(irregular_calls_are_written),
        cmocka_unit_test(the_deadline_counts),
        cmocka_unit_test(the_deadline_ends_trials),
        cmocka_unit_test(rewriting_is_counted),
        cmocka_unit_test(joining_takes_linear_time),
        cmocka_unit_test(reasoning_is_thinking_elsewhere),
        cmocka_unit_test(tools_are_described),
        cmocka_unit_test(tools_are_completed),
        cmocka_unit_test(tools_are_described_in_turns),
        cmocka_unit_test(a_template_that_writes_calls_gets_them),
        cmocka_unit_test(ids_are_shortened),
        cmocka_unit_test(ids_have_names),
        cmocka_unit_test(several_calls_come_one_by_one),
        cmocka_unit_test(lacking_memory_is_an_error),
        cmocka_unit_test(content_has_the_form_that_the_template_takes),
        cmocka_unit_test(developers_are_systems_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
