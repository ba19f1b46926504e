/* The same bytes are reported of a request whatever runs beside it and however the engine is configured. */
#include "tests/support/testing.h"

#include <string.h>

#include "fixture.h"

enum { N_KINDS = 28, N_ROUNDS = 3, N_REQUESTS = N_KINDS * N_ROUNDS, MAX_PROMPT = 160 };

/*
 * Requests of all kinds: families with a common prefix, lengths at and around chunk borders, equal prompts, choices. Each kind
 * comes in three rounds. The completion of the first one is a draft for the second that is right to the end, and for the third,
 * which has another temperature, one that is right for a while.
 */
static cl_engine_request variety(int i, int32_t *tokens, recording *r) {
    static const int64_t lengths[] = {1, 2, 15, 16, 17, 31, 47, 48, 64, 65, 100, 101, 159};
    static const char *const stop[] = {"END", "ab", "\n\n", "e"};
    static const int32_t stop_tokens[] = {65, 66, 67, 130, 131, 132, 133};
    const int kind = i % N_KINDS, round = i / N_KINDS;
    const int64_t n = lengths[kind % 13], shared = kind % 5 == 4 ? n : n * 2 / 3;
    make_prompt(tokens, n, shared, (uint32_t)(kind % 3), (uint32_t)kind);
    cl_engine_request request = make_request(tokens, n, 1 + 5 * (kind % 13), r);
    request.sampling.seed = (uint64_t)kind;
    if (kind % 2 == 1) request.sampling.temperature = round == 2 ? 0.7f : 1;
    if (kind % 8 == 5) request.sampling.frequency_penalty = 0.5f;
    if (kind % 8 == 6) request.sampling.repetition_penalty = 1.3f;
    if (kind % 8 == 7) request.sampling.top_p = 0.6f;
    if (kind % 6 == 2) request.prompt_logprobs = true;
    if (kind % 12 == 8) request.prompt_logprobs_from = shared;
    if (kind % 5 == 3) {
        request.stop = stop;
        request.n_stop = 4;
        request.max_tokens = 60;
    }
    if (kind % 5 == 4) {
        request.stop_tokens = stop_tokens;
        request.n_stop_tokens = 7;
        request.ignore_eos = false;
        request.max_tokens = 60;
    }
    if (kind >= N_KINDS - 4) {
        request.n = kind == N_KINDS - 1 ? RECORDING_CHOICES : 3;
        request.sampling.temperature = 1;
    }
    if (kind % 7 == 0) request.logprobs = false;
    return request;
}

static int64_t n_preemptions;

static void check_run(const setting *set, const drafting *way, const cl_engine_stats *stats) {
    n_preemptions += stats->preemptions;
    assert_true(way->on ? stats->drafts.n_accepted > 50 || set->kv_budget_bytes < MIB / 2 : stats->drafts.n_tokens == 0);
    /* Requests that run together have few completions to learn from, so hardly a draft of theirs is refused. */
    if (set->one_by_one && way->on && !(way->model && way->model->weights.bytes == 0))
        assert_true(stats->drafts.n_tokens > stats->drafts.n_accepted + 50);
}

/*
 * Alone and together, in every sharing mode, at several sizes of steps and numbers of threads, preempted where the budget is
 * small, and with drafts from all sources: none, the store, a model that is mostly right, and the model itself, as if it cost
 * nothing.
 */
static void same_bytes_in_every_setting(void **state) {
    (void)state;
    const drafting ways[] = {{false, NULL}, {true, NULL}, {true, toy_draft_model(0.1f)}, {true, toy_free_model()}};
    static const setting settings[] = {
        {CATTN_PRIVATE, CATTN_RETAIN_NONE, 1, 0, 512, 1, 64 * MIB, true}, /* choices one after the other */
        {CATTN_PRIVATE, CATTN_RETAIN_NONE, 3, 0, 64, 1, 64 * MIB, true},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 3, 0, 64, 1, 64 * MIB, true},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 16, 0, 64, 2, 64 * MIB, false},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 16, 7, 19, 1, 64 * MIB, false},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 32, 1, 64, 2, 64 * MIB, false},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 4, 3, 5, 1, MIB / 2, false},
        {CATTN_SHARED, CATTN_RETAIN_NONE, 5, 0, 40, 2, MIB, false},
        {CATTN_SHARED, CATTN_RETAIN_NONE, 32, 7, 32, 1, 64 * MIB, false},
        {CATTN_SHARED_STORAGE, CATTN_RETAIN_LRU, 8, 5, 64, 1, MIB, false},
        {CATTN_SHARED_STORAGE, CATTN_RETAIN_NONE, 4, 0, 9, 1, 64 * MIB, false},
        {CATTN_PRIVATE, CATTN_RETAIN_NONE, 8, 0, 512, 2, MIB, false},
        {CATTN_PRIVATE, CATTN_RETAIN_LRU, 32, 7, 64, 2, 64 * MIB, false},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 16, 0, 64, 1, MIB * 4 / 17, false},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 40, 7, 64, 2, MIB / 3, false},
        {CATTN_SHARED, CATTN_RETAIN_NONE, 16, 0, 19, 1, MIB * 4 / 17, false},
        {CATTN_SHARED_STORAGE, CATTN_RETAIN_LRU, 16, 5, 64, 1, MIB * 4 / 17, false},
        {CATTN_PRIVATE, CATTN_RETAIN_NONE, 16, 0, 512, 2, MIB / 3, false},
    };
    static const cattn_type types[] = {CATTN_F32, CATTN_BF16, CATTN_F16, CATTN_I8};
    expect_same_bytes(&(series){.make = variety,
                                .n = N_REQUESTS,
                                .max_prompt = MAX_PROMPT,
                                .undisturbed = {CATTN_PRIVATE, CATTN_RETAIN_NONE, 8, 0, 512, 1, 64 * MIB, true},
                                .settings = settings,
                                .n_settings = sizeof settings / sizeof *settings,
                                .types = types,
                                .n_types = 4,
                                .ways = ways,
                                .n_ways = 4,
                                .turns = true,
                                .check_run = check_run});
    assert_true(n_preemptions > 100); /* in 20 runs; how many one of them has depends on the level's workspace */
}

/* The logprobs of drawn tokens equal those that prompt_logprobs reports of the same tokens in a prompt, to the bit. */
static void prompt_logprobs_agree_with_drawing(void **state) {
    (void)state;
    enum { N_PROMPT = 75, N_DRAWN = 60, N = 3 };
    cl_engine_config config = fixture_config();
    config.prefill_segment = 20;
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
