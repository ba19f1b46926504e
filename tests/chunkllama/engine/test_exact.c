/* The same bytes are reported of a request whatever runs beside it and however the engine is configured. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

enum { N_REQUESTS = 26, MAX_PROMPT = 160 };

/* Requests of all kinds: families with a common prefix, lengths at and around chunk borders, equal prompts, choices. */
static cl_engine_request variety(int i, int32_t *tokens, recording *r) {
    static const int64_t lengths[] = {1, 2, 15, 16, 17, 31, 47, 48, 64, 65, 100, 101, 159};
    static const char *const stop[] = {"END", "ab", "\n\n", "e"};
    const int64_t n = lengths[i % 13], shared = i % 5 == 4 ? n : n * 2 / 3;
    make_prompt(tokens, n, shared, (uint32_t)(i % 3), (uint32_t)i);
    cl_engine_request request = make_request(tokens, n, 5 + i % 11, r);
    if (i % 4 == 1) request.sampling.temperature = 1;
    request.sampling.seed = (uint64_t)i;
    if (i % 8 == 5) request.sampling.frequency_penalty = 0.5f;
    if (i % 6 == 2) request.prompt_logprobs = true;
    if (i % 7 == 3) {
        request.stop = stop;
        request.n_stop = 4;
        request.ignore_eos = false;
        request.max_tokens = 40;
    }
    if (i >= N_REQUESTS - 4) {
        request.n = 3;
        request.sampling.temperature = 1;
    }
    return request;
}

/* Let the first request's first event submit all others, so that they arrive together while it runs. */
typedef struct arrival {
    fixture *f;
    cl_engine_request *requests;
    int n;
    bool done;
} arrival;

static void arrive(void *ctx, const cl_engine_event *event) {
    (void)event;
    arrival *a = ctx;
    for (int i = 0; i < a->n && !a->done; i++) submit(a->f, &a->requests[i]);
    a->done = true;
}

static void run_all(const setting *set, cattn_type kv_type, recording **recordings) {
    const cl_engine_config config = setting_config(set, kv_type);
    fixture f;
    fixture_start(&f, &config, set->n_threads);
    static int32_t tokens[N_REQUESTS][MAX_PROMPT];
    cl_engine_request requests[N_REQUESTS];
    const int n = N_REQUESTS;
    for (int i = 0; i < n; i++) {
        recordings[i] = recording_create();
        requests[i] = variety(i, tokens[i], recordings[i]);
    }
    if (set->one_by_one) {
        for (int i = 0; i < n; i++) {
            submit(&f, &requests[i]);
            recording_wait(requests[i].ctx);
        }
    } else {
        arrival a = {&f, requests + 1, n - 1, false};
        recordings[0]->hook = arrive;
        recordings[0]->hook_ctx = &a;
        submit(&f, &requests[0]);
        for (int i = 0; i < n; i++) recording_wait(requests[i].ctx);
    }
    const cl_engine_stats stats = stats_when_idle(&f);
    assert_int_equal(stats.requests_finished, n);
    assert_int_equal(kv_stats_of(&f).n_seqs, 0);
    assert_int_equal(kv_stats_of(&f).chunks_live, 0);
    assert_int_equal(kv_stats_of(&f).chunks_reserved, 0);
    fixture_stop(&f);
}

static void same_bytes_in_every_setting(void **state) {
    (void)state;
    static const setting settings[] = {
        {CATTN_PRIVATE, CATTN_RETAIN_NONE, 3, 0, 512, 1, 64 * MIB, true}, /* the one that others are compared with */
        {CATTN_PRIVATE, CATTN_RETAIN_NONE, 1, 0, 512, 1, 64 * MIB, true}, /* choices one after the other */
        {CATTN_SHARED, CATTN_RETAIN_LRU, 3, 0, 512, 1, 64 * MIB, true},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 32, 0, 512, 1, 64 * MIB, false},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 32, 1, 64, 2, 64 * MIB, false},
        {CATTN_SHARED, CATTN_RETAIN_NONE, 32, 7, 32, 1, 64 * MIB, false},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 32, 64, 64, 2, 64 * MIB, false},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 5, 3, 5, 1, 64 * MIB, false},
        {CATTN_SHARED_STORAGE, CATTN_RETAIN_LRU, 32, 16, 64, 2, 64 * MIB, false},
        {CATTN_SHARED_STORAGE, CATTN_RETAIN_NONE, 8, 0, 9, 1, 64 * MIB, false},
        {CATTN_PRIVATE, CATTN_RETAIN_LRU, 32, 7, 64, 2, 64 * MIB, false},
        {CATTN_PRIVATE, CATTN_RETAIN_NONE, 32, 0, 32, 1, 64 * MIB, false},
    };
    static const cattn_type types[] = {CATTN_F32, CATTN_BF16, CATTN_F16, CATTN_I8};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        recording *expected[N_REQUESTS], *got[N_REQUESTS];
        run_all(&settings[0], types[t], expected);
        for (size_t s = 1; s < sizeof settings / sizeof *settings; s++) {
            run_all(&settings[s], types[t], got);
            for (int i = 0; i < N_REQUESTS; i++) {
                if (!recording_equal(expected[i], got[i]))
                    fail_msg("K/V type %zu, setting %zu, request %d: something else was reported", t, s, i);
                recording_free(got[i]);
            }
        }
        for (int i = 0; i < N_REQUESTS; i++) {
            assert_true(expected[i]->n_events > 0);
            recording_free(expected[i]);
        }
    }
}

/* The logprobs of drawn tokens equal those that prompt_logprobs reports of the same tokens in a prompt, to the bit. */
static void prompt_logprobs_agree_with_drawing(void **state) {
    (void)state;
    enum { N_PROMPT = 75, N_DRAWN = 60, N = 3 };
    cl_engine_config config = fixture_config();
    config.prefill_piece = 20;
    fixture f;
    fixture_start(&f, &config, 1);
    int32_t whole[N_PROMPT + N_DRAWN];
    make_prompt(whole, N_PROMPT, N_PROMPT, 5, 0);
    recording *drawn = recording_create();
    cl_engine_request request = make_request(whole, N_PROMPT, N_DRAWN, drawn);
    request.n = N;
    request.sampling.temperature = 1;
    submit(&f, &request);
    recording_wait(drawn);
    assert_memory_not_equal(drawn->choices[0].tokens, drawn->choices[1].tokens, N_DRAWN * sizeof(int32_t));
    const uint64_t n_stored = kv_stats_when_idle(&f).tokens_stored;
    for (int k = 0; k < N; k++) {
        const recorded_choice *c = &drawn->choices[k];
        assert_int_equal(c->n_tokens, N_DRAWN);
        memcpy(whole + N_PROMPT, c->tokens, N_DRAWN * sizeof(int32_t));
        recording *scored = recording_create();
        request = make_request(whole, N_PROMPT + N_DRAWN, 1, scored);
        request.prompt_logprobs = true;
        submit(&f, &request);
        recording_wait(scored);
        assert_int_equal(scored->n_cached, 0);
        assert_int_equal(kv_stats_when_idle(&f).tokens_stored, n_stored);
        assert_int_equal(scored->n_prompt_events, N_PROMPT + N_DRAWN);
        assert_memory_equal(scored->prompt_logprobs + N_PROMPT, c->logprobs, N_DRAWN * sizeof(float));
        recording_free(scored);
    }
    recording_free(drawn);
    fixture_stop(&f);
}

/* Choice 0 of several is what it is alone; the prompt is computed once for all, at even and odd lengths. */
static void choices_share_their_prompt(void **state) {
    (void)state;
    enum { N = 5 };
    for (int64_t n_prompt = 30; n_prompt < 34; n_prompt++) {
        int32_t tokens[64];
        make_prompt(tokens, n_prompt, 0, 0, (uint32_t)n_prompt);
        recording *r[2];
        for (int i = 0; i < 2; i++) {
            fixture f;
            const cl_engine_config config = fixture_config();
            fixture_start(&f, &config, 1);
            r[i] = recording_create();
            cl_engine_request request = make_request(tokens, n_prompt, 12, r[i]);
            request.n = i == 0 ? 1 : N;
            request.sampling.temperature = 1;
            request.sampling.seed = 3;
            submit(&f, &request);
            recording_wait(r[i]);
            assert_int_equal(stats_when_idle(&f).prefill_tokens_computed, n_prompt);
            assert_int_equal(r[i]->n_completion, 12 * request.n);
            fixture_stop(&f);
        }
        assert_int_equal(r[0]->choices[0].log_size, r[1]->choices[0].log_size);
        assert_memory_equal(r[0]->choices[0].log, r[1]->choices[0].log, r[0]->choices[0].log_size);
        for (int k = 0; k < N; k++) assert_int_equal(r[1]->choices[k].finish, CL_ENGINE_LENGTH);
        recording_free(r[0]);
        recording_free(r[1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes_in_every_setting),
        cmocka_unit_test(prompt_logprobs_agree_with_drawing),
        cmocka_unit_test(choices_share_their_prompt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
