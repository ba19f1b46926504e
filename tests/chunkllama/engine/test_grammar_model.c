/* Real grammars over a real model: answers are JSON that the schema describes, and the same whatever runs beside them. */
#include "tests/support/testing.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recording.h"

enum { N = 8 };

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":24},\"age\":{\"type\":\"integer\","
    "\"minimum\":0,\"maximum\":150},\"role\":{\"enum\":[\"admin\",\"viewer\"]},\"tags\":{\"type\":\"array\",\"items\":{"
    "\"type\":\"string\",\"maxLength\":10},\"maxItems\":3}},\"required\":[\"name\",\"age\",\"role\",\"tags\"],"
    "\"additionalProperties\":false}";
static const char compact[] =
    "{\"x-guidance\":{\"whitespace_flexible\":false},\"type\":\"object\",\"properties\":{\"a_rather_long_name_of_a_property\":{"
    "\"type\":\"boolean\"},\"another_one_that_has_to_follow\":{\"const\":\"nothing else\"}},\"required\":["
    "\"a_rather_long_name_of_a_property\",\"another_one_that_has_to_follow\"],\"additionalProperties\":false}";
static const char date[] = "[0-9]{4}-[0-9]{2}-[0-9]{2}";
static const char list[] = "start: (item \"\\n\"){3}\nitem: \"- \" /[A-Z][a-z]{2,9}/";

typedef struct setting {
    int32_t max_seqs, n_threads;
    uint64_t kv_budget_bytes;
    bool together, drafts;
} setting;

static cl_engine_request request_of(const cl_model *m, int i, cl_token_list *prompt, recording *r) {
    static const char *const prompts[] = {"A person as JSON: ", "Two values as JSON: ", "The date is ", "Three cities:\n"};
    static const struct {
        cl_grammar_kind kind;
        const char *text;
    } grammars[] = {
        {CL_GRAMMAR_JSON_SCHEMA, schema}, {CL_GRAMMAR_JSON_SCHEMA, compact}, {CL_GRAMMAR_REGEX, date}, {CL_GRAMMAR_LARK, list}};
    cl_engine_request request;
    cl_engine_request_init(&request);
    const char *text = prompts[i % 4];
    assert_int_equal(cl_model_tokenize(m, text, strlen(text), CL_TOKENIZE_BEGIN, prompt, NULL), CL_OK);
    request.prompt = prompt->ids;
    request.n_prompt = (int64_t)prompt->n;
    request.max_tokens = 200;
    request.grammar_kind = grammars[i % 4].kind;
    request.grammar = grammars[i % 4].text;
    request.grammar_size = strlen(grammars[i % 4].text);
    request.logprobs = i % 3 != 0;
    request.n = i == 4 ? 3 : 1;
    request.sampling.temperature = i < 4 ? 0 : 1;
    request.sampling.seed = (uint64_t)i;
    request.on_event = recording_event;
    request.ctx = r;
    return request;
}

static cl_engine_stats run(const cl_model *m, const setting *set, recording **recordings) {
    cl_engine_config config;
    cl_engine_config_init(&config);
    config.max_seqs = set->max_seqs;
    config.n_threads = set->n_threads;
    config.n_ctx = 512;
    config.max_step_rows = 128;
    config.chunk_size = 16;
    config.speculate = set->drafts;
    config.row_cost = 0; /* a draft wherever there is one */
    config.kv_budget_bytes = set->kv_budget_bytes;
    config.grammar_library = getenv("CHUNKLLAMA_GRAMMAR_LIBRARY");
    cl_engine *e;
    cl_error error;
    if (cl_engine_create(m, &config, &e, &error) != CL_OK) fail_msg("%s", error.message);
    for (int i = 0; i < N; i++) {
        cl_token_list prompt = {0};
        recordings[i] = recording_create();
        const cl_engine_request request = request_of(m, i, &prompt, recordings[i]);
        if (cl_engine_submit(e, &request, NULL, &error) != CL_OK) fail_msg("%s", error.message);
        cl_token_list_free(&prompt);
        if (!set->together) recording_wait(recordings[i]);
    }
    for (int i = 0; i < N; i++) recording_wait(recordings[i]);
    cl_engine_stats stats = {.struct_size = sizeof stats};
    cl_engine_get_stats(e, &stats);
    cl_engine_destroy(&e);
    return stats;
}

static void expect_json(const recorded_choice *c, bool is_compact) {
    json_error_t error;
    json_t *v = json_loadb(c->text, c->text_size, 0, &error);
    if (!v) fail_msg("%.*s: %s", (int)c->text_size, c->text, error.text);
    if (is_compact) {
        assert_true(json_is_boolean(json_object_get(v, "a_rather_long_name_of_a_property")));
        assert_string_equal(json_string_value(json_object_get(v, "another_one_that_has_to_follow")), "nothing else");
        assert_int_equal(json_object_size(v), 2);
    } else {
        assert_in_range(json_integer_value(json_object_get(v, "age")), 0, 150);
        assert_true(json_is_string(json_object_get(v, "name")) && json_is_array(json_object_get(v, "tags")));
        assert_true(json_array_size(json_object_get(v, "tags")) <= 3);
        assert_int_equal(json_object_size(v), 4);
    }
    json_decref(v);
}

static void expect_text(int i, const recorded_choice *c) {
    assert_int_equal(c->finish, CL_ENGINE_STOP);
    if (i % 4 < 2) {
        expect_json(c, i % 4 == 1);
    } else if (i % 4 == 2) {
        assert_int_equal(c->text_size, 10);
        assert_true(c->text[4] == '-' && c->text[7] == '-');
    } else {
        assert_memory_equal(c->text, "- ", 2);
        assert_int_equal(c->text[c->text_size - 1], '\n');
    }
}

static void answers_match_and_are_the_same_everywhere(void **state) {
    (void)state;
    const char *library = getenv("CHUNKLLAMA_GRAMMAR_LIBRARY"), *path = getenv("CHUNKLLAMA_MODEL");
    if (!library || !*library || !path) skip();
    static const setting settings[] = {
        {3, 1, 64 << 20, false, false},
        {8, 2, 64 << 20, true, false},
        {16, 2, 64 << 20, true, true},
        {8, 1, 8 << 20, true, true},
    };
    cl_model *m;
    cl_error error;
    if (cl_model_load(path, NULL, &m, &error) != CL_OK) fail_msg("%s", error.message);
    recording *expected[N], *got[N];
    const cl_engine_stats alone = run(m, &settings[0], expected);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < (i == 4 ? 3 : 1); k++) expect_text(i, &expected[i]->choices[k]);
    assert_true(alone.completion_tokens > alone.steps + 50); /* many were forced */
    for (size_t s = 1; s < sizeof settings / sizeof *settings; s++) {
        run(m, &settings[s], got);
        for (int i = 0; i < N; i++) {
            if (!recording_equal(expected[i], got[i])) fail_msg("setting %zu, request %d: something else was reported", s, i);
            recording_free(got[i]);
        }
    }
    for (int i = 0; i < N; i++) recording_free(expected[i]);
    cl_model_free(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_match_and_are_the_same_everywhere)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
