/* Requests about tokens: tokenize and detokenize in both forms, rendered requests, the tokenizer, and text around a gap. */
#include "tests/support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "openai_fixture.h"
#include "serve/protocol/dialect.h"

typedef bool handler(const openai_context *context, const json_t *body, openai_writer *w, openai_error *error);

static bool handle(handler *h, const char *body, openai_writer *w, openai_error *error) {
    openai_context c = fake_context();
    c.n_ctx = 40;
    json_t *json = json_loads(body, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    assert_non_null(json);
    *w = (openai_writer){0};
    const bool ok = h(&c, json, w, error);
    json_decref(json);
    return ok;
}

static void expect(handler *h, const char *body, const char *answer) {
    openai_writer w;
    openai_error error;
    if (!handle(h, body, &w, &error)) fail_msg("%s: %s", body, error.message);
    char *text = writer_end(&w, NULL);
    assert_string_equal(text, answer);
    free(text);
}

static void expect_refused(handler *h, const char *body, const char *param, const char *message) {
    openai_writer w;
    openai_error error;
    if (handle(h, body, &w, &error)) fail_msg("%s was accepted", body);
    writer_free(&w);
    assert_error(&error, body, 400, param, message);
}

static void tokenize_answers_in_the_form_of_the_request(void **state) {
    (void)state;
    expect(openai_tokenize, "{\"prompt\":\"ab\",\"model\":\"m\"}",
           "{\"count\":2,\"max_model_len\":40,\"tokens\":[97,98],\"token_strs\":null}");
    expect(openai_tokenize, "{\"prompt\":\"a</s>\",\"return_token_strs\":true,\"add_special_tokens\":false}",
           "{\"count\":2,\"max_model_len\":40,\"tokens\":[97,257],\"token_strs\":[\"a\",\"</s>\"]}");
    expect(openai_tokenize, "{\"prompt\":\"</s>\",\"parse_special\":false}",
           "{\"count\":4,\"max_model_len\":40,\"tokens\":[60,47,115,62],\"token_strs\":null}");
    expect(openai_tokenize, "{\"messages\":[{\"role\":\"user\",\"content\":\"</s>\"}]}",
           "{\"count\":5,\"max_model_len\":40,\"tokens\":[60,47,115,62,257],\"token_strs\":null}");
    expect(openai_tokenize, "{\"content\":\"a</s>\"}", "{\"tokens\":[97,257]}");
    expect(openai_tokenize, "{\"content\":\"\"}", "{\"tokens\":[]}");
    fake_add_eos(true); /* what belongs around a text comes only where it is wanted */
    expect(openai_tokenize, "{\"content\":\"a\",\"add_special\":true}", "{\"tokens\":[97,257]}");
    expect(openai_tokenize, "{\"content\":\"a\"}", "{\"tokens\":[97]}");
    expect(openai_tokenize, "{\"prompt\":\"a\"}", "{\"count\":2,\"max_model_len\":40,\"tokens\":[97,257],\"token_strs\":null}");
    fake_add_eos(false);
    expect(openai_tokenize, "{\"content\":\"a\\u00e4\",\"with_pieces\":true}",
           "{\"tokens\":[{\"id\":97,\"piece\":\"a\"},{\"id\":195,\"piece\":[195]},{\"id\":164,\"piece\":[164]}]}");
}

static void tokenize_refuses(void **state) {
    (void)state;
    expect_refused(openai_tokenize, "[]", "", "must be a JSON object");
    expect_refused(openai_tokenize, "{}", "prompt", "send 'prompt' or 'content'");
    expect_refused(openai_tokenize, "{\"prompt\":[1]}", "prompt", "must be a string, not an array");
    expect_refused(openai_tokenize, "{\"content\":1}", "content", "must be a string, not an integer");
    expect_refused(openai_tokenize, "{\"content\":\"a\",\"with_pieces\":1}", "with_pieces", "true or false");
    expect_refused(openai_tokenize, "{\"prompt\":\"a\",\"model\":1}", "model", "must be a string");
    expect_refused(openai_tokenize, "{\"messages\":[{\"role\":5,\"content\":\"\"}]}", "messages[0].role", "must be");
    char long_text[256] = "{\"content\":\"";
    memset(long_text + strlen(long_text), 'x', 40 * strlen("</s>") + 1); /* the context's tokens of the longest piece */
    strcat(long_text, "\"}");
    expect_refused(openai_tokenize, long_text, "content", "maximum context length is 40 tokens");
}

static void detokenize_gives_the_text_under_both_names(void **state) {
    (void)state;
    expect(openai_detokenize, "{\"tokens\":[97,257,98]}", "{\"prompt\":\"a</s>b\",\"content\":\"a</s>b\"}");
    expect(openai_detokenize, "{\"tokens\":[]}", "{\"prompt\":\"\",\"content\":\"\"}");
    expect(openai_detokenize, "{\"tokens\":[195]}", "{\"prompt\":\"\xef\xbf\xbd\",\"content\":\"\xef\xbf\xbd\"}");
    expect_refused(openai_detokenize, "{}", "tokens", "must be an array of token ids");
    expect_refused(openai_detokenize, "{\"tokens\":\"a\"}", "tokens", "not a string");
    expect_refused(openai_detokenize, "{\"tokens\":[1,258]}", "tokens[1]", "0 to 257");
    expect_refused(openai_detokenize, "{\"tokens\":[1.5]}", "tokens[0]", "must be an integer");
}

static json_t *rendered(handler *h, const char *body) {
    openai_writer w;
    openai_error error;
    if (!handle(h, body, &w, &error)) fail_msg("%s: %s", body, error.message);
    char *text = writer_end(&w, NULL);
    json_t *json = json_loads(text, 0, NULL);
    free(text);
    assert_non_null(json);
    return json;
}

static void requests_are_rendered_as_the_engine_would_get_them(void **state) {
    (void)state;
    const char *id, *model, *stop;
    int first, last, n, max_tokens;
    double temperature;
    json_t *chat = rendered(openai_render_chat, CHAT("\"temperature\":0.5,\"n\":2,\"stop\":\"x\",\"stream\":true"));
    assert_int_equal(json_unpack(chat, "{s:s, s:[i, i!], s:{s:i, s:F, s:i, s:[s!]}, s:s, s:b, s:i!}", "request_id", &id,
                                 "token_ids", &first, &last, "sampling_params", "n", &n, "temperature", &temperature,
                                 "max_tokens", &max_tokens, "stop", &stop, "model", &model, "stream", &(int){0}, "priority",
                                 &(int){0}),
                     0);
    assert_memory_equal(id, "chatcmpl-", 9);
    assert_true(first == 'x' && last == FAKE_END && n == 2 && max_tokens == 38 && temperature == 0.5);
    json_decref(chat);
    json_t *completions = rendered(openai_render_completion, "{\"prompt\":[\"a\",[7,8]],\"max_tokens\":3}");
    assert_int_equal(json_array_size(completions), 2);
    assert_int_equal(json_unpack(completions, "[{s:[i!], s:{s:i}}, {s:[i, i!]}!]", "token_ids", &first, "sampling_params",
                                 "max_tokens", &max_tokens, "token_ids", &n, &last),
                     0);
    assert_true(first == 'a' && max_tokens == 3 && n == 7 && last == 8);
    json_decref(completions);
    expect_refused(openai_render_completion, "{\"prompt\":\"a\",\"n\":0}", "n", "from 1");
}

static size_t counted;

/* Count bytes, of which there are as many as the owner, a number, says. */
static bool count(void *owner, size_t bytes, openai_error *error) {
    counted += bytes;
    return bytes <= *(const size_t *)owner || openai_fail(error, NULL, "too much");
}

/* Handle a body while there are this many bytes for the answer. */
static bool handle_counted(handler *h, const char *body, size_t most, openai_writer *w, openai_error *error) {
    openai_context c = fake_context();
    c.count_answer = count;
    c.owner = &most;
    json_t *json = json_loads(body, 0, NULL);
    *w = (openai_writer){0};
    counted = 0;
    const bool ok = h(&c, json, w, error);
    json_decref(json);
    return ok;
}

/* About the bytes that an answer takes are counted before any of it is written. */
static void answers_count_before_they_are_made(void **state) {
    (void)state;
    static const struct {
        handler *h;
        const char *body;
    } cases[] = {
        {openai_tokenize, "{\"content\":\"abcdefghijklmnop\"}"},
        {openai_tokenize, "{\"content\":\"abcdefghijklmnop\",\"with_pieces\":true}"},
        {openai_tokenize, "{\"prompt\":\"abcdefghijklmnop\"}"},
        {openai_tokenize, "{\"prompt\":\"abcdefghijklmnop\",\"return_token_strs\":true}"},
        {openai_detokenize, "{\"tokens\":[257,257,257,257,257,257,257,257,257,257,257,257,257,257,257]}"},
        {openai_render_completion, "{\"prompt\":[\"a\",\"b\",\"c\"],\"logit_bias\":{\"1\":1,\"2\":-1}}"},
        {openai_render_chat, CHAT("\"logit_bias\":{\"1\":1,\"2\":-1}")},
        {llama_server_apply_template, CHAT("\"n\":1")},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        openai_writer w;
        openai_error error;
        if (handle_counted(cases[i].h, cases[i].body, 0, &w, &error)) fail_msg("%s is not counted", cases[i].body);
        assert_string_equal(error.message, "too much");
        if (w.text || w.depth > 0) fail_msg("%s is written first", cases[i].body);
        assert_true(handle_counted(cases[i].h, cases[i].body, SIZE_MAX, &w, &error));
        if (counted + 64 < w.size) fail_msg("%s: %zu bytes are counted, and the text has %zu", cases[i].body, counted, w.size);
        writer_free(&w);
    }
}

/* All that decides on the next token has vLLM's name. */
static void rules_are_rendered(void **state) {
    (void)state;
    static const struct {
        const char *fields, *name, *rendered; /* NULL: absent */
    } cases[] = {
        {"\"logit_bias\":{\"7\":-100,\"8\":1.5}", "logit_bias", "{\"7\":-100.0,\"8\":1.5}"},
        {"\"logit_bias\":[[7,false]]", "logit_bias", "{\"7\":false}"},
        {"\"n\":1", "logit_bias", NULL},
        {"\"allowed_token_ids\":[7,8]", "allowed_token_ids", "[7,8]"},
        {"\"n\":1", "allowed_token_ids", NULL},
        {"\"bad_words\":[\"b\",\"c d\"]", "bad_words", "[\"b\",\"c d\"]"},
        {"\"bad_words\":[]", "bad_words", NULL},
        {"\"min_tokens\":2", "min_tokens", "2"},
        {"\"include_stop_str_in_output\":true", "include_stop_str_in_output", "true"},
        {"\"skip_special_tokens\":false", "skip_special_tokens", "false"},
        {"\"n\":1", "skip_special_tokens", "true"},
        {"\"prompt_logprobs\":4", "prompt_logprobs", "4"},
        {"\"prompt_logprobs\":4,\"logprobs\":2", "logprobs", "2"},
        {"\"n\":1", "prompt_logprobs", "null"},
        {"\"stop_token_ids\":[7]", "stop_token_ids", "[7]"},
        {"\"structured_outputs\":{\"regex\":\"a+\"}", "structured_outputs", "{\"regex\":\"a+\"}"},
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":{\"type\":\"null\","
         "\"x-guidance\":{\"whitespace_flexible\":false}}}}",
         "structured_outputs",
         "{\"json\":\"{\\\"type\\\":\\\"null\\\",\\\"x-guidance\\\":{\\\"whitespace_flexible\\\":false}}\"}"},
        {"\"n\":1", "structured_outputs", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[256];
        sprintf(body, "{\"prompt\":\"a\",\"max_tokens\":3,%s}", cases[i].fields);
        json_t *answer = rendered(openai_render_completion, body);
        json_t *sampling = json_object_get(json_array_get(answer, 0), "sampling_params");
        char *found = json_dumps(json_object_get(sampling, cases[i].name), JSON_COMPACT | JSON_ENCODE_ANY);
        if (cases[i].rendered ? !found || strcmp(found, cases[i].rendered) != 0 : found != NULL)
            fail_msg("%s: %s is %s", cases[i].fields, cases[i].name, found ? found : "absent");
        free(found);
        json_decref(answer);
    }
}

static void the_tokenizer_is_described(void **state) {
    (void)state;
    openai_context c = fake_context();
    c.n_ctx = 40;
    openai_writer w = {0};
    openai_write_tokenizer_info(&w, &c);
    char *text = writer_end(&w, NULL);
    assert_string_equal(text,
                        "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"add_bos_token\":false,\"add_eos_token\":false,"
                        "\"model_max_length\":40,\"vocab_size\":258,\"bos_token\":\"<s>\",\"eos_token\":\"</s>\","
                        "\"chat_template\":\"{{ messages }}\"}");
    free(text);
}

/* ---- Text around a gap ---- */

static void expect_prompt(const openai_request *r, size_t i, const int32_t *ids, size_t n) {
    assert_int_equal(r->prompts[i].tokens.n, n);
    assert_memory_equal(r->prompts[i].tokens.ids, ids, n * sizeof *ids);
}

static void a_suffix_goes_behind_the_prompt(void **state) {
    (void)state;
    const openai_context c = fake_context();
    openai_request r;
    fake_fill_gaps(true);
    parse_ok(&c, OPENAI_COMPLETION, "{\"prompt\":[\"ab\",[256,7]],\"suffix\":\"</s>\"}", &r);
    expect_prompt(&r, 0, (int32_t[]){FAKE_FIM_PREFIX, 'a', 'b', FAKE_FIM_SUFFIX, '<', '/', 's', '>', FAKE_FIM_MIDDLE}, 9);
    expect_prompt(&r, 1, (int32_t[]){256, FAKE_FIM_PREFIX, 7, FAKE_FIM_SUFFIX, '<', '/', 's', '>', FAKE_FIM_MIDDLE}, 9);
    openai_request_free(&r);
    parse_ok(&c, OPENAI_COMPLETION, "{\"prompt\":\"ab\",\"suffix\":\"\"}", &r);
    expect_prompt(&r, 0, (int32_t[]){'a', 'b'}, 2);
    openai_request_free(&r);
    openai_error error;
    assert_false(parse(&c, OPENAI_COMPLETION, COMPLETION("\"suffix\":\"y\",\"echo\":true"), &r, &error));
    assert_string_equal(error.param, "echo");
    assert_false(parse(&c, OPENAI_COMPLETION, COMPLETION("\"suffix\":\"y\",\"truncate_prompt_tokens\":2"), &r, &error));
    assert_string_equal(error.param, "truncate_prompt_tokens");
    assert_false(parse(&c, OPENAI_COMPLETION, COMPLETION("\"suffix\":5"), &r, &error));
    assert_string_equal(error.param, "suffix");
    fake_fill_gaps(false);
    assert_false(parse(&c, OPENAI_COMPLETION, COMPLETION("\"suffix\":\"y\""), &r, &error));
    assert_string_equal(error.code, "unsupported_parameter");
    assert_non_null(strstr(error.message, "trained to fill gaps"));
    assert_false(parse(&c, OPENAI_CHAT, CHAT("\"suffix\":\"y\""), &r, &error));
    assert_string_equal(error.param, "suffix");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokenize_answers_in_the_form_of_the_request),
        cmocka_unit_test(tokenize_refuses),
        cmocka_unit_test(detokenize_gives_the_text_under_both_names),
        cmocka_unit_test(requests_are_rendered_as_the_engine_would_get_them),
        cmocka_unit_test(answers_count_before_they_are_made),
        cmocka_unit_test(rules_are_rendered),
        cmocka_unit_test(the_tokenizer_is_described),
        cmocka_unit_test(a_suffix_goes_behind_the_prompt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
