/* Tools in requests, and calls and reasoning in answers and in the chunks of streams. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apis_fixture.h"
#include "fake.h"
#include "openai_fixture.h"

#define TOOL(name)  "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":{\"type\":\"object\"}}}"
#define STRICT      "{\"type\":\"function\",\"function\":{\"name\":\"s\",\"strict\":true,\"parameters\":{\"type\":\"object\"}}}"
#define TOOLS       "\"tools\":[" TOOL("add") "," TOOL("now") "]"
#define NAMED(name) "\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":" name "}}"

static cl_reply_format format_of(const char *template) {
    cl_reply_format format;
    cl_reply_format_find(cl_str_of(template), true, &format);
    return format;
}

/* ---- Requests ---- */

static void assert_callable(const openai_request *r, const char *names) {
    char found[64] = "";
    for (size_t i = 0; i < json_array_size(r->callable); i++) {
        const json_t *function = json_object_get(json_array_get(r->callable, i), "function");
        strcat(strcat(found, json_string_value(json_object_get(function, "name"))), " ");
    }
    assert_string_equal(found, names);
}

static void tool_choices_are_read(void **state) {
    (void)state;
    static const struct {
        const char *body;
        openai_tool_choice choice;
        const char *callable;
        bool parallel, splits, constrained;
    } cases[] = {
        {CHAT("\"max_tokens\":1"), OPENAI_TOOLS_NONE, "", true, false, false},
        {CHAT("\"tools\":[],\"tool_choice\":\"auto\""), OPENAI_TOOLS_AUTO, "", true, false, false},
        {CHAT(TOOLS), OPENAI_TOOLS_AUTO, "add now ", true, true, false},
        {CHAT("\"tools\":[" TOOL("add") "," STRICT "]"), OPENAI_TOOLS_AUTO, "add s ", true, true, true},
        {CHAT("\"tools\":[" STRICT "],\"tool_choice\":\"none\""), OPENAI_TOOLS_NONE, "s ", true, false, false},
        {CHAT(TOOLS ",\"tool_choice\":\"required\",\"parallel_tool_calls\":false"), OPENAI_TOOLS_REQUIRED, "add now ", false,
         true, true},
        {CHAT(TOOLS "," NAMED("\"now\"")), OPENAI_TOOLS_REQUIRED, "now ", false, true, true},
        {CHAT(TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\",\"tools\":[{\"type\":"
                    "\"function\",\"function\":{\"name\":\"now\"}}]}}"),
         OPENAI_TOOLS_AUTO, "now ", true, true, false},
        {CHAT(TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"required\",\"tools\":[{\"type\":\"function\","
                    "\"name\":\"add\"}]}"),
         OPENAI_TOOLS_REQUIRED, "add ", true, true, true},
    };
    const openai_context c = fake_context();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        openai_request r;
        parse_ok(&c, OPENAI_CHAT, cases[i].body, &r);
        assert_int_equal(r.tool_choice, cases[i].choice);
        assert_callable(&r, cases[i].callable);
        assert_int_equal(r.parallel_tool_calls, cases[i].parallel);
        assert_int_equal(r.splits, cases[i].splits);
        assert_int_equal(r.params.grammar_kind == CL_GRAMMAR_LARK, cases[i].constrained);
        assert_int_equal(r.reply.constrained, cases[i].constrained);
        if (r.reply.constrained) assert_ptr_equal(r.reply.tools, r.callable);
        openai_request_free(&r);
    }
}

static void what_is_wrong_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *body, *param, *in_message;
    } cases[] = {
        {CHAT("\"tools\":{}"), "tools", "array"},
        {CHAT("\"tools\":[{}]"), "tools[0].type", "function"},
        {CHAT("\"tool_choice\":\"required\""), "tool_choice", "there are no 'tools'"},
        {CHAT(TOOLS ",\"tool_choice\":\"sometimes\""), "tool_choice", "\"required\""},
        {CHAT(TOOLS ",\"tool_choice\":3"), "tool_choice", "\"required\""},
        {CHAT(TOOLS ",\"tool_choice\":\"auto\\u0000\""), "tool_choice", "zero character"},
        {CHAT(TOOLS ",\"tool_choice\":{}"), "tool_choice", "allowed_tools"},
        {CHAT(TOOLS "," NAMED("\"sub\"")), "tool_choice", "'sub', which is not among the tools"},
        {CHAT(TOOLS "," NAMED("3")), "tool_choice", "must name a tool"},
        {CHAT(NAMED("\"add\"")), "tool_choice", "not among the tools"},
        {CHAT(TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\"}"), "tool_choice", "array of some of the tools"},
        {CHAT(TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\",\"tools\":[{}]}"), "tool_choice", "\"required\""},
        {CHAT(TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[1]}"), "tool_choice",
         "must name"},
        {CHAT("\"parallel_tool_calls\":1"), "parallel_tool_calls", "true or false"},
        {CHAT("\"separate_reasoning\":1"), "separate_reasoning", "true or false"},
        {CHAT("\"include_reasoning\":1"), "include_reasoning", "true or false"},
        {CHAT("\"reasoning_format\":1"), "reasoning_format", "a string"},
        {CHAT("\"functions\":[{}]"), "functions", "use 'tools'"},
        {CHAT(TOOLS ",\"tool_choice\":\"required\",\"guided_regex\":\"a\""), "tool_choice", "'guided_regex' both say"},
        {CHAT("\"tools\":[" STRICT "],\"guided_regex\":\"a\""), "tools", "or a JSON schema"},
        {CHAT("\"function_call\":{\"name\":\"x\"}"), "function_call", "use 'tool_choice'"},
    };
    const openai_context c = fake_context();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(&c, OPENAI_CHAT, cases[i].body, cases[i].param, cases[i].in_message);
}

/* A grammar for the answer leaves reasoning before it possible, and a schema calls. */
#define BEHIND                                                                                                                 \
    "start: (\"<think>\" thought)? answer\nthought: thinking SPACE\nthinking[lazy]: TEXT \"</think>\" \n"                      \
    "SPACE: /[ \\n\\r\\t]{0,4}/\n"
static void grammars_hold_for_the_answer(void **state) {
    (void)state;
#define SCHEMA                                                                                                                 \
    "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":{\"type\":\"object\"}}}"
    static const struct {
        const char *template, *body;
        cl_grammar_kind kind;
        const char *start;
    } cases[] = {
        {"", CHAT(SCHEMA), CL_GRAMMAR_JSON_SCHEMA, "{"},
        {"", CHAT(TOOLS "," SCHEMA), CL_GRAMMAR_LARK, "start: (calls | answer)\n"},
        {"", CHAT(TOOLS ",\"tool_choice\":\"none\"," SCHEMA), CL_GRAMMAR_JSON_SCHEMA, "{"},
        {"", CHAT(TOOLS ",\"tool_choice\":\"required\"," SCHEMA), CL_GRAMMAR_LARK, "start: calls\n"},
        {"<think></think>", CHAT(SCHEMA), CL_GRAMMAR_LARK, "start: (\"<think>\" thought)? answer\n"},
        {"", CHAT(TOOLS ",\"guided_regex\":\"a\""), CL_GRAMMAR_REGEX, "a"},
        {"<think></think>", CHAT("\"guided_regex\":\"a/b\""), CL_GRAMMAR_LARK, BEHIND "answer: /a\\x2Fb/\n"},
        {"<think></think>", CHAT("\"structured_outputs\":{\"choice\":[\"a\",\"b\"]}"), CL_GRAMMAR_LARK,
         BEHIND "answer: %lark {\nstart: \"a\"\n  | \"b\"\n}\n"},
        {"<think></think>", CHAT("\"grammar\":\"root ::= [0-9]\""), CL_GRAMMAR_LARK, BEHIND "answer: %lark {\nstart: "},
        {"<think></think>", CHAT("\"guided_grammar\":\"start: \\\"a\\\"\""), CL_GRAMMAR_LARK,
         BEHIND "answer: %lark {\nstart: \"a\"\n}\n"},
        {"<think></think>", CHAT(TOOLS ",\"guided_regex\":\"a\""), CL_GRAMMAR_LARK, BEHIND "answer: /a/\n"},
    };
    const openai_context c = fake_context();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const cl_reply_format format = format_of(cases[i].template);
        openai_request r;
        fake_set_reply(&format);
        parse_ok(&c, OPENAI_CHAT, cases[i].body, &r);
        assert_int_equal(r.params.grammar_kind, cases[i].kind);
        assert_int_equal(r.reply.constrained, cases[i].kind == CL_GRAMMAR_LARK && strstr(r.grammar, "calls") != NULL);
        assert_int_equal(r.params.grammar_size, strlen(r.grammar));
        if (strncmp(r.grammar, cases[i].start, strlen(cases[i].start)) != 0) fail_msg("%s: %s", cases[i].body, r.grammar);
        openai_request_free(&r);
    }
    fake_set_reply(NULL);
}

/* The prompt is pinned as it is, with the tools; nothing is generated that a grammar could constrain. */
static void pins_have_no_grammar(void **state) {
    (void)state;
    const openai_context c = fake_context();
    openai_request r;
    openai_error error;
    json_t *body = json_loads(CHAT(TOOLS ",\"tool_choice\":\"required\""), 0, NULL);
    assert_true(openai_pin_parse(&c, body, &r, &error));
    assert_true(r.params.pin && r.params.grammar_kind == CL_GRAMMAR_NONE && !r.params.grammar && r.params.grammar_size == 0);
    openai_request_free(&r);
    json_decref(body);
}

/* Markers that are special tokens are shown, and the prompt's end says whether reasoning has begun. */
static void markers_are_found(void **state) {
    (void)state;
    cl_reply_format format = format_of("<think></think>");
    const openai_context c = fake_context();
    openai_request r;
    fake_set_reply(&format);
    parse_ok(&c, OPENAI_CHAT, CHAT("\"max_tokens\":1"), &r);
    assert_true(r.splits && !r.reply.in_reasoning && r.params.n_shown_tokens == 0);
    openai_request_free(&r);
    parse_ok(&c, OPENAI_CHAT, CHAT("\"reasoning_format\":\"none\""), &r);
    assert_false(r.splits);
    openai_request_free(&r);
    strcpy(format.think, "</s>"); /* with which all prompts of the fake model end */
    parse_ok(&c, OPENAI_CHAT, CHAT("\"max_tokens\":1"), &r);
    assert_true(r.reply.in_reasoning && r.params.n_shown_tokens == 1 && r.params.shown_tokens[0] == FAKE_END);
    openai_request_free(&r);
    strcpy(format.stop, "</s>"); /* where there are calls, they end with it */
    parse_ok(&c, OPENAI_CHAT, CHAT("\"stop_token_ids\":[5]"), &r);
    assert_int_equal(r.params.n_stop_tokens, 1);
    openai_request_free(&r);
    parse_ok(&c, OPENAI_CHAT, CHAT(TOOLS ",\"stop_token_ids\":[5]"), &r);
    assert_true(r.params.n_stop_tokens == 2 && r.params.stop_tokens[1] == FAKE_END);
    openai_request_free(&r);
    fake_set_reply(NULL);
}

/* A budget reaches the engine with the marks of the model's replies; models without reasoning have none. */
static void reasoning_has_a_budget(void **state) {
    (void)state;
    static const char *const names[] = {"thinking_token_budget", "reasoning_budget_tokens", "thinking_budget_tokens",
                                        "thinking_budget"};
    cl_reply_format format = format_of("<think></think>");
    const openai_context c = fake_context();
    openai_request r;
    fake_set_reply(&format);
    parse_ok(&c, OPENAI_CHAT, CHAT("\"max_tokens\":1"), &r);
    assert_int_equal(r.params.max_reasoning_tokens, -1);
    openai_request_free(&r);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char body[100];
        snprintf(body, sizeof body, CHAT("\"%s\":%zu"), names[i], i);
        parse_ok(&c, OPENAI_CHAT, body, &r);
        assert_true(r.params.max_reasoning_tokens == (int64_t)i && !r.prompts[0].in_reasoning);
        assert_string_equal(r.params.reasoning_begin, "<think>");
        assert_string_equal(r.params.reasoning_end, "</think>");
        assert_int_equal(r.params.n_reasoning_end_tokens, 8); /* every byte is one */
        assert_int_equal(r.params.reasoning_end_tokens[1], '/');
        openai_request_free(&r);
    }
    parse_ok(&c, OPENAI_COMPLETION, "{\"prompt\":[\"a\",\"b<think>\\n\"],\"thinking_token_budget\":3}", &r);
    assert_true(!r.prompts[0].in_reasoning && r.prompts[1].in_reasoning && r.params.max_reasoning_tokens == 3);
    openai_request_free(&r);
    for (size_t i = 1; i < sizeof names / sizeof *names; i++) {
        char body[200], says[100];
        snprintf(body, sizeof body, CHAT("\"%s\":0,\"%s\":-1"), names[i - 1], names[i]);
        snprintf(says, sizeof says, "'%s' contradict", names[i - 1]);
        assert_refused(&c, OPENAI_CHAT, body, names[i], says);
        snprintf(body, sizeof body, CHAT("\"%s\":5,\"%s\":5"), names[i - 1], names[i]);
        parse_ok(&c, OPENAI_CHAT, body, &r);
        assert_int_equal(r.params.max_reasoning_tokens, 5);
        openai_request_free(&r);
    }
    strcpy(format.think, "</s>"); /* with which all prompts of the fake model end */
    parse_ok(&c, OPENAI_CHAT, CHAT("\"thinking_token_budget\":0,\"reasoning_format\":\"none\""), &r);
    assert_true(r.prompts[0].in_reasoning && r.params.max_reasoning_tokens == 0);
    openai_request_free(&r);
    fake_set_reply(NULL);
    parse_ok(&c, OPENAI_CHAT, CHAT("\"thinking_token_budget\":3"), &r);
    assert_int_equal(r.params.max_reasoning_tokens, -1);
    openai_request_free(&r);
}

/* ---- Answers ---- */

static void begin(scene *s, const char *template, const char *body) {
    static cl_reply_format format;
    format = format_of(template);
    fake_set_reply(&format);
    scene_begin(s, &openai_chat, body);
}

static void end(scene *s) {
    fake_set_reply(NULL);
    scene_end(s);
}

/* Add text to a choice; finish: its last. */
static cl_engine_event add(scene *s, int32_t choice, const char *text, cl_engine_finish finish) {
    const bool ends = finish != CL_ENGINE_RUNNING;
    cl_engine_event event = {.choice = choice,
                             .kind = ends ? CL_EVENT_END : CL_EVENT_TOKEN,
                             .text = text,
                             .text_size = strlen(text),
                             .last = ends && choice == s->request.params.n - 1};
    if (ends)
        event.end.finish = finish;
    else
        event.token = (cl_event_token){.id = 'a', .position = 1, .chosen = {'a', -1}};
    openai_result_add(&s->result, 0, &event, 0);
    assert_false(s->result.failed);
    for (size_t i = 0; i < s->result.choices[choice].n_calls; i++) {
        char *id = s->result.choices[choice].calls[i].id;
        if (strcmp(id, "id") != 0) {
            assert_int_equal(strlen(id), s->request.reply.format->syntax == CL_REPLY_MISTRAL ? 9 : 21);
            strcpy(id, "id");
        }
    }
    return event;
}

/* The message and the reason for the end of a choice in the whole answer. */
static void assert_answer(const scene *s, size_t choice, const char *message, const char *finish) {
    json_t *answer = scene_answer(s), *found = json_array_get(json_object_get(answer, "choices"), choice);
    assert_at(found, "/message", message);
    assert_string_equal(json_string_value(json_object_get(found, "finish_reason")), finish);
    json_decref(answer);
}

static void answers_have_calls(void **state) {
    (void)state;
    scene s;
    begin(&s, "<tool_call>", CHAT(TOOLS));
    add(&s, 0, "I add.\n<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"\xc3\xa9\"", CL_ENGINE_RUNNING);
    add(&s, 0, "}}</tool_call><tool_call>{\"name\": \"now\"}</tool_call>", CL_ENGINE_STOP);
    assert_answer(
        &s, 0,
        "{\"role\":\"assistant\",\"content\":\"I add.\",\"refusal\":null,\"tool_calls\":[{\"id\":\"id\",\"type\":"
        "\"function\",\"function\":{\"name\":\"add\",\"arguments\":\"{\\\"a\\\": \\\"\xc3\xa9\\\"}\"}},{\"id\":\"id\","
        "\"type\":\"function\",\"function\":{\"name\":\"now\",\"arguments\":\"{}\"}}]}",
        "tool_calls");
    end(&s);

    begin(&s, "[TOOL_CALLS]", CHAT(TOOLS ",\"parallel_tool_calls\":false"));
    add(&s, 0, "[TOOL_CALLS]add[ARGS]{}[TOOL_CALLS]now[ARGS]{}", CL_ENGINE_STOP);
    assert_answer(&s, 0,
                  "{\"role\":\"assistant\",\"content\":null,\"refusal\":null,\"tool_calls\":[{\"id\":\"id\",\"type\":"
                  "\"function\",\"function\":{\"name\":\"add\",\"arguments\":\"{}\"}}]}",
                  "tool_calls");
    end(&s);

    begin(&s, "<tool_call>", CHAT(TOOLS ",\"tool_choice\":\"none\""));
    add(&s, 0, "<tool_call>{\"name\":\"now\"}", CL_ENGINE_STOP);
    assert_answer(&s, 0, "{\"role\":\"assistant\",\"content\":\"<tool_call>{\\\"name\\\":\\\"now\\\"}\",\"refusal\":null}",
                  "stop");
    end(&s);

    begin(&s, "<tool_call>", CHAT(TOOLS)); /* cut within a call */
    add(&s, 0, "<tool_call>{\"name\":\"add\",\"arguments\":{\"a", CL_ENGINE_LENGTH);
    assert_answer(&s, 0,
                  "{\"role\":\"assistant\",\"content\":null,\"refusal\":null,\"tool_calls\":[{\"id\":\"id\",\"type\":"
                  "\"function\",\"function\":{\"name\":\"add\",\"arguments\":\"{\\\"a\"}}]}",
                  "length");
    end(&s);
}

static void answers_have_reasoning(void **state) {
    (void)state;
    static const struct {
        const char *fields, *message;
    } cases[] = {
        {"\"max_tokens\":9", "{\"role\":\"assistant\",\"content\":\"yes\",\"refusal\":null,\"reasoning_content\":\"hm\","
                             "\"reasoning\":\"hm\"}"},
        {"\"include_reasoning\":false", "{\"role\":\"assistant\",\"content\":\"yes\",\"refusal\":null}"},
        {"\"separate_reasoning\":false", "{\"role\":\"assistant\",\"content\":\"<think>hm</think>yes\",\"refusal\":null}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[256];
        scene s;
        sprintf(body, CHAT("%s"), cases[i].fields);
        begin(&s, "<think></think>", body);
        add(&s, 0, "<think>hm</think>yes", CL_ENGINE_STOP);
        assert_answer(&s, 0, cases[i].message, "stop");
        end(&s);
    }
}

/* Tokens of reasoning and of its end are counted, also if the answer leaves them out, and none behind it, whatever follows. */
static void tokens_of_reasoning_are_counted(void **state) {
    (void)state;
    static const struct {
        const char *fields, *texts[8];
        int count;
    } cases[] = {
        {"\"max_tokens\":9", {"<think>h", "m", "</think>", "yes", "."}, 3},
        {"\"include_reasoning\":false", {"<think>h", "m", "</think>", "yes", "."}, 3},
        {"\"separate_reasoning\":false", {"<think>h", "m", "</think>", "yes", "."}, 0},
        {"\"max_tokens\":9", {"<think>", "hm", "</", "think", ">", "\n", "\n", "yes"}, 4},
        {TOOLS, {"<think>", "hm", "</think>", "<tool_call>", "{\"name\"", ": \"now\"", ",", "\"arguments\": {}}"}, 2},
        {TOOLS ",\"tool_choice\":\"required\"", {"<think>", "hm</think>", "\n", "<tool_call>", "\n", "{", "\"name\":"}, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[512], expected[64];
        scene s;
        snprintf(body, sizeof body, CHAT("%s"), cases[i].fields);
        begin(&s, "<tool_call><think></think>", body);
        for (int k = 0; k < 8 && cases[i].texts[k]; k++) add(&s, 0, cases[i].texts[k], CL_ENGINE_RUNNING);
        add(&s, 0, "", CL_ENGINE_STOP);
        json_t *answer = scene_answer(&s);
        snprintf(expected, sizeof expected, "{\"reasoning_tokens\":%d}", cases[i].count);
        assert_at(answer, "/usage/completion_tokens_details", cases[i].count ? expected : NULL);
        json_decref(answer);
        end(&s);
    }
}

/* Each choice is split for itself; the best ones take their calls with them. */
static void choices_are_split_apart(void **state) {
    (void)state;
    scene s;
    begin(&s, "<tool_call>", CHAT(TOOLS ",\"n\":2"));
    add(&s, 0, "<tool_call>{\"name\":", CL_ENGINE_RUNNING);
    add(&s, 1, "<tool_", CL_ENGINE_RUNNING);
    add(&s, 0, "\"now\"}", CL_ENGINE_STOP);
    add(&s, 1, "x", CL_ENGINE_STOP);
    assert_int_equal(s.result.choices[0].n_calls, 1);
    assert_answer(&s, 1, "{\"role\":\"assistant\",\"content\":\"<tool_x\",\"refusal\":null}", "stop");
    end(&s);
}

/* ---- Streams ---- */

/* The deltas of the chunks for an event, one in a line; an end as its reason. */
static void assert_chunks(scene *s, const char *text, cl_engine_finish finish, const char *expected) {
    const cl_engine_event event = add(s, 0, text, finish);
    char found[1024] = "";
    const size_t n = openai_n_chunks(&s->result, &event);
    for (size_t k = 0; k < n; k++) {
        json_t *chunk = scene_chunk(s, &event, k), *choice = json_array_get(json_object_get(chunk, "choices"), 0);
        char *delta = json_dumps(json_object_get(choice, "delta"), JSON_COMPACT);
        strcat(strcat(found, delta), "\n");
        free(delta);
        const char *reason = json_string_value(json_object_get(choice, "finish_reason"));
        if (reason) strcat(strcat(found, reason), "\n");
        const json_t *content = json_object_get(json_object_get(choice, "logprobs"), "content");
        /* A token is reported once, and an end has none. */
        if (s->request.logprobs) assert_int_equal(json_array_size(content), k == 0 && event.kind == CL_EVENT_TOKEN);
        json_decref(chunk);
    }
    assert_string_equal(found, expected);
}

static void streams_have_calls(void **state) {
    (void)state;
    scene s;
    begin(&s, "<tool_call>", CHAT(TOOLS ",\"stream\":true"));
    assert_chunks(&s, "<tool_call>{\"name\": \"a", CL_ENGINE_RUNNING, "");
    assert_chunks(&s, "dd\", \"arguments\": {\"a\"", CL_ENGINE_RUNNING,
                  "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"index\":0,\"id\":\"id\",\"type\":\"function\","
                  "\"function\":{\"name\":\"add\",\"arguments\":\"\"}}]}\n"
                  "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"a\\\"\"}}]}\n");
    assert_chunks(&s, ": 1}}", CL_ENGINE_RUNNING, "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\": 1}\"}}]}\n");
    assert_chunks(&s, "</tool_call>\n<tool_call>{\"name\":\"now\"}", CL_ENGINE_RUNNING,
                  "{\"tool_calls\":[{\"index\":1,\"id\":\"id\",\"type\":\"function\",\"function\":{\"name\":\"now\","
                  "\"arguments\":\"\"}}]}\n"
                  "{\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":\"{}\"}}]}\n");
    assert_chunks(&s, "</tool_call>", CL_ENGINE_STOP, "{}\ntool_calls\n");
    end(&s);

    begin(&s, "<think></think>", CHAT(TOOLS ",\"stream\":true,\"logprobs\":true"));
    assert_chunks(&s, "<think>h", CL_ENGINE_RUNNING,
                  "{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"h\",\"reasoning\":\"h\"}\n");
    assert_chunks(&s, "m</thi", CL_ENGINE_RUNNING, "{\"reasoning_content\":\"m\",\"reasoning\":\"m\"}\n");
    assert_chunks(&s, "nk>\n\n", CL_ENGINE_RUNNING, "{}\n"); /* a token without text, for its logprobs */
    assert_chunks(&s, "yes <tool", CL_ENGINE_RUNNING, "{\"content\":\"yes\"}\n");
    assert_chunks(&s, "", CL_ENGINE_STOP, "{\"content\":\" <tool\"}\nstop\n");
    end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tool_choices_are_read),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(grammars_hold_for_the_answer),
        cmocka_unit_test(pins_have_no_grammar),
        cmocka_unit_test(markers_are_found),
        cmocka_unit_test(reasoning_has_a_budget),
        cmocka_unit_test(answers_have_calls),
        cmocka_unit_test(answers_have_reasoning),
        cmocka_unit_test(tokens_of_reasoning_are_counted),
        cmocka_unit_test(choices_are_split_apart),
        cmocka_unit_test(streams_have_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
