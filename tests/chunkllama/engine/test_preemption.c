/*
 * Where the budget does not hold all choices, some leave the cache and return: every request ends, and what is computed again
 * is bounded. test_exact.c compares what is reported.
 */
#include "tests/support/testing.h"

#include "fixture.h"

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
        cmocka_unit_test(what_fits_alone_finishes),
        cmocka_unit_test(choices_run_in_turns),
        cmocka_unit_test(cancelled_in_every_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
