/* Requests for embeddings become prompts of the engine, and its vectors an answer. */
#include "tests/support/testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "openai_fixture.h"

static bool parse_embedding(const openai_context *c, const char *body, openai_request *r, openai_error *error) {
    json_t *json = json_loads(body, JSON_DECODE_ANY, NULL);
    assert_non_null(json);
    const bool ok = openai_embedding_parse(c, json, r, error);
    json_decref(json);
    return ok;
}

static void every_form_of_input_is_read(void **state) {
    (void)state;
    static const struct {
        const char *body;
        size_t n_prompts, n_last;
        cl_engine_pooling pooling;
    } cases[] = {
        {"{\"input\":\"abc\"}", 1, 3, CL_ENGINE_POOL_LAST},
        {"{\"input\":[\"abc\",\"d\"],\"pooling\":\"mean\",\"model\":\"any\"}", 2, 1, CL_ENGINE_POOL_MEAN},
        {"{\"input\":[1,2,3],\"pooling\":\"last\",\"encoding_format\":\"float\"}", 1, 3, CL_ENGINE_POOL_LAST},
        {"{\"input\":[[1,2],[3]],\"dimensions\":3,\"user\":\"u\"}", 2, 1, CL_ENGINE_POOL_LAST},
    };
    const openai_context c = fake_context();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        openai_request r;
        openai_error error;
        if (!parse_embedding(&c, cases[i].body, &r, &error)) fail_msg("%s: %s", cases[i].body, error.message);
        assert_int_equal(r.n_prompts, cases[i].n_prompts);
        assert_int_equal(r.prompts[r.n_prompts - 1].tokens.n, cases[i].n_last);
        assert_int_equal(r.params.pooling, cases[i].pooling);
        assert_int_equal(r.params.max_tokens, 0);
        assert_int_equal(r.dimensions, FAKE_EMBD);
        openai_request_free(&r);
    }
}

static void the_server_may_choose_the_pooling(void **state) {
    (void)state;
    openai_context c = fake_context();
    openai_request r;
    openai_error error;
    c.defaults.pooling = CL_ENGINE_POOL_MEAN;
    assert_true(parse_embedding(&c, "{\"input\":\"a\"}", &r, &error));
    assert_int_equal(r.params.pooling, CL_ENGINE_POOL_MEAN);
    openai_request_free(&r);
}

/* As the files of some models ask; text that ends with the token gets no second one. */
static void an_end_token_may_come_behind(void **state) {
    (void)state;
    const openai_context c = fake_context();
    openai_request r;
    openai_error error;
    fake_add_eos(true);
    assert_true(parse_embedding(&c, "{\"input\":[\"a\",[5,257]]}", &r, &error));
    fake_add_eos(false);
    assert_int_equal(r.prompts[0].tokens.n, 2);
    assert_int_equal(r.prompts[0].tokens.ids[1], FAKE_END);
    assert_int_equal(r.prompts[1].tokens.n, 2);
    openai_request_free(&r);
}

static void wrong_fields_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *body, *param, *message;
    } cases[] = {
        {"5", "", "must be a JSON object"},
        {"{}", "input", "'input' is missing"},
        {"{\"input\":{}}", "input", "must be a string or an array of token ids"},
        {"{\"input\":[]}", "input", "from 1 to 2048"},
        {"{\"input\":[\"a\",5]}", "input[1]", "must be a string or an array"},
        {"{\"input\":[[1],[300]]}", "input[1][0]", "0 to 257"},
        {"{\"input\":\"a\",\"encoding_format\":\"hex\"}", "encoding_format", "\"float\" or \"base64\""},
        {"{\"input\":\"a\",\"pooling\":\"cls\"}", "pooling", "\"last\" or \"mean\""},
        {"{\"input\":\"a\",\"pooling\":1}", "pooling", "must be a string"},
        {"{\"input\":\"a\",\"dimensions\":4}", "dimensions", "from 1 to 3"},
        {"{\"input\":\"a\",\"dimensions\":0}", "dimensions", "from 1 to 3"},
        {"{\"input\":\"a\",\"model\":[]}", "model", "must be a string"},
    };
    const openai_context c = fake_context();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        openai_request r;
        openai_error error;
        if (parse_embedding(&c, cases[i].body, &r, &error)) fail_msg("%s was accepted", cases[i].body);
        assert_error(&error, cases[i].body, 400, cases[i].param, cases[i].message);
    }
}

/* The answer to a body with one input, whose embedding is {3, 4, 12} before it is normalised. */
static char *answer(const char *body) {
    static const float x[] = {3, 4, 12};
    const openai_context c = fake_context();
    openai_request r;
    openai_result result;
    openai_error error;
    if (!parse_embedding(&c, body, &r, &error)) fail_msg("%s", error.message);
    assert_true(openai_result_init(&result, &c, &r));
    strcpy(result.id, "id");
    result.created = 1;
    openai_result_add(&result, 0,
                      &(cl_engine_event){.kind = CL_EVENT_END,
                                         .end = {CL_ENGINE_LENGTH, -1, NULL, x, 3},
                                         .text = "",
                                         .last = true,
                                         .n_prompt = 5,
                                         .n_cached = 4},
                      0);
    assert_true(openai_result_done(&result) && !result.failed);
    openai_writer w = {0};
    openai_write_embeddings(&w, NULL, &result);
    openai_result_free(&result);
    openai_request_free(&r);
    return writer_end(&w, NULL);
}

static void embeddings_have_length_one(void **state) {
    (void)state;
    char *text = answer("{\"input\":\"a\"}");
    json_t *json = json_loads(text, 0, NULL);
    const char *id, *object, *model, *kind;
    double x[3];
    int created, index, prompt, completion, total, cached;
    assert_int_equal(json_unpack(json, "{s:s, s:s, s:i, s:s, s:[{s:s, s:i, s:[F, F, F!]!}!], s:{s:i, s:i, s:i, s:{s:i!}!}!}",
                                 "id", &id, "object", &object, "created", &created, "model", &model, "data", "object", &kind,
                                 "index", &index, "embedding", &x[0], &x[1], &x[2], "usage", "prompt_tokens", &prompt,
                                 "completion_tokens", &completion, "total_tokens", &total, "prompt_tokens_details",
                                 "cached_tokens", &cached),
                     0);
    assert_string_equal(object, "list");
    assert_string_equal(kind, "embedding");
    assert_true(prompt == 5 && completion == 0 && total == 5 && cached == 4);
    assert_true(x[0] == (double)(3.0f / 13) && x[1] == (double)(4.0f / 13) && x[2] == (double)(12.0f / 13));
    json_decref(json);
    free(text);
}

static void fewer_dimensions_are_normalised_again(void **state) {
    (void)state;
    char *text = answer("{\"input\":\"a\",\"dimensions\":2}");
    char expected[96];
    snprintf(expected, sizeof expected, "\"embedding\":[%.17g,%.17g]", (double)(float)(3.0 / 5), (double)(float)(4.0 / 5));
    if (!strstr(text, expected)) fail_msg("%s does not say %s", text, expected);
    free(text);
}

/* Written by Python: base64.b64encode(struct.pack('<2f', 0.6, 0.8)) and of '<1f', 1. */
static void base64_is_little_endian_f32(void **state) {
    (void)state;
    char *text = answer("{\"input\":\"a\",\"dimensions\":2,\"encoding_format\":\"base64\"}");
    if (!strstr(text, "\"embedding\":\"mpkZP83MTD8=\"")) fail_msg("%s", text);
    free(text);
    text = answer("{\"input\":\"a\",\"dimensions\":1,\"encoding_format\":\"base64\"}");
    if (!strstr(text, "\"embedding\":\"AACAPw==\"")) fail_msg("%s", text);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_input_is_read),  cmocka_unit_test(the_server_may_choose_the_pooling),
        cmocka_unit_test(an_end_token_may_come_behind), cmocka_unit_test(wrong_fields_are_refused),
        cmocka_unit_test(embeddings_have_length_one),   cmocka_unit_test(fewer_dimensions_are_normalised_again),
        cmocka_unit_test(base64_is_little_endian_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
