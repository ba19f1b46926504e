/* The inputs that a chat's body passes to the chat template, and the fields that are refused. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/json_text.h"
#include "fake.h"
#include "openai_fixture.h"
#include "serve/protocol/json.h"
#include "serve/protocol/messages.h"

#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"
#define TOOL     "{\"type\":\"function\",\"function\":{\"name\":\"get_time\",\"parameters\":{\"type\":\"object\"}}}"

/* What is passed to the template for a body. */
static json_t *passed(const char *body, bool argument_text) {
    const openai_context c = fake_context();
    openai_request r;
    json_t *chats = json_array();
    fake_record_chats(chats, argument_text);
    parse_ok(&c, OPENAI_CHAT, body, &r);
    fake_record_chats(NULL, false);
    openai_request_free(&r);
    assert_int_equal(json_array_size(chats), 1);
    json_t *chat = json_incref(json_array_get(chats, 0));
    json_decref(chats);
    return chat;
}

static void expect_text(json_t *value, const char *expected) {
    char *text = cl_json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_string_equal(text, expected);
    free(text);
}

/* The value of a path such as "messages[0]", with one index at most. */
static void expect(const char *body, const char *member, const char *expected) {
    json_t *chat = passed(body, false);
    json_t *value = json_object_get(chat, member);
    if (!value) fail_msg("%s: no %s", body, member);
    expect_text(value, expected);
    json_decref(chat);
}

static void messages_are_copied(void **state) {
    (void)state;
    expect("{\"messages\":[{\"role\":\"developer\",\"content\":\"a\",\"name\":\"n\",\"other\":1},"
           "{\"content\":[{\"type\":\"text\",\"text\":\"b\",\"cache_control\":{}}],\"role\":\"user\"}]}",
           "messages",
           "[{\"role\":\"developer\",\"content\":\"a\",\"name\":\"n\"},"
           "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"b\"}]}]");
    expect("{\"messages\":[{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":null},{\"role\":\"tool\"}]}", "messages",
           "[{\"role\":\"tool\",\"content\":\"\",\"tool_call_id\":\"a\"},{\"role\":\"tool\",\"content\":\"\"}]");
    expect("{\"messages\":[{\"role\":\"assistant\",\"reasoning\":\"r\"},{\"role\":\"assistant\",\"content\":null,"
           "\"reasoning_content\":\"s\",\"reasoning\":\"r\",\"refusal\":null,\"tool_calls\":[]}]}",
           "messages",
           "[{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"r\"},"
           "{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"s\"}]");
    expect(
        "{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"a\"},{\"type\":\"refusal\","
        "\"refusal\":\"b\"}],\"thinking\":\"t\"},{\"role\":\"assistant\",\"content\":\"c\",\"thinking\":{\"type\":\"x\"}}]}",
        "messages",
        "[{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}],"
        "\"reasoning_content\":\"t\"},{\"role\":\"assistant\",\"content\":\"c\"}]");
    expect(
        "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"refusal\":\"no\"},{\"role\":\"assistant\",\"content\":\"c\","
        "\"refusal\":\"no\",\"tools\":[]}]}",
        "messages", "[{\"role\":\"assistant\",\"content\":\"no\"},{\"role\":\"assistant\",\"content\":\"c\"}]");
    expect("{\"messages\":[{\"role\":\"ipython\",\"content\":\"a role that only some templates know\"}]}", "messages",
           "[{\"role\":\"ipython\",\"content\":\"a role that only some templates know\"}]");
}

#define CALL(arguments)                                                                                                        \
    "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":" arguments ",\"name\":\"f\"},"       \
    "\"type\":\"function\",\"index\":0,\"id\":\"c1\"}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"5\"}]}"
#define CALLED(arguments)                                                                                                      \
    "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":"   \
    "\"f\",\"arguments\":" arguments "}}]},{\"role\":\"tool\",\"content\":\"5\",\"tool_call_id\":\"c1\"}]"

static void arguments_are_an_object_or_its_text(void **state) {
    (void)state;
    static const struct {
        const char *body, *object, *text;
    } cases[] = {
        {CALL("\"{\\\"b\\\": 1,\\\"a\\\":[]}\""), CALLED("{\"b\":1,\"a\":[]}"), CALLED("\"{\\\"b\\\": 1,\\\"a\\\":[]}\"")},
        {CALL("{\"b\":1}"), CALLED("{\"b\":1}"), CALLED("{\"b\":1}")},
        {CALL("\"\""), CALLED("{}"), CALLED("\"{}\"")},
        {CALL("null"), CALLED("{}"), CALLED("\"{}\"")},
        /* What is no object is passed on as it was written: a call that was cut, or one that a model made up. */
        {CALL("\"{\\\"b\\\": [1, \""), CALLED("\"{\\\"b\\\": [1, \""), CALLED("\"{\\\"b\\\": [1, \"")},
        {CALL("\"null\""), CALLED("\"null\""), CALLED("\"null\"")},
        {CALL("\"\\\"x\\\"\""), CALLED("\"\\\"x\\\"\""), CALLED("\"\\\"x\\\"\"")},
        {CALL("\"18446744073709551615\""), CALLED("\"18446744073709551615\""), CALLED("\"18446744073709551615\"")},
        {CALL("[1,true]"), CALLED("\"[1, true]\""), CALLED("\"[1, true]\"")},
        {CALL("3"), CALLED("\"3\""), CALLED("\"3\"")},
        /* Numbers keep their digits, and a lone surrogate is no reason to refuse the rest. */
        {CALL("\"{\\\"n\\\":18446744073709551616}\""), CALLED("{\"n\":18446744073709551616}"),
         CALLED("\"{\\\"n\\\":18446744073709551616}\"")},
        {CALL("\"{\\\"s\\\":\\\"\\\\ud83d\\\"}\""), CALLED("{\"s\":\"\xef\xbf\xbd\"}"),
         CALLED("\"{\\\"s\\\":\\\"\\\\ud83d\\\"}\"")},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *with_object = passed(cases[i].body, false), *with_text = passed(cases[i].body, true);
        expect_text(json_object_get(with_object, "messages"), cases[i].object);
        expect_text(json_object_get(with_text, "messages"), cases[i].text);
        json_decref(with_object);
        json_decref(with_text);
    }
}

/* The request says which field the log is to name: the first one. */
static void odd_arguments_are_noted(void **state) {
    (void)state;
    static const struct {
        const char *body, *field;
    } cases[] = {
        {CALL("\"{}\""), ""},
        {CALL("\"{\""), "messages[0].tool_calls[0].function.arguments"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":"
         "\"\","
         "\"arguments\":\"\"}},{\"function\":{\"name\":\"f\",\"arguments\":\"{\"}},{\"function\":{\"name\":\"f\",\"arguments\":"
         "\"{\"}}]}]}",
         "messages[1].tool_calls[1].function.arguments"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const openai_context c = fake_context();
        openai_request r;
        parse_ok(&c, OPENAI_CHAT, cases[i].body, &r);
        assert_string_equal(r.odd.text, cases[i].field);
        openai_request_free(&r);
    }
}

static void tools_and_variables_are_passed(void **state) {
    (void)state;
    expect("{" MESSAGES ",\"tools\":[" TOOL "]}", "tools", "[" TOOL "]");
    expect("{" MESSAGES ",\"chat_template_kwargs\":{\"enable_thinking\":false,\"reasoning_effort\":\"x\"},"
           "\"reasoning_effort\":\"low\"}",
           "kwargs", "{\"enable_thinking\":false,\"reasoning_effort\":\"low\"}");
    expect("{" MESSAGES ",\"documents\":[{\"title\":\"t\",\"text\":\"d\"}]}", "documents",
           "[{\"title\":\"t\",\"text\":\"d\"}]");
    static const char *const without[] = {"{" MESSAGES ",\"tools\":[" TOOL "],\"tool_choice\":\"none\"}",
                                          "{" MESSAGES ",\"tools\":null,\"documents\":[],\"chat_template_kwargs\":null}"};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        json_t *chat = passed(without[i], false);
        assert_int_equal(json_array_size(json_object_get(chat, "tools")), 0);
        assert_null(json_object_get(chat, "documents"));
        json_decref(chat);
    }
}

/* All names that peers and services have for the switch become the variables that templates read. */
static void thinking_is_switched(void **state) {
    (void)state;
#define OFF "\"enable_thinking\":false,\"thinking\":false"
#define ON  "\"enable_thinking\":true,\"thinking\":true"
    static const char *const cases[][2] = {
        {"\"reasoning_effort\":\"none\"", "{" OFF ",\"reasoning_effort\":\"none\"}"},
        {"\"reasoning\":{\"effort\":\"none\"}", "{" OFF ",\"reasoning_effort\":\"none\"}"},
        {"\"reasoning\":{\"effort\":\"high\",\"enabled\":true}", "{" ON ",\"reasoning_effort\":\"high\"}"},
        {"\"reasoning\":{\"enabled\":false,\"effort\":null}", "{" OFF "}"},
        {"\"reasoning\":{\"effort\":\"low\"},\"reasoning_effort\":\"low\"", "{\"reasoning_effort\":\"low\"}"},
        {"\"thinking\":{\"type\":\"disabled\"}", "{" OFF "}"},
        {"\"thinking\":{\"type\":\"enabled\"}", "{" ON "}"},
        {"\"thinking\":false", "{" OFF "}"},
        {"\"thinking\":{\"type\":\"adaptive\"},\"enable_thinking\":true", "{" ON "}"},
        {"\"enable_thinking\":false,\"reasoning_effort\":\"none\"", "{" OFF ",\"reasoning_effort\":\"none\"}"},
        {"\"enable_thinking\":false,\"chat_template_kwargs\":{\"thinking\":true}",
         "{\"enable_thinking\":false,\"thinking\":true}"},
        {"\"enable_thinking\":null,\"thinking\":null,\"reasoning\":null", "{}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[256];
        snprintf(body, sizeof body, "{%s,%s}", MESSAGES, cases[i][0]);
        expect(body, "kwargs", cases[i][1]);
    }
}

static void the_server_has_variables_too(void **state) {
    (void)state;
    openai_context c = fake_context();
    openai_request r;
    json_t *chats = json_array(), *kwargs = json_pack("{s:b, s:i}", "enable_thinking", 0, "depth", 3);
    c.chat_kwargs = kwargs;
    fake_record_chats(chats, false);
    parse_ok(&c, OPENAI_CHAT, "{" MESSAGES ",\"chat_template_kwargs\":{\"depth\":4}}", &r);
    fake_record_chats(NULL, false);
    openai_request_free(&r);
    expect_text(json_object_get(json_array_get(chats, 0), "kwargs"), "{\"enable_thinking\":false,\"depth\":4}");
    json_decref(chats);
    json_decref(kwargs);
}

static void the_end_of_the_text_can_be_chosen(void **state) {
    (void)state;
    static const struct {
        const char *body;
        bool generation, continued;
    } cases[] = {
        {"{" MESSAGES "}", true, false},
        {"{" MESSAGES ",\"add_generation_prompt\":false}", false, false},
        {"{" MESSAGES ",\"continue_final_message\":true}", false, true},
        {"{" MESSAGES ",\"continue_final_message\":true,\"add_generation_prompt\":false}", false, true},
        {"{" MESSAGES ",\"continue_final_message\":false,\"add_generation_prompt\":true}", true, false},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\",\"prefix\":true}]}",
         false, true},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"b\",\"prefix\":true},{\"role\":\"user\",\"content\":\"a\"}]}",
         true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *chat = passed(cases[i].body, false);
        assert_true(json_is_true(json_object_get(chat, "add_generation_prompt")) == cases[i].generation);
        assert_true(json_is_true(json_object_get(chat, "continue_final_message")) == cases[i].continued);
        json_decref(chat);
    }
}

#define FUNCTION(members) CHAT("\"tools\":[" TOOL ",{\"type\":\"function\",\"function\":{" members "}}]")

static void what_is_wrong_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *body, *param, *in_message;
    } cases[] = {
        {"{\"messages\":[{\"role\":\"\",\"content\":\"x\"}]}", "messages[0].role", "must be a string such as"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":null}]}", "messages[0].content", "string or an array"},
        {"{\"messages\":[{\"role\":\"tool\",\"tool_call_id\":3,\"content\":\"x\"}]}", "messages[0].tool_call_id",
         "not an integer"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"name\":[]}]}", "messages[0].name", "not an array"},
        {"{\"messages\":[{\"role\":\"assistant\",\"reasoning_content\":{}}]}", "messages[0].reasoning_content",
         "not an object"},
        {"{\"messages\":[{\"role\":\"assistant\",\"reasoning\":{}}]}", "messages[0].reasoning", "not an object"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":{\"a\":1}}]}", "messages[0].tool_calls", "array"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[1]}]}", "messages[0].tool_calls[0].function.name", "string"},
        {"{\"messages\":[{\"role\":\"assistant\",\"function_call\":{\"name\":\"f\"}}]}", "messages[0].tool_calls",
         "send 'messages[0].tool_calls'"},
        {CHAT("\"tools\":{}"), "tools", "not an object"},
        {CHAT("\"tools\":[1]"), "tools[0]", "not an integer"},
        {CHAT("\"tools\":[1e400]"), "tools[0]", "not a number beyond 64 bits"},
        {CHAT("\"tools\":[{\"type\":\"web_search\"}]"), "tools[0].type", "must be \"function\""},
        {CHAT("\"tools\":[{\"type\":\"function\"}]"), "tools[0].function", "object"},
        {FUNCTION("\"name\":3"), "tools[1].function.name", "1 to 64 letters"},
        {FUNCTION("\"name\":\"\""), "tools[1].function.name", "1 to 64 letters"},
        {FUNCTION("\"name\":\"a.b\""), "tools[1].function.name", "1 to 64 letters"},
        {FUNCTION("\"name\":\"a\\u0000b\""), "tools[1].function.name", "1 to 64 letters"},
        {FUNCTION("\"name\":\"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklm\""), "tools[1].function.name",
         "1 to 64 letters"},
        {FUNCTION("\"name\":\"f\",\"description\":1"), "tools[1].function.description", "not an integer"},
        {FUNCTION("\"name\":\"f\",\"parameters\":[]"), "tools[1].function.parameters", "a JSON schema"},
        {CHAT("\"chat_template_kwargs\":[]"), "chat_template_kwargs", "not an array"},
        {FUNCTION("\"name\":\"f\",\"parameters\":1e400"), "tools[1].function.parameters", "a JSON schema"},
        {CHAT("\"chat_template_kwargs\":1e400"), "chat_template_kwargs", "not a number beyond 64 bits"},
        {CHAT("\"chat_template_kwargs\":{\"tools\":[]}"), "chat_template_kwargs.tools", "use the field 'tools'"},
        {CHAT("\"chat_template\":\"{{ messages }}\""), "chat_template", "--chat-template"},
        {CHAT("\"reasoning_effort\":\"much\""), "reasoning_effort", "\"medium\""},
        {CHAT("\"reasoning_effort\":3"), "reasoning_effort", "\"medium\""},
        {CHAT("\"reasoning\":true"), "reasoning", "an object"},
        {CHAT("\"reasoning\":{\"effort\":\"much\"}"), "reasoning.effort", "\"medium\""},
        {CHAT("\"reasoning\":{\"enabled\":1}"), "reasoning.enabled", "true or false"},
        {CHAT("\"reasoning\":{\"max_tokens\":9}"), "reasoning.max_tokens", "'thinking_token_budget'"},
        {CHAT("\"reasoning\":{\"exclude\":true}"), "reasoning.exclude", "'include_reasoning'"},
        {CHAT("\"reasoning\":{\"effort\":\"low\"},\"reasoning_effort\":\"high\""), "reasoning.effort",
         "'reasoning_effort' contradict"},
        {CHAT("\"reasoning_effort\":\"none\",\"enable_thinking\":true"), "enable_thinking", "'reasoning_effort' contradict"},
        {CHAT("\"enable_thinking\":\"no\""), "enable_thinking", "true or false"},
        {CHAT("\"thinking\":{\"type\":\"disabled\"},\"reasoning\":{\"enabled\":true}"), "thinking.type",
         "'reasoning.enabled' contradict"},
        {CHAT("\"thinking\":{}"), "thinking.type", "\"disabled\""},
        {CHAT("\"thinking\":3"), "thinking", "true or false"},
        {CHAT("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":9}"), "thinking.budget_tokens", "'thinking_token_budget'"},
        {CHAT("\"documents\":{\"a\":1}"), "documents", "array"},
        {CHAT("\"documents\":[\"a\"]"), "documents[0]", "not a string"},
        {CHAT("\"documents\":[18446744073709551616]"), "documents[0]", "not a number beyond 64 bits"},
        {"{\"messages\":[18446744073709551616]}", "messages[0]", "not a number beyond 64 bits"},
        {CHAT("\"response_format\":1e400"), "response_format", "not a number beyond 64 bits"},
        {"{\"messages\":[{\"role\":\"system\",\"content\":\"a\",\"tools\":[{}]}]}", "messages[0].tools", "beside the messages"},
        {CHAT("\"add_generation_prompt\":1"), "add_generation_prompt", "true or false"},
        {CHAT("\"continue_final_message\":1"), "continue_final_message", "true or false"},
        {CHAT("\"continue_final_message\":true,\"add_generation_prompt\":true"), "continue_final_message", "cannot set both"},
    };
    const openai_context c = fake_context();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(&c, OPENAI_CHAT, cases[i].body, cases[i].param, cases[i].in_message);
}

/* As many tools and calls as are allowed, and one more. */
static void there_are_limits(void **state) {
    (void)state;
    static char body[256 << 10];
    for (int over = 0; over < 2; over++)
        for (int calls = 0; calls < 2; calls++) {
            const openai_context c = fake_context();
            openai_request r;
            openai_error error;
            int n = snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"assistant\",\"%s\":[",
                             calls ? "tool_calls" : "content\":\"x\"}],\"tools");
            for (int i = 0; i < OPENAI_MAX_TOOLS + over; i++)
                n += snprintf(body + n, sizeof body - (size_t)n, "%s" TOOL, i ? "," : "");
            snprintf(body + n, sizeof body - (size_t)n, calls ? "]}]}" : "]}");
            assert_true(parse(&c, OPENAI_CHAT, body, &r, &error) == !over);
            if (over) assert_string_equal(error.param, calls ? "messages[0].tool_calls" : "tools");
            openai_request_free(&r);
        }
}

/* The texts of arguments are JSON within JSON: together they have the limits of a body. */
static void arguments_share_the_limits_of_a_body(void **state) {
    (void)state;
    enum { CALLS = 64, ARRAYS = OPENAI_JSON_MAX_CONTAINERS / CALLS - 2 };
    const openai_context c = fake_context();
    for (int over = 0; over < 2; over++) {
        json_t *calls = json_array(), *body;
        char *text = malloc(3 * (ARRAYS + 4) + 16), *end = text;
        end += sprintf(end, "{\"a\":[1");
        for (int i = 0; i < ARRAYS + 3 * over; i++) end += sprintf(end, ",[]");
        strcpy(end, "]}");
        for (int i = 0; i < CALLS; i++)
            json_array_append_new(calls, json_pack("{s:{s:s, s:s}}", "function", "name", "f", "arguments", text));
        body = json_pack("{s:[{s:s, s:o}]}", "messages", "role", "assistant", "tool_calls", calls);
        openai_request r;
        openai_error error;
        assert_true(openai_request_parse(&c, OPENAI_CHAT, body, &r, &error) == !over);
        if (over) assert_error(&error, "arguments", 400, "messages[0].tool_calls[63].function.arguments", "send fewer");
        openai_request_free(&r);
        json_decref(body);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_copied),
        cmocka_unit_test(arguments_are_an_object_or_its_text),
        cmocka_unit_test(odd_arguments_are_noted),
        cmocka_unit_test(tools_and_variables_are_passed),
        cmocka_unit_test(thinking_is_switched),
        cmocka_unit_test(the_server_has_variables_too),
        cmocka_unit_test(the_end_of_the_text_can_be_chosen),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(there_are_limits),
        cmocka_unit_test(arguments_share_the_limits_of_a_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
