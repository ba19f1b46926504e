/* Which tokens may be drawn, which text is shown, and what salts separate. */
#include "tests/support/testing.h"

#include <math.h>
#include <string.h>

#include "fixture.h"

enum { N_PROMPT = 40, MAX_PROMPT = 120, N_KINDS = 30, N_REQUESTS = 2 * N_KINDS };

/* ---- Same bytes ---- */

static const cl_logit_bias bias[] = {{97, 3}, {98, -2.5f}, {TOY_SPECIAL, 4}, {TOY_END, 3}, {99, -INFINITY}};
/* 97; any token after 98; 98 98 98 */
static const int32_t bad_words[] = {100, 97, 98, 98, 98, 98, 98}, bad_word_sizes[] = {1, 2, 3, 1};
static const int32_t shown[] = {TOY_SPECIAL};

/* Each rule alone and with others, with penalties, stop strings and draws. The first of a kind is a draft for the second. */
static cl_engine_request variety(int request_index, int32_t *tokens, recording *r) {
    const int i = request_index % N_KINDS;
    static const int64_t lengths[] = {1, 2, 15, 16, 17, 31, 48, 65, 100, 119};
    static const char *const stop[] = {"END", "ab", "\n\n", "e"};
    static int32_t allowed[64];
    for (int k = 0; k < 64; k++) allowed[k] = (k * 4) % TOY_VOCAB;
    const int64_t n = lengths[i % 10];
    make_prompt(tokens, n, i % 5 == 4 ? n : n * 2 / 3, (uint32_t)(i % 3), (uint32_t)i);
    cl_engine_request request = make_request(tokens, n, 30 + 7 * (i % 11), r);
    if (i % 2 == 1) request.sampling.temperature = 1;
    request.sampling.seed = (uint64_t)i;
    request.ignore_eos = i % 3 == 0;
    if (i % 4 != 1) {
        request.logit_bias = bias;
        request.n_logit_bias = 5;
    }
    if (i % 3 == 1) {
        request.allowed_tokens = allowed;
        request.n_allowed_tokens = 64;
    }
    if (i % 5 < 3) {
        request.bad_words = bad_words;
        request.bad_word_sizes = bad_word_sizes;
        request.n_bad_words = 4;
    }
    if (i % 3 > 0) request.min_tokens = 20 + i % 9;
    if (i % 7 > 3) {
        request.stop = stop;
        request.n_stop = 4;
        request.include_stop = i % 2;
    }
    if (i % 6 == 5) request.sampling.repetition_penalty = 1.2f;
    request.show_special = i % 10 == 3;
    if (i % 10 == 6) {
        request.shown_tokens = shown;
        request.n_shown_tokens = 1;
    }
    if (i % 4 == 2) {
        request.salt = i % 8 == 2 ? "a" : "b";
        request.salt_size = 1;
    }
    if (i % 9 == 8) request.n = 3;
    return request;
}

static int64_t n_preemptions;

static void check_run(const setting *set, const drafting *way, const cl_engine_stats *stats) {
    n_preemptions += stats->preemptions;
    if (way->on && set->one_by_one) assert_true(stats->drafts.n_accepted > 20);
}

static void same_bytes_under_rules(void **state) {
    (void)state;
    static const cattn_type types[] = {CATTN_F32, CATTN_I8};
    expect_same_bytes_as_usual(&(series){
        .make = variety, .n = N_REQUESTS, .max_prompt = MAX_PROMPT, .types = types, .n_types = 2, .check_run = check_run});
    assert_true(n_preemptions > 60); /* in 12 runs; how many one of them has depends on the level's workspace */
}

/* ---- What is drawn ---- */

static void start(fixture *f, int32_t *tokens, cl_engine_request *request, int64_t max_tokens) {
    const cl_engine_config config = fixture_config();
    fixture_start(f, &config, 1);
    make_prompt(tokens, N_PROMPT, 0, 0, 1);
    *request = make_request(tokens, N_PROMPT, max_tokens, NULL);
    request->sampling.temperature = 1;
}

/* Whether the word is somewhere in the tokens. */
static bool contains(const recorded_choice *c, const int32_t *word, int64_t n) {
    for (int64_t i = 0; i + n <= c->n_tokens; i++)
        if (memcmp(c->tokens + i, word, (size_t)n * sizeof *word) == 0) return true;
    return false;
}

static void rules_are_kept(void **state) {
    (void)state;
    int32_t tokens[N_PROMPT];
    cl_engine_request request;
    fixture f;
    start(&f, tokens, &request, 200);
    static const int32_t allowed[] = {97, 98, 99};
    static const int32_t words[] = {97, 98, 99, 99}, sizes[] = {2, 2};
    request.allowed_tokens = allowed;
    request.n_allowed_tokens = 3;
    recording *r = run_request(&f, request);
    const recorded_choice *c = &r->choices[0];
    for (int64_t i = 0; i < c->n_tokens; i++) assert_in_range(c->tokens[i], 97, 99);
    assert_true(contains(c, words, 2) && contains(c, words + 2, 2)); /* so that the next finds something to do */
    recording_free(r);

    request.bad_words = words;
    request.bad_word_sizes = sizes;
    request.n_bad_words = 2;
    tokens[N_PROMPT - 1] = 97; /* words begin in the completion */
    r = run_request(&f, request);
    c = &r->choices[0];
    assert_int_equal(c->n_tokens, 200);
    assert_false(contains(c, words, 2) || contains(c, words + 2, 2));
    static const int32_t other[] = {98, 97};
    assert_true(contains(c, other, 2));
    recording_free(r);

    static const cl_logit_bias one[] = {{98, -INFINITY}, {99, 100}};
    request.n_bad_words = 0;
    request.logit_bias = one;
    request.n_logit_bias = 2;
    r = run_request(&f, request);
    for (int64_t i = 0; i < 200; i++) assert_int_equal(r->choices[0].tokens[i], 99);
    recording_free(r);
    fixture_stop(&f);
}

/* The logprobs under rules are those that prompt_logprobs reports of the same tokens. */
static void logprobs_are_the_models_own(void **state) {
    (void)state;
    enum { N_DRAWN = 60 };
    int32_t tokens[N_PROMPT], whole[N_PROMPT + N_DRAWN];
    cl_engine_request request;
    fixture f;
    start(&f, tokens, &request, N_DRAWN);
    request.logit_bias = bias;
    request.n_logit_bias = 5;
    request.min_tokens = N_DRAWN;
    request.ignore_eos = false;
    recording *drawn = run_request(&f, request);
    assert_int_equal(drawn->choices[0].n_tokens, N_DRAWN);
    memcpy(whole, tokens, sizeof tokens);
    memcpy(whole + N_PROMPT, drawn->choices[0].tokens, N_DRAWN * sizeof *whole);
    request = make_request(whole, N_PROMPT + N_DRAWN, 1, NULL);
    request.prompt_logprobs = true;
    recording *scored = run_request(&f, request);
    assert_memory_equal(scored->prompt_logprobs + N_PROMPT, drawn->choices[0].logprobs, N_DRAWN * sizeof(float));
    recording_free(scored);
    recording_free(drawn);
    fixture_stop(&f);
}

/* Before min_tokens no end token and no stop token is drawn, and no stop string counts. The toy model likes to end. */
static void nothing_ends_before_min_tokens(void **state) {
    (void)state;
    int32_t tokens[N_PROMPT];
    cl_engine_request request;
    fixture f;
    start(&f, tokens, &request, 300);
    request.ignore_eos = false;
    int n_early = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        request.sampling.seed = seed;
        request.min_tokens = 0;
        recording *r = run_request(&f, request);
        n_early += r->choices[0].n_tokens <= 50;
        recording_free(r);
        request.min_tokens = 50;
        r = run_request(&f, request);
        const recorded_choice *c = &r->choices[0];
        assert_true(c->finish == CL_ENGINE_STOP && c->n_tokens > 50);
        for (int64_t i = 0; i + 1 < c->n_tokens; i++) assert_true(c->tokens[i] != TOY_END);
        const int32_t stop_token = c->tokens[10];
        recording_free(r);

        request.stop_tokens = &stop_token;
        request.n_stop_tokens = 1;
        r = run_request(&f, request);
        c = &r->choices[0];
        assert_true(c->n_tokens > 50);
        for (int64_t i = 0; i < 50; i++) assert_true(c->tokens[i] != stop_token && c->tokens[i] != TOY_END);
        recording_free(r);
        request.n_stop_tokens = 0;
    }
    assert_in_range(n_early, 5, 20);

    request.ignore_eos = true; /* an end token does not end the choice, so it may be drawn */
    request.sampling.seed = 0;
    recording *r = run_request(&f, request);
    static const int32_t end = TOY_END;
    assert_true(contains(&r->choices[0], &end, 1));
    const char *const stop[] = {"a", "b", "c", "d", "e", "f", "g"};
    recording_free(r);
    request.stop = stop;
    request.n_stop = 7;
    request.min_tokens = 0;
    r = run_request(&f, request);
    const int64_t n_stopped = r->choices[0].n_tokens;
    assert_int_equal(r->choices[0].finish, CL_ENGINE_STOP);
    recording_free(r);
    request.min_tokens = n_stopped - 1;
    r = run_request(&f, request);
    assert_int_equal(r->choices[0].n_tokens, n_stopped);
    recording_free(r);
    request.min_tokens = n_stopped;
    r = run_request(&f, request);
    assert_true(r->choices[0].n_tokens > n_stopped);
    recording_free(r);
    fixture_stop(&f);
}

/* ---- What is shown ---- */

static void expect_text(fixture *f, cl_engine_request request, const char *text) {
    recording *r = run_request(f, request);
    r->choices[0].text[r->choices[0].text_size] = '\0';
    assert_string_equal(r->choices[0].text, text);
    recording_free(r);
}

/* The completion is "a", "<s>", "a", "<s>", ... by its rules, and ends with TOY_END. */
static void special_tokens_are_shown(void **state) {
    (void)state;
    int32_t tokens[N_PROMPT];
    cl_engine_request request;
    fixture f;
    start(&f, tokens, &request, 100);
    static const int32_t allowed[] = {97, TOY_SPECIAL, TOY_END}, special = TOY_SPECIAL, end = TOY_END;
    static const int32_t words[] = {97, 97, TOY_SPECIAL, TOY_SPECIAL}, sizes[] = {2, 2};
    static const cl_logit_bias likely[] = {{97, 100}, {TOY_SPECIAL, 50}, {TOY_END, -100}};
    request.sampling.temperature = 0;
    request.ignore_eos = false;
    request.allowed_tokens = allowed;
    request.n_allowed_tokens = 3;
    request.bad_words = words;
    request.bad_word_sizes = sizes;
    request.n_bad_words = 2;
    request.logit_bias = likely;
    request.n_logit_bias = 3;
    request.max_tokens = 5;
    expect_text(&f, request, "aaa");
    request.shown_tokens = &special;
    request.n_shown_tokens = 1;
    expect_text(&f, request, "a<s>a<s>a");
    request.shown_tokens = &end;
    expect_text(&f, request, "aaa");
    request.n_shown_tokens = 0;
    request.show_special = true;
    expect_text(&f, request, "a<s>a<s>a");
    const char *stop = "<s>a<";
    request.stop = &stop;
    request.n_stop = 1;
    expect_text(&f, request, "a");
    request.include_stop = true;
    expect_text(&f, request, "a<s>a<");
    request.n_stop = 0;
    request.stop_tokens = &special; /* the token that ends a choice is shown with it alone */
    request.n_stop_tokens = 1;
    expect_text(&f, request, "a<s>");
    request.show_special = false;
    expect_text(&f, request, "a");
    request.stop_tokens = allowed;
    expect_text(&f, request, "a");
    request.include_stop = false;
    expect_text(&f, request, "");
    fixture_stop(&f);
}

/* ---- Salts ---- */

static int64_t n_cached_of(fixture *f, cl_engine_request request, uint32_t domain, const char *salt) {
    request.domain = domain;
    request.salt = salt;
    request.salt_size = salt ? strlen(salt) : 0;
    recording *r = run_request(f, request);
    const int64_t n = r->n_cached;
    recording_free(r);
    stats_when_idle(f);
    return n;
}

static void only_equal_salts_share(void **state) {
    (void)state;
    int32_t tokens[N_PROMPT];
    cl_engine_request request;
    fixture f;
    start(&f, tokens, &request, 4);
    static const char *const salts[] = {NULL, "a", "b", "aa"};
    for (uint32_t domain = 0; domain < 2; domain++) {
        for (int i = 0; i < 4; i++) assert_int_equal(n_cached_of(&f, request, domain, salts[i]), 0);
        for (int i = 0; i < 4; i++) assert_true(n_cached_of(&f, request, domain, salts[i]) > N_PROMPT / 2);
    }
    request.prompt_logprobs = true;
    assert_int_equal(n_cached_of(&f, request, 0, "a"), 0);
    fixture_stop(&f);
}

/* Together in a step, those with one salt compute the prompt once, and each salt its own. */
static void salts_separate_what_runs_together(void **state) {
    (void)state;
    enum { N = 6 };
    int32_t tokens[N_PROMPT];
    cl_engine_request request, requests[N];
    fixture f;
    start(&f, tokens, &request, 8);
    recording *r[N];
    static const char *const salts[N] = {"a", "b", "a", NULL, "b", "a"};
    for (int i = 0; i < N; i++) {
        requests[i] = request;
        requests[i].ctx = r[i] = recording_create();
        requests[i].salt = salts[i];
        requests[i].salt_size = salts[i] ? 1 : 0;
    }
    submit_together(&f, requests, N, NULL);
    for (int i = 0; i < N; i++) {
        recording_wait(r[i]);
        assert_true(i == 0 || recording_equal(r[0], r[i]));
    }
    const int64_t n_once = N_PROMPT; /* and the last token of each that joins later */
    const int64_t n_computed = stats_when_idle(&f).prefill_tokens_computed;
    assert_in_range(n_computed, 3 * n_once, 3 * n_once + 2 * N);
    for (int i = 0; i < N; i++) recording_free(r[i]);
    fixture_stop(&f);
}

/* Drafts come from completions of the same salt: those of others do not tell what these were. */
static void salts_separate_drafts(void **state) {
    (void)state;
    int32_t tokens[N_PROMPT];
    cl_engine_request request;
    fixture f;
    cl_engine_config config = fixture_config();
    config.speculate = true;
    config.row_cost = 0;
    fixture_start(&f, &config, 1);
    make_prompt(tokens, N_PROMPT, 0, 0, 1);
    request = make_request(tokens, N_PROMPT, 40, NULL);
    request.sampling.temperature = 1;
    int64_t n_drafted[3] = {0};
    static const char *const salts[] = {"a", "b", "a"};
    for (int i = 0; i < 3; i++) {
        const int64_t before = stats_of(&f).drafts.n_accepted;
        n_cached_of(&f, request, 0, salts[i]);
        n_drafted[i] = stats_of(&f).drafts.n_accepted - before;
    }
    assert_int_equal(n_drafted[0], n_drafted[1]);
    assert_true(n_drafted[2] > n_drafted[1] + 20);
    fixture_stop(&f);
}

/* A pinned prompt keeps its salt. */
static void salts_of_pins_stay(void **state) {
    (void)state;
    int32_t tokens[N_PROMPT];
    cl_engine_config config = fixture_config();
    config.pin_bytes = MIB;
    fixture f;
    fixture_start(&f, &config, 1);
    make_prompt(tokens, N_PROMPT, 0, 0, 1);
    cl_engine_request request = make_request(tokens, N_PROMPT, 0, NULL);
    request.pin = true;
    request.salt = "a";
    request.salt_size = 1;
    recording *r = run_request(&f, request);
    const uint64_t id = r->request;
    recording_free(r);
    request.pin = false;
    request.max_tokens = 1;
    assert_true(n_cached_of(&f, request, 0, "a") > N_PROMPT / 2);
    assert_int_equal(n_cached_of(&f, request, 0, "b"), 0);
    cl_engine_unpin(f.engine, id);
    fixture_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes_under_rules),
        cmocka_unit_test(rules_are_kept),
        cmocka_unit_test(logprobs_are_the_models_own),
        cmocka_unit_test(nothing_ends_before_min_tokens),
        cmocka_unit_test(special_tokens_are_shown),
        cmocka_unit_test(only_equal_salts_share),
        cmocka_unit_test(salts_separate_what_runs_together),
        cmocka_unit_test(salts_separate_drafts),
        cmocka_unit_test(salts_of_pins_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
