/* llama-server's bodies become those of other dialects with its own defaults, and its answers and events have its members. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apis_fixture.h"
#include "fake.h"
#include "openai_fixture.h"

static bool parse_as(const openai_dialect *dialect, const char *body, openai_request *r, openai_error *error) {
    openai_context c = fake_context();
    c.local.sampling.temperature = 0.75f;
    c.local.max_tokens_completion = -1;
    c.local.parse_special = true;
    json_t *json = json_loads(body, 0, NULL);
    const bool ok = dialect->parse(&c, json, r, error);
    json_decref(json);
    return ok;
}

static void assert_prompt(const openai_request *r, const int32_t *expected, size_t n) {
    assert_int_equal(r->prompts[0].tokens.n, n);
    assert_memory_equal(r->prompts[0].tokens.ids, expected, n * sizeof *expected);
}

static void bodies_have_other_defaults(void **state) {
    (void)state;
    static const int32_t special[] = {'a', FAKE_END};
    openai_request r;
    openai_error error;
    assert_true(parse_as(&llama_server_completion, "{\"prompt\":\"a</s>\",\"return_tokens\":true}", &r, &error));
    assert_true(r.params.sampling.temperature == 0.75f && r.params.max_tokens == -1 && r.return_tokens);
    assert_prompt(&r, special, 2);
    openai_request_free(&r);
    assert_true(
        parse_as(&llama_server_completion, "{\"prompt\":[\"ab\",\"c\"],\"n_predict\":3,\"temperature\":0}", &r, &error));
    assert_true(r.n_prompts == 2 && r.params.sampling.temperature == 0 && r.params.max_tokens == 3);
    openai_request_free(&r);
    assert_true(parse_as(&llama_server_embedding, "{\"content\":\"a</s>\"}", &r, &error));
    assert_true(r.params.pooling == CL_ENGINE_POOL_LAST);
    assert_prompt(&r, special, 2);
    openai_request_free(&r);
}

/* Of a prompt's parts, only the first begins it; names of special tokens stand for these tokens in each. */
static void prompts_have_parts(void **state) {
    (void)state;
    static const struct {
        const char *prompt;
        size_t n_prompts, n; /* of the first prompt */
        int32_t tokens[5];
        const char *text; /* that the answer repeats */
    } cases[] = {
        {"[12,34,\"ab\",56]", 1, 5, {12, 34, 'a', 'b', 56}, "\014\"ab8"},
        {"[\"a\",5,\"b</s>\"]", 1, 5, {FAKE_BOS, 'a', 5, 'b', FAKE_END}, NULL},
        {"[[\"a\",7],\"b\"]", 2, 3, {FAKE_BOS, 'a', 7}, NULL},
        {"[\"a\",\"b\",\"c\"]", 3, 2, {FAKE_BOS, 'a'}, NULL},
        {"{\"prompt_string\":\"ab\"}", 1, 3, {FAKE_BOS, 'a', 'b'}, NULL},
        {"[{\"prompt_string\":\"a\",\"multimodal_data\":[]},[5]]", 2, 2, {FAKE_BOS, 'a'}, NULL},
    };
    fake_add_bos(true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[128];
        openai_request r;
        openai_error error;
        snprintf(body, sizeof body, "{\"prompt\":%s}", cases[i].prompt);
        assert_true(parse_as(&llama_server_completion, body, &r, &error));
        assert_int_equal(r.n_prompts, cases[i].n_prompts);
        assert_prompt(&r, cases[i].tokens, cases[i].n);
        if (cases[i].text) assert_string_equal(r.prompts[0].text, cases[i].text);
        openai_request_free(&r);
        snprintf(body, sizeof body, "{\"content\":%s}", cases[i].prompt);
        assert_true(parse_as(&llama_server_embedding, body, &r, &error));
        assert_prompt(&r, cases[i].tokens, cases[i].n);
        openai_request_free(&r);
    }
    fake_add_bos(false);
}

/* Where the request says that names of special tokens are text, they are. */
static void names_can_be_text(void **state) {
    (void)state;
    static const int32_t text[] = {'a', '<', '/', 's', '>'};
    openai_request r;
    openai_error error;
    assert_true(parse_as(&llama_server_completion, "{\"prompt\":\"a</s>\",\"parse_special\":false}", &r, &error));
    assert_prompt(&r, text, sizeof text / sizeof *text);
    openai_request_free(&r);
    assert_true(parse_as(&llama_server_embedding, "{\"content\":\"a</s>\",\"parse_special\":false}", &r, &error));
    assert_prompt(&r, text, sizeof text / sizeof *text);
    openai_request_free(&r);
}

static void what_is_wrong_is_refused(void **state) {
    (void)state;
    assert_body_refused(&llama_server_completion, "{\"prompt\":\"ab\",\"return_tokens\":1}", 400, "return_tokens", "true");
    assert_body_refused(&llama_server_completion, "{\"prompt\":\"ab\",\"mirostat\":2}", 400, "mirostat", "top_p");
    assert_body_refused(&llama_server_embedding, "{\"content\":3}", 400, "content", "must be a string");
    assert_body_refused(&llama_server_embedding, "{\"input\":\"a\",\"embd_normalize\":0}", 400, "embd_normalize", "length 1");
    assert_body_refused(&llama_server_infill, "{\"input_prefix\":\"a\"}", 400, "input_suffix", "fill gaps");
    fake_fill_gaps(true);
    assert_body_refused(&llama_server_infill, "{\"input_prefix\":3}", 400, "input_prefix", "must be a string");
    assert_body_refused(&llama_server_infill, "{\"input_extra\":[{\"text\":\"b\"}]}", 400, "input_extra", "input_prefix");
    assert_body_refused(&llama_server_infill, "[]", 400, "", "object");
    fake_fill_gaps(false);
}

/* Texts around a gap are text, whatever they have; one that is empty is the end of the text. */
static void gaps_are_filled(void **state) {
    (void)state;
    static const int32_t within[] = {FAKE_BOS, FAKE_FIM_PREFIX, 'a', 'b', FAKE_FIM_SUFFIX, '<', '/', 's', '>', FAKE_FIM_MIDDLE},
                         at_end[] = {FAKE_FIM_PREFIX, 'a', FAKE_FIM_SUFFIX, FAKE_FIM_MIDDLE};
    openai_request r;
    openai_error error;
    fake_fill_gaps(true);
    fake_add_bos(true);
    assert_true(
        parse_as(&llama_server_infill, "{\"input_prefix\":\"a\",\"prompt\":\"b\",\"input_suffix\":\"</s>\"}", &r, &error));
    assert_prompt(&r, within, sizeof within / sizeof *within);
    openai_request_free(&r);
    fake_add_bos(false);
    assert_true(
        parse_as(&llama_server_infill, "{\"input_prefix\":\"a\",\"input_suffix\":\"\",\"input_extra\":[]}", &r, &error));
    assert_prompt(&r, at_end, sizeof at_end / sizeof *at_end);
    openai_request_free(&r);
    fake_fill_gaps(false);
}

/* ---- Answers ---- */

#define BODY "{\"prompt\":\"ab\",\"n_predict\":5,\"stop\":[\"x\",\"yz\"],\"repeat_last_n\":-1"

static void answers_have_its_members(void **state) {
    (void)state;
    static const struct {
        cl_engine_finish finish;
        int32_t stop;
        const char *type, *word;
    } ends[] = {{CL_ENGINE_STOP, -1, "\"eos\"", "\"\""},
                {CL_ENGINE_STOP, 1, "\"word\"", "\"yz\""},
                {CL_ENGINE_LENGTH, -1, "\"limit\"", "\"\""}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        scene s;
        scene_begin(&s, &llama_server_completion, BODY "}");
        scene_say(&s, CL_REPLY_CONTENT, "hel");
        scene_say(&s, CL_REPLY_CONTENT, "lo\n");
        scene_finish(&s, ends[i].finish, ends[i].stop);
        json_t *answer = scene_answer(&s);
        assert_at(answer, "/content", "\"hello\\n\"");
        assert_at(answer, "/stop", "true");
        assert_at(answer, "/stop_type", ends[i].type);
        assert_at(answer, "/stopping_word", ends[i].word);
        assert_at(answer, "/prompt", "\"ab\"");
        assert_at(answer, "/has_new_line", "true");
        assert_at(answer, "/tokens_evaluated", "10");
        assert_at(answer, "/tokens_cached", "4");
        assert_at(answer, "/generation_settings/n_predict", "5");
        assert_at(answer, "/generation_settings/repeat_last_n", "-1");
        assert_at(answer, "/completion_probabilities", NULL);
        json_decref(answer);
        scene_end(&s);
    }
}

static void add(scene *s, cl_engine_event event, const char *text) {
    event.text = text;
    event.text_size = strlen(text);
    event.n_prompt = 2;
    openai_result_add(&s->result, 0, &event, 0);
    s->dialect->stream_event(&s->stream, &s->result, 0, &event);
}

/* An event of a stream says what its token adds, the last one says how the text ended, and nothing follows. */
static void streams_have_its_members(void **state) {
    (void)state;
    static const char *const contents[] = {"\"he\"", "\"\"", "\"llo\"", "\"\""}, *const tokens[] = {"[1]", "[2]", "[]", "[]"};
    scene s;
    scene_begin(&s, &llama_server_completion, BODY ",\"stream\":true,\"return_tokens\":true}");
    add(&s, (cl_engine_event){.kind = CL_EVENT_TOKEN, .token = {.id = 1}}, "he");
    add(&s, (cl_engine_event){.kind = CL_EVENT_TOKEN, .token = {.id = 2}}, "");
    add(&s, (cl_engine_event){.kind = CL_EVENT_END, .end = {.finish = CL_ENGINE_LENGTH, .stop = -1}, .last = true}, "llo");
    s.dialect->stream_end(&s.stream, &s.result, NULL);
    char *text = writer_end(&s.stream, NULL), *at = text;
    for (size_t i = 0; i < 4; i++) {
        char *line = strsep(&at, "\n"), *blank = strsep(&at, "\n");
        assert_true(strncmp(line, "data: ", 6) == 0 && blank && !*blank);
        json_t *event = json_loads(line + 6, 0, NULL);
        assert_at(event, "/content", contents[i]);
        assert_at(event, "/tokens", tokens[i]);
        assert_at(event, "/stop", i == 3 ? "true" : "false");
        assert_at(event, "/stop_type", i == 3 ? "\"limit\"" : NULL);
        json_decref(event);
    }
    assert_string_equal(at, "");
    free(text);
    scene_end(&s);
}

static void vectors_are_in_arrays(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, &llama_server_embedding, "{\"input\":\"a\",\"dimensions\":2}");
    static const float states[FAKE_EMBD] = {3, 4, 5};
    s.result.embeddings[0] = malloc(sizeof states);
    memcpy(s.result.embeddings[0], states, sizeof states);
    json_t *answer = scene_answer(&s);
    assert_at(answer, "/0/index", "0");
    assert_true(json_number_value(json_array_get(json_array_get(json_object_get(json_array_get(answer, 0), "embedding"), 0),
                                                 1)) == (double)0.8f);
    json_decref(answer);
    scene_end(&s);
}

/* Also of requests that do not ask for them. */
static void answers_have_timings(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, &llama_server_completion, BODY "}");
    s.result.times.begun = 10;
    for (int i = 0; i < 3; i++) {
        const cl_engine_event event = {
            .kind = CL_EVENT_TOKEN, .token = {.id = 'b'}, .text = "b", .text_size = 1, .n_prompt = 2, .n_completion = i + 1};
        openai_result_add(&s.result, 0, &event, 10.5 + i);
    }
    json_t *answer = scene_answer(&s);
    assert_at(answer, "/timings/prompt_ms", "500.0");
    assert_at(answer, "/timings/predicted_ms", "2000.0");
    json_decref(answer);
    scene_end(&s);
}

/* ---- Facts ---- */

/* With and without a BOS, the text is the one whose completion begins with the tokens of the chat. */
static void chats_are_written(void **state) {
    (void)state;
    json_t *body = json_pack("{s:[{s:s, s:s}]}", "messages", "role", "user", "content", "hi");
    const openai_context c = fake_context();
    for (int bos = 0; bos < 2; bos++) {
        openai_error error;
        openai_writer w = {0};
        fake_add_bos(bos);
        assert_true(llama_server_apply_template(&c, body, &w, &error));
        json_t *answer = read_writer(&w);
        assert_at(answer, "/prompt", "\"hi</s>\"");
        json_decref(answer);
    }
    fake_add_bos(false);
    json_decref(body);
}

static void facts_are_told(void **state) {
    (void)state;
    openai_context c = fake_context();
    openai_writer w = {0};
    c.n_ctx = 100;
    c.local.sampling.temperature = 0.75f;
    c.local.penalty_window = INT32_MAX;
    c.local.max_tokens_completion = -1;
    llama_server_write_props(&w, &c, 7);
    json_t *props = read_writer(&w);
    assert_at(props, "/total_slots", "7");
    assert_at(props, "/default_generation_settings/n_ctx", "100");
    assert_at(props, "/default_generation_settings/params/temperature", "0.75");
    assert_at(props, "/default_generation_settings/params/repeat_last_n", "-1");
    assert_at(props, "/default_generation_settings/params/n_predict", "-1");
    assert_at(props, "/chat_template", "\"{{ messages }}\"");
    assert_at(props, "/bos_token", "\"<s>\"");
    json_decref(props);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_have_other_defaults),
        cmocka_unit_test(prompts_have_parts),
        cmocka_unit_test(names_can_be_text),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(gaps_are_filled),
        cmocka_unit_test(answers_have_its_members),
        cmocka_unit_test(answers_have_timings),
        cmocka_unit_test(streams_have_its_members),
        cmocka_unit_test(vectors_are_in_arrays),
        cmocka_unit_test(chats_are_written),
        cmocka_unit_test(facts_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
