/* Ollama's bodies become chats and completions, and a model's text becomes Ollama's answers and lines. */
#include "tests/support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "apis_fixture.h"
#include "fake.h"
#include "openai_fixture.h"

/* ---- Bodies ---- */

/* The fake model with a context of 100 tokens and defaults of its own. */
static openai_context local_context(void) {
    openai_context c = fake_context();
    c.n_ctx = 100;
    c.local.sampling.temperature = 0.75f;
    c.local.max_tokens_completion = -1;
    c.local.parse_special = true;
    return c;
}

static bool parse_in(const openai_context *c, const openai_dialect *dialect, const char *body, openai_request *r,
                     openai_error *error) {
    json_t *json = json_loads(body, 0, NULL);
    assert_non_null(json);
    const bool ok = dialect->parse(c, json, r, error);
    json_decref(json);
    return ok;
}

static void must_parse(const openai_dialect *dialect, const char *body, openai_request *r) {
    const openai_context c = local_context();
    openai_error error;
    if (!parse_in(&c, dialect, body, r, &error)) fail_msg("%s: %s", body, error.message);
}

#define USER           "{\"role\":\"user\",\"content\":\"go\"}"
#define ASK(fields)    "{\"model\":\"any\",\"messages\":[" USER "]," fields "}"
#define PROMPT(fields) "{\"model\":\"any\",\"prompt\":\"go\"," fields "}"

/* The values of the chat that a body becomes. */
static void bodies_become_chats(void **state) {
    (void)state;
    static const struct {
        const openai_dialect *dialect;
        const char *body, *pointer, *expected;
    } cases[] = {
        {&ollama_chat, ASK("\"stream\":false"), "/0/messages", "[" USER "]"},
        {&ollama_chat, ASK("\"stream\":false"), "/0/continue_final_message", "false"},
        {&ollama_chat, ASK("\"stream\":false"), "/0/kwargs", "{}"},
        {&ollama_chat,
         "{\"messages\":[" USER ",{\"role\":\"assistant\",\"thinking\":\"hm\",\"tool_calls\":[{\"function\":{\"index\":0,"
         "\"name\":\"f\",\"arguments\":{\"b\":1,\"a\":[2]}}}]},{\"role\":\"tool\",\"tool_name\":\"f\",\"content\":\"x\"}]}",
         "/0/messages",
         "[" USER ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"type\":\"function\",\"function\":{"
         "\"name\":\"f\",\"arguments\":{\"b\":1,\"a\":[2]}}}],\"reasoning_content\":\"hm\"},{\"role\":\"tool\",\"content\":"
         "\"x\",\"name\":\"f\"}]"},
        {&ollama_chat, "{\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"So\"}]}", "/0/continue_final_message",
         "true"},
        {&ollama_chat, "{\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"So\"}]}", "/0/add_generation_prompt",
         "false"},
        {&ollama_chat, ASK("\"think\":false"), "/0/kwargs", "{\"enable_thinking\":false,\"thinking\":false}"},
        {&ollama_chat, ASK("\"think\":\"high\""), "/0/kwargs",
         "{\"enable_thinking\":true,\"thinking\":true,\"reasoning_effort\":\"high\"}"},
        {&ollama_chat, ASK("\"think\":\"none\""), "/0/kwargs",
         "{\"enable_thinking\":false,\"thinking\":false,\"reasoning_effort\":\"none\"}"},
        {&ollama_generate, PROMPT("\"stream\":false"), "/0/messages", "[" USER "]"},
        {&ollama_generate, PROMPT("\"system\":\"be kind\",\"think\":true"), "/0/messages",
         "[{\"role\":\"system\",\"content\":\"be kind\"}," USER "]"},
        {&ollama_generate, PROMPT("\"think\":true"), "/0/kwargs", "{\"enable_thinking\":true,\"thinking\":true}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *chats = json_array();
        openai_request r;
        fake_record_chats(chats, false);
        must_parse(cases[i].dialect, cases[i].body, &r);
        fake_record_chats(NULL, false);
        assert_at(chats, cases[i].pointer, cases[i].expected);
        openai_request_free(&r);
        json_decref(chats);
    }
}

/* Options have their effect, or none because they concern how Ollama runs a model. */
static void options_are_read(void **state) {
    (void)state;
    openai_request r;
    must_parse(&ollama_chat,
               ASK("\"keep_alive\":\"5m\",\"n\":3,\"n_cmpl\":2,\"truncate\":true,\"options\":{\"temperature\":0.5,\"top_k\":7,"
                   "\"top_p\":0.25,\"min_p\":0.125,\"seed\":3,\"num_predict\":9,\"stop\":[\"a\"],\"repeat_penalty\":1.5,"
                   "\"repeat_last_n\":5,\"presence_penalty\":0.75,\"frequency_penalty\":-0.5,\"num_ctx\":100,\"num_gpu\":1,"
                   "\"use_mmap\":true,\"num_keep\":4,\"mirostat\":0,\"typical_p\":1,\"tfs_z\":1.0}"),
               &r);
    const cl_sampler_params *p = &r.params.sampling;
    assert_true(p->temperature == 0.5f && p->top_k == 7 && p->top_p == 0.25f && p->min_p == 0.125f && p->seed == 3);
    assert_true(p->repetition_penalty == 1.5f && p->presence_penalty == 0.75f && p->frequency_penalty == -0.5f);
    assert_true(r.params.penalty_window == 5 && r.params.max_tokens == 9 && r.params.n_stop == 1 && r.n == 1);
    assert_string_equal(r.stop[0], "a");
    openai_request_free(&r);
}

/* What a body leaves out is as in llama.cpp; a stream is what it does not refuse. */
static void what_is_left_out_is_local(void **state) {
    (void)state;
    static const char *const unlimited[] = {ASK("\"options\":{\"num_predict\":-1}"), ASK("\"options\":{\"num_predict\":-2}"),
                                            ASK("\"options\":{}"), ASK("\"stream\":null")};
    openai_request r;
    for (size_t i = 0; i < sizeof unlimited / sizeof *unlimited; i++) {
        must_parse(&ollama_chat, unlimited[i], &r);
        assert_true(r.stream && r.params.max_tokens == -1 && r.params.sampling.temperature == 0.75f);
        openai_request_free(&r);
    }
    must_parse(&ollama_generate, PROMPT("\"raw\":true,\"stream\":false"), &r);
    assert_true(!r.stream && r.params.max_tokens == -1 && r.params.sampling.temperature == 0.75f);
    openai_request_free(&r);
}

static void formats_are_grammars(void **state) {
    (void)state;
    static const char *const formats[] = {"\"json\"", "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}"};
    openai_request r;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        for (int raw = 0; raw < 2; raw++) {
            char body[256];
            snprintf(body, sizeof body, "{\"prompt\":\"x\",\"raw\":%s,\"format\":%s}", raw ? "true" : "false", formats[i]);
            must_parse(&ollama_generate, body, &r);
            assert_int_equal(r.params.grammar_kind, CL_GRAMMAR_JSON_SCHEMA);
            assert_string_equal(r.grammar_field, "format");
            if (i == 1) assert_non_null(strstr(r.grammar, "\"integer\""));
            openai_request_free(&r);
        }
    must_parse(&ollama_generate, PROMPT("\"format\":\"\""), &r);
    assert_int_equal(r.params.grammar_kind, CL_GRAMMAR_NONE);
    openai_request_free(&r);
}

static void assert_prompt(const char *body, const int32_t *expected, size_t n) {
    openai_request r;
    must_parse(&ollama_generate, body, &r);
    assert_int_equal(r.prompts[0].tokens.n, n);
    assert_memory_equal(r.prompts[0].tokens.ids, expected, n * sizeof *expected);
    openai_request_free(&r);
}

/* Text without the template, around a gap, and behind an earlier conversation, whose BOS is the only one. */
static void prompts_become_tokens(void **state) {
    (void)state;
    static const int32_t raw[] = {'a', FAKE_END}, gap[] = {FAKE_FIM_PREFIX, 'a', FAKE_FIM_SUFFIX, 'b', FAKE_FIM_MIDDLE},
                         behind[] = {FAKE_BOS, 'x', FAKE_END, 'a', FAKE_END}, alone[] = {FAKE_BOS, 'a', FAKE_END};
    assert_prompt("{\"prompt\":\"a</s>\",\"raw\":true}", raw, 2);
    fake_fill_gaps(true);
    assert_prompt("{\"prompt\":\"a\",\"suffix\":\"b\"}", gap, 5);
    fake_fill_gaps(false);
    fake_add_bos(true);
    assert_prompt("{\"prompt\":\"a\",\"context\":[256,120,257]}", behind, 5);
    assert_prompt("{\"prompt\":\"a\",\"context\":[]}", alone, 3);
    fake_add_bos(false);
}

static void what_is_wrong_is_refused(void **state) {
    (void)state;
    static const struct {
        const openai_dialect *dialect;
        const char *body, *param, *in_message;
    } cases[] = {
        {&ollama_chat, "[]", "", "object"},
        {&ollama_chat, "{\"messages\":\"x\"}", "messages", "must be an array"},
        {&ollama_chat, "{\"messages\":[5]}", "messages[0]", "must be an object"},
        {&ollama_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"images\":[\"aa\"]}]}", "messages[0].images",
         "text alone"},
        {&ollama_chat, "{\"messages\":[{\"role\":\"tool\",\"content\":\"x\",\"tool_name\":5}]}", "messages[0].tool_name",
         "must be a string"},
        {&ollama_chat, ASK("\"tools\":[{\"type\":\"function\"}]"), "tools[0].function", "must be an object"},
        {&ollama_chat, ASK("\"think\":5"), "think", "\"high\""},
        {&ollama_chat, ASK("\"think\":\"huge\""), "think", "\"medium\""},
        {&ollama_chat, ASK("\"format\":\"xml\""), "format", "\"json\""},
        {&ollama_chat, ASK("\"stream\":\"no\""), "stream", "true or false"},
        {&ollama_chat, ASK("\"options\":[]"), "options", "must be an object"},
        {&ollama_chat, ASK("\"options\":{\"temperature\":\"hot\"}"), "options.temperature", "must be a number"},
        {&ollama_chat, ASK("\"options\":{\"top_p\":2}"), "options.top_p", "1"},
        {&ollama_chat, ASK("\"options\":{\"num_predict\":0}"), "options.num_predict", "no limit"},
        {&ollama_chat, ASK("\"options\":{\"num_ctx\":\"8k\"}"), "options.num_ctx", "must be an integer"},
        {&ollama_chat, ASK("\"options\":{\"stop\":[\"\"]}"), "options.stop[0]", "empty"},
        {&ollama_chat, ASK("\"options\":{\"mirostat\":2}"), "options.mirostat", "use 'top_p'"},
        {&ollama_chat, ASK("\"options\":{\"typical_p\":0.5}"), "options.typical_p", "not supported"},
        {&ollama_chat, ASK("\"options\":{\"tfs_z\":0.5}"), "options.tfs_z", "not supported"},
        {&ollama_chat, ASK("\"_debug_render_only\":true"), "_debug_render_only", "/apply-template"},
        {&ollama_generate, "{\"prompt\":[\"x\"]}", "prompt", "must be a string"},
        {&ollama_generate, PROMPT("\"images\":[\"aa\"]"), "images", "text alone"},
        {&ollama_generate, PROMPT("\"template\":\"{{ .Prompt }}\""), "template", "--chat-template"},
        {&ollama_generate, PROMPT("\"raw\":1"), "raw", "true or false"},
        {&ollama_generate, PROMPT("\"raw\":true,\"system\":\"s\""), "system", "'raw'"},
        {&ollama_generate, PROMPT("\"raw\":true,\"context\":[1]"), "context", "'raw'"},
        {&ollama_generate, PROMPT("\"suffix\":\"y\""), "suffix", "fill gaps"},
        {&ollama_generate, PROMPT("\"suffix\":{}"), "suffix", "must be a string, not an object"},
        {&ollama_generate, PROMPT("\"system\":false"), "system", "must be a string, not a boolean"},
        {&ollama_generate, PROMPT("\"context\":[1,999]"), "context[1]", "from 0 to"},
        {&ollama_generate, PROMPT("\"context\":\"x\""), "context", "must be an array"},
        {&ollama_embed, "{\"input\":5}", "input", "must be a string"},
        {&ollama_embed, "{\"input\":\"x\",\"dimensions\":4}", "dimensions", "from 1 to 3"},
        {&ollama_embeddings, "{\"prompt\":[\"a\",\"b\"]}", "prompt", "/api/embed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_body_refused(cases[i].dialect, cases[i].body, 400, cases[i].param, cases[i].in_message);
}

/* Of text, not of what a client wants of it. */
static void the_context_is_a_bound(void **state) {
    (void)state;
    static const struct {
        const openai_dialect *dialect;
        const char *body;
    } larger[] = {
        {&ollama_chat, ASK("\"options\":{\"num_ctx\":101}")},
        {&ollama_generate, PROMPT("\"options\":{\"num_ctx\":9007199254740991,\"num_predict\":1e19}")},
        {&ollama_embed, "{\"input\":\"x\",\"options\":{\"num_ctx\":101}}"},
    };
    openai_context c = local_context();
    char body[8192];
    openai_request r;
    openai_error error;
    for (size_t i = 0; i < sizeof larger / sizeof *larger; i++) {
        assert_true(parse_in(&c, larger[i].dialect, larger[i].body, &r, &error));
        openai_request_free(&r);
    }
    snprintf(body, sizeof body, "{\"prompt\":\"%01000d\"}", 0);
    assert_false(parse_in(&c, &ollama_generate, body, &r, &error));
    assert_error(&error, "prompt", 400, "prompt", "'prompt' has 1000 bytes");
}

static void a_name_may_have_a_tag(void **state) {
    (void)state;
    char *list[] = {"mine", "tagged:latest", "small:1b"};
    const openai_names names = {.names = list, .n = 3};
    static const char *const known[] = {"mine", "mine:latest", "tagged", "tagged:latest", "small:1b"},
                             *const unknown[] = {"mine:1b", "small", "small:latest",      ":latest",
                                                 "latest",  "min",   "mine:latest:latest"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) assert_true(openai_names_have(&names, known[i]));
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) assert_false(openai_names_have(&names, unknown[i]));
    openai_context c = local_context();
    openai_request r;
    openai_error error;
    c.names = &names;
    assert_false(parse_in(&c, &ollama_chat, "{\"model\":\"other\",\"messages\":[]}", &r, &error));
    assert_error(&error, "other", 404, "model", "'mine' or 'tagged:latest'");
}

/* ---- Answers ---- */

/* Without a prompt there is nothing to compute, and nothing to stream. */
static void an_empty_prompt_asks_for_the_model(void **state) {
    (void)state;
    static const struct {
        const openai_dialect *dialect;
        const char *body, *pointer, *expected;
    } cases[] = {
        {&ollama_chat, "{}", "/done_reason", "\"load\""},
        {&ollama_chat, "{\"messages\":[],\"stream\":true}", "/message", "{\"role\":\"assistant\",\"content\":\"\"}"},
        {&ollama_generate, "{\"keep_alive\":0}", "/done", "true"},
        {&ollama_generate, "{\"prompt\":\"\"}", "/response", "\"\""},
        {&ollama_generate, "{\"prompt\":\"\"}", "/created_at", "\"1970-01-01T00:00:01Z\""},
        {&ollama_embed, "{\"input\":[]}", "/embeddings", "[]"},
        {&ollama_embed, "{\"input\":\"\"}", "/model", "\"fake\""},
        {&ollama_embeddings, "{\"prompt\":\"\"}", "/embedding", "[]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scene s;
        scene_begin(&s, cases[i].dialect, cases[i].body);
        assert_true(s.request.n_prompts == 0 && !s.request.stream && openai_result_done(&s.result));
        json_t *answer = scene_answer(&s);
        assert_at(answer, cases[i].pointer, cases[i].expected);
        json_decref(answer);
        scene_end(&s);
    }
}

/* Reasoning, text and two calls, of which one was cut. */
static void say_all(scene *s) {
    scene_say(s, CL_REPLY_REASONING, "hm");
    scene_say(s, CL_REPLY_CONTENT, "Let ");
    scene_say(s, CL_REPLY_CONTENT, "me.");
    scene_say(s, CL_REPLY_CALL, "f");
    scene_say(s, CL_REPLY_ARGUMENTS, "{\"a\":");
    scene_say(s, CL_REPLY_ARGUMENTS, "1}");
    scene_say(s, CL_REPLY_CALL, "g");
    scene_say(s, CL_REPLY_ARGUMENTS, "{\"b\":");
}

#define CALL_F "{\"id\":\"call_0\",\"function\":{\"index\":0,\"name\":\"f\",\"arguments\":{\"a\":1}}}"
#define CALL_G "{\"id\":\"call_1\",\"function\":{\"index\":1,\"name\":\"g\",\"arguments\":{}}}"

static void answers_have_its_members(void **state) {
    (void)state;
    static const struct {
        cl_engine_finish finish;
        const char *reason;
    } ends[] = {{CL_ENGINE_STOP, "\"stop\""}, {CL_ENGINE_LENGTH, "\"length\""}};
    for (size_t i = 0; i < 2; i++) {
        scene s;
        scene_begin(&s, &ollama_chat, ASK("\"stream\":false"));
        say_all(&s);
        scene_finish(&s, ends[i].finish, -1);
        json_t *answer = scene_answer(&s);
        assert_at(answer, "/model", "\"fake\"");
        assert_at(answer, "/created_at", "\"1970-01-01T00:00:01Z\"");
        assert_at(answer, "/message",
                  "{\"role\":\"assistant\",\"content\":\"Let me.\",\"thinking\":\"hm\",\"tool_calls\":[" CALL_F "," CALL_G
                  "]}");
        assert_at(answer, "/done", "true");
        assert_at(answer, "/done_reason", ends[i].reason);
        assert_at(answer, "/prompt_eval_count", "10");
        assert_at(answer, "/eval_count", "2");
        assert_at(answer, "/load_duration", "0");
        assert_at(answer, "/response", NULL);
        assert_at(answer, "/context", NULL);
        assert_at(answer, "/logprobs", NULL);
        json_decref(answer);
        scene_end(&s);
    }
}

/* Durations are in nanoseconds, and never 0, since clients divide by them. */
static void durations_are_measured(void **state) {
    (void)state;
    for (int n = 1; n < 4; n += 2) {
        scene s;
        scene_begin(&s, &ollama_generate, PROMPT("\"stream\":false"));
        s.result.times.begun = 10;
        for (int i = 0; i < n; i++) {
            const cl_engine_event event = {.kind = CL_EVENT_TOKEN,
                                           .token = {.id = 'b'},
                                           .text = "b",
                                           .text_size = 1,
                                           .n_prompt = 2,
                                           .n_completion = i + 1};
            openai_result_add(&s.result, 0, &event, 10.5 + i);
        }
        const cl_engine_event end = {.kind = CL_EVENT_END, .end = {.finish = CL_ENGINE_STOP, .stop = -1}, .last = true};
        openai_result_add(&s.result, 0, &end, 13);
        json_t *answer = scene_answer(&s);
        assert_at(answer, "/total_duration", "3000000000");
        assert_at(answer, "/prompt_eval_duration", "500000000");
        assert_at(answer, "/eval_duration", n == 1 ? "1" : "2000000000");
        json_decref(answer);
        scene_end(&s);
    }
}

/* The text of a templated prompt comes with the tokens of the conversation; that of a raw one does not. */
static void generated_text_has_its_context(void **state) {
    (void)state;
    for (int raw = 0; raw < 2; raw++) {
        scene s;
        scene_begin(&s, &ollama_generate, raw ? PROMPT("\"raw\":true,\"stream\":false") : PROMPT("\"stream\":false"));
        const cl_engine_event event = {.kind = CL_EVENT_TOKEN, .token = {.id = 'b'}, .text = "b", .text_size = 1};
        openai_result_add(&s.result, 0, &event, 1);
        scene_finish(&s, CL_ENGINE_STOP, -1);
        json_t *answer = scene_answer(&s);
        assert_at(answer, "/response", "\"b\"");
        assert_at(answer, "/message", NULL);
        assert_at(answer, "/context", raw ? NULL : "[103,111,257,98]");
        json_decref(answer);
        scene_end(&s);
    }
}

/* The lines of a stream, an array; each is an object. */
static json_t *lines_of(scene *s) {
    char *text = writer_end(&s->stream, NULL), *at = text, *line;
    json_t *lines = json_array();
    while ((line = strsep(&at, "\n")) && at) {
        json_t *json = json_loads(line, 0, NULL);
        assert_non_null(json);
        json_array_append_new(lines, json);
    }
    assert_string_equal(line, ""); /* behind the last line break */
    free(text);
    return lines;
}

/* Text comes as it is written, a call when it is whole, and how it ended in the last line alone. */
static void streams_have_lines(void **state) {
    (void)state;
    static const char *const messages[] = {
        "{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"hm\"}",
        "{\"role\":\"assistant\",\"content\":\"Let \"}",
        "{\"role\":\"assistant\",\"content\":\"me.\"}",
        "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" CALL_F "]}",
        "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" CALL_G "]}",
        "{\"role\":\"assistant\",\"content\":\"\"}",
    };
    enum { N = sizeof messages / sizeof *messages };
    scene s;
    scene_begin(&s, &ollama_chat, "{\"messages\":[" USER "]}");
    say_all(&s);
    scene_finish(&s, CL_ENGINE_STOP, -1);
    json_t *lines = lines_of(&s);
    assert_int_equal(json_array_size(lines), N);
    for (size_t i = 0; i < N; i++) {
        const json_t *line = json_array_get(lines, i);
        assert_at(line, "/message", messages[i]);
        assert_at(line, "/done", i + 1 == N ? "true" : "false");
        assert_at(line, "/done_reason", i + 1 == N ? "\"stop\"" : NULL);
        assert_at(line, "/eval_count", i + 1 == N ? "2" : NULL);
    }
    json_decref(lines);
    scene_end(&s);
}

static void failed_streams_end_with_an_error(void **state) {
    (void)state;
    scene s;
    openai_error error;
    scene_begin(&s, &ollama_generate, "{\"prompt\":\"x\"}");
    scene_say(&s, CL_REPLY_CONTENT, "a");
    openai_refuse(&error, "field", "is the reason");
    s.dialect->stream_end(&s.stream, &s.result, &error);
    json_t *lines = lines_of(&s);
    assert_int_equal(json_array_size(lines), 2);
    assert_at(lines, "/0/response", "\"a\"");
    assert_at(lines, "/1", "{\"error\":\"'field' is the reason\"}");
    json_decref(lines);
    scene_end(&s);
}

static void add_token(scene *s, const char *text) {
    static const cl_sampler_logprob top[] = {{'c', -0.25f}};
    const cl_engine_event event = {.kind = CL_EVENT_TOKEN,
                                   .token = {.id = 'b', .chosen = {'b', -0.5f}, .top = top, .n_top = 1},
                                   .text = text,
                                   .text_size = strlen(text)};
    openai_result_add(&s->result, 0, &event, 1);
    if (s->request.stream) s->dialect->stream_event(&s->stream, &s->result, 0, &event);
}

#define LOGPROBS                                                                                                               \
    "[{\"token\":\"b\",\"logprob\":-0.5,\"bytes\":[98],\"top_logprobs\":[{\"token\":\"c\",\"logprob\":-0.25,\"bytes\":[99]}]}" \
    "]"

/* Each token of a stream comes with its own, also if it has no text yet. */
static void tokens_have_logprobs(void **state) {
    (void)state;
    static const struct {
        const openai_dialect *dialect;
        const char *body;
    } cases[] = {{&ollama_chat, ASK("\"logprobs\":true,\"top_logprobs\":1")},
                 {&ollama_generate, PROMPT("\"logprobs\":true,\"top_logprobs\":1")},
                 {&ollama_generate, PROMPT("\"raw\":true,\"logprobs\":true,\"top_logprobs\":1")}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scene s;
        scene_begin(&s, cases[i].dialect, cases[i].body);
        add_token(&s, "");
        add_token(&s, "bb");
        scene_finish(&s, CL_ENGINE_STOP, -1);
        json_t *answer = scene_answer(&s), *lines = lines_of(&s);
        assert_int_equal(json_array_size(json_object_get(answer, "logprobs")), 2);
        assert_int_equal(json_array_size(lines), 3);
        for (size_t k = 0; k < 3; k++) assert_at(json_array_get(lines, k), "/logprobs", k < 2 ? LOGPROBS : NULL);
        json_decref(lines);
        json_decref(answer);
        scene_end(&s);
    }
}

static void vectors_are_answered(void **state) {
    (void)state;
    static const float states[FAKE_EMBD] = {0, 4, 0};
    static const struct {
        const openai_dialect *dialect;
        const char *body, *pointer;
    } cases[] = {{&ollama_embed, "{\"input\":\"a\",\"truncate\":true}", "/embeddings/0"},
                 {&ollama_embeddings, "{\"prompt\":\"a\"}", "/embedding"}};
    for (size_t i = 0; i < 2; i++) {
        scene s;
        scene_begin(&s, cases[i].dialect, cases[i].body);
        s.result.embeddings[0] = malloc(sizeof states);
        memcpy(s.result.embeddings[0], states, sizeof states);
        s.result.usage[0].prompt_tokens = 5;
        json_t *answer = scene_answer(&s);
        assert_at(answer, cases[i].pointer, "[0.0,1.0,0.0]");
        assert_at(answer, "/prompt_eval_count", i == 0 ? "5" : NULL);
        assert_at(answer, "/eval_count", NULL);
        json_decref(answer);
        scene_end(&s);
    }
}

/* ---- Facts ---- */

#define DETAILS                                                                                                                \
    "{\"parent_model\":\"\",\"format\":\"gguf\",\"family\":\"fake\",\"families\":[\"fake\"],\"parameter_size\":\"1.0M\","      \
    "\"quantization_level\":\"Q8_0\"}"

static void models_are_listed(void **state) {
    (void)state;
    char *list[] = {"mine", "small:1b"};
    const openai_names names = {.names = list, .n = 2};
    openai_context c = local_context();
    openai_writer w = {0};
    c.names = &names;
    c.started_at = 86400;
    ollama_write_models(&w, &c);
    json_t *models = read_writer(&w);
    assert_at(models, "/models/0/name", "\"mine:latest\"");
    assert_at(models, "/models/0/model", "\"mine:latest\"");
    assert_at(models, "/models/1/name", "\"small:1b\"");
    assert_at(models, "/models/2", NULL);
    assert_at(models, "/models/0/modified_at", "\"1970-01-02T00:00:00Z\"");
    assert_at(models, "/models/0/size", "1118112");
    assert_at(models, "/models/0/digest", "\"000000000000fa4e\"");
    assert_at(models, "/models/0/details", DETAILS);
    assert_at(models, "/models/0/context_length", "100");
    json_decref(models);
}

static void models_are_shown(void **state) {
    (void)state;
    char *list[] = {"mine"};
    const openai_names names = {.names = list, .n = 1};
    static const struct {
        const char *body;
        bool known;
    } cases[] = {{"{\"model\":\"mine\"}", true},
                 {"{\"model\":\"mine:latest\",\"verbose\":true}", true},
                 {"{\"name\":\"mine\"}", true},
                 {"{}", true},
                 {"{\"model\":\"other\"}", false},
                 {"{\"name\":\"other\"}", false},
                 {"[]", false}};
    openai_context c = local_context();
    c.names = &names;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *body = json_loads(cases[i].body, 0, NULL);
        openai_writer w = {0};
        openai_error error;
        assert_true(ollama_show(&c, body, &w, &error) == cases[i].known);
        json_decref(body);
        if (!cases[i].known) continue;
        json_t *facts = read_writer(&w);
        assert_at(facts, "/details", DETAILS);
        assert_at(facts, "/template", "\"{{ messages }}\"");
        assert_at(facts, "/parameters", "\"num_ctx 100\"");
        assert_at(facts, "/capabilities", "[\"completion\",\"tools\"]");
        assert_at(facts, "/model_info",
                  "{\"general.architecture\":\"fake\",\"general.basename\":\"fake\",\"general.parameter_count\":1049576,"
                  "\"fake.context_length\":100,\"fake.embedding_length\":3,\"fake.block_count\":2}");
        json_decref(facts);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_become_chats),
        cmocka_unit_test(options_are_read),
        cmocka_unit_test(what_is_left_out_is_local),
        cmocka_unit_test(formats_are_grammars),
        cmocka_unit_test(prompts_become_tokens),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(the_context_is_a_bound),
        cmocka_unit_test(a_name_may_have_a_tag),
        cmocka_unit_test(an_empty_prompt_asks_for_the_model),
        cmocka_unit_test(answers_have_its_members),
        cmocka_unit_test(durations_are_measured),
        cmocka_unit_test(generated_text_has_its_context),
        cmocka_unit_test(streams_have_lines),
        cmocka_unit_test(failed_streams_end_with_an_error),
        cmocka_unit_test(tokens_have_logprobs),
        cmocka_unit_test(vectors_are_answered),
        cmocka_unit_test(models_are_listed),
        cmocka_unit_test(models_are_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
