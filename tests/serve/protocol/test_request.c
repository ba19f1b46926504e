/* Bodies of requests become engine requests; wrong ones are refused, by field, limit and fix. */
#include "tests/support/testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "openai_fixture.h"

/* A prompt's tokens as the text they stand for. */
static void assert_tokens(const openai_prompt *prompt, const char *text) {
    assert_int_equal(prompt->tokens.n, strlen(text));
    for (size_t i = 0; i < prompt->tokens.n; i++) assert_int_equal(prompt->tokens.ids[i], (unsigned char)text[i]);
}

static void every_field_is_read(void **state) {
    (void)state;
    const openai_context c = fake_context();
    openai_request r;
    parse_ok(&c, OPENAI_COMPLETION,
             "{\"model\":\"any\",\"prompt\":\"ab\",\"n\":3,\"max_tokens\":7,\"temperature\":0.5,\"top_p\":0.25,\"top_k\":40,"
             "\"min_p\":0.125,\"repetition_penalty\":1.5,\"presence_penalty\":-1,\"frequency_penalty\":2,\"seed\":-2,"
             "\"stop\":[\"x\",\"yz\"],\"stop_token_ids\":[5,257],\"ignore_eos\":true,\"logprobs\":4,\"echo\":true,"
             "\"stream\":true,\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true},\"return_token_ids\":"
             "true,\"priority\":-3,\"unheard_of\":1}",
             &r);
    assert_int_equal(r.n_prompts, 1);
    assert_tokens(&r.prompts[0], "ab");
    assert_string_equal(r.prompts[0].text, "ab");
    const cl_engine_request p = r.params;
    assert_int_equal(p.n, 3);
    assert_int_equal(p.max_tokens, 7);
    assert_true(p.sampling.temperature == 0.5f && p.sampling.top_p == 0.25f && p.sampling.top_k == 40);
    assert_true(p.sampling.min_p == 0.125f && p.sampling.repetition_penalty == 1.5f);
    assert_true(p.sampling.presence_penalty == -1 && p.sampling.frequency_penalty == 2);
    assert_true(p.sampling.seed == UINT64_MAX - 1);
    assert_int_equal(p.n_stop, 2);
    assert_string_equal(p.stop[1], "yz");
    assert_int_equal(p.n_stop_tokens, 2);
    assert_int_equal(p.stop_tokens[1], 257);
    assert_true(p.ignore_eos && p.logprobs && p.prompt_logprobs && p.n_top == 4);
    assert_int_equal(p.priority, -3);
    assert_true(r.stream && r.include_usage && r.continuous_usage && r.echo && r.return_token_ids && r.logprobs);
    assert_int_equal(r.n, 3);
    openai_request_free(&r);
}

/* Prompts with n choices each; the message must name the field. */
static void expect_choices(int n_prompts, const char *field, int n, bool fits) {
    const openai_context context = fake_context();
    openai_request r;
    openai_error error;
    json_t *prompts = json_array();
    for (int i = 0; i < n_prompts; i++) json_array_append_new(prompts, json_string("a"));
    json_t *body = json_pack("{s:o, s:i}", "prompt", prompts, field, n);
    const bool ok = openai_request_parse(&context, OPENAI_COMPLETION, body, &r, &error);
    assert_int_equal(ok, fits);
    if (ok) openai_request_free(&r);
    if (!ok) assert_string_equal(error.param, field);
    json_decref(body);
}

static void choices_of_all_prompts_are_bounded(void **state) {
    (void)state;
    expect_choices(1024, "n", 4, true);
    expect_choices(1024, "n", 5, false);
    expect_choices(32, "n", 128, true);
    expect_choices(33, "n", 128, false);
    expect_choices(33, "best_of", 128, false);
    expect_choices(1, "n", 128, true);
}

/* A chat has one prompt, whatever fields of other requests it brings. */
static void a_chat_has_no_prompts(void **state) {
    (void)state;
    const openai_context context = fake_context();
    openai_request r;
    openai_error error;
    json_t *body = json_pack("{s:[{s:s, s:s}], s:i, s:[]}", "messages", "role", "user", "content", "x", "n", 128, "prompt");
    for (int i = 0; i < 40; i++) json_array_append_new(json_object_get(body, "prompt"), json_string("a"));
    assert_true(openai_request_parse(&context, OPENAI_CHAT, body, &r, &error));
    assert_true(r.n_prompts == 1 && r.params.n == 128);
    openai_request_free(&r);
    json_decref(body);
}

/* What is generated beyond n needs logprobs to be compared by, which the answer does not show. */
static void best_of_is_read(void **state) {
    (void)state;
    const openai_context c = fake_context();
    openai_request r;
    parse_ok(&c, OPENAI_COMPLETION, COMPLETION("\"n\":2,\"best_of\":5"), &r);
    assert_true(r.n == 2 && r.params.n == 5 && r.params.logprobs && !r.logprobs);
    openai_request_free(&r);
    parse_ok(&c, OPENAI_COMPLETION, COMPLETION("\"n\":2,\"best_of\":2,\"stream\":true"), &r);
    assert_true(r.n == 2 && r.params.n == 2 && !r.params.logprobs);
    openai_request_free(&r);
    parse_ok(&c, OPENAI_COMPLETION, COMPLETION("\"n\":2,\"best_of\":5,\"use_beam_search\":true"), &r);
    assert_true(r.n == 2 && r.params.n == 5 && !r.params.logprobs);
    openai_request_free(&r);
    parse_ok(&c, OPENAI_CHAT, CHAT("\"best_of\":2,\"logprobs\":true"), &r);
    assert_true(r.n == 1 && r.params.n == 2 && r.params.logprobs && r.logprobs);
    openai_request_free(&r);
}

static void a_beam_search_is_read(void **state) {
    (void)state;
    const openai_context c = fake_context();
    static const struct {
        const char *early_stopping;
        bool early;
    } cases[] = {{"true", true}, {"false", false}, {"\"never\"", false}, {"null", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[200];
        openai_request r;
        snprintf(body, sizeof body, COMPLETION("\"use_beam_search\":true,\"n\":4,\"length_penalty\":0.5,\"early_stopping\":%s"),
                 cases[i].early_stopping);
        parse_ok(&c, OPENAI_COMPLETION, body, &r);
        assert_true(r.params.beam_search && r.params.n == 4 && r.params.length_penalty == 0.5f);
        assert_true(r.params.early_stopping == cases[i].early);
        openai_request_free(&r);
    }
}

static void what_is_left_out_has_openais_defaults(void **state) {
    (void)state;
    openai_context c = fake_context();
    openai_request r, other;
    parse_ok(&c, OPENAI_COMPLETION, "{\"prompt\":\"ab\",\"stop\":null,\"temperature\":null,\"tools\":[],\"logit_bias\":{}}",
             &r);
    const cl_engine_request p = r.params;
    assert_true(p.n == 1 && p.max_tokens == 16 && p.n_stop == 0 && p.n_stop_tokens == 0);
    assert_true(p.priority == 0 && p.timeout_s == 0 && p.queue_timeout_s == 0);
    assert_true(p.sampling.temperature == 1 && p.sampling.top_p == 1 && p.sampling.top_k == 0);
    assert_true(!p.beam_search && !p.early_stopping && p.length_penalty == 1);
    assert_false(p.ignore_eos || p.logprobs || p.prompt_logprobs || r.stream || r.echo);
    assert_null(r.prompts[0].text);
    parse_ok(&c, OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", &other);
    assert_true(other.params.max_tokens == -1);
    assert_true(other.params.sampling.seed != p.sampling.seed);
    openai_request_free(&r);
    openai_request_free(&other);

    c.defaults.has_seed = c.defaults.logprobs = true;
    c.defaults.sampling.seed = 42;
    c.defaults.sampling.temperature = 0;
    c.defaults.n_top = 2;
    c.defaults.max_tokens_completion = 3;
    c.timeout_s = 1.5;
    c.queue_timeout_s = 0.5;
    parse_ok(&c, OPENAI_COMPLETION, "{\"prompt\":\"ab\"}", &r);
    assert_true(r.params.sampling.seed == 42 && r.params.sampling.temperature == 0 && r.params.max_tokens == 3);
    assert_true(r.params.logprobs && r.params.n_top == 2 && r.params.timeout_s == 1.5);
    assert_true(r.params.queue_timeout_s == 0.5);
    openai_request_free(&r);
    parse_ok(&c, OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"logprobs\":false}", &r);
    assert_true(!r.params.logprobs && r.params.n_top == 0);
    openai_request_free(&r);
}

static void seed_minus_one_is_another_each_time(void **state) {
    (void)state;
    openai_context c = fake_context();
    uint64_t seeds[3];
    for (int i = 0; i < 3; i++) {
        openai_request r;
        if (i == 2) {
            c.defaults.has_seed = true;
            c.defaults.sampling.seed = 42;
        }
        parse_ok(&c, OPENAI_COMPLETION, "{\"prompt\":\"ab\",\"seed\":-1}", &r);
        seeds[i] = r.params.sampling.seed;
        openai_request_free(&r);
    }
    assert_true(seeds[0] != seeds[1]);
    assert_true(seeds[2] == 42);
}

/* A name of a special token is text, and noted for the log, unless the request or the server's option wants the token. */
static void names_in_prompts_are_text_unless_asked(void **state) {
    (void)state;
    static const struct {
        bool option;
        const char *body;
        size_t n_tokens;
        const char *noted;
    } cases[] = {
        {false, "{\"prompt\":\"a</s>\"}", 5, "</s>"},
        {false, "{\"prompt\":[\"b\",\"a</s>\"],\"parse_special\":false}", 1, "</s>"},
        {false, "{\"prompt\":\"a</s>\",\"parse_special\":true}", 2, ""},
        {true, "{\"prompt\":\"a</s>\",\"parse_special\":null}", 2, ""},
        {true, "{\"prompt\":\"a</s>\",\"parse_special\":false}", 5, "</s>"},
        {false, "{\"prompt\":\"abc\"}", 3, ""},
        {false, "{\"prompt\":[97,257]}", 2, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        openai_context c = fake_context();
        openai_request r;
        c.defaults.parse_special = cases[i].option;
        parse_ok(&c, OPENAI_COMPLETION, cases[i].body, &r);
        if (r.prompts[0].tokens.n != cases[i].n_tokens) fail_msg("%s: %zu tokens", cases[i].body, r.prompts[0].tokens.n);
        assert_string_equal(r.special_name, cases[i].noted);
        openai_request_free(&r);
    }
}

static void prompts_and_messages_become_tokens(void **state) {
    (void)state;
    const openai_context c = fake_context();
    openai_request r;
    parse_ok(&c, OPENAI_COMPLETION, "{\"prompt\":[\"a\",\"\\u0000b\"]}", &r);
    assert_int_equal(r.n_prompts, 2);
    assert_tokens(&r.prompts[0], "a");
    assert_int_equal(r.prompts[1].tokens.n, 2);
    assert_int_equal(r.prompts[1].tokens.ids[0], 0);
    openai_request_free(&r);
    parse_ok(&c, OPENAI_COMPLETION, "{\"prompt\":[[104,105],[256]],\"echo\":true}", &r);
    assert_tokens(&r.prompts[0], "hi");
    assert_string_equal(r.prompts[0].text, "hi");
    assert_string_equal(r.prompts[1].text, "<s>");
    openai_request_free(&r);
    parse_ok(&c, OPENAI_COMPLETION, "{\"prompt\":\"\"}", &r); /* begins with nothing but BOS */
    assert_int_equal(r.prompts[0].tokens.n, 1);
    assert_int_equal(r.prompts[0].tokens.ids[0], FAKE_BOS);
    openai_request_free(&r);
    parse_ok(&c, OPENAI_CHAT,
             "{\"messages\":[{\"role\":\"developer\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\","
             "\"text\":\"b\"},{\"type\":\"text\",\"text\":\"cd\"}]}],\"max_tokens\":9,\"max_completion_tokens\":5}",
             &r);
    assert_int_equal(r.prompts[0].tokens.n, 5);
    for (int i = 0; i < 4; i++) assert_int_equal(r.prompts[0].tokens.ids[i], "abcd"[i]);
    assert_int_equal(r.prompts[0].tokens.ids[4], FAKE_END);
    assert_true(r.params.max_tokens == 5);
    openai_request_free(&r);
}

static void what_is_wrong_is_refused(void **state) {
    (void)state;
    static const struct {
        openai_endpoint endpoint;
        const char *body, *param, *in_message;
    } cases[] = {
        {OPENAI_CHAT, "[]", "", "not an array"},
        {OPENAI_CHAT, "{}", "messages", "at least one"},
        {OPENAI_CHAT, "{\"messages\":[]}", "messages", "at least one"},
        {OPENAI_CHAT, "{\"messages\":\"x\"}", "messages", "array"},
        {OPENAI_CHAT, "{\"messages\":[1]}", "messages[0]", "not an integer"},
        {OPENAI_CHAT, "{\"messages\":[{\"content\":\"x\"}]}", "messages[0].role", "\"user\""},
        {OPENAI_CHAT, "{\"messages\":[{\"role\":\"refused\",\"content\":\"x\"}]}", "messages", "no such role"},
        {OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\"}]}", "messages[0].content", "string"},
        {OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":3}]}", "messages[0].content", "not an integer"},
        {OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", "messages[0].content[0]",
         "accepts only text"},
        {OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}", "messages[0].content[0]",
         "text"},
        {OPENAI_CHAT, "{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\",\"tool_calls\":[{}]}]}",
         "messages[0].tool_calls[0].function.name", "the name of the function"},
        {OPENAI_CHAT, CHAT("\"model\":3"), "model", "string"},
        {OPENAI_CHAT, CHAT("\"max_tokens\":0"), "max_tokens", "from 1"},
        {OPENAI_CHAT, CHAT("\"top_logprobs\":3"), "top_logprobs", "needs 'logprobs' to be true"},
        {OPENAI_CHAT, CHAT("\"logprobs\":3"), "logprobs", "true or false"},
        {OPENAI_CHAT, CHAT("\"logprobs\":true,\"top_logprobs\":21"), "top_logprobs", "from 0 to 20"},
        {OPENAI_COMPLETION, COMPLETION("\"tools\":[{}]"), "tools", "not supported"},
        {OPENAI_COMPLETION, COMPLETION("\"tool_choice\":\"required\""), "tool_choice", "not supported"},
        {OPENAI_COMPLETION, "{}", "prompt", "missing"},
        {OPENAI_COMPLETION, "{\"prompt\":[]}", "prompt", "0 prompts"},
        {OPENAI_COMPLETION, "{\"prompt\":{}}", "prompt", "not an object"},
        {OPENAI_COMPLETION, "{\"prompt\":[[]]}", "prompt[0]", "at least one token"},
        {OPENAI_COMPLETION, "{\"prompt\":[\"a\",true]}", "prompt[1]", "not a boolean"},
        {OPENAI_COMPLETION, "{\"prompt\":[1,{}]}", "prompt[1]", "not an object"},
        {OPENAI_COMPLETION, "{\"prompt\":[\"a\",1,[2]]}", "prompt[2]", "not an array"},
        {OPENAI_COMPLETION, "{\"prompt\":{\"prompt_string\":1}}", "prompt.prompt_string", "must be a string, not an integer"},
        {OPENAI_COMPLETION, "{\"prompt\":[{\"prompt_string\":\"a\",\"multimodal_data\":[\"x\"]}]}", "prompt[0].multimodal_data",
         "it reads text alone"},
        {OPENAI_COMPLETION, "{\"prompt\":[[1],[2,258]]}", "prompt[1][1]", "0 to 257"},
        {OPENAI_COMPLETION, "{\"prompt\":[-1]}", "prompt[0]", "0 to 257"},
        {OPENAI_COMPLETION, COMPLETION("\"n\":0"), "n", "from 1 to 128"},
        {OPENAI_COMPLETION, COMPLETION("\"n\":1.5"), "n", "not a number with a fraction"},
        {OPENAI_COMPLETION, COMPLETION("\"max_tokens\":-2"), "max_tokens", "from 0 to 2147483647, or -1"},
        {OPENAI_CHAT, CHAT("\"n_predict\":0"), "n_predict", "from 1"},
        {OPENAI_COMPLETION, COMPLETION("\"max_tokens\":3.5"), "max_tokens", "not a number with a fraction"},
        {OPENAI_COMPLETION, COMPLETION("\"max_tokens\":-1e300"), "max_tokens", "integer"},
        {OPENAI_COMPLETION, COMPLETION("\"temperature\":-0.1"), "temperature", "from 0 to 10000"},
        {OPENAI_COMPLETION, COMPLETION("\"temperature\":\"hot\""), "temperature", "not a string"},
        {OPENAI_COMPLETION, COMPLETION("\"top_p\":1.1"), "top_p", "from 0 to 1"},
        {OPENAI_COMPLETION, COMPLETION("\"top_k\":-2"), "top_k", "from -1"},
        {OPENAI_COMPLETION, COMPLETION("\"min_p\":2"), "min_p", "from 0 to 1"},
        {OPENAI_COMPLETION, COMPLETION("\"repetition_penalty\":0"), "repetition_penalty", "from 0.01"},
        {OPENAI_COMPLETION, COMPLETION("\"presence_penalty\":3"), "presence_penalty", "from -2 to 2"},
        {OPENAI_COMPLETION, COMPLETION("\"frequency_penalty\":-3"), "frequency_penalty", "from -2 to 2"},
        {OPENAI_COMPLETION, COMPLETION("\"seed\":\"1\""), "seed", "integer"},
        {OPENAI_COMPLETION, COMPLETION("\"priority\":\"high\""), "priority", "integer"},
        {OPENAI_COMPLETION, COMPLETION("\"priority\":1000001"), "priority", "from -1000000 to 1000000"},
        {OPENAI_COMPLETION, COMPLETION("\"model\":\"a\\u0000b\""), "model", "zero character"},
        {OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\\u0000x\",\"content\":\"a\"}]}", "messages[0].role", "zero character"},
        {OPENAI_CHAT, "{\"messages\":[{\"role\":3,\"content\":\"a\"}]}", "messages[0].role", "must be"},
        {OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\\u0000\",\"text\":\"a\"}]}]}",
         "messages[0].content[0]", "zero character"},
        {OPENAI_COMPLETION, COMPLETION("\"stop\":3"), "stop", "string"},
        {OPENAI_COMPLETION, COMPLETION("\"stop\":\"\""), "stop", "empty"},
        {OPENAI_COMPLETION, COMPLETION("\"stop\":[\"a\",\"b\\u0000\"]"), "stop[1]", "zero"},
        {OPENAI_COMPLETION, COMPLETION("\"stop\":[0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6]"), "stop", "at most 16"},
        {OPENAI_COMPLETION, COMPLETION("\"stop_token_ids\":3"), "stop_token_ids", "array"},
        {OPENAI_COMPLETION, COMPLETION("\"stop_token_ids\":[3,300]"), "stop_token_ids[1]", "0 to 257"},
        {OPENAI_COMPLETION, COMPLETION("\"ignore_eos\":1"), "ignore_eos", "true or false"},
        {OPENAI_COMPLETION, COMPLETION("\"logprobs\":true"), "logprobs", "integer"},
        {OPENAI_COMPLETION, COMPLETION("\"echo\":\"yes\""), "echo", "true or false"},
        {OPENAI_COMPLETION, COMPLETION("\"stream\":1"), "stream", "true or false"},
        {OPENAI_COMPLETION, COMPLETION("\"stream_options\":{}"), "stream_options", "needs 'stream' to be true"},
        {OPENAI_COMPLETION, COMPLETION("\"stream\":true,\"stream_options\":1"), "stream_options", "object"},
        {OPENAI_COMPLETION, COMPLETION("\"best_of\":0"), "best_of", "from 1 to 128"},
        {OPENAI_COMPLETION, COMPLETION("\"n\":3,\"best_of\":2"), "best_of", "at least 'n'"},
        {OPENAI_COMPLETION, COMPLETION("\"best_of\":2,\"stream\":true"), "best_of", "clear 'stream'"},
        {OPENAI_COMPLETION, COMPLETION("\"use_beam_search\":1"), "use_beam_search", "true or false"},
        {OPENAI_COMPLETION, COMPLETION("\"use_beam_search\":true,\"length_penalty\":11"), "length_penalty", "from -10 to 10"},
        {OPENAI_COMPLETION, COMPLETION("\"use_beam_search\":true,\"early_stopping\":\"x\""), "early_stopping", "never"},
        {OPENAI_COMPLETION, COMPLETION("\"use_beam_search\":true,\"stop\":\"x\""), "stop", "use stop tokens"},
        {OPENAI_CHAT, CHAT("\"use_beam_search\":true,\"n\":2,\"best_of\":4,\"stream\":true"), "best_of", "clear 'stream'"},
        {OPENAI_COMPLETION, COMPLETION("\"length_penalty\":2"), "length_penalty", "needs 'use_beam_search' to be true"},
        {OPENAI_CHAT, CHAT("\"early_stopping\":true"), "early_stopping", "needs 'use_beam_search' to be true"},
        {OPENAI_COMPLETION, COMPLETION("\"suffix\":\"x\""), "suffix", "trained to fill gaps"},
        {OPENAI_COMPLETION, COMPLETION("\"add_special_tokens\":1"), "add_special_tokens", "true or false"},
        {OPENAI_COMPLETION, COMPLETION("\"parse_special\":\"no\""), "parse_special", "true or false"},
        {OPENAI_CHAT, CHAT("\"add_special_tokens\":true"), "add_special_tokens", "leave it out"},
        {OPENAI_CHAT, CHAT("\"parse_special\":true"), "parse_special", "only the chat template makes special tokens"},
        {OPENAI_COMPLETION, COMPLETION("\"add_generation_prompt\":false"), "add_generation_prompt", "or send true"},
        {OPENAI_CHAT, CHAT("\"echo\":true"), "echo", "not supported"},
        {OPENAI_CHAT, CHAT("\"n_probs\":3"), "n_probs", "use 'logprobs'"},
        {OPENAI_COMPLETION, COMPLETION("\"repeat_penalty\":0"), "repeat_penalty", "from 0.01"},
        {OPENAI_COMPLETION, COMPLETION("\"logit_bias\":3"), "logit_bias", "an object of token ids"},
        {OPENAI_COMPLETION, COMPLETION("\"logit_bias\":{\"258\":1}"), "logit_bias", "0 to 257"},
        {OPENAI_COMPLETION, COMPLETION("\"logit_bias\":{\"-5\":1}"), "logit_bias", "names the token '-5'"},
        {OPENAI_COMPLETION, COMPLETION("\"logit_bias\":{\"\":1}"), "logit_bias", "names the token ''"},
        {OPENAI_COMPLETION, COMPLETION("\"logit_bias\":{\"5x\":101}"), "logit_bias.5x", "from -100 to 100"},
        {OPENAI_COMPLETION, COMPLETION("\"logit_bias\":{\"99999999999999999999\":1}"), "logit_bias", "0 to 257"},
        {OPENAI_COMPLETION, COMPLETION("\"logit_bias\":{\"5\":101}"), "logit_bias.5", "from -100 to 100"},
        {OPENAI_COMPLETION, COMPLETION("\"logit_bias\":{\"5\":\"x\"}"), "logit_bias.5", "not a string"},
        {OPENAI_COMPLETION, COMPLETION("\"logit_bias\":{\"5\":true}"), "logit_bias.5", "not a boolean"},
        {OPENAI_COMPLETION, COMPLETION("\"logit_bias\":[[5,1],[5]]"), "logit_bias[1]", "and a bias"},
        {OPENAI_COMPLETION, COMPLETION("\"logit_bias\":[[300,1]]"), "logit_bias[0]", "0 to 257"},
        {OPENAI_COMPLETION, COMPLETION("\"allowed_token_ids\":5"), "allowed_token_ids", "array of token ids"},
        {OPENAI_COMPLETION, COMPLETION("\"allowed_token_ids\":[5,-1]"), "allowed_token_ids[1]", "0 to 257"},
        {OPENAI_COMPLETION, COMPLETION("\"bad_words\":\"x\""), "bad_words", "array of strings"},
        {OPENAI_COMPLETION, COMPLETION("\"bad_words\":[\"x\",3]"), "bad_words[1]", "not an integer"},
        {OPENAI_COMPLETION, COMPLETION("\"bad_words\":[\"  \"]"), "bad_words[0]", "from 1 to 1024"},
        {OPENAI_COMPLETION, COMPLETION("\"min_tokens\":-1"), "min_tokens", "at least 0"},
        {OPENAI_COMPLETION, COMPLETION("\"min_tokens\":17"), "min_tokens", "at most max_tokens, 16"},
        {OPENAI_COMPLETION, COMPLETION("\"skip_special_tokens\":0"), "skip_special_tokens", "true or false"},
        {OPENAI_COMPLETION, COMPLETION("\"include_stop_str_in_output\":1"), "include_stop_str_in_output", "true or false"},
        {OPENAI_COMPLETION, COMPLETION("\"prompt_logprobs\":21"), "prompt_logprobs", "from 0 to 20"},
        {OPENAI_COMPLETION, COMPLETION("\"prompt_logprobs\":-1"), "prompt_logprobs", "from 0 to 20"},
        {OPENAI_CHAT, CHAT("\"prompt_logprobs\":0,\"stream\":true"), "prompt_logprobs", "clear 'stream'"},
        {OPENAI_CHAT, CHAT("\"logprob_start_len\":-1"), "logprob_start_len", "from 0 to"},
        {OPENAI_COMPLETION, COMPLETION("\"prompt_logprob_start\":\"5\""), "prompt_logprob_start", "not a string"},
        {OPENAI_CHAT, CHAT("\"cache_salt\":\"\""), "cache_salt", "is empty"},
        {OPENAI_CHAT, CHAT("\"cache_salt\":3"), "cache_salt", "not an integer"},
        {OPENAI_CHAT, CHAT("\"request_id\":\"\""), "request_id", "from 1 to 128"},
        {OPENAI_CHAT, CHAT("\"request_id\":7"), "request_id", "not an integer"},
        {OPENAI_CHAT, CHAT("\"request_id\":\"a\\u00e9\""), "request_id", "printable ASCII"},
        {OPENAI_COMPLETION, COMPLETION("\"rid\":\"a\\nb\""), "rid", "printable ASCII"},
        {OPENAI_CHAT, CHAT("\"truncate_prompt_tokens\":0"), "truncate_prompt_tokens", "at least 1"},
        {OPENAI_CHAT, CHAT("\"truncate_prompt_tokens\":-2"), "truncate_prompt_tokens", "from -1"},
        {OPENAI_CHAT, CHAT("\"timings_per_token\":1"), "timings_per_token", "true or false"},
        {OPENAI_COMPLETION, COMPLETION("\"use_beam_search\":true,\"guided_regex\":\"x\""), "guided_regex", "leave it out"},
        {OPENAI_COMPLETION, COMPLETION("\"prompt_embeds\":\"x\""), "prompt_embeds", "not supported"},
        {OPENAI_COMPLETION, COMPLETION("\"logits_processors\":[\"x\"]"), "logits_processors", "not supported"},
        {OPENAI_COMPLETION, COMPLETION("\"mirostat\":2"), "mirostat", "not supported"},
        {OPENAI_COMPLETION, COMPLETION("\"typical_p\":0.5"), "typical_p", "or send 1"},
        {OPENAI_COMPLETION, COMPLETION("\"seed\":1e19"), "seed", "is 1e+19; it must be an integer from -9223372036854775808"},
        {OPENAI_COMPLETION, COMPLETION("\"seed\":1e17,\"n\":1e17"), "n", "is 100000000000000000; it must be from 1 to 128"},
        {OPENAI_COMPLETION, COMPLETION("\"max_tokens\":-1e300"), "max_tokens", "it must be an integer from"},
        {OPENAI_COMPLETION, COMPLETION("\"stop_token_ids\":[1e17]"), "stop_token_ids[0]", "is 100000000000000000; token ids"},
        {OPENAI_COMPLETION, COMPLETION("\"stop_token_ids\":[1e30]"), "stop_token_ids[0]", "token ids of this model are from 0"},
        {OPENAI_COMPLETION, COMPLETION("\"top_a\":0.5"), "top_a", "use 'top_p', 'min_p' or 'top_k'"},
        {OPENAI_COMPLETION, COMPLETION("\"adaptive_target\":0.5"), "adaptive_target", "leave it out"},
        {OPENAI_COMPLETION, COMPLETION("\"repeat_last_n\":-2"), "repeat_last_n", "from -1 to"},
        {OPENAI_COMPLETION, COMPLETION("\"samplers\":[\"top_k\",\"mirostat\"]"), "samplers[1]", "is no sampler"},
        {OPENAI_COMPLETION, COMPLETION("\"samplers\":\"kkt\""), "samplers[1]", "once"},
        {OPENAI_COMPLETION, COMPLETION("\"samplers\":[\"top_k\",\"penalties\"]"), "samplers[1]", "move it"},
        {OPENAI_COMPLETION, COMPLETION("\"samplers\":\"kkkkkkkkkkkkkkkkk\""), "samplers", "at most 16"},
        {OPENAI_COMPLETION, COMPLETION("\"n\":1,\"n_cmpl\":2"), "n_cmpl", "'n' contradict each other"},
        {OPENAI_COMPLETION, COMPLETION("\"thinking_token_budget\":-2"), "thinking_token_budget", "from -1 to"},
        {OPENAI_COMPLETION, COMPLETION("\"t_max_predict_ms\":-2"), "t_max_predict_ms", "from -1 to"},
        {OPENAI_COMPLETION, COMPLETION("\"n_indent\":-1"), "n_indent", "from 0 to"},
        {OPENAI_COMPLETION, COMPLETION("\"use_beam_search\":true,\"n_indent\":2"), "n_indent", "beam search"},
        {OPENAI_COMPLETION, COMPLETION("\"dry_multiplier\":0.8"), "dry_multiplier", "not supported"},
        {OPENAI_COMPLETION, COMPLETION("\"xtc_probability\":0.5"), "xtc_probability", "not supported"},
        {OPENAI_COMPLETION, COMPLETION("\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":1}"),
         "continuous_usage_stats", "true or false"},
    };
    const openai_context c = fake_context();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(&c, cases[i].endpoint, cases[i].body, cases[i].param, cases[i].in_message);
}

static void what_asks_for_nothing_is_taken(void **state) {
    (void)state;
    static const struct {
        openai_endpoint endpoint;
        const char *body;
    } cases[] = {
        {OPENAI_CHAT,
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\",\"tool_calls\":[],"
         "\"function_call\":null},{\"role\":\"user\",\"content\":\"c\"}]}"},
        {OPENAI_CHAT, CHAT("\"tools\":[],\"tool_choice\":\"auto\",\"functions\":[],\"function_call\":\"auto\"")},
        {OPENAI_CHAT,
         CHAT("\"echo\":false,\"add_special_tokens\":false,\"add_generation_prompt\":true,\"prompt_logprobs\":null")},
        {OPENAI_CHAT,
         CHAT("\"prompt_cache_key\":\"a\",\"user\":\"u\",\"metadata\":{\"a\":\"b\"},\"store\":true,\"service_tier\":"
              "\"auto\",\"safety_identifier\":\"x\",\"cache_prompt\":false,\"spaces_between_special_tokens\":false")},
        {OPENAI_COMPLETION, COMPLETION("\"echo\":true,\"add_special_tokens\":true,\"skip_special_tokens\":true")},
        {OPENAI_COMPLETION, COMPLETION("\"best_of\":1,\"length_penalty\":1,\"use_beam_search\":false,\"early_stopping\":false,"
                                       "\"typical_p\":1.0,\"repeat_penalty\":1,\"mirostat\":0,\"tfs_z\":1,\"top_a\":0,"
                                       "\"adaptive_target\":-1,\"verbosity\":\"medium\"")},
        {OPENAI_COMPLETION,
         COMPLETION("\"n_predict\":-1,\"top_n_sigma\":-1,\"grammar\":\"\",\"json_schema\":{},\"n_probs\":0")},
    };
    const openai_context c = fake_context();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        openai_request r;
        parse_ok(&c, cases[i].endpoint, cases[i].body, &r);
        openai_request_free(&r);
    }
}

/* 3.0 is an integer; -1 is no limit; the alias counts unless the other name is there, too. */
static void numbers_come_in_many_forms(void **state) {
    (void)state;
    const openai_context c = fake_context();
    openai_request r;
    parse_ok(&c, OPENAI_COMPLETION,
             "{\"prompt\":[5.0,6],\"max_tokens\":3.0,\"n\":2e0,\"temperature\":7,\"repeat_penalty\":1.5,\"n_probs\":2}", &r);
    assert_true(r.params.max_tokens == 3 && r.params.n == 2 && r.params.sampling.temperature == 7);
    assert_true(r.params.sampling.repetition_penalty == 1.5f && r.logprobs && r.n_top == 2 && r.params.n_top == 2);
    openai_request_free(&r);
    parse_ok(&c, OPENAI_COMPLETION, COMPLETION("\"max_tokens\":-1"), &r);
    assert_int_equal(r.params.max_tokens, -1);
    openai_request_free(&r);
    parse_ok(&c, OPENAI_CHAT, CHAT("\"n_predict\":5"), &r);
    assert_int_equal(r.params.max_tokens, 5);
    openai_request_free(&r);
    parse_ok(&c, OPENAI_CHAT, CHAT("\"n_predict\":5,\"max_tokens\":6,\"repeat_penalty\":2,\"repetition_penalty\":3"), &r);
    assert_true(r.params.max_tokens == 6 && r.params.sampling.repetition_penalty == 3);
    openai_request_free(&r);
    parse_ok(&c, OPENAI_COMPLETION, COMPLETION("\"n_probs\":3,\"logprobs\":1"), &r);
    assert_int_equal(r.n_top, 1);
    openai_request_free(&r);
}

/* ---- llama-server's fields ---- */

/* Penalties count a window where the field is llama-server's. */
static void penalties_have_a_window(void **state) {
    (void)state;
    static const struct {
        const char *body;
        int32_t window;
    } cases[] = {
        {COMPLETION("\"repetition_penalty\":1.5"), -1},
        {COMPLETION("\"repeat_penalty\":1.5"), 64},
        {COMPLETION("\"repeat_penalty\":1.5,\"repeat_last_n\":5"), 5},
        {COMPLETION("\"repeat_penalty\":1.5,\"repeat_last_n\":0"), 0},
        {COMPLETION("\"repetition_penalty\":1.5,\"repeat_last_n\":-1"), INT32_MAX},
        {COMPLETION("\"frequency_penalty\":1,\"repeat_last_n\":7"), 7},
        {COMPLETION("\"frequency_penalty\":1"), -1},
        {COMPLETION("\"repeat_penalty\":1.5,\"samplers\":[\"penalties\",\"top_k\",\"temperature\"]"), 64},
        {COMPLETION("\"repeat_penalty\":1.5,\"samplers\":[\"top_k\",\"temperature\"]"), 0},
    };
    const openai_context c = fake_context();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        openai_request r;
        parse_ok(&c, OPENAI_COMPLETION, cases[i].body, &r);
        if (r.params.penalty_window != cases[i].window) fail_msg("%s: %d", cases[i].body, r.params.penalty_window);
        openai_request_free(&r);
    }
}

#define STEP_T CL_SAMPLER_TEMPERATURE
#define STEP_M CL_SAMPLER_MIN_P
#define STEP_K CL_SAMPLER_TOP_K
#define STEP_P CL_SAMPLER_TOP_P

static void samplers_are_steps(void **state) {
    (void)state;
    static const struct {
        const char *body;
        int32_t n_steps;
        cl_sampler_step steps[CL_SAMPLER_MAX_STEPS];
        float temperature;
    } cases[] = {
        {COMPLETION("\"temperature\":0.5"), 0, {STEP_T}, 0.5f},
        {COMPLETION("\"temperature\":0.5,\"samplers\":[]"), 0, {STEP_T}, 0.5f},
        {COMPLETION("\"temperature\":0.5,\"samplers\":[\"penalties\",\"dry\",\"top_n_sigma\",\"top_k\",\"typ_p\","
                    "\"top_p\",\"min_p\",\"xtc\",\"temperature\"]"),
         4,
         {STEP_K, STEP_P, STEP_M, STEP_T},
         0.5f},
        {COMPLETION("\"temperature\":0.5,\"samplers\":\"edkypmxt\""), 4, {STEP_K, STEP_P, STEP_M, STEP_T}, 0.5f},
        {COMPLETION("\"temperature\":0.5,\"samplers\":[\"top_k\"]"), 1, {STEP_K}, 1},
        {COMPLETION("\"temperature\":0.5,\"samplers\":[\"penalties\"]"), 1, {STEP_T}, 1},
    };
    const openai_context c = fake_context();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        openai_request r;
        parse_ok(&c, OPENAI_COMPLETION, cases[i].body, &r);
        assert_int_equal(r.params.cuts.n_steps, cases[i].n_steps);
        assert_memory_equal(r.params.cuts.steps, cases[i].steps, (size_t)cases[i].n_steps * sizeof *cases[i].steps);
        assert_true(r.params.sampling.temperature == cases[i].temperature);
        openai_request_free(&r);
    }
}

static void further_ends_are_read(void **state) {
    (void)state;
    const openai_context c = fake_context();
    openai_request r;
    parse_ok(&c, OPENAI_COMPLETION,
             COMPLETION("\"min_keep\":3,\"n_indent\":4,\"t_max_predict_ms\":1500,\"n_cmpl\":2,\"no_stop_trim\":true,\"rid\":"
                        "\"r\",\"return_prompt_token_ids\":true"),
             &r);
    assert_true(r.params.cuts.min_keep == 3 && r.params.min_indent == 4 && r.params.generation_s == 1.5);
    assert_true(r.n == 2 && r.params.n == 2 && r.params.include_stop && r.return_token_ids);
    assert_string_equal(r.id, "r");
    openai_request_free(&r);
    parse_ok(&c, OPENAI_COMPLETION, COMPLETION("\"n_indent\":0,\"t_max_predict_ms\":-1,\"min_keep\":0"), &r);
    assert_true(r.params.cuts.min_keep == 0 && r.params.min_indent == 0 && r.params.generation_s == 0);
    openai_request_free(&r);
}

static void assert_bias(const openai_request *r, int32_t i, int32_t token, float bias) {
    assert_true(i < r->params.n_logit_bias);
    assert_int_equal(r->params.logit_bias[i].token, token);
    assert_true(r->params.logit_bias[i].bias == bias);
}

static void rules_are_read(void **state) {
    (void)state;
    const openai_context c = fake_context();
    openai_request r;
    parse_ok(&c, OPENAI_CHAT,
             CHAT("\"logit_bias\":{\"5\":1.5,\"257\":-100},\"allowed_token_ids\":[1,2.0],\"bad_words\":[\" ab\",\"c\"],"
                  "\"min_tokens\":3,\"skip_special_tokens\":false,\"include_stop_str_in_output\":true"),
             &r);
    const cl_engine_request *p = &r.params;
    assert_int_equal(p->n_logit_bias, 2);
    assert_bias(&r, 0, 5, 1.5f);
    assert_bias(&r, 1, 257, -100);
    assert_int_equal(p->n_allowed_tokens, 2);
    assert_int_equal(p->allowed_tokens[1], 2);
    /* Words come with and without a space; the fake tokenizer's space is a token, so the word without it is enough. */
    assert_int_equal(p->n_bad_words, 2);
    assert_true(p->bad_word_sizes[0] == 2 && p->bad_word_sizes[1] == 1);
    assert_true(p->bad_words[0] == 'a' && p->bad_words[1] == 'b' && p->bad_words[2] == 'c');
    assert_int_equal(p->min_tokens, 3);
    assert_true(p->show_special && p->include_stop);
    openai_request_free(&r);

    parse_ok(&c, OPENAI_COMPLETION, COMPLETION("\"logit_bias\":[[5,-1],[\"ab\",2],[6,false]]"), &r);
    assert_int_equal(r.params.n_logit_bias, 4);
    assert_bias(&r, 0, 5, -1);
    assert_bias(&r, 1, 'a', 2);
    assert_bias(&r, 2, 'b', 2);
    assert_bias(&r, 3, 6, -INFINITY);
    openai_request_free(&r);

    parse_ok(&c, OPENAI_COMPLETION, COMPLETION("\"logit_bias\":{\"ab\":-2,\"5x\":false}"), &r);
    assert_int_equal(r.params.n_logit_bias, 4);
    assert_bias(&r, 0, 'a', -2);
    assert_bias(&r, 1, 'b', -2);
    assert_bias(&r, 2, '5', -INFINITY);
    assert_bias(&r, 3, 'x', -INFINITY);
    openai_request_free(&r);

    parse_ok(&c, OPENAI_COMPLETION, COMPLETION("\"logit_bias\":[],\"allowed_token_ids\":[],\"bad_words\":[]"), &r);
    assert_int_equal(r.params.n_logit_bias + r.params.n_allowed_tokens + r.params.n_bad_words, 0);
    assert_false(r.params.show_special || r.params.include_stop);
    openai_request_free(&r);
}

static void reports_are_read(void **state) {
    (void)state;
    const openai_context c = fake_context();
    openai_request r;
    parse_ok(
        &c, OPENAI_CHAT,
        CHAT("\"cache_salt\":\"a\\u0000b\",\"request_id\":\"r7\",\"prompt_logprobs\":3,\"logprobs\":true,\"top_logprobs\":1,"
             "\"return_tokens_as_token_ids\":true,\"timings_per_token\":true"),
        &r);
    assert_int_equal(r.params.salt_size, 3);
    assert_memory_equal(r.params.salt, "a\0b", 3);
    assert_string_equal(r.id, "r7");
    assert_true(r.params.prompt_logprobs && r.params.n_top == 3 && r.n_top == 1 && r.n_prompt_top == 3);
    assert_true(r.tokens_as_ids && r.timings && r.timings_per_token);
    openai_request_free(&r);
    parse_ok(&c, OPENAI_COMPLETION, COMPLETION("\"timings\":true"), &r);
    assert_true(r.timings && !r.timings_per_token && r.n_prompt_top == -1 && !r.params.prompt_logprobs);
    assert_int_equal(r.params.prompt_logprobs_from, 0);
    openai_request_free(&r);
    parse_ok(&c, OPENAI_COMPLETION, COMPLETION("\"echo\":true,\"logprobs\":0,\"prompt_logprob_start\":5"), &r);
    assert_int_equal(r.params.prompt_logprobs_from, 6);
    openai_request_free(&r);
    parse_ok(&c, OPENAI_CHAT, CHAT("\"prompt_logprobs\":0,\"logprob_start_len\":0"), &r);
    assert_int_equal(r.params.prompt_logprobs_from, 1);
    openai_request_free(&r);
}

/* By a number beyond all that they bound, clients mean that there is none. */
static void limits_may_be_huge(void **state) {
    (void)state;
    static const char *const huge[] = {"2147483648", "9007199254740991", "18446744073709551616", "1e19", "1e300"};
    const openai_context c = fake_context();
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        char body[512];
        openai_request r;
        snprintf(body, sizeof body,
                 COMPLETION("\"max_tokens\":%s,\"truncate_prompt_tokens\":%s,\"repeat_last_n\":%s,\"thinking_token_budget\":%s,"
                            "\"top_k\":%s"),
                 huge[i], huge[i], huge[i], huge[i], huge[i]);
        parse_ok(&c, OPENAI_COMPLETION, body, &r);
        assert_int_equal(r.params.max_tokens, INT32_MAX);
        assert_int_equal(r.truncate, INT32_MAX);
        assert_int_equal(r.params.penalty_window, INT32_MAX);
        assert_int_equal(r.max_reasoning_tokens, INT32_MAX);
        assert_int_equal(r.params.sampling.top_k, 0);
        openai_request_free(&r);
    }
}

/* The last tokens stay, and echo repeats these; -1 leaves room for the completion. */
static void prompts_are_truncated(void **state) {
    (void)state;
    openai_context c = fake_context();
    openai_request r;
    c.n_ctx = 10;
    parse_ok(&c, OPENAI_COMPLETION,
             "{\"prompt\":[\"abcdef\",\"xy\"],\"truncate_prompt_tokens\":3,\"echo\":true,\"max_tokens\":1}", &r);
    assert_tokens(&r.prompts[0], "def");
    assert_string_equal(r.prompts[0].text, "def");
    assert_int_equal(r.prompts[0].text_size, 3);
    assert_tokens(&r.prompts[1], "xy");
    openai_request_free(&r);
    parse_ok(&c, OPENAI_COMPLETION, "{\"prompt\":\"0123456789abcdef\",\"truncate_prompt_tokens\":-1,\"max_tokens\":3}", &r);
    assert_tokens(&r.prompts[0], "9abcdef");
    openai_request_free(&r);
    parse_ok(&c, OPENAI_COMPLETION, "{\"prompt\":\"0123456789abcdef\",\"truncate_prompt_tokens\":-1,\"max_tokens\":-1}", &r);
    assert_tokens(&r.prompts[0], "789abcdef");
    openai_request_free(&r);
    parse_ok(&c, OPENAI_COMPLETION, "{\"prompt\":[1,2,3],\"truncate_prompt_tokens\":1,\"max_tokens\":3}", &r);
    assert_true(r.prompts[0].tokens.n == 1 && r.prompts[0].tokens.ids[0] == 3);
    openai_request_free(&r);
    parse_ok(&c, OPENAI_CHAT, CHAT("\"truncate_prompt_tokens\":1"), &r);
    assert_true(r.prompts[0].tokens.n == 1 && r.prompts[0].tokens.ids[0] == FAKE_END);
    openai_request_free(&r);
}

static void stop_strings_have_a_limit(void **state) {
    (void)state;
    const openai_context c = fake_context();
    for (int over = 0; over < 2; over++) {
        char text[OPENAI_MAX_STOP_BYTES + 2], body[OPENAI_MAX_STOP_BYTES + 100];
        openai_request r;
        memset(text, 'x', sizeof text);
        text[OPENAI_MAX_STOP_BYTES + over] = '\0';
        snprintf(body, sizeof body, COMPLETION("\"stop\":[\"y\",\"%s\"]"), text);
        if (!over) {
            parse_ok(&c, OPENAI_COMPLETION, body, &r);
            assert_string_equal(r.params.stop[1], text);
            openai_request_free(&r);
            continue;
        }
        assert_refused(&c, OPENAI_COMPLETION, body, "stop[1]",
                       "'stop[1]' has 1025 bytes; a stop string may have at most 1024: shorten it");
    }
}

/* Ten tokens of at most four bytes ("</s>"), each of which normalisation may have shortened by the factor of read_prompt.c. */
static void check_text_that_cannot_fit(int shortened) {
    const struct {
        openai_endpoint endpoint;
        const char *format; /* of text twice */
        int size;           /* of that text */
        const char *param;  /* NULL: it is accepted */
    } cases[] = {
        {OPENAI_COMPLETION, "{\"prompt\":\"%s\",\"user\":\"%s\"}", 9, NULL},
        {OPENAI_COMPLETION, "{\"prompt\":\"%s\",\"user\":\"%s\"}", 40 * shortened, "prompt"},
        {OPENAI_COMPLETION, "{\"prompt\":\"%s\",\"user\":\"%s\"}", 40 * shortened + 1, "prompt"},
        {OPENAI_COMPLETION, "{\"prompt\":[\"%s\",\"%s\"]}", 9, NULL},
        {OPENAI_COMPLETION, "{\"prompt\":[\"a\",\"%s\",\"%s\"]}", 40 * shortened, "prompt[1]"},
        {OPENAI_COMPLETION, "{\"prompt\":[\"a\",\"%s\",\"%s\"]}", 40 * shortened + 1, "prompt[1]"},
        {OPENAI_COMPLETION, "{\"prompt\":[5,\"%s\"],\"user\":\"%s\"}", 40 * shortened, "prompt"},
        {OPENAI_COMPLETION, "{\"prompt\":[5,\"%s\"],\"user\":\"%s\"}", 40 * shortened + 1, "prompt"},
        {OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"},{\"role\":\"user\",\"content\":\"%s\"}]}",
         20 * shortened - 2, NULL}, /* the fake chat adds "</s>" */
        {OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"},{\"role\":\"user\",\"content\":\"%s\"}]}",
         20 * shortened - 1, "messages"},
    };
    openai_context c = fake_context();
    c.n_ctx = 10;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200], body[600], message[200];
        openai_request r;
        openai_error error;
        memset(text, 'x', sizeof text);
        text[cases[i].size] = '\0';
        snprintf(body, sizeof body, cases[i].format, text, text);
        if (!cases[i].param) {
            parse_ok(&c, cases[i].endpoint, body, &r);
            openai_request_free(&r);
            continue;
        }
        assert_false(parse(&c, cases[i].endpoint, body, &r, &error));
        assert_int_equal(error.status, 400);
        assert_string_equal(error.code, "context_length_exceeded");
        assert_string_equal(error.param, cases[i].param);
        if (cases[i].size == 40 * shortened) { /* it could have fitted */
            assert_non_null(strstr(error.message, "This model's maximum context length is 10 tokens; '"));
            continue;
        }
        snprintf(message, sizeof message,
                 "This model's maximum context length is 10 tokens, at most %d bytes of text; '%s' has %d bytes: shorten it",
                 40 * shortened, cases[i].param, cases[i].endpoint == OPENAI_CHAT ? 2 * cases[i].size + 4 : cases[i].size);
        assert_string_equal(error.message, message);
    }
}

/* Token ids are counted before they are read: the last one is invalid, and echo needs its text. */
static void ids_that_cannot_fit_are_not_read(void **state) {
    (void)state;
    openai_context c = fake_context();
    openai_request r;
    openai_error error;
    c.n_ctx = 10;
    assert_false(parse(&c, OPENAI_COMPLETION, "{\"prompt\":[[1],[1,1,1,1,1,1,1,1,1,1,-1]],\"echo\":true}", &r, &error));
    assert_string_equal(error.code, "context_length_exceeded");
    assert_string_equal(error.message, "This model's maximum context length is 10 tokens; 'prompt[1]' has 11: shorten it");
}

static void text_that_cannot_fit_is_refused(void **state) {
    (void)state;
    check_text_that_cannot_fit(1);
    fake_shorten(true);
    check_text_that_cannot_fit(4);
    fake_shorten(false);
}

static void without_a_chat_format_chat_is_refused(void **state) {
    (void)state;
    openai_context c = fake_context();
    openai_request r;
    openai_error error;
    c.chat = NULL;
    assert_false(parse(&c, OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", &r, &error));
    assert_non_null(strstr(error.message, "no chat template"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_is_read),
        cmocka_unit_test(a_chat_has_no_prompts),
        cmocka_unit_test(best_of_is_read),
        cmocka_unit_test(choices_of_all_prompts_are_bounded),
        cmocka_unit_test(a_beam_search_is_read),
        cmocka_unit_test(what_is_left_out_has_openais_defaults),
        cmocka_unit_test(seed_minus_one_is_another_each_time),
        cmocka_unit_test(prompts_and_messages_become_tokens),
        cmocka_unit_test(names_in_prompts_are_text_unless_asked),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(what_asks_for_nothing_is_taken),
        cmocka_unit_test(numbers_come_in_many_forms),
        cmocka_unit_test(penalties_have_a_window),
        cmocka_unit_test(samplers_are_steps),
        cmocka_unit_test(further_ends_are_read),
        cmocka_unit_test(rules_are_read),
        cmocka_unit_test(reports_are_read),
        cmocka_unit_test(limits_may_be_huge),
        cmocka_unit_test(prompts_are_truncated),
        cmocka_unit_test(stop_strings_have_a_limit),
        cmocka_unit_test(ids_that_cannot_fit_are_not_read),
        cmocka_unit_test(text_that_cannot_fit_is_refused),
        cmocka_unit_test(without_a_chat_format_chat_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
