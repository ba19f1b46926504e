/*
 * Where the budget does not hold all choices, some leave the cache and return: the same bytes are reported, every request ends,
 * and what is computed again is bounded.
 */
#include "tests/support/testing.h"

#include <stdio.h>

#include "fixture.h"

enum { N_REQUESTS = 32, MAX_PROMPT = 120 };

/* Requests of all kinds, whose completions outgrow the chunks that they get at first. */
static cl_engine_request variety(int i, int32_t *tokens, recording *r) {
    static const int64_t lengths[] = {1, 2, 15, 16, 17, 31, 48, 65, 100, 119};
    static const char *const stop[] = {"END", "ab", "\n\n", "e"};
    static const int32_t stop_tokens[] = {17, 33, 65, 129, 193};
    const int64_t n = lengths[i % 10];
    make_prompt(tokens, n, i % 5 == 4 ? n : n * 2 / 3, (uint32_t)(i % 3), (uint32_t)i);
    cl_engine_request request = make_request(tokens, n, 30 + 7 * (i % 11), r);
    if (i % 2 == 1) request.sampling.temperature = 1;
    request.sampling.seed = (uint64_t)i;
    if (i % 8 == 5) request.sampling.frequency_penalty = 0.5f;
    if (i % 8 == 7) request.sampling.repetition_penalty = 1.2f;
    if (i % 6 == 2) request.prompt_logprobs = true;
    if (i % 7 == 0) request.logprobs = false;
    if (i % 7 == 3) {
        request.stop = stop;
        request.n_stop = 4;
        request.ignore_eos = false;
    }
    if (i % 7 == 5) {
        request.stop_tokens = stop_tokens;
        request.n_stop_tokens = 5;
        request.ignore_eos = false;
    }
    if (i % 8 == 6) request.n = 3;
    if (i == N_REQUESTS - 1 || i == 2) request.n = RECORDING_CHOICES;
    return request;
}

static cl_engine_stats run_all(const setting *set, cattn_type kv_type, const drafting *drafting, recording **recordings) {
    return run_requests(set, kv_type, drafting, variety, N_REQUESTS, MAX_PROMPT, recordings);
}

/* With and without drafts, in all sharing modes: preempted choices report what undisturbed ones do. */
static void same_bytes_through_preemption(void **state) {
    (void)state;
    const drafting off = {false, NULL}, ways[] = {{false, NULL}, {true, NULL}, {true, toy_draft_model(0.1f)}};
    static const setting undisturbed = {CATTN_SHARED, CATTN_RETAIN_LRU, 64, 0, 64, 1, 64 * MIB, true};
    static const setting settings[] = {
        {CATTN_SHARED, CATTN_RETAIN_LRU, 16, 0, 64, 1, MIB / 4, false},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 40, 7, 64, 2, MIB / 2, false},
        {CATTN_SHARED, CATTN_RETAIN_NONE, 16, 0, 19, 1, MIB / 4, false},
        {CATTN_SHARED_STORAGE, CATTN_RETAIN_LRU, 32, 5, 64, 1, MIB / 3, false},
        {CATTN_PRIVATE, CATTN_RETAIN_NONE, 16, 0, 512, 2, MIB / 3, false},
    };
    static const cattn_type types[] = {CATTN_F32, CATTN_BF16, CATTN_I8};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        recording *expected[N_REQUESTS], *got[N_REQUESTS];
        assert_int_equal(run_all(&undisturbed, types[t], &off, expected).preemptions, 0);
        for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
            for (int way = 0; way < 3; way++) {
                const cl_engine_stats stats = run_all(&settings[s], types[t], &ways[way], got);
                assert_true(stats.preemptions > 0);
                char text[64];
                snprintf(text, sizeof text, "K/V type %zu, setting %zu, way %d", t, s, way);
                expect_same_reports(expected, got, N_REQUESTS, text);
            }
        }
        for (int i = 0; i < N_REQUESTS; i++) recording_free(expected[i]);
    }
}

/* An engine whose budget does not hold what the next tests ask of it at once. */
static void start_short_of_memory(fixture *f) {
    cl_engine_config config = fixture_config();
    config.kv_budget_bytes = MIB / 5;
    fixture_start(f, &config, 1);
}

/* Each request needs all of the budget in the end, and there are many: all finish, and each is preempted a few times at most.
 */
static void what_fits_alone_finishes(void **state) {
    (void)state;
    enum { N = 20, N_PROMPT = 40 };
    fixture f;
    start_short_of_memory(&f);
    int32_t tokens[N][N_PROMPT];
    recording *r[N];
    cl_engine_request requests[N];
    for (int i = 0; i < N; i++) make_prompt(tokens[i], N_PROMPT, 20, 1, (uint32_t)i);
    const int64_t max_tokens = longest_completion(&f, make_request(tokens[0], N_PROMPT, 0, NULL));
    assert_in_range(max_tokens, 100, 1000);
    for (int i = 0; i < N; i++) {
        r[i] = recording_create();
        requests[i] = make_request(tokens[i], N_PROMPT, max_tokens, r[i]);
    }
    submit_together(&f, requests, N, NULL);
    for (int i = 0; i < N; i++) {
        recording_wait(r[i]);
        assert_int_equal(r[i]->choices[0].finish, CL_ENGINE_LENGTH);
        if (i > 0) assert_true(r[i]->first_event_order > r[i - 1]->first_event_order);
    }
    for (int i = 0; i < N; i++) recording_free(r[i]);
    assert_in_range(stats_when_idle(&f).preemptions, N, 8 * N);
    fixture_stop(&f);
}

/* Choices that do not fit together run in turns, and more choices than max_seqs too. */
static void choices_run_in_turns(void **state) {
    (void)state;
    enum { N = RECORDING_CHOICES, N_PROMPT = 80, N_TOKENS = 150 };
    int32_t tokens[N_PROMPT];
    make_prompt(tokens, N_PROMPT, 0, 0, 1);
    recording *r[3];
    for (int i = 0; i < 3; i++) {
        cl_engine_config config = fixture_config();
        if (i == 1) config.kv_budget_bytes = MIB / 4;
        if (i == 2) config.max_seqs = 3;
        fixture f;
        fixture_start(&f, &config, 1);
        r[i] = recording_create();
        cl_engine_request request = make_request(tokens, N_PROMPT, N_TOKENS, r[i]);
        request.n = N;
        request.sampling.temperature = 1;
        submit(&f, &request);
        recording_wait(r[i]);
        const cl_engine_stats stats = stats_when_idle(&f);
        assert_true(stats.batch_peak <= (i == 2 ? 3 : N));
        if (i == 1) assert_true(stats.preemptions > 0 && kv_stats_of(&f).chunks_capacity < N * N_TOKENS / 2 / 16);
        assert_int_equal(r[i]->n_completion, N * N_TOKENS);
        assert_true(recording_equal(r[0], r[i]));
        fixture_stop(&f);
    }
    for (int i = 0; i < 3; i++) recording_free(r[i]);
}

/* Cancels every second request when a request reports its event number `at`. */
typedef struct canceller {
    fixture *f;
    const uint64_t *ids; /* [n] */
    int first, n;
    int64_t n_events, at;
} canceller;

static void cancel_some(void *ctx, const cl_engine_event *event) {
    (void)event;
    canceller *c = ctx;
    if (c->n_events++ != c->at) return;
    for (int i = c->first; i < c->n; i += 2) cl_engine_cancel(c->f->engine, c->ids[i]);
}

/* Cancel requests in every state while the budget is too small for them; the engine goes down amid the others. */
static void cancelled_in_every_state(void **state) {
    (void)state;
    enum { N = 16, N_PROMPT = 40 };
    int n_cancelled = 0;
    for (int turn = 0; turn < 8; turn++) {
        fixture f;
        start_short_of_memory(&f);
        int32_t tokens[N][N_PROMPT];
        cl_engine_request requests[N];
        recording *r[N];
        uint64_t ids[N];
        canceller c = {.f = &f, .ids = ids, .first = turn % 2, .n = N, .at = 20 + 9 * turn};
        for (int i = 0; i < N; i++) {
            make_prompt(tokens[i], N_PROMPT, 20, 1, (uint32_t)i);
            r[i] = recording_create();
            requests[i] = make_request(tokens[i], N_PROMPT, 100, r[i]);
            if (i % 3 == 2) requests[i].n = 3;
        }
        r[0]->hook = cancel_some;
        r[0]->hook_ctx = &c;
        submit_together(&f, requests, N, ids);
        for (int i = c.first; i < N; i += 2) {
            recording_wait(r[i]);
            n_cancelled += r[i]->choices[0].finish == CL_ENGINE_CANCELLED;
        }
        if (turn > 3) {
            for (int i = 0; i < N; i++) recording_wait(r[i]);
            assert_int_equal(kv_stats_when_idle(&f).chunks_live, 0);
        }
        fixture_stop(&f);
        for (int i = 0; i < N; i++) {
            assert_true(r[i]->done);
            recording_free(r[i]);
        }
    }
    assert_true(n_cancelled > 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes_through_preemption),
        cmocka_unit_test(what_fits_alone_finishes),
        cmocka_unit_test(choices_run_in_turns),
        cmocka_unit_test(cancelled_in_every_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
