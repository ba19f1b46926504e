/* Anthropic's bodies become chats, and a model's text becomes Anthropic's answers and events. */
#include "tests/support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "apis_fixture.h"
#include "fake.h"
#include "openai_fixture.h"
#include "serve/protocol/anthropic.h"

/* ---- Bodies ---- */

/* The field of the chat that a body becomes, as compact JSON, is this. */
static void assert_chat(const char *body, const char *pointer, const char *expected) {
    openai_translation t;
    anthropic_marks marks;
    openai_error error;
    json_t *json = json_loads(body, 0, NULL);
    assert_non_null(json);
    if (!anthropic_translate(&t, json, &marks, &error)) fail_msg("%s: %s", body, error.message);
    assert_at(t.chat, pointer, expected);
    translation_free(&t);
    json_decref(json);
}

#define TEXT(text)      "{\"type\":\"text\",\"text\":\"" text "\"}"
#define MARKED(text)    "{\"type\":\"text\",\"text\":\"" text "\",\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"}}"
#define USER(content)   "{\"role\":\"user\",\"content\":" content "}"
#define NOTHING_CREATED "\"cache_creation\":{\"ephemeral_5m_input_tokens\":0,\"ephemeral_1h_input_tokens\":0},"
#define HEADER          "x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch=fa690;"

static void blocks_become_messages(void **state) {
    (void)state;
    static const struct {
        const char *fields, *messages;
    } cases[] = {
        {"\"messages\":[" USER("\"hi\"") "]", "[" USER("[" TEXT("hi") "]") "]"},
        {"\"system\":\"be kind\",\"messages\":[" USER("[" MARKED("hi") "]") "]",
         "[{\"role\":\"system\",\"content\":[" TEXT("be kind") "]}," USER("[" TEXT("hi") "]") "]"},
        {"\"system\":[" TEXT(HEADER) "," MARKED("You are Claude Code.") "," MARKED("be kind") "],\"messages\":[" USER(
             "\"hi\"") "]",
         "[{\"role\":\"system\",\"content\":[" TEXT("You are Claude Code.") "," TEXT("be kind") "]}," USER(
             "[" TEXT("hi") "]") "]"},
        {"\"system\":\"" HEADER "\\nbe kind\",\"messages\":[" USER("\"hi\"") "]",
         "[{\"role\":\"system\",\"content\":[" TEXT("be kind") "]}," USER("[" TEXT("hi") "]") "]"},
        {"\"system\":\"" HEADER "\",\"messages\":[" USER("\"hi\"") "]", "[" USER("[" TEXT("hi") "]") "]"},
        {"\"messages\":[" USER("\"a\"") "," USER("\"b\"") "]", "[" USER("[" TEXT("a") "," TEXT("b") "]") "]"},
        /* a turn with thinking and two calls; the results, then the user's addition */
        {"\"messages\":[" USER(
             "\"go\"") ",{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":"
                       "\"s\"},"
                       "{\"type\":\"redacted_thinking\",\"data\":\"x\"}," TEXT(
                           "ok") ",{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\",\"input\":{\"b\":1,\"a\":2}},{"
                                 "\"type\":"
                                 "\"server_tool_use\",\"id\":\"s\",\"name\":\"web_search\",\"input\":{}},{\"type\":\"tool_"
                                 "use\","
                                 "\"id\":\"t2\",\"name\":\"g\",\"input\":{}}]}," USER(
                                     "[{\"type\":\"tool_result\",\"tool_use_id\":\"t1\",\"content\":\"one\"},{\"type\":"
                                     "\"tool_"
                                     "result\",\"tool_use_id\":\"t2\",\"is_error\":true,\"content\":[" TEXT(
                                         "no") ",{\"type\":\"tool_reference\",\"tool_name\":\"h\"}],\"cache_control\":{"
                                               "\"type\":"
                                               "\"ephemeral\"}}," TEXT("now") "]") "]",
         "[" USER("[" TEXT("go") "]") ",{\"role\":\"assistant\",\"reasoning_content\":\"hm\",\"content\":[" TEXT(
             "ok") "],\"tool_calls\":[{"
                   "\"id\":\"t1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"b\\\":1,"
                   "\\\"a\\\":2}\"}},{\"id\":\"t2\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":"
                   "\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"t1\",\"content\":[" TEXT(
                       "one") "]},{\"role\":\"tool\","
                              "\"tool_call_id\":"
                              "\"t2\",\"content\":"
                              "[" TEXT("Error:") "," TEXT("no") "]}," USER("[" TEXT("now") "]") "]"},
        {"\"messages\":[" USER("[{\"type\":\"document\",\"source\":{\"type\":\"text\",\"data\":\"doc\"}}]") "]",
         "[" USER("[" TEXT("doc") "]") "]"},
        {"\"messages\":[" USER(
             "[{\"type\":\"document\",\"title\":\"T\",\"context\":\"C\",\"source\":{\"type\":\"content\",\"content\":[" TEXT(
                 "one") "," TEXT("two") "]}},{\"type\":\"document\",\"title\":null,\"source\":{\"type\":\"content\","
                                        "\"content\":\"three\"}}]") "]",
         "[" USER("[" TEXT("T") "," TEXT("C") "," TEXT("one") "," TEXT("two") "," TEXT("three") "]") "]"},
        {"\"messages\":[" USER(
             "[{\"type\":\"search_result\",\"source\":\"S\",\"title\":\"T\",\"content\":[" TEXT("hit") "]}]") "]",
         "[" USER("[" TEXT("T") "," TEXT("S") "," TEXT("hit") "]") "]"},
        {"\"messages\":[" USER(
             "[{\"type\":\"tool_result\",\"tool_use_id\":\"t1\",\"content\":[{\"type\":\"document\",\"source\":"
             "{\"type\":\"text\",\"data\":\"doc\"}}," TEXT("x") ",{\"type\":\"search_result\",\"source\":\"S\","
                                                                "\"content\":[" TEXT("hit") "]}]}]") "]",
         "[{\"role\":\"tool\",\"tool_call_id\":\"t1\",\"content\":[" TEXT("doc") "," TEXT("x") "," TEXT("S") "," TEXT(
             "hit") "]}]"},
        /* calls that were cut, as another client may keep them */
        {"\"messages\":[" USER(
             "\"go\"") ",{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\","
                       "\"input\":\"{\\\"a\\\":\"},{\"type\":\"tool_use\",\"id\":\"t2\",\"name\":\"g\"},{\"type\":\"tool_use\","
                       "\"id\":\"t3\","
                       "\"name\":\"h\",\"input\":[1]}]}]",
         "[" USER(
             "[" TEXT("go") "]") ",{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"t1\",\"type\":\"function\",\"function\":"
                                 "{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":\"}},{\"id\":\"t2\",\"type\":\"function\","
                                 "\"function\":{\"name\":\"g\","
                                 "\"arguments\":\"\"}},{\"id\":\"t3\",\"type\":\"function\",\"function\":{\"name\":\"h\","
                                 "\"arguments\":\"[1]\"}}]}]"},
        {"\"messages\":[" USER("[{\"type\":\"tool_result\",\"tool_use_id\":\"t1\"}]") "]",
         "[{\"role\":\"tool\",\"tool_call_id\":\"t1\",\"content\":[" TEXT("") "]}]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[4096];
        snprintf(body, sizeof body, "{%s}", cases[i].fields);
        assert_chat(body, "/messages", cases[i].messages);
    }
}

#define BODY(fields) "{\"messages\":[" USER("\"x\"") "]," fields "}"
#define TOOL(name)   "{\"name\":\"" name "\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\"}}"
#define CHAT_TOOL(name)                                                                                                        \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"description\":\"d\",\"parameters\":{\"type\":\"object\"}}}"

static void fields_become_those_of_a_chat(void **state) {
    (void)state;
    static const struct {
        const char *body, *pointer, *expected;
    } cases[] = {
        {BODY("\"tools\":[" TOOL("f") ",{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]"), "/tools",
         "[" CHAT_TOOL("f") "]"},
        {BODY("\"tools\":[" TOOL("f") "],\"tool_choice\":{\"type\":\"any\"}"), "/tool_choice", "\"required\""},
        {BODY("\"tools\":[" TOOL("f") "],\"tool_choice\":{\"type\":\"none\"}"), "/tool_choice", "\"none\""},
        {BODY("\"tools\":[" TOOL("f") "],\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":true}"),
         "/parallel_tool_calls", "false"},
        {BODY("\"tools\":[" TOOL("f") "],\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"}"), "/tool_choice",
         "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"},
        {BODY("\"max_tokens\":7"), "/max_completion_tokens", "7"},
        {BODY("\"stop_sequences\":[\"a\"]"), "/stop", "[\"a\"]"},
        {BODY("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":2048}"), "/chat_template_kwargs",
         "{\"enable_thinking\":true,\"thinking\":true}"},
        {BODY("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":2048}"), "/thinking_token_budget", "2048"},
        {BODY("\"max_tokens\":9007199254740991,\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1e19}"),
         "/thinking_token_budget", "2147483647"},
        {BODY("\"thinking\":{\"type\":\"disabled\"},\"chat_template_kwargs\":{\"a\":1}"), "/chat_template_kwargs",
         "{\"a\":1,\"enable_thinking\":false,\"thinking\":false}"},
        {BODY("\"output_config\":{\"effort\":\"low\",\"format\":{\"type\":\"json_schema\",\"schema\":{}}}"), "/response_format",
         "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"output\",\"strict\":true,\"schema\":{}}}"},
        {BODY("\"output_config\":{\"effort\":\"low\"}"), "/reasoning_effort", "\"low\""},
        {BODY("\"metadata\":{\"user_id\":\"u\"},\"cache_control\":{\"type\":\"ephemeral\"},\"context_management\":{\"edits\":[]"
              "},"
              "\"service_tier\":\"auto\",\"temperature\":0,\"top_k\":2,\"top_p\":0.5,\"stream\":true"),
         "", "{\"temperature\":0,\"top_k\":2,\"top_p\":0.5,\"stream\":true,\"messages\":[" USER("[" TEXT("x") "]") "]}"},
        {"{\"messages\":[" USER("\"x\"") ",{\"role\":\"assistant\",\"content\":\"The\"}]}", "/continue_final_message", "true"},
        {"{\"messages\":[" USER("\"x\"") ",{\"role\":\"assistant\",\"content\":\"The\"}]}", "/add_generation_prompt", "false"},
        {"{\"messages\":[" USER(
             "\"x\"") ",{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\"}]}]}",
         "", "{\"messages\":[" USER("[" TEXT("x") "]") ",{\"role\":\"assistant\",\"reasoning_content\":\"hm\"}]}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) assert_chat(cases[i].body, cases[i].pointer, cases[i].expected);
}

/* The answer of count_tokens, for the caller to free; NULL: the body is refused. */
static char *count(const char *body, openai_error *error) {
    const openai_context context = fake_context();
    openai_writer w = {0};
    json_t *json = json_loads(body, 0, NULL);
    assert_non_null(json);
    const bool ok = anthropic_count_tokens(&context, json, &w, error);
    json_decref(json);
    return ok ? writer_end(&w, NULL) : NULL;
}

/* Names of tools may be twice as long as OpenAI's, in tools, in the choice and in calls. */
static void names_of_tools_may_be_long(void **state) {
    (void)state;
    for (size_t size = 64; size <= 129; size += size == 64 ? 63 : 1) {
        char name[130] = "", body[1000];
        memset(name, 'n', size);
        snprintf(body, sizeof body,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":[{\"type\":"
                 "\"tool_use\",\"id\":\"i\",\"name\":\"%s\",\"input\":{}}]}],\"tools\":[{\"name\":\"%s\",\"input_schema\":{}}],"
                 "\"tool_choice\":{\"type\":\"tool\",\"name\":\"%s\"}}",
                 name, name, name);
        openai_error error;
        char *counted = count(body, &error);
        assert_int_equal(counted != NULL, size <= 128);
        if (!counted) assert_error(&error, body, 400, "tools[0].name", "1 to 128 letters");
        free(counted);
    }
}

static void what_is_wrong_is_refused_by_its_own_name(void **state) {
    (void)state;
    static const struct {
        const char *body, *param, *message;
    } cases[] = {
        {"{}", "messages", "at least one message"},
        {"{\"messages\":[3]}", "messages[0]", "must be an object"},
        {"{\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]}", "messages[0].role", "must be \"user\""},
        {"{\"messages\":[" USER("3") "]}", "messages[0].content", "must be a string or an array"},
        {"{\"messages\":[" USER("[3]") "]}", "messages[0].content[0]", "must be an object"},
        {"{\"messages\":[" USER("[{\"type\":\"text\"}]") "]}", "messages[0].content[0].text", "must be a string"},
        {"{\"messages\":[" USER("[{\"type\":\"image\",\"source\":{}}]") "]}", "messages[0].content[0]", "accepts only text"},
        {"{\"messages\":[" USER("[{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"b\",\"input\":{}}]") "]}",
         "messages[0].content[0]", "only messages of role \"assistant\" have"},
        {"{\"messages\":[" USER("[{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"content\":[{\"type\":\"image\"}]}]") "]}",
         "messages[0].content[0].content[0]", "accepts only text"},
        {"{\"messages\":[" USER("[]") "]}", "messages", "has no text"},
        {BODY("\"system\":3"), "system", "must be a string or an array"},
        {BODY("\"max_tokens\":0"), "max_tokens", "'max_tokens' is 0"},
        {BODY("\"max_tokens\":-1"), "max_tokens", "'max_tokens' is -1; it must be from 1 to 2147483647"},
        {BODY("\"max_tokens\":\"7\""), "max_tokens", "'max_tokens' must be an integer"},
        {BODY("\"stop_sequences\":[3]"), "stop_sequences[0]", "'stop_sequences[0]' must be a string"},
        {BODY("\"tools\":[{\"name\":\"f\",\"input_schema\":3}]"), "tools[0].input_schema", "must be an object"},
        {BODY("\"tools\":[{\"input_schema\":{}}]"), "tools[0].name", "must be a string"},
        {BODY("\"tool_choice\":{\"type\":\"all\"}"), "tool_choice.type", "must be \"auto\""},
        {BODY("\"cache_control\":3"), "cache_control", "must be an object, not an integer"},
        {BODY("\"cache_control\":{\"type\":\"forever\"}"), "cache_control.type", "must be \"ephemeral\""},
        {BODY("\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"2h\"}"), "cache_control.ttl", "must be \"5m\" or \"1h\""},
        {BODY("\"cache_control\":{}"), "cache_control.type", "must be a string"},
        {BODY("\"system\":[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{}}]"), "system[0].cache_control.type",
         "must be a string"},
        {BODY("\"tools\":[{\"name\":\"f\",\"cache_control\":[]}]"), "tools[0].cache_control", "must be an object"},
        {BODY("\"cache_control\":{\"type\":\"ephemeral\"},\"system\":[" MARKED("a") "," MARKED("b") "," MARKED("c") "," MARKED(
             "d") "]"),
         "cache_control", "at 4 places"},
        {BODY("\"thinking\":{\"type\":\"on\"}"), "thinking.type", "must be \"enabled\""},
        {BODY("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":0}"), "thinking.budget_tokens",
         "'thinking.budget_tokens' is 0; it must be from 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        openai_error error;
        assert_body_refused(&anthropic_messages, cases[i].body, 400, cases[i].param, cases[i].message);
        char *answer = count(cases[i].body, &error);
        assert_null(answer);
        assert_string_equal(error.param, cases[i].param);
    }
}

/* ---- cache_control ---- */

#define SHORT(text)   "{\"type\":\"text\",\"text\":\"" text "\",\"cache_control\":{\"type\":\"ephemeral\"}}"
#define SAYS(content) "{\"role\":\"assistant\",\"content\":" content "}"

/* The fake chat joins the contents and adds a token: up to the mark a prompt has those of its text, less one if they are odd.
 */
static void marked_tokens_are_pinned(void **state) {
    (void)state;
    static const struct {
        const char *body;
        int64_t pin_tokens;
        int32_t ttl_s;
    } cases[] = {
        {"{\"messages\":[" USER("[" TEXT("abcd") "]") "]}", 0, 0},
        {"{\"system\":[" SHORT("abcd") "],\"messages\":[" USER("\"efgh\"") "]}", 4, 300},
        {"{\"system\":[" MARKED("abc") "],\"messages\":[" USER("\"efgh\"") "]}", 2, 3600},
        {"{\"system\":[" MARKED("ab") "," TEXT("cd") "],\"messages\":[" USER("\"efgh\"") "]}", 2, 3600},
        {"{\"system\":[" MARKED("a") "],\"messages\":[" USER("\"efgh\"") "]}", 0, 0}, /* too short */
        /* the last one decides how far, and the longest time how long */
        {"{\"system\":[" MARKED("ab") "],\"messages\":[" USER("[" SHORT("cd") "," TEXT("ef") "]") "]}", 4, 3600},
        {"{\"messages\":[" USER("[" SHORT("ab") "," SHORT("cd") "]") "," SAYS("\"ef\"") "," USER("\"gh\"") "]}", 4, 300},
        {"{\"messages\":[" USER("\"ab\"") "," SAYS("[" SHORT("cd") "," TEXT("ef") "]") "," USER("\"gh\"") "]}", 4, 300},
        {"{\"messages\":[" USER("\"ab\"") "," SAYS("\"cd\"") "," USER("[" SHORT("ef") "]") "]}", 6, 300},
        {"{\"messages\":[" USER("\"ab\"") "," SAYS("[" SHORT("cd") "]") "]}", 4, 300}, /* which the answer continues */
        {"{\"messages\":[" USER("\"ab\"") "," SAYS("\"cd\"") "," USER(
             "\"efg\"") "],\"cache_control\":{\"type\":\"ephemeral\"}}",
         8, 300},
        /* that of a tool covers the system, behind which tools may be written */
        {"{\"system\":\"abcd\",\"tools\":[{\"name\":\"f\",\"input_schema\":{},\"cache_control\":{\"type\":\"ephemeral\"}}],"
         "\"messages\":[" USER("\"efgh\"") "]}",
         4, 300},
        {"{\"tools\":[{\"name\":\"f\",\"input_schema\":{},\"cache_control\":{\"type\":\"ephemeral\"}}],\"messages\":[" USER(
             "\"efgh\"") "]}",
         0, 0},
        {"{\"messages\":[" USER("\"ab\"") "," SAYS("[{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{}}]") "," USER(
             "[{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":[" SHORT("cd") "," TEXT("ef") "]}]") "]}",
         4, 300},
        {"{\"system\":[" SHORT("abcd") "],\"messages\":[" USER("\"efgh\"") "],\"cache_salt\":\"s\"}", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int can_pin = 0; can_pin < 2; can_pin++) {
            openai_context context = fake_context();
            openai_request r;
            openai_error error;
            context.can_pin = can_pin;
            json_t *json = json_loads(cases[i].body, 0, NULL);
            if (!anthropic_messages.parse(&context, json, &r, &error)) fail_msg("%s: %s", cases[i].body, error.message);
            json_decref(json);
            if (r.params.pin_tokens != (can_pin ? cases[i].pin_tokens : 0) || r.pin_ttl_s != (can_pin ? cases[i].ttl_s : 0))
                fail_msg("%s: %lld tokens for %d s", cases[i].body, (long long)r.params.pin_tokens, r.pin_ttl_s);
            openai_request_free(&r);
        }
}

/* What the template refuses up to the mark is not pinned, and the request is accepted all the same. */
static void a_mark_that_cannot_be_found_pins_nothing(void **state) {
    (void)state;
    openai_context context = fake_context();
    openai_request r;
    openai_error error;
    context.can_pin = true;
    context.n_ctx = 3; /* 12 bytes at most: the user's message that stands for the absent one makes the text too long */
    json_t *json =
        json_loads("{\"system\":[" SHORT("abcdefgh") "],\"messages\":[" USER("[{\"type\":\"other\"}]") "]}", 0, NULL);
    if (!anthropic_messages.parse(&context, json, &r, &error)) fail_msg("%s", error.message);
    json_decref(json);
    assert_true(r.params.pin_tokens == 0 && r.pin_ttl_s == 0);
    openai_request_free(&r);
}

/* An input that is no object is noted for the log by its own name, also if the chat up to a mark has none. */
static void odd_inputs_are_noted(void **state) {
    (void)state;
    openai_context context = fake_context();
    openai_request r;
    openai_error error;
    context.can_pin = true;
    json_t *json =
        json_loads("{\"messages\":[" USER("[" MARKED("abcd") "]") ",{\"role\":\"assistant\",\"content\":[" TEXT(
                       "x") ",{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\",\"input\":\"{\\\"x\"}]}," USER("\"y\"") "]}",
                   0, NULL);
    if (!anthropic_messages.parse(&context, json, &r, &error)) fail_msg("%s", error.message);
    json_decref(json);
    assert_string_equal(r.odd.text, "messages[1].content[1].input");
    assert_true(r.params.pin_tokens > 0);
    openai_request_free(&r);
}

/* Tokens that a request has pinned, and did not find in the cache, are those that it has created there. */
static void pinned_tokens_count_as_created(void **state) {
    (void)state;
    static const struct {
        int64_t n_pinned;
        int32_t ttl_s;
        const char *usage;
    } cases[] = {
        {8, 300,
         "{\"input_tokens\":2,\"cache_creation_input_tokens\":4,\"cache_read_input_tokens\":4,\"cache_creation\":{"
         "\"ephemeral_5m_input_tokens\":4,\"ephemeral_1h_input_tokens\":0},\"output_tokens\":2}"},
        {8, 3600,
         "{\"input_tokens\":2,\"cache_creation_input_tokens\":4,\"cache_read_input_tokens\":4,\"cache_creation\":{"
         "\"ephemeral_5m_input_tokens\":0,\"ephemeral_1h_input_tokens\":4},\"output_tokens\":2}"},
        {2, 3600,
         "{\"input_tokens\":6,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":4," NOTHING_CREATED
         "\"output_tokens\":2}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scene s;
        scene_begin(&s, &anthropic_messages, "{\"messages\":[" USER("\"ab\"") "]}");
        s.request.pin_ttl_s = cases[i].ttl_s;
        const cl_engine_event event = {.kind = CL_EVENT_END,
                                       .end = {.finish = CL_ENGINE_STOP, .stop = -1},
                                       .text = "",
                                       .last = true,
                                       .n_prompt = 10,
                                       .n_cached = 4,
                                       .n_completion = 2,
                                       .n_pinned = cases[i].n_pinned};
        openai_result_add(&s.result, 0, &event, 0);
        json_t *answer = scene_answer(&s);
        assert_at(answer, "/usage", cases[i].usage);
        json_decref(answer);
        scene_end(&s);
    }
}

/* ---- Errors ---- */

static void errors_have_anthropics_types(void **state) {
    (void)state;
    static const struct {
        int status;
        const char *code, *expected;
    } cases[] = {
        {400, NULL, "{\"type\":\"invalid_request_error\",\"message\":\"m\"}"},
        {400, "context_length_exceeded", "{\"type\":\"invalid_request_error\",\"message\":\"prompt is too long: m\"}"},
        {401, "invalid_api_key", "{\"type\":\"authentication_error\",\"message\":\"m\"}"},
        {403, NULL, "{\"type\":\"permission_error\",\"message\":\"m\"}"},
        {404, NULL, "{\"type\":\"not_found_error\",\"message\":\"m\"}"},
        {405, NULL, "{\"type\":\"invalid_request_error\",\"message\":\"m\"}"},
        {413, NULL, "{\"type\":\"request_too_large\",\"message\":\"m\"}"},
        {429, NULL, "{\"type\":\"rate_limit_error\",\"message\":\"m\"}"},
        {500, NULL, "{\"type\":\"api_error\",\"message\":\"m\"}"},
        {503, NULL, "{\"type\":\"overloaded_error\",\"message\":\"m\"}"},
        {504, NULL, "{\"type\":\"timeout_error\",\"message\":\"m\"}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const openai_error error = {.status = cases[i].status, .code = cases[i].code, .message = "m"};
        openai_writer w = {0};
        anthropic_messages.write_error(&w, NULL, &error);
        json_t *json = read_writer(&w);
        assert_at(json, "/type", "\"error\"");
        assert_at(json, "/error", cases[i].expected);
        json_decref(json);
    }
}

/* ---- Answers ---- */

#define ASK(fields) "{\"max_tokens\":9,\"messages\":[" USER("\"x\"") "]" fields "}"

static void an_answer_has_blocks(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, &anthropic_messages, ASK(""));
    scene_say(&s, CL_REPLY_REASONING, "hm");
    scene_say(&s, CL_REPLY_CONTENT, "yes");
    scene_say(&s, CL_REPLY_CALL, "f");
    scene_say(&s, CL_REPLY_ARGUMENTS, "{\"x\": 1}");
    scene_finish(&s, CL_ENGINE_STOP, -1);
    json_t *answer = scene_answer(&s);
    assert_at(answer, "",
              "{\"id\":\"msg_id\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"fake\",\"content\":["
              "{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"msg_id\"},{\"type\":\"text\",\"text\":\"yes\"},"
              "{\"type\":\"tool_use\",\"id\":\"call_0\",\"name\":\"f\",\"input\":{\"x\":1}}],\"stop_reason\":\"tool_use\","
              "\"stop_sequence\":null,\"usage\":{\"input_tokens\":6,\"cache_creation_input_tokens\":0,"
              "\"cache_read_input_tokens\":4," NOTHING_CREATED "\"output_tokens\":2}}");
    json_decref(answer);
    scene_end(&s);
}

static void the_end_has_a_reason(void **state) {
    (void)state;
    static const struct {
        cl_engine_finish finish;
        int32_t stop;
        const char *reason, *sequence;
    } cases[] = {
        {CL_ENGINE_STOP, -1, "\"end_turn\"", "null"},
        {CL_ENGINE_STOP, 1, "\"stop_sequence\"", "\"b\""},
        {CL_ENGINE_LENGTH, -1, "\"max_tokens\"", "null"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scene s;
        scene_begin(&s, &anthropic_messages, ASK(",\"stop_sequences\":[\"a\",\"b\"]"));
        scene_say(&s, CL_REPLY_CONTENT, "yes");
        scene_finish(&s, cases[i].finish, cases[i].stop);
        json_t *answer = scene_answer(&s);
        assert_at(answer, "/stop_reason", cases[i].reason);
        assert_at(answer, "/stop_sequence", cases[i].sequence);
        json_decref(answer);
        scene_end(&s);
    }
}

/* Clients may read from the ids whose they are. */
static void ids_begin_as_anthropics(void **state) {
    (void)state;
    openai_context context = fake_context();
    openai_request r;
    openai_error error;
    json_t *body = json_loads(ASK(""), 0, NULL);
    assert_true(anthropic_messages.parse(&context, body, &r, &error));
    assert_string_equal(r.id_prefix, "msg_");
    assert_string_equal(r.call_prefix, "toolu_");
    openai_request_free(&r);
    json_decref(body);
}

/* More tokens than the context holds are as many as it holds. */
static void the_context_may_end_first(void **state) {
    (void)state;
    openai_context context = fake_context();
    context.n_ctx = 10;
    static const struct {
        int max_tokens, given;
    } cases[] = {{3, 3}, {8, 8}, {9, -1}, {32000, -1}}; /* the prompt has 2 tokens */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        openai_request request;
        openai_error error;
        json_t *body =
            json_pack("{s:[{s:s,s:s}],s:i}", "messages", "role", "user", "content", "x", "max_tokens", cases[i].max_tokens);
        assert_true(anthropic_messages.parse(&context, body, &request, &error));
        assert_int_equal(openai_max_tokens(&request, 0), cases[i].given);
        openai_request_free(&request);
        json_decref(body);
    }
    scene s;
    scene_begin(&s, &anthropic_messages, "{\"messages\":[" USER("\"x\"") "]}");
    scene_finish(&s, CL_ENGINE_LENGTH, -1);
    json_t *answer = scene_answer(&s);
    assert_at(answer, "/stop_reason", "\"model_context_window_exceeded\"");
    json_decref(answer);
    scene_end(&s);
}

/* Arguments that were cut off are no object; the answer says so by its stop_reason. */
static void arguments_that_were_cut_are_empty(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, &anthropic_messages, ASK(""));
    scene_say(&s, CL_REPLY_CALL, "f");
    scene_say(&s, CL_REPLY_ARGUMENTS, "{\"x\":");
    scene_finish(&s, CL_ENGINE_LENGTH, -1);
    json_t *answer = scene_answer(&s);
    assert_at(answer, "/content/0/input", "{}");
    assert_at(answer, "/stop_reason", "\"max_tokens\"");
    json_decref(answer);
    scene_end(&s);
}

static void a_stream_tells_blocks_in_order(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, &anthropic_messages, ASK(",\"stream\":true"));
    scene_say(&s, CL_REPLY_REASONING, "hm");
    scene_say(&s, CL_REPLY_CONTENT, "y");
    scene_say(&s, CL_REPLY_CONTENT, "es");
    scene_say(&s, CL_REPLY_CALL, "f");
    scene_say(&s, CL_REPLY_ARGUMENTS, "{\"x\"");
    scene_say(&s, CL_REPLY_ARGUMENTS, ":1}");
    scene_finish(&s, CL_ENGINE_STOP, -1);
    json_t *events = scene_events(&s);
    static const char *const types[] = {
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        NULL,
    };
    assert_types(events, types);
    assert_at(
        events, "/0/1/message",
        "{\"id\":\"msg_id\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"fake\",\"content\":[],\"stop_reason\":"
        "null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":2,\"cache_creation_input_tokens\":0,"
        "\"cache_read_input_tokens\":0," NOTHING_CREATED "\"output_tokens\":0}}");
    assert_at(events, "/2/1",
              "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\","
              "\"signature\":\"\"}}");
    assert_at(events, "/3/1/delta", "{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}");
    assert_at(events, "/4/1/delta", "{\"type\":\"signature_delta\",\"signature\":\"msg_id\"}");
    assert_at(events, "/7/1",
              "{\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"y\"}}");
    assert_at(events, "/10/1/content_block", "{\"type\":\"tool_use\",\"id\":\"call_0\",\"name\":\"f\",\"input\":{}}");
    assert_at(events, "/12/1/delta", "{\"type\":\"input_json_delta\",\"partial_json\":\":1}\"}");
    assert_at(events, "/14/1",
              "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null},\"usage\":{"
              "\"input_tokens\":6,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":4," NOTHING_CREATED
              "\"output_tokens\":2}}");
    json_decref(events);
    scene_end(&s);
}

static void a_stream_that_fails_ends_with_the_error(void **state) {
    (void)state;
    scene s;
    openai_error error;
    scene_begin(&s, &anthropic_messages, ASK(",\"stream\":true"));
    openai_fail_from(&error, NULL, &(cl_error){.code = CL_ERR_TIMEOUT, .message = "too late"});
    anthropic_messages.stream_end(&s.stream, &s.result, &error);
    json_t *events = scene_events(&s);
    assert_at(events, "/2", "[\"error\",{\"type\":\"error\",\"error\":{\"type\":\"timeout_error\",\"message\":\"too late\"}}]");
    json_decref(events);
    scene_end(&s);
}

/* The prompt is counted, and nothing is to be generated. */
static void counting_needs_no_request(void **state) {
    (void)state;
    openai_error error;
    char *answer = count("{\"system\":\"ab\",\"messages\":[" USER("\"xyz\"") "],\"stream\":true}", &error);
    assert_string_equal(answer, "{\"input_tokens\":6}"); /* the fake format adds a token */
    free(answer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_become_messages),         cmocka_unit_test(fields_become_those_of_a_chat),
        cmocka_unit_test(names_of_tools_may_be_long),     cmocka_unit_test(what_is_wrong_is_refused_by_its_own_name),
        cmocka_unit_test(marked_tokens_are_pinned),       cmocka_unit_test(a_mark_that_cannot_be_found_pins_nothing),
        cmocka_unit_test(odd_inputs_are_noted),           cmocka_unit_test(pinned_tokens_count_as_created),
        cmocka_unit_test(errors_have_anthropics_types),   cmocka_unit_test(an_answer_has_blocks),
        cmocka_unit_test(the_end_has_a_reason),           cmocka_unit_test(ids_begin_as_anthropics),
        cmocka_unit_test(the_context_may_end_first),      cmocka_unit_test(arguments_that_were_cut_are_empty),
        cmocka_unit_test(a_stream_tells_blocks_in_order), cmocka_unit_test(a_stream_that_fails_ends_with_the_error),
        cmocka_unit_test(counting_needs_no_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
