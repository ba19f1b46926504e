/* Logprobs of a prompt from some position on, before which its tokens are shared, and of tokens that a request names. */
#include "tests/support/testing.h"

#include <string.h>

#include "chunkllama/engine/engine_step.h"
#include "fixture.h"

/* A request for the logprobs of a prompt from a position on. */
static cl_engine_request scoring(const int32_t *tokens, int64_t n, int64_t from) {
    cl_engine_request request = make_request(tokens, n, 0, NULL);
    request.prompt_logprobs = true;
    request.prompt_logprobs_from = from;
    return request;
}

static void assert_scores(const recording *got, const recording *whole, int64_t n, int64_t from) {
    const int64_t n_reported = from < n ? n - from : 0;
    assert_int_equal(got->n_prompt_events, n_reported);
    if (n_reported == 0) return;
    assert_int_equal(got->first_prompt_event, from);
    assert_memory_equal(got->prompt_logprobs + from, whole->prompt_logprobs + from, (size_t)n_reported * sizeof(float));
}

/* The tokens that a request for scores from a position on finds, if the cache has its whole prompt. */
static int64_t n_found(int64_t n, int64_t from) { return (from < 1 ? 0 : from >= n ? n - 1 : from - 1) / 2 * 2; }

/* The bits are those of the whole computation, with an empty cache and with one that has the prompt, also after other scores.
 */
static void scores_have_the_same_bits(void **state) {
    (void)state;
    enum { N = 75 };
    static const int64_t starts[] = {0, 1, 2, 3, 15, 16, 17, 18, 40, 41, 64, 73, 74, 75, 90};
    static const int32_t segments[] = {0, 1, 20};
    int32_t tokens[N];
    make_prompt(tokens, N, N, 5, 0);
    for (size_t s = 0; s < sizeof segments / sizeof *segments; s++) {
        cl_engine_config config = fixture_config();
        config.prefill_segment = segments[s];
        fixture f;
        fixture_start(&f, &config, 1);
        recording *whole = run_request(&f, scoring(tokens, N, 0));
        assert_int_equal(whole->n_cached, 0);
        for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
            assert_int_equal(cl_engine_reset_cache(f.engine, NULL), CL_OK);
            for (int warm = 0; warm < 3; warm++) {
                recording *r = run_request(&f, warm == 1 ? make_request(tokens, N, 1, NULL) : scoring(tokens, N, starts[i]));
                if (warm != 1) assert_scores(r, whole, N, starts[i]);
                if (warm == 2) assert_int_equal(r->n_cached, n_found(N, starts[i]));
                recording_free(r);
            }
        }
        recording_free(whole);
        fixture_stop(&f);
    }
}

/* Continuations of one context compute it once, together or one after the other, and leave it in the cache, but not themselves.
 */
static void many_continuations_share_their_context(void **state) {
    (void)state;
    enum { N_CONTEXT = 201, N_MORE = 7, N = 20, LENGTH = N_CONTEXT + N_MORE };
    static int32_t tokens[N][LENGTH];
    recording *alone[N];
    fixture f;
    const cl_engine_config config = fixture_config();
    fixture_start(&f, &config, 1);
    for (int i = 0; i < N; i++) {
        make_prompt(tokens[i], LENGTH, N_CONTEXT, 5, (uint32_t)i);
        alone[i] = run_request(&f, scoring(tokens[i], LENGTH, 0));
    }
    fixture_stop(&f);
    for (int together = 0; together < 2; together++) {
        recording *r[N];
        cl_engine_request requests[N];
        fixture_start(&f, &config, 1);
        for (int i = 0; i < N; i++) {
            r[i] = recording_create();
            requests[i] = scoring(tokens[i], LENGTH, N_CONTEXT);
            requests[i].ctx = r[i];
            if (together) continue;
            submit(&f, &requests[i]);
            recording_wait(r[i]);
        }
        if (together) submit_together(&f, requests, N, NULL);
        for (int i = 0; i < N; i++) {
            recording_wait(r[i]);
            assert_scores(r[i], alone[i], LENGTH, N_CONTEXT);
            if (i > 0) assert_int_equal(r[i]->n_cached, N_CONTEXT - 1);
            recording_free(r[i]);
        }
        const cl_engine_stats stats = stats_when_idle(&f);
        assert_int_equal(stats.prefill_tokens_computed, N_CONTEXT - 1 + N * (N_MORE + 1));
        if (together) assert_true(stats.steps <= 8); /* 4 for the context, whose last one has scores, too, and 8 prompts each */
        assert_int_equal(kv_stats_of(&f).tokens_retained, N_CONTEXT - 1);
        recording *after = run_request(&f, make_request(tokens[0], LENGTH, 1, NULL));
        assert_int_equal(after->n_cached, N_CONTEXT - 1);
        recording_free(after);
        fixture_stop(&f);
    }
    for (int i = 0; i < N; i++) recording_free(alone[i]);
}

/* Prompts that come in one step: where another one computes the context, a prompt has only scored rows, and all of them
 * together have at most 64 in a step. */
static void a_step_has_a_limit_of_scored_rows(void **state) {
    (void)state;
    enum { N_CONTEXT = 101, N_MORE = 100, N = 4, LENGTH = N_CONTEXT + N_MORE, N_SCORED = N_MORE + 1 };
    static int32_t tokens[N][LENGTH];
    recording *r[1 + N] = {recording_create()};
    cl_engine_request requests[1 + N];
    cl_engine_config config = fixture_config();
    config.max_step_rows = 2 * N * LENGTH;
    fixture f;
    fixture_start(&f, &config, 1);
    requests[0] = make_request((int32_t[]){3, 4}, 2, 0, r[0]); /* the others come while its step runs */
    for (int i = 0; i < N; i++) {
        make_prompt(tokens[i], LENGTH, N_CONTEXT, 5, (uint32_t)i);
        requests[1 + i] = scoring(tokens[i], LENGTH, N_CONTEXT);
        requests[1 + i].ctx = r[1 + i] = recording_create();
    }
    submit_together(&f, requests, 1 + N, NULL);
    for (int i = 0; i < 1 + N; i++) recording_wait(r[i]);
    const cl_engine_stats stats = stats_when_idle(&f);
    assert_int_equal(stats.prefill_tokens_computed, 2 + N_CONTEXT - 1 + N * N_SCORED);
    assert_int_equal(stats.steps, 1 + (N * N_SCORED + CL_STEP_SCORED_ROWS - 1) / CL_STEP_SCORED_ROWS);
    for (int i = 0; i < N; i++) {
        recording *whole = run_request(&f, scoring(tokens[i], LENGTH, 0));
        assert_scores(r[1 + i], whole, LENGTH, N_CONTEXT);
        recording_free(whole);
    }
    for (int i = 0; i < 1 + N; i++) recording_free(r[i]);
    fixture_stop(&f);
}

/* What is drawn behind scores is what is drawn without them, by several choices, too. */
static void completions_may_follow(void **state) {
    (void)state;
    enum { N_PROMPT = 50, N_DRAWN = 20, N = 3 };
    int32_t tokens[N_PROMPT];
    fixture f;
    const cl_engine_config config = fixture_config();
    fixture_start(&f, &config, 1);
    make_prompt(tokens, N_PROMPT, 0, 0, 7);
    cl_engine_request request = make_request(tokens, N_PROMPT, N_DRAWN, NULL);
    request.n = N;
    request.sampling.temperature = 1;
    recording *plain = run_request(&f, request);
    request.prompt_logprobs = true;
    request.prompt_logprobs_from = 30;
    recording *scored = run_request(&f, request);
    assert_int_equal(scored->n_cached, 28);
    assert_int_equal(scored->n_prompt_events, 20);
    for (int i = 0; i < N; i++) {
        assert_int_equal(scored->choices[i].n_tokens, N_DRAWN);
        assert_memory_equal(scored->choices[i].tokens, plain->choices[i].tokens, N_DRAWN * sizeof(int32_t));
        assert_memory_equal(scored->choices[i].logprobs, plain->choices[i].logprobs, N_DRAWN * sizeof(float));
    }
    recording_free(plain);
    recording_free(scored);
    fixture_stop(&f);
}

typedef struct named {
    int32_t n;
    cl_sampler_logprob top[4];
} named;

static void keep_top(void *ctx, const cl_engine_event *event) {
    named *kept = ctx;
    if (event->kind != CL_EVENT_TOKEN) return;
    kept->n = event->token.n_top;
    memcpy(kept->top, event->token.top, (size_t)kept->n * sizeof *kept->top);
}

/* The logprobs of named tokens are those that the same tokens have in a prompt, in the order of the names. */
static void named_tokens_are_reported(void **state) {
    (void)state;
    enum { N_PROMPT = 33, N_NAMES = 3 };
    static const int32_t names[N_NAMES] = {9, 200, 9};
    int32_t tokens[N_PROMPT + 1];
    named kept = {0};
    fixture f;
    const cl_engine_config config = fixture_config();
    fixture_start(&f, &config, 1);
    make_prompt(tokens, N_PROMPT, 0, 0, 7);
    recording *r = recording_create();
    r->hook = keep_top;
    r->hook_ctx = &kept;
    cl_engine_request request = make_request(tokens, N_PROMPT, 1, r);
    request.n_top = N_NAMES;
    request.top_tokens = names;
    submit(&f, &request);
    recording_wait(r);
    recording_free(r);
    assert_int_equal(kept.n, N_NAMES);
    for (int i = 0; i < N_NAMES; i++) {
        tokens[N_PROMPT] = names[i];
        r = run_request(&f, scoring(tokens, N_PROMPT + 1, N_PROMPT));
        assert_int_equal(kept.top[i].id, names[i]);
        assert_memory_equal(&kept.top[i].logprob, &r->prompt_logprobs[N_PROMPT], sizeof(float));
        recording_free(r);
    }
    fixture_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_have_the_same_bits),         cmocka_unit_test(many_continuations_share_their_context),
        cmocka_unit_test(a_step_has_a_limit_of_scored_rows), cmocka_unit_test(completions_may_follow),
        cmocka_unit_test(named_tokens_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
