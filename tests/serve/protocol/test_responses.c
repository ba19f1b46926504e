/* Responses' bodies become chats, and a model's text becomes Responses' answers and events. */
#include "tests/support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "apis_fixture.h"
#include "openai_fixture.h"
#include "serve/protocol/responses.h"

/* ---- Bodies ---- */

/* The field of the chat that a body becomes, as compact JSON, is this. */
static void assert_chat(const char *body, const char *pointer, const char *expected) {
    const openai_context context = fake_context();
    openai_translation t;
    openai_error error;
    json_t *json = json_loads(body, 0, NULL);
    assert_non_null(json);
    if (!responses_translate(&t, &context, json, &error)) fail_msg("%s: %s", body, error.message);
    assert_at(t.chat, pointer, expected);
    translation_free(&t);
    json_decref(json);
}

#define TEXT(text) "{\"type\":\"text\",\"text\":\"" text "\"}"

static void items_become_messages(void **state) {
    (void)state;
    static const struct {
        const char *input, *messages;
    } cases[] = {
        {"\"input\":\"hi\"", "[{\"role\":\"user\",\"content\":[" TEXT("hi") "]}]"},
        {"\"instructions\":\"be\",\"input\":[{\"role\":\"developer\",\"content\":\"kind\"},{\"role\":\"user\",\"content\":"
         "\"hi\"},"
         "{\"type\":\"message\",\"role\":\"system\",\"content\":\"late\"}]",
         "[{\"role\":\"system\",\"content\":[" TEXT("be") "," TEXT("kind") "]},{\"role\":\"user\",\"content\":[" TEXT(
             "hi") "]},{\"role\":\"system\",\"content\":[" TEXT("late") "]}]"},
        {"\"instructions\":null,\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"},"
         "{\"type\":\"input_text\",\"text\":\"b\"}]},{\"type\":\"message\",\"role\":\"assistant\",\"status\":\"completed\","
         "\"id\":"
         "\"msg_1\",\"content\":[{\"type\":\"output_text\",\"text\":\"c\",\"annotations\":[]},{\"type\":\"refusal\","
         "\"refusal\":"
         "\"d\"}]}]",
         "[{\"role\":\"user\",\"content\":[" TEXT("a") "," TEXT("b") "]},{\"role\":\"assistant\",\"content\":[" TEXT(
             "c") "," TEXT("d") "]}]"},
        /* reasoning, text and calls are one turn; the outputs follow */
        {"\"input\":[{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"short\"}],"
         "\"content\":[{\"type\":\"reasoning_text\",\"text\":\"lo\"},{\"type\":\"reasoning_text\",\"text\":\"ng\"}]},{\"role\":"
         "\"assistant\",\"content\":\"ok\"},{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"{}\"}"
         ","
         "{\"type\":\"function_call\",\"call_id\":\"c2\",\"name\":\"g\",\"arguments\":\"{\\\"x\\\":1}\"},{\"type\":"
         "\"function_call_output\",\"call_id\":\"c1\",\"output\":\"one\"},{\"type\":\"function_call_output\",\"call_id\":"
         "\"c2\","
         "\"output\":[{\"type\":\"input_text\",\"text\":\"two\"}]}]",
         "[{\"role\":\"assistant\",\"reasoning_content\":\"long\",\"content\":[" TEXT(
             "ok") "],\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},"
                   "{\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{\\\"x\\\":1}\"}}]},"
                   "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":[" TEXT(
                       "one") "]},{\"role\":\"tool\",\"tool_call_id\":\"c2\",\"content\":[" TEXT("two") "]}]"},
        /* calls that were cut or odd */
        {"\"input\":[{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"{\\\"x\"},{\"type\":"
         "\"function_call\","
         "\"call_id\":\"c2\",\"name\":\"g\"},{\"type\":\"function_call\",\"call_id\":\"c3\",\"name\":\"h\",\"arguments\":{"
         "\"a\":1}}]",
         "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
         "\"arguments\":"
         "\"{\\\"x\"}},{\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"\"}},{\"id\":\"c3\","
         "\"type\":"
         "\"function\",\"function\":{\"name\":\"h\",\"arguments\":\"{\\\"a\\\":1}\"}}]}]"},
        /* a summary stands for reasoning that was not shown; parts that this server cannot read are skipped */
        {"\"input\":[{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"short\"}]},"
         "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"{}\"},{\"role\":\"assistant\","
         "\"content\":"
         "\"then\"},{\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"x\"},{\"type\":\"web_search_call\",\"id\":"
         "\"w\"},"
         "{\"type\":\"custom_tool_call\",\"call_id\":\"c3\",\"name\":\"apply_patch\",\"input\":\"*** Begin\"},{\"type\":"
         "\"custom_tool_call_output\",\"call_id\":\"c3\",\"output\":\"done\"}]",
         "[{\"role\":\"assistant\",\"reasoning_content\":\"short\",\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\","
         "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"assistant\",\"content\":[" TEXT(
             "then") "],\"tool_calls\":[{\"id\":\"c3\",\"type\":\"function\",\"function\":{\"name\":\"apply_patch\","
                     "\"arguments\":\"{\\\"input\\\":\\\"*** Begin\\\"}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c3\","
                     "\"content\":[" TEXT("done") "]}]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[4096];
        snprintf(body, sizeof body, "{%s}", cases[i].input);
        assert_chat(body, "/messages", cases[i].messages);
    }
}

#define FUNCTION(name)  "{\"type\":\"function\",\"name\":\"" name "\",\"parameters\":{},\"strict\":true}"
#define CHAT_TOOL(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":{},\"strict\":true}}"

static void fields_become_those_of_a_chat(void **state) {
    (void)state;
    static const struct {
        const char *fields, *pointer, *expected;
    } cases[] = {
        {"\"tools\":[" FUNCTION("f") ",{\"type\":\"web_search\"},{\"type\":\"custom\",\"name\":\"p\"}," FUNCTION("g") "]",
         "/tools", "[" CHAT_TOOL("f") "," CHAT_TOOL("g") "]"},
        {"\"tools\":[{\"type\":\"namespace\",\"name\":\"mcp\",\"tools\":[" FUNCTION(
             "f") ",{\"type\":\"custom\",\"name\":\"p\"}]}]",
         "/tools", "[" CHAT_TOOL("mcp__f") "]"},
        {"\"tools\":[{\"type\":\"local_shell\"}],\"tool_choice\":\"auto\",\"parallel_tool_calls\":true", "",
         "{\"messages\":[{\"role\":\"user\",\"content\":[" TEXT("x") "]}]}"},
        {"\"tools\":[" FUNCTION("f") "],\"tool_choice\":\"required\"", "/tool_choice", "\"required\""},
        {"\"tools\":[" FUNCTION("f") "],\"parallel_tool_calls\":false", "/parallel_tool_calls", "false"},
        {"\"tools\":[" FUNCTION("f") "],\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"}", "/tool_choice",
         "{\"type\":\"function\",\"name\":\"f\"}"},
        {"\"max_output_tokens\":7", "/max_completion_tokens", "7"},
        {"\"max_output_tokens\":9007199254740991", "/max_completion_tokens", "9007199254740991"},
        {"\"text\":{\"format\":{\"type\":\"json_object\"},\"verbosity\":\"low\"}", "/response_format",
         "{\"type\":\"json_object\"}"},
        {"\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"strict\":true,\"schema\":{\"type\":\"object\"}}}",
         "/response_format",
         "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"strict\":true,\"schema\":{\"type\":\"object\"}}}"},
        {"\"reasoning\":{\"effort\":\"low\",\"summary\":\"auto\"}", "/reasoning_effort", "\"low\""},
        {"\"reasoning\":{\"effort\":\"none\"}", "/reasoning_effort", "\"none\""},
        {"\"temperature\":0.5,\"top_k\":3,\"store\":true,\"include\":[\"reasoning.encrypted_content\"]", "/temperature", "0.5"},
        {"\"top_k\":3", "/top_k", "3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[2048];
        snprintf(body, sizeof body, "{\"input\":\"x\",%s}", cases[i].fields);
        assert_chat(body, cases[i].pointer, cases[i].expected);
    }
}

#define BODY(fields) "{\"input\":\"x\"," fields "}"

static void what_is_wrong_is_refused_by_its_own_name(void **state) {
    (void)state;
    static const struct {
        const char *body, *param, *message;
    } cases[] = {
        {"[]", "", "must be a JSON object"},
        {"{}", "input", "'input' must be a string or an array"},
        {"{\"input\":[]}", "input", "at least one item"},
        {"{\"input\":[3]}", "input[0]", "'input[0]' must be an object"},
        {"{\"input\":[{}]}", "input[0]", "refers to an item"},
        {"{\"input\":[{\"type\":\"item_reference\",\"id\":\"msg_1\"}]}", "input[0]", "keeps none"},
        {"{\"input\":[{\"role\":\"tool\",\"content\":\"x\"}]}", "input[0].role", "'input[0].role' must be"},
        {"{\"input\":[{\"role\":\"user\"}]}", "input[0].content", "must be a string or an array"},
        {"{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"x\"},{\"type\":\"input_image\"}]}]}",
         "input[0].content[1]", "accepts only text"},
        {"{\"input\":[{\"type\":\"function_call\",\"name\":\"f\",\"arguments\":\"{}\"}]}", "input[0].call_id",
         "must be a string"},
        {"{\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"c\"}]}", "input[0].output", "must be a string"},
        {"{\"input\":\"x\",\"instructions\":[]}", "instructions", "must be a string, not an array"},
        {BODY("\"previous_response_id\":\"resp_1\""), "previous_response_id", "does not keep answers"},
        {BODY("\"background\":true"), "background", "does not keep"},
        {BODY("\"conversation\":\"c\""), "conversation", "does not keep"},
        {BODY("\"max_output_tokens\":0"), "max_output_tokens", "'max_output_tokens' is 0"},
        {BODY("\"max_output_tokens\":-1"), "max_output_tokens", "'max_output_tokens' is -1; it must be from 1 to 2147483647"},
        {BODY("\"max_output_tokens\":\"7\""), "max_output_tokens", "'max_output_tokens' must be an integer"},
        {BODY("\"temperature\":-1"), "temperature", "'temperature' is -1"},
        {BODY("\"stream\":1"), "stream", "'stream' must be true or false"},
        {BODY("\"tools\":{}"), "tools", "must be an array"},
        {BODY("\"tools\":[3]"), "tools[0]", "must be an object"},
        {BODY("\"tools\":[{\"type\":\"function\"}]"), "tools[0].name", "must be a string"},
        {BODY("\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[{\"type\":\"function\"}]}]"),
         "tools[0].tools[0].name", "must be a string"},
        {BODY("\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[" FUNCTION("no name") "]}]"),
         "tools[0].tools[0].name", "'tools[0].tools[0].name' must be a string of 1 to 130"},
        {BODY("\"tool_choice\":{\"type\":\"web_search\"}"), "tool_choice", "runs no tools itself"},
        {BODY("\"tools\":[" FUNCTION("f") "],\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[]}"),
         "tool_choice", "some of the tools"},
        {BODY("\"text\":3"), "text", "must be an object"},
        {BODY("\"text\":18446744073709551616"), "text", "must be an object"},
        {BODY("\"text\":{\"format\":{}}"), "text.format.type", "must be a string"},
        {BODY("\"reasoning\":{\"effort\":3}"), "reasoning.effort", "must be a string"},
        {BODY("\"metadata\":[]"), "metadata", "must be an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_body_refused(&openai_responses, cases[i].body, 400, cases[i].param, cases[i].message);
}

/* ---- Answers ---- */

#define ASK(fields) "{\"input\":\"x\",\"max_output_tokens\":9" fields "}"

static void an_answer_has_items(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, &openai_responses,
                ASK(",\"instructions\":\"be\",\"metadata\":{\"a\":\"b\"},\"store\":true,\"user\":\"u\",\"temperature\":0.25"));
    scene_say(&s, CL_REPLY_REASONING, "hm");
    scene_say(&s, CL_REPLY_CONTENT, "yes");
    scene_say(&s, CL_REPLY_CALL, "f");
    scene_say(&s, CL_REPLY_ARGUMENTS, "{\"x\":1}");
    scene_finish(&s, CL_ENGINE_STOP, -1);
    json_t *answer = scene_answer(&s);
    assert_at(answer, "/id", "\"resp_id\"");
    assert_at(answer, "/object", "\"response\"");
    assert_at(answer, "/status", "\"completed\"");
    assert_at(answer, "/error", "null");
    assert_at(answer, "/incomplete_details", "null");
    assert_at(answer, "/store", "false");
    assert_at(answer, "/instructions", "\"be\"");
    assert_at(answer, "/metadata", "{\"a\":\"b\"}");
    assert_at(answer, "/max_output_tokens", "9");
    assert_at(answer, "/temperature", "0.25");
    assert_at(answer, "/top_p", "1.0");
    assert_at(answer, "/text", "{\"format\":{\"type\":\"text\"}}");
    assert_at(answer, "/tool_choice", "\"auto\"");
    assert_at(answer, "/tools", "[]");
    assert_at(answer, "/user", "\"u\"");
    assert_at(answer, "/output/0",
              "{\"id\":\"rs_id00\",\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":"
              "\"hm\"}],\"encrypted_content\":null,\"status\":\"completed\"}");
    assert_at(
        answer, "/output/1",
        "{\"id\":\"msg_id01\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":"
        "\"yes\",\"annotations\":[],\"logprobs\":[]}],\"status\":\"completed\"}");
    assert_at(answer, "/output/2",
              "{\"id\":\"fc_id02\",\"type\":\"function_call\",\"call_id\":\"call_0\",\"name\":\"f\",\"arguments\":"
              "\"{\\\"x\\\":1}\",\"status\":\"completed\"}");
    assert_int_equal(json_array_size(json_object_get(answer, "output")), 3);
    assert_at(
        answer, "/usage",
        "{\"input_tokens\":10,\"input_tokens_details\":{\"cached_tokens\":4,\"cache_write_tokens\":0},\"output_tokens\":2,"
        "\"output_tokens_details\":{\"reasoning_tokens\":1},\"total_tokens\":12}");
    json_decref(answer);
    scene_end(&s);
}

/* The response in the last event is the whole answer. */
static void assert_ends_whole(scene *s, const json_t *events) {
    json_t *answer = scene_answer(s);
    const json_t *last = json_array_get(events, json_array_size(events) - 1);
    assert_true(json_equal(json_object_get(json_array_get(last, 1), "response"), answer));
    json_decref(answer);
}

/* A namespace is part of the name that the model sees, and of the history, but apart in answers. */
static void calls_have_namespaces(void **state) {
    (void)state;
    assert_chat("{\"input\":[{\"type\":\"function_call\",\"call_id\":\"c\",\"namespace\":\"mcp\",\"name\":\"f\",\"arguments\":"
                "\"{}\"}]}",
                "/messages/0/tool_calls/0/function/name", "\"mcp__f\"");
    scene s;
    scene_begin(&s, &openai_responses,
                ASK(",\"stream\":true,\"tools\":[{\"type\":\"namespace\",\"name\":\"mcp\",\"tools\":[" FUNCTION("f") "]}]"));
    scene_say(&s, CL_REPLY_CALL, "mcp__f");
    scene_say(&s, CL_REPLY_CALL, "mcp__g");
    scene_finish(&s, CL_ENGINE_STOP, -1);
    json_t *answer = scene_answer(&s), *events = scene_events(&s);
    assert_at(answer, "/output/0/name", "\"f\"");
    assert_at(answer, "/output/0/namespace", "\"mcp\"");
    assert_at(answer, "/output/1/name", "\"mcp__g\""); /* the namespace has no such function */
    assert_at(answer, "/tools/0/name", "\"mcp\"");
    assert_at(events, "/2/1/item/namespace", "\"mcp\"");
    assert_ends_whole(&s, events);
    json_decref(answer);
    json_decref(events);
    scene_end(&s);
}

/* Text behind a call is an item of its own. Here the events' text is split as the format says. */
static void replies_are_split_into_items(void **state) {
    (void)state;
    static const char *const texts[] = {"first", "<tool_call>{\"name\": \"f\", \"argu", "ments\": {}}</tool_call>", "second",
                                        ""};
    const size_t n = sizeof texts / sizeof *texts;
    scene s;
    scene_begin(&s, &openai_responses, ASK(",\"stream\":true,\"tools\":[" FUNCTION("f") "]"));
    for (size_t i = 0; i < n; i++) {
        const bool last = i + 1 == n;
        cl_engine_event event = {.kind = CL_EVENT_TOKEN, .token = {.id = 'x'}, .text = texts[i], .text_size = strlen(texts[i])};
        if (last)
            event = (cl_engine_event){
                .kind = CL_EVENT_END, .end = {.finish = CL_ENGINE_STOP, .stop = -1}, .text = texts[i], .last = true};
        openai_result_add(&s.result, 0, &event, 0);
        assert_false(s.result.failed);
        s.dialect->stream_event(&s.stream, &s.result, 0, &event);
    }
    s.dialect->stream_end(&s.stream, &s.result, NULL);
    json_t *answer = scene_answer(&s), *events = scene_events(&s);
    assert_int_equal(json_array_size(json_object_get(answer, "output")), 3);
    assert_at(answer, "/output/0/content/0/text", "\"first\"");
    assert_at(answer, "/output/1/name", "\"f\"");
    assert_at(answer, "/output/1/arguments", "\"{}\"");
    assert_at(answer, "/output/2/content/0/text", "\"second\"");
    assert_ends_whole(&s, events);
    char *text = joined(events, "response.output_text.delta", "/delta");
    assert_string_equal(text, "firstsecond");
    free(text);
    json_decref(answer);
    json_decref(events);
    scene_end(&s);
}

static void an_answer_that_was_cut_is_incomplete(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, &openai_responses, ASK(",\"reasoning\":{\"summary\":\"auto\"}"));
    scene_say(&s, CL_REPLY_REASONING, "hm");
    scene_say(&s, CL_REPLY_CONTENT, "ye");
    scene_finish(&s, CL_ENGINE_LENGTH, -1);
    json_t *answer = scene_answer(&s);
    assert_at(answer, "/status", "\"incomplete\"");
    assert_at(answer, "/incomplete_details", "{\"reason\":\"max_output_tokens\"}");
    assert_at(answer, "/output/0",
              "{\"id\":\"rs_id00\",\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"hm\"}],"
              "\"encrypted_content\":null,\"status\":\"completed\"}");
    assert_at(answer, "/output/1/status", "\"incomplete\"");
    json_decref(answer);
    scene_end(&s);
}

/* The sequence numbers of events count from 0. */
static void assert_numbered(const json_t *events) {
    for (size_t i = 0; i < json_array_size(events); i++) {
        json_t *number = json_object_get(json_array_get(json_array_get(events, i), 1), "sequence_number");
        assert_int_equal(json_integer_value(number), i);
    }
}

static void a_stream_tells_items_in_order(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, &openai_responses, ASK(",\"stream\":true"));
    scene_say(&s, CL_REPLY_REASONING, "h");
    scene_say(&s, CL_REPLY_REASONING, "m");
    scene_say(&s, CL_REPLY_CONTENT, "yes");
    scene_say(&s, CL_REPLY_CALL, "f");
    scene_say(&s, CL_REPLY_ARGUMENTS, "{\"x\"");
    scene_say(&s, CL_REPLY_ARGUMENTS, ":1}");
    scene_say(&s, CL_REPLY_CALL, "g");
    scene_finish(&s, CL_ENGINE_STOP, -1);
    json_t *events = scene_events(&s);
    static const char *const types[] = {
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
        NULL,
    };
    assert_types(events, types);
    assert_numbered(events);
    assert_ends_whole(&s, events);
    assert_at(events, "/0/1/response/status", "\"in_progress\"");
    assert_at(events, "/0/1/response/output", "[]");
    assert_at(events, "/0/1/response/usage", "null");
    assert_at(events, "/9/1/item",
              "{\"id\":\"msg_id01\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"status\":\"in_progress\"}");
    assert_at(events, "/10/1/part", "{\"type\":\"output_text\",\"text\":\"\",\"annotations\":[],\"logprobs\":[]}");
    assert_at(events, "/11/1",
              "{\"type\":\"response.output_text.delta\",\"sequence_number\":11,\"item_id\":\"msg_id01\",\"output_index\":1,"
              "\"content_index\":0,\"delta\":\"yes\",\"logprobs\":[]}");
    assert_at(events, "/15/1/item/arguments", "\"\"");
    assert_at(events, "/18/1",
              "{\"type\":\"response.function_call_arguments.done\",\"sequence_number\":18,\"item_id\":\"fc_id02\","
              "\"output_index\":2,\"arguments\":\"{\\\"x\\\":1}\",\"name\":\"f\"}");
    assert_at(events, "/19/1/item/status", "\"completed\"");
    char *text = joined(events, "response.reasoning_text.delta", "/delta");
    assert_string_equal(text, "hm");
    free(text);
    json_decref(events);
    scene_end(&s);
}

static void a_stream_shows_reasoning_as_its_summary(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, &openai_responses, ASK(",\"stream\":true,\"reasoning\":{\"effort\":\"low\",\"summary\":\"auto\"}"));
    scene_say(&s, CL_REPLY_REASONING, "hm");
    scene_finish(&s, CL_ENGINE_LENGTH, -1);
    json_t *events = scene_events(&s);
    static const char *const types[] = {
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.incomplete",
        NULL,
    };
    assert_types(events, types);
    assert_ends_whole(&s, events);
    assert_at(events, "/4/1/summary_index", "0");
    assert_at(events, "/7/1/item/status", "\"incomplete\"");
    assert_at(events, "/8/1/response/reasoning", "{\"effort\":\"low\",\"summary\":\"auto\"}");
    json_decref(events);
    scene_end(&s);
}

static void a_stream_that_fails_says_why(void **state) {
    (void)state;
    scene s;
    openai_error error;
    scene_begin(&s, &openai_responses, ASK(",\"stream\":true"));
    scene_say(&s, CL_REPLY_CONTENT, "y");
    openai_fail_from(&error, NULL, &(cl_error){.code = CL_ERR_TIMEOUT, .message = "too late"});
    openai_responses.stream_end(&s.stream, &s.result, &error);
    json_t *events = scene_events(&s);
    const size_t last = json_array_size(events) - 1;
    const json_t *event = json_array_get(events, last);
    assert_at(event, "/0", "\"response.failed\"");
    assert_at(event, "/1/response/status", "\"failed\"");
    assert_at(event, "/1/response/error", "{\"code\":\"timeout\",\"message\":\"too late\"}");
    assert_numbered(events);
    json_decref(events);
    scene_end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_become_messages),
        cmocka_unit_test(fields_become_those_of_a_chat),
        cmocka_unit_test(what_is_wrong_is_refused_by_its_own_name),
        cmocka_unit_test(an_answer_has_items),
        cmocka_unit_test(calls_have_namespaces),
        cmocka_unit_test(replies_are_split_into_items),
        cmocka_unit_test(an_answer_that_was_cut_is_incomplete),
        cmocka_unit_test(a_stream_tells_items_in_order),
        cmocka_unit_test(a_stream_shows_reasoning_as_its_summary),
        cmocka_unit_test(a_stream_that_fails_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
