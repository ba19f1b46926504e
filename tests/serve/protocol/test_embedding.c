/* Requests for embeddings become prompts of the engine, and its vectors an answer. */
#include "tests/support/testing.h"

#include <stdio.h>

#include "apis_fixture.h"
#include "fake.h"
#include "openai_fixture.h"

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
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scene s;
        scene_begin(&s, &openai_embedding, cases[i].body);
        const openai_request *r = &s.request;
        assert_int_equal(r->n_prompts, cases[i].n_prompts);
        assert_int_equal(r->prompts[r->n_prompts - 1].tokens.n, cases[i].n_last);
        assert_int_equal(r->params.pooling, cases[i].pooling);
        assert_int_equal(r->params.max_tokens, 0);
        assert_int_equal(r->dimensions, FAKE_EMBD);
        scene_end(&s);
    }
}

static void the_server_may_choose_the_pooling(void **state) {
    (void)state;
    openai_context c = fake_context();
    openai_request r;
    openai_error error;
    c.defaults.pooling = CL_ENGINE_POOL_MEAN;
    json_t *body = json_pack("{s:s}", "input", "a");
    assert_true(openai_embedding_parse(&c, body, &r, &error));
    assert_int_equal(r.params.pooling, CL_ENGINE_POOL_MEAN);
    openai_request_free(&r);
    json_decref(body);
}

/* As the files of some models ask; text that ends with the token gets no second one. */
static void an_end_token_may_come_behind(void **state) {
    (void)state;
    scene s;
    fake_add_eos(true);
    scene_begin(&s, &openai_embedding, "{\"input\":[\"a\",[5,257]]}");
    fake_add_eos(false);
    assert_int_equal(s.request.prompts[0].tokens.n, 2);
    assert_int_equal(s.request.prompts[0].tokens.ids[1], FAKE_END);
    assert_int_equal(s.request.prompts[1].tokens.n, 2);
    scene_end(&s);
    fake_add_eos(true);
    scene_begin(&s, &openai_embedding, "{\"input\":[\"a</s>\",\"b\"],\"add_special_tokens\":false,\"parse_special\":true}");
    fake_add_eos(false);
    assert_int_equal(s.request.prompts[0].tokens.n, 2);
    assert_int_equal(s.request.prompts[0].tokens.ids[1], FAKE_END);
    assert_int_equal(s.request.prompts[1].tokens.n, 1);
    scene_end(&s);
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
        {"{\"input\":[\"a\",{}]}", "input[1]", "must be a string or an array"},
        {"{\"input\":[5,[\"a\"]]}", "input[1]", "must be an integer"},
        {"{\"input\":[[1],[300]]}", "input[1][0]", "0 to 257"},
        {"{\"input\":\"a\",\"encoding_format\":\"hex\"}", "encoding_format", "\"float\" or \"base64\""},
        {"{\"input\":\"a\",\"pooling\":\"cls\"}", "pooling", "\"last\" or \"mean\""},
        {"{\"input\":\"a\",\"pooling\":1}", "pooling", "must be a string"},
        {"{\"input\":\"a\",\"dimensions\":4}", "dimensions", "from 1 to 3"},
        {"{\"input\":\"a\",\"dimensions\":0}", "dimensions", "from 1 to 3"},
        {"{\"input\":\"a\",\"model\":[]}", "model", "must be a string"},
        {"{\"input\":\"a\",\"truncate_prompt_tokens\":0}", "truncate_prompt_tokens", "at least 1"},
        {"{\"input\":\"a\",\"normalize\":1}", "normalize", "true or false"},
        {"{\"input\":\"a\",\"encoding_format\":\"base64\",\"embed_dtype\":\"float16\"}", "embed_dtype", "not supported"},
        {"{\"input\":\"a\",\"encoding_format\":\"base64\",\"endianness\":\"big\"}", "endianness", "not supported"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_body_refused(&openai_embedding, cases[i].body, 400, cases[i].param, cases[i].message);
}

/* The answer to a body with one input, whose embedding is {3, 4, 12} before it is normalised. */
static json_t *answer(const char *body) {
    static const float x[] = {3, 4, 12};
    const cl_engine_event event = {.kind = CL_EVENT_END,
                                   .end = {CL_ENGINE_LENGTH, -1, NULL, x, 3},
                                   .text = "",
                                   .last = true,
                                   .n_prompt = 5,
                                   .n_cached = 4};
    scene s;
    scene_begin(&s, &openai_embedding, body);
    openai_result_add(&s.result, 0, &event, 0);
    assert_true(openai_result_done(&s.result) && !s.result.failed);
    json_t *json = scene_answer(&s);
    scene_end(&s);
    return json;
}

static void embeddings_have_length_one(void **state) {
    (void)state;
    json_t *json = answer("{\"input\":\"a\"}"),
           *x = json_object_get(json_array_get(json_object_get(json, "data"), 0), "embedding");
    const float expected[] = {3.0f / 13, 4.0f / 13, 12.0f / 13};
    assert_int_equal(json_array_size(x), 3);
    for (size_t i = 0; i < 3; i++) assert_true(json_real_value(json_array_get(x, i)) == (double)expected[i]);
    assert_at(json, "/data/0/object", "\"embedding\"");
    json_object_del(json, "data");
    assert_at(json, "",
              "{\"id\":\"embd-id\",\"object\":\"list\",\"created\":1,\"model\":\"fake\",\"usage\":{\"prompt_tokens\":5,"
              "\"completion_tokens\":0,\"total_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":4}}}");
    json_decref(json);
}

/* Fewer dimensions are normalised again. Base64 is of little-endian f32: base64.b64encode(struct.pack('<2f', 0.6, 0.8)). */
static void dimensions_and_formats(void **state) {
    (void)state;
    static const struct {
        const char *fields, *expected;
    } cases[] = {
        {"\"dimensions\":2", "[0.60000002384185791,0.80000001192092896]"},
        {"\"dimensions\":2,\"encoding_format\":\"base64\"", "\"mpkZP83MTD8=\""},
        {"\"dimensions\":1,\"encoding_format\":\"base64\"", "\"AACAPw==\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"input\":\"a\",%s}", cases[i].fields);
        json_t *json = answer(body);
        assert_at(json, "/data/0/embedding", cases[i].expected);
        json_decref(json);
    }
}

/* By any server's name for it; a prompt that is short enough for a limit of its tokens stays whole. */
static void vectors_may_keep_their_lengths(void **state) {
    (void)state;
    static const char *const fields[] = {"\"use_activation\":false", "\"normalize\":false", "\"normalized\":false",
                                         "\"embd_normalize\":-1", "\"use_activation\":false,\"truncate_prompt_tokens\":9"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"input\":\"a\",\"dimensions\":2,%s}", fields[i]);
        json_t *json = answer(body);
        assert_at(json, "/data/0/embedding", "[3.0,4.0]");
        json_decref(json);
    }
    json_t *json =
        answer("{\"input\":\"a\",\"dimensions\":1,\"normalize\":false,\"use_activation\":true,\"embd_normalize\":2}");
    assert_at(json, "/data/0/embedding", "[1.0]");
    json_decref(json);
}

/* To their last tokens, of which one may stand behind the text; -1 is all that the context holds, since nothing is generated.
 */
static void inputs_are_truncated(void **state) {
    (void)state;
    static const struct {
        const char *body;
        int32_t n_ctx;
        bool ends; /* an end token comes behind texts */
        size_t n;
        int32_t first, last;
    } cases[] = {
        {"{\"input\":\"abcdef\",\"truncate_prompt_tokens\":2}", 0, false, 2, 'e', 'f'},
        {"{\"input\":\"abcdef\",\"truncate_prompt_tokens\":2}", 0, true, 2, 'f', FAKE_END},
        {"{\"input\":[[1,2,3,4]],\"truncate_prompt_tokens\":3}", 0, false, 3, 2, 4},
        {"{\"input\":\"abcdef\",\"truncate_prompt_tokens\":-1}", 4, false, 4, 'c', 'f'},
        {"{\"input\":\"abcdef\",\"truncate_prompt_tokens\":-1}", 4, true, 4, 'd', FAKE_END},
        {"{\"input\":\"abcdef\",\"truncate_prompt_tokens\":7}", 0, false, 6, 'a', 'f'},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        openai_context c = fake_context();
        openai_request r;
        openai_error error;
        c.n_ctx = cases[i].n_ctx;
        json_t *body = json_loads(cases[i].body, 0, NULL);
        fake_add_eos(cases[i].ends);
        assert_true(openai_embedding_parse(&c, body, &r, &error));
        fake_add_eos(false);
        assert_int_equal(r.prompts[0].tokens.n, cases[i].n);
        assert_int_equal(r.prompts[0].tokens.ids[0], cases[i].first);
        assert_int_equal(r.prompts[0].tokens.ids[cases[i].n - 1], cases[i].last);
        openai_request_free(&r);
        json_decref(body);
    }
}

/* As in other requests. */
static void requests_have_a_salt_and_an_id(void **state) {
    (void)state;
    scene s;
    scene_begin(&s, &openai_embedding, "{\"input\":\"a\",\"cache_salt\":\"pepper\",\"request_id\":\"mine\",\"priority\":-2}");
    assert_int_equal(s.request.params.salt_size, 6);
    assert_memory_equal(s.request.params.salt, "pepper", 6);
    assert_string_equal(s.request.id, "mine");
    assert_int_equal(s.request.params.priority, -2);
    scene_end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_input_is_read),    cmocka_unit_test(the_server_may_choose_the_pooling),
        cmocka_unit_test(an_end_token_may_come_behind),   cmocka_unit_test(wrong_fields_are_refused),
        cmocka_unit_test(embeddings_have_length_one),     cmocka_unit_test(dimensions_and_formats),
        cmocka_unit_test(vectors_may_keep_their_lengths), cmocka_unit_test(inputs_are_truncated),
        cmocka_unit_test(requests_have_a_salt_and_an_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
